"""What happened before what, where only some threads are ordered: vector clocks.

Time is one count for the whole chunk; it advances whenever something orders. For threads `a` and
`b`, the clock of `a` has the time before which everything that `b` did is ordered before what `a`
does next. Besides threads there are, as `b`, what only completes in the background: the copies of
each thread, and the bulk copies of each mbarrier. A whole warp, as either, is all its lanes.

Threads that have always acted alike have the same clock, and are the same in all others: `agents`
says which these are, and `known[row, a, b]` is kept for agents. Where `a` and `b` are one agent, it
is what each of its lanes knows of the others; what it did itself comes before in any case.

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

from gen.emulator.watch.agents import MEMBERS, Acting, Agents, place
from gen.emulator.watch.granules import PER_WARP, Codes, Index

_ALWAYS = np.int32(2**31 - 1)
Lanes = npt.NDArray[np.bool_]  # (rows, threads)
Times = npt.NDArray[np.int32]


@dataclass
class _Object:
    """Of one mbarrier: what has arrived there, and what is ordered before its latest phase."""

    arrived: Times
    complete: Times


class Clocks:
    """The clocks of the threads of a chunk: one row for all blocks, or a row for each.

    threads: of each of `blocks` blocks that count as one, its warps theirs in turn. proxies:
    whether they keep what has been shown to the asynchronous proxy.

    Others name what is to be ordered by its place (see `agents`): that of a thread, plus `places`
    for its copies; `bulk` and `inits` give further ones.
    """

    def __init__(self, threads: int, proxies: bool = False, blocks: int = 1) -> None:
        self.agents = Agents(threads, blocks)
        self.warps, self.places = self.agents.warps, self.agents.places
        self.shown = 2 * self.places  # where begin the places of what has been shown
        self.proxies = proxies
        self.kinds = 4 if proxies else 2  # threads, copies; and what has been shown of these
        self.now = 1
        count = self.agents.count
        self.known: Times = np.zeros((1, count, self.kinds * count), np.int32)
        self.own: Times = np.zeros((1, count), np.int32)  # what each lane has shown of its own
        # The names of tables as `known`, and of those with one time of each agent.
        self.of_agents: tuple[str, ...] = ("known",)
        self.one_each: tuple[str, ...] = ("own",)
        self.objects: dict[Any, _Object] = {}
        self._others = 0  # places behind those of threads
        self._bulk: dict[tuple[int, bool], int] = {}
        self._inits: dict[int, int] = {}  # by the thread that initialises
        self._asked: Times | None = None
        self._renumber()

    def widen(self, rows: int) -> None:
        """Give every block what was common to all."""
        for name in (*self.of_agents, *self.one_each):
            setattr(self, name, np.repeat(getattr(self, name), rows, axis=0))
        self._asked = None
        for item in self.objects.values():
            item.arrived = np.repeat(item.arrived, rows, axis=0)
            item.complete = np.repeat(item.complete, rows, axis=0)

    def lanes(self, threads: npt.NDArray[np.bool_]) -> Lanes:
        """(rows, thread code) as (rows, thread)."""
        table = threads.reshape(len(threads), self.warps, PER_WARP)[..., 1:MEMBERS]
        return table.reshape(len(threads), -1)[:, self.agents.lanes]

    # -- agents --------------------------------------------------------------------------------
    def _acting(self, lanes: Lanes) -> Acting:
        """The agents that lanes are, each as a whole: they are split where they have to be."""
        self._split(lanes)
        acting: Acting = lanes[:, self.agents.first]
        return acting

    def _split(self, labels: npt.NDArray[Any]) -> None:
        """As Agents.split, with their clocks."""
        count = self.agents.count
        before = self.agents.split(labels)
        if before is None:
            return
        threads = (np.arange(self.kinds)[:, None] * count + before).ravel()
        columns = np.append(threads, self.kinds * count + np.arange(self._others))
        for name in self.of_agents:
            setattr(self, name, getattr(self, name).take(before, 1).take(columns, 2))
        for name in self.one_each:
            setattr(self, name, getattr(self, name).take(before, 1))
        for item in self.objects.values():
            item.arrived, item.complete = (
                times.take(columns, 1) for times in (item.arrived, item.complete)
            )
        self._renumber()

    def _renumber(self) -> None:
        """What follows from the agents and the places there are."""
        agents = self.agents
        # One that has no other lanes knows all that these did, and of itself what it has shown.
        self.known[:, agents.single, agents.single] = _ALWAYS
        if self.proxies:
            own = self.own[:, agents.single]
            self.known[:, agents.single, 2 * agents.count + agents.single] = own
        self._asked = None
        each = agents.count + self.warps
        threads = (np.arange(self.kinds)[:, None] * each + agents.at).ravel()
        self._column = np.append(threads, self.kinds * each + np.arange(self._others))

    # -- what orders ---------------------------------------------------------------------------
    def _given(self, acting: Acting, by_warp: bool = False) -> Times:
        """What all that act, or those of each warp, have done or know of: (rows, groups, times)."""
        if by_warp:
            known = np.where(acting[..., None], self.known, 0)
            given: Times = self.agents.over_warps(np.maximum, known, 1)
        else:
            some = np.flatnonzero(acting.any(axis=0))
            known = np.where(acting[:, some, None], self.known[:, some], 0)
            given = known.max(axis=1, keepdims=True, initial=0)
        row, agent = np.nonzero(acting)
        group = self.agents.warp[agent] if by_warp else 0
        given[row, group, agent] = self.now + 1
        if self.proxies:
            at = row, group, 2 * self.agents.count + agent
            given[at] = np.maximum(given[at], self.own[row, agent])
        return given

    def _take(self, acting: Acting, given: Times) -> None:
        """Those that act learn what is `given`: (rows, groups, times), one group or each warp's."""
        some = np.flatnonzero(acting.any(axis=0))
        learns = acting[:, some]
        group = self.agents.warp[some] if given.shape[1] > 1 else np.zeros_like(some)
        if self.proxies:
            shown = given[:, group, 2 * self.agents.count + some]
            self.own[:, some] = np.maximum(self.own[:, some], np.where(learns, shown, 0))
        each = given[:, group] if given.shape[1] > 1 else given
        news = np.where(learns[..., None], each, 0)
        self.known[:, some] = np.maximum(self.known[:, some], news)
        self._asked = None

    def meet(self, lanes: Lanes, by_warp: bool = False) -> None:
        """The lanes have met at a barrier; by_warp: those of each warp among themselves."""
        acting = self._acting(lanes)
        self._take(acting, self._given(acting, by_warp))
        self.now += 1

    def show(self, lanes: Lanes, inits_only: bool) -> None:
        """Lanes have shown the asynchronous proxy all that is ordered before them.

        inits_only: of that, only the mbarriers that were initialised.
        """
        acting = self._acting(lanes)
        at, count = np.nonzero(acting), self.agents.count
        known = self.known[at]
        so_far = np.minimum(known[:, : 2 * count], np.int32(self.now + 1))  # of their own, too
        if not inits_only:
            shown = known[:, 2 * count : 4 * count]
            np.maximum(shown, so_far, out=shown)
            self.own[at] = self.now + 1
        by = self.agents.of[np.array(list(self._inits), np.int64)]
        inits = self._behind(list(self._inits.values()))
        known[:, inits] = np.maximum(known[:, inits], so_far[:, by])
        self.known[at] = known
        self._asked = None
        self.now += 1

    def arrive(self, offset: Any, lanes: Lanes, done: npt.NDArray[np.bool_]) -> None:
        """Lanes have arrived at an mbarrier, and its phase is complete in the rows of `done`."""
        acting = self._acting(lanes)
        self._join(offset, self._given(acting)[:, 0], done)

    def arrive_inits(self, offset: Any, lanes: Lanes, done: npt.NDArray[np.bool_]) -> None:
        """As `arrive`, for the mbarriers that lanes have shown to the proxy and nothing else."""
        acting = self._acting(lanes)
        known, given = self._given(acting)[:, 0], self._nothing()
        inits = self._behind(list(self._inits.values()))
        given[:, inits] = known[:, inits]
        self._join(offset, given, done)

    def land(self, offset: Any, lanes: Lanes, done: npt.NDArray[np.bool_]) -> None:
        """As `arrive`, for the copies of lanes and nothing else."""
        acting = self._acting(lanes)
        given, count = self._nothing(), self.agents.count
        given[:, count : 2 * count][acting] = self.now + 1
        self._join(offset, given, done)

    def land_bulk(self, offset: int, done: npt.NDArray[np.bool_], far: bool = False) -> None:
        """Bulk copies have landed at an mbarrier; see `bulk`."""
        at, given = self.bulk(offset, far), self._nothing()
        given[:, self._behind(at)] = self.now + 1
        self._join(offset, given, done)

    def _nothing(self) -> Times:
        return np.zeros((len(self.known), self.known.shape[2]), np.int32)

    def _join(self, offset: Any, given: Times, done: npt.NDArray[np.bool_]) -> None:
        item = self._object(offset)
        item.arrived = np.maximum(item.arrived, given)
        item.complete = np.where(done[:, None], item.arrived, item.complete)
        self.now += 1

    def _object(self, offset: Any) -> _Object:
        if offset not in self.objects:
            nothing = self._nothing()
            self.objects[offset] = _Object(nothing, nothing)
        return self.objects[offset]

    def observe(self, offset: Any, lanes: Lanes, wide: bool = True) -> None:
        """Lanes have seen the latest phase of an mbarrier complete.

        Unless it is wide, that orders nothing that threads of other blocks have stored there.
        """
        acting = self._acting(lanes)
        given = self._object(offset).complete[:, None]
        if not wide and (offset, True) in self._bulk:
            given = given.copy()
            given[..., self._behind(self._bulk[offset, True])] = 0
        self._take(acting, given)

    # -- further places ------------------------------------------------------------------------
    def bulk(self, offset: int, far: bool = False) -> int:
        """The place of the bulk copies that complete at an mbarrier.

        far: of those instead that threads of other blocks store, not the asynchronous proxy.
        """
        if (offset, far) not in self._bulk:
            (self._bulk[offset, far],) = self._add_places(1)
        return self._bulk[offset, far]

    def inits(self, codes: Codes) -> Index:
        """The places of the mbarriers that threads initialise, as the proxy sees them."""
        lanes = codes // PER_WARP * 32 + codes % PER_WARP - 1
        by = np.searchsorted(self.agents.lanes, lanes).tolist()
        new = sorted(set(by) - set(self._inits))
        if new:  # each an agent of its own: it shows what it did, the rest of its warp does not
            alone = np.zeros((1, len(self.agents.lanes)), np.int64)
            alone[:, new] = 1 + np.arange(len(new))
            self._split(alone)
            self._inits.update(zip(new, self._add_places(len(new)), strict=True))
        return np.array([self._inits[at] for at in by], np.int64)

    def _add_places(self, count: int) -> range:
        """More places, of which nobody knows anything yet."""
        first = self.kinds * self.places + self._others
        self._others += count
        for name in self.of_agents:
            setattr(self, name, _widened(getattr(self, name), count))
        for item in self.objects.values():
            item.arrived, item.complete = (
                _widened(times, count) for times in (item.arrived, item.complete)
            )
        self._renumber()
        return range(first, first + count)

    def add_place(self) -> int:
        """One more place, for what completes in the background."""
        return self._add_places(1)[0]

    def learn(self, warps: npt.NDArray[np.bool_], at: int, times: Times) -> None:
        """Warps (rows, warps) have waited for what a place did before `times`, by row."""
        acting = self._acting(np.repeat(warps, 32, axis=1)[:, self.agents.lanes])
        known = self.known[..., self._behind(at)]
        np.maximum(known, np.where(acting, times[:, None], 0), out=known)
        self._asked = None

    def join(self, warps: npt.NDArray[np.bool_], others: range, times: Times) -> None:
        """Warps (rows, warps) learn of all that `others`, warps, did before `times`, by row."""
        acting = self._acting(np.repeat(warps, 32, axis=1)[:, self.agents.lanes])
        columns = np.flatnonzero(np.isin(self.agents.warp, others))
        known = np.where(acting[..., None], times[:, None, None], 0)
        self.known[..., columns] = np.maximum(self.known[..., columns], known)
        self._asked = None

    def _behind(self, places: Any) -> Any:
        """Where in a clock are places behind those of threads."""
        return np.asarray(places, np.int64) - self.kinds * (self.places - self.agents.count)

    # -- what is ordered -----------------------------------------------------------------------
    def _to_ask(self) -> Times:
        """`known`, and behind the agents, as rows and as columns, whole warps."""
        if self._asked is None:
            rows, count = self.known.shape[:2]
            threads = self.known[..., : self.kinds * count].reshape(rows, count, self.kinds, count)
            warps = self.agents.over_warps(np.minimum, threads, 3)
            columns = np.concatenate([threads, warps], axis=3).reshape(rows, count, -1)
            others = self.known[..., self.kinds * count :]
            known = np.concatenate([columns, others], axis=2)
            whole = self.agents.over_warps(np.minimum, known, 1)
            self._asked = np.concatenate([known, whole], axis=1)
        return self._asked

    def before(
        self, rows: Any, times: Any, by: Any, codes: Codes, shown: bool = False
    ) -> npt.NDArray[np.bool_]:
        """Whether what place `by` did at `times` is ordered before accesses by `codes` now.

        shown: and is visible to the asynchronous proxy, whose own writes need no fence.
        """
        places = place(codes)
        itself, at = by == places, self.agents.at[places]
        if shown:
            by = np.where(by < self.shown, by + self.shown, by)
        known = self._to_ask()[rows, at, self._column[by]]
        if shown:
            own = np.concatenate(
                [self.own, self.agents.over_warps(np.minimum, self.own, 1)], axis=1
            )
            known = np.where(itself, own[rows, at], known)
            itself = False
        ordered: npt.NDArray[np.bool_] = itself | (times < known)
        return ordered


def _widened(times: Times, count: int) -> Times:
    return np.concatenate([times, np.zeros((*times.shape[:-1], count), np.int32)], axis=-1)
