"""`gen.grouped_matmul` of groups along K, each of which gives a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gen
from gen.errors import SpecError, UsageError
from gen.kernels.registry import make_spec
from tests.api.test_groups import fake, halves  # noqa: F401
from tests.support.fake_torch import FakeGpu, Tensor
from tests.support.slow import each, slow

ENDS = np.array([3, 3, 20, 65, 70], np.int32)
ROWS, M, N = 75, 24, 16
X, G = halves(ROWS, M), halves(ROWS, N, seed=1)


def exact(x: np.ndarray, g: np.ndarray, ends: np.ndarray = ENDS) -> np.ndarray:
    bounds = zip([0, *ends], ends, strict=False)
    return np.stack([x[i:j].astype(np.float64).T @ g[i:j].astype(np.float64) for i, j in bounds])


@pytest.mark.parametrize("dtype", each(2, [np.float16, np.float64]))
def test_groups(dtype: Any) -> None:
    got = gen.grouped_matmul(X.astype(dtype).T, G.astype(dtype), ENDS)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, exact(X, G))


def test_out_and_c() -> None:
    """Apart, in place, one for all, of the other order, and beside each other in the same lines."""
    want, c = exact(X, G), halves(5, M, N, seed=2)
    out = np.full((5, M, N), 9, np.float16)
    assert gen.grouped_matmul(X.T, G, ENDS, c, alpha=2, beta=-1, out=out) is out
    np.testing.assert_array_equal(out, 2 * want - c)
    gen.grouped_matmul(X.T, G, ENDS, out, beta=1, out=out)
    np.testing.assert_array_equal(out, 3 * want - c)
    one = np.broadcast_to(c[:1], c.shape)
    np.testing.assert_array_equal(gen.grouped_matmul(X.T, G, ENDS, one, beta=1), want + c[:1])
    for order in ((0, 2, 1), (1, 0, 2)):
        shape = tuple((5, M, N)[axis] for axis in order)
        other = np.zeros(shape, np.float16).transpose(order)
        gen.grouped_matmul(X.T, G, ENDS, out=other)
        np.testing.assert_array_equal(other, want)


@slow
def test_an_epilogue() -> None:
    up = halves(M, N, seed=2)
    got = gen.grouped_matmul(X.T, G, ENDS, epilogue="x + up[row, col]", operands={"up": up})
    np.testing.assert_array_equal(got, exact(X, G) + up)
    got = gen.grouped_matmul(X.T, G, ENDS, bias=np.ones(N, np.float16))
    np.testing.assert_array_equal(got, exact(X, G) + 1)


def test_nothing() -> None:
    assert gen.grouped_matmul(X.T, G, ENDS[:0]).shape == (0, M, N)
    assert not gen.grouped_matmul(X[:0].T, G[:0], ENDS).any()
    line = X[:, :1]
    np.testing.assert_array_equal(gen.grouped_matmul(line.T, G, ENDS), exact(line, G))


@slow
def test_a_kernel_made_for_groups() -> None:
    made = gen.Kernel(make_spec("mma", dtype="f16", layout="crr", grouped_k=True))
    np.testing.assert_array_equal(made(X.T, G, offsets=ENDS), exact(X, G))
    with pytest.raises(UsageError, match="no groups of rows; use one made with --grouped"):
        made(X, halves(5, M, N), offsets=ENDS)
    rows = gen.Kernel(make_spec("mma", dtype="f16", grouped=True))
    with pytest.raises(UsageError, match="no groups along K; use one made with --grouped-k"):
        rows(X.T, G, offsets=ENDS)


def test_on_a_gpu(fake: FakeGpu) -> None:  # noqa: F811
    rows, g = Tensor.of(X), Tensor.of(G)
    x = Tensor(rows.base, 0, X.T.shape, (1, M), "float16")
    for ends in (ENDS, np.array([0, 70, 70, 70, 70], np.int32)):
        fake.log.clear()
        got = gen.grouped_matmul(x, g, Tensor.of(ends))
        np.testing.assert_array_equal(got.numpy(), exact(X, G, ends))
        assert sum("gemm" in name for name in fake.log) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a": X.T.copy()}, "A is row-major, but the kernel takes column-major"),
        ({"b": G[:-1]}, "not as many as B's rows"),
        ({"a": X.T[None]}, "groups along K take A .M, K. and B .K, N."),
        ({"out": np.zeros((4, M, N), np.float16)}, "out has shape .4, 24, 16., not the result's"),
        ({"out": np.zeros((5, M, N), np.float16)[::-1]}, "out has its matrices in reverse"),
        ({"a": X.astype(np.int8).T, "b": G.astype(np.int8)}, "no kernel .* along K of i8; use one"),
        ({"variant": "tiles"}, "tiles has no tunable 'grouped_k'"),
    ],
)
def test_refusals(change: dict[str, Any], message: str) -> None:
    with pytest.raises((SpecError, UsageError), match=message):
        gen.grouped_matmul(**{"a": X.T, "b": G, "offsets": ENDS, **change})


def test_matrices_of_the_result_do_not_overlap() -> None:
    memory = np.zeros(5 * M * N, np.float16)
    view = np.lib.stride_tricks.as_strided(memory, (5, M, N), (2 * N, 2 * N, 2))
    with pytest.raises(SpecError, match="products of D overlap"):
        gen.grouped_matmul(X.T, G, ENDS, out=view)
