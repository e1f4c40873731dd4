"""Runs one chunk of blocks: which basic block next, for which lanes, and what barriers hold."""

from __future__ import annotations

import time

import numpy as np

from gen.emulator.ptx.module import Instruction
from gen.emulator.run.context import LaunchState
from gen.emulator.run.waiting import Parking, everyone
from gen.emulator.translate.blocks import Block
from gen.emulator.warp.masks import NOBODY, Coordinates, Mask, Waiting, narrow, split
from gen.emulator.warp.shuffles import WARP, from_warps, to_warps
from gen.errors import BudgetError


class Chunk(Parking):
    """A box of blocks; `run` executes it to the end."""

    def __init__(self, launch: LaunchState, origin: Coordinates, blocks: Coordinates) -> None:
        super().__init__(launch, origin, blocks)
        self.held = Waiting()  # lanes at a warp instruction, whose warps are not complete
        self.stalled = Waiting()  # lanes that an mbarrier's wait has turned away

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
            program.reached.add(at)
            for observer in observers:
                observer.block(self, at, mask)
            self._count(lanes * block.length, block.end)
            run = program.plain if alone else program.blended
            condition = run[at](registers, self, mask)
            quick = alone and not block.detour
            if block.kind == "goto" and quick:
                at = block.next
                continue
            if block.kind == "branch":
                if condition.ndim == 0 and quick:
                    at = block.taken if condition else block.next
                    continue
                yes, no = split(mask, condition)
                if quick and (yes is NOBODY or no is NOBODY):
                    at = block.next if yes is NOBODY else block.taken
                    continue
                self._wait(block.taken, yes)
                self._wait(block.next, no)
            elif block.kind == "goto":
                self._wait(block.next, mask)
            elif block.kind == "exit":
                self.exit(mask)
            elif quick and self.quick_barrier(block.end, mask):
                at = block.next
                continue
            else:
                self.park(at, mask, registers)
            following = self._next()
            if following is None:
                break
            at, mask = following
            alone = not (self.waiting or self.held or self.stalled or self.barriers.waiting)
            mask = self.live if alone else mask
            lanes = self.lanes if mask is None else mask.count(self.shape)
        self.copies.finish()
        self.bulk.finish()
        if self._register_pool:
            self._register_pool.finish()
        for observer in observers:
            observer.end(self)

    def _next(self) -> tuple[int, Mask] | None:
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
            if self.stalled and self._progress():
                continue
            if self.held:
                return self.held.pop()
            if self.stalled:
                self._end_deadlock()
            elif not self.barriers.waiting:
                return None
            elif not self.complete_barriers():
                self.report_barriers()

    def _hold(self, at: int, whole: Mask, go: Mask) -> None:
        stay = whole.bits & ~go.bits
        if stay.any():
            self.held.add(at, Mask(stay))

    def _count(self, instructions: int, item: Instruction | None) -> None:
        launch = self.launch
        launch.instructions += instructions
        late = time.perf_counter() > launch.deadline
        if late or (launch.budget is not None and launch.instructions > launch.budget):
            line = f" at CUDA line {item.line}" if item and item.line else ""
            end = "it may not end, or raise instruction_budget"
            what = f"ran more than {launch.budget} thread-instructions{line}; {end}"
            what = f"{launch.late.format(line=line)}" if late else what
            raise BudgetError(f"kernel '{launch.program.kernel.name}' {what}")

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
            self.exit(mask)
        else:
            self._queue(block, target, mask or everyone())

    def _queue(self, block: int, target: Block, mask: Mask) -> None:
        """Let lanes wait for a block, or stall where they have looked at an mbarrier in vain."""
        poll = self.mbarriers.polls.get(id(target.body[0])) if target.poll else None
        again = narrow(mask, poll.lanes) if poll else NOBODY
        if again is None or again is NOBODY:
            self.waiting.add(block, mask)
            return
        self.stalled.add(block, again)
        fresh = narrow(mask, ~again.bits)
        if fresh is not None and fresh is not NOBODY:
            self.waiting.add(block, fresh)

    # -- mbarriers -----------------------------------------------------------------------------
    def _progress(self) -> bool:
        """No lane can run: something that stalled lanes may wait for happens, if anything can."""
        if not self.mbarriers.changed:
            if self.complete_barriers() or self._land():
                return True
            if not self.mbarriers.moved:
                return False
        self.mbarriers.again()
        self.waiting, self.stalled = self.stalled, self.waiting
        return True

    def _land(self) -> bool:
        """Let the oldest copies that an mbarrier waits for arrive, if there are any."""
        return self.copies.progress() or self.bulk.progress()

    def _end_deadlock(self) -> None:
        """Report lanes that wait at mbarriers in vain, and end their blocks."""
        hung = np.zeros((1,) * 6, np.bool_)
        while self.stalled:
            at, mask = self.stalled.pop()
            item = self.launch.program.blocks[at].body[0]
            self.mbarriers.report_deadlock(self.mbarriers.polls[id(item)], mask)
            hung = hung | (mask.per_block(self.shape) > 0)
        self.bulk.abandon(hung)
        self.end(hung)
