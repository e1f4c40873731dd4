// gemm_thread_tile_2d_f64_rrc_linear_bias: D = alpha * A * B + beta * C + bias
//
// A thread computes kThreadM x kThreadN results instead of a column of them. At each k it reads kThreadM
// elements of A and kThreadN of B for kThreadM * kThreadN multiplications: shared memory is read several
// times less than for a column. A thread's columns are kBeside apart, so that neighbouring threads read
// neighbouring elements of shared memory, and write neighbouring elements of D.
//
//   A  M x K, row-major, double
//   B  K x N, row-major, double
//   C  M x N, column-major, double; not read when beta is 0
//   D  M x N, column-major, double; must not overlap A or B; may be C, where ldc is ldd
//   bias  N elements, double: one for each column of D
//
// Any M, N, K >= 0. Accumulators, alpha and beta are double. Leading dimensions count elements.
// Needs a GPU of compute capability 7.5 or newer and C++17.
//
// Made by gemmgen 0.2.0:  gen emit --variant thread_tile_2d --dtype f64 --layout rrc --arch sm_80 --threadblock 64x128x16 --thread-tile 8x8 --epilogue linear_bias
// Compile:  nvcc -std=c++17 -arch=sm_80 -c gemm_thread_tile_2d_f64_rrc_linear_bias.cu, or by NVRTC as it is
// gen-spec: {"variant": "thread_tile_2d", "dtype": "f64", "layout": "rrc", "arch": "sm_80", "threadblock": "64x128x16", "thread_tile": "8x8", "epilogue": "linear_bias"}
// SPDX-License-Identifier: 0BSD

namespace gemm_thread_tile_2d_f64_rrc_linear_bias_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = double;
using output_t = double;
using accumulator_t = double;
using scalar_t = accumulator_t;  // of alpha, beta, the epilogue

constexpr int kTileM = 64, kTileN = 128;  // rows and columns of D that a block computes
constexpr int kThreadM = 8, kThreadN = 8;  // rows and columns of D that one thread computes
constexpr int kBeside = kTileN / kThreadN;  // threads beside each other
constexpr int kThreads = kTileM / kThreadM * kBeside;

static_assert(kThreads <= 1024, "a block has at most 1024 threads");

// D is column-major. What the kernel computes is the transpose of D, B' * A', which is row-major: here M, N, A
// and B are those of that product.

// Where an element lies in its matrix.
__device__ inline index_t a_at(index_t row, index_t k, index_t lda) {
  return k * lda + row;
}
__device__ inline index_t b_at(index_t k, index_t col, index_t ldb) {
  return col * ldb + k;
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
  x += scalar_t(bias[row]);
  D[c_at(row, col, ldd)] = output_t(x);
}

constexpr int kTileK = 16;  // a block's step along K
constexpr int kBlocks = 2;  // of a multiprocessor: the compiler spends registers accordingly
// What each thread copies of a tile of A, of B: so many elements, so many rows, columns or k apart.
constexpr int kCopiesA = kTileM * kTileK / kThreads, kApartA = kThreads / kTileM;
constexpr int kCopiesB = kTileK * kTileN / kThreads, kApartB = kThreads / kTileK;
constexpr int kPad = 1;  // elements behind each line of B's tile: columns lie in several banks

static_assert(kCopiesA * kThreads == kTileM * kTileK && kCopiesB * kThreads == kTileK * kTileN);

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    gemm_thread_tile_2d_f64_rrc_linear_bias(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        const input_t* __restrict__ B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc,
        output_t* D, index_t ldd, const output_t* bias) {
  __shared__ __align__(16) accumulator_t tile_a[kTileK][kTileM];
  __shared__ __align__(16) accumulator_t tile_b[kTileK][kTileN + kPad];

  // Where in the block's tile the thread's results lie, and the first elements that it copies.
  const int x = threadIdx.x % kBeside, y = threadIdx.x / kBeside * kThreadM;
  const int a_row = threadIdx.x % kTileM, a_k = threadIdx.x / kTileM;
  const int b_k = threadIdx.x % kTileK, b_col = threadIdx.x / kTileK;

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
    // Threads whose elements of D do not exist copy too: the others need what they bring, and
    // every thread of the block has to arrive at the barriers.
    const int depth = K - k0 < kTileK ? K - k0 : kTileK;
#pragma unroll
    for (int i = 0; i < kCopiesA; ++i) {
      const int k = a_k + i * kApartA;
      const bool in_a = a_row < rows && k < depth;
      tile_a[k][a_row] =
          in_a ? static_cast<accumulator_t>(a_from[i * kApartA * lda]) : accumulator_t(0);
    }
#pragma unroll
    for (int i = 0; i < kCopiesB; ++i) {
      const int col = b_col + i * kApartB;
      const bool in_b = b_k < depth && col < cols;
      tile_b[b_k][col] =
          in_b ? static_cast<accumulator_t>(b_from[i * kApartB * ldb]) : accumulator_t(0);
    }
    __syncthreads();  // both tiles are complete

#pragma unroll
    for (int k = 0; k < kTileK; ++k) {
      accumulator_t b[kThreadN];
      for (int j = 0; j < kThreadN; ++j) b[j] = tile_b[k][x + j * kBeside];
      for (int i = 0; i < kThreadM; ++i) {
        const accumulator_t a = tile_a[k][y + i];
        for (int j = 0; j < kThreadN; ++j) sum[i][j] += a * b[j];
      }
    }
    __syncthreads();  // no thread reads these tiles any more: the next ones may replace them
    a_from += a_at(0, kTileK, lda);
    b_from += b_at(kTileK, 0, ldb);
  }

#pragma unroll
  for (int i = 0; i < kThreadM; ++i) {
#pragma unroll
    for (int j = 0; j < kThreadN; ++j) {
      const int row = y + i, col = x + j * kBeside;
      if (row < rows && col < cols) {
        epilogue(sum[i][j], row0 + row, col0 + col, alpha, beta, C, ldc, D, ldd, bias);
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
gemm_thread_tile_2d_f64_rrc_linear_bias_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, scalar_t alpha, const input_t* A, index_t lda,
    const input_t* B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc, output_t* D,
    index_t ldd, const output_t* bias, cudaStream_t stream) {
  constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows
  if (M < 0 || N < 0 || K < 0) return cudaErrorInvalidValue;
  if (M == 0 || N == 0) return cudaSuccess;  // D has no elements
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return cudaErrorInvalidValue;
  if (beta != 0 && (C == nullptr || ldc < M || ldc > kLargest / N)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < M || ldd > kLargest / N) return cudaErrorInvalidValue;
  if (bias == nullptr) return cudaErrorInvalidValue;

  const index_t tiles_m = (N + kTileM - 1) / kTileM;
  const index_t tiles_n = (M + kTileN - 1) / kTileN;
  const index_t grid_x = tiles_m * tiles_n;  // a block for each tile of D
  if (grid_x > 2147483647) return cudaErrorInvalidConfiguration;  // a grid is not wider
  int device;
  cudaError_t error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const auto kernel = gemm_thread_tile_2d_f64_rrc_linear_bias;
  const dim3 grid{unsigned(grid_x)}, block{kThreads};
  return launch(
      kernel, grid, block, 0, stream,  // and its parameters:
      N, M, K, alpha, B, ldb, A, lda, beta, C, ldc, D, ldd, bias);
}

#endif  // __CUDACC_RTC__
}  // namespace gemm_thread_tile_2d_f64_rrc_linear_bias_ns
