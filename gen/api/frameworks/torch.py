"""PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from gen.api.frameworks.protocol import LEGACY_STREAM, Result, Together
from gen.api.views import HOST, Form, element_of, framework_dtype
from gen.errors import UsageError

if TYPE_CHECKING:
    import numpy as np


class Torch:
    """PyTorch, as it is loaded when its first tensor comes."""

    has_streams = True

    def __init__(self) -> None:
        self._torch = torch = sys.modules["torch"]
        # What torch.cuda.current_stream(device).cuda_stream gives, without making the object.
        # Builds for the CPU do not have it, nor tensors on a GPU.
        name = "_cuda_getCurrentRawStream"
        self.stream: Callable[[int], int] = getattr(torch._C, name, lambda device: 0)
        # How code of torch.compile makes a tensor on the current GPU, in a third of the time of
        # `new_empty`; it knows no subclasses.
        guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
        self._new: Any = getattr(guards, "_empty_strided_cuda", None)
        self._current: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", lambda: -1)
        self._tensor = torch.Tensor if self._new else None

    def describe(self, array: Any, name: str, stream: int | None) -> tuple[int, Form]:
        """See Framework."""
        if array.requires_grad and self._torch.is_grad_enabled():
            raise UsageError(
                f"{name} requires a gradient, which gen.matmul does not compute; use "
                "gen.torch.matmul, pass x.detach(), or call it under torch.no_grad()"
            )
        # Not asked by `together`, which would take a sixth longer: see `Kernel.multiply`.
        if array.is_neg():
            raise UsageError(
                f"{name} is a view of numbers with the other sign, as z.conj().imag is; pass "
                "x.resolve_neg()"
            )
        try:
            return array.data_ptr(), (
                array.shape, array.stride(), array.dtype, array.get_device(), False,
            )  # fmt: skip
        except RuntimeError as error:  # a sparse tensor, or one without memory
            raise UsageError(f"{name} is no dense tensor in memory ({error})") from None

    def together(self, a: Any, b: Any, c: Any, out: Any, bias: Any) -> Together | None:
        """See Framework. This is a third of what a call costs, and has no spare step."""
        try:
            form: Any = (
                a.shape, a.stride(), a.dtype, a.get_device(),
                b.shape, b.stride(), b.dtype, b.get_device(),
            )  # fmt: skip
            at_a, at_b, at_c, at_out, at_bias = a.data_ptr(), b.data_ptr(), 0, 0, 0
            wants = a.requires_grad or b.requires_grad
            if not (c is None and out is None and bias is None):
                of_c = of_out = of_bias = None
                if c is not None:
                    wants, at_c = wants or c.requires_grad, c.data_ptr()
                    of_c = c.shape, c.stride(), c.dtype, c.get_device()
                if out is not None:
                    wants, at_out = wants or out.requires_grad, out.data_ptr()
                    of_out = out.shape, out.stride(), out.dtype, out.get_device()
                if bias is not None:
                    wants, at_bias = wants or bias.requires_grad, bias.data_ptr()
                    of_bias = bias.shape, bias.stride(), bias.dtype, bias.get_device()
                form = (form, of_c, of_out, of_bias)
            if wants and self._torch.is_grad_enabled():
                return None
            return form, at_a, at_b, at_c, at_out, at_bias
        except (AttributeError, RuntimeError):  # not all are PyTorch's, or dense
            return None

    def dtype(self, kind: str) -> Any:
        """See Framework."""
        return getattr(self._torch, framework_dtype(kind))

    def empty(self, like: Any, device: int, result: Result, stream: int | None) -> tuple[Any, int]:
        """See Framework."""
        plain = stream is None and type(like) is self._tensor and device != HOST
        if plain and self._current() == device:
            array = self._new(*result)
        else:
            shape, strides, dtype = result
            with nullcontext() if stream is None else self._on(stream, device):
                array = like.new_empty_strided(shape, strides, dtype=dtype)
        return array, array.data_ptr()

    def workspace(self, like: Any, device: int, size: int, stream: int | None) -> tuple[Any, int]:
        """See Framework. PyTorch's own memory, so that a captured graph owns what it needs."""
        return self.empty(like, device, ((size,), (1,), self._torch.uint8), stream)

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
