"""What tells clocks which threads something has ordered: the base of checks that keep any.

Barriers do, mbarriers, barriers of clusters and `__syncwarp`. A check says when it starts which
clocks it keeps; without any, nothing here is recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from gen.emulator.isa.classes import is_barrier
from gen.emulator.memory.observer import ObservedChunk
from gen.emulator.ptx.module import Instruction
from gen.emulator.translate.program import Program
from gen.emulator.warp.clusters import OFFSET, RANK_SHIFT
from gen.emulator.warp.masks import THREAD_AXES, Bits, Mask
from gen.emulator.watch.flag_clocks import FlagClocks, has_flags
from gen.emulator.watch.granules import PER_WARP, SharedWatch
from gen.emulator.watch.vector_clocks import Clocks

CLUSTER = -1  # the clocks' key of a cluster's barrier; mbarriers' are their offsets


class Ordering(SharedWatch):
    """Keeps clocks, if a check has set any."""

    clocks: Clocks | None = None

    def widen(self) -> None:
        """See SharedWatch."""
        if self.clocks:
            self.clocks.widen(self.blocks)
        super().widen()

    # -- threads -------------------------------------------------------------------------------
    def _widen_for(self, mask: Mask | None) -> None:
        if mask is not None and self.rows < self.blocks:
            folded = self.fold_mask(mask)
            if folded is not None and _differs(folded.bits):
                self.widen()

    def _per_thread(self, values: Any) -> npt.NDArray[Any]:
        """Values over a chunk's axes as (rows, thread code)."""
        shape = [n if i in THREAD_AXES or self.rows > 1 else 1 for i, n in enumerate(self.full)]
        if self.clusters.size > 1:
            values = self.clusters.fold(np.asarray(values).reshape(np.shape(values) or (1,) * 6))
        by_block = np.broadcast_to(values, shape).transpose(0, 2, 4, 1, 3, 5)
        table = np.zeros((self.rows, (int(self.codes.max()) // PER_WARP + 1) * PER_WARP),
                         by_block.dtype)  # fmt: skip
        table[:, self.codes.ravel()] = by_block.reshape(self.rows, -1)
        return table

    def _lanes(self, mask: Mask | None) -> npt.NDArray[np.bool_]:
        """A mask as (rows, thread)."""
        assert self.clocks is not None
        self._widen_for(mask)
        return self.clocks.lanes(self._per_thread(np.True_ if mask is None else mask.bits))

    def _rows(self, blocks: Bits, rank: int = 0) -> npt.NDArray[np.bool_]:
        """What is true of blocks, those of a rank in their clusters, for each row."""
        clusters = self.clusters
        flat = np.broadcast_to(blocks, clusters.row.shape).reshape(-1)
        flat = flat if clusters.size == 1 else flat[clusters.peers[rank, clusters.firsts]]
        if self.rows < self.blocks and flat.min() != flat.max():
            self.widen()
        return flat[: self.rows]

    def _objects(self, offset: int, mask: Mask | None) -> Iterator[tuple[int, int, Mask | None]]:
        """An mbarrier in each block where lanes name it: its key for the clocks, rank and lanes."""
        if self.clusters.size == 1:
            yield offset & OFFSET, 0, mask
        elif rank := offset >> RANK_SHIFT:
            yield offset - (1 << RANK_SHIFT), rank - 1, mask
        else:
            for rank, some in self.clusters.by_rank(mask):
                yield rank << RANK_SHIFT | offset, rank, some

    # -- what orders ---------------------------------------------------------------------------
    def arrive(self, chunk: ObservedChunk, offset: int, mask: Mask | None, done: Bits) -> None:
        """See Observer."""
        if self.clocks:
            for key, rank, some in self._objects(offset, mask):
                rows = self._rows(done, rank)
                self.clocks.arrive(key, self._lanes(some), rows)

    def observe(self, chunk: ObservedChunk, offset: int, mask: Mask | None, wide: bool) -> None:
        """See Observer."""
        if self.clocks:
            for key, _, some in self._objects(offset, mask):
                self.clocks.observe(key, self._lanes(some), wide)

    def cluster_arrive(
        self, chunk: ObservedChunk, mask: Mask | None, releases: Mask | None, done: Bits
    ) -> None:
        """See Observer."""
        assert self.clocks is not None
        rows = self._rows(done)
        if releases is not mask and self.clocks.proxies:
            self.clocks.arrive_inits(CLUSTER, self._lanes(mask), np.zeros_like(rows))
        self.clocks.arrive(CLUSTER, self._lanes(releases), rows)

    def cluster_wait(self, chunk: ObservedChunk, mask: Mask | None) -> None:
        """See Observer."""
        assert self.clocks is not None
        self.clocks.observe(CLUSTER, self._lanes(mask))

    def barrier(self, chunk: ObservedChunk, blocks: Bits | None) -> None:
        """See Observer."""
        if self.clocks:
            whole = np.ones((1,) * 6, np.bool_) if blocks is None else blocks
            for _, some in self.clusters.by_rank(Mask(whole)):
                self.clocks.meet(self._lanes(some))

    def arrive_early(self, chunk: ObservedChunk, number: int, mask: Mask) -> None:
        """See Observer."""
        assert self.clocks is not None
        for rank, some in self.clusters.by_rank(mask):
            lanes = self._lanes(some)
            self.clocks.arrive(("barrier", rank, number), lanes, np.ones(len(lanes), np.bool_))

    def meet(self, chunk: ObservedChunk, number: int, mask: Mask, early: Mask) -> None:
        """See Observer."""
        assert self.clocks is not None
        for rank, some in self.clusters.by_rank(mask):
            lanes = self._lanes(some)
            self.clocks.meet(lanes)
            self.clocks.observe(("barrier", rank, number), lanes)

    def warp_sync(self, chunk: ObservedChunk, mask: Mask | None) -> None:
        """See Observer."""
        if self.clocks:
            self.clocks.meet(self._lanes(mask), by_warp=True)


def _differs(bits: Bits) -> bool:
    return any(bits.shape[i] > 1 for i in (0, 2, 4))


def clocks_of(chunk: ObservedChunk) -> Clocks | None:
    """The clocks of a kernel that needs them.

    It has mbarriers, flags, barriers for part of a block or for clusters, or clusters of several
    blocks.
    """
    kind, needed, copies, mbarriers = _clocks_for(chunk.launch.program)
    several = chunk.clusters.size
    if not (needed or several > 1):
        return None
    return kind(chunk.threads, copies or (several > 1 and mbarriers), several)


@lru_cache(maxsize=16)  # one chunk follows the other
def _clocks_for(program: Program) -> tuple[type[Clocks], bool, bool, bool]:
    """The kind of clocks, whether a single block needs them, and what they depend on besides."""
    items = [item for block in program.blocks for item in block.instructions]
    by_proxy = ("cp.async.bulk", "cp.reduce", "wgmma.mma")
    copies = any(item.name.startswith(by_proxy) for item in items)
    ends = (block.end for block in program.blocks if block.kind == "barrier")
    parts = any(len(end.operands) > 1 for end in ends if end)
    mbarriers = any(item.opcode == "mbarrier" for item in items)
    kind = FlagClocks if has_flags(items) else Clocks
    needed = copies or parts or mbarriers or kind is FlagClocks or any(map(_is_beyond, items))
    return kind, needed, copies, mbarriers


def _is_beyond(item: Instruction) -> bool:
    """Whether it is a barrier for more than its block, or without waiting."""
    return item.name.startswith("barrier.cluster") or (
        is_barrier(item) and "arrive" in item.modifiers
    )
