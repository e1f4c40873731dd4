"""The rules among the tunables of `simt`: each names itself, the values, whom to blame."""

from __future__ import annotations

from gen.kernels.epilogues import epilogue_rule
from gen.kernels.simt.geometry import (
    LANES_K,
    LANES_M,
    LANES_N,
    block_and_warp,
    chunk_of,
    own_registers,
    shared_bytes,
    threads_of,
)
from gen.kernels.simt.held import OTHERS, held_rule
from gen.kernels.tensor_cores.rules import shared_rule, stream_rule
from gen.kernels.tensor_cores.tiles import registers
from gen.kernels.tunables import Choice, Conflict
from gen.kernels.variant import multiple_rule
from gen.spec.arch import WARP
from gen.spec.kernel import Tile
from gen.spec.problem import along_k

MOST_WARPS = 16


def rules(chosen: Choice) -> None:
    epilogue_rule(chosen.values["epilogue"], chosen.dtypes)
    block, warp = block_and_warp(chosen.values)
    chunk = chunk_of(chosen.dtypes)
    for axis, own, size, part in (
        ("m", LANES_M, block.m, warp.m),
        ("n", LANES_N, block.n, warp.n),
    ):
        multiple_rule("warp", axis, part, own * chunk, f"{own * chunk}: {own} lanes of {chunk}")
        multiple_rule("threadblock", axis, size, part, f"warp.{axis}={part}", "warp")
    teams = chosen.values["sliced_k"]
    multiple_rule("threadblock", "k", block.k, LANES_K, f"{LANES_K}: lanes that copy along K")
    multiple_rule(
        "threadblock", "k", block.k, 2 * teams, f"{2 * teams} with sliced_k={teams}", "sliced_k"
    )
    count = threads_of(chosen.values) // WARP
    if count > MOST_WARPS:
        raise Conflict(
            f"threadblock={block} with sliced_k={teams} has {count} warps of {warp.m}x{warp.n}, "
            f"more than {MOST_WARPS}",
            "sliced_k",
            "warp",
            "threadblock",
        )
    stream_rule(chosen, ("split_k", 1))
    _registers_rule(chosen, warp)
    _copies_rule(chosen, block)
    held_rule(chosen)
    shared_rule(chosen, shared_bytes)


def _registers_rule(chosen: Choice, warp: Tile) -> None:
    """Sums and the fragments of two k fit the registers of a thread: what does not is spilled."""
    wanted = own_registers(chosen.values, chosen.dtypes)
    most = registers(threads_of(chosen.values)) - OTHERS
    if wanted > most:
        raise Conflict(
            f"warp={warp.m}x{warp.n} wants {wanted} registers of each thread for sums and "
            f"fragments, more than the {most} that there are",
            "warp",
            "threadblock",
        )


def _copies_rule(chosen: Choice, block: Tile) -> None:
    """All threads copy the same number of whole lines of a K block, or some of them nothing."""
    threads, k = threads_of(chosen.values), block.k
    sides = zip("mn", (block.m, block.n), along_k(chosen.layouts), strict=True)
    for axis, lines, along in sides:
        if along:
            fits = lines % (threads // LANES_K) == 0
        else:
            fits = _shared_out(threads, lines // chunk_of(chosen.dtypes), k)
        if not fits:
            raise Conflict(
                f"{threads} threads cannot share out evenly the copies of a tile with "
                f"threadblock.{axis}={lines}",
                "threadblock",
                "warp",
                "sliced_k",
            )


def _shared_out(threads: int, of_line: int, k: int) -> bool:
    """Whether threads share out evenly k lines with so many chunks each."""
    if of_line > threads:
        return of_line % threads == 0
    at_once = threads // of_line
    return threads % of_line == 0 and (at_once >= k or k % at_once == 0)
