// gemm_mma_i8_ccr_sk2_batched: D = alpha * A * B + beta * C
//
// Tensor cores, fed through three levels of tiles. A block computes a work tile of D: step by step
// along K, its threads bring a tile of A and one of B into shared memory. Each warp computes 64 x 64 of
// it: it loads fragments of A and B into registers, and multiplies them with mma.sync. Bytes outside of
// the matrices are zeros in shared memory.
// Copies overlap with multiplications: they go from global to shared memory without passing through
// registers (cp.async), 3 steps ahead of what is multiplied.
//
//   A  M x K, column-major, signed char
//   B  K x N, column-major, signed char
//   C  M x N, row-major, int; not read when beta is 0
//   D  M x N, row-major, int; must not overlap A or B; may be C, where ldc is ldd
//
// A batch of such products: their matrices are stride_a, stride_b, stride_c and stride_d elements apart.
// Where a stride of A, B or C is 0, all products have the same matrix. Those of D do not overlap; where
// D is C, both have one stride.
//
// M, N, K from 0 to 2^31 - 4096, any leading dimension, in elements. Accumulators are int,
// alpha and beta are int. Needs a GPU of compute capability 8.0 or newer and C++17.
//
// Made by gemmgen 0.2.0:  gen emit --variant mma --dtype i8 --layout ccr --arch sm_80 --pack 1 --threadblock 128x256x64 --warp 64x64 --instruction m16n8k32 --stages 4 --split-k 2 --epilogue linear --swizzle 12 --batched
// Compile:  nvcc -std=c++17 -arch=sm_80 -c gemm_mma_i8_ccr_sk2_batched.cu, or by NVRTC as it is
// gen-spec: {"variant": "mma", "dtype": "i8", "layout": "ccr", "arch": "sm_80", "pack": 1, "threadblock": "128x256x64", "warp": "64x64", "instruction": "m16n8k32", "stages": 4, "split_k": 2, "epilogue": "linear", "swizzle": 12, "batched": true}
// SPDX-License-Identifier: 0BSD

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "for -arch=sm_80 or newer: older GPUs lack the kernel's instructions"
#endif

namespace gemm_mma_i8_ccr_sk2_batched_ns {  // several emitted files may be in one program
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
constexpr int kWarps = kThreads / 32;  // 8
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
  // Two accumulators of the lane: row 16i + 8h + g, columns 8j + 2t and 8j + 2t + 1.
  __device__ int2 pair(int i, int h, int j) const {
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

// ------------------------------------------------------------------------ split-K
// Where D has too few work tiles to occupy the GPU, several blocks share one: each adds up a slice of
// K and writes its partial sums to the workspace; a second kernel adds them up, always in the same
// order, so that the result is the same in every run.

// A slice's steps along K: from `first` to before `last`. The first slices may have one more.
__device__ inline void steps_of(int slice, uint32_t slices, uint32_t steps, int& first, int& last) {
  const int each = steps / slices, more = steps % slices;
  first = slice * each + (slice < more ? slice : more);
  last = first + each + (slice < more ? 1 : 0);
}

// Writes a warp's accumulators as partial sums: four of a lane at a time, those of its neighbours next
// to them. `piece` counts the work tiles of all slices.
__device__ inline void store_partial(
    const WarpTile& tile, scalar_t* partials, index_t piece, int warp, int lane) {
  constexpr int kFours = kFragmentsM * 2 * kFragmentsN;  // of a lane
  const auto all = reinterpret_cast<int4*>(partials);
  const auto to = all + (piece * kWarps + warp) * kFours * 32 + lane;
#pragma unroll
  for (int i = 0; i < kFragmentsM; ++i) {
#pragma unroll
    for (int j = 0; j < 2 * kFragmentsN; ++j) {
      const int2 above = tile.pair(i, 0, j), below = tile.pair(i, 1, j);
      to[(i * 2 * kFragmentsN + j) * 32] = {above.x, above.y, below.x, below.y};
    }
  }
}

constexpr int kReduceWidth = 32;  // groups of four elements that a block adds up over all slices

__device__ inline void reduce(
    int rows, int cols, index_t batch, scalar_t alpha, scalar_t beta, const output_t* C,
    index_t ldc, index_t stride_c, output_t* D, index_t ldd, index_t stride_d, int slices,
    const scalar_t* partials) {
  constexpr int kFours = kTileM * kTileN / 4;  // of a work tile
  constexpr int kGroups = 256 / kReduceWidth;  // of threads, each with its slices
  constexpr int kAtOnce = 1;  // loads of a thread that are on their way together
  __shared__ int4 sums[kGroups][kReduceWidth];
  const int tiles_m = (rows + kTileM - 1) / kTileM, tiles_n = (cols + kTileN - 1) / kTileN;
  const int group = threadIdx.x / kReduceWidth;
  const index_t begin = index_t(blockIdx.x) * kReduceWidth;
  // In the end, a thread has one element. Where it is takes divisions: they come first.
  int product = 0, row = 0, col = 0;
  if (threadIdx.x < 4 * kReduceWidth) {
    // store_partial wrote four elements of a lane: two neighbours in a row, and two 8 rows below.
    const index_t at = begin + threadIdx.x / 4;
    const int lane = at % 32, j = at / 32 % (kWarpN / 8), i = at / (4 * kWarpN) % (kWarpM / 16);
    const int warp = at % kFours / (kWarpM * kWarpN / 4), e = threadIdx.x % 4;
    tile_at(at / kFours, tiles_m, tiles_n, product, row, col);
    row += warp % kWarpsM * kWarpM + 16 * i + lane / 4 + e / 2 * 8;
    col += warp / kWarpsM * kWarpN + 8 * j + lane % 4 * 2 + e % 2;
  }
  const index_t distance = index_t(tiles_m) * tiles_n * batch * kFours;  // from a slice to the next
  const auto all = reinterpret_cast<const int4*>(partials);
  auto from = all + begin + group * distance + threadIdx.x % kReduceWidth;
  int4 sum{};
#pragma unroll 1
  for (int slice = group; slice < slices; slice += kAtOnce * kGroups) {
    int4 parts[kAtOnce]{};
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (slice + i * kGroups < slices) parts[i] = *from;
      from += kGroups * distance;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      sum.x += parts[i].x;
      sum.y += parts[i].y;
      sum.z += parts[i].z;
      sum.w += parts[i].w;
    }
  }
  sums[group][threadIdx.x % kReduceWidth] = sum;
  __syncthreads();  // all threads' sums are there
  if (threadIdx.x >= 4 * kReduceWidth) return;
  scalar_t x = 0;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    x += reinterpret_cast<const scalar_t*>(sums[g])[threadIdx.x];
  }
  if (row >= rows || col >= cols) return;
  x *= alpha;
  if (beta != 0) x += beta * scalar_t(C[product * stride_c + row * ldc + col]);
  D[product * stride_d + row * ldd + col] = output_t(x);
}

extern "C" __global__ void __launch_bounds__(256)  // 8 warps
    gemm_mma_i8_ccr_sk2_batched_reduce(  // D = alpha * (sum of the partial sums) + beta * C
        index_t M, index_t N, index_t batch, scalar_t alpha, scalar_t beta, const output_t* C,
        index_t ldc, index_t stride_c, output_t* D, index_t ldd, index_t stride_d, index_t slices,
        const scalar_t* partials) {
  reduce(
      int(M), int(N), batch, alpha, beta, C, ldc, stride_c, D, ldd, stride_d, int(slices),
      partials);
}

// ------------------------------------------------------------------------ packing
// An operand whose lines do not all start at multiples of 16 bytes is first copied to the workspace
// with lines that do; blockIdx.z is even for A, odd for B. One that needs no copy has 0 lines here.
// A is always copied: not contiguous along K, it is transposed here. Only elements of 2 bytes
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
    gemm_mma_i8_ccr_sk2_batched_pack(  // copies of both operands
        index_t a_lines, index_t a_length, index_t a_count, const input_t* A, index_t lda,
        index_t stride_a, input_t* a_packed, index_t a_packed_ld, index_t b_lines, index_t b_length,
        index_t b_count, const input_t* B, index_t ldb, index_t stride_b, input_t* b_packed,
        index_t b_packed_ld) {
  // Every other block along z has matrices of A, those between them of B; they stride over the rest.
  const bool is_a = blockIdx.z % 2 == 0;
  const index_t count = is_a ? a_count : b_count;
  for (index_t i = blockIdx.z / 2; i < count; i += gridDim.z / 2) {
    if (is_a) {
      pack_transposed(
          a_lines, a_length, A + i * stride_a, lda, a_packed + i * a_lines * a_packed_ld,
          a_packed_ld);
    } else {
      pack_lines(
          b_lines, b_length, B + i * stride_b, ldb, b_packed + i * b_lines * b_packed_ld,
          b_packed_ld);
    }
  }
}

// ------------------------------------------------------------------------ the kernel
constexpr int kSharedBytes = kStages * kStageBytes;  // 98304

extern "C" __global__ void __launch_bounds__(kThreads)  // lets the compiler count on the block size
    gemm_mma_i8_ccr_sk2_batched(  // partial sums of A * B
        index_t M, index_t N, index_t K, const input_t* __restrict__ A, index_t lda,
        index_t stride_a, const input_t* __restrict__ B, index_t ldb, index_t stride_b,
        index_t slices, scalar_t* partials) {
  extern __shared__ __align__(128) unsigned char shared[];  // (kStages, kStageBytes)
  const uint32_t stages = shared_address(shared);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  const int rows = int(M), cols = int(N), depth = int(K);
  const int tiles_m = (rows + kTileM - 1) / kTileM, tiles_n = (cols + kTileN - 1) / kTileN;
  int product, row0, col0;
  tile_at(blockIdx.x, tiles_m, tiles_n, product, row0, col0);
  A += product * stride_a;
  B += product * stride_b;

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
  int first_step, last_step;
  steps_of(blockIdx.y, int(slices), (depth + kTileK - 1) / kTileK, first_step, last_step);
  const int steps = last_step - first_step, first = first_step * kTileK;

  // Prologue: the first kStages - 1 steps' copies, a group each (the last ones may be empty).
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < steps) {
      copy_a(stages + s * kStageBytes, first + s * kTileK);
      copy_b(stages + s * kStageBytes + kBytesA, first + s * kTileK);
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
        const int k = first + (n + kStages - 1) * kTileK;
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

  store_partial(tile, partials, index_t(blockIdx.y) * gridDim.x + blockIdx.x, warp, lane);
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

  bool packs_a = K > 0;  // its lines do not run along K
  index_t a_lines = packs_a ? M : 0, a_length = packs_a ? K : 0;  // to pack
  index_t a_ld = packs_a ? (a_length + 127) / 128 * 128 : lda;  // as the kernel reads it
  index_t a_count = stride_a > 0 ? batch : 1;  // matrices
  index_t a_each = a_lines * a_ld;  // elements of a copy
  index_t a_most = 288230376151711744 / (a_each + 1);  // more than any memory has
  index_t a_copies = a_count < a_most ? a_count : a_most;
  index_t a_stride = packs_a ? (a_count > 1 ? a_each : 0) : stride_a;  // between them
  bool packs_b = K > 0 && (B % 16 != 0 || ldb % 16 != 0 || stride_b % 16 != 0);  // not aligned
  index_t b_lines = packs_b ? N : 0, b_length = packs_b ? K : 0;  // to pack
  index_t b_ld = packs_b ? (b_length + 127) / 128 * 128 : ldb;  // as the kernel reads it
  index_t b_count = stride_b > 0 ? batch : 1;  // matrices
  index_t b_each = b_lines * b_ld;  // elements of a copy
  index_t b_most = 288230376151711744 / (b_each + 1);  // more than any memory has
  index_t b_copies = b_count < b_most ? b_count : b_most;
  index_t b_stride = packs_b ? (b_count > 1 ? b_each : 0) : stride_b;  // between them
  index_t b_offset = (a_copies * a_each + 255) / 256 * 256;  // bytes
  index_t tiles = (M + kTileM - 1) / kTileM * ((N + kTileN - 1) / kTileN) * batch;  // of D
  index_t steps = K > kTileK ? (K + kTileK - 1) / kTileK : 1;  // along K
  index_t slices = steps < 2 ? steps : 2;  // of K
  index_t partials_offset = b_offset + (b_copies * b_each + 255) / 256 * 256;
  index_t bytes = partials_offset + slices * tiles * kTileM * kTileN * 4;
  index_t reduce_blocks = tiles * (kTileM * kTileN / 4) / 32;
  index_t b_lanes = b_length > 128 ? 32 : 8;  // for a line
  index_t a_pieces = (a_lines + 127) / 128 * ((a_length + 127) / 128);  // for blocks
  index_t b_pieces = (b_lines * b_lanes + 511) / 512 * ((b_length + 511) / 512);  // for blocks
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
// It holds A transposed, a copy of the other operand if its pointer or leading dimension is no
// multiple of 16 bytes, and partial sums.
extern "C" cudaError_t  // cudaSuccess once *bytes is set
gemm_mma_i8_ccr_sk2_batched_workspace(  // for a launch with these arguments
    index_t M, index_t N, index_t K, index_t batch, const input_t* A, index_t lda, index_t stride_a,
    const input_t* B, index_t ldb, index_t stride_b, size_t* bytes) {
  if (bytes == nullptr) return cudaErrorInvalidValue;
  *bytes = 0;
  if (size_t(M) > kSide || size_t(N) > kSide || size_t(K) > kSide) return cudaErrorInvalidValue;
  if (size_t(batch) > kMost) return cudaErrorInvalidValue;
  if (M == 0 || N == 0 || batch == 0) return cudaSuccess;  // D has no elements
  if (M > kLargest / N || batch > kLargest / (M * N)) return cudaErrorInvalidValue;
  if (K > 0 && (A == nullptr || lda < M || lda > kLargest / K)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < K || ldb > kLargest / N)) return cudaErrorInvalidValue;
  if (K > 0 && (stride_a < 0 || stride_a > kLargest / batch)) return cudaErrorInvalidValue;
  if (K > 0 && (stride_b < 0 || stride_b > kLargest / batch)) return cudaErrorInvalidValue;
  const Plan plan{M, N, K, batch, size_t(A), size_t(B), lda, ldb, stride_a, stride_b};
  if (size_t(plan.tiles) > kMost) return cudaErrorInvalidConfiguration;
  if (plan.reduce_blocks > 2147483647) return cudaErrorInvalidConfiguration;  // a grid is not wider
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
gemm_mma_i8_ccr_sk2_batched_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, index_t batch, scalar_t alpha, const input_t* A, index_t lda,
    index_t stride_a, const input_t* B, index_t ldb, index_t stride_b, scalar_t beta,
    const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd, index_t stride_d,
    void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  size_t needed;  // bytes of the workspace
  auto ask = gemm_mma_i8_ccr_sk2_batched_workspace;
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

  int device;
  error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const Plan plan{M, N, K, batch, size_t(A), size_t(B), lda, ldb, stride_a, stride_b};
  bool fits = workspace != nullptr && workspace_bytes >= needed && size_t(workspace) % 256 == 0;
  if (needed > 0 && !fits) return cudaErrorInvalidValue;
  const auto space = static_cast<unsigned char*>(workspace);
  const auto a_packed = static_cast<input_t*>(workspace);
  const auto b_packed = a_packed + plan.b_offset;
  const input_t* const a = plan.packs_a ? a_packed : A;
  const input_t* const b = plan.packs_b ? b_packed : B;
  const auto partials = reinterpret_cast<scalar_t*>(space + plan.partials_offset);

  const auto kernel = gemm_mma_i8_ccr_sk2_batched;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;

  if (plan.packs_a || plan.packs_b) {
    error = launch(  // a kernel that packs both
        gemm_mma_i8_ccr_sk2_batched_pack,
        dim3(unsigned(plan.pack_blocks), 1, unsigned(2 * plan.pack_z)), 256, 0, stream,
        plan.a_lines, plan.a_length, plan.a_count, A, lda, stride_a, a_packed, plan.a_ld,
        plan.b_lines, plan.b_length, plan.b_count, B, ldb, stride_b, b_packed, plan.b_ld);
    if (error != cudaSuccess) return error;
  }
  const dim3 grid(unsigned(plan.tiles), unsigned(plan.slices));
  error = launch(
      kernel, grid, kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, a, plan.a_ld, plan.a_stride, b, plan.b_ld, plan.b_stride, plan.slices,
      partials);
  if (error != cudaSuccess) return error;

  return launch(  // a kernel that adds up the partial sums
      gemm_mma_i8_ccr_sk2_batched_reduce, dim3(unsigned(plan.reduce_blocks)), 256, 0, stream,
      plan.M, plan.N, batch, alpha, beta, C, ldc, stride_c, D, ldd, stride_d, plan.slices,
      partials);
}

#endif  // __CUDACC_RTC__
}  // namespace gemm_mma_i8_ccr_sk2_batched_ns
