"""One `Variant` row per kernel: all that the rest of `gen` knows about it.

A new kernel is one template in `templates/`, one row in `VARIANTS`, one row in the tests.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gen.errors import SpecError, UsageError, unknown
from gen.spec import (
    DTYPES,
    SHARED_KIB,
    DTypes,
    GemmShape,
    KernelSpec,
    Tile,
    compute_capability,
    parse_dtype,
    parse_layout,
)

MAX_THREADS = 1024  # per block, on every GPU so far
MAX_GRID_X = 2**31 - 1  # blocks along x; along y and z there are at most 65,535
MAX_GRID_YZ = 65_535
MAX_STATIC_SHARED = 48 * 1024  # bytes a kernel may declare without asking the driver for more

Dim3 = tuple[int, int, int]


class Tunable(NamedTuple):
    """An integer that the user may choose. `default` may depend on the tunables before it."""

    name: str
    low: int
    high: int
    default: int | Callable[[Mapping[str, int]], int]
    help: str


@dataclass(frozen=True)
class Geometry:
    """What follows from the tunables: the tile, the threads, the shared memory, the grid.

    `grid` gives the blocks (x, y, z) for a shape with M, N >= 1, as the launcher in the emitted
    file computes them. `values` are further numbers for the template. Along the axes in `strides`
    ("x", "y") the kernel is right with fewer blocks, too: they stride over the rest.
    """

    threadblock: Tile
    threads: tuple[int, int]
    grid: Callable[[GemmShape], Dim3]
    static_shared: int = 0
    dynamic_shared: int = 0
    values: Mapping[str, int] = field(default_factory=dict)
    strides: str = ""


class LaunchConfig(NamedTuple):
    """Blocks, threads a block, bytes of dynamic shared memory."""

    grid: Dim3
    block: Dim3
    shared_bytes: int


@dataclass(frozen=True)
class Variant:
    """A kernel's row: names, limits, tunables, and the geometry they imply."""

    name: str
    summary: str
    template: str
    tunables: tuple[Tunable, ...]
    geometry: Callable[[Mapping[str, int], DTypes], Geometry]
    dtypes: tuple[str, ...] = tuple(DTYPES)
    min_arch: int = 75


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded up; the number of tiles of b that cover a."""
    return -(-a // b)


def _rows(shape: GemmShape, tile_rows: int) -> int:
    # Past the limit the blocks stride over the rows that are left.
    return min(ceil_div(shape.m, tile_rows), MAX_GRID_YZ)


def _naive(t: Mapping[str, int], _: DTypes) -> Geometry:
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


def _tiles(t: Mapping[str, int], d: DTypes) -> Geometry:
    tile, rows = t["tile"], _thread_rows(t["tile"], t["threads"])
    return Geometry(
        Tile(tile, tile, tile),
        (tile, rows),
        lambda s: (ceil_div(s.n, tile), _rows(s, tile), 1),
        static_shared=2 * tile * tile * d.accumulator.size,
        values={"thread_rows": rows},
        strides="y",
    )


def _rec_tiles(t: Mapping[str, int], d: DTypes) -> Geometry:
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


def _thread_1d(t: Mapping[str, int], _: DTypes) -> Geometry:
    n = t["threads"]
    return Geometry(
        Tile(1, n, 1),
        (n, 1),
        lambda s: (min(ceil_div(s.m * s.n, n), MAX_GRID_X), 1, 1),
        strides="x",
    )


def _row_blocks(t: Mapping[str, int]) -> Callable[[GemmShape], Dim3]:
    most = t["grid"] or MAX_GRID_X
    return lambda s: (min(s.m, most), 1, 1)


def _block_1d(t: Mapping[str, int], _: DTypes) -> Geometry:
    return Geometry(Tile(1, t["threads"], 1), (t["threads"], 1), _row_blocks(t), strides="x")


def _shared_row(t: Mapping[str, int], d: DTypes) -> Geometry:
    return Geometry(
        Tile(1, t["threads"], t["chunk"]),
        (t["threads"], 1),
        _row_blocks(t),
        static_shared=t["chunk"] * d.input.size,
        strides="x",
    )


_THREADS = Tunable("threads", 1, MAX_THREADS, 256, "threads per block")
_TILE = Tunable("tile", 1, 32, 32, "width of the square tiles")
_TILE_THREADS = Tunable(
    "threads", 1, MAX_THREADS, lambda t: t["tile"] ** 2, "threads per block: tile x a divisor of it"
)
_GRID = Tunable("grid", 0, MAX_GRID_X, 0, "blocks at most; 0 is one per row of D")

VARIANTS: Mapping[str, Variant] = {
    v.name: v
    for v in (
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
            (_TILE, Tunable("coarsen", 1, 8, 2, "neighbouring tiles of B"), _TILE_THREADS),
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
                Tunable("chunk", 1, MAX_STATIC_SHARED, 1024, "elements of A in shared memory"),
                _GRID,
            ),
            _shared_row,
        ),
    )
}


def get_variant(name: str) -> Variant:
    """The row called `name`. Raises UsageError with the nearest name."""
    if name not in VARIANTS:
        raise unknown("variant", name, VARIANTS)
    return VARIANTS[name]


def _resolve(variant: Variant, given: Mapping[str, int]) -> dict[str, int]:
    """Every tunable's value: the given one, checked against its range, or the default."""
    names = [t.name for t in variant.tunables]
    for name in given:
        if name not in names:
            raise SpecError(f"{variant.name} has no tunable '{name}'; it has {', '.join(names)}")
    values: dict[str, int] = {}
    for t in variant.tunables:
        value = given.get(t.name)
        if value is None:
            value = t.default(values) if callable(t.default) else t.default
        if not t.low <= value <= t.high:
            raise SpecError(f"{t.name}={value} is out of range; use {t.low} to {t.high} ({t.help})")
        values[t.name] = value
    return values


def _check_shared(variant: Variant, geometry: Geometry, arch: str, given: Collection[str]) -> None:
    static, dynamic = geometry.static_shared, geometry.dynamic_shared
    blame = given or [t.name for t in variant.tunables]  # the defaults alone fit
    most = SHARED_KIB[compute_capability(arch)] * 1024
    for bytes_, limit, what in (
        (static, MAX_STATIC_SHARED, "a kernel may declare"),
        (static + dynamic, most, f"a block may have on {arch}"),
    ):
        if bytes_ > limit:
            raise SpecError(
                f"{variant.name} wants {bytes_} bytes of shared memory, more than the {limit} "
                f"that {what}; use a smaller {' or '.join(blame)}"
            )


def make_spec(
    variant: str,
    *,
    dtype: str = "f32",
    layout: str = "rrr",
    arch: str = "sm_80",
    name: str | None = None,
    **tunables: int | None,
) -> KernelSpec:
    """A checked specification; tunables left out or None take their defaults.

    Raises UsageError for an unknown variant, dtype, layout or architecture, and SpecError for a
    combination that cannot be built; the message says which rule, the values, and what to use.
    """
    row, types, layouts = get_variant(variant), parse_dtype(dtype), parse_layout(layout)
    if dtype not in row.dtypes:
        raise SpecError(f"{variant} has no dtype {dtype}; use {', '.join(row.dtypes)}")
    if compute_capability(arch) < row.min_arch:
        raise SpecError(f"{variant} needs sm_{row.min_arch} or newer, not {arch}")
    given = {k: v for k, v in tunables.items() if v is not None}
    values = _resolve(row, given)
    geometry = row.geometry(values, types)
    _check_shared(row, geometry, arch, given)
    return KernelSpec(
        variant, types, layouts, arch, values, geometry.threadblock, geometry.threads, symbol=name
    )


def spec_from_json(text: str) -> KernelSpec:
    """The specification that `KernelSpec.to_json` wrote. Raises UsageError or SpecError."""
    try:
        fields = json.loads(text)
        return make_spec(**fields)
    except (TypeError, ValueError) as error:
        raise UsageError(f"this is no kernel specification: {text!r} ({error})") from None


def geometry(spec: KernelSpec) -> Geometry:
    """Tile, threads, shared memory and grid of a specification."""
    return get_variant(spec.variant).geometry(spec.tunables, spec.dtypes)


def launch_config(spec: KernelSpec, shape: GemmShape) -> LaunchConfig | None:
    """How to launch the kernel on a shape; None where D is empty and there is nothing to do."""
    if shape.m == 0 or shape.n == 0:
        return None
    g = geometry(spec)
    grid = g.grid(shape)
    if grid[0] > MAX_GRID_X:
        raise SpecError(f"{shape} needs {grid[0]} blocks along x, more than {MAX_GRID_X}")
    return LaunchConfig(grid, (*g.threads, 1), g.dynamic_shared)
