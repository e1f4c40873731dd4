"""wmma: matrices that a warp loads, multiplies and stores as fragments, and Volta's mma.m8n8k4.

PTX leaves open which lane holds which element. Here a fragment is those of `mma` one behind the
other, as on GPUs since Turing: of A in pieces of 16 rows, of B in pieces of 8 columns, of the
accumulators in pieces of 16 rows and 8 columns. Lane 4 * g + t holds row g (of B: column g) and a
few consecutive elements of each piece of 8. A product wider than high is that of the transposes:
B takes A's place, and accumulators lie along columns. Fragments of A and B in f16 have 16 elements
whatever the shape; where a lane has fewer, they repeat, and the first ones are multiplied.

Sums of floats are those of the instructions that ptxas makes of it for an H200: see `_float_sums`.
Those of mma.m8n8k4 are exact and rounded once, which is no GPU's way.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gen.emulator.isa.ops import Value
from gen.emulator.isa.rounding import one_nan
from gen.emulator.ptx.module import Instruction
from gen.emulator.warp.chunk import WarpChunk
from gen.emulator.warp.double import multiply_add_f64
from gen.emulator.warp.masks import WARP, Mask
from gen.emulator.warp.mma import OPERANDS, check_whole_warps, operand_of, packed, unpacked
from gen.emulator.warp.tensor_core import TO_F16, TO_F32, Array, Factor, Sums, multiply_add

_SHAPE = re.compile(r"\.m(\d+)n(\d+)k(\d+)\.")


@dataclass(frozen=True)
class Fragment:
    """Where the registers of a fragment lie in its matrix.

    Register i holds `elements` of them from (start[0] + g, start[1] + elements * t), along the
    matrix's rows, of B along its columns; start = starts[i].
    """

    elements: int
    starts: tuple[tuple[int, int], ...]


@functools.cache
def fragment(which: str, m: int, n: int, k: int, kind: str) -> Fragment:
    """The fragment of matrix a, b, c or d."""
    first = "b" if is_transposed(m, n) else "a"
    if which in "cd":
        m, n = max(m, n), min(m, n)
        rows = [(at, piece) for at in range(0, m, 16) for piece in range(at, min(at + 16, m), 8)]
        starts = [
            (row, column)
            for at in range(0, m, 16) for column in range(0, n, 8)
            for outer, row in rows if outer == at
        ]  # fmt: skip
        if kind == "f16":
            return Fragment(2, tuple(starts))
        return Fragment(2, tuple(starts for starts in starts for _ in range(2)))
    elements = OPERANDS[kind][0]
    step, lines = 16 if which == first else 8, m if which == "a" else n
    starts = [
        (line, inner)
        for at in range(0, lines, step) for inner in range(0, k, 4 * elements)
        for line in range(at, min(at + step, lines), 8)
    ]  # fmt: skip
    return Fragment(elements, tuple(starts) * (8 // len(starts) if kind == "f16" else 1))


def is_transposed(m: int, n: int) -> bool:
    """Whether a product is computed as that of the transposed matrices."""
    return m < n


def size_of(name: str) -> tuple[int, int, int]:
    """M, N and K of an instruction."""
    match = _SHAPE.search(name)
    assert match is not None
    return int(match[1]), int(match[2]), int(match[3])


def wmma(
    chunk: WarpChunk, m: Mask | None, item: Instruction,
    a: Sequence[Value], b: Sequence[Value], c: Sequence[Value],
) -> list[Value]:  # fmt: skip
    """wmma.mma: A * B + C."""
    check_whole_warps(chunk, m, item)
    size = size_of(item.name)
    kinds = re.findall(r"\.([a-z]+\d+)(?=\.|$)", item.name.partition(f"k{size[2]}")[2])
    result, left, right, _ = kinds if len(kinds) == 4 else (kinds[0], "f16", "f16", kinds[1])
    rows = operand_of(_matrix(chunk, "a", size, left, a)[None], left)
    columns = operand_of(_matrix(chunk, "b", size, right, b).transpose(0, 2, 1), right)
    total = _sums(chunk, size, kinds[-1], c)
    if isinstance(rows, Factor):
        made = _float_sums(rows, columns, Sums(total[None]), result, left)
        return _registers(chunk, size, result, made.numbers[0])
    if result == "f64":
        sums = multiply_add_f64(rows[0], columns, total, item.name)
        return _registers(chunk, size, result, sums)
    product = (rows @ columns)[0]
    if "xor" in item.modifiers:  # bits that differ
        product = rows[0].sum(-1, keepdims=True) + columns.sum(-2, keepdims=True) - 2 * product
    if "satfinite" in item.modifiers:
        sums = np.clip(product + total, -(2**31), 2**31 - 1).astype(np.int32)
    else:
        sums = product.astype(np.int32) + total
    return _registers(chunk, size, result, sums)


def _float_sums(a: Factor, b: Factor, c: Sums, result: str, kind: str) -> Sums:
    """The instructions that ptxas makes of a product of floats for an H200.

    Of tf32 they are two of k4, one after the other. Sums are in f16 if C and D are; otherwise f16
    is widened before them, or narrowed to behind them.
    """
    if result == "f16" and c.numbers.dtype == np.float16:
        return multiply_add(a, b, c, TO_F16)
    sums, pairs = Sums(c.numbers.astype(np.float32, copy=False)), [(a, b)]
    if kind == "tf32":
        first = np.arange(8) < 4
        pairs = list(zip(a.halves(first), b.halves(first), strict=True))
    for left, right in pairs:
        sums = multiply_add(left, right, sums, TO_F32)
    return Sums(one_nan(sums.numbers.astype(np.float16))) if result == "f16" else sums


def _matrix(
    chunk: WarpChunk, which: str, size: tuple[int, int, int], kind: str, values: Sequence[Value]
) -> Array:
    """A as (warp, row, k) or B as (warp, column, k), as numbers that numpy can multiply."""
    m, n, k = size
    form, numbers = fragment(which, *size, kind), OPERANDS[kind][1]
    parts = [packed(chunk, value) for value in values]
    words = np.empty((len(parts[0]), m if which == "a" else n, k // form.elements), parts[0].dtype)
    held = dict(zip(reversed(form.starts), reversed(parts), strict=True))  # repeated: the first
    for (line, inner), part in held.items():
        at = inner // form.elements
        words[:, line : line + 8, at : at + 4] = part.reshape(-1, 8, 4)
    return numbers(words)


def _sums(
    chunk: WarpChunk, size: tuple[int, int, int], kind: str, values: Sequence[Value]
) -> Array:
    """The accumulators as (warp, row, column)."""
    m, n, _ = size
    form = fragment("c", *size, kind)
    parts = [np.ascontiguousarray(packed(chunk, value)) for value in values]
    dtype = np.float16 if kind == "f16" else parts[0].dtype
    whole = np.empty((len(parts[0]), max(m, n), min(m, n)), dtype)
    for at, ((row, column), part) in enumerate(zip(form.starts, parts, strict=True)):
        piece = whole[:, row : row + 8, column : column + 8]
        if kind == "f16":
            piece[:] = part.view(np.float16).reshape(-1, 8, 8)
        else:
            piece[:, :, at % 2 :: 2] = part.reshape(-1, 8, 4)
    return whole.transpose(0, 2, 1) if is_transposed(m, n) else whole


def _registers(
    chunk: WarpChunk, size: tuple[int, int, int], kind: str, sums: Array
) -> list[Value]:  # fmt: skip
    """The inverse of `_sums`."""
    if is_transposed(*size[:2]):
        sums = sums.transpose(0, 2, 1)
    result = []
    for at, (row, column) in enumerate(fragment("d", *size, kind).starts):
        tile = sums[:, row : row + 8, column : column + 8]
        if kind == "f16":
            lanes = np.ascontiguousarray(tile).view(np.int32)
        else:
            lanes = np.ascontiguousarray(tile[:, :, at % 2 :: 2])
        result.append(unpacked(chunk, lanes.reshape(-1, WARP)))
    return result


# -- mma.m8n8k4 of f16: four products a warp, by lanes 4q to 4q + 3 and those 16 behind -----------


def quad_mma(
    chunk: WarpChunk, m: Mask | None, item: Instruction,
    a: Sequence[Value], b: Sequence[Value], c: Sequence[Value],
) -> list[Value]:  # fmt: skip
    """mma.m8n8k4 with f16 operands: a quad of 8 lanes multiplies 8 x 4 by 4 x 8."""
    check_whole_warps(chunk, m, item)
    layouts, kinds = item.modifiers[3:5], item.modifiers[5:9]
    left = _halves(chunk, a, layouts[0] == "row")
    right = _halves(chunk, b, layouts[1] == "col").transpose(0, 1, 3, 2)
    product = left @ right
    rows, columns = _quad_sums(kinds[3])
    parts = np.stack([packed(chunk, value) for value in c], axis=-1)
    values = parts.view(np.float16) if kinds[3] == "f16" else parts
    total = np.empty(product.shape)
    total[:, :, rows, columns] = _quads(values)
    sums = (product + total).astype(np.float16 if kinds[0] == "f16" else np.float32)
    rows, columns = _quad_sums(kinds[0])
    lanes = _from_quads(np.ascontiguousarray(sums[:, :, rows, columns]))
    if kinds[0] == "f16":
        lanes = np.ascontiguousarray(lanes).view(np.int32)
    return [unpacked(chunk, np.ascontiguousarray(lanes[..., i])) for i in range(lanes.shape[-1])]


def _quads(lanes: Array) -> Array:
    """(warp, lane, element) as (warp, quad, lane of 8, element)."""
    split = lanes.reshape(len(lanes), 2, 4, 4, -1)
    return split.transpose(0, 2, 1, 3, 4).reshape(len(lanes), 4, 8, -1)


def _from_quads(quads: Array) -> Array:
    """The inverse of `_quads`."""
    split = quads.reshape(len(quads), 4, 2, 4, -1)
    return split.transpose(0, 2, 1, 3, 4).reshape(len(quads), WARP, -1)


def _halves(chunk: WarpChunk, values: Sequence[Value], own_line: bool) -> Array:
    """A as (warp, quad, row, k) or B as (warp, quad, column, k), in float64.

    A lane holds its line of 4 along K (a row of A, a column of B), or 4 lines of its k.
    """
    words = np.stack([packed(chunk, value) for value in values], axis=-1)
    quads = _quads(words.view(np.float16)).astype(np.float64)
    if own_line:
        return quads
    split = quads.reshape(len(quads), 4, 2, 4, 4)  # half of the quad, k, line in the half
    return split.transpose(0, 1, 2, 4, 3).reshape(len(quads), 4, 8, 4)


def _quad_sums(kind: str) -> tuple[Any, Any]:
    """Rows and columns of the 8 accumulators of each of the 8 lanes."""
    lane, i = np.arange(8)[:, None], np.arange(8)[None, :]
    if kind == "f16":
        return np.broadcast_to(lane, (8, 8)), np.broadcast_to(i, (8, 8))
    rows = (lane & 1) + (i & 2) + (lane & 4)
    return rows, (i & 4) + (lane & 2) + (i & 1)
