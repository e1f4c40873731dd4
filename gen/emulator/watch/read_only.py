"""Loads of read-only data (`ld.global.nc`, `__ldg`) from memory that the same launch writes.

PTX allows such a load only of memory that nothing writes while the kernel runs, whichever thread
writes it, before or after: caches that it goes through see no stores.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gen.emulator.isa.ops import Value
from gen.emulator.memory.buffers import Buffer
from gen.emulator.memory.bulk_moves import Move
from gen.emulator.memory.global_memory import Site
from gen.emulator.memory.observer import ChunkObserver, ObservedChunk, ObservedLaunch
from gen.emulator.memory.repeated import repeated
from gen.emulator.translate.program import Program
from gen.emulator.warp.masks import Mask, spread
from gen.emulator.watch.findings import Sites, noun
from gen.emulator.watch.global_records import Numbers, place_of, thread_numbers
from gen.emulator.watch.granules import granule_of


class _Touched:
    """For each granule of a buffer: which instruction loaded or wrote it last, -1 for none."""

    def __init__(self, buffer: Buffer, granule: int) -> None:
        self.start = buffer.base & -16  # where all pieces are aligned
        count = -(-(buffer.base - self.start + buffer.nbytes) // granule)
        self.by = {nc: repeated(count, -1, np.int32) for nc in (True, False)}
        self.any = {True: False, False: False}  # of these, whether there is one
        self.granule, self._shift = granule, granule.bit_length() - 1

    def index(self, addresses: Numbers, size: int) -> Numbers:
        """The granules of accesses of `size` bytes at these addresses, which begin in the buffer.

        Launches have millions of loads and few findings: this takes as few passes as it can.
        """
        first: Numbers = (addresses - self.start) >> self._shift
        if size <= self.granule:
            return first
        index: Numbers = (first[:, None] + np.arange(size // self.granule)).ravel()
        return index[index < len(self.by[True])]  # what is misaligned may end behind it


class ReadOnlyLoads(ChunkObserver):
    """Finds them, as racecheck."""

    def __init__(self) -> None:
        self._launch: ObservedLaunch | None = None
        self._programs: dict[
            Program, int
        ] = {}  # whose granules have so many bytes, 0: no such load

    def concerns(self, program: Program) -> bool:
        """See Observer."""
        if program not in self._programs:
            items = (item for block in program.blocks for item in block.body)
            loads = any("nc" in item.modifiers for item in items)
            self._programs[program] = granule_of(program, "global") if loads else 0
        return self._programs[program] > 0

    def begin(self, chunk: ObservedChunk) -> None:
        """See Observer. Records last for a launch, and are about all its chunks."""
        if chunk.launch is not self._launch:
            self._launch = chunk.launch
            self.granule = self._programs[chunk.launch.program]
            self.sites = Sites()
            self.touched: dict[Buffer, _Touched] = {}

    def load(
        self, chunk: ObservedChunk, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """See Observer."""
        if "nc" in site.item.modifiers:
            self._touch(chunk, site, np.asarray(address) + np.int64(site.offset), mask)

    def store(
        self, chunk: ObservedChunk, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """See Observer."""
        if space == "global":
            self._touch(chunk, site, np.asarray(address) + np.int64(site.offset), mask)

    atomic = store

    def bulk(self, chunk: ObservedChunk, move: Move) -> None:
        """See Observer."""
        if not move.into_shared:
            addresses = np.unique(move.addresses)
            self._touch_all(chunk, move.site, addresses, move.size, addresses, None)

    def _touch(self, chunk: ObservedChunk, site: Site, address: Numbers, mask: Mask | None) -> None:
        address = address.reshape(address.shape or (1,) * 6)
        active = None if mask is None else mask.over(address.shape)
        used = address.ravel() if active is None else address[spread(active.bits, address.shape)]
        self._touch_all(chunk, site, used, site.size, address, mask)

    def _touch_all(
        self, chunk: ObservedChunk, site: Site, used: Numbers, size: int, address: Numbers,
        mask: Mask | None,
    ) -> None:  # fmt: skip
        """An access of `size` bytes at each address that is `used`, of those that lanes have."""
        loads, number = "nc" in site.item.modifiers, self.sites.number(site)
        while used.size:
            buffer = chunk.memory.find(int(used[0]))
            if buffer is None:  # memcheck's
                used = used[used != used[0]]
                continue
            end = buffer.base + buffer.nbytes
            here, rest = used, used[:0]
            if int(used.min()) < buffer.base or int(used.max()) + size > end:
                inside = (used >= buffer.base) & (used + size <= end)
                inside |= used == used[0]
                here, rest = used[inside], used[~inside]
            if buffer not in self.touched:
                self.touched[buffer] = _Touched(buffer, self.granule)
            touched = self.touched[buffer]
            index = touched.index(here, size)
            touched.by[loads][index] = number
            touched.any[loads] = True
            other = touched.by[not loads][index] if touched.any[not loads] else index[:0]
            if other.max(initial=-1) >= 0:
                at = int(np.argmax(other >= 0))
                place = touched.start + int(index[at]) * self.granule
                lane = self._lane(chunk, address, size, place, mask)
                self._report(chunk, site, self.sites[int(other[at])], place, lane)
            used = rest

    def _lane(
        self, chunk: ObservedChunk, address: Numbers, size: int, place: int, mask: Mask | None
    ) -> int:
        """The number of a thread that accesses a place; of a bulk copy, the first one's."""
        numbers = thread_numbers(chunk)
        if address.ndim != numbers.ndim:
            return int(numbers.flat[0])
        hit: Any = (address <= place) & (place < address + size)
        hit = np.broadcast_to(hit if mask is None else hit & mask.bits, numbers.shape)
        return int(numbers[hit][0])

    def _report(self, chunk: ObservedChunk, site: Site, other: Site, place: int, lane: int) -> None:
        where = chunk.memory.describe(place)
        load, store = (site, other) if "nc" in site.item.modifiers else (other, site)
        line = f" at line {store.item.line}" if store.item.line else ""
        message = (
            f"load of {load.size} bytes at {where} is of read-only data (ld.global.nc, __ldg), "
            f"and the {noun(store)}{line} writes there"
        )
        block, thread = place_of(lane, chunk.launch)
        chunk.launch.findings.add(
            "racecheck", load.item, message, block, (thread,), where, "read-only", store.item
        )
