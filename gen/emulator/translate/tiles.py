"""Register tiles: multiply-adds that are computed together, since each is too short for numpy.

The inner loop of a GEMM multiplies each value of a column by each of a row, and adds the products
to as many sums. Compilers write that as a run of multiply-adds that do not depend on each other,
with loads in between that do not depend on them. `gathered` finds these.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from gen.emulator.isa import instructions
from gen.emulator.ptx.module import Instruction
from gen.emulator.ptx.operands import Reg
from gen.emulator.ptx.values import DTYPES, register_dtype
from gen.emulator.translate.compute import rule
from gen.emulator.translate.lines import Lines

_ADDS = re.compile(r"(fma\.rn(\.ftz)?\.f(32|64)|mad\.lo\.s32)$")
_LEAST = 8  # of fewer, each alone takes as long


@dataclass(eq=False)
class Tile:
    """Multiply-adds of all pairs of a column, the first factors, and a row.

    continues: what is added to are the results of the tile before, as a whole. continued: these
    results are what the next tile adds to, and nobody else wants them.
    """

    items: list[Instruction]
    column: list[str]
    row: list[str]
    continues: bool = False
    continued: bool = False

    @property
    def targets(self) -> list[str]:
        """The registers of the results."""
        return [_names(item)[0] for item in self.items]

    @property
    def sums(self) -> list[str]:
        """The registers of what is added to."""
        return [_names(item)[3] for item in self.items]

    def lines(self, code: Lines) -> None:
        """Writes them."""
        code.item = self.items[0]
        column, row = (", ".join(map(code.local, map(Reg, x))) for x in (self.column, self.row))
        sums = "tile" if self.continues else f"({', '.join(map(code.local, map(Reg, self.sums)))})"
        function = rule(code, code.item)
        code.lines.append(f"tile = products({function}, ({column},), ({row},), {sums})")
        if not self.continued:
            code.lines.append(f"{', '.join(map(code.variable, self.targets))} = tile")
            code.known |= {*self.targets}
            code.lines.append("del tile")
        code.wide -= {*self.targets}


Step = Instruction | Tile


def registers(step: Step) -> tuple[frozenset[str], frozenset[str]]:
    """The registers that a step reads, and those it writes."""
    if isinstance(step, Instruction):
        return instructions.registers(step)
    return frozenset((*step.column, *step.row, *step.sums)), frozenset(step.targets)


def gathered(
    body: Sequence[Instruction], kinds: Mapping[str, str], live_out: set[str], but: Container[str]
) -> list[Step]:
    """The steps of a block: its instructions, where of some a tile is made behind the others.

    kinds: the types of registers. live_out: those that are needed behind the block. but: those of
    which each access counts.
    """
    steps: list[Step] = []
    waiting: list[Instruction] = []  # multiply-adds that nothing has needed so far
    reads, writes = set[str](), set[str]()  # of theirs

    def give() -> None:
        tile = _tile(waiting)
        steps.extend([tile] if tile else waiting)
        for some in (waiting, reads, writes):
            some.clear()

    for item in body:
        read, written = instructions.registers(item)
        if read & writes or written & (reads | writes):
            give()
        if _adds(item, kinds, but):
            waiting.append(item)
            reads |= read
            writes |= written
        else:
            steps.append(item)
    give()
    _link(steps, live_out)
    return steps


def _names(item: Instruction) -> list[str]:
    """The four registers of a multiply-add: result, factors, sum."""
    return [operand.name for operand in item.operands if isinstance(operand, Reg)]


def _adds(item: Instruction, kinds: Mapping[str, str], but: Container[str]) -> bool:
    """Whether a multiply-add depends on nothing but four registers of its own type."""
    if item.predicate or not _ADDS.match(item.name):
        return False
    names, own = _names(item), DTYPES[item.modifiers[-1]]
    return len(names) == len(item.operands) == 4 and all(
        name not in but and register_dtype(kinds[name]) == own for name in names
    )


def _tile(items: Sequence[Instruction]) -> Tile | None:
    """Multiply-adds as a tile, if they are one."""
    if len(items) < _LEAST or len({item.name for item in items}) > 1:
        return None
    pairs = {(a, b): item for item in items for _, a, b, _ in [_names(item)]}
    column, row = (list(dict.fromkeys(names)) for names in zip(*pairs, strict=True))
    if not len(items) == len(pairs) == len(column) * len(row):
        return None
    return Tile([pairs[x, y] for x in column for y in row], column, row)


def _link(steps: Sequence[Step], live_out: set[str]) -> None:
    """Finds the tiles that add to what another one leaves for them alone."""
    touched, following = {*live_out}, None
    for step in reversed(steps):
        if not isinstance(step, Tile):
            touched |= frozenset.union(*instructions.registers(step))
            continue
        if following and step.targets == following.sums and touched.isdisjoint(step.targets):
            following.continues = step.continued = True
        touched |= {*step.column, *step.row, *step.targets, *(following.sums if following else ())}
        following = step
