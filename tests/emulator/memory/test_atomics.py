"""Atomic operations: every lane counts once, even where address and value are uniform."""

from __future__ import annotations

import numpy as np
import pytest

from gen.emulator import Emulator
from tests.emulator.emulator_kernels import compile_cuda


def run(body: str, cells: np.ndarray, blocks: int = 3, threads: int = 64) -> tuple[list, list]:
    """Run a kernel on `cells`; the cells and what each thread stored in `out`."""
    kind = {"i": "int", "u": "unsigned", "f": "float"}[cells.dtype.kind]
    source = f'extern "C" __global__ void kernel({kind}* cell, {kind}* out) {{\n'
    source += f"int x = threadIdx.x, t = blockIdx.x * blockDim.x + x;\n{body}\n}}"
    emulator = Emulator()
    a, out = emulator.alloc(cells), emulator.alloc(np.zeros(blocks * threads, cells.dtype))
    report = emulator.launch(
        compile_cuda(source), "kernel", (blocks, 1, 1), (threads, 1, 1), [a, out]
    )
    assert report.findings == []
    return emulator.read(a).tolist(), emulator.read(out).tolist()


def test_a_counter_gives_every_thread_its_own_value() -> None:
    cells, out = run("out[t] = atomicAdd(cell, 1);", np.array([5], np.int32))
    assert cells == [5 + 192]
    assert sorted(out) == list(range(5, 197))


def test_results_that_are_not_used() -> None:
    assert run("atomicAdd(cell + x % 2, 0.5f);", np.zeros(2, np.float32))[0] == [48.0, 48.0]
    assert run("if (x < 10) atomicAdd(cell, 1);", np.zeros(1, np.int32))[0] == [30]
    sink = 'asm volatile("atom.global.add.s32 _, [%0], 1;" ::"l"(cell) : "memory");'
    assert run(sink, np.zeros(1, np.int32))[0] == [192]


def test_lanes_of_a_branch_reserve_places_together() -> None:
    """Whoever asks which lanes are there waits for none of those at the barrier behind."""
    body = """
  if (x % 3 == 0) {
    const unsigned lanes = __activemask(), below = lanes & ((1u << x % 32) - 1);
    int base = 0;
    if (below == 0) base = atomicAdd(cell, __popc(lanes));
    out[t] = __shfl_sync(lanes, base, __ffs(lanes) - 1) + __popc(below) + 1;
  }
  __syncwarp();
"""
    cells, out = run(body, np.zeros(1, np.int32))
    assert cells == [66]
    assert sorted(filter(None, out)) == list(range(1, 67))


@pytest.mark.parametrize(
    ("body", "start", "end"),
    [
        ("atomicMax(cell, t * 7 % 100);", -5, 99),
        ("atomicMin(cell, t - 50);", 3, -50),
        ("atomicOr(cell, 1 << x % 8);", 0, 255),
        ("atomicAnd(cell, ~(1 << x % 8));", -1, -256),
        ("atomicXor(cell, x);", 7, 7),
        ("if (t == 9) atomicExch(cell, 77);", 3, 77),
    ],
)
def test_rules(body: str, start: int, end: int) -> None:
    assert run(body, np.array([start], np.int32))[0] == [end]


def test_compare_and_swap_succeeds_once() -> None:
    cells, out = run("out[t] = atomicCAS(cell, 0, t + 1);", np.zeros(1, np.int32))
    assert out.count(0) == 1
    assert cells == [out.index(0) + 1]
    assert set(out) == {0, cells[0]}


def test_counters_wrap_at_their_limit() -> None:
    assert run("atomicInc(cell, 9u);", np.array([0], np.uint32))[0] == [192 % 10]
    assert run("atomicDec(cell, 9u);", np.array([0], np.uint32))[0] == [(-192) % 10]


def test_shared_memory_is_separate_for_each_block() -> None:
    body = """
  __shared__ int total;
  if (x == 0) total = 0;
  __syncthreads();
  atomicAdd(&total, x + blockIdx.x);
  __syncthreads();
  out[t] = total;
"""
    _, out = run(body, np.zeros(1, np.int32))
    assert out == [2016 + 64 * (t // 64) for t in range(192)]


def test_out_of_bounds() -> None:
    source = (
        'extern "C" __global__ void kernel(int* cell) {\n  atomicAdd(cell + threadIdx.x, 1);\n}'
    )
    emulator = Emulator()
    cell = emulator.alloc(np.zeros(3, np.int32), "cell")
    report = emulator.launch(compile_cuda(source), "kernel", (1, 1, 1), (5, 1, 1), [cell])
    (finding,) = report.findings
    assert (finding.address, finding.file_line) == ("cell+12 of 12", 2)
    assert emulator.read(cell).tolist() == [1, 1, 1]
