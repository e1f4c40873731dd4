"""Conversions between number types: directed rounding, saturation, bf16, tf32 and fp8."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from gen.emulator.isa.ops import F64, Value, odd_sum, pack


def directed(a: Value, dtype: Any, mode: str) -> Value:
    """`a` rounded once to `dtype`: mode rn (nearest even), rz (to zero), rm (down), rp (up)."""
    near = a.astype(dtype)
    if mode == "rn":
        return near
    back, exact = near.astype(F64), a.astype(F64)
    wrong, goal = {
        "rz": (np.abs(back) > np.abs(exact), 0.0),
        "rm": (back > exact, -np.inf),
        "rp": (back < exact, np.inf),
    }[mode]
    return np.where(wrong, np.nextafter(near, near.dtype.type(goal)), near)[()]


def to_integral(a: Value, mode: str) -> Value:
    """`a` rounded to an integral value: rni (nearest even), rzi, rmi or rpi."""
    return {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[mode](a)


def float_to_int(a: Value, dtype: Any, source: Any) -> Value:
    """An integral float as an integer: out of range it saturates, NaN gives 0 or the top bit."""
    info = np.iinfo(dtype)
    x = a.astype(F64)
    top = F64(2.0) ** (info.bits - (info.kind == "i"))
    inside = (x >= F64(info.min)) & (x < top)
    value = np.where(inside, x, F64(0)).astype(dtype)
    value = np.where(x >= top, info.max, value)
    value = np.where(x < F64(info.min), info.min, value)
    nan = 0
    if info.bits == 64 or np.dtype(source) == F64:
        nan = info.min if info.kind == "i" else 1 << (info.bits - 1)
    return np.where(np.isnan(x), np.array(nan, dtype), value).astype(dtype)[()]


def saturate_int(a: Value, dtype: Any) -> Value:
    """cvt.sat between integers: clamp to the range of `dtype`."""
    source, target = np.iinfo(a.dtype), np.iinfo(dtype)
    low = a.dtype.type(max(source.min, target.min))
    high = a.dtype.type(min(source.max, target.max))
    return np.clip(a, low, high).astype(dtype)


def saturate(a: Value) -> Value:
    """.sat on floats: clamp to [0, 1]; NaN becomes +0."""
    kind = a.dtype.type
    return np.where(a > 0, np.minimum(a, kind(1)), kind(0))[()]


def relu(a: Value) -> Value:
    """.relu: negative values become +0, NaN stays."""
    return np.where(a <= 0, a.dtype.type(0), a)[()]


def ftz(a: Value) -> Value:
    """.ftz: subnormal values become zeros of their sign."""
    return np.where(np.abs(a) < np.finfo(a.dtype).tiny, np.copysign(a.dtype.type(0), a), a)[()]


def directed_int(a: Value, mode: str) -> Value:
    """A 64-bit integer as float32, rounded once: its two halves are added by round-to-odd."""
    low = (a & a.dtype.type(0xFFFFFFFF)).astype(F64)
    high = (a >> a.dtype.type(32)).astype(F64) * F64(2.0**32)
    return directed(odd_sum(high, low), np.float32, mode)


def to_odd_f32(a: Value) -> Value:
    """float64 to float32 by round-to-odd, so that a second rounding to fewer bits is exact."""
    near = directed(a, np.float32, "rz")
    bits = np.asarray(near).view(np.int32)
    inexact = (near.astype(F64) != a) & np.isfinite(a)
    return np.where(inexact, bits | np.int32(1), bits).view(np.float32)[()]


def one_nan(numbers: Value) -> Value:
    """The same (float32 or float16) with the NaN that GPUs make in place of every one."""
    bits = numbers.view(f"i{numbers.itemsize}")
    return np.where(np.isnan(numbers), np.iinfo(bits.dtype).max, bits).view(numbers.dtype)


def bf16(a: Value, mode: str = "rn") -> Value:
    """A float32 as bf16 bits (uint16), rounded to nearest even (rn) or toward zero (rz)."""
    bits = np.asarray(a, np.float32).view(np.uint32)
    if mode == "rn":
        bits = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    short = (bits >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(a), np.uint16(0x7FFF), short)[()]


def bf16_f64(a: Value) -> Value:
    """A float64 as bf16 bits with one rounding."""
    return bf16(to_odd_f32(a.astype(F64)))


def from_bf16(a: Value) -> Value:
    """bf16 bits (uint16) as float32; exact."""
    return (a.astype(np.uint32) << np.uint32(16)).view(np.float32)


@functools.cache
def fp8_values(kind: str) -> npt.NDArray[np.float64]:
    """What the 256 patterns of e4m3 or e5m2 stand for."""
    fraction = 3 if kind == "e4m3" else 2
    bits = np.arange(128)
    exponent, rest = bits >> fraction, bits & (1 << fraction) - 1
    scale = F64(2.0) ** (np.maximum(exponent, 1) - (7 if kind == "e4m3" else 15) - fraction)
    values = (rest + np.where(exponent > 0, 1 << fraction, 0)) * scale
    if kind == "e4m3":
        values[127] = np.nan
    else:
        values[124:] = [np.inf, np.nan, np.nan, np.nan]
    return np.concatenate([values, -values])


def from_fp8(a: Value, kind: str) -> Value:
    """Bytes of e4m3 or e5m2 as float32; exact."""
    return fp8_values(kind)[a].astype(np.float32)


def fp8(a: Value, kind: str) -> Value:
    """A float as e4m3 or e5m2 (uint8), to nearest even; beyond the largest number it is that."""
    finite = fp8_values(kind)[: 127 if kind == "e4m3" else 124]
    middles = (finite[1:] + finite[:-1]) / 2
    size = np.abs(np.asarray(a).astype(F64))
    at = np.searchsorted(middles, size)
    tie = (at < len(middles)) & (size == middles[np.minimum(at, len(middles) - 1)])
    at = at + (tie & (at % 2 == 1))
    signed = at | np.where(np.signbit(a), 0x80, 0)
    return np.where(np.isnan(a), 0x7F, signed).astype(np.uint8)[()]


def fp8_pair(low: Value, high: Value, name: str) -> Value:
    """cvt to e4m3x2 or e5m2x2: two floats as 16 bits."""
    kind = "e4m3" if "e4m3" in name else "e5m2"
    low, high = (fp8(relu(x) if ".relu" in name else x, kind) for x in (low, high))
    return (low.astype(np.uint16) | high.astype(np.uint16) << np.uint16(8)).view(np.int16)


def from_fp8_pair(a: Value, name: str) -> Value:
    """cvt.f16x2 of e4m3x2 or e5m2x2."""
    kind, bits = name[-6:-2], np.asarray(a).view(np.uint16)
    low, high = (from_fp8((bits >> np.uint16(at)) & np.uint16(255), kind) for at in (0, 8))
    if ".relu" in name:
        low, high = relu(low), relu(high)
    return pack(low.astype(np.float16), high.astype(np.float16))[()]


def fma_bf16(a: Value, b: Value, c: Value) -> Value:
    """a * b + c of widened bf16 values, as a float32 rounded to odd."""
    x, y, z = (v.astype(F64) for v in (a, b, c))
    return to_odd_f32(odd_sum(x * y, z))


_TF32 = np.uint32(0xFFFFE000)  # the bits of a float32 that tf32 has


def tf32(a: Value) -> Value:
    """cvt.rna.tf32.f32: 10 mantissa bits, halves away from zero; the result is float32 bits.

    Infinities and NaN lose their last bits, as in the code that ptxas makes of it.
    """
    bits = a.view(np.uint32)
    bits = np.where(np.isfinite(a), bits + np.uint32(0x1000), bits)
    return (bits & _TF32).view(np.int32)[()]


def tf32_by_copy(bits: Value) -> Value:
    """float32 bits (uint32) as a tensor map of TFLOAT32 has them copied to shared memory.

    To nearest even, infinities as they are; of every NaN it makes the same one. No manual says so:
    it is what an H200 does (`tests.hardware.compare_results roundings`, bit for bit).
    """
    half = np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1))
    rounded = np.where(np.isfinite(bits.view(np.float32)), bits + half & _TF32, bits)
    return np.where(np.isnan(bits.view(np.float32)), np.uint32(0x7FFFE000), rounded)
