"""What blocks have seen of each other: a release at a place in memory, an acquire there later.

As in PTX's memory model, a store or an atomic releases where it says so, or where its thread has
executed a fence before: then it shows what the thread did before that fence. A load acquires where
it says so, or once a fence follows. What barriers of the block have put in order before goes along.
Three things are taken to order more than they must: an acquire counts for the whole block; so does
a fence, once the block has met at a barrier behind it; and an atomic that reads needs no fence.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Place = tuple[object, int]  # a buffer, and a granule of it
# The epochs before which all is seen that a thread, its warp, its block did: by the number of
# threads that they have, and their own number.
Seen = dict[tuple[int, int], int]
_WARP = 32
_MOST_PARTS = 16
_MOST_WORK = 2_000_000  # entries made and compared


class Releases:
    """Of a launch. An acquire is taken to see the latest release at its place.

    Epochs of a block grow by `step` at each barrier of the block or of a warp, and by 1 at a fence.
    """

    def __init__(self, threads: int, step: int = 1) -> None:
        self._step = step  # what a barrier adds to epochs
        self._groups = (1, _WARP, threads)  # a block has numbers for so many threads
        self._released: dict[Place, list[Seen]] = {}
        self._seen: dict[int, Seen] = {}  # by block; never changed in place
        self._looked: dict[int, list[Seen]] = {}  # by block: what a fence will make it see
        self._fences: dict[int, tuple[int, int]] = {}  # by thread: the epochs of its latest fence
        self._fenced: set[int] = set()  # blocks with a fence since their latest barrier
        self._published: dict[int, int] = {}  # by block: the epoch of the barrier behind a fence
        self._work = 0

    @property
    def too_many(self) -> bool:
        """Whether so many threads release and acquire that following them takes too long."""
        return self._work > _MOST_WORK

    @property
    def any(self) -> bool:
        """Whether there is anything to acquire."""
        return bool(self._released)

    @property
    def fences(self) -> bool:
        """Whether any thread has executed a fence."""
        return bool(self._fences)

    def release(
        self, place: Place, thread: int, epoch: int, block_epoch: int, adds: bool = False
    ) -> None:
        """A thread shows what it did, and what barriers of its warp and of its block have ordered.

        epoch: that of the warp. block_epoch: the last one that began with a barrier of the block.
        adds: what others have shown there stays visible, as behind an atomic that reads and writes.
        """
        epochs = (epoch + 1, epoch // self._step * self._step, block_epoch)
        own = {(size, thread // size): at for size, at in zip(self._groups, epochs, strict=True)}
        seen = self._seen.get(thread // self._groups[-1])
        before = self._released.get(place, []) if adds else []
        parts = [*before, own, seen] if seen else [*before, own]
        self._work += len(parts)
        self._released[place] = parts if len(parts) < _MOST_PARTS else [self._merged(parts)]

    def write(self, place: Place, thread: int, adds: bool) -> None:
        """A store or an atomic that does not release: a fence before it may."""
        epoch, block_epoch = self._fences.get(thread, (-1, 0))
        block_epoch = max(block_epoch, self._published.get(thread // self._groups[-1], 0))
        if epoch >= 0 or block_epoch:
            self.release(place, thread, epoch, block_epoch, adds)
        elif not adds:
            self._released.pop(place, None)

    def acquire(self, place: Place, blocks: Iterable[int]) -> None:
        """Blocks see what was shown there, if anything was."""
        shown = self._released.get(place)
        for block in blocks if shown else ():
            self._see(block, shown or [])

    def look(self, place: Place, blocks: Iterable[int]) -> None:
        """Blocks see it once one of their threads executes a fence."""
        shown = self._released.get(place)
        for block in blocks if shown else ():
            parts = self._looked.setdefault(block, [])
            parts += [part for part in shown or [] if not any(part is one for one in parts)]

    def fence(self, threads: Numbers, epochs: Numbers, block_epochs: Numbers) -> None:
        """Threads execute a fence; the epochs are as those of `release`."""
        at = zip(epochs.tolist(), block_epochs.tolist(), strict=True)
        self._fences.update(zip(threads.tolist(), at, strict=True))
        blocks = np.unique(threads // self._groups[-1]).tolist()
        self._fenced.update(blocks)
        for block in blocks if self._looked else ():
            self._see(block, self._looked.pop(block, []))

    def barrier(self, blocks: Numbers, epochs: Numbers) -> None:
        """Blocks have met, and their epochs have begun."""
        for block, epoch in zip(blocks.tolist(), epochs.tolist(), strict=True):
            if block in self._fenced:
                self._fenced.discard(block)
                self._published[block] = epoch

    def _see(self, block: int, shown: list[Seen]) -> None:
        seen = self._seen.get(block, {})
        for part in shown:
            self._work += len(part)
            if part is not seen and any(seen.get(who, 0) < epoch for who, epoch in part.items()):
                seen = self._merged([seen, part])
        self._seen[block] = seen

    def _merged(self, parts: list[Seen]) -> Seen:
        """All that is in any of them."""
        found = dict(parts[0])
        self._work += sum(map(len, parts))
        for part in parts[1:]:
            for who, epoch in part.items():
                if found.get(who, -1) < epoch:
                    found[who] = epoch
        return found

    def ordered(self, readers: Numbers, writers: Numbers, epochs: Numbers) -> npt.NDArray[np.bool_]:
        """Whether a thread's block has seen what another thread did in an epoch of its block."""
        triples = zip(readers.tolist(), writers.tolist(), epochs.tolist(), strict=True)
        return np.array([self._sees(*triple) for triple in triples], np.bool_)

    def _sees(self, reader: int, writer: int, epoch: int) -> bool:
        seen = self._seen.get(reader // self._groups[-1], {})
        return any(seen.get((size, writer // size), 0) > epoch for size in self._groups)

    def met(self, threads: Numbers, others: Numbers) -> npt.NDArray[np.bool_]:
        """Whether a thread's block has seen anything of another thread's block."""
        size = self._groups[-1]
        pairs = zip((threads // size).tolist(), (others // size).tolist(), strict=True)
        return np.array([(size, other) in self._seen.get(own, {}) for own, other in pairs], bool)
