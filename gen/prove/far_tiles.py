"""The last rows, or columns, of a D too large to store.

On tensor cores there are so many that elements of D, of packed operands and of partial sums lie
more than 2^32 elements behind the first; on CUDA cores there are more than 2^32 rows, of which the
first ones are tried, too: there, as many are left. (As many columns are tried by `far_indices`.)
All of it is mapped, and takes room only where something is written: the operands of the last two
tiles, and what kernels make of them. Of each launch, only the blocks run that this takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gen.compile.nvrtc import Module
from gen.device.emulated import EmulatorRunner
from gen.device.execute import Place, alignment, arguments, ends_of, products
from gen.emulator import Observer
from gen.errors import SpecError
from gen.kernels.formulas import ceil_div
from gen.kernels.launches import BIAS, OFFSETS, WORKSPACE, Launch
from gen.kernels.tensor_cores.facts import STEPS_A_SLICE
from gen.prove.compare import against_oracle
from gen.prove.far_indices import SECONDS, FarResult, far_operands
from gen.prove.far_windows import row_windows, tile_windows
from gen.prove.fused import Within
from gen.prove.inputs import draw_operands
from gen.spec import numerics
from gen.spec.arch import MAX_GRID_X, UNIT
from gen.spec.epilogue import MATRIX
from gen.spec.kernel import KernelSpec
from gen.spec.problem import Batch, GemmProblem, GemmShape

if TYPE_CHECKING:
    from gen.emulator import Finding

_LINES = 2**27 + 40  # rows, or columns, of D: times 64 elements, these are more than 2^32
_MANY = 2**30 + 40  # lines to pack
_WRAP = 2**32  # work tiles of a group of lines of tiles, which 32 bits count as none
_SHORT = 24  # of the other ones, and no more than a tile has
_ROWS = 2**32 + 40  # on CUDA cores
_TILES = 2**32 + 48  # and of their tiles, in whole units of 16 bytes
_LEFT = 2**32 + 1  # of which 32 bits keep less than a tile has
_NEGATIVE = 2**31 + 2 * UNIT  # and of these, as an int, a number below zero
_FAR = 2**32 + 2**12  # elements between matrices B
_FIRST = 2**16  # lines, which a grid's blocks have together in their first round, or more
_LAST = 40  # of these, what is computed; of groups along K, what the first one has
_BUDGET = 10**9


def far_tiles(
    spec: KernelSpec,
    module: Module,
    deadline: float | None = None,
    observers: Sequence[Observer] = (),
) -> Iterator[FarResult]:
    """Runs the last tiles of D along M, then along N, with operands in place and packed.

    On CUDA cores, the last and the first rows of what the kernel computes. deadline: see
    far_results. Raises MissingError where this machine does not map so much memory.
    """
    tile, layouts = spec.threadblock, spec.layouts
    if not spec.row.takes_workspace:
        for shape, at_end in _problems(spec):
            if result := _run(spec, module, shape, (0, 0), deadline, observers, at_end):
                yield result
        return
    steps = 2 * STEPS_A_SLICE if spec.split_k == 0 else 2  # two slices at least
    k = steps * tile.k + 8
    short = min(_SHORT, *tile[:2])
    rows, columns = (_lines(spec, across) for across in (tile.n, tile.m))
    for shape in (GemmShape(rows, short, k), GemmShape(short, columns, k)):
        for skips in ((0, 0), (1, 1), (0, 1)):
            if result := _run(spec, module, shape, skips, deadline, observers):
                yield result
                if skips == (1, 1):
                    break  # where packing takes too long, C and D alone are not aligned
    if spec.packs:  # blocks pack so many lines that the next one is behind 2^31
        for shape in (GemmShape(_MANY, short, UNIT), GemmShape(short, _MANY, UNIT)):
            if result := _run(spec, module, shape, (1, 1), deadline, observers):
                yield result
    wide = ceil_div(_WRAP, spec.tunables["swizzle"]) * tile.n
    if wide <= spec.row.most:
        across = spec.row.transposes and not layouts.c
        shape = GemmShape(wide, short, UNIT) if across else GemmShape(short, wide, UNIT)
        if result := _run(spec, module, shape, (0, 0), deadline, observers):
            yield result
    if spec.grouped:
        shape = GemmShape(rows, short, k)
        if result := _run(spec, module, shape, (0, 0), deadline, observers, one_group=True):
            yield result


def _lines(spec: KernelSpec, across: int) -> int:
    """Rows, or columns, of D, whose tiles are so long the other way.

    Of partial sums, which fill tiles, more than 2^31 times four: a thread adds up so many.
    """
    return max(_LINES, 2**33 // across + _LAST) if spec.split_k != 1 else _LINES


def _problems(spec: KernelSpec) -> Iterator[tuple[GemmShape, bool]]:
    """On CUDA cores: the shapes, and whether the last lines are computed, or the first.

    No tile is beside another. Kernels whose tiles have few rows, or columns, number them beyond 32
    bits, along both axes; they read several elements at once where lines are whole units of 16.
    """
    (m, n, _), few = spec.threadblock, "few" in spec.tunables
    below, beside = (n, m) if spec.swapped else (m, n)
    rows = max(_ROWS, (2**31 + _LAST) * below) if "x" in spec.geometry.strides else _ROWS
    if few:
        rows = _TILES * below
    shape, short = GemmShape(rows, min(beside, 3), 2), "n" if spec.swapped else "m"
    if spec.swapped:
        shape = GemmShape(shape.n, shape.m, 2)
    yield shape, True
    yield replace(shape, **{short: _LEFT}), False
    yield replace(shape, **{short: _NEGATIVE}), False
    if few:
        yield GemmShape(min(m, 3), _NEGATIVE, UNIT), False
        yield GemmShape(min(m, 3), _TILES * n, 2), True
        yield GemmShape(m, _TILES * n, UNIT), True
        yield GemmShape(_TILES * m, n, UNIT), True


class _EnoughError(Exception):
    """The first lines are computed; the blocks would stride over billions of others."""


class _FirstRound(Observer):
    """Ends a launch as soon as its blocks store lines of a second round."""

    _of: tuple[int, int, int, bool]

    def ends(self, address: int, ld: int, size: int, apart: bool) -> None:
        """D's address, leading dimension and bytes of an element; apart: its lines are `ld` so."""
        self._of = address, ld, size, apart

    def store(self, chunk: Any, site: Any, space: str, address: Any, mask: Any) -> None:
        """See Observer."""
        if space == "shared":
            return
        start, ld, size, apart = self._of
        index = (np.asarray(address) + (site.offset - start)) // size
        beyond = (index // ld if apart else index % ld) >= _FIRST
        if mask is not None and beyond.ndim:
            beyond = beyond & mask.bits
        if beyond.any():
            raise _EnoughError


class _Sparse(NamedTuple):
    """A matrix of zeros that nobody has touched, and its elements as rows and columns."""

    place: Place
    elements: np.ndarray


def _matrix(
    runner: EmulatorRunner, name: str, rows: int, columns: int, row_major: bool, ld: int, skip: int,
    dtype: str, behind: int = 0,
) -> _Sparse:  # fmt: skip
    """behind: the elements of other matrices that the operand has before this one."""
    count, length = (rows, columns) if row_major else (columns, rows)
    kind = numerics.storage_dtype(dtype)
    nbytes = (skip + behind + (count - 1) * ld + length) * kind.itemsize
    buffer = runner.upload_zeros(nbytes, name)
    flat = buffer.buffer.view(kind)
    strides = (ld * kind.itemsize, kind.itemsize)
    lines = np.lib.stride_tricks.as_strided(flat[skip + behind :], (count, length), strides)
    place = Place(buffer, skip * kind.itemsize)
    return _Sparse(place, lines if row_major else lines.T)


def _run(
    spec: KernelSpec,
    module: Module,
    shape: GemmShape,
    skips: tuple[int, int],
    deadline: float | None,
    observers: Sequence[Observer],
    at_end: bool = True,
    one_group: bool = False,
) -> FarResult | None:
    """The last two tiles along the longer side; None where packing alone would take minutes.

    skips: how many elements behind an aligned address A and B start, and C and D. at_end: not, on
    CUDA cores, the first lines. one_group: whether these tiles are the last ones of a large group
    along M, not all of a small one behind it.
    """
    layouts, types, tile = spec.layouts, spec.dtypes, spec.threadblock
    down = shape.m > shape.n  # along M
    lines = max(shape.m, shape.n)
    below, beside = spec.cluster
    size = tile.m * below if down == layouts.c or not spec.row.transposes else tile.n * beside
    tiles = ceil_div(lines, size)
    if spec.row.takes_workspace:
        these = range((tiles - 2) * size, lines)
    else:
        these = range(lines - _LAST, lines) if at_end else range(min(max(size, 2), _LAST))
    first, count = these.start, len(these)
    problem = GemmProblem.packed(shape, layouts, 2, -1, 16, 16)
    problem = replace(problem, operands=far_operands(spec, problem.ldd))
    if spec.grouped_k:  # what is not 0 is in a second group, whose lines and whose D are far behind
        apart = max(_FAR, problem.extent("D", layouts))
        batch = Batch(2, stride_c=apart + 16, stride_d=apart)
        problem = replace(problem, batch=batch, ends_k=(_LAST, shape.k))
    elif spec.grouped:  # the last rows, or all, are a second group, whose B is far behind
        end = 0 if one_group else first * down
        problem = replace(problem, batch=Batch(2, stride_b=_FAR), ends=(end, shape.m))
    part = GemmShape(count if down else shape.m, shape.n if down else count, shape.k)
    small = replace(GemmProblem.packed(part, layouts, 2, -1), operands=problem.operands)
    _, given = next(products(layouts, small, draw_operands(spec, small, "integer")))
    if spec.grouped_k:
        given.a[:, :_LAST] = 0
    at_once = 2 * tiles * spec.cluster_blocks
    rounds = () if at_end else (_FirstRound(),)
    runner = EmulatorRunner(observers=[*observers, *rounds], multiprocessors=at_once)
    runner.budget, runner.deadline = _BUDGET, deadline
    runner.time_budget = None if deadline else SECONDS
    input_, output = types.input.name, types.output.name
    sizes = {
        "A": (shape.m, shape.k, layouts.a, problem.lda, skips[0], input_),
        "B": (shape.k, shape.n, layouts.b, problem.ldb, skips[0], input_),
        "C": (shape.m, shape.n, layouts.c, problem.ldc, skips[1], output),
        "D": (shape.m, shape.n, layouts.c, problem.ldd, skips[1], output),
        BIAS: (1, shape.n, True, shape.n, 0, output),
    }
    for own in spec.operands:
        element = own.element(types).name
        if own.index == MATRIX:
            ld = int(problem.value(own.ld, problem.ldd))
            sizes[own.name] = (shape.m, shape.n, layouts.c, ld, 0, element)
        elif own.index:
            *one, length = own.shape(shape.m, shape.n, problem.batch.products)
            sizes[own.name] = (math.prod(one), length, True, length, 0, element)
    behind = {name: problem.batch.stride(name) for name in "ABCD"}
    matrices = {
        name: _matrix(runner, name, *size, behind=behind.get(name, 0))
        for name, size in sizes.items()
    }
    some = slice(these.start, these.stop)
    rows, columns = (some if at else slice(None) for at in (down, not down))
    matrices["A"].elements[rows] = given.a
    matrices["B"].elements[:, columns] = given.b
    matrices["C"].elements[rows, columns] = given.c
    matrices["D"].elements[rows, columns] = numerics.poison(output)
    if given.bias is not None:
        matrices[BIAS].elements[0, columns] = given.bias
    parts = {"row": rows, "col": columns, "group": slice(None)}
    for own in spec.operands:
        if own.index:
            at = tuple(parts[word] for word in own.index.split(", "))
            matrices[own.name].elements[at if len(at) == 2 else (0, *at)] = given.own[own.name]
    places = {name: matrix.place for name, matrix in matrices.items()}
    if spec.grouped:
        places[OFFSETS] = Place(runner.upload(np.array(ends_of(spec, problem), np.int32), OFFSETS))
    try:
        steps = spec.plan(problem, alignment(places), runner.multiprocessors)
    except SpecError:  # more blocks than a grid can have
        return None
    if any(_long_lines(launch) for launch in steps.launches):
        return None
    places[WORKSPACE] = Place(runner.upload_zeros(max(steps.workspace_bytes, 1), WORKSPACE))
    found: list[Finding] = []
    for watch in rounds:
        watch.ends(places["D"].address, problem.ldd, types.output.size, down == layouts.c)
    for launch in steps.launches:
        if "grid" in spec.tunables:  # few blocks would stride over all rows for hours
            launch = replace(launch, grid=(min(shape.m, MAX_GRID_X), *launch.grid[1:]))
        if spec.row.takes_workspace:
            windows = tile_windows(spec, launch, tiles, size, shape.k)
        else:
            short = "few" in spec.tunables and not down
            size = tile.n if short else tile.m
            windows = row_windows(spec, launch, these, min(shape.m, shape.n), size)
        for window in windows:
            runner.window = window
            args = arguments(launch.args, places, runner)
            with suppress(_EnoughError):
                found += runner.launch(
                    module, launch.kernel, launch.grid, launch.block, args, launch.shared_bytes
                )
    got = np.ascontiguousarray(matrices["D"].elements[rows, columns])
    corner = (first, 0) if down else (0, first)
    within = Within(*corner, shape.m, shape.n)
    _, message = against_oracle(spec, small, given, got, "integer", within=within)
    where = f"in the {'last' if at_end else 'first'} {count} lines"
    return FarResult(shape, found, message and f"{where}, {message}")


def _long_lines(launch: Launch) -> bool:
    """Whether a launch packs lines that are too long for a CPU."""
    return any(launch.args.get(f"{x}_length", 0) > 2**20 for x in "ab")
