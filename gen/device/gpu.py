"""Runs compiled kernels on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gen.device.driver import Parameters, call
from gen.device.first_gpu import FirstGpu
from gen.errors import CheckError
from gen.kernels.launches import Dim3, Launch, TensorMap

if TYPE_CHECKING:
    import numpy as np

    from gen.compile.nvrtc import Module
    from gen.emulator import Finding
    from gen.spec.kernel import KernelSpec


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
    """Runs cubins on the first GPU, which it makes the thread's current one."""

    format = FirstGpu.format
    finds_reads = False

    def __init__(self) -> None:
        self._gpu = FirstGpu()
        self.name, self.multiprocessors = self._gpu.name, self._gpu.multiprocessors

    def room(self, spec: KernelSpec, module: Module) -> int:
        """See Runner."""
        return self._gpu.room(spec, module)

    def target(self, arch: str) -> str:
        """See Runner."""
        return self._gpu.target(arch)

    def upload(
        self, array: np.ndarray, name: str, defined: bool = True, first: int = 0
    ) -> _GpuBuffer:
        """See Runner; guard bands around the buffer are checked by `download`."""
        import numpy as np

        guard = np.full(_GUARD, _GUARD_BYTE, np.uint8)
        contents = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        image = np.concatenate([guard, contents, guard])
        memory = self._gpu.allocate(image.nbytes)
        self._gpu.write(int(memory.handle), image)
        return _GpuBuffer(name, memory, np.empty_like(array))

    def download(self, buffer: _GpuBuffer) -> np.ndarray:
        """See Runner."""
        import numpy as np

        image = np.empty(buffer.array.nbytes + 2 * _GUARD, np.uint8)
        self._gpu.read(int(buffer.memory.handle), image)
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
        self._gpu.free(buffer.memory)

    def tensor_map(self, described: TensorMap, buffer: _GpuBuffer, offset: int) -> Any:
        """See Runner."""
        from gen.device.tensor_map import encode

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
        if 0 in grid:
            return []
        values = [a.address if isinstance(a, _GpuBuffer) else a for a in args]
        try:
            loaded = self._gpu.load(module, Launch(kernel, grid, block, shared_bytes, {}))
            loaded(self._gpu.stream, Parameters(values))
            self._gpu.sync()
        except CheckError as error:
            raise CheckError(f"{kernel} failed on {self.name}: {error}") from None
        return []

    def synchronize(self) -> None:
        """Waits for everything that runs on the GPU, on any stream."""
        call("cuCtxSynchronize")
