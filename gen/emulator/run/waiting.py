"""Lanes that wait at barriers: whose barriers are complete, and which never can be."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from gen.emulator.isa.ops import Value
from gen.emulator.ptx.module import Instruction
from gen.emulator.ptx.operands import Imm, Operand, Reg
from gen.emulator.run.barriers import BARRIERS, Arrival, Counts
from gen.emulator.run.cluster_barrier import ClusterBarrier
from gen.emulator.run.context import Context
from gen.emulator.run.launch_state import LaunchState
from gen.emulator.warp.masks import NOBODY, Bits, Coordinates, Mask, Waiting, lanes_of, narrow


class Parking(Context):
    """A box of blocks, and the lanes that wait: to run, or at a barrier."""

    def __init__(self, launch: LaunchState, origin: Coordinates, blocks: Coordinates) -> None:
        super().__init__(launch, origin, blocks)
        self.waiting = Waiting()
        self.cluster_barrier = ClusterBarrier(self)

    def exit(self, mask: Mask | None) -> None:
        """The lanes have run to their end."""
        self._stop(mask)
        for observer in self.launch.observers:
            observer.exit(self, mask)
        self.cluster_barrier.exit()

    def _stop(self, mask: Mask | None) -> None:
        gone = np.ones((1,) * 6, np.bool_) if mask is None else mask.bits
        self.live = Mask(~gone if self.live is None else self.live.bits & ~gone)

    def fence(self, scope: str, m: Mask | None) -> None:
        """A fence between the threads of a block ("cta"), a cluster, or all."""
        if scope != "cta":
            self.cluster_barrier.fence(m)
        for observer in self.launch.observers:
            observer.fence(self, m, scope not in ("cta", "cluster"))

    def quick_barrier(self, item: Instruction | None, mask: Mask | None) -> bool:
        """True if all lanes of all live blocks arrive together, which is nearly always so."""
        if item is not None and "cluster" in item.modifiers:
            return self.cluster_barrier.passes(item, mask)
        if item is None or len(item.operands) > 1 or self.barriers.arrivals:
            return False
        number = item.operands[0] if item.operands else Imm(0, "0")
        if not isinstance(number, Imm) or number.value not in range(BARRIERS):
            return False
        if mask is not None and not mask.whole_blocks(self.shape):
            return False
        for observer in self.launch.observers:
            observer.barrier(self, None)
        self.barriers.count_votes(mask)
        return True

    def park(self, at: int, mask: Mask | None, registers: list[Value]) -> None:
        """Let lanes wait at the barrier that ends block `at`."""
        item = self.launch.program.blocks[at].end
        assert item is not None
        if "cluster" in item.modifiers:
            self.cluster_barrier.park(item, at, mask)
            return
        values = [self._operand(item, operand, registers) for operand in item.operands]
        number, count = (*(values or [np.int64(0)]), None)[:2]
        self.barriers.arrive(item, number, count, mask, at)

    def _operand(self, item: Instruction, operand: Operand, registers: list[Value]) -> Value:
        if isinstance(operand, Reg):
            return registers[self.launch.program.slots[operand.name]]
        if not isinstance(operand, Imm):
            raise item.error("barrier operand not supported")
        return np.int64(operand.value)

    def complete_barriers(self) -> bool:
        """Let the lanes go whose barriers are complete, if there are any."""
        released = False
        for at, mask in self.cluster_barrier.released():
            self.waiting.add(self.launch.program.blocks[at].next, mask)
            released = True
        for members in self.barriers.completed():
            self._report_scattered(members)
            self._release(members)
            released = True
        return released

    def report_barriers(self) -> None:
        """Findings for barriers that can never complete."""
        arrivals = self.barriers.arrivals
        numbers = dict.fromkeys(arrival.number for arrival in self.barriers.waiting)
        groups = [[a for a in arrivals if a.number == number] for number in numbers]
        alive = (self.live or everyone()).per_block(self.shape)
        for group in groups:
            for arrival in (arrival for arrival in group if arrival.at >= 0):
                self._report(arrival, self._arrived(group), alive)
        if groups:
            self._give_up(groups[0], alive)
        else:
            self.end(self.cluster_barrier.report(everyone().bits))

    def _arrived(self, members: list[Arrival]) -> Counts:
        counts: Counts = np.stack([a.mask.per_block(self.shape) for a in members]).sum(axis=0)
        return counts

    def _report_scattered(self, members: list[Arrival]) -> None:
        """Findings for blocks whose threads met at different barriers of the same number.

        The GPU only counts arrivals and lets them go. CUDA C++ requires every thread of the block
        to execute the same __syncthreads(); only a barrier with a thread count is meant otherwise.
        """
        for arrival in members:
            counts = self._arrived([member for member in members if member.at == arrival.at])
            some = (counts > 0) & (counts < self.threads)
            if some.any() and not arrival.counted:
                scattered = narrow(arrival.mask, some)
                if scattered is not None and scattered is not NOBODY:
                    self._report(replace(arrival, mask=scattered), counts)

    def _release(self, members: list[Arrival]) -> None:
        """Let lanes run on that have met."""
        waiters = [arrival for arrival in members if arrival.at >= 0]
        if not waiters:
            return
        self._tell_observers(members)
        lanes = Mask(functools.reduce(np.logical_or, (a.mask.bits for a in waiters)))
        self.barriers.count_votes(lanes)
        for arrival in waiters:
            self.waiting.add(self.launch.program.blocks[arrival.at].next, arrival.mask)

    def _tell_observers(self, members: list[Arrival]) -> None:
        if not self.launch.observers:
            return
        whole = self._arrived(members) == self.threads
        met, early = np.zeros((1,) * 6, np.bool_), np.zeros((1,) * 6, np.bool_)
        for arrival in members:
            # Threads that have exited do not count, but for a barrier that names how many meet.
            if arrival.at < 0:
                early = early | arrival.mask.bits
                continue
            met = met | arrival.mask.bits
            if not arrival.counted:
                whole = whole | (arrival.mask.per_block(self.shape) > 0)
        whole = whole & ~(Mask(early).per_block(self.shape) > 0)
        met, early = met & ~whole, early & ~whole
        for observer in self.launch.observers:
            if whole.any():
                observer.barrier(self, whole)
            if met.any():
                observer.meet(self, members[0].number, Mask(met), Mask(early))

    def _report(self, arrival: Arrival, arrived: Counts, alive: Counts | None = None) -> None:
        """One finding, for the first block of an arrival, about the barrier where it waits."""
        block, threads, _ = lanes_of(arrival.mask.bits, None, self.shape, self.origin)
        x, y, z = (b - o for b, o in zip(block, self.origin, strict=True))
        here = (z, 0, y, 0, x, 0)
        count = int(arrived[here])
        gone = alive is not None and int(alive[here]) <= count
        rest = "have exited" if gone else "wait at another barrier"
        message = f"barrier reached by {count} of {self.threads} threads of the block"
        if arrival.counted:
            message = f"barrier {arrival.number} reached by {count} of {arrival.count} threads"
        message += f", the others {rest}"
        self.launch.findings.add("synccheck", arrival.item, message, block, threads)

    def _give_up(self, group: list[Arrival], alive: Counts) -> None:
        """Go on after a barrier that can never complete.

        Where the missing threads have exited, the rest run on, as on the GPU. Where they wait at
        another barrier the GPU would hang: those blocks end here.
        """
        arrived = self._arrived([arrival for arrival in group if arrival.at >= 0])
        hung = (arrived > 0) & (alive > arrived)
        if hung.any():
            self.cluster_barrier.report(self.clusters.any(hung))
            self.end(hung)
        go = (arrived > 0) & ~hung
        if go.any():
            self._release(self.barriers.forget(go))

    def end(self, blocks: Bits) -> None:
        """Stop all lanes of the given blocks, and of those in a cluster with them."""
        blocks = self.clusters.any(blocks)
        self.barriers.forget(blocks)
        self.cluster_barrier.forget(blocks)
        self._stop(Mask(np.broadcast_to(blocks, self.shape)))


def everyone() -> Mask:
    """All lanes, where None would not do."""
    return Mask(np.ones((1,) * 6, np.bool_))
