"""What threads have seen of each other: a release at a place in memory, an acquire there later.

As in PTX's memory model, a store or an atomic releases where it says so, or where its thread has
executed a fence before: then it shows what the thread did before that fence. A load acquires where
it says so, or once a fence follows. What barriers of the block have put in order before goes along.

A place is near if it orders the threads of one block, as those in shared memory do: there a fence
of the block's scope is enough. Three things are taken to order more than they must: an acquire in
global memory counts for the whole block; so does a fence, once the block has met at a barrier
behind it; and an atomic that reads needs no fence.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Group = tuple[int, int]  # a thread, a warp or a block: how many threads that is, and its number
# The epochs before which all is seen that such a group did.
Seen = dict[Group, int]


class Place(NamedTuple):
    """Where threads show something to others."""

    buffer: object  # None for shared memory
    granule: int
    near: int = -1  # the block whose threads it orders, -1 for all blocks


_WARP = 32
_MOST_PARTS = 16
_MOST_WORK = 2_000_000  # entries made and compared


class Releases:
    """Of a launch. An acquire is taken to see the latest release at its place.

    Epochs of a block grow by `step` at each barrier of the block or of a warp, and by 1 at a fence
    and behind a release. Fences are kept apart by whether they are wide, and so count everywhere.
    """

    def __init__(self, threads: int, step: int = 1) -> None:
        self._step = step  # what a barrier adds to epochs
        self._groups = (1, _WARP, threads)  # a block has numbers for so many threads
        self._released: dict[Place, list[Seen]] = {}
        self._seen: dict[Group, Seen] = {}  # never changed in place
        self._acquired: dict[tuple[Group, Place], list[Seen]] = {}  # what each saw there last
        self._apart: dict[int, set[int]] = {}  # by block: the threads that have seen something
        # Of wide fences and others: what such a fence will make a group see; by thread the epochs
        # of its latest one; blocks with one since their latest barrier; by block the epoch of the
        # barrier behind one.
        self._looked: dict[bool, dict[Group, dict[int, list[Seen]]]] = {False: {}, True: {}}
        self._fences: dict[bool, dict[int, tuple[int, int]]] = {False: {}, True: {}}
        self._fenced: dict[bool, set[int]] = {False: set(), True: set()}
        self._published: dict[bool, dict[int, int]] = {False: {}, True: {}}
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
    def begun(self) -> bool:
        """Whether any thread has released anything, or executed a fence."""
        return self.any or any(self._fences.values())

    def release(
        self, place: Place, thread: int, epoch: int, block_epoch: int, adds: bool = False
    ) -> None:
        """A thread shows what it did, and what barriers of its warp and of its block have ordered.

        epoch: that of the warp. block_epoch: the last one that began with a barrier of the block.
        adds: what others have shown there stays visible, as behind an atomic that reads and writes.
        """
        epochs = (epoch + 1, epoch // self._step * self._step, block_epoch)
        own = {(size, thread // size): at for size, at in zip(self._groups, epochs, strict=True)}
        before = self._released.get(place, []) if adds else []
        parts = [*before, own, *self._views(thread)]
        self._work += len(parts)
        self._released[place] = parts if len(parts) < _MOST_PARTS else [self._merged(parts)]

    def write(self, place: Place, thread: int, adds: bool) -> None:
        """A store or an atomic that does not release: a fence before it may."""
        scopes = (True,) if place.near < 0 else (True, False)
        block, never = thread // self._groups[-1], (-1, 0)
        epoch, block_epoch = max(self._fences[wide].get(thread, never) for wide in scopes)
        block_epoch = max(block_epoch, *(self._published[wide].get(block, 0) for wide in scopes))
        if epoch >= 0 or block_epoch:
            self.release(place, thread, epoch, block_epoch, adds)
        elif not adds:
            self._released.pop(place, None)

    def acquire(self, place: Place, thread: int) -> None:
        """A thread sees what was shown there, if anything was."""
        if shown := self._released.get(place):
            reader = self._reader(place, thread)
            if self._acquired.get((reader, place)) is not shown:  # threads that wait look again
                self._acquired[reader, place] = shown
                self._see(reader, shown)

    def look(self, place: Place, thread: int) -> None:
        """A thread sees it once it executes a fence, or one of its block where that counts."""
        if shown := self._released.get(place):
            seen = self._looked[place.near < 0].setdefault(self._reader(place, thread), {})
            seen[id(shown)] = shown

    def _reader(self, place: Place, thread: int) -> Group:
        """Who sees what a thread acquires at a place."""
        size = 1 if place.buffer is None else self._groups[-1]
        return size, thread // size

    def fence(self, wide: bool, threads: Numbers, epochs: Numbers, block_epochs: Numbers) -> None:
        """Threads execute a fence; the epochs are as those of `release`."""
        at = zip(epochs.tolist(), block_epochs.tolist(), strict=True)
        self._fences[wide].update(zip(threads.tolist(), at, strict=True))
        self._fenced[wide].update(np.unique(threads // self._groups[-1]).tolist())
        for looked in (self._looked[scope] for scope in {wide, False}):
            for size in {size for size, _ in looked}:
                for group in np.unique(threads // size).tolist():
                    for shown in looked.pop((size, group), {}).values():
                        self._see((size, group), shown)

    def barrier(self, blocks: Numbers, epochs: Numbers) -> None:
        """Blocks have met, and their epochs have begun."""
        self.meet(blocks)
        for block, epoch in zip(blocks.tolist(), epochs.tolist(), strict=True):
            for wide, fenced in self._fenced.items():
                if block in fenced:
                    fenced.discard(block)
                    self._published[wide][block] = epoch

    def meet(self, blocks: Numbers) -> None:
        """Threads of blocks have met: what any has seen, its block has."""
        for block in blocks.tolist() if self._apart else ():
            for thread in self._apart.pop(block, ()):
                self._see((self._groups[-1], block), [self._seen.pop((1, thread))])

    def _see(self, group: Group, shown: list[Seen]) -> None:
        seen = self._seen.get(group, {})
        for part in shown:
            self._work += len(part)
            if part is not seen and any(seen.get(who, 0) < epoch for who, epoch in part.items()):
                seen = self._merged([seen, part])
        self._seen[group] = seen
        if group[0] == 1:
            self._apart.setdefault(group[1] // self._groups[-1], set()).add(group[1])

    def _merged(self, parts: list[Seen]) -> Seen:
        """All that is in any of them."""
        found = dict(parts[0])
        self._work += sum(map(len, parts))
        for part in parts[1:]:
            for who, epoch in part.items():
                if found.get(who, -1) < epoch:
                    found[who] = epoch
        return found

    def _views(self, thread: int) -> list[Seen]:
        """What a thread has seen, and what its block has."""
        found = (self._seen.get((size, thread // size)) for size in (1, self._groups[-1]))
        return [seen for seen in found if seen]

    def ordered(self, readers: Numbers, writers: Numbers, epochs: Numbers) -> npt.NDArray[np.bool_]:
        """Whether a thread has seen what another thread did in an epoch of its block."""
        triples = zip(readers.tolist(), writers.tolist(), epochs.tolist(), strict=True)
        return np.array([self._sees(*triple) for triple in triples], np.bool_)

    def _sees(self, reader: int, writer: int, epoch: int) -> bool:
        groups = [(size, writer // size) for size in self._groups]
        return any(seen.get(of, 0) > epoch for seen in self._views(reader) for of in groups)

    def met(self, threads: Numbers, others: Numbers) -> npt.NDArray[np.bool_]:
        """Whether a thread has seen anything of another thread's block."""
        blocks = [(self._groups[-1], other) for other in (others // self._groups[-1]).tolist()]
        pairs = zip(threads.tolist(), blocks, strict=True)
        return np.array([any(of in s for s in self._views(by)) for by, of in pairs], bool)
