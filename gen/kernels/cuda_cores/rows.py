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


def _paced(share: float, registers: int, alone: float) -> Callable[[DTypes], Pace]:
    """The pace of a kernel that comes to a share of the multiplications; f16 is converted first."""
    wide = Pace("cuda", share, registers=registers, alone=alone, measured=("f32",))
    narrow = wide._replace(share=0.7 * share)
    return lambda dtypes: wide if dtypes.input.size >= 4 else narrow


def _tiles(_: Choice) -> Sequence[Mapping[str, Any]]:
    """What is chosen among."""
    return {}, {"tile": 16}


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
        pace=_paced(0.066, 32, 0.95),
    ),
    _row(
        "thread_1d",
        "a one-dimensional grid, one thread per element of D",
        (_THREADS,),
        geometry.thread_1d,
        pace=_paced(0.09, 32, 0.95),
    ),
    _row(
        "block_1d",
        "blocks stride over the rows of D, threads over its columns",
        (_THREADS, _GRID),
        geometry.block_1d,
        pace=_paced(0.091, 32, 0.75),
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
        pace=lambda dtypes: _paced(0.089, 32, 1)(dtypes)._replace(exact=True),
    ),
    _row(
        "tiles",
        "square tiles of A and B in shared memory",
        (_TILE, _TILE_THREADS),
        geometry.tiles,
        grid=_tiles,
        pace=_paced(0.125, 32, 0.75),
    ),
    _row(
        "rec_tiles",
        "one tile of A against several neighbouring tiles of B",
        (_TILE, Integer("coarsen", "neighbouring tiles of B", 2, 1, 8), _TILE_THREADS),
        geometry.rec_tiles,
        grid=_tiles,
        pace=lambda dtypes: _paced(0.168, 32, 0.66)(dtypes)._replace(measured=("f32", "f16")),
    ),
    _row(
        "thread_tile_1d",
        "a column of results a thread, held in registers",
        (_threadblock("64x64x16", "64x32x16"), _thread_tile("16x1")),
        register_tiles.thread_tile,
        checks=rules.column_rules,
        transposes=True,
        pace=_paced(0.31, 64, 0.4),
    ),
    _row(
        "thread_tile_2d",
        "a square of results a thread",
        (_threadblock("128x128x16", "64x128x16"), _thread_tile("8x8")),
        register_tiles.thread_tile,
        checks=rules.square_rules,
        transposes=True,
        pace=_paced(0.505, 128, 0.6),
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
        pace=_paced(0.635, 128, 0.65),
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
        pace=_paced(0.665, 128, 0.67),
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
        pace=_paced(0.615, 128, 0),
    ),
)
