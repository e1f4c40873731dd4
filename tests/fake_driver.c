// A libcuda that runs nothing: it writes down what a launcher asks of it, for tests without a GPU.
//
// From the environment: CC and PROCESSORS of the device, CONTEXT for the error where there is none,
// and PARAMETERS, the parameters of each kernel: "gemm=lf gemm_pack=l". l has 8 bytes, f has 4, m is
// a tensor map.
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

int cuCtxGetDevice(int* device) {
  *device = 0;
  return number("CONTEXT", 0);
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  const int cc = number("CC", 80);
  if (device != 0) return 101;
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

int cuKernelSetAttribute(int attribute, int value, void* kernel, int device) {
  if (attribute != 8 || device != 0) return 1;
  printf("shared %s %d\n", (const char*)kernel, value);
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
  memcpy(words, argument, type == 'm' ? 64 : type == 'l' ? 8 : 4);
  printf(" %llx", (unsigned long long)words[0]);
  for (int i = 1; type == 'm' && i < 8; ++i) printf(",%llx", (unsigned long long)words[i]);
}

int cuLaunchKernel(
    void* kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
    unsigned shared, void* stream, void** arguments, void** extra) {
  char name[128];
  if (stream || extra) return 1;
  snprintf(name, sizeof name, "%s=", (const char*)kernel);
  const char* types = strstr(getenv("PARAMETERS"), name);
  if (!types) return 500;
  printf("launch %s (%u, %u, %u) (%u, %u, %u) %u:", (char*)kernel, gx, gy, gz, bx, by, bz, shared);
  for (types += strlen(name); *types && *types != ' '; ++types) {
    print_argument(*types, *arguments++);
  }
  printf("\n");
  return 0;
}
