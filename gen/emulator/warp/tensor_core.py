"""What a tensor core makes of products and an accumulator, to the bit: as measured on an H200.

Floats are summed in fixed point. An instruction aligns its K products and the accumulator to the
largest of their exponents, cuts each off `fraction` bits below it, toward zero, adds them exactly,
and brings the sum into the result's type (see `Rule`). One instruction makes one sum.

- A product's exponent is the sum of its factors' exponents, whatever their significands make of it;
  that of a subnormal number is the one of the least normal number. So no significand of a product
  reaches 4, and none is normalised before it is cut off.
- A product with a zero factor, and an accumulator that is zero, have no exponent.
- Subnormal operands and results count in full. A sum beyond the largest number is infinite.
- Infinities and NaN make of the sum what IEEE 754 says, whatever else is in it. A NaN has all bits
  set but the sign.
- fp8 has no instruction of its own in `mma.sync` on Hopper: see `fp8_sums`.

It was compared on an H200 with 20 million results: f16, bf16 and tf32 by mma.sync, with all k, and
by wgmma; e4m3 and e5m2 with sums in f32; operands of narrow and wide ranges, zeros, subnormal
numbers, overflows, infinities and NaN. Other GPUs are taken to do the same; that is not measured.

Many sums are exact, those of integers above all. `Span` tells which, for all elements at once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gen.emulator.isa.rounding import one_nan

Array = npt.NDArray[Any]

# The exponent of the least normal number, by type: tf32 has float32's.
SMALLEST = {"f16": -14, "bf16": -126, "tf32": -126, "f32": -126, "e4m3": -6, "e5m2": -14}
_NO_EXPONENT = -(2**12)  # less than any, and so is the sum of two
_LOWEST = -(2**9)  # too low for any other
_BLOCK = 2**15  # products that are aligned at once: they stay in a core's cache


class Rule(NamedTuple):
    """How a kind of instruction sums.

    `fraction` bits are kept below the largest exponent. The result is of the numpy type `dtype`,
    whose finite numbers are below `limit`; `kept` bits behind the leading one are used, the rest is
    cut off. Where `kept` is 0, the sum is rounded to the type, to nearest even.
    """

    fraction: int
    dtype: Any
    limit: float
    kept: int


TO_F32 = Rule(25, np.dtype(np.float32), 2.0**128, 23)
TO_F16 = Rule(25, np.dtype(np.float16), 2.0**16, 0)
FP8_WGMMA = Rule(13, np.dtype(np.float32), 2.0**128, 13)  # e4m3 and e5m2 by wgmma, sums in f32
FP8_WGMMA_F16 = Rule(13, np.dtype(np.float16), 2.0**16, 0)  # and in f16, which was not measured


class Span(NamedTuple):
    """Bounds of numbers: all are multiples of 2**low, and none is larger in size than `most`.

    `most` is infinite where an element is, or is NaN.
    """

    low: int
    most: float

    def top(self, smallest: int) -> int:
        """The largest exponent that tensor cores see, of finite numbers."""
        if not self.most:
            return _NO_EXPONENT
        return max(math.frexp(self.most)[1] - 1, smallest)


NOTHING = Span(2**12, 0.0)  # what zeros are
_LEAST = -149  # the exponent of float32's least number, which all others are multiples of


def span_of(numbers: Array) -> Span:
    """Of float32 or float16: `low` is that of the least exponent with the longest significand."""
    bits = numbers.astype(np.float32, copy=False).view(np.uint32) << np.uint32(1)  # without signs
    most = int(np.maximum.reduce(bits, axis=None))
    if not most:
        return NOTHING
    if most >= 0xFF << 24:
        return Span(_LEAST, math.inf)
    used = int(np.bitwise_or.reduce(bits, axis=None)) & 0xFFFFFF
    digits = 24 - (used & -used).bit_length() + 1 if used else 0
    bits -= np.uint32(1)  # makes 0 the largest
    least = int(np.minimum.reduce(bits, axis=None)) + 1 >> 24
    size = float(np.uint32(most >> 1).view(np.float32))
    return Span(least - 127 - digits if least else _LEAST, size)


def _exponents(numbers: Array, smallest: int) -> Array:
    """Of float32 as tensor cores see them, in int16."""
    biased = (numbers.view(np.int32) >> np.int32(23)).astype(np.int16) & np.int16(255)
    exponents: Array = np.maximum(biased - np.int16(127), np.int16(smallest))
    exponents[numbers == 0] = _NO_EXPONENT
    return exponents


class Terms(NamedTuple):
    """Factors with the warps last: (k, rows or 1, columns or 1, warps); what is no number is 0."""

    numbers: Array
    exponents: Array


@dataclass(eq=False)
class Factor:
    """A or B, in float32, of the type whose least normal number has the exponent `smallest`.

    A is (pieces, warp, row, k), with any number of pieces, B is (warp, k, column).
    """

    numbers: Array
    smallest: int

    @functools.cached_property
    def bounds(self) -> tuple[int, float, int]:
        """The span of all elements, and their largest exponent."""
        span = span_of(self.numbers)
        return *span, span.top(self.smallest)

    @functools.cached_property
    def terms(self) -> Terms:
        """What is aligned."""
        if self.numbers.ndim == 4:
            by_k = self.numbers.transpose(3, 0, 2, 1)
            by_k = by_k.reshape(len(by_k), -1, 1, by_k.shape[-1])
        else:
            by_k = self.numbers.transpose(1, 2, 0)[:, None]
        numbers = np.ascontiguousarray(by_k)
        if not math.isfinite(self.bounds[1]):
            numbers = np.where(np.isfinite(numbers), numbers, np.float32(0))
        return Terms(numbers, _exponents(numbers, self.smallest))

    @functools.cached_property
    def reach(self) -> tuple[int, int]:
        """The smallest and the largest exponent of what is a number and not 0."""
        found = self.terms.exponents
        least = int(found.min(initial=-_NO_EXPONENT, where=found > _NO_EXPONENT))
        return least, int(found.max(initial=_NO_EXPONENT))

    def halves(self, low: Array) -> tuple[Factor, Factor]:
        """The factors of the k where `low`, and those of the others."""
        left = self.numbers.ndim == 4
        parts = (self.numbers[..., k] if left else self.numbers[:, k] for k in (low, ~low))
        first, second = (Factor(np.ascontiguousarray(part), self.smallest) for part in parts)
        return first, second


@dataclass(eq=False)
class Sums:
    """Accumulators, (pieces, warp, row, column) in float32 or float16; `known` where they are."""

    numbers: Array
    known: Span | None = None

    def span(self) -> Span:
        """Of all elements."""
        return self.known or span_of(self.numbers)


def multiply_add(a: Factor, b: Factor, c: Sums, rule: Rule) -> Sums:
    """One instruction's A * B + C."""
    exact = _exact(a, b, c, rule)
    if exact is not None:
        return exact
    sums = _aligned(a, b, c, rule)
    if math.isfinite(a.bounds[1] + b.bounds[1]) and np.isfinite(c.numbers).all():
        return Sums(sums)
    ieee = a.numbers.astype(np.float64) @ b.numbers.astype(np.float64) + c.numbers
    return Sums(one_nan(np.where(np.isfinite(ieee), sums, ieee.astype(rule.dtype))))


def fp8_sums(a: Factor, b: Factor, c: Sums, rule: Rule) -> Sums:
    """mma.sync of e4m3 and e5m2 on Hopper.

    ptxas widens both to f16: an instruction sums the products of the k with k % 4 < 2, a second one
    adds the others, and an ordinary addition C. `a` and `b` are of f16, therefore.
    """
    low = np.arange(a.numbers.shape[-1]) % 4 < 2
    nothing = Sums(np.zeros(c.numbers.shape, rule.dtype), NOTHING)
    (a_low, a_high), (b_low, b_high) = a.halves(low), b.halves(low)
    first = multiply_add(a_low, b_low, nothing, rule)
    products = multiply_add(a_high, b_high, first, rule)
    return Sums(one_nan(products.numbers + c.numbers))


def _exact(a: Factor, b: Factor, c: Sums, rule: Rule) -> Sums | None:
    """The same where no term is cut off, so that any order of sums gives it."""
    (a_low, a_most, a_top), (b_low, b_most, b_top) = a.bounds, b.bounds
    low, most = a_low + b_low, a.numbers.shape[-1] * a_most * b_most
    cut = a_top + b_top - rule.fraction
    if not (low >= cut and most < 2.0**127):  # or NaN
        return None
    own = c.span()
    low, most = min(low, own.low), most + own.most
    cut = max(cut, own.top(_smallest(rule)) - rule.fraction)
    if not (low >= cut and most < 2.0**127):
        return None
    if low >= SMALLEST["f32"] and math.ldexp(most, -low) <= 2**24:  # exact in float32
        sums = a.numbers @ b.numbers
        sums += c.numbers
        if rule.kept < 23:
            sums = _result(sums if not rule.kept else sums.astype(np.float64), rule)
    else:  # in float64: `fraction` bits, and those of K terms
        sums = a.numbers.astype(np.float64) @ b.numbers.astype(np.float64)
        sums += c.numbers
        sums = _result(sums, rule)
    most *= 1 if rule.kept else 1 + 2.0**-10
    return Sums(sums, Span(low, most) if most < rule.limit / 2 else None)


def _smallest(rule: Rule) -> int:
    return SMALLEST["f16" if rule.dtype.itemsize == 2 else "f32"]


def _aligned(a: Factor, b: Factor, c: Sums, rule: Rule) -> Array:
    """The same term by term, of finite numbers."""
    left, right = a.terms, b.terms
    pieces, warps, rows, columns = c.numbers.shape
    by_rows = c.numbers.transpose(0, 2, 3, 1).reshape(-1, columns, warps)
    own = np.ascontiguousarray(by_rows, np.float32)
    if not math.isfinite(float(np.abs(own).max(initial=0))):
        own = np.where(np.isfinite(own), own, np.float32(0))
    own_exponents = _exponents(own, _smallest(rule))
    least, largest = (x + y for x, y in zip(a.reach, b.reach, strict=True))
    least_own = own_exponents.min(initial=0, where=own_exponents > _NO_EXPONENT)
    # float32 holds every term exactly: products have 22 bits. Where it does not, float64 does.
    kind = np.dtype("f4" if largest <= 120 and min(least, least_own) >= -90 else "f8")
    x, y = (Terms(z.numbers.astype(kind, copy=False), z.exponents) for z in (left, right))
    z = Terms(own.astype(kind, copy=False), own_exponents)
    used = np.nonzero((y.exponents > _NO_EXPONENT).any(axis=(0, 1, 3)))[0]  # columns
    busy = np.nonzero((x.exponents > _NO_EXPONENT).any(axis=(0, 1, 2)))[0]  # warps
    if 4 * len(used) * len(busy) > 3 * columns * warps:
        sums, top = _sums(x, y, z, rule)
    else:  # tiles that reach out of the matrix: most products are of zeros
        top = np.where(own_exponents < _LOWEST, np.int16(0), own_exponents)
        whole = np.trunc(z.numbers * _power(np.int16(rule.fraction) - top, kind))
        sums = whole.astype(np.float64) + 0.0
        if used.size and busy.size:
            here = np.ix_(np.arange(len(own)), used, busy)
            x = Terms(*(part[..., busy] for part in x))
            y = Terms(*(part[:, :, used][..., busy] for part in y))
            sums[here], top[here] = _sums(x, y, Terms(*(part[here] for part in z)), rule)
    unit = _power(top - np.int16(rule.fraction), kind)
    if rule.kept and kind.itemsize == 4:  # no sum is subnormal
        result = _cut(sums, rule.kept).astype(kind) * unit
    else:
        result = _result(sums * unit, rule)
    split = result.reshape(pieces, rows, columns, warps).transpose(0, 3, 1, 2)
    return np.ascontiguousarray(split)


def _sums(x: Terms, y: Terms, own: Terms, rule: Rule) -> tuple[Array, Array]:
    """Sums of products and their own terms, in units of the last bit of a fraction below `top`."""
    kind = x.numbers.dtype
    sums, top = np.empty(own.numbers.shape), np.empty(own.numbers.shape, np.int16)
    for row, warp in _blocks(len(x.numbers), *own.numbers.shape):
        here = (row, slice(None), warp)
        mine = (slice(None), row, slice(None), warp)
        theirs = (slice(None), slice(None), slice(None), warp)
        exponents = x.exponents[mine] + y.exponents[theirs]
        highest = np.maximum(exponents.max(axis=0), own.exponents[here])
        highest[highest < _LOWEST] = 0  # of nothing but zeros
        top[here] = highest
        scale = _power(np.int16(rule.fraction) - highest, kind)
        terms = x.numbers[mine] * y.numbers[theirs]
        terms *= scale
        # Below 2**27 each: 16 products, as many as with 25 bits of fraction there are, fit.
        total = terms.astype(np.int32).sum(axis=0, dtype=np.int32)
        np.add(total, np.trunc(own.numbers[here] * scale), out=sums[here])
    return sums, top


def _blocks(k: int, rows: int, columns: int, warps: int) -> Iterator[tuple[slice, slice]]:
    """Rows and warps of which so many products are few."""
    wide = max(min(warps, _BLOCK // (k * columns)), 1)
    high = max(_BLOCK // (k * columns * wide), 1)
    for row in range(0, rows, high):
        for warp in range(0, warps, wide):
            yield slice(row, row + high), slice(warp, warp + wide)


def _power(exponents: Array, kind: Any) -> Array:
    """Powers of two in float32 or float64, for exponents of their normal numbers."""
    bits, bias, fraction = (np.int32, 127, 23) if kind.itemsize == 4 else (np.int64, 1023, 52)
    biased: Array = exponents.astype(bits)
    biased += bits(bias)
    np.left_shift(biased, bits(fraction), out=biased)
    return biased.view(kind)


def _cut(sums: Array, kept: int) -> Array:
    """float64 with `kept` bits behind the leading one."""
    return (sums.view(np.int64) & np.int64(-1 << 52 - kept)).view(np.float64)


def _result(sums: Array, rule: Rule) -> Array:
    """Sums in the result's type: float64, for f16 also float32.

    What is too small for that type is 0 without a sign.
    """
    if not rule.kept:
        return np.asarray(sums.astype(rule.dtype) + rule.dtype.type(0))
    result = _cut(sums, rule.kept)
    least = 2.0 ** SMALLEST["f32"]
    if np.any((sums != 0) & (np.abs(sums) < least)):  # subnormal ones
        unit = least * 2.0**-rule.kept
        result = np.where(np.abs(sums) < least, np.trunc(sums / unit) * unit + 0.0, result)
    return result.astype(rule.dtype)
