"""The GPU as measuring needs it: memory, launches, graphs, events, and what it says of itself."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

from gen.errors import CheckError, GenError, MissingError
from gen.gpus import shared_memory_attributes
from gen.runner import why_no_gpu

if TYPE_CHECKING:
    import numpy as np
    from cuda.core import Buffer, Kernel, Stream
    from cuda.core.graph import Graph

    from gen.nvrtc import Module
    from gen.registry import Dim3

# Whose versions are part of a result.
_PACKAGES = (
    "gemmgen",
    "cuda-core",
    "cuda-bindings",
    "cuda-bench",
    "nvmath-python",
    "nvidia-cublas",
    "nvidia-cutlass",
    "torch",
    "triton",
    "numpy",
)


class OutOfMemory(GenError):
    """The GPU has not enough memory for a problem (exit code 3)."""

    exit_code = 3


class GpuLost(CheckError):
    """A kernel failed while it ran; after that, CUDA refuses all work in this process."""


@dataclass(frozen=True)
class Program:
    """A compiled kernel with all of its launch but the arguments."""

    kernel: Kernel
    config: Any  # cuda.core.LaunchConfig

    def __call__(self, stream: Stream, *args: Any) -> None:
        """Queues one launch; `args`: addresses, numpy scalars, tensor maps. Raises CheckError."""
        from gen.tensor_map import launch

        try:
            launch(stream, self.config, self.kernel, args)
        except Exception as error:  # cuda.core raises CUDAError, of no public base class
            raise CheckError(f"the kernel cannot be launched: {error}") from None


class Gpu:
    """The first GPU, with one stream on which everything happens.

    Raises MissingError, with a way out, where there is none.
    """

    def __init__(self) -> None:
        reason = why_no_gpu()
        if reason:
            raise MissingError(
                f"no GPU to measure on: {reason}; gen profile counts what a kernel does without one"
            )
        from cuda.core import Device

        self.device = Device(0)
        self.device.set_current()
        self.stream = self.device.create_stream()
        self.name = self.device.name
        major, minor = self.device.compute_capability
        self.arch = f"sm_{major}{minor}" + ("a" if major >= 9 else "")
        self.uuid = str(self.device.uuid)
        properties = self.device.properties
        self.l2_bytes = int(properties.l2_cache_size)
        self.multiprocessors = int(properties.multiprocessor_count)

    # --- memory

    def allocate(self, size: int) -> Buffer:
        """Memory of the GPU. Raises OutOfMemory."""
        try:
            return self.device.allocate(max(size, 1), stream=self.stream)
        except Exception as error:  # CUDAError, as above
            if "OUT_OF_MEMORY" not in str(error):
                raise
            raise OutOfMemory(
                f"the GPU has no {size / 2**30:.1f} GiB left; use a smaller shape"
            ) from None

    def free(self, buffer: Buffer) -> None:
        """Gives memory back, after all that is queued."""
        with suppress(Exception):  # where the GPU is lost, the memory is, too
            buffer.close(self.stream)

    def write(self, address: int, array: np.ndarray) -> None:
        """Copies a contiguous array to the GPU and waits for it."""
        self._driver("cuMemcpyHtoDAsync", address, array.ctypes.data, array.nbytes)
        self.sync()

    def read(self, address: int, array: np.ndarray) -> None:
        """Fills a contiguous array from the GPU."""
        self._driver("cuMemcpyDtoHAsync", array.ctypes.data, address, array.nbytes)
        self.sync()

    def copy(self, target: int, source: int, size: int) -> None:
        """Queues a copy within the GPU."""
        self._driver("cuMemcpyDtoDAsync", target, source, size)

    def fill(self, address: int, pattern: bytes, count: int) -> None:
        """Queues the writing of a pattern of 1, 2 or 4 bytes, `count` times."""
        function = {1: "cuMemsetD8Async", 2: "cuMemsetD16Async", 4: "cuMemsetD32Async"}
        self._driver(function[len(pattern)], address, int.from_bytes(pattern, "little"), count)

    def _driver(self, function: str, *args: int) -> None:
        from cuda.bindings import driver

        (status,) = getattr(driver, function)(*args, self.stream.handle)
        if status != driver.CUresult.CUDA_SUCCESS:
            raise CheckError(f"{function} failed: {driver.CUresult(status).name}")

    # --- running

    def program(
        self,
        module: Module,
        name: str,
        grid: Dim3,
        block: Dim3,
        shared_bytes: int = 0,
        early: bool = False,
        all_shared: bool = False,
    ) -> Program:
        """A kernel of a cubin, ready to be launched; the arguments are as in gen.plan.Launch."""
        from cuda.bindings import driver
        from cuda.core import LaunchConfig, ObjectCode

        kernel = ObjectCode.from_cubin(module.code).get_kernel(name)
        device = driver.CUdevice(self.device.device_id)
        for attribute, value in shared_memory_attributes(shared_bytes, all_shared).items():
            kind = getattr(driver.CUfunction_attribute, attribute)
            (status,) = driver.cuKernelSetAttribute(kind, value, kernel.handle, device)
            if status != driver.CUresult.CUDA_SUCCESS:
                raise CheckError(f"{name} gets no {shared_bytes} bytes of shared memory here")
        config = LaunchConfig(
            grid=grid,
            block=block,
            shmem_size=shared_bytes,
            programmatic_stream_serialization=early,
        )
        return Program(kernel, config)

    def sync(self) -> None:
        """Waits for all that is queued. Raises GpuLost where a kernel failed."""
        try:
            self.stream.sync()
        except Exception as error:  # CUDAError, as above
            raise GpuLost(f"a kernel failed on {self.name}: {error}") from None

    def elapsed(
        self, queue: Callable[[], object], before: Callable[[], object] | None = None
    ) -> float:
        """Milliseconds on the GPU of what `queue` queues.

        `before` is queued first and not timed: while it runs, the CPU gets ahead, and the time
        between the two events has no gap in which the GPU waits for the CPU.
        """
        from cuda.core import EventOptions

        options = EventOptions(timing_enabled=True)
        if before:
            before()
        start = self.stream.record(options=options)
        queue()
        end = self.stream.record(options=options)
        self.sync()
        return float(end - start)

    def graph(self, queue: Callable[[], None]) -> Graph:
        """What `queue` queues, captured to be launched as one."""
        builder = self.stream.create_graph_builder().begin_building("relaxed")
        try:
            queue()
        finally:
            builder.end_building()
        return builder.complete()

    # --- facts

    def driver_version(self) -> str:
        """The driver's version, such as 580.95.05."""
        try:
            from cuda.core import system

            return ".".join(f"{part:02}" for part in system.get_kernel_mode_driver_version())
        except Exception:  # NVML is not everywhere
            from cuda.bindings import driver

            _, version = driver.cuDriverGetVersion()
            return f"CUDA {version // 1000}.{version % 1000 // 10}"

    def clocks(self) -> dict[str, int]:
        """MHz at this moment: sm, sm_max, memory. Empty where NVML does not tell."""
        try:
            device = self.device.to_system_device()
            sm, memory = device.get_clock("sm"), device.get_clock("memory")
            return {
                "sm": int(sm.get_current_mhz()),
                "sm_max": int(sm.get_max_mhz()),
                "memory": int(memory.get_current_mhz()),
            }
        except Exception:  # as above; a result without clocks is still one
            return {}


class ClockWatch:
    """The clocks over a run: the lowest and the highest of the multiprocessors', under load."""

    def __init__(self) -> None:
        self._fixed: dict[str, int] = {}
        self._sm: list[int] = []

    def saw(self, clocks: Mapping[str, int]) -> None:
        """Adds one reading of `Gpu.clocks`."""
        self._fixed |= {k: v for k, v in clocks.items() if k != "sm"}
        if "sm" in clocks:
            self._sm.append(clocks["sm"])

    def summary(self) -> dict[str, Any]:
        """What `Header.clocks` holds."""
        seen = {"sm": [min(self._sm), max(self._sm)]} if self._sm else {}
        return {**seen, **self._fixed}


def versions(packages: Sequence[str] = _PACKAGES) -> dict[str, str]:
    """The versions of what takes part in measuring, as far as it is installed."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
