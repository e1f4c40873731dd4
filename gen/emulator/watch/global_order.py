"""What orders accesses of global memory: barriers within a block; releases, acquires and fences.

Threads of a block count in epochs. An access comes before those of a later epoch of its block.
Barriers begin epochs, of a few threads for the whole block; so do the phases of mbarriers. Fences
and releases begin one within these, which `releases` tells apart: what comes behind is not shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gen.emulator.isa.ops import Value
from gen.emulator.memory.global_memory import Site
from gen.emulator.memory.observer import ChunkObserver, ObservedChunk, ObservedLaunch
from gen.emulator.translate.program import Program
from gen.emulator.warp.clusters import OFFSET, RANK_SHIFT
from gen.emulator.warp.masks import THREAD_AXES, Bits, Mask
from gen.emulator.watch.flag_clocks import ACQUIRES, RELEASES, has_flags, is_strong
from gen.emulator.watch.global_conflicts import BARRIERS, CLUSTERS, GlobalConflicts
from gen.emulator.watch.global_records import THREADS, Numbers, Touch, thread_numbers
from gen.emulator.watch.granules import granule_of
from gen.emulator.watch.releases import Place

_BLOCK = "cta"  # a scope: such an access is in no order with those of other blocks
_SCOPED = {"ld", "st", "atom", "red", "fence", "membar"}


@dataclass(frozen=True)
class SharedTouch:
    """Accesses of shared memory, each by one thread: to which byte of which block."""

    index: Numbers
    low: Numbers
    high: Numbers
    epoch: Numbers
    records: None = None


AnyTouch = Touch | SharedTouch


class GlobalOrder(ChunkObserver):
    """Keeps the epochs, and what threads show each other."""

    def __init__(self) -> None:
        self._launch: ObservedLaunch | None = None
        self._granules: dict[Program, int] = {}

    def begin(self, chunk: ObservedChunk) -> None:
        """See Observer. What is shown lasts for a launch, and is about all its chunks."""
        launch = chunk.launch
        if launch.program not in self._granules:
            self._granules[launch.program] = granule_of(launch.program, "global")
        self.granule = self._granules[launch.program]
        if launch is not self._launch:
            self._launch = launch
            self.conflicts = GlobalConflicts(chunk, self.granule)
            items = [item for block in launch.program.blocks for item in block.body]
            self._flags = has_flags(items)
            self._scoped = any(
                item.opcode in _SCOPED and _BLOCK in item.modifiers for item in items
            )
        self.epoch: Any = np.zeros((1,) * 6, np.int64)
        self.block_epoch: Any = self.epoch  # the last one that began with a barrier of the block
        self._early: dict[int, Any] = {}  # by barrier: the latest epoch of who has come and gone on
        self._orders = False  # whether any thread of the chunk has released anything, or fenced
        self.threads = thread_numbers(chunk)

    # -- releases and acquires -----------------------------------------------------------------
    def release(self, chunk: ObservedChunk, site: Site, touch: AnyTouch, mask: Mask | None) -> None:
        """What an atomic, or a store as strong as one, shows; before that, what it sees."""
        words, releases = set(site.item.modifiers), self.conflicts.releases
        shows = bool(RELEASES & words)
        if not (shows or releases.begun):
            return
        sees, adds = site.item.opcode == "atom", site.item.opcode != "st"
        blocks = self.threads[:, :1, :, :1, :, :1] // THREADS
        blocks, epochs = np.broadcast_arrays(blocks, self.block_epoch)
        since = dict(zip(blocks.ravel().tolist(), epochs.ravel().tolist(), strict=True))
        order = np.argsort(touch.high, kind="stable")  # as lanes take turns
        pieces = (of[order].tolist() for of in (touch.index, touch.high, touch.epoch))
        shown: set[Place] = set()  # by these lanes, whose values are the same or one of which lasts
        for index, thread, epoch in zip(*pieces, strict=True):
            if releases.too_many:
                break
            block = thread // THREADS
            for place in self._places(site, touch, index, block):
                if sees:
                    releases.acquire(place, thread)
                more = adds or place in shown
                shown.add(place)
                if shows:
                    releases.release(place, thread, epoch, since[block], more)
                else:
                    releases.write(place, thread, more)
        if shows:
            self._orders = True
            self.epoch = self.epoch + _blocks(chunk, mask)

    def acquire(self, site: Site, touch: AnyTouch) -> None:
        """What a load sees, at once or behind the next fence."""
        releases = self.conflicts.releases
        see = releases.acquire if ACQUIRES & set(site.item.modifiers) else releases.look
        each = 1 if touch.records is None else THREADS  # of a block, one thread stands for all
        groups = touch.index, touch.low // each, touch.high // each
        for index, first, last in np.unique(np.stack(groups), axis=1).T.tolist():
            for thread in range(first * each, last * each + 1, each):
                for place in self._places(site, touch, index, thread // THREADS):
                    see(place, thread)

    def _places(self, site: Site, touch: AnyTouch, index: int, block: int) -> list[Place]:
        """Where an access shows and sees: that of all blocks, that of its own block, or both.

        In a kernel with no access or fence of the scope of a block, the former is enough.
        """
        if touch.records is None:
            return [Place(None, index, index >> RANK_SHIFT)]
        if not self._scoped:
            return [Place(touch.records, index)]
        own = Place(touch.records, index, block)
        return [own] if _BLOCK in site.item.modifiers else [Place(touch.records, index), own]

    def flag(self, chunk: ObservedChunk, site: Site, address: Value, mask: Mask | None) -> None:
        """An access of shared memory, where a flag may guard data in global memory."""
        if not (self._flags and is_strong(site.item)):
            return
        if not (self._orders or RELEASES & set(site.item.modifiers)):
            return
        used = np.broadcast_to(True if mask is None else mask.bits, chunk.shape)
        arrays = (address + np.int64(site.offset), self.threads, self.epoch)
        exact, threads, epochs = (np.broadcast_to(array, chunk.shape)[used] for array in arrays)
        home, size = threads // THREADS, chunk.clusters.size
        if size > 1:
            rank = (exact >> RANK_SHIFT) - 1
            home = np.where(rank < 0, home, home // size * size + rank)
        touch = SharedTouch(home << RANK_SHIFT | exact & OFFSET, threads, threads, epochs)
        if site.item.opcode == "ld":
            self.acquire(site, touch)
        else:
            self.release(chunk, site, touch, mask)

    def fence(self, chunk: ObservedChunk, mask: Mask | None, wide: bool) -> None:
        """See Observer."""
        if not (wide or self._scoped or self._flags):
            return
        self._orders, shape = True, chunk.shape
        used = np.broadcast_to(True if mask is None else mask.bits, shape)
        arrays = (self.threads, self.epoch, self.block_epoch)
        self.conflicts.releases.fence(
            wide, *(np.broadcast_to(array, shape)[used] for array in arrays)
        )
        self.epoch = self.epoch + _blocks(chunk, mask)

    # -- barriers ------------------------------------------------------------------------------
    def barrier(self, chunk: ObservedChunk, blocks: Bits | None) -> None:
        """See Observer."""
        self._met(1 if blocks is None else blocks)

    def observe(self, chunk: ObservedChunk, offset: int, mask: Mask | None, wide: bool) -> None:
        """See Observer. As `meet`: an mbarrier's phase is taken to order the whole block.

        In a cluster it is taken to order all of its blocks.
        """
        self._met(_blocks(chunk, mask))
        if chunk.clusters.size > 1:
            self.cluster_wait(chunk, mask)

    def cluster_wait(self, chunk: ObservedChunk, mask: Mask | None) -> None:
        """See Observer."""
        some = np.asarray(_blocks(chunk, mask), np.bool_)
        blocks = some.reshape(some.shape or (1,) * 6)
        self._met(CLUSTERS // BARRIERS * chunk.clusters.any(blocks))

    def arrive_early(self, chunk: ObservedChunk, number: int, mask: Mask) -> None:
        """See Observer. What the lanes do from now on, that barrier does not order."""
        latest = np.where(mask.bits, self.epoch, 0).max(THREAD_AXES, keepdims=True)
        self._early[number] = np.maximum(self._early.get(number, 0), latest)
        self.epoch = self.epoch + BARRIERS * mask.bits

    def meet(self, chunk: ObservedChunk, number: int, mask: Mask, early: Mask) -> None:
        """See Observer. Orders fewer threads than the whole block; all are taken for ordered.

        But those that came early stay where they are, which may be behind it.
        """
        self._met(_blocks(chunk, mask), self._early.get(number, 0), early.bits)

    def warp_sync(self, chunk: ObservedChunk, mask: Mask | None) -> None:
        """See Observer. As `meet`, but for what a release shows."""
        self.epoch = self.epoch + BARRIERS * _blocks(chunk, mask)
        releases = self.conflicts.releases
        if releases.begun:
            releases.meet(self._some_blocks(_blocks(chunk, mask)))

    def _met(self, steps: Any, behind: Any = 0, but: Bits | None = None) -> None:
        """The threads of blocks have met: a later epoch begins, by so many steps.

        It is behind all that they have come to, but for some lanes; of these, `behind` an epoch.
        """
        others = self.epoch if but is None else np.where(but, 0, self.epoch)
        latest = np.maximum(others.max(THREAD_AXES, keepdims=True), behind)
        met = np.asarray(steps) > 0
        begun = latest + BARRIERS * steps
        self.epoch = np.where(met if but is None else met & ~but, begun, self.epoch)
        self.block_epoch = np.where(met, begun, self.block_epoch)
        releases = self.conflicts.releases
        if releases.begun:
            blocks = self._some_blocks(met)
            epochs = np.broadcast_to(self.block_epoch, self.threads[:, :1, :, :1, :, :1].shape)
            releases.barrier(blocks, epochs[np.broadcast_to(met, epochs.shape)])

    def _some_blocks(self, some: Any) -> Numbers:
        """The numbers of blocks."""
        blocks: Numbers = self.threads[:, :1, :, :1, :, :1] // THREADS
        return blocks[np.broadcast_to(np.asarray(some) > 0, blocks.shape)]


def _blocks(chunk: ObservedChunk, mask: Mask | None) -> Any:
    """1 for each block that has lanes of a mask."""
    return 1 if mask is None else mask.per_block(chunk.shape) > 0
