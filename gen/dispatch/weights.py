"""What a kernel costs on a GPU, in numbers that no problem changes: `cost` counts with them.

All times are whole picoseconds, so that Python and C++ come to the same result. What a step along K
takes is the longest of three: its products, at the rate of the data sheet times the share that the
kernel reaches; the bytes of shared memory that these read; the bytes that come from the L2 cache.

Constants are fitted to times that docs/lab records, all of one kind of GPU, the H200. On others the
data sheet takes part, and the constants are assumed to be the same, but for the L2 cache's.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from gen.device.gpus import GpuModel
from gen.kernels.occupancy import occupancy
from gen.kernels.tensor_cores.facts import held_blocks
from gen.kernels.tensor_cores.tiles import (
    PING_PONG,
    WARPGROUP,
    WGMMA_ROWS,
    is_transposed,
    lies_anywhere,
)
from gen.kernels.variant import Pace, Variant
from gen.spec.arch import BANKS, MOST_REGISTERS, SECTOR, UNIT, WARP
from gen.spec.dtypes import DTypes
from gen.spec.kernel import KernelSpec, cluster_of
from gen.spec.problem import Layouts, along_k

L2_CLOCK = {80: 64, 90: 64, 100: 64}  # bytes of L2 for one
L2_OTHERS = 32  # of other GPUs: not measured
HELPER = 1_630_000  # of a kernel that packs, until it works
SUMMING = 800_000  # of one that sums up slices
PACKED = 1.42  # times as long as a copy of the same bytes takes a kernel that packs
SPLIT = 3.9  # the same where it splits elements into parts
ADDED = 3.16  # times the bytes of a slice's sums, in those of device memory
# Tenths of the time to write D whose lines do not begin at multiples of 16 bytes; and by warpgroups
# that take turns: tiles beside each other have parts of the same sectors, and are written at other
# times, unless blocks of a cluster have so many of them.
RAGGED, RAGGED_TURNS, BESIDE = 26, 31, 4
THICK = 128  # bytes of a line along K that memory moves as fast as any, where a step has so many
NARROW = 45  # bytes beside each line of an operand that memory moves, where lines run across K
AWAY = 1.1  # times as long the last steps take, where warpgroups take turns
# That blocks of stream-K take to share tiles, and for each element of these.
SHARING, SHARED_SUM = 2_700_000, 75
# Times as long a step takes where warpgroups take turns, and so many blocks share operands.
TAKING_TURNS = {1: 0.997, 2: 0.997, 4: 0.97, 8: 0.97}
IN_BURSTS = 1.08  # times as long a step takes whose copies are asked for with those of others
HELD = 0.84  # of `Pace.across_k`, where teams of warps hold chunks
# Times as long a step takes on CUDA cores where blocks stay for all tiles, and teams or lanes hold
# chunks: that many registers are more than there are.
STAYING = 1.05
PANELS = 1.1  # times as long the copies of an operand take that runs across K, for wgmma
# Clocks that the TMA takes for a box, of an operand that runs across K: of so many bytes
# beside each other, and a step's lines.
BOX, PANEL = 95, 128
# Of the time to copy from L2 what so many blocks of a cluster share.
SHARED = {1: 1.0, 2: 0.5, 4: 0.21, 8: 0.21}
MEETING = 150  # nanoseconds that blocks of a cluster take to begin together
IDLING = 200_000  # what clusters take with places outside of D: not measured, it decides a tie
# That blocks of a cluster take to add up their sums: for each of a thread, beyond so many.
JOINING, JOINED = 34_000, 12
FEW_ROWS = 512  # of A, at most, with which tiles below each other follow like that
LATE = 8  # the part of B that is read again where tiles below each other follow
LONG = 50_000_000  # after which power decides how fast wgmma is
# Of the time after that, of tiles with so many elements of D and of smaller ones; where warpgroups
# take turns, of tiles with more columns, of 2 bytes; and what blocks save that share B's columns.
SAGGING, LARGE, SAGGING_LESS, SAGGING_TURNS, TURNING = 0.113, 128 * 256, 0.06, 0.055, 128
SPARING, SPARING_TURNS = 0.015, 0.04
GELU = 0.3  # clocks of an element of D on a multiprocessor
STREWN = 64  # bytes beside each piece of a line along K that memory moves, if K is in slices
PIECES = 2  # times as long it takes to store D, where that leaves by pieces of 32 bytes
HIDDEN = 0.5  # of what a step waits, where a multiprocessor has other blocks meanwhile
# Picoseconds that a slice of the L2 cache takes for 128 bytes of a line, where all blocks ask for
# the same: for an operand that lies in so few slices, of so many bytes each.
ASKED, SLICE, FEW_SLICES = 100, 2048, 32
MANY = 2  # the part of its time that a kernel for few takes more where they are many
# Clocks of a chunk that is read where it lies, as two aligned ones; more of them where nothing else
# is computed meanwhile.
ANYWHERE, ANYWHERE_ALONE = 0.9, 2
STORED = 128  # elements of D, of which `Pace.store` is the time
SCHEDULERS = 4  # of a multiprocessor: a block with fewer warps leaves some idle


class Weights(NamedTuple):
    """Times of one kernel on one GPU, in picoseconds; sizes.

    cluster_m, cluster_n, cluster_k: blocks of a cluster, along each. math: the products of a step,
    and what of them memory inside of the multiprocessor takes. lone: a step of a block that is
    alone on its multiprocessor. wait: what a step takes besides. copy_a, copy_b: the bytes of a
    step from the L2 cache, or their boxes. small_a, small_b: what is more of a step where these are
    not aligned. last: of a work tile, besides its steps and what it stores. store: of 1024 elements
    of D; rough: so many sixteenths of that where lines of D are not aligned; hides: whether a tile
    is stored while others are computed. start: once. resident: blocks that a multiprocessor holds.
    held: those that slices of K are to fill. split: slices of K, 0 for as many as suit. stream:
    whether blocks share tiles. lines: whether a block computes whole lines of tiles. flows: whether
    small blocks follow each other so that one ends while others work. few: 1 where the kernel is
    for few rows, 2 where for few columns, or else 0. sagging: 1024ths that products take longer
    where tensor cores are busy for long. sharing: what blocks take that share tiles. group: tiles
    along M that are computed close in time. packs_a, packs_b: whether that operand is packed: 0
    never, 1 if it is not aligned, 2 always. size, out: bytes of an element of A and B, and of D.
    turned: whether D's lines are its columns. spread_a, spread_b, scatter: sixteenths of the bytes
    of A, B and D that device memory moves. torn: tenths of the time to write D whose lines are not
    aligned. strewn_a, strewn_b: those of A and B that it moves besides where lines are not aligned
    and K is in slices. run_a, run_b: whether lines of A and B run along K. asked: for 128 bytes of
    a line that blocks ask for, which the L2 cache answers one after another where all ask for the
    same few. packed: bytes that packing an element takes as long as; added: those that adding up an
    element of a slice's sums does. kib: 1024 bytes of device memory. cache: bytes of the L2 cache.
    """

    tile_m: int
    tile_n: int
    tile_k: int
    cluster_m: int
    cluster_n: int
    cluster_k: int
    math: int
    lone: int
    wait: int
    copy_a: int
    copy_b: int
    small_a: int
    small_b: int
    last: int
    store: int
    rough: int
    hides: int
    start: int
    resident: int
    held: int
    split: int
    stream: int
    lines: int
    flows: int
    few: int
    sagging: int
    sharing: int
    group: int
    packs_a: int
    packs_b: int
    size: int
    out: int
    turned: int
    spread_a: int
    spread_b: int
    run_a: int
    run_b: int
    asked: int
    scatter: int
    torn: int
    strewn_a: int
    strewn_b: int
    packed: int
    added: int
    kib: int
    cache: int


class Weighed(NamedTuple):
    """The weights, and what takes the longest of a step's products: a word for people."""

    weights: Weights
    bound: str


def peak(gpu: GpuModel, dtypes: DTypes, unit: str) -> float:
    """TFLOP/s of a unit (see `Pace`) for element types, by the data sheet."""
    factor = dtypes.factor
    if unit == "cuda":
        if dtypes.accumulator.size == 8:
            return gpu.fp64
        lanes = gpu.limits.fp32_lanes if dtypes.accumulator.is_float else 64
        return gpu.fp32 * lanes / gpu.limits.fp32_lanes
    if factor.size == 8:
        return gpu.fp64_tensor
    rate = gpu.tensor * (gpu.mma if unit == "mma" else 1)
    if factor.size == 4:  # tf32
        return rate / 2
    if factor.size == 2:
        return rate * (2 if gpu.halved and dtypes.accumulator.size == 2 else 1)
    if factor.is_fp8:
        widened = unit == "mma" and gpu.capability == 90
        return rate * (1 if widened else 2)
    return rate * (4 if gpu.halved else 2)


@lru_cache(maxsize=256)
def _pace(row: Variant, dtypes: DTypes) -> Pace:
    assert row.pace
    return row.pace(dtypes)


def weigh(spec: KernelSpec, gpu: GpuModel) -> Weighed:
    """The weights of a kernel whose row has a pace."""
    d, g, tile = spec.dtypes, spec.geometry, spec.threadblock
    pace = _pace(spec.row, d)
    clock = 1e3 / gpu.clock
    threads = math.prod(spec.threads)
    layouts = spec.layouts
    runs = along_k(Layouts(layouts.a, layouts.b, not spec.swapped))  # as the kernel has them
    share = pace.share
    if runs[1 - _short(spec)]:
        pace = pace.lengthwise or pace
        share = pace.share * pace.along
    if spec.warp:
        share /= 1 + pace.reads * WARP / (spec.warp.m * spec.warp.n)
    products = (
        tile.m * tile.n * tile.k * d.products / (peak(gpu, d, pace.unit) / 2 / gpu.sms * share)
    )
    byte = clock / L2_CLOCK.get(gpu.capability, L2_OTHERS)
    step = tile.k * d.factor.size * d.parts
    rows, columns, sharers = cluster_of(spec.tunables)
    panels_a, panels_b = (PANELS if pace.unit == "wgmma" and not run else 1 for run in runs)

    persistent = spec.row.persistent

    def in_boxes(run: bool) -> bool:  # across K; what is transposed first comes along K
        return persistent and not run and not is_transposed(run, d.factor.size)

    boxes_a, boxes_b = (
        BOX * clock * side * d.factor.size / PANEL if in_boxes(run) else 0
        for side, run in zip((tile.m, tile.n), runs, strict=True)
    )
    copy_a = max(tile.m * step * byte * panels_a, boxes_a) * SHARED[columns]
    copy_b = max(tile.n * step * byte * panels_b, boxes_b) * SHARED[rows]
    shared = _shared_bytes(spec, pace) / BANKS * clock
    if spec.warp:
        resident = held_blocks(spec, gpu.capability)
    else:
        memory = g.static_shared + g.dynamic_shared
        registers = _registers(spec, pace, runs)
        resident = max(1, occupancy(gpu.capability, threads, registers, memory).blocks)
    turned = not layouts.c and not spec.swapped
    along = tile.m * runs[0] + tile.n * runs[1]
    across = pace.across_k * tile.k * clock  # for each line that runs along K
    held = spec.sliced_k > 1 and bool(spec.tunables.get("held"))
    more = pace.wait_k * tile.k * clock + across * along * (HELD if held else 1)
    more += pace.copied * (tile.m + tile.n) * tile.k * clock
    anywhere = lies_anywhere(spec.tunables, d)
    chunks = (tile.m + tile.n) * step / UNIT * clock if anywhere else 0
    more += ANYWHERE * chunks
    turns = spec.tunables.get("schedule") == PING_PONG
    stays = bool(spec.stream_k and not persistent)
    main = (
        max(products, shared)
        * (IN_BURSTS if spec.tunables.get("burst", 1) > 1 else 1)
        * (TAKING_TURNS[rows * columns] if turns else 1)
        * (STAYING if stays and spec.tunables.get("held") else 1)
        + more
        + _gathered(spec, pace, (copy_a, copy_b), runs)
    )
    lone = main * max(1, SCHEDULERS * WARP / threads) + pace.alone * clock + ANYWHERE_ALONE * chunks
    # Time that is shared evenly counts `wait` alone, also where no other block works meanwhile.
    lonely = stays and resident == 1
    wait = (pace.alone if lonely else pace.wait) * clock * (1 if resident == 1 else HIDDEN)
    small = 0 if anywhere else pace.small
    small_a, small_b = (small * x for x in _loads(spec, runs, (copy_a, copy_b)))
    short = g.values.get("staging_line") == SECTOR
    gelu = GELU * STORED if spec.epilogue.endswith("gelu") else 0
    store = pace.store * (PIECES if short else 1) + gelu
    last = pace.last * clock * (AWAY if turns else 1)
    last += (pace.reduced * _own_sums(spec, runs) + pace.teams * (spec.sliced_k > 1)) * clock
    unrolled = _unrolled(spec, pace, threads)
    if sharers > 1 and pace.unit == "wgmma":
        last += JOINING * max(unrolled / g.values["groups"] - JOINED, 0)
    start = pace.start + pace.code * unrolled + MEETING * (rows * columns * sharers > 1)
    start += pace.across * (2 - sum(runs)) + pace.meeting * (sharers > 1)
    torn = RAGGED_TURNS if turns and columns < BESIDE else RAGGED
    a, b = _packs(spec, runs)
    k = tile.k if pace.exact else 1

    def spread(side: int, run: bool) -> float:
        if run:
            return 1 + pace.thin * max(THICK / step - 1, 0)
        return 1 + (NARROW / side / d.factor.size if persistent else 0)

    few = {"rows": 1, "columns": 2}.get(spec.tunables.get("few", ""), 0)

    asked = ASKED * (pace.unit != "cuda" and d.factor.size <= 2)

    def strewn(run: bool) -> float:
        return 16 * STREWN / step if run and not persistent else 0

    found = (
        tile.m, tile.n, tile.k // k, rows, columns, sharers,
        main / k, lone / k, wait / k, copy_a / k, copy_b / k, small_a / k, small_b / k,
        last, store * clock * 1024 / STORED,
        16 * pace.rough, turns, start * 1e3,
        resident, held_blocks(spec) if spec.warp else 1,
        spec.split_k, spec.stream_k, pace.lines, pace.flows, few,
        1024 * _sagging(spec, pace),
        SHARING + SHARED_SUM * tile.m * tile.n,
        spec.tunables.get("swizzle", 1), a, b,
        d.input.size, d.output.size, turned,
        16 * spread(tile.m * rows, runs[0]), 16 * spread(tile.n * columns, runs[1]),
        runs[0], runs[1], asked,
        16 * (pace.scatter if turned else 1), torn, strewn(runs[0]), strewn(runs[1]),
        _packed(d),
        ADDED * d.scalar.size, 1024e3 / gpu.bandwidth, gpu.l2 * 2**20,
    )  # fmt: skip
    unit = "CUDA cores" if pace.unit == "cuda" else "tensor cores"
    bound = "shared memory" if shared > products else unit
    return Weighed(Weights._make(map(round, found)), bound)


def _sagging(spec: KernelSpec, pace: Pace) -> float:
    """The part of a long time by which products take longer, where power decides."""
    if pace.unit != "wgmma":
        return 0
    tile, shared = spec.threadblock, cluster_of(spec.tunables)[0] > 1
    if spec.tunables["schedule"] == PING_PONG:
        wide = tile.n > TURNING and spec.dtypes.factor.size == 2
        return max(SAGGING_TURNS * wide - SPARING_TURNS * shared, 0)
    return (SAGGING if tile.m * tile.n >= LARGE else SAGGING_LESS) - SPARING * shared


def _unrolled(spec: KernelSpec, pace: Pace, threads: int) -> float:
    """Elements of D for which a thread has instructions of their own."""
    elements = float(spec.threadblock.m * spec.threadblock.n)
    if pace.unit == "wgmma":
        return elements / (WARPGROUP * WARP)
    return elements * int(spec.geometry.values.get("width", 1)) / threads


def _registers(spec: KernelSpec, pace: Pace, runs: tuple[bool, bool]) -> int:
    """Of a thread, about."""
    own = _own_sums(spec, runs)
    if not pace.sums or not own:
        return pace.registers + int(spec.geometry.values.get("slab_registers", 0))
    return min(round(pace.besides + pace.sums * own), MOST_REGISTERS)


def _own_sums(spec: KernelSpec, runs: tuple[bool, bool]) -> int:
    """Of a lane that adds up all of a block's with its neighbours: along K, for few of D."""
    if "few" not in spec.tunables or not runs[1 - _short(spec)]:
        return 0
    return spec.threadblock.m * spec.threadblock.n


def _short(spec: KernelSpec) -> int:
    """Which operand is short, of a kernel for few rows or columns: 0 is the left one."""
    return int(spec.tunables.get("few") == "columns")


def _gathered(
    spec: KernelSpec, pace: Pace, copies: tuple[float, float], runs: tuple[bool, bool]
) -> float:
    """What the short operand of a kernel for few rows or columns takes, whose lines run across K:
    of each sector, a block reads the elements of its own rows or columns.
    """
    if "few" not in spec.tunables:
        return 0
    short = _short(spec)
    if runs[short]:
        return 0
    own = int(spec.tunables["vectors"]) * spec.dtypes.input.size
    return copies[short] * pace.gather * min(max(SECTOR / own, 1), 16)


def _loads(
    spec: KernelSpec, runs: tuple[bool, bool], copies: tuple[float, float]
) -> tuple[float, float]:
    """Copies of both, the longer where more elements are one load if they are aligned."""
    if "piece_bytes" not in spec.geometry.values or runs[1 - _short(spec)]:
        return copies
    pieces = spec.geometry.values["piece_bytes"] * 2 / UNIT
    a, b = copies
    return (a * pieces, b) if _short(spec) else (a, b * pieces)


def _shared_bytes(spec: KernelSpec, pace: Pace) -> int:
    """What tensor cores read of shared memory in a step, and what copies write there.

    Warps read the rows and columns of their tiles; wgmma those of 64 rows at a time.
    """
    if pace.unit == "cuda" or not spec.warp:
        return 0  # which the share has
    tile, d = spec.threadblock, spec.dtypes
    lines = tile.m + tile.n
    if pace.unit == "wgmma":
        read = tile.m // WGMMA_ROWS * (WGMMA_ROWS + tile.n) * d.products
    else:
        read = (tile.m // spec.warp.m) * (tile.n // spec.warp.n) * (spec.warp.m + spec.warp.n)
    return (read + lines * d.parts) * tile.k * d.factor.size


def _packed(d: DTypes) -> float:
    """Bytes that packing an element takes as long as a copy of."""
    return (SPLIT if d.parts > 1 else PACKED) * (d.input.size + d.factor.size * d.parts)


def _packs(spec: KernelSpec, runs: tuple[bool, bool]) -> tuple[int, int]:
    """Whether the left and the right operand of the row-major product are packed: see Weights.

    runs: whether they are contiguous along K.
    """
    if not spec.packs or not spec.row.planner:
        return 0, 0
    if spec.dtypes.parts > 1:
        return 2, 2
    a, b = (2 if is_transposed(run, spec.dtypes.factor.size) else 1 for run in runs)
    return a, b
