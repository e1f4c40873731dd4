"""What a cell of a sweep is worth: a time on the GPU, counts on the emulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gen.bench.results import FAILED, WRONG, Header
from gen.errors import CheckError
from gen.spread.job import Job
from gen.tune.axes import Cell
from gen.tune.results import EMULATOR, Entry, row_of

if TYPE_CHECKING:
    from gen.emulator import Counters
    from gen.spec.kernel import KernelSpec
    from gen.spec.problem import GemmShape


class Meter(Protocol):
    """Measures cells on one device. `header` may say more after a measurement than before."""

    header: Header

    def measure(self, cells: Sequence[Cell]) -> list[Entry]:
        """Runs the kernels of cells that differ in the kernel only.

        Each result is checked, and only then said what it took.
        """
        ...


class Measured(NamedTuple):
    """What was found, and the header of who has measured it."""

    entries: list[Entry]
    header: Header


class Measuring(Job[Sequence[Cell], Measured]):
    """A sweep's work: an item is cells that differ in the kernel only, or none to open the device.

    `limit` is how many seconds a kernel may take on a shape of a GPU, `command` what the header
    says. A `header` that somebody has opened is taken over, so that there is one for all.
    """

    _meter: Meter

    def __init__(
        self, device: str, limit: float, command: str, header: Header | None = None
    ) -> None:
        self.device, self.limit, self.command, self.header = device, limit, command, header

    def start(self) -> None:
        """See Job."""
        self._meter = meter(self.device, self.limit, self.command, self.header)

    def needs(self, item: Sequence[Cell]) -> list[KernelSpec]:
        """See Job."""
        return [cell.spec for cell in item if cell.spec]

    def compile(self, need: KernelSpec) -> None:
        """See Job."""
        from gen.compile.nvrtc import compile_cuda
        from gen.source.render import render

        own = self._meter.header.arch
        arch, format = (own, "cubin") if own else (need.arch, "ptx")
        compile_cuda(render(need).text, name=f"{need.name}.cu", arch=arch, format=format)

    def __call__(self, item: Sequence[Cell]) -> Measured:
        """See Job."""
        return Measured(self._meter.measure(item) if item else [], self._meter.header)

    def title(self, item: Sequence[Cell]) -> str:
        """See Job."""
        if not item:
            return "opening the device"
        place = "".join(f" {name}={value}" for name, value in item[0].values.items())
        return f"measuring {item[0].shape} {item[0].dtype}{place}"

    def spoilt(self) -> bool:
        """See Job."""
        from gen.device.driver import works

        return isinstance(self._meter, GpuMeter) and not works()


def meter(device: str, limit: float, command: str, header: Header | None) -> Meter:
    """What measures on a device: auto, gpu or cpu. Raises MissingError, UsageError."""
    from gen.device.choose import why_emulator

    if why_emulator(device) is None:
        return GpuMeter(limit, command, header)
    return EmulatorMeter(command, header)


def joined(one: Header, other: Header) -> Header:
    """The header of what two GPUs of one model have measured for one sweep."""
    sm = [*one.clocks.get("sm", []), *other.clocks.get("sm", [])]
    bounds = {"sm": [min(sm), max(sm)]} if sm else {}
    uuids = sorted({*one.uuid.split(), *other.uuid.split()})
    return replace(one, uuid=" ".join(uuids), clocks={**one.clocks, **other.clocks, **bounds})


class GpuMeter:
    """Times on the first GPU, as `gen bench` takes them. Raises MissingError where there is none.

    The parameters are those of Measuring; `header` has what the GPU can do at best.
    """

    def __init__(self, limit: float, command: str, header: Header | None = None) -> None:
        from gen.bench import run
        from gen.bench.ceiling import ceilings
        from gen.bench.device import MeasuredGpu

        self._limit = limit
        self._gpu = MeasuredGpu()
        if header is None:
            header = run.header(self._gpu, command, ceilings(self._gpu))
        self.header = replace(header, uuid=self._gpu.uuid, clocks={})

    def measure(self, cells: Sequence[Cell]) -> list[Entry]:
        """See Meter; the kernels take turns."""
        from gen.bench import run
        from gen.bench.results import Results

        specs = [cell.spec for cell in cells if cell.spec]
        options = run.Options(specs, [cells[0].shape], limit_s=self._limit, nvbench=False)
        found = run.bench(self._gpu, options, Results(self.header))
        self.header = found.header
        rows = {row.key: row for row in found.rows}
        return [Entry(rows[row_of(cell).key], cell.values) for cell in cells]


class EmulatorMeter:
    """Counts on the CPU what the kernel would do on a GPU."""

    def __init__(self, command: str = "", header: Header | None = None) -> None:
        from gen._version import __version__

        self.header = header or Header(
            gpu=EMULATOR,
            arch="",
            driver="",
            date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            command=command,
            versions={"gemmgen": __version__},
        )

    def measure(self, cells: Sequence[Cell]) -> list[Entry]:
        """See Meter."""
        return [self._measure(cell) for cell in cells]

    def _measure(self, cell: Cell) -> Entry:
        from gen.emulator import Counters
        from gen.profile.compare import counts

        assert cell.spec is not None
        counters = Counters()
        try:
            wrong = _run(cell.spec, cell.shape, counters)
        except CheckError as error:
            return Entry(row_of(cell, check=FAILED, note=str(error)), cell.values)
        if wrong:
            return Entry(row_of(cell, check=WRONG, note=wrong), cell.values)
        return Entry(row_of(cell), cell.values, counts(counters.totals()))


def _run(spec: KernelSpec, shape: GemmShape, counters: Counters) -> str:
    """Launches once; what is wrong with the result, if anything."""
    from gen.compile.nvrtc import compile_cuda
    from gen.device.emulated import EmulatorRunner
    from gen.device.execute import Case, run_kernel
    from gen.prove.compare import against_oracle
    from gen.prove.inputs import draw_operands
    from gen.source.render import render
    from gen.spec import numerics
    from gen.spec.problem import GemmProblem

    text = render(spec).text
    module = compile_cuda(text, name=f"{spec.name}.cu", arch=spec.arch, format="ptx")
    problem = GemmProblem.packed(shape, spec.layouts)
    operands = draw_operands(spec, problem, "integer")
    runner = EmulatorRunner(observers=[counters])
    storage = run_kernel(spec, runner, module, Case(problem, operands))
    got = numerics.unpack(storage, shape.m, shape.n, spec.layouts.c, problem.ldd)
    return against_oracle(spec, problem, operands, got, "integer")[1]
