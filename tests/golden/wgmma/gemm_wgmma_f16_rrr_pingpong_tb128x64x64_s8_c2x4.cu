// gemm_wgmma_f16_rrr_pingpong_tb128x64x64_s8_c2x4: D = alpha * A * B + beta * C
//
// Tensor cores by wgmma, Hopper's own instruction, fed by its Tensor Memory Accelerator (TMA). The
// kernel is persistent: as many blocks as the GPU has multiprocessors stay until all work tiles are
// done. One thread of a block is the producer: it asks the TMA for tiles of A and B of each step
// along K, up to 8 steps ahead, also into the next work tile. Two warpgroups of four warps are
// consumers. Each computes every other work tile of the block, and they take turns: while one
// multiplies, the other one stores D ("ping-pong"). wgmma reads both operands in shared memory, and
// runs while the warps go on. They meet at two mbarriers for each stage: `full` (the data have arrived)
// and `empty` (the consumers have read them). No barrier stops the whole block.
//
//   A  M x K, row-major, __half
//   B  K x N, row-major, __half
//   C  M x N, row-major, __half; not read when beta is 0
//   D  M x N, row-major, __half; must not overlap A or B; may be C, where ldc is ldd
//
// M, N, K from 0 to 2^31 - 4096, any leading dimension, in elements. Accumulators are float,
// alpha and beta are float. Needs a GPU of compute capability 9.0 and C++17.
//
// Made by gemmgen 0.2.0:  gen emit --variant wgmma --dtype f16 --layout rrr --arch sm_90a --schedule pingpong --threadblock 128x64x64 --stages 8 --cluster 2x4 --promote 0 --stream-k 0 --burst 1 --split-k 1 --epilogue linear --swizzle 4
// Compile:  nvcc -std=c++17 -arch=sm_90a -c gemm_wgmma_f16_rrr_pingpong_tb128x64x64_s8_c2x4.cu, or by NVRTC as it is
// gen-spec: {"variant": "wgmma", "dtype": "f16", "layout": "rrr", "arch": "sm_90a", "schedule": "pingpong", "threadblock": "128x64x64", "stages": 8, "cluster": "2x4", "promote": 0, "stream_k": 0, "burst": 1, "split_k": 1, "epilogue": "linear", "swizzle": 4}
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

namespace gemm_wgmma_f16_rrr_pingpong_tb128x64x64_s8_c2x4_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = __half;
using output_t = __half;
using scalar_t = float;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
constexpr int kTileM = 128, kTileN = 64, kTileK = 64;  // of a block: work tile, step along K
constexpr int kThreads = 288;  // 8 consumer warps, 1 producer warp
constexpr int kClusterM = 2, kClusterN = 4;  // blocks that share operands
constexpr int kClusterBlocks = kClusterM * kClusterN;  // 8
constexpr int kSpanM = kClusterM * kTileM, kSpanN = kClusterN * kTileN;  // 256, 256

constexpr int kWarpM = 32, kWarpN = 64;  // what each warp computes of the work tile
constexpr int kStages = 8;  // tiles of A and B in shared memory
constexpr int kGroup = 4;  // work tiles along M that are computed close in time: see tile_at
constexpr int kWarps = kTileM / kWarpM;  // 128 / 32 = 4
constexpr int kConsumers = 2 * kWarps;  // two warpgroups, which have work tiles of their own
constexpr int kFragmentsM = kWarpM / 16, kFragmentsN = kWarpN / 16;  // 2, 4
constexpr int kKBlocks = 4;  // K blocks (32 bytes along K) of a step: 64 / 16

constexpr int kBytesA = kTileM * 128;  // (kTileM, kTileK): 128 lines of 128 bytes along K
constexpr int kPanelB = kTileK * 128;  // a panel, (kTileK, 64): 64 lines of 64 elements along N
constexpr int kBytesB = kTileN / 64 * kPanelB;  // (kTileN / 64, kTileK, 64): 1 panel
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
__device__ inline void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
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
    uint32_t shared, const tensor_map_t& map, int inner, int outer, uint32_t barrier, int blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared),
      "l"(&map), "r"(inner), "r"(outer), "r"(barrier), "h"(short(blocks))
      : "memory");
}
// Brings a box to the L2 cache. Other kernels may still write to it: they write to L2, too.
__device__ inline void prefetch_box(const tensor_map_t& map, int inner, int outer) {
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global [%0, {%1, %2}];" ::"l"(&map), "r"(inner),
               "r"(outer)
               : "memory");
}
// Starts to store a box, clipped to the matrix. Its bytes are read until a wait_group is over.
__device__ inline void store_box(const tensor_map_t& map, int inner, int outer, uint32_t shared) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
      "r"(inner), "r"(outer), "r"(shared)
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

// acc += a * b: 64 rows of A by 64 columns of B, over 32 bytes along K. Of the 64 rows, warp w
// has rows 16w to 16w + 15. Lane 4g + t of it (g = 0..7, t = 0..3) holds, of each 8 columns,
// 2t and 2t + 1 of row g in acc[j][0..1], of row g + 8 in acc[j][2..3].
#define ACC(j) "+f"(acc[j][0]), "+f"(acc[j][1]), "+f"(acc[j][2]), "+f"(acc[j][3])
__device__ inline void wgmma(float (&acc)[8][4], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
      "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, 1, 1, 1, 0, 1;"
      : ACC(0), ACC(1), ACC(2), ACC(3), ACC(4), ACC(5), ACC(6), ACC(7)
      : "l"(a), "l"(b));
}
#undef ACC

// A warp's part of the work tile: 16 rows of the 64 of each of its warpgroup's wgmmas.
struct WarpTile {
  float acc[kFragmentsM][2 * kFragmentsN][4] = {};

  // Starts to multiply the stage at this address in shared memory, as a group of wgmmas.
  __device__ void multiply(uint32_t stage) {
    const uint32_t a = stage, b = stage + kBytesA;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");  // after all other use of acc
#pragma unroll
    for (int kb = 0; kb < kKBlocks; ++kb) {
      const uint64_t b_block = matrix_at(b + kb * 16 * 128, 128, kPanelB);
#pragma unroll
      for (int i = 0; i < kFragmentsM; ++i) {
        const uint64_t a_block = matrix_at(a + i * 64 * 128 + 32 * kb, 128, 0);
        wgmma(acc[i], a_block, b_block);
      }
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
__device__ inline void tile_at(
    uint32_t t, uint32_t tiles_m, uint32_t tiles_n, int& row0, int& col0) {
  const uint32_t most = tiles_m < kGroup ? tiles_m : kGroup;  // kGroup * tiles_n may overflow
  const uint32_t group = most * tiles_n, first = t / group * most;
  const uint32_t height = tiles_m - first < most ? tiles_m - first : most;
  const int block = rank_in_cluster();
  row0 = (first + t % group % height) * kSpanM + block % kClusterM * kTileM;
  col0 = t % group / height * kSpanN + block / kClusterM * kTileN;
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

constexpr int kPieceN = 64;  // columns of D that a warp stages at a time
// Rows of D of a warp, on their way from registers, where lanes hold pairs far apart, to the TMA,
// which stores them while the warp goes on. Columns take turns.
struct Staging {
  static constexpr int kRows = 16;
  alignas(16) unsigned char bytes[kRows * 128];  // (16, 128)

  // Chunks of 16 bytes are where the TMA reads them. Without the XOR, those below each other, which
  // lanes write together, would be in the same banks.
  __device__ output_t& at(unsigned row, unsigned col) {
    const unsigned byte = col * sizeof(output_t), chunk = byte / 16 ^ row % 8;
    return reinterpret_cast<output_t&>(bytes[row * 128 + chunk * 16 + byte % 16]);
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

// Makes D of the accumulators of the columns from fragment `first` on and, if C is read, of the
// piece of C in `staging`, whose place it takes.
__device__ inline void finish_rows(
    Staging& staging, const WarpTile& tile, int i, int first, const Output& out, bool reads_c,
    int lane) {
#pragma unroll
  for (int j = 0; j < kPieceN / 16; ++j) {
    __half2 d[4]{};  // of 16 x 16: rows g, g + 8 of the left half, then of the right one
    auto& registers = reinterpret_cast<uint32_t (&)[4]>(d);
    const uint32_t at = staging.chunk(0, 16 * j, lane);
    if (reads_c) ldmatrix(registers, at);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const float2 acc = tile.pair(i, q % 2, 2 * (first + j) + q / 2);
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
  for (int col = lane; col < kPieceN; col += 32) {  // a column of each lane, element by element
    if (col0 + col >= out.cols) continue;
    output_t* to = out.D + row0 * out.ldd + col0 + col;
#pragma unroll 8
    for (int row = 0; row < rows; ++row, to += out.ldd) *to = staging.at(row, col);
  }
}

// Writes 16 rows of a warp's fragments i, whose first element is at (row0, col0), piece by piece: while
// the TMA stores one, the warp makes the next.
__device__ inline void store(
    const WarpTile& tile, int i, const Output& out, const tensor_map_t& map, Staging& staging,
    int row0, int col0, int lane) {
  const bool aligned = is_aligned(out.D, out.ldd);
#pragma unroll
  for (int p = 0; p < kWarpN / kPieceN; ++p, col0 += kPieceN) {
    // The TMA writes 16 bytes at a time, beyond the end of a row that is no multiple of them.
    const bool by_tma = aligned && (out.cols % kElements == 0 || col0 + kPieceN <= out.cols);
    // What was in `staging` has been read.
    if (lane == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    __syncwarp();
    if (out.beta != 0) {
      read_rows(staging, out, row0, col0, lane);
      __syncwarp();
      finish_rows(staging, tile, i, p * kPieceN / 16, out, true, lane);
    } else {
      finish_rows(staging, tile, i, p * kPieceN / 16, out, false, lane);
    }
    if (by_tma) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    if (!by_tma) {
      write_rows(staging, out, row0, col0, lane);
    } else if (lane == 0) {
      store_box(map, col0, row0, shared_address(staging.bytes));
    }
    if (lane == 0) asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  }
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
    gemm_wgmma_f16_rrr_pingpong_tb128x64x64_s8_c2x4_pack(  // copies of both operands
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
constexpr int kStagingBytes = kConsumers * sizeof(Staging);  // 16384
// Stages with two barriers each, rows of D, a barrier for turns, and room to begin at a multiple of 1024.
constexpr int kSharedBytes = kStages * (kStageBytes + 16) + kStagingBytes + 16 + 1024;  // 214160

extern "C" __device__ void compile_for_sm_90a();  // is nowhere

extern "C" __global__ void __cluster_dims__(kClusterBlocks, 1, 1)
    __launch_bounds__(kThreads, 1)  // one block stays on each multiprocessor
    gemm_wgmma_f16_rrr_pingpong_tb128x64x64_s8_c2x4(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const __grid_constant__ tensor_map_t a_map,
        const __grid_constant__ tensor_map_t b_map, const __grid_constant__ tensor_map_t a_edge,
        const __grid_constant__ tensor_map_t b_edge, const __grid_constant__ tensor_map_t d_map,
        scalar_t beta, const output_t* C, index_t ldc, output_t* D, index_t ldd, bool early) {
#ifndef __CUDA_ARCH_FEAT_SM90_ALL  // nvcc -arch=sm_90a makes PTX for sm_90, too: not to be run
  compile_for_sm_90a();
#else
  extern __shared__ __align__(128) unsigned char shared[];
  // (kStages, kStageBytes) from a multiple of 1024 on, where swizzles begin; staging; barriers.
  const uint32_t begin = shared_address(shared), stages = (begin + 1023) & ~1023u;
  unsigned char* const stage0 = shared + (stages - begin);
  const auto staging = reinterpret_cast<Staging*>(stage0 + kStages * kStageBytes);
  const uint32_t barriers = stages + kStages * kStageBytes + kStagingBytes;
  const auto full = [barriers](int stage) { return barriers + 16 * stage; };
  const auto empty = [barriers](int stage) { return barriers + 16 * stage + 8; };
  const uint32_t turn = barriers + 16 * kStages;  // to multiply: a phase for each piece of work

  // Barriers are made while consumers work out what there is to do.
  if (threadIdx.x == 32 * kConsumers) {
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_init(full(stage), 1);  // the producer
      barrier_init(empty(stage), 8);  // a thread of a warpgroup of each block
    }
    barrier_init(turn, 1);  // a thread of the warpgroup that has it
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");  // the TMA sees them, too
    asm volatile("prefetch.tensormap [%0];" ::"l"(&a_map) : "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(&b_map) : "memory");
  }

  const int rows = int(M), cols = int(N);
  const int tiles_m = (rows + kSpanM - 1) / kSpanM, tiles_n = (cols + kSpanN - 1) / kSpanN;
  const int steps = int((K + kTileK - 1) / kTileK), work = tiles_m * tiles_n;
  int row0, col0;
  tile_at(blockIdx.x / kClusterBlocks, tiles_m, tiles_n, row0, col0);
  asm volatile("" : "+r"(row0), "+r"(col0));  // divides now, while the kernels before still run

  const int block = rank_in_cluster();
  // Blocks beside each other have the same rows of A: each copies a part to all of them.
  const int a_part = block / kClusterM, a_sharers = 0x55 << block % kClusterM;
  // Blocks below each other have the same columns of B: each copies a part to all of them.
  const int b_part = block % kClusterM, b_sharers = 0x3 << block / kClusterM * kClusterM;
  arrive_at_cluster();
  if (threadIdx.x == 0) {
    // A little comes to L2 while the kernels before still run, asked for by the first that read it.
    if (early && steps > 0) {
      const int a_lines = inside(rows - row0, kTileM);
      const int a_own = inside(a_lines - a_part * (kTileM / 4), kTileM / 4);
      const tensor_map_t& a_boxes = a_own < kTileM / 4 ? a_edge : a_map;
      const int b_chunks = inside((cols - col0 + 7) / 8, kTileN / 8);  // of each line
      if (col0 < kTileN * 4 && a_own > 0) prefetch_box(a_boxes, 0, row0 + a_part * (kTileM / 4));
#pragma unroll
      for (int panel = 0; panel < kTileN / 64; ++panel) {
        const tensor_map_t& b_boxes = panel < b_chunks / 8 ? b_map : b_edge;
        if (row0 < kTileM * 2 && panel * 8 < b_chunks) {
          prefetch_box(b_boxes, col0 + panel * 64, b_part * (kTileK / 2));
        }
      }
    }
  }
  wait_for_cluster();  // all blocks' barriers are there
  if (early) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");  // until the kernels before have ended

  const auto next = [&](int& w) {
    w += gridDim.x / kClusterBlocks;
    tile_at(w, tiles_m, tiles_n, row0, col0);
  };
  int stage = 0, phase = 0;
  const auto advance = [&] {
    stage = stage + 1 < kStages ? stage + 1 : 0;
    if (stage == 0) phase ^= 1;
  };

  if (threadIdx.x / 32 >= kConsumers) {  // producers
    if (!is_elected()) return;
    for (int w = blockIdx.x / kClusterBlocks; w < work; next(w)) {
      // Nothing beyond the edges of A and B is copied: the TMA takes longer there than elsewhere.
      // Stages hold anything there, which is multiplied for rows and columns that D does not have.
      const int a_lines = inside(rows - row0, kTileM);
      const int a_own = inside(a_lines - a_part * (kTileM / 4), kTileM / 4);
      const tensor_map_t& a_boxes = a_own < kTileM / 4 ? a_edge : a_map;
      const int b_chunks = inside((cols - col0 + 7) / 8, kTileN / 8);  // of each line
      const int bytes = a_lines * 128 + b_chunks * (kTileK * 16);  // of both
#pragma unroll 1
      for (int n = 0; n < steps; ++n) {
        barrier_wait(empty(stage), phase ^ 1);  // true at once the first time round
        barrier_expect(full(stage), bytes);
        const int k = n * kTileK;
        const uint32_t a = stages + stage * kStageBytes, b = a + kBytesA;
        if (a_own > 0) {
          share_box(
              a + a_part * (kBytesA / 4), a_boxes, k, row0 + a_part * (kTileM / 4), full(stage),
              a_sharers);
        }
#pragma unroll
        for (int panel = 0; panel < kTileN / 64; ++panel) {
          const tensor_map_t& b_boxes = panel < b_chunks / 8 ? b_map : b_edge;
          if (panel * 8 < b_chunks) {
            share_box(
                b + panel * kPanelB + b_part * (kPanelB / 2), b_boxes, col0 + panel * 64,
                k + b_part * (kTileK / 2), full(stage), b_sharers);
          }
        }
        advance();
      }
    }
    // Others arrive at this block's barriers until all its stages have been handed back.
    for (int s = 0; s < kStages; ++s) {
      barrier_wait(empty(stage), phase ^ 1);
      advance();
    }
    return;
  }

  // After a shuffle, the compiler knows that all lanes have the same number.
  const int group = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
  for (int nth = 0, w = blockIdx.x / kClusterBlocks; w < work; next(w), ++nth) {
    if (nth % 2 != group) {  // the other warpgroup's piece, which goes through stages, too
      stage += steps;
      phase ^= stage / kStages % 2;
      stage %= kStages;
      continue;
    }
    WarpTile tile;
    // Hands back the stage before this one, to all blocks: they may copy into it.
    const auto finish = [&](int stage) {
      const int rank = threadIdx.x % 128;
      if (rank >= kClusterBlocks) return;
      barrier_arrive(empty(stage > 0 ? stage - 1 : kStages - 1), rank);
    };
    // Until the other warpgroup has started its wgmmas, so that these run beside its epilogue. Any earlier,
    // a phase of `full` that has long been over could have the parity of the one to wait for.
    barrier_wait(turn, (nth + 1) % 2);  // true at once for the first piece
    if (row0 >= rows || col0 >= cols) {  // the tile is outside, but stages have to be handed back
      const int id = 1 + group;
#pragma unroll 1
      for (int n = 0; n < steps; ++n) {
        barrier_wait(full(stage), phase);
        asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory");  // else a thread may miss the phase
        advance();
        finish(stage);
      }
      asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory");  // all threads have seen their turn
      if (threadIdx.x % 128 == 0) barrier_arrive(turn);
      continue;
    }
#pragma unroll 1
    for (int n = 0; n < steps; ++n) {
      barrier_wait(full(stage), phase);
      tile.multiply(stages + stage * kStageBytes);
      // While this step is multiplied, the one before is done: its stage may be filled again.
      asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
      if (n > 0) finish(stage);
      advance();
    }
    // Behind a wgmma all threads have seen their turn. Without any, one may still wait for it, and would
    // miss it, were it over.
    if (steps == 0) asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
    if (threadIdx.x % 128 == 0) barrier_arrive(turn);  // the other warpgroup may multiply
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    if (steps > 0) finish(stage);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const Output out{rows, cols, alpha, beta, C, D, ldc, ldd};
#pragma unroll
    for (int i = 0; i < kFragmentsM; ++i) {
      const int row = row0 + 64 * i + warp % 4 * 16;
      store(tile, i, out, d_map, staging[warp], row, col0, lane);
    }
  }
  // Shared memory lasts as long as the block.
  if (threadIdx.x % 32 == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
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
  index_t M, N, K;
  size_t A, B;  // addresses
  index_t lda, ldb, multiprocessors;

  bool packs_a = K > 0 && (A % 16 != 0 || lda % 8 != 0);  // its lines are not aligned
  index_t a_lines = packs_a ? M : 0, a_length = packs_a ? K : 0;  // to pack
  index_t a_ld = packs_a ? (a_length + 63) / 64 * 64 : lda;  // as the kernel reads it
  bool packs_b = K > 0 && (B % 16 != 0 || ldb % 8 != 0);  // its lines are not aligned
  index_t b_lines = packs_b ? K : 0, b_length = packs_b ? N : 0;  // to pack
  index_t b_ld = packs_b ? (b_length + 63) / 64 * 64 : ldb;  // as the kernel reads it
  index_t b_offset = (a_lines * a_ld * 2 + 255) / 256 * 256;  // bytes
  index_t tiles = (M + kSpanM - 1) / kSpanM * ((N + kSpanN - 1) / kSpanN);  // of D, a cluster's
  index_t bytes = b_offset + (b_lines * b_ld * 2 + 255) / 256 * 256;  // of the workspace
  index_t clusters = multiprocessors < 16 ? 1 : multiprocessors / 8;  // that run at the same time
  index_t blocks = (tiles < clusters ? tiles : clusters) * 8;
  bool early = tiles * 8 == blocks && !packs_a && !packs_b;  // the next kernel may start
  index_t a_box = kTileM / 4;  // lines of it, which a block copies
  index_t a_edge = (M - 1) % a_box + 1;  // of the last one
  index_t b_edge = (N - 1) % 64 / 8 * 8 + 8;  // elements of a line in the last panel
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

// Describes a matrix to the TMA.
// The driver's function is found by name: libcuda is not linked.
inline cudaError_t make_map(
    tensor_map_t& map, CUtensorMapDataType type, int size, const void* matrix, index_t length,
    index_t lines, index_t ld, index_t box_length, index_t box_lines) {
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
  const cuuint64_t sizes[] = {cuuint64_t(length), cuuint64_t(lines)}, pitch = cuuint64_t(ld * size);
  const cuuint32_t box[] = {cuuint32_t(box_length), cuuint32_t(box_lines)}, every[] = {1, 1};
  // L2 reads what is asked for, and no more: memory is 3 to 6 % slower with pieces of 256 bytes.
  const CUresult result = encode(
      reinterpret_cast<CUtensorMap*>(&map), type, 2, const_cast<void*>(matrix), sizes, &pitch, box,
      every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// Sets *bytes to the size of the workspace that the launcher needs on the current device, or to 0 where
// it returns the launcher's error 1 or 9.
// It holds copies of operands whose pointer or leading dimension is no multiple of 16 bytes.
extern "C" cudaError_t  // cudaSuccess once *bytes is set
gemm_wgmma_f16_rrr_pingpong_tb128x64x64_s8_c2x4_workspace(  // for a launch with these arguments
    index_t M, index_t N, index_t K, const input_t* A, index_t lda, const input_t* B, index_t ldb,
    size_t* bytes) {
  if (bytes == nullptr) return cudaErrorInvalidValue;
  *bytes = 0;
  if (size_t(M) > kSide || size_t(N) > kSide || size_t(K) > kSide) return cudaErrorInvalidValue;
  if (M == 0 || N == 0) return cudaSuccess;  // D has no elements
  if (M > kLargest / N) return cudaErrorInvalidValue;
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return cudaErrorInvalidValue;
  const Plan plan{M, N, K, size_t(A), size_t(B), lda, ldb, 1};
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
//     9  cudaErrorInvalidConfiguration: 2^31 blocks or more, or more than 2^31 - 2^16 work tiles
//   209  cudaErrorNoKernelImageForDevice: a GPU of another compute capability than 9.0
//   400  cudaErrorInvalidResourceHandle: a stream of another device
//   801  cudaErrorNotSupported: the driver does not know the TMA: it is older than CUDA 12
extern "C" cudaError_t  // cudaSuccess once the kernels are on their way
gemm_wgmma_f16_rrr_pingpong_tb128x64x64_s8_c2x4_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, scalar_t alpha, const input_t* A, index_t lda,
    const input_t* B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc, output_t* D,
    index_t ldd, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  size_t needed;  // bytes of the workspace
  auto ask = gemm_wgmma_f16_rrr_pingpong_tb128x64x64_s8_c2x4_workspace;
  cudaError_t error = ask(M, N, K, A, lda, B, ldb, &needed);
  if (error != cudaSuccess || M == 0 || N == 0) return error;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return cudaErrorInvalidValue;

  int device;
  error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const auto kernel = gemm_wgmma_f16_rrr_pingpong_tb128x64x64_s8_c2x4;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;
  // Clusters lie within groups of multiprocessors, of which these may leave some over.
  int clusters;
  const cudaLaunchConfig_t config{kClusterBlocks, kThreads, kSharedBytes, stream, nullptr, 0};
  error = cudaOccupancyMaxActiveClusters(&clusters, kernel, &config);
  if (error != cudaSuccess) return error;
  const int multiprocessors = clusters * kClusterBlocks;  // that they have at the same time
  const Plan plan{M, N, K, size_t(A), size_t(B), lda, ldb, multiprocessors};
  bool fits = workspace != nullptr && workspace_bytes >= needed && size_t(workspace) % 256 == 0;
  if (needed > 0 && !fits) return cudaErrorInvalidValue;
  const auto a_packed = static_cast<input_t*>(workspace);
  const auto b_packed = a_packed + plan.b_offset / 2;
  const input_t* const a = plan.packs_a ? a_packed : A;
  const input_t* const b = plan.packs_b ? b_packed : B;

  constexpr auto kInput = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  tensor_map_t a_map, b_map, a_edge, b_edge, d_map{};
  error = make_map(a_map, kInput, 2, a, K, plan.M, plan.a_ld, kTileK, plan.a_box);
  if (error == cudaSuccess) {
    error = make_map(a_edge, kInput, 2, a, K, plan.M, plan.a_ld, kTileK, plan.a_edge);
  }
  if (error == cudaSuccess) {
    error = make_map(b_map, kInput, 2, b, plan.N, K, plan.b_ld, 64, kTileK / 2);
  }
  if (error == cudaSuccess) {
    error = make_map(b_edge, kInput, 2, b, plan.N, K, plan.b_ld, plan.b_edge, kTileK / 2);
  }
  if (error == cudaSuccess && size_t(D) % 16 == 0 && ldd % 8 == 0) {
    error = make_map(d_map, kInput, 2, D, plan.N, plan.M, ldd, 64, 16);
  }
  if (error != cudaSuccess) return error;

  if (plan.packs_a || plan.packs_b) {
    error = launch(  // a kernel that packs both
        gemm_wgmma_f16_rrr_pingpong_tb128x64x64_s8_c2x4_pack,
        dim3(unsigned(plan.pack_blocks), 1, 2), 256, 0, stream, plan.a_lines, plan.a_length, A, lda,
        a_packed, plan.a_ld, plan.b_lines, plan.b_length, B, ldb, b_packed, plan.b_ld);
    if (error != cudaSuccess) return error;
  }
  return launch(
      kernel, dim3(unsigned(plan.blocks)), kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, alpha, a_map, b_map, a_edge, b_edge, d_map, beta, C, ldc, D, ldd,
      plan.early);
}

#endif  // __CUDACC_RTC__
}  // namespace gemm_wgmma_f16_rrr_pingpong_tb128x64x64_s8_c2x4_ns
