"""Groups: `grouped_matmul`, and the operator `torch.ops.gemmgen.grouped_matmul` behind it.

Its gradients are products of the same operator, of transposed views: groups of rows have gradients
that are groups of rows and groups along K, and the other way round, so that they have gradients
themselves. Where groups end is read by kernels alone: no call waits for the device.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from gen.errors import SpecError, UsageError
from gen.torch.autocast import autocast, casts
from gen.torch.functions import check_tensors
from gen.torch.operators import gradient_of, is_transformed
from gen.torch.products import dtype_of, grouped, grouped_shape_of

_library = torch.library.Library("gemmgen", "FRAGMENT")
_library.define("grouped_matmul(Tensor a, Tensor b, Tensor offsets) -> Tensor")
operator = torch.ops.gemmgen.grouped_matmul.default


def grouped_matmul(a: Tensor, b: Tensor, offsets: Tensor) -> Tensor:
    """Groups of a's rows, each times a matrix of its own: the experts of a mixture.

    a (M, K): the rows of all groups, one group behind the other; b (groups, K, N): a matrix for
    each; offsets (groups): the row behind the last one of each group, on the device of a, where the
    kernel reads them. The result is (M, N), of a's type; rows behind the last group are 0, and so
    are their gradients. An end below one before counts as that one, and one beyond M as M.

    Where b is (K, N), groups are along K: offsets say where they end among the columns of a and
    the rows of b, and the result is (groups, M, N). It is the gradient of b above, of a.mT and the
    result's gradient.

    Under torch.autocast, a and b are converted to its type. Gradients flow to both. What no kernel
    reads as it lies is copied first: a has rows one behind the other, and columns where groups are
    along K.

    Raises UsageError and SpecError for tensors that no kernel takes.
    """
    check_tensors(A=a, B=b, offsets=offsets)
    if offsets is None or offsets.dim() != 1 or offsets.dtype not in (torch.int32, torch.int64):
        what = "None" if offsets is None else f"{offsets.dtype} of shape {tuple(offsets.shape)}"
        raise SpecError(f"offsets is {what}; use a vector of int32, the end of each group")
    if offsets.device != a.device:
        raise UsageError(f"A is on {a.device} and offsets on {offsets.device}; move one of them")
    if casts(a):
        a, b = autocast(a, b)
    return product(a, b, offsets.to(torch.int32))


def product(a: Tensor, b: Tensor, offsets: Tensor) -> Tensor:
    """The operator, which the transformations of torch.func know, too."""
    run = _transformed if is_transformed() else operator
    found: Tensor = run(a, b, offsets)
    return found


for _device in ("CPU", "CUDA"):
    _library.impl("grouped_matmul", grouped, _device)


def _like_grouped(a: Tensor, b: Tensor, offsets: Tensor) -> Tensor:
    shape = grouped_shape_of(a, b, offsets.shape[0])
    return a.new_empty(shape, dtype=dtype_of(a, b, None, None))


torch.library.register_fake("gemmgen::grouped_matmul", _like_grouped, lib=_library)


def _flops(a: Any, _: Any, offsets: Any, out_shape: Any, **__: Any) -> int:
    """Of shapes, as if groups had all rows: two for each multiplication and addition."""
    found: int = 2 * out_shape[-2] * out_shape[-1] * a[-1]
    return found


register_flop_formula([torch.ops.gemmgen.grouped_matmul])(_flops)


# --- gradients


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, b, offsets = inputs
    to_a, to_b = ctx.needs_input_grad[:2]
    ctx.save_for_backward(a if to_b else None, b if to_a else None, offsets)


def _backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    a, b, offsets = ctx.saved_tensors
    to_a, to_b = ctx.needs_input_grad[:2]
    grad_a = grad_b = None
    if to_a and g.dim() == 2:
        grad_a = product(gradient_of(g, b), b.mT, offsets)
    elif to_a:
        grad_a = product(b, gradient_of(g, b).mT, offsets).mT
    if to_b:  # along K where b has groups, else of rows
        grad_b = product(a.mT, gradient_of(g, a), offsets)
    return grad_a, grad_b, None


torch.library.register_autograd(
    "gemmgen::grouped_matmul", _backward, setup_context=_setup, lib=_library
)


class _Transformed(torch.autograd.Function):  # type: ignore[misc]
    """The same with rules for torch.func: reverse and forward derivatives."""

    @staticmethod
    def forward(*args: Any) -> Tensor:
        """See torch.autograd.Function, as for all of these."""
        found: Tensor = operator(*args)
        return found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keeps the operands."""
        _setup(ctx, inputs, output)
        ctx.save_for_forward(*inputs)

    backward = staticmethod(_backward)

    @staticmethod
    def jvp(ctx: Any, to_a: Any, to_b: Any, _: Any) -> Tensor:
        """The derivative forwards: a sum of products."""
        a, b, offsets = ctx.saved_tensors
        terms = [product(to_a, b, offsets)] if to_a is not None else []
        terms += [product(a, to_b, offsets)] if to_b is not None else []
        found: Tensor = sum(terms[1:], start=terms[0])
        return found

    @staticmethod
    def vmap(*_: Any) -> Any:
        """No kernel has a batch of groups."""
        raise UsageError("torch.vmap cannot batch groups; call grouped_matmul for each of them")


@torch.compiler.allow_in_graph  # type: ignore[untyped-decorator]
def _transformed(*args: Any) -> Tensor:
    found: Tensor = _Transformed.apply(*args)
    return found
