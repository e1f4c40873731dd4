// heads: D = alpha * A * B + beta * C, by the kernel that suits the problem
//
// 4 kernels, each in a namespace of its own, as gemmgen emits them alone; then what chooses among
// them. The header says how.
//
// Made by gemmgen 0.2.0:  gen emit --bundle heads.kernels --name heads --arch sm_80
// Compile:  nvcc -std=c++17 -arch=sm_80 -c heads.cu
// SPDX-License-Identifier: 0BSD

#ifndef __CUDACC_RTC__
#include "heads.h"
#if HEADS_SPEC != 0x6c050aab
#error "the header is another kernel's; emit both files together"
#endif
#endif

// ---------------------------------------------------------------------------- kernel 1

// heads_mma_f16_rrr_1: D = silu(x) * up[row, col] + slope * rest[row, col], x = alpha * A * B + beta * C
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
//   up  M x N, in D's order, __half
//   slope  a number of alpha's type
//   rest  M x N, in D's order, __half
//
// A batch of such products: their matrices are stride_a, stride_b, stride_c and stride_d elements apart.
// Where a stride of A, B or C is 0, all products have the same matrix. Those of D do not overlap; where
// D is C, both have one stride.
//
// M, N, K from 0 to 2^31 - 4096, any leading dimension, in elements. Accumulators are float,
// alpha and beta are float. Needs a GPU of compute capability 8.0 or newer and C++17.

#include <cuda_fp16.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "for -arch=sm_80 or newer: older GPUs lack the kernel's instructions"
#endif

namespace heads_mma_f16_rrr_1_ns {  // several emitted files may be in one program
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
// The tiles of a product come behind all of the one before.
__device__ inline void tile_at(
    uint32_t t, uint32_t tiles_m, uint32_t tiles_n, int& product, int& row0, int& col0) {
  product = t / (tiles_m * tiles_n);
  t %= tiles_m * tiles_n;
  const uint32_t most = tiles_m < kGroup ? tiles_m : kGroup;  // kGroup * tiles_n may overflow
  const uint32_t group = most * tiles_n, first = t / group * most;
  const uint32_t height = tiles_m - first < most ? tiles_m - first : most;
  row0 = (first + t % group % height) * kTileM;
  col0 = t % group / height * kTileN;
}

// ------------------------------------------------------------------------ D
struct Aux {  // what the epilogue takes besides A, B and C
  const __half* up;  // M x N, in D's order
  index_t ld_up;
  scalar_t slope;
  const __half* rest;  // M x N, in D's order
  index_t ld_rest;
};

// t times its logistic function: swish (Ramachandran, 2017).
__device__ inline scalar_t silu(scalar_t t) {
  return t / (1.0f + expf(-t));
}

// An element of D from x = alpha * A * B + beta * C.
__device__ inline output_t finish_element(scalar_t x, index_t row, index_t col, const Aux& aux) {
  const scalar_t up = scalar_t(aux.up[row * aux.ld_up + col]);
  const scalar_t rest = scalar_t(aux.rest[row * aux.ld_rest + col]);
  return output_t(silu(x) * up + aux.slope * rest);
}

struct Output {  // what D is made from, besides accumulators, and where it goes
  int rows, cols;
  scalar_t alpha, beta;
  const output_t* C;  // as in BLAS, not read where beta is 0: it may hold NaN or be null
  output_t* D;
  index_t ldc, ldd;
  Aux aux;
};

// Places beyond D are taken for the last one inside: what is made there is not stored.
__device__ inline int clamped(int at, int count) {
  return at < count ? at : count - 1;
}

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
// `staging`, whose place it takes. The first one is (row0, col0) of D.
__device__ inline void finish_rows(
    Staging& staging, const WarpTile& tile, const Output& out, bool reads_c, int row0, int col0,
    int lane) {
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
      const int row = clamped(row0 + q % 2 * 8 + lane / 4, out.rows);
      const int col = col0 + 16 * j + q / 2 * 8 + lane % 4 * 2;
      const int left = clamped(col, out.cols), right = clamped(col + 1, out.cols);
      d = {finish_element(x, row, left, out.aux), finish_element(y, row, right, out.aux)};
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
    finish_rows(staging, tile, out, out.beta != 0, row, col0, lane);
    __syncwarp();
    write_rows(staging, out, row, col0, aligned, lane);
    __syncwarp();  // all have been read
    tile.move_up();
  }
}

// ------------------------------------------------------------------------ packing
// An operand whose lines do not all start at multiples of 16 bytes is first copied to the workspace
// with lines that do; blockIdx.z is even for A, odd for B. One that needs no copy has 0 lines here.

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
    heads_mma_f16_rrr_1_pack(  // copies of both operands
        index_t a_lines, index_t a_length, index_t a_count, const input_t* A, index_t lda,
        index_t stride_a, input_t* a_packed, index_t a_packed_ld, index_t b_lines, index_t b_length,
        index_t b_count, const input_t* B, index_t ldb, index_t stride_b, input_t* b_packed,
        index_t b_packed_ld) {
  // Every other block along z has matrices of A, those between them of B; they stride over the rest.
  const bool is_a = blockIdx.z % 2 == 0;
  const index_t count = is_a ? a_count : b_count;
  for (index_t i = blockIdx.z / 2; i < count; i += gridDim.z / 2) {
    pack_lines(
        is_a ? a_lines : b_lines, is_a ? a_length : b_length,
        is_a ? A + i * stride_a : B + i * stride_b, is_a ? lda : ldb,
        is_a ? a_packed + i * a_lines * a_packed_ld : b_packed + i * b_lines * b_packed_ld,
        is_a ? a_packed_ld : b_packed_ld);
  }
}

// ------------------------------------------------------------------------ the kernel
constexpr int kSharedBytes = kStages * kStageBytes;  // 98304; rows of D take their place
static_assert(kThreads / 32 * sizeof(Staging) <= kSharedBytes);

extern "C" __global__ void __launch_bounds__(kThreads)  // lets the compiler count on the block size
    heads_mma_f16_rrr_1(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        index_t stride_a, const input_t* __restrict__ B, index_t ldb, index_t stride_b,
        scalar_t beta, const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd,
        index_t stride_d, const __half* up, index_t ld_up, scalar_t slope, const __half* rest,
        index_t ld_rest) {
  extern __shared__ __align__(128) unsigned char shared[];  // (kStages, kStageBytes)
  const uint32_t stages = shared_address(shared);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  const int rows = int(M), cols = int(N), depth = int(K);
  const int tiles_m = (rows + kTileM - 1) / kTileM, tiles_n = (cols + kTileN - 1) / kTileN;
  int product, row0, col0;
  tile_at(blockIdx.x, tiles_m, tiles_n, product, row0, col0);
  A += product * stride_a;
  B += product * stride_b;
  if (beta != 0) C += product * stride_c;
  D += product * stride_d;

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
  const Aux aux{up, ld_up, slope, rest, ld_rest};
  const Output out{rows, cols, alpha, beta, C, D, ldc, ldd, aux};
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
  index_t M, N, K, batch;
  size_t A, B;  // addresses
  index_t lda, ldb, stride_a, stride_b;

  bool packs_a = K > 0 && (A % 16 != 0 || lda % 8 != 0 || stride_a % 8 != 0);  // not aligned
  index_t a_lines = packs_a ? M : 0, a_length = packs_a ? K : 0;  // to pack
  index_t a_ld = packs_a ? (a_length + 63) / 64 * 64 : lda;  // as the kernel reads it
  index_t a_count = stride_a > 0 ? batch : 1;  // matrices
  index_t a_each = a_lines * a_ld;  // elements of a copy
  index_t a_most = 288230376151711744 / (a_each + 1);  // more than any memory has
  index_t a_copies = a_count < a_most ? a_count : a_most;
  index_t a_stride = packs_a ? (a_count > 1 ? a_each : 0) : stride_a;  // between them
  bool packs_b = K > 0 && (B % 16 != 0 || ldb % 8 != 0 || stride_b % 8 != 0);  // not aligned
  index_t b_lines = packs_b ? K : 0, b_length = packs_b ? N : 0;  // to pack
  index_t b_ld = packs_b ? (b_length + 63) / 64 * 64 : ldb;  // as the kernel reads it
  index_t b_count = stride_b > 0 ? batch : 1;  // matrices
  index_t b_each = b_lines * b_ld;  // elements of a copy
  index_t b_most = 288230376151711744 / (b_each + 1);  // more than any memory has
  index_t b_copies = b_count < b_most ? b_count : b_most;
  index_t b_stride = packs_b ? (b_count > 1 ? b_each : 0) : stride_b;  // between them
  index_t b_offset = (a_copies * a_each * 2 + 255) / 256 * 256;  // bytes
  index_t tiles = (M + kTileM - 1) / kTileM * ((N + kTileN - 1) / kTileN) * batch;  // of D
  index_t bytes = b_offset + (b_copies * b_each * 2 + 255) / 256 * 256;  // of the workspace
  index_t a_lanes = a_length > 64 ? 32 : 8;  // for a line
  index_t b_lanes = b_length > 64 ? 32 : 8;  // for a line
  index_t a_pieces = (a_lines * a_lanes + 511) / 512 * ((a_length + 255) / 256);  // for blocks
  index_t b_pieces = (b_lines * b_lanes + 511) / 512 * ((b_length + 255) / 256);  // for blocks
  index_t pieces = a_pieces > b_pieces ? a_pieces : b_pieces;
  index_t pack_blocks = pieces < 65536 ? pieces : 65536;
  index_t pack_count = packs_a && (!packs_b || a_count > b_count) ? a_count : b_count;
  index_t pack_z = pack_count < 32767 ? pack_count : 32767;
};

constexpr size_t kSide = 2147479552;  // M, N, K: 2^31 - 4096, so that where a tile ends is an int
constexpr size_t kMost = 2147483647;  // blocks
constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows

// Sets *bytes to the size of the workspace that the launcher needs on the current device, or to 0 where
// it returns the launcher's error 1 or 9.
// It holds copies of operands whose pointer or leading dimension is no multiple of 16 bytes.
extern "C" cudaError_t  // cudaSuccess once *bytes is set
heads_mma_f16_rrr_1_workspace(  // for a launch with these arguments
    index_t M, index_t N, index_t K, index_t batch, const input_t* A, index_t lda, index_t stride_a,
    const input_t* B, index_t ldb, index_t stride_b, size_t* bytes) {
  if (bytes == nullptr) return cudaErrorInvalidValue;
  *bytes = 0;
  if (size_t(M) > kSide || size_t(N) > kSide || size_t(K) > kSide) return cudaErrorInvalidValue;
  if (size_t(batch) > kMost) return cudaErrorInvalidValue;
  if (M == 0 || N == 0 || batch == 0) return cudaSuccess;  // D has no elements
  if (M > kLargest / N || batch > kLargest / (M * N)) return cudaErrorInvalidValue;
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return cudaErrorInvalidValue;
  if (K > 0 && (stride_a < 0 || stride_a > kLargest / batch)) return cudaErrorInvalidValue;
  if (K > 0 && (stride_b < 0 || stride_b > kLargest / batch)) return cudaErrorInvalidValue;
  const Plan plan{M, N, K, batch, size_t(A), size_t(B), lda, ldb, stride_a, stride_b};
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
//        than 2^44 elements, a leading dimension too short, a workspace too small or not aligned,
//        a negative stride, products of D that overlap, or too many: see 9
//     9  cudaErrorInvalidConfiguration: 2^31 blocks or more
//   209  cudaErrorNoKernelImageForDevice: a GPU older than nvcc's -arch. For newer ones the driver
//        compiles the file's PTX when it is first needed, unless nvcc was told to leave PTX out
//   400  cudaErrorInvalidResourceHandle: a stream of another device
extern "C" cudaError_t  // cudaSuccess once the kernels are on their way
heads_mma_f16_rrr_1_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, index_t batch, scalar_t alpha, const input_t* A, index_t lda,
    index_t stride_a, const input_t* B, index_t ldb, index_t stride_b, scalar_t beta,
    const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd, index_t stride_d,
    const __half* up, index_t ld_up, scalar_t slope, const __half* rest, index_t ld_rest,
    void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  size_t needed;  // bytes of the workspace
  auto ask = heads_mma_f16_rrr_1_workspace;
  cudaError_t error = ask(M, N, K, batch, A, lda, stride_a, B, ldb, stride_b, &needed);
  if (error != cudaSuccess || M == 0 || N == 0 || batch == 0) return error;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return cudaErrorInvalidValue;
  if (beta != 0 && (stride_c < 0 || stride_c > kLargest / batch)) return cudaErrorInvalidValue;
  if (stride_d < 0 || stride_d > kLargest / batch) return cudaErrorInvalidValue;
  // Products of D do not overlap.
  const bool follow = stride_d >= (M - 1) * ldd + N;  // one behind the other
  const bool beside = stride_d >= N && (batch - 1) * stride_d + N <= ldd;  // in the same lines
  if (batch > 1 && !follow && !beside) return cudaErrorInvalidValue;
  if (up == nullptr || ld_up < N || ld_up > kLargest / M) return cudaErrorInvalidValue;
  if (rest == nullptr || ld_rest < N || ld_rest > kLargest / M) return cudaErrorInvalidValue;

  int device;
  error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const Plan plan{M, N, K, batch, size_t(A), size_t(B), lda, ldb, stride_a, stride_b};
  bool fits = workspace != nullptr && workspace_bytes >= needed && size_t(workspace) % 256 == 0;
  if (needed > 0 && !fits) return cudaErrorInvalidValue;
  const auto a_packed = static_cast<input_t*>(workspace);
  const auto b_packed = a_packed + plan.b_offset / 2;
  const input_t* const a = plan.packs_a ? a_packed : A;
  const input_t* const b = plan.packs_b ? b_packed : B;

  const auto kernel = heads_mma_f16_rrr_1;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;

  if (plan.packs_a || plan.packs_b) {
    error = launch(  // a kernel that packs both
        heads_mma_f16_rrr_1_pack, dim3(unsigned(plan.pack_blocks), 1, unsigned(2 * plan.pack_z)),
        256, 0, stream, plan.a_lines, plan.a_length, plan.a_count, A, lda, stride_a, a_packed,
        plan.a_ld, plan.b_lines, plan.b_length, plan.b_count, B, ldb, stride_b, b_packed,
        plan.b_ld);
    if (error != cudaSuccess) return error;
  }
  const dim3 grid(unsigned(plan.tiles));
  return launch(
      kernel, grid, kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, alpha, a, plan.a_ld, plan.a_stride, b, plan.b_ld, plan.b_stride, beta, C,
      ldc, stride_c, D, ldd, stride_d, up, ld_up, slope, rest, ld_rest);
}

#endif  // __CUDACC_RTC__
}  // namespace heads_mma_f16_rrr_1_ns

// ---------------------------------------------------------------------------- kernel 2

// heads_naive_f32_rrr_2: D = alpha * A * B + beta * C + bias
//
// The definition, written down: one thread computes one element of D, reading its row of A and its
// column of B from global memory. Every element of A is read N times and every one of B M times;
// caches are all that helps. Threads that are neighbours along x share a row of A and read
// neighbouring columns of B.
//
//   A  M x K, row-major, float
//   B  K x N, row-major, float
//   C  M x N, row-major, float; not read when beta is 0
//   D  M x N, row-major, float; must not overlap A or B; may be C, where ldc is ldd
//   bias  N elements, float: one for each column of D
//
// A batch of such products: their matrices are stride_a, stride_b, stride_c and stride_d elements apart.
// Where a stride of A, B or C is 0, all products have the same matrix. Those of D do not overlap; where
// D is C, both have one stride.
//
// Any M, N, K >= 0. Accumulators, alpha and beta are float. Leading dimensions count elements.
// Needs a GPU of compute capability 7.5 or newer and C++17.

namespace heads_naive_f32_rrr_2_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = float;
using output_t = float;
using accumulator_t = float;
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
    heads_naive_f32_rrr_2(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        index_t stride_a, const input_t* __restrict__ B, index_t ldb, index_t stride_b,
        scalar_t beta, const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd,
        index_t stride_d, const output_t* bias, index_t first) {
  // Blocks along z have a product each.
  const index_t product = first + blockIdx.z;
  A += product * stride_a;
  B += product * stride_b;
  if (beta != 0) C += product * stride_c;
  D += product * stride_d;

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
    epilogue(sum, row, col, alpha, beta, C, ldc, D, ldd, bias);
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
heads_naive_f32_rrr_2_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, index_t batch, scalar_t alpha, const input_t* A, index_t lda,
    index_t stride_a, const input_t* B, index_t ldb, index_t stride_b, scalar_t beta,
    const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd, index_t stride_d,
    const output_t* bias, cudaStream_t stream) {
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
  if (bias == nullptr) return cudaErrorInvalidValue;

  const index_t grid_x = (N + kThreadsX - 1) / kThreadsX;  // columns of blocks
  const index_t rows = (M + kThreadsY - 1) / kThreadsY;  // of blocks; they stride over the rest
  const index_t grid_y = rows < 65535 ? rows : 65535;
  if (grid_x > 2147483647) return cudaErrorInvalidConfiguration;  // a grid is not wider
  int device;
  cudaError_t error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const auto kernel = heads_naive_f32_rrr_2;
  constexpr index_t most = 65535;  // products of a launch: blocks of a grid along z
  for (index_t first = 0; first < batch && error == cudaSuccess; first += most) {
    const index_t products = batch - first < most ? batch - first : most;
    const dim3 grid{unsigned(grid_x), unsigned(grid_y), unsigned(products)};
    error = launch(
        kernel, grid, dim3{kThreadsX, kThreadsY}, 0, stream,  // and its parameters:
        M, N, K, alpha, A, lda, stride_a, B, ldb, stride_b, beta, C, ldc, stride_c, D, ldd,
        stride_d, bias, first);
  }
  return error;
}

#endif  // __CUDACC_RTC__
}  // namespace heads_naive_f32_rrr_2_ns

// ---------------------------------------------------------------------------- kernel 3

// heads_naive_f16_rrr_3: D = alpha * A * B + beta * C
//
// The definition, written down: one thread computes one element of D, reading its row of A and its
// column of B from global memory. Every element of A is read N times and every one of B M times;
// caches are all that helps. Threads that are neighbours along x share a row of A and read
// neighbouring columns of B.
//
//   A  M x K, row-major, __half
//   B  K x N, row-major, __half
//   C  M x N, row-major, __half; not read when beta is 0
//   D  M x N, row-major, __half; must not overlap A or B; may be C, where ldc is ldd
//
// Any M, N, K >= 0. Accumulators, alpha and beta are float. Leading dimensions count elements.
// Needs a GPU of compute capability 7.5 or newer and C++17.

#include <cuda_fp16.h>

namespace heads_naive_f16_rrr_3_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = __half;
using output_t = __half;
using accumulator_t = float;
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
    heads_naive_f16_rrr_3(  // D = alpha * A * B + beta * C
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
heads_naive_f16_rrr_3_launch(  // D = alpha * A * B + beta * C
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
  const auto kernel = heads_naive_f16_rrr_3;
  const dim3 grid{unsigned(grid_x), unsigned(grid_y)}, block{kThreadsX, kThreadsY};
  return launch(
      kernel, grid, block, 0, stream,  // and its parameters:
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd);
}

#endif  // __CUDACC_RTC__
}  // namespace heads_naive_f16_rrr_3_ns

// ---------------------------------------------------------------------------- kernel 4

// heads_naive_f64_rrr_4: D = row >= col ? gelu(x) : 0, x = alpha * A * B + beta * C
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

namespace heads_naive_f64_rrr_4_ns {  // several emitted files may be in one program
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

// t times the probability that a normally distributed number is less (Hendrycks, 2016).
__device__ inline scalar_t gelu(scalar_t t) {
  return 0.5 * t * (1.0 + erf(0.70710678118654752 * t));
}

// An element of D from x = alpha * A * B + beta * C.
__device__ inline output_t finish_element(scalar_t x, index_t row, index_t col) {
  return output_t(row >= col ? gelu(x) : 0.0);
}

// Element (row, col) of D: alpha * sum + beta * C, finished. As in BLAS, C is not read when
// beta is 0: it may hold NaN or be null.
__device__ inline void epilogue(
    accumulator_t sum, index_t row, index_t col, scalar_t alpha, scalar_t beta, const output_t* C,
    index_t ldc, output_t* D, index_t ldd) {
  scalar_t x = alpha * sum;
  if (beta != 0) x += beta * scalar_t(C[c_at(row, col, ldc)]);
  D[c_at(row, col, ldd)] = finish_element(x, row, col);
}

extern "C" __global__ void __launch_bounds__(kThreads)  // lets the compiler count on the block size
    heads_naive_f64_rrr_4(  // D = alpha * A * B + beta * C
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
heads_naive_f64_rrr_4_launch(  // D = alpha * A * B + beta * C
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
  const auto kernel = heads_naive_f64_rrr_4;
  const dim3 grid{unsigned(grid_x), unsigned(grid_y)}, block{kThreadsX, kThreadsY};
  return launch(
      kernel, grid, block, 0, stream,  // and its parameters:
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd);
}

#endif  // __CUDACC_RTC__
}  // namespace heads_naive_f64_rrr_4_ns

// ---------------------------------------------------------------------------- the choice

#ifndef __CUDACC_RTC__  // the host's side, for programs built by nvcc

namespace heads_ns {

using Problem = heads_problem;

// alpha or beta as a kernel takes it.
inline bool convert(double from, float& to) {
  to = static_cast<float>(from);
  return true;
}
inline bool convert(double from, double& to) {
  to = from;
  return true;
}

// An array of whichever type the kernel wants.
struct Array {
  const void* first;
  template <class Element>
  operator const Element*() const {
    return static_cast<const Element*>(first);
  }
};

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
cudaError_t launch_batch_with_bias(const Problem& p, void*, size_t, cudaStream_t stream) {
  Scalar alpha, beta;
  if (!convert(p.alpha, alpha) || !convert(p.beta, beta)) return cudaErrorInvalidValue;
  return kLaunch(
      p.M, p.N, p.K, p.batch, alpha, static_cast<const Input*>(p.A), p.lda, p.stride_a,
      static_cast<const Input*>(p.B), p.ldb, p.stride_b, beta, static_cast<const Output*>(p.C),
      p.ldc, p.stride_c, static_cast<Output*>(p.D), p.ldd, p.stride_d,
      static_cast<const Output*>(p.bias), stream);
}

template <class Input, class Scalar, class Output, auto kLaunch>
cudaError_t launch_batch_with_gated_in_workspace(
    const Problem& p, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  Scalar alpha, beta;
  if (!convert(p.alpha, alpha) || !convert(p.beta, beta)) return cudaErrorInvalidValue;
  Scalar own_slope;
  if (!convert(p.gated.slope, own_slope)) return cudaErrorInvalidValue;
  return kLaunch(
      p.M, p.N, p.K, p.batch, alpha, static_cast<const Input*>(p.A), p.lda, p.stride_a,
      static_cast<const Input*>(p.B), p.ldb, p.stride_b, beta, static_cast<const Output*>(p.C),
      p.ldc, p.stride_c, static_cast<Output*>(p.D), p.ldd, p.stride_d, Array{p.gated.up},
      p.gated.ld_up, own_slope, Array{p.gated.rest}, p.gated.ld_rest, workspace, workspace_bytes,
      stream);
}

template <class Input, class Scalar, class Output, auto kLaunch>
cudaError_t launch_with_masked(const Problem& p, void*, size_t, cudaStream_t stream) {
  Scalar alpha, beta;
  if (!convert(p.alpha, alpha) || !convert(p.beta, beta)) return cudaErrorInvalidValue;
  return kLaunch(
      p.M, p.N, p.K, alpha, static_cast<const Input*>(p.A), p.lda, static_cast<const Input*>(p.B),
      p.ldb, beta, static_cast<const Output*>(p.C), p.ldc, static_cast<Output*>(p.D), p.ldd,
      stream);
}

template <class Input, auto kWorkspace>
cudaError_t workspace_of_batch(const Problem& p, size_t* bytes) {
  return kWorkspace(
      p.M, p.N, p.K, p.batch, static_cast<const Input*>(p.A), p.lda, p.stride_a,
      static_cast<const Input*>(p.B), p.ldb, p.stride_b, bytes);
}

// A kernel, and which problems it is for.
struct Kernel {
  heads_type type;
  heads_layout layout;
  heads_epilogue epilogue;
  long long M, N, K;  // the smallest
  bool batched;  // whether it takes more than one product
  int multiple;  // what lda and ldb are multiples of if A and B are aligned to 16 bytes; 0: any
  cudaError_t (*workspace)(const Problem&, size_t*);  // null: needs none
  cudaError_t (*launch)(const Problem&, void*, size_t, cudaStream_t);
  const char* name;
};

// clang-format off
constexpr auto launch_1 = launch_batch_with_gated_in_workspace<
    __half, float, __half,
    heads_mma_f16_rrr_1_ns::heads_mma_f16_rrr_1_launch>;
constexpr auto workspace_1 = workspace_of_batch<
    __half, heads_mma_f16_rrr_1_ns::heads_mma_f16_rrr_1_workspace>;
constexpr auto launch_2 = launch_batch_with_bias<
    float, float, float,
    heads_naive_f32_rrr_2_ns::heads_naive_f32_rrr_2_launch>;
constexpr auto launch_3 = launch<
    __half, float, __half,
    heads_naive_f16_rrr_3_ns::heads_naive_f16_rrr_3_launch>;
constexpr auto launch_4 = launch_with_masked<
    double, double, double,
    heads_naive_f64_rrr_4_ns::heads_naive_f64_rrr_4_launch>;

// The first that fits is taken.
constexpr Kernel kKernels[] = {
    {HEADS_F16, HEADS_RRR, HEADS_GATED,       0, 0, 0, true,  8, workspace_1, launch_1, "heads_mma_f16_rrr_1"},
    {HEADS_F32, HEADS_RRR, HEADS_LINEAR_BIAS, 0, 0, 0, true,  0, nullptr,     launch_2, "heads_naive_f32_rrr_2"},
    {HEADS_F16, HEADS_RRR, HEADS_LINEAR,      0, 0, 0, false, 0, nullptr,     launch_3, "heads_naive_f16_rrr_3"},
    {HEADS_F64, HEADS_RRR, HEADS_MASKED,      0, 0, 0, false, 0, nullptr,     launch_4, "heads_naive_f64_rrr_4"},
};
// clang-format on

// stride: from one product to the next, if there is one.
inline bool is_aligned(const void* matrix, long long ld, long long stride, int multiple) {
  return multiple == 0 || (reinterpret_cast<size_t>(matrix) % 16 == 0 && ld % multiple == 0 &&
                           stride % multiple == 0);
}

inline bool fits(const Kernel& kernel, const Problem& p) {
  const bool right_kind =
      p.type == kernel.type && p.layout == kernel.layout && p.epilogue == kernel.epilogue;
  const bool large_enough = p.M >= kernel.M && p.N >= kernel.N && p.K >= kernel.K;
  const bool alone = p.batch == 1;
  return right_kind && large_enough && (alone || kernel.batched) &&
         is_aligned(p.A, p.lda, alone ? 0 : p.stride_a, kernel.multiple) &&
         is_aligned(p.B, p.ldb, alone ? 0 : p.stride_b, kernel.multiple);
}

inline cudaError_t choose(const Problem* p, const Kernel*& chosen) {
  if (p == nullptr || p->M < 0 || p->N < 0 || p->K < 0 || p->batch < 0) {
    return cudaErrorInvalidValue;
  }
  for (const Kernel& kernel : kKernels) {
    if (fits(kernel, *p)) {
      chosen = &kernel;
      return cudaSuccess;
    }
  }
  return cudaErrorNotSupported;
}

extern "C" GEMMGEN_API const char* heads_kernel(const Problem* problem) {
  const Kernel* kernel = nullptr;
  return choose(problem, kernel) == cudaSuccess ? kernel->name : nullptr;
}

extern "C" GEMMGEN_API cudaError_t  // cudaSuccess once *bytes is set
heads_workspace(const Problem* problem, size_t* bytes) {
  if (bytes == nullptr) return cudaErrorInvalidValue;
  *bytes = 0;
  const Kernel* kernel = nullptr;
  const cudaError_t error = choose(problem, kernel);
  if (error != cudaSuccess || kernel->workspace == nullptr) return error;
  return kernel->workspace(*problem, bytes);
}

extern "C" GEMMGEN_API cudaError_t  // cudaSuccess once the kernels are on their way
heads_launch(  // by the first kernel that fits
    const Problem* problem, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  const Kernel* kernel = nullptr;
  const cudaError_t error = choose(problem, kernel);
  if (error != cudaSuccess) return error;
  return kernel->launch(*problem, workspace, workspace_bytes, stream);
}

}  // namespace heads_ns

#endif  // __CUDACC_RTC__
