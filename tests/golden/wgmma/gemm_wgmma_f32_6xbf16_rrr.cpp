// gemm_wgmma_f32_6xbf16_rrr: D = alpha * A * B + beta * C
//
//   A  M x K, row-major, float
//   B  K x N, row-major, float
//   C  M x N, row-major, float; not read when beta is 0
//   D  M x N, row-major, float; must not overlap A or B; may be C, where ldc is ldd
//
// Kernels as machine code for sm_90a, with a launcher on the driver API.
// The driver's library is opened when it is needed: nothing of CUDA has to be there to compile or
// to link this file.
//
// Made by gemmgen 0.2.0 with NVRTC 0.0:
//     gen emit --embed cubin --variant wgmma --dtype f32_6xbf16 --layout rrr --arch sm_90a
//     --schedule cooperative --threadblock 128x128x32 --stages 4 --cluster 1x1 --promote 16
//     --stream-k 0 --burst 1 --split-k 1 --epilogue linear --swizzle 16 --name
//     gemm_wgmma_f32_6xbf16_rrr
// Compile:  c++ -std=c++17 -c gemm_wgmma_f32_6xbf16_rrr.cpp; programs link -ldl where the C library is older than 2.34
// SPDX-License-Identifier: 0BSD

#include "gemm_wgmma_f32_6xbf16_rrr.h"

#if GEMM_WGMMA_F32_6XBF16_RRR_SPEC != 0x94645e4b
#error "the header is another kernel's; emit both files together"
#endif

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <type_traits>

namespace gemm_wgmma_f32_6xbf16_rrr_ns {  // several emitted files may be in one program, even in one file
namespace {

using index_t = long long;
using input_t = float;
using output_t = float;
using scalar_t = float;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
using part_t = unsigned short;  // of an element of A or B

constexpr int kTileM = 128, kTileN = 128, kTileK = 32;  // of a block: work tile, step along K
constexpr int kParts = 3;  // of each element of A and B
constexpr int kThreads = 384;  // 8 consumer warps, 4 producer warps: registers go by four warps
constexpr int kSharedBytes = 230464;

// ---------------------------------------------------------------------------- machine code
//
// Eight bytes a number.

// clang-format off
constexpr std::uint64_t kSm90a[] = {
    0x0000000000000000, 0x0000000000000000,
};
// clang-format on

struct Image {
  int first, last;  // compute capabilities that run it: 89 is 8.9, and 9999 any newer one
  int driver;  // the oldest that loads it, as 13000 for CUDA 13.0
  const void* code;
};

constexpr Image kImages[] = {
    {90, 90, 0, kSm90a},
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

using cuuint32_t = std::uint32_t;
using cuuint64_t = std::uint64_t;

struct alignas(64) CUtensorMap {
  unsigned char opaque[128];
};

enum CUtensorMapDataType {
  CU_TENSOR_MAP_DATA_TYPE_UINT8 = 0,
  CU_TENSOR_MAP_DATA_TYPE_INT32 = 3,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT16 = 6,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT32 = 7,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT64 = 8,
  CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9,
  CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 = 11,
};

enum CUtensorMapSwizzle {
  CU_TENSOR_MAP_SWIZZLE_32B = 1,
  CU_TENSOR_MAP_SWIZZLE_64B = 2,
  CU_TENSOR_MAP_SWIZZLE_128B = 3,
};

enum CUtensorMapInterleave { CU_TENSOR_MAP_INTERLEAVE_NONE = 0 };
enum CUtensorMapL2promotion { CU_TENSOR_MAP_L2_PROMOTION_NONE = 0 };
enum CUtensorMapFloatOOBfill { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0 };

enum {
  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
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
  CUresult (*cuTensorMapEncodeTiled)(
      CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
      const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
      CUtensorMapL2promotion, CUtensorMapFloatOOBfill) = nullptr;

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
    find(cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled");
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
  Handle pack;  // copies operands that the kernel cannot read where they are
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
      "gemm_wgmma_f32_6xbf16_rrr");
  find(
      kernels.pack,  // copies operands that the kernel cannot read where they are
      "gemm_wgmma_f32_6xbf16_rrr_pack");
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

// The kernels in the current context, so that a stream of another one is refused: the driver
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
  error = driver.cuKernelGetFunction(&kernels.pack, loaded.pack);
  if (error != CUDA_SUCCESS) return error;
  // More than 48 KiB of dynamic shared memory has to be asked for, in each context.
  return driver.cuFuncSetAttribute(
      kernels.kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kSharedBytes);
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

// Of the current device.
CUresult count_multiprocessors(int& count) {
  const Driver& driver = get_driver();
  if (driver.error != CUDA_SUCCESS) return driver.error;
  CUdevice device;
  const CUresult error = driver.cuCtxGetDevice(&device);
  if (error != CUDA_SUCCESS) return error;
  return driver.cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
}

using tensor_map_t = CUtensorMap;

// A launch, worked out from top to bottom.
struct Plan {
  index_t M, N, K;
  size_t A, B;  // addresses
  index_t lda, ldb, multiprocessors;

  bool packs_a = K > 0;  // it is split into parts
  index_t a_lines = packs_a ? M : 0, a_length = packs_a ? K : 0;  // to pack
  index_t a_ld = packs_a ? (a_length + 63) / 64 * 64 * kParts : lda;  // as the kernel reads it
  bool packs_b = K > 0;  // it is split into parts
  index_t b_lines = packs_b ? K : 0, b_length = packs_b ? N : 0;  // to pack
  index_t b_ld = packs_b ? (b_length + 63) / 64 * 64 * kParts : ldb;  // as the kernel reads it
  index_t b_offset = (a_lines * a_ld * 2 + 255) / 256 * 256;  // bytes
  index_t tiles = (M + kTileM - 1) / kTileM * ((N + kTileN - 1) / kTileN);  // of D
  index_t bytes = b_offset + (b_lines * b_ld * 2 + 255) / 256 * 256;  // of the workspace
  index_t blocks = tiles < multiprocessors ? tiles : multiprocessors;
  index_t a_box = kTileM;  // lines of it
  index_t a_lanes = a_length > 64 ? 32 : 8;  // for a line
  index_t b_lanes = b_length > 64 ? 32 : 8;  // for a line
  index_t a_pieces = (a_lines * a_lanes + 255) / 256 * ((a_length + 255) / 256);  // for blocks
  index_t b_pieces = (b_lines * b_lanes + 255) / 256 * ((b_length + 255) / 256);  // for blocks
  index_t pieces = a_pieces > b_pieces ? a_pieces : b_pieces;
  index_t pack_blocks = pieces < 65536 ? pieces : 65536;
};

constexpr size_t kSide = 2147479552;  // M, N, K: 2^31 - 4096, so that where a tile ends is an int
constexpr size_t kMost = 2147418112;  // work tiles: the next one of a block is an int, too
constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows

// Describes a matrix to the TMA. A line of it has several parts, of which boxes have all.
// `span`: bytes from a line of a box to the next one in shared memory; the swizzle has as many.
inline CUresult make_map(
    tensor_map_t& map, CUtensorMapDataType type, int size, const void* matrix, index_t length,
    index_t lines, index_t ld, index_t box_length, index_t box_lines, int span, index_t parts) {
  map = {};
  if (length == 0 || lines == 0) return CUDA_SUCCESS;  // it will not be read
  const auto encode = get_driver().cuTensorMapEncodeTiled;
  const cuuint64_t sizes[] = {cuuint64_t(length), cuuint64_t(lines), cuuint64_t(parts)};
  const cuuint64_t pitches[] = {cuuint64_t(ld * size), cuuint64_t(ld / parts * size)};
  const cuuint32_t box[] = {cuuint32_t(box_length), cuuint32_t(box_lines), cuuint32_t(parts)};
  const cuuint32_t every[] = {1, 1, 1};
  const CUtensorMapSwizzle swizzle = span == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : span == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                  : CU_TENSOR_MAP_SWIZZLE_32B;
  // L2 reads what is asked for, and no more: memory is 3 to 6 % slower with pieces of 256 bytes.
  const CUresult result = encode(
      &map, type, parts > 1 ? 3 : 2, const_cast<void*>(matrix), sizes, pitches, box, every,
      CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

extern "C" GEMMGEN_API int  // CUDA_SUCCESS once they are loaded
gemm_wgmma_f32_6xbf16_rrr_load() {
  Kernels kernels;
  return get_kernels(kernels);
}

extern "C" GEMMGEN_API int  // CUDA_SUCCESS once *bytes is set
gemm_wgmma_f32_6xbf16_rrr_workspace(  // for a launch with these arguments
    index_t M, index_t N, index_t K, const float* A, index_t lda, const float* B, index_t ldb,
    size_t* bytes) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = 0;
  if (size_t(M) > kSide || size_t(N) > kSide || size_t(K) > kSide) return CUDA_ERROR_INVALID_VALUE;
  if (M == 0 || N == 0) return CUDA_SUCCESS;  // D has no elements
  if (M > kLargest / N) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (B == nullptr || ldb < N || ldb > kLargest / K)) return CUDA_ERROR_INVALID_VALUE;
  const Plan plan{M, N, K, size_t(A), size_t(B), lda, ldb, 1};
  if (size_t(plan.tiles) > kMost) return CUDA_ERROR_INVALID_VALUE;
  *bytes = size_t(plan.bytes);
  return CUDA_SUCCESS;
}

extern "C" GEMMGEN_API int  // CUDA_SUCCESS once the kernels are on their way
gemm_wgmma_f32_6xbf16_rrr_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, float alpha, const float* A, index_t lda, const float* B,
    index_t ldb, float beta, const float* C, index_t ldc, float* D, index_t ldd, void* workspace,
    size_t workspace_bytes, CUstream stream) {
  size_t needed;  // bytes of the workspace
  auto ask = gemm_wgmma_f32_6xbf16_rrr_workspace;
  int error = ask(M, N, K, A, lda, B, ldb, &needed);
  if (error != CUDA_SUCCESS || M == 0 || N == 0) return error;
  if (beta != 0 && (C == nullptr || ldc < N || ldc > kLargest / M)) return CUDA_ERROR_INVALID_VALUE;
  if (D == nullptr || ldd < N || ldd > kLargest / M) return CUDA_ERROR_INVALID_VALUE;

  Kernels kernels;
  error = get_kernels(kernels);
  if (error != CUDA_SUCCESS) return error;
  int multiprocessors;
  error = count_multiprocessors(multiprocessors);
  if (error != CUDA_SUCCESS) return error;
  const Plan plan{M, N, K, size_t(A), size_t(B), lda, ldb, multiprocessors};
  bool fits = workspace != nullptr && workspace_bytes >= needed && size_t(workspace) % 256 == 0;
  if (needed > 0 && !fits) return CUDA_ERROR_INVALID_VALUE;
  const auto a = static_cast<part_t*>(workspace);
  const auto b = a + plan.b_offset / 2;

  constexpr auto kInput = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  tensor_map_t a_map, b_map, d_map{};
  error = make_map(a_map, kInput, 2, a, K, plan.M, plan.a_ld, kTileK, plan.a_box, 64, kParts);
  if (error == CUDA_SUCCESS) {
    error = make_map(b_map, kInput, 2, b, plan.N, K, plan.b_ld, 64, kTileK, 128, kParts);
  }
  if (error == CUDA_SUCCESS && size_t(D) % 16 == 0 && ldd % 4 == 0) {
    constexpr auto kOutput = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    error = make_map(d_map, kOutput, 4, D, plan.N, plan.M, ldd, 32, 16, 128, 1);
  }
  if (error != CUDA_SUCCESS) return error;

  const auto kernel = kernels.kernel;

  if (plan.packs_a || plan.packs_b) {
    error = launch(  // a kernel that splits both
        kernels.pack, dim3(unsigned(plan.pack_blocks), 1, 2), 256, 0, stream, plan.a_lines,
        plan.a_length, A, lda, a, plan.a_ld, plan.b_lines, plan.b_length, B, ldb, b, plan.b_ld);
    if (error != CUDA_SUCCESS) return error;
  }
  return launch(
      kernel, dim3(unsigned(plan.blocks)), kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, alpha, a_map, b_map, d_map, beta, C, ldc, D, ldd);
}

}  // namespace gemm_wgmma_f32_6xbf16_rrr_ns
