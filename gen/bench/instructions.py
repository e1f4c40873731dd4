"""The instructions whose rates `gen ceiling` measures, and which of them a kernel lives on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gen.source.render import render
from gen.source.templates import render_template
from gen.spec.arch import WARP, compute_capability
from gen.spec.dtypes import DTypes
from gen.spec.kernel import KernelSpec

THREADS = 256  # of a block
UNROLLED = 16  # steps of the loop

WARPGROUP = 128  # threads

# The operands of wgmma for a block: 64 rows of A for each warpgroup and 256 of B, 128 bytes each.
WGMMA_WORDS = (THREADS // WARPGROUP * 64 + 256) * 128 // 4


class Registers(NamedTuple):
    """How many registers of a thread hold the parts of A, B and C."""

    a: int
    b: int
    c: int


_NO_REGISTERS = Registers(0, 0, 0)


@dataclass(frozen=True)
class Instruction:
    """One instruction and how to repeat it.

    `operations` are those of the `group` threads that execute it together: one on CUDA cores
    (`expression`), a warp or a warpgroup on tensor cores (`ptx`); a multiply-add is two. `seeds` is
    the element type of the operands, and `words` how many words of them there are.
    """

    name: str
    operations: int
    seeds: str
    input: str
    output: str
    expression: str = ""
    ptx: str = ""
    registers: Registers = _NO_REGISTERS
    flags: str = ""
    chains: int = 8
    min_arch: int = 75
    group: int = 1
    words: int = THREADS

    def runs_on(self, arch: str) -> bool:
        """Whether an architecture has it; wgmma is Hopper's alone."""
        if self.group == WARPGROUP:
            return arch == "sm_90a"
        return compute_capability(arch) >= self.min_arch

    def source(self) -> str:
        """The microbenchmark's CUDA source."""
        return render_template(
            "bench/wgmma.cu.j2" if self.group == WARPGROUP else "bench/ceiling.cu.j2",
            name=self.symbol,
            chains=self.chains,
            unrolled=UNROLLED,
            threads=THREADS,
            words=self.words,
            input=self.input,
            output=self.output,
            expression=self.expression,
            ptx=self.ptx,
            flags=self.flags,
            registers=self.registers,
            **(self._operands() if self.ptx else {}),
        )

    @property
    def symbol(self) -> str:
        """The kernel's name."""
        return f"ceiling_{self.name}"

    def _operands(self) -> dict[str, str]:
        """The asm statement's operands: the registers of C, of A, of B, in this order.

        `sums` are those of C alone, for the template that has A and B in shared memory.
        """
        a, b, c = self.registers
        numbers = [f"%{i}" for i in range(a + b + c)]
        groups = (numbers[:c], numbers[c : c + a], numbers[c + a :], numbers[:c])
        braced = ["{" + ", ".join(group) + "}" for group in groups]
        letter = {"float": "f", "double": "d"}
        own, theirs = letter.get(self.output, "r"), letter.get(self.input, "r")
        left = [f'"{theirs}"(a[{i}])' for i in range(a)]
        right = [f'"{theirs}"(b[{i}])' for i in range(b)]
        return {
            "operands": ", ".join(braced),
            "sums": braced[0],
            "outputs": ", ".join(f'"+{own}"(c[i][{j}])' for j in range(c)),
            "inputs": ", ".join([*left, *right]),
        }


def _mma(
    m: int, n: int, k: int, element: str, sums: str, registers: Registers, min_arch: int
) -> Instruction:
    kind = "s8" if element == "i8" else element
    types = f"{sums}.{kind}.{kind}.{sums}"
    return Instruction(
        f"mma_m{m}n{n}k{k}_{element}_{sums.replace('s32', 'i32')}",
        2 * m * n * k,
        "f32" if element == "tf32" else element,
        "double" if element == "f64" else "unsigned",
        {"f32": "float", "f64": "double"}.get(sums, "unsigned"),
        ptx=f"mma.sync.aligned.m{m}n{n}k{k}.row.col.{types}",
        registers=registers,
        chains=4 if element == "f64" else 8,  # of numbers in two registers each
        min_arch=min_arch,
        group=WARP,
    )


_WGMMA_N = 256


def wgmma_name(element: str, sums: str) -> str:
    """What the widest wgmma of these types is called here; it takes 32 bytes of a row at a time."""
    return f"wgmma_m64n{_WGMMA_N}k{32 // _BYTES[element]}_{element}_{sums}"


_BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "i8": 1, "e4m3": 1, "e5m2": 1}


def _wgmma(element: str, sums: str) -> Instruction:
    m, n, k = 64, _WGMMA_N, 32 // _BYTES[element]
    kind = {"i8": "s8", "i32": "s32"}
    types = ".".join(kind.get(name, name) for name in (sums, element, element))
    # Scale A, scale B, transpose A, transpose B: as many of these as the type has.
    flags = "" if element == "i8" else ", 1, 1" + ", 0, 0" * (_BYTES[element] == 2)
    packed = 2 if sums == "f16" else 1
    return Instruction(
        wgmma_name(element, sums),
        2 * m * n * k,
        "f32" if element == "tf32" else element,
        "unsigned",
        "float" if sums == "f32" else "unsigned",
        ptx=f"wgmma.mma_async.sync.aligned.m{m}n{n}k{k}.{types}",
        flags=flags,
        registers=Registers(0, 0, n // 2 // packed),
        chains=1,
        min_arch=90,
        group=WARPGROUP,
        words=WGMMA_WORDS,
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
        _mma(16, 8, 8, "bf16", "f32", Registers(2, 1, 4), 80),
        _mma(16, 8, 16, "bf16", "f32", Registers(4, 2, 4), 80),
        _mma(16, 8, 8, "tf32", "f32", Registers(4, 2, 4), 80),
        _mma(16, 8, 32, "i8", "s32", Registers(4, 2, 4), 80),
        _mma(16, 8, 32, "e4m3", "f32", Registers(4, 2, 4), 89),
        _mma(16, 8, 32, "e5m2", "f32", Registers(4, 2, 4), 89),
        _mma(8, 8, 4, "f64", "f64", Registers(1, 1, 2), 80),
        _mma(16, 8, 4, "f64", "f64", Registers(2, 1, 4), 90),
        _mma(16, 8, 8, "f64", "f64", Registers(4, 2, 4), 90),
        _mma(16, 8, 16, "f64", "f64", Registers(8, 4, 4), 90),
        _wgmma("f16", "f32"),
        _wgmma("f16", "f16"),
        _wgmma("bf16", "f32"),
        _wgmma("tf32", "f32"),
        _wgmma("i8", "i32"),
        _wgmma("e4m3", "f32"),
        _wgmma("e5m2", "f32"),
    )
}

# What the kernels on CUDA cores issue, by the type of their sums.
_BY_ACCUMULATOR = {"f32": "fma_f32", "f64": "fma_f64", "i32": "mad_i32"}


def multiplied(dtypes: DTypes) -> tuple[str, str]:
    """The types that are multiplied and summed, as instructions have them.

    TF32 is f32 in memory: it is how it is multiplied that makes it TF32.
    """
    element = "tf32" if dtypes.name.startswith("tf32") else dtypes.input.name
    return element, dtypes.accumulator.name


def on_cuda_cores(dtypes: DTypes) -> str:
    """The ceiling of a kernel without tensor cores; nothing where there is none."""
    return _BY_ACCUMULATOR.get(dtypes.accumulator.name, "")


def on_tensor_cores(shape: str, dtypes: DTypes) -> str:
    """The ceiling of a kernel that multiplies tiles of a shape such as m16n8k16."""
    return "_".join(("mma", shape, *multiplied(dtypes)))


def multiplies(name: str, dtypes: DTypes) -> bool:
    """Whether a kernel of these types may work under a ceiling."""
    types = multiplied(dtypes)
    alone = on_cuda_cores(dtypes), "dp4a" if types == ("i8", "i32") else ""
    return name in alone or name.endswith("_".join(("", *types)))


def fastest(dtypes: DTypes, known: Mapping[str, float]) -> str:
    """Of the instructions whose rates are known, the fastest for these types."""
    fit = [name for name in known if multiplies(name, dtypes)]
    return max(fit, key=lambda name: known[name], default="")


_OPCODE = re.compile(r"\b(wgmma\.mma_async|mma)\.sync\.aligned\.(m\d+n\d+k\d+)\b")


def instruction_of(spec: KernelSpec) -> str:
    """The name of the ceiling that a kernel of ours works under, as its source says."""
    found = _OPCODE.search(render(spec).text)
    if found is None:
        return on_cuda_cores(spec.dtypes)
    if found[1] == "mma":
        return on_tensor_cores(found[2], spec.dtypes)
    dtypes = spec.dtypes
    return wgmma_name(*(multiplied(dtypes) if dtypes.parts == 1 else (dtypes.factor.name, "f32")))
