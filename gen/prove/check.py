"""`gen check`: everything that the emulator can find wrong with a kernel, on shapes that matter.

The kernel is taken as its file has it now, edited or not; how to launch it comes from the file's
`gen-spec` line. On every shape it runs under all checks and, where they find nothing, its results
are compared with CUTLASS's and with the oracle's. Last come two problems too large to store (see
`far_indices`).
"""

from __future__ import annotations

import itertools
import math
import multiprocessing
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from gen.compile import nvrtc
from gen.device.choose import FEW
from gen.device.emulated import EmulatorRunner
from gen.errors import BudgetError, CheckError, MissingError, UsageError
from gen.kernels.formulas import ceil_div
from gen.kernels.launches import MAP_BYTES, Argument, Launch, Pointer, TensorMap
from gen.kernels.registry import VARIANTS
from gen.prove.check_trials import check_trials, corner_trials
from gen.prove.far_indices import FarResult, far_results, why_not
from gen.prove.far_tiles import far_tiles
from gen.prove.trials import Trial
from gen.prove.verify import CaseResult, run_trial
from gen.source.render import Source
from gen.spec.kernel import KernelSpec
from gen.spec.problem import Alignment, GemmProblem, GemmShape

if TYPE_CHECKING:
    from gen.emulator import Finding, PtxKernel


MAX_FINDINGS = 20
MAX_ELEMENTS = 2 * 10**7  # of A, B and D together: some gigabytes with all copies and records
MAX_PRODUCTS = 10**11  # some hours
MAX_THRESHOLD = 4096  # of what a kernel compares with, what may be a size


@dataclass
class Occurrence:
    """A finding, the first shape that had it, and how many launches did."""

    finding: Finding
    shape: GemmShape
    launches: int = 1


@dataclass
class CheckReport:
    """What the checks of one kernel came to."""

    spec: KernelSpec
    shapes: list[GemmShape] = field(default_factory=list)  # those that were run
    findings: list[Occurrence] = field(default_factory=list)
    mismatches: list[tuple[GemmShape, str]] = field(default_factory=list)
    suppressed: int = 0  # findings that were like others, or beyond the limit
    error: str = ""  # what ended the check early
    skipped: str = ""  # what was not tried, and why
    trials: int = 0  # launches of the kernel
    not_run: list[int] = field(default_factory=list)  # CUDA lines that no trial has reached
    seconds: float = 0.0  # in the kernel

    @property
    def ok(self) -> bool:
        """Whether there is nothing to complain about."""
        return not (self.findings or self.mismatches or self.error)


def default_budget(spec: KernelSpec, shape: GemmShape) -> int:
    """Thread-instructions that no launch of this kind should need: some thirty times too many."""
    steps = spec.plan(GemmProblem.packed(shape, spec.layouts), _UNALIGNED)
    threads = max(math.prod(s.grid) * math.prod(s.block) for s in steps.launches)
    sizes = zip((shape.m, shape.n, shape.k), spec.threadblock, strict=True)
    work = math.prod(max(ceil_div(size, step), 1) * step for size, step in sizes)
    return 1000 * work + 50_000 * threads


@dataclass
class Stand:
    """Where trials of one file are run, in a process of their own or in this one."""

    source: Source
    strict: bool
    max_findings: int
    budget: int | None

    def __post_init__(self) -> None:
        self.spec, self.module = _compiled(self.source)
        checks = ("race", "init") if self.strict else ("race",)
        self.runner = EmulatorRunner(checks, self.max_findings)
        self.plain = EmulatorRunner()  # for CUTLASS

    def run(self, trial: Trial) -> Outcome:
        """Runs a trial; what ends the check early is its error."""
        runner = self.runner
        runner.budget = self.budget or default_budget(self.spec, trial.shape)
        runner.multiprocessors = trial.multiprocessors or FEW
        runner.watched = trial.watched
        reference = self.plain if trial.watched and trial.kind == "integer" else None
        before, error, result = runner.suppressed, "", None
        try:
            result = run_trial(self.spec, runner, self.module, trial, reference)
        except BudgetError as reason:
            error = str(reason).replace("raise instruction_budget", "use a larger --budget")
        except UsageError as reason:  # what a GPU would refuse to launch
            error = str(reason)
        lines = runner.lines_not_run(self.module)
        return Outcome(result, error, runner.suppressed - before, lines)


class Outcome(NamedTuple):
    """What became of a trial, and the lines that no trial of its process has run."""

    result: CaseResult | None
    error: str
    suppressed: int
    not_run: set[int]


_stand: Stand  # of a process that runs trials for another


def _set_up(*arguments: Any) -> None:
    global _stand
    _stand = Stand(*arguments)


def _run(trial: Trial) -> Outcome:
    return _stand.run(trial)


def check(
    source: Source,
    shapes: Sequence[GemmShape] | None = None,
    *,
    strict: bool = False,
    max_findings: int = MAX_FINDINGS,
    budget: int | None = None,
    jobs: int = 1,
    first: bool = False,
    step: Callable[[], object] = lambda: None,
) -> CheckReport:
    """Checks a kernel, on shapes or on all that `trials.check_trials` tries.

    strict: report loads of memory that was never written, even if their values are not used.
    budget: thread-instructions that a launch may run (see `default_budget`). jobs: processes that
    share the work. first: stop at the first thing that is wrong. step: called after each trial.
    Raises UsageError for a file that is no emitted kernel or whose `gen-spec` line does not
    describe it, CompileError where it does not compile.
    """
    for shape in shapes or ():
        _check_size(shape)
    trials = planned_trials(source, shapes)
    stand = Stand(source, strict, max_findings, budget)
    report = CheckReport(stand.spec)
    not_run: set[int] | None = None
    for trial, outcome in zip(trials, _outcomes(stand, trials, jobs), strict=False):
        _add(report, trial.shape, outcome, max_findings)
        not_run = outcome.not_run if not_run is None else not_run & outcome.not_run
        step()
        if report.error or (first and not report.ok):
            break
    if shapes is None and not report.error and (report.ok or not first):
        report.not_run = sorted(not_run or ())
        _check_far(report, stand, max_findings)
    return report


def _outcomes(stand: Stand, trials: Sequence[Trial], jobs: int) -> Iterator[Outcome]:
    """The outcomes of trials in their order."""
    if jobs == 1 or not stand.spec.warp:  # on CUDA cores they take less than to start processes
        yield from map(stand.run, trials)
        return
    arguments = (stand.source, stand.strict, stand.max_findings, stand.budget)
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, _set_up, arguments) as pool:
        yield from pool.imap(_run, trials, chunksize=2)


def _compiled(source: Source) -> tuple[KernelSpec, nvrtc.Module]:
    spec = source.spec
    if spec is None:
        raise UsageError(_NO_SPEC.format(name=source.place, variants=", ".join(VARIANTS)))
    module = nvrtc.compile_cuda(source.text, name=f"{spec.name}.cu", arch=spec.arch)
    _check_kernel(spec, module)
    return spec, module


def planned_trials(source: Source, shapes: Sequence[GemmShape] | None = None) -> list[Trial]:
    """What `check` tries, on shapes or on those that it chooses itself. Raises as `check`."""
    spec, module = _compiled(source)
    if shapes is not None:
        return [trial for shape in shapes for trial in corner_trials(spec, shape)]
    return check_trials(spec, thresholds(module))


def thresholds(module: nvrtc.Module) -> list[int]:
    """Numbers that the kernels compare something with: beyond them, they may do something else."""
    from gen.emulator import parse_ptx

    found = {abs(number) for number in parse_ptx(module.code.decode()).comparisons}
    return sorted(number for number in found if number <= MAX_THRESHOLD)


def _check_far(report: CheckReport, stand: Stand, limit: int) -> None:
    spec, module = stand.spec, stand.module
    results: list[Iterator[FarResult]] = []
    if reason := why_not(spec):
        report.skipped = f"lines more than 2^32 elements apart: {reason}"
    else:
        results.append(far_results(spec, module))
    if spec.row.takes_workspace:
        results.append(far_tiles(spec, module))
    try:
        for result in itertools.chain(*results):
            for finding in result.findings:
                _add_finding(report, finding, result.shape, limit)
            if result.message and not result.findings:
                far = f"in matrices of more than 2^32 elements: {result.message}"
                report.mismatches.append((result.shape, far))
    except MissingError as error:
        report.skipped = f"tiles more than 2^32 elements behind the first: {error}"
    except CheckError as error:
        report.error = f"in matrices of more than 2^32 elements: {error}"


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
    if result := outcome.result:
        report.seconds += result.seconds
        for finding in result.findings:
            _add_finding(report, finding, shape, limit)
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


def _check_size(shape: GemmShape) -> None:
    """Refuses what would fill this machine's memory, or run for days."""
    m, n, k = shape.m, shape.n, shape.k
    elements = m * k + k * n + m * n
    if elements > MAX_ELEMENTS or m * n * k > MAX_PRODUCTS:
        raise UsageError(
            f"{shape} has {elements:.3g} elements and {m * n * k:.3g} products, more than the "
            f"{MAX_ELEMENTS:.3g} and {MAX_PRODUCTS:.3g} that can be checked; use a smaller shape"
        )


# Where each of a file's kernels takes part: operands that need packing, a long sum in slices.
_UNALIGNED = Alignment(False, False, False)
_LONG = GemmShape(1, 1, 2**20)


def launches(spec: KernelSpec) -> tuple[Launch, ...]:
    """A launch of each kernel that the file of a specification has."""
    return spec.plan(GemmProblem.packed(_LONG, spec.layouts), _UNALIGNED).launches


def _check_kernel(spec: KernelSpec, module: nvrtc.Module) -> None:
    """Raises UsageError where the file's kernels are not what its `gen-spec` line says."""
    from gen.emulator import parse_ptx

    kernels = parse_ptx(module.code.decode()).kernels
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
