// gemm_simt_f64_crc_tb64x64x16_w32x32_tk2_stream1_linear_bias_batched: D = alpha * A * B + beta * C + bias
//
// CUDA cores, with as much of D in registers as they hold: a lane computes 4 x 8 elements of it, so that most
// instructions multiply. A scheduler issues one instruction in a clock: what loads, copies and counts is in the way
// of what multiplies.
//
// A block computes a work tile of D. Shared memory has lines of one k each: a column of A's tile, and beside it
// a row of B's. A lane reads 2 elements of a line at a time; those of k + 1 while it multiplies those of k.
// Copies (cp.async) are up to 3 steps ahead of that, pass no registers, and transpose on their way: an operand
// whose lines run along K is copied element by element, which needs no alignment, either. Warps hand steps on at an
// mbarrier: each says that its copies are there a whole step before anybody waits for them.
// 2 teams of warps compute the same work tile, each with its share of every step along K ("sliced-K"): small
// tiles have as many elements a lane as large ones. In the end, their sums meet in shared memory.
// As many blocks as the GPU holds stay until all work tiles are done. They share along K the tiles that would
// not fill a round, so that all end together ("stream-K"). So a result, which is the same in every run, depends
// on how many multiprocessors a GPU has.
//
//   A  M x K, column-major, double
//   B  K x N, row-major, double
//   C  M x N, column-major, double; not read when beta is 0
//   D  M x N, column-major, double; must not overlap A or B; may be C, where ldc is ldd
//   bias  N elements, double: one for each column of D
//
// A batch of such products: their matrices are stride_a, stride_b, stride_c and stride_d elements apart.
// Where a stride of A, B or C is 0, all products have the same matrix. Those of D do not overlap; where
// D is C, both have one stride.
//
// M, N, K from 0 to 2^31 - 4096, any leading dimension, in elements. Accumulators are double,
// alpha and beta are double. Needs a GPU of compute capability 8.0 or newer and C++17.
//
// Made by gemmgen 0.2.0:  gen emit --variant simt --dtype f64 --layout crc --arch sm_80 --threadblock 64x64x16 --warp 32x32 --stages 4 --sliced-k 2 --stream-k 1 --held 0 --split-k 1 --epilogue linear_bias --swizzle 12 --batched
// Compile:  nvcc -std=c++17 -arch=sm_80 -c gemm_simt_f64_crc_tb64x64x16_w32x32_tk2_stream1_linear_bias_batched.cu, or by NVRTC as it is
// gen-spec: {"variant": "simt", "dtype": "f64", "layout": "crc", "arch": "sm_80", "threadblock": "64x64x16", "warp": "32x32", "stages": 4, "sliced_k": 2, "stream_k": 1, "held": 0, "split_k": 1, "epilogue": "linear_bias", "swizzle": 12, "batched": true}
// SPDX-License-Identifier: 0BSD

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "for -arch=sm_80 or newer: older GPUs lack the kernel's instructions"
#endif

namespace gemm_simt_f64_crc_tb64x64x16_w32x32_tk2_stream1_linear_bias_batched_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = double;
using output_t = double;
using scalar_t = double;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;
constexpr int kTileM = 64, kTileN = 64, kTileK = 16;  // of a block: work tile, step along K
constexpr int kThreads = 256;  // 8 warps

constexpr int kWarpM = 32, kWarpN = 32;  // what each warp computes of the work tile
constexpr int kLaneM = kWarpM / 8, kLaneN = kWarpN / 4;  // and each lane: 4 x 8 elements
constexpr int kStages = 4;  // steps along K that are in shared memory or on their way
constexpr int kGroup = 12;  // work tiles along M that are computed close in time: see tile_at
constexpr int kWarpsM = kTileM / kWarpM;  // 64 / 32 = 2
constexpr int kTeams = 2;  // of warps, which share out K
constexpr int kWarps = kThreads / 32 / kTeams;  // of a team: 4
constexpr int kTeamK = kTileK / kTeams;  // of a step, what each multiplies: 16 / 2 = 8
constexpr int kChunk = 2;  // elements in 16 bytes
// Elements of a line in shared memory, with a gap against bank conflicts.
constexpr int kLine = kTileM + kTileN + 2;  // 130
constexpr int kStep = kTileK * kLine;  // 2080 elements: lines of a step
constexpr int kStepBytes = kStep * sizeof(input_t);  // of a stage in shared memory
constexpr int kLinesAt = 16;  // where the first one begins there, in bytes: behind an mbarrier

// ------------------------------------------------------------------------ PTX
__device__ inline uint32_t shared_address(const void* pointer) {  // as PTX instructions take it
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
__device__ inline void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ inline void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Until the phase with this parity is over: phases count 0, 1, 0, 1, ...
__device__ inline void barrier_wait(uint32_t barrier, int parity) {
  asm volatile(
      "{\n.reg .pred over;\nagain: mbarrier.test_wait.parity.shared.b64 over, [%0], %1;\n"
      "@!over bra again;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// Starts to copy kCount elements, which lie at a multiple of their size; zeros take the place of some that do
// not exist.
template <int kCount>
__device__ inline void start_copy(uint32_t shared, const input_t* global, bool exist) {
  if constexpr (kCount == kChunk) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
                 "r"(exist ? 16 : 0)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared), "l"(global),
                 "r"(exist ? 8 : 0)
                 : "memory");
  }
}

// ------------------------------------------------------------------------ what a warp computes
using chunk_t = double2;  // kChunk elements, read and written at once

// A warp's part of the work tile, with fragments of two k: one is loaded while the other is multiplied.
// Lane 4g + t (g = 0..7, t = 0..3) has rows 2g to 2g + 1 of each 16, and columns 2t to 2t + 1 of each 8: lanes
// that do not read the same chunks of a line read neighbouring ones, from different banks.
struct WarpTile {
  scalar_t acc[kLaneM][kLaneN];
  alignas(16) input_t a[2][kLaneM], b[2][kLaneN];
  const input_t *a_at, *b_at;  // what the lane reads of a line first

  __device__ void clear() {
#pragma unroll
    for (auto& row : acc) {
#pragma unroll
      for (auto& x : row) x = 0;
    }
  }
  // Lets loads begin with the first of these lines.
  __device__ void read_from(const input_t* lines, int warp, int lane) {
    lines += warp / kWarps * kTeamK * kLine;  // the team's
    warp %= kWarps;
    a_at = lines + warp % kWarpsM * kWarpM + lane / 4 * kChunk;
    b_at = lines + kTileM + warp / kWarpsM * kWarpN + lane % 4 * kChunk;
  }
  // Lets loads begin so many elements further on.
  __device__ void move(int elements) {
    a_at += elements;
    b_at += elements;
  }
  __device__ void load(int k) {
#pragma unroll
    for (int j = 0; j < kLaneN; j += kChunk) {
      const auto& from = b_at[k * kLine + 4 * j];
      reinterpret_cast<chunk_t&>(b[k % 2][j]) = reinterpret_cast<const chunk_t&>(from);
    }
#pragma unroll
    for (int i = 0; i < kLaneM; i += kChunk) {
      const auto& from = a_at[k * kLine + 8 * i];
      reinterpret_cast<chunk_t&>(a[k % 2][i]) = reinterpret_cast<const chunk_t&>(from);
    }
  }
  __device__ void multiply(int k) {
#pragma unroll
    for (int i = 0; i < kLaneM; ++i) {
#pragma unroll
      for (int n = 0; n < kLaneN; ++n) {
        const int j = i % 2 ? n : kLaneN - 1 - n;  // there and back: one operand stays
        acc[i][j] += a[k % 2][i] * b[k % 2][j];
      }
    }
  }
  // Writes the sums of kChunk rows, those of a pass.
  __device__ void write(int pass, scalar_t* to, int line) const {
#pragma unroll
    for (int i = 0; i < kLaneM; i += kChunk) {
      if (i / kChunk != pass) continue;  // registers have no variable index
#pragma unroll
      for (int r = 0; r < kChunk; ++r) {
#pragma unroll
        for (int j = 0; j < kLaneN; j += kChunk) {
          const auto& x = acc[i + r];
          reinterpret_cast<chunk_t&>(to[r * line + 4 * j]) = {x[j], x[j + 1]};
        }
      }
    }
  }
};

// ------------------------------------------------------------------------ operands
// A pointer so many bytes further on.
__device__ inline const input_t* later(const input_t* from, index_t bytes) {
  return reinterpret_cast<const input_t*>(reinterpret_cast<const char*>(from) + bytes);
}

// Whether all chunks lie at a multiple of 16 bytes, and no line ends in one.
template <int kWidth>
__device__ inline bool comes_in_chunks(const input_t* matrix, index_t ld, int count) {
  const bool aligned = reinterpret_cast<size_t>(matrix) % 16 == 0 && ld % kChunk == 0;
  return aligned && (count >= kWidth || count % kChunk == 0);
}

// A thread's copies of an operand whose lines are those of shared memory, in chunks or element by
// element: the same lines, and as many elements of each.
template <int kWidth>
struct Across {
  static constexpr int kOfLine = kWidth / kChunk;  // chunks
  static constexpr int kThreadsOfLine = kOfLine < kThreads ? kOfLine : kThreads;
  static constexpr int kAtOnce = kThreads / kThreadsOfLine;  // lines
  static constexpr int kLinesOwn = (kTileK + kAtOnce - 1) / kAtOnce;

  const input_t* from[size_t(kLinesOwn)];  // of the present step
  index_t step;  // bytes from there to the next one
  uint32_t to;
  int left, room;  // lines from there to the last one, elements to the end of the line

  __device__ Across(
      const input_t* matrix, index_t ld, int count, int depth, input_t* lines, bool in_chunks) {
    const int line = threadIdx.x / kThreadsOfLine;
    const int at = threadIdx.x % kThreadsOfLine * (in_chunks ? kChunk : 1);
#pragma unroll
    for (int i = 0; i < kLinesOwn; ++i) from[i] = matrix + (line + i * kAtOnce) * ld + at;
    step = kTileK * ld * index_t(sizeof(input_t));
    to = shared_address(lines + line * kLine + at);
    room = count - at;
    left = room > 0 && line < kTileK ? depth - line : 0;
    asm volatile("" : "+l"(step), "+r"(to), "+r"(room));  // not to be computed anew at each step
  }
  // Starts a step's, kCount elements at a time.
  template <int kCount>
  __device__ void copy(uint32_t place) {
    constexpr int kNext = kThreadsOfLine * kCount;  // elements from one of a line to the next one
#pragma unroll
    for (int i = 0; i < kLinesOwn; ++i) {
#pragma unroll
      for (int e = 0; e < kWidth; e += kNext) {
        const uint32_t at = to + place + (i * kAtOnce * kLine + e) * sizeof(input_t);
        if (kAtOnce <= kTileK || threadIdx.x < kThreadsOfLine * kTileK) {
          start_copy<kCount>(at, from[i] + e, i * kAtOnce < left && (e == 0 || e < room));
        }
      }
    }
  }
  __device__ void next_step() {
#pragma unroll
    for (auto& line : from) line = later(line, step);
    left -= kTileK;
  }
};

// Starts a step's copies, with zeros in place of what does not exist.
template <int kCount>
__device__ inline void start_copies(Across<kTileM>& a, Across<kTileN>& b, uint32_t place) {
  a.copy<kCount>(place);
  b.copy<kCount>(place);
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Multiplies the rows of A that begin at `A`, and the columns of B that begin at `B`: those of a work tile and of
// some steps along K.
// in_chunks: whether A and B can be copied 16 bytes at a time.
__device__ inline void multiply(
    WarpTile& tile, const input_t* A, index_t lda, int rows, const input_t* B, index_t ldb,
    int cols, int depth, bool in_chunks, input_t* lines, int warp, int lane, int& phase) {
  Across<kTileM> a(A, lda, rows, depth, lines, in_chunks);
  Across<kTileN> b(B, ldb, cols, depth, lines + kTileM, in_chunks);
  uint32_t place = 0;  // where copies go: bytes behind the first line
  const auto copy = [&] {
    if (in_chunks) {
      start_copies<kChunk>(a, b, place);
    } else {
      start_copies<1>(a, b, place);
    }
  };
  const auto next = [&] {
    a.next_step();
    b.next_step();
    place += kStepBytes;
    if (place == kStages * kStepBytes) place = 0;
  };
  uint32_t ready = shared_address(lines) - kLinesAt;  // an mbarrier
  asm volatile("" : "+r"(ready));  // not to be computed anew at each step
  // Says that the warp's copies are there, except those of the newest step,
  // and that it has read the step before the one that it multiplies.
  const auto arrive = [&] {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncwarp();  // all lanes' copies
    if (lane == 0) barrier_arrive(ready);
  };

#pragma unroll 1
  for (int s = 0; s < kStages - 1; ++s) {
    if (s > 0) next();
    copy();
  }
  tile.clear();
  tile.read_from(lines, warp, lane);
  asm volatile("cp.async.wait_group 2;" ::: "memory");
  __syncthreads();  // the first step's lines are there, for all threads, and so is the mbarrier
  arrive();
  tile.load(0);

  // Main loop, a step in a turn. What is not a multiplication stands together: elsewhere, each copy
  // would cost more instructions, and ptxas would find worse registers for the multiplications. The
  // branch in `copy`, which all threads take alike, keeps it there.
  // Copies go on behind the end of K, where they write zeros that nobody multiplies.
  // A warp arrives at the mbarrier a step before others wait for it there, so that it may be that
  // much behind them.
  int stage = 0;  // what is read
#pragma unroll 1
  for (; depth > 0; depth -= kTileK) {
#pragma unroll
    for (int k = 0; k < kTeamK; ++k) {
      if (k == 0) next();  // long before copies need it, and long after they read these registers
      if (k == kTeamK - 1) {
        const bool last = ++stage == kStages;
        tile.move(last ? kStep - kStages * kStep : kStep);
        if (last) stage = 0;
        // The next step's lines are there, and nobody reads those of the one before any more.
        barrier_wait(ready, phase);
        phase ^= 1;
      }
      tile.load((k + 1) % kTeamK);
      if (k == kTeamK - 1) {
        copy();  // in place of the step before
        arrive();
      }
      tile.multiply(k % 2);
    }
  }
  barrier_wait(ready, phase);  // for the last arrivals, so that phases stay in step with pieces
  phase ^= 1;
  asm volatile("cp.async.wait_all;" ::: "memory");  // what nobody needs, and sums take the place of
}

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

// Sums on their way from registers, where a lane has neighbours of several rows, to memory, where
// neighbouring threads write neighbours of one: kChunk rows of each lane in a pass.
constexpr int kPasses = kLaneM / kChunk;
constexpr int kSpan = 8 * kChunk;  // rows of a warp in a pass
constexpr int kStagedRows = kWarpsM * kSpan;
constexpr int kStagedLine = kTileN + 4;  // with a gap against bank conflicts
constexpr int kStagedBytes = kTeams * kStagedRows * kStagedLine * sizeof(scalar_t);

template <int kCount>
struct alignas(kCount * sizeof(scalar_t)) Elements {
  scalar_t of[size_t(kCount)];
};

// Writes all threads' sums of a pass to `staged`.
__device__ inline void stage(const WarpTile& tile, scalar_t* staged, int pass, int warp, int lane) {
  staged += warp / kWarps * kStagedRows * kStagedLine;  // the team's
  warp %= kWarps;
  const int row = warp % kWarpsM * kSpan + lane / 4 * kChunk;
  const int col = warp / kWarpsM * kWarpN + lane % 4 * kChunk;
  __syncthreads();  // nobody reads what was there
  tile.write(pass, staged + row * kStagedLine + col, kStagedLine);
  __syncthreads();  // all sums are there
}

// kCount sums beside each other, from a row and a column of `staged` on.
template <int kCount>
__device__ inline Elements<kCount> staged_sums(const scalar_t* staged, int row, int col) {
  const scalar_t* from = staged + row * kStagedLine + col;
  auto sums = reinterpret_cast<const Elements<kCount>&>(*from);
#pragma unroll
  for (int team = 1; team < kTeams; ++team) {
    from += kStagedRows * kStagedLine;
    const auto others = reinterpret_cast<const Elements<kCount>&>(*from);
#pragma unroll
    for (int e = 0; e < kCount; ++e) sums.of[e] += others.of[e];
  }
  return sums;
}

// Makes D of staged sums, kCount elements at a time. A thread has its columns in all rows, so that addresses are a
// step apart; of several rows, sums are read at once.
template <int kCount>
__device__ inline void finish(
    const scalar_t* staged, int pass, const Output& out, int row0, int col0) {
  constexpr int kPerLine = kTileN / kCount, kBeside = kPerLine < kThreads ? kPerLine : kThreads;
  constexpr int kBelow = kThreads / kBeside, kTimes = (kSpan + kBelow - 1) / kBelow;
  constexpr int kAtOnce = kCount > 1 ? 1 : kTimes < 4 ? kTimes : 4;
  const int below = threadIdx.x / kBeside;
#pragma unroll 1
  for (int at = threadIdx.x % kBeside; at < kPerLine; at += kBeside) {
    const int col = col0 + at * kCount;
    if (col >= out.cols) return;
#pragma unroll 1
    for (int warp = 0; warp < kWarpsM; ++warp) {
      int row = row0 + warp * kWarpM + pass * kSpan + below;
      const output_t* c = out.C + row * out.ldc + col;
      output_t* to = out.D + row * out.ldd + col;
#pragma unroll kAtOnce
      for (int i = 0; i < kTimes; ++i) {
        const int line = below + i * kBelow;
        if (kSpan % kBelow > 0 && line >= kSpan) break;
        const auto sums = staged_sums<kCount>(staged, warp * kSpan + line, at * kCount);
        if (row < out.rows) {
          Elements<kCount> d{};
          if (out.beta != 0) d = reinterpret_cast<const Elements<kCount>&>(*c);
#pragma unroll
          for (int e = 0; e < kCount; ++e) {
            scalar_t x = out.alpha * sums.of[e];
            if (out.beta != 0) x += out.beta * d.of[e];
            x += out.bias[row];
            d.of[e] = output_t(x);
          }
          reinterpret_cast<Elements<kCount>&>(*to) = d;
        }
        row += kBelow;
        c += kBelow * out.ldc;
        to += kBelow * out.ldd;
      }
    }
  }
}

// Writes a block's part of D, whose first element is at (row0, col0).
__device__ inline void store(
    const WarpTile& tile, const Output& out, int row0, int col0, scalar_t* staged, int warp,
    int lane) {
  const bool aligned = is_aligned(out.D, out.ldd) &&
                       (out.beta == 0 || is_aligned(out.C, out.ldc)) &&
                       (col0 + kTileN <= out.cols || out.cols % kChunk == 0);
#pragma unroll 1
  for (int pass = 0; pass < kPasses; ++pass) {
    stage(tile, staged, pass, warp, lane);
    if (aligned) {
      finish<kChunk>(staged, pass, out, row0, col0);
    } else {
      finish<1>(staged, pass, out, row0, col0);
    }
  }
}

// ------------------------------------------------------------------------ stream-K
// Where whole tiles would leave blocks without one in the last round, all blocks share the tiles of that
// round and of the one before ("stream-K"), after all others: the steps along K of these tiles, one tile
// behind another, are cut into ranges of the same length, one for each block. That is no less than a
// tile's, so that no more than two blocks share a tile: who has its first steps gives their sums to who
// has its last ones and finishes it. What is added to what depends on the number of multiprocessors alone.

// Where a range begins: at its number times the shared tiles, over the blocks. It has the steps of `tile`
// before `step`; those behind belong to the range before.
__device__ inline void begin_of(
    uint32_t range, uint32_t work, uint32_t steps, int& tile, int& step) {
  const uint32_t over = work % gridDim.x, more = range * over, part = more % gridDim.x;
  tile = work - gridDim.x - over + range + more / gridDim.x;
  // part * steps / gridDim.x without overflow
  step = steps - part * (steps / gridDim.x) - part * (steps % gridDim.x) / gridDim.x;
}

// What the calling warp of a block gives, or takes from the same warp of the one before: its sums, those
// of neighbouring lanes next to each other, and a flag that says that they are there.
struct Given {
  double* sums;  // a lane's own, at every 32nd place
  int* flag;

  __device__ Given(void* partials, int* flags, int block) {
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    const int warp = block * (kThreads / 32) + thread / 32;
    sums = static_cast<double*>(partials) + index_t(warp) * (kWarpM * kWarpN) + thread % 32;
    flag = flags + warp;
  }

  __device__ void give(const WarpTile& tile) {
#pragma unroll
    for (const auto& row : tile.acc) {
#pragma unroll
      for (const auto& x : row) {
        *sums = x;
        sums += 32;
      }
    }
    __syncwarp();  // all lanes have written
    if (threadIdx.x % 32 == 0) {
      asm volatile("st.release.gpu.global.s32 [%0], 1;" ::"l"(flag) : "memory");
    }
  }

  // Waits until the sums are there.
  __device__ void take(WarpTile& tile) {
    int set = 0;
    while (!set) {
      asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(set) : "l"(flag) : "memory");
      // So the compiler knows that all lanes go on at once, and main loops may share registers among them.
      set = __all_sync(0xffffffff, set);
    }
#pragma unroll
    for (auto& row : tile.acc) {
#pragma unroll
      for (auto& x : row) {
        x += *sums;
        sums += 32;
      }
    }
  }
};

extern "C" __global__ void __launch_bounds__(256)  // one block
    gemm_simt_f64_crc_tb64x64x16_w32x32_tk2_stream1_linear_bias_batched_clear(  // no warp has given anything yet
        index_t count, int* flags) {
  for (index_t i = threadIdx.x; i < count; i += 256) flags[i] = 0;
}

// ------------------------------------------------------------------------ the kernel
constexpr int kSharedBytes = kLinesAt + kStages * kStepBytes;  // 66576
static_assert(kLinesAt + kStagedBytes <= kSharedBytes);  // sums take the lines' place

extern "C" __global__ void __launch_bounds__(kThreads)  // lets the compiler count on the block size
    gemm_simt_f64_crc_tb64x64x16_w32x32_tk2_stream1_linear_bias_batched(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, index_t batch, scalar_t alpha,
        const input_t* __restrict__ A, index_t lda, index_t stride_a, const input_t* __restrict__ B,
        index_t ldb, index_t stride_b, scalar_t beta, const output_t* C, index_t ldc,
        index_t stride_c, output_t* D, index_t ldd, index_t stride_d, const output_t* bias,
        void* partials, int* flags) {
  extern __shared__ __align__(128) unsigned char shared[];  // an mbarrier, steps of kStep elements
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  const int rows = int(M), cols = int(N);
  const int tiles_m = (rows + kTileM - 1) / kTileM, tiles_n = (cols + kTileN - 1) / kTileN;
  const int steps = int((K + kTileK - 1) / kTileK), work = tiles_m * tiles_n * int(batch);
  // A piece of work is a tile of D, and its steps along K from `first` to before `last`. Whole tiles come
  // first, round by round, then those of the block's range. Ranges descend, so that a block waits only for
  // the one before it, which has started: blocks start in their order. It gives with the first tile of its
  // range, and waits, if at all, with the last one. So nobody waits for ever, however few run at a time.
  // Of three tiles, the one in the middle comes first. So all blocks begin with step 0 together, and again
  // when they have had a whole tile; in the end, all come to the last step together. Those that run at the
  // same time find each other's operands in L2.
  const int whole = work - gridDim.x - work % gridDim.x;
  int product, row0, col0, first, last, begin_tile, begin_step, end_tile, end_step;
  begin_of(gridDim.x - 1 - blockIdx.x, work, steps, begin_tile, begin_step);
  begin_of(gridDim.x - blockIdx.x, work, steps, end_tile, end_step);
  if (end_step == steps) {  // the range ends with a whole tile
    --end_tile;
    end_step = 0;
  }
  const auto next = [&](int& w) {
    if (w >= whole) {
      ++w;
    } else if ((w += gridDim.x) >= whole) {
      w = begin_tile;
    }
    const bool turned = w >= whole && w < end_tile && end_tile - begin_tile == 2;
    const int tile = turned ? 2 * begin_tile + 1 - w : w;
    first = tile == end_tile ? end_step : 0;
    last = tile == begin_tile ? begin_step : steps;
    tile_at(tile, tiles_m, tiles_n, product, row0, col0);
  };
  int begin_work = int(blockIdx.x) - int(gridDim.x);
  next(begin_work);

  const auto lines = reinterpret_cast<input_t*>(shared + kLinesAt);
  if (threadIdx.x == 0) barrier_init(shared_address(shared), kThreads / 32);
  int phase = 0;  // of the mbarrier
  for (int w = begin_work; w <= end_tile; next(w)) {
    const int begin = first * kTileK, end = last * kTileK;  // along K
    const int depth = (end < int(K) ? end : int(K)) - begin;
    __syncthreads();  // nobody reads any more what shared memory had for the piece before
    WarpTile tile;
    const input_t* a = A + product * stride_a + row0 + index_t(begin) * lda;
    const input_t* b = B + product * stride_b + col0 + index_t(begin) * ldb;
    const bool in_chunks = comes_in_chunks<kTileM>(a, lda, rows - row0) &&
                           comes_in_chunks<kTileN>(b, ldb, cols - col0);
    multiply(
        tile, a, lda, rows - row0, b, ldb, cols - col0, depth, in_chunks, lines, warp, lane, phase);
    if (last < steps) {
      Given(partials, flags, blockIdx.x).give(tile);
      continue;
    }
    if (first > 0) Given(partials, flags, blockIdx.x - 1).take(tile);
    const auto sums = reinterpret_cast<scalar_t*>(lines);

    const output_t* const c = beta != 0 ? C + product * stride_c : C;
    output_t* const d = D + product * stride_d;
    const Output out{rows, cols, alpha, beta, c, d, ldc, ldd, bias};
    store(tile, out, row0, col0, sums, warp, lane);
  }
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

// A launch, worked out from top to bottom. What is computed is the transpose of D, B' * A': M and N are
// those of that product.
struct Plan {
  index_t M, N, K, batch, multiprocessors;

  index_t tiles = (M + kTileM - 1) / kTileM * ((N + kTileN - 1) / kTileN) * batch;  // of D
  index_t places = 2 * multiprocessors;  // of blocks, about
  index_t blocks = tiles < places ? tiles : places;
  index_t sharing = K > 0 && tiles % blocks > 0 ? blocks : 0;  // blocks that share tiles
  index_t flags_offset = sharing * kTileM * kTileN * 16;  // bytes
  index_t flags = sharing * 8;  // for each warp of a tile one
  index_t bytes = flags_offset + flags * 4;  // of the workspace
};

constexpr size_t kSide = 2147479552;  // M, N, K: 2^31 - 4096, so that where a tile ends is an int
constexpr size_t kMost = 2147418112;  // work tiles: the next one of a block is an int, too
constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows

// Sets *bytes to the size of the workspace that the launcher needs on the current device, or to 0 where
// it returns the launcher's error 1 or 9.
// It holds partial sums.
extern "C" cudaError_t  // cudaSuccess once *bytes is set
gemm_simt_f64_crc_tb64x64x16_w32x32_tk2_stream1_linear_bias_batched_workspace(  // for a launch with these arguments
    index_t M, index_t N, index_t K, index_t batch, const input_t* A, index_t lda, index_t stride_a,
    const input_t* B, index_t ldb, index_t stride_b, size_t* bytes) {
  if (bytes == nullptr) return cudaErrorInvalidValue;
  *bytes = 0;
  if (size_t(M) > kSide || size_t(N) > kSide || size_t(K) > kSide) return cudaErrorInvalidValue;
  if (size_t(batch) > kMost) return cudaErrorInvalidValue;
  if (M == 0 || N == 0 || batch == 0) return cudaSuccess;  // D has no elements
  if (M > kLargest / N || batch > kLargest / (M * N)) return cudaErrorInvalidValue;
  if (K > 0 && (A == nullptr || lda < M || lda > kLargest / K)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return cudaErrorInvalidValue;
  if (K > 0 && (stride_a < 0 || stride_a > kLargest / batch)) return cudaErrorInvalidValue;
  if (K > 0 && (stride_b < 0 || stride_b > kLargest / batch)) return cudaErrorInvalidValue;
  int device, multiprocessors;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  const Plan plan{N, M, K, batch, multiprocessors};
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
//   209  cudaErrorNoKernelImageForDevice: a GPU older than nvcc's -arch. For newer ones the driver
//        compiles the file's PTX when it is first needed, unless nvcc was told to leave PTX out
//   400  cudaErrorInvalidResourceHandle: a stream of another device
extern "C" cudaError_t  // cudaSuccess once the kernels are on their way
gemm_simt_f64_crc_tb64x64x16_w32x32_tk2_stream1_linear_bias_batched_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, index_t batch, scalar_t alpha, const input_t* A, index_t lda,
    index_t stride_a, const input_t* B, index_t ldb, index_t stride_b, scalar_t beta,
    const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd, index_t stride_d,
    const output_t* bias, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  size_t needed;  // bytes of the workspace
  auto ask = gemm_simt_f64_crc_tb64x64x16_w32x32_tk2_stream1_linear_bias_batched_workspace;
  cudaError_t error = ask(M, N, K, batch, A, lda, stride_a, B, ldb, stride_b, &needed);
  if (error != cudaSuccess || M == 0 || N == 0 || batch == 0) return error;
  if (beta != 0 && (C == nullptr || ldc < M || ldc > kLargest / N)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < M || ldd > kLargest / N) return cudaErrorInvalidValue;
  if (beta != 0 && (stride_c < 0 || stride_c > kLargest / batch)) return cudaErrorInvalidValue;
  if (stride_d < 0 || stride_d > kLargest / batch) return cudaErrorInvalidValue;
  // Products of D do not overlap.
  const bool follow = stride_d >= (N - 1) * ldd + M;  // one behind the other
  const bool beside = stride_d >= M && (batch - 1) * stride_d + M <= ldd;  // in the same lines
  if (batch > 1 && !follow && !beside) return cudaErrorInvalidValue;
  if (bias == nullptr) return cudaErrorInvalidValue;

  int device, multiprocessors;
  error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  const Plan plan{N, M, K, batch, multiprocessors};
  bool fits = workspace != nullptr && workspace_bytes >= needed && size_t(workspace) % 256 == 0;
  if (needed > 0 && !fits) return cudaErrorInvalidValue;
  void* const partials = workspace;
  const auto flags =
      reinterpret_cast<int*>(static_cast<unsigned char*>(workspace) + plan.flags_offset);

  const auto kernel = gemm_simt_f64_crc_tb64x64x16_w32x32_tk2_stream1_linear_bias_batched;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;

  if (plan.flags > 0) {
    error = launch(  // a kernel that clears the flags
        gemm_simt_f64_crc_tb64x64x16_w32x32_tk2_stream1_linear_bias_batched_clear, dim3(1), 256, 0,
        stream, plan.flags, flags);
    if (error != cudaSuccess) return error;
  }
  const dim3 grid(unsigned(plan.blocks));
  return launch(
      kernel, grid, kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, batch, alpha, B, ldb, stride_b, A, lda, stride_a, beta, C, ldc, stride_c,
      D, ldd, stride_d, bias, partials, flags);
}

#endif  // __CUDACC_RTC__
}  // namespace gemm_simt_f64_crc_tb64x64x16_w32x32_tk2_stream1_linear_bias_batched_ns
