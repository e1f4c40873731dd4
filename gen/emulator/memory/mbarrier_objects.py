"""The mbarrier objects that lanes of a chunk name, in their own block or in others of its cluster.

Offsets of objects in another block have its rank above them, as addresses do (`warp.clusters`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from gen.emulator.isa.ops import Value
from gen.emulator.memory.global_memory import Site
from gen.emulator.memory.mbarrier_bits import State, Words
from gen.emulator.memory.observer import ObservedChunk
from gen.emulator.warp.clusters import OFFSET, RANK_SHIFT
from gen.emulator.warp.masks import NOBODY, THREAD_AXES, Bits, Mask, lanes_of, narrow
from gen.emulator.warp.shuffles import from_warps, to_warps

_OWN_BLOCK = (
    "in another block, an mbarrier takes only expect_tx, complete_tx, and arrivals with the sink _"
)


class Objects:
    """The mbarrier objects of one chunk."""

    def __init__(self, chunk: ObservedChunk) -> None:
        self.chunk = chunk

    def _own(
        self, site: Site, address: Value, mask: Mask | None, written: bool = False
    ) -> Iterator[tuple[int, Mask | None]]:
        """As `_objects`, those of the executing block; a finding for others."""
        for offset, lanes in self._objects(site, address, mask, written):
            rank = (offset >> RANK_SHIFT) - 1
            if rank < 0:
                yield offset, lanes
                continue
            mine = self.chunk.clusters.rank == rank
            if (far := narrow(lanes, ~mine)) is not NOBODY:
                self._report(site, offset, far, _OWN_BLOCK)
            if (near := narrow(lanes, mine)) is not NOBODY:
                yield offset & OFFSET, near

    def _objects(
        self, site: Site, address: Value, mask: Mask | None, written: bool = False
    ) -> Iterator[tuple[int, Mask | None]]:
        """The offset in shared memory of each object that lanes name, and those lanes."""
        chunk = self.chunk
        for space, local, lanes in chunk.spaces(site, address, mask):
            exact = np.asarray(local + np.int64(site.offset))
            if space != "shared":
                bits = np.ones((1,) * 6, np.bool_) if lanes is None else lanes.bits
                where = exact.reshape(exact.shape or (1,) * 6)
                chunk.report(site, "outside of shared memory", where, bits, lanes)
                continue
            for observer in chunk.launch.observers:
                see = observer.store if written else observer.atomic
                see(chunk, site, space, local, lanes)
            active = None if lanes is None else lanes.over(exact.shape)
            used = True if active is None else active.bits
            for offset in np.unique(exact[np.broadcast_to(used, exact.shape)]):
                here = narrow(lanes, exact == offset)
                inside = 0 <= offset & OFFSET <= chunk.shared.nbytes - 8
                inside = inside and 0 <= offset >> RANK_SHIFT <= chunk.clusters.size
                if inside and not offset % 8:
                    yield int(offset), here
                    continue
                what = "misaligned" if inside else "out of bounds"
                bad = np.asarray(exact == offset).reshape(exact.shape or (1,) * 6)
                chunk.report(replace(site, space="shared"), what, exact.reshape(bad.shape), bad,
                             lanes)  # fmt: skip

    def _turns(
        self, objects: Iterator[tuple[int, Mask | None]], count: Value
    ) -> Iterator[tuple[int, Mask | None]]:
        """`objects`, but lanes behind those that complete a phase come in a turn of their own.

        What those do is not ordered before the phase, and counts for the next one.
        """
        for offset, lanes in objects:
            while lanes is not NOBODY:
                words = self.peek(offset)
                room = np.where(words < 0, 0, -(-State.of(words).pending // max(1, count.max())))
                turn = lanes
                one = self._per_block(np.int64(1), lanes, offset)
                if (room > 0).any() and (one > room).any():
                    room = self._seen_from(room, offset)
                    turn = narrow(lanes, (self._rank(lanes, offset) < room) | (room == 0))
                yield offset, turn
                assert turn is not None or lanes is None
                lanes = NOBODY if turn is lanes or turn is None else narrow(lanes, ~turn.bits)

    def _rank(self, lanes: Mask | None, offset: int) -> Words:
        """How many of the lanes come before each to the same object."""
        chunk = self.chunk
        warps = to_warps(chunk, np.True_ if lanes is None else lanes.bits).astype(np.int64)
        flat = warps.reshape(len(warps), -1)
        before = flat.cumsum(axis=1) - flat
        if offset >> RANK_SHIFT:  # those of the blocks of a cluster together, block by block
            total = np.zeros(len(flat), np.int64)
            for home in chunk.clusters.firsts:
                blocks = np.flatnonzero(chunk.clusters.peers[0] == home)
                each = flat[blocks].sum(axis=1)
                total[blocks] = each.cumsum() - each
            before = before + total[:, None]
        rank: Words = from_warps(chunk, before.reshape(warps.shape))
        return rank

    def _seen_from(self, blocks: Any, offset: int) -> Any:
        """What is so of the blocks with an object, for the blocks whose lanes name it."""
        home = self.chunk.clusters.home(offset)
        return blocks if home is None else blocks.reshape(-1)[home]

    def _per_block(
        self, value: Value, lanes: Mask | None, offset: int = 0, reduce: Any = np.sum
    ) -> Words:
        """What the lanes give, added up for each block in which they name an object."""
        shape = self.chunk.shape
        if value.ndim == 0 and (reduce is np.sum or lanes is None):
            each = self.chunk.threads if lanes is None else lanes.per_block(shape)
            total = value * each if reduce is np.sum else value
        else:
            bits = True if lanes is None else lanes.bits
            given = np.broadcast_to(np.where(bits, value, 0), shape)
            total = reduce(given, axis=THREAD_AXES, keepdims=True)
        given = np.array(np.broadcast_to(total, self.chunk.shared.shape), np.int64)
        home = self.chunk.clusters.home(offset)
        if home is not None:
            there = np.zeros_like(given)
            np.add.at(there.reshape(-1), home.reshape(-1), given.reshape(-1))
            return there
        return given

    def peek(self, offset: int) -> Words:
        """The object at `offset` of every block."""
        scratch, at = self.chunk.shared, (offset & OFFSET) >> 3
        return scratch.view(np.dtype(np.int64))[:, at].reshape(scratch.shape).copy()

    def _read(self, site: Site, offset: int, lanes: Mask | None) -> tuple[Words, Bits]:
        """The objects at `offset`, and in which blocks `lanes` name one, all initialised."""
        words = self.peek(offset)
        here = self._per_block(np.int64(1), lanes, offset) > 0
        bad = here & (words < 0)
        if bad.any():
            some = narrow(lanes, self._seen_from(bad, offset))
            self._report(site, offset, some, "this is no initialised mbarrier object")
        return words, here & ~bad

    def _write(self, offset: int, here: Bits, words: Words) -> None:
        scratch = self.chunk.shared
        blocks = here.reshape(-1)
        scratch.changed()
        scratch.view(np.dtype(np.int64))[blocks, (offset & OFFSET) >> 3] = words.reshape(-1)[blocks]

    def _report(self, site: Site, offset: int, lanes: Mask | None, rule: str) -> None:
        chunk = self.chunk
        bits = np.ones((1,) * 6, np.bool_) if lanes is None else lanes.bits
        block, threads, _ = lanes_of(bits, None, chunk.shape, chunk.origin)
        where = chunk.describe_shared(offset)
        message = f"{'.'.join(site.item.name.split('.')[:2])} at {where}: {rule}"
        chunk.launch.findings.add("synccheck", site.item, message, block, threads, where)
