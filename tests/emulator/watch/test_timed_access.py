"""Records of the warps that touched a granule, against all accesses there ever were."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gen.emulator.watch.agents import place
from gen.emulator.watch.granules import PER_WARP, Touch
from gen.emulator.watch.last_access import SITE_BITS
from gen.emulator.watch.timed_access import TimedSeveral
from gen.emulator.watch.vector_clocks import Clocks

THREADS, COLUMNS, ROWS = 1024, 6, 2
THREAD = st.one_of(st.integers(0, 95), st.integers(0, THREADS - 1))
# Which threads access which granules, and which threads have met before.
STEP = st.tuples(
    st.lists(st.tuples(st.integers(0, COLUMNS - 1), THREAD), min_size=1, max_size=8),
    st.lists(THREAD, max_size=4),
    st.sampled_from(("add", "add", "add", "drop")),
)


def touch_of(pairs: list[tuple[int, int]], rows: int) -> Touch:
    """Of all rows the same granules and threads."""
    cells, threads = (np.array(values) for values in zip(*pairs, strict=True))
    codes = (threads // 32 * PER_WARP + threads % 32 + 1).astype(np.int32)
    index = (np.arange(rows)[:, None] * COLUMNS + cells).ravel().astype(np.int64)
    return Touch(index, np.tile(codes, rows), np.tile(codes, rows))


@given(st.lists(STEP, min_size=1, max_size=8), st.integers(0, 8), st.tuples(THREAD, THREAD))
def test_a_clash_is_with_an_end_of_the_latest_access_of_a_warp(
    steps: list[tuple[list[tuple[int, int]], list[int], str]], wide: int, asking: tuple[int, int]
) -> None:
    clocks, rows = Clocks(THREADS), 1
    records = TimedSeveral(clocks, COLUMNS)
    latest: dict[tuple[int, int], tuple[int, int, list[int]]] = {}  # time, site and codes
    for site, (pairs, meeting, what) in enumerate(steps):
        if site == wide:
            rows = ROWS
            clocks.widen(rows)
            records.widen(rows)
        together = np.zeros((rows, THREADS), np.bool_)
        together[:, meeting] = True
        clocks.meet(together)
        touch = touch_of(pairs, rows)
        if what == "drop":
            records.drop(touch.index)
            gone = {cell for cell, _ in pairs}
            latest = {key: access for key, access in latest.items() if key[0] not in gone}
            continue
        records.add(touch, site)
        for cell, warp in {(cell, thread // 32) for cell, thread in pairs}:
            codes = [
                thread // 32 * PER_WARP + thread % 32 + 1
                for other, thread in pairs
                if (other, thread // 32) == (cell, warp)
            ]
            latest[cell, warp] = clocks.now, site, codes
    for thread in asking:
        touch = touch_of([(cell, thread) for cell in range(COLUMNS)], rows)
        clash = records.clash(touch)
        found = [-1] * len(touch.index) if clash is None else clash.tolist()
        expected = []
        for index, code in zip(touch.index, touch.low, strict=True):
            blamed = [-1]
            for (cell, _), (time, site, codes) in latest.items():
                ends = {min(codes), max(codes)} if cell == index % COLUMNS else set()
                for by in ends:
                    if not clocks.before(index // COLUMNS, time, place(by), code):
                        blamed.append(int(by) << SITE_BITS | site)
            expected.append(max(blamed))
        assert found == expected
