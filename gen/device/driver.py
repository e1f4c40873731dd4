"""NVIDIA's driver, through cuda.bindings: its functions, what is here, and launches.

`call` asks the driver for anything. A `LoadedKernel` is launched with `Parameters`; a `Gpu` of
`gen.device.context` loads it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from gen.errors import CheckError, GenError
from gen.requirements import RUNNING, cuda_core, lacking
from gen.spec.arch import STATIC_SHARED

if TYPE_CHECKING:
    from cuda.core import Stream

    from gen.kernels.launches import Launch

_WORD = 8  # bytes: the most that an address or a number among the parameters has


class OutOfMemory(GenError):
    """The GPU has not enough memory for a problem (exit code 3)."""

    exit_code = 3


# --- calls


@cache
def bindings() -> Any:
    """cuda.bindings.driver, imported when it is first used. Raises MissingPackages."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise lacking("running kernels", RUNNING, error) from None
    return driver


def call(function: str, *args: Any) -> Any:
    """What a function of the driver gives: None, a value or a tuple. Raises CheckError."""
    status, *values = getattr(bindings(), function)(*args)
    check(status, function)
    if len(values) > 1:
        return tuple(values)
    return values[0] if values else None


def check(status: Any, function: str) -> None:
    """Raises CheckError for a status that is no success."""
    if status:
        raise CheckError(f"{function} failed: {bindings().CUresult(status).name}")


# --- what is here


def why_no_gpu() -> str | None:
    """None where a GPU can be used, otherwise the reason why not, in a few words.

    Raises MissingPackages where there is nothing to ask the driver with.
    """
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return "CUDA_VISIBLE_DEVICES is empty"
    try:
        call("cuInit", 0)
        count = call("cuDeviceGetCount")
    except RuntimeError:
        return "no NVIDIA driver (libcuda) is installed"
    except CheckError as error:
        return f"the driver reports that {error}"
    return None if count else "the driver sees no GPU"


def cuda_version() -> str:
    """The newest CUDA that the driver knows, such as 13.0."""
    version = call("cuDriverGetVersion")
    return f"{version // 1000}.{version % 1000 // 10}"


def driver_version() -> str:
    """The driver's own version, such as 580.95.05."""
    try:
        parts = cuda_core().system.get_kernel_mode_driver_version()
        return ".".join(f"{part:02}" for part in parts)
    except Exception:  # NVML is not everywhere
        return f"CUDA {cuda_version()}"


def works() -> bool:
    """Whether the current GPU still does: after a kernel failed, it refuses all of a process."""
    try:
        call("cuCtxSynchronize")
    except CheckError:
        return False
    return True


def gpus_here() -> list[str]:
    """All GPUs, such as `NVIDIA H200 (sm_90)`; none of them is started."""
    devices = [cuda_core().Device(index) for index in range(call("cuDeviceGetCount"))]
    return [f"{d.name} (sm_{''.join(map(str, d.compute_capability))})" for d in devices]


# --- launches


class Parameters:
    """A kernel's parameters in memory, as the driver takes them.

    args: addresses, numpy scalars of up to 8 bytes, and what lies in memory of its own: tensor maps
    and ctypes structures or arrays. `address` is that of an array of pointers to the values; the
    value of an address or a number is 8 bytes of `values`.
    """

    def __init__(self, args: Sequence[Any]) -> None:
        self.values = (ctypes.c_uint64 * len(args))()
        self.pointers = (ctypes.c_void_p * len(args))()
        self.address = ctypes.addressof(self.pointers)
        self._args = args
        for i, arg in enumerate(args):
            self.pointers[i] = self._place(i, arg)

    def _place(self, i: int, arg: Any) -> int:
        if isinstance(arg, ctypes.Array | ctypes.Structure):
            return ctypes.addressof(arg)
        if hasattr(arg, "getPtr"):  # cuda.bindings' structures
            return int(arg.getPtr())
        place = ctypes.addressof(self.values) + _WORD * i
        if isinstance(arg, int):
            self.values[i] = arg
        else:
            assert arg.nbytes <= _WORD, arg
            ctypes.memmove(place, arg.tobytes(), arg.nbytes)
        return place


class LoadedKernel:
    """A kernel on a GPU with all of its launch but the stream and the parameters."""

    def __init__(self, function: Any, launch: Launch) -> None:
        self._function, self._launch = function, launch
        self._config = _config(launch)
        self._queue = partial(bindings().cuLaunchKernelEx, self._config, function)

    def __call__(self, stream: Stream, parameters: Parameters) -> None:
        """Queues one launch; from one thread at a time. Raises CheckError."""
        self._config.hStream = stream.handle
        (status,) = self._queue(parameters.address, 0)
        check(status, "cuLaunchKernelEx")

    def with_parameters(self, parameters: Parameters) -> tuple[Any, Callable[[], tuple[Any]]]:
        """A launch for callers to whom microseconds matter: its configuration, and what starts it.

        The second is the driver's own function, which gives its status. The stream's handle has to
        be set before: `hStream` of the first.
        """
        config = _config(self._launch)
        queue = bindings().cuLaunchKernelEx
        return config, partial(queue, config, self._function, parameters.address, 0)

    def clusters(self) -> int:
        """Those of its blocks that run at the same time. Raises CheckError."""
        found: int = call("cuOccupancyMaxActiveClusters", self._function, self._config)
        return found

    def parameter_bytes(self, index: int) -> int:
        """The size of one of the kernel's parameters."""
        _, size = call("cuFuncGetParamInfo", self._function, index)
        return int(size)


def _config(launch: Launch) -> Any:
    """What cuLaunchKernelEx takes: made once, it is passed faster than cuLaunchKernel's numbers."""
    driver = bindings()
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
    config.sharedMemBytes = launch.shared_bytes
    if launch.early:  # it may start while the one before it ends
        attribute = driver.CUlaunchAttribute()
        kinds = driver.CUlaunchAttributeID
        attribute.id = kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attribute.value.programmaticStreamSerializationAllowed = 1
        config.attrs, config.numAttrs = [attribute], 1
    return config


def shared_memory_attributes(launch: Launch) -> dict[str, int]:
    """The attributes that a kernel needs for its dynamic shared memory, by the driver's names.

    More than 48 KiB has to be asked for.
    """
    attributes = {}
    if launch.shared_bytes > STATIC_SHARED:
        attributes["CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"] = launch.shared_bytes
    if launch.all_shared:
        attributes["CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT"] = 100  # percent
    return attributes
