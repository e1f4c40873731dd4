"""synccheck of mbarriers: no thread may miss the phase that it waits for.

A wait knows a phase by its parity, or by a state that holds no more. If the next phase is complete,
too, before a thread looks, the one that it waits for seems not to have ended: the thread waits on,
and mostly for ever. So something has to order the return of every wait before the end of the next
phase, as an arrival for that phase does. Clocks tell, whatever order threads have run in.

It is a matter of which instruction runs before which, not of what memory shows. Hence these clocks
are also told of arrivals and waits that are relaxed, of copies that count when they are issued,
and of instructions that a whole warp, or warpgroup, executes together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gen.emulator.isa.classes import WARPGROUP
from gen.emulator.isa.instructions import polls
from gen.emulator.memory.bulk_moves import Move
from gen.emulator.memory.global_memory import Site
from gen.emulator.memory.observer import ObservedChunk
from gen.emulator.translate.program import Program
from gen.emulator.warp.clusters import OFFSET, RANK_SHIFT
from gen.emulator.warp.masks import NOBODY, Bits, Mask
from gen.emulator.watch.findings import noun
from gen.emulator.watch.granules import PER_WARP, thread_of
from gen.emulator.watch.ordering import Ordering
from gen.emulator.watch.vector_clocks import Clocks, Lanes, Times


@dataclass
class _Waits:
    """Of one mbarrier, since its latest phase began: when the wait of each thread returned."""

    times: Times  # (rows, threads), 0 for none
    site: Site  # of the latest


class MissedPhases(Ordering):
    """Finds waits whose phase some order of threads lets them miss."""

    clocks: Clocks

    def concerns(self, program: Program) -> bool:
        """See Observer."""
        return any(polls(item) for block in program.blocks for item in block.body)

    def begin(self, chunk: ObservedChunk) -> None:
        """See Observer."""
        super().begin(chunk)
        self.clocks = Clocks(chunk.threads, False, self.clusters.size)
        self.waits: dict[int, _Waits] = {}
        # Threads that have waited since their warp, or warpgroup, was together.
        nobody = np.zeros(len(self.clocks.agents.lanes), np.bool_)
        self.alone: dict[int, Any] = {1: nobody, WARPGROUP: nobody}

    def widen(self) -> None:
        """See SharedWatch."""
        for waits in self.waits.values():
            waits.times = np.repeat(waits.times, self.blocks, axis=0)
        super().widen()

    # -- which instruction runs before which ---------------------------------------------------
    def block(self, chunk: ObservedChunk, at: int, mask: Mask | None) -> None:
        """See Observer. Lanes come to an instruction of a whole warp or warpgroup together."""
        gate = chunk.launch.program.blocks[at].gate
        if not gate or not self.alone[gate].any():
            return
        lanes = self._lanes(mask)
        some = np.asarray(lanes.any(axis=0))
        if not (self.alone[gate] & some).any():
            return
        self.alone[gate] = self.alone[gate] & ~some
        warp = self.clocks.agents.lanes // 32
        each = self.clocks.warps // self.clusters.size  # of a block
        group = warp // each * each + warp % each // gate
        for one in np.unique(group[some]) if gate > 1 else ():
            self.clocks.meet(lanes & (group == one))
        if gate == 1:
            self.clocks.meet(lanes, by_warp=True)

    def arrive(self, chunk: ObservedChunk, offset: int, mask: Mask | None, done: Bits) -> None:
        """See Observer. `count` has been told."""

    def observe(self, chunk: ObservedChunk, offset: int, mask: Mask | None, wide: bool) -> None:
        """See Observer. `passed` has been told."""

    def cluster_arrive(
        self, chunk: ObservedChunk, mask: Mask | None, releases: Mask | None, done: Bits
    ) -> None:
        """See Observer."""
        super().cluster_arrive(chunk, mask, mask, done)

    def bulk(self, chunk: ObservedChunk, move: Move) -> None:
        """See Observer."""
        for offset in np.unique(move.barriers[move.barriers >= 0]):
            self._copies(chunk, move.some(move.barriers == offset), np.zeros((1,) * 6, np.bool_))

    def land_bulk(self, chunk: ObservedChunk, move: Move, done: Bits | None) -> None:
        """See Observer."""
        if done is not None and np.any(done):
            self._copies(chunk, move, done)

    def _copies(self, chunk: ObservedChunk, move: Move, done: Bits) -> None:
        ranks = self.clusters.ranks[move.homes]
        for rank in np.unique(ranks).tolist():
            key = rank << RANK_SHIFT | int(move.barriers[0])
            # What their lanes have done since they were issued does not come before.
            lanes = NOBODY if done.any() else move.some(ranks == rank).mask()
            self._join(chunk, move.site, key, rank, lanes, done)

    # -- phases --------------------------------------------------------------------------------
    def passed(self, chunk: ObservedChunk, site: Site, offset: int, mask: Mask | None) -> None:
        """See Observer."""
        for key, _, some in self._objects(offset, mask):
            lanes = self._lanes(some)
            self.clocks.observe(key, lanes)
            times = np.where(lanes, np.int32(self.clocks.now), 0)
            before = self.waits.get(key)
            self.waits[key] = _Waits(np.maximum(before.times, times) if before else times, site)
            for gate, others in self.alone.items():
                self.alone[gate] = others | lanes.any(axis=0)

    def count(
        self, chunk: ObservedChunk, site: Site, offset: int, mask: Mask | None, done: Bits
    ) -> None:
        """See Observer."""
        for key, rank, some in self._objects(offset, mask):
            self._join(chunk, site, key, rank, some, done)

    def _join(
        self, chunk: ObservedChunk, site: Site, key: int, rank: int, mask: Mask | None, done: Bits
    ) -> None:
        """What lanes have done comes before the end of a phase, which is there if it is `done`."""
        rows = self._rows(done, rank)
        lanes = self._lanes(None if mask is NOBODY else mask) & (mask is not NOBODY)
        rows = np.broadcast_to(rows, (self.rows,)) if len(rows) == 1 else rows
        self.clocks.arrive(key, lanes, rows)
        waits = self.waits.get(key)
        if waits is None or not rows.any():
            return
        known = self.clocks.objects[key].arrived[:, self.clocks.agents.of]
        missed = rows[:, None] & (waits.times > 0) & (known <= waits.times)
        if missed.any():
            self._report(chunk, waits.site, site, key, missed)
        waits.times = np.where(rows[:, None], 0, waits.times)

    def _report(
        self, chunk: ObservedChunk, wait: Site, last: Site, key: int, missed: Lanes
    ) -> None:
        row, thread = (int(at) for at in np.argwhere(missed)[0])
        lane = int(self.clocks.agents.lanes[thread])
        code = lane // 32 * PER_WARP + lane % 32 + 1
        rank, mine = divmod(code, self.block_codes)
        block = self.block_of(chunk, row * self.columns, rank)
        where = chunk.describe_shared(key & OFFSET)
        if self.clusters.size > 1 and key >> RANK_SHIFT != rank:
            where += f" of block {key >> RANK_SHIFT} of the cluster"
        line = f" at line {last.item.line}" if last.item.line else ""
        message = (
            f"{noun(wait)} at {where} may miss its phase: nothing orders it before the end of the "
            f"next one, by the {noun(last)}{line}, and it would wait on"
        )
        threads = [thread_of(mine, chunk.launch.block)]
        chunk.launch.findings.add(
            "synccheck", wait.item, message, block, threads, where, other=last.item
        )
