"""The operators: `torch.ops.gemmgen.matmul`, `.linear`, `.fused` and `.matmul_out`.

Gradients of the first two are products of the same operators, of transposed views, so that they
have gradients themselves. `fused` has an epilogue in its kernel where no gradient is wanted; where
one is, it is `matmul` and operations of PyTorch. Fake tensors, as torch.compile traces with, get
shapes and types alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.flop_counter import register_flop_formula

from gen.api.problem import dtypes_of
from gen.errors import UsageError
from gen.torch.elementwise import applied
from gen.torch.products import dtype_of, multiply, shape_of
from gen.torch.vmap import batched

_library = torch.library.Library("gemmgen", "DEF")
_MATMUL = "Tensor a, Tensor b, Tensor? c, Tensor? bias, float alpha, float beta, str? invariant"
# Of operands, names are those of tensors, then those of numbers.
_FUSED = f"{_MATMUL}, str epilogue, str[] names, Tensor[] tensors, float[] numbers"
# Without defaults: a gradient's function sees only the arguments that were passed.
_library.define(f"matmul({_MATMUL}) -> Tensor")
_library.define("linear(Tensor x, Tensor weight, Tensor? bias, str? invariant) -> Tensor")
_library.define(f"fused({_FUSED}) -> Tensor")
_library.define(f"matmul_out({_FUSED}, Tensor(a!) out) -> ()")

matmul = torch.ops.gemmgen.matmul.default
linear = torch.ops.gemmgen.linear.default
fused = torch.ops.gemmgen.fused.default
matmul_out = torch.ops.gemmgen.matmul_out.default


# --- what they compute


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None, invariant: str | None) -> Tensor:
    return multiply(x, weight.t(), None, bias, invariant=invariant)


def named(names: Sequence[str], tensors: Sequence[Tensor], numbers: Sequence[float]) -> Any:
    """Operands by name: tensors, then numbers."""
    return dict(zip(names, [*tensors, *numbers], strict=True))


def _fused(*args: Any) -> Tensor:
    *first, epilogue, names, tensors, numbers = args
    return multiply(*first, epilogue=epilogue, operands=named(names, tensors, numbers))


def _matmul_out(*args: Any) -> None:
    *first, epilogue, names, tensors, numbers, out = args
    own = named(names, tensors, numbers)
    multiply(*first, epilogue=epilogue, operands=own, out=out)


for _device in ("CPU", "CUDA"):
    _library.impl("matmul", multiply, _device)
    _library.impl("linear", _linear, _device)
    _library.impl("fused", _fused, _device)
    _library.impl("matmul_out", _matmul_out, _device)


# --- fake tensors


def _like_matmul(a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None, *_: Any) -> Tensor:
    return a.new_empty(shape_of(a, b), dtype=dtype_of(a, b, c, bias))


def _like_linear(x: Tensor, weight: Tensor, bias: Tensor | None, *_: Any) -> Tensor:
    return _like_matmul(x, weight.t(), None, bias)


torch.library.register_fake("gemmgen::matmul", _like_matmul, lib=_library)
torch.library.register_fake("gemmgen::linear", _like_linear, lib=_library)
torch.library.register_fake("gemmgen::fused", _like_matmul, lib=_library)
torch.library.register_fake("gemmgen::matmul_out", lambda *_: None, lib=_library)


# --- what they count as


def _flops(a: Any, b: Any, *_: Any, out_shape: Any, **__: Any) -> int:
    """Of shapes: two for each multiplication and addition of the product alone."""
    found: int = 2 * prod(out_shape) * a[-1]
    return found


_COUNTED = [getattr(torch.ops.gemmgen, name) for name in ("matmul", "linear", "fused")]
register_flop_formula(_COUNTED)(_flops)


# --- gradients


def product(
    a: Tensor, b: Tensor, c: Tensor | None = None, bias: Tensor | None = None,
    alpha: float = 1, beta: float = 0, invariant: str | None = None,
) -> Tensor:  # fmt: skip
    """The operator `matmul`, which the transformations of torch.func know, too."""
    if is_alone(a, b, c, bias):
        return alone(a, b, c, bias, alpha, beta, invariant)
    run = _transformed if is_transformed() else matmul
    found: Tensor = run(a, b, c, bias, alpha, beta, invariant)
    return found


def is_alone(a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None) -> bool:
    """Whether an operator would do nothing with tensors of a GPU but run its kernel.

    Then `alone` does that in a third of the time that PyTorch takes to find the operator, and its
    gradient. An operator does more under autocast, torch.func and torch.compile, for a tracer, a
    profiler or a mode that looks at operators, and for classes of tensors.
    """
    if torch.compiler.is_compiling():
        return False
    for x in (a, b, c, bias):
        if x is not None and (type(x) not in _PLAIN or not x.is_cuda or x.is_neg()):
            return False
    return not (
        torch.is_autocast_enabled("cuda")
        or is_transformed()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._get_tracing_state()
        or torch.autograd._profiler_enabled()
    )


_PLAIN = (Tensor, torch.nn.Parameter)


def alone(a: Tensor, b: Tensor, *rest: Any) -> Tensor:
    """What the operator `matmul` computes, without it."""
    c, bias = rest[:2]
    if torch.is_grad_enabled() and (
        a.requires_grad
        or b.requires_grad
        or (c is not None and c.requires_grad)
        or (bias is not None and bias.requires_grad)
    ):
        found: Tensor = _Alone.apply(a, b, *rest)
        return found
    return multiply(a, b, *rest)


def alone_linear(x: Tensor, weight: Tensor, bias: Tensor | None, invariant: str | None) -> Tensor:
    """What the operator `linear` computes, without it."""
    if torch.is_grad_enabled() and (
        x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    ):
        found: Tensor = _AloneLinear.apply(x, weight, bias, invariant)
        return found
    return _linear(x, weight, bias, invariant)


def is_transformed() -> bool:
    """Whether torch.func transforms what runs, or a derivative is taken forwards.

    An operator with a gradient that `torch.library` registers cannot be transformed, and silently
    has no derivative forwards.
    """
    forwards: bool = forward_ad._current_level >= 0
    return forwards or bool(torch._C._are_functorch_transforms_active())


def has_derivative(*tensors: Tensor | None) -> bool:
    """Whether one is wanted of what is computed of these."""
    required = (x is not None and x.requires_grad for x in tensors)
    return is_transformed() or (torch.is_grad_enabled() and any(required))


def below_autograd(operator: Any, *args: Any) -> Tensor:
    """What an operator computes, where its own rule for autograd has called this."""
    with torch._C._AutoDispatchBelowAutograd():
        found: Tensor = operator(*args)
    return found


def gradient_of(g: Tensor, operand: Tensor) -> Tensor:
    """The result's gradient in the type that a product with an operand takes."""
    if operand.dtype.itemsize == 1:
        raise UsageError(
            f"gen computes no gradients with operands of {operand.dtype}; convert them, or detach "
            "them"
        )
    return g.to(operand.dtype)


def _keep(ctx: Any, left: Tensor, right: Tensor, wanted: tuple[bool, bool]) -> None:
    """Saves of each operand what the other's gradient needs, and no more."""
    ctx.save_for_backward(left if wanted[1] else None, right if wanted[0] else None)


def _rows(x: Tensor) -> Tensor:
    """The rows of a batch as those of one matrix. (PyTorch's older vmap has no flatten.)"""
    return x if x.dim() == 2 else x.reshape(prod(x.shape[:-1]), x.shape[-1])


def _shape(x: Tensor | None) -> Any:
    return None if x is None else x.shape


def _matmul_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, b, c, bias, ctx.alpha, ctx.beta, ctx.invariant = inputs
    ctx.shapes = [_shape(x) for x in (a, b, c, bias)]
    ctx.shape, ctx.dtype = output.shape, output.dtype
    _keep(ctx, a, b, ctx.needs_input_grad[:2])


def _matmul_backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    (a, b), alpha = ctx.saved_tensors, ctx.alpha
    shape_a, shape_b, shape_c, shape_bias = ctx.shapes
    to_a, to_b, to_c, to_bias = ctx.needs_input_grad[:4]
    grad_a = grad_b = None
    if to_a:
        grad_a = product(gradient_of(g, b), b.mT, alpha=alpha, invariant=ctx.invariant)
        grad_a = grad_a.sum_to_size(shape_a)
    if to_b and len(shape_b) == 2:
        grad_b = product(_rows(a).t(), _rows(gradient_of(g, a)), alpha=alpha)
    elif to_b:
        grad_b = product(a.mT, gradient_of(g, a), alpha=alpha).sum_to_size(shape_b)
    grad_c = (ctx.beta * g).sum_to_size(shape_c) if to_c else None
    grad_bias = g.sum(-2).sum_to_size(shape_bias) if to_bias else None
    return grad_a, grad_b, grad_c, grad_bias, None, None, None


def _linear_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, _, ctx.invariant = inputs
    _keep(ctx, x, weight, ctx.needs_input_grad[:2])


def _linear_backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    to_x, to_weight, to_bias = ctx.needs_input_grad[:3]
    return (
        product(gradient_of(g, weight), weight, invariant=ctx.invariant) if to_x else None,
        product(_rows(gradient_of(g, x)).t(), _rows(x)) if to_weight else None,
        _rows(g).sum(0) if to_bias else None,
        None,
    )


torch.library.register_autograd(
    "gemmgen::matmul", _matmul_backward, setup_context=_matmul_setup, lib=_library
)
torch.library.register_autograd(
    "gemmgen::linear", _linear_backward, setup_context=_linear_setup, lib=_library
)


class _Alone(torch.autograd.Function):  # type: ignore[misc]
    """`matmul` without the operator. With a function for the setup alone, it would take longer."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        """See torch.autograd.Function."""
        found = multiply(*inputs)
        _matmul_setup(ctx, inputs, found)
        return found

    backward = staticmethod(_matmul_backward)


class _AloneLinear(torch.autograd.Function):  # type: ignore[misc]
    """The same of `linear`."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        """See torch.autograd.Function."""
        found = _linear(*inputs)
        _linear_setup(ctx, inputs, found)
        return found

    backward = staticmethod(_linear_backward)


class _Transformed(torch.autograd.Function):  # type: ignore[misc]
    """The same with rules for torch.func: reverse and forward derivatives, and vmap."""

    @staticmethod
    def forward(*args: Any) -> Tensor:
        """See torch.autograd.Function, as for all of these."""
        found: Tensor = matmul(*args)
        return found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keeps the operands."""
        _matmul_setup(ctx, inputs, output)
        ctx.save_for_forward(*inputs[:2])

    backward = staticmethod(_matmul_backward)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        """The derivative forwards: a sum of products."""
        a, b = ctx.saved_tensors
        to_a, to_b, to_c, to_bias = tangents[:4]
        terms = []
        if to_a is not None:
            terms.append(product(to_a, b, alpha=ctx.alpha, invariant=ctx.invariant))
        if to_b is not None:
            terms.append(product(a, to_b, alpha=ctx.alpha, invariant=ctx.invariant))
        if to_c is not None:
            terms.append(ctx.beta * to_c)
        if to_bias is not None:
            terms.append(to_bias.unsqueeze(-2))
        found: Tensor = sum(terms[1:], start=terms[0])
        return found.to(ctx.dtype).expand(ctx.shape)

    @staticmethod
    def vmap(info: Any, dims: Any, *args: Any) -> tuple[Tensor, int]:
        """The dimension becomes the first of a batch."""
        tensors: Any = batched(info.batch_size, args[:4], dims[:4], (2, 2, 2, 1))
        return product(*tensors, *args[4:]), 0


@torch.compiler.allow_in_graph  # type: ignore[untyped-decorator]
def _transformed(*args: Any) -> Tensor:
    """The same; torch.compile leaves it to what it calls, and does not look inside."""
    found: Tensor = _Transformed.apply(*args)
    return found


@torch.compiler.allow_in_graph  # type: ignore[untyped-decorator]
def fused_or_apart(*args: Any) -> Tensor:
    """In one kernel; where a gradient is wanted, the product, then operations of PyTorch."""
    *first, epilogue, names, tensors, numbers = args
    a, b, c, bias = first[:4]
    if has_derivative(a, b, c, bias, *tensors):
        dtypes = dtypes_of(None, a=a, b=b, c=c, bias=bias)
        return applied(epilogue, product(*first), named(names, tensors, numbers), dtypes)
    return below_autograd(fused, *args)


_library.impl("fused", fused_or_apart, "Autograd")
