"""NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gen.api.frameworks.protocol import Framework, Result
from gen.api.views import HOST, Form, element_of, order
from gen.errors import UsageError

if TYPE_CHECKING:
    import numpy as np


class NumPy(Framework):
    """Arrays in host memory; what computes copies them to a GPU, or runs on the emulator."""

    has_streams = True

    def describe(self, array: Any, name: str, stream: int | None) -> tuple[int, Form]:
        """See Framework."""
        size = array.itemsize
        if any(step % size for step in array.strides):
            raise UsageError(f"{name} has strides that are no whole elements; pass a copy of it")
        strides = tuple(step // size for step in array.strides)
        address = array.__array_interface__["data"][0]
        return address, (array.shape, strides, array.dtype, HOST, not array.flags.writeable)

    def stream(self, device: int) -> int:
        """See Framework."""
        return 0

    def empty(self, like: Any, device: int, result: Result, stream: int | None) -> tuple[Any, int]:
        """See Framework."""
        import numpy as np

        shape, strides, dtype = result
        array = np.empty(shape, dtype, order=order(strides))
        return array, array.__array_interface__["data"][0]

    def workspace(self, like: Any, device: int, size: int, stream: int | None) -> tuple[Any, int]:
        """See Framework."""
        return None, 0

    def finish(self, array: Any, like: Any) -> Any:
        """See Framework."""
        return array

    def on_host(self, array: Any, name: str) -> np.ndarray:
        """See Framework."""
        import numpy as np

        from gen.spec.numerics import storage_dtype

        plain = np.asarray(array)  # of a subclass, whose indices may have rules of their own
        found: np.ndarray = plain.view(storage_dtype(element_of(array.dtype, name)))
        return found
