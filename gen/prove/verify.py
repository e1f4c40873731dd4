"""Proof that a kernel computes what it should, trial by trial (see `trials`).

- *integer* and other inputs whose sums are exact in the accumulator: the result must equal, bit for
  bit, an independent numpy oracle and, for integers, a CUTLASS GEMM run on the same device. Where
  it is NaN by IEEE 754, it must be a NaN.
- *random*: uniform inputs; every element must lie within the proven bound of its rounding errors
  (integer types have none: their sums wrap around, and must again be equal bit for bit).

Nothing is taken on trust: leading dimensions are longer than the rows, with poison in between; D
is full of poison before the launch; where beta is 0, so is C, or it has no elements; buffers are
guarded on all sides.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gen.compile import nvrtc
from gen.device.execute import (
    FindingsError,
    Operands,
    groups,
    products,
    results,
    run_kernel,
    storages,
)
from gen.device.runner import Runner
from gen.errors import BudgetError, CheckError, PtxError, counted
from gen.prove import cutlass, fused, oracle
from gen.prove.groups import by_group, covered
from gen.prove.inputs import draw_operands, finite
from gen.prove.intervals import Interval, enclose
from gen.prove.patterns import pattern
from gen.prove.places import located
from gen.prove.trials import OPERANDS, Trial, verify_trials
from gen.source.render import Source, render
from gen.spec import numerics
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmProblem, GemmShape

if TYPE_CHECKING:
    from gen.emulator import Finding


# What runs its code: GPUs whose tensor cores are known to the bit, and the emulator, which has the
# same ones whatever the code is for.
_HOPPER = "sm_90a"
_REFERRED = 3  # groups that are compared with CUTLASS's products, too


@dataclass(frozen=True)
class CaseResult:
    """One launch and its verdict.

    `worst` is the largest error as a fraction of its bound: 0 where all bits agree, infinite where
    an element without tolerance differs or is NaN. `message` is empty where `ok`.
    """

    kind: str
    problem: GemmProblem
    ok: bool
    worst: float
    seconds: float
    message: str = ""
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class ShapeResult:
    """All cases of one kernel on one shape."""

    spec: KernelSpec
    shape: GemmShape
    cases: tuple[CaseResult, ...]

    @property
    def ok(self) -> bool:
        """Whether every case is right."""
        return all(case.ok for case in self.cases)

    @property
    def worst(self) -> float:
        """The largest error of all cases, as a fraction of its bound."""
        return max(case.worst for case in self.cases)

    @property
    def seconds(self) -> float:
        """Time in the kernel, over all cases."""
        return sum(case.seconds for case in self.cases)

    @property
    def message(self) -> str:
        """What is wrong first, or nothing."""
        return next((case.message for case in self.cases if case.message), "")


def default_shapes(spec: KernelSpec) -> list[GemmShape]:
    """Shapes that reach every edge of a kernel, derived from its tile.

    One element; one less than the tile, the tile, one more; odd and even numbers of tiles; primes;
    an empty D, an empty sum; long and thin both ways and along K.
    """
    m, n, k = spec.threadblock
    sizes = [
        (1, 1, 1),
        (m - 1, n - 1, k - 1),
        (m, n, k),
        (m + 1, n + 1, k + 1),
        (2 * m, 3 * n, 2),
        (m + 1, n + 1, 2 * k),
        (3 * m - 1, 2 * n - 1, k + 1),
        (37, 53, 61),
        (0, 5, 7),
        (5, 0, 7),
        (5, 7, 0),
        (1, 521, 3),
        (523, 1, 3),
        (2, 3, 1031),
    ]
    return [GemmShape(*size) for size in dict.fromkeys(sizes)]


def verify(
    spec: KernelSpec,
    runner: Runner,
    shapes: Sequence[GemmShape] | None = None,
    source: Source | None = None,
) -> Iterator[ShapeResult]:
    """Runs a kernel on `runner` over shapes (see `default_shapes`), one result after another.

    `source` replaces the text that the specification renders to. Raises CompileError where it does
    not compile, PtxError for an instruction that the emulator does not know; a mismatch or a
    finding is a result, not an error.
    """
    text = (source or render(spec)).text
    module = nvrtc.compile_cuda(
        text, name=f"{spec.name}.cu", arch=runner.target(spec.arch), format=runner.format
    )
    for shape in default_shapes(spec) if shapes is None else shapes:
        yield verify_shape(spec, runner, module, shape)


def verify_shape(
    spec: KernelSpec, runner: Runner, module: nvrtc.Module, shape: GemmShape
) -> ShapeResult:
    """Runs all trials of one shape.

    Raises BudgetError where the runner has a budget and the kernel exceeds it, PtxError for an
    instruction that the emulator does not know.
    """
    trials = verify_trials(spec, shape)
    cases = (run_trial(spec, runner, module, trial, runner) for trial in trials)
    return ShapeResult(spec, shape, tuple(cases))


def run_trial(
    spec: KernelSpec,
    runner: Runner,
    module: nvrtc.Module,
    trial: Trial,
    reference_runner: Runner | None = None,
) -> CaseResult:
    """Runs a kernel once and compares its result.

    `reference_runner` runs CUTLASS, if that is to be compared with, too. Raises BudgetError where
    the runner has a budget and the kernel exceeds it.
    """
    problem = trial.problem
    operands = draw_operands(spec, problem, trial.kind)
    if trial.in_place:
        operands = operands._replace(d_storage=storages(spec, problem, operands)["C"])
    seconds, findings = 0.0, tuple["Finding", ...]()
    try:
        start = time.perf_counter()
        storage = run_kernel(
            spec,
            runner,
            module,
            problem,
            operands,
            {
                **dict(zip(OPERANDS, trial.skips, strict=True)),
                **{o.name: trial.skips.bias for o in spec.operands if o.index},
            },
            in_place=trial.in_place,
            blocks=trial.blocks,
        )
        seconds = time.perf_counter() - start
        core = oracle.HOPPER if runner.target(_HOPPER) == _HOPPER else oracle.ANY
        worst, message = _compare(
            spec, reference_runner, problem, trial.kind, operands, storage, core
        )
    except (BudgetError, PtxError) as error:  # nothing was tried to its end
        if isinstance(error, BudgetError):
            error.findings = located(error.findings, spec, problem)
        raise
    except FindingsError as error:
        findings = located(error.findings, spec, problem)
        worst, message = np.inf, str(FindingsError(findings))
    except CheckError as error:
        worst, message = np.inf, str(error)
    if message:
        message = f"{trial}: {message}"
    return CaseResult(trial.kind, problem, not message, worst, seconds, message, findings)


def _compare(
    spec: KernelSpec,
    runner: Runner | None,
    problem: GemmProblem,
    kind: str,
    operands: Operands,
    storage: np.ndarray,
    core: oracle.TensorCore,
) -> tuple[float, str]:
    """The worst error as a fraction of its bound, and what is wrong, if anything."""
    got, output = results(spec, problem, storage), spec.dtypes.output.name
    stride_d = problem.batch.stride_d
    untouched = numerics.pack(got, spec.layouts.c, problem.ldd, output, stride_d)
    if untouched.tobytes() != storage.tobytes():
        return np.inf, "the gap between rows of D was overwritten"
    if spec.grouped:
        return _compare_groups(spec, runner, problem, kind, operands, got, core)
    worst = 0.0
    every = got if spec.batched else got[None]
    for i, (one, own) in enumerate(products(spec.layouts, problem, operands)):
        error, message = _compare_one(spec, runner, one, kind, own, every[i], core)
        worst = max(worst, error)
        if message:
            where = f"in product {i} of {problem.batch.products}, " if spec.batched else ""
            return worst, where + message
    return worst, ""


def _compare_groups(
    spec: KernelSpec,
    runner: Runner | None,
    problem: GemmProblem,
    kind: str,
    operands: Operands,
    got: np.ndarray,
    core: oracle.TensorCore,
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
    core: oracle.TensorCore,
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
    core: oracle.TensorCore = oracle.ANY,
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
    exact = _exact(spec, problem, operands)
    got = got[: len(exact)]
    if gelu and dtypes.accumulator.is_float:  # only what it leaves as it is has no error
        same = exact >= oracle.GELU_IS_IDENTITY
        exact, got = np.where(same, exact, 0), np.where(same, got, np.zeros((), got.dtype))
    if dtypes.output.is_float:
        exact = numerics.from_float64(exact, dtypes.output.name)
    message = _first_difference(spec, got, exact, "the oracle")
    return (np.inf if message else worst), message


def _against_intervals(
    spec: KernelSpec,
    problem: GemmProblem,
    operands: Operands,
    got: np.ndarray,
    kind: str,
    core: oracle.TensorCore,
    within: fused.Within | None,
) -> tuple[float, str]:
    """The same where the epilogue is the user's own: see `gen.prove.fused`."""
    output, rows = spec.dtypes.output, covered(problem)
    behind = ((0, problem.shape.m - rows), (0, 0))
    x, got = np.pad(_exact(spec, problem, operands), behind), got[:rows]
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


def _exact(spec: KernelSpec, problem: GemmProblem, operands: Operands) -> np.ndarray:
    """What the oracle has for the rows that are computed."""
    return by_group(problem, operands, lambda p, x: oracle.oracle(*_arguments(spec, p, x)))


def _bound(
    spec: KernelSpec,
    problem: GemmProblem,
    operands: Operands,
    core: oracle.TensorCore,
    exact_sums: bool = False,
    stored: bool = True,
) -> np.ndarray:
    """How far these may be off: see `oracle.error_bound`."""
    sums = oracle.sums_of(spec, core)

    def bound(p: GemmProblem, x: Operands) -> np.ndarray:
        arguments = _arguments(spec, p, x)
        return oracle.error_bound(*arguments, sums=sums, exact_sums=exact_sums, stored=stored)

    return by_group(problem, operands, bound)


def within_bound(
    spec: KernelSpec,
    problem: GemmProblem,
    operands: Operands,
    got: np.ndarray,
    core: oracle.TensorCore = oracle.ANY,
    exact_sums: bool = False,
) -> tuple[float, str]:
    """D (M x N, of storage) against the oracle; `exact_sums`: see `oracle.error_bound`.

    Where that is infinite or NaN, D has to be the same; elsewhere an error is bounded by what
    operands without infinities and NaN allow. Returns the worst error as a fraction of its bound,
    and what is wrong, if anything.
    """
    exact = _exact(spec, problem, operands)
    bound = _bound(spec, problem, finite(operands, spec.dtypes), core, exact_sums=exact_sums)
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
