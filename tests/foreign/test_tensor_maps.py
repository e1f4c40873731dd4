"""Tensor maps as arguments of kernels that gen did not emit."""

from __future__ import annotations

import re

import pytest

import gen
from gen.errors import CompileError, UsageError
from gen.foreign.running import Outcome
from tests.support.slow import slow

SOURCE = """
#include <cuda.h>
#include <cuda/barrier>
namespace cde = cuda::device::experimental;
__global__ void k(PARAMETER, T* out, int row, int column) {
  __shared__ alignas(1024) T tile[ROWS * COLUMNS];
  __shared__ cuda::barrier<cuda::thread_scope_block> bar;
  if (threadIdx.x == 0) { init(&bar, 32); cde::fence_proxy_async_shared_cta(); }
  __syncthreads();
  cuda::barrier<cuda::thread_scope_block>::arrival_token token;
  if (threadIdx.x == 0) {
    cde::cp_async_bulk_tensor_2d_global_to_shared(tile, MAP, column, row, bar);
    token = cuda::device::barrier_arrive_tx(bar, 1, sizeof(tile));
  } else {
    token = bar.arrive();
  }
  bar.wait(std::move(token));
  for (int i = threadIdx.x; i < ROWS * COLUMNS; i += 32) out[i] = tile[i];
}
"""


def run(
    text: str, rows: int = 2, columns: int = 8, kind: str = "int", pointer: bool = False,
    row: int = 1, arch: str = "sm_90",
) -> Outcome:  # fmt: skip
    parameter = "const CUtensorMap* map" if pointer else "const __grid_constant__ CUtensorMap map"
    words = {"PARAMETER": parameter, "MAP": "map" if pointer else "&map", "T": kind}
    source = SOURCE.replace("ROWS", str(rows)).replace("COLUMNS", str(columns))
    for word, text_of in words.items():
        source = re.sub(rf"\b{word}\b", text_of, source)
    args = {"out": f"[{rows * columns}]:zeros", "row": row, "column": 4}
    args |= {"map": text} if text else {}
    return gen.emulate(source, None, 1, 32, args, arch=arch)


@pytest.mark.slow  # headers of the standard library take seconds to compile
@pytest.mark.parametrize("pointer", [False, True])
def test_a_box_of_a_tensor(pointer: bool) -> None:
    outcome = run("tensormap(i32[4,16]:iota, box=2x8)", pointer=pointer)
    assert outcome.ok, outcome.findings
    assert outcome.arrays["out"].tolist() == [*range(20, 28), *range(36, 44)]
    assert outcome.types["map"] == "i32"


@pytest.mark.slow
def test_what_is_outside_of_the_tensor_is_zero() -> None:
    outcome = run("tensormap(i32[2,16]:iota, box=2x8)")
    assert outcome.arrays["out"].tolist() == [*range(20, 28), *[0] * 8]


@slow
def test_a_swizzled_box() -> None:
    plain, swizzled = (
        run(f"tensormap(f32[16,64]:iota, box=8x32{more})", 8, 32, "float").arrays["out"]
        for more in ("", ", swizzle=128B")
    )
    assert (swizzled[:32] == plain[:32]).all()
    chunks = swizzled[32:64].reshape(8, 4)[[1, 0, 3, 2, 5, 4, 7, 6]]  # of 16 bytes, in row 1
    assert (chunks.reshape(-1) == plain[32:64]).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--arg lacks map; map is a tensor map, such as --arg 'map=tensormap"),
        ("i32[4,16]", "CUtensorMap map is a tensor map; give a buffer and the box"),
        ("tensormap(i32[4,16])", "is not a buffer with the box that a copy moves"),
        ("tensormap(i32[4,16],box=8)", "box=8 has 1 sizes, but map has 2 dimensions"),
        ("tensormap(none,box=2x8)", "'none' is neither a buffer"),
        ("tensormap(i32[4,16],box=2x8,swizle=3)", "did you mean swizzle"),
        ("tensormap(i32[4,16],box=2x8,swizzle=5)", "the swizzle is 0, 32, 64 or 128 bytes"),
        ("tensormap(i32[4,15],box=2x8)", "a stride is a multiple of 16 bytes"),
    ],
)
def test_bad_maps(text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        run(text)
    assert message.replace("--arg", "args") in str(error.value)


@slow
def test_the_architecture_that_they_need() -> None:
    with pytest.raises(CompileError, match="need --arch sm_90 or newer"):
        run("tensormap(i32[4,16],box=2x8)", arch="sm_80")
