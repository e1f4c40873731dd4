"""Integers and bits: what the rows of `rows_integer` compute with."""

from __future__ import annotations

from typing import Any

import numpy as np

from gen.emulator.isa.ops import Value, select


def shift(count: Value, dtype: Any) -> Value:
    """A u32 shift count in the type of the shifted value; numpy shifts too far to 0 or the sign."""
    wide = count.astype(np.uint32)
    return np.minimum(wide, np.uint32(64)).astype(dtype)


def divide(a: Value, b: Value) -> Value:
    """Integer division toward zero; by zero it gives all ones, as GPUs do."""
    quotient = (a - np.fmod(a, b)) // b
    return select(b == 0, ~a.dtype.type(0), quotient)


def remainder(a: Value, b: Value) -> Value:
    """The remainder of `divide`, with the dividend's sign; by zero it gives the dividend."""
    return select(b == 0, a, np.fmod(a, b))


def mul_hi(a: Value, b: Value) -> Value:
    """The upper half of the double-width product, of 64-bit values by 32-bit limbs."""
    bits = a.dtype.itemsize * 8
    if bits < 64:
        wide = np.dtype(f"{a.dtype.kind}{bits // 4}")
        return (a.astype(wide) * b.astype(wide) >> wide.type(bits)).astype(a.dtype)
    u, v = a.astype(np.uint64), b.astype(np.uint64)
    s, m = np.uint64(32), np.uint64(0xFFFFFFFF)
    middle = (u >> s) * (v & m) + ((u & m) * (v & m) >> s)
    cross = (u & m) * (v >> s) + (middle & m)
    high = (u >> s) * (v >> s) + (middle >> s) + (cross >> s)
    if a.dtype.kind == "i":
        zero = np.uint64(0)
        high = high - np.where(a < 0, v, zero) - np.where(b < 0, u, zero)
    return high.astype(a.dtype)


def bfe(a: Value, position: Value, length: Value) -> Value:
    """bfe: `length` bits of `a` from bit `position`, sign-extended for signed types."""
    bits = a.dtype.itemsize * 8
    pos = np.minimum(position & np.uint32(255), np.uint32(bits)).astype(np.int64)
    count = np.minimum(length & np.uint32(255), np.uint32(bits)).astype(np.int64)
    wide = a.astype(np.int64)
    if a.dtype.kind == "u":
        mask = np.where(count < 64, (np.int64(1) << count) - np.int64(1), np.int64(-1))
        field = (wide.astype(np.uint64) >> pos.astype(np.uint64)) & mask.astype(np.uint64)
        return field.astype(a.dtype)
    kept = np.minimum(count, bits - pos)  # a field past the top repeats the sign
    left = np.int64(64) - kept - pos
    field = (wide << left) >> (np.int64(64) - kept)
    sign = wide >> np.int64(63)
    return np.where(count == 0, 0, np.where(kept <= 0, sign, field)).astype(a.dtype)[()]


def bfi(a: Value, b: Value, position: Value, length: Value) -> Value:
    """bfi: `b` with `length` bits from bit `position` replaced by the low bits of `a`."""
    bits = a.dtype.itemsize * 8
    kind = np.dtype(f"u{a.dtype.itemsize}")
    pos = shift(position & np.uint32(255), kind)
    count = shift(length & np.uint32(255), kind)
    ones = select(count < kind.type(bits), (kind.type(1) << count) - kind.type(1), ~kind.type(0))
    mask = ones << pos
    return ((b.view(kind) & ~mask) | (a.view(kind) << pos & mask)).view(a.dtype)


def prmt(a: Value, b: Value, control: Value) -> Value:
    """prmt.b32: each nibble of `control` picks a byte of b:a, or its sign spread over a byte."""
    both = a.view(np.uint32).astype(np.uint64) | b.view(np.uint32).astype(np.uint64) << np.uint64(
        32
    )
    picks = control.view(np.uint32)
    result: Value = np.uint32(0)
    for byte in range(4):
        nibble = picks >> np.uint32(4 * byte)
        index = ((nibble & np.uint32(7)) * np.uint32(8)).astype(np.uint64)
        picked = (both >> index).astype(np.uint8)
        sign = (picked.view(np.int8) >> np.int8(7)).view(np.uint8)
        picked = select((nibble & np.uint32(8)) != 0, sign, picked)
        result = result | picked.astype(np.uint32) << np.uint32(8 * byte)
    return result.view(np.int32)


def lop3(a: Value, b: Value, c: Value, table: Value) -> Value:
    """lop3.b32: the three-input boolean function whose truth table is the immediate `table`."""
    result: Value = np.int32(0)
    for row in range(8):
        if int(table) >> row & 1:
            result = result | ((a if row & 4 else ~a) & (b if row & 2 else ~b)
                               & (c if row & 1 else ~c))  # fmt: skip
    return result


def funnel(low: Value, high: Value, count: Value, right: bool, wrap: bool) -> Value:
    """shf: shift the 64-bit value high:low and keep 32 bits of it."""
    both = low.view(np.uint32).astype(np.uint64) | high.view(np.uint32).astype(
        np.uint64
    ) << np.uint64(32)
    n = count.view(np.uint32)
    n = (n & np.uint32(31) if wrap else np.minimum(n, np.uint32(32))).astype(np.uint64)
    kept = both >> n if right else both << n >> np.uint64(32)
    return kept.astype(np.uint32).view(np.int32)


def popc(a: Value) -> Value:
    """Number of one bits, as int32."""
    wide = a.astype(np.dtype(f"u{a.dtype.itemsize}")).astype(np.uint64)
    count = wide - (wide >> np.uint64(1) & np.uint64(0x5555555555555555))
    three = np.uint64(0x3333333333333333)
    count = (count & three) + (count >> np.uint64(2) & three)
    count = (count + (count >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (count * np.uint64(0x0101010101010101) >> np.uint64(56)).astype(np.int32)


def clz(a: Value) -> Value:
    """Number of leading zero bits, as int32."""
    bits = a.dtype.itemsize * 8
    filled = a.view(np.dtype(f"u{a.dtype.itemsize}"))
    for step in (1, 2, 4, 8, 16, 32)[: bits.bit_length() - 1]:
        filled = filled | filled >> filled.dtype.type(step)
    return np.int32(bits) - popc(filled)


def brev(a: Value) -> Value:
    """Bits in reverse order."""
    value = a.view(np.dtype(f"u{a.dtype.itemsize}"))
    kind = value.dtype.type
    bits, result = a.dtype.itemsize * 8, value & value.dtype.type(0)
    for at in range(bits):
        result = result | (value >> kind(at) & kind(1)) << kind(bits - 1 - at)
    return result.view(a.dtype)


def _bytes(a: Value, dtype: Any) -> list[Value]:
    return [(a >> a.dtype.type(8 * i)).astype(dtype).astype(np.int32) for i in range(4)]


def dp4a(a: Value, b: Value, c: Value, a_type: Any, b_type: Any) -> Value:
    """c plus the dot product of the four bytes of `a` and `b`."""
    for x, y in zip(_bytes(a, a_type), _bytes(b, b_type), strict=True):
        c = c + x * y
    return c


def dp2a(a: Value, b: Value, c: Value, name: str, a_type: Any, b_type: Any) -> Value:
    """c plus the dot product of the two halves of `a` and two bytes of `b`."""
    halves = np.int16 if np.dtype(a_type).kind == "i" else np.uint16
    pair = _bytes(b, b_type)[2 * (".hi." in name) :][:2]
    for at, y in enumerate(pair):
        c = c + (a >> a.dtype.type(16 * at)).astype(halves).astype(np.int32) * y
    return c


def abs_differences(a: Value, b: Value, c: Value, pieces: int, added: bool) -> Value:
    """vabsdiff2 and vabsdiff4 of u32: how far pieces of `a` and `b` differ, or c and their sum."""
    width = np.uint32(32 // pieces)
    ones = np.uint32((1 << int(width)) - 1)
    found, total = np.uint32(0), c
    for at in range(pieces):
        x, y = (word >> width * np.uint32(at) & ones for word in (a, b))
        apart = np.maximum(x, y) - np.minimum(x, y)
        found, total = found | apart << width * np.uint32(at), total + apart
    return total if added else found


def fns(mask: Value, base: Value, offset: Value) -> Value:
    """fns: the position of the set bit so many from `base`, all ones if there is none."""
    shape = np.broadcast_shapes(np.shape(mask), np.shape(base), np.shape(offset))
    step = np.where(offset < 0, -1, 1)
    left = np.maximum(np.abs(offset.astype(np.int64)), 1)
    found = np.full(shape, 0xFFFFFFFF, np.int64)
    for distance in range(32):
        at = base.astype(np.int64) + distance * step
        inside = (at >= 0) & (at < 32) & ((offset != 0) | (distance == 0))
        bit = inside & (mask.astype(np.int64) >> np.clip(at, 0, 31) & 1 != 0)
        left = left - bit
        found = np.where(bit & (left == 0), at, found)
    return found.astype(np.uint32)[()]


def _unsigned(*values: Value) -> list[Value]:
    return [value.view(np.dtype(f"u{value.dtype.itemsize}")) for value in values]


def add_carry(a: Value, b: Value, carry: Value = np.False_) -> tuple[Value, Value]:
    """a + b + carry, and whether it carries out."""
    x, y = _unsigned(a, b)
    partial = x + y
    total = partial + carry.astype(x.dtype)
    return total.view(a.dtype), (partial < x) | (total < partial)


def sub_carry(a: Value, b: Value, carry: Value = np.True_) -> tuple[Value, Value]:
    """a + ~b + carry, and whether it carries out: the flag of a subtraction means no borrow.

    The manual speaks of a borrow, but code that NVRTC emits for 128-bit quotients reads the flag of
    `sub.cc` with `addc`, and relies on this.
    """
    return add_carry(a, ~b, carry)


def low24(a: Value) -> Value:
    """The lower 24 bits of a 32-bit integer, sign-extended for signed types."""
    return a << a.dtype.type(8) >> a.dtype.type(8)


def bfind(a: Value) -> Value:
    """The position of the highest bit that is not the sign's, all ones if there is none."""
    bits = a.dtype.itemsize * 8
    positive = np.where(a < 0, ~a, a).astype(a.dtype)[()] if a.dtype.kind == "i" else a
    return (np.int32(bits - 1) - clz(positive)).view(np.uint32)


def shift_amount(a: Value) -> Value:
    """How far left that bit would have to be shifted to become the highest."""
    position, top = bfind(a), np.uint32(a.dtype.itemsize * 8 - 1)
    return np.where(position <= top, top - position, position)[()]


def _bit_count(count: Value, wrap: bool) -> Value:
    """A u32 as a number of bits from 0 to 32: modulo 32, or clamped."""
    return (count & np.uint32(31) if wrap else np.minimum(count, np.uint32(32))).astype(np.uint64)


def bit_mask(position: Value, length: Value, wrap: bool) -> Value:
    """bmsk: `length` one bits from bit `position` on."""
    one = np.uint64(1)
    ones = (one << _bit_count(length, wrap)) - one
    return (ones << _bit_count(position, wrap)).astype(np.uint32).view(np.int32)


def extend(a: Value, length: Value, wrap: bool) -> Value:
    """szext: the lower `length` bits of `a`, sign-extended for signed types."""
    count = _bit_count(length, wrap)
    low = a.view(np.uint32) & ((np.uint64(1) << count) - np.uint64(1)).astype(np.uint32)
    if a.dtype.kind == "u":
        return low
    unused = np.int64(64) - count.astype(np.int64)
    return ((low.astype(np.int64) << unused) >> unused).astype(a.dtype)


_PRMT = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543), "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333), "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210), "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}  # fmt: skip


def prmt_control(c: Value, name: str) -> Value:
    """The bytes that a mode of prmt picks, as the control word of the general form."""
    return np.array(_PRMT[name.rpartition(".")[2]], np.int32)[c & 3]
