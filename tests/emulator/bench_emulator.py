"""Seconds for one launch of the textbook kernels and of CUTLASS, f32, memcheck on.

Run it as `python tests/emulator/bench_emulator.py [size ...]`. Parsing and compiling are not
counted; the best of up to five launches is.
"""

from __future__ import annotations

import sys

import numpy as np
from emulator_kernels import compile_cuda, gemm_source, geometry, run_gemm

from gen.emulator import Emulator

NAMES = ["naive", "tiles", "rec_tiles", "thread_1d", "block_1d", "shared_row", "cutlass"]


def cutlass_launch(emulator: Emulator, ptx: str) -> tuple[int, int]:
    """Shared bytes and threads of the CUTLASS kernel, which it exports itself."""
    info = emulator.alloc(np.zeros(2, np.int32))
    emulator.launch(ptx, "cutlass_info", (1, 1, 1), (1, 1, 1), [info])
    shared, threads = (int(value) for value in emulator.read(info))
    return shared, threads


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
    print("kernel".ljust(12) + "".join(f"{f'{size}^3':>10}" for size in sizes))
    for name in NAMES:
        row = "".join(f"{seconds(name, size):10.4f}" for size in sizes)
        print(name.ljust(12) + row, flush=True)


if __name__ == "__main__":
    main()
