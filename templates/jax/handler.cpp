// The XLA FFI handler of gen.jax: launches of a product, or of a batch, in XLA's stream.
//
// The kernel is in a shared library, which an attribute names.
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "product.h"
#include "xla/ffi/api/ffi.h"

namespace gen_jax {

namespace ffi = xla::ffi;
using Numbers = ffi::Span<const std::int64_t>;

// ---------------------------------------------------------------------------- the driver

struct Driver {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  int (*stream_get_context)(CUstream_st*, void**) = nullptr;
  int (*push)(void*) = nullptr;
  int (*pop)(void**) = nullptr;
  int (*get_error_name)(int, const char**) = nullptr;

  Driver() {
    if (library == nullptr) return;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
    };
    find(stream_get_context, "cuStreamGetCtx");
    find(push, "cuCtxPushCurrent_v2");
    find(pop, "cuCtxPopCurrent_v2");
    find(get_error_name, "cuGetErrorName");
  }

  std::string describe(int error) const {
    const char* name = "CUresult";
    if (get_error_name && get_error_name(error, &name) != 0) name = "CUresult";
    return std::string(name) + " (" + std::to_string(error) + ")";
  }
};

// Makes the context of a stream the thread's current one, which launchers ask for, as long as it lives.
struct Current {
  const Driver& driver;
  bool is_pushed = false;

  Current(const Driver& driver, CUstream_st* stream) : driver(driver) {
    if (!driver.stream_get_context || !driver.push || !driver.pop) return;
    void* context = nullptr;
    if (driver.stream_get_context(stream, &context) == 0) is_pushed = driver.push(context) == 0;
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current() {
    void* popped;
    if (is_pushed) driver.pop(&popped);
  }
};

// ---------------------------------------------------------------------------- kernels

using Launch = decltype(&gen_jax_launch);

// The function of a kernel's library, which is loaded when it is first asked for, and stays.
ffi::ErrorOr<Launch> find_launch(std::string_view path) {
  static std::mutex mutex;
  static std::map<std::string, Launch, std::less<>> known;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = known.find(path);
  if (found != known.end()) return found->second;
  const std::string name(path);
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const launch = library ? dlsym(library, "gen_jax_launch") : nullptr;
  if (launch == nullptr) {
    return ffi::Unexpected(
        ffi::Error::InvalidArgument(
            "gen.jax cannot load a kernel's library (" + std::string(dlerror()) +
            "); trace the function again, which builds it"));
  }
  return known[name] = reinterpret_cast<Launch>(launch);
}

// ---------------------------------------------------------------------------- the handler

// A pointer, which may be null, so many bytes further.
template <class Pointer>
Pointer moved(Pointer pointer, std::int64_t bytes) {
  using Byte =
      std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, const char, char>;
  return pointer != nullptr ? static_cast<Byte*>(pointer) + bytes : nullptr;
}

// operands: A, B, C where there is one, then what the epilogue takes. results: D, then a workspace where
// there is one. sizes: M, N, K, and the products of a launch. leading, strides: of A, B, C and D in elements.
// further_ld, numbers: see Product. offsets: of each launch the bytes at which A, B, C, D and what the
// epilogue takes begin.
ffi::Error multiply(
    CUstream_st* stream, ffi::RemainingArgs operands, ffi::RemainingRets results,
    std::string_view library, bool has_c, double alpha, double beta, Numbers sizes, Numbers leading,
    Numbers strides, Numbers further_ld, ffi::Span<const double> numbers, Numbers offsets) {
  const ffi::ErrorOr<Launch> launch = find_launch(library);
  if (launch.has_error()) return launch.error();

  std::size_t next = 0;
  const auto operand = [&] { return operands.get<ffi::AnyBuffer>(next++)->untyped_data(); };
  Product first = {};
  first.m = sizes[0], first.n = sizes[1], first.k = sizes[2], first.batch = sizes[3];
  first.lda = leading[0], first.ldb = leading[1], first.ldc = leading[2], first.ldd = leading[3];
  first.stride_a = strides[0], first.stride_b = strides[1];
  first.stride_c = strides[2], first.stride_d = strides[3];
  first.alpha = alpha, first.beta = beta;
  first.a = operand(), first.b = operand();
  first.c = has_c ? operand() : nullptr;
  std::vector<const void*> further;
  while (next < operands.size()) further.push_back(operand());
  const std::vector<long long> lds(further_ld.begin(), further_ld.end());
  first.further_ld = lds.data(), first.numbers = numbers.begin();
  first.d = (*results.get<ffi::AnyBuffer>(0))->untyped_data();
  first.stream = stream;
  if (results.size() > 1) {
    constexpr std::size_t kAligned = 256;  // as launchers want it; there is room for the gap
    auto space = *results.get<ffi::AnyBuffer>(1);
    const auto address = reinterpret_cast<std::uintptr_t>(space->untyped_data());
    const std::size_t gap = (kAligned - address % kAligned) % kAligned;
    first.workspace = static_cast<char*>(space->untyped_data()) + gap;
    first.workspace_bytes = space->size_bytes() - gap;
  }

  static const Driver driver;
  const Current current(driver, stream);
  const std::size_t each = 4 + further.size();
  for (std::size_t at = 0; at < offsets.size(); at += each) {
    Product p = first;
    p.a = moved(p.a, offsets[at]), p.b = moved(p.b, offsets[at + 1]);
    p.c = moved(p.c, offsets[at + 2]), p.d = moved(p.d, offsets[at + 3]);
    std::vector<const void*> own = further;
    for (std::size_t i = 0; i < own.size(); ++i) own[i] = moved(own[i], offsets[at + 4 + i]);
    p.further = own.data();
    const int error = (*launch)(p);
    if (error != 0) {
      return ffi::Error::Internal("gen.jax: a launch is refused with " + driver.describe(error));
    }
  }
  return ffi::Error::Success();
}

}  // namespace gen_jax

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    gen_jax_multiply, gen_jax::multiply,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::PlatformStream<CUstream_st*>>()
        .RemainingArgs()
        .RemainingRets()
        .Attr<std::string_view>("library")
        .Attr<bool>("has_c")
        .Attr<double>("alpha")
        .Attr<double>("beta")
        .Attr<xla::ffi::Span<const std::int64_t>>("sizes")
        .Attr<xla::ffi::Span<const std::int64_t>>("leading")
        .Attr<xla::ffi::Span<const std::int64_t>>("strides")
        .Attr<xla::ffi::Span<const std::int64_t>>("further_ld")
        .Attr<xla::ffi::Span<const double>>("numbers")
        .Attr<xla::ffi::Span<const std::int64_t>>("offsets"));
