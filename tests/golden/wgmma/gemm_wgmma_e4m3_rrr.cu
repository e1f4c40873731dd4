// gemm_wgmma_e4m3_rrr: D = alpha * A * B + beta * C
//
// Tensor cores by wgmma, Hopper's own instruction, fed by its Tensor Memory Accelerator (TMA). The
// kernel is persistent: as many blocks as the GPU has multiprocessors stay until all work tiles are
// done. One thread of a block is the producer: it asks the TMA for tiles of A and B of each step
// along K, up to 4 steps ahead, also into the next work tile. Two warpgroups of four warps are
// consumers: each computes 64 rows of the work tile. wgmma reads both operands in shared memory,
// and runs while the warps go on. They meet at two mbarriers for each stage: `full` (the data have
// arrived) and `empty` (all consumers have read them). No barrier stops the whole block.
// Of sums of fp8, wgmma keeps 14 bits: after every 128 elements of K they are promoted, added to
// others in f32, while the next ones are multiplied.
//
//   A  M x K, row-major, __nv_fp8_e4m3
//   B  K x N, row-major, __nv_fp8_e4m3
//   C  M x N, row-major, __nv_bfloat16; not read when beta is 0
//   D  M x N, row-major, __nv_bfloat16; must not overlap A or B; may be C, where ldc is ldd
//
// M, N, K from 0 to 2^31 - 4096, any leading dimension, in elements. Accumulators are float,
// alpha and beta are float. Needs a GPU of compute capability 9.0 and C++17.
//
// Made by gemmgen 0.2.0:  gen emit --variant wgmma --dtype e4m3 --layout rrr --arch sm_90a --schedule cooperative --threadblock 128x128x128 --stages 4 --cluster 1x1 --promote 128 --stream-k 0 --burst 1 --split-k 1 --epilogue linear --swizzle 16
// Compile:  nvcc -std=c++17 -arch=sm_90a -c gemm_wgmma_e4m3_rrr.cu, or by NVRTC as it is
// gen-spec: {"variant": "wgmma", "dtype": "e4m3", "layout": "rrr", "arch": "sm_90a", "schedule": "cooperative", "threadblock": "128x128x128", "stages": 4, "cluster": "1x1", "promote": 128, "stream_k": 0, "burst": 1, "split_k": 1, "epilogue": "linear", "swizzle": 16}
// SPDX-License-Identifier: 0BSD

#include <cuda_bf16.h>
#include <cuda_fp8.h>
#ifndef __CUDACC_RTC__
#include <cuda.h>  // CUtensorMap; only the type, libcuda need not be linked

#include <atomic>
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
#error "for -arch=sm_90a alone: other GPUs lack the kernel's instructions"
#elif defined(__clang__) && defined(__CUDA__) && __clang_major__ < 20
#error "older compilers ignore __grid_constant__ without a word"
#endif

namespace gemm_wgmma_e4m3_rrr_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = __nv_fp8_e4m3;
using output_t = __nv_bfloat16;
using scalar_t = float;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
constexpr int kTileM = 128, kTileN = 128, kTileK = 128;  // of a block: work tile, step along K
constexpr int kThreads = 384;  // 8 consumer warps, 4 producer warps: registers go by four warps

constexpr int kWarpM = 16, kWarpN = 128;  // what each warp computes of the work tile
constexpr int kStages = 4;  // tiles of A and B in shared memory
constexpr int kGroup = 16;  // work tiles along M that are computed close in time: see tile_at
constexpr int kWarps = kTileM / kWarpM;  // 128 / 16 = 8
constexpr int kFragmentsM = kWarpM / 16, kFragmentsN = kWarpN / 16;  // 1, 8
constexpr int kKBlocks = 4;  // K blocks (32 bytes along K) of a step: 128 / 32
constexpr int kSlots = 2;  // pieces of each warp's columns that are on their way to D at once

constexpr int kBytesA = kTileM * 128;  // (kTileM, kTileK): 128 lines of 128 bytes along K
constexpr int kBytesB = kTileN * 128;  // (kTileN, kTileK): 128 lines of 128 bytes along K
constexpr int kStageBytes = kBytesA + kBytesB;  // 32768

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

// acc = a * b, and if it `adds`,
// acc += a * b: 64 rows of A by 128 columns of B, over 32 bytes along K. Of the 64 rows, warp w
// has rows 16w to 16w + 15. Lane 4g + t of it (g = 0..7, t = 0..3) holds, of each 8 columns,
// 2t and 2t + 1 of row g in acc[j][0..1], of row g + 8 in acc[j][2..3].
#define ACC(j) "+f"(acc[j][0]), "+f"(acc[j][1]), "+f"(acc[j][2]), "+f"(acc[j][3])
__device__ inline void wgmma(float (&acc)[16][4], uint64_t a, uint64_t b, bool adds) {
  asm volatile(
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
      "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "
      "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, adds, 1, 1;\n}"
      : ACC(0), ACC(1), ACC(2), ACC(3), ACC(4), ACC(5), ACC(6), ACC(7), ACC(8), ACC(9), ACC(10),
        ACC(11), ACC(12), ACC(13), ACC(14), ACC(15)
      : "l"(a), "l"(b), "r"(int(adds)));
}
#undef ACC

// A warp's part of the work tile: 16 rows of the 64 of its warpgroup.
struct WarpTile {
  float acc[kFragmentsM][2 * kFragmentsN][4] = {};
  float part[2][kFragmentsM][2 * kFragmentsN][4];  // sums of a step, and of the one before

  // Starts to multiply the stage at this address in shared memory, as a group of wgmmas, whose sums
  // will be part[p].
  __device__ void multiply(uint32_t stage, int group, int p) {
    const uint32_t a = stage + group * 64 * 128, b = stage + kBytesA;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");  // after all other use of acc
#pragma unroll
    for (int kb = 0; kb < kKBlocks; ++kb) {
      const uint64_t b_block = matrix_at(b + 32 * kb, 128, 0);
      const uint64_t a_block = matrix_at(a + 32 * kb, 128, 0);
      wgmma(part[p][0], a_block, b_block, kb > 0);
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  }
  // Adds part[p], which wgmma has with 14 bits, to sums of 24.
  __device__ void promote(int p) {
#pragma unroll
    for (int i = 0; i < kFragmentsM; ++i) {
#pragma unroll
      for (int j = 0; j < 2 * kFragmentsN; ++j) {
#pragma unroll
        for (int r = 0; r < 4; ++r) acc[i][j][r] += part[p][i][j][r];
      }
    }
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
    Staging& staging, const WarpTile& tile, int first, const Output& out, bool reads_c, int lane) {
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
    const WarpTile& tile, const Output& out, const tensor_map_t& map, Staging* slots, int row0,
    int col0, int lane) {
  const bool aligned = is_aligned(out.D, out.ldd);
#pragma unroll
  for (int p = 0; p < kWarpN / kPieceN; ++p, col0 += kPieceN) {
    Staging& staging = slots[p % kSlots];
    // The TMA writes 16 bytes at a time, beyond the end of a row that is no multiple of them.
    const bool by_tma = aligned && (out.cols % kElements == 0 || col0 + kPieceN <= out.cols);
    // What was in `staging` has been read.
    if (lane == 0) asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
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
constexpr int kChunk = 16;  // elements in 16 bytes
// An operand whose lines do not all start at multiples of 16 bytes is first copied to the workspace
// with lines that do; blockIdx.z is 0 for A, 1 for B. One that needs no copy has 0 lines here.
// B is always copied: not contiguous along K, it is transposed here. Only elements of 2 bytes
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
    gemm_wgmma_e4m3_rrr_pack(  // copies of both operands
        index_t a_lines, index_t a_length, const input_t* A, index_t lda, input_t* a_packed,
        index_t a_packed_ld, index_t b_lines, index_t b_length, const input_t* B, index_t ldb,
        input_t* b_packed, index_t b_packed_ld) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");  // until the kernels before have ended
  if (blockIdx.z == 0) {
    pack_lines(a_lines, a_length, A, lda, a_packed, a_packed_ld);
  } else {
    pack_transposed(b_lines, b_length, B, ldb, b_packed, b_packed_ld);
  }
}

// ------------------------------------------------------------------------ the kernel
constexpr int kStagingBytes = kWarps * kSlots * sizeof(Staging);  // 32768
// Stages with two barriers each, rows of D, and room to begin at a multiple of 1024.
constexpr int kSharedBytes = kStages * (kStageBytes + 16) + kStagingBytes + 1024;  // 164928

extern "C" __device__ void compile_for_sm_90a();  // is nowhere

extern "C" __global__ void __launch_bounds__(kThreads, 1)  // one block stays on each multiprocessor
    gemm_wgmma_e4m3_rrr(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const __grid_constant__ tensor_map_t a_map,
        const __grid_constant__ tensor_map_t b_map, const __grid_constant__ tensor_map_t a_edge,
        const __grid_constant__ tensor_map_t b_edge, const __grid_constant__ tensor_map_t d_map,
        scalar_t beta, const output_t* C, index_t ldc, output_t* D, index_t ldd) {
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
  const int steps = int((K + kTileK - 1) / kTileK), work = tiles_m * tiles_n;
  int row0, col0;
  tile_at(blockIdx.x, tiles_m, tiles_n, row0, col0);
  asm volatile("" : "+r"(row0), "+r"(col0));  // divides now, while the kernels before still run

  __syncthreads();
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
    // Accumulators need registers, copies few: producers leave most of theirs to the consumers.
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (own_warp != kWarps || !is_elected()) return;
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

  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  for (int w = blockIdx.x; w < work; next(w)) {
    WarpTile tile;
    // Hands back the stage before this one.
    const auto finish = [&](int stage) {
      if (threadIdx.x % 128 == 0) barrier_arrive(empty(stage > 0 ? stage - 1 : kStages - 1));
    };
    // Starts to multiply the next step: its sums will be part[p].
    const auto start = [&](int p) {
      barrier_wait(full(stage), phase);
      tile.multiply(stages + stage * kStageBytes, own_warp / 4, p);
    };
    // While that step is multiplied, the one before is promoted: its stage may be filled again.
    const auto promote_before = [&](int p) {
      asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
      finish(stage);
      tile.promote(p);
      advance();
    };
    // Promotes the last step. It waits in each of two places: behind a common wait, ptxas would not know
    // which sums are done, and would run all wgmmas one after another.
    const auto promote_last = [&](int p) {
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
      finish(stage);
      tile.promote(p);
    };
    if (steps > 0) {
      start(0);
      advance();
      int n = 1;
#pragma unroll 1
      for (; n + 1 < steps; n += 2) {
        start(1);
        promote_before(0);
        start(0);
        promote_before(1);
      }
      if (n < steps) {
        start(1);
        promote_before(0);
        promote_last(1);
      } else {
        promote_last(0);
      }
    }
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const Output out{rows, cols, alpha, beta, C, D, ldc, ldd};
    store(tile, out, d_map, staging + warp * kSlots, row0 + 16 * warp, col0, lane);
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

  bool packs_a = K > 0 && (A % 16 != 0 || lda % 16 != 0);  // its lines are not aligned
  index_t a_lines = packs_a ? M : 0, a_length = packs_a ? K : 0;  // to pack
  index_t a_ld = packs_a ? (a_length + 127) / 128 * 128 : lda;  // as the kernel reads it
  bool packs_b = K > 0;  // its lines do not run along K
  index_t b_lines = packs_b ? N : 0, b_length = packs_b ? K : 0;  // to pack
  index_t b_ld = packs_b ? (b_length + 127) / 128 * 128 : ldb;  // as the kernel reads it
  index_t b_offset = (a_lines * a_ld + 255) / 256 * 256;  // bytes
  index_t tiles = (M + kTileM - 1) / kTileM * ((N + kTileN - 1) / kTileN);  // of D
  index_t bytes = b_offset + (b_lines * b_ld + 255) / 256 * 256;  // of the workspace
  index_t blocks = tiles < multiprocessors ? tiles : multiprocessors;
  index_t a_box = kTileM;  // lines of it
  index_t a_edge = (M - 1) % a_box + 1;  // of the last one
  index_t b_box = kTileN;  // lines of it
  index_t b_edge = (N - 1) % b_box + 1;  // of the last one
  index_t a_lanes = a_length > 128 ? 32 : 8;  // for a line
  index_t a_pieces = (a_lines * a_lanes + 511) / 512 * ((a_length + 511) / 512);  // for blocks
  index_t b_pieces = (b_lines + 127) / 128 * ((b_length + 127) / 128);  // for blocks
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
// It holds B transposed, a copy of the other operand if its pointer or leading dimension is no
// multiple of 16 bytes.
extern "C" cudaError_t  // cudaSuccess once *bytes is set
gemm_wgmma_e4m3_rrr_workspace(  // for a launch with these arguments
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
gemm_wgmma_e4m3_rrr_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, scalar_t alpha, const input_t* A, index_t lda,
    const input_t* B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc, output_t* D,
    index_t ldd, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  size_t needed;  // bytes of the workspace
  auto ask = gemm_wgmma_e4m3_rrr_workspace;
  cudaError_t error = ask(M, N, K, A, lda, B, ldb, &needed);
  if (error != cudaSuccess || M == 0 || N == 0) return error;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return cudaErrorInvalidValue;

  int device, multiprocessors;
  error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  const Plan plan{M, N, K, size_t(A), size_t(B), lda, ldb, multiprocessors};
  bool fits = workspace != nullptr && workspace_bytes >= needed && size_t(workspace) % 256 == 0;
  if (needed > 0 && !fits) return cudaErrorInvalidValue;
  const auto a_packed = static_cast<input_t*>(workspace);
  const auto b_packed = a_packed + plan.b_offset;
  const input_t* const a = plan.packs_a ? a_packed : A;
  const input_t* const b = plan.packs_b ? b_packed : B;

  constexpr auto kInput = CU_TENSOR_MAP_DATA_TYPE_UINT8;
  tensor_map_t a_map, b_map, a_edge, b_edge, d_map{};
  error = make_map(a_map, kInput, 1, a, K, plan.M, plan.a_ld, kTileK, plan.a_box);
  if (error == cudaSuccess) {
    error = make_map(a_edge, kInput, 1, a, K, plan.M, plan.a_ld, kTileK, plan.a_edge);
  }
  if (error == cudaSuccess) {
    error = make_map(b_map, kInput, 1, b, K, plan.N, plan.b_ld, kTileK, plan.b_box);
  }
  if (error == cudaSuccess) {
    error = make_map(b_edge, kInput, 1, b, K, plan.N, plan.b_ld, kTileK, plan.b_edge);
  }
  if (error == cudaSuccess && size_t(D) % 16 == 0 && ldd % 8 == 0) {
    constexpr auto kOutput = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    error = make_map(d_map, kOutput, 2, D, plan.N, plan.M, ldd, 64, 16);
  }
  if (error != cudaSuccess) return error;

  const auto kernel = gemm_wgmma_e4m3_rrr;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;

  if (plan.packs_a || plan.packs_b) {
    error = launch(  // a kernel that packs both
        gemm_wgmma_e4m3_rrr_pack, dim3(unsigned(plan.pack_blocks), 1, 2), 256, 0, stream,
        plan.a_lines, plan.a_length, A, lda, a_packed, plan.a_ld, plan.b_lines, plan.b_length, B,
        ldb, b_packed, plan.b_ld);
    if (error != cudaSuccess) return error;
  }
  return launch(
      kernel, dim3(unsigned(plan.blocks)), kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, alpha, a_map, b_map, a_edge, b_edge, d_map, beta, C, ldc, D, ldd);
}

#endif  // __CUDACC_RTC__
}  // namespace gemm_wgmma_e4m3_rrr_ns
