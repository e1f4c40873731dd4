"""barrier.cluster: threads of a cluster arrive, go on, and later wait until all have arrived.

Threads that have exited count as arrived.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gen.emulator.memory.observer import ObservedChunk
from gen.emulator.ptx.module import Instruction
from gen.emulator.warp.masks import NOBODY, Bits, Mask, lanes_of, narrow

_NONE: Bits = np.zeros((1,) * 6, np.bool_)
_ALL: Bits = np.ones((1,) * 6, np.bool_)


@dataclass(frozen=True)
class Parked:
    """Lanes that wait, and the basic block that ends there."""

    item: Instruction
    at: int
    mask: Mask


class ClusterBarrier:
    """The barriers of the clusters of one chunk."""

    def __init__(self, chunk: ObservedChunk) -> None:
        self.chunk = chunk
        self.arrived: Bits = _NONE  # lanes that have, in phases that are not complete
        self.owing: Bits = _NONE  # lanes that have arrived and not waited since
        self.parked: list[Parked] = []
        self._fenced: Bits = _NONE  # lanes that have executed a fence since they last arrived

    # -- what generated code calls -------------------------------------------------------------
    def fence(self, mask: Mask | None) -> None:
        """A release fence makes a relaxed arrival behind it one that releases."""
        self._fenced = _ALL if mask is None else self._fenced | mask.bits

    def arrive(self, item: Instruction, mask: Mask | None) -> None:
        """barrier.cluster.arrive."""
        bits = _ALL if mask is None else mask.bits
        twice = bits & self.owing
        if twice.any():
            self._report(item, twice, f"{item.name} again, without a barrier.cluster.wait between")
        releases = narrow(mask, self._fenced) if "relaxed" in item.modifiers else mask
        self._fenced = self._fenced & ~bits
        self.arrived, self.owing = self.arrived | bits, self.owing | bits
        done = self._complete()
        for observer in self.chunk.launch.observers:
            observer.cluster_arrive(self.chunk, mask, releases, done)

    # -- what the scheduler calls --------------------------------------------------------------
    def exit(self) -> None:
        """Lanes have exited: that may complete phases."""
        if not self.arrived.any():
            return
        done = self._complete()
        if done.any():
            for observer in self.chunk.launch.observers:
                observer.cluster_arrive(self.chunk, NOBODY, NOBODY, done)

    def passes(self, item: Instruction, mask: Mask | None) -> bool:
        """Whether all lanes that come to barrier.cluster.wait go on at once."""
        bits = _ALL if mask is None else mask.bits
        if (bits & self.arrived).any():
            return False
        self._pass(item, mask)
        return True

    def park(self, item: Instruction, at: int, mask: Mask | None) -> None:
        """Lanes come to barrier.cluster.wait, which ends block `at`."""
        self.parked.append(Parked(item, at, mask or Mask(_ALL)))

    def released(self) -> Iterator[tuple[int, Mask]]:
        """Lanes that need not wait any more, which are taken away, and where they were."""
        parked, self.parked = self.parked, []
        for one in parked:
            for bits, goes in ((~self.arrived, True), (self.arrived, False)):
                some = narrow(one.mask, bits)
                if some is NOBODY or some is None:
                    continue
                if goes:
                    self._pass(one.item, some)
                    yield one.at, some
                else:
                    self.parked.append(Parked(one.item, one.at, some))

    def forget(self, blocks: Bits) -> None:
        """Take away the lanes of blocks that end."""
        self.arrived, self.owing = self.arrived & ~blocks, self.owing & ~blocks
        left = [(one, narrow(one.mask, ~blocks)) for one in self.parked]
        self.parked = [Parked(one.item, one.at, m) for one, m in left if m and m is not NOBODY]

    def report(self, blocks: Bits) -> Bits:
        """Findings for lanes of blocks that wait in vain; all blocks of their clusters."""
        chunk, hung = self.chunk, np.zeros((1,) * 6, np.bool_)
        for one in self.parked:
            here = chunk.clusters.any((one.mask.per_block(chunk.shape) > 0) & blocks)
            hung = hung | here
            missing = here & ~self.arrived & (True if chunk.live is None else chunk.live.bits)
            if not missing.any():
                continue
            block, threads, count = lanes_of(missing, None, chunk.shape, chunk.origin)
            which, first = (",".join(map(str, at)) for at in (block, threads[0]))
            message = f"deadlock: {one.item.name} waits for {count} threads of its cluster that "
            message += f"have not arrived, such as thread ({first}) of block ({which})"
            self._report(one.item, one.mask.bits, message)
        return hung

    # -- phases --------------------------------------------------------------------------------
    def _pass(self, item: Instruction, mask: Mask | None) -> None:
        bits = _ALL if mask is None else mask.bits
        free = bits & ~self.owing
        if free.any():
            self._report(item, free, f"{item.name} without a barrier.cluster.arrive before it")
        self.owing = self.owing & ~bits
        for observer in self.chunk.launch.observers:
            observer.cluster_wait(self.chunk, mask)

    def _complete(self) -> Bits:
        """Start a new phase where nobody is missing; the blocks of these clusters."""
        chunk = self.chunk
        there = self.arrived if chunk.live is None else self.arrived | ~chunk.live.bits
        if there.all():
            missing = np.zeros_like(chunk.clusters.row, np.bool_)
        else:
            blocks = Mask(~there).per_block(chunk.shape) > 0
            missing = chunk.clusters.any(blocks)
        some = chunk.clusters.any(Mask(self.arrived).per_block(chunk.shape) > 0)
        done: Bits = some & ~missing
        self.arrived = self.arrived & ~done
        return done

    def _report(self, item: Instruction, lanes: Bits, message: str) -> None:
        chunk = self.chunk
        block, threads, _ = lanes_of(lanes, None, chunk.shape, chunk.origin)
        chunk.launch.findings.add("synccheck", item, message, block, threads)
