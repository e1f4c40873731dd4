"""Who touched each granule of shared memory since it was last synchronised.

A record is one number, `thread code << SITE_BITS | site`; see `granules` for the codes. Once the
lanes of a warp have synchronised, its records keep only the warp: they still clash with threads of
other warps, but with none of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gen.emulator.watch.granules import PER_WARP, Codes, Index, Touch

SITE_BITS = 17  # the rest of 31 bits is enough for the warps of a cluster of 8 blocks
NONE = np.int32(-1)
MOST = np.int32(2**31 - 1)
SYNCED = PER_WARP - 1  # the lane of a single record, or of a first one, of a synchronised warp
SYNCED_LAST = 0  # and of a last one, so that any later thread of the warp is before and behind

Clash = npt.NDArray[np.int32]  # for each granule of a touch: the record it clashes with, or -1
_SHIFT = np.int32(SITE_BITS)


def _warp(codes: Any) -> Any:
    return codes // np.int32(PER_WARP)


class Last:
    """One record for each granule: of the last thread that wrote there.

    own: the records clash even with the thread that made them, as copies in flight do.
    """

    def __init__(self, rows: int, columns: int, own: bool = False) -> None:
        self.own = own
        self.codes: Codes = np.full((rows, columns), NONE)
        self.empty = True

    def widen(self, rows: int) -> None:
        """Give every block what was common to all."""
        self.codes = np.repeat(self.codes, rows, axis=0)

    def clash(self, touch: Touch) -> Clash | None:
        """The records at `touch` of other threads, that nothing has ordered before it."""
        if self.empty:
            return None
        found = self.codes.reshape(-1)[touch.index]
        by = found >> _SHIFT
        bad = found >= 0
        if not self.own:
            bad &= (by != touch.low) | (by != touch.high)
        if not bad.any():
            return None
        mine = (_warp(touch.low) == _warp(by)) & (_warp(touch.high) == _warp(by))
        bad &= ~(mine & (by % PER_WARP == SYNCED))
        return np.where(bad, found, NONE) if bad.any() else None

    def add(self, touch: Touch, site: int) -> Clash | None:
        """Record writes. Several threads at one granule clash with each other."""
        self.empty = False
        record = (touch.low << _SHIFT) | np.int32(site)
        flat = self.codes.reshape(-1)
        flat[touch.index] = record
        kept = flat[touch.index]
        bad = (kept != record) | (touch.low != touch.high)
        if not bad.any():
            return None
        return np.where(bad, np.where(kept != record, kept, (touch.high << _SHIFT) | site), NONE)

    def put(self, index: Index, records: Codes, by: object) -> None:
        """Record writes at flat granules."""
        self.empty = False
        self.codes.reshape(-1)[index] = records

    def clear(self, rows: npt.NDArray[np.bool_] | None) -> None:
        """Forget everything that the blocks of `rows` did (None: all blocks)."""
        if not self.empty:
            self.codes[slice(None) if rows is None else rows] = NONE
            self.empty = rows is None

    def order(self, warps: npt.NDArray[np.bool_]) -> None:
        """The lanes of `warps` (rows, warp) have synchronised with each other."""
        if not self.empty:
            _sync(self.codes, np.flatnonzero(self.codes >= 0), warps, SYNCED)


class Several:
    """Two records for each granule: of the first and the last thread, by code, of any number."""

    def __init__(self, rows: int, columns: int) -> None:
        self.low: Codes = np.full((rows, columns), MOST)
        self.high: Codes = np.full((rows, columns), NONE)
        self.empty = True

    def widen(self, rows: int) -> None:
        """Give every block what was common to all."""
        self.low, self.high = np.repeat(self.low, rows, axis=0), np.repeat(self.high, rows, axis=0)

    def clash(self, touch: Touch) -> Clash | None:
        """The records at `touch` of other threads, that nothing has ordered before it."""
        if self.empty:
            return None
        high = self.high.reshape(-1)[touch.index]
        if high.max() < 0:
            return None
        low = self.low.reshape(-1)[touch.index]
        first, last = low >> _SHIFT, high >> _SHIFT
        early = first != touch.low
        early &= first != _warp(touch.low) * PER_WARP + SYNCED
        late = last != touch.high
        late &= last != _warp(touch.high) * PER_WARP + SYNCED_LAST
        bad = (high >= 0) & (early | late)
        if not bad.any():
            return None
        # Of the two, one of another warp is to blame for sure: its lanes' barriers order nothing.
        far = _warp(last) != _warp(touch.high)
        blamed = np.where(far | ~early, high, low)
        blamed = np.where(_warp(first) != _warp(touch.low), low, blamed)
        return np.where(bad, blamed, NONE)

    def add(self, touch: Touch, site: int) -> None:
        """Record accesses that do not clash with each other."""
        self.empty = False
        here = np.int32(site)
        np.minimum.at(self.low.reshape(-1), touch.index, (touch.low << _SHIFT) | here)
        np.maximum.at(self.high.reshape(-1), touch.index, (touch.high << _SHIFT) | here)

    def drop(self, index: Index) -> None:
        """Forget all that touched some granules."""
        if not self.empty:
            self.low.reshape(-1)[index] = MOST
            self.high.reshape(-1)[index] = NONE

    def clear(self, rows: npt.NDArray[np.bool_] | None) -> None:
        """Forget everything that the blocks of `rows` did (None: all blocks)."""
        if not self.empty:
            where = slice(None) if rows is None else rows
            self.low[where], self.high[where] = MOST, NONE
            self.empty = rows is None

    def order(self, warps: npt.NDArray[np.bool_]) -> None:
        """The lanes of `warps` (rows, warp) have synchronised with each other."""
        if self.empty:
            return
        known = np.flatnonzero(self.high >= 0)  # which are few
        first, last = (_warp(x.reshape(-1)[known] >> _SHIFT) for x in (self.low, self.high))
        known = known[first == last]
        _sync(self.low, known, warps, SYNCED)
        _sync(self.high, known, warps, SYNCED_LAST)


def _sync(codes: Codes, known: Index, warps: npt.NDArray[np.bool_], lane: int) -> None:
    """Records at flat granules that `warps` have made are theirs as a whole: its `lane`'s."""
    flat = codes.reshape(-1)
    warp = _warp(flat[known] >> _SHIFT)
    change = warps[known // codes.shape[1], warp]
    here, by = known[change], (warp[change] * PER_WARP + lane) << _SHIFT
    flat[here] = by | flat[here] & np.int32((1 << SITE_BITS) - 1)
