"""PTX that leaves something implicit, spelled out: the condition code, and indexed branches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from gen.emulator.ptx.module import Instruction
from gen.emulator.ptx.operands import Imm, Operand, Pair, Reg, Symbol

_CARRIES = re.compile(r"(add|sub|mad)(c\.|\.cc|\.(lo|hi)\.cc)")
_CONDITION, _CASE = Reg("%condition"), Reg("%case")  # names that no PTX declares


def with_condition(
    name: str, operands: tuple[Operand, ...], registers: dict[str, str]
) -> tuple[Operand, ...]:
    """The carry of `add.cc` and the like as a predicate: a second result, a last source or both."""
    if not _CARRIES.match(name) or not operands or not isinstance(operands[0], Reg):
        return operands
    registers.setdefault(_CONDITION.name, "pred")
    first = Pair(operands[0], _CONDITION) if ".cc" in name else operands[0]
    last = (_CONDITION,) if name.partition(".")[0][-1] == "c" else ()
    return (first, *operands[1:], *last)


def indexed_branch(
    item: Instruction, tables: dict[str, Sequence[str]], registers: dict[str, str]
) -> list[Instruction]:
    """brx.idx as a comparison and a branch for each of its targets."""
    targets = tables.get(str(item.operands[-1]))
    if not item.name.startswith("brx.idx") or not targets or item.predicate:
        raise item.error("this kind of branch is not supported by the emulator")
    registers.setdefault(_CASE.name, "pred")
    code = []
    for at, target in enumerate(targets[:-1]):
        operands = (_CASE, item.operands[0], Imm(at, str(at)))
        code.append(replace(item, name="setp.eq.u32", operands=operands))
        code.append(replace(item, name="bra", operands=(Symbol(target),), predicate=_CASE))
    return [*code, replace(item, name="bra", operands=(Symbol(targets[-1]),))]
