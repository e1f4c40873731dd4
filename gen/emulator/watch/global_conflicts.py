"""Accesses of global memory that race with those before, of which there are records."""

from __future__ import annotations

import numpy as np

from gen.emulator.memory.global_memory import Site
from gen.emulator.memory.observer import ObservedChunk
from gen.emulator.warp.masks import Bits
from gen.emulator.watch.findings import Sites, noun
from gen.emulator.watch.global_records import THREADS, Numbers, Touch, place_of
from gen.emulator.watch.releases import Releases

# What fences and releases (1), barriers and those of a whole cluster add to the epochs of blocks.
BARRIERS = np.int64(1 << 16)
CLUSTERS = np.int64(1 << 38)
_SITE_BITS = 20
_SITE = (1 << _SITE_BITS) - 1


class GlobalConflicts:
    """Of one launch: which accesses race, and the records of who came before.

    granule: bytes. `releases` has what stores that release and loads that acquire put in order.
    """

    def __init__(self, chunk: ObservedChunk, granule: int) -> None:
        self.sites, self.releases = Sites(), Releases(THREADS, int(BARRIERS))
        self._granule = granule
        self._together = THREADS * chunk.clusters.size  # numbers per cluster

    def against_writer(self, chunk: ObservedChunk, site: Site, kind: str, touch: Touch) -> None:
        """Reports what races with the latest plain write; `kind` is RAW or WAW."""
        if touch.records.writer is None:
            return
        found = touch.records.writer[touch.index]
        if found.max(initial=-1) < 0:
            return
        by = found >> _SITE_BITS
        same_block = (by // THREADS == touch.low // THREADS) & (
            by // THREADS == touch.high // THREADS
        )
        same = (by == touch.low) & (by == touch.high)
        epoch = touch.records.epoch[touch.index]
        ordered = same | same_block & (epoch // BARRIERS < touch.epoch // BARRIERS)
        if self._together > THREADS:
            near = (by // self._together == touch.low // self._together) & (
                by // self._together == touch.high // self._together
            )
            ordered = ordered | near & (epoch // CLUSTERS != touch.epoch // CLUSTERS)
        bad = (found >= 0) & ~ordered
        bad[bad] = ~self.releases.ordered(touch.high[bad], by[bad], epoch[bad])
        self._report(chunk, site, kind, touch, bad, found)

    def against_others(
        self, chunk: ObservedChunk, site: Site, kind: str, touch: Touch, atomics: bool
    ) -> None:
        """Reports what races with reads, or with atomics; `kind` is WAR, RAW or WAW."""
        for (are_atomics, several), records in touch.records.others.items():
            if are_atomics != atomics:
                continue
            first, last = (array[touch.index // several] for array in records)
            if last.max(initial=-1) < 0:
                continue
            early = first >> _SITE_BITS
            early = early // self._together != touch.low // self._together
            late = (last >> _SITE_BITS) // self._together != touch.high // self._together
            bad = (last >= 0) & (early | late)
            other = np.where(early, first, last)
            bad[bad] = ~self.releases.met(touch.high[bad], other[bad] >> _SITE_BITS)
            self._report(chunk, site, kind, touch, bad, other)

    def add(self, touch: Touch, site: Site, atomics: bool) -> None:
        """Records reads, or atomics."""
        number = self.sites.number(site)
        low, high = touch.records.make_others(atomics, touch.several)
        np.minimum.at(low, touch.index, touch.low << _SITE_BITS | number)
        np.maximum.at(high, touch.index, touch.high << _SITE_BITS | number)

    def add_writer(self, chunk: ObservedChunk, site: Site, touch: Touch) -> None:
        """Records plain writes, of which several at one place race with each other."""
        number = touch.low << _SITE_BITS | self.sites.number(site)
        writer = touch.records.make_writer()
        writer[touch.index] = number
        touch.records.epoch[touch.index] = touch.epoch
        kept = writer[touch.index]
        bad = (kept != number) | (touch.low != touch.high)
        other = np.where(kept != number, kept, touch.high << _SITE_BITS | self.sites.number(site))
        self._report(chunk, site, "WAW", touch, bad, other)

    def _report(
        self, chunk: ObservedChunk, site: Site, kind: str, touch: Touch, bad: Bits, other: Numbers
    ) -> None:
        if not bad.any():
            return
        at = int(np.argmax(bad))
        record = int(other[at])
        earlier, by = self.sites[record & _SITE], record >> _SITE_BITS
        mine = int(touch.low[at] if touch.low[at] != by else touch.high[at])
        block, thread = place_of(mine, chunk.launch)
        other_block, other_thread = place_of(by, chunk.launch)
        where = chunk.memory.describe(touch.records.start + int(touch.index[at]) * self._granule)
        line = f" at line {earlier.item.line}" if earlier.item.line else ""
        message = f"{noun(site)} of {site.size} bytes at {where} races with the {noun(earlier)}"
        message += line
        if other_block != block:
            message += f" of block ({','.join(map(str, other_block))})"
        chunk.launch.findings.add(
            "racecheck", site.item, f"{message} ({kind})", block, (thread, other_thread), where,
            kind, earlier.item,
        )  # fmt: skip
