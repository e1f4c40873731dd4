"""Hopper kernels that others wrote, whole, on the emulator: right, refused, or found to be wrong.

    python -m tests.hardware.hopper_kernels [NAME...] [--fast-cu FOLDER] [--quick] [--markdown]

Kernels of CUTLASS 3.x come from the headers of the nvidia-cutlass package, those of
https://github.com/pranjalssh/fast.cu from a checkout in FOLDER; nothing is downloaded. NAME chooses
rows by a part of the kernel's name. --quick runs without the checks. It needs nvcc, and no GPU: the
authors' code of the host runs as well, and makes the tensor maps and launches (`emulated_runtime`).
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gen.compile import nvrtc
from gen.emulator import DeviceArray, Emulator, parse_ptx
from gen.emulator.warp.tensor_core import FP8_WGMMA, TO_F16, TO_F32
from gen.errors import CheckError, CompileError, GenError
from gen.foreign import elements
from gen.foreign.running import Checks
from gen.foreign.words import sentence
from gen.prove.sums import gamma
from gen.spec import numerics
from tests.hardware.emulated_runtime import Compiled, Program, compile_program

HERE = Path(__file__).parent


class Row(NamedTuple):
    """A kernel, and a product D = A * B for it.

    kinds: the elements of A, B and D. column_major: which of them are. sums: the type of the sums,
    "fp8" for those of 14 bits. multiprocessors: that the host's code is told of.
    """

    name: str
    source: Path
    flags: tuple[str, ...]
    shape: tuple[int, int, int]
    kinds: tuple[str, str, str]
    column_major: str = "B"
    sums: str = "f32"
    multiprocessors: int = 4
    uses: tuple[Path, ...] = ()


# -- the table -------------------------------------------------------------------------------------

TYPES = {
    "f16": "cutlass::half_t", "bf16": "cutlass::bfloat16_t", "tf32": "cutlass::tfloat32_t",
    "e4m3": "cutlass::float_e4m3_t", "f32": "float", "i8": "int8_t", "i32": "int32_t",
}  # fmt: skip

# Name; elements of A, B and D, and of the sums; A's and B's layouts; tile; cluster; schedule of the
# mainloop; scheduler of tiles; shape. Shapes that no tile divides have residues along M, N and K;
# with tiles for more blocks than there are multiprocessors, blocks go on to a second one.
CUTLASS = """
f16 cooperative                f16  f16  f16  f32  tn 128x128x64  2x1 Cooperative             Persistent 200x392x264
f16 pingpong                   f16  f16  f16  f32  tn 64x128x64   2x1 Pingpong                Persistent 128x392x328
bf16 stream-K                  bf16 bf16 f32  f32  tn 128x128x64  2x1 Cooperative             StreamK    256x384x1024
e4m3 cooperative               e4m3 e4m3 f16  fp8  tn 128x128x128 1x2 Cooperative             Persistent 256x256x1040
e4m3 cooperative, FastAccum    e4m3 e4m3 f16  fp8  tn 128x128x128 1x2 CooperativeFP8FastAccum Persistent 256x256x1040
f16 warp-specialised           f16  f16  f16  f32  tn 128x128x64  1x1 -                       Persistent 200x264x264
tf32 column-major, RS          tf32 tf32 f32  f32  nn 128x128x32  1x1 -                       Persistent 200x264x132
i8 and f16, RS                 i8   f16  f16  f32  tn 128x128x64  2x1 Cooperative             Persistent 256x256x272
bf16 column and row, 2x2       bf16 bf16 bf16 f32  nt 128x128x64  2x2 Cooperative             Persistent 264x264x200
i8 pingpong                    i8   i8   i32  i32  tn 64x128x128  1x2 Pingpong                Persistent 128x272x400
f16 with sums in f16           f16  f16  f16  f16  tn 128x128x64  2x1 Cooperative             Persistent 200x392x264
"""  # noqa: E501 - a row of the table is a line


def cutlass() -> Iterator[Row]:
    """Kernels of CUTLASS's CollectiveBuilder."""
    base = Path(nvrtc.cutlass_include())
    include = (f"-I{base}", f"-I{base.parent / 'tools/util/include'}")
    for line in CUTLASS.strip().splitlines():
        *name, a, b, d, sums, layout, tile, cluster, schedule, scheduler, shape = line.split()
        schedule = schedule.removeprefix("-")
        accumulator = TYPES.get("f32" if sums == "fp8" else sums)
        defines = {
            "TYPE_A": TYPES[a], "TYPE_B": TYPES[b], "TYPE_D": TYPES[d], "ACCUMULATOR": accumulator,
            "LAYOUT_A": "Row" if layout[0] == "t" else "Column",
            "LAYOUT_B": "Row" if layout[1] == "t" else "Column",
            **dict(zip(("TILE_M", "TILE_N", "TILE_K"), tile.split("x"), strict=True)),
            **dict(zip(("CLUSTER_M", "CLUSTER_N"), cluster.split("x"), strict=True)),
            "SCHEDULE": f"KernelTmaWarpSpecialized{schedule}",
            "EPILOGUE": f"TmaWarpSpecialized{schedule.removesuffix('FP8FastAccum')}".removesuffix(
                "Pingpong"
            ),
            "SCHEDULER": f"{scheduler}Scheduler",
            **({"STREAM_K": "1"} if scheduler == "StreamK" else {}),
        }  # fmt: skip
        m, n, k = map(int, shape.split("x"))
        yield Row(
            f"CUTLASS {' '.join(name)}", HERE / "hopper_cutlass.cu",
            (*include, *(f"-D{key}={value}" for key, value in defines.items())),
            (m, n, k), (a, b, d), {"tn": "B", "nn": "AB", "nt": "A"}[layout], sums,
        )  # fmt: skip


def fast_cu(folder: Path) -> Iterator[Row]:
    """The kernels of fast.cu, compiled with the flags of its Makefile.

    Kernels 6 to 10 take tiles in groups of 16 x 8, which have to be whole. From the 6th on, there
    are 128 blocks, or 64 clusters; with these shapes some of them have two tiles.
    """
    for number in range(1, 13):
        file = folder.resolve() / f"examples/matmul/matmul_{number}.cuh"
        shape = (256, 512, 448) if number < 6 else (4096, 2048, 192)
        shape = (2304, 2304, 192) if number > 10 else shape
        flags = ("-O3", "--use_fast_math", "--expt-extended-lambda", f"-DSOURCE={file}")
        yield Row(
            f"fast.cu {number}", HERE / "hopper_fast_cu.cu", (*flags, f"-DNUMBER={number}"), shape,
            ("bf16", "bf16", "bf16"), "" if number == 1 else "BD", uses=(file,),
        )  # fmt: skip


# -- what is right ---------------------------------------------------------------------------------


def drawn(row: Row, integers: bool) -> list[np.ndarray]:
    """A and B as their types hold them, in float64: small integers, or normally distributed."""
    rng = np.random.default_rng(7)
    m, n, k = row.shape
    found = []
    for shape, kind in zip(((m, k), (k, n)), row.kinds[:2], strict=True):
        exact = integers or kind == "i8"
        numbers = rng.integers(-3, 4, shape) if exact else rng.standard_normal(shape)
        stored = elements.stored(np.asarray(numbers, np.float64), kind)
        found.append(np.asarray(elements.values(stored, kind), np.float64))
    return found


def bound(row: Row, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """How far elements of a right D may be from A * B, both in float64: M x N.

    An instruction adds 32 bytes of products along K to a sum, each cut off `fraction` bits below
    the largest, and the sum to so many bits or more (see `gen.prove.kernel_sums`). Partial sums of
    stream-K are added in f32.
    """
    rule = {"fp8": FP8_WGMMA, "f16": TO_F16}.get(row.sums, TO_F32)
    last = 2.0**-rule.kept if rule.kept else numerics.unit_roundoff("f16")
    each = 32 // max(elements.storage(kind).itemsize for kind in row.kinds[:2])
    steps = -(-row.shape[2] // each) + 4
    size = np.abs(a) @ np.abs(b)
    error = gamma(steps, each * 2.0**-rule.fraction + last) * size
    if row.name == "fast.cu 1":  # on CUDA cores
        error = gamma(row.shape[2], numerics.unit_roundoff("f32")) * size
    out = row.kinds[2]
    return np.asarray(
        error
        + numerics.unit_roundoff(out) * (np.abs(a @ b) + error)
        + numerics.smallest_subnormal(out)
    )


def compare(got: np.ndarray, row: Row, a: np.ndarray, b: np.ndarray, integers: bool) -> str:
    """What is wrong with D, or "" and nothing."""
    want, out = a @ b, row.kinds[2]
    allowed = np.zeros_like(want) if integers or out == "i32" else bound(row, a, b)
    if integers:
        want = np.asarray(elements.values(elements.stored(want, out), out), np.float64)
    wrong = ~(np.abs(got - want) <= allowed)  # NaN is wrong
    if not wrong.any():
        return ""
    i, j = np.argwhere(wrong)[0]
    return (
        f"D({i}, {j}) is {got[i, j]:.9g}, expected is {want[i, j]:.9g} "
        f"(bound of the error: {allowed[i, j]:.3g}); {wrong.sum()} of {wrong.size} differ"
    )


# -- running it ------------------------------------------------------------------------------------


def load(row: Row, emulator: Emulator, compiled: Compiled, quick: bool = True) -> Program:
    """The row's program on an emulator."""
    checks = Checks(()) if quick else Checks()
    return Program(compiled, parse_ptx(compiled.ptx), emulator, checks.make)


def operands(row: Row, emulator: Emulator, a: np.ndarray, b: np.ndarray) -> list[DeviceArray]:
    """A, B and D in memory; D's bytes are all ones, NaN as a float."""
    arrays = []
    for name, kind, values in zip("AB", row.kinds, (a, b), strict=False):
        stored = elements.stored(values.T if name in row.column_major else values, kind)
        arrays.append(emulator.alloc(stored, name))
    m, n, _ = row.shape
    lines = (n, m) if "D" in row.column_major else (m, n)
    ones = np.full((*lines, elements.storage(row.kinds[2]).itemsize), 0xFF, np.uint8)
    empty = ones.view(elements.storage(row.kinds[2]))[..., 0]
    return [*arrays, emulator.alloc(empty, "D", defined=False)]


def judge(row: Row, quick: bool) -> tuple[str, str]:
    """ "right", "refused", "found" or "failed", and what about."""
    try:
        compiled = compile_program(row.source, row.flags, row.uses)
        for integers in (True, False):
            a, b = drawn(row, integers)
            emulator = Emulator(time_budget=3600)
            arrays = operands(row, emulator, a, b)
            program = load(row, emulator, compiled, quick)
            program.run(*row.shape, *arrays, row.multiprocessors)
            said = [sentence(one) for report in program.reports for one in report.findings]
            result = elements.values(emulator.read(arrays[2]), row.kinds[2])
            result = result.T if "D" in row.column_major else result
            wrong = compare(np.asarray(result, np.float64), row, a, b, integers)
            if said:
                more = f" (and {len(said) - 1} more)" if len(said) > 1 else ""
                return "found", f"{said[0]}{more}; {wrong or 'D is right'}"
            if wrong:
                return "found", wrong
    except CompileError as error:
        return "failed", f"does not compile: {error}"
    except CheckError as error:
        return "refused", str(error)
    except (GenError, OSError) as error:
        return "failed", str(error)
    return "right", "exact on integers; within the bound on others"


# What a kernel uses, by how PTX spells it.
FEATURES = {
    "{}": r"wgmma\.mma_async\.sync\.aligned\.(m\d+n\d+k\d+\.\w+\.\w+)",
    "A in registers": r"wgmma\.mma_async[\w.]*\s*\{[^}]*\},\s*\{",
    "TMA {}D": r"cp\.async\.bulk\.tensor\.(\d)d\.shared",
    "multicast": r"multicast::cluster",
    "other blocks' mbarriers": r"mbarrier\.arrive[\w.:]*\.shared::cluster",
    "TMA stores": r"cp\.async\.bulk\.tensor\.\dd\.global",
    "stmatrix": r"stmatrix\.",
    "setmaxnreg": r"setmaxnreg\.",
}


def features(ptx: str) -> str:
    """What a kernel uses of Hopper, in words."""
    found = []
    for words, pattern in FEATURES.items():
        match = re.search(pattern, ptx)
        if match:
            found.append(words.format(*match.groups()))
    return ", ".join(found)


def used(row: Row) -> str:
    """The same of a row, with its cluster; "" where it does not compile."""
    try:
        compiled = compile_program(row.source, row.flags, row.uses)
    except GenError:
        return ""
    return features(compiled.ptx)


def table(results: Sequence[tuple[Row, str, str]]) -> Iterator[str]:
    """A line for each row, as Markdown."""
    yield "| kernel | what it uses | M x N x K | verdict | what |"
    yield "|---|---|---|---|---|"
    for row, verdict, about in results:
        about = about.replace("|", "\\|")
        shape = " x ".join(map(str, row.shape))
        yield f"| {row.name} | {used(row)} | {shape} | {verdict} | {about} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--fast-cu", type=Path, metavar="FOLDER")
    parser.add_argument("--quick", action="store_true", help="run without the checks")
    parser.add_argument("--markdown", action="store_true", help="print a table at the end")
    chosen = parser.parse_args()
    results = []
    for row in [*cutlass(), *(fast_cu(chosen.fast_cu) if chosen.fast_cu else ())]:
        if chosen.names and not any(name in row.name for name in chosen.names):
            continue
        start = time.perf_counter()
        verdict, about = judge(row, chosen.quick)
        about = " ".join(about.split())[:400]
        results.append((row, verdict, about))
        line = f"{verdict:8} {time.perf_counter() - start:6.1f} s  {row.name:38} {about}"
        print(line, file=sys.stderr if chosen.markdown else sys.stdout, flush=True)
    if chosen.markdown:
        print("\n".join(table(results)))


if __name__ == "__main__":
    main()
