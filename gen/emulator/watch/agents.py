"""Which lanes of a warp have acted alike so far, so that clocks can keep their times together.

An *agent* is a set of lanes of one warp that took part in the same events. At first each warp is
one. Where an event concerns some of an agent's lanes only, the agent splits, in all blocks, and
stays so.

A *place* names a lane, or a whole warp, whatever the agents are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gen.emulator.watch.granules import PER_WARP, Index

MEMBERS = 33  # places of a warp: its lanes, and all of them together
_WHOLE = 32
Acting = npt.NDArray[np.bool_]  # (rows, agents)


def place(code: Any) -> Any:
    """The place of a thread's code, or of a whole warp's."""
    return code // PER_WARP * MEMBERS + code % PER_WARP - 1


class Agents:
    """The agents of some threads, in the order of their warps.

    of: the agent of each thread; first: of each agent, its first thread; warp: its warp.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.warps = -(-threads // 32)
        self.places = self.warps * MEMBERS
        thread = np.arange(threads)
        self._place = place(thread // 32 * PER_WARP + thread % 32 + 1)
        self._number(thread // 32, np.arange(self.warps) * 32)

    def _number(self, of: Index, first: Index) -> None:
        self.of, self.first, self.warp = of, first, first // 32
        self.count = len(first)
        self.single = np.flatnonzero(np.bincount(of) == 1)  # those of one lane
        each = np.bincount(self.warp)
        rank = np.minimum(np.arange(each.max())[:, None], each - 1)
        self._of_warps = np.searchsorted(self.warp, np.arange(self.warps)) + rank
        self.at = np.zeros(self.places, np.int64)  # of each place: the agent, or count plus warp
        self.at[self._place] = of
        self.at[_WHOLE::MEMBERS] = self.count + np.arange(self.warps)

    def split(self, labels: npt.NDArray[Any]) -> Index | None:
        """Split the agents whose lanes have different `labels`, of shape (any, threads).

        Returns which agent each one was before, or None if none had to be split.
        """
        if (labels[:, self.first[self.of]] == labels).all():
            return None
        keys = np.concatenate([self.of[None], labels])
        _, first, of = np.unique(keys, axis=1, return_index=True, return_inverse=True)
        before = self.of[first]
        self._number(of.reshape(-1), first)
        return before

    def over_warps(self, combine: np.ufunc, times: npt.NDArray[Any], axis: int) -> Any:
        """The agents along an axis, combined to one of each warp."""
        result = times.take(self._of_warps[0], axis)
        for agents in self._of_warps[1:]:  # those of a warp that has fewer come again
            combine(result, times.take(agents, axis), out=result)
        return result
