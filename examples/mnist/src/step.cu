#include "cuda_support.h"
#include "step.h"
#include "step_kernels.cuh"

namespace {

unsigned int blocks_for(long long threads) {
  return static_cast<unsigned int>((threads + kStepThreads - 1) / kStepThreads);
}

}  // namespace

void launch_softmax_gradient(
    int rows, const float* logits, const unsigned char* labels, __half* gradient, float* losses,
    float* bias_sums, int* step, cudaStream_t stream) {
  softmax_gradient<<<softmax_blocks(rows), kStepThreads, 0, stream>>>(
      rows, logits, labels, gradient, losses, bias_sums, step);
  CUDA(cudaGetLastError());
}

void launch_column_sums(
    int rows, int cols, const __half* matrix, float* sums, cudaStream_t stream) {
  const dim3 grid((cols + 63) / 64, sum_blocks(rows));
  column_sums<<<grid, kStepThreads, 0, stream>>>(rows, cols, matrix, sums);
  CUDA(cudaGetLastError());
}

void launch_advance(Advance a, cudaStream_t stream) {
  a.gather_blocks = blocks_for(static_cast<long long>(a.batch) * (kPixels / 16));
  a.weight_blocks = blocks_for(a.weights / 8);
  a.bias_blocks = blocks_for(2LL * a.hidden + kClasses);
  const int blocks = a.gather_blocks + a.weight_blocks + a.bias_blocks + 1;
  advance<<<blocks, kStepThreads, 0, stream>>>(a);
  CUDA(cudaGetLastError());
}

void launch_widen_images(
    int images, const unsigned char* pixels, __half* halves, cudaStream_t stream) {
  const long long count = static_cast<long long>(images) * kPixels;
  widen_images<<<blocks_for(count / 16), kStepThreads, 0, stream>>>(count, pixels, halves);
  CUDA(cudaGetLastError());
}

void launch_count_correct(
    int rows, const float* logits, const unsigned char* labels, int* correct, cudaStream_t stream) {
  count_correct<<<blocks_for(rows), kStepThreads, 0, stream>>>(rows, logits, labels, correct);
  CUDA(cudaGetLastError());
}
