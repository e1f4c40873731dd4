"""Cold and batched times of our kernels by NVBench, through its Python package `cuda-bench`.

NVBench runs all of its benchmarks in one go, once in a process, and gives its results at the end,
as a file. So each problem gets a process of its own, which this module is the entry of: what was
measured before stays whatever happens later, and a program may measure as often as it likes.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gen.bench.contenders import Ours, Unsupported
from gen.bench.sizes import operand_bytes, parse_size
from gen.bench.work import Work
from gen.kernels.registry import spec_from_json
from gen.requirements import cuda_core, get_extra
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmShape

GET = get_extra("bench")

_AXIS = "kernel"

# Of measuring each way at least; more where the noise is above NVBench's half a percent.
_SECONDS = "0.2"


@dataclass(frozen=True)
class Times:
    """NVBench's figures for a kernel, in milliseconds.

    `cold_ms` is the mean of isolated launches with an empty L2 cache, `cold_noise` their standard
    deviation as a fraction of it, `batch_ms` the mean of launches one after another.
    """

    cold_ms: float | None
    cold_noise: float | None
    batch_ms: float | None


def installed() -> bool:
    """Whether NVBench's Python package is there."""
    try:
        return find_spec("cuda.bench") is not None
    except ImportError:
        return False


def measure(
    specs: Sequence[KernelSpec], shape: GemmShape, limit_s: float
) -> tuple[dict[str, Times], str]:
    """Times by the kernel's name, and what went wrong, if anything: one line."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "nvbench.json"
        task = {
            "specs": [spec.to_json() for spec in specs],
            "shape": str(shape),
            "limit": limit_s,
            "result": str(result),
        }
        # As long as NVBench may take, and some for the start and the operands.
        patience = 60 + 4 * limit_s * len(specs)
        try:
            done = subprocess.run(
                [sys.executable, "-m", "gen.bench.nvbench", json.dumps(task)],
                capture_output=True,
                text=True,
                timeout=patience,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {}, f"NVBench did not end within {patience:.0f} s"
        if done.returncode or not result.exists():
            last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
            return {}, f"NVBench failed: {last}"
        return parse(result), ""


def parse(path: Path) -> dict[str, Times]:
    """The times in a file of NVBench's, by kernel."""
    from cuda.bench.results import BenchmarkResult

    found = {}
    for benchmark in BenchmarkResult.from_json(path).values():
        for state in benchmark:
            if not state.is_skipped:
                values = {tag: summary.value for tag, summary in state.summaries.items()}
                found[state.point[_AXIS]] = Times(
                    _ms(values.get("nv/cold/time/gpu/mean")),
                    _number(values.get("nv/cold/time/gpu/stdev/relative")),
                    _ms(values.get("nv/batch/time/gpu/mean")),
                )
    return found


def _number(value: Any) -> float | None:
    """A finite number; NVBench has an infinite one for what too few samples do not give."""
    number = None if value is None else float(value)
    return number if number is not None and math.isfinite(number) else None


def _ms(seconds: Any) -> float | None:
    number = _number(seconds)
    return None if number is None else number * 1e3


def main(task: Mapping[str, Any]) -> None:
    """Runs NVBench in this process over the kernels of a task, on one shape."""
    import cuda.bench as nvbench

    from gen.bench.device import MeasuredGpu

    specs = {s.name: s for s in map(spec_from_json, task["specs"])}
    shape = parse_size(task["shape"])
    gpu = MeasuredGpu()
    any_ = next(iter(specs.values()))
    work = Work(gpu, any_.dtypes, any_.layouts, shape)

    def gemm(state: Any) -> None:
        spec = specs[state.get_string(_AXIS)]
        try:
            prepared = Ours(spec).prepare(work)
        except Unsupported as error:
            state.skip(str(error))
            return
        a, b, d = operand_bytes(shape, spec.dtypes)
        state.add_global_memory_reads(a + b)
        state.add_global_memory_writes(d)
        stream = cuda_core().Stream.from_handle(state.get_stream().__cuda_stream__()[1])
        count = 0

        def launch(_: Any) -> None:
            nonlocal count
            prepared.queue(stream, *work.pointers(count))
            count += 1

        state.exec(launch)

    benchmark = nvbench.register(gemm)
    benchmark.add_string_axis(_AXIS, list(specs))
    limit = str(task["limit"])
    nvbench.run_all_benchmarks(
        [
            *("gen", "--devices", "0", "--json", task["result"], "--timeout", limit),
            *("--min-time", _SECONDS, "--batch-target-time", _SECONDS),
        ]
    )
    work.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
