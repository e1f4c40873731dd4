// heads: D = silu(x) * up[row, col] + slope * rest[row, col], x = alpha * A * B + beta * C,
// by the kernel that suits the problem and the device
//
// 8 kernels, each in a namespace of its own, as gemmgen emits it alone; then what predicts how
// long each takes for the problem at hand, and a launcher that takes the fastest. For the shapes of the
// command below, one of them is the fastest of all that there are, or nearly so, by these predictions.
//
// A batch of such products: their matrices are stride_a, stride_b, stride_c and stride_d elements apart.
// Where a stride of A, B or C is 0, all products have the same matrix. Those of D do not overlap; where
// D is C, both have one stride.
//
//   kernel for variant tile      tunables
//   1      a10 narrow  1x32x128  --vectors 1
//   2      a10 gemv    1x32x2048 --vectors 1
//   3      a10 simt    64x128x32 --threadblock 64x128x32 --sliced-k 4
//   4      a10 narrow  4x32x128  --vectors 4
//   5      a10 narrow  8x32x128
//   6      a10 simt    32x32x32  --threadblock 32x32x32 --warp 32x32 --stages 6 --sliced-k 8
//   7      a10 simt    64x32x32  --threadblock 64x32x32 --warp 64x32 --stages 6 --sliced-k 8
//   8      a10 simt    64x64x32  --threadblock 64x64x32 --stages 5 --sliced-k 8
//
// Made by gemmgen 0.2.0:  gen emit --best
// Compile:  nvcc -std=c++17 -arch=sm_86 -c heads.cu
// SPDX-License-Identifier: 0BSD

#ifndef __CUDACC_RTC__
#include <cuda_runtime_api.h>
#endif

// ---------------------------------------------------------------------------- kernel 1

// heads_best1: D = silu(x) * up[row, col] + slope * rest[row, col], x = alpha * A * B + beta * C
//
// For products of few rows, which take as long as it takes to read B, whose lines run across K. What a
// thread reads of B, 16 bytes at once if it is aligned, goes straight into registers, and is multiplied by all
// of the few rows of A, which the block brings to shared memory, a step along K at a time: the next step of
// both is on its way while one is multiplied.
//
// The threads of a block share the columns of its tile of D, and K. In the end the sums of the same elements
// are added up, first those of a warp, then those of all warps, always in the same order.
//
//   A  M x K, row-major, float
//   B  K x N, row-major, float
//   C  M x N, row-major, float; not read when beta is 0
//   D  M x N, row-major, float; must not overlap A or B; may be C, where ldc is ldd
//   up  M x N, in D's order, __half
//   slope  a number of alpha's type
//   rest  M x N, in D's order, float
//
// A batch of such products: their matrices are stride_a, stride_b, stride_c and stride_d elements apart.
// Where a stride of A, B or C is 0, all products have the same matrix. Those of D do not overlap; where
// D is C, both have one stride.
//
// Any M, N, K >= 0. Accumulators, alpha and beta are float. Leading dimensions count elements.
// Needs a GPU of compute capability 7.5 or newer and C++17.

#include <cuda_fp16.h>

namespace heads_best1_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = float;
using output_t = float;
using accumulator_t = float;
using scalar_t = accumulator_t;  // of alpha, beta, the epilogue

constexpr int kRows = 1, kCols = 32;  // of D, that a block computes
constexpr int kThreads = 256;  // per block
constexpr int kBlocks = 2;  // of a multiprocessor: the compiler spends registers accordingly

static_assert(kThreads % 32 == 0 && kThreads <= 1024, "a block has whole warps, at most 32");

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

constexpr int kWarps = kThreads / 32;
constexpr int kWidth = 4;  // elements in 16 bytes
constexpr int kStep = 128;  // elements along K that a block multiplies at a time
static_assert(
    kCols % kWidth == 0 && 32 % (kCols / kWidth) == 0, "a warp has whole lines of the tile");

struct alignas(4) Few {  // elements of all few rows of A, at the same place along K
  input_t of[kRows];
};

using Sums = accumulator_t[kWarps][kRows][kCols];  // each warp's, of a block's tile of D
union Shared {
  Few few[2][kStep];  // of two steps
  Sums sums;  // then
};

// A thread's part of the few rows of a step, on its way to shared memory.
struct Coming {
  static constexpr int kOwn = 1;  // some threads have none
  input_t of[kOwn];

  // From row0 and k0 on. What lies outside of A is zeros, which add nothing to a sum.
  __device__ void read(
      const input_t* A, index_t lda, index_t row0, index_t k0, index_t M, index_t K) {
#pragma unroll
    for (int e = 0; e < kOwn; ++e) {
      const int at = e * kThreads + threadIdx.x;
      const index_t row = row0 + at % kRows, k = k0 + at / kRows;
      of[e] = row < M && k < K ? A[a_at(row, k, lda)] : input_t(0);
    }
  }
  __device__ void write(Few* few) const {
    const auto elements = reinterpret_cast<input_t*>(few);
#pragma unroll
    for (int e = 0; e < kOwn; ++e) {
      if (threadIdx.x < kRows * kStep) elements[threadIdx.x] = of[e];
    }
  }
};

// What a thread has of a step: kCount neighbours in some lines of B, which are kApart from each other.
template <int kCount>
struct Lines {
  static constexpr int kLanes = kCols / kCount;  // threads with different columns, side by side
  static constexpr int kApart = kThreads / kLanes, kDepth = kStep / kApart;
  struct alignas(kCount * sizeof(input_t)) Piece {
    input_t of[size_t(kCount)];
  };
  Piece of[size_t(kDepth)];

  // What lies outside of B is zeros.
  __device__ void read(
      const input_t* B, index_t ldb, index_t col, index_t k0, index_t N, index_t K) {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      const index_t k = k0 + d * kApart + threadIdx.x / kLanes;
      const input_t* const from = B + b_at(k, col, ldb);
      const bool inside = k < K && col < N;
      if constexpr (kCount == kWidth) {  // one instruction
        reinterpret_cast<int4&>(of[d]) = inside ? *reinterpret_cast<const int4*>(from) : int4{};
      } else {
        of[d].of[0] = inside ? *from : input_t(0);
      }
    }
  }

  // Adds the products with the few rows.
  __device__ void multiply(
      const Few (&few)[kStep], accumulator_t (&sum)[kRows][size_t(kCount)]) const {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      const Few a = few[d * kApart + threadIdx.x / kLanes];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int e = 0; e < kCount; ++e) {
          sum[i][e] += accumulator_t(a.of[i]) * accumulator_t(of[d].of[e]);
        }
      }
    }
  }
};

// Computes each warp's sums for the tile of D that begins at (row0, col0).
template <int kCount>  // neighbours in a line of B that a thread reads at once: kWidth or 1
__device__ inline void multiply(
    Shared& shared, index_t row0, index_t col0, index_t M, index_t N, index_t K, const input_t* A,
    index_t lda, const input_t* B, index_t ldb) {
  constexpr int kLanes = Lines<kCount>::kLanes;
  const int first = threadIdx.x % kLanes * kCount;  // of the thread's columns in the tile
  const index_t col = col0 + first, begin = 0;
  accumulator_t sum[kRows][size_t(kCount)] = {};
  Lines<kCount> lines;
  Coming coming;
  lines.read(B, ldb, col, begin, N, K);
  coming.read(A, lda, row0, begin, M, K);
  coming.write(shared.few[0]);
  __syncthreads();  // the first step of A is there
  int turn = 0;
#pragma unroll 1
  for (index_t k0 = begin; k0 < K; k0 += kStep, turn ^= 1) {
    const index_t k_next = k0 + kStep;
    Lines<kCount> next;
    next.read(B, ldb, col, k_next, N, K);
    coming.read(A, lda, row0, k_next, M, K);
    lines.multiply(shared.few[turn], sum);
    coming.write(shared.few[turn ^ 1]);
    __syncthreads();  // the next step is there, and this one has been read
    lines = next;
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      for (int lanes = 16; lanes >= kLanes; lanes /= 2) {
        sum[i][e] += __shfl_down_sync(0xffffffff, sum[i][e], lanes);
      }
      if (threadIdx.x % 32 < kLanes) {
        shared.sums[threadIdx.x / 32][i][first + e] = sum[i][e];
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    heads_best1(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        index_t stride_a, const input_t* __restrict__ B, index_t ldb, index_t stride_b,
        scalar_t beta, const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd,
        index_t stride_d, const __half* up, index_t ld_up, scalar_t slope, const float* rest,
        index_t ld_rest, index_t first) {
  const Aux aux{up, ld_up, slope, rest, ld_rest};
  // Blocks along z have a product each.
  const index_t product = first + blockIdx.z;
  A += product * stride_a;
  B += product * stride_b;
  if (beta != 0) C += product * stride_c;
  D += product * stride_d;

  __shared__ Shared shared;
  Sums& sums = shared.sums;
  // Whether lines of B begin at a multiple of 16 bytes and are whole pieces of 16 bytes.
  const bool aligned =
      reinterpret_cast<size_t>(B) % 16 == 0 && ldb % kWidth == 0 && N % kWidth == 0;
  const index_t groups = (M + kRows - 1) / kRows, strips = (N + kCols - 1) / kCols;

  // Neighbouring blocks have the same columns of D, and read the same of B.
  // A grid has at most 2^31 - 1 blocks: where there are more tiles, they stride over the rest.
  for (index_t tile = blockIdx.x; tile < groups * strips; tile += gridDim.x) {
    const index_t row0 = tile % groups * kRows, col0 = tile / groups * kCols;
    if (aligned) {
      multiply<kWidth>(shared, row0, col0, M, N, K, A, lda, B, ldb);
    } else {
      multiply<1>(shared, row0, col0, M, N, K, A, lda, B, ldb);
    }
    __syncthreads();  // the sums of all warps are there
    for (int at = threadIdx.x; at < kRows * kCols; at += kThreads) {
      const int i = at / kCols, j = at % kCols;
      accumulator_t sum = 0;
      for (int warp = 0; warp < kWarps; ++warp) sum += sums[warp][i][j];
      const index_t row = row0 + i, col = col0 + j;
      if (row < M && col < N) {
        epilogue(sum, row, col, alpha, beta, C, ldc, D, ldd, aux);
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
//        short, a matrix of more than 2^44 elements,
//        a negative stride, products of D that overlap
//   209  cudaErrorNoKernelImageForDevice: a GPU older than nvcc's -arch. For newer ones the driver
//        compiles the file's PTX when it is first needed, unless nvcc was told to leave PTX out
//   400  cudaErrorInvalidResourceHandle: a stream of another device
extern "C" cudaError_t  // cudaSuccess once the kernel is on its way
heads_best1_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, index_t batch, scalar_t alpha, const input_t* A, index_t lda,
    index_t stride_a, const input_t* B, index_t ldb, index_t stride_b, scalar_t beta,
    const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd, index_t stride_d,
    const __half* up, index_t ld_up, scalar_t slope, const float* rest, index_t ld_rest,
    cudaStream_t stream) {
  constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows
  if (M < 0 || N < 0 || K < 0 || batch < 0) return cudaErrorInvalidValue;
  if (M == 0 || N == 0 || batch == 0) return cudaSuccess;  // D has no elements
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return cudaErrorInvalidValue;
  if (K > 0 && (stride_a < 0 || stride_a > kLargest / batch)) return cudaErrorInvalidValue;
  if (K > 0 && (stride_b < 0 || stride_b > kLargest / batch)) return cudaErrorInvalidValue;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return cudaErrorInvalidValue;
  if (beta != 0 && (stride_c < 0 || stride_c > kLargest / batch)) return cudaErrorInvalidValue;
  if (stride_d < 0 || stride_d > kLargest / batch) return cudaErrorInvalidValue;
  // Products of D do not overlap.
  const bool follow = stride_d >= (M - 1) * ldd + N;  // one behind the other
  const bool beside = stride_d >= N && (batch - 1) * stride_d + N <= ldd;  // in the same lines
  if (batch > 1 && !follow && !beside) return cudaErrorInvalidValue;
  if (up == nullptr || ld_up < N || ld_up > kLargest / M) return cudaErrorInvalidValue;
  if (rest == nullptr || ld_rest < N || ld_rest > kLargest / M) return cudaErrorInvalidValue;

  const index_t tiles = (M + kRows - 1) / kRows * ((N + kCols - 1) / kCols);  // of D
  const index_t grid_x = tiles < 2147483647 ? tiles : 2147483647;
  int device;
  cudaError_t error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const auto kernel = heads_best1;
  constexpr index_t most = 65535;  // products of a launch: blocks of a grid along z
  for (index_t first = 0; first < batch && error == cudaSuccess; first += most) {
    const index_t products = batch - first < most ? batch - first : most;
    const dim3 grid{unsigned(grid_x), 1, unsigned(products)};
    error = launch(
        kernel, grid, dim3{kThreads}, 0, stream,  // and its parameters:
        M, N, K, alpha, A, lda, stride_a, B, ldb, stride_b, beta, C, ldc, stride_c, D, ldd,
        stride_d, up, ld_up, slope, rest, ld_rest, first);
  }
  return error;
}

#endif  // __CUDACC_RTC__
}  // namespace heads_best1_ns

// ---------------------------------------------------------------------------- kernel 2

// heads_best2: D = silu(x) * up[row, col] + slope * rest[row, col], x = alpha * A * B + beta * C
//
// For products of few rows, which take as long as it takes to read B. What a thread reads of B, 16 bytes
// at once if it is aligned, goes straight into registers, and is multiplied by all of the few rows of
// A, which come from the caches.
// The threads of a block share the columns of its tile of D, and K. In the end the sums of the same elements
// are added up, first those of a warp, then those of all warps, always in the same order.
//
//   A  M x K, row-major, float
//   B  K x N, row-major, float
//   C  M x N, row-major, float; not read when beta is 0
//   D  M x N, row-major, float; must not overlap A or B; may be C, where ldc is ldd
//   up  M x N, in D's order, __half
//   slope  a number of alpha's type
//   rest  M x N, in D's order, float
//
// A batch of such products: their matrices are stride_a, stride_b, stride_c and stride_d elements apart.
// Where a stride of A, B or C is 0, all products have the same matrix. Those of D do not overlap; where
// D is C, both have one stride.
//
// Any M, N, K >= 0. Accumulators, alpha and beta are float. Leading dimensions count elements.
// Needs a GPU of compute capability 7.5 or newer and C++17.

#include <cuda_fp16.h>

namespace heads_best2_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = float;
using output_t = float;
using accumulator_t = float;
using scalar_t = accumulator_t;  // of alpha, beta, the epilogue

constexpr int kRows = 1, kCols = 32;  // of D, that a block computes
constexpr int kThreads = 512;  // per block

static_assert(kThreads % 32 == 0 && kThreads <= 1024, "a block has whole warps, at most 32");

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

constexpr int kWarps = kThreads / 32;
constexpr int kWidth = 4;  // elements in 16 bytes
using Sums = accumulator_t[kWarps][kRows][kCols];  // each warp's, of a block's tile of D

constexpr int kDepth = 8;  // elements along K that a thread has at a time
static_assert(
    kCols % kWidth == 0 && 32 % (kCols / kWidth) == 0, "a warp has whole lines of the tile");

template <int kCount>  // neighbours in a line of B
struct alignas(kCount * sizeof(input_t)) Piece {
  input_t of[size_t(kCount)];

  __device__ void read(const input_t* from) {
    if constexpr (kCount == kWidth) {
      *reinterpret_cast<int4*>(of) = *reinterpret_cast<const int4*>(from);  // one instruction
    } else {
      of[0] = *from;
    }
  }
};

// Computes the tile of D that begins at (row0, col0).
template <int kCount>  // columns that a thread has: kWidth or 1
__device__ inline void multiply(
    Sums& sums, index_t row0, index_t col0, index_t M, index_t N, index_t K, const input_t* A,
    index_t lda, const input_t* B, index_t ldb) {
  constexpr int kLanes = kCols / kCount;  // threads with different columns, next to each other
  constexpr int kStep = kThreads / kLanes * kDepth;  // along K
  const int first = threadIdx.x % kLanes * kCount;  // of the thread's columns in the tile
  // Where columns do not exist, the last ones count again.
  const index_t last = N - kCount, col = col0 + first < last ? col0 + first : last;
  accumulator_t sum[kRows][kCount] = {};
  // Multiplies kDepth elements along K, which all exist if they are whole: then no load waits for
  // another.
  const auto add = [&](index_t k0, bool whole) {
    Piece<kCount> b[kDepth] = {};  // what lies outside of B is zeros, which add nothing to a sum
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      const index_t k = k0 + d;
      if (whole || k < K) b[d].read(B + b_at(k, col, ldb));
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const index_t row = row0 + i < M ? row0 + i : M - 1;
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
        const index_t k = k0 + d;
        const accumulator_t a =
            whole || k < K ? static_cast<accumulator_t>(A[a_at(row, k, lda)]) : accumulator_t(0);
#pragma unroll
        for (int e = 0; e < kCount; ++e) {
          sum[i][e] += a * static_cast<accumulator_t>(b[d].of[e]);
        }
      }
    }
  };
  index_t k0 = threadIdx.x / kLanes * kDepth;
  for (; K - k0 >= kDepth; k0 += kStep) add(k0, true);
  if (k0 < K) add(k0, false);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      for (int lanes = 16; lanes >= kLanes; lanes /= 2) {
        sum[i][e] += __shfl_down_sync(0xffffffff, sum[i][e], lanes);
      }
      if (threadIdx.x % 32 < kLanes) sums[threadIdx.x / 32][i][first + e] = sum[i][e];
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)  // lets the compiler count on the block size
    heads_best2(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        index_t stride_a, const input_t* __restrict__ B, index_t ldb, index_t stride_b,
        scalar_t beta, const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd,
        index_t stride_d, const __half* up, index_t ld_up, scalar_t slope, const float* rest,
        index_t ld_rest, index_t first) {
  const Aux aux{up, ld_up, slope, rest, ld_rest};
  // Blocks along z have a product each.
  const index_t product = first + blockIdx.z;
  A += product * stride_a;
  B += product * stride_b;
  if (beta != 0) C += product * stride_c;
  D += product * stride_d;

  __shared__ Sums sums;
  // Whether lines of B begin at a multiple of 16 bytes and are whole pieces of 16 bytes.
  const bool aligned =
      reinterpret_cast<size_t>(B) % 16 == 0 && ldb % kWidth == 0 && N % kWidth == 0;
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
        epilogue(sum, row, col, alpha, beta, C, ldc, D, ldd, aux);
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
//        short, a matrix of more than 2^44 elements,
//        a negative stride, products of D that overlap
//   209  cudaErrorNoKernelImageForDevice: a GPU older than nvcc's -arch. For newer ones the driver
//        compiles the file's PTX when it is first needed, unless nvcc was told to leave PTX out
//   400  cudaErrorInvalidResourceHandle: a stream of another device
extern "C" cudaError_t  // cudaSuccess once the kernel is on its way
heads_best2_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, index_t batch, scalar_t alpha, const input_t* A, index_t lda,
    index_t stride_a, const input_t* B, index_t ldb, index_t stride_b, scalar_t beta,
    const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd, index_t stride_d,
    const __half* up, index_t ld_up, scalar_t slope, const float* rest, index_t ld_rest,
    cudaStream_t stream) {
  constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows
  if (M < 0 || N < 0 || K < 0 || batch < 0) return cudaErrorInvalidValue;
  if (M == 0 || N == 0 || batch == 0) return cudaSuccess;  // D has no elements
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return cudaErrorInvalidValue;
  if (K > 0 && (stride_a < 0 || stride_a > kLargest / batch)) return cudaErrorInvalidValue;
  if (K > 0 && (stride_b < 0 || stride_b > kLargest / batch)) return cudaErrorInvalidValue;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return cudaErrorInvalidValue;
  if (beta != 0 && (stride_c < 0 || stride_c > kLargest / batch)) return cudaErrorInvalidValue;
  if (stride_d < 0 || stride_d > kLargest / batch) return cudaErrorInvalidValue;
  // Products of D do not overlap.
  const bool follow = stride_d >= (M - 1) * ldd + N;  // one behind the other
  const bool beside = stride_d >= N && (batch - 1) * stride_d + N <= ldd;  // in the same lines
  if (batch > 1 && !follow && !beside) return cudaErrorInvalidValue;
  if (up == nullptr || ld_up < N || ld_up > kLargest / M) return cudaErrorInvalidValue;
  if (rest == nullptr || ld_rest < N || ld_rest > kLargest / M) return cudaErrorInvalidValue;

  const index_t tiles = (M + kRows - 1) / kRows * ((N + kCols - 1) / kCols);  // of D
  const index_t grid_x = tiles < 2147483647 ? tiles : 2147483647;
  int device;
  cudaError_t error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const auto kernel = heads_best2;
  constexpr index_t most = 65535;  // products of a launch: blocks of a grid along z
  for (index_t first = 0; first < batch && error == cudaSuccess; first += most) {
    const index_t products = batch - first < most ? batch - first : most;
    const dim3 grid{unsigned(grid_x), 1, unsigned(products)};
    error = launch(
        kernel, grid, dim3{kThreads}, 0, stream,  // and its parameters:
        M, N, K, alpha, A, lda, stride_a, B, ldb, stride_b, beta, C, ldc, stride_c, D, ldd,
        stride_d, up, ld_up, slope, rest, ld_rest, first);
  }
  return error;
}

#endif  // __CUDACC_RTC__
}  // namespace heads_best2_ns

// ---------------------------------------------------------------------------- kernel 3

// heads_best3: D = silu(x) * up[row, col] + slope * rest[row, col], x = alpha * A * B + beta * C
//
// CUDA cores, with as much of D in registers as they hold: a lane computes 8 x 16 elements of it, so that most
// instructions multiply. A scheduler issues one instruction in a clock: what loads, copies and counts is in the way
// of what multiplies.
//
// A block computes a work tile of D. Shared memory has lines of one k each: a column of A's tile, and beside it
// a row of B's. A lane reads 4 elements of a line at a time; those of k + 1 while it multiplies those of k.
// Copies (cp.async) are up to 3 steps ahead of that, pass no registers, and transpose on their way: an operand
// whose lines run along K is copied element by element, which needs no alignment, either. Warps hand steps on at an
// mbarrier: each says that its copies are there a whole step before anybody waits for them.
// 4 teams of warps compute the same work tile, each with its share of every step along K ("sliced-K"): small
// tiles have as many elements a lane as large ones. In the end, their sums meet in shared memory.
//
//   A  M x K, row-major, float
//   B  K x N, row-major, float
//   C  M x N, row-major, float; not read when beta is 0
//   D  M x N, row-major, float; must not overlap A or B; may be C, where ldc is ldd
//   up  M x N, in D's order, __half
//   slope  a number of alpha's type
//   rest  M x N, in D's order, float
//
// A batch of such products: their matrices are stride_a, stride_b, stride_c and stride_d elements apart.
// Where a stride of A, B or C is 0, all products have the same matrix. Those of D do not overlap; where
// D is C, both have one stride.
//
// M, N, K from 0 to 2^31 - 4096, any leading dimension, in elements. Accumulators are float,
// alpha and beta are float. Needs a GPU of compute capability 8.6 or newer and C++17.

#include <cuda_fp16.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 860
#error "for -arch=sm_86 or newer: older GPUs lack the kernel's instructions"
#endif

namespace heads_best3_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = float;
using output_t = float;
using scalar_t = float;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;
constexpr int kTileM = 64, kTileN = 128, kTileK = 32;  // of a block: work tile, step along K
constexpr int kThreads = 256;  // 8 warps

constexpr int kWarpM = 64, kWarpN = 64;  // what each warp computes of the work tile
constexpr int kLaneM = kWarpM / 8, kLaneN = kWarpN / 4;  // and each lane: 8 x 16 elements
constexpr int kStages = 4;  // steps along K that are in shared memory or on their way
constexpr int kGroup = 12;  // work tiles along M that are computed close in time: see tile_at
constexpr int kWarpsM = kTileM / kWarpM;  // 64 / 64 = 1
constexpr int kTeams = 4;  // of warps, which share out K
constexpr int kWarps = kThreads / 32 / kTeams;  // of a team: 2
constexpr int kTeamK = kTileK / kTeams;  // of a step, what each multiplies: 32 / 4 = 8
constexpr int kChunk = 4;  // elements in 16 bytes
// Elements of a line in shared memory, with a gap against bank conflicts.
constexpr int kLine = kTileM + kTileN + 4;  // 196
constexpr int kStep = kTileK * kLine;  // 6272 elements: lines of a step
constexpr int kStepBytes = kStep * sizeof(input_t);  // of a stage in shared memory
constexpr int kLinesAt = 16;  // where the first one begins there, in bytes: behind an mbarrier

// ------------------------------------------------------------------------ PTX
__device__ inline uint32_t shared_address(const void* pointer) {  // as PTX instructions take it
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
__device__ inline void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ inline void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Until the phase with this parity is over: phases count 0, 1, 0, 1, ...
__device__ inline void barrier_wait(uint32_t barrier, int parity) {
  asm volatile(
      "{\n.reg .pred over;\nagain: mbarrier.test_wait.parity.shared.b64 over, [%0], %1;\n"
      "@!over bra again;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// Starts to copy kCount elements, which lie at a multiple of their size; zeros take the place of some that do
// not exist.
template <int kCount>
__device__ inline void start_copy(uint32_t shared, const input_t* global, bool exist) {
  if constexpr (kCount == kChunk) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
                 "r"(exist ? 16 : 0)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(global),
                 "r"(exist ? 4 : 0)
                 : "memory");
  }
}

// ------------------------------------------------------------------------ what a warp computes
using chunk_t = float4;  // kChunk elements, read and written at once

// A warp's part of the work tile, with fragments of two k: one is loaded while the other is multiplied.
// Lane 4g + t (g = 0..7, t = 0..3) has rows 4g to 4g + 3 of each 32, and columns 4t to 4t + 3 of each 16: lanes
// that do not read the same chunks of a line read neighbouring ones, from different banks.
struct WarpTile {
  scalar_t acc[kLaneM][kLaneN];
  alignas(16) input_t a[2][kLaneM], b[2][kLaneN];
  const input_t *a_at, *b_at;  // what the lane reads of a line first

  __device__ void clear() {
#pragma unroll
    for (auto& row : acc) {
#pragma unroll
      for (auto& x : row) x = 0;
    }
  }
  // Lets loads begin with the first of these lines.
  __device__ void read_from(const input_t* lines, int warp, int lane) {
    lines += warp / kWarps * kTeamK * kLine;  // the team's
    warp %= kWarps;
    a_at = lines + warp % kWarpsM * kWarpM + lane / 4 * kChunk;
    b_at = lines + kTileM + warp / kWarpsM * kWarpN + lane % 4 * kChunk;
  }
  // Lets loads begin so many elements further on.
  __device__ void move(int elements) {
    a_at += elements;
    b_at += elements;
  }
  __device__ void load(int k) {
#pragma unroll
    for (int j = 0; j < kLaneN; j += kChunk) {
      const auto& from = b_at[k * kLine + 4 * j];
      reinterpret_cast<chunk_t&>(b[k % 2][j]) = reinterpret_cast<const chunk_t&>(from);
    }
#pragma unroll
    for (int i = 0; i < kLaneM; i += kChunk) {
      const auto& from = a_at[k * kLine + 8 * i];
      reinterpret_cast<chunk_t&>(a[k % 2][i]) = reinterpret_cast<const chunk_t&>(from);
    }
  }
  // The register file has two banks, even and odd, and gives one register of each in a clock:
  // besides a[i], which stays for a row, a multiplication reads b[j] and acc[i][j]. Where b[j] is
  // even, acc[i][j] is odd, because `write` takes sums in pairs that are swapped: ptxas keeps them
  // in such registers from the beginning.
  __device__ void multiply(int k) {
#pragma unroll
    for (int i = 0; i < kLaneM; ++i) {
#pragma unroll
      for (int n = 0; n < kLaneN; ++n) {
        const int j = i % 2 ? kLaneN - 1 - n : n;  // there and back: one operand stays
        acc[i][j] += a[k % 2][i] * b[k % 2][j];
      }
    }
  }
  // Writes the sums of kChunk rows, those of a pass, with each pair of neighbours swapped.
  __device__ void write(int pass, scalar_t* to, int line) const {
#pragma unroll
    for (int i = 0; i < kLaneM; i += kChunk) {
      if (i / kChunk != pass) continue;  // registers have no variable index
#pragma unroll
      for (int r = 0; r < kChunk; ++r) {
#pragma unroll
        for (int j = 0; j < kLaneN; j += kChunk) {
          const auto& x = acc[i + r];
          reinterpret_cast<chunk_t&>(to[r * line + 4 * j]) = {x[j + 1], x[j], x[j + 3], x[j + 2]};
        }
      }
    }
  }
};

// ------------------------------------------------------------------------ operands
// A pointer so many bytes further on.
__device__ inline const input_t* later(const input_t* from, index_t bytes) {
  return reinterpret_cast<const input_t*>(reinterpret_cast<const char*>(from) + bytes);
}

// A thread's copies of an operand whose lines run along K: it transposes them. Eight threads copy
// neighbours along K: whole sectors of memory. Pointers stay as they are, and one sum for a warp grows: a register that
// a copy has still to read cannot be written.
template <int kWidth>
struct AlongK {
  static constexpr int kLanes = 8, kAtOnce = kThreads / kLanes;  // threads for a line; lines
  static constexpr int kLinesOwn = kWidth / kAtOnce;

  const input_t* from[size_t(kLinesOwn)];  // of the first step
  index_t gone = 0;  // bytes from there to the present step
  uint32_t to;
  int left;  // elements from there to the end along K

  // Of the `count` lines that `matrix` begins with. The last one takes the place of those that do
  // not exist: nothing of D comes of them.
  __device__ AlongK(const input_t* matrix, index_t ld, int count, int depth, input_t* lines) {
    const int line = threadIdx.x / kLanes, k = threadIdx.x % kLanes;
#pragma unroll
    for (int i = 0; i < kLinesOwn; ++i) {
      const int at = line + i * kAtOnce;
      from[i] = matrix + (at < count ? at : count - 1) * ld + k;
      asm volatile("" : "+l"(from[i]));  // a register that stays as it is
    }
    to = shared_address(lines + k * kLine + line);
    asm volatile("" : "+r"(to));  // not to be computed anew at each step
    left = depth - k;
  }
  // Starts a step's, to so many bytes further on.
  __device__ void copy(uint32_t place) {
#pragma unroll
    for (int k = 0; k < kTileK; k += kLanes) {
#pragma unroll
      for (int i = 0; i < kLinesOwn; ++i) {
        const uint32_t at = to + place + (k * kLine + i * kAtOnce) * sizeof(input_t);
        start_copy<1>(at, later(from[i], gone) + k, k < left);
      }
    }
  }
  __device__ void next_step() {
    gone += kTileK * sizeof(input_t);
    asm volatile("" : "+l"(gone));
    left -= kTileK;
  }
};

// Whether all chunks lie at a multiple of 16 bytes, and no line ends in one.
template <int kWidth>
__device__ inline bool comes_in_chunks(const input_t* matrix, index_t ld, int count) {
  const bool aligned = reinterpret_cast<size_t>(matrix) % 16 == 0 && ld % kChunk == 0;
  return aligned && (count >= kWidth || count % kChunk == 0);
}

// A thread's copies of an operand whose lines are those of shared memory, in chunks or element by
// element: the same lines, and as many elements of each.
template <int kWidth>
struct Across {
  static constexpr int kOfLine = kWidth / kChunk;  // chunks
  static constexpr int kThreadsOfLine = kOfLine < kThreads ? kOfLine : kThreads;
  static constexpr int kAtOnce = kThreads / kThreadsOfLine;  // lines
  static constexpr int kLinesOwn = (kTileK + kAtOnce - 1) / kAtOnce;

  const input_t* from[size_t(kLinesOwn)];  // of the present step
  index_t step;  // bytes from there to the next one
  uint32_t to;
  int left, room;  // lines from there to the last one, elements to the end of the line

  __device__ Across(
      const input_t* matrix, index_t ld, int count, int depth, input_t* lines, bool in_chunks) {
    const int line = threadIdx.x / kThreadsOfLine;
    const int at = threadIdx.x % kThreadsOfLine * (in_chunks ? kChunk : 1);
#pragma unroll
    for (int i = 0; i < kLinesOwn; ++i) from[i] = matrix + (line + i * kAtOnce) * ld + at;
    step = kTileK * ld * index_t(sizeof(input_t));
    to = shared_address(lines + line * kLine + at);
    room = count - at;
    left = room > 0 && line < kTileK ? depth - line : 0;
    asm volatile("" : "+l"(step), "+r"(to), "+r"(room));  // not to be computed anew at each step
  }
  // Starts a step's, kCount elements at a time.
  template <int kCount>
  __device__ void copy(uint32_t place) {
    constexpr int kNext = kThreadsOfLine * kCount;  // elements from one of a line to the next one
#pragma unroll
    for (int i = 0; i < kLinesOwn; ++i) {
#pragma unroll
      for (int e = 0; e < kWidth; e += kNext) {
        const uint32_t at = to + place + (i * kAtOnce * kLine + e) * sizeof(input_t);
        if (kAtOnce <= kTileK || threadIdx.x < kThreadsOfLine * kTileK) {
          start_copy<kCount>(at, from[i] + e, i * kAtOnce < left && (e == 0 || e < room));
        }
      }
    }
  }
  __device__ void next_step() {
#pragma unroll
    for (auto& line : from) line = later(line, step);
    left -= kTileK;
  }
};

// Starts a step's copies, with zeros in place of what does not exist.
template <int kCount>
__device__ inline void start_copies(AlongK<kTileM>& a, Across<kTileN>& b, uint32_t place) {
  a.copy(place);
  b.copy<kCount>(place);
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Multiplies the rows of A that begin at `A`, and the columns of B that begin at `B`: those of a work tile.
// in_chunks: whether B can be copied 16 bytes at a time.
__device__ inline void multiply(
    WarpTile& tile, const input_t* A, index_t lda, int rows, const input_t* B, index_t ldb,
    int cols, int depth, bool in_chunks, input_t* lines, int warp, int lane) {
  AlongK<kTileM> a(A, lda, rows, depth, lines);
  Across<kTileN> b(B, ldb, cols, depth, lines + kTileM, in_chunks);
  uint32_t place = 0;  // where copies go: bytes behind the first line
  const auto copy = [&] {
    if (in_chunks) {
      start_copies<kChunk>(a, b, place);
    } else {
      start_copies<1>(a, b, place);
    }
  };
  const auto next = [&] {
    a.next_step();
    b.next_step();
    place += kStepBytes;
    if (place == kStages * kStepBytes) place = 0;
  };
  uint32_t ready = shared_address(lines) - kLinesAt;  // an mbarrier
  asm volatile("" : "+r"(ready));  // not to be computed anew at each step
  // Says that the warp's copies are there, except those of the newest step,
  // and that it has read the step before the one that it multiplies.
  const auto arrive = [&] {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncwarp();  // all lanes' copies
    if (lane == 0) barrier_arrive(ready);
  };
  if (threadIdx.x == 0) barrier_init(ready, kThreads / 32);

#pragma unroll 1
  for (int s = 0; s < kStages - 1; ++s) {
    if (s > 0) next();
    copy();
  }
  tile.clear();
  tile.read_from(lines, warp, lane);
  asm volatile("cp.async.wait_group 2;" ::: "memory");
  __syncthreads();  // the first step's lines are there, for all threads, and so is the mbarrier
  arrive();
  tile.load(0);

  // Main loop, a step in a turn. What is not a multiplication stands together: elsewhere, each copy
  // would cost more instructions, and ptxas would find worse registers for the multiplications. The
  // branch in `copy`, which all threads take alike, keeps it there.
  // Copies go on behind the end of K, where they write zeros that nobody multiplies.
  // A warp arrives at the mbarrier a step before others wait for it there, so that it may be that
  // much behind them.
  int stage = 0;  // what is read
  int phase = 0;  // of the mbarrier
#pragma unroll 1
  for (; depth > 0; depth -= kTileK) {
#pragma unroll
    for (int k = 0; k < kTeamK; ++k) {
      if (k == 0) next();  // long before copies need it, and long after they read these registers
      if (k == kTeamK - 1) {
        const bool last = ++stage == kStages;
        tile.move(last ? kStep - kStages * kStep : kStep);
        if (last) stage = 0;
        // The next step's lines are there, and nobody reads those of the one before any more.
        barrier_wait(ready, phase);
        phase ^= 1;
      }
      tile.load((k + 1) % kTeamK);
      if (k == kTeamK - 1) {
        copy();  // in place of the step before
        arrive();
      }
      tile.multiply(k % 2);
    }
  }
  asm volatile("cp.async.wait_all;" ::: "memory");  // what nobody needs, and sums take the place of
}

// Work tiles in the order in which they are computed: kGroup below each other, then the next
// column: what runs at the same time shares operands in L2. Unsigned numbers are divided faster.
// The tiles of a product come behind all of the one before.
__device__ inline void tile_at(
    uint32_t t, uint32_t tiles_m, uint32_t tiles_n, int& product, int& row0, int& col0) {
  product = t / (tiles_m * tiles_n);
  t %= tiles_m * tiles_n;
  const uint32_t most = tiles_m < kGroup ? tiles_m : kGroup;  // kGroup * tiles_n may overflow
  const uint32_t group = most * tiles_n, first = t / group * most;
  const uint32_t height = tiles_m - first < most ? tiles_m - first : most;
  row0 = (first + t % group % height) * kTileM;
  col0 = t % group / height * kTileN;
}

// ------------------------------------------------------------------------ D
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
  const scalar_t up = scalar_t(aux.up[row * aux.ld_up + col]);
  const scalar_t rest = aux.rest[row * aux.ld_rest + col];
  return output_t(silu(x) * up + aux.slope * rest);
}

struct Output {  // what D is made from, besides accumulators, and where it goes
  int rows, cols;
  scalar_t alpha, beta;
  const output_t* C;  // as in BLAS, not read where beta is 0: it may hold NaN or be null
  output_t* D;
  index_t ldc, ldd;
  Aux aux;
};

// Places beyond D are taken for the last one inside: what is made there is not stored.
__device__ inline int clamped(int at, int count) {
  return at < count ? at : count - 1;
}

// Whether all rows of C or D start at a multiple of 16 bytes.
__device__ inline bool is_aligned(const output_t* matrix, index_t ld) {
  return reinterpret_cast<size_t>(matrix) % 16 == 0 && ld * sizeof(output_t) % 16 == 0;
}

// Sums on their way from registers, where a lane has neighbours of several rows, to memory, where
// neighbouring threads write neighbours of one: kChunk rows of each lane in a pass.
constexpr int kPasses = kLaneM / kChunk;
constexpr int kSpan = 8 * kChunk;  // rows of a warp in a pass
constexpr int kStagedRows = kWarpsM * kSpan;
constexpr int kStagedLine = kTileN + 4;  // with a gap against bank conflicts
constexpr int kStagedBytes = kTeams * kStagedRows * kStagedLine * sizeof(scalar_t);

template <int kCount>
struct alignas(kCount * sizeof(scalar_t)) Elements {
  scalar_t of[size_t(kCount)];
};

// Writes all threads' sums of a pass to `staged`.
__device__ inline void stage(const WarpTile& tile, scalar_t* staged, int pass, int warp, int lane) {
  staged += warp / kWarps * kStagedRows * kStagedLine;  // the team's
  warp %= kWarps;
  const int row = warp % kWarpsM * kSpan + lane / 4 * kChunk;
  const int col = warp / kWarpsM * kWarpN + lane % 4 * kChunk;
  __syncthreads();  // nobody reads what was there
  tile.write(pass, staged + row * kStagedLine + col, kStagedLine);
  __syncthreads();  // all sums are there
}

// kCount sums beside each other, from a row and a column of `staged` on.
template <int kCount>
__device__ inline Elements<kCount> staged_sums(const scalar_t* staged, int row, int col) {
  const scalar_t* from = staged + row * kStagedLine + (kCount == 1 ? col ^ 1 : col);
  auto sums = reinterpret_cast<const Elements<kCount>&>(*from);
#pragma unroll
  for (int team = 1; team < kTeams; ++team) {
    from += kStagedRows * kStagedLine;
    const auto others = reinterpret_cast<const Elements<kCount>&>(*from);
#pragma unroll
    for (int e = 0; e < kCount; ++e) sums.of[e] += others.of[e];
  }
  if constexpr (kCount > 1) {
#pragma unroll
    for (int e = 0; e < kCount; e += 2) {  // back to their places
      const scalar_t x = sums.of[e];
      sums.of[e] = sums.of[e + 1];
      sums.of[e + 1] = x;
    }
  }
  return sums;
}

// Makes D of staged sums, kCount elements at a time. A thread has its columns in all rows, so that addresses are a
// step apart; of several rows, sums are read at once.
template <int kCount>
__device__ inline void finish(
    const scalar_t* staged, int pass, const Output& out, int row0, int col0) {
  constexpr int kPerLine = kTileN / kCount, kBeside = kPerLine < kThreads ? kPerLine : kThreads;
  constexpr int kBelow = kThreads / kBeside, kTimes = (kSpan + kBelow - 1) / kBelow;
  constexpr int kAtOnce = kCount > 1 ? 1 : kTimes < 4 ? kTimes : 4;
  const int below = threadIdx.x / kBeside;
#pragma unroll 1
  for (int at = threadIdx.x % kBeside; at < kPerLine; at += kBeside) {
    const int col = col0 + at * kCount;
    if (col >= out.cols) return;
#pragma unroll 1
    for (int warp = 0; warp < kWarpsM; ++warp) {
      int row = row0 + warp * kWarpM + pass * kSpan + below;
      const output_t* c = out.C + row * out.ldc + col;
      output_t* to = out.D + row * out.ldd + col;
#pragma unroll kAtOnce
      for (int i = 0; i < kTimes; ++i) {
        const int line = below + i * kBelow;
        if (kSpan % kBelow > 0 && line >= kSpan) break;
        const auto sums = staged_sums<kCount>(staged, warp * kSpan + line, at * kCount);
        if (row < out.rows) {
          Elements<kCount> d{};
          if (out.beta != 0) d = reinterpret_cast<const Elements<kCount>&>(*c);
#pragma unroll
          for (int e = 0; e < kCount; ++e) {
            scalar_t x = out.alpha * sums.of[e];
            if (out.beta != 0) x += out.beta * d.of[e];
            d.of[e] = finish_element(x, row, col + e, out.aux);
          }
          reinterpret_cast<Elements<kCount>&>(*to) = d;
        }
        row += kBelow;
        c += kBelow * out.ldc;
        to += kBelow * out.ldd;
      }
    }
  }
}

// Writes a block's part of D, whose first element is at (row0, col0).
__device__ inline void store(
    const WarpTile& tile, const Output& out, int row0, int col0, scalar_t* staged, int warp,
    int lane) {
  const bool aligned = is_aligned(out.D, out.ldd) &&
                       (out.beta == 0 || is_aligned(out.C, out.ldc)) &&
                       (col0 + kTileN <= out.cols || out.cols % kChunk == 0);
#pragma unroll 1
  for (int pass = 0; pass < kPasses; ++pass) {
    stage(tile, staged, pass, warp, lane);
    if (aligned) {
      finish<kChunk>(staged, pass, out, row0, col0);
    } else {
      finish<1>(staged, pass, out, row0, col0);
    }
  }
}

// ------------------------------------------------------------------------ the kernel
constexpr int kSharedBytes = kLinesAt + kStages * kStepBytes;  // 100368
static_assert(kLinesAt + kStagedBytes <= kSharedBytes);  // sums take the lines' place

extern "C" __global__ void __launch_bounds__(kThreads)  // lets the compiler count on the block size
    heads_best3(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        index_t stride_a, const input_t* __restrict__ B, index_t ldb, index_t stride_b,
        scalar_t beta, const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd,
        index_t stride_d, const __half* up, index_t ld_up, scalar_t slope, const float* rest,
        index_t ld_rest) {
  extern __shared__ __align__(128) unsigned char shared[];  // an mbarrier, steps of kStep elements
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  const int rows = int(M), cols = int(N), depth = int(K);
  const int tiles_m = (rows + kTileM - 1) / kTileM, tiles_n = (cols + kTileN - 1) / kTileN;
  int product, row0, col0;
  tile_at(blockIdx.x, tiles_m, tiles_n, product, row0, col0);
  A += product * stride_a;
  B += product * stride_b;
  if (beta != 0) C += product * stride_c;
  D += product * stride_d;

  const auto lines = reinterpret_cast<input_t*>(shared + kLinesAt);
  WarpTile tile;
  const input_t* a = A + index_t(row0) * lda;
  const input_t* b = B + col0;
  const bool in_chunks = comes_in_chunks<kTileN>(b, ldb, cols - col0);
  multiply(tile, a, lda, rows - row0, b, ldb, cols - col0, depth, in_chunks, lines, warp, lane);
  const auto sums = reinterpret_cast<scalar_t*>(lines);

  const Aux aux{up, ld_up, slope, rest, ld_rest};
  const Output out{rows, cols, alpha, beta, C, D, ldc, ldd, aux};
  store(tile, out, row0, col0, sums, warp, lane);
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

// A launch, worked out from top to bottom.
struct Plan {
  index_t M, N, K, batch;

  index_t tiles = (M + kTileM - 1) / kTileM * ((N + kTileN - 1) / kTileN) * batch;  // of D
};

constexpr size_t kSide = 2147479552;  // M, N, K: 2^31 - 4096, so that where a tile ends is an int
constexpr size_t kMost = 2147483647;  // blocks
constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows

// Sets *bytes to the size of the workspace that the launcher needs on the current device, or to 0 where
// it returns the launcher's error 1 or 9.
// It needs none: operands are read where they are, and K is not split.
extern "C" cudaError_t  // cudaSuccess once *bytes is set
heads_best3_workspace(  // for a launch with these arguments
    index_t M, index_t N, index_t K, index_t batch, const input_t* A, index_t lda, index_t stride_a,
    const input_t* B, index_t ldb, index_t stride_b, size_t* bytes) {
  if (bytes == nullptr) return cudaErrorInvalidValue;
  *bytes = 0;
  if (size_t(M) > kSide || size_t(N) > kSide || size_t(K) > kSide) return cudaErrorInvalidValue;
  if (size_t(batch) > kMost) return cudaErrorInvalidValue;
  if (M == 0 || N == 0 || batch == 0) return cudaSuccess;  // D has no elements
  if (M > kLargest / N || batch > kLargest / (M * N)) return cudaErrorInvalidValue;
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return cudaErrorInvalidValue;
  if (K > 0 && (stride_a < 0 || stride_a > kLargest / batch)) return cudaErrorInvalidValue;
  if (K > 0 && (stride_b < 0 || stride_b > kLargest / batch)) return cudaErrorInvalidValue;
  const Plan plan{M, N, K, batch};
  if (size_t(plan.tiles) > kMost) return cudaErrorInvalidConfiguration;
  return cudaSuccess;
}

// Checks the arguments and queues the kernels on a stream. Any threads may call it at once, also
// while a CUDA graph is captured: it never prints, exits, waits or allocates.
// `workspace` is device memory at a multiple of 256 bytes, as much as ..._workspace says; it is
// free again when the stream has got past the launch.
// Where it returns one of these, D is as it was:
//     1  cudaErrorInvalidValue: a size below 0 or above 2^31 - 4096, a null matrix or one of more
//        than 2^44 elements, a leading dimension too short, a workspace too small or not aligned,
//        a negative stride, products of D that overlap, or too many: see 9
//     9  cudaErrorInvalidConfiguration: 2^31 blocks or more
//   209  cudaErrorNoKernelImageForDevice: a GPU older than nvcc's -arch. For newer ones the driver
//        compiles the file's PTX when it is first needed, unless nvcc was told to leave PTX out
//   400  cudaErrorInvalidResourceHandle: a stream of another device
extern "C" cudaError_t  // cudaSuccess once the kernels are on their way
heads_best3_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, index_t batch, scalar_t alpha, const input_t* A, index_t lda,
    index_t stride_a, const input_t* B, index_t ldb, index_t stride_b, scalar_t beta,
    const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd, index_t stride_d,
    const __half* up, index_t ld_up, scalar_t slope, const float* rest, index_t ld_rest,
    void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  size_t needed;  // bytes of the workspace
  auto ask = heads_best3_workspace;
  cudaError_t error = ask(M, N, K, batch, A, lda, stride_a, B, ldb, stride_b, &needed);
  if (error != cudaSuccess || M == 0 || N == 0 || batch == 0) return error;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return cudaErrorInvalidValue;
  if (beta != 0 && (stride_c < 0 || stride_c > kLargest / batch)) return cudaErrorInvalidValue;
  if (stride_d < 0 || stride_d > kLargest / batch) return cudaErrorInvalidValue;
  // Products of D do not overlap.
  const bool follow = stride_d >= (M - 1) * ldd + N;  // one behind the other
  const bool beside = stride_d >= N && (batch - 1) * stride_d + N <= ldd;  // in the same lines
  if (batch > 1 && !follow && !beside) return cudaErrorInvalidValue;
  if (up == nullptr || ld_up < N || ld_up > kLargest / M) return cudaErrorInvalidValue;
  if (rest == nullptr || ld_rest < N || ld_rest > kLargest / M) return cudaErrorInvalidValue;

  int device;
  error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const Plan plan{M, N, K, batch};
  (void)workspace, (void)workspace_bytes;  // nothing is packed, nothing is added up later

  const auto kernel = heads_best3;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;

  const dim3 grid(unsigned(plan.tiles));
  return launch(
      kernel, grid, kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, alpha, A, lda, stride_a, B, ldb, stride_b, beta, C, ldc, stride_c, D, ldd,
      stride_d, up, ld_up, slope, rest, ld_rest);
}

#endif  // __CUDACC_RTC__
}  // namespace heads_best3_ns

// ---------------------------------------------------------------------------- kernel 4

// heads_best4: D = silu(x) * up[row, col] + slope * rest[row, col], x = alpha * A * B + beta * C
//
// For products of few rows, which take as long as it takes to read B, whose lines run across K. What a
// thread reads of B, 16 bytes at once if it is aligned, goes straight into registers, and is multiplied by all
// of the few rows of A, which the block brings to shared memory, a step along K at a time: the next step of
// both is on its way while one is multiplied.
//
// The threads of a block share the columns of its tile of D, and K. In the end the sums of the same elements
// are added up, first those of a warp, then those of all warps, always in the same order.
//
//   A  M x K, row-major, float
//   B  K x N, row-major, float
//   C  M x N, row-major, float; not read when beta is 0
//   D  M x N, row-major, float; must not overlap A or B; may be C, where ldc is ldd
//   up  M x N, in D's order, __half
//   slope  a number of alpha's type
//   rest  M x N, in D's order, float
//
// A batch of such products: their matrices are stride_a, stride_b, stride_c and stride_d elements apart.
// Where a stride of A, B or C is 0, all products have the same matrix. Those of D do not overlap; where
// D is C, both have one stride.
//
// Any M, N, K >= 0. Accumulators, alpha and beta are float. Leading dimensions count elements.
// Needs a GPU of compute capability 7.5 or newer and C++17.

#include <cuda_fp16.h>

namespace heads_best4_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = float;
using output_t = float;
using accumulator_t = float;
using scalar_t = accumulator_t;  // of alpha, beta, the epilogue

constexpr int kRows = 4, kCols = 32;  // of D, that a block computes
constexpr int kThreads = 256;  // per block
constexpr int kBlocks = 2;  // of a multiprocessor: the compiler spends registers accordingly

static_assert(kThreads % 32 == 0 && kThreads <= 1024, "a block has whole warps, at most 32");

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

constexpr int kWarps = kThreads / 32;
constexpr int kWidth = 4;  // elements in 16 bytes
constexpr int kStep = 128;  // elements along K that a block multiplies at a time
static_assert(
    kCols % kWidth == 0 && 32 % (kCols / kWidth) == 0, "a warp has whole lines of the tile");

struct alignas(16) Few {  // elements of all few rows of A, at the same place along K
  input_t of[kRows];
};

using Sums = accumulator_t[kWarps][kRows][kCols];  // each warp's, of a block's tile of D
union Shared {
  Few few[2][kStep];  // of two steps
  Sums sums;  // then
};

// A thread's part of the few rows of a step, on its way to shared memory.
struct Coming {
  static constexpr int kOwn = kRows * kStep / kThreads;
  static_assert(kRows * kStep % kThreads == 0, "all threads have as many");
  input_t of[kOwn];

  // From row0 and k0 on. What lies outside of A is zeros, which add nothing to a sum.
  __device__ void read(
      const input_t* A, index_t lda, index_t row0, index_t k0, index_t M, index_t K) {
#pragma unroll
    for (int e = 0; e < kOwn; ++e) {
      const int at = e * kThreads + threadIdx.x;
      const index_t row = row0 + at % kRows, k = k0 + at / kRows;
      of[e] = row < M && k < K ? A[a_at(row, k, lda)] : input_t(0);
    }
  }
  __device__ void write(Few* few) const {
    const auto elements = reinterpret_cast<input_t*>(few);
#pragma unroll
    for (int e = 0; e < kOwn; ++e) {
      elements[e * kThreads + threadIdx.x] = of[e];
    }
  }
};

// What a thread has of a step: kCount neighbours in some lines of B, which are kApart from each other.
template <int kCount>
struct Lines {
  static constexpr int kLanes = kCols / kCount;  // threads with different columns, side by side
  static constexpr int kApart = kThreads / kLanes, kDepth = kStep / kApart;
  struct alignas(kCount * sizeof(input_t)) Piece {
    input_t of[size_t(kCount)];
  };
  Piece of[size_t(kDepth)];

  // What lies outside of B is zeros.
  __device__ void read(
      const input_t* B, index_t ldb, index_t col, index_t k0, index_t N, index_t K) {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      const index_t k = k0 + d * kApart + threadIdx.x / kLanes;
      const input_t* const from = B + b_at(k, col, ldb);
      const bool inside = k < K && col < N;
      if constexpr (kCount == kWidth) {  // one instruction
        reinterpret_cast<int4&>(of[d]) = inside ? *reinterpret_cast<const int4*>(from) : int4{};
      } else {
        of[d].of[0] = inside ? *from : input_t(0);
      }
    }
  }

  // Adds the products with the few rows.
  __device__ void multiply(
      const Few (&few)[kStep], accumulator_t (&sum)[kRows][size_t(kCount)]) const {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      const Few a = few[d * kApart + threadIdx.x / kLanes];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int e = 0; e < kCount; ++e) {
          sum[i][e] += accumulator_t(a.of[i]) * accumulator_t(of[d].of[e]);
        }
      }
    }
  }
};

// Computes each warp's sums for the tile of D that begins at (row0, col0).
template <int kCount>  // neighbours in a line of B that a thread reads at once: kWidth or 1
__device__ inline void multiply(
    Shared& shared, index_t row0, index_t col0, index_t M, index_t N, index_t K, const input_t* A,
    index_t lda, const input_t* B, index_t ldb) {
  constexpr int kLanes = Lines<kCount>::kLanes;
  const int first = threadIdx.x % kLanes * kCount;  // of the thread's columns in the tile
  const index_t col = col0 + first, begin = 0;
  accumulator_t sum[kRows][size_t(kCount)] = {};
  Lines<kCount> lines;
  Coming coming;
  lines.read(B, ldb, col, begin, N, K);
  coming.read(A, lda, row0, begin, M, K);
  coming.write(shared.few[0]);
  __syncthreads();  // the first step of A is there
  int turn = 0;
#pragma unroll 1
  for (index_t k0 = begin; k0 < K; k0 += kStep, turn ^= 1) {
    const index_t k_next = k0 + kStep;
    Lines<kCount> next;
    next.read(B, ldb, col, k_next, N, K);
    coming.read(A, lda, row0, k_next, M, K);
    lines.multiply(shared.few[turn], sum);
    coming.write(shared.few[turn ^ 1]);
    __syncthreads();  // the next step is there, and this one has been read
    lines = next;
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      for (int lanes = 16; lanes >= kLanes; lanes /= 2) {
        sum[i][e] += __shfl_down_sync(0xffffffff, sum[i][e], lanes);
      }
      if (threadIdx.x % 32 < kLanes) {
        shared.sums[threadIdx.x / 32][i][first + e] = sum[i][e];
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    heads_best4(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        index_t stride_a, const input_t* __restrict__ B, index_t ldb, index_t stride_b,
        scalar_t beta, const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd,
        index_t stride_d, const __half* up, index_t ld_up, scalar_t slope, const float* rest,
        index_t ld_rest, index_t first) {
  const Aux aux{up, ld_up, slope, rest, ld_rest};
  // Blocks along z have a product each.
  const index_t product = first + blockIdx.z;
  A += product * stride_a;
  B += product * stride_b;
  if (beta != 0) C += product * stride_c;
  D += product * stride_d;

  __shared__ Shared shared;
  Sums& sums = shared.sums;
  // Whether lines of B begin at a multiple of 16 bytes and are whole pieces of 16 bytes.
  const bool aligned =
      reinterpret_cast<size_t>(B) % 16 == 0 && ldb % kWidth == 0 && N % kWidth == 0;
  const index_t groups = (M + kRows - 1) / kRows, strips = (N + kCols - 1) / kCols;

  // Neighbouring blocks have the same columns of D, and read the same of B.
  // A grid has at most 2^31 - 1 blocks: where there are more tiles, they stride over the rest.
  for (index_t tile = blockIdx.x; tile < groups * strips; tile += gridDim.x) {
    const index_t row0 = tile % groups * kRows, col0 = tile / groups * kCols;
    if (aligned) {
      multiply<kWidth>(shared, row0, col0, M, N, K, A, lda, B, ldb);
    } else {
      multiply<1>(shared, row0, col0, M, N, K, A, lda, B, ldb);
    }
    __syncthreads();  // the sums of all warps are there
    for (int at = threadIdx.x; at < kRows * kCols; at += kThreads) {
      const int i = at / kCols, j = at % kCols;
      accumulator_t sum = 0;
      for (int warp = 0; warp < kWarps; ++warp) sum += sums[warp][i][j];
      const index_t row = row0 + i, col = col0 + j;
      if (row < M && col < N) {
        epilogue(sum, row, col, alpha, beta, C, ldc, D, ldd, aux);
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
//        short, a matrix of more than 2^44 elements,
//        a negative stride, products of D that overlap
//   209  cudaErrorNoKernelImageForDevice: a GPU older than nvcc's -arch. For newer ones the driver
//        compiles the file's PTX when it is first needed, unless nvcc was told to leave PTX out
//   400  cudaErrorInvalidResourceHandle: a stream of another device
extern "C" cudaError_t  // cudaSuccess once the kernel is on its way
heads_best4_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, index_t batch, scalar_t alpha, const input_t* A, index_t lda,
    index_t stride_a, const input_t* B, index_t ldb, index_t stride_b, scalar_t beta,
    const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd, index_t stride_d,
    const __half* up, index_t ld_up, scalar_t slope, const float* rest, index_t ld_rest,
    cudaStream_t stream) {
  constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows
  if (M < 0 || N < 0 || K < 0 || batch < 0) return cudaErrorInvalidValue;
  if (M == 0 || N == 0 || batch == 0) return cudaSuccess;  // D has no elements
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return cudaErrorInvalidValue;
  if (K > 0 && (stride_a < 0 || stride_a > kLargest / batch)) return cudaErrorInvalidValue;
  if (K > 0 && (stride_b < 0 || stride_b > kLargest / batch)) return cudaErrorInvalidValue;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return cudaErrorInvalidValue;
  if (beta != 0 && (stride_c < 0 || stride_c > kLargest / batch)) return cudaErrorInvalidValue;
  if (stride_d < 0 || stride_d > kLargest / batch) return cudaErrorInvalidValue;
  // Products of D do not overlap.
  const bool follow = stride_d >= (M - 1) * ldd + N;  // one behind the other
  const bool beside = stride_d >= N && (batch - 1) * stride_d + N <= ldd;  // in the same lines
  if (batch > 1 && !follow && !beside) return cudaErrorInvalidValue;
  if (up == nullptr || ld_up < N || ld_up > kLargest / M) return cudaErrorInvalidValue;
  if (rest == nullptr || ld_rest < N || ld_rest > kLargest / M) return cudaErrorInvalidValue;

  const index_t tiles = (M + kRows - 1) / kRows * ((N + kCols - 1) / kCols);  // of D
  const index_t grid_x = tiles < 2147483647 ? tiles : 2147483647;
  int device;
  cudaError_t error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const auto kernel = heads_best4;
  constexpr index_t most = 65535;  // products of a launch: blocks of a grid along z
  for (index_t first = 0; first < batch && error == cudaSuccess; first += most) {
    const index_t products = batch - first < most ? batch - first : most;
    const dim3 grid{unsigned(grid_x), 1, unsigned(products)};
    error = launch(
        kernel, grid, dim3{kThreads}, 0, stream,  // and its parameters:
        M, N, K, alpha, A, lda, stride_a, B, ldb, stride_b, beta, C, ldc, stride_c, D, ldd,
        stride_d, up, ld_up, slope, rest, ld_rest, first);
  }
  return error;
}

#endif  // __CUDACC_RTC__
}  // namespace heads_best4_ns

// ---------------------------------------------------------------------------- kernel 5

// heads_best5: D = silu(x) * up[row, col] + slope * rest[row, col], x = alpha * A * B + beta * C
//
// For products of few rows, which take as long as it takes to read B, whose lines run across K. What a
// thread reads of B, 16 bytes at once if it is aligned, goes straight into registers, and is multiplied by all
// of the few rows of A, which the block brings to shared memory, a step along K at a time: the next step of
// both is on its way while one is multiplied.
//
// The threads of a block share the columns of its tile of D, and K. In the end the sums of the same elements
// are added up, first those of a warp, then those of all warps, always in the same order.
//
//   A  M x K, row-major, float
//   B  K x N, row-major, float
//   C  M x N, row-major, float; not read when beta is 0
//   D  M x N, row-major, float; must not overlap A or B; may be C, where ldc is ldd
//   up  M x N, in D's order, __half
//   slope  a number of alpha's type
//   rest  M x N, in D's order, float
//
// A batch of such products: their matrices are stride_a, stride_b, stride_c and stride_d elements apart.
// Where a stride of A, B or C is 0, all products have the same matrix. Those of D do not overlap; where
// D is C, both have one stride.
//
// Any M, N, K >= 0. Accumulators, alpha and beta are float. Leading dimensions count elements.
// Needs a GPU of compute capability 7.5 or newer and C++17.

#include <cuda_fp16.h>

namespace heads_best5_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = float;
using output_t = float;
using accumulator_t = float;
using scalar_t = accumulator_t;  // of alpha, beta, the epilogue

constexpr int kRows = 8, kCols = 32;  // of D, that a block computes
constexpr int kThreads = 256;  // per block
constexpr int kBlocks = 2;  // of a multiprocessor: the compiler spends registers accordingly

static_assert(kThreads % 32 == 0 && kThreads <= 1024, "a block has whole warps, at most 32");

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

constexpr int kWarps = kThreads / 32;
constexpr int kWidth = 4;  // elements in 16 bytes
constexpr int kStep = 128;  // elements along K that a block multiplies at a time
static_assert(
    kCols % kWidth == 0 && 32 % (kCols / kWidth) == 0, "a warp has whole lines of the tile");

struct alignas(16) Few {  // elements of all few rows of A, at the same place along K
  input_t of[kRows];
};

using Sums = accumulator_t[kWarps][kRows][kCols];  // each warp's, of a block's tile of D
union Shared {
  Few few[2][kStep];  // of two steps
  Sums sums;  // then
};

// A thread's part of the few rows of a step, on its way to shared memory.
struct Coming {
  static constexpr int kOwn = kRows * kStep / kThreads;
  static_assert(kRows * kStep % kThreads == 0, "all threads have as many");
  input_t of[kOwn];

  // From row0 and k0 on. What lies outside of A is zeros, which add nothing to a sum.
  __device__ void read(
      const input_t* A, index_t lda, index_t row0, index_t k0, index_t M, index_t K) {
#pragma unroll
    for (int e = 0; e < kOwn; ++e) {
      const int at = e * kThreads + threadIdx.x;
      const index_t row = row0 + at % kRows, k = k0 + at / kRows;
      of[e] = row < M && k < K ? A[a_at(row, k, lda)] : input_t(0);
    }
  }
  __device__ void write(Few* few) const {
    const auto elements = reinterpret_cast<input_t*>(few);
#pragma unroll
    for (int e = 0; e < kOwn; ++e) {
      elements[e * kThreads + threadIdx.x] = of[e];
    }
  }
};

// What a thread has of a step: kCount neighbours in some lines of B, which are kApart from each other.
template <int kCount>
struct Lines {
  static constexpr int kLanes = kCols / kCount;  // threads with different columns, side by side
  static constexpr int kApart = kThreads / kLanes, kDepth = kStep / kApart;
  struct alignas(kCount * sizeof(input_t)) Piece {
    input_t of[size_t(kCount)];
  };
  Piece of[size_t(kDepth)];

  // What lies outside of B is zeros.
  __device__ void read(
      const input_t* B, index_t ldb, index_t col, index_t k0, index_t N, index_t K) {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      const index_t k = k0 + d * kApart + threadIdx.x / kLanes;
      const input_t* const from = B + b_at(k, col, ldb);
      const bool inside = k < K && col < N;
      if constexpr (kCount == kWidth) {  // one instruction
        reinterpret_cast<int4&>(of[d]) = inside ? *reinterpret_cast<const int4*>(from) : int4{};
      } else {
        of[d].of[0] = inside ? *from : input_t(0);
      }
    }
  }

  // Adds the products with the few rows.
  __device__ void multiply(
      const Few (&few)[kStep], accumulator_t (&sum)[kRows][size_t(kCount)]) const {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      const Few a = few[d * kApart + threadIdx.x / kLanes];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int e = 0; e < kCount; ++e) {
          sum[i][e] += accumulator_t(a.of[i]) * accumulator_t(of[d].of[e]);
        }
      }
    }
  }
};

// Computes each warp's sums for the tile of D that begins at (row0, col0).
template <int kCount>  // neighbours in a line of B that a thread reads at once: kWidth or 1
__device__ inline void multiply(
    Shared& shared, index_t row0, index_t col0, index_t M, index_t N, index_t K, const input_t* A,
    index_t lda, const input_t* B, index_t ldb) {
  constexpr int kLanes = Lines<kCount>::kLanes;
  const int first = threadIdx.x % kLanes * kCount;  // of the thread's columns in the tile
  const index_t col = col0 + first, begin = 0;
  accumulator_t sum[kRows][size_t(kCount)] = {};
  Lines<kCount> lines;
  Coming coming;
  lines.read(B, ldb, col, begin, N, K);
  coming.read(A, lda, row0, begin, M, K);
  coming.write(shared.few[0]);
  __syncthreads();  // the first step of A is there
  int turn = 0;
#pragma unroll 1
  for (index_t k0 = begin; k0 < K; k0 += kStep, turn ^= 1) {
    const index_t k_next = k0 + kStep;
    Lines<kCount> next;
    next.read(B, ldb, col, k_next, N, K);
    coming.read(A, lda, row0, k_next, M, K);
    lines.multiply(shared.few[turn], sum);
    coming.write(shared.few[turn ^ 1]);
    __syncthreads();  // the next step is there, and this one has been read
    lines = next;
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      for (int lanes = 16; lanes >= kLanes; lanes /= 2) {
        sum[i][e] += __shfl_down_sync(0xffffffff, sum[i][e], lanes);
      }
      if (threadIdx.x % 32 < kLanes) {
        shared.sums[threadIdx.x / 32][i][first + e] = sum[i][e];
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    heads_best5(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        index_t stride_a, const input_t* __restrict__ B, index_t ldb, index_t stride_b,
        scalar_t beta, const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd,
        index_t stride_d, const __half* up, index_t ld_up, scalar_t slope, const float* rest,
        index_t ld_rest, index_t first) {
  const Aux aux{up, ld_up, slope, rest, ld_rest};
  // Blocks along z have a product each.
  const index_t product = first + blockIdx.z;
  A += product * stride_a;
  B += product * stride_b;
  if (beta != 0) C += product * stride_c;
  D += product * stride_d;

  __shared__ Shared shared;
  Sums& sums = shared.sums;
  // Whether lines of B begin at a multiple of 16 bytes and are whole pieces of 16 bytes.
  const bool aligned =
      reinterpret_cast<size_t>(B) % 16 == 0 && ldb % kWidth == 0 && N % kWidth == 0;
  const index_t groups = (M + kRows - 1) / kRows, strips = (N + kCols - 1) / kCols;

  // Neighbouring blocks have the same columns of D, and read the same of B.
  // A grid has at most 2^31 - 1 blocks: where there are more tiles, they stride over the rest.
  for (index_t tile = blockIdx.x; tile < groups * strips; tile += gridDim.x) {
    const index_t row0 = tile % groups * kRows, col0 = tile / groups * kCols;
    if (aligned) {
      multiply<kWidth>(shared, row0, col0, M, N, K, A, lda, B, ldb);
    } else {
      multiply<1>(shared, row0, col0, M, N, K, A, lda, B, ldb);
    }
    __syncthreads();  // the sums of all warps are there
    for (int at = threadIdx.x; at < kRows * kCols; at += kThreads) {
      const int i = at / kCols, j = at % kCols;
      accumulator_t sum = 0;
      for (int warp = 0; warp < kWarps; ++warp) sum += sums[warp][i][j];
      const index_t row = row0 + i, col = col0 + j;
      if (row < M && col < N) {
        epilogue(sum, row, col, alpha, beta, C, ldc, D, ldd, aux);
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
//        short, a matrix of more than 2^44 elements,
//        a negative stride, products of D that overlap
//   209  cudaErrorNoKernelImageForDevice: a GPU older than nvcc's -arch. For newer ones the driver
//        compiles the file's PTX when it is first needed, unless nvcc was told to leave PTX out
//   400  cudaErrorInvalidResourceHandle: a stream of another device
extern "C" cudaError_t  // cudaSuccess once the kernel is on its way
heads_best5_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, index_t batch, scalar_t alpha, const input_t* A, index_t lda,
    index_t stride_a, const input_t* B, index_t ldb, index_t stride_b, scalar_t beta,
    const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd, index_t stride_d,
    const __half* up, index_t ld_up, scalar_t slope, const float* rest, index_t ld_rest,
    cudaStream_t stream) {
  constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows
  if (M < 0 || N < 0 || K < 0 || batch < 0) return cudaErrorInvalidValue;
  if (M == 0 || N == 0 || batch == 0) return cudaSuccess;  // D has no elements
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return cudaErrorInvalidValue;
  if (K > 0 && (stride_a < 0 || stride_a > kLargest / batch)) return cudaErrorInvalidValue;
  if (K > 0 && (stride_b < 0 || stride_b > kLargest / batch)) return cudaErrorInvalidValue;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return cudaErrorInvalidValue;
  if (beta != 0 && (stride_c < 0 || stride_c > kLargest / batch)) return cudaErrorInvalidValue;
  if (stride_d < 0 || stride_d > kLargest / batch) return cudaErrorInvalidValue;
  // Products of D do not overlap.
  const bool follow = stride_d >= (M - 1) * ldd + N;  // one behind the other
  const bool beside = stride_d >= N && (batch - 1) * stride_d + N <= ldd;  // in the same lines
  if (batch > 1 && !follow && !beside) return cudaErrorInvalidValue;
  if (up == nullptr || ld_up < N || ld_up > kLargest / M) return cudaErrorInvalidValue;
  if (rest == nullptr || ld_rest < N || ld_rest > kLargest / M) return cudaErrorInvalidValue;

  const index_t tiles = (M + kRows - 1) / kRows * ((N + kCols - 1) / kCols);  // of D
  const index_t grid_x = tiles < 2147483647 ? tiles : 2147483647;
  int device;
  cudaError_t error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const auto kernel = heads_best5;
  constexpr index_t most = 65535;  // products of a launch: blocks of a grid along z
  for (index_t first = 0; first < batch && error == cudaSuccess; first += most) {
    const index_t products = batch - first < most ? batch - first : most;
    const dim3 grid{unsigned(grid_x), 1, unsigned(products)};
    error = launch(
        kernel, grid, dim3{kThreads}, 0, stream,  // and its parameters:
        M, N, K, alpha, A, lda, stride_a, B, ldb, stride_b, beta, C, ldc, stride_c, D, ldd,
        stride_d, up, ld_up, slope, rest, ld_rest, first);
  }
  return error;
}

#endif  // __CUDACC_RTC__
}  // namespace heads_best5_ns

// ---------------------------------------------------------------------------- kernel 6

// heads_best6: D = silu(x) * up[row, col] + slope * rest[row, col], x = alpha * A * B + beta * C
//
// CUDA cores, with as much of D in registers as they hold: a lane computes 4 x 8 elements of it, so that most
// instructions multiply. A scheduler issues one instruction in a clock: what loads, copies and counts is in the way
// of what multiplies.
//
// A block computes a work tile of D. Shared memory has lines of one k each: a column of A's tile, and beside it
// a row of B's. A lane reads 4 elements of a line at a time; those of k + 1 while it multiplies those of k.
// Copies (cp.async) are up to 5 steps ahead of that, pass no registers, and transpose on their way: an operand
// whose lines run along K is copied element by element, which needs no alignment, either. Warps hand steps on at an
// mbarrier: each says that its copies are there a whole step before anybody waits for them.
// 8 teams of warps compute the same work tile, each with its share of every step along K ("sliced-K"): small
// tiles have as many elements a lane as large ones. In the end, their sums meet in shared memory.
//
//   A  M x K, row-major, float
//   B  K x N, row-major, float
//   C  M x N, row-major, float; not read when beta is 0
//   D  M x N, row-major, float; must not overlap A or B; may be C, where ldc is ldd
//   up  M x N, in D's order, __half
//   slope  a number of alpha's type
//   rest  M x N, in D's order, float
//
// A batch of such products: their matrices are stride_a, stride_b, stride_c and stride_d elements apart.
// Where a stride of A, B or C is 0, all products have the same matrix. Those of D do not overlap; where
// D is C, both have one stride.
//
// M, N, K from 0 to 2^31 - 4096, any leading dimension, in elements. Accumulators are float,
// alpha and beta are float. Needs a GPU of compute capability 8.6 or newer and C++17.

#include <cuda_fp16.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 860
#error "for -arch=sm_86 or newer: older GPUs lack the kernel's instructions"
#endif

namespace heads_best6_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = float;
using output_t = float;
using scalar_t = float;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;
constexpr int kTileM = 32, kTileN = 32, kTileK = 32;  // of a block: work tile, step along K
constexpr int kThreads = 256;  // 8 warps

constexpr int kWarpM = 32, kWarpN = 32;  // what each warp computes of the work tile
constexpr int kLaneM = kWarpM / 8, kLaneN = kWarpN / 4;  // and each lane: 4 x 8 elements
constexpr int kStages = 6;  // steps along K that are in shared memory or on their way
constexpr int kGroup = 12;  // work tiles along M that are computed close in time: see tile_at
constexpr int kWarpsM = kTileM / kWarpM;  // 32 / 32 = 1
constexpr int kTeams = 8;  // of warps, which share out K
constexpr int kWarps = kThreads / 32 / kTeams;  // of a team: 1
constexpr int kTeamK = kTileK / kTeams;  // of a step, what each multiplies: 32 / 8 = 4
constexpr int kChunk = 4;  // elements in 16 bytes
// Elements of a line in shared memory, with a gap against bank conflicts.
constexpr int kLine = kTileM + kTileN + 4;  // 68
constexpr int kStep = kTileK * kLine;  // 2176 elements: lines of a step
constexpr int kStepBytes = kStep * sizeof(input_t);  // of a stage in shared memory
constexpr int kLinesAt = 16;  // where the first one begins there, in bytes: behind an mbarrier

// ------------------------------------------------------------------------ PTX
__device__ inline uint32_t shared_address(const void* pointer) {  // as PTX instructions take it
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
__device__ inline void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ inline void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Until the phase with this parity is over: phases count 0, 1, 0, 1, ...
__device__ inline void barrier_wait(uint32_t barrier, int parity) {
  asm volatile(
      "{\n.reg .pred over;\nagain: mbarrier.test_wait.parity.shared.b64 over, [%0], %1;\n"
      "@!over bra again;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// Starts to copy kCount elements, which lie at a multiple of their size; zeros take the place of some that do
// not exist.
template <int kCount>
__device__ inline void start_copy(uint32_t shared, const input_t* global, bool exist) {
  if constexpr (kCount == kChunk) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
                 "r"(exist ? 16 : 0)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(global),
                 "r"(exist ? 4 : 0)
                 : "memory");
  }
}

// ------------------------------------------------------------------------ what a warp computes
using chunk_t = float4;  // kChunk elements, read and written at once

// A warp's part of the work tile, with fragments of two k: one is loaded while the other is multiplied.
// Lane 4g + t (g = 0..7, t = 0..3) has rows 4g to 4g + 3 of each 32, and columns 4t to 4t + 3 of each 16: lanes
// that do not read the same chunks of a line read neighbouring ones, from different banks.
struct WarpTile {
  scalar_t acc[kLaneM][kLaneN];
  alignas(16) input_t a[2][kLaneM], b[2][kLaneN];
  const input_t *a_at, *b_at;  // what the lane reads of a line first

  __device__ void clear() {
#pragma unroll
    for (auto& row : acc) {
#pragma unroll
      for (auto& x : row) x = 0;
    }
  }
  // Lets loads begin with the first of these lines.
  __device__ void read_from(const input_t* lines, int warp, int lane) {
    lines += warp / kWarps * kTeamK * kLine;  // the team's
    warp %= kWarps;
    a_at = lines + warp % kWarpsM * kWarpM + lane / 4 * kChunk;
    b_at = lines + kTileM + warp / kWarpsM * kWarpN + lane % 4 * kChunk;
  }
  // Lets loads begin so many elements further on.
  __device__ void move(int elements) {
    a_at += elements;
    b_at += elements;
  }
  __device__ void load(int k) {
#pragma unroll
    for (int j = 0; j < kLaneN; j += kChunk) {
      const auto& from = b_at[k * kLine + 4 * j];
      reinterpret_cast<chunk_t&>(b[k % 2][j]) = reinterpret_cast<const chunk_t&>(from);
    }
#pragma unroll
    for (int i = 0; i < kLaneM; i += kChunk) {
      const auto& from = a_at[k * kLine + 8 * i];
      reinterpret_cast<chunk_t&>(a[k % 2][i]) = reinterpret_cast<const chunk_t&>(from);
    }
  }
  // The register file has two banks, even and odd, and gives one register of each in a clock:
  // besides a[i], which stays for a row, a multiplication reads b[j] and acc[i][j]. Where b[j] is
  // even, acc[i][j] is odd, because `write` takes sums in pairs that are swapped: ptxas keeps them
  // in such registers from the beginning.
  __device__ void multiply(int k) {
#pragma unroll
    for (int i = 0; i < kLaneM; ++i) {
#pragma unroll
      for (int n = 0; n < kLaneN; ++n) {
        const int j = i % 2 ? kLaneN - 1 - n : n;  // there and back: one operand stays
        acc[i][j] += a[k % 2][i] * b[k % 2][j];
      }
    }
  }
  // Writes the sums of kChunk rows, those of a pass, with each pair of neighbours swapped.
  __device__ void write(int pass, scalar_t* to, int line) const {
#pragma unroll
    for (int i = 0; i < kLaneM; i += kChunk) {
      if (i / kChunk != pass) continue;  // registers have no variable index
#pragma unroll
      for (int r = 0; r < kChunk; ++r) {
#pragma unroll
        for (int j = 0; j < kLaneN; j += kChunk) {
          const auto& x = acc[i + r];
          reinterpret_cast<chunk_t&>(to[r * line + 4 * j]) = {x[j + 1], x[j], x[j + 3], x[j + 2]};
        }
      }
    }
  }
};

// ------------------------------------------------------------------------ operands
// A pointer so many bytes further on.
__device__ inline const input_t* later(const input_t* from, index_t bytes) {
  return reinterpret_cast<const input_t*>(reinterpret_cast<const char*>(from) + bytes);
}

// A thread's copies of an operand whose lines run along K: it transposes them. Eight threads copy
// neighbours along K: whole sectors of memory. Pointers stay as they are, and one sum for a warp grows: a register that
// a copy has still to read cannot be written.
template <int kWidth>
struct AlongK {
  static constexpr int kLanes = 8, kAtOnce = kThreads / kLanes;  // threads for a line; lines
  static constexpr int kLinesOwn = kWidth / kAtOnce;

  const input_t* from[size_t(kLinesOwn)];  // of the first step
  index_t gone = 0;  // bytes from there to the present step
  uint32_t to;
  int left;  // elements from there to the end along K

  // Of the `count` lines that `matrix` begins with. The last one takes the place of those that do
  // not exist: nothing of D comes of them.
  __device__ AlongK(const input_t* matrix, index_t ld, int count, int depth, input_t* lines) {
    const int line = threadIdx.x / kLanes, k = threadIdx.x % kLanes;
#pragma unroll
    for (int i = 0; i < kLinesOwn; ++i) {
      const int at = line + i * kAtOnce;
      from[i] = matrix + (at < count ? at : count - 1) * ld + k;
      asm volatile("" : "+l"(from[i]));  // a register that stays as it is
    }
    to = shared_address(lines + k * kLine + line);
    asm volatile("" : "+r"(to));  // not to be computed anew at each step
    left = depth - k;
  }
  // Starts a step's, to so many bytes further on.
  __device__ void copy(uint32_t place) {
#pragma unroll
    for (int k = 0; k < kTileK; k += kLanes) {
#pragma unroll
      for (int i = 0; i < kLinesOwn; ++i) {
        const uint32_t at = to + place + (k * kLine + i * kAtOnce) * sizeof(input_t);
        start_copy<1>(at, later(from[i], gone) + k, k < left);
      }
    }
  }
  __device__ void next_step() {
    gone += kTileK * sizeof(input_t);
    asm volatile("" : "+l"(gone));
    left -= kTileK;
  }
};

// Whether all chunks lie at a multiple of 16 bytes, and no line ends in one.
template <int kWidth>
__device__ inline bool comes_in_chunks(const input_t* matrix, index_t ld, int count) {
  const bool aligned = reinterpret_cast<size_t>(matrix) % 16 == 0 && ld % kChunk == 0;
  return aligned && (count >= kWidth || count % kChunk == 0);
}

// A thread's copies of an operand whose lines are those of shared memory, in chunks or element by
// element: the same lines, and as many elements of each.
template <int kWidth>
struct Across {
  static constexpr int kOfLine = kWidth / kChunk;  // chunks
  static constexpr int kThreadsOfLine = kOfLine < kThreads ? kOfLine : kThreads;
  static constexpr int kAtOnce = kThreads / kThreadsOfLine;  // lines
  static constexpr int kLinesOwn = (kTileK + kAtOnce - 1) / kAtOnce;

  const input_t* from[size_t(kLinesOwn)];  // of the present step
  index_t step;  // bytes from there to the next one
  uint32_t to;
  int left, room;  // lines from there to the last one, elements to the end of the line

  __device__ Across(
      const input_t* matrix, index_t ld, int count, int depth, input_t* lines, bool in_chunks) {
    const int line = threadIdx.x / kThreadsOfLine;
    const int at = threadIdx.x % kThreadsOfLine * (in_chunks ? kChunk : 1);
#pragma unroll
    for (int i = 0; i < kLinesOwn; ++i) from[i] = matrix + (line + i * kAtOnce) * ld + at;
    step = kTileK * ld * index_t(sizeof(input_t));
    to = shared_address(lines + line * kLine + at);
    room = count - at;
    left = room > 0 && line < kTileK ? depth - line : 0;
    asm volatile("" : "+l"(step), "+r"(to), "+r"(room));  // not to be computed anew at each step
  }
  // Starts a step's, kCount elements at a time.
  template <int kCount>
  __device__ void copy(uint32_t place) {
    constexpr int kNext = kThreadsOfLine * kCount;  // elements from one of a line to the next one
#pragma unroll
    for (int i = 0; i < kLinesOwn; ++i) {
#pragma unroll
      for (int e = 0; e < kWidth; e += kNext) {
        const uint32_t at = to + place + (i * kAtOnce * kLine + e) * sizeof(input_t);
        if (kAtOnce <= kTileK || threadIdx.x < kThreadsOfLine * kTileK) {
          start_copy<kCount>(at, from[i] + e, i * kAtOnce < left && (e == 0 || e < room));
        }
      }
    }
  }
  __device__ void next_step() {
#pragma unroll
    for (auto& line : from) line = later(line, step);
    left -= kTileK;
  }
};

// Starts a step's copies, with zeros in place of what does not exist.
template <int kCount>
__device__ inline void start_copies(AlongK<kTileM>& a, Across<kTileN>& b, uint32_t place) {
  a.copy(place);
  b.copy<kCount>(place);
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Multiplies the rows of A that begin at `A`, and the columns of B that begin at `B`: those of a work tile.
// in_chunks: whether B can be copied 16 bytes at a time.
__device__ inline void multiply(
    WarpTile& tile, const input_t* A, index_t lda, int rows, const input_t* B, index_t ldb,
    int cols, int depth, bool in_chunks, input_t* lines, int warp, int lane) {
  AlongK<kTileM> a(A, lda, rows, depth, lines);
  Across<kTileN> b(B, ldb, cols, depth, lines + kTileM, in_chunks);
  uint32_t place = 0;  // where copies go: bytes behind the first line
  const auto copy = [&] {
    if (in_chunks) {
      start_copies<kChunk>(a, b, place);
    } else {
      start_copies<1>(a, b, place);
    }
  };
  const auto next = [&] {
    a.next_step();
    b.next_step();
    place += kStepBytes;
    if (place == kStages * kStepBytes) place = 0;
  };
  uint32_t ready = shared_address(lines) - kLinesAt;  // an mbarrier
  asm volatile("" : "+r"(ready));  // not to be computed anew at each step
  // Says that the warp's copies are there, except those of the newest 3 steps,
  // and that it has read the step before the one that it multiplies.
  const auto arrive = [&] {
    asm volatile("cp.async.wait_group 3;" ::: "memory");
    __syncwarp();  // all lanes' copies
    if (lane == 0) barrier_arrive(ready);
  };
  if (threadIdx.x == 0) barrier_init(ready, kThreads / 32);

#pragma unroll 1
  for (int s = 0; s < kStages - 1; ++s) {
    if (s > 0) next();
    copy();
  }
  tile.clear();
  tile.read_from(lines, warp, lane);
  asm volatile("cp.async.wait_group 4;" ::: "memory");
  __syncthreads();  // the first step's lines are there, for all threads, and so is the mbarrier
  arrive();
  tile.load(0);

  // Main loop, a step in a turn. What is not a multiplication stands together: elsewhere, each copy
  // would cost more instructions, and ptxas would find worse registers for the multiplications. The
  // branch in `copy`, which all threads take alike, keeps it there.
  // Copies go on behind the end of K, where they write zeros that nobody multiplies.
  // A warp arrives at the mbarrier a step before others wait for it there, so that it may be that
  // much behind them.
  int stage = 0;  // what is read
  int phase = 0;  // of the mbarrier
#pragma unroll 1
  for (; depth > 0; depth -= kTileK) {
#pragma unroll
    for (int k = 0; k < kTeamK; ++k) {
      if (k == 0) next();  // long before copies need it, and long after they read these registers
      if (k == kTeamK - 1) {
        const bool last = ++stage == kStages;
        tile.move(last ? kStep - kStages * kStep : kStep);
        if (last) stage = 0;
        // The next step's lines are there, and nobody reads those of the one before any more.
        barrier_wait(ready, phase);
        phase ^= 1;
      }
      tile.load((k + 1) % kTeamK);
      if (k == kTeamK - 1) {
        copy();  // in place of the step before
        arrive();
      }
      tile.multiply(k % 2);
    }
  }
  asm volatile("cp.async.wait_all;" ::: "memory");  // what nobody needs, and sums take the place of
}

// Work tiles in the order in which they are computed: kGroup below each other, then the next
// column: what runs at the same time shares operands in L2. Unsigned numbers are divided faster.
// The tiles of a product come behind all of the one before.
__device__ inline void tile_at(
    uint32_t t, uint32_t tiles_m, uint32_t tiles_n, int& product, int& row0, int& col0) {
  product = t / (tiles_m * tiles_n);
  t %= tiles_m * tiles_n;
  const uint32_t most = tiles_m < kGroup ? tiles_m : kGroup;  // kGroup * tiles_n may overflow
  const uint32_t group = most * tiles_n, first = t / group * most;
  const uint32_t height = tiles_m - first < most ? tiles_m - first : most;
  row0 = (first + t % group % height) * kTileM;
  col0 = t % group / height * kTileN;
}

// ------------------------------------------------------------------------ D
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
  const scalar_t up = scalar_t(aux.up[row * aux.ld_up + col]);
  const scalar_t rest = aux.rest[row * aux.ld_rest + col];
  return output_t(silu(x) * up + aux.slope * rest);
}

struct Output {  // what D is made from, besides accumulators, and where it goes
  int rows, cols;
  scalar_t alpha, beta;
  const output_t* C;  // as in BLAS, not read where beta is 0: it may hold NaN or be null
  output_t* D;
  index_t ldc, ldd;
  Aux aux;
};

// Places beyond D are taken for the last one inside: what is made there is not stored.
__device__ inline int clamped(int at, int count) {
  return at < count ? at : count - 1;
}

// Whether all rows of C or D start at a multiple of 16 bytes.
__device__ inline bool is_aligned(const output_t* matrix, index_t ld) {
  return reinterpret_cast<size_t>(matrix) % 16 == 0 && ld * sizeof(output_t) % 16 == 0;
}

// Sums on their way from registers, where a lane has neighbours of several rows, to memory, where
// neighbouring threads write neighbours of one: kChunk rows of each lane in a pass.
constexpr int kPasses = kLaneM / kChunk;
constexpr int kSpan = 8 * kChunk;  // rows of a warp in a pass
constexpr int kStagedRows = kWarpsM * kSpan;
constexpr int kStagedLine = kTileN + 4;  // with a gap against bank conflicts
constexpr int kStagedBytes = kTeams * kStagedRows * kStagedLine * sizeof(scalar_t);

template <int kCount>
struct alignas(kCount * sizeof(scalar_t)) Elements {
  scalar_t of[size_t(kCount)];
};

// Writes all threads' sums of a pass to `staged`.
__device__ inline void stage(const WarpTile& tile, scalar_t* staged, int pass, int warp, int lane) {
  staged += warp / kWarps * kStagedRows * kStagedLine;  // the team's
  warp %= kWarps;
  const int row = warp % kWarpsM * kSpan + lane / 4 * kChunk;
  const int col = warp / kWarpsM * kWarpN + lane % 4 * kChunk;
  __syncthreads();  // nobody reads what was there
  tile.write(pass, staged + row * kStagedLine + col, kStagedLine);
  __syncthreads();  // all sums are there
}

// kCount sums beside each other, from a row and a column of `staged` on.
template <int kCount>
__device__ inline Elements<kCount> staged_sums(const scalar_t* staged, int row, int col) {
  const scalar_t* from = staged + row * kStagedLine + (kCount == 1 ? col ^ 1 : col);
  auto sums = reinterpret_cast<const Elements<kCount>&>(*from);
#pragma unroll
  for (int team = 1; team < kTeams; ++team) {
    from += kStagedRows * kStagedLine;
    const auto others = reinterpret_cast<const Elements<kCount>&>(*from);
#pragma unroll
    for (int e = 0; e < kCount; ++e) sums.of[e] += others.of[e];
  }
  if constexpr (kCount > 1) {
#pragma unroll
    for (int e = 0; e < kCount; e += 2) {  // back to their places
      const scalar_t x = sums.of[e];
      sums.of[e] = sums.of[e + 1];
      sums.of[e + 1] = x;
    }
  }
  return sums;
}

// Makes D of staged sums, kCount elements at a time. A thread has its columns in all rows, so that addresses are a
// step apart; of several rows, sums are read at once.
template <int kCount>
__device__ inline void finish(
    const scalar_t* staged, int pass, const Output& out, int row0, int col0) {
  constexpr int kPerLine = kTileN / kCount, kBeside = kPerLine < kThreads ? kPerLine : kThreads;
  constexpr int kBelow = kThreads / kBeside, kTimes = (kSpan + kBelow - 1) / kBelow;
  constexpr int kAtOnce = kCount > 1 ? 1 : kTimes < 4 ? kTimes : 4;
  const int below = threadIdx.x / kBeside;
#pragma unroll 1
  for (int at = threadIdx.x % kBeside; at < kPerLine; at += kBeside) {
    const int col = col0 + at * kCount;
    if (col >= out.cols) return;
#pragma unroll 1
    for (int warp = 0; warp < kWarpsM; ++warp) {
      int row = row0 + warp * kWarpM + pass * kSpan + below;
      const output_t* c = out.C + row * out.ldc + col;
      output_t* to = out.D + row * out.ldd + col;
#pragma unroll kAtOnce
      for (int i = 0; i < kTimes; ++i) {
        const int line = below + i * kBelow;
        if (kSpan % kBelow > 0 && line >= kSpan) break;
        const auto sums = staged_sums<kCount>(staged, warp * kSpan + line, at * kCount);
        if (row < out.rows) {
          Elements<kCount> d{};
          if (out.beta != 0) d = reinterpret_cast<const Elements<kCount>&>(*c);
#pragma unroll
          for (int e = 0; e < kCount; ++e) {
            scalar_t x = out.alpha * sums.of[e];
            if (out.beta != 0) x += out.beta * d.of[e];
            d.of[e] = finish_element(x, row, col + e, out.aux);
          }
          reinterpret_cast<Elements<kCount>&>(*to) = d;
        }
        row += kBelow;
        c += kBelow * out.ldc;
        to += kBelow * out.ldd;
      }
    }
  }
}

// Writes a block's part of D, whose first element is at (row0, col0).
__device__ inline void store(
    const WarpTile& tile, const Output& out, int row0, int col0, scalar_t* staged, int warp,
    int lane) {
  const bool aligned = is_aligned(out.D, out.ldd) &&
                       (out.beta == 0 || is_aligned(out.C, out.ldc)) &&
                       (col0 + kTileN <= out.cols || out.cols % kChunk == 0);
#pragma unroll 1
  for (int pass = 0; pass < kPasses; ++pass) {
    stage(tile, staged, pass, warp, lane);
    if (aligned) {
      finish<kChunk>(staged, pass, out, row0, col0);
    } else {
      finish<1>(staged, pass, out, row0, col0);
    }
  }
}

// ------------------------------------------------------------------------ the kernel
constexpr int kSharedBytes = kLinesAt + kStages * kStepBytes;  // 52240
static_assert(kLinesAt + kStagedBytes <= kSharedBytes);  // sums take the lines' place

extern "C" __global__ void __launch_bounds__(kThreads)  // lets the compiler count on the block size
    heads_best6(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        index_t stride_a, const input_t* __restrict__ B, index_t ldb, index_t stride_b,
        scalar_t beta, const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd,
        index_t stride_d, const __half* up, index_t ld_up, scalar_t slope, const float* rest,
        index_t ld_rest) {
  extern __shared__ __align__(128) unsigned char shared[];  // an mbarrier, steps of kStep elements
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  const int rows = int(M), cols = int(N), depth = int(K);
  const int tiles_m = (rows + kTileM - 1) / kTileM, tiles_n = (cols + kTileN - 1) / kTileN;
  int product, row0, col0;
  tile_at(blockIdx.x, tiles_m, tiles_n, product, row0, col0);
  A += product * stride_a;
  B += product * stride_b;
  if (beta != 0) C += product * stride_c;
  D += product * stride_d;

  const auto lines = reinterpret_cast<input_t*>(shared + kLinesAt);
  WarpTile tile;
  const input_t* a = A + index_t(row0) * lda;
  const input_t* b = B + col0;
  const bool in_chunks = comes_in_chunks<kTileN>(b, ldb, cols - col0);
  multiply(tile, a, lda, rows - row0, b, ldb, cols - col0, depth, in_chunks, lines, warp, lane);
  const auto sums = reinterpret_cast<scalar_t*>(lines);

  const Aux aux{up, ld_up, slope, rest, ld_rest};
  const Output out{rows, cols, alpha, beta, C, D, ldc, ldd, aux};
  store(tile, out, row0, col0, sums, warp, lane);
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

// A launch, worked out from top to bottom.
struct Plan {
  index_t M, N, K, batch;

  index_t tiles = (M + kTileM - 1) / kTileM * ((N + kTileN - 1) / kTileN) * batch;  // of D
};

constexpr size_t kSide = 2147479552;  // M, N, K: 2^31 - 4096, so that where a tile ends is an int
constexpr size_t kMost = 2147483647;  // blocks
constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows

// Sets *bytes to the size of the workspace that the launcher needs on the current device, or to 0 where
// it returns the launcher's error 1 or 9.
// It needs none: operands are read where they are, and K is not split.
extern "C" cudaError_t  // cudaSuccess once *bytes is set
heads_best6_workspace(  // for a launch with these arguments
    index_t M, index_t N, index_t K, index_t batch, const input_t* A, index_t lda, index_t stride_a,
    const input_t* B, index_t ldb, index_t stride_b, size_t* bytes) {
  if (bytes == nullptr) return cudaErrorInvalidValue;
  *bytes = 0;
  if (size_t(M) > kSide || size_t(N) > kSide || size_t(K) > kSide) return cudaErrorInvalidValue;
  if (size_t(batch) > kMost) return cudaErrorInvalidValue;
  if (M == 0 || N == 0 || batch == 0) return cudaSuccess;  // D has no elements
  if (M > kLargest / N || batch > kLargest / (M * N)) return cudaErrorInvalidValue;
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return cudaErrorInvalidValue;
  if (K > 0 && (stride_a < 0 || stride_a > kLargest / batch)) return cudaErrorInvalidValue;
  if (K > 0 && (stride_b < 0 || stride_b > kLargest / batch)) return cudaErrorInvalidValue;
  const Plan plan{M, N, K, batch};
  if (size_t(plan.tiles) > kMost) return cudaErrorInvalidConfiguration;
  return cudaSuccess;
}

// Checks the arguments and queues the kernels on a stream. Any threads may call it at once, also
// while a CUDA graph is captured: it never prints, exits, waits or allocates.
// `workspace` is device memory at a multiple of 256 bytes, as much as ..._workspace says; it is
// free again when the stream has got past the launch.
// Where it returns one of these, D is as it was:
//     1  cudaErrorInvalidValue: a size below 0 or above 2^31 - 4096, a null matrix or one of more
//        than 2^44 elements, a leading dimension too short, a workspace too small or not aligned,
//        a negative stride, products of D that overlap, or too many: see 9
//     9  cudaErrorInvalidConfiguration: 2^31 blocks or more
//   209  cudaErrorNoKernelImageForDevice: a GPU older than nvcc's -arch. For newer ones the driver
//        compiles the file's PTX when it is first needed, unless nvcc was told to leave PTX out
//   400  cudaErrorInvalidResourceHandle: a stream of another device
extern "C" cudaError_t  // cudaSuccess once the kernels are on their way
heads_best6_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, index_t batch, scalar_t alpha, const input_t* A, index_t lda,
    index_t stride_a, const input_t* B, index_t ldb, index_t stride_b, scalar_t beta,
    const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd, index_t stride_d,
    const __half* up, index_t ld_up, scalar_t slope, const float* rest, index_t ld_rest,
    void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  size_t needed;  // bytes of the workspace
  auto ask = heads_best6_workspace;
  cudaError_t error = ask(M, N, K, batch, A, lda, stride_a, B, ldb, stride_b, &needed);
  if (error != cudaSuccess || M == 0 || N == 0 || batch == 0) return error;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return cudaErrorInvalidValue;
  if (beta != 0 && (stride_c < 0 || stride_c > kLargest / batch)) return cudaErrorInvalidValue;
  if (stride_d < 0 || stride_d > kLargest / batch) return cudaErrorInvalidValue;
  // Products of D do not overlap.
  const bool follow = stride_d >= (M - 1) * ldd + N;  // one behind the other
  const bool beside = stride_d >= N && (batch - 1) * stride_d + N <= ldd;  // in the same lines
  if (batch > 1 && !follow && !beside) return cudaErrorInvalidValue;
  if (up == nullptr || ld_up < N || ld_up > kLargest / M) return cudaErrorInvalidValue;
  if (rest == nullptr || ld_rest < N || ld_rest > kLargest / M) return cudaErrorInvalidValue;

  int device;
  error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const Plan plan{M, N, K, batch};
  (void)workspace, (void)workspace_bytes;  // nothing is packed, nothing is added up later

  const auto kernel = heads_best6;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;

  const dim3 grid(unsigned(plan.tiles));
  return launch(
      kernel, grid, kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, alpha, A, lda, stride_a, B, ldb, stride_b, beta, C, ldc, stride_c, D, ldd,
      stride_d, up, ld_up, slope, rest, ld_rest);
}

#endif  // __CUDACC_RTC__
}  // namespace heads_best6_ns

// ---------------------------------------------------------------------------- kernel 7

// heads_best7: D = silu(x) * up[row, col] + slope * rest[row, col], x = alpha * A * B + beta * C
//
// CUDA cores, with as much of D in registers as they hold: a lane computes 8 x 8 elements of it, so that most
// instructions multiply. A scheduler issues one instruction in a clock: what loads, copies and counts is in the way
// of what multiplies.
//
// A block computes a work tile of D. Shared memory has lines of one k each: a column of A's tile, and beside it
// a row of B's. A lane reads 4 elements of a line at a time; those of k + 1 while it multiplies those of k.
// Copies (cp.async) are up to 5 steps ahead of that, pass no registers, and transpose on their way: an operand
// whose lines run along K is copied element by element, which needs no alignment, either. Warps hand steps on at an
// mbarrier: each says that its copies are there a whole step before anybody waits for them.
// 8 teams of warps compute the same work tile, each with its share of every step along K ("sliced-K"): small
// tiles have as many elements a lane as large ones. In the end, their sums meet in shared memory.
//
//   A  M x K, row-major, float
//   B  K x N, row-major, float
//   C  M x N, row-major, float; not read when beta is 0
//   D  M x N, row-major, float; must not overlap A or B; may be C, where ldc is ldd
//   up  M x N, in D's order, __half
//   slope  a number of alpha's type
//   rest  M x N, in D's order, float
//
// A batch of such products: their matrices are stride_a, stride_b, stride_c and stride_d elements apart.
// Where a stride of A, B or C is 0, all products have the same matrix. Those of D do not overlap; where
// D is C, both have one stride.
//
// M, N, K from 0 to 2^31 - 4096, any leading dimension, in elements. Accumulators are float,
// alpha and beta are float. Needs a GPU of compute capability 8.6 or newer and C++17.

#include <cuda_fp16.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 860
#error "for -arch=sm_86 or newer: older GPUs lack the kernel's instructions"
#endif

namespace heads_best7_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = float;
using output_t = float;
using scalar_t = float;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;
constexpr int kTileM = 64, kTileN = 32, kTileK = 32;  // of a block: work tile, step along K
constexpr int kThreads = 256;  // 8 warps

constexpr int kWarpM = 64, kWarpN = 32;  // what each warp computes of the work tile
constexpr int kLaneM = kWarpM / 8, kLaneN = kWarpN / 4;  // and each lane: 8 x 8 elements
constexpr int kStages = 6;  // steps along K that are in shared memory or on their way
constexpr int kGroup = 12;  // work tiles along M that are computed close in time: see tile_at
constexpr int kWarpsM = kTileM / kWarpM;  // 64 / 64 = 1
constexpr int kTeams = 8;  // of warps, which share out K
constexpr int kWarps = kThreads / 32 / kTeams;  // of a team: 1
constexpr int kTeamK = kTileK / kTeams;  // of a step, what each multiplies: 32 / 8 = 4
constexpr int kChunk = 4;  // elements in 16 bytes
// Elements of a line in shared memory, with a gap against bank conflicts.
constexpr int kLine = kTileM + kTileN + 4;  // 100
constexpr int kStep = kTileK * kLine;  // 3200 elements: lines of a step
constexpr int kStepBytes = kStep * sizeof(input_t);  // of a stage in shared memory
constexpr int kLinesAt = 16;  // where the first one begins there, in bytes: behind an mbarrier

// ------------------------------------------------------------------------ PTX
__device__ inline uint32_t shared_address(const void* pointer) {  // as PTX instructions take it
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
__device__ inline void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ inline void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Until the phase with this parity is over: phases count 0, 1, 0, 1, ...
__device__ inline void barrier_wait(uint32_t barrier, int parity) {
  asm volatile(
      "{\n.reg .pred over;\nagain: mbarrier.test_wait.parity.shared.b64 over, [%0], %1;\n"
      "@!over bra again;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// Starts to copy kCount elements, which lie at a multiple of their size; zeros take the place of some that do
// not exist.
template <int kCount>
__device__ inline void start_copy(uint32_t shared, const input_t* global, bool exist) {
  if constexpr (kCount == kChunk) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
                 "r"(exist ? 16 : 0)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(global),
                 "r"(exist ? 4 : 0)
                 : "memory");
  }
}

// ------------------------------------------------------------------------ what a warp computes
using chunk_t = float4;  // kChunk elements, read and written at once

// A warp's part of the work tile, with fragments of two k: one is loaded while the other is multiplied.
// Lane 4g + t (g = 0..7, t = 0..3) has rows 4g to 4g + 3 of each 32, and columns 4t to 4t + 3 of each 16: lanes
// that do not read the same chunks of a line read neighbouring ones, from different banks.
struct WarpTile {
  scalar_t acc[kLaneM][kLaneN];
  alignas(16) input_t a[2][kLaneM], b[2][kLaneN];
  const input_t *a_at, *b_at;  // what the lane reads of a line first

  __device__ void clear() {
#pragma unroll
    for (auto& row : acc) {
#pragma unroll
      for (auto& x : row) x = 0;
    }
  }
  // Lets loads begin with the first of these lines.
  __device__ void read_from(const input_t* lines, int warp, int lane) {
    lines += warp / kWarps * kTeamK * kLine;  // the team's
    warp %= kWarps;
    a_at = lines + warp % kWarpsM * kWarpM + lane / 4 * kChunk;
    b_at = lines + kTileM + warp / kWarpsM * kWarpN + lane % 4 * kChunk;
  }
  // Lets loads begin so many elements further on.
  __device__ void move(int elements) {
    a_at += elements;
    b_at += elements;
  }
  __device__ void load(int k) {
#pragma unroll
    for (int j = 0; j < kLaneN; j += kChunk) {
      const auto& from = b_at[k * kLine + 4 * j];
      reinterpret_cast<chunk_t&>(b[k % 2][j]) = reinterpret_cast<const chunk_t&>(from);
    }
#pragma unroll
    for (int i = 0; i < kLaneM; i += kChunk) {
      const auto& from = a_at[k * kLine + 8 * i];
      reinterpret_cast<chunk_t&>(a[k % 2][i]) = reinterpret_cast<const chunk_t&>(from);
    }
  }
  // The register file has two banks, even and odd, and gives one register of each in a clock:
  // besides a[i], which stays for a row, a multiplication reads b[j] and acc[i][j]. Where b[j] is
  // even, acc[i][j] is odd, because `write` takes sums in pairs that are swapped: ptxas keeps them
  // in such registers from the beginning.
  __device__ void multiply(int k) {
#pragma unroll
    for (int i = 0; i < kLaneM; ++i) {
#pragma unroll
      for (int n = 0; n < kLaneN; ++n) {
        const int j = i % 2 ? kLaneN - 1 - n : n;  // there and back: one operand stays
        acc[i][j] += a[k % 2][i] * b[k % 2][j];
      }
    }
  }
  // Writes the sums of kChunk rows, those of a pass, with each pair of neighbours swapped.
  __device__ void write(int pass, scalar_t* to, int line) const {
#pragma unroll
    for (int i = 0; i < kLaneM; i += kChunk) {
      if (i / kChunk != pass) continue;  // registers have no variable index
#pragma unroll
      for (int r = 0; r < kChunk; ++r) {
#pragma unroll
        for (int j = 0; j < kLaneN; j += kChunk) {
          const auto& x = acc[i + r];
          reinterpret_cast<chunk_t&>(to[r * line + 4 * j]) = {x[j + 1], x[j], x[j + 3], x[j + 2]};
        }
      }
    }
  }
};

// ------------------------------------------------------------------------ operands
// A pointer so many bytes further on.
__device__ inline const input_t* later(const input_t* from, index_t bytes) {
  return reinterpret_cast<const input_t*>(reinterpret_cast<const char*>(from) + bytes);
}

// A thread's copies of an operand whose lines run along K: it transposes them. Eight threads copy
// neighbours along K: whole sectors of memory. Pointers stay as they are, and one sum for a warp grows: a register that
// a copy has still to read cannot be written.
template <int kWidth>
struct AlongK {
  static constexpr int kLanes = 8, kAtOnce = kThreads / kLanes;  // threads for a line; lines
  static constexpr int kLinesOwn = kWidth / kAtOnce;

  const input_t* from[size_t(kLinesOwn)];  // of the first step
  index_t gone = 0;  // bytes from there to the present step
  uint32_t to;
  int left;  // elements from there to the end along K

  // Of the `count` lines that `matrix` begins with. The last one takes the place of those that do
  // not exist: nothing of D comes of them.
  __device__ AlongK(const input_t* matrix, index_t ld, int count, int depth, input_t* lines) {
    const int line = threadIdx.x / kLanes, k = threadIdx.x % kLanes;
#pragma unroll
    for (int i = 0; i < kLinesOwn; ++i) {
      const int at = line + i * kAtOnce;
      from[i] = matrix + (at < count ? at : count - 1) * ld + k;
      asm volatile("" : "+l"(from[i]));  // a register that stays as it is
    }
    to = shared_address(lines + k * kLine + line);
    asm volatile("" : "+r"(to));  // not to be computed anew at each step
    left = depth - k;
  }
  // Starts a step's, to so many bytes further on.
  __device__ void copy(uint32_t place) {
#pragma unroll
    for (int k = 0; k < kTileK; k += kLanes) {
#pragma unroll
      for (int i = 0; i < kLinesOwn; ++i) {
        const uint32_t at = to + place + (k * kLine + i * kAtOnce) * sizeof(input_t);
        start_copy<1>(at, later(from[i], gone) + k, k < left);
      }
    }
  }
  __device__ void next_step() {
    gone += kTileK * sizeof(input_t);
    asm volatile("" : "+l"(gone));
    left -= kTileK;
  }
};

// Whether all chunks lie at a multiple of 16 bytes, and no line ends in one.
template <int kWidth>
__device__ inline bool comes_in_chunks(const input_t* matrix, index_t ld, int count) {
  const bool aligned = reinterpret_cast<size_t>(matrix) % 16 == 0 && ld % kChunk == 0;
  return aligned && (count >= kWidth || count % kChunk == 0);
}

// A thread's copies of an operand whose lines are those of shared memory, in chunks or element by
// element: the same lines, and as many elements of each.
template <int kWidth>
struct Across {
  static constexpr int kOfLine = kWidth / kChunk;  // chunks
  static constexpr int kThreadsOfLine = kOfLine < kThreads ? kOfLine : kThreads;
  static constexpr int kAtOnce = kThreads / kThreadsOfLine;  // lines
  static constexpr int kLinesOwn = (kTileK + kAtOnce - 1) / kAtOnce;

  const input_t* from[size_t(kLinesOwn)];  // of the present step
  index_t step;  // bytes from there to the next one
  uint32_t to;
  int left, room;  // lines from there to the last one, elements to the end of the line

  __device__ Across(
      const input_t* matrix, index_t ld, int count, int depth, input_t* lines, bool in_chunks) {
    const int line = threadIdx.x / kThreadsOfLine;
    const int at = threadIdx.x % kThreadsOfLine * (in_chunks ? kChunk : 1);
#pragma unroll
    for (int i = 0; i < kLinesOwn; ++i) from[i] = matrix + (line + i * kAtOnce) * ld + at;
    step = kTileK * ld * index_t(sizeof(input_t));
    to = shared_address(lines + line * kLine + at);
    room = count - at;
    left = room > 0 && line < kTileK ? depth - line : 0;
    asm volatile("" : "+l"(step), "+r"(to), "+r"(room));  // not to be computed anew at each step
  }
  // Starts a step's, kCount elements at a time.
  template <int kCount>
  __device__ void copy(uint32_t place) {
    constexpr int kNext = kThreadsOfLine * kCount;  // elements from one of a line to the next one
#pragma unroll
    for (int i = 0; i < kLinesOwn; ++i) {
#pragma unroll
      for (int e = 0; e < kWidth; e += kNext) {
        const uint32_t at = to + place + (i * kAtOnce * kLine + e) * sizeof(input_t);
        if (kAtOnce <= kTileK || threadIdx.x < kThreadsOfLine * kTileK) {
          start_copy<kCount>(at, from[i] + e, i * kAtOnce < left && (e == 0 || e < room));
        }
      }
    }
  }
  __device__ void next_step() {
#pragma unroll
    for (auto& line : from) line = later(line, step);
    left -= kTileK;
  }
};

// Starts a step's copies, with zeros in place of what does not exist.
template <int kCount>
__device__ inline void start_copies(AlongK<kTileM>& a, Across<kTileN>& b, uint32_t place) {
  a.copy(place);
  b.copy<kCount>(place);
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Multiplies the rows of A that begin at `A`, and the columns of B that begin at `B`: those of a work tile.
// in_chunks: whether B can be copied 16 bytes at a time.
__device__ inline void multiply(
    WarpTile& tile, const input_t* A, index_t lda, int rows, const input_t* B, index_t ldb,
    int cols, int depth, bool in_chunks, input_t* lines, int warp, int lane) {
  AlongK<kTileM> a(A, lda, rows, depth, lines);
  Across<kTileN> b(B, ldb, cols, depth, lines + kTileM, in_chunks);
  uint32_t place = 0;  // where copies go: bytes behind the first line
  const auto copy = [&] {
    if (in_chunks) {
      start_copies<kChunk>(a, b, place);
    } else {
      start_copies<1>(a, b, place);
    }
  };
  const auto next = [&] {
    a.next_step();
    b.next_step();
    place += kStepBytes;
    if (place == kStages * kStepBytes) place = 0;
  };
  uint32_t ready = shared_address(lines) - kLinesAt;  // an mbarrier
  asm volatile("" : "+r"(ready));  // not to be computed anew at each step
  // Says that the warp's copies are there, except those of the newest 3 steps,
  // and that it has read the step before the one that it multiplies.
  const auto arrive = [&] {
    asm volatile("cp.async.wait_group 3;" ::: "memory");
    __syncwarp();  // all lanes' copies
    if (lane == 0) barrier_arrive(ready);
  };
  if (threadIdx.x == 0) barrier_init(ready, kThreads / 32);

#pragma unroll 1
  for (int s = 0; s < kStages - 1; ++s) {
    if (s > 0) next();
    copy();
  }
  tile.clear();
  tile.read_from(lines, warp, lane);
  asm volatile("cp.async.wait_group 4;" ::: "memory");
  __syncthreads();  // the first step's lines are there, for all threads, and so is the mbarrier
  arrive();
  tile.load(0);

  // Main loop, a step in a turn. What is not a multiplication stands together: elsewhere, each copy
  // would cost more instructions, and ptxas would find worse registers for the multiplications. The
  // branch in `copy`, which all threads take alike, keeps it there.
  // Copies go on behind the end of K, where they write zeros that nobody multiplies.
  // A warp arrives at the mbarrier a step before others wait for it there, so that it may be that
  // much behind them.
  int stage = 0;  // what is read
  int phase = 0;  // of the mbarrier
#pragma unroll 1
  for (; depth > 0; depth -= kTileK) {
#pragma unroll
    for (int k = 0; k < kTeamK; ++k) {
      if (k == 0) next();  // long before copies need it, and long after they read these registers
      if (k == kTeamK - 1) {
        const bool last = ++stage == kStages;
        tile.move(last ? kStep - kStages * kStep : kStep);
        if (last) stage = 0;
        // The next step's lines are there, and nobody reads those of the one before any more.
        barrier_wait(ready, phase);
        phase ^= 1;
      }
      tile.load((k + 1) % kTeamK);
      if (k == kTeamK - 1) {
        copy();  // in place of the step before
        arrive();
      }
      tile.multiply(k % 2);
    }
  }
  asm volatile("cp.async.wait_all;" ::: "memory");  // what nobody needs, and sums take the place of
}

// Work tiles in the order in which they are computed: kGroup below each other, then the next
// column: what runs at the same time shares operands in L2. Unsigned numbers are divided faster.
// The tiles of a product come behind all of the one before.
__device__ inline void tile_at(
    uint32_t t, uint32_t tiles_m, uint32_t tiles_n, int& product, int& row0, int& col0) {
  product = t / (tiles_m * tiles_n);
  t %= tiles_m * tiles_n;
  const uint32_t most = tiles_m < kGroup ? tiles_m : kGroup;  // kGroup * tiles_n may overflow
  const uint32_t group = most * tiles_n, first = t / group * most;
  const uint32_t height = tiles_m - first < most ? tiles_m - first : most;
  row0 = (first + t % group % height) * kTileM;
  col0 = t % group / height * kTileN;
}

// ------------------------------------------------------------------------ D
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
  const scalar_t up = scalar_t(aux.up[row * aux.ld_up + col]);
  const scalar_t rest = aux.rest[row * aux.ld_rest + col];
  return output_t(silu(x) * up + aux.slope * rest);
}

struct Output {  // what D is made from, besides accumulators, and where it goes
  int rows, cols;
  scalar_t alpha, beta;
  const output_t* C;  // as in BLAS, not read where beta is 0: it may hold NaN or be null
  output_t* D;
  index_t ldc, ldd;
  Aux aux;
};

// Places beyond D are taken for the last one inside: what is made there is not stored.
__device__ inline int clamped(int at, int count) {
  return at < count ? at : count - 1;
}

// Whether all rows of C or D start at a multiple of 16 bytes.
__device__ inline bool is_aligned(const output_t* matrix, index_t ld) {
  return reinterpret_cast<size_t>(matrix) % 16 == 0 && ld * sizeof(output_t) % 16 == 0;
}

// Sums on their way from registers, where a lane has neighbours of several rows, to memory, where
// neighbouring threads write neighbours of one: kChunk rows of each lane in a pass.
constexpr int kPasses = kLaneM / kChunk;
constexpr int kSpan = 8 * kChunk;  // rows of a warp in a pass
constexpr int kStagedRows = kWarpsM * kSpan;
constexpr int kStagedLine = kTileN + 4;  // with a gap against bank conflicts
constexpr int kStagedBytes = kTeams * kStagedRows * kStagedLine * sizeof(scalar_t);

template <int kCount>
struct alignas(kCount * sizeof(scalar_t)) Elements {
  scalar_t of[size_t(kCount)];
};

// Writes all threads' sums of a pass to `staged`.
__device__ inline void stage(const WarpTile& tile, scalar_t* staged, int pass, int warp, int lane) {
  staged += warp / kWarps * kStagedRows * kStagedLine;  // the team's
  warp %= kWarps;
  const int row = warp % kWarpsM * kSpan + lane / 4 * kChunk;
  const int col = warp / kWarpsM * kWarpN + lane % 4 * kChunk;
  __syncthreads();  // nobody reads what was there
  tile.write(pass, staged + row * kStagedLine + col, kStagedLine);
  __syncthreads();  // all sums are there
}

// kCount sums beside each other, from a row and a column of `staged` on.
template <int kCount>
__device__ inline Elements<kCount> staged_sums(const scalar_t* staged, int row, int col) {
  const scalar_t* from = staged + row * kStagedLine + (kCount == 1 ? col ^ 1 : col);
  auto sums = reinterpret_cast<const Elements<kCount>&>(*from);
#pragma unroll
  for (int team = 1; team < kTeams; ++team) {
    from += kStagedRows * kStagedLine;
    const auto others = reinterpret_cast<const Elements<kCount>&>(*from);
#pragma unroll
    for (int e = 0; e < kCount; ++e) sums.of[e] += others.of[e];
  }
  if constexpr (kCount > 1) {
#pragma unroll
    for (int e = 0; e < kCount; e += 2) {  // back to their places
      const scalar_t x = sums.of[e];
      sums.of[e] = sums.of[e + 1];
      sums.of[e + 1] = x;
    }
  }
  return sums;
}

// Makes D of staged sums, kCount elements at a time. A thread has its columns in all rows, so that addresses are a
// step apart; of several rows, sums are read at once.
template <int kCount>
__device__ inline void finish(
    const scalar_t* staged, int pass, const Output& out, int row0, int col0) {
  constexpr int kPerLine = kTileN / kCount, kBeside = kPerLine < kThreads ? kPerLine : kThreads;
  constexpr int kBelow = kThreads / kBeside, kTimes = (kSpan + kBelow - 1) / kBelow;
  constexpr int kAtOnce = kCount > 1 ? 1 : kTimes < 4 ? kTimes : 4;
  const int below = threadIdx.x / kBeside;
#pragma unroll 1
  for (int at = threadIdx.x % kBeside; at < kPerLine; at += kBeside) {
    const int col = col0 + at * kCount;
    if (col >= out.cols) return;
#pragma unroll 1
    for (int warp = 0; warp < kWarpsM; ++warp) {
      int row = row0 + warp * kWarpM + pass * kSpan + below;
      const output_t* c = out.C + row * out.ldc + col;
      output_t* to = out.D + row * out.ldd + col;
#pragma unroll kAtOnce
      for (int i = 0; i < kTimes; ++i) {
        const int line = below + i * kBelow;
        if (kSpan % kBelow > 0 && line >= kSpan) break;
        const auto sums = staged_sums<kCount>(staged, warp * kSpan + line, at * kCount);
        if (row < out.rows) {
          Elements<kCount> d{};
          if (out.beta != 0) d = reinterpret_cast<const Elements<kCount>&>(*c);
#pragma unroll
          for (int e = 0; e < kCount; ++e) {
            scalar_t x = out.alpha * sums.of[e];
            if (out.beta != 0) x += out.beta * d.of[e];
            d.of[e] = finish_element(x, row, col + e, out.aux);
          }
          reinterpret_cast<Elements<kCount>&>(*to) = d;
        }
        row += kBelow;
        c += kBelow * out.ldc;
        to += kBelow * out.ldd;
      }
    }
  }
}

// Writes a block's part of D, whose first element is at (row0, col0).
__device__ inline void store(
    const WarpTile& tile, const Output& out, int row0, int col0, scalar_t* staged, int warp,
    int lane) {
  const bool aligned = is_aligned(out.D, out.ldd) &&
                       (out.beta == 0 || is_aligned(out.C, out.ldc)) &&
                       (col0 + kTileN <= out.cols || out.cols % kChunk == 0);
#pragma unroll 1
  for (int pass = 0; pass < kPasses; ++pass) {
    stage(tile, staged, pass, warp, lane);
    if (aligned) {
      finish<kChunk>(staged, pass, out, row0, col0);
    } else {
      finish<1>(staged, pass, out, row0, col0);
    }
  }
}

// ------------------------------------------------------------------------ the kernel
constexpr int kSharedBytes = kLinesAt + kStages * kStepBytes;  // 76816
static_assert(kLinesAt + kStagedBytes <= kSharedBytes);  // sums take the lines' place

extern "C" __global__ void __launch_bounds__(kThreads)  // lets the compiler count on the block size
    heads_best7(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        index_t stride_a, const input_t* __restrict__ B, index_t ldb, index_t stride_b,
        scalar_t beta, const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd,
        index_t stride_d, const __half* up, index_t ld_up, scalar_t slope, const float* rest,
        index_t ld_rest) {
  extern __shared__ __align__(128) unsigned char shared[];  // an mbarrier, steps of kStep elements
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  const int rows = int(M), cols = int(N), depth = int(K);
  const int tiles_m = (rows + kTileM - 1) / kTileM, tiles_n = (cols + kTileN - 1) / kTileN;
  int product, row0, col0;
  tile_at(blockIdx.x, tiles_m, tiles_n, product, row0, col0);
  A += product * stride_a;
  B += product * stride_b;
  if (beta != 0) C += product * stride_c;
  D += product * stride_d;

  const auto lines = reinterpret_cast<input_t*>(shared + kLinesAt);
  WarpTile tile;
  const input_t* a = A + index_t(row0) * lda;
  const input_t* b = B + col0;
  const bool in_chunks = comes_in_chunks<kTileN>(b, ldb, cols - col0);
  multiply(tile, a, lda, rows - row0, b, ldb, cols - col0, depth, in_chunks, lines, warp, lane);
  const auto sums = reinterpret_cast<scalar_t*>(lines);

  const Aux aux{up, ld_up, slope, rest, ld_rest};
  const Output out{rows, cols, alpha, beta, C, D, ldc, ldd, aux};
  store(tile, out, row0, col0, sums, warp, lane);
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

// A launch, worked out from top to bottom.
struct Plan {
  index_t M, N, K, batch;

  index_t tiles = (M + kTileM - 1) / kTileM * ((N + kTileN - 1) / kTileN) * batch;  // of D
};

constexpr size_t kSide = 2147479552;  // M, N, K: 2^31 - 4096, so that where a tile ends is an int
constexpr size_t kMost = 2147483647;  // blocks
constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows

// Sets *bytes to the size of the workspace that the launcher needs on the current device, or to 0 where
// it returns the launcher's error 1 or 9.
// It needs none: operands are read where they are, and K is not split.
extern "C" cudaError_t  // cudaSuccess once *bytes is set
heads_best7_workspace(  // for a launch with these arguments
    index_t M, index_t N, index_t K, index_t batch, const input_t* A, index_t lda, index_t stride_a,
    const input_t* B, index_t ldb, index_t stride_b, size_t* bytes) {
  if (bytes == nullptr) return cudaErrorInvalidValue;
  *bytes = 0;
  if (size_t(M) > kSide || size_t(N) > kSide || size_t(K) > kSide) return cudaErrorInvalidValue;
  if (size_t(batch) > kMost) return cudaErrorInvalidValue;
  if (M == 0 || N == 0 || batch == 0) return cudaSuccess;  // D has no elements
  if (M > kLargest / N || batch > kLargest / (M * N)) return cudaErrorInvalidValue;
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return cudaErrorInvalidValue;
  if (K > 0 && (stride_a < 0 || stride_a > kLargest / batch)) return cudaErrorInvalidValue;
  if (K > 0 && (stride_b < 0 || stride_b > kLargest / batch)) return cudaErrorInvalidValue;
  const Plan plan{M, N, K, batch};
  if (size_t(plan.tiles) > kMost) return cudaErrorInvalidConfiguration;
  return cudaSuccess;
}

// Checks the arguments and queues the kernels on a stream. Any threads may call it at once, also
// while a CUDA graph is captured: it never prints, exits, waits or allocates.
// `workspace` is device memory at a multiple of 256 bytes, as much as ..._workspace says; it is
// free again when the stream has got past the launch.
// Where it returns one of these, D is as it was:
//     1  cudaErrorInvalidValue: a size below 0 or above 2^31 - 4096, a null matrix or one of more
//        than 2^44 elements, a leading dimension too short, a workspace too small or not aligned,
//        a negative stride, products of D that overlap, or too many: see 9
//     9  cudaErrorInvalidConfiguration: 2^31 blocks or more
//   209  cudaErrorNoKernelImageForDevice: a GPU older than nvcc's -arch. For newer ones the driver
//        compiles the file's PTX when it is first needed, unless nvcc was told to leave PTX out
//   400  cudaErrorInvalidResourceHandle: a stream of another device
extern "C" cudaError_t  // cudaSuccess once the kernels are on their way
heads_best7_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, index_t batch, scalar_t alpha, const input_t* A, index_t lda,
    index_t stride_a, const input_t* B, index_t ldb, index_t stride_b, scalar_t beta,
    const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd, index_t stride_d,
    const __half* up, index_t ld_up, scalar_t slope, const float* rest, index_t ld_rest,
    void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  size_t needed;  // bytes of the workspace
  auto ask = heads_best7_workspace;
  cudaError_t error = ask(M, N, K, batch, A, lda, stride_a, B, ldb, stride_b, &needed);
  if (error != cudaSuccess || M == 0 || N == 0 || batch == 0) return error;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return cudaErrorInvalidValue;
  if (beta != 0 && (stride_c < 0 || stride_c > kLargest / batch)) return cudaErrorInvalidValue;
  if (stride_d < 0 || stride_d > kLargest / batch) return cudaErrorInvalidValue;
  // Products of D do not overlap.
  const bool follow = stride_d >= (M - 1) * ldd + N;  // one behind the other
  const bool beside = stride_d >= N && (batch - 1) * stride_d + N <= ldd;  // in the same lines
  if (batch > 1 && !follow && !beside) return cudaErrorInvalidValue;
  if (up == nullptr || ld_up < N || ld_up > kLargest / M) return cudaErrorInvalidValue;
  if (rest == nullptr || ld_rest < N || ld_rest > kLargest / M) return cudaErrorInvalidValue;

  int device;
  error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const Plan plan{M, N, K, batch};
  (void)workspace, (void)workspace_bytes;  // nothing is packed, nothing is added up later

  const auto kernel = heads_best7;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;

  const dim3 grid(unsigned(plan.tiles));
  return launch(
      kernel, grid, kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, alpha, A, lda, stride_a, B, ldb, stride_b, beta, C, ldc, stride_c, D, ldd,
      stride_d, up, ld_up, slope, rest, ld_rest);
}

#endif  // __CUDACC_RTC__
}  // namespace heads_best7_ns

// ---------------------------------------------------------------------------- kernel 8

// heads_best8: D = silu(x) * up[row, col] + slope * rest[row, col], x = alpha * A * B + beta * C
//
// CUDA cores, with as much of D in registers as they hold: a lane computes 8 x 16 elements of it, so that most
// instructions multiply. A scheduler issues one instruction in a clock: what loads, copies and counts is in the way
// of what multiplies.
//
// A block computes a work tile of D. Shared memory has lines of one k each: a column of A's tile, and beside it
// a row of B's. A lane reads 4 elements of a line at a time; those of k + 1 while it multiplies those of k.
// Copies (cp.async) are up to 4 steps ahead of that, pass no registers, and transpose on their way: an operand
// whose lines run along K is copied element by element, which needs no alignment, either. Warps hand steps on at an
// mbarrier: each says that its copies are there a whole step before anybody waits for them.
// 8 teams of warps compute the same work tile, each with its share of every step along K ("sliced-K"): small
// tiles have as many elements a lane as large ones. In the end, their sums meet in shared memory.
//
//   A  M x K, row-major, float
//   B  K x N, row-major, float
//   C  M x N, row-major, float; not read when beta is 0
//   D  M x N, row-major, float; must not overlap A or B; may be C, where ldc is ldd
//   up  M x N, in D's order, __half
//   slope  a number of alpha's type
//   rest  M x N, in D's order, float
//
// A batch of such products: their matrices are stride_a, stride_b, stride_c and stride_d elements apart.
// Where a stride of A, B or C is 0, all products have the same matrix. Those of D do not overlap; where
// D is C, both have one stride.
//
// M, N, K from 0 to 2^31 - 4096, any leading dimension, in elements. Accumulators are float,
// alpha and beta are float. Needs a GPU of compute capability 8.6 or newer and C++17.

#include <cuda_fp16.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 860
#error "for -arch=sm_86 or newer: older GPUs lack the kernel's instructions"
#endif

namespace heads_best8_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = float;
using output_t = float;
using scalar_t = float;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;
constexpr int kTileM = 64, kTileN = 64, kTileK = 32;  // of a block: work tile, step along K
constexpr int kThreads = 256;  // 8 warps

constexpr int kWarpM = 64, kWarpN = 64;  // what each warp computes of the work tile
constexpr int kLaneM = kWarpM / 8, kLaneN = kWarpN / 4;  // and each lane: 8 x 16 elements
constexpr int kStages = 5;  // steps along K that are in shared memory or on their way
constexpr int kGroup = 12;  // work tiles along M that are computed close in time: see tile_at
constexpr int kWarpsM = kTileM / kWarpM;  // 64 / 64 = 1
constexpr int kTeams = 8;  // of warps, which share out K
constexpr int kWarps = kThreads / 32 / kTeams;  // of a team: 1
constexpr int kTeamK = kTileK / kTeams;  // of a step, what each multiplies: 32 / 8 = 4
constexpr int kChunk = 4;  // elements in 16 bytes
// Elements of a line in shared memory, with a gap against bank conflicts.
constexpr int kLine = kTileM + kTileN + 4;  // 132
constexpr int kStep = kTileK * kLine;  // 4224 elements: lines of a step
constexpr int kStepBytes = kStep * sizeof(input_t);  // of a stage in shared memory
constexpr int kLinesAt = 16;  // where the first one begins there, in bytes: behind an mbarrier

// ------------------------------------------------------------------------ PTX
__device__ inline uint32_t shared_address(const void* pointer) {  // as PTX instructions take it
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
__device__ inline void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ inline void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Until the phase with this parity is over: phases count 0, 1, 0, 1, ...
__device__ inline void barrier_wait(uint32_t barrier, int parity) {
  asm volatile(
      "{\n.reg .pred over;\nagain: mbarrier.test_wait.parity.shared.b64 over, [%0], %1;\n"
      "@!over bra again;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// Starts to copy kCount elements, which lie at a multiple of their size; zeros take the place of some that do
// not exist.
template <int kCount>
__device__ inline void start_copy(uint32_t shared, const input_t* global, bool exist) {
  if constexpr (kCount == kChunk) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
                 "r"(exist ? 16 : 0)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(global),
                 "r"(exist ? 4 : 0)
                 : "memory");
  }
}

// ------------------------------------------------------------------------ what a warp computes
using chunk_t = float4;  // kChunk elements, read and written at once

// A warp's part of the work tile, with fragments of two k: one is loaded while the other is multiplied.
// Lane 4g + t (g = 0..7, t = 0..3) has rows 4g to 4g + 3 of each 32, and columns 4t to 4t + 3 of each 16: lanes
// that do not read the same chunks of a line read neighbouring ones, from different banks.
struct WarpTile {
  scalar_t acc[kLaneM][kLaneN];
  alignas(16) input_t a[2][kLaneM], b[2][kLaneN];
  const input_t *a_at, *b_at;  // what the lane reads of a line first

  __device__ void clear() {
#pragma unroll
    for (auto& row : acc) {
#pragma unroll
      for (auto& x : row) x = 0;
    }
  }
  // Lets loads begin with the first of these lines.
  __device__ void read_from(const input_t* lines, int warp, int lane) {
    lines += warp / kWarps * kTeamK * kLine;  // the team's
    warp %= kWarps;
    a_at = lines + warp % kWarpsM * kWarpM + lane / 4 * kChunk;
    b_at = lines + kTileM + warp / kWarpsM * kWarpN + lane % 4 * kChunk;
  }
  // Lets loads begin so many elements further on.
  __device__ void move(int elements) {
    a_at += elements;
    b_at += elements;
  }
  __device__ void load(int k) {
#pragma unroll
    for (int j = 0; j < kLaneN; j += kChunk) {
      const auto& from = b_at[k * kLine + 4 * j];
      reinterpret_cast<chunk_t&>(b[k % 2][j]) = reinterpret_cast<const chunk_t&>(from);
    }
#pragma unroll
    for (int i = 0; i < kLaneM; i += kChunk) {
      const auto& from = a_at[k * kLine + 8 * i];
      reinterpret_cast<chunk_t&>(a[k % 2][i]) = reinterpret_cast<const chunk_t&>(from);
    }
  }
  // The register file has two banks, even and odd, and gives one register of each in a clock:
  // besides a[i], which stays for a row, a multiplication reads b[j] and acc[i][j]. Where b[j] is
  // even, acc[i][j] is odd, because `write` takes sums in pairs that are swapped: ptxas keeps them
  // in such registers from the beginning.
  __device__ void multiply(int k) {
#pragma unroll
    for (int i = 0; i < kLaneM; ++i) {
#pragma unroll
      for (int n = 0; n < kLaneN; ++n) {
        const int j = i % 2 ? kLaneN - 1 - n : n;  // there and back: one operand stays
        acc[i][j] += a[k % 2][i] * b[k % 2][j];
      }
    }
  }
  // Writes the sums of kChunk rows, those of a pass, with each pair of neighbours swapped.
  __device__ void write(int pass, scalar_t* to, int line) const {
#pragma unroll
    for (int i = 0; i < kLaneM; i += kChunk) {
      if (i / kChunk != pass) continue;  // registers have no variable index
#pragma unroll
      for (int r = 0; r < kChunk; ++r) {
#pragma unroll
        for (int j = 0; j < kLaneN; j += kChunk) {
          const auto& x = acc[i + r];
          reinterpret_cast<chunk_t&>(to[r * line + 4 * j]) = {x[j + 1], x[j], x[j + 3], x[j + 2]};
        }
      }
    }
  }
};

// ------------------------------------------------------------------------ operands
// A pointer so many bytes further on.
__device__ inline const input_t* later(const input_t* from, index_t bytes) {
  return reinterpret_cast<const input_t*>(reinterpret_cast<const char*>(from) + bytes);
}

// A thread's copies of an operand whose lines run along K: it transposes them. Eight threads copy
// neighbours along K: whole sectors of memory. Pointers stay as they are, and one sum for a warp grows: a register that
// a copy has still to read cannot be written.
template <int kWidth>
struct AlongK {
  static constexpr int kLanes = 8, kAtOnce = kThreads / kLanes;  // threads for a line; lines
  static constexpr int kLinesOwn = kWidth / kAtOnce;

  const input_t* from[size_t(kLinesOwn)];  // of the first step
  index_t gone = 0;  // bytes from there to the present step
  uint32_t to;
  int left;  // elements from there to the end along K

  // Of the `count` lines that `matrix` begins with. The last one takes the place of those that do
  // not exist: nothing of D comes of them.
  __device__ AlongK(const input_t* matrix, index_t ld, int count, int depth, input_t* lines) {
    const int line = threadIdx.x / kLanes, k = threadIdx.x % kLanes;
#pragma unroll
    for (int i = 0; i < kLinesOwn; ++i) {
      const int at = line + i * kAtOnce;
      from[i] = matrix + (at < count ? at : count - 1) * ld + k;
      asm volatile("" : "+l"(from[i]));  // a register that stays as it is
    }
    to = shared_address(lines + k * kLine + line);
    asm volatile("" : "+r"(to));  // not to be computed anew at each step
    left = depth - k;
  }
  // Starts a step's, to so many bytes further on.
  __device__ void copy(uint32_t place) {
#pragma unroll
    for (int k = 0; k < kTileK; k += kLanes) {
#pragma unroll
      for (int i = 0; i < kLinesOwn; ++i) {
        const uint32_t at = to + place + (k * kLine + i * kAtOnce) * sizeof(input_t);
        start_copy<1>(at, later(from[i], gone) + k, k < left);
      }
    }
  }
  __device__ void next_step() {
    gone += kTileK * sizeof(input_t);
    asm volatile("" : "+l"(gone));
    left -= kTileK;
  }
};

// Whether all chunks lie at a multiple of 16 bytes, and no line ends in one.
template <int kWidth>
__device__ inline bool comes_in_chunks(const input_t* matrix, index_t ld, int count) {
  const bool aligned = reinterpret_cast<size_t>(matrix) % 16 == 0 && ld % kChunk == 0;
  return aligned && (count >= kWidth || count % kChunk == 0);
}

// A thread's copies of an operand whose lines are those of shared memory, in chunks or element by
// element: the same lines, and as many elements of each.
template <int kWidth>
struct Across {
  static constexpr int kOfLine = kWidth / kChunk;  // chunks
  static constexpr int kThreadsOfLine = kOfLine < kThreads ? kOfLine : kThreads;
  static constexpr int kAtOnce = kThreads / kThreadsOfLine;  // lines
  static constexpr int kLinesOwn = (kTileK + kAtOnce - 1) / kAtOnce;

  const input_t* from[size_t(kLinesOwn)];  // of the present step
  index_t step;  // bytes from there to the next one
  uint32_t to;
  int left, room;  // lines from there to the last one, elements to the end of the line

  __device__ Across(
      const input_t* matrix, index_t ld, int count, int depth, input_t* lines, bool in_chunks) {
    const int line = threadIdx.x / kThreadsOfLine;
    const int at = threadIdx.x % kThreadsOfLine * (in_chunks ? kChunk : 1);
#pragma unroll
    for (int i = 0; i < kLinesOwn; ++i) from[i] = matrix + (line + i * kAtOnce) * ld + at;
    step = kTileK * ld * index_t(sizeof(input_t));
    to = shared_address(lines + line * kLine + at);
    room = count - at;
    left = room > 0 && line < kTileK ? depth - line : 0;
    asm volatile("" : "+l"(step), "+r"(to), "+r"(room));  // not to be computed anew at each step
  }
  // Starts a step's, kCount elements at a time.
  template <int kCount>
  __device__ void copy(uint32_t place) {
    constexpr int kNext = kThreadsOfLine * kCount;  // elements from one of a line to the next one
#pragma unroll
    for (int i = 0; i < kLinesOwn; ++i) {
#pragma unroll
      for (int e = 0; e < kWidth; e += kNext) {
        const uint32_t at = to + place + (i * kAtOnce * kLine + e) * sizeof(input_t);
        if (kAtOnce <= kTileK || threadIdx.x < kThreadsOfLine * kTileK) {
          start_copy<kCount>(at, from[i] + e, i * kAtOnce < left && (e == 0 || e < room));
        }
      }
    }
  }
  __device__ void next_step() {
#pragma unroll
    for (auto& line : from) line = later(line, step);
    left -= kTileK;
  }
};

// Starts a step's copies, with zeros in place of what does not exist.
template <int kCount>
__device__ inline void start_copies(AlongK<kTileM>& a, Across<kTileN>& b, uint32_t place) {
  a.copy(place);
  b.copy<kCount>(place);
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Multiplies the rows of A that begin at `A`, and the columns of B that begin at `B`: those of a work tile.
// in_chunks: whether B can be copied 16 bytes at a time.
__device__ inline void multiply(
    WarpTile& tile, const input_t* A, index_t lda, int rows, const input_t* B, index_t ldb,
    int cols, int depth, bool in_chunks, input_t* lines, int warp, int lane) {
  AlongK<kTileM> a(A, lda, rows, depth, lines);
  Across<kTileN> b(B, ldb, cols, depth, lines + kTileM, in_chunks);
  uint32_t place = 0;  // where copies go: bytes behind the first line
  const auto copy = [&] {
    if (in_chunks) {
      start_copies<kChunk>(a, b, place);
    } else {
      start_copies<1>(a, b, place);
    }
  };
  const auto next = [&] {
    a.next_step();
    b.next_step();
    place += kStepBytes;
    if (place == kStages * kStepBytes) place = 0;
  };
  uint32_t ready = shared_address(lines) - kLinesAt;  // an mbarrier
  asm volatile("" : "+r"(ready));  // not to be computed anew at each step
  // Says that the warp's copies are there, except those of the newest 2 steps,
  // and that it has read the step before the one that it multiplies.
  const auto arrive = [&] {
    asm volatile("cp.async.wait_group 2;" ::: "memory");
    __syncwarp();  // all lanes' copies
    if (lane == 0) barrier_arrive(ready);
  };
  if (threadIdx.x == 0) barrier_init(ready, kThreads / 32);

#pragma unroll 1
  for (int s = 0; s < kStages - 1; ++s) {
    if (s > 0) next();
    copy();
  }
  tile.clear();
  tile.read_from(lines, warp, lane);
  asm volatile("cp.async.wait_group 3;" ::: "memory");
  __syncthreads();  // the first step's lines are there, for all threads, and so is the mbarrier
  arrive();
  tile.load(0);

  // Main loop, a step in a turn. What is not a multiplication stands together: elsewhere, each copy
  // would cost more instructions, and ptxas would find worse registers for the multiplications. The
  // branch in `copy`, which all threads take alike, keeps it there.
  // Copies go on behind the end of K, where they write zeros that nobody multiplies.
  // A warp arrives at the mbarrier a step before others wait for it there, so that it may be that
  // much behind them.
  int stage = 0;  // what is read
  int phase = 0;  // of the mbarrier
#pragma unroll 1
  for (; depth > 0; depth -= kTileK) {
#pragma unroll
    for (int k = 0; k < kTeamK; ++k) {
      if (k == 0) next();  // long before copies need it, and long after they read these registers
      if (k == kTeamK - 1) {
        const bool last = ++stage == kStages;
        tile.move(last ? kStep - kStages * kStep : kStep);
        if (last) stage = 0;
        // The next step's lines are there, and nobody reads those of the one before any more.
        barrier_wait(ready, phase);
        phase ^= 1;
      }
      tile.load((k + 1) % kTeamK);
      if (k == kTeamK - 1) {
        copy();  // in place of the step before
        arrive();
      }
      tile.multiply(k % 2);
    }
  }
  asm volatile("cp.async.wait_all;" ::: "memory");  // what nobody needs, and sums take the place of
}

// Work tiles in the order in which they are computed: kGroup below each other, then the next
// column: what runs at the same time shares operands in L2. Unsigned numbers are divided faster.
// The tiles of a product come behind all of the one before.
__device__ inline void tile_at(
    uint32_t t, uint32_t tiles_m, uint32_t tiles_n, int& product, int& row0, int& col0) {
  product = t / (tiles_m * tiles_n);
  t %= tiles_m * tiles_n;
  const uint32_t most = tiles_m < kGroup ? tiles_m : kGroup;  // kGroup * tiles_n may overflow
  const uint32_t group = most * tiles_n, first = t / group * most;
  const uint32_t height = tiles_m - first < most ? tiles_m - first : most;
  row0 = (first + t % group % height) * kTileM;
  col0 = t % group / height * kTileN;
}

// ------------------------------------------------------------------------ D
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
  const scalar_t up = scalar_t(aux.up[row * aux.ld_up + col]);
  const scalar_t rest = aux.rest[row * aux.ld_rest + col];
  return output_t(silu(x) * up + aux.slope * rest);
}

struct Output {  // what D is made from, besides accumulators, and where it goes
  int rows, cols;
  scalar_t alpha, beta;
  const output_t* C;  // as in BLAS, not read where beta is 0: it may hold NaN or be null
  output_t* D;
  index_t ldc, ldd;
  Aux aux;
};

// Places beyond D are taken for the last one inside: what is made there is not stored.
__device__ inline int clamped(int at, int count) {
  return at < count ? at : count - 1;
}

// Whether all rows of C or D start at a multiple of 16 bytes.
__device__ inline bool is_aligned(const output_t* matrix, index_t ld) {
  return reinterpret_cast<size_t>(matrix) % 16 == 0 && ld * sizeof(output_t) % 16 == 0;
}

// Sums on their way from registers, where a lane has neighbours of several rows, to memory, where
// neighbouring threads write neighbours of one: kChunk rows of each lane in a pass.
constexpr int kPasses = kLaneM / kChunk;
constexpr int kSpan = 8 * kChunk;  // rows of a warp in a pass
constexpr int kStagedRows = kWarpsM * kSpan;
constexpr int kStagedLine = kTileN + 4;  // with a gap against bank conflicts
constexpr int kStagedBytes = kTeams * kStagedRows * kStagedLine * sizeof(scalar_t);

template <int kCount>
struct alignas(kCount * sizeof(scalar_t)) Elements {
  scalar_t of[size_t(kCount)];
};

// Writes all threads' sums of a pass to `staged`.
__device__ inline void stage(const WarpTile& tile, scalar_t* staged, int pass, int warp, int lane) {
  staged += warp / kWarps * kStagedRows * kStagedLine;  // the team's
  warp %= kWarps;
  const int row = warp % kWarpsM * kSpan + lane / 4 * kChunk;
  const int col = warp / kWarpsM * kWarpN + lane % 4 * kChunk;
  __syncthreads();  // nobody reads what was there
  tile.write(pass, staged + row * kStagedLine + col, kStagedLine);
  __syncthreads();  // all sums are there
}

// kCount sums beside each other, from a row and a column of `staged` on.
template <int kCount>
__device__ inline Elements<kCount> staged_sums(const scalar_t* staged, int row, int col) {
  const scalar_t* from = staged + row * kStagedLine + (kCount == 1 ? col ^ 1 : col);
  auto sums = reinterpret_cast<const Elements<kCount>&>(*from);
#pragma unroll
  for (int team = 1; team < kTeams; ++team) {
    from += kStagedRows * kStagedLine;
    const auto others = reinterpret_cast<const Elements<kCount>&>(*from);
#pragma unroll
    for (int e = 0; e < kCount; ++e) sums.of[e] += others.of[e];
  }
  if constexpr (kCount > 1) {
#pragma unroll
    for (int e = 0; e < kCount; e += 2) {  // back to their places
      const scalar_t x = sums.of[e];
      sums.of[e] = sums.of[e + 1];
      sums.of[e + 1] = x;
    }
  }
  return sums;
}

// Makes D of staged sums, kCount elements at a time. A thread has its columns in all rows, so that addresses are a
// step apart; of several rows, sums are read at once.
template <int kCount>
__device__ inline void finish(
    const scalar_t* staged, int pass, const Output& out, int row0, int col0) {
  constexpr int kPerLine = kTileN / kCount, kBeside = kPerLine < kThreads ? kPerLine : kThreads;
  constexpr int kBelow = kThreads / kBeside, kTimes = (kSpan + kBelow - 1) / kBelow;
  constexpr int kAtOnce = kCount > 1 ? 1 : kTimes < 4 ? kTimes : 4;
  const int below = threadIdx.x / kBeside;
#pragma unroll 1
  for (int at = threadIdx.x % kBeside; at < kPerLine; at += kBeside) {
    const int col = col0 + at * kCount;
    if (col >= out.cols) return;
#pragma unroll 1
    for (int warp = 0; warp < kWarpsM; ++warp) {
      int row = row0 + warp * kWarpM + pass * kSpan + below;
      const output_t* c = out.C + row * out.ldc + col;
      output_t* to = out.D + row * out.ldd + col;
#pragma unroll kAtOnce
      for (int i = 0; i < kTimes; ++i) {
        const int line = below + i * kBelow;
        if (kSpan % kBelow > 0 && line >= kSpan) break;
        const auto sums = staged_sums<kCount>(staged, warp * kSpan + line, at * kCount);
        if (row < out.rows) {
          Elements<kCount> d{};
          if (out.beta != 0) d = reinterpret_cast<const Elements<kCount>&>(*c);
#pragma unroll
          for (int e = 0; e < kCount; ++e) {
            scalar_t x = out.alpha * sums.of[e];
            if (out.beta != 0) x += out.beta * d.of[e];
            d.of[e] = finish_element(x, row, col + e, out.aux);
          }
          reinterpret_cast<Elements<kCount>&>(*to) = d;
        }
        row += kBelow;
        c += kBelow * out.ldc;
        to += kBelow * out.ldd;
      }
    }
  }
}

// Writes a block's part of D, whose first element is at (row0, col0).
__device__ inline void store(
    const WarpTile& tile, const Output& out, int row0, int col0, scalar_t* staged, int warp,
    int lane) {
  const bool aligned = is_aligned(out.D, out.ldd) &&
                       (out.beta == 0 || is_aligned(out.C, out.ldc)) &&
                       (col0 + kTileN <= out.cols || out.cols % kChunk == 0);
#pragma unroll 1
  for (int pass = 0; pass < kPasses; ++pass) {
    stage(tile, staged, pass, warp, lane);
    if (aligned) {
      finish<kChunk>(staged, pass, out, row0, col0);
    } else {
      finish<1>(staged, pass, out, row0, col0);
    }
  }
}

// ------------------------------------------------------------------------ the kernel
constexpr int kSharedBytes = kLinesAt + kStages * kStepBytes;  // 84496
static_assert(kLinesAt + kStagedBytes <= kSharedBytes);  // sums take the lines' place

extern "C" __global__ void __launch_bounds__(kThreads)  // lets the compiler count on the block size
    heads_best8(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        index_t stride_a, const input_t* __restrict__ B, index_t ldb, index_t stride_b,
        scalar_t beta, const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd,
        index_t stride_d, const __half* up, index_t ld_up, scalar_t slope, const float* rest,
        index_t ld_rest) {
  extern __shared__ __align__(128) unsigned char shared[];  // an mbarrier, steps of kStep elements
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  const int rows = int(M), cols = int(N), depth = int(K);
  const int tiles_m = (rows + kTileM - 1) / kTileM, tiles_n = (cols + kTileN - 1) / kTileN;
  int product, row0, col0;
  tile_at(blockIdx.x, tiles_m, tiles_n, product, row0, col0);
  A += product * stride_a;
  B += product * stride_b;
  if (beta != 0) C += product * stride_c;
  D += product * stride_d;

  const auto lines = reinterpret_cast<input_t*>(shared + kLinesAt);
  WarpTile tile;
  const input_t* a = A + index_t(row0) * lda;
  const input_t* b = B + col0;
  const bool in_chunks = comes_in_chunks<kTileN>(b, ldb, cols - col0);
  multiply(tile, a, lda, rows - row0, b, ldb, cols - col0, depth, in_chunks, lines, warp, lane);
  const auto sums = reinterpret_cast<scalar_t*>(lines);

  const Aux aux{up, ld_up, slope, rest, ld_rest};
  const Output out{rows, cols, alpha, beta, C, D, ldc, ldd, aux};
  store(tile, out, row0, col0, sums, warp, lane);
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

// A launch, worked out from top to bottom.
struct Plan {
  index_t M, N, K, batch;

  index_t tiles = (M + kTileM - 1) / kTileM * ((N + kTileN - 1) / kTileN) * batch;  // of D
};

constexpr size_t kSide = 2147479552;  // M, N, K: 2^31 - 4096, so that where a tile ends is an int
constexpr size_t kMost = 2147483647;  // blocks
constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows

// Sets *bytes to the size of the workspace that the launcher needs on the current device, or to 0 where
// it returns the launcher's error 1 or 9.
// It needs none: operands are read where they are, and K is not split.
extern "C" cudaError_t  // cudaSuccess once *bytes is set
heads_best8_workspace(  // for a launch with these arguments
    index_t M, index_t N, index_t K, index_t batch, const input_t* A, index_t lda, index_t stride_a,
    const input_t* B, index_t ldb, index_t stride_b, size_t* bytes) {
  if (bytes == nullptr) return cudaErrorInvalidValue;
  *bytes = 0;
  if (size_t(M) > kSide || size_t(N) > kSide || size_t(K) > kSide) return cudaErrorInvalidValue;
  if (size_t(batch) > kMost) return cudaErrorInvalidValue;
  if (M == 0 || N == 0 || batch == 0) return cudaSuccess;  // D has no elements
  if (M > kLargest / N || batch > kLargest / (M * N)) return cudaErrorInvalidValue;
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return cudaErrorInvalidValue;
  if (K > 0 && (stride_a < 0 || stride_a > kLargest / batch)) return cudaErrorInvalidValue;
  if (K > 0 && (stride_b < 0 || stride_b > kLargest / batch)) return cudaErrorInvalidValue;
  const Plan plan{M, N, K, batch};
  if (size_t(plan.tiles) > kMost) return cudaErrorInvalidConfiguration;
  return cudaSuccess;
}

// Checks the arguments and queues the kernels on a stream. Any threads may call it at once, also
// while a CUDA graph is captured: it never prints, exits, waits or allocates.
// `workspace` is device memory at a multiple of 256 bytes, as much as ..._workspace says; it is
// free again when the stream has got past the launch.
// Where it returns one of these, D is as it was:
//     1  cudaErrorInvalidValue: a size below 0 or above 2^31 - 4096, a null matrix or one of more
//        than 2^44 elements, a leading dimension too short, a workspace too small or not aligned,
//        a negative stride, products of D that overlap, or too many: see 9
//     9  cudaErrorInvalidConfiguration: 2^31 blocks or more
//   209  cudaErrorNoKernelImageForDevice: a GPU older than nvcc's -arch. For newer ones the driver
//        compiles the file's PTX when it is first needed, unless nvcc was told to leave PTX out
//   400  cudaErrorInvalidResourceHandle: a stream of another device
extern "C" cudaError_t  // cudaSuccess once the kernels are on their way
heads_best8_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, index_t batch, scalar_t alpha, const input_t* A, index_t lda,
    index_t stride_a, const input_t* B, index_t ldb, index_t stride_b, scalar_t beta,
    const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd, index_t stride_d,
    const __half* up, index_t ld_up, scalar_t slope, const float* rest, index_t ld_rest,
    void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  size_t needed;  // bytes of the workspace
  auto ask = heads_best8_workspace;
  cudaError_t error = ask(M, N, K, batch, A, lda, stride_a, B, ldb, stride_b, &needed);
  if (error != cudaSuccess || M == 0 || N == 0 || batch == 0) return error;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return cudaErrorInvalidValue;
  if (beta != 0 && (stride_c < 0 || stride_c > kLargest / batch)) return cudaErrorInvalidValue;
  if (stride_d < 0 || stride_d > kLargest / batch) return cudaErrorInvalidValue;
  // Products of D do not overlap.
  const bool follow = stride_d >= (M - 1) * ldd + N;  // one behind the other
  const bool beside = stride_d >= N && (batch - 1) * stride_d + N <= ldd;  // in the same lines
  if (batch > 1 && !follow && !beside) return cudaErrorInvalidValue;
  if (up == nullptr || ld_up < N || ld_up > kLargest / M) return cudaErrorInvalidValue;
  if (rest == nullptr || ld_rest < N || ld_rest > kLargest / M) return cudaErrorInvalidValue;

  int device;
  error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const Plan plan{M, N, K, batch};
  (void)workspace, (void)workspace_bytes;  // nothing is packed, nothing is added up later

  const auto kernel = heads_best8;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;

  const dim3 grid(unsigned(plan.tiles));
  return launch(
      kernel, grid, kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, alpha, A, lda, stride_a, B, ldb, stride_b, beta, C, ldc, stride_c, D, ldd,
      stride_d, up, ld_up, slope, rest, ld_rest);
}

#endif  // __CUDACC_RTC__
}  // namespace heads_best8_ns

// ---------------------------------------------------------------------------- the choice

#ifndef __CUDACC_RTC__  // the host's side, for programs built by nvcc

namespace heads_ns {

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
    {86, 72},  // A10 24 GB
};

constexpr Candidate kCandidates[] = {
    {0, 0, {1, 32, 1, 1, 1, 1, 1431, 6508, 0, 74, 2363, 7, 236, 1234708, 37809, 32, 0, 289500, 2, 1, 1, 0, 0, 0, 1, 0, 2702400, 1, 0, 0, 4, 4, 0, 16, 16, 1, 0, 0, 16, 26, 2, 0, 11, 13, 1707, 6291456}},
    {0, 1, {1, 32, 1, 1, 1, 1, 1049, 1235, 0, 74, 2363, 32, 1016, 3018831, 37809, 32, 0, 265000, 1, 1, 1, 0, 0, 0, 1, 0, 2702400, 1, 0, 0, 4, 4, 0, 16, 16, 1, 0, 0, 16, 26, 0, 0, 11, 13, 1707, 6291456}},
    {0, 2, {64, 128, 32, 1, 1, 1, 1482266, 1527164, 1831, 151237, 302474, 90742, 181484, 1564357, 177703, 15, 0, 1206800, 1, 1, 1, 0, 0, 0, 0, 0, 3314400, 12, 0, 0, 4, 4, 0, 16, 16, 1, 0, 0, 16, 26, 8, 0, 11, 13, 1707, 6291456}},
    {0, 3, {4, 32, 1, 1, 1, 1, 1861, 6938, 0, 295, 2363, 30, 236, 1234708, 37809, 32, 0, 672000, 2, 1, 1, 0, 0, 0, 1, 0, 2709600, 1, 0, 0, 4, 4, 0, 16, 16, 1, 0, 0, 16, 26, 2, 0, 11, 13, 1707, 6291456}},
    {0, 4, {8, 32, 1, 1, 1, 1, 2435, 7512, 0, 591, 2363, 59, 236, 1234708, 37809, 32, 0, 1182000, 2, 1, 1, 0, 0, 0, 1, 0, 2719200, 1, 0, 0, 4, 4, 0, 16, 16, 1, 0, 0, 16, 26, 2, 0, 11, 13, 1707, 6291456}},
    {0, 5, {32, 32, 32, 1, 1, 1, 343096, 387995, 1831, 75618, 75618, 45371, 45371, 1564357, 177703, 15, 0, 719600, 1, 1, 1, 0, 0, 0, 0, 0, 2776800, 12, 0, 0, 4, 4, 0, 16, 16, 1, 0, 0, 16, 26, 8, 0, 11, 13, 1707, 6291456}},
    {0, 6, {64, 32, 32, 1, 1, 1, 519075, 563974, 1831, 151237, 75618, 90742, 45371, 1564357, 177703, 15, 0, 789200, 1, 1, 1, 0, 0, 0, 0, 0, 2853600, 12, 0, 0, 4, 4, 0, 16, 16, 1, 0, 0, 16, 26, 8, 0, 11, 13, 1707, 6291456}},
    {0, 7, {64, 64, 32, 1, 1, 1, 821549, 866448, 1831, 151237, 151237, 90742, 90742, 1564357, 177703, 15, 0, 928400, 1, 1, 1, 0, 0, 0, 0, 0, 3007200, 12, 0, 0, 4, 4, 0, 16, 16, 1, 0, 0, 16, 26, 8, 0, 11, 13, 1707, 6291456}},
};

struct Limits {
  bool swapped;  // whether it computes the transpose of D
  int last;  // compute capability that runs it; 0: all newer ones do
  int shared;  // bytes of shared memory
};

constexpr Limits kLimits[] = {
    {false, 0, 1024},
    {false, 0, 2048},
    {false, 0, 100368},
    {false, 0, 4096},
    {false, 0, 8192},
    {false, 0, 52240},
    {false, 0, 76816},
    {false, 0, 84496},
};

// Picoseconds that a kernel takes, as predicted. M, N, A and B are those of the row-major product.
inline index_t predict(
    const Candidate& one, index_t M, index_t N, index_t K, index_t batch, index_t A, index_t lda,
    index_t B, index_t ldb, index_t multiprocessors) {
  const auto [tile_m, tile_n, tile_k, cluster_m, cluster_n, cluster_k, math, lone, wait, copy_a,
              copy_b, small_a, small_b, last, store, rough, hides, start, resident, held, split,
              stream, lines, flows, few, sagging, sharing, group, packs_a, packs_b, size, out,
              turned, spread_a, spread_b, run_a, run_b, asked, scatter, torn, strewn_a, strewn_b,
              packed, added, kib, cache] = one.weights;
  const index_t m = M < 1 ? 1 : M < 262144 ? M : 262144;
  const index_t n = N < 1 ? 1 : N < 262144 ? N : 262144;
  const index_t k = K < 1 ? 1 : K < 262144 ? K : 262144;
  const index_t largest = 1 + 18014398509481984 / ((m + 256) * (n + 256) * (k + 256));  // of products, that count
  const index_t count = batch < 1 ? 1 : batch < largest ? batch : largest;  // products
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
    int capability, int multiprocessors, int shared, index_t M, index_t N, index_t K, index_t batch,
    size_t A, index_t lda, size_t B, index_t ldb) {
  const int gpu = gpu_for(capability, multiprocessors);
  const index_t a = index_t(A % 256), b = index_t(B % 256);  // what is asked of addresses
  lda %= 256, ldb %= 256;  // and of the distance of lines: which multiples of bytes they are
  int found = -1;
  index_t least = 0;
  for (const Candidate& one : kCandidates) {
    const Limits& limits = kLimits[one.kernel];
    const bool runs = limits.last == 0 || capability <= limits.last;
    if (one.gpu != gpu || !runs || limits.shared > shared) continue;
    const index_t time = limits.swapped
                             ? predict(one, N, M, K, batch, b, ldb, a, lda, multiprocessors)
                             : predict(one, M, N, K, batch, a, lda, b, ldb, multiprocessors);
    if (found < 0 || time < least) {
      found = one.kernel;
      least = time;
    }
  }
  return found;
}

// ---------------------------------------------------------------------------- the launcher

// For a kernel that needs no workspace.
template <auto kLaunch>
cudaError_t launch_without_workspace(
    long long M, long long N, long long K, long long batch, float alpha, const float* A,
    long long lda, long long stride_a, const float* B, long long ldb, long long stride_b,
    float beta, const float* C, long long ldc, long long stride_c, float* D, long long ldd,
    long long stride_d, const __half* up, long long ld_up, float slope, const float* rest,
    long long ld_rest, void*, size_t, cudaStream_t stream) {
  return kLaunch(
      M, N, K, batch, alpha, A, lda, stride_a, B, ldb, stride_b, beta, C, ldc, stride_c, D, ldd,
      stride_d, up, ld_up, slope, rest, ld_rest, stream);
}

struct Kernel {
  // Null where it needs none.
  cudaError_t (*workspace)(
      long long M, long long N, long long K, long long batch, const float* A, long long lda,
      long long stride_a, const float* B, long long ldb, long long stride_b, size_t* bytes);
  cudaError_t (*launch)(
      long long M, long long N, long long K, long long batch, float alpha, const float* A,
      long long lda, long long stride_a, const float* B, long long ldb, long long stride_b,
      float beta, const float* C, long long ldc, long long stride_c, float* D, long long ldd,
      long long stride_d, const __half* up, long long ld_up, float slope, const float* rest,
      long long ld_rest, void* workspace, size_t workspace_bytes, cudaStream_t stream);
};

// clang-format off
constexpr Kernel kKernels[] = {
    {nullptr, launch_without_workspace<heads_best1_ns::heads_best1_launch>},
    {nullptr, launch_without_workspace<heads_best2_ns::heads_best2_launch>},
    {heads_best3_ns::heads_best3_workspace, heads_best3_ns::heads_best3_launch},
    {nullptr, launch_without_workspace<heads_best4_ns::heads_best4_launch>},
    {nullptr, launch_without_workspace<heads_best5_ns::heads_best5_launch>},
    {heads_best6_ns::heads_best6_workspace, heads_best6_ns::heads_best6_launch},
    {heads_best7_ns::heads_best7_workspace, heads_best7_ns::heads_best7_launch},
    {heads_best8_ns::heads_best8_workspace, heads_best8_ns::heads_best8_launch},
};
// clang-format on

// The kernel for the problem on the current device.
inline cudaError_t choose(
    index_t M, index_t N, index_t K, index_t batch, const void* A, index_t lda, const void* B,
    index_t ldb, const Kernel*& chosen) {
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
      10 * found[0] + found[1], found[2], found[3], M, N, K, batch, reinterpret_cast<size_t>(A),
      lda, reinterpret_cast<size_t>(B), ldb);
  if (kernel < 0) return cudaErrorNoKernelImageForDevice;
  chosen = &kKernels[kernel];
  return cudaSuccess;
}

// Sets *bytes to the size of the workspace that the launcher needs on the current device.
extern "C" cudaError_t  // cudaSuccess once *bytes is set
heads_workspace(  // for a launch with these arguments
    long long M, long long N, long long K, long long batch, const float* A, long long lda,
    long long stride_a, const float* B, long long ldb, long long stride_b, size_t* bytes) {
  if (bytes == nullptr) return cudaErrorInvalidValue;
  *bytes = 0;
  const Kernel* kernel = nullptr;
  const cudaError_t error = choose(M, N, K, batch, A, lda, B, ldb, kernel);
  if (error != cudaSuccess || kernel->workspace == nullptr) return error;
  return kernel->workspace(M, N, K, batch, A, lda, stride_a, B, ldb, stride_b, bytes);
}

// As the launchers above, of which it calls the one for the problem on the current device.
extern "C" cudaError_t  // cudaSuccess once the kernel is on its way
heads_launch(  // D = alpha * A * B + beta * C
    long long M, long long N, long long K, long long batch, float alpha, const float* A,
    long long lda, long long stride_a, const float* B, long long ldb, long long stride_b,
    float beta, const float* C, long long ldc, long long stride_c, float* D, long long ldd,
    long long stride_d, const __half* up, long long ld_up, float slope, const float* rest,
    long long ld_rest, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  const Kernel* kernel = nullptr;
  const cudaError_t error = choose(M, N, K, batch, A, lda, B, ldb, kernel);
  if (error != cudaSuccess) return error;
  return kernel->launch(
      M, N, K, batch, alpha, A, lda, stride_a, B, ldb, stride_b, beta, C, ldc, stride_c, D, ldd,
      stride_d, up, ld_up, slope, rest, ld_rest, workspace, workspace_bytes, stream);
}

}  // namespace heads_ns

#endif  // __CUDACC_RTC__
