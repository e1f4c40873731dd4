"""What follows from a tensor-core kernel's tunables: tiles, warps, shared memory.

threadblock.m counts rows of the left operand, threadblock.n columns of the right one. Where D is
column-major, its transpose is computed: then B' is the left operand and A' the right one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gen.dtypes import DTypes
from gen.spec import SHARED_KIB, Tile
from gen.tunables import sizes
from gen.variant import Geometry

WARP = 32

# Bytes of shared memory by the tunables, the types and a number of stages.
SharedBytes = Callable[[Mapping[str, Any], DTypes, int], int]


def tiles(values: Mapping[str, Any]) -> tuple[Tile, Tile, Tile]:
    """threadblock, warp and instruction; a warp's K is the threadblock's."""
    block = Tile._make(sizes(values["threadblock"]))
    warp = Tile._make((*sizes(values["warp"]), block.k))
    return block, warp, Tile._make(sizes(values["instruction"]))


def warps(block: Tile, warp: Tile) -> int:
    """How many warps compute a block's tile."""
    return (block.m // warp.m) * (block.n // warp.n)


def _geometry(t: Mapping[str, Any], threads: int, shared_bytes: int, **more: int) -> Geometry:
    block, warp, instruction = tiles(t)
    values = {"tile": block, "warp": warp, "instruction": instruction, "threads": threads}
    return Geometry(
        block,
        (threads, 1),
        dynamic_shared=shared_bytes,
        values={**values, **more},
        warp=warp,
        instruction=instruction,
    )


def mma(t: Mapping[str, Any], d: DTypes) -> Geometry:
    """What follows from the tunables of `mma`."""
    block, warp, _ = tiles(t)
    return _geometry(t, WARP * warps(block, warp), mma_shared(t, d, t["stages"]))


def mma_tma(t: Mapping[str, Any], d: DTypes) -> Geometry:
    """What follows from the tunables of `mma_tma`."""
    block, warp, _ = tiles(t)
    consumers = t["sliced_k"] * warps(block, warp)
    producers = 4 if consumers > 4 else 1  # registers move between groups of four warps
    threads = WARP * (consumers + producers)
    staging = tma_staging(t, d)
    shared_bytes = tma_shared(t, d, t["stages"], staging)
    more = {"staged_rows": staging.rows, "slots": staging.slots, "staging_line": staging.line}
    return _geometry(t, threads, shared_bytes, **more)


def mma_shared(t: Mapping[str, Any], d: DTypes, stages: int) -> int:
    """Tiles of both operands; when they have been read, 16 rows of D of each warp on their way.

    These are 8 elements longer than they have to be, against bank conflicts.
    """
    block, warp, _ = tiles(t)
    rows = warps(block, warp) * 16 * (warp.n + 8) * d.output.size
    return max(stages * _stage_bytes(t, d), rows)


class Staging(NamedTuple):
    """Where a warp of mma_tma leaves D to TMA: `slots` times `rows` rows, `line` bytes wide."""

    rows: int
    slots: int
    line: int


_LEAST = Staging(16, 1, 32)


def tma_staging(t: Mapping[str, Any], d: DTypes) -> Staging:
    """As much as there is room for: many rows at once first, then several of these in turn.

    Slots divide what a warp has, so that the slot after the last one is the first one. Lines are as
    long as TMA can swizzle them.
    """
    _, warp, _ = tiles(t)
    finished = _finished(t)
    line = next(n for n in (128, 64, 32) if warp.n * d.output.size % n == 0)
    limit = SHARED_KIB[90] * 1024
    for rows in (64, 32, 16):
        count = finished // rows
        for slots in range(count, 0, -1):
            staging = Staging(rows, slots, line)
            fits = tma_shared(t, d, t["stages"], staging) <= limit
            if fits and finished % rows == 0 and count % slots == 0:
                return staging
    return _LEAST._replace(line=line)


def _finished(t: Mapping[str, Any]) -> int:
    """Rows that each warp of mma_tma finishes; where two teams' shares differ, what divides both.

    Teams share blocks of 16 rows.
    """
    _, warp, _ = tiles(t)
    blocks = warp.m // 16
    if t["sliced_k"] == 1:
        return warp.m
    return 16 * (blocks // 2 if blocks % 2 == 0 else 1)


def tma_shared(t: Mapping[str, Any], d: DTypes, stages: int, staging: Staging = _LEAST) -> int:
    """Tiles with two barriers for each stage, rows of D on their way, and room for alignment.

    The swizzle counts on tiles that start at multiples of 1024 bytes.
    """
    block, warp, _ = tiles(t)
    rows = t["sliced_k"] * warps(block, warp) * staging.slots * staging.rows
    sliced = 16 if t["sliced_k"] > 1 else 0  # the barrier behind the exchange of sums
    return stages * (_stage_bytes(t, d) + 16) + rows * warp.n * d.output.size + 1024 + sliced


def _stage_bytes(t: Mapping[str, Any], d: DTypes) -> int:
    block, _, _ = tiles(t)
    return (block.m + block.n) * block.k * d.input.size
