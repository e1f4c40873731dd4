"""A call of a launcher, and where it is made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from gen.kernels.launches import BIAS, OFFSETS, WORKSPACE, Plan
from gen.spec.epilogue import MATRIX
from gen.spec.kernel import KernelSpec
from gen.spec.problem import ONE, Alignment, GemmProblem, GemmShape

ADDRESSES = {
    "A": 0x1000_0000, "B": 0x2000_0000, "C": 0x3000_0000, "D": 0x4000_0000, BIAS: 0x5000_0000,
    WORKSPACE: 0x6000_0000, OFFSETS: 0x6800_0000,
}  # fmt: skip
_OWN_AT = 0x7000_0000  # arrays of the user's own epilogue
_NUMBER = {"f32": 2**20 + 1, "f64": 2**40 + 1, "i32": 2**24 + 1}  # its own, which are whole


@dataclass(frozen=True)
class Call:
    """A call of a launcher, and the machine that it is made on.

    skips: bytes that A, B, C and D start behind a multiple of 256. without: matrices that are null.
    own: how many devices behind the current one the stream's is. refused_launch, refused_map: the
    number, from 1, of a launch or a tensor map that the driver refuses; refused_call: that of any
    other call that may fail. no_bytes: whether the workspace's size has nowhere to go. in_place: C
    is D. one_matrix: B is A. null_stream: it is given that. launch_error: what a refused launch
    returns. kind: a bundle's element types, layout and epilogue. fused: the parameters of the
    user's own epilogue, in order; the problem has those that are no arrays. capability,
    shared_bytes: of the device, as 80, and what a block may have there; 0 where nobody is to ask.
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
    refused_call: int = 0
    no_bytes: bool = False
    in_place: bool = False
    one_matrix: bool = False
    null_stream: bool = False
    launch_error: int = 701
    sizes: tuple[int, int, int] | None = None  # other ones than the problem's
    kind: tuple[int, int, int] = (0, 0, 0)
    fused: tuple[str, ...] = ()
    capability: int = 0
    shared_bytes: int = 0

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, N and K."""
        s = self.problem.shape
        return self.sizes or (s.m, s.n, s.k)

    @property
    def has_elements(self) -> bool:
        """Whether D has."""
        return 0 not in (*self.shape[:2], self.problem.batch.products)

    def plan(self, spec: KernelSpec, of_operands: bool = False) -> Plan:
        """What a kernel is to do. Raises SpecError for what no grid is large enough for.

        of_operands: whether nothing is known of C and D but their sizes.
        """
        a, b, _, d = (skip % 16 == 0 for skip in self.skips)
        problem = replace(self.problem, shape=GemmShape(*self.shape))
        if of_operands:
            batch = problem.batch._replace(stride_c=0, stride_d=2**62)
            problem = replace(problem, ldc=0, ldd=0, batch=batch)
        return spec.plan(problem, Alignment(a, b, d), self.multiprocessors)

    @property
    def addresses(self) -> dict[str, int]:
        """Where the matrices start."""
        skips = dict(zip("ABCD", self.skips, strict=True))
        found = {name: at + skips.get(name, 0) for name, at in ADDRESSES.items()}
        if self.in_place:
            found["C"] = found["D"]
        if self.one_matrix:
            found["B"] = found["A"]
        numbers = dict(self.problem.operands)
        arrays = (name for name in self.fused if name not in numbers)
        found |= {name: _OWN_AT + i * 0x0100_0000 for i, name in enumerate(arrays)}
        null = dict.fromkeys(self.without.split(), 0)
        return found | {WORKSPACE: self.workspace} | null

    @property
    def line(self) -> str:
        """What the program reads."""
        p, at = self.problem, self.addresses
        numbers: list[Any] = [*self.shape, p.alpha, p.beta]
        numbers += [*(at[name] for name in "ABCD"), at[BIAS], at[WORKSPACE]]
        numbers += [p.lda, p.ldb, p.ldc, p.ldd, self.workspace_bytes, *p.batch]
        numbers += [self.multiprocessors, self.current, self.current + self.own]
        numbers += [int(self.capturing), int(self.no_tma)]
        numbers += [self.refused_launch, self.refused_map, self.refused_call, int(self.no_bytes)]
        numbers += [*self.kind, int(self.null_stream), self.launch_error]
        numbers += [self.capability, self.shared_bytes]
        own = {**at, **{name: int(value) for name, value in p.operands}}
        numbers += [at[OFFSETS], len(self.fused), *(own[name] for name in self.fused)]
        return " ".join(map(str, numbers))

    def __str__(self) -> str:
        p, s = self.problem, self.sizes
        words = [f"{'x'.join(map(str, s))}" if s else str(p.shape)]
        words += [f"alpha={p.alpha:g} beta={p.beta:g}"]
        words += [f"{name}={getattr(p, name)}" for name in ("lda", "ldb", "ldc", "ldd")]
        if p.batch != ONE:
            words += [f"{name}={value}" for name, value in p.batch._asdict().items()]
        words += [f"{name}={value:g}" for name, value in p.operands]
        words += [f"{x} off by {n}" for x, n in zip("ABCD", self.skips, strict=True) if n]
        words += [f"{name} null" for name in self.without.split()] + ["C is D"] * self.in_place
        words += ["B is A"] * self.one_matrix + ["the null stream"] * self.null_stream
        return ", ".join([*words, f"{self.multiprocessors} multiprocessors"])


def with_own(spec: KernelSpec, call: Call) -> Call:
    """The same with values of the user's own operands; each matrix's lines are apart otherwise."""
    ldd = call.problem.ldd
    values: list[tuple[str, float]] = []
    for i, operand in enumerate(spec.operands):
        if operand.index == MATRIX:
            values.append((operand.ld, min(ldd + (ldd > 0) * i, 2**63 - 1)))
        elif not operand.index:
            values.append((operand.name, _NUMBER[spec.dtypes.scalar.name] + i))
    names = tuple(
        name
        for operand in spec.operands
        for name in (operand.name, operand.ld)[: 1 + (operand.index == MATRIX)]
    )
    return replace(call, problem=replace(call.problem, operands=tuple(values)), fused=names)
