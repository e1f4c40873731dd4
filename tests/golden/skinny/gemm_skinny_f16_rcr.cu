// gemm_skinny_f16_rcr: D = alpha * A * B + beta * C
//
// For products of few rows, which take as long as it takes to read B. Tensor cores multiply with their
// operands swapped: 16 columns of B are the rows of an instruction's first operand, 8 rows of A the columns
// of its second one. What a thread reads of B, 16 bytes at once if it is aligned, is its part of fragments:
// it goes straight into registers.
//
// The warps of a block take turns along K. In the end their sums are added up, always in the same order.
//
//   A  M x K, row-major, __half
//   B  K x N, column-major, __half
//   C  M x N, row-major, __half; not read when beta is 0
//   D  M x N, row-major, __half; must not overlap A or B; may be C, where ldc is ldd
//
// Any M, N, K >= 0. Accumulators, alpha and beta are float. Leading dimensions count elements.
// Needs a GPU of compute capability 8.0 or newer and C++17.
//
// Made by gemmgen 0.2.0:  gen emit --variant skinny --dtype f16 --layout rcr --arch sm_80 --few rows --vectors 8 --strip 16 --ahead 4 --threads 256 --epilogue linear
// Compile:  nvcc -std=c++17 -arch=sm_80 -c gemm_skinny_f16_rcr.cu, or by NVRTC as it is
// gen-spec: {"variant": "skinny", "dtype": "f16", "layout": "rcr", "arch": "sm_80", "few": "rows", "vectors": 8, "strip": 16, "ahead": 4, "threads": 256, "epilogue": "linear"}
// SPDX-License-Identifier: 0BSD

#include <cuda_fp16.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "for -arch=sm_80 or newer: older GPUs lack the kernel's instructions"
#endif

namespace gemm_skinny_f16_rcr_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = __half;
using output_t = __half;
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
constexpr int kAhead = 4;  // slabs that it has in registers, or on their way there
constexpr int kFragments = kCols / 16, kGroups = kRows / 8;  // in an instruction's operands

// acc += a * b; `half`: which two of b's four registers.
__device__ inline void mma(
    accumulator_t (&acc)[4], const uint32_t (&a)[4], const uint32_t (&b)[4], int half) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
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
    gemm_skinny_f16_rcr(  // D = alpha * A * B + beta * C
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
gemm_skinny_f16_rcr_launch(  // D = alpha * A * B + beta * C
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
  const auto kernel = gemm_skinny_f16_rcr;
  const dim3 grid{unsigned(grid_x)}, block{kThreads};
  return launch(
      kernel, grid, block, 0, stream,  // and its parameters:
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd);
}

#endif  // __CUDACC_RTC__
}  // namespace gemm_skinny_f16_rcr_ns
