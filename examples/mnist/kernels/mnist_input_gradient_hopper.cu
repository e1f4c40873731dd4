// mnist_input_gradient_hopper: D = alpha * A * B + beta * C
//
// Tensor cores, fed by Hopper's Tensor Memory Accelerator. As many blocks as the GPU has
// multiprocessors stay until all tiles of D are done ("persistent"); their warps have two roles:
//
// - One thread is the producer. For each step along K it asks the TMA to copy a tile of each
//   operand into shared memory; the hardware computes addresses, swizzles, and fills with zeros
//   what lies outside of the matrices. It runs up to 4 steps ahead, also into the next tile.
// - 4 warps are consumers. Each computes a part of the tile: it reads 16 x 16 blocks into
//   registers, and multiplies them with one tensor-core instruction for every 16 rows x 8 columns.
//
// They meet at barriers in shared memory, two for each stage: `full` (the data have arrived) and
// `empty` (all consumers have read them). No barrier stops the whole block.
//
//   A  M x K, row-major, __half
//   B  K x N, column-major, __half
//   C  M x N, row-major, __half; not read when beta is 0
//   D  M x N, row-major, __half; may be C, must not overlap A or B
//
// Any M, N, K >= 0 below 2^31, any leading dimension, which counts elements. Sums are float,
// alpha and beta float. The launcher may need memory to work in: ..._workspace tells how much.
// Needs a GPU of compute capability 9.0 and C++17.
//
// Made by gemmgen 0.1.0:  gen emit --variant mma_tma --dtype f16 --layout rcr --arch sm_90a --threadblock 128x128x64 --warp 64x64 --instruction m16n8k16 --stages 4 --sliced-k 1 --split-k 1 --epilogue linear --swizzle 12 --name mnist_input_gradient_hopper
// Compile:  nvcc -std=c++17 -arch=sm_90a -c mnist_input_gradient_hopper.cu
//           NVRTC takes the file as it is, too.
// gen-spec: {"variant": "mma_tma", "dtype": "f16", "layout": "rcr", "arch": "sm_90a", "threadblock": "128x128x64", "warp": "64x64", "instruction": "m16n8k16", "stages": 4, "sliced_k": 1, "split_k": 1, "epilogue": "linear", "swizzle": 12, "name": "mnist_input_gradient_hopper"}
// SPDX-License-Identifier: 0BSD

#include <cuda_fp16.h>

#ifndef __CUDACC_RTC__
#include <cuda.h>  // CUtensorMap; only the type, libcuda need not be linked
#endif

// The namespace keeps apart the constants of several emitted files in one program.
namespace mnist_input_gradient_hopper_ns {

using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = __half;
using accumulator_t = float;
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
constexpr int kStages = 4;  // tiles of both operands in shared memory
constexpr int kGroup = 12;  // tiles along M that are computed close in time: see tile_at

constexpr int kWarpsM = kTileM / kWarpM;
constexpr int kWarpsN = kTileN / kWarpN;
constexpr int kWarps = kWarpsM * kWarpsN;
constexpr int kThreads = 32 * (kWarps + 1);  // and a producer warp
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
// The TMA stores in this order, too.
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
//   row g    columns 2t, 2t+1   sum[0], sum[1]
//   row g+8  columns 2t, 2t+1   sum[2], sum[3]
using sum_t = accumulator_t;
constexpr int kSums = 4;

// sum += left * right'; `column` is the half of the right block's lines.
__device__ inline void multiply(
    sum_t (&sum)[kSums], const uint32_t (&left)[4], const uint32_t (&right)[4], int column) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
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
    return sum[i][j][2 * h + column];
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

// Rows of D on their way from registers, where lanes hold pairs of elements, far apart. They are
// brought together in shared memory; from there the TMA copies them.
struct Staging {
  static constexpr int kRows = 64;
  // A row is in pieces, as wide as the TMA can swizzle them without bank conflicts.
  static constexpr int kRowBytes = kWarpN * sizeof(output_t);
  static constexpr int kLine = 128;
  static constexpr int kPieces = kRowBytes / kLine, kPieceBytes = kRows * kLine;

  alignas(16) unsigned char bytes[kPieces * kPieceBytes];

  __device__ output_t& at(int row, int col) {
    const int byte = col * sizeof(output_t);
    const int place = byte / kLine * kPieceBytes + swizzle<kLine>(row, byte % kLine / 16);
    return reinterpret_cast<output_t&>(bytes[place + byte % 16]);
  }
  // 16 x 16 elements, a lane's pairs in the order of an instruction's sums: those in row g and in
  // row g + 8, first of the left half, then of the right half.
  // stmatrix is the way back from registers of what ldmatrix reads.
  __device__ void get(Pair (&quarters)[4], int line, int col, int lane) {
    auto& to = reinterpret_cast<uint32_t (&)[4]>(quarters);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(chunk(line, col, lane))
                 : "memory");
  }
  __device__ void put(const Pair (&quarters)[4], int line, int col, int lane) {
    const auto& from = reinterpret_cast<const uint32_t (&)[4]>(quarters);
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     chunk(line, col, lane)),
                 "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
                 : "memory");
  }
  // The 16 bytes that a lane points them to.
  __device__ uint32_t chunk(int line, int col, int lane) {
    return shared_address(&at(line + lane % 16, col + lane / 16 * 8));
  }
};

// 16 bytes of a row that a warp computes: how many, and the elements of each.
constexpr int kPerRow = kWarpN * sizeof(output_t) / 16, kElements = 16 / sizeof(output_t);

// Reads rows of C, from (row0, col0) on, into `staging`.
__device__ inline void read_rows(
    Staging& staging, const Output& out, int row0, int col0, int lane) {
  const output_t* c = out.C + row0 * out.ldc + col0;
  if (Output::is_aligned(c, out.ldc) && col0 + kWarpN <= out.cols) {
    // 16 bytes at once, past the registers: all of them are on their way at the same time.
#pragma unroll 1
    for (int at = lane; at < Staging::kRows * kPerRow; at += 32) {
      const int row = at / kPerRow, col = at % kPerRow * kElements;
      const int bytes = row0 + row < out.rows ? 16 : 0;  // the others become zeros
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                       shared_address(&staging.at(row, col))),
                   "l"(c + row * out.ldc + col), "r"(bytes)
                   : "memory");
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    return;
  }
#pragma unroll 1
  for (int row = 0; row < Staging::kRows; ++row, c += out.ldc) {
#pragma unroll
    for (int col = lane; col < kWarpN; col += 32) {
      const bool exists = row0 + row < out.rows && col0 + col < out.cols;
      staging.at(row, col) = exists ? c[col] : output_t(0);
    }
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
    Staging& staging, const Output& out, int row0, int col0, int lane) {
  output_t* const d = out.D + row0 * out.ldd + col0;
  const int rows = out.rows - row0 < Staging::kRows ? out.rows - row0 : Staging::kRows;
#pragma unroll 1
  for (int col = lane; col < kWarpN; col += 32) {  // a column of each lane, element by element
    if (col0 + col >= out.cols) continue;
    output_t* to = d + col;
#pragma unroll 4
    for (int row = 0; row < rows; ++row, to += out.ldd) *to = staging.at(row, col);
  }
}

// ---------------------------------------------------------------------------- several kernels
//
// A kernel of this file may be launched while the one before it still runs. This waits until that
// has ended, and what it wrote can be seen: nothing in global memory may be touched earlier.
__device__ inline void wait_for_grids() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// The next kernel may be launched once all blocks have called this, or have ended.
__device__ inline void let_next_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
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
    mnist_input_gradient_hopper_pack(  // copies of both operands
        index_t left_lines, index_t left_length, const input_t* left, index_t left_ld,
        input_t* left_packed, index_t left_packed_ld, index_t right_lines, index_t right_length,
        const input_t* right, index_t right_ld, input_t* right_packed, index_t right_packed_ld) {
  let_next_start();
  wait_for_grids();
  const bool is_left = blockIdx.z == 0;
  pack<kTransposesLeft>(
      is_left ? left_lines : right_lines, is_left ? left_length : right_length,
      is_left ? left : right, is_left ? left_ld : right_ld, is_left ? left_packed : right_packed,
      is_left ? left_packed_ld : right_packed_ld);
}

// ---------------------------------------------------------------------------- the product

constexpr int kEarlySteps = kStageBytes > 16 * 1024 ? 1 : 2;  // prefetched while other kernels run
constexpr int kSlots = 1;  // parts of each warp's rows that are on their way to D at once

// Tiles and barriers; the way out; what aligning the first tile may take.
constexpr int kSharedBytes =
    kStages * (kStageBytes + 16) + kWarps * kSlots * int(sizeof(Staging)) + 1024;

// A CUtensorMap: what a matrix looks like, for the TMA. Made by the host.
struct alignas(64) tensor_map_t {
  unsigned char bytes[128];
};

// Brings a map to where the TMA will look for it.
__device__ inline void prefetch_map(const tensor_map_t& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

__device__ inline void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ inline void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives, and makes the barrier's phase last until so many bytes have been copied.
__device__ inline void barrier_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Whether the phase with this parity is over: phases count 0, 1, 0, 1, ... from the initialisation.
__device__ inline bool barrier_test(uint32_t barrier, int parity) {
  uint32_t over;
  asm volatile(
      "{\n"
      ".reg .pred over;\n"
      "mbarrier.test_wait.parity.shared.b64 over, [%1], %2;\n"
      "selp.b32 %0, 1, 0, over;\n"
      "}"
      : "=r"(over)
      : "r"(barrier), "r"(parity)
      : "memory");
  return over;
}

// Until it is over. The hardware lets the thread sleep for a while.
__device__ inline void barrier_wait(uint32_t barrier, int parity) {
  uint32_t over = 0;
  while (!over) {
    asm volatile(
        "{\n"
        ".reg .pred over;\n"
        "mbarrier.try_wait.parity.shared.b64 over, [%1], %2;\n"
        "selp.b32 %0, 1, 0, over;\n"
        "}"
        : "=r"(over)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

// Starts to copy a box of a matrix to shared memory: `inner` and `outer` are where it starts along
// the contiguous dimension and along the other one. The barrier counts its bytes when they arrive.
__device__ inline void copy_box(
    uint32_t shared, const tensor_map_t& map, int inner, int outer, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared),
      "l"(&map), "r"(inner), "r"(outer), "r"(barrier)
      : "memory");
}

// Brings a box to the L2 cache. That may be done before wait_for_grids: what other kernels still
// write reaches that cache, too.
__device__ inline void prefetch_box(const tensor_map_t& map, int inner, int outer) {
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global [%0, {%1, %2}];" ::"l"(&map), "r"(inner),
               "r"(outer)
               : "memory");
}

// The other way round, clipped to the matrix. The box's bytes in shared memory are read later.
__device__ inline void store_box(
    const tensor_map_t& map, int inner, int outer, const void* shared) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
      "r"(inner), "r"(outer), "r"(shared_address(shared))
      : "memory");
}

// The boxes that this thread has stored since the last call become a group.
__device__ inline void end_of_boxes() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until all but the newest `kGroups` groups have been read from shared memory.
template <int kGroups>
__device__ inline void wait_for_boxes() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kGroups) : "memory");
}

// What this thread has written to shared memory can be read by the TMA from here on.
__device__ inline void show_to_tma() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Makes the rows of D that a slot holds of the first blocks of a warp's sums. The blocks behind them
// become the first ones. Registers cannot be indexed by a variable: the code is there kTogether
// times, for as many blocks, before the others move up.
template <int kTogether>
__device__ inline void fill(
    Staging& staging, WarpTile& tile, const Output& out, bool reads_c, int lane) {
#pragma unroll 1
  for (int line = 0; line < Staging::kRows; line += 16 * kTogether) {
    asm volatile("" : "+r"(lane));  // keeps addresses from being computed before, and spilled
#pragma unroll
    for (int b = 0; b < kTogether; ++b) {
      finish_rows(staging, line + 16 * b, tile, b, out, reads_c, lane);
    }
    tile.move_up<kTogether>();
  }
}

// Writes a warp's part of D, whose first element is at (row0, col0). The sums are used up. The TMA
// takes it from shared memory, while the warp goes on. But it writes 16 bytes at a time, and would
// write beyond the end of a row that is no multiple of them.
__device__ inline void store(
    WarpTile& tile, const Output& out, const tensor_map_t& map, Staging* slots, int row0, int col0,
    int lane) {
  const bool whole = out.cols * sizeof(output_t) % 16 == 0 || col0 + kWarpN <= out.cols;
  const bool by_tma = Output::is_aligned(out.D, out.ldd) && whole;
  constexpr int kBlocks = Staging::kRows / 16;  // in a slot
#pragma unroll 1
  for (int i = 0; i < WarpTile::kM; i += kBlocks) {
    const int row = row0 + 16 * i;
    Staging& staging = slots[i / kBlocks % kSlots];
    if (lane == 0) wait_for_boxes<kSlots - 1>();  // what was in this slot has been read
    __syncwarp();
    if (out.reads_c()) {
      read_rows(staging, out, row, col0, lane);
      __syncwarp();
      fill<1>(staging, tile, out, true, lane);
    } else {  // as usual, and longer code for the sake of speed
      fill<kBlocks>(staging, tile, out, false, lane);
    }
    if (by_tma) show_to_tma();
    __syncwarp();
    if (!by_tma) {
      write_rows(staging, out, row, col0, lane);
    } else if (lane == 0) {
      constexpr int kWide = Staging::kLine / sizeof(output_t);  // elements
#pragma unroll
      for (int p = 0; p < Staging::kPieces; ++p) {
        store_box(map, col0 + p * kWide, row, staging.bytes + p * Staging::kPieceBytes);
      }
    }
    if (lane == 0) end_of_boxes();
  }
}

// A thread's warp and lane, read where they are asked for: they would be spilled if they were kept
// while sums need all registers.
struct Place {
  int warp, lane;
};

__device__ inline Place place() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return {thread / 32, thread % 32};
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)  // one block stays on each multiprocessor
    mnist_input_gradient_hopper(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha,
        const __grid_constant__ tensor_map_t left_map,
        const __grid_constant__ tensor_map_t right_map,
        const __grid_constant__ tensor_map_t out_map, scalar_t beta, const output_t* C, index_t ldc,
        output_t* D, index_t ldd, index_t early) {
  extern __shared__ __align__(128) unsigned char shared[];
  // kStages times: left tile, right tile, at a multiple of the 1024 bytes after which swizzles
  // repeat; then the consumers' staging; then the barriers.
  const uint32_t begin = shared_address(shared);
  const uint32_t stages = (begin + 1023) & ~1023u;
  const auto staging =
      reinterpret_cast<Staging*>(shared + (stages - begin) + kStages * kStageBytes);
  const uint32_t barriers = stages + kStages * kStageBytes + kWarps * kSlots * sizeof(Staging);
  const auto full = [barriers](int stage) { return barriers + 16 * stage; };
  const auto empty = [barriers](int stage) { return barriers + 16 * stage + 8; };

  const int rows = int(M), cols = int(N);
  // A box has no more lines than its matrix: for those that do not exist, the TMA would take longer
  // than for others. Where a tile has more, they are cleared here, once.
  const int left_bytes = (rows < kTileM ? rows : kTileM) * Left::kLine;
  const int right_bytes = (cols < kTileN ? cols : kTileN) * Right::kLine;
  if (left_bytes + right_bytes < kStageBytes) {
    for (int at = 16 * threadIdx.x; at < kStageBytes; at += 16 * kThreads) {
      if (at < Left::kBytes ? at < left_bytes : at < Left::kBytes + right_bytes) continue;
      for (int stage = 0; stage < kStages; ++stage) {
        *reinterpret_cast<uint4*>(shared + (stages - begin) + stage * kStageBytes + at) = uint4{};
      }
    }
  }

  const int tiles_m = (rows + kTileM - 1) / kTileM;
  const int tiles_n = (cols + kTileN - 1) / kTileN;
  const int all_steps = int((K + kTileK - 1) / kTileK);
  const int work = tiles_m * tiles_n;
  // What a piece of work is: a tile of D.
  const auto piece = [=](int w, int& row0, int& col0, int& first, int& last) {
    first = 0;
    last = all_steps;
    tile_at(w, tiles_m, tiles_n, row0, col0);
    row0 *= kTileM;
    col0 *= kTileN;
  };
  int row0, col0, first, last;
  piece(blockIdx.x, row0, col0, first, last);
  // Divisions take long: the first piece's are made while the kernels before still run. The asm
  // keeps the compiler from moving them.
  asm volatile("" : "+r"(row0), "+r"(col0), "+r"(first), "+r"(last));

  if (threadIdx.x == 0) {
    prefetch_map(left_map);
    prefetch_map(right_map);
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_init(full(stage), 1);  // the producer
      barrier_init(empty(stage), kWarps);  // a thread of each consumer
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");  // the TMA sees them, too
    // The first operands are on their way to the L2 cache while the kernels before still run. More
    // than a little would get in their way. (An empty D is not `early`: its maps are of nothing.)
    for (int n = first; early && n < last && n < first + kEarlySteps; ++n) {
      const int k = n * kTileK;
      prefetch_box(left_map, k, row0);
      prefetch_box(right_map, k, col0);
    }
  }
  __syncthreads();
  if (early) let_next_start();
  wait_for_grids();

  const auto next = [&](int& w) {
    w += gridDim.x;
    piece(w, row0, col0, first, last);
  };
  int stage = 0, phase = 0;
  const auto advance = [&] {
    stage = stage + 1 < kStages ? stage + 1 : 0;
    if (stage == 0) phase ^= 1;
  };

  if (threadIdx.x >= 32 * kWarps) {  // producers
    if (threadIdx.x == 32 * kWarps) {
      for (int w = blockIdx.x; w < work; next(w)) {
        for (int n = first; n < last; ++n) {
          barrier_wait(empty(stage), phase ^ 1);  // true at once the first time round
          barrier_expect(full(stage), left_bytes + right_bytes);
          const int k = n * kTileK;
          const uint32_t left = stages + stage * kStageBytes, right = left + Left::kBytes;
          copy_box(left, left_map, k, row0, full(stage));
          copy_box(right, right_map, k, col0, full(stage));
          advance();
        }
      }
    }
    return;
  }

  WarpTile tile;
  for (int w = blockIdx.x; w < work; next(w)) {
    tile.clear();
    if (first < last) {
      barrier_wait(full(stage), phase);
      const auto [warp, lane] = place();
      tile.read_from(stages + stage * kStageBytes, warp, lane);
      tile.load(0);
    }
#pragma unroll 1
    for (int n = first; n < last; ++n) {
      // While step s of a tile is multiplied, step s + 1 moves from shared memory to registers;
      // after the last one comes the first of the next tile.
#pragma unroll
      for (int s = 0; s < kSteps - 2; ++s) {
        tile.load(s + 1);
        tile.multiply_all(s);
      }
      const int finished = stage;
      advance();
      const bool more = n + 1 < last;
      tile.load(kSteps - 1);
      // Whether the next tile is there: asked before a step is multiplied, it costs no time.
      const bool ready = barrier_test(full(stage), phase);
      tile.multiply_all(kSteps - 2);
      // After the last tile, load again what is there: it is not used, and costs less than a
      // branch.
      tile.move(more ? (stage - finished) * kStageBytes : 0);
      if (more && !ready) barrier_wait(full(stage), phase);
      tile.load(0);
      tile.multiply_all(kSteps - 1);
      __syncwarp();  // all lanes have read all of the stage
      if (threadIdx.x % 32 == 0) barrier_arrive(empty(finished));
    }
    const auto [warp, lane] = place();
    const int warp_row = row0 + warp % kWarpsM * kWarpM;
    const int warp_col = col0 + warp / kWarpsM * kWarpN;
    const Output out{rows, cols, alpha, beta, C, ldc, D, ldd};
    store(tile, out, out_map, staging + warp * kSlots, warp_row, warp_col, lane);
  }
  if (threadIdx.x % 32 == 0) wait_for_boxes<0>();  // shared memory lasts as long as the block
}

#ifndef __CUDACC_RTC__  // the host's side, for programs built by nvcc

// Of the current device.
inline cudaError_t count_multiprocessors(int& count) {
  int device;
  const cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  return cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
}

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
mnist_input_gradient_hopper_workspace(  // for a launch with these arguments
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

// Launches a kernel that waits for the ones before it by itself (wait_for_grids): its blocks start
// while those of the last one end.
template <class... Parameters, class... Arguments>
inline cudaError_t launch_early(
    void (*kernel)(Parameters...), dim3 grid, int threads, int shared_bytes, cudaStream_t stream,
    Arguments... arguments) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

// Describes a matrix of `lines` lines of `length` elements to the TMA, which is to copy boxes of
// box_lines x box_length. The driver's function is asked for by name, so that no library but the
// CUDA runtime is linked.
inline cudaError_t make_map(
    tensor_map_t& map, CUtensorMapDataType type, int size, const void* matrix, index_t length,
    index_t lines, index_t ld, int box_length, int box_lines) {
  static_assert(
      sizeof(CUtensorMap) == sizeof(tensor_map_t), "the kernel's parameter is a CUtensorMap");
  map = {};
  if (length == 0 || lines == 0) return cudaSuccess;  // it will not be read
  static void* const function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
    const cudaError_t error = cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? found : nullptr;
  }();
  if (function == nullptr) return cudaErrorNotSupported;
  const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  const cuuint64_t sizes[] = {cuuint64_t(length), cuuint64_t(lines)};
  const cuuint64_t stride = ld * size;
  const cuuint32_t box[] = {cuuint32_t(box_length), cuuint32_t(box_lines)};
  const cuuint32_t every[] = {1, 1};
  const int bytes = box_length * size;
  const CUtensorMapSwizzle swizzle = bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                   : CU_TENSOR_MAP_SWIZZLE_32B;
  const CUresult result = encode(
      reinterpret_cast<CUtensorMap*>(&map), type, 2, const_cast<void*>(matrix), sizes, &stride, box,
      every, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
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
mnist_input_gradient_hopper_launch(  // D = alpha * A * B + beta * C
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
        mnist_input_gradient_hopper_pack;
    error = launch_early(
        pack, grid, 256, 0, stream,  // and its parameters:
        plan.left_lines, plan.left_length, A, lda, left_packed, plan.left_packed_ld,
        plan.right_lines, plan.right_length, B, ldb, right_packed, plan.right_packed_ld);
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

  constexpr auto kInput = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  constexpr auto kOutput = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  tensor_map_t left, right, out{};
  error = make_map(
      left, kInput, sizeof(input_t), A, K, plan.rows, lda, kTileK,
      int(plan.rows < kTileM ? plan.rows : kTileM));
  if (error != cudaSuccess) return error;
  error = make_map(
      right, kInput, sizeof(input_t), B, K, plan.cols, ldb, kTileK,
      int(plan.cols < kTileN ? plan.cols : kTileN));
  if (error != cudaSuccess) return error;
  if (reinterpret_cast<size_t>(D) % 16 == 0 && ldd * sizeof(output_t) % 16 == 0) {
    error = make_map(
        out, kOutput, sizeof(output_t), D, plan.cols, plan.rows, ldd,
        Staging::kLine / sizeof(output_t), Staging::kRows);
    if (error != cudaSuccess) return error;
  }

  int processors;
  error = count_multiprocessors(processors);
  if (error != cudaSuccess) return error;
  const index_t work = plan.tiles * plan.slices;
  if (work > kMost) return cudaErrorInvalidConfiguration;
  const int blocks = int(work < processors ? work : processors);
  // The next kernel may start early where no block has a second tile. But after packing it is
  // likely to pack as well, which is slower among this kernel's blocks.
  const index_t early = work == blocks && plan.left_lines == 0 && plan.right_lines == 0;
  const auto kernel =  // may have more shared memory than the usual 48 KiB
      mnist_input_gradient_hopper;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;
  error = launch_early(
      kernel, blocks, kThreads, kSharedBytes, stream,  // and its parameters:
      M, N, K, alpha, left, right, out, beta, C, ldc, D, ldd, early);
  return error;
}

#endif  // __CUDACC_RTC__

}  // namespace mnist_input_gradient_hopper_ns
