"""`gen verify` as work for one process or many: an item is a kernel and a shape."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from gen.compile import nvrtc
from gen.device.choose import choose_runner
from gen.device.driver import works
from gen.device.gpu import GpuRunner
from gen.device.runner import Runner
from gen.prove import verify
from gen.prove.cutlass import compiled
from gen.prove.limits import emulated_cost
from gen.prove.trials import MOST_PRODUCTS
from gen.source.render import render
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmShape
from gen.spread.job import Cost, Job


class Proof(NamedTuple):
    """A kernel on a shape."""

    spec: KernelSpec
    shape: GemmShape


class _Reference(NamedTuple):
    """What CUTLASS's kernel depends on."""

    dtype: str
    layout: str
    arch: str


class Proofs(Job[Proof, verify.ShapeResult]):
    """Proves kernels on a device: auto, gpu or cpu. Raises what `verify.verify` does."""

    _runner: Runner

    def __init__(self, device: str) -> None:
        self.device = device

    def start(self) -> None:
        """See Job."""
        self._runner = choose_runner(self.device)

    def needs(self, item: Proof) -> list[KernelSpec | _Reference]:
        """See Job."""
        spec = item.spec
        return [spec, _Reference(spec.dtypes.name, str(spec.layouts), spec.arch)]

    def compile(self, need: KernelSpec | _Reference) -> None:
        """See Job."""
        arch, format = self._runner.target(need.arch), self._runner.format
        if isinstance(need, KernelSpec):
            _compiled(need, arch, format)
        else:
            compiled(need.dtype, need.layout, arch, format)

    def cost(self, item: Proof) -> Cost:
        """See Job; of the emulator, which alone has several processes."""
        return emulated_cost((item.shape, MOST_PRODUCTS if item.spec.several else 1))

    def __call__(self, item: Proof) -> verify.ShapeResult:
        """See Job."""
        spec, runner = item.spec, self._runner
        module = _module(spec, runner.target(spec.arch), runner.format)
        return verify.verify_shape(spec, runner, module, item.shape)

    def title(self, item: Proof) -> str:
        """See Job."""
        return f"verifying {item.spec.variant} {item.spec.dtypes.name}"

    def spoilt(self) -> bool:
        """See Job."""
        return isinstance(self._runner, GpuRunner) and not works()


def _compiled(spec: KernelSpec, arch: str, format: str) -> nvrtc.Module:
    return nvrtc.compile_cuda(render(spec).text, name=f"{spec.name}.cu", arch=arch, format=format)


_module = lru_cache(maxsize=1)(_compiled)  # shapes of a kernel follow each other
