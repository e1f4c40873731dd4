"""The kernel for few rows or columns of D on tensor cores, wherever lines begin; its row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gen.kernels.cuda_cores import gemv
from gen.kernels.cuda_cores.narrow import CLUSTER, CLUSTERS, cluster_rule, in_clusters, printed
from gen.kernels.epilogues import EPILOGUE, epilogue_rule
from gen.kernels.occupancy import occupancy
from gen.kernels.tensor_cores.rules import INSTRUCTIONS, MOST_SUMS
from gen.kernels.tensor_cores.skinny import SKINNY
from gen.kernels.tunables import Choice, Conflict, Integer, sizes
from gen.kernels.variant import BATCHED, MAX_THREADS, Geometry, Pace, Variant
from gen.spec.arch import WARP, compute_capability
from gen.spec.dtypes import DTypes
from gen.spec.kernel import KernelSpec, Tile

_LONG, _SHORT = 16, 8  # lines of an instruction's operands
_STEP = 64  # elements along K of a stage
_CHUNK = 8  # elements in 16 bytes, as are warps of a team, and residues of a line's number
_TEAM = _CHUNK * WARP
_FRAGMENTS = _CHUNK * _LONG  # lines of a team's fragments, one each
_STAGES = 6  # at most
_CLUSTERS = (CLUSTERS[0], *CLUSTERS[2:])
# Shared memory of a multiprocessor, and of a block at most: an A100 has room for two.
_SHARED, _BLOCK = 224 * 1024, 80 * 1024


def _along(chosen: Choice) -> bool:
    return gemv.along_k(chosen.values["few"], chosen.layouts)


def _usual_strip(chosen: Choice) -> int:
    """As many whole fragments, wherever lines across K begin."""
    return _FRAGMENTS if _along(chosen) else _FRAGMENTS - _CHUNK


def _stage(t: Mapping[str, Any]) -> int:
    """Elements of a stage, the most that it has: lines of the few may run either way."""
    strip, few, chunks = t["strip"], t["vectors"], _STEP // _CHUNK
    if _has_whole_lines(strip):
        large, ahead, odd = strip * (chunks + 1), _CHUNK, 1
    else:
        large, ahead, odd = _STEP * (strip // _CHUNK + 2), 0, 0
    along = few * ((_STEP + ahead) // _CHUNK + 1 | odd)
    across = (_STEP + ahead) * (few // _CHUNK + 1 | odd)
    return int((large + max(along, across)) * _CHUNK)


def _has_whole_lines(strip: int) -> bool:
    """Whether a strip is one of lines along K: what the rules ask of these differs."""
    return strip % _FRAGMENTS == 0


def _sums(t: Mapping[str, Any]) -> int:
    """Elements that take the place of the stages in the end."""
    strip, few = t["strip"], t["vectors"]
    parts = 0 if _has_whole_lines(strip) else _CHUNK * _SHORT * (strip + _CHUNK + 4)
    return int(strip * few + parts)


def _registers(t: Mapping[str, Any]) -> int:
    """Those of a thread that hold sums."""
    places = t["strip"] if _has_whole_lines(t["strip"]) else _CHUNK * (t["strip"] + _CHUNK)
    return int(places * t["vectors"] // t["threads"])


def _geometry(t: Mapping[str, Any], d: DTypes) -> Geometry:
    common, registers = in_clusters(t, d), _registers(t)
    blocks = max(1, (3 if registers < 32 else 2 if registers <= 64 else 1) * _TEAM // t["threads"])
    stage = _stage(t) * d.input.size
    stages = max(2, min(_STAGES, min(_SHARED // blocks, _BLOCK) // stage))
    name = [*INSTRUCTIONS[d.input.name]][-1 if _has_whole_lines(t["strip"]) else 0]
    instruction = Tile._make(sizes(name))
    return common._replace(
        threadblock=common.threadblock._replace(k=_STEP),
        static_shared=0,
        dynamic_shared=max(stages * stage, _sums(t) * d.accumulator.size),
        values={
            **common.values,
            "instruction": instruction,
            "step": _STEP,
            "stages": stages,
            "blocks": blocks,
        },
        instruction=instruction,
        teams=1 if _has_whole_lines(t["strip"]) else _CHUNK,
    )


def _printed(spec: KernelSpec) -> Mapping[str, Any]:
    """As `narrow`; no more blocks of a multiprocessor than its shared memory has room for."""
    room = occupancy(
        compute_capability(spec.arch), spec.threads[0], 0, spec.geometry.dynamic_shared
    )
    return {**printed(spec), "blocks": min(spec.geometry.values["blocks"], room.blocks)}


def _rules(chosen: Choice) -> None:
    t = chosen.values
    epilogue_rule(t["epilogue"], chosen.dtypes)
    cluster_rule(chosen)
    if t["threads"] % _TEAM:
        raise Conflict(
            f"threads={t['threads']} is not a multiple of {_TEAM}: a warp for every eighth line",
            "threads",
        )
    if t["vectors"] % _SHORT:
        raise Conflict(
            f"vectors={t['vectors']} is not a multiple of {_SHORT}: those of an instruction",
            "vectors",
        )
    teams, strip = t["threads"] // _TEAM, t["strip"]
    if _along(chosen):
        of = teams * _FRAGMENTS
        if strip % of:
            raise Conflict(
                f"strip={strip} is not a multiple of {of}: for each warp of {t['threads']} "
                f"threads, {_LONG} of every eighth line",
                "strip",
                "threads",
            )
    elif strip not in (strips := [n - _CHUNK for n in (32, 64, 128, 256) if n >= 32 * teams]):
        raise Conflict(
            f"strip={strip} is not {', '.join(map(str, strips))}, for {t['threads']} threads and "
            "lines across K: wherever these begin, it is in whole fragments",
            "strip",
            "threads",
        )
    if _registers(t) > MOST_SUMS:
        raise Conflict(
            f"{_registers(t)} sums for each of {t['threads']} threads are more than {MOST_SUMS}: "
            f"vectors={t['vectors']} with strip={strip}",
            "vectors",
            "strip",
            "threads",
        )


def _grid(chosen: Choice) -> Sequence[Mapping[str, Any]]:
    """Not 64 rows: `wgmma` is faster. Not two blocks that share K: of no problem the fastest.

    Longer strips where four do, which is as good as eight that share K of shorter ones.
    """
    few = gemv.few_grid(8, 16, 32)(chosen)
    if chosen.cc < 90:
        return few
    usual = [{**each, "cluster": cluster} for each in few for cluster in _CLUSTERS]
    longer = [
        {**each, "strip": strip, "cluster": _CLUSTERS[1]}
        for each in few
        for strip in (2 * _FRAGMENTS, 2 * _FRAGMENTS - _CHUNK)  # along K and across
    ]
    return [*usual, *longer]


def _pace(_: DTypes) -> Pace:
    return Pace(
        "mma", 0.244, along=1.41, wait=420, wait_k=0.68, across_k=0.0064, copied=0.0174,
        small=1.03, alone=321, last=4680, store=102, gather=1.27, thin=1.4, start=887, across=98,
        meeting=145, code=17, registers=80,
    )  # fmt: skip


SLIM = Variant(
    "slim",
    "few rows or columns, tensor cores, lines wherever they begin",
    "kernels/slim.cu.j2",
    (
        gemv.FEW,
        Integer("vectors", "of these few, those a block computes", 8, 8, 32, tag="v"),
        Integer("strip", "columns, or rows, of D per block", _usual_strip, 24, 256),
        Integer("threads", "threads per block", _TEAM, _TEAM, MAX_THREADS, tag="t"),
        CLUSTER,
        EPILOGUE,
        BATCHED,
    ),
    _geometry,
    SKINNY.dtypes,
    min_arch=80,
    rules=_rules,
    printed=_printed,
    grid=_grid,
    pace=_pace,
    waits=True,
)
