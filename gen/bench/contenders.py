"""What is measured: a small protocol, our kernels, and the choice of the peers.

A new peer is one class, derived from `Peer`, with `name` and `prepare`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from gen.bench.instructions import fastest, instruction_of, multiplied
from gen.bench.results import OURS, PEER
from gen.compile import nvrtc
from gen.device import tensor_map
from gen.device.driver import Parameters
from gen.errors import CompileError, GenError, SpecError
from gen.kernels.launches import BIAS, WORKSPACE, Launch, Pointer, resolve
from gen.source.render import render
from gen.spec import numerics
from gen.spec.dtypes import DTypes
from gen.spec.kernel import KernelSpec

if TYPE_CHECKING:
    from cuda.core import Stream

    from gen.bench.work import Outline, Work


class Unsupported(GenError):
    """A contender does not do a problem; its row says why."""


@dataclass(frozen=True)
class Prepared:
    """A contender that is ready for one problem.

    `queue(stream, a, b, d)` puts one launch of D = A * B into a stream, with the addresses of one
    of the work's sets of operands; it allocates nothing, so that it can be captured into a graph.
    `close` gives back what `prepare` took. `keep` is what has to live as long.
    """

    queue: Callable[[Stream, int, int, int], None]
    workspace: int = 0
    close: Callable[[], None] = lambda: None
    note: str = ""
    keep: Any = None


class Recipe(NamedTuple):
    """What takes seconds to compile, so that many are compiled at once; equal ones once.

    `build` keeps what it has built.
    """

    build: Callable[..., Any]
    args: tuple[Hashable, ...]

    def __call__(self) -> Any:
        """Compiles it, or finds it. Raises Unsupported, CompileError."""
        return self.build(*self.args)


def launcher(work: Work, queue: Callable[[Stream, int, int, int], None]) -> Callable[[int], None]:
    """Queues a launch on the i-th set of operands."""
    return lambda i: queue(work.gpu.stream, *work.pointers(i))


class Contender(Protocol):
    """One way to compute a GEMM."""

    @property
    def name(self) -> str:
        """What results call it; the same in every run."""
        ...

    @property
    def kind(self) -> str:
        """`results.OURS` or `results.PEER`."""
        ...

    @property
    def spec(self) -> KernelSpec | None:
        """Of a kernel of ours."""
        ...

    def ceiling(self, dtypes: DTypes, known: Mapping[str, float]) -> str:
        """The instruction that its throughput is a share of; nothing where that is not known.

        `known` are the rates that `gen ceiling` has measured, by instruction.
        """
        ...

    def recipe(self, outline: Outline) -> Recipe | None:
        """What `prepare` compiles for a problem, if anything. Raises Unsupported."""
        ...

    def prepare(self, work: Work) -> Prepared:
        """Compiles, allocates, tunes. Raises Unsupported where it does not do such a problem."""
        ...


class Peer:
    """What peers have in common."""

    kind = PEER
    spec = None

    def ceiling(self, dtypes: DTypes, known: Mapping[str, float]) -> str:
        """See Contender. A library chooses its instruction: it may take the fastest."""
        return fastest(dtypes, known)

    def recipe(self, outline: Outline) -> Recipe | None:
        """See Contender."""
        return None


class Lacking(Peer):
    """Stands for a library that has nothing for some element types; its rows say so."""

    def __init__(self, name: str, dtypes: DTypes) -> None:
        self.name = name
        element, sums = multiplied(dtypes)
        self._reason = f"has no product of {element} with sums in {sums}"

    def prepare(self, work: Work) -> Prepared:
        """See Contender."""
        raise Unsupported(f"{self.name} {self._reason}")


def compile_all(recipes: Collection[Recipe], say: Callable[[int], object] = lambda _: None) -> None:
    """Compiles as many at once as there are cores; `say` is told how many are done."""

    def compile_one(recipe: Recipe) -> None:
        with suppress(Unsupported, CompileError):  # `prepare` says so again, in its row
            recipe()

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        jobs = [pool.submit(compile_one, recipe) for recipe in recipes]
        try:
            for done, job in enumerate(as_completed(jobs), 1):
                job.result()
                say(done)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


@cache
def _module(text: str, name: str, arch: str) -> nvrtc.Module:
    return nvrtc.compile_cuda(text, name=name, arch=arch, format="cubin")


class Ours:
    """A kernel of the registry, compiled for the GPU at hand."""

    kind = OURS

    def __init__(self, spec: KernelSpec) -> None:
        self.spec = spec
        self.name = spec.name

    def ceiling(self, dtypes: DTypes, known: Mapping[str, float]) -> str:
        """See Contender."""
        return instruction_of(self.spec)

    @cached_property
    def _text(self) -> str:
        return render(self.spec).text

    def recipe(self, outline: Outline) -> Recipe:
        """See Contender."""
        if self.spec.epilogue not in ("linear", "linear_bias"):
            raise Unsupported(f"computes {self.spec.epilogue}, which is not compared with others")
        return Recipe(_module, (self._text, f"{self.name}.cu", outline.gpu.arch))

    def prepare(self, work: Work) -> Prepared:
        """See Contender."""
        spec, gpu, recipe = self.spec, work.gpu, self.recipe(work)
        try:
            steps = spec.plan(work.problem, multiprocessors=gpu.multiprocessors)
        except SpecError as error:
            raise Unsupported(str(error)) from None
        if 0 in (work.shape.m, work.shape.n):
            raise Unsupported("D is empty")
        module = recipe()
        kernels = [gpu.load(module, step) for step in steps.launches]
        output = numerics.storage_dtype(spec.dtypes.output.name)
        bias = np.zeros(work.shape.n if spec.has_bias else 0, output)
        memory = gpu.allocate(steps.workspace_bytes), gpu.allocate(bias.nbytes)
        workspace, zeros = (int(each.handle) for each in memory)
        gpu.write(zeros, bias)

        @cache  # encoding a tensor map takes longer than a launch; there are few sets of operands
        def parameters(a: int, b: int, d: int) -> list[Parameters]:
            places = {"A": a, "B": b, "C": d, "D": d, WORKSPACE: workspace, BIAS: zeros}
            return [_parameters(step, places) for step in steps.launches]

        def queue(stream: Stream, a: int, b: int, d: int) -> None:
            for kernel, given in zip(kernels, parameters(a, b, d), strict=True):
                kernel(stream, given)

        def close() -> None:
            for each in memory:
                gpu.free(each)

        return Prepared(queue, steps.workspace_bytes, close)


def _parameters(step: Launch, places: Mapping[str, int]) -> Parameters:
    """What a launch takes, with addresses in place of buffers' names."""

    def address(at: Pointer) -> int:
        return places[at.buffer] + at.offset

    return Parameters(
        resolve(step.args, address, lambda m: tensor_map.encode(m, address(m.source)))
    )
