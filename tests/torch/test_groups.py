"""`gen.torch.grouped_matmul`: groups of rows and along K, with gradients, on the emulator."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import gen.torch as gt  # noqa: E402
from gen.errors import SpecError, UsageError  # noqa: E402
from gen.torch import groups  # noqa: E402
from tests.torch.test_functions import ints, same  # noqa: E402

DOUBLE = torch.float64
ENDS = torch.tensor([2, 2, 7, 9], dtype=torch.int32)
ROWS, K, N = 10, 5, 3  # the last row is in no group


def by_pytorch(a: Any, b: Any, ends: Any = ENDS) -> Any:
    """Group by group, with zeros where no group is."""
    bounds = list(zip([0, *ends.tolist()], ends.tolist(), strict=False))
    if b.dim() == 2:
        return torch.stack([a[:, i:j] @ b[i:j] for i, j in bounds])
    parts = [a[i:j] @ b[g] for g, (i, j) in enumerate(bounds)]
    return torch.cat([*parts, a[bounds[-1][1] :] @ torch.zeros_like(b[0])])


def leaves(*shapes: tuple[int, ...]) -> list[Any]:
    return [ints(*shape, dtype=DOUBLE, seed=i).requires_grad_() for i, shape in enumerate(shapes)]


OF_ROWS, ALONG_K = ((ROWS, K), (4, K, N)), ((K, ROWS), (ROWS, N))


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("shapes", [OF_ROWS, ALONG_K])
def test_products(shapes: Any, dtype: str) -> None:
    """Also of views that lie in no order that a kernel takes."""
    a, b = (ints(*shape, dtype=getattr(torch, dtype)) for shape in shapes)
    wanted = by_pytorch(a, b)
    for left in (a, a.mT.contiguous().mT, torch.stack([a, a], -1)[..., 0]):
        same(gt.grouped_matmul(left, b, ENDS), wanted)
    for right in (b.mT.contiguous().mT, torch.stack([b, b], -1)[..., 0]):
        same(gt.grouped_matmul(a, right, ENDS.long()), wanted)


@pytest.mark.parametrize("shapes", [OF_ROWS, ALONG_K])
def test_gradients(shapes: Any) -> None:
    """The gradient of a sum is expanded: its strides are 0."""
    tensors = leaves(*shapes)
    for weigh in (lambda x: x, lambda x: x * ints(*x.shape, dtype=DOUBLE, seed=7)):
        wanted = torch.autograd.grad(weigh(by_pytorch(*tensors)).sum(), tensors)
        found = torch.autograd.grad(weigh(gt.grouped_matmul(*tensors, ENDS)).sum(), tensors)
        for one, other in zip(found, wanted, strict=True):
            same(one, other)


@pytest.mark.parametrize("shapes", [OF_ROWS, ALONG_K])
def test_gradients_of_gradients(shapes: Any) -> None:
    a, b = leaves(*shapes)
    ends = torch.tensor([4, 1, 100], dtype=torch.int32)  # which fall, and are beyond
    b = b if b.dim() == 2 else b[:3]

    def product(a: Any, b: Any) -> Any:
        return gt.grouped_matmul(a, b, ends)

    assert torch.autograd.gradcheck(product, (a, b), fast_mode=True)
    assert torch.autograd.gradgradcheck(product, (a, b), fast_mode=True)


def test_only_what_is_wanted_is_kept() -> None:
    x, (weights,) = ints(*OF_ROWS[0], dtype=DOUBLE), leaves(OF_ROWS[1])
    kept = gt.grouped_matmul(x, weights, ENDS).grad_fn.saved_tensors
    assert [tensor is not None for tensor in kept] == [True, False, True]


@pytest.mark.parametrize("shapes", [OF_ROWS, ALONG_K])
def test_opcheck(shapes: Any) -> None:
    torch.library.opcheck(groups.operator, (*leaves(*shapes), ENDS))


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_whole_graph_is_compiled(dynamic: bool) -> None:
    torch._dynamo.reset()

    def loss(x: Any, up: Any, down: Any, ends: Any) -> Any:
        return gt.grouped_matmul(gt.grouped_matmul(x, up, ends).relu(), down, ends).square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for rows in (ROWS, ROWS + 3):
        tensors = leaves((rows, K), (4, K, N), (4, N, 2))
        wanted = torch.autograd.grad(loss(*tensors, ENDS), tensors)
        found = torch.autograd.grad(compiled(*tensors, ENDS), tensors)
        for one, other in zip(found, wanted, strict=True):
            same(one, other)


def test_torch_func_and_autocast() -> None:
    a, b = (x.detach() for x in leaves(*OF_ROWS))

    def loss(b: Any) -> Any:
        return gt.grouped_matmul(a, b, ENDS).square().sum()

    (wanted,) = torch.autograd.grad(loss(leaf := b.clone().requires_grad_()), leaf)
    same(torch.func.grad(loss)(b), wanted)
    _, tangent = torch.func.jvp(lambda b: gt.grouped_matmul(a, b, ENDS), (b,), (b,))
    same(tangent, by_pytorch(a, b))
    with pytest.raises(UsageError, match="cannot batch groups"):
        torch.vmap(lambda a: gt.grouped_matmul(a, b, ENDS))(torch.stack([a, a]))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = gt.grouped_matmul(a.float(), b.float(), ENDS)
    same(found, by_pytorch(a, b).bfloat16())


def test_operations_are_counted() -> None:
    for shapes in (OF_ROWS, ALONG_K):
        with FlopCounterMode(display=False) as counter:
            gt.grouped_matmul(*(ints(*shape, dtype=DOUBLE) for shape in shapes), ENDS)
        assert counter.get_total_flops() == 2 * ROWS * K * N


@pytest.mark.gpu
@pytest.mark.parametrize("sizes", [(136, 72), (33, 7)])
def test_a_step_in_a_cuda_graph(sizes: tuple[int, int]) -> None:
    """Replayed with other ends; with odd sizes, which need a workspace."""
    k, n = sizes
    x, weights = ints(300, k, dtype=torch.float16), ints(5, k, n, dtype=torch.float16)
    x, weights = (one.cuda().requires_grad_() for one in (x, weights))
    ends = torch.tensor([40, 40, 41, 211, 290], dtype=torch.int32, device="cuda")

    def step(product: Any) -> list[Any]:
        result = product(x, weights, ends)
        return [result, *torch.autograd.grad(result, (x, weights), torch.ones_like(result))]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step(gt.grouped_matmul)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step(gt.grouped_matmul)
    for others in ([40, 40, 41, 211, 290], [0, 0, 300, 300, 300], [7, 64, 128, 130, 131]):
        ends.copy_(torch.tensor(others, dtype=torch.int32))
        graph.replay()
        for found, wanted in zip(captured, step(by_pytorch), strict=True):
            same(found, wanted)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offsets": ENDS.float()}, "offsets is torch.float32 .* use a vector of int32"),
        ({"offsets": ENDS[None]}, "of shape .1, 4.; use a vector"),
        ({"offsets": ENDS[:3]}, "4 matrices, and offsets has 3"),
        ({"offsets": [2, 4]}, "offsets is a list"),
        ({"offsets": None}, "offsets is a NoneType|offsets is None"),
        ({"a": ints(2, ROWS, K)}, "groups of rows take A .M, K."),
        ({"b": ints(4, K + 1, N)}, "not as many as B's rows"),
        ({"a": ints(ROWS, K), "b": ints(4, K, N)}, "no groups of float32 in full precision"),
        (
            {"a": ints(4000, 400, dtype=DOUBLE), "b": ints(4, 400, 400, dtype=DOUBLE)},
            "more than gen's emulator should take",
        ),
    ],
)
def test_refusals(change: dict[str, Any], message: str) -> None:
    given = {"a": ints(ROWS, K, dtype=DOUBLE), "b": ints(4, K, N, dtype=DOUBLE), "offsets": ENDS}
    with pytest.raises((SpecError, UsageError), match=message):
        gt.grouped_matmul(**{**given, **change})


# --- epilogues ---------------------------------------------------------------------------------

_SCALED = "silu(x + bias[group, col]) * scale[group] + group"


def _own(dtype: Any = DOUBLE) -> dict[str, Any]:
    return {"bias": ints(4, N, dtype=dtype, seed=5), "scale": ints(4, dtype=dtype, seed=6)}


def _scaled(x: Any, own: dict[str, Any]) -> Any:
    """By PyTorch, of the products x."""
    if x.dim() == 3:
        each = own["bias"][:, None], own["scale"][:, None, None], torch.arange(4)[:, None, None]
    else:
        ids = torch.tensor([0, 0, 2, 2, 2, 2, 2, 3, 3, 3])
        each = own["bias"][ids], own["scale"][ids][:, None], ids[:, None]
    found = torch.nn.functional.silu(x + each[0]) * each[1] + each[2]
    return found if x.dim() == 3 else torch.cat([found[:9], torch.zeros_like(found[9:])])


@pytest.mark.parametrize("shapes", [OF_ROWS, ALONG_K])
def test_epilogues_of_groups(shapes: Any) -> None:
    a, b = (x.detach() for x in leaves(*shapes))
    own = _own()
    wanted = _scaled(by_pytorch(a, b), own)
    found = gt.grouped_matmul(a, b, ENDS, epilogue=_SCALED, operands=own)
    torch.testing.assert_close(found, wanted)
    x = by_pytorch(a, b)
    of_row = own["bias"][:, None] if x.dim() == 3 else own["bias"][[0, 0, 2, 2, 2, 2, 2, 3, 3, 3]]
    got = gt.grouped_matmul(a, b, ENDS, bias=own["bias"], epilogue="linear_bias_relu")
    same(got[..., :9, :], torch.relu(x + of_row)[..., :9, :])
    same(gt.grouped_matmul(a, b, ENDS, bias=own["bias"][0])[..., :9, :],
         (x + own["bias"][0])[..., :9, :])  # fmt: skip


@pytest.mark.parametrize("shapes", [OF_ROWS, ALONG_K])
def test_gradients_through_epilogues_of_groups(shapes: Any) -> None:
    tensors, own = leaves(*shapes), _own()
    every = [*tensors, *(x.requires_grad_() for x in own.values())]

    def found(a: Any, b: Any, bias: Any, scale: Any) -> Any:
        given = {"bias": bias, "scale": scale}
        return gt.grouped_matmul(a, b, ENDS, epilogue=_SCALED, operands=given)

    wanted = torch.autograd.grad(_scaled(by_pytorch(*tensors), own).sum(), every)
    for one, other in zip(torch.autograd.grad(found(*every).sum(), every), wanted, strict=True):
        torch.testing.assert_close(one, other)
    assert torch.autograd.gradcheck(found, every, fast_mode=True)
    compiled = torch.compile(found, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*every), found(*every))
    with torch.no_grad():
        torch.testing.assert_close(compiled(*every), found(*every))


@pytest.mark.parametrize("shapes", [OF_ROWS, ALONG_K])
def test_no_groups(shapes: Any) -> None:
    a, b = leaves(*shapes)
    b = b[:0].detach().requires_grad_() if b.dim() == 3 else b
    bias, ends = torch.zeros(0, N, dtype=DOUBLE, requires_grad=True), ENDS[:0]
    wanted = torch.zeros((ROWS, N) if b.dim() == 3 else (0, K, N), dtype=DOUBLE)
    for epilogue in ("linear", "linear_bias_relu"):
        with torch.no_grad():
            same(gt.grouped_matmul(a, b, ends, bias=bias, epilogue=epilogue), wanted)
        found = gt.grouped_matmul(a, b, ends, bias=bias, epilogue=epilogue)
        same(found.detach(), wanted)
        for x, gradient in zip(
            (a, b, bias), torch.autograd.grad(found.sum(), (a, b, bias)), strict=True
        ):
            same(gradient, torch.zeros_like(x))
    numbered = gt.grouped_matmul(a, b, ends, epilogue="x + group")
    same(numbered.detach(), wanted)


def test_operands_of_groups_that_do_not_fit() -> None:
    a, b = (x.detach() for x in leaves(*OF_ROWS))
    for more in ({}, {"scale": torch.ones(3, dtype=DOUBLE)}, {"scale": 2.0}):
        with pytest.raises((SpecError, UsageError), match="scale"):
            gt.grouped_matmul(a, b, ENDS, epilogue="x * scale[group]", operands=more)
    given = {"scale": torch.ones(3, dtype=DOUBLE, requires_grad=True)}
    with pytest.raises((SpecError, UsageError), match="scale"):
        gt.grouped_matmul(a, b, ENDS, epilogue="x * scale[group]", operands=given)
    with pytest.raises(UsageError, match="a bias is given, but epilogue=x has none"):
        gt.grouped_matmul(a, b, ENDS, epilogue="x", bias=torch.ones(N, dtype=DOUBLE))


def test_opcheck_of_an_epilogue() -> None:
    a, b = leaves(*OF_ROWS)
    own = _own()
    args = (a, b, ENDS, _SCALED, list(own), list(own.values()), [])
    torch.library.opcheck(groups.fused, args)
