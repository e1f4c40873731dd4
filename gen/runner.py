"""Where compiled kernels run: `GpuRunner` on cuda.core, `EmulatorRunner` on the CPU."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from gen.errors import MissingError, unknown
from gen.gpu_runner import GpuRunner
from gen.plan import MAP_BYTES, MULTIPROCESSORS, TensorMap

if TYPE_CHECKING:
    import numpy as np

    from gen.emulator import Finding, Observer
    from gen.nvrtc import Module
    from gen.registry import Dim3

# Of a tensor map's elements only the bytes matter.
_PTX_ELEMENTS = {"tf32": "b32", "i8": "b8", "i32": "b32"}

# Multiprocessors of the emulated GPU where kernels are tried: so few that blocks which stay have
# several of a small problem's tiles.
FEW = 4

DEVICES = ("auto", "gpu", "cpu")
CHECKS = ("race", "init")  # what the emulator looks for only when asked


class Buffer(Protocol):
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

        early: whether users launch it while the kernel before it may still run (gen.plan.Launch).
        `args` are buffers, tensor maps, and numpy scalars of the parameters' sizes; an address
        inside of a buffer is a np.uint64.

        Returns what the device's checks found, which is nothing on a GPU. Raises CheckError where
        the launch itself fails.
        """
        ...


class EmulatorRunner:
    """Runs PTX on the CPU, with every memory access and every barrier checked.

    checks: what else to look for, of `CHECKS`. max_findings: of one launch. observers: what else
    watches every launch. multiprocessors: of the GPU that it stands for.
    """

    name = "emulator"
    format = "ptx"
    finds_reads = True

    def __init__(
        self,
        checks: Sequence[str] = (),
        max_findings: int = 20,
        observers: Sequence[Observer] = (),
        multiprocessors: int = MULTIPROCESSORS,
    ) -> None:
        from gen.emulator import Emulator

        self.multiprocessors = multiprocessors

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

    def tensor_map(self, described: TensorMap, buffer: Any, offset: int) -> Any:
        """See Runner."""
        import numpy as np

        from gen import emulator

        if 0 in described.dims:
            return np.void(bytes(MAP_BYTES))
        return emulator.TensorMap(
            replace(buffer, address=buffer.address + offset),
            _PTX_ELEMENTS.get(described.element, described.element),
            described.dims,
            (described.pitch,),
            described.box,
            swizzle=described.swizzle,
        )

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
        """See Runner."""
        from gen.emulator import EarlyAccesses

        for observer in self._observers:
            if isinstance(observer, EarlyAccesses):
                observer.early = early
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
    from gen.emulator import EarlyAccesses, GlobalRaces, SharedRaces, UninitializedReads

    if check not in CHECKS:
        raise unknown("check", check, CHECKS)
    if check == "init":
        return [UninitializedReads()]
    return [SharedRaces(), GlobalRaces(), EarlyAccesses()]


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
        return EmulatorRunner(multiprocessors=FEW)
    reason = why_no_gpu()
    if reason is None:
        return cast(Runner, GpuRunner())
    if device == "gpu":
        raise MissingError(f"no GPU to run on: {reason}; use --device cpu for the emulator")
    return EmulatorRunner(multiprocessors=FEW)
