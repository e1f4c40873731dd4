"""A script: how long nvcc takes for an emitted kernel, and for the same GEMM through CUTLASS."""

import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from gen.compile.nvrtc import cutlass_include
from gen.kernels.registry import make_spec
from gen.source.render import render
from gen.spec.kernel import KernelSpec

SOURCES = Path(__file__).parent / "cutlass"
ROWS = (
    (make_spec("rec_tiles", dtype="f32"), "cutlass_f32.cu"),
    (make_spec("mma", dtype="f16", threadblock="128x256x32"), "cutlass_f16_sm80.cu"),
    (make_spec("mma_tma", dtype="f16"), "cutlass_f16_sm90a.cu"),
)


def seconds(source: Path, arch: str, *options: str) -> float:
    """One run of nvcc."""
    command = ["nvcc", "-std=c++17", f"-arch={arch}", *options, "-c", str(source)]
    start = time.perf_counter()
    subprocess.run([*command, "-o", f"{source}.o"], check=True)
    return time.perf_counter() - start


def measure(spec: KernelSpec, cutlass: Path, folder: Path) -> tuple[float, float]:
    """The emitted kernel, median of five; CUTLASS, median of three."""
    source = folder / render(spec).filename
    source.write_text(render(spec).text)
    emitted = statistics.median(seconds(source, spec.arch) for _ in range(5))
    copy = folder / cutlass.name
    copy.write_text(cutlass.read_text())
    include = Path(cutlass_include())
    options = (
        *(f"-I{folder}" for folder in (include, include.parent / "tools" / "util" / "include")),
        *("--expt-relaxed-constexpr", "-DNDEBUG"),
        "-w",
    )
    return emitted, statistics.median(seconds(copy, spec.arch, *options) for _ in range(3))


def main() -> None:
    """Prints the table of docs/cpp.md."""
    print(f"nvcc -c, seconds, {os.cpu_count()} cores\n")
    print("| kernel | emitted | CUTLASS | ratio |\n|---|---:|---:|---:|")
    for spec, cutlass in ROWS:
        with tempfile.TemporaryDirectory() as folder:
            emitted, other = measure(spec, SOURCES / cutlass, Path(folder))
        name = f"`{spec.variant}` {spec.dtypes.name}, {spec.arch}"
        print(f"| {name} | {emitted:.1f} | {other:.1f} | {other / emitted:.0f} |", flush=True)


if __name__ == "__main__":
    main()
