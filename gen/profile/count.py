"""What a kernel does to a GPU's memory units and why, counted without a GPU.

`profile` runs a kernel once on the emulator with counters, asks the compiler for its registers, and
puts both beside the limits of a GPU; `explain` says in words what follows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gen.compile import nvrtc, sass
from gen.device.emulated import EmulatorRunner
from gen.device.execute import Case, Operands, run_kernel
from gen.device.gpus import GpuModel
from gen.emulator import (
    Access,
    AccessPoint,
    Counters,
    Totals,
    build_blocks,
    match_widths,
    parse_ptx,
)
from gen.errors import UsageError
from gen.kernels.occupancy import Occupancy, occupancy
from gen.source.render import Source
from gen.spec.kernel import KernelSpec
from gen.spec.numerics import storage_dtype
from gen.spec.problem import GemmProblem, GemmShape


@dataclass(frozen=True)
class LineAccess:
    """What the instructions of one CUDA line did to one kind of memory."""

    place: AccessPoint
    text: str
    access: Access

    @property
    def parts(self) -> str:
        """What a request is split into."""
        return "sectors" if self.place.space == "global" else "wavefronts"

    @property
    def each(self) -> float:
        """Parts of a request, on average."""
        return self.access.parts / self.access.requests

    @property
    def ideal(self) -> float:
        """Parts that a request needs at least, on average."""
        return self.access.ideal / self.access.requests


@dataclass(frozen=True, kw_only=True)
class LaunchProfile:
    """A launch as a GPU would run it.

    `dynamic_shared` is in bytes. `widths` says where the widths of shared loads come from.
    `unmatched` are the CUDA lines whose shared loads the machine code makes otherwise than was
    counted. `seconds` is how long counting took.
    """

    kernel: str
    gpu: GpuModel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared: int
    resources: nvrtc.Resources
    occupancy: Occupancy
    totals: Totals
    lines: tuple[LineAccess, ...] = field(repr=False)
    widths: str
    unmatched: tuple[int, ...]
    seconds: float

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return math.prod(self.block)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, static and dynamic."""
        return self.resources.shared_bytes + self.dynamic_shared

    @cached_property
    def sector_bytes(self) -> int:
        """Bytes that move between the SMs and the memory behind their L1, if that never hits."""
        return 32 * (self.totals.global_load.parts + self.totals.global_store.parts)


@dataclass(frozen=True, kw_only=True)
class Profile(LaunchProfile):
    """An emitted kernel on one shape."""

    spec: KernelSpec
    shape: GemmShape

    @property
    def work(self) -> int:
        """Multiplications and additions that the problem needs: 2 M N K."""
        return 2 * self.shape.m * self.shape.n * self.shape.k

    @property
    def matrix_bytes(self) -> int:
        """Bytes of A, B and D: what has to be moved even if every cache always hits."""
        s, d = self.shape, self.spec.dtypes
        return (s.m * s.k + s.k * s.n) * d.input.size + s.m * s.n * d.output.size

    @property
    def intensity(self) -> float:
        """Operations for each byte of sectors."""
        return self.work / self.sector_bytes if self.sector_bytes else 0.0

    @property
    def peak(self) -> float:
        """TFLOP/s of the units that do this kernel's arithmetic (integers: FP32's rate)."""
        if self.spec.dtypes.accumulator.name == "f64":
            return self.gpu.fp64_tensor if self.totals.mma else self.gpu.fp64
        return self.gpu.tensor if self.totals.mma else self.gpu.fp32

    @property
    def ridge(self) -> float:
        """Operations per byte above which the GPU's arithmetic is the limit, not its memory."""
        return self.peak * 1000 / self.gpu.bandwidth


def profile(source: Source, shape: GemmShape, gpu: GpuModel) -> Profile:
    """Counts a kernel on `shape`, compiled for `gpu`, with alpha 1 and beta 0.

    What it launches before and after itself, to pack operands and to add up slices, counts, too.

    Nothing is sampled or extrapolated: every block runs. Raises UsageError for a file that does not
    say how it is launched and for an empty D, CheckError for a kernel in which the emulator finds a
    fault.
    """
    if not (shape.m and shape.n):
        raise UsageError(f"shape {shape} has nothing to count; use M and N of 1 or more")
    if source.spec is None:
        raise UsageError(
            f"{source.place} has no line '// gen-spec: {{...}}' that says how it is launched; "
            "start from a file of gen emit"
        )
    start = time.perf_counter()
    spec, text, name = source.spec, source.text, source.place
    ptx = nvrtc.compile_cuda(text, name=name, arch=gpu.own_arch)
    cubin = nvrtc.compile_cuda(text, name=name, arch=gpu.own_arch, format="cubin")
    limits, unmatched, widths = shared_loads(spec.name, name, ptx, cubin)
    counters = Counters(limits=limits)
    problem = GemmProblem.packed(shape, spec.layouts)
    launch = spec.plan(problem, multiprocessors=gpu.sms).launch(spec.name)
    _run(spec, problem, ptx, counters, gpu)
    resources = cubin.resources[spec.name]
    return Profile(
        spec=spec,
        shape=shape,
        kernel=spec.name,
        gpu=gpu,
        grid=launch.grid,
        block=launch.block,
        dynamic_shared=launch.shared_bytes,
        resources=resources,
        occupancy=occupancy_of(gpu, launch.block, resources, launch.shared_bytes),
        totals=counters.totals(),
        lines=tuple(line_accesses(counters, text)),
        widths=widths,
        unmatched=tuple(unmatched),
        seconds=time.perf_counter() - start,
    )


def occupancy_of(
    gpu: GpuModel, block: Sequence[int], resources: nvrtc.Resources, dynamic_shared: int
) -> Occupancy:
    """How many blocks of a launch an SM holds."""
    shared = resources.shared_bytes + dynamic_shared
    return occupancy(gpu.capability, math.prod(block), resources.registers, shared)


def shared_loads(
    kernel: str, file: str, ptx: nvrtc.Module, cubin: nvrtc.Module
) -> tuple[dict[int, int], list[int], str]:
    """The widest shared load of each line, lines where that is not known, and how it is known."""
    text = sass.disassemble(cubin.code)
    if text is None:
        return {}, [], f"predicted ({sass.HOW_TO_GET} to confirm it)"
    blocks = build_blocks(parse_ptx(ptx.code.decode()).kernel(kernel))
    limits, unmatched = match_widths(blocks, sass.shared_load_widths(text, kernel, file))
    return limits, unmatched, "machine code"


def _run(
    spec: KernelSpec, problem: GemmProblem, ptx: nvrtc.Module, counters: Counters, gpu: GpuModel
) -> None:
    input_ = storage_dtype(spec.dtypes.input.name)
    output = storage_dtype(spec.dtypes.output.name)
    m, n, k = problem.shape.m, problem.shape.n, problem.shape.k
    result = np.zeros((m, n), output)
    bias = np.zeros(n, output) if spec.has_bias else None
    sizes = m, n, max(problem.batch.products, 1)
    own = {
        o.name: np.zeros(o.shape(*sizes), storage_dtype(o.element(spec.dtypes).name))
        for o in spec.operands
        if o.index
    }
    operands = Operands(
        np.zeros((m, k), input_), np.zeros((k, n), input_), result, result.reshape(-1), bias, own
    )
    runner = EmulatorRunner(observers=[counters], multiprocessors=gpu.sms)
    run_kernel(spec, runner, ptx, Case(problem, operands))


def line_accesses(counters: Counters, text: str) -> list[LineAccess]:
    rows = text.splitlines()
    return [
        LineAccess(
            place, rows[place.line - 1].strip() if 0 < place.line <= len(rows) else "", found
        )
        for place, found in sorted(counters.accesses.items())
    ]
