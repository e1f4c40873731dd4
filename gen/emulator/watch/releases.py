"""What blocks have seen of each other: a release at a place in memory, an acquire there later."""

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


class Releases:
    """Of a launch.

    An acquire is taken for one of the whole block, and to see the latest release there.
    """

    def __init__(self, threads: int) -> None:
        self._groups = (1, _WARP, threads)  # a block has numbers for so many threads
        self._released: dict[Place, Seen] = {}
        self._seen: dict[int, Seen] = {}  # by block

    def release(self, place: Place, thread: int, epoch: int, block_epoch: int) -> None:
        """A thread shows what it did, and what barriers of its warp and of its block have ordered.

        epoch: that of the warp. block_epoch: the last one that began with a barrier of the block.
        """
        epochs = (epoch + 1, epoch, block_epoch)
        own = {(size, thread // size): at for size, at in zip(self._groups, epochs, strict=True)}
        self._released[place] = self._seen.get(thread // self._groups[-1], {}) | own

    def acquire(self, place: Place, blocks: Iterable[int]) -> None:
        """Blocks see what was shown there, if anything was."""
        shown = self._released.get(place, {})
        for block in blocks if shown else ():
            seen = self._seen.setdefault(block, {})
            for who, epoch in shown.items():
                seen[who] = max(seen.get(who, 0), epoch)

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
