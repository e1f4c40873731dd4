// What a training step does between the matrix products. NVRTC takes this file, too: the tests run
// it on the emulator.
//
// Sums over the batch (gradients of biases, the loss) are made in two stages without atomics, so
// that two runs give the same bits: blocks leave partial sums, and `advance` adds these up in order.
#ifndef MNIST_STEP_KERNELS_CUH
#define MNIST_STEP_KERNELS_CUH

#include <cuda_fp16.h>

#include "advance.h"
#include "shape.h"

constexpr int kStepThreads = 256;  // of every block

struct alignas(16) EightHalves {
  __half at[8];
};

struct alignas(16) SixteenBytes {
  unsigned char at[16];
};

// ---------------------------------------------------------------------------- the loss

// The largest or the sum of the values of 16 neighbouring lanes, for all of them.
__device__ inline float largest_of_16(float x) {
  for (int distance = 8; distance > 0; distance /= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, distance));
  }
  return x;
}

__device__ inline float sum_of_16(float x) {
  for (int distance = 8; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, distance);
  }
  return x;
}

// Softmax and cross-entropy: each row's loss, and its gradient with respect to the logits,
// softmax - one_hot(label). 16 lanes share a row; six of them have no class, and write zeros.
extern "C" __global__ void __launch_bounds__(kStepThreads) softmax_gradient(
    int rows, const float* logits, const unsigned char* labels, __half* gradient, float* losses,
    float* bias_sums, int* step) {
  __shared__ float block_sums[kSoftmaxRows][kClassesLd];
  const int row_in_block = threadIdx.x / 16, lane = threadIdx.x % 16;
  const int row = blockIdx.x * kSoftmaxRows + row_in_block;
  const bool has_class = row < rows && lane < kClasses;

  // The largest logit is subtracted, so that no exponential overflows.
  const float logit = has_class ? logits[row * kClassesLd + lane] : -3.4e38f;
  const float above = logit - largest_of_16(logit);
  const float e = has_class ? expf(above) : 0.0f;
  const float total = sum_of_16(e);
  const bool is_label = has_class && lane == labels[row];
  if (is_label) losses[row] = logf(total) - above;
  const float g = has_class ? e / total - (is_label ? 1.0f : 0.0f) : 0.0f;
  if (row < rows) gradient[row * kClassesLd + lane] = __float2half(g);

  block_sums[row_in_block][lane] = g;
  __syncthreads();  // all rows are there
  if (threadIdx.x < kClassesLd) {
    float sum = 0.0f;
    for (int r = 0; r < kSoftmaxRows; ++r) sum += block_sums[r][threadIdx.x];
    bias_sums[blockIdx.x * kClassesLd + threadIdx.x] = sum;
  }

  // From here on, the step is the next one. Nothing else in this launch looks at it.
  if (blockIdx.x == 0 && threadIdx.x == 0) ++*step;
}

// ---------------------------------------------------------------------------- biases

// Columns of a gradient are summed up for the bias: `block_sums` has a row for every kSumRows rows. A block
// takes 32 rows x 64 columns; `cols` is a multiple of 8.
extern "C" __global__ void __launch_bounds__(kStepThreads)
    column_sums(int rows, int cols, const __half* matrix, float* block_sums) {
  __shared__ float warp_sums[kStepThreads / 32][64];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = blockIdx.y * kSumRows + threadIdx.x / 8;
  const int col = blockIdx.x * 64 + threadIdx.x % 8 * 8;

  float sums[8] = {};
  if (row < rows && col < cols) {
    const long long at = static_cast<long long>(row) * cols + col;
    const EightHalves x = *reinterpret_cast<const EightHalves*>(matrix + at);
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[i] = __half2float(x.at[i]);
  }

#pragma unroll
  for (int i = 0; i < 8; ++i) {  // a warp's four rows, then the block's eight warps
    sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], 8);
    sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], 16);
    if (lane < 8) warp_sums[warp][lane * 8 + i] = sums[i];
  }
  __syncthreads();
  const int sum_col = blockIdx.x * 64 + threadIdx.x;
  if (threadIdx.x < 64 && sum_col < cols) {
    float sum = 0.0f;
    for (int w = 0; w < kStepThreads / 32; ++w) sum += warp_sums[w][threadIdx.x];
    block_sums[static_cast<long long>(blockIdx.y) * cols + sum_col] = sum;
  }
}

// ---------------------------------------------------------------------------- between two steps

// See advance.h.

// Pixels become 0..1.
__device__ inline void widen(const unsigned char* pixels, __half* halves) {
  const SixteenBytes from = *reinterpret_cast<const SixteenBytes*>(pixels);
  EightHalves to[2];
#pragma unroll
  for (int i = 0; i < 16; ++i) to[i / 8].at[i % 8] = __float2half(from.at[i] * (1.0f / 255.0f));
  reinterpret_cast<EightHalves*>(halves)[0] = to[0];
  reinterpret_cast<EightHalves*>(halves)[1] = to[1];
}

__device__ inline void gather(const Advance& a, int thread) {
  constexpr int kChunks = kPixels / 16;
  const int row = thread / kChunks, chunk = thread % kChunks;
  if (row >= a.batch) return;
  const long long image = a.order[static_cast<long long>(*a.step) * a.batch + row];
  widen(a.images + image * kPixels + chunk * 16, a.batch_images + row * kPixels + chunk * 16);
  if (chunk == 0) a.batch_labels[row] = a.labels[image];
}

// The weights themselves have been updated by the products; their copies have not.
__device__ inline void copy_weights(const Advance& a, int thread) {
  const long long first = static_cast<long long>(thread) * 8;
  if (first >= a.weights) return;
  const float4 low = *reinterpret_cast<const float4*>(a.masters + first);
  const float4 high = *reinterpret_cast<const float4*>(a.masters + first + 4);
  EightHalves copy;
  const float from[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (int i = 0; i < 8; ++i) copy.at[i] = __float2half(from[i]);
  *reinterpret_cast<EightHalves*>(a.copies + first) = copy;
}

__device__ inline void update_bias(const Advance& a, int thread) {
  const int hidden_biases = 2 * a.hidden;
  if (thread >= hidden_biases + kClasses) return;
  const bool is_last = thread >= hidden_biases;
  const int layer = thread / a.hidden;
  const float* const sums = is_last
                                ? a.softmax_sums + (thread - hidden_biases)
                                : a.hidden_sums[layer == 0 ? 0 : 1] + (thread - layer * a.hidden);
  const int rows_each = is_last ? kSoftmaxRows : kSumRows, pitch = is_last ? kClassesLd : a.hidden;
  const int rows = (a.batch + rows_each - 1) / rows_each;
  float sum = 0.0f;
#pragma unroll 4
  for (int r = 0; r < rows; ++r) sum += sums[static_cast<long long>(r) * pitch];
  const long long at = a.weights + thread;
  const float bias = a.masters[at] - a.rate * sum;
  a.masters[at] = bias;
  a.copies[at] = __float2half(bias);
}

__device__ inline void mean_loss(const Advance& a) {
  __shared__ float sums[kStepThreads];
  const int step = *a.step;
  if (step == 0) return;  // before the first step; so for all threads
  const int thread = threadIdx.x;
  float sum = 0.0f;
  for (int row = thread; row < a.batch; row += kStepThreads) sum += a.row_losses[row];
  sums[thread] = sum;
  for (int half = kStepThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) sums[thread] += sums[thread + half];
  }
  if (thread == 0) a.losses[step - 1] = sums[0] / a.batch;
}

extern "C" __global__ void __launch_bounds__(kStepThreads) advance(const Advance a) {
  int block = blockIdx.x;
  if (block < a.gather_blocks) return gather(a, block * kStepThreads + threadIdx.x);
  block -= a.gather_blocks;
  if (block < a.weight_blocks) return copy_weights(a, block * kStepThreads + threadIdx.x);
  block -= a.weight_blocks;
  if (block < a.bias_blocks) return update_bias(a, block * kStepThreads + threadIdx.x);
  mean_loss(a);
}

// ---------------------------------------------------------------------------- the test set

extern "C" __global__ void __launch_bounds__(kStepThreads)
    widen_images(long long pixels, const unsigned char* images, __half* halves) {
  const long long first = (static_cast<long long>(blockIdx.x) * kStepThreads + threadIdx.x) * 16;
  if (first < pixels) widen(images + first, halves + first);
}

extern "C" __global__ void __launch_bounds__(kStepThreads)
    count_correct(int rows, const float* logits, const unsigned char* labels, int* correct) {
  const int row = blockIdx.x * kStepThreads + threadIdx.x;
  bool right = false;
  if (row < rows) {
    int best = 0;
    for (int c = 1; c < kClasses; ++c) {
      if (logits[row * kClassesLd + c] > logits[row * kClassesLd + best]) best = c;
    }
    right = best == labels[row];
  }
  const unsigned int votes = __ballot_sync(0xffffffffu, right);
  if (threadIdx.x % 32 == 0) atomicAdd(correct, __popc(votes));
}

#endif
