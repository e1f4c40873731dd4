"""The barriers of a block: who has come to each, in which order, and whom a barrier lets go.

A barrier counts arrivals and is complete with as many as its instructions say, or with the whole
block. Whoever comes after that counts for the next time. A warp counts as 32 threads, also where
its block ends inside of it, or where some of its threads have exited.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gen.emulator.isa.ops import Value
from gen.emulator.memory.observer import ObservedChunk
from gen.emulator.ptx.module import Instruction
from gen.emulator.warp.masks import NOBODY, THREAD_AXES, WARP, Bits, Mask, lanes_of, narrow
from gen.emulator.warp.shuffles import from_warps, to_warps

BARRIERS = 16  # of a block, by their number

Counts = npt.NDArray[np.int64]  # of each block, shaped (z, 1, y, 1, x, 1)


@dataclass(frozen=True)
class Arrival:
    """Lanes that have come to a barrier together."""

    item: Instruction
    at: int  # the basic block that ends there; -1: they do not wait
    number: int
    count: int  # threads that the barrier waits for
    counted: bool  # whether the instruction says so
    mask: Mask


class Barriers:
    """The barriers of one chunk."""

    def __init__(self, chunk: ObservedChunk) -> None:
        self.chunk = chunk
        self.threads = -(-chunk.threads // WARP) * WARP  # of a block, in whole warps
        self.arrivals: list[Arrival] = []  # that no barrier has let go yet, in order
        self._choice: Bits | None = None
        self._yes = self._all = np.zeros((1,) * 6, np.int64)

    @property
    def waiting(self) -> list[Arrival]:
        """The arrivals that wait."""
        return [arrival for arrival in self.arrivals if arrival.at >= 0]

    # -- arrivals ------------------------------------------------------------------------------
    def arrive(
        self, item: Instruction, number: Value, count: Value | None, mask: Mask | None, at: int = -1
    ) -> None:
        """Lanes come to barriers, and wait there if `at` says where; bar.arrive goes on."""
        lanes = mask or Mask(np.ones((1,) * 6, np.bool_))
        for which, size, some in _alike(number, count, lanes):
            wanted = self._checked(item, which, size, some)
            self.arrivals.append(Arrival(item, at, which, wanted, count is not None, some))
            for observer in self.chunk.launch.observers if at < 0 else ():
                observer.arrive_early(self.chunk, which, some)

    def _checked(self, item: Instruction, number: int, count: int | None, lanes: Mask) -> int:
        """How many threads a barrier waits for, after findings for what PTX does not allow."""
        if not 0 <= number < BARRIERS:
            rule = f"a block has no barrier {number}, only 0 to {BARRIERS - 1}"
            self.report(item, f"invalid arguments: {rule}", lanes)
        if count is None:
            return self.threads
        wanted = -(-count // WARP) * WARP
        if wanted != count or not 0 < count <= self.threads:
            rule = f"a barrier for {count} threads"
            if wanted != count:
                rule += f", which is no multiple of {WARP}"
            elif count > self.threads:
                rule += f", more than the {self.chunk.threads} of the block"
            self.report(item, f"invalid arguments: {rule}", lanes)
        return min(wanted, self.threads) if wanted > 0 else self.threads

    def report(self, item: Instruction, message: str, lanes: Mask) -> None:
        """A synccheck finding for the first block of `lanes`."""
        chunk = self.chunk
        block, threads, _ = lanes_of(lanes.bits, None, chunk.shape, chunk.origin)
        chunk.launch.findings.add("synccheck", item, message, block, threads)

    # -- completion ----------------------------------------------------------------------------
    def completed(self) -> Iterator[list[Arrival]]:
        """The arrivals of each time that a barrier completes, which are taken away."""
        for number in dict.fromkeys(arrival.number for arrival in self.arrivals):
            yield from self._times([a for a in self.arrivals if a.number == number])

    def _times(self, here: list[Arrival]) -> Iterator[list[Arrival]]:
        """The same for one barrier."""
        lanes = np.stack([to_warps(self.chunk, arrival.mask.bits) for arrival in here], axis=1)
        credit = self._credit(here, lanes)  # (block, arrival, warp)
        came = credit.any(axis=-1)
        counts = np.array([arrival.count for arrival in here])
        wanted = counts[came.argmax(axis=1)]  # what those who came first say
        self._report_counts(here, came & (counts != wanted[:, None]))
        flat = credit.reshape(len(credit), -1)
        time = (flat.cumsum(axis=1) - flat) // wanted[:, None]  # how often it completes before
        done = (flat > 0) & (time < (flat.sum(axis=1) // wanted)[:, None])
        if not done.any():
            return
        self._report_divergence(here, credit, done.reshape(credit.shape))
        left = (credit > 0) & ~done.reshape(credit.shape)
        kept = [self._part(arrival, lanes[:, at], left[:, at]) for at, arrival in enumerate(here)]
        behind = dict(zip(map(id, here), kept, strict=True))
        replaced = (behind.get(id(arrival), arrival) for arrival in self.arrivals)
        self.arrivals = [arrival for arrival in replaced if arrival is not None]
        for now in range(int(time[done].max()) + 1):
            going = (done & (time == now)).reshape(credit.shape)
            parts = (self._part(a, lanes[:, at], going[:, at]) for at, a in enumerate(here))
            yield [part for part in parts if part is not None]

    def _credit(self, here: list[Arrival], lanes: Bits) -> Counts:
        """How many threads each warp of each arrival counts as.

        Where the whole block has to come, this includes threads that have exited.
        """
        wanted = to_warps(self.chunk, np.True_)[:, None]
        if self.chunk.live is not None:
            counted = np.array([arrival.counted for arrival in here])[:, None, None]
            live = to_warps(self.chunk, self.chunk.live.bits)[:, None]
            wanted = np.where(counted, live, wanted)
        some: Counts = lanes.sum(axis=-1, dtype=np.int64)
        absent = (wanted & ~lanes).any(axis=-1)
        return np.where((some > 0) & ~absent, WARP, some)

    def _part(self, arrival: Arrival, lanes: Bits, warps: Bits) -> Arrival | None:
        """The lanes of an arrival that belong to some warps, if there are any."""
        if not warps.any():
            return None
        if (warps == lanes.any(axis=-1)).all():
            return arrival
        bits = from_warps(self.chunk, lanes & warps[..., None])
        return replace(arrival, mask=Mask(bits))

    def _report_counts(self, here: list[Arrival], differ: Bits) -> None:
        """Findings where some wait for another number of threads than those who came first."""
        for at in np.flatnonzero(differ.any(axis=0)):
            blocks = from_warps(self.chunk, np.broadcast_to(
                differ[:, at, None, None], (len(differ), self.threads // WARP, WARP)))  # fmt: skip
            some = narrow(here[at].mask, blocks)
            first = next(arrival for arrival in here if arrival.count != here[at].count)
            line = f" at line {first.item.line}" if first.item.line else ""
            message = f"barrier {here[at].number} for {here[at].count} threads, where others wait "
            message += f"for {first.count}{line}"
            if some is not NOBODY and some is not None:
                self.report(here[at].item, message, some)

    def _report_divergence(self, here: list[Arrival], credit: Counts, done: Bits) -> None:
        """Findings where a part of a warp is taken for it, at an instruction for whole warps."""
        for at, arrival in enumerate(here):
            parts = done[:, at] & (credit[:, at] > 0) & (credit[:, at] < WARP)
            aligned = arrival.item.opcode == "bar" or "aligned" in arrival.item.modifiers
            if arrival.counted and aligned and parts.any():
                some = int(credit[:, at][parts][0])
                message = f"{arrival.item.name} by {some} of the {WARP} threads of a warp"
                self.report(arrival.item, message, arrival.mask)

    def forget(self, blocks: Bits) -> list[Arrival]:
        """Take away all that has come in `blocks`."""
        gone: list[Arrival] = []
        left: list[Arrival] = []
        for arrival in self.arrivals:
            for bits, where in ((blocks, gone), (~blocks, left)):
                part = narrow(arrival.mask, bits)
                if part is not NOBODY and part is not None:
                    where.append(replace(arrival, mask=part))
        self.arrivals = left
        return gone

    # -- votes ---------------------------------------------------------------------------------
    def vote(self, choice: Value, mask: Mask | None) -> None:
        """The first half of bar.red: each lane's predicate, before they meet."""
        old = np.False_ if self._choice is None else self._choice
        chosen = choice if mask is None else np.where(mask.bits, choice, old)
        self._choice = np.asarray(chosen).reshape(chosen.shape or (1,) * 6)

    def count_votes(self, lanes: Mask | None) -> None:
        """Lanes have met: what those say who have voted."""
        if self._choice is None:
            return
        shape = self.chunk.shape
        bits = np.ones((1,) * 6, np.bool_) if lanes is None else lanes.bits
        everyone, yes = (
            np.broadcast_to(some, shape).sum(axis=THREAD_AXES, keepdims=True, dtype=np.int64)
            for some in (bits, bits & self._choice)
        )
        self._yes, self._all = np.where(bits, yes, self._yes), np.where(bits, everyone, self._all)

    def result(self, mode: str) -> Value:
        """The second half: what the votes of those who met come to."""
        if mode == "popc":
            return self._yes.astype(np.int32)
        return self._yes == self._all if mode == "and" else self._yes > 0


def _alike(
    number: Value, count: Value | None, lanes: Mask
) -> Iterator[tuple[int, int | None, Mask]]:
    """Lanes that name the same barrier and thread count: (number, count, lanes)."""
    operands = [np.asarray(value) for value in (number, count) if value is not None]
    if all(value.ndim == 0 or value.min() == value.max() for value in operands):
        values = [int(value.flat[0]) for value in operands]
        yield values[0], values[1] if len(values) > 1 else None, lanes
        return
    *several, used = np.broadcast_arrays(*operands, lanes.bits)
    for row in np.unique(np.stack([value[used] for value in several], axis=1), axis=0):
        same = np.logical_and.reduce([v == x for v, x in zip(several, row, strict=True)])
        some = narrow(lanes, same)
        assert some is not None
        yield int(row[0]), int(row[1]) if len(row) > 1 else None, some
