"""The rules among a tensor-core kernel's tunables: each names itself, the values, whom to blame."""

from __future__ import annotations

from collections.abc import Mapping

from gen.errors import counted
from gen.kernels.tensor_cores.tiles import (
    WARP,
    WGMMA_ROWS,
    SharedBytes,
    fragments,
    held_sums,
    mma_shared,
    registers,
    sums,
    tiles,
    tma_roles,
    tma_shared,
    warps,
    with_warps,
)
from gen.kernels.tunables import Choice, Conflict, sizes
from gen.kernels.variant import epilogue_rule
from gen.spec.arch import SHARED_KIB
from gen.spec.dtypes import DTYPES, TENSOR_DTYPES, DTypes
from gen.spec.kernel import Tile
from gen.spec.problem import Layouts

MOST_WARPS = 16
MOST_SUMS = 128  # registers of a thread that hold sums; a thread has 255 for everything
# Registers of a thread for all but sums and fragments; mma's threads copy tiles as well.
MMA_OTHERS, TMA_OTHERS = 24, 16
# More of them where ptxas widens fp8 to f16, and keeps sums that it has yet to add.
MMA_WIDENED, TMA_WIDENED = 110, 130
LINES = (64, 128)  # bytes of a tile's line along K: what the swizzles are made for
CONSUMERS = (4, 8, 12)  # warps of mma_tma that multiply
WGMMA_COLUMNS = 256  # of a wgmma's B at most
MOST_ROWS = 256  # of wgmma's work tile
# Registers of a thread for all but sums; and of an equal share of all for all but those of one
# wgmma: ptxas goes by that.
WGMMA_OTHERS, SHARE_OTHERS = 48, 26
# Blocks along M and N of wgmma's clusters, of which 8 blocks are always possible.
CLUSTERS = ("1x1", "2x1", "1x2", "2x2", "4x1", "1x4")
MOST_BOX = 256  # lines of a tensor map's box: the driver's limit

# The instructions by the type of A and B, and from which compute capability on there are.
INSTRUCTIONS: Mapping[str, Mapping[str, int]] = {
    "f16": {"m16n8k8": 75, "m16n8k16": 80},
    "bf16": {"m16n8k8": 80, "m16n8k16": 80},
    "tf32": {"m16n8k8": 80},
    "i8": {"m16n8k32": 80},
    "e4m3": {"m16n8k32": 89},
    "e5m2": {"m16n8k32": 89},
}
DTYPES_SINCE: Mapping[str, int] = {
    name: min(INSTRUCTIONS[DTYPES[name].input.name].values()) for name in TENSOR_DTYPES
}


def widens(chosen: Choice) -> bool:
    """Whether mma.sync is made of instructions of f16: for fp8 on Hopper."""
    return chosen.dtypes.input.is_fp8 and chosen.cc == 90


def mma_rules(chosen: Choice) -> None:
    """Raises Conflict for tunables of `mma` that do not go together."""
    _since(chosen)
    _common_rules(chosen, tuple(range(1, MOST_WARPS + 1)))
    block, warp, _ = tiles(chosen.values)
    others = MMA_OTHERS + (MMA_WIDENED if widens(chosen) else 0)
    _registers_rule(warp, chosen.dtypes, registers(WARP * warps(block, warp)) - others)
    _shared_rule(chosen, mma_shared)
    _even_copies(chosen)


def mma_tma_rules(chosen: Choice) -> None:
    """Raises Conflict for tunables of `mma_tma` that do not go together."""
    _box_rule(chosen)
    _common_rules(chosen, tuple(n // chosen.values["sliced_k"] for n in CONSUMERS))
    _, warp, _ = tiles(chosen.values)
    roles = tma_roles(chosen.values, chosen.dtypes)
    others = TMA_OTHERS + (TMA_WIDENED if widens(chosen) else 0)
    _registers_rule(warp, chosen.dtypes, roles.consumer_registers - others)
    _shared_rule(chosen, tma_shared)
    _sliced_rule(chosen)


def wgmma_rules(chosen: Choice) -> None:
    """Raises Conflict for tunables of `wgmma` that do not go together."""
    block = Tile._make(sizes(chosen.values["threadblock"]))
    _multiple("threadblock", "m", block.m, WGMMA_ROWS, f"{WGMMA_ROWS}")
    _multiple("threadblock", "n", block.n, 16, "16")
    sides = (("m", block.m), ("n", block.n))
    for (axis, size), along in zip(sides, along_k(chosen.layouts), strict=True):
        _panel_rule(chosen, axis, size, along)
    _wgmma_size_rule(block)
    _cluster_rule(chosen, block)
    _stream_rule(chosen)
    _line_rule(block, chosen.dtypes)
    epilogue_rule(chosen.values["epilogue"], chosen.dtypes)
    as_tma = chosen._replace(values=with_warps(chosen.values, chosen.dtypes))
    _, warp, _ = tiles(as_tma.values)
    roles = tma_roles(as_tma.values, chosen.dtypes)
    _promotion_rule(chosen, block)
    wanted = held_sums(chosen.values, warp, chosen.dtypes)
    _sums_fit(chosen, wanted, roles.consumer_registers - WGMMA_OTHERS)
    share = registers(WARP * (roles.consumers + roles.producers))
    _sums_fit(chosen, sums(warp._replace(m=16), chosen.dtypes), share - SHARE_OTHERS)
    _shared_rule(as_tma, tma_shared)


def _wgmma_size_rule(block: Tile) -> None:
    if block.n > WGMMA_COLUMNS:
        raise Conflict(
            f"threadblock.n={block.n} is more than the {WGMMA_COLUMNS} columns of a wgmma",
            "threadblock",
        )
    if block.m > MOST_ROWS:
        raise Conflict(
            f"threadblock.m={block.m} is more than the {MOST_ROWS} rows that two warpgroups share",
            "threadblock",
        )


def _cluster_rule(chosen: Choice, block: Tile) -> None:
    """Blocks of a cluster copy equal parts of what they share: whole panels, or whole swizzles."""
    cluster = sizes(chosen.values["cluster"])
    if cluster != (1, 1) and chosen.values["split_k"] != 1:
        raise Conflict(
            f"cluster={chosen.values['cluster']} goes with split_k=1, since where work tiles are "
            "few, none are left to share operands",
            "cluster",
            "split_k",
        )
    # Blocks below each other share columns of B.
    sides = zip("mn", (block.m, block.n), reversed(cluster), along_k(chosen.layouts), strict=True)
    for axis, size, sharers, along in sides:
        unit = 8 if along or chosen.dtypes.input.size != 2 else 64
        if size % (sharers * unit) != 0:
            raise Conflict(
                f"threadblock.{axis}={size} is no multiple of {sharers * unit}, so that "
                f"{sharers} blocks of a cluster could copy equal parts",
                "threadblock",
                "cluster",
            )


def _stream_rule(chosen: Choice) -> None:
    """Sums that blocks give each other are those of whole warps, as wgmma adds them up."""
    for name, alone in (("split_k", 1), ("cluster", "1x1"), ("promote", 0)):
        if chosen.values["stream_k"] and chosen.values[name] != alone:
            raise Conflict(
                f"{name}={chosen.values[name]} goes with stream_k=0, since with stream-K single "
                "blocks share the sums of a whole tile",
                name,
                "stream_k",
            )


def _promotion_rule(chosen: Choice, block: Tile) -> None:
    """Only sums of fp8 are promoted, whole steps along K at a time."""
    promote = chosen.values["promote"]
    if not promote:
        return
    if not chosen.dtypes.input.is_fp8:
        raise Conflict(
            f"promote={promote} is for sums of fp8; those of {chosen.dtypes.name} have all bits "
            "of their type",
            "promote",
        )
    _multiple("promote", "", promote, block.k, f"threadblock.k={block.k}", "threadblock")


def _sums_fit(chosen: Choice, wanted: int, most: int) -> None:
    """Sums fit the registers of a thread: what does not is spilled."""
    if wanted <= most:
        return
    block, promote = chosen.values["threadblock"], chosen.values["promote"]
    both = f" with promote={promote}" if promote else ""
    raise Conflict(
        f"threadblock={block}{both} wants {wanted} registers of each thread "
        f"for sums, more than the {most} that there are",
        "threadblock",
        *(["promote"] if promote else []),
    )


def _box_rule(chosen: Choice) -> None:
    """The TMA copies all lines of a tile that run along K as one box."""
    block, _, _ = tiles(chosen.values)
    sides = zip("mn", (block.m, block.n), along_k(chosen.layouts), strict=True)
    for axis, lines, along in sides:
        if lines > MOST_BOX and (along or chosen.dtypes.input.size != 2):
            raise Conflict(
                f"threadblock.{axis}={lines} would be a box of {lines} lines, more than the "
                f"{MOST_BOX} that TMA copies at once",
                "threadblock",
            )


def _since(chosen: Choice) -> None:
    name, stages = chosen.dtypes.name, chosen.values["stages"]
    if DTYPES_SINCE[name] > chosen.cc:
        raise Conflict(f"tensor cores of {chosen.arch} have no {name}", "dtype", "arch")
    if chosen.cc < 80 and stages > 2:
        raise Conflict(
            f"stages={stages} needs cp.async, which {chosen.arch} lacks", "stages", "arch"
        )


def _common_rules(chosen: Choice, allowed: tuple[int, ...]) -> None:
    block, warp, _ = tiles(chosen.values)
    _instruction_rule(chosen)
    for axis, size in (("m", warp.m), ("n", warp.n)):
        _multiple("warp", axis, size, 16, "16")
    sides = (("m", block.m, warp.m), ("n", block.n, warp.n))
    for (axis, size, part), along in zip(sides, along_k(chosen.layouts), strict=True):
        _multiple("threadblock", axis, size, part, f"warp.{axis}={part}", "warp")
        _panel_rule(chosen, axis, size, along)
    _line_rule(block, chosen.dtypes)
    _warps_rule(block, warp, allowed)
    _sums_rule(warp, chosen.dtypes)
    epilogue_rule(chosen.values["epilogue"], chosen.dtypes)


def _panel_rule(chosen: Choice, axis: str, size: int, along: bool) -> None:
    """Lines that do not run along K have 64 elements."""
    if not along and chosen.dtypes.input.size == 2:
        _multiple("threadblock", axis, size, 64, "64")


def _instruction_rule(chosen: Choice) -> None:
    name, known = chosen.values["instruction"], INSTRUCTIONS[chosen.dtypes.input.name]
    have = [i for i, since in known.items() if since <= chosen.cc]
    if name not in have:
        raise Conflict(
            f"instruction={name} does not exist for {chosen.dtypes.name} on {chosen.arch}",
            "instruction",
            "arch",
        )


def _multiple(tile: str, axis: str, value: int, step: int, of: str, *others: str) -> None:
    if value % step or value <= 0:
        what = f"{tile}.{axis}" if axis else tile
        raise Conflict(f"{what}={value} is not a multiple of {of}", tile, *others)


def _line_rule(block: Tile, dtypes: DTypes) -> None:
    size = dtypes.input.size
    if block.k * size not in LINES:
        raise Conflict(
            f"threadblock.k={block.k} is {block.k * size} bytes of {dtypes.input.name}, not "
            f"{' or '.join(map(str, LINES))}",
            "threadblock",
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


def _registers_rule(warp: Tile, dtypes: DTypes, most: int) -> None:
    """Sums and two steps' fragments fit the registers of a thread: what does not is spilled."""
    wanted = sums(warp, dtypes) + fragments(warp)
    if wanted > most:
        raise Conflict(
            f"warp={warp.m}x{warp.n} wants {wanted} registers of each thread for sums and "
            f"fragments, more than the {most} that there are",
            "warp",
            "threadblock",  # fewer warps have more registers each
        )


def _shared_rule(chosen: Choice, shared_bytes: SharedBytes) -> None:
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
    stage = (block.m + block.n) * block.k * chosen.dtypes.input.size
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
    """All threads copy the same number of 16-byte chunks, whole lines of them at a time."""
    block, warp, _ = tiles(chosen.values)
    size, threads = chosen.dtypes.input.size, WARP * warps(block, warp)
    chunks = block.k * size // 16  # of a line along K
    sides = zip("mn", (block.m, block.n), along_k(chosen.layouts), strict=True)
    for axis, lines, along in sides:
        line = chunks if along or size != 2 else lines // 8
        if (lines * chunks) % threads or threads % line:
            raise Conflict(
                f"{threads} threads cannot share out evenly the {lines * chunks} 16-byte chunks of "
                f"a tile with threadblock.{axis}={lines}, {line} in a line",
                "warp",
                "threadblock",
            )


def along_k(layouts: Layouts) -> tuple[bool, bool]:
    """Whether the left and the right operand are contiguous along K."""
    return (layouts.a, not layouts.b) if layouts.c else (not layouts.b, layouts.a)
