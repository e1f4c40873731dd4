"""`gen check`: everything that the emulator can find wrong with a kernel, on shapes that matter.

The kernel is taken as its file has it now, edited or not; how to launch it comes from the file's
`gen-spec` line. On every shape it runs under all checks and, where they find nothing, its results
are compared with CUTLASS's and with the oracle's (`check_trials` says what is tried). Then come
problems that reach conditions of edited lines (`reaching`), and problems too large to store, in
matrices of which only a few parts are, or in sums of which most is skipped (`far`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gen.emulator import Finding
from gen.errors import command_words
from gen.prove.abreast import grouped
from gen.prove.accuracy import less_accurate
from gen.prove.far import Far, FarOutcome, run_far
from gen.prove.launchers.check import LauncherReport, check_launcher
from gen.prove.planned import Planned, plan
from gen.prove.reaching import reach
from gen.prove.stand import Limits, Outcome, Seen, Stand, outcomes
from gen.prove.trials import Trial
from gen.prove.unordered import unordered
from gen.prove.unreached import Unreached, lines_left, unreached
from gen.source.render import Source
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmShape

MAX_FINDINGS = 20
# Launches that go on after the first that finds something wrong: others then find little that is
# new, and a launch with findings takes long.
ENOUGH = 48
SLACK = 1024  # bytes of shared memory that an alignment may cost


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
    left: int = 0  # those that were not tried any more
    enough: bool = False  # whether that is because enough of them had found something wrong
    not_run: list[int] = field(default_factory=list)  # CUDA lines that no trial has reached
    unreached: list[Unreached] = field(default_factory=list)  # what is edited, and not checked
    unprobed: list[int] = field(default_factory=list)  # edited lines whose conditions nobody knows
    allow_unreached: bool = False  # whether that is right all the same
    seconds: float = 0.0  # in the kernel

    @property
    def ok(self) -> bool:
        """Whether there is nothing to complain about."""
        wrong = self.launcher.wrong if self.launcher else []
        left = self.unreached and not self.allow_unreached
        return not (self.findings or self.mismatches or self.error or wrong or left)


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
    enough: int | None = ENOUGH,
    also: Sequence[Trial] = (),
    allow_unreached: bool = False,
    thorough: bool = False,
    step: Callable[[], object] = lambda: None,
    report: CheckReport | None = None,
) -> CheckReport:
    """Checks a kernel, on shapes or on all that `check_trials` tries, or as `plan` has it.

    strict: report loads of memory that was never written, even if their values are not used.
    budget: thread-instructions that a launch may run (see `emulated.default_budget`). seconds: that
    all of it may take; if not given, a launch has a limit (see `emulated.default_time`). jobs:
    processes that share the work. first: stop at the first thing that is wrong. enough: or after so
    many more launches, None never. also: further trials. allow_unreached: whether edited conditions
    may lack an outcome. thorough: try of a kernel as `gen emit` writes it what is tried of an
    edited one. step: called after each trial. report: an empty one, which then has what was found
    before an interruption. Raises UsageError for a file that is no emitted kernel or whose
    `gen-spec` line does not describe it, CompileError where it does not compile.
    """
    planned = source if isinstance(source, Planned) else plan(source, shapes, also, thorough)
    spec, module, trials = planned.spec, planned.module, planned.trials
    deadline = None if seconds is None else time.perf_counter() + seconds
    limits = Limits(strict, max_findings, budget, deadline, first)
    report, seen = report or CheckReport(spec), Seen()
    report.allow_unreached = allow_unreached
    if trials:
        for finding in unordered(module):
            _add_finding(report, finding, trials[0].shape, max_findings)
    stand = Stand(spec, module, limits, planned.probed)
    far: list[FarOutcome] = []
    wrong = 0  # launches since the first that found something
    report.left = len(trials)
    items: list[tuple[Trial, ...] | Far] = [*grouped(spec, trials)]
    if planned.far and not first:  # not the last ones, so that processes end together
        items[len(items) // 3 : len(items) // 3] = planned.far
    for trial, outcome in outcomes(stand, items, jobs):
        if isinstance(outcome, FarOutcome) or trial is None:
            far += [outcome] if isinstance(outcome, FarOutcome) else []
            continue
        _add(report, trial.shape, outcome, max_findings)
        seen = seen.joined(outcome.seen)
        report.left -= 1
        step()
        wrong += wrong > 0 or _is_wrong(outcome)
        report.enough = enough is not None and wrong > enough and report.left > 0
        if report.error or report.enough or (first and not report.ok):
            break
    stopped = report.error or report.enough or (first and not report.ok)
    if report.enough:
        _add_far(report, far, max_findings)
        beyond = "problems beyond 32 bits" if planned.far and not far else ""
        left = "conditions that no launch reached" if planned.probed else ""
        report.skipped = "; ".join(filter(None, [report.skipped, beyond, left]))
    if planned.far and not stopped:
        stand.outcomes.seen = dict(seen.outcomes)
        for trial, outcome in reach(stand):
            _add(report, trial.shape, outcome, max_findings)
            seen = seen.joined(outcome.seen)
        report.not_run = sorted(seen.lines_not_run or ())
        far = far or [run_far(spec, module, part, deadline) for part in planned.far]
        _add_far(report, far, max_findings)
        if planned.probed:
            report.not_run = lines_left(planned.probed.edited, module, report.not_run)
        if planned.probed and not report.error:
            report.unreached = _unreached(report, stand, planned, deadline)
            report.unprobed += planned.probed.skipped
            if (
                report.ok
                and planned.probed.edited.edited
                and (worse := less_accurate(spec, module))
            ):
                report.mismatches.append(worse)
    if not stopped:
        report.launcher = check_launcher(planned.source)
        report.unreached += report.launcher.unreached
        report.unprobed += report.launcher.unprobed
    if planned.far and report.ok:
        report.notes += notes(seen)
    return report


def _unreached(
    report: CheckReport, stand: Stand, planned: Planned, deadline: float | None
) -> list[Unreached]:
    """What is left once the problems beyond 32 bits have been tried, too."""
    probed = planned.probed
    assert probed
    if probed.module and probed.missing(stand.outcomes.seen):
        for part in planned.far:
            run_far(stand.spec, probed.module, part, deadline, [stand.outcomes])
    return unreached(probed, stand.outcomes.seen, report.not_run, report.trials)


def notes(seen: Seen) -> Iterator[Note]:
    """Kernels that leave shared memory alone which their launch asks for, on every shape."""
    for name, (written, given) in seen.shared.items():
        if given - written > max(SLACK, given // 8):
            text = f"{name} uses {written} of the {given} bytes of shared memory that it is given"
            yield Note("shared-size", text)


def _add_far(report: CheckReport, outcomes: Iterable[FarOutcome], limit: int) -> None:
    where = "in matrices of more than 2^32 elements"
    for outcome in outcomes:
        for result in outcome.results:
            for finding in result.findings:
                _add_finding(report, finding, result.shape, limit)
            if result.message and not result.findings:
                report.mismatches.append((result.shape, f"{where}: {result.message}"))
        report.skipped = "; ".join(filter(None, [report.skipped, outcome.skipped]))
        report.not_run = [line for line in report.not_run if line not in outcome.lines]
        if outcome.error:
            report.error = f"{where}: {command_words(outcome.error)}"


def _is_wrong(outcome: Outcome) -> bool:
    return bool(outcome.findings or (outcome.result and outcome.result.message))


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


def lines_of(findings: Sequence[Occurrence]) -> Iterator[tuple[int, str]]:
    """The source lines that findings are about, each once, in order."""
    found = {}
    for one in findings:
        found[one.finding.file_line] = one.finding.source
        found[one.finding.other_line] = one.finding.other_source
    return ((line, text) for line, text in sorted(found.items()) if line)
