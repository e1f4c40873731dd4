"""racecheck of dependent launches: nothing in global memory may be touched before the wait.

A kernel that is launched as the dependent of the one before it may start while that one still runs.
What that one writes is complete, and what it reads may be overwritten, from `griddepcontrol.wait`
on. The instruction makes the earlier kernels' memory visible to the whole grid, so one thread may
wait for others of its block that meet it at a barrier behind it, or see the phase of an mbarrier
complete at which it has arrived since. So the rule is: a thread touches nothing in global memory
before it has waited, or is ordered behind one that has. Kernels without the instruction are
launched when the one before has ended, and are not watched, unless they are said to be launched
`early`.
"""

from __future__ import annotations

import numpy as np

from gen.emulator.isa.ops import Value
from gen.emulator.memory.bulk_moves import Move
from gen.emulator.memory.global_memory import Site
from gen.emulator.memory.observer import ChunkObserver, ObservedChunk
from gen.emulator.translate.program import Program
from gen.emulator.warp.clusters import OFFSET
from gen.emulator.warp.masks import WARP, Bits, Mask, lanes_of
from gen.emulator.warp.shuffles import from_warps, to_warps
from gen.emulator.watch.findings import noun

_CLUSTER = -1  # stands for the offset of the cluster's barrier
_WAIT = "griddepcontrol.wait"


class EarlyAccesses(ChunkObserver):
    """Finds accesses of global memory before `griddepcontrol.wait`.

    early: whether the next launch may start before the one before it has ended, wherever it waits.
    """

    def __init__(self, early: bool = False) -> None:
        self.early = early
        self._waits: dict[Program, bool] = {}

    def concerns(self, program: Program) -> bool:
        """See Observer: those that are launched early, or wait somewhere."""
        if self.early:
            return True
        if program not in self._waits:
            items = (item for block in program.blocks for item in block.body)
            self._waits[program] = any(item.name == _WAIT for item in items)
        return self._waits[program]

    def begin(self, chunk: ObservedChunk) -> None:
        """See Observer."""
        self.waited: Bits = np.zeros((1,) * 6, np.bool_)  # lanes that have, or are behind one
        self.done = False  # all of them
        self.arrived: dict[int, Bits] = {}  # blocks of which one has arrived at an mbarrier
        self.constants = [buffer for buffer in chunk.memory.buffers if buffer.constant]

    def wait_for_grids(self, chunk: ObservedChunk, mask: Mask | None) -> None:
        """See Observer."""
        self._add(np.ones((1,) * 6, np.bool_) if mask is None else mask.bits)

    def _add(self, lanes: Bits) -> None:
        self.waited = self.waited | lanes
        self.done = bool(self.waited.all())

    # -- order ---------------------------------------------------------------------------------
    def barrier(self, chunk: ObservedChunk, blocks: Bits | None) -> None:
        """See Observer."""
        if not self.done:
            some = Mask(self.waited).per_block(chunk.shape) > 0
            self._add(some if blocks is None else some & blocks)

    def meet(self, chunk: ObservedChunk, number: int, mask: Mask, early: Mask) -> None:
        """See Observer. Who does not wait for the others is not behind them."""
        if not self.done:
            some = Mask(self.waited & mask.bits).per_block(chunk.shape) > 0
            self._add(some & mask.bits & ~early.bits)

    def warp_sync(self, chunk: ObservedChunk, mask: Mask | None) -> None:
        """See Observer."""
        if not self.done:
            lanes = np.ones((1,) * 6, np.bool_) if mask is None else mask.bits
            some = to_warps(chunk, self.waited & lanes).any(axis=-1, keepdims=True)
            self._add(from_warps(chunk, np.repeat(some, WARP, axis=-1)) & lanes)

    def arrive(self, chunk: ObservedChunk, offset: int, mask: Mask | None, done: Bits) -> None:
        """See Observer."""
        if not self.done:
            lanes = self.waited if mask is None else self.waited & mask.bits
            some = Mask(lanes).per_block(chunk.shape) > 0
            if (home := chunk.clusters.home(offset)) is not None:
                there = np.zeros_like(some)
                np.logical_or.at(there.reshape(-1), home.reshape(-1), some.reshape(-1))
                offset, some = offset & OFFSET, there
            self.arrived[offset] = self.arrived.get(offset, np.False_) | some

    def observe(self, chunk: ObservedChunk, offset: int, mask: Mask | None, wide: bool) -> None:
        """See Observer."""
        if not self.done and offset in self.arrived:
            some = self.arrived[offset]
            self._add(some if mask is None else some & mask.bits)

    def cluster_arrive(
        self, chunk: ObservedChunk, mask: Mask | None, releases: Mask | None, done: Bits
    ) -> None:
        """See Observer."""
        if not self.done:
            lanes = self.waited if mask is None else self.waited & mask.bits
            some = chunk.clusters.any(Mask(lanes).per_block(chunk.shape) > 0)
            self.arrived[_CLUSTER] = self.arrived.get(_CLUSTER, np.False_) | some

    def cluster_wait(self, chunk: ObservedChunk, mask: Mask | None) -> None:
        """See Observer."""
        self.observe(chunk, _CLUSTER, mask, True)

    # -- accesses ------------------------------------------------------------------------------
    def load(
        self, chunk: ObservedChunk, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """See Observer."""
        if not self.done and space == "global":
            self._check(chunk, site, address + np.int64(site.offset), self._lanes(mask))

    store = atomic = load

    def copy(
        self, chunk: ObservedChunk, site: Site, shared_address: Value, global_address: Value,
        source_bytes: Value, mask: Mask | None,
    ) -> None:  # fmt: skip
        """See Observer. A copy may read nothing."""
        if not self.done:
            self._check(chunk, site, global_address, self._lanes(mask) & (source_bytes > 0))

    def bulk(self, chunk: ObservedChunk, move: Move) -> None:
        """See Observer. Bulk copies count when they are issued."""
        if self.done:
            return
        used = (move.addresses >= 0) & move.of(~self.waited)[:, None]
        if used.any():
            mask = move.some(used.any(axis=1)).mask()
            self._report(chunk, move.site, move.nbytes, int(move.addresses[used][0]), mask.bits)

    def _lanes(self, mask: Mask | None) -> Bits:
        """Those of a mask that have not waited."""
        lanes: Bits = ~self.waited if mask is None else ~self.waited & mask.bits
        return lanes

    def _check(self, chunk: ObservedChunk, site: Site, address: Value, lanes: Bits) -> None:
        for buffer in self.constants:
            inside = (address >= buffer.base) & (address < buffer.base + buffer.nbytes)
            lanes = lanes & ~inside
        if lanes.any():
            every, here = np.broadcast_arrays(address, lanes)
            self._report(chunk, site, site.size, int(every[here][0]), here)

    def _report(
        self, chunk: ObservedChunk, site: Site, size: int, address: int, lanes: Bits
    ) -> None:
        block, threads, _ = lanes_of(lanes, None, chunk.shape, chunk.origin)
        where = chunk.memory.describe(address)
        message = f"{noun(site)} of {size} bytes at {where} before {_WAIT}: "
        message += "the kernel before this one may still be running"
        chunk.launch.findings.add("racecheck", site.item, message, block, threads, where)
