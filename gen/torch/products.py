"""What the operators do when they run: tensors of any strides as `gen.matmul` takes them.

Nothing here knows of gradients, which `gen.torch.operators` leaves above it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor

from gen import api
from gen.api.batches import check_apart
from gen.api.host import LEAST, check_emulated
from gen.api.operands import is_number
from gen.api.problem import dtypes_of
from gen.api.views import View, as_matrix, framework_dtype
from gen.errors import SpecError, UsageError
from gen.spec.epilogue import matrices


def shape_of(a: Tensor, b: Tensor) -> tuple[int, ...]:
    """The shape of A @ B, of A (..., M, K) and B (..., K, N), whose batches broadcast.

    Raises SpecError.
    """
    if a.shape[-1] != b.shape[-2]:
        raise SpecError(
            f"A is {tuple(a.shape)} and B is {tuple(b.shape)}: A's columns are not as many as B's "
            "rows; transpose one of them"
        )
    batch = a.shape[:-2]
    try:
        if b.dim() > 2:
            batch = torch.broadcast_shapes(batch, b.shape[:-2])
    except RuntimeError:
        raise SpecError(
            f"the batches {tuple(a.shape[:-2])} of A and {tuple(b.shape[:-2])} of B do not "
            "broadcast; use the same sizes, or 1"
        ) from None
    return (*batch, a.shape[-2], b.shape[-1])


def dtype_of(a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None) -> torch.dtype:
    """The type of a product without `out`. Raises SpecError where no kernel has the types."""
    types = a.dtype, b.dtype, c if c is None else c.dtype, bias if bias is None else bias.dtype
    if (found := _results.get(types)) is None:
        kind = dtypes_of(None, a=a, b=b, c=c, bias=bias).output.name
        found = _results[types] = getattr(torch, framework_dtype(kind))
    return found


_results: dict[tuple[torch.dtype | None, ...], torch.dtype] = {}  # what was found so far


def asks_for_tf32() -> bool:
    """PyTorch's own switch, which `allow_tf32` sets, too, but cannot be read by once it is set."""
    found: bool = torch.backends.cuda.matmul.fp32_precision == "tf32"
    return found


def multiply(
    a: Tensor, b: Tensor, c: Tensor | None = None, bias: Tensor | None = None,
    alpha: float = 1, beta: float = 0, invariant: str | None = None, *, epilogue: str = "linear",
    operands: Mapping[str, Any] | None = None, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """epilogue(alpha * A @ B + beta * C), of A (..., M, K) and B (..., K, N): see `gen.matmul`.

    What no kernel reads as it lies is copied first. Raises UsageError, SpecError.
    """
    device, dtype = _device(a)
    if c is None and out is None and not operands and device != "cpu":
        try:
            return api.matmul(
                a, b, alpha=alpha, bias=bias, epilogue=epilogue, dtype=dtype, invariant=invariant
            )
        except SpecError:  # for what is copied below, or a mistake that is found there
            pass
    shape = shape_of(a, b)
    by_row = True
    if out is None:
        out = to = a.new_empty(shape, dtype=dtype_of(a, b, c, bias))
    elif tuple(out.shape) != shape:
        raise SpecError(f"out has shape {tuple(out.shape)}, not the result's {shape}")
    else:
        check_apart(View(0, shape, out.stride(), out.dtype, 0))
        to = out if _is_matrix(out) else torch.empty(shape, dtype=out.dtype, device=out.device)
        by_row = _is_matrix(to, by_row=True)
    if c is not None and (to is not out or c is not out):
        c = _like_result(c, by_row) if beta else None
    if device == "cpu":
        _check_host(b, shape)
    given = {
        name: _like_result(x, by_row) if name in matrices(epilogue) else _adjacent(x)
        for name, x in (operands or {}).items()
    }
    api.matmul(
        _readable(a), _readable(b), c, alpha=alpha, beta=beta, out=to, device=device, dtype=dtype,
        bias=None if bias is None else _adjacent(bias), invariant=invariant, epilogue=epilogue,
        operands=given,
    )  # fmt: skip
    return out if to is out else out.copy_(to)


def grouped_shape_of(a: Tensor, b: Tensor, groups: int) -> tuple[int, ...]:
    """The shape of products of groups: see `gen.torch.grouped_matmul`. Raises SpecError."""
    if (a.dim(), b.dim()) not in ((2, 3), (2, 2)):
        raise SpecError(
            f"A is {tuple(a.shape)} and B is {tuple(b.shape)}; groups of rows take A (M, K) and B "
            "(groups, K, N), groups along K take A (M, K) and B (K, N)"
        )
    if b.dim() == 3 and b.shape[0] != groups:
        raise SpecError(
            f"B has {b.shape[0]} matrices, and offsets has {groups} ends of groups; pass one for "
            "each"
        )
    shape = shape_of(a, b[0] if b.dim() == 3 and len(b) else b)
    return shape[-2:] if b.dim() == 3 else (groups, *shape)


def grouped(
    a: Tensor,
    b: Tensor,
    offsets: Tensor,
    epilogue: str = "linear",
    operands: Mapping[str, Any] | None = None,
) -> Tensor:
    """The products of groups, see `gen.grouped_matmul`; rows that no group has are 0.

    What no kernel reads as it lies is copied first. Raises UsageError, SpecError.
    """
    groups = len(offsets)
    shape, dtype = grouped_shape_of(a, b, groups), dtype_of(a, b, None, None)
    along_k = b.dim() == 2
    if along_k:
        a, b = _like_result(a, by_row=False), _like_result(b, by_row=True)
        out = a.new_empty(shape, dtype=dtype)
    else:
        a, b = _like_result(a, by_row=True), _readable(b)
        out = a.new_zeros(shape, dtype=dtype)  # for rows behind the last group
    device, name = _device(a)
    if a.dtype is torch.float32 and name is None:
        raise UsageError(
            "gen has no groups of float32 in full precision; use float16, bfloat16, float64 or "
            "torch.autocast, or on GPUs torch.backends.cuda.matmul.fp32_precision = 'tf32'"
        )
    if device == "cpu":
        m, n, k = *shape[-2:], a.shape[1]
        least = groups * LEAST  # rows, or steps along K, of which each group has some
        sizes = (m, n, max(k, least)) if along_k else (max(m, least), n, k)
        check_emulated(sizes, "torch.matmul for each group")
    given = {
        name: _like_result(x, by_row=True) if name in matrices(epilogue) else _contiguous(x)
        for name, x in (operands or {}).items()
    }
    api.grouped_matmul(
        a, b, _adjacent(offsets), out=out, device=device, dtype=name, epilogue=epilogue,
        operands=given,
    )  # fmt: skip
    return out


def _device(a: Tensor) -> tuple[str, str | None]:
    """Where gen multiplies tensors like this one, and the row of element types that is asked for.

    Raises UsageError for what is neither on a GPU nor on the CPU.
    """
    if a.is_cuda:
        return "auto", "tf32" if a.dtype is torch.float32 and asks_for_tf32() else None
    if a.device.type != "cpu":
        raise UsageError(f"A is on {a.device}; gen has kernels for CUDA: move it there")
    return "cpu", None


def _is_matrix(x: Tensor, by_row: bool | None = None) -> bool:
    """Whether a layout describes each of the matrices (..., M, N); by_row: that one."""
    (rows, cols), (down, right) = x.shape[-2:], x.stride()[-2:]
    if (right == 1 and down >= cols) or (down == 1 and right >= rows and by_row is None):
        return True
    try:
        found = as_matrix(View(0, (rows, cols), (down, right), x.dtype, 0), "", True)
    except SpecError:
        return False
    return by_row is None or bool(found.by_row)


def _readable(x: Tensor) -> Tensor:
    """The matrices, or copies where no layout describes them, such as an expanded gradient."""
    return x if _is_matrix(x) else _copied(x, 2)


def _like_result(x: Any, by_row: bool) -> Any:
    """The matrices in the order of the result's, copied if need be."""
    if is_number(x) or x.dim() < 2:
        return x  # which is refused
    if by_row:
        return x if _is_matrix(x, by_row=True) else _copied(x, 2)
    return _like_result(x.mT, True).mT


def _adjacent(x: Any) -> Any:
    """The same, or a copy where elements of the last dimension are apart; a number as it is."""
    if is_number(x) or not x.dim() or x.shape[-1] < 2 or x.stride(-1) == 1:
        return x
    return _copied(x, 1)


def _contiguous(x: Any) -> Any:
    """The same, or a copy where its elements do not follow each other; a number as it is."""
    return x if is_number(x) else x.contiguous()


def _copied(x: Tensor, axes: int) -> Tensor:
    """A copy, but of a batch that was expanded only what is there; each product has `axes`."""
    batch = zip(x.shape[:-axes], x.stride()[:-axes], strict=True)
    alone = tuple(slice(0, 1 if stride == 0 else size) for size, stride in batch)
    return x[alone].contiguous().expand(x.shape)


def _check_host(b: Tensor, shape: tuple[int, ...]) -> None:
    """Raises UsageError where the emulator would take too long."""
    *batch, m, n = shape
    products = prod(batch)
    if prod(b.shape[:-2]) == 1:  # the rows of one product
        m, products = m * products, 1
    check_emulated((m, n, b.shape[-2]), "torch.matmul", products)
