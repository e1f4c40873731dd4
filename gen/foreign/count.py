"""`gen profile` of a kernel that gen did not emit: what a launch does to a GPU's memory units."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from gen.compile import nvrtc
from gen.device.gpus import GpuModel, Occupancy, occupancy
from gen.emulator import Counters, Totals
from gen.errors import CheckError, UsageError
from gen.foreign.emulate import Checks, Step, prepare, run_steps
from gen.foreign.launch import LaunchText
from gen.foreign.words import sentence
from gen.profile.count import LineAccess, line_accesses, shared_loads


@dataclass(frozen=True)
class LaunchProfile:
    """The launches of one kernel, as a GPU would run them."""

    kernel: str
    gpu: GpuModel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared: int
    resources: nvrtc.Resources
    occupancy: Occupancy
    totals: Totals
    lines: tuple[LineAccess, ...] = field(repr=False)
    widths: str
    unmatched: tuple[int, ...]
    seconds: float

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return int(np.prod(self.block))

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, static and dynamic."""
        return self.resources.shared_bytes + self.dynamic_shared

    @cached_property
    def sector_bytes(self) -> int:
        """Bytes that move between the SMs and the memory behind their L1, if that never hits."""
        return 32 * (self.totals.global_load.parts + self.totals.global_store.parts)


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
    threads = int(np.prod(last.block))
    shared = resources.shared_bytes + last.dynamic_shared
    return LaunchProfile(
        built.title, gpu, last.grid, last.block, last.dynamic_shared, resources,
        occupancy(gpu, threads, resources.registers, shared), counters.totals(),
        tuple(line_accesses(counters, "\n".join(built.lines))), widths, tuple(unmatched),
        time.perf_counter() - start,
    )  # fmt: skip
