"""What follows from the tunables of `simt`: tiles, threads, lines in shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import Any

from gen.kernels.tensor_cores.tiles import sums, warps
from gen.kernels.tunables import sizes
from gen.kernels.variant import Geometry
from gen.spec.arch import BANKS, UNIT, WARP
from gen.spec.dtypes import DTypes
from gen.spec.kernel import Tile

Values = Mapping[str, Any]

LANES_M, LANES_N = 8, 4  # of a warp, below and beside each other
STAGED_GAP = 4  # elements between staged rows, against bank conflicts
LINES_AT = UNIT  # bytes: behind an mbarrier, at a multiple of what is copied and read at once
LANES_K = 8  # of a warp that copy neighbours along K: 32 bytes of elements of 4, a sector


def block_and_warp(t: Values) -> tuple[Tile, Tile]:
    block = Tile._make(sizes(t["threadblock"]))
    return block, Tile._make((*sizes(t["warp"]), block.k))


def chunk_of(d: DTypes) -> int:
    return UNIT // d.input.size


def threads_of(t: Values) -> int:
    return WARP * int(t["sliced_k"]) * warps(*block_and_warp(t))


def team_k(t: Values) -> int:
    """Elements along K that a team multiplies in a turn of the main loop: its share of a step."""
    return block_and_warp(t)[0].k // int(t["sliced_k"])


def lanes_k(block: Tile) -> int:
    """Of a warp, those that read neighbouring chunks of elements of 4 bytes, in a step."""
    return block.k * 4 // UNIT


def line(t: Values, d: DTypes) -> int:
    """Elements from a line of shared memory to the next: both operands' at one k, and a gap."""
    block, _ = block_and_warp(t)
    lanes = lanes_k(block) if t["held"] else LANES_K
    return block.m + block.n + BANKS // lanes // d.input.size


def window(t: Values) -> int:
    """Elements of which a line's chunks in a step begin at a multiple, where they pass registers.

    A thread's lines are a multiple of that apart, so that all of them begin at one place in it.
    """
    block, _ = block_and_warp(t)
    return gcd(block.k, threads_of(t) // lanes_k(block))


def step(t: Values, d: DTypes) -> int:
    """Elements of shared memory that a step along K takes."""
    return block_and_warp(t)[0].k * line(t, d)


def own_registers(t: Values, d: DTypes) -> int:
    """Of a thread, for its sums and the fragments of two k."""
    _, warp = block_and_warp(t)
    fragments = 2 * (warp.m // LANES_M + warp.n // LANES_N) * d.input.size // 4
    return sums(warp, d) + fragments


def staged_bytes(t: Values, d: DTypes) -> int:
    """Sums of all teams, a chunk of rows of each lane."""
    block, warp = block_and_warp(t)
    rows: int = t["sliced_k"] * (block.m // warp.m) * LANES_M * chunk_of(d)
    return rows * (block.n + STAGED_GAP) * d.input.size


def stages_bytes(t: Values, d: DTypes, stages: int) -> int:
    return stages * step(t, d) * d.input.size


def shared_bytes(t: Values, d: DTypes, stages: int) -> int:
    """An mbarrier, and stages, or sums when they have been read."""
    return LINES_AT + max(stages_bytes(t, d, stages), staged_bytes(t, d))


def geometry(t: Values, d: DTypes) -> Geometry:
    block, warp = block_and_warp(t)
    threads = threads_of(t)
    return Geometry(
        block,
        (threads, 1),
        dynamic_shared=shared_bytes(t, d, t["stages"]),
        values={
            "tile": block,
            "warp": warp,
            "threads": threads,
            "chunk": chunk_of(d),
            "line": line(t, d),
            "window": window(t),
            "step": step(t, d),
            "lines_at": LINES_AT,
            "staged_gap": STAGED_GAP,
            "stages_bytes": stages_bytes(t, d, t["stages"]),
            "staged_bytes": staged_bytes(t, d),
        },
        warp=warp,
    )
