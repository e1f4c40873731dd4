"""What the oracle makes of a user's own epilogue, and kernels that have one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gen.device.emulated import EmulatorRunner
from gen.kernels.registry import VARIANTS, make_spec
from gen.prove import intervals
from gen.prove.fused import Reading, results
from gen.prove.intervals import enclose
from gen.prove.verify import verify
from gen.source.render import Source, render
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmProblem, GemmShape
from tests.support.slow import sift

SHAPE = GemmShape(37, 53, 61)
GATED = (
    "silu(x) * c[row, col] + scale[row] * v[col] * s - (row < N - col ? 1 : M) "
    "where c=f16[row, col], scale=f32[row], s=scalar"
)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(data=st.data())
def test_an_interval_has_what_the_type_computes(dtype: Any, data: st.DataObject) -> None:
    """Of numbers of all sizes, infinities and NaN: each operation, rounded as numpy does."""
    width = 8 * np.dtype(dtype).itemsize
    numbers = st.lists(st.floats(width=width), min_size=4, max_size=4)
    x, y = (np.array(data.draw(numbers), dtype) for _ in range(2))
    operations = {
        "+": np.add, "*": np.multiply, "/": np.divide, "min": np.fmin, "max": np.fmax,
    }  # fmt: skip
    with np.errstate(all="ignore"):
        for name, operation in operations.items():
            found = intervals.FUNCTIONS[name](enclose(x, x, dtype), enclose(y, y, dtype))
            _holds(found, operation(x, y))
        for name in ("abs", "sqrt", "exp", "log", "tanh"):
            _holds(intervals.FUNCTIONS[name](enclose(x, x, dtype)), getattr(np, name)(x))
        for sign, compare in (("<", np.less), ("==", np.equal), ("!=", np.not_equal)):
            condition = intervals.compared(sign, enclose(x, x, dtype), enclose(y, y, dtype))
            assert np.where(compare(x, y), condition.yes, condition.no).all()


def _holds(found: intervals.Interval, value: np.ndarray) -> None:
    inside = (found.low <= value) & (value <= found.high)
    assert np.where(np.isnan(value), found.nan, inside).all()


def test_what_is_exact_stays_exact() -> None:
    x = np.arange(-5.0, 6)
    spec = make_spec("naive", epilogue="max(2 * x - 3, -x) + 0.5 * (row < 2 ? x : 1)")
    assert spec.fused
    names = {"x": enclose(x, x, np.float32), "row": np.arange(11)}
    found = Reading(names, np.dtype(np.float32)).value(spec.fused.typed(True))
    exact = np.maximum(2 * x - 3, -x) + 0.5 * np.where(np.arange(11) < 2, x, 1)
    assert (found.low == exact).all()
    assert (found.high == exact).all()


def test_a_fused_multiply_add_is_inside() -> None:
    """a * b + c with c = -fl(a * b): 0 where it is rounded twice, what was cut off where once."""
    a = np.float32(1 + 2.0**-23)
    square = enclose(a, a, np.float32)
    product = np.float64(a) * np.float64(a)
    rest = product - np.float32(product)
    minus = enclose(-np.float32(product), -np.float32(product), np.float32)
    found = intervals.added(intervals.multiplied(square, square), minus)
    assert found.low <= min(rest, 0)
    assert found.high >= max(rest, 0)


def test_integers_wrap_around_and_divide_towards_zero() -> None:
    spec = make_spec("naive", dtype="i32", epilogue="abs(x) * 3 + x / 2 - (row - 1) % 2")
    x = np.array([[-7], [2**30]], np.int32)
    found = results(spec, GemmProblem(GemmShape(2, 1, 1), 1, 1, 1, 1), {}, x)
    assert found.tolist() == [[21 - 3 + 1], [3 * 2**30 + 2**29 - 2**32]]


def right(spec: KernelSpec, source: Source | None = None) -> list[str]:
    """What is wrong, by the first trial of a shape with edges."""
    found = verify(spec, EmulatorRunner(), [SHAPE], source)
    return [result.message for result in found if not result.ok]


@pytest.mark.parametrize("variant", sift(VARIANTS, ["naive", "wgmma"]))
@pytest.mark.parametrize("layout", ["rrr", "ccc"])
def test_every_variant_has_it(variant: str, layout: str) -> None:
    assert right(make_spec(variant, layout=layout, epilogue=GATED)) == []


@pytest.mark.parametrize(
    ("right_text", "wrong_text"),
    [
        ("aux.scale[row]", "aux.scale[col]"),
        ("c_at(row, col, aux.ld_c)", "c_at(row, col, aux.ld_c + 1)"),
        ("aux.v[col]", "aux.v[0]"),
        ("aux{c_, ld_c, scale, v_, s_, M, N}", "aux{c_, ld_c, scale, v_, s_, N, M}"),
        ("/ (1.0f + expf(-t))", "/ (1.0f + 1.00001f * expf(-t))"),
    ],
)
def test_wrong_ones_are_found(right_text: str, wrong_text: str) -> None:
    spec = make_spec("naive", epilogue=GATED)
    text = render(spec).text
    assert right_text in text
    assert right(spec, Source(spec.name, text.replace(right_text, wrong_text), spec)) != []
