"""Clusters of blocks: which rank each block has, and addresses of shared memory in another one.

An address in the window of shared memory has the offset in its low 24 bits. Above these stands 0
for the memory of the executing block, or 1 plus the rank of a block of its cluster (`mapa`).
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
        if self.size == 1 and not np.any(rank):
            return address & np.int64(OFFSET)
        return (address & np.int64(OFFSET)) | (rank.astype(np.int64) + 1) << np.int64(RANK_SHIFT)

    def rank_of(self, address: Value) -> Value:
        """getctarank: the rank of the block that an address in the window belongs to."""
        field = address >> np.int64(RANK_SHIFT)
        return np.where(field == 0, self.rank, field - 1)

    def locate(self, address: Numbers) -> tuple[Numbers, Numbers, Bits]:
        """Of accesses: the number of the block, the offset in it, and whether there is none."""
        field = address >> RANK_SHIFT
        near = (field == 0) | (address < 0)
        stranger = ~near & ((field < 1) | (field > self.size))
        rank = np.where(near | stranger, self.rank, field - 1)
        block = self.peers[rank, self.row]
        offset = np.where(near, address, address & OFFSET)
        return block, np.broadcast_to(offset, block.shape), np.broadcast_to(stranger, block.shape)

    def home(self, address: int) -> Numbers | None:
        """Each block's peer that an address belongs to, or None for itself."""
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


def ctarank(chunk: WarpChunk, item: Instruction, address: Value) -> Value:
    """getctarank: the rank of the block whose shared memory an address is in."""
    window = address.astype(np.int64) & np.int64((1 << 56) - 1)
    return chunk.clusters.rank_of(window).astype(np.uint32)


@functools.lru_cache(maxsize=32)
def clusters_of(shape: Shape, dims: Coordinates) -> Clusters:
    """The clusters of chunks of a shape, which launches have again and again."""
    return Clusters(shape, dims)
