// gemm_mma_tma_f16_crr_tb64x64x64_w32x32_grouped_k: D = alpha * A * B + beta * C
//
// Tensor cores, fed by Hopper's Tensor Memory Accelerator (TMA). The kernel is persistent: as many blocks
// as the GPU has multiprocessors stay until all work tiles of D are done. One thread of a block is the
// producer: it asks the TMA for the tiles of A and B of each step along K, up to 3 steps ahead, also
// into the next work tile. 4 warps are consumers: each computes 32 x 32 of the work tile with mma.sync.
// They meet at two mbarriers for each stage: `full` (the data have arrived) and `empty` (all consumers
// have read them). No barrier stops the whole block.
//
//   A  M x K, column-major, __half
//   B  K x N, row-major, __half
//   C  M x N, row-major, __half; not read when beta is 0
//   D  M x N, row-major, __half; must not overlap A or B; may be C, where ldc is ldd
//
// Groups along K: each has a product of its own, whose matrices D are stride_d elements apart, and C
// stride_c; 0: all have the same C; where D is C, both have one stride. Group g has columns
// offsets[g - 1] to offsets[g] - 1 of A and these rows of B, and the first one begins with 0. K is as
// many as there may be at most. An end below one before counts as that one, and one above K as K: where
// a group is empty, its sums are 0. All offsets are on the device.
//
// M, N, K from 0 to 2^31 - 4096, any leading dimension, in elements. Accumulators are float,
// alpha and beta are float. Needs a GPU of compute capability 9.0 and C++17.
//
// Made by gemmgen 0.2.0:  gen emit --variant mma_tma --dtype f16 --layout crr --arch sm_90a --threadblock 64x64x64 --warp 32x32 --instruction m16n8k16 --stages 3 --sliced-k 1 --split-k 1 --epilogue linear --swizzle 12 --grouped-k
// Compile:  nvcc -std=c++17 -arch=sm_90a -c gemm_mma_tma_f16_crr_tb64x64x64_w32x32_grouped_k.cu, or by NVRTC as it is
// gen-spec: {"variant": "mma_tma", "dtype": "f16", "layout": "crr", "arch": "sm_90a", "threadblock": "64x64x64", "warp": "32x32", "instruction": "m16n8k16", "stages": 3, "sliced_k": 1, "split_k": 1, "epilogue": "linear", "swizzle": 12, "grouped_k": true}
// SPDX-License-Identifier: 0BSD

#include <cuda_fp16.h>
#ifndef __CUDACC_RTC__
#include <cuda.h>  // CUtensorMap; only the type, libcuda need not be linked

#include <atomic>
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
#error "for -arch=sm_90a alone: other GPUs lack the kernel's instructions"
#elif defined(__clang__) && defined(__CUDA__) && __clang_major__ < 20
#error "older compilers ignore __grid_constant__ without a word"
#endif

namespace gemm_mma_tma_f16_crr_tb64x64x64_w32x32_grouped_k_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = __half;
using output_t = __half;
using scalar_t = float;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;
constexpr int kTileM = 64, kTileN = 64, kTileK = 64;  // of a block: work tile, step along K
constexpr int kThreads = 160;  // 4 consumer warps, 1 producer warp

// Of groups along K, boxes end at any line. The lines of a map's second dimension end at kAbove, its third
// begins at any of the matrix's, and its last goes back by kAbove of them: addresses wrap around at 2^64.
constexpr int kAbove = 1 << 25;  // lines: 2^64 bytes are as many times 2^39; pitches are below 2^40

constexpr int kWarpM = 32, kWarpN = 32;  // what each warp computes of the work tile
constexpr int kStages = 3;  // tiles of A and B in shared memory
constexpr int kGroup = 12;  // work tiles along M that are computed close in time: see tile_at
constexpr int kWarpsM = kTileM / kWarpM;  // 64 / 32 = 2
constexpr int kWarps = kWarpsM * (kTileN / kWarpN);  // 2 * (64 / 32) = 4
constexpr int kFragmentsM = kWarpM / 16, kFragmentsN = kWarpN / 16;  // 2, 2
constexpr int kKBlocks = 4;  // K blocks (32 bytes along K) of a step: 64 / 16
static_assert(kKBlocks >= 2, "one K block is loaded while another is multiplied");

constexpr int kPanelA = kTileK * 128;  // a panel, (kTileK, 64): 64 lines of 64 elements along M
constexpr int kBytesA = kTileM / 64 * kPanelA;  // (kTileM / 64, kTileK, 64): 1 panel
constexpr int kPanelB = kTileK * 128;  // a panel, (kTileK, 64): 64 lines of 64 elements along N
constexpr int kBytesB = kTileN / 64 * kPanelB;  // (kTileN / 64, kTileK, 64): 1 panel
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
__device__ inline void ldmatrix_trans(uint32_t (&fragment)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"(address));
}
__device__ inline void stmatrix(uint32_t address, const uint32_t (&fragment)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(fragment[0]), "r"(fragment[1]), "r"(fragment[2]), "r"(fragment[3])
               : "memory");
}
// Starts to copy 16 bytes; those behind the first `bytes` become zeros.
__device__ inline void cp_async(uint32_t shared, const void* global, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(bytes)
               : "memory");
}
struct alignas(64) tensor_map_t {  // a CUtensorMap: what a matrix looks like, for the TMA
  unsigned char bytes[128];
};
// Whether this lane is the one that has the TMA copy. After a mere comparison, the compiler would go through
// all lanes, one by one, around each copy: it knows of an election that it has one.
__device__ inline bool is_elected() {
  uint32_t elected;
  asm volatile("{\n.reg .pred it;\nelect.sync _|it, 0xffffffff;\nselp.b32 %0, 1, 0, it;\n}"
               : "=r"(elected));
  return elected;
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
      "{\n.reg .pred over;\nmbarrier.test_wait.parity.shared.b64 over, [%1], %2;\n"
      "selp.b32 %0, 1, 0, over;\n}"
      : "=r"(over)
      : "r"(barrier), "r"(parity)
      : "memory");
  return over;
}
// Until it is over. The thread may sleep.
__device__ inline void barrier_wait(uint32_t barrier, int parity) {
  asm volatile(
      "{\n.reg .pred over;\nagain: mbarrier.try_wait.parity.shared.b64 over, [%0], %1;\n"
      "@!over bra again;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// Starts to copy a box, which begins at `inner` along the contiguous dimension and at `outer` lines behind
// kAbove before line `end`, to shared memory. The barrier counts its bytes when they arrive.
__device__ inline void copy_box(
    uint32_t shared, const tensor_map_t& map, int inner, int outer, int end, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(shared),
      "l"(&map), "r"(inner), "r"(outer), "r"(end), "r"(kAbove), "r"(barrier)
      : "memory");
}
// Starts to store a box, clipped to the matrix. Its bytes are read until a wait_group is over.
__device__ inline void store_box(
    const tensor_map_t& map, int inner, int outer, int matrix, uint32_t shared) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&map),
      "r"(inner), "r"(outer), "r"(matrix), "r"(shared)
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
// other, which ldmatrix reads together, would be in the same banks. The TMA stores in this order, too.
__device__ constexpr unsigned swizzle_64b(unsigned line, unsigned chunk) {
  return line * 64 + (chunk ^ line / 2 % 4) * 16;
}
__device__ constexpr unsigned swizzle_128b(unsigned line, unsigned chunk) {
  return line * 128 + (chunk ^ line % 8) * 16;
}

// A warp's part of the work tile, with fragments of two K blocks: one is loaded while the other is
// multiplied.
struct WarpTile {
  float acc[kFragmentsM][2 * kFragmentsN][4] = {};  // accumulators of (2, 4) instructions
  uint32_t a[2][kFragmentsM][4], b[2][kFragmentsN][4];  // fragments
  uint32_t a_at[2], b_at[2];  // where they come from: made before the step that loads

  // Lets loads read the stage at this address in shared memory.
  __device__ void read_from(uint32_t stage, int warp, int lane) {
    const int row = warp % kWarpsM * kWarpM + lane / 8 % 2 * 8;
    for (int i = 0; i < 2; ++i) {
      const int at = row + 16 * i, k = lane / 16 * 8 + lane % 8;
      a_at[i] = stage + at / 64 * kPanelA + swizzle_128b(k, at % 64 / 8);
    }
    const int col = warp / kWarpsM * kWarpN + lane / 16 * 8;
    for (int i = 0; i < 2; ++i) {
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
    for (int i = 0; i < kFragmentsM; ++i) ldmatrix_trans(a[kb % 2][i], a_at[i] + kb * 16 * 128);
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

// A group, where it begins and ends along K, and where a work tile of its D begins.
struct Place {
  int group, begin, end, row0, col0;
};

// The work tiles of groups along K: those of a group's D come behind all of the one before. A warp
// looks at where 32 groups end at a time, a lane at each, and never goes back.
struct Groups {
  static constexpr unsigned kAll = 0xffffffff;  // lanes

  const int* offsets;  // where each group ends
  int count, depth, tiles_m, tiles_n;  // groups; K of all; tiles of each D
  int lane;
  int first = -32;  // of the 32 groups
  int ahead = read(0);  // where the lane's group of the next 32 ends, read early
  int begin = 0, end = 0;  // of the lane's group, along K

  __device__ int read(int from) const {
    return lane < count - from ? offsets[from + lane] : 0;
  }

  // Looks at the next 32 groups. An end below one before counts as that one, and one beyond K as K:
  // whatever the offsets are, nothing else is read.
  __device__ void look() {
    const int before = __shfl_sync(kAll, end, 31);
    end = min(ahead, depth);
    first += 32;
    ahead = read(first + 32);
#pragma unroll
    for (int apart = 1; apart < 32; apart *= 2) end = max(end, __shfl_up_sync(kAll, end, apart));
    end = max(end, before);
    begin = __shfl_up_sync(kAll, end, 1);
    if (lane == 0) begin = before;
  }

  // Finds tile t, which is none before the last one that was asked for. Returns whether there is one.
  __device__ bool find(int t, Place& its) {
    const uint32_t tiles = tiles_m * tiles_n;
    its.group = uint32_t(t) / tiles;
    if (its.group >= count) return false;
    while (its.group - first >= 32) look();
    its.begin = __shfl_sync(kAll, begin, its.group - first);
    its.end = __shfl_sync(kAll, end, its.group - first);
    tile_at(uint32_t(t) % tiles, tiles_m, tiles_n, its.row0, its.col0);
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
  int product;  // whose C and D these are
  bool aligned;  // rows of D, in all products
};

// Whether all rows of C or D start at a multiple of 16 bytes.
__device__ inline bool is_aligned(const output_t* matrix, index_t ld) {
  return reinterpret_cast<size_t>(matrix) % 16 == 0 && ld * sizeof(output_t) % 16 == 0;
}

// Rows of D of a warp, on their way from registers, where lanes hold pairs far apart, to the TMA,
// which stores them while the warp goes on.
struct Staging {
  static constexpr int kRows = 32;
  alignas(16) unsigned char bytes[kRows * 64];  // (32, 64)

  __device__ output_t& at(int row, int col) {
    const unsigned byte = col * sizeof(output_t);
    return reinterpret_cast<output_t&>(bytes[swizzle_64b(row, byte / 16) + byte % 16]);
  }
  // Where a lane points ldmatrix and stmatrix to, for 16 x 16 elements.
  __device__ uint32_t chunk(int row, int col, unsigned lane) {
    return shared_address(&at(row + lane % 16, col + lane / 16 * 8));
  }
};

constexpr int kElements = 16 / sizeof(output_t), kPerRow = kWarpN / kElements;  // 16 bytes of a row
// Reads rows of C, from (row0, col0) on, into `staging`; what C does not have becomes zeros.
__device__ inline void read_rows(
    Staging& staging, const Output& out, int row0, int col0, int lane) {
  const bool aligned = is_aligned(out.C, out.ldc);
#pragma unroll 1
  for (unsigned at = lane; at < Staging::kRows * kPerRow; at += 32) {
    const int row = at / kPerRow, col = at % kPerRow * kElements;
    const int left = row0 + row < out.rows ? out.cols - col0 - col : 0;
    const int count = left < 0 ? 0 : left < kElements ? left : kElements;
    const output_t* const c = out.C + (row0 + row) * out.ldc + col0 + col;
    output_t* const to = &staging.at(row, col);
    if (aligned) {
      cp_async(shared_address(to), c, count * int(sizeof(output_t)));
    } else {
#pragma unroll
      for (int e = 0; e < kElements; ++e) to[e] = e < count ? c[e] : output_t(0);
    }
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
}

// Makes 16 rows of D of the accumulators of fragment i and, if C is read, of the rows of C in `staging`
// from `row` on, whose place they take.
__device__ inline void finish_rows(
    Staging& staging, int row, const WarpTile& tile, int i, const Output& out, bool reads_c,
    int lane) {
#pragma unroll
  for (int j = 0; j < kFragmentsN; ++j) {
    __half2 d[4]{};  // of 16 x 16: rows g, g + 8 of the left half, then of the right one
    auto& registers = reinterpret_cast<uint32_t (&)[4]>(d);
    const uint32_t at = staging.chunk(row, 16 * j, lane);
    if (reads_c) ldmatrix(registers, at);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const float2 acc = tile.pair(i, q % 2, 2 * j + q / 2);
      scalar_t x = out.alpha * acc.x, y = out.alpha * acc.y;
      if (reads_c) {
        x += out.beta * scalar_t(d[q].x);
        y += out.beta * scalar_t(d[q].y);
      }
      d[q] = {output_t(x), output_t(y)};
    }
    stmatrix(at, registers);
  }
}

// Writes the rows in `staging`, whose first element is at (row0, col0) of D.
__device__ inline void write_rows(
    Staging& staging, const Output& out, int row0, int col0, int lane) {
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
    WarpTile& tile, const Output& out, const tensor_map_t& map, Staging& staging, int row0,
    int col0, int lane) {
  // The TMA writes 16 bytes at a time, beyond the end of a row that is no multiple of them.
  const bool whole = out.cols % kElements == 0 || col0 + kWarpN <= out.cols;
  const bool by_tma = whole && out.aligned;
  // What was in `staging` has been read.
  if (lane == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  __syncwarp();
  asm volatile("" : "+r"(lane));  // keeps addresses from being computed before, and spilled
  if (out.beta != 0) {
    read_rows(staging, out, row0, col0, lane);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kFragmentsM; ++i) finish_rows(staging, 16 * i, tile, i, out, true, lane);
  } else {
#pragma unroll
    for (int i = 0; i < kFragmentsM; ++i) finish_rows(staging, 16 * i, tile, i, out, false, lane);
  }
  if (by_tma) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncwarp();
  if (!by_tma) {
    write_rows(staging, out, row0, col0, lane);
  } else if (lane == 0) {
    store_box(map, col0, row0, out.product, shared_address(staging.bytes));
  }
  if (lane == 0) asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// ------------------------------------------------------------------------ packing
constexpr int kChunk = 8;  // elements in 16 bytes
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
    gemm_mma_tma_f16_crr_tb64x64x64_w32x32_grouped_k_pack(  // copies of both operands
        index_t a_lines, index_t a_length, const input_t* A, index_t lda, input_t* a_packed,
        index_t a_packed_ld, index_t b_lines, index_t b_length, const input_t* B, index_t ldb,
        input_t* b_packed, index_t b_packed_ld) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");  // until the kernels before have ended
  const bool is_a = blockIdx.z == 0;
  pack_lines(
      is_a ? a_lines : b_lines, is_a ? a_length : b_length, is_a ? A : B, is_a ? lda : ldb,
      is_a ? a_packed : b_packed, is_a ? a_packed_ld : b_packed_ld);
}

// ------------------------------------------------------------------------ the kernel
constexpr int kStagingBytes = kWarps * sizeof(Staging);  // 8192
// Stages with two barriers each, rows of D, and room to begin at a multiple of 1024.
constexpr int kSharedBytes = kStages * (kStageBytes + 16) + kStagingBytes + 1024;  // 58416

extern "C" __global__ void __launch_bounds__(kThreads, 1)  // one block stays on each multiprocessor
    gemm_mma_tma_f16_crr_tb64x64x64_w32x32_grouped_k(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, index_t groups, scalar_t alpha,
        const __grid_constant__ tensor_map_t a_map, const __grid_constant__ tensor_map_t b_map,
        const __grid_constant__ tensor_map_t d_map, const int* offsets, scalar_t beta,
        const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd,
        index_t stride_d) {
  extern __shared__ __align__(128) unsigned char shared[];
  // (kStages, kStageBytes) from a multiple of 1024 on, where swizzles begin; staging; barriers.
  const uint32_t begin = shared_address(shared), stages = (begin + 1023) & ~1023u;
  unsigned char* const stage0 = shared + (stages - begin);
  const auto staging = reinterpret_cast<Staging*>(stage0 + kStages * kStageBytes);
  const uint32_t barriers = stages + kStages * kStageBytes + kStagingBytes;
  const auto full = [barriers](int stage) { return barriers + 16 * stage; };
  const auto empty = [barriers](int stage) { return barriers + 16 * stage + 8; };

  // Barriers are made while consumers work out what there is to do.
  if (threadIdx.x == 32 * kWarps) {
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_init(full(stage), 1);  // the producer
      barrier_init(empty(stage), kWarps);  // a thread of each consumer warp
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");  // the TMA sees them, too
    asm volatile("prefetch.tensormap [%0];" ::"l"(&a_map) : "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(&b_map) : "memory");
  }

  const int rows = int(M), cols = int(N);
  const int tiles_m = (rows + kTileM - 1) / kTileM, tiles_n = (cols + kTileN - 1) / kTileN;

  __syncthreads();
  asm volatile("griddepcontrol.wait;" ::: "memory");  // until the kernels before have ended

  Groups all{offsets, int(groups), int(K), tiles_m, tiles_n, int(threadIdx.x % 32)};
  Place place;
  int stage = 0, phase = 0;
  const auto advance = [&] {
    stage = stage + 1 < kStages ? stage + 1 : 0;
    if (stage == 0) phase ^= 1;
  };

  // After a shuffle, the compiler knows that all lanes have the same number.
  const int own_warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  if (own_warp >= kWarps) {  // producers
    for (int w = blockIdx.x; all.find(w, place); w += gridDim.x) {
      if (!is_elected()) continue;  // the warp finds tiles, and one thread has them copied
      const int row0 = place.row0, col0 = place.col0;
      const int steps = (place.end - place.begin + kTileK - 1) / kTileK;
#pragma unroll 1
      for (int n = 0; n < steps; ++n) {
        barrier_wait(empty(stage), phase ^ 1);  // true at once the first time round
        barrier_expect(full(stage), kStageBytes);
        // A box ends where the step does, at line kAbove: the next group's are outside, and so zeros.
        const int k = place.begin + n * kTileK, left = place.end - k;
        const int lines = left < kTileK ? left : kTileK, above = kAbove - lines, end = k + lines;
        const uint32_t a = stages + stage * kStageBytes, b = a + kBytesA;
#pragma unroll
        for (int panel = 0; panel < kTileM / 64; ++panel) {
          copy_box(a + panel * kPanelA, a_map, row0 + panel * 64, above, end, full(stage));
        }
#pragma unroll
        for (int panel = 0; panel < kTileN / 64; ++panel) {
          copy_box(b + panel * kPanelB, b_map, col0 + panel * 64, above, end, full(stage));
        }
        advance();
      }
    }
    return;
  }

  const bool aligned = is_aligned(D, ldd) && stride_d * sizeof(output_t) % 16 == 0;
  for (int w = blockIdx.x; all.find(w, place); w += gridDim.x) {
    const int steps = (place.end - place.begin + kTileK - 1) / kTileK;
    WarpTile tile;
    if (steps > 0) {
      barrier_wait(full(stage), phase);
      int thread;  // read anew: kept while accumulators need all registers, it is spilled
      asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
      tile.read_from(stages + stage * kStageBytes, thread / 32, thread % 32);
      tile.load(0);
    }
#pragma unroll 1
    for (int n = 0; n < steps; ++n) {
      // While K block kb is multiplied, the next one moves from shared memory to registers.
#pragma unroll
      for (int kb = 0; kb < kKBlocks - 2; ++kb) {
        tile.load(kb + 1);
        tile.multiply(kb);
      }
      const int finished = stage;
      advance();
      const bool more = n + 1 < steps;
      tile.load(kKBlocks - 1);
      const bool ready = barrier_test(full(stage), phase);  // asked this early, it costs no time
      tile.multiply(kKBlocks - 2);
      // After the last step, load again what is there: that costs less than a branch.
      tile.move(more ? (stage - finished) * kStageBytes : 0);
      if (more && !ready) barrier_wait(full(stage), phase);
      tile.load(0);
      tile.multiply(kKBlocks - 1);
      __syncwarp();  // all lanes have read all of the stage
      if (threadIdx.x % 32 == 0) barrier_arrive(empty(finished));
    }
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    const int warp = thread / 32, lane = thread % 32;
    const int product = place.group, row0 = place.row0, col0 = place.col0;
    const output_t* const c = C + product * stride_c;
    output_t* const d = D + product * stride_d;
    const Output out{rows, cols, alpha, beta, c, d, ldc, ldd, product, aligned};
    const int row = row0 + warp % kWarpsM * kWarpM;
    const int col = col0 + warp / kWarpsM * kWarpN;
    store(tile, out, d_map, staging[warp], row, col, lane);
  }
  // Shared memory lasts as long as the block.
  if (threadIdx.x % 32 == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
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

// Queues a kernel. Its blocks start while those of the last one end: it waits by itself.
template <class... Parameters, class... Arguments>
inline cudaError_t launch(
    void (*kernel)(Parameters...), dim3 grid, dim3 block, int shared_bytes, cudaStream_t stream,
    Arguments... arguments) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  const cudaLaunchConfig_t config{grid, block, size_t(shared_bytes), stream, &early, 1};
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

// A launch, worked out from top to bottom.
struct Plan {
  index_t M, N, K, groups;
  size_t A, B;  // addresses
  index_t lda, ldb, multiprocessors;

  bool packs_a = K > 0 && (A % 16 != 0 || lda % 8 != 0);  // its lines are not aligned
  index_t a_lines = packs_a ? K : 0, a_length = packs_a ? M : 0;  // to pack
  index_t a_ld = packs_a ? (a_length + 63) / 64 * 64 : lda;  // as the kernel reads it
  bool packs_b = K > 0 && (B % 16 != 0 || ldb % 8 != 0);  // its lines are not aligned
  index_t b_lines = packs_b ? K : 0, b_length = packs_b ? N : 0;  // to pack
  index_t b_ld = packs_b ? (b_length + 63) / 64 * 64 : ldb;  // as the kernel reads it
  index_t b_offset = (a_lines * a_ld * 2 + 255) / 256 * 256;  // bytes
  index_t tiles = (M + kTileM - 1) / kTileM * ((N + kTileN - 1) / kTileN) * groups;  // of D
  index_t bytes = b_offset + (b_lines * b_ld * 2 + 255) / 256 * 256;  // of the workspace
  index_t blocks = tiles < multiprocessors ? tiles : multiprocessors;
  index_t a_lanes = a_length > 64 ? 32 : 8;  // for a line
  index_t b_lanes = b_length > 64 ? 32 : 8;  // for a line
  index_t a_pieces = (a_lines * a_lanes + 511) / 512 * ((a_length + 255) / 256);  // for blocks
  index_t b_pieces = (b_lines * b_lanes + 511) / 512 * ((b_length + 255) / 256);  // for blocks
  index_t pieces = a_pieces > b_pieces ? a_pieces : b_pieces;
  index_t pack_blocks = pieces < 65536 ? pieces : 65536;
};

constexpr size_t kSide = 2147479552;  // M, N, K: 2^31 - 4096, so that where a tile ends is an int
constexpr size_t kMost = 2147418112;  // work tiles: the next one of a block is an int, too
constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows

// Describes matrices of groups, or lines of those that they share, to the TMA.
// `span`: bytes from a line of a box to the next one in shared memory; the swizzle has as many.
// The driver's function is found by name: libcuda is not linked.
inline cudaError_t make_map(
    tensor_map_t& map, CUtensorMapDataType type, int size, const void* matrix, index_t length,
    index_t lines, index_t ld, index_t box_length, index_t box_lines, int span, index_t count,
    index_t apart, index_t above = 0) {
  map = {};
  if (length == 0 || lines == 0) return cudaSuccess;  // it will not be read
  static_assert(sizeof(CUtensorMap) == sizeof(tensor_map_t), "it is the kernel's parameter");
  static std::atomic<decltype(&cuTensorMapEncodeTiled)> known{nullptr};
  auto encode = known.load();
  if (encode == nullptr) {
    void* function;
    cudaDriverEntryPointQueryResult result;
    const cudaError_t error = cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result);
    if (error != cudaSuccess) return error;
    if (result != cudaDriverEntryPointSuccess) return cudaErrorNotSupported;
    known = encode = reinterpret_cast<decltype(encode)>(function);
  }
  const cuuint64_t sizes[] = {
      cuuint64_t(length), cuuint64_t(lines), cuuint64_t(count), cuuint64_t(above + 1)};
  const cuuint64_t pitches[] = {
      cuuint64_t(ld * size), cuuint64_t(apart * size),
      (cuuint64_t(1) << 39) - cuuint64_t(ld * size)};
  const cuuint32_t box[] = {cuuint32_t(box_length), cuuint32_t(box_lines), 1, 1};
  const cuuint32_t every[] = {1, 1, 1, 1};
  const CUtensorMapSwizzle swizzle = span == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : span == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                  : CU_TENSOR_MAP_SWIZZLE_32B;
  // L2 reads what is asked for, and no more: memory is 3 to 6 % slower with pieces of 256 bytes.
  const CUresult result = encode(
      reinterpret_cast<CUtensorMap*>(&map), type, above > 0 ? 4 : 3, const_cast<void*>(matrix),
      sizes, pitches, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
      CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// Sets *bytes to the size of the workspace that the launcher needs on the current device, or to 0 where
// it returns the launcher's error 1 or 9.
// It holds copies of operands whose pointer or leading dimension is no multiple of 16 bytes.
extern "C" cudaError_t  // cudaSuccess once *bytes is set
gemm_mma_tma_f16_crr_tb64x64x64_w32x32_grouped_k_workspace(  // for a launch with these arguments
    index_t M, index_t N, index_t K, index_t groups, const input_t* A, index_t lda,
    const input_t* B, index_t ldb, size_t* bytes) {
  if (bytes == nullptr) return cudaErrorInvalidValue;
  *bytes = 0;
  if (size_t(M) > kSide || size_t(N) > kSide || size_t(K) > kSide) return cudaErrorInvalidValue;
  if (size_t(groups) > kSide) return cudaErrorInvalidValue;
  if (M == 0 || N == 0 || groups == 0) return cudaSuccess;  // D has no elements
  if (M > kLargest / N || groups > kLargest / (M * N)) return cudaErrorInvalidValue;
  if (K > 0 && (A == nullptr || lda < M || lda > kLargest / K)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return cudaErrorInvalidValue;
  const Plan plan{M, N, K, groups, size_t(A), size_t(B), lda, ldb, 1};
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
//        a negative stride, products of D that overlap, null offsets
//     9  cudaErrorInvalidConfiguration: 2^31 blocks or more, or more than 2^31 - 2^16 work tiles
//   209  cudaErrorNoKernelImageForDevice: a GPU of another compute capability than 9.0
//   400  cudaErrorInvalidResourceHandle: a stream of another device
//   801  cudaErrorNotSupported: the driver does not know the TMA: it is older than CUDA 12
extern "C" cudaError_t  // cudaSuccess once the kernels are on their way
gemm_mma_tma_f16_crr_tb64x64x64_w32x32_grouped_k_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, index_t groups, scalar_t alpha, const input_t* A, index_t lda,
    const input_t* B, index_t ldb, const int* offsets, scalar_t beta, const output_t* C,
    index_t ldc, index_t stride_c, output_t* D, index_t ldd, index_t stride_d, void* workspace,
    size_t workspace_bytes, cudaStream_t stream) {
  size_t needed;  // bytes of the workspace
  auto ask = gemm_mma_tma_f16_crr_tb64x64x64_w32x32_grouped_k_workspace;
  cudaError_t error = ask(M, N, K, groups, A, lda, B, ldb, &needed);
  if (error != cudaSuccess || M == 0 || N == 0 || groups == 0) return error;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return cudaErrorInvalidValue;
  if (beta != 0 && (stride_c < 0 || stride_c > kLargest / groups)) return cudaErrorInvalidValue;
  if (stride_d < 0 || stride_d > kLargest / groups) return cudaErrorInvalidValue;
  // Products of D do not overlap.
  const bool follow = stride_d >= (M - 1) * ldd + N;  // one behind the other
  const bool beside = stride_d >= N && (groups - 1) * stride_d + N <= ldd;  // in the same lines
  if (groups > 1 && !follow && !beside) return cudaErrorInvalidValue;
  if (offsets == nullptr) return cudaErrorInvalidValue;

  int device, multiprocessors;
  error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  const Plan plan{M, N, K, groups, size_t(A), size_t(B), lda, ldb, multiprocessors};
  bool fits = workspace != nullptr && workspace_bytes >= needed && size_t(workspace) % 256 == 0;
  if (needed > 0 && !fits) return cudaErrorInvalidValue;
  const auto a_packed = static_cast<input_t*>(workspace);
  const auto b_packed = a_packed + plan.b_offset / 2;
  const input_t* const a = plan.packs_a ? a_packed : A;
  const input_t* const b = plan.packs_b ? b_packed : B;

  constexpr auto kInput = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  tensor_map_t a_map, b_map, d_map{};
  const index_t lines = K > 0 ? kAbove : 0;
  error = make_map(
      a_map, kInput, 2, a, plan.M, lines, plan.a_ld, 64, kTileK, 128, K + 1, plan.a_ld, kAbove);
  if (error == cudaSuccess) {
    error = make_map(
        b_map, kInput, 2, b, plan.N, lines, plan.b_ld, 64, kTileK, 128, K + 1, plan.b_ld, kAbove);
  }
  const bool whole = size_t(D) % 16 == 0 && ldd % 8 == 0 && stride_d % 8 == 0;
  if (error == cudaSuccess && whole) {
    error = make_map(
        d_map, kInput, 2, D, plan.N, plan.M, ldd, 32, 32, 64, groups, groups > 1 ? stride_d : ldd);
  }
  if (error != cudaSuccess) return error;

  const auto kernel = gemm_mma_tma_f16_crr_tb64x64x64_w32x32_grouped_k;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;

  if (plan.packs_a || plan.packs_b) {
    error = launch(  // a kernel that packs both
        gemm_mma_tma_f16_crr_tb64x64x64_w32x32_grouped_k_pack,
        dim3(unsigned(plan.pack_blocks), 1, 2), 256, 0, stream, plan.a_lines, plan.a_length, A, lda,
        a_packed, plan.a_ld, plan.b_lines, plan.b_length, B, ldb, b_packed, plan.b_ld);
    if (error != cudaSuccess) return error;
  }
  return launch(
      kernel, dim3(unsigned(plan.blocks)), kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, groups, alpha, a_map, b_map, d_map, offsets, beta, C, ldc, stride_c, D,
      ldd, stride_d);
}

#endif  // __CUDACC_RTC__
}  // namespace gemm_mma_tma_f16_crr_tb64x64x64_w32x32_grouped_k_ns
