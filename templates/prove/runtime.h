// A CUDA runtime that runs nothing, and what g++ lacks to compile a kernel's source.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <atomic>
#include <cmath>

#include "fake.h"

// The device's side compiles, and is never run: of inline PTX nothing is left.
#undef __global__
#undef __device__
#undef __shared__
#undef __restrict__
#undef __noinline__
#undef __forceinline__
#undef __launch_bounds__
#undef __grid_constant__
#define __global__
#define __device__
#define __shared__
#define __restrict__
#define __noinline__
#define __forceinline__
#define __launch_bounds__(...)
#define __grid_constant__
#define asm
#define volatile(...)

template <class A, class B>
constexpr auto min(A a, B b) {
  return b < a ? b : a;
}
template <class A, class B>
constexpr auto max(A a, B b) {
  return a < b ? b : a;
}

// Element types that the host does not compute with, in place of those of CUDA's headers.
#define __CUDA_FP16_H__
#define __CUDA_BF16_H__
#define __CUDA_FP8_H__
template <int kType, class Bits = unsigned short>
struct Element {
  Bits bits;
  Element() = default;
  template <class T>
  explicit Element(T) {
  }
  operator float() const {
    return 0;
  }
};
template <int kType>
struct Pair {
  Element<kType> x, y;
};
using __half = Element<0>;
using __half2 = Pair<0>;
using __nv_bfloat16 = Element<1>;
using __nv_bfloat162 = Pair<1>;
using __nv_fp8_e4m3 = Element<2, unsigned char>;
using __nv_fp8_e5m2 = Element<3, unsigned char>;
inline float2 __half22float2(__half2) {
  return {};
}
inline __nv_bfloat162 __floats2bfloat162_rn(float, float) {
  return {};
}
inline float2 __bfloat1622float2(__nv_bfloat162) {
  return {};
}
template <int kType>
Pair<kType> __hadd2(Pair<kType> x, Pair<kType>) {
  return x;
}

namespace device {
struct Index {
  unsigned x, y, z;
};
inline Index threadIdx, blockIdx, blockDim, gridDim;
using std::isfinite, std::isinf, std::isnan;  // which CUDA has without std
inline void __syncthreads() {
}
inline void __trap() {
}
inline void __syncwarp(unsigned = 0) {
}
inline unsigned __byte_perm(unsigned, unsigned, unsigned) {
  return 0;
}
template <class T>
void __stwb(T*, T) {
}
template <class T>
void __stcg(T*, T) {
}
inline unsigned __funnelshift_r(unsigned, unsigned, unsigned) {
  return 0;
}
inline size_t __cvta_generic_to_shared(const void*) {
  return 0;
}
inline unsigned __ballot_sync(unsigned, int) {
  return 0;
}
inline int __all_sync(unsigned, int x) {
  return x;
}
inline int __ffs(int) {
  return 0;
}
template <class T>
T __shfl_sync(unsigned, T x, int, int = 32) {
  return x;
}
template <class T>
T __shfl_xor_sync(unsigned, T x, int, int = 32) {
  return x;
}
template <class T>
T __shfl_down_sync(unsigned, T x, int, int = 32) {
  return x;
}
template <class T>
T __shfl_up_sync(unsigned, T x, int, int = 32) {
  return x;
}
template <class T>
T __ldg(const T* x) {
  return *x;
}
template <class T, class U>
T atomicAdd(T* x, U) {
  return *x;
}
}  // namespace device
using namespace device;

namespace fake {

inline const char* name_of(const void* kernel) {
  Dl_info info;
  return dladdr(kernel, &info) && info.dli_sname ? info.dli_sname : "?";
}

template <class T>
void print_as(const T& value) {
  print(&value, sizeof value);
}

}  // namespace fake

extern "C" {
cudaError_t cudaGetDevice(int* device) {
  if (fake::refuses()) return cudaErrorUnknown;
  *device = fake::now.current;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (fake::refuses()) return cudaErrorUnknown;
  *value = device == fake::now.current ? fake::attribute(attribute) : -1;
  return *value >= 0 ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  if (fake::refuses()) return cudaErrorUnknown;
  *status = fake::now.capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return stream == fake::stream ? cudaSuccess : cudaErrorInvalidResourceHandle;
}
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  if (fake::refuses()) return cudaErrorUnknown;
  *device = fake::now.own;
  if (fake::now.capturing) return cudaErrorStreamCaptureUnsupported;
  return stream == fake::stream ? cudaSuccess : cudaErrorInvalidResourceHandle;
}
cudaError_t cudaGetDriverEntryPointByVersion(
    const char* name, void** function, unsigned version, unsigned long long flags,
    cudaDriverEntryPointQueryResult* result) {
  if (fake::refuses()) return cudaErrorUnknown;
  const bool known = !strcmp(name, "cuTensorMapEncodeTiled") && version >= 12000 && flags == 0;
  *result =
      known && !fake::now.no_tma ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  *function =
      *result == cudaDriverEntryPointSuccess ? reinterpret_cast<void*>(&fake::encode) : nullptr;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (fake::refuses()) return cudaErrorUnknown;
  fake::say("set %s %d %d\n", fake::name_of(kernel), int(attribute), value);
  return cudaSuccess;
}
// What another call left behind: a launcher has no business with it.
cudaError_t cudaGetLastError() {
  fake::say("cudaGetLastError\n");
  return cudaErrorMemoryAllocation;
}
cudaError_t cudaPeekAtLastError() {
  fake::say("cudaPeekAtLastError\n");
  return cudaErrorMemoryAllocation;
}
}

template <class T>
cudaError_t cudaOccupancyMaxActiveClusters(
    int* clusters, T* kernel, const cudaLaunchConfig_t* config) {
  if (fake::refuses()) return cudaErrorUnknown;
  const dim3 g = config->gridDim, b = config->blockDim;
  const char* const name = fake::name_of(reinterpret_cast<const void*>(kernel));
  *clusters = fake::clusters(name, g.x, g.y, g.z, b.x, b.y, b.z, config->dynamicSmemBytes);
  return config->numAttrs ? cudaErrorInvalidValue : cudaSuccess;
}

template <class T>
cudaError_t cudaFuncSetAttribute(T* kernel, cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(
    const cudaLaunchConfig_t* config, void (*kernel)(Parameters...), Arguments&&... arguments) {
  if (config->stream != fake::stream) return cudaErrorInvalidResourceHandle;
  if (++fake::launches == fake::now.refused_launch) {
    return static_cast<cudaError_t>(fake::now.launch_error);
  }
  bool early = false;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const auto& attribute = config->attrs[i];
    if (attribute.id != cudaLaunchAttributeProgrammaticStreamSerialization || i > 0) {
      fake::say("cudaLaunchAttribute\n");  // of which there is one at most
      break;
    }
    early = attribute.val.programmaticStreamSerializationAllowed;
  }
  const dim3 g = config->gridDim, b = config->blockDim;
  fake::say(
      "launch %s %u %u %u %u %u %u %zu %d", fake::name_of(reinterpret_cast<void*>(kernel)), g.x,
      g.y, g.z, b.x, b.y, b.z, config->dynamicSmemBytes, early);
  (fake::print_as<Parameters>(arguments), ...);
  fake::say("\n");
  return cudaSuccess;
}

// kernel<<<grid, block, shared_bytes, stream>>>, written as a call. What it returns is lost, as there.
struct Arrows {
  dim3 grid, block;
  size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
};
template <class... Parameters>
auto by_arrows(Arrows how, void (*kernel)(Parameters...)) {
  return [=](auto... arguments) {
    cudaLaunchConfig_t config{};
    config.gridDim = how.grid;
    config.blockDim = how.block;
    config.dynamicSmemBytes = how.shared_bytes;
    config.stream = how.stream;
    cudaLaunchKernelEx(&config, kernel, arguments...);
  };
}
