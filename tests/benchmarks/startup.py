"""A script: how long `gen emit` takes from start to end, and NVRTC for each kernel."""

import statistics
import subprocess
import sys
import time

from gen.compile.nvrtc import compile_cuda
from gen.kernels.registry import VARIANTS, make_spec
from gen.source.render import render


def emit_seconds() -> float:
    """One whole process."""
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "gen", "emit", "--variant", "rec_tiles", "-o", "-"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - start


def main() -> None:
    """Prints the medians."""
    median = statistics.median(emit_seconds() for _ in range(10))
    print(f"gen emit --variant rec_tiles -o -  {median:.3f} s (median of 10 processes)")
    for format in ("ptx", "cubin"):
        print(f"NVRTC to {format}, median of 5 without the cache:")
        for variant in VARIANTS:
            source = render(make_spec(variant))
            compile_cuda(source.text, format=format, cache=False)  # load the library first
            times = [
                compile_cuda(source.text, format=format, cache=False).seconds for _ in range(5)
            ]
            print(f"  {variant:<12}{statistics.median(times):.3f} s")


if __name__ == "__main__":
    main()
