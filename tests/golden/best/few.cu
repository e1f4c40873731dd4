// few: D = alpha * A * B + beta * C, by the kernel that suits the problem and the device
//
// 2 kernels, each in a namespace of its own, as gemmgen emits it alone; then what predicts how
// long each takes for the problem at hand, and a launcher that takes the fastest. For the shapes of the
// command below, one of them is the fastest of all that there are, or nearly so, by these predictions.
//
//   kernel for  variant tile      tunables
//   1      t4   mma     32x64x32  --threadblock 32x64x32 --warp 32x32
//   2      a100 skinny  8x16x1024
//
// Made by gemmgen 0.2.0:  gen emit --best
// Compile:  nvcc -std=c++17 -c few.cu
//     -gencode arch=compute_75,code=sm_75
//     -gencode arch=compute_80,code=sm_80
// SPDX-License-Identifier: 0BSD

#ifndef __CUDACC_RTC__
#include <cuda_runtime_api.h>
#endif

#ifdef __NVCC__
#pragma nv_diag_suppress 177  // constants of kernels that are for other architectures
#endif

// ---------------------------------------------------------------------------- kernel 1

// few_best1: D = alpha * A * B + beta * C
//
// Tensor cores, fed through three levels of tiles. A block computes a work tile of D: step by step
// along K, its threads bring a tile of A and one of B into shared memory. Each warp computes 32 x 32 of
// it: it loads fragments of A and B into registers, and multiplies them with mma.sync. Bytes outside of
// the matrices are zeros in shared memory.
// Copies overlap with multiplications: the next step's data are on their way from global memory to
// registers while this step's are multiplied; of two tiles in shared memory one is written while the
// other is read.
//
//   A  M x K, row-major, __half
//   B  K x N, column-major, __half
//   C  M x N, row-major, __half; not read when beta is 0
//   D  M x N, row-major, __half; must not overlap A or B; may be C, where ldc is ldd
//
// M, N, K from 0 to 2^31 - 4096, any leading dimension, in elements. Accumulators are float,
// alpha and beta are float. Needs a GPU of compute capability 7.5 or newer and C++17.

#include <cuda_fp16.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 750
#error "for -arch=sm_75 or newer: older GPUs lack the kernel's instructions"
#endif

namespace few_best1_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = __half;
using output_t = __half;
using scalar_t = float;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;
constexpr int kTileM = 32, kTileN = 64, kTileK = 32;  // of a block: work tile, step along K
constexpr int kThreads = 64;  // 2 warps
constexpr int kChunk = 8;  // elements in 16 bytes: the unit of all copies

constexpr int kWarpM = 32, kWarpN = 32;  // what each warp computes of the work tile
constexpr int kGroup = 12;  // work tiles along M that are computed close in time: see tile_at
constexpr int kWarpsM = kTileM / kWarpM;  // 32 / 32 = 1
constexpr int kFragmentsM = kWarpM / 16, kFragmentsN = kWarpN / 16;  // 2, 2
constexpr int kKBlocks = 2;  // K blocks (32 bytes along K) of a step: 32 / 16

constexpr int kBytesA = kTileM * 64;  // (kTileM, kTileK): 32 lines of 64 bytes along K
constexpr int kBytesB = kTileN * 64;  // (kTileN, kTileK): 64 lines of 64 bytes along K
constexpr int kStageBytes = kBytesA + kBytesB;  // 6144

// ------------------------------------------------------------------------ PTX
__device__ inline uint32_t shared_address(const void* pointer) {  // as PTX instructions take it
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
__device__ inline void ldmatrix(uint32_t (&fragment)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"(address));
}

// ------------------------------------------------------------------------ what a warp computes
// A fragment is 16 rows of A, or 16 columns of B, by 32 bytes along K. Of it, lane 4g + t (g = 0..7,
// t = 0..3) holds elements 2t and 2t + 1 of the 8 in each half along K, in
//
//   of                   A, first half  A, second half     B, first half  B, second half
//   row or column g      fragment[0]    fragment[2]        fragment[0]    fragment[1]
//   row or column g + 8  fragment[1]    fragment[3]        fragment[2]    fragment[3]
//
// One instruction multiplies 16 rows of A by 8 columns of B, over one half along K. Of its 16 x 8
// accumulators the lane holds columns 2t and 2t + 1 of row g in acc[0..1], of row g + 8 in acc[2..3].
// acc += a * b; `half`: which half of b's 16 columns, `k`: which half along K.
__device__ inline void mma(
    float (&acc)[4], const uint32_t (&a)[4], const uint32_t (&b)[4], int half, int k) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
      : "r"(a[2 * k]), "r"(a[2 * k + 1]), "r"(b[2 * half + k]));
}

// Where a chunk of 16 bytes is in lines of shared memory. Without the XOR, the eight chunks below each
// other, which ldmatrix reads together, would be in the same banks.
__device__ constexpr unsigned swizzle_64b(unsigned line, unsigned chunk) {
  return line * 64 + (chunk ^ line / 2 % 4) * 16;
}

// A warp's part of the work tile, with fragments of two K blocks: one is loaded while the other is
// multiplied.
struct WarpTile {
  float acc[kFragmentsM][2 * kFragmentsN][4] = {};  // accumulators of (2, 4) instructions
  uint32_t a[2][kFragmentsM][4], b[2][kFragmentsN][4];  // fragments
  uint32_t a_at[kKBlocks], b_at[kKBlocks];  // where they come from: made before the step that loads

  // Lets loads read the stage at this address in shared memory.
  __device__ void read_from(uint32_t stage, int warp, int lane) {
    const int row = warp % kWarpsM * kWarpM + lane % 16;
    for (int kb = 0; kb < kKBlocks; ++kb) {
      a_at[kb] = stage + swizzle_64b(row, 2 * kb + lane / 16);
    }
    const int col = warp / kWarpsM * kWarpN + lane / 16 * 8 + lane % 8;
    for (int kb = 0; kb < kKBlocks; ++kb) {
      b_at[kb] = stage + kBytesA + swizzle_64b(col, 2 * kb + lane / 8 % 2);
    }
  }
  // Lets loads read another stage, so many bytes further on.
  __device__ void move(int bytes) {
    for (auto& address : a_at) address += bytes;
    for (auto& address : b_at) address += bytes;
  }
  __device__ void load(int kb) {
#pragma unroll
    for (int i = 0; i < kFragmentsM; ++i) ldmatrix(a[kb % 2][i], a_at[kb] + i * 16 * 64);
#pragma unroll
    for (int i = 0; i < kFragmentsN; ++i) ldmatrix(b[kb % 2][i], b_at[kb] + i * 16 * 64);
  }
  __device__ void multiply(int kb) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
#pragma unroll
      for (int i = 0; i < kFragmentsM; ++i) {
#pragma unroll
        for (int n = 0; n < 2 * kFragmentsN; ++n) {
          const int j = i % 2 ? 2 * kFragmentsN - 1 - n : n;  // there and back: one operand stays
          mma(acc[i][j], a[kb % 2][i], b[kb % 2][j / 2], j % 2, k);
        }
      }
    }
  }
  // Registers have no variable index: a loop takes the first rows, and moves the others up.
  __device__ void move_up() {
#pragma unroll
    for (int i = 0; i + 1 < kFragmentsM; ++i) {
#pragma unroll
      for (int j = 0; j < 2 * kFragmentsN; ++j) {
#pragma unroll
        for (int r = 0; r < 4; ++r) acc[i][j][r] = acc[i + 1][j][r];
      }
    }
  }
  // Two accumulators of the lane: row 16i + 8h + g, columns 8j + 2t and 8j + 2t + 1.
  __device__ float2 pair(int i, int h, int j) const {
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
};

// Whether all rows of C or D start at a multiple of 16 bytes.
__device__ inline bool is_aligned(const output_t* matrix, index_t ld) {
  return reinterpret_cast<size_t>(matrix) % 16 == 0 && ld * sizeof(output_t) % 16 == 0;
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
  __device__ __half2& pair(int col, int q, unsigned lane) {
    const unsigned r = q % 2 * 8 + lane / 4, c = col + q / 2 * 8 + lane % 4 * 2;
    return reinterpret_cast<__half2&>(at(r, c));
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

// Makes D of the warp's first 16 rows of accumulators and, if C is read, of the rows of C in
// `staging`, whose place it takes.
__device__ inline void finish_rows(
    Staging& staging, const WarpTile& tile, const Output& out, bool reads_c, int lane) {
#pragma unroll
  for (int j = 0; j < kFragmentsN; ++j) {
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      __half2& d = staging.pair(16 * j, q, lane);
      const float2 acc = tile.pair(0, q % 2, 2 * j + q / 2);
      scalar_t x = out.alpha * acc.x, y = out.alpha * acc.y;
      if (reads_c) {
        x += out.beta * scalar_t(d.x);
        y += out.beta * scalar_t(d.y);
      }
      d = {output_t(x), output_t(y)};
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
    finish_rows(staging, tile, out, out.beta != 0, lane);
    __syncwarp();
    write_rows(staging, out, row, col0, aligned, lane);
    __syncwarp();  // all have been read
    tile.move_up();
  }
}

// ------------------------------------------------------------------------ packing
// An operand whose lines do not all start at multiples of 16 bytes is first copied to the workspace
// with lines that do; blockIdx.z is 0 for A, 1 for B. One that needs no copy has 0 lines here.

// How far behind a multiple of 16 bytes something lies.
__device__ inline int bytes_off(const input_t* from) {
  return reinterpret_cast<size_t>(from) % 16;
}

// 16 of these 32 bytes, from byte `first` (0 to 15) on: all words move by two, by one, by bytes.
__device__ inline uint4 part_of(uint4 low, uint4 high, int first) {
  uint32_t words[] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (int i = 0; i < 6; ++i) words[i] = first & 8 ? words[i + 2] : words[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) words[i] = first & 4 ? words[i + 1] : words[i];
  const int bits = first % 4 * 8;
  return {
      __funnelshift_r(words[0], words[1], bits), __funnelshift_r(words[1], words[2], bits),
      __funnelshift_r(words[2], words[3], bits), __funnelshift_r(words[3], words[4], bits)};
}

// Packs lines: 32 lanes beside each other, or 8 where lines are short, read adjacent chunks of 16 bytes:
// each lies in two aligned ones, wherever it starts; at the ends of the matrix it is read by element. All
// chunks of a turn, of a line each, are on their way before the first is written.
__device__ inline void pack_lines(
    index_t lines, index_t length, const input_t* __restrict__ source, index_t ld,
    input_t* __restrict__ packed, index_t packed_ld) {
  constexpr int kTurn = 2;
  const unsigned lanes = length > 8 * kChunk ? 32 : 8;
  // Blocks beside each other have parts of the same lines, those behind them parts of others.
  const index_t parts = (length - 1) / (lanes * kChunk) + 1;
  const unsigned deep = parts < gridDim.x ? unsigned(parts) : gridDim.x, across = gridDim.x / deep;
  const unsigned part = blockIdx.x % deep, first = blockIdx.x / deep;
  const index_t beside = 256 / lanes * across;  // lines that the grid packs at a time
  const input_t* const end = source + (lines - 1) * ld + length;
  for (index_t line = first * (256 / lanes) + threadIdx.x / lanes; line < lines && first < across;
       line += beside * kTurn) {
    for (index_t at = (index_t(part) * lanes + threadIdx.x % lanes) * kChunk; at < length;
         at += index_t(deep) * lanes * kChunk) {
      uint4 low[kTurn], high[kTurn];
      bool whole[kTurn];
#pragma unroll
      for (int i = 0; i < kTurn; ++i) {
        const input_t* const from = source + (line + i * beside) * ld + at;
        const input_t* const aligned = from - bytes_off(from) / sizeof(input_t);
        whole[i] = line + i * beside < lines && at + kChunk <= length && aligned >= source &&
                   aligned + 2 * kChunk <= end;
        if (!whole[i]) continue;
        low[i] = reinterpret_cast<const uint4*>(aligned)[0];
        high[i] = reinterpret_cast<const uint4*>(aligned)[1];
      }
#pragma unroll
      for (int i = 0; i < kTurn; ++i) {
        if (line + i * beside >= lines) continue;
        const input_t* const from = source + (line + i * beside) * ld + at;
        alignas(16) input_t elements[kChunk];
        if (whole[i]) {
          reinterpret_cast<uint4&>(elements) = part_of(low[i], high[i], bytes_off(from));
        } else {
#pragma unroll
          for (int e = 0; e < kChunk; ++e) elements[e] = at + e < length ? from[e] : input_t(0);
        }
        reinterpret_cast<uint4&>(packed[(line + i * beside) * packed_ld + at]) =
            reinterpret_cast<const uint4&>(elements);
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(256)  // 8 warps
    few_best1_pack(  // copies of both operands
        index_t a_lines, index_t a_length, const input_t* A, index_t lda, input_t* a_packed,
        index_t a_packed_ld, index_t b_lines, index_t b_length, const input_t* B, index_t ldb,
        input_t* b_packed, index_t b_packed_ld) {
#if __CUDA_ARCH__ < 800
  const bool is_a = blockIdx.z == 0;
  pack_lines(
      is_a ? a_lines : b_lines, is_a ? a_length : b_length, is_a ? A : B, is_a ? lda : ldb,
      is_a ? a_packed : b_packed, is_a ? a_packed_ld : b_packed_ld);
#else
  __trap();  // the launcher takes another kernel here
#endif
}

// ------------------------------------------------------------------------ the kernel
constexpr int kSharedBytes = 2 * kStageBytes;  // 12288; rows of D take their place
static_assert(kThreads / 32 * sizeof(Staging) <= kSharedBytes);

// A chunk from global memory; what is missing of its 16 bytes is zero.
__device__ inline uint4 read_chunk(const input_t* global, int bytes) {
  if (bytes == 16) return *reinterpret_cast<const uint4*>(global);
  alignas(16) input_t elements[kChunk];
#pragma unroll
  for (int e = 0; e < kChunk; ++e) {
    elements[e] = e * int(sizeof(input_t)) < bytes ? global[e] : input_t(0);
  }
  return *reinterpret_cast<const uint4*>(elements);
}

extern "C" __global__ void __launch_bounds__(kThreads)  // lets the compiler count on the block size
    few_best1(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        const input_t* __restrict__ B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc,
        output_t* D, index_t ldd) {
#if __CUDA_ARCH__ < 800
  extern __shared__ __align__(128) unsigned char shared[];  // (2, kStageBytes)
  const uint32_t stages = shared_address(shared);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  const int rows = int(M), cols = int(N), depth = int(K);
  const int tiles_m = (rows + kTileM - 1) / kTileM, tiles_n = (cols + kTileN - 1) / kTileN;
  int row0, col0;
  tile_at(blockIdx.x, tiles_m, tiles_n, row0, col0);

  // Of every tile, a thread copies one chunk of lines that are some way apart; its neighbours copy
  // those beside it.
  const int a_line = threadIdx.x / 4, a_chunk = threadIdx.x % 4;
  const int a_left = rows - row0 - a_line;  // lines from there to the end of A
  const auto a_from = A + index_t(row0 + a_line) * lda + a_chunk * kChunk;
  uint4 a_chunks[2];
  const auto read_a = [&](int k) {
    const int left = depth - k - a_chunk * kChunk;
    const int bytes = (left < 0 ? 0 : left < kChunk ? left : kChunk) * int(sizeof(input_t));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const auto from = a_from + index_t(i * 16) * lda + k;
      a_chunks[i] = read_chunk(from, i * 16 < a_left ? bytes : 0);
    }
  };
  const auto write_a = [&](unsigned char* tile) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int to = swizzle_64b(a_line + i * 16, a_chunk);
      *reinterpret_cast<uint4*>(tile + to) = a_chunks[i];
    }
  };
  const int b_line = threadIdx.x / 4, b_chunk = threadIdx.x % 4;
  const int b_left = cols - col0 - b_line;  // lines from there to the end of B
  const auto b_from = B + index_t(col0 + b_line) * ldb + b_chunk * kChunk;
  uint4 b_chunks[4];
  const auto read_b = [&](int k) {
    const int left = depth - k - b_chunk * kChunk;
    const int bytes = (left < 0 ? 0 : left < kChunk ? left : kChunk) * int(sizeof(input_t));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto from = b_from + index_t(i * 16) * ldb + k;
      b_chunks[i] = read_chunk(from, i * 16 < b_left ? bytes : 0);
    }
  };
  const auto write_b = [&](unsigned char* tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int to = swizzle_64b(b_line + i * 16, b_chunk);
      *reinterpret_cast<uint4*>(tile + to) = b_chunks[i];
    }
  };

  WarpTile tile;
  const int steps = (depth + kTileK - 1) / kTileK;

  if (steps > 0) {
    read_a(0);
    read_b(0);
    write_a(shared);
    write_b(shared + kBytesA);
  }
  __syncthreads();  // the first tiles are there

  int reading = 0;  // stage
  for (int n = 0; n < steps; ++n) {
    if (n + 1 < steps) {  // prefetch: these loads are not waited for before they are written below
      read_a((n + 1) * kTileK);
      read_b((n + 1) * kTileK);
    }
    tile.read_from(stages + reading * kStageBytes, warp, lane);
    tile.load(0);
#pragma unroll
    for (int kb = 0; kb < kKBlocks; ++kb) {
      if (kb + 1 < kKBlocks) tile.load(kb + 1);
      tile.multiply(kb);
    }
    reading = 1 - reading;
    if (n + 1 < steps) {
      write_a(shared + reading * kStageBytes);
      write_b(shared + reading * kStageBytes + kBytesA);
    }
    __syncthreads();  // the next tiles are there; nobody reads these any more
  }

  const int row = row0 + warp % kWarpsM * kWarpM, col = col0 + warp / kWarpsM * kWarpN;
  const Output out{rows, cols, alpha, beta, C, D, ldc, ldd};
  __syncthreads();  // nobody reads the tiles any more: their memory is free
  store(tile, out, reinterpret_cast<Staging*>(shared)[warp], row, col, lane);
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
  size_t A, B;  // addresses
  index_t lda, ldb;

  bool packs_a = K > 0 && (A % 16 != 0 || lda % 8 != 0);  // its lines are not aligned
  index_t a_lines = packs_a ? M : 0, a_length = packs_a ? K : 0;  // to pack
  index_t a_ld = packs_a ? (a_length + 63) / 64 * 64 : lda;  // as the kernel reads it
  bool packs_b = K > 0 && (B % 16 != 0 || ldb % 8 != 0);  // its lines are not aligned
  index_t b_lines = packs_b ? N : 0, b_length = packs_b ? K : 0;  // to pack
  index_t b_ld = packs_b ? (b_length + 63) / 64 * 64 : ldb;  // as the kernel reads it
  index_t b_offset = (a_lines * a_ld * 2 + 255) / 256 * 256;  // bytes
  index_t tiles = (M + kTileM - 1) / kTileM * ((N + kTileN - 1) / kTileN);  // of D
  index_t bytes = b_offset + (b_lines * b_ld * 2 + 255) / 256 * 256;  // of the workspace
  index_t a_lanes = a_length > 64 ? 32 : 8;  // for a line
  index_t b_lanes = b_length > 64 ? 32 : 8;  // for a line
  index_t a_pieces = (a_lines * a_lanes + 511) / 512 * ((a_length + 255) / 256);  // for blocks
  index_t b_pieces = (b_lines * b_lanes + 511) / 512 * ((b_length + 255) / 256);  // for blocks
  index_t pieces = a_pieces > b_pieces ? a_pieces : b_pieces;
  index_t pack_blocks = pieces < 65536 ? pieces : 65536;
};

constexpr size_t kSide = 2147479552;  // M, N, K: 2^31 - 4096, so that where a tile ends is an int
constexpr size_t kMost = 2147483647;  // blocks
constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows

// Sets *bytes to the size of the workspace that the launcher needs on the current device, or to 0 where
// it returns the launcher's error 1 or 9.
// It holds copies of operands whose pointer or leading dimension is no multiple of 16 bytes.
extern "C" cudaError_t  // cudaSuccess once *bytes is set
few_best1_workspace(  // for a launch with these arguments
    index_t M, index_t N, index_t K, const input_t* A, index_t lda, const input_t* B, index_t ldb,
    size_t* bytes) {
  if (bytes == nullptr) return cudaErrorInvalidValue;
  *bytes = 0;
  if (size_t(M) > kSide || size_t(N) > kSide || size_t(K) > kSide) return cudaErrorInvalidValue;
  if (M == 0 || N == 0) return cudaSuccess;  // D has no elements
  if (M > kLargest / N) return cudaErrorInvalidValue;
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < K || ldb > kLargest / N)) return cudaErrorInvalidValue;
  const Plan plan{M, N, K, size_t(A), size_t(B), lda, ldb};
  if (size_t(plan.tiles) > kMost) return cudaErrorInvalidConfiguration;
  *bytes = size_t(plan.bytes);
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
few_best1_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, scalar_t alpha, const input_t* A, index_t lda,
    const input_t* B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc, output_t* D,
    index_t ldd, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  size_t needed;  // bytes of the workspace
  auto ask = few_best1_workspace;
  cudaError_t error = ask(M, N, K, A, lda, B, ldb, &needed);
  if (error != cudaSuccess || M == 0 || N == 0) return error;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return cudaErrorInvalidValue;

  int device;
  error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const Plan plan{M, N, K, size_t(A), size_t(B), lda, ldb};
  bool fits = workspace != nullptr && workspace_bytes >= needed && size_t(workspace) % 256 == 0;
  if (needed > 0 && !fits) return cudaErrorInvalidValue;
  const auto a_packed = static_cast<input_t*>(workspace);
  const auto b_packed = a_packed + plan.b_offset / 2;
  const input_t* const a = plan.packs_a ? a_packed : A;
  const input_t* const b = plan.packs_b ? b_packed : B;

  const auto kernel = few_best1;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;

  if (plan.packs_a || plan.packs_b) {
    error = launch(  // a kernel that packs both
        few_best1_pack, dim3(unsigned(plan.pack_blocks), 1, 2), 256, 0, stream, plan.a_lines,
        plan.a_length, A, lda, a_packed, plan.a_ld, plan.b_lines, plan.b_length, B, ldb, b_packed,
        plan.b_ld);
    if (error != cudaSuccess) return error;
  }
  const dim3 grid(unsigned(plan.tiles));
  return launch(
      kernel, grid, kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, alpha, a, plan.a_ld, b, plan.b_ld, beta, C, ldc, D, ldd);
}

#endif  // __CUDACC_RTC__
}  // namespace few_best1_ns

// ---------------------------------------------------------------------------- kernel 2

// few_best2: D = alpha * A * B + beta * C
//
// For products of few rows, which take as long as it takes to read B. Tensor cores multiply with their
// operands swapped: 16 columns of B are the rows of an instruction's first operand, 8 rows of A the columns
// of its second one. What a thread reads of B, 16 bytes at once if it is aligned, is its part of fragments:
// it goes straight into registers.
//
// The warps of a block take turns along K. In the end their sums are added up, always in the same order.
//
//   A  M x K, row-major, __half
//   B  K x N, column-major, __half
//   C  M x N, row-major, __half; not read when beta is 0
//   D  M x N, row-major, __half; must not overlap A or B; may be C, where ldc is ldd
//
// Any M, N, K >= 0. Accumulators, alpha and beta are float. Leading dimensions count elements.
// Needs a GPU of compute capability 8.0 or newer and C++17.

#include <cuda_fp16.h>

namespace few_best2_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = __half;
using output_t = __half;
using accumulator_t = float;
using scalar_t = accumulator_t;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;
constexpr int kRows = 8, kCols = 16;  // of D, that a block computes
constexpr int kThreads = 256;  // per block

static_assert(kThreads % 32 == 0 && kThreads <= 1024, "a block has whole warps, at most 32");
static_assert(kCols % 16 == 0 && kRows % 8 == 0, "instructions have 16 columns of D and 8 rows");

// Where an element lies in its matrix.
__device__ inline index_t a_at(index_t row, index_t k, index_t lda) {
  return row * lda + k;
}
__device__ inline index_t b_at(index_t k, index_t col, index_t ldb) {
  return col * ldb + k;
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

constexpr int kWarps = kThreads / 32;
constexpr int kWidth = 8;  // elements in 16 bytes
using Sums = accumulator_t[kWarps][kRows][kCols];  // each warp's, of a block's tile of D

constexpr int kSlab = 4 * kWidth;  // elements along K that a warp multiplies in its turn
constexpr int kAhead = 4;  // slabs that it has in registers, or on their way there
constexpr int kFragments = kCols / 16, kGroups = kRows / 8;  // in an instruction's operands

// acc += a * b; `half`: which two of b's four registers.
__device__ inline void mma(
    accumulator_t (&acc)[4], const uint32_t (&a)[4], const uint32_t (&b)[4], int half) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[2 * half]), "r"(b[2 * half + 1]));
}

// Reads kWidth elements of a line from k on. Where it has ended they are zeros, which add nothing.
template <bool kAligned>
__device__ inline void read(uint32_t (&to)[4], const input_t* line, index_t k, index_t K) {
  if constexpr (kAligned) {
    const uint4 read = k < K ? *reinterpret_cast<const uint4*>(line + k) : uint4{};
    to[0] = read.x, to[1] = read.y, to[2] = read.z, to[3] = read.w;
  } else {
    auto& elements = reinterpret_cast<input_t(&)[kWidth]>(to);
#pragma unroll
    for (int e = 0; e < kWidth; ++e) elements[e] = k + e < K ? line[k + e] : input_t{};
  }
}

// Reads those of a line of B, as nobody does again: they do not take the place of A in the L1 cache, and
// memory is asked for 256 bytes at a time.
template <bool kAligned>
__device__ inline void read_once(uint32_t (&to)[4], const input_t* line, index_t k, index_t K) {
  if constexpr (kAligned) {
    to[0] = to[1] = to[2] = to[3] = 0;
    if (k < K) {
      asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                   : "l"(line + k));
    }
  } else {
    read<false>(to, line, k, K);
  }
}

// What a lane has of a slab. Lane 4g + t (g = 0..7, t = 0..3) has two of 16 columns of B, and row g of 8 of
// A; along K, elements t * kWidth to t * kWidth + kWidth - 1. Instructions multiply 4 of these at a time, and
// as many of every other t. Which of a slab's elements they are does not matter, as long as they are the
// same of both operands.
struct Slab {
  uint32_t b[2 * kFragments][4], a[kGroups][4];
};

// Computes a warp's sums for the tile of D that begins at (row0, col0). Where lines do not exist,
// the last one counts again, or zeros.
template <bool kAligned>  // whether neighbours in a line of B are read at once
__device__ inline void multiply(
    Sums& sums, index_t row0, index_t col0, index_t M, index_t N, index_t K, const input_t* A,
    index_t lda, const input_t* B, index_t ldb) {
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const input_t* b_lines[2 * kFragments];
#pragma unroll
  for (int i = 0; i < 2 * kFragments; ++i) {
    const index_t col = col0 + 8 * i + g;
    b_lines[i] = B + (col < N ? col : N - 1) * ldb;
  }
  const input_t* a_lines[kGroups];
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const index_t row = row0 + 8 * i + g;
    a_lines[i] = A + (row < M ? row : M - 1) * lda;
  }
  const auto read_slab = [&](Slab& slab, index_t k) {
#pragma unroll
    for (int i = 0; i < 2 * kFragments; ++i) {
      read_once<kAligned>(slab.b[i], b_lines[i], k, K);
    }
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      read<kAligned>(slab.a[i], a_lines[i], k, K);
    }
  };

  accumulator_t acc[kFragments][kGroups][4] = {};
  constexpr int kSlabs = kAligned ? kAhead : 1;  // element by element, one takes many registers
  Slab slabs[kSlabs];
  index_t k = warp * kSlab + t * kWidth;  // of the next slab to read
#pragma unroll
  for (auto& slab : slabs) {
    read_slab(slab, k);
    k += kWarps * kSlab;
  }
#pragma unroll 1
  for (index_t k0 = warp * kSlab; k0 < K; k0 += kSlabs * kWarps * kSlab) {
#pragma unroll
    for (auto& slab : slabs) {
#pragma unroll
      for (int f = 0; f < kFragments; ++f) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const auto& low = slab.b[2 * f];
          const auto& high = slab.b[2 * f + 1];
          const uint32_t fragment[] = {
              low[2 * half], high[2 * half], low[2 * half + 1], high[2 * half + 1]};
#pragma unroll
          for (int i = 0; i < kGroups; ++i) mma(acc[f][i], fragment, slab.a[i], half);
        }
      }
      read_slab(slab, k);
      k += kWarps * kSlab;
    }
  }

#pragma unroll
  for (int f = 0; f < kFragments; ++f) {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int col = 16 * f + g + r / 2 * 8, row = 8 * i + 2 * t + r % 2;
        sums[warp][row][col] = acc[f][i][r];
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)  // lets the compiler count on the block size
    few_best2(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        const input_t* __restrict__ B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc,
        output_t* D, index_t ldd) {
#if __CUDA_ARCH__ >= 800
  __shared__ Sums sums;
  // Whether lines begin at a multiple of what is read at once, and are whole pieces of it.
  const bool aligned = reinterpret_cast<size_t>(B) % 16 == 0 && ldb % kWidth == 0 &&
                       reinterpret_cast<size_t>(A) % 16 == 0 && lda % kWidth == 0 &&
                       K % kWidth == 0;
  const index_t groups = (M + kRows - 1) / kRows, strips = (N + kCols - 1) / kCols;

  // Neighbouring blocks have the same columns of D, and read the same of B.
  // A grid has at most 2^31 - 1 blocks: where there are more tiles, they stride over the rest.
  for (index_t tile = blockIdx.x; tile < groups * strips; tile += gridDim.x) {
    const index_t row0 = tile % groups * kRows, col0 = tile / groups * kCols;
    if (aligned) {
      multiply<true>(sums, row0, col0, M, N, K, A, lda, B, ldb);
    } else {
      multiply<false>(sums, row0, col0, M, N, K, A, lda, B, ldb);
    }
    __syncthreads();  // the sums of all warps are there
    for (int at = threadIdx.x; at < kRows * kCols; at += kThreads) {
      const int i = at / kCols, j = at % kCols;
      accumulator_t sum = 0;
      for (int warp = 0; warp < kWarps; ++warp) sum += sums[warp][i][j];
      const index_t row = row0 + i, col = col0 + j;
      if (row < M && col < N) {
        epilogue(sum, row, col, alpha, beta, C, ldc, D, ldd);
      }
    }
    __syncthreads();  // they have been read: those of the next tile may replace them
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
//   209  cudaErrorNoKernelImageForDevice: a GPU older than nvcc's -arch. For newer ones the driver
//        compiles the file's PTX when it is first needed, unless nvcc was told to leave PTX out
//   400  cudaErrorInvalidResourceHandle: a stream of another device
extern "C" cudaError_t  // cudaSuccess once the kernel is on its way
few_best2_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, scalar_t alpha, const input_t* A, index_t lda,
    const input_t* B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc, output_t* D,
    index_t ldd, cudaStream_t stream) {
  constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows
  if (M < 0 || N < 0 || K < 0) return cudaErrorInvalidValue;
  if (M == 0 || N == 0) return cudaSuccess;  // D has no elements
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < K || ldb > kLargest / N)) return cudaErrorInvalidValue;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return cudaErrorInvalidValue;

  const index_t tiles = (M + kRows - 1) / kRows * ((N + kCols - 1) / kCols);  // of D
  const index_t grid_x = tiles < 2147483647 ? tiles : 2147483647;
  int device;
  cudaError_t error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const auto kernel = few_best2;
  const dim3 grid{unsigned(grid_x)}, block{kThreads};
  return launch(
      kernel, grid, block, 0, stream,  // and its parameters:
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd);
}

#endif  // __CUDACC_RTC__
}  // namespace few_best2_ns

#ifdef __NVCC__
#pragma nv_diag_default 177
#endif

// ---------------------------------------------------------------------------- the choice

#ifndef __CUDACC_RTC__  // the host's side, for programs built by nvcc

namespace few_ns {

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
    {80, 108},  // A100 SXM 80 GB
    {75, 40},  // T4 16 GB
};

constexpr Candidate kCandidates[] = {
    {0, 1, {8, 16, 1, 1, 1, 1, 472, 1060, 0, 177, 354, 3, 5, 14178, 873393, 32, 0, 1946000, 2, 1, 1, 0, 0, 0, 1, 0, 2709600, 1, 0, 0, 2, 2, 0, 16, 16, 1, 1, 100, 16, 26, 0, 0, 6, 13, 502, 41943040}},
    {1, 0, {32, 64, 32, 1, 1, 1, 79078, 359164, 56257, 40454, 80909, 24273, 48545, 726914, 96079, 11, 0, 1031800, 5, 5, 1, 0, 0, 0, 0, 0, 2853600, 12, 1, 1, 2, 2, 0, 16, 16, 1, 1, 100, 16, 26, 16, 16, 6, 13, 3200, 4194304}},
};

struct Limits {
  bool swapped;  // whether it computes the transpose of D
  int last;  // compute capability that runs it; 0: all newer ones do
  int shared;  // bytes of shared memory
};

constexpr Limits kLimits[] = {
    {false, 0, 12288},
    {false, 0, 4096},
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
    long long M, long long N, long long K, float alpha, const __half* A, long long lda,
    const __half* B, long long ldb, float beta, const __half* C, long long ldc, __half* D,
    long long ldd, void*, size_t, cudaStream_t stream) {
  return kLaunch(M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd, stream);
}

struct Kernel {
  cudaError_t (*workspace)(
      long long M, long long N, long long K, const __half* A, long long lda, const __half* B,
      long long ldb, size_t* bytes);  // null: needs none
  cudaError_t (*launch)(
      long long M, long long N, long long K, float alpha, const __half* A, long long lda,
      const __half* B, long long ldb, float beta, const __half* C, long long ldc, __half* D,
      long long ldd, void* workspace, size_t workspace_bytes, cudaStream_t stream);
};

// clang-format off
constexpr Kernel kKernels[] = {
    {few_best1_ns::few_best1_workspace, few_best1_ns::few_best1_launch},
    {nullptr, launch_without_workspace<few_best2_ns::few_best2_launch>},
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

static_assert(is_compiled(0, 800), "compile the kernels for sm_75, too");
static_assert(is_compiled(800, 10000), "compile the kernels for sm_80, too");
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
few_workspace(  // for a launch with these arguments
    long long M, long long N, long long K, const __half* A, long long lda, const __half* B,
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
few_launch(  // D = alpha * A * B + beta * C
    long long M, long long N, long long K, float alpha, const __half* A, long long lda,
    const __half* B, long long ldb, float beta, const __half* C, long long ldc, __half* D,
    long long ldd, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  const Kernel* kernel = nullptr;
  const cudaError_t error = choose(M, N, K, A, lda, B, ldb, kernel);
  if (error != cudaSuccess) return error;
  return kernel->launch(
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd, workspace, workspace_bytes, stream);
}

}  // namespace few_ns

#endif  // __CUDACC_RTC__
