"""Launches on a GPU with as little as possible between the caller and the driver.

What a problem needs is prepared once: kernels loaded, grids, parameters in memory as the driver
takes them. A call then writes addresses, alpha and beta into their places and launches.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

from gen import tensor_map
from gen.api.problem import whole
from gen.api.views import framework_dtype
from gen.dtypes import DTypes
from gen.errors import CheckError, MissingError, UsageError
from gen.gpus import shared_memory_attributes
from gen.nvrtc import Module
from gen.plan import BIAS, WORKSPACE, Launch, Plan, Pointer, TensorMap

BUFFERS = ("A", "B", "C", "D", BIAS, WORKSPACE)

_SCALARS = {"f32": ctypes.c_float, "f64": ctypes.c_double, "i32": ctypes.c_int32}


class Gpu:
    """One GPU: its primary context, as frameworks use it, and the kernels loaded there."""

    format = "cubin"

    def __init__(self, index: int) -> None:
        from cuda.bindings import driver
        from cuda.core import DeviceMemoryResource

        self.driver: Any = driver
        self.index = index
        self.call("cuInit", 0)
        device = self.call("cuDeviceGet", index)
        self._context = self.call("cuDevicePrimaryCtxRetain", device)
        self._context_handle = int(self._context)
        major, minor, self.multiprocessors = (
            self.call(
                "cuDeviceGetAttribute",
                getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}"),
                device,
            )
            for name in (
                "COMPUTE_CAPABILITY_MAJOR",
                "COMPUTE_CAPABILITY_MINOR",
                "MULTIPROCESSOR_COUNT",
            )
        )
        self._arch = f"sm_{major}{minor}" + ("a" if major >= 9 else "")
        self._kernels: dict[tuple[bytes, str], Any] = {}
        with self:
            # Its pool keeps what is given back, instead of asking the system for it each time.
            self.pool = DeviceMemoryResource(index)

    def call(self, function: str, *args: Any) -> Any:
        """What a function of the driver gives. Raises CheckError where it fails."""
        status, *values = getattr(self.driver, function)(*args)
        self.check(status, function)
        return values[0] if values else None

    def check(self, status: Any, function: str) -> None:
        """Raises CheckError for a status that is no success."""
        if int(status) != 0:
            raise CheckError(f"{function} failed: {self.driver.CUresult(status).name}")

    def target(self, arch: str) -> str:
        """This GPU's own architecture, with the features that only it has."""
        return self._arch

    def enter(self) -> bool:
        """Makes the GPU the calling thread's current one; whether it was another."""
        _, current = self.driver.cuCtxGetCurrent()
        if int(current) == self._context_handle:
            return False
        self.call("cuCtxPushCurrent", self._context)
        return True

    def leave(self) -> None:
        """Undoes an `enter` that has changed something."""
        self.call("cuCtxPopCurrent")

    def __enter__(self) -> Gpu:
        self.call("cuCtxPushCurrent", self._context)
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def function(self, module: Module, launch: Launch) -> Any:
        """A kernel in this GPU's context, which is current, allowed its shared memory.

        The driver would also launch a kernel of no context, but on whichever GPU the stream is of.
        """
        from cuda.core import ObjectCode

        key = (module.code, launch.kernel)
        if key not in self._kernels:
            self._kernels[key] = ObjectCode.from_cubin(module.code).get_kernel(launch.kernel)
        function = self.call("cuKernelGetFunction", self._kernels[key].handle)
        attributes = shared_memory_attributes(launch.shared_bytes, launch.all_shared)
        for name, value in attributes.items():
            attribute = getattr(self.driver.CUfunction_attribute, name)
            self.call("cuFuncSetAttribute", function, attribute, value)
        return function

    def has(self, stream: int) -> bool:
        """Whether a stream is of this GPU, or the driver does not say."""
        status, context = self.driver.cuStreamGetCtx(stream)
        return int(status) != 0 or int(context) == self._context_handle

    def synchronize(self, stream: int) -> None:
        """Waits for all that is queued on a stream."""
        with self:
            self.call("cuStreamSynchronize", stream)

    def array(self, shape: tuple[int, ...], kind: str, row_major: bool, stream: int) -> Any:
        """New memory as cuda.core's StridedMemoryView, which any framework takes by DLPack."""
        import numpy as np
        from cuda.core import Stream
        from cuda.core.utils import StridedMemoryView

        try:
            dtype = np.dtype(framework_dtype(kind))
        except TypeError:
            raise MissingError(f"{framework_dtype(kind)} needs the package ml_dtypes") from None
        count = int(np.prod(shape))
        with self:
            memory = self.pool.allocate(
                max(count * dtype.itemsize, 1), stream=Stream.from_handle(stream)
            )
        strides = [1] * len(shape)
        if len(shape) == 2:
            strides = [shape[1], 1] if row_major else [1, shape[0]]
        return StridedMemoryView.from_buffer(memory, shape, tuple(strides), dtype=dtype)


@cache
def gpu(index: int) -> Gpu:
    """The GPU with this ordinal."""
    return Gpu(index)


class _Map:
    """A tensor map among the parameters, encoded again where its matrix has moved."""

    def __init__(self, described: TensorMap) -> None:
        self.which = BUFFERS.index(described.source.buffer)
        self._described, self._offset = described, described.source.offset
        self._address = -1
        self._encoded: Any = None
        self._pointer = 0

    def at(self, gpu: Gpu, address: int) -> int:
        """Where the map of the matrix at an address is."""
        address += self._offset
        if address == self._address:
            return self._pointer
        if self._encoded is None or 0 in self._described.dims:
            self._encoded = tensor_map.encode(self._described, address)
            self._pointer = int(self._encoded.getPtr())
        else:
            gpu.call("cuTensorMapReplaceAddress", self._encoded, address)
        self._address = address
        return self._pointer


class _Step:
    """One launch, with its parameters in memory as the driver takes them."""

    def __init__(self, gpu: Gpu, module: Module, launch: Launch, dtypes: DTypes) -> None:
        count = len(launch.args)
        self._values = (ctypes.c_uint64 * count)()
        self._pointers = (ctypes.c_void_p * count)()
        self._addresses: list[tuple[int, int, int]] = []  # parameter, buffer, offset
        self._maps: list[tuple[int, _Map]] = []
        self._scalars: dict[str, Any] = {}
        for i, (name, arg) in enumerate(launch.args.items()):
            place = ctypes.addressof(self._values) + 8 * i
            self._pointers[i] = place
            if isinstance(arg, Pointer):
                self._addresses.append((i, BUFFERS.index(arg.buffer), arg.offset))
            elif isinstance(arg, TensorMap):
                self._maps.append((i, _Map(arg)))
            elif name in ("alpha", "beta"):
                kind = _SCALARS[dtypes.scalar.name]
                self._scalars[name] = kind.from_buffer(self._values, 8 * i)
            else:
                ctypes.memmove(place, arg.tobytes(), arg.nbytes)
        function = gpu.function(module, launch)
        self._config = (function, *launch.grid, *launch.block, launch.shared_bytes)
        self._parameters = ctypes.addressof(self._pointers)
        self._gpu, self._launch = gpu, gpu.driver.cuLaunchKernel

    def __call__(self, stream: int, addresses: Sequence[int], alpha: Any, beta: Any) -> None:
        """Queues the launch."""
        values = self._values
        for i, which, offset in self._addresses:
            values[i] = addresses[which] + offset
        if self._scalars:
            self._scalars["alpha"].value = alpha
            self._scalars["beta"].value = beta
        for i, found in self._maps:
            self._pointers[i] = found.at(self._gpu, addresses[found.which])
        (status,) = self._launch(*self._config, stream, self._parameters, 0)
        if status:
            self._gpu.check(status, "cuLaunchKernel")


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
        gpu = self._gpu
        space = gpu.call("cuMemAllocFromPoolAsync", self._workspace_bytes, gpu.pool.handle, stream)
        try:
            for step in self._steps:
                step(stream, (*addresses, int(space)), alpha, beta)
        finally:
            gpu.call("cuMemFreeAsync", space, stream)
