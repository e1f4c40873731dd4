// A libcuda that runs nothing: it writes down what a launcher asks of it, for tests without a GPU.
//
// From the environment: CC of each device, as "80 90", and their PROCESSORS, CONTEXT for the error
// where there is none, and PARAMETERS, the parameters of each kernel: "gemm=lf gemm_pack=l". l has 8
// bytes, f has 4, m is a tensor map. A context is the number of its device, and so is what a stream
// points to.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  uint64_t words[16];
} Map;

static int number(const char* name, int other) {
  const char* text = getenv(name);
  return text ? atoi(text) : other;
}

static __thread int current;

int cuCtxSetCurrent(void* context) {
  current = (int)(intptr_t)context;
  return 0;
}

int cuCtxGetDevice(int* device) {
  *device = current;
  return number("CONTEXT", 0);
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  const char* all = getenv("CC");
  const int cc = all ? atoi(all + 3 * device) : 80;
  if (device != current) return 101;
  switch (attribute) {
    case 16: *value = number("PROCESSORS", 132); return 0;
    case 75: *value = cc / 10; return 0;
    case 76: *value = cc % 10; return 0;
    default: return 1;
  }
}

int cuLibraryLoadData(
    void** library, const void* code, int* a, void** b, unsigned c, int* d, void** e, unsigned f) {
  unsigned flags;
  if (a || b || c || d || e || f || memcmp(code, "\177ELF", 4) != 0) return 1;
  memcpy(&flags, (const char*)code + 48, 4);
  printf("load sm_%d\n", flags >> 8 & 255);
  *library = (void*)code;
  return 0;
}

int cuLibraryUnload(void* library) {
  return library ? 0 : 1;
}

// A kernel is its name.
int cuLibraryGetKernel(void** kernel, void* library, const char* name) {
  *kernel = (void*)name;
  return library && strncmp(name, "gemm", 4) == 0 ? 0 : 500;
}

typedef struct {
  const char* name;
  int device;
} Function;

int cuKernelGetFunction(Function** function, void* kernel) {
  *function = malloc(sizeof **function);
  **function = (Function){kernel, current};
  return 0;
}

int cuFuncSetAttribute(const Function* function, int attribute, int value) {
  if (attribute != 8 || function->device != current) return 1;
  printf("shared %s %d\n", function->name, value);
  return 0;
}

int cuTensorMapEncodeTiled(
    Map* map, int type, unsigned rank, void* address, const uint64_t* sizes, const uint64_t* strides,
    const unsigned* box, const unsigned* every, int interleave, int swizzle, int promotion, int fill) {
  const Map encoded = {
      {type, (uint64_t)address, sizes[0], sizes[1], strides[0], box[0], box[1], swizzle}};
  if (rank != 2 || every[0] != 1 || every[1] != 1) return 1;
  if (interleave != 0 || promotion != 0 || fill != 0 || (uintptr_t)map % 64) return 1;
  *map = encoded;
  return 0;
}

static void print_argument(char type, const void* argument) {
  uint64_t words[8] = {0};
  memcpy(words, argument, type == 'm' ? 64 : type == 'l' ? 8 : type == 'c' ? 1 : 4);
  printf(" %llx", (unsigned long long)words[0]);
  for (int i = 1; type == 'm' && i < 8; ++i) printf(",%llx", (unsigned long long)words[i]);
}

int cuLaunchKernel(
    const Function* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
    unsigned bz, unsigned shared, const int* stream, void** arguments, void** extra) {
  char name[128];
  if (extra) return 1;
  if ((stream ? *stream : current) != function->device) return 400;
  snprintf(name, sizeof name, "%s=", function->name);
  const char* types = strstr(getenv("PARAMETERS"), name);
  if (!types) return 500;
  printf(
      "launch %s (%u, %u, %u) (%u, %u, %u) %u:", function->name, gx, gy, gz, bx, by, bz, shared);
  for (types += strlen(name); *types && *types != ' '; ++types) {
    print_argument(*types, *arguments++);
  }
  printf("\n");
  return 0;
}
