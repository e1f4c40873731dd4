// gemm_multistage_f32_crc_batched: D = alpha * A * B + beta * C
//
// As with warp tiles, but shared memory has kStages tiles of A and B. While threads multiply one, cp.async
// copies those of the next steps, past the registers: nobody waits for global memory as long as copies take
// less time than kStages - 1 steps. It cannot transpose a vector, and copies an operand that lies along
// K element by element.
//
//   A  M x K, column-major, float
//   B  K x N, row-major, float
//   C  M x N, column-major, float; not read when beta is 0
//   D  M x N, column-major, float; must not overlap A or B; may be C, where ldc is ldd
//
// A batch of such products: their matrices are stride_a, stride_b, stride_c and stride_d elements apart.
// Where a stride of A, B or C is 0, all products have the same matrix. Those of D do not overlap; where
// D is C, both have one stride.
//
// Any M, N, K >= 0. Accumulators, alpha and beta are float. Leading dimensions count elements.
// Needs a GPU of compute capability 8.0 or newer and C++17.
//
// Made by gemmgen 0.2.0:  gen emit --variant multistage --dtype f32 --layout crc --arch sm_80 --threadblock 128x128x16 --thread-tile 8x8 --warp 32x64 --stages 3 --epilogue linear --batched
// Compile:  nvcc -std=c++17 -arch=sm_80 -c gemm_multistage_f32_crc_batched.cu, or by NVRTC as it is
// gen-spec: {"variant": "multistage", "dtype": "f32", "layout": "crc", "arch": "sm_80", "threadblock": "128x128x16", "thread_tile": "8x8", "warp": "32x64", "stages": 3, "epilogue": "linear", "batched": true}
// SPDX-License-Identifier: 0BSD

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "for -arch=sm_80 or newer: older GPUs lack the kernel's instructions"
#endif

namespace gemm_multistage_f32_crc_batched_ns {  // several emitted files may be in one program
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

// D is column-major. What the kernel computes is the transpose of D, B' * A', which is row-major: here M, N, A
// and B are those of that product.

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
constexpr int kPitchA = kTileM / kVector;  // vectors of a line
constexpr int kDepthA = kThreads / kPitchA;  // lines of A's tile copied at once
constexpr int kCopiesA = kTileK / kDepthA;  // vectors that each thread copies
constexpr int kPitchB = kTileN / kVector;  // vectors of a line
constexpr int kDepthB = kThreads / kPitchB;  // lines of B's tile copied at once
constexpr int kCopiesB = kTileK / kDepthB;  // vectors that each thread copies

static_assert(sizeof(input_t) == sizeof(accumulator_t), "cp.async copies bytes as they are");
static_assert(kStages * kTileK * (kPitchA + kPitchB) * 16 <= kSharedBytes);

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    gemm_multistage_f32_crc_batched(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        index_t stride_a, const input_t* __restrict__ B, index_t ldb, index_t stride_b,
        scalar_t beta, const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd,
        index_t stride_d, index_t first) {
  // Blocks along z have a product each.
  const index_t product = first + blockIdx.z;
  A += product * stride_a;
  B += product * stride_b;
  if (beta != 0) C += product * stride_c;
  D += product * stride_d;

  // kStages tiles of A, then of B: kSharedBytes, dynamic since they may be more than 48 KiB.
  extern __shared__ __align__(128) unsigned char shared[];
  auto tile_a = reinterpret_cast<Vector(*)[kTileK][kPitchA]>(shared);
  auto tile_b = reinterpret_cast<Vector(*)[kTileK][kPitchB]>(tile_a + kStages);

  // Where in the block's tile the thread's first vectors of results lie. Lanes go down two rows
  // first, then along them.
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int x = warp % (kTileN / kWarpN) * (kWarpN / kVector) + lane / 2 % kBeside;
  const int y = warp / (kTileN / kWarpN) * (kWarpM / kVector) + lane / (2 * kBeside) * 2 + lane % 2;
  // What it copies first.
  const int a_k = threadIdx.x / kPitchA;
  const int a_row = threadIdx.x % kPitchA * kVector;
  const int b_k = threadIdx.x / kPitchB;
  const int b_col = threadIdx.x % kPitchB * kVector;
  const bool a_aligned = is_aligned(A, lda);
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
        const int k = i * kDepthA;
        const int count = a_k + k < depth ? rows - a_row : 0;
        Vector& to = tile_a[fill][a_k + k][a_row / kVector];
        copy(to, a_from + a_at(0, k, lda), count, a_aligned);
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
//     9  cudaErrorInvalidConfiguration: more blocks than a grid may have
//   209  cudaErrorNoKernelImageForDevice: a GPU older than nvcc's -arch. For newer ones the driver
//        compiles the file's PTX when it is first needed, unless nvcc was told to leave PTX out
//   400  cudaErrorInvalidResourceHandle: a stream of another device
extern "C" cudaError_t  // cudaSuccess once the kernel is on its way
gemm_multistage_f32_crc_batched_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, index_t batch, scalar_t alpha, const input_t* A, index_t lda,
    index_t stride_a, const input_t* B, index_t ldb, index_t stride_b, scalar_t beta,
    const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd, index_t stride_d,
    cudaStream_t stream) {
  constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows
  if (M < 0 || N < 0 || K < 0 || batch < 0) return cudaErrorInvalidValue;
  if (M == 0 || N == 0 || batch == 0) return cudaSuccess;  // D has no elements
  if (K > 0 && (A == nullptr || lda < M || lda > kLargest / K)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return cudaErrorInvalidValue;
  if (K > 0 && (stride_a < 0 || stride_a > kLargest / batch)) return cudaErrorInvalidValue;
  if (K > 0 && (stride_b < 0 || stride_b > kLargest / batch)) return cudaErrorInvalidValue;
  if (beta != 0 && (C == nullptr || ldc < M || ldc > kLargest / N)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < M || ldd > kLargest / N) return cudaErrorInvalidValue;
  if (beta != 0 && (stride_c < 0 || stride_c > kLargest / batch)) return cudaErrorInvalidValue;
  if (stride_d < 0 || stride_d > kLargest / batch) return cudaErrorInvalidValue;
  // Products of D do not overlap.
  const bool follow = stride_d >= (N - 1) * ldd + M;  // one behind the other
  const bool beside = stride_d >= M && (batch - 1) * stride_d + M <= ldd;  // in the same lines
  if (batch > 1 && !follow && !beside) return cudaErrorInvalidValue;

  const index_t tiles_m = (N + kTileM - 1) / kTileM;
  const index_t tiles_n = (M + kTileN - 1) / kTileN;
  const index_t grid_x = tiles_m * tiles_n;  // a block for each tile of D
  if (grid_x > 2147483647) return cudaErrorInvalidConfiguration;  // a grid is not wider
  int device;
  cudaError_t error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const auto kernel = gemm_multistage_f32_crc_batched;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;
  constexpr index_t most = 65535;  // products of a launch: blocks of a grid along z
  for (index_t first = 0; first < batch && error == cudaSuccess; first += most) {
    const index_t products = batch - first < most ? batch - first : most;
    const dim3 grid{unsigned(grid_x), 1, unsigned(products)};
    error = launch(
        kernel, grid, dim3{kThreads}, kSharedBytes, stream,  // and its parameters:
        N, M, K, alpha, B, ldb, stride_b, A, lda, stride_a, beta, C, ldc, stride_c, D, ldd,
        stride_d, first);
  }
  return error;
}

#endif  // __CUDACC_RTC__
}  // namespace gemm_multistage_f32_crc_batched_ns
