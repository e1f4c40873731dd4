// gemm_tiles_f32_rrr_batched: D = alpha * A * B + beta * C
//
// A block computes a square tile of D. It walks along K, and at each step its threads together copy
// one tile of A and one of B into shared memory, where each element is then read kTile times: global
// memory is read kTile times less than in the kernel without tiles. Elements outside of the matrices
// are zeros, which add nothing to a sum.
//
//   A  M x K, row-major, float
//   B  K x N, row-major, float
//   C  M x N, row-major, float; not read when beta is 0
//   D  M x N, row-major, float; must not overlap A or B; may be C, where ldc is ldd
//
// A batch of such products: their matrices are stride_a, stride_b, stride_c and stride_d elements apart.
// Where a stride of A, B or C is 0, all products have the same matrix. Those of D do not overlap; where
// D is C, both have one stride.
//
// Any M, N, K >= 0. Accumulators, alpha and beta are float. Leading dimensions count elements.
// Needs a GPU of compute capability 7.5 or newer and C++17.
//
// Made by gemmgen 0.2.0:  gen emit --variant tiles --dtype f32 --layout rrr --arch sm_80 --tile 32 --threads 1024 --epilogue linear --batched
// Compile:  nvcc -std=c++17 -arch=sm_80 -c gemm_tiles_f32_rrr_batched.cu, or by NVRTC as it is
// gen-spec: {"variant": "tiles", "dtype": "f32", "layout": "rrr", "arch": "sm_80", "tile": 32, "threads": 1024, "epilogue": "linear", "batched": true}
// SPDX-License-Identifier: 0BSD

namespace gemm_tiles_f32_rrr_batched_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = float;
using output_t = float;
using accumulator_t = float;
using scalar_t = accumulator_t;  // of alpha, beta, the epilogue

constexpr int kTile = 32;  // width of the square tiles of A, B and D
constexpr int kThreadRows = 32;  // the block's threads: kTile along x, this many along y
constexpr int kRowsPerThread = kTile / kThreadRows;  // rows of D that one thread computes
constexpr int kThreads = kTile * kThreadRows;

static_assert(kRowsPerThread * kThreadRows == kTile, "every thread has as many rows");
static_assert(kThreads <= 1024, "a block has at most 1024 threads");
static_assert(
    2 * kTile * kTile * sizeof(accumulator_t) <= 48 * 1024, "static shared memory ends at 48 KiB");

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
    gemm_tiles_f32_rrr_batched(  // D = alpha * A * B + beta * C
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

  __shared__ accumulator_t tile_a[kTile][kTile];
  __shared__ accumulator_t tile_b[kTile][kTile];

  const int x = threadIdx.x;
  const index_t col = index_t(blockIdx.x) * kTile + x;

  // A grid has at most 65,535 blocks along y: where D has more rows, blocks stride over the rest.
  for (index_t row0 = index_t(blockIdx.y) * kTile; row0 < M; row0 += index_t(gridDim.y) * kTile) {
    accumulator_t sum[kRowsPerThread] = {};

    for (index_t k0 = 0; k0 < K; k0 += kTile) {
      // Threads whose element of D does not exist load too: the others need what they bring, and
      // every thread of the block has to arrive at the barriers.
      for (int i = 0; i < kRowsPerThread; ++i) {
        const int y = threadIdx.y + i * kThreadRows;
        const index_t row = row0 + y;
        const bool in_a = row < M && k0 + x < K;
        const bool in_b = k0 + y < K && col < N;
        tile_a[y][x] =
            in_a ? static_cast<accumulator_t>(A[a_at(row, k0 + x, lda)]) : accumulator_t(0);
        tile_b[y][x] =
            in_b ? static_cast<accumulator_t>(B[b_at(k0 + y, col, ldb)]) : accumulator_t(0);
      }
      __syncthreads();  // both tiles are complete

#pragma unroll
      for (int k = 0; k < kTile; ++k) {
        for (int i = 0; i < kRowsPerThread; ++i) {
          sum[i] += tile_a[threadIdx.y + i * kThreadRows][k] * tile_b[k][x];
        }
      }
      __syncthreads();  // no thread reads these tiles any more: the next ones may replace them
    }

    for (int i = 0; i < kRowsPerThread; ++i) {
      const index_t row = row0 + threadIdx.y + i * kThreadRows;
      if (row < M && col < N) {
        epilogue(sum[i], row, col, alpha, beta, C, ldc, D, ldd);
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
gemm_tiles_f32_rrr_batched_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, index_t batch, scalar_t alpha, const input_t* A, index_t lda,
    index_t stride_a, const input_t* B, index_t ldb, index_t stride_b, scalar_t beta,
    const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd, index_t stride_d,
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

  const index_t grid_x = (N + kTile - 1) / kTile;  // columns of blocks
  const index_t rows = (M + kTile - 1) / kTile;  // of blocks; they stride over the rest
  const index_t grid_y = rows < 65535 ? rows : 65535;
  if (grid_x > 2147483647) return cudaErrorInvalidConfiguration;  // a grid is not wider
  int device;
  cudaError_t error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const auto kernel = gemm_tiles_f32_rrr_batched;
  constexpr index_t most = 65535;  // products of a launch: blocks of a grid along z
  for (index_t first = 0; first < batch && error == cudaSuccess; first += most) {
    const index_t products = batch - first < most ? batch - first : most;
    const dim3 grid{unsigned(grid_x), unsigned(grid_y), unsigned(products)};
    error = launch(
        kernel, grid, dim3{kTile, kThreadRows}, 0, stream,  // and its parameters:
        M, N, K, alpha, A, lda, stride_a, B, ldb, stride_b, beta, C, ldc, stride_c, D, ldd,
        stride_d, first);
  }
  return error;
}

#endif  // __CUDACC_RTC__
}  // namespace gemm_tiles_f32_rrr_batched_ns
