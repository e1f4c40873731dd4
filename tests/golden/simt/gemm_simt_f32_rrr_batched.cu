// gemm_simt_f32_rrr_batched: D = alpha * A * B + beta * C
//
// CUDA cores, with as much of D in registers as they hold: a lane computes 8 x 16 elements of it, so that most
// instructions multiply. A scheduler issues one instruction in a clock: what loads, copies and counts is in the way
// of what multiplies.
//
// A block computes a work tile of D. Shared memory has lines of one k each: a column of A's tile, and beside it
// a row of B's. A lane reads 4 elements of a line at a time; those of k + 1 while it multiplies those of k.
// Copies are up to 3 steps ahead of that, and transpose on their way. Operands that can be read 16 bytes at a time
// pass registers, where they wait for most of a step; others are copied element by element (cp.async), which needs no
// alignment. Warps hand steps on at an mbarrier: each says that its copies are there a whole step before anybody waits
// for them.
//
//   A  M x K, row-major, float
//   B  K x N, row-major, float
//   C  M x N, row-major, float; not read when beta is 0
//   D  M x N, row-major, float; must not overlap A or B; may be C, where ldc is ldd
//
// A batch of such products: their matrices are stride_a, stride_b, stride_c and stride_d elements apart.
// Where a stride of A, B or C is 0, all products have the same matrix. Those of D do not overlap; where
// D is C, both have one stride.
//
// M, N, K from 0 to 2^31 - 4096, any leading dimension, in elements. Accumulators are float,
// alpha and beta are float. Needs a GPU of compute capability 8.0 or newer and C++17.
//
// Made by gemmgen 0.2.0:  gen emit --variant simt --dtype f32 --layout rrr --arch sm_80 --threadblock 128x256x8 --warp 64x64 --stages 4 --sliced-k 1 --stream-k 0 --held 1 --split-k 1 --epilogue linear --swizzle 12 --batched
// Compile:  nvcc -std=c++17 -arch=sm_80 -c gemm_simt_f32_rrr_batched.cu, or by NVRTC as it is
// gen-spec: {"variant": "simt", "dtype": "f32", "layout": "rrr", "arch": "sm_80", "threadblock": "128x256x8", "warp": "64x64", "stages": 4, "sliced_k": 1, "stream_k": 0, "held": 1, "split_k": 1, "epilogue": "linear", "swizzle": 12, "batched": true}
// SPDX-License-Identifier: 0BSD

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "for -arch=sm_80 or newer: older GPUs lack the kernel's instructions"
#endif

namespace gemm_simt_f32_rrr_batched_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = float;
using output_t = float;
using scalar_t = float;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;
constexpr int kTileM = 128, kTileN = 256, kTileK = 8;  // of a block: work tile, step along K
constexpr int kThreads = 256;  // 8 warps

constexpr int kWarpM = 64, kWarpN = 64;  // what each warp computes of the work tile
constexpr int kLaneM = kWarpM / 8, kLaneN = kWarpN / 4;  // and each lane: 8 x 16 elements
constexpr int kStages = 4;  // steps along K that are in shared memory or on their way
constexpr int kGroup = 12;  // work tiles along M that are computed close in time: see tile_at
constexpr int kWarpsM = kTileM / kWarpM;  // 128 / 64 = 2
constexpr int kTeamK = kTileK;
constexpr int kChunk = 4;  // elements in 16 bytes
// Elements of a line in shared memory, with a gap against bank conflicts.
constexpr int kLine = kTileM + kTileN + 16;  // 400
constexpr int kLanesK = kTileK / kChunk;  // threads that read a line's chunks, which are neighbours
// Where the line of a k is among those of a step: beside those of the same place in other chunks, so that what
// a warp stores at once, an element of each lane's chunk, lies in 32 banks.
__host__ __device__ constexpr int line_at(int k) {
  return (k % kChunk * kLanesK + k / kChunk) * kLine;
}
constexpr int kStep = kTileK * kLine;  // 3200 elements: lines of a step
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
// Starts to copy an element, or zero in place of one that does not exist.
__device__ inline void start_copy(uint32_t shared, const input_t* global, bool exists) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(global),
               "r"(exists ? 4 : 0)
               : "memory");
}

// ------------------------------------------------------------------------ what a warp computes
using chunk_t = float4;  // kChunk elements, read and written at once

// A warp's part of the work tile, with fragments of two k: one is loaded while the other is multiplied.
// Lane 4g + t (g = 0..7, t = 0..3) has rows 4g to 4g + 3 of each 32, and columns 4t to 4t + 3 of each 16: lanes
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
      const auto& from = b_at[line_at(k) + 4 * j];
      reinterpret_cast<chunk_t&>(b[k % 2][j]) = reinterpret_cast<const chunk_t&>(from);
    }
#pragma unroll
    for (int i = 0; i < kLaneM; i += kChunk) {
      const auto& from = a_at[line_at(k) + 8 * i];
      reinterpret_cast<chunk_t&>(a[k % 2][i]) = reinterpret_cast<const chunk_t&>(from);
    }
  }
  // The register file has two banks, even and odd, and gives one register of each in a clock:
  // besides a[i], which stays for a row, a multiplication reads b[j] and acc[i][j]. Where b[j] is
  // even, acc[i][j] is odd, because `write` takes sums in pairs that are swapped: ptxas keeps them
  // in such registers from the beginning.
  __device__ void multiply(int k) {
#pragma unroll
    for (int i = 0; i < kLaneM; ++i) {
#pragma unroll
      for (int n = 0; n < kLaneN; ++n) {
        const int j = i % 2 ? kLaneN - 1 - n : n;  // there and back: one operand stays
        acc[i][j] += a[k % 2][i] * b[k % 2][j];
      }
    }
  }
  // Writes the sums of kChunk rows, those of a pass, with each pair of neighbours swapped.
  __device__ void write(int pass, scalar_t* to, int line) const {
#pragma unroll
    for (int i = 0; i < kLaneM; i += kChunk) {
      if (i / kChunk != pass) continue;  // registers have no variable index
#pragma unroll
      for (int r = 0; r < kChunk; ++r) {
#pragma unroll
        for (int j = 0; j < kLaneN; j += kChunk) {
          const auto& x = acc[i + r];
          reinterpret_cast<chunk_t&>(to[r * line + 4 * j]) = {x[j + 1], x[j], x[j + 3], x[j + 2]};
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

// Whether lines of `count` elements consist of chunks at multiples of 16 bytes.
__device__ inline bool comes_in_chunks(const input_t* matrix, index_t ld, int count) {
  return reinterpret_cast<size_t>(matrix) % 16 == 0 && (ld | count) % kChunk == 0;
}

// Reads 16 bytes.
__device__ inline chunk_t load_chunk(const input_t* global) {
  chunk_t to;
  asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(to.x), "=f"(to.y), "=f"(to.z), "=f"(to.w)
               : "l"(global)
               : "memory");
  return to;
}
__device__ inline void store_chunk(uint32_t shared, const chunk_t& x) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "f"(x.x), "f"(x.y),
               "f"(x.z), "f"(x.w)
               : "memory");
}
__device__ inline void store_element(uint32_t shared, input_t x) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(shared), "f"(x) : "memory");
}

// A thread's chunks of an operand whose lines run along K: it transposes them. Neighbouring threads read those of a
// line in a step, and store them element by element.
// Where lines are not aligned, it copies elements.
template <int kWidth>
struct AlongK {
  static constexpr int kAtOnce = kThreads / kLanesK, kOwn = kWidth / kAtOnce;  // lines
  struct Held {
    chunk_t of[size_t(kOwn)];
  };

  const input_t* from[size_t(kOwn)];  // of the first step
  uint32_t to;
  int own;  // k of the first element

  // Of the `count` lines that `matrix` begins with. The thread's first one, or the last of all,
  // takes the place of those that do not exist: nothing of D comes of them.
  __device__ AlongK(const input_t* matrix, index_t ld, int count, input_t* lines) {
    const int line = threadIdx.x / kLanesK, first = line < count ? line : count - 1;
    own = threadIdx.x % kLanesK * kChunk;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int at = line + i * kAtOnce;
      from[i] = matrix + (at < count ? at : first) * ld + own;
      asm volatile("" : "+l"(from[i]));  // a register that stays as it is
    }
    to = shared_address(lines + line_at(own) + line);
    asm volatile("" : "+r"(to), "+r"(own));  // not to be computed anew at each step
  }
  // Reads the chunks of a step that begins `gone` bytes further on and has `left` elements along K.
  template <bool kWhole>
  __device__ void load(Held& held, index_t gone, int left) const {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      held.of[i] = kWhole || own < left ? load_chunk(later(from[i], gone)) : chunk_t{};
    }
  }
  // Stores them, so many bytes behind the first line.
  __device__ void store(const Held& held, uint32_t place) const {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const input_t x[] = {held.of[i].x, held.of[i].y, held.of[i].z, held.of[i].w};
#pragma unroll
      for (int e = 0; e < kChunk; ++e) {
        store_element(to + place + (line_at(e) + i * kAtOnce) * sizeof(input_t), x[e]);
      }
    }
  }
  // Starts its copies, element by element.
  __device__ void copy(uint32_t place, index_t gone, int left) const {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
#pragma unroll
      for (int e = 0; e < kChunk; ++e) {
        const uint32_t at = to + place + (line_at(e) + i * kAtOnce) * sizeof(input_t);
        start_copy(at, later(from[i], gone) + e, own + e < left);
      }
    }
  }
};

// A thread's copies of an operand whose lines are those of shared memory, in chunks or element by
// element: the same lines, and as many elements of each.
template <int kWidth>
struct Across {
  static constexpr int kOfLine = kWidth / kChunk;  // chunks, or threads
  static constexpr int kAtOnce = kThreads / kOfLine, kLinesOwn = kTileK / kAtOnce;  // lines
  static constexpr int kNone = 1 << 30;  // a line that does not exist
  struct Held {
    chunk_t of[size_t(kLinesOwn)];
  };

  const input_t* from[size_t(kLinesOwn)];  // of the present step
  index_t step;  // bytes from there to the next one
  uint32_t to;
  int own, room;  // the thread's first line of a step, elements to the end of the line

  __device__ Across(const input_t* matrix, index_t ld, int count, input_t* lines, bool in_chunks) {
    const int line = threadIdx.x / kOfLine;
    const int at = threadIdx.x % kOfLine * (in_chunks ? kChunk : 1);
    // The last chunk takes the place of those that do not exist: nothing of D comes of them.
    const int first = in_chunks && at >= count ? count - kChunk : at;
#pragma unroll
    for (int i = 0; i < kLinesOwn; ++i) from[i] = matrix + (line + i * kAtOnce) * ld + first;
    step = kTileK * ld * index_t(sizeof(input_t));
    to = shared_address(lines + line_at(line) + at);
    room = count - at;
    own = in_chunks || room > 0 ? line : kNone;
    // Not to be computed anew at each step.
    asm volatile("" : "+l"(step), "+r"(to), "+r"(own), "+r"(room));
  }
  // Reads the chunks of a step that has so many lines.
  template <bool kWhole>
  __device__ void load(Held& held, int left) const {
#pragma unroll
    for (int i = 0; i < kLinesOwn; ++i) {
      held.of[i] = kWhole || own + i * kAtOnce < left ? load_chunk(from[i]) : chunk_t{};
    }
  }
  // Stores them, so many bytes behind the first line.
  __device__ void store(const Held& held, uint32_t place) const {
#pragma unroll
    for (int i = 0; i < kLinesOwn; ++i) {
      store_chunk(to + place + line_at(i * kAtOnce) * sizeof(input_t), held.of[i]);
    }
  }
  // Starts its copies, element by element.
  __device__ void copy(uint32_t place, int left) const {
#pragma unroll
    for (int i = 0; i < kLinesOwn; ++i) {
#pragma unroll
      for (int e = 0; e < kWidth; e += kOfLine) {
        const uint32_t at = to + place + (line_at(i * kAtOnce) + e) * sizeof(input_t);
        start_copy(at, from[i] + e, own + i * kAtOnce < left && (e == 0 || e < room));
      }
    }
  }
  __device__ void next_step() {
#pragma unroll
    for (auto& line : from) line = later(line, step);
  }
};

struct Held {  // chunks of a step, on their way
  AlongK<kTileM>::Held a;
  Across<kTileN>::Held b;
};

// Multiplies the rows of A that begin at `A`, and the columns of B that begin at `B`: those of a work tile.
// in_chunks: whether all lines of A and B consist of chunks at multiples of 16 bytes.
__device__ inline void multiply(
    WarpTile& tile, const input_t* A, index_t lda, int rows, const input_t* B, index_t ldb,
    int cols, int depth, bool in_chunks, input_t* lines, int warp, int lane) {
  AlongK<kTileM> a(A, lda, rows, lines);
  Across<kTileN> b(B, ldb, cols, lines + kTileM, in_chunks);
  index_t gone = 0;  // bytes along K to the step that is copied
  const auto next = [&] {
    gone += kTileK * sizeof(input_t);
    asm volatile("" : "+l"(gone));  // one register for all pointers
    b.next_step();
  };
  // Reads the chunks of a step that has so many elements left along K, to be stored later.
  const auto load = [&](Held& held, int left, bool whole) {
    if (whole) {  // all exist
      a.load<true>(held.a, gone, left);
      b.load<true>(held.b, left);
    } else {
      a.load<false>(held.a, gone, left);
      b.load<false>(held.b, left);
    }
  };
  const auto store = [&](const Held& held, uint32_t place) {
    a.store(held.a, place);
    b.store(held.b, place);
  };
  // Starts the same copies element by element, with zeros in place of what does not exist.
  const auto copy = [&](uint32_t place, int left) {
    a.copy(place, gone, left);
    b.copy(place, left);
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  uint32_t ready = shared_address(lines) - kLinesAt;  // an mbarrier
  asm volatile("" : "+r"(ready));  // not to be computed anew at each step
  // Says that the warp's copies are there, and that it has read the step before the one that it
  // multiplies.
  const auto arrive = [&] {
    __syncwarp();  // all lanes' copies
    if (lane == 0) barrier_arrive(ready);
  };
  if (threadIdx.x == 0) barrier_init(ready, kThreads / 32);

  if (in_chunks) {
    Held first[kStages - 1];  // all are read at once
#pragma unroll
    for (int s = 0; s < kStages - 1; ++s) {
      const int left = depth - s * kTileK;
      if (s > 0) next();
      load(first[s], left, left >= kTileK);
    }
#pragma unroll
    for (int s = 0; s < kStages - 1; ++s) store(first[s], s * kStepBytes);
  } else {
#pragma unroll 1
    for (int s = 0; s < kStages - 1; ++s) {
      if (s > 0) next();
      copy(s * kStepBytes, depth - s * kTileK);
    }
  }
  tile.clear();
  tile.read_from(lines, warp, lane);
  asm volatile("cp.async.wait_group 1;" ::: "memory");
  __syncthreads();  // the first two steps' lines are there, for all threads, and so is the mbarrier
  arrive();
  tile.load(0);

  // Main loop, a step in a turn. What is not a multiplication stands together: elsewhere, each copy
  // would cost more instructions, and ptxas would find worse registers for the multiplications. The
  // branches, which all threads take alike, keep it there.
  // Copies go on behind the end of K, where they write zeros that nobody multiplies.
  // A warp arrives at the mbarrier a step before others wait for it there, so that it may be that
  // much behind them.
  Held held;
  int chunks = in_chunks;
  asm volatile("" : "+r"(chunks));  // not to be computed anew at each step
  int place = 0;  // of the step that is read: bytes behind the first line
  int before = (kStages - 1) * kStepBytes;  // of the one before
  int phase = 0;  // of the mbarrier
#pragma unroll 1
  for (; depth > 0; depth -= kTileK) {
    const int left = depth - (kStages - 1) * kTileK;  // from the step that is copied
#pragma unroll
    for (int k = 0; k < kTeamK; ++k) {
      if (k == 0) next();  // long before copies need it, and long after they read these registers
      if (k == 0 && chunks) load(held, left, left >= kTileK);
      if (k == kTeamK - 1) {
        tile.move(place == (kStages - 1) * kStepBytes ? kStep - kStages * kStep : kStep);
        // The next step's lines are there, and nobody reads those of the one before any more.
        barrier_wait(ready, phase);
        phase ^= 1;
      }
      tile.load((k + 1) % kTeamK);
      if (k == kTeamK - 1) {
        if (chunks) {
          store(held, before);  // in place of the step before
        } else {
          copy(before, left);
          // For all, except those of the newest step.
          asm volatile("cp.async.wait_group 1;" ::: "memory");
        }
        arrive();
        before = place;
        place = place == (kStages - 1) * kStepBytes ? 0 : place + kStepBytes;
      }
      tile.multiply(k % 2);
    }
  }
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
constexpr int kStagedBytes = kStagedRows * kStagedLine * sizeof(scalar_t);

template <int kCount>
struct alignas(kCount * sizeof(scalar_t)) Elements {
  scalar_t of[size_t(kCount)];
};

// Writes all threads' sums of a pass to `staged`.
__device__ inline void stage(const WarpTile& tile, scalar_t* staged, int pass, int warp, int lane) {
  const int row = warp % kWarpsM * kSpan + lane / 4 * kChunk;
  const int col = warp / kWarpsM * kWarpN + lane % 4 * kChunk;
  __syncthreads();  // nobody reads what was there
  tile.write(pass, staged + row * kStagedLine + col, kStagedLine);
  __syncthreads();  // all sums are there
}

// kCount sums beside each other, from a row and a column of `staged` on.
template <int kCount>
__device__ inline Elements<kCount> staged_sums(const scalar_t* staged, int row, int col) {
  const scalar_t* from = staged + row * kStagedLine + (kCount == 1 ? col ^ 1 : col);
  auto sums = reinterpret_cast<const Elements<kCount>&>(*from);
  if constexpr (kCount > 1) {
#pragma unroll
    for (int e = 0; e < kCount; e += 2) {  // back to their places
      const scalar_t x = sums.of[e];
      sums.of[e] = sums.of[e + 1];
      sums.of[e + 1] = x;
    }
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

// ------------------------------------------------------------------------ the kernel
constexpr int kSharedBytes = kLinesAt + kStagedBytes;  // 66576
static_assert(kStages * kStepBytes <= kStagedBytes);  // sums take the lines' place

extern "C" __global__ void __launch_bounds__(kThreads)  // lets the compiler count on the block size
    gemm_simt_f32_rrr_batched(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        index_t stride_a, const input_t* __restrict__ B, index_t ldb, index_t stride_b,
        scalar_t beta, const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd,
        index_t stride_d) {
  extern __shared__ __align__(128) unsigned char shared[];  // an mbarrier, steps of kStep elements
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  const int rows = int(M), cols = int(N), depth = int(K);
  const int tiles_m = (rows + kTileM - 1) / kTileM, tiles_n = (cols + kTileN - 1) / kTileN;
  int product, row0, col0;
  tile_at(blockIdx.x, tiles_m, tiles_n, product, row0, col0);
  A += product * stride_a;
  B += product * stride_b;
  if (beta != 0) C += product * stride_c;
  D += product * stride_d;

  const auto lines = reinterpret_cast<input_t*>(shared + kLinesAt);
  WarpTile tile;
  const input_t* a = A + index_t(row0) * lda;
  const input_t* b = B + col0;
  const bool a_in_chunks = comes_in_chunks(a, lda, depth);
  const bool b_in_chunks = comes_in_chunks(b, ldb, cols - col0 < kTileN ? cols - col0 : kTileN);
  const bool in_chunks = a_in_chunks && b_in_chunks;
  multiply(tile, a, lda, rows - row0, b, ldb, cols - col0, depth, in_chunks, lines, warp, lane);
  const auto sums = reinterpret_cast<scalar_t*>(lines);

  const Output out{rows, cols, alpha, beta, C, D, ldc, ldd};
  store(tile, out, row0, col0, sums, warp, lane);
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

  index_t tiles = (M + kTileM - 1) / kTileM * ((N + kTileN - 1) / kTileN) * batch;  // of D
};

constexpr size_t kSide = 2147479552;  // M, N, K: 2^31 - 4096, so that where a tile ends is an int
constexpr size_t kMost = 2147483647;  // blocks
constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows

// Sets *bytes to the size of the workspace that the launcher needs on the current device, or to 0 where
// it returns the launcher's error 1 or 9.
// It needs none: operands are read where they are, and K is not split.
extern "C" cudaError_t  // cudaSuccess once *bytes is set
gemm_simt_f32_rrr_batched_workspace(  // for a launch with these arguments
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
  const Plan plan{M, N, K, batch};
  if (size_t(plan.tiles) > kMost) return cudaErrorInvalidConfiguration;
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
gemm_simt_f32_rrr_batched_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, index_t batch, scalar_t alpha, const input_t* A, index_t lda,
    index_t stride_a, const input_t* B, index_t ldb, index_t stride_b, scalar_t beta,
    const output_t* C, index_t ldc, index_t stride_c, output_t* D, index_t ldd, index_t stride_d,
    void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  size_t needed;  // bytes of the workspace
  auto ask = gemm_simt_f32_rrr_batched_workspace;
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
  const Plan plan{M, N, K, batch};
  (void)workspace, (void)workspace_bytes;  // nothing is packed, nothing is added up later

  const auto kernel = gemm_simt_f32_rrr_batched;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;

  const dim3 grid(unsigned(plan.tiles));
  return launch(
      kernel, grid, kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, alpha, A, lda, stride_a, B, ldb, stride_b, beta, C, ldc, stride_c, D, ldd,
      stride_d);
}

#endif  // __CUDACC_RTC__
}  // namespace gemm_simt_f32_rrr_batched_ns
