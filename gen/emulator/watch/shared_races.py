"""racecheck: accesses of shared memory by two threads, at least one a write, that nothing orders.

What orders accesses: a barrier, for the threads that met there; `bar.warp.sync` (`__syncwarp`), for
the lanes of the warp; a thread's own program order. Running in lockstep does not, nor do shuffles,
votes or tensor-core instructions: the PTX manual gives memory order to none of these. Atomics do
not race with each other. A `cp.async` writes at any time from its issue until its thread has waited
for it: even that thread's own accesses race with it.

An mbarrier orders what threads did before they arrived, and copies that it waited for, before what
those do who have seen its phase complete. Kernels that have any, or barriers for part of a block,
are watched with `vector_clocks`.

Without them, every granule of shared memory (see `granules`) keeps its last writer, and the
first and the last by number of the threads that have read it, since they were synchronised. That is
exact: an access races with one of these if it races with any.

Bulk copies may miss what threads wrote to shared memory, ordered or not, unless a
`fence.proxy.async` stands between, in that order: without one they are found, too, whether they
read those bytes or overwrite them. So are those whose mbarrier has been initialised without one, or
without a `fence.mbarrier_init`, behind.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from gen.emulator.isa.ops import Value
from gen.emulator.memory.global_memory import Site
from gen.emulator.memory.observer import ObservedChunk
from gen.emulator.translate.program import Program
from gen.emulator.warp.masks import Bits, Coordinates, Mask
from gen.emulator.warp.shuffles import all_lanes, to_warps
from gen.emulator.watch.findings import Sites, noun
from gen.emulator.watch.flag_clocks import (
    ACQUIRES,
    RELEASES,
    STRONG,
    FlagClocks,
    is_strong,
    polling_lines,
)
from gen.emulator.watch.granules import PER_WARP, WARP_LANE, Touch
from gen.emulator.watch.guesses import guesses
from gen.emulator.watch.last_access import SITE_BITS, Clash, Last, Several
from gen.emulator.watch.ordering import Ordering, clocks_of
from gen.emulator.watch.timed_access import TimedLast, TimedSeveral


class Readers(Protocol):
    """Who has read granules, or will."""

    def clash(self, touch: Touch) -> Clash | None:
        """The records at `touch` that nothing has ordered before it."""
        ...


# What a finding says of an access, of where it is, and of the earlier one.
RACES = "{access} at {place} races with {earlier}"
_MOST_FLAGS = 64  # places that an instruction accesses and that are followed one by one
_TOGETHER = ("ldmatrix", "stmatrix")


class AccessRaces(Ordering):
    """Finds races in shared memory; `copy_races` adds the copies in flight."""

    def __init__(self) -> None:
        super().__init__()
        self._polls: dict[Program, set[int]] = {}
        self._guesses: dict[Program, set[int]] = {}

    def begin(self, chunk: ObservedChunk) -> None:
        """See Observer."""
        super().begin(chunk)
        self.sites = Sites()
        self.clocks = clocks_of(chunk)
        program = chunk.launch.program
        if program not in self._polls:
            self._polls[program] = polling_lines(program.blocks)
            self._guesses[program] = guesses(program.blocks)
        self.polls, self.guesses = self._polls[program], self._guesses[program]
        self.elects = any(i.opcode == "mbarrier" for block in program.blocks for i in block.body)
        self.flights = Last(1, self.columns, own=True)  # copies that are to write
        self.leaving = Last(1, self.columns, own=True)  # copies that are to read
        self.each = self.clocks is not None
        self.writes: Last | TimedLast
        self.reads: Several | TimedSeveral
        self.atomics: Several | TimedSeveral
        if self.clocks is None:
            self.writes = Last(1, self.columns)
            self.reads, self.atomics = Several(1, self.columns), Several(1, self.columns)
        else:
            self.writes = TimedLast(self.clocks, self.columns)
            self.reads = TimedSeveral(self.clocks, self.columns)
            self.atomics = TimedSeveral(self.clocks, self.columns)
        self.readers: list[Readers] = [self.reads, self.leaving]

    def widen(self) -> None:
        """See SharedWatch."""
        for records in (self.writes, self.flights, self.leaving, self.reads, self.atomics):
            records.widen(self.blocks)
        super().widen()

    # -- accesses ------------------------------------------------------------------------------
    def load(
        self, chunk: ObservedChunk, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """See Observer."""
        touch = self._touch(site, space, address, mask)
        if touch is None:
            return
        if self._is_plain(site):
            for earlier in (self.writes, self.atomics, self.flights):
                self._report(chunk, site, "RAW", touch, earlier.clash(touch))
            self.reads.add(touch, self.sites.number(site))
        else:
            for earlier in (self.writes, self.flights):
                self._report(chunk, site, "RAW", touch, earlier.clash(touch))
            self.atomics.add(touch, self.sites.number(site))
        self._flag(site, touch)

    def store(
        self, chunk: ObservedChunk, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """See Observer."""
        if not self._is_plain(site):
            self.atomic(chunk, site, space, address, mask)
            return
        touch = self._touch(site, space, address, mask)
        if touch is not None:
            self._before_write(chunk, site, touch)
            self._report(chunk, site, "WAW", touch, self.writes.add(touch, self.sites.number(site)))

    def atomic(
        self, chunk: ObservedChunk, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """See Observer."""
        touch = self._touch(site, space, address, mask)
        if touch is not None:
            self._before_atomic(chunk, site, touch)
            # What copies do at an mbarrier, its phase orders, and not what their thread does.
            if site.item.opcode != "cp":
                self.atomics.add(touch, self.sites.number(site))
            self._flag(site, touch)

    def fence(self, chunk: ObservedChunk, mask: Mask | None, wide: bool) -> None:
        """See Observer.

        Beside mbarriers it counts for all lanes of a warp: cuda::pipeline elects one that has it
        for the others.
        """
        if not isinstance(self.clocks, FlagClocks):
            return
        if self.elects and mask is not None:
            mask = Mask(all_lanes(chunk, np.asarray(to_warps(chunk, mask.bits).any(axis=-1))))
        self.clocks.fence(self._lanes(mask), self.elects)

    def _is_plain(self, site: Site) -> bool:
        """Whether a load or a store races with those of flags.

        Volatile ones are flags' where a loop waits for them: others only keep the compiler away.
        """
        if id(site.item) in self.guesses:
            return False
        words = STRONG & set(site.item.modifiers)
        stores = site.item.opcode == "st"
        flag = self.polls if stores else site.item.line in self.polls
        return not (flag if words == {"volatile"} else words)

    def _flag(self, site: Site, touch: Touch) -> None:
        """What a strong access shows to others, and what it sees; warps take turns at atomics."""
        item, clocks = site.item, self.clocks
        if not isinstance(clocks, FlagClocks) or not is_strong(item):
            return
        words, (row, column) = set(item.modifiers), np.divmod(touch.index, self.columns)
        if np.unique(column).size > _MOST_FLAGS:  # all are one place, which orders more
            column = np.full_like(column, -1)
        for at in np.unique(column):
            here, codes = column == at, self._per_thread(np.False_)
            codes[row[here], touch.low[here]] = True
            lanes = clocks.lanes(codes)
            for turn in clocks.by_warps(lanes) if item.opcode in ("atom", "red") else [lanes]:
                if item.opcode != "ld":
                    clocks.write(("at", at), turn, bool(RELEASES & words), item.opcode != "st")
                if item.opcode in ("atom", "ld"):
                    acquires = item.opcode == "atom" or bool(ACQUIRES & words)
                    clocks.read(("at", at), turn, acquires)

    def _before_atomic(self, chunk: ObservedChunk, site: Site, touch: Touch) -> None:
        for reads in self.readers:
            self._report(chunk, site, "WAR", touch, reads.clash(touch))
        for earlier in (self.writes, self.flights):
            clash = self.unseen(touch, earlier.clash(touch))
            self._report(chunk, site, "WAW", touch, clash)

    def unseen(self, touch: Touch, clash: Clash | None) -> Clash | None:
        """What of a clash no fence has shown, either."""
        return clash

    def _touch(self, site: Site, space: str, address: Value, mask: Mask | None) -> Touch | None:
        if space != "shared":
            return None
        touch = self.place(site, address + np.int64(site.offset), mask)
        if touch is None or site.item.opcode not in _TOGETHER:
            return touch
        warp = (touch.low // PER_WARP * PER_WARP + WARP_LANE).astype(np.int32)
        return Touch(touch.index, warp, warp)

    def _before_write(self, chunk: ObservedChunk, site: Site, touch: Touch) -> None:
        for reads in self.readers:
            self._report(chunk, site, "WAR", touch, reads.clash(touch))
        for earlier in (self.writes, self.atomics, self.flights):
            self._report(chunk, site, "WAW", touch, earlier.clash(touch))
        self.forget(touch)

    def forget(self, touch: Touch) -> None:
        """What races with earlier accesses from now on races with the write there as well."""
        self.reads.drop(touch.index)
        self.atomics.drop(touch.index)

    def barrier(self, chunk: ObservedChunk, blocks: Bits | None) -> None:
        """See Observer."""
        super().barrier(chunk, blocks)
        if self.clocks:
            return
        rows = None
        if blocks is not None and not blocks.all():
            if self.rows < self.blocks:
                self.widen()
            rows = np.broadcast_to(blocks, self.owners).ravel()
        for records in self._records():
            records.clear(rows)

    def warp_sync(self, chunk: ObservedChunk, mask: Mask | None) -> None:
        """See Observer."""
        super().warp_sync(chunk, mask)
        if self.clocks:
            return
        self._widen_for(mask)
        lanes = self._per_thread(True if mask is None else mask.bits)
        warps = np.asarray(lanes.reshape(self.rows, -1, PER_WARP).any(axis=-1))
        for records in self._records():
            records.order(warps)

    def _records(self) -> list[Last | Several]:
        """The records that forget what is ordered, which those with clocks need not."""
        records = (self.writes, self.reads, self.atomics)
        return [item for item in records if isinstance(item, (Last, Several))]

    # -- findings ------------------------------------------------------------------------------
    def _report(
        self, chunk: ObservedChunk, site: Site, kind: str, touch: Touch, clash: Clash | None,
        what: str = RACES,
    ) -> None:  # fmt: skip
        """A finding for each earlier instruction in `clash`, at the first granule that has it.

        what: it says of the two instructions.
        """
        if clash is None:
            return
        numbers = clash & ((1 << SITE_BITS) - 1)
        numbers[clash < 0] = -1
        for number in np.unique(numbers[numbers >= 0]):
            at = int(np.argmax(numbers == number))
            self._report_one(chunk, site, kind, touch, at, int(clash[at]), what)

    def _report_one(
        self,
        chunk: ObservedChunk,
        site: Site,
        kind: str,
        touch: Touch,
        at: int,
        record: int,
        what: str,
    ) -> None:
        earlier, by = self.sites[record & ((1 << SITE_BITS) - 1)], record >> SITE_BITS
        index, low, high = int(touch.index[at]), int(touch.low[at]), int(touch.high[at])
        mine = low if self.who(chunk, low) != self.who(chunk, by) else high
        (rank, thread), (by_rank, by_thread) = (self.who(chunk, code) for code in (mine, by))
        block, address = self.block_of(chunk, index, rank), self.where(chunk, index)
        line = f" at line {earlier.item.line}" if earlier.item.line else ""
        access, other = f"{noun(site)} of {site.size} bytes", f"the {noun(earlier)}{line}"
        if (home := self.block_at(chunk, index)) != block:
            address += f" of block ({','.join(map(str, home))})"
        if by_rank != rank:
            other += f" of block ({','.join(map(str, self.block_of(chunk, index, by_rank)))})"
        message = f"{what.format(access=access, place=address, earlier=other)} ({kind})"
        flying = any(f.codes.reshape(-1)[index] == record for f in (self.flights, self.leaving))
        flying |= earlier.item.opcode == "wgmma" and kind == "WAR"
        message += ", which is still in flight" if flying else ""
        chunk.launch.findings.add(
            "racecheck", site.item, message, block, (thread, by_thread), address, kind,
            earlier.item,
        )  # fmt: skip

    def who(self, chunk: ObservedChunk, code: int) -> tuple[int, Coordinates]:
        """The rank of a thread's block in its cluster, and the thread's place in the block."""
        return code // self.block_codes, self.thread(chunk, code)
