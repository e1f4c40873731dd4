"""Loops along a long sum, of which all rounds but the first and the last ones are skipped.

A loop of 2^32 rounds takes days here. But where an operand is zero, a round moves counters and
addresses on, and leaves everything else as it was: so any number of rounds is an addition, in as
many bits as each register has. A counter that wraps around too early then does so here as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gen.emulator.isa.ops import Value
from gen.emulator.memory.global_memory import Site
from gen.emulator.memory.observer import ObservedChunk, Observer
from gen.emulator.translate.blocks import loops
from gen.emulator.warp.masks import Mask
from gen.errors import BudgetError

_PERIOD = 12  # rounds after which everything may repeat itself: stages, parities
# Rounds that have to show it: a counter that begins anew after no more of them is none. Of a loop
# around another one, each takes long.
_SHOWN = 36


class _Round(NamedTuple):
    """What a loop's head finds: registers that it may read, where the operand is read, and lanes.

    Other lanes may wait elsewhere: their registers stay as they are.
    """

    registers: Sequence[Any]
    address: int
    lanes: Any


class NothingSkippedError(Exception):
    """The kernel has more rounds than it should need, and none of them was skipped."""


class GapReadError(NothingSkippedError):
    """The kernel reads what it would have skipped, were its loop one of those that are known."""


class Skipping(Observer):
    """Skips rounds of the loop that reads an operand, once. Unlike other observers, it changes
    what the kernel does.

    operand: the addresses of its bytes. gap: those that are not mapped; what is in front of them,
    and some of what is behind, is zero but for the first and last few. It skips to behind the gap.
    patience: rounds that a loop without inner loops has to have before that, more than such as go
    through a part of the operand. most: rounds that no loop should need in all. `skipped`: how many
    were left out. Raises GapReadError where the kernel comes to the gap itself; NothingSkippedError
    for more rounds than `most`, but BudgetError where some were left out.
    """

    def __init__(self, operand: range, gap: range, patience: int, most: int) -> None:
        self._operand, self._gap, self._patience, self._most = operand, gap, patience, most
        self._all: dict[int, int] = {}  # visits of a head
        self._loops: dict[int, int] = {}  # the last block of a loop, by its head
        self._outer: set[int] = set()  # heads of loops with inner ones
        self._rounds: dict[int, deque[_Round]] = {}
        self._visits: dict[int, int] = {}
        self._address = 0
        self.skipped = 0

    def begin(self, chunk: ObservedChunk) -> None:
        """See Observer."""
        self._rounds, self._visits = {}, {}  # those of another chunk
        self._loops = loops(chunk.launch.program.blocks)
        each = self._loops.items()
        self._outer = {head for head, last in each for other in self._loops if head < other <= last}

    def load(
        self, chunk: ObservedChunk, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """See Observer."""
        if space == "global" and not self.skipped:
            self._read(np.asarray(address) + site.offset, mask)

    def copy(
        self, chunk: ObservedChunk, site: Site, shared_address: Value, global_address: Value,
        source_bytes: Value, mask: Mask | None,
    ) -> None:  # fmt: skip
        """See Observer."""
        if not self.skipped:
            self._read(np.asarray(global_address), mask)

    def _read(self, addresses: Any, mask: Mask | None) -> None:
        if mask is not None:
            addresses, running = np.broadcast_arrays(addresses, mask.bits)
            addresses = addresses[running]
        first = int(addresses.min()) if addresses.size else 0
        if first in self._gap:
            raise GapReadError
        if first in self._operand:
            self._address = first

    def block(self, chunk: Any, at: int, mask: Mask | None) -> None:
        """See Observer."""
        if at in self._loops:
            self._all[at] = self._all.get(at, 0) + 1
            if self._all[at] > self._most:
                self._give_up(chunk, at)
        if self.skipped:
            return
        for head in [head for head in self._rounds if not head <= at <= self._loops[head]]:
            del self._rounds[head], self._visits[head]
        if at not in self._loops:
            return
        program = chunk.launch.program
        slots = sorted(program.slots[name] for name in program.blocks[at].live_in)
        registers = chunk.registers
        rounds = self._rounds.setdefault(at, deque(maxlen=_SHOWN))
        self._visits[at] = self._visits.get(at, 0) + 1
        lanes = np.array(True) if mask is None else mask.bits
        rounds.append(_Round([np.array(registers[slot]) for slot in slots], self._address, lanes))
        outer = at in self._outer
        if self._visits[at] <= (0 if outer else max(self._patience, _SHOWN)):
            return
        if found := self._period([*rounds], 0 if outer else _SHOWN):
            period, steps, bytes_ = found
            count = (self._gap.stop - rounds[-1].address) // bytes_
            for slot, value, step in zip(slots, rounds[-1].registers, steps, strict=True):
                if step.any():
                    registers[slot] = value + step * np.array(count).astype(step.dtype)
            self.skipped = count * period

    def _give_up(self, chunk: Any, at: int) -> None:
        if not self.skipped:
            raise NothingSkippedError
        program = chunk.launch.program
        loop = program.blocks[at : self._loops[at] + 1]
        lines = [item.line for block in loop for item in block.instructions if item.line]
        raise BudgetError(
            f"a loop of kernel '{program.kernel.name}' goes on behind the end of K at CUDA line "
            f"{min(lines, default=0)}; it may not end"
        )

    def _period(self, rounds: Sequence[_Round], shown: int) -> tuple[int, list[Any], int] | None:
        """After how many rounds all is as before but for steps; these, and how far that reads.

        shown: rounds that have to show it, or as many as twice show the period if those are more.
        """
        for period in range(1, _PERIOD + 1):
            if len(rounds) < 4 * period + 1:
                return None
            last = rounds[-1]
            bytes_ = last.address - rounds[-1 - period].address
            steps = [
                _step(*values)
                for values in zip(
                    last.registers,
                    rounds[-1 - period].registers,
                    rounds[-1 - 2 * period].registers,
                    strict=True,
                )
            ]
            if bytes_ > 0 and all(
                self._alike(rounds, -1 - i, period, steps, bytes_)
                for i in range(max(shown - period, 2 * period))
            ):
                return period, steps, bytes_
        return None

    def _alike(
        self, rounds: Sequence[_Round], at: int, period: int, steps: Sequence[Any], bytes_: int
    ) -> bool:
        """Whether a round differs by these steps from the one a period before."""
        now, before = rounds[at], rounds[at - period]
        same = now.address - before.address == bytes_ and _equal(now.lanes, before.lanes)
        return same and all(
            step is not None and _equal(one, other + step if step.dtype.kind in "iu" else other)
            for one, other, step in zip(now.registers, before.registers, steps, strict=True)
        )


def _step(now: Any, before: Any, earlier: Any) -> Any:
    """What a register has changed by; None where it has not changed as often as before."""
    if now.dtype.kind not in "iu":
        return np.zeros((), now.dtype) if _equal(now, before) and _equal(before, earlier) else None
    return now - before if _equal(now - before, before - earlier) else None


def _equal(one: Any, other: Any) -> bool:
    """Bit for bit, as NaN may be among them."""
    if one.dtype.kind == "f":
        bits = f"u{one.itemsize}"
        one, other = np.ascontiguousarray(one).view(bits), np.ascontiguousarray(other).view(bits)
    return bool((one == other).all())
