// gemm_naive_f32_ccc_e24c24dde: D = silu(x) * up[row, col] + slope * rest[row, col], x = alpha * A * B + beta * C
//
// The definition, written down: one thread computes one element of D, reading its row of A and its
// column of B from global memory. Every element of A is read N times and every one of B M times;
// caches are all that helps. Threads that are neighbours along x share a row of A and read
// neighbouring columns of B.
//
//   A  M x K, column-major, float
//   B  K x N, column-major, float
//   C  M x N, column-major, float; not read when beta is 0
//   D  M x N, column-major, float; must not overlap A or B; may be C, where ldc is ldd
//   up  M x N, in D's order, __half
//   slope  a number of alpha's type
//   rest  M x N, in D's order, float
//
// Any M, N, K >= 0. Accumulators, alpha and beta are float. Leading dimensions count elements.
// Needs a GPU of compute capability 7.5 or newer and C++17.
//
// Made by gemmgen 0.2.0:  gen emit --variant naive --dtype f32 --layout ccc --arch sm_80 --threads 256 --epilogue 'silu(x) * up[row, col] + slope * rest[row, col] where up=f16[row, col], slope=scalar' --header
// Compile:  nvcc -std=c++17 -arch=sm_80 -c gemm_naive_f32_ccc_e24c24dde.cu, or by NVRTC as it is
// gen-spec: {"variant": "naive", "dtype": "f32", "layout": "ccc", "arch": "sm_80", "threads": 256, "epilogue": "silu(x) * up[row, col] + slope * rest[row, col] where up=f16[row, col], slope=scalar"}
// SPDX-License-Identifier: 0BSD

#ifndef __CUDACC_RTC__
#include "gemm_naive_f32_ccc_e24c24dde.h"
#if GEMM_NAIVE_F32_CCC_E24C24DDE_SPEC != 0xedc9086e
#error "the header is another kernel's; emit both files together"
#endif
#endif

#include <cuda_fp16.h>

namespace gemm_naive_f32_ccc_e24c24dde_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = float;
using output_t = float;
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

struct Aux {  // what the epilogue takes besides A, B and C
  const __half* up;  // M x N, in D's order
  index_t ld_up;
  scalar_t slope;
  const float* rest;  // M x N, in D's order
  index_t ld_rest;
};

// t times its logistic function: swish (Ramachandran, 2017).
__device__ inline scalar_t silu(scalar_t t) {
  return t / (1.0f + expf(-t));
}

// An element of D from x = alpha * A * B + beta * C.
__device__ inline output_t finish_element(scalar_t x, index_t row, index_t col, const Aux& aux) {
  const scalar_t up = scalar_t(aux.up[c_at(row, col, aux.ld_up)]);
  const scalar_t rest = aux.rest[c_at(row, col, aux.ld_rest)];
  return output_t(silu(x) * up + aux.slope * rest);
}

// Element (row, col) of D: alpha * sum + beta * C, finished. As in BLAS, C is not read when
// beta is 0: it may hold NaN or be null.
__device__ inline void epilogue(
    accumulator_t sum, index_t row, index_t col, scalar_t alpha, scalar_t beta, const output_t* C,
    index_t ldc, output_t* D, index_t ldd, const Aux& aux) {
  scalar_t x = alpha * sum;
  if (beta != 0) x += beta * scalar_t(C[c_at(row, col, ldc)]);
  D[c_at(row, col, ldd)] = finish_element(x, row, col, aux);
}

extern "C" __global__ void __launch_bounds__(kThreads)  // lets the compiler count on the block size
    gemm_naive_f32_ccc_e24c24dde(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        const input_t* __restrict__ B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc,
        output_t* D, index_t ldd, const __half* up, index_t ld_up, scalar_t slope,
        const float* rest, index_t ld_rest) {
  const Aux aux{up, ld_up, slope, rest, ld_rest};
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
    epilogue(sum, row, col, alpha, beta, C, ldc, D, ldd, aux);
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
extern "C" GEMMGEN_API cudaError_t  // cudaSuccess once the kernel is on its way
gemm_naive_f32_ccc_e24c24dde_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, scalar_t alpha, const input_t* A, index_t lda,
    const input_t* B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc, output_t* D,
    index_t ldd, const __half* up, index_t ld_up, scalar_t slope, const float* rest,
    index_t ld_rest, cudaStream_t stream) {
  constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows
  if (M < 0 || N < 0 || K < 0) return cudaErrorInvalidValue;
  if (M == 0 || N == 0) return cudaSuccess;  // D has no elements
  if (K > 0 && (A == nullptr || lda < M || lda > kLargest / K)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < K || ldb > kLargest / N)) return cudaErrorInvalidValue;
  if (beta != 0 && (C == nullptr || ldc < M || ldc > kLargest / N)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < M || ldd > kLargest / N) return cudaErrorInvalidValue;
  if (up == nullptr || ld_up < M || ld_up > kLargest / N) return cudaErrorInvalidValue;
  if (rest == nullptr || ld_rest < M || ld_rest > kLargest / N) return cudaErrorInvalidValue;

  const index_t grid_x = (N + kThreadsX - 1) / kThreadsX;  // columns of blocks
  const index_t rows = (M + kThreadsY - 1) / kThreadsY;  // of blocks; they stride over the rest
  const index_t grid_y = rows < 65535 ? rows : 65535;
  if (grid_x > 2147483647) return cudaErrorInvalidConfiguration;  // a grid is not wider
  int device;
  cudaError_t error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const auto kernel = gemm_naive_f32_ccc_e24c24dde;
  const dim3 grid{unsigned(grid_x), unsigned(grid_y)}, block{kThreadsX, kThreadsY};
  return launch(
      kernel, grid, block, 0, stream,  // and its parameters:
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd, up, ld_up, slope, rest, ld_rest);
}

#endif  // __CUDACC_RTC__
}  // namespace gemm_naive_f32_ccc_e24c24dde_ns
