"""The dimension that torch.func.vmap adds, as the first of a batch."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def batched(
    size: int, tensors: Sequence[Tensor | None], dims: Sequence[int | None], axes: Sequence[int]
) -> list[Tensor | None]:
    """A, B, and what broadcasts to their batch, with vmap's dimension first where they have it.

    dims: where they have it. axes: the dimensions that each product has, which come last.
    """
    each = zip(tensors, dims, axes, strict=True)
    most = max(x.dim() - n - (at is not None) for x, at, n in each if x is not None)
    found = [_moved(*one, most) for one in zip(tensors, dims, axes, strict=True)]
    a = found[0]
    if a is not None and dims[0] is None and dims[1] is None:  # only what is added has it
        found[0] = a.expand(size, *[1] * (most + 2 - a.dim()), *a.shape)
    return found


def _moved(x: Tensor | None, at: int | None, axes: int, most: int) -> Tensor | None:
    """A tensor with the dimension `at` first, and so many others before its axes."""
    if x is None or at is None:
        return x
    x = x.movedim(at, 0)
    return x.reshape(x.shape[0], *[1] * (most + axes + 1 - x.dim()), *x.shape[1:])
