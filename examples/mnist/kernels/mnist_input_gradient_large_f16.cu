// mnist_input_gradient_large_f16: D = alpha * A * B + beta * C
//
// Tensor cores, fed through three levels of tiles. A block computes a tile of D: step by step along
// K, its threads together bring a tile of each operand into shared memory. A warp computes a part
// of the block's tile: it reads 16 x 16 blocks into registers, and multiplies them with one
// tensor-core instruction for every 16 rows x 8 columns. Bytes outside of the matrices are zeros in
// shared memory.
//
// The copies overlap with the multiplications: they go from global to shared memory without passing
// through registers (cp.async), 2 steps ahead of what is multiplied.
//
//   A  M x K, row-major, __half
//   B  K x N, column-major, __half
//   C  M x N, row-major, __half; not read when beta is 0
//   D  M x N, row-major, __half; may be C, must not overlap A or B
//
// Any M, N, K >= 0 below 2^31, any leading dimension, which counts elements. Sums are __half,
// alpha and beta float. The launcher may need memory to work in: ..._workspace tells how much.
// Needs a GPU of compute capability 8.0 or newer and C++17.
//
// Made by gemmgen 0.1.0:  gen emit --variant mma --dtype f16_f16 --layout rcr --arch sm_80 --threadblock 128x128x64 --warp 64x64 --instruction m16n8k16 --stages 3 --split-k 1 --epilogue linear --swizzle 12 --name mnist_input_gradient_large_f16
// Compile:  nvcc -std=c++17 -arch=sm_80 -c mnist_input_gradient_large_f16.cu
//           NVRTC takes the file as it is, too.
// gen-spec: {"variant": "mma", "dtype": "f16_f16", "layout": "rcr", "arch": "sm_80", "threadblock": "128x128x64", "warp": "64x64", "instruction": "m16n8k16", "stages": 3, "split_k": 1, "epilogue": "linear", "swizzle": 12, "name": "mnist_input_gradient_large_f16"}
// SPDX-License-Identifier: 0BSD

#include <cuda_fp16.h>

// The namespace keeps apart the constants of several emitted files in one program.
namespace mnist_input_gradient_large_f16_ns {

using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = __half;
using accumulator_t = __half;
using output_t = __half;

using scalar_t = float;
using uint32_t = unsigned int;

// The matrix on the left of the product, A, has as many rows as D; that on the right, B, as many
// columns.
constexpr int kTileM = 128;  // a block computes this many rows
constexpr int kTileN = 128;  // and columns at a time,
constexpr int kTileK = 64;  // in steps of this length along K;
constexpr int kWarpM = 64;  // each of its warps computes this many
constexpr int kWarpN = 64;  // rows and columns of them.
constexpr int kStages = 3;  // tiles of both operands in shared memory
constexpr int kGroup = 12;  // tiles along M that are computed close in time: see tile_at

constexpr int kWarpsM = kTileM / kWarpM;
constexpr int kWarpsN = kTileN / kWarpN;
constexpr int kWarps = kWarpsM * kWarpsN;
constexpr int kThreads = 32 * kWarps;
constexpr int kChunk = 16 / sizeof(input_t);  // elements in 16 bytes: the unit of all copies
constexpr int kSteps = kTileK * sizeof(input_t) / 32;  // a warp takes 32 bytes along K at a time

static_assert(kTileM % kWarpM == 0 && kTileN % kWarpN == 0, "warps divide the tile");
static_assert(kWarpM % 16 == 0 && kWarpN % 16 == 0, "a warp's part is made of 16 x 16 blocks");
static_assert(kSteps == 2 || kSteps == 4, "lines of 64 or 128 bytes: see swizzle");

// ---------------------------------------------------------------------------- shared memory

// What PTX instructions take for a pointer to shared memory.
__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Byte offset of 16 bytes ("a chunk") in a tile of lines of kLine bytes. Without the XOR, the eight
// chunks that lie below each other, which ldmatrix reads together, would all be in the same four
// banks; with it they are in different ones, at no cost in memory.
template <int kLine>
__device__ constexpr int swizzle(int line, int chunk) {
  return line * kLine + ((chunk ^ (line * kLine / 128 % (kLine / 16))) * 16);
}

// ldmatrix.x4 reads a block of 16 lines x 32 bytes as four parts of 8 lines x 16 bytes, into four
// registers in the order in which lanes 0-7, 8-15, 16-23 and 24-31 point to their lines. Registers
// that an instruction uses together must be neighbours: the two halves of a left block's lines, the
// two halves along K of a right block.
enum class Side { kLeft, kRight };

template <Side kSide>
__device__ constexpr int half_of_lines(int lane) {
  return kSide == Side::kLeft ? lane / 8 % 2 : lane / 16;
}

template <Side kSide>
__device__ constexpr int half_along_k(int lane) {
  return kSide == Side::kLeft ? lane / 16 : lane / 8 % 2;
}

// A tile of an operand that is contiguous along K: kLines lines of kTileK elements.
template <Side kSide, int kLines>
struct KContiguous {
  static constexpr int kLine = kTileK * sizeof(input_t);
  static constexpr int kBytes = kLines * kLine;
  static constexpr int kBases = kSteps;

  // Where a lane points ldmatrix to: block i of step s of the warp's part, which starts at line
  // `first`, is at base(s) + offset(i, s).
  static __device__ int base(int first, int s, int lane) {
    const int line = first + 8 * half_of_lines<kSide>(lane) + lane % 8;
    return swizzle<kLine>(line, 2 * s + half_along_k<kSide>(lane));
  }
  static __device__ constexpr int base_of(int, int s) {
    return s;
  }
  static __device__ constexpr int offset(int i, int) {
    return i * 16 * kLine;  // the swizzle repeats after 8 lines
  }
  static __device__ void load(uint32_t (&block)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(block[0]), "=r"(block[1]), "=r"(block[2]), "=r"(block[3])
                 : "r"(address));
  }
};

using Left = KContiguous<Side::kLeft, kTileM>;
using Right = KContiguous<Side::kRight, kTileN>;
constexpr int kStageBytes = Left::kBytes + Right::kBytes;

// ---------------------------------------------------------------------------- tensor cores

// How a block of 16 lines x 32 bytes ends up in registers. A line is a row of the left operand, or
// a column of the right one. Of each half along K, lane 4 g + t (g = 0..7, t = 0..3) holds
// elements 2t and 2t+1 of the 8, in
//
//              left block, half      right block, half
//              first     second      first     second
//   line g     block[0]  block[2]    block[0]  block[1]
//   line g+8   block[1]  block[3]    block[2]  block[3]
//
// One instruction multiplies 16 lines of the left by 8 lines of the right operand, over both halves
// along K, and adds to 16 x 8 sums, of which the lane holds
//
//   row g    columns 2t, 2t+1   sum[0], two halves in one register
//   row g+8  columns 2t, 2t+1   sum[1]
using sum_t = uint32_t;
constexpr int kSums = 2;

// sum += left * right'; `column` is the half of the right block's lines.
__device__ inline void multiply(
    sum_t (&sum)[kSums], const uint32_t (&left)[4], const uint32_t (&right)[4], int column) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 "
      "{%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
      : "+r"(sum[0]), "+r"(sum[1])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[2 * column]),
        "r"(right[2 * column + 1]));
}

// The part of the tile that a warp computes: its sums, and its share of both operands for two steps
// along K, so that one can be loaded while the other is multiplied.
struct WarpTile {
  static constexpr int kM = kWarpM / 16;
  static constexpr int kN = kWarpN / 16;

  sum_t sum[kM][2 * kN][kSums];
  uint32_t left[2][kM][4];
  uint32_t right[2][kN][4];
  // Addresses in the stage that is read. They are made before the step that loads from them, so
  // that the compiler can place each load among the multiplications, and no step waits for its
  // data.
  uint32_t left_address[Left::kBases];
  uint32_t right_address[Right::kBases];

  __device__ void clear() {
    for (auto& row : sum) {
      for (auto& block : row) {
        for (auto& x : block) x = 0;
      }
    }
  }

  // The next loads read this warp's share of the stage at this address in shared memory,
  __device__ void read_from(uint32_t stage, int warp, int lane) {
    for (int b = 0; b < Left::kBases; ++b) {
      left_address[b] = stage + Left::base(warp % kWarpsM * kWarpM, b, lane);
    }
    for (int b = 0; b < Right::kBases; ++b) {
      right_address[b] = stage + Left::kBytes + Right::base(warp / kWarpsM * kWarpN, b, lane);
    }
  }

  // or of another one, so many bytes further on.
  __device__ void move(int bytes) {
    for (auto& address : left_address) address += bytes;
    for (auto& address : right_address) address += bytes;
  }

  __device__ void load(int step) {
    const int to = step % 2;
#pragma unroll
    for (int i = 0; i < kM; ++i) {
      Left::load(left[to][i], left_address[Left::base_of(i, step)] + Left::offset(i, step));
    }
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      Right::load(right[to][j], right_address[Right::base_of(j, step)] + Right::offset(j, step));
    }
  }

  __device__ void multiply_all(int step) {
    const int from = step % 2;
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int n = 0; n < 2 * kN; ++n) {
        const int j = i % 2 ? 2 * kN - 1 - n : n;  // there and back: one operand stays the same
        multiply(sum[i][j], left[from][i], right[from][j / 2], j % 2);
      }
    }
  }

  // The sums of block i + kBlocks become those of block i.
  template <int kBlocks>
  __device__ void move_up() {
#pragma unroll
    for (int i = 0; i + kBlocks < kM; ++i) {
#pragma unroll
      for (int j = 0; j < 2 * kN; ++j) {
#pragma unroll
        for (int s = 0; s < kSums; ++s) sum[i][j][s] = sum[i + kBlocks][j][s];
      }
    }
  }

  // The sum in row 16 i + 8 h + g, and in column 8 j + 2 t or the next one.
  __device__ scalar_t value(int i, int h, int j, int column) const {
    const __half2 pair = reinterpret_cast<const __half2&>(sum[i][j][h]);
    return __half2float(column ? __high2half(pair) : __low2half(pair));
  }
};

// ---------------------------------------------------------------------------- the result

// Tiles in the order in which they are computed. kGroup tiles below each other come before the next
// column of tiles: what runs at the same time is then a square part of D rather than a long one,
// and shares more of both operands in the L2 cache.
__device__ inline void tile_at(uint32_t t, int tiles_m, int tiles_n, int& m, int& n) {
  const uint32_t group = kGroup * tiles_n;  // unsigned numbers are divided faster
  const int first = t / group * kGroup;
  const uint32_t height = tiles_m - first < kGroup ? tiles_m - first : kGroup;
  const uint32_t rest = t % group;
  m = first + rest % height;
  n = rest / height;
}

__device__ inline scalar_t activation(scalar_t x) {
  return x;
}

// Neighbouring elements that are read or written at once.
template <class Element, int kCount>
struct alignas(kCount * sizeof(Element)) Vector {
  Element elements[kCount];
};

using Pair = Vector<output_t, 2>;

// What elements of D are made from, besides their sums, and where they go. Rows and columns are
// those of the row-major result.
struct Output {
  int rows;
  int cols;
  scalar_t alpha;
  scalar_t beta;
  const output_t* C;
  index_t ldc;
  output_t* D;
  index_t ldd;

  // As in BLAS, C is not read when beta is 0: it may hold NaN or be null.
  __device__ bool reads_c() const {
    return beta != scalar_t(0);
  }

  // Whether D is the sums.
  __device__ bool is_sums() const {
    return alpha == scalar_t(1) && !reads_c();
  }

  // An element of D, from its linear part.
  static __device__ output_t element(scalar_t x) {
    return static_cast<output_t>(activation(x));
  }

  // Whether all rows of C or D start at a multiple of 16 bytes.
  static __device__ bool is_aligned(const output_t* matrix, index_t ld) {
    const auto address = reinterpret_cast<unsigned long long>(matrix);
    return address % 16 == 0 && ld * sizeof(output_t) % 16 == 0;
  }
};

// Rows of D on their way from registers, where lanes hold pairs of elements, far apart. Through
// shared memory they come to hold neighbours, so that a warp writes long pieces of rows.
struct Staging {
  static constexpr int kRows = 16;
  // The 8 elements at the end of each row keep pairs of different rows in different banks.
  alignas(16) output_t elements[kRows][kWarpN + 8];

  __device__ output_t& at(int row, int col) {
    return elements[row][col];
  }
  // 16 x 16 elements, a lane's pairs in the order of an instruction's sums: those in row g and in
  // row g + 8, first of the left half, then of the right half.
  __device__ void get(Pair (&quarters)[4], int line, int col, int lane) {
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      quarters[q] = pair(line + q % 2 * 8 + lane / 4, col + q / 2 * 8 + lane % 4 * 2);
    }
  }
  __device__ void put(const Pair (&quarters)[4], int line, int col, int lane) {
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      pair(line + q % 2 * 8 + lane / 4, col + q / 2 * 8 + lane % 4 * 2) = quarters[q];
    }
  }
  __device__ Pair& pair(int row, int col) {
    return reinterpret_cast<Pair&>(at(row, col));
  }
};

// 16 bytes of a row that a warp computes: how many, and the elements of each.
constexpr int kPerRow = kWarpN * sizeof(output_t) / 16, kElements = 16 / sizeof(output_t);

// Reads rows of C, from (row0, col0) on, into `staging`.
__device__ inline void read_rows(
    Staging& staging, const Output& out, int row0, int col0, int lane) {
  const output_t* c = out.C + row0 * out.ldc + col0;
  if (Output::is_aligned(c, out.ldc) && col0 + kWarpN <= out.cols) {  // 16 bytes at once
#pragma unroll
    for (int at = lane; at < Staging::kRows * kPerRow; at += 32) {
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

// 16 rows of D that are block i of a warp's sums as they are: to `staging`, from `line` on.
__device__ inline void copy_rows(
    Staging& staging, int line, const WarpTile& tile, int i, int lane) {
#pragma unroll
  for (int j = 0; j < WarpTile::kN; ++j) {
    Pair quarters[4];
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      quarters[q] = reinterpret_cast<const Pair&>(tile.sum[i][2 * j + q / 2][q % 2]);
    }
    staging.put(quarters, line, 16 * j, lane);
  }
}

// Makes 16 rows of D of block i of a warp's sums and, if C is read, of the rows of C in
// `staging`, from `line` on. They take the place of these.
__device__ inline void finish_rows(
    Staging& staging, int line, const WarpTile& tile, int i, const Output& out, bool reads_c,
    int lane) {
#pragma unroll
  for (int j = 0; j < WarpTile::kN; ++j) {
    Pair quarters[4]{};
    if (reads_c) staging.get(quarters, line, 16 * j, lane);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const int h = q % 2, n = 2 * j + q / 2;  // rows g or g + 8, the left or the right half
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        output_t& element = quarters[q].elements[e];
        scalar_t x = out.alpha * tile.value(i, h, n, e);
        if (reads_c) x += out.beta * static_cast<scalar_t>(element);
        element = out.element(x);
      }
    }
    staging.put(quarters, line, 16 * j, lane);
  }
}

// Writes the rows in `staging`, whose first element is at (row0, col0) of D.
__device__ inline void write_rows(
    Staging& staging, const Output& out, int row0, int col0, bool aligned, int lane) {
  output_t* const d = out.D + row0 * out.ldd + col0;
  if (aligned) {  // 16 bytes at once
#pragma unroll
    for (int at = lane; at < Staging::kRows * kPerRow; at += 32) {
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
    output_t* to = d + col;
#pragma unroll 4
    for (int row = 0; row < rows; ++row, to += out.ldd) *to = staging.at(row, col);
  }
}

// ---------------------------------------------------------------------------- packing
//
// Operands are read 16 bytes at a time. One whose lines do not all start at a multiple of 16 bytes
// is copied into the workspace first, with lines that do, by this kernel: blockIdx.z is 0 for the
// left operand, 1 for the right one. One that is in order has no lines here.

constexpr bool kTransposesLeft = false;
constexpr bool kTransposesRight = false;

// 16 of these 32 bytes, from byte `first` (0 to 15) on. Registers cannot be indexed by a variable:
// all words move by two, then by one, then by bytes.
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

// A chunk of a line that may start anywhere: `line` points to its `length` elements, `first` to
// those of the whole matrix, `end` behind them. Two aligned chunks hold it; both must be there.
__device__ inline uint4 read_chunk(
    const input_t* line, index_t length, index_t chunk, const input_t* first, const input_t* end) {
  const input_t* const from = line + chunk * kChunk;
  const int shift = reinterpret_cast<unsigned long long>(from) % 16;
  const input_t* const low = from - shift / sizeof(input_t);
  if (low >= first && low + 2 * kChunk <= end && (chunk + 1) * kChunk <= length) {
    const uint4* const chunks = reinterpret_cast<const uint4*>(low);
    return part_of(chunks[0], chunks[1], shift);
  }
  alignas(16) input_t elements[kChunk];
#pragma unroll
  for (int e = 0; e < kChunk; ++e) {
    elements[e] = chunk * kChunk + e < length ? from[e] : input_t(0);
  }
  return *reinterpret_cast<const uint4*>(elements);
}

// A block packs lines 8 at a time, one for each warp, whose lanes read neighbouring chunks. Where
// the lines have to be transposed (element i of a line is in line i of the source), it packs 32 at
// a time, one for each lane: these are neighbours, then.
template <bool kTransposes>
__device__ inline void pack(
    index_t lines, index_t length, const input_t* __restrict__ source, index_t ld,
    input_t* __restrict__ packed, index_t packed_ld) {
  constexpr int kWidth = kTransposes ? 32 : 8, kDepth = 256 / kWidth;  // lines; chunks of each
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const input_t* const end = source + (lines - 1) * ld + length;
  for (index_t line = index_t(blockIdx.x) * kWidth + (kTransposes ? lane : warp); line < lines;
       line += index_t(gridDim.x) * kWidth) {
    for (index_t chunk = index_t(blockIdx.y) * kDepth + (kTransposes ? warp : lane);
         chunk * kChunk < length; chunk += index_t(gridDim.y) * kDepth) {
      const uint4 elements = read_chunk(source + line * ld, length, chunk, source, end);
      *reinterpret_cast<uint4*>(&packed[line * packed_ld + chunk * kChunk]) = elements;
    }
  }
}

extern "C" __global__ void __launch_bounds__(256)  // 8 warps
    mnist_input_gradient_large_f16_pack(  // copies of both operands
        index_t left_lines, index_t left_length, const input_t* left, index_t left_ld,
        input_t* left_packed, index_t left_packed_ld, index_t right_lines, index_t right_length,
        const input_t* right, index_t right_ld, input_t* right_packed, index_t right_packed_ld) {
  const bool is_left = blockIdx.z == 0;
  pack<kTransposesLeft>(
      is_left ? left_lines : right_lines, is_left ? left_length : right_length,
      is_left ? left : right, is_left ? left_ld : right_ld, is_left ? left_packed : right_packed,
      is_left ? left_packed_ld : right_packed_ld);
}

// ---------------------------------------------------------------------------- the product

// The tiles' memory is used again for the result.
constexpr int kTileBytes = kStages * kStageBytes, kStagingBytes = kWarps * sizeof(Staging);
constexpr int kSharedBytes = kTileBytes > kStagingBytes ? kTileBytes : kStagingBytes;

// What one thread copies of every tile of an operand that is contiguous along K: neighbouring
// threads have neighbouring chunks of a line.
template <class Tile, int kLines>
struct CopyKContiguous {
  static constexpr int kPerLine = Tile::kLine / 16;
  static constexpr int kChunks = kLines * kPerLine / kThreads;
  static constexpr int kPass = kThreads / kPerLine;  // lines from one chunk of a thread to its next

  const input_t* source;
  index_t ld;
  int line, chunk;
  int lines_left;  // from this thread's first line to the end of the operand

  __device__ CopyKContiguous(const input_t* operand, index_t ld, int first_line, int lines)
      : ld(ld), line(threadIdx.x / kPerLine), chunk(threadIdx.x % kPerLine) {
    lines_left = lines - first_line - line;
    source = operand + index_t(first_line + line) * ld + chunk * kChunk;
  }
  __device__ const input_t* global(int i, int k) const {
    return source + index_t(i * kPass) * ld + k;
  }
  __device__ int shared(int i) const {
    return swizzle<Tile::kLine>(line + i * kPass, chunk);
  }
  // Bytes of chunk i that exist, 0 to 16.
  __device__ int bytes(int i, int k, int depth) const {
    const int left = depth - k - chunk * kChunk;
    const int elements = left < 0 ? 0 : left < kChunk ? left : kChunk;
    return i * kPass < lines_left ? elements * int(sizeof(input_t)) : 0;
  }
};

using CopyLeft = CopyKContiguous<Left, kTileM>;
using CopyRight = CopyKContiguous<Right, kTileN>;

static_assert(CopyLeft::kChunks > 0 && CopyRight::kChunks > 0, "every thread copies something");

// Starts to copy a chunk; what is missing of its 16 bytes becomes zeros.
__device__ inline void copy_chunk(uint32_t shared, const input_t* global, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(bytes)
               : "memory");
}

template <class Copy>
__device__ inline void start_copies(const Copy& copy, uint32_t stage, int k, int depth) {
#pragma unroll
  for (int i = 0; i < Copy::kChunks; ++i) {
    copy_chunk(stage + copy.shared(i), copy.global(i, k), copy.bytes(i, k, depth));
  }
}

__device__ inline void end_of_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Until all but the newest `kGroups` groups of this thread's copies have arrived.
template <int kGroups>
__device__ inline void wait_for_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

// Writes a warp's part of D, whose first element is at (row0, col0). The sums are used up.
__device__ inline void store(
    WarpTile& tile, const Output& out, Staging& staging, int row0, int col0, int lane) {
  const bool aligned = Output::is_aligned(out.D, out.ldd) && col0 + kWarpN <= out.cols;
  // Registers cannot be indexed by a variable. The loop takes the first blocks' sums, and then
  // moves all others up, so that its body need not be repeated for each.
#pragma unroll 1
  for (int i = 0; i < WarpTile::kM; ++i) {
    const int row = row0 + 16 * i;
    if (out.reads_c()) {
      read_rows(staging, out, row, col0, lane);
      __syncwarp();
    }
    if (out.is_sums()) {
      copy_rows(staging, 0, tile, 0, lane);
    } else {
      finish_rows(staging, 0, tile, 0, out, out.reads_c(), lane);
    }
    __syncwarp();
    write_rows(staging, out, row, col0, aligned, lane);
    __syncwarp();  // all have been read
    tile.move_up<1>();
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)  // lets the compiler count on the block size
    mnist_input_gradient_large_f16(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        const input_t* __restrict__ B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc,
        output_t* D, index_t ldd) {
  extern __shared__ __align__(128) unsigned char shared[];  // kStages times: left tile, right tile
  const uint32_t stages = shared_address(shared);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  const int rows = int(M), cols = int(N), depth = int(K);
  const int tiles_m = (rows + kTileM - 1) / kTileM;
  const int tiles_n = (cols + kTileN - 1) / kTileN;
  if (int(blockIdx.x) >= tiles_m * tiles_n) return;  // D is empty
  int tile_m, tile_n;
  tile_at(blockIdx.x, tiles_m, tiles_n, tile_m, tile_n);
  const int row0 = tile_m * kTileM, col0 = tile_n * kTileN;

  const CopyLeft copy_left(A, lda, row0, rows);
  const CopyRight copy_right(B, ldb, col0, cols);
  WarpTile tile;
  tile.clear();

  const int all_steps = (depth + kTileK - 1) / kTileK;
  const int steps = all_steps;
  const int first = 0;

  // Prologue: the first kStages - 1 steps' copies, a group each (the last ones may be empty).
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < steps) {
      start_copies(copy_left, stages + s * kStageBytes, first + s * kTileK, depth);
      start_copies(copy_right, stages + s * kStageBytes + Left::kBytes, first + s * kTileK, depth);
    }
    end_of_group();
  }
  tile.read_from(stages, warp, lane);
  if (steps > 0) {
    wait_for_groups<kStages - 2>();
    __syncthreads();  // the first tiles are there, for all threads
    tile.load(0);
  }

  // Main loop. While step s of a tile is multiplied, step s + 1 moves from shared memory to
  // registers, and the tile kStages - 1 further on from global to shared memory.
  int reading = 0, writing = kStages - 1;  // stages
  for (int n = 0; n < steps; ++n) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (s == kSteps - 1) {
        // After the last tile, load again what is there: it is not used, and costs less than a
        // branch.
        const int next = n + 1 == steps ? reading : reading + 1 < kStages ? reading + 1 : 0;
        tile.move((next - reading) * kStageBytes);
        reading = next;
        // To wait once more after the last tile does no harm, and without a branch the compiler
        // places the multiplications better; but where there are only two steps, worse.
        if (kSteps > 2 || n + 1 < steps) {
          wait_for_groups<kStages - 2>();
          __syncthreads();  // the next tiles are there; nobody reads these any more
        }
      }
      tile.load((s + 1) % kSteps);
      if (s == 0) {
        const int k = first + (n + kStages - 1) * kTileK;
        if (n + kStages - 1 < steps) {
          start_copies(copy_left, stages + writing * kStageBytes, k, depth);
          start_copies(copy_right, stages + writing * kStageBytes + Left::kBytes, k, depth);
        }
        end_of_group();
        writing = writing + 1 < kStages ? writing + 1 : 0;
      }
      tile.multiply_all(s);
    }
  }

  const int warp_row = row0 + warp % kWarpsM * kWarpM;
  const int warp_col = col0 + warp / kWarpsM * kWarpN;
  const Output out{rows, cols, alpha, beta, C, ldc, D, ldd};
  __syncthreads();  // nobody reads the tiles any more: their memory is free
  store(tile, out, reinterpret_cast<Staging*>(shared)[warp], warp_row, warp_col, lane);
}

#ifndef __CUDACC_RTC__  // the host's side, for programs built by nvcc

// How the workspace is divided, and how many slices of K are summed up apart.
struct Plan {
  index_t rows, cols;  // of the row-major result
  index_t tiles;
  index_t slices;
  index_t left_lines = 0, left_length, left_packed_ld;  // no lines: not packed
  index_t right_lines = 0, right_length, right_packed_ld;
  size_t right_offset;  // of the packed right operand; the packed left one comes first,
  size_t partials_offset;  // partial sums last
  size_t bytes;  // in all
};

inline bool in_place(const void* matrix, index_t ld) {
  return reinterpret_cast<size_t>(matrix) % 16 == 0 && ld % kChunk == 0;
}

// Lines that start at multiples of 128 bytes are read faster than those at multiples of 16.
inline index_t packed_ld(index_t length) {
  constexpr index_t kLine = 128 / sizeof(input_t);
  return (length + kLine - 1) / kLine * kLine;
}

inline size_t round_up(size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

inline cudaError_t make_plan(
    index_t M, index_t N, index_t K, const void* A, index_t lda, const void* B, index_t ldb,
    Plan& plan) {
  plan.rows = M;
  plan.cols = N;
  const bool left_in_place = !kTransposesLeft && in_place(A, lda);
  const bool right_in_place = !kTransposesRight && in_place(B, ldb);
  plan.left_length = K;
  plan.right_length = K;
  if (K > 0 && !left_in_place) plan.left_lines = plan.rows;
  if (K > 0 && !right_in_place) plan.right_lines = plan.cols;
  plan.left_packed_ld = plan.left_lines > 0 ? packed_ld(plan.left_length) : 0;
  plan.right_packed_ld = plan.right_lines > 0 ? packed_ld(plan.right_length) : 0;
  plan.right_offset = round_up(plan.left_lines * plan.left_packed_ld * sizeof(input_t));
  plan.partials_offset =
      plan.right_offset + round_up(plan.right_lines * plan.right_packed_ld * sizeof(input_t));
  plan.bytes = plan.partials_offset;
  plan.tiles = (plan.rows + kTileM - 1) / kTileM * ((plan.cols + kTileN - 1) / kTileN);
  plan.slices = 1;
  return cudaSuccess;
}

// Bytes of device memory that the launcher needs. Often none: it packs operands whose pointer or
// leading dimension is no multiple of 16 bytes.
extern "C" cudaError_t  // cudaSuccess once *bytes is set
mnist_input_gradient_large_f16_workspace(  // for a launch with these arguments
    index_t M, index_t N, index_t K, const input_t* A, index_t lda, const input_t* B, index_t ldb,
    size_t* bytes) {
  if (M < 0 || N < 0 || K < 0 || bytes == nullptr) return cudaErrorInvalidValue;
  *bytes = 0;
  if (M == 0 || N == 0) return cudaSuccess;
  Plan plan;
  const cudaError_t error = make_plan(M, N, K, A, lda, B, ldb, plan);
  if (error == cudaSuccess) *bytes = plan.bytes;
  return error;
}

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

// Checks the arguments and launches the kernels on a stream; never prints, exits or allocates.
// `workspace` is device memory aligned to 256 bytes, of at least the size that ..._workspace gives;
// it may be null if that is 0, and is free again when the stream has got past the launch. Returns
// cudaErrorInvalidValue for a negative size or one of 2^31 or more, a null matrix, a leading
// dimension too short, a workspace too small, and cudaErrorInvalidResourceHandle for a stream of
// another device.
extern "C" cudaError_t  // cudaSuccess once the kernels are on their way
mnist_input_gradient_large_f16_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, scalar_t alpha, const input_t* A, index_t lda,
    const input_t* B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc, output_t* D,
    index_t ldd, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  constexpr index_t kMost = 2147483647;
  if (M < 0 || N < 0 || K < 0) return cudaErrorInvalidValue;
  if (M > kMost || N > kMost || K > kMost) return cudaErrorInvalidValue;
  if (M == 0 || N == 0) return cudaSuccess;  // D has no elements
  const bool good_a = K == 0 || (A != nullptr && lda >= K);
  const bool good_b = K == 0 || (B != nullptr && ldb >= K);
  const bool good_c = beta == scalar_t(0) || (C != nullptr && ldc >= N);
  const bool good_d = D != nullptr && ldd >= N;
  if (!(good_a && good_b && good_c && good_d)) return cudaErrorInvalidValue;

  Plan plan;
  cudaError_t error = make_plan(M, N, K, A, lda, B, ldb, plan);
  if (error != cudaSuccess) return error;
  if (plan.bytes > 0 && (workspace == nullptr || workspace_bytes < plan.bytes)) {
    return cudaErrorInvalidValue;
  }
  error = check_stream(stream);
  if (error != cudaSuccess) return error;
  const auto at = [workspace](size_t offset) { return static_cast<char*>(workspace) + offset; };
  if (plan.left_lines > 0 || plan.right_lines > 0) {
    const auto left_packed = reinterpret_cast<input_t*>(at(0));
    const auto right_packed = reinterpret_cast<input_t*>(at(plan.right_offset));
    const index_t lines = plan.left_lines > plan.right_lines ? plan.left_lines : plan.right_lines;
    const index_t length =
        plan.left_packed_ld > plan.right_packed_ld ? plan.left_packed_ld : plan.right_packed_ld;
    const index_t blocks_x = (lines + 7) / 8, blocks_y = length / kChunk / 32;
    // What is left of a line after whole blocks, the first ones take as well.
    const index_t along_line = blocks_y < 1 ? 1 : blocks_y < 64 ? blocks_y : 64;
    const dim3 grid(blocks_x < 4096 ? blocks_x : 4096, along_line, 2);
    const auto pack =  // both operands at once
        mnist_input_gradient_large_f16_pack;
    pack<<<grid, 256, 0, stream>>>(
        plan.left_lines, plan.left_length, A, lda, left_packed, plan.left_packed_ld,
        plan.right_lines, plan.right_length, B, ldb, right_packed, plan.right_packed_ld);
    error = cudaGetLastError();
    if (error != cudaSuccess) return error;
    if (plan.left_lines > 0) {
      A = left_packed;
      lda = plan.left_packed_ld;
    }
    if (plan.right_lines > 0) {
      B = right_packed;
      ldb = plan.right_packed_ld;
    }
  }

  if (plan.tiles > kMost) return cudaErrorInvalidConfiguration;
  const dim3 grid(plan.tiles);
  const auto kernel =  // may have more shared memory than the usual 48 KiB
      mnist_input_gradient_large_f16;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;
  kernel<<<grid, kThreads, kSharedBytes, stream>>>(
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd);
  error = cudaGetLastError();
  return error;
}

#endif  // __CUDACC_RTC__

}  // namespace mnist_input_gradient_large_f16_ns
