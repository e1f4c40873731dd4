"""What the tensor-core kernels are chosen among, where the caller names none; how fast they are.

Which of these suits a problem, `gen.dispatch` says. Tiles too large for the registers of some
types, or whose lines cannot be copied, break rules, and are left out there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gen.kernels.formulas import ceil_div
from gen.kernels.tensor_cores.operands import KSTRIDED_LINE
from gen.kernels.tensor_cores.rules import widens
from gen.kernels.tensor_cores.tiles import (
    PIECE,
    PING_PONG,
    WGMMA_ROWS,
    clusters_at_once,
    most_stages,
    with_warps,
)
from gen.kernels.tunables import Choice, sizes
from gen.kernels.variant import Pace
from gen.spec.arch import SHARED_KIB
from gen.spec.dtypes import DTypes
from gen.spec.problem import GemmShape, along_k

Tunables = Mapping[str, Any]

# Rows and columns of D that a block computes, and those of a warp.
_MMA_LARGE = (
    ("128x256", "64x64"),
    ("256x128", "64x64"),
    ("128x128", "64x64"),
)
_MMA = (
    ("64x128", "32x64"),
    ("128x64", "64x32"),
    ("64x64", "32x32"),
    ("32x64", "32x32"),
)
_MMA_HALF = (("256x256", "128x64"),)  # whose sums, in f16, take half of the registers
_MMA_DOUBLE = (
    ("128x128x16", "64x32", 3),
    ("128x64x16", "64x32", 4),
    ("128x64x16", "32x32", 4),
    ("128x32x16", "32x32", 4),
    ("64x64x16", "32x32", 4),
    ("64x32x16", "32x16", 4),
    ("32x64x16", "16x32", 4),
    ("48x48x16", "16x48", 4),
    ("32x32x16", "16x16", 6),
    ("32x32x32", "16x16", 4),
    ("64x16x16", "16x16", 4),
    ("16x64x16", "16x16", 4),
)
# Tiles of operands that nothing packs, with bytes along K: small, since what is read where it lies
# takes registers, and more instructions than copies do.
_MMA_ANYWHERE = (
    ("64x64", 64, "32x32"),
    ("16x64", 128, "16x16"),
    ("64x16", 128, "16x16"),
)
_TMA_LARGE = (
    ("128x256", "64x64", 3, 1),
    ("256x128", "64x64", 3, 1),
    ("128x192", "64x48", 4, 1),
    ("128x128", "64x64", 5, 1),
    ("96x96", "32x48", 7, 2),  # by two teams of warps
)
_TMA = (
    ("64x128", "32x64", 8, 1),
    ("64x64", "32x32", 8, 1),
)
# The second one leaves registers to the producers, which find the tiles of groups. A tile takes as
# long as its products do: each size is the one that fills the rounds of some problem.
_TMA_DOUBLE = (
    ("128x128", "32x64", 3, "m16n8k8"),
    ("128x128", "32x64", 3, "m16n8k4"),
    ("192x64", "48x32", 5, "m16n8k4"),
    ("64x192", "32x48", 5, "m16n8k4"),
    ("96x128", "48x32", 4, "m16n8k4"),
    ("80x128", "80x16", 5, "m16n8k4"),
    ("64x160", "16x80", 5, "m16n8k4"),
    ("96x96", "16x48", 5, "m16n8k4"),
    ("144x64", "48x16", 5, "m16n8k4"),
    ("64x144", "16x48", 5, "m16n8k4"),
    ("128x64", "32x32", 6, "m16n8k4"),
    ("64x128", "32x32", 6, "m16n8k4"),
    ("48x128", "48x16", 6, "m16n8k4"),
    ("128x48", "16x48", 6, "m16n8k4"),
    ("96x64", "48x16", 6, "m16n8k4"),
    ("64x96", "16x48", 6, "m16n8k4"),
    ("64x64", "32x16", 8, "m16n8k4"),
    ("32x128", "32x16", 8, "m16n8k4"),
    ("128x32", "16x32", 8, "m16n8k4"),
    ("48x64", "48x16", 8, "m16n8k4"),
    ("64x48", "16x48", 8, "m16n8k4"),
)
_TMA_HALF = (("256x256", "128x64", 3, 1), ("256x224", "64x112", 3, 1), ("192x256", "96x64", 3, 1))

_WGMMA = (
    ("256x192", 3),
    ("256x128", 4),
    ("128x256", 3),
    ("192x192", 4),
    ("128x192", 5),
    ("192x128", 5),
    ("128x160", 5),
    ("128x128", 6),
    ("64x256", 5),
    ("128x112", 7),
    ("128x96", 7),
    ("64x192", 6),
    ("64x128", 8),
    ("64x96", 9),
    ("128x64", 8),
    ("128x48", 9),
    ("64x80", 10),
    ("64x64", 13),
    ("64x64", 8),
    ("64x48", 12),
    ("64x32", 16),
)
_WGMMA_HALF = (("256x256", 3),)
# Wide tiles for few rows, where memory is the limit, with copies of so many steps at once.
_WGMMA_BURSTS = (("128x224", 4, 2), ("64x224", 6, 2), ("64x112", 8, 2))
# Tiles that blocks share along K, whose promoted sums leave no registers for taking turns.
_WGMMA_FP8_STREAMS = (("128x128", 6),)
# Warpgroups that take turns; also with tiles that blocks share along K.
_WGMMA_TURNS = (
    ("128x192", 4),
    ("128x176", 4),
    ("128x160", 4),
    ("128x128", 5),
    ("128x112", 6),
    ("128x96", 6),
)
# Clusters of two blocks: those that share operands, and those that share work tiles along K.
_WGMMA_CLUSTERS = (
    ("256x128", 4, "1x2"),
    ("128x128", 6, "2x1"),
    ("128x96", 7, "2x1"),
    ("64x128", 8, "2x1"),
    ("128x64", 8, "2x1"),
    ("64x96", 9, "2x1"),
    ("128x256", 3, "1x1x2"),
    ("128x128", 5, "1x1x2"),
    ("64x128", 8, "1x1x2"),
    ("128x64", 8, "1x1x2"),
    ("64x64", 13, "1x1x2"),
)
_WGMMA_TURNS_CLUSTERS = (("128x176", 4, "2x1"),)
# Blocks that share operands where tiles are so few that they have to be small: the L2 cache, which
# could not keep up, sends an operand once to all. With as many stages as there is room for.
_WGMMA_SHARING = (
    ("64x128", "1x4"),
    ("64x192", "4x1"),
    ("192x64", "1x4"),
    ("128x160", "2x4"),
    ("128x192", "2x1"),
    ("128x256", "1x2"),
    ("128x128", "1x1x4"),
    ("64x192", "1x1x2"),
    ("64x96", "1x1x4"),
    ("64x64", "1x1x4"),
    ("64x64", "1x2x4"),
    ("64x64", "1x4x2"),
    ("64x128", "1x4x2"),
)
_WGMMA_TURNS_SHARING = (
    ("128x128", "2x2"),
    ("128x128", "4x2"),
    ("128x128", "2x4"),
    ("128x96", "2x4"),
    ("128x64", "2x4"),
    ("128x64", "1x8"),
    ("128x64", "2x1"),
)
# Tiles whose width is fitted to a problem: rows, columns at most, blocks of a cluster, what
# warpgroups do.
_WGMMA_FITTED = (
    (256, 192, "1x1", "cooperative"),
    (256, 192, "1x2", "cooperative"),
    (192, 192, "1x1", "cooperative"),
    (192, 192, "2x1", "cooperative"),
    (128, 256, "1x1", "cooperative"),
    (128, 256, "2x1", "cooperative"),
    (128, 256, "1x2", "cooperative"),
    (128, 256, "4x2", "cooperative"),
    (64, 256, "1x1", "cooperative"),
    (64, 256, "4x1", "cooperative"),
    (128, 192, "1x1", PING_PONG),
    (128, 192, "2x1", PING_PONG),
    (64, 192, "2x4", PING_PONG),
    (64, 256, "1x1x2", "cooperative"),
    (64, 256, "1x1x4", "cooperative"),
    (128, 256, "1x1x2", "cooperative"),
    (128, 256, "1x1x4", "cooperative"),
    (64, 256, "2x2x2", "cooperative"),
    (64, 256, "4x1x2", "cooperative"),
    (64, 256, "2x1x4", "cooperative"),
    (128, 256, "2x1x2", "cooperative"),
    (128, 256, "2x2x2", "cooperative"),
    (128, 256, "1x4x2", "cooperative"),
    (128, 256, "1x2x4", "cooperative"),
    (128, 256, "2x1x4", "cooperative"),
)
_WIDTHS = 2  # of each, of which the widest one takes the fewest rounds
_NARROWEST, _NARROWEST_SHARED = 32, 64  # the latter by blocks that share a tile along K
_FITTED = 20  # of all these, at most: those that multiply the least
_FEWEST_STAGES = 3
# Those of parts take registers thrice, and a stage has three times as many bytes.
_WGMMA_PARTS = (("128x128", 4), ("128x96", 4), ("64x128", 5), ("128x64", 5), ("64x64", 7))
_SLICES = (1, 0)  # of K: one, or as many as occupy the GPU


def _step(chosen: Choice, line: int) -> int:
    """Elements of so many bytes along K."""
    return line // chosen.dtypes.factor.size


def _split(each: Iterable[Tunables]) -> list[Tunables]:
    return [{**one, "split_k": slices} for one in each for slices in _SLICES]


_OTHERS = {"pack", "warp", "instruction", "sliced_k", "threadblock"}  # wgmma has not, or not any


def _has_wgmma(chosen: Choice) -> bool:
    """Whether large tiles of `mma.sync` are outdone: by the instructions of Hopper alone."""
    return chosen.arch == "sm_90a" and _OTHERS.isdisjoint(chosen.values)


def mma_grid(chosen: Choice) -> Sequence[Tunables]:
    """Of `mma`: its default alone where registers are short."""
    if widens(chosen):
        return _split([{}])
    if chosen.dtypes.input.size == 8:
        rows = [*_MMA_DOUBLE]
    else:
        half = _MMA_HALF if chosen.dtypes.accumulator.size == 2 else ()
        large = () if _has_wgmma(chosen) else half + _MMA_LARGE
        deep = [(64, 4), (128, 3)] if chosen.cc >= 80 else [(64, 2)]  # bytes along K, stages
        rows = [
            (f"{tile}x{_step(chosen, line)}", warp, stages)
            for tile, warp in large + _MMA
            for line, stages in deep
        ]
    tiles = [{"threadblock": tile, "warp": warp, "stages": stages} for tile, warp, stages in rows]
    if chosen.dtypes.input.size < 8 and chosen.cc >= 80:
        tiles += [
            {"pack": 0, "threadblock": f"{tile}x{_step(chosen, line)}", "warp": warp}
            for tile, line, warp in _MMA_ANYWHERE
        ]
    return _split(tiles)


def tma_grid(chosen: Choice) -> Sequence[Tunables]:
    """Of `mma_tma`, as of `mma`."""
    if widens(chosen):
        return _split([{}])
    k = _step(chosen, 128)
    if chosen.dtypes.input.size == 8:
        return _split(
            {"threadblock": f"{tile}x{k}", "warp": warp, "stages": stages, "instruction": name}
            for tile, warp, stages, name in _TMA_DOUBLE
        )
    half = _TMA_HALF if chosen.dtypes.accumulator.size == 2 else ()
    large = () if _has_wgmma(chosen) else half + _TMA_LARGE
    return _split(
        {"threadblock": f"{tile}x{k}", "warp": warp, "stages": stages, "sliced_k": teams}
        for tile, warp, stages, teams in large + _TMA
    )


def wgmma_grid(chosen: Choice) -> Sequence[Tunables]:
    """Of `wgmma`: warpgroups that share tiles, with slices of K; those that take turns."""
    if chosen.dtypes.parts > 1:
        return _split(_threadblocks(_WGMMA_PARTS, _step(chosen, 64)))
    k = _step(chosen, 128)
    half = _WGMMA_HALF if chosen.dtypes.accumulator.size == 2 else ()
    shared = _threadblocks(half + _WGMMA, k)
    bursts = _threadblocks_with("burst", _WGMMA_BURSTS, k)
    clusters = _threadblocks_with("cluster", _WGMMA_CLUSTERS, k)
    turns = _threadblocks(_WGMMA_TURNS, k)
    streams = [{**one, "stream_k": 1} for one in turns]
    turning = [*turns, *streams, *_threadblocks_with("cluster", _WGMMA_TURNS_CLUSTERS, k)]
    alone = [{**one, "schedule": PING_PONG} for one in turning]
    sharing = [(*row, "cooperative") for row in _WGMMA_SHARING]
    sharing += [(*row, PING_PONG) for row in _WGMMA_TURNS_SHARING]
    clusters += [_staged(chosen, *row, k) for row in sharing]
    if chosen.dtypes.input.is_fp8:
        alone += [{**one, "stream_k": 1} for one in _threadblocks(_WGMMA_FP8_STREAMS, k)]
    return [*_split(shared), *bursts, *clusters, *alone]


def wgmma_fitted(
    chosen: Choice, shape: GemmShape, products: int, multiprocessors: int
) -> Sequence[Tunables]:
    """Of `wgmma`, for so many products of a shape, on so many multiprocessors: widths with which
    tiles fill rounds.

    In r rounds, there is room for so many columns of tiles; these share out N evenly. Where one row
    of tiles has all of D, memory is the limit: there, the grid has what was measured.
    """
    m, n = shape.m, shape.n
    if chosen.dtypes.parts > 1 or m <= WGMMA_ROWS:
        return []
    k = _step(chosen, 128)
    panels = chosen.dtypes.factor.size == 2 and not along_k(chosen.layouts)[1]
    found: dict[tuple[str, str, str], int] = {}  # what the busiest multiprocessor multiplies
    for rows, most, cluster, schedule in _WGMMA_FITTED:
        below, beside, *shared = sizes(cluster)
        along = shared[0] if shared else 1  # blocks that share a tile along K
        # Blocks below each other copy equal parts of B.
        unit = KSTRIDED_LINE // chosen.dtypes.factor.size if panels else max(PIECE, 8 * below)
        narrowest = ceil_div(_NARROWEST if along == 1 else _NARROWEST_SHARED, unit)
        high = products * ceil_div(ceil_div(m, rows), below)
        room = clusters_at_once(multiprocessors, below * beside * along)
        rounds = ceil_div(high * ceil_div(ceil_div(n, most), beside), room)
        left = _WIDTHS
        while left > 0 and (along == 1 or rounds == 1):  # whole tiles are enough for more rounds
            columns = max(room * rounds // high * beside, 1)
            width = max(ceil_div(ceil_div(n, columns), unit), narrowest) * unit
            if width <= most:
                busiest = rounds * rows * width // along
                found.setdefault((f"{rows}x{width}", cluster, schedule), busiest)
                left -= 1 if width > narrowest * unit else left
            rounds += 1
    least = sorted(found, key=found.__getitem__)[:_FITTED]
    fitted = [_staged(chosen, *one, k) for one in least]
    return [one for one in fitted if one["stages"] >= _FEWEST_STAGES]


def _staged(chosen: Choice, tile: str, cluster: str, schedule: str, k: int) -> dict[str, Any]:
    """With as many stages as shared memory holds beside two pieces of D on their way."""
    found = {"threadblock": f"{tile}x{k}", "cluster": cluster, "schedule": schedule}
    whole = with_warps({**found, "split_k": 1}, chosen.dtypes)
    return {**found, "stages": most_stages(whole, chosen.dtypes, SHARED_KIB[chosen.cc] * 1024)}


def _threadblocks(rows: Sequence[tuple[str, int]], k: int) -> list[dict[str, Any]]:
    return [{"threadblock": f"{tile}x{k}", "stages": stages} for tile, stages in rows]


def _threadblocks_with(
    name: str, rows: Sequence[tuple[str, int, object]], k: int
) -> list[dict[str, Any]]:
    """The same with one more tunable."""
    tiles = _threadblocks([row[:2] for row in rows], k)
    return [{**tile, name: row[2]} for tile, row in zip(tiles, rows, strict=True)]


def _share(dtypes: DTypes, half: float, tf32: float, i8: float, f8: float) -> float:
    """Of the peak by the data sheet, by the type of the operands."""
    if dtypes.factor.is_fp8:
        return f8
    return {"tf32": tf32, "i8": i8}.get(dtypes.input.name, half)


def mma_pace(dtypes: DTypes) -> Pace:
    """Of `mma`."""
    if dtypes.input.size == 8:
        return Pace(
            "mma", 1.09, along=0.946, wait=156, copied=0.05, small=0.097, alone=152, last=2240,
            store=38, rough=0.78, start=158, code=23.6,
        )  # fmt: skip
    if dtypes.input.name == "tf32":
        return Pace(
            "mma", 0.423, wait=160, alone=557, last=910, store=14.1, rough=0.78, start=676,
            code=14.4,
        )  # fmt: skip
    share = _share(dtypes, 1.02, 0.52, 0.65, 0.68)
    if dtypes.input.size == 2 and dtypes.output.size == 4:
        return Pace(
            "mma", share, wait=178, alone=318, last=2210, store=19.9, rough=0.78, start=454,
            code=6.43,
        )  # fmt: skip
    if dtypes.input.size == 2:
        return Pace(
            "mma", share, wait=178, alone=318, last=1150, store=19, rough=0.69, start=715,
            code=9.9,
        )  # fmt: skip
    return Pace(
        "mma", share, wait=178, alone=318, last=1250, store=19, rough=1.09, start=504, code=12.2
    )


def short_pace(_: DTypes) -> Pace:
    """Of `mma` with m16n8k8: half of m16n8k16's work in two thirds of its cycles."""
    return Pace(
        "mma", 0.67, wait=100, alone=153, last=1780, store=10, rough=1.7, start=963, code=11
    )


def tma_pace(dtypes: DTypes) -> Pace:
    """Of `mma_tma`."""
    if dtypes.input.size == 8:
        return Pace(
            "mma", 0.942, wait=61, alone=61, last=330, store=6, rough=3.36, start=670, code=50
        )
    share = _share(dtypes, 0.96, 0.66, 0.585, 0.655)
    return Pace("mma", share, wait=7, alone=8, last=1020, store=21, rough=1.7, start=1070, code=6)


def wgmma_pace(dtypes: DTypes) -> Pace:
    """Of `wgmma`: power limits it, more than anything else."""
    share = 1.08 if dtypes.parts > 1 else _share(dtypes, 0.88, 0.71, 0.54, 0.94)
    if dtypes.input.name == "tf32":
        return Pace("wgmma", share, last=1930, store=8.86, rough=2.72, start=265, code=12.9)
    if dtypes.output.size == 4 and dtypes.accumulator.is_float and dtypes.parts == 1:
        return Pace("wgmma", share, last=1190, store=16, rough=2.59, start=613, code=11.2)
    return Pace("wgmma", share, last=1810, store=7.7, rough=2.8, start=400, code=4.6)
