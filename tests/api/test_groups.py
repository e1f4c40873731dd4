"""`gen.grouped_matmul`: groups of rows, each with a matrix of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gen
from gen.errors import SpecError, UsageError
from gen.kernels.registry import make_spec
from tests.api.test_matmul import ints
from tests.support.fake_torch import FakeGpu, Tensor, install
from tests.support.slow import slow

ENDS = np.array([3, 3, 20, 65, 70], np.int32)
ROWS, K, N = 75, 24, 16


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    return install(monkeypatch)


def halves(*shape: int, seed: int = 0) -> np.ndarray:
    return ints(*shape, dtype=np.float16, seed=seed)


def exact(a: np.ndarray, b: np.ndarray, ends: np.ndarray) -> np.ndarray:
    parts = np.split(a.astype(np.float64), np.minimum(ends, len(a)))
    return np.concatenate([part @ matrix for part, matrix in zip(parts, b, strict=False)])


@pytest.mark.parametrize("dtype", [np.float16, np.int8])
def test_groups(dtype: Any) -> None:
    a, b = ints(ROWS, K, dtype=dtype), ints(5, K, N, dtype=dtype, seed=1)
    got = gen.grouped_matmul(a, b, ENDS)
    np.testing.assert_array_equal(got[:70], exact(a, b, ENDS))


def test_out_keeps_the_rows_behind_the_last_group() -> None:
    a, b = halves(ROWS, K), halves(5, K, N, seed=1)
    out = np.full((ROWS, N), 9, np.float16)
    before = out.copy()
    assert gen.grouped_matmul(a, b, ENDS, out, alpha=2, beta=-1, out=out) is out
    np.testing.assert_array_equal(out[:70], 2 * exact(a, b, ENDS) - before[:70])
    np.testing.assert_array_equal(out[70:], before[70:])


@slow
def test_views_and_an_epilogue() -> None:
    """Columns of a larger A, matrices B that are transposed, apart, or one for all."""
    a, b = halves(ROWS, 40)[:, 8:32], halves(10, N, K, seed=1)[::2].transpose(0, 2, 1)
    up = halves(ROWS, N, seed=2)
    got = gen.grouped_matmul(a, b, ENDS, epilogue="x + up[row, col]", operands={"up": up})
    np.testing.assert_array_equal(got[:70], exact(a, b, ENDS) + up[:70])
    one = np.broadcast_to(b[:1], b.shape)
    got = gen.grouped_matmul(a, one, ENDS, bias=np.ones(N, np.float16))
    np.testing.assert_array_equal(got[:70], exact(a, one, ENDS) + 1)


def test_nothing() -> None:
    a, b = halves(ROWS, K), halves(5, K, N)
    assert gen.grouped_matmul(a, b[:0], ENDS[:0]).shape == (ROWS, N)
    bias = halves(0, N)
    assert gen.grouped_matmul(a, b[:0], ENDS[:0], bias=bias).shape == (ROWS, N)
    assert gen.grouped_matmul(a, b[:0], ENDS[:0], epilogue="x + group").shape == (ROWS, N)
    assert gen.grouped_matmul(a.T, a, ENDS[:0], bias=halves(0, K)).shape == (0, K, K)
    assert gen.grouped_matmul(a[:0], b, ENDS).shape == (0, N)


def test_a_kernel_made_for_groups() -> None:
    a, b = halves(ROWS, K), halves(5, K, N, seed=1)
    made = gen.Kernel(make_spec("mma", dtype="f16", grouped=True))
    np.testing.assert_array_equal(made(a, b, offsets=ENDS)[:70], exact(a, b, ENDS))
    with pytest.raises(UsageError, match="pass offsets"):
        made(a, b[0])


def test_on_a_gpu(fake: FakeGpu) -> None:
    """Its offsets are read by the kernel alone: other ones are the same prepared call."""
    a, b = halves(ROWS, K), halves(5, K, N, seed=1)
    for ends in (ENDS, np.array([0, 70, 70, 70, 70], np.int32)):
        fake.log.clear()
        got = gen.grouped_matmul(Tensor.of(a), Tensor.of(b), Tensor.of(ends))
        np.testing.assert_array_equal(got.numpy()[:70], exact(a, b, ends))
        assert sum("gemm" in name for name in fake.log) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offsets": ENDS.astype(np.int64)}, "use adjacent elements of int32"),
        ({"offsets": ENDS[:4]}, "5 matrices, and offsets has 4"),
        ({"offsets": ENDS[::-1]}, "use adjacent elements"),
        ({"offsets": [3, 4]}, "offsets is a list, not an array"),
        ({"offsets": None}, "use gen.matmul"),
        ({"b": halves(1, 5, K, N)}, "take A .M, K. and B .groups, K, N."),
        ({"b": halves(5, K, N)[::-1]}, "matrices in reverse"),
        ({"b": halves(5, K + 1, N)}, "not as many as B's rows"),
        ({"a": halves(K, ROWS).T}, "A is column-major"),
        ({"out": halves(N, ROWS).T}, "C or out is column-major"),
        ({"a": ints(ROWS, K), "b": ints(5, K, N)}, "dtype='tf32' rounds f32"),
        ({"variant": "tiles"}, "tiles has no tunable 'grouped'"),
        ({"split_k": 2}, "grouped=false"),
        ({"operands": {"offsets": ENDS}}, "use another name"),
    ],
)
def test_refusals(change: dict[str, Any], message: str) -> None:
    given = {"a": halves(ROWS, K), "b": halves(5, K, N), "offsets": ENDS, **change}
    with pytest.raises((SpecError, UsageError), match=message):
        gen.grouped_matmul(**given)


def test_out_and_offsets_do_not_overlap() -> None:
    memory = np.zeros(ROWS * N, np.int32)
    a, b = ints(ROWS, K, dtype=np.int8), ints(5, K, N, dtype=np.int8)
    memory[:5] = ENDS
    with pytest.raises(SpecError, match="out overlaps offsets"):
        gen.grouped_matmul(a, b, memory[:5], out=memory.reshape(ROWS, N))


def test_products_without_groups() -> None:
    with pytest.raises(UsageError, match="pass offsets"):
        gen.matmul(halves(ROWS, K), halves(K, N), grouped=True)
    single = gen.Kernel(make_spec("mma", dtype="f16"))
    with pytest.raises(UsageError, match="use one made with --grouped"):
        single(halves(ROWS, K), halves(5, K, N), offsets=ENDS)


# --- operands of groups ------------------------------------------------------------------------


@slow
def test_each_group_has_a_bias_and_a_scale() -> None:
    a, b = halves(ROWS, K), halves(5, K, N, seed=1)
    bias, scale = halves(5, N, seed=2), ints(5, dtype=np.float32, seed=3)
    of_row = np.repeat(np.arange(5), np.diff(ENDS, prepend=0))
    x = exact(a, b, ENDS) + bias[of_row]
    got = gen.grouped_matmul(a, b, ENDS, bias=bias)
    np.testing.assert_array_equal(got[:70], x)
    got = gen.grouped_matmul(a, b, ENDS, bias=bias, epilogue="linear_bias_relu")
    np.testing.assert_array_equal(got[:70], np.maximum(x, 0))
    text = "(x + bias[group, col]) * scale[group] + group"
    got = gen.grouped_matmul(a, b, ENDS, epilogue=text, operands={"bias": bias, "scale": scale})
    np.testing.assert_array_equal(got[:70], x * scale[of_row, None] + of_row[:, None])


def test_each_group_along_k_has_a_bias() -> None:
    a, b, bias = halves(K, 20).T, halves(K, N, seed=1), halves(3, N, seed=2)
    ends = np.array([7, 7, K], np.int32)
    got = gen.grouped_matmul(a, b, ends, bias=bias)
    for i, k in enumerate((slice(0, 7), slice(7, 7), slice(7, K))):
        np.testing.assert_array_equal(got[i], a[:, k] @ b[k] + bias[i])


def test_operands_of_groups_that_do_not_fit() -> None:
    a, b, bias = halves(ROWS, K), halves(5, K, N, seed=1), halves(5, N, seed=2)
    own: Any = {"epilogue": "x + bias[group, col]"}
    for wrong in (bias[:4], bias.T.copy().T):
        with pytest.raises(SpecError, match="use 5 x 16 adjacent elements, one for each column of"):
            gen.grouped_matmul(a, b, ENDS, operands={"bias": wrong}, **own)
    with pytest.raises(UsageError, match=r"is a float, and epilogue has bias\[group, col\]"):
        gen.grouped_matmul(a, b, ENDS, operands={"bias": 3.0}, **own)
    with pytest.raises(UsageError, match=r"has group, and there are none; use gen.grouped_matmul"):
        gen.matmul(a, b[0], operands={"bias": bias}, **own)
    with pytest.raises(UsageError, match=r"invariant='rows' is for gen\.matmul: .*; leave it out"):
        gen.grouped_matmul(a, b, ENDS, invariant="rows")
    with pytest.raises(UsageError, match="a bias is given, but epilogue="):
        gen.grouped_matmul(a, b, ENDS, bias=bias, epilogue="x * 2")
    with pytest.raises(SpecError, match="has group, and the kernel has none"):
        make_spec("mma", dtype="f16", epilogue="x * scale[group]")
