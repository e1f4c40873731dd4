// gemm_rec_tiles_f32_rrr: D = alpha * A * B + beta * C
//
// A block computes a rectangle of D: kCoarsen square tiles, side by side. At each step along K its
// threads copy one tile of A and kCoarsen neighbouring tiles of B into shared memory. A thread then
// computes kCoarsen results from one element of A, so that A is read kCoarsen times less often than
// with square tiles, from global and from shared memory alike.
//
//   A  M x K, row-major, float
//   B  K x N, row-major, float
//   C  M x N, row-major, float; not read when beta is 0
//   D  M x N, row-major, float; must not overlap A or B; may be C, where ldc is ldd
//
// Any M, N, K >= 0. Accumulators, alpha and beta are float. Leading dimensions count elements.
// Needs a GPU of compute capability 7.5 or newer and C++17.
//
// Made by gemmgen 0.2.0:  gen emit --variant rec_tiles --dtype f32 --layout rrr --arch sm_80 --tile 32 --coarsen 2 --threads 1024 --epilogue linear
// Compile:  nvcc -std=c++17 -arch=sm_80 -c gemm_rec_tiles_f32_rrr.cu, or by NVRTC as it is
// gen-spec: {"variant": "rec_tiles", "dtype": "f32", "layout": "rrr", "arch": "sm_80", "tile": 32, "coarsen": 2, "threads": 1024, "epilogue": "linear"}
// SPDX-License-Identifier: 0BSD

namespace gemm_rec_tiles_f32_rrr_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = float;
using output_t = float;
using accumulator_t = float;
using scalar_t = accumulator_t;  // of alpha, beta, the epilogue

constexpr int kTile = 32;  // width of the square tiles of A, B and D
constexpr int kCoarsen = 2;  // neighbouring tiles of B and D per block
constexpr int kThreadRows = 32;  // the block's threads: kTile along x, this many along y
constexpr int kRowsPerThread = kTile / kThreadRows;  // rows of D that one thread computes
constexpr int kThreads = kTile * kThreadRows;
constexpr int kWidth = kTile * kCoarsen;  // columns of D per block
constexpr int kSharedBytes = (1 + kCoarsen) * kTile * kTile * sizeof(accumulator_t);  // 12288

static_assert(kRowsPerThread * kThreadRows == kTile, "every thread has as many rows");
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
__device__ inline void epilogue(
    accumulator_t sum, index_t row, index_t col, scalar_t alpha, scalar_t beta, const output_t* C,
    index_t ldc, output_t* D, index_t ldd) {
  scalar_t x = alpha * sum;
  if (beta != 0) x += beta * scalar_t(C[c_at(row, col, ldc)]);
  D[c_at(row, col, ldd)] = output_t(x);
}

extern "C" __global__ void __launch_bounds__(kThreads)  // lets the compiler count on the block size
    gemm_rec_tiles_f32_rrr(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        const input_t* __restrict__ B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc,
        output_t* D, index_t ldd) {
  // One tile of A and kCoarsen of B: kSharedBytes, dynamic since they may be more than 48 KiB.
  extern __shared__ __align__(128) unsigned char shared[];
  auto tile_a = reinterpret_cast<accumulator_t(*)[kTile]>(shared);
  auto tile_b = reinterpret_cast<accumulator_t(*)[kWidth]>(tile_a + kTile);

  const int x = threadIdx.x;
  const index_t col0 = index_t(blockIdx.x) * kWidth;

  // A grid has at most 65,535 blocks along y: where D has more rows, blocks stride over the rest.
  for (index_t row0 = index_t(blockIdx.y) * kTile; row0 < M; row0 += index_t(gridDim.y) * kTile) {
    accumulator_t sum[kRowsPerThread][kCoarsen] = {};

    for (index_t k0 = 0; k0 < K; k0 += kTile) {
      // Threads whose elements of D do not exist load too: the others need what they bring, and
      // every thread of the block has to arrive at the barriers.
      for (int i = 0; i < kRowsPerThread; ++i) {
        const int y = threadIdx.y + i * kThreadRows;
        const index_t row = row0 + y;
        const bool in_a = row < M && k0 + x < K;
        tile_a[y][x] =
            in_a ? static_cast<accumulator_t>(A[a_at(row, k0 + x, lda)]) : accumulator_t(0);
        for (int j = 0; j < kCoarsen; ++j) {
          const index_t col = col0 + j * kTile + x;
          const bool in_b = k0 + y < K && col < N;
          tile_b[y][j * kTile + x] =
              in_b ? static_cast<accumulator_t>(B[b_at(k0 + y, col, ldb)]) : accumulator_t(0);
        }
      }
      __syncthreads();  // all tiles are complete

#pragma unroll
      for (int k = 0; k < kTile; ++k) {
        for (int i = 0; i < kRowsPerThread; ++i) {
          const accumulator_t a = tile_a[threadIdx.y + i * kThreadRows][k];
          for (int j = 0; j < kCoarsen; ++j) sum[i][j] += a * tile_b[k][j * kTile + x];
        }
      }
      __syncthreads();  // no thread reads these tiles any more: the next ones may replace them
    }

    for (int i = 0; i < kRowsPerThread; ++i) {
      const index_t row = row0 + threadIdx.y + i * kThreadRows;
      for (int j = 0; j < kCoarsen; ++j) {
        const index_t col = col0 + j * kTile + x;
        if (row < M && col < N) {
          epilogue(sum[i][j], row, col, alpha, beta, C, ldc, D, ldd);
        }
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
//        short, a matrix of more than 2^44 elements
//     9  cudaErrorInvalidConfiguration: more blocks than a grid may have
//   209  cudaErrorNoKernelImageForDevice: a GPU older than nvcc's -arch. For newer ones the driver
//        compiles the file's PTX when it is first needed, unless nvcc was told to leave PTX out
//   400  cudaErrorInvalidResourceHandle: a stream of another device
extern "C" cudaError_t  // cudaSuccess once the kernel is on its way
gemm_rec_tiles_f32_rrr_launch(  // D = alpha * A * B + beta * C
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

  const index_t grid_x = (N + kWidth - 1) / kWidth;  // columns of blocks
  const index_t rows = (M + kTile - 1) / kTile;  // of blocks; they stride over the rest
  const index_t grid_y = rows < 65535 ? rows : 65535;
  if (grid_x > 2147483647) return cudaErrorInvalidConfiguration;  // a grid is not wider
  int device;
  cudaError_t error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const auto kernel = gemm_rec_tiles_f32_rrr;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;
  const dim3 grid{unsigned(grid_x), unsigned(grid_y)}, block{kTile, kThreadRows};
  return launch(
      kernel, grid, block, kSharedBytes, stream,  // and its parameters:
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd);
}

#endif  // __CUDACC_RTC__
}  // namespace gemm_rec_tiles_f32_rrr_ns
