"""What checks and counters see of a run. An observer overrides what it wants to know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gen.emulator.memory import Site
from gen.emulator.moves import Move
from gen.emulator.ops import Value
from gen.emulator.warp import Bits, Mask

if TYPE_CHECKING:
    from gen.emulator.codegen import Program
    from gen.emulator.context import Context


class Observer:
    """Called while a launch runs, chunk after chunk. Nothing here changes what the kernel does.

    Addresses are int64 byte addresses within `space` ("global", "shared", "local"), without the
    site's constant offset, and broadcast over the chunk's six axes, as masks do (None: all lanes).

    `ldmatrix` and `stmatrix` are a load and a store in "shared" whose `site.item.opcode` says so:
    `site.size` is 16, one row of a matrix, and the mask has only the lanes that name a row. Lanes
    0 to 7 of a warp name those of the first matrix, 8 to 15 those of the second, and so on.
    """

    def concerns(self, program: Program) -> bool:
        """Whether launches of the program are to be watched; those of others cost nothing."""
        return True

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

    def copy(
        self, chunk: Context, site: Site, shared_address: Value, global_address: Value,
        source_bytes: Value, mask: Mask | None,
    ) -> None:  # fmt: skip
        """cp.async issues a copy of `site.size` bytes for each lane, from global to shared memory.

        Both addresses have their constant offsets added. Of the bytes only the first
        `source_bytes` (an integer, uniform or per lane) are read; the rest is written as zeros.
        The copy is in flight until a `wait` of the same thread for the group it is committed in.
        """

    def commit(self, chunk: Context, mask: Mask | None) -> None:
        """Each lane makes a group of its copies since the last commit; a group may be empty."""

    def wait(self, chunk: Context, groups_left: int, mask: Mask | None) -> None:
        """Each lane has waited until at most its `groups_left` latest groups are in flight."""

    def barrier(self, chunk: Context, blocks: Bits | None) -> None:
        """All threads of `blocks` (None: of every block) have met at a barrier."""

    def meet(self, chunk: Context, mask: Mask) -> None:
        """The lanes of `mask`, which are not all of their blocks, have met at a barrier."""

    def warp_sync(self, chunk: Context, mask: Mask | None) -> None:
        """The lanes of each warp have met at a `bar.warp.sync` (`__syncwarp`)."""

    def arrive(self, chunk: Context, offset: int, mask: Mask | None, done: Bits) -> None:
        """The lanes have arrived at the mbarrier at `offset` of their block's shared memory.

        What they did before is ordered before those who see its phase complete. `done`: the blocks
        in which the phase is complete with that.
        """

    def observe(self, chunk: Context, offset: int, mask: Mask | None) -> None:
        """The lanes have seen that the latest phase of the mbarrier at `offset` is complete."""

    def signal(self, chunk: Context, mask: Mask | None) -> None:
        """cp.async.mbarrier.arrive: each lane will arrive once its copies so far have landed."""

    def arrive_copies(self, chunk: Context, offset: int, mask: Mask | None, done: Bits) -> None:
        """The lanes' oldest `signal` happens, at the mbarrier at `offset`; `done` as in `arrive`.

        That orders the copies, and nothing else that the lanes did.
        """

    def bulk(self, chunk: Context, move: Move) -> None:
        """Lanes start bulk copies; these are under way until `land_bulk`."""

    def fence_proxy(self, chunk: Context, mask: Mask | None, inits_only: bool) -> None:
        """fence.proxy.async: each lane shows bulk copies what was written to shared memory.

        That is what it wrote itself, and all that is ordered before it. inits_only: of that, only
        the mbarriers that were initialised; the instruction is fence.mbarrier_init.
        """

    def land_bulk(self, chunk: Context, move: Move, done: Bits | None) -> None:
        """Bulk copies are done. Into shared memory: their mbarrier has counted their bytes.

        done: the blocks in which its phase is complete with that. Out of shared memory: their lanes
        have waited for them, and it is None.
        """

    def wait_for_grids(self, chunk: Context, mask: Mask | None) -> None:
        """griddepcontrol.wait: for each lane, the kernels before this one have ended."""

    def end(self, chunk: Context) -> None:
        """Every lane of the chunk has exited."""
