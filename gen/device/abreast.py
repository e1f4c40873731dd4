"""Runs of one kernel on several problems at once, on the emulator."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from gen.compile import nvrtc
from gen.device.emulated import EmulatorRunner
from gen.device.execute import (
    POISON,
    Case,
    FindingsError,
    Place,
    alignment,
    arguments,
    behind,
    download,
    planned,
    stored_for,
)
from gen.kernels.launches import WORKSPACE, Plan
from gen.spec.arch import UNIT
from gen.spec.kernel import KernelSpec
from gen.spec.problem import Alignment, GemmProblem


def planned_for(
    spec: KernelSpec,
    problem: GemmProblem,
    skips: Mapping[str, int],
    multiprocessors: int,
    blocks: int = 0,
) -> Plan:
    """What `run_kernel` launches, with addresses as on a device."""
    sizes = (spec.dtypes.input.size,) * 2 + (spec.dtypes.output.size,)
    off = (skips.get(n, 0) * size for n, size in zip("ABD", sizes, strict=True))
    return planned(spec, problem, Alignment(*(n % UNIT == 0 for n in off)), multiprocessors, blocks)


def run_abreast(
    spec: KernelSpec,
    runner: EmulatorRunner,
    module: nvrtc.Module,
    cases: Sequence[Case],
    sizes: Sequence[tuple[int, int]],
) -> list[np.ndarray]:
    """What `run_kernel` returns, of each of several cases, whose launches run together.

    They are to have kernels, blocks, and shared memory alike. sizes: for each, the multiprocessors
    and blocks that it is planned with. Raises FindingsError where any of them is wrong, without
    saying which; CheckError for a write beside D or beside the workspace.
    """
    problems, stored = zip(*(stored_for(spec, runner, case) for case in cases), strict=True)
    undefined = () if cases[0].in_place else ("D",)
    skips = [case.skips for case in cases]
    with uploaded_abreast(runner, stored, undefined, skips) as places:
        plans = [
            planned(spec, problem, alignment(here), *size)
            for problem, here, size in zip(problems, places, sizes, strict=True)
        ]
        space = [{WORKSPACE: np.full(p.workspace_bytes, POISON, np.uint8)} for p in plans]
        with uploaded_abreast(runner, space, (WORKSPACE,)) as more:
            whole = [{"C": p["D"], **p, **w} for p, w in zip(places, more, strict=True)]
            for launches in zip(*(p.launches for p in plans), strict=True):
                one = launches[0]
                each = [
                    (x.grid, arguments(x.args, w, runner))
                    for x, w in zip(launches, whole, strict=True)
                ]
                findings = runner.launch_abreast(
                    module, one.kernel, one.block, each, one.shared_bytes, one.early
                )
                if findings:
                    raise FindingsError(findings)
            for own in more:
                download(runner, own[WORKSPACE])
            return [download(runner, own["D"]) for own in places]


@contextmanager
def uploaded_abreast(
    runner: EmulatorRunner,
    storages: Sequence[Mapping[str, np.ndarray]],
    undefined: Collection[str] = (),
    skips: Sequence[Mapping[str, int]] = (),
) -> Iterator[list[dict[str, Place]]]:
    """`uploaded` for launches that run abreast: the arrays of each, which have the same names."""
    places: list[dict[str, Place]] = [{} for _ in storages]
    try:
        for name in storages[0]:
            offs = [of.get(name, 0) for of in skips] or [0] * len(storages)
            whole = [behind(of[name], off) for of, off in zip(storages, offs, strict=True)]
            before = [off * of[name].itemsize for of, off in zip(storages, offs, strict=True)]
            buffers = runner.upload_abreast(whole, name, name not in undefined, before)
            for of, buffer, start in zip(places, buffers, before, strict=True):
                of[name] = Place(buffer, start)
        yield places
    finally:
        for place in (place for of in places for place in of.values()):
            runner.free(place.buffer)
