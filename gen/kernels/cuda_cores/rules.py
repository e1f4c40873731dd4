"""The rules among the tunables of a kernel on CUDA cores, beyond those of its geometry."""

from __future__ import annotations

from gen.kernels.cuda_cores.register_tiles import (
    LINES,
    Copied,
    block_and_thread,
    copies,
    sums,
    threads_of,
    vector,
)
from gen.kernels.epilogues import epilogue_rule
from gen.kernels.tunables import Choice, Conflict, sizes
from gen.kernels.variant import MAX_THREADS, multiple_rule
from gen.spec.arch import REGISTERS, WARP

MOST_SUMS = 128  # registers of a thread that hold sums; a thread has 255 for everything
OTHERS = 40  # registers of a thread for all but sums, at least


def scalar_rules(chosen: Choice) -> None:
    """Raises Conflict for what no kernel on CUDA cores has."""
    epilogue_rule(chosen.values["epilogue"], chosen.dtypes)


def column_rules(chosen: Choice) -> None:
    """Raises Conflict for tunables of `thread_tile_1d` that do not go together."""
    _, thread = block_and_thread(chosen.values)
    if thread.n != 1:
        raise Conflict(
            f"thread_tile={chosen.values['thread_tile']} is not one column", "thread_tile"
        )
    square_rules(chosen)


def square_rules(chosen: Choice) -> None:
    """Raises Conflict for tunables of `thread_tile_2d` that do not go together."""
    _common(chosen, Copied.ELEMENTS)


def vector_rules(chosen: Choice, copied: Copied = Copied.VECTORS) -> None:
    """Raises Conflict for tunables of `vectorized` that do not go together."""
    block, thread = block_and_thread(chosen.values)
    width = vector(chosen.dtypes)
    for axis, size, own in (("m", block.m, thread.m), ("n", block.n, thread.n)):
        multiple_rule("thread_tile", axis, own, width, f"the {width} elements of a vector")
        multiple_rule("threadblock", axis, size, LINES, f"{LINES}")
    multiple_rule("threadblock", "k", block.k, 2 * width, f"two vectors, {2 * width}")
    _common(chosen, copied)


def warp_rules(chosen: Choice, copied: Copied = Copied.VECTORS) -> None:
    """Raises Conflict for tunables of `warp_tiled` that do not go together."""
    block, thread = block_and_thread(chosen.values)
    m, n = sizes(chosen.values["warp"])
    for axis, size, warp, own in (("m", block.m, m, thread.m), ("n", block.n, n, thread.n)):
        multiple_rule("warp", axis, warp, own, f"thread_tile.{axis}={own}", "thread_tile")
        multiple_rule("threadblock", axis, size, warp, f"warp.{axis}={warp}", "warp")
    lanes = (m // thread.m, n // thread.n)
    if lanes[0] * lanes[1] != WARP or lanes[0] % 2:
        raise Conflict(
            f"warp={m}x{n} has {lanes[0]}x{lanes[1]} threads of {thread.m}x{thread.n}, not "
            f"{WARP} in an even number of rows",
            "warp",
            "thread_tile",
        )
    vector_rules(chosen, copied)


def stage_rules(chosen: Choice) -> None:
    """Raises Conflict for tunables of `multistage` that do not go together."""
    warp_rules(chosen, Copied.ASYNC)


def _common(chosen: Choice, copied: Copied) -> None:
    scalar_rules(chosen)
    block, thread = block_and_thread(chosen.values)
    for axis, size, part in (("m", block.m, thread.m), ("n", block.n, thread.n)):
        multiple_rule("threadblock", axis, size, part, f"thread_tile.{axis}={part}", "thread_tile")
    threads = threads_of(chosen.values)
    if threads > MAX_THREADS:
        raise Conflict(
            f"threadblock={block} has {threads} threads of {thread.m}x{thread.n}, more than "
            f"{MAX_THREADS}",
            "thread_tile",
            "threadblock",
        )
    for axis, operand in zip("mn", copies(chosen, copied), strict=True):
        if not operand.is_even:
            raise Conflict(
                f"{threads} threads cannot share out evenly a tile with "
                f"threadblock.{axis}={operand.lines} and threadblock.k={block.k}",
                "threadblock",
                "thread_tile",
            )
    wanted = sums(chosen.values, chosen.dtypes)
    most = min(MOST_SUMS, REGISTERS // threads // 8 * 8 - OTHERS)
    if wanted > most:
        raise Conflict(
            f"thread_tile={thread.m}x{thread.n} keeps {wanted} registers of sums in each of "
            f"{threads} threads, more than {most}",
            "thread_tile",
            "threadblock",
        )
