// The kernels of step_kernels.cuh for the host: each function puts one launch on a stream.
#ifndef MNIST_STEP_H
#define MNIST_STEP_H

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include "advance.h"
#include "shape.h"

// How many rows of sums the kernels leave for so many rows of a batch.
constexpr int softmax_blocks(int rows) {
  return (rows + kSoftmaxRows - 1) / kSoftmaxRows;
}
constexpr int sum_blocks(int rows) {
  return (rows + kSumRows - 1) / kSumRows;
}

void launch_softmax_gradient(
    int rows, const float* logits, const unsigned char* labels, __half* gradient, float* losses,
    float* bias_sums, int* step, cudaStream_t stream);

void launch_column_sums(int rows, int cols, const __half* matrix, float* sums, cudaStream_t stream);

// Sets the numbers of blocks itself.
void launch_advance(Advance advance, cudaStream_t stream);

void launch_widen_images(
    int images, const unsigned char* pixels, __half* halves, cudaStream_t stream);

void launch_count_correct(
    int rows, const float* logits, const unsigned char* labels, int* correct, cudaStream_t stream);

#endif
