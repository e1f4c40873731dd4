"""The first GPU with a stream of its own, for what runs kernels one after another."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from gen.device.context import Gpu
from gen.device.driver import call
from gen.requirements import cuda_core

if TYPE_CHECKING:
    import numpy as np
    from cuda.core import Buffer


class FirstGpu(Gpu):
    """The first GPU, as the thread's current one, and one stream on which everything happens."""

    def __init__(self) -> None:
        super().__init__(0)
        self.device = cuda_core().Device(0)
        self.device.set_current()
        self.stream = self.device.create_stream()

    def allocate(self, size: int) -> Buffer:
        """Memory of the GPU, with undefined contents. Raises OutOfMemory."""
        return self.memory(size, self.stream)

    def free(self, buffer: Buffer) -> None:
        """Gives memory back, after all that is queued."""
        with suppress(Exception):  # where the GPU is lost, the memory is, too
            buffer.close(self.stream)

    def write(self, address: int, array: np.ndarray) -> None:
        """Copies a contiguous array to the GPU and waits for it.

        On the kernels' own stream: a plain copy from pageable memory may return before its data has
        arrived, and a kernel on another stream would not wait for it.
        """
        self._queue("cuMemcpyHtoDAsync", address, array.ctypes.data, array.nbytes)
        self.sync()

    def read(self, address: int, array: np.ndarray) -> None:
        """Fills a contiguous array from the GPU, when all that is queued has ended."""
        self._queue("cuMemcpyDtoHAsync", array.ctypes.data, address, array.nbytes)
        self.sync()

    def copy(self, target: int, source: int, size: int) -> None:
        """Queues a copy within the GPU."""
        self._queue("cuMemcpyDtoDAsync", target, source, size)

    def fill(self, address: int, pattern: bytes, count: int) -> None:
        """Queues the writing of a pattern of 1, 2 or 4 bytes, `count` times."""
        function = {1: "cuMemsetD8Async", 2: "cuMemsetD16Async", 4: "cuMemsetD32Async"}
        self._queue(function[len(pattern)], address, int.from_bytes(pattern, "little"), count)

    def sync(self) -> None:
        """Waits for all that is queued. Raises CheckError where a kernel failed."""
        call("cuStreamSynchronize", self.stream.handle)

    def _queue(self, function: str, *args: int) -> None:
        call(function, *args, self.stream.handle)
