// CUDA with errors as exceptions and owners that free what they hold.
#ifndef MNIST_CUDA_SUPPORT_H
#define MNIST_CUDA_SUPPORT_H

#include <cuda_runtime_api.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

class CudaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void check_cuda(cudaError_t error, const char* call, const char* file, int line) {
  if (error == cudaSuccess) return;
  throw CudaError(
      std::string(call) + ": " + cudaGetErrorString(error) + " (" + file + ":" +
      std::to_string(line) + ")");
}

#define CUDA(call) check_cuda(call, #call, __FILE__, __LINE__)

// Device memory for `size` elements, zeros at first. Its alignment is that of cudaMalloc, 256 bytes.
template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(size_t size) : size_(size) {
    if (size == 0) return;
    CUDA(cudaMalloc(reinterpret_cast<void**>(&data_), size * sizeof(T)));
    const cudaError_t error = cudaMemset(data_, 0, size * sizeof(T));
    if (error != cudaSuccess) cudaFree(data_);  // no destructor runs for what throws here
    CUDA(error);
  }
  explicit DeviceArray(const std::vector<T>& from) : DeviceArray(from.size()) {
    if (size_ == 0) return;
    CUDA(cudaMemcpy(data_, from.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~DeviceArray() {
    cudaFree(data_);
  }
  DeviceArray(DeviceArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {
  }
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  T* data() const {
    return data_;
  }
  size_t size() const {
    return size_;
  }

  // `count` elements from `first` on. Waits for nothing but the copy: synchronise first.
  std::vector<T> read(size_t first, size_t count) const {
    std::vector<T> to(count);
    if (count == 0) return to;
    CUDA(cudaMemcpy(to.data(), data_ + first, count * sizeof(T), cudaMemcpyDeviceToHost));
    return to;
  }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

// A handle that is made by one function and given back by another.
template <class Handle, cudaError_t (*kDestroy)(Handle)>
class Owner {
 public:
  Owner() = default;
  explicit Owner(Handle handle) : handle_(handle) {
  }
  ~Owner() {
    if (handle_) kDestroy(handle_);
  }
  Owner(Owner&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {
  }
  Owner& operator=(Owner&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  Handle get() const {
    return handle_;
  }
  explicit operator bool() const {
    return handle_ != nullptr;
  }

 private:
  Handle handle_ = nullptr;
};

using Stream = Owner<cudaStream_t, cudaStreamDestroy>;
using Event = Owner<cudaEvent_t, cudaEventDestroy>;
using Graph = Owner<cudaGraph_t, cudaGraphDestroy>;
using GraphExec = Owner<cudaGraphExec_t, cudaGraphExecDestroy>;

// A stream that does not wait for the default one.
inline Stream make_stream() {
  cudaStream_t stream;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return Stream(stream);
}

inline Event make_event(unsigned int flags = cudaEventDisableTiming) {
  cudaEvent_t event;
  CUDA(cudaEventCreateWithFlags(&event, flags));
  return Event(event);
}

#endif
