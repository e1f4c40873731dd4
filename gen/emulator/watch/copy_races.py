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
from gen.emulator.warp.masks import Bits, Mask
from gen.emulator.watch.agents import place
from gen.emulator.watch.last_access import SITE_BITS
from gen.emulator.watch.shared_races import AccessRaces
from gen.emulator.watch.timed_access import TimedLast, TimedSeveral

# As RACES, of bulk copies: what they read and overwrite, and the mbarrier that counts their bytes.
_MISSING = "{earlier}: a fence.%s is missing between them"
READS_UNSEEN = "{access} at {place} may not see " + _MISSING % "proxy.async"
_WRITES = "{access} at {place} may come before " + _MISSING % "proxy.async"
_SIGNAL_RACES = "bulk copy that completes at {place} races with {earlier}"
_SIGNALS = "bulk copy that completes at {place} may not see " + _MISSING % "mbarrier_init"
_NEVER = np.int64(2**62)  # the number of a copy in flight that no wait for groups lands


class CopyRaces(AccessRaces):
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
        codes = self.flights.codes
        thread = np.maximum(codes, 0) >> SITE_BITS
        landed = (codes >= 0) & (number < done[np.arange(len(codes))[:, None], thread])
        if landed.any():
            index = np.flatnonzero(landed)
            self.writes.put(index, codes[landed], place(thread[landed]) + after)
            codes[landed] = -1
            self.flights.empty = bool((codes < 0).all())

    def signal(self, chunk: ObservedChunk, mask: Mask | None) -> None:
        """See Observer."""
        self._widen_for(mask)
        self.signals = self.signals + (1 if mask is None else mask.bits)

    def arrive_copies(
        self, chunk: ObservedChunk, offset: int, mask: Mask | None, done: Bits
    ) -> None:
        """See Observer."""
        assert self.clocks is not None
        rows, lanes = self._rows(done), self._lanes(mask)
        self.landed = self.landed + (1 if mask is None else mask.bits)
        self._land(self.before, self._per_thread(self.landed), self.clocks.places)
        self.clocks.land(offset, lanes, rows)

    # -- cp.async.bulk -------------------------------------------------------------------------
    def bulk(self, chunk: ObservedChunk, move: Move) -> None:
        """See Observer."""
        touch, number = self.place_move(move), self.sites.number(move.site)
        assert isinstance(self.writes, TimedLast)
        assert isinstance(self.atomics, TimedSeveral)
        # Those that race are among them; a pair of lines is reported once.
        unseen = [earlier.clash(touch, shown=True) for earlier in (self.writes, self.atomics)]
        if move.into_shared:
            kind, what = "WAW", _WRITES
            self._signal(chunk, move)
            self._before_write(chunk, move.site, touch)
            self._report(chunk, move.site, "WAW", touch, self.flights.add(touch, number))
            self.groups.reshape(-1)[touch.index] = self.before.reshape(-1)[touch.index] = _NEVER
        else:
            kind, what = "RAW", READS_UNSEEN
            for earlier in (self.writes, self.atomics, self.flights):
                self._report(chunk, move.site, "RAW", touch, earlier.clash(touch))
            self.leaving.add(touch, number)
        for clash in unseen:
            self._report(chunk, move.site, kind, touch, clash, what)

    def _signal(self, chunk: ObservedChunk, move: Move) -> None:
        """The mbarriers of bulk copies, whose initialisation these must see."""
        assert self.inits is not None
        touch = self.place_move(replace(move, size=8, shared=move.barriers[:, None]))
        for clash, what in (
            (self.writes.clash(touch), _SIGNAL_RACES), (self.inits.clash(touch), _SIGNALS),
        ):  # fmt: skip
            self._report(chunk, move.site, "RAW", touch, clash, what)

    def fence_proxy(self, chunk: ObservedChunk, mask: Mask | None, inits_only: bool) -> None:
        """See Observer."""
        if self.clocks and self.clocks.proxies:
            self.clocks.show(self._lanes(mask), inits_only)

    def land_bulk(self, chunk: ObservedChunk, move: Move, done: Bits | None) -> None:
        """See Observer."""
        assert self.clocks is not None
        rows = None if done is None else self._rows(done)
        touch, number = self.place_move(move), self.sites.number(move.site)
        flying = self.leaving if done is None else self.flights
        record = touch.low << np.int32(SITE_BITS) | np.int32(number)
        mine = flying.codes.reshape(-1)[touch.index] == record
        flying.codes.reshape(-1)[touch.index[mine]] = -1
        flying.empty = bool((flying.codes < 0).all())
        if rows is None:
            self.reads.add(touch, number)
        else:
            offset = int(move.barriers[0])
            self.writes.put(touch.index[mine], record[mine], self.clocks.bulk(offset))
            self.clocks.land_bulk(offset, rows)
