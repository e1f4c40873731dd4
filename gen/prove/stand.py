"""Runs the trials of a kernel under the emulator's checks, in this process or in several."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from gen.compile.nvrtc import Module
from gen.device.abreast import run_abreast
from gen.device.emulated import EmulatorRunner, default_budget, default_time
from gen.emulator import Chances, Finding, Outcomes, SharedUse
from gen.errors import BudgetError, CheckError, PtxError, UsageError, command_words
from gen.prove.abreast import drawn, multiprocessors, run_together
from gen.prove.far import Far, FarOutcome, run_far
from gen.prove.limits import emulated_cost
from gen.prove.trials import Trial
from gen.prove.unreached import Probed
from gen.prove.verify import CaseResult, run_trial
from gen.spec.kernel import KernelSpec
from gen.spread.job import Cost, Job, in_order
from gen.spread.processes import Processes

if TYPE_CHECKING:
    Item = tuple[Trial, ...] | Far  # trials that run abreast, or what is far away


class Limits(NamedTuple):
    """How strict the checks are, and where they end.

    strict: report loads of memory that was never written. max_findings, budget: of a launch; no
    budget is `default_budget`. deadline: of everything, as time.perf_counter gives it; without one,
    a launch has `default_time`. first: whether one that is wrong is enough.
    """

    strict: bool
    max_findings: int
    budget: int | None = None
    deadline: float | None = None
    first: bool = False


@dataclass(frozen=True)
class Seen:
    """What launches have left alone: lines of CUDA, and shared memory (see `SharedUse`).

    outcomes: of the conditions of a kernel with probes (see `Outcomes`).
    """

    lines_not_run: set[int] | None = None
    shared: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    outcomes: Mapping[int, int] = field(default_factory=dict)

    def joined(self, other: Seen) -> Seen:
        """What neither has touched."""
        both = [lines for lines in (self.lines_not_run, other.lines_not_run) if lines is not None]
        shared = dict(self.shared)
        for name, (written, given) in other.shared.items():
            before, size = shared.get(name, (0, 0))
            shared[name] = max(written, before), max(given, size)
        outcomes = dict(self.outcomes)
        for number, seen in other.outcomes.items():
            outcomes[number] = outcomes.get(number, 0) | seen
        return Seen(set.intersection(*both) if both else None, shared, outcomes)


class Outcome(NamedTuple):
    """What became of a trial. `error` is what ends the check early, `seen` of all trials so far."""

    result: CaseResult | None
    findings: Sequence[Finding]
    error: str
    suppressed: int
    seen: Seen


class Stand:
    """Where trials of one kernel are run, one after another.

    probed: the same kernel with probes, which runs until all conditions have had their outcomes.
    """

    def __init__(
        self, spec: KernelSpec, module: Module, limits: Limits, probed: Probed | None = None
    ) -> None:
        self.spec, self.module, self.limits, self.probed = spec, module, limits, probed
        self.outcomes = Outcomes()
        self.prober = EmulatorRunner(observers=[self.outcomes])
        self.prober.deadline = limits.deadline
        self.use = SharedUse()
        checks = ("race", "init") if limits.strict else ("race",)
        self.runner = EmulatorRunner(checks, limits.max_findings, [self.use])
        self.runner.deadline = limits.deadline
        self.plain = EmulatorRunner()  # for CUTLASS

    def run(self, trials: Sequence[Trial]) -> list[Outcome]:
        """Runs trials that may run abreast: together, and alone where anything is wrong.

        The first one with an error is the last one that runs, or any that is wrong (`Limits`).
        """
        new = self._new(trials)
        together = [trial for trial, only in zip(trials, new, strict=True) if not only]
        results = dict(zip(together, self._together(together), strict=False))
        seen = self._seen()
        found: list[Outcome] = []
        for trial, only in zip(trials, new, strict=True):
            fine = trial in results and results[trial].ok
            found.append(
                Outcome(results[trial], (), "", 0, seen) if fine else self._alone(trial, only)
            )
            if found[-1].error or (self.limits.first and not _is_right(found[-1])):
                break
        return found

    def _new(self, trials: Sequence[Trial]) -> list[bool]:
        """`probe` of each; where all of them together show nothing new, none of them does."""
        before = dict(self.outcomes.seen)
        if len(trials) > 1 and self._probe(trials) and self.outcomes.seen == before:
            return [False] * len(trials)
        self.outcomes.seen = before
        return [self.probe(trial) for trial in trials]

    def _together(self, trials: Sequence[Trial]) -> list[CaseResult]:
        """The results of several trials; none where there is more to say of any."""
        if len(trials) < 2:
            return []
        self._prepare(self.runner, trials)
        runner, before = self.runner, self.runner.suppressed
        references = [self._reference(trial) for trial in trials]
        try:
            return run_together(self.spec, runner, self.module, trials, references)
        except (BudgetError, PtxError, UsageError, CheckError):
            runner.suppressed = before
            return []

    def _prepare(self, runner: EmulatorRunner, trials: Sequence[Trial]) -> None:
        """Sets a runner up for trials that run abreast.

        Of several, one that never ends does so again alone, and says why then.
        """
        limits, spec, one = self.limits, self.spec, trials[0]
        late = _LATE if one.late else 1
        runner.budget = sum(limits.budget or default_budget(spec, t.problem) for t in trials) * late
        if len(trials) > 1:
            left = limits.deadline - time.perf_counter() if limits.deadline else math.inf
            runner.budget, runner.time_budget = runner.budget // _SPARE, min(_TOGETHER, left / 2)
        else:
            long = default_time(one.shape, one.problem.batch.products)
            runner.time_budget = None if limits.deadline else long
        runner.multiprocessors = multiprocessors(one)
        runner.watched = one.watched
        furnish(runner, one)

    def _reference(self, trial: Trial) -> EmulatorRunner | None:
        """Where CUTLASS runs, if a trial is compared with that."""
        small = trial.watched and trial.kind == "integer" and trial.shape.k <= REFERRED
        # With others, CUTLASS may round once more, before the bias, which is as right.
        whole = all(float(x).is_integer() for x in (trial.problem.alpha, trial.problem.beta))
        return self.plain if small and whole else None

    def _seen(self) -> Seen:
        return Seen(
            self.runner.lines_not_run(self.module), dict(self.use.kernels), dict(self.outcomes.seen)
        )

    def _alone(self, trial: Trial, new: bool) -> Outcome:
        """Runs a trial. new: whether nothing else has shown what it does."""
        runner = self.runner
        self._prepare(runner, [trial])
        # What only this trial reaches is to be looked at as closely as anything else.
        runner.watched = trial.watched or (new and max(astuple(trial.shape)) <= WATCHED)
        before, error = runner.suppressed, ""
        result, findings = None, tuple[Finding, ...]()
        try:
            result = run_trial(self.spec, runner, self.module, trial, self._reference(trial))
            findings = result.findings
        except BudgetError as reason:
            error, findings = command_words(reason), tuple(reason.findings)
        except (PtxError, UsageError) as reason:  # an unknown instruction; what a GPU refuses
            error = str(reason)
        return Outcome(result, findings, error, runner.suppressed - before, self._seen())

    def probe(self, trial: Trial) -> bool:
        """Whether the kernel with probes shows an outcome in a trial that it has not had before."""
        before = dict(self.outcomes.seen)
        self._probe([trial])
        return self.outcomes.seen != before

    def _probe(self, trials: Sequence[Trial]) -> bool:
        """Runs the kernel with probes, if there is more to see; whether it came to its end."""
        probed, prober = self.probed, self.prober
        if not probed or not probed.module or not probed.missing(self.outcomes.seen):
            return True
        self._prepare(prober, trials)
        prober.watched, prober.budget = True, 2 * (prober.budget or 0)
        try:
            run_abreast(self.spec, prober, probed.module, *drawn(self.spec, trials))
        except (CheckError, PtxError, UsageError):  # which may not be the kernel's
            return False
        return True


def _is_right(outcome: Outcome) -> bool:
    return bool(outcome.result and outcome.result.ok and not outcome.findings)


def furnish(runner: EmulatorRunner, trial: Trial) -> None:
    """What a kernel is not promised of a GPU differs from trial to trial."""
    runner.chances = Chances(
        odd_places=trial.skips.d > 0,  # like the operands
        zeroed=trial.skips.d > trial.skips.a,
        last_first=trial.last_first,
        late=trial.late,
    )


def outcomes(
    stand: Stand, items: Sequence[Item], jobs: int
) -> Iterator[tuple[Trial, Outcome] | tuple[None, FarOutcome]]:
    """The outcomes of trials in their order, by at most `jobs` processes: see `Processes`.

    What is far away belongs to none of them.
    """
    found = in_order(Processes(jobs).map(_Trials(stand), items))
    for item, outcome in zip(items, found, strict=False):
        if isinstance(outcome, FarOutcome):
            yield None, outcome
        elif not isinstance(item, Far):
            yield from zip(item, outcome, strict=False)


_LATE = 8  # times the instructions that a launch has whose waits are tried in vain
_SPARE = 8  # of a budget, which is far too large, what trials that run abreast have together
_TOGETHER = 20  # seconds of CPU time that they have, which take a tenth of that
REFERRED = 512  # K: longer sums take CUTLASS's kernel, whose steps are short, as long as all else
WATCHED = 5000  # along any axis: races of more take minutes to look for


class _Trials(Job["Item", "list[Outcome] | FarOutcome"]):
    """Trials of one kernel, and what is far away. Other processes make stands of their own."""

    def __init__(self, stand: Stand) -> None:
        self._stand = stand

    def __reduce__(self) -> tuple[Any, ...]:
        stand = self._stand
        return _elsewhere, (stand.spec, stand.module, stand.limits, stand.probed)

    def cost(self, item: Item) -> Cost:
        """See Job."""
        if isinstance(item, Far):
            return Cost(seconds=1)
        return emulated_cost(*((one.shape, one.problem.batch.products) for one in item))

    def __call__(self, item: Item) -> list[Outcome] | FarOutcome:
        """See Job."""
        stand = self._stand
        if isinstance(item, Far):
            return run_far(stand.spec, stand.module, item, stand.limits.deadline)
        return stand.run(item)


def _elsewhere(*given: Any) -> _Trials:
    return _Trials(Stand(*given))
