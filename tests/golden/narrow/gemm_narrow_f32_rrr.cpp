// gemm_narrow_f32_rrr: D = alpha * A * B + beta * C
//
//   A  M x K, row-major, float
//   B  K x N, row-major, float
//   C  M x N, row-major, float; not read when beta is 0
//   D  M x N, row-major, float; must not overlap A or B; may be C, where ldc is ldd
//
// A kernel as machine code for sm_80, with a launcher on the driver API.
// The driver's library is opened when it is needed: nothing of CUDA has to be there to compile or
// to link this file.
//
// Made by gemmgen 0.2.0 with NVRTC 0.0:
//     gen emit --embed cubin --variant narrow --dtype f32 --layout rrr --arch sm_80 --few rows
//     --vectors 8 --strip 32 --threads 256 --cluster 1x1 --epilogue linear --name
//     gemm_narrow_f32_rrr
// Compile:  c++ -std=c++17 -c gemm_narrow_f32_rrr.cpp; programs link -ldl where the C library is older than 2.34
// SPDX-License-Identifier: 0BSD

#include "gemm_narrow_f32_rrr.h"

#if GEMM_NARROW_F32_RRR_SPEC != 0xc2c454af
#error "the header is another kernel's; emit both files together"
#endif

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <type_traits>

namespace gemm_narrow_f32_rrr_ns {  // several emitted files may be in one program, even in one file
namespace {

using index_t = long long;
using input_t = float;
using output_t = float;
using accumulator_t = float;
using scalar_t = accumulator_t;  // of alpha, beta, the epilogue

constexpr int kRows = 8, kCols = 32;  // of D, that a block computes
constexpr int kThreads = 256;  // per block

static_assert(kThreads % 32 == 0 && kThreads <= 1024, "a block has whole warps, at most 32");

// ---------------------------------------------------------------------------- machine code
//
// Eight bytes a number.

// clang-format off
constexpr std::uint64_t kSm80[] = {
    0x0000000000000000, 0x0000000000000000,
};
// clang-format on

struct Image {
  int first, last;  // compute capabilities that run it: 89 is 8.9, and 9999 any newer one
  int driver;  // the oldest that loads it, as 13000 for CUDA 13.0
  const void* code;
};

constexpr Image kImages[] = {
    {80, 89, 0, kSm80},
};
constexpr int kCount = 1;

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
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
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

// The number of the image for a device and its driver: the best that they can run.
CUresult choose(const Driver& driver, CUdevice device, int& chosen) {
  int version = 0, major = 0, minor = 0;
  CUresult error = driver.cuDriverGetVersion(&version);
  if (error != CUDA_SUCCESS) return error;
  error = driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  if (error != CUDA_SUCCESS) return error;
  error = driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  if (error != CUDA_SUCCESS) return error;
  const int capability = 10 * major + minor;
  error = CUDA_ERROR_NO_BINARY_FOR_GPU;
  for (int i = 0; i < kCount; ++i) {
    if (capability < kImages[i].first || capability > kImages[i].last) continue;
    if (version >= kImages[i].driver) {
      chosen = i;  // later ones are better
      error = CUDA_SUCCESS;
    } else if (error != CUDA_SUCCESS) {
      error = CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER;
    }
  }
  return error;
}

template <class Handle>
struct Handles {
  Handle kernel;
};

using Loaded = Handles<CUkernel>;  // for all contexts
using Kernels = Handles<CUfunction>;  // in one of them

CUresult load(const Driver& driver, const void* code, CUlibrary& library, Loaded& kernels) {
  CUresult error =
      driver.cuLibraryLoadData(&library, code, nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (error != CUDA_SUCCESS) return error;
  const auto find = [&](CUkernel& kernel, const char* symbol) {
    if (error == CUDA_SUCCESS) error = driver.cuLibraryGetKernel(&kernel, library, symbol);
  };
  find(
      kernels.kernel,  // by the name that it has in the machine code
      "gemm_narrow_f32_rrr");
  if (error != CUDA_SUCCESS) driver.cuLibraryUnload(library);
  return error;
}

// The images that have been loaded, each once, until the program or its shared library ends.
struct Libraries {
  std::mutex mutex = {};
  CUlibrary library[kCount] = {};  // null where it has not been loaded
  Loaded kernels[kCount] = {};

  ~Libraries() {
    for (CUlibrary one : library) {
      if (one != nullptr) get_driver().cuLibraryUnload(one);  // refused if the driver has ended
    }
  }
};

// What the image for a device holds, loaded when it is first asked for.
CUresult get_loaded(const Driver& driver, CUdevice device, Loaded& kernels) {
  int i = 0;
  CUresult error = choose(driver, device, i);
  if (error != CUDA_SUCCESS) return error;
  static Libraries loaded;  // made when the driver is at work, so that it ends before the driver
  const std::lock_guard<std::mutex> lock(loaded.mutex);
  if (loaded.library[i] == nullptr) {
    CUlibrary library = nullptr;
    error = load(driver, kImages[i].code, library, loaded.kernels[i]);
    if (error != CUDA_SUCCESS) return error;
    loaded.library[i] = library;
  }
  kernels = loaded.kernels[i];
  return CUDA_SUCCESS;
}

// The kernel in the current context, so that a stream of another one is refused: the driver
// launches a CUkernel in whichever context the stream is of.
CUresult get_kernels(Kernels& kernels) {
  const Driver& driver = get_driver();
  if (driver.error != CUDA_SUCCESS) return driver.error;
  CUdevice device;
  CUresult error = driver.cuCtxGetDevice(&device);
  if (error != CUDA_SUCCESS) return error;
  Loaded loaded = {};
  error = get_loaded(driver, device, loaded);
  if (error != CUDA_SUCCESS) return error;
  error = driver.cuKernelGetFunction(&kernels.kernel, loaded.kernel);
  if (error != CUDA_SUCCESS) return error;
  return CUDA_SUCCESS;
}

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

}  // namespace

extern "C" GEMMGEN_API int  // CUDA_SUCCESS once it is loaded
gemm_narrow_f32_rrr_load() {
  Kernels kernels;
  return get_kernels(kernels);
}

extern "C" GEMMGEN_API int  // CUDA_SUCCESS once the kernel is on its way
gemm_narrow_f32_rrr_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, float alpha, const float* A, index_t lda, const float* B,
    index_t ldb, float beta, const float* C, index_t ldc, float* D, index_t ldd, CUstream stream) {
  constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows
  if (M < 0 || N < 0 || K < 0) return CUDA_ERROR_INVALID_VALUE;
  if (M == 0 || N == 0) return CUDA_SUCCESS;  // D has no elements
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return CUDA_ERROR_INVALID_VALUE;
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

}  // namespace gemm_narrow_f32_rrr_ns
