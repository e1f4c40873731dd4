"""What flags, locks and tickets in shared memory order, as PTX's memory model says.

A store or an atomic releases where it says so, or where its thread has executed a fence before:
then it shows what was ordered before that fence. A load acquires where it says so, or once a fence
follows; an atomic that reads is taken to acquire. A fence before a barrier counts for all who meet
there.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from gen.emulator.ptx.module import Instruction
from gen.emulator.translate.blocks import Block
from gen.emulator.watch.agents import Acting
from gen.emulator.watch.vector_clocks import Clocks, Lanes, Times

# Accesses that one may look at while others write: all but plain ones.
STRONG = {"volatile", "relaxed", "mmio", "acquire", "release", "acq_rel"}
RELEASES, ACQUIRES = {"release", "acq_rel"}, {"acquire", "acq_rel"}
_FENCE = re.compile(r"(membar|fence\.(sc|acq_rel|acquire|release))\.")
_ELSEWHERE = {"global", "local", "const", "param"}


def is_strong(item: Instruction) -> bool:
    """Whether it is an atomic, or an access as strong as one, that may be to shared memory."""
    words = {word.partition("::")[0] for word in item.modifiers}
    strong = item.opcode in ("atom", "red") or (item.opcode in ("ld", "st") and STRONG & words)
    return bool(strong) and not _ELSEWHERE & words


def has_flags(items: list[Instruction]) -> bool:
    """Whether a kernel may order threads by what it writes to shared memory, and reads there."""
    ordered = any(_FENCE.match(item.name) or _orders(item) for item in items)
    return ordered and any(map(is_strong, items))


def _orders(item: Instruction) -> bool:
    return is_strong(item) and bool((RELEASES | ACQUIRES) & set(item.modifiers))


def polling_lines(blocks: list[Block]) -> set[int]:
    """The CUDA lines with a load in a loop that stores nothing: one that waits for a change.

    In the order of blocks a loop is contiguous, its head first. Of a loop's condition the compiler
    may make a load before the loop, too, which has the same line.
    """
    inner: dict[int, tuple[int, int]] = {}
    for at, block in enumerate(blocks):
        for head in block.successors:
            for inside in range(head, at + 1):
                first, last = inner.get(inside, (0, len(blocks)))
                if at - head < last - first:
                    inner[inside] = head, at
    found = set()
    for first, last in set(inner.values()):
        items = [item for block in blocks[first : last + 1] for item in block.body]
        if not any(item.opcode == "st" for item in items):
            found |= {item.line for item in items if item.opcode == "ld" and is_strong(item)}
    return found


class FlagClocks(Clocks):
    """Clocks that flags order as well. A place is whatever names it, such as its granule."""

    def __init__(self, threads: int, proxies: bool = False, blocks: int = 1) -> None:
        super().__init__(threads, proxies, blocks)
        # What each lane knew at its latest fence, and what it has looked at since.
        self.fenced: Times = np.zeros_like(self.known)
        self.looked: Times = np.zeros_like(self.known)
        self.fence_at: Times = np.zeros_like(self.own)  # that fence's time: what it did before
        self.of_agents = (*self.of_agents, "fenced", "looked")
        self.one_each = (*self.one_each, "fence_at")
        self._fences = False

    def fence(self, lanes: Lanes, by_warp: bool) -> None:
        """Lanes execute a fence; by_warp: which counts for all of those of each warp."""
        acting = self._acting(lanes)
        at = np.nonzero(acting)
        self.known[at] = np.maximum(self.known[at], self.looked[at])
        self.looked[at] = 0
        self.fenced[at] = self.known[at]
        alone = self.agents.single
        self.fenced[:, alone, alone] = 0  # of the others of an agent, there are none
        self.fence_at[at] = self.now + 1
        self._fences, self._asked = True, None
        self.now += 1
        if by_warp:
            self._share(acting, by_warp)

    def meet(self, lanes: Lanes, by_warp: bool = False) -> None:
        """See Clocks."""
        super().meet(lanes, by_warp)
        if self._fences:
            acting = self._acting(lanes)
            self._share(acting, by_warp)

    def _share(self, acting: Acting, by_warp: bool) -> None:
        """What the fences of those that act have ordered, they have for all, or for their warp."""
        shown = self._fenced(acting)
        if by_warp:
            shown = self.agents.over_warps(np.maximum, shown, 1)[:, self.agents.warp]
        else:
            shown = shown.max(axis=1, keepdims=True)
        self.fenced = np.where(acting[..., None], np.maximum(self.fenced, shown), self.fenced)

    def _fenced(self, acting: Acting) -> Times:
        """What those that act knew and had done at their latest fences: (rows, agents, times)."""
        shown: Times = np.where(acting[..., None], self.fenced, 0)
        row, agent = np.nonzero(acting)
        own = self.fence_at[row, agent]
        shown[row, agent, agent] = np.maximum(shown[row, agent, agent], own)
        return shown

    def write(self, place: Any, lanes: Lanes, releases: bool, adds: bool) -> None:
        """Lanes write at a place; adds: what others have shown there stays visible."""
        if not (releases or self._fences or place in self.objects):
            return
        acting = self._acting(lanes)
        shown = self._given(acting)[:, 0] if releases else self._fenced(acting).max(axis=1)
        item = self._object(place)
        writes = np.any(acting, axis=1)[:, None]
        before = item.complete if adds else np.where(writes, 0, item.complete)
        item.complete = np.maximum(before, shown)
        self.now += 1

    def read(self, place: Any, lanes: Lanes, acquires: bool) -> None:
        """Lanes read what was written at a place."""
        if place not in self.objects:
            return
        if acquires:
            self.observe(place, lanes)
            return
        acting = self._acting(lanes)
        seen = np.where(acting[..., None], self._object(place).complete[:, None], 0)
        self.looked = np.maximum(self.looked, seen)

    def by_warps(self, lanes: Lanes) -> list[npt.NDArray[np.bool_]]:
        """Lanes warp by warp, in their order."""
        warp = self.agents.lanes // 32
        some = np.unique(warp[np.any(lanes, axis=0)])
        return [lanes & (warp == one) for one in some]
