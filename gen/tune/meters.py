"""What a cell of a sweep is worth: a time on the GPU, counts on the emulator."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Protocol

from gen.bench.results import FAILED, WRONG, Header
from gen.errors import CheckError
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


class GpuMeter:
    """Times on the first GPU, as `gen bench` takes them. Raises MissingError where there is none.

    `limit` is how many seconds a kernel may take on a shape; `say` is told what happens.
    """

    def __init__(self, limit: float, say: Callable[[str], object] = lambda _: None) -> None:
        from gen.bench import run
        from gen.bench.ceiling import ceilings
        from gen.bench.device import MeasuredGpu

        self._limit, self._say = limit, say
        self._gpu = MeasuredGpu()
        found = ceilings(self._gpu, step=lambda name: say(f"ceiling of {name}"))
        self.header = run.header(self._gpu, _command(), found)

    def measure(self, cells: Sequence[Cell]) -> list[Entry]:
        """See Meter; the kernels take turns."""
        from gen.bench import run
        from gen.bench.results import Results

        specs = [cell.spec for cell in cells if cell.spec]
        options = run.Options(specs, [cells[0].shape], limit_s=self._limit, nvbench=False)
        found = run.bench(self._gpu, options, Results(self.header), say=self._say)
        self.header = found.header
        rows = {row.key: row for row in found.rows}
        return [Entry(rows[row_of(cell).key], cell.values) for cell in cells]


def _command() -> str:
    return shlex.join(["gen", *sys.argv[1:]])


class EmulatorMeter:
    """Counts on the CPU what the kernel would do on a GPU."""

    def __init__(self) -> None:
        from gen._version import __version__

        self.header = Header(
            gpu=EMULATOR,
            arch="",
            driver="",
            date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            command=_command(),
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
    from gen.device.execute import run_kernel
    from gen.prove.inputs import draw_operands
    from gen.prove.verify import against_oracle
    from gen.source.render import render
    from gen.spec import numerics
    from gen.spec.problem import GemmProblem

    text = render(spec).text
    module = compile_cuda(text, name=f"{spec.name}.cu", arch=spec.arch, format="ptx")
    problem = GemmProblem.packed(shape, spec.layouts)
    operands = draw_operands(spec, problem, "integer")
    runner = EmulatorRunner(observers=[counters])
    storage = run_kernel(spec, runner, module, problem, operands)
    got = numerics.unpack(storage, shape.m, shape.n, spec.layouts.c, problem.ldd)
    return against_oracle(spec, problem, operands, got, "integer")[1]
