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

from gen.api.evaluation import Groups
from gen.api.groups import with_bias
from gen.api.operands import checked
from gen.api.problem import dtypes_of
from gen.errors import SpecError, UsageError
from gen.spec.dtypes import DTypes
from gen.torch.autocast import autocast, casts
from gen.torch.elementwise import applied
from gen.torch.functions import Operands, check_operands, check_tensors, own_of
from gen.torch.operators import below_autograd, gradient_of, has_derivative, is_transformed, named
from gen.torch.products import dtype_of, grouped, grouped_shape_of

_library = torch.library.Library("gemmgen", "FRAGMENT")
_GROUPED = "Tensor a, Tensor b, Tensor offsets"
_library.define(f"grouped_matmul({_GROUPED}) -> Tensor")
_library.define(
    f"grouped_fused({_GROUPED}, str epilogue, str[] names, Tensor[] tensors, float[] numbers)"
    " -> Tensor"
)
operator = torch.ops.gemmgen.grouped_matmul.default
fused = torch.ops.gemmgen.grouped_fused.default


def grouped_matmul(
    a: Tensor,
    b: Tensor,
    offsets: Tensor,
    *,
    bias: Tensor | None = None,
    epilogue: str = "linear",
    operands: Operands | None = None,
) -> Tensor:
    """Groups of a's rows, each times a matrix of its own: the experts of a mixture.

    a (M, K): the rows of all groups, one group behind the other; b (groups, K, N): a matrix for
    each; offsets (groups): the row behind the last one of each group, on the device of a, where the
    kernel reads them. The result is (M, N), of a's type; rows behind the last group are 0, and so
    are their gradients. An end below one before counts as that one, and one beyond M as M.

    Where b is (K, N), groups are along K: offsets say where they end among the columns of a and
    the rows of b, and the result is (groups, M, N). It is the gradient of b above, of a.mT and the
    result's gradient.

    bias: (groups, N), a row for each group, or (N). epilogue: as in `matmul`; an expression also
    has `group`, and with [group] or [group, col] operands (groups) or (groups, N). Where a gradient
    is wanted, PyTorch computes it, of the product in the result's type.

    Under torch.autocast, a, b and bias are converted to its type. Gradients flow to all. What no
    kernel reads as it lies is copied first: a has rows one behind the other, and columns where
    groups are along K.

    Raises UsageError and SpecError for tensors that no kernel takes.
    """
    check_tensors(A=a, B=b, offsets=offsets)
    if offsets is None or offsets.dim() != 1 or offsets.dtype not in (torch.int32, torch.int64):
        what = "None" if offsets is None else f"{offsets.dtype} of shape {tuple(offsets.shape)}"
        raise SpecError(f"offsets is {what}; use a vector of int32, the end of each group")
    check_tensors(A=a, bias=bias)
    checked(epilogue, operands)
    check_operands(a, operands)
    if casts(a):
        a, b, bias = autocast(a, b, bias)
    offsets = offsets.to(torch.int32)
    if bias is not None:
        epilogue, operands = with_bias(epilogue, operands, bias)
    if epilogue == "linear" and not operands:
        return product(a, b, offsets)
    run = fused_or_apart if is_transformed() else fused
    found: Tensor = run(a, b, offsets, *own_of(epilogue, None, operands or {}))
    return found


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


_COUNTED = [torch.ops.gemmgen.grouped_matmul, torch.ops.gemmgen.grouped_fused]
register_flop_formula(_COUNTED)(_flops)


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


# --- with an epilogue


def _fused(a: Tensor, b: Tensor, offsets: Tensor, epilogue: str, *own: Any) -> Tensor:
    return grouped(a, b, offsets, epilogue, named(*own))


@torch.compiler.allow_in_graph  # type: ignore[untyped-decorator]
def fused_or_apart(*args: Any) -> Tensor:
    """In one kernel; where a gradient is wanted, the product, then operations of PyTorch."""
    a, b, offsets, epilogue, names, tensors, numbers = args
    if has_derivative(a, b, *tensors):
        own, dtypes = named(names, tensors, numbers), dtypes_of(None, a=a, b=b)
        return _apart(product(a, b, offsets), offsets, epilogue, own, dtypes)
    return below_autograd(fused, *args)


def _apart(x: Tensor, offsets: Tensor, epilogue: str, own: Any, dtypes: DTypes) -> Tensor:
    """The epilogue of the products x; rows behind the last group stay 0."""
    count = len(offsets)
    if x.dim() == 3:  # a matrix for each group
        return applied(epilogue, x, own, dtypes, Groups(count, lambda each: each[:, None]))
    ends = offsets.cummax(0).values
    rows = torch.arange(len(x), device=x.device, dtype=ends.dtype)
    group = torch.searchsorted(ends, rows, right=True)  # the first that ends behind a row

    def of_rows(each: Tensor) -> Tensor:
        if not count:  # something for rows to take, which nothing comes of
            each = torch.cat([each, each.new_ones(1, *each.shape[1:])])
        return each[group.clamp(max=max(count - 1, 0))]

    found = applied(epilogue, x, own, dtypes, Groups(count, of_rows))
    return torch.where((group < count)[:, None], found, 0)


for _device in ("CPU", "CUDA"):
    _library.impl("grouped_fused", _fused, _device)
_library.impl("grouped_fused", fused_or_apart, "Autograd")
torch.library.register_fake(
    "gemmgen::grouped_fused", lambda a, b, offsets, *_: _like_grouped(a, b, offsets), lib=_library
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
