"""racecheck of asynchronous copies: while one is in flight, nothing may touch what it touches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gen.emulator.isa.ops import Value
from gen.emulator.memory.bulk_moves import Move
from gen.emulator.memory.global_memory import Site
from gen.emulator.memory.observer import ObservedChunk
from gen.emulator.warp.clusters import RANK_SHIFT
from gen.emulator.warp.masks import Bits, Mask
from gen.emulator.watch.agents import place
from gen.emulator.watch.early_exits import ExitRaces
from gen.emulator.watch.granules import Codes, Touch
from gen.emulator.watch.last_access import SITE_BITS, Clash, Last
from gen.emulator.watch.timed_access import TimedLast, TimedSeveral

# As RACES, of bulk copies: what they read and overwrite, and the mbarrier that counts their bytes.
_MISSING = "{earlier}: a fence.%s is missing between them"
_READS = "{access} at {place} may not see " + _MISSING % "proxy.async"
_WRITES = "{access} at {place} may come before " + _MISSING % "proxy.async"
_SIGNAL_RACES = "bulk copy that completes at {place} races with {earlier}"
_SIGNALS = "bulk copy that completes at {place} may not see " + _MISSING % "mbarrier_init"
_NEVER = np.int64(2**62)  # the number of a copy in flight that no wait for groups lands


class CopyRaces(ExitRaces):
    """Finds races with copies; `matrix_races` adds the matrices that wgmma reads."""

    def begin(self, chunk: ObservedChunk) -> None:
        """See Observer."""
        super().begin(chunk)
        self.groups = np.zeros((1, self.columns), np.int64)  # of the copies in flight
        self.committed: Any = np.zeros((1,) * 6, np.int64)  # groups of each thread so far
        self.signals: Any = np.zeros((1,) * 6, np.int64)  # cp.async.mbarrier.arrive of each thread
        self.landed: Any = np.zeros((1,) * 6, np.int64)  # and how many of these have happened
        self.before = np.zeros((1, self.columns), np.int64)  # signals before each copy in flight
        # Initialisations of mbarriers: ordered is what the asynchronous proxy has been shown.
        self.inits: TimedLast | None = None
        if self.clocks and self.clocks.proxies:
            self.inits = TimedLast(self.clocks, self.columns)

    def widen(self) -> None:
        """See SharedWatch."""
        self.groups = np.repeat(self.groups, self.blocks, axis=0)
        self.before = np.repeat(self.before, self.blocks, axis=0)
        if self.inits:
            self.inits.widen(self.blocks)
        super().widen()

    def store(
        self, chunk: ObservedChunk, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """See Observer."""
        super().store(chunk, site, space, address, mask)
        if self.inits and site.item.name.startswith("mbarrier.init"):
            assert self.clocks is not None
            touch = self._touch(site, space, address, mask)
            if touch is not None:
                record = touch.low << np.int32(SITE_BITS) | np.int32(self.sites.number(site))
                self.inits.put(touch.index, record, self.clocks.inits(touch.low))

    # -- cp.async ------------------------------------------------------------------------------
    def copy(
        self, chunk: ObservedChunk, site: Site, shared_address: Value, global_address: Value,
        source_bytes: Value, mask: Mask | None,
    ) -> None:  # fmt: skip
        """See Observer."""
        touch = self.place(site, shared_address, mask)
        if touch is None:
            return
        self._before_write(chunk, site, touch)
        self._report(chunk, site, "WAW", touch, self.flights.add(touch, self.sites.number(site)))
        row, code = touch.index // self.columns, touch.low
        self.groups.reshape(-1)[touch.index] = self._per_thread(self.committed)[row, code]
        self.before.reshape(-1)[touch.index] = self._per_thread(self.signals)[row, code]

    def commit(self, chunk: ObservedChunk, mask: Mask | None) -> None:
        """See Observer."""
        self._widen_for(mask)
        self.committed = self.committed + (1 if mask is None else mask.bits)

    def wait(self, chunk: ObservedChunk, groups_left: int, mask: Mask | None) -> None:
        """See Observer."""
        if self.flights.empty:
            return
        self._widen_for(mask)
        done = self.committed - groups_left
        done = self._per_thread(done if mask is None else np.where(mask.bits, done, -1))
        self._land(self.groups, done)

    def _land(self, number: npt.NDArray[np.int64], done: npt.NDArray[Any], after: int = 0) -> None:
        """Copies in flight whose `number` is below what is `done` of their thread are writes now.

        after: added to the thread's place in a clock, for those that only an mbarrier orders.
        """
        codes = self.flights.codes.reshape(-1)
        flying = np.flatnonzero(codes >= 0)
        thread = codes[flying] >> SITE_BITS
        row = flying // (codes.size // len(self.flights.codes))
        landed = number.reshape(-1)[flying] < done[row, thread]
        if landed.any():
            index = flying[landed]
            self.writes.put(index, codes[index], place(thread[landed]) + after)
            codes[index] = -1
            self.flights.empty = bool(landed.all())

    def signal(self, chunk: ObservedChunk, mask: Mask | None) -> None:
        """See Observer."""
        self._widen_for(mask)
        self.signals = self.signals + (1 if mask is None else mask.bits)

    def arrive_copies(
        self, chunk: ObservedChunk, offset: int, mask: Mask | None, done: Bits
    ) -> None:
        """See Observer."""
        assert self.clocks is not None
        self._widen_for(mask)
        self.landed = self.landed + (1 if mask is None else mask.bits)
        self._land(self.before, self._per_thread(self.landed), self.clocks.places)
        for key, rank, some in self._objects(offset, mask):
            rows = self._rows(done, rank)
            self.clocks.land(key, self._lanes(some), rows)

    # -- cp.async.bulk -------------------------------------------------------------------------
    def bulk(self, chunk: ObservedChunk, move: Move) -> None:
        """See Observer."""
        if move.sources is not None:
            self._read(chunk, replace(move, homes=move.blocks, shared=move.sources))
        touch, number = self.place_move(move), self.sites.number(move.site)
        assert isinstance(self.writes, TimedLast)
        assert isinstance(self.atomics, TimedSeveral)
        # Those that race are among them; a pair of lines is reported once.
        unseen: list[Clash | None] = []
        if move.by_proxy:
            unseen = [earlier.clash(touch, shown=True) for earlier in (self.writes, self.atomics)]
        if move.into_shared and move.rule:
            self._signal(chunk, move)
            self._before_atomic(chunk, move.site, touch)
            self.atomics.add(touch, number)
        elif move.into_shared:
            self._signal(chunk, move)
            self._before_write(chunk, move.site, touch)
            self._report(chunk, move.site, "WAW", touch, self.flights.add(touch, number))
            self.groups.reshape(-1)[touch.index] = self.before.reshape(-1)[touch.index] = _NEVER
            for clash in unseen:
                self._report(chunk, move.site, "WAW", touch, clash, _WRITES)
        else:
            self._read(chunk, move)

    def _read(self, chunk: ObservedChunk, move: Move) -> None:
        """Bulk copies are going to read shared memory."""
        touch = self.place_move(move)
        self.before_read(chunk, move.site, touch)
        self.leaving.add(touch, self.sites.number(move.site))

    def before_read(self, chunk: ObservedChunk, site: Site, touch: Touch) -> None:
        """Findings for what is not ordered before the asynchronous proxy reads, or not shown to it.

        Those that race are among them; a pair of lines is reported once.
        """
        assert isinstance(self.writes, TimedLast)
        assert isinstance(self.atomics, TimedSeveral)
        for earlier in (self.writes, self.atomics, self.flights):
            self._report(chunk, site, "RAW", touch, earlier.clash(touch))
        for records in (self.writes, self.atomics):
            self._report(chunk, site, "RAW", touch, records.clash(touch, shown=True), _READS)

    def _signal(self, chunk: ObservedChunk, move: Move) -> None:
        """The mbarriers of bulk copies, whose initialisation these must see."""
        assert self.inits is not None
        touch = self.place_move(replace(move, size=8, shared=move.barriers[:, None]))
        clashes = [(self.unseen(touch, self.writes.clash(touch)), _SIGNAL_RACES)]
        if move.by_proxy:
            clashes.append((self.inits.clash(touch), _SIGNALS))
        for clash, what in clashes:
            self._report(chunk, move.site, "RAW", touch, clash, what)

    def unseen(self, touch: Touch, clash: Clash | None) -> Clash | None:
        """See AccessRaces: fence.mbarrier_init and any cluster barrier show an mbarrier."""
        if clash is None or self.inits is None:
            return clash
        known, unordered = self.inits.codes.reshape(-1)[touch.index], self.inits.clash(touch)
        seen = (known == clash) & (True if unordered is None else unordered < 0)
        return np.where(seen, np.int32(-1), clash)

    def fence_proxy(self, chunk: ObservedChunk, mask: Mask | None, inits_only: bool) -> None:
        """See Observer."""
        if self.clocks and self.clocks.proxies:
            self.clocks.show(self._lanes(mask), inits_only)

    def land_bulk(self, chunk: ObservedChunk, move: Move, done: Bits | None) -> None:
        """See Observer."""
        assert self.clocks is not None
        if done is None:
            self._land_read(move)
            return
        if move.sources is not None:
            self._land_read(replace(move, homes=move.blocks, shared=move.sources))
        ranks, alone = self.clusters.ranks[move.homes], self.clusters.size == 1
        for rank in [0] if alone else np.unique(ranks):
            some = move if alone else move.some(ranks == rank)
            rows = self._rows(done, int(rank))
            key = int(rank) << RANK_SHIFT | int(move.barriers[0])
            if move.rule:  # such accesses are recorded as those of their threads
                self._landed(self.flights, some)
                self.clocks.arrive(key, self._lanes(some.mask()), rows)
                continue
            for far, those in some.by_distance():
                touch, record, mine = self._landed(self.flights, those)
                self.writes.put(touch.index[mine], record[mine], self.clocks.bulk(key, far))
                self.clocks.land_bulk(key, rows, far)

    def _land_read(self, move: Move) -> None:
        touch, _, _ = self._landed(self.leaving, move)
        self.reads.add(touch, self.sites.number(move.site))

    def _landed(self, flying: Last, move: Move) -> tuple[Touch, Codes, npt.NDArray[np.bool_]]:
        """Copies are done: what they touch, their records, and which of these there still are."""
        touch, number = self.place_move(move), self.sites.number(move.site)
        record = touch.low << np.int32(SITE_BITS) | np.int32(number)
        mine = flying.codes.reshape(-1)[touch.index] == record
        flying.codes.reshape(-1)[touch.index[mine]] = -1
        flying.empty = bool((flying.codes < 0).all())
        return touch, record, mine
