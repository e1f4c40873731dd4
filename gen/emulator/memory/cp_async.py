"""cp.async: copies from global to shared memory that are in flight until their group is waited for.

The source is read when the copy is issued, and shared memory is written at the wait: a kernel that
waits too little, or not at all, reads what was there before. Groups are counted for each thread;
as long as all lanes issue, commit and wait together, that is one list for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gen.emulator.isa.ops import Value
from gen.emulator.memory.global_memory import Site
from gen.emulator.memory.mbarrier import MBarriers
from gen.emulator.memory.observer import ObservedChunk
from gen.emulator.warp.masks import NOBODY, Bits, Mask, lanes_of, narrow


@dataclass(frozen=True)
class Copy:
    """Data on its way to shared memory, for the lanes of `mask`."""

    site: Site
    address: Value
    values: Any
    mask: Mask | None


@dataclass(frozen=True)
class Group:
    """Copies that the lanes of `mask` have committed together; those still in flight.

    With `arrival`, an mbarrier, they are not committed, but followed by an arrival there.
    """

    copies: list[Copy]
    mask: Mask | None
    arrival: tuple[Site, Value] | None = None


class Copies:
    """The asynchronous copies of one chunk."""

    def __init__(self, chunk: ObservedChunk, mbarriers: MBarriers) -> None:
        self.chunk, self.mbarriers = chunk, mbarriers
        self.open: list[Copy] = []  # issued, in no group yet
        self.groups: list[Group] = []  # the oldest first
        self.signals = 0  # how many of these end in an arrival

    def issue(
        self, site: Site, source: Site, target: Value, origin: Value, count: Value | None,
        mask: Mask | None,
    ) -> None:  # fmt: skip
        """Copy `site.size` bytes a lane, of which the first `count` are read (None: all)."""
        chunk = self.chunk
        target = chunk.near(site, target, mask) if chunk.clusters.size > 1 else target
        for observer in chunk.launch.observers:
            there, here = target + np.int64(site.offset), origin + np.int64(source.offset)
            observer.copy(chunk, site, there, here, np.int64(site.size) if count is None else count,
                          mask)  # fmt: skip
        if count is None:
            values = chunk.memory.load(source, origin, mask, chunk.report)[0]
        else:
            self._check_count(site, count, mask)
            values = self._read(source, origin, count, mask)
        self.open.append(Copy(site, target, values, mask))

    def _check_count(self, site: Site, count: Value, mask: Mask | None) -> None:
        """PTX leaves open what becomes of a copy that is to read more than it writes."""
        wrong = (count < 0) | (count > site.size)
        bad = wrong if mask is None else wrong & mask.bits
        if not np.any(bad):
            return
        chunk, counts = self.chunk, np.broadcast_to(count, np.shape(bad))
        block, threads, _ = lanes_of(bad, None, chunk.shape, chunk.origin)
        message = f"asynchronous copy of {site.size} bytes is told to read {counts[bad][0]} of them"
        chunk.launch.findings.add("memcheck", site.item, message, block, threads)

    def _read(self, source: Site, origin: Value, count: Value, mask: Mask | None) -> Value:
        """The first `count` bytes at `origin`, then zeros."""
        chunk, size = self.chunk, source.size
        values: Value = source.whole.type(0)
        whole = narrow(mask, count >= size)
        if whole is not NOBODY:
            loaded = chunk.memory.load(source, origin, whole, chunk.report)[0]
            values = loaded if whole is None else np.where(whole.bits, loaded, values)
        partial = narrow(mask, (count > 0) & (count < size))
        if partial is NOBODY:
            return values
        data = np.zeros((*chunk.shape, size), np.uint8)
        for at in range(size):
            lanes = narrow(partial, count > at)
            if lanes is not NOBODY:
                byte = replace(source, kind="u8", offset=source.offset + at, size=1, shift=0,
                               dtype=np.dtype(np.uint8), whole=np.dtype(np.uint8))  # fmt: skip
                got = chunk.memory.load(byte, origin, lanes, chunk.report)[0]
                data[..., at] = np.where(_bits(lanes), got, 0)
        return np.where(_bits(partial), data.view(source.whole)[..., 0], values)

    def commit(self, mask: Mask | None) -> None:
        """Make a group, for each lane of `mask`, of its copies that are in none yet."""
        for observer in self.chunk.launch.observers:
            observer.commit(self.chunk, mask)
        self.groups.append(Group(self._take_open(mask), mask))

    def _take_open(self, mask: Mask | None) -> list[Copy]:
        """The copies of the lanes that are in no group yet, which they no longer are."""
        mine: list[Copy] = []
        rest: list[Copy] = []
        for copy in self.open:
            if mask is None or copy.mask is mask:
                mine.append(copy)
                continue
            lanes = _bits(copy.mask)
            for bits, place in ((lanes & mask.bits, mine), (lanes & ~mask.bits, rest)):
                if bits.any():
                    place.append(replace(copy, mask=Mask(bits)))
        self.open = rest
        return mine

    def signal(self, site: Site, address: Value, counted: bool, mask: Mask | None) -> None:
        """Let each lane arrive at an mbarrier once its copies so far have landed.

        counted: the mbarrier's phase expects that arrival; else it does so from now on.
        """
        if not counted:
            self.mbarriers.track(site, address, mask)
        for observer in self.chunk.launch.observers:
            observer.signal(self.chunk, mask)
        self.signals += 1
        self.groups.append(Group(self._take_open(mask), mask, (site, address)))

    def wait(self, left: int, mask: Mask | None) -> None:
        """Let all but each lane's `left` latest groups arrive."""
        for observer in self.chunk.launch.observers:
            observer.wait(self.chunk, left, mask)
        if not self.signals and all(group.mask is mask for group in self.groups):
            arriving = len(self.groups) - left
            if arriving > 0:
                for group in self.groups[:arriving]:
                    self._land(group, None)
                del self.groups[:arriving]
            return
        newer = np.zeros((1,) * 6, np.int64)
        due: list[tuple[Group, Bits]] = []
        for group in reversed(self.groups):
            lanes = _bits(group.mask)
            if group.arrival:  # its copies belong to the next group that is committed
                due.append((group, lanes & _bits(mask) & (newer > left)))
                continue
            due.append((group, lanes & _bits(mask) & (newer >= left)))
            newer = newer + lanes
        self._land_due(due[::-1])

    def progress(self) -> bool:
        """Nothing else can happen: let the oldest arrival come about, if there is any."""
        oldest = next((group for group in self.groups if group.arrival), None)
        if oldest is None:
            return False
        until = self.groups.index(oldest) + 1
        later = self.groups[until:]
        due = [(group, _bits(group.mask) & _bits(oldest.mask)) for group in self.groups[:until]]
        self._land_due(due, later)
        return True

    def _land_due(self, due: list[tuple[Group, Bits]], later: Sequence[Group] = ()) -> None:
        """Land the given lanes of groups, of which the rest and `later` ones stay in flight."""
        self.groups = []
        for group, bits in due:
            self._land(group, bits)
            remaining = _bits(group.mask) & ~bits
            if remaining.any():
                self.groups.append(replace(group, mask=Mask(remaining)))
        self.groups += later
        self.signals = sum(group.arrival is not None for group in self.groups)

    def wait_all(self, mask: Mask | None) -> None:
        """Let every copy of the lanes arrive, those in no group too."""
        self.commit(mask)
        self.wait(0, mask)

    def _land(self, group: Group, bits: Bits | None) -> None:
        """Write the group's copies to shared memory for the lanes in `bits` (None: all)."""
        chunk = self.chunk
        for copy in group.copies:
            mask = copy.mask if bits is None else narrow(copy.mask, bits)
            if mask is not NOBODY:
                chunk.shared.store(copy.site, copy.address, copy.values, mask, chunk.report)
        if group.arrival:
            lanes = group.mask if bits is None else narrow(group.mask, bits)
            if lanes is not NOBODY:
                self.mbarriers.land(*group.arrival, lanes)

    def finish(self) -> None:
        """The chunk is done: what was never waited for arrives, and so is checked."""
        self.groups.append(Group(self.open, None))
        for group in self.groups:
            self._land(replace(group, arrival=None), None)


def _bits(mask: Mask | None) -> Bits:
    return np.ones((1,) * 6, np.bool_) if mask is None else mask.bits
