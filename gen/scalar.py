"""The kernels that compute on CUDA cores: their tunables, what follows from them, their rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from gen.dtypes import DTypes
from gen.errors import SpecError
from gen.plan import Dim3
from gen.spec import GemmShape, Tile
from gen.tunables import Integer
from gen.variant import (
    MAX_GRID_X,
    MAX_GRID_YZ,
    MAX_STATIC_SHARED,
    MAX_THREADS,
    Geometry,
    Variant,
    ceil_div,
)

Values = Mapping[str, Any]


def _rows(shape: GemmShape, tile_rows: int) -> int:
    # Past the limit the blocks stride over the rows that are left.
    return min(ceil_div(shape.m, tile_rows), MAX_GRID_YZ)


def _naive(t: Values, _: DTypes) -> Geometry:
    # The most nearly square block, wider than tall: 256 is 16 x 16, 128 is 16 x 8.
    count = t["threads"]
    y = next(y for y in range(math.isqrt(count), 0, -1) if count % y == 0)
    x = count // y
    return Geometry(
        Tile(y, x, 1), (x, y), lambda s: (ceil_div(s.n, x), _rows(s, y), 1), strides="y"
    )


def _thread_rows(tile: int, threads: int) -> int:
    rows, rest = divmod(threads, tile)
    if rest or rows == 0 or tile % rows:
        good = [tile * r for r in range(1, tile + 1) if tile % r == 0]
        raise SpecError(
            f"threads={threads} is not tile={tile} times a divisor of {tile}; "
            f"use {', '.join(map(str, good))}"
        )
    return rows


def _tiles(t: Values, d: DTypes) -> Geometry:
    tile, rows = t["tile"], _thread_rows(t["tile"], t["threads"])
    return Geometry(
        Tile(tile, tile, tile),
        (tile, rows),
        lambda s: (ceil_div(s.n, tile), _rows(s, tile), 1),
        static_shared=2 * tile * tile * d.accumulator.size,
        values={"thread_rows": rows},
        strides="y",
    )


def _rec_tiles(t: Values, d: DTypes) -> Geometry:
    tile, width = t["tile"], t["tile"] * t["coarsen"]
    rows = _thread_rows(tile, t["threads"])
    return Geometry(
        Tile(tile, width, tile),
        (tile, rows),
        lambda s: (ceil_div(s.n, width), _rows(s, tile), 1),
        dynamic_shared=(1 + t["coarsen"]) * tile * tile * d.accumulator.size,
        values={"thread_rows": rows},
        strides="y",
    )


def _thread_1d(t: Values, _: DTypes) -> Geometry:
    n = t["threads"]
    return Geometry(
        Tile(1, n, 1),
        (n, 1),
        lambda s: (min(ceil_div(s.m * s.n, n), MAX_GRID_X), 1, 1),
        strides="x",
    )


def _row_blocks(t: Values) -> Callable[[GemmShape], Dim3]:
    most = t["grid"] or MAX_GRID_X
    return lambda s: (min(s.m, most), 1, 1)


def _block_1d(t: Values, _: DTypes) -> Geometry:
    return Geometry(Tile(1, t["threads"], 1), (t["threads"], 1), _row_blocks(t), strides="x")


def _shared_row(t: Values, d: DTypes) -> Geometry:
    return Geometry(
        Tile(1, t["threads"], t["chunk"]),
        (t["threads"], 1),
        _row_blocks(t),
        static_shared=t["chunk"] * d.input.size,
        strides="x",
    )


_THREADS = Integer("threads", "threads per block", 256, 1, MAX_THREADS)
_TILE = Integer("tile", "width of the square tiles", 32, 1, 32)
_TILE_THREADS = Integer(
    "threads",
    "threads per block: tile x a divisor of it",
    lambda chosen: int(chosen.values["tile"] ** 2),
    1,
    MAX_THREADS,
)
_GRID = Integer("grid", "blocks at most; 0 is one per row of D", 0, 0, MAX_GRID_X)

SCALAR_VARIANTS = (
    Variant(
        "naive",
        "one thread per element of D, all reads from global memory",
        "naive.cu.j2",
        (_THREADS,),
        _naive,
    ),
    Variant(
        "tiles",
        "square tiles of A and B in shared memory",
        "tiles.cu.j2",
        (_TILE, _TILE_THREADS),
        _tiles,
    ),
    Variant(
        "rec_tiles",
        "one tile of A against several neighbouring tiles of B",
        "rec_tiles.cu.j2",
        (_TILE, Integer("coarsen", "neighbouring tiles of B", 2, 1, 8), _TILE_THREADS),
        _rec_tiles,
    ),
    Variant(
        "thread_1d",
        "a one-dimensional grid, one thread per element of D",
        "thread_1d.cu.j2",
        (_THREADS,),
        _thread_1d,
    ),
    Variant(
        "block_1d",
        "blocks stride over the rows of D, threads over its columns",
        "block_1d.cu.j2",
        (_THREADS, _GRID),
        _block_1d,
    ),
    Variant(
        "shared_row",
        "as block_1d, with the row of A in shared memory, in chunks",
        "shared_row.cu.j2",
        (
            _THREADS,
            Integer("chunk", "elements of A in shared memory", 1024, 1, MAX_STATIC_SHARED),
            _GRID,
        ),
        _shared_row,
    ),
)
