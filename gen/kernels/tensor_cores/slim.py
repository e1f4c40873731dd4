"""The kernel for few rows or columns of D on tensor cores, wherever lines begin; its row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gen.kernels.cuda_cores import gemv
from gen.kernels.cuda_cores.narrow import CLUSTER, CLUSTERS, cluster_rule, in_clusters, printed
from gen.kernels.epilogues import EPILOGUE, epilogue_rule
from gen.kernels.tensor_cores.rules import INSTRUCTIONS
from gen.kernels.tensor_cores.skinny import SKINNY
from gen.kernels.tunables import Choice, Conflict, Integer, sizes
from gen.kernels.variant import BATCHED, MAX_THREADS, Geometry, Pace, Variant
from gen.spec.arch import STATIC_SHARED, UNIT, WARP
from gen.spec.dtypes import DTypes
from gen.spec.kernel import Tile

_LONG, _SHORT = 16, 8  # lines of an instruction's operands
_STEP_ALONG, _STEP_ACROSS = 64, 32  # elements along K of a stage, as lines of the large operand run
_STAGES = 8  # at most
_RESIDENT = 512  # threads of a multiprocessor, at least


def _along(chosen: Choice) -> bool:
    return gemv.along_k(chosen.values["few"], chosen.layouts)


def _is_wide(chosen: Choice) -> bool:
    """Whether a warp multiplies what it reads by many."""
    return bool(chosen.values["vectors"] > 2 * _SHORT)


def _usual_strip(chosen: Choice) -> int:
    return 64 if _along(chosen) and not _is_wide(chosen) else 128


def _usual_threads(chosen: Choice) -> int:
    """A warp for each 16 lines, or for each 32 where it multiplies these by many others."""
    lines = 2 * _LONG if _is_wide(chosen) else _LONG
    return max(int(chosen.values["strip"]) // lines, 1) * WARP


def _usual_step(chosen: Choice) -> int:
    return _STEP_ALONG if _along(chosen) else _STEP_ACROSS


def _window(length: int, width: int) -> int:
    """Elements from one window to the next, as `Windows` has them: an odd number of chunks."""
    return (length // width + 1 | 1) * width


def _stage(t: Mapping[str, Any], d: DTypes) -> int:
    """Bytes of a stage, the most that it has: lines of either operand may run either way."""
    step, width = t["step"], UNIT // d.input.size
    most = (
        max(n * _window(step, width), step * _window(n, width)) for n in (t["strip"], t["vectors"])
    )
    return int(sum(most) * d.input.size)


def _geometry(t: Mapping[str, Any], d: DTypes) -> Geometry:
    common = in_clusters(t, d)
    stage, sums = _stage(t, d), t["strip"] * t["vectors"] * d.accumulator.size
    stages = max(2, min(_STAGES, STATIC_SHARED // stage))
    instruction = Tile._make(sizes([*INSTRUCTIONS[d.input.name]][-1]))
    return common._replace(
        threadblock=common.threadblock._replace(k=t["step"]),
        static_shared=max(stages * stage, sums),
        values={
            **common.values,
            "instruction": instruction,
            "stages": stages,
            "blocks": max(1, _RESIDENT // t["threads"]),
        },
        instruction=instruction,
    )


def _rules(chosen: Choice) -> None:
    t = chosen.values
    epilogue_rule(t["epilogue"], chosen.dtypes)
    cluster_rule(chosen)
    warps = t["threads"] // WARP
    for tunable, of, what in (
        ("threads", WARP, "a warp"),
        ("vectors", _SHORT, "an instruction's second operand"),
        ("step", 2 * _LONG, "two instructions"),
        ("strip", warps * _LONG, f"an instruction's first operand for each of {warps} warps"),
    ):
        if t[tunable] % of:
            blamed = dict.fromkeys((tunable, "threads"))
            raise Conflict(f"{tunable}={t[tunable]} is not a multiple of {of}: {what}", *blamed)
    # A thread's lines are a multiple of 8 apart, so that they begin at the same place in windows.
    for tunable in ("strip", "vectors", "step"):
        if t["threads"] % t[tunable]:
            raise Conflict(
                f"threads={t['threads']} is not a multiple of {tunable}={t[tunable]}",
                "threads",
                tunable,
            )


def _grid(chosen: Choice) -> Sequence[Mapping[str, Any]]:
    """Not 64 rows: `wgmma` is faster. Not two blocks that share K: of no problem the fastest."""
    clusters = [CLUSTERS[0], *CLUSTERS[2:]] if chosen.cc >= 90 else CLUSTERS[:1]
    few = gemv.few_grid(8, 16, 32)(chosen)
    return [{**each, "cluster": cluster} for each in few for cluster in clusters]


def _pace(_: DTypes) -> Pace:
    return Pace(
        "mma", 0.36, along=0.79, wait_k=6.8, across_k=0.0077, alone=337, last=9100, gather=1.93,
        start=360, across=65, meeting=245, code=15.4, registers=128, exact=True,
    )  # fmt: skip


SLIM = Variant(
    "slim",
    "few rows or columns, tensor cores, lines wherever they begin",
    "kernels/slim.cu.j2",
    (
        gemv.FEW,
        Integer("vectors", "of these few, those a block computes", 8, 8, 64, tag="v"),
        Integer("strip", "columns, or rows, of D per block", _usual_strip, 16, 256),
        Integer("threads", "threads per block", _usual_threads, WARP, MAX_THREADS, tag="t"),
        Integer("step", "elements along K of a stage", _usual_step, 32, 128, tag="k"),
        CLUSTER,
        EPILOGUE,
        BATCHED,
    ),
    _geometry,
    SKINNY.dtypes,
    min_arch=80,
    rules=_rules,
    printed=printed,
    grid=_grid,
    pace=_pace,
    waits=True,
)
