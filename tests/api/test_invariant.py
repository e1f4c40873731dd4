"""`invariant="rows"`: a row of D has the same bits whatever other rows A has, and however many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gen
from gen.device.gpus import GPUS
from gen.dispatch.invariant import rank_invariant
from gen.dispatch.ranking import Product
from gen.errors import SpecError, UsageError
from gen.kernels.registry import make_spec
from gen.spec import numerics
from gen.spec.dtypes import DTYPES
from gen.spec.problem import GemmShape, parse_layout
from tests.support.slow import slow

Array = np.ndarray


def kind(element: str) -> Any:
    """The type of numpy's arrays for a name of `gen.spec.dtypes`."""
    if element in ("bf16", "e4m3"):
        ml_dtypes = pytest.importorskip("ml_dtypes")
        return ml_dtypes.bfloat16 if element == "bf16" else ml_dtypes.float8_e4m3fn
    return numerics.storage_dtype(element)


def random(dtype: str, *shape: int, seed: int = 0) -> Array:
    """Whose sums are not exact, of very different sizes."""
    made = np.random.default_rng((seed, *shape))
    numbers = made.standard_normal(shape) * 2.0 ** made.integers(-3, 4, shape)
    found: Array = numbers.astype(kind(DTYPES[dtype].input.name))
    return found


def ordered(x: Array, is_row_major: bool) -> Array:
    return np.ascontiguousarray(x) if is_row_major else np.asfortranarray(x)


def multiply(a: Array, b: Array, invariant: str | None = "rows", **more: Any) -> Array:
    found: Array = gen.matmul(a, b, device="cpu", invariant=invariant, **more)
    return found


def same(found: Array, wanted: Array) -> bool:
    return found.shape == wanted.shape and found.tobytes() == wanted.tobytes()


def check(dtype: str, layout: str, counts: Sequence[int], most: int) -> None:
    """Rows of so many, beside the same rows of the most: alone, in another order, beside NaN."""
    order = parse_layout(layout)
    a, b = random(dtype, most, 200), ordered(random(dtype, 200, 40, seed=1), order.b)
    out = kind(DTYPES[dtype].output.name)

    def product(rows: Array) -> Array:
        d = ordered(np.zeros((len(rows), 40), out), order.c)
        return multiply(ordered(rows, order.a), b, dtype=dtype, out=d)

    whole = product(a)
    for rows in counts:
        assert same(product(a[-rows:]), whole[-rows:]), rows
    mixed = np.random.default_rng(2).permutation(most)
    assert same(product(a[mixed]), whole[mixed])
    others = a.copy()
    others[::3], others[1::3] = np.nan, np.nan if dtype == "e4m3" else np.inf
    assert same(product(others)[2::3], whole[2::3])


def test_rows_do_not_depend_on_other_rows() -> None:
    check("f16", "rcr", (1, 17), 66)


@slow
@pytest.mark.parametrize("layout", ["rcr", "rrr", "crc"])
@pytest.mark.parametrize("dtype", ["f16", "bf16_f32", "f32", "e4m3", "f64", "tf32"])
def test_nor_in_other_types_and_layouts(dtype: str, layout: str) -> None:
    check(dtype, layout, (1, 2, 7, 16, 17, 64, 65), 130)


@slow
def test_without_it_they_may() -> None:
    """So that the test above can fail."""
    a, b = random("f32", 66, 200), random("f32", 200, 40, seed=1)
    assert not same(multiply(a[:1], b, None), multiply(a, b, None)[:1])


@slow
def test_rows_of_views_batches_and_what_follows_the_sums() -> None:
    """Wherever A lies, with C, alpha, a bias and a function."""
    a, b, c = random("f16", 66, 200), random("f16", 200, 40, seed=1), random("f16", 66, 40, seed=2)
    more: dict[str, Any] = {"alpha": 0.3, "beta": 0.7, "bias": c[0], "epilogue": "linear_bias_relu"}
    whole = multiply(a, b, c=c, **more)
    wide = np.zeros((66, 209), np.float16)
    wide[:, 3:203] = a
    assert same(multiply(wide[4:9, 3:203], b, c=c[4:9], **more), whole[4:9])
    whole = multiply(a, b)
    assert same(multiply(a[:8].reshape(2, 4, 200), np.stack([b, b]))[1], whole[4:8])
    assert same(multiply(a[5], b), whole[5])


@slow
@settings(max_examples=12)
@given(st.sampled_from(["f16", "f32", "bf16_f32"]), st.integers(1, 70), st.integers(0, 500))
def test_any_columns_and_depth(dtype: str, n: int, k: int) -> None:
    a, b = random(dtype, 66, k), random(dtype, k, n, seed=1)
    whole = multiply(a, b, dtype=dtype)
    for rows in (1, 17, 65):
        assert same(multiply(a[:rows], b, dtype=dtype), whole[:rows])


@slow
@pytest.mark.parametrize(
    ("layout", "epilogue"), [("rcr", "linear_bias"), ("rrc", "linear_bias_gelu")]
)
@pytest.mark.parametrize(
    ("gpu", "dtype"),
    [("h200", "f16"), ("h200", "e4m3"), ("h200", "f32_6xbf16"), ("a100", "f16"), ("a100", "tf32"),
     ("a100", "f64"), ("a100", "f32"), ("t4", "f16")],
)  # fmt: skip
def test_all_kernels_of_an_order_give_the_same_bits(
    gpu: str, dtype: str, layout: str, epilogue: str
) -> None:
    """Also with alpha, C and a bias, which compilers may round with or without FMAs."""
    order, types = parse_layout(layout), DTYPES[dtype]
    what = Product.packed(GemmShape(70, 72, 400), types, order)
    kernels = rank_invariant(what, GPUS[gpu], GPUS[gpu].own_arch, {"epilogue": epilogue})
    assert len(kernels) > 1
    a = ordered(random(dtype, 70, 400), order.a)
    b = ordered(random(dtype, 400, 72, seed=1), order.b)
    out, made = kind(types.output.name), np.random.default_rng(3)
    bias = made.standard_normal(72).astype(out)
    c = ordered(made.standard_normal((70, 72)).astype(out), order.c)
    for alpha, beta in ((1, 0), (1.3, 0), (0.3, 0.7)):
        found = set()
        for each in kernels:
            d = ordered(np.zeros((70, 72), out), order.c)
            kernel = gen.Kernel(each.spec, device="cpu", invariant="rows")
            kernel(a, b, c, alpha=alpha, beta=beta, bias=bias, out=d)
            found.add(d.tobytes())
        assert len(found) == 1, (alpha, beta)


def test_what_is_refused() -> None:
    a = np.ones((4, 4), np.float16)
    with pytest.raises(UsageError, match="unknown invariant 'columns'; use one of rows"):
        multiply(a, a, "columns")
    with pytest.raises(SpecError, match=r"split_k=auto takes as many .*; use split_k=1 or 2, or"):
        multiply(a, a, split_k=0)
    with pytest.raises(SpecError, match=r"the lanes of gemv .*; use variant=auto, or leave out"):
        multiply(a, a, variant="gemv")
    with pytest.raises(SpecError, match="stream_k=1 shares those tiles"):
        gen.Kernel(make_spec("wgmma", schedule="pingpong", stream_k=1), invariant="rows")
    with pytest.raises(SpecError, match="stream_k=1 shares those tiles"):
        gen.Kernel(make_spec("simt", stream_k=1), invariant="rows")
    assert "invariant='rows'" in repr(gen.Kernel("tiles", invariant="rows"))
