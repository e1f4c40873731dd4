// gemm_simt_f32_rcr_tb128x64x16_tk2_held0: D = alpha * A * B + beta * C
//
// CUDA cores, with as much of D in registers as they hold: a lane computes 8 x 16 elements of it, so that most
// instructions multiply. A scheduler issues one instruction in a clock: what loads, copies and counts is in the way
// of what multiplies.
//
// A block computes a work tile of D. Shared memory has lines of one k each: a column of A's tile, and beside it
// a row of B's. A lane reads 4 elements of a line at a time; those of k + 1 while it multiplies those of k.
// Copies (cp.async) are up to 3 steps ahead of that, pass no registers, and transpose on their way: an operand
// whose lines run along K is copied element by element, which needs no alignment, either. Warps hand steps on at an
// mbarrier: each says that its copies are there a whole step before anybody waits for them.
// 2 teams of warps compute the same work tile, each with its share of every step along K ("sliced-K"): small
// tiles have as many elements a lane as large ones. In the end, their sums meet in shared memory.
//
//   A  M x K, row-major, float
//   B  K x N, column-major, float
//   C  M x N, row-major, float; not read when beta is 0
//   D  M x N, row-major, float; must not overlap A or B; may be C, where ldc is ldd
//
// M, N, K from 0 to 2^31 - 4096, any leading dimension, in elements. Accumulators are float,
// alpha and beta are float. Needs a GPU of compute capability 8.0 or newer and C++17.
//
// Made by gemmgen 0.2.0:  gen emit --variant simt --dtype f32 --layout rcr --arch sm_80 --threadblock 128x64x16 --warp 64x64 --stages 4 --sliced-k 2 --stream-k 0 --held 0 --split-k 1 --epilogue linear --swizzle 12
// Compile:  nvcc -std=c++17 -arch=sm_80 -c gemm_simt_f32_rcr_tb128x64x16_tk2_held0.cu, or by NVRTC as it is
// gen-spec: {"variant": "simt", "dtype": "f32", "layout": "rcr", "arch": "sm_80", "threadblock": "128x64x16", "warp": "64x64", "stages": 4, "sliced_k": 2, "stream_k": 0, "held": 0, "split_k": 1, "epilogue": "linear", "swizzle": 12}
// SPDX-License-Identifier: 0BSD

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "for -arch=sm_80 or newer: older GPUs lack the kernel's instructions"
#endif

namespace gemm_simt_f32_rcr_tb128x64x16_tk2_held0_ns {  // several emitted files may be in one program
using index_t = long long;  // 64 bits: row * lda overflows 32 long before memory runs out
using input_t = float;
using output_t = float;
using scalar_t = float;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;
constexpr int kTileM = 128, kTileN = 64, kTileK = 16;  // of a block: work tile, step along K
constexpr int kThreads = 128;  // 4 warps

constexpr int kWarpM = 64, kWarpN = 64;  // what each warp computes of the work tile
constexpr int kLaneM = kWarpM / 8, kLaneN = kWarpN / 4;  // and each lane: 8 x 16 elements
constexpr int kStages = 4;  // steps along K that are in shared memory or on their way
constexpr int kGroup = 12;  // work tiles along M that are computed close in time: see tile_at
constexpr int kWarpsM = kTileM / kWarpM;  // 128 / 64 = 2
constexpr int kTeams = 2;  // of warps, which share out K
constexpr int kWarps = kThreads / 32 / kTeams;  // of a team: 2
constexpr int kTeamK = kTileK / kTeams;  // of a step, what each multiplies: 16 / 2 = 8
constexpr int kChunk = 4;  // elements in 16 bytes
// Elements of a line in shared memory, with a gap against bank conflicts.
constexpr int kLine = kTileM + kTileN + 4;  // 196
constexpr int kStep = kTileK * kLine;  // 3136 elements: lines of a step
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
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(global),
               "r"(exist ? 4 : 0)
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
  // The register file has two banks, even and odd, and gives one register of each in a clock:
  // besides a[i], which stays for a row, a multiplication reads b[j] and acc[i][j]. Where b[j] is
  // even, acc[i][j] is odd, because `write` takes sums in pairs that are swapped: ptxas keeps them
  // in such registers from the beginning.
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

// A thread's copies of an operand whose lines run along K: it transposes them. Eight threads copy
// neighbours along K: whole sectors of memory. Pointers stay as they are, and one sum for a warp grows: a register that
// a copy has still to read cannot be written.
template <int kWidth>
struct AlongK {
  static constexpr int kLanes = 8, kAtOnce = kThreads / kLanes;  // threads for a line; lines
  static constexpr int kLinesOwn = kWidth / kAtOnce;

  const input_t* from[size_t(kLinesOwn)];  // of the first step
  index_t gone = 0;  // bytes from there to the present step
  uint32_t to;
  int left;  // elements from there to the end along K

  // Of the `count` lines that `matrix` begins with. The last one takes the place of those that do
  // not exist: nothing of D comes of them.
  __device__ AlongK(const input_t* matrix, index_t ld, int count, int depth, input_t* lines) {
    const int line = threadIdx.x / kLanes, k = threadIdx.x % kLanes;
#pragma unroll
    for (int i = 0; i < kLinesOwn; ++i) {
      const int at = line + i * kAtOnce;
      from[i] = matrix + (at < count ? at : count - 1) * ld + k;
      asm volatile("" : "+l"(from[i]));  // a register that stays as it is
    }
    to = shared_address(lines + k * kLine + line);
    asm volatile("" : "+r"(to));  // not to be computed anew at each step
    left = depth - k;
  }
  // Starts a step's, to so many bytes further on.
  __device__ void copy(uint32_t place) {
#pragma unroll
    for (int k = 0; k < kTileK; k += kLanes) {
#pragma unroll
      for (int i = 0; i < kLinesOwn; ++i) {
        const uint32_t at = to + place + (k * kLine + i * kAtOnce) * sizeof(input_t);
        start_copy<1>(at, later(from[i], gone) + k, k < left);
      }
    }
  }
  __device__ void next_step() {
    gone += kTileK * sizeof(input_t);
    asm volatile("" : "+l"(gone));
    left -= kTileK;
  }
};

// Starts a step's copies, with zeros in place of what does not exist.
__device__ inline void start_copies(AlongK<kTileM>& a, AlongK<kTileN>& b, uint32_t place) {
  a.copy(place);
  b.copy(place);
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Multiplies the rows of A that begin at `A`, and the columns of B that begin at `B`: those of a work tile.
__device__ inline void multiply(
    WarpTile& tile, const input_t* A, index_t lda, int rows, const input_t* B, index_t ldb,
    int cols, int depth, input_t* lines, int warp, int lane) {
  AlongK<kTileM> a(A, lda, rows, depth, lines);
  AlongK<kTileN> b(B, ldb, cols, depth, lines + kTileM);
  uint32_t place = 0;  // where copies go: bytes behind the first line
  int left = depth;  // elements along K from the step that is copied to the end
  const auto copy = [&] {
    if (left > 0) {
      start_copies(a, b, place);
    } else {
      asm volatile("cp.async.commit_group;" ::: "memory");
    }
  };
  const auto next = [&] {
    a.next_step();
    b.next_step();
    left -= kTileK;
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
  if (threadIdx.x == 0) barrier_init(ready, kThreads / 32);

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
  // A warp arrives at the mbarrier a step before others wait for it there, so that it may be that
  // much behind them.
  int stage = 0;  // what is read
  int phase = 0;  // of the mbarrier
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
  asm volatile("cp.async.wait_all;" ::: "memory");  // what nobody needs, and sums take the place of
}

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
  const scalar_t* from = staged + row * kStagedLine + (kCount == 1 ? col ^ 1 : col);
  auto sums = reinterpret_cast<const Elements<kCount>&>(*from);
#pragma unroll
  for (int team = 1; team < kTeams; ++team) {
    from += kStagedRows * kStagedLine;
    const auto others = reinterpret_cast<const Elements<kCount>&>(*from);
#pragma unroll
    for (int e = 0; e < kCount; ++e) sums.of[e] += others.of[e];
  }
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
constexpr int kSharedBytes = kLinesAt + kStages * kStepBytes;  // 50192
static_assert(kLinesAt + kStagedBytes <= kSharedBytes);  // sums take the lines' place

extern "C" __global__ void __launch_bounds__(kThreads)  // lets the compiler count on the block size
    gemm_simt_f32_rcr_tb128x64x16_tk2_held0(  // D = alpha * A * B + beta * C
        index_t M, index_t N, index_t K, scalar_t alpha, const input_t* __restrict__ A, index_t lda,
        const input_t* __restrict__ B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc,
        output_t* D, index_t ldd) {
  extern __shared__ __align__(128) unsigned char shared[];  // an mbarrier, steps of kStep elements
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  const int rows = int(M), cols = int(N), depth = int(K);
  const int tiles_m = (rows + kTileM - 1) / kTileM, tiles_n = (cols + kTileN - 1) / kTileN;
  int row0, col0;
  tile_at(blockIdx.x, tiles_m, tiles_n, row0, col0);

  const auto lines = reinterpret_cast<input_t*>(shared + kLinesAt);
  WarpTile tile;
  const input_t* a = A + index_t(row0) * lda;
  const input_t* b = B + index_t(col0) * ldb;
  multiply(tile, a, lda, rows - row0, b, ldb, cols - col0, depth, lines, warp, lane);
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
  index_t M, N, K;

  index_t tiles = (M + kTileM - 1) / kTileM * ((N + kTileN - 1) / kTileN);  // of D
};

constexpr size_t kSide = 2147479552;  // M, N, K: 2^31 - 4096, so that where a tile ends is an int
constexpr size_t kMost = 2147483647;  // blocks
constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows

// Sets *bytes to the size of the workspace that the launcher needs on the current device, or to 0 where
// it returns the launcher's error 1 or 9.
// It needs none: operands are read where they are, and K is not split.
extern "C" cudaError_t  // cudaSuccess once *bytes is set
gemm_simt_f32_rcr_tb128x64x16_tk2_held0_workspace(  // for a launch with these arguments
    index_t M, index_t N, index_t K, const input_t* A, index_t lda, const input_t* B, index_t ldb,
    size_t* bytes) {
  if (bytes == nullptr) return cudaErrorInvalidValue;
  *bytes = 0;
  if (size_t(M) > kSide || size_t(N) > kSide || size_t(K) > kSide) return cudaErrorInvalidValue;
  if (M == 0 || N == 0) return cudaSuccess;  // D has no elements
  if (M > kLargest / N) return cudaErrorInvalidValue;
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return cudaErrorInvalidValue;
  if (K > 0 && (B == nullptr || ldb < K || ldb > kLargest / N)) return cudaErrorInvalidValue;
  const Plan plan{M, N, K};
  if (size_t(plan.tiles) > kMost) return cudaErrorInvalidConfiguration;
  return cudaSuccess;
}

// Checks the arguments and queues the kernels on a stream. Any threads may call it at once, also
// while a CUDA graph is captured: it never prints, exits, waits or allocates.
// `workspace` is device memory at a multiple of 256 bytes, as much as ..._workspace says; it is
// free again when the stream has got past the launch.
// Where it returns one of these, D is as it was:
//     1  cudaErrorInvalidValue: a size below 0 or above 2^31 - 4096, a null matrix or one of more
//        than 2^44 elements, a leading dimension too short, a workspace too small or not aligned
//     9  cudaErrorInvalidConfiguration: 2^31 blocks or more
//   209  cudaErrorNoKernelImageForDevice: a GPU older than nvcc's -arch. For newer ones the driver
//        compiles the file's PTX when it is first needed, unless nvcc was told to leave PTX out
//   400  cudaErrorInvalidResourceHandle: a stream of another device
extern "C" cudaError_t  // cudaSuccess once the kernels are on their way
gemm_simt_f32_rcr_tb128x64x16_tk2_held0_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, scalar_t alpha, const input_t* A, index_t lda,
    const input_t* B, index_t ldb, scalar_t beta, const output_t* C, index_t ldc, output_t* D,
    index_t ldd, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  size_t needed;  // bytes of the workspace
  auto ask = gemm_simt_f32_rcr_tb128x64x16_tk2_held0_workspace;
  cudaError_t error = ask(M, N, K, A, lda, B, ldb, &needed);
  if (error != cudaSuccess || M == 0 || N == 0) return error;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return cudaErrorInvalidValue;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return cudaErrorInvalidValue;

  int device;
  error = check_stream(stream, device);
  if (error != cudaSuccess) return error;
  const Plan plan{M, N, K};
  (void)workspace, (void)workspace_bytes;  // nothing is packed, nothing is added up later

  const auto kernel = gemm_simt_f32_rcr_tb128x64x16_tk2_held0;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;

  const dim3 grid(unsigned(plan.tiles));
  return launch(
      kernel, grid, kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd);
}

#endif  // __CUDACC_RTC__
}  // namespace gemm_simt_f32_rcr_tb128x64x16_tk2_held0_ns
