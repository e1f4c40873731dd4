"""What all chunks of a launch share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gen.emulator.memory.buffers import Buffer
from gen.emulator.memory.chances import Chances
from gen.emulator.memory.global_memory import GlobalMemory
from gen.emulator.memory.observer import Observer
from gen.emulator.memory.tensor_map import TensorMap
from gen.emulator.run.time_limit import TimeLimit
from gen.emulator.translate.program import Program
from gen.emulator.warp.masks import Coordinates
from gen.emulator.watch.findings import Findings


@dataclass
class LaunchState:
    """What all chunks of a launch share."""

    program: Program
    grid: Coordinates  # where launches run abreast: the most blocks that any has along each axis
    block: Coordinates
    memory: GlobalMemory
    findings: Findings
    cluster: Coordinates = (1, 1, 1)
    explicit_cluster: bool = False  # whether anybody has said how large clusters are
    grids: Sequence[Coordinates] = ()  # of launches that run abreast, whose blocks lie along z
    addresses: dict[str, int] = field(default_factory=dict)  # of all variables
    parameters: dict[str, int] = field(default_factory=dict)  # addresses of the first launch's
    pitch: int = 0  # bytes from there to those of the next
    shared: list[tuple[str, int, int]] = field(default_factory=list)  # (name, offset, bytes)
    shared_bytes: int = 0  # per block, with the dynamic ones
    local_bytes: int = 0  # per thread
    dynamic_bytes: int = 0
    unused_bytes: int = 0  # in front of the dynamic ones, so that they are no more aligned
    chances: Chances = field(default_factory=Chances)
    budget: int | None = None  # thread-instructions left
    limit: TimeLimit = field(default_factory=TimeLimit)
    wild: bool = False  # whether an access was wrong
    instructions: int = 0  # thread-instructions executed
    observers: Sequence[Observer] = ()
    maps: Mapping[int, TensorMap] = field(default_factory=dict)  # by the numbers in their bytes
    printed: list[Any] = field(default_factory=list)  # by printf
    workspace: Buffer | None = None  # of a cooperative launch

    @property
    def several(self) -> int:
        """Launches that run abreast, each of which has as many blocks along z as `grid`."""
        return max(len(self.grids), 1)

    @property
    def spins(self) -> bool:
        """Whether lanes may wait for memory to change."""
        return self.program.spins
