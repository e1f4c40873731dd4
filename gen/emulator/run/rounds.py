"""Whether the rounds of a loop repeat each other but for steps, from all that a later one can read.

That is where lanes are, whether they run or wait, registers that they may read, shared and local
memory with its mbarriers, and the bulk copies under way. So it holds for loops of several warps
that hand stages over to each other, wherever each of them is: all go on as they have begun.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gen.emulator.warp.masks import Bits, Mask


class Register(NamedTuple):
    """The bits of a register, zero for lanes that do not read it, and whether they may count."""

    bits: Any
    counts: bool


class Round(NamedTuple):
    """What there is when lanes come to a loop's head; `address`: where an operand is read."""

    address: int
    places: Sequence[Any]  # of lanes, and of copies
    memory: Sequence[bytes]
    registers: Mapping[int, Register]  # by their slots
    lanes: Mask | None  # those at the head


def current_round(chunk: Any, at: int, mask: Mask | None, address: int) -> Round:
    """That of lanes which are about to run block `at`, and of all others."""
    program, shape = chunk.launch.program, chunk.shape
    everywhere = [("", at, mask), *(("", *item) for item in chunk.waiting.items())]
    everywhere += [("spinning", *item) for item in chunk.spinning.waiting.items()]
    everywhere += chunk.positions()
    read: dict[str, Bits] = {}
    places: list[Any] = []
    for kind, block, lanes in everywhere:
        bits = np.broadcast_to(True if lanes is None else lanes.bits, shape)
        places.append((kind, block, bits.tobytes()))
        if block < 0:  # they have come to a barrier, and do not wait there
            continue
        behind = kind in ("parked", "cluster")  # at the barrier that ends the block
        names = program.blocks[block].live_out if behind else program.blocks[block].live_in
        for name in names:
            read[name] = read[name] | bits if name in read else bits
    places += [(id(m.site), m.shared.tobytes(), m.barriers.tobytes()) for m in chunk.bulk.loads]
    alone = len(everywhere) == 1 and mask is None
    registers = {}
    for name, bits in read.items():
        slot = program.slots[name]
        value = np.asarray(chunk.registers[slot])
        counts = value.dtype.kind in "iu"
        value = value if counts else np.ascontiguousarray(value).view(f"u{value.itemsize}")
        value = value.copy() if alone else np.where(bits, value, value.dtype.type(0))
        registers[slot] = Register(value, counts)
    memory = [scratch.data.tobytes() for scratch in chunk.scratch()]
    return Round(address, places, memory, registers, mask)


def period_of(
    rounds: Sequence[Round], most: int, shown: int
) -> tuple[int, Mapping[int, Any], int] | None:
    """After how many rounds all is as before but for steps; these, and how far that reads.

    most: rounds of a period. shown: rounds that have to show it, or three periods and one more if
    that is longer.
    """
    for period in range(1, min(most, (len(rounds) - 1) // 3) + 1):
        bytes_ = rounds[-1].address - rounds[-1 - period].address
        if bytes_ > 0 and (steps := _steps(rounds, period, 0)) is not None:
            others = range(1, max(shown - 2 * period, period + 1))
            if all(_steps(rounds, period, i) is not None for i in others):
                return period, steps, bytes_
    return None


def _steps(rounds: Sequence[Round], period: int, back: int) -> Mapping[int, Any] | None:
    """What registers have changed by in each of the two periods up to a round, if by the same."""
    now, before, earlier = (rounds[-1 - back - i * period] for i in range(3))
    evenly = now.address - before.address == before.address - earlier.address
    if not (evenly and _at_same_places(now, before) and _at_same_places(before, earlier)):
        return None
    steps = {}
    for slot, (bits, counts) in now.registers.items():
        last = before.registers[slot].bits
        step = bits - last
        if np.count_nonzero(step):
            if not counts or np.count_nonzero(step != last - earlier.registers[slot].bits):
                return None
            steps[slot] = step
        elif np.count_nonzero(last != earlier.registers[slot].bits):
            return None
    return steps


def _at_same_places(now: Round, before: Round) -> bool:
    return now.places == before.places and now.memory == before.memory
