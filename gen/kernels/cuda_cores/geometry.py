"""What follows from the tunables of a kernel on CUDA cores: tile, threads, shared memory, grid."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gen.kernels.formulas import Fact
from gen.kernels.tunables import Conflict
from gen.kernels.variant import Geometry
from gen.spec.arch import MAX_GRID_X, MAX_GRID_YZ
from gen.spec.dtypes import DTypes
from gen.spec.kernel import Tile

Values = Mapping[str, Any]


# A grid has at most 65,535 blocks along y: past that, blocks stride over the rows that are left.
def _two_dimensional(width: str, height: str) -> tuple[Fact, ...]:
    return (
        Fact("grid_x", f"(N + {width} - 1) / {width}", "columns of blocks"),
        Fact("rows", f"(M + {height} - 1) / {height}", "of blocks; they stride over the rest"),
        Fact("grid_y", f"rows < {MAX_GRID_YZ} ? rows : {MAX_GRID_YZ}"),
    )


def naive(t: Values, _: DTypes) -> Geometry:
    """What follows from the tunables of `naive`."""
    # The most nearly square block, wider than tall: 256 is 16 x 16, 128 is 16 x 8.
    count = t["threads"]
    y = next(y for y in range(math.isqrt(count), 0, -1) if count % y == 0)
    x = count // y
    return Geometry(
        Tile(y, x, 1),
        (x, y),
        facts=_two_dimensional("kThreadsX", "kThreadsY"),
        constants={"kThreadsX": x, "kThreadsY": y},
        values={"block": "kThreadsX, kThreadsY"},
        strides="y",
    )


def _thread_rows(tile: int, threads: int) -> int:
    rows, rest = divmod(threads, tile)
    if rest or rows == 0 or tile % rows:
        raise Conflict(
            f"threads={threads} is not tile={tile} times a divisor of {tile}", "threads", "tile"
        )
    return rows


def tiles(t: Values, d: DTypes) -> Geometry:
    """What follows from the tunables of `tiles`."""
    tile, rows = t["tile"], _thread_rows(t["tile"], t["threads"])
    return Geometry(
        Tile(tile, tile, tile),
        (tile, rows),
        facts=_two_dimensional("kTile", "kTile"),
        constants={"kTile": tile},
        static_shared=2 * tile * tile * d.accumulator.size,
        values={"thread_rows": rows, "block": "kTile, kThreadRows"},
        strides="y",
    )


def rec_tiles(t: Values, d: DTypes) -> Geometry:
    """What follows from the tunables of `rec_tiles`."""
    tile, width = t["tile"], t["tile"] * t["coarsen"]
    rows = _thread_rows(tile, t["threads"])
    return Geometry(
        Tile(tile, width, tile),
        (tile, rows),
        facts=_two_dimensional("kWidth", "kTile"),
        constants={"kWidth": width, "kTile": tile},
        dynamic_shared=(1 + t["coarsen"]) * tile * tile * d.accumulator.size,
        values={"thread_rows": rows, "block": "kTile, kThreadRows"},
        strides="y",
    )


def thread_1d(t: Values, _: DTypes) -> Geometry:
    """What follows from the tunables of `thread_1d`."""
    n = t["threads"]
    facts = (
        Fact("blocks", "(M * N + kThreads - 1) / kThreads", "they stride over the rest"),
        Fact("grid_x", f"blocks < {MAX_GRID_X} ? blocks : {MAX_GRID_X}"),
    )
    return Geometry(
        Tile(1, n, 1), (n, 1), facts=facts, constants={"kThreads": n}, strides="x",
        values={"block": "kThreads"},
    )  # fmt: skip


def _row_blocks(t: Values) -> tuple[Fact, ...]:
    most = t["grid"] or MAX_GRID_X
    return (Fact("grid_x", f"M < {most} ? M : {most}", "blocks; they stride over the rest"),)


def block_1d(t: Values, _: DTypes) -> Geometry:
    """What follows from the tunables of `block_1d`."""
    n = t["threads"]
    return Geometry(
        Tile(1, n, 1), (n, 1), facts=_row_blocks(t), strides="x", values={"block": "kThreads"}
    )


def shared_row(t: Values, d: DTypes) -> Geometry:
    """What follows from the tunables of `shared_row`."""
    return Geometry(
        Tile(1, t["threads"], t["chunk"]),
        (t["threads"], 1),
        facts=_row_blocks(t),
        static_shared=t["chunk"] * d.input.size,
        strides="x",
        values={"block": "kThreads"},
    )
