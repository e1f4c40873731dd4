"""What instructions of a warp need of the chunk of blocks that runs them: `run.context` has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from gen.emulator.isa.ops import Value
from gen.emulator.ptx.module import Instruction
from gen.emulator.warp.masks import Bits, Coordinates, Mask, Shape


class Recorder(Protocol):
    """Where findings go."""

    def add(
        self, check: str, item: Instruction, message: str, block: Coordinates,
        threads: Sequence[Coordinates], address: str = "", kind: str = "",
        other: Instruction | None = None,
    ) -> None:  # fmt: skip
        """Record a finding, unless there is one like it."""
        ...


class WarpLaunch(Protocol):
    """The launch of a chunk."""

    @property
    def findings(self) -> Recorder:
        """What the kernel did wrong."""
        ...


class WarpChunk(Protocol):
    """A box of blocks that run in lockstep."""

    @property
    def launch(self) -> WarpLaunch:
        """What it shares with the other chunks."""
        ...

    @property
    def origin(self) -> Coordinates:
        """Its first block."""
        ...

    @property
    def shape(self) -> Shape:
        """Its blocks and threads along the six axes (see `masks`)."""
        ...

    @property
    def threads(self) -> int:
        """Threads of a block."""
        ...

    @property
    def lanes(self) -> int:
        """Threads of all its blocks."""
        ...

    @property
    def live(self) -> Mask | None:
        """Lanes that have not exited; None: all."""
        ...

    @property
    def clusters(self) -> Any:
        """The `warp.clusters.Clusters` of its blocks, which needs this."""
        ...

    @property
    def fragments(self) -> dict[Any, Any]:
        """Operands that `mma` keeps from one instruction to the next."""
        ...

    @property
    def spans(self) -> dict[int, tuple[Any, Any]]:
        """What `mma` knows of accumulators: their array, by its id, and its `Span`."""
        ...

    # Of the latest shuffle: the lanes that it read, and who read one that does not take part.
    shuffled: tuple[Value, Bits | None] | None

    def special(self, name: str) -> Value:
        """A special register."""
        ...

    def warp_sync(self, m: Mask | None) -> None:
        """Tells checks that the lanes of each warp have met."""
        ...
