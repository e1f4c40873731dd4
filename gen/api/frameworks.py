"""What is asked of the frameworks that arrays come from; none of them is imported here.

An array's framework is loaded already, and found by the name of its class's module. PyTorch is
asked directly: it describes a tensor in a tenth of the time that DLPack takes, and bfloat16 without
ml_dtypes. All others go through cuda.core's StridedMemoryView, by DLPack or
`__cuda_array_interface__`.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from gen.api.gpu import new_array
from gen.api.views import HOST, View, element, framework_dtype
from gen.device import driver
from gen.errors import UsageError

# The stream that CUDA works on where none is chosen, as DLPack and the driver both number it.
LEGACY_STREAM = 1

_DLPACK_CPU = 1


class Framework(Protocol):
    """One framework's arrays. `stream` is what the caller gave, None where nothing was given."""

    has_streams: bool  # whether its current stream can be asked

    def view(self, array: Any, name: str, stream: int | None) -> View:
        """The array as memory. Raises UsageError."""
        ...

    def stream(self, device: int) -> int:
        """The framework's current stream on a GPU."""
        ...

    def empty(
        self, like: Any, view: View, shape: tuple[int, ...], kind: str, row_major: bool,
        stream: int | None,
    ) -> tuple[Any, int]:  # fmt: skip
        """A new array of element type `kind` beside `like`, with its address."""
        ...

    def finish(self, array: Any, like: Any) -> Any:
        """What the caller gets of an array that `empty` made, when the result is in it."""
        ...


def _order(shape: tuple[int, ...], row_major: bool) -> str:
    return "C" if row_major or len(shape) < 2 else "F"


def _row_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides[: len(shape)]))


class NumPy:
    """Arrays in host memory; what computes copies them to a GPU, or runs on the emulator."""

    has_streams = True

    def view(self, array: Any, name: str, stream: int | None) -> View:
        """See Framework."""
        size = array.itemsize
        if any(step % size for step in array.strides):
            raise UsageError(f"{name} has strides that are no whole elements; pass a copy of it")
        strides = tuple(step // size for step in array.strides)
        address = array.__array_interface__["data"][0]
        return View(address, array.shape, strides, array.dtype, HOST, not array.flags.writeable)

    def stream(self, device: int) -> int:
        """See Framework."""
        return 0

    def empty(
        self, like: Any, view: View, shape: tuple[int, ...], kind: str, row_major: bool,
        stream: int | None,
    ) -> tuple[Any, int]:  # fmt: skip
        """See Framework."""
        import numpy as np

        dtype = view.dtype if element(view.dtype) == kind else framework_dtype(kind)
        array = np.empty(shape, dtype, order="C" if row_major else "F")
        return array, array.__array_interface__["data"][0]

    def finish(self, array: Any, like: Any) -> Any:
        """See Framework."""
        return array


class Torch:
    """PyTorch."""

    has_streams = True

    def view(self, array: Any, name: str, stream: int | None) -> View:
        """See Framework."""
        if array.requires_grad and sys.modules["torch"].is_grad_enabled():
            raise UsageError(
                f"{name} requires a gradient, which gen does not compute; pass x.detach(), or "
                "call it under torch.no_grad()"
            )
        try:
            return View(
                array.data_ptr(), array.shape, array.stride(), array.dtype, array.get_device()
            )
        except RuntimeError as error:  # a sparse tensor, or one without memory
            raise UsageError(f"{name} is no dense tensor in memory ({error})") from None

    def stream(self, device: int) -> int:
        """See Framework."""
        # What torch.cuda.current_stream(device).cuda_stream gives, without making the object.
        return int(sys.modules["torch"]._C._cuda_getCurrentRawStream(device))

    def empty(
        self, like: Any, view: View, shape: tuple[int, ...], kind: str, row_major: bool,
        stream: int | None,
    ) -> tuple[Any, int]:  # fmt: skip
        """See Framework."""
        sizes = shape if row_major else shape[::-1]
        other = element(view.dtype) != kind
        dtype = getattr(sys.modules["torch"], framework_dtype(kind)) if other else view.dtype
        if stream is None:
            array = like.new_empty(sizes, dtype=dtype)
        else:
            with self._on(stream, view.device):
                array = like.new_empty(sizes, dtype=dtype)
        return (array if row_major else array.t()), array.data_ptr()

    def _on(self, stream: int, device: int) -> AbstractContextManager[Any]:
        """Memory that is allocated inside is safe to use on `stream`, then to give back there."""
        if stream == self.stream(device):
            return nullcontext()
        cuda = sys.modules["torch"].cuda
        legacy = stream in (0, LEGACY_STREAM)
        own = cuda.default_stream(device) if legacy else cuda.ExternalStream(stream, device)
        context: AbstractContextManager[Any] = cuda.stream(own)
        return context

    def finish(self, array: Any, like: Any) -> Any:
        """See Framework."""
        return array


class Foreign:
    """Any other array with DLPack or `__cuda_array_interface__`.

    Its framework cannot be asked for its current stream: without one from the caller, calls run on
    the default stream, which the inputs' own streams come before, and return with the result.
    """

    has_streams = False

    def view(self, array: Any, name: str, stream: int | None) -> View:
        """See Framework."""
        return _strided(array, name, stream or LEGACY_STREAM)

    def stream(self, device: int) -> int:
        """See Framework."""
        return LEGACY_STREAM

    def empty(
        self, like: Any, view: View, shape: tuple[int, ...], kind: str, row_major: bool,
        stream: int | None,
    ) -> tuple[Any, int]:  # fmt: skip
        """See Framework. Memory of gen's own, which the array's framework takes over at the end."""
        if not hasattr(like, "__array_namespace__"):
            raise UsageError(
                f"{type(like).__name__} has no way to make another array like it; pass out"
            )
        gpu = driver.gpu(view.device)
        memory = new_array(gpu, shape, kind, row_major, stream or LEGACY_STREAM)
        return memory, memory.ptr

    def finish(self, array: Any, like: Any) -> Any:
        """See Framework."""
        return like.__array_namespace__().from_dlpack(array)


class CuPy(Foreign):
    """CuPy."""

    has_streams = True

    def view(self, array: Any, name: str, stream: int | None) -> View:
        """See Framework."""
        return _strided(array, name, -1)  # its stream is the caller's, so that nothing has to wait

    def stream(self, device: int) -> int:
        """See Framework."""
        return int(sys.modules["cupy"].cuda.get_current_stream(device).ptr)

    def empty(
        self, like: Any, view: View, shape: tuple[int, ...], kind: str, row_major: bool,
        stream: int | None,
    ) -> tuple[Any, int]:  # fmt: skip
        """See Framework."""
        cupy = sys.modules["cupy"]
        dtype = view.dtype if element(view.dtype) == kind else framework_dtype(kind)
        on = nullcontext() if stream is None else cupy.cuda.ExternalStream(stream, view.device)
        with cupy.cuda.Device(view.device), on:
            array = cupy.empty(shape, dtype, order=_order(shape, row_major))
        return array, int(array.data.ptr)

    def finish(self, array: Any, like: Any) -> Any:
        """See Framework."""
        return array


def _strided(array: Any, name: str, stream: int) -> View:
    """An array as cuda.core sees it; `stream` waits for the array's own, unless it is -1."""
    from cuda.core.utils import StridedMemoryView

    where = getattr(array, "__dlpack_device__", None)
    kind, device = where() if where else (None, None)
    if kind == _DLPACK_CPU:
        stream = -1  # host memory has no streams; it is refused later, with what to do
    try:
        if stream == -1:
            view = StridedMemoryView.from_any_interface(array, stream)
        else:
            if device is None:
                device = StridedMemoryView.from_any_interface(array, -1).device_id
            # On which the order is made, and whose default stream is meant.
            with driver.gpu(device):
                view = StridedMemoryView.from_any_interface(array, stream)
    except (BufferError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        raise UsageError(f"{name} cannot be read as an array on a GPU: {error}") from None
    dtype = getattr(array, "dtype", None)
    if dtype is None or element(dtype) is None:
        dtype = view.dtype
    shape = view.shape
    strides = view.strides or _row_strides(shape)
    device = view.device_id if view.is_device_accessible else HOST
    return View(view.ptr, shape, strides, dtype, device, view.readonly)


_NUMPY = NumPy()
_BY_MODULE: dict[str, Framework] = {"numpy": _NUMPY, "torch": Torch(), "cupy": CuPy()}
_FOREIGN = Foreign()
_BY_TYPE: dict[type, Framework] = {}


def framework(array: Any, name: str) -> Framework:
    """The framework of an array. Raises UsageError for what is no array."""
    return _BY_TYPE.get(type(array)) or _find(array, name)


def _find(array: Any, name: str) -> Framework:
    kind = type(array)
    if not hasattr(array, "__dlpack__") and not hasattr(array, "__cuda_array_interface__"):
        raise UsageError(
            f"{name} is a {kind.__name__}, no array with DLPack or __cuda_array_interface__; "
            "pass an array of PyTorch, CuPy, JAX or NumPy"
        )
    modules = (base.__module__.partition(".")[0] for base in kind.__mro__)
    known = next((_BY_MODULE[module] for module in modules if module in _BY_MODULE), _FOREIGN)
    _BY_TYPE[kind] = known
    return known


def view_beside(home: Framework, array: Any, name: str, stream: int | None) -> View:
    """An operand as memory, where A's framework is `home`.

    Raises UsageError where two frameworks may be working on two streams and nothing orders them.
    """
    own = framework(array, name)
    if own is not home and stream is None and _NUMPY not in (own, home):
        raise UsageError(
            f"A and {name} are of different frameworks, which may work on different streams; "
            "pass stream, after both of them, or convert one"
        )
    return own.view(array, name, stream)


def stream_handle(stream: Any) -> int:
    """The handle of a stream of cuda.core, PyTorch or CuPy, or a handle itself.

    Raises UsageError.
    """
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for attribute in ("cuda_stream", "ptr"):
        if hasattr(stream, attribute):
            return int(getattr(stream, attribute))
    raise UsageError(
        f"stream is a {type(stream).__name__}; pass a stream of cuda.core, PyTorch or CuPy, or the "
        "handle of one"
    )
