#include "gemms.h"

#include "shape.h"

// What the emitted files define. `gen emit --header` writes such declarations, too, one by one.
#define GEMM_WORKSPACE(name)                                                                  \
  extern "C" cudaError_t name##_workspace(                                                    \
      long long M, long long N, long long K, const __half* A, long long lda, const __half* B, \
      long long ldb, size_t* bytes);

#define GEMM(name, Out)                                                                   \
  GEMM_WORKSPACE(name)                                                                    \
  extern "C" cudaError_t name##_launch(                                                   \
      long long M, long long N, long long K, float alpha, const __half* A, long long lda, \
      const __half* B, long long ldb, float beta, const Out* C, long long ldc, Out* D,    \
      long long ldd, void* workspace, size_t workspace_bytes, cudaStream_t stream);

#define GEMM_WITH_BIAS(name, Out)                                                         \
  GEMM_WORKSPACE(name)                                                                    \
  extern "C" cudaError_t name##_launch(                                                   \
      long long M, long long N, long long K, float alpha, const __half* A, long long lda, \
      const __half* B, long long ldb, float beta, const Out* C, long long ldc, Out* D,    \
      long long ldd, const Out* bias, void* workspace, size_t workspace_bytes,            \
      cudaStream_t stream);

GEMM_WITH_BIAS(mnist_forward_small, __half)
GEMM_WITH_BIAS(mnist_forward_split, __half)
GEMM_WITH_BIAS(mnist_forward_large, __half)
GEMM_WITH_BIAS(mnist_forward_small_f16, __half)
GEMM_WITH_BIAS(mnist_forward_large_f16, __half)
GEMM_WITH_BIAS(mnist_logits_split, float)
GEMM(mnist_input_gradient_small, __half)
GEMM(mnist_input_gradient_split, __half)
GEMM(mnist_input_gradient_large, __half)
GEMM(mnist_input_gradient_small_f16, __half)
GEMM(mnist_input_gradient_large_f16, __half)
GEMM(mnist_weight_update_small, float)
GEMM(mnist_weight_update_large, float)
#ifdef MNIST_HOPPER
GEMM_WITH_BIAS(mnist_forward_hopper, __half)
GEMM(mnist_input_gradient_hopper, __half)
GEMM(mnist_weight_update_hopper, float)
#endif

namespace {

using Workspace = decltype(&mnist_forward_small_workspace);

template <class Launch>
struct Kernel {
  const char* name = nullptr;  // null: there is none
  Workspace workspace = nullptr;
  Launch launch = nullptr;
};

// Stands for a kernel that a build does not have.
struct NoKernel {
  template <class Launch>
  operator Kernel<Launch>() const {
    return {};
  }
};

#define KERNEL(name) {#name, name##_workspace, name##_launch}
#ifdef MNIST_HOPPER
#define HOPPER_KERNEL(name) KERNEL(name)
constexpr bool kHasHopperKernels = true;
#else
#define HOPPER_KERNEL(name) NoKernel()
constexpr bool kHasHopperKernels = false;
#endif

// The kernels that compute the same.
template <class Launch>
struct Family {
  Kernel<Launch> small, split, large, hopper;

  // The wanted one, or the most similar that there is.
  const Kernel<Launch>& get(Tiles tiles) const {
    if (tiles == Tiles::kHopper && hopper.name) return hopper;
    if ((tiles == Tiles::kHopper || tiles == Tiles::kLarge) && large.name) return large;
    return (tiles == Tiles::kSplit || !small.name) && split.name ? split : small;
  }
};

using ForwardLaunch = decltype(&mnist_forward_small_launch);
using LogitsLaunch = decltype(&mnist_logits_split_launch);
using GradientLaunch = decltype(&mnist_input_gradient_small_launch);
using UpdateLaunch = decltype(&mnist_weight_update_small_launch);

const Family<ForwardLaunch> kForward{
    KERNEL(mnist_forward_small), KERNEL(mnist_forward_split), KERNEL(mnist_forward_large),
    HOPPER_KERNEL(mnist_forward_hopper)};
const Family<ForwardLaunch> kForwardF16{
    KERNEL(mnist_forward_small_f16), {}, KERNEL(mnist_forward_large_f16), {}};
const Family<LogitsLaunch> kLogits{{}, KERNEL(mnist_logits_split), {}, {}};
const Family<GradientLaunch> kInputGradient{
    KERNEL(mnist_input_gradient_small), KERNEL(mnist_input_gradient_split),
    KERNEL(mnist_input_gradient_large), HOPPER_KERNEL(mnist_input_gradient_hopper)};
const Family<GradientLaunch> kInputGradientF16{
    KERNEL(mnist_input_gradient_small_f16), {}, KERNEL(mnist_input_gradient_large_f16), {}};
const Family<UpdateLaunch> kWeightUpdate{
    KERNEL(mnist_weight_update_small),
    {},
    KERNEL(mnist_weight_update_large),
    HOPPER_KERNEL(mnist_weight_update_hopper)};

// A sum this long is worth a second launch that adds up its slices.
constexpr int kSplitFrom = 1024;

// Large tiles reread less, but only where they occupy three quarters of the multiprocessors.
Tiles choose(const Choice& choice, int rows, int cols, int depth) {
  if (choice.tiles != Tiles::kAuto) return choice.tiles;
  const long long large_tiles = (rows + 127LL) / 128 * ((cols + 127LL) / 128);
  if (4 * large_tiles >= 3LL * choice.gpu.processors) {
    return choice.gpu.has_hopper_kernels() ? Tiles::kHopper : Tiles::kLarge;
  }
  return depth >= kSplitFrom ? Tiles::kSplit : Tiles::kSmall;
}

template <class Launch>
size_t workspace_bytes(
    const Kernel<Launch>& kernel, int m, int n, int k, const __half* a, int lda, const __half* b,
    int ldb) {
  size_t bytes = 0;
  CUDA(kernel.workspace(m, n, k, a, lda, b, ldb, &bytes));
  return bytes;
}

}  // namespace

bool Gpu::has_hopper_kernels() const {
  return kHasHopperKernels && capability == 90;
}

Gpu current_gpu() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    throw CudaError(std::string("there is no GPU to train on: ") + cudaGetErrorString(error));
  }
  int device = 0;
  CUDA(cudaGetDevice(&device));
  cudaDeviceProp properties;
  CUDA(cudaGetDeviceProperties(&properties, device));
  const Gpu gpu{
      properties.name, properties.multiProcessorCount, properties.major * 10 + properties.minor};
  if (gpu.capability < 80) {
    throw CudaError(gpu.name + " has compute capability below 8.0, which these kernels need");
  }
  return gpu;
}

Gemm hidden_layer(
    const Choice& choice, int rows, int in, int out, const __half* x, const __half* w,
    const __half* bias, __half* y) {
  const auto& family = choice.sums == Sums::kF16 ? kForwardF16 : kForward;
  const auto kernel = family.get(choose(choice, rows, out, in));
  return {
      kernel.name, workspace_bytes(kernel, rows, out, in, x, in, w, out),
      [=](void* workspace, size_t bytes, cudaStream_t stream) {
        return kernel.launch(
            rows, out, in, 1.0f, x, in, w, out, 0.0f, nullptr, 0, y, out, bias, workspace, bytes,
            stream);
      }};
}

Gemm last_layer(
    const Choice& choice, int rows, int in, const __half* x, const __half* w, const float* bias,
    float* logits) {
  const auto kernel = kLogits.get(choose(choice, rows, kClasses, in));
  return {
      kernel.name, workspace_bytes(kernel, rows, kClasses, in, x, in, w, kClassesLd),
      [=](void* workspace, size_t bytes, cudaStream_t stream) {
        return kernel.launch(
            rows, kClasses, in, 1.0f, x, in, w, kClassesLd, 0.0f, nullptr, 0, logits, kClassesLd,
            bias, workspace, bytes, stream);
      }};
}

Gemm input_gradient(
    const Choice& choice, int rows, int in, int out, int ld, const __half* dy, const __half* w,
    __half* dx) {
  const auto& family = choice.sums == Sums::kF16 ? kInputGradientF16 : kInputGradient;
  const auto kernel = family.get(choose(choice, rows, in, out));
  return {
      kernel.name, workspace_bytes(kernel, rows, in, out, dy, ld, w, ld),
      [=](void* workspace, size_t bytes, cudaStream_t stream) {
        return kernel.launch(
            rows, in, out, 1.0f, dy, ld, w, ld, 0.0f, nullptr, 0, dx, in, workspace, bytes, stream);
      }};
}

Gemm weight_update(
    const Choice& choice, int rows, int in, int out, int ld, float rate, const __half* x,
    const __half* dy, float* w) {
  const auto kernel = kWeightUpdate.get(choose(choice, in, out, rows));
  return {
      kernel.name, workspace_bytes(kernel, in, out, rows, x, in, dy, ld),
      [=](void* workspace, size_t bytes, cudaStream_t stream) {
        return kernel.launch(
            in, out, rows, -rate, x, in, dy, ld, 1.0f, w, ld, w, ld, workspace, bytes, stream);
      }};
}
