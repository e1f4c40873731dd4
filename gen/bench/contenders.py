"""What is measured: a small protocol, our kernels, and the choice of the peers.

A new peer is one class, derived from `Peer`, with `name` and `prepare`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from gen.bench.instructions import fastest, instruction_of, multiplied
from gen.bench.results import OURS, PEER
from gen.bench.sizes import as_groups
from gen.compile import nvrtc
from gen.device import tensor_map
from gen.device.driver import Parameters
from gen.errors import CompileError, GenError, SpecError
from gen.kernels.launches import BIAS, OFFSETS, WORKSPACE, Launch, Pointer, resolve
from gen.source.render import render
from gen.spec import numerics
from gen.spec.dtypes import DTypes
from gen.spec.kernel import KernelSpec

if TYPE_CHECKING:
    from cuda.core import Stream

    from gen.bench.work import Outline, Work


# Tensor cores add products of FP8 with fewer bits than f32 has. Libraries move their sums to other
# registers from time to time, unless they are told to be fast.
FAST = "fast accumulation"


def accumulations(dtypes: DTypes) -> tuple[bool, ...]:
    """Whether to be fast, for each of the ways in which libraries sum these types."""
    return (False, True) if dtypes.input.is_fp8 else (False,)


class Unsupported(GenError):
    """A contender does not do a problem; its row says why."""


@dataclass(frozen=True)
class Prepared:
    """A contender that is ready for one problem.

    `queue(stream, a, b, d)` puts one launch of D = A * B into a stream, with the addresses of one
    of the work's sets of operands; it allocates nothing, so that it can be captured into a graph.
    `collect(d)` brings what it has left elsewhere into D. `launches`: of kernels. `close` gives
    back what `prepare` took. `keep` is what has to live as long.
    """

    queue: Callable[[Stream, int, int, int], None]
    workspace: int = 0
    close: Callable[[], None] = lambda: None
    note: str = ""
    keep: Any = None
    launches: int = 1
    collect: Callable[[int], None] = lambda _: None


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

    @property
    def only_groups(self) -> bool:
        """Whether it multiplies nothing but groups of rows."""
        ...

    def ceiling(self, dtypes: DTypes, known: Mapping[str, float]) -> str:
        """The instruction that its throughput is a share of; nothing where that is not known.

        `known` are the rates that `gen ceiling` has measured, by instruction.
        """
        ...

    def recipes(self, outline: Outline) -> Sequence[Recipe]:
        """What `prepare` compiles for a problem. Raises Unsupported."""
        ...

    def prepare(self, work: Work) -> Prepared:
        """Compiles, allocates, tunes. Raises Unsupported where it does not do such a problem."""
        ...


class Peer:
    """What peers have in common."""

    kind = PEER
    spec = None
    only_groups = False

    def ceiling(self, dtypes: DTypes, known: Mapping[str, float]) -> str:
        """See Contender. A library chooses its instruction: it may take the fastest."""
        return fastest(dtypes, known)

    def recipes(self, outline: Outline) -> Sequence[Recipe]:
        """See Contender."""
        return ()


class Lacking(Peer):
    """Stands for a library that has nothing for some element types; its rows say so."""

    def __init__(self, name: str, dtypes: DTypes) -> None:
        self.name = name
        element, sums = multiplied(dtypes)
        self._reason = f"has no product of {element} with sums in {sums}"

    def prepare(self, work: Work) -> Prepared:
        """See Contender."""
        raise Unsupported(f"{self.name} {self._reason}")


def check_single(outline: Outline) -> None:
    """Raises Unsupported for a batch, where a peer multiplies one product at a time."""
    if outline.products > 1:
        raise Unsupported("is measured on one product at a time, and this is a batch")


def check_even(outline: Outline) -> None:
    """Raises Unsupported for groups."""
    if outline.grouped:
        raise Unsupported("multiplies products of one size, and these are groups of rows")


TMA_ALIGNMENT = 16  # bytes


def check_tma(outline: Outline) -> None:
    """Raises Unsupported where TMA, which a peer uses, cannot copy the operands or D."""
    p, dtypes = outline.problem, outline.dtypes
    inputs, outputs = TMA_ALIGNMENT // dtypes.input.size, TMA_ALIGNMENT // dtypes.output.size
    if p.lda % inputs or p.ldb % inputs or p.ldd % outputs:
        raise Unsupported(f"TMA takes rows that are multiples of {TMA_ALIGNMENT} bytes apart")


class NotInstalled(Unsupported):
    """A contender is not on this machine."""


class Absent(Peer):
    """Stands for peers that are not installed, so that what was asked for is never left out."""

    def __init__(self, name: str, get: str) -> None:
        self.name = name
        self._get = get

    def prepare(self, work: Work) -> Prepared:
        """See Contender."""
        raise NotInstalled(f"it is not installed; {self._get}")


def compile_all(
    recipes: Collection[Recipe], say: Callable[[int], object] = lambda _: None
) -> dict[Recipe, str]:
    """Compiles as many at once as there are cores; `say` is told how many are done.

    Why each recipe cannot be compiled, or nothing; `prepare` says so again, in its row.
    """

    def compile_one(recipe: Recipe) -> str:
        try:
            recipe()
        except (Unsupported, CompileError) as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        jobs = {recipe: pool.submit(compile_one, recipe) for recipe in recipes}
        try:
            for done, job in enumerate(as_completed(jobs.values()), 1):
                job.result()
                say(done)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return {recipe: job.result() for recipe, job in jobs.items()}


@cache
def _module(text: str, name: str, arch: str) -> nvrtc.Module:
    return nvrtc.compile_cuda(text, name=name, arch=arch, format="cubin")


class Ours:
    """A kernel of the registry, compiled for the GPU at hand."""

    kind = OURS
    only_groups = False

    def __init__(self, spec: KernelSpec) -> None:
        self.spec = spec
        self.name = spec.name

    def ceiling(self, dtypes: DTypes, known: Mapping[str, float]) -> str:
        """See Contender."""
        return instruction_of(self.spec)

    @cached_property
    def _text(self) -> str:
        return render(self.spec).text

    def recipes(self, outline: Outline) -> Sequence[Recipe]:
        """See Contender."""
        if self.spec.epilogue not in ("linear", "linear_bias"):
            raise Unsupported(f"computes {self.spec.epilogue}, which is not compared with others")
        return (Recipe(_module, (self._text, f"{self.name}.cu", outline.arch)),)

    def prepare(self, work: Work) -> Prepared:
        """See Contender."""
        spec, gpu, (recipe,) = self.spec, work.gpu, self.recipes(work)
        if work.grouped and (spec.grouped_k or not spec.grouped):
            raise Unsupported("takes no groups of rows; use --grouped")
        equal = spec.grouped and not work.grouped
        problem = as_groups(work.problem, spec.grouped_k) if equal else work.problem
        if 0 in (work.shape.m, work.shape.n):
            raise Unsupported("D is empty")
        module = recipe()
        try:
            steps = spec.plan(problem, multiprocessors=gpu.room(spec, module))
        except SpecError as error:
            raise Unsupported(str(error)) from None
        kernels = [gpu.load(module, step) for step in steps.launches]
        output = numerics.storage_dtype(spec.dtypes.output.name)
        bias = np.zeros(work.shape.n if spec.has_bias else 0, output)
        ends = np.array(problem.ends or problem.ends_k or (), np.int32)
        sizes = steps.workspace_bytes, bias.nbytes, ends.nbytes
        memory = [gpu.allocate(size) for size in sizes]
        workspace, zeros, offsets = (int(each.handle) for each in memory)
        gpu.write(zeros, bias)
        if spec.grouped:
            gpu.write(offsets, ends)

        @cache  # encoding a tensor map takes longer than a launch; there are few sets of operands
        def parameters(a: int, b: int, d: int) -> list[Parameters]:
            places = {"A": a, "B": b, "C": d, "D": d, WORKSPACE: workspace, BIAS: zeros}
            places[OFFSETS] = offsets
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
