"""What follows from a tensor-core kernel's tunables: tiles, warps, shared memory.

threadblock.m counts rows of the left operand, threadblock.n columns of the right one. Where D is
column-major, its transpose is computed: then B' is the left operand and A' the right one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gen.dtypes import DTypes
from gen.spec import Tile
from gen.tunables import sizes
from gen.variant import Geometry

WARP = 32
PRODUCERS = 4  # warps of mma_tma that copy instead of multiplying

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


def _geometry(t: Mapping[str, Any], threads: int, shared_bytes: int) -> Geometry:
    block, warp, instruction = tiles(t)
    return Geometry(
        block,
        (threads, 1),
        dynamic_shared=shared_bytes,
        values={"tile": block, "warp": warp, "instruction": instruction, "threads": threads},
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
    threads = WARP * (warps(block, warp) + PRODUCERS)
    return _geometry(t, threads, tma_shared(t, d, t["stages"]))


def mma_shared(t: Mapping[str, Any], d: DTypes, stages: int) -> int:
    """Tiles of both operands; when they have been read, sums on their way to D."""
    return max(stages * _stage_bytes(t, d), _staging_bytes(t, d))


def tma_shared(t: Mapping[str, Any], d: DTypes, stages: int) -> int:
    """Tiles with two barriers for each stage, sums on their way to D, and room for alignment.

    The swizzle counts on tiles that start at multiples of 1024 bytes.
    """
    return stages * (_stage_bytes(t, d) + 16) + _staging_bytes(t, d) + 1024


def _stage_bytes(t: Mapping[str, Any], d: DTypes) -> int:
    block, _, _ = tiles(t)
    return (block.m + block.n) * block.k * d.input.size


def _staging_bytes(t: Mapping[str, Any], d: DTypes) -> int:
    """8 rows of each warp's sums, which are 8 elements longer than they have to be."""
    block, warp, _ = tiles(t)
    return warps(block, warp) * 8 * (warp.n + 8) * d.scalar.size
