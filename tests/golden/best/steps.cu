// steps: D = alpha * A * B + beta * C, by the kernel that suits the problem and the device
//
// 2 kernels, each in a namespace of its own, as gemmgen emits it alone; then what predicts how
// long each takes for the problem at hand, and a launcher that takes the fastest. For the shapes of the
// command below, one of them is the fastest of all that there are, or nearly so, by these predictions.
//
//   kernel for     variant    tile       tunables
//   1      t4      warp_tiled 128x128x16
//   2      rtx3060 simt       32x256x8   --threadblock 32x256x8 --warp 32x64
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

// steps_best1: D = alpha * A * B + beta * C
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

namespace steps_best1_ns {  // several emitted files may be in one program
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
    steps_best1(  // D = alpha * A * B + beta * C
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
steps_best1_launch(  // D = alpha * A * B + beta * C
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
  const auto kernel = steps_best1;
  const dim3 grid{unsigned(grid_x)}, block{kThreads};
  return launch(
      kernel, grid, block, 0, stream,  // and its parameters:
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd);
}

#endif  // __CUDACC_RTC__
}  // namespace steps_best1_ns

// ---------------------------------------------------------------------------- kernel 2

// steps_best2: D = alpha * A * B + beta * C
//
// CUDA cores, with as much of D in registers as they hold: a lane computes 4 x 16 elements of it, so that most
// instructions multiply. A scheduler issues one instruction in a clock: what loads, copies and counts is in the way
// of what multiplies.
//
// A block computes a work tile of D. Shared memory has lines of one k each: a column of A's tile, and beside it
// a row of B's. A lane reads 4 elements of a line at a time; those of k + 1 while it multiplies those of k.
// Copies (cp.async) are up to 3 steps ahead of that, pass no registers, and transpose on their way: an operand
// whose lines run along K is copied element by element, which needs no alignment, either. Warps hand steps on at an
// mbarrier: each says that its copies are there a whole step before anybody waits for them.
//
//   A  M x K, row-major, float
//   B  K x N, row-major, float
//   C  M x N, row-major, float; not read when beta is 0
//   D  M x N, row-major, float; must not overlap A or B; may be C, where ldc is ldd
//
// M, N, K from 0 to 2^31 - 4096, any leading dimension, in elements. Accumulators are float,
// alpha and beta are float. Needs a GPU of compute capability 8.6 or newer and C++17.

namespace steps_best2_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = float;
using output_t = float;
using scalar_t = float;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;
constexpr int kTileM = 32, kTileN = 256, kTileK = 8;  // of a block: work tile, step along K
constexpr int kThreads = 128;  // 4 warps

constexpr int kWarpM = 32, kWarpN = 64;  // what each warp computes of the work tile
constexpr int kLaneM = kWarpM / 8, kLaneN = kWarpN / 4;  // and each lane: 4 x 16 elements
constexpr int kStages = 4;  // steps along K that are in shared memory or on their way
constexpr int kGroup = 12;  // work tiles along M that are computed close in time: see tile_at
constexpr int kWarpsM = kTileM / kWarpM;  // 32 / 32 = 1
constexpr int kTeamK = kTileK;
constexpr int kChunk = 4;  // elements in 16 bytes
// Elements of a line in shared memory, with a gap against bank conflicts.
constexpr int kLine = kTileM + kTileN + 4;  // 292
constexpr int kStep = kTileK * kLine;  // 2336 elements: lines of a step
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
__device__ inline void tile_at(
    uint32_t t, uint32_t tiles_m, uint32_t tiles_n, int& row0, int& col0) {
  const uint32_t most = tiles_m < kGroup ? tiles_m : kGroup;  // kGroup * tiles_n may overflow
  const uint32_t group = most * tiles_n, first = t / group * most;
  const uint32_t height = tiles_m - first < most ? tiles_m - first : most;
  row0 = (first + t % group % height) * kTileM;
  col0 = t % group / height * kTileN;
}

// ------------------------------------------------------------------------ D
struct Output {  // what D is made from, besides accumulators, and where it goes
  int rows, cols;
  scalar_t alpha, beta;
  const output_t* C;  // as in BLAS, not read where beta is 0: it may hold NaN or be null
  output_t* D;
  index_t ldc, ldd;
};

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
constexpr int kStagedBytes = kStagedRows * kStagedLine * sizeof(scalar_t);

template <int kCount>
struct alignas(kCount * sizeof(scalar_t)) Elements {
  scalar_t of[size_t(kCount)];
};

// Writes all threads' sums of a pass to `staged`.
__device__ inline void stage(const WarpTile& tile, scalar_t* staged, int pass, int warp, int lane) {
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
            d.of[e] = output_t(x);
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
constexpr int kSharedBytes = kLinesAt + kStages * kStepBytes;  // 37392
static_assert(kLinesAt + kStagedBytes <= kSharedBytes);  // sums take the lines' place

extern "C" __global__ void __launch_bounds__(kThreads)  // lets the compiler count on the block size
    steps_best2(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        const input_t* __restrict__ B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc,
        output_t* D, index_t ldd) {
#if __CUDA_ARCH__ >= 860
  extern __shared__ __align__(128) unsigned char shared[];  // an mbarrier, steps of kStep elements
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  const int rows = int(M), cols = int(N), depth = int(K);
  const int tiles_m = (rows + kTileM - 1) / kTileM, tiles_n = (cols + kTileN - 1) / kTileN;
  int row0, col0;
  tile_at(blockIdx.x, tiles_m, tiles_n, row0, col0);

  const auto lines = reinterpret_cast<input_t*>(shared + kLinesAt);
  WarpTile tile;
  const input_t* a = A + index_t(row0) * lda;
  const input_t* b = B + col0;
  const bool in_chunks = comes_in_chunks<kTileN>(b, ldb, cols - col0);
  multiply(tile, a, lda, rows - row0, b, ldb, cols - col0, depth, in_chunks, lines, warp, lane);
  const auto sums = reinterpret_cast<scalar_t*>(lines);

  const Output out{rows, cols, alpha, beta, C, D, ldc, ldd};
  store(tile, out, row0, col0, sums, warp, lane);
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

// A launch, worked out from top to bottom.
struct Plan {
  index_t M, N, K;

  index_t tiles = (M + kTileM - 1) / kTileM * ((N + kTileN - 1) / kTileN);  // of D
};

constexpr size_t kSide = 2147479552;  // M, N, K: 2^31 - 4096, so that where a tile ends is an int
constexpr size_t kMost = 2147483647;  // blocks
constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows

// Sets *bytes to the size of the workspace that the launcher needs on the current device, or to 0 where
// it returns the launcher's error 1 or 9.
// It needs none: operands are read where they are, and K is not split.
extern "C" cudaError_t  // cudaSuccess once *bytes is set
steps_best2_workspace(  // for a launch with these arguments
    index_t M, index_t N, index_t K, const input_t* A, index_t lda, const input_t* B, index_t ldb,
    size_t* bytes) {
  if (bytes == nullptr) return cudaErrorInvalidValue;
  *bytes = 0;
  if (size_t(M) > kSide || size_t(N) > kSide || size_t(K) > kSide) return cudaErrorInvalidValue;
  if (M == 0 || N == 0) return cudaSuccess;  // D has no elements
  if (M > kLargest / N) return cudaErrorInvalidValue;
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return cudaErrorInvalidValue;
  const Plan plan{M, N, K};
  if (size_t(plan.tiles) > kMost) return cudaErrorInvalidConfiguration;
  return cudaSuccess;
}

// Checks the arguments and queues the kernels on a stream. Any threads may call it at once, also
// while a CUDA graph is captured: it never prints, exits, waits or allocates.
// `workspace` is device memory at a multiple of 256 bytes, as much as ..._workspace says; it is
// free again when the stream has got past the launch.
// Where it returns one of these, D is as it was:
//     1  cudaErrorInvalidValue: a size below 0 or above 2^31 - 4096, a null matrix or one of more
//        than 2^44 elements, a leading dimension too short, a workspace too small or not aligned
//     9  cudaErrorInvalidConfiguration: 2^31 blocks or more
//   209  cudaErrorNoKernelImageForDevice: a GPU older than nvcc's -arch. For newer ones the driver
//        compiles the file's PTX when it is first needed, unless nvcc was told to leave PTX out
//   400  cudaErrorInvalidResourceHandle: a stream of another device
extern "C" cudaError_t  // cudaSuccess once the kernels are on their way
steps_best2_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, scalar_t alpha, const input_t* A, index_t lda,
    const input_t* B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc, output_t* D,
    index_t ldd, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  size_t needed;  // bytes of the workspace
  auto ask = steps_best2_workspace;
  cudaError_t error = ask(M, N, K, A, lda, B, ldb, &needed);
  if (error != cudaSuccess || M == 0 || N == 0) return error;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return cudaErrorInvalidValue;

  int device;
  error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const Plan plan{M, N, K};
  (void)workspace, (void)workspace_bytes;  // nothing is packed, nothing is added up later

  const auto kernel = steps_best2;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;

  const dim3 grid(unsigned(plan.tiles));
  return launch(
      kernel, grid, kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd);
}

#endif  // __CUDACC_RTC__
}  // namespace steps_best2_ns

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
    {86, 28},  // GeForce RTX 3060 12 GB
    {75, 40},  // T4 16 GB
};

constexpr Candidate kCandidates[] = {
    {0, 1, {32, 256, 8, 1, 1, 1, 374762, 417658, 875, 18061, 144489, 10837, 86693, 817265, 169774, 15, 0, 1763600, 2, 2, 1, 0, 0, 0, 0, 0, 3314400, 12, 0, 0, 4, 4, 0, 45, 16, 1, 0, 0, 16, 26, 32, 0, 11, 13, 2844, 3145728}},
    {1, 0, {128, 128, 16, 1, 1, 1, 3872192, 4427175, 12326, 161817, 161817, 97090, 97090, 790123, 80909, 80, 0, 1190800, 2, 1, 1, 0, 0, 0, 0, 0, 3928800, 1, 0, 0, 4, 4, 0, 16, 16, 1, 0, 0, 16, 26, 16, 0, 11, 13, 3200, 4194304}},
};

struct Limits {
  bool swapped;  // whether it computes the transpose of D
  int last;  // compute capability that runs it; 0: all newer ones do
  int shared;  // bytes of shared memory
};

constexpr Limits kLimits[] = {
    {false, 0, 16896},
    {false, 0, 37392},
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

// For a kernel that needs no workspace.
template <auto kLaunch>
cudaError_t launch_without_workspace(
    long long M, long long N, long long K, float alpha, const float* A, long long lda,
    const float* B, long long ldb, float beta, const float* C, long long ldc, float* D,
    long long ldd, void*, size_t, cudaStream_t stream) {
  return kLaunch(M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd, stream);
}

struct Kernel {
  cudaError_t (*workspace)(
      long long M, long long N, long long K, const float* A, long long lda, const float* B,
      long long ldb, size_t* bytes);  // null: needs none
  cudaError_t (*launch)(
      long long M, long long N, long long K, float alpha, const float* A, long long lda,
      const float* B, long long ldb, float beta, const float* C, long long ldc, float* D,
      long long ldd, void* workspace, size_t workspace_bytes, cudaStream_t stream);
};

// clang-format off
constexpr Kernel kKernels[] = {
    {nullptr, launch_without_workspace<steps_best1_ns::steps_best1_launch>},
    {steps_best2_ns::steps_best2_workspace, steps_best2_ns::steps_best2_launch},
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
  const cudaError_t error = choose(M, N, K, A, lda, B, ldb, kernel);
  if (error != cudaSuccess || kernel->workspace == nullptr) return error;
  return kernel->workspace(M, N, K, A, lda, B, ldb, bytes);
}

// As the launchers above, of which it calls the one for the problem on the current device.
extern "C" cudaError_t  // cudaSuccess once the kernel is on its way
steps_launch(  // D = alpha * A * B + beta * C
    long long M, long long N, long long K, float alpha, const float* A, long long lda,
    const float* B, long long ldb, float beta, const float* C, long long ldc, float* D,
    long long ldd, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  const Kernel* kernel = nullptr;
  const cudaError_t error = choose(M, N, K, A, lda, B, ldb, kernel);
  if (error != cudaSuccess) return error;
  return kernel->launch(
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd, workspace, workspace_bytes, stream);
}

}  // namespace steps_ns

#endif  // __CUDACC_RTC__
