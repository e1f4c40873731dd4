// gemm_wgmma_bf16_rrr_tb64x128x64_s7_c2x1x4_linear_bias_batched: D = alpha * A * B + beta * C + bias
//
// Tensor cores by wgmma, Hopper's own instruction, fed by its Tensor Memory Accelerator (TMA). The
// kernel is persistent: as many blocks as the GPU has multiprocessors stay until all work tiles are
// done. One thread of a block is the producer: it asks the TMA for tiles of A and B of each step
// along K, up to 7 steps ahead, also into the next work tile. A warpgroup, which is four warps, is
// the consumer: it computes 64 rows of the work tile. wgmma reads both operands in shared memory,
// and runs while the warps go on. They meet at two mbarriers for each stage: `full` (the data have
// arrived) and `empty` (all consumers have read them). No barrier stops the whole block.
// Four blocks share each work tile along K, and write to each other's shared memory; those of
// neighbouring work tiles share operands. All of these are a cluster.
// In this way, few tiles with a long K occupy four times as many multiprocessors.
//
//   A  M x K, row-major, __nv_bfloat16
//   B  K x N, row-major, __nv_bfloat16
//   C  M x N, row-major, __nv_bfloat16; not read when beta is 0
//   D  M x N, row-major, __nv_bfloat16; must not overlap A or B; may be C, where ldc is ldd
//   bias  N elements, __nv_bfloat16: one for each column of D
//
// A batch of such products: their matrices are stride_a, stride_b, stride_c and stride_d elements apart.
// Where a stride of A, B or C is 0, all products have the same matrix. Those of D do not overlap; where
// D is C, both have one stride.
//
// M, N, K from 0 to 2^31 - 4096, any leading dimension, in elements. Accumulators are float,
// alpha and beta are float. Needs a GPU of compute capability 9.0 and C++17.
//
// Made by gemmgen 0.2.0:  gen emit --variant wgmma --dtype bf16 --layout rrr --arch sm_90a --schedule cooperative --threadblock 64x128x64 --stages 7 --cluster 2x1x4 --promote 0 --stream-k 0 --burst 1 --split-k 1 --epilogue linear_bias --swizzle 16 --batched
// Compile:  nvcc -std=c++17 -arch=sm_90a -c gemm_wgmma_bf16_rrr_tb64x128x64_s7_c2x1x4_linear_bias_batched.cu, or by NVRTC as it is
// gen-spec: {"variant": "wgmma", "dtype": "bf16", "layout": "rrr", "arch": "sm_90a", "schedule": "cooperative", "threadblock": "64x128x64", "stages": 7, "cluster": "2x1x4", "promote": 0, "stream_k": 0, "burst": 1, "split_k": 1, "epilogue": "linear_bias", "swizzle": 16, "batched": true}
// SPDX-License-Identifier: 0BSD

#include <cuda_bf16.h>
#ifndef __CUDACC_RTC__
#include <cuda.h>  // CUtensorMap; only the type, libcuda need not be linked

#include <atomic>
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
#error "for -arch=sm_90a alone: other GPUs lack the kernel's instructions"
#elif defined(__clang__) && defined(__CUDA__) && __clang_major__ < 20
#error "older compilers ignore __grid_constant__ without a word"
#endif

namespace gemm_wgmma_bf16_rrr_tb64x128x64_s7_c2x1x4_linear_bias_batched_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = __nv_bfloat16;
using output_t = __nv_bfloat16;
using scalar_t = float;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
constexpr int kTileM = 64, kTileN = 128, kTileK = 64;  // of a block: work tile, step along K
constexpr int kThreads = 160;  // 4 consumer warps, 1 producer warp
constexpr int kClusterM = 2, kClusterN = 1;  // blocks that share operands
constexpr int kPlaces = kClusterM * kClusterN, kSlices = 4;  // work tiles of a cluster; blocks of each
constexpr int kClusterBlocks = kPlaces * kSlices;  // 8
constexpr int kSpanM = kClusterM * kTileM, kSpanN = kClusterN * kTileN;  // 128, 128

constexpr int kWarpM = 16, kWarpN = 128;  // what each warp computes of the work tile
constexpr int kStages = 7;  // tiles of A and B in shared memory
constexpr int kGroup = 16;  // work tiles along M that are computed close in time: see tile_at
constexpr int kWarps = kTileM / kWarpM;  // 64 / 16 = 4
constexpr int kFragmentsM = kWarpM / 16, kFragmentsN = kWarpN / 16;  // 1, 8
constexpr int kKBlocks = 4;  // K blocks (32 bytes along K) of a step: 64 / 16

constexpr int kBytesA = kTileM * 128;  // (kTileM, kTileK): 64 lines of 128 bytes along K
constexpr int kPanelB = kTileK * 128;  // a panel, (kTileK, 64): 64 lines of 64 elements along N
constexpr int kBytesB = kTileN / 64 * kPanelB;  // (kTileN / 64, kTileK, 64): 2 panels
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
// Arrives, and makes the barrier's phase last until so many bytes have been copied.
__device__ inline void barrier_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// Until the phase with this parity is over: phases count 0, 1, 0, 1, ... The thread may sleep.
__device__ inline void barrier_wait(uint32_t barrier, int parity) {
  asm volatile(
      "{\n.reg .pred over;\nagain: mbarrier.try_wait.parity.shared.b64 over, [%0], %1;\n"
      "@!over bra again;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// Of `most` lines, or chunks, those before the edge of a matrix, which is so many further on.
__device__ inline int inside(int edge, int most) {
  return edge < 0 ? 0 : edge < most ? edge : most;
}
// Starts to copy a box of one of several matrices, which begins at `inner` along the contiguous dimension and at `outer` along
// the other one, to shared memory. The barrier counts its bytes when they arrive.
__device__ inline void copy_box(
    uint32_t shared, const tensor_map_t& map, int inner, int outer, int matrix, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared),
      "l"(&map), "r"(inner), "r"(outer), "r"(matrix), "r"(barrier)
      : "memory");
}
__device__ inline int rank_in_cluster() {  // of the block
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// All threads of the cluster meet, but for those that have ended: they arrive, and wait for each other later.
__device__ inline void arrive_at_cluster() {
  asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
}
__device__ inline void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
// Arrives at the same barrier of another block, or of this one. It tells that reads are over: a release
// of writes for the whole cluster would fence all memory, and take long.
__device__ inline void barrier_arrive(uint32_t barrier, int rank) {
  asm volatile(
      "{\n.reg .b32 its;\nmapa.shared::cluster.u32 its, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [its];\n}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
// Starts to copy a box to the same place in all blocks of the cluster whose bits are set. The same
// barrier of each counts its bytes.
__device__ inline void share_box(
    uint32_t shared, const tensor_map_t& map, int inner, int outer, int matrix, uint32_t barrier,
    int blocks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(shared),
      "l"(&map), "r"(inner), "r"(outer), "r"(matrix), "r"(barrier), "h"(short(blocks))
      : "memory");
}
// Brings a box to the L2 cache. Other kernels may still write to it: they write to L2, too.
__device__ inline void prefetch_box(const tensor_map_t& map, int inner, int outer, int matrix) {
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global [%0, {%1, %2, %3}];" ::"l"(&map),
               "r"(inner), "r"(outer), "r"(matrix)
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

// ------------------------------------------------------------------------ what a warpgroup does
// Where a matrix is in shared memory, for wgmma: its address, how long lines are, and how far apart
// panels of 64 elements, where lines do not run along K. The last bits name the swizzle, which
// exchanges 16 bytes by their address: a matrix may begin inside of a line. There is room for 18 bits of
// the address: higher ones are the block's rank in its cluster.
__device__ inline uint64_t matrix_at(uint32_t address, int line, int panel) {
  const uint64_t swizzle = 1;  // of 128 bytes
  const uint64_t begin = address % (1 << 18) >> 4, below = 8 * line >> 4, beside = panel >> 4;
  return begin | beside << 16 | below << 32 | swizzle << 62;
}

// acc += a * b: 64 rows of A by 128 columns of B, over 32 bytes along K. Of the 64 rows, warp w
// has rows 16w to 16w + 15. Lane 4g + t of it (g = 0..7, t = 0..3) holds, of each 8 columns,
// 2t and 2t + 1 of row g in acc[j][0..1], of row g + 8 in acc[j][2..3].
#define ACC(j) "+f"(acc[j][0]), "+f"(acc[j][1]), "+f"(acc[j][2]), "+f"(acc[j][3])
__device__ inline void wgmma(float (&acc)[16][4], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
      "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "
      "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, 1, 1, 1, 0, 1;"
      : ACC(0), ACC(1), ACC(2), ACC(3), ACC(4), ACC(5), ACC(6), ACC(7), ACC(8), ACC(9), ACC(10),
        ACC(11), ACC(12), ACC(13), ACC(14), ACC(15)
      : "l"(a), "l"(b));
}
#undef ACC

// A warp's part of the work tile: 16 rows of the 64 of its warpgroup.
struct WarpTile {
  float acc[kFragmentsM][2 * kFragmentsN][4] = {};

  // Starts to multiply the stage at this address in shared memory, as a group of wgmmas.
  __device__ void multiply(uint32_t stage, int group) {
    const uint32_t a = stage + group * 64 * 128, b = stage + kBytesA;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");  // after all other use of acc
#pragma unroll
    for (int kb = 0; kb < kKBlocks; ++kb) {
      const uint64_t b_block = matrix_at(b + kb * 16 * 128, 128, kPanelB);
      const uint64_t a_block = matrix_at(a + 32 * kb, 128, 0);
      wgmma(acc[0], a_block, b_block);
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  }
  // Two accumulators of the lane: row 8h + g, columns 8j + 2t and 8j + 2t + 1.
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
  const int block = rank_in_cluster();
  row0 = (first + t % group % height) * kSpanM + block % kClusterM * kTileM;
  col0 = t % group / height * kSpanN;
}

// ------------------------------------------------------------------------ D
struct Output {  // what D is made from, besides accumulators, and where it goes
  int rows, cols;
  scalar_t alpha, beta;
  const output_t* C;  // as in BLAS, not read where beta is 0: it may hold NaN or be null
  output_t* D;
  index_t ldc, ldd;
  const output_t* bias;  // one for each column
  int product;  // whose C and D these are
  bool aligned;  // rows of D, in all products
};

// Whether all rows of C or D start at a multiple of 16 bytes.
__device__ inline bool is_aligned(const output_t* matrix, index_t ld) {
  return reinterpret_cast<size_t>(matrix) % 16 == 0 && ld * sizeof(output_t) % 16 == 0;
}

constexpr int kPieceN = 32;  // columns of D that a warp stages at a time
// Rows of D of a warp, on their way from registers, where lanes hold pairs far apart, to the TMA,
// which stores them while the warp goes on. Columns take turns.
struct Staging {
  static constexpr int kRows = 16;
  alignas(16) unsigned char bytes[kRows * 64];  // (16, 64)

  // Chunks of 16 bytes are where the TMA reads them. Without the XOR, those below each other, which
  // lanes write together, would be in the same banks.
  __device__ output_t& at(unsigned row, unsigned col) {
    const unsigned byte = col * sizeof(output_t), chunk = byte / 16 ^ row / 2 % 4;
    return reinterpret_cast<output_t&>(bytes[row * 64 + chunk * 16 + byte % 16]);
  }
  // Where a lane points ldmatrix and stmatrix to, for 16 x 16 elements.
  __device__ uint32_t chunk(int row, int col, unsigned lane) {
    return shared_address(&at(row + lane % 16, col + lane / 16 * 8));
  }
};

constexpr int kElements = 16 / sizeof(output_t), kPerRow = kPieceN / kElements;  // of 16 bytes
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

// The bias of the columns in which a lane has accumulators, read once; col0 is the first one.
struct Bias {
  float2 of[2 * kPieceN / 16];

  __device__ Bias(const Output& out, int col0, int lane) {
#pragma unroll
    for (int j = 0; j < 2 * kPieceN / 16; ++j) {
      const int col = col0 + 8 * j + lane % 4 * 2;
      of[j].x = col < out.cols ? scalar_t(out.bias[col]) : 0;
      of[j].y = col + 1 < out.cols ? scalar_t(out.bias[col + 1]) : 0;
    }
  }
};

// Makes D of the accumulators of the columns from fragment `first` on and, if C is read, of the
// piece of C in `staging`, whose place it takes.
__device__ inline void finish_rows(
    Staging& staging, const WarpTile& tile, int first, const Output& out, bool reads_c,
    const Bias& bias, int lane) {
#pragma unroll
  for (int j = 0; j < kPieceN / 16; ++j) {
    __nv_bfloat162 d[4]{};  // of 16 x 16: rows g, g + 8 of the left half, then of the right one
    auto& registers = reinterpret_cast<uint32_t (&)[4]>(d);
    const uint32_t at = staging.chunk(0, 16 * j, lane);
    if (reads_c) ldmatrix(registers, at);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const float2 acc = tile.pair(0, q % 2, 2 * (first + j) + q / 2);
      scalar_t x = out.alpha * acc.x, y = out.alpha * acc.y;
      if (reads_c) {
        x += out.beta * scalar_t(d[q].x);
        y += out.beta * scalar_t(d[q].y);
      }
      x += bias.of[2 * j + q / 2].x;
      y += bias.of[2 * j + q / 2].y;
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
  for (int col = lane; col < kPieceN; col += 32) {  // a column of each lane, element by element
    if (col0 + col >= out.cols) continue;
    output_t* to = out.D + row0 * out.ldd + col0 + col;
#pragma unroll 8
    for (int row = 0; row < rows; ++row, to += out.ldd) *to = staging.at(row, col);
  }
}

// Writes 16 rows of D of a warp, whose first element is at (row0, col0), piece by piece: while
// the TMA stores one, the warp makes the next.
__device__ inline void store(
    const WarpTile& tile, const Output& out, const tensor_map_t& map, Staging& staging, int row0,
    int col0, int slice, int lane) {
#pragma unroll
  for (int p = 0; p < kWarpN / kPieceN; ++p, col0 += kPieceN) {
    if (p % kSlices != slice) continue;
    // The TMA writes 16 bytes at a time, beyond the end of a row that is no multiple of them.
    const bool by_tma = out.aligned && (out.cols % kElements == 0 || col0 + kPieceN <= out.cols);
    const Bias bias(out, col0, lane);
    // What was in `staging` has been read.
    if (lane == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    __syncwarp();
    if (out.beta != 0) {
      read_rows(staging, out, row0, col0, lane);
      __syncwarp();
      finish_rows(staging, tile, p * kPieceN / 16, out, true, bias, lane);
    } else {
      finish_rows(staging, tile, p * kPieceN / 16, out, false, bias, lane);
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
}

// ------------------------------------------------------------------------ the sum over a cluster
// Blocks share each work tile along K. In the end, each finishes some pieces of its columns: the
// others' warps write their accumulators of these to its shared memory. Their ranks in the cluster are
// kPlaces apart: `spot` is which of its tiles theirs is.

// A slice's steps along K: from `first` to before `last`. The first slices may have one more.
__device__ inline void steps_of(int slice, uint32_t slices, uint32_t steps, int& first, int& last) {
  const int each = steps / slices, more = steps % slices;
  first = slice * each + (slice < more ? slice : more);
  last = first + each + (slice < more ? 1 : 0);
}

// The same place in the shared memory of another block of the cluster.
__device__ inline uint32_t address_in(uint32_t shared, int rank) {
  uint32_t its;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(its) : "r"(shared), "r"(rank));
  return its;
}
// Writes to another block's shared memory. A barrier there counts the 16 bytes when they arrive.
__device__ inline void write_to(uint32_t shared, const float (&x)[4], uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 "
      "[%0], {%1, %2, %3, %4}, [%5];" ::"r"(shared),
      "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]), "r"(barrier)
      : "memory");
}

// As barrier_wait, for what other blocks have written.
__device__ inline void wait_for_others(uint32_t barrier, int parity) {
  asm volatile(
      "{\n.reg .pred over;\n"
      "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 over, [%0], %1;\n"
      "@!over bra again;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

constexpr int kPieces = kWarpN / kPieceN;  // of columns: slice p % kSlices has piece p
constexpr int kMostPieces = (kPieces + kSlices - 1) / kSlices;  // of a block
// One with nothing to wait for could be two phases of `room` ahead of another, which would miss both.
static_assert(kPieces >= kSlices, "each block waits for pieces of its own");
constexpr int kFours = kFragmentsM * kPieceN / 8;  // of a lane's accumulators of a piece
// What a warp gets: (kMostPieces, kSlices - 1, kFours, 32) x 16 bytes.
constexpr int kPartBytes = kMostPieces * (kSlices - 1) * kFours * 32 * 16;

// Adds up the accumulators of the same warps of all blocks, those of the block's own pieces. `parts` are
// what this warp gets; `arrived` are its bytes, and `room` there is when the others have read theirs.
__device__ inline void add_up(
    WarpTile& tile, float4* parts, uint32_t arrived, uint32_t room, int parity, int slice, int spot,
    int lane) {
  constexpr int kBytes = kFours * 32 * 16;  // of a piece, from one block
  const int own = (kPieces + kSlices - 1 - slice) / kSlices;
  if (lane == 0) barrier_expect(arrived, own * (kSlices - 1) * kBytes);
  barrier_wait(room, parity ^ 1);  // true at once the first time
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    const int owner = p % kSlices, place = slice < owner ? slice : slice - 1;
    if (owner == slice) continue;
    const int first = (p / kSlices * (kSlices - 1) + place) * kFours;
    const uint32_t to = address_in(shared_address(parts + first * 32 + lane), owner * kPlaces + spot);
    const uint32_t barrier = address_in(arrived, owner * kPlaces + spot);
#pragma unroll
    for (int n = 0; n < kFours; ++n) {
      const int i = n / (kPieceN / 8), j = p * (kPieceN / 8) + n % (kPieceN / 8);
      write_to(to + n * 512, tile.acc[i][j], barrier);
    }
  }
  wait_for_others(arrived, parity);
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    if (p % kSlices != slice) continue;
    const int first = p / kSlices * (kSlices - 1) * kFours;
#pragma unroll
    for (int n = 0; n < kFours; ++n) {
      auto& acc = tile.acc[n / (kPieceN / 8)][p * (kPieceN / 8) + n % (kPieceN / 8)];
      const float4 own{acc[0], acc[1], acc[2], acc[3]};
      float4 sum{};
#pragma unroll
      for (int rank = 0; rank < kSlices; ++rank) {  // one order for all pieces
        const int place = rank < slice ? rank : rank - 1;
        const float4 part = rank == slice ? own : parts[(first + place * kFours + n) * 32 + lane];
        sum = {sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w};
      }
      acc[0] = sum.x, acc[1] = sum.y, acc[2] = sum.z, acc[3] = sum.w;
    }
  }
  __syncwarp();  // all lanes have read
  if (lane < kSlices && lane != slice) barrier_arrive(room, lane * kPlaces + spot);
}

// ------------------------------------------------------------------------ packing
constexpr int kChunk = 8;  // elements in 16 bytes
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
    gemm_wgmma_bf16_rrr_tb64x128x64_s7_c2x1x4_linear_bias_batched_pack(  // copies of both operands
        index_t a_lines, index_t a_length, index_t a_count, const input_t* A, index_t lda,
        index_t stride_a, input_t* a_packed, index_t a_packed_ld, index_t b_lines, index_t b_length,
        index_t b_count, const input_t* B, index_t ldb, index_t stride_b, input_t* b_packed,
        index_t b_packed_ld) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");  // until the kernels before have ended
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
constexpr int kStagingBytes = kWarps * sizeof(Staging);  // 4096
// Stages with two barriers each, rows of D, parts, and room to begin at a multiple of 1024.
constexpr int kSharedBytes =
    kStages * (kStageBytes + 16) + kStagingBytes + kWarps * (kPartBytes + 16) + 1024;  // 201904

extern "C" __device__ void compile_for_sm_90a();  // is nowhere

extern "C" __global__ void __cluster_dims__(kClusterBlocks, 1, 1)
    __launch_bounds__(kThreads, 1)  // one block stays on each multiprocessor
    gemm_wgmma_bf16_rrr_tb64x128x64_s7_c2x1x4_linear_bias_batched(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, index_t batch, index_t a_count, index_t b_count,
        scalar_t alpha, const __grid_constant__ tensor_map_t a_map,
        const __grid_constant__ tensor_map_t b_map, const __grid_constant__ tensor_map_t a_edge,
        const __grid_constant__ tensor_map_t b_edge, const __grid_constant__ tensor_map_t d_map,
        scalar_t beta, const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd,
        index_t stride_d, bool early, const output_t* bias) {
#ifndef __CUDA_ARCH_FEAT_SM90_ALL  // nvcc -arch=sm_90a makes PTX for sm_90, too: not to be run
  compile_for_sm_90a();
#else
  extern __shared__ __align__(128) unsigned char shared[];
  // (kStages, kStageBytes) from a multiple of 1024 on, where swizzles begin; staging; parts; barriers.
  const uint32_t begin = shared_address(shared), stages = (begin + 1023) & ~1023u;
  unsigned char* const stage0 = shared + (stages - begin);
  const auto staging = reinterpret_cast<Staging*>(stage0 + kStages * kStageBytes);
  const auto parts = stage0 + kStages * kStageBytes + kStagingBytes;  // (kWarps, kPartBytes)
  const uint32_t barriers = shared_address(parts) + kWarps * kPartBytes;
  const auto full = [barriers](int stage) { return barriers + 16 * stage; };
  const auto empty = [barriers](int stage) { return barriers + 16 * stage + 8; };
  const auto arrived = [barriers](int warp) { return barriers + 16 * (kStages + warp); };
  const auto room = [barriers](int warp) { return barriers + 16 * (kStages + warp) + 8; };

  // Barriers are made while consumers work out what there is to do.
  if (threadIdx.x == 32 * kWarps) {
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_init(full(stage), 1);  // the producer
      barrier_init(empty(stage), 2);  // a thread of each warpgroup of the slice
    }
    for (int warp = 0; warp < kWarps; ++warp) {
      barrier_init(arrived(warp), 1);  // a lane, which tells how many bytes will arrive
      barrier_init(room(warp), kSlices - 1);  // a lane of each other block of the tile
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");  // the TMA sees them, too
    asm volatile("prefetch.tensormap [%0];" ::"l"(&a_map) : "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(&b_map) : "memory");
  }

  const int rows = int(M), cols = int(N);
  const int tiles_m = (rows + kSpanM - 1) / kSpanM, tiles_n = (cols + kSpanN - 1) / kSpanN;
  const int steps = int((K + kTileK - 1) / kTileK), work = tiles_m * tiles_n * int(batch);
  int product, row0, col0;
  tile_at(blockIdx.x / kClusterBlocks, tiles_m, tiles_n, product, row0, col0);
  // Divides now, while the kernels before still run.
  asm volatile("" : "+r"(product), "+r"(row0), "+r"(col0));

  const int block = rank_in_cluster();
  const int slice = block / kPlaces;
  int first, last;  // of the steps, this block's
  steps_of(slice, kSlices, steps, first, last);
  // Blocks below each other have the same columns of B: each copies a part to all of them.
  const int b_part = block % kClusterM, b_sharers = 0x3 << block / kClusterM * kClusterM;
  arrive_at_cluster();
  if (threadIdx.x == 0) {
    // A little comes to L2 while the kernels before still run, asked for by the first that read it.
    const int a_matrix = a_count > 1 ? product : 0, b_matrix = b_count > 1 ? product : 0;
    if (early && first < last) {
      const int k = first * kTileK;
      const int a_lines = inside(rows - row0, kTileM);
      const tensor_map_t& a_boxes = a_lines < kTileM ? a_edge : a_map;
      const int b_chunks = inside((cols - col0 + 7) / 8, kTileN / 8);  // of each line
      if (col0 == 0 && (a_count > 1 || product == 0) && a_lines > 0) {
        prefetch_box(
            a_boxes, k, row0, a_matrix);
      }
#pragma unroll
      for (int i = 0; i < kTileN / 64 / 2; ++i) {
        const int panel = 2 * i + b_part;
        const tensor_map_t& b_boxes = panel < b_chunks / 8 ? b_map : b_edge;
        if (row0 < kTileM * 2 && (b_count > 1 || product == 0) && panel * 8 < b_chunks) {
          prefetch_box(b_boxes, col0 + panel * 64, k, b_matrix);
        }
      }
    }
  }
  wait_for_cluster();  // all blocks' barriers are there
  if (early) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");  // until the kernels before have ended

  const auto next = [&](int& w) {
    w += gridDim.x / kClusterBlocks;
    tile_at(w, tiles_m, tiles_n, product, row0, col0);
  };
  int stage = 0, phase = 0;
  const auto advance = [&] {
    stage = stage + 1 < kStages ? stage + 1 : 0;
    if (stage == 0) phase ^= 1;
  };

  // After a shuffle, the compiler knows that all lanes have the same number.
  const int own_warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  if (own_warp >= kWarps) {  // producers
    if (!is_elected()) return;
    for (int w = blockIdx.x / kClusterBlocks; w < work; next(w)) {
      // Where all products have the same matrix, there is but one.
      const int a_matrix = a_count > 1 ? product : 0, b_matrix = b_count > 1 ? product : 0;
      // Nothing beyond the edges of A and B is copied: the TMA takes longer there than elsewhere.
      // Stages hold anything there, which is multiplied for rows and columns that D does not have.
      const int a_lines = inside(rows - row0, kTileM);
      const tensor_map_t& a_boxes = a_lines < kTileM ? a_edge : a_map;
      const int b_chunks = inside((cols - col0 + 7) / 8, kTileN / 8);  // of each line
      const int bytes = a_lines * 128 + b_chunks * (kTileK * 16);  // of both
#pragma unroll 1
      for (int n = first; n < last; ++n) {
        barrier_wait(empty(stage), phase ^ 1);  // true at once the first time round
        barrier_expect(full(stage), bytes);
        const int k = n * kTileK;
        const uint32_t a = stages + stage * kStageBytes, b = a + kBytesA;
        if (a_lines > 0) copy_box(a, a_boxes, k, row0, a_matrix, full(stage));
#pragma unroll
        for (int i = 0; i < kTileN / 64 / 2; ++i) {
          const int panel = 2 * i + b_part;
          const tensor_map_t& b_boxes = panel < b_chunks / 8 ? b_map : b_edge;
          if (panel * 8 < b_chunks) {
            share_box(
                b + panel * kPanelB, b_boxes, col0 + panel * 64, k, b_matrix, full(stage), b_sharers);
          }
        }
        advance();
      }
    }
    return;
  }

  const bool aligned = is_aligned(D, ldd) && stride_d * sizeof(output_t) % 16 == 0;
  int parity = 0;  // of the number of work tiles before
  for (int w = blockIdx.x / kClusterBlocks; w < work; next(w)) {
    WarpTile tile;
    // Hands back the stage before this one, to all blocks of the slice: they may copy into it.
    const auto finish = [&](int stage) {
      const int rank = threadIdx.x % 128;
      if (rank >= kPlaces) return;
      barrier_arrive(empty(stage > 0 ? stage - 1 : kStages - 1), slice * kPlaces + rank);
    };
    if (row0 >= rows || col0 >= cols) {  // the tile is outside, but stages have to be handed back
      const int id = 1 + threadIdx.x / 128;
#pragma unroll 1
      for (int n = first; n < last; ++n) {
        barrier_wait(full(stage), phase);
        asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory");  // else a thread may miss the phase
        advance();
        finish(stage);
      }
      continue;
    }
#pragma unroll 1
    for (int n = first; n < last; ++n) {
      barrier_wait(full(stage), phase);
      tile.multiply(stages + stage * kStageBytes, own_warp / 4);
      // While this step is multiplied, the one before is done: its stage may be filled again.
      asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
      if (n > first) finish(stage);
      advance();
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    if (first < last) finish(stage);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const auto its = reinterpret_cast<float4*>(parts + warp * kPartBytes);
    add_up(tile, its, arrived(warp), room(warp), parity, slice, block % kPlaces, lane);
    parity ^= 1;
    const output_t* const c = C + product * stride_c;
    output_t* const d = D + product * stride_d;
    const Output out{rows, cols, alpha, beta, c, d, ldc, ldd, bias, product, aligned};
    store(tile, out, d_map, staging[warp], row0 + 16 * warp, col0, slice, lane);
  }
  // Shared memory lasts as long as the block.
  if (threadIdx.x % 32 == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  arrive_at_cluster();
  wait_for_cluster();  // others may still arrive at this block's barriers
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
  index_t M, N, K, batch;
  size_t A, B;  // addresses
  index_t lda, ldb, stride_a, stride_b, multiprocessors;

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
  index_t tiles = (M + kSpanM - 1) / kSpanM * ((N + kSpanN - 1) / kSpanN) * batch;  // a cluster's
  index_t bytes = b_offset + (b_copies * b_each * 2 + 255) / 256 * 256;  // of the workspace
  index_t clusters = multiprocessors < 16 ? 1 : multiprocessors / 8;  // that run at the same time
  index_t blocks = (tiles < clusters ? tiles : clusters) * 8;
  bool early = tiles * 8 == blocks && !packs_a && !packs_b;  // the next kernel may start
  index_t a_box = kTileM;  // lines of it
  index_t a_edge = (M - 1) % a_box + 1;  // of the last one
  index_t b_edge = (N - 1) % 64 / 8 * 8 + 8;  // elements of a line in the last panel
  index_t a_apart = a_count > 1 ? a_stride : a_ld;  // matrices, for the TMA
  index_t b_apart = b_count > 1 ? b_stride : b_ld;  // matrices, for the TMA
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
constexpr size_t kMost = 2147418112;  // work tiles: the next one of a block is an int, too
constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows

// Describes the matrices of a batch to the TMA.
// `span`: bytes from a line of a box to the next one in shared memory; the swizzle has as many.
// The driver's function is found by name: libcuda is not linked.
inline cudaError_t make_map(
    tensor_map_t& map, CUtensorMapDataType type, int size, const void* matrix, index_t length,
    index_t lines, index_t ld, index_t box_length, index_t box_lines, int span, index_t count,
    index_t apart) {
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
  const cuuint64_t sizes[] = {cuuint64_t(length), cuuint64_t(lines), cuuint64_t(count)};
  const cuuint64_t pitches[] = {cuuint64_t(ld * size), cuuint64_t(apart * size)};
  const cuuint32_t box[] = {cuuint32_t(box_length), cuuint32_t(box_lines), 1};
  const cuuint32_t every[] = {1, 1, 1};
  const CUtensorMapSwizzle swizzle = span == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : span == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                  : CU_TENSOR_MAP_SWIZZLE_32B;
  // L2 reads what is asked for, and no more: memory is 3 to 6 % slower with pieces of 256 bytes.
  const CUresult result = encode(
      reinterpret_cast<CUtensorMap*>(&map), type, 3, const_cast<void*>(matrix), sizes, pitches, box,
      every, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// Sets *bytes to the size of the workspace that the launcher needs on the current device, or to 0 where
// it returns the launcher's error 1 or 9.
// It holds copies of operands whose pointer or leading dimension is no multiple of 16 bytes.
extern "C" cudaError_t  // cudaSuccess once *bytes is set
gemm_wgmma_bf16_rrr_tb64x128x64_s7_c2x1x4_linear_bias_batched_workspace(  // for a launch with these arguments
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
  const Plan plan{M, N, K, batch, size_t(A), size_t(B), lda, ldb, stride_a, stride_b, 1};
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
//     9  cudaErrorInvalidConfiguration: 2^31 blocks or more, or more than 2^31 - 2^16 work tiles
//   209  cudaErrorNoKernelImageForDevice: a GPU of another compute capability than 9.0
//   400  cudaErrorInvalidResourceHandle: a stream of another device
//   801  cudaErrorNotSupported: the driver does not know the TMA: it is older than CUDA 12
extern "C" cudaError_t  // cudaSuccess once the kernels are on their way
gemm_wgmma_bf16_rrr_tb64x128x64_s7_c2x1x4_linear_bias_batched_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, index_t batch, scalar_t alpha, const input_t* A, index_t lda,
    index_t stride_a, const input_t* B, index_t ldb, index_t stride_b, scalar_t beta,
    const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd, index_t stride_d,
    const output_t* bias, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  size_t needed;  // bytes of the workspace
  auto ask = gemm_wgmma_bf16_rrr_tb64x128x64_s7_c2x1x4_linear_bias_batched_workspace;
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
  if (bias == nullptr) return cudaErrorInvalidValue;

  int device;
  error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const auto kernel = gemm_wgmma_bf16_rrr_tb64x128x64_s7_c2x1x4_linear_bias_batched;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;
  // Clusters lie within groups of multiprocessors, of which these may leave some over.
  int clusters;
  const cudaLaunchConfig_t config{kClusterBlocks, kThreads, kSharedBytes, stream, nullptr, 0};
  error = cudaOccupancyMaxActiveClusters(&clusters, kernel, &config);
  if (error != cudaSuccess) return error;
  const int multiprocessors = clusters * kClusterBlocks;  // that they have at the same time
  Plan plan{M, N, K, batch, size_t(A), size_t(B), lda, ldb, stride_a, stride_b, multiprocessors};
  bool fits = workspace != nullptr && workspace_bytes >= needed && size_t(workspace) % 256 == 0;
  if (needed > 0 && !fits) return cudaErrorInvalidValue;
  const auto a_packed = static_cast<input_t*>(workspace);
  const auto b_packed = a_packed + plan.b_offset / 2;
  const input_t* const a = plan.packs_a ? a_packed : A;
  const input_t* const b = plan.packs_b ? b_packed : B;

  constexpr auto kInput = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  tensor_map_t a_map, b_map, a_edge, b_edge, d_map{};
  error = make_map(
      a_map, kInput, 2, a, K, plan.M, plan.a_ld, kTileK, plan.a_box, 128, plan.a_count,
      plan.a_apart);
  if (error == cudaSuccess) {
    error = make_map(
        a_edge, kInput, 2, a, K, plan.M, plan.a_ld, kTileK, plan.a_edge, 128, plan.a_count,
        plan.a_apart);
  }
  if (error == cudaSuccess) {
    error = make_map(
        b_map, kInput, 2, b, plan.N, K, plan.b_ld, 64, kTileK, 128, plan.b_count, plan.b_apart);
  }
  if (error == cudaSuccess) {
    error = make_map(
        b_edge, kInput, 2, b, plan.N, K, plan.b_ld, plan.b_edge, kTileK, 128, plan.b_count,
        plan.b_apart);
  }
  const bool whole = size_t(D) % 16 == 0 && ldd % 8 == 0 && stride_d % 8 == 0;
  if (error == cudaSuccess && whole) {
    error = make_map(
        d_map, kInput, 2, D, plan.N, plan.M, ldd, 32, 16, 64, batch, batch > 1 ? stride_d : ldd);
  }
  if (error != cudaSuccess) return error;

  if (plan.packs_a || plan.packs_b) {
    error = launch(  // a kernel that packs both
        gemm_wgmma_bf16_rrr_tb64x128x64_s7_c2x1x4_linear_bias_batched_pack,
        dim3(unsigned(plan.pack_blocks), 1, unsigned(2 * plan.pack_z)), 256, 0, stream,
        plan.a_lines, plan.a_length, plan.a_count, A, lda, stride_a, a_packed, plan.a_ld,
        plan.b_lines, plan.b_length, plan.b_count, B, ldb, stride_b, b_packed, plan.b_ld);
    if (error != cudaSuccess) return error;
  }
  return launch(
      kernel, dim3(unsigned(plan.blocks)), kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, batch, plan.a_count, plan.b_count, alpha, a_map, b_map, a_edge, b_edge,
      d_map, beta, C, ldc, stride_c, D, ldd, stride_d, plan.early, bias);
}

#endif  // __CUDACC_RTC__
}  // namespace gemm_wgmma_bf16_rrr_tb64x128x64_s7_c2x1x4_linear_bias_batched_ns
