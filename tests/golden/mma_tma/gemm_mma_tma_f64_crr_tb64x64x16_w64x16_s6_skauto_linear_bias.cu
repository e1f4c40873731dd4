// gemm_mma_tma_f64_crr_tb64x64x16_w64x16_s6_skauto_linear_bias: D = alpha * A * B + beta * C + bias
//
// Tensor cores, fed by Hopper's Tensor Memory Accelerator (TMA). The kernel is persistent: as many blocks
// as the GPU has multiprocessors stay until all work tiles of D are done. One thread of a block is the
// producer: it asks the TMA for the tiles of A and B of each step along K, up to 6 steps ahead, also
// into the next work tile. 4 warps are consumers: each computes 64 x 16 of the work tile with mma.sync.
// They meet at two mbarriers for each stage: `full` (the data have arrived) and `empty` (all consumers
// have read them). No barrier stops the whole block.
//
//   A  M x K, column-major, double
//   B  K x N, row-major, double
//   C  M x N, row-major, double; not read when beta is 0
//   D  M x N, row-major, double; must not overlap A or B; may be C, where ldc is ldd
//   bias  N elements, double: one for each column of D
//
// M, N, K from 0 to 2^31 - 4096, any leading dimension, in elements. Accumulators are double,
// alpha and beta are double. Needs a GPU of compute capability 9.0 and C++17.
//
// Made by gemmgen 0.2.0:  gen emit --variant mma_tma --dtype f64 --layout crr --arch sm_90a --threadblock 64x64x16 --warp 64x16 --instruction m16n8k4 --stages 6 --sliced-k 1 --split-k auto --epilogue linear_bias --swizzle 12
// Compile:  nvcc -std=c++17 -arch=sm_90a -c gemm_mma_tma_f64_crr_tb64x64x16_w64x16_s6_skauto_linear_bias.cu, or by NVRTC as it is
// gen-spec: {"variant": "mma_tma", "dtype": "f64", "layout": "crr", "arch": "sm_90a", "threadblock": "64x64x16", "warp": "64x16", "instruction": "m16n8k4", "stages": 6, "sliced_k": 1, "split_k": 0, "epilogue": "linear_bias", "swizzle": 12}
// SPDX-License-Identifier: 0BSD

#ifndef __CUDACC_RTC__
#include <cuda.h>  // CUtensorMap; only the type, libcuda need not be linked

#include <atomic>
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
#error "for -arch=sm_90a alone: other GPUs lack the kernel's instructions"
#elif defined(__clang__) && defined(__CUDA__) && __clang_major__ < 20
#error "older compilers ignore __grid_constant__ without a word"
#endif

namespace gemm_mma_tma_f64_crr_tb64x64x16_w64x16_s6_skauto_linear_bias_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = double;
using output_t = double;
using scalar_t = double;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;
constexpr int kTileM = 64, kTileN = 64, kTileK = 16;  // of a block: work tile, step along K
constexpr int kThreads = 160;  // 4 consumer warps, 1 producer warp

constexpr int kWarpM = 64, kWarpN = 16;  // what each warp computes of the work tile
constexpr int kStages = 6;  // tiles of A and B in shared memory
constexpr int kGroup = 12;  // work tiles along M that are computed close in time: see tile_at
constexpr int kWarpsM = kTileM / kWarpM;  // 64 / 64 = 1
constexpr int kWarps = kWarpsM * (kTileN / kWarpN);  // 1 * (64 / 16) = 4
constexpr int kFragmentsM = kWarpM / 16, kFragmentsN = kWarpN / 16;  // 4, 1
constexpr int kKBlocks = 4;  // K blocks (4 elements along K) of a step: 16 / 4
static_assert(kKBlocks >= 2, "one K block is loaded while another is multiplied");

constexpr int kPanelA = kTileK * 128;  // a panel, (kTileK, 16): 16 lines of 16 elements across K
constexpr int kBytesA = kTileM / 16 * kPanelA;  // (kTileM / 16, kTileK, 16): 4 panels
constexpr int kPanelB = kTileK * 128;  // a panel, (kTileK, 16): 16 lines of 16 elements across K
constexpr int kBytesB = kTileN / 16 * kPanelB;  // (kTileN / 16, kTileK, 16): 4 panels
constexpr int kStageBytes = kBytesA + kBytesB;  // 16384

// ------------------------------------------------------------------------ PTX
__device__ inline uint32_t shared_address(const void* pointer) {  // as PTX instructions take it
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
__device__ inline double load_shared(uint32_t address) {
  double x;
  asm volatile("ld.shared.f64 %0, [%1];" : "=d"(x) : "r"(address));
  return x;
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

// ------------------------------------------------------------------------ what a warp computes
// A fragment is 16 rows of A, or 16 columns of B, by 4 elements along K. Of it, lane 4g + t
// (g = 0..7, t = 0..3) holds element t of row or column g in fragment[0], and of g + 8 in fragment[1].
// Which of a step's elements these four are is free, as long as A and B have the same ones: see lane_k.
//
// One instruction multiplies 16 rows of A by 8 columns of B. Of its 16 x 8 accumulators the lane holds
// columns 2t and 2t + 1 of row g in acc[0..1], of row g + 8 in acc[2..3].
// acc += a * b; `half`: which half of b's 16 columns.
__device__ inline void mma(double (&acc)[4], const double (&a)[2], const double (&b)[2], int half) {
  asm volatile(
      "mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 "
      "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+d"(acc[0]), "+d"(acc[1]), "+d"(acc[2]), "+d"(acc[3])
      : "d"(a[0]), "d"(a[1]), "d"(b[half]));
}

// Where an element is in lines of shared memory, as the TMA puts it there.
__device__ constexpr unsigned swizzle_128b(unsigned line, unsigned element) {
  return line * 128 + (element ^ line % 8 * 2) * 8;
}
// Of a step's elements along K, lane t of four takes one of each quad: the place of t XOR that of the
// quad. Shared memory serves half a warp at a time, and all four lanes of four lines then find theirs in
// different banks, whether lines run along K (0, 3, 12, 15 of each) or across K (four of these lines).
__device__ constexpr unsigned lane_k(unsigned lane) {
  return lane % 2 * 3 + lane / 2 % 2 * 12;
}
__device__ constexpr unsigned quad_k(unsigned quad) {
  return quad % 2 + quad / 2 * 4;
}

// A warp's part of the work tile, with fragments of two K blocks: one is loaded while the other is
// multiplied.
struct WarpTile {
  double acc[kFragmentsM][2 * kFragmentsN][4] = {};  // accumulators of (4, 2) times 16 x 8
  double a[2][kFragmentsM][2], b[2][kFragmentsN][2];  // fragments
  // Where the lane's first elements are: made before the step that loads. An XOR finds the others: the
  // place of what is XORed is the XOR of the places.
  uint32_t a_at, b_at;

  // Lets loads read the stage at this address in shared memory.
  __device__ void read_from(uint32_t stage, int warp, int lane) {
    const int row = warp % kWarpsM * kWarpM + lane / 4;
    a_at = stage + row / 16 * kPanelA + swizzle_128b(lane_k(lane), lane / 4);
    const int col = warp / kWarpsM * kWarpN + lane / 4;
    b_at = stage + kBytesA + col / 16 * kPanelB + swizzle_128b(lane_k(lane), lane / 4);
  }
  // Lets loads read another stage, so many bytes further on.
  __device__ void move(int bytes) {
    a_at += bytes;
    b_at += bytes;
  }
  __device__ void load(int kb) {
#pragma unroll
    for (int i = 0; i < kFragmentsM; ++i) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const uint32_t other = swizzle_128b(quad_k(kb), 8 * r);
        a[kb % 2][i][r] = load_shared((a_at ^ other) + i * kPanelA);
      }
    }
#pragma unroll
    for (int i = 0; i < kFragmentsN; ++i) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const uint32_t other = swizzle_128b(quad_k(kb), 8 * r);
        b[kb % 2][i][r] = load_shared((b_at ^ other) + i * kPanelB);
      }
    }
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
  // Registers have no variable index: a loop takes the first rows, and moves the others up.
  __device__ void move_up() {
#pragma unroll
    for (int i = 0; i + 1 < kFragmentsM; ++i) {
#pragma unroll
      for (int j = 0; j < 2 * kFragmentsN; ++j) {
#pragma unroll
        for (int r = 0; r < 4; ++r) acc[i][j][r] = acc[i + 1][j][r];
      }
    }
  }
  // Two accumulators of the lane: row 16i + 8h + g, columns 8j + 2t and 8j + 2t + 1.
  __device__ double2 pair(int i, int h, int j) const {
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
  const output_t* bias;  // one for each column
};

// Whether all rows of C or D start at a multiple of 16 bytes.
__device__ inline bool is_aligned(const output_t* matrix, index_t ld) {
  return reinterpret_cast<size_t>(matrix) % 16 == 0 && ld * sizeof(output_t) % 16 == 0;
}

// Rows of D of a warp, on their way from registers, where lanes hold pairs far apart, to the TMA,
// which stores them while the warp goes on.
struct Staging {
  static constexpr int kRows = 64;
  alignas(16) unsigned char bytes[kRows * 128];  // (64, 128)

  __device__ output_t& at(unsigned row, unsigned col) {
    return reinterpret_cast<output_t&>(bytes[swizzle_128b(row, col)]);
  }
  // A quarter of a warp is served at a time: pairs of an even row and of the next one, which are in the
  // same banks. The lanes of odd rows begin with the right half of 16 columns.
  __device__ void get(double2 (&d)[4], int row, int col, unsigned lane) {
    const unsigned odd = lane / 4 % 2, r = row + lane / 4, c = col + lane % 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const auto one = reinterpret_cast<const double2&>(at(r + 8 * h, c + 8 * odd));
      const auto other = reinterpret_cast<const double2&>(at(r + 8 * h, c + 8 * !odd));
      d[h] = odd ? other : one;
      d[h + 2] = odd ? one : other;
    }
  }
  __device__ void put(const double2 (&d)[4], int row, int col, unsigned lane) {
    const unsigned odd = lane / 4 % 2, r = row + lane / 4, c = col + lane % 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      reinterpret_cast<double2&>(at(r + 8 * h, c + 8 * odd)) = odd ? d[h + 2] : d[h];
      reinterpret_cast<double2&>(at(r + 8 * h, c + 8 * !odd)) = odd ? d[h] : d[h + 2];
    }
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

// The bias of the columns in which a lane has accumulators, read once; col0 is the warp's first one.
struct Bias {
  double2 of[2 * kFragmentsN];

  __device__ Bias(const Output& out, int col0, int lane) {
#pragma unroll
    for (int j = 0; j < 2 * kFragmentsN; ++j) {
      const int col = col0 + 8 * j + lane % 4 * 2;
      of[j].x = col < out.cols ? scalar_t(out.bias[col]) : 0;
      of[j].y = col + 1 < out.cols ? scalar_t(out.bias[col + 1]) : 0;
    }
  }
};

// Makes 16 rows of D of the accumulators of fragment i and, if C is read, of the rows of C in `staging`
// from `row` on, whose place they take.
__device__ inline void finish_rows(
    Staging& staging, int row, const WarpTile& tile, int i, const Output& out, bool reads_c,
    const Bias& bias, int lane) {
#pragma unroll
  for (int j = 0; j < kFragmentsN; ++j) {
    double2 d[4]{};  // of 16 x 16: rows g, g + 8 of the left half, then of the right one
    if (reads_c) staging.get(d, row, 16 * j, lane);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const double2 acc = tile.pair(i, q % 2, 2 * j + q / 2);
      scalar_t x = out.alpha * acc.x, y = out.alpha * acc.y;
      if (reads_c) {
        x += out.beta * scalar_t(d[q].x);
        y += out.beta * scalar_t(d[q].y);
      }
      x += bias.of[2 * j + q / 2].x;
      y += bias.of[2 * j + q / 2].y;
      d[q] = {output_t(x), output_t(y)};
    }
    staging.put(d, row, 16 * j, lane);
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
  const bool by_tma = whole && is_aligned(out.D, out.ldd);
  const Bias bias(out, col0, lane);
  // What was in `staging` has been read.
  if (lane == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  __syncwarp();
  if (out.beta != 0) {
    read_rows(staging, out, row0, col0, lane);
    __syncwarp();
  }
#pragma unroll 1
  for (int row = 0; row < Staging::kRows; row += 16) {
    asm volatile("" : "+r"(lane));  // keeps addresses from being computed before, and spilled
    finish_rows(staging, row, tile, 0, out, out.beta != 0, bias, lane);
    tile.move_up();
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

struct alignas(16) Four {
  double x, y, z, w;
};

// Writes a warp's accumulators as partial sums: four of a lane at a time, those of its neighbours next
// to them. `piece` counts the work tiles of all slices.
__device__ inline void store_partial(
    const WarpTile& tile, scalar_t* partials, index_t piece, int warp, int lane) {
  constexpr int kFours = kFragmentsM * 2 * kFragmentsN;  // of a lane
  const auto all = reinterpret_cast<Four*>(partials);
  const auto to = all + (piece * kWarps + warp) * kFours * 32 + lane;
#pragma unroll
  for (int i = 0; i < kFragmentsM; ++i) {
#pragma unroll
    for (int j = 0; j < 2 * kFragmentsN; ++j) {
      const double2 above = tile.pair(i, 0, j), below = tile.pair(i, 1, j);
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
  __shared__ Four sums[kGroups][kReduceWidth];
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
    row += warp % kWarpsM * kWarpM + 16 * i + lane / 4 + e / 2 * 8;
    col += warp / kWarpsM * kWarpN + 8 * j + lane % 4 * 2 + e % 2;
    asm volatile("" : "+r"(row), "+r"(col));
  }
  asm volatile("griddepcontrol.wait;" ::: "memory");  // until the kernels before have ended
  // The next kernel may start now. Any earlier, its blocks would take the place of this one's.
  if (kReduceWidth > 8) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  const index_t distance = index_t(tiles_m) * tiles_n * kFours;  // from a slice to the next
  const auto all = reinterpret_cast<const Four*>(partials);
  auto from = all + begin + group * distance + threadIdx.x % kReduceWidth;
  Four sum{};
#pragma unroll 1
  for (int slice = group; slice < slices; slice += kAtOnce * kGroups) {
    Four parts[kAtOnce]{};
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
  x += scalar_t(bias[col]);
  D[row * ldd + col] = output_t(x);
}

extern "C" __global__ void __launch_bounds__(256)  // 8 warps
    gemm_mma_tma_f64_crr_tb64x64x16_w64x16_s6_skauto_linear_bias_reduce(  // D = alpha * (sum of the partial sums) + beta * C
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
constexpr int kChunk = 2;  // elements in 16 bytes
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
    gemm_mma_tma_f64_crr_tb64x64x16_w64x16_s6_skauto_linear_bias_pack(  // copies of both operands
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
constexpr int kStagingBytes = kWarps * sizeof(Staging);  // 32768
// Stages with two barriers each, rows of D, and room to begin at a multiple of 1024.
constexpr int kSharedBytes = kStages * (kStageBytes + 16) + kStagingBytes + 1024;  // 132192

extern "C" __global__ void __launch_bounds__(kThreads, 1)  // one block stays on each multiprocessor
    gemm_mma_tma_f64_crr_tb64x64x16_w64x16_s6_skauto_linear_bias(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const __grid_constant__ tensor_map_t a_map,
        const __grid_constant__ tensor_map_t b_map, const __grid_constant__ tensor_map_t a_edge,
        const __grid_constant__ tensor_map_t b_edge, const __grid_constant__ tensor_map_t d_map,
        scalar_t beta, const output_t* C, index_t ldc, output_t* D, index_t ldd, bool early,
        const output_t* bias, index_t slices, scalar_t* partials) {
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
      const int a_chunks = inside((rows - row0 + 1) / 2, kTileM / 2);  // of each line
      const int b_chunks = inside((cols - col0 + 1) / 2, kTileN / 2);  // of each line
#pragma unroll 4
      for (int panel = 0; panel < kTileM / 16; ++panel) {
        const tensor_map_t& a_boxes = panel < a_chunks / 8 ? a_map : a_edge;
        if (col0 == 0 && panel * 8 < a_chunks) prefetch_box(a_boxes, row0 + panel * 16, k);
      }
#pragma unroll 4
      for (int panel = 0; panel < kTileN / 16; ++panel) {
        const tensor_map_t& b_boxes = panel < b_chunks / 8 ? b_map : b_edge;
        if (row0 == 0 && panel * 8 < b_chunks) prefetch_box(b_boxes, col0 + panel * 16, k);
      }
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
      const int a_chunks = inside((rows - row0 + 1) / 2, kTileM / 2);  // of each line
      const int b_chunks = inside((cols - col0 + 1) / 2, kTileN / 2);  // of each line
      const int bytes = a_chunks * (kTileK * 16) + b_chunks * (kTileK * 16);  // of both
#pragma unroll 1
      for (int n = first; n < last; ++n) {
        barrier_wait(empty(stage), phase ^ 1);  // true at once the first time round
        barrier_expect(full(stage), bytes);
        const int k = n * kTileK;
        const uint32_t a = stages + stage * kStageBytes, b = a + kBytesA;
        // All coordinates at once would take registers of the consumers, too.
#pragma unroll 4
        for (int panel = 0; panel < kTileM / 16; ++panel) {
          const tensor_map_t& a_boxes = panel < a_chunks / 8 ? a_map : a_edge;
          if (panel * 8 < a_chunks) {
            copy_box(a + panel * kPanelA, a_boxes, row0 + panel * 16, k, full(stage));
          }
        }
        // All coordinates at once would take registers of the consumers, too.
#pragma unroll 4
        for (int panel = 0; panel < kTileN / 16; ++panel) {
          const tensor_map_t& b_boxes = panel < b_chunks / 8 ? b_map : b_edge;
          if (panel * 8 < b_chunks) {
            copy_box(b + panel * kPanelB, b_boxes, col0 + panel * 16, k, full(stage));
          }
        }
        advance();
      }
    }
    return;
  }

  for (int w = blockIdx.x; w < work; next(w)) {
    WarpTile tile;
    if (first < last) {
      barrier_wait(full(stage), phase);
      int thread;  // read anew: kept while accumulators need all registers, it is spilled
      asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
      tile.read_from(stages + stage * kStageBytes, thread / 32, thread % 32);
      tile.load(0);
    }
#pragma unroll 1
    for (int n = first; n < last; ++n) {
      // While K block kb is multiplied, the next one moves from shared memory to registers.
#pragma unroll
      for (int kb = 0; kb < kKBlocks - 2; ++kb) {
        tile.load(kb + 1);
        tile.multiply(kb);
      }
      const int finished = stage;
      advance();
      const bool more = n + 1 < last;
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
    if (slices > 1) {
      store_partial(tile, partials, w, warp, lane);
      continue;
    }
    const Output out{rows, cols, alpha, beta, C, D, ldc, ldd, bias};
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
  index_t M, N, K;
  size_t A, B;  // addresses
  index_t lda, ldb, multiprocessors;

  bool packs_a = K > 0 && (A % 16 != 0 || lda % 2 != 0);  // its lines are not aligned
  index_t a_lines = packs_a ? K : 0, a_length = packs_a ? M : 0;  // to pack
  index_t a_ld = packs_a ? (a_length + 15) / 16 * 16 : lda;  // as the kernel reads it
  bool packs_b = K > 0 && (B % 16 != 0 || ldb % 2 != 0);  // its lines are not aligned
  index_t b_lines = packs_b ? K : 0, b_length = packs_b ? N : 0;  // to pack
  index_t b_ld = packs_b ? (b_length + 15) / 16 * 16 : ldb;  // as the kernel reads it
  index_t b_offset = (a_lines * a_ld * 8 + 255) / 256 * 256;  // bytes
  index_t tiles = (M + kTileM - 1) / kTileM * ((N + kTileN - 1) / kTileN);  // of D
  index_t steps = K > kTileK ? (K + kTileK - 1) / kTileK : 1;  // along K
  index_t most = steps / 4 > 1 ? steps / 4 : 1;  // slices of at least 4 steps
  index_t fit = multiprocessors / tiles;  // slices of each tile that run at the same time
  index_t wanted = fit < 2 ? 1 : fit < most ? fit : most;  // slices
  index_t each = (steps + wanted - 1) / wanted;  // steps of a slice
  index_t slices = (steps + each - 1) / each;  // as few as have no more steps
  index_t split = slices > 1 ? tiles : 0;  // tiles of many slices
  index_t partials_offset = b_offset + (b_lines * b_ld * 8 + 255) / 256 * 256;
  index_t bytes = partials_offset + slices * split * kTileM * kTileN * 8;
  index_t reduce_blocks = split * (kTileM * kTileN / 4) / (slices > 64 ? 8 : slices > 16 ? 16 : 32);
  index_t work = tiles * slices;
  index_t blocks = work < multiprocessors ? work : multiprocessors;
  bool early = work == blocks && !packs_a && !packs_b;  // the next kernel may start
  index_t a_edge = (M - 1) % 16 / 2 * 2 + 2;  // elements of a line in the last panel
  index_t b_edge = (N - 1) % 16 / 2 * 2 + 2;  // elements of a line in the last panel
  index_t a_lanes = a_length > 16 ? 32 : 8;  // for a line
  index_t b_lanes = b_length > 16 ? 32 : 8;  // for a line
  index_t a_pieces = (a_lines * a_lanes + 511) / 512 * ((a_length + 63) / 64);  // for blocks
  index_t b_pieces = (b_lines * b_lanes + 511) / 512 * ((b_length + 63) / 64);  // for blocks
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
// It holds copies of operands whose pointer or leading dimension is no multiple of 16 bytes,
// and partial sums.
extern "C" cudaError_t  // cudaSuccess once *bytes is set
gemm_mma_tma_f64_crr_tb64x64x16_w64x16_s6_skauto_linear_bias_workspace(  // for a launch with these arguments
    index_t M, index_t N, index_t K, const input_t* A, index_t lda, const input_t* B, index_t ldb,
    size_t* bytes) {
  if (bytes == nullptr) return cudaErrorInvalidValue;
  *bytes = 0;
  if (size_t(M) > kSide || size_t(N) > kSide || size_t(K) > kSide) return cudaErrorInvalidValue;
  if (M == 0 || N == 0) return cudaSuccess;  // D has no elements
  if (M > kLargest / N) return cudaErrorInvalidValue;
  if (K > 0 && (A == nullptr || lda < M || lda > kLargest / K)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return cudaErrorInvalidValue;
  int device, multiprocessors;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  const Plan plan{M, N, K, size_t(A), size_t(B), lda, ldb, multiprocessors};
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
gemm_mma_tma_f64_crr_tb64x64x16_w64x16_s6_skauto_linear_bias_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, scalar_t alpha, const input_t* A, index_t lda,
    const input_t* B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc, output_t* D,
    index_t ldd, const output_t* bias, void* workspace, size_t workspace_bytes,
    cudaStream_t stream) {
  size_t needed;  // bytes of the workspace
  auto ask = gemm_mma_tma_f64_crr_tb64x64x16_w64x16_s6_skauto_linear_bias_workspace;
  cudaError_t error = ask(M, N, K, A, lda, B, ldb, &needed);
  if (error != cudaSuccess || M == 0 || N == 0) return error;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return cudaErrorInvalidValue;
  if (bias == nullptr) return cudaErrorInvalidValue;

  int device, multiprocessors;
  error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  const Plan plan{M, N, K, size_t(A), size_t(B), lda, ldb, multiprocessors};
  bool fits = workspace != nullptr && workspace_bytes >= needed && size_t(workspace) % 256 == 0;
  if (needed > 0 && !fits) return cudaErrorInvalidValue;
  const auto space = static_cast<unsigned char*>(workspace);
  const auto a_packed = static_cast<input_t*>(workspace);
  const auto b_packed = a_packed + plan.b_offset / 8;
  const input_t* const a = plan.packs_a ? a_packed : A;
  const input_t* const b = plan.packs_b ? b_packed : B;
  const auto partials = reinterpret_cast<scalar_t*>(space + plan.partials_offset);

  constexpr auto kInput = CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
  tensor_map_t a_map, b_map, a_edge, b_edge, d_map{};
  error = make_map(a_map, kInput, 8, a, plan.M, K, plan.a_ld, 16, kTileK);
  if (error == cudaSuccess) {
    error = make_map(a_edge, kInput, 8, a, plan.M, K, plan.a_ld, plan.a_edge, kTileK);
  }
  if (error == cudaSuccess) error = make_map(b_map, kInput, 8, b, plan.N, K, plan.b_ld, 16, kTileK);
  if (error == cudaSuccess) {
    error = make_map(b_edge, kInput, 8, b, plan.N, K, plan.b_ld, plan.b_edge, kTileK);
  }
  if (error == cudaSuccess && size_t(D) % 16 == 0 && ldd % 2 == 0) {
    error = make_map(d_map, kInput, 8, D, plan.N, plan.M, ldd, 16, 64);
  }
  if (error != cudaSuccess) return error;

  const auto kernel = gemm_mma_tma_f64_crr_tb64x64x16_w64x16_s6_skauto_linear_bias;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;
  // Blocks of the next kernel start early and need shared memory beside this one's: all of the L1
  // cache is to be shared memory.
  error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  if (error != cudaSuccess) return error;

  if (plan.packs_a || plan.packs_b) {
    error = launch(  // a kernel that packs both
        gemm_mma_tma_f64_crr_tb64x64x16_w64x16_s6_skauto_linear_bias_pack,
        dim3(unsigned(plan.pack_blocks), 1, 2), 256, 0, stream, plan.a_lines, plan.a_length, A, lda,
        a_packed, plan.a_ld, plan.b_lines, plan.b_length, B, ldb, b_packed, plan.b_ld);
    if (error != cudaSuccess) return error;
  }
  error = launch(
      kernel, dim3(unsigned(plan.blocks)), kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, alpha, a_map, b_map, a_edge, b_edge, d_map, beta, C, ldc, D, ldd,
      plan.early, bias, plan.slices, partials);
  if (error != cudaSuccess || plan.slices == 1) return error;

  return launch(  // a kernel that adds up the partial sums
      gemm_mma_tma_f64_crr_tb64x64x16_w64x16_s6_skauto_linear_bias_reduce,
      dim3(unsigned(plan.reduce_blocks)), 256, 0, stream, plan.M, plan.N, alpha, beta, C, ldc, D,
      ldd, bias, plan.slices, partials);
}

#endif  // __CUDACC_RTC__
}  // namespace gemm_mma_tma_f64_crr_tb64x64x16_w64x16_s6_skauto_linear_bias_ns
