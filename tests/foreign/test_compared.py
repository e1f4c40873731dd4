"""What `gen check` compares: after each schedule, whatever a reference does; of variables, too."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import Gen
from tests.foreign.test_emulate import write

# A block sees whether its neighbour has published once or twice, which depends on the order.
PUBLISH = """
// gen-launch: --grid 4 --block 1 --arg st=i32[4]:zeros --arg y=i32[4]:poison
__global__ void k(volatile int* st, int* y) {
  int b = blockIdx.x, s = 0;
  st[b] = b ? 1 : 2;
  if (b) do s = st[b - 1]; while (s == 0);
  y[b] = s;
  st[b] = 2;
}
"""


@pytest.mark.parametrize(
    ("results", "order"),
    [("0, 2, 1, 1", "one by one, from the first on"), ("0, 2, 2, 2", "all at once")],
)
def test_each_schedule_is_compared(gen: Gen, results: str, order: str) -> None:
    write(f"def ref(**b): return {{'y': [{results}]}}", "ref.py")
    code, out, _ = gen("check", write(PUBLISH), "--reference", "ref.py:ref")
    assert code == 1
    assert f"2 of 4 elements differ; blocks ran {order}\n" in out


def test_the_last_schedule_is_compared(gen: Gen) -> None:
    # The block that comes first says which it is; then all wait for each other.
    text = """
// gen-launch: --grid 3 --block 1 --arg first=i32[1]:-1 --arg count=i32[1]:zeros
__global__ void k(int* first, int* count) {
  atomicCAS(first, -1, blockIdx.x);
  atomicAdd(count, 1);
  while (*(volatile int*)count < 3) {}
}
"""
    write("def ref(**b): return {'first': [0]}", "ref.py")
    code, out, _ = gen("check", write(text), "--reference", "ref.py:ref")
    assert code == 1
    assert (
        "first[0] is 2, expected is 0; 1 of 1 elements differ; blocks ran one by one, from the "
        "last on\n" in out
    )


# -- references that fail --------------------------------------------------------------------------

WRONG = """
// gen-launch: --grid 1 --block 64 --arg x=i32[63]:integers --arg y=i32[64]:poison
__global__ void k(const int* x, int* y) {
  y[threadIdx.x + 100] = x[threadIdx.x];
}
"""
RIGHT = WRONG.replace("i32[63]", "i32[64]").replace(" + 100", "")
REFERENCES = """
import numpy as np
def raises(**b): return b["x"][1000]
def short(**b): return b["x"][::-1][:5]
def zeros(**b): return np.zeros(64, int)
def words(**b): return {"y": "zeros"}
def ragged(**b): return {"y": [[1], [1, 2]]}
def nothing(**b): pass
def other(**b): return {"z": 1}
def lacks(z): return z
def exits(**b): raise KeyError("x")
def quits(**b): raise SystemExit(0)
number = 3
"""
MISTAKES = {
    "raises": "raised IndexError: index 1000 is out of bounds for axis 0",
    "words": "returned a str for y; return an array of real numbers",
    "ragged": "returned a list for y",
    "nothing": "returned a NoneType for y",
    "other": "returned z, which are no buffers of the launch: x, y",
    "lacks": "wants z; the launch has x, y",
    "exits": "raised KeyError: 'x'",
    "quits": "raised SystemExit: 0",
    "number": "is no function",
    "none": "cannot be imported",
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_reference_hides_nothing(gen: Gen, name: str) -> None:
    write(REFERENCES, "refs.py")
    reference = ("--reference", f"refs.py:{name}")
    code, out, err = gen("check", write(WRONG), *reference)
    assert (code, err) == (1, "")
    assert "Invalid __global__ read" in out
    assert "Invalid __global__ write" in out
    assert f"\nnot compared, because --reference refs.py:{name} " in out
    assert MISTAKES[name] in out
    code, out, err = gen("check", write(RIGHT), *reference)
    assert code == 2
    assert "nothing found in" in out
    assert out.endswith("; not compared\n")
    assert err.startswith(f"error: --reference refs.py:{name} ")
    assert err.count("\n") == 1
    found = json.loads(gen("check", write(WRONG), *reference, "--json").out)
    assert MISTAKES[name] in found["not_compared"]
    assert len(found["findings"]) == 2


@pytest.mark.parametrize(
    ("text", "error"), [("def ref(:\n", "SyntaxError"), ("raise SystemExit(0)\n", "SystemExit: 0")]
)
def test_a_file_of_references_with_a_mistake(gen: Gen, text: str, error: str) -> None:
    write(text, "refs.py")
    code, _, err = gen("check", write(RIGHT), "--reference", "refs.py:ref")
    assert code == 2
    assert f"cannot be imported: {error}" in err


def test_an_array_is_compared_with_the_buffer_that_can_be_meant(gen: Gen) -> None:
    write(REFERENCES, "refs.py")
    code, out, _ = gen("check", write(WRONG), "--reference", "refs.py:zeros")
    assert code == 1
    assert "Invalid __global__ read" in out
    assert "64 of 64 elements differ; the launch has not changed it\n" in out
    code, out, _ = gen("check", write(WRONG), "--reference", "refs.py:short")
    assert "mismatch: y has 64 elements, 5 are expected; the launch has not changed it\n" in out
    text = WRONG.replace("const int* x", "int* x")
    code, out, _ = gen("check", write(text), "--reference", "refs.py:zeros")
    assert code == 1
    assert "returned one array, but the launch has changed no buffer; return a dict" in out


def test_the_array_of_a_later_launch_is_what_that_writes(gen: Gen) -> None:
    file = write("""
// gen-launch: --kernel one --grid 1 --block 8 --arg x=i32[8]:zeros
// gen-launch: --kernel two --grid 1 --block 8 --arg x=x --arg y=i32[8]:poison --reference ref.py:f
__global__ void one(int* x) { x[threadIdx.x] = 1; }
__global__ void two(const int* x, int* y) { y[threadIdx.x] = x[threadIdx.x] + 1; }
""")
    write("def f(**b): return [2] * 8", "ref.py")
    assert "as expected: y" in gen("check", file).out


def test_a_buffer_has_the_names_of_all_parameters_that_point_to_it(gen: Gen) -> None:
    file = write("""
// gen-launch: --grid 1 --block 8 --arg x=i32[8]:iota --arg y=x
__global__ void k(const int* x, int* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }
""")
    write("def f(x, y): return {'y': x + y}\ndef g(**b): return b['y'] * 2", "ref.py")
    for name in ("f", "g"):
        assert "as expected: x\n" in gen("check", file, "--reference", f"ref.py:{name}").out


def test_bad_expectations_hide_nothing(gen: Gen) -> None:
    np.save("y.npy", np.zeros(64, np.int32))
    for wrong in (("--expect", "z=y.npy"), ("--expect", "y=none.npy"), ("--expect", "y")):
        code, out, _ = gen("check", write(WRONG), *wrong)
        assert code == 1
        assert "Invalid __global__ read" in out
        assert "not compared, because " in out
        assert gen("check", write(RIGHT), *wrong).code == 2


@pytest.mark.slow
def test_products_are_compared_after_each_schedule(gen: Gen) -> None:
    # Only the block of the first half writes D, and only if it comes first.
    file = write("""
// gen-launch: --grid N,M,2 --block 1 --gemm A=a,B=b,D=d,M=m,N=n,K=k
__device__ float sums[64];
__device__ int count[64];
__global__ void mul(const float* a, const float* b, float* d, int m, int n, int k) {
  const int i = blockIdx.y, j = blockIdx.x, z = blockIdx.z, at = i * n + j;
  float sum = 0;
  for (int p = z * (k / 2); p < (z ? k : k / 2); ++p) sum += a[i * k + p] * b[p * n + j];
  atomicAdd(&sums[at], sum);
  __threadfence();
  const int ticket = atomicAdd(&count[at], 1);
  while (*(volatile int*)&count[at] < 2) {}
  __threadfence();
  if (z == 0 && ticket == 0) d[at] = atomicAdd(&sums[at], 0.f);
}
""")
    code, out, _ = gen("check", file, "--shape", "2x3x4")
    assert code == 1
    assert "6 of 6 differ; blocks ran one by one, from the last on\n" in out
    text = Path(file).read_text().replace("z == 0 && ticket == 0", "ticket == 0")
    assert gen("check", write(text), "--shape", "2x3x4").code == 0
