"""Conversions between element types, their limits, and matrices as BLAS stores them."""

from __future__ import annotations

import struct
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gen.spec.dtypes import ELEMENT_TYPES, SCALAR_DTYPES, parse_dtype
from gen.spec.numerics import (
    from_float64,
    half_unit,
    is_float,
    largest,
    largest_integer,
    overflow_threshold,
    pack,
    parts,
    poison,
    smallest_subnormal,
    storage_dtype,
    to_float64,
    unit_roundoff,
    unpack,
)

FLOAT_TYPES = [*(name for name in SCALAR_DTYPES if is_float(name)), "tf32"]


def integers(rng, shape, dtype, most=8):
    values = rng.integers(-most, most + 1, shape)
    if is_float(dtype):
        return from_float64(values.astype(np.float64), dtype)
    return values.astype(storage_dtype(dtype))


def bits(matrix):
    return np.ascontiguousarray(matrix).view(f"u{matrix.itemsize}")


def test_bf16_rounds_as_fractions_do():
    # Every bf16 number, the middle to its neighbour, and a hair to either side of the middle.
    low = np.arange(0, 0x7F7F, dtype=np.uint16)
    left, right = to_float64(low, "bf16"), to_float64(low + np.uint16(1), "bf16")
    middle = (left + right) / 2
    even = np.where(low % 2 == 0, low, low + 1).astype(np.uint16)
    for sign, flag in ((1.0, 0), (-1.0, 0x8000)):
        flag = np.uint16(flag)
        assert np.array_equal(from_float64(sign * left, "bf16"), low | flag)
        assert np.array_equal(from_float64(sign * middle, "bf16"), even | flag)
        below = sign * middle * (1 - 2.0**-52)
        above = sign * middle * (1 + 2.0**-52)
        assert np.array_equal(from_float64(below, "bf16"), low | flag)
        assert np.array_equal(from_float64(above, "bf16"), (low + np.uint16(1)) | flag)


@pytest.mark.parametrize(
    ("dtype", "theirs"),
    [("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2)],
)
def test_fp8_is_that_of_ml_dtypes(dtype, theirs):
    patterns = np.arange(256, dtype=np.uint8)
    values = to_float64(patterns, dtype)
    np.testing.assert_array_equal(values, patterns.view(theirs).astype(np.float64))
    numbers = np.unique(np.abs(values[np.isfinite(values)]))
    assert (numbers[1], numbers[-1]) == (smallest_subnormal(dtype), largest(dtype))
    most = largest_integer(dtype)
    exact = np.arange(most + 1)
    np.testing.assert_array_equal(to_float64(from_float64(exact, dtype), dtype), exact)
    assert most + 1 not in values
    # Every number, each middle and a hair to either side of it, and what is too large.
    middle = np.append((numbers[1:] + numbers[:-1]) / 2, overflow_threshold(dtype))
    near = [middle * (1 + hair) for hair in (-(2.0**-18), 0, 2.0**-18)]
    x = np.concatenate([numbers, *near, [1e9, np.inf]])
    x = np.append(x, -x)
    np.testing.assert_array_equal(from_float64(x, dtype), x.astype(theirs).view(np.uint8))
    assert np.isnan(to_float64(from_float64(np.array([np.nan, -np.nan]), dtype), dtype)).all()


def test_bf16_specials():
    values = np.array([np.inf, -np.inf, 1e300, -0.0, 1e-300, np.nan, 2.0**-134, 3.4e38])
    got = from_float64(values, "bf16")
    assert got[:5].tolist() == [0x7F80, 0xFF80, 0x7F80, 0x8000, 0x0000]
    assert np.isnan(to_float64(got[5:6], "bf16")).all()
    assert got[6:].tolist() == [0x0000, 0x7F80]


@given(st.floats(width=64, allow_nan=False, allow_infinity=False), st.sampled_from(FLOAT_TYPES))
def test_rounding_is_to_nearest(x, dtype):
    got = float(to_float64(from_float64(np.array([x]), dtype), dtype)[0])
    if abs(x) >= overflow_threshold(dtype) and dtype != "f64":
        assert got == np.copysign(np.inf, x)
    else:
        off = abs(Fraction(got) - Fraction(x))
        assert off <= Fraction(float(half_unit(np.array(abs(x)), dtype)))
        assert off <= max(
            Fraction(unit_roundoff(dtype)) * abs(Fraction(x)),
            Fraction(smallest_subnormal(dtype)) / 2,
        )


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_half_a_unit_is_as_far_as_rounding_goes(dtype):
    ones = to_float64(from_float64(np.array([1.0, 1.75, 2.0, 96.0]), dtype), dtype)
    half = half_unit(ones, dtype)
    assert np.array_equal(half / half[0], [1, 1, 2, 64])
    between = from_float64(ones + 1.001 * half, dtype)
    assert np.array_equal(to_float64(between, dtype), ones + 2 * half)
    assert half_unit(np.zeros(1), dtype) == smallest_subnormal(dtype) / 2


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_all_16_bit_numbers_survive(dtype):
    everything = np.arange(65536, dtype=np.uint16).view(storage_dtype(dtype))
    values = to_float64(everything, dtype)
    number = ~np.isnan(values)
    assert np.array_equal(bits(from_float64(values, dtype))[number], bits(everything)[number])
    assert np.isnan(to_float64(from_float64(values, dtype), dtype)[~number]).all()


@given(st.floats(width=32, allow_nan=False))
def test_any_float32_counts_as_the_nearest_tf32(x):
    got = to_float64(np.array([x], np.float32), "tf32")
    assert (got == to_float64(from_float64(np.array([x]), "tf32"), "f32")).all()


def test_what_tf32_makes_of_the_largest_float32():
    odd = np.array([np.finfo(np.float32).max, np.inf, np.nan], np.float32)
    assert np.array_equal(to_float64(odd, "tf32"), [np.inf, np.inf, np.nan], equal_nan=True)


def test_limits_of_the_types():
    for dtype, info in (("f16", np.finfo(np.float16)), ("f32", np.finfo(np.float32))):
        assert unit_roundoff(dtype) == info.eps / 2
        assert smallest_subnormal(dtype) == info.smallest_subnormal
        threshold = overflow_threshold(dtype)
        assert np.isinf(from_float64(np.array(threshold), dtype))
        assert from_float64(np.array(np.nextafter(threshold, 0)), dtype) == info.max
    assert to_float64(np.array([1], np.uint16), "bf16")[0] == smallest_subnormal("bf16")
    assert struct.pack(">f", 1 + 2 * unit_roundoff("bf16"))[:2] == b"\x3f\x81"


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
@pytest.mark.parametrize("row_major", [True, False])
def test_matrices_are_stored_as_blas_does(dtype, row_major):
    matrix = integers(np.random.default_rng(1), (4, 3), dtype)
    ld = 7
    storage = pack(matrix, row_major, ld, dtype)
    assert storage.ndim == 1
    positions = [(i * ld + j if row_major else j * ld + i) for i in range(4) for j in range(3)]
    assert storage.size == max(positions) + 1
    assert np.array_equal(storage[positions], matrix.reshape(-1))
    gaps = np.delete(storage, positions)
    assert (bits(gaps) == bits(np.array([poison(dtype)]))).all()
    assert np.array_equal(unpack(storage, 4, 3, row_major, ld), matrix)


def test_poison_spoils():
    for dtype in ELEMENT_TYPES:
        value = to_float64(np.array([poison(dtype)]), dtype)[0]
        assert np.isnan(value) or abs(value) > 100


def test_matrices_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="leading dimension 2 is shorter than 3"):
        pack(np.zeros((4, 3)), True, 2, "f64")
    with pytest.raises(ValueError, match="5 elements hold no 2 lines of 3, 3 apart"):
        unpack(np.zeros(5), 2, 3, True, 3)
    assert pack(np.zeros((0, 3)), True, 3, "f64").size == 0
    assert unpack(np.zeros(0), 0, 3, True, 3).shape == (0, 3)


def test_parts_of_float32_add_up() -> None:
    dtypes = parse_dtype("f32_6xbf16")
    x = np.random.default_rng(0).integers(0, 2**32, 10_000, np.uint32).view(np.float32)
    x = x[np.isfinite(x)]
    total = sum(parts(x, dtypes))
    large = np.abs(x) >= 2.0**-110
    assert 0.5 < large.mean() < 1
    assert (total[large] == x[large]).all()
    assert (np.abs(total - x) <= 2.0**-134).all()
