"""racecheck: accesses of shared memory by two threads, at least one a write, that nothing orders.

What orders accesses: a barrier, for the threads that met there; `bar.warp.sync` (`__syncwarp`), for
the lanes of the warp; a thread's own program order. Running in lockstep does not, nor do shuffles,
votes or tensor-core instructions: the PTX manual gives memory order to none of these. Atomics do
not race with each other. A `cp.async` writes at any time from its issue until its thread has waited
for it: even that thread's own accesses race with it.

An mbarrier orders what threads did before they arrived, and copies that it waited for, before what
those do who have seen its phase complete. Kernels that have any, or barriers for part of a block,
are watched with `vector_clocks`.

Without them, every granule of shared memory (see `granules`) keeps its last writer, and the
first and the last by number of the threads that have read it, since they were synchronised. That is
exact: an access races with one of these if it races with any.

Bulk copies may miss what threads wrote to shared memory, ordered or not, unless a
`fence.proxy.async` stands between, in that order: without one they are found, too, whether they
read those bytes or overwrite them. So are those whose mbarrier has been initialised without one, or
without a `fence.mbarrier_init`, behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gen.emulator.isa.classes import is_barrier
from gen.emulator.isa.ops import Value
from gen.emulator.memory.global_memory import Site
from gen.emulator.memory.observer import ObservedChunk
from gen.emulator.ptx.module import Instruction
from gen.emulator.warp.clusters import OFFSET, RANK_SHIFT
from gen.emulator.warp.masks import THREAD_AXES, Bits, Coordinates, Mask, narrow
from gen.emulator.warp.shuffles import all_lanes, to_warps
from gen.emulator.watch.findings import Sites, noun
from gen.emulator.watch.granules import PER_WARP, WARP_LANE, SharedWatch, Touch
from gen.emulator.watch.last_access import SITE_BITS, Clash, Last, Several
from gen.emulator.watch.timed_access import TimedLast, TimedSeveral
from gen.emulator.watch.vector_clocks import Clocks


class Readers(Protocol):
    """Who has read granules, or will."""

    def clash(self, touch: Touch) -> Clash | None:
        """The records at `touch` that nothing has ordered before it."""
        ...


# What a finding says of an access, of where it is, and of the earlier one.
RACES = "{access} at {place} races with {earlier}"
# The clocks' keys of a cluster's barrier, and of all fences; mbarriers' are their offsets.
CLUSTER, FENCES = -1, -2
_ACQUIRES = {"acquire", "acq_rel"}
_TOGETHER = ("ldmatrix", "stmatrix")


class AccessRaces(SharedWatch):
    """Finds races in shared memory; `copy_races` adds the copies in flight."""

    def begin(self, chunk: ObservedChunk) -> None:
        """See Observer."""
        super().begin(chunk)
        self.sites = Sites()
        self.flights = Last(1, self.columns, own=True)  # copies that are to write
        self.leaving = Last(1, self.columns, own=True)  # copies that are to read
        self.clocks = _clocks(chunk)
        self.each = self.clocks is not None
        self.writes: Last | TimedLast
        self.reads: Several | TimedSeveral
        self.atomics: Several | TimedSeveral
        if self.clocks is None:
            self.writes = Last(1, self.columns)
            self.reads, self.atomics = Several(1, self.columns), Several(1, self.columns)
        else:
            self.writes = TimedLast(self.clocks, self.columns)
            self.reads = TimedSeveral(self.clocks, self.columns)
            self.atomics = TimedSeveral(self.clocks, self.columns)
        self.readers: list[Readers] = [self.reads, self.leaving]

    def widen(self) -> None:
        """See SharedWatch."""
        for records in (self.writes, self.flights, self.leaving, self.reads, self.atomics):
            records.widen(self.blocks)
        if self.clocks:
            self.clocks.widen(self.blocks)
        super().widen()

    # -- accesses ------------------------------------------------------------------------------
    def load(
        self, chunk: ObservedChunk, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """See Observer."""
        touch = self._touch(site, space, address, mask)
        if touch is None:
            return
        for earlier in (self.writes, self.atomics, self.flights):
            self._report(chunk, site, "RAW", touch, earlier.clash(touch))
        self.reads.add(touch, self.sites.number(site))

    def store(
        self, chunk: ObservedChunk, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """See Observer."""
        touch = self._touch(site, space, address, mask)
        if touch is not None:
            self._before_write(chunk, site, touch)
            self._report(chunk, site, "WAW", touch, self.writes.add(touch, self.sites.number(site)))

    def atomic(
        self, chunk: ObservedChunk, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """See Observer."""
        touch = self._touch(site, space, address, mask)
        if self.clocks and space == "shared" and _ACQUIRES & set(site.item.modifiers):
            self.clocks.observe(FENCES, self._lanes(mask))
        if touch is not None:
            self._before_atomic(chunk, site, touch)

    def fence(self, chunk: ObservedChunk, mask: Mask | None, wide: bool) -> None:
        """See Observer. Seen by every atomic in shared memory that acquires, whatever its place.

        It counts for all lanes of a warp: cuda::pipeline elects one that has it for the others.
        """
        if self.clocks:
            if mask is not None:
                warps = np.asarray(to_warps(chunk, mask.bits).any(axis=-1))
                mask = Mask(all_lanes(chunk, warps))
            lanes = self._lanes(mask)
            self.clocks.arrive(FENCES, lanes, np.ones(self.rows, np.bool_))

    def _before_atomic(self, chunk: ObservedChunk, site: Site, touch: Touch) -> None:
        for reads in self.readers:
            self._report(chunk, site, "WAR", touch, reads.clash(touch))
        for earlier in (self.writes, self.flights):
            clash = self.unseen(touch, earlier.clash(touch))
            self._report(chunk, site, "WAW", touch, clash)
        self.atomics.add(touch, self.sites.number(site))

    def unseen(self, touch: Touch, clash: Clash | None) -> Clash | None:
        """What of a clash no fence has shown, either."""
        return clash

    def _touch(self, site: Site, space: str, address: Value, mask: Mask | None) -> Touch | None:
        if space != "shared":
            return None
        touch = self.place(site, address + np.int64(site.offset), mask)
        if touch is None or site.item.opcode not in _TOGETHER:
            return touch
        warp = (touch.low // PER_WARP * PER_WARP + WARP_LANE).astype(np.int32)
        return Touch(touch.index, warp, warp)

    def _before_write(self, chunk: ObservedChunk, site: Site, touch: Touch) -> None:
        for reads in self.readers:
            self._report(chunk, site, "WAR", touch, reads.clash(touch))
        for earlier in (self.writes, self.atomics, self.flights):
            self._report(chunk, site, "WAW", touch, earlier.clash(touch))
        self.forget(touch)

    def forget(self, touch: Touch) -> None:
        """What races with earlier accesses from now on races with the write there as well."""
        self.reads.drop(touch.index)
        self.atomics.drop(touch.index)

    # -- threads -------------------------------------------------------------------------------
    def _widen_for(self, mask: Mask | None) -> None:
        if mask is not None and self.rows < self.blocks:
            folded = self.fold_mask(mask)
            if folded is not None and _differs(folded.bits):
                self.widen()

    def _per_thread(self, values: Any) -> npt.NDArray[Any]:
        """Values over a chunk's axes as (rows, thread code)."""
        shape = [n if i in THREAD_AXES or self.rows > 1 else 1 for i, n in enumerate(self.full)]
        if self.clusters.size > 1:
            values = self.clusters.fold(np.asarray(values).reshape(np.shape(values) or (1,) * 6))
        by_block = np.broadcast_to(values, shape).transpose(0, 2, 4, 1, 3, 5)
        table = np.zeros((self.rows, (int(self.codes.max()) // PER_WARP + 1) * PER_WARP),
                         by_block.dtype)  # fmt: skip
        table[:, self.codes.ravel()] = by_block.reshape(self.rows, -1)
        return table

    def _lanes(self, mask: Mask | None) -> npt.NDArray[np.bool_]:
        """A mask as (rows, thread)."""
        assert self.clocks is not None
        self._widen_for(mask)
        return self.clocks.lanes(self._per_thread(np.True_ if mask is None else mask.bits))

    def _rows(self, blocks: Bits, rank: int = 0) -> npt.NDArray[np.bool_]:
        """What is true of blocks, those of a rank in their clusters, for each row."""
        clusters = self.clusters
        flat = np.broadcast_to(blocks, clusters.row.shape).reshape(-1)
        flat = flat if clusters.size == 1 else flat[clusters.peers[rank, clusters.firsts]]
        if self.rows < self.blocks and flat.min() != flat.max():
            self.widen()
        return flat[: self.rows]

    def _objects(self, offset: int, mask: Mask | None) -> Iterator[tuple[int, int, Mask | None]]:
        """An mbarrier in each block where lanes name it: its key for the clocks, rank and lanes."""
        if self.clusters.size == 1:
            yield offset & OFFSET, 0, mask
        elif rank := offset >> RANK_SHIFT:
            yield offset - (1 << RANK_SHIFT), rank - 1, mask
        else:
            for rank, some in self.clusters.by_rank(mask):
                yield rank << RANK_SHIFT | offset, rank, some

    # -- what orders ---------------------------------------------------------------------------
    def arrive(self, chunk: ObservedChunk, offset: int, mask: Mask | None, done: Bits) -> None:
        """See Observer."""
        if self.clocks:
            for key, rank, some in self._objects(offset, mask):
                rows = self._rows(done, rank)
                self.clocks.arrive(key, self._lanes(some), rows)

    def observe(self, chunk: ObservedChunk, offset: int, mask: Mask | None) -> None:
        """See Observer."""
        if self.clocks:
            for key, _, some in self._objects(offset, mask):
                self.clocks.observe(key, self._lanes(some))

    def cluster_arrive(
        self, chunk: ObservedChunk, mask: Mask | None, releases: Mask | None, done: Bits
    ) -> None:
        """See Observer."""
        assert self.clocks is not None
        rows = self._rows(done)
        if releases is not mask and self.clocks.proxies:
            self.clocks.arrive_inits(CLUSTER, self._lanes(mask), np.zeros_like(rows))
        self.clocks.arrive(CLUSTER, self._lanes(releases), rows)

    def cluster_wait(self, chunk: ObservedChunk, mask: Mask | None) -> None:
        """See Observer."""
        assert self.clocks is not None
        self.clocks.observe(CLUSTER, self._lanes(mask))

    def barrier(self, chunk: ObservedChunk, blocks: Bits | None) -> None:
        """See Observer."""
        if self.clocks:
            whole = np.ones((1,) * 6, np.bool_) if blocks is None else blocks
            for _, some in self.clusters.by_rank(Mask(whole)):
                self.clocks.meet(self._lanes(some))
            return
        rows = None
        if blocks is not None and not blocks.all():
            if self.rows < self.blocks:
                self.widen()
            rows = np.broadcast_to(blocks, self.owners).ravel()
        for records in self._records():
            records.clear(rows)

    def meet(self, chunk: ObservedChunk, mask: Mask, early: Mask) -> None:
        """See Observer."""
        assert self.clocks is not None
        self._widen_for(early)
        for rank, some in self.clusters.by_rank(mask):
            before = narrow(early, self.clusters.rank == rank)
            self.clocks.meet(self._lanes(some), early=self._lanes(before))

    def warp_sync(self, chunk: ObservedChunk, mask: Mask | None) -> None:
        """See Observer."""
        if self.clocks:
            self.clocks.meet(self._lanes(mask), by_warp=True)
            return
        self._widen_for(mask)
        lanes = self._per_thread(True if mask is None else mask.bits)
        warps = np.asarray(lanes.reshape(self.rows, -1, PER_WARP).any(axis=-1))
        for records in self._records():
            records.order(warps)

    def _records(self) -> list[Last | Several]:
        """The records that forget what is ordered, which those with clocks need not."""
        records = (self.writes, self.reads, self.atomics)
        return [item for item in records if isinstance(item, (Last, Several))]

    # -- findings ------------------------------------------------------------------------------
    def _report(
        self, chunk: ObservedChunk, site: Site, kind: str, touch: Touch, clash: Clash | None,
        what: str = RACES,
    ) -> None:  # fmt: skip
        """A finding for each earlier instruction in `clash`, at the first granule that has it.

        what: it says of the two instructions.
        """
        if clash is None:
            return
        numbers = clash & ((1 << SITE_BITS) - 1)
        numbers[clash < 0] = -1
        for number in np.unique(numbers[numbers >= 0]):
            at = int(np.argmax(numbers == number))
            self._report_one(chunk, site, kind, touch, at, int(clash[at]), what)

    def _report_one(
        self,
        chunk: ObservedChunk,
        site: Site,
        kind: str,
        touch: Touch,
        at: int,
        record: int,
        what: str,
    ) -> None:
        earlier, by = self.sites[record & ((1 << SITE_BITS) - 1)], record >> SITE_BITS
        index, low, high = int(touch.index[at]), int(touch.low[at]), int(touch.high[at])
        mine = low if self.who(chunk, low) != self.who(chunk, by) else high
        (rank, thread), (by_rank, by_thread) = (self.who(chunk, code) for code in (mine, by))
        block, address = self.block_of(chunk, index, rank), self.where(chunk, index)
        line = f" at line {earlier.item.line}" if earlier.item.line else ""
        access, other = f"{noun(site)} of {site.size} bytes", f"the {noun(earlier)}{line}"
        if (home := self.block_at(chunk, index)) != block:
            address += f" of block ({','.join(map(str, home))})"
        if by_rank != rank:
            other += f" of block ({','.join(map(str, self.block_of(chunk, index, by_rank)))})"
        message = f"{what.format(access=access, place=address, earlier=other)} ({kind})"
        flying = any(f.codes.reshape(-1)[index] == record for f in (self.flights, self.leaving))
        flying |= earlier.item.opcode == "wgmma" and kind == "WAR"
        message += ", which is still in flight" if flying else ""
        chunk.launch.findings.add(
            "racecheck", site.item, message, block, (thread, by_thread), address, kind,
            earlier.item,
        )  # fmt: skip

    def who(self, chunk: ObservedChunk, code: int) -> tuple[int, Coordinates]:
        """The rank of a thread's block in its cluster, and the thread's place in the block."""
        return code // self.block_codes, self.thread(chunk, code)


def _differs(bits: Bits) -> bool:
    return any(bits.shape[i] > 1 for i in (0, 2, 4))


def _clocks(chunk: ObservedChunk) -> Clocks | None:
    """The clocks of a kernel that needs them.

    It has mbarriers, barriers for part of a block or for clusters, or clusters of several blocks.
    """
    blocks, several = chunk.launch.program.blocks, chunk.clusters.size
    items = [item for block in blocks for item in block.instructions]
    by_proxy = ("cp.async.bulk", "cp.reduce", "wgmma.mma")
    copies = any(item.name.startswith(by_proxy) for item in items)
    parts = any(block.kind == "barrier" and len(block.end.operands) > 1 for block in blocks)
    mbarriers = any(item.opcode == "mbarrier" for item in items)
    if not (copies or parts or mbarriers or several > 1 or any(map(_is_beyond, items))):
        return None
    return Clocks(chunk.threads, copies or (several > 1 and mbarriers), several)


def _is_beyond(item: Instruction) -> bool:
    """Whether it is a barrier for more than its block, or without waiting."""
    return item.name.startswith("barrier.cluster") or (
        is_barrier(item) and "arrive" in item.modifiers
    )
