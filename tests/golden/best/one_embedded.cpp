// one: D = alpha * A * B + beta * C
//
// A kernel as machine code, with a launcher on the driver API that has the arguments of one that chooses among
// several. For the shapes of the command below, it is predicted to be the fastest of all that there are, or
// nearly so. The driver's library is opened when it is needed: nothing of CUDA has to be there to compile or
// to link this file.
//
//   kernel for  variant tile     tunables
//   1      a100 gemv    1x2x1024 --vectors 1 --strip 2
//
// Made by gemmgen 0.2.0 with NVRTC 0.0:
//     gen emit --best
// Compile:  c++ -std=c++17 -c one.cpp; programs link -ldl where the C library is older than 2.34
// SPDX-License-Identifier: 0BSD

#include "one.h"

#if ONE_SPEC != 0xf2559a1e
#error "the header is another kernel's; emit both files together"
#endif

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <type_traits>

namespace one_ns {  // several emitted files may be in one program, even in one file
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

namespace one_best1_ns {

using accumulator_t = float;
using scalar_t = accumulator_t;  // of alpha, beta, the epilogue

constexpr int kRows = 1, kCols = 2;  // of D, that a block computes
constexpr int kThreads = 128;  // per block

static_assert(kThreads % 32 == 0 && kThreads <= 1024, "a block has whole warps, at most 32");

// clang-format off
constexpr std::uint64_t kSm80[] = {
    0x0000000000000000, 0x0000000000000000,
};

constexpr const char* kSymbols[] = {"one_best1"};
// clang-format on

constexpr Image kImages[] = {
    {80, 89, 0, kSm80},
};

CUresult get_kernels(Kernels& kernels) {
  // Made when the driver is at work, so that it ends before the driver.
  static Code code{kImages, kSymbols, 0};
  return code.get(kernels);
}

CUresult one_best1_launch(
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

}  // namespace one_best1_ns

}  // namespace

extern "C" GEMMGEN_API int  // CUDA_SUCCESS once it is loaded
one_load() {
  const Driver& driver = get_driver();
  if (driver.error != CUDA_SUCCESS) return driver.error;
  Kernels kernels;
  return one_best1_ns::get_kernels(kernels);
}

extern "C" GEMMGEN_API int  // CUDA_SUCCESS once *bytes is set: to 0
one_workspace(  // of no bytes
    index_t, index_t, index_t, const void*, index_t, const void*, index_t, size_t* bytes) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = 0;
  return CUDA_SUCCESS;
}

extern "C" GEMMGEN_API int  // CUDA_SUCCESS once the kernel is on its way
one_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, float alpha, const void* A, index_t lda, const void* B,
    index_t ldb, float beta, const void* C, index_t ldc, void* D, index_t ldd, void*, size_t,
    CUstream stream) {
  return one_best1_ns::one_best1_launch(
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd, stream);
}

}  // namespace one_ns
