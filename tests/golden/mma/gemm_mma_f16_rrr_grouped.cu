// gemm_mma_f16_rrr_grouped: D = alpha * A * B + beta * C
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
// Groups of rows: those of each are multiplied with a matrix B of its own, stride_b elements behind the
// one before. Group g has rows offsets[g - 1] to offsets[g] - 1 of A, C and D, and the first one begins
// with row 0. M is as many as there may be at most: rows behind the last group are not written. An end
// below one before counts as that one, and one above M as M. All offsets are on the device.
//
// M, N, K from 0 to 2^31 - 4096, any leading dimension, in elements. Accumulators are float,
// alpha and beta are float. Needs a GPU of compute capability 8.0 or newer and C++17.
//
// Made by gemmgen 0.2.0:  gen emit --variant mma --dtype f16 --layout rrr --arch sm_80 --pack 1 --threadblock 128x256x32 --warp 64x64 --instruction m16n8k16 --stages 4 --split-k 1 --epilogue linear --swizzle 12 --grouped
// Compile:  nvcc -std=c++17 -arch=sm_80 -c gemm_mma_f16_rrr_grouped.cu, or by NVRTC as it is
// gen-spec: {"variant": "mma", "dtype": "f16", "layout": "rrr", "arch": "sm_80", "pack": 1, "threadblock": "128x256x32", "warp": "64x64", "instruction": "m16n8k16", "stages": 4, "split_k": 1, "epilogue": "linear", "swizzle": 12, "grouped": true}
// SPDX-License-Identifier: 0BSD

#include <cuda_fp16.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "for -arch=sm_80 or newer: older GPUs lack the kernel's instructions"
#endif

namespace gemm_mma_f16_rrr_grouped_ns {  // several emitted files may be in one program
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

// Whose rows a work tile has, and where it begins.
struct Place {
  int group, row_end, row0, col0;
};

// The work tiles of groups of rows, which follow each other in A, C and D; the tiles of a group come
// behind all of the one before. A warp looks at 32 groups at a time, a lane at each, and never goes back.
struct Groups {
  static constexpr unsigned kAll = 0xffffffff;  // lanes

  const int* offsets;  // where each group ends
  int count, rows, tiles_n;  // groups; rows of all; tiles beside each other
  int lane;
  int first = -32;  // of the 32 groups
  int ahead = read(0);  // where the lane's group of the next 32 ends, read early
  int begin = 0, end = 0;  // rows of the lane's group
  int until = 0;  // tiles up to its last one

  __device__ int read(int from) const {
    return lane < count - from ? offsets[from + lane] : 0;
  }

  // Looks at the next 32 groups. An end below one before counts as that one, and one beyond all rows
  // as their number: whatever the offsets are, no two groups share a row.
  __device__ void look() {
    const int before = __shfl_sync(kAll, end, 31), tiles = __shfl_sync(kAll, until, 31);
    end = min(ahead, rows);
    first += 32;
    ahead = read(first + 32);
#pragma unroll
    for (int apart = 1; apart < 32; apart *= 2) end = max(end, __shfl_up_sync(kAll, end, apart));
    end = max(end, before);
    begin = __shfl_up_sync(kAll, end, 1);
    if (lane == 0) begin = before;
    until = (end - begin + kTileM - 1) / kTileM * tiles_n;
#pragma unroll
    for (int apart = 1; apart < 32; apart *= 2) {
      const int others = __shfl_up_sync(kAll, until, apart);
      if (lane >= apart) until += others;
    }
    until += tiles;
  }

  // Finds tile t, which is none before the last one that was asked for. Returns whether there is one.
  __device__ bool find(int t, Place& its) {
    while (t >= __shfl_sync(kAll, until, 31)) {
      if (first + 32 >= count) return false;
      look();
    }
    const int owner = __ffs(__ballot_sync(kAll, t < until)) - 1;  // the lane whose group has it
    const int row = __shfl_sync(kAll, begin, owner);
    its.group = first + owner;
    its.row_end = __shfl_sync(kAll, end, owner);
    const int tiles_m = (its.row_end - row + kTileM - 1) / kTileM;
    const int before = __shfl_sync(kAll, until, owner) - tiles_m * tiles_n;
    tile_at(t - before, tiles_m, tiles_n, its.row0, its.col0);
    its.row0 += row;
    return true;
  }
};

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
// with lines that do; blockIdx.z is 0 for A, more for B. One that needs no copy has 0 lines here.

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
    gemm_mma_f16_rrr_grouped_pack(  // copies of both operands
        index_t a_lines, index_t a_length, const input_t* A, index_t lda, input_t* a_packed,
        index_t a_packed_ld, index_t b_lines, index_t b_length, index_t b_count, const input_t* B,
        index_t ldb, index_t stride_b, input_t* b_packed, index_t b_packed_ld) {
  if (blockIdx.z == 0) {
    pack_lines(a_lines, a_length, A, lda, a_packed, a_packed_ld);
    return;
  }
  // The other blocks along z stride over the matrices of B.
  for (index_t i = blockIdx.z - 1; i < b_count; i += gridDim.z - 1) {
    pack_lines(
        b_lines, b_length, B + i * stride_b, ldb, b_packed + i * b_lines * b_packed_ld,
        b_packed_ld);
  }
}

// ------------------------------------------------------------------------ the kernel
constexpr int kSharedBytes = kStages * kStageBytes;  // 98304; rows of D take their place
static_assert(kThreads / 32 * sizeof(Staging) <= kSharedBytes);

// Computes the work tile of D at (row0, col0). Rows from out.rows on are another group's.
__device__ inline void compute_tile(
    const input_t* __restrict__ A, index_t lda, const input_t* __restrict__ B, index_t ldb,
    int depth, const Output& out, unsigned char* shared, int row0, int col0) {
  const uint32_t stages = shared_address(shared);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int rows = out.rows, cols = out.cols;

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
  __syncthreads();  // nobody reads the tiles any more: their memory is free
  store(tile, out, reinterpret_cast<Staging*>(shared)[warp], row, col, lane);
}

extern "C" __global__ void __launch_bounds__(kThreads)  // lets the compiler count on the block size
    gemm_mma_f16_rrr_grouped(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, index_t groups, scalar_t alpha,
        const input_t* __restrict__ A, index_t lda, const input_t* __restrict__ B, index_t ldb,
        index_t stride_b, const int* offsets, scalar_t beta, const output_t* C, index_t ldc,
        output_t* D, index_t ldd) {
  extern __shared__ __align__(128) unsigned char shared[];  // (kStages, kStageBytes)

  const int tiles_n = int((N + kTileN - 1) / kTileN), lane = threadIdx.x % 32;
  Groups all{offsets, int(groups), int(M), tiles_n, lane};
  Place place;
  for (int t = blockIdx.x; all.find(t, place); t += gridDim.x) {
    const Output out{place.row_end, int(N), alpha, beta, C, D, ldc, ldd};
    const input_t* const b = B + place.group * stride_b;
    compute_tile(A, lda, b, ldb, int(K), out, shared, place.row0, place.col0);
    __syncthreads();  // rows of D have left shared memory
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

// A launch, worked out from top to bottom.
struct Plan {
  index_t M, N, K, groups;
  size_t A, B;  // addresses
  index_t lda, ldb, stride_b, multiprocessors;

  bool packs_a = K > 0 && (A % 16 != 0 || lda % 8 != 0);  // its lines are not aligned
  index_t a_lines = packs_a ? M : 0, a_length = packs_a ? K : 0;  // to pack
  index_t a_ld = packs_a ? (a_length + 63) / 64 * 64 : lda;  // as the kernel reads it
  bool packs_b = K > 0 && (B % 16 != 0 || ldb % 8 != 0 || stride_b % 8 != 0);  // not aligned
  index_t b_lines = packs_b ? K : 0, b_length = packs_b ? N : 0;  // to pack
  index_t b_ld = packs_b ? (b_length + 63) / 64 * 64 : ldb;  // as the kernel reads it
  index_t b_count = stride_b > 0 ? groups : 1;  // matrices
  index_t b_each = b_lines * b_ld;  // elements of a copy
  index_t b_most = 288230376151711744 / (b_each + 1);  // more than any memory has
  index_t b_copies = b_count < b_most ? b_count : b_most;
  index_t b_stride = packs_b ? (b_count > 1 ? b_each : 0) : stride_b;  // between them
  index_t b_offset = (a_lines * a_ld * 2 + 255) / 256 * 256;  // bytes
  index_t filled = groups < M ? groups : M;  // groups with rows, at most
  index_t tiles = (M + (kTileM - 1) * filled) / kTileM * ((N + kTileN - 1) / kTileN);  // at most
  index_t bytes = b_offset + (b_copies * b_each * 2 + 255) / 256 * 256;  // of the workspace
  index_t blocks = tiles < multiprocessors ? tiles : multiprocessors;
  index_t a_lanes = a_length > 64 ? 32 : 8;  // for a line
  index_t b_lanes = b_length > 64 ? 32 : 8;  // for a line
  index_t a_pieces = (a_lines * a_lanes + 511) / 512 * ((a_length + 255) / 256);  // for blocks
  index_t b_pieces = (b_lines * b_lanes + 511) / 512 * ((b_length + 255) / 256);  // for blocks
  index_t pieces = a_pieces > b_pieces ? a_pieces : b_pieces;
  index_t pack_blocks = pieces < 65536 ? pieces : 65536;
  index_t pack_z = 1 + (packs_b ? b_count < 32767 ? b_count : 32767 : 0);
};

constexpr size_t kSide = 2147479552;  // M, N, K: 2^31 - 4096, so that where a tile ends is an int
constexpr size_t kMost = 2147418112;  // work tiles: the next one of a block is an int, too
constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows

// Sets *bytes to the size of the workspace that the launcher needs on the current device, or to 0 where
// it returns the launcher's error 1 or 9.
// It holds copies of operands whose pointer or leading dimension is no multiple of 16 bytes.
extern "C" cudaError_t  // cudaSuccess once *bytes is set
gemm_mma_f16_rrr_grouped_workspace(  // for a launch with these arguments
    index_t M, index_t N, index_t K, index_t groups, const input_t* A, index_t lda,
    const input_t* B, index_t ldb, index_t stride_b, size_t* bytes) {
  if (bytes == nullptr) return cudaErrorInvalidValue;
  *bytes = 0;
  if (size_t(M) > kSide || size_t(N) > kSide || size_t(K) > kSide) return cudaErrorInvalidValue;
  if (size_t(groups) > kSide) return cudaErrorInvalidValue;
  if (M == 0 || N == 0 || groups == 0) return cudaSuccess;  // there is nothing to do
  if (M > kLargest / N) return cudaErrorInvalidValue;
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return cudaErrorInvalidValue;
  if (K > 0 && (stride_b < 0 || stride_b > kLargest / groups)) return cudaErrorInvalidValue;
  const Plan plan{M, N, K, groups, size_t(A), size_t(B), lda, ldb, stride_b, 1};
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
//        a negative stride, null offsets
//     9  cudaErrorInvalidConfiguration: 2^31 blocks or more, or more than 2^31 - 2^16 work tiles
//   209  cudaErrorNoKernelImageForDevice: a GPU older than nvcc's -arch. For newer ones the driver
//        compiles the file's PTX when it is first needed, unless nvcc was told to leave PTX out
//   400  cudaErrorInvalidResourceHandle: a stream of another device
extern "C" cudaError_t  // cudaSuccess once the kernels are on their way
gemm_mma_f16_rrr_grouped_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, index_t groups, scalar_t alpha, const input_t* A, index_t lda,
    const input_t* B, index_t ldb, index_t stride_b, const int* offsets, scalar_t beta,
    const output_t* C, index_t ldc, output_t* D, index_t ldd, void* workspace,
    size_t workspace_bytes, cudaStream_t stream) {
  size_t needed;  // bytes of the workspace
  auto ask = gemm_mma_f16_rrr_grouped_workspace;
  cudaError_t error = ask(M, N, K, groups, A, lda, B, ldb, stride_b, &needed);
  if (error != cudaSuccess || M == 0 || N == 0 || groups == 0) return error;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return cudaErrorInvalidValue;
  if (offsets == nullptr) return cudaErrorInvalidValue;

  int device, multiprocessors;
  error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  const Plan plan{M, N, K, groups, size_t(A), size_t(B), lda, ldb, stride_b, multiprocessors};
  bool fits = workspace != nullptr && workspace_bytes >= needed && size_t(workspace) % 256 == 0;
  if (needed > 0 && !fits) return cudaErrorInvalidValue;
  const auto a_packed = static_cast<input_t*>(workspace);
  const auto b_packed = a_packed + plan.b_offset / 2;
  const input_t* const a = plan.packs_a ? a_packed : A;
  const input_t* const b = plan.packs_b ? b_packed : B;

  const auto kernel = gemm_mma_f16_rrr_grouped;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;

  if (plan.packs_a || plan.packs_b) {
    error = launch(  // a kernel that packs both
        gemm_mma_f16_rrr_grouped_pack, dim3(unsigned(plan.pack_blocks), 1, unsigned(plan.pack_z)),
        256, 0, stream, plan.a_lines, plan.a_length, A, lda, a_packed, plan.a_ld, plan.b_lines,
        plan.b_length, plan.b_count, B, ldb, stride_b, b_packed, plan.b_ld);
    if (error != cudaSuccess) return error;
  }
  const dim3 grid(unsigned(plan.blocks));
  return launch(
      kernel, grid, kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, groups, alpha, a, plan.a_ld, b, plan.b_ld, plan.b_stride, offsets, beta, C,
      ldc, D, ldd);
}

#endif  // __CUDACC_RTC__
}  // namespace gemm_mma_f16_rrr_grouped_ns
