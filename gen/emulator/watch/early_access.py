"""racecheck of dependent launches: nothing in global memory may be touched before the wait.

A kernel that is launched as the dependent of the one before it may start while that one still runs.
What that one writes is complete, and what it reads may be overwritten, from `griddepcontrol.wait`
on. The instruction makes the earlier kernels' memory visible to the whole grid, so one thread may
wait for all of its block, with a barrier behind it. So the rule is: a block touches nothing in
global memory before any of its threads has waited. Kernels without the instruction are launched
when the one before has ended, and are not watched, unless they are said to be launched `early`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gen.emulator.isa.ops import Value
from gen.emulator.memory.bulk_moves import Move
from gen.emulator.memory.global_memory import Site
from gen.emulator.memory.observer import ChunkObserver, ObservedChunk
from gen.emulator.translate.program import Program
from gen.emulator.warp.masks import Bits, Mask, lanes_of
from gen.emulator.watch.findings import noun

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
        self.waiting: Any = np.ones((1,) * 6, np.bool_)  # blocks in which no thread has waited
        self.done = False  # there are none
        self.constants = [buffer for buffer in chunk.memory.buffers if buffer.constant]

    def wait_for_grids(self, chunk: ObservedChunk, mask: Mask | None) -> None:
        """See Observer."""
        waited = True if mask is None else mask.per_block(chunk.shape) > 0
        self.waiting = self.waiting & np.logical_not(waited)
        self.done = not self.waiting.any()

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
        used = (move.addresses >= 0) & move.of(self.waiting)[:, None]
        if used.any():
            mask = move.some(used.any(axis=1)).mask()
            self._report(chunk, move.site, move.nbytes, int(move.addresses[used][0]), mask.bits)

    def _lanes(self, mask: Mask | None) -> Bits:
        """Those of a mask whose blocks have not waited."""
        lanes: Bits = self.waiting if mask is None else self.waiting & mask.bits
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
