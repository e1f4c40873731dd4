"""Seconds for one launch of textbook, tensor-core and CUTLASS kernels, memcheck on.

Run it as `python -m tests.benchmarks.emulator [size ...]`. Parsing and compiling are not
counted; the best of up to five launches is.
"""

from __future__ import annotations

import sys

import numpy as np

from gen.emulator import Emulator
from tests.emulator import cutlass_kernels, tensor_kernels
from tests.emulator.emulator_kernels import compile_cuda, gemm_source, geometry, run_gemm

NAMES = ["naive", "tiles", "rec_tiles", "thread_1d", "block_1d", "shared_row", "cutlass"]
TENSOR = ["mma f32", "mma f16", "cutlass 64x64 3", "cutlass 128x128 4"]


def cutlass_launch(emulator: Emulator, ptx: str) -> tuple[int, int]:
    """Shared bytes and threads of the CUTLASS kernel, which it exports itself."""
    info = emulator.alloc(np.zeros(2, np.int32))
    emulator.launch(ptx, "cutlass_info", (1, 1, 1), (1, 1, 1), [info])
    shared, threads = (int(value) for value in emulator.read(info))
    return shared, threads


def tensor_seconds(name: str, size: int) -> float:
    """The best time of a tensor-core kernel: "mma f16", "cutlass 64x64 3", ..."""
    kind, what, *stages = name.split()
    emulator, times = Emulator(), []
    for _ in range(5 if size <= 256 else 2):
        if kind == "mma":
            result, exact, report = tensor_kernels.run(
                "pipeline", what, size, size, size, emulator=emulator
            )
        else:
            kernel = next(k for k in cutlass_kernels.KERNELS
                          if k.arch == 80 and k.element == "f16"
                          and f"_{what}x32_{stages[0]}" in str(k))  # fmt: skip
            result, exact, report = cutlass_kernels.run(kernel, size, size, size, emulator)
        # the sums are small enough for f16 to be exact
        assert np.array_equal(result, exact)
        times.append(report.seconds)
    return min(times)


def seconds(name: str, size: int) -> float:
    """The best time of a launch at M = N = K = size."""
    emulator, ptx = Emulator(), compile_cuda(gemm_source(name, "f32"))
    if name == "cutlass":
        shared, threads = cutlass_launch(emulator, ptx)
        grid, block = (-(-size // 64), -(-size // 64), 1), (threads, 1, 1)
    else:
        grid, block = geometry(name, size, size)
        shared = 1536 if name == "rec_tiles" else 0
    best = float("inf")
    for _ in range(5 if size <= 256 else 1):
        result, exact, report = run_gemm(
            ptx, "f32", size, size, size, grid, block, shared_bytes=shared, emulator=emulator
        )
        assert np.array_equal(result, exact)
        best = min(best, report.seconds)
    return best


def main() -> None:
    sizes = [int(argument) for argument in sys.argv[1:]] or [64, 128, 256, 512]
    print("kernel".ljust(20) + "".join(f"{f'{size}^3':>10}" for size in sizes))
    for name in NAMES + TENSOR:
        run = tensor_seconds if name in TENSOR else seconds
        row = "".join(f"{run(name, size):10.4f}" for size in sizes)
        print(name.ljust(20) + row, flush=True)


if __name__ == "__main__":
    main()
