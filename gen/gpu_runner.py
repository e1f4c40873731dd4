"""Runs compiled kernels on a GPU, through cuda.core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gen.errors import CheckError
from gen.gpus import own_arch, shared_memory_attributes
from gen.plan import Dim3, TensorMap

if TYPE_CHECKING:
    import numpy as np
    from cuda.core import Kernel

    from gen.emulator import Finding
    from gen.nvrtc import Module


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
    finds_reads = False

    def __init__(self) -> None:
        from cuda.core import Device

        self._device = Device(0)
        self._device.set_current()
        self._stream = self._device.create_stream()
        self._kernels: dict[tuple[bytes, str], Kernel] = {}
        self.name = self._device.name
        self.multiprocessors = int(self._device.properties.multiprocessor_count)

    def target(self, arch: str) -> str:
        """This GPU's own architecture, with the features that only it has (`sm_90a`)."""
        major, minor = self._device.compute_capability
        return own_arch(10 * major + minor)

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

    def tensor_map(self, described: TensorMap, buffer: _GpuBuffer, offset: int) -> Any:
        """See Runner."""
        from gen.tensor_map import encode

        return encode(described, buffer.address + offset)

    def launch(
        self,
        module: Module,
        kernel: str,
        grid: Dim3,
        block: Dim3,
        args: Sequence[Any],
        shared_bytes: int = 0,
        early: bool = False,
    ) -> Sequence[Finding]:
        """See Runner; nothing is launched before the last kernel has ended."""
        from cuda.core import LaunchConfig

        from gen.tensor_map import launch

        if 0 in grid:
            return []
        config = LaunchConfig(grid=grid, block=block, shmem_size=shared_bytes)
        values = [a.address if isinstance(a, _GpuBuffer) else a for a in args]
        try:
            launch(self._stream, config, self._kernel(module, kernel, shared_bytes), values)
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
        device = driver.CUdevice(self._device.device_id)
        for attribute, value in shared_memory_attributes(shared_bytes).items():
            kind = getattr(driver.CUfunction_attribute, attribute)
            _driver("cuKernelSetAttribute", kind, value, kernel.handle, device)
        return kernel


def _driver(function: str, *args: Any) -> None:
    from cuda.bindings import driver

    (status,) = getattr(driver, function)(*args)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise CheckError(f"{function} failed: {driver.CUresult(status).name}")
