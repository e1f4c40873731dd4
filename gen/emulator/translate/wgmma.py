"""wgmma: its instructions, and those of others that touch the same registers."""

from __future__ import annotations

import numpy as np

from gen.emulator.isa import instructions
from gen.emulator.memory.global_memory import Site
from gen.emulator.ptx.module import Instruction
from gen.emulator.ptx.operands import Imm, Operand, Reg, Vector
from gen.emulator.translate.blocks import Block
from gen.emulator.translate.lines import Lines
from gen.emulator.warp.wgmma import Form, form_of


class Fragments:
    """The registers that instructions of wgmma name together, by a number for each such set."""

    def __init__(self, blocks: list[Block]) -> None:
        self.numbers: dict[str, int] = {}  # by register
        for block in blocks:
            for item in block.body:
                if item.name.startswith("wgmma.mma_async"):
                    for operand in item.operands[:2]:
                        if isinstance(operand, Vector):
                            self._join([x.name for x in operand.items if isinstance(x, Reg)])

    def _join(self, names: list[str]) -> None:
        old = {self.numbers[name] for name in names if name in self.numbers}
        number = min(old, default=len(self.numbers))
        self.numbers.update(dict.fromkeys(names, number))
        self.numbers.update({name: number for name, n in self.numbers.items() if n in old})

    def of(self, operand: Operand) -> int:
        """The number of an operand of wgmma; -1 if it is no fragment."""
        if not isinstance(operand, Vector) or not isinstance(operand.items[0], Reg):
            return -1
        return self.numbers[operand.items[0].name]

    def lines(self, code: Lines, item: Instruction, seen: set[str]) -> None:
        """What comes before an instruction that touches a fragment.

        seen: what the block has said since the last instruction of wgmma.
        """
        if not self.numbers or item.opcode == "wgmma":
            seen.clear()
            return
        reads, writes = instructions.registers(item)
        touched = {self.numbers[name] for name in reads | writes if name in self.numbers}
        if not touched:
            return
        moved = item.opcode == "mov" and len(item.operands) == 2
        source, target = (
            {self.numbers.get(name, -1) for name in names} for names in (reads, writes)
        )
        copies = item.opcode == "mov" and not any(name in self.numbers for name in reads)
        calls = [f"touch({code.constant(item)}, {number}, {copies}" for number in sorted(touched)]
        if moved and len(source) == len(target) == 1 and -1 not in source | target:
            calls = [f"move({source.pop()}, {target.pop()}"] if source != target else []
        for call in calls:
            key = call if "move" in call else call.partition(",")[2]
            if key in seen:
                continue
            mask = code.mask()
            code.call(f"E.warpgroups.{call}, {mask})", mask)
            if mask == "m":
                seen.add(key)


def translate(code: Lines, item: Instruction, fragments: Fragments) -> None:
    """An instruction of wgmma."""
    name, operands = code.constant(item), item.operands
    if item.name == "wgmma.fence.sync.aligned":
        code.lines.append(f"E.warpgroups.fence({name}, m)")
    elif item.name == "wgmma.commit_group.sync.aligned":
        code.lines.append(f"E.warpgroups.commit({name}, m)")
    elif item.name == "wgmma.wait_group.sync.aligned" and isinstance(operands[0], Imm):
        code.lines.append(f"E.warpgroups.wait({name}, {int(operands[0].value)}, m)")
    elif form := form_of(item.name):
        _multiply(code, item, form, fragments)
    else:
        raise item.error("this kind of wgmma is not supported by the emulator")


def _multiply(code: Lines, item: Instruction, form: Form, fragments: Fragments) -> None:
    """`D, A, B, scale-d {, imm-scale-a, imm-scale-b {, imm-trans-a, imm-trans-b}}`.

    A is four registers or a descriptor; registers are not transposed.
    """
    sums, left, right, scale, *rest = item.operands
    registers = isinstance(left, Vector)
    turns = (2 - registers) * (form.a in ("f16", "bf16"))
    counts = 2 * (form.d != "s32") + turns
    if not (
        isinstance(sums, Vector) and len(sums.items) == form.results and len(rest) == counts
        and isinstance(right, Reg) and all(isinstance(part, Imm) for part in rest)
        and (not isinstance(left, Vector) or len(left.items) == 4)
    ):  # fmt: skip
        raise item.error("malformed wgmma")
    numbers = [int(part.value) for part in rest if isinstance(part, Imm)]
    signs = tuple(numbers[: counts - turns]) or (1, 1)
    turned = tuple(bool(n) for n in numbers[counts - turns :])
    turned = (False,) * (2 - len(turned)) + turned
    complex128 = np.dtype("c16")
    site = Site(item, "shared", "b128", 1, 0, 16, 4, complex128, complex128)
    held = {"f16": "b32", "f32": "f32", "s32": "s32"}[form.d]
    d = code.read(sums, held)
    a = code.read(left, "b32" if registers else "b64")
    adds = (
        code.constant(np.bool_(scale.value)) if isinstance(scale, Imm) else code.read(scale, "pred")
    )
    values = f"{d}, {a}, {code.read(right, 'b64')}, {adds}"
    both = (fragments.of(sums), fragments.of(left))
    code.lines.append(
        f"several = E.warpgroups.multiply({code.constant(site)}, {code.constant(form)}, {both}, "
        f"{values}, {signs}, {turned}, m)"
    )
    for at, part in enumerate(sums.items):
        code.write(part, f"several[{at}]", held)
