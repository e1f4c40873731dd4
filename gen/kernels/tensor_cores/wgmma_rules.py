"""The rules among wgmma's tunables: each names itself, the values, whom to blame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gen.kernels.epilogues import epilogue_rule
from gen.kernels.tensor_cores.rules import (
    grouped_rule,
    line_rule,
    panel_rule,
    shared_rule,
    stream_rule,
)
from gen.kernels.tensor_cores.tiles import (
    PIECE,
    WGMMA_BYTES,
    WGMMA_OTHERS,
    WGMMA_ROWS,
    held_sums,
    is_grouped,
    registers,
    sums,
    teams,
    tiles,
    tma_roles,
    tma_shared,
    with_warps,
)
from gen.kernels.tunables import Choice, Conflict, sizes
from gen.kernels.variant import multiple_rule
from gen.spec.arch import WARP
from gen.spec.kernel import Tile, cluster_of
from gen.spec.problem import along_k

SWIZZLED = 8  # lines that a swizzle has
WGMMA_COLUMNS = 256  # of a wgmma's B at most
MOST_ROWS = 256  # of wgmma's work tile
# Registers of an equal share of all for all but the sums of one wgmma: ptxas goes by that.
SHARE_OTHERS = 26
BOTH_OTHERS = 20  # more registers where blocks of a cluster share operands and K
# Blocks of wgmma's clusters, of which 8 are always possible: along M and N, which share operands,
# and along K, which share work tiles. Where one breaks a rule, its neighbours are proposed first.
CLUSTERS = (
    *("1x1x4", "1x1x2", "1x1", "2x1", "1x2", "2x2", "4x1", "1x4", "4x2", "2x4", "8x1", "1x8"),
    *("2x1x2", "1x2x2", "2x2x2", "4x1x2", "1x4x2", "2x1x4", "1x2x4"),
)


def wgmma_rules(chosen: Choice) -> None:
    """Raises Conflict for tunables of `wgmma` that do not go together."""
    block = Tile._make(sizes(chosen.values["threadblock"]))
    multiple_rule("threadblock", "m", block.m, WGMMA_ROWS, f"{WGMMA_ROWS}")
    multiple_rule("threadblock", "n", block.n, 16, "16")
    sides = (("m", block.m), ("n", block.n))
    for (axis, size), along in zip(sides, along_k(chosen.layouts), strict=True):
        panel_rule(chosen, axis, size, along)
    _wgmma_size_rule(block)
    grouped_rule(chosen)
    _cluster_rule(chosen, block)
    _stream_rule(chosen, block)
    line_rule(block, chosen.dtypes)
    epilogue_rule(chosen.values["epilogue"], chosen.dtypes, is_grouped(chosen.values))
    as_tma = chosen._replace(values=with_warps(chosen.values, chosen.dtypes))
    _, warp, _ = tiles(as_tma.values)
    roles = tma_roles(as_tma.values, chosen.dtypes)
    _promotion_rule(chosen, block)
    _burst_rule(chosen)
    wanted = held_sums(chosen.values, warp, chosen.dtypes)
    others = WGMMA_OTHERS + (BOTH_OTHERS if _shares_both(chosen.values) else 0)
    _sums_fit(chosen, wanted, roles.consumer_registers - others)
    share = registers(WARP * (roles.consumers + roles.producers))
    _sums_fit(chosen, sums(warp._replace(m=16), chosen.dtypes), share - SHARE_OTHERS)
    shared_rule(as_tma, tma_shared)


def _shares_both(values: Mapping[str, Any]) -> bool:
    """Whether blocks of a cluster share operands, and others work tiles along K."""
    rows, columns, slices = cluster_of(values)
    return rows * columns > 1 and slices > 1


def _wgmma_size_rule(block: Tile) -> None:
    if block.n > WGMMA_COLUMNS:
        raise Conflict(
            f"threadblock.n={block.n} is more than the {WGMMA_COLUMNS} columns of a wgmma",
            "threadblock",
        )
    if block.m > MOST_ROWS:
        raise Conflict(
            f"threadblock.m={block.m} is more than the {MOST_ROWS} rows that a work tile may have",
            "threadblock",
        )


def _cluster_rule(chosen: Choice, block: Tile) -> None:
    """Blocks of a cluster copy equal parts of what they share, of whole swizzles."""
    *cluster, slices = cluster_of(chosen.values)
    if slices > 1:
        _sliced_rule(chosen, block, slices)
    if teams(chosen.values) > 1 and chosen.dtypes.parts > 1:
        raise Conflict(
            f"schedule={chosen.values['schedule']} is not for {chosen.dtypes.name}: three sets of "
            "sums leave a warpgroup no registers for a large work tile of its own",
            "schedule",
            "dtype",
        )
    if cluster == [1, 1]:
        return
    if chosen.dtypes.parts > 1:
        raise Conflict(
            f"cluster={chosen.values['cluster']} is not for {chosen.dtypes.name}, whose operands "
            "the TMA copies with all parts of their elements at once",
            "cluster",
            "dtype",
        )
    if chosen.values["split_k"] != 1:
        raise Conflict(
            f"cluster={chosen.values['cluster']} goes with split_k=1, since where work tiles are "
            "few, none are left to share operands",
            "cluster",
            "split_k",
        )
    # Blocks below each other share columns of B. Of an operand whose lines do not run along K, each
    # copies whole panels or, where these are too few, some lines of all.
    sides = zip("mn", (block.m, block.n), reversed(cluster), along_k(chosen.layouts), strict=True)
    for axis, size, sharers, along in sides:
        if not along and chosen.dtypes.factor.size == 2:
            axis, size = "k", block.k
        if size % (sharers * SWIZZLED) != 0:
            raise Conflict(
                f"threadblock.{axis}={size} is no multiple of {sharers * SWIZZLED}, so that "
                f"{sharers} blocks of a cluster could copy equal parts",
                "threadblock",
                "cluster",
            )


def _sliced_rule(chosen: Choice, block: Tile, blocks: int) -> None:
    """Of blocks that share work tiles along K, and each finish some of their columns."""
    cluster, d = chosen.values["cluster"], chosen.dtypes
    if d.accumulator.size != 4 or d.parts > 1:
        raise Conflict(
            f"cluster={cluster} is for one sum of 32 bits an element of D, which those of {d.name} "
            "have not",
            "cluster",
            "dtype",
        )
    for name, alone in (("schedule", "cooperative"), ("split_k", 1)):
        if chosen.values[name] != alone:
            raise Conflict(
                f"cluster={cluster} goes with {name}={alone}: its blocks share the few work tiles "
                "that there are along K",
                "cluster",
                name,
            )
    least = PIECE * blocks
    if block.n < least:
        raise Conflict(
            f"threadblock.n={block.n} is less than {least}, of which {blocks} blocks of a cluster "
            f"could finish {PIECE} columns each",
            "threadblock",
            "cluster",
        )


def _stream_rule(chosen: Choice, block: Tile) -> None:
    """Sums that blocks give each other are those of whole warps, of whole steps."""
    stream_rule(chosen, ("split_k", 1), ("cluster", "1x1"))
    promote, step = chosen.values["promote"], block.k
    if chosen.values["stream_k"] and promote > step:
        raise Conflict(
            f"promote={promote} goes with stream_k=0, or as threadblock.k={step} with stream_k=1: "
            "steps of a block begin anywhere, so that each of them is promoted",
            "promote",
            "stream_k",
        )


def _promotion_rule(chosen: Choice, block: Tile) -> None:
    """Only sums of fp8, and of parts, are promoted, whole steps along K at a time."""
    promote = chosen.values["promote"]
    if chosen.dtypes.parts > 1:
        each = WGMMA_BYTES // chosen.dtypes.factor.size
        if promote not in (each, block.k):
            raise Conflict(
                f"promote={promote} is neither {each} nor threadblock.k={block.k}: sums of "
                f"{chosen.dtypes.name} are promoted after each wgmma, or each step along K",
                "promote",
                "threadblock",
            )
        return
    if not promote:
        return
    if not chosen.dtypes.input.is_fp8:
        raise Conflict(
            f"promote={promote} is for sums of fp8; those of {chosen.dtypes.name} have all bits "
            "of their type",
            "promote",
        )
    multiple_rule("promote", "", promote, block.k, f"threadblock.k={block.k}", "threadblock")


def _burst_rule(chosen: Choice) -> None:
    """While the stages of one burst are filled, consumers hand back those of another.

    They hand back a step once they have the next one: a single burst would wait for itself.
    """
    burst, stages = chosen.values["burst"], chosen.values["stages"]
    if burst > 1 and (stages % burst != 0 or stages == burst):
        raise Conflict(f"stages={stages} are not two bursts of {burst} or more", "burst", "stages")


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
        *(["schedule"] if teams(chosen.values) > 1 else []),
    )
