"""`gen check` of a kernel that gen did not emit: findings, and results against references."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gen.errors import UsageError
from gen.foreign import elements
from gen.foreign.contents import load
from gen.foreign.launch import LaunchText
from gen.foreign.references import difference, from_reference
from gen.foreign.running import Checks, Outcome, run_steps
from gen.foreign.steps import Step, prepare


@dataclass
class Report:
    """What the launches of a file came to, and where their results are not as expected.

    `refused` says why results were not compared: a mistake in what they should be compared with.
    """

    outcome: Outcome
    mismatches: list[str] = field(default_factory=list)
    compared: list[str] = field(default_factory=list)  # buffers
    refused: UsageError | None = None

    @property
    def wrong(self) -> bool:
        """Whether there is something to say against the kernel."""
        return not self.outcome.ok or bool(self.mismatches)

    @property
    def ok(self) -> bool:
        """Whether there is nothing to complain about."""
        return not self.wrong and self.refused is None


def check(
    text: str, name: str, launches: Sequence[LaunchText], checks: Checks,
    seconds: float | None = None,
) -> Report:  # fmt: skip
    """Runs launches of a file under checks, and compares what they leave with what is expected.

    seconds: that all launches may take; if not given, each has a limit (see `Checks`). Raises
    UsageError, CompileError, and CheckError for what the emulator does not support.
    """
    for launch in launches:
        _tolerance(launch.tolerance, "f32")
    steps = prepare(text, name, launches)
    outcome = run_steps(steps, checks.within(seconds))
    report = Report(outcome)
    if outcome.stopped or (checks.first and outcome.findings):  # not all launches have run
        return report
    try:
        for step in steps:
            for buffer, want in _expected(step, outcome):
                report.compared.append(buffer)
                report.mismatches += _mismatch(step, outcome, buffer, want)
    except UsageError as error:  # which must not hide what was found
        report.refused = error
    return report


def _mismatch(step: Step, outcome: Outcome, buffer: str, want: np.ndarray) -> Iterator[str]:
    """How a buffer differs from what is expected, after the first schedule where it does."""
    kind = outcome.types[buffer]
    tolerance = _tolerance(step.text.tolerance, kind)
    for schedule, one in outcome.schedules.items():
        if message := difference(one.arrays[buffer], want, kind, tolerance):
            unchanged = "" if buffer in one.changed else "; the launch has not changed it"
            yield f"{buffer}{message}{unchanged}{schedule}"
            return


def _tolerance(text: str | None, kind: str) -> float:
    if text is None:
        return elements.TOLERANCE.get(kind, 0.0)
    try:
        tolerance = float(text)
    except ValueError:
        tolerance = math.nan
    if not 0 <= tolerance < math.inf:
        raise UsageError(f"--tolerance {text} is not a number from 0, such as 1e-5")
    return tolerance


def _expected(step: Step, outcome: Outcome) -> Iterator[tuple[str, np.ndarray]]:
    """Buffers, and what they should hold, as numbers."""
    for text in step.text.expect:
        name, equals, path = text.partition("=")
        if not equals or name not in outcome.arrays:
            known = ", ".join(outcome.arrays) or "none"
            raise UsageError(
                f"--expect {text} is not BUFFER=FILE.npy with a buffer of the launch: {known}"
            )
        kind = outcome.types[name]
        yield name, elements.values(load(Path(path), kind), kind)
    if step.text.reference:
        yield from from_reference(step, outcome).items()
