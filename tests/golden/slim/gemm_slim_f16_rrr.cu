// gemm_slim_f16_rrr: D = alpha * A * B + beta * C
//
// For products of few rows, which take as long as it takes to read B, wherever its lines begin. Tensor cores
// multiply with their operands swapped: 16 columns of B are the rows of an instruction's first operand, 8 rows
// of A the columns of its second one.
//
// Both are copied to shared memory, 3 steps along K ahead, in chunks: 16 bytes from a multiple of 16 bytes on. A line
// that begins elsewhere lies shifted in its chunks. But lines whose numbers differ by a multiple of 8 are
// shifted alike. So a warp multiplies every eighth line: ldmatrix reads fragments of B as they lie, and only
// the few elements of A are sought one by one.
//
// Lines of B run across K, so that eight warps have a part of each sum: in the end these are added up, each from
// where its lines are shifted to.
//
//   A  M x K, row-major, __half
//   B  K x N, row-major, __half
//   C  M x N, row-major, __half; not read when beta is 0
//   D  M x N, row-major, __half; must not overlap A or B; may be C, where ldc is ldd
//
// Any M, N, K >= 0. Accumulators, alpha and beta are float. Leading dimensions count elements.
// Needs a GPU of compute capability 8.0 or newer and C++17.
//
// Made by gemmgen 0.2.0:  gen emit --variant slim --dtype f16 --layout rrr --arch sm_80 --few rows --vectors 8 --strip 120 --threads 256 --cluster 1x1 --epilogue linear
// Compile:  nvcc -std=c++17 -arch=sm_80 -c gemm_slim_f16_rrr.cu, or by NVRTC as it is
// gen-spec: {"variant": "slim", "dtype": "f16", "layout": "rrr", "arch": "sm_80", "few": "rows", "vectors": 8, "strip": 120, "threads": 256, "cluster": "1x1", "epilogue": "linear"}
// SPDX-License-Identifier: 0BSD

#include <cuda_fp16.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "for -arch=sm_80 or newer: older GPUs lack the kernel's instructions"
#endif

namespace gemm_slim_f16_rrr_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = __half;
using output_t = __half;
using accumulator_t = float;
using scalar_t = accumulator_t;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;
constexpr int kRows = 8, kCols = 120;  // of D, that a block computes
constexpr int kThreads = 256;  // per block
constexpr int kBlocks = 2;  // of a multiprocessor: the compiler spends registers accordingly
constexpr int kSharedBytes = 77824;  // per block

static_assert(kThreads % 256 == 0 && kThreads <= 1024, "as many warps for every eighth line");
static_assert(kSharedBytes <= 227 * 1024, "no GPU gives a block more shared memory");

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
__device__ inline void epilogue(
    accumulator_t sum, index_t row, index_t col, scalar_t alpha, scalar_t beta, const output_t* C,
    index_t ldc, output_t* D, index_t ldd) {
  scalar_t x = alpha * sum;
  if (beta != 0) x += beta * scalar_t(C[c_at(row, col, ldc)]);
  D[c_at(row, col, ldd)] = output_t(x);
}

constexpr int kWidth = 8;  // elements of a chunk; lines this far apart are shifted alike
constexpr int kStep = 64;  // elements along K of a stage
constexpr int kStages = 4;  // steps that are in shared memory, or on their way there
constexpr int kTeams = kThreads / 32 / kWidth;  // of eight warps, which share the columns of a tile
// Of a warp: 16 columns of B and 8 rows of A each.
constexpr int kFragments = (kCols + kWidth) / 16 / kTeams, kGroups = kRows / 8;
static_assert((kCols + kWidth) % (32 * kTeams) == 0 && kRows % 8 == 0, "fragments are whole");

// acc += a * b, of 16 by 8 elements and of 8 by 8.
__device__ inline void mma(accumulator_t (&acc)[4], uint32_t a0, uint32_t a1, uint32_t b) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
      : "r"(a0), "r"(a1), "r"(b));
}

__device__ inline uint32_t shared_address(const void* pointer) {  // as PTX instructions take it
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
__device__ inline void ldmatrix_trans(uint32_t (&fragment)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"(address));
}
// Starts to copy 16 bytes; those behind the first `bytes` become zeros.
__device__ inline void cp_async(uint32_t shared, const void* global, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(bytes)
               : "memory");
}
__device__ inline void commit_copies() {  // those started so far are a group
  asm volatile("cp.async.commit_group;" ::: "memory");
}
__device__ inline void wait_for_copies() {  // of all groups but the newest kStages - 2
  asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
}

// Keeps the compiler from computing it again in every step, to spare a register.
__device__ inline void hold(int& x) {
  asm volatile("" : "+r"(x));
}
// Elements from the last multiple of 16 bytes to this one.
__device__ inline int shift_of(const input_t* element) {
  return int(reinterpret_cast<size_t>(element) / sizeof(input_t) % kWidth);
}
// Whether the chunks of a step that begins at k are inside of their matrix: those of the first
// step and of the last ones may begin before it, or end behind it.
__device__ inline bool is_inside(index_t k, index_t K) {
  return k > 0 && K - k >= kStep + kWidth;
}
// Copies a chunk, from `first` on of the `wanted` elements at `begin`. Others become zeros.
__device__ inline void copy_edge(input_t* to, const input_t* begin, index_t first, index_t wanted) {
  if (first >= 0 && first + kWidth <= wanted) {
    cp_async(shared_address(to), begin + first, 16);
    return;
  }
#pragma unroll
  for (int e = 0; e < kWidth; ++e) {
    const bool exists = first + e >= 0 && first + e < wanted;
    to[e] = exists ? begin[first + e] : input_t(0);
  }
}

// What a block copies of B: of each k a line of columns. In a stage, lines whose numbers have the same
// remainder by eight are neighbours: ldmatrix reads eight of these, in different banks.
struct BLines {
  static constexpr int kLines = kStep, kChunks = kCols / kWidth + 1;  // of each line
  static constexpr int kPitch = (kChunks + 1) * kWidth, kElements = kLines * kPitch;
  static constexpr int kApart = kThreads / kChunks;  // lines of a thread, which are shifted alike
  static_assert(kThreads % kChunks == 0 && kApart % kWidth == 0, "threads have whole lines");

  const input_t* origin;  // of the tile, for k = 0
  index_t ld;
  int count;  // columns that exist, of those in the tile
  // The thread's first line, and what of it: elements from the first wanted one on.
  int line, chunk;
  const input_t* from;  // that chunk, of the next step
  int to;  // where it goes in a stage
  int bytes;  // to copy of each of its chunks: none behind the last column

  __device__ BLines(const input_t* matrix, index_t distance, index_t first, index_t all, index_t k)
      : origin(matrix + first), ld(distance) {
    count = all - first < kCols ? int(all - first) : kCols;
    line = threadIdx.x / kChunks;
    chunk = threadIdx.x % kChunks * kWidth - shift(line);
    from = origin + (k + line) * ld + chunk;
    to = place(line) + threadIdx.x % kChunks * kWidth;
    bytes = chunk < count ? 16 : 0;
    hold(bytes);
    hold(to);
  }
  // Elements that a line is shifted by.
  __device__ int shift(int number) const {
    return shift_of(origin + number * ld);
  }
  // Where in a stage it is.
  static __device__ int place(int number) {
    return (number % kWidth * (kLines / kWidth) + number / kWidth) * kPitch;
  }
  // Starts the thread's copies of the step that begins at k. What K lacks becomes zeros.
  __device__ void copy(input_t* stage, index_t k, index_t K) {
    stage += to;
    if (is_inside(k, K)) {
      const uint32_t begin = shared_address(stage);
#pragma unroll
      for (int i = 0; i * kApart < kLines; ++i) {
        const uint32_t at = place(i * kApart) * sizeof(input_t);
        cp_async(begin + at, from + i * kApart * ld, bytes);
      }
    } else {
#pragma unroll 1
      for (int i = 0; i * kApart < kLines; ++i) {
        input_t* const place_of = stage + place(i * kApart);
        const index_t its = k + line + i * kApart;
        copy_edge(place_of, origin + its * ld, chunk, its < K ? count : 0);
      }
    }
    from += kStep * ld;
  }
};

// What it copies of A: of each row a line, in a window of whole chunks.
struct AWindows {
  static constexpr int kLines = kRows, kChunks = kStep / kWidth + 1;  // of each line
  static constexpr int kPitch = kChunks * kWidth;
  static constexpr int kElements = kLines * kPitch, kAll = kLines * kChunks;
  static constexpr int kCopies = (kAll + kThreads - 1) / kThreads;  // of a thread

  const input_t* origin;  // of the tile, for k = 0
  index_t ld;
  int count;  // rows that exist, of those in the tile
  // The thread's chunks of the next step, where they go in a stage, the bytes of them to copy.
  const input_t* from[kCopies];
  int to[kCopies], bytes[kCopies];
  int even, odd;  // where the lane's two elements for the first row of 8 are in a stage

  // residue: of the warp's k by eight.
  __device__ AWindows(
      const input_t* matrix, index_t distance, index_t first, index_t all, index_t k, int residue)
      : origin(matrix + first * distance), ld(distance) {
    count = all - first < kRows ? int(all - first) : kRows;
#pragma unroll
    for (int n = 0; n < kCopies; ++n) {
      const int at = threadIdx.x + n * kThreads, line = at / kChunks;
      const int chunk = at % kChunks * kWidth - shift_of(origin + line * ld);
      from[n] = origin + line * ld + k + chunk;
      bytes[n] = line < count ? 16 : 0;
      to[n] = at < kAll ? line * kPitch + at % kChunks * kWidth : -1;
      hold(to[n]), hold(bytes[n]);
    }
    // Lane 4g + t (g = 0..7, t = 0..3) has row g of 8, and two of 8 k, which are eight apart.
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    even = place(g, residue + 2 * kWidth * t);
    odd = place(g, residue + 2 * kWidth * t + kWidth);
    hold(even), hold(odd);
  }
  // Starts the thread's copies of the step that begins at k. What K lacks becomes zeros.
  __device__ void copy(input_t* stage, index_t k, index_t K) {
    const bool inside = is_inside(k, K);
#pragma unroll
    for (int n = 0; n < kCopies; ++n) {
      if (to[n] < 0) break;
      if (inside) {
        cp_async(shared_address(stage + to[n]), from[n], bytes[n]);
      } else {
        const int at = threadIdx.x + n * kThreads, line = at / kChunks;
        const int chunk = at % kChunks * kWidth - shift_of(origin + line * ld);
        copy_edge(stage + to[n], origin + line * ld, k + chunk, bytes[n] > 0 ? K : 0);
      }
      from[n] += kStep;
    }
  }
  // The lane's two elements, 8 * eights rows beyond its first ones.
  __device__ uint32_t pair(const input_t* stage, int eights) const {
    const auto words = reinterpret_cast<const unsigned short*>(stage);
    const int at = 8 * eights * kPitch;
    return words[even + at] | uint32_t(words[odd + at]) << 16;
  }

 private:
  // Of row i and the window's k.
  __device__ int place(int i, int k) const {
    return i * kPitch + shift_of(origin + i * ld) + k;
  }
};

constexpr int kStage = BLines::kElements + AWindows::kElements;  // elements of a stage
// What every eighth line comes to, for 8 rows of A: not columns of D yet, but places in lines.
using Parts = accumulator_t[kWidth][8][kCols + kWidth + 4];  // 4 against bank conflicts
struct Sums {
  accumulator_t d[kRows][kCols];
  Parts parts;
};
union alignas(16) Shared {
  input_t stages[kStages][kStage];
  Sums sums;  // then
};
static_assert(sizeof(Shared) <= kSharedBytes, "the launcher gives a block as much");

// Computes the sums of the tile of D that begins at (row0, col0).
__device__ inline void multiply(
    Shared& shared, index_t row0, index_t col0, index_t M, index_t N, index_t K, const input_t* A,
    index_t lda, const input_t* B, index_t ldb) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int residue = warp % kWidth, team = warp / kWidth;
  const index_t steps = (K + kStep - 1) / kStep;
  constexpr index_t begin = 0;
  const index_t end = steps * kStep;
  BLines b(B, ldb, col0, N, begin);
  AWindows a(A, lda, row0, M, begin, residue);
  // Lane l reads line l % 8 of 8, and chunk l / 8 of 4.
  int fragments = BLines::place(residue + kWidth * (lane % 8));
  fragments += (team * 2 * kFragments + lane / 8) * kWidth;
  hold(fragments);
  accumulator_t acc[kFragments][kGroups][4] = {};
  int stage = 0;
#pragma unroll 1
  for (index_t k = begin - (kStages - 1) * kStep; k < end; k += kStep) {
    if (k >= begin) {
      wait_for_copies();
      __syncthreads();  // the step is there, and the one before has been read
    }
    const index_t next = k + (kStages - 1) * kStep;
    if (next < end) {
      b.copy(shared.stages[stage], next, K);
      a.copy(shared.stages[stage] + BLines::kElements, next, K);
    }
    commit_copies();
    stage = stage == kStages - 1 ? 0 : stage + 1;
    if (k < begin) continue;
    const uint32_t b_stage = shared_address(shared.stages[stage] + fragments);
    const input_t* const a_stage = shared.stages[stage] + BLines::kElements;
    uint32_t a_fragments[kGroups];
#pragma unroll
    for (int i = 0; i < kGroups; ++i) a_fragments[i] = a.pair(a_stage, i);
#pragma unroll
    for (int f = 0; f < kFragments; f += 2) {
      uint32_t fragment[4];  // of two
      ldmatrix_trans(fragment, b_stage + 16 * f * sizeof(input_t));
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
        mma(acc[f][i], fragment[0], fragment[1], a_fragments[i]);
        mma(acc[f + 1][i], fragment[2], fragment[3], a_fragments[i]);
      }
    }
  }

#pragma unroll
  for (int i0 = 0; i0 < kGroups; ++i0) {
    __syncthreads();  // all steps, or parts, have been read: the next parts take their place
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int place = (team * kFragments + f) * 16 + g + r / 2 * 8;
        shared.sums.parts[residue][2 * t + r % 2][place] = acc[f][i0][r];
      }
    }
    __syncthreads();
    for (int at = threadIdx.x; at < 8 * kCols; at += kThreads) {
      const int i = at / kCols, j = at % kCols;
      accumulator_t sum = 0;
#pragma unroll
      for (int r = 0; r < kWidth; ++r) sum += shared.sums.parts[r][i][b.shift(r) + j];
      shared.sums.d[8 * i0 + i][j] = sum;
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    gemm_slim_f16_rrr(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        const input_t* __restrict__ B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc,
        output_t* D, index_t ldd) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  auto& shared = reinterpret_cast<Shared&>(shared_bytes);
  const auto& sums = shared.sums.d;  // in the end
  const index_t groups = (M + kRows - 1) / kRows, strips = (N + kCols - 1) / kCols;

  // Neighbouring blocks have the same columns of D, and read the same of B.
  // A grid has at most 2^31 - 1 blocks: where there are more tiles, they stride over the rest.
  for (index_t tile = blockIdx.x; tile < groups * strips; tile += gridDim.x) {
    const index_t row0 = tile % groups * kRows, col0 = tile / groups * kCols;
    multiply(shared, row0, col0, M, N, K, A, lda, B, ldb);
    __syncthreads();  // the sums of all warps are there
    for (int at = threadIdx.x; at < kRows * kCols; at += kThreads) {
      const int i = at / kCols, j = at % kCols;
      const accumulator_t sum = sums[i][j];
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
gemm_slim_f16_rrr_launch(  // D = alpha * A * B + beta * C
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

  const index_t tiles = (M + kRows - 1) / kRows * ((N + kCols - 1) / kCols);  // of D
  const index_t grid_x = tiles < 2147483647 ? tiles : 2147483647;
  int device;
  cudaError_t error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const auto kernel = gemm_slim_f16_rrr;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;
  const dim3 grid{unsigned(grid_x)}, block{kThreads};
  return launch(
      kernel, grid, block, kSharedBytes, stream,  // and its parameters:
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd);
}

#endif  // __CUDACC_RTC__
}  // namespace gemm_slim_f16_rrr_ns
