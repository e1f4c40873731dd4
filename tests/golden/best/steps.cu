// steps: D = alpha * A * B + beta * C, by the kernel that suits the problem and the device
//
// 2 kernels, each in a namespace of its own, as gemmgen emits it alone; then what predicts how
// long each takes for the problem at hand, and a launcher that takes the fastest. For the shapes of the
// command below, one of them is the fastest of all that there are, or nearly so, by these predictions.
//
//   kernel for     variant    tile       tunables
//   1      t4      warp_tiled 128x128x16
//   2      rtx3060 multistage 128x128x16
//
// Made by gemmgen 0.2.0:  gen emit --best
// Compile:  nvcc -std=c++17 -c steps.cu
//     -gencode arch=compute_75,code=sm_75
//     -gencode arch=compute_86,code=sm_86
// SPDX-License-Identifier: 0BSD

#ifndef __CUDACC_RTC__
#include <cuda_runtime_api.h>
#endif

#ifdef __NVCC__
#pragma nv_diag_suppress 177  // constants of kernels that are for other architectures
#endif

// ---------------------------------------------------------------------------- kernel 1

// steps_1: D = alpha * A * B + beta * C
//
// As with vectors, but between the block's tile and a thread's there is a warp's. Its lanes are numbered
// so that neighbours (lanes whose numbers differ in the last bit) read the same vectors of B, and those
// whose numbers differ in the next bit the same vectors of A. Shared memory serves such lanes together,
// and a load of 32 vectors takes two turns of its banks in place of up to four.
//
//   A  M x K, row-major, float
//   B  K x N, row-major, float
//   C  M x N, row-major, float; not read when beta is 0
//   D  M x N, row-major, float; must not overlap A or B; may be C, where ldc is ldd
//
// Any M, N, K >= 0. Accumulators, alpha and beta are float. Leading dimensions count elements.
// Needs a GPU of compute capability 7.5 or newer and C++17.

namespace steps_1_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = float;
using output_t = float;
using accumulator_t = float;
using scalar_t = accumulator_t;  // of alpha, beta, the epilogue

constexpr int kTileM = 128, kTileN = 128;  // rows and columns of D that a block computes
constexpr int kWarpM = 32, kWarpN = 64;  // rows and columns of D that a warp computes
constexpr int kThreadM = 8, kThreadN = 8;  // that one of its threads computes
constexpr int kBelow = kWarpM / kThreadM, kBeside = kWarpN / kThreadN;  // a warp's threads
constexpr int kThreads = kTileM / kThreadM * (kTileN / kThreadN);
static_assert(kBelow * kBeside == 32 && kBelow % 2 == 0);

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

// Element (row, col) of D: alpha * sum + beta * C. As in BLAS, C is not read when
// beta is 0: it may hold NaN or be null.
__device__ inline output_t epilogue(
    accumulator_t sum, index_t row, index_t col, scalar_t alpha, scalar_t beta, const output_t* C,
    index_t ldc) {
  scalar_t x = alpha * sum;
  if (beta != 0) x += beta * scalar_t(C[c_at(row, col, ldc)]);
  return output_t(x);
}

constexpr int kVector = 16 / sizeof(accumulator_t);  // elements that move at once

template <class T>
struct alignas(kVector * sizeof(T)) VectorOf {
  T of[kVector];
};
using Vector = VectorOf<accumulator_t>;
using packed_t = uint4;  // kVector elements of D, for one store

// Whether all lines of a matrix start where a vector may.
template <class T>
__device__ inline bool is_aligned(const T* matrix, index_t ld) {
  return reinterpret_cast<size_t>(matrix) % sizeof(VectorOf<T>) == 0 && ld % kVector == 0;
}

// Neighbours in global memory, with zeros in place of those behind the first `count`.
__device__ inline Vector load(const input_t* from, int count, bool aligned) {
  Vector to;
  if (aligned && count >= kVector) {
    const VectorOf<input_t> all = *reinterpret_cast<const VectorOf<input_t>*>(from);
    for (int e = 0; e < kVector; ++e) to.of[e] = static_cast<accumulator_t>(all.of[e]);
  } else {
    for (int e = 0; e < kVector; ++e) {
      to.of[e] = e < count ? static_cast<accumulator_t>(from[e]) : accumulator_t(0);
    }
  }
  return to;
}

constexpr int kTileK = 16;  // a block's step along K
constexpr int kBlocks = 2;  // of a multiprocessor: the compiler spends registers accordingly
constexpr int kPitchA = (kTileM + 4) / kVector;  // vectors from line to line, and so to other banks
constexpr int kRowsA = 128;  // rows of A that the threads copy at once
constexpr int kDepthA = kThreads / kRowsA * kVector;  // and so many k of each
constexpr int kCopiesA = kTileM * kTileK / kThreads / kVector;  // vectors that each thread copies
constexpr int kPitchB = kTileN / kVector;  // vectors of a line
constexpr int kDepthB = kThreads / kPitchB;  // lines of B's tile copied at once
constexpr int kCopiesB = kTileK / kDepthB;  // vectors that each thread copies

static_assert(kCopiesA * kThreads * kVector == kTileM * kTileK);
static_assert(kCopiesB * kThreads * kVector == kTileK * kTileN);

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    steps_1(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        const input_t* __restrict__ B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc,
        output_t* D, index_t ldd) {
#if __CUDA_ARCH__ < 860
  __shared__ Vector tile_a[kTileK][kPitchA];
  __shared__ Vector tile_b[kTileK][kPitchB];

  // Where in the block's tile the thread's first vectors of results lie. Lanes go down two rows
  // first, then along them.
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int x = warp % (kTileN / kWarpN) * (kWarpN / kVector) + lane / 2 % kBeside;
  const int y = warp / (kTileN / kWarpN) * (kWarpM / kVector) + lane / (2 * kBeside) * 2 + lane % 2;
  // The first vectors that it copies. Where it transposes, a warp reads 32 bytes of 16 lines, and
  // the elements that it stores at once lie in 32 banks.
  const int a_row = threadIdx.x / 32 * 16 % kRowsA + threadIdx.x % 16;
  const int a_k = (threadIdx.x / (2 * kRowsA) * 2 + threadIdx.x / 16 % 2) * kVector;
  const int b_k = threadIdx.x / kPitchB;
  const int b_col = threadIdx.x % kPitchB * kVector;
  const bool a_aligned = is_aligned(A, lda), b_aligned = is_aligned(B, ldb);

  // Blocks are numbered along a row of tiles, then along the next one.
  const unsigned tiles_n = (N + kTileN - 1) / kTileN;
  const index_t row0 = index_t(blockIdx.x / tiles_n) * kTileM;
  const index_t col0 = index_t(blockIdx.x % tiles_n) * kTileN;
  const int rows = M - row0 < kTileM ? M - row0 : kTileM;  // of the tile that are inside of D
  const int cols = N - col0 < kTileN ? N - col0 : kTileN;
  const input_t* a_from = A + a_at(row0 + a_row, a_k, lda);
  const input_t* b_from = B + b_at(b_k, col0 + b_col, ldb);
  accumulator_t sum[kThreadM][kThreadN] = {};

  for (index_t k0 = 0; k0 < K; k0 += kTileK) {
    // All vectors are loaded before the first one is stored: they are on their way together.
    const int depth = K - k0 < kTileK ? K - k0 : kTileK;
    Vector a_part[kCopiesA], b_part[kCopiesB];
#pragma unroll
    for (int i = 0; i < kCopiesA; ++i) {
      const int row = i * kRowsA % kTileM, k = i * kRowsA / kTileM * kDepthA;
      const int count = a_row + row < rows ? depth - a_k - k : 0;
      a_part[i] = load(a_from + a_at(row, k, lda), count, a_aligned);
    }
#pragma unroll
    for (int i = 0; i < kCopiesB; ++i) {
      const int k = i * kDepthB;
      const int count = b_k + k < depth ? cols - b_col : 0;
      b_part[i] = load(b_from + b_at(k, 0, ldb), count, b_aligned);
    }
#pragma unroll
    for (int i = 0; i < kCopiesA; ++i) {
      const int row = a_row + i * kRowsA % kTileM;
      const int k = a_k + i * kRowsA / kTileM * kDepthA;
      for (int e = 0; e < kVector; ++e) {  // one below another: transposed
        tile_a[k + e][row / kVector].of[row % kVector] = a_part[i].of[e];
      }
    }
#pragma unroll
    for (int i = 0; i < kCopiesB; ++i) {
      tile_b[b_k + i * kDepthB][b_col / kVector] = b_part[i];
    }
    __syncthreads();  // both tiles are complete

#pragma unroll
    for (int k = 0; k < kTileK; ++k) {
      Vector a[kThreadM / kVector], b[kThreadN / kVector];
      for (int i = 0; i < kThreadM / kVector; ++i) a[i] = tile_a[k][y + i * kBelow];
      for (int j = 0; j < kThreadN / kVector; ++j) b[j] = tile_b[k][x + j * kBeside];
      for (int i = 0; i < kThreadM; ++i) {
        for (int j = 0; j < kThreadN; ++j) {
          sum[i][j] += a[i / kVector].of[i % kVector] * b[j / kVector].of[j % kVector];
        }
      }
    }
    __syncthreads();  // no thread reads these tiles any more: the next ones may replace them
    a_from += a_at(0, kTileK, lda);
    b_from += b_at(kTileK, 0, ldb);
  }

  const bool d_aligned = is_aligned(D, ldd);
#pragma unroll
  for (int i = 0; i < kThreadM; ++i) {
#pragma unroll
    for (int j = 0; j < kThreadN; j += kVector) {
      const int row = (y + i / kVector * kBelow) * kVector + i % kVector;
      const int col = (x + j / kVector * kBeside) * kVector;
      if (row >= rows || col >= cols) continue;
      VectorOf<output_t> out;
      for (int e = 0; e < kVector; ++e) {
        const index_t inside = col0 + (col + e < cols ? col + e : col);
        out.of[e] = epilogue(sum[i][j + e], row0 + row, inside, alpha, beta, C, ldc);
      }
      output_t* const to = &D[c_at(row0 + row, col0 + col, ldd)];
      if (d_aligned && col + kVector <= cols) {
        // As *to = ..., it would be taken apart where it shares elements with the other side.
        __stwb(reinterpret_cast<packed_t*>(to), *reinterpret_cast<const packed_t*>(&out));
      } else {
        for (int e = 0; e < kVector && col + e < cols; ++e) to[e] = out.of[e];
      }
    }
  }
#else
  __trap();  // the launcher takes another kernel here
#endif
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
steps_1_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, scalar_t alpha, const input_t* A, index_t lda,
    const input_t* B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc, output_t* D,
    index_t ldd, cudaStream_t stream) {
  constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows
  if (M < 0 || N < 0 || K < 0) return cudaErrorInvalidValue;
  if (M == 0 || N == 0) return cudaSuccess;  // D has no elements
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return cudaErrorInvalidValue;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return cudaErrorInvalidValue;

  const index_t tiles_m = (M + kTileM - 1) / kTileM;
  const index_t tiles_n = (N + kTileN - 1) / kTileN;
  const index_t grid_x = tiles_m * tiles_n;  // a block for each tile of D
  if (grid_x > 2147483647) return cudaErrorInvalidConfiguration;  // a grid is not wider
  int device;
  cudaError_t error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const auto kernel = steps_1;
  const dim3 grid{unsigned(grid_x)}, block{kThreads};
  return launch(
      kernel, grid, block, 0, stream,  // and its parameters:
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd);
}

#endif  // __CUDACC_RTC__
}  // namespace steps_1_ns

// ---------------------------------------------------------------------------- kernel 2

// steps_2: D = alpha * A * B + beta * C
//
// As with warp tiles, but shared memory has kStages tiles of A and B. While threads multiply one, cp.async
// copies those of the next steps, past the registers: nobody waits for global memory as long as copies take
// less time than kStages - 1 steps. It cannot transpose a vector, and copies an operand that lies along
// K element by element.
//
//   A  M x K, row-major, float
//   B  K x N, row-major, float
//   C  M x N, row-major, float; not read when beta is 0
//   D  M x N, row-major, float; must not overlap A or B; may be C, where ldc is ldd
//
// Any M, N, K >= 0. Accumulators, alpha and beta are float. Leading dimensions count elements.
// Needs a GPU of compute capability 8.0 or newer and C++17.

namespace steps_2_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = float;
using output_t = float;
using accumulator_t = float;
using scalar_t = accumulator_t;  // of alpha, beta, the epilogue

using uint32_t = unsigned int;
constexpr int kTileM = 128, kTileN = 128;  // rows and columns of D that a block computes
constexpr int kWarpM = 32, kWarpN = 64;  // rows and columns of D that a warp computes
constexpr int kThreadM = 8, kThreadN = 8;  // that one of its threads computes
constexpr int kBelow = kWarpM / kThreadM, kBeside = kWarpN / kThreadN;  // a warp's threads
constexpr int kThreads = kTileM / kThreadM * (kTileN / kThreadN);
static_assert(kBelow * kBeside == 32 && kBelow % 2 == 0);
constexpr int kSharedBytes = 50688;  // of all stages, with space behind their lines

static_assert(kSharedBytes <= 227 * 1024, "no GPU gives a block more shared memory");
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

// Element (row, col) of D: alpha * sum + beta * C. As in BLAS, C is not read when
// beta is 0: it may hold NaN or be null.
__device__ inline output_t epilogue(
    accumulator_t sum, index_t row, index_t col, scalar_t alpha, scalar_t beta, const output_t* C,
    index_t ldc) {
  scalar_t x = alpha * sum;
  if (beta != 0) x += beta * scalar_t(C[c_at(row, col, ldc)]);
  return output_t(x);
}

constexpr int kVector = 16 / sizeof(accumulator_t);  // elements that move at once

template <class T>
struct alignas(kVector * sizeof(T)) VectorOf {
  T of[kVector];
};
using Vector = VectorOf<accumulator_t>;
using packed_t = uint4;  // kVector elements of D, for one store

// Whether all lines of a matrix start where a vector may.
template <class T>
__device__ inline bool is_aligned(const T* matrix, index_t ld) {
  return reinterpret_cast<size_t>(matrix) % sizeof(VectorOf<T>) == 0 && ld % kVector == 0;
}

constexpr int kStages = 3;  // of the pipeline, each a tile of both operands

__device__ inline uint32_t shared_address(const void* pointer) {  // as PTX instructions take it
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Starts to copy an element, or zero where it is not inside of its matrix.
__device__ inline void copy(input_t& to, const input_t* from, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(&to)), "l"(from),
               "r"(inside ? 4 : 0)
               : "memory");
}

// Starts to copy 16 bytes; those behind the first `bytes` become zeros.
__device__ inline void cp_async(uint32_t shared, const void* global, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(bytes)
               : "memory");
}

// Starts to copy neighbours; zeros take the place of those behind the first `count`.
__device__ inline void copy(Vector& to, const input_t* from, int count, bool aligned) {
  const int inside = count < 0 ? 0 : count < kVector ? count : kVector;
  if (aligned) {
    cp_async(shared_address(&to), from, inside * sizeof(input_t));
  } else {
    for (int e = 0; e < kVector; ++e) copy(to.of[e], from + e, e < inside);
  }
}

__device__ inline void commit_copies() {  // those started so far are a group
  asm volatile("cp.async.commit_group;" ::: "memory");
}
__device__ inline void wait_for_copies() {  // of all groups but the newest kStages - 2
  asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
}

constexpr int kTileK = 16;  // a block's step along K
constexpr int kBlocks = 2;  // of a multiprocessor: the compiler spends registers accordingly
constexpr int kNearA = 32 / sizeof(input_t);  // neighbours along K that a warp copies: a sector
constexpr int kPitchA = (kTileM + 4) / kVector;  // vectors from line to line, and so to other banks
constexpr int kRowsA = 32;  // rows of A that the threads copy at once
constexpr int kDepthA = kThreads / kRowsA;  // and so many k of each
constexpr int kCopiesA = kTileM * kTileK / kThreads;  // elements that each thread copies
constexpr int kPitchB = kTileN / kVector;  // vectors of a line
constexpr int kDepthB = kThreads / kPitchB;  // lines of B's tile copied at once
constexpr int kCopiesB = kTileK / kDepthB;  // vectors that each thread copies

static_assert(sizeof(input_t) == sizeof(accumulator_t), "cp.async copies bytes as they are");
static_assert(kStages * kTileK * (kPitchA + kPitchB) * 16 <= kSharedBytes);

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    steps_2(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        const input_t* __restrict__ B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc,
        output_t* D, index_t ldd) {
#if __CUDA_ARCH__ >= 860
  // kStages tiles of A, then of B: kSharedBytes, dynamic since they may be more than 48 KiB.
  extern __shared__ __align__(16) unsigned char shared[];
  auto tile_a = reinterpret_cast<Vector(*)[kTileK][kPitchA]>(shared);
  auto tile_b = reinterpret_cast<Vector(*)[kTileK][kPitchB]>(tile_a + kStages);

  // Where in the block's tile the thread's first vectors of results lie. Lanes go down two rows
  // first, then along them.
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int x = warp % (kTileN / kWarpN) * (kWarpN / kVector) + lane / 2 % kBeside;
  const int y = warp / (kTileN / kWarpN) * (kWarpM / kVector) + lane / (2 * kBeside) * 2 + lane % 2;
  // What it copies first.
  const int a_row = threadIdx.x / kNearA % kRowsA;
  const int a_k = threadIdx.x / (kNearA * kRowsA) * kNearA + threadIdx.x % kNearA;
  const int b_k = threadIdx.x / kPitchB;
  const int b_col = threadIdx.x % kPitchB * kVector;
  const bool b_aligned = is_aligned(B, ldb);

  // Blocks are numbered along a row of tiles, then along the next one.
  const unsigned tiles_n = (N + kTileN - 1) / kTileN;
  const index_t row0 = index_t(blockIdx.x / tiles_n) * kTileM;
  const index_t col0 = index_t(blockIdx.x % tiles_n) * kTileN;
  const int rows = M - row0 < kTileM ? M - row0 : kTileM;  // of the tile that are inside of D
  const int cols = N - col0 < kTileN ? N - col0 : kTileN;
  const input_t* a_from = A + a_at(row0 + a_row, a_k, lda);
  const input_t* b_from = B + b_at(b_k, col0 + b_col, ldb);
  accumulator_t sum[kThreadM][kThreadN] = {};

  // Copies are kStages - 1 steps ahead of multiplications.
  int fill = 0, stage = 0;  // where the next copies go, where the next factors are
  for (index_t k0 = 0; k0 - (kStages - 1) * kTileK < K; k0 += kTileK) {
    const bool ready = k0 >= (kStages - 1) * kTileK;
    if (ready) {
      wait_for_copies();  // this thread's of the stage that is multiplied now
      __syncthreads();  // all threads'; and none reads the stage that is filled now
    }
    if (k0 < K) {
      const int depth = K - k0 < kTileK ? K - k0 : kTileK;
#pragma unroll
      for (int i = 0; i < kCopiesA; ++i) {
        const int row = i * kRowsA % kTileM, k = i * kRowsA / kTileM * kDepthA;
        const bool inside = a_row + row < rows && a_k + k < depth;
        Vector& to = tile_a[fill][a_k + k][(a_row + row) / kVector];
        copy(to.of[a_row % kVector], a_from + a_at(row, k, lda), inside);
      }
#pragma unroll
      for (int i = 0; i < kCopiesB; ++i) {
        const int k = i * kDepthB;
        const int count = b_k + k < depth ? cols - b_col : 0;
        Vector& to = tile_b[fill][b_k + k][b_col / kVector];
        copy(to, b_from + b_at(k, 0, ldb), count, b_aligned);
      }
      a_from += a_at(0, kTileK, lda);
      b_from += b_at(kTileK, 0, ldb);
      fill = fill + 1 < kStages ? fill + 1 : 0;
    }
    commit_copies();  // a group for each step, perhaps an empty one
    if (!ready) continue;

#pragma unroll
    for (int k = 0; k < kTileK; ++k) {
      Vector a[kThreadM / kVector], b[kThreadN / kVector];
      for (int i = 0; i < kThreadM / kVector; ++i) a[i] = tile_a[stage][k][y + i * kBelow];
      for (int j = 0; j < kThreadN / kVector; ++j) b[j] = tile_b[stage][k][x + j * kBeside];
      for (int i = 0; i < kThreadM; ++i) {
        for (int j = 0; j < kThreadN; ++j) {
          sum[i][j] += a[i / kVector].of[i % kVector] * b[j / kVector].of[j % kVector];
        }
      }
    }
    stage = stage + 1 < kStages ? stage + 1 : 0;
  }

  const bool d_aligned = is_aligned(D, ldd);
#pragma unroll
  for (int i = 0; i < kThreadM; ++i) {
#pragma unroll
    for (int j = 0; j < kThreadN; j += kVector) {
      const int row = (y + i / kVector * kBelow) * kVector + i % kVector;
      const int col = (x + j / kVector * kBeside) * kVector;
      if (row >= rows || col >= cols) continue;
      VectorOf<output_t> out;
      for (int e = 0; e < kVector; ++e) {
        const index_t inside = col0 + (col + e < cols ? col + e : col);
        out.of[e] = epilogue(sum[i][j + e], row0 + row, inside, alpha, beta, C, ldc);
      }
      output_t* const to = &D[c_at(row0 + row, col0 + col, ldd)];
      if (d_aligned && col + kVector <= cols) {
        // As *to = ..., it would be taken apart where it shares elements with the other side.
        __stwb(reinterpret_cast<packed_t*>(to), *reinterpret_cast<const packed_t*>(&out));
      } else {
        for (int e = 0; e < kVector && col + e < cols; ++e) to[e] = out.of[e];
      }
    }
  }
#else
  __trap();  // the launcher takes another kernel here
#endif
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
steps_2_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, scalar_t alpha, const input_t* A, index_t lda,
    const input_t* B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc, output_t* D,
    index_t ldd, cudaStream_t stream) {
  constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows
  if (M < 0 || N < 0 || K < 0) return cudaErrorInvalidValue;
  if (M == 0 || N == 0) return cudaSuccess;  // D has no elements
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return cudaErrorInvalidValue;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return cudaErrorInvalidValue;

  const index_t tiles_m = (M + kTileM - 1) / kTileM;
  const index_t tiles_n = (N + kTileN - 1) / kTileN;
  const index_t grid_x = tiles_m * tiles_n;  // a block for each tile of D
  if (grid_x > 2147483647) return cudaErrorInvalidConfiguration;  // a grid is not wider
  int device;
  cudaError_t error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const auto kernel = steps_2;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;
  const dim3 grid{unsigned(grid_x)}, block{kThreads};
  return launch(
      kernel, grid, block, kSharedBytes, stream,  // and its parameters:
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd);
}

#endif  // __CUDACC_RTC__
}  // namespace steps_2_ns

#ifdef __NVCC__
#pragma nv_diag_default 177
#endif

// ---------------------------------------------------------------------------- the choice

#ifndef __CUDACC_RTC__  // the host's side, for programs built by nvcc

namespace steps_ns {

using index_t = long long;

struct Gpu {
  int capability, multiprocessors;
};

// clang-format off
// What a kernel costs on a GPU that no problem changes: sizes, and times in picoseconds.
struct Weights {
  index_t tile_m, tile_n, tile_k, cluster_m, cluster_n, cluster_k, math, lone, wait, copy_a, copy_b,
          small_a, small_b, last, store, rough, hides, start, resident, split, stream, lines,
          sagging, group, packs_a, packs_b, size, out, turned, spread_a, spread_b, scatter, packed,
          kib, cache;
};

struct Candidate {
  int gpu, kernel;  // their places in the tables
  Weights weights;
};

constexpr Gpu kGpus[] = {  // the newest first
    {86, 28},  // GeForce RTX 3060 12 GB
    {75, 40},  // T4 16 GB
};

constexpr Candidate kCandidates[] = {
    {0, 1, {128, 128, 16, 1, 1, 1, 1836119, 1920216, 22012, 144489, 144489, 86693, 86693, 857902, 72244, 80, 0, 1412800, 1, 1, 0, 0, 0, 1, 0, 0, 4, 4, 0, 16, 16, 16, 18, 2844, 3145728}},
    {1, 0, {128, 128, 16, 1, 1, 1, 3872192, 4427175, 12326, 161817, 161817, 97090, 97090, 790123, 80909, 80, 0, 1190800, 2, 1, 0, 0, 0, 1, 0, 0, 4, 4, 0, 16, 16, 16, 18, 3200, 4194304}},
};

struct Limits {
  bool swapped;  // whether it computes the transpose of D
  int last;  // compute capability that runs it; 0: all newer ones do
  int shared;  // bytes of shared memory
};

constexpr Limits kLimits[] = {
    {false, 0, 16896},
    {false, 0, 50688},
};

// Picoseconds that a kernel takes, as predicted. M, N, A and B are those of the row-major product.
inline index_t predict(
    const Candidate& one, index_t M, index_t N, index_t K, index_t A, index_t lda, index_t B,
    index_t ldb, index_t multiprocessors) {
  const auto [tile_m, tile_n, tile_k, cluster_m, cluster_n, cluster_k, math, lone, wait, copy_a,
              copy_b, small_a, small_b, last, store, rough, hides, start, resident, split, stream,
              lines, sagging, group, packs_a, packs_b, size, out, turned, spread_a, spread_b,
              scatter, packed, kib, cache] = one.weights;
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
  const index_t fit = multiprocessors / tiles;  // slices of each tile that run at the same time
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
  const index_t whole = (full > alone ? full : alone) + turns * tail;  // each tile by one block
  const bool shares = stream > 0 && tiles > multiprocessors && tiles % multiprocessors > 0;
  const index_t evenly = tiles * steps / multiprocessors * step;
  const index_t shared = evenly + (tiles / multiprocessors + 1) * tail + 2100000;  // by several
  const index_t ending = hides > 0 ? stored : 0;  // which nothing hides
  const index_t briefly = (shares ? shared : whole) + ending;  // as fast as for a short time
  const index_t sags = hides < 1 && briefly > 50000000 ? (briefly - 50000000) / 1024 * sagging : 0;
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
  const index_t written = m * n * out * count * (ragged ? 26 : 10) / 10 * scatter / 16;
  const index_t parted = shares && kept ? tiles % multiprocessors + multiprocessors : 0;  // tiles
  const index_t lines_of_b = n * k * size > cache / 4 ? tile_n * k * size : 0;  // bytes of a tile
  const index_t apart = parted / ((m + tile_m - 1) / tile_m) * (parted > 0 ? (m - 1) / tile_m : 0);
  const bool follow = m > span_m && m <= 512 && tiles <= places && lines_of_b > 0;
  const index_t late = follow ? n * k * size / 8 : 0;  // bytes
  const index_t moving = ((kept ? once : again) + apart * lines_of_b + late + written) / 1024 * kib;  // from memory
  const index_t moved = (moved_a + moved_b) * count;
  const index_t packing = moved > 0 ? 1590000 + moved * packed / 1024 * kib : 0;
  const index_t sums = slices * tiles * tile_m * tile_n;  // that are written, and read
  const index_t adding = slices > 1 ? 1590000 + sums * 10 / 1024 * kib : 0;
  const index_t longer = multiplying > moving ? multiplying : moving;
  const index_t product = longer + (multiplying + moving - longer) * 3 / 8;
  const index_t time = start + product + packing + adding;
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
      long long M, long long N, long long K, float alpha, const float* A, long long lda,
      const float* B, long long ldb, float beta, const float* C, long long ldc, float* D,
      long long ldd, cudaStream_t stream);
};

// clang-format off
constexpr Kernel kKernels[] = {
    {steps_1_ns::steps_1_launch},
    {steps_2_ns::steps_2_launch},
};
// clang-format on

#ifdef __CUDA_ARCH_LIST__  // what nvcc compiles the file for
constexpr bool is_compiled(int first, int end) {
  constexpr int kArchs[] = {__CUDA_ARCH_LIST__};
  for (const int arch : kArchs) {
    if (arch >= first && arch < end) return true;
  }
  return false;
}

static_assert(is_compiled(0, 860), "compile the kernels for sm_75, too");
static_assert(is_compiled(860, 10000), "compile the kernels for sm_86, too");
#endif

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
steps_workspace(  // for a launch with these arguments
    long long M, long long N, long long K, const float* A, long long lda, const float* B,
    long long ldb, size_t* bytes) {
  if (bytes == nullptr) return cudaErrorInvalidValue;
  *bytes = 0;
  const Kernel* kernel = nullptr;
  return choose(M, N, K, A, lda, B, ldb, kernel);  // which need none
}

// As the launchers above, of which it calls the one for the problem on the current device.
extern "C" cudaError_t  // cudaSuccess once the kernel is on its way
steps_launch(  // D = alpha * A * B + beta * C
    long long M, long long N, long long K, float alpha, const float* A, long long lda,
    const float* B, long long ldb, float beta, const float* C, long long ldc, float* D,
    long long ldd, void*, size_t, cudaStream_t stream) {
  const Kernel* kernel = nullptr;
  const cudaError_t error = choose(M, N, K, A, lda, B, ldb, kernel);
  if (error != cudaSuccess) return error;
  return kernel->launch(M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd, stream);
}

}  // namespace steps_ns

#endif  // __CUDACC_RTC__
