"""Who touched each granule of shared memory last, and when, as `vector_clocks` counts time.

These stand in for the records of `last_access` where mbarriers order threads: nothing is forgotten
when threads synchronise; whether a record is ordered before an access is asked of the clocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gen.emulator.watch.agents import place
from gen.emulator.watch.granules import PER_WARP, Codes, Index, Touch
from gen.emulator.watch.last_access import NONE, SITE_BITS, Clash
from gen.emulator.watch.vector_clocks import Clocks, Times

_SITE = np.int64((1 << SITE_BITS) - 1)


class TimedLast:
    """As `Last`: the last writer of each granule, and when it wrote."""

    def __init__(self, clocks: Clocks, columns: int) -> None:
        self.clocks, self.columns = clocks, columns
        self.codes: Codes = np.full((1, columns), NONE)
        self.times: Times = np.zeros((1, columns), np.int32)
        self.by = np.zeros((1, columns), np.int32)  # the place whose progress counts
        self.empty = True

    def widen(self, rows: int) -> None:
        """Give every block what was common to all."""
        self.codes, self.times, self.by = (
            np.repeat(array, rows, axis=0) for array in (self.codes, self.times, self.by)
        )

    def clash(self, touch: Touch, shown: bool = False) -> Clash | None:
        """The records at `touch` that nothing has ordered before it, or shown: no fence, either."""
        found = self.codes.reshape(-1)[touch.index]
        if self.empty or found.max(initial=-1) < 0:
            return None
        times, by = self.times.reshape(-1)[touch.index], self.by.reshape(-1)[touch.index]
        rows = touch.index // self.columns
        bad = (found >= 0) & ~self.clocks.before(rows, times, by, touch.low, shown)
        return np.where(bad, found, NONE) if bad.any() else None

    def add(self, touch: Touch, site: int) -> Clash | None:
        """Record writes. Several threads at one granule clash with each other."""
        record = (touch.low << np.int32(SITE_BITS)) | np.int32(site)
        self.put(touch.index, record, place(touch.low))
        kept = self.codes.reshape(-1)[touch.index]
        bad = kept != record
        return np.where(bad, kept, NONE) if bad.any() else None

    def put(self, index: Any, records: Any, by: Any) -> None:
        """Record writes at flat granules, on whose progress at `by` others depend."""
        self.empty = False
        self.codes.reshape(-1)[index] = records
        self.times.reshape(-1)[index] = np.int32(self.clocks.now)
        self.by.reshape(-1)[index] = by


class TimedSeveral:
    """As `Several`: of each warp, the first and the last lane of its latest access to a granule.

    Only granules that were ever accessed have a slot: some entries, one for each warp that did.
    """

    def __init__(self, clocks: Clocks, columns: int) -> None:
        self.clocks, self.columns = clocks, columns
        self.slots = np.full((1, columns), -1, np.int64)
        # A record is a time, a code (in low what it lacks of all codes), and a site.
        self.low, self.high = (np.zeros((0, 1), np.int64) for _ in range(2))
        # Of each slot, by warp; -1: none.
        self.entries: npt.NDArray[np.int16] = np.zeros((0, clocks.warps), np.int16)
        self.codes = clocks.warps * PER_WARP
        self.late = SITE_BITS + self.codes.bit_length()  # where in a record the time begins
        self.used = 0  # slots; the arrays have room for more
        self.empty = True

    def widen(self, rows: int) -> None:
        """Give every block what was common to all."""
        first = np.arange(rows)[:, None] * self.used
        self.slots = np.where(self.slots < 0, -1, self.slots + first)
        self.low, self.high = (np.tile(x[: self.used], (rows, 1)) for x in (self.low, self.high))
        self.entries = np.tile(self.entries[: self.used], (rows, 1))
        self.used *= rows

    def clash(self, touch: Touch, shown: bool = False) -> Clash | None:
        """The records at `touch` that nothing has ordered before it, or shown: no fence, either."""
        slots = self.slots.reshape(-1)[touch.index]
        some = np.flatnonzero(slots >= 0)
        if not some.size:
            return None
        result = np.full(touch.index.shape, NONE)
        rows, codes = touch.index[some, None] // self.columns, touch.low[some, None]
        for records, mirrored in ((self.high, False), (self.low, True)):
            found = records[slots[some]]
            kept = found >> SITE_BITS & ((1 << self.late - SITE_BITS) - 1)
            by = np.where(found < 0, 1, self.codes - kept if mirrored else kept)
            times = (found >> self.late).astype(np.int32)
            bad = (found >= 0) & ~self.clocks.before(rows, times, place(by), codes, shown)
            blamed = np.where(bad, by << SITE_BITS | found & _SITE, NONE)
            result[some] = np.maximum(result[some], blamed.max(axis=1))
        return result if result.max() >= 0 else None

    def add(self, touch: Touch, site: int) -> None:
        """Record accesses that do not clash with each other."""
        self.empty = False
        slots = self._slots(touch.index)
        entries = self._entries(slots, touch.low // PER_WARP)
        at = slots * self.low.shape[1] + entries
        start, code = np.int64(self.clocks.now) << self.late | site, touch.low.astype(np.int64)
        np.maximum.at(self.high.reshape(-1), at, start | code << SITE_BITS)
        np.maximum.at(self.low.reshape(-1), at, start | (self.codes - code) << SITE_BITS)

    def _slots(self, index: Index) -> Index:
        """The slots of granules, new ones for those that have none."""
        slots = self.slots.reshape(-1)
        found = slots[index]
        fresh = index[found < 0]
        if not fresh.size:
            return found
        # Of equal granules, the last one leaves its number: unique, without sorting them.
        numbers = np.arange(fresh.size)
        slots[fresh] = numbers
        fresh = fresh[slots[fresh] == numbers]
        slots[fresh] = self.used + np.arange(fresh.size)
        self.used += fresh.size
        if self.used > len(self.low):
            self._grow(self.used, 0)  # twice the room
            more = np.full((self.used, self.clocks.warps), -1, np.int16)
            self.entries = np.concatenate([self.entries, more])
        return slots[index]

    def _entries(self, slots: Index, warps: Codes) -> npt.NDArray[np.int16]:
        """The entries of warps in slots, new ones for those that have none."""
        number = slots * self.clocks.warps + warps
        found: npt.NDArray[np.int16] = self.entries.reshape(-1)[number]
        if (found < 0).any():
            fresh = np.unique(number[found < 0])
            slot = fresh // self.clocks.warps
            # Behind those that a slot has, several fresh ones in turn.
            entry = (self.entries[slot] >= 0).sum(axis=1)
            entry += np.arange(slot.size) - np.searchsorted(slot, slot)
            lacking = int(entry.max()) + 1 - self.low.shape[1]
            if lacking > 0:
                self._grow(lacking, 1)
            self.entries.reshape(-1)[fresh] = entry
            found = self.entries.reshape(-1)[number]
        return found

    def _grow(self, count: int, axis: int) -> None:
        """Room for so many more slots, or entries."""
        shape = list(self.low.shape)
        shape[axis] = count
        more = np.full(shape, -1, np.int64)
        self.low, self.high = (np.concatenate([x, more], axis) for x in (self.low, self.high))

    def drop(self, index: Index) -> None:
        """Forget all that touched some granules."""
        slots = self.slots.reshape(-1)[index]
        self.low[slots[slots >= 0]] = self.high[slots[slots >= 0]] = -1
