"""The row of `simt`: its tunables, what its template prints, the tiles to choose among."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gen.kernels.epilogues import EPILOGUE
from gen.kernels.simt import held
from gen.kernels.simt.geometry import geometry
from gen.kernels.simt.rules import rules
from gen.kernels.tensor_cores.operands import Operand, operands
from gen.kernels.tensor_cores.plan import MOST_SIZE, plan
from gen.kernels.tensor_cores.printed import launched
from gen.kernels.tunables import Choice, Integer, Size
from gen.kernels.variant import BATCHED, STREAM_K, Pace, Variant
from gen.spec.dtypes import DTypes
from gen.spec.kernel import KernelSpec
from gen.spec.problem import along_k

TEAMS = 8  # at most


def _printed(spec: KernelSpec) -> Mapping[str, Any]:
    copies = [_copies(spec, x) for x in operands(spec)]
    return {**launched(spec), "copies": copies}


def _copies(spec: KernelSpec, x: Operand) -> Mapping[str, Any]:
    """How a thread copies an operand: the names that the kernel has for it, and how often."""
    is_a = x.letter == "a"
    return {
        "letter": x.letter,
        "matrix": x.letter.upper(),
        "side": "M" if is_a else "N",
        "along_k": x.given_along_k,
        "first": "row0" if is_a else "col0",
        "count": "rows" if is_a else "cols",
        "place": 0 if is_a else spec.threadblock.m,
    }


# What is chosen among: threadblock, warp, teams, stages.
_SINGLE = (
    ("128x256x8", "64x64", 1, 4),
    ("128x128x16", "64x64", 2, 4),
    ("64x128x32", "64x64", 4, 4),
    ("128x64x16", "64x64", 2, 4),
    ("64x64x32", "64x64", 8, 5),
    ("64x32x32", "64x32", 8, 6),
    ("32x32x32", "32x32", 8, 6),
    # Without teams, several blocks to a multiprocessor: short sums.
    ("64x128x8", "64x32", 1, 4),
    ("128x64x8", "64x32", 1, 4),
    ("64x64x8", "32x32", 1, 4),
    ("32x32x16", "32x16", 1, 4),
    ("64x16x16", "32x16", 1, 4),
)
# Few rows or columns; four warps to a block, two blocks to a multiprocessor.
_WIDE = (
    ("32x256x8", "32x64", 1, 4),
    ("256x32x8", "64x32", 1, 4),
    ("64x256x8", "64x64", 1, 4),
    ("256x64x8", "64x64", 1, 4),
    ("64x128x16", "64x64", 2, 4),
)
# Where 48 or 96 columns, or 96 rows, fill D or the rounds of a GPU better. With K in slices they
# are slower than the others.
_BETWEEN = (
    ("96x128x16", "96x32", 1, 4),
    ("64x96x16", "64x48", 2, 4),
    ("128x48x16", "64x48", 2, 4),
)
# Few rows or columns, 32 k at a time: 128 bytes of each line that runs along K, 16 by a lane.
_LONG_LINES = (
    ("32x128x32", "32x64", 4, 4),
    ("128x32x32", "64x32", 4, 4),
    ("32x128x32", "32x32", 2, 4),
    ("128x32x32", "32x32", 2, 4),
    ("64x96x32", "64x48", 4, 4),
)
_DOUBLE = (
    ("128x128x8", "64x32", 1, 4),
    ("64x128x16", "64x32", 2, 4),
    ("64x64x16", "64x32", 4, 4),
    ("64x32x32", "64x32", 8, 4),
    ("32x32x32", "32x32", 8, 5),
)


# Also with stream-K: the largest tiles, whose rounds are long, and one that gains by staying.
_STREAMS = ("128x256x8", "128x128x16", "128x64x16", "128x128x8")
# The same, without chunks in registers, which are short where blocks stay.
_LOOSE = ("128x256x8",)


def _grid(chosen: Choice) -> Sequence[Mapping[str, Any]]:
    single = chosen.dtypes.input.size == 4
    tiles = _tiles(_SINGLE + _WIDE if single else _DOUBLE)
    streams = [{**one, "stream_k": 1} for one in tiles if one["threadblock"] in _STREAMS]
    streams += [{**one, "held": 0} for one in streams if one["threadblock"] in _LOOSE]
    held = {"held": 1} if all(along_k(chosen.layouts)) else {}
    tiles += [{**one, **held} for one in _tiles(_LONG_LINES if single else ())]
    sliced = [{**one, "split_k": slices} for one in tiles for slices in (1, 0)]
    return [*sliced, *(_tiles(_BETWEEN) if single else ()), *streams]


def _tiles(rows: Sequence[tuple[str, str, int, int]]) -> list[dict[str, Any]]:
    return [
        {"threadblock": tile, "warp": warp, "sliced_k": teams, "stages": stages}
        for tile, warp, teams, stages in rows
    ]


def _pace(dtypes: DTypes) -> Pace:
    """Steps are fetched, and teams meet, once in so many k."""
    if dtypes.accumulator.size == 8:
        return Pace(
            "cuda", 1.05, wait=5, wait_k=6.1, across_k=0.06, alone=135, last=3880, store=33,
            rough=1.28, start=516, code=49,
        )  # fmt: skip
    if not dtypes.accumulator.is_float:
        return Pace(
            "cuda", 1.068, wait=5.2, wait_k=9.37, across_k=0.0501, alone=47.8, last=1860,
            store=26.2, rough=0.844, reads=6, thin=0.6, start=368, code=17.6,
        )  # fmt: skip
    return Pace(
        "cuda", 1, wait=3.1, wait_k=5.89, across_k=0.0409, alone=76, last=1448, store=37.6,
        rough=0.912, reads=11.8, thin=0.61, start=650, code=17.4, teams=1200,
    )  # fmt: skip


def _threadblock(chosen: Choice) -> str:
    return "128x256x8" if chosen.dtypes.input.size == 4 else "128x128x8"


def _warp(chosen: Choice) -> str:
    return "64x64" if chosen.dtypes.input.size == 4 else "64x32"


SIMT_VARIANTS = (
    Variant(
        "simt",
        "large register tiles; operands read where they lie",
        "kernels/simt.cu.j2",
        (
            Size(
                "threadblock",
                "rows and columns of D that a block computes, and its step along K",
                _threadblock,
                "MxNxK",
                tag="tb",
            ),
            Size("warp", "rows and columns of that tile that each warp computes", _warp, "MxN",
                 tag="w"),
            Integer(
                "stages", "steps along K that are in shared memory or on their way", 4, 3, 16,
                tag="s",
            ),
            Integer("sliced_k", "teams of warps that share out K", 1, 1, TEAMS, tag="tk"),
            STREAM_K,
            Integer(
                "held",
                "1: operands are read 16 bytes at a time, and held in registers until they are "
                "stored; 0: what runs along K is copied element by element",
                held.default, 0, 1,
            ),
            Integer(
                "split_k", "slices of K that different blocks multiply", 1, 0, 65_535, "auto",
                tag="sk",
            ),
            EPILOGUE,
            Integer(
                "swizzle", "work tiles along M computed close in time", 12, 1, 1024, tag="g"
            ),
            BATCHED,
        ),
        geometry,
        ("f32", "f64", "i32"),
        min_arch=80,
        rules=rules,
        planner=plan,
        printed=_printed,
        most=MOST_SIZE,
        grid=_grid,
        pace=_pace,
        transposes=True,
    ),
)  # fmt: skip
