"""What barriers carry besides waiting: votes of a whole block, and arrivals that do not wait."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gen.emulator.isa.ops import Value
from gen.emulator.ptx.module import Instruction
from gen.emulator.warp.chunk import WarpChunk
from gen.emulator.warp.masks import Mask

Counts = npt.NDArray[np.int64]  # lanes in each block, shaped (z, 1, y, 1, x, 1)


@dataclass
class Votes:
    """Of one barrier: lanes of each block that voted yes, that voted, and blocks that are done."""

    yes: Counts
    all: Counts
    done: npt.NDArray[np.bool_]


class Barriers:
    """The barriers of one chunk, by their number."""

    def __init__(self, chunk: WarpChunk) -> None:
        self.chunk = chunk
        self.arrived: dict[int, list[Mask]] = {}
        self._votes: dict[int, Votes] = {}

    def arrive(self, item: Instruction, number: Value, mask: Mask | None) -> None:
        """bar.arrive: count the lanes as if they waited, but let them go on."""
        lanes = mask or Mask(np.ones((1,) * 6, np.bool_))
        self.arrived.setdefault(uniform(item, number), []).append(lanes)

    def forget(self, number: int, blocks: npt.NDArray[np.bool_]) -> None:
        """The barrier has completed for `blocks`: their arrivals are used up."""
        left = [Mask(mask.bits & ~blocks) for mask in self.arrived.pop(number, [])]
        if left := [mask for mask in left if mask.bits.any()]:
            self.arrived[number] = left

    def vote(self, item: Instruction, number: Value, choice: Value, mask: Mask | None) -> None:
        """The first half of bar.red: each lane's predicate, before the block meets."""
        shape = self.chunk.shape
        lanes = np.broadcast_to(True if mask is None else mask.bits, shape)
        count, yes = (Mask(bits).per_block(shape) for bits in (lanes, lanes & choice))
        at = uniform(item, number)
        old = self._votes.get(at)
        if old is not None:  # a block that has read the result starts over
            count, yes = (np.where(old.done, 0, before) + now
                          for before, now in ((old.all, count), (old.yes, yes)))  # fmt: skip
        self._votes[at] = Votes(yes, count, np.zeros(count.shape, np.bool_))

    def result(self, item: Instruction, mode: str, number: Value, mask: Mask | None) -> Value:
        """The second half: what the block's votes come to."""
        votes = self._votes[uniform(item, number)]
        blocks = True if mask is None else mask.per_block(self.chunk.shape) > 0
        votes.done = votes.done | blocks
        if mode == "popc":
            return votes.yes.astype(np.int32)
        return votes.yes == votes.all if mode == "and" else votes.yes > 0


def uniform(item: Instruction, value: Value) -> int:
    """A barrier's number or thread count, which must be the same for all lanes."""
    if value.ndim and value.min() != value.max():
        raise item.error("a barrier number that differs between threads is not supported")
    return int(value.flat[0]) if value.ndim else int(value)
