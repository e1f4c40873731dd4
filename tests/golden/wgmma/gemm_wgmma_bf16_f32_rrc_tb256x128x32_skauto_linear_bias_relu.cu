// gemm_wgmma_bf16_f32_rrc_tb256x128x32_skauto_linear_bias_relu: D = alpha * A * B + beta * C + bias, ReLU
//
// Tensor cores by wgmma, Hopper's own instruction, fed by its Tensor Memory Accelerator (TMA). The
// kernel is persistent: as many blocks as the GPU has multiprocessors stay until all work tiles are
// done. One thread of a block is the producer: it asks the TMA for tiles of A and B of each step
// along K, up to 3 steps ahead, also into the next work tile. Two warpgroups of four warps are
// consumers: each computes 64 rows of the work tile. wgmma reads both operands in shared memory,
// and runs while the warps go on. They meet at two mbarriers for each stage: `full` (the data have
// arrived) and `empty` (all consumers have read them). No barrier stops the whole block.
//
//   A  M x K, row-major, __nv_bfloat16
//   B  K x N, row-major, __nv_bfloat16
//   C  M x N, column-major, float; not read when beta is 0
//   D  M x N, column-major, float; must not overlap A or B; may be C, where ldc is ldd
//   bias  N elements, float: one for each column of D
//
// M, N, K from 0 to 2^31 - 4096, any leading dimension, in elements. Accumulators are float,
// alpha and beta are float. Needs a GPU of compute capability 9.0 and C++17.
//
// Made by gemmgen 0.2.0:  gen emit --variant wgmma --dtype bf16_f32 --layout rrc --arch sm_90a --schedule cooperative --threadblock 256x128x32 --stages 3 --cluster 1x1 --promote 0 --stream-k 0 --burst 1 --split-k auto --epilogue linear_bias_relu --swizzle 8
// Compile:  nvcc -std=c++17 -arch=sm_90a -c gemm_wgmma_bf16_f32_rrc_tb256x128x32_skauto_linear_bias_relu.cu, or by NVRTC as it is
// gen-spec: {"variant": "wgmma", "dtype": "bf16_f32", "layout": "rrc", "arch": "sm_90a", "schedule": "cooperative", "threadblock": "256x128x32", "stages": 3, "cluster": "1x1", "promote": 0, "stream_k": 0, "burst": 1, "split_k": 0, "epilogue": "linear_bias_relu", "swizzle": 8}
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

namespace gemm_wgmma_bf16_f32_rrc_tb256x128x32_skauto_linear_bias_relu_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = __nv_bfloat16;
using output_t = float;
using scalar_t = float;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
constexpr int kTileM = 256, kTileN = 128, kTileK = 32;  // of a block: work tile, step along K
constexpr int kThreads = 384;  // 8 consumer warps, 4 producer warps: registers go by four warps

constexpr int kWarpM = 32, kWarpN = 128;  // what each warp computes of the work tile
constexpr int kStages = 3;  // tiles of A and B in shared memory
constexpr int kGroup = 8;  // work tiles along M that are computed close in time: see tile_at
constexpr int kWarpsM = kTileM / kWarpM;  // 256 / 32 = 8
constexpr int kWarps = kWarpsM * (kTileN / kWarpN);  // 8 * (128 / 128) = 8
constexpr int kFragmentsM = kWarpM / 16, kFragmentsN = kWarpN / 16;  // 2, 8
constexpr int kKBlocks = 2;  // K blocks (32 bytes along K) of a step: 32 / 16
constexpr int kSlots = 4;  // pieces of each warp's columns that are on their way to D at once

constexpr int kPanelA = kTileK * 128;  // a panel, (kTileK, 64): 32 lines of 64 elements along M
constexpr int kBytesA = kTileM / 64 * kPanelA;  // (kTileM / 64, kTileK, 64): 4 panels
constexpr int kBytesB = kTileN * 64;  // (kTileN, kTileK): 128 lines of 64 bytes along K
constexpr int kStageBytes = kBytesA + kBytesB;  // 24576

// ------------------------------------------------------------------------ PTX
__device__ inline uint32_t shared_address(const void* pointer) {  // as PTX instructions take it
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
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
// Starts to copy a box, which begins at `inner` along the contiguous dimension and at `outer` along
// the other one, to shared memory. The barrier counts its bytes when they arrive.
__device__ inline void copy_box(
    uint32_t shared, const tensor_map_t& map, int inner, int outer, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared),
      "l"(&map), "r"(inner), "r"(outer), "r"(barrier)
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
// exchanges 16 bytes by their address: a matrix may begin inside of a line.
__device__ inline uint64_t matrix_at(uint32_t address, int line, int panel) {
  const uint64_t swizzle = line == 128 ? 1 : 2;  // of as many bytes
  const uint64_t begin = address >> 4, below = 8 * line >> 4, beside = panel >> 4;
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
      "%56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, 1, 1, 1, 1, 0;"
      : ACC(0), ACC(1), ACC(2), ACC(3), ACC(4), ACC(5), ACC(6), ACC(7), ACC(8), ACC(9), ACC(10),
        ACC(11), ACC(12), ACC(13), ACC(14), ACC(15)
      : "l"(a), "l"(b));
}
#undef ACC

// A warp's part of the work tile: 16 rows of the 64 of each of its warpgroup's wgmmas.
struct WarpTile {
  float acc[kFragmentsM][2 * kFragmentsN][4] = {};

  // Starts to multiply the stage at this address in shared memory, as a group of wgmmas.
  __device__ void multiply(uint32_t stage, int group) {
    const uint32_t a = stage + group * 2 * kPanelA, b = stage + kBytesA;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");  // after all other use of acc
#pragma unroll
    for (int kb = 0; kb < kKBlocks; ++kb) {
      const uint64_t b_block = matrix_at(b + 32 * kb, 64, 0);
#pragma unroll
      for (int i = 0; i < kFragmentsM; ++i) {
        const uint64_t a_block = matrix_at(a + i * kPanelA + kb * 16 * 128, 128, kPanelA);
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
  const output_t* bias;  // one for each row
};

// Whether all rows of C or D start at a multiple of 16 bytes.
__device__ inline bool is_aligned(const output_t* matrix, index_t ld) {
  return reinterpret_cast<size_t>(matrix) % 16 == 0 && ld * sizeof(output_t) % 16 == 0;
}

// Rectifier. NaN stays NaN.
__device__ inline scalar_t relu(scalar_t x) {
  return x < 0 ? 0 : x;
}

constexpr int kPieceN = 32;  // columns of D that a warp stages at a time
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
  // Pairs of an even row and of the next one are in the same banks: the lanes that hold them begin
  // with different elements.
  __device__ void get(float2 (&d)[4], int row, int col, unsigned lane) {
    const bool odd = lane / 4 % 2;
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const unsigned r = row + q % 2 * 8 + lane / 4, c = col + q / 2 * 8 + lane % 4 * 2;
      const output_t one = at(r, c + odd), other = at(r, c + !odd);
      d[q] = {odd ? other : one, odd ? one : other};
    }
  }
  __device__ void put(const float2 (&d)[4], int row, int col, unsigned lane) {
    const bool odd = lane / 4 % 2;
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const unsigned r = row + q % 2 * 8 + lane / 4, c = col + q / 2 * 8 + lane % 4 * 2;
      at(r, c + odd) = odd ? d[q].y : d[q].x;
      at(r, c + !odd) = odd ? d[q].x : d[q].y;
    }
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
// piece of C in `staging`, whose place it takes. The first row is row0 of D.
__device__ inline void finish_rows(
    Staging& staging, const WarpTile& tile, int i, int first, const Output& out, bool reads_c,
    int row0, int lane) {
  scalar_t bias[2];  // of rows g and g + 8
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int at = row0 + 8 * h + lane / 4;
    bias[h] = at < out.rows ? scalar_t(out.bias[at]) : 0;
  }
#pragma unroll
  for (int j = 0; j < kPieceN / 16; ++j) {
    float2 d[4]{};  // of 16 x 16: rows g, g + 8 of the left half, then of the right one
    if (reads_c) staging.get(d, 0, 16 * j, lane);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const float2 acc = tile.pair(i, q % 2, 2 * (first + j) + q / 2);
      scalar_t x = out.alpha * acc.x, y = out.alpha * acc.y;
      if (reads_c) {
        x += out.beta * scalar_t(d[q].x);
        y += out.beta * scalar_t(d[q].y);
      }
      x += bias[q % 2];
      y += bias[q % 2];
      d[q] = {output_t(relu(x)), output_t(relu(y))};
    }
    staging.put(d, 0, 16 * j, lane);
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
    const WarpTile& tile, int i, const Output& out, const tensor_map_t& map, Staging* slots,
    int row0, int col0, int lane) {
  const bool aligned = is_aligned(out.D, out.ldd);
#pragma unroll
  for (int p = 0; p < kWarpN / kPieceN; ++p, col0 += kPieceN) {
    Staging& staging = slots[p % kSlots];
    // The TMA writes 16 bytes at a time, beyond the end of a row that is no multiple of them.
    const bool by_tma = aligned && (out.cols % kElements == 0 || col0 + kPieceN <= out.cols);
    // What was in `staging` has been read.
    if (lane == 0) asm volatile("cp.async.bulk.wait_group.read 3;" ::: "memory");
    __syncwarp();
    if (out.beta != 0) {
      read_rows(staging, out, row0, col0, lane);
      __syncwarp();
      finish_rows(staging, tile, i, p * kPieceN / 16, out, true, row0, lane);
    } else {
      finish_rows(staging, tile, i, p * kPieceN / 16, out, false, row0, lane);
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
  const auto all = reinterpret_cast<float4*>(partials);
  const auto to = all + (piece * kWarps + warp) * kFours * 32 + lane;
#pragma unroll
  for (int i = 0; i < kFragmentsM; ++i) {
#pragma unroll
    for (int j = 0; j < 2 * kFragmentsN; ++j) {
      const float2 above = tile.pair(i, 0, j), below = tile.pair(i, 1, j);
      to[(i * 2 * kFragmentsN + j) * 32] = {above.x, above.y, below.x, below.y};
    }
  }
}

// A block adds up kReduceWidth groups of four elements; its threads share the slices.
template <int kReduceWidth>
__device__ inline void reduce(
    int rows, int cols, scalar_t alpha, scalar_t beta, const output_t* C, index_t ldc, output_t* D,
    index_t ldd, const output_t* bias, int slices, const scalar_t* partials) {
  constexpr int kFours = kTileM * kTileN / 4;  // of a work tile
  constexpr int kGroups = 256 / kReduceWidth;  // of threads, each with its slices
  constexpr int kAtOnce = 4;  // loads of a thread that are on their way together
  __shared__ float4 sums[kGroups][kReduceWidth];
  // With more than 64 slices this kernel is faster if the next one starts at once (measured).
  if (kReduceWidth == 8) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  const int tiles_m = (rows + kTileM - 1) / kTileM, tiles_n = (cols + kTileN - 1) / kTileN;
  const int group = threadIdx.x / kReduceWidth;
  const index_t begin = index_t(blockIdx.x) * kReduceWidth;
  // In the end, a thread has one element. Where it is takes divisions: they come first, while the
  // kernel before still runs (the asm keeps the compiler from moving them).
  int row = 0, col = 0;
  if (threadIdx.x < 4 * kReduceWidth) {
    // store_partial wrote four elements of a lane: two neighbours in a row, and two 8 rows below.
    const index_t at = begin + threadIdx.x / 4;
    const int lane = at % 32, j = at / 32 % (kWarpN / 8), i = at / (4 * kWarpN) % (kWarpM / 16);
    const int warp = at % kFours / (kWarpM * kWarpN / 4), e = threadIdx.x % 4;
    tile_at(at / kFours, tiles_m, tiles_n, row, col);
    row += (warp / 4 * kFragmentsM + i) * 64 + warp % 4 * 16 + lane / 4 + e / 2 * 8;
    col += warp / kWarpsM * kWarpN + 8 * j + lane % 4 * 2 + e % 2;
    asm volatile("" : "+r"(row), "+r"(col));
  }
  asm volatile("griddepcontrol.wait;" ::: "memory");  // until the kernels before have ended
  // The next kernel may start now. Any earlier, its blocks would take the place of this one's.
  if (kReduceWidth > 8) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  const index_t distance = index_t(tiles_m) * tiles_n * kFours;  // from a slice to the next
  const auto all = reinterpret_cast<const float4*>(partials);
  auto from = all + begin + group * distance + threadIdx.x % kReduceWidth;
  float4 sum{};
#pragma unroll 1
  for (int slice = group; slice < slices; slice += kAtOnce * kGroups) {
    float4 parts[kAtOnce]{};
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
  if (beta != 0) x += beta * scalar_t(C[row * ldc + col]);
  x += scalar_t(bias[row]);
  D[row * ldd + col] = output_t(relu(x));
}

extern "C" __global__ void __launch_bounds__(256)  // 8 warps
    gemm_wgmma_bf16_f32_rrc_tb256x128x32_skauto_linear_bias_relu_reduce(  // D = alpha * (sum of the partial sums) + beta * C
        index_t M, index_t N, scalar_t alpha, scalar_t beta, const output_t* C, index_t ldc,
        output_t* D, index_t ldd, const output_t* bias, index_t slices, const scalar_t* partials) {
  // The more slices there are, the more threads share them: 32 groups, 16 or 8 (measured).
  if (slices > 64) {
    reduce<8>(int(M), int(N), alpha, beta, C, ldc, D, ldd, bias, int(slices), partials);
  } else if (slices > 16) {
    reduce<16>(int(M), int(N), alpha, beta, C, ldc, D, ldd, bias, int(slices), partials);
  } else {
    reduce<32>(int(M), int(N), alpha, beta, C, ldc, D, ldd, bias, int(slices), partials);
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
    gemm_wgmma_bf16_f32_rrc_tb256x128x32_skauto_linear_bias_relu_pack(  // copies of both operands
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
constexpr int kStagingBytes = kWarps * kSlots * sizeof(Staging);  // 65536
// Stages with two barriers each, rows of D, and room to begin at a multiple of 1024.
constexpr int kSharedBytes = kStages * (kStageBytes + 16) + kStagingBytes + 1024;  // 140336

extern "C" __device__ void compile_for_sm_90a();  // is nowhere

extern "C" __global__ void __launch_bounds__(kThreads, 1)  // one block stays on each multiprocessor
    gemm_wgmma_bf16_f32_rrc_tb256x128x32_skauto_linear_bias_relu(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const __grid_constant__ tensor_map_t a_map,
        const __grid_constant__ tensor_map_t b_map, const __grid_constant__ tensor_map_t a_edge,
        const __grid_constant__ tensor_map_t b_edge, const __grid_constant__ tensor_map_t d_map,
        scalar_t beta, const output_t* C, index_t ldc, output_t* D, index_t ldd, bool early,
        const output_t* bias, index_t slices, scalar_t* partials) {
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

  // Barriers are made while consumers work out what there is to do.
  if (threadIdx.x == 32 * kWarps) {
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_init(full(stage), 1);  // the producer
      barrier_init(empty(stage), 2);  // a thread of each warpgroup
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");  // the TMA sees them, too
    asm volatile("prefetch.tensormap [%0];" ::"l"(&a_map) : "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(&b_map) : "memory");
  }

  const int rows = int(M), cols = int(N);
  const int tiles_m = (rows + kTileM - 1) / kTileM, tiles_n = (cols + kTileN - 1) / kTileN;
  const int steps = int((K + kTileK - 1) / kTileK);
  const int tiles_d = tiles_m * tiles_n, work = tiles_d * int(slices);
  // A piece of work is a tile of D, and the steps along K of a slice.
  const auto piece = [=](int w, int& row0, int& col0, int& first, int& last) {
    steps_of(uint32_t(w) / tiles_d, int(slices), steps, first, last);
    tile_at(uint32_t(w) % tiles_d, tiles_m, tiles_n, row0, col0);
  };
  int row0, col0, first, last;
  piece(blockIdx.x, row0, col0, first, last);
  // Divides now, while the kernels before still run.
  asm volatile("" : "+r"(row0), "+r"(col0), "+r"(first), "+r"(last));

  if (threadIdx.x == 0) {
    // A little comes to L2 while the kernels before still run, asked for by the first that read it.
    if (early && first < last) {
      const int k = first * kTileK;
      const int a_chunks = inside((rows - row0 + 7) / 8, kTileM / 8);  // of each line
      const int b_lines = inside(cols - col0, kTileN);
      const tensor_map_t& b_boxes = b_lines < kTileN ? b_edge : b_map;
#pragma unroll
      for (int panel = 0; panel < kTileM / 64; ++panel) {
        const tensor_map_t& a_boxes = panel < a_chunks / 8 ? a_map : a_edge;
        if (col0 == 0 && panel * 8 < a_chunks) prefetch_box(a_boxes, row0 + panel * 64, k);
      }
      if (row0 == 0) prefetch_box(b_boxes, k, col0);
    }
  }
  __syncthreads();
  if (early) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");  // until the kernels before have ended

  const auto next = [&](int& w) {
    w += gridDim.x;
    if (w < work) piece(w, row0, col0, first, last);  // else divisions would delay the last stores
  };
  int stage = 0, phase = 0;
  const auto advance = [&] {
    stage = stage + 1 < kStages ? stage + 1 : 0;
    if (stage == 0) phase ^= 1;
  };

  // After a shuffle, the compiler knows that all lanes have the same number.
  const int own_warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  if (own_warp >= kWarps) {  // producers
    // Accumulators need registers, copies few: producers leave most of theirs to the consumers.
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (own_warp != kWarps || !is_elected()) return;
    for (int w = blockIdx.x; w < work; next(w)) {
      // Nothing beyond the edges of A and B is copied: the TMA takes longer there than elsewhere.
      // Stages hold anything there, which is multiplied for rows and columns that D does not have.
      const int a_chunks = inside((rows - row0 + 7) / 8, kTileM / 8);  // of each line
      const int b_lines = inside(cols - col0, kTileN);
      const tensor_map_t& b_boxes = b_lines < kTileN ? b_edge : b_map;
      const int bytes = a_chunks * (kTileK * 16) + b_lines * 64;  // of both
#pragma unroll 1
      for (int n = first; n < last; ++n) {
        barrier_wait(empty(stage), phase ^ 1);  // true at once the first time round
        barrier_expect(full(stage), bytes);
        const int k = n * kTileK;
        const uint32_t a = stages + stage * kStageBytes, b = a + kBytesA;
#pragma unroll
        for (int panel = 0; panel < kTileM / 64; ++panel) {
          const tensor_map_t& a_boxes = panel < a_chunks / 8 ? a_map : a_edge;
          if (panel * 8 < a_chunks) {
            copy_box(a + panel * kPanelA, a_boxes, row0 + panel * 64, k, full(stage));
          }
        }
        copy_box(b, b_boxes, k, col0, full(stage));
        advance();
      }
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  for (int w = blockIdx.x; w < work; next(w)) {
    WarpTile tile;
    // Hands back the stage before this one.
    const auto finish = [&](int stage) {
      if (threadIdx.x % 128 == 0) barrier_arrive(empty(stage > 0 ? stage - 1 : kStages - 1));
    };
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
    if (slices > 1) {
      store_partial(tile, partials, w, warp, lane);
      continue;
    }
    const Output out{rows, cols, alpha, beta, C, D, ldc, ldd, bias};
#pragma unroll
    for (int i = 0; i < kFragmentsM; ++i) {
      const int row = row0 + (warp / 4 * kFragmentsM + i) * 64 + warp % 4 * 16;
      store(tile, i, out, d_map, staging + warp * kSlots, row, col0, lane);
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

// A launch, worked out from top to bottom. What is computed is the transpose of D, B' * A': M, N, A
// and B are those of that product.
struct Plan {
  index_t M, N, K;
  size_t A, B;  // addresses
  index_t lda, ldb, multiprocessors;

  bool packs_a = K > 0 && (A % 16 != 0 || lda % 8 != 0);  // its lines are not aligned
  index_t a_lines = packs_a ? K : 0, a_length = packs_a ? M : 0;  // to pack
  index_t a_ld = packs_a ? (a_length + 63) / 64 * 64 : lda;  // as the kernel reads it
  bool packs_b = K > 0 && (B % 16 != 0 || ldb % 8 != 0);  // its lines are not aligned
  index_t b_lines = packs_b ? N : 0, b_length = packs_b ? K : 0;  // to pack
  index_t b_ld = packs_b ? (b_length + 63) / 64 * 64 : ldb;  // as the kernel reads it
  index_t b_offset = (a_lines * a_ld * 2 + 255) / 256 * 256;  // bytes
  index_t tiles = (M + kTileM - 1) / kTileM * ((N + kTileN - 1) / kTileN);  // of D
  index_t steps = K > kTileK ? (K + kTileK - 1) / kTileK : 1;  // along K
  index_t most = steps / 4 > 1 ? steps / 4 : 1;  // slices of at least 4 steps
  index_t fit = multiprocessors / tiles;  // slices of each tile that run at the same time
  index_t wanted = fit < 2 ? 1 : fit < most ? fit : most;  // slices
  index_t each = (steps + wanted - 1) / wanted;  // steps of a slice
  index_t slices = (steps + each - 1) / each;  // as few as have no more steps
  index_t split = slices > 1 ? tiles : 0;  // tiles of many slices
  index_t partials_offset = b_offset + (b_lines * b_ld * 2 + 255) / 256 * 256;
  index_t bytes = partials_offset + slices * split * kTileM * kTileN * 4;
  index_t reduce_blocks = split * (kTileM * kTileN / 4) / (slices > 64 ? 8 : slices > 16 ? 16 : 32);
  index_t work = tiles * slices;
  index_t blocks = work < multiprocessors ? work : multiprocessors;
  bool early = work == blocks && !packs_a && !packs_b;  // the next kernel may start
  index_t a_edge = (M - 1) % 64 / 8 * 8 + 8;  // elements of a line in the last panel
  index_t b_box = kTileN;  // lines of it
  index_t b_edge = (N - 1) % b_box + 1;  // of the last one
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
// `span`: bytes from a line of a box to the next one in shared memory; the swizzle has as many.
// The driver's function is found by name: libcuda is not linked.
inline cudaError_t make_map(
    tensor_map_t& map, CUtensorMapDataType type, int size, const void* matrix, index_t length,
    index_t lines, index_t ld, index_t box_length, index_t box_lines, int span) {
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
  const CUtensorMapSwizzle swizzle = span == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : span == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                  : CU_TENSOR_MAP_SWIZZLE_32B;
  // L2 reads what is asked for, and no more: memory is 3 to 6 % slower with pieces of 256 bytes.
  const CUresult result = encode(
      reinterpret_cast<CUtensorMap*>(&map), type, 2, const_cast<void*>(matrix), sizes, &pitch, box,
      every, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// Sets *bytes to the size of the workspace that the launcher needs on the current device, or to 0 where
// it returns the launcher's error 1 or 9.
// It holds copies of operands whose pointer or leading dimension is no multiple of 16 bytes,
// and partial sums.
extern "C" cudaError_t  // cudaSuccess once *bytes is set
gemm_wgmma_bf16_f32_rrc_tb256x128x32_skauto_linear_bias_relu_workspace(  // for a launch with these arguments
    index_t M, index_t N, index_t K, const input_t* A, index_t lda, const input_t* B, index_t ldb,
    size_t* bytes) {
  if (bytes == nullptr) return cudaErrorInvalidValue;
  *bytes = 0;
  if (size_t(M) > kSide || size_t(N) > kSide || size_t(K) > kSide) return cudaErrorInvalidValue;
  if (M == 0 || N == 0) return cudaSuccess;  // D has no elements
  if (M > kLargest / N) return cudaErrorInvalidValue;
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return cudaErrorInvalidValue;
  int device, multiprocessors;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  const Plan plan{N, M, K, size_t(B), size_t(A), ldb, lda, multiprocessors};
  if (size_t(plan.work) > kMost) return cudaErrorInvalidConfiguration;
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
//        than 2^44 elements, a leading dimension too short, a workspace too small or not aligned
//     9  cudaErrorInvalidConfiguration: 2^31 blocks or more, or more than 2^31 - 2^16 work tiles
//   209  cudaErrorNoKernelImageForDevice: a GPU of another compute capability than 9.0
//   400  cudaErrorInvalidResourceHandle: a stream of another device
//   801  cudaErrorNotSupported: the driver does not know the TMA: it is older than CUDA 12
extern "C" cudaError_t  // cudaSuccess once the kernels are on their way
gemm_wgmma_bf16_f32_rrc_tb256x128x32_skauto_linear_bias_relu_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, scalar_t alpha, const input_t* A, index_t lda,
    const input_t* B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc, output_t* D,
    index_t ldd, const output_t* bias, void* workspace, size_t workspace_bytes,
    cudaStream_t stream) {
  size_t needed;  // bytes of the workspace
  auto ask = gemm_wgmma_bf16_f32_rrc_tb256x128x32_skauto_linear_bias_relu_workspace;
  cudaError_t error = ask(M, N, K, A, lda, B, ldb, &needed);
  if (error != cudaSuccess || M == 0 || N == 0) return error;
  if (beta != 0 && (C == nullptr || ldc < M || ldc > kLargest / N)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < M || ldd > kLargest / N) return cudaErrorInvalidValue;
  if (bias == nullptr) return cudaErrorInvalidValue;

  int device, multiprocessors;
  error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  const Plan plan{N, M, K, size_t(B), size_t(A), ldb, lda, multiprocessors};
  bool fits = workspace != nullptr && workspace_bytes >= needed && size_t(workspace) % 256 == 0;
  if (needed > 0 && !fits) return cudaErrorInvalidValue;
  const auto space = static_cast<unsigned char*>(workspace);
  const auto a_packed = static_cast<input_t*>(workspace);
  const auto b_packed = a_packed + plan.b_offset / 2;
  const input_t* const a = plan.packs_a ? a_packed : B;
  const input_t* const b = plan.packs_b ? b_packed : A;
  const auto partials = reinterpret_cast<scalar_t*>(space + plan.partials_offset);

  constexpr auto kInput = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  tensor_map_t a_map, b_map, a_edge, b_edge, d_map{};
  error = make_map(a_map, kInput, 2, a, plan.M, K, plan.a_ld, 64, kTileK, 128);
  if (error == cudaSuccess) {
    error = make_map(a_edge, kInput, 2, a, plan.M, K, plan.a_ld, plan.a_edge, kTileK, 128);
  }
  if (error == cudaSuccess) {
    error = make_map(b_map, kInput, 2, b, K, plan.N, plan.b_ld, kTileK, plan.b_box, 64);
  }
  if (error == cudaSuccess) {
    error = make_map(b_edge, kInput, 2, b, K, plan.N, plan.b_ld, kTileK, plan.b_edge, 64);
  }
  if (error == cudaSuccess && size_t(D) % 16 == 0 && ldd % 4 == 0) {
    constexpr auto kOutput = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    error = make_map(d_map, kOutput, 4, D, plan.N, plan.M, ldd, 32, 16, 128);
  }
  if (error != cudaSuccess) return error;

  const auto kernel = gemm_wgmma_bf16_f32_rrc_tb256x128x32_skauto_linear_bias_relu;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;
  // Blocks of the next kernel start early and need shared memory beside this one's: all of the L1
  // cache is to be shared memory.
  error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  if (error != cudaSuccess) return error;

  if (plan.packs_a || plan.packs_b) {
    error = launch(  // a kernel that packs both
        gemm_wgmma_bf16_f32_rrc_tb256x128x32_skauto_linear_bias_relu_pack,
        dim3(unsigned(plan.pack_blocks), 1, 2), 256, 0, stream, plan.a_lines, plan.a_length, B, ldb,
        a_packed, plan.a_ld, plan.b_lines, plan.b_length, A, lda, b_packed, plan.b_ld);
    if (error != cudaSuccess) return error;
  }
  error = launch(
      kernel, dim3(unsigned(plan.blocks)), kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, alpha, a_map, b_map, a_edge, b_edge, d_map, beta, C, ldc, D, ldd,
      plan.early, bias, plan.slices, partials);
  if (error != cudaSuccess || plan.slices == 1) return error;

  return launch(  // a kernel that adds up the partial sums
      gemm_wgmma_bf16_f32_rrc_tb256x128x32_skauto_linear_bias_relu_reduce,
      dim3(unsigned(plan.reduce_blocks)), 256, 0, stream, plan.M, plan.N, alpha, beta, C, ldc, D,
      ldd, bias, plan.slices, partials);
}

#endif  // __CUDACC_RTC__
}  // namespace gemm_wgmma_bf16_f32_rrc_tb256x128x32_skauto_linear_bias_relu_ns
