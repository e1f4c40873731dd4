"""What a kernel costs on a GPU, in numbers that no problem changes: `cost` counts with them.

All times are whole picoseconds, so that Python and C++ come to the same result. What a step along K
takes is the longest of three: its products, at the rate of the data sheet times the share that the
kernel reaches; the bytes of shared memory that these read; the bytes that come from the L2 cache.

Constants are fitted to times that docs/lab records, all of one kind of GPU, the H200. On others the
data sheet takes part, and the constants are assumed to be the same, but for the L2 cache's.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from gen.device.gpus import GpuModel, occupancy
from gen.kernels.tensor_cores.operands import operands
from gen.kernels.tensor_cores.tiles import PING_PONG, WGMMA_ROWS, sums
from gen.kernels.variant import Pace
from gen.spec.arch import BANKS, WARP
from gen.spec.dtypes import DTypes
from gen.spec.kernel import KernelSpec
from gen.spec.problem import along_k

L2_CLOCK = {80: 56, 90: 56, 100: 56}  # bytes of L2 for one; H200's as measured
L2_OTHERS = 32  # of other GPUs: not measured
BANDWIDTH = 0.88  # share of the data sheet's that a copy reaches: 4,256 GB/s of 4,800
MOVING = 1 / 24  # of the time of copies, by which they slow multiplications down: power
LAUNCH = 900_000  # of a kernel among others
HELPER = 1_100_000  # of one that packs, or that sums up slices, until it works
LATENCY = 800  # clocks until the first operands are there
AWAY = 200  # clocks that warpgroups which take turns are apart
STORED = 48  # bytes of D in a clock
GELU = 0.3  # clocks of an element of D on a multiprocessor
SHARING = 4_000_000  # that blocks of stream-K take to share tiles
OTHERS = 80  # registers of a thread beside sums
HIDDEN = 0.5  # of what a step waits, where a multiprocessor has other blocks meanwhile
SCHEDULERS = 4  # of a multiprocessor: a block with fewer warps leaves some idle


class Weights(NamedTuple):
    """Times of one kernel on one GPU, in picoseconds; sizes.

    math: the products of a step, and what of them memory inside of the multiprocessor takes. lone:
    a step of a block that is alone on its multiprocessor. wait: what a step takes besides.
    copy_a, copy_b: the bytes of a step from the L2 cache. tile: of a work tile, besides its steps.
    start: once. resident: blocks that a multiprocessor holds. split: slices of K, 0 for as many as
    suit. stream: whether blocks share tiles. few: 1 and 2 are kernels for D with fewer rows than
    columns, and with fewer columns than rows. group: tiles along M that are computed close in time.
    packs_a, packs_b: whether that operand is packed: 0 never, 1 if it is not aligned, 2 always.
    size, out: bytes of an element of A and B, and of D. packed: bytes moved for an element that is
    packed. kib: 1024 bytes of device memory. cache: bytes of the L2 cache.
    """

    tile_m: int
    tile_n: int
    tile_k: int
    math: int
    lone: int
    wait: int
    copy_a: int
    copy_b: int
    tile: int
    start: int
    resident: int
    split: int
    stream: int
    few: int
    group: int
    packs_a: int
    packs_b: int
    size: int
    out: int
    packed: int
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


def weigh(spec: KernelSpec, gpu: GpuModel) -> Weighed:
    """The weights of a kernel whose row has a pace."""
    assert spec.row.pace
    pace, d, g, tile = spec.row.pace(spec.dtypes), spec.dtypes, spec.geometry, spec.threadblock
    clock = 1e3 / gpu.clock
    threads = math.prod(spec.threads)
    products = (
        tile.m * tile.n * tile.k * d.products / (peak(gpu, d, pace.unit) / 2 / gpu.sms * pace.share)
    )
    byte = clock / L2_CLOCK.get(gpu.capability, L2_OTHERS)
    step = tile.k * d.factor.size * d.parts
    copy_a, copy_b = tile.m * step * byte, tile.n * step * byte
    shared = _shared_bytes(spec, pace) / BANKS * clock
    resident = 1
    if not spec.row.persistent:
        registers = min(255, sums(spec.warp, d) + OTHERS) if spec.warp else pace.registers
        static, dynamic = g.static_shared, g.dynamic_shared
        resident = max(1, occupancy(gpu, threads, registers, static + dynamic).blocks)
    along = sum(side for side, runs in zip(tile[:2], along_k(spec.layouts), strict=True) if runs)
    more = (pace.wait_k + pace.across_k * along) * tile.k * clock
    main = max(products, shared) + MOVING * (copy_a + copy_b) + more
    turns = spec.tunables.get("schedule") == PING_PONG
    wait = pace.wait * clock
    lone = main * max(1, pace.alone * resident, SCHEDULERS * WARP / threads) + wait
    stored = tile.m * tile.n * d.output.size / STORED * clock
    if spec.epilogue.endswith("gelu"):
        stored += tile.m * tile.n * GELU * clock
    latency = (LATENCY + pace.last) * clock
    persistent = spec.row.persistent
    between = 0 if turns else pace.between * clock
    a, b = _packs(spec)
    k = tile.k if pace.exact else 1
    wait *= 1 if resident == 1 else HIDDEN
    few = ("", "rows", "columns").index(spec.tunables.get("few", ""))
    found = (
        tile.m, tile.n, tile.k // k,
        *(each / k for each in (main, lone, wait, copy_a, copy_b)),
        (0 if turns else stored + between) + (0 if persistent else latency),
        LAUNCH + (latency if persistent else 0) + (stored + AWAY * clock if turns else -between),
        resident, spec.split_k, spec.stream_k, few, spec.tunables.get("swizzle", 1), a, b,
        d.input.size, d.output.size, d.input.size + d.factor.size * d.parts,
        1024e3 / (gpu.bandwidth * BANDWIDTH), gpu.l2 * 2**20,
    )  # fmt: skip
    unit = "CUDA cores" if pace.unit == "cuda" else "tensor cores"
    bound = "shared memory" if shared > products else unit
    return Weighed(Weights._make(map(round, found)), bound)


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


def _packs(spec: KernelSpec) -> tuple[int, int]:
    """Whether the left and the right operand of the row-major product are packed: see Weights."""
    if not spec.packs or not spec.row.planner:
        return 0, 0
    if spec.dtypes.parts > 1:
        return 2, 2
    a, b = (2 if x.transposed else 1 for x in operands(spec))
    return a, b
