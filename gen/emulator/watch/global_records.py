"""Who has accessed global memory: numbers for the threads of a launch, and records of granules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gen.emulator.memory.buffers import Buffer
from gen.emulator.memory.observer import ObservedChunk, ObservedLaunch
from gen.emulator.memory.repeated import repeated
from gen.emulator.warp.masks import Coordinates

Numbers = npt.NDArray[np.int64]
THREADS = 1 << 10  # numbers per block
_MOST = np.iinfo(np.int64).max


class Records:
    """For each granule of a buffer: thread number << SITE_BITS | site, -1 (or _MOST) for none."""

    def __init__(self, buffer: Buffer, granule: int) -> None:
        self.start = buffer.base & -16  # where all pieces are aligned
        self.count = -(-(buffer.base - self.start + buffer.nbytes) // granule)
        self.writer: Numbers | None = None  # of the latest plain write, once there is any
        self.epoch: Any = None  # of the writer's block, when it wrote
        # The first and the last reader (False) or atomic access (True), for pieces of so many
        # granules: those of a read, which is recorded once, however narrow the granules are.
        self.others: dict[tuple[bool, int], tuple[Numbers, Numbers]] = {}

    @property
    def changes(self) -> bool:
        """Whether anything but reads is recorded."""
        return self.writer is not None or any(atomics for atomics, _ in self.others)

    def make_writer(self) -> Numbers:
        """Records of plain writes."""
        if self.writer is None:
            self.writer = repeated(self.count, -1, np.int64)
            self.epoch = repeated(self.count, 0, np.int64)
        return self.writer

    def make_others(self, atomics: bool, several: int) -> tuple[Numbers, Numbers]:
        """Records of readers, or of atomics, of so many granules at a time."""
        if (atomics, several) not in self.others:
            count = -(-self.count // several)
            self.others[atomics, several] = (
                repeated(count, _MOST, np.int64),
                repeated(count, -1, np.int64),
            )
        return self.others[atomics, several]


@dataclass(frozen=True)
class Touch:
    """What an access does to a buffer's records."""

    records: Records
    several: int  # granules of each piece
    index: Numbers  # of the pieces
    low: Numbers  # numbers of the first and the last thread at each piece
    high: Numbers
    epoch: Numbers

    def granules(self) -> Touch:
        """The same, granule by granule."""
        if self.several == 1:
            return self
        index = (self.index[:, None] * self.several + np.arange(self.several)).ravel()
        rest = (array.repeat(self.several) for array in (self.low, self.high, self.epoch))
        return Touch(self.records, 1, index, *rest)


def thread_numbers(chunk: ObservedChunk) -> Numbers:
    """A number for each thread of the launch, over the axes of a chunk."""
    z, tz, y, ty, x, tx = chunk.shape
    place = np.ix_(*(np.arange(n, dtype=np.int64) for n in (z, tz, y, ty, x, tx)))
    gx, gy, _ = chunk.launch.grid
    ox, oy, oz = chunk.origin
    cx, cy, cz = chunk.launch.cluster  # whose blocks are numbered one behind the other
    bz, by, bx = place[0] + oz, place[2] + oy, place[4] + ox
    block = (bz // cz * (gy // cy) + by // cy) * (gx // cx) + bx // cx
    block = block * (cx * cy * cz) + (bz % cz * cy + by % cy) * cx + bx % cx
    numbers: Numbers = block * THREADS + (place[1] * ty + place[3]) * tx + place[5]
    return numbers


def place_of(number: int, launch: ObservedLaunch) -> tuple[Coordinates, Coordinates]:
    """(x, y, z) of a thread's block, and of the thread in it."""
    block, thread = divmod(number, THREADS)
    (gx, gy, _), (tx, ty, _), (cx, cy, cz) = launch.grid, launch.block, launch.cluster
    cluster, rank = divmod(block, cx * cy * cz)
    nx, ny = gx // cx, gy // cy
    return (
        (
            cluster % nx * cx + rank % cx,
            cluster // nx % ny * cy + rank // cx % cy,
            cluster // (nx * ny) * cz + rank // (cx * cy),
        ),
        (thread % tx, thread // tx % ty, thread // (tx * ty)),
    )
