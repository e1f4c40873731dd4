"""What happened before what, where only some threads are ordered: a vector clock for each thread.

Time is one count for the whole chunk; it advances whenever something orders. `known[row, a, b]` is
the time before which everything that `b` did is ordered before what `a` does next. Besides threads
there are, as `b`, whole warps (all their lanes), and what only completes in the background: the
copies of each thread, and the bulk copies of each mbarrier.

Bulk copies are the work of another proxy: what threads wrote is visible to these only once a
`fence.proxy.async` has shown it. Where a kernel has any, threads and their copies are there once
more, as what the proxy sees of them: a fence brings that up to what its thread knows, and from
there on it spreads like anything that is known. Threads that initialise mbarriers are there a third
time, as what the proxy sees of these: `fence.mbarrier_init` brings up that and nothing else.

Kernels without mbarriers, and without barriers for part of a block, do without clocks: what a
barrier orders, `last_access` just forgets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gen.emulator.watch.granules import PER_WARP, Codes

MEMBERS = 33  # places of a warp: its lanes, and all of them together
_WHOLE = 32
_ALWAYS = np.int32(2**31 - 1)
Lanes = npt.NDArray[np.bool_]  # (rows, places)
Times = npt.NDArray[np.int32]


def place(code: Any) -> Any:
    """The place in a clock of a thread's code, or of a whole warp's."""
    return code // PER_WARP * MEMBERS + code % PER_WARP - 1


@dataclass
class _Object:
    """Of one mbarrier: what has arrived there, and what is ordered before its latest phase."""

    arrived: Times
    complete: Times


class Clocks:
    """The clocks of the threads of a chunk: one row for all blocks, or a row for each.

    proxies: whether they keep what has been shown to the asynchronous proxy.
    """

    def __init__(self, threads: int, proxies: bool = False) -> None:
        self.warps = -(-threads // 32)
        self.places = self.warps * MEMBERS
        self.shown = 2 * self.places  # where begins what has been shown of threads and copies
        self.proxies = proxies
        self.starts = (0, self.shown) if proxies else (0,)  # of the threads' places
        self.now = 1
        width = self.shown * len(self.starts)
        self.known: Times = np.zeros((1, self.places, width), np.int32)
        itself = np.arange(self.places)
        self.known[:, itself, itself] = _ALWAYS
        last = threads % 32  # lanes of the last warp, if it lacks any
        missing = np.arange(threads // 32 * MEMBERS + last, self.places - 1 if last else 0)
        self.known[:, missing, :] = self.known[:, :, missing] = _ALWAYS
        self.objects: dict[int, _Object] = {}
        self._bulk: dict[int, int] = {}
        self._inits: dict[int, int] = {}  # by the place of the thread that initialises

    def widen(self, rows: int) -> None:
        """Give every block what was common to all."""
        self.known = np.repeat(self.known, rows, axis=0)
        for item in self.objects.values():
            item.arrived = np.repeat(item.arrived, rows, axis=0)
            item.complete = np.repeat(item.complete, rows, axis=0)

    def lanes(self, threads: npt.NDArray[np.bool_]) -> Lanes:
        """(rows, thread code) as (rows, place), without the whole warps."""
        table = threads.reshape(len(threads), self.warps, PER_WARP)[..., 1 : MEMBERS + 1].copy()
        table[..., _WHOLE] = False
        return table.reshape(len(threads), -1)

    # -- what orders ---------------------------------------------------------------------------
    def _given(self, lanes: Lanes, groups: int) -> Times:
        """What all lanes of each group have done or know of: (rows, groups, times)."""
        rows, each = len(lanes), self.places // groups
        grouped = lanes.reshape(rows, groups, each, 1)
        known = self.known.reshape(rows, groups, each, -1)
        given = np.where(grouped, known, 0).max(axis=2)
        given = np.where(given == _ALWAYS, 0, given)
        own = np.zeros((rows, groups, self.known.shape[2]), np.bool_)
        for group in range(groups):
            part = slice(group * each, (group + 1) * each)
            own[:, group, part] = lanes[:, part]
        return np.where(own, np.int32(self.now + 1), given).astype(np.int32)

    def _take(self, lanes: Lanes, given: Times) -> None:
        """The lanes learn what is `given`: (rows, groups, times)."""
        rows, groups = given.shape[:2]
        known = self.known.reshape(rows, groups, self.places // groups, -1)
        grouped = lanes.reshape(rows, groups, -1, 1)
        self.known = np.where(grouped, np.maximum(known, given[:, :, None]), known)
        self.known = self.known.reshape(rows, self.places, -1)
        # A whole warp knows what all its lanes know, and is known as far as all its lanes are.
        warps = self.known.reshape(rows, self.warps, MEMBERS, -1)
        warps[:, :, _WHOLE] = warps[:, :, :_WHOLE].min(axis=2)
        for start in self.starts:
            end = start + self.places
            threads = self.known[..., start:end].reshape(rows, self.places, self.warps, MEMBERS)
            whole_warps = threads[..., :_WHOLE].min(axis=-1)
            self.known[..., start + _WHOLE : end : MEMBERS] = whole_warps
        whole = np.arange(_WHOLE, self.places, MEMBERS)
        self.known[:, whole, whole] = _ALWAYS

    def meet(self, lanes: Lanes, by_warp: bool = False, early: Lanes | None = None) -> None:
        """The lanes have met at a barrier; by_warp: those of each warp among themselves.

        early: lanes that had arrived there, which learn nothing from the others.
        """
        come = lanes if early is None else lanes | early
        self._take(lanes, self._given(come, self.warps if by_warp else 1))
        self.now += 1

    def show(self, lanes: Lanes, inits_only: bool) -> None:
        """Lanes have shown the asynchronous proxy all that is ordered before them.

        inits_only: of that, only the mbarriers that were initialised.
        """
        known = self.known[lanes]
        so_far = np.minimum(known[:, : self.shown], np.int32(self.now + 1))  # of their own, too
        if not inits_only:
            shown = known[:, self.shown : 2 * self.shown]
            np.maximum(shown, so_far, out=shown)
        by, inits = list(self._inits), list(self._inits.values())
        known[:, inits] = np.maximum(known[:, inits], so_far[:, by])
        self.known[lanes] = known
        self.now += 1

    def _object(self, offset: int) -> _Object:
        if offset not in self.objects:
            nothing = np.zeros((len(self.known), self.known.shape[2]), np.int32)
            self.objects[offset] = _Object(nothing, nothing)
        return self.objects[offset]

    def arrive(self, offset: int, lanes: Lanes, done: npt.NDArray[np.bool_]) -> None:
        """Lanes have arrived at an mbarrier, and its phase is complete in the rows of `done`."""
        self._join(offset, self._given(lanes, 1)[:, 0], done)

    def land(self, offset: int, lanes: Lanes, done: npt.NDArray[np.bool_]) -> None:
        """As `arrive`, for the copies of lanes and nothing else."""
        given = np.zeros((len(lanes), self.known.shape[2]), np.int32)
        given[:, self.places : 2 * self.places][lanes] = self.now + 1
        self._join(offset, given, done)

    def land_bulk(self, offset: int, done: npt.NDArray[np.bool_]) -> int:
        """Bulk copies have landed at an mbarrier; their place."""
        at = self.bulk(offset)
        given = np.zeros((len(self.known), self.known.shape[2]), np.int32)
        given[:, at] = self.now + 1
        self._join(offset, given, done)
        return at

    def _join(self, offset: int, given: Times, done: npt.NDArray[np.bool_]) -> None:
        item = self._object(offset)
        item.arrived = np.maximum(item.arrived, given)
        item.complete = np.where(done[:, None], item.arrived, item.complete)
        self.now += 1

    def observe(self, offset: int, lanes: Lanes) -> None:
        """Lanes have seen the latest phase of an mbarrier complete."""
        self._take(lanes, self._object(offset).complete[:, None])

    def bulk(self, offset: int) -> int:
        """The place of the bulk copies that complete at an mbarrier."""
        if offset not in self._bulk:
            (self._bulk[offset],) = self._add_places(1)
        return self._bulk[offset]

    def inits(self, codes: Codes) -> npt.NDArray[np.int64]:
        """The places of the mbarriers that threads initialise, as the proxy sees them."""
        by = place(codes).tolist()
        new = sorted(set(by) - set(self._inits))
        self._inits.update(zip(new, self._add_places(len(new)), strict=True))
        return np.array([self._inits[at] for at in by], np.int64)

    def _add_places(self, count: int) -> range:
        """More places, of which nobody knows anything yet."""
        first = self.known.shape[2]
        self.known = _widened(self.known, count)
        for item in self.objects.values():
            item.arrived, item.complete = (
                _widened(times, count) for times in (item.arrived, item.complete)
            )
        return range(first, first + count)

    def add_place(self) -> int:
        """One more place, for what completes in the background."""
        return self._add_places(1)[0]

    def learn(self, lanes: Lanes, at: int, times: Times) -> None:
        """Lanes have waited for what a place did before `times`, by row."""
        known = self.known[:, :, at]
        self.known[:, :, at] = np.where(lanes, np.maximum(known, times[:, None]), known)
        whole = self.known[:, :, at].reshape(len(known), self.warps, MEMBERS)
        whole[:, :, _WHOLE] = whole[:, :, :_WHOLE].min(axis=2)
        self.known[:, :, at] = whole.reshape(len(known), -1)

    def lanes_of_warps(self, warps: npt.NDArray[np.bool_]) -> Lanes:
        """(rows, warp) as (rows, place)."""
        members = np.arange(MEMBERS) < _WHOLE
        return (warps[..., None] & members).reshape(len(warps), -1)

    # -- what is ordered -----------------------------------------------------------------------
    def before(
        self, rows: Any, times: Any, by: Any, codes: Codes, shown: bool = False
    ) -> npt.NDArray[np.bool_]:
        """Whether what place `by` did at `times` is ordered before accesses by `codes` now.

        shown: and is visible to the asynchronous proxy, whose own writes need no fence.
        """
        if shown:
            by = np.where(by < self.shown, by + self.shown, by)
        ordered: npt.NDArray[np.bool_] = times < self.known[rows, place(codes), by]
        return ordered


def _widened(times: Times, count: int) -> Times:
    return np.concatenate([times, np.zeros((*times.shape[:-1], count), np.int32)], axis=-1)
