"""Conversions to and from e4m3 and e5m2, against ml_dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.emulator.isa.test_instructions import execute

KINDS = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}


def saturated(values: np.ndarray, kind: str) -> np.ndarray:
    """The bits of the nearest numbers; beyond the largest, of that."""
    info = ml_dtypes.finfo(KINDS[kind])
    wide = values.astype(np.float64)
    clipped = np.clip(np.nan_to_num(wide), float(info.min), float(info.max))
    bits = clipped.astype(np.float32).astype(KINDS[kind]).view(np.uint8)
    return np.where(np.isnan(wide), 0x7F, bits).astype(np.uint8)


def numbers(kind: str) -> np.ndarray:
    """All that the type has, what lies half-way between, and others."""
    own = np.arange(256, dtype=np.uint8).view(KINDS[kind]).astype(np.float32)
    finite = np.sort(own[np.isfinite(own)])
    middle = (finite[1:] + finite[:-1]) / 2
    beside = [np.nextafter(middle, np.float32(way)) for way in (-np.inf, np.inf)]
    rng = np.random.default_rng(0)
    random = (rng.standard_normal(500) * 2.0 ** rng.integers(-20, 20, 500)).astype(np.float32)
    edges = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 0, -0.0, 1e-30], np.float32)
    return np.concatenate([own, middle, *beside, random, edges]).astype(np.float32)


@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("kind", KINDS)
def test_from_f32(kind: str, relu: str) -> None:
    high = numbers(kind)[:1000]
    low = high[::-1].copy()
    code = f"cvt.rn.satfinite{relu}.{kind}x2.f32 %d, %a, %b;"
    got = execute(code, "u2", high, low)
    if relu:
        high, low = (np.where(x <= 0, np.float32(0), x) for x in (high, low))
    assert np.array_equal(got & 255, saturated(low, kind))
    assert np.array_equal(got >> 8, saturated(high, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_from_f16(kind: str) -> None:
    halves = np.arange(0, 1 << 16, 67, dtype=np.uint16)[:978].view(np.float16)
    pairs = halves.view(np.int32)
    got = execute(f"cvt.rn.satfinite.{kind}x2.f16x2 %d, %a;", "u2", pairs)
    assert np.array_equal(got.view(np.uint8), saturated(halves, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_to_f16(kind: str) -> None:
    every = np.arange(256, dtype=np.uint8)
    got = execute(f"cvt.rn.f16x2.{kind}x2 %d, %a;", "u4", every.view(np.uint16)).view(np.float16)
    assert np.array_equal(got, every.view(KINDS[kind]).astype(np.float16), equal_nan=True)
