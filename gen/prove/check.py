"""`gen check`: everything that the emulator can find wrong with a kernel, on shapes that matter.

The kernel is taken as its file has it now, edited or not; how to launch it comes from the file's
`gen-spec` line. On every shape it runs under all checks and, where they find nothing, its results
are compared with CUTLASS's and with the oracle's (`check_trials` says what is tried). Last come
problems too large to store, in matrices of which only a few parts are (`far_indices`, `far_tiles`).
"""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from gen.compile import nvrtc
from gen.device.emulated import default_time
from gen.emulator import Finding, PtxKernel, PtxModule, parse_ptx
from gen.errors import CheckError, MissingError, UsageError
from gen.kernels.launches import MAP_BYTES, Argument, Launch, Pointer, TensorMap
from gen.kernels.registry import VARIANTS
from gen.prove.check_trials import check_trials, corner_trials
from gen.prove.far_indices import FarResult, far_results, why_not
from gen.prove.far_tiles import far_tiles
from gen.prove.launcher import LauncherReport, check_launcher
from gen.prove.stand import Limits, Outcome, Seen, advice, outcomes
from gen.prove.trials import Trial, emulated
from gen.source.render import Source
from gen.spec.arch import MULTIPROCESSORS
from gen.spec.kernel import KernelSpec
from gen.spec.problem import Alignment, GemmProblem, GemmShape

MAX_FINDINGS = 20
SLACK = 1024  # bytes of shared memory that an alignment may cost
MAX_THRESHOLD = 4096  # of what a kernel compares with, what may be a size


@dataclass
class Occurrence:
    """A finding, the first shape that had it, and how many launches did."""

    finding: Finding
    shape: GemmShape
    launches: int = 1


class Note(NamedTuple):
    """What is not wrong, but worth a look; kind: "shared-size"."""

    kind: str
    message: str


@dataclass
class CheckReport:
    """What the checks of one kernel came to."""

    spec: KernelSpec
    shapes: list[GemmShape] = field(default_factory=list)  # those that were run
    findings: list[Occurrence] = field(default_factory=list)
    mismatches: list[tuple[GemmShape, str]] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    suppressed: int = 0  # findings that were like others, or beyond the limit
    error: str = ""  # what ended the check early
    skipped: str = ""  # what was not tried, and why
    launcher: LauncherReport | None = None  # None where it was not looked at
    trials: int = 0  # launches of the kernel
    not_run: list[int] = field(default_factory=list)  # CUDA lines that no trial has reached
    seconds: float = 0.0  # in the kernel

    @property
    def ok(self) -> bool:
        """Whether there is nothing to complain about."""
        wrong = self.launcher.wrong if self.launcher else []
        return not (self.findings or self.mismatches or self.error or wrong)


def check(
    source: Source | Planned,
    shapes: Sequence[GemmShape] | None = None,
    *,
    strict: bool = False,
    max_findings: int = MAX_FINDINGS,
    budget: int | None = None,
    seconds: float | None = None,
    jobs: int = 1,
    first: bool = False,
    step: Callable[[], object] = lambda: None,
    report: CheckReport | None = None,
) -> CheckReport:
    """Checks a kernel, on shapes or on all that `check_trials` tries, or as `plan` has it.

    strict: report loads of memory that was never written, even if their values are not used.
    budget: thread-instructions that a launch may run (see `emulated.default_budget`). seconds: that
    all of it may take; if not given, a launch has a limit (see `emulated.default_time`). jobs:
    processes that share the work. first: stop at the first thing that is wrong. step: called after
    each trial. report: an empty one, which then has what was found before an interruption. Raises
    UsageError for a file that is no emitted kernel or whose `gen-spec` line does not describe it,
    CompileError where it does not compile.
    """
    planned = source if isinstance(source, Planned) else plan(source, shapes)
    spec, module, trials = planned.spec, planned.module, planned.trials
    deadline = None if seconds is None else time.perf_counter() + seconds
    limits = Limits(strict, max_findings, budget, deadline)
    report, seen = report or CheckReport(spec), Seen()
    for trial, outcome in zip(trials, outcomes(spec, module, limits, trials, jobs), strict=False):
        _add(report, trial.shape, outcome, max_findings)
        seen = seen.joined(outcome.seen)
        step()
        if report.error or (first and not report.ok):
            break
    if planned.far and not report.error and (report.ok or not first):
        report.not_run = sorted(seen.lines_not_run or ())
        _check_far(report, spec, module, max_findings, deadline or far_deadline())
    if not report.error and (report.ok or not first):
        report.launcher = check_launcher(planned.source)
    if planned.far and report.ok:
        report.notes += notes(seen)
    return report


def notes(seen: Seen) -> Iterator[Note]:
    """Kernels that leave shared memory alone which their launch asks for, on every shape."""
    for name, (written, given) in seen.shared.items():
        if given - written > max(SLACK, given // 8):
            text = f"{name} uses {written} of the {given} bytes of shared memory that it is given"
            yield Note("shared-size", text)


class Planned(NamedTuple):
    """A kernel, compiled, and what `check` tries of it.

    far: whether that is all that a kernel is checked for, large matrices too, and not shapes that
    somebody named.
    """

    source: Source
    spec: KernelSpec
    module: nvrtc.Module
    trials: list[Trial]
    far: bool


def plan(source: Source, shapes: Sequence[GemmShape] | None = None) -> Planned:
    """What `check` tries, on shapes or on those that it chooses itself. Raises as `check`."""
    emulated(shapes or ())
    spec = source.spec
    if spec is None:
        raise UsageError(_NO_SPEC.format(name=source.place, variants=", ".join(VARIANTS)))
    module = nvrtc.compile_cuda(source.text, name=source.place, arch=spec.arch)
    ptx = parse_ptx(module.code.decode())
    _check_kernels(spec, ptx)
    if shapes is not None:
        trials = [trial for shape in shapes for trial in corner_trials(spec, shape)]
        return Planned(source, spec, module, trials, far=False)
    return Planned(source, spec, module, check_trials(spec, thresholds(ptx)), far=True)


def thresholds(ptx: PtxModule) -> list[int]:
    """Numbers that the kernels compare something with: beyond them, they may do something else."""
    found = {abs(number) for number in ptx.comparisons}
    return sorted(number for number in found if number <= MAX_THRESHOLD)


def far_deadline() -> float:
    """When what is tried beyond 32 bits should have ended, if nothing else is said."""
    return time.perf_counter() + default_time(_LONG)


def _check_far(
    report: CheckReport, spec: KernelSpec, module: nvrtc.Module, limit: int, deadline: float
) -> None:
    results: list[Iterator[FarResult]] = []
    if reason := why_not(spec):
        report.skipped = f"lines more than 2^32 elements apart: {reason}"
    else:
        results.append(far_results(spec, module, deadline))
    results.append(far_tiles(spec, module, deadline))
    try:
        for result in itertools.chain(*results):
            for finding in result.findings:
                _add_finding(report, finding, result.shape, limit)
            if result.message and not result.findings:
                far = f"in matrices of more than 2^32 elements: {result.message}"
                report.mismatches.append((result.shape, far))
    except MissingError as error:
        tiles = f"tiles more than 2^32 elements behind the first: {error}"
        report.skipped = "; ".join(filter(None, [report.skipped, tiles]))
    except CheckError as error:
        report.error = f"in matrices of more than 2^32 elements: {advice(error)}"


_NO_SPEC = (
    "{name} has no gen-spec line, which says how to launch the kernel; edit a file that gen emit "
    'has written, or add a comment line such as // gen-spec: {{"variant": "tiles", "dtype": "f32", '
    '"name": "my_kernel"}} (variants: {variants})'
)


def _add(report: CheckReport, shape: GemmShape, outcome: Outcome, limit: int) -> None:
    report.trials += 1
    if shape not in report.shapes:
        report.shapes.append(shape)
    report.suppressed += outcome.suppressed
    if outcome.error:
        report.error = f"on {shape}: {outcome.error}"
    for finding in outcome.findings:
        _add_finding(report, finding, shape, limit)
    if result := outcome.result:
        report.seconds += result.seconds
        if result.message and not result.findings:
            report.mismatches.append((shape, result.message))


def _add_finding(report: CheckReport, finding: Finding, shape: GemmShape, limit: int) -> None:
    same = next((o for o in report.findings if _alike(o.finding, finding)), None)
    if same:
        same.launches += 1
    elif len(report.findings) < limit:
        report.findings.append(Occurrence(finding, shape))
    else:
        report.suppressed += 1


def _alike(one: Finding, other: Finding) -> bool:
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("check", "kind", "file_line", "other_line")
    ) and (one.kind != "" or _buffer(one) == _buffer(other))


def _buffer(finding: Finding) -> str:
    return re.split(r"[+-]", finding.address)[0]


# Where each of a file's kernels takes part: operands that need packing, a long sum in slices, tiles
# that blocks share.
_UNALIGNED = Alignment(False, False, False)
_LONG = GemmShape(1, 1, 2**20)


def launches(spec: KernelSpec) -> tuple[Launch, ...]:
    """A launch of each kernel that the file of a specification has."""
    shape, multiprocessors = _LONG, MULTIPROCESSORS
    if spec.stream_k:  # three tiles for two
        rows = 2 * spec.threadblock.m + 1
        shape = replace(_LONG, m=rows) if spec.layouts.c else replace(_LONG, n=rows)
        multiprocessors = 2
    problem = GemmProblem.packed(shape, spec.layouts)
    return spec.plan(problem, _UNALIGNED, multiprocessors).launches


def _check_kernels(spec: KernelSpec, ptx: PtxModule) -> None:
    """Raises UsageError where the file's kernels are not what its `gen-spec` line says."""
    kernels = ptx.kernels
    for launch in launches(spec):
        if launch.kernel not in kernels:
            found = ", ".join(kernels) or "none"
            raise UsageError(
                f"the file's gen-spec line names the kernel {launch.kernel}, but the file's "
                f'kernels are: {found}; rename the kernel, or set "name" in the gen-spec line'
            )
        kernel = kernels[launch.kernel]
        sizes = [_size(arg) for arg in launch.args.values()]
        if [parameter.nbytes for parameter in kernel.params] != sizes:
            raise UsageError(
                f"the parameters of {launch.kernel} are not those of an emitted kernel any more: "
                f"{len(kernel.params)} of {', '.join(str(p.nbytes) for p in kernel.params)} bytes, "
                f"not {len(sizes)} of {', '.join(map(str, sizes))} ({', '.join(launch.args)})"
            )
        _check_threads(launch, kernel)


def _size(argument: Argument) -> int:
    """Bytes of a kernel's parameter."""
    if isinstance(argument, TensorMap):
        return MAP_BYTES
    return 8 if isinstance(argument, Pointer) else argument.nbytes


def _check_threads(launch: Launch, kernel: PtxKernel) -> None:
    wanted = math.prod(launch.block)
    if kernel.max_threads and math.prod(kernel.max_threads) != wanted:
        raise UsageError(
            f"the file's block has {math.prod(kernel.max_threads)} threads (__launch_bounds__), "
            f"but its gen-spec line describes one of {wanted}; change that line to fit the file"
        )


def lines_of(findings: Sequence[Occurrence]) -> Iterator[tuple[int, str]]:
    """The source lines that findings are about, each once, in order."""
    found = {}
    for one in findings:
        found[one.finding.file_line] = one.finding.source
        found[one.finding.other_line] = one.finding.other_source
    return ((line, text) for line, text in sorted(found.items()) if line)
