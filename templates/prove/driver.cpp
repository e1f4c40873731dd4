// A libcuda.so.1 that runs nothing: it writes down what it is asked for.
//
// From the environment: CC of each device, as "80 90", where the problem has none; DRIVER, its version, as 12000; CONTEXT, the error
// of threads that have not set theirs; UNINITIALIZED, for a driver that wants cuInit; PARAMETERS of each
// kernel, as "gemm=lf gemm_pack=l": l has 8 bytes, f has 4, c has 1, m is a tensor map. A context is the
// number of its device, and so is what a stream points to. LOAD and FIND: the errors of the first loading
// of a library, and of the first look for a kernel in one.
#include <atomic>
#include <cstdlib>
#include <list>  // which, empty, allocates nothing
#include <mutex>

#include "fake.h"

namespace {

enum {
  kInvalid = 1,
  kNotInitialized = 3,
  kDeinitialized = 4,
  kInvalidImage = 200,
  kNoBinary = 209,
  kNewPtx = 222,
  kInvalidHandle = 400,
  kNotFound = 500
};

int number(const char* name, int other) {
  const char* text = getenv(name);
  return text ? atoi(text) : other;
}

int capability(int device) {
  if (fake::now.capability) return fake::now.capability;
  const char* all = getenv("CC");
  return all ? atoi(all + 3 * device) : 80;
}

std::atomic<bool> initialized{false}, ended{false};
std::atomic<int> loads{0}, looks{0};
thread_local bool has_context;

struct Library {
  const char* code;
  bool loaded;

  bool is_ptx() const {
    return memcmp(code, "\177ELF", 4) != 0;
  }
  int arch() const {
    unsigned flags;
    memcpy(&flags, code + 48, 4);
    return is_ptx() ? atoi(strstr(code, ".target sm_") + 11) : static_cast<int>(flags >> 8 & 255);
  }
  // As of CUDA 13: machine code that the driver does not know, PTX that is too new for it.
  int refused() const {
    const int version = number("DRIVER", 13000);
    if (!is_ptx()) return version < 13000 ? kInvalidImage : 0;
    const double newest = version < 13000 ? 8.0 + version % 1000 / 10 * 0.1 : 9.0;
    return atof(strstr(code, ".version ") + 9) > newest + 0.01 ? kNewPtx : 0;
  }
};

struct Kernel {
  const Library* library;
  const char* name;
};

struct Function {
  const char* name;
  int device;
};

std::mutex mutex;
std::list<Library> libraries;
std::list<Kernel> kernels;
std::list<Function> functions;

}  // namespace

extern "C" {

int cuInit(unsigned) {
  if (!initialized.exchange(true)) atexit([] { ended = true; });
  return 0;
}

int cuDriverGetVersion(int* version) {
  *version = number("DRIVER", 13000);
  return 0;
}

int cuCtxSetCurrent(void* context) {
  fake::now.current = static_cast<int>(reinterpret_cast<intptr_t>(context));
  has_context = true;
  return 0;
}

int cuCtxGetDevice(int* device) {
  if (getenv("UNINITIALIZED") && !initialized) return kNotInitialized;
  *device = fake::now.current;
  return has_context ? 0 : number("CONTEXT", 0);
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (fake::refuses()) return fake::kRefused;
  if (device != fake::now.current) return 101;
  switch (attribute) {
    case 16:
      *value = fake::now.multiprocessors;
      return 0;
    case 75:
      *value = capability(device) / 10;
      return 0;
    case 76:
      *value = capability(device) % 10;
      return 0;
    case 97:
      *value = fake::attribute(97);
      return *value >= 0 ? 0 : kInvalid;
    default:
      return kInvalid;
  }
}

int cuLibraryLoadData(
    Library** library, const void* code, int* a, void** b, unsigned c, int* d, void** e,
    unsigned f) {
  if (a || b || c || d || e || f) return kInvalid;
  if (loads++ == 0 && getenv("LOAD")) return number("LOAD", 0);
  const fake::Outside outside;
  const std::lock_guard<std::mutex> lock(mutex);
  libraries.push_back({static_cast<const char*>(code), true});
  *library = &libraries.back();
  fake::say("load %s%d\n", (*library)->is_ptx() ? "ptx of sm_" : "sm_", (*library)->arch());
  return 0;
}

int cuLibraryUnload(Library* library) {
  if (ended) return kDeinitialized;
  if (!library || !library->loaded) return kInvalidHandle;
  library->loaded = false;
  fake::say("unload %s%d\n", library->is_ptx() ? "ptx of sm_" : "sm_", library->arch());
  return 0;
}

// Drivers look at the code no earlier than here.
int cuLibraryGetKernel(Kernel** kernel, Library* library, const char* name) {
  if (!library || !library->loaded) return kInvalidHandle;
  if (const int error = library->refused()) return error;
  if (strncmp(name, "gemm", 4) != 0) return kNotFound;
  if (looks++ == 0 && getenv("FIND")) return number("FIND", 0);
  const fake::Outside outside;
  const std::lock_guard<std::mutex> lock(mutex);
  kernels.push_back({library, name});
  *kernel = &kernels.back();
  return 0;
}

int cuKernelGetFunction(Function** function, const Kernel* kernel) {
  if (!kernel || !kernel->library->loaded) return kInvalidHandle;
  const int device = fake::now.current, arch = kernel->library->arch(), cc = capability(device);
  const bool runs = kernel->library->is_ptx() ? arch <= cc : arch / 10 == cc / 10 && arch <= cc;
  if (!runs && arch) return kNoBinary;
  const fake::Outside outside;
  const std::lock_guard<std::mutex> lock(mutex);
  functions.push_back({kernel->name, device});
  *function = &functions.back();
  return 0;
}

int cuFuncSetAttribute(const Function* function, int attribute, int value) {
  if (fake::refuses()) return fake::kRefused;
  if (attribute != 8 || function->device != fake::now.current) return kInvalid;
  fake::say("set %s %d %d\n", function->name, attribute, value);
  return 0;
}

struct Config {  // a CUlaunchConfig
  unsigned gx, gy, gz, bx, by, bz, shared;
  void* stream;
  void* attributes;
  unsigned count;
};
int cuOccupancyMaxActiveClusters(int* clusters, const Function* function, const Config* c) {
  if (fake::refuses()) return fake::kRefused;
  if (function->device != fake::now.current || c->count) return kInvalid;
  *clusters = fake::clusters(function->name, c->gx, c->gy, c->gz, c->bx, c->by, c->bz, c->shared);
  return 0;
}

int cuTensorMapEncodeTiled(
    void* map, int type, unsigned rank, void* address, const uint64_t* sizes,
    const uint64_t* strides, const unsigned* box, const unsigned* every, int interleave,
    int swizzle, int promotion, int fill) {
  return fake::encode(
      map, type, rank, address, sizes, strides, box, every, interleave, swizzle, promotion, fill);
}

int cuLaunchKernel(
    const Function* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
    unsigned bz, unsigned shared, void* stream, void** arguments, void** extra) {
  if (extra) return kInvalid;
  int device = fake::now.current;
  if (stream && stream == fake::stream) {
    device = fake::now.own;
  } else if (stream) {
    device = *static_cast<int*>(stream);
  }
  if (device != function->device) return kInvalidHandle;
  if (++fake::launches == fake::now.refused_launch) return fake::now.launch_error;
  const fake::Outside outside;
  const std::string name = std::string(" ") + function->name + "=";
  const std::string all = std::string(" ") + getenv("PARAMETERS");
  const size_t at = all.find(name);
  if (at == std::string::npos) return kNotFound;
  fake::say("launch %s %u %u %u %u %u %u %u 0", function->name, gx, gy, gz, bx, by, bz, shared);
  for (size_t i = at + name.size(); i < all.size() && all[i] != ' '; ++i) {
    const char type = all[i];
    fake::print(*arguments++, type == 'm' ? 128 : type == 'l' ? 8 : type == 'c' ? 1 : 4);
  }
  fake::say("\n");
  return 0;
}
}
