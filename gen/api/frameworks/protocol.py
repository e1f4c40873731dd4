"""What is asked of a framework."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from gen.api.views import Form, framework_dtype

if TYPE_CHECKING:
    import numpy as np

# The stream that CUDA works on where none is chosen, as DLPack and the driver both number it.
LEGACY_STREAM = 1


# The shape, the strides and the framework's type of a new array: row-major or column-major,
# without gaps.
Result = tuple[tuple[int, ...], tuple[int, ...], Any]

# Of the arrays of a call: what is equal where all their forms are, and the addresses of A, B, C,
# out and the bias, 0 where there is none.
Together = tuple[Any, int, int, int, int, int]


class Framework(Protocol):
    """One framework's arrays. `stream` is what the caller gave, None where nothing was given."""

    has_streams: bool  # whether its current stream can be asked

    def describe(self, array: Any, name: str, stream: int | None) -> tuple[int, Form]:
        """Where an array lies, and in which form. Raises UsageError."""
        ...

    def together(self, a: Any, b: Any, c: Any, out: Any, bias: Any) -> Together | None:
        """What `describe` says of all arrays of a call, in less time.

        None where each has to be described: if only to say what is wrong.
        """
        return None

    def stream(self, device: int) -> int:
        """The framework's current stream on a GPU."""
        ...

    def dtype(self, kind: str) -> Any:
        """What `empty` calls the element type `kind`: as most frameworks do."""
        return framework_dtype(kind)

    def empty(self, like: Any, device: int, result: Result, stream: int | None) -> tuple[Any, int]:
        """A new array beside `like`, with its address."""
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
