// heads: D = silu(x) * up[row, col] + slope * rest[row, col], x = alpha * A * B + beta * C,
// by the kernel that suits the problem and the device
//
// 8 kernels as machine code; then what predicts how long each takes for the problem at hand, and
// a launcher on the driver API that takes the fastest. For the shapes of the command below, one of them is
// the fastest of all that there are, or nearly so, by these predictions. The driver's library is opened
// when it is needed: nothing of CUDA has to be there to compile or to link this file.
//
// A batch of such products: their matrices are stride_a, stride_b, stride_c and stride_d elements apart.
// Where a stride of A, B or C is 0, all products have the same matrix. Those of D do not overlap; where
// D is C, both have one stride.
//
//   kernel for variant tile      tunables
//   1      a10 narrow  1x32x128  --vectors 1
//   2      a10 gemv    1x32x2048 --vectors 1
//   3      a10 simt    64x128x32 --threadblock 64x128x32 --sliced-k 4
//   4      a10 narrow  4x32x128  --vectors 4
//   5      a10 narrow  8x32x128
//   6      a10 simt    32x32x32  --threadblock 32x32x32 --warp 32x32 --stages 6 --sliced-k 8
//   7      a10 simt    64x32x32  --threadblock 64x32x32 --warp 64x32 --stages 6 --sliced-k 8
//   8      a10 simt    64x64x32  --threadblock 64x64x32 --stages 5 --sliced-k 8
//
// Made by gemmgen 0.2.0 with NVRTC 0.0:
//     gen emit --best
// Compile:  c++ -std=c++17 -c heads.cpp; programs link -ldl where the C library is older than 2.34
// SPDX-License-Identifier: 0BSD

#include "heads.h"

#if HEADS_SPEC != 0xf03929f2
#error "the header is another kernel's; emit both files together"
#endif

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <type_traits>

namespace heads_ns {  // several emitted files may be in one program, even in one file
namespace {

using index_t = long long;
using input_t = float;
using output_t = float;

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
};

using Loaded = Handles<CUkernel>;  // for all contexts
using Kernels = Handles<CUfunction>;  // in one of them

// A kernel and its helpers: they are loaded when they are first asked for, each image once, and unloaded
// when the program or its shared library ends.
struct Code {
  const Image (&images)[1];  // later ones are better
  const char* const (&symbols)[1];  // in the order of Handles; null: it has none
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
    };
    for (int k = 0; k < 1 && error == CUDA_SUCCESS; ++k) {
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

namespace heads_best1_ns {

using accumulator_t = float;
using scalar_t = accumulator_t;  // of alpha, beta, the epilogue

constexpr int kRows = 1, kCols = 32;  // of D, that a block computes
constexpr int kThreads = 256;  // per block

static_assert(kThreads % 32 == 0 && kThreads <= 1024, "a block has whole warps, at most 32");

// clang-format off
constexpr std::uint64_t kSm86[] = {
    0x0000000000000000, 0x0000000000000000,
};

constexpr const char* kSymbols[] = {"heads_best1"};
// clang-format on

constexpr Image kImages[] = {
    {86, 89, 0, kSm86},
};

CUresult get_kernels(Kernels& kernels) {
  // Made when the driver is at work, so that it ends before the driver.
  static Code code{kImages, kSymbols, 0};
  return code.get(kernels);
}

CUresult heads_best1_launch(
    index_t M, index_t N, index_t K, index_t batch, float alpha, const float* A, index_t lda,
    index_t stride_a, const float* B, index_t ldb, index_t stride_b, float beta, const float* C,
    index_t ldc, index_t stride_c, float* D, index_t ldd, index_t stride_d, const void* up,
    index_t ld_up, float slope, const float* rest, index_t ld_rest, CUstream stream) {
  constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows
  if (M < 0 || N < 0 || K < 0 || batch < 0) return CUDA_ERROR_INVALID_VALUE;
  if (M == 0 || N == 0 || batch == 0) return CUDA_SUCCESS;  // D has no elements
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (stride_a < 0 || stride_a > kLargest / batch)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (stride_b < 0 || stride_b > kLargest / batch)) return CUDA_ERROR_INVALID_VALUE;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return CUDA_ERROR_INVALID_VALUE;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return CUDA_ERROR_INVALID_VALUE;
  if (beta != 0 && (stride_c < 0 || stride_c > kLargest / batch)) return CUDA_ERROR_INVALID_VALUE;
  if (stride_d < 0 || stride_d > kLargest / batch) return CUDA_ERROR_INVALID_VALUE;
  // Products of D do not overlap.
  const bool follow = stride_d >= (M - 1) * ldd + N;  // one behind the other
  const bool beside = stride_d >= N && (batch - 1) * stride_d + N <= ldd;  // in the same lines
  if (batch > 1 && !follow && !beside) return CUDA_ERROR_INVALID_VALUE;
  if (up == nullptr || ld_up < N || ld_up > kLargest / M) return CUDA_ERROR_INVALID_VALUE;
  if (rest == nullptr || ld_rest < N || ld_rest > kLargest / M) return CUDA_ERROR_INVALID_VALUE;

  const index_t tiles = (M + kRows - 1) / kRows * ((N + kCols - 1) / kCols);  // of D
  const index_t grid_x = tiles < 2147483647 ? tiles : 2147483647;
  Kernels kernels;
  CUresult error = get_kernels(kernels);
  if (error != CUDA_SUCCESS) return error;
  const auto kernel = kernels.kernel;
  constexpr index_t most = 65535;  // products of a launch: blocks of a grid along z
  for (index_t first = 0; first < batch && error == CUDA_SUCCESS; first += most) {
    const index_t products = batch - first < most ? batch - first : most;
    const dim3 grid{unsigned(grid_x), 1, unsigned(products)};
    error = launch(
        kernel, grid, dim3{kThreads}, 0, stream,  // and its parameters:
        M, N, K, alpha, A, lda, stride_a, B, ldb, stride_b, beta, C, ldc, stride_c, D, ldd,
        stride_d, up, ld_up, slope, rest, ld_rest, first);
  }
  return error;
}

}  // namespace heads_best1_ns

// ---------------------------------------------------------------------------- kernel 2

namespace heads_best2_ns {

using accumulator_t = float;
using scalar_t = accumulator_t;  // of alpha, beta, the epilogue

constexpr int kRows = 1, kCols = 32;  // of D, that a block computes
constexpr int kThreads = 512;  // per block

static_assert(kThreads % 32 == 0 && kThreads <= 1024, "a block has whole warps, at most 32");

// clang-format off
constexpr std::uint64_t kSm86[] = {
    0x0000000000000000, 0x0000000000000000,
};

constexpr const char* kSymbols[] = {"heads_best2"};
// clang-format on

constexpr Image kImages[] = {
    {86, 89, 0, kSm86},
};

CUresult get_kernels(Kernels& kernels) {
  // Made when the driver is at work, so that it ends before the driver.
  static Code code{kImages, kSymbols, 0};
  return code.get(kernels);
}

CUresult heads_best2_launch(
    index_t M, index_t N, index_t K, index_t batch, float alpha, const float* A, index_t lda,
    index_t stride_a, const float* B, index_t ldb, index_t stride_b, float beta, const float* C,
    index_t ldc, index_t stride_c, float* D, index_t ldd, index_t stride_d, const void* up,
    index_t ld_up, float slope, const float* rest, index_t ld_rest, CUstream stream) {
  constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows
  if (M < 0 || N < 0 || K < 0 || batch < 0) return CUDA_ERROR_INVALID_VALUE;
  if (M == 0 || N == 0 || batch == 0) return CUDA_SUCCESS;  // D has no elements
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (stride_a < 0 || stride_a > kLargest / batch)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (stride_b < 0 || stride_b > kLargest / batch)) return CUDA_ERROR_INVALID_VALUE;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return CUDA_ERROR_INVALID_VALUE;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return CUDA_ERROR_INVALID_VALUE;
  if (beta != 0 && (stride_c < 0 || stride_c > kLargest / batch)) return CUDA_ERROR_INVALID_VALUE;
  if (stride_d < 0 || stride_d > kLargest / batch) return CUDA_ERROR_INVALID_VALUE;
  // Products of D do not overlap.
  const bool follow = stride_d >= (M - 1) * ldd + N;  // one behind the other
  const bool beside = stride_d >= N && (batch - 1) * stride_d + N <= ldd;  // in the same lines
  if (batch > 1 && !follow && !beside) return CUDA_ERROR_INVALID_VALUE;
  if (up == nullptr || ld_up < N || ld_up > kLargest / M) return CUDA_ERROR_INVALID_VALUE;
  if (rest == nullptr || ld_rest < N || ld_rest > kLargest / M) return CUDA_ERROR_INVALID_VALUE;

  const index_t tiles = (M + kRows - 1) / kRows * ((N + kCols - 1) / kCols);  // of D
  const index_t grid_x = tiles < 2147483647 ? tiles : 2147483647;
  Kernels kernels;
  CUresult error = get_kernels(kernels);
  if (error != CUDA_SUCCESS) return error;
  const auto kernel = kernels.kernel;
  constexpr index_t most = 65535;  // products of a launch: blocks of a grid along z
  for (index_t first = 0; first < batch && error == CUDA_SUCCESS; first += most) {
    const index_t products = batch - first < most ? batch - first : most;
    const dim3 grid{unsigned(grid_x), 1, unsigned(products)};
    error = launch(
        kernel, grid, dim3{kThreads}, 0, stream,  // and its parameters:
        M, N, K, alpha, A, lda, stride_a, B, ldb, stride_b, beta, C, ldc, stride_c, D, ldd,
        stride_d, up, ld_up, slope, rest, ld_rest, first);
  }
  return error;
}

}  // namespace heads_best2_ns

// ---------------------------------------------------------------------------- kernel 3

namespace heads_best3_ns {

using scalar_t = float;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;

constexpr int kTileM = 64, kTileN = 128;  // the work tile of a block
constexpr int kThreads = 256;  // 8 warps
constexpr int kSharedBytes = 100368;

// clang-format off
constexpr std::uint64_t kSm86[] = {
    0x0000000000000000, 0x0000000000000000,
};

constexpr const char* kSymbols[] = {"heads_best3"};
// clang-format on

constexpr Image kImages[] = {
    {86, 89, 0, kSm86},
};

CUresult get_kernels(Kernels& kernels) {
  // Made when the driver is at work, so that it ends before the driver.
  static Code code{kImages, kSymbols, kSharedBytes};
  return code.get(kernels);
}

// A launch, worked out from top to bottom.
struct Plan {
  index_t M, N, K, batch;

  index_t tiles = (M + kTileM - 1) / kTileM * ((N + kTileN - 1) / kTileN) * batch;  // of D
};

constexpr size_t kSide = 2147479552;  // M, N, K: 2^31 - 4096, so that where a tile ends is an int
constexpr size_t kMost = 2147483647;  // blocks
constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows

CUresult heads_best3_workspace(
    index_t M, index_t N, index_t K, index_t batch, const float* A, index_t lda, index_t stride_a,
    const float* B, index_t ldb, index_t stride_b, size_t* bytes) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = 0;
  if (size_t(M) > kSide || size_t(N) > kSide || size_t(K) > kSide) return CUDA_ERROR_INVALID_VALUE;
  if (size_t(batch) > kMost) return CUDA_ERROR_INVALID_VALUE;
  if (M == 0 || N == 0 || batch == 0) return CUDA_SUCCESS;  // D has no elements
  if (M > kLargest / N || batch > kLargest / (M * N)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (stride_a < 0 || stride_a > kLargest / batch)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (stride_b < 0 || stride_b > kLargest / batch)) return CUDA_ERROR_INVALID_VALUE;
  const Plan plan{M, N, K, batch};
  if (size_t(plan.tiles) > kMost) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult heads_best3_launch(
    index_t M, index_t N, index_t K, index_t batch, float alpha, const float* A, index_t lda,
    index_t stride_a, const float* B, index_t ldb, index_t stride_b, float beta, const float* C,
    index_t ldc, index_t stride_c, float* D, index_t ldd, index_t stride_d, const void* up,
    index_t ld_up, float slope, const float* rest, index_t ld_rest, void* workspace,
    size_t workspace_bytes, CUstream stream) {
  size_t needed;  // bytes of the workspace
  auto ask = heads_best3_workspace;
  int error = ask(M, N, K, batch, A, lda, stride_a, B, ldb, stride_b, &needed);
  if (error != CUDA_SUCCESS || M == 0 || N == 0 || batch == 0) return error;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return CUDA_ERROR_INVALID_VALUE;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return CUDA_ERROR_INVALID_VALUE;
  if (beta != 0 && (stride_c < 0 || stride_c > kLargest / batch)) return CUDA_ERROR_INVALID_VALUE;
  if (stride_d < 0 || stride_d > kLargest / batch) return CUDA_ERROR_INVALID_VALUE;
  // Products of D do not overlap.
  const bool follow = stride_d >= (M - 1) * ldd + N;  // one behind the other
  const bool beside = stride_d >= N && (batch - 1) * stride_d + N <= ldd;  // in the same lines
  if (batch > 1 && !follow && !beside) return CUDA_ERROR_INVALID_VALUE;
  if (up == nullptr || ld_up < N || ld_up > kLargest / M) return CUDA_ERROR_INVALID_VALUE;
  if (rest == nullptr || ld_rest < N || ld_rest > kLargest / M) return CUDA_ERROR_INVALID_VALUE;

  Kernels kernels;
  error = get_kernels(kernels);
  if (error != CUDA_SUCCESS) return error;
  const Plan plan{M, N, K, batch};
  (void)workspace, (void)workspace_bytes;  // nothing is packed, nothing is added up later

  const auto kernel = kernels.kernel;

  const dim3 grid(unsigned(plan.tiles));
  return launch(
      kernel, grid, kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, alpha, A, lda, stride_a, B, ldb, stride_b, beta, C, ldc, stride_c, D, ldd,
      stride_d, up, ld_up, slope, rest, ld_rest);
}

}  // namespace heads_best3_ns

// ---------------------------------------------------------------------------- kernel 4

namespace heads_best4_ns {

using accumulator_t = float;
using scalar_t = accumulator_t;  // of alpha, beta, the epilogue

constexpr int kRows = 4, kCols = 32;  // of D, that a block computes
constexpr int kThreads = 256;  // per block

static_assert(kThreads % 32 == 0 && kThreads <= 1024, "a block has whole warps, at most 32");

// clang-format off
constexpr std::uint64_t kSm86[] = {
    0x0000000000000000, 0x0000000000000000,
};

constexpr const char* kSymbols[] = {"heads_best4"};
// clang-format on

constexpr Image kImages[] = {
    {86, 89, 0, kSm86},
};

CUresult get_kernels(Kernels& kernels) {
  // Made when the driver is at work, so that it ends before the driver.
  static Code code{kImages, kSymbols, 0};
  return code.get(kernels);
}

CUresult heads_best4_launch(
    index_t M, index_t N, index_t K, index_t batch, float alpha, const float* A, index_t lda,
    index_t stride_a, const float* B, index_t ldb, index_t stride_b, float beta, const float* C,
    index_t ldc, index_t stride_c, float* D, index_t ldd, index_t stride_d, const void* up,
    index_t ld_up, float slope, const float* rest, index_t ld_rest, CUstream stream) {
  constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows
  if (M < 0 || N < 0 || K < 0 || batch < 0) return CUDA_ERROR_INVALID_VALUE;
  if (M == 0 || N == 0 || batch == 0) return CUDA_SUCCESS;  // D has no elements
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (stride_a < 0 || stride_a > kLargest / batch)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (stride_b < 0 || stride_b > kLargest / batch)) return CUDA_ERROR_INVALID_VALUE;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return CUDA_ERROR_INVALID_VALUE;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return CUDA_ERROR_INVALID_VALUE;
  if (beta != 0 && (stride_c < 0 || stride_c > kLargest / batch)) return CUDA_ERROR_INVALID_VALUE;
  if (stride_d < 0 || stride_d > kLargest / batch) return CUDA_ERROR_INVALID_VALUE;
  // Products of D do not overlap.
  const bool follow = stride_d >= (M - 1) * ldd + N;  // one behind the other
  const bool beside = stride_d >= N && (batch - 1) * stride_d + N <= ldd;  // in the same lines
  if (batch > 1 && !follow && !beside) return CUDA_ERROR_INVALID_VALUE;
  if (up == nullptr || ld_up < N || ld_up > kLargest / M) return CUDA_ERROR_INVALID_VALUE;
  if (rest == nullptr || ld_rest < N || ld_rest > kLargest / M) return CUDA_ERROR_INVALID_VALUE;

  const index_t tiles = (M + kRows - 1) / kRows * ((N + kCols - 1) / kCols);  // of D
  const index_t grid_x = tiles < 2147483647 ? tiles : 2147483647;
  Kernels kernels;
  CUresult error = get_kernels(kernels);
  if (error != CUDA_SUCCESS) return error;
  const auto kernel = kernels.kernel;
  constexpr index_t most = 65535;  // products of a launch: blocks of a grid along z
  for (index_t first = 0; first < batch && error == CUDA_SUCCESS; first += most) {
    const index_t products = batch - first < most ? batch - first : most;
    const dim3 grid{unsigned(grid_x), 1, unsigned(products)};
    error = launch(
        kernel, grid, dim3{kThreads}, 0, stream,  // and its parameters:
        M, N, K, alpha, A, lda, stride_a, B, ldb, stride_b, beta, C, ldc, stride_c, D, ldd,
        stride_d, up, ld_up, slope, rest, ld_rest, first);
  }
  return error;
}

}  // namespace heads_best4_ns

// ---------------------------------------------------------------------------- kernel 5

namespace heads_best5_ns {

using accumulator_t = float;
using scalar_t = accumulator_t;  // of alpha, beta, the epilogue

constexpr int kRows = 8, kCols = 32;  // of D, that a block computes
constexpr int kThreads = 256;  // per block

static_assert(kThreads % 32 == 0 && kThreads <= 1024, "a block has whole warps, at most 32");

// clang-format off
constexpr std::uint64_t kSm86[] = {
    0x0000000000000000, 0x0000000000000000,
};

constexpr const char* kSymbols[] = {"heads_best5"};
// clang-format on

constexpr Image kImages[] = {
    {86, 89, 0, kSm86},
};

CUresult get_kernels(Kernels& kernels) {
  // Made when the driver is at work, so that it ends before the driver.
  static Code code{kImages, kSymbols, 0};
  return code.get(kernels);
}

CUresult heads_best5_launch(
    index_t M, index_t N, index_t K, index_t batch, float alpha, const float* A, index_t lda,
    index_t stride_a, const float* B, index_t ldb, index_t stride_b, float beta, const float* C,
    index_t ldc, index_t stride_c, float* D, index_t ldd, index_t stride_d, const void* up,
    index_t ld_up, float slope, const float* rest, index_t ld_rest, CUstream stream) {
  constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows
  if (M < 0 || N < 0 || K < 0 || batch < 0) return CUDA_ERROR_INVALID_VALUE;
  if (M == 0 || N == 0 || batch == 0) return CUDA_SUCCESS;  // D has no elements
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (stride_a < 0 || stride_a > kLargest / batch)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (stride_b < 0 || stride_b > kLargest / batch)) return CUDA_ERROR_INVALID_VALUE;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return CUDA_ERROR_INVALID_VALUE;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return CUDA_ERROR_INVALID_VALUE;
  if (beta != 0 && (stride_c < 0 || stride_c > kLargest / batch)) return CUDA_ERROR_INVALID_VALUE;
  if (stride_d < 0 || stride_d > kLargest / batch) return CUDA_ERROR_INVALID_VALUE;
  // Products of D do not overlap.
  const bool follow = stride_d >= (M - 1) * ldd + N;  // one behind the other
  const bool beside = stride_d >= N && (batch - 1) * stride_d + N <= ldd;  // in the same lines
  if (batch > 1 && !follow && !beside) return CUDA_ERROR_INVALID_VALUE;
  if (up == nullptr || ld_up < N || ld_up > kLargest / M) return CUDA_ERROR_INVALID_VALUE;
  if (rest == nullptr || ld_rest < N || ld_rest > kLargest / M) return CUDA_ERROR_INVALID_VALUE;

  const index_t tiles = (M + kRows - 1) / kRows * ((N + kCols - 1) / kCols);  // of D
  const index_t grid_x = tiles < 2147483647 ? tiles : 2147483647;
  Kernels kernels;
  CUresult error = get_kernels(kernels);
  if (error != CUDA_SUCCESS) return error;
  const auto kernel = kernels.kernel;
  constexpr index_t most = 65535;  // products of a launch: blocks of a grid along z
  for (index_t first = 0; first < batch && error == CUDA_SUCCESS; first += most) {
    const index_t products = batch - first < most ? batch - first : most;
    const dim3 grid{unsigned(grid_x), 1, unsigned(products)};
    error = launch(
        kernel, grid, dim3{kThreads}, 0, stream,  // and its parameters:
        M, N, K, alpha, A, lda, stride_a, B, ldb, stride_b, beta, C, ldc, stride_c, D, ldd,
        stride_d, up, ld_up, slope, rest, ld_rest, first);
  }
  return error;
}

}  // namespace heads_best5_ns

// ---------------------------------------------------------------------------- kernel 6

namespace heads_best6_ns {

using scalar_t = float;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;

constexpr int kTileM = 32, kTileN = 32;  // the work tile of a block
constexpr int kThreads = 256;  // 8 warps
constexpr int kSharedBytes = 52240;

// clang-format off
constexpr std::uint64_t kSm86[] = {
    0x0000000000000000, 0x0000000000000000,
};

constexpr const char* kSymbols[] = {"heads_best6"};
// clang-format on

constexpr Image kImages[] = {
    {86, 89, 0, kSm86},
};

CUresult get_kernels(Kernels& kernels) {
  // Made when the driver is at work, so that it ends before the driver.
  static Code code{kImages, kSymbols, kSharedBytes};
  return code.get(kernels);
}

// A launch, worked out from top to bottom.
struct Plan {
  index_t M, N, K, batch;

  index_t tiles = (M + kTileM - 1) / kTileM * ((N + kTileN - 1) / kTileN) * batch;  // of D
};

constexpr size_t kSide = 2147479552;  // M, N, K: 2^31 - 4096, so that where a tile ends is an int
constexpr size_t kMost = 2147483647;  // blocks
constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows

CUresult heads_best6_workspace(
    index_t M, index_t N, index_t K, index_t batch, const float* A, index_t lda, index_t stride_a,
    const float* B, index_t ldb, index_t stride_b, size_t* bytes) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = 0;
  if (size_t(M) > kSide || size_t(N) > kSide || size_t(K) > kSide) return CUDA_ERROR_INVALID_VALUE;
  if (size_t(batch) > kMost) return CUDA_ERROR_INVALID_VALUE;
  if (M == 0 || N == 0 || batch == 0) return CUDA_SUCCESS;  // D has no elements
  if (M > kLargest / N || batch > kLargest / (M * N)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (stride_a < 0 || stride_a > kLargest / batch)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (stride_b < 0 || stride_b > kLargest / batch)) return CUDA_ERROR_INVALID_VALUE;
  const Plan plan{M, N, K, batch};
  if (size_t(plan.tiles) > kMost) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult heads_best6_launch(
    index_t M, index_t N, index_t K, index_t batch, float alpha, const float* A, index_t lda,
    index_t stride_a, const float* B, index_t ldb, index_t stride_b, float beta, const float* C,
    index_t ldc, index_t stride_c, float* D, index_t ldd, index_t stride_d, const void* up,
    index_t ld_up, float slope, const float* rest, index_t ld_rest, void* workspace,
    size_t workspace_bytes, CUstream stream) {
  size_t needed;  // bytes of the workspace
  auto ask = heads_best6_workspace;
  int error = ask(M, N, K, batch, A, lda, stride_a, B, ldb, stride_b, &needed);
  if (error != CUDA_SUCCESS || M == 0 || N == 0 || batch == 0) return error;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return CUDA_ERROR_INVALID_VALUE;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return CUDA_ERROR_INVALID_VALUE;
  if (beta != 0 && (stride_c < 0 || stride_c > kLargest / batch)) return CUDA_ERROR_INVALID_VALUE;
  if (stride_d < 0 || stride_d > kLargest / batch) return CUDA_ERROR_INVALID_VALUE;
  // Products of D do not overlap.
  const bool follow = stride_d >= (M - 1) * ldd + N;  // one behind the other
  const bool beside = stride_d >= N && (batch - 1) * stride_d + N <= ldd;  // in the same lines
  if (batch > 1 && !follow && !beside) return CUDA_ERROR_INVALID_VALUE;
  if (up == nullptr || ld_up < N || ld_up > kLargest / M) return CUDA_ERROR_INVALID_VALUE;
  if (rest == nullptr || ld_rest < N || ld_rest > kLargest / M) return CUDA_ERROR_INVALID_VALUE;

  Kernels kernels;
  error = get_kernels(kernels);
  if (error != CUDA_SUCCESS) return error;
  const Plan plan{M, N, K, batch};
  (void)workspace, (void)workspace_bytes;  // nothing is packed, nothing is added up later

  const auto kernel = kernels.kernel;

  const dim3 grid(unsigned(plan.tiles));
  return launch(
      kernel, grid, kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, alpha, A, lda, stride_a, B, ldb, stride_b, beta, C, ldc, stride_c, D, ldd,
      stride_d, up, ld_up, slope, rest, ld_rest);
}

}  // namespace heads_best6_ns

// ---------------------------------------------------------------------------- kernel 7

namespace heads_best7_ns {

using scalar_t = float;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;

constexpr int kTileM = 64, kTileN = 32;  // the work tile of a block
constexpr int kThreads = 256;  // 8 warps
constexpr int kSharedBytes = 76816;

// clang-format off
constexpr std::uint64_t kSm86[] = {
    0x0000000000000000, 0x0000000000000000,
};

constexpr const char* kSymbols[] = {"heads_best7"};
// clang-format on

constexpr Image kImages[] = {
    {86, 89, 0, kSm86},
};

CUresult get_kernels(Kernels& kernels) {
  // Made when the driver is at work, so that it ends before the driver.
  static Code code{kImages, kSymbols, kSharedBytes};
  return code.get(kernels);
}

// A launch, worked out from top to bottom.
struct Plan {
  index_t M, N, K, batch;

  index_t tiles = (M + kTileM - 1) / kTileM * ((N + kTileN - 1) / kTileN) * batch;  // of D
};

constexpr size_t kSide = 2147479552;  // M, N, K: 2^31 - 4096, so that where a tile ends is an int
constexpr size_t kMost = 2147483647;  // blocks
constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows

CUresult heads_best7_workspace(
    index_t M, index_t N, index_t K, index_t batch, const float* A, index_t lda, index_t stride_a,
    const float* B, index_t ldb, index_t stride_b, size_t* bytes) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = 0;
  if (size_t(M) > kSide || size_t(N) > kSide || size_t(K) > kSide) return CUDA_ERROR_INVALID_VALUE;
  if (size_t(batch) > kMost) return CUDA_ERROR_INVALID_VALUE;
  if (M == 0 || N == 0 || batch == 0) return CUDA_SUCCESS;  // D has no elements
  if (M > kLargest / N || batch > kLargest / (M * N)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (stride_a < 0 || stride_a > kLargest / batch)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (stride_b < 0 || stride_b > kLargest / batch)) return CUDA_ERROR_INVALID_VALUE;
  const Plan plan{M, N, K, batch};
  if (size_t(plan.tiles) > kMost) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult heads_best7_launch(
    index_t M, index_t N, index_t K, index_t batch, float alpha, const float* A, index_t lda,
    index_t stride_a, const float* B, index_t ldb, index_t stride_b, float beta, const float* C,
    index_t ldc, index_t stride_c, float* D, index_t ldd, index_t stride_d, const void* up,
    index_t ld_up, float slope, const float* rest, index_t ld_rest, void* workspace,
    size_t workspace_bytes, CUstream stream) {
  size_t needed;  // bytes of the workspace
  auto ask = heads_best7_workspace;
  int error = ask(M, N, K, batch, A, lda, stride_a, B, ldb, stride_b, &needed);
  if (error != CUDA_SUCCESS || M == 0 || N == 0 || batch == 0) return error;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return CUDA_ERROR_INVALID_VALUE;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return CUDA_ERROR_INVALID_VALUE;
  if (beta != 0 && (stride_c < 0 || stride_c > kLargest / batch)) return CUDA_ERROR_INVALID_VALUE;
  if (stride_d < 0 || stride_d > kLargest / batch) return CUDA_ERROR_INVALID_VALUE;
  // Products of D do not overlap.
  const bool follow = stride_d >= (M - 1) * ldd + N;  // one behind the other
  const bool beside = stride_d >= N && (batch - 1) * stride_d + N <= ldd;  // in the same lines
  if (batch > 1 && !follow && !beside) return CUDA_ERROR_INVALID_VALUE;
  if (up == nullptr || ld_up < N || ld_up > kLargest / M) return CUDA_ERROR_INVALID_VALUE;
  if (rest == nullptr || ld_rest < N || ld_rest > kLargest / M) return CUDA_ERROR_INVALID_VALUE;

  Kernels kernels;
  error = get_kernels(kernels);
  if (error != CUDA_SUCCESS) return error;
  const Plan plan{M, N, K, batch};
  (void)workspace, (void)workspace_bytes;  // nothing is packed, nothing is added up later

  const auto kernel = kernels.kernel;

  const dim3 grid(unsigned(plan.tiles));
  return launch(
      kernel, grid, kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, alpha, A, lda, stride_a, B, ldb, stride_b, beta, C, ldc, stride_c, D, ldd,
      stride_d, up, ld_up, slope, rest, ld_rest);
}

}  // namespace heads_best7_ns

// ---------------------------------------------------------------------------- kernel 8

namespace heads_best8_ns {

using scalar_t = float;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;

constexpr int kTileM = 64, kTileN = 64;  // the work tile of a block
constexpr int kThreads = 256;  // 8 warps
constexpr int kSharedBytes = 84496;

// clang-format off
constexpr std::uint64_t kSm86[] = {
    0x0000000000000000, 0x0000000000000000,
};

constexpr const char* kSymbols[] = {"heads_best8"};
// clang-format on

constexpr Image kImages[] = {
    {86, 89, 0, kSm86},
};

CUresult get_kernels(Kernels& kernels) {
  // Made when the driver is at work, so that it ends before the driver.
  static Code code{kImages, kSymbols, kSharedBytes};
  return code.get(kernels);
}

// A launch, worked out from top to bottom.
struct Plan {
  index_t M, N, K, batch;

  index_t tiles = (M + kTileM - 1) / kTileM * ((N + kTileN - 1) / kTileN) * batch;  // of D
};

constexpr size_t kSide = 2147479552;  // M, N, K: 2^31 - 4096, so that where a tile ends is an int
constexpr size_t kMost = 2147483647;  // blocks
constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows

CUresult heads_best8_workspace(
    index_t M, index_t N, index_t K, index_t batch, const float* A, index_t lda, index_t stride_a,
    const float* B, index_t ldb, index_t stride_b, size_t* bytes) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = 0;
  if (size_t(M) > kSide || size_t(N) > kSide || size_t(K) > kSide) return CUDA_ERROR_INVALID_VALUE;
  if (size_t(batch) > kMost) return CUDA_ERROR_INVALID_VALUE;
  if (M == 0 || N == 0 || batch == 0) return CUDA_SUCCESS;  // D has no elements
  if (M > kLargest / N || batch > kLargest / (M * N)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (stride_a < 0 || stride_a > kLargest / batch)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (stride_b < 0 || stride_b > kLargest / batch)) return CUDA_ERROR_INVALID_VALUE;
  const Plan plan{M, N, K, batch};
  if (size_t(plan.tiles) > kMost) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult heads_best8_launch(
    index_t M, index_t N, index_t K, index_t batch, float alpha, const float* A, index_t lda,
    index_t stride_a, const float* B, index_t ldb, index_t stride_b, float beta, const float* C,
    index_t ldc, index_t stride_c, float* D, index_t ldd, index_t stride_d, const void* up,
    index_t ld_up, float slope, const float* rest, index_t ld_rest, void* workspace,
    size_t workspace_bytes, CUstream stream) {
  size_t needed;  // bytes of the workspace
  auto ask = heads_best8_workspace;
  int error = ask(M, N, K, batch, A, lda, stride_a, B, ldb, stride_b, &needed);
  if (error != CUDA_SUCCESS || M == 0 || N == 0 || batch == 0) return error;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return CUDA_ERROR_INVALID_VALUE;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return CUDA_ERROR_INVALID_VALUE;
  if (beta != 0 && (stride_c < 0 || stride_c > kLargest / batch)) return CUDA_ERROR_INVALID_VALUE;
  if (stride_d < 0 || stride_d > kLargest / batch) return CUDA_ERROR_INVALID_VALUE;
  // Products of D do not overlap.
  const bool follow = stride_d >= (M - 1) * ldd + N;  // one behind the other
  const bool beside = stride_d >= N && (batch - 1) * stride_d + N <= ldd;  // in the same lines
  if (batch > 1 && !follow && !beside) return CUDA_ERROR_INVALID_VALUE;
  if (up == nullptr || ld_up < N || ld_up > kLargest / M) return CUDA_ERROR_INVALID_VALUE;
  if (rest == nullptr || ld_rest < N || ld_rest > kLargest / M) return CUDA_ERROR_INVALID_VALUE;

  Kernels kernels;
  error = get_kernels(kernels);
  if (error != CUDA_SUCCESS) return error;
  const Plan plan{M, N, K, batch};
  (void)workspace, (void)workspace_bytes;  // nothing is packed, nothing is added up later

  const auto kernel = kernels.kernel;

  const dim3 grid(unsigned(plan.tiles));
  return launch(
      kernel, grid, kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, alpha, A, lda, stride_a, B, ldb, stride_b, beta, C, ldc, stride_c, D, ldd,
      stride_d, up, ld_up, slope, rest, ld_rest);
}

}  // namespace heads_best8_ns

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
    {86, 72},  // A10 24 GB
};

constexpr Candidate kCandidates[] = {
    {0, 0, {1, 32, 1, 1, 1, 1, 1431, 6508, 0, 74, 2363, 7, 236, 1234708, 37809, 32, 0, 289500, 2, 1, 1, 0, 0, 0, 1, 0, 2702400, 1, 0, 0, 4, 4, 0, 16, 16, 1, 0, 0, 16, 26, 2, 0, 11, 13, 1707, 6291456}},
    {0, 1, {1, 32, 1, 1, 1, 1, 1049, 1235, 0, 74, 2363, 32, 1016, 3018831, 37809, 32, 0, 265000, 1, 1, 1, 0, 0, 0, 1, 0, 2702400, 1, 0, 0, 4, 4, 0, 16, 16, 1, 0, 0, 16, 26, 0, 0, 11, 13, 1707, 6291456}},
    {0, 2, {64, 128, 32, 1, 1, 1, 1482266, 1527164, 1831, 151237, 302474, 90742, 181484, 1564357, 177703, 15, 0, 1206800, 1, 1, 1, 0, 0, 0, 0, 0, 3314400, 12, 0, 0, 4, 4, 0, 16, 16, 1, 0, 0, 16, 26, 8, 0, 11, 13, 1707, 6291456}},
    {0, 3, {4, 32, 1, 1, 1, 1, 1861, 6938, 0, 295, 2363, 30, 236, 1234708, 37809, 32, 0, 672000, 2, 1, 1, 0, 0, 0, 1, 0, 2709600, 1, 0, 0, 4, 4, 0, 16, 16, 1, 0, 0, 16, 26, 2, 0, 11, 13, 1707, 6291456}},
    {0, 4, {8, 32, 1, 1, 1, 1, 2435, 7512, 0, 591, 2363, 59, 236, 1234708, 37809, 32, 0, 1182000, 2, 1, 1, 0, 0, 0, 1, 0, 2719200, 1, 0, 0, 4, 4, 0, 16, 16, 1, 0, 0, 16, 26, 2, 0, 11, 13, 1707, 6291456}},
    {0, 5, {32, 32, 32, 1, 1, 1, 343096, 387995, 1831, 75618, 75618, 45371, 45371, 1564357, 177703, 15, 0, 719600, 1, 1, 1, 0, 0, 0, 0, 0, 2776800, 12, 0, 0, 4, 4, 0, 16, 16, 1, 0, 0, 16, 26, 8, 0, 11, 13, 1707, 6291456}},
    {0, 6, {64, 32, 32, 1, 1, 1, 519075, 563974, 1831, 151237, 75618, 90742, 45371, 1564357, 177703, 15, 0, 789200, 1, 1, 1, 0, 0, 0, 0, 0, 2853600, 12, 0, 0, 4, 4, 0, 16, 16, 1, 0, 0, 16, 26, 8, 0, 11, 13, 1707, 6291456}},
    {0, 7, {64, 64, 32, 1, 1, 1, 821549, 866448, 1831, 151237, 151237, 90742, 90742, 1564357, 177703, 15, 0, 928400, 1, 1, 1, 0, 0, 0, 0, 0, 3007200, 12, 0, 0, 4, 4, 0, 16, 16, 1, 0, 0, 16, 26, 8, 0, 11, 13, 1707, 6291456}},
};

struct Limits {
  bool swapped;  // whether it computes the transpose of D
  int last;  // compute capability that runs it; 0: all newer ones do
  int shared;  // bytes of shared memory
};

constexpr Limits kLimits[] = {
    {false, 0, 1024},
    {false, 0, 2048},
    {false, 0, 100368},
    {false, 0, 4096},
    {false, 0, 8192},
    {false, 0, 52240},
    {false, 0, 76816},
    {false, 0, 84496},
};

// Picoseconds that a kernel takes, as predicted. M, N, A and B are those of the row-major product.
index_t predict(
    const Candidate& one, index_t M, index_t N, index_t K, index_t batch, index_t A, index_t lda,
    index_t B, index_t ldb, index_t multiprocessors) {
  const auto [tile_m, tile_n, tile_k, cluster_m, cluster_n, cluster_k, math, lone, wait, copy_a,
              copy_b, small_a, small_b, last, store, rough, hides, start, resident, held, split,
              stream, lines, flows, few, sagging, sharing, group, packs_a, packs_b, size, out,
              turned, spread_a, spread_b, run_a, run_b, asked, scatter, torn, strewn_a, strewn_b,
              packed, added, kib, cache] = one.weights;
  const index_t m = M < 1 ? 1 : M < 262144 ? M : 262144;
  const index_t n = N < 1 ? 1 : N < 262144 ? N : 262144;
  const index_t k = K < 1 ? 1 : K < 262144 ? K : 262144;
  const index_t largest = 1 + 18014398509481984 / ((m + 256) * (n + 256) * (k + 256));  // of products, that count
  const index_t count = batch < 1 ? 1 : batch < largest ? batch : largest;  // products
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
    int capability, int multiprocessors, int shared, index_t M, index_t N, index_t K, index_t batch,
    size_t A, index_t lda, size_t B, index_t ldb) {
  const int gpu = gpu_for(capability, multiprocessors);
  const index_t a = index_t(A % 256), b = index_t(B % 256);  // what is asked of addresses
  lda %= 256, ldb %= 256;  // and of the distance of lines: which multiples of bytes they are
  int found = -1;
  index_t least = 0;
  for (const Candidate& one : kCandidates) {
    const Limits& limits = kLimits[one.kernel];
    const bool runs = limits.last == 0 || capability <= limits.last;
    if (one.gpu != gpu || !runs || limits.shared > shared) continue;
    const index_t time = limits.swapped
                             ? predict(one, N, M, K, batch, b, ldb, a, lda, multiprocessors)
                             : predict(one, M, N, K, batch, a, lda, b, ldb, multiprocessors);
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
    index_t M, index_t N, index_t K, index_t batch, float alpha, const float* A, index_t lda,
    index_t stride_a, const float* B, index_t ldb, index_t stride_b, float beta, const float* C,
    index_t ldc, index_t stride_c, float* D, index_t ldd, index_t stride_d, const void* up,
    index_t ld_up, float slope, const float* rest, index_t ld_rest, void*, size_t,
    CUstream stream) {
  return kLaunch(
      M, N, K, batch, alpha, A, lda, stride_a, B, ldb, stride_b, beta, C, ldc, stride_c, D, ldd,
      stride_d, up, ld_up, slope, rest, ld_rest, stream);
}

struct Kernel {
  // Null where it needs none.
  CUresult (*workspace)(
      index_t M, index_t N, index_t K, index_t batch, const float* A, index_t lda, index_t stride_a,
      const float* B, index_t ldb, index_t stride_b, size_t* bytes);
  CUresult (*launch)(
      index_t M, index_t N, index_t K, index_t batch, float alpha, const float* A, index_t lda,
      index_t stride_a, const float* B, index_t ldb, index_t stride_b, float beta, const float* C,
      index_t ldc, index_t stride_c, float* D, index_t ldd, index_t stride_d, const void* up,
      index_t ld_up, float slope, const float* rest, index_t ld_rest, void* workspace,
      size_t workspace_bytes, CUstream stream);
  CUresult (*get)(Kernels&);
};

// clang-format off
constexpr Kernel kKernels[] = {
    {nullptr, launch_without_workspace<heads_best1_ns::heads_best1_launch>, heads_best1_ns::get_kernels},
    {nullptr, launch_without_workspace<heads_best2_ns::heads_best2_launch>, heads_best2_ns::get_kernels},
    {heads_best3_ns::heads_best3_workspace, heads_best3_ns::heads_best3_launch, heads_best3_ns::get_kernels},
    {nullptr, launch_without_workspace<heads_best4_ns::heads_best4_launch>, heads_best4_ns::get_kernels},
    {nullptr, launch_without_workspace<heads_best5_ns::heads_best5_launch>, heads_best5_ns::get_kernels},
    {heads_best6_ns::heads_best6_workspace, heads_best6_ns::heads_best6_launch, heads_best6_ns::get_kernels},
    {heads_best7_ns::heads_best7_workspace, heads_best7_ns::heads_best7_launch, heads_best7_ns::get_kernels},
    {heads_best8_ns::heads_best8_workspace, heads_best8_ns::heads_best8_launch, heads_best8_ns::get_kernels},
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
    index_t M, index_t N, index_t K, index_t batch, const void* A, index_t lda, const void* B,
    index_t ldb, const Kernel*& chosen) {
  Device device;
  const CUresult error = ask(device);
  if (error != CUDA_SUCCESS) return error;
  const int kernel = pick(
      device.capability, device.multiprocessors, device.shared, M, N, K, batch,
      reinterpret_cast<size_t>(A), lda, reinterpret_cast<size_t>(B), ldb);
  if (kernel < 0) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  chosen = &kKernels[kernel];
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" GEMMGEN_API int  // CUDA_SUCCESS once all kernels for the device are loaded
heads_load() {
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
heads_workspace(  // for a launch with these arguments
    index_t M, index_t N, index_t K, index_t batch, const float* A, index_t lda, index_t stride_a,
    const float* B, index_t ldb, index_t stride_b, size_t* bytes) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = 0;
  const Kernel* kernel = nullptr;
  const CUresult error = choose(M, N, K, batch, A, lda, B, ldb, kernel);
  if (error != CUDA_SUCCESS || kernel->workspace == nullptr) return error;
  return kernel->workspace(M, N, K, batch, A, lda, stride_a, B, ldb, stride_b, bytes);
}

extern "C" GEMMGEN_API int  // CUDA_SUCCESS once the kernel is on its way
heads_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, index_t batch, float alpha, const float* A, index_t lda,
    index_t stride_a, const float* B, index_t ldb, index_t stride_b, float beta, const float* C,
    index_t ldc, index_t stride_c, float* D, index_t ldd, index_t stride_d, const void* up,
    index_t ld_up, float slope, const float* rest, index_t ld_rest, void* workspace,
    size_t workspace_bytes, CUstream stream) {
  const Kernel* kernel = nullptr;
  const CUresult error = choose(M, N, K, batch, A, lda, B, ldb, kernel);
  if (error != CUDA_SUCCESS) return error;
  return kernel->launch(
      M, N, K, batch, alpha, A, lda, stride_a, B, ldb, stride_b, beta, C, ldc, stride_c, D, ldd,
      stride_d, up, ld_up, slope, rest, ld_rest, workspace, workspace_bytes, stream);
}

}  // namespace heads_ns
