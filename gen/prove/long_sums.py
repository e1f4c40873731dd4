"""Sums of more products than 32 bits count, of which only the first and the last are computed.

A and B are zero but for the two ends of K, or of each slice of it, and the emulator skips the
rounds of the loop in between (see `emulator.run.skipping`): counts and indices along K are then
beyond 32 bits, as they would be.
Nothing is said of a kernel whose loop changes more than counters, since nothing is skipped there.
One that ends before it comes to what would be skipped has left the end of K out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from gen.compile.nvrtc import Module
from gen.device.emulated import EmulatorRunner
from gen.device.execute import Place, alignment
from gen.emulator import (
    DeviceArray,
    Emulator,
    Finding,
    GapReadError,
    LineArray,
    NothingSkippedError,
    Observer,
    Part,
    Skipping,
)
from gen.errors import BudgetError
from gen.kernels.formulas import ceil_div
from gen.kernels.launches import BIAS, OFFSETS, WORKSPACE, Dim3
from gen.prove.check_sizes import (
    MANY,
    SHORT,
    is_short,
    on_tensor_cores,
    skips_long_sums,
)
from gen.prove.far_indices import (
    FarResult,
    compared,
    difference,
    far_operands,
    launched,
    workspace,
)
from gen.prove.fused import Within
from gen.prove.oracle import LINEAR, After, oracle
from gen.prove.trials import RAGGED, trial
from gen.prove.verify import run_trial
from gen.spec import numerics
from gen.spec.arch import UNIT
from gen.spec.epilogue import MATRIX
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmProblem, GemmShape

# A little more than an int or unsigned holds: the first steps alone have more left than that. Then
# far more, and negative as an int; with lines that are no whole units, and with such.
_LONG = (2**31 + 101, 2**32 + 101, 2**32 + 2**31 + 2**20 + 37, 2**32 + 2**31 + 2**20)
_BEYOND_16_BITS = 2**17
_INNER = 64  # rounds of loops along a part of a step, at most
_REPEATED = 40  # rounds that show what repeats itself
_LAST, _LEAST = 16, 1024  # rounds behind those that are skipped; elements mapped at either end of K
_MANY = 1000  # rounds
_STEPS = 16  # of a round, at most
_FEW = 8  # elements at either end that are not zero
_PARTS = 8  # slices of K that all run; of more, the first and the last: each takes as long as one
_ALPHA, _BETA = 2, -1
_SECONDS = 30  # of CPU time, that none should need


def why_not(spec: KernelSpec) -> str:
    """Why a kernel cannot be tried here; nothing where it can."""
    return "its sum has many parts" if spec.split_k > MANY else ""


def long_sums(
    spec: KernelSpec,
    module: Module,
    deadline: float | None = None,
    observers: Sequence[Observer] = (),
) -> Iterator[FarResult]:
    """Runs the kernel on a D of one element, or of a unit. See `far_indices.far_results`.

    Where that says nothing, and no other trial is as long, a sum of which nothing is skipped.
    """
    sums, shown = _sums(spec) if not why_not(spec) else (), False
    unskipped = SHORT
    for k, slices in sums:
        shown = False
        try:
            result, skipped = _run(spec, module, k, slices, deadline, observers)
        except BudgetError:
            if _is_regular(spec, module, k, slices, deadline):
                raise
            break
        wrong = result and (result.findings or result.message)
        if wrong and skipped and not _is_regular(spec, module, k, slices, deadline):
            unskipped = _BEYOND_16_BITS  # the shorter ones may be wrong in truth
            break
        if result and (wrong or skipped):
            shown = True
            yield result
    if not shown and skips_long_sums(spec):
        yield _unskipped(spec, module, unskipped, deadline, observers)


def _unskipped(
    spec: KernelSpec,
    module: Module,
    k: int,
    deadline: float | None,
    observers: Sequence[Observer],
) -> FarResult:
    """A sum of all products, more than 16 bits count; 66,000 take twenty seconds."""
    runner = EmulatorRunner(observers=observers)
    runner.deadline, runner.time_budget = deadline, None if deadline else _SECONDS * 4
    one = trial(spec, GemmShape(2, 3, k), "wandering", (1, 1), RAGGED)
    runner.multiprocessors = 1
    result = run_trial(spec, runner, module, one)
    return FarResult(one.shape, list(result.findings), result.message)


def _sums(spec: KernelSpec) -> Iterator[tuple[int, int]]:
    """K and its slices: where a kernel chooses how many, one, and as many as there may be."""
    for slices in (1, MANY) if spec.split_k == 0 else (spec.split_k,):
        unit = _unit(spec, slices)
        most = spec.row.most // unit * unit
        if slices > 1:
            sizes = [k for k in (ceil_div(k, unit) * unit for k in _LONG) if k <= most] or [most]
        else:
            # Whole steps, and not: lines that are no whole units are packed, which is another loop.
            part = UNIT if spec.packs else UNIT - 5
            sizes = [k for k in _LONG if k <= most] or [most, most - part]
            sizes = [k for k in sizes if k % UNIT == 0 or not spec.packs]
        yield from ((k, slices) for k in sizes)


def _unit(spec: KernelSpec, slices: int) -> int:
    """A divisor of K, with which all slices have as many steps, and begin at whole units."""
    return math.lcm(slices * spec.threadblock.k, slices * UNIT) if slices > 1 else UNIT


def _those_that_run(slices: int) -> list[int]:
    return list(range(slices)) if slices <= _PARTS else [0, slices - 1]


def _is_regular(
    spec: KernelSpec, module: Module, k: int, slices: int, deadline: float | None
) -> bool:
    """Whether sums are right that are shorter, and of which rounds are skipped as well.

    If not, the kernel has another loop than those that are known, such as several in each other,
    and what went wrong with a long one says nothing. Where other trials count beyond 16 bits, a sum
    does so here.
    """
    sizes, unit = [3 * _mapped(spec, k) * slices], _unit(spec, slices)
    if is_short(spec, GemmShape(2, 3, _BEYOND_16_BITS)):
        sizes.append(max(_BEYOND_16_BITS, *sizes))
    for size in sizes:
        try:
            shorter = size // unit * unit + k % unit
            result, skipped = _run(spec, module, shorter, slices, deadline, ())
        except BudgetError:
            return False
        if not result or not skipped or result.findings or result.message:
            return False
    return True


def _patience(spec: KernelSpec) -> int:
    return int(spec.tunables.get("chunk", min(spec.threadblock.k, _INNER))) + 16


def _mapped(spec: KernelSpec, k: int, more: int = 1) -> int:
    """Elements that are mapped at either end of K."""
    # A loop around another one needs but a few rounds.
    rounds = _LAST if "chunk" in spec.tunables else _patience(spec) + _REPEATED
    return max((rounds + _LAST) * spec.threadblock.k * more, _LEAST) // UNIT * UNIT + k % UNIT


def _run(
    spec: KernelSpec,
    module: Module,
    k: int,
    slices: int,
    deadline: float | None,
    observers: Sequence[Observer],
) -> tuple[FarResult | None, int]:
    """What comes of one sum, if it ended, and how many rounds were skipped.

    A round may have several steps of the kernel's: then more is mapped.
    """
    with suppress(NothingSkippedError):
        try:
            return _try(spec, module, k, slices, _mapped(spec, k), deadline, observers)
        except GapReadError:
            mapped = _mapped(spec, k, _STEPS)
            unit = _unit(spec, slices)
            longer = max(k, 3 * mapped * slices // unit * unit + k % unit)
            return _try(spec, module, longer, slices, mapped, deadline, observers)
    return None, 0


def _try(
    spec: KernelSpec,
    module: Module,
    k: int,
    slices: int,
    mapped: int,
    deadline: float | None,
    observers: Sequence[Observer],
) -> tuple[FarResult | None, int]:
    shape, types, layouts = _shape(spec, k), spec.dtypes, spec.layouts
    m, n = shape.m, shape.n
    input_, output = types.input.name, types.output.name
    rng = np.random.default_rng(0)
    step, chunk = spec.threadblock.k, spec.tunables.get("chunk", 0)
    each, these = k // slices, _those_that_run(slices)
    # Blocks that have a slice each run one after another.
    emulator = Emulator(chunk_threads=1) if slices > 1 else Emulator()
    emulator.deadline, emulator.time_budget = deadline, None if deadline else _SECONDS

    def ends(lines: int) -> np.ndarray:
        """Of each slice, along K; so many elements across."""
        values = np.zeros((len(these), 2, mapped, lines), np.int64)
        for one in values:
            one[0, :_FEW] = rng.integers(1, 4, (_FEW, lines))
            one[1, -_FEW:] = rng.integers(-3, 0, (_FEW, lines))
        return numerics.from_integers(values, input_)

    a, b = ends(m), ends(n)
    size = a.itemsize
    # Where others would be packed, lines across K have room for a whole unit.
    across = UNIT if spec.packs else 1
    apart = {"A": 1 if layouts.a else max(across, m), "B": max(across, n) if layouts.b else 1}
    starts = [at * each + end for at in these for end in (0, each - mapped)]
    arrays: dict[str, DeviceArray] = {}
    for name, values in (("A", a), ("B", b)):
        unit, lines = apart[name] * size, values.reshape(2 * len(these), mapped, -1)
        pieces = {
            at * unit: _spread(line, apart[name]) for at, line in zip(starts, lines, strict=True)
        }
        arrays[name] = emulator.alloc_pieces(pieces, k * unit, name)
    c, d = (numerics.from_integers(np.full((m, n), number), output) for number in (5, 99))
    bias = numerics.from_integers(np.full(n, -7), output) if spec.has_bias else None
    stored = _store(emulator, d, layouts.c, "D")
    arrays |= {"C": _store(emulator, c, layouts.c, "C"), "D": stored}
    if bias is not None:
        arrays[BIAS] = emulator.alloc_lines(bias[None], size, BIAS)
    if spec.grouped:  # of which there is one
        arrays[OFFSETS] = emulator.alloc(np.array([k if spec.grouped_k else m], np.int32), OFFSETS)
    own: dict[str, np.ndarray] = {}
    for operand in spec.operands:
        if operand.index:
            values = rng.integers(1, 4, operand.shape(m, n))
            one = own[operand.name] = numerics.from_integers(values, operand.element(types).name)
            lines = one if operand.index == MATRIX else one.reshape(1, -1)
            by_rows = layouts.c or operand.index != MATRIX
            arrays[operand.name] = _store(emulator, lines, by_rows, operand.name)
    lda, ldb, ld = (
        k if layouts.a else apart["A"],
        apart["B"] if layouts.b else k,
        d.shape[layouts.c],
    )
    numbers = far_operands(spec, ld, 0)
    problem = GemmProblem(shape, lda, ldb, ld, ld, _ALPHA, _BETA, operands=numbers)
    places = {name: Place(array) for name, array in arrays.items()}
    steps = spec.plan(problem, alignment(places), slices)
    if any("a_lines" in launch.args for launch in steps.launches):  # an operand is always packed
        return None, 0
    blank = 0xFF if len(these) == slices else 0  # sums of nothing, of slices that do not run
    places[WORKSPACE] = workspace(emulator, steps, blank)
    element = apart["A"] * size
    behind = each - max(_LAST * step, _LEAST // 2)
    parts = [
        Part(
            range(start, start + each * element),
            range(start + mapped * element, start + behind * element),
        )
        for start in (arrays["A"].address + at * each * element for at in these)
    ]
    most = 4 * mapped // (1 if chunk else min(step, _INNER))
    most += 0 if on_tensor_cores(spec) else _MANY
    skipping = Skipping(parts, 0 if spec.row.persistent else _patience(spec), most)
    findings: list[Finding] = []
    for launch in steps.launches:
        main = launch.kernel == spec.name
        for window in _windows(launch.grid, slices) if main else [None]:
            watch = [*([skipping] if main else []), *observers]
            findings += launched(emulator, module, launch, places, watch, window)
    lines = emulator.read_lines(stored)
    got = lines if layouts.c else lines.T
    after = LINEAR if spec.fused else After(spec.epilogue, bias)
    flat_a, flat_b = a.reshape(-1, m).T, b.reshape(-1, n)
    exact = oracle(flat_a, flat_b, c, _ALPHA, _BETA, types.name, after)
    small = replace(problem, shape=GemmShape(m, n, 1))
    # So large a number is what GELU makes of it: no bound is needed.
    same, want = compared(spec, small, own, exact, got, Within(0, 0, m, n))
    message = difference(got, want, ~same, (0, 0), output)
    return FarResult(shape, findings, message), skipping.skipped


def _windows(grid: Dim3, slices: int) -> Iterator[tuple[Dim3, Dim3] | None]:
    """The first block that runs, and how many; None for all of them."""
    if slices <= _PARTS or slices not in grid:
        yield None
        return
    axis = grid.index(slices)
    for at in _those_that_run(slices):
        first, count = [0, 0, 0], list(grid)
        first[axis], count[axis] = at, 1
        yield (first[0], first[1], first[2]), (count[0], count[1], count[2])


def _shape(spec: KernelSpec, k: int) -> GemmShape:
    """Lines across K are units where K is some, too: what vectors are read for."""
    whole = k % UNIT == 0 and not spec.row.persistent
    across = UNIT if whole else 1
    return GemmShape(1 if spec.layouts.a else across, across if spec.layouts.b else 1, k)


def _store(emulator: Emulator, matrix: np.ndarray, by_rows: bool, name: str) -> LineArray:
    lines = matrix if by_rows else matrix.T
    return emulator.alloc_lines(lines, lines.shape[1] * lines.itemsize, name)


def _spread(lines: np.ndarray, apart: int) -> np.ndarray:
    """The same lines, so many elements apart, with zeros between them."""
    found = np.zeros((len(lines), apart), lines.dtype)
    found[:, : lines.shape[1]] = lines
    return found.reshape(-1)
