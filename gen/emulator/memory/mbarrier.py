"""mbarrier objects: phases that complete once all arrivals and all bytes of copies are there.

A wait never blocks here. It gives false, and the scheduler (`run.chunk`) lets the lanes that it has
turned away try again once a phase has changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gen.emulator.isa.ops import Value
from gen.emulator.memory.global_memory import Site
from gen.emulator.memory.mbarrier_bits import MOST, State, Words
from gen.emulator.memory.observer import ObservedChunk
from gen.emulator.warp.clusters import OFFSET, RANK_SHIFT
from gen.emulator.warp.masks import NOBODY, THREAD_AXES, Bits, Mask, lanes_of, narrow
from gen.emulator.warp.shuffles import from_warps, to_warps

_OWN_BLOCK = (
    "in another block, an mbarrier takes only expect_tx, complete_tx, and arrivals with the sink _"
)


@dataclass(frozen=True)
class Poll:
    """The lanes that one wait has turned away, and what they wait for."""

    site: Site
    address: Value
    parity: Value
    lanes: Bits


class MBarriers:
    """The mbarrier objects of one chunk."""

    def __init__(self, chunk: ObservedChunk) -> None:
        self.chunk = chunk
        self.changed = False  # whether a phase has completed since waiting lanes were last let go
        self.moved = False  # whether a wait has let lanes through since then
        self.polls: dict[int, Poll] = {}  # by the wait's instruction

    # -- what generated code calls -------------------------------------------------------------
    def init(self, site: Site, address: Value, count: Value, mask: Mask | None) -> None:
        """mbarrier.init: a first phase, of parity 0, that waits for `count` arrivals."""
        for offset, lanes in self._own(site, address, mask, written=True):
            wanted = self._per_block(count, lanes, reduce=np.max)
            here = self._per_block(np.int64(1), lanes) > 0
            if ((wanted < 1) | (wanted > MOST))[here].any():
                self._report(site, offset, lanes, f"an arrival count from 1 to {MOST} expected")
            wanted = wanted.clip(1, MOST)
            nothing = np.zeros_like(wanted)
            words = State(wanted, wanted, nothing, nothing).pack()
            self._write(offset, here, words)

    def invalidate(self, site: Site, address: Value, mask: Mask | None) -> None:
        """mbarrier.inval: the bytes are no mbarrier object any more."""
        for offset, lanes in self._own(site, address, mask, written=True):
            words, here = self._read(site, offset, lanes)
            self._write(offset, here, np.full_like(words, -1))

    def arrive(
        self, site: Site, address: Value, mask: Mask | None, count: Value, expect: Value,
        drop: bool, releases: bool, wanted: bool,
    ) -> Value:  # fmt: skip
        """mbarrier.arrive, arrive_drop and arrive.expect_tx; the state before, for a wait.

        wanted: whether that state is used, which an mbarrier of another block does not give.
        """
        result: Value = np.int64(0)
        find = self._own if wanted else self._objects
        for offset, lanes in self._turns(find(site, address, mask), count):
            words, here = self._read(site, offset, lanes)
            arrivals = self._per_block(count, lanes, offset)
            state = State.of(words)
            if drop:
                state.expected = np.maximum(state.expected - arrivals, 0)
            state.bytes = state.bytes + self._per_block(expect, lanes, offset)
            done = self._complete(site, offset, lanes, state, arrivals, here)
            self._write(offset, here, state.pack())
            for observer in self.chunk.launch.observers if releases else ():
                observer.arrive(self.chunk, offset, lanes, done)
            if wanted:
                result = _blend(lanes, words, result)
        return result

    def transact(self, site: Site, address: Value, mask: Mask | None, change: Value) -> None:
        """mbarrier.expect_tx, and complete_tx with `change` negative: bytes without an arrival."""
        for offset, lanes in self._objects(site, address, mask):
            self.count_bytes(site, offset, lanes, change)

    def count_bytes(self, site: Site, offset: int, lanes: Mask | None, change: Value) -> Bits:
        """Add to the bytes that are expected; the blocks whose phase is complete with that."""
        words, here = self._read(site, offset, lanes)
        state = State.of(words)
        state.bytes = state.bytes + self._per_block(change, lanes, offset)
        done = self._complete(site, offset, lanes, state, np.zeros_like(words), here)
        self._write(offset, here, state.pack())
        return done

    def land(self, site: Site, address: Value, mask: Mask | None) -> None:
        """The arrivals of cp.async.mbarrier.arrive: the lanes' copies have landed."""
        for offset, lanes in self._turns(self._own(site, address, mask), np.int64(1)):
            words, here = self._read(site, offset, lanes)
            state = State.of(words)
            arrivals = self._per_block(np.int64(1), lanes)
            done = self._complete(site, offset, lanes, state, arrivals, here)
            self._write(offset, here, state.pack())
            for observer in self.chunk.launch.observers:
                observer.arrive_copies(self.chunk, offset, lanes, done)

    def track(self, site: Site, address: Value, mask: Mask | None) -> None:
        """cp.async.mbarrier.arrive without .noinc: the phase needs these arrivals as well."""
        for offset, lanes in self._own(site, address, mask):
            words, here = self._read(site, offset, lanes)
            more = self._per_block(np.int64(1), lanes)
            self._write(offset, here, words + more)

    def wait(
        self, site: Site, address: Value, state: Value, parity: bool, acquires: bool,
        mask: Mask | None,
    ) -> Value:  # fmt: skip
        """test_wait and try_wait: whether the phase of a state, or of a parity, is complete."""
        wanted = state.astype(np.int64) if parity else State.of(state).phase
        result: Value = np.False_
        for offset, lanes in self._own(site, address, mask):
            words, _ = self._read(site, offset, lanes)
            done = State.of(words).phase != wanted
            if done.min() == done.max():
                done = done.flat[0]
            seen = narrow(lanes, done)
            if seen is not NOBODY and acquires:
                for observer in self.chunk.launch.observers:
                    observer.observe(self.chunk, offset, seen)
            result = _blend(lanes, done, result)
        self._note(Poll(site, address, wanted, ~np.asarray(result)), mask)
        return result

    def _note(self, poll: Poll, mask: Mask | None) -> None:
        """Remember which lanes a wait turns away, besides others that it has turned away."""
        lanes = poll.lanes.reshape(poll.lanes.shape or (1,) * 6)
        self.moved |= not lanes.all()
        old = self.polls.get(id(poll.site.item))
        if mask is not None:
            lanes = lanes & mask.bits
            if old:
                lanes = lanes | old.lanes & ~mask.bits
                values = ((poll.address, old.address), (poll.parity, old.parity))
                address, parity = (np.where(mask.bits, new, before) for new, before in values)
                poll = replace(poll, address=address, parity=parity)
        self.polls[id(poll.site.item)] = replace(poll, lanes=lanes)

    def again(self) -> None:
        """Lanes that were turned away are about to look again."""
        self.changed = self.moved = False
        self.polls.clear()

    # -- objects -------------------------------------------------------------------------------
    # Offsets of objects in another block have its rank above them, as addresses do.

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

    def _complete(
        self, site: Site, offset: int, lanes: Mask | None, state: State, arrivals: Words, here: Bits
    ) -> Bits:
        """Count arrivals, and start a new phase in each block where nothing is missing."""
        left, ended = np.where(here, arrivals, 0), np.zeros(here.shape, np.bool_)
        while True:
            counted = np.minimum(left, state.pending)
            left, state.pending = left - counted, state.pending - counted
            done = here & (state.pending == 0) & (state.bytes == 0) & ((left > 0) | ~ended)
            if not done.any():
                break
            ended = ended | done
            state.phase = np.where(done, 1 - state.phase, state.phase)
            state.pending = np.where(done, state.expected, state.pending)
        if (left > 0).any():
            some = narrow(lanes, self._seen_from(left > 0, offset))
            self._report(site, offset, some, "more arrivals than it waits for")
        if (abs(state.bytes) > MOST).any():
            self._report(site, offset, lanes, f"a tx-count of more than {MOST} bytes")
            state.bytes = state.bytes.clip(-MOST, MOST)
        self.changed |= bool(ended.any())
        return ended

    # -- findings ------------------------------------------------------------------------------
    def _report(self, site: Site, offset: int, lanes: Mask | None, rule: str) -> None:
        chunk = self.chunk
        bits = np.ones((1,) * 6, np.bool_) if lanes is None else lanes.bits
        block, threads, _ = lanes_of(bits, None, chunk.shape, chunk.origin)
        where = chunk.describe_shared(offset)
        message = f"{'.'.join(site.item.name.split('.')[:2])} at {where}: {rule}"
        chunk.launch.findings.add("synccheck", site.item, message, block, threads, where)

    def report_deadlock(self, poll: Poll, lanes: Mask) -> None:
        """A finding for lanes that wait for a phase that nothing can complete any more."""
        chunk = self.chunk
        block, threads, count = lanes_of(lanes.bits, None, chunk.shape, chunk.origin)
        x, y, z = threads[0]
        bx, by, bz = (at - first for at, first in zip(block, chunk.origin, strict=True))
        at = (bz, z, by, y, bx, x)
        address, parity = (
            int(np.broadcast_to(value, chunk.shape)[at]) for value in (poll.address, poll.parity)
        )
        offset = (address & ((1 << 56) - 1)) + poll.site.offset
        offset = offset & OFFSET if chunk.clusters.size > 1 else offset
        where = chunk.describe_shared(offset)
        home = f" of block ({','.join(map(str, block))})" if chunk.clusters.size > 1 else ""
        message = (
            f"deadlock: {count} threads wait at the mbarrier at {where}{home} for its phase of "
            f"parity {parity}, "
        )
        if 0 <= offset <= chunk.launch.shared_bytes - 8:
            state = State.of(int(self.peek(offset)[bz, 0, by, 0, bx, 0]))
            message += f"which lacks {state.pending} of {state.expected} arrivals and "
            message += f"{max(state.bytes, 0)} bytes of copies"
            message += f", has {-state.bytes} bytes too many" * (state.bytes < 0)
            message += ", and nothing is under way"
        else:
            message += "but there is no shared memory"
        chunk.launch.findings.add("synccheck", poll.site.item, message, block, threads, where)


def _blend(lanes: Mask | None, value: Value, other: Value) -> Value:
    """`value` for the lanes, `other` elsewhere; one scalar where that is all the same."""
    if isinstance(value, np.ndarray) and value.min() == value.max():
        value = value.flat[0]
    if lanes is None:
        return value
    if np.ndim(value) == np.ndim(other) == 0 and value == other:
        return other
    return np.where(lanes.bits, value, other)
