"""What the rows of `isa.py` compute with: numpy functions that round and wrap as the GPU does.

Operands are numpy scalars or arrays, already in the type that the row gives them. bf16 travels as
uint16 bits, f16x2 and bf16x2 as int32 bits, because numpy has no such types.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Value = Any  # a typed numpy scalar or array; numpy's own stubs cannot say "either"
F64 = np.float64


def select(condition: Value, yes: Value, no: Value) -> Value:
    """`yes` where `condition` holds, else `no`; stays a scalar (or small) where it can."""
    if condition.ndim == 0:
        return yes if condition else no
    return np.where(condition, yes, no)


def fma_f32(a: Value, b: Value, c: Value) -> Value:
    """a * b + c in float64, rounded once to float32.

    The product is exact. The sum is rounded to 53 bits before it is rounded to 24, which differs
    from one rounding only where those 53 bits end exactly half-way between two floats and bits were
    lost below them: about once in 2**29 operations on random data, never on integers below 2**53.
    """
    product = a.astype(F64) * b.astype(F64)
    return (product + c).astype(np.float32)


def fma_f16(a: Value, b: Value, c: Value) -> Value:
    """a * b + c with one rounding: no float16 product and sum needs more than 53 bits."""
    return (a.astype(F64) * b.astype(F64) + c).astype(np.float16)


def _split(a: Value) -> tuple[Value, Value]:
    """Veltkamp: a == high + low, with at most 26 bits in each."""
    big = a * F64(134217729.0)
    high = big - (big - a)
    return high, a - high


def _two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    total = a + b
    rest = total - a
    return total, (a - (total - rest)) + (b - rest)


def fma_f64(a: Value, b: Value, c: Value) -> Value:
    """a * b + c, correctly rounded.

    Factors of at most 26 significant bits (integers, say) have an exact product, and then numpy's
    sum is the answer. Otherwise the product's error is computed exactly (Dekker), and all three
    parts are added with a round-to-odd middle step, so that the last addition rounds only once.
    Where that overflows (factors above 2**996) the naive result is kept; a product whose error
    is below the subnormal range can be off by one unit in the last place.
    """
    product = a * b
    (a1, a0), (b1, b0) = _split(a), _split(b)
    if not np.any(a0) and not np.any(b0):
        return product + c
    error = a0 * b0 - (((product - a1 * b1) - a0 * b1) - a1 * b0)
    t, t_low = _two_sum(c, error)
    v, v_low = _two_sum(product, t)
    z, rest = _two_sum(t_low, v_low)
    bits = np.asarray(z).view(np.int64)
    step = np.where((rest > 0) == (z > 0), 1, -1)
    odd = np.where((rest != 0) & (bits & 1 == 0), bits + step, bits).view(F64)
    result = v + odd
    naive = product + c
    return np.where(np.isfinite(result), result, naive)[()]


def minimum(a: Value, b: Value) -> Value:
    """min.f*: a number wins over NaN, and -0 is less than +0."""
    bits = np.dtype(f"i{a.dtype.itemsize}")
    return np.where(a == b, (a.view(bits) | b.view(bits)).view(a.dtype), np.fmin(a, b))[()]


def maximum(a: Value, b: Value) -> Value:
    """max.f*: a number wins over NaN, and +0 is more than -0."""
    bits = np.dtype(f"i{a.dtype.itemsize}")
    return np.where(a == b, (a.view(bits) & b.view(bits)).view(a.dtype), np.fmax(a, b))[()]


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


def low_half(a: Value, dtype: Any) -> Value:
    """The lower 16 bits of a 32-bit value, as `dtype`."""
    return a.astype(np.int16).view(dtype)


def high_half(a: Value, dtype: Any) -> Value:
    """The upper 16 bits of a 32-bit value, as `dtype`."""
    return (a >> a.dtype.type(16)).astype(np.int16).view(dtype)


def pack(low: Value, high: Value) -> Value:
    """Two halves as one value of twice their width (int32 or int64 bits)."""
    size = low.dtype.itemsize
    half, wide = np.dtype(f"u{size}"), np.dtype(f"u{2 * size}")
    bits = low.view(half).astype(wide) | high.view(half).astype(wide) << wide.type(8 * size)
    return bits.view(np.dtype(f"i{2 * size}"))
