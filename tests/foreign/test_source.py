"""What becomes of a CUDA file before a kernel runs: declarations, the host's side, names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gen.errors import CompileError, UsageError
from gen.foreign.build import Options, build, plain
from gen.foreign.prepare import read_program
from gen.foreign.scan import macros_of, masked, units_of
from gen.foreign.signature import kernels_of, parameter_of
from tests.conftest import Gen
from tests.foreign.test_emulate import write

KERNEL = "__global__ void k(float* x) { x[threadIdx.x] = 1; }\n"


def units(text: str) -> list[tuple[str, str, bool]]:
    """Kind, head and mark of each declaration."""
    found = units_of(masked(text), macros_of([text]))
    return [(unit.kind, " ".join(unit.head.split()), unit.marked) for unit in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int f() { return '}'; } // {\n", [("function", "int f()", False)]),
        ('const char* s = "{"; int g;', [("other", "const char* s = \" \"", False),
                                         ("other", "int g", False)]),
        ("template <int N = (3 > 2)> __device__ int f() {}",
         [("function", "template <int N = (3 > 2)> __device__ int f()", True)]),
        ("struct alignas(16) S { int a; };", [("class", "struct alignas(16) S", False)]),
        ("int a[] = {1, 2}; S b{3};", [("other", "int a[] = {1, 2}", False),
                                       ("other", "S b{3}", False)]),
        ("#define DEV __device__\nDEV int f() {}", [("function", "DEV int f()", True)]),
        ("BIND(a)\nBIND(b)\nint main() {}", [("other", "BIND(a)", False),
                                             ("other", "BIND(b)", False),
                                             ("function", "int main()", False)]),
        ("S::S() : a{1}, b(2) { run<<<1, 2>>>(); }\nint g;",
         [("function", "S::S() : a", False), ("function", ", b(2)", False),
          ("other", "int g", False)]),
        ('extern "C" { __global__ void k() {} }', [("function", "__global__ void k()", True)]),
        ("auto x = R\"(})\"; int y;", [("other", "auto x =", False), ("other", "int y", False)]),
    ],
)  # fmt: skip
def test_declarations(text: str, expected: list[tuple[str, str, bool]]) -> None:
    found = units(text)
    assert [(kind, marked) for kind, _, marked in found][: len(expected)] == [
        (kind, marked) for kind, _, marked in expected
    ]
    assert found[0][1].startswith(expected[0][1][:8])


def test_masking_keeps_lines_and_offsets() -> None:
    text = "int a; // {\n/* } \n */ #x\n#define A \\\n  {\nint b = '{';\n"
    hidden = masked(text)
    assert len(hidden) == len(text)
    assert [at for at, c in enumerate(hidden) if c == "\n"] == [
        at for at, c in enumerate(text) if c == "\n"
    ]
    assert "{" not in hidden


def test_kernels_have_names_and_types() -> None:
    text = """
    namespace a { template <typename T, int N>
    __global__ void __launch_bounds__(N * (2)) k(const T* __restrict__ x, unsigned int n,
                                                  float (&y)[3], const int = 4, half* out) {} }
    """
    (kernel,) = kernels_of(units_of(masked(text), macros_of([text])))
    assert kernel.name == "a::k"
    assert kernel.template == "typename T, int N"
    shown = [(p.name, p.type, p.pointer) for p in kernel.parameters]
    assert shown[0] == ("x", "T", True)
    assert shown[1] == ("n", "unsigned int", False)
    assert shown[2] == ("y", "float", True)
    assert shown[4] == ("out", "half", True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("const float (*a)[16]", ("a", "float", True, False)),
        ("float (* __restrict__ a)[16]", ("a", "float", True, True)),
        ("float (*a[4])[16]", ("a", "float", True, True)),
        ("const float (&a)[4][4]", ("a", "float", True, False)),
        ("const float a[][16]", ("a", "float", True, False)),
        ("float a[4][4]", ("a", "float", True, True)),
        ("int &a", ("a", "int", True, True)),
        ("float (*a)(int, float)", ("a", "float (*a)(int, float)", True, True)),
        ("float (*)(int)", ("7", "float ()(int)", True, True)),
        ("decltype(*b) a", ("a", "decltype(b)", True, True)),
    ],
)
def test_declarators(text: str, expected: tuple[object, ...]) -> None:
    found = parameter_of(text, 7)
    assert (found.name, found.type, found.pointer, found.writable) == expected


def test_templates_have_the_types_that_they_are_given() -> None:
    text = "template <class T, int N, typename U = T, class V> __global__ void k(T* x, U y, V z) {}"
    (kernel,) = kernels_of(units_of(masked(text), macros_of([text])))
    for arguments, types in {
        "<int, 64>": ["int", "int", "V"],
        "<unsigned int,64,half,T2<a, b>>": ["unsigned int", "half", "T2<a, b>"],
        "<>": ["T", "T", "V"],
    }.items():
        assert [parameter.type for parameter in kernel.of(arguments).parameters] == types
    assert kernel.of("<int>").parameters[0].text == "T* x"


HOST = """
#include <cstdio>
#include <iostream>
#include <vector>
#include "cublas_v2.h"
#include <nowhere/at_all.h>
static float* device_pointer;
cublasHandle_t handle;
template <typename T> struct Holder { std::vector<T> items; Holder() { items.resize(3); } };
struct Pair { int a; __device__ int sum() const { return a; } void print() { std::cout << a; } };
constexpr int twice(int x) { return 2 * x; }
void launch(std::vector<float>& x);
__global__ void k(float* x, Pair p) { x[threadIdx.x] = twice(p.sum()) + M_PI; printf("%f", x[0]); }
void launch(std::vector<float>& x) { k<<<1, 32>>>(x.data(), Pair{1}); }
int main(int argc, char** argv) { std::vector<float> v(3); launch(v); }
"""


def test_the_hosts_side_is_left_out() -> None:
    built = build(HOST, "host.cu")
    assert built.symbol == "_Z1kPf4Pair"
    assert [p.name for p in built.signature.parameters] == ["x", "p"]  # type: ignore[union-attr]
    assert built.lines[12].startswith("__global__ void k")


def test_what_was_left_out_is_remembered() -> None:
    first, second = (build(HOST, "host.cu", "k") for _ in range(2))
    assert (first.ptx, first.notes) == (second.ptx, second.notes)
    assert second.module is not None
    assert second.module.cached


def test_lines_are_those_of_the_file() -> None:
    with pytest.raises(CompileError, match=r"bad\.cu:5: .*undefined"):
        build(
            "int main() {\n  f<<<1,\n 2>>>();\n}\n__global__ void k(int* x) { *x = nothing; }\n",
            "bad.cu",
        )


def test_a_function_without_device_is_named() -> None:
    text = "int half_of(int x) { return x / 2; }\n__global__ void k(int* x) { *x = half_of(3); }\n"
    with pytest.raises(CompileError, match="host's side; mark it __device__"):
        build(text, "mine.cu")


def test_another_kernel_that_does_not_compile_is_left_out() -> None:
    built = build("__global__ void bad(int* x) { *x = nope; }\n" + KERNEL, "two.cu", "k")
    assert "bad is left out" in built.notes[0]


NAMES = """
namespace ns { template <typename T> __global__ void scale(T* x) { x[0] = 2; }
__global__ void plain(int* x) { x[0] = 1; } }
extern "C" __global__ void c_name(int* x) { x[0] = 1; }
template <int N = 4> __global__ void defaulted(int* x) { x[0] = N; }
static __global__ void hidden(int* x) { x[0] = 1; }
namespace { __global__ void nameless(int* x) { x[0] = 1; } }
"""


@pytest.mark.parametrize(
    ("name", "symbol"),
    [
        ("ns::scale<float>", "_ZN2ns5scaleIfEEvPT_"),
        ("scale<float>", "_ZN2ns5scaleIfEEvPT_"),
        ("plain", "_ZN2ns5plainEPi"),
        ("c_name", "c_name"),
        ("defaulted", "_Z9defaultedILi4EEvPi"),
        ("defaulted<8>", "_Z9defaultedILi8EEvPi"),
        ("hidden", "_Z6hiddenPi"),
        ("nameless", "_ZN"),
    ],
)
def test_kernels_are_found_by_plain_names(name: str, symbol: str) -> None:
    assert build(NAMES, "names.cu", name).symbol.startswith(symbol[:3])
    if len(symbol) > 3:
        assert build(NAMES, "names.cu", name).symbol == symbol


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (None, "has 6 kernels; name one with --kernel: ns::scale"),
        ("scale", "is a template of <typename T>"),
        ("scale<1>", "is a template of|names no kernel"),
        ("nothing", "has no kernel 'nothing'; it has"),
    ],
)
def test_names_that_do_not_fit(name: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build(NAMES, "names.cu", name)


def test_includes_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.h").write_text('#pragma once\n#include "b.h"\n')
    (tmp_path / "sub" / "b.h").write_text(
        "#include <vector>\nvoid host(std::vector<int> x) {}\n"
        "__device__ int three() { return 3; }\n"
    )
    (tmp_path / "angle").mkdir()
    (tmp_path / "angle" / "c.h").write_text("#define FOUR 4\n")
    text = '#include "sub/a.h"\n#include "sub/b.h"\n#include <c.h>\n' + (
        "__global__ void k(int* x) { *x = three() + FOUR + FIVE; }\n"
    )
    with pytest.raises(CompileError, match=r"redefin|already"):
        build(text, str(tmp_path / "k.cu"), None, Options(include=(tmp_path / "angle",)))
    (tmp_path / "sub" / "b.h").write_text("#pragma once\n__device__ int three() { return 3; }\n")
    options = Options(include=(tmp_path / "angle",), define=("FIVE=5",))
    assert build(text, str(tmp_path / "k.cu"), None, options).symbol == "_Z1kPi"


def test_a_header_is_compiled_anew_when_it_changes(tmp_path: Path) -> None:
    text, header = '#include "v.h"\n__global__ void k(int* x) { *x = VALUE; }\n', tmp_path / "v.h"
    found = []
    for value in ("11", "12"):
        header.write_text(f"#define VALUE {value}\n")
        found.append(build(text, str(tmp_path / "k.cu")).ptx)
    assert "12;" in found[1]
    assert found[0] != found[1]


def test_ptx_is_taken_as_it_is() -> None:
    ptx = build(NAMES, "names.cu", "plain").ptx
    built = build(ptx, "names.ptx", "plain")
    assert (built.symbol, built.signature) == ("_ZN2ns5plainEPi", None)


@pytest.mark.parametrize(
    ("symbol", "name"),
    [("_Z3addPf", "add"), ("_ZN2ns5scaleIfEEvPT_", "ns::scale"), ("plain", "plain")],
)
def test_symbols_have_plain_names(symbol: str, name: str) -> None:
    assert plain(symbol) == name


def test_a_file_without_kernels() -> None:
    with pytest.raises(UsageError, match="has no kernel; a kernel is a function"):
        build("int x;\n", "empty.cu")
    assert read_program("int main() {}\n", "empty.cu").kernels == []


HEADERS = """
#include <cuda/barrier>
#include <cooperative_groups.h>
#include <mma.h>
#include <cuda_fp16.h>
#include <cub/cub.cuh>
#include <thrust/device_vector.h>
#include <cassert>
#include <cmath>
#include <string>
#include <helper_cuda.h>
using namespace std;
struct Timer { std::chrono::steady_clock::time_point t; void start(); };
void Timer::start() { t = std::chrono::steady_clock::now(); }
template <typename T> std::vector<T> make(int n) { return std::vector<T>(n); }
__global__ void k(float* x) {
  __shared__ typename cub::BlockReduce<float, 32>::TempStorage s;
  float sum = cub::BlockReduce<float, 32>(s).Sum(std::max(x[threadIdx.x], 0.0f));
  cooperative_groups::this_thread_block().sync();
  assert(std::isfinite(sum));
  if (threadIdx.x == 0) x[0] = sum + FLT_MIN + INFINITY;
}
int main() { thrust::device_vector<float> v; cout << string("done") << endl; }
"""


@pytest.mark.slow
def test_standard_headers_do_no_harm() -> None:
    assert build(HEADERS, "headers.cu").symbol == "_Z1kPf"


# -- notes -----------------------------------------------------------------------------------------


def test_headers_that_are_not_found_are_told(gen: Gen) -> None:
    launch = ("--grid", "1", "--block", "1", "--arg", "x=i32[2]:zeros")
    file = write(
        '#include "config.cuh"\n#include "mine.h"\n#include <nowhere/lib.h>\n#include <cstdio>\n'
        "#ifdef _WIN32\n#include <windows.h>\n#endif\n#include <thrust/sort.h>\n"
        "__global__ void k(int* x) { x[0] = ONE; }\n"
    )
    write('#define ONE 1\n#include "deep.h"\n', "mine.h")
    said = "note: not found, and taken for empty: config.cuh, deep.h, nowhere/lib.h"
    for command in ("check", "run"):
        code, _, err = gen(command, file, *launch)
        assert code == 0
        assert err == f"{said}; give the folder with -I\n"
    Path("folder").mkdir()
    for name in ("config.cuh", "deep.h"):
        write("#pragma once\n", f"folder/{name}")
    assert "nowhere/lib.h; " in gen("check", file, *launch, "-I", "folder").err
    assert "config.cuh" not in gen("check", file, *launch, "-I", "folder").err


def test_warnings_of_the_compiler_are_told(gen: Gen) -> None:
    launch = ("--grid", "1", "--block", "32", "--arg", "x=i32[32]:zeros")
    file = write(
        "static __device__ int rest() { return 1; }\n"
        "__global__ void k(int* x) {\n  int sum, unused;\n  x[threadIdx.x] = sum;\n"
        "  __syncwarp(-1);\n}\n"
    )
    err = gen("check", file, *launch).err
    assert err == f'note: {file}:4: variable "sum" is used before its value is set\n'
    assert "left_out" in json.loads(gen("check", file, *launch, "--json").out)
