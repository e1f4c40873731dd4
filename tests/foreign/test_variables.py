"""Variables of a file, which a host would set by cudaMemcpyToSymbol and read back."""

from __future__ import annotations

import numpy as np
import pytest

import gen
from gen.errors import UsageError
from gen.foreign.build import build
from gen.foreign.prepare import read_program
from gen.foreign.running import Outcome
from gen.foreign.variables import declared
from tests.conftest import Gen
from tests.foreign.test_emulate import write

SOURCE = """
#define SIDE 3
struct Pair { int a; float b; };
__constant__ float weights[SIDE * SIDE] = {1, 2, 3};
namespace ns { __device__ unsigned int total; namespace { __device__ int hidden[4]; } }
static __device__ double table[2][3];
__device__ Pair pair;
__device__ float* where;
__device__ int one = 1, two[2] = {1, 2};
__device__ float helper(float);
template <int N> __global__ void k(float* y) {
  int t = threadIdx.x;
  y[t] = weights[t] + one * two[1];
  if (t) return;
  ns::total += N; ns::hidden[0] = 5; table[0][1] += 1; pair.a = 7; if (where) where[1] = 3;
}
"""
LAUNCH = ("--kernel", "k<2>", "--grid", "1", "--block", "9", "--arg", "y=f32[9]:zeros")


def run(**arguments: object) -> Outcome:
    return gen.emulate(SOURCE, "k<2>", 1, 9, {"y": "f32[9]:zeros", **arguments})


def test_declarations() -> None:
    (file,) = read_program(SOURCE, "mine.cu").files.values()
    found = {one.name: (one.kind, one.dims, one.parameter.pointer) for one in declared(file.units)}
    assert found == {
        "weights": ("f32", None, False), "ns::total": ("u32", (), False),
        "ns::hidden": ("i32", (4,), False), "table": ("f64", (2, 3), False),
        "pair": (None, (), False), "where": ("u64", (), True), "one": ("i32", (), False),
        "two": ("i32", (2,), False),
    }  # fmt: skip


def test_what_a_launch_leaves_in_variables(gen: Gen) -> None:
    code, out, _ = gen("run", write(SOURCE), *LAUNCH, "--print", "table", "--save", "total=t.npy")
    assert code == 0
    assert "y: f32[9] = 3 4 5 2 2 2 2 2 ...\n" in out
    assert "total: u32[1] = 2\n" in out
    assert "hidden: i32[4] = 5 0 0 0\n" in out
    assert "table: f64[2,3]\n[[0. 1. 0.]\n [0. 0. 0.]]\n" in out
    assert "pair: u8[8] = 7 0 0 0 0 0 0 0\n" in out
    assert "where" not in out  # has not changed
    assert np.load("t.npy").tolist() == [2]


def test_variables_are_set() -> None:
    outcome = run(
        weights=np.arange(9, dtype=np.float32), total=40, table="f64[2,3]:2", where="f32[2]:zeros",
        one="i32[1]:zeros", hidden="[4]:iota", pair="bytes:0000000000008040",
    )  # fmt: skip
    assert outcome.ok
    assert outcome.arrays["y"].tolist() == list(range(9))
    assert outcome.arrays["total"].tolist() == [42]
    assert outcome.arrays["table"].tolist() == [[2, 3, 2], [2, 2, 2]]
    assert outcome.before["hidden"].tolist() == [0, 1, 2, 3]
    assert outcome.arrays["hidden"].tolist() == [5, 1, 2, 3]
    assert outcome.arrays["where"].tolist() == [0, 3]
    assert outcome.arrays["pair"].tobytes() == bytes.fromhex("0700000000008040")


def test_what_is_not_set_is_as_the_source_has_it() -> None:
    outcome = run(weights="[2]:7", **{"ns::hidden": "i32[1]:9"})
    assert outcome.arrays["y"].tolist() == [9, 9, 5, 2, 2, 2, 2, 2, 2]
    assert outcome.before["weights"].tolist() == [7, 7, 3, 0, 0, 0, 0, 0, 0]
    assert outcome.before["ns::hidden"].tolist() == [9, 0, 0, 0]


def test_pointers_point_to_arguments() -> None:
    assert run(where="y").arrays["y"].tolist()[1] == 3
    assert run(where=None).ok
    assert run(where="y+2").arrays["y"].tolist()[3] == 3


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("weights", "[10]", "weights has 40 bytes, but the variable has 36"),
        ("weights", "f16[9]", "has elements of f16"),
        (
            "unknown",
            1,
            "there is no unknown among them, nor among the variables weights, ns::total",
        ),
        ("one", "many", "is not a number of type i32"),
        ("pair", 1.5, "pair"),
    ],
)
def test_bad_values(name: str, value: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run(**{name: value})


def test_constants_are_not_set() -> None:
    source = "static __device__ constexpr int rest = 2;\n"
    source += "__global__ void k(int* x) { x[0] = rest; }"
    with pytest.raises(UsageError, match="the variable rest is const, and the compiler may"):
        gen.emulate(source, args={"x": "i32[1]", "rest": 3})


def test_names_that_several_variables_have() -> None:
    source = """namespace a { __device__ int n; } namespace b { __device__ int n; }
    __global__ void k(int* x) { x[0] = a::n * 10 + b::n; }"""
    with pytest.raises(UsageError, match="n may be a::n, b::n; name it with its namespace"):
        gen.emulate(source, args={"x": "i32[1]", "n": 3})
    outcome = gen.emulate(source, args={"x": "i32[1]", "a::n": 3, "b::n": 4})
    assert outcome.arrays["x"].tolist() == [34]


def test_a_parameter_hides_a_variable() -> None:
    source = """__device__ int n; __device__ int next() { return ++n; }
    __global__ void k(int n, int* x) { x[0] = 10 * n + next(); }"""
    outcome = gen.emulate(source, args={"n": 3, "x": "i32[1]"})
    assert outcome.arrays["x"].tolist() == [31]


TWO = """
// gen-launch: --kernel add<1> --grid 1 --block 1
// gen-launch: --kernel add<10> --grid 1 --block 1 --arg step=3 --reference ref.py:f
__constant__ int step = 2;
__device__ int sum;
template <int N> __global__ void add() { sum += N * step; }
"""


def test_launches_of_a_file_share_its_variables(gen: Gen) -> None:
    assert "sum: i32[1] = 32\n" in gen("run", write(TWO)).out
    write("def f(**b): return {'sum': [b['sum'][0] + 32]}", "ref.py")
    assert gen("check", write(TWO)).out.endswith("as expected: sum\n")
    code, out, _ = gen("check", write(TWO.replace("step;", "step + 1;")))
    assert code == 1
    assert "mismatch: sum[0] is 34, expected is 32" in out


def test_an_array_of_a_reference_is_about_arguments(gen: Gen) -> None:
    text = """
// gen-launch: --grid 2 --block 1 --arg y=i32[2]:zeros --reference ref.py:f
__device__ int done;
__global__ void k(int* y) { y[blockIdx.x] = 1; atomicAdd(&done, 1); }
"""
    write("def f(**b): return [1, 1]", "ref.py")
    assert "as expected: y" in gen("check", write(text)).out


def test_variables_of_ptx() -> None:
    ptx = build("__device__ int n = 5; __global__ void k(int* x) { x[0] = n; n = 8; }", "k.cu").ptx
    outcome = gen.emulate(ptx, args={"x": "i32[1]", "n": "i32[1]:4"})
    assert outcome.arrays["x"].tolist() == [4]
    assert outcome.arrays["n"].tolist() == [8]
