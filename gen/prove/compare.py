"""One result against its references: the oracle within its bound, and CUTLASS bit for bit."""

from __future__ import annotations

import itertools
import math

import numpy as np

from gen.device.execute import (
    Operands,
    groups,
    products,
    results,
)
from gen.device.runner import Runner
from gen.errors import counted
from gen.prove import cutlass, fused, oracle
from gen.prove.groups import by_group, covered
from gen.prove.inputs import finite
from gen.prove.intervals import Interval, enclose
from gen.prove.kernel_sums import ANY, TensorCore, sums_of
from gen.prove.patterns import pattern
from gen.spec import numerics
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmProblem

_REFERRED = 3  # groups that are compared with CUTLASS's products, too


def compare(
    spec: KernelSpec,
    runner: Runner | None,
    problem: GemmProblem,
    kind: str,
    operands: Operands,
    storage: np.ndarray,
    core: TensorCore,
) -> tuple[float, str]:
    """The worst error as a fraction of its bound, and what is wrong, if anything."""
    got, output = results(spec, problem, storage), spec.dtypes.output.name
    stride_d = problem.batch.stride_d
    untouched = numerics.pack(got, spec.layouts.c, problem.ldd, output, stride_d)
    if untouched.tobytes() != storage.tobytes():
        return np.inf, "the gap between rows of D was overwritten"
    if spec.grouped and not spec.stacked:
        return _compare_groups(spec, runner, problem, kind, operands, got, core)
    worst = 0.0
    every = got if spec.stacked else got[None]
    for i, (one, own) in enumerate(products(spec.layouts, problem, operands)):
        refers = i < _REFERRED or not spec.grouped
        on = runner if refers else None
        error, message = _compare_one(spec, on, one, kind, own, every[i], core)
        worst = max(worst, error)
        if message:
            what = "group" if spec.grouped else "product"
            where = f"in {what} {i} of {problem.batch.products}, " if spec.stacked else ""
            return worst, where + message
    return worst, ""


def _compare_groups(
    spec: KernelSpec,
    runner: Runner | None,
    problem: GemmProblem,
    kind: str,
    operands: Operands,
    got: np.ndarray,
    core: TensorCore,
) -> tuple[float, str]:
    """All groups with the oracle, and some with CUTLASS; the rows behind them are as they were."""
    rows, before = covered(problem), results(spec, problem, operands.d_storage)
    if got[rows:].tobytes() != before[rows:].tobytes():
        return np.inf, f"rows behind the last group, from row {rows} of D on, were overwritten"
    worst, message = against_oracle(spec, problem, operands, got, kind, core)
    begin = 0
    for one, own in itertools.islice(groups(problem, operands), _REFERRED):
        end = begin + one.shape.m
        if message:
            break
        message = _against_cutlass(spec, runner, one, kind, own, got[begin:end])
        if message:
            message = f"in the group of rows {begin} to {end - 1}, {message}"
        begin = end
    return (np.inf if message else worst), message


def _compare_one(
    spec: KernelSpec,
    runner: Runner | None,
    problem: GemmProblem,
    kind: str,
    operands: Operands,
    got: np.ndarray,
    core: TensorCore,
) -> tuple[float, str]:
    worst, message = against_oracle(spec, problem, operands, got, kind, core)
    message = message or _against_cutlass(spec, runner, problem, kind, operands, got)
    return (np.inf if message else worst), message


def _against_cutlass(
    spec: KernelSpec,
    runner: Runner | None,
    problem: GemmProblem,
    kind: str,
    operands: Operands,
    got: np.ndarray,
) -> str:
    """What differs from CUTLASS's result, where there is one to compare with."""
    if runner is None or spec.fused:  # CUTLASS has no such epilogue
        return ""
    # Its kernels keep what is no ordinary number in other ways.
    exact = kind == "integer" and not spec.epilogue.endswith("gelu")
    exact &= math.isfinite(problem.alpha) and math.isfinite(problem.beta)
    if not exact and (kind != "random" or spec.dtypes.accumulator.is_float):
        return ""
    reference = cutlass.cutlass_gemm(runner, spec, problem, operands)
    return _first_difference(spec, got, reference, "CUTLASS")


def against_oracle(
    spec: KernelSpec,
    problem: GemmProblem,
    operands: Operands,
    got: np.ndarray,
    kind: str,
    core: TensorCore = ANY,
    within: fused.Within | None = None,
) -> tuple[float, str]:
    """D (M x N, of storage) of inputs of a kind: the worst error as a fraction of its bound.

    And what is wrong, if anything. `core`: what made the sums. `within`: where this D is a part of
    one.
    """
    dtypes = spec.dtypes
    if spec.fused:
        return _against_intervals(spec, problem, operands, got, kind, core, within)
    exact_sums, gelu = kind != "random", spec.epilogue.endswith("gelu")
    worst, message = 0.0, ""
    if dtypes.accumulator.is_float and (gelu or not exact_sums):
        worst, message = within_bound(spec, problem, operands, got, core, exact_sums=exact_sums)
        if message or not exact_sums:
            return worst, message
    exact = exact_results(spec, problem, operands)
    got = got[: len(exact)]
    if gelu and dtypes.accumulator.is_float:  # only what it leaves as it is has no error
        same = exact >= oracle.GELU_IS_IDENTITY
        exact, got = np.where(same, exact, 0), np.where(same, got, np.zeros((), got.dtype))
    want = _rounded(spec, exact, got) if dtypes.output.is_float else exact
    message = _first_difference(spec, got, want, "the oracle")
    return (np.inf if message else worst), message


def _rounded(spec: KernelSpec, exact: np.ndarray, got: np.ndarray) -> np.ndarray:
    """The results in D's type. A kernel rounds them to alpha's type first, if that has more digits.

    So of two that lie between, near a tie, it may have either.
    """
    output, scalar = spec.dtypes.output, spec.dtypes.scalar
    once = numerics.from_float64(exact, output.name)
    if output.size >= scalar.size:
        return once
    with np.errstate(over="ignore"):
        before = exact.astype(numerics.storage_dtype(scalar.name)).astype(np.float64)
    twice = numerics.from_float64(before, output.name)
    return np.where(_bits(got) == _bits(twice), twice, once)


def _against_intervals(
    spec: KernelSpec,
    problem: GemmProblem,
    operands: Operands,
    got: np.ndarray,
    kind: str,
    core: TensorCore,
    within: fused.Within | None,
) -> tuple[float, str]:
    """The same where the epilogue is the user's own: see `gen.prove.fused`."""
    output, rows = spec.dtypes.output, covered(problem)
    behind = ((0, problem.shape.m - rows), (0, 0))
    x, got = np.pad(exact_results(spec, problem, operands), behind), got[:rows]
    if not output.is_float:
        exact = fused.results(spec, problem, operands.own, x, within)[:rows]
        message = _first_difference(spec, got, exact, "the oracle")
        return (np.inf if message else 0.0), message
    bound: np.ndarray | float = 0.0
    if kind == "random":
        bound = np.pad(_bound(spec, problem, operands, core, stored=False), behind)
    own = numerics.storage_dtype(spec.dtypes.scalar.name).type
    found = fused.results(spec, problem, operands.own, enclose(x - bound, x + bound, own), within)
    found = Interval(*(each[:rows] for each in found))
    values = numerics.to_float64(got, output.name)
    wrong, fractions, (low, high) = fused.outside(found, values, output.name)
    if not wrong.any():
        return float(fractions.max(initial=0.0)), ""
    i, j = (int(at) for at in np.argwhere(wrong)[0])
    return np.inf, (
        f"D[{i}, {j}] is {values[i, j]:.9g}, right kernels have {low[i, j]:.9g} to "
        f"{high[i, j]:.9g}; {_which(wrong, _tile(spec))}"
    )


_Inputs = tuple[np.ndarray, np.ndarray, np.ndarray, float, float, str, oracle.After]


def _arguments(spec: KernelSpec, problem: GemmProblem, x: Operands) -> _Inputs:
    after = oracle.LINEAR if spec.fused else oracle.After(spec.epilogue, x.bias)
    return x.a, x.b, x.c, problem.alpha, problem.beta, spec.dtypes.name, after


def exact_results(spec: KernelSpec, problem: GemmProblem, operands: Operands) -> np.ndarray:
    """What the oracle has for the rows that are computed."""
    return by_group(problem, operands, lambda p, x: oracle.oracle(*_arguments(spec, p, x)))


def _bound(
    spec: KernelSpec,
    problem: GemmProblem,
    operands: Operands,
    core: TensorCore,
    exact_sums: bool = False,
    stored: bool = True,
) -> np.ndarray:
    """How far these may be off: see `oracle.error_bound`."""
    sums = sums_of(spec, core)

    def bound(p: GemmProblem, x: Operands) -> np.ndarray:
        arguments = _arguments(spec, p, x)
        return oracle.error_bound(*arguments, sums=sums, exact_sums=exact_sums, stored=stored)

    return by_group(problem, operands, bound)


def within_bound(
    spec: KernelSpec,
    problem: GemmProblem,
    operands: Operands,
    got: np.ndarray,
    core: TensorCore = ANY,
    exact_sums: bool = False,
) -> tuple[float, str]:
    """D (M x N, of storage) against the oracle; `exact_sums`: see `oracle.error_bound`.

    Where that is infinite or NaN, D has to be the same; elsewhere an error is bounded by what
    operands without infinities and NaN allow. Returns the worst error as a fraction of its bound,
    and what is wrong, if anything.
    """
    exact = exact_results(spec, problem, operands)
    bound = _bound(spec, problem, finite(operands, spec.dtypes), core, exact_sums=exact_sums)
    if not np.isfinite([problem.alpha, problem.beta]).all():  # no overflow: all have the same
        bound = np.where(np.isfinite(exact), bound, 0)
    got = got[: len(exact)]
    return _within(numerics.to_float64(got, spec.dtypes.output.name), exact, bound, _tile(spec))


def _tile(spec: KernelSpec) -> tuple[int, int]:
    """Rows and columns of D that a block computes."""
    m, n, _ = spec.threadblock
    return (n, m) if spec.swapped else (m, n)


def _first_difference(spec: KernelSpec, got: np.ndarray, want: np.ndarray, who: str) -> str:
    # Bits, not values: 0 equals -0. A sum that starts at +0 never ends at -0 unless alpha makes it
    # so, on both sides alike. Of NaN, whose bits nobody promises, one equals another.
    values = [numerics.to_float64(x, spec.dtypes.output.name) for x in (got, want)]
    same = (_bits(got) == _bits(want)) | np.isnan(values[0]) & np.isnan(values[1])
    if same.all():
        return ""
    i, j = (int(x) for x in np.argwhere(~same)[0])
    left, right = (f"{float(x[i, j]):.9g}" for x in values)
    return f"D[{i}, {j}] is {left}, {who} has {right}; {_which(~same, _tile(spec))}"


def _which(wrong: np.ndarray, tile: tuple[int, int] | None) -> str:
    count = f"{np.count_nonzero(wrong)} of {counted(wrong.size, 'element')}"
    return f"{count} differ: {pattern(wrong, tile)}"


def _bits(matrix: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(matrix).view(f"u{matrix.itemsize}")


def _within(
    got: np.ndarray, exact: np.ndarray, bound: np.ndarray, tile: tuple[int, int] | None = None
) -> tuple[float, str]:
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.where(np.isfinite(exact), np.abs(got - exact), np.inf)
        # What overflows in a narrower type is infinite in D, and bounded by nothing.
        error = np.where((got == exact) | np.isnan(got) & np.isnan(exact), 0.0, error)
        good = (error == 0) | (error <= bound)  # False for NaN
        ratio = np.where(error == 0, 0.0, error / bound)
    worst = float(np.max(np.where(np.isnan(ratio), np.inf, ratio), initial=0.0))
    if good.all():
        return worst, ""
    i, j = (int(x) for x in np.argwhere(~good)[0])
    return worst, (
        f"D[{i}, {j}] is {got[i, j]:.9g}, exact is {exact[i, j]:.9g}: the error is beyond the "
        f"bound {bound[i, j]:.3g}; {_which(~good, tile)}"
    )
