"""The kernels that compute on CUDA cores: their tunables and their rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gen.kernels.cuda_cores import geometry, register_tiles, rules
from gen.kernels.cuda_cores.printed import printed, printed_copies
from gen.kernels.cuda_cores.register_tiles import Copied
from gen.kernels.epilogues import EPILOGUE
from gen.kernels.tunables import Choice, Integer, Size, Tunable
from gen.kernels.variant import (
    BATCHED,
    MAX_THREADS,
    Geometry,
    Pace,
    Variant,
)
from gen.spec.arch import MAX_GRID_X, STATIC_SHARED
from gen.spec.dtypes import DTypes


def _row(
    name: str,
    summary: str,
    tunables: tuple[Tunable, ...],
    shape: Callable[[geometry.Values, DTypes], Geometry],
    checks: Callable[[Choice], None] = rules.scalar_rules,
    **more: Any,
) -> Variant:
    return Variant(
        name,
        summary,
        f"kernels/{name}.cu.j2",
        (*tunables, EPILOGUE, BATCHED),
        shape,
        rules=checks,
        **{"printed": printed, **more},
    )


_THREADS = Integer("threads", "threads per block", 256, 1, MAX_THREADS, tag="t")
_TILE = Integer("tile", "width of the square tiles", 32, 1, 32)
_TILE_THREADS = Integer(
    "threads",
    "threads per block: tile times a divisor of tile",
    lambda chosen: int(chosen.values["tile"] ** 2),
    1,
    MAX_THREADS,
    tag="t",
)
_GRID = Integer("grid", "largest number of blocks; 0 is one per row of D", 0, 0, MAX_GRID_X)


_BY_READING = Pace("cuda", 1, across_k=0.17, store=16, rough=1.8, code=7.2, registers=32)
_BY_LINES = _BY_READING._replace(scatter=6.7)
_BY_TILES = _BY_LINES._replace(wait=23, across_k=0.065)
_BY_REGISTERS = _BY_TILES._replace(wait=39, across_k=0.05, scatter=1, registers=128)
# A lane has neighbours in a row of D. Where it stores them one by one, lanes are far apart.
_BY_VECTORS = _BY_REGISTERS._replace(rough=5)


def _paced(
    kind: Pace, share: float, ints: float | None = None, **more: Any
) -> Callable[[DTypes], Pace]:
    """The pace of a kernel that comes to a share of the multiplications, or of those of integers.

    These have half the rate: where memory decides, a kernel is as fast with them. Doubles take
    longer until the first ones are there.
    """
    wide = kind._replace(share=share, **more)
    doubles = wide._replace(share=0.87 * share, last=1.5 * wide.last)
    of_ints = wide._replace(share=ints or share)
    narrow = wide._replace(share=0.8 * share, alone=0.8 * wide.alone) if kind.wait else wide
    of_bytes = narrow._replace(across_k=0.4 * wide.across_k, start=0.4 * wide.start)

    def pace(dtypes: DTypes) -> Pace:
        if dtypes.input.size == 1:
            return of_bytes
        if dtypes.input.size < 4:
            return narrow
        if dtypes.accumulator.size == 8:
            return doubles
        return wide if dtypes.accumulator.is_float else of_ints

    return pace


def _is_outdone(chosen: Choice) -> bool:
    """Whether tensor cores multiply these types: rungs that keep tiles are slower there."""
    return chosen.dtypes.input.size <= 2 and chosen.cc >= 80


def _rung(chosen: Choice) -> Sequence[Mapping[str, Any]]:
    """What is chosen among: its defaults."""
    return () if _is_outdone(chosen) else ({},)


def _tiles(chosen: Choice) -> Sequence[Mapping[str, Any]]:
    """The same for square tiles: small ones also where D is tiny, and tensor cores begin later."""
    return ({"tile": 16},) if _is_outdone(chosen) else ({}, {"tile": 16})


def _threadblock(narrow: str, wide: str) -> Size:
    """What a block computes by default: the one with sums of 4 bytes, the other with those of 8."""
    return Size(
        "threadblock",
        "rows and columns of D that a block computes, and its step along K",
        lambda chosen: wide if chosen.dtypes.accumulator.size == 8 else narrow,
        "MxNxK",
        tag="tb",
    )


def _thread_tile(default: str) -> Size:
    few = tuple(range(1, 33))
    what = "rows and columns of D that a thread computes"
    return Size("thread_tile", what, default, "MxN", tag="tt", sides=few)


_WARP = Size(
    "warp", "rows and columns of that tile that each warp computes", "32x64", "MxN", tag="w"
)
_STAGES = Integer(
    "stages",
    "stages of the pipeline, each a tile of both operands in shared memory",
    3,
    2,
    16,
    tag="s",
)

# The ladder, each rung above what it builds on.
SCALAR_VARIANTS = (
    _row(
        "naive",
        "one thread per element of D, all reads from global memory",
        (_THREADS,),
        geometry.naive,
        pace=_paced(_BY_READING, 0.075, 0.046, scatter=1.7, alone=203, last=1000, start=600),
    ),
    _row(
        "thread_1d",
        "a one-dimensional grid, one thread per element of D",
        (_THREADS,),
        geometry.thread_1d,
        grid=_rung,
        pace=_paced(_BY_LINES, 0.09, alone=163, last=535, start=1385),
    ),
    _row(
        "block_1d",
        "blocks stride over the rows of D, threads over its columns",
        (_THREADS, _GRID),
        geometry.block_1d,
        grid=_rung,
        pace=_paced(_BY_LINES, 0.08, 0.043, alone=107, last=1350, start=800, lines=True),
    ),
    _row(
        "shared_row",
        "as block_1d, with the row of A in shared memory, in chunks",
        (
            _THREADS,
            Integer("chunk", "elements of A in shared memory", 1024, 1, STATIC_SHARED),
            _GRID,
        ),
        geometry.shared_row,
        grid=_rung,
        pace=_paced(_BY_LINES, 0.07, alone=202, last=1790, start=850, lines=True, exact=True),
    ),
    _row(
        "tiles",
        "square tiles of A and B in shared memory",
        (_TILE, _TILE_THREADS),
        geometry.tiles,
        grid=_tiles,
        pace=_paced(_BY_TILES, 0.125, 0.23, alone=950, last=1050, start=198),
    ),
    _row(
        "rec_tiles",
        "one tile of A against several neighbouring tiles of B",
        (_TILE, Integer("coarsen", "neighbouring tiles of B", 2, 1, 8), _TILE_THREADS),
        geometry.rec_tiles,
        grid=_tiles,
        pace=_paced(_BY_TILES, 0.16, 0.295, alone=765, last=1480, start=577),
    ),
    _row(
        "thread_tile_1d",
        "a column of results a thread, held in registers",
        (_threadblock("64x64x16", "64x32x16"), _thread_tile("16x1")),
        register_tiles.thread_tile,
        checks=rules.column_rules,
        transposes=True,
        grid=_rung,
        pace=_paced(_BY_REGISTERS, 0.325, 0.68, alone=559, last=2090, start=619, registers=64),
    ),
    _row(
        "thread_tile_2d",
        "a square of results a thread",
        (_threadblock("128x128x16", "64x128x16"), _thread_tile("8x8")),
        register_tiles.thread_tile,
        checks=rules.square_rules,
        transposes=True,
        grid=_rung,
        pace=_paced(_BY_REGISTERS, 0.515, 0.85, alone=871, last=1520, start=928),
    ),
    _row(
        "vectorized",
        "16 bytes at a time from shared memory, A transposed",
        (_threadblock("128x128x16", "64x128x16"), _thread_tile("8x8")),
        register_tiles.vectorized,
        checks=rules.vector_rules,
        printed=printed_copies(Copied.VECTORS),
        transposes=True,
        by_vectors=True,
        grid=_rung,
        pace=_paced(_BY_VECTORS, 0.65, 0.52, alone=762, last=1210, start=704),
    ),
    _row(
        "warp_tiled",
        "the lanes of a warp in an order without bank conflicts",
        (_threadblock("128x128x16", "64x128x16"), _thread_tile("8x8"), _WARP),
        register_tiles.vectorized,
        checks=rules.warp_rules,
        printed=printed_copies(Copied.VECTORS),
        transposes=True,
        by_vectors=True,
        grid=_rung,
        pace=_paced(_BY_VECTORS, 0.68, 0.55, alone=878, last=1250, start=730),
    ),
    _row(
        "multistage",
        "a pipeline of cp.async copies, several steps ahead",
        (_threadblock("128x128x16", "64x128x16"), _thread_tile("8x8"), _WARP, _STAGES),
        register_tiles.multistage,
        checks=rules.stage_rules,
        printed=printed_copies(Copied.ASYNC),
        transposes=True,
        by_vectors=True,
        dtypes=("f32", "f64", "i32"),
        min_arch=80,
        pace=_paced(_BY_VECTORS, 0.65, 0.69, alone=149, last=1520, start=952),
    ),
)
