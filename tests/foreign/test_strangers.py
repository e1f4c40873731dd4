"""What people who do not know gen give it: heaps, wild pointers, wrong types, host headers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gen
from gen.errors import GenError, UsageError
from gen.foreign.references import difference
from tests.conftest import Gen
from tests.support.slow import slow

HEAP = """
__global__ void k(int* out, int n) {
  int* mine = (int*)malloc(4 * sizeof(int));
  for (int i = 0; i < n; ++i) mine[i] = i;
  out[threadIdx.x] = mine[3];
  LAST
}
"""


def test_the_heap_has_no_values_and_leaks_are_told() -> None:
    args = {"out": "i32[8]", "n": 4}
    right = gen.emulate(HEAP.replace("LAST", "free(mine);"), block=8, args=args)
    assert (right.findings, right.leaks) == ([], [])
    (finding,) = gen.emulate(
        HEAP.replace("LAST", "free(mine);"), block=8, args={**args, "n": 3}
    ).findings
    assert (finding.check, finding.file_line) == ("initcheck", 5)
    lost = gen.emulate(HEAP.replace("LAST", ""), block=8, args=args)
    assert lost.ok
    assert len(lost.leaks) == 8


def test_leaks_are_a_note_of_gen_check(gen: Gen) -> None:
    Path("heap.cu").write_text(HEAP.replace("LAST", ""))
    options = ["--grid", "1", "--block", "8", "--arg", "out=i32[8]", "--arg", "n=4"]
    said = gen("check", "heap.cu", *options)
    assert said.code == 0
    assert "note: 8 allocations of the device's heap not freed, such as malloc(line 3" in said.out


def test_a_loop_behind_a_wild_access_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list whose next pointer is read too late: what it reads then never ends it."""
    monkeypatch.setattr("gen.emulator.run.reports.SECONDS_AFTER_WILD", 0.2)
    source = """
struct Node { Node* next; };
__global__ void k(int* out) {
  Node* head = new Node{new Node{nullptr}};
  int count = 0;
  for (; head; ++count) {
    delete head;
    head = head->next;
  }
  *out = count;
}
"""
    outcome = gen.emulate(source, args={"out": "i32[1]"}, budget=10**12)
    assert "ran longer than 0.2 seconds" in outcome.stopped
    assert not outcome.ok
    assert "which has been freed" in outcome.findings[0].message


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"x": "i32[32]", "n": 4}, "has elements of i32, but float[*] x points to f32; write f32"),
        ({"x": "f64[32]:ones", "n": 4}, "write f32.32.:ones"),
        ({"x": "f32[32]", "n": "f32[3]"}, "n=f32.3. is a buffer, but int n is a number"),
    ],
)
def test_arguments_of_another_type(args: dict[str, object], message: str) -> None:
    source = "__global__ void k(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] = 0; }"
    with pytest.raises(UsageError, match=message):
        gen.emulate(source, block=32, args=args)
    assert gen.emulate(source, block=32, args={"x": "tf32[32]", "n": 4}).ok


def test_bytes_may_stand_for_packed_numbers() -> None:
    source = "__global__ void k(int* x, void* y) { x[threadIdx.x] = ((char*)y)[threadIdx.x]; }"
    assert gen.emulate(source, block=8, args={"x": "i8[32]", "y": "f16[4]"}).ok


def test_a_grid_of_no_blocks_is_refused() -> None:
    source = "__global__ void k(int n) {}"
    with pytest.raises(UsageError, match="a GPU refuses a launch without blocks"):
        gen.emulate(source, grid="(n+63)/64", block=64, args={"n": 0})


def test_a_reference_gets_null_pointers(gen: Gen) -> None:
    Path("k.cu").write_text("__global__ void k(int* a, int* b) { b[0] = a ? a[0] : 7; }")
    Path("refs.py").write_text("def f(a, b):\n    return {'b': b * 0 + (7 if a is None else a[0])}")
    options = ["--grid", "1", "--block", "1", "--arg", "b=i32[1]", "--reference", "refs.py:f"]
    for value in ("a=null", "a=i32[1]:3"):
        said = gen("check", "k.cu", *options, "--arg", value)
        assert (said.code, "as expected: b" in said.out) == (0, True), said.out


def test_integers_that_differ_have_all_digits() -> None:
    got, want = np.array([4294967295], np.uint32), np.array([3460027001], np.uint32)
    assert difference(got, want, "u32", 0) == (
        "[0] is 4294967295, expected is 3460027001; 1 of 1 elements differ"
    )


@slow
def test_headers_of_the_driver_and_of_cub() -> None:
    source = """
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cub/cub.cuh>
__global__ void k(const __grid_constant__ CUtensorMap map, int* x) {
  using Sort = cub::BlockRadixSort<int, 64, 1>;
  __shared__ typename Sort::TempStorage temp;
  int mine[1] = {x[threadIdx.x]};
  Sort(temp).Sort(mine);
  x[threadIdx.x] = mine[0] + sizeof(map) - 128;
}
int main() { CUtensorMap map; cuTensorMapEncodeTiled(&map); }
"""
    x = np.random.default_rng(0).integers(-99, 99, 64, np.int32)
    outcome = gen.emulate(source, block=64, args={"map": f"bytes:{'00' * 128}", "x": x})
    assert outcome.ok
    assert np.array_equal(outcome.arrays["x"], np.sort(x))


@pytest.mark.parametrize(
    ("body", "harmful"),
    [
        ("x[0] = 7;", False),
        ("if (x[0] == 0)\n    x[0] = 7;", False),  # a flag
        ("x[0] += 1;", True),
        ("x[0] = max(x[0], 5);", True),
        (
            "s[0] = 0; __syncthreads();\n  s[0] += 1;\n  __syncthreads(); x[threadIdx.x] = s[0];",
            True,
        ),
    ],
)
def test_lost_updates_are_no_note(body: str, harmful: bool) -> None:
    """All threads read 0 and write the same number, since they run in lockstep."""
    source = f"__global__ void k(int* x) {{\n  __shared__ int s[1];\n  {body}\n}}"
    outcome = gen.emulate(source, block=64, args={"x": "i32[64]:zeros"})
    assert bool(outcome.findings) == harmful
    assert harmful or len(outcome.notes) == 1


@slow
def test_a_pipeline_of_several_warps_ends_in_order() -> None:
    """The last warp that leaves invalidates the mbarriers, behind an atomic that acquires."""
    source = """
#include <cuda/pipeline>
#include <cooperative_groups.h>
__global__ void k(const float* in, float* out, int batches) {
  auto block = cooperative_groups::this_thread_block();
  __shared__ float s[2][64];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  auto pipe = cuda::make_pipeline(block, &state);
  for (int fetch = 0, at = 0; at < batches; ++at) {
    for (; fetch < batches && fetch < at + 2; ++fetch) {
      pipe.producer_acquire();
      cuda::memcpy_async(block, s[fetch % 2], in + fetch * 64, 256, pipe);
      pipe.producer_commit();
    }
    pipe.consumer_wait();
    out[at * 64 + threadIdx.x] = s[at % 2][63 - threadIdx.x];
    pipe.consumer_release();
  }
}
"""
    args = {"in": "f32[320]", "out": "f32[320]:poison", "batches": 5}
    outcome = gen.emulate(source, block=64, args=args)
    assert outcome.ok
    assert (outcome.arrays["out"] == outcome.arrays["in"].reshape(5, 64)[:, ::-1].ravel()).all()
    early = gen.emulate(source.replace("pipe.producer_acquire();", ""), block=64, args=args)
    assert {finding.check for finding in early.findings} == {"racecheck"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("x[0] += __shfl_down(x[0], 8);", "use those that end in _sync"),
        ("if (!threadIdx.x) k<<<1, 32>>>(x);", "kernels that launch kernels are not supported"),
        ("x[0] = tex1Dfetch<int>(0ull, 3);", "tex.*read a buffer by its index.*CUDA line 2"),
        ("typedef int (*F)(int); x[0] = ((F*)x)[2](1);", "call each by its name.*CUDA line 2"),
    ],
)
def test_what_is_refused_says_the_way_out(body: str, said: str) -> None:
    with pytest.raises(GenError, match=f"(?s){said}"):
        gen.emulate(f"__global__ void k(int* x) {{\n  {body}\n}}", block=32, args={"x": "i32[32]"})


def test_a_macro_that_changes_a_header_is_named() -> None:
    source = "#define T 16\n__global__ void k(int* x) { x[threadIdx.x] = T; }"
    with pytest.raises(GenError, match=r"(?s)builtin_header.h.*not yours, but perhaps -D T=16 "):
        gen.emulate(source, args={"x": "i32[1]"}, define=["T=16"])
    with pytest.raises(GenError) as raised:
        gen.emulate(source.replace("= T", "= U"), args={"x": "i32[1]"}, define=["N=16"])
    assert "not yours" not in str(raised.value)
