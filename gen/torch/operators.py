"""The operators: `torch.ops.gemmgen.matmul`, `.matmul_out` and `.linear`, with their gradients.

Gradients are products of the same operators, of transposed views, so that they have gradients
themselves. Fake tensors, as torch.compile traces with, get shapes and types alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gen.errors import UsageError
from gen.torch.products import dtype_of, multiply, shape_of

_library = torch.library.Library("gemmgen", "DEF")
# Without defaults: a gradient's function sees only the arguments that were passed.
_library.define(
    "matmul(Tensor a, Tensor b, Tensor? c, Tensor? bias, float alpha, float beta) -> Tensor"
)
_library.define(
    "matmul_out(Tensor a, Tensor b, Tensor? c, Tensor? bias, float alpha, float beta,"
    " Tensor(a!) out) -> ()"
)
_library.define("linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor")

matmul = torch.ops.gemmgen.matmul.default
matmul_out = torch.ops.gemmgen.matmul_out.default
linear = torch.ops.gemmgen.linear.default


# --- what they compute


def _matmul_out(*args: Any) -> None:
    multiply(*args)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return multiply(x, weight.t(), None, bias)


for _device in ("CPU", "CUDA"):
    _library.impl("matmul", multiply, _device)
    _library.impl("matmul_out", _matmul_out, _device)
    _library.impl("linear", _linear, _device)


# --- fake tensors


def _like_matmul(
    a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None, alpha: float, beta: float
) -> Tensor:
    return a.new_empty(shape_of(a, b), dtype=dtype_of(a, b, c, bias))


def _like_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    weight = weight.t()
    return x.new_empty(shape_of(x, weight), dtype=dtype_of(x, weight, None, bias))


torch.library.register_fake("gemmgen::matmul", _like_matmul, lib=_library)
torch.library.register_fake("gemmgen::matmul_out", lambda *_: None, lib=_library)
torch.library.register_fake("gemmgen::linear", _like_linear, lib=_library)


# --- gradients


def _product(a: Tensor, b: Tensor, alpha: float = 1) -> Tensor:
    found: Tensor = matmul(a, b, None, None, alpha, 0)
    return found


def _gradient(g: Tensor, operand: Tensor) -> Tensor:
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


def _matmul_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, b, _, _, ctx.alpha, ctx.beta = inputs
    ctx.shapes = a.shape, b.shape
    _keep(ctx, a, b, ctx.needs_input_grad[:2])


def _matmul_backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    (a, b), (shape_a, shape_b), alpha = ctx.saved_tensors, ctx.shapes, ctx.alpha
    to_a, to_b, to_c, to_bias = ctx.needs_input_grad[:4]
    grad_a = grad_b = None
    if to_a:
        grad_a = _product(_gradient(g, b), b.mT, alpha).sum_to_size(shape_a)
    if to_b and len(shape_b) == 2:
        grad_b = _product(a.flatten(0, -2).t(), _gradient(g, a).flatten(0, -2), alpha)
    elif to_b:
        grad_b = _product(a.mT, _gradient(g, a), alpha).sum_to_size(shape_b)
    grad_c = ctx.beta * g if to_c else None
    grad_bias = g.flatten(0, -2).sum(0) if to_bias else None
    return grad_a, grad_b, grad_c, grad_bias, None, None


def _linear_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, _ = inputs
    _keep(ctx, x, weight, ctx.needs_input_grad[:2])


def _linear_backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    to_x, to_weight, to_bias = ctx.needs_input_grad[:3]
    return (
        _product(_gradient(g, weight), weight) if to_x else None,
        _product(_gradient(g, x).flatten(0, -2).t(), x.flatten(0, -2)) if to_weight else None,
        g.flatten(0, -2).sum(0) if to_bias else None,
    )


torch.library.register_autograd(
    "gemmgen::matmul", _matmul_backward, setup_context=_matmul_setup, lib=_library
)
torch.library.register_autograd(
    "gemmgen::linear", _linear_backward, setup_context=_linear_setup, lib=_library
)
