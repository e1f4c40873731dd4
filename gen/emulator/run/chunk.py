"""Runs one chunk of blocks: which basic block next, for which lanes, and what barriers hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from gen.emulator.memory.observer import Observer
from gen.emulator.ptx.module import Instruction
from gen.emulator.run.launch_state import LaunchState
from gen.emulator.run.spinning import Spinning
from gen.emulator.run.system_calls import SystemCalls
from gen.emulator.run.waiting import Parking, everyone
from gen.emulator.translate.blocks import Block
from gen.emulator.warp.masks import (
    NOBODY,
    WARP,
    Bits,
    Coordinates,
    Mask,
    Waiting,
    lanes_of,
    narrow,
    split,
)
from gen.emulator.warp.shuffles import all_lanes, to_warps
from gen.errors import BudgetError


class Chunk(Parking):
    """A box of blocks; `run` executes it to the end."""

    def __init__(self, launch: LaunchState, origin: Coordinates, blocks: Coordinates) -> None:
        super().__init__(launch, origin, blocks)
        self.held = Waiting()  # lanes at a warp instruction, whose warps are not complete
        self.stalled = Waiting()  # lanes that an mbarrier's wait has turned away
        self.endless = Waiting()  # lanes in loops that do nothing
        self.spinning = Spinning(self)
        self.calls = SystemCalls(self)
        self.registers = list(launch.program.initial)
        self._kept: list[Any] | None = None  # what observers keep while other chunks run

    # -- control flow --------------------------------------------------------------------------
    def run(self) -> bool:
        """Execute until every lane has exited, or until it waits for other blocks (False)."""
        program, blocks = self.launch.program, self.launch.program.blocks
        registers, observers = self.registers, self.launch.observers
        watches = [one.block for one in observers if type(one).block is not Observer.block]  # few
        at, mask, alone = 0, self.live, True
        lanes = self.lanes if mask is None else mask.count(self.shape)
        if not lanes:
            return True
        self.memory.rows = self.rows
        if self._kept is None:
            for observer in observers:
                observer.begin(self)
        else:
            at, mask, alone, lanes = self._running(*self._resume(self._kept))
        while True:
            block = blocks[at]
            program.reached.add(at)
            for watch in watches:
                watch(self, at, mask)
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
            at, mask, alone, lanes = self._running(*following)
        if self.spinning.waiting:
            self._kept = [observer.pause(self) for observer in observers]
            return False
        self._finish()
        return True

    def _finish(self) -> None:
        self.copies.finish()
        self.bulk.finish()
        if self._register_pool:
            self._register_pool.finish()
        for observer in self.launch.observers:
            observer.end(self)

    def _running(self, at: int, mask: Mask | None) -> tuple[int, Mask | None, bool, int]:
        """A block and its lanes, whether no others are left, and how many they are."""
        queues = (self.waiting, self.held, self.stalled, self.endless, self.spinning.waiting)
        parked = [one.at for one in self.barriers.waiting]
        parked += [one.at for one in self.cluster_barrier.parked]
        alone = not (any(queues) or parked)
        if alone:
            mask = self.live
        else:
            places = {(at, False) for queue in queues for at in queue.blocks()}
            places |= {(at, True) for at in parked}
            self.needed = self.launch.program.needed(frozenset(places))
        return at, mask, alone, self.lanes if mask is None else mask.count(self.shape)

    def _resume(self, kept: list[Any]) -> tuple[int, Mask]:
        """Other chunks have run: what to run next.

        Where nothing has changed, lanes at a warp instruction run without those that spin.
        """
        for observer, mine in zip(self.launch.observers, kept, strict=True):
            observer.resume(self, mine)
        spinning = self.spinning
        if self.held and spinning.stuck and spinning.seen == self.memory.changes:
            return self.held.pop()
        spinning.resume()
        self.waiting, spinning.waiting = spinning.waiting, self.waiting
        following = self._next()
        assert following is not None
        return following

    def live_blocks(self) -> int:
        """Blocks that have not ended."""
        return int(((self.live or everyone()).per_block(self.shape) > 0).sum())

    def abandon(self, why: str) -> None:
        """End all lanes, which wait for what never happens."""
        for observer, kept in zip(self.launch.observers, self._kept or (), strict=True):
            observer.resume(self, kept)
        self.spinning.report(why)
        if self.stalled:
            self._end_deadlock()
        self.bulk.abandon(everyone().bits)
        self._finish()

    def _next(self) -> tuple[int, Mask] | None:
        """The block to run next and its lanes: the first in order that need not wait."""
        while True:
            while self.waiting:
                at, mask = self.waiting.pop()
                gate = self.launch.program.blocks[at].gate
                if not gate:
                    return at, mask
                whole = self.held.take(at, mask)
                go = narrow(whole, ~self._waits_for_others(whole, gate))
                if go is not NOBODY and go is not None:
                    self._hold(at, whole, go)
                    return at, go
                self.held.add(at, whole)
            if self.stalled and self._progress():
                continue
            if self.spinning.waiting:
                if self.complete_barriers():
                    continue
                if not self.spinning.another_round(self.registers, self.positions()):
                    if not self._land():
                        return None
                    self.spinning.resume()
                self.waiting, self.spinning.waiting = self.spinning.waiting, self.waiting
                continue
            if self.held:
                return self.held.pop()
            if self.stalled:
                self._end_deadlock()
            elif self.endless:
                self._end_loops()
            elif not (self.barriers.waiting or self.cluster_barrier.parked):
                return None
            elif not self.complete_barriers():
                self.report_barriers()

    def _waits_for_others(self, mask: Mask, gate: int) -> Bits:
        """The lanes of groups of `gate` warps of which other live lanes are not in the mask."""
        live = 1 if self.live is None else self.live.bits.astype(np.int8)
        absent: Any = to_warps(self, live - mask.bits.astype(np.int8)).any(axis=-1)
        if gate > 1:
            ends = range(0, absent.shape[1], gate)
            absent = np.repeat(np.logical_or.reduceat(absent, ends, axis=1), gate, axis=1)
            absent = absent[:, : -(-self.threads // WARP)]
        bits: Bits = all_lanes(self, absent)
        return bits

    def positions(self) -> list[tuple[str, int, Mask]]:
        """Where lanes wait for anything but their turn."""
        return [
            *(("held", at, mask) for at, mask in self.held.items()),
            *(("stalled", at, mask) for at, mask in self.stalled.items()),
            *(("parked", one.at, one.mask) for one in self.barriers.arrivals),
            *(("cluster", one.at, one.mask) for one in self.cluster_barrier.parked),
        ]

    def _hold(self, at: int, whole: Mask, go: Mask) -> None:
        stay = whole.bits & ~go.bits
        if stay.any():
            self.held.add(at, Mask(stay))

    def _count(self, instructions: int, item: Instruction | None) -> None:
        launch = self.launch
        launch.instructions += instructions
        late = launch.limit.late()
        if late or (launch.budget is not None and launch.instructions > launch.budget):
            line = f" at CUDA line {item.line}" if item and item.line else ""
            end = "it may not end, or raise instruction_budget"
            what = f"ran more than {launch.budget} thread-instructions{line}; {end}"
            what = late.format(line=line) if late else what
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
        """Let lanes wait for a block, or stall where they have looked at memory in vain."""
        if target.endless:
            self.endless.add(block, mask)
            return
        if target.looks and self.spinning.turns_away(block):
            self.spinning.waiting.add(block, mask)
            return
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
        self._end_hung(hung)

    def _end_loops(self) -> None:
        """Report lanes in loops that do nothing, and end their blocks."""
        hung = np.zeros((1,) * 6, np.bool_)
        while self.endless:
            at, mask = self.endless.pop()
            item = self.launch.program.blocks[at].end
            assert item is not None
            block, threads, count = lanes_of(mask.bits, None, self.shape, self.origin)
            who = "1 thread runs" if count == 1 else f"{count} threads run"
            message = (
                f"endless loop: {who} a loop that nothing ends; what it waits for is read before "
                "it, unless that is volatile or atomic"
            )
            self.launch.findings.add("synccheck", item, message, block, threads)
            hung = hung | (mask.per_block(self.shape) > 0)
        self._end_hung(hung)

    def _end_hung(self, blocks: Bits) -> None:
        hung = self.clusters.any(blocks)
        self.cluster_barrier.report(hung)
        self.bulk.abandon(hung)
        self.end(hung)
