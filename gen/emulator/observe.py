"""What checks and counters see of a run. An observer overrides what it wants to know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gen.emulator.memory import Site
from gen.emulator.ops import Value
from gen.emulator.warp import Bits, Mask

if TYPE_CHECKING:
    from gen.emulator.context import Context


class Observer:
    """Called while a launch runs, chunk after chunk. Nothing here changes what the kernel does.

    Addresses are int64 byte addresses within `space` ("global", "shared", "local"), without the
    site's constant offset, and broadcast over the chunk's six axes, as masks do (None: all lanes).
    """

    def begin(self, chunk: Context) -> None:
        """A chunk starts, its memory as it is before the first instruction."""

    def block(self, chunk: Context, at: int, mask: Mask | None) -> None:
        """Basic block `at` of the program is about to run for the lanes of `mask`."""

    def load(
        self, chunk: Context, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """A load is about to read `site.size` bytes for each lane."""

    def store(
        self, chunk: Context, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """A store is about to write `site.size` bytes for each lane."""

    def atomic(
        self, chunk: Context, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """An atomic operation is about to read and write `site.size` bytes for each lane."""

    def barrier(self, chunk: Context, blocks: Bits | None) -> None:
        """All threads of `blocks` (None: of every block) have met at a barrier."""

    def end(self, chunk: Context) -> None:
        """Every lane of the chunk has exited."""
