"""gen.matmul with an epilogue of the user's own: arrays and numbers by name."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import gen
from gen.errors import GenError, SpecError

M, N, K = 20, 24, 32
_rng = np.random.default_rng(0)


def drawn(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return _rng.integers(-3, 4, shape).astype(dtype)


A, B, UP, SCALE = drawn(M, K), drawn(K, N), drawn(M, N, dtype=np.float16), drawn(M)
X = A @ B


def test_operands_are_arrays_and_numbers() -> None:
    wide = np.full((M, 2 * N), np.nan, np.float16)
    wide[:, :N] = UP
    d = gen.matmul(
        A, B, epilogue="max(x, 0) * up[row, col] + k * s[row]", device="cpu",
        operands={"up": wide[:, :N], "s": SCALE, "k": -2},
    )  # fmt: skip
    assert (d == np.maximum(X, 0) * UP - 2 * SCALE[:, None]).all()


def test_an_expression_may_have_none() -> None:
    d = gen.matmul(A, B, epilogue="row < col ? x : -x", device="cpu")
    assert (d == np.where(np.arange(M)[:, None] < np.arange(N), X, -X)).all()


def test_types_that_sums_do_not_hold() -> None:
    """It is the rule that is told, whichever kernels the shape and the layout have."""
    for b, dtype in itertools.product((B, B.T.copy().T, B[:, :4]), (np.float64, np.int32)):
        with pytest.raises(SpecError, match=r"operand 'up' is (f64|i32), which f32 does not hold"):
            gen.matmul(
                A[:2], b, epilogue="x * up[row]", operands={"up": np.ones(2, dtype)}, device="cpu"
            )


@pytest.mark.parametrize(
    ("epilogue", "operands", "message"),
    [
        ("x * up[row, col]", {}, r"needs up; pass an array with operands=\{'up': ...\}"),
        ("x * up[row, col]", {"up": UP[:3]}, r"up has shape \(3, 24\), not the result's"),
        ("x * up[row, col]", {"up": np.asfortranarray(UP)}, "up is not row-major"),
        ("x * up[row, col]", {"up": UP, "v": SCALE}, r"has no v\[row\]; leave it out"),
        ("x * up[col]", {"up": SCALE}, "24 adjacent elements, one for each column"),
        ("x * gain", {"gain": "a"}, "gain='a' is no number"),
        ("x * gain", {"gain": SCALE[0, ...]}, r"takes gain as a number, .* gain\.item\(\)"),
        ("linear", {"up": UP}, "epilogue=linear takes none"),
        ("x * bias[col]", {}, "needs bias; pass an array"),
        ("linea", {}, "did you mean linear"),
        (3, {}, "epilogue=3 is no text"),
        ("x * gain", [2], "operands is a list; pass a dict"),
    ],
)
def test_what_does_not_fit(epilogue: str, operands: dict[str, Any], message: str) -> None:
    with pytest.raises(GenError, match=message):
        gen.matmul(A, B, epilogue=epilogue, operands=operands, device="cpu")


def test_the_result_does_not_overlap_operands() -> None:
    out = np.zeros((M, N), np.float32)
    with pytest.raises(GenError, match="out overlaps rest"):
        gen.matmul(A, B, epilogue="x + rest[row, col]", operands={"rest": out}, out=out)
