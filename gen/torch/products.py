"""What the operators do when they run: n-D tensors as products of matrices, on their device.

Nothing here knows of gradients, which `gen.torch.operators` leaves above it.
"""

from __future__ import annotations

from itertools import product as indices
from math import prod

import torch
from torch import Tensor

from gen import api
from gen.api.host import check_emulated
from gen.api.problem import dtypes_of
from gen.api.views import View, as_matrix, framework_dtype
from gen.errors import SpecError, UsageError


def shape_of(a: Tensor, b: Tensor) -> tuple[int, ...]:
    """The shape of A @ B, of A (..., M, K) and B (..., K, N), whose batches broadcast.

    Raises SpecError.
    """
    if a.shape[-1] != b.shape[-2]:
        raise SpecError(
            f"A is {tuple(a.shape)} and B is {tuple(b.shape)}: A's columns are not as many as B's "
            "rows; transpose one of them"
        )
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return (*batch, a.shape[-2], b.shape[-1])


def dtype_of(a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None) -> torch.dtype:
    """The type of a product without `out`. Raises SpecError where no kernel has the types."""
    kind = dtypes_of(None, a=a, b=b, c=c, bias=bias).output.name
    found: torch.dtype = getattr(torch, framework_dtype(kind))
    return found


def multiply(
    a: Tensor, b: Tensor, c: Tensor | None = None, bias: Tensor | None = None,
    alpha: float = 1, beta: float = 0, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """alpha * A @ B + beta * C + bias, of A (..., M, K) and B (..., K, N).

    C and `out` have the shape of the result. Where B is one matrix, the lines of A's batch are the
    rows of one product; a batch of B is one product after another. Raises UsageError, SpecError.
    """
    if out is not None and tuple(out.shape) != shape_of(a, b):
        raise SpecError(f"out has shape {tuple(out.shape)}, not the result's {shape_of(a, b)}")
    if b.dim() > 2 and prod(b.shape[:-2]) == 1 and a.dim() >= b.dim():
        b = b.reshape(b.shape[-2:])
    if b.dim() > 2:
        return _batch(a, b, c, bias, alpha, beta, out)
    if a.dim() == 2:
        return _matrices(a, b, c, bias, alpha, beta, out)
    lines = None if c is None else c.flatten(0, -2)
    folded = a.flatten(0, -2)
    shape = (*a.shape[:-1], b.shape[1])
    if out is None:
        return _matrices(folded, b, lines, bias, alpha, beta, None).view(shape)
    if out.is_contiguous():
        _matrices(folded, b, lines, bias, alpha, beta, out.flatten(0, -2))
    else:
        out.copy_(_matrices(folded, b, lines, bias, alpha, beta, None).view(shape))
    return out


def _batch(
    a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None, alpha: float, beta: float,
    out: Tensor | None,
) -> Tensor:  # fmt: skip
    shape = shape_of(a, b)
    if out is None:
        out = a.new_empty(shape, dtype=dtype_of(a, b, c, bias))
    a, b = a.expand(*shape[:-2], *a.shape[-2:]), b.expand(*shape[:-2], *b.shape[-2:])
    for i in indices(*map(range, shape[:-2])):
        _matrices(a[i], b[i], None if c is None else c[i], bias, alpha, beta, out[i])
    return out


def _matrices(
    a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None, alpha: float, beta: float,
    out: Tensor | None,
) -> Tensor:  # fmt: skip
    a, b = _readable(a), _readable(b)
    if c is not None and c is not out:
        c = _readable(c)
    if bias is not None and bias.stride(0) != 1:
        bias = bias.contiguous()
    device, dtype = "auto", None
    if not a.is_cuda:
        _check_host(a, b)
        device = "cpu"
    elif a.dtype is torch.float32 and torch.backends.cuda.matmul.allow_tf32:
        dtype = "tf32"  # PyTorch's own switch: the user has asked for it
    found: Tensor = api.matmul(
        a, b, c, alpha=alpha, beta=beta, out=out, bias=bias, device=device, dtype=dtype
    )
    return found


def _readable(x: Tensor) -> Tensor:
    """The matrix, or a copy of one that no layout describes, such as an expanded gradient."""
    (rows, cols), (down, right) = x.shape, x.stride()
    if (right == 1 and down >= cols) or (down == 1 and right >= rows):
        return x
    try:
        as_matrix(View(0, x.shape, x.stride(), x.dtype, 0), "", True)
    except SpecError:
        return x.contiguous()
    return x


def _check_host(a: Tensor, b: Tensor) -> None:
    """Raises UsageError where the emulator would take too long."""
    if a.device.type != "cpu":
        raise UsageError(f"A is on {a.device}; gen has kernels for CUDA: move it there")
    check_emulated((len(a), b.shape[1], len(b)), "torch.matmul")
