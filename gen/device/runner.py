"""Where compiled kernels run: `GpuRunner` on a GPU, `EmulatorRunner` on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from gen.kernels.launches import TensorMap

if TYPE_CHECKING:
    import numpy as np

    from gen.compile.nvrtc import Module
    from gen.emulator import Finding
    from gen.kernels.launches import Dim3
    from gen.spec.kernel import KernelSpec


class Uploaded(Protocol):
    """Memory of a runner, filled from an array."""

    @property
    def name(self) -> str:
        """What findings call it."""
        ...

    @property
    def address(self) -> int:
        """Of its first byte, on the device: a multiple of 256."""
        ...


class Runner(Protocol):
    """What verification needs of a device. Buffers stay until they are freed."""

    name: str
    format: str  # what modules have to be compiled to: "ptx" or "cubin"
    multiprocessors: int  # that work is spread over
    finds_reads: bool  # whether it finds those outside of every buffer

    def room(self, spec: KernelSpec, module: Module) -> int:
        """The multiprocessors that the blocks of a compiled kernel can have at the same time."""
        ...

    def target(self, arch: str) -> str:
        """The architecture to compile for, of a kernel that was specified for `arch`."""
        ...

    def upload(
        self, array: np.ndarray, name: str, defined: bool = True, first: int = 0
    ) -> Uploaded:
        """Device memory of exactly the array's bytes, with guards around it.

        defined: False where a kernel must not read before it has written. first: bytes at the
        beginning that a kernel must not touch.
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

    def tensor_map(self, described: TensorMap, buffer: Any, offset: int) -> Any:
        """A tensor map as `launch` takes it, of the matrix `offset` bytes into a buffer."""
        ...

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
        """Runs a kernel to its end.

        early: whether users launch it while the kernel before it may still run.
        `args` are buffers, tensor maps, and numpy scalars of the parameters' sizes; an address
        inside of a buffer is a np.uint64.

        Returns what the device's checks found, which is nothing on a GPU. Raises CheckError where
        the launch itself fails.
        """
        ...
