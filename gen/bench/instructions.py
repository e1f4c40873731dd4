"""The instructions whose rates `gen ceiling` measures, and which of them a kernel lives on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gen.render import render_template
from gen.spec import KernelSpec

THREADS = 256  # of a block
UNROLLED = 16  # steps of the loop


class Registers(NamedTuple):
    """How many registers of a thread hold the parts of A, B and C."""

    a: int
    b: int
    c: int


_NO_REGISTERS = Registers(0, 0, 0)


@dataclass(frozen=True)
class Instruction:
    """One instruction and how to repeat it.

    `operations` are counted for a thread of CUDA cores (`expression`), or for a warp of tensor
    cores (`ptx`); a multiply-add is two. `seeds` is the element type of the operands.
    """

    name: str
    operations: int
    seeds: str
    input: str
    output: str
    expression: str = ""
    ptx: str = ""
    registers: Registers = _NO_REGISTERS
    chains: int = 8
    min_arch: int = 75

    def source(self) -> str:
        """The microbenchmark's CUDA source."""
        return render_template(
            "bench/ceiling.cu.j2",
            name=self.symbol,
            chains=self.chains,
            unrolled=UNROLLED,
            threads=THREADS,
            input=self.input,
            output=self.output,
            expression=self.expression,
            ptx=self.ptx,
            registers=self.registers,
            **(self._operands() if self.ptx else {}),
        )

    @property
    def symbol(self) -> str:
        """The kernel's name."""
        return f"ceiling_{self.name}"

    def _operands(self) -> dict[str, str]:
        """The asm statement's operands: the registers of C, of A, of B, in this order."""
        a, b, c = self.registers
        numbers = [f"%{i}" for i in range(a + b + c)]
        groups = (numbers[:c], numbers[c : c + a], numbers[c + a :], numbers[:c])
        letter = {"float": "f", "double": "d"}
        own, theirs = letter.get(self.output, "r"), letter.get(self.input, "r")
        left = [f'"{theirs}"(a[{i}])' for i in range(a)]
        right = [f'"{theirs}"(b[{i}])' for i in range(b)]
        return {
            "operands": ", ".join("{" + ", ".join(group) + "}" for group in groups),
            "outputs": ", ".join(f'"+{own}"(c[i][{j}])' for j in range(c)),
            "inputs": ", ".join([*left, *right]),
        }


def _mma(
    m: int, n: int, k: int, element: str, sums: str, registers: Registers, min_arch: int
) -> Instruction:
    kind = {"f16": "f16", "bf16": "bf16", "i8": "s8", "f64": "f64", "tf32": "tf32"}[element]
    types = f"{sums}.{kind}.{kind}.{sums}"
    return Instruction(
        f"mma_m{m}n{n}k{k}_{element}_{sums.replace('s32', 'i32')}",
        2 * m * n * k,
        "f32" if element == "tf32" else element,
        "double" if element == "f64" else "unsigned",
        {"f32": "float", "f64": "double"}.get(sums, "unsigned"),
        ptx=f"mma.sync.aligned.m{m}n{n}k{k}.row.col.{types}",
        registers=registers,
        min_arch=min_arch,
    )


INSTRUCTIONS: Mapping[str, Instruction] = {
    i.name: i
    for i in (
        Instruction("fma_f32", 2, "f32", "float", "float", "fmaf(c[i], a, b)"),
        Instruction("fma_f64", 2, "f64", "double", "double", "fma(c[i], a, b)"),
        Instruction("mad_i32", 2, "i32", "unsigned", "unsigned", "c[i] * a + b"),
        Instruction("dp4a", 8, "i8", "unsigned", "unsigned", "__dp4a(a, b, c[i])"),
        _mma(16, 8, 8, "f16", "f32", Registers(2, 1, 4), 75),
        _mma(16, 8, 8, "f16", "f16", Registers(2, 1, 2), 75),
        _mma(16, 8, 16, "f16", "f32", Registers(4, 2, 4), 80),
        _mma(16, 8, 16, "f16", "f16", Registers(4, 2, 2), 80),
        _mma(16, 8, 16, "bf16", "f32", Registers(4, 2, 4), 80),
        _mma(16, 8, 8, "tf32", "f32", Registers(4, 2, 4), 80),
        _mma(16, 8, 32, "i8", "s32", Registers(4, 2, 4), 80),
        _mma(8, 8, 4, "f64", "f64", Registers(1, 1, 2), 80),
    )
}

# What the kernels on CUDA cores issue, by the type of their sums.
BY_ACCUMULATOR = {"f32": "fma_f32", "f64": "fma_f64", "i32": "mad_i32"}


def instruction_of(spec: KernelSpec) -> str:
    """The name of the ceiling that a kernel of ours works under."""
    return BY_ACCUMULATOR[spec.dtypes.accumulator.name]
