// gemm: D = alpha * A * B + beta * C, by the kernel that suits the problem
//
// 4 kernels, each in a namespace of its own, as gemmgen emits them alone; then what chooses among
// them. The header says how.
//
// Made by gemmgen 0.2.0:  gen emit --bundle gemm.kernels --name gemm --arch sm_80
// Compile:  nvcc -std=c++17 -arch=sm_80 -c gemm.cu
// SPDX-License-Identifier: 0BSD

#ifndef __CUDACC_RTC__
#include "gemm.h"
#if GEMM_SPEC != 0x7cb43906
#error "the header is another kernel's; emit both files together"
#endif
#endif

// ---------------------------------------------------------------------------- kernel 1

// gemm_mma_f16_rrr_1: D = alpha * A * B + beta * C
//
// Tensor cores, fed through three levels of tiles. A block computes a work tile of D: step by step
// along K, its threads bring a tile of A and one of B into shared memory. Each warp computes 64 x 64 of
// it: it loads fragments of A and B into registers, and multiplies them with mma.sync. Bytes outside of
// the matrices are zeros in shared memory.
// Copies overlap with multiplications: they go from global to shared memory without passing through
// registers (cp.async), 3 steps ahead of what is multiplied.
//
//   A  M x K, row-major, __half
//   B  K x N, row-major, __half
//   C  M x N, row-major, __half; not read when beta is 0
//   D  M x N, row-major, __half; must not overlap A or B; may be C, where ldc is ldd
//
// M, N, K from 0 to 2^31 - 4096, any leading dimension, in elements. Accumulators are float,
// alpha and beta are float. Needs a GPU of compute capability 8.0 or newer and C++17.

#include <cuda_fp16.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "for -arch=sm_80 or newer: older GPUs lack the kernel's instructions"
#endif

namespace gemm_mma_f16_rrr_1_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = __half;
using output_t = __half;
using scalar_t = float;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;
constexpr int kTileM = 128, kTileN = 256, kTileK = 32;  // of a block: work tile, step along K
constexpr int kThreads = 256;  // 8 warps
constexpr int kChunk = 8;  // elements in 16 bytes: the unit of all copies

constexpr int kWarpM = 64, kWarpN = 64;  // what each warp computes of the work tile
constexpr int kStages = 4;  // tiles of A and B in shared memory
constexpr int kGroup = 12;  // work tiles along M that are computed close in time: see tile_at
constexpr int kWarpsM = kTileM / kWarpM;  // 128 / 64 = 2
constexpr int kFragmentsM = kWarpM / 16, kFragmentsN = kWarpN / 16;  // 4, 4
constexpr int kKBlocks = 2;  // K blocks (32 bytes along K) of a step: 32 / 16

constexpr int kBytesA = kTileM * 64;  // (kTileM, kTileK): 128 lines of 64 bytes along K
constexpr int kPanelB = kTileK * 128;  // a panel, (kTileK, 64): 32 lines of 64 elements along N
constexpr int kBytesB = kTileN / 64 * kPanelB;  // (kTileN / 64, kTileK, 64): 4 panels
constexpr int kStageBytes = kBytesA + kBytesB;  // 24576

// ------------------------------------------------------------------------ PTX
__device__ inline uint32_t shared_address(const void* pointer) {  // as PTX instructions take it
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
__device__ inline void ldmatrix(uint32_t (&fragment)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"(address));
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

// ------------------------------------------------------------------------ what a warp computes
// A fragment is 16 rows of A, or 16 columns of B, by 32 bytes along K. Of it, lane 4g + t (g = 0..7,
// t = 0..3) holds elements 2t and 2t + 1 of the 8 in each half along K, in
//
//   of                   A, first half  A, second half     B, first half  B, second half
//   row or column g      fragment[0]    fragment[2]        fragment[0]    fragment[1]
//   row or column g + 8  fragment[1]    fragment[3]        fragment[2]    fragment[3]
//
// One instruction multiplies 16 rows of A by 8 columns of B, over both halves along K. Of its 16 x 8
// accumulators the lane holds columns 2t and 2t + 1 of row g in acc[0..1], of row g + 8 in acc[2..3].
// acc += a * b; `half`: which half of b's 16 columns.
__device__ inline void mma(
    float (&acc)[4], const uint32_t (&a)[4], const uint32_t (&b)[4], int half) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[2 * half]), "r"(b[2 * half + 1]));
}

// Where a chunk of 16 bytes is in lines of shared memory. Without the XOR, the eight chunks below each
// other, which ldmatrix reads together, would be in the same banks.
__device__ constexpr unsigned swizzle_64b(unsigned line, unsigned chunk) {
  return line * 64 + (chunk ^ line / 2 % 4) * 16;
}
__device__ constexpr unsigned swizzle_128b(unsigned line, unsigned chunk) {
  return line * 128 + (chunk ^ line % 8) * 16;
}

// A warp's part of the work tile, with fragments of two K blocks: one is loaded while the other is
// multiplied.
struct WarpTile {
  float acc[kFragmentsM][2 * kFragmentsN][4] = {};  // accumulators of (4, 8) instructions
  uint32_t a[2][kFragmentsM][4], b[2][kFragmentsN][4];  // fragments
  uint32_t a_at[kKBlocks], b_at[4];  // where they come from: made before the step that loads

  // Lets loads read the stage at this address in shared memory.
  __device__ void read_from(uint32_t stage, int warp, int lane) {
    const int row = warp % kWarpsM * kWarpM + lane % 16;
    for (int kb = 0; kb < kKBlocks; ++kb) {
      a_at[kb] = stage + swizzle_64b(row, 2 * kb + lane / 16);
    }
    const int col = warp / kWarpsM * kWarpN + lane / 16 * 8;
    for (int i = 0; i < 4; ++i) {
      const int at = col + 16 * i, k = lane % 16;
      b_at[i] = stage + kBytesA + at / 64 * kPanelB + swizzle_128b(k, at % 64 / 8);
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
    for (int i = 0; i < kFragmentsN; ++i) ldmatrix_trans(b[kb % 2][i], b_at[i] + kb * 16 * 128);
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
    gemm_mma_f16_rrr_1_pack(  // copies of both operands
        index_t a_lines, index_t a_length, const input_t* A, index_t lda, input_t* a_packed,
        index_t a_packed_ld, index_t b_lines, index_t b_length, const input_t* B, index_t ldb,
        input_t* b_packed, index_t b_packed_ld) {
  const bool is_a = blockIdx.z == 0;
  pack_lines(
      is_a ? a_lines : b_lines, is_a ? a_length : b_length, is_a ? A : B, is_a ? lda : ldb,
      is_a ? a_packed : b_packed, is_a ? a_packed_ld : b_packed_ld);
}

// ------------------------------------------------------------------------ the kernel
constexpr int kSharedBytes = kStages * kStageBytes;  // 98304; rows of D take their place
static_assert(kThreads / 32 * sizeof(Staging) <= kSharedBytes);

extern "C" __global__ void __launch_bounds__(kThreads)  // lets the compiler count on the block size
    gemm_mma_f16_rrr_1(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        const input_t* __restrict__ B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc,
        output_t* D, index_t ldd) {
  extern __shared__ __align__(128) unsigned char shared[];  // (kStages, kStageBytes)
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
  const auto copy_a = [&](uint32_t stage, int k) {
    const int left = depth - k - a_chunk * kChunk;
    const int bytes = (left < 0 ? 0 : left < kChunk ? left : kChunk) * int(sizeof(input_t));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const auto from = a_from + index_t(i * 64) * lda + k;
      const int to = swizzle_64b(a_line + i * 64, a_chunk);
      cp_async(stage + to, from, i * 64 < a_left ? bytes : 0);
    }
  };
  const int b_line = threadIdx.x / 32, b_chunk = threadIdx.x % 32;
  const int b_left = cols - col0 - b_chunk * kChunk;  // elements of a line
  const int b_bytes = (b_left < 0 ? 0 : b_left < kChunk ? b_left : kChunk) * int(sizeof(input_t));
  const auto b_from = B + b_line * ldb + col0 + b_chunk * kChunk;
  const auto copy_b = [&](uint32_t stage, int k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto from = b_from + index_t(i * 8 + k) * ldb;
      const int to = b_chunk / 8 * kPanelB + swizzle_128b(b_line + i * 8, b_chunk % 8);
      cp_async(stage + to, from, k + b_line + i * 8 < depth ? b_bytes : 0);
    }
  };

  WarpTile tile;
  const int steps = (depth + kTileK - 1) / kTileK;

  // Prologue: the first kStages - 1 steps' copies, a group each (the last ones may be empty).
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < steps) {
      copy_a(stages + s * kStageBytes, s * kTileK);
      copy_b(stages + s * kStageBytes + kBytesA, s * kTileK);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  tile.read_from(stages, warp, lane);
  if (steps > 0) {
    asm volatile("cp.async.wait_group 2;" ::: "memory");
    __syncthreads();  // the first tiles are there, for all threads
    tile.load(0);
  }

  // Main loop. While K block kb of step n is multiplied, the next one moves from shared memory to
  // registers, and the tiles of step n + kStages - 1 from global to shared memory.
  int reading = 0, writing = kStages - 1;  // stages
  for (int n = 0; n < steps; ++n) {
#pragma unroll
    for (int kb = 0; kb < kKBlocks; ++kb) {
      if (kb == kKBlocks - 1) {
        // After the last step, load again what is there: it is not used, and costs less than a
        // branch.
        const int next = n + 1 == steps ? reading : reading + 1 < kStages ? reading + 1 : 0;
        tile.move((next - reading) * kStageBytes);
        reading = next;
        if (n + 1 < steps) {
          asm volatile("cp.async.wait_group 2;" ::: "memory");
          __syncthreads();  // the next tiles are there; nobody reads these any more
        }
      }
      tile.load((kb + 1) % kKBlocks);
      if (kb == 0) {
        const int k = (n + kStages - 1) * kTileK;
        if (n + kStages - 1 < steps) {
          copy_a(stages + writing * kStageBytes, k);
          copy_b(stages + writing * kStageBytes + kBytesA, k);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        writing = writing + 1 < kStages ? writing + 1 : 0;
      }
      tile.multiply(kb);
    }
  }

  const int row = row0 + warp % kWarpsM * kWarpM, col = col0 + warp / kWarpsM * kWarpN;
  const Output out{rows, cols, alpha, beta, C, D, ldc, ldd};
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

// A launch, worked out from top to bottom.
struct Plan {
  index_t M, N, K;
  size_t A, B;  // addresses
  index_t lda, ldb;

  bool packs_a = K > 0 && (A % 16 != 0 || lda % 8 != 0);  // its lines are not aligned
  index_t a_lines = packs_a ? M : 0, a_length = packs_a ? K : 0;  // to pack
  index_t a_ld = packs_a ? (a_length + 63) / 64 * 64 : lda;  // as the kernel reads it
  bool packs_b = K > 0 && (B % 16 != 0 || ldb % 8 != 0);  // its lines are not aligned
  index_t b_lines = packs_b ? K : 0, b_length = packs_b ? N : 0;  // to pack
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
gemm_mma_f16_rrr_1_workspace(  // for a launch with these arguments
    index_t M, index_t N, index_t K, const input_t* A, index_t lda, const input_t* B, index_t ldb,
    size_t* bytes) {
  if (bytes == nullptr) return cudaErrorInvalidValue;
  *bytes = 0;
  if (size_t(M) > kSide || size_t(N) > kSide || size_t(K) > kSide) return cudaErrorInvalidValue;
  if (M == 0 || N == 0) return cudaSuccess;  // D has no elements
  if (M > kLargest / N) return cudaErrorInvalidValue;
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return cudaErrorInvalidValue;
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
gemm_mma_f16_rrr_1_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, scalar_t alpha, const input_t* A, index_t lda,
    const input_t* B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc, output_t* D,
    index_t ldd, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  size_t needed;  // bytes of the workspace
  auto ask = gemm_mma_f16_rrr_1_workspace;
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

  const auto kernel = gemm_mma_f16_rrr_1;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;

  if (plan.packs_a || plan.packs_b) {
    error = launch(  // a kernel that packs both
        gemm_mma_f16_rrr_1_pack, dim3(unsigned(plan.pack_blocks), 1, 2), 256, 0, stream,
        plan.a_lines, plan.a_length, A, lda, a_packed, plan.a_ld, plan.b_lines, plan.b_length, B,
        ldb, b_packed, plan.b_ld);
    if (error != cudaSuccess) return error;
  }
  const dim3 grid(unsigned(plan.tiles));
  return launch(
      kernel, grid, kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, alpha, a, plan.a_ld, b, plan.b_ld, beta, C, ldc, D, ldd);
}

#endif  // __CUDACC_RTC__
}  // namespace gemm_mma_f16_rrr_1_ns

// ---------------------------------------------------------------------------- kernel 2

// gemm_mma_i8_rrr_2: D = alpha * A * B + beta * C
//
// Tensor cores, fed through three levels of tiles. A block computes a work tile of D: step by step
// along K, its threads bring a tile of A and one of B into shared memory. Each warp computes 64 x 64 of
// it: it loads fragments of A and B into registers, and multiplies them with mma.sync. Bytes outside of
// the matrices are zeros in shared memory.
// Copies overlap with multiplications: they go from global to shared memory without passing through
// registers (cp.async), 3 steps ahead of what is multiplied.
//
//   A  M x K, row-major, signed char
//   B  K x N, row-major, signed char
//   C  M x N, row-major, int; not read when beta is 0
//   D  M x N, row-major, int; must not overlap A or B; may be C, where ldc is ldd
//
// M, N, K from 0 to 2^31 - 4096, any leading dimension, in elements. Accumulators are int,
// alpha and beta are int. Needs a GPU of compute capability 8.0 or newer and C++17.

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "for -arch=sm_80 or newer: older GPUs lack the kernel's instructions"
#endif

namespace gemm_mma_i8_rrr_2_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = signed char;
using output_t = int;
using scalar_t = int;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;
constexpr int kTileM = 128, kTileN = 256, kTileK = 64;  // of a block: work tile, step along K
constexpr int kThreads = 256;  // 8 warps
constexpr int kChunk = 16;  // elements in 16 bytes: the unit of all copies

constexpr int kWarpM = 64, kWarpN = 64;  // what each warp computes of the work tile
constexpr int kStages = 4;  // tiles of A and B in shared memory
constexpr int kGroup = 12;  // work tiles along M that are computed close in time: see tile_at
constexpr int kWarpsM = kTileM / kWarpM;  // 128 / 64 = 2
constexpr int kFragmentsM = kWarpM / 16, kFragmentsN = kWarpN / 16;  // 4, 4
constexpr int kKBlocks = 2;  // K blocks (32 bytes along K) of a step: 64 / 32

constexpr int kBytesA = kTileM * 64;  // (kTileM, kTileK): 128 lines of 64 bytes along K
constexpr int kBytesB = kTileN * 64;  // (kTileN, kTileK): 256 lines of 64 bytes along K
constexpr int kStageBytes = kBytesA + kBytesB;  // 24576

// ------------------------------------------------------------------------ PTX
__device__ inline uint32_t shared_address(const void* pointer) {  // as PTX instructions take it
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
__device__ inline void ldmatrix(uint32_t (&fragment)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"(address));
}
// Starts to copy 16 bytes; those behind the first `bytes` become zeros.
__device__ inline void cp_async(uint32_t shared, const void* global, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(bytes)
               : "memory");
}

// ------------------------------------------------------------------------ what a warp computes
// A fragment is 16 rows of A, or 16 columns of B, by 32 bytes along K. Of it, lane 4g + t (g = 0..7,
// t = 0..3) holds elements 4t to 4t + 3 of the 16 in each half along K, in
//
//   of                   A, first half  A, second half     B, first half  B, second half
//   row or column g      fragment[0]    fragment[2]        fragment[0]    fragment[1]
//   row or column g + 8  fragment[1]    fragment[3]        fragment[2]    fragment[3]
//
// One instruction multiplies 16 rows of A by 8 columns of B, over both halves along K. Of its 16 x 8
// accumulators the lane holds columns 2t and 2t + 1 of row g in acc[0..1], of row g + 8 in acc[2..3].
// acc += a * b; `half`: which half of b's 16 columns.
__device__ inline void mma(
    int (&acc)[4], const uint32_t (&a)[4], const uint32_t (&b)[4], int half) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(acc[0]), "+r"(acc[1]), "+r"(acc[2]), "+r"(acc[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[2 * half]), "r"(b[2 * half + 1]));
}

// Where a chunk of 16 bytes is in lines of shared memory. Without the XOR, the eight chunks below each
// other, which ldmatrix reads together, would be in the same banks.
__device__ constexpr unsigned swizzle_64b(unsigned line, unsigned chunk) {
  return line * 64 + (chunk ^ line / 2 % 4) * 16;
}

// A warp's part of the work tile, with fragments of two K blocks: one is loaded while the other is
// multiplied.
struct WarpTile {
  int acc[kFragmentsM][2 * kFragmentsN][4] = {};  // accumulators of (4, 8) instructions
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
    for (int i = 0; i < kFragmentsM; ++i) {
#pragma unroll
      for (int n = 0; n < 2 * kFragmentsN; ++n) {
        const int j = i % 2 ? 2 * kFragmentsN - 1 - n : n;  // there and back: one operand stays
        mma(acc[i][j], a[kb % 2][i], b[kb % 2][j / 2], j % 2);
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
  __device__ int2 pair(int i, int h, int j) const {
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
  const output_t* C;  // as in BLAS, not read where beta is 0: it may be null
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
  __device__ int2& pair(int col, int q, unsigned lane) {
    const unsigned r = q % 2 * 8 + lane / 4, c = col + q / 2 * 8 + lane % 4 * 2;
    return reinterpret_cast<int2&>(at(r, c));
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
      int2& d = staging.pair(16 * j, q, lane);
      const int2 acc = tile.pair(0, q % 2, 2 * j + q / 2);
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
// B is always copied: not contiguous along K, it is transposed here. Only elements of 2 bytes
// reach tensor cores across K.

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

// Packs lines whose elements are `ld` apart, a tile at a time: lanes read words of neighbouring lines, by
// element where these are not aligned, and transpose four words at a time, which they find in different banks.
// A small product waits until these instructions have been fetched: they are few.
__device__ inline void pack_transposed(
    index_t lines, index_t length, const input_t* __restrict__ source, index_t ld,
    input_t* __restrict__ packed, index_t packed_ld) {
  constexpr int kDeep = 8, kRows = kDeep * kChunk / 8;  // chunks of a tile's lines; rows of a warp
  constexpr int kWord = 4, kAcross = 32 * kWord;  // lines of a word, of a tile
  __shared__ uint32_t tile[kDeep][kChunk * 32 + 4];
  const bool aligned = (reinterpret_cast<size_t>(source) | ld) % kWord == 0;
  // Blocks beside each other have parts of the same lines, those behind them parts of others.
  const index_t parts = (length - 1) / (kDeep * kChunk) + 1;
  const unsigned deep = parts < gridDim.x ? unsigned(parts) : gridDim.x, across = gridDim.x / deep;
  const unsigned part = blockIdx.x % deep, first = blockIdx.x / deep;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (index_t line = index_t(first) * kAcross; line < lines && first < across;
       line += index_t(across) * kAcross) {
    for (index_t at = index_t(part) * kDeep * kChunk; at < length;
         at += index_t(deep) * kDeep * kChunk) {
      const index_t left = lines - line - lane * kWord;  // lines that the lane's word has at least
      const input_t* from = source + (at + warp) * ld + line + lane * kWord;
      const int rows = length - at < kRows * 8 ? int(length - at) : kRows * 8;
      __syncthreads();  // the tile before has been read
      if (aligned && left >= kWord) {
        uint32_t words[kRows];
#pragma unroll
        for (int i = 0; i < kRows; ++i, from += 8 * ld) {
          words[i] = i * 8 + warp < rows ? reinterpret_cast<const uint32_t&>(*from) : 0;
        }
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          tile[i * 8 / kChunk][(i * 8 % kChunk + warp) * 32 + lane] = words[i];
        }
      } else {
#pragma unroll 8
        for (int i = 0; i < kRows; ++i, from += 8 * ld) {
          alignas(4) input_t elements[kWord];
#pragma unroll
          for (int e = 0; e < kWord; ++e) {
            elements[e] = i * 8 + warp < rows && e < left ? from[e] : input_t(0);
          }
          tile[i * 8 / kChunk][(i * 8 % kChunk + warp) * 32 + lane] =
              reinterpret_cast<const uint32_t&>(elements);
        }
      }
      __syncthreads();
      const int chunk = lane % 8, word = warp * 4 + lane / 8;
      alignas(16) uint32_t columns[kWord][kChunk / 4];
#pragma unroll
      for (int i = 0; i < kChunk / 4; ++i) {
        const uint32_t* const row = &tile[chunk][i * 4 * 32 + word];
        const uint32_t a = row[0], b = row[32], c = row[64], d = row[96];
        const uint32_t ab = __byte_perm(a, b, 0x5140), cd = __byte_perm(c, d, 0x5140);  // of columns 0, 1
        columns[0][i] = __byte_perm(ab, cd, 0x5410);
        columns[1][i] = __byte_perm(ab, cd, 0x7632);
        const uint32_t ab2 = __byte_perm(a, b, 0x7362), cd2 = __byte_perm(c, d, 0x7362);  // of 2, 3
        columns[2][i] = __byte_perm(ab2, cd2, 0x5410);
        columns[3][i] = __byte_perm(ab2, cd2, 0x7632);
      }
      input_t* const to = &packed[(line + word * kWord) * packed_ld + at + chunk * kChunk];
#pragma unroll
      for (int e = 0; e < kWord; ++e) {
        if (line + word * kWord + e >= lines) break;  // packed lines have whole tiles
        reinterpret_cast<uint4&>(to[e * packed_ld]) = reinterpret_cast<const uint4&>(columns[e]);
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(256)  // 8 warps
    gemm_mma_i8_rrr_2_pack(  // copies of both operands
        index_t a_lines, index_t a_length, const input_t* A, index_t lda, input_t* a_packed,
        index_t a_packed_ld, index_t b_lines, index_t b_length, const input_t* B, index_t ldb,
        input_t* b_packed, index_t b_packed_ld) {
  if (blockIdx.z == 0) {
    pack_lines(a_lines, a_length, A, lda, a_packed, a_packed_ld);
  } else {
    pack_transposed(b_lines, b_length, B, ldb, b_packed, b_packed_ld);
  }
}

// ------------------------------------------------------------------------ the kernel
constexpr int kSharedBytes = kStages * kStageBytes;  // 98304; rows of D take their place
static_assert(kThreads / 32 * sizeof(Staging) <= kSharedBytes);

extern "C" __global__ void __launch_bounds__(kThreads)  // lets the compiler count on the block size
    gemm_mma_i8_rrr_2(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        const input_t* __restrict__ B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc,
        output_t* D, index_t ldd) {
  extern __shared__ __align__(128) unsigned char shared[];  // (kStages, kStageBytes)
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
  const auto copy_a = [&](uint32_t stage, int k) {
    const int left = depth - k - a_chunk * kChunk;
    const int bytes = (left < 0 ? 0 : left < kChunk ? left : kChunk) * int(sizeof(input_t));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const auto from = a_from + index_t(i * 64) * lda + k;
      const int to = swizzle_64b(a_line + i * 64, a_chunk);
      cp_async(stage + to, from, i * 64 < a_left ? bytes : 0);
    }
  };
  const int b_line = threadIdx.x / 4, b_chunk = threadIdx.x % 4;
  const int b_left = cols - col0 - b_line;  // lines from there to the end of B
  const auto b_from = B + index_t(col0 + b_line) * ldb + b_chunk * kChunk;
  const auto copy_b = [&](uint32_t stage, int k) {
    const int left = depth - k - b_chunk * kChunk;
    const int bytes = (left < 0 ? 0 : left < kChunk ? left : kChunk) * int(sizeof(input_t));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto from = b_from + index_t(i * 64) * ldb + k;
      const int to = swizzle_64b(b_line + i * 64, b_chunk);
      cp_async(stage + to, from, i * 64 < b_left ? bytes : 0);
    }
  };

  WarpTile tile;
  const int steps = (depth + kTileK - 1) / kTileK;

  // Prologue: the first kStages - 1 steps' copies, a group each (the last ones may be empty).
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < steps) {
      copy_a(stages + s * kStageBytes, s * kTileK);
      copy_b(stages + s * kStageBytes + kBytesA, s * kTileK);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  tile.read_from(stages, warp, lane);
  if (steps > 0) {
    asm volatile("cp.async.wait_group 2;" ::: "memory");
    __syncthreads();  // the first tiles are there, for all threads
    tile.load(0);
  }

  // Main loop. While K block kb of step n is multiplied, the next one moves from shared memory to
  // registers, and the tiles of step n + kStages - 1 from global to shared memory.
  int reading = 0, writing = kStages - 1;  // stages
  for (int n = 0; n < steps; ++n) {
#pragma unroll
    for (int kb = 0; kb < kKBlocks; ++kb) {
      if (kb == kKBlocks - 1) {
        // After the last step, load again what is there: it is not used, and costs less than a
        // branch.
        const int next = n + 1 == steps ? reading : reading + 1 < kStages ? reading + 1 : 0;
        tile.move((next - reading) * kStageBytes);
        reading = next;
        if (n + 1 < steps) {
          asm volatile("cp.async.wait_group 2;" ::: "memory");
          __syncthreads();  // the next tiles are there; nobody reads these any more
        }
      }
      tile.load((kb + 1) % kKBlocks);
      if (kb == 0) {
        const int k = (n + kStages - 1) * kTileK;
        if (n + kStages - 1 < steps) {
          copy_a(stages + writing * kStageBytes, k);
          copy_b(stages + writing * kStageBytes + kBytesA, k);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        writing = writing + 1 < kStages ? writing + 1 : 0;
      }
      tile.multiply(kb);
    }
  }

  const int row = row0 + warp % kWarpsM * kWarpM, col = col0 + warp / kWarpsM * kWarpN;
  const Output out{rows, cols, alpha, beta, C, D, ldc, ldd};
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

// A launch, worked out from top to bottom.
struct Plan {
  index_t M, N, K;
  size_t A, B;  // addresses
  index_t lda, ldb;

  bool packs_a = K > 0 && (A % 16 != 0 || lda % 16 != 0);  // its lines are not aligned
  index_t a_lines = packs_a ? M : 0, a_length = packs_a ? K : 0;  // to pack
  index_t a_ld = packs_a ? (a_length + 127) / 128 * 128 : lda;  // as the kernel reads it
  bool packs_b = K > 0;  // its lines do not run along K
  index_t b_lines = packs_b ? N : 0, b_length = packs_b ? K : 0;  // to pack
  index_t b_ld = packs_b ? (b_length + 127) / 128 * 128 : ldb;  // as the kernel reads it
  index_t b_offset = (a_lines * a_ld + 255) / 256 * 256;  // bytes
  index_t tiles = (M + kTileM - 1) / kTileM * ((N + kTileN - 1) / kTileN);  // of D
  index_t bytes = b_offset + (b_lines * b_ld + 255) / 256 * 256;  // of the workspace
  index_t a_lanes = a_length > 128 ? 32 : 8;  // for a line
  index_t a_pieces = (a_lines * a_lanes + 511) / 512 * ((a_length + 511) / 512);  // for blocks
  index_t b_pieces = (b_lines + 127) / 128 * ((b_length + 127) / 128);  // for blocks
  index_t pieces = a_pieces > b_pieces ? a_pieces : b_pieces;
  index_t pack_blocks = pieces < 65536 ? pieces : 65536;
};

constexpr size_t kSide = 2147479552;  // M, N, K: 2^31 - 4096, so that where a tile ends is an int
constexpr size_t kMost = 2147483647;  // blocks
constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows

// Sets *bytes to the size of the workspace that the launcher needs on the current device, or to 0 where
// it returns the launcher's error 1 or 9.
// It holds B transposed, a copy of the other operand if its pointer or leading dimension is no
// multiple of 16 bytes.
extern "C" cudaError_t  // cudaSuccess once *bytes is set
gemm_mma_i8_rrr_2_workspace(  // for a launch with these arguments
    index_t M, index_t N, index_t K, const input_t* A, index_t lda, const input_t* B, index_t ldb,
    size_t* bytes) {
  if (bytes == nullptr) return cudaErrorInvalidValue;
  *bytes = 0;
  if (size_t(M) > kSide || size_t(N) > kSide || size_t(K) > kSide) return cudaErrorInvalidValue;
  if (M == 0 || N == 0) return cudaSuccess;  // D has no elements
  if (M > kLargest / N) return cudaErrorInvalidValue;
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return cudaErrorInvalidValue;
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
gemm_mma_i8_rrr_2_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, scalar_t alpha, const input_t* A, index_t lda,
    const input_t* B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc, output_t* D,
    index_t ldd, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  size_t needed;  // bytes of the workspace
  auto ask = gemm_mma_i8_rrr_2_workspace;
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
  const auto b_packed = a_packed + plan.b_offset;
  const input_t* const a = plan.packs_a ? a_packed : A;
  const input_t* const b = plan.packs_b ? b_packed : B;

  const auto kernel = gemm_mma_i8_rrr_2;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;

  if (plan.packs_a || plan.packs_b) {
    error = launch(  // a kernel that packs both
        gemm_mma_i8_rrr_2_pack, dim3(unsigned(plan.pack_blocks), 1, 2), 256, 0, stream,
        plan.a_lines, plan.a_length, A, lda, a_packed, plan.a_ld, plan.b_lines, plan.b_length, B,
        ldb, b_packed, plan.b_ld);
    if (error != cudaSuccess) return error;
  }
  const dim3 grid(unsigned(plan.tiles));
  return launch(
      kernel, grid, kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, alpha, a, plan.a_ld, b, plan.b_ld, beta, C, ldc, D, ldd);
}

#endif  // __CUDACC_RTC__
}  // namespace gemm_mma_i8_rrr_2_ns

// ---------------------------------------------------------------------------- kernel 3

// gemm_tiles_f16_rrr_3: D = alpha * A * B + beta * C + bias
//
// A block computes a square tile of D. It walks along K, and at each step its threads together copy
// one tile of A and one of B into shared memory, where each element is then read kTile times: global
// memory is read kTile times less than in the kernel without tiles. Elements outside of the matrices
// are zeros, which add nothing to a sum.
//
//   A  M x K, row-major, __half
//   B  K x N, row-major, __half
//   C  M x N, row-major, __half; not read when beta is 0
//   D  M x N, row-major, __half; must not overlap A or B; may be C, where ldc is ldd
//   bias  N elements, __half: one for each column of D
//
// Any M, N, K >= 0. Accumulators, alpha and beta are float. Leading dimensions count elements.
// Needs a GPU of compute capability 7.5 or newer and C++17.

#include <cuda_fp16.h>

namespace gemm_tiles_f16_rrr_3_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = __half;
using output_t = __half;
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

// Element (row, col) of D: alpha * sum + beta * C + bias. As in BLAS, C is not read when
// beta is 0: it may hold NaN or be null.
__device__ inline void epilogue(
    accumulator_t sum, index_t row, index_t col, scalar_t alpha, scalar_t beta, const output_t* C,
    index_t ldc, output_t* D, index_t ldd, const output_t* bias) {
  scalar_t x = alpha * sum;
  if (beta != 0) x += beta * scalar_t(C[c_at(row, col, ldc)]);
  x += scalar_t(bias[col]);
  D[c_at(row, col, ldd)] = output_t(x);
}

extern "C" __global__ void __launch_bounds__(kThreads)  // lets the compiler count on the block size
    gemm_tiles_f16_rrr_3(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        const input_t* __restrict__ B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc,
        output_t* D, index_t ldd, const output_t* bias) {
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
        epilogue(sum[i], row, col, alpha, beta, C, ldc, D, ldd, bias);
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
gemm_tiles_f16_rrr_3_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, scalar_t alpha, const input_t* A, index_t lda,
    const input_t* B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc, output_t* D,
    index_t ldd, const output_t* bias, cudaStream_t stream) {
  constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows
  if (M < 0 || N < 0 || K < 0) return cudaErrorInvalidValue;
  if (M == 0 || N == 0) return cudaSuccess;  // D has no elements
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return cudaErrorInvalidValue;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return cudaErrorInvalidValue;
  if (bias == nullptr) return cudaErrorInvalidValue;

  const index_t grid_x = (N + kTile - 1) / kTile;  // columns of blocks
  const index_t rows = (M + kTile - 1) / kTile;  // of blocks; they stride over the rest
  const index_t grid_y = rows < 65535 ? rows : 65535;
  if (grid_x > 2147483647) return cudaErrorInvalidConfiguration;  // a grid is not wider
  int device;
  cudaError_t error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const auto kernel = gemm_tiles_f16_rrr_3;
  const dim3 grid{unsigned(grid_x), unsigned(grid_y)}, block{kTile, kThreadRows};
  return launch(
      kernel, grid, block, 0, stream,  // and its parameters:
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd, bias);
}

#endif  // __CUDACC_RTC__
}  // namespace gemm_tiles_f16_rrr_3_ns

// ---------------------------------------------------------------------------- kernel 4

// gemm_naive_f64_rrr_4: D = alpha * A * B + beta * C
//
// The definition, written down: one thread computes one element of D, reading its row of A and its
// column of B from global memory. Every element of A is read N times and every one of B M times;
// caches are all that helps. Threads that are neighbours along x share a row of A and read
// neighbouring columns of B.
//
//   A  M x K, row-major, double
//   B  K x N, row-major, double
//   C  M x N, row-major, double; not read when beta is 0
//   D  M x N, row-major, double; must not overlap A or B; may be C, where ldc is ldd
//
// Any M, N, K >= 0. Accumulators, alpha and beta are double. Leading dimensions count elements.
// Needs a GPU of compute capability 7.5 or newer and C++17.

namespace gemm_naive_f64_rrr_4_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = double;
using output_t = double;
using accumulator_t = double;
using scalar_t = accumulator_t;  // of alpha, beta, the epilogue

constexpr int kThreadsX = 16;  // columns of D per block
constexpr int kThreadsY = 16;  // rows of D per block
constexpr int kThreads = kThreadsX * kThreadsY;

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
    gemm_naive_f64_rrr_4(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        const input_t* __restrict__ B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc,
        output_t* D, index_t ldd) {
  const index_t col = index_t(blockIdx.x) * kThreadsX + threadIdx.x;
  if (col >= N) return;

  // A grid has at most 65,535 blocks along y: where D has more rows, blocks stride over the rest.
  const index_t first_row = index_t(blockIdx.y) * kThreadsY + threadIdx.y;
  for (index_t row = first_row; row < M; row += index_t(gridDim.y) * kThreadsY) {
    accumulator_t sum = 0;
#pragma unroll 16  // many loads on their way at once: waiting for them is what takes the time
    for (index_t k = 0; k < K; ++k) {
      const accumulator_t a = static_cast<accumulator_t>(A[a_at(row, k, lda)]);
      const accumulator_t b = static_cast<accumulator_t>(B[b_at(k, col, ldb)]);
      sum += a * b;
    }
    epilogue(sum, row, col, alpha, beta, C, ldc, D, ldd);
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
gemm_naive_f64_rrr_4_launch(  // D = alpha * A * B + beta * C
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

  const index_t grid_x = (N + kThreadsX - 1) / kThreadsX;  // columns of blocks
  const index_t rows = (M + kThreadsY - 1) / kThreadsY;  // of blocks; they stride over the rest
  const index_t grid_y = rows < 65535 ? rows : 65535;
  if (grid_x > 2147483647) return cudaErrorInvalidConfiguration;  // a grid is not wider
  int device;
  cudaError_t error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const auto kernel = gemm_naive_f64_rrr_4;
  const dim3 grid{unsigned(grid_x), unsigned(grid_y)}, block{kThreadsX, kThreadsY};
  return launch(
      kernel, grid, block, 0, stream,  // and its parameters:
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd);
}

#endif  // __CUDACC_RTC__
}  // namespace gemm_naive_f64_rrr_4_ns

// ---------------------------------------------------------------------------- the choice

#ifndef __CUDACC_RTC__  // the host's side, for programs built by nvcc

namespace gemm_ns {

using Problem = gemm_problem;

// alpha or beta as a kernel takes it.
inline bool convert(double from, float& to) {
  to = static_cast<float>(from);
  return true;
}
inline bool convert(double from, double& to) {
  to = from;
  return true;
}
inline bool convert(double from, int& to) {
  if (!(from >= -2147483648.0 && from <= 2147483647.0)) return false;
  to = static_cast<int>(from);
  return to == from;
}

// Launchers with what a problem has: untyped pointers, alpha and beta as double.
template <class Input, class Scalar, class Output, auto kLaunch>
cudaError_t launch(const Problem& p, void*, size_t, cudaStream_t stream) {
  Scalar alpha, beta;
  if (!convert(p.alpha, alpha) || !convert(p.beta, beta)) return cudaErrorInvalidValue;
  return kLaunch(
      p.M, p.N, p.K, alpha, static_cast<const Input*>(p.A), p.lda, static_cast<const Input*>(p.B),
      p.ldb, beta, static_cast<const Output*>(p.C), p.ldc, static_cast<Output*>(p.D), p.ldd,
      stream);
}

template <class Input, class Scalar, class Output, auto kLaunch>
cudaError_t launch_in_workspace(
    const Problem& p, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  Scalar alpha, beta;
  if (!convert(p.alpha, alpha) || !convert(p.beta, beta)) return cudaErrorInvalidValue;
  return kLaunch(
      p.M, p.N, p.K, alpha, static_cast<const Input*>(p.A), p.lda, static_cast<const Input*>(p.B),
      p.ldb, beta, static_cast<const Output*>(p.C), p.ldc, static_cast<Output*>(p.D), p.ldd,
      workspace, workspace_bytes, stream);
}

template <class Input, class Scalar, class Output, auto kLaunch>
cudaError_t launch_with_bias(const Problem& p, void*, size_t, cudaStream_t stream) {
  Scalar alpha, beta;
  if (!convert(p.alpha, alpha) || !convert(p.beta, beta)) return cudaErrorInvalidValue;
  return kLaunch(
      p.M, p.N, p.K, alpha, static_cast<const Input*>(p.A), p.lda, static_cast<const Input*>(p.B),
      p.ldb, beta, static_cast<const Output*>(p.C), p.ldc, static_cast<Output*>(p.D), p.ldd,
      static_cast<const Output*>(p.bias), stream);
}

template <class Input, auto kWorkspace>
cudaError_t workspace(const Problem& p, size_t* bytes) {
  return kWorkspace(
      p.M, p.N, p.K, static_cast<const Input*>(p.A), p.lda, static_cast<const Input*>(p.B), p.ldb,
      bytes);
}

// A kernel, and which problems it is for.
struct Kernel {
  gemm_type type;
  gemm_layout layout;
  gemm_epilogue epilogue;
  long long M, N, K;  // the smallest
  int multiple;  // what lda and ldb are multiples of if A and B are aligned to 16 bytes; 0: any
  cudaError_t (*workspace)(const Problem&, size_t*);  // null: needs none
  cudaError_t (*launch)(const Problem&, void*, size_t, cudaStream_t);
  const char* name;
};

// clang-format off
constexpr auto launch_1 = launch_in_workspace<
    __half, float, __half,
    gemm_mma_f16_rrr_1_ns::gemm_mma_f16_rrr_1_launch>;
constexpr auto workspace_1 = workspace<
    __half, gemm_mma_f16_rrr_1_ns::gemm_mma_f16_rrr_1_workspace>;
constexpr auto launch_2 = launch_in_workspace<
    signed char, int, int,
    gemm_mma_i8_rrr_2_ns::gemm_mma_i8_rrr_2_launch>;
constexpr auto workspace_2 = workspace<
    signed char, gemm_mma_i8_rrr_2_ns::gemm_mma_i8_rrr_2_workspace>;
constexpr auto launch_3 = launch_with_bias<
    __half, float, __half,
    gemm_tiles_f16_rrr_3_ns::gemm_tiles_f16_rrr_3_launch>;
constexpr auto launch_4 = launch<
    double, double, double,
    gemm_naive_f64_rrr_4_ns::gemm_naive_f64_rrr_4_launch>;

// The first that fits is taken.
constexpr Kernel kKernels[] = {
    {GEMM_F16, GEMM_RRR, GEMM_LINEAR,      0, 0, 0, 8, workspace_1, launch_1, "gemm_mma_f16_rrr_1"},
    {GEMM_I8,  GEMM_RRR, GEMM_LINEAR,      0, 0, 0, 0, workspace_2, launch_2, "gemm_mma_i8_rrr_2"},
    {GEMM_F16, GEMM_RRR, GEMM_LINEAR_BIAS, 0, 0, 0, 0, nullptr,     launch_3, "gemm_tiles_f16_rrr_3"},
    {GEMM_F64, GEMM_RRR, GEMM_LINEAR,      0, 0, 0, 0, nullptr,     launch_4, "gemm_naive_f64_rrr_4"},
};
// clang-format on

inline bool is_aligned(const void* matrix, long long ld, int multiple) {
  return multiple == 0 || (reinterpret_cast<size_t>(matrix) % 16 == 0 && ld % multiple == 0);
}

inline bool fits(const Kernel& kernel, const Problem& p) {
  const bool right_kind =
      p.type == kernel.type && p.layout == kernel.layout && p.epilogue == kernel.epilogue;
  const bool large_enough = p.M >= kernel.M && p.N >= kernel.N && p.K >= kernel.K;
  return right_kind && large_enough && is_aligned(p.A, p.lda, kernel.multiple) &&
         is_aligned(p.B, p.ldb, kernel.multiple);
}

inline cudaError_t choose(const Problem* p, const Kernel*& chosen) {
  if (p == nullptr || p->M < 0 || p->N < 0 || p->K < 0) return cudaErrorInvalidValue;
  for (const Kernel& kernel : kKernels) {
    if (fits(kernel, *p)) {
      chosen = &kernel;
      return cudaSuccess;
    }
  }
  return cudaErrorNotSupported;
}

extern "C" GEMMGEN_API const char* gemm_kernel(const Problem* problem) {
  const Kernel* kernel = nullptr;
  return choose(problem, kernel) == cudaSuccess ? kernel->name : nullptr;
}

extern "C" GEMMGEN_API cudaError_t  // cudaSuccess once *bytes is set
gemm_workspace(const Problem* problem, size_t* bytes) {
  if (bytes == nullptr) return cudaErrorInvalidValue;
  *bytes = 0;
  const Kernel* kernel = nullptr;
  const cudaError_t error = choose(problem, kernel);
  if (error != cudaSuccess || kernel->workspace == nullptr) return error;
  return kernel->workspace(*problem, bytes);
}

extern "C" GEMMGEN_API cudaError_t  // cudaSuccess once the kernels are on their way
gemm_launch(  // by the first kernel that fits
    const Problem* problem, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  const Kernel* kernel = nullptr;
  const cudaError_t error = choose(problem, kernel);
  if (error != cudaSuccess) return error;
  return kernel->launch(*problem, workspace, workspace_bytes, stream);
}

}  // namespace gemm_ns

#endif  // __CUDACC_RTC__
