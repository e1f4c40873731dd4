"""The frameworks that arrays come from: a file for each, none of which imports its framework.

An array's framework is loaded already, and found by the name of its class's module. PyTorch is
asked directly: it describes a tensor in a tenth of the time that DLPack takes, and bfloat16 without
ml_dtypes. All others go through cuda.core's StridedMemoryView, by DLPack or
`__cuda_array_interface__`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gen.api.frameworks.foreign import CuPy, Foreign
from gen.api.frameworks.numpy import NumPy
from gen.api.frameworks.protocol import Framework
from gen.api.frameworks.torch import Torch
from gen.errors import UsageError

__all__ = ["BY_TYPE", "Framework", "beside", "framework", "stream_handle"]

_BY_MODULE: dict[str, Callable[[], Framework]] = {"numpy": NumPy, "torch": Torch, "cupy": CuPy}

# What was found so far. It is asked first, since it is most of what a call asks.
BY_TYPE: dict[type, Framework] = {}


def framework(array: Any, name: str) -> Framework:
    """The framework of an array. Raises UsageError for what is no array."""
    return BY_TYPE.get(type(array)) or _find(array, name)


def _find(array: Any, name: str) -> Framework:
    kind = type(array)
    if hasattr(array, "mask") and hasattr(array, "filled"):
        raise UsageError(f"{name} is a masked array, whose mask no kernel reads; pass x.filled(0)")
    if not hasattr(array, "__dlpack__") and not hasattr(array, "__cuda_array_interface__"):
        raise UsageError(
            f"{name} is a {kind.__name__}, no array with DLPack or __cuda_array_interface__; "
            "pass an array of PyTorch, CuPy, JAX or NumPy"
        )
    modules = (base.__module__.partition(".")[0] for base in kind.__mro__)
    made = next((_BY_MODULE[module] for module in modules if module in _BY_MODULE), Foreign)
    same = (known for known in BY_TYPE.values() if type(known) is made)
    BY_TYPE[kind] = known = next(same, None) or made()  # one of each, so that `is` compares them
    return known


def beside(home: Framework, array: Any, name: str, stream: int | None) -> Framework:
    """The framework of an operand, where A's is `home`.

    Raises UsageError where two frameworks may be working on two streams and nothing orders them.
    """
    own = framework(array, name)
    if own is not home and stream is None and not {NumPy} & {type(own), type(home)}:
        raise UsageError(
            f"A and {name} are of different frameworks, which may work on different streams; "
            "pass stream, after both of them, or convert one"
        )
    return own


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
