"""Which `ld.shared` instructions the assembler turns into one wider load.

ptxas joins loads of one basic block that read neighbouring elements from the same address register,
with no store or barrier in between, into loads of 8 or 16 bytes, as far as it can prove that the
address is aligned for them. It also reads ahead of branches: where the last elements of an unrolled
loop each have a branch of their own, words are loaded together before the first of them, and a load
may be as wide as needed if more than half of it is wanted. `gen.compile.sass` checks all this
against a disassembly where there is one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from gen.emulator.isa import instructions
from gen.emulator.memory.global_memory import Site, make_site
from gen.emulator.ptx.module import Instruction
from gen.emulator.ptx.operands import Address, Imm, Operand, Reg, Symbol
from gen.emulator.translate.blocks import Block

WIDEST = 16
WORD = 4
# Shared variables start at the beginning of shared memory, whatever alignment they ask for.
_VARIABLE = WIDEST
_CLOBBERS = frozenset({"st", "atom", "red", "bar", "barrier", "call", "cp", "stmatrix", "membar"})


class Request(NamedTuple):
    """A load of `size` bytes at `offset` from the address register."""

    offset: int
    size: int


class _Load(NamedTuple):
    site: Site
    element: int  # bytes
    block: int  # in its chain


# id of a PTX load -> the machine's loads that take its place (none: another one's does)
MergePlan = dict[int, list[Request]]


def merge_plan(blocks: Sequence[Block], limits: Mapping[int, int] | None = None) -> MergePlan:
    """The loads that the shared loads of a kernel become.

    `limits` has the widest load for CUDA lines of which the machine code is known.
    """
    alignment = alignments(blocks)
    plan: MergePlan = {}
    for chain in _chains(blocks):
        for base, loads in _groups(chain):
            proven = alignment.get(base, 1)
            for load in loads:  # a wide load proves something, too
                if load.site.offset % load.site.size == 0:
                    proven = max(proven, load.site.size)
            limit = (limits or {}).get(loads[0].site.item.line, WIDEST)
            written = max(load.site.size for load in loads)  # never split
            plan.update(_merge(loads, max(written, min(proven, limit))))
    return plan


def _chains(blocks: Sequence[Block]) -> Iterator[list[Block]]:
    """Blocks that are only reached past the branch at the end of the one before."""
    entries = Counter(at for block in blocks for at in set(block.successors))
    inner = {
        block.next
        for at, block in enumerate(blocks)
        if block.kind == "branch" and block.next > at and entries[block.next] == 1
    }
    for at, block in enumerate(blocks):
        if at not in inner:
            chain = [block]
            while chain[-1].kind == "branch" and chain[-1].next in inner:
                chain.append(blocks[chain[-1].next])
            yield chain


def _groups(chain: Sequence[Block]) -> Iterator[tuple[str, list[_Load]]]:
    """The shared loads of a chain by address register, cut where memory or register may change."""
    open_: dict[str, list[_Load]] = {}
    for number, block in enumerate(chain):
        for base in [base for base, loads in open_.items() if loads[0].element < WORD]:
            yield base, open_.pop(base)  # only words are read ahead
        yield from _groups_of(block, number, open_)
    yield from open_.items()


def _groups_of(
    block: Block, number: int, open_: dict[str, list[_Load]]
) -> Iterator[tuple[str, list[_Load]]]:
    """The groups that end in a block; those that go on stay in `open_`."""
    for item in block.body:
        if item.opcode in _CLOBBERS and "global" not in item.modifiers:
            yield from list(open_.items())
            open_.clear()
        loaded = _shared_load(item, number)
        if loaded:
            base, load = loaded
            if base in open_ and open_[base][0].element != load.element:
                yield base, open_.pop(base)
            open_.setdefault(base, []).append(load)
        for name in instructions.registers(item)[1] & open_.keys():
            yield name, open_.pop(name)


def _shared_load(item: Instruction, block: int) -> tuple[str, _Load] | None:
    where = item.operands[1] if len(item.operands) > 1 else None
    if item.opcode != "ld" or "shared" not in item.modifiers or item.predicate:
        return None
    if "volatile" in item.modifiers or not isinstance(where, Address):
        return None
    site = make_site(item, where.offset)
    return str(where.base), _Load(site, site.size // site.lanes, block)


def _merge(loads: Sequence[_Load], widest: int) -> MergePlan:
    """Cover the elements of a group with the widest aligned loads that read nothing else.

    Those that are read ahead may read something else, too.
    """
    ahead = len({load.block for load in loads}) > 1
    element = loads[0].element
    plan: MergePlan = {id(load.site.item): [] for load in loads}
    owners: dict[int, int] = {}  # offset -> the first instruction that reads there
    wanted: Counter[int] = Counter()
    for load in loads:
        for offset in range(load.site.offset, load.site.offset + load.site.size, element):
            owners.setdefault(offset, id(load.site.item))
            wanted[offset] += 1
    if element == 1:  # single bytes stay alone
        widest = 1
    size = WIDEST
    while size >= element:
        if size <= widest or size == element:
            for start in sorted({offset // size * size for offset in wanted}):
                parts = range(start, start + size, element)
                # The instruction that reads the first element issues the wide load.
                some = [part for part in parts if wanted[part] > 0]
                if len(some) < len(parts) and not (ahead and 2 * len(some) > len(parts)):
                    continue
                for _ in range(min(wanted[part] for part in some)):
                    plan[owners[some[0]]].append(Request(start, size))
                    wanted.subtract(some)
        size //= 2
    return plan


def load_widths(blocks: Sequence[Block], plan: MergePlan) -> dict[int, Counter[int]]:
    """For each CUDA line the widths of its shared loads, and how many of each there are."""
    found: dict[int, Counter[int]] = {}
    for block in blocks:
        for item in block.body:
            for request in plan.get(id(item), ()):
                found.setdefault(item.line, Counter())[request.size] += 1
    return found


def match_widths(
    blocks: Sequence[Block], machine: Mapping[int, Counter[int]]
) -> tuple[dict[int, int], list[int]]:
    """Limits for `merge_plan` with which it gives the widths that the machine code has.

    Only which widths there are is compared, not how many: the assembler also unrolls loops and
    copies code. Returned too are the lines where no limit gives the widths.
    """
    limits: dict[int, int] = {}
    lines = set(load_widths(blocks, merge_plan(blocks)))
    for widest in (WIDEST, 8, 4, 2, 1):
        plan = merge_plan(blocks, dict.fromkeys(lines, widest))
        widths = load_widths(blocks, plan)
        for line in lines - limits.keys():
            if widths[line].keys() == machine.get(line, Counter()).keys():
                limits[line] = widest
    return limits, sorted(lines - limits.keys())


# -- what is known of addresses at compile time ---------------------------------------------------
def alignments(blocks: Sequence[Block]) -> dict[str, int]:
    """A power of two, at most WIDEST, that divides each register in every run."""
    found: dict[str, int] = {}
    changed = True
    while changed:  # from "everything is aligned" downwards: each definition can only take away
        changed = False
        for block in blocks:
            for item in block.body:
                for name in instructions.registers(item)[1]:
                    new = min(found.get(name, WIDEST), _result(item, found))
                    changed |= found.get(name) != new
                    found[name] = new
    return found


def _result(item: Instruction, known: Mapping[str, int]) -> int:
    values = [_operand(operand, known) for operand in item.operands[1:]]
    kind = item.opcode + (".lo" if "lo" in item.modifiers else "")
    if kind in ("mov", "cvta", "cvt", "add", "sub", "or", "xor", "selp", "min", "max"):
        result = min(values[:2], default=1)
    elif kind == "and":
        result = max(values)
    elif kind in ("mul", "mul.lo"):
        result = values[0] * values[1]
    elif kind in ("mad", "mad.lo"):
        result = min(values[0] * values[1], values[2])
    elif kind == "shl" and isinstance(item.operands[2], Imm):
        result = values[0] << min(int(item.operands[2].value), WIDEST)
    else:
        result = 1
    return min(result, WIDEST)


def _operand(operand: Operand, known: Mapping[str, int]) -> int:
    if isinstance(operand, Reg):
        return known.get(operand.name, WIDEST)
    if isinstance(operand, Symbol):
        return _VARIABLE
    if isinstance(operand, Imm) and isinstance(operand.value, int):
        value = operand.value
        return min(value & -value, WIDEST) if value else WIDEST
    return 1
