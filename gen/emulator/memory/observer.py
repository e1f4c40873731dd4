"""What observers see of a run: the chunk and its launch, and what they are told.

Memory tells them, and what runs above it; checks and counters (`watch`) are observers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gen.emulator.isa.ops import Value
from gen.emulator.memory.block_memory import Scratch
from gen.emulator.memory.bulk_moves import Move, Numbers
from gen.emulator.memory.chances import Chances
from gen.emulator.memory.global_memory import GlobalMemory, Site
from gen.emulator.memory.tensor_map import TensorMap
from gen.emulator.warp.chunk import WarpChunk, WarpLaunch
from gen.emulator.warp.clusters import Clusters
from gen.emulator.warp.masks import Bits, Coordinates, Mask


@dataclass(frozen=True)
class MatrixRead:
    """A matrix in shared memory that wgmmas read, from their issue until warps have waited."""

    site: Site
    name: str  # "A" or "B"
    blocks: Numbers  # of each warpgroup, in the chunk
    groups: Numbers  # which of its block's warpgroups it is
    numbers: Numbers  # how many wgmmas it has issued with this one
    offsets: Numbers  # (warpgroups, lines of 16 bytes)
    swizzles: Numbers  # as the descriptor says: 0, 32, 64 or 128
    with_fragments: bool  # whether the other matrix is in registers


class ObservedLaunch(WarpLaunch, Protocol):
    """The launch of a chunk."""

    @property
    def program(self) -> Any:
        """The kernel's `translate.program.Program`, of a room above this one."""
        ...

    @property
    def grid(self) -> Coordinates:
        """Blocks along each axis."""
        ...

    @property
    def block(self) -> Coordinates:
        """Threads along each axis of a block."""
        ...

    @property
    def cluster(self) -> Coordinates:
        """Blocks along each axis of a cluster."""
        ...

    @property
    def chances(self) -> Chances:
        """What no kernel is promised, as this launch has it."""
        ...

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        ...

    @property
    def unused_bytes(self) -> int:
        """Bytes of them that are there for an address's sake."""
        ...

    @property
    def dynamic_bytes(self) -> int:
        """Of that, what the launch asks for."""
        ...

    @property
    def maps(self) -> Mapping[int, TensorMap]:
        """Tensor maps by the numbers that are in their bytes."""
        ...

    @property
    def observers(self) -> Sequence[Observer]:
        """Who watches."""
        ...


class ObservedChunk(WarpChunk, Protocol):
    """A box of blocks that run in lockstep, with their memory."""

    @property
    def launch(self) -> ObservedLaunch:
        """What it shares with the other chunks."""
        ...

    @property
    def clusters(self) -> Clusters:
        """Its clusters of blocks."""
        ...

    @property
    def memory(self) -> GlobalMemory:
        """Global memory."""
        ...

    @property
    def shared(self) -> Scratch:
        """The blocks' shared memory."""
        ...

    def spaces(
        self, site: Site, address: Value, m: Mask | None
    ) -> list[tuple[str, Value, Mask | None]]:
        """An access as (space, address in it, lanes); a generic one may be several."""
        ...

    def near(self, site: Site, address: Value, m: Mask | None) -> Value:
        """Addresses in the window of shared memory relative to each lane's block."""
        ...

    def report(self, site: Site, what: str, address: Value, bad: Bits, mask: Mask | None) -> None:
        """A memcheck finding for the lanes in `bad`, whose byte addresses are `address`."""
        ...

    def describe_shared(self, address: int) -> str:
        """ "shared+128 of 4096 (tile)": a byte of a block's shared memory, and its variable."""
        ...


class Observer:
    """Called while a launch runs, chunk after chunk; overrides what it wants to know.

    Nothing here changes what the kernel does.

    Addresses are int64 byte addresses within `space` ("global", "shared", "local"), without the
    site's constant offset, and broadcast over the chunk's six axes, as masks do (None: all lanes).
    Those in "shared" name another block of the cluster as `warp.clusters` says; so do the offsets
    of mbarriers.

    `ldmatrix` and `stmatrix` are a load and a store in "shared" whose `site.item.opcode` says so:
    `site.size` is 16, one row of a matrix, and the mask has only the lanes that name a row. Lanes
    0 to 7 of a warp name those of the first matrix, 8 to 15 those of the second, and so on.
    """

    def concerns(self, program: Any) -> bool:
        """Whether launches of the program are to be watched; those of others cost nothing."""
        return True

    def begin(self, chunk: ObservedChunk) -> None:
        """A chunk starts, its memory as it is before the first instruction."""

    def block(self, chunk: ObservedChunk, at: int, mask: Mask | None) -> None:
        """Basic block `at` of the program is about to run for the lanes of `mask`."""

    def load(
        self, chunk: ObservedChunk, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """A load is about to read `site.size` bytes for each lane."""

    def store(
        self, chunk: ObservedChunk, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """A store is about to write `site.size` bytes for each lane."""

    def values(
        self, chunk: ObservedChunk, site: Site, space: str, address: Value, values: Value,
        mask: Mask | None,
    ) -> None:  # fmt: skip
        """What a store instruction is about to write, after `store`: a tuple for a vector."""

    def atomic(
        self, chunk: ObservedChunk, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """An atomic operation is about to read and write `site.size` bytes for each lane."""

    def copy(
        self, chunk: ObservedChunk, site: Site, shared_address: Value, global_address: Value,
        source_bytes: Value, mask: Mask | None,
    ) -> None:  # fmt: skip
        """cp.async issues a copy of `site.size` bytes for each lane, from global to shared memory.

        Both addresses have their constant offsets added. Of the bytes only the first
        `source_bytes` (an integer, uniform or per lane) are read; the rest is written as zeros.
        The copy is in flight until a `wait` of the same thread for the group it is committed in.
        """

    def commit(self, chunk: ObservedChunk, mask: Mask | None) -> None:
        """Each lane makes a group of its copies since the last commit; a group may be empty."""

    def wait(self, chunk: ObservedChunk, groups_left: int, mask: Mask | None) -> None:
        """Each lane has waited until at most its `groups_left` latest groups are in flight."""

    def barrier(self, chunk: ObservedChunk, blocks: Bits | None) -> None:
        """All threads of `blocks` (None: of every block) have met at a barrier."""

    def arrive_early(self, chunk: ObservedChunk, number: int, mask: Mask) -> None:
        """The lanes have arrived at a barrier of their blocks (bar.arrive), and do not wait."""

    def meet(self, chunk: ObservedChunk, number: int, mask: Mask, early: Mask) -> None:
        """The lanes of `mask`, which are not all of their blocks, have met at a barrier.

        early: those that had arrived there, as `arrive_early` has told.
        """

    def warp_sync(self, chunk: ObservedChunk, mask: Mask | None) -> None:
        """The lanes of each warp have met at a `bar.warp.sync` (`__syncwarp`)."""

    def arrive(self, chunk: ObservedChunk, offset: int, mask: Mask | None, done: Bits) -> None:
        """The lanes have arrived at the mbarrier at `offset` of their block's shared memory.

        What they did before is ordered before those who see its phase complete. `done`: the blocks
        in which the phase is complete with that.
        """

    def count(
        self, chunk: ObservedChunk, site: Site, offset: int, mask: Mask | None, done: Bits
    ) -> None:
        """The lanes, or copies of theirs, arrive at an mbarrier, in whatever order memory is seen.

        Before `arrive` or `arrive_copies`, with their `offset` and `done`.
        """

    def passed(self, chunk: ObservedChunk, site: Site, offset: int, mask: Mask | None) -> None:
        """The lanes' wait has found its phase complete, in whatever order memory is seen.

        Before `observe`, with its `offset`.
        """

    def observe(self, chunk: ObservedChunk, offset: int, mask: Mask | None, wide: bool) -> None:
        """The lanes have seen that the latest phase of the mbarrier at `offset` is complete.

        wide: and acquire what threads of other blocks have released there.
        """

    def cluster_arrive(
        self, chunk: ObservedChunk, mask: Mask | None, releases: Mask | None, done: Bits
    ) -> None:
        """The lanes have arrived at the barrier of their cluster.

        releases: those whose arrival orders what they did before. done: the blocks of clusters
        whose barrier is complete with that; it may be complete because lanes have exited.
        """

    def cluster_wait(self, chunk: ObservedChunk, mask: Mask | None) -> None:
        """The lanes have seen that the barrier of their cluster is complete."""

    def exit(self, chunk: ObservedChunk, mask: Mask | None) -> None:
        """The lanes have exited."""

    def signal(self, chunk: ObservedChunk, mask: Mask | None) -> None:
        """cp.async.mbarrier.arrive: each lane will arrive once its copies so far have landed."""

    def arrive_copies(
        self, chunk: ObservedChunk, offset: int, mask: Mask | None, done: Bits
    ) -> None:
        """The lanes' oldest `signal` happens, at the mbarrier at `offset`; `done` as in `arrive`.

        That orders the copies, and nothing else that the lanes did.
        """

    def bulk(self, chunk: ObservedChunk, move: Move) -> None:
        """Lanes start bulk copies; these are under way until `land_bulk`."""

    def fence(self, chunk: ObservedChunk, mask: Mask | None, wide: bool) -> None:
        """A fence orders what each lane did before and does later; wide: for all clusters."""

    def fence_proxy(self, chunk: ObservedChunk, mask: Mask | None, inits_only: bool) -> None:
        """fence.proxy.async: each lane shows bulk copies what was written to shared memory.

        That is what it wrote itself, and all that is ordered before it. inits_only: of that, only
        the mbarriers that were initialised; the instruction is fence.mbarrier_init.
        """

    def land_bulk(self, chunk: ObservedChunk, move: Move, done: Bits | None) -> None:
        """Bulk copies are done. Into shared memory: their mbarrier has counted their bytes.

        done: the blocks in which its phase is complete with that. Out of shared memory: their lanes
        have waited for them, and it is None.
        """

    def matrix_read(self, chunk: ObservedChunk, read: MatrixRead) -> None:
        """Warpgroups issue wgmmas that read a matrix in shared memory."""

    def matrices_done(self, chunk: ObservedChunk, warps: Bits, done: Numbers) -> None:
        """Warps (blocks, warps) have waited for as many wgmmas as `done` says of each."""

    def wait_for_grids(self, chunk: ObservedChunk, mask: Mask | None) -> None:
        """griddepcontrol.wait: for each lane, the kernels before this one have ended."""

    def probe(self, chunk: ObservedChunk, number: int, value: Value, mask: Mask | None) -> None:
        """probe.u32 of an instrumented kernel: the value of what it calls `number`, as unsigned."""

    def pause(self, chunk: ObservedChunk) -> Any:
        """The chunk waits while others run; what is returned comes back with `resume`."""

    def resume(self, chunk: ObservedChunk, kept: Any) -> None:
        """The chunk runs on."""

    def end(self, chunk: ObservedChunk) -> None:
        """Every lane of the chunk has exited."""


class ChunkObserver(Observer):
    """One whose attributes are about the running chunk, or are changed in place."""

    def pause(self, chunk: ObservedChunk) -> Any:
        """See Observer."""
        return dict(vars(self))

    def resume(self, chunk: ObservedChunk, kept: Any) -> None:
        """See Observer."""
        vars(self).update(kept)
