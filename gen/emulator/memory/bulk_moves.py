"""The bulk copies that one instruction starts: which lane copies what from where to where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gen.emulator.memory.global_memory import Site
from gen.emulator.warp.masks import BLOCK_AXES, THREAD_AXES, WARP, Mask, Shape

Numbers = npt.NDArray[np.int64]
WORDS = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}  # numpy types of an element's bytes


@dataclass(frozen=True)
class Move:
    """Bulk copies of one instruction: a row for each lane, a column for each element.

    Lanes that copy to several blocks have a row for each of these.
    """

    site: Site
    size: int  # bytes of an element
    shape: Shape  # of the chunk
    blocks: Numbers  # in the chunk, in the order (z, y, x)
    threads: Numbers  # in their block
    shared: Numbers  # offsets in shared memory, (lanes, elements)
    addresses: Numbers  # in global memory; -1 for what exists in shared memory only
    barriers: Numbers  # the offset of the mbarrier that counts the bytes, or -1
    groups: Numbers  # the group that the thread has committed it to, or -1
    data: npt.NDArray[Any]  # what lands in shared memory, (lanes, elements)
    homes: Numbers  # the blocks whose shared memory is meant; a multicast has a row for each
    swizzle: int | None = None  # of the tensor map, in bytes; None: without one
    sources: Numbers | None = None  # offsets in shared memory of the lanes' own blocks
    rule: str = ""  # what elements are combined by, instead of copied

    @property
    def by_proxy(self) -> bool:
        """Whether the asynchronous proxy does it, as it does all but st.async and red.async."""
        return self.site.item.opcode == "cp"

    @property
    def into_shared(self) -> bool:
        """Whether shared memory is written, not read."""
        return "bulk_group" not in self.site.item.modifiers

    @property
    def by_global(self) -> bool:
        """Whether global memory is on one side."""
        return self.by_proxy and self.sources is None

    def issued(self) -> Move:
        """One row for each lane, also where it copies to several blocks."""
        lanes = np.stack([self.blocks, self.threads], axis=1)
        first = np.unique(lanes, axis=0, return_index=True)[1]
        kept = np.zeros(len(lanes), np.bool_)
        kept[first] = True
        return self if kept.all() else self.some(kept)

    @property
    def nbytes(self) -> int:
        """Bytes that each lane copies."""
        return int(self.shared.shape[1]) * self.size

    def some(self, lanes: npt.NDArray[np.bool_]) -> Move:
        """Those of some lanes only."""
        return replace(
            self, blocks=self.blocks[lanes], threads=self.threads[lanes],
            shared=self.shared[lanes], addresses=self.addresses[lanes],
            barriers=self.barriers[lanes], groups=self.groups[lanes], data=self.data[lanes],
            homes=self.homes[lanes],
            sources=None if self.sources is None else self.sources[lanes],
        )  # fmt: skip

    def by_distance(self) -> Iterator[tuple[bool, Move]]:
        """What threads store to other blocks, and what else there is: whether it is that, first."""
        if self.by_proxy:
            yield False, self
            return
        far = self.blocks != self.homes
        for which in np.unique(far).tolist():
            yield which, self.some(far == which)

    def once_a_warp(self) -> Move:
        """Without copies that an earlier lane of the same warp makes as well.

        A GPU makes one of these: the instruction is its warp's (UTMASTG), which has one source and
        one destination. So CUTLASS lets a whole warp store a tile.
        """
        keys = (self.blocks, self.threads // WARP, self.shared[:, 0], self.addresses[:, 0])
        _, first, group = np.unique(
            np.stack(keys, axis=1), axis=0, return_index=True, return_inverse=True
        )
        earlier = first[group.ravel()]
        again = (self.addresses == self.addresses[earlier]).all(axis=1)
        again &= (self.shared == self.shared[earlier]).all(axis=1)
        return self.some(~again | (earlier == np.arange(len(again))))

    def axes(self) -> tuple[Numbers, ...]:
        """The lanes' places in an array over the chunk's axes."""
        at: list[Any] = [None] * 6
        for axes, numbers in ((BLOCK_AXES, self.blocks), (THREAD_AXES, self.threads)):
            places = np.unravel_index(numbers, [self.shape[i] for i in axes])
            for axis, place in zip(axes, places, strict=True):
                at[axis] = place
        return tuple(at)

    def of(self, value: Any) -> npt.NDArray[Any]:
        """What a value over the chunk's axes is for each lane."""
        found: npt.NDArray[Any] = np.broadcast_to(value, self.shape)[self.axes()]
        return found

    def mask(self) -> Mask:
        """The lanes, as a mask."""
        bits = np.zeros(self.shape, np.bool_)
        bits[self.axes()] = True
        return Mask(bits)


def running(shape: Shape, mask: Mask | None) -> tuple[Numbers, ...]:
    """The places of a mask's lanes in an array over the chunk's axes."""
    return np.nonzero(np.broadcast_to(True if mask is None else mask.bits, shape))


def numbers(shape: Shape, lanes: tuple[Numbers, ...], axes: tuple[int, ...]) -> Numbers:
    """The lanes' numbers along some axes: of their blocks, or of their threads."""
    places = tuple(lanes[i] for i in axes)
    return np.asarray(np.ravel_multi_index(places, [shape[i] for i in axes]), np.int64)
