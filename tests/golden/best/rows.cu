// rows: D = alpha * A * B + beta * C, by the kernel that suits the problem and the device
//
// 2 kernels, each in a namespace of its own, as gemmgen emits it alone; then what predicts how
// long each takes for the problem at hand, and a launcher that takes the fastest. For the shapes of the
// command below, one of them is the fastest of all that there are, or nearly so, by these predictions.
//
//   kernel for  variant tile     tunables
//   1      a100 gemv    1x2x1024 --vectors 1 --strip 2
//   2      a100 skinny  8x16x512 --ahead 2
//
// Made by gemmgen 0.2.0:  gen emit --best
// Compile:  nvcc -std=c++17 -arch=sm_80 -c rows.cu
// SPDX-License-Identifier: 0BSD

#ifndef __CUDACC_RTC__
#include <cuda_runtime_api.h>
#endif

// ---------------------------------------------------------------------------- kernel 1

// rows_best1: D = alpha * A * B + beta * C
//
// For products of few rows, which take as long as it takes to read B. What a thread reads of B, 16 bytes
// at once if it is aligned, goes straight into registers, and is multiplied by all of the few rows of
// A, which come from the caches.
// The threads of a block share K: each has sums of its own for the whole tile of D. In the end those of
// a warp are added up, then those of all warps, always in the same order.
//
//   A  M x K, row-major, __nv_bfloat16
//   B  K x N, column-major, __nv_bfloat16
//   C  M x N, row-major, __nv_bfloat16; not read when beta is 0
//   D  M x N, row-major, __nv_bfloat16; must not overlap A or B; may be C, where ldc is ldd
//
// Any M, N, K >= 0. Accumulators, alpha and beta are float. Leading dimensions count elements.
// Needs a GPU of compute capability 7.5 or newer and C++17.

#include <cuda_bf16.h>

namespace rows_best1_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = __nv_bfloat16;
using output_t = __nv_bfloat16;
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
    rows_best1(  // D = alpha * A * B + beta * C
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
rows_best1_launch(  // D = alpha * A * B + beta * C
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
  const auto kernel = rows_best1;
  const dim3 grid{unsigned(grid_x)}, block{kThreads};
  return launch(
      kernel, grid, block, 0, stream,  // and its parameters:
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd);
}

#endif  // __CUDACC_RTC__
}  // namespace rows_best1_ns

// ---------------------------------------------------------------------------- kernel 2

// rows_best2: D = alpha * A * B + beta * C
//
// For products of few rows, which take as long as it takes to read B. Tensor cores multiply with their
// operands swapped: 16 columns of B are the rows of an instruction's first operand, 8 rows of A the columns
// of its second one. What a thread reads of B, 16 bytes at once if it is aligned, is its part of fragments:
// it goes straight into registers.
//
// The warps of a block take turns along K. In the end their sums are added up, always in the same order.
//
//   A  M x K, row-major, __nv_bfloat16
//   B  K x N, column-major, __nv_bfloat16
//   C  M x N, row-major, __nv_bfloat16; not read when beta is 0
//   D  M x N, row-major, __nv_bfloat16; must not overlap A or B; may be C, where ldc is ldd
//
// Any M, N, K >= 0. Accumulators, alpha and beta are float. Leading dimensions count elements.
// Needs a GPU of compute capability 8.0 or newer and C++17.

#include <cuda_bf16.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "for -arch=sm_80 or newer: older GPUs lack the kernel's instructions"
#endif

namespace rows_best2_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = __nv_bfloat16;
using output_t = __nv_bfloat16;
using accumulator_t = float;
using scalar_t = accumulator_t;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;
constexpr int kRows = 8, kCols = 16;  // of D, that a block computes
constexpr int kThreads = 256;  // per block

static_assert(kThreads % 32 == 0 && kThreads <= 1024, "a block has whole warps, at most 32");
static_assert(kCols % 16 == 0 && kRows % 8 == 0, "instructions have 16 columns of D and 8 rows");

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

constexpr int kSlab = 4 * kWidth;  // elements along K that a warp multiplies in its turn
constexpr int kAhead = 2;  // slabs that it has in registers, or on their way there
constexpr int kFragments = kCols / 16, kGroups = kRows / 8;  // in an instruction's operands

// acc += a * b; `half`: which two of b's four registers.
__device__ inline void mma(
    accumulator_t (&acc)[4], const uint32_t (&a)[4], const uint32_t (&b)[4], int half) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[2 * half]), "r"(b[2 * half + 1]));
}

// Reads kWidth elements of a line from k on. Where it has ended they are zeros, which add nothing.
template <bool kAligned>
__device__ inline void read(uint32_t (&to)[4], const input_t* line, index_t k, index_t K) {
  if constexpr (kAligned) {
    const uint4 read = k < K ? *reinterpret_cast<const uint4*>(line + k) : uint4{};
    to[0] = read.x, to[1] = read.y, to[2] = read.z, to[3] = read.w;
  } else {
    auto& elements = reinterpret_cast<input_t(&)[kWidth]>(to);
#pragma unroll
    for (int e = 0; e < kWidth; ++e) elements[e] = k + e < K ? line[k + e] : input_t{};
  }
}

// Reads those of a line of B, as nobody does again: they do not take the place of A in the L1 cache, and
// memory is asked for 256 bytes at a time.
template <bool kAligned>
__device__ inline void read_once(uint32_t (&to)[4], const input_t* line, index_t k, index_t K) {
  if constexpr (kAligned) {
    to[0] = to[1] = to[2] = to[3] = 0;
    if (k < K) {
      asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                   : "l"(line + k));
    }
  } else {
    read<false>(to, line, k, K);
  }
}

// What a lane has of a slab. Lane 4g + t (g = 0..7, t = 0..3) has two of 16 columns of B, and row g of 8 of
// A; along K, elements t * kWidth to t * kWidth + kWidth - 1. Instructions multiply 4 of these at a time, and
// as many of every other t. Which of a slab's elements they are does not matter, as long as they are the
// same of both operands.
struct Slab {
  uint32_t b[2 * kFragments][4], a[kGroups][4];
};

// Computes a warp's sums for the tile of D that begins at (row0, col0). Where lines do not exist,
// the last one counts again, or zeros.
template <bool kAligned>  // whether neighbours in a line of B are read at once
__device__ inline void multiply(
    Sums& sums, index_t row0, index_t col0, index_t M, index_t N, index_t K, const input_t* A,
    index_t lda, const input_t* B, index_t ldb) {
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const input_t* b_lines[2 * kFragments];
#pragma unroll
  for (int i = 0; i < 2 * kFragments; ++i) {
    const index_t col = col0 + 8 * i + g;
    b_lines[i] = B + (col < N ? col : N - 1) * ldb;
  }
  const input_t* a_lines[kGroups];
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const index_t row = row0 + 8 * i + g;
    a_lines[i] = A + (row < M ? row : M - 1) * lda;
  }
  const auto read_slab = [&](Slab& slab, index_t k) {
#pragma unroll
    for (int i = 0; i < 2 * kFragments; ++i) {
      read_once<kAligned>(slab.b[i], b_lines[i], k, K);
    }
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      read<kAligned>(slab.a[i], a_lines[i], k, K);
    }
  };

  accumulator_t acc[kFragments][kGroups][4] = {};
  constexpr int kSlabs = kAligned ? kAhead : 1;  // element by element, one takes many registers
  Slab slabs[kSlabs];
  index_t k = warp * kSlab + t * kWidth;  // of the next slab to read
#pragma unroll
  for (auto& slab : slabs) {
    read_slab(slab, k);
    k += kWarps * kSlab;
  }
#pragma unroll 1
  for (index_t k0 = warp * kSlab; k0 < K; k0 += kSlabs * kWarps * kSlab) {
#pragma unroll
    for (auto& slab : slabs) {
#pragma unroll
      for (int f = 0; f < kFragments; ++f) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const auto& low = slab.b[2 * f];
          const auto& high = slab.b[2 * f + 1];
          const uint32_t fragment[] = {
              low[2 * half], high[2 * half], low[2 * half + 1], high[2 * half + 1]};
#pragma unroll
          for (int i = 0; i < kGroups; ++i) mma(acc[f][i], fragment, slab.a[i], half);
        }
      }
      read_slab(slab, k);
      k += kWarps * kSlab;
    }
  }

#pragma unroll
  for (int f = 0; f < kFragments; ++f) {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int col = 16 * f + g + r / 2 * 8, row = 8 * i + 2 * t + r % 2;
        sums[warp][row][col] = acc[f][i][r];
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)  // lets the compiler count on the block size
    rows_best2(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        const input_t* __restrict__ B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc,
        output_t* D, index_t ldd) {
  __shared__ Sums sums;
  // Whether lines begin at a multiple of what is read at once, and are whole pieces of it.
  const bool aligned = reinterpret_cast<size_t>(B) % 16 == 0 && ldb % kWidth == 0 &&
                       reinterpret_cast<size_t>(A) % 16 == 0 && lda % kWidth == 0 &&
                       K % kWidth == 0;
  const index_t groups = (M + kRows - 1) / kRows, strips = (N + kCols - 1) / kCols;

  // Neighbouring blocks have the same columns of D, and read the same of B.
  // A grid has at most 2^31 - 1 blocks: where there are more tiles, they stride over the rest.
  for (index_t tile = blockIdx.x; tile < groups * strips; tile += gridDim.x) {
    const index_t row0 = tile % groups * kRows, col0 = tile / groups * kCols;
    if (aligned) {
      multiply<true>(sums, row0, col0, M, N, K, A, lda, B, ldb);
    } else {
      multiply<false>(sums, row0, col0, M, N, K, A, lda, B, ldb);
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
rows_best2_launch(  // D = alpha * A * B + beta * C
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
  const auto kernel = rows_best2;
  const dim3 grid{unsigned(grid_x)}, block{kThreads};
  return launch(
      kernel, grid, block, 0, stream,  // and its parameters:
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd);
}

#endif  // __CUDACC_RTC__
}  // namespace rows_best2_ns

// ---------------------------------------------------------------------------- the choice

#ifndef __CUDACC_RTC__  // the host's side, for programs built by nvcc

namespace rows_ns {

using index_t = long long;

struct Gpu {
  int capability, multiprocessors;
};

// clang-format off
// What a kernel costs on a GPU that no problem changes: sizes, and times in picoseconds.
struct Weights {
  index_t tile_m, tile_n, tile_k, cluster_m, cluster_n, cluster_k, math, lone, wait, copy_a, copy_b,
          small_a, small_b, last, store, rough, hides, start, resident, held, split, stream, lines,
          flows, few, sagging, sharing, group, packs_a, packs_b, size, out, turned, spread_a,
          spread_b, run_a, run_b, asked, scatter, torn, strewn_a, strewn_b, packed, added, kib,
          cache;
};

struct Candidate {
  int gpu, kernel;  // their places in the tables
  Weights weights;
};

constexpr Gpu kGpus[] = {  // the newest first
    {80, 108},  // A100 SXM 80 GB
};

constexpr Candidate kCandidates[] = {
    {0, 0, {1, 2, 1024, 1, 1, 1, 96130, 618606, 0, 22686, 45371, 37658, 75316, 67348, 45371, 32, 0, 1156250, 8, 1, 1, 0, 0, 1, 1, 0, 2700150, 1, 0, 0, 2, 2, 0, 16, 16, 1, 1, 0, 16, 26, 0, 0, 6, 13, 502, 41943040}},
    {0, 1, {8, 16, 1, 1, 1, 1, 472, 1649, 0, 177, 354, 3, 5, 14178, 873393, 32, 0, 1946000, 3, 1, 1, 0, 0, 0, 1, 0, 2709600, 1, 0, 0, 2, 2, 0, 16, 16, 1, 1, 100, 16, 26, 1, 1, 6, 13, 502, 41943040}},
};

struct Limits {
  bool swapped;  // whether it computes the transpose of D
  int last;  // compute capability that runs it; 0: all newer ones do
  int shared;  // bytes of shared memory
};

constexpr Limits kLimits[] = {
    {false, 0, 32},
    {false, 0, 4096},
};

// Picoseconds that a kernel takes, as predicted. M, N, A and B are those of the row-major product.
inline index_t predict(
    const Candidate& one, index_t M, index_t N, index_t K, index_t A, index_t lda, index_t B,
    index_t ldb, index_t multiprocessors) {
  const auto [tile_m, tile_n, tile_k, cluster_m, cluster_n, cluster_k, math, lone, wait, copy_a,
              copy_b, small_a, small_b, last, store, rough, hides, start, resident, held, split,
              stream, lines, flows, few, sagging, sharing, group, packs_a, packs_b, size, out,
              turned, spread_a, spread_b, run_a, run_b, asked, scatter, torn, strewn_a, strewn_b,
              packed, added, kib, cache] = one.weights;
  const index_t count = 1;
  const index_t m = M < 1 ? 1 : M < 262144 ? M : 262144;
  const index_t n = N < 1 ? 1 : N < 262144 ? N : 262144;
  const index_t k = K < 1 ? 1 : K < 262144 ? K : 262144;
  const index_t pitch_a = lda * size;  // bytes
  const bool odd_a = A % 16 > 0 || pitch_a % 16 != 0;
  const index_t moved_a = packs_a + odd_a > 1 ? m * k : 0;  // elements to pack
  const index_t slow_a = moved_a > 0 || pitch_a % 128 == 0 ? 4 : pitch_a % 32 == 0 ? 5 : 8;  // in quarters
  const index_t loose_a = odd_a && moved_a == 0 ? small_a : 0;  // small loads
  const index_t pitch_b = ldb * size;  // bytes
  const bool odd_b = B % 16 > 0 || pitch_b % 16 != 0;
  const index_t moved_b = packs_b + odd_b > 1 ? n * k : 0;  // elements to pack
  const index_t slow_b = moved_b > 0 || pitch_b % 128 == 0 ? 4 : pitch_b % 32 == 0 ? 5 : 8;  // in quarters
  const index_t loose_b = odd_b && moved_b == 0 ? small_b : 0;  // small loads
  const bool ragged = (turned > 0 ? m : n) * out % 16 != 0;  // lines of D
  const index_t span_m = tile_m * cluster_m;  // of the tiles of a cluster
  const index_t span_n = tile_n * cluster_n;
  const index_t columns = (n + span_n - 1) / span_n * cluster_n;  // of tiles
  const index_t tiles = (m + span_m - 1) / span_m * cluster_m * columns * count;  // of D
  const index_t steps = K > tile_k ? (k + tile_k - 1) / tile_k : 1;  // along K
  const index_t most = steps / 4 > 1 ? steps / 4 : 1;  // slices of at least 4 steps
  const index_t fit = held * multiprocessors / tiles;  // slices of each tile that run at the same time
  const index_t suit = fit < 2 ? 1 : fit < most ? fit : most;  // slices
  const index_t wanted = split < 1 ? suit : steps < split ? steps : split;  // slices
  const index_t each = (steps + wanted - 1) / wanted;  // steps of a slice
  const index_t slices = (steps + each - 1) / each;  // as few as have no more steps
  const index_t together = lines > 0 ? columns : 1;  // tiles, which a block has
  const index_t blocks = tiles * slices * cluster_k / together;
  const index_t cluster = cluster_m * cluster_n * cluster_k;  // blocks
  const index_t usable = cluster > 2 ? multiprocessors * 10 / 11 : multiprocessors;
  const index_t room = usable / cluster > 1 ? usable / cluster : 1;  // for clusters
  const index_t most_blocks = (blocks / cluster + room - 1) / room;
  const index_t stretch = (each + cluster_k - 1) / cluster_k;  // steps of a block
  const index_t busiest = most_blocks * together;  // work tiles
  const index_t turns = (busiest + resident - 1) / resident;  // that they take
  const index_t copies = (copy_a * slow_a + copy_b * slow_b) / 4;  // of a step
  const index_t loose = loose_a + loose_b;
  const index_t busy = math + loose;
  const index_t step = (busy > copies ? busy : copies) + wait;
  const index_t single = lone + loose;
  const index_t inside = (m < tile_m ? m : tile_m) * (n < tile_n ? n : tile_n);  // of D
  const index_t stores = (tile_m * tile_n + 3 * inside) / 4 * store / 1024;
  const index_t stored = stores * (ragged ? rough : 16) / 16 / cluster_k;
  const index_t tail = hides > 0 ? last : last + stored;  // of a work tile
  const index_t full = busiest * stretch * step;
  const index_t alone = turns * stretch * (single > copies ? single : copies);
  const index_t ends = turns * tail;
  const index_t busily = full + (flows > 0 ? tail : ends);
  const index_t lonely = alone + ends;
  const index_t whole = busily > lonely ? busily : lonely;  // each tile by one block
  const bool shares = stream > 0 && tiles > held * multiprocessors && tiles % (held * multiprocessors) > 0;
  const index_t evenly = tiles * steps / multiprocessors * step;
  const index_t shared = evenly + (tiles / multiprocessors + 1) * tail + sharing;  // by several
  const index_t ending = hides > 0 ? stored : 0;  // which nothing hides
  const bool gains = shares && copies <= busy;  // by sharing
  const index_t briefly = (gains ? shared : whole) + ending;  // as fast as for a short time
  const index_t sags = briefly > 50000000 ? (briefly - 50000000) / 1024 * sagging : 0;
  const index_t multiplying = briefly + sags;
  const index_t places = room * cluster_m * cluster_n * resident;  // for tiles
  const index_t line = places / group;
  const index_t beside = line < 1 ? 1 : line < columns ? line : columns;  // tiles along N
  const index_t below = (places + beside - 1) / beside;
  const index_t high = below * tile_m < m ? below * tile_m : m;
  const index_t wide = beside * tile_n < n ? beside * tile_n : n;
  const index_t read_once = (m * spread_a + n * spread_b) / 16 * k * size;  // bytes of A and B
  const index_t read_wide = (high * spread_a + wide * spread_b) / 16 * k * size;
  const index_t once = read_once * count;
  const index_t again = (tiles + places - 1) / places * read_wide;  // round by round
  const bool kept = read_once <= cache / 2 || again < once;  // by the L2 cache
  const index_t written = m * n * out * count * (ragged ? torn : 10) / 10 * scatter / 16;
  const index_t parted = shares && kept ? tiles % multiprocessors + multiprocessors : 0;  // tiles
  const index_t lines_of_b = n * k * size > cache / 4 ? tile_n * k * size : 0;  // bytes of a tile
  const index_t apart = parted / ((m + tile_m - 1) / tile_m) * (parted > 0 ? (m - 1) / tile_m : 0);
  const bool follow = m > span_m && m <= 512 && tiles <= places && lines_of_b > 0;
  const index_t late = follow ? n * k * size / 8 : 0;  // bytes
  const index_t ends_a = odd_a && moved_a == 0 ? m * strewn_a : 0;  // in sixteenths
  const index_t ends_b = odd_b && moved_b == 0 ? n * strewn_b : 0;
  const index_t strewn = slices > 1 ? (ends_a + ends_b) * k * size * count / 16 : 0;  // bytes
  const index_t moving = ((kept ? once : again) + apart * lines_of_b + late + strewn + written) / 1024 * kib;  // from memory
  const index_t moved = (moved_a + moved_b) * count;
  const index_t packing = moved > 0 ? 1630000 + moved * packed / 1024 * kib : 0;
  const index_t sums = slices * tiles * tile_m * tile_n;  // that are written, and read
  const index_t adding = slices > 1 ? 800000 + sums * added / 1024 * kib : 0;
  const index_t asks_of_a = run_a > 0 ? (m < tile_m ? m : tile_m) * ((k * size + 127) / 128) : ((m < tile_m ? m : tile_m) * size + 127) / 128 * k;  // of a tile
  const index_t slices_a = 1 + m * k * size * count / 2048;  // of the cache
  const index_t asks_a = tiles * asks_of_a / cluster_n;  // of all blocks
  const index_t answers_a = slices_a < 32 ? asks_a / slices_a * asked : 0;
  const index_t asks_of_b = run_b > 0 ? (n < tile_n ? n : tile_n) * ((k * size + 127) / 128) : ((n < tile_n ? n : tile_n) * size + 127) / 128 * k;  // of a tile
  const index_t slices_b = 1 + n * k * size * count / 2048;  // of the cache
  const index_t asks_b = tiles * asks_of_b / cluster_m;  // of all blocks
  const index_t answers_b = slices_b < 32 ? asks_b / slices_b * asked : 0;
  const index_t working = multiplying + answers_a + answers_b;
  const index_t longer = working > moving ? working : moving;
  const index_t product = longer + (working + moving - longer) * 3 / 8;
  const bool many = few == 1 ? m > n : few == 2 && n > m;
  const index_t more = many ? product / 2 : 0;
  const bool lacking = (cluster_m > 1 && m <= tile_m) || (cluster_n > 1 && n <= tile_n);
  const index_t idling = lacking ? 200000 : 0;
  const index_t time = start + product + more + packing + adding + idling;
  return time;
}
// clang-format on

// The place of the GPU that a device counts as: of its generation, not newer, and of these with the
// most nearly as many multiprocessors; -1 where there is none.
inline int gpu_for(int capability, int multiprocessors) {
  int found = -1, distance = 0;
  for (int i = 0; i < int(sizeof(kGpus) / sizeof(Gpu)); ++i) {
    const Gpu& gpu = kGpus[i];
    if (gpu.capability > capability || gpu.capability / 10 != capability / 10) continue;
    if (found >= 0 && gpu.capability < kGpus[found].capability) break;
    const int further = gpu.multiprocessors - multiprocessors;
    const int away = further < 0 ? -further : further;
    if (found < 0 || away < distance) {
      found = i;
      distance = away;
    }
  }
  return found;
}

// The kernel that is predicted to be the fastest, of those with room for their shared memory; -1 where
// there is none.
inline int pick(
    int capability, int multiprocessors, int shared, index_t M, index_t N, index_t K, size_t A,
    index_t lda, size_t B, index_t ldb) {
  const int gpu = gpu_for(capability, multiprocessors);
  const index_t a = index_t(A % 256), b = index_t(B % 256);  // what is asked of addresses
  lda %= 256, ldb %= 256;  // and of the distance of lines: which multiples of bytes they are
  int found = -1;
  index_t least = 0;
  for (const Candidate& one : kCandidates) {
    const Limits& limits = kLimits[one.kernel];
    const bool runs = limits.last == 0 || capability <= limits.last;
    if (one.gpu != gpu || !runs || limits.shared > shared) continue;
    const index_t time = limits.swapped ? predict(one, N, M, K, b, ldb, a, lda, multiprocessors)
                                        : predict(one, M, N, K, a, lda, b, ldb, multiprocessors);
    if (found < 0 || time < least) {
      found = one.kernel;
      least = time;
    }
  }
  return found;
}

// ---------------------------------------------------------------------------- the launcher

struct Kernel {
  cudaError_t (*launch)(
      long long M, long long N, long long K, float alpha, const __nv_bfloat16* A, long long lda,
      const __nv_bfloat16* B, long long ldb, float beta, const __nv_bfloat16* C, long long ldc,
      __nv_bfloat16* D, long long ldd, cudaStream_t stream);
};

// clang-format off
constexpr Kernel kKernels[] = {
    {rows_best1_ns::rows_best1_launch},
    {rows_best2_ns::rows_best2_launch},
};
// clang-format on

// The kernel for the problem on the current device.
inline cudaError_t choose(
    index_t M, index_t N, index_t K, const void* A, index_t lda, const void* B, index_t ldb,
    const Kernel*& chosen) {
  int device;
  cudaError_t error = cudaGetDevice(&device);
  constexpr cudaDeviceAttr kAsked[] = {
      cudaDevAttrComputeCapabilityMajor, cudaDevAttrComputeCapabilityMinor,
      cudaDevAttrMultiProcessorCount, cudaDevAttrMaxSharedMemoryPerBlockOptin};
  int found[4];
  for (int i = 0; i < 4 && error == cudaSuccess; ++i) {
    error = cudaDeviceGetAttribute(&found[i], kAsked[i], device);
  }
  if (error != cudaSuccess) return error;
  const int kernel = pick(
      10 * found[0] + found[1], found[2], found[3], M, N, K, reinterpret_cast<size_t>(A), lda,
      reinterpret_cast<size_t>(B), ldb);
  if (kernel < 0) return cudaErrorNoKernelImageForDevice;
  chosen = &kKernels[kernel];
  return cudaSuccess;
}

// Sets *bytes to the size of the workspace that the launcher needs on the current device.
extern "C" cudaError_t  // cudaSuccess once *bytes is set
rows_workspace(  // for a launch with these arguments
    long long M, long long N, long long K, const __nv_bfloat16* A, long long lda,
    const __nv_bfloat16* B, long long ldb, size_t* bytes) {
  if (bytes == nullptr) return cudaErrorInvalidValue;
  *bytes = 0;
  const Kernel* kernel = nullptr;
  return choose(M, N, K, A, lda, B, ldb, kernel);  // which need none
}

// As the launchers above, of which it calls the one for the problem on the current device.
extern "C" cudaError_t  // cudaSuccess once the kernel is on its way
rows_launch(  // D = alpha * A * B + beta * C
    long long M, long long N, long long K, float alpha, const __nv_bfloat16* A, long long lda,
    const __nv_bfloat16* B, long long ldb, float beta, const __nv_bfloat16* C, long long ldc,
    __nv_bfloat16* D, long long ldd, void*, size_t, cudaStream_t stream) {
  const Kernel* kernel = nullptr;
  const cudaError_t error = choose(M, N, K, A, lda, B, ldb, kernel);
  if (error != cudaSuccess) return error;
  return kernel->launch(M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd, stream);
}

}  // namespace rows_ns

#endif  // __CUDACC_RTC__
