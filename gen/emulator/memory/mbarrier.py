"""mbarrier objects: phases that complete once all arrivals and all bytes of copies are there.

A wait never blocks here. It gives false, and the scheduler (`run.chunk`) lets the lanes that it has
turned away try again once a phase has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gen.emulator.isa.ops import Value
from gen.emulator.memory.bulk_moves import Move
from gen.emulator.memory.chances import TRIES
from gen.emulator.memory.global_memory import Site
from gen.emulator.memory.mbarrier_bits import MOST, State, Words
from gen.emulator.memory.mbarrier_objects import Objects
from gen.emulator.memory.observer import ObservedChunk
from gen.emulator.warp.clusters import OFFSET
from gen.emulator.warp.masks import NOBODY, Bits, Mask, lanes_of, narrow

_WIDE = "cluster"  # the scope of an acquire beyond its block, which is the default


@dataclass(frozen=True)
class Poll:
    """The lanes that one wait has turned away, and what they wait for."""

    site: Site
    address: Value
    parity: Value
    lanes: Bits


class MBarriers(Objects):
    """The mbarrier objects of one chunk."""

    def __init__(self, chunk: ObservedChunk) -> None:
        super().__init__(chunk)
        self.changed = False  # whether a phase has completed since waiting lanes were last let go
        self.moved = False  # whether a wait has let lanes through since then
        self.polls: dict[int, Poll] = {}  # by the wait's instruction
        self._tries: dict[tuple[int, bytes], int] = {}  # of late waits, by their lanes
        self.under_way: Sequence[Move] = ()  # bulk copies that will count their bytes

    # -- what generated code calls -------------------------------------------------------------
    def init(self, site: Site, address: Value, count: Value, mask: Mask | None) -> None:
        """mbarrier.init: a first phase, of parity 0, that waits for `count` arrivals."""
        for offset, lanes in self._own(site, address, mask, written=True):
            wanted = self._per_block(count, lanes, reduce=np.max)
            here = self._per_block(np.int64(1), lanes) > 0
            self._check_idle(site, offset, lanes, here & (self.peek(offset) >= 0))
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
            self._check_idle(site, offset, lanes, here)
            self._write(offset, here, np.full_like(words, -1))

    def _check_idle(self, site: Site, offset: int, lanes: Mask | None, here: Bits) -> None:
        """A finding where an object ends that bulk copies are still going to count at."""
        for move in self.under_way:
            mine = (move.barriers == offset) & here.reshape(-1)[move.homes]
            if mine.any():
                blocks = np.zeros(here.shape, np.bool_)
                blocks.reshape(-1)[move.homes[mine]] = True
                line = f" at line {move.site.item.line}" if move.site.item.line else ""
                rule = f"the bulk copy{line}, which counts its bytes there, is still under way"
                self._report(site, offset, narrow(lanes, blocks), rule)

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
            for observer in self.chunk.launch.observers:
                observer.count(self.chunk, site, offset, lanes, done)
                if releases:
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
                observer.count(self.chunk, site, offset, lanes, done)
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
        late = self._comes_late(site, mask)
        wide = _WIDE in site.item.modifiers
        for offset, lanes in self._own(site, address, mask):
            words, _ = self._read(site, offset, lanes)
            done = State.of(words).phase != wanted
            if done.min() == done.max():
                done = done.flat[0]
            seen = NOBODY if late else narrow(lanes, done)
            for observer in self.chunk.launch.observers if seen is not NOBODY else ():
                observer.passed(self.chunk, site, offset, seen)
                if acquires:
                    observer.observe(self.chunk, offset, seen, wide)
            result = _blend(lanes, done, result)
        self._note(Poll(site, address, wanted, ~np.asarray(result)), mask)
        return result & np.False_ if late else result

    def _comes_late(self, site: Site, mask: Mask | None) -> bool:
        """Whether the lanes of a wait are to see a phase later than it completes: see Chances."""
        if not self.chunk.launch.chances.late:
            return False
        key = id(site.item), b"" if mask is None else mask.bits.tobytes()
        tries = self._tries.get(key, 0)
        self._tries[key] = tries + 1
        return tries < TRIES or tries % 2 == 0

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

    # -- phases --------------------------------------------------------------------------------
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
        beyond = here & (abs(state.bytes) > MOST)
        if beyond.any():
            some = narrow(lanes, self._seen_from(beyond, offset))
            self._report(site, offset, some, f"a tx-count of more than {MOST} bytes")
            state.bytes = state.bytes.clip(-MOST, MOST)
        self.changed |= bool(ended.any())
        return ended

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
