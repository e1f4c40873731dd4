"""Clocks of agents, against sets of accesses that every single lane keeps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gen.emulator.watch.agents import place
from gen.emulator.watch.granules import PER_WARP, WARP_LANE
from gen.emulator.watch.vector_clocks import Clocks

BARRIERS = (0, 8)  # offsets of mbarriers
Access = frozenset[tuple[int, int]]  # its number, and each lane that takes part; -1: no lane
Event = tuple[Any, ...]
Lanes = list[bool]


def code_of(lane: int) -> int:
    return lane // 32 * PER_WARP + lane % 32 + 1


def warp_code(warp: int) -> int:
    return warp * PER_WARP + WARP_LANE


@dataclass
class Knowledge:
    """Accesses that are ordered before, and those of them that the asynchronous proxy sees."""

    ordered: set[tuple[int, int]] = field(default_factory=set)
    shown: set[tuple[int, int]] = field(default_factory=set)

    def learn(self, other: Knowledge) -> None:
        self.ordered |= other.ordered
        self.shown |= other.shown


class Unit:
    """A block, or several that count as one: what a lane did or learned, it passes on."""

    def __init__(self, threads: int) -> None:
        self.lanes = [Knowledge() for _ in range(threads)]
        self.background: dict[Any, set[tuple[int, int]]] = {}  # of a thread's copies, a bulk's
        self.inits: set[tuple[int, int]] = set()
        self.arrived = {offset: Knowledge() for offset in BARRIERS}
        self.complete = {offset: Knowledge() for offset in BARRIERS}

    def do(self, what: str, at: Any, access: Access) -> None:
        if what in ("copies", "bulk"):
            self.background.setdefault((what, at), set()).update(access)
        else:
            for part in access:
                self.lanes[part[1]].ordered.add(part)
            self.inits |= access if what == "init" else set()

    def _join(self, offset: int, given: Iterable[Knowledge], done: bool) -> None:
        for item in given:
            self.arrived[offset].learn(item)
        if done:
            self.complete[offset] = Knowledge()
            self.complete[offset].learn(self.arrived[offset])

    def arrive(self, offset: int, lanes: Lanes, done: bool) -> None:
        self._join(offset, self._some(lanes), done)

    def land(self, offset: int, lanes: Lanes, done: bool) -> None:
        copies = [self.background.get(("copies", i), set()) for i, on in enumerate(lanes) if on]
        self._join(offset, [Knowledge(set(landed)) for landed in copies], done)

    def land_bulk(self, offset: int, done: bool) -> None:
        landed = self.background.get(("bulk", offset), set())
        self._join(offset, [Knowledge(set(landed))], done)

    def observe(self, offset: int, lanes: Lanes) -> None:
        for lane in self._some(lanes):
            lane.learn(self.complete[offset])

    def meet(self, lanes: Lanes, early: Lanes) -> None:
        everything = Knowledge()
        for lane in self._some([a or b for a, b in zip(lanes, early, strict=True)]):
            everything.learn(lane)
        for lane in self._some(lanes):
            lane.learn(everything)

    def show(self, lanes: Lanes, inits_only: bool) -> None:
        for lane in self._some(lanes):
            lane.shown |= lane.ordered & self.inits if inits_only else lane.ordered

    def _some(self, lanes: Lanes) -> list[Knowledge]:
        return [lane for lane, on in zip(self.lanes, lanes, strict=True) if on]


class Both:
    """Clocks, and units that say what these should."""

    def __init__(self, threads: int, proxies: bool, blocks: int) -> None:
        self.threads, self.proxies = blocks * threads, proxies
        self.clocks = Clocks(threads, proxies, blocks)
        self.units = [Unit(self.threads)]
        warps = -(-threads // 32)
        self.lanes = [32 * warps * block + x for block in range(blocks) for x in range(threads)]
        self.accesses: list[tuple[str, Access, int, int]] = []  # what, access, time, place
        self.codes = [code_of(lane) for lane in self.lanes]
        self.whole = [warp_code(warp) for warp in range(self.clocks.warps)]

    def _lanes(self, masks: list[int]) -> list[Lanes]:
        """For each row; bits beyond the threads there are do not count."""
        return [[bool(mask >> i & 1) for i in range(self.threads)] for mask in masks[: self.rows]]

    def _table(self, lanes: list[Lanes]) -> Any:
        codes = np.zeros((self.rows, self.clocks.warps * PER_WARP), np.bool_)
        codes[:, self.codes] = lanes
        return self.clocks.lanes(codes)

    def _of_warp(self, warp: int) -> list[int]:
        return [thread for thread, lane in enumerate(self.lanes) if lane // 32 == warp]

    @property
    def rows(self) -> int:
        return len(self.units)

    def access(self, what: str, at: int) -> None:
        number, thread = len(self.accesses), at % self.threads
        by, parts, warp = place(self.codes[thread]), [thread], self.lanes[thread] // 32
        if what == "whole":
            by, parts = place(warp_code(warp)), self._of_warp(warp)
        elif what == "copies":
            by += self.clocks.places
        elif what == "bulk":
            at = BARRIERS[at % len(BARRIERS)]
            by, parts = self.clocks.bulk(at), [-1]
        elif what == "init":
            (by,) = self.clocks.inits(np.array([self.codes[thread]], np.int32))
        access = frozenset((number, part) for part in parts)
        for unit in self.units:
            unit.do(what, at if what == "bulk" else thread, access)
        self.accesses.append((what, access, self.clocks.now, int(by)))

    def event(self, what: str, offset: int, masks: list[int], others: list[int]) -> None:
        lanes, early = self._lanes(masks), self._lanes(others)
        table, clocks, nobody = self._table(lanes), self.clocks, [False] * self.threads
        done = [bool(other & 1) for other in others[: self.rows]]
        each = list(zip(self.units, lanes, early, done, strict=True))
        if what in ("arrive", "land"):
            getattr(clocks, what)(offset, table, np.array(done))
            for unit, mine, _, over in each:
                getattr(unit, what)(offset, mine, over)
        elif what == "land_bulk":
            clocks.land_bulk(offset, np.array(done))
            for unit, _, _, over in each:
                unit.land_bulk(offset, over)
        elif what == "observe":
            clocks.observe(offset, table)
            for unit, mine, _, _ in each:
                unit.observe(offset, mine)
        elif what == "meet":
            clocks.meet(table)
            for unit, mine, _, _ in each:
                unit.meet(mine, nobody)
        elif what == "early":
            at = "barrier", clocks.now
            clocks.arrive(at, self._table(early), np.ones(self.rows, np.bool_))
            clocks.meet(table)
            clocks.observe(at, table)
            for unit, mine, theirs, _ in each:
                unit.meet(mine, theirs)
        elif what == "warp":
            clocks.meet(table, by_warp=True)
            for unit, mine, _, _ in each:
                for warp in range(clocks.warps):
                    here = [on and i in self._of_warp(warp) for i, on in enumerate(mine)]
                    unit.meet(here, nobody)
        elif self.proxies:
            clocks.show(table, inits_only=what == "show inits")
            for unit, mine, _, _ in each:
                unit.show(mine, what == "show inits")

    def widen(self, rows: int) -> None:
        if self.rows == 1:
            self.clocks.widen(rows)
            first = self.units[0]
            self.units = [Unit(self.threads) for _ in range(rows)]
            for unit in self.units:
                unit.inits = set(first.inits)
                unit.background = {key: set(parts) for key, parts in first.background.items()}
                for mine, theirs in (
                    *zip(unit.lanes, first.lanes, strict=True),
                    *((unit.arrived[at], first.arrived[at]) for at in BARRIERS),
                    *((unit.complete[at], first.complete[at]) for at in BARRIERS),
                ):
                    mine.learn(theirs)

    # -- questions -----------------------------------------------------------------------------
    def compare(self) -> None:
        codes = self.codes + self.whole
        for what, access, time, by in self.accesses:
            expected = [self._expected(what, access, unit) for unit in self.units]
            assert self._asked(time, by, codes) == expected, (what, access)
            if self.proxies and what != "init":
                visible = [self._visible(what, access, unit) for unit in self.units]
                assert self._asked(time, by, self.codes, shown=True) == visible, (what, access)

    def _asked(self, time: int, by: int, codes: list[int], shown: bool = False) -> Any:
        rows, some = np.arange(self.rows)[:, None], np.array(codes, np.int32)[None]
        return self.clocks.before(rows, np.int32(time), np.int64(by), some, shown).tolist()

    def _expected(self, what: str, access: Access, unit: Unit) -> list[bool]:
        lanes = [access <= (lane.shown if what == "init" else lane.ordered) for lane in unit.lanes]
        warps = range(self.clocks.warps)
        whole = [all(lanes[thread] for thread in self._of_warp(warp)) for warp in warps]
        if what == "whole":  # one that all lanes make together is ordered with the next such
            whole[self.lanes[next(iter(access))[1]] // 32] = True
        return lanes + whole

    @staticmethod
    def _visible(what: str, access: Access, unit: Unit) -> list[bool]:
        # Bulk copies need no fence.
        return [access <= (lane.ordered if what == "bulk" else lane.shown) for lane in unit.lanes]


# Lanes that act together: all, a warp, the first ones, one, and any.
MASKS = st.one_of(
    st.just(2**96 - 1),
    st.integers(0, 2).map(lambda warp: (2**32 - 1) << 32 * warp),
    st.integers(1, 96).map(lambda count: 2**count - 1),
    st.integers(0, 95).map(lambda lane: 1 << lane),
    st.integers(0, 2**96 - 1),
)
ROWS = st.one_of(MASKS.map(lambda mask: [mask, mask]), st.lists(MASKS, min_size=2, max_size=2))
ACCESSES = ("thread", "thread", "whole", "copies", "bulk", "init")
ORDERS = ("arrive", "observe", "land", "land_bulk", "meet", "early", "warp", "show", "show inits")
EVENTS = st.one_of(
    st.tuples(st.sampled_from(ACCESSES), st.integers(0, 95)),
    *[st.tuples(st.sampled_from(ORDERS), st.sampled_from(BARRIERS), ROWS, ROWS)] * 3,
    st.tuples(st.sampled_from(("widen", "compare", "compare"))),
)


def follow(threads: int, proxies: bool, blocks: int, events: list[Event]) -> None:
    """All that happens, to the clocks and to the units, and that they say the same at the end."""
    both = Both(threads, proxies, blocks)
    for event in events:
        if event[0] == "widen":
            both.widen(2)
        elif event[0] == "compare":
            both.compare()
        elif len(event) > 2:
            both.event(*event)
        elif proxies or event[0] != "init":
            both.access(*event)
    both.compare()


@settings(max_examples=150)
@given(
    st.sampled_from(((1, 1), (33, 1), (64, 1), (75, 1), (96, 1), (20, 3), (40, 2))),
    st.booleans(),
    st.lists(EVENTS, min_size=12, max_size=24),
)
@pytest.mark.slow
def test_clocks_know_what_lanes_know(
    shape: tuple[int, int], proxies: bool, events: list[Event]
) -> None:
    threads, blocks = shape
    follow(threads, proxies, blocks, events)


def act(what: str, *lanes: int, offset: int = 0) -> Event:
    """An event of some lanes, which completes the phase of the mbarrier if it is an arrival."""
    mask = sum(1 << lane for lane in lanes) if lanes else 2**96 - 1
    return what, offset, [mask] * 2, [1] * 2


WARP = range(32)
OTHERS = [lane for lane in WARP if lane != 5]
WRITE = ("thread", 5)
# What distinguishes a lane from the others of its agent, or one agent of a warp from the others.
SCENES = {
    "only its own is shown": [WRITE, act("show")],
    "all is shown once they met": [WRITE, act("show"), act("meet")],
    "arrivals pass on what was shown": [WRITE, act("show"), act("arrive"), act("observe", 40)],
    "another lane has shown it": [
        WRITE, act("arrive", *WARP), act("observe", 40), act("show", 40),
        act("arrive", 40, offset=8), act("observe", *WARP, offset=8),
    ],
    "one that is alone has shown its own": [
        ("whole", 5), act("show"), act("arrive", *OTHERS), act("observe", 5),
    ],
    "a part of a warp meets": [
        ("thread", 40), act("arrive", 40), act("observe", 7), act("warp", 5, 6),
    ],
    "all of the warp meet then": [
        ("thread", 40), act("arrive", 40), act("observe", 7), act("warp"),
    ],
    "blocks differ in who arrives": [
        ("widen",), ("thread", 40), act("arrive", 40), act("observe", 6),
        ("arrive", 8, [1 << 5, 1 << 6], [1, 1]), act("observe", 9, offset=8),
    ],
    "one shows what it has initialised": [("init", 45), act("show inits", 45, 46)],
}  # fmt: skip


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize(("threads", "blocks"), [(64, 1), (20, 4)])
def test_lanes_that_acted_alike(name: str, threads: int, blocks: int) -> None:
    follow(threads, True, blocks, SCENES[name])
