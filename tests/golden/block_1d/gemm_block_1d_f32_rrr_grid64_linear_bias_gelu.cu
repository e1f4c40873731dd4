// gemm_block_1d_f32_rrr_grid64_linear_bias_gelu: D = alpha * A * B + beta * C + bias, GELU
//
// Each block computes rows of D, one after another, its threads striding over the columns. The grid
// may have any number of blocks: with fewer blocks than rows, each takes every gridDim.x-th row, and
// with fewer threads than columns, each thread takes every kThreads-th column.
//
//   A  M x K, row-major, float
//   B  K x N, row-major, float
//   C  M x N, row-major, float; not read when beta is 0
//   D  M x N, row-major, float; must not overlap A or B; may be C, where ldc is ldd
//   bias  N elements, float: one for each column of D
//
// Any M, N, K >= 0. Accumulators, alpha and beta are float. Leading dimensions count elements.
// Needs a GPU of compute capability 7.5 or newer and C++17.
//
// Made by gemmgen 0.2.0:  gen emit --variant block_1d --dtype f32 --layout rrr --arch sm_80 --threads 256 --grid 64 --epilogue linear_bias_gelu
// Compile:  nvcc -std=c++17 -arch=sm_80 -c gemm_block_1d_f32_rrr_grid64_linear_bias_gelu.cu, or by NVRTC as it is
// gen-spec: {"variant": "block_1d", "dtype": "f32", "layout": "rrr", "arch": "sm_80", "threads": 256, "grid": 64, "epilogue": "linear_bias_gelu"}
// SPDX-License-Identifier: 0BSD

namespace gemm_block_1d_f32_rrr_grid64_linear_bias_gelu_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = float;
using output_t = float;
using accumulator_t = float;
using scalar_t = accumulator_t;  // of alpha, beta, the epilogue

constexpr int kThreads = 256;  // per block

static_assert(kThreads <= 1024, "a block has at most 1024 threads");

// Where an element lies in its matrix.
__device__ inline index_t a_at(index_t row, index_t k, index_t lda) {
  return row * lda + k;
}
__device__ inline index_t b_at(index_t k, index_t col, index_t ldb) {
  return k * ldb + col;
}
__device__ inline index_t c_at(index_t row, index_t col, index_t ldc) {
  return row * ldc + col;
}

// x times the probability that a normally distributed number is less (Hendrycks and Gimpel, 2016).
__device__ inline scalar_t gelu(scalar_t x) {
  return 0.5f * x * (1.0f + erff(x * 0.70710678f));
}

// Element (row, col) of D: alpha * sum + beta * C + bias, then gelu. As in BLAS, C is not read when
// beta is 0: it may hold NaN or be null.
__device__ inline void epilogue(
    accumulator_t sum, index_t row, index_t col, scalar_t alpha, scalar_t beta, const output_t* C,
    index_t ldc, output_t* D, index_t ldd, const output_t* bias) {
  scalar_t x = alpha * sum;
  if (beta != 0) x += beta * scalar_t(C[c_at(row, col, ldc)]);
  x += scalar_t(bias[col]);
  D[c_at(row, col, ldd)] = output_t(gelu(x));
}

extern "C" __global__ void __launch_bounds__(kThreads)  // lets the compiler count on the block size
    gemm_block_1d_f32_rrr_grid64_linear_bias_gelu(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        const input_t* __restrict__ B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc,
        output_t* D, index_t ldd, const output_t* bias) {
  for (index_t row = blockIdx.x; row < M; row += gridDim.x) {
    for (index_t col = threadIdx.x; col < N; col += kThreads) {
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
//   209  cudaErrorNoKernelImageForDevice: a GPU older than nvcc's -arch. For newer ones the driver
//        compiles the file's PTX when it is first needed, unless nvcc was told to leave PTX out
//   400  cudaErrorInvalidResourceHandle: a stream of another device
extern "C" cudaError_t  // cudaSuccess once the kernel is on its way
gemm_block_1d_f32_rrr_grid64_linear_bias_gelu_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, scalar_t alpha, const input_t* A, index_t lda,
    const input_t* B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc, output_t* D,
    index_t ldd, const output_t* bias, cudaStream_t stream) {
  constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows
  if (M < 0 || N < 0 || K < 0) return cudaErrorInvalidValue;
  if (M == 0 || N == 0) return cudaSuccess;  // D has no elements
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return cudaErrorInvalidValue;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return cudaErrorInvalidValue;
  if (bias == nullptr) return cudaErrorInvalidValue;

  const index_t grid_x = M < 64 ? M : 64;  // blocks; they stride over the rest
  int device;
  cudaError_t error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const auto kernel = gemm_block_1d_f32_rrr_grid64_linear_bias_gelu;
  const dim3 grid{unsigned(grid_x)}, block{kThreads};
  return launch(
      kernel, grid, block, 0, stream,  // and its parameters:
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd, bias);
}

#endif  // __CUDACC_RTC__
}  // namespace gemm_block_1d_f32_rrr_grid64_linear_bias_gelu_ns
