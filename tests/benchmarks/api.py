"""A script: what a call of gen.matmul and gen.Kernel costs, beside the launch itself.

On a GPU with PyTorch, against cuda.core's launch of the same kernel with the same arguments; of
mma_tma, whose tensor maps cuda.core does not take, against the driver's. Without a GPU, the Python
alone: the driver is a stand-in that does nothing, and so are tensors where PyTorch is missing.
"""

import itertools
import statistics
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import gen
from gen.api import frameworks, kernel, problem
from gen.api.gpu import Launcher
from gen.compile.nvrtc import compile_cuda
from gen.device import driver
from gen.device.context import gpu
from gen.device.driver import shared_memory_attributes, why_no_gpu
from gen.device.execute import arguments
from gen.kernels.launches import Launch
from gen.kernels.registry import make_spec, retarget
from gen.source.render import render
from gen.spec.problem import GemmProblem, GemmShape
from tests.support import fake_torch

CALLS, ROUNDS = 200, 101
SIDE = 64
DTYPES = {"naive": "float32", "tiles": "float32", "mma": "float16", "mma_tma": "float16"}


# With a GPU, waiting for it counts; without one, other programs do not.
clock = time.thread_time if why_no_gpu() else time.perf_counter


def microseconds(call: Callable[[], object], wait: Callable[[], object]) -> float:
    """The median time of a call, while the GPU keeps up or is ahead."""
    samples = []
    for _ in range(ROUNDS):
        wait()
        start = clock()
        for _ in range(CALLS):
            call()
        samples.append((clock() - start) / CALLS * 1e6)
    return statistics.median(samples)


def raw_launch(variant: str, a: Any, out: Any, stream: int) -> Callable[[], object]:
    """cuda.core's launch of the same kernel, with all of its arguments made beforehand."""
    from cuda.core import LaunchConfig, ObjectCode, Stream, launch

    on = gpu(0)
    spec = make_spec(variant, dtype=_dtype(variant))
    spec = retarget(spec, on.target(spec.arch))
    module = compile_cuda(render(spec).text, arch=spec.arch, format="cubin")
    problem = GemmProblem.packed(GemmShape(SIDE, SIDE, SIDE), spec.layouts)
    (step,) = spec.plan(problem, multiprocessors=on.multiprocessors).launches
    if variant == "mma_tma":
        plan = spec.plan(problem, multiprocessors=on.multiprocessors)
        launcher = Launcher(on, module, plan, spec.dtypes)
        launcher(stream, (a.data_ptr(), a.data_ptr(), out.data_ptr(), out.data_ptr(), 0, 0), 1, 0)
        ((_, queue, parameters),) = launcher._steps
        return lambda: queue(stream, parameters, 0)
    places = {name: _Place(x.data_ptr()) for name, x in zip("ABCD", (a, a, out, out), strict=True)}
    args = arguments(step.args, places, None)  # type: ignore[arg-type]
    config = LaunchConfig(grid=step.grid, block=step.block, shmem_size=step.shared_bytes)
    kernel = ObjectCode.from_cubin(module.code).get_kernel(step.kernel)
    allow_shared(kernel, step)
    queue = Stream.from_handle(stream)
    return lambda: launch(queue, config, kernel, *args)


def allow_shared(kernel: Any, step: Launch) -> None:
    """Lets a kernel have more dynamic shared memory than the usual 48 KiB."""
    cuda = driver.bindings()

    for name, value in shared_memory_attributes(step).items():
        attribute = getattr(cuda.CUfunction_attribute, name)
        driver.call("cuKernelSetAttribute", attribute, value, kernel.handle, cuda.CUdevice(0))


class _Place:
    def __init__(self, address: int) -> None:
        self.address = address


def _dtype(variant: str) -> str:
    return {"float32": "f32", "float16": "f16"}[DTYPES[variant]]


def report(
    variant: str, a: Any, moved: Any, out: Any, wait: Callable[[], object], raw: float
) -> None:
    """Prints the medians of one variant; `moved` is as `a`, elsewhere."""
    kernel = gen.Kernel(variant)
    turns = itertools.cycle((a, moved))
    calls: dict[str, Callable[[], object]] = {
        "gen.Kernel, out=": lambda: kernel(a, a, out=out),
        "gen.Kernel, A in turn": lambda: kernel(next(turns), a, out=out),
        "gen.Kernel, new": lambda: kernel(a, a),
        "gen.matmul, out=": lambda: gen.matmul(a, a, out=out, variant=variant),
        "gen.matmul, new": lambda: gen.matmul(a, a, variant=variant),
    }
    print(f"{variant}: launch alone {raw:.2f} us")
    for name, call in calls.items():
        call()
        took = microseconds(call, wait)
        print(f"  {name:<21}{took:6.2f} us, {took - raw:+.2f} us")


def report_matmul(torch: Any, a: Any, out: Any) -> None:
    """Prints the medians of whole calls of gen.matmul, untold, and of torch.matmul, in turns."""
    calls: dict[str, Callable[[], object]] = {
        "gen, out=": lambda: gen.matmul(a, a, out=out),
        "torch, out=": lambda: torch.matmul(a, a, out=out),
        "gen, new": lambda: gen.matmul(a, a),
        "torch, new": lambda: torch.matmul(a, a),
    }
    took = ", ".join(f"{n} {microseconds(f, torch.cuda.synchronize):.2f}" for n, f in calls.items())
    print(f"  whole calls of matmul, us: {took}")


def report_linear(torch: Any) -> None:
    """Prints the medians of gen.torch.linear and PyTorch's, and of each in a CUDA graph."""
    from gen.torch import linear

    x = torch.ones(SIDE, SIDE, device="cuda", dtype=torch.float16)
    weight = torch.ones_like(x).requires_grad_()
    for name, function in (("PyTorch", torch.nn.functional.linear), ("gen.torch", linear)):
        took = microseconds(lambda f=function: f(x, weight), torch.cuda.synchronize)
        with torch.no_grad():
            plain = microseconds(lambda f=function: f(x, weight), torch.cuda.synchronize)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                function(x, weight)
            replayed = microseconds(graph.replay, torch.cuda.synchronize)
        print(
            f"linear of {name}: {plain:.2f} us, with gradients {took:.2f} us, "
            f"replayed {replayed:.2f} us"
        )


def main() -> None:
    """Prints the medians."""
    if why_no_gpu() is None:
        import torch

        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for variant, dtype in DTYPES.items():
                if variant == "mma_tma" and torch.cuda.get_device_capability() != (9, 0):
                    continue
                a = torch.ones(SIDE, SIDE, device="cuda", dtype=getattr(torch, dtype))
                out = torch.empty_like(a)
                raw = raw_launch(variant, a, out, stream.cuda_stream)
                raw()
                launch = microseconds(raw, torch.cuda.synchronize)
                report(variant, a, a.clone(), out, torch.cuda.synchronize, launch)
                new = microseconds(lambda a=a: a.new_empty((SIDE, SIDE)), torch.cuda.synchronize)
                print(f"  of that, a.new_empty {new:.2f} us")
                report_matmul(torch, a, out)
            report_linear(torch)
        return
    print(f"no GPU ({why_no_gpu()}): Python alone, nothing is launched")
    torch = import_module("torch") if find_spec("torch") else None
    with pytest.MonkeyPatch.context() as patch:
        fake_torch.install(patch, "sm_90a", runs=False)
        if torch:
            for module in (kernel, problem, frameworks.torch):
                patch.setattr(module, "HOST", None)  # so that memory of the host passes for a GPU's
        else:
            patch.setattr(fake_torch.Tensor, "new_empty", lambda self, *_, **__: self)
            patch.setattr(fake_torch.Tensor, "data_ptr", lambda self: self.offset)
        for variant, dtype in DTYPES.items():
            if torch:
                made = [torch.ones(SIDE, SIDE, dtype=getattr(torch, dtype)) for _ in range(3)]
            else:
                made = [fake_torch.Tensor.of(np.ones((SIDE, SIDE), dtype)) for _ in range(3)]
                made[1].offset, made[2].offset = 1 << 20, 1 << 21
            report(variant, *made, wait=lambda: None, raw=0.0)


if __name__ == "__main__":
    main()
