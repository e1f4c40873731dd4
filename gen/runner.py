"""Where compiled kernels run: `GpuRunner` on cuda.core, `EmulatorRunner` on the CPU."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from gen.errors import CheckError, MissingError, unknown

if TYPE_CHECKING:
    import numpy as np
    from cuda.core import Kernel

    from gen.emulator import Finding, Observer
    from gen.nvrtc import Module
    from gen.registry import Dim3

DEVICES = ("auto", "gpu", "cpu")
CHECKS = ("race", "init")  # what the emulator looks for only when asked


class Buffer(Protocol):
    """Memory of a runner, filled from an array."""

    @property
    def name(self) -> str:
        """What findings call it."""
        ...


class Runner(Protocol):
    """What verification needs of a device. Buffers stay until they are freed."""

    name: str
    format: str  # what modules have to be compiled to: "ptx" or "cubin"

    def target(self, arch: str) -> str:
        """The architecture to compile for, of a kernel that was specified for `arch`."""
        ...

    def upload(self, array: np.ndarray, name: str, defined: bool = True) -> Any:
        """Device memory of exactly the array's bytes, with guards around it.

        defined: False where a kernel must not read before it has written.
        """
        ...

    def download(self, buffer: Any) -> np.ndarray:
        """The buffer's contents in the shape and dtype that were uploaded.

        Raises CheckError where something was written beside the buffer.
        """
        ...

    def free(self, buffer: Any) -> None:
        """Gives the memory back."""
        ...

    def launch(
        self,
        module: Module,
        kernel: str,
        grid: Dim3,
        block: Dim3,
        args: Sequence[Any],
        shared_bytes: int = 0,
    ) -> Sequence[Finding]:
        """Runs a kernel to its end. `args` are buffers and numpy scalars of the parameters' sizes.

        Returns what the device's checks found, which is nothing on a GPU. Raises CheckError where
        the launch itself fails.
        """
        ...


class EmulatorRunner:
    """Runs PTX on the CPU, with every memory access and every barrier checked.

    checks: what else to look for, of `CHECKS`. max_findings: of one launch. observers: what else
    watches every launch.
    """

    name = "emulator"
    format = "ptx"

    def __init__(
        self,
        checks: Sequence[str] = (),
        max_findings: int = 20,
        observers: Sequence[Observer] = (),
    ) -> None:
        from gen.emulator import Emulator

        self._emulator = Emulator(max_findings)
        self._observers = [observer for check in checks for observer in _observers(check)]
        self._observers += observers
        self.suppressed = 0  # findings so far that were like others, or beyond the limit

    @property
    def budget(self) -> int | None:
        """Thread-instructions after which a launch is stopped with BudgetError; None: no limit."""
        return self._emulator.instruction_budget

    @budget.setter
    def budget(self, value: int | None) -> None:
        self._emulator.instruction_budget = value

    def target(self, arch: str) -> str:
        """The emulator runs code for any architecture."""
        return arch

    def upload(self, array: np.ndarray, name: str, defined: bool = True) -> Any:
        """See Runner; accesses outside of the buffer are findings of `launch`."""
        return self._emulator.alloc(array, name, defined)

    def download(self, buffer: Any) -> np.ndarray:
        """See Runner."""
        return self._emulator.read(buffer)

    def free(self, buffer: Any) -> None:
        """See Runner."""
        self._emulator.free(buffer)

    def launch(
        self,
        module: Module,
        kernel: str,
        grid: Dim3,
        block: Dim3,
        args: Sequence[Any],
        shared_bytes: int = 0,
    ) -> Sequence[Finding]:
        """See Runner."""
        report = self._emulator.launch(
            module.code.decode(),
            kernel,
            grid,
            block,
            args,
            shared_bytes,
            source_lines=module.text.splitlines(),
            observers=self._observers,
        )
        self.suppressed += report.suppressed
        return report.findings


def _observers(check: str) -> list[Observer]:
    from gen.emulator import GlobalRaces, SharedRaces, UninitializedReads

    if check not in CHECKS:
        raise unknown("check", check, CHECKS)
    return [SharedRaces(), GlobalRaces()] if check == "race" else [UninitializedReads()]


@dataclass(frozen=True)
class _GpuBuffer:
    name: str
    memory: Any  # cuda.core.Buffer: guard, contents, guard
    array: np.ndarray  # shape and dtype of the contents

    @property
    def address(self) -> int:
        return int(self.memory.handle) + _GUARD


# Bytes before and after each buffer on a GPU. All bits set is NaN in every float format, so that
# what is read there spoils a result, and -1 in integers; what is written there is noticed.
_GUARD = 4096
_GUARD_BYTE = 0xFF


class GpuRunner:
    """Runs cubins on the first GPU through cuda.core."""

    format = "cubin"

    def __init__(self) -> None:
        from cuda.core import Device

        self._device = Device(0)
        self._device.set_current()
        self._stream = self._device.create_stream()
        self._kernels: dict[tuple[bytes, str], Kernel] = {}
        self.name = self._device.name

    def target(self, arch: str) -> str:
        """This GPU's own architecture, with the features that only it has (`sm_90a`)."""
        major, minor = self._device.compute_capability
        return f"sm_{major}{minor}" + ("a" if major >= 9 else "")

    def upload(self, array: np.ndarray, name: str, defined: bool = True) -> _GpuBuffer:
        """See Runner; guard bands around the buffer are checked by `download`."""
        import numpy as np

        guard = np.full(_GUARD, _GUARD_BYTE, np.uint8)
        contents = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        image = np.concatenate([guard, contents, guard])
        memory = self._device.allocate(image.nbytes, stream=self._stream)
        # On the kernels' own stream: a plain copy from pageable memory may return before its data
        # has arrived, and a kernel on another stream would not wait for it.
        copy = (int(memory.handle), image.ctypes.data, image.nbytes, self._stream.handle)
        _driver("cuMemcpyHtoDAsync", *copy)
        self._stream.sync()
        return _GpuBuffer(name, memory, np.empty_like(array))

    def download(self, buffer: _GpuBuffer) -> np.ndarray:
        """See Runner."""
        import numpy as np

        image = np.empty(buffer.array.nbytes + 2 * _GUARD, np.uint8)
        copy = (image.ctypes.data, int(buffer.memory.handle), image.nbytes, self._stream.handle)
        _driver("cuMemcpyDtoHAsync", *copy)
        self._stream.sync()
        end = _GUARD + buffer.array.nbytes
        for first, band in ((0, image[:_GUARD]), (end, image[end:])):
            touched = np.flatnonzero(band != _GUARD_BYTE)
            if touched.size:
                offset = first + int(touched[0]) - _GUARD
                raise CheckError(
                    f"a byte beside {buffer.name} was overwritten: offset {offset} of "
                    f"{buffer.array.nbytes} bytes"
                )
        contents = image[_GUARD:end].view(buffer.array.dtype)
        return contents.reshape(buffer.array.shape)

    def free(self, buffer: _GpuBuffer) -> None:
        """See Runner."""
        buffer.memory.close(self._stream)

    def launch(
        self,
        module: Module,
        kernel: str,
        grid: Dim3,
        block: Dim3,
        args: Sequence[Any],
        shared_bytes: int = 0,
    ) -> Sequence[Finding]:
        """See Runner."""
        from cuda.core import LaunchConfig, launch

        if 0 in grid:
            return []
        config = LaunchConfig(grid=grid, block=block, shmem_size=shared_bytes)
        values = [a.address if isinstance(a, _GpuBuffer) else a for a in args]
        try:
            launch(self._stream, config, self._kernel(module, kernel, shared_bytes), *values)
            self._stream.sync()
        except Exception as error:  # cuda.core raises CUDAError, of no public base class
            raise CheckError(f"{kernel} failed on {self.name}: {error}") from None
        return []

    def synchronize(self) -> None:
        """Waits for everything that runs on the GPU, on any stream."""
        self._device.sync()

    def _kernel(self, module: Module, name: str, shared_bytes: int) -> Kernel:
        from cuda.bindings import driver
        from cuda.core import ObjectCode

        key = (module.code, name)
        if key not in self._kernels:
            self._kernels[key] = ObjectCode.from_cubin(module.code).get_kernel(name)
        kernel = self._kernels[key]
        if shared_bytes > 48 * 1024:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            device = driver.CUdevice(self._device.device_id)
            _driver("cuKernelSetAttribute", attribute, shared_bytes, kernel.handle, device)
        return kernel


def _driver(function: str, *args: Any) -> None:
    from cuda.bindings import driver

    (status,) = getattr(driver, function)(*args)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise CheckError(f"{function} failed: {driver.CUresult(status).name}")


def why_no_gpu() -> str | None:
    """None where a GPU can be used, otherwise the reason why not, in a few words."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return "CUDA_VISIBLE_DEVICES is empty"
    try:
        from cuda.bindings import driver
    except ImportError:
        return "the package cuda-python is missing; pip install 'cuda-python>=13,<14'"
    try:
        (status,) = driver.cuInit(0)
    except RuntimeError:
        return "no NVIDIA driver (libcuda) is installed"
    if status != driver.CUresult.CUDA_SUCCESS:
        return f"the driver reports {driver.CUresult(status).name}"
    status, count = driver.cuDeviceGetCount()
    if status != driver.CUresult.CUDA_SUCCESS or count == 0:
        return "the driver sees no GPU"
    return None


def choose_runner(device: str = "auto") -> Runner:
    """The runner for `auto` (a GPU if there is one), `gpu` or `cpu` (the emulator).

    Raises UsageError for another word, MissingError where `gpu` is asked for and there is none.
    """
    if device not in DEVICES:
        raise unknown("device", device, DEVICES)
    if device == "cpu":
        return EmulatorRunner()
    reason = why_no_gpu()
    if reason is None:
        return cast(Runner, GpuRunner())
    if device == "gpu":
        raise MissingError(f"no GPU to run on: {reason}; use --device cpu for the emulator")
    return EmulatorRunner()
