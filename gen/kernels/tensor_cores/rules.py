"""The rules among a tensor-core kernel's tunables: each names itself, the values, whom to blame."""

from __future__ import annotations

from collections.abc import Mapping

from gen.errors import counted
from gen.kernels.epilogues import epilogue_rule
from gen.kernels.formulas import ceil_div
from gen.kernels.tensor_cores.tiles import (
    K_BLOCK,
    SharedBytes,
    block_bytes,
    copied,
    fragments,
    is_grouped,
    is_strided,
    lies_anywhere,
    mma_shared,
    registers,
    sums,
    tiles,
    tma_roles,
    tma_shared,
    warps,
)
from gen.kernels.tunables import Choice, Conflict
from gen.kernels.variant import multiple_rule
from gen.spec.arch import SHARED_KIB, UNIT, WARP
from gen.spec.dtypes import DTYPES, TENSOR_DTYPES, DTypes
from gen.spec.kernel import Tile
from gen.spec.problem import along_k

MOST_WARPS = 16
MOST_SUMS = 128  # registers of a thread that hold sums; a thread has 255 for everything
# Registers of a thread for all but sums and fragments; mma's threads copy tiles as well.
MMA_OTHERS, TMA_OTHERS = 24, 16
# Of f64, whose elements have an address each.
DOUBLE_OTHERS = 32
# More of them where ptxas widens fp8 to f16, and keeps sums that it has yet to add.
MMA_WIDENED, TMA_WIDENED = 110, 130
CHUNK_REGISTERS = 9  # of a chunk that is read as two aligned ones
LINES = (64, 128)  # bytes of a tile's line along K: what the swizzles are made for
WIDE_LINES = (64, 128, 256)  # of f64's, which mma swizzles in an order of its own
TMA_LINES = (128,)  # of f64's, as far as lanes find elements in different banks
CONSUMERS = (4, 8, 12)  # warps of mma_tma that multiply
MOST_BOX = 256  # lines of a tensor map's box: the driver's limit

# The instructions by the type of A and B, and from which compute capability on there are.
INSTRUCTIONS: Mapping[str, Mapping[str, int]] = {
    "f16": {"m16n8k8": 75, "m16n8k16": 80},
    "bf16": {"m16n8k8": 80, "m16n8k16": 80},
    "tf32": {"m16n8k8": 80},
    "i8": {"m16n8k32": 80},
    "e4m3": {"m16n8k32": 89},
    "e5m2": {"m16n8k32": 89},
    "f64": {"m16n8k4": 90, "m16n8k8": 90, "m16n8k16": 90, "m8n8k4": 80},
}
MMA_DTYPES = (*TENSOR_DTYPES, "f64")
DTYPES_SINCE: Mapping[str, int] = {
    name: min(INSTRUCTIONS[DTYPES[name].input.name].values()) for name in MMA_DTYPES
}


def widens(chosen: Choice) -> bool:
    """Whether mma.sync is made of instructions of f16: for fp8 on Hopper."""
    return chosen.dtypes.input.is_fp8 and chosen.cc == 90


def mma_rules(chosen: Choice) -> None:
    """Raises Conflict for tunables of `mma` that do not go together."""
    _since(chosen)
    doubles = chosen.dtypes.input.size == 8
    _common_rules(chosen, tuple(range(1, MOST_WARPS + 1)), WIDE_LINES if doubles else LINES)
    block, warp, _ = tiles(chosen.values)
    others = DOUBLE_OTHERS if doubles else MMA_OTHERS
    others += MMA_WIDENED if widens(chosen) else 0
    if lies_anywhere(chosen.values, chosen.dtypes):
        chunks = (block.m + block.n) * block.k * chosen.dtypes.factor.size // UNIT
        others += ceil_div(chunks, WARP * warps(block, warp)) * CHUNK_REGISTERS
    _pack_rule(chosen)
    _registers_rule(chosen, registers(WARP * warps(block, warp)) - others)
    shared_rule(chosen, mma_shared)
    _even_copies(chosen)
    grouped_rule(chosen)


def _pack_rule(chosen: Choice) -> None:
    """Chunks that lie anywhere pass registers, and elements of 8 bytes are copied one by one."""
    pack, d = chosen.values["pack"], chosen.dtypes
    if d.input.size == 8 and pack:
        raise Conflict(
            f"pack=1 is not for {d.name}: its elements are copied where they lie", "pack"
        )
    if not lies_anywhere(chosen.values, d):
        return
    if not (is_strided(d.factor.size) or all(along_k(chosen.layouts))):
        raise Conflict(
            f"pack=0 is not for {d.name} in layout {chosen.layouts}: what does not run along K has "
            "to be transposed first, as elements of 2 bytes alone have not",
            "pack",
        )
    if chosen.values["stages"] > 2:
        raise Conflict(
            f"stages={chosen.values['stages']} goes with pack=1: chunks that are not aligned pass "
            "registers, into 1 or 2 stages",
            "stages",
            "pack",
        )


def mma_tma_rules(chosen: Choice) -> None:
    """Raises Conflict for tunables of `mma_tma` that do not go together."""
    _box_rule(chosen)
    lines = TMA_LINES if chosen.dtypes.factor.size == 8 else LINES
    _common_rules(chosen, tuple(n // chosen.values["sliced_k"] for n in CONSUMERS), lines)
    roles = tma_roles(chosen.values, chosen.dtypes)
    others = TMA_OTHERS + (TMA_WIDENED if widens(chosen) else 0)
    _registers_rule(chosen, roles.consumer_registers - others)
    shared_rule(chosen, tma_shared)
    _sliced_rule(chosen)
    grouped_rule(chosen)


def _box_rule(chosen: Choice) -> None:
    """The TMA copies all lines of a tile that run along K as one box."""
    block, _, _ = tiles(chosen.values)
    sides = zip("mn", (block.m, block.n), along_k(chosen.layouts), strict=True)
    for axis, lines, along in sides:
        if lines > MOST_BOX and (along or not is_strided(chosen.dtypes.factor.size)):
            raise Conflict(
                f"threadblock.{axis}={lines} would be a box of {lines} lines, more than the "
                f"{MOST_BOX} that TMA copies at once",
                "threadblock",
            )


def grouped_rule(chosen: Choice) -> None:
    """Groups lie one behind another, and begin anywhere: who shares K or rows has to know."""
    t, layouts = chosen.values, chosen.layouts
    if not is_grouped(t):
        return
    grouped = "grouped" if t.get("grouped") else "grouped_k"
    if grouped == "grouped" and not (layouts.a and layouts.c):
        raise Conflict(
            f"layout={layouts} does not go with grouped: groups are rows of A and D, which have to "
            "be row-major, as in rrr and rcr",
            grouped,
        )
    if grouped == "grouped_k" and any(along_k(layouts)):
        raise Conflict(
            f"layout={layouts} does not go with grouped_k: groups are columns of A and rows of B, "
            "which have to be lines, as in crr and crc",
            grouped,
        )
    if grouped == "grouped_k" and not is_strided(chosen.dtypes.factor.size):
        raise Conflict(
            f"grouped_k is not for {chosen.dtypes.name}, whose operands are transposed first",
            grouped,
        )
    alone: tuple[tuple[str, object], ...] = (
        ("batched", False), ("split_k", 1), ("stream_k", 0), ("cluster", "1x1"),
        ("grouped_k", grouped == "grouped_k"),
    )  # fmt: skip
    for name, value in alone:
        if t.get(name, value) != value:
            raise Conflict(
                f"{name}={str(t[name]).lower()} goes with {grouped}=false: where groups end is "
                "known to the device alone, and each tile is computed by one block",
                name,
                grouped,
            )
    if chosen.dtypes.parts > 1:
        raise Conflict(
            f"{grouped} is not for {chosen.dtypes.name}, whose operands are split first", grouped
        )


def stream_rule(chosen: Choice, *alone: tuple[str, object]) -> None:
    """What has to be as it is without, where blocks share work tiles along K."""
    if not chosen.values["stream_k"]:
        return
    for name, value in alone:
        if chosen.values[name] != value:
            raise Conflict(
                f"{name}={chosen.values[name]} goes with stream_k=0, since with stream-K single "
                "blocks share the sums of a whole tile",
                name,
                "stream_k",
            )


def _since(chosen: Choice) -> None:
    name, stages = chosen.dtypes.name, chosen.values["stages"]
    if DTYPES_SINCE[name] > chosen.cc:
        raise Conflict(f"tensor cores of {chosen.arch} have no {name}", "dtype", "arch")
    if chosen.cc < 80 and stages > 2:
        raise Conflict(
            f"stages={stages} needs cp.async, which {chosen.arch} lacks", "stages", "arch"
        )


def _common_rules(chosen: Choice, allowed: tuple[int, ...], lines: tuple[int, ...]) -> None:
    block, warp, _ = tiles(chosen.values)
    _instruction_rule(chosen)
    for axis, size in (("m", warp.m), ("n", warp.n)):
        multiple_rule("warp", axis, size, 16, "16")
    sides = (("m", block.m, warp.m), ("n", block.n, warp.n))
    for (axis, size, part), along in zip(sides, along_k(chosen.layouts), strict=True):
        multiple_rule("threadblock", axis, size, part, f"warp.{axis}={part}", "warp")
        panel_rule(chosen, axis, size, along)
    line_rule(block, chosen.dtypes, lines)
    _blocks_rule(chosen)
    _warps_rule(block, warp, allowed)
    _sums_rule(warp, chosen.dtypes)
    epilogue_rule(chosen.values["epilogue"], chosen.dtypes, is_grouped(chosen.values))


def panel_rule(chosen: Choice, axis: str, size: int, along: bool) -> None:
    """Lines that do not run along K have 64 elements."""
    if not along and chosen.dtypes.factor.size == 2:
        multiple_rule("threadblock", axis, size, 64, "64")


def _instruction_rule(chosen: Choice) -> None:
    name, known = chosen.values["instruction"], INSTRUCTIONS[chosen.dtypes.factor.name]
    have = [i for i, since in known.items() if since <= chosen.cc]
    if name not in have:
        raise Conflict(
            f"instruction={name} does not exist for {chosen.dtypes.name} on {chosen.arch}",
            "instruction",
            "arch",
        )


def line_rule(block: Tile, dtypes: DTypes, lines: tuple[int, ...] = LINES) -> None:
    """A line along K is one that there is a swizzle for."""
    size = dtypes.factor.size
    if block.k * size not in lines:
        raise Conflict(
            f"threadblock.k={block.k} is {block.k * size} bytes of {dtypes.factor.name}, not "
            f"{' or '.join(map(str, lines))}",
            "threadblock",
        )


def _blocks_rule(chosen: Choice) -> None:
    """Of two K blocks, one is loaded while the other is multiplied."""
    block, _, instruction = tiles(chosen.values)
    two = 2 * block_bytes(instruction, chosen.dtypes) // chosen.dtypes.input.size
    if block.k % two:
        raise Conflict(
            f"threadblock.k={block.k} is not a multiple of {two}, two K blocks of "
            f"{chosen.values['instruction']}",
            "threadblock",
            "instruction",
        )


def _warps_rule(block: Tile, warp: Tile, allowed: tuple[int, ...]) -> None:
    count = warps(block, warp)
    if count in allowed:
        return
    some = ", ".join(map(str, allowed)) if len(allowed) < 5 else f"at most {allowed[-1]}"
    raise Conflict(
        f"threadblock={block} has {counted(count, 'warp')} of {warp.m}x{warp.n}, not {some}",
        "warp",
        "threadblock",
    )


def _sums_rule(warp: Tile, dtypes: DTypes) -> None:
    wanted = sums(warp, dtypes)
    if wanted > MOST_SUMS:
        raise Conflict(
            f"warp={warp.m}x{warp.n} keeps {wanted} registers of sums in each thread, more than "
            f"{MOST_SUMS}",
            "warp",
        )


def _registers_rule(chosen: Choice, most: int) -> None:
    """Sums and two K blocks' fragments fit the registers of a thread: what does not is spilled."""
    _, warp, instruction = tiles(chosen.values)
    block = block_bytes(instruction, chosen.dtypes)
    wanted = sums(warp, chosen.dtypes) + fragments(warp, block)
    if wanted > most:
        raise Conflict(
            f"warp={warp.m}x{warp.n} wants {wanted} registers of each thread for sums and "
            f"fragments, more than the {most} that there are",
            "warp",
            "threadblock",  # fewer warps have more registers each
            *(["instruction"] if block > K_BLOCK else []),
        )


def shared_rule(chosen: Choice, shared_bytes: SharedBytes) -> None:
    """The stages fit what a block may have."""
    t, stages = chosen.values, chosen.values["stages"]
    limit = SHARED_KIB[chosen.cc] * 1024
    wanted = shared_bytes(t, chosen.dtypes, stages)
    if wanted > limit:
        raise Conflict(
            f"stages={stages} of threadblock={t['threadblock']} want {wanted} bytes of shared "
            f"memory, more than the {limit} that a block may have on {chosen.arch}",
            "stages",
            "threadblock",
        )


def _sliced_rule(chosen: Choice) -> None:
    """Each team of warps waits for its next stage before it leaves the one it has.

    At the end of a tile they exchange sums where the stages were.
    """
    block, _, _ = tiles(chosen.values)
    stages, teams = chosen.values["stages"], chosen.values["sliced_k"]
    stage = (block.m + block.n) * block.k * chosen.dtypes.factor.size
    wanted = block.m * block.n * chosen.dtypes.accumulator.size
    least = max(teams + 1, -(-wanted // stage))
    if teams > 1 and stages < least:
        raise Conflict(
            f"sliced_k={teams} needs a stage more than teams, and {wanted} bytes for sums where "
            f"the stages={stages} have {stages * stage}",
            "stages",
            "sliced_k",
        )


def _even_copies(chosen: Choice) -> None:
    """All threads copy the same number of chunks, whole lines of them at a time."""
    block, warp, _ = tiles(chosen.values)
    size, threads = chosen.dtypes.factor.size, WARP * warps(block, warp)
    unit = copied(size)
    chunks = block.k * size // unit  # of a line along K
    sides = zip("mn", (block.m, block.n), along_k(chosen.layouts), strict=True)
    for axis, lines, along in sides:
        line = chunks if along or not is_strided(size) else lines * size // unit
        if (lines * chunks) % threads or threads % line:
            raise Conflict(
                f"{threads} threads cannot share out evenly the {lines * chunks} {unit}-byte "
                f"chunks of a tile with threadblock.{axis}={lines}, {line} in a line",
                "warp",
                "threadblock",
            )
