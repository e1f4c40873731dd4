"""Index arithmetic beyond 32 bits, tried without the memory that it addresses.

Two problems that are too large to store: rows (or columns) more than 2^32 elements apart, with so
few blocks that they have to stride; and a D of more than 2^32 columns, of which only the last
blocks are run. The emulator maps the elements that matter and nothing between them, so that an
index that wraps around is a wild access.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gen import numerics, reference
from gen.emulator import Emulator, Finding, LineArray
from gen.errors import SpecError
from gen.inputs import kernel_arguments
from gen.nvrtc import Module
from gen.registry import LaunchConfig, geometry, launch_config
from gen.spec import GemmProblem, GemmShape, KernelSpec

# Elements between two lines, and columns of D. More than 2^32, so that neither int nor unsigned
# holds it; twice as many are negative as an int; odd, so that no power of two hides a mistake.
_FAR = 2**32 + 2**30 + 11
_ALPHA, _BETA = 2, -1


class FarResult(NamedTuple):
    """One of the two problems: its shape, what the emulator found, and what is wrong with D."""

    shape: GemmShape
    findings: Sequence[Finding]
    message: str


class _Part(NamedTuple):
    """What is mapped of a matrix: `values` from (0, `column`) on."""

    values: np.ndarray
    row_major: bool
    column: int
    ld: int

    def map(self, emulator: Emulator, name: str) -> LineArray:
        """Rows, or columns, of the part at their places in a matrix that is mostly not there."""
        lines = self.values if self.row_major else self.values.T
        first = self.column if self.row_major else self.column * self.ld
        size = self.values.itemsize
        return emulator.alloc_lines(lines, self.ld * size, name, skip=first * size)


def far_results(spec: KernelSpec, module: Module) -> Iterator[FarResult]:
    """Runs the kernel on both problems, where its grid lets it.

    A kernel whose threads stride over all columns of D cannot be run on the last ones alone. Raises
    BudgetError for a kernel that does not end.
    """
    tile = spec.threadblock
    shape = GemmShape(3 * tile.m + 1, tile.n + 1, tile.k + 1)
    yield _run(spec, module, shape, _few_blocks(spec, shape), 0, far_lines=True)
    wide = GemmShape(tile.m + 1, _FAR, 3)
    try:
        config = launch_config(spec, wide)
    except SpecError:  # more blocks than a grid can have
        return
    if config and config.grid[0] * tile.n >= wide.n:
        yield _run(spec, module, wide, config, wide.n - 2 * tile.n, far_lines=False)


def _few_blocks(spec: KernelSpec, shape: GemmShape) -> LaunchConfig:
    """At most two blocks along the axes where they stride, as if D had more than a grid covers."""
    config = launch_config(spec, shape)
    assert config is not None
    strides = geometry(spec).strides
    x, y, z = (
        min(n, 2) if axis in strides else n for n, axis in zip(config.grid, "xyz", strict=True)
    )
    return config._replace(grid=(x, y, z))


def _run(
    spec: KernelSpec,
    module: Module,
    shape: GemmShape,
    config: LaunchConfig,
    column: int,
    far_lines: bool,
) -> FarResult:
    """Columns of B, C and D exist from `column` on; the last blocks along x run."""
    layouts, types = spec.layouts, spec.dtypes
    rng = np.random.default_rng(0)
    width = shape.n - column
    x, y, z = config.grid
    last = 1 if column else x
    threads = last * y * z * math.prod(config.block)
    # Some thirty times what any kernel of this kind should need.
    budget = 50_000 * threads + 1000 * shape.m * width * shape.k
    emulator = Emulator(instruction_budget=budget)

    def part(rows: int, columns: int, name: str, row_major: bool, first: int, extra: int) -> _Part:
        stored = numerics.from_integers(rng.integers(-3, 4, (rows, columns)), name)
        length = first + columns if row_major else rows
        return _Part(stored, row_major, first, _FAR + extra if far_lines else length)

    input_, output = types.input.name, types.output.name
    a = part(shape.m, shape.k, input_, layouts.a, 0, 0)
    b = part(shape.k, width, input_, layouts.b, column, 2)
    c = part(shape.m, width, output, layouts.c, column, 4)
    d = part(shape.m, width, output, layouts.c, column, 6)
    d = d._replace(values=np.full_like(d.values, numerics.poison(output)))
    mapped = [p.map(emulator, n) for p, n in zip((a, b, c, d), "ABCD", strict=True)]
    problem = GemmProblem(shape, a.ld, b.ld, c.ld, d.ld, _ALPHA, _BETA)
    report = emulator.launch(
        module.code.decode(),
        spec.name,
        config.grid,
        config.block,
        kernel_arguments(problem, types, mapped),
        config.shared_bytes,
        source_lines=module.text.splitlines(),
        window=((x - last, 0, 0), (last, y, z)),
    )
    lines = emulator.read_lines(mapped[3])
    got = lines if layouts.c else lines.T
    want = reference.oracle(a.values, b.values, c.values, _ALPHA, _BETA, types.name)
    if types.output.is_float:
        want = numerics.from_float64(want, output)
    return FarResult(shape, report.findings, _difference(got, want, d.values, column, output))


def _difference(
    got: np.ndarray, want: np.ndarray, before: np.ndarray, column: int, dtype: str
) -> str:
    """What is wrong with D: an element that is neither right nor as before, or none written."""
    bits = f"u{got.itemsize}"
    same, untouched = (
        np.ascontiguousarray(got).view(bits) == np.ascontiguousarray(other).view(bits)
        for other in (want, before)
    )
    wrong = ~(same | untouched) if column else ~same
    wrong[-1, -1] |= not same[-1, -1]  # whichever blocks have run, it was theirs
    if not wrong.any():
        return ""
    i, j = (int(v) for v in np.argwhere(wrong)[0])
    values = (float(numerics.to_float64(m[i, j], dtype)) for m in (got, want))
    left, right = (f"{value:.9g}" for value in values)
    return f"D({i}, {j + column}) is {left}, exact is {right}"
