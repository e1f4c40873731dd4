// one: D = alpha * A * B + beta * C
//
// One kernel, in a namespace of its own, as gemmgen emits it alone, and a launcher with the arguments of one that
// chooses among several. For the shapes of the command below, it is predicted to be the fastest of all that
// there are, or nearly so.
//
//   kernel for  variant tile     tunables
//   1      a100 gemv    1x2x1024 --vectors 1 --strip 2
//
// Made by gemmgen 0.2.0:  gen emit --best
// Compile:  nvcc -std=c++17 -arch=sm_80 -c one.cu
// SPDX-License-Identifier: 0BSD

#ifndef __CUDACC_RTC__
#include <cuda_runtime_api.h>
#endif

// ---------------------------------------------------------------------------- kernel 1

// one_best1: D = alpha * A * B + beta * C
//
// For products of few rows, which take as long as it takes to read B. What a thread reads of B, 16 bytes
// at once if it is aligned, goes straight into registers, and is multiplied by all of the few rows of
// A, which come from the caches.
// The threads of a block share K: each has sums of its own for the whole tile of D. In the end those of
// a warp are added up, then those of all warps, always in the same order.
//
//   A  M x K, row-major, __half
//   B  K x N, column-major, __half
//   C  M x N, row-major, __half; not read when beta is 0
//   D  M x N, row-major, __half; must not overlap A or B; may be C, where ldc is ldd
//
// Any M, N, K >= 0. Accumulators, alpha and beta are float. Leading dimensions count elements.
// Needs a GPU of compute capability 7.5 or newer and C++17.

#include <cuda_fp16.h>

namespace one_best1_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = __half;
using output_t = __half;
using accumulator_t = float;
using scalar_t = accumulator_t;  // of alpha, beta, the epilogue

constexpr int kRows = 1, kCols = 2;  // of D, that a block computes
constexpr int kThreads = 128;  // per block

static_assert(kThreads % 32 == 0 && kThreads <= 1024, "a block has whole warps, at most 32");

// Where an element lies in its matrix.
__device__ inline index_t a_at(index_t row, index_t k, index_t lda) {
  return row * lda + k;
}
__device__ inline index_t b_at(index_t k, index_t col, index_t ldb) {
  return col * ldb + k;
}
__device__ inline index_t c_at(index_t row, index_t col, index_t ldc) {
  return row * ldc + col;
}

// Element (row, col) of D: alpha * sum + beta * C. As in BLAS, C is not read when
// beta is 0: it may hold NaN or be null.
__device__ inline void epilogue(
    accumulator_t sum, index_t row, index_t col, scalar_t alpha, scalar_t beta, const output_t* C,
    index_t ldc, output_t* D, index_t ldd) {
  scalar_t x = alpha * sum;
  if (beta != 0) x += beta * scalar_t(C[c_at(row, col, ldc)]);
  D[c_at(row, col, ldd)] = output_t(x);
}

constexpr int kWarps = kThreads / 32;
constexpr int kWidth = 8;  // elements in 16 bytes
using Sums = accumulator_t[kWarps][kRows][kCols];  // each warp's, of a block's tile of D

// Elements of a row of A or a column of B that a thread has at a time.
struct alignas(16) Chunk {
  input_t of[kWidth];

  // Reads them, kCount at once: a thread has 16 bytes in one piece, or every kThreads-th element. Where
  // the line has ended they are zeros, which add nothing to a sum.
  template <int kCount>
  __device__ void read(const input_t* line, index_t k0, index_t K) {
#pragma unroll
    for (int e = 0; e < kWidth; e += kCount) {
      const index_t k = k0 + e * kThreads + threadIdx.x * kCount;
      if constexpr (kCount == kWidth) {
        *reinterpret_cast<int4*>(of) = k < K ? *reinterpret_cast<const int4*>(line + k) : int4{};
      } else {
        of[e] = k < K ? line[k] : input_t{};
      }
    }
  }
};

// Computes the tile of D that begins at (row0, col0). Where lines do not exist, the last one counts again.
template <int kCount>  // elements that are read at once
__device__ inline void multiply(
    Sums& sums, index_t row0, index_t col0, index_t M, index_t N, index_t K, const input_t* A,
    index_t lda, const input_t* B, index_t ldb) {
  accumulator_t sum[kRows][kCols] = {};
  for (index_t k0 = 0; k0 < K; k0 += kThreads * kWidth) {
    Chunk a[kRows], b[kCols];
#pragma unroll
    for (int j = 0; j < kCols; ++j) {
      const index_t col = col0 + j < N ? col0 + j : N - 1;
      b[j].template read<kCount>(B + col * ldb, k0, K);
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const index_t row = row0 + i < M ? row0 + i : M - 1;
      a[i].template read<kCount>(A + row * lda, k0, K);
    }
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int j = 0; j < kCols; ++j) {
          sum[i][j] +=
              static_cast<accumulator_t>(a[i].of[e]) * static_cast<accumulator_t>(b[j].of[e]);
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < kCols; ++j) {
      for (int lanes = 16; lanes > 0; lanes /= 2) {
        sum[i][j] += __shfl_down_sync(0xffffffff, sum[i][j], lanes);
      }
      if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32][i][j] = sum[i][j];
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)  // lets the compiler count on the block size
    one_best1(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        const input_t* __restrict__ B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc,
        output_t* D, index_t ldd) {
  __shared__ Sums sums;
  // Whether all lines begin at a multiple of 16 bytes and are whole pieces of 16 bytes.
  const bool aligned = reinterpret_cast<size_t>(A) % 16 == 0 && lda % kWidth == 0 &&
                       reinterpret_cast<size_t>(B) % 16 == 0 && ldb % kWidth == 0 &&
                       K % kWidth == 0;
  const index_t groups = (M + kRows - 1) / kRows, strips = (N + kCols - 1) / kCols;

  // Neighbouring blocks have the same columns of D, and read the same of B.
  // A grid has at most 2^31 - 1 blocks: where there are more tiles, they stride over the rest.
  for (index_t tile = blockIdx.x; tile < groups * strips; tile += gridDim.x) {
    const index_t row0 = tile % groups * kRows, col0 = tile / groups * kCols;
    if (aligned) {
      multiply<kWidth>(sums, row0, col0, M, N, K, A, lda, B, ldb);
    } else {
      multiply<1>(sums, row0, col0, M, N, K, A, lda, B, ldb);
    }
    __syncthreads();  // the sums of all warps are there
    for (int at = threadIdx.x; at < kRows * kCols; at += kThreads) {
      const int i = at / kCols, j = at % kCols;
      accumulator_t sum = 0;
      for (int warp = 0; warp < kWarps; ++warp) sum += sums[warp][i][j];
      const index_t row = row0 + i, col = col0 + j;
      if (row < M && col < N) {
        epilogue(sum, row, col, alpha, beta, C, ldc, D, ldd);
      }
    }
    __syncthreads();  // they have been read: those of the next tile may replace them
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
one_best1_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, scalar_t alpha, const input_t* A, index_t lda,
    const input_t* B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc, output_t* D,
    index_t ldd, cudaStream_t stream) {
  constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows
  if (M < 0 || N < 0 || K < 0) return cudaErrorInvalidValue;
  if (M == 0 || N == 0) return cudaSuccess;  // D has no elements
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < K || ldb > kLargest / N)) return cudaErrorInvalidValue;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return cudaErrorInvalidValue;

  const index_t tiles = (M + kRows - 1) / kRows * ((N + kCols - 1) / kCols);  // of D
  const index_t grid_x = tiles < 2147483647 ? tiles : 2147483647;
  int device;
  cudaError_t error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const auto kernel = one_best1;
  const dim3 grid{unsigned(grid_x)}, block{kThreads};
  return launch(
      kernel, grid, block, 0, stream,  // and its parameters:
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd);
}

#endif  // __CUDACC_RTC__
}  // namespace one_best1_ns

// ---------------------------------------------------------------------------- the launcher

#ifndef __CUDACC_RTC__  // the host's side, for programs built by nvcc

namespace one_ns {

// Sets *bytes to the size of the workspace that the launcher needs on the current device: to 0.
extern "C" cudaError_t  // cudaSuccess once *bytes is set
one_workspace(
    long long, long long, long long, const __half*, long long, const __half*, long long,
    size_t* bytes) {
  if (bytes == nullptr) return cudaErrorInvalidValue;
  *bytes = 0;
  return cudaSuccess;
}

// As the launcher above.
extern "C" cudaError_t  // cudaSuccess once the kernel is on its way
one_launch(  // D = alpha * A * B + beta * C
    long long M, long long N, long long K, float alpha, const __half* A, long long lda,
    const __half* B, long long ldb, float beta, const __half* C, long long ldc, __half* D,
    long long ldd, void*, size_t, cudaStream_t stream) {
  return one_best1_ns::one_best1_launch(
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd, stream);
}

}  // namespace one_ns

#endif  // __CUDACC_RTC__
