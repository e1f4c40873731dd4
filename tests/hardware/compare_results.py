"""The same launches on a GPU and on the emulator: are the results the same bits?

    python -m tests.hardware.compare_results [instructions] [kernels] [fragments] [roundings]

- instructions: each tensor-core instruction that the emulator knows, on drawn registers, a million
  results and more of each type of floats. A minute.
- kernels: those of gen and some of CUTLASS, on integer-valued and on random inputs.
- fragments: which lanes hold which elements of wmma's matrices.
- roundings: a million f32 that become tf32, by cvt.rna and by the TMA, with ties, NaN and the like.

By default all. What is not of f64 must be equal bit for bit on an H200. Of random sums of f64 the
tables say how many differ, and by how many units in the last place at most: that a GPU's tensor
cores add them in the order of k, as the emulator does, is not known. Exits with 1 where
bits differ that must not.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from gen.compile import nvrtc
from gen.device import execute
from gen.device.choose import choose_runner
from gen.device.emulated import EmulatorRunner
from gen.device.execute import Operands, run_kernel
from gen.device.runner import Runner
from gen.kernels.registry import VARIANTS, make_spec
from gen.prove.inputs import draw_operands
from gen.source.render import render
from gen.spec import numerics
from gen.spec.problem import GemmProblem, GemmShape
from tests.emulator import cutlass_kernels
from tests.emulator.warp.test_wmma import CASES, Case, fragment_kernel
from tests.hardware import roundings, tensor_instructions

SHAPE = GemmShape(131, 67, 257)


# Beside the defaults: sums of fp8 that are never promoted, or after several steps.
PROMOTED: tuple[dict[str, Any], ...] = (
    {"promote": 0},
    {"promote": 128, "threadblock": "64x64x64"},
)


def gemm_results(
    runner: Runner, variant: str, dtype: str, kind: str, **tunables: Any
) -> np.ndarray:
    """D of a shipped kernel."""
    spec = make_spec(variant, dtype=dtype, **tunables)
    module = nvrtc.compile_cuda(
        render(spec).text, arch=runner.target(spec.arch), format=runner.format
    )
    problem = GemmProblem.packed(SHAPE, spec.layouts, 3, -2, padding=3)
    operands = draw_operands(spec, problem, kind)
    storage = run_kernel(spec, runner, module, execute.Case(problem, Operands(*operands)))
    return numerics.unpack(storage, SHAPE.m, SHAPE.n, True, problem.ldd)


def cutlass_results(runner: Runner, kernel: cutlass_kernels.CutlassKernel, kind: str) -> np.ndarray:
    """D of a CUTLASS kernel: D = 2 * A * B - C."""
    include = nvrtc.cutlass_include()
    options = ["-default-device", "-diag-suppress=20044", f"-I{include}"]
    arch = runner.target(f"sm_{kernel.arch}")
    text = cutlass_kernels.source(kernel)
    module = nvrtc.compile_cuda(text, arch=arch, format=runner.format, options=options)
    counts = runner.upload(np.zeros(2, np.int32), "counts")
    runner.launch(module, "info", (1, 1, 1), (1, 1, 1), [counts])
    shared, threads = (int(value) for value in runner.download(counts))
    m, n, k = kernel.tile[0] + 16, kernel.tile[1] + 32, 144
    rng = np.random.default_rng(1)

    def draw(*shape: int) -> np.ndarray:
        if kind == "integer" or kernel.accumulator == "s32":
            return rng.integers(-2, 3, shape).astype(np.float64)
        return rng.uniform(-1, 1, shape)

    a, b, c = draw(m, k), draw(k, n), draw(m, n)
    store, acc, out = (
        cutlass_kernels.ELEMENTS[x][1] for x in (kernel.element, kernel.accumulator, kernel.output)
    )
    arrays = [
        cutlass_kernels.encode(a, store),
        cutlass_kernels.encode(b.T.copy() if kernel.b == "Column" else b, store),
        cutlass_kernels.encode(c, out),
        cutlass_kernels.encode(np.full((m, n), 77.0), out),
    ]
    device = [runner.upload(x, name) for x, name in zip(arrays, "ABCD", strict=True)]
    grid = (-(-m // kernel.tile[0]), -(-n // kernel.tile[1]), 1)
    args = [*(np.int32(size) for size in (m, n, k)), *device, acc(2), acc(-1)]
    findings = runner.launch(module, "gemm", grid, (threads, 1, 1), args, shared)
    assert not findings, findings
    return runner.download(device[3])


def fragment_results(runner: Runner, case: Case, which: str, layout: str) -> np.ndarray:
    """Which elements of a matrix each lane holds of a wmma fragment."""
    text, dtype = fragment_kernel(case, which, layout)
    module = nvrtc.compile_cuda(text, arch=runner.target("sm_80"), format=runner.format)
    storage = np.arange(32 * 32).astype(dtype).view(f"i{dtype.itemsize}")
    to = runner.upload(np.zeros(32 * 64, storage.dtype), "to")
    runner.launch(module, "lanes", (1, 1, 1), (32, 1, 1), [runner.upload(storage, "from"), to])
    return runner.download(to)


def difference(one: np.ndarray, other: np.ndarray, floating: bool) -> tuple[float, int]:
    """The share of elements that differ, and by how many units in the last place at most."""
    bits = [np.ascontiguousarray(x).view(f"i{x.itemsize}").astype(np.int64) for x in (one, other)]
    if floating:  # sign and magnitude -> two's complement, so that neighbours differ by 1
        top = np.int64(1) << np.int64(8 * one.itemsize - 1)
        bits = [np.where(b < 0, -top - b, b) for b in bits]
    gap = np.abs(bits[0] - bits[1])
    return float(np.mean(gap != 0)), int(gap.max())


def compare_instructions(gpu: Runner, cpu: Runner) -> int:
    """Prints the table; how many instructions differ that must not."""
    chosen = tensor_instructions.instructions()
    modules = [tensor_instructions.compiled(runner, chosen) for runner in (gpu, cpu)]
    print(f"{'types':16} {'instruction':64} {'results':>8} {'different':>9}  zeros' signs  NaN")
    wrong = 0
    for number, one in enumerate(chosen):
        floats = one.kinds[1] in tensor_instructions.FLOATS
        counts, first = np.zeros(4, np.int64), ""
        for mode, given in tensor_instructions.draws(one, 1200 if floats else 400):
            pair = [
                tensor_instructions.results(runner, module, number, one, given)
                for runner, module in zip((gpu, cpu), modules, strict=True)
            ]
            signs, nan = np.zeros((2, 1), bool)
            if one.kinds[0] != "s32":
                values = [bits.view(f"f{bits.itemsize}") for bits in pair]
                signs = (values[0] == 0) & (values[1] == 0)
                nan = np.isnan(values[0]) & np.isnan(values[1])
            bad = pair[0] != pair[1]
            counts += [bad.size, *(np.count_nonzero(bad & what) for what in (bad, signs, nan))]
            if bad.any() and not first:
                at = int(np.argmax(bad))
                bits = ", ".join(f"{int(x[at]):#x}" for x in pair)
                first = f"    {mode}, result {at}: {bits}"
        size, differing, zeros, nans = (int(x) for x in counts)
        kinds = " ".join(dict.fromkeys(one.kinds[1:3])) + " " + one.kinds[0]
        print(f"{kinds:16} {one.name:64} {size:8} {differing:9}  {zeros:12} {nans:4}")
        if differing and one.is_exact:
            wrong += 1
            print(first)
    return wrong


def compare_kernels(gpu: Runner, cpu: Runner) -> int:
    """Prints the table; how many results differ that must not."""
    print(f"{'kernel':52} {'inputs':8} differing  largest difference [ulp]")
    wrong = 0
    jobs: list[Job] = [
        (f"{v} {d}", d, True, lambda r, kind, v=v, d=d: gemm_results(r, v, d, kind))
        for v in VARIANTS
        for d in VARIANTS[v].dtypes
    ]
    jobs += [
        (f"wgmma {d} {list(t.values())}", d, True,
         lambda r, kind, d=d, t=t: gemm_results(r, "wgmma", d, kind, **t))
        for d in ("e4m3_f32", "e5m2_f32")
        for t in PROMOTED
    ]  # fmt: skip
    jobs += [
        (f"CUTLASS {k}", k.output, k.accumulator != "f64" or k.arch < 80,
         lambda r, kind, k=k: cutlass_results(r, k, kind))
        for k in cutlass_kernels.KERNELS
    ]  # fmt: skip
    for name, dtype, is_exact, run in jobs:
        for kind in ("integer", "random"):
            pair = run(gpu, kind), run(cpu, kind)
            share, gap = difference(*pair, floating=dtype not in ("i32", "i8", "s32"))
            print(f"{name:52} {kind:8} {share:9.2%} {gap:10d}")
            wrong += gap != 0 and (is_exact or kind == "integer")
    return wrong


def compare_fragments(gpu: Runner, cpu: Runner) -> int:
    """How many of wmma's fragments lie in other lanes; prints them."""
    wrong = 0
    for case, which, layout in itertools.product(
        CASES, ("matrix_a", "matrix_b", "accumulator"), ("row", "col")
    ):
        one, other = (fragment_results(runner, case, which, layout) for runner in (gpu, cpu))
        if not np.array_equal(one, other):
            wrong += 1
            print(f"wmma {case} {which} {layout} differs")
    return wrong


Job = tuple[str, str, bool, Callable[[Runner, str], np.ndarray]]
PARTS = {
    "instructions": compare_instructions,
    "kernels": compare_kernels,
    "fragments": compare_fragments,
    "roundings": roundings.compare,
}


def main(chosen: list[str]) -> int:
    """Prints the tables."""
    unknown = set(chosen) - set(PARTS)
    if unknown:
        print(f"{', '.join(unknown)}: one of {', '.join(PARTS)}", file=sys.stderr)
        return 2
    gpu, cpu = choose_runner("gpu"), EmulatorRunner()
    print(gpu.name)
    wrong = {part: PARTS[part](gpu, cpu) for part in chosen or PARTS}
    for part, count in wrong.items():
        print(f"{part}: {count} differ that must not")
    return 1 if any(wrong.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
