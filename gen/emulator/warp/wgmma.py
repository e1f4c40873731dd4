"""wgmma.mma_async: which elements the lanes of a warpgroup hold, where operands lie, and the sums.

A warpgroup, four warps in a row, multiplies 64 rows of A by N columns of B. B, and A unless
registers hold it, lie in shared memory as a 64-bit *descriptor* says, in lines of 16 bytes: two
along K for each row (K-major), or one for every eight rows for each step along K (MN-major).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gen.emulator.isa.classes import WARPGROUP
from gen.emulator.isa.ops import Value
from gen.emulator.ptx.module import Instruction
from gen.emulator.warp.chunk import WarpChunk
from gen.emulator.warp.clusters import RANK_SHIFT, Clusters
from gen.emulator.warp.masks import WARP, Bits, Mask, lanes_of
from gen.emulator.warp.mma import FP8, OPERANDS, packed, unpacked
from gen.emulator.warp.shuffles import all_lanes, to_warps
from gen.emulator.warp.tensor_core import (
    FP8_WGMMA,
    FP8_WGMMA_F16,
    SMALLEST,
    TO_F16,
    TO_F32,
    Array,
    Factor,
    Rule,
    Span,
    Sums,
    multiply_add,
)

ROWS = 64
LINE = 16  # bytes that lie together, whatever the layout
Numbers = npt.NDArray[np.int64]

_KINDS = {  # K, and the types of results, by the types of A and B
    ("f16", "f16"): (16, ("f16", "f32")),
    ("bf16", "bf16"): (16, ("f32",)),
    ("tf32", "tf32"): (8, ("f32",)),
    **{(a, b): (32, ("f16", "f32")) for a in FP8 for b in FP8},
    **{(a, b): (32, ("s32",)) for a in ("s8", "u8") for b in ("s8", "u8")},
    ("b1", "b1"): (256, ("s32",)),
}  # fmt: skip
_NAME = re.compile(
    r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k(\d+)\.(f16|f32|s32)\.(\w+)\.(\w+)"
    r"(?P<more>\.satfinite|\.and\.popc)?$"
)


@dataclass(frozen=True)
class Form:
    """The size and the types of a wgmma."""

    n: int
    k: int
    d: str
    a: str
    b: str
    saturate: bool  # clamp sums to int32 instead of wrapping around

    @property
    def results(self) -> int:
        """Registers of D in each lane."""
        return self.n // (4 if self.d == "f16" else 2)

    @property
    def transposes(self) -> bool:
        """Whether operands in shared memory may be MN-major."""
        return self.a in ("f16", "bf16")

    @property
    def rule(self) -> Rule:
        """How floats are summed."""
        if self.a in FP8:
            return FP8_WGMMA if self.d == "f32" else FP8_WGMMA_F16
        return TO_F32 if self.d == "f32" else TO_F16


@functools.cache
def form_of(name: str) -> Form | None:
    """What a spelling means; None if there is no such instruction."""
    match = _NAME.match(name)
    if match is None or (match[4], match[5]) not in _KINDS:
        return None
    n, (k, results) = int(match[1]), _KINDS[match[4], match[5]]
    integers = match[3] == "s32"
    columns = {8, 24, *range(16, 257, 16)} if integers else range(8, 257, 8)
    more = {"b1": ".and.popc"}.get(match[4], match["more"] if integers else None)
    if n not in columns or int(match[2]) != k or match[3] not in results or match["more"] != more:
        return None
    return Form(n, k, match[3], match[4], match[5], more == ".satfinite")


# -- operands in shared memory -------------------------------------------------------------


class Descriptor(NamedTuple):
    """Of a matrix in shared memory; all but `swizzle` in bytes of shared memory."""

    start: int
    leading: int
    stride: int
    base: int  # of the swizzle's pattern: 0 where that begins at a multiple of its size
    swizzle: int  # 0, 32, 64 or 128: the bytes of a row within which lines are exchanged


def descriptor(word: int) -> Descriptor:
    """The fields of 64 bits."""
    start, leading, stride = (((word >> at) & 0x3FFF) << 4 for at in (0, 16, 32))
    return Descriptor(start, leading, stride, word >> 49 & 7, (0, 128, 64, 32)[word >> 62 & 3])


def lines(where: Descriptor, rows: int, k: int, mn_major: bool) -> Numbers:
    """The offset of each line in shared memory.

    K-major: (rows, 2), the lines of a row's K elements. MN-major: (k, rows / 8), of 2 bytes each.
    """
    return where.start + _relative(where._replace(start=0), where.start % 1024, rows, k, mn_major)


@functools.lru_cache(maxsize=256)
def _relative(where: Descriptor, phase: int, rows: int, k: int, mn_major: bool) -> Numbers:
    """The same from the start on, which is at `phase` of the swizzle's pattern."""
    width = max(where.swizzle, LINE)  # bytes of a row of an 8-row piece
    across = width // LINE
    if mn_major:
        inner, outer = np.arange(rows // 8)[None, :], np.arange(k)[:, None]
        leading, stride = where.leading, where.stride
        if not where.swizzle:
            leading, stride = stride, leading
        plain = inner % across * LINE + inner // across * leading
        plain = plain + outer % 8 * width + outer // 8 * stride
    else:
        inner, outer = np.arange(2)[None, :], np.arange(rows)[:, None]
        step = LINE if where.swizzle else where.leading
        plain = inner * step + outer % 8 * width + outer // 8 * where.stride
    at = plain + phase
    exchanged: Numbers = at ^ (at >> 3 & (where.swizzle - LINE if where.swizzle else 0))
    return exchanged - phase


def spoilt_by_rank(
    clusters: Clusters, blocks: Numbers, groups: Numbers, words: Array, offsets: Numbers,
    outside: Bits,
) -> Bits:  # fmt: skip
    """Of which warpgroups' descriptors the leading offset has the block's rank in it.

    That comes of a start address that is not cut to 18 bits: the descriptor has these more than
    that of block 0 of the cluster. What does not depend on the leading offset is not spoilt.
    offsets: those of the lines, (warpgroups, ...). outside: whose lines are out of bounds: where
    block 0 does not run, that is the sign.
    """
    found = np.zeros(len(words), np.bool_)
    ranks = clusters.ranks[blocks]
    if not ranks.any() or (len(words) > 1 and (words >> 16 == words[0] >> 16).all()):
        return found
    at = {pair: i for i, pair in enumerate(zip(blocks.tolist(), groups.tolist(), strict=True))}
    for i in np.flatnonzero(ranks):
        word, extra = int(words[i]), int(ranks[i]) << RANK_SHIFT - 4
        first = at.get((int(clusters.peers[0, blocks[i]]), int(groups[i])))
        if first is None:
            found[i] = outside[i] and word & extra == extra
        elif int(words[first]) in (word & ~extra, word - extra):
            starts = [(int(words[k]) & 0x3FFF) * LINE for k in (i, first)]
            found[i] = (offsets[i] - starts[0] != offsets[first] - starts[1]).any()
    return found


def elements(found: Array, form: Form, kind: str, mn_major: bool) -> Array:
    """Lines (groups, outer, inner) of 16 bytes as numbers: (groups, rows, k)."""
    raw = np.ascontiguousarray(found).view(np.int32).reshape(*found.shape[:2], -1)
    numbers = OPERANDS[kind][1](raw)
    return numbers.transpose(0, 2, 1) if mn_major else numbers


# -- registers -----------------------------------------------------------------------------


def left_from_registers(chunk: WarpChunk, form: Form, values: Sequence[Value], at: Any) -> Array:
    """A's fragments as numbers, (groups, 64, k), of the warps `at`."""
    each, numbers = OPERANDS[form.a]
    parts = np.stack([packed(chunk, value)[at] for value in values])
    # (step along K, half of 16 rows, group, warp, row, place)
    raw = parts.reshape(2, 2, -1, WARPGROUP, 8, 4).transpose(2, 3, 1, 4, 0, 5)
    return numbers(np.ascontiguousarray(raw).reshape(-1, ROWS, form.k // each))


def sums_from_registers(chunk: WarpChunk, form: Form, values: Sequence[Value], at: Any) -> Array:
    """D's fragments as matrices, (groups, 64, n), of the warps `at`."""
    parts = np.stack([packed(chunk, value)[at] for value in values])
    if form.d == "f16":
        halves = np.ascontiguousarray(parts).view(np.float16)
        split = halves.reshape(form.n // 8, 2, -1, WARPGROUP, 8, 4, 2)
    else:
        split = parts.reshape(form.n // 8, 2, 2, -1, WARPGROUP, 8, 4).transpose(0, 1, 3, 4, 5, 6, 2)
    matrices = split.transpose(2, 3, 1, 4, 0, 5, 6)
    return np.ascontiguousarray(matrices).reshape(-1, ROWS, form.n)


def registers_of(chunk: WarpChunk, form: Form, sums: Array, at: Any) -> list[Value]:
    """The inverse of `sums_from_registers`; other warps' registers are 0."""
    split = sums.reshape(-1, WARPGROUP, 2, 8, form.n // 8, 4, 2).transpose(4, 2, 0, 1, 3, 5, 6)
    warps = chunk.lanes // chunk.threads * -(-chunk.threads // WARP)
    whole = np.zeros((form.n // 4, warps, 8, 8), sums.dtype)
    whole[:, at] = split.reshape(form.n // 4, -1, 8, 8)
    if form.d == "f16":
        halves = whole.view(np.int32).reshape(form.n // 4, -1, WARP)
        return [unpacked(chunk, half) for half in halves]
    pairs = whole.reshape(form.n // 4, -1, 2)
    return [unpacked(chunk, pair[:, side]) for pair in pairs for side in (0, 1)]


# -- sums ----------------------------------------------------------------------------------


def multiply(form: Form, left: Array, right: Array, total: Array, known: Span | None) -> Sums:
    """A (groups, 64, k) times B (groups, n, k), transposed, plus C (groups, 64, n)."""
    if form.d != "s32":
        a = Factor(left.astype(np.float32)[None], SMALLEST[form.a])
        by_k = right.astype(np.float32).transpose(0, 2, 1)
        b = Factor(np.ascontiguousarray(by_k), SMALLEST[form.b])
        sums = multiply_add(a, b, Sums(total[None], known), form.rule)
        return Sums(sums.numbers[0], sums.known)
    product = left.astype(np.float64) @ right.astype(np.float64).transpose(0, 2, 1)
    if form.saturate:  # exact in float64
        return Sums(np.clip(product + total, -(2**31), 2**31 - 1).astype(np.int32))
    return Sums(product.astype(np.int64).astype(np.int32) + total)


def warps_of(chunk: WarpChunk, m: Mask | None) -> Bits:
    """Which warps run: (blocks, warps)."""
    return np.asarray(to_warps(chunk, np.True_ if m is None else m.bits).any(axis=-1))


def check_whole_groups(chunk: WarpChunk, m: Mask | None, item: Instruction) -> Bits:
    """Report warpgroups of which some warps do not take part; those that run: (blocks, groups)."""
    running = warps_of(chunk, m)
    blocks, warps = running.shape
    groups = -(-warps // WARPGROUP)
    whole = np.zeros((blocks, groups * WARPGROUP), np.bool_)
    whole[:, :warps] = running
    count = whole.reshape(blocks, groups, WARPGROUP).sum(axis=-1)
    partial = (count > 0) & (count < WARPGROUP)
    if partial.any():
        bad = running & np.repeat(partial, WARPGROUP, axis=1)[:, :warps]
        block, threads, _ = lanes_of(all_lanes(chunk, bad), m, chunk.shape, chunk.origin)
        message = f"wgmma.mma_async by {int(count[partial][0])} of the 4 warps of a warpgroup"
        chunk.launch.findings.add("synccheck", item, message, block, threads)
    return np.asarray(count == WARPGROUP)
