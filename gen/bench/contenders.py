"""What is measured: a small protocol, our kernels, and the choice of the peers.

A new peer is one class, derived from `Peer`, with `name` and `prepare`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gen import nvrtc
from gen.bench.instructions import instruction_of
from gen.bench.results import OURS, PEER
from gen.errors import GenError, SpecError, UsageError, unknown
from gen.registry import launch_config
from gen.render import render
from gen.spec import DTypes, KernelSpec

if TYPE_CHECKING:
    from cuda.core import Stream

    from gen.bench.work import Work


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

    def ceiling(self, dtypes: DTypes) -> str:
        """The instruction of `gen ceiling` that it lives on; nothing where that is not known."""
        ...

    def prepare(self, work: Work) -> Prepared:
        """Compiles, allocates, tunes. Raises Unsupported where it does not do such a problem."""
        ...


class Peer:
    """What peers have in common."""

    kind = PEER
    spec = None

    def ceiling(self, dtypes: DTypes) -> str:
        """See Contender. What libraries run on tensor cores, and with what, varies."""
        return "fma_f32" if dtypes.name == "f32" else ""


class Ours:
    """A kernel of the registry, compiled for the GPU at hand."""

    kind = OURS

    def __init__(self, spec: KernelSpec) -> None:
        self.spec = spec
        self.name = spec.name

    def ceiling(self, dtypes: DTypes) -> str:
        """See Contender."""
        return instruction_of(self.spec)

    def prepare(self, work: Work) -> Prepared:
        """See Contender."""
        problem, i64 = work.problem, np.int64
        try:
            config = launch_config(self.spec, problem.shape)
        except SpecError as error:
            raise Unsupported(str(error)) from None
        if config is None:
            raise Unsupported("D is empty")
        module = nvrtc.compile_cuda(
            render(self.spec).text,
            name=f"{self.spec.name}.cu",
            arch=work.gpu.arch,
            format="cubin",
        )
        program = work.gpu.program(module, self.spec.name, *config)
        scalar = work.accumulator.type
        sizes = [i64(x) for x in (problem.shape.m, problem.shape.n, problem.shape.k)]
        lda, ldb, ldd = i64(problem.lda), i64(problem.ldb), i64(problem.ldd)
        one, zero = scalar(1), scalar(0)

        def queue(stream: Stream, a: int, b: int, d: int) -> None:
            program(stream, *sizes, one, a, lda, b, ldb, zero, d, ldd, d, ldd)

        return Prepared(queue)


ALL, NONE = "all", "none"

# Each group of peers: the modules that it needs, and what gets them.
PEERS = {
    "cublas": ("nvmath", "pip install 'gemmgen[bench]'"),
    "cutlass": ("cuda.bindings", "pip install 'cuda-python>=13,<14'"),
    "torch": ("torch", "pip install torch"),
    "triton": ("triton", "pip install torch triton"),
}


def parse_peers(text: str) -> list[str]:
    """`all`, `none`, or names separated by commas. Raises UsageError."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if names == [ALL]:
        return list(PEERS)
    if names == [NONE]:
        return []
    for name in names:
        if name in (ALL, NONE):
            raise UsageError(f"--peers {text}: {name} stands alone")
        if name not in PEERS:
            raise unknown("peer", name, [*PEERS, ALL, NONE])
    if not names:
        raise UsageError(f"--peers is empty; use {', '.join(PEERS)}, {ALL} or {NONE}")
    return list(dict.fromkeys(names))


def missing(names: Sequence[str]) -> dict[str, str]:
    """Of the groups of peers, those that cannot be measured here, and what gets them."""
    return {name: PEERS[name][1] for name in names if not _installed(PEERS[name][0])}


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:  # its parent is missing
        return False


def peers(names: Sequence[str], dtypes: DTypes) -> list[Contender]:
    """The contenders of these groups for these types, of the groups that are installed."""
    lacking = missing(names)
    found: list[Contender] = []
    for name in names:
        if name in lacking:
            continue
        if name == "cublas":
            from gen.bench import cublas

            found += cublas.contenders(dtypes)
        elif name == "cutlass":
            from gen.bench import cutlass

            found += cutlass.contenders(dtypes)
        else:
            from gen.bench import frameworks

            found += frameworks.contenders(name, dtypes)
    return found
