"""Which blocks of a launch run when: as on a GPU, some are resident and the others wait for room.

Chunks run one after another, each to its end, where no block waits for another. A chunk whose
blocks do stops, and others run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from gen.emulator.run.chunk import Chunk
from gen.emulator.run.launch_state import LaunchState
from gen.emulator.warp.masks import Coordinates

Box = tuple[Coordinates, Coordinates]  # the first block, and blocks along each axis

# What an H200 holds, but for registers, which PTX does not have.
MULTIPROCESSORS = 132
MOST_BLOCKS = 32  # of a multiprocessor
MOST_THREADS = 2048
MOST_SHARED = 228 * 1024
RESERVED_SHARED = 1024  # for each block


def resident_blocks(threads: int, shared: int) -> int:
    """Blocks of so many threads and bytes of shared memory that a GPU runs at the same time."""
    by_threads = MOST_THREADS // (-(-threads // 32) * 32)
    by_shared = MOST_SHARED // (shared + RESERVED_SHARED)
    return MULTIPROCESSORS * max(1, min(MOST_BLOCKS, by_threads, by_shared))


class Turns:
    """Runs the blocks of a launch; at most `room` of them have started and not ended."""

    def __init__(self, launch: LaunchState, boxes: Iterable[Box], room: int) -> None:
        self.launch, self.room = launch, room
        self._boxes = iter(boxes)  # a grid may have billions
        self._cut: list[Box] = []  # what is left of those that did not fit, the next one last
        self.following = next(self._boxes, None)
        self.stopped: list[Chunk] = []  # chunks that wait for memory to change, the oldest first

    def run(self) -> None:
        """Run all of them, or until no block can."""
        while self.following or self.stopped:
            if not (
                self._resume(lambda chunk: chunk.spinning.seen != self.launch.memory.changes)
                or self._start()
                or self._resume(lambda chunk: not chunk.spinning.stuck)
                or self._resume(lambda chunk: bool(chunk.held))
            ):
                self._deadlock()
                return

    def _start(self) -> bool:
        """Start the next blocks, if there is room for them."""
        launch = self.launch
        room = self.room - sum(chunk.live_blocks() for chunk in self.stopped)
        room //= math.prod(launch.cluster)
        if not self.following or (self.stopped and room < 1):
            return False
        box = self.following
        first, *rest = cut_clusters(box, max(1, room), launch.cluster) if launch.spins else [box]
        self._cut += reversed(rest)
        self.following = self._cut.pop() if self._cut else next(self._boxes, None)
        self._go(Chunk(self.launch, *first))
        return True

    def _resume(self, choice: Callable[[Chunk], bool]) -> bool:
        """Let the first stopped chunk of that kind go on, if there is one."""
        chunk = next(filter(choice, self.stopped), None)
        if chunk is None:
            return False
        self.stopped.remove(chunk)
        self._go(chunk)
        return True

    def _go(self, chunk: Chunk) -> None:
        if not chunk.run():
            self.stopped.append(chunk)

    def _deadlock(self) -> None:
        """Report who waits for what, and end the launch."""
        why = "and no block that runs changes them"
        if self.following:
            resident = sum(chunk.live_blocks() for chunk in self.stopped)
            block = ",".join(map(str, self.following[0]))
            why += (
                f"; block ({block}) cannot start before one of the {resident} resident blocks has "
                "ended (resident_blocks)"
            )
        for chunk in self.stopped:
            chunk.abandon(why)


def cut_clusters(box: Box, room: int, cluster: Coordinates) -> list[Box]:
    """As `cut`, of whole clusters, of which the first box has at most `room`."""
    first, count = (tuple(n // c for n, c in zip(of, cluster, strict=True)) for of in box)
    boxes = cut(((first[0], first[1], first[2]), (count[0], count[1], count[2])), room)
    return [(times(origin, cluster), times(size, cluster)) for origin, size in boxes]


def times(numbers: Coordinates, cluster: Coordinates) -> Coordinates:
    """Clusters along each axis as blocks."""
    (x, y, z), (cx, cy, cz) = numbers, cluster
    return x * cx, y * cy, z * cz


def cut(box: Box, room: int) -> list[Box]:
    """A box as smaller ones in the order of blocks, of which the first fits into `room`."""
    (x, y, z), (dx, dy, dz) = box
    if dx * dy * dz <= room:
        return [box]
    if dx * dy <= room:
        n = room // (dx * dy)
        return [((x, y, z), (dx, dy, n)), ((x, y, z + n), (dx, dy, dz - n))]
    rest = [((x, y, z + 1), (dx, dy, dz - 1))] if dz > 1 else []
    if dx <= room:
        n = room // dx
        return [((x, y, z), (dx, n, 1)), ((x, y + n, z), (dx, dy - n, 1)), *rest]
    rest = [((x, y + 1, z), (dx, dy - 1, 1)), *rest] if dy > 1 else rest
    return [((x, y, z), (room, 1, 1)), ((x + room, y, z), (dx - room, 1, 1)), *rest]
