"""Epilogues as PyTorch's own operations: what their gradients are taken of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from gen.api.evaluation import Groups, check_operands, evaluate
from gen.api.operands import Own
from gen.spec.dtypes import DTypes

_NAMED: Mapping[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda x: x,
    "linear_bias": lambda x: x,
    "linear_bias_relu": functional.relu,
    "linear_bias_gelu": functional.gelu,
}


class _Elementwise:
    """See `gen.api.evaluation.Elementwise`; in the type and on the device of a tensor."""

    functions: Mapping[str, Callable[..., Tensor]] = {
        "abs": torch.abs, "min": torch.fmin, "max": torch.fmax, "exp": torch.exp,
        "log": torch.log, "sqrt": torch.sqrt, "tanh": torch.tanh, "erf": torch.erf,
        "relu": functional.relu, "sigmoid": torch.sigmoid, "silu": functional.silu,
        "gelu": functional.gelu,
        "clamp": lambda x, low, high: torch.fmin(torch.fmax(x, low), high),
    }  # fmt: skip

    def __init__(self, like: Tensor) -> None:
        self._like = like

    def number(self, value: float) -> Tensor:
        return self._like.new_full((), value)

    def index(self, value: int) -> Tensor:
        return self._like.new_full((), value, dtype=torch.int64)

    def indices(self, count: int) -> Tensor:
        return torch.arange(count, device=self._like.device)

    def converted(self, x: Tensor) -> Tensor:
        return x.to(self._like.dtype)

    def where(self, condition: Tensor, yes: Tensor, no: Tensor) -> Tensor:
        return torch.where(condition, yes, no)

    def quotient(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.div(x, y, rounding_mode="trunc")


def applied(
    epilogue: str,
    x: Tensor,
    operands: Mapping[str, Any],
    dtypes: DTypes,
    groups: Groups | None = None,
) -> Tensor:
    """The epilogue of x = alpha * A @ B + beta * C (..., M, N), in x's type.

    It is computed in float32, or float64 where x is. operands: tensors and numbers by name. Raises
    UsageError and SpecError for those that a kernel of these types would not take.
    """
    tensors = {name: value for name, value in operands.items() if isinstance(value, Tensor)}
    numbers = {name: value for name, value in operands.items() if name not in tensors}
    own = Own(tensors, numbers).epilogue(epilogue)  # of tensors, only the types count
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    if own is None:
        return _NAMED[epilogue](wide).to(x.dtype)
    check_operands(own, tensors, dtypes, tuple(x.shape), groups.count if groups else 0)
    given = {name: value.to(wide.dtype) for name, value in tensors.items()}
    found: Tensor = evaluate(own, _Elementwise(wide), wide, {**given, **numbers}, groups)
    return found.to(x.dtype)
