"""Basic blocks, the order in which diverged lanes meet again, and register liveness."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from gen.emulator.isa import instructions
from gen.emulator.isa.classes import is_barrier
from gen.emulator.ptx.module import Instruction, Label, PtxKernel
from gen.emulator.ptx.operands import Symbol

EXITS = ("ret", "exit")
_SYNC = re.compile(r"((bar|barrier)(\.cta)?\.sync|barrier\.cluster\.wait(\.acquire)?)(\.aligned)?$")
_ARRIVE = re.compile(r"(bar|barrier)(\.cta)?\.arrive(\.aligned)?$")
_VOTE = re.compile(
    r"(bar|barrier)(?:\.cta)?\.red\.(popc|and|or)(?:\.aligned)?\.(?:u32|pred)(?:\.aligned)?$"
)
_LOAD = re.compile(r"ld\.(?!param|const|local)")
_LOOK = re.compile(
    r"atom\.|ld\.(?!param|const|local)(.*\.)?(volatile|relaxed|acquire|mmio|c[vg])\."
)
_FENCE = re.compile(r"(membar|fence\.(sc|acq_rel))\.")


@dataclass(eq=False)
class Block:
    """Straight-line code and how it ends.

    `kind` is "goto", "branch" (to `taken` where `end`'s predicate holds, else `next`), "barrier"
    (then `next`) or "exit"; `next` and `taken` index the list that `build_blocks` returns.
    `gate`: the first instruction needs all live lanes of so many warps together. `poll`: it looks
    at an mbarrier. `looks`: it heads a loop in which lanes may wait for memory to change, and these
    instructions look there. `endless`: it is a loop that does nothing. `detour`: a block that may
    run next has a `poll` or `looks`, or is endless.
    """

    body: list[Instruction] = field(default_factory=list)
    kind: str = "goto"
    end: Instruction | None = None
    next: int = -1
    taken: int = -1
    gate: int = 0
    poll: bool = False
    looks: tuple[Instruction, ...] = ()
    endless: bool = False
    detour: bool = False
    reads: set[str] = field(default_factory=set)  # registers read before written here
    writes: set[str] = field(default_factory=set)
    live_in: set[str] = field(default_factory=set)
    live_out: set[str] = field(default_factory=set)

    @property
    def instructions(self) -> list[Instruction]:
        """All of them, with the one that ends the block."""
        return [*self.body, self.end] if self.end else self.body

    @cached_property
    def length(self) -> int:
        """Instructions in the block, to which none are added any more."""
        return len(self.body) + (self.end is not None)

    @property
    def successors(self) -> list[int]:
        """Indices of the blocks that may run next."""
        if self.kind == "exit":
            return []
        return [self.taken, self.next] if self.kind == "branch" else [self.next]


def build_blocks(kernel: PtxKernel) -> list[Block]:
    """The reachable basic blocks of a kernel, the entry first, in reconvergence order.

    In that order every loop is contiguous and everything behind a branch follows it. Always running
    the first block that has waiting lanes therefore makes lanes meet at the earliest common point,
    wherever the compiler placed the blocks.
    """
    blocks = _split(_unguard(kernel.body))
    order = _reconvergence_order(blocks)
    place = {old: new for new, old in enumerate(order)}
    ordered = [blocks[old] for old in order]
    for block in ordered:
        block.next, block.taken = place.get(block.next, -1), place.get(block.taken, -1)
    _find_spins(ordered)
    for at, block in enumerate(ordered):
        block.endless = block.kind == "goto" and block.next == at and not block.body
    for block in ordered:
        after = [ordered[at] for at in block.successors]
        block.detour = any(block.poll or block.looks or block.endless for block in after)
    _liveness(ordered)
    return ordered


def loops(blocks: Sequence[Block]) -> dict[int, int]:
    """The last block of each loop, by its head: in reconvergence order a loop is contiguous."""
    found: dict[int, int] = {}
    for at, block in enumerate(blocks):
        for head in block.successors:
            if head <= at:
                found[head] = max(at, found.get(head, 0))
    return found


def _find_spins(blocks: list[Block]) -> None:
    """Mark the loops in which lanes may wait for what other threads do to memory.

    Their loads are volatile, ordered or atomic, or past a fence: the compiler moves others out of
    the loop. In reconvergence order a loop is contiguous, its head first.
    """
    for head, last in loops(blocks).items():
        items = [item for block in blocks[head : last + 1] for item in block.body]
        fence = any(_FENCE.match(item.name) for item in items)
        looks = [i for i in items if _LOOK.match(i.name) or (fence and _LOAD.match(i.name))]
        blocks[head].looks = tuple(looks)


def _needs_branch(item: Instruction) -> bool:
    return (
        item.opcode in (*EXITS, "trap", "brkpt", "call")
        or is_barrier(item)
        or instructions.warps_together(item) > 0
        or instructions.polls(item)
    )


def _unguard(body: Iterable[Instruction | Label]) -> list[Instruction | Label]:
    """Turn predicated barriers, exits and warp instructions into a branch around them."""
    code: list[Instruction | Label] = []
    for item in body:
        if isinstance(item, Label) or item.predicate is None or not _needs_branch(item):
            code += [item] if isinstance(item, Label) else _take_apart(item)
            continue
        skip = f"skip#{len(code)}"
        branch = replace(item, name="bra", operands=(Symbol(skip),), negated=not item.negated)
        code += [branch, *_take_apart(replace(item, predicate=None, negated=False)), Label(skip)]
    return code


def _take_apart(item: Instruction) -> list[Instruction]:
    """bar.red as a vote before a barrier and its result behind it; traps also end the thread."""
    if item.opcode in ("trap", "brkpt") or instructions.is_assertion(item):
        return [item, replace(item, name="exit", operands=())]
    match = _VOTE.match(item.name)
    if match is None:
        return [item]
    target, *where, choice = item.operands
    kind = "popc.u32" if match[2] == "popc" else f"{match[2]}.pred"
    return [
        replace(item, name="barvote", operands=(choice,)),
        replace(item, name=f"{match[1]}.sync", operands=tuple(where)),
        replace(item, name=f"barresult.{kind}", operands=(target,)),
    ]


def _split(code: list[Instruction | Label]) -> list[Block]:
    blocks, labels = [Block()], {}
    current, targets = blocks[0], []

    def fresh() -> Block:
        blocks.append(Block())
        return blocks[-1]

    for item in code:
        if isinstance(item, Label):
            if current.body or current is blocks[0]:
                current.next = len(blocks)
                current = fresh()
            labels[item.name] = len(blocks) - 1
            continue
        gate = instructions.warps_together(item)
        if instructions.polls(item) or gate > current.gate:
            if current.body:
                current.next = len(blocks)
                current = fresh()
            current.poll, current.gate = instructions.polls(item), gate
        if item.opcode == "bra":
            targets.append((current, item))
        elif is_barrier(item) and not _ARRIVE.match(item.name):
            if not _SYNC.match(item.name):
                raise item.error("this kind of barrier is not supported by the emulator")
        elif item.opcode not in EXITS:
            current.body.append(item)
            continue
        current.end, current.next = item, len(blocks)
        current.kind = {"bra": "branch", "ret": "exit", "exit": "exit"}.get(item.opcode, "barrier")
        current = fresh()
    current.kind = "exit"
    for block, item in targets:
        label = str(item.operands[0])
        if label not in labels:
            raise item.error("branch to a label that does not exist; the PTX is damaged")
        block.taken = labels[label]
        if item.predicate is None:
            block.kind, block.next = "goto", block.taken
    return blocks


def _reconvergence_order(blocks: list[Block]) -> list[int]:
    edges = {i: list(dict.fromkeys(b.successors)) for i, b in enumerate(blocks)}
    return _order_region([0], {0: edges[0], **edges})


def _order_region(entries: list[int], edges: dict[int, list[int]]) -> list[int]:
    order: list[int] = []
    for component in _components(entries, edges):
        if len(component) == 1:
            order += component
            continue
        members = set(component)
        outside = {t for n, ts in edges.items() if n not in members for t in ts}
        header = next((n for n in component if n in outside or n in entries), component[0])
        inner = {n: [t for t in edges[n] if t in members and t != header] for n in component}
        order += _order_region([header], inner)
    return order


def _components(entries: list[int], edges: dict[int, list[int]]) -> list[list[int]]:
    """Strongly connected components reachable from `entries`, in topological order (Tarjan)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    found: list[list[int]] = []
    for entry in entries:
        if entry in index:
            continue
        work = [(entry, iter(edges[entry]))]
        index[entry] = low[entry] = len(index)
        stack.append(entry)
        while work:
            node, targets = work[-1]
            target = next(targets, None)
            if target is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    at = stack.index(node)
                    found.append(stack[at:])
                    del stack[at:]
            elif target not in index:
                index[target] = low[target] = len(index)
                stack.append(target)
                work.append((target, iter(edges[target])))
            elif target in stack:
                low[node] = min(low[node], index[target])
    return found[::-1]


def _liveness(blocks: list[Block]) -> None:
    for block in blocks:
        for item in [*block.body, *([block.end] if block.end else [])]:
            reads, writes = instructions.registers(item)
            block.reads |= reads - block.writes
            block.writes |= writes
    live_in = [set(block.reads) for block in blocks]
    changed = True
    while changed:
        changed = False
        for at in range(len(blocks) - 1, -1, -1):
            block = blocks[at]
            block.live_out = set().union(*(live_in[s] for s in block.successors))
            new = block.reads | (block.live_out - block.writes)
            if new != live_in[at]:
                live_in[at], changed = new, True
    for block, live in zip(blocks, live_in, strict=True):
        block.live_in = live
