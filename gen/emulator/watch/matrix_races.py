"""racecheck of matrices in shared memory that wgmma reads, at any time until it is waited for.

A matrix must have been written, in order, before each of the four warps: by bulk copies, or by
threads and shown by `fence.proxy.async`. Nothing may overwrite it before a warp has waited for the
group, and all that follows is ordered behind that warp.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gen.emulator.isa.classes import WARPGROUP
from gen.emulator.memory.bulk_moves import Move, Numbers
from gen.emulator.memory.observer import MatrixRead, ObservedChunk
from gen.emulator.warp.masks import Bits
from gen.emulator.warp.wgmma import LINE
from gen.emulator.watch.copy_races import CopyRaces
from gen.emulator.watch.granules import PER_WARP, WARP_LANE, Index, Touch
from gen.emulator.watch.last_access import NONE, SITE_BITS, Clash
from gen.emulator.watch.vector_clocks import Clocks

_KEPT = 256  # of its latest wgmmas whose times are known; no more are in flight


class MatrixReads:
    """The latest wgmma of each warpgroup that reads each granule, and when it was issued.

    A warpgroup is known by its first warp, among those of all blocks of a cluster.
    """

    def __init__(self, clocks: Clocks, columns: int) -> None:
        self.clocks, self.columns = clocks, columns
        self.times: dict[int, npt.NDArray[np.int32]] = {}  # by warpgroup, as the next two
        self.sites: dict[int, npt.NDArray[np.int32]] = {}
        self.issued: dict[int, npt.NDArray[np.int32]] = {}  # (rows, number): the time
        # And that of the latest one up to there which has A in registers.
        self.fragments: dict[int, npt.NDArray[np.int32]] = {}
        self.places: dict[int, int] = {}  # in the clocks

    def widen(self, rows: int) -> None:
        """Give every block what was common to all."""
        for records in (self.times, self.sites, self.issued, self.fragments):
            for group, array in records.items():
                records[group] = np.repeat(array, rows, axis=0)

    def add(
        self, group: int, index: Index, row: Numbers, number: Numbers, site: int,
        with_fragments: bool,
    ) -> None:  # fmt: skip
        """A warpgroup issues its wgmma of that number."""
        rows = len(self.clocks.known)
        if group not in self.places:
            self.places[group] = self.clocks.add_place()
            self.times[group], self.sites[group] = (
                np.zeros((rows, self.columns), np.int32) for _ in range(2)
            )
            self.issued[group], self.fragments[group] = (
                np.zeros((rows, _KEPT), np.int32) for _ in range(2)
            )
        now = np.int32(self.clocks.now)
        self.times[group].reshape(-1)[index] = now
        self.sites[group].reshape(-1)[index] = site
        self.issued[group][row, number % _KEPT] = now
        before = self.fragments[group][row, (number - 1) % _KEPT]
        self.fragments[group][row, number % _KEPT] = now if with_fragments else before

    def done(self, group: int, warps: Bits, number: Numbers) -> None:
        """Warps have waited for the wgmmas of a warpgroup up to a number, by row."""
        if group in self.places:
            issued = self.issued[group][np.arange(len(number)), number % _KEPT]
            times = np.where(number > 0, issued + 1, 0)
            self.clocks.learn(warps, self.places[group], times.astype(np.int32))
            # All four warps have had A's elements in their registers: they have loaded them. (What
            # they have stored before counts as ordered, too.)
            loaded = self.fragments[group][np.arange(len(number)), number % _KEPT]
            if loaded.any():
                times = np.where((number > 0) & (loaded > 0), loaded + 1, 0)
                others = range(group, group + WARPGROUP)
                self.clocks.join(warps, others, times.astype(np.int32))

    def clash(self, touch: Touch) -> Clash | None:
        """The records at `touch` that nothing has ordered before it."""
        found: Clash | None = None
        rows = touch.index // self.columns
        for group, place in self.places.items():
            times = self.times[group].reshape(-1)[touch.index]
            if not times.any():
                continue
            by = np.full(times.shape, place)
            bad = (times > 0) & ~self.clocks.before(rows, times, by, touch.low)
            if bad.any():
                first = np.int32((group * PER_WARP + 1) << SITE_BITS)
                record = np.where(bad, first | self.sites[group].reshape(-1)[touch.index], NONE)
                found = record if found is None else np.maximum(found, record)
        return found

    def drop(self, index: Index) -> None:
        """Forget all that read some granules: what races with it races with their writer, too."""
        for times in self.times.values():
            times.reshape(-1)[index] = 0


class SharedRaces(CopyRaces):
    """Finds races in shared memory."""

    def begin(self, chunk: ObservedChunk) -> None:
        """See Observer."""
        super().begin(chunk)
        self.matrices: MatrixReads | None = None
        self.swizzles: dict[int, set[int]] = {}  # of bulk copies' tensor maps, by site

    def widen(self) -> None:
        """See SharedWatch."""
        if self.matrices:
            self.matrices.widen(self.blocks)
        super().widen()

    def matrix_read(self, chunk: ObservedChunk, read: MatrixRead) -> None:
        """See Observer."""
        assert self.clocks is not None
        if self.matrices is None:
            self.matrices = MatrixReads(self.clocks, self.columns)
            self.readers.append(self.matrices)
        ranks = self.clusters.ranks[read.blocks]
        groups = ranks * (self.block_codes // PER_WARP) + read.groups * WARPGROUP
        self._widen_unless_alike(read, groups)
        site = self.sites.number(read.site)
        for group in np.unique(groups):
            mine = np.flatnonzero(groups == group)
            mine = mine if self.rows > 1 else mine[:1]
            blocks = self.clusters.number[read.blocks[mine]]
            rows = blocks if self.rows > 1 else np.zeros(1, np.int64)
            first = rows * self.columns + ranks[mine] * self.each_block
            places = first[:, None] + (read.offsets[mine] >> self.shift)
            index = places[..., None] + np.arange(max(1, LINE // self.granule))
            warps = (int(group) + np.arange(WARPGROUP)) * PER_WARP + WARP_LANE
            codes = np.repeat(warps.astype(np.int32), index.size)
            touch = Touch(np.tile(index.ravel(), WARPGROUP), codes, codes)
            self.before_read(chunk, read.site, touch)
            self._check_swizzle(chunk, read, int(mine[0]), index.ravel())
            self.matrices.add(
                int(group), index.ravel(), rows, read.numbers[mine], site, read.with_fragments
            )
        self.clocks.now += 1

    def _widen_unless_alike(self, read: MatrixRead, groups: Numbers) -> None:
        if self.rows == self.blocks:
            return
        for group in np.unique(groups):
            mine = groups == group
            alike = int(mine.sum()) == self.blocks and all(
                (values[mine] == values[mine][:1]).all() for values in (read.offsets, read.numbers)
            )
            if not alike:
                self.widen()
                return

    def _check_swizzle(self, chunk: ObservedChunk, read: MatrixRead, at: int, index: Index) -> None:
        """A finding where the descriptor's swizzle is not that of the copy that was last there."""
        codes = self.writes.codes.reshape(-1)[index]
        for number in np.unique(codes[codes >= 0] & ((1 << SITE_BITS) - 1)):
            known = self.swizzles.get(int(number), set())
            mine = int(read.swizzles[at])
            if not known or mine in known:
                continue
            first = index[int(np.argmax((codes & ((1 << SITE_BITS) - 1)) == number))]
            where = self.where(chunk, int(first))
            message = f"the descriptor of {read.name} at {where} has a swizzle of {mine} bytes, "
            message += f"the tensor map that the matrix was copied by one of {min(known)}"
            block = self.block_at(chunk, int(first))
            other = self.sites[int(number)].item
            chunk.launch.findings.add(
                "memcheck", read.site.item, message, block, (), where, other=other
            )

    def matrices_done(self, chunk: ObservedChunk, warps: Bits, done: Numbers) -> None:
        """See Observer."""
        if self.matrices is None:
            return
        together = self.clusters.peers[:, self.clusters.firsts].T  # blocks of each cluster
        warps = warps[together].reshape(len(together), -1)
        done = done[together].reshape(len(together), -1)
        if self.rows < self.blocks and not (
            (warps == warps[:1]).all() and (done == done[:1]).all()
        ):
            self.widen()
        rows = slice(None) if self.rows > 1 else slice(1)
        some, numbers = warps[rows], done[rows]
        for group in self.matrices.places:
            mine = np.zeros_like(some)
            mine[:, group : group + WARPGROUP] = some[:, group : group + WARPGROUP]
            if mine.any():
                self.matrices.done(group, mine, np.where(mine, numbers, 0).max(axis=1))

    def bulk(self, chunk: ObservedChunk, move: Move) -> None:
        """See Observer."""
        if move.into_shared and move.swizzle is not None:
            number = self.sites.number(move.site)
            self.swizzles.setdefault(number, set()).add(move.swizzle)
        super().bulk(chunk, move)

    def forget(self, touch: Touch) -> None:
        """See AccessRaces."""
        super().forget(touch)
        if self.matrices:
            self.matrices.drop(touch.index)
