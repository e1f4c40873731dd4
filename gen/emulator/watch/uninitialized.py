"""initcheck in its strict form: the first load of memory that nothing has written.

Shared memory has no value when a block starts, nor has what malloc returns, nor a global buffer
that was allocated with `defined=False`. Without this check they hold bytes of ones, which are NaN
in every float type, so that a use spoils the result; with it, the load itself is a finding. That
may be too strict: code may load what it never uses, such as the rows of a tile that lie outside of
the matrix.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from gen.emulator.isa import instructions
from gen.emulator.isa.ops import Value
from gen.emulator.memory.buffers import Buffer
from gen.emulator.memory.bulk_moves import Move
from gen.emulator.memory.global_memory import Site
from gen.emulator.memory.observer import ObservedChunk
from gen.emulator.ptx.module import Instruction
from gen.emulator.translate.program import Program
from gen.emulator.warp.masks import Mask, lanes_of
from gen.emulator.watch.granules import SharedWatch


@functools.lru_cache(maxsize=256)
def _is_read(program: Program, item: Instruction) -> bool:
    """Whether another instruction reads what an instruction gives."""
    results = instructions.registers(item)[1]
    bodies = ([*block.body, *([block.end] if block.end else [])] for block in program.blocks)
    others = (one for body in bodies for one in body if one is not item)
    return any(results & instructions.registers(one)[0] for one in others)


class UninitializedReads(SharedWatch):
    """Finds loads, and atomics, from memory without a value."""

    def begin(self, chunk: ObservedChunk) -> None:
        """See Observer."""
        super().begin(chunk)
        self.valid = np.zeros((1, self.columns), np.bool_)
        self.watched = [b for b in chunk.memory.buffers if b.valid is not None]

    def widen(self) -> None:
        """See SharedWatch."""
        self.valid = np.repeat(self.valid, self.blocks, axis=0)
        super().widen()

    def load(
        self, chunk: ObservedChunk, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """See Observer."""
        exact = address + np.int64(site.offset)
        if space == "shared":
            self._check_shared(chunk, site, exact, mask)
        elif space == "global":
            self._check_global(chunk, site, exact, mask)

    def store(
        self, chunk: ObservedChunk, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """See Observer."""
        exact = address + np.int64(site.offset)
        if space == "shared":
            self._define_shared(site, exact, mask)
        elif space == "global":
            for buffer, _, here in self._inside(chunk, site, exact, mask):
                assert buffer.valid is not None
                at = np.broadcast_to(exact, here.shape)[here] - buffer.base
                buffer.valid[at[:, None] + np.arange(site.size)] = True

    def atomic(
        self, chunk: ObservedChunk, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """See Observer. An exchange whose result nobody reads is a store."""
        if "exch" not in site.item.modifiers or _is_read(chunk.launch.program, site.item):
            self.load(chunk, site, space, address, mask)
        self.store(chunk, site, space, address, mask)

    def copy(
        self, chunk: ObservedChunk, site: Site, shared_address: Value, global_address: Value,
        source_bytes: Value, mask: Mask | None,
    ) -> None:  # fmt: skip
        """See Observer. Whoever reads before the copy has arrived has a race."""
        self._define_shared(site, shared_address, mask)
        self._check_global(chunk, site, global_address, mask, source_bytes)

    def bulk(self, chunk: ObservedChunk, move: Move) -> None:
        """See Observer. What leaves shared memory must have a value when the copy starts."""
        touch = self.place_move(move)
        valid = self.valid.reshape(-1)
        used = move.addresses >= 0
        if move.into_shared:
            valid[touch.index] = True
        elif not valid[touch.index].all():
            at = int(np.argmin(valid[touch.index]))
            where = self.where(chunk, int(touch.index[at]))
            self._report_move(chunk, move, where)
        for buffer in self.watched:
            assert buffer.valid is not None
            here = used & (move.addresses >= buffer.base)
            here &= move.addresses < buffer.base + buffer.nbytes
            index = (move.addresses[here] - buffer.base)[:, None] + np.arange(move.size)
            if (move.into_shared or move.rule) and not buffer.valid[index].all():
                bad = index[~buffer.valid[index]].min()
                self._report_move(chunk, move, chunk.memory.describe(buffer.base + int(bad)))
            if not move.into_shared:
                buffer.valid[index] = True

    def _report_move(self, chunk: ObservedChunk, move: Move, where: str) -> None:
        mask = move.mask()
        block, threads, _ = lanes_of(mask.bits, None, chunk.shape, chunk.origin)
        message = f"bulk copy of {move.nbytes} bytes reads {where}, which was never written"
        chunk.launch.findings.add("initcheck", move.site.item, message, block, threads, where)

    def _define_shared(self, site: Site, address: Value, mask: Mask | None) -> None:
        touch = self.place(site, address, mask)
        if touch is not None:
            self.valid.reshape(-1)[touch.index] = True

    def _check_shared(
        self, chunk: ObservedChunk, site: Site, address: Value, mask: Mask | None
    ) -> None:
        touch = self.place(site, address, mask)
        if touch is None:
            return
        valid = self.valid.reshape(-1)[touch.index]
        if valid.all():
            return
        at = int(np.argmin(valid))
        index = int(touch.index[at])
        code = int(touch.low[at])
        thread, where = self.thread(chunk, code), self.where(chunk, index)
        block = self.block_of(chunk, index, code // self.block_codes)
        if block != (home := self.block_at(chunk, index)):
            where += f" of block ({','.join(map(str, home))})"
        chunk.launch.findings.add(
            "initcheck", site.item, _message(site, where), block, [thread], where,
        )  # fmt: skip

    def _inside(
        self, chunk: ObservedChunk, site: Site, address: Value, mask: Mask | None
    ) -> list[tuple[Buffer, npt.NDArray[np.int64], npt.NDArray[np.bool_]]]:
        """The watched buffers that an access touches, its addresses, and which lie in each."""
        watched = [*self.watched, *chunk.memory.heap.values()]
        if not watched:
            return []
        exact = np.asarray(address).reshape(address.shape or (1,) * 6)
        least, most = exact.min(), exact.max()
        found = []
        for buffer in watched:
            if least + site.size > buffer.base + buffer.nbytes or most < buffer.base:
                continue
            here = (exact >= buffer.base) & (exact + site.size <= buffer.base + buffer.nbytes)
            active = None if mask is None else mask.over(exact.shape)
            here = here if active is None else here & active.bits
            if here.any():
                found.append((buffer, exact, here))
        return found

    def _check_global(
        self, chunk: ObservedChunk, site: Site, address: Value, mask: Mask | None,
        source_bytes: Value | None = None,
    ) -> None:  # fmt: skip
        for buffer, exact, here in self._inside(chunk, site, address, mask):
            assert buffer.valid is not None
            at = np.broadcast_to(exact, here.shape)[here] - buffer.base
            missing = ~buffer.valid[at[:, None] + np.arange(site.size)].all(axis=1)
            bad = np.zeros(here.shape, np.bool_)
            bad[here] = missing
            if source_bytes is not None:
                bad = bad & (source_bytes > 0)
            if not bad.any():
                continue
            block, threads, _ = lanes_of(bad, mask, chunk.shape, chunk.origin)
            where = chunk.memory.describe(int(np.broadcast_to(exact, bad.shape)[bad][0]))
            chunk.launch.findings.add(
                "initcheck", site.item, _message(site, where), block, threads, where
            )


def _message(site: Site, where: str) -> str:
    return f"load of {site.size} bytes at {where}, which was never written"
