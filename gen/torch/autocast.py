"""What torch.autocast makes of operands."""

from __future__ import annotations

import torch
from torch import Tensor


def casts(x: Tensor) -> bool:
    """Whether torch.autocast is on for a tensor's device."""
    kind = x.device.type
    return kind != "meta" and bool(torch.is_autocast_enabled(kind))


def autocast(*tensors: Tensor | None) -> list[Tensor | None]:
    """Tensors in the type of torch.autocast, as torch.matmul takes them: float64 stays."""
    device = next(x.device.type for x in tensors if x is not None)
    dtype = torch.get_autocast_dtype(device)
    return [
        x.to(dtype) if x is not None and x.is_floating_point() and x.dtype.itemsize in (2, 4) else x
        for x in tensors
    ]
