"""Chunks of 16 bytes that pass registers on their way: where `simt` has them; its default."""

from __future__ import annotations

from gen.kernels.simt.geometry import (
    LANES_M,
    LANES_N,
    block_and_warp,
    chunk_of,
    lanes_k,
    own_registers,
    shared_bytes,
    team_k,
    threads_of,
)
from gen.kernels.tensor_cores.rules import shared_rule
from gen.kernels.tensor_cores.tiles import registers
from gen.kernels.tunables import Choice, Conflict
from gen.spec.problem import along_k

OTHERS = 40  # registers of a thread for all but sums, fragments and chunks
CHUNK, POINTER = 4, 2  # of a thread for each chunk, and for where it is in memory
STREAM = 1  # more for others, for each team, where blocks share tiles along K
LEAST_STAGES = 4  # where both operands run along K
DEPTHS = (8, 16, 32)  # along K: chunks of a line for 2, 4 or 8 lanes

# Multiplications of a step that lasts until global memory has answered: of a block without teams,
# of a lane of a team. Shorter steps were slower, as measured.
_LONG_STEP = 128 * 256 * 8
_LONG_SHARE = 8 * 16 * 8


def default(chosen: Choice) -> int:
    """Whether chunks pass registers where nothing is said: where that was measured to be faster."""
    t = chosen.values
    block, warp = block_and_warp(t)
    if (
        min(*block, *warp) < chunk_of(chosen.dtypes)
        or block.m % warp.m
        or block.n % warp.n
        or t["sliced_k"] < 1
    ):
        return 0  # as rules refuse
    if t["sliced_k"] > 1:
        of_lane = warp.m // LANES_M * (warp.n // LANES_N) * team_k(t)
        pays = all(along_k(chosen.layouts)) and of_lane >= _LONG_SHARE
    else:
        pays = block.m <= block.n and block.m * block.n * block.k >= _LONG_STEP
    try:
        with_it = chosen._replace(values={**t, "held": 1})
        held_rule(with_it)
        shared_rule(with_it, shared_bytes)
    except Conflict:
        return 0
    return int(pays)


def held_rule(chosen: Choice) -> None:
    """Raises Conflict where chunks cannot pass registers."""
    if not chosen.values["held"]:
        return
    d, block = chosen.dtypes, block_and_warp(chosen.values)[0]
    runs = along_k(chosen.layouts)
    if d.input.size != 4:
        raise Conflict(f"held=1 is for elements of 4 bytes, not {d.name}", "held", "dtype")
    if not any(runs):
        raise Conflict(
            f"held=1 is for operands whose lines run along K, as none does in layout "
            f"{chosen.layouts}",
            "held",
        )
    if block.k not in DEPTHS:
        raise Conflict(
            f"held=1 goes with steps of {', '.join(map(str, DEPTHS))} along K, not {block.k}",
            "held",
            "threadblock",
        )
    threads = threads_of(chosen.values)
    for axis, lines, along in zip("mn", (block.m, block.n), runs, strict=True):
        of_line = lines // chunk_of(d)
        if along:
            fits = lines % (threads // lanes_k(block)) == 0
        else:
            fits = threads % of_line == 0 and block.k % (threads // of_line) == 0
        if not fits:
            raise Conflict(
                f"with held=1, {threads} threads cannot share out evenly the chunks of a tile "
                f"with threadblock.{axis}={lines}",
                "held",
                "threadblock",
            )
    chunks = (block.m + block.n) * block.k // chunk_of(d) // threads
    streams = chosen.values["stream_k"]
    most = registers(threads) - OTHERS - streams * STREAM * chosen.values["sliced_k"]
    wanted = own_registers(chosen.values, d) + (CHUNK + POINTER) * chunks
    if wanted > most:
        raise Conflict(
            f"held=1 wants {wanted} registers of each thread for sums, fragments and {chunks} "
            f"chunks, more than the {most} that there are{' with stream_k=1' * streams}",
            "held",
            "threadblock",
            "warp",
        )
    if all(runs) and chosen.values["stages"] < LEAST_STAGES:
        raise Conflict(
            f"held=1 goes with {LEAST_STAGES} stages or more, not {chosen.values['stages']}: where "
            f"lines are not aligned, what is stored last is multiplied two steps later",
            "stages",
            "held",
        )
    first = chosen.values["stages"] - 1  # steps, which are read at once in the beginning
    wanted = (CHUNK * first + POINTER) * chunks
    if wanted > most:
        raise Conflict(
            f"held=1 with stages={first + 1} wants {wanted} registers of each thread for the first "
            f"{first} steps, more than the {most} that there are",
            "stages",
            "held",
        )
