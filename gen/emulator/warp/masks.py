"""Masks of running lanes, and the bookkeeping of lanes that wait at different blocks.

Everything that has one value per thread broadcasts over six axes, in this order::

    (block z, thread z, block y, thread y, block x, thread x)

A block axis stands next to its thread axis because kernels combine them: `ctaid.x * ntid.x + tid.x`
is then one contiguous run in memory, and so is every array computed from it.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gen.emulator.isa.ops import Value

Bits = npt.NDArray[np.bool_]
Shape = tuple[int, ...]

WARP = 32
BLOCK_AXES = (0, 2, 4)
THREAD_AXES = (1, 3, 5)


# Of all arrays of a launch there are few shapes, and to join them takes microseconds.
joined_shape = functools.lru_cache(maxsize=1024)(np.broadcast_shapes)


def spread(array: npt.NDArray[Any], shape: Shape) -> npt.NDArray[Any]:
    """np.broadcast_to, which takes microseconds even where there is nothing to do."""
    return array if array.shape == shape else np.broadcast_to(array, shape)


class Active(NamedTuple):
    """A mask seen by an array of some shape: which elements some running lane uses."""

    bits: Bits
    first: int  # flat index of an element in use
    used: int  # how many elements are

    def those(self, condition: Bits) -> tuple[Bits, int]:
        """The elements in use where a condition of this shape holds; how many there may be."""
        found = condition & self.bits
        return found, self.used * (found.size // self.bits.size)


class Mask:
    """The running lanes: a bool array that broadcasts over the six axes. Immutable."""

    def __init__(self, bits: Bits) -> None:
        self.bits = bits
        self._views: dict[Shape, Active | None] = {}
        self._per_block: npt.NDArray[np.int64] | None = None
        self._lanes: int | None = None  # of `bits`
        self._whole: bool | None = None
        self._whole_warps: bool | None = None
        self._idle_warps: tuple[Bits | None] | None = None
        self._beyond: tuple[Bits, Bits | None] | None = None  # the last argument and its result

    def per_block(self, shape: Shape) -> npt.NDArray[np.int64]:
        """Running lanes in each block of a chunk of `shape`, as (z, 1, y, 1, x, 1)."""
        if self._per_block is None:
            lanes = np.broadcast_to(self.bits, shape)
            self._per_block = lanes.sum(axis=THREAD_AXES, keepdims=True, dtype=np.int64)
        return self._per_block

    def whole_blocks(self, shape: Shape) -> bool:
        """True if every block of a chunk of `shape` has all its lanes running, or none."""
        if self._whole is None:
            threads = int(np.prod([shape[i] for i in THREAD_AXES]))
            counts = self.per_block(shape)
            self._whole = bool(((counts == 0) | (counts == threads)).all())
        return self._whole

    def whole_warps(self, shape: Shape) -> bool:
        """True if every warp of a chunk of `shape` has all its 32 lanes running, or none."""
        if self._whole_warps is None:
            warps = self._warps(shape)
            self._whole_warps = warps is not None and bool((warps == warps[:, :1]).all())
        return self._whole_warps

    def idle_warps(self, shape: Shape) -> Bits | None:
        """Which warps of all blocks, one block after another, have no lane running; None if all do.

        None as well where blocks have a part of a warp.
        """
        if self._idle_warps is None:
            warps = self._warps(shape)
            idle = None if warps is None else np.asarray(~warps.any(axis=1))
            self._idle_warps = (idle if idle is not None and idle.any() else None,)
        return self._idle_warps[0]

    def _warps(self, shape: Shape) -> Bits | None:
        """The lanes as (warps of all blocks, 32); None where blocks have a part of a warp."""
        lanes = np.broadcast_to(self.bits, shape).transpose(BLOCK_AXES + THREAD_AXES)
        threads = int(np.prod([shape[i] for i in THREAD_AXES]))
        return lanes.reshape(-1, WARP) if threads % WARP == 0 else None

    def over(self, shape: Shape) -> Active | None:
        """The mask reduced to `shape` (any over its axes of length 1); None if all are in use."""
        if not shape:  # one element for all lanes, of which at least one runs
            return None
        if shape not in self._views:
            axes = tuple(i for i, n in enumerate(shape) if n == 1 and self.bits.shape[i] != 1)
            bits = np.any(self.bits, axis=axes, keepdims=True) if axes else self.bits
            count = int(np.count_nonzero(bits))
            first = int(spread(bits, shape).argmax())
            self._views[shape] = Active(bits, first, count) if count < bits.size else None
        return self._views[shape]

    def beyond(self, bits: Bits) -> Bits | None:
        """Those of `bits` that do not run (None: none); `bits` itself if none of them run."""
        if self._beyond is None or self._beyond[0] is not bits:
            rest: Bits | None = bits
            if (bits & self.bits).any():
                left = bits & ~self.bits
                rest = left if left.any() else None
            self._beyond = bits, rest
        return self._beyond[1]

    def count(self, shape: Shape) -> int:
        """Running lanes in a chunk of `shape`."""
        if self._lanes is None:
            self._lanes = int(np.count_nonzero(self.bits))
        return self._lanes * (math.prod(shape) // self.bits.size)


NOBODY = Mask(np.zeros((1,) * 6, np.bool_))


def narrow(mask: Mask | None, condition: Value) -> Mask | None:
    """The lanes of `mask` where `condition` holds: the same object if all, NOBODY if none."""
    if condition.ndim == 0:
        return mask if condition else NOBODY
    count = np.count_nonzero(condition)  # takes a fraction of the time of `all` and `any`
    if count == condition.size:
        return mask
    bits = condition if mask is None else condition & mask.bits
    return Mask(bits) if np.count_nonzero(bits) else NOBODY


def split(mask: Mask | None, condition: Value) -> tuple[Mask | None, Mask | None]:
    """The lanes of `mask` where `condition` holds and where it does not (NOBODY if none)."""
    if condition.ndim == 0:
        return (mask, NOBODY) if condition else (NOBODY, mask)
    active = None if mask is None else mask.over(condition.shape)
    holds, most = (condition, condition.size) if active is None else active.those(condition)
    count = np.count_nonzero(holds)
    if count == most:
        return mask, NOBODY
    if not count:
        return NOBODY, mask
    if mask is None:
        return Mask(condition), Mask(~condition)
    return Mask(condition & mask.bits), Mask(~condition & mask.bits)


def join(first: Mask, second: Mask) -> Mask:
    """The lanes of either mask."""
    return Mask(first.bits | second.bits)


def compact(value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """`value` without the block axes along which nothing changes: what is small stays fast."""
    for axis in BLOCK_AXES:
        if value.shape[axis] > 1:
            first = value.take([0], axis)
            value = first if (value == first).all() else value
    return value


class Waiting:
    """Masks of lanes by the block they run next; the lowest block comes first."""

    def __init__(self) -> None:
        self._masks: dict[int, Mask] = {}
        self._order: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._order)

    def blocks(self) -> Iterable[int]:
        """The blocks with waiting lanes."""
        return self._masks

    def items(self) -> list[tuple[int, Mask]]:
        """The blocks with waiting lanes, in order, and those."""
        return sorted(self._masks.items(), key=lambda entry: entry[0])

    def add(self, block: int, mask: Mask) -> None:
        """Let the lanes of `mask` wait at `block`, with those that are there."""
        if block in self._masks:
            self._masks[block] = join(self._masks[block], mask)
        else:
            self._masks[block] = mask
            heapq.heappush(self._order, block)

    def pop(self) -> tuple[int, Mask]:
        """The lowest block with waiting lanes, and those."""
        block = heapq.heappop(self._order)
        return block, self._masks.pop(block)

    def take(self, block: int, mask: Mask) -> Mask:
        """`mask` together with the lanes that wait at `block`, which no longer do."""
        if block not in self._masks:
            return mask
        self._order.remove(block)
        heapq.heapify(self._order)
        return join(mask, self._masks.pop(block))


Coordinates = tuple[int, int, int]


SHOWN_THREADS = 4


def lanes_of(
    bits: npt.NDArray[np.bool_], mask: Mask | None, shape: Shape, origin: Coordinates
) -> tuple[Coordinates, list[Coordinates], int]:
    """The first block with a set lane, a few of that block's lanes, and how many lanes in all.

    `origin` is the (x, y, z) of the chunk's first block.
    """
    lanes = np.broadcast_to(bits if mask is None else bits & mask.bits, shape)
    where = np.argwhere(lanes)
    same = (where[:, BLOCK_AXES] == where[0][list(BLOCK_AXES)]).all(axis=1)
    z, y, x = (int(i) for i in where[0][list(BLOCK_AXES)])
    block = (origin[0] + x, origin[1] + y, origin[2] + z)
    some = where[same][:SHOWN_THREADS][:, THREAD_AXES]
    threads = [(int(tx), int(ty), int(tz)) for tz, ty, tx in some]
    return block, threads, len(where)
