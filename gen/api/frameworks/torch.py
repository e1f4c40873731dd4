"""PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from gen.api.frameworks.protocol import LEGACY_STREAM
from gen.api.views import HOST, Form, element_of, framework_dtype
from gen.errors import UsageError

if TYPE_CHECKING:
    import numpy as np


class Torch:
    """PyTorch, as it is loaded when its first tensor comes."""

    has_streams = True

    def __init__(self) -> None:
        self._torch = sys.modules["torch"]
        # What torch.cuda.current_stream(device).cuda_stream gives, without making the object.
        # Builds for the CPU do not have it, nor tensors on a GPU.
        name = "_cuda_getCurrentRawStream"
        self.stream: Callable[[int], int] = getattr(self._torch._C, name, lambda device: 0)

    def describe(self, array: Any, name: str, stream: int | None) -> tuple[int, Form]:
        """See Framework. This is most of what a call costs, and has no spare step."""
        if array.requires_grad and self._torch.is_grad_enabled():
            raise UsageError(
                f"{name} requires a gradient, which gen.matmul does not compute; use "
                "gen.torch.matmul, pass x.detach(), or call it under torch.no_grad()"
            )
        try:
            return array.data_ptr(), (
                array.shape, array.stride(), array.dtype, array.get_device(), False,
            )  # fmt: skip
        except RuntimeError as error:  # a sparse tensor, or one without memory
            raise UsageError(f"{name} is no dense tensor in memory ({error})") from None

    def dtype(self, kind: str) -> Any:
        """See Framework."""
        return getattr(self._torch, framework_dtype(kind))

    def empty(
        self, like: Any, device: int, shape: tuple[int, ...], dtype: Any, row_major: bool,
        stream: int | None,
    ) -> tuple[Any, int]:  # fmt: skip
        """See Framework."""
        sizes = shape if row_major else shape[::-1]
        if stream is None:
            array = like.new_empty(sizes, dtype=dtype) if dtype else like.new_empty(sizes)
        else:
            with self._on(stream, device):
                array = like.new_empty(sizes, dtype=dtype)
        return (array if row_major else array.t()), array.data_ptr()

    def workspace(self, like: Any, device: int, size: int, stream: int | None) -> tuple[Any, int]:
        """See Framework. PyTorch's own memory, so that a captured graph owns what it needs."""
        return self.empty(like, device, (size,), self._torch.uint8, True, stream)

    def _on(self, stream: int, device: int) -> AbstractContextManager[Any]:
        """Memory that is allocated inside is safe to use on `stream`, then to give back there."""
        if device == HOST or stream == self.stream(device):
            return nullcontext()
        cuda = self._torch.cuda
        legacy = stream in (0, LEGACY_STREAM)
        own = cuda.default_stream(device) if legacy else cuda.ExternalStream(stream, device)
        context: AbstractContextManager[Any] = cuda.stream(own)
        return context

    def finish(self, array: Any, like: Any) -> Any:
        """See Framework."""
        return array

    def on_host(self, array: Any, name: str) -> np.ndarray:
        """See Framework."""
        from gen.spec.numerics import storage_dtype

        stored = storage_dtype(element_of(array.dtype, name))
        array = array.detach()
        if stored.kind == "u":  # NumPy has no bfloat16 and no float8, but integers of their sizes
            array = array.view(getattr(self._torch, f"int{8 * stored.itemsize}"))
        found: np.ndarray = array.numpy().view(stored)
        return found
