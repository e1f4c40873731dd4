// A libcuda for Python that runs nothing: it writes down what it is asked, for tests without a GPU.
//
// Memory is the host's, at addresses that are the same in every run. From the environment: LOG, the
// file to write to; PARAMETERS, those of each kernel: "gemm=lfi", where l has 8 bytes, i and f have
// 4, m is a tensor map and b a block of 16 bytes; FAIL, a function that fails with 700.
//
// Two GPUs, of 132 and 131 multiprocessors and compute capabilities 9.0 and 8.0. A GPU's context is
// 0x1000 and its number, its pool of memory 0x3000 and its number.
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static FILE* out(void) {
  static FILE* file;
  if (!file) {
    file = fopen(getenv("LOG"), "a");
    setbuf(file, NULL);
  }
  return file;
}

// cuda.h has the newest version of each function: cuMemcpyHtoDAsync_v2.
static int is(const char* symbol, const char* name) {
  const size_t size = strlen(name);
  return strncmp(symbol, name, size) == 0 &&
         (!symbol[size] || strncmp(symbol + size, "_v", 2) == 0);
}

static CUresult failure(const char* symbol) {
  const char* name = getenv("FAIL");
  return name && is(symbol, name) ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

static CUresult asked(const char* symbol, const char* format, ...) {
  const char* version = strstr(symbol, "_v");
  va_list arguments;
  fprintf(out(), "%.*s", version ? (int)(version - symbol) : 99, symbol);
  va_start(arguments, format);
  vfprintf(out(), format, arguments);
  va_end(arguments);
  fputc('\n', out());
  return failure(symbol);
}

// Writes down the function that it is in, which ends where it is to fail.
#define ASKED(...) \
  if (asked(__func__, __VA_ARGS__)) return failure(__func__)

static int number_of(const void* handle) {
  return (int)((uintptr_t)handle & 0xfff);
}

static void* handle(uintptr_t kind, int number) {
  return (void*)(kind + number);
}

// --- GPUs and contexts

CUresult cuInit(unsigned flags) {
  ASKED(" %u", flags);
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  *version = 13010;
  return failure(__func__);
}

CUresult cuDeviceGetCount(int* count) {
  *count = 2;
  return failure(__func__);
}

CUresult cuDeviceGet(CUdevice* device, int index) {
  *device = index;
  return failure(__func__);
}

CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  snprintf(name, size, "Fake %d", device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  memset(uuid, device, sizeof *uuid);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = 132 - device;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = 9 - device;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = 0;
      break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      *value = 4096;
      break;
    default:
      *value = 1;
  }
  return CUDA_SUCCESS;
}

static __thread CUcontext contexts[16];
static __thread int depth;

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  *context = handle(0x1000, device);
  return failure(__func__);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return device < 2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = contexts[depth];
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  *device = number_of(contexts[depth]);
  return contexts[depth] ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  ASKED(" %p", (void*)context);
  contexts[depth] = context;
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context) {
  ASKED(" %p", (void*)context);
  contexts[++depth] = context;
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  ASKED(" %p", (void*)contexts[depth]);
  *context = contexts[depth--];
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
  ASKED("%s", "");
  return CUDA_SUCCESS;
}

// --- streams and events

CUresult cuCtxGetStreamPriorityRange(int* least, int* most) {
  *least = *most = 0;
  return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  static int count;
  *stream = handle(0x2000, count++);
  return flags == CU_STREAM_NON_BLOCKING && !priority ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuStreamDestroy(CUstream stream) {
  return stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuStreamSynchronize(CUstream stream) {
  ASKED(" %p", (void*)stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  *context = handle(0x1000, number_of(stream) ? 1 : 0);
  return failure(__func__);
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventCreate(CUevent* event, unsigned flags) {
  static int count;
  *event = handle(0x5000, count++);
  return flags & CU_EVENT_DISABLE_TIMING ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  ASKED(" %p %p", (void*)event, (void*)stream);
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  *milliseconds = number_of(end) - number_of(start) + 0.5f;
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
  return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// --- memory

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  *pool = handle(0x3000, device);
  return CUDA_SUCCESS;
}

CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* place, CUmemAllocationType type) {
  *pool = handle(0x3000, place->id);
  return type == CU_MEM_ALLOCATION_TYPE_PINNED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  *(cuuint64_t*)value = 0;
  return pool && attribute ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  return pool && attribute && value ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAllocFromPoolAsync(
    CUdeviceptr* address, size_t size, CUmemoryPool pool, CUstream stream) {
  static CUdeviceptr first, used;
  const size_t all = 1 << 26;
  ASKED(" %zu %p %p", size, (void*)pool, (void*)stream);
  if (!first) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    first = (CUdeviceptr)mmap((void*)0x700000000, all, PROT_READ | PROT_WRITE, flags, -1, 0);
  }
  *address = first + used;
  if (size > all - used) return CUDA_ERROR_OUT_OF_MEMORY;
  used += (size + 255) / 256 * 256;
  return CUDA_SUCCESS;
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  ASKED(" %#llx %p", address, (void*)stream);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t size, CUstream stream) {
  ASKED(" %#llx %zu %p", to, size, (void*)stream);
  memcpy((void*)to, from, size);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t size, CUstream stream) {
  ASKED(" %#llx %zu %p", from, size, (void*)stream);
  memcpy(to, (void*)from, size);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  ASKED(" %#llx %#llx %zu %p", to, from, size, (void*)stream);
  memcpy((void*)to, (void*)from, size);
  return CUDA_SUCCESS;
}

static void fill(CUdeviceptr to, const void* pattern, size_t size, size_t count) {
  for (size_t i = 0; i < count; ++i) memcpy((char*)to + i * size, pattern, size);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  ASKED(" %#llx %#x %zu %p", to, value, count, (void*)stream);
  fill(to, &value, sizeof value, count);
  return CUDA_SUCCESS;
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  ASKED(" %#llx %#x %zu %p", to, value, count, (void*)stream);
  fill(to, &value, sizeof value, count);
  return CUDA_SUCCESS;
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  ASKED(" %#llx %#x %zu %p", to, value, count, (void*)stream);
  fill(to, &value, sizeof value, count);
  return CUDA_SUCCESS;
}

// --- kernels: a kernel is its name, a function that with its GPU: gemm@0

CUresult cuLibraryLoadData(
    CUlibrary* library, const void* code, CUjit_option* jit, void** jit_values, unsigned jits,
    CUlibraryOption* options, void** values, unsigned count) {
  static int loaded;
  ASKED(" %s", (const char*)code);
  *library = handle(0x4000, loaded++);
  return jits || count ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library) {
  ASKED(" %p", (void*)library);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  ASKED(" %p %s", (void*)library, name);
  *kernel = (CUkernel)strdup(name);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  ASKED(" %s %p", (const char*)kernel, (void*)contexts[depth]);
  if (asprintf((char**)function, "%s@%d", (const char*)kernel, number_of(contexts[depth])) < 0) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return contexts[depth] ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  ASKED(" %s %d %d", (const char*)function, attribute, value);
  return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset, size_t* size) {
  ASKED(" %s %zu", (const char*)function, index);
  *offset = 0;
  *size = 16;
  return CUDA_SUCCESS;
}

static void print_words(const void* argument, int count) {
  uint64_t words[8];
  memcpy(words, argument, count * sizeof *words);
  for (int i = 0; i < count; ++i)
    fprintf(out(), i ? ",%llx" : " %llx", (unsigned long long)words[i]);
}

static void print_arguments(const char* name, void** arguments) {
  char key[128];
  const char* types = getenv("PARAMETERS");
  snprintf(key, sizeof key, "%.*s=", (int)strcspn(name, "@"), name);
  types = types ? strstr(types, key) : NULL;
  if (!types) return;
  for (types += strlen(key); *types && *types != ' '; ++types, ++arguments) {
    switch (*types) {
      case 'l':
        print_words(*arguments, 1);
        break;
      case 'b':
        print_words(*arguments, 2);
        break;
      case 'm':
        print_words(*arguments, 8);
        break;
      case 'i':
        fprintf(out(), " %d", *(int*)*arguments);
        break;
      case 'f':
        fprintf(out(), " %g", *(float*)*arguments);
        break;
    }
  }
}

CUresult cuLaunchKernelEx(
    const CUlaunchConfig* c, CUfunction function, void** arguments, void** extra) {
  const char* name = (const char*)function;
  fprintf(
      out(), "%s%s (%u, %u, %u) (%u, %u, %u) %u %p:", name, c->numAttrs ? " early" : "",
      c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ,
      c->sharedMemBytes, (void*)c->hStream);
  print_arguments(name, arguments);
  fputc('\n', out());
  for (unsigned i = 0; i < c->numAttrs; ++i) {
    const CUlaunchAttribute* attribute = c->attrs + i;
    if (attribute->id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) return 1;
    if (attribute->value.programmaticStreamSerializationAllowed != 1) return 1;
  }
  // What CUTLASS 2.x's configuration is computed by: the second of its results.
  if (strcmp(name, "prepare@0") == 0) {
    const int launch[] = {2, 3, 4, 128, 60000};
    memcpy(*(void**)arguments[14], launch, sizeof launch);
  }
  return extra ? CUDA_ERROR_INVALID_VALUE : failure(__func__);
}

CUresult cuLaunchKernel(
    CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
    unsigned bz, unsigned shared, CUstream stream, void** arguments, void** extra) {
  const CUlaunchConfig config = {gx, gy, gz, bx, by, bz, shared, stream, NULL, 0};
  if (failure(__func__)) return failure(__func__);
  return cuLaunchKernelEx(&config, function, arguments, extra);
}

CUresult cuTensorMapEncodeTiled(
    CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
    const cuuint64_t* sizes, const cuuint64_t* pitches, const cuuint32_t* box,
    const cuuint32_t* every, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
    CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill filled) {
  const uint64_t words[16] = {
      type, (uintptr_t)address, sizes[0], sizes[1], pitches[0], box[0], box[1], swizzle};
  ASKED(" %p", address);
  memcpy(map, words, sizeof words);
  if (rank != 2 || every[0] != 1 || every[1] != 1) return CUDA_ERROR_INVALID_VALUE;
  const int odd = interleave || promotion != CU_TENSOR_MAP_L2_PROMOTION_NONE || filled;
  return odd ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* map, void* address) {
  ASKED(" %p", address);
  memcpy((uint64_t*)map + 1, &address, sizeof address);
  return CUDA_SUCCESS;
}

// --- what cuda.bindings and cuda.core ask for

CUresult cuGetErrorName(CUresult error, const char** name) {
  *name =
      error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_ILLEGAL_ADDRESS";
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error ? "it failed" : "no error";
  return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(
    const char* name, void** function, int version, cuuint64_t flags,
    CUdriverProcAddressQueryResult* found) {
  static const char* versions[] = {"", "_v2", "_v3"};
  void* const self = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
  char symbol[128];
  *function = NULL;
  for (int i = 0; i < 3 && !*function; ++i) {
    snprintf(symbol, sizeof symbol, "%s%s", name, versions[i]);
    *function = dlsym(self, symbol);
  }
  if (found) *found = *function ? 0 : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
