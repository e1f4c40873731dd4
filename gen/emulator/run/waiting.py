"""Lanes that wait at barriers: whose barriers are complete, and which never can be."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gen.emulator.isa.ops import Value
from gen.emulator.ptx.module import Instruction
from gen.emulator.ptx.operands import Imm, Reg
from gen.emulator.run.barriers import Counts, uniform
from gen.emulator.run.context import Context, LaunchState
from gen.emulator.warp.masks import Bits, Coordinates, Mask, Waiting, lanes_of

CLUSTER_BARRIER = 16  # behind those that a block names


class Parking(Context):
    """A box of blocks, and the lanes that wait: to run, or at a barrier."""

    def __init__(self, launch: LaunchState, origin: Coordinates, blocks: Coordinates) -> None:
        super().__init__(launch, origin, blocks)
        self.waiting = Waiting()
        self.parked: list[tuple[int, Mask]] = []  # lanes at a barrier, by block

    def exit(self, mask: Mask | None) -> None:
        """The lanes have run to their end."""
        gone = np.ones((1,) * 6, np.bool_) if mask is None else mask.bits
        self.live = Mask(~gone if self.live is None else self.live.bits & ~gone)

    def quick_barrier(self, item: Instruction | None, mask: Mask | None) -> bool:
        """True if all lanes of all live blocks arrive together, which is nearly always so."""
        if item is None or len(item.operands) > 1:
            return False
        if mask is not None and not mask.whole_blocks(self.shape):
            return False
        for observer in self.launch.observers:
            observer.barrier(self, None)
        return True

    def _barrier(self, at: int, registers: list[Value]) -> tuple[int, int]:
        """The number of the barrier that ends block `at`, and how many threads it waits for."""
        item = self.launch.program.blocks[at].end
        assert item is not None
        if item.name.startswith("barrier.cluster"):
            return CLUSTER_BARRIER, self.threads
        values = []
        for operand in item.operands or (Imm(0, "0"),):
            if isinstance(operand, Reg):
                values.append(uniform(item, registers[self.launch.program.slots[operand.name]]))
            elif isinstance(operand, Imm):
                values.append(int(operand.value))
            else:
                raise item.error("barrier operand not supported")
        return values[0], values[1] if len(values) > 1 else self.threads

    def _by_number(
        self, registers: list[Value]
    ) -> list[tuple[int, int, list[tuple[int, Mask]]]]:  # fmt: skip
        """The barriers at which lanes wait: number, how many threads they wait for, and who."""
        groups: dict[int, list[tuple[int, Mask]]] = {}
        expected: dict[int, int] = {}
        for at, mask in self.parked:
            number, expected_now = self._barrier(at, registers)
            groups.setdefault(number, []).append((at, mask))
            expected[number] = expected_now
        return [(number, expected[number], members) for number, members in groups.items()]

    def complete_barriers(self, registers: list[Value]) -> bool:
        """Let the blocks go whose barriers are complete, if there are any."""
        released = False
        for number, expected, members in self._by_number(registers):
            early = [(-1, mask) for mask in self.barriers.arrived.get(number, ())]
            complete = self._arrived([*members, *early]) >= expected
            if complete.any():
                self._report_scattered(members, complete)
                self._release(members, complete, early)
                self.barriers.forget(number, complete)
                released = True
        return released

    def report_barriers(self, registers: list[Value]) -> None:
        """Findings for barriers that can never complete."""
        groups = self._by_number(registers)
        for _, expected, members in groups:
            self._report_incomplete(members, expected)
        self._give_up(groups[0][2])

    def _arrived(self, members: list[tuple[int, Mask]]) -> Counts:
        counts: Counts = np.stack([mask.per_block(self.shape) for _, mask in members]).sum(axis=0)
        return counts

    def _report_scattered(self, members: list[tuple[int, Mask]], complete: Bits) -> None:
        """Findings for blocks whose threads met at different barriers of the same number.

        The GPU only counts arrivals and lets them go. CUDA C++ requires every thread of the block
        to execute the same __syncthreads(); only a barrier with a thread count is meant otherwise.
        """
        for at, mask in members:
            item = self.launch.program.blocks[at].end
            counts = self._arrived([member for member in members if member[0] == at])
            some = complete & (counts > 0) & (counts < self.threads)
            if some.any() and item is not None and len(item.operands) < 2:
                self._report(at, Mask(mask.bits & some), counts, self.threads)

    def _release(
        self, members: list[tuple[int, Mask]], complete: Bits,
        early: Sequence[tuple[int, Mask]] = (),
    ) -> None:  # fmt: skip
        """Let the parked lanes of the given blocks run on; `early` ones arrived without waiting."""
        self._tell_observers([*members, *early], complete)
        for at, mask in members:
            self.parked = [entry for entry in self.parked if entry[1] is not mask]
            go, stay = mask.bits & complete, mask.bits & ~complete
            if go.any():
                self.waiting.add(self.launch.program.blocks[at].next, Mask(go))
            if stay.any():
                self.parked.append((at, Mask(stay)))

    def _tell_observers(self, members: list[tuple[int, Mask]], complete: Bits) -> None:
        if not self.launch.observers:
            return
        counts = self._arrived(members)
        whole = complete & (counts == self.threads)
        part = np.zeros((1,) * 6, np.bool_)
        for at, mask in members:
            if at < 0:  # arrived without waiting
                part = part | mask.bits & complete
                continue
            item = self.launch.program.blocks[at].end
            # Threads that have exited do not count, but for a barrier that names how many meet.
            if item is None or len(item.operands) < 2:
                whole = whole | complete & (mask.per_block(self.shape) > 0)
            part = part | mask.bits & complete & ~whole
        for observer in self.launch.observers:
            if whole.any():
                observer.barrier(self, whole)
            if part.any():
                observer.meet(self, Mask(part))

    def _report_incomplete(self, members: list[tuple[int, Mask]], expected: int) -> None:
        """A finding for a barrier that can never complete."""
        arrived = self._arrived(members)
        alive = (self.live or everyone()).per_block(self.shape)
        for at, mask in members:
            self._report(at, mask, arrived, expected, alive)

    def _report(
        self,
        at: int,
        mask: Mask,
        arrived: Counts,
        expected: int,
        alive: Counts | None = None,
    ) -> None:
        """One finding, for the first block of `mask`, about the barrier that ends block `at`."""
        item = self.launch.program.blocks[at].end
        assert item is not None
        block, threads, _ = lanes_of(mask.bits, None, self.shape, self.origin)
        x, y, z = (b - o for b, o in zip(block, self.origin, strict=True))
        here = (z, 0, y, 0, x, 0)
        count = int(arrived[here])
        gone = alive is not None and int(alive[here]) <= count
        rest = "have exited" if gone else "wait at another barrier"
        message = f"barrier reached by {count} of {expected} threads of the block"
        message += f", the others {rest}"
        self.launch.findings.add("synccheck", item, message, block, threads)

    def _give_up(self, members: list[tuple[int, Mask]]) -> None:
        """Go on after a barrier that can never complete.

        Where the missing threads have exited, the rest run on, as on the GPU. Where they wait at
        another barrier the GPU would hang: those blocks end here.
        """
        arrived = self._arrived(members)
        alive = (self.live or everyone()).per_block(self.shape)
        hung = (arrived > 0) & (alive > arrived)
        self._release(members, (arrived > 0) & ~hung)
        if hung.any():
            self.end(hung)

    def end(self, blocks: Bits) -> None:
        """Stop all lanes of the given blocks."""
        lanes = np.broadcast_to(blocks, self.shape)
        left = [(at, Mask(mask.bits & ~lanes)) for at, mask in self.parked]
        self.parked = [(at, mask) for at, mask in left if mask.bits.any()]
        self.exit(Mask(lanes))


def everyone() -> Mask:
    """All lanes, where None would not do."""
    return Mask(np.ones((1,) * 6, np.bool_))
