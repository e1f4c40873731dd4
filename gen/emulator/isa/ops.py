"""What the rows of `table` compute with: numpy functions that round and wrap as the GPU does.

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


def widened(a: Value) -> Value:
    """A float in float64. Of a register, translated code has this once: see `Lines.widened`."""
    return a.astype(F64)


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


def odd_sum(a: Value, b: Value) -> Value:
    """a + b in float64; where it is inexact the last bit is 1, so that rounding again is safe."""
    total, rest = _two_sum(a, b)
    bits = np.asarray(total).view(np.int64)
    step = np.where((rest > 0) == (total > 0), 1, -1)
    inexact = (rest != 0) & np.isfinite(rest) & (bits & 1 == 0)
    return np.where(inexact, bits + step, bits).view(F64)[()]


def fma_f64(a: Value, b: Value, c: Value) -> Value:
    """a * b + c, correctly rounded.

    Factors of at most 26 significant bits (integers, say) have an exact product, and then numpy's
    sum is the answer. Otherwise the product's error is computed exactly (Dekker), and all three
    parts are added with a round-to-odd middle step, so that the last addition rounds only once.
    Where that overflows (factors above 2**996) the naive result is kept; a product whose error
    is below the subnormal range can be off by one unit in the last place.
    """
    product = a * b
    error = _product_error(a, b, product)
    if error is None:
        return product + c
    v, rest = _three_sum(product, error, c)
    result = v + rest
    naive = product + c  # which also has the right sign where all is zero
    return np.where(np.isfinite(result) & (result != 0), result, naive)[()]


def directed_fma_f64(a: Value, b: Value, c: Value, mode: str) -> Value:
    """a * b + c rounded once, by `mode`: rn (nearest even), rz (to zero), rm (down), rp (up)."""
    near = fma_f64(a, b, c)
    if mode == "rn":
        return near
    product = a * b
    error = _product_error(a, b, product)
    v, more = _two_sum(product, c) if error is None else _three_sum(product, error, c)
    rest = (v - near) + more  # its sign is that of what rounding to nearest took away
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    rest = np.where(np.isinf(near) & finite, -near, rest)
    lowest, highest = F64(-np.inf), F64(np.inf)
    down = np.where(rest < 0, np.nextafter(near, lowest), near)
    up = np.where(rest > 0, np.nextafter(near, highest), near)
    if mode == "rz":
        return np.where(near > 0, down, up)
    if mode == "rp":
        return up
    # What is zero because its terms cancel is -0, unless both are +0.
    cancels = (near == 0) & (np.signbit(product) | np.signbit(c))
    return np.where(cancels & (rest == 0), F64(-0.0), down)


def directed_quotient_f64(a: Value, b: Value, mode: str) -> Value:
    """a / b rounded once, by a `mode` as in `directed_fma_f64`."""
    near = a / b
    rest = fma_f64(-near, b, a) * np.sign(b)  # its sign is that of what rounding took away
    return _toward(near, rest, mode)


def directed_root_f64(a: Value, mode: str) -> Value:
    """The square root of a, rounded once, by a `mode` as in `directed_fma_f64`."""
    near = np.sqrt(a)
    return _toward(near, fma_f64(-near, near, a), mode)


def _toward(near: Value, rest: Value, mode: str) -> Value:
    """A result that was rounded to nearest, by another mode; `rest` has the sign of its error."""
    rest = np.where(np.isfinite(near), rest, F64(0))
    down = np.where(rest < 0, np.nextafter(near, F64(-np.inf)), near)
    up = np.where(rest > 0, np.nextafter(near, F64(np.inf)), near)
    return {"rm": down, "rp": up, "rz": np.where(near > 0, down, up)}[mode]


def _product_error(a: Value, b: Value, product: Value) -> Value | None:
    """a * b - product, exactly (Dekker); None where all products are exact."""
    (a1, a0), (b1, b0) = _split(a), _split(b)
    if not np.any(a0) and not np.any(b0):
        return None
    return a0 * b0 - (((product - a1 * b1) - a0 * b1) - a1 * b0)


def _three_sum(product: Value, error: Value, c: Value) -> tuple[Value, Value]:
    """The exact sum as two numbers, of which the second, small one is rounded to odd."""
    t, t_low = _two_sum(c, error)
    v, v_low = _two_sum(product, t)
    return v, odd_sum(t_low, v_low)


def minimum(a: Value, b: Value) -> Value:
    """min.f*: a number wins over NaN, and -0 is less than +0."""
    bits = np.dtype(f"i{a.dtype.itemsize}")
    return np.where(a == b, (a.view(bits) | b.view(bits)).view(a.dtype), np.fmin(a, b))[()]


def maximum(a: Value, b: Value) -> Value:
    """max.f*: a number wins over NaN, and +0 is more than -0."""
    bits = np.dtype(f"i{a.dtype.itemsize}")
    return np.where(a == b, (a.view(bits) & b.view(bits)).view(a.dtype), np.fmax(a, b))[()]


def low_half(a: Value, dtype: Any) -> Value:
    """The lower 16 bits of a 32-bit value, as `dtype`."""
    return a.astype(np.int16).view(dtype)


def high_half(a: Value, dtype: Any) -> Value:
    """The upper 16 bits of a 32-bit value, as `dtype`."""
    return (a >> a.dtype.type(16)).astype(np.int16).view(dtype)


def pack(low: Value, high: Value) -> Value:
    """Two halves as one value of twice their width (as bits: int32, int64 or complex128)."""
    size = low.dtype.itemsize
    if size == 8:
        halves = np.stack(np.broadcast_arrays(low, high), axis=-1)
        return halves.view(np.complex128)[..., 0]
    half, wide = np.dtype(f"u{size}"), np.dtype(f"u{2 * size}")
    bits = low.view(half).astype(wide) | high.view(half).astype(wide) << wide.type(8 * size)
    return bits.view(np.dtype(f"i{2 * size}"))


def unpack128(a: Value) -> list[Value]:
    """The two halves of 128 bits, as int64."""
    return [np.ascontiguousarray(half).view(np.int64).reshape(np.shape(a))[()]
            for half in (a.real, a.imag)]  # fmt: skip


def in_space(address: Value, name: str) -> Value:
    """isspacep: whether a generic address points into the space that the name ends in."""
    window = address >> np.int64(56)
    if ".global" in name:
        return (window != 1) & (window != 2)
    return window == (1 if ".shared" in name else 2)


def test_property(a: Value, name: str) -> Value:
    """testp: what kind of number `a` is."""
    tiny = np.finfo(a.dtype).tiny
    tests: dict[str, Any] = {
        "finite": np.isfinite, "infinite": np.isinf, "notanumber": np.isnan,
        "number": lambda x: ~np.isnan(x),
        "normal": lambda x: np.isfinite(x) & (np.abs(x) >= tiny),
        "subnormal": lambda x: (x != 0) & (np.abs(x) < tiny),
    }  # fmt: skip
    return tests[name.split(".")[1]](a)
