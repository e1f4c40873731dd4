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

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gen.compile import nvrtc
from gen.device.execute import Case, FindingsError, run_kernel, storages
from gen.device.runner import Runner
from gen.errors import BudgetError, CheckError, PtxError
from gen.prove import kernel_sums
from gen.prove.compare import compare
from gen.prove.inputs import draw_operands
from gen.prove.places import located
from gen.prove.trials import OPERANDS, Trial, verify_trials
from gen.source.render import Source, render
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmProblem, GemmShape

if TYPE_CHECKING:
    from gen.emulator import Finding


# What runs its code: GPUs whose tensor cores are known to the bit, and the emulator, which has the
# same ones whatever the code is for.
_HOPPER = "sm_90a"


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


def drawn_case(spec: KernelSpec, trial: Trial) -> Case:
    """What a trial runs with."""
    problem = trial.problem
    operands = draw_operands(spec, problem, trial.kind)
    if trial.in_place:
        operands = operands._replace(d_storage=storages(spec, problem, operands)["C"])
    return Case(problem, operands, drawn_skips(spec, trial), trial.in_place)


def drawn_skips(spec: KernelSpec, trial: Trial) -> dict[str, int]:
    """How far behind a well-aligned address each array of a trial starts, in elements."""
    own = {o.name: trial.skips.bias for o in spec.operands if o.index}
    return {**dict(zip(OPERANDS, trial.skips, strict=True)), **own}


def compared(
    spec: KernelSpec, runner: Runner, trial: Trial, case: Case, storage: np.ndarray,
    reference_runner: Runner | None,
) -> tuple[float, str]:  # fmt: skip
    """The largest error of D, and what is wrong with it: see `CaseResult`."""
    core = kernel_sums.HOPPER if runner.target(_HOPPER) == _HOPPER else kernel_sums.ANY
    problem, operands = trial.problem, case.operands
    return compare(spec, reference_runner, problem, trial.kind, operands, storage, core)


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
    problem, case = trial.problem, drawn_case(spec, trial)
    seconds, findings = 0.0, tuple["Finding", ...]()
    try:
        start = time.perf_counter()
        storage = run_kernel(spec, runner, module, case, blocks=trial.blocks)
        seconds = time.perf_counter() - start
        worst, message = compared(spec, runner, trial, case, storage, reference_runner)
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
