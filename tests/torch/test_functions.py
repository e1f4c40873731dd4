"""`gen.torch.matmul` and `gen.torch.linear` beside PyTorch's, on the emulator."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import gen  # noqa: E402
import gen.torch as gt  # noqa: E402
from gen.errors import SpecError, UsageError  # noqa: E402
from gen.torch import products  # noqa: E402


def ints(*shape: int, dtype: Any = torch.float32, seed: int = 0) -> Any:
    """Small integers, whose sums are exact in any type."""
    made = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randint(-3, 4, shape, generator=made).to(dtype)


def same(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("has_bias", [True, False])
def test_linear(dtype: str, has_bias: bool) -> None:
    kind = getattr(torch, dtype)
    x, weight = ints(2, 3, 8, dtype=kind), ints(5, 8, dtype=kind)
    bias = ints(5, dtype=kind) if has_bias else None
    for each in (x, x[0], x[0, 0], x.transpose(0, 1), x[:0], x[..., ::2].repeat(1, 1, 2)):
        same(gt.linear(each, weight, bias), torch.nn.functional.linear(each, weight, bias))


def test_types_beside_pytorchs() -> None:
    x, weight = ints(3, 8, dtype=torch.float16), ints(5, 8, dtype=torch.float16)
    bias = ints(5)
    same(gt.linear(x, weight, bias), x.float() @ weight.float().T + bias)  # as the bias: float32
    small = ints(4, 4, dtype=torch.int8)
    same(gt.matmul(small, small), small.int() @ small.int())
    with pytest.raises(SpecError, match="A is f16 and B is f32"):
        gt.matmul(x, weight.float().T)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 4), (4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((2, 3, 4), (4, 5)),
        ((2, 3, 4), (4,)),
        ((2, 3, 4), (1, 4, 5)),
        ((2, 3, 4), (2, 4, 5)),
        ((3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (3, 4, 5)),
        ((4,), (2, 4, 5)),
        ((0, 3, 4), (0, 4, 5)),
        ((2, 3, 0), (0, 5)),
    ],
)
def test_shapes_are_those_of_torch_matmul(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = ints(*a), ints(*b, seed=1)
    wanted = x @ y
    same(gt.matmul(x, y), wanted)
    out = torch.full_like(wanted, 7)
    assert gt.matmul(x, y, wanted, alpha=2, beta=-1, out=out) is out
    same(out, wanted)


def test_what_no_layout_describes_is_copied() -> None:
    x, y = ints(6, 8), ints(8, 4)
    for left in (x[:, ::2].repeat(1, 2), x.flip(0), ints(1).expand(6, 8), ints(8).expand(6, 8)):
        same(gt.matmul(left, y), left @ y)
    same(gt.matmul(y.T, x.T), y.T @ x.T)


def test_a_batch_is_one_launch_and_nothing_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """What gen.matmul gets is the tensors' own memory, with their strides."""
    calls: list[tuple[Any, ...]] = []
    multiply = gen.matmul

    def watched(a: Any, b: Any, c: Any = None, **rest: Any) -> Any:
        calls.append((a, b, c))
        return multiply(a, b, c, **rest)

    monkeypatch.setattr(products.api, "matmul", watched)
    heads, keys = ints(2, 5, 3, 4).transpose(1, 2), ints(2, 6, 3, 4).transpose(1, 2)
    for a, b, is_copied in [
        (heads, keys.mT, False),
        (heads, ints(3, 4, 5), False),
        (ints(3, 4), ints(2, 3, 4, 5)[:, ::2], False),
        (ints(4).expand(2, 3, 4), ints(2, 4, 5), True),  # its lines repeat
    ]:
        found, wanted = gt.matmul(a, b), a @ b
        same(found, wanted)
        ((left, right, _),) = calls
        assert (left is not a, right is not b) == (is_copied, False)
        calls.clear()


def test_of_what_is_expanded_only_what_is_there_is_copied() -> None:
    found = products._copied(ints(1).expand(100, 3, 4), 2)
    assert (found.stride(), found.untyped_storage().nbytes()) == ((0, 4, 1), 48)


def test_added_terms_broadcast_over_a_batch() -> None:
    a, b = ints(2, 3, 4, 8), ints(3, 8, 5)
    for c in (ints(4, 5), ints(3, 4, 5), ints(2, 1, 4, 5), ints(5, 4).T):
        same(gt.matmul(a, b, c, beta=2), a @ b + 2 * c)
    for bias in (ints(5), ints(3, 5), ints(10)[::2]):
        same(gt.matmul(a, b, bias=bias), a @ b + bias.unsqueeze(-2))
    columns = torch.zeros(5, 4).T
    gt.matmul(a[0, 0], b[0], ints(4, 5), beta=1, out=columns)
    same(columns, a[0, 0] @ b[0] + ints(4, 5))
    apart = torch.zeros(4, 10)[:, ::2]
    gt.matmul(a[0, 0], b[0], out=apart)
    same(apart, a[0, 0] @ b[0])


EPILOGUE = "relu(x) * up[row, col] + scale[row] * bias[col] - gain"


def with_operands(x: Any, w: Any, up: Any, scale: Any, bias: Any) -> Any:
    operands = {"up": up, "scale": scale, "bias": bias, "gain": 2}
    return gt.linear(x, w, epilogue=EPILOGUE, operands=operands)


def by_pytorch(x: Any, w: Any, up: Any, scale: Any, bias: Any) -> Any:
    return torch.relu(x @ w.T) * up + scale.unsqueeze(-1) * bias - 2


OPERANDS = ints(2, 3, 8), ints(5, 8), ints(2, 3, 5, seed=1), ints(2, 3, seed=2), ints(5)


def test_epilogues_of_ones_own() -> None:
    same(with_operands(*OPERANDS), by_pytorch(*OPERANDS))
    x, w, up, scale, bias = OPERANDS
    more = x, w, up.half(), scale, ints(10)[::2]
    same(with_operands(*more), by_pytorch(*more))
    same(with_operands(x, w, up.mT.contiguous().mT, scale[:1], bias[None]),
         by_pytorch(x, w, up, scale[:1], bias[None]))  # fmt: skip
    vector = gt.linear(x[0, 0], w, epilogue="x * up[row, col]", operands={"up": up[0, 0]})
    same(vector, (w @ x[0, 0]) * up[0, 0])
    out = torch.empty(5)
    gt.matmul(w, x[0, 0], epilogue="x * scale[row]", operands={"scale": bias}, out=out)
    same(out, (w @ x[0, 0]) * bias)
    relu = gt.linear(x, w, bias, epilogue="linear_bias_relu")
    same(relu, torch.relu(torch.nn.functional.linear(x, w, bias)))


def test_rows_do_not_depend_on_others() -> None:
    x, w = torch.rand(20, 64), torch.rand(10, 64)
    for epilogue in ("linear", "silu(x)"):
        every = gt.linear(x, w, epilogue=epilogue, invariant="rows")
        same(gt.linear(x[3:5], w, epilogue=epilogue, invariant="rows"), every[3:5])


@pytest.mark.parametrize("wants_gradient", [False, True])
@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"epilogue": "lin"}, UsageError, "did you mean linear"),
        ({"epilogue": "x * ("}, UsageError, "stands where a value should"),
        ({"epilogue": "x * up[row, col]"}, UsageError, "needs up"),
        (
            {"epilogue": "x * up[row, col]", "operands": {"up": ints(4)}},
            SpecError,
            "up.* has shape",
        ),
        (
            {"epilogue": "x * up[col]", "operands": {"up": ints(4).double()}},
            SpecError,
            "f64, which",
        ),
        ({"epilogue": "x * left[col]", "operands": {"left": ints(4)}}, SpecError, "use another"),
        ({"epilogue": "x * gain", "operands": {"gain": "a"}}, UsageError, "gain is a str"),
        ({"epilogue": "relu(x)", "bias": ints(4)}, UsageError, r"such as x \+ bias\[col\]"),
        ({"epilogue": "linear_bias_relu"}, UsageError, "pass bias"),
        ({"operands": {"up": ints(4)}}, UsageError, "epilogue=linear takes none"),
        ({"invariant": "columns"}, UsageError, "unknown invariant 'columns'"),
    ],
)
def test_what_an_epilogue_lacks(given: Any, error: Any, message: str, wants_gradient: bool) -> None:
    with pytest.raises(error, match=message):
        gt.linear(ints(2, 3).requires_grad_(wants_gradient), ints(4, 3), **given)


def test_out() -> None:
    a, b, c = ints(4, 6), ints(6, 5), ints(4, 5)
    wanted = a @ b + 2 * c
    assert gt.matmul(a, b, c, beta=2, out=c) is c
    same(c, wanted)
    wide = torch.zeros(4, 8)
    gt.matmul(a, b, out=wide[:, 1:6])
    same(wide[:, 1:6], a @ b)
    batch = torch.zeros(3, 2, 5).transpose(0, 1)
    x = ints(2, 3, 6)
    gt.matmul(x, b, out=batch)
    same(batch, x @ b)
    with pytest.raises(SpecError, match=r"out has shape \(6, 5\), not the result's \(2, 3, 5\)"):
        gt.matmul(x, b, out=torch.zeros(6, 5))
    with pytest.raises(UsageError, match="out has no gradient"):
        gt.matmul(a, b.requires_grad_(), out=c)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
def test_gen_matmul_takes_tensors_of_the_host(dtype: str) -> None:
    a, b = ints(3, 8, dtype=getattr(torch, dtype)), ints(8, 5, dtype=getattr(torch, dtype))
    out = torch.empty(3, 5, dtype=torch.int32 if dtype == "int8" else a.dtype)
    assert gen.matmul(a, b, out=out, device="cpu") is out
    same(out, (a.double() @ b.double()).to(out.dtype))
    same(gen.matmul(a, b, device="cpu"), out)


def test_views_with_the_other_sign() -> None:
    """gen.torch has PyTorch resolve them, gen.matmul refuses them."""
    a, b = ints(3, 8), ints(8, 5)
    negated, column = torch._neg_view(a), torch.complex(ints(8, 1), ints(8, 1, seed=1)).conj().imag
    same(gt.matmul(negated, b), -a @ b)
    same(gt.matmul(a, column, epilogue="x * x"), (a @ column) ** 2)
    for left, right in ((negated, b), (a, column)):
        with pytest.raises(UsageError, match=r"(A|B) is a view of numbers with the other sign"):
            gen.matmul(left, right, device="cpu")
        same(gen.matmul(left.resolve_neg(), right.resolve_neg(), device="cpu"), left @ right)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_what_is_refused() -> None:
    a, nested = ints(4, 4), lambda *parts: torch.nested.nested_tensor([*parts])
    with pytest.raises(SpecError, match=r"A is \(4, 4\) and B is \(3, 4\)"):
        gt.matmul(a, a[:3])
    with pytest.raises(SpecError, match=r"A is \(2, 4, 4\) and B is \(2, 3, 4\)"):
        gt.matmul(a.expand(2, 4, 4), a[:3].expand(2, 3, 4))
    with pytest.raises(SpecError, match="both vectors"):
        gt.matmul(a[0], a[0])
    with pytest.raises(UsageError, match="beta=1 needs c"):
        gt.matmul(a, a, beta=1)
    for wrong, match in [
        (lambda: gt.matmul(a.numpy(), a), "A is a ndarray; pass tensors"),
        (lambda: gt.matmul(a, a, bias=1), "bias is a int; pass tensors"),
        (lambda: gt.matmul(a, a, alpha="x"), "alpha='x' and beta=0 have to be numbers"),
        (lambda: gt.matmul(a, a, epilogue=None), "epilogue=None is no text"),
        (lambda: gt.matmul(a, a, epilogue="x * s", operands=[1]), "operands is a list; pass a"),
        (lambda: gt.linear(a.to_sparse(), a), "x is no dense tensor, but torch.sparse_coo"),
        (lambda: gt.linear(a, a[0]), r"weight has shape \(4,\), not \(N, K\)"),
        (lambda: gt.matmul(a.expand(2, 4, 4), a.expand(3, 4, 4)), "do not broadcast"),
        (lambda: gt.matmul(a, a, beta=None), "alpha=1 and beta=None have to be numbers"),
        (lambda: gt.linear(a[0, 0], a), r"x is a number, not \(\.\.\., K\)"),
        (lambda: gt.linear(a, a[None], epilogue="relu(x)"), r"weight has shape \(1, 4, 4\), not"),
        (lambda: gt.matmul(a[0], a, a[0, 0], beta=1), r"C has shape \(\)"),
        (lambda: gt.matmul(a[0], a, out=a[0, 0]), r"out has shape \(\)"),
        (lambda: gt.matmul(a, a, out=ints(1, 4).expand(4, 4)), "elements overlap; pass an"),
        (
            lambda: gt.matmul(a, a, out=ints(9).as_strided((4, 4), (1, 1))),
            "elements overlap; pass an",
        ),
        (lambda: gt.matmul(a, a, out=torch._neg_view(a)), "out is a negated view"),
        (lambda: gt.linear(nested(a, a[:2]), a), "x is no dense tensor, but nested"),
    ]:
        with pytest.raises((UsageError, SpecError), match=match):
            wrong()
    with pytest.raises(UsageError, match="A is on meta"):
        products.multiply(a.to("meta"), a.to("meta"))
    for one, number in itertools.product((a, a[0]), (2, a[0, 0])):
        with pytest.raises((UsageError, SpecError), match=r"operand 'u' is a|u has shape \(\)"):
            gt.matmul(one, a, epilogue="x * u[row, col]", operands={"u": number})
    large = torch.empty(1 << 10, 1 << 10)
    with pytest.raises(UsageError, match=r"1024 x 1024 x 1024 on the CPU .* move the arrays to"):
        gt.matmul(large, large)


def test_tensors_are_on_one_device() -> None:
    """PyTorch would take the operator of meta tensors, which computes nothing."""
    a, meta = ints(4, 4), ints(4, 4).to("meta")
    up, ends = "x * up[row, col]", torch.tensor([4], dtype=torch.int32)
    for wrong, match in [
        (lambda: gt.linear(a, meta), "x is on cpu and weight on meta; move one of them"),
        (lambda: gt.Linear.forward(_swapped(a, meta[0]), a), "x is on cpu and bias on meta"),
        (lambda: gt.linear(a, meta, epilogue="relu(x)"), "x is on cpu and weight on meta"),
        (lambda: gt.matmul(a, a, meta, beta=1), "A is on cpu and C on meta"),
        (lambda: gt.matmul(meta, a, out=a), "A is on meta and B on cpu"),
        (lambda: gt.matmul(meta, meta, out=a), "A is on meta and out on cpu"),
        (lambda: gt.matmul(a, a, epilogue=up, operands={"up": meta}), "A is on cpu and up on meta"),
        (lambda: gt.grouped_matmul(a.half(), meta[None].half(), ends), "A is on cpu and B on meta"),
        (lambda: gt.grouped_matmul(a.half(), a[None].half(), ends, bias=meta[0]), "and bias on m"),
        (lambda: gt.grouped_matmul(a, a[None], ends, epilogue=up, operands={"up": meta}), "and up"),
    ]:
        with pytest.raises(UsageError, match=match):
            wrong()
    assert gt.matmul(meta, meta).device == meta.device


def _swapped(weight: Any, bias: Any) -> Any:
    layer = gt.Linear(4, 4)
    layer.weight, layer.bias = torch.nn.Parameter(weight), torch.nn.Parameter(bias)
    return layer


def test_tf32_is_asked_for_as_pytorch_has_it() -> None:
    """By either of its switches, of which the older one may not be read when the newer is set."""
    script = (
        "import torch, gen.torch.products as p; m = torch.backends.cuda.matmul; "
        "found = [p.asks_for_tf32()]; m.{} = {}; print(*found, p.asks_for_tf32())"
    )
    for switch, value in (("allow_tf32", True), ("fp32_precision", "'tf32'")):
        done = subprocess.run(
            [sys.executable, "-c", script.format(switch, value)], capture_output=True, text=True
        )
        assert done.stdout.split() == ["False", "True"], done.stderr


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_autocast(dtype: str) -> None:
    kind = getattr(torch, dtype)
    x, weight, bias = ints(3, 8), ints(5, 8), ints(5)
    with torch.autocast("cpu", dtype=kind):
        found = gt.linear(x, weight, bias)
        product = gt.matmul(x.double(), weight.T.double())
    same(found, torch.nn.functional.linear(x, weight, bias).to(kind))
    assert product.dtype == torch.float64


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_under_autocast_out_says_what_is_added(kind: Any) -> None:
    a, b, bias = ints(3, 8), ints(8, 5), ints(5)
    c = ints(3, 5, dtype=kind)
    wanted = (a @ b + c).to(kind)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        same(gt.matmul(a, b, c.float(), beta=1, out=torch.empty_like(c)), wanted)
        same(gt.matmul(a, b, out=torch.empty_like(c), bias=bias), (a @ b + bias).to(kind))
        same(gt.matmul(a[0], b, c[0], beta=1, out=c[0].clone()), wanted[0])
        assert gt.matmul(a, b, c, beta=1, out=c) is c
    same(c, wanted)
