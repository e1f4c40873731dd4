// gemm_naive_bf16_ccc_linear_bias: D = alpha * A * B + beta * C + bias
//
// The definition, written down: one thread computes one element of D, reading its row of A and its
// column of B from global memory. Every element of A is read N times and every one of B M times;
// caches are all that helps. Threads that are neighbours along x share a row of A and read
// neighbouring columns of B.
//
//   A  M x K, column-major, __nv_bfloat16
//   B  K x N, column-major, __nv_bfloat16
//   C  M x N, column-major, __nv_bfloat16; not read when beta is 0
//   D  M x N, column-major, __nv_bfloat16; must not overlap A or B; may be C, where ldc is ldd
//   bias  N elements, __nv_bfloat16: one for each column of D
//
// Any M, N, K >= 0. Accumulators, alpha and beta are float. Leading dimensions count elements.
// Needs a GPU of compute capability 7.5 or newer and C++17.
//
// Made by gemmgen 0.2.0:  gen emit --variant naive --dtype bf16 --layout ccc --arch sm_80 --threads 256 --epilogue linear_bias
// Compile:  nvcc -std=c++17 -arch=sm_80 -c gemm_naive_bf16_ccc_linear_bias.cu, or by NVRTC as it is
// gen-spec: {"variant": "naive", "dtype": "bf16", "layout": "ccc", "arch": "sm_80", "threads": 256, "epilogue": "linear_bias"}
// SPDX-License-Identifier: 0BSD

#include <cuda_bf16.h>

namespace gemm_naive_bf16_ccc_linear_bias_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = __nv_bfloat16;
using output_t = __nv_bfloat16;
using accumulator_t = float;
using scalar_t = accumulator_t;  // of alpha, beta, the epilogue

constexpr int kThreadsX = 16;  // columns of D per block
constexpr int kThreadsY = 16;  // rows of D per block
constexpr int kThreads = kThreadsX * kThreadsY;

static_assert(kThreads <= 1024, "a block has at most 1024 threads");

// Where an element lies in its matrix.
__device__ inline index_t a_at(index_t row, index_t k, index_t lda) {
  return k * lda + row;
}
__device__ inline index_t b_at(index_t k, index_t col, index_t ldb) {
  return col * ldb + k;
}
__device__ inline index_t c_at(index_t row, index_t col, index_t ldc) {
  return col * ldc + row;
}

// Element (row, col) of D: alpha * sum + beta * C + bias. As in BLAS, C is not read when
// beta is 0: it may hold NaN or be null.
__device__ inline void epilogue(
    accumulator_t sum, index_t row, index_t col, scalar_t alpha, scalar_t beta, const output_t* C,
    index_t ldc, output_t* D, index_t ldd, const output_t* bias) {
  scalar_t x = alpha * sum;
  if (beta != 0) x += beta * scalar_t(C[c_at(row, col, ldc)]);
  x += scalar_t(bias[col]);
  D[c_at(row, col, ldd)] = output_t(x);
}

extern "C" __global__ void __launch_bounds__(kThreads)  // lets the compiler count on the block size
    gemm_naive_bf16_ccc_linear_bias(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        const input_t* __restrict__ B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc,
        output_t* D, index_t ldd, const output_t* bias) {
  const index_t col = index_t(blockIdx.x) * kThreadsX + threadIdx.x;
  if (col >= N) return;

  // A grid has at most 65,535 blocks along y: where D has more rows, blocks stride over the rest.
  const index_t first_row = index_t(blockIdx.y) * kThreadsY + threadIdx.y;
  for (index_t row = first_row; row < M; row += index_t(gridDim.y) * kThreadsY) {
    accumulator_t sum = 0;
#pragma unroll 16  // many loads on their way at once: waiting for them is what takes the time
    for (index_t k = 0; k < K; ++k) {
      const accumulator_t a = static_cast<accumulator_t>(A[a_at(row, k, lda)]);
      const accumulator_t b = static_cast<accumulator_t>(B[b_at(k, col, ldb)]);
      sum += a * b;
    }
    epilogue(sum, row, col, alpha, beta, C, ldc, D, ldd, bias);
  }
}

#ifndef __CUDACC_RTC__  // the host's side, for programs built by nvcc
// Tells the current device. The runtime launches on a stream's device, whichever is current, where
// it would run into matrices that it cannot reach: a stream of another device is refused.
inline cudaError_t check_stream([[maybe_unused]] cudaStream_t stream, int& device) {
  cudaError_t error = cudaGetDevice(&device);
#if CUDART_VERSION >= 13000  // older ones run with drivers that cannot tell
  cudaStreamCaptureStatus capture;
  if (error == cudaSuccess) error = cudaStreamIsCapturing(stream, &capture);
  if (error != cudaSuccess || capture != cudaStreamCaptureStatusNone) return error;
  int own;
  error = cudaStreamGetDevice(stream, &own);
  if (error == cudaSuccess && own != device) return cudaErrorInvalidResourceHandle;
#endif
  return error;
}

// Queues a kernel, and says what became of that alone: no error of an earlier call is reported.
template <class... Parameters, class... Arguments>
inline cudaError_t launch(
    void (*kernel)(Parameters...), dim3 grid, dim3 block, int shared_bytes, cudaStream_t stream,
    Arguments... arguments) {
  const cudaLaunchConfig_t config{grid, block, size_t(shared_bytes), stream, nullptr, 0};
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

// Checks the arguments and queues the kernel on a stream. Any threads may call it at once, also
// while a CUDA graph is captured: it never prints, exits, waits or allocates.
// Where it returns one of these, D is as it was:
//     1  cudaErrorInvalidValue: a negative size, a null matrix, a leading dimension too
//        short, a matrix of more than 2^44 elements
//     9  cudaErrorInvalidConfiguration: more blocks than a grid may have
//   209  cudaErrorNoKernelImageForDevice: a GPU older than nvcc's -arch. For newer ones the driver
//        compiles the file's PTX when it is first needed, unless nvcc was told to leave PTX out
//   400  cudaErrorInvalidResourceHandle: a stream of another device
extern "C" cudaError_t  // cudaSuccess once the kernel is on its way
gemm_naive_bf16_ccc_linear_bias_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, scalar_t alpha, const input_t* A, index_t lda,
    const input_t* B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc, output_t* D,
    index_t ldd, const output_t* bias, cudaStream_t stream) {
  constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows
  if (M < 0 || N < 0 || K < 0) return cudaErrorInvalidValue;
  if (M == 0 || N == 0) return cudaSuccess;  // D has no elements
  if (K > 0 && (A == nullptr || lda < M || lda > kLargest / K)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < K || ldb > kLargest / N)) return cudaErrorInvalidValue;
  if (beta != 0 && (C == nullptr || ldc < M || ldc > kLargest / N)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < M || ldd > kLargest / N) return cudaErrorInvalidValue;
  if (bias == nullptr) return cudaErrorInvalidValue;

  const index_t grid_x = (N + kThreadsX - 1) / kThreadsX;  // columns of blocks
  const index_t rows = (M + kThreadsY - 1) / kThreadsY;  // of blocks; they stride over the rest
  const index_t grid_y = rows < 65535 ? rows : 65535;
  if (grid_x > 2147483647) return cudaErrorInvalidConfiguration;  // a grid is not wider
  int device;
  cudaError_t error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const auto kernel = gemm_naive_bf16_ccc_linear_bias;
  const dim3 grid{unsigned(grid_x), unsigned(grid_y)}, block{kThreadsX, kThreadsY};
  return launch(
      kernel, grid, block, 0, stream,  // and its parameters:
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd, bias);
}

#endif  // __CUDACC_RTC__
}  // namespace gemm_naive_bf16_ccc_linear_bias_ns
