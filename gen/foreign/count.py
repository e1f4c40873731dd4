"""`gen profile` of a kernel that gen did not emit: what a launch does to a GPU's memory units."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from gen.device.gpus import GpuModel
from gen.emulator import Counters
from gen.errors import CheckError, UsageError
from gen.foreign.launch import LaunchText
from gen.foreign.running import Checks, run_steps
from gen.foreign.steps import Step, prepare
from gen.foreign.words import sentence
from gen.profile.count import LaunchProfile, line_accesses, occupancy_of, shared_loads


def profile(
    text: str, name: str, launches: Sequence[LaunchText], gpu: GpuModel, checks: Checks
) -> list[LaunchProfile]:
    """Counts the last launch of a file, after those before it, compiled for `gpu`.

    Raises UsageError for PTX, which has no registers to tell the occupancy from, and CheckError for
    a kernel in which the emulator finds a fault.
    """
    start = time.perf_counter()
    steps = prepare(text, name, [replace(one, arch=gpu.own_arch) for one in launches])
    found = []
    for at, step in enumerate(steps):
        found.append(_one(steps[: at + 1], step, gpu, checks, start))
        start = time.perf_counter()
    return found


def _one(
    steps: Sequence[Step], step: Step, gpu: GpuModel, checks: Checks, start: float
) -> LaunchProfile:
    built = step.built
    if built.recompile is None or built.module is None:
        raise UsageError(
            f"{built.file} is PTX, which says nothing about registers; give the CUDA source, or "
            "count without them: gen.emulate(..., counters=True)"
        )
    cubin = built.recompile(gpu.own_arch, "cubin")
    limits, unmatched, widths = shared_loads(built.symbol, built.module.name, built.module, cubin)
    counters = Counters(limits=limits)
    # Launches before this one give its buffers their contents, and are not counted.
    outcome = run_steps(steps, replace(checks, tools=("memcheck", "synccheck")), counters)
    if outcome.stopped or outcome.findings:
        what = outcome.stopped or sentence(outcome.findings[0])
        raise CheckError(f"{built.title}: {what}; gen check says more")
    last = outcome.launched[-1]
    resources = cubin.resources[built.symbol]
    return LaunchProfile(
        kernel=built.title,
        gpu=gpu,
        grid=last.grid,
        block=last.block,
        dynamic_shared=last.dynamic_shared,
        resources=resources,
        occupancy=occupancy_of(gpu, last.block, resources, last.dynamic_shared),
        totals=counters.totals(),
        lines=tuple(line_accesses(counters, "\n".join(built.lines))),
        widths=widths,
        unmatched=tuple(unmatched),
        seconds=time.perf_counter() - start,
    )
