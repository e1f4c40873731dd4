"""One basic block -> the lines of a Python function, a line or two for each PTX instruction."""

from __future__ import annotations

from gen.emulator.isa import instructions
from gen.emulator.translate import compute, mbarrier, memory, wgmma
from gen.emulator.translate.blocks import Block
from gen.emulator.translate.lines import Lines
from gen.emulator.translate.undefined import Undefined


def translate(
    block: Block, code: Lines, undefined: Undefined, fragments: wgmma.Fragments
) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """Writes the body; gives (slot, variable) for each register that outlives the block.

    Then the same for which lanes lack a value in those that may have none.
    """
    doomed = _last_uses(block)
    touched: set[str] = set()
    for at, item in enumerate(block.body):
        code.item = item
        undefined.lines(code, item)
        fragments.lines(code, item, touched)
        if item.opcode == "wgmma":
            wgmma.translate(code, item, fragments)
        elif not instructions.NO_EFFECT.match(item.name):
            one = mbarrier.translator(item) or memory.translator(item) or compute.translator(item)
            one(code, item)
        undefined.results(code, item)
        gone = doomed.get(at, set())
        dead = sorted(code.variable(name) for name in gone & code.known)
        dead += sorted(code.wide_variable(name) for name in gone & code.wide)
        if dead:
            code.lines.append(f"del {', '.join(dead)}")
    if block.end:
        undefined.lines(code, block.end)
    if block.kind == "branch" and block.end and block.end.predicate:
        code.item = block.end
        condition = code.local(block.end.predicate)
        code.lines.append(f"return {'~' * block.end.negated}{condition}")
    needed = block.live_out | (
        instructions.registers(block.end)[0] if block.end and block.kind == "barrier" else set()
    )
    kept = block.writes & needed
    return [(code.slots[n], code.variable(n)) for n in sorted(kept)], undefined.outputs(kept)


def _last_uses(block: Block) -> dict[int, set[str]]:
    """Registers that no later instruction needs: freeing them early keeps caches warm."""
    last: dict[str, int] = {}
    for at, item in enumerate(block.body):
        reads, writes = instructions.registers(item)
        last.update(dict.fromkeys(reads | writes, at))
    kept = block.live_out | (instructions.registers(block.end)[0] if block.end else set())
    if block.end and block.end.predicate:
        kept = kept | {block.end.predicate.name}
    doomed: dict[int, set[str]] = {}
    for name, at in last.items():
        if name not in kept:
            doomed.setdefault(at, set()).add(name)
    return doomed
