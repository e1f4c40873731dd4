"""The special registers of a chunk of blocks: who a lane is, and what time it is."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gen.emulator.isa.instructions import WIDE_SPECIALS
from gen.emulator.isa.ops import Value
from gen.emulator.memory.buffers import Owners
from gen.emulator.run.launch_state import LaunchState
from gen.emulator.warp.clusters import Clusters
from gen.emulator.warp.masks import WARP, Coordinates, Shape, compact

_MOST_WARPS = 64  # of a multiprocessor


class SpecialRegisters:
    """What %tid, %ctaid and their like hold, of all lanes at once."""

    launch: LaunchState
    origin: Coordinates
    shape: Shape
    threads: int
    clusters: Clusters
    rows: Owners | None

    def __init__(self) -> None:
        super().__init__()
        self._specials: dict[str, Value] = {}
        self.ticks = 0  # of the clocks

    def special(self, name: str) -> Value:
        """A special register as int32, or int64 for the clocks of that width."""
        if "clock" in name or "timer" in name:
            return self._time(name)
        if name not in self._specials:
            self._specials[name] = self._special(name)
        return self._specials[name]

    def _time(self, name: str) -> Value:
        """A clock: 256 ticks for each time that one was read, and some while lanes spin."""
        self.ticks += 256
        time = np.int64(self.ticks)
        if name in WIDE_SPECIALS:
            return time
        return np.int32(time >> 32 if name.endswith("_hi") else time & 0x7FFFFFFF)

    def _special(self, name: str) -> Value:
        word, _, axis = name.lstrip("%").partition(".")
        launch = self.launch
        if "cluster" in word:
            return self._cluster_special(word, axis)
        if word == "ntid":
            return np.int32(launch.block["xyz".index(axis)])
        if word == "nctaid":
            return self._blocks("xyz".index(axis))
        if word in ("tid", "ctaid"):
            at = "xyz".index(axis)
            place = 5 - 2 * at if word == "tid" else 4 - 2 * at
            count, first = self.shape[place], 0 if word == "tid" else self.origin[at]
            dims = tuple(count if i == place else 1 for i in range(6))
            numbers = np.arange(first, first + count, dtype=np.int32).reshape(dims)
            if word == "ctaid" and launch.several > 1 and axis == "z":
                numbers = compact(numbers % np.int32(launch.grid[2]))
            return np.int32(numbers.item()) if numbers.size == 1 else numbers
        if word in ("smid", "nsmid", "nwarpid"):  # as if the GPU had one multiprocessor
            return np.int32({"smid": 0, "nsmid": 1, "nwarpid": _MOST_WARPS}[word])
        if word.startswith("lanemask"):
            one = np.int32(1) << self.special("%laneid")
            below = one - np.int32(1)
            return {"eq": one, "lt": below, "le": below | one, "gt": ~(below | one),
                    "ge": ~below}[word[-2:]]  # fmt: skip
        if word in ("laneid", "warpid"):
            _, tz, _, ty, _, tx = self.shape
            linear = np.arange(self.threads, dtype=np.int32).reshape(1, tz, 1, ty, 1, tx)
            return linear % np.int32(32) if word == "laneid" else self._warps(linear)
        if word in ("gridid", "current_graph_exec"):
            return np.int64(word == "gridid")
        if word.startswith("envreg"):  # the workspace of a cooperative launch, and zeros
            address = launch.workspace.base if launch.workspace else 0
            return np.int64({1: address >> 32, 2: address}.get(int(word[6:]), 0)).astype(np.int32)
        if word.startswith("reserved"):  # in front of a kernel's shared memory: none
            return np.int32(0)
        return np.int32(launch.dynamic_bytes if word[0] == "d" else launch.shared_bytes)

    def _warps(self, linear: npt.NDArray[np.int32]) -> Value:
        """%warpid: where a multiprocessor has room, which is elsewhere for one block and another.

        PTX promises no more. No block has the number of a warp in the block, threadIdx.x / 32.
        """
        count = -(-self.threads // WARP)
        block = sum(self.special(f"%ctaid.{axis}") for axis in "xyz")
        first = (block * np.int32(count) % np.int32(_MOST_WARPS - count)) + np.int32(1)
        return np.asarray(first + linear // np.int32(WARP), np.int32)

    def _blocks(self, at: int) -> Value:
        """How many blocks there are along an axis: launches that run abreast may differ."""
        if self.rows is None:
            return np.int32(self.launch.grid[at])
        each = np.array([grid[at] for grid in self.launch.grids], np.int32)
        blocks = compact(each[self.rows].reshape(-1, 1, 1, 1, 1, 1))
        return np.int32(blocks.item()) if blocks.size == 1 else blocks

    def _cluster_special(self, word: str, axis: str) -> Value:
        launch = self.launch
        if word == "is_explicit_cluster":
            return np.bool_(launch.explicit_cluster)
        if word == "cluster_ctarank":
            return self.clusters.rank.astype(np.int32) if self.clusters.size > 1 else np.int32(0)
        if word == "cluster_nctarank":
            return np.int32(self.clusters.size)
        along = np.int32(launch.cluster["xyz".index(axis)])
        if word == "cluster_nctaid":
            return along
        if word == "nclusterid":
            return self.special(f"%nctaid.{axis}") // along
        block = self.special(f"%ctaid.{axis}")
        return block // along if word == "clusterid" else block % along
