"""How far a kernel's sums may be off: on CUDA cores, and on tensor cores."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gen.kernels.tensor_cores.tiles import WGMMA_ROWS
from gen.prove.sums import Sums, gamma, part_sums, rounded_sums
from gen.spec import numerics
from gen.spec.dtypes import DTypes
from gen.spec.kernel import KernelSpec


class TensorCore(NamedTuple):
    """How tensor cores sum: see `sums_of`.

    products: that are added at once, at least; 0 for all of an instruction. fraction: how many bits
    below the largest exponent each term is cut off. kept: bits behind the leading one of a sum in
    f32. apart: whether the products' sum is made alone, then added to the accumulator, rounded.
    """

    products: int
    fraction: int
    kept: int = 23
    apart: bool = False

    def error(self, k: int, half: bool) -> float:
        """Of an instruction with k products, relative to its largest term or sum."""
        u, each = numerics.unit_roundoff("f32"), self.products or k
        cut = numerics.unit_roundoff("f16") if half else 2.0**-self.kept
        return k // each * (each * 2.0**-self.fraction + cut) + (u if self.apart else 0)


ANY = TensorCore(4, 23)  # all since Volta (Fasi et al.)
HOPPER = TensorCore(0, 25)  # H200, measured, and what the emulator does
# Of fp8: by wgmma; by mma.sync on Hopper, which widens it to f16; the least that is known of any.
_FP8_WGMMA, _FP8_WIDENED, _FP8_ANY = (
    TensorCore(0, 13, 13), TensorCore(16, 25, apart=True), TensorCore(4, 13, 13)
)  # fmt: skip


def _core(spec: KernelSpec, core: TensorCore) -> TensorCore:
    """What makes a kernel's sums on a GPU whose tensor cores sum f16 as `core`."""
    if not spec.dtypes.input.is_fp8:
        return core
    if spec.instruction and spec.instruction.m == WGMMA_ROWS:
        return _FP8_WGMMA
    return _FP8_WIDENED if core == HOPPER else _FP8_ANY


def sums_of(spec: KernelSpec, core: TensorCore = ANY) -> Sums:
    """How far a kernel's sums may be off, for `oracle.error_bound`.

    On CUDA cores, and of f64: K additions, each rounded to nearest, and those of slices of K.

    On tensor cores an instruction adds k products to an accumulator, b of them at a time. Products
    are exact. Let E be the largest exponent of the b + 1 terms: one that has it is whole, all
    others are cut off at 2^(E - fraction). They are added exactly, and the sum is cut off to 24
    bits, 14 of fp8 by wgmma, or rounded to the 11 of f16 (Fasi, Higham, Mikaitis, Pranesh,
    Numerical behavior of NVIDIA tensor cores, PeerJ Computer Science 7, 2021; of an H200:
    `gen.emulator.warp.tensor_core`; fp8 by mma.sync is two such sums there, and an addition). With
    t no less than any term and any sum in between, the error of such a step is below

        b 2^-fraction t + r t,   r = 2^-23 in f32, 2^-13 of fp8 by wgmma, 2^-11 in f16.

    A warp goes through K from one instruction to the next, so that a sum in between is one of
    consecutive products: the difference of two partial sums P_j, as they are after each
    instruction, and a part of one instruction's products. So, besides the error so far,

        t = (max P_j - min P_j) + max over the instructions of |A| |B|,   with P_0 = 0.

    Teams of warps that take turns along K have partial sums of their own. Where blocks share work
    tiles along K ("stream-K"), their steps may come last to first, or begin inside of K and end
    there: then a sum in between is one of two runs of consecutive products. With w = the number of
    steps times (b 2^-fraction + r), the error is at most w / (1 - w) t. Where signs differ, that is
    far less than what the whole |A| |B| gives. Where instructions share the products of a slab in
    an order of their own, P_j are the sums after each slab.

    Where sums are promoted, each part of K has a t and a w of its own, and the errors are added up.
    A slice may cut a part in two, which have no larger ones.

    A factor below the least normal number has that one's exponent. Promoted sums and those over
    slices of K are added in f32, those of teams and of blocks that share a tile in the type that
    they have: with an error of gamma times |A| |B|, or, if that is less, t for each of them.
    """
    dtypes = spec.dtypes
    instruction, u = spec.instruction, numerics.unit_roundoff(dtypes.scalar.name)
    if instruction is None:
        return rounded_sums(0, u)
    if dtypes.input.name == "f64":
        return lambda a, b: rounded_sums(_slices(spec, a.shape[1]), u)(a, b)
    half = dtypes.accumulator.name == "f16"
    u = numerics.unit_roundoff("f32")
    step = _core(spec, core).error(instruction.k, half)
    if dtypes.parts > 1:
        return part_sums(spec, step)
    promote = int(spec.tunables.get("promote", 0))
    runs, teams = (2, 2) if spec.stream_k else (1, spec.geometry.teams)
    slab = spec.geometry.slab
    turn, together = slab or spec.threadblock.k, slab or instruction.k

    def errors(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        k, tiny = a.shape[1], numerics.smallest_normal(dtypes.input.name)
        reach = np.zeros((a.shape[0], b.shape[1]))
        error = np.zeros_like(reach)
        promoted = range(0, max(k, 1), promote or max(k, 1))
        for at in promoted:
            here = slice(at, at + promoted.step)
            part, other = a[:, here], b[here]
            own = _reach(part, other, tiny, together, turn, teams, runs)
            w = -(-part.shape[1] // instruction.k) * step
            error += w / (1 - w) * own if w < 1 else np.inf
            reach += own
        slices = _slices(spec, k)
        parts = slices * teams + len(promoted) - 1
        if parts > 1:
            team = gamma(teams - 1, numerics.unit_roundoff("f16") if half else u)
            added = gamma(slices + len(promoted) - 2, u) + team
            total = np.abs(a) @ np.abs(b)
            error += added * (np.minimum(total, parts * reach) + error)
        return error

    return errors


def any_tensor_core(slices: int, dtypes: DTypes) -> Sums:
    """Of tensor cores with sums in f32, of an unknown kernel that adds up so many partial sums.

    A block of b products, at least 4, makes b + 1 errors of at most 2 u of its largest term or sum;
    of fp8, of 2^-13.
    """
    core = _FP8_ANY if dtypes.input.is_fp8 else ANY

    def errors(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        steps = -(-a.shape[1] // core.products) + slices
        return rounded_sums(steps, 2.0**-core.kept)(a, b)

    return errors


def _slices(spec: KernelSpec, k: int) -> int:
    """Of K, at most: no more than there are steps along K."""
    steps = max(-(-k // spec.threadblock.k), 1)
    return min(spec.slices_of_k or steps, steps)


def _reach(
    a: np.ndarray, b: np.ndarray, tiny: float, each: int, tile: int, teams: int, runs: int
) -> np.ndarray:
    """No less than any term or sum of sums in steps of `each` products: see `sums_of`.

    runs: of consecutive products, that a sum in between has.
    """
    shape = (a.shape[0], b.shape[1])
    team = np.zeros((teams, *shape))
    low, high = np.zeros_like(team), np.zeros_like(team)
    most = np.zeros(shape)
    for at in range(0, a.shape[1], each):
        part, other = a[:, at : at + each], b[at : at + each]
        turn = at // tile % teams
        team[turn] += part @ other
        np.minimum(low[turn], team[turn], out=low[turn])
        np.maximum(high[turn], team[turn], out=high[turn])
        sizes = (np.where(x, np.maximum(np.abs(x), tiny), 0) for x in (part, other))
        np.maximum(most, np.matmul(*sizes), out=most)
    return np.asarray(runs * (high - low).max(axis=0) + most)
