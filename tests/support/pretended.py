"""An H200 that is pretended in host memory, and kernels that compute with numpy: to tune."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gen.bench import device
from gen.bench.contenders import Prepared
from gen.bench.work import Work
from gen.device.gpus import GPUS
from gen.dispatch.ranking import Product, rank
from gen.spec.dtypes import parse_dtype
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmShape, parse_layout
from gen.tune import search
from tests.bench.test_bench import FakeGpu

Times = Callable[[KernelSpec, float], float]


class Gpu(FakeGpu):
    """An H200, whose kernels take what `times` makes of the model's microseconds."""

    multiprocessors, name, uuid = 132, "NVIDIA H200", "GPU-0"
    times: Times
    spoil: Callable[[KernelSpec, np.ndarray], None]
    launched: Callable[[str], None]

    def driver_version(self) -> str:
        return "580.95.05"


class Timed:
    """A kernel that computes with numpy, where its result is looked at."""

    kind = "ours"

    def __init__(self, spec: KernelSpec) -> None:
        self.spec, self.name = spec, spec.name
        model = {each.spec: each.time for each in rank(product(), GPUS["h200"], "sm_90a")}
        self.ms = gpu().times(spec, model.get(spec, 9e6) / 1e6) / 1e3

    def ceiling(self, *_: object) -> str:
        return ""

    def recipes(self, _: object) -> tuple[()]:
        return ()

    def prepare(self, work: Work) -> Prepared:
        gpu().launched(self.name)
        left = 2  # launches of the check

        def queue(_: object, a: int, b: int, d: int) -> None:
            nonlocal left
            gpu().now += self.ms
            gpu().launches.append(self.name)
            if left:
                left -= 1
                for i in range(work.products):
                    result = right(work, i)
                    gpu().spoil(self.spec, result)
                    at = d + i * result.nbytes
                    gpu().write(at, np.ascontiguousarray(result))

        return Prepared(queue)


def right(work: Work, product: int) -> np.ndarray:
    """The right D of one of the products, row-major."""
    a, b = work.matrices(product)
    return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)


_GPUS: list[Gpu] = []


def gpu() -> Gpu:
    return _GPUS[-1]


def product() -> Product:
    return Product.packed(GemmShape(16, 16, 16), parse_dtype("f32"), parse_layout("rrr"))


def as_modelled(_: KernelSpec, us: float) -> float:
    return us


def pretend() -> Gpu:
    """Makes one the only GPU."""
    found = Gpu()
    found.times, found.spoil, found.launched = as_modelled, lambda *_: None, lambda _: None
    _GPUS[:] = [found]
    return found


def in_this_process() -> None:
    """As a process has it that works for others: what tests replace is replaced for good."""
    from gen.spread import place

    there = place.Place(Gpu.name, Gpu.arch, Gpu.driver_version(Gpu.__new__(Gpu)))
    place.place_of = lambda _: (there, "")  # type: ignore[assignment]
    device.MeasuredGpu = pretend  # type: ignore[assignment,misc]
    search.Ours = Timed  # type: ignore[assignment,misc]
    search.Tuning.compile = lambda *_: None  # type: ignore[method-assign,assignment]
    search.cpu_count = lambda: 16
    search.works = lambda: True  # type: ignore[assignment]
