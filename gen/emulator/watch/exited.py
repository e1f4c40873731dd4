"""memcheck of clusters: no block may exit while others still access its shared memory."""

from __future__ import annotations

import numpy as np

from gen.emulator.isa.ops import Value
from gen.emulator.memory.bulk_moves import Move
from gen.emulator.memory.global_memory import Site
from gen.emulator.memory.observer import ObservedChunk, Observer
from gen.emulator.warp.clusters import RANK_SHIFT
from gen.emulator.warp.masks import Bits, Mask, lanes_of
from gen.emulator.watch.findings import noun


class ExitedBlocks(Observer):
    """Finds accesses to shared memory of blocks of which every thread has exited."""

    def load(
        self, chunk: ObservedChunk, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """See Observer."""
        if space != "shared" or chunk.live is None:
            return
        exact = np.asarray(address + np.int64(site.offset))
        exact = exact.reshape(exact.shape or (1,) * 6)
        if not (exact >> RANK_SHIFT).any():
            return
        block, _, stranger = chunk.clusters.locate(exact)
        bad = ~stranger & self._gone(chunk)[block]
        bad = bad if mask is None else bad & mask.bits
        if bad.any():
            every, lanes = np.broadcast_arrays(exact, bad)
            where = chunk.describe_shared(int(every[lanes][0]))
            message = f"{noun(site)} of {site.size} bytes at {where}, which has exited"
            self._report(chunk, site, bad, message)

    store = atomic = load

    def land_bulk(self, chunk: ObservedChunk, move: Move, done: Bits | None) -> None:
        """See Observer."""
        if done is None or chunk.live is None:
            return
        bad = self._gone(chunk)[move.homes]
        if bad.any():
            some = move.some(bad)
            rank = int(chunk.clusters.ranks[some.homes[0]])
            message = f"{noun(move.site)} arrives in shared memory of block {rank} of the cluster, "
            self._report(chunk, move.site, some.mask().bits, f"{message}which has exited")

    def _gone(self, chunk: ObservedChunk) -> Bits:
        """Which blocks have exited, by their number in the chunk."""
        assert chunk.live is not None
        return np.asarray(chunk.live.per_block(chunk.shape) == 0).reshape(-1)

    def _report(self, chunk: ObservedChunk, site: Site, lanes: Bits, message: str) -> None:
        block, threads, _ = lanes_of(lanes, None, chunk.shape, chunk.origin)
        chunk.launch.findings.add("memcheck", site.item, message, block, threads)
