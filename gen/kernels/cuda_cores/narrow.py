"""The kernel for few rows, or few columns, of D that keeps these in shared memory; its row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gen.errors import SpecError
from gen.kernels.cuda_cores import gemv
from gen.kernels.cuda_cores.geometry import Values
from gen.kernels.epilogues import EPILOGUE
from gen.kernels.formulas import Fact
from gen.kernels.tunables import Choice, Conflict, Integer, Word, sizes
from gen.kernels.variant import BATCHED, MAX_THREADS, Geometry, Pace, Variant
from gen.spec.arch import MAX_GRID_X, UNIT, WARP
from gen.spec.dtypes import DTYPES, SCALAR_DTYPES, DTypes
from gen.spec.kernel import KernelSpec, cluster_of
from gen.spec.problem import GemmShape

CLUSTERS = ("1x1", "1x1x2", "1x1x4", "1x1x8")
CLUSTER = Word("cluster", "1x1, or 1x1xN: N blocks share K", "1x1", CLUSTERS, tag="c")
# Of the large operand, bytes that a thread has on their way; the most elements, of a register each.
_BYTES, _ELEMENTS = 64, 16
_RESIDENT = 512  # threads of a multiprocessor, at least


def _usual_strip(chosen: Choice) -> int:
    """Lines of 128 bytes, as far as a warp has lanes for their elements."""
    return min(8 * UNIT // chosen.dtypes.input.size, WARP)


def in_clusters(t: Values, d: DTypes) -> Geometry:
    """As `gemv.geometry`, where blocks of a cluster share K."""
    common, blocks = gemv.geometry(t, d), cluster_of(t)[2]
    if blocks == 1:
        return common
    (tiles, _), most = common.facts, MAX_GRID_X // blocks
    grid = Fact("grid_x", f"(tiles < {most} ? tiles : {most}) * kClusterBlocks", "blocks")
    constants = {**common.constants, "kClusterBlocks": blocks}
    return common._replace(facts=(tiles, grid), constants=constants)


def _geometry(t: Values, d: DTypes) -> Geometry:
    common = in_clusters(t, d)
    step = _step(d, t["strip"], t["threads"])
    sums = common.threadblock.m * common.threadblock.n * t["threads"] // WARP
    return common._replace(
        threadblock=common.threadblock._replace(k=step),
        static_shared=max(2 * t["vectors"] * step * d.input.size, sums * d.accumulator.size),
        values={
            **common.values,
            "step": step,
            "blocks": max(1, _RESIDENT // t["threads"]),
            "few_bytes": min(t["vectors"] * d.input.size, UNIT),
        },
    )


def _rules(chosen: Choice) -> None:
    t, layouts = chosen.values, chosen.layouts
    if all(gemv.along_k(few, layouts) for few in ("rows", "columns")):
        raise SpecError(
            f"narrow reads lines across K, and in layout={layouts} all lines run along K; use gemv"
        )
    if gemv.along_k(t["few"], layouts):
        large = "A" if t["few"] == "columns" else "B"
        raise Conflict(
            f"with few={t['few']}, narrow reads lines of {large} across K, which run along K in "
            f"layout={layouts}",
            "few",
        )
    if t["vectors"] & (t["vectors"] - 1):
        raise Conflict(f"vectors={t['vectors']} is no power of two", "vectors")
    cluster_rule(chosen)
    gemv.few_rules(chosen)


def cluster_rule(chosen: Choice) -> None:
    """Raises Conflict for a cluster that the architecture does not have."""
    if chosen.values["cluster"] != "1x1" and chosen.cc < 90:
        raise Conflict(f"{chosen.arch} has no clusters", "cluster", "arch")


def printed(spec: KernelSpec) -> Mapping[str, Any]:
    """What the templates of kernels print whose blocks may share K."""
    return {**gemv.few_printed(spec), "shares_k": spec.cluster_k > 1, "cluster_k": spec.cluster_k}


def _grid(chosen: Choice) -> Sequence[Mapping[str, Any]]:
    """All numbers of rows or columns, with K shared or not."""
    clusters = CLUSTERS if chosen.cc >= 90 else CLUSTERS[:1]
    few = gemv.few_grid(1, 2, 4, 8)(chosen)
    return [{**each, "cluster": cluster} for each in few for cluster in clusters]


# Of few long sums: columns, or rows, of a block, its threads, and the cluster that shares K.
_LONG = ((8, 128, "1x1x8"), (32, 128, "1x1x8"))


def _fitted(chosen: Choice, shape: GemmShape, *_: int) -> Sequence[Mapping[str, Any]]:
    """What is besides chosen among of few rows or columns, where all blocks have a step of K."""
    if chosen.cc < 90:
        return []
    return [
        {"few": few, "vectors": vectors, "strip": strip, "threads": threads, "cluster": cluster}
        for few, vectors, _ in gemv.few_of(shape)
        if not gemv.along_k(few, chosen.layouts)
        for strip, threads, cluster in _LONG
        if _step(chosen.dtypes, strip, threads) * sizes(cluster)[2] <= shape.k
    ]


def _step(d: DTypes, strip: int, threads: int) -> int:
    """Elements along K that a block reads at a time."""
    return min(_BYTES // d.input.size, _ELEMENTS) * threads // strip


def _usual_few(chosen: Choice) -> str:
    """What the layouts allow: rows, if they allow both."""
    return "columns" if gemv.along_k("rows", chosen.layouts) else "rows"


def _pace(dtypes: DTypes) -> Pace:
    if dtypes.accumulator.size == 8:
        return Pace(
            "cuda", 0.462, wait_k=3.66, small=0.75, alone=23, last=2130, gather=1.3, start=21,
            code=1840, meeting=918, registers=128, exact=True,
        )  # fmt: skip
    if dtypes.name == "i32":
        return Pace(
            "cuda", 0.349, wait_k=2.15, small=0.7, alone=261, last=2950, gather=0.39, start=18,
            code=176, meeting=658, registers=128, exact=True,
        )  # fmt: skip
    if dtypes.input.size == 4:
        return Pace(
            "cuda", 1.03, wait_k=2.18, small=0.1, alone=1100, last=2090, gather=1.79, start=0,
            across=162, code=255, meeting=658, registers=128, exact=True,
        )  # fmt: skip
    return Pace(
        "cuda", 0.132, wait=620, wait_k=0.43, small=1.85, alone=753, last=2580, store=0, gather=0,
        start=0, across=124, code=53, meeting=880, registers=128, exact=True,
    )  # fmt: skip


NARROW = Variant(
    "narrow",
    "few rows or columns, in shared memory; a cluster shares K",
    "kernels/narrow.cu.j2",
    (
        replace(gemv.FEW, default=_usual_few),
        Integer("vectors", "of these few, those a block computes", 8, 1, 8, tag="v"),
        Integer("strip", "columns, or rows, of D per block", _usual_strip, 1, WARP),
        Integer("threads", "threads per block", 256, WARP, MAX_THREADS, tag="t"),
        CLUSTER,
        EPILOGUE,
        BATCHED,
    ),
    _geometry,
    tuple(name for name in SCALAR_DTYPES if DTYPES[name].input.size > 1),
    rules=_rules,
    printed=printed,
    grid=_grid,
    fitted=_fitted,
    pace=_pace,
    adds_as_aligned=True,
    waits=True,
)
