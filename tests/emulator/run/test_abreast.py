"""Launches that run abreast do what each does alone, and what one does wrong is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gen.emulator import Emulator, LaunchReport
from tests.emulator.emulator_kernels import compile_cuda

# Blocks along z have a row each; rows of whole float4s are read by them.
ROWS = """extern "C" __global__ void rows(int n, float factor, const float* in, float* out) {
  const int row = blockIdx.z * gridDim.y + blockIdx.y;
  const bool wide = reinterpret_cast<size_t>(in) % 16 == 0 && n % 4 == 0;
  if (wide) {
    for (int i = threadIdx.x; i < n / 4; i += blockDim.x) {
      float4 x = reinterpret_cast<const float4*>(in + row * n)[i];
      x.x *= factor, x.y *= factor, x.z *= factor, x.w *= factor;
      reinterpret_cast<float4*>(out + row * n)[i] = x;
    }
    return;
  }
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[row * n + i] = factor * in[row * n + i];
}"""
GRID, BLOCK = (1, 2, 3), (32, 1, 1)
Run = tuple[int, float, int]  # elements of a row, a factor, elements in front of what is read


def launched(
    runs: list[Run], lacking: dict[int, int] | None = None
) -> tuple[LaunchReport, list[np.ndarray], list[np.ndarray]]:
    """What the runs write, and what they should; `lacking`: elements that the output lacks."""
    emulator, rng = Emulator(), np.random.default_rng(1)
    rows = GRID[1] * GRID[2]
    data = [rng.random(skip + rows * n, np.float32) for n, _, skip in runs]
    less = [(lacking or {}).get(at, 0) for at in range(len(runs))]
    outs = [np.zeros(rows * n - few, np.float32) for (n, _, _), few in zip(runs, less, strict=True)]
    a = emulator.alloc_abreast(data, "in", firsts=[4 * skip for _, _, skip in runs])
    d = emulator.alloc_abreast(outs, "out", defined=False)
    args: list[list[Any]] = [
        [np.int32(n), np.float32(x), np.int64(source.address + 4 * skip), out]
        for (n, x, skip), source, out in zip(runs, a, d, strict=True)
    ]
    ptx = compile_cuda(ROWS)
    assert emulator.runs_abreast(ptx, "rows")
    others = [(GRID, further) for further in args[1:]]
    report = emulator.launch(ptx, "rows", GRID, BLOCK, args[0], abreast=others)
    want = [
        (np.float32(x) * source[skip:])[: rows * n - few]
        for (n, x, skip), source, few in zip(runs, data, less, strict=True)
    ]
    return report, [emulator.read(out) for out in d], want


def test_each_launch_has_its_own_arguments() -> None:
    report, got, want = launched([(64, 2, 0), (64, -1, 0), (40, 0.5, 4), (64, 3, 0)])
    assert report.findings == []
    assert all(map(np.array_equal, got, want))


def test_launches_go_different_ways() -> None:
    report, got, want = launched([(64, 2, 0), (64, 2, 1), (37, 5, 0), (0, 1, 0), (3, 7, 2)])
    assert report.findings == []
    assert all(map(np.array_equal, got, want))


def test_as_many_instructions_as_alone() -> None:
    runs: list[Run] = [(64, 2, 0), (37, 5, 1)]
    together = launched(runs)[0].instructions
    assert together == sum(launched([run])[0].instructions for run in runs)


def test_blocks_along_z_store_in_the_same_places() -> None:
    emulator = Emulator(chunk_threads=64)  # a launch alone
    ptx = compile_cuda(
        """extern "C" __global__ void same(int* out) {
          if (threadIdx.x % 3 == 1) out[threadIdx.x] = threadIdx.x;
        }"""
    )
    outs = emulator.alloc_abreast([np.zeros(32, np.int32)] * 3, "out")
    further = [((1, 1, 2), [out]) for out in outs[1:]]
    report = emulator.launch(ptx, "same", (1, 1, 2), BLOCK, [outs[0]], abreast=further)
    assert report.findings == []
    want = [x if x % 3 == 1 else 0 for x in range(32)]
    assert all((emulator.read(out) == want).all() for out in outs)


@pytest.mark.parametrize("lacks", range(3))
@pytest.mark.parametrize("runs", [[(64, 2, 0)] * 3, [(37, 2, 1)] * 3])
def test_one_buffer_that_is_too_short(runs: list[Run], lacks: int) -> None:
    """Though the bytes of the next launch's buffer are right behind it."""
    report, got, want = launched(runs, {lacks: 1})
    (finding,) = report.findings
    assert finding.check == "memcheck"
    assert "out of bounds" in finding.message
    assert finding.block[2] // GRID[2] == lacks
    others = [at for at in range(3) if at != lacks]
    assert all(np.array_equal(got[at], want[at]) for at in others)


def test_what_is_in_front_of_a_buffer() -> None:
    """A launch that reads the element before its own."""
    emulator, ptx = Emulator(), compile_cuda(ROWS)
    data = [np.ones(65, np.float32)] * 2
    a = emulator.alloc_abreast(data, "in", firsts=[4, 4])
    d = emulator.alloc_abreast([np.zeros(64, np.float32)] * 2, "out")
    args = [
        [np.int32(60), np.float32(1), np.int64(source.address + 4 * skip), out]
        for source, skip, out in zip(a, (1, 0), d, strict=True)
    ]
    grid = (1, 1, 1)
    report = emulator.launch(ptx, "rows", grid, BLOCK, args[0], abreast=[(grid, args[1])])
    (finding,) = report.findings
    assert "out of bounds" in finding.message
    assert finding.block == (0, 0, 1)


def test_kernels_whose_blocks_wait_for_each_other() -> None:
    source = """extern "C" __global__ void turn(volatile int* flag) {
      if (threadIdx.x == 0) {
        while (*flag != blockIdx.x) {}
        *flag = blockIdx.x + 1;
      }
    }"""
    assert not Emulator().runs_abreast(compile_cuda(source), "turn")


def test_each_launch_has_its_own_grid() -> None:
    """Each block of each launch runs once, with its own number and the sizes of its own grid."""
    source = """extern "C" __global__ void count(int* out) {
      const int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
      const int blocks = gridDim.x * gridDim.y * gridDim.z;
      __syncthreads();
      atomicAdd(out + block, 1000 * blocks + block + (threadIdx.x == 0));
    }"""
    emulator, ptx = Emulator(), compile_cuda(source)
    grids = [(2, 1, 3), (1, 4, 1), (0, 1, 1), (3, 2, 2), (1, 1, 1)]
    sizes = [int(np.prod(grid)) for grid in grids]
    outs = emulator.alloc_abreast([np.zeros(size, np.int32) for size in sizes], "out")
    others = [(grid, [out]) for grid, out in zip(grids[1:], outs[1:], strict=True)]
    report = emulator.launch(ptx, "count", grids[0], BLOCK, [outs[0]], abreast=others)
    assert report.findings == []
    for out, size in zip(outs, sizes, strict=True):
        want = BLOCK[0] * (1000 * size + np.arange(size)) + 1
        assert np.array_equal(emulator.read(out), want)
    alone = []
    for grid, out in zip(grids, outs, strict=True):
        alone.append(emulator.launch(ptx, "count", grid, BLOCK, [out]).instructions)
    assert report.instructions == sum(alone)
