"""Holds the emulator's counters against Nsight Compute's, launch by launch.

Needs a GPU, and `ncu` on the PATH (`nvdisasm` too, for the widths of shared loads). From the root
of the repository::

    PYTHONPATH=. python tests/hardware/compare_counters.py                # all kernels
    PYTHONPATH=. python tests/hardware/compare_counters.py --variant tiles --shape 128 --all
    PYTHONPATH=. python tests/hardware/compare_counters.py --patterns     # the bank model alone

One `ncu` process profiles all launches. Both sides compile for the GPU's architecture. Exit code 1
where a counter differs.
"""

from __future__ import annotations

import argparse
import csv
import io
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from gen import nvrtc, sass
from gen.emulator import Counters, PtxModule, parse_ptx
from gen.emulator.cfg import build_blocks
from gen.emulator.counters import Totals
from gen.emulator.merging import match_widths
from gen.errors import GenError
from gen.numerics import storage_dtype
from gen.reference import cutlass_gemm, cutlass_module
from gen.registry import VARIANTS, make_spec
from gen.render import render
from gen.runner import EmulatorRunner, GpuRunner, Runner
from gen.spec import GemmProblem, GemmShape, KernelSpec, parse_shape
from gen.verify import Operands, run_kernel

SHAPES = ("128", "64x96x33", "37x53x61", "129x65x130", "256x256x64", "1x521x3")

# ncu's metric, and what the emulator has for it
L1 = "l1tex__"
METRICS: dict[str, tuple[str, Callable[[Totals], int]]] = {
    f"{L1}t_requests_pipe_lsu_mem_global_op_ld.sum":
        ("global load requests", lambda t: t.global_load.requests),
    f"{L1}t_sectors_pipe_lsu_mem_global_op_ld.sum":
        ("global load sectors", lambda t: t.global_load.parts),
    f"{L1}t_requests_pipe_lsu_mem_global_op_st.sum":
        ("global store requests", lambda t: t.global_store.requests),
    f"{L1}t_sectors_pipe_lsu_mem_global_op_st.sum":
        ("global store sectors", lambda t: t.global_store.parts),
    f"{L1}data_pipe_lsu_wavefronts_mem_shared_op_ld.sum":
        ("shared load wavefronts", lambda t: t.shared_load.parts),
    f"{L1}data_pipe_lsu_wavefronts_mem_shared_op_st.sum":
        ("shared store wavefronts", lambda t: t.shared_store.parts),
    f"{L1}data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum":
        ("shared load conflicts", lambda t: t.shared_load.excess),
    f"{L1}data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum":
        ("shared store conflicts", lambda t: t.shared_store.excess),
    "sm__inst_executed_pipe_tensor.sum": ("tensor instructions", lambda t: t.mma),
}  # fmt: skip
# Not the same thing: the emulator counts the PTX's instructions, ncu the machine's.
INSTRUCTIONS = "smsp__inst_executed.sum"


class CountingRunner(EmulatorRunner):
    """An emulator that keeps the counters of every launch, compiled for `arch`."""

    def __init__(self, arch: str) -> None:
        super().__init__()
        self.arch = arch
        self.launched: list[tuple[str, Totals]] = []
        self.cubins: dict[str, bytes] = {}  # by file name, for what needs options to compile

    def target(self, arch: str) -> str:
        """The GPU's architecture, whatever was asked for."""
        return self.arch

    def launch(
        self, module: Any, kernel: str, grid: Any, block: Any, args: Any, shared_bytes: int = 0
    ) -> Any:
        """Run and count."""
        counters = Counters(limits=self._limits(module, kernel))
        self._observers = [counters]
        findings = super().launch(module, kernel, grid, block, args, shared_bytes)
        self.launched.append((kernel, counters.totals()))
        return findings

    def _limits(self, module: nvrtc.Module, kernel: str) -> dict[int, int]:
        cubin = self.cubins.get(module.name)
        if cubin is None:
            cubin = nvrtc.compile_cuda(
                module.text, name=module.name, arch=self.arch, format="cubin"
            ).code
        text = sass.disassemble(cubin)
        if text is None:
            return {}
        blocks = build_blocks(parsed(module.code).kernel(kernel))
        limits, unmatched = match_widths(blocks, sass.shared_load_widths(text, kernel, module.name))
        if unmatched:
            print(f"{kernel}: shared loads of line {unmatched} are joined otherwise")
        return limits


@cache
def parsed(code: bytes) -> PtxModule:
    """PTX, parsed once."""
    return parse_ptx(code.decode())


# -- what is launched -----------------------------------------------------------------------------
@dataclass(frozen=True)
class Job:
    """One launch; `run` does it on a runner."""

    name: str
    run: Callable[[Runner], object]


def gemm_jobs(specs: Sequence[KernelSpec], shapes: Sequence[GemmShape]) -> list[Job]:
    """Every kernel on every shape."""

    def job(spec: KernelSpec, shape: GemmShape) -> Job:
        def run(runner: Runner) -> object:
            source = render(spec)
            module = nvrtc.compile_cuda(
                source.text, name=source.filename, arch=runner.target(spec.arch),
                format=runner.format,
            )  # fmt: skip
            problem, operands = zeros(spec, shape)
            return run_kernel(spec, runner, module, problem, operands)

        return Job(f"{spec.full_name} {shape}", run)

    return [job(spec, shape) for spec in specs for shape in shapes]


def cutlass_jobs(shapes: Sequence[GemmShape], dtypes: Sequence[str] = ("f32", "f16")) -> list[Job]:
    """CUTLASS's SIMT kernel on every shape."""

    def job(spec: KernelSpec, shape: GemmShape) -> Job:
        def run(runner: Runner) -> object:
            if isinstance(runner, CountingRunner):
                module = cutlass_module(spec.dtypes.name, "rrr", runner.arch, "cubin")
                runner.cubins[module.name] = module.code
            return cutlass_gemm(runner, spec, *zeros(spec, shape))

        return Job(f"cutlass {spec.dtypes.name} {shape}", run)

    return [job(make_spec("naive", dtype=d), shape) for d in dtypes for shape in shapes]


def zeros(spec: KernelSpec, shape: GemmShape) -> tuple[GemmProblem, Operands]:
    """A problem whose matrices are zeros: counters do not depend on values."""
    m, n, k = shape.m, shape.n, shape.k
    a = storage_dtype(spec.dtypes.input.name)
    d = np.zeros((m, n), storage_dtype(spec.dtypes.output.name))
    operands = Operands(np.zeros((m, k), a), np.zeros((k, n), a), d, d.reshape(-1))
    return GemmProblem.packed(shape, spec.layouts), operands


# -- patterns that pin down the model of wavefronts and sectors ------------------------------------
OFFSETS = {
    "each its own": "t",
    "pairs": "t / 2",
    "same but one": "t / 4 * 2 + t % 2",
    "fours": "t / 4",
    "halves": "t / 16",
    "quarters": "t / 8",
    "all one": "0",
    "alternating": "t % 2",
    "pairs, first half only": "t < 16 ? t / 2 : t",
    "stride 2": "2 * t",
    "stride 4": "4 * t",
    "stride 3": "3 * t",
    "halves swapped": "t ^ 16",
    "reversed": "31 - t",
    "the same for both halves": "t % 16",
    "the same for all quarters": "t % 8",
    "two rows of a tile": "t / 16 * 4",
}
MASKS = {"": "true", ", even lanes": "t % 2 == 0", ", first half": "t < 16", ", 3 lanes": "t < 3"}
WIDTHS = {4: ("f32", 1), 8: ("v2.f32", 2), 16: ("v4.f32", 4)}


def pattern_source() -> tuple[str, list[str]]:
    """Kernels that make one access each by one warp, and what the pattern of each is called."""
    kernels, names = [], []
    for width, (kind, lanes) in WIDTHS.items():
        registers = ", ".join(f"%{i}" for i in range(lanes))
        vector = f"{{{registers}}}" if lanes > 1 else registers
        outputs = ", ".join(f'"=f"(x[{i}])' for i in range(lanes))
        inputs = ", ".join(f'"f"(x[{i}])' for i in range(lanes))
        access = {
            f"load{width}": f'asm volatile("ld.SPACE.{kind} {vector}, [%{lanes}];" : {outputs}'
            ' : "l"(at));',
            f"store{width}": f'asm volatile("st.SPACE.{kind} [%{lanes}], {vector};" : : {inputs},'
            ' "l"(at));',
        }
        for what, code in access.items():
            for space in ("shared", "global"):
                for pattern, offset in OFFSETS.items():
                    for mask, condition in MASKS.items() if space == "shared" else [("", "true")]:
                        body = code.replace("SPACE", space)
                        base = "__cvta_generic_to_shared(s)" if space == "shared" else "(size_t)g"
                        kernels.append(
                            f'extern "C" __global__ void pattern{len(names)}(float* g) {{\n'
                            "  __shared__ __align__(128) float s[1024];\n"
                            f"  const int t = threadIdx.x;\n  float x[4] = {{}};\n"
                            f"  const size_t at = {base} + {width} * ({offset});\n"
                            f"  if ({condition}) {body}\n"
                            "  if (x[0] + x[1] + x[2] + x[3] == 3.f) g[t] = s[t];\n}"
                        )
                        names.append(f"{space} {what}: {pattern}{mask}")
    return "\n".join(kernels), names


def pattern_jobs() -> list[Job]:
    """One launch of one warp for each pattern."""
    text, names = pattern_source()

    def job(number: int, name: str) -> Job:
        def run(runner: Runner) -> object:
            module = nvrtc.compile_cuda(
                text, name="patterns.cu", arch=runner.target("sm_80"), format=runner.format
            )
            buffer = runner.upload(np.zeros(1 << 12, np.float32), "g")
            return runner.launch(module, f"pattern{number}", (1, 1, 1), (32, 1, 1), [buffer])

        return Job(name, run)

    return [job(number, name) for number, name in enumerate(names)]


# -- ncu ------------------------------------------------------------------------------------------
def ncu_command(arguments: Sequence[str]) -> list[str]:
    """`ncu` over this script, which then only launches."""
    metrics = ",".join([*METRICS, INSTRUCTIONS])
    options = ["--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base"]
    script = [sys.executable, __file__, "--launch", *arguments]
    return ["ncu", *options, "--metrics", metrics, *script]


def parse_ncu(output: str) -> list[tuple[str, dict[str, int]]]:
    """(kernel, metric -> value) for each launch, from `ncu --csv --page raw`.

    The table begins at the line with the column names; a line of units follows it. ncu's own
    messages, which start with ==, and what the program prints may stand before and between.
    """
    lines = [line for line in output.splitlines() if line.startswith('"')]
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise SystemExit(f"ncu printed no table:\n{output[-2000:]}")
    found = []
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        if row["ID"]:
            values = {m: _number(row[m]) for m in [*METRICS, INSTRUCTIONS] if m in row}
            found.append((row["Kernel Name"].partition("(")[0], values))
    return found


def _number(text: str) -> int:
    text = text.replace(",", "")
    return round(float(text)) if text.replace(".", "", 1).isdigit() else -1


def compare(
    job: str, totals: Totals, measured: dict[str, int], every: bool
) -> Iterable[tuple[str, str, str, str, str]]:
    """Rows: job, counter, emulator, ncu, difference. Equal counters only if `every`."""
    for metric, (name, value) in METRICS.items():
        mine, theirs = value(totals), measured.get(metric, -1)
        if mine != theirs or every:
            yield job, name, f"{mine:,}", f"{theirs:,}", f"{mine - theirs:+,}"
    if every:
        mine, theirs = totals.instructions, measured.get(INSTRUCTIONS, -1)
        yield job, "instructions (PTX | machine)", f"{mine:,}", f"{theirs:,}", ""


def choose_jobs(options: argparse.Namespace) -> list[Job]:
    """The launches that the command line asks for, in an order that both sides share."""
    if options.patterns:
        return pattern_jobs()
    shapes = [parse_shape(text) for text in options.shape or SHAPES]
    specs = []
    for name in options.variant or VARIANTS:
        for dtype in options.dtype or VARIANTS[name].dtypes[:1]:
            try:
                specs.append(make_spec(name, dtype=dtype, arch=options.arch))
            except GenError as error:
                print(f"{name} {dtype}: {error}", file=sys.stderr)
    return gemm_jobs(specs, shapes) + (cutlass_jobs(shapes) if not options.variant else [])


def main() -> int:
    """Count on the emulator, launch under ncu, compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--variant", action="append", choices=list(VARIANTS))
    parser.add_argument("--dtype", action="append", help="default: each kernel's first")
    parser.add_argument("--shape", action="append", metavar="MxNxK")
    parser.add_argument("--arch", help="default: the GPU's")
    parser.add_argument("--patterns", action="store_true", help="one warp, one access each")
    parser.add_argument("--all", action="store_true", help="show equal counters too")
    parser.add_argument("--launch", action="store_true", help="only launch, for ncu to watch")
    options = parser.parse_args()
    options.arch = options.arch or GpuRunner().target("sm_80")
    jobs = choose_jobs(options)
    if options.launch:
        runner = GpuRunner()
        for job in jobs:
            job.run(runner)  # type: ignore[arg-type]
        return 0
    emulator = CountingRunner(options.arch)
    for job in jobs:
        job.run(emulator)
    arguments = [*sys.argv[1:], *(["--arch", options.arch] if "--arch" not in sys.argv else [])]
    done = subprocess.run(ncu_command(arguments), capture_output=True, text=True, check=False)
    measured = parse_ncu(done.stdout + done.stderr)
    wanted = [kernel for kernel, _ in emulator.launched]
    measured = [entry for entry in measured if entry[0] in set(wanted)]
    if [kernel for kernel, _ in measured] != wanted:
        raise SystemExit(f"ncu saw {len(measured)} launches, the emulator {len(wanted)}")
    rows = [
        row
        for job, (_, totals), (_, values) in zip(jobs, emulator.launched, measured, strict=True)
        for row in compare(job.name, totals, values, options.all)
    ]
    for row in [("launch", "counter", "emulator", "ncu", "difference"), *rows]:
        print(" | ".join(row))
    wrong = [row for row in rows if row[4] not in ("", "+0")]
    print(f"{len(jobs)} launches, {len(METRICS)} counters each, {len(wrong)} of them differ")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
