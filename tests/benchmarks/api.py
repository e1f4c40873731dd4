"""A script: what a call from Python costs the host, beside the launch itself.

    python -m tests.benchmarks.api

On a GPU with PyTorch: gen.Kernel, gen.matmul and gen.torch beside PyTorch's functions, the driver's
launch from C (where gcc is) and from Python; while a CUDA graph is captured, too. Batches of calls
are so short that the driver's queue has room for all of them, and nobody waits within a batch.
Without a GPU, the Python alone: the driver is a stand-in that does nothing, and so are tensors.

A line has the least and the median time of a call over all batches.
"""

from __future__ import annotations

import ctypes
import itertools
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import gen
from gen.compile.nvrtc import compile_cuda
from gen.device import driver
from gen.device.context import gpu
from gen.device.driver import Parameters, why_no_gpu
from gen.kernels.launches import Pointer
from gen.kernels.registry import make_spec, retarget
from gen.source.render import render
from gen.spec.problem import GemmProblem, GemmShape

CALLS, BATCHES = 100, 100
SIDE = 64
VARIANTS = {"tiles": "float32", "mma": "float16", "mma_tma": "float16", "auto": "float16"}

_LOOP = """
typedef struct { unsigned grid[3], block[3], shared; void *stream, *attributes; unsigned count; } C;
typedef int Launch(const C*, void*, void**, void**);
int launch(Launch* ex, void* function, void** parameters, void* stream, unsigned* size, int calls) {
  C config = {{size[0], size[1], size[2]}, {size[3], size[4], size[5]}, size[6], stream, 0, 0};
  int status = 0;
  for (int i = 0; i < calls; ++i) status |= ex(&config, function, parameters, 0);
  return status;
}
"""


def measure(
    name: str, call: Callable[[], object], wait: Callable[[], object], calls: int = CALLS
) -> None:
    """Prints the times of a call, while the GPU keeps up or is behind by less than its queue.

    calls: how often it is called in a batch of CALLS launches.
    """
    call()
    samples = []
    for _ in range(BATCHES):
        wait()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        samples.append((time.perf_counter() - start) / CALLS)
    wait()
    tell(name, samples)


def tell(name: str, seconds: list[float]) -> None:
    """Prints the least and the median time."""
    print(f"{name:<40}{min(seconds) * 1e6:8.2f}{statistics.median(seconds) * 1e6:8.2f}")


def of_gen(variant: str, wait: Callable[[], object], tensors: Any) -> None:
    """Calls of gen.Kernel and gen.matmul; a, another one like it, out."""
    a, moved, out = tensors
    kernel, turns = gen.Kernel(variant), itertools.cycle((a, moved))
    calls: dict[str, Callable[[], object]] = {
        "gen.Kernel, out=": lambda: kernel(a, a, out=out),
        "gen.Kernel, out=, A in turn": lambda: kernel(next(turns), a, out=out),
        "gen.Kernel": lambda: kernel(a, a),
        "gen.matmul, out=": lambda: gen.matmul(a, a, out=out, variant=variant),
        "gen.matmul": lambda: gen.matmul(a, a, variant=variant),
    }
    for name, call in calls.items():
        measure(f"{variant}: {name}", call, wait)


def launches(a: Any, out: Any, stream: int, wait: Callable[[], object]) -> None:
    """The launch alone of a kernel `mma`, from C and from Python, with all that it takes made."""
    on = gpu(0)
    spec = make_spec("mma", dtype="f16")
    spec = retarget(spec, on.target(spec.arch))
    module = compile_cuda(render(spec).text, name="mma", arch=spec.arch, format="cubin")
    problem = GemmProblem.packed(GemmShape(SIDE, SIDE, SIDE), spec.layouts)
    (step,) = spec.plan(problem, multiprocessors=on.multiprocessors).launches
    places = {"A": a, "B": a, "C": out, "D": out}
    args = [
        places[x.buffer].data_ptr() if isinstance(x, Pointer) else x for x in step.args.values()
    ]
    with on:
        function = on.load(module, step)._function
    parameters, cuda = Parameters(args), driver.bindings()
    size = (*step.grid, *step.block, step.shared_bytes)
    if (loop := _loop()) is not None:
        ex = ctypes.cast(ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx, ctypes.c_void_p)
        handles = (ctypes.c_void_p(x) for x in (int(function), parameters.address, stream))
        given = (ex, *handles, (ctypes.c_uint * 7)(*size), CALLS)
        measure("launch from C", lambda: loop(*given), wait, 1)
    start, queue = cuda.cuLaunchKernel, cuda.CUstream(stream)
    measure(
        "launch from Python",
        lambda: start(function, *size, queue, parameters.address, 0),
        wait,
    )


def _loop() -> Any:
    """The function of _LOOP; None without gcc."""
    folder = Path(tempfile.mkdtemp())
    (folder / "loop.c").write_text(_LOOP)
    command = ("gcc", "-O2", "-shared", "-fPIC", "-o", "loop.so", "loop.c")
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return ctypes.CDLL(str(folder / "loop.so")).launch


def of_pytorch(torch: Any, a: Any, out: Any) -> None:
    """Calls of PyTorch's functions, and of gen.torch's."""
    from gen.torch import linear, matmul

    wait = torch.cuda.synchronize
    weight = torch.ones_like(a).requires_grad_()
    measure("torch.matmul, out=", lambda: torch.matmul(a, a, out=out), wait)
    measure("torch.matmul", lambda: torch.matmul(a, a), wait)
    measure("gen.torch.matmul", lambda: matmul(a, a), wait)
    for name, function in (("torch", torch.nn.functional.linear), ("gen.torch", linear)):
        with torch.no_grad():
            measure(f"{name} linear", lambda f=function: f(a, weight), wait)
        measure(f"{name} linear, with gradients", lambda f=function: f(a, weight), wait)


def measure_graph(name: str, call: Callable[[], object], wait: Callable[[], object]) -> None:
    """Prints the times of a call while a graph is captured, and of its launch in a replay."""
    import torch

    captured, replayed = [], []
    for _ in range(20):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            captured.append((time.perf_counter() - start) / CALLS)
        for _ in range(5):
            wait()
            start = time.perf_counter()
            graph.replay()
            wait()
            replayed.append((time.perf_counter() - start) / CALLS)
    tell(f"{name}, captured", captured)
    tell(f"{name}, replayed", replayed)


def on_gpu() -> None:
    """All of it on a GPU."""
    import torch

    wait = torch.cuda.synchronize
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for variant, dtype in VARIANTS.items():
            if variant == "mma_tma" and torch.cuda.get_device_capability() != (9, 0):
                continue
            a = torch.ones(SIDE, SIDE, device="cuda", dtype=getattr(torch, dtype))
            out = torch.empty_like(a)
            of_gen(variant, wait, (a, a.clone(), out))
        launches(a, out, stream.cuda_stream, wait)
        measure("a.new_empty", lambda: a.new_empty((SIDE, SIDE)), wait)
        of_pytorch(torch, a, out)
        measure_graph("torch.matmul", lambda: torch.matmul(a, a), wait)
        measure_graph("gen.matmul", lambda: gen.matmul(a, a), wait)


def without_gpu() -> None:
    """The Python alone, with stand-ins for tensors and for the driver."""
    import pytest

    from tests.support import fake_torch

    with pytest.MonkeyPatch.context() as patch:
        fake_torch.install(patch, "sm_90a", runs=False)
        patch.setattr(fake_torch.Tensor, "new_empty_strided", lambda self, *_, **__: self)
        patch.setattr(fake_torch.Tensor, "data_ptr", lambda self: self.offset)
        for variant, dtype in VARIANTS.items():
            made = [fake_torch.Tensor.of(np.ones((SIDE, SIDE), dtype)) for _ in range(3)]
            made[1].offset, made[2].offset = 1 << 20, 1 << 21
            of_gen(variant, lambda: None, made)


def main() -> None:
    """Prints the times."""
    reason = why_no_gpu()
    if reason:
        print(f"no GPU ({reason}): Python alone, nothing is launched")
    print(f"{'us a call':<40}{'least':>8}{'median':>8}")
    without_gpu() if reason else on_gpu()


if __name__ == "__main__":
    main()
