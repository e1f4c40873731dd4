"""float32 multiplied in parts: as exact as float32's own arithmetic, also where that is special."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gen
from gen.kernels.registry import make_spec
from gen.prove import kernel_sums
from gen.prove.sums import gamma
from tests.support.slow import sift

DTYPE = "f32_6xbf16"
SMALL: dict[str, Any] = {"threadblock": "64x64x32", "stages": 2}
MOST = float(np.finfo(np.float32).max)


def product(a: np.ndarray, b: np.ndarray, **more: Any) -> np.ndarray:
    """A @ B on the emulator, which sums as an H200's tensor cores do, to the bit."""
    d: np.ndarray = gen.matmul(a, b, dtype=DTYPE, device="cpu", **SMALL, **more)
    return d


def chain(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Fused multiply-adds of float32, one after another along K."""
    total = np.zeros((len(a), b.shape[1]), np.float32)
    for k in range(a.shape[1]):  # a product has 48 bits: float64 rounds nearly all sums once
        total = (np.outer(a[:, k].astype(float), b[k]) + total).astype(np.float32)
    return total


def drawn(kind: str, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    values = {
        "positive": lambda: rng.random(shape),
        "uniform": lambda: rng.uniform(-1, 1, shape),
        "normal": lambda: rng.standard_normal(shape),
        "wide": lambda: rng.choice((-1, 1), shape) * np.exp2(rng.uniform(-20, 20, shape)),
    }[kind]()
    return values.astype(np.float32)


ERRORS = [
    ("uniform", 16, {}), ("positive", 100, {}), ("wide", 200, {}), ("normal", 16, {}),
    ("positive", 1000, {}), ("uniform", 600, {"promote": 32}), ("wide", 1000, {}),
    ("normal", 300, {"split_k": 3}), ("positive", 10, {}), ("wide", 1500, {"promote": 32}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "k", "more"), sift(ERRORS, ERRORS[:3]), ids=str)
def test_errors_are_not_larger_than_those_of_fused_multiply_adds(
    kind: str, k: int, more: dict[str, Any]
) -> None:
    rng = np.random.default_rng(k)
    a, b = drawn(kind, (64, k), rng), drawn(kind, (k, 64), rng)
    exact = a.astype(np.longdouble) @ b.astype(np.longdouble)
    ours, theirs = (np.abs(d - exact) for d in (product(a, b, **more), chain(a, b)))
    assert np.sqrt(np.mean(ours**2)) <= np.sqrt(np.mean(theirs**2))
    assert ours.max() <= theirs.max()
    sums = kernel_sums.sums_of(make_spec("wgmma", dtype=DTYPE, **SMALL, **more), kernel_sums.HOPPER)
    bound = sums(a.astype(float), b.astype(float))
    assert (ours <= bound).all()
    if k >= 16:
        assert (bound <= gamma(k, 2.0**-24) * (np.abs(a) @ np.abs(b))).all()


def test_special_values() -> None:
    ordinary = [0, 1, -1.5, 2.0**100, 2.0**-100, 2.0**-30, 3 * 2.0**-110, 2**24 - 1]
    x = np.array([*ordinary, np.inf, -np.inf, np.nan, MOST, -MOST], np.float32)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        expected = np.outer(x, x[x != 2**24 - 1])  # of which no product is rounded
    assert np.array_equal(product(x[:, None], x[None, x != 2**24 - 1]), expected, equal_nan=True)


def test_special_sums() -> None:
    inf, nan = np.inf, np.nan
    sums = [
        ((inf, -MOST), inf), ((-inf, 5), -inf), ((inf, -inf), nan), ((nan, inf), nan),
        ((MOST, -MOST), 0), ((MOST, MOST), inf), ((-MOST, -MOST), -inf), ((inf, 0), inf),
    ]  # fmt: skip
    a = np.array([terms for terms, _ in sums], np.float32)
    expected = np.array([total for _, total in sums], np.float32)
    for factor in (1.0078125, 1 - 2.0**-24):  # whose other parts are 0, and negative
        assert np.array_equal(
            product(a[:4], np.full((2, 1), factor, np.float32))[:, 0], expected[:4], equal_nan=True
        )
    assert np.array_equal(product(a, np.ones((2, 1), np.float32))[:, 0], expected, equal_nan=True)


def test_small_numbers() -> None:
    x = np.array([2.0**-133, 3 * 2.0**-134, 2.0**-134, 2.0**-149], np.float32)
    found = product(x[:, None], np.full((1, 1), 2.0**100, np.float32))[:, 0]
    # To nearest multiples of 2^-133, to even ones between two.
    assert (found == np.array([1, 2, 0, 0]) * 2.0**-33).all()
