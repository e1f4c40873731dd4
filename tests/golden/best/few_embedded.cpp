// few: D = alpha * A * B + beta * C, by the kernel that suits the problem and the device
//
// 2 kernels as machine code; then what predicts how long each takes for the problem at hand, and
// a launcher on the driver API that takes the fastest. For the shapes of the command below, one of them is
// the fastest of all that there are, or nearly so, by these predictions. The driver's library is opened
// when it is needed: nothing of CUDA has to be there to compile or to link this file.
//
//   kernel for  variant tile      tunables
//   1      t4   mma     32x64x32  --threadblock 32x64x32 --warp 32x32
//   2      a100 skinny  8x16x1024
//
// Made by gemmgen 0.2.0 with NVRTC 0.0:
//     gen emit --best
// Compile:  c++ -std=c++17 -c few.cpp; programs link -ldl where the C library is older than 2.34
// SPDX-License-Identifier: 0BSD

#include "few.h"

#if FEW_SPEC != 0xd06960ef
#error "the header is another kernel's; emit both files together"
#endif

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <type_traits>

namespace few_ns {  // several emitted files may be in one program, even in one file
namespace {

using index_t = long long;
using input_t = unsigned short;  // as large as __half
using output_t = unsigned short;  // as large as __half

// ---------------------------------------------------------------------------- the driver

// What is used of cuda.h, which need not be there.
using CUresult = int;
using CUdevice = int;
using CUstream = CUstream_st*;
using CUlibrary = struct CUlib_st*;
using CUkernel = struct CUkern_st*;
using CUfunction = struct CUfunc_st*;

enum : CUresult {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER = 36,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND = 302,
  CUDA_ERROR_SHARED_OBJECT_INIT_FAILED = 303,
};

enum {
  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
};

// The functions of libcuda, looked up once.
struct Driver {
  CUresult error = CUDA_SUCCESS;
  CUresult (*cuDriverGetVersion)(int*) = nullptr;
  CUresult (*cuCtxGetDevice)(CUdevice*) = nullptr;
  CUresult (*cuDeviceGetAttribute)(int*, int, CUdevice) = nullptr;
  CUresult (*cuLibraryLoadData)(
      CUlibrary*, const void*, int*, void**, unsigned, int*, void**, unsigned) = nullptr;
  CUresult (*cuLibraryUnload)(CUlibrary) = nullptr;
  CUresult (*cuLibraryGetKernel)(CUkernel*, CUlibrary, const char*) = nullptr;
  CUresult (*cuKernelGetFunction)(CUfunction*, CUkernel) = nullptr;
  CUresult (*cuFuncSetAttribute)(CUfunction, int, int) = nullptr;
  CUresult (*cuLaunchKernel)(
      CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
      void**, void**) = nullptr;

  Driver() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);  // never closed: streams live there
    if (library == nullptr) {
      error = CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
      return;
    }
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr) error = CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;
    };
    find(cuDriverGetVersion, "cuDriverGetVersion");
    find(cuCtxGetDevice, "cuCtxGetDevice");
    find(cuDeviceGetAttribute, "cuDeviceGetAttribute");
    find(cuLibraryLoadData, "cuLibraryLoadData");
    find(cuLibraryUnload, "cuLibraryUnload");
    find(cuLibraryGetKernel, "cuLibraryGetKernel");
    find(cuKernelGetFunction, "cuKernelGetFunction");
    find(cuFuncSetAttribute, "cuFuncSetAttribute");
    find(cuLaunchKernel, "cuLaunchKernel");
  }
};

const Driver& get_driver() {
  static const Driver driver;  // made once, whichever thread comes first
  return driver;
}

// Machine code, or PTX, for some devices. Eight bytes a number.
struct Image {
  int first, last;  // compute capabilities that run it: 89 is 8.9, and 9999 any newer one
  int driver;  // the oldest that loads it, as 13000 for CUDA 13.0
  const void* code;
};

template <class Handle>
struct Handles {
  Handle kernel;
  Handle pack;  // copies operands that the kernel cannot read where they are
};

using Loaded = Handles<CUkernel>;  // for all contexts
using Kernels = Handles<CUfunction>;  // in one of them

// A kernel and its helpers: they are loaded when they are first asked for, each image once, and unloaded
// when the program or its shared library ends.
struct Code {
  const Image (&images)[1];  // later ones are better
  const char* const (&symbols)[2];  // in the order of Handles; null: it has none
  int shared_bytes;
  std::mutex mutex = {};
  CUlibrary library[1] = {};  // null where it has not been loaded
  Loaded loaded[1] = {};

  ~Code() {
    for (CUlibrary one : library) {
      if (one != nullptr) get_driver().cuLibraryUnload(one);  // refused if the driver has ended
    }
  }

  // The best image that a device and its driver can run.
  CUresult choose(const Driver& driver, CUdevice device, int& chosen) const {
    int version = 0, major = 0, minor = 0;
    CUresult error = driver.cuDriverGetVersion(&version);
    if (error != CUDA_SUCCESS) return error;
    error =
        driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    if (error != CUDA_SUCCESS) return error;
    error =
        driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    if (error != CUDA_SUCCESS) return error;
    const int capability = 10 * major + minor;
    error = CUDA_ERROR_NO_BINARY_FOR_GPU;
    for (int i = 0; i < 1; ++i) {
      if (capability < images[i].first || capability > images[i].last) continue;
      if (version >= images[i].driver) {
        chosen = i;
        error = CUDA_SUCCESS;
      } else if (error != CUDA_SUCCESS) {
        error = CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER;
      }
    }
    return error;
  }

  CUresult load(const Driver& driver, int i) {
    CUlibrary made = nullptr;
    CUresult error =
        driver.cuLibraryLoadData(&made, images[i].code, nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (error != CUDA_SUCCESS) return error;
    CUkernel* const kernels[] = {
        &loaded[i].kernel,
        &loaded[i].pack,
    };
    for (int k = 0; k < 2 && error == CUDA_SUCCESS; ++k) {
      if (symbols[k]) error = driver.cuLibraryGetKernel(kernels[k], made, symbols[k]);
    }
    if (error == CUDA_SUCCESS) {
      library[i] = made;
    } else {
      driver.cuLibraryUnload(made);
    }
    return error;
  }

  // The kernels in the current context, so that a stream of another one is refused: the driver
  // launches a CUkernel in whichever context the stream is of.
  CUresult get(Kernels& kernels) {
    const Driver& driver = get_driver();
    CUdevice device;
    CUresult error = driver.cuCtxGetDevice(&device);
    if (error != CUDA_SUCCESS) return error;
    int i = 0;
    error = choose(driver, device, i);
    if (error != CUDA_SUCCESS) return error;
    Loaded found;
    {
      const std::lock_guard<std::mutex> lock(mutex);
      if (library[i] == nullptr) error = load(driver, i);
      found = loaded[i];
    }
    if (error == CUDA_SUCCESS) {
      error = driver.cuKernelGetFunction(&kernels.kernel, found.kernel);
    }
    if (error == CUDA_SUCCESS && found.pack != nullptr) {
      error = driver.cuKernelGetFunction(&kernels.pack, found.pack);
    }
    if (error != CUDA_SUCCESS || shared_bytes == 0) return error;
    // More than 48 KiB of dynamic shared memory has to be asked for, in each context.
    return driver.cuFuncSetAttribute(
        kernels.kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes);
  }
};

// ---------------------------------------------------------------------------- the launch

// Blocks, or threads of a block.
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned width, unsigned height = 1, unsigned depth = 1) : x(width), y(height), z(depth) {
  }
};

// Queues a kernel. The arguments have the types of its parameters.
template <class... Arguments>
CUresult launch(
    CUfunction kernel, dim3 grid, dim3 block, unsigned shared_bytes, CUstream stream,
    const Arguments&... arguments) {
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  return get_driver().cuLaunchKernel(
      kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared_bytes, stream, pointers,
      nullptr);
}

// ---------------------------------------------------------------------------- kernel 1

namespace few_best1_ns {

using scalar_t = float;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;

constexpr int kTileM = 32, kTileN = 64;  // the work tile of a block
constexpr int kThreads = 64;  // 2 warps
constexpr int kSharedBytes = 12288;

// clang-format off
constexpr std::uint64_t kSm75[] = {
    0x0000000000000000, 0x0000000000000000,
};

constexpr const char* kSymbols[] = {"few_best1", "few_best1_pack"};
// clang-format on

constexpr Image kImages[] = {
    {75, 79, 0, kSm75},
};

CUresult get_kernels(Kernels& kernels) {
  // Made when the driver is at work, so that it ends before the driver.
  static Code code{kImages, kSymbols, kSharedBytes};
  return code.get(kernels);
}

// A launch, worked out from top to bottom.
struct Plan {
  index_t M, N, K;
  size_t A, B;  // addresses
  index_t lda, ldb;

  bool packs_a = K > 0 && (A % 16 != 0 || lda % 8 != 0);  // its lines are not aligned
  index_t a_lines = packs_a ? M : 0, a_length = packs_a ? K : 0;  // to pack
  index_t a_ld = packs_a ? (a_length + 63) / 64 * 64 : lda;  // as the kernel reads it
  bool packs_b = K > 0 && (B % 16 != 0 || ldb % 8 != 0);  // its lines are not aligned
  index_t b_lines = packs_b ? N : 0, b_length = packs_b ? K : 0;  // to pack
  index_t b_ld = packs_b ? (b_length + 63) / 64 * 64 : ldb;  // as the kernel reads it
  index_t b_offset = (a_lines * a_ld * 2 + 255) / 256 * 256;  // bytes
  index_t tiles = (M + kTileM - 1) / kTileM * ((N + kTileN - 1) / kTileN);  // of D
  index_t bytes = b_offset + (b_lines * b_ld * 2 + 255) / 256 * 256;  // of the workspace
  index_t a_lanes = a_length > 64 ? 32 : 8;  // for a line
  index_t b_lanes = b_length > 64 ? 32 : 8;  // for a line
  index_t a_pieces = (a_lines * a_lanes + 511) / 512 * ((a_length + 255) / 256);  // for blocks
  index_t b_pieces = (b_lines * b_lanes + 511) / 512 * ((b_length + 255) / 256);  // for blocks
  index_t pieces = a_pieces > b_pieces ? a_pieces : b_pieces;
  index_t pack_blocks = pieces < 65536 ? pieces : 65536;
};

constexpr size_t kSide = 2147479552;  // M, N, K: 2^31 - 4096, so that where a tile ends is an int
constexpr size_t kMost = 2147483647;  // blocks
constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows

CUresult few_best1_workspace(
    index_t M, index_t N, index_t K, const void* A, index_t lda, const void* B, index_t ldb,
    size_t* bytes) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = 0;
  if (size_t(M) > kSide || size_t(N) > kSide || size_t(K) > kSide) return CUDA_ERROR_INVALID_VALUE;
  if (M == 0 || N == 0) return CUDA_SUCCESS;  // D has no elements
  if (M > kLargest / N) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (B == nullptr || ldb < K || ldb > kLargest / N)) return CUDA_ERROR_INVALID_VALUE;
  const Plan plan{M, N, K, size_t(A), size_t(B), lda, ldb};
  if (size_t(plan.tiles) > kMost) return CUDA_ERROR_INVALID_VALUE;
  *bytes = size_t(plan.bytes);
  return CUDA_SUCCESS;
}

CUresult few_best1_launch(
    index_t M, index_t N, index_t K, float alpha, const void* A, index_t lda, const void* B,
    index_t ldb, float beta, const void* C, index_t ldc, void* D, index_t ldd, void* workspace,
    size_t workspace_bytes, CUstream stream) {
  size_t needed;  // bytes of the workspace
  auto ask = few_best1_workspace;
  int error = ask(M, N, K, A, lda, B, ldb, &needed);
  if (error != CUDA_SUCCESS || M == 0 || N == 0) return error;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return CUDA_ERROR_INVALID_VALUE;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return CUDA_ERROR_INVALID_VALUE;

  Kernels kernels;
  error = get_kernels(kernels);
  if (error != CUDA_SUCCESS) return error;
  const Plan plan{M, N, K, size_t(A), size_t(B), lda, ldb};
  bool fits = workspace != nullptr && workspace_bytes >= needed && size_t(workspace) % 256 == 0;
  if (needed > 0 && !fits) return CUDA_ERROR_INVALID_VALUE;
  const auto a_packed = static_cast<input_t*>(workspace);
  const auto b_packed = a_packed + plan.b_offset / 2;
  const input_t* const a = plan.packs_a ? a_packed : static_cast<const input_t*>(A);
  const input_t* const b = plan.packs_b ? b_packed : static_cast<const input_t*>(B);

  const auto kernel = kernels.kernel;

  if (plan.packs_a || plan.packs_b) {
    error = launch(  // a kernel that packs both
        kernels.pack, dim3(unsigned(plan.pack_blocks), 1, 2), 256, 0, stream, plan.a_lines,
        plan.a_length, A, lda, a_packed, plan.a_ld, plan.b_lines, plan.b_length, B, ldb, b_packed,
        plan.b_ld);
    if (error != CUDA_SUCCESS) return error;
  }
  const dim3 grid(unsigned(plan.tiles));
  return launch(
      kernel, grid, kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, alpha, a, plan.a_ld, b, plan.b_ld, beta, C, ldc, D, ldd);
}

}  // namespace few_best1_ns

// ---------------------------------------------------------------------------- kernel 2

namespace few_best2_ns {

using accumulator_t = float;
using scalar_t = accumulator_t;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;
constexpr int kRows = 8, kCols = 16;  // of D, that a block computes
constexpr int kThreads = 256;  // per block

static_assert(kThreads % 32 == 0 && kThreads <= 1024, "a block has whole warps, at most 32");
static_assert(kCols % 16 == 0 && kRows % 8 == 0, "instructions have 16 columns of D and 8 rows");

// clang-format off
constexpr std::uint64_t kSm80[] = {
    0x0000000000000000, 0x0000000000000000,
};

constexpr const char* kSymbols[] = {"few_best2", nullptr};
// clang-format on

constexpr Image kImages[] = {
    {80, 89, 0, kSm80},
};

CUresult get_kernels(Kernels& kernels) {
  // Made when the driver is at work, so that it ends before the driver.
  static Code code{kImages, kSymbols, 0};
  return code.get(kernels);
}

CUresult few_best2_launch(
    index_t M, index_t N, index_t K, float alpha, const void* A, index_t lda, const void* B,
    index_t ldb, float beta, const void* C, index_t ldc, void* D, index_t ldd, CUstream stream) {
  constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows
  if (M < 0 || N < 0 || K < 0) return CUDA_ERROR_INVALID_VALUE;
  if (M == 0 || N == 0) return CUDA_SUCCESS;  // D has no elements
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (B == nullptr || ldb < K || ldb > kLargest / N)) return CUDA_ERROR_INVALID_VALUE;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return CUDA_ERROR_INVALID_VALUE;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return CUDA_ERROR_INVALID_VALUE;

  const index_t tiles = (M + kRows - 1) / kRows * ((N + kCols - 1) / kCols);  // of D
  const index_t grid_x = tiles < 2147483647 ? tiles : 2147483647;
  Kernels kernels;
  CUresult error = get_kernels(kernels);
  if (error != CUDA_SUCCESS) return error;
  const auto kernel = kernels.kernel;
  const dim3 grid{unsigned(grid_x)}, block{kThreads};
  return launch(
      kernel, grid, block, 0, stream,  // and its parameters:
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd);
}

}  // namespace few_best2_ns

// ---------------------------------------------------------------------------- the choice

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
};

constexpr Gpu kGpus[] = {  // the newest first
    {80, 108},  // A100 SXM 80 GB
    {75, 40},  // T4 16 GB
};

constexpr Candidate kCandidates[] = {
    {0, 1, {8, 16, 1, 1, 1, 1, 472, 1060, 0, 177, 354, 3, 5, 14178, 873393, 32, 0, 1946000, 2, 1, 1, 0, 0, 0, 1, 0, 2709600, 1, 0, 0, 2, 2, 0, 16, 16, 1, 1, 100, 16, 26, 0, 0, 6, 13, 502, 41943040}},
    {1, 0, {32, 64, 32, 1, 1, 1, 79078, 359164, 56257, 40454, 80909, 24273, 48545, 726914, 96079, 11, 0, 1031800, 5, 5, 1, 0, 0, 0, 0, 0, 2853600, 12, 1, 1, 2, 2, 0, 16, 16, 1, 1, 100, 16, 26, 16, 16, 6, 13, 3200, 4194304}},
};

struct Limits {
  bool swapped;  // whether it computes the transpose of D
  int last;  // compute capability that runs it; 0: all newer ones do
  int shared;  // bytes of shared memory
};

constexpr Limits kLimits[] = {
    {false, 0, 12288},
    {false, 0, 4096},
};

// Picoseconds that a kernel takes, as predicted. M, N, A and B are those of the row-major product.
index_t predict(
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
  return time;
}
// clang-format on

// The place of the GPU that a device counts as: of its generation, not newer, and of these with the
// most nearly as many multiprocessors; -1 where there is none.
int gpu_for(int capability, int multiprocessors) {
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
int pick(
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

// For a kernel that needs no workspace.
template <auto kLaunch>
CUresult launch_without_workspace(
    index_t M, index_t N, index_t K, float alpha, const void* A, index_t lda, const void* B,
    index_t ldb, float beta, const void* C, index_t ldc, void* D, index_t ldd, void*, size_t,
    CUstream stream) {
  return kLaunch(M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd, stream);
}

struct Kernel {
  // Null where it needs none.
  CUresult (*workspace)(
      index_t M, index_t N, index_t K, const void* A, index_t lda, const void* B, index_t ldb,
      size_t* bytes);
  CUresult (*launch)(
      index_t M, index_t N, index_t K, float alpha, const void* A, index_t lda, const void* B,
      index_t ldb, float beta, const void* C, index_t ldc, void* D, index_t ldd, void* workspace,
      size_t workspace_bytes, CUstream stream);
  CUresult (*get)(Kernels&);
};

// clang-format off
constexpr Kernel kKernels[] = {
    {few_best1_ns::few_best1_workspace, few_best1_ns::few_best1_launch, few_best1_ns::get_kernels},
    {nullptr, launch_without_workspace<few_best2_ns::few_best2_launch>, few_best2_ns::get_kernels},
};
// clang-format on

struct Device {
  int capability, multiprocessors, shared;
};

// Asks the device of the current context.
CUresult ask(Device& asked) {
  const Driver& driver = get_driver();
  if (driver.error != CUDA_SUCCESS) return driver.error;
  CUdevice device;
  CUresult error = driver.cuCtxGetDevice(&device);
  constexpr int kAsked[] = {
      CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
      CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
      CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN};
  int found[4] = {};
  for (int i = 0; i < 4 && error == CUDA_SUCCESS; ++i) {
    error = driver.cuDeviceGetAttribute(&found[i], kAsked[i], device);
  }
  asked = {10 * found[0] + found[1], found[2], found[3]};
  return error;
}

// The kernel for the problem on the device of the current context.
CUresult choose(
    index_t M, index_t N, index_t K, const void* A, index_t lda, const void* B, index_t ldb,
    const Kernel*& chosen) {
  Device device;
  const CUresult error = ask(device);
  if (error != CUDA_SUCCESS) return error;
  const int kernel = pick(
      device.capability, device.multiprocessors, device.shared, M, N, K,
      reinterpret_cast<size_t>(A), lda, reinterpret_cast<size_t>(B), ldb);
  if (kernel < 0) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  chosen = &kKernels[kernel];
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" GEMMGEN_API int  // CUDA_SUCCESS once all kernels for the device are loaded
few_load() {
  Device device;
  CUresult error = ask(device);
  if (error != CUDA_SUCCESS) return error;
  const int gpu = gpu_for(device.capability, device.multiprocessors);
  if (gpu < 0) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  for (const Candidate& one : kCandidates) {
    Kernels kernels;
    if (one.gpu == gpu) error = kKernels[one.kernel].get(kernels);
    if (error != CUDA_SUCCESS) return error;
  }
  return CUDA_SUCCESS;
}

extern "C" GEMMGEN_API int  // CUDA_SUCCESS once *bytes is set
few_workspace(  // for a launch with these arguments
    index_t M, index_t N, index_t K, const void* A, index_t lda, const void* B, index_t ldb,
    size_t* bytes) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = 0;
  const Kernel* kernel = nullptr;
  const CUresult error = choose(M, N, K, A, lda, B, ldb, kernel);
  if (error != CUDA_SUCCESS || kernel->workspace == nullptr) return error;
  return kernel->workspace(M, N, K, A, lda, B, ldb, bytes);
}

extern "C" GEMMGEN_API int  // CUDA_SUCCESS once the kernel is on its way
few_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, float alpha, const void* A, index_t lda, const void* B,
    index_t ldb, float beta, const void* C, index_t ldc, void* D, index_t ldd, void* workspace,
    size_t workspace_bytes, CUstream stream) {
  const Kernel* kernel = nullptr;
  const CUresult error = choose(M, N, K, A, lda, B, ldb, kernel);
  if (error != CUDA_SUCCESS) return error;
  return kernel->launch(
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd, workspace, workspace_bytes, stream);
}

}  // namespace few_ns
