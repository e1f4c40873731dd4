// gemm_narrow_f16_crr_columns_v4_c1x1x4_linear_bias_sm90: D = alpha * A * B + beta * C + bias
//
// For products of few columns, which take as long as it takes to read A, whose lines run across K. What a
// thread reads of A, 16 bytes at once if it is aligned, goes straight into registers, and is multiplied by all
// of the few columns of B, which the block brings to shared memory, a step along K at a time: the next step of
// both is on its way while one is multiplied.
//
// The threads of a block share the rows of its tile of D, and K; the blocks of a cluster take turns along K.
// In the end the sums of the same elements are added up, first those of a warp, then those of all warps, then
// those of all blocks, always in the same order.
//
//   A  M x K, column-major, __half
//   B  K x N, row-major, __half
//   C  M x N, row-major, __half; not read when beta is 0
//   D  M x N, row-major, __half; must not overlap A or B; may be C, where ldc is ldd
//   bias  N elements, __half: one for each column of D
//
// Any M, N, K >= 0. Accumulators, alpha and beta are float. Leading dimensions count elements.
// Needs a GPU of compute capability 9.0 or newer and C++17.
//
// Made by gemmgen 0.2.0:  gen emit --variant narrow --dtype f16 --layout crr --arch sm_90 --few columns --vectors 4 --strip 32 --threads 256 --cluster 1x1x4 --epilogue linear_bias
// Compile:  nvcc -std=c++17 -arch=sm_90 -c gemm_narrow_f16_crr_columns_v4_c1x1x4_linear_bias_sm90.cu, or by NVRTC as it is
// gen-spec: {"variant": "narrow", "dtype": "f16", "layout": "crr", "arch": "sm_90", "few": "columns", "vectors": 4, "strip": 32, "threads": 256, "cluster": "1x1x4", "epilogue": "linear_bias"}
// SPDX-License-Identifier: 0BSD

#include <cuda_fp16.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#error "for -arch=sm_90 or newer: older GPUs lack the kernel's instructions"
#endif

namespace gemm_narrow_f16_crr_columns_v4_c1x1x4_linear_bias_sm90_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = __half;
using output_t = __half;
using accumulator_t = float;
using scalar_t = accumulator_t;  // of alpha, beta, the epilogue

constexpr int kRows = 32, kCols = 4;  // of D, that a cluster computes
constexpr int kThreads = 256;  // per block
constexpr int kBlocks = 2;  // of a multiprocessor: the compiler spends registers accordingly
constexpr int kClusterBlocks = 4;  // which share K

static_assert(kThreads % 32 == 0 && kThreads <= 1024, "a block has whole warps, at most 32");

// Where an element lies in its matrix.
__device__ inline index_t a_at(index_t row, index_t k, index_t lda) {
  return k * lda + row;
}
__device__ inline index_t b_at(index_t k, index_t col, index_t ldb) {
  return k * ldb + col;
}
__device__ inline index_t c_at(index_t row, index_t col, index_t ldc) {
  return row * ldc + col;
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

constexpr int kWarps = kThreads / 32;
constexpr int kTileElements = kRows * kCols;
constexpr int kShare = (kTileElements + kClusterBlocks - 1) / kClusterBlocks;  // that a block adds up
constexpr int kWidth = 8;  // elements in 16 bytes
constexpr int kStep = 128;  // elements along K that a block multiplies at a time
static_assert(
    kRows % kWidth == 0 && 32 % (kRows / kWidth) == 0, "a warp has whole lines of the tile");

struct alignas(8) Few {  // elements of all few columns of B, at the same place along K
  input_t of[kCols];
};

using Sums = accumulator_t[kWarps][kRows][kCols];  // each warp's, of a block's tile of D
union Shared {
  Few few[2][kStep];  // of two steps
  Sums sums;  // then
};

// A thread's part of the few columns of a step, on its way to shared memory.
struct Coming {
  static constexpr int kOwn = kCols * kStep / kThreads;
  static_assert(kCols * kStep % kThreads == 0, "all threads have as many");
  input_t of[kOwn];

  // From col0 and k0 on. What lies outside of B is zeros, which add nothing to a sum.
  __device__ void read(
      const input_t* B, index_t ldb, index_t col0, index_t k0, index_t N, index_t K) {
#pragma unroll
    for (int e = 0; e < kOwn; ++e) {
      const int at = e * kThreads + threadIdx.x;
      const index_t col = col0 + at % kCols, k = k0 + at / kCols;
      of[e] = col < N && k < K ? B[b_at(k, col, ldb)] : input_t(0);
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

// What a thread has of a step: kCount neighbours in some lines of A, which are kApart from each other.
template <int kCount>
struct Lines {
  static constexpr int kLanes = kRows / kCount;  // threads with different rows, side by side
  static constexpr int kApart = kThreads / kLanes, kDepth = kStep / kApart;
  struct alignas(kCount * sizeof(input_t)) Piece {
    input_t of[size_t(kCount)];
  };
  Piece of[size_t(kDepth)];

  // What lies outside of A is zeros.
  __device__ void read(
      const input_t* A, index_t lda, index_t row, index_t k0, index_t M, index_t K) {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      const index_t k = k0 + d * kApart + threadIdx.x / kLanes;
      const input_t* const from = A + a_at(row, k, lda);
      const bool inside = k < K && row < M;
      if constexpr (kCount == kWidth) {  // one instruction
        reinterpret_cast<int4&>(of[d]) = inside ? *reinterpret_cast<const int4*>(from) : int4{};
      } else {
        of[d].of[0] = inside ? *from : input_t(0);
      }
    }
  }

  // Adds the products with the few columns.
  __device__ void multiply(
      const Few (&few)[kStep], accumulator_t (&sum)[kCols][size_t(kCount)]) const {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      const Few b = few[d * kApart + threadIdx.x / kLanes];
#pragma unroll
      for (int i = 0; i < kCols; ++i) {
#pragma unroll
        for (int e = 0; e < kCount; ++e) {
          sum[i][e] += accumulator_t(b.of[i]) * accumulator_t(of[d].of[e]);
        }
      }
    }
  }
};

__device__ inline int rank_in_cluster() {  // of the block
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ inline void meet_cluster() {  // all of its threads
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
// Reads what another block has at the same place of its shared memory.
__device__ inline accumulator_t read_of(const accumulator_t& own, int rank) {
  accumulator_t x;
  asm volatile(
      "{\n.reg .b32 its;\nmapa.shared::cluster.u32 its, %1, %2;\n"
      "ld.shared::cluster.f32 %0, [its];\n}"
      : "=f"(x)
      : "r"(unsigned(__cvta_generic_to_shared(&own))), "r"(rank)
      : "memory");
  return x;
}

// Computes each warp's sums for the tile of D that begins at (row0, col0), of the steps that the block has.
template <int kCount>  // neighbours in a line of A that a thread reads at once: kWidth or 1
__device__ inline void multiply(
    Shared& shared, int rank, index_t row0, index_t col0, index_t M, index_t N, index_t K,
    const input_t* A, index_t lda, const input_t* B, index_t ldb) {
  constexpr int kLanes = Lines<kCount>::kLanes;
  const int first = threadIdx.x % kLanes * kCount;  // of the thread's rows in the tile
  const index_t row = row0 + first, begin = rank * kStep;
  accumulator_t sum[kCols][size_t(kCount)] = {};
  Lines<kCount> lines;
  Coming coming;
  lines.read(A, lda, row, begin, M, K);
  coming.read(B, ldb, col0, begin, N, K);
  coming.write(shared.few[0]);
  __syncthreads();  // the first step of B is there
  int turn = 0;
#pragma unroll 1
  for (index_t k0 = begin; k0 < K; k0 += kClusterBlocks * kStep, turn ^= 1) {
    const index_t k_next = k0 + kClusterBlocks * kStep;
    Lines<kCount> next;
    next.read(A, lda, row, k_next, M, K);
    coming.read(B, ldb, col0, k_next, N, K);
    lines.multiply(shared.few[turn], sum);
    coming.write(shared.few[turn ^ 1]);
    __syncthreads();  // the next step is there, and this one has been read
    lines = next;
  }
#pragma unroll
  for (int i = 0; i < kCols; ++i) {
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      for (int lanes = 16; lanes >= kLanes; lanes /= 2) {
        sum[i][e] += __shfl_down_sync(0xffffffff, sum[i][e], lanes);
      }
      if (threadIdx.x % 32 < kLanes) {
        shared.sums[threadIdx.x / 32][first + e][i] = sum[i][e];
      }
    }
  }
}

extern "C" __global__ void __cluster_dims__(kClusterBlocks, 1, 1)
    __launch_bounds__(kThreads, kBlocks)
    gemm_narrow_f16_crr_columns_v4_c1x1x4_linear_bias_sm90(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        const input_t* __restrict__ B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc,
        output_t* D, index_t ldd, const output_t* bias) {
  asm volatile("griddepcontrol.wait;" ::: "memory");  // until the kernels before have ended

  __shared__ Shared shared;
  Sums& sums = shared.sums;
  const int rank = rank_in_cluster();
  // Whether lines of A begin at a multiple of 16 bytes and are whole pieces of 16 bytes.
  const bool aligned =
      reinterpret_cast<size_t>(A) % 16 == 0 && lda % kWidth == 0 && M % kWidth == 0;
  const index_t groups = (N + kCols - 1) / kCols, strips = (M + kRows - 1) / kRows;

  // Neighbouring clusters have the same rows of D, and read the same of A.
  // A grid has at most 2^31 - 1 blocks: where there are more tiles, they stride over the rest.
  for (index_t tile = blockIdx.x / kClusterBlocks; tile < groups * strips;
       tile += gridDim.x / kClusterBlocks) {
    const index_t col0 = tile % groups * kCols, row0 = tile / groups * kRows;
    if (aligned) {
      multiply<kWidth>(shared, rank, row0, col0, M, N, K, A, lda, B, ldb);
    } else {
      multiply<1>(shared, rank, row0, col0, M, N, K, A, lda, B, ldb);
    }
    __syncthreads();  // the sums of all warps are there
    for (int at = threadIdx.x; at < kTileElements; at += kThreads) {
      accumulator_t& own = sums[0][at / kCols][at % kCols];
      for (int warp = 1; warp < kWarps; ++warp) own += sums[warp][at / kCols][at % kCols];
    }
    meet_cluster();  // the sums of all blocks are there, and each adds up its share of them
    const int end = (rank + 1) * kShare < kTileElements ? (rank + 1) * kShare : kTileElements;
    for (int at = rank * kShare + threadIdx.x; at < end; at += kThreads) {
      const int i = at / kCols, j = at % kCols;
      accumulator_t sum = 0;
      for (int block = 0; block < kClusterBlocks; ++block) sum += read_of(sums[0][i][j], block);
      const index_t row = row0 + i, col = col0 + j;
      if (row < M && col < N) {
        epilogue(sum, row, col, alpha, beta, C, ldc, D, ldd, bias);
      }
    }
    meet_cluster();  // they have been read: what the next tile needs may replace them
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

// Queues a kernel. Its blocks start while those of the last one end: it waits by itself.
template <class... Parameters, class... Arguments>
inline cudaError_t launch(
    void (*kernel)(Parameters...), dim3 grid, dim3 block, int shared_bytes, cudaStream_t stream,
    Arguments... arguments) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  const cudaLaunchConfig_t config{grid, block, size_t(shared_bytes), stream, &early, 1};
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
gemm_narrow_f16_crr_columns_v4_c1x1x4_linear_bias_sm90_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, scalar_t alpha, const input_t* A, index_t lda,
    const input_t* B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc, output_t* D,
    index_t ldd, const output_t* bias, cudaStream_t stream) {
  constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows
  if (M < 0 || N < 0 || K < 0) return cudaErrorInvalidValue;
  if (M == 0 || N == 0) return cudaSuccess;  // D has no elements
  if (K > 0 && (A == nullptr || lda < M || lda > kLargest / K)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return cudaErrorInvalidValue;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return cudaErrorInvalidValue;
  if (bias == nullptr) return cudaErrorInvalidValue;

  const index_t tiles = (M + kRows - 1) / kRows * ((N + kCols - 1) / kCols);  // of D
  const index_t grid_x = (tiles < 536870911 ? tiles : 536870911) * kClusterBlocks;  // blocks
  int device;
  cudaError_t error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const auto kernel = gemm_narrow_f16_crr_columns_v4_c1x1x4_linear_bias_sm90;
  const dim3 grid{unsigned(grid_x)}, block{kThreads};
  return launch(
      kernel, grid, block, 0, stream,  // and its parameters:
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd, bias);
}

#endif  // __CUDACC_RTC__
}  // namespace gemm_narrow_f16_crr_columns_v4_c1x1x4_linear_bias_sm90_ns
