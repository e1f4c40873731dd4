"""`matmul` and `linear`: what callers have to do with, before the operators."""

from __future__ import annotations

import torch
from torch import Tensor

from gen.errors import SpecError, UsageError
from gen.torch import operators


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight.T + bias, as torch.nn.functional.linear: x (..., K), weight (N, K), bias (N).

    The result (..., N) has the type of x, or float32 where x has 16 bits and the bias is float32.
    Under torch.autocast, all are converted to its type. Gradients flow to all three.

    Raises UsageError and SpecError for tensors that no kernel takes.
    """
    if torch.is_autocast_enabled(x.device.type):
        x, weight, bias = _autocast(x, weight, bias)
    if x.dim() == 1:
        return operators.linear(x.unsqueeze(0), weight, bias).squeeze(0)
    return operators.linear(x, weight, bias)


def matmul(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1,
    beta: float = 0,
    bias: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """alpha * a @ b + beta * c + bias, with the shapes of torch.matmul, and gradients.

    a (..., M, K), b (..., K, N): vectors are a row and a column; batches broadcast. c has the shape
    of the result, bias N elements. Where b is one matrix, the rows of a's batch are those of one
    product; a batch of b is one product after another. A tensor of which neither of the last two
    strides is 1, or whose lines repeat, is copied first.

    The result has the type of c or bias where there is one, else that of a (int32 for int8,
    bfloat16 for float8). Under torch.autocast, operands are converted to its type. out: where the
    result goes; it has no gradient then. c may be out.

    Raises UsageError and SpecError for tensors that do not fit together or that no kernel takes.
    """
    if torch.is_autocast_enabled(a.device.type):
        a, b, c, bias = _autocast(a, b, c, bias)
    if not (a.dim() and b.dim()):
        raise SpecError("A and B are vectors or matrices, not numbers; multiply with *")
    row, column = a.dim() == 1, b.dim() == 1
    if row and column:
        raise SpecError("A and B are both vectors; make one of them a matrix: a.unsqueeze(0)")
    if row or column:
        return _with_vector(a, b, c, alpha, beta, bias, out, row)
    if c is None and beta != 0:
        raise UsageError(f"beta={beta:g} needs c; pass c, which may be out itself")
    if out is None:
        return operators.matmul(a, b, c, bias, alpha, beta)
    if torch.is_grad_enabled() and any(
        x is not None and x.requires_grad for x in (a, b, c, bias, out)
    ):
        raise UsageError(
            "out has no gradient, but one of the tensors requires one; leave out out, or call it "
            "under torch.no_grad()"
        )
    operators.matmul_out(a, b, c, bias, alpha, beta, out)
    return out


def _with_vector(
    a: Tensor, b: Tensor, c: Tensor | None, alpha: float, beta: float, bias: Tensor | None,
    out: Tensor | None, row: bool,
) -> Tensor:  # fmt: skip
    """A product with a vector as a row or a column, which the result then lacks."""
    lacks = -2 if row else -1
    a, b = (a.unsqueeze(0), b) if row else (a, b.unsqueeze(1))
    c, wide = (None if x is None else x.unsqueeze(lacks) for x in (c, out))
    found = matmul(a, b, c, alpha=alpha, beta=beta, bias=bias, out=wide)
    return found.squeeze(lacks) if out is None else out


def _autocast(*tensors: Tensor | None) -> list[Tensor | None]:
    """Tensors in the type of torch.autocast, as torch.matmul takes them: float64 stays."""
    device = next(x.device.type for x in tensors if x is not None)
    dtype = torch.get_autocast_dtype(device)
    return [
        x.to(dtype) if x is not None and x.is_floating_point() and x.dtype.itemsize in (2, 4) else x
        for x in tensors
    ]
