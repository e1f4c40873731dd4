"""Which pieces of shared memory an access touches, and for which threads.

Checks keep a value for every *granule* of a block's shared memory: as many bytes as the narrowest
access that the kernel has, so that every access is a number of whole granules. Blocks that do the
same at the same offsets, as they nearly always do, share one row of such values; the first access
that differs between blocks gives every block a row of its own.

A cluster of several blocks stands for a block here: its row has the granules of all its blocks, one
behind the other, and its threads are those of all (`Clusters.fold`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gen.emulator.isa.ops import Value
from gen.emulator.memory.bulk_moves import Move
from gen.emulator.memory.global_memory import Site, fits
from gen.emulator.memory.observer import ChunkObserver, ObservedChunk
from gen.emulator.ptx.module import TYPE_BYTES, Instruction
from gen.emulator.translate.program import Program
from gen.emulator.warp.clusters import OFFSET, RANK_SHIFT
from gen.emulator.warp.masks import (
    BLOCK_AXES,
    THREAD_AXES,
    Bits,
    Coordinates,
    Mask,
    Shape,
    spread,
)

Codes = npt.NDArray[np.int32]
Index = npt.NDArray[np.int64]

# A thread's code is its warp times 64, plus its lane, plus 1: codes order threads, and leave room
# in each warp for what belongs to no lane.
PER_WARP = 64
WARP_LANE = 33  # of an access that all lanes of a warp make together, such as ldmatrix

_WIDTHS = {"v2": 2, "v4": 4, "v8": 8}
_SPACES = {"shared", "global", "local", "const", "param"}


@dataclass(frozen=True)
class Touch:
    """The granules of one instruction; of the threads at each, the first and the last."""

    index: Index  # row times granules per row, plus granule
    low: Codes
    high: Codes


def granule_of(program: Program, space: str) -> int:
    """Bytes of the narrowest access that may be to "shared" or "global" memory, at most 16."""
    elsewhere = _SPACES - {space}
    sizes = [_size(item, elsewhere) for block in program.blocks for item in block.body]
    return min([16, *(size for size in sizes if size)])


def _size(item: Instruction, elsewhere: set[str]) -> int:
    if item.opcode in ("cp", "ldmatrix", "stmatrix", "mbarrier"):
        return 4
    words = [word.partition("::")[0] for word in item.modifiers]
    if item.opcode == "wmma" and item.modifiers[0] != "mma":  # elements apart, or several together
        return 0 if elsewhere & set(words) else TYPE_BYTES.get(words[-1], 4)
    if item.opcode not in ("ld", "ldu", "st", "atom", "red") or elsewhere & set(words):
        return 0
    lanes = max((_WIDTHS.get(word, 1) for word in words), default=1)
    return TYPE_BYTES.get(words[-1], 1) * lanes


def thread_codes(shape: Shape) -> Codes:
    """The code of every thread, over the thread axes of a chunk of `shape`."""
    dims = tuple(n if i in THREAD_AXES else 1 for i, n in enumerate(shape))
    linear = np.arange(np.prod(dims), dtype=np.int32).reshape(dims)
    return (linear // 32 * PER_WARP + linear % 32 + 1).astype(np.int32)


def _over_threads(value: npt.NDArray[Any], chunk: ObservedChunk) -> npt.NDArray[Any]:
    """What blocks of all clusters have alike, for the threads of one, as `fold` has these."""
    full = np.broadcast_to(value, chunk.shape)
    return chunk.clusters.fold(full) if chunk.clusters.size > 1 else value


def extremes(
    codes: npt.NDArray[Any], shape: Shape, mask: Mask | None
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], Bits | None]:
    """The least and the largest code of the lanes that share each element of an array of `shape`.

    Then which elements any lane of `mask` has (None: all of them).
    """
    none = codes.dtype.type(np.iinfo(codes.dtype).max)
    first = codes if mask is None else np.where(mask.bits, codes, none)
    last = codes if mask is None else np.where(mask.bits, codes, codes.dtype.type(-1))
    axes = tuple(i for i, n in enumerate(shape) if n == 1 and first.shape[i] > 1)
    low, high = first.min(axes, keepdims=True), last.max(axes, keepdims=True)
    if mask is None:
        return low, high, None
    used = low != none
    return low, high, None if used.all() else used


def thread_of(code: int, block: Sequence[int]) -> tuple[int, int, int]:
    """(x, y, z) of a thread's code; of the first lane where a whole warp is meant."""
    lane = code % PER_WARP - 1
    linear = code // PER_WARP * 32 + (lane if 0 <= lane < 32 else 0)
    return linear % block[0], linear // block[0] % block[1], linear // (block[0] * block[1])


class SharedWatch(ChunkObserver):
    """Base of checks on shared memory: places accesses, grows from one row to a row per block."""

    def __init__(self) -> None:
        self._granules: dict[Program, int] = {}

    each = False  # whether `place` tells apart the threads that share a granule

    def begin(self, chunk: ObservedChunk) -> None:
        """See Observer."""
        launch = chunk.launch
        if launch.program not in self._granules:
            self._granules[launch.program] = granule_of(launch.program, "shared")
        self.granule = self._granules[launch.program]
        self.shift = self.granule.bit_length() - 1
        self.nbytes = launch.shared_bytes
        self.clusters = chunk.clusters
        self.each_block = -(-self.nbytes // self.granule)  # granules
        self.columns = self.each_block * self.clusters.size  # granules per row
        self.rows = 1
        shape = chunk.clusters.folded
        self.owners = tuple(n if i in BLOCK_AXES else 1 for i, n in enumerate(shape))
        self.blocks = int(np.prod(self.owners))  # or clusters, if these have several
        self.owner = np.arange(self.blocks, dtype=np.int64).reshape(self.owners)
        self.full = shape
        self.block_codes = -(-chunk.threads // 32) * PER_WARP  # of each block
        codes = thread_codes(chunk.shape) + (chunk.clusters.rank * self.block_codes)
        self.codes = _over_threads(codes.astype(np.int32), chunk)
        self.codes = self.codes if self.clusters.size > 1 else thread_codes(shape)
        self.ranks = _over_threads(chunk.clusters.rank, chunk)  # of each thread's block
        self._mask: Mask | None = None
        self._folded: tuple[Mask | None, Mask | None] = (None, None)  # the latest, and as it is
        self._all: dict[Shape, Any] = {}
        self._some: dict[Shape, Any] = {}

    def widen(self) -> None:
        """Give every block its own row; a subclass repeats its arrays."""
        self.rows = self.blocks

    def place(self, site: Site, address: Value, mask: Mask | None) -> Touch | None:
        """The granules of an access at `address`, all offsets added; None if there are none."""
        relative = np.asarray(address).reshape(address.shape or (1,) * 6)
        if self.clusters.size > 1:
            relative, mask = self.clusters.fold(relative), self.fold_mask(mask)
        same = mask is None or all(mask.bits.shape[i] == 1 for i in BLOCK_AXES)
        same = same and all(relative.shape[i] == 1 for i in BLOCK_AXES)
        if not same and self.rows < self.blocks:
            self.widen()
        shape = relative.shape
        if self.each or self.clusters.size > 1:
            shape = np.broadcast_shapes(shape, self.codes.shape)
        if self.rows > 1:
            shape = np.broadcast_shapes(shape, self.owners)
        low, high, used = self._threads(shape, mask)
        columns: Any = 0
        if self.clusters.size > 1:
            field = relative >> RANK_SHIFT
            rank = np.where(field == 0, self.ranks, field - 1)
            good = (field >= 0) & (field <= self.clusters.size)
            relative, columns = relative & OFFSET, np.where(good, rank, 0) * self.each_block
            good = np.broadcast_to(good & (relative + site.size <= self.nbytes), shape)
            good = good & (relative & (site.size - 1) == 0)
            used = good if used is None else used & good
            used = None if used.all() else used
        elif not fits(relative, site.size, self.nbytes):
            # Lanes that do not run may have any address; what is out of bounds is memcheck's.
            good = (relative >= 0) & (relative + site.size <= self.nbytes)
            good &= relative & (site.size - 1) == 0
            used = good if used is None else used & good
        index: Any = (relative >> np.int64(self.shift)) + columns
        if self.rows > 1:
            index = index + self.owner * self.columns
        if used is not None:
            here = spread(used, shape)
            index, low, high = (spread(array, shape)[here] for array in (index, low, high))
            if not index.size:
                return None
        else:
            index, low, high = (spread(array, shape).ravel() for array in (index, low, high))
        several = site.size >> self.shift
        if several > 1:
            index = (index[:, None] + np.arange(several)).ravel()
            low, high = low.repeat(several), high.repeat(several)
        return Touch(index, low, high)

    def place_move(self, move: Move) -> Touch:
        """The granules that bulk copies touch, each lane's in the row of the block it is about."""
        clusters = self.clusters
        blocks = clusters.number[move.blocks]  # of clusters, which are these if they have one each
        homes, ranks = clusters.ranks[move.homes], clusters.ranks[move.blocks]
        order = np.argsort(blocks, kind="stable")
        each = max(1, len(order) // self.blocks)
        if self.rows < self.blocks:
            folded = order.reshape(-1, each) if len(order) == each * self.blocks else order[:, None]
            alike = len(folded) == self.blocks and all(
                (values[folded] == values[folded[:1]]).all()
                for values in (move.threads, move.shared, move.barriers, homes, ranks)
            )
            if alike and (blocks[folded] == np.arange(self.blocks)[:, None]).all():
                order = folded[0]
            else:
                self.widen()
        rows = blocks[order, None] if self.rows > 1 else 0
        places = move.shared[order, :: max(1, self.granule // move.size)] >> self.shift
        places = places + (homes[order] * self.each_block)[:, None]
        index = (rows * self.columns + places)[..., None] + np.arange(
            max(1, move.size // self.granule)
        )
        code = move.threads[order] // 32 * PER_WARP + move.threads[order] % 32 + 1
        code = code + ranks[order] * self.block_codes
        codes = np.broadcast_to(code.astype(np.int32)[:, None, None], index.shape).ravel()
        return Touch(index.ravel(), codes, codes)

    def _threads(self, shape: Shape, mask: Mask | None) -> tuple[Codes, Codes, Bits | None]:
        """First and last thread at each element of `shape`, and which elements have any."""
        if mask is None:
            known = self._all
        else:
            if mask is not self._mask:
                self._mask, self._some = mask, {}
            known = self._some
        if shape not in known:
            known[shape] = extremes(self.codes, shape, mask)
        found: tuple[Codes, Codes, Bits | None] = known[shape]
        return found

    def fold_mask(self, mask: Mask | None) -> Mask | None:
        """A mask as `Clusters.fold` has it."""
        if self.clusters.size == 1 or mask is None:
            return mask
        if mask is not self._folded[0]:
            self._folded = mask, Mask(self.clusters.fold(mask.bits))
        return self._folded[1]

    def block_at(self, chunk: ObservedChunk, index: int) -> Coordinates:
        """(x, y, z) of the block whose granule `index` is: of the first one if they share."""
        return self.block_of(chunk, index, index % self.columns // max(1, self.each_block))

    def block_of(self, chunk: ObservedChunk, index: int, rank: int) -> Coordinates:
        """(x, y, z) of the block of a rank in the cluster whose granule `index` is."""
        counts = [chunk.shape[i] for i in BLOCK_AXES]
        first = self.clusters.firsts[index // self.columns]
        z, y, x = np.unravel_index(self.clusters.peers[rank, first], counts)
        ox, oy, oz = chunk.origin
        return ox + int(x), oy + int(y), oz + int(z)

    def where(self, chunk: ObservedChunk, index: int) -> str:
        """The byte of shared memory where a granule begins."""
        return chunk.describe_shared(index % self.columns % self.each_block * self.granule)

    def thread(self, chunk: ObservedChunk, code: int) -> Coordinates:
        """(x, y, z) of a thread in its block."""
        return thread_of(code % self.block_codes, chunk.launch.block)
