"""Headers that NVRTC lacks: those of the host's libraries, as little of them as device code needs.

nvcc reads a CUDA file together with the host's headers; NVRTC has none. Those that only the host
needs are empty here, and so is every header that is not found. What device code takes from others
is written here, or comes from CUDA's own standard library where the text names `std::`.
"""

from __future__ import annotations

# What nvcc has in every file, since it includes the CUDA runtime's headers first.
PRELUDE = "gen_prelude.h"
PRELUDE_TEXT = """\
#pragma once
#include <cuda/std/cstdint>
#include <cuda/std/climits>
#include <cuda/std/cfloat>
using uint = unsigned int;
using ushort = unsigned short;
using ulong = unsigned long;
using ssize_t = long;
using ptrdiff_t = long;
#ifndef NULL
#define NULL 0
#endif
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef HUGE_VALF
#define HUGE_VALF __int_as_float(0x7f800000)
#endif
#ifndef HUGE_VAL
#define HUGE_VAL __longlong_as_double(0x7ff0000000000000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
#ifndef FLT_MAX
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define DBL_MAX 1.7976931348623157e+308
#define DBL_MIN 2.2250738585072014e-308
#define DBL_EPSILON 2.2204460492503131e-16
#endif
#define M_E 2.71828182845904523536
#define M_LOG2E 1.44269504088896340736
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#define EXIT_SUCCESS 0
#define EXIT_FAILURE 1
#define RAND_MAX 2147483647
namespace std {
template <class T>
__host__ __device__ constexpr const T& min(const T& a, const T& b) { return b < a ? b : a; }
template <class T>
__host__ __device__ constexpr const T& max(const T& a, const T& b) { return a < b ? b : a; }
}
"""

# The device's side of CUB; the whole needs Thrust, which NVRTC does not compile.
_CUB = "#pragma once\n" + "".join(
    f"#include <cub/{name}.cuh>\n"
    for name in (
        "warp/warp_reduce", "warp/warp_scan", "block/block_reduce", "block/block_scan",
        "block/block_load", "block/block_store", "block/block_exchange", "block/block_radix_sort",
        "block/block_histogram", "block/block_merge_sort", "block/block_discontinuity",
        "block/block_adjacent_difference", "block/block_shuffle", "warp/warp_merge_sort",
    )
)  # fmt: skip

_TYPES = """\
#pragma once
namespace std { using ::size_t; using ::ptrdiff_t; using ::int8_t; using ::int16_t; using ::int32_t;
using ::int64_t; using ::uint8_t; using ::uint16_t; using ::uint32_t; using ::uint64_t;
using ::uintptr_t; using ::intptr_t; using nullptr_t = decltype(nullptr); }
"""

# What the headers of CUDA's libraries bring along.
_LIBRARIES = (
    "#pragma once\n#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <cuComplex.h>\n"
)

# Of the driver's header, the type that kernels take.
_DRIVER = """\
#pragma once
typedef struct alignas(64) CUtensorMap_st { unsigned long long opaque[16]; } CUtensorMap;
"""

# CUDA's standard library stands for these where the text names something in `std::`.
_FROM_CUDA = (
    "array", "atomic", "bit", "cmath", "complex", "concepts", "functional", "limits", "numeric",
    "optional", "ratio", "span", "tuple", "type_traits", "utility",
)  # fmt: skip

_HOST = (
    "algorithm", "assert.h", "cassert", "cctype", "cerrno", "cfenv", "cfloat", "chrono", "climits",
    "condition_variable", "csignal", "cstdarg", "cstdio", "cstdlib", "cstring", "ctime",
    "ctype.h", "cuchar", "deque", "dirent.h", "errno.h", "exception", "execution", "fcntl.h",
    "filesystem", "float.h", "forward_list", "fstream", "future", "getopt.h", "initializer_list",
    "inttypes.h", "iomanip", "ios", "iosfwd", "iostream", "istream", "iterator", "limits.h",
    "list", "locale.h", "map", "math.h", "memory", "memory.h", "mutex", "new", "numbers", "omp.h",
    "ostream", "pthread.h", "queue", "random", "regex", "set", "shared_mutex", "signal.h",
    "sstream", "stack", "stdarg.h", "stdbool.h", "stdexcept", "stdio.h", "stdlib.h", "streambuf",
    "string", "string.h", "string_view", "strings.h", "sys/stat.h", "sys/time.h", "sys/types.h",
    "thread", "time.h", "typeindex", "typeinfo", "unistd.h", "unordered_map", "unordered_set",
    "valarray", "variant", "vector", "x86intrin.h", "immintrin.h",
)  # fmt: skip


def stubs(uses_std: bool) -> dict[str, str]:
    """Texts of headers by name. uses_std: whether the text names something in `std::`."""
    found = dict.fromkeys(_HOST, "#pragma once\n")
    found |= dict.fromkeys(("cstddef", "stddef.h", "cstdint", "stdint.h"), _TYPES)
    found["cub/cub.cuh"] = _CUB
    for name in _FROM_CUDA:
        text = f"#include <cuda/std/{name}>\nnamespace std {{ using namespace cuda::std; }}\n"
        found[name] = "#pragma once\n" + (text if uses_std else "")
    found["math.h"] = found["cmath"]
    if uses_std:
        found["memory"] = found["iterator"] = found["utility"]
    found |= dict.fromkeys(("cublas_v2.h", "cublasLt.h", "cudnn.h"), _LIBRARIES)
    found |= {"cuda.h": _DRIVER, "cudaTypedefs.h": "#pragma once\n#include <cuda.h>\n"}
    found[PRELUDE] = PRELUDE_TEXT
    return found
