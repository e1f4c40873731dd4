"""Clusters of blocks: which rank each block has, and addresses of shared memory in another one.

An address in the window of shared memory has the offset in its low 24 bits, and above these the
rank of the block whose memory it is, that of the executing block too: so they differ between the
blocks of a cluster. Accesses and checks take them relative to that block, by `Clusters.near`: with
0 above the offset for its own memory, or 1 plus the rank of another block. In a cluster of one
block there is no difference, and nothing to pay for.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from gen.emulator.isa.ops import Value
from gen.emulator.ptx.module import Instruction
from gen.emulator.warp.chunk import WarpChunk
from gen.emulator.warp.masks import (
    BLOCK_AXES,
    NOBODY,
    Bits,
    Coordinates,
    Mask,
    Shape,
    lanes_of,
    narrow,
)

RANK_SHIFT = 24
OFFSET = (1 << RANK_SHIFT) - 1
Numbers = npt.NDArray[np.int64]


class Clusters:
    """The clusters of one chunk of `shape`, each of `dims` (x, y, z) blocks."""

    def __init__(self, shape: Shape, dims: Coordinates) -> None:
        self.shape, self.dims, self.size = shape, dims, math.prod(dims)
        counts = tuple(shape[i] for i in BLOCK_AXES)
        cx, cy, cz = dims
        z, y, x = np.ix_(*(np.arange(n, dtype=np.int64) for n in counts))
        axes = tuple(n if i in BLOCK_AXES else 1 for i, n in enumerate(shape))
        row = (z * counts[1] + y) * counts[2] + x
        self.row: Numbers = row.reshape(axes)  # each block's number in the chunk
        self.rank: Numbers = ((z % cz * cy + y % cy) * cx + x % cx).reshape(axes)
        self.ranks: Numbers = self.rank.ravel()
        each = tuple(slice(None if cluster > 1 else 1) for cluster in (cz, cy, cx))
        whole = self.rank.reshape(counts)[each] << RANK_SHIFT
        # Where each block's own memory starts, along the axes in which ranks differ.
        self.own: Any = whole.reshape([n for m in whole.shape for n in (m, 1)])
        self.own = self.own if self.size > 1 else np.int64(0)
        first = ((z // cz * cz * counts[1] + y // cy * cy) * counts[2] + x // cx * cx).ravel()
        r = np.arange(self.size, dtype=np.int64)[:, None]
        step = (r // (cx * cy) * counts[1] + r // cx % cy) * counts[2] + r % cx
        self.peers: Numbers = first + step  # (rank, block): the number of that block's peer
        self.firsts: Numbers = np.unique(first)  # block 0 of each cluster
        numbers = np.searchsorted(self.firsts, first)
        self.number: Numbers = numbers  # of each block's cluster, in the order of first blocks

    # -- addresses -----------------------------------------------------------------------------
    def map(self, address: Value, rank: Value) -> Value:
        """mapa: the address in the window of shared memory, in the block with a rank."""
        rank = rank.astype(np.int64)
        rank = rank if self.size > 1 else rank + (rank != 0)  # as `near` gives it
        return (address & np.int64(OFFSET)) | rank << np.int64(RANK_SHIFT)

    def near(self, address: Value, own: Any = None, mask: Mask | None = None) -> Value:
        """Addresses relative to blocks whose own memory starts at `own`; default each lane's.

        Those of own memory, the same in all blocks, have one element for these. Of lanes that are
        not in the mask they are those of others.
        """
        if self.size == 1:
            return address
        relative = np.asarray(address - (self.own if own is None else own))
        if int(np.bitwise_or.reduce(relative, axis=None)) >> RANK_SHIFT:
            relative = self._beyond(np.asarray(address), relative, mask)
        for axis in BLOCK_AXES if relative.ndim == 6 else ():
            if relative.shape[axis] > 1:
                first = relative.take([0], axis)
                relative = first if (relative == first).all() else relative
        return relative

    def _beyond(self, address: Numbers, relative: Numbers, mask: Mask | None) -> Numbers:
        """`near` where some addresses are not in own memory: in others', or nowhere."""
        field = address >> RANK_SHIFT
        wrapped = np.where(field == 255, relative - (1 << 32), relative)  # 32 bits, below 0
        mine = relative >> RANK_SHIFT == 0
        below = (wrapped < 0) & (wrapped >= -(1 << RANK_SHIFT - 1))
        far = (field + 1 << RANK_SHIFT) | (address & OFFSET)
        found = np.where(mine, relative, np.where(below, wrapped, far))
        active = None if mask is None else mask.over(found.shape)
        if active is None:
            return found
        return np.where(active.bits, found, found.item(active.first))

    def rank_of(self, address: Value) -> Value:
        """getctarank: the rank of the block that an address in the window belongs to."""
        field = address >> np.int64(RANK_SHIFT)
        return field if self.size > 1 else field - (field > 0)

    def locate(self, address: Numbers) -> tuple[Numbers, Numbers, Bits]:
        """The block that near addresses are in, the offset there, and whether there is none."""
        field = address >> RANK_SHIFT
        near = (field == 0) | (address < 0)
        stranger = ~near & ((field < 1) | (field > self.size))
        rank = np.where(near | stranger, self.rank, field - 1)
        block = self.peers[rank, self.row]
        offset = np.where(near, address, address & OFFSET)
        return block, np.broadcast_to(offset, block.shape), np.broadcast_to(stranger, block.shape)

    def home(self, address: int) -> Numbers | None:
        """Each block's peer that a near address belongs to, or None for itself."""
        rank = (address >> RANK_SHIFT) - 1
        return None if rank < 0 else self.peers[rank].reshape(self.row.shape)

    def by_rank(self, mask: Mask | None) -> Iterator[tuple[int, Mask | None]]:
        """The lanes of a mask by the rank of their block."""
        for rank in range(self.size):
            some = narrow(mask, self.rank == rank)
            if some is not NOBODY:
                yield rank, some

    # -- whole clusters ------------------------------------------------------------------------
    def any(self, blocks: Bits) -> Bits:
        """For each block, whether something is true of any block of its cluster."""
        if self.size == 1:
            return blocks
        flat = np.broadcast_to(blocks, self.row.shape).reshape(-1)
        return np.asarray(flat[self.peers].any(axis=0).reshape(self.row.shape))

    def fold(self, value: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A value over a chunk's axes as one where a cluster is a block, of all its threads.

        Along each axis the threads of its blocks stand behind each other. What is the same in all
        clusters has one element for them.
        """
        if self.size == 1:
            return value
        for axis, count in zip(BLOCK_AXES, self.dims[::-1], strict=True):
            blocks, threads = value.shape[axis : axis + 2]
            if count > 1 and blocks > 1:
                shape = list(value.shape)
                shape[axis + 1] = self.shape[axis + 1]
                shape[axis : axis + 2] = [blocks // count, count * self.shape[axis + 1]]
                whole = [*value.shape[: axis + 1], self.shape[axis + 1], *value.shape[axis + 2 :]]
                value = np.broadcast_to(value, whole).reshape(shape)
            elif count > 1 and threads > 1:
                value = np.concatenate([value] * count, axis=axis + 1)
            if value.shape[axis] > 1:
                first = value.take([0], axis)
                value = first if (value == first).all() else value
        return value

    @property
    def folded(self) -> Shape:
        """The shape of a chunk that `fold` has to do with."""
        counts = dict(zip(BLOCK_AXES, self.dims[::-1], strict=True))
        return tuple(
            n // counts[i] if i in counts else n * counts[i - 1] for i, n in enumerate(self.shape)
        )


def mapa(chunk: WarpChunk, m: Mask | None, item: Instruction, address: Value, rank: Value) -> Value:
    """mapa: the address of the same offset in the block of the cluster that has a rank."""
    if "shared::cluster" in item.modifiers:
        return chunk.clusters.map(address.astype(np.int64), rank).astype(address.dtype)
    wide = address.astype(np.int64)
    outside = np.asarray(wide >> np.int64(56) != 1).reshape(address.shape or (1,) * 6)
    outside = outside if m is None else outside & m.bits
    if outside.any():
        block, threads, _ = lanes_of(outside, None, chunk.shape, chunk.origin)
        message = "mapa of an address that is not in shared memory"
        chunk.launch.findings.add("memcheck", item, message, block, threads)
    mapped = chunk.clusters.map(wide & np.int64((1 << 56) - 1), rank) | np.int64(1 << 56)
    return np.where(outside, wide, mapped).astype(address.dtype)


def in_block(chunk: WarpChunk, address: Value) -> Value:
    """isspacep.shared::cta: whether a generic address is in the executing block's shared memory."""
    return (address - chunk.clusters.own) >> np.int64(RANK_SHIFT) == 1 << 56 - RANK_SHIFT


def ctarank(chunk: WarpChunk, item: Instruction, address: Value) -> Value:
    """getctarank: the rank of the block whose shared memory an address is in."""
    window = address.astype(np.int64) & np.int64((1 << 56) - 1)
    return chunk.clusters.rank_of(window).astype(np.uint32)


@functools.lru_cache(maxsize=32)
def clusters_of(shape: Shape, dims: Coordinates) -> Clusters:
    """The clusters of chunks of a shape, which launches have again and again."""
    return Clusters(shape, dims)
