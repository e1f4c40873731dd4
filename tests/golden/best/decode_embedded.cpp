// decode: D = alpha * A * B + beta * C, by the kernel that suits the problem and the device
//
// 2 kernels as machine code and PTX; then what predicts how long each takes for the problem at hand, and
// a launcher on the driver API that takes the fastest. For the shapes of the command below, one of them is
// the fastest of all that there are, or nearly so, by these predictions. The driver's library is opened
// when it is needed: nothing of CUDA has to be there to compile or to link this file.
//
//   kernel for  variant tile     tunables
//   1      h200 wgmma   64x32x64 --threadblock 64x32x64 --stages 16 --split-k auto
//   2      h200 wgmma   64x32x64 --threadblock 64x32x64 --stages 16
//
// Made by gemmgen 0.2.0 with NVRTC 0.0:
//     gen emit --best
// Compile:  c++ -std=c++17 -c decode.cpp; programs link -ldl where the C library is older than 2.34
// SPDX-License-Identifier: 0BSD

#include "decode.h"

#if DECODE_SPEC != 0x73ea7397
#error "the header is another kernel's; emit both files together"
#endif

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <type_traits>

namespace decode_ns {  // several emitted files may be in one program, even in one file
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
  Handle reduce;  // adds up partial sums
};

using Loaded = Handles<CUkernel>;  // for all contexts
using Kernels = Handles<CUfunction>;  // in one of them

// A kernel and its helpers: they are loaded when they are first asked for, each image once, and unloaded
// when the program or its shared library ends.
struct Code {
  const Image (&images)[2];  // later ones are better
  const char* const (&symbols)[3];  // in the order of Handles; null: it has none
  int shared_bytes;
  std::mutex mutex = {};
  CUlibrary library[2] = {};  // null where it has not been loaded
  Loaded loaded[2] = {};

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
    for (int i = 0; i < 2; ++i) {
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
        &loaded[i].reduce,
    };
    for (int k = 0; k < 3 && error == CUDA_SUCCESS; ++k) {
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
    if (error == CUDA_SUCCESS && found.reduce != nullptr) {
      error = driver.cuKernelGetFunction(&kernels.reduce, found.reduce);
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

// ---------------------------------------------------------------------------- kernel 1

namespace decode_best1_ns {

using scalar_t = float;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;
using uint64_t = unsigned long long;

constexpr int kTileM = 64, kTileN = 32, kTileK = 64;  // of a block: work tile, step along K
constexpr int kThreads = 160;  // 4 consumer warps, 1 producer warp
constexpr int kSharedBytes = 201984;

// clang-format off
constexpr std::uint64_t kPtxSm90a[] = {
    0x0000000000000000, 0x0000000000000000, 0x0000000000000000,
};
constexpr std::uint64_t kSm90a[] = {
    0x0000000000000000, 0x0000000000000000,
};

constexpr const char* kSymbols[] = {"decode_best1", "decode_best1_pack", "decode_best1_reduce"};
// clang-format on

constexpr Image kImages[] = {
    {90, 90, 12000, kPtxSm90a},
    {90, 90, 0, kSm90a},
};

CUresult get_kernels(Kernels& kernels) {
  // Made when the driver is at work, so that it ends before the driver.
  static Code code{kImages, kSymbols, kSharedBytes};
  return code.get(kernels);
}

// A launch, worked out from top to bottom. What is computed is the transpose of D, B' * A': M, N, A
// and B are those of that product.
struct Plan {
  index_t M, N, K;
  size_t A, B;  // addresses
  index_t lda, ldb, multiprocessors;

  bool packs_a = K > 0 && (A % 16 != 0 || lda % 8 != 0);  // its lines are not aligned
  index_t a_lines = packs_a ? M : 0, a_length = packs_a ? K : 0;  // to pack
  index_t a_ld = packs_a ? (a_length + 63) / 64 * 64 : lda;  // as the kernel reads it
  bool packs_b = K > 0 && (B % 16 != 0 || ldb % 8 != 0);  // its lines are not aligned
  index_t b_lines = packs_b ? N : 0, b_length = packs_b ? K : 0;  // to pack
  index_t b_ld = packs_b ? (b_length + 63) / 64 * 64 : ldb;  // as the kernel reads it
  index_t b_offset = (a_lines * a_ld * 2 + 255) / 256 * 256;  // bytes
  index_t tiles = (M + kTileM - 1) / kTileM * ((N + kTileN - 1) / kTileN);  // of D
  index_t steps = K > kTileK ? (K + kTileK - 1) / kTileK : 1;  // along K
  index_t most = steps / 4 > 1 ? steps / 4 : 1;  // slices of at least 4 steps
  index_t fit = multiprocessors / tiles;  // slices of each tile that run at the same time
  index_t wanted = fit < 2 ? 1 : fit < most ? fit : most;  // slices
  index_t each = (steps + wanted - 1) / wanted;  // steps of a slice
  index_t slices = (steps + each - 1) / each;  // as few as have no more steps
  index_t split = slices > 1 ? tiles : 0;  // tiles of many slices
  index_t partials_offset = b_offset + (b_lines * b_ld * 2 + 255) / 256 * 256;
  index_t bytes = partials_offset + slices * split * kTileM * kTileN * 4;
  index_t reduce_blocks = split * (kTileM * kTileN / 4) / (slices > 64 ? 8 : slices > 16 ? 16 : 32);
  index_t work = tiles * slices;
  index_t blocks = work < multiprocessors ? work : multiprocessors;
  bool early = work == blocks && !packs_a && !packs_b;  // the next kernel may start
  index_t a_box = kTileM;  // lines of it
  index_t a_edge = (M - 1) % a_box + 1;  // of the last one
  index_t b_box = kTileN;  // lines of it
  index_t b_edge = (N - 1) % b_box + 1;  // of the last one
  index_t a_lanes = a_length > 64 ? 32 : 8;  // for a line
  index_t b_lanes = b_length > 64 ? 32 : 8;  // for a line
  index_t a_pieces = (a_lines * a_lanes + 511) / 512 * ((a_length + 255) / 256);  // for blocks
  index_t b_pieces = (b_lines * b_lanes + 511) / 512 * ((b_length + 255) / 256);  // for blocks
  index_t pieces = a_pieces > b_pieces ? a_pieces : b_pieces;
  index_t pack_blocks = pieces < 65536 ? pieces : 65536;
};

constexpr size_t kSide = 2147479552;  // M, N, K: 2^31 - 4096, so that where a tile ends is an int
constexpr size_t kMost = 2147418112;  // work tiles: the next one of a block is an int, too
constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows

// Describes a matrix to the TMA.
// `span`: bytes from a line of a box to the next one in shared memory; the swizzle has as many.
inline CUresult make_map(
    tensor_map_t& map, CUtensorMapDataType type, int size, const void* matrix, index_t length,
    index_t lines, index_t ld, index_t box_length, index_t box_lines, int span) {
  map = {};
  if (length == 0 || lines == 0) return CUDA_SUCCESS;  // it will not be read
  const auto encode = get_driver().cuTensorMapEncodeTiled;
  const cuuint64_t sizes[] = {cuuint64_t(length), cuuint64_t(lines)}, pitch = cuuint64_t(ld * size);
  const cuuint32_t box[] = {cuuint32_t(box_length), cuuint32_t(box_lines)}, every[] = {1, 1};
  const CUtensorMapSwizzle swizzle = span == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : span == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                  : CU_TENSOR_MAP_SWIZZLE_32B;
  // L2 reads what is asked for, and no more: memory is 3 to 6 % slower with pieces of 256 bytes.
  const CUresult result = encode(
      &map, type, 2, const_cast<void*>(matrix), sizes, &pitch, box, every,
      CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult decode_best1_workspace(
    index_t M, index_t N, index_t K, const void* A, index_t lda, const void* B, index_t ldb,
    size_t* bytes) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = 0;
  if (size_t(M) > kSide || size_t(N) > kSide || size_t(K) > kSide) return CUDA_ERROR_INVALID_VALUE;
  if (M == 0 || N == 0) return CUDA_SUCCESS;  // D has no elements
  if (M > kLargest / N) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (B == nullptr || ldb < K || ldb > kLargest / N)) return CUDA_ERROR_INVALID_VALUE;
  int multiprocessors;
  const CUresult error = count_multiprocessors(multiprocessors);
  if (error != CUDA_SUCCESS) return error;
  const Plan plan{N, M, K, size_t(B), size_t(A), ldb, lda, multiprocessors};
  if (size_t(plan.work) > kMost) return CUDA_ERROR_INVALID_VALUE;
  if (plan.reduce_blocks > 2147483647) return CUDA_ERROR_INVALID_VALUE;  // a grid is not wider
  *bytes = size_t(plan.bytes);
  return CUDA_SUCCESS;
}

CUresult decode_best1_launch(
    index_t M, index_t N, index_t K, float alpha, const void* A, index_t lda, const void* B,
    index_t ldb, float beta, const void* C, index_t ldc, void* D, index_t ldd, void* workspace,
    size_t workspace_bytes, CUstream stream) {
  size_t needed;  // bytes of the workspace
  auto ask = decode_best1_workspace;
  int error = ask(M, N, K, A, lda, B, ldb, &needed);
  if (error != CUDA_SUCCESS || M == 0 || N == 0) return error;
  if (beta != 0 && (C == nullptr || ldc < M || ldc > kLargest / N)) return CUDA_ERROR_INVALID_VALUE;
  if (D == nullptr || ldd < M || ldd > kLargest / N) return CUDA_ERROR_INVALID_VALUE;

  Kernels kernels;
  error = get_kernels(kernels);
  if (error != CUDA_SUCCESS) return error;
  int multiprocessors;
  error = count_multiprocessors(multiprocessors);
  if (error != CUDA_SUCCESS) return error;
  const Plan plan{N, M, K, size_t(B), size_t(A), ldb, lda, multiprocessors};
  bool fits = workspace != nullptr && workspace_bytes >= needed && size_t(workspace) % 256 == 0;
  if (needed > 0 && !fits) return CUDA_ERROR_INVALID_VALUE;
  const auto space = static_cast<unsigned char*>(workspace);
  const auto a_packed = static_cast<input_t*>(workspace);
  const auto b_packed = a_packed + plan.b_offset / 2;
  const input_t* const a = plan.packs_a ? a_packed : static_cast<const input_t*>(B);
  const input_t* const b = plan.packs_b ? b_packed : static_cast<const input_t*>(A);
  const auto partials = reinterpret_cast<scalar_t*>(space + plan.partials_offset);

  constexpr auto kInput = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  tensor_map_t a_map, b_map, a_edge, b_edge, d_map{};
  error = make_map(a_map, kInput, 2, a, K, plan.M, plan.a_ld, kTileK, plan.a_box, 128);
  if (error == CUDA_SUCCESS) {
    error = make_map(a_edge, kInput, 2, a, K, plan.M, plan.a_ld, kTileK, plan.a_edge, 128);
  }
  if (error == CUDA_SUCCESS) {
    error = make_map(b_map, kInput, 2, b, K, plan.N, plan.b_ld, kTileK, plan.b_box, 128);
  }
  if (error == CUDA_SUCCESS) {
    error = make_map(b_edge, kInput, 2, b, K, plan.N, plan.b_ld, kTileK, plan.b_edge, 128);
  }
  if (error == CUDA_SUCCESS && size_t(D) % 16 == 0 && ldd % 8 == 0) {
    error = make_map(d_map, kInput, 2, D, plan.N, plan.M, ldd, 32, 16, 64);
  }
  if (error != CUDA_SUCCESS) return error;

  const auto kernel = kernels.kernel;

  if (plan.packs_a || plan.packs_b) {
    error = launch(  // a kernel that packs both
        kernels.pack, dim3(unsigned(plan.pack_blocks), 1, 2), 256, 0, stream, plan.a_lines,
        plan.a_length, B, ldb, a_packed, plan.a_ld, plan.b_lines, plan.b_length, A, lda, b_packed,
        plan.b_ld);
    if (error != CUDA_SUCCESS) return error;
  }
  error = launch(
      kernel, dim3(unsigned(plan.blocks)), kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, alpha, a_map, b_map, a_edge, b_edge, d_map, beta, C, ldc, D, ldd,
      plan.early, plan.slices, partials);
  if (error != CUDA_SUCCESS || plan.slices == 1) return error;

  return launch(  // a kernel that adds up the partial sums
      kernels.reduce, dim3(unsigned(plan.reduce_blocks)), 256, 0, stream, plan.M, plan.N, alpha,
      beta, C, ldc, D, ldd, plan.slices, partials);
}

}  // namespace decode_best1_ns

// ---------------------------------------------------------------------------- kernel 2

namespace decode_best2_ns {

using scalar_t = float;  // of alpha, beta, the epilogue
using uint32_t = unsigned int;
using uint64_t = unsigned long long;

constexpr int kTileM = 64, kTileN = 32, kTileK = 64;  // of a block: work tile, step along K
constexpr int kThreads = 160;  // 4 consumer warps, 1 producer warp
constexpr int kSharedBytes = 201984;

// clang-format off
constexpr std::uint64_t kPtxSm90a[] = {
    0x0000000000000000, 0x0000000000000000, 0x0000000000000000,
};
constexpr std::uint64_t kSm90a[] = {
    0x0000000000000000, 0x0000000000000000,
};

constexpr const char* kSymbols[] = {"decode_best2", "decode_best2_pack", nullptr};
// clang-format on

constexpr Image kImages[] = {
    {90, 90, 12000, kPtxSm90a},
    {90, 90, 0, kSm90a},
};

CUresult get_kernels(Kernels& kernels) {
  // Made when the driver is at work, so that it ends before the driver.
  static Code code{kImages, kSymbols, kSharedBytes};
  return code.get(kernels);
}

// A launch, worked out from top to bottom. What is computed is the transpose of D, B' * A': M, N, A
// and B are those of that product.
struct Plan {
  index_t M, N, K;
  size_t A, B;  // addresses
  index_t lda, ldb, multiprocessors;

  bool packs_a = K > 0 && (A % 16 != 0 || lda % 8 != 0);  // its lines are not aligned
  index_t a_lines = packs_a ? M : 0, a_length = packs_a ? K : 0;  // to pack
  index_t a_ld = packs_a ? (a_length + 63) / 64 * 64 : lda;  // as the kernel reads it
  bool packs_b = K > 0 && (B % 16 != 0 || ldb % 8 != 0);  // its lines are not aligned
  index_t b_lines = packs_b ? N : 0, b_length = packs_b ? K : 0;  // to pack
  index_t b_ld = packs_b ? (b_length + 63) / 64 * 64 : ldb;  // as the kernel reads it
  index_t b_offset = (a_lines * a_ld * 2 + 255) / 256 * 256;  // bytes
  index_t tiles = (M + kTileM - 1) / kTileM * ((N + kTileN - 1) / kTileN);  // of D
  index_t bytes = b_offset + (b_lines * b_ld * 2 + 255) / 256 * 256;  // of the workspace
  index_t blocks = tiles < multiprocessors ? tiles : multiprocessors;
  bool early = tiles == blocks && !packs_a && !packs_b;  // the next kernel may start
  index_t a_box = kTileM;  // lines of it
  index_t a_edge = (M - 1) % a_box + 1;  // of the last one
  index_t b_box = kTileN;  // lines of it
  index_t b_edge = (N - 1) % b_box + 1;  // of the last one
  index_t a_lanes = a_length > 64 ? 32 : 8;  // for a line
  index_t b_lanes = b_length > 64 ? 32 : 8;  // for a line
  index_t a_pieces = (a_lines * a_lanes + 511) / 512 * ((a_length + 255) / 256);  // for blocks
  index_t b_pieces = (b_lines * b_lanes + 511) / 512 * ((b_length + 255) / 256);  // for blocks
  index_t pieces = a_pieces > b_pieces ? a_pieces : b_pieces;
  index_t pack_blocks = pieces < 65536 ? pieces : 65536;
};

constexpr size_t kSide = 2147479552;  // M, N, K: 2^31 - 4096, so that where a tile ends is an int
constexpr size_t kMost = 2147418112;  // work tiles: the next one of a block is an int, too
constexpr index_t kLargest = index_t(1) << 44;  // elements of a matrix: no product overflows

// Describes a matrix to the TMA.
// `span`: bytes from a line of a box to the next one in shared memory; the swizzle has as many.
inline CUresult make_map(
    tensor_map_t& map, CUtensorMapDataType type, int size, const void* matrix, index_t length,
    index_t lines, index_t ld, index_t box_length, index_t box_lines, int span) {
  map = {};
  if (length == 0 || lines == 0) return CUDA_SUCCESS;  // it will not be read
  const auto encode = get_driver().cuTensorMapEncodeTiled;
  const cuuint64_t sizes[] = {cuuint64_t(length), cuuint64_t(lines)}, pitch = cuuint64_t(ld * size);
  const cuuint32_t box[] = {cuuint32_t(box_length), cuuint32_t(box_lines)}, every[] = {1, 1};
  const CUtensorMapSwizzle swizzle = span == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : span == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                  : CU_TENSOR_MAP_SWIZZLE_32B;
  // L2 reads what is asked for, and no more: memory is 3 to 6 % slower with pieces of 256 bytes.
  const CUresult result = encode(
      &map, type, 2, const_cast<void*>(matrix), sizes, &pitch, box, every,
      CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult decode_best2_workspace(
    index_t M, index_t N, index_t K, const void* A, index_t lda, const void* B, index_t ldb,
    size_t* bytes) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = 0;
  if (size_t(M) > kSide || size_t(N) > kSide || size_t(K) > kSide) return CUDA_ERROR_INVALID_VALUE;
  if (M == 0 || N == 0) return CUDA_SUCCESS;  // D has no elements
  if (M > kLargest / N) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (A == nullptr || lda < K || lda > kLargest / M)) return CUDA_ERROR_INVALID_VALUE;
  if (K > 0 && (B == nullptr || ldb < K || ldb > kLargest / N)) return CUDA_ERROR_INVALID_VALUE;
  const Plan plan{N, M, K, size_t(B), size_t(A), ldb, lda, 1};
  if (size_t(plan.tiles) > kMost) return CUDA_ERROR_INVALID_VALUE;
  *bytes = size_t(plan.bytes);
  return CUDA_SUCCESS;
}

CUresult decode_best2_launch(
    index_t M, index_t N, index_t K, float alpha, const void* A, index_t lda, const void* B,
    index_t ldb, float beta, const void* C, index_t ldc, void* D, index_t ldd, void* workspace,
    size_t workspace_bytes, CUstream stream) {
  size_t needed;  // bytes of the workspace
  auto ask = decode_best2_workspace;
  int error = ask(M, N, K, A, lda, B, ldb, &needed);
  if (error != CUDA_SUCCESS || M == 0 || N == 0) return error;
  if (beta != 0 && (C == nullptr || ldc < M || ldc > kLargest / N)) return CUDA_ERROR_INVALID_VALUE;
  if (D == nullptr || ldd < M || ldd > kLargest / N) return CUDA_ERROR_INVALID_VALUE;

  Kernels kernels;
  error = get_kernels(kernels);
  if (error != CUDA_SUCCESS) return error;
  int multiprocessors;
  error = count_multiprocessors(multiprocessors);
  if (error != CUDA_SUCCESS) return error;
  const Plan plan{N, M, K, size_t(B), size_t(A), ldb, lda, multiprocessors};
  bool fits = workspace != nullptr && workspace_bytes >= needed && size_t(workspace) % 256 == 0;
  if (needed > 0 && !fits) return CUDA_ERROR_INVALID_VALUE;
  const auto a_packed = static_cast<input_t*>(workspace);
  const auto b_packed = a_packed + plan.b_offset / 2;
  const input_t* const a = plan.packs_a ? a_packed : static_cast<const input_t*>(B);
  const input_t* const b = plan.packs_b ? b_packed : static_cast<const input_t*>(A);

  constexpr auto kInput = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  tensor_map_t a_map, b_map, a_edge, b_edge, d_map{};
  error = make_map(a_map, kInput, 2, a, K, plan.M, plan.a_ld, kTileK, plan.a_box, 128);
  if (error == CUDA_SUCCESS) {
    error = make_map(a_edge, kInput, 2, a, K, plan.M, plan.a_ld, kTileK, plan.a_edge, 128);
  }
  if (error == CUDA_SUCCESS) {
    error = make_map(b_map, kInput, 2, b, K, plan.N, plan.b_ld, kTileK, plan.b_box, 128);
  }
  if (error == CUDA_SUCCESS) {
    error = make_map(b_edge, kInput, 2, b, K, plan.N, plan.b_ld, kTileK, plan.b_edge, 128);
  }
  if (error == CUDA_SUCCESS && size_t(D) % 16 == 0 && ldd % 8 == 0) {
    error = make_map(d_map, kInput, 2, D, plan.N, plan.M, ldd, 32, 16, 64);
  }
  if (error != CUDA_SUCCESS) return error;

  const auto kernel = kernels.kernel;

  if (plan.packs_a || plan.packs_b) {
    error = launch(  // a kernel that packs both
        kernels.pack, dim3(unsigned(plan.pack_blocks), 1, 2), 256, 0, stream, plan.a_lines,
        plan.a_length, B, ldb, a_packed, plan.a_ld, plan.b_lines, plan.b_length, A, lda, b_packed,
        plan.b_ld);
    if (error != CUDA_SUCCESS) return error;
  }
  return launch(
      kernel, dim3(unsigned(plan.blocks)), kThreads, kSharedBytes, stream,  // and its parameters:
      plan.M, plan.N, K, alpha, a_map, b_map, a_edge, b_edge, d_map, beta, C, ldc, D, ldd,
      plan.early);
}

}  // namespace decode_best2_ns

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
  int first_point, end_of_points;  // in their table
};

// A problem of which times were measured, as a candidate has it: how many products it has; whether lines of A (1)
// and B (2) do not start at multiples of 16 bytes; how much it counts; the measured time over the predicted one.
struct Point {
  index_t at_m, at_n, at_k, at_count, at_odd, own, at_ratio;
};

constexpr Gpu kGpus[] = {  // the newest first
    {90, 132},  // H200 SXM 141 GB
};

constexpr Candidate kCandidates[] = {
    {0, 0, {64, 32, 64, 1, 1, 1, 96982, 96982, 0, 64654, 32327, 38793, 19396, 914253, 31115, 45, 0, 473600, 1, 1, 0, 0, 0, 0, 0, 61, 2853600, 32, 1, 1, 2, 2, 0, 16, 16, 1, 1, 100, 16, 26, 0, 0, 6, 13, 213, 52428800}, 0, 1},
    {0, 1, {64, 32, 64, 1, 1, 1, 96982, 96982, 0, 64654, 32327, 38793, 19396, 914253, 31115, 45, 0, 473600, 1, 1, 1, 0, 0, 0, 0, 61, 2853600, 32, 1, 1, 2, 2, 0, 16, 16, 1, 1, 100, 16, 26, 0, 0, 6, 13, 213, 52428800}, 1, 2},
};

constexpr Point kPoints[] = {
    {4096, 12, 4096, 1, 0, 4, 3691},
    {4096, 12, 4096, 1, 0, 4, 4883},
};

struct Limits {
  bool swapped;  // whether it computes the transpose of D
  int last;  // compute capability that runs it; 0: all newer ones do
  int shared;  // bytes of shared memory
};

constexpr Limits kLimits[] = {
    {true, 90, 201984},
    {true, 90, 201984},
};

// Picoseconds that a kernel takes, as predicted. M, N, A and B are those of the row-major product.
// The nearer the problem is to one of which times were measured, the more these count.
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
  index_t weights = 0, weighted = 0;
  for (int i = one.first_point; i < one.end_of_points; ++i) {
    const auto [at_m, at_n, at_k, at_count, at_odd, own, at_ratio] = kPoints[i];
    const index_t near_m = m < at_m ? m * 1024 / at_m : at_m * 1024 / m;
    const index_t near_n = n < at_n ? n * 1024 / at_n : at_n * 1024 / n;
    const index_t near_k = k < at_k ? k * 1024 / at_k : at_k * 1024 / k;
    const index_t near_count = count < at_count ? count * 1024 / at_count : at_count * 1024 / count;
    const index_t near = near_m * near_n / 1024 * near_k / 1024 * near_count / 1024;
    const bool alike = odd_a + 2 * odd_b == at_odd && near >= 256;
    const index_t squared = near * near;
    const index_t closer = squared * 64 / (1048577 - squared) * own;
    const index_t weight = alike ? closer + 8 : 0;
    weights += weight;
    weighted += weight * at_ratio;
  }
  const index_t ratio = (weighted + 65536) / (weights + 16);
  const index_t corrected = time < 17592186044416 ? time * ratio / 4096 : time / 4096 * ratio;  // picoseconds
  return corrected;
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
    {decode_best1_ns::decode_best1_workspace, decode_best1_ns::decode_best1_launch, decode_best1_ns::get_kernels},
    {decode_best2_ns::decode_best2_workspace, decode_best2_ns::decode_best2_launch, decode_best2_ns::get_kernels},
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
decode_load() {
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
decode_workspace(  // for a launch with these arguments
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
decode_launch(  // D = alpha * A * B + beta * C
    index_t M, index_t N, index_t K, float alpha, const void* A, index_t lda, const void* B,
    index_t ldb, float beta, const void* C, index_t ldc, void* D, index_t ldd, void* workspace,
    size_t workspace_bytes, CUstream stream) {
  const Kernel* kernel = nullptr;
  const CUresult error = choose(M, N, K, A, lda, B, ldb, kernel);
  if (error != CUDA_SUCCESS) return error;
  return kernel->launch(
      M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd, workspace, workspace_bytes, stream);
}

}  // namespace decode_ns
