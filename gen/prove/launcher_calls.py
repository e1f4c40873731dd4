"""Calls of a launcher: problems of all sizes on several GPUs, and each that is to be refused."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from gen.kernels.launches import BIAS, WORKSPACE, Plan
from gen.prove.trials import SCALARS
from gen.spec.kernel import KernelSpec
from gen.spec.problem import Alignment, GemmProblem, GemmShape

ADDRESSES = {
    "A": 0x1000_0000, "B": 0x2000_0000, "C": 0x3000_0000, "D": 0x4000_0000, BIAS: 0x5000_0000,
    WORKSPACE: 0x6000_0000,
}  # fmt: skip


@dataclass(frozen=True)
class Call:
    """A call of a launcher, and the machine that it is made on.

    skips: bytes that A, B, C and D start behind a multiple of 256. without: matrices that are null.
    own: how many devices behind the current one the stream's is. refused_launch, refused_map: the
    number, from 1, of a launch or a tensor map that the driver refuses. kind: a bundle's element
    types, layout and epilogue.
    """

    problem: GemmProblem
    skips: tuple[int, int, int, int] = (0, 0, 0, 0)
    without: str = ""
    workspace: int = ADDRESSES[WORKSPACE]
    workspace_bytes: int = 2**62
    multiprocessors: int = 132
    current: int = 0
    own: int = 0
    capturing: bool = False
    no_tma: bool = False
    refused_launch: int = 0
    refused_map: int = 0
    sizes: tuple[int, int, int] | None = None  # other ones than the problem's
    kind: tuple[int, int, int] = (0, 0, 0)

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, N and K."""
        s = self.problem.shape
        return self.sizes or (s.m, s.n, s.k)

    @property
    def has_elements(self) -> bool:
        """Whether D has."""
        return self.shape[0] != 0 and self.shape[1] != 0

    def plan(self, spec: KernelSpec) -> Plan:
        """What a kernel is to do. Raises SpecError for what no grid is large enough for."""
        a, b, _, d = (skip % 16 == 0 for skip in self.skips)
        problem = replace(self.problem, shape=GemmShape(*self.shape))
        return spec.plan(problem, Alignment(a, b, d), self.multiprocessors)

    @property
    def addresses(self) -> dict[str, int]:
        """Where the matrices start."""
        skips = dict(zip("ABCD", self.skips, strict=True))
        found = {name: at + skips.get(name, 0) for name, at in ADDRESSES.items()}
        null = dict.fromkeys(self.without.split(), 0)
        return found | {WORKSPACE: self.workspace} | null

    @property
    def line(self) -> str:
        """What the program reads."""
        p, at = self.problem, self.addresses
        numbers: list[Any] = [*self.shape, p.alpha, p.beta]
        numbers += [*(at[name] for name in "ABCD"), at[BIAS], at[WORKSPACE]]
        numbers += [p.lda, p.ldb, p.ldc, p.ldd, self.workspace_bytes, self.multiprocessors]
        numbers += [self.current, self.current + self.own, int(self.capturing), int(self.no_tma)]
        numbers += [self.refused_launch, self.refused_map, *self.kind]
        return " ".join(map(str, numbers))

    def __str__(self) -> str:
        p, s = self.problem, self.sizes
        words = [f"{'x'.join(map(str, s))}" if s else str(p.shape)]
        words += [f"alpha={p.alpha:g} beta={p.beta:g}"]
        words += [f"{name}={getattr(p, name)}" for name in ("lda", "ldb", "ldc", "ldd")]
        words += [f"{x} off by {n}" for x, n in zip("ABCD", self.skips, strict=True) if n]
        words += [f"{name} null" for name in self.without.split()]
        return ", ".join([*words, f"{self.multiprocessors} multiprocessors"])


def calls(spec: KernelSpec, count: int = 400) -> list[Call]:
    """Problems of all sizes on several GPUs, and each that is to be refused.

    First comes a driver without TMA: what it lacks is looked up again.
    """
    first = Call(GemmProblem.packed(GemmShape(100, 70, 600), spec.layouts, 2, -1), no_tma=True)
    return [first, *itertools.islice(_problems(spec), count), *_refusals(spec)]


def _problems(spec: KernelSpec) -> Iterator[Call]:
    draw = random.Random(0)
    tile, size = spec.threadblock, spec.dtypes.output.size
    most = 3 * 10**4 if spec.row.takes_workspace else 10**7
    while True:
        m, n, k = (
            draw.choice((1, side, draw.randint(1, 5) * side + draw.randint(-1, 1),
                         draw.randint(1, 5000), draw.randint(1, most)))
            for side in tile
        )  # fmt: skip
        shape = GemmShape(max(m, 1), max(n, 1), draw.choice((0, max(k, 1), max(k, 1))))
        alpha, beta = draw.choice(SCALARS)
        padding = draw.choice((0, 0, 1, 8, 16, 100))
        problem = GemmProblem.packed(shape, spec.layouts, alpha, beta, padding)
        if draw.random() < 0.3:
            problem = replace(problem, lda=problem.lda + 3, ldd=problem.ldd + 5)
        a, b, c, d = (draw.choice((0, 0, 0, 16, size, 4 * size)) for _ in range(4))
        count = draw.choice((1, 2, 7, 84, 108, 132, 148))
        device, capturing = draw.choice((0, 1)), draw.random() < 0.2
        call = Call(problem, (a, b, c, d), multiprocessors=count)
        yield replace(call, current=device, capturing=capturing)


def _refusals(spec: KernelSpec) -> Iterator[Call]:
    """What is refused, each alone, and what comes close to it."""
    p = GemmProblem.packed(GemmShape(100, 70, 600), spec.layouts, 2, -1)
    good = Call(p)
    yield from (replace(good, without=x) for x in ("A", "B", "C", "D", BIAS, WORKSPACE))
    for name in ("lda", "ldb", "ldc", "ldd"):
        for value in (getattr(p, name) - 1, 0, -1, -(2**63), 2**63 - 1, 2**45, 2**38):
            changed: dict[str, Any] = {name: value}
            yield replace(good, problem=replace(p, **changed))
    no_c = replace(p, beta=0)
    yield Call(replace(no_c, ldc=0), without="C")
    for big in (-1, -(2**63), 2**31 - 4096, 2**31 - 4095, 2**40, 2**62, 2**63 - 1):
        for at in range(3):
            sizes = [100, 70, 600]
            sizes[at] = big
            m, n, k = sizes
            yield replace(good, sizes=(m, n, k))
            if 0 < big < 2**62:  # leading dimensions that fit it
                fitting = GemmProblem.packed(GemmShape(m, n, k), spec.layouts, 2, -1)
                yield Call(fitting)
    for size in (2**20, 2**22 + 1, 2**31 - 4096, 2**40):
        yield Call(GemmProblem.packed(GemmShape(size, size, 64), spec.layouts, 2, -1))
    for m, n in ((1, 2**36), (2**36, 1), (1, 2**43), (2**43, 1)):  # of one column or row
        yield Call(GemmProblem.packed(GemmShape(m, n, 1), spec.layouts, 2, -1))
    yield from (replace(good, sizes=sizes) for sizes in ((0, 70, 600), (100, 0, 600), (0, -1, 0)))
    odd = replace(good, skips=(spec.dtypes.input.size,) * 2 + (0, 0))
    for at in (1, 16, 128, 255, 256):
        yield replace(odd, workspace=ADDRESSES[WORKSPACE] + at)
    if spec.row.takes_workspace:
        need = odd.plan(spec).workspace_bytes
        yield from (replace(odd, workspace_bytes=n) for n in (0, need - 1, need, need + 1))
    no_sum = GemmProblem.packed(GemmShape(100, 70, 0), spec.layouts, 2, -1)
    yield Call(replace(no_sum, lda=0, ldb=0), without="A B")
    yield from (replace(good, refused_map=n) for n in (1, 2, 3))
    yield replace(good, own=1)
    yield replace(good, own=1, capturing=True)
    yield replace(good, capturing=True)
    yield good
    yield from (replace(odd, refused_launch=n) for n in (1, 2, 3))
