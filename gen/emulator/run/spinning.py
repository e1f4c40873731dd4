"""Lanes that look at memory again and again, until others have changed it: they take turns.

A loop that may wait has loads that the compiler must repeat (`Block.looks`). Lanes that come around
to its head while nothing has changed let all others of the chunk run first. A round is over when
every lane has come around, waits at a barrier or has exited. A round that leaves all as it was
means that the chunk waits for other blocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from gen.emulator.isa.ops import Value
from gen.emulator.memory.chances import TRIES
from gen.emulator.memory.global_memory import Site
from gen.emulator.ptx.module import Instruction
from gen.emulator.run.context import Context
from gen.emulator.warp.masks import Bits, Mask, Waiting, lanes_of, narrow

PATIENCE = 64  # times that lanes may come around a loop before others run, whatever they change
IDLE = 16  # rounds without a change of global memory before other chunks run

ROUND = 1 << 16  # ticks that a round takes, where lanes look at a clock

Position = tuple[str, int, Mask]  # of lanes that wait: where, at which block, and which
# Changes of memory, ticks of the clock, where lanes are, and the registers that they will read.
State = tuple[int, int, list[Position], dict[int, Value]]


class Spinning:
    """The lanes of one chunk that wait for their turn."""

    def __init__(self, chunk: Context) -> None:
        self.chunk = chunk
        self.waiting = Waiting()
        self.stuck = False  # whether only other blocks can help
        self.seen = -1  # changes of global memory when the chunk stopped
        self._came: dict[int, int] = {}  # changes of memory when lanes last came around, by block
        self._patience = PATIENCE
        self._before: State | None = None
        self._idle = 0

    def turns_away(self, block: int) -> bool:
        """Whether lanes that come to the head of a loop let others run first."""
        changes = self._changes()
        same = self._came.get(block) == changes
        self._came[block] = changes
        self._patience -= 1
        return same or self._patience < 0

    def another_round(self, registers: list[Value], others: Iterable[Position]) -> bool:
        """Every lane has had its turn: whether those that spin are to look again now.

        others: the lanes that wait for something else.
        """
        self._patience = PATIENCE
        positions = [*(("", at, mask) for at, mask in self.waiting.items()), *others]
        blocks = self.chunk.launch.program.blocks
        slots = self.chunk.launch.program.slots
        names = set().union(*(blocks[at].live_in for at, _ in self.waiting.items()))
        values = {slots[name]: registers[slots[name]] for name in names if name in slots}
        ticks = self.chunk.ticks
        now = (self._changes(), ticks, positions, values)
        self.stuck = self._before is not None and _same(self._before, now)
        if self._before is not None and self._before[1] < ticks:  # lanes that look at a clock
            self.chunk.ticks += ROUND
        self._before = (now[0], self.chunk.ticks, positions, values)
        memory = self.chunk.memory.changes or 0
        self._idle = self._idle + 1 if memory == self.seen else 0
        self.seen = memory
        most = TRIES if self.chunk.launch.chances.late else IDLE
        return not self.stuck and self._idle < most

    def resume(self) -> None:
        """Other chunks have run: the lanes look again."""
        self.stuck, self._idle, self._before = False, 0, None

    def _changes(self) -> int:
        chunk = self.chunk
        counts = (chunk.memory.changes, chunk.shared.changes, chunk.local_changes)
        return sum(count or 0 for count in counts)

    # -- deadlocks -----------------------------------------------------------------------------
    def report(self, why: str) -> Bits:
        """Findings for lanes that spin for ever; the blocks that have such lanes."""
        hung = np.zeros((1,) * 6, np.bool_)
        for at, mask in self.waiting.items():
            hung = hung | (mask.per_block(self.chunk.shape) > 0)
            items = self.chunk.launch.program.blocks[at].looks
            looks = [(s, *look) for s, look in self.chunk.looks.items() if s.item in items]
            for site, address, lanes in looks:
                here = narrow(mask, np.True_ if lanes is None else lanes.bits)
                if here is not None and here.bits.any():
                    self._report(site.item, here, why, site, address)
            if not looks:
                self._report(items[0], mask, why)
        return hung

    def _report(
        self, item: Instruction, mask: Mask, why: str, site: Site | None = None, address: Any = 0
    ) -> None:
        chunk = self.chunk
        block, threads, count = lanes_of(mask.bits, None, chunk.shape, chunk.origin)
        blocks = int((mask.per_block(chunk.shape) > 0).sum())
        where, what = "", "memory"
        if site is not None:
            x, y, z = threads[0]
            bx, by, bz = (at - first for at, first in zip(block, chunk.origin, strict=True))
            lane = bz, z, by, y, bx, x
            spot = int(np.broadcast_to(address, chunk.shape)[lane]) + site.offset
            if site.space == "shared" or spot >> 56 == 1:
                own, window = (
                    np.broadcast_to(chunk.clusters.own, chunk.shape)[lane],
                    spot >> 56 << 56,
                )
                spot = window + int(chunk.clusters.near(np.int64(spot - window), own))
            where = chunk.describe(site, spot)
            what = f"the {site.size} bytes at {where}"
        who = f"{count} thread{'s' * (count > 1)}"
        who += f" of {blocks} blocks" if blocks > 1 else ""
        message = f"deadlock: {who} wait{'s' * (count == 1)} for {what} to change, {why}"
        chunk.launch.findings.add("synccheck", item, message, block, threads, where)


def _same(before: State, now: State) -> bool:
    """Whether a round has changed nothing."""
    (*times, positions, values), (*later, places, read) = before, now
    if times != later or len(positions) != len(places) or values.keys() != read.keys():
        return False
    pairs = zip(positions, places, strict=True)
    if any(a[:2] != b[:2] or not _equal(a[2].bits, b[2].bits) for a, b in pairs):
        return False
    return all(_equal(value, read[slot]) for slot, value in values.items())


def _equal(a: Value, b: Value) -> bool:
    """Whether two registers hold the same bits."""
    if a is b:
        return True
    if a.dtype.kind == "f":
        a, b = (x.view(np.dtype(f"i{x.dtype.itemsize}")) for x in (a, b))
    return bool(np.all(a == b))
