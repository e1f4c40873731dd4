// gemm_mma_f64_rcc_tb32x32x8_w16x16_s1_linear_bias_gelu: D = alpha * A * B + beta * C + bias, GELU
//
// Tensor cores, fed through three levels of tiles. A block computes a work tile of D: step by step
// along K, its threads bring a tile of A and one of B into shared memory. Each warp computes 16 x 16 of
// it: it loads fragments of A and B into registers, and multiplies them with mma.sync. Bytes outside of
// the matrices are zeros in shared memory.
// Elements are copied one by one, as long as they are, so that the operands' lines may lie anywhere.
// Nothing overlaps here: each step copies, waits, and multiplies.
//
//   A  M x K, row-major, double
//   B  K x N, column-major, double
//   C  M x N, column-major, double; not read when beta is 0
//   D  M x N, column-major, double; must not overlap A or B; may be C, where ldc is ldd
//   bias  N elements, double: one for each column of D
//
// M, N, K from 0 to 2^31 - 4096, any leading dimension, in elements. Accumulators are double,
// alpha and beta are double. Needs a GPU of compute capability 8.0 or newer and C++17.
//
// Made by gemmgen 0.2.0:  gen emit --variant mma --dtype f64 --layout rcc --arch sm_80 --pack 0 --threadblock 32x32x8 --warp 16x16 --instruction m8n8k4 --stages 1 --split-k 1 --epilogue linear_bias_gelu --swizzle 12
// Compile:  nvcc -std=c++17 -arch=sm_80 -c gemm_mma_f64_rcc_tb32x32x8_w16x16_s1_linear_bias_gelu.cu, or by NVRTC as it is
// gen-spec: {"variant": "mma", "dtype": "f64", "layout": "rcc", "arch": "sm_80", "pack": 0, "threadblock": "32x32x8", "warp": "16x16", "instruction": "m8n8k4", "stages": 1, "split_k": 1, "epilogue": "linear_bias_gelu", "swizzle": 12}
// SPDX-License-Identifier: 0BSD

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "for -arch=sm_80 or newer: older GPUs lack the kernel's instructions"
#endif

namespace gemm_mma_f64_rcc_tb32x32x8_w16x16_s1_linear_bias_gelu_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = double;
using output_t = double;
using scalar_t = double;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;
constexpr int kTileM = 32, kTileN = 32, kTileK = 8;  // of a block: work tile, step along K
constexpr int kThreads = 128;  // 4 warps

constexpr int kWarpM = 16, kWarpN = 16;  // what each warp computes of the work tile
constexpr int kGroup = 12;  // work tiles along M that are computed close in time: see tile_at
constexpr int kWarpsM = kTileM / kWarpM;  // 32 / 16 = 2
constexpr int kFragmentsM = kWarpM / 16, kFragmentsN = kWarpN / 16;  // 1, 1
constexpr int kKBlocks = 2;  // K blocks (4 elements along K) of a step: 8 / 4

constexpr int kBytesA = kTileM * 64;  // (kTileM, kTileK): 32 lines of 64 bytes along K
constexpr int kBytesB = kTileN * 64;  // (kTileN, kTileK): 32 lines of 64 bytes along K
constexpr int kStageBytes = kBytesA + kBytesB;  // 4096

// ------------------------------------------------------------------------ PTX
__device__ inline uint32_t shared_address(const void* pointer) {  // as PTX instructions take it
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
__device__ inline double load_shared(uint32_t address) {
  double x;
  asm volatile("ld.shared.f64 %0, [%1];" : "=d"(x) : "r"(address));
  return x;
}

// ------------------------------------------------------------------------ what a warp computes
// A fragment is 16 rows of A, or 16 columns of B, by 4 elements along K. Of it, lane 4g + t
// (g = 0..7, t = 0..3) holds element t of row or column g in fragment[0], and of g + 8 in fragment[1].
//
// One instruction multiplies 8 rows of A by 8 columns of B; here are two, for 16 rows. Of these 16 x 8
// accumulators the lane holds columns 2t and 2t + 1 of row g in acc[0..1], of row g + 8 in acc[2..3].
// acc += a * b; `half`: which half of b's 16 columns.
__device__ inline void mma(double (&acc)[4], const double (&a)[2], const double (&b)[2], int half) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+d"(acc[2 * h]), "+d"(acc[2 * h + 1])
                 : "d"(a[h]), "d"(b[half]));
  }
}

// Where an element is in lines of shared memory. A warp reads 32 bytes of each of four lines at a time:
// without the XOR, these would be in the same banks.
__device__ constexpr unsigned swizzle_64b(unsigned line, unsigned element) {
  return line * 64 + (element ^ line / 2 % 2 * 4) * 8;
}

// A warp's part of the work tile, with fragments of two K blocks: one is loaded while the other is
// multiplied.
struct WarpTile {
  double acc[kFragmentsM][2 * kFragmentsN][4] = {};  // accumulators of (1, 2) times 16 x 8
  double a[2][kFragmentsM][2], b[2][kFragmentsN][2];  // fragments
  // Where the lane's first elements are: made before the step that loads. An XOR finds the others of a
  // line, since it begins at a multiple of its length.
  uint32_t a_at, b_at;

  // Lets loads read the stage at this address in shared memory.
  __device__ void read_from(uint32_t stage, int warp, int lane) {
    const int row = warp % kWarpsM * kWarpM + lane / 4;
    a_at = stage + swizzle_64b(row, lane % 4);
    const int col = warp / kWarpsM * kWarpN + lane / 4;
    b_at = stage + kBytesA + swizzle_64b(col, lane % 4);
  }
  // Lets loads read another stage, so many bytes further on.
  __device__ void move(int bytes) {
    a_at += bytes;
    b_at += bytes;
  }
  __device__ void load(int kb) {
#pragma unroll
    for (int i = 0; i < kFragmentsM; ++i) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        a[kb % 2][i][r] = load_shared((a_at ^ kb * 32) + (16 * i + 8 * r) * 64);
      }
    }
#pragma unroll
    for (int i = 0; i < kFragmentsN; ++i) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        b[kb % 2][i][r] = load_shared((b_at ^ kb * 32) + (16 * i + 8 * r) * 64);
      }
    }
  }
  __device__ void multiply(int kb) {
#pragma unroll
    for (int i = 0; i < kFragmentsM; ++i) {
#pragma unroll
      for (int n = 0; n < 2 * kFragmentsN; ++n) {
        const int j = i % 2 ? 2 * kFragmentsN - 1 - n : n;  // there and back: one operand stays
        mma(acc[i][j], a[kb % 2][i], b[kb % 2][j / 2], j % 2);
      }
    }
  }
  // Two accumulators of the lane: row 16i + 8h + g, columns 8j + 2t and 8j + 2t + 1.
  __device__ double2 pair(int i, int h, int j) const {
    return {acc[i][j][2 * h], acc[i][j][2 * h + 1]};
  }
};

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
  const output_t* bias;  // one for each row
};

// Whether all rows of C or D start at a multiple of 16 bytes.
__device__ inline bool is_aligned(const output_t* matrix, index_t ld) {
  return reinterpret_cast<size_t>(matrix) % 16 == 0 && ld * sizeof(output_t) % 16 == 0;
}

// x times the probability that a normally distributed number is less (Hendrycks and Gimpel, 2016).
__device__ inline scalar_t gelu(scalar_t x) {
  return 0.5 * x * (1.0 + erf(x * 0.70710678118654752));
}

// Rows of D on their way from registers, where lanes hold pairs far apart, to global memory: here lanes
// come to hold neighbours, and write long pieces of rows.
struct Staging {
  static constexpr int kRows = 16;
  // The 8 elements at the end of each row keep pairs of different rows in different banks.
  alignas(16) output_t elements[kRows][kWarpN + 8];

  __device__ output_t& at(int row, int col) {
    return elements[row][col];
  }
  // A lane's pairs of 16 columns, where the lane has its accumulators: q = 0, 1 in rows g, g + 8 of
  // the left half, 2, 3 in those of the right one.
  __device__ double2& pair(int col, int q, unsigned lane) {
    const unsigned r = q % 2 * 8 + lane / 4, c = col + q / 2 * 8 + lane % 4 * 2;
    return reinterpret_cast<double2&>(at(r, c));
  }
};

constexpr int kElements = 16 / sizeof(output_t), kPerRow = kWarpN / kElements;  // 16 bytes of a row
// Reads rows of C, from (row0, col0) on, into `staging`; what C does not have becomes zeros.
__device__ inline void read_rows(
    Staging& staging, const Output& out, int row0, int col0, int lane) {
  const output_t* c = out.C + row0 * out.ldc + col0;
  if (is_aligned(c, out.ldc) && col0 + kWarpN <= out.cols) {  // 16 bytes at once
#pragma unroll
    for (unsigned at = lane; at < Staging::kRows * kPerRow; at += 32) {
      const int row = at / kPerRow, col = at % kPerRow * kElements;
      uint4 elements{};
      if (row0 + row < out.rows) elements = reinterpret_cast<const uint4&>(c[row * out.ldc + col]);
      reinterpret_cast<uint4&>(staging.at(row, col)) = elements;
    }
    return;
  }
#pragma unroll 2
  for (int row = 0; row < Staging::kRows; ++row, c += out.ldc) {
#pragma unroll
    for (int col = lane; col < kWarpN; col += 32) {
      const bool exists = row0 + row < out.rows && col0 + col < out.cols;
      staging.at(row, col) = exists ? c[col] : output_t(0);
    }
  }
}

struct Eight {
  scalar_t of[8];
};

// Long code, of which there is only this copy: compiled sooner.
__device__ __noinline__ Eight gelu(Eight x) {
#pragma unroll
  for (auto& element : x.of) element = gelu(element);
  return x;
}

// Makes D of the warp's first 16 rows of accumulators and, if C is read, of the rows of C in
// `staging`, whose place it takes. The first one is row0 of D.
__device__ inline void finish_rows(
    Staging& staging, const WarpTile& tile, const Output& out, bool reads_c, int row0, int lane) {
  scalar_t bias[2];  // of rows g and g + 8
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int at = row0 + 8 * h + lane / 4;
    bias[h] = at < out.rows ? scalar_t(out.bias[at]) : 0;
  }
#pragma unroll
  for (int j = 0; j < kFragmentsN; ++j) {
    Eight all;
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      double2& d = staging.pair(16 * j, q, lane);
      const double2 acc = tile.pair(0, q % 2, 2 * j + q / 2);
      scalar_t x = out.alpha * acc.x, y = out.alpha * acc.y;
      if (reads_c) {
        x += out.beta * scalar_t(d.x);
        y += out.beta * scalar_t(d.y);
      }
      x += bias[q % 2];
      y += bias[q % 2];
      all.of[2 * q] = x;
      all.of[2 * q + 1] = y;
    }
    all = gelu(all);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      staging.pair(16 * j, q, lane) = {output_t(all.of[2 * q]), output_t(all.of[2 * q + 1])};
    }
  }
}

// Writes the rows in `staging`, whose first element is at (row0, col0) of D.
__device__ inline void write_rows(
    Staging& staging, const Output& out, int row0, int col0, bool aligned, int lane) {
  output_t* const d = out.D + row0 * out.ldd + col0;
  if (aligned) {  // 16 bytes at once
#pragma unroll
    for (unsigned at = lane; at < Staging::kRows * kPerRow; at += 32) {
      const int row = at / kPerRow, col = at % kPerRow * kElements;
      if (row0 + row >= out.rows) continue;
      reinterpret_cast<uint4&>(d[row * out.ldd + col]) =
          reinterpret_cast<const uint4&>(staging.at(row, col));
    }
    return;
  }
  const int rows = out.rows - row0 < Staging::kRows ? out.rows - row0 : Staging::kRows;
#pragma unroll 1
  for (int col = lane; col < kWarpN; col += 32) {  // a column of each lane, element by element
    if (col0 + col >= out.cols) continue;
    output_t* to = out.D + row0 * out.ldd + col0 + col;
#pragma unroll 8
    for (int row = 0; row < rows; ++row, to += out.ldd) *to = staging.at(row, col);
  }
}

// Writes a warp's part of D, whose first element is at (row0, col0). The accumulators are used up.
__device__ inline void store(
    WarpTile& tile, const Output& out, Staging& staging, int row0, int col0, int lane) {
  const bool aligned = is_aligned(out.D, out.ldd) && col0 + kWarpN <= out.cols;
#pragma unroll 1
  for (int row = row0; row < row0 + kWarpM; row += 16) {
    if (out.beta != 0) {
      read_rows(staging, out, row, col0, lane);
      __syncwarp();
    }
    finish_rows(staging, tile, out, out.beta != 0, row, lane);
    __syncwarp();
    write_rows(staging, out, row, col0, aligned, lane);
    __syncwarp();  // all have been read
  }
}

// ------------------------------------------------------------------------ the kernel
constexpr int kSharedBytes = kThreads / 32 * sizeof(Staging);  // 12288: more than the stages
static_assert(kStageBytes <= kSharedBytes);

extern "C" __global__ void __launch_bounds__(kThreads)  // lets the compiler count on the block size
    gemm_mma_f64_rcc_tb32x32x8_w16x16_s1_linear_bias_gelu(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        const input_t* __restrict__ B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc,
        output_t* D, index_t ldd, const output_t* bias) {
  extern __shared__ __align__(128) unsigned char shared[];  // A's tile, then B's
  const uint32_t stages = shared_address(shared);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  const int rows = int(M), cols = int(N), depth = int(K);
  const int tiles_m = (rows + kTileM - 1) / kTileM, tiles_n = (cols + kTileN - 1) / kTileN;
  int row0, col0;
  tile_at(blockIdx.x, tiles_m, tiles_n, row0, col0);

  // Of every tile, a thread copies one element of lines that are some way apart; its neighbours copy
  // those beside it.
  const int a_line = threadIdx.x / 8, a_element = threadIdx.x % 8;
  const int a_left = rows - row0 - a_line;  // lines from there to the end of A
  const auto a_from = A + index_t(row0 + a_line) * lda + a_element;
  double a_chunks[2];
  const auto read_a = [&](int k) {
    const int bytes = k + a_element < depth ? 8 : 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const auto from = a_from + index_t(i * 16) * lda + k;
      a_chunks[i] = (i * 16 < a_left ? bytes : 0) == 8 ? *from : 0;
    }
  };
  const auto write_a = [&](unsigned char* tile) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int to = swizzle_64b(a_line + i * 16, a_element);
      *reinterpret_cast<double*>(tile + to) = a_chunks[i];
    }
  };
  const int b_line = threadIdx.x / 8, b_element = threadIdx.x % 8;
  const int b_left = cols - col0 - b_line;  // lines from there to the end of B
  const auto b_from = B + index_t(col0 + b_line) * ldb + b_element;
  double b_chunks[2];
  const auto read_b = [&](int k) {
    const int bytes = k + b_element < depth ? 8 : 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const auto from = b_from + index_t(i * 16) * ldb + k;
      b_chunks[i] = (i * 16 < b_left ? bytes : 0) == 8 ? *from : 0;
    }
  };
  const auto write_b = [&](unsigned char* tile) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int to = swizzle_64b(b_line + i * 16, b_element);
      *reinterpret_cast<double*>(tile + to) = b_chunks[i];
    }
  };

  WarpTile tile;
  const int steps = (depth + kTileK - 1) / kTileK;

  for (int n = 0; n < steps; ++n) {
    read_a(n * kTileK);
    read_b(n * kTileK);
    write_a(shared);
    write_b(shared + kBytesA);
    __syncthreads();  // the tiles are there
    tile.read_from(stages, warp, lane);
    tile.load(0);
#pragma unroll
    for (int kb = 0; kb < kKBlocks; ++kb) {
      if (kb + 1 < kKBlocks) tile.load(kb + 1);
      tile.multiply(kb);
    }
    __syncthreads();  // nobody reads these tiles any more
  }

  const int row = row0 + warp % kWarpsM * kWarpM, col = col0 + warp / kWarpsM * kWarpN;
  const Output out{rows, cols, alpha, beta, C, D, ldc, ldd, bias};
  __syncthreads();  // nobody reads the tiles any more: their memory is free
  store(tile, out, reinterpret_cast<Staging*>(shared)[warp], row, col, lane);
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

// A launch, worked out from top to bottom. What is computed is the transpose of D, B' * A': M and N are
// those of that product.
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
gemm_mma_f64_rcc_tb32x32x8_w16x16_s1_linear_bias_gelu_workspace(  // for a launch with these arguments
    index_t M, index_t N, index_t K, const input_t* A, index_t lda, const input_t* B, index_t ldb,
    size_t* bytes) {
  if (bytes == nullptr) return cudaErrorInvalidValue;
  *bytes = 0;
  if (size_t(M) > kSide || size_t(N) > kSide || size_t(K) > kSide) return cudaErrorInvalidValue;
  if (M == 0 || N == 0) return cudaSuccess;  // D has no elements
  if (M > kLargest / N) return cudaErrorInvalidValue;
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < K || ldb > kLargest / N)) return cudaErrorInvalidValue;
  const Plan plan{N, M, K};
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
gemm_mma_f64_rcc_tb32x32x8_w16x16_s1_linear_bias_gelu_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, scalar_t alpha, const input_t* A, index_t lda,
    const input_t* B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc, output_t* D,
    index_t ldd, const output_t* bias, void* workspace, size_t workspace_bytes,
    cudaStream_t stream) {
  size_t needed;  // bytes of the workspace
  auto ask = gemm_mma_f64_rcc_tb32x32x8_w16x16_s1_linear_bias_gelu_workspace;
  cudaError_t error = ask(M, N, K, A, lda, B, ldb, &needed);
  if (error != cudaSuccess || M == 0 || N == 0) return error;
  if (beta != 0 && (C == nullptr || ldc < M || ldc > kLargest / N)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < M || ldd > kLargest / N) return cudaErrorInvalidValue;
  if (bias == nullptr) return cudaErrorInvalidValue;

  int device;
  error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const Plan plan{N, M, K};
  (void)workspace, (void)workspace_bytes;  // nothing is packed, nothing is added up later

  const auto kernel = gemm_mma_f64_rcc_tb32x32x8_w16x16_s1_linear_bias_gelu;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;

  const dim3 grid(unsigned(plan.tiles));
  return launch(
      kernel, grid, kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, alpha, B, ldb, A, lda, beta, C, ldc, D, ldd, bias);
}

#endif  // __CUDACC_RTC__
}  // namespace gemm_mma_f64_rcc_tb32x32x8_w16x16_s1_linear_bias_gelu_ns
