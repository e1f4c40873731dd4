"""What a PTX module consists of, as plain frozen data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gen.emulator.ptx.operands import Imm, Operand, Reg
from gen.errors import PtxError, unknown

TYPE_BYTES = {
    **{f"{kind}{bits}": bits // 8 for kind in "bsu" for bits in (8, 16, 32, 64)},
    "b128": 16,
    "f16": 2,
    "bf16": 2,
    "f16x2": 4,
    "bf16x2": 4,
    "f32": 4,
    "f64": 8,
    "pred": 1,
}


@dataclass(frozen=True)
class Instruction:
    """One PTX instruction: `@[!]predicate opcode.modifiers operands;`."""

    name: str  # "ld.global.nc.f32"
    operands: tuple[Operand, ...]
    predicate: Reg | None = None
    negated: bool = False
    line: int = 0  # line of the kernel's own CUDA file, 0 where the compiler gave none

    @cached_property
    def opcode(self) -> str:
        """The name up to the first dot: "ld"."""
        return self.name.partition(".")[0]

    @cached_property
    def modifiers(self) -> tuple[str, ...]:
        """What follows the opcode: ("global", "nc", "f32")."""
        return tuple(self.name.split(".")[1:])

    def __str__(self) -> str:
        guard = f"@{'!' * self.negated}{self.predicate} " if self.predicate else ""
        return f"{guard}{self.name} {', '.join(map(str, self.operands))}".rstrip() + ";"

    def error(self, message: str) -> PtxError:
        """An error that says where: the instruction's text and its CUDA line."""
        where = f" (CUDA line {self.line})" if self.line else ""
        return PtxError(f"{message}: '{self}'{where}")


@dataclass(frozen=True)
class Label:
    """A branch target between instructions."""

    name: str


@dataclass(frozen=True)
class Param:
    """A kernel parameter of `nbytes` bytes at byte `offset` of the parameter block."""

    name: str
    type: str
    nbytes: int
    offset: int


@dataclass(frozen=True)
class Variable:
    """A `.global`, `.const`, `.shared` or `.local` variable; dynamic shared memory has 0 bytes."""

    name: str
    space: str
    nbytes: int
    align: int
    init: bytes = b""
    refused: str = ""  # an initialiser that is not understood, refused when the variable is used

    @property
    def dynamic(self) -> bool:
        """True for `extern __shared__` arrays, whose size the launch decides."""
        return self.space == "shared" and self.nbytes == 0


@dataclass(frozen=True, eq=False)
class PtxKernel:
    """One `.entry`: its parameters, registers (name -> PTX type), variables and code."""

    name: str
    params: tuple[Param, ...]
    registers: dict[str, str]
    variables: dict[str, Variable]
    body: tuple[Instruction | Label, ...]
    max_threads: tuple[int, int, int] | None
    min_blocks: int = 0  # that a multiprocessor is to hold; 0 where it does not say
    max_registers: int = 0  # of a thread; 0 where it does not say
    cluster: tuple[int, int, int] | None = None  # blocks of a cluster; None: the launch says
    explicit_cluster: bool = False  # it must be said, here or by the launch
    max_cluster_rank: int = 0  # blocks that a cluster may have; 0 where it does not say


@dataclass(frozen=True, eq=False)
class PtxModule:
    """A parsed PTX text."""

    kernels: dict[str, PtxKernel]
    variables: dict[str, Variable]

    @property
    def comparisons(self) -> set[int]:
        """The integers in the text that kernels compare something with."""
        items = (item for kernel in self.kernels.values() for item in kernel.body)
        operands = (
            operand
            for item in items
            if isinstance(item, Instruction) and item.opcode in ("setp", "min", "max")
            for operand in item.operands
        )
        return {o.value for o in operands if isinstance(o, Imm) and isinstance(o.value, int)}

    @cached_property
    def lines(self) -> frozenset[int]:
        """The CUDA lines that instructions come from."""
        items = (item for kernel in self.kernels.values() for item in kernel.body)
        return frozenset(item.line for item in items if isinstance(item, Instruction)) - {0}

    def kernel(self, name: str) -> PtxKernel:
        """The kernel called `name`; UsageError with the nearest name if there is none."""
        if name not in self.kernels:
            raise unknown("kernel", name, self.kernels)
        return self.kernels[name]
