"""The operators as PyTorch sees them: gradients, fake tensors, torch.compile, opcheck."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.autograd import forward_ad  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import gen.torch as gt  # noqa: E402
from gen.errors import SpecError, UsageError  # noqa: E402
from gen.torch import operators  # noqa: E402
from tests.support.slow import sift  # noqa: E402
from tests.torch.test_functions import (  # noqa: E402
    OPERANDS,
    by_pytorch,
    ints,
    same,
    with_operands,
)

DOUBLE = torch.float64


def leaves(*shapes: tuple[int, ...]) -> list[Any]:
    """Small integers in f64 that want a gradient."""
    return [ints(*shape, dtype=DOUBLE, seed=i).requires_grad_() for i, shape in enumerate(shapes)]


def gradients(function: Any, tensors: list[Any], weights: Any = None) -> list[Any]:
    result = function(*tensors)
    loss = result.sum() if weights is None else (result * weights).sum()
    found: list[Any] = list(torch.autograd.grad(loss, tensors))
    return found


@pytest.mark.parametrize(
    "shapes",
    [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (3, 4, 5)),
     ((4,), (4, 5)), ((3, 4), (2, 4, 5))],
)  # fmt: skip
def test_gradients_of_matmul(shapes: Any) -> None:
    tensors = leaves(*shapes)
    # The gradient of a sum is expanded: its strides are 0.
    for wanted, found in zip(
        gradients(torch.matmul, tensors), gradients(gt.matmul, tensors), strict=True
    ):
        same(found, wanted)


def test_gradients_of_all_that_is_added() -> None:
    tensors = leaves((3, 4), (4, 5), (3, 5), (5,))
    weights = ints(3, 5, dtype=DOUBLE, seed=9)

    def ours(a: Any, b: Any, c: Any, bias: Any) -> Any:
        return gt.matmul(a, b, c, alpha=2, beta=-3, bias=bias)

    def theirs(a: Any, b: Any, c: Any, bias: Any) -> Any:
        return 2 * a @ b - 3 * c + bias

    for wanted, found in zip(
        gradients(theirs, tensors, weights), gradients(ours, tensors, weights), strict=True
    ):
        same(found, wanted)


def test_gradients_of_gradients() -> None:
    x, weight, bias = leaves((2, 3), (2, 3), (2,))
    assert torch.autograd.gradcheck(gt.linear, (x, weight, bias))
    assert torch.autograd.gradgradcheck(gt.linear, (x, weight, bias))


def test_batches_of_gradients() -> None:
    """As torch.autograd.grad(..., is_grads_batched=True) takes them, by PyTorch's older vmap."""
    x, weight, bias = leaves((2, 3, 4), (5, 4), (5,))
    assert torch.autograd.gradcheck(gt.linear, (x, weight, bias), check_batched_grad=True)
    for b in (weight.mT, *leaves((2, 4, 5))):
        assert torch.autograd.gradcheck(gt.matmul, (x, b), check_batched_grad=True)


def test_only_what_is_wanted_is_kept_and_computed() -> None:
    x, (weight,) = ints(3, 4, dtype=DOUBLE), leaves((5, 4))
    result = gt.linear(x, weight)
    kept = [tensor for tensor in result.grad_fn.saved_tensors if tensor is not None]
    assert [tensor.shape for tensor in kept] == [x.shape]  # the weights' gradient needs x alone
    result.sum().backward()
    same(weight.grad, torch.ones(3, 5, dtype=DOUBLE).T @ x)


def test_gradients_of_what_broadcasts() -> None:
    tensors = leaves((2, 3, 4), (2, 4, 5), (3, 5), (2, 5))
    weights = ints(2, 3, 5, dtype=DOUBLE, seed=9)

    def ours(a: Any, b: Any, c: Any, bias: Any) -> Any:
        return gt.matmul(a, b, c, beta=-3, bias=bias)

    def theirs(a: Any, b: Any, c: Any, bias: Any) -> Any:
        return a @ b - 3 * c + bias[:, None]

    for wanted, found in zip(
        gradients(theirs, tensors, weights), gradients(ours, tensors, weights), strict=True
    ):
        same(found, wanted)


def test_gradients_of_an_epilogue() -> None:
    tensors = [x.double().requires_grad_() for x in OPERANDS]
    weights = ints(2, 3, 5, dtype=DOUBLE, seed=9)
    same(with_operands(*tensors), by_pytorch(*tensors))
    for wanted, found in zip(
        gradients(by_pytorch, tensors, weights), gradients(with_operands, tensors, weights),
        strict=True,
    ):  # fmt: skip
        same(found, wanted)


# All that an expression may have, and the same by PyTorch.
EXPRESSIONS: list[tuple[str, Any]] = [
    ("row < col && !(M == 2) ? exp(x / 9) : tanh(-x)",
     lambda x, at: torch.where(at[0] < at[1], (x / 9).exp(), torch.tanh(-x))),
    ("x * (row - 2) / 2 + (row - 2) % 2 * x + (row - 2) / 2",
     lambda x, at: x * (at[0] - 2) / 2 + torch.fmod(at[0] - 2, 2) * x
     + torch.div(at[0] - 2, 2, rounding_mode="trunc")),
    ("min(max(x, -2), N) + clamp(x, 0, 1.5) + abs(x)",
     lambda x, at: x.clamp(-2, 5) + x.clamp(0, 1.5) + x.abs()),
    ("sigmoid(x) + silu(x) + gelu(x) + relu(x) + erf(x)",
     lambda x, at: torch.sigmoid(x) + torch.nn.functional.silu(x) + torch.nn.functional.gelu(x)
     + torch.relu(x) + torch.erf(x)),
    ("log(x * x + 1) + sqrt(x * x + 1 / 2)",
     lambda x, at: torch.log(x * x + 1) + torch.sqrt(x * x + 0.5)),
]  # fmt: skip


@pytest.mark.parametrize(("epilogue", "wanted"), EXPRESSIONS)
def test_an_expression_is_the_kernels(epilogue: str, wanted: Any) -> None:
    """What PyTorch computes where a gradient is wanted, and the kernel elsewhere."""
    a, b = leaves((3, 4), (4, 5))
    at = torch.arange(3)[:, None], torch.arange(5)
    fused = gt.matmul(a.detach(), b.detach(), epilogue=epilogue)
    found = gt.matmul(a, b, epilogue=epilogue)
    torch.testing.assert_close(found, wanted(a @ b, at))
    torch.testing.assert_close(found, fused)


def test_float8_has_no_gradient() -> None:
    a = ints(16, 16).to(torch.float8_e4m3fn).requires_grad_()
    with pytest.raises(UsageError, match=r"no gradients with operands of torch\.float8"):
        operators.gradient_of(ints(16, 16), a)


def test_pytorch_counts_their_operations() -> None:
    x, w, up = ints(2, 3, 8).requires_grad_(), ints(5, 8), ints(2, 3, 5)
    for function in (gt.linear, lambda x, w: gt.matmul(x, w.T)):
        with FlopCounterMode(display=False) as counter:
            function(x, w).sum().backward()
        assert counter.get_total_flops() == 2 * (2 * 2 * 3 * 8 * 5)  # forwards, and x's gradient
    with FlopCounterMode(display=False) as counter:
        gt.linear(x.detach(), w, epilogue="x * up[row, col]", operands={"up": up})
    assert counter.get_total_flops() == 2 * 2 * 3 * 8 * 5


def test_opcheck() -> None:
    up, own = leaves((3, 5))[0], ("x * up[row, col] + gain", ["up", "gain"])
    for operator, arguments in (
        (
            operators.fused,
            (
                ints(3, 8),
                ints(8, 5),
                None,
                None,
                1.0,
                0.0,
                None,
                *own,
                [up.detach().float()],
                [2.0],
            ),
        ),
        (operators.fused, (*leaves((3, 8), (8, 5)), None, None, 1.0, 0.0, None, *own, [up], [2.0])),
        (operators.matmul, (*leaves((2, 3, 8), (2, 8, 4), (3, 4)), None, 2.0, 0.5, "rows")),
        (operators.linear, (*leaves((2, 3, 8), (4, 8), (4,)), None)),
        (operators.matmul, (*leaves((3, 8), (8, 4), (3, 4)), None, 2.0, 0.5, None)),
        (
            operators.matmul_out,
            (ints(3, 8), ints(8, 4), None, None, 1.0, 0.0, None, "linear", [], [], [], ints(3, 4)),
        ),
    ):
        torch.library.opcheck(operator, arguments)


@pytest.mark.parametrize("backend", sift(["aot_eager", "inductor"], ["aot_eager"]))
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_whole_graph_is_compiled(backend: str, dynamic: bool) -> None:
    torch._dynamo.reset()
    model = torch.nn.Sequential(gt.Linear(8, 4), torch.nn.ReLU(), gt.Linear(4, 8)).double()
    compiled = torch.compile(model, fullgraph=True, backend=backend, dynamic=dynamic)
    for rows in (3, 5):
        x = ints(2, rows, 8, dtype=DOUBLE)
        wanted = torch.autograd.grad(model(x).sum(), list(model.parameters()))
        found = torch.autograd.grad(compiled(x).sum(), list(model.parameters()))
        for one, other in zip(found, wanted, strict=True):
            same(one, other)


def test_out_is_compiled() -> None:
    torch._dynamo.reset()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def add(a: Any, b: Any, out: Any) -> Any:
        gt.matmul(a, b, out, beta=1, out=out)
        return out + 1

    a, b, out = ints(3, 4), ints(4, 5), ints(3, 5)
    wanted = a @ b + out
    same(add(a, b, out), wanted + 1)
    same(out, wanted)


def test_an_epilogue_is_compiled() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(with_operands, fullgraph=True, backend="aot_eager")
    same(compiled(*OPERANDS), by_pytorch(*OPERANDS))
    tensors = [x.double().requires_grad_() for x in OPERANDS]
    for wanted, found in zip(
        gradients(by_pytorch, tensors), gradients(compiled, tensors), strict=True
    ):
        same(found, wanted)


# -- torch.func -----------------------------------------------------------------------------------


FUNCTIONS = [
    (gt.matmul, torch.matmul, ((3, 4), (4, 5))),
    (gt.linear, torch.nn.functional.linear, ((3, 4), (5, 4), (5,))),
    (lambda a, b, c, d: gt.matmul(a, b, c, alpha=2, beta=-3, bias=d),
     lambda a, b, c, d: 2 * a @ b - 3 * c + d, ((3, 4), (4, 5), (3, 5), (5,))),
    (with_operands, by_pytorch, tuple(tuple(x.shape) for x in OPERANDS)),
]  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs", "shapes"), FUNCTIONS)
def test_derivatives_of_torch_func(ours: Any, theirs: Any, shapes: Any) -> None:
    tensors = [x.detach() for x in leaves(*shapes)]
    every = tuple(range(len(shapes)))
    for derivative in (torch.func.jacrev, torch.func.jacfwd):
        for found, wanted in zip(
            *(derivative(f, every)(*tensors) for f in (ours, theirs)), strict=True
        ):
            same(found, wanted)


@pytest.mark.parametrize(("ours", "theirs", "shapes"), FUNCTIONS)
def test_vmap(ours: Any, theirs: Any, shapes: Any) -> None:
    """Over each operand alone, over all, and of gradients."""
    tensors = [ints(*shape[:-1], 2, shape[-1], dtype=DOUBLE, seed=i)
               for i, shape in enumerate(shapes)]  # fmt: skip
    count = len(shapes)
    for which in [*({i} for i in range(count)), {*range(count)}]:
        dims = tuple(-2 if i in which else None for i in range(count))
        given = [x if i in which else x[..., 0, :] for i, x in enumerate(tensors)]
        found, wanted = (torch.func.vmap(f, dims)(*given) for f in (ours, theirs))
        same(found, wanted)
    grads = [
        torch.func.grad(lambda *x, f=f: (f(*x) ** 2).sum(), tuple(range(count)))
        for f in (ours, theirs)
    ]
    for found, wanted in zip(*(torch.func.vmap(g, dims)(*given) for g in grads), strict=True):
        same(found, wanted)


def test_torch_func_takes_no_out() -> None:
    a, out = ints(2, 3, 3), torch.zeros(2, 3, 3)
    with pytest.raises(UsageError, match="leave out out"):
        torch.func.vmap(lambda a, out: gt.matmul(a, a, out=out))(a, out)


def test_torch_func_is_compiled() -> None:
    torch._dynamo.reset()
    x, w = ints(2, 3, 4, dtype=DOUBLE), ints(4, 5, dtype=DOUBLE)

    def each(x: Any, w: Any) -> Any:
        gradient = torch.func.grad(lambda x, w: (gt.matmul(x, w) ** 2).sum())
        return torch.func.vmap(gradient, (0, None))(x, w)

    compiled = torch.compile(each, fullgraph=True, backend="aot_eager")
    same(compiled(x, w), 2 * (x @ w) @ w.T)


def test_a_derivative_forwards() -> None:
    x, w = ints(3, 4), ints(4, 5)
    with forward_ad.dual_level():
        dual = gt.matmul(forward_ad.make_dual(x, x), w)
        same(forward_ad.unpack_dual(dual).tangent, x @ w)


def test_autocast_is_compiled() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(gt.linear, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert compiled(ints(3, 8), ints(5, 8), ints(5)).dtype == torch.bfloat16


# -- a GPU ----------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_on_a_gpu(dtype: str) -> None:
    kind = getattr(torch, dtype)
    x, weight, bias = (
        ints(*s, dtype=kind).cuda().requires_grad_() for s in ((4, 33, 72), (56, 72), (56,))
    )
    for function in (gt.linear, torch.compile(gt.linear, fullgraph=True)):
        wanted = torch.nn.functional.linear(x, weight, bias)
        found = function(x, weight, bias)
        same(found, wanted)
        for one, other in zip(
            torch.autograd.grad(found.sum(), (x, weight, bias)),
            torch.autograd.grad(wanted.sum(), (x, weight, bias)),
            strict=True,
        ):
            same(one, other)


@pytest.mark.gpu
def test_batches_and_epilogues_on_a_gpu() -> None:
    """The heads of attention as views, grouped queries, what an epilogue takes of each product."""
    heads = ints(2, 5, 6, 40, dtype=torch.float16).cuda().transpose(1, 2)
    keys = ints(2, 7, 3, 40, dtype=torch.float16).cuda().transpose(1, 2)
    for a, b in [
        (heads, heads.mT),
        (heads.unflatten(1, (3, 2)), keys.unsqueeze(2).mT),
        (heads[:, :, 0], keys[0, 0].mT),
    ]:
        tensors = a.detach().requires_grad_(), b.detach().requires_grad_()
        same(gt.matmul(a, b), torch.matmul(a, b))
        for wanted, found in zip(
            *(gradients(f, list(tensors)) for f in (torch.matmul, gt.matmul)), strict=True
        ):
            same(found, wanted)
    operands = [x.cuda() for x in OPERANDS]
    same(with_operands(*operands), by_pytorch(*operands))
    a, b, bias = ints(3, 4, 8).cuda(), ints(3, 8, 5).cuda(), ints(3, 5).cuda()
    same(gt.matmul(a, b, bias=bias), a @ b + bias[:, None])
    same(torch.func.vmap(gt.matmul)(a, b), a @ b)


@pytest.mark.gpu
def test_a_training_step_in_a_cuda_graph() -> None:
    """Odd sizes, which need a workspace: all memory is the graph's own."""
    model = torch.nn.Sequential(gt.Linear(131, 67), torch.nn.ReLU(), gt.Linear(67, 131))
    model = model.cuda().half()
    x = torch.randn(45, 131, device="cuda", dtype=torch.float16)

    def step() -> Any:
        model.zero_grad(set_to_none=False)
        loss = model(x).square().mean()
        loss.backward()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    x.copy_(torch.randn_like(x))
    graph.replay()
    found = [captured.clone(), *(p.grad.clone() for p in model.parameters())]
    wanted = [step(), *(p.grad for p in model.parameters())]
    for one, other in zip(found, wanted, strict=True):
        same(one, other)


# --- without the operators


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The products that were computed without an operator."""
    found: list[Any] = []

    def spied(name: str) -> None:
        function = getattr(operators, name)

        def called(*args: Any) -> Any:
            found.append(args)
            return function(*args)

        monkeypatch.setattr(operators, name, called)

    spied("alone")
    spied("alone_linear")
    return found


@pytest.fixture
def alone(counted: list[Any], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The same, while all tensors pass for a GPU's."""
    monkeypatch.setattr(torch.Tensor, "is_cuda", True, raising=False)
    return counted


class Own(torch.Tensor):  # type: ignore[misc,name-defined]
    """A class of the user's own."""


def test_operators_that_would_do_nothing_are_left_out(alone: list[Any]) -> None:
    x, weight, bias = ints(2, 3, 8), ints(5, 8), ints(5)
    for a in (x, x[0], x[:, 0], torch.nn.Parameter(x, requires_grad=False), x[..., ::2]):
        b = weight.t() if a.shape[-1] == 8 else weight.t()[::2]
        same(gt.matmul(a, b, alpha=2), 2 * (a @ b))
        same(gt.matmul(a, b, bias=bias), a @ b + bias)
    same(gt.linear(x, weight, bias), torch.nn.functional.linear(x, weight, bias))
    same(gt.matmul(x[:1].expand(4, 3, 8), weight.t()), (x[:1] @ weight.t()).expand(4, 3, 5))
    with torch.no_grad():
        leaf = weight.clone().requires_grad_()
        same(gt.linear(x, leaf), torch.nn.functional.linear(x, weight))
    assert len(alone) == 13
    with pytest.raises(SpecError, match="A's columns are not as many as B's rows"):
        gt.matmul(x, weight)


def test_gradients_without_operators(alone: list[Any]) -> None:
    x, weight, bias, c = leaves((2, 3, 4), (5, 4), (5,), (3, 5))
    wanted = gradients(torch.nn.functional.linear, [x, weight, bias])
    for found, want in zip(gradients(gt.linear, [x, weight, bias]), wanted, strict=True):
        same(found, want)
    assert len(alone) == 3  # one forwards, two back

    def ours(a: Any, b: Any, c: Any) -> Any:
        return gt.matmul(a, b, c, alpha=2, beta=-3)

    def theirs(a: Any, b: Any, c: Any) -> Any:
        return 2 * (a @ b) - 3 * c

    operands = [x, weight.detach().t().requires_grad_(), c]
    for found, want in zip(gradients(ours, operands), gradients(theirs, operands), strict=True):
        same(found, want)
    assert torch.autograd.gradgradcheck(gt.linear, [x, weight, bias])
    assert torch.autograd.gradgradcheck(gt.matmul, operands[:2])


def test_operators_are_called_where_somebody_sees_them(alone: list[Any]) -> None:
    x, weight = ints(3, 8, dtype=DOUBLE), ints(8, 5, dtype=DOUBLE)
    want = x @ weight
    same(torch.func.vmap(gt.matmul, (0, None))(x[:, None], weight)[:, 0], want)
    alone.clear()  # of the batch that vmap has made
    same(gt.matmul(x.as_subclass(Own), weight), want)
    same(gt.matmul(torch._neg_view(x), weight), -want)
    with FlopCounterMode(display=False) as counted:
        same(gt.matmul(x, weight), want)
    assert counted.get_total_flops() == 2 * 3 * 8 * 5
    with torch.profiler.profile() as profiled:
        same(gt.matmul(x, weight), want)
    assert "gemmgen::matmul" in [event.key for event in profiled.key_averages()]
    with pytest.warns((DeprecationWarning, FutureWarning)):
        traced = torch.jit.trace(lambda a: gt.matmul(a, weight), x, check_trace=False)
    same(traced(2 * x), 2 * want)
    assert alone == []


@pytest.mark.gpu
def test_a_gpus_products_without_operators(counted: list[Any]) -> None:
    x, weight, bias = (ints(*n, dtype=DOUBLE).cuda() for n in ((2, 3, 8), (5, 8), (5,)))
    same(gt.linear(x, weight, bias), torch.nn.functional.linear(x, weight, bias))
    same(gt.matmul(x, weight.t(), bias=bias), torch.nn.functional.linear(x, weight, bias))
    with torch.autocast("cuda", dtype=torch.float16):
        found = gt.linear(x.float(), weight.float())
    same(found, torch.nn.functional.linear(x, weight).half())
    assert len(counted) == 2
    tensors = [one.requires_grad_() for one in (x, weight, bias)]
    wanted = gradients(torch.nn.functional.linear, tensors)
    for one, want in zip(gradients(gt.linear, tensors), wanted, strict=True):
        same(one, want)
    assert len(counted) == 5
