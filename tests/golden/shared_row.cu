// gemm_shared_row_f32_rrr_tb1x256x1024_t256_s1_sm80: D = alpha * A * B + beta * C
//
// Each block computes rows of D, one after another, its threads striding over the columns. All of
// them need the same row of A, so it is kept in shared memory: read once from global memory if it
// fits into a chunk, chunk by chunk for each group of columns if it is longer.
//
//   A  M x K, row-major, float
//   B  K x N, row-major, float
//   C  M x N, row-major, float; not read when beta is 0
//   D  M x N, row-major, float; may be C, must not overlap A or B
//
// Any M, N, K >= 0. Sums, alpha and beta are float. Leading dimensions count elements.
// Needs a GPU of compute capability 7.5 or newer and C++17.
//
// Made by gemmgen 0.1.0:  gen emit --variant shared_row --dtype f32 --layout rrr --arch sm_80 --threads 256 --chunk 1024 --grid 0
// Compile:  nvcc -std=c++17 -arch=sm_80 -c gemm_shared_row_f32_rrr_tb1x256x1024_t256_s1_sm80.cu
//           NVRTC takes the file as it is, too.
// gen-spec: {"variant": "shared_row", "dtype": "f32", "layout": "rrr", "arch": "sm_80", "threads": 256, "chunk": 1024, "grid": 0}
// SPDX-License-Identifier: 0BSD

// The namespace keeps apart the constants of several emitted files in one program.
namespace gemm_shared_row_f32_rrr_tb1x256x1024_t256_s1_sm80_ns {

using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = float;
using accumulator_t = float;
using output_t = float;

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

// alpha * sum + beta * C[i]. As in BLAS, C is not read when beta is 0: it may hold NaN or be null.
__device__ inline output_t epilogue(
    accumulator_t sum, accumulator_t alpha, accumulator_t beta, const output_t* C, index_t i) {
  accumulator_t result = alpha * sum;
  if (beta != accumulator_t(0)) result += beta * static_cast<accumulator_t>(C[i]);
  return static_cast<output_t>(result);
}

extern "C" __global__ void __launch_bounds__(kThreads)  // lets the compiler count on the block size
    gemm_shared_row_f32_rrr_tb1x256x1024_t256_s1_sm80(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, accumulator_t alpha, const input_t* __restrict__ A,
        index_t lda, const input_t* __restrict__ B, index_t ldb, accumulator_t beta,
        const output_t* C, index_t ldc, output_t* D, index_t ldd) {
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
      if (col < N) D[c_at(row, col, ldd)] = epilogue(sum, alpha, beta, C, c_at(row, col, ldc));
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
gemm_shared_row_f32_rrr_tb1x256x1024_t256_s1_sm80_launch(  // D = alpha * A * B + beta * C
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

  // What a grid can have along x; with more rows than that, blocks stride over them.
  constexpr index_t kMaxBlocks = 2147483647;
  const dim3 grid(M < kMaxBlocks ? M : kMaxBlocks);
  const dim3 block(kThreads);
  const auto kernel = gemm_shared_row_f32_rrr_tb1x256x1024_t256_s1_sm80;
  const size_t shared_bytes = 0;
  kernel<<<grid, block, shared_bytes, stream>>>(
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd);
  return cudaGetLastError();
}

#endif  // __CUDACC_RTC__

}  // namespace gemm_shared_row_f32_rrr_tb1x256x1024_t256_s1_sm80_ns
