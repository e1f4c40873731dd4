"""racecheck: accesses of shared memory by two threads, at least one a write, that nothing orders.

What orders accesses: a barrier, for the threads that met there; `bar.warp.sync` (`__syncwarp`), for
the lanes of the warp; a thread's own program order. Running in lockstep does not, nor do shuffles,
votes or tensor-core instructions: the PTX manual gives memory order to none of these. Atomics do
not race with each other. A `cp.async` writes at any time from its issue until its thread has waited
for it: even that thread's own accesses race with it.

Every granule of shared memory (see `granules.py`) keeps its last writer, and the first and the last
by number of the threads that have read it, since they were synchronised. That is exact: an access
races with one of these if it races with any.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gen.emulator.context import Context
from gen.emulator.granules import PER_WARP, WARP_LANE, SharedWatch, Touch, thread_of
from gen.emulator.memory import Site
from gen.emulator.ops import Value
from gen.emulator.records import SITE_BITS, Clash, Last, Several
from gen.emulator.warp import THREAD_AXES, Bits, Mask

_TOGETHER = ("ldmatrix", "stmatrix")


class SharedRaces(SharedWatch):
    """Finds races in shared memory."""

    def begin(self, chunk: Context) -> None:
        """See Observer."""
        super().begin(chunk)
        self.sites: list[Site] = []
        self._numbers: dict[Site, int] = {}
        self.writes, self.flights = Last(1, self.columns), Last(1, self.columns, own=True)
        self.reads, self.atomics = Several(1, self.columns), Several(1, self.columns)
        self.groups = np.zeros((1, self.columns), np.int64)  # of the copies in flight
        self.committed: Any = np.zeros((1,) * 6, np.int64)  # groups of each thread so far

    def widen(self) -> None:
        """See SharedWatch."""
        for records in (self.writes, self.flights, self.reads, self.atomics):
            records.widen(self.blocks)
        self.groups = np.repeat(self.groups, self.blocks, axis=0)
        super().widen()

    # -- accesses ------------------------------------------------------------------------------
    def load(
        self, chunk: Context, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """See Observer."""
        touch = self._touch(site, space, address, mask)
        if touch is None:
            return
        for earlier in (self.writes, self.atomics, self.flights):
            self._report(chunk, site, "RAW", touch, earlier.clash(touch))
        self.reads.add(touch, self._number(site))

    def store(
        self, chunk: Context, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """See Observer."""
        touch = self._touch(site, space, address, mask)
        if touch is not None:
            self._before_write(chunk, site, touch)
            self._report(chunk, site, "WAW", touch, self.writes.add(touch, self._number(site)))

    def atomic(
        self, chunk: Context, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """See Observer."""
        touch = self._touch(site, space, address, mask)
        if touch is None:
            return
        self._report(chunk, site, "WAR", touch, self.reads.clash(touch))
        for earlier in (self.writes, self.flights):
            self._report(chunk, site, "WAW", touch, earlier.clash(touch))
        self.atomics.add(touch, self._number(site))

    def _touch(self, site: Site, space: str, address: Value, mask: Mask | None) -> Touch | None:
        if space != "shared":
            return None
        touch = self.place(site, address + np.int64(site.offset), mask)
        if touch is None or site.item.opcode not in _TOGETHER:
            return touch
        warp = (touch.low // PER_WARP * PER_WARP + WARP_LANE).astype(np.int32)
        return Touch(touch.index, warp, warp)

    def _before_write(self, chunk: Context, site: Site, touch: Touch) -> None:
        self._report(chunk, site, "WAR", touch, self.reads.clash(touch))
        for earlier in (self.writes, self.atomics, self.flights):
            self._report(chunk, site, "WAW", touch, earlier.clash(touch))
        # Whatever races with these from now on races with the write as well.
        self.reads.drop(touch.index)
        self.atomics.drop(touch.index)

    # -- asynchronous copies -------------------------------------------------------------------
    def copy(
        self, chunk: Context, site: Site, shared_address: Value, global_address: Value,
        source_bytes: Value, mask: Mask | None,
    ) -> None:  # fmt: skip
        """See Observer."""
        touch = self.place(site, shared_address, mask)
        if touch is None:
            return
        self._before_write(chunk, site, touch)
        self._report(chunk, site, "WAW", touch, self.flights.add(touch, self._number(site)))
        row, code = touch.index // self.columns, touch.low
        self.groups.reshape(-1)[touch.index] = self._per_thread(self.committed)[row, code]

    def commit(self, chunk: Context, mask: Mask | None) -> None:
        """See Observer."""
        self._widen_for(mask)
        self.committed = self.committed + (1 if mask is None else mask.bits)

    def wait(self, chunk: Context, groups_left: int, mask: Mask | None) -> None:
        """See Observer."""
        if self.flights.empty:
            return
        self._widen_for(mask)
        done = self.committed - groups_left
        done = self._per_thread(done if mask is None else np.where(mask.bits, done, -1))
        codes = self.flights.codes
        thread = np.maximum(codes, 0) >> SITE_BITS
        landed = (codes >= 0) & (self.groups < done[np.arange(len(codes))[:, None], thread])
        if landed.any():
            self.writes.codes = np.where(landed, codes, self.writes.codes)
            self.writes.empty = False
            codes[landed] = -1
            self.flights.empty = bool((codes < 0).all())

    def _widen_for(self, mask: Mask | None) -> None:
        if mask is not None and self.rows < self.blocks and _differs(mask.bits):
            self.widen()

    def _per_thread(self, values: Any) -> npt.NDArray[Any]:
        """Values over a chunk's axes as (rows, thread code)."""
        shape = [n if i in THREAD_AXES or self.rows > 1 else 1 for i, n in enumerate(self.full)]
        by_block = np.broadcast_to(values, shape).transpose(0, 2, 4, 1, 3, 5)
        table = np.zeros((self.rows, (int(self.codes.max()) // PER_WARP + 1) * PER_WARP),
                         by_block.dtype)  # fmt: skip
        table[:, self.codes.ravel()] = by_block.reshape(self.rows, -1)
        return table

    # -- what orders ---------------------------------------------------------------------------
    def barrier(self, chunk: Context, blocks: Bits | None) -> None:
        """See Observer."""
        rows = None
        if blocks is not None and not blocks.all():
            if self.rows < self.blocks:
                self.widen()
            rows = np.broadcast_to(blocks, self.owners).ravel()
        for records in (self.writes, self.reads, self.atomics):
            records.clear(rows)

    def meet(self, chunk: Context, mask: Mask) -> None:
        """See Observer."""
        self._widen_for(mask)
        threads = self._per_thread(mask.bits)
        # What stands for a whole warp is forgotten with any of its lanes.
        lanes = threads.reshape(self.rows, -1, PER_WARP)
        lanes[..., [0, WARP_LANE, PER_WARP - 1]] = lanes.any(axis=-1, keepdims=True)
        for records in (self.writes, self.reads, self.atomics):
            records.forget(threads)

    def warp_sync(self, chunk: Context, mask: Mask | None) -> None:
        """See Observer."""
        self._widen_for(mask)
        lanes = self._per_thread(True if mask is None else mask.bits)
        warps = np.asarray(lanes.reshape(self.rows, -1, PER_WARP).any(axis=-1))
        for records in (self.writes, self.reads, self.atomics):
            records.order(warps)

    # -- findings ------------------------------------------------------------------------------
    def _number(self, site: Site) -> int:
        if site not in self._numbers:
            self._numbers[site] = len(self.sites)
            self.sites.append(site)
        return self._numbers[site]

    def _report(
        self, chunk: Context, site: Site, kind: str, touch: Touch, clash: Clash | None
    ) -> None:
        """A finding for each earlier instruction in `clash`, at the first granule that has it."""
        if clash is None:
            return
        numbers = clash & ((1 << SITE_BITS) - 1)
        numbers[clash < 0] = -1
        for number in np.unique(numbers[numbers >= 0]):
            at = int(np.argmax(numbers == number))
            self._report_one(chunk, site, kind, touch, at, int(clash[at]))

    def _report_one(
        self, chunk: Context, site: Site, kind: str, touch: Touch, at: int, record: int
    ) -> None:
        earlier, by = self.sites[record & ((1 << SITE_BITS) - 1)], record >> SITE_BITS
        index, low, high = int(touch.index[at]), int(touch.low[at]), int(touch.high[at])
        mine = (
            low if thread_of(low, chunk.launch.block) != thread_of(by, chunk.launch.block) else high
        )
        block = chunk.launch.block
        address = chunk.describe_shared(index % self.columns * self.granule)
        line = f" at line {earlier.item.line}" if earlier.item.line else ""
        message = (
            f"{_noun(site)} of {site.size} bytes at {address} races with the "
            f"{_noun(earlier)}{line} ({kind})"
        )
        flying = earlier.item.opcode == "cp" and self.flights.codes.reshape(-1)[index] == record
        message += ", which is still in flight" if flying else ""
        chunk.launch.findings.add(
            "racecheck", site.item, message, self.block_at(chunk, index),
            (thread_of(mine, block), thread_of(by, block)), address, kind, earlier.item,
        )  # fmt: skip


def _differs(bits: Bits) -> bool:
    return any(bits.shape[i] > 1 for i in (0, 2, 4))


def _noun(site: Site) -> str:
    names = {"ld": "load", "ldu": "load", "st": "store", "cp": "cp.async"}
    return names.get(site.item.opcode, site.item.opcode)
