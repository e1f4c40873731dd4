"""Holds the emulator's counters against Nsight Compute's, launch by launch.

Needs a GPU, and `ncu` on the PATH (`nvdisasm` too, for the widths of shared loads). From the root
of the repository::

    python -m tests.hardware.compare_counters                # all kernels
    python -m tests.hardware.compare_counters --variant tiles --shape 128 --all
    python -m tests.hardware.compare_counters --patterns     # the bank model alone
    python -m tests.hardware.compare_counters --tensor       # CUTLASS's with mma

One `ncu` process profiles all launches. Both sides compile for the GPU's architecture. Exit code 1
where a counter differs.
"""

from __future__ import annotations

import argparse
import csv
import io
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gen.compile import nvrtc, sass
from gen.device.emulated import EmulatorRunner
from gen.device.execute import Case, Operands, run_kernel
from gen.device.gpu import GpuRunner
from gen.device.runner import Runner
from gen.emulator import Counters, PtxModule, parse_ptx
from gen.emulator.translate.blocks import build_blocks
from gen.emulator.watch.counters import Totals
from gen.emulator.watch.joined_loads import match_widths
from gen.errors import GenError
from gen.kernels.registry import VARIANTS, make_spec
from gen.prove.cutlass import cutlass_gemm, cutlass_module
from gen.source.render import render
from gen.spec.kernel import KernelSpec
from gen.spec.numerics import storage_dtype
from gen.spec.problem import GemmProblem, GemmShape, parse_shape
from tests.emulator import cutlass_kernels
from tests.hardware.compare_results import cutlass_results

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
}  # fmt: skip
# Compared where a kernel has an mma, since the pipe also does integer multiplications.
TENSOR = "sm__inst_executed_pipe_tensor.sum"
PROGRESS = "launched"
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

    def launch(self, module: Any, kernel: str, *args: Any, **options: Any) -> Any:
        """Run and count."""
        counters = Counters(limits=self._limits(module, kernel))
        self._observers = [counters]
        findings = super().launch(module, kernel, *args, **options)
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
            return run_kernel(spec, runner, module, Case(problem, operands))

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


def tensor_jobs() -> list[Job]:
    """CUTLASS kernels with ldmatrix and mma, two of them with cp.async."""

    def job(kernel: cutlass_kernels.CutlassKernel) -> Job:
        def run(runner: Runner) -> object:
            if isinstance(runner, CountingRunner):
                options = ["-default-device", "-diag-suppress=20044"]
                options.append(f"-I{nvrtc.cutlass_include()}")
                cubin = nvrtc.compile_cuda(
                    cutlass_kernels.source(kernel), arch=runner.arch, format="cubin",
                    options=options,
                )  # fmt: skip
                runner.cubins[cubin.name] = cubin.code
            return cutlass_results(runner, kernel, "integer")

        return Job(f"cutlass {kernel}", run)

    return [job(cutlass_kernels.KERNELS[number]) for number in (0, 3, 6)]


def zeros(spec: KernelSpec, shape: GemmShape) -> tuple[GemmProblem, Operands]:
    """A problem whose matrices are zeros: counters do not depend on values."""
    m, n, k = shape.m, shape.n, shape.k
    a = storage_dtype(spec.dtypes.input.name)
    d = np.zeros((m, n), storage_dtype(spec.dtypes.output.name))
    operands = Operands(np.zeros((m, k), a), np.zeros((k, n), a), d, d.reshape(-1))
    return GemmProblem.packed(shape, spec.layouts), operands


# -- patterns that pin down the model of wavefronts and sectors ------------------------------------
# What the 32 lanes of a warp access, in elements of the access' width.
LANE = np.arange(32)
RANDOM = np.random.default_rng(1).integers(0, 64, (4, 32))
OFFSETS = {
    "each its own": LANE,
    "pairs": LANE // 2,
    "same but one": LANE // 4 * 2 + LANE % 2,
    "fours": LANE // 4,
    "halves": LANE // 16,
    "quarters": LANE // 8,
    "all one": 0 * LANE,
    "alternating": LANE % 2,
    "pairs, first half only": np.where(LANE < 16, LANE // 2, LANE),
    "stride 2": 2 * LANE,
    "stride 4": 4 * LANE,
    "stride 3": 3 * LANE,
    "halves swapped": LANE ^ 16,
    "reversed": 31 - LANE,
    "the same for both halves": LANE % 16,
    "the same for all quarters": LANE % 8,
    "two rows of a tile": LANE // 16 * 4,
    "random": RANDOM[0],
    "random pairs": RANDOM[1][LANE // 2],
    "random, same but one": RANDOM[2][LANE // 4 * 2 + LANE % 2],
    "random fours": RANDOM[3][LANE // 4],
}
FEW = ("each its own", "pairs", "fours", "stride 3", "two rows of a tile", "random", "random pairs")
MASKS = {
    "": LANE >= 0,
    ", even lanes": LANE % 2 == 0,
    ", first half": LANE < 16,
    ", 3 lanes": LANE < 3,
}
# For cp.async: where in shared memory (in bytes, of lanes of a width), and where in global memory.
COPY_TO: dict[str, Callable[[int], Any]] = {
    "in order": lambda w: w * LANE,
    "one lane further": lambda w: w * (LANE + 1),
    "half a row further": lambda w: w * LANE + 64,
    "rows of 8, padded by one": lambda w: w * (LANE // 8 * 9 + LANE % 8),
    "rows of 4, padded by one": lambda w: w * (LANE // 4 * 5 + LANE % 4),
    "every other": lambda w: 2 * w * LANE,
    "a row each": lambda w: 128 * LANE,
    "xor 5": lambda w: w * (LANE ^ 5),
    "transposed": lambda w: w * (LANE % 4 * 8 + LANE // 4),
    "random": lambda w: w * np.random.default_rng(5).permutation(64)[:32],
}
COPY_FROM: dict[str, Callable[[int], Any]] = {
    "in order": lambda w: w * LANE,
    "every other": lambda w: 2 * w * LANE,
    "one lane further": lambda w: w * (LANE + 1),
    "reversed": lambda w: w * (31 - LANE),
    "rows of 8": lambda w: 1024 * (LANE // 8) + w * (LANE % 8),
    "all one": lambda w: 0 * LANE,
    "random": lambda w: w * RANDOM[0],
}
TELLING = {"random", "rows of 4, padded by one", "one lane further"}
MATRICES = {
    "16 bytes a row": 16 * LANE,
    "128 bytes a row": 128 * LANE,
    "144 bytes a row": 144 * LANE,
    "64 bytes a row": 64 * LANE,
    "80 bytes a row": 80 * LANE,
    "all one": 0 * LANE,
    "the same for all": 16 * (LANE % 8),
}
KINDS = {4: ("f32", 1), 8: ("v2.f32", 2), 16: ("v4.f32", 4)}
FRAME = """extern "C" __global__ void NAME(const int* offsets, const char* in, char* out) {
  __shared__ __align__(1024) char s[16384];
  const int t = threadIdx.x, at = offsets[t], from = offsets[32 + t];
  float x[4] = {};
  const unsigned to = (unsigned)__cvta_generic_to_shared(s) + at;
  if (at >= 0) BODY
  if (x[0] + x[1] + x[2] + x[3] == 1234.5678f) out[t] = s[t];
}
"""


class Pattern(NamedTuple):
    """One access by one warp: what it is called, its kernel, and for each lane where (-1: nowhere)
    and for copies where from, in bytes.
    """

    name: str
    kernel: str
    at: Any
    source: Any


def pattern_source() -> str:
    """A kernel for each kind of access."""
    bodies = {}
    for width, (kind, lanes) in KINDS.items():
        registers = ", ".join(f"%{i}" for i in range(lanes))
        vector = f"{{{registers}}}" if lanes > 1 else registers
        outputs = ", ".join(f'"=f"(x[{i}])' for i in range(lanes))
        inputs = ", ".join(f'"f"(x[{i}])' for i in range(lanes))
        for space, load, store in (
            ("shared", '"r"(to)', '"r"(to)'), ("global", '"l"(in + at)', '"l"(out + at)'),
        ):  # fmt: skip
            bodies[f"{space}_load{width}"] = (
                f'asm volatile("ld.{space}.{kind} {vector}, [%{lanes}];" : {outputs} : {load});'
            )
            bodies[f"{space}_store{width}"] = (
                f'asm volatile("st.{space}.{kind} [%{lanes}], {vector};" : : {inputs}, {store});'
            )
        for cache_ in ("ca", "cg")[: 2 if width == 16 else 1]:
            bodies[f"copy_{cache_}{width}"] = (
                f'{{ asm volatile("cp.async.{cache_}.shared.global [%0], [%1], {width};" : : '
                '"r"(to), "l"(in + from)); asm volatile("cp.async.wait_all;"); }'
            )
    words = ", ".join(f'"=f"(x[{i}])' for i in range(4))
    bodies["ldmatrix"] = (
        'asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : '
        f'{words} : "r"(to));'
    )
    return "\n".join(
        FRAME.replace("NAME", name).replace("BODY", body) for name, body in bodies.items()
    )


def patterns() -> list[Pattern]:
    """The most telling ones first."""
    found = []
    for kernel in ("copy_cg16", "copy_ca16", "copy_ca8", "copy_ca4"):
        width = int(kernel[7:])
        for to, at in COPY_TO.items():
            for origin, source in COPY_FROM.items():
                if "in order" in (to, origin) or (kernel == "copy_cg16" and TELLING & {to, origin}):
                    name = f"{kernel}: to {to}, from {origin}"
                    found.append(Pattern(name, kernel, at(width), source(width)))
    found += [Pattern(f"ldmatrix: {name}", "ldmatrix", at, at) for name, at in MATRICES.items()]
    for width in (16, 8, 4):
        for access in ("shared_load", "shared_store", "global_load", "global_store"):
            kernel = f"{access}{width}"
            for pattern, offset in OFFSETS.items():
                for mask, lanes in MASKS.items():
                    many = kernel in ("shared_load16", "shared_load8", "shared_store16")
                    if pattern in FEW or (many and mask in ("", ", even lanes")):
                        if mask and (width == 4 or (access[0] == "g" and mask[2] != "e")):
                            continue
                        at = np.where(lanes, width * offset, -1)
                        found.append(Pattern(f"{kernel}: {pattern}{mask}", kernel, at, at))
    return found


def pattern_jobs() -> list[Job]:
    """One launch of one warp for each pattern."""
    text = pattern_source()

    def job(pattern: Pattern) -> Job:
        def run(runner: Runner) -> object:
            module = nvrtc.compile_cuda(
                text, name="patterns.cu", arch=runner.target("sm_80"), format=runner.format
            )
            offsets = np.concatenate([pattern.at, pattern.source]).astype(np.int32)
            arrays = (offsets, np.zeros(16384, np.uint8), np.zeros(16384, np.uint8))
            buffers = [runner.upload(a, n) for a, n in zip(arrays, ("o", "in", "out"), strict=True)]
            findings = runner.launch(module, pattern.kernel, (1, 1, 1), (32, 1, 1), buffers)
            for buffer in buffers:
                runner.free(buffer)
            return findings

        return Job(pattern.name, run)

    return [job(pattern) for pattern in patterns()]


# -- ncu ------------------------------------------------------------------------------------------
def ncu_command(arguments: Sequence[str], metrics: Sequence[str]) -> list[str]:
    """`ncu` over this script, which then only launches."""
    options = ["--clock-control", "none", "--cache-control", "none", "--csv", "--page", "raw"]
    options += ["--print-units", "base", "--metrics", ",".join(metrics)]
    return ["ncu", *options, sys.executable, "-m", __spec__.name, "--launch", *arguments]


def run_ncu(command: Sequence[str]) -> str:
    """What ncu and the script that it runs print; how far they are goes on to stderr."""
    lines = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if line.startswith(PROGRESS):
                print(line, end="", file=sys.stderr, flush=True)
    return "".join(lines)


def launch(jobs: Sequence[Job], seconds: float) -> None:
    """Launch on the GPU, for ncu to watch, and stop when `seconds` are over."""
    runner, start = GpuRunner(), time.perf_counter()
    for number, job in enumerate(jobs):
        passed = time.perf_counter() - start
        if passed > seconds:
            break
        job.run(runner)  # type: ignore[arg-type]
        if number % 50 == 0:
            print(f"{PROGRESS} {number + 1} of {len(jobs)}, {passed:.0f} s", flush=True)


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
            values = {m: _number(row[m]) for m in [*METRICS, TENSOR, INSTRUCTIONS] if m in row}
            found.append((row["Kernel Name"].partition("(")[0], values))
    return found


def _number(text: str) -> int:
    text = text.replace(",", "")
    return round(float(text)) if text.replace(".", "", 1).isdigit() else -1


def compare(
    job: str, totals: Totals, measured: dict[str, int], every: bool
) -> Iterable[tuple[str, str, str, str, str]]:
    """Rows: job, counter, emulator, ncu, difference. Equal counters only if `every`."""
    rows = [(name, value(totals), measured.get(m, -1)) for m, (name, value) in METRICS.items()]
    if totals.mma:
        rows.append(("tensor instructions", totals.mma, measured.get(TENSOR, -1)))
    for name, mine, theirs in rows:
        if mine != theirs or every:
            yield job, name, f"{mine:,}", f"{theirs:,}", f"{mine - theirs:+,}"
    if every:
        mine, theirs = totals.instructions, measured.get(INSTRUCTIONS, -1)
        yield job, "instructions (PTX | machine)", f"{mine:,}", f"{theirs:,}", ""


def choose_jobs(options: argparse.Namespace) -> list[Job]:
    """The launches that the command line asks for, in an order that both sides share."""
    if options.patterns:
        return pattern_jobs()
    if options.tensor:
        return tensor_jobs()
    shapes = [parse_shape(text) for text in options.shape or SHAPES]
    specs = []
    # Those that are one launch.
    for name in options.variant or [v for v, row in VARIANTS.items() if not row.planner]:
        for dtype in options.dtype or VARIANTS[name].dtypes[:1]:
            try:
                specs.append(make_spec(name, dtype=dtype, arch=options.arch))
            except GenError as error:
                print(f"{name} {dtype}: {error}", file=sys.stderr)
    found = gemm_jobs(specs, shapes)
    return found if options.variant else [*found, *cutlass_jobs(shapes), *tensor_jobs()]


def main() -> int:
    """Count on the emulator, launch under ncu, compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--variant", action="append", choices=list(VARIANTS))
    parser.add_argument("--dtype", action="append", help="default: each kernel's first")
    parser.add_argument("--shape", action="append", metavar="MxNxK")
    parser.add_argument("--arch", help="default: the GPU's")
    parser.add_argument("--patterns", action="store_true", help="one warp, one access each")
    parser.add_argument("--tensor", action="store_true", help="CUTLASS's tensor-core kernels")
    parser.add_argument("--all", action="store_true", help="show equal counters too")
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep what ncu printed")
    parser.add_argument("--metric", action="append", default=[], help="one more, for --save")
    parser.add_argument("--launch", action="store_true", help="only launch, for ncu to watch")
    parser.add_argument("--seconds", type=float, default=100, help="launch no longer than that")
    options = parser.parse_args()
    options.arch = options.arch or GpuRunner().target("sm_80")
    jobs = choose_jobs(options)
    if options.launch:
        launch(jobs, options.seconds)
        return 0
    emulator = CountingRunner(options.arch)
    start = time.perf_counter()
    for job in jobs:
        job.run(emulator)
    print(f"{len(jobs)} on the emulator, {time.perf_counter() - start:.0f} s", file=sys.stderr)
    arguments = [*sys.argv[1:], *(["--arch", options.arch] if "--arch" not in sys.argv else [])]
    metrics = [*METRICS, *([] if options.patterns else [TENSOR, INSTRUCTIONS])]
    output = run_ncu(ncu_command(arguments, [*metrics, *options.metric]))
    if options.save:
        options.save.write_text(output)
    measured = parse_ncu(output)
    launched = [entry for entry in emulator.launched if entry[0] != "info"]
    wanted = [kernel for kernel, _ in launched]
    measured = [entry for entry in measured if entry[0] in set(wanted)]
    if not measured or [kernel for kernel, _ in measured] != wanted[: len(measured)]:
        raise SystemExit(f"ncu saw {len(measured)} launches, the emulator {len(wanted)}")
    rows = [
        row
        for job, (_, totals), (_, values) in zip(jobs, launched, measured, strict=False)
        for row in compare(job.name, totals, values, options.all)
    ]
    for row in [("launch", "counter", "emulator", "ncu", "difference"), *rows]:
        print(" | ".join(row))
    wrong = [row for row in rows if row[4] not in ("", "+0")]
    late = f", {len(jobs) - len(measured)} not launched in time" * (len(measured) < len(jobs))
    print(
        f"{len(measured)} launches{late}, {len(METRICS)} counters each, {len(wrong)} of them differ"
    )
    return int(bool(wrong) or bool(late))


if __name__ == "__main__":
    sys.exit(main())
