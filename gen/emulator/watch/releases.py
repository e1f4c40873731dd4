"""What blocks have seen of each other: a release at a place in memory, an acquire there later."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Place = tuple[object, int]  # a buffer, and a granule of it
Seen = dict[int, int]  # the epochs before which all is seen: of blocks; of a thread as -1 - thread


class Releases:
    """Of a launch.

    An acquire is taken for one of the whole block, and to see the latest release there.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads  # numbers that a block has for its threads
        self._released: dict[Place, Seen] = {}
        self._seen: dict[int, Seen] = {}  # by block

    def release(self, place: Place, thread: int, epoch: int) -> None:
        """A thread shows what it did, and what barriers of its block have ordered before."""
        block = thread // self._threads
        own = {block: epoch, -1 - thread: epoch + 1}
        self._released[place] = self._seen.get(block, {}) | own

    def acquire(self, place: Place, blocks: Iterable[int]) -> None:
        """Blocks see what was shown there, if anything was."""
        shown = self._released.get(place, {})
        for block in blocks if shown else ():
            seen = self._seen.setdefault(block, {})
            for who, epoch in shown.items():
                seen[who] = max(seen.get(who, 0), epoch)

    def ordered(self, readers: Numbers, writers: Numbers, epochs: Numbers) -> npt.NDArray[np.bool_]:
        """Whether a thread's block has seen what another thread did in an epoch of its block."""
        found = np.zeros(len(readers), np.bool_)
        for i, (reader, writer, epoch) in enumerate(
            zip(readers.tolist(), writers.tolist(), epochs.tolist(), strict=True)
        ):
            seen = self._seen.get(reader // self._threads, {})
            found[i] = max(seen.get(writer // self._threads, 0), seen.get(-1 - writer, 0)) > epoch
        return found

    def met(self, threads: Numbers, others: Numbers) -> npt.NDArray[np.bool_]:
        """Whether a thread's block has seen anything of another thread's block."""
        blocks = ((of // self._threads).tolist() for of in (threads, others))
        pairs = zip(*blocks, strict=True)
        return np.array([other in self._seen.get(own, {}) for own, other in pairs], np.bool_)
