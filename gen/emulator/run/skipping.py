"""Loops along a long sum, of which all rounds but the first and the last ones are skipped.

A loop of 2^32 rounds takes days here. But where an operand is zero, a round moves counters and
addresses on, and leaves everything else as it was: so any number of rounds is an addition, in as
many bits as each register has. A counter that wraps around too early then does so here as well.
Warps with loops of their own, which wait for each other, are moved on together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gen.emulator.isa.ops import Value
from gen.emulator.memory.bulk_moves import Move
from gen.emulator.memory.global_memory import Site
from gen.emulator.memory.observer import ObservedChunk, Observer
from gen.emulator.run.rounds import Round, current_round, period_of
from gen.emulator.translate.blocks import loops
from gen.emulator.warp.masks import NOBODY, Mask, narrow
from gen.errors import BudgetError

# Rounds after which everything may repeat itself: stages, parities, sums that are added to others.
_PERIOD = 40
# Rounds that have to show it: a counter that begins anew after no more of them is none. Of a loop
# around another one, each takes long.
_SHOWN = 36


class NothingSkippedError(Exception):
    """The kernel has more rounds than it should need, and none of them was skipped."""


class GapReadError(NothingSkippedError):
    """The kernel reads what it would have skipped, were its loop one of those that are known."""


class Part(NamedTuple):
    """The addresses of a part of an operand, and those in it that are not mapped."""

    bytes: range
    gap: range


class Skipping(Observer):
    """Skips rounds of the loop that reads an operand, once for each part of it. Unlike other
    observers, it changes what the kernel does.

    parts: what is in front of a gap, and some of what is behind, is zero but for the first and last
    few of the part. It skips to behind the gap. patience: rounds that a loop without inner loops
    has to have before that, more than such as go through a part of a step. most: rounds that no
    loop should need in a row. `skipped`: how many were left out. Raises GapReadError where the
    kernel comes to a gap itself; NothingSkippedError for more rounds than `most`, but BudgetError
    where some were left out.
    """

    def __init__(self, parts: Sequence[Part], patience: int, most: int) -> None:
        self._parts, self._patience, self._most = list(parts), patience, most  # those still to come
        self._all: dict[int, int] = {}  # visits of a head since rounds were last skipped
        self._loops: dict[int, int] = {}  # the last block of a loop, by its head
        self._outer: set[int] = set()  # heads of loops with inner ones
        self._rounds: dict[int, deque[Round]] = {}
        self._visits: dict[int, int] = {}
        self._address = 0
        self.skipped = 0

    def begin(self, chunk: ObservedChunk) -> None:
        """See Observer."""
        self._rounds, self._visits, self._address = {}, {}, 0  # those of another chunk
        blocks = chunk.launch.program.blocks
        # Those that only wait at an mbarrier are none of these loops.
        self._loops = {h: at for h, at in loops(blocks).items() if h < at or not blocks[h].poll}
        each = self._loops.items()
        self._outer = {head for head, last in each for other in self._loops if head < other <= last}

    def load(
        self, chunk: ObservedChunk, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """See Observer."""
        if space == "global" and self._parts:
            self._read(np.asarray(address) + site.offset, mask)

    def copy(
        self, chunk: ObservedChunk, site: Site, shared_address: Value, global_address: Value,
        source_bytes: Value, mask: Mask | None,
    ) -> None:  # fmt: skip
        """See Observer."""
        if self._parts:
            self._read(np.asarray(global_address), mask)

    def bulk(self, chunk: ObservedChunk, move: Move) -> None:
        """See Observer."""
        if move.into_shared and self._parts:
            self._read(move.addresses[move.addresses >= 0], None)

    def _read(self, addresses: Any, mask: Mask | None) -> None:
        if mask is not None:
            addresses, running = np.broadcast_arrays(addresses, mask.bits)
            addresses = addresses[running]
        first = int(addresses.min()) if addresses.size else 0
        for part in self._parts:
            if first in part.gap:
                raise GapReadError
            if first in part.bytes:
                self._address = first

    def block(self, chunk: Any, at: int, mask: Mask | None) -> None:
        """See Observer."""
        if at in self._loops:
            self._all[at] = self._all.get(at, 0) + 1
            if self._all[at] > self._most:
                self._give_up(chunk, at)
        if not self._parts:
            return
        for head in [head for head in self._rounds if self._leaves(head, at, mask)]:
            del self._rounds[head], self._visits[head]
        if at not in self._loops:
            return
        rounds = self._rounds.setdefault(at, deque(maxlen=3 * _PERIOD + 1))
        self._visits[at] = self._visits.get(at, 0) + 1
        rounds.append(current_round(chunk, at, mask, self._address))
        outer = at in self._outer
        if self._visits[at] <= (0 if outer else max(self._patience, _SHOWN)):
            return
        part = next((part for part in self._parts if self._address in part.bytes), None)
        found = period_of(rounds, _PERIOD, 0 if outer else _SHOWN) if part else None
        if part and found:
            period, steps, bytes_ = found
            count = (part.gap.stop - self._address) // bytes_
            for slot, step in steps.items():
                many = step * np.array(count).astype(step.dtype)
                chunk.registers[slot] = chunk.registers[slot] + many
            self.skipped += count * period
            self._parts.remove(part)
            self._rounds, self._visits, self._all = {}, {}, {}

    def _leaves(self, head: int, at: int, mask: Mask | None) -> bool:
        """Whether block `at` is outside of a loop, and lanes run it that were in there."""
        if head <= at <= self._loops[head]:
            return False
        inside = self._rounds[head][-1].lanes
        return inside is None or mask is None or narrow(mask, inside.bits) is not NOBODY

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
