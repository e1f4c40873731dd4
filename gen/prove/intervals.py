"""Interval arithmetic: every value that a right kernel's floating-point numbers may have.

The ends of an interval are numbers of the kernel's own type, rounded outwards (Moore, Kearfott and
Cloud, Introduction to Interval Analysis, 2009). So it has the result of each operation as the GPU
rounds it, and also as a fused multiply-add does, which leaves a rounding out. Where a result is
exact, and so are the operands, both ends are that result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

# Units in the last place by which CUDA's functions, and numpy's here, may be off together. CUDA's
# are right to 2 (CUDA C++ Programming Guide, "Mathematical Functions").
UNITS = 4


class Maybe(NamedTuple):
    """Conditions: whether each may be true, and whether it may be false."""

    yes: np.ndarray
    no: np.ndarray

    @staticmethod
    def surely(condition: np.ndarray) -> Maybe:
        """Of conditions that are known."""
        return Maybe(condition, ~condition)

    def __and__(self, other: Maybe) -> Maybe:
        return Maybe(self.yes & other.yes, self.no | other.no)

    def __or__(self, other: Maybe) -> Maybe:
        return Maybe(self.yes | other.yes, self.no & other.no)

    def __invert__(self) -> Maybe:
        return Maybe(self.no, self.yes)


class Interval(NamedTuple):
    """Arrays of intervals: their ends, of float32 or float64, and where NaN is possible, too.

    Where nothing but NaN is, an interval is empty: from infinity to minus infinity.
    """

    low: np.ndarray
    high: np.ndarray
    nan: np.ndarray

    @property
    def empty(self) -> np.ndarray:
        """Where nothing but NaN is possible."""
        return np.asarray(self.low > self.high)

    def has(self, value: float) -> np.ndarray:
        """Where a value is possible."""
        return np.asarray((self.low <= value) & (value <= self.high))

    def surely(self, value: float) -> np.ndarray:
        """Where nothing but a value is possible, or NaN."""
        return np.asarray((self.low == value) & (self.high == value))

    @property
    def has_infinity(self) -> np.ndarray:
        """Where an infinity is possible."""
        return np.asarray(self.has(np.inf) | self.has(-np.inf))

    @property
    def surely_infinite(self) -> np.ndarray:
        """Where nothing but one infinity is possible, or NaN."""
        return np.asarray(self.surely(np.inf) | self.surely(-np.inf))


def enclose(low: Any, high: Any, dtype: Any) -> Interval:
    """Intervals that have all numbers from low to high, which are as precise or more; of NaN none.

    Ends that are numbers of the type stay as they are, those beyond its largest are infinite.
    """
    low, high = np.broadcast_arrays(np.asarray(low), np.asarray(high))
    nan = np.isnan(low) | np.isnan(high)
    with np.errstate(over="ignore"):
        return _made(low, high, nan, nan, dtype)


def _made(low: Any, high: Any, nan: Any, empty: Any, dtype: Any) -> Interval:
    """Rounded outwards."""
    below, above = low.astype(dtype), high.astype(dtype)
    below = np.where(below > low, np.nextafter(below, -np.inf, dtype=dtype), below)
    above = np.where(above < high, np.nextafter(above, np.inf, dtype=dtype), above)
    below = np.where(empty, dtype(np.inf), below)
    above = np.where(empty, dtype(-np.inf), above)
    nan, below, above = np.broadcast_arrays(nan, below, above)
    return Interval(below, above, nan)


def _wider(x: Interval, units: int = 1) -> Interval:
    """With ends so many units further out, but of empty ones."""
    low, high = x.low, x.high
    for _ in range(units):
        low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
    empty = x.empty
    return Interval(np.where(empty, x.low, low), np.where(empty, x.high, high), x.nan)


def _wide(x: Interval) -> tuple[Any, Any, Any]:
    """The ends in a type in which sums and quotients are rounded to more bits, and x's own type."""
    wide = np.float64 if x.low.dtype == np.float32 else np.longdouble
    return x.low.astype(wide), x.high.astype(wide), x.low.dtype.type


def negated(x: Interval) -> Interval:
    """-x."""
    return Interval(-x.high, -x.low, x.nan)


def added(x: Interval, y: Interval) -> Interval:
    """x + y."""
    (xl, xh, own), (yl, yh, _) = _wide(x), _wide(y)
    low, high = xl + yl, xh + yh
    opposite = (x.has(np.inf) & y.has(-np.inf)) | (x.has(-np.inf) & y.has(np.inf))
    nan = x.nan | y.nan | opposite
    surely = opposite & x.surely_infinite & y.surely_infinite
    low, high = np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
    return _made(low, high, nan, x.empty | y.empty | surely, own)


def subtracted(x: Interval, y: Interval) -> Interval:
    """x - y."""
    return added(x, negated(y))


def multiplied(x: Interval, y: Interval) -> Interval:
    """x * y."""
    (xl, xh, own), (yl, yh, _) = _wide(x), _wide(y)
    zero_by_infinity = (x.has(0) & y.has_infinity) | (x.has_infinity & y.has(0))
    surely = (x.surely(0) & y.surely_infinite) | (x.surely_infinite & y.surely(0))
    low, high = _ends(np.multiply, xl, xh, yl, yh)
    nan = x.nan | y.nan | zero_by_infinity
    found = _made(low, high, nan, x.empty | y.empty | surely, own)
    if own is np.float32:
        return found
    # A fused multiply-add does not round the product. Of factors with 24 bits it is exact.
    short = [np.asarray(e.astype(np.float32) == e) for e in (xl, xh, yl, yh)]
    exact = np.logical_and.reduce(np.broadcast_arrays(*short))
    wider = _wider(found)
    return Interval(
        np.where(exact, found.low, wider.low), np.where(exact, found.high, wider.high), nan
    )


def divided(x: Interval, y: Interval) -> Interval:
    """x / y."""
    (xl, xh, own), (yl, yh, _) = _wide(x), _wide(y)
    by_zero = y.has(0)
    low, high = _ends(np.divide, xl, xh, yl, yh)
    low, high = np.where(by_zero, -np.inf, low), np.where(by_zero, np.inf, high)
    nan = x.nan | y.nan | (by_zero & x.has(0)) | (x.has_infinity & y.has_infinity)
    surely = (x.surely(0) & y.surely(0)) | (x.surely_infinite & y.surely_infinite)
    return _made(low, high, nan, x.empty | y.empty | surely, own)


def _ends(operation: Any, xl: Any, xh: Any, yl: Any, yh: Any) -> tuple[Any, Any]:
    """The least and the largest of the four results; what is none of 0 and infinity counts as 0."""
    results = [operation(a, b) for a in (xl, xh) for b in (yl, yh)]
    results = [np.where(np.isnan(each), 0, each) for each in results]
    return np.minimum.reduce(results), np.maximum.reduce(results)


def absolute(x: Interval) -> Interval:
    """|x|."""
    ends = np.abs(x.low), np.abs(x.high)
    low = np.where(x.has(0), x.low.dtype.type(0), np.minimum(*ends))
    high = np.where(x.empty, x.high, np.maximum(*ends))
    return Interval(low, high, x.nan)


def lesser(x: Interval, y: Interval) -> Interval:
    """As fmin: the lesser one, and of a NaN and a number the number."""
    high = np.minimum(x.high, y.high)
    high = np.where(x.nan, np.maximum(high, y.high), high)
    high = np.where(y.nan, np.maximum(high, x.high), high)
    return Interval(np.minimum(x.low, y.low), high, x.nan & y.nan)


def greater(x: Interval, y: Interval) -> Interval:
    """As fmax."""
    return negated(lesser(negated(x), negated(y)))


def root(x: Interval) -> Interval:
    """The square root, which is rounded to nearest."""
    low, high, own = _wide(x)
    negative = x.low < 0
    low, high = np.sqrt(np.maximum(low, 0)), np.sqrt(np.maximum(high, 0))
    return _made(low, high, x.nan | negative, x.empty | (x.high < 0), own)


def logarithm(x: Interval) -> Interval:
    """The natural one."""
    low, high, own = _wide(x)
    low, high = np.log(np.maximum(low, 0)), np.log(np.maximum(high, 0))
    return _wider(_made(low, high, x.nan | (x.low < 0), x.empty | (x.high < 0), own), UNITS)


def _rising(function: Callable[[Any], Any], least: float, most: float) -> Any:
    """A function that nowhere falls, with values from `least` to `most`."""

    def of(x: Interval) -> Interval:
        low, high, own = _wide(x)
        found = _wider(_made(function(low), function(high), x.nan, x.empty, own), UNITS)
        return Interval(
            np.where(x.empty, x.low, np.maximum(found.low, own(least))),
            np.where(x.empty, x.high, np.minimum(found.high, own(most))),
            x.nan,
        )

    return of


_erf = np.vectorize(math.erf, otypes=[np.float64])

FUNCTIONS: dict[str, Callable[..., Interval]] = {
    "+": added,
    "*": multiplied,
    "/": divided,
    "abs": absolute,
    "min": lesser,
    "max": greater,
    "sqrt": root,
    "log": logarithm,
    "exp": _rising(np.exp, 0, np.inf),
    "tanh": _rising(np.tanh, -1, 1),
    "erf": _rising(_erf, -1, 1),
}


def compared(operator: str, x: Interval, y: Interval) -> Maybe:
    """What may come of a comparison; with NaN it is false, but for `!=`."""
    nan = x.nan | y.nan
    if operator in (">", ">="):
        return compared({">": "<", ">=": "<="}[operator], y, x)
    if operator == "!=":
        return ~compared("==", x, y)
    numbers = ~x.empty & ~y.empty
    if operator == "==":
        meet = (x.low <= y.high) & (y.low <= x.high)
        same = (x.low == x.high) & (y.low == y.high) & (x.low == y.low)
        return Maybe(meet & numbers, ~same | nan)
    if operator == "<":
        return Maybe((x.low < y.high) & numbers, (x.high >= y.low) | nan | ~numbers)
    return Maybe((x.low <= y.high) & numbers, (x.high > y.low) | nan | ~numbers)


def chosen(condition: Maybe, yes: Interval, no: Interval) -> Interval:
    """What `condition ? yes : no` may be."""
    own = yes.low.dtype.type
    low = np.minimum(
        np.where(condition.yes, yes.low, own(np.inf)), np.where(condition.no, no.low, own(np.inf))
    )
    high = np.maximum(
        np.where(condition.yes, yes.high, own(-np.inf)),
        np.where(condition.no, no.high, own(-np.inf)),
    )
    return Interval(low, high, condition.yes & yes.nan | condition.no & no.nan)
