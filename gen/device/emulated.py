"""`EmulatorRunner`: compiled kernels on the CPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gen.errors import unknown
from gen.kernels.formulas import ceil_div
from gen.kernels.launches import MAP_BYTES, TensorMap
from gen.spec.arch import MULTIPROCESSORS
from gen.spec.kernel import KernelSpec
from gen.spec.problem import Alignment, GemmProblem, GemmShape

if TYPE_CHECKING:
    import numpy as np

    from gen.compile.nvrtc import Module
    from gen.emulator import Chances, DeviceArray, Finding, Observer
    from gen.kernels.launches import Dim3


Window = tuple[tuple[int, int, int], tuple[int, int, int]]

# Of integers and fp8 in a tensor map only the bytes matter.
_PTX_ELEMENTS = {"i8": "b8", "i32": "b32", "e4m3": "b8", "e5m2": "b8"}


CHECKS = ("race", "init")  # what the emulator looks for only when asked


_UNALIGNED = Alignment(False, False, False)


def default_budget(spec: KernelSpec, problem: GemmProblem) -> int:
    """Thread-instructions that no launch of this kind should need: some thirty times too many."""
    shape, steps = problem.shape, spec.plan(problem, _UNALIGNED)
    threads = max((math.prod(s.grid) * math.prod(s.block) for s in steps.launches), default=0)
    sizes = zip((shape.m, shape.n, shape.k), spec.threadblock, strict=True)
    work = math.prod(max(ceil_div(size, step), 1) * step for size, step in sizes)
    return 1000 * work * problem.batch.products + 50_000 * threads


def default_time(shape: GemmShape, products: int = 1) -> float:
    """Seconds of CPU time that no launch of this kind should need."""
    return 60 + products * shape.m * shape.n * shape.k / 10**6


def tensor_map(described: TensorMap, buffer: Any, offset: int) -> Any:
    """As `Emulator.launch` takes it: of a matrix that begins `offset` bytes into a buffer."""
    import numpy as np

    from gen import emulator

    if 0 in described.dims:
        return np.void(bytes(MAP_BYTES))
    return emulator.TensorMap(
        replace(buffer, address=buffer.address + offset),
        _PTX_ELEMENTS.get(described.element, described.element),
        *described.tiled,
        swizzle=described.swizzle,
    )


class EmulatorRunner:
    """Runs PTX on the CPU, with every memory access and every barrier checked.

    checks: what else to look for, of `CHECKS`. max_findings: of one launch. observers: what else
    watches every launch. multiprocessors: of the GPU that it stands for. memory_limit: see
    Emulator. Launches are watched by all these as long as `watched` is set.
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
        memory_limit: int | None = None,
    ) -> None:
        from gen.emulator import Emulator

        self.multiprocessors, self.watched = multiprocessors, True
        self._emulator = Emulator(max_findings)
        if memory_limit is not None:
            self._emulator.memory_limit = memory_limit
        self._observers = [observer for check in checks for observer in _observers(check)]
        self._observers += observers
        self.window: Window | None = None  # see `Emulator.launch`
        self.suppressed = 0  # findings so far that were like others, or beyond the limit

    def room(self, spec: KernelSpec, module: Module) -> int:
        """See Runner."""
        return self.multiprocessors

    @property
    def budget(self) -> int | None:
        """Thread-instructions after which a launch is stopped with BudgetError; None: no limit."""
        return self._emulator.instruction_budget

    @budget.setter
    def budget(self, value: int | None) -> None:
        self._emulator.instruction_budget = value

    def lines_not_run(self, module: Module) -> set[int]:
        """The CUDA lines of which no instruction has run in any launch."""
        return self._emulator.lines_not_run(module.code.decode())

    @property
    def chances(self) -> Chances:
        """See Emulator."""
        return self._emulator.chances

    @chances.setter
    def chances(self, value: Chances) -> None:
        self._emulator.chances = value

    @property
    def time_budget(self) -> float | None:
        """CPU seconds after which a launch is stopped with BudgetError; None: no limit."""
        return self._emulator.time_budget

    @time_budget.setter
    def time_budget(self, value: float | None) -> None:
        self._emulator.time_budget = value

    @property
    def deadline(self) -> float | None:
        """When every launch is stopped so, as time.perf_counter gives it; None: never."""
        return self._emulator.deadline

    @deadline.setter
    def deadline(self, value: float | None) -> None:
        self._emulator.deadline = value

    def target(self, arch: str) -> str:
        """The emulator runs code for any architecture."""
        return arch

    def upload(self, array: np.ndarray, name: str, defined: bool = True, first: int = 0) -> Any:
        """See Runner; accesses outside of the buffer are findings of `launch`."""
        return self._emulator.alloc(array, name, defined, first)

    def upload_abreast(
        self, arrays: Sequence[np.ndarray], name: str, defined: bool, firsts: Sequence[int]
    ) -> Sequence[Any]:
        """`upload` of one argument of launches that run abreast."""
        return self._emulator.alloc_abreast(arrays, name, defined, firsts)

    def upload_zeros(self, nbytes: int, name: str) -> DeviceArray:
        """Bytes that take room only where somebody writes. Raises MissingError: see Emulator."""
        return self._emulator.alloc_zeros(nbytes, name)

    def download(self, buffer: Any) -> np.ndarray:
        """See Runner."""
        return self._emulator.read(buffer)

    def free(self, buffer: Any) -> None:
        """See Runner."""
        self._emulator.free(buffer)

    def tensor_map(self, described: TensorMap, buffer: Any, offset: int) -> Any:
        """See Runner."""
        return tensor_map(described, buffer, offset)

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
        return self.launch_abreast(module, kernel, block, [(grid, args)], shared_bytes, early)

    def launch_abreast(
        self,
        module: Module,
        kernel: str,
        block: Dim3,
        each: Sequence[tuple[Dim3, Sequence[Any]]],
        shared_bytes: int = 0,
        early: bool = False,
    ) -> Sequence[Finding]:
        """`launch` with the grid and the arguments of each; together where the kernel can run so.

        What is found does not say in which of them.
        """
        from gen.emulator import EarlyAccesses

        for observer in self._observers:
            if isinstance(observer, EarlyAccesses):
                observer.early = early
        text, runs, findings = module.code.decode(), [each], list["Finding"]()
        if len(each) > 1 and not self._emulator.runs_abreast(text, kernel):
            runs = [[one] for one in each]
        for (grid, first), *others in runs:
            report = self._emulator.launch(
                text,
                kernel,
                grid,
                block,
                first,
                shared_bytes,
                source_lines=module.text.splitlines(),
                observers=self._observers if self.watched else (),
                window=self.window,
                abreast=others,
            )
            self.suppressed += report.suppressed
            findings += report.findings
        return findings


def _observers(check: str) -> list[Observer]:
    from gen.emulator import (
        EarlyAccesses,
        GlobalRaces,
        MissedPhases,
        ReadOnlyLoads,
        SharedRaces,
        UninitializedReads,
    )

    if check not in CHECKS:
        raise unknown("check", check, CHECKS)
    if check == "init":
        return [UninitializedReads()]
    return [SharedRaces(), GlobalRaces(), MissedPhases(), EarlyAccesses(), ReadOnlyLoads()]
