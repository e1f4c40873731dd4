"""Tensor-core instructions: the fragments of all warps as small matrices, multiplied at once.

Lane 4 * g + t of a warp holds row g and a few consecutive columns of each 8-row piece of a matrix.
In memory order that is the matrix itself, so that packing a fragment is mostly a reinterpretation.

Floats narrower than f64 are summed as tensor cores do it: see `tensor_core`. Integers wrap around
or saturate. Sums of f64 are those of fused multiply-adds: see `double`.
"""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gen.emulator.isa.ops import Value
from gen.emulator.isa.rounding import from_bf16, from_fp8
from gen.emulator.ptx.module import Instruction
from gen.emulator.warp.chunk import WarpChunk
from gen.emulator.warp.double import multiply_add_f64
from gen.emulator.warp.masks import WARP, Mask, lanes_of
from gen.emulator.warp.shuffles import from_warps, to_warps
from gen.emulator.warp.tensor_core import (
    SMALLEST,
    TO_F16,
    TO_F32,
    Array,
    Factor,
    Sums,
    fp8_sums,
    multiply_add,
)

KEPT_FRAGMENTS = 24  # operands converted that are kept: each meets several others
FP8 = ("e4m3", "e5m2")


def _tf32(raw: Array) -> Array:
    """tf32 ignores the 13 bits of a float32's fraction that it lacks."""
    return (raw.view(np.int32) & np.int32(-1 << 13)).view(np.float32)


def _nibbles(signed: bool) -> Callable[[Array], Array]:
    """Four-bit integers, the lowest bits first."""

    def numbers(raw: Array) -> Array:
        halves = np.stack([raw.view(np.uint8) & 15, raw.view(np.uint8) >> 4], axis=-1)
        values = halves.reshape(*raw.shape[:-1], -1).view(np.int8)
        return (values ^ 8) - 8 if signed else values

    return numbers


def _bits(raw: Array) -> Array:
    """Single bits, the lowest first."""
    return np.unpackbits(raw.view(np.uint8), axis=-1, bitorder="little")


# Operand type -> (elements in a register, the registers' bits as numbers that numpy can multiply)
OPERANDS: dict[str, tuple[int, Callable[[Array], Array]]] = {
    "f16": (2, lambda raw: raw.view(np.float16)),
    "bf16": (2, lambda raw: from_bf16(raw.view(np.uint16))),
    "tf32": (1, _tf32),
    "s8": (4, lambda raw: raw.view(np.int8)),
    "u8": (4, lambda raw: raw.view(np.uint8)),
    "f64": (1, lambda raw: raw.view(np.float64)),
    "e4m3": (4, lambda raw: from_fp8(raw.view(np.uint8), "e4m3")),
    "e5m2": (4, lambda raw: from_fp8(raw.view(np.uint8), "e5m2")),
    "s4": (8, _nibbles(True)),
    "u4": (8, _nibbles(False)),
    "b1": (32, _bits),
}


@dataclass(frozen=True)
class Shape:
    """An mma's size and types; a matrix of `m` rows is `m // 8` pieces of 8 rows."""

    m: int
    k: int
    a: str
    b: str
    d: str
    saturate: bool  # clamp sums to int32 instead of wrapping around

    @property
    def pieces(self) -> int:
        return self.m // 8

    def registers(self, kind: str, pieces: int) -> int:
        """Of a fragment of A, or of B, which has one piece."""
        return pieces * self.k // (4 * OPERANDS[kind][0])


@functools.cache
def shape_of(name: str) -> Shape:
    """The shape that the spelling of an `mma` gives."""
    match = re.search(
        r"\.m(\d+)n8k(\d+)\.row\.col(?:\.satfinite)?\.(\w+)\.(\w+)\.(\w+)\.\w+"
        r"(?:\.satfinite|\.(?:xor|and)\.popc|\.r[nzmp])?$",
        name,
    )
    assert match is not None
    d, a, b = match.groups()[2:]
    return Shape(int(match[1]), int(match[2]), a, b, d, "satfinite" in name)


def mma(
    chunk: WarpChunk, m: Mask | None, item: Instruction,
    a: Sequence[Value], b: Sequence[Value], c: Sequence[Value],
) -> list[Value]:  # fmt: skip
    """mma.sync: A * B + C; operands and results are the registers of the fragments."""
    check_whole_warps(chunk, m, item)
    shape = shape_of(item.name)
    if len(a) != shape.registers(shape.a, shape.pieces) or len(b) != shape.registers(shape.b, 1):
        raise item.error("its fragments have other numbers of registers")
    # Whatever the registers of warps hold that do not run, it counts as zeros: so it does not keep
    # the sums of others from being exact.
    idle = None if m is None else m.idle_warps(chunk.shape)
    left = _operand(chunk, idle, shape, shape.a, a, shape.pieces)
    right = _operand(chunk, idle, shape, shape.b, b, 0)
    if isinstance(left, Factor) and isinstance(right, Factor):
        return _float_sums(chunk, idle, shape, left, right, c)
    if shape.d == "f64":
        return _pairs(chunk, multiply_add_f64(left, right, _accumulator(chunk, c), item.name))
    product = left @ right
    if "xor" in item.modifiers:  # bits that differ
        product = left.sum(-1, keepdims=True) + right.sum(-2, keepdims=True) - 2 * product
    total = _accumulator(chunk, c)
    if shape.saturate:  # exact in float64
        result = np.clip(product + total, -(2**31), 2**31 - 1).astype(np.int32)
    else:
        result = product.astype(np.int32) + total
    return _pairs(chunk, result)


def _float_sums(
    chunk: WarpChunk, idle: Array | None, shape: Shape, a: Factor, b: Factor, c: Sequence[Value]
) -> list[Value]:
    """The sums of tensor cores; what is known of them is kept for the next instruction."""
    half, spans = shape.d == "f16", chunk.spans
    total = _accumulator(chunk, c, half)
    known = spans.get(id(total))
    if not known and idle is not None:
        total = total.copy()
        total[:, idle] = 0
    add = fp8_sums if shape.a in FP8 else multiply_add
    sums = add(a, b, Sums(total, known and known[1]), TO_F16 if half else TO_F32)
    if sums.known:  # for as long as they live
        key = id(sums.numbers)
        spans[key] = weakref.ref(sums.numbers, lambda _: spans.pop(key, None)), sums.known
    if not half:
        return _pairs(chunk, sums.numbers)
    halves = sums.numbers.view(np.int32).reshape(shape.pieces, -1, WARP)
    return [unpacked(chunk, half) for half in halves]


def _pairs(chunk: WarpChunk, sums: Array) -> list[Value]:
    """The registers of D, of which each holds every other column."""
    pairs = sums.reshape(len(sums), -1, 2)
    return [unpacked(chunk, pair[:, side]) for pair in pairs for side in (0, 1)]


def packed(chunk: WarpChunk, value: Value) -> Array:
    """A register as (warps of all blocks, 32)."""
    _, tz, _, ty, _, _ = chunk.shape
    if value.shape == chunk.shape and tz == ty == 1 and chunk.threads % WARP == 0:
        return np.asarray(value).reshape(-1, WARP)
    return to_warps(chunk, value).reshape(-1, WARP)


def unpacked(chunk: WarpChunk, value: Array) -> Value:
    """The inverse of `packed`, of an array with one element for each lane."""
    _, tz, _, ty, _, _ = chunk.shape
    if tz == ty == 1 and chunk.threads % WARP == 0:
        return value.reshape(chunk.shape)
    blocks = chunk.lanes // chunk.threads
    return from_warps(chunk, value.reshape(blocks, -1, WARP))


def _stack(chunk: WarpChunk, registers: Sequence[Value]) -> Array:
    """Registers as (register, warp, lane)."""
    return np.stack([packed(chunk, register) for register in registers])


def _operand(
    chunk: WarpChunk,
    idle: Array | None,
    shape: Shape,
    kind: str,
    registers: Sequence[Value],
    pieces: int,
) -> Any:
    """A as (piece, warp, row, k), or B (`pieces` 0) as (warp, k, column).

    Floats that tensor cores sum in their own way are a `Factor`, all else is in float64. The last
    few are kept, because each fragment of A meets several of B, and the other way round.
    """
    key = (kind, pieces, id(idle), *map(id, registers))
    if key in chunk.fragments:
        return chunk.fragments[key][1]
    elements, numbers = OPERANDS[kind]
    steps = shape.k // (4 * elements)
    parts = [packed(chunk, register) for register in registers]
    raw = np.empty((pieces or 1, len(parts[0]), 8, steps, 4), parts[0].dtype)
    for at, register in enumerate(parts):
        raw[at % (pieces or 1), :, :, at // (pieces or 1)] = register.reshape(-1, 8, 4)
    if idle is not None:
        raw[:, idle] = 0
    matrix = numbers(raw.reshape(*raw.shape[:3], -1))
    operand = operand_of(matrix if pieces else matrix[0].transpose(0, 2, 1), kind)
    if len(chunk.fragments) >= KEPT_FRAGMENTS:
        del chunk.fragments[next(iter(chunk.fragments))]
    chunk.fragments[key] = (registers, operand, idle)  # holding these keeps their ids theirs
    return operand


def operand_of(matrix: Array, kind: str) -> Any:
    """A or B, for floats as a `Factor`: see `_operand`."""
    if kind not in SMALLEST:
        return matrix.astype(np.float64, order="C")
    wide = "f16" if kind in FP8 else kind  # as `fp8_sums` wants it
    return Factor(matrix.astype(np.float32, order="C"), SMALLEST[wide])


def _accumulator(chunk: WarpChunk, registers: Sequence[Value], half: bool = False) -> Array:
    """C as (piece, warp, row, column): what an earlier mma made its results from, if unchanged.

    `half`: a register has two neighbours of f16, otherwise one of them.
    """
    each = 1 if half else 2  # registers of a piece
    pieces, first = len(registers) // each, registers[0]
    warps = -(-chunk.threads // WARP) * (chunk.lanes // chunk.threads)
    dtype = np.float16 if half else first.dtype
    whole: Array | None = getattr(first, "base", None)
    if whole is not None and whole.shape == (pieces, warps, 8, 8) and whole.dtype == dtype:
        start, piece = whole.__array_interface__["data"][0], whole.strides[0]
        size = first.itemsize
        for at, value in enumerate(registers):
            here = start + at // each * piece + at % each * size
            if (
                value.base is not whole
                or value.shape != chunk.shape
                or value.strides[-1] != each * size
                or value.__array_interface__["data"][0] != here
            ):
                break
        else:
            return whole
    parts = _stack(chunk, registers)
    if half:
        return parts.view(np.float16).reshape(pieces, -1, 8, 8)
    both = parts.reshape(pieces, 2, -1, WARP).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(both).reshape(pieces, -1, 8, 8)


def matrices(chunk: WarpChunk, rows: Array, count: int, transposed: bool) -> list[Value]:
    """ldmatrix: what each lane gets of the matrices whose rows of 16 bytes the lanes name."""
    words = packed(chunk, rows)[:, : 8 * count]
    if transposed:
        halves = np.ascontiguousarray(words).view(np.int16).reshape(-1, count, 8, 8)
        loaded = np.ascontiguousarray(halves.transpose(1, 0, 3, 2)).view(np.int32)
    else:
        whole = np.ascontiguousarray(words).view(np.int32).reshape(-1, count, WARP)
        loaded = np.ascontiguousarray(whole.transpose(1, 0, 2))
    return [unpacked(chunk, loaded[at].reshape(-1, WARP)) for at in range(count)]


def rows_of(chunk: WarpChunk, registers: Sequence[Value], transposed: bool) -> Value:
    """stmatrix: the rows of 16 bytes that the lanes store; the inverse of `matrices`."""
    parts = _stack(chunk, registers)
    if transposed:
        halves = parts.view(np.int16).reshape(len(parts), -1, 8, 8)
        parts = np.ascontiguousarray(halves.transpose(0, 1, 3, 2)).view(np.int32)
    rows = np.zeros((parts.shape[1], 4, 8, 4), np.int32)  # lanes of absent matrices name nothing
    rows[:, : len(parts)] = parts.reshape(len(parts), -1, 8, 4).transpose(1, 0, 2, 3)
    return unpacked(chunk, rows.view(np.complex128).reshape(-1, WARP))


def movmatrix(chunk: WarpChunk, m: Mask | None, item: Instruction, a: Value) -> Value:
    """movmatrix.trans: an 8 x 8 matrix of 16-bit elements, transposed."""
    check_whole_warps(chunk, m, item)
    halves = np.ascontiguousarray(packed(chunk, a)).view(np.int16).reshape(-1, 8, 8)
    turned = np.ascontiguousarray(halves.transpose(0, 2, 1)).view(np.int32)
    return unpacked(chunk, turned.reshape(-1, WARP))


def check_whole_warps(chunk: WarpChunk, m: Mask | None, item: Instruction) -> None:
    """Report warps of which only a part executes an instruction that needs all 32 lanes."""
    if chunk.threads % WARP == 0 and (m is None or m.whole_warps(chunk.shape)):
        return
    bits = np.True_ if m is None else m.bits
    running = to_warps(chunk, bits)
    count = running.sum(axis=-1, keepdims=True)
    partial = np.broadcast_to((count > 0) & (count < WARP), running.shape)
    bad = from_warps(chunk, partial & running)
    if bad.any():
        block, threads, _ = lanes_of(bad, None, chunk.shape, chunk.origin)
        some = int(count[(count > 0) & (count < WARP)][0])
        message = f"{item.opcode}.sync.aligned executed by {some} of the 32 threads of a warp"
        chunk.launch.findings.add("synccheck", item, message, block, threads)
