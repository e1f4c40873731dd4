"""Tensor-core instructions: the fragments of all warps as small matrices, multiplied at once.

Lane 4 * g + t of a warp holds row g and a few consecutive columns of each 8-row piece of a matrix.
In memory order that is the matrix itself, so that packing a fragment is mostly a reinterpretation.

Products are summed in float64, together with the accumulator, and rounded once. Tensor cores
have their own order and truncate, so float results may differ from a GPU's in the last bits; sums
that are exact, of integers for example, do not.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gen.emulator.isa.ops import Value
from gen.emulator.isa.rounding import from_bf16, from_fp8
from gen.emulator.ptx.module import Instruction
from gen.emulator.warp.chunk import WarpChunk
from gen.emulator.warp.masks import WARP, Mask, lanes_of
from gen.emulator.warp.shuffles import from_warps, to_warps

Array = npt.NDArray[Any]
KEPT_FRAGMENTS = 24  # operands converted to float64 that are kept: each meets several others


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
        r"(?:\.satfinite|\.(?:xor|and)\.popc)?$",
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
    left = _operand(chunk, shape, shape.a, a, shape.pieces)
    right = _operand(chunk, shape, shape.b, b, 0)
    product = left @ right
    if "xor" in item.modifiers:  # bits that differ
        product = left.sum(2, keepdims=True) + right.sum(1, keepdims=True) - 2 * product
    product = product.reshape(-1, shape.pieces, 64).transpose(1, 0, 2)
    if shape.d == "f16":
        sums = product + _stack(chunk, c).view(np.float16)
        halves = sums.astype(np.float16).view(np.int32)
        return [unpacked(chunk, half) for half in halves]
    total = _accumulator(chunk, c)
    if shape.saturate:  # exact in float64
        result = np.clip(product + total, -(2**31), 2**31 - 1).astype(np.int32)
    elif shape.d == "s32":
        result = product.astype(np.int32) + total
    else:
        result = (product + total).astype(total.dtype, copy=False)
    pairs = result.reshape(shape.pieces, -1, 2)
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
    chunk: WarpChunk, shape: Shape, kind: str, registers: Sequence[Value], pieces: int
) -> Array:
    """A as (warp, row, k), or B (`pieces` 0) as (warp, k, column), in float64.

    The last few are kept, because each fragment of A meets several of B, and the other way round.
    """
    key = (kind, pieces, *map(id, registers))
    if key in chunk.fragments:
        kept: Array = chunk.fragments[key][1]
        return kept
    elements, numbers = OPERANDS[kind]
    steps = shape.k // (4 * elements)
    parts = [packed(chunk, register) for register in registers]
    raw = np.empty((len(parts[0]), pieces or 1, 8, steps, 4), parts[0].dtype)
    for at, register in enumerate(parts):
        raw[:, at % (pieces or 1), :, at // (pieces or 1)] = register.reshape(-1, 8, 4)
    matrix = numbers(raw.reshape(len(raw), -1, 4 * steps))
    matrix = (matrix if pieces else matrix.transpose(0, 2, 1)).astype(np.float64, order="C")
    if len(chunk.fragments) >= KEPT_FRAGMENTS:
        del chunk.fragments[next(iter(chunk.fragments))]
    chunk.fragments[key] = (registers, matrix)  # holding the registers keeps their ids theirs
    return matrix


def _accumulator(chunk: WarpChunk, registers: Sequence[Value]) -> Array:
    """C as (piece, warp, 8 rows of 8): what an earlier mma made its results from, if unchanged."""
    whole: Array | None = getattr(registers[0], "base", None)
    if whole is not None and whole.ndim == 3 and whole.shape == (
        len(registers) // 2, -(-chunk.threads // WARP) * (chunk.lanes // chunk.threads), 64
    ):  # fmt: skip
        start = whole.__array_interface__["data"][0]
        size = whole.itemsize
        for at, value in enumerate(registers):
            here = start + (at // 2 * whole[0].size + at % 2) * size
            if (
                value.base is not whole
                or value.shape != chunk.shape
                or value.strides[-1] != 2 * size
                or value.__array_interface__["data"][0] != here
            ):
                break
        else:
            return whole
    parts = _stack(chunk, registers)
    pieces = len(registers) // 2
    both = parts.reshape(pieces, 2, -1, WARP).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(both).reshape(pieces, -1, 64)


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
