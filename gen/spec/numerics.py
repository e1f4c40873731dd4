"""Element types as numpy sees them: storage, exact values, rounding, matrices in memory.

numpy has no bfloat16 and no floats of 8 bits: bf16 arrays are uint16 bit patterns, e4m3 and e5m2
uint8, and go through `to_float64` and `from_float64`. tf32 is stored as float32, and any float32
counts as the tf32 number nearest to it, since kernels round operands on their way to tensor cores.
Every other type's storage is its numpy type.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from gen.spec.dtypes import DTypes

_STORAGE = {
    "f32": np.float32,
    "f64": np.float64,
    "i32": np.int32,
    "f16": np.float16,
    "bf16": np.uint16,
    "tf32": np.float32,
    "i8": np.int8,
    "e4m3": np.uint8,
    "e5m2": np.uint8,
}

# Bits of the significand, with the hidden one; exponent of the smallest subnormal number.
_PRECISION = {"f16": 11, "bf16": 8, "tf32": 11, "f32": 24, "f64": 53, "e4m3": 4, "e5m2": 3}
_TINIEST = {"f16": -24, "bf16": -133, "tf32": -136, "f32": -149, "f64": -1074}
_TINIEST |= {"e4m3": -9, "e5m2": -16}
_LARGEST_EXPONENT = {"f16": 15, "bf16": 127, "tf32": 127, "f32": 127, "e4m3": 8, "e5m2": 15}

# e4m3 has no infinity: of the patterns with the largest exponent, only that with all bits set is no
# number.
_FP8 = ("e4m3", "e5m2")


def storage_dtype(name: str) -> np.dtype[Any]:
    """The numpy type that holds elements of the type `name`."""
    return np.dtype(_STORAGE[name])


def is_float(name: str) -> bool:
    """Whether `name` is a floating-point type."""
    return name in _PRECISION


def unit_roundoff(name: str) -> float:
    """u: the largest relative error of rounding to nearest, 2^-24 for f32. 0 for integers."""
    return 2.0 ** -_PRECISION[name] if is_float(name) else 0.0


def half_unit(values: np.ndarray, name: str) -> np.ndarray:
    """The largest error of rounding to nearest: half of the gap between numbers next to `values`.

    values: magnitudes in float64; no larger ones, rounded, are further off.
    """
    _, exponent = np.frexp(values)
    gap = np.ldexp(1.0, exponent - _PRECISION[name])
    least = smallest_subnormal(name)
    return np.where(values > 0, np.maximum(gap, least), least) / 2


def smallest_subnormal(name: str) -> float:
    """The least positive number of a floating-point type."""
    return 2.0 ** _TINIEST[name]


def smallest_normal(name: str) -> float:
    """The least positive number with all bits of precision."""
    return smallest_subnormal(name) * 2.0 ** (_PRECISION[name] - 1)


def overflow_threshold(name: str) -> float:
    """The least magnitude that rounds to infinity: half a unit beyond the largest number.

    For f64 it is the largest number, since float64 has no other. e4m3 has a NaN for infinity.
    """
    if name == "f64":
        return float(np.finfo(np.float64).max)
    return largest(name) + unit_roundoff(name) * 2.0 ** _LARGEST_EXPONENT[name]


def largest(name: str) -> float:
    """The largest number."""
    exponent = _LARGEST_EXPONENT.get(name, 1023)
    units = 4 if name == "e4m3" else 2  # its last pattern is NaN
    return (2 - units * unit_roundoff(name)) * 2.0**exponent


def largest_integer(name: str) -> int:
    """Up to which magnitude a type has all integers."""
    if not is_float(name):
        return int(np.iinfo(storage_dtype(name)).max)
    return 1 << _PRECISION[name]


def to_float64(array: np.ndarray, name: str) -> np.ndarray:
    """The exact values of storage of type `name`, in the same shape.

    Of tf32, those that tensor cores multiply. Between two of its numbers it takes the even one;
    kernels may take the other.
    """
    if name == "bf16":
        bits = np.asarray(array, np.uint16).astype(np.uint32) << np.uint32(16)
        array = bits.view(np.float32)
    if name in _FP8:
        return np.asarray(fp8_values(name)[array])
    with np.errstate(invalid="ignore"):  # signaling NaN
        if name == "tf32":
            array = _to_tf32(np.asarray(array))
        return np.asarray(array).astype(np.float64)


def from_float64(array: np.ndarray, name: str) -> np.ndarray:
    """Values rounded once, to nearest, ties to even, into a floating-point type's storage.

    What is too large becomes infinite, as in the hardware's conversions; in e4m3, NaN. Takes
    longdouble for f64.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if name == "bf16":
            return _to_bf16(np.asarray(array, np.float64))
        if name == "tf32":
            return _to_tf32(np.asarray(array, np.float64))
        if name in _FP8:
            return _to_fp8(np.asarray(array, np.float64), name)
        return np.asarray(array).astype(_STORAGE[name])


def from_integers(array: np.ndarray, name: str) -> np.ndarray:
    """Integers as storage of any type: rounded once where they are not exact in it."""
    storage = storage_dtype(name)
    return array.astype(storage) if storage.kind == "i" else from_float64(array, name)


def _to_bf16(x: np.ndarray) -> np.ndarray:
    return (_shortened(x, 16) >> np.uint32(16)).astype(np.uint16)


def _to_tf32(x: np.ndarray) -> np.ndarray:
    return _shortened(x, 13).view(np.float32)


@cache
def fp8_values(name: str) -> np.ndarray:
    """What the 256 patterns of e4m3 or e5m2 stand for: float64."""
    fraction = _PRECISION[name] - 1
    bits = np.arange(128)
    exponent, rest = bits >> fraction, bits % 2**fraction
    significand = rest + np.where(exponent > 0, 2**fraction, 0)
    values = significand * 2.0 ** (np.maximum(exponent, 1) - 1 + _TINIEST[name])
    beyond = values > largest(name)
    values[beyond] = np.where((rest == 0) & (name != "e4m3"), np.inf, np.nan)[beyond]
    return np.concatenate([values, -values])


def _to_fp8(x: np.ndarray, name: str) -> np.ndarray:
    values = fp8_values(name)
    finite = values[: int(np.argmax(~np.isfinite(values)))]
    halfway = np.append((finite[1:] + finite[:-1]) / 2, overflow_threshold(name))
    size = np.abs(x)
    at = np.searchsorted(halfway, size)
    at += (size == halfway[np.minimum(at, len(halfway) - 1)]) & (at % 2 == 1)  # a tie, to even
    bits = np.where(np.isnan(x), 0x7F, at) | np.where(np.signbit(x), 0x80, 0)
    return np.asarray(bits, np.uint8)


def _shortened(x: np.ndarray, cut: int) -> np.ndarray:
    """The bits of float32 numbers whose last `cut` bits are 0: float64 rounded to nearest."""
    # float64 -> float32 -> fewer bits to nearest would round twice. Rounding to odd in between
    # keeps, in the last bit, that something was cut off: the second rounding is the only one.
    near = x.astype(np.float32)
    bits = near.view(np.uint32)
    back = near.astype(np.float64)
    away = np.abs(back) > np.abs(x)
    odd = np.where(away, bits - np.uint32(1), bits) | (back != x).astype(np.uint32)
    last = np.uint32(1 << cut)
    half_even = (last >> np.uint32(1)) - np.uint32(1) + ((odd >> np.uint32(cut)) & np.uint32(1))
    rounded = np.where(np.isnan(x), bits | np.uint32(0x7FC00000), odd + half_even)
    return np.asarray(rounded & ~(last - np.uint32(1)))


def parts(x: np.ndarray, dtypes: DTypes) -> list[np.ndarray]:
    """The parts in which tensor cores multiply float32 numbers: float64, the leading ones first.

    The leading part is x, rounded to the type of parts; each other one is what those before have
    left, rounded again. Where the leading one would be infinite it is the largest number. Only
    infinity's is infinite, and its others are NaN.
    """
    name = dtypes.factor.name
    most = largest(name)
    rest = np.asarray(x, np.float64)
    found = []
    with np.errstate(invalid="ignore"):
        for _ in range(dtypes.parts):
            within = np.where(np.isinf(rest), rest, np.clip(rest, -most, most))
            found.append(to_float64(from_float64(within, name), name))
            rest = rest - found[-1]
    return found


def poison(name: str) -> Any:
    """A value that spoils every result it gets into: NaN, or a large integer."""
    if name == "bf16":
        return np.uint16(0x7FFF)
    if name in _FP8:
        return np.uint8(0x7F)
    dtype = storage_dtype(name)
    return dtype.type(np.nan if is_float(name) else np.iinfo(dtype).min + 1)


def pack(matrix: np.ndarray, row_major: bool, ld: int, name: str, stride: int = 0) -> np.ndarray:
    """A matrix (rows x columns, of storage) as BLAS stores it: one dimension, poison in the gaps.

    Element (i, j) is at i * ld + j, or at j * ld + i in column-major order; with three dimensions,
    those of matrix b are b * stride further on. The array ends with the last element, not with its
    row's gap. Raises ValueError where ld is shorter than a row.
    """
    every = matrix if matrix.ndim == 3 else matrix[None]
    lines = every if row_major else every.swapaxes(1, 2)
    batch, count, length = lines.shape
    if ld < length:
        raise ValueError(f"leading dimension {ld} is shorter than {length}")
    if matrix.size == 0:
        return np.empty(0, matrix.dtype)
    storage = np.full((batch - 1) * stride + (count - 1) * ld + length, poison(name), matrix.dtype)
    _lines(storage, lines.shape, stride, ld)[...] = lines
    return storage


def unpack(
    storage: np.ndarray,
    rows: int,
    columns: int,
    row_major: bool,
    ld: int,
    batch: tuple[int, int] | None = None,
) -> np.ndarray:
    """The matrix (rows x columns) in BLAS storage: the opposite of `pack`, without a copy.

    batch: how many there are, and the stride; then they have three dimensions.
    """
    products, stride = batch or (1, 0)
    matrices = (products, rows, columns)
    if 0 in matrices:
        return np.empty(matrices if batch else matrices[1:], storage.dtype)
    count, length = (rows, columns) if row_major else (columns, rows)
    if storage.size < (products - 1) * stride + (count - 1) * ld + length:
        raise ValueError(
            f"{storage.size} elements hold no {count} lines of {length}, {ld} apart, {products} "
            f"times, {stride} apart"
        )
    lines = _lines(storage, (products, count, length), stride, ld)
    lines.flags.writeable = False
    every = lines if row_major else lines.swapaxes(1, 2)
    return every if batch else every[0]


def _lines(storage: np.ndarray, shape: tuple[int, ...], stride: int, ld: int) -> np.ndarray:
    """The lines of each matrix of a batch in BLAS storage."""
    size = storage.itemsize
    return np.lib.stride_tricks.as_strided(storage, shape, (stride * size, ld * size, size))
