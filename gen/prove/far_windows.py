"""Which blocks of a launch compute the first or the last lines of a D too large to store."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from gen.kernels.formulas import ceil_div
from gen.kernels.launches import Dim3, Launch
from gen.spec.kernel import KernelSpec

Window = tuple[Dim3, Dim3]  # the first block, and the number of blocks along each axis


def row_windows(
    spec: KernelSpec, launch: Launch, rows: range, columns: int, size: int
) -> Iterator[Window]:
    """The blocks that compute these rows, or columns, whether they have these, elements or tiles.

    size: lines of a tile. Along the axis where blocks stride, that is told by what is left of a
    whole grid's share.
    """
    x, y, z = launch.grid
    if "y" in spec.geometry.strides:
        for first, count in _runs({row // size % y for row in rows}):
            yield (0, first, 0), (x, count, z)
        return
    if not spec.geometry.strides:  # a block for each tile, of which there is one beside another
        for first, count in _runs({row // size for row in rows}):
            yield (first, 0, 0), (count, y, z)
        return
    cluster, threads = spec.cluster_blocks, math.prod(launch.block)
    elements, all_ = range(rows.start * columns, rows.stop * columns), x // cluster
    by_rows = {row // each % all_ for each in (1, size) for row in rows}
    for first, count in _runs(by_rows | {e // threads % all_ for e in elements}):
        yield (first * cluster, 0, 0), (count * cluster, y, z)


def _runs(numbers: set[int]) -> Iterator[tuple[int, int]]:
    """Numbers that follow each other: the first and how many they are."""
    for first in sorted(numbers):
        if first - 1 not in numbers:
            yield first, next(n for n in itertools.count(1) if first + n not in numbers)


def tile_windows(
    spec: KernelSpec, launch: Launch, tiles: int, size: int, depth: int
) -> Iterator[Window]:
    """The first block and the number of blocks along each axis, of those that the tiles take."""
    x, y, z = launch.grid
    starts: Sequence[int]
    if launch.kernel == spec.name:
        # A persistent kernel's clusters have one tile of one slice each, slice by slice; the first
        # blocks have the last tiles where they may share them.
        cluster = spec.cluster_blocks
        last = range((tiles - 2) * cluster, x, tiles * cluster)
        starts = range(1) if spec.stream_k else last
        blocks = 2 * cluster
    elif "partials" in launch.args:
        blocks = 2 * x // tiles
        starts = range(x - blocks, x, blocks)
    else:
        # A block packs 8 lines, or 32: those of both operands, of which one has few.
        blocks = min(max(2 * size, depth) // 8 + 2, x)
        lines = ceil_div(tiles * size, 32)  # of blocks, where each packs so many
        starts = range(1) if x <= blocks else (0, max(lines - blocks, 0), x - blocks)
    for start in starts:
        yield (start, 0, 0), (min(blocks, x - start), y, z)
