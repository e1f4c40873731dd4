"""Mistakes that textbook kernels are known for, planted into ours: verification finds each.

Every test plants the mistake into the emitted source, then expects the verdict to name it; the
kernels without the mistakes are proven right in test_verify.py, by the same procedure.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from gen.compile.nvrtc import compile_cuda
from gen.device.emulated import EmulatorRunner
from gen.kernels.registry import make_spec
from gen.kernels.variant import Geometry
from gen.prove import compare, verify
from gen.source.render import Source, render
from gen.spec.dtypes import DTypes
from gen.spec.kernel import KernelSpec
from gen.spec.problem import parse_shape
from tests.support.slow import slow


def verdict(spec: KernelSpec, source: Source | None, *shapes: str) -> str:
    """What verification says first; empty where it is content."""
    runner = EmulatorRunner(["race"])
    results = verify.verify(spec, runner, [parse_shape(s) for s in shapes], source)
    return next((r.message for r in results if not r.ok), "")


def plant(spec: KernelSpec, *edits: tuple[str, str]) -> Source:
    """The emitted file with pieces of its text replaced."""
    source = render(spec)
    text = source.text
    for old, new in edits:
        assert text.count(old) == 1, f"{text.count(old)} times in the file: {old}"
        text = text.replace(old, new)
    return dataclasses.replace(source, text=text)


def line_of(source: Source, piece: str) -> int:
    """The number of the one line that has `piece`."""
    (number,) = [i for i, line in enumerate(source.text.splitlines(), 1) if piece in line]
    return number


def test_a_third_tile_written_past_the_allocation() -> None:
    """The third tile starts one row late, so that its last row lies behind the shared memory."""
    spec = make_spec("rec_tiles", tile=16, coarsen=2)
    source = plant(
        spec,
        ("tile_b[y][j * kTile + x] =", "tile_b[0][(j * kTile + y + j) * kTile + x] ="),
        ("tile_b[k][j * kTile + x]", "tile_b[0][(j * kTile + k + j) * kTile + x]"),
    )
    message = verdict(spec, source, "16x32x16")
    assert "3072" in message  # bytes of shared memory: three tiles of 16 x 16 floats
    assert f"line {line_of(source, 'tile_b[0][(j * kTile + y')}" in message


def test_an_odd_number_of_column_tiles() -> None:
    """Half the number of tiles, rounded down, loses the last tile."""
    spec = make_spec("rec_tiles", tile=8, coarsen=2)
    spec = _launch_with(spec, grid_x="N / 8 / 2")
    assert verdict(spec, None, "8x32x8") == ""
    assert "D[0, 16] is nan" in verdict(spec, None, "8x24x8")


def test_a_grid_that_drops_the_rest() -> None:
    """Sizes that are no multiple of the block need one block more than the quotient."""
    spec = make_spec("naive", threads=64)
    spec = _launch_with(spec, grid_x="N / 8", grid_y="M / 8")
    assert verdict(spec, None, "16x16x4") == ""
    assert "D[0, 16] is nan" in verdict(spec, None, "16x17x4")


def _launch_with(spec: KernelSpec, **wrong: str) -> KernelSpec:
    """The kernel with other expressions for some facts of its launch."""

    def geometry(values: Mapping[str, Any], dtypes: DTypes) -> Geometry:
        right = spec.row.geometry(values, dtypes)
        assert set(wrong) <= {fact.name for fact in right.facts}
        facts = tuple(fact._replace(text=wrong.get(fact.name, fact.text)) for fact in right.facts)
        return right._replace(facts=facts)

    return dataclasses.replace(spec, row=dataclasses.replace(spec.row, geometry=geometry))


def test_threads_outside_of_d_that_leave_before_the_barrier() -> None:
    spec = make_spec("tiles", tile=8)
    source = plant(
        spec,
        (
            "    accumulator_t sum[kRowsPerThread] = {};\n",
            "    accumulator_t sum[kRowsPerThread] = {};\n"
            "    if (row0 + threadIdx.y >= M || col >= N) return;\n",
        ),
    )
    assert verdict(spec, source, "8x8x8") == ""
    message = verdict(spec, source, "8x5x8")
    assert "40 of 64 threads" in message
    assert f"line {line_of(source, 'both tiles are complete')}" in message


def test_a_barrier_inside_the_bounds_check() -> None:
    spec = make_spec("tiles", tile=8)
    source = plant(
        spec,
        (
            "      __syncthreads();  // both",
            "      if (row0 + threadIdx.y < M) __syncthreads();  // both",
        ),
    )
    message = verdict(spec, source, "5x8x8")
    assert "40 of 64 threads" in message
    assert f"line {line_of(source, 'both tiles are complete')}" in message


def test_the_second_barrier_outside_of_the_loop() -> None:
    """A fast thread overwrites a tile that a slow one still reads."""
    spec = make_spec("tiles", tile=8)
    second = (
        "      __syncthreads();  // no thread reads these tiles any more: "
        "the next ones may replace them\n"
    )
    source = plant(spec, (second + "    }\n", "    }\n" + second))
    assert verdict(spec, source, "8x8x8") == ""
    message = verdict(spec, source, "8x8x16")
    assert "race" in message
    assert f"line {line_of(source, 'sum[i] +=')}" in message


@slow
def test_an_operand_that_is_cleared_while_other_blocks_read_it() -> None:
    """Every block clears the first element of its rows of A, which others are still to copy."""
    spec = make_spec("mma", threadblock="64x64x32", warp="32x32", stages=3)
    last = "  store(tile, out, reinterpret_cast<Staging*>(shared)[warp], row, col, lane);\n"
    clear = "  if (threadIdx.x == 0) const_cast<input_t*>(A)[index_t(row0) * lda] = 0;\n"
    source = plant(spec, (last, last + clear))
    assert verdict(spec, source, "64x64x32") == ""
    message = verdict(spec, source, "64x65x32")
    assert f"line {line_of(source, clear.strip())}" in message
    assert "races with the cp.async at line" in message


@pytest.mark.slow
def test_dividing_by_the_rows_instead_of_the_columns() -> None:
    spec = make_spec("thread_1d", threads=64)
    source = plant(
        spec,
        ("const index_t row = id / N;", "const index_t row = id / M;"),
        ("const index_t col = id % N;", "const index_t col = id % M;"),
    )
    assert verdict(spec, source, "8x8x8") == ""
    assert verdict(spec, source, "8x9x8") != ""


@pytest.mark.parametrize("matrix", ["a", "b"])
def test_loads_without_bounds(matrix: str) -> None:
    spec = make_spec("tiles", tile=8)
    condition = {"a": "row < M && k0 + x < K", "b": "k0 + y < K && col < N"}[matrix]
    source = plant(
        spec, (f"const bool in_{matrix} = {condition}", f"const bool in_{matrix} = true")
    )
    assert verdict(spec, source, "8x8x8") == ""
    message = verdict(spec, source, "9x9x9")
    assert f"line {line_of(source, f'in_{matrix} ?')}" in message


def test_products_in_32_bits() -> None:
    """Row 1 of A lies more than 2^31 elements behind row 0."""
    spec = make_spec("naive", dtype="i8", threads=4)
    source = plant(spec, ("  return row * lda + k;", "  return int(row) * int(lda) + int(k);"))
    a, b = np.array([[1, 2, 3], [4, 5, 6]], np.int8), np.array([[1], [-2], [4]], np.int8)
    findings, d = _rows_far_apart(spec, render(spec), a, b)
    assert findings == []
    np.testing.assert_array_equal(d, a.astype(np.int32) @ b)
    findings, d = _rows_far_apart(spec, source, a, b)
    assert "memcheck" in str(findings[0])


def _rows_far_apart(
    spec: KernelSpec, source: Source, a: np.ndarray, b: np.ndarray
) -> tuple[list[object], np.ndarray]:
    """A (2 x 3) times B (3 x 1), where the rows of A are two allocations: findings and D."""
    runner, i64, i32 = EmulatorRunner(), np.int64, np.int32
    rows = [runner.upload(row, f"row {i} of A") for i, row in enumerate(a)]
    lda = rows[1].address - rows[0].address
    assert lda > 2**31
    pb, pd = runner.upload(b, "B"), runner.upload(np.zeros((2, 1), i32), "D")
    sizes, alpha, beta = [i64(2), i64(1), i64(3)], i32(1), i32(0)
    args = [*sizes, alpha, rows[0], i64(lda), pb, i64(1), beta, pd, i64(1), pd, i64(1)]
    module = compile_cuda(source.text, name=source.filename)
    findings = runner.launch(module, spec.name, (1, 1, 1), (2, 2, 1), args)
    return list(findings), runner.download(pd)


def test_nan_does_not_pass_a_comparison() -> None:
    """`abs(difference) >= epsilon` is false for NaN, so that it would count as no error."""
    exact = np.ones((2, 2))
    got = np.array([[1.0, np.nan], [1.0, 1.0]])
    worst, message = compare._within(got, exact, np.full((2, 2), 1e300))
    assert worst == np.inf
    assert message.startswith("D[0, 1] is nan")
    assert compare._within(exact, exact, np.zeros((2, 2))) == (0.0, "")
