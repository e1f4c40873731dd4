// decode: D = alpha * A * B + beta * C, by the kernel that suits the problem and the device
//
// 2 kernels, each in a namespace of its own, as gemmgen emits it alone; then what predicts how
// long each takes for the problem at hand, and a launcher that takes the fastest. For the shapes of the
// command below, one of them is the fastest of all that there are, or nearly so, by these predictions.
//
//   kernel for  variant tile     tunables
//   1      h200 wgmma   64x32x64 --threadblock 64x32x64 --stages 16 --split-k auto
//   2      h200 wgmma   64x32x64 --threadblock 64x32x64 --stages 16
//
// Made by gemmgen 0.2.0:  gen emit --best --header
// Compile:  nvcc -std=c++17 -arch=sm_90a -c decode.cu
// SPDX-License-Identifier: 0BSD

#ifndef __CUDACC_RTC__
#include "decode.h"
#if DECODE_SPEC != 0x09007a5e
#error "the header is another kernel's; emit both files together"
#endif
#endif

// ---------------------------------------------------------------------------- kernel 1

// decode_best1: D = alpha * A * B + beta * C
//
// Tensor cores by wgmma, Hopper's own instruction, fed by its Tensor Memory Accelerator (TMA). The
// kernel is persistent: as many blocks as the GPU has multiprocessors stay until all work tiles are
// done. One thread of a block is the producer: it asks the TMA for tiles of A and B of each step
// along K, up to 16 steps ahead, also into the next work tile. A warpgroup, which is four warps, is
// the consumer: it computes 64 rows of the work tile. wgmma reads both operands in shared memory,
// and runs while the warps go on. They meet at two mbarriers for each stage: `full` (the data have
// arrived) and `empty` (all consumers have read them). No barrier stops the whole block.
//
//   A  M x K, row-major, __half
//   B  K x N, column-major, __half
//   C  M x N, column-major, __half; not read when beta is 0
//   D  M x N, column-major, __half; must not overlap A or B; may be C, where ldc is ldd
//
// M, N, K from 0 to 2^31 - 4096, any leading dimension, in elements. Accumulators are float,
// alpha and beta are float. Needs a GPU of compute capability 9.0 and C++17.

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

namespace decode_best1_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = __half;
using output_t = __half;
using scalar_t = float;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
constexpr int kTileM = 64, kTileN = 32, kTileK = 64;  // of a block: work tile, step along K
constexpr int kThreads = 160;  // 4 consumer warps, 1 producer warp

constexpr int kWarpM = 16, kWarpN = 32;  // what each warp computes of the work tile
constexpr int kStages = 16;  // tiles of A and B in shared memory
constexpr int kGroup = 32;  // work tiles along M that are computed close in time: see tile_at
constexpr int kWarpsM = kTileM / kWarpM;  // 64 / 16 = 4
constexpr int kWarps = kWarpsM * (kTileN / kWarpN);  // 4 * (32 / 32) = 4
constexpr int kFragmentsM = kWarpM / 16, kFragmentsN = kWarpN / 16;  // 1, 2
constexpr int kKBlocks = 4;  // K blocks (32 bytes along K) of a step: 64 / 16

constexpr int kBytesA = kTileM * 128;  // (kTileM, kTileK): 64 lines of 128 bytes along K
constexpr int kBytesB = kTileN * 128;  // (kTileN, kTileK): 32 lines of 128 bytes along K
constexpr int kStageBytes = kBytesA + kBytesB;  // 12288

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
  const uint64_t swizzle = 1;  // of 128 bytes
  const uint64_t begin = address >> 4, below = 8 * line >> 4, beside = panel >> 4;
  return begin | beside << 16 | below << 32 | swizzle << 62;
}

// acc += a * b: 64 rows of A by 32 columns of B, over 32 bytes along K. Of the 64 rows, warp w
// has rows 16w to 16w + 15. Lane 4g + t of it (g = 0..7, t = 0..3) holds, of each 8 columns,
// 2t and 2t + 1 of row g in acc[j][0..1], of row g + 8 in acc[j][2..3].
#define ACC(j) "+f"(acc[j][0]), "+f"(acc[j][1]), "+f"(acc[j][2]), "+f"(acc[j][3])
__device__ inline void wgmma(float (&acc)[4][4], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
      "%15}, %16, %17, 1, 1, 1, 0, 0;"
      : ACC(0), ACC(1), ACC(2), ACC(3)
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
      const uint64_t b_block = matrix_at(b + 32 * kb, 128, 0);
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

// Makes D of the accumulators of the columns from fragment `first` on and, if C is read, of the
// piece of C in `staging`, whose place it takes.
__device__ inline void finish_rows(
    Staging& staging, const WarpTile& tile, int first, const Output& out, bool reads_c, int lane) {
#pragma unroll
  for (int j = 0; j < kPieceN / 16; ++j) {
    __half2 d[4]{};  // of 16 x 16: rows g, g + 8 of the left half, then of the right one
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
    int col0, int lane) {
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
      finish_rows(staging, tile, p * kPieceN / 16, out, true, lane);
    } else {
      finish_rows(staging, tile, p * kPieceN / 16, out, false, lane);
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
    index_t ldd, int slices, const scalar_t* partials) {
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
    const int lane = at % 32, j = at / 32 % (kWarpN / 8);
    const int warp = at % kFours / (kWarpM * kWarpN / 4), e = threadIdx.x % 4;
    tile_at(at / kFours, tiles_m, tiles_n, row, col);
    row += 16 * warp + lane / 4 + e / 2 * 8;
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
  D[row * ldd + col] = output_t(x);
}

extern "C" __global__ void __launch_bounds__(256)  // 8 warps
    decode_best1_reduce(  // D = alpha * (sum of the partial sums) + beta * C
        index_t M, index_t N, scalar_t alpha, scalar_t beta, const output_t* C, index_t ldc,
        output_t* D, index_t ldd, index_t slices, const scalar_t* partials) {
  // The more slices there are, the more threads share them: 32 groups, 16 or 8 (measured).
  if (slices > 64) {
    reduce<8>(int(M), int(N), alpha, beta, C, ldc, D, ldd, int(slices), partials);
  } else if (slices > 16) {
    reduce<16>(int(M), int(N), alpha, beta, C, ldc, D, ldd, int(slices), partials);
  } else {
    reduce<32>(int(M), int(N), alpha, beta, C, ldc, D, ldd, int(slices), partials);
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
    decode_best1_pack(  // copies of both operands
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
constexpr int kStagingBytes = kWarps * sizeof(Staging);  // 4096
// Stages with two barriers each, rows of D, and room to begin at a multiple of 1024.
constexpr int kSharedBytes = kStages * (kStageBytes + 16) + kStagingBytes + 1024;  // 201984

extern "C" __device__ void compile_for_sm_90a();  // is nowhere

extern "C" __global__ void __launch_bounds__(kThreads, 1)  // one block stays on each multiprocessor
    decode_best1(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const __grid_constant__ tensor_map_t a_map,
        const __grid_constant__ tensor_map_t b_map, const __grid_constant__ tensor_map_t a_edge,
        const __grid_constant__ tensor_map_t b_edge, const __grid_constant__ tensor_map_t d_map,
        scalar_t beta, const output_t* C, index_t ldc, output_t* D, index_t ldd, bool early,
        index_t slices, scalar_t* partials) {
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
      barrier_init(empty(stage), 1);  // a thread of the consumers
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
    for (int n = first; early && n < last && n < first + 2; ++n) {
      const int k = n * kTileK;
      const int a_lines = inside(rows - row0, kTileM);
      const tensor_map_t& a_boxes = a_lines < kTileM ? a_edge : a_map;
      const int b_lines = inside(cols - col0, kTileN);
      const tensor_map_t& b_boxes = b_lines < kTileN ? b_edge : b_map;
      if (col0 == 0) prefetch_box(a_boxes, k, row0);
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
    if (!is_elected()) return;
    for (int w = blockIdx.x; w < work; next(w)) {
      // Nothing beyond the edges of A and B is copied: the TMA takes longer there than elsewhere.
      // Stages hold anything there, which is multiplied for rows and columns that D does not have.
      const int a_lines = inside(rows - row0, kTileM);
      const tensor_map_t& a_boxes = a_lines < kTileM ? a_edge : a_map;
      const int b_lines = inside(cols - col0, kTileN);
      const tensor_map_t& b_boxes = b_lines < kTileN ? b_edge : b_map;
      const int bytes = a_lines * 128 + b_lines * 128;  // of both
#pragma unroll 1
      for (int n = first; n < last; ++n) {
        barrier_wait(empty(stage), phase ^ 1);  // true at once the first time round
        barrier_expect(full(stage), bytes);
        const int k = n * kTileK;
        const uint32_t a = stages + stage * kStageBytes, b = a + kBytesA;
        copy_box(a, a_boxes, k, row0, full(stage));
        copy_box(b, b_boxes, k, col0, full(stage));
        advance();
      }
    }
    return;
  }

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
    const Output out{rows, cols, alpha, beta, C, D, ldc, ldd};
    store(tile, out, d_map, staging[warp], row0 + 16 * warp, col0, lane);
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
  index_t a_lines = packs_a ? M : 0, a_length = packs_a ? K : 0;  // to pack
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
  index_t a_box = kTileM;  // lines of it
  index_t a_edge = (M - 1) % a_box + 1;  // of the last one
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
decode_best1_workspace(  // for a launch with these arguments
    index_t M, index_t N, index_t K, const input_t* A, index_t lda, const input_t* B, index_t ldb,
    size_t* bytes) {
  if (bytes == nullptr) return cudaErrorInvalidValue;
  *bytes = 0;
  if (size_t(M) > kSide || size_t(N) > kSide || size_t(K) > kSide) return cudaErrorInvalidValue;
  if (M == 0 || N == 0) return cudaSuccess;  // D has no elements
  if (M > kLargest / N) return cudaErrorInvalidValue;
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < K || ldb > kLargest / N)) return cudaErrorInvalidValue;
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
decode_best1_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, scalar_t alpha, const input_t* A, index_t lda,
    const input_t* B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc, output_t* D,
    index_t ldd, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  size_t needed;  // bytes of the workspace
  auto ask = decode_best1_workspace;
  cudaError_t error = ask(M, N, K, A, lda, B, ldb, &needed);
  if (error != cudaSuccess || M == 0 || N == 0) return error;
  if (beta != 0 && (C == nullptr || ldc < M || ldc > kLargest / N)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < M || ldd > kLargest / N) return cudaErrorInvalidValue;

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

  constexpr auto kInput = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  tensor_map_t a_map, b_map, a_edge, b_edge, d_map{};
  error = make_map(a_map, kInput, 2, a, K, plan.M, plan.a_ld, kTileK, plan.a_box, 128);
  if (error == cudaSuccess) {
    error = make_map(a_edge, kInput, 2, a, K, plan.M, plan.a_ld, kTileK, plan.a_edge, 128);
  }
  if (error == cudaSuccess) {
    error = make_map(b_map, kInput, 2, b, K, plan.N, plan.b_ld, kTileK, plan.b_box, 128);
  }
  if (error == cudaSuccess) {
    error = make_map(b_edge, kInput, 2, b, K, plan.N, plan.b_ld, kTileK, plan.b_edge, 128);
  }
  if (error == cudaSuccess && size_t(D) % 16 == 0 && ldd % 8 == 0) {
    error = make_map(d_map, kInput, 2, D, plan.N, plan.M, ldd, 32, 16, 64);
  }
  if (error != cudaSuccess) return error;

  const auto kernel = decode_best1;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;
  // Blocks of the next kernel start early and need shared memory beside this one's: all of the L1
  // cache is to be shared memory.
  error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  if (error != cudaSuccess) return error;

  if (plan.packs_a || plan.packs_b) {
    error = launch(  // a kernel that packs both
        decode_best1_pack, dim3(unsigned(plan.pack_blocks), 1, 2), 256, 0, stream, plan.a_lines,
        plan.a_length, B, ldb, a_packed, plan.a_ld, plan.b_lines, plan.b_length, A, lda, b_packed,
        plan.b_ld);
    if (error != cudaSuccess) return error;
  }
  error = launch(
      kernel, dim3(unsigned(plan.blocks)), kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, alpha, a_map, b_map, a_edge, b_edge, d_map, beta, C, ldc, D, ldd,
      plan.early, plan.slices, partials);
  if (error != cudaSuccess || plan.slices == 1) return error;

  return launch(  // a kernel that adds up the partial sums
      decode_best1_reduce, dim3(unsigned(plan.reduce_blocks)), 256, 0, stream, plan.M, plan.N,
      alpha, beta, C, ldc, D, ldd, plan.slices, partials);
}

#endif  // __CUDACC_RTC__
}  // namespace decode_best1_ns

// ---------------------------------------------------------------------------- kernel 2

// decode_best2: D = alpha * A * B + beta * C
//
// Tensor cores by wgmma, Hopper's own instruction, fed by its Tensor Memory Accelerator (TMA). The
// kernel is persistent: as many blocks as the GPU has multiprocessors stay until all work tiles are
// done. One thread of a block is the producer: it asks the TMA for tiles of A and B of each step
// along K, up to 16 steps ahead, also into the next work tile. A warpgroup, which is four warps, is
// the consumer: it computes 64 rows of the work tile. wgmma reads both operands in shared memory,
// and runs while the warps go on. They meet at two mbarriers for each stage: `full` (the data have
// arrived) and `empty` (all consumers have read them). No barrier stops the whole block.
//
//   A  M x K, row-major, __half
//   B  K x N, column-major, __half
//   C  M x N, column-major, __half; not read when beta is 0
//   D  M x N, column-major, __half; must not overlap A or B; may be C, where ldc is ldd
//
// M, N, K from 0 to 2^31 - 4096, any leading dimension, in elements. Accumulators are float,
// alpha and beta are float. Needs a GPU of compute capability 9.0 and C++17.

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

namespace decode_best2_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = __half;
using output_t = __half;
using scalar_t = float;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
constexpr int kTileM = 64, kTileN = 32, kTileK = 64;  // of a block: work tile, step along K
constexpr int kThreads = 160;  // 4 consumer warps, 1 producer warp

constexpr int kWarpM = 16, kWarpN = 32;  // what each warp computes of the work tile
constexpr int kStages = 16;  // tiles of A and B in shared memory
constexpr int kGroup = 32;  // work tiles along M that are computed close in time: see tile_at
constexpr int kWarps = kTileM / kWarpM;  // 64 / 16 = 4
constexpr int kFragmentsM = kWarpM / 16, kFragmentsN = kWarpN / 16;  // 1, 2
constexpr int kKBlocks = 4;  // K blocks (32 bytes along K) of a step: 64 / 16

constexpr int kBytesA = kTileM * 128;  // (kTileM, kTileK): 64 lines of 128 bytes along K
constexpr int kBytesB = kTileN * 128;  // (kTileN, kTileK): 32 lines of 128 bytes along K
constexpr int kStageBytes = kBytesA + kBytesB;  // 12288

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
  const uint64_t swizzle = 1;  // of 128 bytes
  const uint64_t begin = address >> 4, below = 8 * line >> 4, beside = panel >> 4;
  return begin | beside << 16 | below << 32 | swizzle << 62;
}

// acc += a * b: 64 rows of A by 32 columns of B, over 32 bytes along K. Of the 64 rows, warp w
// has rows 16w to 16w + 15. Lane 4g + t of it (g = 0..7, t = 0..3) holds, of each 8 columns,
// 2t and 2t + 1 of row g in acc[j][0..1], of row g + 8 in acc[j][2..3].
#define ACC(j) "+f"(acc[j][0]), "+f"(acc[j][1]), "+f"(acc[j][2]), "+f"(acc[j][3])
__device__ inline void wgmma(float (&acc)[4][4], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
      "%15}, %16, %17, 1, 1, 1, 0, 0;"
      : ACC(0), ACC(1), ACC(2), ACC(3)
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
      const uint64_t b_block = matrix_at(b + 32 * kb, 128, 0);
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

// Makes D of the accumulators of the columns from fragment `first` on and, if C is read, of the
// piece of C in `staging`, whose place it takes.
__device__ inline void finish_rows(
    Staging& staging, const WarpTile& tile, int first, const Output& out, bool reads_c, int lane) {
#pragma unroll
  for (int j = 0; j < kPieceN / 16; ++j) {
    __half2 d[4]{};  // of 16 x 16: rows g, g + 8 of the left half, then of the right one
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
    int col0, int lane) {
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
      finish_rows(staging, tile, p * kPieceN / 16, out, true, lane);
    } else {
      finish_rows(staging, tile, p * kPieceN / 16, out, false, lane);
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
    decode_best2_pack(  // copies of both operands
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
constexpr int kStagingBytes = kWarps * sizeof(Staging);  // 4096
// Stages with two barriers each, rows of D, and room to begin at a multiple of 1024.
constexpr int kSharedBytes = kStages * (kStageBytes + 16) + kStagingBytes + 1024;  // 201984

extern "C" __device__ void compile_for_sm_90a();  // is nowhere

extern "C" __global__ void __launch_bounds__(kThreads, 1)  // one block stays on each multiprocessor
    decode_best2(  // D = alpha * A * B + beta * C
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

  // Barriers are made while consumers work out what there is to do.
  if (threadIdx.x == 32 * kWarps) {
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_init(full(stage), 1);  // the producer
      barrier_init(empty(stage), 1);  // a thread of the consumers
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");  // the TMA sees them, too
    asm volatile("prefetch.tensormap [%0];" ::"l"(&a_map) : "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(&b_map) : "memory");
  }

  const int rows = int(M), cols = int(N);
  const int tiles_m = (rows + kTileM - 1) / kTileM, tiles_n = (cols + kTileN - 1) / kTileN;
  const int steps = int((K + kTileK - 1) / kTileK), work = tiles_m * tiles_n;
  int row0, col0;
  tile_at(blockIdx.x, tiles_m, tiles_n, row0, col0);
  asm volatile("" : "+r"(row0), "+r"(col0));  // divides now, while the kernels before still run

  if (threadIdx.x == 0) {
    // A little comes to L2 while the kernels before still run, asked for by the first that read it.
    for (int n = 0; early && n < steps && n < 2; ++n) {
      const int k = n * kTileK;
      const int a_lines = inside(rows - row0, kTileM);
      const tensor_map_t& a_boxes = a_lines < kTileM ? a_edge : a_map;
      const int b_lines = inside(cols - col0, kTileN);
      const tensor_map_t& b_boxes = b_lines < kTileN ? b_edge : b_map;
      if (col0 == 0) prefetch_box(a_boxes, k, row0);
      if (row0 == 0) prefetch_box(b_boxes, k, col0);
    }
  }
  __syncthreads();
  if (early) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");  // until the kernels before have ended

  const auto next = [&](int& w) {
    w += gridDim.x;
    tile_at(w, tiles_m, tiles_n, row0, col0);
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
    for (int w = blockIdx.x; w < work; next(w)) {
      // Nothing beyond the edges of A and B is copied: the TMA takes longer there than elsewhere.
      // Stages hold anything there, which is multiplied for rows and columns that D does not have.
      const int a_lines = inside(rows - row0, kTileM);
      const tensor_map_t& a_boxes = a_lines < kTileM ? a_edge : a_map;
      const int b_lines = inside(cols - col0, kTileN);
      const tensor_map_t& b_boxes = b_lines < kTileN ? b_edge : b_map;
      const int bytes = a_lines * 128 + b_lines * 128;  // of both
#pragma unroll 1
      for (int n = 0; n < steps; ++n) {
        barrier_wait(empty(stage), phase ^ 1);  // true at once the first time round
        barrier_expect(full(stage), bytes);
        const int k = n * kTileK;
        const uint32_t a = stages + stage * kStageBytes, b = a + kBytesA;
        copy_box(a, a_boxes, k, row0, full(stage));
        copy_box(b, b_boxes, k, col0, full(stage));
        advance();
      }
    }
    return;
  }

  for (int w = blockIdx.x; w < work; next(w)) {
    WarpTile tile;
    // Hands back the stage before this one.
    const auto finish = [&](int stage) {
      if (threadIdx.x % 128 == 0) barrier_arrive(empty(stage > 0 ? stage - 1 : kStages - 1));
    };
#pragma unroll 1
    for (int n = 0; n < steps; ++n) {
      barrier_wait(full(stage), phase);
      tile.multiply(stages + stage * kStageBytes, own_warp / 4);
      // While this step is multiplied, the one before is done: its stage may be filled again.
      asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
      if (n > 0) finish(stage);
      advance();
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    if (steps > 0) finish(stage);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const Output out{rows, cols, alpha, beta, C, D, ldc, ldd};
    store(tile, out, d_map, staging[warp], row0 + 16 * warp, col0, lane);
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
  index_t a_lines = packs_a ? M : 0, a_length = packs_a ? K : 0;  // to pack
  index_t a_ld = packs_a ? (a_length + 63) / 64 * 64 : lda;  // as the kernel reads it
  bool packs_b = K > 0 && (B % 16 != 0 || ldb % 8 != 0);  // its lines are not aligned
  index_t b_lines = packs_b ? N : 0, b_length = packs_b ? K : 0;  // to pack
  index_t b_ld = packs_b ? (b_length + 63) / 64 * 64 : ldb;  // as the kernel reads it
  index_t b_offset = (a_lines * a_ld * 2 + 255) / 256 * 256;  // bytes
  index_t tiles = (M + kTileM - 1) / kTileM * ((N + kTileN - 1) / kTileN);  // of D
  index_t bytes = b_offset + (b_lines * b_ld * 2 + 255) / 256 * 256;  // of the workspace
  index_t blocks = tiles < multiprocessors ? tiles : multiprocessors;
  bool early = tiles == blocks && !packs_a && !packs_b;  // the next kernel may start
  index_t a_box = kTileM;  // lines of it
  index_t a_edge = (M - 1) % a_box + 1;  // of the last one
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
// It holds copies of operands whose pointer or leading dimension is no multiple of 16 bytes.
extern "C" cudaError_t  // cudaSuccess once *bytes is set
decode_best2_workspace(  // for a launch with these arguments
    index_t M, index_t N, index_t K, const input_t* A, index_t lda, const input_t* B, index_t ldb,
    size_t* bytes) {
  if (bytes == nullptr) return cudaErrorInvalidValue;
  *bytes = 0;
  if (size_t(M) > kSide || size_t(N) > kSide || size_t(K) > kSide) return cudaErrorInvalidValue;
  if (M == 0 || N == 0) return cudaSuccess;  // D has no elements
  if (M > kLargest / N) return cudaErrorInvalidValue;
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < K || ldb > kLargest / N)) return cudaErrorInvalidValue;
  const Plan plan{N, M, K, size_t(B), size_t(A), ldb, lda, 1};
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
decode_best2_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, scalar_t alpha, const input_t* A, index_t lda,
    const input_t* B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc, output_t* D,
    index_t ldd, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  size_t needed;  // bytes of the workspace
  auto ask = decode_best2_workspace;
  cudaError_t error = ask(M, N, K, A, lda, B, ldb, &needed);
  if (error != cudaSuccess || M == 0 || N == 0) return error;
  if (beta != 0 && (C == nullptr || ldc < M || ldc > kLargest / N)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < M || ldd > kLargest / N) return cudaErrorInvalidValue;

  int device, multiprocessors;
  error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  const Plan plan{N, M, K, size_t(B), size_t(A), ldb, lda, multiprocessors};
  bool fits = workspace != nullptr && workspace_bytes >= needed && size_t(workspace) % 256 == 0;
  if (needed > 0 && !fits) return cudaErrorInvalidValue;
  const auto a_packed = static_cast<input_t*>(workspace);
  const auto b_packed = a_packed + plan.b_offset / 2;
  const input_t* const a = plan.packs_a ? a_packed : B;
  const input_t* const b = plan.packs_b ? b_packed : A;

  constexpr auto kInput = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  tensor_map_t a_map, b_map, a_edge, b_edge, d_map{};
  error = make_map(a_map, kInput, 2, a, K, plan.M, plan.a_ld, kTileK, plan.a_box, 128);
  if (error == cudaSuccess) {
    error = make_map(a_edge, kInput, 2, a, K, plan.M, plan.a_ld, kTileK, plan.a_edge, 128);
  }
  if (error == cudaSuccess) {
    error = make_map(b_map, kInput, 2, b, K, plan.N, plan.b_ld, kTileK, plan.b_box, 128);
  }
  if (error == cudaSuccess) {
    error = make_map(b_edge, kInput, 2, b, K, plan.N, plan.b_ld, kTileK, plan.b_edge, 128);
  }
  if (error == cudaSuccess && size_t(D) % 16 == 0 && ldd % 8 == 0) {
    error = make_map(d_map, kInput, 2, D, plan.N, plan.M, ldd, 32, 16, 64);
  }
  if (error != cudaSuccess) return error;

  const auto kernel = decode_best2;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;

  if (plan.packs_a || plan.packs_b) {
    error = launch(  // a kernel that packs both
        decode_best2_pack, dim3(unsigned(plan.pack_blocks), 1, 2), 256, 0, stream, plan.a_lines,
        plan.a_length, B, ldb, a_packed, plan.a_ld, plan.b_lines, plan.b_length, A, lda, b_packed,
        plan.b_ld);
    if (error != cudaSuccess) return error;
  }
  return launch(
      kernel, dim3(unsigned(plan.blocks)), kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, alpha, a_map, b_map, a_edge, b_edge, d_map, beta, C, ldc, D, ldd,
      plan.early);
}

#endif  // __CUDACC_RTC__
}  // namespace decode_best2_ns

// ---------------------------------------------------------------------------- the choice

#ifndef __CUDACC_RTC__  // the host's side, for programs built by nvcc

namespace decode_ns {

using index_t = long long;

struct Gpu {
  int capability, multiprocessors;
};

// clang-format off
// What a kernel costs on a GPU that no problem changes: sizes, and times in picoseconds.
struct Weights {
  index_t tile_m, tile_n, tile_k, cluster_m, cluster_n, cluster_k, math, lone, wait, copy_a, copy_b,
          small_a, small_b, last, store, rough, hides, start, resident, held, split, stream, lines,
          flows, few, sagging, sharing, group, packs_a, packs_b, size, out, turned, spread_a,
          spread_b, run_a, run_b, asked, scatter, torn, strewn_a, strewn_b, packed, added, kib,
          cache;
};

struct Candidate {
  int gpu, kernel;  // their places in the tables
  Weights weights;
  int first_point, end_of_points;  // in their table
};

// A problem of which times were measured, as a candidate has it: how many products it has; whether lines of A (1)
// and B (2) do not start at multiples of 16 bytes; how much it counts; the measured time over the predicted one.
struct Point {
  index_t at_m, at_n, at_k, at_count, at_odd, own, at_ratio;
};

constexpr Gpu kGpus[] = {  // the newest first
    {90, 132},  // H200 SXM 141 GB
};

constexpr Candidate kCandidates[] = {
    {0, 0, {64, 32, 64, 1, 1, 1, 96982, 96982, 0, 64654, 32327, 38793, 19396, 914253, 31115, 45, 0, 473600, 1, 1, 0, 0, 0, 0, 0, 61, 2853600, 32, 1, 1, 2, 2, 0, 16, 16, 1, 1, 100, 16, 26, 0, 0, 6, 13, 213, 52428800}, 0, 1},
    {0, 1, {64, 32, 64, 1, 1, 1, 96982, 96982, 0, 64654, 32327, 38793, 19396, 914253, 31115, 45, 0, 473600, 1, 1, 1, 0, 0, 0, 0, 61, 2853600, 32, 1, 1, 2, 2, 0, 16, 16, 1, 1, 100, 16, 26, 0, 0, 6, 13, 213, 52428800}, 1, 2},
};

constexpr Point kPoints[] = {
    {4096, 12, 4096, 1, 0, 4, 3691},
    {4096, 12, 4096, 1, 0, 4, 4883},
};

struct Limits {
  bool swapped;  // whether it computes the transpose of D
  int last;  // compute capability that runs it; 0: all newer ones do
  int shared;  // bytes of shared memory
};

constexpr Limits kLimits[] = {
    {true, 90, 201984},
    {true, 90, 201984},
};

// Picoseconds that a kernel takes, as predicted. M, N, A and B are those of the row-major product.
// The nearer the problem is to one of which times were measured, the more these count.
inline index_t predict(
    const Candidate& one, index_t M, index_t N, index_t K, index_t A, index_t lda, index_t B,
    index_t ldb, index_t multiprocessors) {
  const auto [tile_m, tile_n, tile_k, cluster_m, cluster_n, cluster_k, math, lone, wait, copy_a,
              copy_b, small_a, small_b, last, store, rough, hides, start, resident, held, split,
              stream, lines, flows, few, sagging, sharing, group, packs_a, packs_b, size, out,
              turned, spread_a, spread_b, run_a, run_b, asked, scatter, torn, strewn_a, strewn_b,
              packed, added, kib, cache] = one.weights;
  const index_t count = 1;
  const index_t m = M < 1 ? 1 : M < 262144 ? M : 262144;
  const index_t n = N < 1 ? 1 : N < 262144 ? N : 262144;
  const index_t k = K < 1 ? 1 : K < 262144 ? K : 262144;
  const index_t pitch_a = lda * size;  // bytes
  const bool odd_a = A % 16 > 0 || pitch_a % 16 != 0;
  const index_t moved_a = packs_a + odd_a > 1 ? m * k : 0;  // elements to pack
  const index_t slow_a = moved_a > 0 || pitch_a % 128 == 0 ? 4 : pitch_a % 32 == 0 ? 5 : 8;  // in quarters
  const index_t loose_a = odd_a && moved_a == 0 ? small_a : 0;  // small loads
  const index_t pitch_b = ldb * size;  // bytes
  const bool odd_b = B % 16 > 0 || pitch_b % 16 != 0;
  const index_t moved_b = packs_b + odd_b > 1 ? n * k : 0;  // elements to pack
  const index_t slow_b = moved_b > 0 || pitch_b % 128 == 0 ? 4 : pitch_b % 32 == 0 ? 5 : 8;  // in quarters
  const index_t loose_b = odd_b && moved_b == 0 ? small_b : 0;  // small loads
  const bool ragged = (turned > 0 ? m : n) * out % 16 != 0;  // lines of D
  const index_t span_m = tile_m * cluster_m;  // of the tiles of a cluster
  const index_t span_n = tile_n * cluster_n;
  const index_t columns = (n + span_n - 1) / span_n * cluster_n;  // of tiles
  const index_t tiles = (m + span_m - 1) / span_m * cluster_m * columns * count;  // of D
  const index_t steps = K > tile_k ? (k + tile_k - 1) / tile_k : 1;  // along K
  const index_t most = steps / 4 > 1 ? steps / 4 : 1;  // slices of at least 4 steps
  const index_t fit = held * multiprocessors / tiles;  // slices of each tile that run at the same time
  const index_t suit = fit < 2 ? 1 : fit < most ? fit : most;  // slices
  const index_t wanted = split < 1 ? suit : steps < split ? steps : split;  // slices
  const index_t each = (steps + wanted - 1) / wanted;  // steps of a slice
  const index_t slices = (steps + each - 1) / each;  // as few as have no more steps
  const index_t together = lines > 0 ? columns : 1;  // tiles, which a block has
  const index_t blocks = tiles * slices * cluster_k / together;
  const index_t cluster = cluster_m * cluster_n * cluster_k;  // blocks
  const index_t usable = cluster > 2 ? multiprocessors * 10 / 11 : multiprocessors;
  const index_t room = usable / cluster > 1 ? usable / cluster : 1;  // for clusters
  const index_t most_blocks = (blocks / cluster + room - 1) / room;
  const index_t stretch = (each + cluster_k - 1) / cluster_k;  // steps of a block
  const index_t busiest = most_blocks * together;  // work tiles
  const index_t turns = (busiest + resident - 1) / resident;  // that they take
  const index_t copies = (copy_a * slow_a + copy_b * slow_b) / 4;  // of a step
  const index_t loose = loose_a + loose_b;
  const index_t busy = math + loose;
  const index_t step = (busy > copies ? busy : copies) + wait;
  const index_t single = lone + loose;
  const index_t inside = (m < tile_m ? m : tile_m) * (n < tile_n ? n : tile_n);  // of D
  const index_t stores = (tile_m * tile_n + 3 * inside) / 4 * store / 1024;
  const index_t stored = stores * (ragged ? rough : 16) / 16 / cluster_k;
  const index_t tail = hides > 0 ? last : last + stored;  // of a work tile
  const index_t full = busiest * stretch * step;
  const index_t alone = turns * stretch * (single > copies ? single : copies);
  const index_t ends = turns * tail;
  const index_t busily = full + (flows > 0 ? tail : ends);
  const index_t lonely = alone + ends;
  const index_t whole = busily > lonely ? busily : lonely;  // each tile by one block
  const bool shares = stream > 0 && tiles > held * multiprocessors && tiles % (held * multiprocessors) > 0;
  const index_t evenly = tiles * steps / multiprocessors * step;
  const index_t shared = evenly + (tiles / multiprocessors + 1) * tail + sharing;  // by several
  const index_t ending = hides > 0 ? stored : 0;  // which nothing hides
  const bool gains = shares && copies <= busy;  // by sharing
  const index_t briefly = (gains ? shared : whole) + ending;  // as fast as for a short time
  const index_t sags = briefly > 50000000 ? (briefly - 50000000) / 1024 * sagging : 0;
  const index_t multiplying = briefly + sags;
  const index_t places = room * cluster_m * cluster_n * resident;  // for tiles
  const index_t line = places / group;
  const index_t beside = line < 1 ? 1 : line < columns ? line : columns;  // tiles along N
  const index_t below = (places + beside - 1) / beside;
  const index_t high = below * tile_m < m ? below * tile_m : m;
  const index_t wide = beside * tile_n < n ? beside * tile_n : n;
  const index_t read_once = (m * spread_a + n * spread_b) / 16 * k * size;  // bytes of A and B
  const index_t read_wide = (high * spread_a + wide * spread_b) / 16 * k * size;
  const index_t once = read_once * count;
  const index_t again = (tiles + places - 1) / places * read_wide;  // round by round
  const bool kept = read_once <= cache / 2 || again < once;  // by the L2 cache
  const index_t written = m * n * out * count * (ragged ? torn : 10) / 10 * scatter / 16;
  const index_t parted = shares && kept ? tiles % multiprocessors + multiprocessors : 0;  // tiles
  const index_t lines_of_b = n * k * size > cache / 4 ? tile_n * k * size : 0;  // bytes of a tile
  const index_t apart = parted / ((m + tile_m - 1) / tile_m) * (parted > 0 ? (m - 1) / tile_m : 0);
  const bool follow = m > span_m && m <= 512 && tiles <= places && lines_of_b > 0;
  const index_t late = follow ? n * k * size / 8 : 0;  // bytes
  const index_t ends_a = odd_a && moved_a == 0 ? m * strewn_a : 0;  // in sixteenths
  const index_t ends_b = odd_b && moved_b == 0 ? n * strewn_b : 0;
  const index_t strewn = slices > 1 ? (ends_a + ends_b) * k * size * count / 16 : 0;  // bytes
  const index_t moving = ((kept ? once : again) + apart * lines_of_b + late + strewn + written) / 1024 * kib;  // from memory
  const index_t moved = (moved_a + moved_b) * count;
  const index_t packing = moved > 0 ? 1630000 + moved * packed / 1024 * kib : 0;
  const index_t sums = slices * tiles * tile_m * tile_n;  // that are written, and read
  const index_t adding = slices > 1 ? 800000 + sums * added / 1024 * kib : 0;
  const index_t asks_of_a = run_a > 0 ? (m < tile_m ? m : tile_m) * ((k * size + 127) / 128) : ((m < tile_m ? m : tile_m) * size + 127) / 128 * k;  // of a tile
  const index_t slices_a = 1 + m * k * size * count / 2048;  // of the cache
  const index_t asks_a = tiles * asks_of_a / cluster_n;  // of all blocks
  const index_t answers_a = slices_a < 32 ? asks_a / slices_a * asked : 0;
  const index_t asks_of_b = run_b > 0 ? (n < tile_n ? n : tile_n) * ((k * size + 127) / 128) : ((n < tile_n ? n : tile_n) * size + 127) / 128 * k;  // of a tile
  const index_t slices_b = 1 + n * k * size * count / 2048;  // of the cache
  const index_t asks_b = tiles * asks_of_b / cluster_m;  // of all blocks
  const index_t answers_b = slices_b < 32 ? asks_b / slices_b * asked : 0;
  const index_t working = multiplying + answers_a + answers_b;
  const index_t longer = working > moving ? working : moving;
  const index_t product = longer + (working + moving - longer) * 3 / 8;
  const bool many = few == 1 ? m > n : few == 2 && n > m;
  const index_t more = many ? product / 2 : 0;
  const bool lacking = (cluster_m > 1 && m <= tile_m) || (cluster_n > 1 && n <= tile_n);
  const index_t idling = lacking ? 200000 : 0;
  const index_t time = start + product + more + packing + adding + idling;
  index_t weights = 0, weighted = 0;
  for (int i = one.first_point; i < one.end_of_points; ++i) {
    const auto [at_m, at_n, at_k, at_count, at_odd, own, at_ratio] = kPoints[i];
    const index_t near_m = m < at_m ? m * 1024 / at_m : at_m * 1024 / m;
    const index_t near_n = n < at_n ? n * 1024 / at_n : at_n * 1024 / n;
    const index_t near_k = k < at_k ? k * 1024 / at_k : at_k * 1024 / k;
    const index_t near_count = count < at_count ? count * 1024 / at_count : at_count * 1024 / count;
    const index_t near = near_m * near_n / 1024 * near_k / 1024 * near_count / 1024;
    const bool alike = odd_a + 2 * odd_b == at_odd && near >= 256;
    const index_t squared = near * near;
    const index_t closer = squared * 64 / (1048577 - squared) * own;
    const index_t weight = alike ? closer + 8 : 0;
    weights += weight;
    weighted += weight * at_ratio;
  }
  const index_t ratio = (weighted + 65536) / (weights + 16);
  const index_t corrected = time < 17592186044416 ? time * ratio / 4096 : time / 4096 * ratio;  // picoseconds
  return corrected;
}
// clang-format on

// The place of the GPU that a device counts as: of its generation, not newer, and of these with the
// most nearly as many multiprocessors; -1 where there is none.
inline int gpu_for(int capability, int multiprocessors) {
  int found = -1, distance = 0;
  for (int i = 0; i < int(sizeof(kGpus) / sizeof(Gpu)); ++i) {
    const Gpu& gpu = kGpus[i];
    if (gpu.capability > capability || gpu.capability / 10 != capability / 10) continue;
    if (found >= 0 && gpu.capability < kGpus[found].capability) break;
    const int further = gpu.multiprocessors - multiprocessors;
    const int away = further < 0 ? -further : further;
    if (found < 0 || away < distance) {
      found = i;
      distance = away;
    }
  }
  return found;
}

// The kernel that is predicted to be the fastest, of those with room for their shared memory; -1 where
// there is none.
inline int pick(
    int capability, int multiprocessors, int shared, index_t M, index_t N, index_t K, size_t A,
    index_t lda, size_t B, index_t ldb) {
  const int gpu = gpu_for(capability, multiprocessors);
  const index_t a = index_t(A % 256), b = index_t(B % 256);  // what is asked of addresses
  lda %= 256, ldb %= 256;  // and of the distance of lines: which multiples of bytes they are
  int found = -1;
  index_t least = 0;
  for (const Candidate& one : kCandidates) {
    const Limits& limits = kLimits[one.kernel];
    const bool runs = limits.last == 0 || capability <= limits.last;
    if (one.gpu != gpu || !runs || limits.shared > shared) continue;
    const index_t time = limits.swapped ? predict(one, N, M, K, b, ldb, a, lda, multiprocessors)
                                        : predict(one, M, N, K, a, lda, b, ldb, multiprocessors);
    if (found < 0 || time < least) {
      found = one.kernel;
      least = time;
    }
  }
  return found;
}

// ---------------------------------------------------------------------------- the launcher

struct Kernel {
  cudaError_t (*workspace)(
      long long M, long long N, long long K, const __half* A, long long lda, const __half* B,
      long long ldb, size_t* bytes);  // null: needs none
  cudaError_t (*launch)(
      long long M, long long N, long long K, float alpha, const __half* A, long long lda,
      const __half* B, long long ldb, float beta, const __half* C, long long ldc, __half* D,
      long long ldd, void* workspace, size_t workspace_bytes, cudaStream_t stream);
};

// clang-format off
constexpr Kernel kKernels[] = {
    {decode_best1_ns::decode_best1_workspace, decode_best1_ns::decode_best1_launch},
    {decode_best2_ns::decode_best2_workspace, decode_best2_ns::decode_best2_launch},
};
// clang-format on

// The kernel for the problem on the current device.
inline cudaError_t choose(
    index_t M, index_t N, index_t K, const void* A, index_t lda, const void* B, index_t ldb,
    const Kernel*& chosen) {
  int device;
  cudaError_t error = cudaGetDevice(&device);
  constexpr cudaDeviceAttr kAsked[] = {
      cudaDevAttrComputeCapabilityMajor, cudaDevAttrComputeCapabilityMinor,
      cudaDevAttrMultiProcessorCount, cudaDevAttrMaxSharedMemoryPerBlockOptin};
  int found[4];
  for (int i = 0; i < 4 && error == cudaSuccess; ++i) {
    error = cudaDeviceGetAttribute(&found[i], kAsked[i], device);
  }
  if (error != cudaSuccess) return error;
  const int kernel = pick(
      10 * found[0] + found[1], found[2], found[3], M, N, K, reinterpret_cast<size_t>(A), lda,
      reinterpret_cast<size_t>(B), ldb);
  if (kernel < 0) return cudaErrorNoKernelImageForDevice;
  chosen = &kKernels[kernel];
  return cudaSuccess;
}

// Sets *bytes to the size of the workspace that the launcher needs on the current device.
extern "C" GEMMGEN_API cudaError_t  // cudaSuccess once *bytes is set
decode_workspace(  // for a launch with these arguments
    long long M, long long N, long long K, const __half* A, long long lda, const __half* B,
    long long ldb, size_t* bytes) {
  if (bytes == nullptr) return cudaErrorInvalidValue;
  *bytes = 0;
  const Kernel* kernel = nullptr;
  const cudaError_t error = choose(M, N, K, A, lda, B, ldb, kernel);
  if (error != cudaSuccess || kernel->workspace == nullptr) return error;
  return kernel->workspace(M, N, K, A, lda, B, ldb, bytes);
}

// As the launchers above, of which it calls the one for the problem on the current device.
extern "C" GEMMGEN_API cudaError_t  // cudaSuccess once the kernel is on its way
decode_launch(  // D = alpha * A * B + beta * C
    long long M, long long N, long long K, float alpha, const __half* A, long long lda,
    const __half* B, long long ldb, float beta, const __half* C, long long ldc, __half* D,
    long long ldd, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  const Kernel* kernel = nullptr;
  const cudaError_t error = choose(M, N, K, A, lda, B, ldb, kernel);
  if (error != cudaSuccess) return error;
  return kernel->launch(
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd, workspace, workspace_bytes, stream);
}

}  // namespace decode_ns

#endif  // __CUDACC_RTC__
