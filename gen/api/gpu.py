"""Launches on a GPU with as little as possible between the caller and the driver.

What a problem needs is prepared once: kernels loaded, grids, parameters in memory as the driver
takes them. A call then writes addresses, alpha and beta into their places and launches.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gen.api.problem import whole
from gen.api.views import framework_dtype
from gen.compile.nvrtc import Module
from gen.device import tensor_map
from gen.device.driver import Gpu, Parameters, call, check
from gen.errors import CheckError, MissingError, UsageError
from gen.kernels.launches import BIAS, WORKSPACE, Launch, Plan, Pointer, TensorMap
from gen.spec.dtypes import DTypes

if TYPE_CHECKING:
    from cuda.core.utils import StridedMemoryView

BUFFERS = ("A", "B", "C", "D", BIAS, WORKSPACE)

_SCALARS = {"f32": ctypes.c_float, "f64": ctypes.c_double, "i32": ctypes.c_int32}


def new_array(
    gpu: Gpu, shape: tuple[int, ...], kind: str, row_major: bool, stream: int
) -> StridedMemoryView:
    """New memory of a GPU as cuda.core's StridedMemoryView, which any framework takes by DLPack."""
    import numpy as np
    from cuda.core import Stream
    from cuda.core.utils import StridedMemoryView

    try:
        dtype = np.dtype(framework_dtype(kind))
    except TypeError:
        raise MissingError(f"{framework_dtype(kind)} needs the package ml_dtypes") from None
    size = int(np.prod(shape)) * dtype.itemsize
    with gpu:
        memory = gpu.memory(size, Stream.from_handle(stream))
    strides = [1] * len(shape)
    if len(shape) == 2:
        strides = [shape[1], 1] if row_major else [1, shape[0]]
    return StridedMemoryView.from_buffer(memory, shape, tuple(strides), dtype=dtype)


class _Map:
    """A tensor map among the parameters, encoded again where its matrix has moved."""

    def __init__(self, described: TensorMap) -> None:
        self.which = BUFFERS.index(described.source.buffer)
        self._described, self._offset = described, described.source.offset
        self._address = -1
        self._encoded: Any = None
        self._pointer = 0

    def at(self, address: int) -> int:
        """Where the map of the matrix at an address is."""
        address += self._offset
        if address == self._address:
            return self._pointer
        if self._encoded is None or 0 in self._described.dims:
            self._encoded = tensor_map.encode(self._described, address)
            self._pointer = int(self._encoded.getPtr())
        else:
            call("cuTensorMapReplaceAddress", self._encoded, address)
        self._address = address
        return self._pointer


class _Step:
    """One launch, with its parameters in memory as the driver takes them."""

    def __init__(self, gpu: Gpu, module: Module, launch: Launch, dtypes: DTypes) -> None:
        parameters = Parameters(
            [0 if isinstance(arg, Pointer | TensorMap) else arg for arg in launch.args.values()]
        )
        self._values, self._pointers = parameters.values, parameters.pointers
        self._parameters = parameters.address
        self._addresses: list[tuple[int, int, int]] = []  # parameter, buffer, offset
        self._maps: list[tuple[int, _Map]] = []
        self._scalars: dict[str, Any] = {}
        for i, (name, arg) in enumerate(launch.args.items()):
            if isinstance(arg, Pointer):
                self._addresses.append((i, BUFFERS.index(arg.buffer), arg.offset))
            elif isinstance(arg, TensorMap):
                self._maps.append((i, _Map(arg)))
            elif name in ("alpha", "beta"):
                kind = _SCALARS[dtypes.scalar.name]
                self._scalars[name] = kind.from_buffer(self._values, 8 * i)
        # One after another: to start early takes a structure, and more of Python for each call.
        self._queue = gpu.load(module, replace(launch, early=False)).queue

    def __call__(self, stream: int, addresses: Sequence[int], alpha: Any, beta: Any) -> None:
        """Queues the launch."""
        values = self._values
        for i, which, offset in self._addresses:
            values[i] = addresses[which] + offset
        if self._scalars:
            self._scalars["alpha"].value = alpha
            self._scalars["beta"].value = beta
        for i, found in self._maps:
            self._pointers[i] = found.at(addresses[found.which])
        (status,) = self._queue(stream, self._parameters, 0)
        if status:
            check(status, "cuLaunchKernel")


class Launcher:
    """All launches of a problem on one GPU; safe to call from several threads.

    The workspace comes from the memory pool for each call, on the call's stream, and goes back
    there: a workspace that is kept would be shared by streams, or by a captured graph and later
    calls. Inside a capture, the driver makes both a part of the graph.
    """

    def __init__(self, gpu: Gpu, module: Module, steps: Plan, dtypes: DTypes) -> None:
        self._gpu, self._lock = gpu, threading.Lock()
        self._workspace_bytes = steps.workspace_bytes
        self._is_integer = not dtypes.scalar.is_float
        with gpu:
            self._steps = [_Step(gpu, module, launch, dtypes) for launch in steps.launches]

    def __call__(self, stream: int, addresses: tuple[int, ...], alpha: Any, beta: Any) -> None:
        """Queues everything; `addresses` of A, B, C, D and the bias.

        Raises CheckError, and UsageError for what the caller has given.
        """
        if self._is_integer:
            alpha, beta = whole(alpha, "alpha"), whole(beta, "beta")
        gpu = self._gpu
        entered = gpu.enter()
        try:
            # The parameters are shared; the driver has copied them when a launch returns.
            with self._lock:
                if self._workspace_bytes:
                    self._with_workspace(stream, addresses, alpha, beta)
                else:
                    for step in self._steps:
                        step(stream, addresses, alpha, beta)
        except CheckError:
            if gpu.has(stream):
                raise
            raise UsageError(
                f"stream is of another GPU than the arrays, which are on GPU {gpu.index}; pass "
                "one of that GPU (of its primary context)"
            ) from None
        except TypeError:
            raise UsageError(f"alpha={alpha!r} and beta={beta!r} have to be numbers") from None
        finally:
            if entered:
                gpu.leave()

    def _with_workspace(
        self, stream: int, addresses: tuple[int, ...], alpha: Any, beta: Any
    ) -> None:
        pool = self._gpu.pool.handle
        space = call("cuMemAllocFromPoolAsync", self._workspace_bytes, pool, stream)
        try:
            for step in self._steps:
                step(stream, (*addresses, int(space)), alpha, beta)
        finally:
            call("cuMemFreeAsync", space, stream)
