"""`--gemm`: a kernel tried as a matrix product.

The inputs, the oracle and the error bounds are those of `gen verify`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gen.device.execute import Operands
from gen.emulator import Finding
from gen.errors import UsageError
from gen.foreign.launch import LaunchText, sizes
from gen.foreign.roles import Gemm, default_shapes
from gen.foreign.running import MOST_FINDINGS, Checks, Outcome, Undefined, run_steps
from gen.foreign.steps import Step
from gen.kernels.registry import make_spec
from gen.prove import oracle
from gen.prove.inputs import draw_operands
from gen.prove.kernel_sums import any_tensor_core
from gen.prove.sums import Sums, rounded_sums
from gen.prove.trials import Trial, verify_trials
from gen.spec import numerics
from gen.spec.problem import GemmProblem, GemmShape

_SLICES = 64  # that a sum may be split into, for the bound of its error


@dataclass
class GemmReport:
    """What came of a kernel on several shapes."""

    title: str
    dtype: str
    shapes: list[GemmShape] = field(default_factory=list)
    right: list[GemmShape] = field(default_factory=list)
    findings: list[tuple[Finding, GemmShape]] = field(default_factory=list)
    notes: list[tuple[Finding, GemmShape]] = field(default_factory=list)
    mismatches: list[tuple[GemmShape, str]] = field(default_factory=list)
    worst: float = 0.0  # the largest error as a fraction of its bound
    stopped: str = ""
    suppressed: int = 0
    seconds: float = 0.0
    left_out: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether there is nothing to complain about."""
        return not (self.findings or self.mismatches or self.stopped)


def check_gemm(
    gemm: Gemm,
    checks: Checks,
    shapes: Sequence[GemmShape] | None = None,
    step: Callable[[], object] = lambda: None,
) -> GemmReport:
    """Tries a kernel on shapes: under all checks, against the oracle. Raises UsageError."""
    report = GemmReport(gemm.built.title, gemm.dtypes.name, left_out=list(gemm.built.notes))
    for shape in default_shapes(gemm) if shapes is None else shapes:
        if not gemm.fits(shape):
            raise UsageError(
                f"--shape {shape}: one parameter of {gemm.built.title} is several of M, N and K; "
                "use equal sizes"
            )
        report.shapes.append(shape)
        good = True
        for trial in _trials(gemm, shape):
            good &= _try(gemm, report, checks, trial)
            if report.stopped or (checks.first and not good):
                return report
            if not good:
                break
        if good:
            report.right.append(shape)
        step()
    return report


def _trials(gemm: Gemm, shape: GemmShape) -> list[Trial]:
    """Those of `gen verify`, as far as the kernel has alpha, beta and leading dimensions."""
    found = []
    for trial in verify_trials(make_spec("naive"), shape):
        kind, problem = trial.kind, trial.problem
        if kind == "random" and not gemm.dtypes.accumulator.is_float:
            problem = replace(problem, alpha=-7, beta=5)
        alpha = problem.alpha if "alpha" in gemm.roles else 1
        beta = problem.beta if "beta" in gemm.roles else 0
        found.append(Trial(_problem(gemm, replace(problem, alpha=alpha, beta=beta)), kind))
    return list(dict.fromkeys(found))


def _problem(gemm: Gemm, given: GemmProblem) -> GemmProblem:
    """The problem, with gaps between the rows of matrices whose leading dimension it takes."""
    layouts, shape = gemm.spec.layouts, given.shape
    padding = given.lda - shape.k  # of our row-major kernel's
    wide = GemmProblem.packed(shape, layouts, given.alpha, given.beta, padding)
    dense = GemmProblem.packed(shape, layouts)
    for ld in ("lda", "ldb", "ldc", "ldd"):
        if ld not in gemm.roles:
            wide = replace(wide, **{ld: getattr(dense, ld)})
    return wide if "D" in gemm.roles else replace(wide, ldd=wide.ldc)


def _try(gemm: Gemm, report: GemmReport, checks: Checks, trial: Trial) -> bool:
    problem, shape = trial.problem, trial.shape
    operands = draw_operands(gemm.spec, problem, trial.kind)
    if problem.beta == 0 and gemm.output == "C":
        # A kernel in place may read C even then, as most do.
        operands = operands._replace(c=np.zeros_like(operands.c))
    step = Step(gemm.built, _launch(gemm, shape), _values(gemm, problem, operands))
    # Many of them are like those of other shapes.
    outcome = run_steps([step], replace(checks, max_findings=MOST_FINDINGS))
    report.seconds += outcome.seconds
    report.suppressed += outcome.suppressed
    for kept, found in ((report.findings, outcome.findings), (report.notes, outcome.notes)):
        _keep(kept, found, shape)
        report.suppressed += len(kept[checks.max_findings :])
        del kept[checks.max_findings :]
    if outcome.stopped:
        report.stopped = f"on {shape}: {outcome.stopped}"
        return False
    if outcome.findings:
        return False
    for schedule, one in outcome.schedules.items():
        worst, message = _compare(gemm, trial, operands, one)
        report.worst = max(report.worst, worst)
        if message:
            message += schedule
            break
    if message:
        beta = f", beta={problem.beta}" if "beta" in gemm.roles else ""
        alpha = f", alpha={problem.alpha}" if "alpha" in gemm.roles else ""
        report.mismatches.append((shape, f"{trial.kind} inputs{alpha}{beta}: {message}"))
    return not message


def _keep(
    kept: list[tuple[Finding, GemmShape]], found: Sequence[Finding], shape: GemmShape
) -> None:
    """Adds findings that are not like one of another shape."""

    def key(finding: Finding) -> tuple[object, ...]:
        buffer = re.split(r"[+-]", finding.address)[0]
        return finding.check, finding.kind, finding.file_line, finding.other_line, buffer

    known = {key(finding) for finding, _ in kept}
    for finding in found:
        if key(finding) not in known:
            known.add(key(finding))
            kept.append((finding, shape))


def _launch(gemm: Gemm, shape: GemmShape) -> LaunchText:
    """The launch with the grid, block, cluster and shared memory of a shape."""
    numbers, text = gemm.sizes(shape), gemm.text

    def said(what: str, given: str | None) -> str:
        return ",".join(map(str, sizes(given, what, numbers)))

    return replace(
        text, grid=said("grid", text.grid), block=said("block", text.block),
        cluster=said("cluster", text.cluster) if text.cluster else None,
        dynamic_shared=str(sizes(text.dynamic_shared, "dynamic-shared", numbers)[0]),
    )  # fmt: skip


def _values(gemm: Gemm, problem: GemmProblem, x: Operands) -> dict[str, object]:
    """The arguments that roles stand for."""
    layouts, dtypes = gemm.spec.layouts, gemm.dtypes
    input_, output = dtypes.input.name, dtypes.output.name
    empty = np.full_like(x.c, numerics.poison(output))
    by_role: dict[str, object] = {
        "A": numerics.pack(x.a, layouts.a, problem.lda, input_),
        "B": numerics.pack(x.b, layouts.b, problem.ldb, input_),
        "C": numerics.pack(x.c, layouts.c, problem.ldc, output),
        "D": Undefined(numerics.pack(empty, layouts.c, problem.ldd, output)),
        "M": problem.shape.m, "N": problem.shape.n, "K": problem.shape.k,
        "lda": problem.lda, "ldb": problem.ldb, "ldc": problem.ldc, "ldd": problem.ldd,
        "alpha": problem.alpha, "beta": problem.beta,
    }  # fmt: skip
    if gemm.output == "C" and "beta" not in gemm.roles:
        by_role["C"] = by_role["D"]
    return {name: by_role[role] for role, name in gemm.roles.items()}


def _compare(gemm: Gemm, trial: Trial, x: Operands, outcome: Outcome) -> tuple[float, str]:
    """The largest error as a fraction of its bound, and what is wrong, if anything."""
    problem, shape, dtypes = trial.problem, trial.shape, gemm.dtypes
    row_major, name = gemm.spec.layouts.c, dtypes.output.name
    storage = outcome.stored[gemm.roles[gemm.output]]
    ld = problem.ldd if gemm.output == "D" else problem.ldc
    got = numerics.unpack(storage, shape.m, shape.n, row_major, ld)
    if numerics.pack(got, row_major, ld, name).tobytes() != storage.tobytes():
        return np.inf, "the gap between rows of the result was overwritten"
    arguments = (x.a, x.b, x.c, problem.alpha, problem.beta, dtypes.name)
    exact = oracle.oracle(*arguments)
    values = numerics.to_float64(got, name)
    if trial.kind == "integer" or not dtypes.accumulator.is_float:
        bound = np.zeros_like(values)
        if name != dtypes.accumulator.name:
            exact = numerics.to_float64(numerics.from_float64(exact, name), name)
    else:
        bound = oracle.error_bound(*arguments, sums=_sums(gemm))
    error = np.abs(values - exact.astype(np.float64))
    good = error <= bound  # False for NaN
    with np.errstate(all="ignore"):
        ratio = np.where(error == 0, 0.0, error / bound)
    if good.all():
        return float(np.max(ratio, initial=0.0)), ""
    i, j = (int(at) for at in np.argwhere(~good)[0])
    return np.inf, (
        f"{gemm.output}({i}, {j}) is {values[i, j]:.9g}, the oracle has {exact[i, j]:.9g} "
        f"(bound of the error: {bound[i, j]:.3g}); {np.count_nonzero(~good)} of {good.size} differ"
    )


def _sums(gemm: Gemm) -> Sums:
    """How the kernel may sum: on tensor cores if it has an `mma`, perhaps in slices."""
    accumulator = gemm.dtypes.accumulator.name
    if re.search(r"^\s*w?mma\.", gemm.built.ptx, re.MULTILINE) and accumulator != "f16":
        return any_tensor_core(_SLICES, gemm.dtypes)
    return rounded_sums(_SLICES, numerics.unit_roundoff(accumulator))
