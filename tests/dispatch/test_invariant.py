"""Kernels of one order of sums: the same for all M, and what has no order is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gen.device.gpus import GPUS
from gen.dispatch.invariant import MOST_PARTIALS, ROWS, rank_invariant
from gen.dispatch.ranking import Product, Ranked, choose, rank
from gen.errors import SpecError
from gen.kernels.order import EXACT, Order, check_invariant, order_of
from gen.kernels.registry import make_spec
from gen.spec.dtypes import parse_dtype
from gen.spec.problem import Alignment, GemmShape, parse_layout

H200 = GPUS["h200"]


def product(m: int, n: int, k: int, dtype: str = "f16", layout: str = "rcr") -> Product:
    return Product.packed(GemmShape(m, n, k), parse_dtype(dtype), parse_layout(layout))


def ranked(what: Product, gpu: str = "h200", **tunables: Any) -> list[Ranked]:
    return rank_invariant(what, GPUS[gpu], GPUS[gpu].own_arch, tunables)


def order(what: Product, gpu: str = "h200", **tunables: Any) -> Order:
    """That of all kernels that are ranked."""
    (found,) = {order_of(each.spec) for each in ranked(what, gpu, **tunables)}
    assert found
    return found


@settings(max_examples=5)
@given(
    st.sampled_from(["f16", "f16_f16", "bf16_f32", "f32", "f64", "tf32", "e4m3"]),
    st.integers(1, 20000),
    st.integers(0, 20000),
    st.integers(1, 100000),
    st.booleans(),
    st.sampled_from(["rcr", "ccr", "rcc", "ccc"]),
)
@example("f16", 4096, 11008, 1, True, "ccr")
def test_one_order_for_all_rows(
    dtype: str, n: int, k: int, m: int, aligned: bool, layout: str
) -> None:
    """And for all addresses and leading dimensions, layouts of A and D, and batches."""
    one = Product.packed(GemmShape(m, n, k), parse_dtype(dtype), parse_layout(layout), 3)
    other = Product(
        one.shape, one.dtypes, one.layouts, one.lda, one.ldb, Alignment(aligned, aligned), 5
    )
    assert order(one) == order(other) == order(product(77, n, k, dtype))
    assert order(one) == order(one, batched=True)


def test_the_fastest_of_the_order_depends_on_the_rows() -> None:
    tiles = [ranked(product(m, 4096, 4096))[0].spec.threadblock for m in (1, 1024, 8192)]
    assert len(set(tiles)) == 3


def test_without_it_the_order_depends_on_the_rows() -> None:
    free = [choose(product(m, 4096, 4096), H200, H200.own_arch) for m in ROWS]
    assert len({order_of(spec) for spec in free}) > 1


def test_it_costs_little_where_it_is_used_most() -> None:
    """By the model: a layer of a language model, for one token and for thousands."""
    for m, most in ((1, 1.5), (256, 1.2), (8192, 1.1)):
        what = product(m, 4096, 4096)
        assert ranked(what)[0].time <= most * rank(what, H200, H200.own_arch)[0].time


def test_sums_of_integers_have_any_order() -> None:
    what = product(1000, 4096, 4096, "i8")
    assert order(what) == EXACT
    assert ranked(what)[0].spec == choose(what, H200, H200.own_arch)
    check_invariant(make_spec("gemv", dtype="i8"))


def test_partial_sums_have_a_limit_that_a_caller_may_pass() -> None:
    for n in (1024, 4096, 16384):
        slices = order(product(9, n, 32768)).slices
        assert slices == 1 or slices * ROWS[-1] * n * 4 <= MOST_PARTIALS
    assert order(product(9, 16384, 4096), split_k=3).slices == 3


def test_what_is_asked_for_stays() -> None:
    for each in ranked(product(64, 640, 640), stages=4, epilogue="linear_bias"):
        assert (each.spec.stages, each.spec.epilogue) == (4, "linear_bias")


@pytest.mark.parametrize(
    ("tunables", "message"),
    [
        ({"split_k": 0}, r"split_k=auto takes as many slices as .*; use split_k=1 or 2, or leave"),
        ({"stream_k": 1}, r"stream_k=1 shares those tiles .*; use stream_k=0, or leave out inv"),
        ({"vectors": 1, "few": "rows"}, r"the lanes of gemv add up .*; use variant=auto, or leave"),
        ({"tail": 1}, "has the tunable 'tail'; they have"),
    ],
)
def test_what_has_no_order(tunables: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        ranked(product(64, 640, 640), **tunables)


def test_more_rows_than_the_kernels_of_the_order_take() -> None:
    with pytest.raises(SpecError, match=r"M=2147483648 is more than wgmma takes, .*; use 21474795"):
        ranked(product(2**31, 640, 640))
    assert ranked(product(3, 2**31, 640, "f32"))[0].spec.row.most > 2**31
    with pytest.raises(SpecError, match="no kernel for sm_80 has tf32 at 5x1x2147483648; use f3"):
        ranked(product(5, 1, 2**31, "tf32"), "a100")
