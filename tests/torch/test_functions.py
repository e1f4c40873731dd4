"""`gen.torch.matmul` and `gen.torch.linear` beside PyTorch's, on the emulator."""

from __future__ import annotations

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


def test_what_is_refused() -> None:
    a = ints(4, 4)
    with pytest.raises(SpecError, match="A is 4 x 4 and B is 3 x 4"):
        gt.matmul(a, a[:3])
    with pytest.raises(SpecError, match=r"A is \(2, 4, 4\) and B is \(2, 3, 4\)"):
        gt.matmul(a.expand(2, 4, 4), a[:3].expand(2, 3, 4))
    with pytest.raises(SpecError, match="both vectors"):
        gt.matmul(a[0], a[0])
    with pytest.raises(UsageError, match="beta=1 needs c"):
        gt.matmul(a, a, beta=1)
    with pytest.raises(UsageError, match="A is on meta"):
        products.multiply(a.to("meta"), a.to("meta"))
    large = torch.empty(1 << 10, 1 << 10)
    with pytest.raises(UsageError, match=r"1024 x 1024 x 1024 on the CPU .* move the arrays to"):
        gt.matmul(large, large)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_autocast(dtype: str) -> None:
    kind = getattr(torch, dtype)
    x, weight, bias = ints(3, 8), ints(5, 8), ints(5)
    with torch.autocast("cpu", dtype=kind):
        found = gt.linear(x, weight, bias)
        product = gt.matmul(x.double(), weight.T.double())
    same(found, torch.nn.functional.linear(x, weight, bias).to(kind))
    assert product.dtype == torch.float64
