"""Tensor cores' sums of f64, against fractions: multiply-adds in the order of k, rounded once."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from gen.emulator.isa.ops import directed_fma_f64
from gen.emulator.isa.table import TABLE
from tests.emulator.warp.test_wmma import left_places, run_mma

MODES = ("rn", "rz", "rm", "rp")


def fma(a: float, b: float, c: float, mode: str) -> float:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    near = float(exact)  # to nearest
    rest = exact - Fraction(near)
    if mode == "rm" or (mode == "rz" and exact > 0):
        return float(np.nextafter(near, -np.inf)) if rest < 0 else near
    if mode in ("rp", "rz"):
        return float(np.nextafter(near, np.inf)) if rest > 0 else near
    return near


@pytest.mark.parametrize("mode", MODES)
def test_multiply_adds_are_rounded_once(mode: str) -> None:
    rng = np.random.default_rng(1)
    a = rng.standard_normal(400) * 2.0 ** rng.integers(-30, 30, 400)
    b, c = rng.standard_normal(400), rng.standard_normal(400) * 2.0 ** rng.integers(-90, 60, 400)
    c[:100] = -(a * b)[:100]  # what is left is the product's own rounding
    a[100:150], b[100:150] = rng.integers(-9, 9, (2, 50))
    got = directed_fma_f64(a, b, c, mode)
    assert got.tolist() == [fma(*each, mode) for each in zip(a, b, c, strict=True)]


def test_multiply_adds_at_the_ends_of_the_numbers() -> None:
    most, ten, six = (np.array([x]) for x in (np.finfo(np.float64).max, 10.0, 6.0))
    with np.errstate(over="ignore", invalid="ignore"):
        beyond = [directed_fma_f64(most, ten, most, mode)[0] for mode in MODES]
    assert beyond == [np.inf, most[0], most[0], np.inf]
    nothing = [directed_fma_f64(ten, six, -ten * six, mode)[0] for mode in MODES]
    assert np.signbit(nothing).tolist() == [False, False, True, False]
    assert nothing == [0] * 4


def spellings() -> list[str]:
    return [name for name in TABLE if "mma." in name and ".row.col." in name and ".f64." in name]


@pytest.mark.parametrize("name", spellings())
def test_sums_are_multiply_adds_in_the_order_of_k(name: str) -> None:
    words = name.split(".")
    mode = words[-1] if words[-1] in MODES else "rn"
    size = next(word for word in words if word[:1] == "m" and "n8k" in word)
    m, k = int(size[1:].split("n")[0]), int(size.split("k")[1])
    rng = np.random.default_rng(k)
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, 8))
    lanes_a = np.array([[a[at] for at in left_places(lane, m, k, 1)] for lane in range(32)])
    lanes_b = np.array([[b.T[at] for at in left_places(lane, 8, k, 1)] for lane in range(32)])
    got = run_mma(name, lanes_a, lanes_b, "r" * (m // 4), "sm_90")
    for lane in range(32):
        places = [(lane // 4 + row, lane % 4 * 2 + i) for row in range(0, m, 8) for i in range(2)]
        for (row, column), d in zip(places, got[lane], strict=True):
            expected = 1.0
            for left, right in zip(a[row], b[:, column], strict=True):
                expected = fma(left, right, expected, mode)
            assert d == expected


def test_every_size_has_every_mode() -> None:
    assert len(spellings()) == 5 * (1 + len(MODES))
