// gemm_shared_row_f32_rrr: D = alpha * A * B + beta * C
//
// Each block computes rows of D, one after another, its threads striding over the columns. All of
// them need the same row of A, so it is kept in shared memory: read once from global memory if it
// fits into a chunk, chunk by chunk for each group of columns if it is longer.
//
//   A  M x K, row-major, float
//   B  K x N, row-major, float
//   C  M x N, row-major, float; not read when beta is 0
//   D  M x N, row-major, float; must not overlap A or B; may be C, where ldc is ldd
//
// Any M, N, K >= 0. Accumulators, alpha and beta are float. Leading dimensions count elements.
// Needs a GPU of compute capability 7.5 or newer and C++17.
//
// Made by gemmgen 0.2.0:  gen emit --variant shared_row --dtype f32 --layout rrr --arch sm_80 --threads 256 --chunk 1024 --grid 0 --epilogue linear
// Compile:  nvcc -std=c++17 -arch=sm_80 -c gemm_shared_row_f32_rrr.cu, or by NVRTC as it is
// gen-spec: {"variant": "shared_row", "dtype": "f32", "layout": "rrr", "arch": "sm_80", "threads": 256, "chunk": 1024, "grid": 0, "epilogue": "linear"}
// SPDX-License-Identifier: 0BSD

namespace gemm_shared_row_f32_rrr_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = float;
using output_t = float;
using accumulator_t = float;
using scalar_t = accumulator_t;  // of alpha, beta, the epilogue

constexpr int kThreads = 256;  // per block
constexpr int kChunk = 1024;  // elements of A's row in shared memory at a time

static_assert(kThreads <= 1024, "a block has at most 1024 threads");
static_assert(kChunk * sizeof(input_t) <= 48 * 1024, "static shared memory ends at 48 KiB");

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
    gemm_shared_row_f32_rrr(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        const input_t* __restrict__ B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc,
        output_t* D, index_t ldd) {
  __shared__ input_t row_of_a[kChunk];

  for (index_t row = blockIdx.x; row < M; row += gridDim.x) {
    // All threads walk through all groups of columns, also those that have no column in the last
    // group: they load their share of A and meet the others at the barriers.
    for (index_t col0 = 0; col0 < N; col0 += kThreads) {
      const index_t col = col0 + threadIdx.x;
      accumulator_t sum = 0;

      for (index_t k0 = 0; k0 < K; k0 += kChunk) {
        const int count = K - k0 < kChunk ? int(K - k0) : kChunk;
        if (col0 == 0 || K > kChunk) {  // else the row is there already
          __syncthreads();  // no thread reads the previous chunk any more
          for (int k = threadIdx.x; k < count; k += kThreads) {
            row_of_a[k] = A[a_at(row, k0 + k, lda)];
          }
          __syncthreads();  // the chunk is complete
        }
        if (col < N) {
          for (int k = 0; k < count; ++k) {
            const accumulator_t b = static_cast<accumulator_t>(B[b_at(k0 + k, col, ldb)]);
            sum += static_cast<accumulator_t>(row_of_a[k]) * b;
          }
        }
      }
      if (col < N) epilogue(sum, row, col, alpha, beta, C, ldc, D, ldd);
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
//   209  cudaErrorNoKernelImageForDevice: a GPU older than nvcc's -arch. For newer ones the driver
//        compiles the file's PTX when it is first needed, unless nvcc was told to leave PTX out
//   400  cudaErrorInvalidResourceHandle: a stream of another device
extern "C" cudaError_t  // cudaSuccess once the kernel is on its way
gemm_shared_row_f32_rrr_launch(  // D = alpha * A * B + beta * C
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

  const index_t grid_x = M < 2147483647 ? M : 2147483647;  // blocks; they stride over the rest
  int device;
  cudaError_t error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const auto kernel = gemm_shared_row_f32_rrr;
  const dim3 grid{unsigned(grid_x)}, block{kThreads};
  return launch(
      kernel, grid, block, 0, stream,  // and its parameters:
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd);
}

#endif  // __CUDACC_RTC__
}  // namespace gemm_shared_row_f32_rrr_ns
