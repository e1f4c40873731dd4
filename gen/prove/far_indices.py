"""Index arithmetic beyond 32 bits, tried without the memory that it addresses.

Two problems that are too large to store: rows (or columns) more than 2^32 elements apart, with so
few blocks that they have to stride; and a D with lines of more than 2^32 elements, of which only
the last blocks are run, or the first, to which as many are left. The emulator maps the elements
that matter and nothing between them, so that an index that wraps around is a wild access. Kernels
whose M, N and K have to be below 2^31 are tried on the former alone, once packing their operands
and once in place; lines that tensor maps copy in place are no further apart than they are long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from gen.compile.nvrtc import Module
from gen.device.emulated import tensor_map
from gen.device.execute import Place, alignment, striding
from gen.emulator import Emulator, Finding, GlobalRaces, LineArray, Observer, SharedRaces
from gen.errors import SpecError
from gen.kernels.formulas import ceil_div
from gen.kernels.launches import (
    BIAS,
    OFFSETS,
    WORKSPACE,
    Dim3,
    Launch,
    Plan,
    Pointer,
    TensorMap,
    resolve,
)
from gen.kernels.tensor_cores.facts import STEPS_A_SLICE
from gen.prove import fused, oracle
from gen.prove.fused import Within
from gen.prove.kernel_sums import sums_of
from gen.prove.oracle import After
from gen.spec import numerics
from gen.spec.arch import MAX_GRID_X, UNIT
from gen.spec.epilogue import MATRIX
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmProblem, GemmShape

# Elements between two lines, and columns of D. More than 2^32, so that neither int nor unsigned
# holds it; twice as many are negative as an int; odd, so that no power of two hides a mistake.
_FAR = 2**32 + 2**30 + 11
_LEFT = 2**32 + 1  # elements of a line, of which 32 bits keep less than a tile has
_NEGATIVE = 2**31 + 2 * UNIT  # and of these, as an int, a number below zero
_UNITS = _FAR + 5  # the same in whole units of 16 bytes, of any type
_ALPHA, _BETA = 2, -1
_MULTIPROCESSORS = 16  # more than tiles: K is cut into slices
SECONDS = 60  # of CPU time, that no launch beyond 32 bits should need


class FarResult(NamedTuple):
    """One of the two problems: its shape, what the emulator found, and what is wrong with D."""

    shape: GemmShape
    findings: Sequence[Finding]
    message: str


class _Part(NamedTuple):
    """What is mapped of a matrix: `values` from (`row`, `column`) on."""

    values: np.ndarray
    row_major: bool
    row: int
    column: int
    ld: int

    def map(self, emulator: Emulator, name: str) -> LineArray:
        """Rows, or columns, of the part at their places in a matrix that is mostly not there."""
        lines = self.values if self.row_major else self.values.T
        line, along = (self.row, self.column) if self.row_major else (self.column, self.row)
        first = line * self.ld + along
        size = self.values.itemsize
        # What an operand has between two lines, if anything, may be read along in whole units.
        unit = UNIT if name in "AB" and self.ld > 2 * lines.shape[1] + UNIT * 4 else 1
        return emulator.alloc_lines(lines, self.ld * size, name, first * size, unit)


def far_operands(spec: KernelSpec, ldd: int, apart: int = 16) -> tuple[tuple[str, float], ...]:
    """Leading dimensions and numbers of an epilogue's own; the former differ, by so many."""
    found: list[tuple[str, float]] = []
    for i, operand in enumerate(spec.operands):
        if operand.index == MATRIX:
            found.append((operand.ld, ldd + apart * (i + 1)))
        elif not operand.index:
            found.append((operand.name, 3))
    return tuple(found)


def _copies_by_maps(spec: KernelSpec) -> bool:
    main = spec.plan(GemmProblem.packed(GemmShape(1, 1, 1), spec.layouts)).launch(spec.name)
    return any(isinstance(arg, TensorMap) for arg in main.args.values())


def far_results(
    spec: KernelSpec,
    module: Module,
    deadline: float | None = None,
    observers: Sequence[Observer] = (),
    watched: bool = True,
) -> Iterator[FarResult]:
    """Runs the kernel on these problems, where its grid lets it.

    A kernel whose threads stride over all of a line cannot be run on the last elements alone.
    deadline: when all launches have to end, as time.perf_counter gives it; if there is none, a
    launch has its SECONDS. watched: whether races are looked for. Raises BudgetError for a launch
    that runs longer.
    """

    def run(shape: GemmShape, far: int, along: range | None = None) -> FarResult:
        return _run(spec, module, shape, far, deadline, observers, watched, along)

    tile = spec.threadblock
    rows = 3 * tile.m + 1 if spec.geometry.strides else tile.m + 1
    shape = GemmShape(rows, tile.n + 1, tile.k + 1)
    yield run(shape, _FAR)
    if spec.row.depends_on_alignment:
        yield run(shape, _UNITS)
        if spec.split_k != 1:  # one slice, where there were several, or several
            k = min(tile.k, UNIT) if spec.split_k else 2 * STEPS_A_SLICE * tile.k + UNIT
            yield run(replace(shape, k=k), _UNITS)
    elif "few" in spec.tunables:  # whose sizes have to be whole units, too
        whole = GemmShape(*(ceil_div(size, UNIT) * UNIT for size in (shape.m, shape.n, shape.k)))
        yield run(whole, _UNITS)
        if "stages" in spec.geometry.values:  # which copies steps between the ends in another way
            yield run(replace(whole, k=2 * tile.k + 2 * UNIT), _FAR)
    below, beside = tile[:2]

    def with_lines_of(elements: int) -> GemmShape:
        long = GemmShape(below + 1, elements, 3)
        return replace(long, m=long.n, n=long.m) if spec.swapped else long

    wide = with_lines_of(_FAR)
    try:
        main = spec.plan(GemmProblem.packed(wide, spec.layouts)).launch(spec.name)
    except SpecError:  # more elements than the kernel takes, or more blocks than a grid can have
        return
    # Where blocks stride over tiles, the last one does not have the last elements.
    cluster = spec.cluster_blocks
    at_once = main.grid[0] // cluster
    if at_once * beside >= _FAR and at_once < MAX_GRID_X // cluster:
        last, first = range(_FAR - 2 * beside, _FAR), range(2 * beside)
        yield run(wide, 0, last)
        for elements in (_LEFT, _NEGATIVE):
            yield run(with_lines_of(elements), 0, first)


def _run(
    spec: KernelSpec,
    module: Module,
    shape: GemmShape,
    far: int,
    deadline: float | None,
    observers: Sequence[Observer],
    watched: bool,
    along: range | None,
) -> FarResult:
    """All of D, or some elements of its lines, of which the first or the last block along x runs.

    far: elements from one line to the next, 0 for as many as a line has. along: the rows, or
    columns, of D that exist, and what belongs to them of other matrices; None for all of them.
    """
    layouts, types = spec.layouts, spec.dtypes
    rng = np.random.default_rng(0)
    rows, columns = range(shape.m), range(shape.n)
    if along and spec.swapped:
        rows = along
    elif along:
        columns = along
    row, column = rows.start, columns.start
    height, width = len(rows), len(columns)
    emulator = Emulator()
    emulator.deadline, emulator.time_budget = deadline, None if deadline else SECONDS
    # Tensor maps have lines of less than 2^40 bytes, and are no affair of a kernel's own indices.
    in_place = _copies_by_maps(spec) and not (spec.packs and far % UNIT)

    def part(
        below: range, beside: range, size: tuple[int, int], name: str, row_major: bool, extra: int
    ) -> _Part:
        stored = numerics.from_integers(rng.integers(-3, 4, (len(below), len(beside))), name)
        # Leading dimensions that differ; in whole units for the operands, if `far` is.
        ld = far + 16 * extra if far else size[row_major]
        if extra < 2 and in_place:
            ld = ceil_div(size[row_major], UNIT) * UNIT
        return _Part(stored, row_major, below.start, beside.start, ld)

    input_, output = types.input.name, types.output.name
    m, n, k = shape.m, shape.n, shape.k
    a = part(rows, range(k), (m, k), input_, layouts.a, 0)
    b = part(range(k), columns, (k, n), input_, layouts.b, 1)
    c = part(rows, columns, (m, n), output, layouts.c, 2)
    d = part(rows, columns, (m, n), output, layouts.c, 3)
    d = d._replace(values=np.full_like(d.values, numerics.poison(output)))
    mapped = {n: p.map(emulator, n) for p, n in zip((a, b, c, d), "ABCD", strict=True)}
    places = {name: Place(array) for name, array in mapped.items()}
    bias = None
    if spec.has_bias:
        bias = numerics.from_integers(rng.integers(-3, 4, width), output)
        places[BIAS] = Place(_Part(bias[None], True, 0, column, shape.n).map(emulator, BIAS))
    operands = far_operands(spec, d.ld, 16 if far else 0)
    problem = GemmProblem(shape, a.ld, b.ld, c.ld, d.ld, _ALPHA, _BETA, operands=operands)
    own: dict[str, np.ndarray] = {}
    for operand in spec.operands:
        name, size = operand.element(types).name, operand.shape(height, width)
        if not operand.index:
            continue
        values = own[operand.name] = numerics.from_integers(rng.integers(-3, 4, size), name)
        first = {"row": row, "col": column}.get(operand.index.rpartition(", ")[2], 0)
        at = _Part(values.reshape(1, -1), True, 0, first, size[-1])
        if operand.index == MATRIX:
            at = _Part(values, layouts.c, row, column, int(problem.value(operand.ld, d.ld)))
        places[operand.name] = Place(at.map(emulator, operand.name))
    if spec.grouped:
        places[OFFSETS] = Place(emulator.alloc(np.array([shape.m], np.int32), OFFSETS))
    steps = spec.plan(problem, alignment(places), _MULTIPROCESSORS)
    steps = steps if along else striding(steps, spec.geometry.strides, 2, spec.cluster_blocks)
    products = height * width * shape.k
    found = _launch(spec, emulator, module, steps, places, along, products, observers, watched)
    lines = emulator.read_lines(mapped["D"])
    got = lines if layouts.c else lines.T
    after = oracle.LINEAR if spec.fused else After(spec.epilogue, bias)
    inputs = (a.values, b.values, c.values, _ALPHA, _BETA, types.name, after)
    exact = want = oracle.oracle(*inputs)
    if spec.epilogue.endswith("gelu") and not spec.fused:
        bound = oracle.error_bound(*inputs, sums_of(spec))
        same = np.abs(numerics.to_float64(got, output) - exact) <= bound
    else:
        small = replace(problem, shape=GemmShape(height, width, shape.k))
        within = Within(row, column, shape.m, shape.n)
        same, want = compared(spec, small, own, exact, got, within)
    untouched = _bits(got) == _bits(d.values)
    # Whichever blocks have run of the first or the last ones, these elements were theirs.
    must = np.full_like(same, not along)
    if along and along.start:
        must[-1, -1] = True
    elif along:
        must[:1, : width // 2] = not spec.swapped
        must[: height // 2, :1] |= spec.swapped
    wrong = ~same & (must | ~untouched)
    return FarResult(shape, found, difference(got, want, wrong, (row, column), output))


def compared(
    spec: KernelSpec,
    problem: GemmProblem,
    own: Mapping[str, np.ndarray],
    exact: np.ndarray,
    got: np.ndarray,
    within: Within,
) -> tuple[np.ndarray, np.ndarray]:
    """Where D has the bits of `exact`, or what an own epilogue makes of it; and what is right."""
    if spec.fused:
        return fused.fitting(spec, problem, own, exact, got, within)
    output = spec.dtypes.output
    want = numerics.from_float64(exact, output.name) if output.is_float else exact
    return _bits(got) == _bits(want), want


def _launch(
    spec: KernelSpec,
    emulator: Emulator,
    module: Module,
    steps: Plan,
    places: dict[str, Place],
    along: range | None,
    products: int,
    observers: Sequence[Observer],
    watched: bool,
) -> list[Finding]:
    """Runs a plan, or of each launch the first or last block along x; what the checks found."""
    places = {**places, WORKSPACE: workspace(emulator, steps)}
    found: list[Finding] = []
    for launch in steps.launches:
        x, y, z = launch.grid
        run = (1 if along else x, y, z)
        # Some thirty times what any kernel of this kind should need.
        emulator.instruction_budget = (
            50_000 * math.prod(run) * math.prod(launch.block) + 1000 * products
        )
        window = (x - 1 if along and along.start else 0, 0, 0), run
        races: list[Observer] = [SharedRaces(), GlobalRaces()] if watched else []
        found += launched(emulator, module, launch, places, [*races, *observers], window)
    return found


def launched(
    emulator: Emulator,
    module: Module,
    launch: Launch,
    places: Mapping[str, Place],
    observers: Sequence[Observer],
    window: tuple[Dim3, Dim3] | None,
) -> Sequence[Finding]:
    """Runs a launch, or those of its blocks in a window (see `Emulator.launch`): what was found."""
    return emulator.launch(
        module.code.decode(),
        launch.kernel,
        launch.grid,
        launch.block,
        emulated_arguments(launch, places),
        launch.shared_bytes,
        source_lines=module.text.splitlines(),
        observers=observers,
        window=window,
    ).findings


def workspace(emulator: Emulator, steps: Plan, blank: int = 0xFF) -> Place:
    """What a plan needs of it, full of a byte."""
    space = np.full(max(steps.workspace_bytes, 1), blank, np.uint8)
    return Place(emulator.alloc(space, WORKSPACE, False))


def emulated_arguments(launch: Launch, places: Mapping[str, Place]) -> list[Any]:
    """The arguments of a launch as `Emulator.launch` takes them."""

    def pointer(arg: Pointer) -> np.uint64:
        return np.uint64(places[arg.buffer].address + arg.offset)

    def described(arg: TensorMap) -> Any:
        place = places[arg.source.buffer]
        return tensor_map(arg, place.buffer, place.offset + arg.source.offset)

    return resolve(launch.args, pointer, described)


def _bits(matrix: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(matrix).view(f"u{matrix.itemsize}")


def difference(
    got: np.ndarray, want: np.ndarray, wrong: np.ndarray, first: tuple[int, int], dtype: str
) -> str:
    """The first element of D that is wrong, if any. first: that the arrays begin with."""
    if not wrong.any():
        return ""
    i, j = (int(v) for v in np.argwhere(wrong)[0])
    values = (float(numerics.to_float64(m[i, j], dtype)) for m in (got, want))
    left, right = (f"{value:.9g}" for value in values)
    return f"D[{i + first[0]}, {j + first[1]}] is {left}, exact is {right}"
