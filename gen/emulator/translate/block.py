"""One basic block -> the lines of a Python function, a line or two for each PTX instruction."""

from __future__ import annotations

from collections.abc import Sequence

from gen.emulator.isa import instructions
from gen.emulator.ptx.module import Instruction
from gen.emulator.translate import compute, mbarrier, memory, wgmma
from gen.emulator.translate.blocks import Block
from gen.emulator.translate.lines import Lines
from gen.emulator.translate.tiles import Step, Tile, gathered, registers
from gen.emulator.translate.undefined import Undefined


def translate(
    block: Block, code: Lines, undefined: Undefined, fragments: wgmma.Fragments
) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """Writes the body; gives (slot, variable) for each register that outlives the block.

    Then the same for which lanes lack a value in those that may have none.
    """
    behind = block.live_out | (instructions.registers(block.end)[0] if block.end else set())
    steps = gathered(block.body, code.kinds, behind, undefined.registers | {*fragments.numbers})
    doomed = _last_uses(steps, behind)
    touched: set[str] = set()
    for at, item in enumerate(steps):
        if isinstance(item, Tile):
            item.lines(code)
        else:
            _instruction(code, item, undefined, fragments, touched)
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
    kept = block.writes & (behind if block.kind == "barrier" else block.live_out)
    return [(code.slots[n], code.variable(n)) for n in sorted(kept)], undefined.outputs(kept)


def _instruction(
    code: Lines,
    item: Instruction,
    undefined: Undefined,
    fragments: wgmma.Fragments,
    touched: set[str],
) -> None:
    """Writes a single one. touched: see `Fragments.lines`."""
    code.item = item
    undefined.lines(code, item)
    fragments.lines(code, item, touched)
    if item.opcode == "wgmma":
        wgmma.translate(code, item, fragments)
    elif not instructions.NO_EFFECT.match(item.name):
        one = mbarrier.translator(item) or memory.translator(item) or compute.translator(item)
        one(code, item)
    undefined.results(code, item)


def _last_uses(steps: Sequence[Step], behind: set[str]) -> dict[int, set[str]]:
    """Registers that no later step needs: freeing them early keeps caches warm."""
    last: dict[str, int] = {}
    for at, step in enumerate(steps):
        reads, writes = registers(step)
        last.update(dict.fromkeys(reads | writes, at))
    doomed: dict[int, set[str]] = {}
    for name, at in last.items():
        if name not in behind:
            doomed.setdefault(at, set()).add(name)
    return doomed
