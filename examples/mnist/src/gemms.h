// The matrix products of a training step, each bound to its matrices and to the functions that gemmgen
// emits for ../kernels.cmake.
#ifndef MNIST_GEMMS_H
#define MNIST_GEMMS_H

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <functional>
#include <utility>

#include "cuda_support.h"

enum class Sums { kF16, kF32 };  // what a tensor core adds up in

// One product, ready to be launched any number of times. The workspace is its own, so that
// products can run side by side.
class Gemm {
 public:
  using Launch = std::function<cudaError_t(void* workspace, size_t bytes, cudaStream_t stream)>;

  Gemm(size_t workspace_bytes, Launch launch)
      : workspace_(workspace_bytes), launch_(std::move(launch)) {
  }

  void launch(cudaStream_t stream) const {
    CUDA(launch_(workspace_.data(), workspace_.size(), stream));
  }

 private:
  DeviceArray<char> workspace_;
  Launch launch_;
};

// The functions below throw CudaError, also where no kernels were built for the current GPU.

// y = relu(x w + bias): x is rows x in, w is in x out, all row-major and packed.
Gemm hidden_layer(
    Sums sums, int rows, int in, int out, const __half* x, const __half* w, const __half* bias,
    __half* y);

// logits = x w + bias, in f32; the rows of w and of the logits are kClassesLd apart.
Gemm last_layer(
    int rows, int in, const __half* x, const __half* w, const float* bias, float* logits);

// dx = dy w' where the activation is positive, else 0: the same w, read as its transpose. ld is that
// of dy and w; activation and dx are rows x in.
Gemm input_gradient(
    Sums sums, int rows, int in, int out, int ld, const __half* dy, const __half* w,
    const __half* activation, __half* dx);

// w -= rate x' dy: the gradient of the weights is never stored. ld is that of dy and w.
Gemm weight_update(
    int rows, int in, int out, int ld, float rate, const __half* x, const __half* dy, float* w);

#endif
