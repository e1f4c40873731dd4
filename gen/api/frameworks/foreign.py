"""CuPy, and any other array with DLPack or `__cuda_array_interface__`."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from gen.api.frameworks.protocol import LEGACY_STREAM, Framework, Result
from gen.api.gpu import new_array
from gen.api.views import HOST, Form, element, element_of, order
from gen.device import context
from gen.errors import UsageError
from gen.requirements import cuda_core

if TYPE_CHECKING:
    import numpy as np

_DLPACK_CPU = 1


def _row_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides[: len(shape)]))


class Foreign(Framework):
    """Arrays of a framework that cannot be asked for its current stream.

    Without one from the caller, calls run on the default stream, which the inputs' own streams come
    before, and return with the result.
    """

    has_streams = False

    def describe(self, array: Any, name: str, stream: int | None) -> tuple[int, Form]:
        """See Framework."""
        return _strided(array, name, stream or LEGACY_STREAM)

    def stream(self, device: int) -> int:
        """See Framework."""
        return LEGACY_STREAM

    def empty(self, like: Any, device: int, result: Result, stream: int | None) -> tuple[Any, int]:
        """See Framework. Memory of gen's own, which the array's framework takes over at the end."""
        if not hasattr(like, "__array_namespace__"):
            raise UsageError(
                f"{type(like).__name__} has no way to make another array like it; pass out"
            )
        shape, strides, dtype = result
        kind = element_of(dtype, "A")
        memory = new_array(context.gpu(device), shape, strides, kind, stream or LEGACY_STREAM)
        return memory, memory.ptr

    def workspace(self, like: Any, device: int, size: int, stream: int | None) -> tuple[Any, int]:
        """See Framework."""
        return None, 0

    def finish(self, array: Any, like: Any) -> Any:
        """See Framework."""
        return like.__array_namespace__().from_dlpack(array)

    def on_host(self, array: Any, name: str) -> np.ndarray:
        """See Framework."""
        raise UsageError(
            f"{name} is a {type(array).__name__} in host memory; pass a NumPy array "
            "(numpy.asarray(x)), or move it to a GPU"
        )


class CuPy(Foreign):
    """CuPy."""

    has_streams = True

    def describe(self, array: Any, name: str, stream: int | None) -> tuple[int, Form]:
        """See Framework."""
        return _strided(array, name, -1)  # its stream is the caller's, so that nothing has to wait

    def stream(self, device: int) -> int:
        """See Framework."""
        return int(sys.modules["cupy"].cuda.get_current_stream(device).ptr)

    def empty(self, like: Any, device: int, result: Result, stream: int | None) -> tuple[Any, int]:
        """See Framework."""
        cupy = sys.modules["cupy"]
        shape, strides, dtype = result
        on = nullcontext() if stream is None else cupy.cuda.ExternalStream(stream, device)
        with cupy.cuda.Device(device), on:
            array = cupy.empty(shape, dtype, order=order(strides))
        return array, int(array.data.ptr)

    def finish(self, array: Any, like: Any) -> Any:
        """See Framework."""
        return array


def _strided(array: Any, name: str, stream: int) -> tuple[int, Form]:
    """An array as cuda.core sees it; `stream` waits for the array's own, unless it is -1."""
    from_any = cuda_core().utils.StridedMemoryView.from_any_interface
    where = getattr(array, "__dlpack_device__", None)
    kind, device = where() if where else (None, None)
    if kind == _DLPACK_CPU:
        stream = -1  # host memory has no streams; it is refused later, with what to do
    try:
        if stream == -1:
            view = from_any(array, stream)
        else:
            if device is None:
                device = from_any(array, -1).device_id
            # On which the order is made, and whose default stream is meant.
            with context.gpu(device):
                view = from_any(array, stream)
    except (BufferError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        raise UsageError(f"{name} cannot be read as an array on a GPU: {error}") from None
    dtype = getattr(array, "dtype", None)
    if dtype is None or element(dtype) is None:
        dtype = view.dtype
    shape = view.shape
    strides = view.strides or _row_strides(shape)
    device = view.device_id if view.is_device_accessible else HOST
    return view.ptr, (shape, strides, dtype, device, view.readonly)
