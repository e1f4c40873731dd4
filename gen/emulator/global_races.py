"""Races in global memory: two blocks, or two threads of a block, and at least one writes.

Blocks of a launch run in any order, so nothing orders what they write to the same place, or what
one reads and another writes. Within a block, barriers do. Kernels that let blocks wait for each
other (they have a fence, or an acquire or release, of GPU scope) are left alone. Not recorded are
loads that the compiler knows to be of read-only data (`ld.global.nc`), and that a thread reads
before another thread of its own block writes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gen.emulator.checks import Coordinates, noun
from gen.emulator.codegen import Program
from gen.emulator.context import Context, Launch
from gen.emulator.granules import extremes, granule_of
from gen.emulator.memory import Buffer, Site
from gen.emulator.moves import Move
from gen.emulator.observe import Observer
from gen.emulator.ops import Value
from gen.emulator.warp import Bits, Mask

Numbers = npt.NDArray[np.int64]
_SITE_BITS = 20
_SITE = (1 << _SITE_BITS) - 1
_THREADS = 1 << 10  # numbers per block
_MOST = np.iinfo(np.int64).max
_SCOPED = re.compile(
    r"(membar\.(gl|sys)|fence\..*(gpu|sys)"
    r"|(?!mbarrier|fence\.mbarrier_init|barrier|.*\.cta\b).*\.(acquire|release|acq_rel)\b)"
)


class Records:
    """For each granule of a buffer: thread number << SITE_BITS | site, -1 (or _MOST) for none."""

    def __init__(self, buffer: Buffer, granule: int) -> None:
        self.count = -(-buffer.nbytes // granule)
        self.writer = np.full(self.count, -1, np.int64)
        self.epoch = np.zeros(self.count, np.int64)  # of the writer's block, when it wrote
        # The first and the last reader (False) or atomic access (True), once there is any.
        self.others: dict[bool, tuple[Numbers, Numbers]] = {}

    def make_others(self, atomics: bool) -> tuple[Numbers, Numbers]:
        """Records of readers, or of atomics."""
        if atomics not in self.others:
            self.others[atomics] = (
                np.full(self.count, _MOST, np.int64),
                np.full(self.count, -1, np.int64),
            )
        return self.others[atomics]


@dataclass
class _Touch:
    buffer: Buffer
    records: Records
    index: Numbers
    low: Numbers  # numbers of the first and the last thread at each granule
    high: Numbers
    epoch: Numbers


class GlobalRaces(Observer):
    """Finds races in global memory."""

    def __init__(self) -> None:
        self._launch: Launch | None = None
        self._programs: dict[Program, tuple[int, bool]] = {}

    def begin(self, chunk: Context) -> None:
        """See Observer. Records last for a launch, and are about all its chunks."""
        launch = chunk.launch
        if launch is not self._launch:
            self._launch = launch
            self.records: dict[Buffer, Records] = {}
            self.sites: list[Site] = []
            self._numbers: dict[Site, int] = {}
        if launch.program not in self._programs:
            items = [i for b in launch.program.blocks for i in b.body]
            scoped = any(_SCOPED.match(item.name) for item in items)
            self._programs[launch.program] = granule_of(launch.program, "global"), scoped
        self.granule, self.off = self._programs[launch.program]
        self.epoch: Any = np.zeros((1,) * 6, np.int64)
        self.threads = _thread_numbers(chunk)

    # -- accesses ------------------------------------------------------------------------------
    def load(
        self, chunk: Context, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """See Observer."""
        if "nc" in site.item.modifiers and not self._recorded(site, address):
            return
        for touch in self._touches(chunk, site, space, address, mask):
            self._against_writer(chunk, site, "RAW", touch)
            self._against_others(chunk, site, "RAW", touch, atomics=True)
            if "nc" not in site.item.modifiers:
                self._add(touch, site, atomics=False)

    def _recorded(self, site: Site, address: Value) -> bool:
        """Whether an access may be to a buffer that has records."""
        if not self.records:
            return False
        least, most = int(address.min()) + site.offset, int(address.max()) + site.offset
        return any(b.base <= most and least < b.base + b.nbytes for b in self.records)

    def store(
        self, chunk: Context, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """See Observer."""
        for touch in self._touches(chunk, site, space, address, mask):
            self._store(chunk, site, touch)

    def bulk(self, chunk: Context, move: Move) -> None:
        """See Observer. Bulk copies count when they are issued."""
        for buffer in [] if self.off else chunk.memory.buffers:
            here = (move.addresses >= buffer.base) & (move.addresses < buffer.base + buffer.nbytes)
            if not here.any():
                continue
            records = self.records.setdefault(buffer, Records(buffer, self.granule))
            index = (move.addresses[here] - buffer.base) // self.granule
            several = max(1, move.size // self.granule)
            lanes = np.broadcast_to(move.of(self.threads)[:, None], here.shape)[here]
            numbers = lanes.repeat(several)
            epoch = np.broadcast_to(move.of(self.epoch)[:, None], here.shape)[here].repeat(several)
            index = (index[:, None] + np.arange(several)).ravel()
            touch = _Touch(buffer, records, index, numbers, numbers, epoch)
            if move.into_shared:
                self._against_writer(chunk, move.site, "RAW", touch)
                self._against_others(chunk, move.site, "RAW", touch, atomics=True)
                self._add(touch, move.site, atomics=False)
            else:
                self._store(chunk, move.site, touch)

    def _store(self, chunk: Context, site: Site, touch: _Touch) -> None:
        self._against_writer(chunk, site, "WAW", touch)
        self._against_others(chunk, site, "WAR", touch, atomics=False)
        self._against_others(chunk, site, "WAW", touch, atomics=True)
        number = touch.low << _SITE_BITS | self._number(site)
        touch.records.writer[touch.index] = number
        touch.records.epoch[touch.index] = touch.epoch
        kept = touch.records.writer[touch.index]
        bad = (kept != number) | (touch.low != touch.high)
        other = np.where(kept != number, kept, touch.high << _SITE_BITS | self._number(site))
        self._report(chunk, site, "WAW", touch, bad, other)

    def atomic(
        self, chunk: Context, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """See Observer."""
        for touch in self._touches(chunk, site, space, address, mask):
            self._against_writer(chunk, site, "WAW", touch)
            self._against_others(chunk, site, "WAR", touch, atomics=False)
            self._add(touch, site, atomics=True)

    def barrier(self, chunk: Context, blocks: Bits | None) -> None:
        """See Observer."""
        self.epoch = self.epoch + (1 if blocks is None else blocks)

    def observe(self, chunk: Context, offset: int, mask: Mask | None) -> None:
        """See Observer. As `meet`: an mbarrier's phase is taken to order the whole block."""
        self.epoch = self.epoch + (1 if mask is None else mask.per_block(chunk.shape) > 0)

    def meet(self, chunk: Context, mask: Mask) -> None:
        """See Observer. Orders fewer threads than the whole block; all are taken for ordered."""
        self.epoch = self.epoch + (mask.per_block(chunk.shape) > 0)

    def warp_sync(self, chunk: Context, mask: Mask | None) -> None:
        """See Observer. As `meet`."""
        self.epoch = self.epoch + (1 if mask is None else mask.per_block(chunk.shape) > 0)

    # -- records -------------------------------------------------------------------------------
    def _touches(
        self, chunk: Context, site: Site, space: str, address: Value, mask: Mask | None
    ) -> list[_Touch]:
        """The granules of an access, buffer by buffer."""
        if self.off or space != "global":
            return []
        exact = np.asarray(address).reshape(address.shape or (1,) * 6) + np.int64(site.offset)
        low, high, used = extremes(self.threads, exact.shape, mask)
        good = exact & (site.size - 1) == 0
        good = good if used is None else good & used
        arrays = np.broadcast_arrays(exact, low, high, self._epochs(exact.shape), good)
        exact, low, high, epoch = (array[arrays[4]] for array in arrays[:4])
        found = []
        while exact.size:
            buffer = chunk.memory.find(int(exact[0]))
            if buffer is None:  # memcheck's
                here = exact == exact[0]
            else:
                here = (exact >= buffer.base) & (exact < buffer.base + buffer.nbytes)
                inside = here & (exact + site.size <= buffer.base + buffer.nbytes)
                index = (exact[inside] - buffer.base) // self.granule
                several = max(1, site.size // self.granule)
                index = (index[:, None] + np.arange(several)).ravel()
                rest = (array[inside].repeat(several) for array in (low, high, epoch))
                if buffer not in self.records:
                    self.records[buffer] = Records(buffer, self.granule)
                found.append(_Touch(buffer, self.records[buffer], index, *rest))
            exact, low, high, epoch = (array[~here] for array in (exact, low, high, epoch))
        return found

    def _epochs(self, shape: tuple[int, ...]) -> Any:
        axes = tuple(i for i, n in enumerate(shape) if n == 1 and self.epoch.shape[i] > 1)
        return self.epoch.max(axes, keepdims=True) if axes else self.epoch

    def _against_writer(self, chunk: Context, site: Site, kind: str, touch: _Touch) -> None:
        found = touch.records.writer[touch.index]
        if found.max(initial=-1) < 0:
            return
        by = found >> _SITE_BITS
        same_block = (by // _THREADS == touch.low // _THREADS) & (
            by // _THREADS == touch.high // _THREADS
        )
        same = (by == touch.low) & (by == touch.high)
        ordered = same | same_block & (touch.records.epoch[touch.index] != touch.epoch)
        self._report(chunk, site, kind, touch, (found >= 0) & ~ordered, found)

    def _against_others(
        self, chunk: Context, site: Site, kind: str, touch: _Touch, atomics: bool
    ) -> None:
        if atomics not in touch.records.others:
            return
        first, last = (array[touch.index] for array in touch.records.others[atomics])
        if last.max(initial=-1) < 0:
            return
        early = first >> _SITE_BITS
        early = early // _THREADS != touch.low // _THREADS
        late = (last >> _SITE_BITS) // _THREADS != touch.high // _THREADS
        bad = (last >= 0) & (early | late)
        self._report(chunk, site, kind, touch, bad, np.where(early, first, last))

    def _add(self, touch: _Touch, site: Site, atomics: bool) -> None:
        number = self._number(site)
        low, high = touch.records.make_others(atomics)
        np.minimum.at(low, touch.index, touch.low << _SITE_BITS | number)
        np.maximum.at(high, touch.index, touch.high << _SITE_BITS | number)

    def _number(self, site: Site) -> int:
        if site not in self._numbers:
            self._numbers[site] = len(self.sites)
            self.sites.append(site)
        return self._numbers[site]

    # -- findings ------------------------------------------------------------------------------
    def _report(
        self, chunk: Context, site: Site, kind: str, touch: _Touch, bad: Bits, other: Numbers
    ) -> None:
        if not bad.any():
            return
        at = int(np.argmax(bad))
        record = int(other[at])
        earlier, by = self.sites[record & _SITE], record >> _SITE_BITS
        mine = int(touch.low[at] if touch.low[at] != by else touch.high[at])
        block, thread = _place(mine, chunk.launch)
        other_block, other_thread = _place(by, chunk.launch)
        where = chunk.memory.describe(touch.buffer.base + int(touch.index[at]) * self.granule)
        line = f" at line {earlier.item.line}" if earlier.item.line else ""
        message = f"{noun(site)} of {site.size} bytes at {where} races with the {noun(earlier)}"
        message += line
        if other_block != block:
            message += f" of block ({','.join(map(str, other_block))})"
        chunk.launch.findings.add(
            "racecheck", site.item, f"{message} ({kind})", block, (thread, other_thread), where,
            kind, earlier.item,
        )  # fmt: skip


def _thread_numbers(chunk: Context) -> Numbers:
    """A number for each thread of the launch, over the axes of a chunk."""
    z, tz, y, ty, x, tx = chunk.shape
    place = np.ix_(*(np.arange(n, dtype=np.int64) for n in (z, tz, y, ty, x, tx)))
    gx, gy, _ = chunk.launch.grid
    ox, oy, oz = chunk.origin
    block = ((place[0] + oz) * gy + place[2] + oy) * gx + place[4] + ox
    numbers: Numbers = block * _THREADS + (place[1] * ty + place[3]) * tx + place[5]
    return numbers


def _place(number: int, launch: Launch) -> tuple[Coordinates, Coordinates]:
    """(x, y, z) of a thread's block, and of the thread in it."""
    block, thread = divmod(number, _THREADS)
    (gx, gy, _), (tx, ty, _) = launch.grid, launch.block
    return (
        (block % gx, block // gx % gy, block // (gx * gy)),
        (thread % tx, thread // tx % ty, thread // (tx * ty)),
    )
