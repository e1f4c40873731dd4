"""The GPU as measuring needs it: graphs, events, and what it says of itself."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

from gen.device.driver import driver_version, why_no_gpu
from gen.device.first_gpu import FirstGpu
from gen.errors import CheckError, MissingError
from gen.requirements import cuda_core

if TYPE_CHECKING:
    from cuda.core.graph import Graph

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


class GpuLost(CheckError):
    """A kernel failed while it ran; after that, CUDA refuses all work in this process."""


class MeasuredGpu(FirstGpu):
    """The first GPU, to measure on.

    Raises MissingError, with a way out, where there is none.
    """

    def __init__(self) -> None:
        reason = why_no_gpu()
        if reason:
            raise MissingError(
                f"no GPU to measure on: {reason}; gen profile counts what a kernel does without one"
            )
        super().__init__()
        self.uuid = str(self.device.uuid)
        self.l2_bytes = int(self.device.properties.l2_cache_size)

    def sync(self) -> None:
        """Waits for all that is queued. Raises GpuLost where a kernel failed."""
        try:
            super().sync()
        except CheckError as error:
            raise GpuLost(f"a kernel failed on {self.name}: {error}") from None

    def elapsed(
        self, queue: Callable[[], object], before: Callable[[], object] | None = None
    ) -> float:
        """Milliseconds on the GPU of what `queue` queues.

        `before` is queued first and not timed: while it runs, the CPU gets ahead, and the time
        between the two events has no gap in which the GPU waits for the CPU.
        """
        options = cuda_core().EventOptions(timing_enabled=True)
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
        return driver_version()

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
        """Adds one reading of `MeasuredGpu.clocks`."""
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
