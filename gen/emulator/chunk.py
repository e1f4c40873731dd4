"""Runs one chunk of blocks: which basic block next, for which lanes, and what barriers hold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gen.emulator.barriers import Counts, uniform
from gen.emulator.checks import Coordinates, lanes_of
from gen.emulator.context import Context, Launch
from gen.emulator.lanes import WARP, from_warps, to_warps
from gen.emulator.module import Instruction
from gen.emulator.operands import Imm, Reg
from gen.emulator.ops import Value
from gen.emulator.warp import NOBODY, Bits, Mask, Waiting, narrow, split
from gen.errors import BudgetError


class Chunk(Context):
    """A box of blocks; `run` executes it to the end."""

    def __init__(self, launch: Launch, origin: Coordinates, blocks: Coordinates) -> None:
        super().__init__(launch, origin, blocks)
        self.waiting = Waiting()
        self.held = Waiting()  # lanes at a warp instruction, whose warps are not complete
        self.parked: list[tuple[int, Mask]] = []  # lanes at a barrier, by block

    # -- control flow --------------------------------------------------------------------------
    def run(self) -> None:
        """Execute until every lane has exited."""
        program, blocks = self.launch.program, self.launch.program.blocks
        registers = list(program.initial)
        at, mask, alone, lanes = 0, self.live, True, self.lanes
        observers = self.launch.observers
        for observer in observers:
            observer.begin(self)
        while True:
            block = blocks[at]
            for observer in observers:
                observer.block(self, at, mask)
            self._count(lanes * block.length, block.end)
            run = program.plain if alone else program.blended
            condition = run[at](registers, self, mask)
            if block.kind == "goto" and alone:
                at = block.next
                continue
            if block.kind == "branch":
                if condition.ndim == 0 and alone:
                    at = block.taken if condition else block.next
                    continue
                yes, no = split(mask, condition)
                if alone and (yes is NOBODY or no is NOBODY):
                    at = block.next if yes is NOBODY else block.taken
                    continue
                self._wait(block.taken, yes)
                self._wait(block.next, no)
            elif block.kind == "goto":
                self._wait(block.next, mask)
            elif block.kind == "exit":
                self._exit(mask)
            elif alone and self._quick_barrier(block.end, mask):
                at = block.next
                continue
            else:
                self.parked.append((at, mask or _everyone()))
            following = self._next(registers)
            if following is None:
                break
            at, mask = following
            alone = not (self.waiting or self.held or self.parked)
            mask = self.live if alone else mask
            lanes = self.lanes if mask is None else mask.count(self.shape)
        self.copies.finish()
        for observer in observers:
            observer.end(self)

    def _next(self, registers: list[Value]) -> tuple[int, Mask] | None:
        """The block to run next and its lanes: the first in order that need not wait."""
        while True:
            while self.waiting:
                at, mask = self.waiting.pop()
                if not self.launch.program.blocks[at].gate:
                    return at, mask
                live = 1 if self.live is None else self.live.bits.astype(np.int8)
                whole = self.held.take(at, mask)
                missing = to_warps(self, live - whole.bits.astype(np.int8)).any(-1, keepdims=True)
                partial = np.broadcast_to(missing, (*missing.shape[:-1], WARP))
                go = narrow(whole, ~from_warps(self, partial))
                if go is not NOBODY and go is not None:
                    self._hold(at, whole, go)
                    return at, go
                self.held.add(at, whole)
            if self.held:
                return self.held.pop()
            if not self.parked:
                return None
            self._resolve(registers)

    def _hold(self, at: int, whole: Mask, go: Mask) -> None:
        stay = whole.bits & ~go.bits
        if stay.any():
            self.held.add(at, Mask(stay))

    def _count(self, instructions: int, item: Instruction | None) -> None:
        launch = self.launch
        launch.instructions += instructions
        if launch.budget is not None and launch.instructions > launch.budget:
            line = f" at CUDA line {item.line}" if item and item.line else ""
            raise BudgetError(
                f"kernel '{launch.program.kernel.name}' ran more than {launch.budget} "
                f"thread-instructions{line}; it may not end, or raise instruction_budget"
            )

    def _wait(self, block: int, mask: Mask | None) -> None:
        """Let lanes wait for a block; those with nothing left to do exit at once.

        Lanes that return early go to the kernel's last block, a lone `ret`. If they waited there,
        every register that the others write would have to be blended for their sake.
        """
        if mask is NOBODY:
            return
        target = self.launch.program.blocks[block]
        if target.kind == "exit" and not target.body:
            self.launch.instructions += 1 if mask is None else mask.count(self.shape)
            self._exit(mask)
        else:
            self.waiting.add(block, mask or _everyone())

    def _exit(self, mask: Mask | None) -> None:
        gone = np.ones((1,) * 6, np.bool_) if mask is None else mask.bits
        self.live = Mask(~gone if self.live is None else self.live.bits & ~gone)

    # -- barriers ------------------------------------------------------------------------------
    def _quick_barrier(self, item: Instruction | None, mask: Mask | None) -> bool:
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
        values = []
        for operand in item.operands or (Imm(0, "0"),):
            if isinstance(operand, Reg):
                values.append(uniform(item, registers[self.launch.program.slots[operand.name]]))
            elif isinstance(operand, Imm):
                values.append(int(operand.value))
            else:
                raise item.error("barrier operand not supported")
        return values[0], values[1] if len(values) > 1 else self.threads

    def _resolve(self, registers: list[Value]) -> None:
        """No lane can run: let the blocks go whose barriers are complete, or else report."""
        groups: dict[int, list[tuple[int, Mask]]] = {}
        expected: dict[int, int] = {}
        for at, mask in self.parked:
            number, expected_now = self._barrier(at, registers)
            groups.setdefault(number, []).append((at, mask))
            expected[number] = expected_now
        released = False
        for number, members in groups.items():
            early = [(-1, mask) for mask in self.barriers.arrived.get(number, ())]
            complete = self._arrived([*members, *early]) >= expected[number]
            if complete.any():
                self._report_scattered(members, complete)
                self._release(members, complete, early)
                self.barriers.forget(number, complete)
                released = True
        if not released:
            for number, members in groups.items():
                self._report_incomplete(members, expected[number])
            self._give_up(next(iter(groups.values())))

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
        alive = (self.live or _everyone()).per_block(self.shape)
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
        alive = (self.live or _everyone()).per_block(self.shape)
        hung = (arrived > 0) & (alive > arrived)
        self._release(members, (arrived > 0) & ~hung)
        if hung.any():
            lanes = np.broadcast_to(hung, self.shape)
            left = [(at, Mask(mask.bits & ~lanes)) for at, mask in self.parked]
            self.parked = [(at, mask) for at, mask in left if mask.bits.any()]
            self._exit(Mask(lanes))


def _everyone() -> Mask:
    return Mask(np.ones((1,) * 6, np.bool_))
