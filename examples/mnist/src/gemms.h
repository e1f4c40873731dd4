// The matrix products of a training step, each bound to its matrices and to a generated kernel.
#ifndef MNIST_GEMMS_H
#define MNIST_GEMMS_H

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <utility>

#include "cuda_support.h"

// Which of the kernels that compute the same. See ../emit.py for their tiles.
enum class Tiles {
  kAuto,
  kSmall,  // 64 x 64: for results with too few large tiles to occupy the GPU
  kSplit,  // the same, and several blocks share a tile's sum: for long sums
  kLarge,  // 128 x 128
  kHopper,  // 128 x 128, fed by TMA
};

enum class Sums { kF16, kF32 };  // what a tensor core adds up in

struct Gpu {
  std::string name;
  int processors;  // multiprocessors
  int capability;  // 80 for 8.0

  bool has_hopper_kernels() const;
};

// The current GPU. Throws CudaError where there is none that the kernels run on.
Gpu current_gpu();

// What decides on a kernel, besides the sizes.
struct Choice {
  Gpu gpu;
  Tiles tiles = Tiles::kAuto;
  Sums sums = Sums::kF32;
};

// One product, ready to be launched any number of times. The workspace is its own, so that
// products can run side by side.
class Gemm {
 public:
  using Launch = std::function<cudaError_t(void* workspace, size_t bytes, cudaStream_t stream)>;

  Gemm(std::string kernel, size_t workspace_bytes, Launch launch)
      : kernel_(std::move(kernel)), workspace_(workspace_bytes), launch_(std::move(launch)) {
  }

  void launch(cudaStream_t stream) const {
    CUDA(launch_(workspace_.data(), workspace_.size(), stream));
  }
  const std::string& kernel() const {
    return kernel_;
  }

 private:
  std::string kernel_;
  DeviceArray<char> workspace_;
  Launch launch_;
};

// y = relu(x w + bias): x is rows x in, w is in x out, all row-major and packed.
Gemm hidden_layer(
    const Choice& choice, int rows, int in, int out, const __half* x, const __half* w,
    const __half* bias, __half* y);

// logits = x w + bias, in f32; the rows of w and of the logits are kClassesLd apart.
Gemm last_layer(
    const Choice& choice, int rows, int in, const __half* x, const __half* w, const float* bias,
    float* logits);

// dx = dy w': the same w, read as its transpose. ld is that of dy and w.
Gemm input_gradient(
    const Choice& choice, int rows, int in, int out, int ld, const __half* dy, const __half* w,
    __half* dx);

// w -= rate x' dy: the gradient of the weights is never stored. ld is that of dy and w.
Gemm weight_update(
    const Choice& choice, int rows, int in, int out, int ld, float rate, const __half* x,
    const __half* dy, float* w);

#endif
