"""Races in global memory: two blocks, or two threads of a block, and at least one writes.

Blocks of a launch run in any order, so nothing orders what they write to the same place, or what
one reads and another writes, but what releases and acquires; within a block barriers do, too
(`global_order`). Not recorded are loads that the compiler knows to be of
read-only data (`ld.global.nc`), and that a thread reads before another thread of its own block
writes. Asynchronous copies count when they are issued: that settles what they may race with in
other blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from gen.emulator.isa.ops import Value
from gen.emulator.memory.buffers import Buffer
from gen.emulator.memory.bulk_moves import Move
from gen.emulator.memory.global_memory import Site
from gen.emulator.memory.observer import ObservedChunk
from gen.emulator.translate.program import Program
from gen.emulator.warp.masks import NOBODY, Mask, narrow
from gen.emulator.watch.global_order import GlobalOrder
from gen.emulator.watch.global_records import (
    Numbers,
    Records,
    Touch,
)
from gen.emulator.watch.granules import extremes
from gen.emulator.watch.guesses import guesses

# Such accesses race with plain ones, as atomics do.
_STRONG = {"volatile", "relaxed", "mmio", "acquire", "release"}
# Loads past caches that no other block's stores reach: flags are polled so.
_COHERENT = {"cg", "cv"}


class GlobalRaces(GlobalOrder):
    """Finds races in global memory."""

    def __init__(self) -> None:
        super().__init__()
        self._guesses: dict[Program, set[int]] = {}

    def begin(self, chunk: ObservedChunk) -> None:
        """See Observer. Records last for a launch, and are about all its chunks."""
        fresh = chunk.launch is not self._launch
        super().begin(chunk)
        program = chunk.launch.program
        if program not in self._guesses:
            self._guesses[program] = guesses(program.blocks)
        self.guesses = self._guesses[program]
        if fresh:
            self.records: dict[Buffer, Records] = {}

    # -- accesses ------------------------------------------------------------------------------
    def load(
        self, chunk: ObservedChunk, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """See Observer."""
        if space == "shared":
            self.flag(chunk, site, address, mask)
            return
        if "nc" in site.item.modifiers and not self._changed(site, address):
            return
        for touch in self._touches(chunk, site, space, address, mask):
            words = set(site.item.modifiers)
            if (_STRONG | _COHERENT) & words and self.conflicts.releases.any:
                self.acquire(site, touch)
            if _STRONG & words or id(site.item) in self.guesses:
                self.conflicts.against_writer(chunk, site, "RAW", touch.granules())
            else:
                self._load(chunk, site, touch, kept=not words & {"nc", *_COHERENT})

    def _changed(self, site: Site, address: Value) -> bool:
        """Whether an access may be to a buffer that this launch has written to."""
        changed = [buffer for buffer, records in self.records.items() if records.changes]
        if not changed:
            return False
        least, most = int(address.min()) + site.offset, int(address.max()) + site.offset
        return any(b.base <= most and least < b.base + b.nbytes for b in changed)

    def _load(self, chunk: ObservedChunk, site: Site, touch: Touch, kept: bool = True) -> None:
        if touch.records.changes:
            granules = touch.granules()
            self.conflicts.against_writer(chunk, site, "RAW", granules)
            if site.item.opcode == "cp" or not _COHERENT & set(site.item.modifiers):
                self.conflicts.against_others(chunk, site, "RAW", granules, atomics=True)
        if kept:
            self.conflicts.add(touch, site, atomics=False)

    def copy(
        self, chunk: ObservedChunk, site: Site, shared_address: Value, global_address: Value,
        source_bytes: Value, mask: Mask | None,
    ) -> None:  # fmt: skip
        """See Observer."""
        whole = narrow(mask, source_bytes >= site.size)
        if whole is not NOBODY:
            for touch in self._find(chunk, global_address, site.size, whole):
                self._load(chunk, site, touch)
        if whole is mask:
            return
        # At an edge, only the first bytes are read.
        part = narrow(mask, (source_bytes > 0) & (source_bytes < site.size))
        for at in range(0, 0 if part is NOBODY else site.size, self.granule):
            some = narrow(part, source_bytes > at)
            if some is not NOBODY:
                for touch in self._find(chunk, global_address + np.int64(at), self.granule, some):
                    self._load(chunk, site, touch)

    def store(
        self, chunk: ObservedChunk, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """See Observer."""
        if _STRONG & set(site.item.modifiers):
            self.atomic(chunk, site, space, address, mask)
            return
        for touch in self._touches(chunk, site, space, address, mask):
            self._store(chunk, site, touch)

    def bulk(self, chunk: ObservedChunk, move: Move) -> None:
        """See Observer."""
        # Addresses of elements, lane by lane; those that are in no buffer exist in shared memory
        # only, or are memcheck's.
        move = move if move.into_shared or move.rule else move.once_a_warp()
        threads, epochs = (move.of(of)[:, None] for of in (self.threads, self.epoch))
        arrays = np.broadcast_arrays(move.addresses, threads, threads, epochs)
        for touch in self._by_buffer(chunk, move.size, *(array.ravel() for array in arrays)):
            if move.rule:
                self._atomic(chunk, move.site, touch)
            elif move.into_shared:
                self._load(chunk, move.site, touch)
            else:
                self._store(chunk, move.site, touch)

    def _store(self, chunk: ObservedChunk, site: Site, touch: Touch) -> None:
        touch = touch.granules()
        self.conflicts.against_writer(chunk, site, "WAW", touch)
        self.conflicts.against_others(chunk, site, "WAR", touch, atomics=False)
        self.conflicts.against_others(chunk, site, "WAW", touch, atomics=True)
        self.conflicts.add_writer(chunk, site, touch)

    def atomic(
        self, chunk: ObservedChunk, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """See Observer."""
        if space == "shared":
            self.flag(chunk, site, address, mask)
        for touch in self._touches(chunk, site, space, address, mask):
            self._atomic(chunk, site, touch)
            self.release(chunk, site, touch, mask)

    def _atomic(self, chunk: ObservedChunk, site: Site, touch: Touch) -> None:
        touch = touch.granules()
        self.conflicts.against_writer(chunk, site, "WAW", touch)
        self.conflicts.against_others(chunk, site, "WAR", touch, atomics=False)
        self.conflicts.add(touch, site, atomics=True)

    # -- records -------------------------------------------------------------------------------
    def _touches(
        self, chunk: ObservedChunk, site: Site, space: str, address: Value, mask: Mask | None
    ) -> Iterable[Touch]:
        """The pieces of an access, buffer by buffer."""
        if space != "global":
            return []
        return self._find(chunk, np.asarray(address) + np.int64(site.offset), site.size, mask)

    def _find(
        self, chunk: ObservedChunk, address: Value, size: int, mask: Mask | None
    ) -> Iterator[Touch]:
        """The pieces of `size` bytes at addresses, all offsets added, buffer by buffer."""
        exact = np.asarray(address).reshape(address.shape or (1,) * 6)
        low, high, used = extremes(self.threads, exact.shape, mask)
        good = exact & (size - 1) == 0
        good = good if used is None else good & used
        arrays = np.broadcast_arrays(exact, low, high, self._epochs(exact.shape, mask), good)
        return self._by_buffer(chunk, size, *(array[arrays[4]] for array in arrays[:4]))

    def _by_buffer(
        self, chunk: ObservedChunk, size: int, exact: Numbers, *rest: Numbers
    ) -> Iterator[Touch]:
        """Accesses of `size` bytes; what is in no buffer is left out."""
        several = max(1, size // self.granule)
        while exact.size and not self.conflicts.releases.too_many:
            buffer = chunk.memory.find(int(exact[0]))
            if buffer is None:
                here = exact == exact[0]
            else:
                here = (exact >= buffer.base) & (exact < buffer.base + buffer.nbytes)
                if buffer not in self.records:
                    self.records[buffer] = Records(buffer, self.granule)
                inside = here & (exact + size <= buffer.base + buffer.nbytes)
                records = self.records[buffer]
                index = (exact[inside] - records.start) // (several * self.granule)
                some = (array[inside] for array in rest)
                yield Touch(records, several, index, *some)
            exact, rest = exact[~here], tuple(array[~here] for array in rest)

    def _epochs(self, shape: tuple[int, ...], mask: Mask | None) -> Any:
        """Those of the blocks that access each place."""
        axes = tuple(i for i, n in enumerate(shape) if n == 1 and self.epoch.shape[i] > 1)
        if not axes:
            return self.epoch
        own = self.epoch if mask is None else np.where(mask.bits, self.epoch, 0)
        more = tuple(i for i, n in enumerate(shape) if n == 1 and own.shape[i] > 1)
        return own.max(more, keepdims=True)
