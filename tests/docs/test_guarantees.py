"""What docs/cpp.md says that a kernel guarantees, on the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gen
from tests.support.slow import each, sift

INF, NAN = np.inf, np.nan

_SMALL = {"threadblock": "64x64x32", "warp": "32x32"}
KERNELS: dict[str, dict[str, Any]] = {
    "f32 on CUDA cores": {"variant": "naive", "dtype": "f32"},
    "f16 on CUDA cores": {"variant": "tiles", "dtype": "f16", "tile": 8},
    "slices": {"variant": "mma", "dtype": "f16", "split_k": 2, **_SMALL},
    "sums in f16": {"variant": "mma", "dtype": "f16_f16", **_SMALL},
    "TMA": {"variant": "mma_tma", "dtype": "f16", "stages": 2, **_SMALL},
    "wgmma": {"variant": "wgmma", "dtype": "f16", "threadblock": "64x64x32", "stages": 2},
}


@pytest.fixture(params=sift(KERNELS, ("f32 on CUDA cores", "slices")))
def kernel(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What to call `gen.matmul` with."""
    return {"device": "cpu", **KERNELS[request.param]}


def element_type(kernel: dict[str, Any]) -> Any:
    return np.float32 if kernel["dtype"] in ("f32", "tf32") else np.float16


def multiply(kernel: dict[str, Any], row: dict[int, float], b: float = 1, **more: Any) -> Any:
    """D, one element, of a row of A that is 0 but for `row`, and a column of `b` alone."""
    a = np.zeros((1, 70), element_type(kernel))
    for at, value in row.items():
        a[0, at] = value
    (d,) = gen.matmul(a, np.full((70, 1), b, a.dtype), **more, **kernel).ravel()
    return d


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_nan_and_infinity(kernel: dict[str, Any]) -> None:
    assert np.isnan(multiply(kernel, {40: NAN}))
    assert np.isnan(multiply(kernel, {}, NAN))
    assert np.isnan(multiply(kernel, {}, INF))
    assert multiply(kernel, {3: INF}) == INF
    assert multiply(kernel, {60: -INF}) == -INF
    assert np.isnan(multiply(kernel, {3: INF, 60: -INF}))


def test_subnormal_numbers(kernel: dict[str, Any]) -> None:
    least = np.finfo(element_type(kernel)).smallest_subnormal
    assert multiply(kernel, {7: least, 50: least}) == 2 * least


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", each(3, ["slices", "TMA", "wgmma"]))
@pytest.mark.slow
def test_operands_of_tf32_are_rounded_to_nearest(name: str) -> None:
    kernel = {"device": "cpu", **KERNELS[name], "dtype": "tf32"}
    for x, rounded in (
        (1 + 2**-11 - 2**-23, 1),
        (-1 - 2**-11 - 2**-23, -1 - 2**-10),
        (2 - 2**-23, 2),
        (5 * 2**-138, 2**-136),
    ):
        assert multiply(kernel, {3: x}) == rounded
        assert multiply(kernel, {3: 1}, x) == rounded
    largest = np.finfo(np.float32).max
    assert multiply(kernel, {3: largest}) == INF
    assert multiply(kernel, {3: -largest}) == -INF
    assert multiply(kernel, {3: largest * np.float32(1 - 2**-11)}) < INF


def test_a_sum_starts_at_plus_zero(kernel: dict[str, Any]) -> None:
    assert not np.signbit(multiply(kernel, {}, -1))
    assert np.signbit(multiply(kernel, {}, alpha=-1))


def test_results_are_rounded_to_even_and_overflow(kernel: dict[str, Any]) -> None:
    largest = float(np.finfo(element_type(kernel)).max)
    assert multiply(kernel, {0: largest, 1: largest}) == INF
    assert multiply(kernel, {0: -largest, 1: -largest}) == -INF
    if element_type(kernel) == np.float16:
        assert multiply(kernel, {0: 1, 1: 2**-11}) == 1
        assert multiply(kernel, {0: 1 + 2**-10, 1: 2**-11}) == 1 + 2**-9


def test_epilogues_of_what_is_no_number(kernel: dict[str, Any]) -> None:
    bias = np.zeros(1, element_type(kernel))
    relu = {"bias": bias, "epilogue": "linear_bias_relu"}
    assert np.isnan(multiply(kernel, {0: NAN}, **relu))
    assert multiply(kernel, {0: -INF}, **relu) == 0
    assert np.isnan(multiply(kernel, {0: -INF}, bias=bias, epilogue="linear_bias_gelu"))


def test_alpha_and_beta_of_0(kernel: dict[str, Any]) -> None:
    assert np.isnan(multiply(kernel, {40: NAN}, alpha=0))
    c = np.full((1, 1), NAN, element_type(kernel))
    assert multiply(kernel, {0: 3}, c=c, beta=0) == 3


def test_c_in_place_of_d(kernel: dict[str, Any]) -> None:
    c = np.ones((1, 1), element_type(kernel))
    assert multiply(kernel, {0: 3}, c=c, beta=2, out=c) == 5
    assert c == 5


@pytest.mark.parametrize("variant", each(2, ["naive", "mma"]))
def test_integers_wrap_around(variant: str) -> None:
    name = np.int8 if variant == "mma" else np.int32
    a = np.full((1, 9), np.iinfo(name).max, name)
    wide = int(a[0, 0]) ** 2 * 9 * (2**31 - 1)
    (d,) = gen.matmul(a, a.T, alpha=2**31 - 1, variant=variant, device="cpu").ravel()
    assert d == (wide + 2**31) % 2**32 - 2**31
