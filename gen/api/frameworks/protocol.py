"""What is asked of a framework."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from gen.api.views import Form, framework_dtype

if TYPE_CHECKING:
    import numpy as np

# The stream that CUDA works on where none is chosen, as DLPack and the driver both number it.
LEGACY_STREAM = 1


class Framework(Protocol):
    """One framework's arrays. `stream` is what the caller gave, None where nothing was given."""

    has_streams: bool  # whether its current stream can be asked

    def describe(self, array: Any, name: str, stream: int | None) -> tuple[int, Form]:
        """Where an array lies, and in which form. Raises UsageError."""
        ...

    def stream(self, device: int) -> int:
        """The framework's current stream on a GPU."""
        ...

    def dtype(self, kind: str) -> Any:
        """What `empty` calls the element type `kind`: as most frameworks do."""
        return framework_dtype(kind)

    def empty(
        self, like: Any, device: int, shape: tuple[int, ...], dtype: Any, row_major: bool,
        stream: int | None,
    ) -> tuple[Any, int]:  # fmt: skip
        """A new array beside `like`, with its address; `dtype` is None for the one of `like`."""
        ...

    def workspace(self, like: Any, device: int, size: int, stream: int | None) -> tuple[Any, int]:
        """Memory that the caller may use on its stream while it holds the first, and its address.

        The address is 0 where the framework leaves that to the driver's pool.
        """
        ...

    def finish(self, array: Any, like: Any) -> Any:
        """What the caller gets of an array that `empty` made, when the result is in it."""
        ...

    def on_host(self, array: Any, name: str) -> np.ndarray:
        """The same memory, the host's, as NumPy's array of the type that `numerics` stores it in.

        Raises UsageError.
        """
        ...
