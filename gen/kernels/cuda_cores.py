"""The kernels that compute on CUDA cores: their tunables, what follows from them, their rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from gen.kernels import signature
from gen.kernels.formulas import Fact
from gen.kernels.tunables import Choice, Conflict, Integer, Tunable
from gen.kernels.variant import (
    EPILOGUE,
    MAX_GRID_X,
    MAX_GRID_YZ,
    MAX_STATIC_SHARED,
    MAX_THREADS,
    Geometry,
    Variant,
    epilogue_rule,
)
from gen.spec.dtypes import DTypes
from gen.spec.kernel import KernelSpec, Tile

Values = Mapping[str, Any]


# A grid has at most 65,535 blocks along y: past that, blocks stride over the rows that are left.
def _two_dimensional(width: str, height: str) -> tuple[Fact, ...]:
    return (
        Fact("grid_x", f"(N + {width} - 1) / {width}", "columns of blocks"),
        Fact("rows", f"(M + {height} - 1) / {height}", "of blocks; they stride over the rest"),
        Fact("grid_y", f"rows < {MAX_GRID_YZ} ? rows : {MAX_GRID_YZ}"),
    )


def _naive(t: Values, _: DTypes) -> Geometry:
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


def _tiles(t: Values, d: DTypes) -> Geometry:
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


def _rec_tiles(t: Values, d: DTypes) -> Geometry:
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


def _thread_1d(t: Values, _: DTypes) -> Geometry:
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


def _block_1d(t: Values, _: DTypes) -> Geometry:
    n = t["threads"]
    return Geometry(
        Tile(1, n, 1), (n, 1), facts=_row_blocks(t), strides="x", values={"block": "kThreads"}
    )


def _shared_row(t: Values, d: DTypes) -> Geometry:
    return Geometry(
        Tile(1, t["threads"], t["chunk"]),
        (t["threads"], 1),
        facts=_row_blocks(t),
        static_shared=t["chunk"] * d.input.size,
        strides="x",
        values={"block": "kThreads"},
    )


def _printed(spec: KernelSpec) -> Mapping[str, Any]:
    kernel = signature.restricted(signature.matrices(spec.has_bias))
    return {
        "facts": spec.geometry.facts,
        "shared_bytes": spec.geometry.dynamic_shared,
        "signature": {
            "launch": signature.launch(spec.has_bias, has_workspace=False),
            "workspace": (),
            "kernel": kernel,
            "kernel_arguments": [p.name for p in kernel],
        },
    }


def _rules(chosen: Choice) -> None:
    epilogue_rule(chosen.values["epilogue"], chosen.dtypes)


def _row(
    name: str,
    summary: str,
    tunables: tuple[Tunable, ...],
    geometry: Callable[[Values, DTypes], Geometry],
    rank: int = 0,
) -> Variant:
    return Variant(
        name,
        summary,
        f"kernels/{name}.cu.j2",
        (*tunables, EPILOGUE),
        geometry,
        rules=_rules,
        printed=_printed,
        rank=rank,
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

SCALAR_VARIANTS = (
    _row(
        "naive",
        "one thread per element of D, all reads from global memory",
        (_THREADS,),
        _naive,
    ),
    _row(
        "tiles",
        "square tiles of A and B in shared memory",
        (_TILE, _TILE_THREADS),
        _tiles,
    ),
    _row(
        "rec_tiles",
        "one tile of A against several neighbouring tiles of B",
        (_TILE, Integer("coarsen", "neighbouring tiles of B", 2, 1, 8), _TILE_THREADS),
        _rec_tiles,
        rank=10,
    ),
    _row(
        "thread_1d",
        "a one-dimensional grid, one thread per element of D",
        (_THREADS,),
        _thread_1d,
    ),
    _row(
        "block_1d",
        "blocks stride over the rows of D, threads over its columns",
        (_THREADS, _GRID),
        _block_1d,
    ),
    _row(
        "shared_row",
        "as block_1d, with the row of A in shared memory, in chunks",
        (
            _THREADS,
            Integer("chunk", "elements of A in shared memory", 1024, 1, MAX_STATIC_SHARED),
            _GRID,
        ),
        _shared_row,
    ),
)
