"""What follows from a tensor-core kernel's tunables: tiles, warps, shared memory.

threadblock.m counts rows of the left operand, threadblock.n columns of the right one. Where D is
column-major, its transpose is computed: then B' is the left operand and A' the right one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from gen.kernels.formulas import ceil_div
from gen.kernels.tunables import sizes
from gen.kernels.variant import Geometry
from gen.spec.arch import MOST_REGISTERS, REGISTERS, SHARED_KIB, WARP
from gen.spec.dtypes import DTypes
from gen.spec.kernel import Tile, cluster_of

WARPGROUP = 4  # warps
K_BLOCK = 32  # bytes along K of a fragment, at least
PING_PONG = "pingpong"  # wgmma's schedule where warpgroups have work tiles of their own
WGMMA_ROWS, WGMMA_BYTES = 64, 32  # of a wgmma's A; along K, of both of its operands
WGMMA_OTHERS = 48  # registers of a thread for all but sums
MOST_STAGES = 16  # of mma_tma and wgmma
# Of all multiprocessors, about, those on which clusters of more than two blocks have a place: they
# come in groups of 16 or 18.
PLACED = (10, 11)
MANY_WGMMAS = 4  # of a work tile, one below another, from which on two warpgroups share them

# By mma_tma's number of consumers: the registers of a thread's sums for which an equal share of all
# registers does; what a consumer's and a producer's threads have where it does not.
_SHARES = {8: (72, 240, 24), 12: (48, 160, 32)}
# The same of 8 consumers where producers find the tiles of groups, and sums leave room for that.
_GROUPED_SUMS, _GROUPED_SHARES = 128, (232, 40)

# Bytes of shared memory by the tunables, the types and a number of stages.
SharedBytes = Callable[[Mapping[str, Any], DTypes, int], int]


def tiles(values: Mapping[str, Any]) -> tuple[Tile, Tile, Tile]:
    """threadblock, warp and instruction; a warp's K is the threadblock's."""
    return _tiles(values["threadblock"], values["warp"], values["instruction"])


@lru_cache(maxsize=1024)  # which every rule asks
def _tiles(threadblock: str, warp: str, instruction: str) -> tuple[Tile, Tile, Tile]:
    block = Tile._make(sizes(threadblock))
    return block, Tile._make((*sizes(warp), block.k)), Tile._make(sizes(instruction))


def warps(block: Tile, warp: Tile) -> int:
    """How many warps compute a block's tile."""
    return (block.m // warp.m) * (block.n // warp.n)


def sums(warp: Tile, d: DTypes) -> int:
    """Registers of a thread that hold its share of a warp's sums."""
    return warp.m * warp.n // WARP * d.accumulator.size // 4


def is_grouped(t: Mapping[str, Any]) -> bool:
    """Whether products are groups, of rows or along K."""
    return bool(t.get("grouped") or t.get("grouped_k"))


def teams(t: Mapping[str, Any]) -> int:
    """Of warps, each of which computes a whole work tile.

    Teams share its steps along K (`--sliced-k`), or have work tiles of their own (ping-pong).
    """
    return 2 if t.get("schedule") == PING_PONG else int(t.get("sliced_k", 1))


def held_sums(t: Mapping[str, Any], warp: Tile, d: DTypes) -> int:
    """Registers of a thread for all of its sums: twice as many where some are promoted.

    Of parts, products of the leading ones are, and those of the others have their own sums.
    """
    return sums(warp, d) * (3 if d.parts > 1 else 2 if t.get("promote") else 1)


def promotes_behind(t: Mapping[str, Any], warp: Tile, d: DTypes, most: int) -> bool:
    """Whether sums of a step are promoted while the next one is multiplied.

    That takes a third set of them, for which there have to be registers: `most` for all.
    """
    *_, step = sizes(t["threadblock"])
    return d.parts == 1 and t["promote"] == step and 3 * sums(warp, d) <= most


def block_bytes(instruction: Tile, d: DTypes) -> int:
    """Along K, of a K block: what a warp has of both operands in registers, and multiplies."""
    return max(K_BLOCK, instruction.k * d.factor.size)


def fragments(warp: Tile, block: int) -> int:
    """Registers for its share of both operands: 16 lines x K block each, for two of these."""
    return 2 * 4 * (warp.m // 16 + warp.n // 16) * block // K_BLOCK


def copied(size: int) -> int:
    """Bytes that mma's threads copy at a time, of elements of so many."""
    return 8 if size == 8 else 16


def is_strided(size: int) -> bool:
    """Whether operands whose lines do not run along K are read as they are, not transposed first.

    ldmatrix transposes elements of 2 bytes; those of 8 bytes are loaded one by one.
    """
    return size in (2, 8)


def is_transposed(runs_along_k: bool, size: int) -> bool:
    """Whether an operand's lines do not run along K, but have to."""
    return not (runs_along_k or is_strided(size))


def registers(threads: int) -> int:
    """Registers that each thread of a block can have."""
    return min(MOST_REGISTERS, REGISTERS // threads // 8 * 8)


def _geometry(t: Mapping[str, Any], threads: int, shared_bytes: int, **more: Any) -> Geometry:
    block, warp, instruction = tiles(t)
    values = {"tile": block, "warp": warp, "instruction": instruction, "threads": threads}
    return Geometry(
        block,
        (threads, 1),
        dynamic_shared=shared_bytes,
        values={**values, **more},
        warp=warp,
        instruction=instruction,
        teams=t.get("sliced_k", 1),
    )


def mma(t: Mapping[str, Any], d: DTypes) -> Geometry:
    """What follows from the tunables of `mma`."""
    block, warp, _ = tiles(t)
    return _geometry(t, WARP * warps(block, warp), mma_shared(t, d, t["stages"]))


def mma_tma(t: Mapping[str, Any], d: DTypes) -> Geometry:
    """What follows from the tunables of `mma_tma`."""
    return _fed_by_tma(t, d, tma_roles(t, d))


def _fed_by_tma(t: Mapping[str, Any], d: DTypes, roles: Roles, **others: Any) -> Geometry:
    threads = WARP * (roles.consumers + roles.producers)
    unstaged = tma_shared(t, d, t["stages"], _NONE)
    staging = tma_staging(t, d, SHARED_KIB[90] * 1024 - unstaged)
    shared_bytes = unstaged + _staged(t, d, staging)
    more = {
        **roles._asdict(),
        "teams": teams(t),
        "staged_rows": staging.rows,
        "staged_columns": staging.columns,
        "slots": staging.slots,
        "staging_line": staging.line,
        **others,
    }
    return _geometry(t, threads, shared_bytes, **more)


def wgmma(t: Mapping[str, Any], d: DTypes) -> Geometry:
    """What follows from the tunables of `wgmma`."""
    t = with_warps(t, d)
    roles = tma_roles(t, d)
    return _fed_by_tma(t, d, roles, groups=roles.consumers // WARPGROUP)


def with_warps(t: Mapping[str, Any], d: DTypes) -> Mapping[str, Any]:
    """The tunables of `wgmma` as those of `mma_tma`.

    A warp holds the sums of 16 rows of the 64 of each wgmma of its warpgroup, and of all columns.
    Many rows are those of two warpgroups, whose threads have the most registers, unless each has a
    work tile of its own.
    """
    return {**t, **_as_warps(t["threadblock"], teams(t) > 1, WGMMA_BYTES // d.factor.size)}


@lru_cache(maxsize=1024)
def _as_warps(threadblock: str, in_turns: bool, k: int) -> Mapping[str, Any]:
    rows, columns, _ = sizes(threadblock)
    wgmmas = rows // WGMMA_ROWS
    shared_by = wgmmas if wgmmas < MANY_WGMMAS else 2
    each = wgmmas if in_turns else wgmmas // max(shared_by, 1)
    return {"warp": f"{16 * each}x{columns}", "instruction": f"m64n{columns}k{k}", "sliced_k": 1}


class Roles(NamedTuple):
    """The warps of mma_tma, and the registers of their threads."""

    consumers: int
    producers: int
    consumer_registers: int
    producer_registers: int


def tma_roles(t: Mapping[str, Any], d: DTypes) -> Roles:
    """Many sums take registers from the producers; these move between groups of four warps."""
    block, warp, _ = tiles(t)
    consumers = teams(t) * warps(block, warp)
    if consumers in _SHARES:
        enough, most, least = _SHARES[consumers]
        held = held_sums(t, warp, d)
        if is_grouped(t) and consumers == 8 and held <= _GROUPED_SUMS:
            most, least = _GROUPED_SHARES
        if held > enough or d.input.is_fp8:  # widened
            return Roles(consumers, 4, most, least)
    each = registers(WARP * (consumers + 1))
    return Roles(consumers, 1, each, each)


def lies_anywhere(t: Mapping[str, Any], d: DTypes) -> bool:
    """Whether chunks of 16 bytes are read wherever lines of the operands begin."""
    return not t.get("pack", 1) and d.input.size < 8


def mma_shared(t: Mapping[str, Any], d: DTypes, stages: int) -> int:
    """Tiles of both operands; when they have been read, 16 rows of D of each warp on their way.

    These are 8 elements longer than they have to be, against bank conflicts.
    """
    block, warp, _ = tiles(t)
    rows = warps(block, warp) * 16 * (warp.n + 8) * d.output.size if writes_d(t) else 0
    return max(stages * stage_bytes(block, d), rows)


_LINES = (128, 64, 32)  # bytes, as TMA can swizzle them
PIECE = 16  # columns of D, at least, that a block finishes


class Staging(NamedTuple):
    """Where a warp leaves D to TMA: `slots` times `rows` x `columns`, in lines of `line` bytes."""

    rows: int
    columns: int
    slots: int
    line: int


_NONE = Staging(0, 0, 0, 0)


def tma_staging(t: Mapping[str, Any], d: DTypes, room: int) -> Staging:
    """As much as there is room for: many rows at once first, then several of these in turn.

    room: bytes of shared memory beside the stages.
    Slots divide what a warp has, so that the slot after the last one is the first one. Lines are as
    long as TMA can swizzle them. A warp of wgmma has no more than 16 rows: its columns take turns,
    a line of each row at a time, the last piece perhaps less.
    """
    _, warp, _ = tiles(t)
    if not writes_d(t):
        return _NONE
    if cluster_of(t)[2] > 1:  # blocks have but some pieces each
        return _least_staging(t, d)
    if _by_columns(t):
        for line in _piece_lines(warp.n, d.output.size):
            columns = line // d.output.size
            pieces = ceil_div(warp.n, columns)
            most = room // _staged(t, d, Staging(16, columns, 1, line))
            for slots in range(min(pieces, most), 0, -1):
                if pieces % slots == 0:
                    return Staging(16, columns, slots, line)
        return _least_staging(t, d)
    least = _least_staging(t, d)
    most, each = _finished(warp.m, t["sliced_k"])
    for rows in (64, 32, 16):
        for slots in range(most // rows, 0, -1):
            staging = least._replace(rows=rows, slots=slots)
            fits = _staged(t, d, staging) <= room
            in_turn = most // rows % slots == 0 or t["sliced_k"] > 1
            if fits and each % rows == 0 and in_turn:
                return staging
    return least


def _least_staging(t: Mapping[str, Any], d: DTypes) -> Staging:
    return _least(tiles(t)[1].n, _by_columns(t), cluster_of(t)[2], d.output.size)


@lru_cache(maxsize=1024)
def _least(columns: int, by_columns: bool, blocks: int, size: int) -> Staging:
    """Of a warp's columns, of elements of so many bytes."""
    if by_columns and blocks == 1:
        line = _piece_lines(columns, size)[-1]
        return Staging(16, line // size, 1, line)
    # Blocks that share a tile along K finish a piece each, at least, of whole fragments.
    width, least = columns * size, PIECE * size if blocks > 1 else 0
    line = next(n for n in _LINES if width % n == 0 and width >= n * blocks and n >= least)
    return Staging(16, line // size if by_columns else columns, 1, line)


def most_stages(t: Mapping[str, Any], d: DTypes, limit: int) -> int:
    """Of wgmma with so many bytes of shared memory, where that holds two or three pieces of D of
    each warp, too, if these take turns: more on their way are worth more than the last stage.
    """
    _, warp, _ = tiles(t)
    line = _piece_lines(warp.n, d.output.size)[0]
    columns = line // d.output.size
    pieces = ceil_div(warp.n, columns)
    slots = next((n for n in (2, 3) if pieces % n == 0), 1)
    staging = Staging(16, columns, slots, line) if cluster_of(t)[2] == 1 else None
    least = tma_shared(t, d, 0, staging)
    return max(2, min((limit - least) // _stage(tiles(t)[0], d), MOST_STAGES))


@lru_cache(maxsize=1024)
def _piece_lines(columns: int, size: int) -> Sequence[int]:
    """Bytes that a piece of so many columns of D may have of a row, the longest first."""
    return [n for n in _LINES if PIECE <= n // size <= columns]


def _by_columns(t: Mapping[str, Any]) -> bool:
    """Whether D leaves by pieces of columns: where instructions are those of warpgroups."""
    _, warp, instruction = tiles(t)
    return instruction.m > warp.m


def _finished(rows: int, teams: int) -> tuple[int, int]:
    """Of a warp's rows, how many a team finishes at most; and what divides all teams' shares.

    Teams share blocks of 16 rows; the first one has one more where their number is odd. It starts
    each tile with the first slot.
    """
    if teams == 1:
        return rows, rows
    blocks = rows // 16
    return 16 * (blocks - blocks // 2), 16 * (blocks // 2 if blocks % 2 == 0 else 1)


def tma_shared(t: Mapping[str, Any], d: DTypes, stages: int, staging: Staging | None = None) -> int:
    """Tiles with two barriers for each stage, rows of D on their way, and room for alignment.

    Without `staging`, the least that there can be.
    The swizzle counts on tiles that start at multiples of 1024 bytes.
    """
    block, warp, _ = tiles(t)
    staging = staging or (_least_staging(t, d) if writes_d(t) else _NONE)
    more = 1024 + (16 if teams(t) > 1 else 0)  # the barrier at which teams wait for each other
    if cluster_of(t)[2] > 1:
        more += warps(block, warp) * (_part_bytes(t, d) + 16)
    return stages * _stage(block, d) + _staged(t, d, staging) + more


def _stage(block: Tile, d: DTypes) -> int:
    """A stage's tiles, with their barriers."""
    return stage_bytes(block, d) + 16


def _staged(t: Mapping[str, Any], d: DTypes, staging: Staging) -> int:
    """Rows of D of all warps on their way."""
    block, warp, _ = tiles(t)
    elements = staging.slots * staging.rows * staging.columns
    return teams(t) * warps(block, warp) * elements * d.output.size


def _part_bytes(t: Mapping[str, Any], d: DTypes) -> int:
    """What a warp gets of the others' sums: of a block's pieces of columns, at most."""
    _, warp, _ = tiles(t)
    (*_, blocks), columns = cluster_of(t), _least_staging(t, d).columns
    pieces = ceil_div(warp.n // columns, blocks)
    return pieces * (blocks - 1) * warp.m * columns * d.accumulator.size


def clusters_at_once(multiprocessors: int, blocks: int) -> int:
    """Clusters of so many blocks for which there is room, about: as `gen.dispatch.cost` has it."""
    placed, of = PLACED if blocks > 2 else (1, 1)
    return max(1, multiprocessors * placed // of // blocks)


def writes_d(t: Mapping[str, Any]) -> bool:
    """Whether the kernel may write D itself; with slices of K it leaves that to the reduction."""
    return bool(t["split_k"] < 2)


def stage_bytes(tile: Tile, d: DTypes) -> int:
    """Of the tiles of A and B of a step."""
    return (tile.m + tile.n) * tile.k * d.factor.size * d.parts
