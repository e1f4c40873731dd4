"""Trials of one kernel whose launches run together, which takes a fraction of the time.

Each is a launch of its own, with its own buffers; the emulator merely executes an instruction for
all of them at once. What one of them does wrong is looked at again, alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gen.compile import nvrtc
from gen.device.abreast import planned_for, run_abreast
from gen.device.choose import FEW
from gen.device.emulated import EmulatorRunner
from gen.device.execute import Case
from gen.device.runner import Runner
from gen.prove.trials import Trial
from gen.prove.verify import CaseResult, compared, drawn_case, drawn_skips
from gen.spec.kernel import KernelSpec

if TYPE_CHECKING:
    from gen.kernels.launches import Launch

_LANES = 1 << 14  # threads of all launches that run together: more is no faster
_BRIEFLY = 8  # times as many may a kernel have that has no loop along K, such as one that packs
_SHORT, _LONGER = 16, 2  # K, and how many times longer ones run apart: the others would be done


class _Member(NamedTuple):
    """A trial that is to run abreast of others, where it stands among all, and its launches."""

    at: int
    trial: Trial
    launches: tuple[Launch, ...]


def grouped(spec: KernelSpec, trials: Iterable[Trial]) -> list[tuple[Trial, ...]]:
    """Trials whose launches may run abreast, in the order of the first of each.

    Those of a group have about as many steps along K.
    """
    classes: dict[Hashable, list[_Member]] = {}
    for at, trial in enumerate(trials):
        skips, several = drawn_skips(spec, trial), multiprocessors(trial)
        launches = planned_for(spec, trial.problem, skips, several, trial.blocks).launches
        member = _Member(at, trial, launches)
        classes.setdefault(_kind(member), []).append(member)
    groups = [group for members in classes.values() for group in _cut(spec, members)]
    groups.sort(key=lambda group: group[0].at)
    return [tuple(member.trial for member in group) for group in groups]


def _kind(member: _Member) -> Hashable:
    """What trials that run abreast have in common."""
    trial = member.trial
    launches = tuple((x.kernel, x.block, x.shared_bytes, x.early) for x in member.launches)
    alone = trial if trial.late or trial.last_first else None
    furnished = trial.skips.d > 0, trial.skips.d > trial.skips.a
    exact = trial.kind == "integer"  # sums of which tensor cores take in one go
    return launches, alone, furnished, trial.watched, trial.in_place, exact


def _cut(spec: KernelSpec, members: Sequence[_Member]) -> Iterator[list[_Member]]:
    """Trials of one kind as groups that are not too large, each in the order of all trials."""

    def length(member: _Member) -> int:
        return int(math.log(max(member.trial.shape.k, _SHORT), _LONGER))

    def likeness(member: _Member) -> tuple[int, ...]:
        return length(member), _lanes(spec, [member]), member.trial.shape.k, member.at

    group: list[_Member] = []
    for member in sorted(members, key=likeness):
        more = [*group, member]
        if group and (_lanes(spec, more) > _LANES or length(member) > length(group[0])):
            yield sorted(group, key=lambda one: one.at)
            more = [member]
        group = more
    if group:
        yield sorted(group, key=lambda one: one.at)


def _lanes(spec: KernelSpec, group: Sequence[_Member]) -> int:
    """The threads that the largest of their launches take together."""
    most = 0
    for launches in zip(*(member.launches for member in group), strict=True):
        box = (max(along) for along in zip(*(x.grid for x in launches), strict=True))
        lanes = len(group) * math.prod(box) * math.prod(launches[0].block)
        most = max(most, lanes if launches[0].kernel == spec.name else lanes // _BRIEFLY)
    return most


def multiprocessors(trial: Trial) -> int:
    """Of the emulated GPU that a trial runs on."""
    return trial.multiprocessors or FEW


def drawn(spec: KernelSpec, trials: Sequence[Trial]) -> tuple[list[Case], list[tuple[int, int]]]:
    """What `run_abreast` takes of trials: their cases and sizes."""
    sizes = [(multiprocessors(trial), trial.blocks) for trial in trials]
    return [drawn_case(spec, trial) for trial in trials], sizes


def run_together(
    spec: KernelSpec,
    runner: EmulatorRunner,
    module: nvrtc.Module,
    trials: Sequence[Trial],
    references: Sequence[Runner | None],
) -> list[CaseResult]:
    """`run_trial` of each. Raises CheckError where the device finds anything wrong with any."""
    cases, sizes = drawn(spec, trials)
    start = time.perf_counter()
    stored = run_abreast(spec, runner, module, cases, sizes)
    seconds = (time.perf_counter() - start) / len(trials)
    results = []
    for trial, case, storage, reference in zip(trials, cases, stored, references, strict=True):
        worst, message = compared(spec, runner, trial, case, storage, reference)
        message = message and f"{trial}: {message}"
        results.append(
            CaseResult(trial.kind, trial.problem, not message, worst, seconds, message, ())
        )
    return results
