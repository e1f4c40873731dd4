"""Arrays of several dimensions: what they come to, and that it is right where they lie."""

from typing import Any

import numpy as np
import pytest

import gen
from gen.api.call import Arguments, Call, Wanted
from gen.api.operands import Own
from gen.api.problem import fit
from gen.api.views import View
from gen.compile.nvrtc import compile_cuda
from gen.device.emulated import EmulatorRunner
from gen.device.execute import Place, run_plan
from gen.errors import SpecError
from gen.kernels.registry import make_spec
from gen.source.render import render
from gen.spec.problem import ALIGNED, ONE

RNG = np.random.default_rng(0)


def some(*shape: int) -> np.ndarray:
    return RNG.integers(-3, 4, shape).astype(np.float32)


def view(array: np.ndarray | None) -> Any:
    if array is None:
        return None
    strides = tuple(step // array.itemsize for step in array.strides)
    return View(array.ctypes.data, array.shape, strides, array.dtype, 0)


def fitted(
    a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None, out: np.ndarray | None = None,
    batched: bool = True,
) -> Call:  # fmt: skip
    arguments = Arguments(view(a), view(b), view(c), view(out), None)
    return fit(arguments, Wanted(None, None, "linear", batched), 1, 0 if c is None else 2)


def heads(tokens: int, count: int, size: int) -> np.ndarray:
    """As attention has them: the heads of a token lie beside each other."""
    return some(2, tokens, count, size).transpose(0, 2, 1, 3)


# What is multiplied, the products of a launch, the launches.
CASES: dict[str, tuple[np.ndarray, np.ndarray, int, int]] = {
    "one stride": (some(3, 4, 5), some(3, 5, 6), 3, 1),
    "dimensions that collapse": (some(2, 3, 4, 5), some(2, 3, 5, 6), 6, 1),
    "one A": (some(4, 5), some(2, 3, 5, 6), 6, 1),
    "rows of one product": (some(2, 3, 4, 5), some(5, 6), 1, 1),
    "lines of one row": (some(7, 1, 9)[::2], some(9, 6), 1, 1),
    "one B for columns": (some(3, 5, 4).swapaxes(1, 2), some(5, 6), 3, 1),
    "one B for columns beside each other": (some(5, 3, 4).transpose(1, 2, 0), some(5, 6), 1, 1),
    "images with channels first": (some(2, 5, 3, 4).transpose(0, 2, 3, 1), some(5, 6), 2, 1),
    "grouped queries": (some(2, 3, 2, 4, 5), some(2, 3, 1, 5, 6), 6, 1),
    "B for the inner one": (some(2, 3, 4, 5), some(3, 5, 6), 3, 2),
    "an outer product": (some(2, 1, 4, 5), some(3, 5, 6), 3, 2),
    "heads": (heads(4, 3, 8), heads(5, 3, 8).swapaxes(2, 3), 3, 2),
    "every other": (some(6, 4, 5)[::2], some(3, 5, 6), 3, 1),
    "a vector": (some(5), some(3, 5, 6), 3, 1),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_one_launch(name: str) -> None:
    a, b, products, launches = CASES[name]
    call = fitted(a, b)
    assert (call.problem.batch.products, len(call.offsets)) == (products, launches)
    assert call.result_shape == np.matmul(a, b).shape
    one_by_one = fitted(a, b, batched=False)
    assert one_by_one.problem.batch == ONE
    assert len(one_by_one.offsets) == products * launches


def test_a_single_column_of_b_runs_along_k() -> None:
    """It is row-major as well, but is read faster as a column."""
    a, column = np.ones((5, 8), np.float32), np.ones((8, 1), np.float32)
    call = fitted(a, column)
    assert (str(call.layouts), call.problem.ldb) == ("rcr", 16)  # of one line: any will do
    assert str(fitted(a, np.ones((8, 2), np.float32)).layouts) == "rrr"
    assert str(fitted(a, np.ones((8, 3), np.float32)[:, 1:2]).layouts) == "rrr"


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_copied(name: str) -> None:
    """The launches on the arrays' own memory."""
    a, b, _, _ = CASES[name]
    out = np.full(np.matmul(a, b).shape, 99, np.float32)
    call = fitted(a, b, out=out)
    batched = call.problem.batch != ONE
    spec = make_spec("naive", threads=32, layout=str(call.layouts), batched=batched)
    module = compile_cuda(render(spec).text, name="naive.cu")
    runner = EmulatorRunner()
    flat = {n: x if x.base is None else x.base for n, x in (("A", a), ("B", b), ("D", out))}
    buffers = {n: runner.upload(x.reshape(-1), n) for n, x in flat.items()}
    starts = {n: x.ctypes.data - flat[n].ctypes.data for n, x in (("A", a), ("B", b), ("D", out))}
    for moves in call.offsets:
        places = {n: Place(buffers[n], starts[n] + moves["ABCD".index(n)]) for n in ("A", "B", "D")}
        steps = spec.plan(call.problem, ALIGNED)
        run_plan(runner, module, steps, {**places, "C": places["D"]})
    found = runner.download(buffers["D"]).reshape(out.shape)
    np.testing.assert_array_equal(found, np.matmul(a, b))


@pytest.mark.parametrize("name", ["one stride", "rows of one product", "an outer product", "heads"])
def test_arrays_of_the_host(name: str) -> None:
    a, b, _, _ = CASES[name]
    want = np.matmul(a, b)
    np.testing.assert_array_equal(gen.matmul(a, b, device="cpu"), want)
    c, bias = some(*want.shape[-2:]), some(want.shape[-1])
    found = gen.matmul(a, b, c, alpha=3, beta=-2, bias=bias, device="cpu")
    np.testing.assert_array_equal(found, 3 * want - 2 * c + bias)
    one = gen.Kernel(make_spec("naive", layout=str(fitted(a, b).layouts)), device="cpu")
    np.testing.assert_array_equal(one(a, b), want)


def test_results_of_heads_lie_beside_each_other() -> None:
    a, b = some(2, 3, 4, 5), some(2, 3, 5, 6)
    out = np.zeros((2, 4, 3, 6), np.float32).transpose(0, 2, 1, 3)
    assert fitted(a, b, out=out).problem.batch.stride_d == 6
    assert gen.matmul(a, b, out=out, device="cpu") is out
    np.testing.assert_array_equal(out, a @ b)


@pytest.mark.parametrize(
    "shapes",
    [((0, 4, 5), (5, 6)), ((3, 4, 0), (3, 0, 6)), ((2, 0, 5), (2, 5, 6)), ((3, 4, 5), (5,))],
)
def test_empty_batches(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = (some(*shape) for shape in shapes)
    np.testing.assert_array_equal(gen.matmul(a, b, device="cpu"), np.matmul(a, b))


@pytest.mark.parametrize(
    ("a", "b", "c", "message"),
    [
        ((2, 4, 5), (3, 5, 6), None, r"batches \(2,\) of A and \(3,\) of B do not broadcast"),
        ((2, 4, 5), (2, 4, 6), None, "A's columns are not as many as B's rows"),
        ((2, 4, 5), (2, 5, 6), (3, 4, 6), r"C has shape \(3, 4, 6\), which does not broadcast"),
        ((2, 4, 5), (2, 5, 6), (6,), "C has shape"),
    ],
)
def test_what_does_not_go_together(a: Any, b: Any, c: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        fitted(some(*a), some(*b), None if c is None else some(*c))


@pytest.mark.parametrize("strides", [(0, 12, 4), (12, 12, 4), (24, 12, 4)])
def test_products_of_out_have_to_be_apart(strides: tuple[int, int, int]) -> None:
    a, b = np.ones((2, 3, 3), np.float32), np.ones((3, 3), np.float32)
    out = np.lib.stride_tricks.as_strided(np.zeros(64, np.float32), (2, 3, 3), strides)
    with pytest.raises(SpecError, match=r"strides .* elements overlap; pass an array whose"):
        gen.matmul(a, b, out=out, device="cpu")


def test_batches_in_reverse_are_refused() -> None:
    with pytest.raises(SpecError, match="A has a batch in reverse"):
        fitted(some(2, 4, 5)[::-1], some(2, 5, 6))


# Shapes of the bias, the products of a launch, where the bias of each launch begins.
BIASES = [
    ((3, 6), 2, [0, 6, 12]),
    ((1, 6), 6, [0]),
    ((2, 1, 6), 3, [0, 6]),
    ((2, 3, 6), 1, [0, 6, 12, 18, 24, 30]),
]


@pytest.mark.parametrize(("shape", "count", "starts"), BIASES)
def test_each_product_may_have_a_bias_of_its_own(
    shape: tuple[int, ...], count: int, starts: list[int]
) -> None:
    a, b, bias = some(2, 3, 4, 5), some(2, 3, 5, 6), some(*shape)
    call = fit(
        Arguments(view(a), view(b), None, None, view(bias)), Wanted(None, None, "linear_bias"), 1, 0
    )
    assert call.problem.batch.products == count
    assert [moves[4] for moves in call.offsets] == [4 * i for i in starts]
    found = gen.matmul(a, b, bias=bias, device="cpu")
    np.testing.assert_array_equal(found, a @ b + bias[..., None, :])


EPILOGUE = "x * up[row, col] + scale[row] * gain[col]"


@pytest.mark.parametrize(
    ("up", "scale", "gain", "launches"),
    [
        ((4, 6), (4,), (6,), 1),
        ((3, 4, 6), (3, 4), (6,), 3),
        ((1, 4, 6), (1, 4), (3, 6), 3),
    ],
)
def test_what_an_epilogue_takes_broadcasts(up: Any, scale: Any, gain: Any, launches: int) -> None:
    operands = {"up": some(*up), "scale": some(*scale), "gain": some(*gain)}
    outer = operands["scale"][..., :, None] * operands["gain"][..., None, :]
    own = Own({name: view(x) for name, x in operands.items()}, {})
    for a, b in ((some(3, 4, 5), some(3, 5, 6)), (some(3, 4, 5), some(5, 6))):
        wanted = np.matmul(a, b) * operands["up"] + outer
        found = gen.matmul(a, b, epilogue=EPILOGUE, operands=operands, device="cpu")
        np.testing.assert_array_equal(found, wanted)
        call = fit(
            Arguments(view(a), view(b), None, None, None), Wanted(None, None, EPILOGUE), 1, 0, own
        )
        folds = b.ndim == 2 and len(up) == 3 and up[0] == 3 and len(gain) == 1
        assert len(call.offsets) == (1 if folds else launches)
        assert (call.problem.shape.m == 12) == folds


def test_an_epilogue_that_counts_rows_has_those_of_each_product() -> None:
    a, b, scale = some(3, 4, 5), some(5, 6), some(4)
    found = gen.matmul(
        a, b, epilogue="x * scale[row] + row", operands={"scale": scale}, device="cpu"
    )
    rows = np.arange(4)[:, None]
    np.testing.assert_array_equal(found, np.matmul(a, b) * scale[:, None] + rows)
