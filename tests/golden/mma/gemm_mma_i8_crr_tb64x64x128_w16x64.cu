// gemm_mma_i8_crr_tb64x64x128_w16x64: D = alpha * A * B + beta * C
//
// Tensor cores, fed through three levels of tiles. A block computes a work tile of D: step by step
// along K, its threads bring a tile of A and one of B into shared memory. Each warp computes 16 x 64 of
// it: it loads fragments of A and B into registers, and multiplies them with mma.sync. Bytes outside of
// the matrices are zeros in shared memory.
// Copies overlap with multiplications: they go from global to shared memory without passing through
// registers (cp.async), 3 steps ahead of what is multiplied.
//
//   A  M x K, column-major, signed char
//   B  K x N, row-major, signed char
//   C  M x N, row-major, int; not read when beta is 0
//   D  M x N, row-major, int; must not overlap A or B; may be C, where ldc is ldd
//
// M, N, K from 0 to 2^31 - 4096, any leading dimension, in elements. Accumulators are int,
// alpha and beta are int. Needs a GPU of compute capability 8.0 or newer and C++17.
//
// Made by gemmgen 0.2.0:  gen emit --variant mma --dtype i8 --layout crr --arch sm_80 --pack 1 --threadblock 64x64x128 --warp 16x64 --instruction m16n8k32 --stages 4 --split-k 1 --epilogue linear --swizzle 12
// Compile:  nvcc -std=c++17 -arch=sm_80 -c gemm_mma_i8_crr_tb64x64x128_w16x64.cu, or by NVRTC as it is
// gen-spec: {"variant": "mma", "dtype": "i8", "layout": "crr", "arch": "sm_80", "pack": 1, "threadblock": "64x64x128", "warp": "16x64", "instruction": "m16n8k32", "stages": 4, "split_k": 1, "epilogue": "linear", "swizzle": 12}
// SPDX-License-Identifier: 0BSD

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "for -arch=sm_80 or newer: older GPUs lack the kernel's instructions"
#endif

namespace gemm_mma_i8_crr_tb64x64x128_w16x64_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = signed char;
using output_t = int;
using scalar_t = int;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;
constexpr int kTileM = 64, kTileN = 64, kTileK = 128;  // of a block: work tile, step along K
constexpr int kThreads = 128;  // 4 warps
constexpr int kChunk = 16;  // elements in 16 bytes: the unit of all copies

constexpr int kWarpM = 16, kWarpN = 64;  // what each warp computes of the work tile
constexpr int kStages = 4;  // tiles of A and B in shared memory
constexpr int kGroup = 12;  // work tiles along M that are computed close in time: see tile_at
constexpr int kWarpsM = kTileM / kWarpM;  // 64 / 16 = 4
constexpr int kFragmentsM = kWarpM / 16, kFragmentsN = kWarpN / 16;  // 1, 4
constexpr int kKBlocks = 4;  // K blocks (32 bytes along K) of a step: 128 / 32

constexpr int kBytesA = kTileM * 128;  // (kTileM, kTileK): 64 lines of 128 bytes along K
constexpr int kBytesB = kTileN * 128;  // (kTileN, kTileK): 64 lines of 128 bytes along K
constexpr int kStageBytes = kBytesA + kBytesB;  // 16384

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
__device__ constexpr unsigned swizzle_128b(unsigned line, unsigned chunk) {
  return line * 128 + (chunk ^ line % 8) * 16;
}

// A warp's part of the work tile, with fragments of two K blocks: one is loaded while the other is
// multiplied.
struct WarpTile {
  int acc[kFragmentsM][2 * kFragmentsN][4] = {};  // accumulators of (1, 8) instructions
  uint32_t a[2][kFragmentsM][4], b[2][kFragmentsN][4];  // fragments
  uint32_t a_at[kKBlocks], b_at[kKBlocks];  // where they come from: made before the step that loads

  // Lets loads read the stage at this address in shared memory.
  __device__ void read_from(uint32_t stage, int warp, int lane) {
    const int row = warp % kWarpsM * kWarpM + lane % 16;
    for (int kb = 0; kb < kKBlocks; ++kb) {
      a_at[kb] = stage + swizzle_128b(row, 2 * kb + lane / 16);
    }
    const int col = warp / kWarpsM * kWarpN + lane / 16 * 8 + lane % 8;
    for (int kb = 0; kb < kKBlocks; ++kb) {
      b_at[kb] = stage + kBytesA + swizzle_128b(col, 2 * kb + lane / 8 % 2);
    }
  }
  // Lets loads read another stage, so many bytes further on.
  __device__ void move(int bytes) {
    for (auto& address : a_at) address += bytes;
    for (auto& address : b_at) address += bytes;
  }
  __device__ void load(int kb) {
#pragma unroll
    for (int i = 0; i < kFragmentsM; ++i) ldmatrix(a[kb % 2][i], a_at[kb] + i * 16 * 128);
#pragma unroll
    for (int i = 0; i < kFragmentsN; ++i) ldmatrix(b[kb % 2][i], b_at[kb] + i * 16 * 128);
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
  }
}

// ------------------------------------------------------------------------ packing
// Only elements of 2 bytes reach tensor cores across K: operands that are not contiguous along K are first
// transposed into the workspace. blockIdx.z is 0 for A, 1 for B.

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
    gemm_mma_i8_crr_tb64x64x128_w16x64_pack(  // copies of both operands
        index_t a_lines, index_t a_length, const input_t* A, index_t lda, input_t* a_packed,
        index_t a_packed_ld, index_t b_lines, index_t b_length, const input_t* B, index_t ldb,
        input_t* b_packed, index_t b_packed_ld) {
  const bool is_a = blockIdx.z == 0;
  pack_transposed(
      is_a ? a_lines : b_lines, is_a ? a_length : b_length, is_a ? A : B, is_a ? lda : ldb,
      is_a ? a_packed : b_packed, is_a ? a_packed_ld : b_packed_ld);
}

// ------------------------------------------------------------------------ the kernel
constexpr int kSharedBytes = kStages * kStageBytes;  // 65536; rows of D take their place
static_assert(kThreads / 32 * sizeof(Staging) <= kSharedBytes);

extern "C" __global__ void __launch_bounds__(kThreads)  // lets the compiler count on the block size
    gemm_mma_i8_crr_tb64x64x128_w16x64(  // D = alpha * A * B + beta * C
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
  const int a_line = threadIdx.x / 8, a_chunk = threadIdx.x % 8;
  const int a_left = rows - row0 - a_line;  // lines from there to the end of A
  const auto a_from = A + index_t(row0 + a_line) * lda + a_chunk * kChunk;
  const auto copy_a = [&](uint32_t stage, int k) {
    const int left = depth - k - a_chunk * kChunk;
    const int bytes = (left < 0 ? 0 : left < kChunk ? left : kChunk) * int(sizeof(input_t));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto from = a_from + index_t(i * 16) * lda + k;
      const int to = swizzle_128b(a_line + i * 16, a_chunk);
      cp_async(stage + to, from, i * 16 < a_left ? bytes : 0);
    }
  };
  const int b_line = threadIdx.x / 8, b_chunk = threadIdx.x % 8;
  const int b_left = cols - col0 - b_line;  // lines from there to the end of B
  const auto b_from = B + index_t(col0 + b_line) * ldb + b_chunk * kChunk;
  const auto copy_b = [&](uint32_t stage, int k) {
    const int left = depth - k - b_chunk * kChunk;
    const int bytes = (left < 0 ? 0 : left < kChunk ? left : kChunk) * int(sizeof(input_t));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto from = b_from + index_t(i * 16) * ldb + k;
      const int to = swizzle_128b(b_line + i * 16, b_chunk);
      cp_async(stage + to, from, i * 16 < b_left ? bytes : 0);
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
        // To wait once more after the last step does no harm, and without a branch the compiler
        // places the multiplications better.
        asm volatile("cp.async.wait_group 2;" ::: "memory");
        __syncthreads();  // the next tiles are there; nobody reads these any more
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

  bool packs_a = K > 0;  // its lines do not run along K
  index_t a_lines = packs_a ? M : 0, a_length = packs_a ? K : 0;  // to pack
  index_t a_ld = packs_a ? (a_length + 127) / 128 * 128 : lda;  // as the kernel reads it
  bool packs_b = K > 0;  // its lines do not run along K
  index_t b_lines = packs_b ? N : 0, b_length = packs_b ? K : 0;  // to pack
  index_t b_ld = packs_b ? (b_length + 127) / 128 * 128 : ldb;  // as the kernel reads it
  index_t b_offset = (a_lines * a_ld + 255) / 256 * 256;  // bytes
  index_t tiles = (M + kTileM - 1) / kTileM * ((N + kTileN - 1) / kTileN);  // of D
  index_t bytes = b_offset + (b_lines * b_ld + 255) / 256 * 256;  // of the workspace
  index_t a_pieces = (a_lines + 127) / 128 * ((a_length + 127) / 128);  // for blocks
  index_t b_pieces = (b_lines + 127) / 128 * ((b_length + 127) / 128);  // for blocks
  index_t pieces = a_pieces > b_pieces ? a_pieces : b_pieces;
  index_t pack_blocks = pieces < 65536 ? pieces : 65536;
};

constexpr size_t kSide = 2147479552;  // M, N, K: 2^31 - 4096, so that where a tile ends is an int
constexpr size_t kMost = 2147483647;  // blocks
constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows

// Sets *bytes to the size of the workspace that the launcher needs on the current device, or to 0 where
// it returns the launcher's error 1 or 9.
// It holds A and B transposed.
extern "C" cudaError_t  // cudaSuccess once *bytes is set
gemm_mma_i8_crr_tb64x64x128_w16x64_workspace(  // for a launch with these arguments
    index_t M, index_t N, index_t K, const input_t* A, index_t lda, const input_t* B, index_t ldb,
    size_t* bytes) {
  if (bytes == nullptr) return cudaErrorInvalidValue;
  *bytes = 0;
  if (size_t(M) > kSide || size_t(N) > kSide || size_t(K) > kSide) return cudaErrorInvalidValue;
  if (M == 0 || N == 0) return cudaSuccess;  // D has no elements
  if (M > kLargest / N) return cudaErrorInvalidValue;
  if (K > 0 && (A == nullptr || lda < M || lda > kLargest / K)) return cudaErrorInvalidValue;
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
gemm_mma_i8_crr_tb64x64x128_w16x64_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, scalar_t alpha, const input_t* A, index_t lda,
    const input_t* B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc, output_t* D,
    index_t ldd, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  size_t needed;  // bytes of the workspace
  auto ask = gemm_mma_i8_crr_tb64x64x128_w16x64_workspace;
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

  const auto kernel = gemm_mma_i8_crr_tb64x64x128_w16x64;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;

  if (plan.packs_a || plan.packs_b) {
    error = launch(  // a kernel that packs both
        gemm_mma_i8_crr_tb64x64x128_w16x64_pack, dim3(unsigned(plan.pack_blocks), 1, 2), 256, 0,
        stream, plan.a_lines, plan.a_length, A, lda, a_packed, plan.a_ld, plan.b_lines,
        plan.b_length, B, ldb, b_packed, plan.b_ld);
    if (error != cudaSuccess) return error;
  }
  const dim3 grid(unsigned(plan.tiles));
  return launch(
      kernel, grid, kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, alpha, a, plan.a_ld, b, plan.b_ld, beta, C, ldc, D, ldd);
}

#endif  // __CUDACC_RTC__
}  // namespace gemm_mma_i8_crr_tb64x64x128_w16x64_ns
