"""Trials of one kernel whose launches run together, which takes a fraction of the time.

Each is a launch of its own, with its own buffers; the emulator merely executes an instruction for
all of them at once. What one of them does wrong is looked at again, alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Iterable, Sequence

from gen.compile import nvrtc
from gen.device.abreast import planned_for, run_abreast
from gen.device.choose import FEW
from gen.device.emulated import EmulatorRunner
from gen.device.runner import Runner
from gen.prove.trials import Trial
from gen.prove.verify import CaseResult, compared, drawn_case, drawn_skips
from gen.spec.kernel import KernelSpec

_LANES = 1 << 13  # threads of all launches that run together: more is no faster


def grouped(spec: KernelSpec, trials: Iterable[Trial]) -> list[tuple[Trial, ...]]:
    """Trials whose launches may run abreast, in the order of the first of each."""
    groups: dict[Hashable, list[Trial]] = {}
    done: list[list[Trial]] = []
    for trial in trials:
        key, lanes = _alike(spec, trial)
        group = groups.get(key)
        if group is None or (len(group) + 1) * lanes > _LANES:
            group = groups[key] = []
            done.append(group)
        group.append(trial)
    return [tuple(group) for group in done]


def _alike(spec: KernelSpec, trial: Trial) -> tuple[Hashable, int]:
    """What trials that run abreast have in common, and the threads of the largest launch."""
    skips = drawn_skips(spec, trial)
    plan = planned_for(spec, trial.problem, skips, trial.multiprocessors or FEW, trial.blocks)
    launches = tuple((x.kernel, x.grid, x.block, x.shared_bytes, x.early) for x in plan.launches)
    lanes = max((math.prod(x.grid) * math.prod(x.block) for x in plan.launches), default=0)
    alone = trial if trial.late or trial.last_first else None
    furnished = trial.skips.d > 0, trial.skips.d > trial.skips.a
    apart = trial.watched, trial.in_place, trial.blocks, trial.multiprocessors
    return (launches, alone, furnished, apart, trial.problem.beta == 0, trial.shape), lanes


def run_together(
    spec: KernelSpec,
    runner: EmulatorRunner,
    module: nvrtc.Module,
    trials: Sequence[Trial],
    references: Sequence[Runner | None],
) -> list[CaseResult]:
    """`run_trial` of each. Raises CheckError where the device finds anything wrong with any."""
    cases = [drawn_case(spec, trial) for trial in trials]
    start = time.perf_counter()
    stored = run_abreast(spec, runner, module, cases, trials[0].blocks)
    seconds = (time.perf_counter() - start) / len(trials)
    results = []
    for trial, case, storage, reference in zip(trials, cases, stored, references, strict=True):
        worst, message = compared(spec, runner, trial, case, storage, reference)
        message = message and f"{trial}: {message}"
        results.append(
            CaseResult(trial.kind, trial.problem, not message, worst, seconds, message, ())
        )
    return results
