// gemm_f32: D = alpha * A * B + beta * C
//
// A block computes a rectangle of D: kCoarsen square tiles, side by side. At each step along K its
// threads copy one tile of A and kCoarsen neighbouring tiles of B into shared memory. A thread then
// computes kCoarsen results from one element of A, so that A is read kCoarsen times less often than
// with square tiles, from global and from shared memory alike.
//
//   A  M x K, row-major, float
//   B  K x N, row-major, float
//   C  M x N, row-major, float; not read when beta is 0
//   D  M x N, row-major, float; may be C, must not overlap A or B
//
// Any M, N, K >= 0. Sums, alpha and beta are float. Leading dimensions count elements.
// Needs a GPU of compute capability 7.5 or newer and C++17.
//
// Made by gemmgen 0.1.0:  gen emit --variant rec_tiles --dtype f32 --layout rrr --arch sm_80 --tile 16 --coarsen 2 --threads 256 --name gemm_f32
// Compile:  nvcc -std=c++17 -arch=sm_80 -c gemm_f32.cu
//           NVRTC takes the file as it is, too.
// gen-spec: {"variant": "rec_tiles", "dtype": "f32", "layout": "rrr", "arch": "sm_80", "tile": 16, "coarsen": 2, "threads": 256, "name": "gemm_f32"}
// SPDX-License-Identifier: 0BSD

// The namespace keeps apart the constants of several emitted files in one program.
namespace gemm_f32_ns {

using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = float;
using accumulator_t = float;
using output_t = float;

constexpr int kTile = 16;  // width of the square tiles of A, B and D
constexpr int kCoarsen = 2;  // neighbouring tiles of B and D per block
constexpr int kThreadRows = 16;  // the block's threads: kTile along x, this many along y
constexpr int kRowsPerThread = kTile / kThreadRows;  // rows of D that one thread computes
constexpr int kThreads = kTile * kThreadRows;
constexpr int kWidth = kTile * kCoarsen;  // columns of D per block
constexpr int kSharedBytes = (1 + kCoarsen) * kTile * kTile * sizeof(accumulator_t);

static_assert(kTile % kThreadRows == 0, "every thread has the same number of rows");
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

// alpha * sum + beta * C[i]. As in BLAS, C is not read when beta is 0: it may hold NaN or be null.
__device__ inline output_t epilogue(
    accumulator_t sum, accumulator_t alpha, accumulator_t beta, const output_t* C, index_t i) {
  accumulator_t result = alpha * sum;
  if (beta != accumulator_t(0)) result += beta * static_cast<accumulator_t>(C[i]);
  return static_cast<output_t>(result);
}

extern "C" __global__ void __launch_bounds__(kThreads)  // lets the compiler count on the block size
    gemm_f32(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, accumulator_t alpha, const input_t* __restrict__ A,
        index_t lda, const input_t* __restrict__ B, index_t ldb, accumulator_t beta,
        const output_t* C, index_t ldc, output_t* D, index_t ldd) {
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
      for (int y = threadIdx.y; y < kTile; y += kThreadRows) {
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
          D[c_at(row, col, ldd)] = epilogue(sum[i][j], alpha, beta, C, c_at(row, col, ldc));
        }
      }
    }
  }
}

#ifndef __CUDACC_RTC__  // the host's side, for programs built by nvcc

// Whether a stream is of the current device. The runtime launches a kernel on the stream's device,
// whichever is current, where it would run into matrices that it cannot reach.
inline cudaError_t check_stream([[maybe_unused]] cudaStream_t stream) {
#if CUDART_VERSION >= 13000  // older ones run with drivers that cannot tell
  cudaStreamCaptureStatus capture;
  cudaError_t error = cudaStreamIsCapturing(stream, &capture);
  if (error != cudaSuccess) return error;
  if (capture != cudaStreamCaptureStatusNone) return cudaSuccess;  // it must not be asked then
  int current, own;
  error = cudaGetDevice(&current);
  if (error == cudaSuccess) error = cudaStreamGetDevice(stream, &own);
  if (error != cudaSuccess) return error;
  if (own != current) return cudaErrorInvalidResourceHandle;
#endif
  return cudaSuccess;
}

// Checks the arguments and launches the kernel on a stream; never prints, exits or allocates.
// Returns cudaErrorInvalidValue for a negative size, a null matrix, a leading dimension too short,
// cudaErrorInvalidResourceHandle for a stream of another device.
extern "C" cudaError_t  // cudaSuccess once the kernel is on its way
gemm_f32_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, accumulator_t alpha, const input_t* A, index_t lda,
    const input_t* B, index_t ldb, accumulator_t beta, const output_t* C, index_t ldc, output_t* D,
    index_t ldd, cudaStream_t stream) {
  if (M < 0 || N < 0 || K < 0) return cudaErrorInvalidValue;
  if (M == 0 || N == 0) return cudaSuccess;  // D has no elements
  const bool good_a = K == 0 || (A != nullptr && lda >= K);
  const bool good_b = K == 0 || (B != nullptr && ldb >= N);
  const bool good_c = beta == accumulator_t(0) || (C != nullptr && ldc >= N);
  const bool good_d = D != nullptr && ldd >= N;
  if (!(good_a && good_b && good_c && good_d)) return cudaErrorInvalidValue;
  cudaError_t error = check_stream(stream);
  if (error != cudaSuccess) return error;

  const index_t blocks_x = (N + kWidth - 1) / kWidth;
  if (blocks_x > 2147483647) return cudaErrorInvalidConfiguration;  // a grid is not wider
  const index_t blocks_y = (M + kTile - 1) / kTile;
  const dim3 grid(blocks_x, blocks_y < 65535 ? blocks_y : 65535);
  const dim3 block(kTile, kThreadRows);
  const auto kernel = gemm_f32;
  const size_t shared_bytes = kSharedBytes;
  // More than 48 KiB of dynamic shared memory has to be asked for.
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;
  kernel<<<grid, block, shared_bytes, stream>>>(
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd);
  return cudaGetLastError();
}

#endif  // __CUDACC_RTC__

}  // namespace gemm_f32_ns
