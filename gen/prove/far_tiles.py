"""The last tiles of a D too large to store, by kernels that pack operands and sum slices of K.

Rows, or columns, of D are so many that elements of D, of packed operands and of partial sums lie
more than 2^32 elements behind the first. All of it is mapped, and takes room only where something
is written: the operands of the last two tiles, and what kernels make of them. Of each launch, only
the blocks run that this takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gen.compile.nvrtc import Module
from gen.device.emulated import EmulatorRunner
from gen.device.execute import Place, alignment, arguments
from gen.kernels.formulas import ceil_div
from gen.kernels.launches import BIAS, WORKSPACE, Launch
from gen.kernels.tensor_cores.plan import STEPS_A_SLICE
from gen.prove.far_indices import FarResult
from gen.prove.inputs import draw_operands
from gen.prove.verify import against_oracle
from gen.spec import numerics
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmProblem, GemmShape

if TYPE_CHECKING:
    from gen.emulator import Finding

_LINES = 2**27 + 40  # rows, or columns, of D: times 64 elements, these are more than 2^32
_SHORT = 24  # of the other ones: less than a tile has
_BUDGET = 10**9


def far_tiles(spec: KernelSpec, module: Module) -> Iterator[FarResult]:
    """Runs the last tiles of D along M, then along N, with operands in place and packed.

    Raises MissingError where this machine does not map so much memory.
    """
    tile = spec.threadblock
    steps = 2 * STEPS_A_SLICE if spec.split_k == 0 else 2  # two slices at least
    k = steps * tile.k + 8
    for shape in (GemmShape(_LINES, _SHORT, k), GemmShape(_SHORT, _LINES, k)):
        for skip in (0, 1):
            if result := _run(spec, module, shape, skip):
                yield result


class _Sparse(NamedTuple):
    """A matrix of zeros that nobody has touched, and its elements as rows and columns."""

    place: Place
    elements: np.ndarray
    storage: np.ndarray


def _matrix(
    runner: EmulatorRunner, name: str, rows: int, columns: int, row_major: bool, ld: int, skip: int,
    dtype: str,
) -> _Sparse:  # fmt: skip
    count, length = (rows, columns) if row_major else (columns, rows)
    kind = numerics.storage_dtype(dtype)
    nbytes = (skip + (count - 1) * ld + length) * kind.itemsize
    buffer = runner.upload_zeros(nbytes, name)
    flat = buffer.buffer.view(kind)
    strides = (ld * kind.itemsize, kind.itemsize)
    lines = np.lib.stride_tricks.as_strided(flat[skip:], (count, length), strides)
    place = Place(buffer, skip * kind.itemsize)
    return _Sparse(place, lines if row_major else lines.T, flat)


def _run(spec: KernelSpec, module: Module, shape: GemmShape, skip: int) -> FarResult | None:
    """The last two tiles along the longer side; None where packing alone would take minutes."""
    layouts, types, tile = spec.layouts, spec.dtypes, spec.threadblock
    down = shape.m > shape.n  # along M
    size = (tile.m if down == layouts.c else tile.n) if spec.row.transposes else tile.m
    tiles = ceil_div(_LINES, size)
    first = (tiles - 2) * size
    problem = GemmProblem.packed(shape, layouts, 2, -1, 16, 16)
    part = GemmShape(
        _LINES - first if down else shape.m, shape.n if down else _LINES - first, shape.k
    )
    small = GemmProblem.packed(part, layouts, 2, -1)
    given = draw_operands(spec, small, "integer")
    runner = EmulatorRunner(multiprocessors=2 * tiles)
    runner.budget = _BUDGET
    input_, output = types.input.name, types.output.name
    sizes = {
        "A": (shape.m, shape.k, layouts.a, problem.lda, skip, input_),
        "B": (shape.k, shape.n, layouts.b, problem.ldb, skip, input_),
        "C": (shape.m, shape.n, layouts.c, problem.ldc, 0, output),
        "D": (shape.m, shape.n, layouts.c, problem.ldd, 0, output),
        BIAS: (1, shape.n, True, shape.n, 0, output),
    }
    matrices = {name: _matrix(runner, name, *size) for name, size in sizes.items()}
    rows, columns = (slice(first, None) if at else slice(None) for at in (down, not down))
    matrices["A"].elements[rows] = given.a
    matrices["B"].elements[:, columns] = given.b
    matrices["C"].elements[rows, columns] = given.c
    matrices["D"].elements[rows, columns] = numerics.poison(output)
    if given.bias is not None:
        matrices[BIAS].elements[0, columns] = given.bias
    places = {name: matrix.place for name, matrix in matrices.items()}
    steps = spec.plan(problem, alignment(places), runner.multiprocessors)
    if any(_long_lines(launch) for launch in steps.launches):
        return None
    places[WORKSPACE] = Place(runner.upload_zeros(max(steps.workspace_bytes, 1), WORKSPACE))
    found: list[Finding] = []
    for launch in steps.launches:
        for window in _windows(spec, launch, tiles, size):
            runner.window = window
            args = arguments(launch.args, places, runner)
            found += runner.launch(
                module, launch.kernel, launch.grid, launch.block, args, launch.shared_bytes
            )
    got = np.ascontiguousarray(matrices["D"].elements[rows, columns])
    _, message = against_oracle(spec, small, given, got, "integer")
    return FarResult(shape, found, message and f"in the last two tiles, {message}")


def _long_lines(launch: Launch) -> bool:
    """Whether a launch packs lines that are too long for a CPU."""
    return any(launch.args.get(f"{x}_length", 0) > 2**20 for x in "ab")


def _windows(spec: KernelSpec, launch: Launch, tiles: int, size: int) -> Iterator[Any]:
    """The first block and the number of blocks along each axis, of those that the tiles take."""
    x, y, z = launch.grid
    starts: Sequence[int]
    if launch.kernel == spec.name:
        # A persistent kernel's blocks have one tile of one slice each, slice by slice.
        starts = range(tiles - 2, x, tiles)
        blocks = 2
    elif "partials" in launch.args:
        blocks = 2 * x // tiles
        starts = range(x - blocks, x, blocks)
    else:
        # A block packs 8 lines, or 32: those of both operands, of which one has few.
        blocks = min(2 * size // 8 + 2, x)
        starts = range(1) if x <= blocks else (0, max(ceil_div(_LINES, 32) - blocks, 0), x - blocks)
    for start in starts:
        yield (start, 0, 0), (min(blocks, x - start), y, z)
