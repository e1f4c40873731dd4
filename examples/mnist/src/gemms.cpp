#include "gemms.h"

#include "mnist_forward.h"
#include "mnist_forward_f16.h"
#include "mnist_input_gradient.h"
#include "mnist_input_gradient_f16.h"
#include "mnist_logits.h"
#include "mnist_weight_update.h"
#include "shape.h"

namespace {

// What a product needs, by its function that says so.
size_t workspace_bytes(
    decltype(&mnist_forward_workspace) workspace, int m, int n, int k, const __half* a, int lda,
    const __half* b, int ldb) {
  size_t bytes = 0;
  const cudaError_t error = workspace(m, n, k, a, lda, b, ldb, &bytes);
  if (error == cudaErrorNoKernelImageForDevice) {
    throw CudaError(
        "no kernels were built for this GPU; configure with -DMNIST_GPUS and "
        "-DCMAKE_CUDA_ARCHITECTURES for it");
  }
  CUDA(error);
  return bytes;
}

}  // namespace

Gemm hidden_layer(
    Sums sums, int rows, int in, int out, const __half* x, const __half* w, const __half* bias,
    __half* y) {
  const bool f16 = sums == Sums::kF16;
  const auto workspace = f16 ? mnist_forward_f16_workspace : mnist_forward_workspace;
  const auto launch = f16 ? mnist_forward_f16_launch : mnist_forward_launch;
  return {
      workspace_bytes(workspace, rows, out, in, x, in, w, out),
      [=](void* memory, size_t bytes, cudaStream_t stream) {
        return launch(
            rows, out, in, 1.0f, x, in, w, out, 0.0f, nullptr, 0, y, out, bias, memory, bytes,
            stream);
      }};
}

Gemm last_layer(
    int rows, int in, const __half* x, const __half* w, const float* bias, float* logits) {
  return {
      workspace_bytes(mnist_logits_workspace, rows, kClasses, in, x, in, w, kClassesLd),
      [=](void* memory, size_t bytes, cudaStream_t stream) {
        return mnist_logits_launch(
            rows, kClasses, in, 1.0f, x, in, w, kClassesLd, 0.0f, nullptr, 0, logits, kClassesLd,
            bias, memory, bytes, stream);
      }};
}

Gemm input_gradient(
    Sums sums, int rows, int in, int out, int ld, const __half* dy, const __half* w,
    const __half* activation, __half* dx) {
  const bool f16 = sums == Sums::kF16;
  const auto workspace = f16 ? mnist_input_gradient_f16_workspace : mnist_input_gradient_workspace;
  const auto launch = f16 ? mnist_input_gradient_f16_launch : mnist_input_gradient_launch;
  return {
      workspace_bytes(workspace, rows, in, out, dy, ld, w, ld),
      [=](void* memory, size_t bytes, cudaStream_t stream) {
        return launch(
            rows, in, out, 1.0f, dy, ld, w, ld, 0.0f, nullptr, 0, dx, in, activation, in, memory,
            bytes, stream);
      }};
}

Gemm weight_update(
    int rows, int in, int out, int ld, float rate, const __half* x, const __half* dy, float* w) {
  return {
      workspace_bytes(mnist_weight_update_workspace, in, out, rows, x, in, dy, ld),
      [=](void* memory, size_t bytes, cudaStream_t stream) {
        return mnist_weight_update_launch(
            in, out, rows, -rate, x, in, dy, ld, 1.0f, w, ld, w, ld, memory, bytes, stream);
      }};
}
