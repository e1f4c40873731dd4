// The CUDA runtime and driver, as far as the host's code of GEMMs calls them, on an emulator of the
// caller's: it says with `emulate` what allocates, copies, encodes tensor maps and launches kernels.
// Linked with a CUDA file in place of libcudart and libcuda, it lets the host's code run unchanged.

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <map>

struct Device {
  void* (*allocate)(size_t bytes);
  int (*write)(void* to, const void* from, size_t bytes);
  int (*fill)(void* to, int value, size_t bytes);
  int (*encode)(
      void* map, const unsigned* numbers, void* address, const cuuint64_t* dims,
      const cuuint64_t* strides, const cuuint32_t* box,
      const cuuint32_t* steps);  // numbers: type, rank, interleave, swizzle, fill
  int (*launch)(
      const char* kernel, const unsigned* sizes, size_t shared,
      void** args);  // grid, block, cluster
};

static Device device;

extern "C" void emulate(const Device* with) {
  device = *with;
}

static cudaError_t done(bool well) {
  return well ? cudaSuccess : cudaErrorUnknown;
}

// -- kernels --------------------------------------------------------------------------------------

static std::map<const void*, const char*>& names() {
  static std::map<const void*, const char*> all;  // of kernels, by the function that launches them
  return all;
}

static cudaError_t start(
    const void* kernel, dim3 grid, dim3 block, dim3 cluster, void** args, size_t shared) {
  const unsigned sizes[] = {grid.x,  grid.y,    grid.z,    block.x,  block.y,
                            block.z, cluster.x, cluster.y, cluster.z};
  auto found = names().find(kernel);
  return found == names().end() ? cudaErrorInvalidDeviceFunction
                                : done(device.launch(found->second, sizes, shared, args));
}

static thread_local struct {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
} configured;  // by <<<>>>

extern "C" {
void** __cudaRegisterFatBinary(void* binary) {
  return static_cast<void**>(binary);
}
void __cudaRegisterFatBinaryEnd(void**) {
}
void __cudaUnregisterFatBinary(void**) {
}
char __cudaInitModule(void**) {
  return 1;
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {
}

void __cudaRegisterFunction(
    void**, const char* function, char*, const char* name, int, void*, void*, dim3*, dim3*, int*) {
  names()[function] = name;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  configured = {grid, block, shared, stream};
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  *grid = configured.grid, *block = configured.block, *shared = configured.shared;
  *static_cast<cudaStream_t*>(stream) = configured.stream;
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(
    const void* kernel, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t) {
  return start(kernel, grid, block, dim3(0, 0, 0), args, shared);
}

cudaError_t __cudaLaunchKernel(
    cudaKernel_t kernel, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t) {
  return start(kernel, grid, block, dim3(0, 0, 0), args, shared);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** args) {
  dim3 cluster(0, 0, 0);
  for (unsigned at = 0; at < config->numAttrs; ++at)
    if (config->attrs[at].id == cudaLaunchAttributeClusterDimension) {
      auto& size = config->attrs[at].val.clusterDim;
      cluster = dim3(size.x, size.y, size.z);
    }
  return start(kernel, config->gridDim, config->blockDim, cluster, args, config->dynamicSmemBytes);
}

// -- memory ---------------------------------------------------------------------------------------

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return done(*pointer = device.allocate(bytes));
}
cudaError_t cudaFree(void*) {
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return done(kind == cudaMemcpyHostToDevice && device.write(to, from, bytes));
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  return done(device.fill(to, value, bytes));
}

// -- the device -----------------------------------------------------------------------------------

cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) {
  return "the emulator did not do what was asked for";
}
cudaError_t cudaGetDevice(int* number) {
  return *number = 0, cudaSuccess;
}
cudaError_t cudaStreamGetDevice(cudaStream_t, int* number) {
  return *number = 0, cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  return *status = cudaStreamCaptureStatusNone, cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
  if (which != cudaDevAttrMultiProcessorCount) return cudaErrorNotSupported;
  return *value = 132, cudaSuccess;
}

CUresult cuTensorMapEncodeTiled(
    CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
    const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
    const cuuint32_t* steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
    CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
  const unsigned numbers[] = {
      unsigned(type), rank, unsigned(interleave), unsigned(swizzle), unsigned(fill)};
  return device.encode(map, numbers, address, dims, strides, box, steps) ? CUDA_SUCCESS
                                                                         : CUDA_ERROR_INVALID_VALUE;
}

cudaError_t cudaGetDriverEntryPointByVersion(
    const char* name, void** function, unsigned, unsigned long long,
    cudaDriverEntryPointQueryResult* result) {
  const bool known = !std::strcmp(name, "cuTensorMapEncodeTiled");
  *function = known ? reinterpret_cast<void*>(&cuTensorMapEncodeTiled) : nullptr;
  if (result) *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
}
