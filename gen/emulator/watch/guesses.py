"""Loads whose value an atomicCAS at the same place verifies, as in loops that make other atomics.

The CUDA programming guide writes `old = *address; do { assumed = old; old = atomicCAS(...); } ...`.
What such a load reads is a guess: a wrong one, from before another thread's atomic, is seen and
replaced. So it does not race with atomics, though it is a plain one; with plain stores it does.
"""

from __future__ import annotations

from collections.abc import Iterable

from gen.emulator.ptx.module import Instruction
from gen.emulator.ptx.operands import Address, Imm, Operand, Reg, Symbol
from gen.emulator.translate.blocks import Block

Place = tuple[object, int]


def guesses(blocks: Iterable[Block]) -> set[int]:
    """The `id` of each such load."""
    items = [item for block in blocks for item in block.body]
    compared = [item for item in items if item.opcode == "atom" and "cas" in item.modifiers]
    if not compared:
        return set()
    writers: dict[str, list[Instruction]] = {}
    for item in items:
        if item.operands and isinstance(item.operands[0], Reg):
            writers.setdefault(item.operands[0].name, []).append(item)
    found = set()
    for item in compared:
        place = _place(item.operands[1], writers)
        found |= {
            id(load)
            for load in _loads(item.operands[2], writers)
            if _place(load.operands[1], writers) == place
        }
    return found


def _loads(value: Operand, writers: dict[str, list[Instruction]]) -> Iterable[Instruction]:
    """The loads that a register has its value from, at once or by moves."""
    names, seen = [value.name] if isinstance(value, Reg) else [], set[str]()
    while names:
        name = names.pop()
        seen.add(name)
        for item in writers.get(name, ()):
            source = item.operands[1] if len(item.operands) > 1 else None
            if item.opcode == "ld":
                yield item
            elif item.opcode == "mov" and isinstance(source, Reg) and source.name not in seen:
                names.append(source.name)


def _place(where: Operand, writers: dict[str, list[Instruction]]) -> Place | None:
    """What an address is relative to, before moves, conversions and constants, and its offset."""
    if not isinstance(where, Address):
        return None
    base: object = where.base
    offset = where.offset
    while isinstance(base, Reg) and len(writers.get(base.name, ())) == 1:
        (item,) = writers[base.name]
        source, *more = item.operands[1:] or (None,)
        constant = more[0] if more else None
        if item.opcode == "add" and isinstance(constant, Imm):
            offset += int(constant.value)
        elif item.opcode not in ("mov", "cvta"):
            break
        if not isinstance(source, Reg | Symbol):
            break
        base = source
    if isinstance(base, Symbol):
        offset += base.offset
    return getattr(base, "name", base), offset
