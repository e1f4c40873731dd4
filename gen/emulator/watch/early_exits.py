"""racecheck of clusters: a block exits behind all that others do to its shared memory."""

from __future__ import annotations

import numpy as np

from gen.emulator.memory.observer import ObservedChunk
from gen.emulator.warp.masks import THREAD_AXES, Mask
from gen.emulator.watch.findings import noun
from gen.emulator.watch.granules import Touch
from gen.emulator.watch.last_access import SITE_BITS, Clash
from gen.emulator.watch.ordering import CLUSTER
from gen.emulator.watch.shared_races import AccessRaces

_EXIT = CLUSTER - 1  # the clocks' key of the exit of block 0 of a cluster; the next one's is below


class ExitRaces(AccessRaces):
    """Finds accesses to blocks of a cluster whose exit nothing orders behind them."""

    def exit(self, chunk: ObservedChunk, mask: Mask | None) -> None:
        """See Observer."""
        if self.clocks is None or self.clusters.size == 1 or chunk.live is None:
            return
        gone = chunk.live.per_block(chunk.shape) == 0
        for rank, some in self.clusters.by_rank(mask):
            here = np.any(True if some is None else some.bits, axis=THREAD_AXES, keepdims=True)
            rows, lanes = self._rows(gone & here, rank), self._lanes(some)
            self.clocks.arrive(_EXIT - rank, lanes, rows)
            if rows.any():
                self.clocks.observe(_EXIT - rank, lanes)
                self._check(chunk, rank, some, np.broadcast_to(rows, (self.rows,)))

    def _check(self, chunk: ObservedChunk, rank: int, mask: Mask | None, rows: np.ndarray) -> None:
        """Look for what is not ordered before the last thread of the blocks of a rank exits."""
        threads = self._per_thread(np.True_ if mask is None else mask.bits)
        last = threads[rows].argmax(axis=1).astype(np.int32)
        granules = rank * self.each_block + np.arange(self.each_block)
        index = (np.flatnonzero(rows)[:, None] * self.columns + granules).ravel()
        touch = Touch(index, (codes := last.repeat(self.each_block)), codes)
        for records in (self.writes, self.reads, self.atomics):
            clash = records.clash(touch)
            if clash is not None:
                self._report_exits(chunk, rank, touch, clash)

    def _report_exits(self, chunk: ObservedChunk, rank: int, touch: Touch, clash: Clash) -> None:
        """A finding for each instruction of other blocks."""
        foreign = (clash >= 0) & ((clash >> SITE_BITS) // self.block_codes != rank)
        numbers = np.where(foreign, clash & (1 << SITE_BITS) - 1, -1)
        for number in np.unique(numbers[foreign]):
            at = int(np.argmax(numbers == number))
            site, index = self.sites[int(number)], int(touch.index[at])
            by, thread = self.who(chunk, int(clash[at]) >> SITE_BITS)
            block, where = self.block_of(chunk, index, by), self.where(chunk, index)
            home = ",".join(map(str, self.block_at(chunk, index)))
            message = (
                f"{noun(site)} of {site.size} bytes at {where} of block ({home}), which may have "
                "exited: a cluster barrier is missing before its end"
            )
            chunk.launch.findings.add("racecheck", site.item, message, block, [thread], where)
