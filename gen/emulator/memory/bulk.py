"""Bulk copies between global and shared memory, which single threads start: cp.async.bulk.

A copy into shared memory reads its source when it is issued; its bytes land, and count at its
mbarrier, when no lane can run without them. A copy out of shared memory reads and writes when its
thread waits for its group. So a kernel that waits too little sees or writes what was there before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from gen.emulator.isa.ops import Value
from gen.emulator.memory.bulk_moves import WORDS, Move, Numbers, numbers, running
from gen.emulator.memory.global_memory import Site
from gen.emulator.memory.mbarrier import MBarriers
from gen.emulator.memory.observer import ObservedChunk
from gen.emulator.memory.tensor_map import MAP_ALIGNMENT, MAP_BYTES, UNIT, TensorMap, decode
from gen.emulator.warp.masks import BLOCK_AXES, THREAD_AXES, Bits, Coordinates, Mask

Lanes = tuple[Numbers, ...]
_MBARRIER_BYTES = 8  # and their alignment


class BulkCopies:
    """The bulk copies of one chunk that are under way."""

    def __init__(self, chunk: ObservedChunk, mbarriers: MBarriers) -> None:
        self.chunk, self.mbarriers = chunk, mbarriers
        self.loads: list[Move] = []  # into shared memory, the oldest first
        self.stores: list[Move] = []
        self.committed: Any = np.zeros((1,) * 6, np.int64)  # groups of each thread so far

    # -- what generated code calls -------------------------------------------------------------
    def linear(
        self, site: Site, shared: Value, address: Value, nbytes: Value, barrier: Value,
        mask: Mask | None,
    ) -> None:  # fmt: skip
        """cp.async.bulk: `nbytes` bytes in a row, in either direction."""
        every = running(self.chunk.shape, mask)
        sizes = self._of(every, nbytes)
        for count in np.unique(sizes):
            lanes = tuple(axis[sizes == count] for axis in every)
            starts, sources = self._of(lanes, shared), self._of(lanes, address)
            values = (("size", sizes), ("shared address", starts), ("global address", sources))
            if all(self._aligned(site, lanes, what, value, 16) for what, value in values):
                steps = np.arange(0, count, 16)
                places = starts[:, None] + steps, sources[:, None] + steps
                self._start(site, lanes, 16, *places, barrier)

    def tensor(
        self, site: Site, shared: Value, address: Value, corner: tuple[Value, ...], barrier: Value,
        mask: Mask | None,
    ) -> None:  # fmt: skip
        """cp.async.bulk.tensor: the box of the map at `address` that begins at `corner`."""
        for lanes, tensor, corners in self._boxes(site, address, corner, mask):
            starts = self._of(lanes, shared)
            if self._aligned(site, lanes, "shared address", starts, 128):
                written = "bulk_group" in site.item.modifiers
                places = tensor.shared_offsets(starts), tensor.global_addresses(corners, written)
                self._start(site, lanes, tensor.size, *places, barrier)

    def prefetch(
        self, site: Site, address: Value, corner: tuple[Value, ...], mask: Mask | None
    ) -> None:
        """cp.async.bulk.prefetch.tensor: there is no cache, but the operands have to be right."""
        for _ in self._boxes(site, address, corner, mask):
            pass

    def commit(self, mask: Mask | None) -> None:
        """cp.async.bulk.commit_group: a group of each lane's copies out of shared memory."""
        bits: Any = np.ones((1,) * 6, np.bool_) if mask is None else mask.bits
        for at, move in enumerate(self.stores):
            mine = (move.groups < 0) & move.of(bits)
            groups = np.where(mine, move.of(self.committed), move.groups)
            self.stores[at] = replace(move, groups=groups)
        self.committed = self.committed + bits

    def wait(self, left: int, mask: Mask | None) -> None:
        """cp.async.bulk.wait_group: all but each lane's `left` latest groups are done."""
        bits: Any = np.ones((1,) * 6, np.bool_) if mask is None else mask.bits
        moves, self.stores = self.stores, []
        for move in moves:
            done = (move.groups >= 0) & (move.groups < move.of(self.committed) - left)
            done &= move.of(bits)
            if done.any():
                self._write_global(move.some(done))
            if not done.all():
                self.stores.append(move.some(~done))

    def fence(self, mask: Mask | None, inits_only: bool) -> None:
        """fence.proxy.async, mbarrier_init: nothing to wait for; checks learn what they show."""
        for observer in self.chunk.launch.observers:
            observer.fence_proxy(self.chunk, mask, inits_only)

    # -- what the scheduler calls --------------------------------------------------------------
    def progress(self) -> bool:
        """Nothing else can happen: let the oldest copy into shared memory land, if there is one."""
        if not self.loads:
            return False
        chunk, move = self.chunk, self.loads.pop(0)
        view = chunk.shared.view(np.dtype(WORDS[move.size]))
        view[move.blocks[:, None], move.shared // move.size] = move.data
        chunk.shared.changed()
        for offset in np.unique(move.barriers):
            some = move.some(move.barriers == offset)
            change = np.int64(-some.nbytes)
            done = self.mbarriers.count_bytes(some.site, int(offset), some.mask(), change)
            for observer in chunk.launch.observers:
                observer.land_bulk(chunk, some, done)
        return True

    def abandon(self, blocks: Bits) -> None:
        """Forget the copies of blocks that hang."""
        for moves in (self.loads, self.stores):
            moves[:] = [move.some(~move.of(blocks)) for move in moves]

    def finish(self) -> None:
        """The chunk is done: no block may end while a copy uses its shared memory."""
        for move in (*self.loads, *self.stores):
            if move.blocks.size:
                what = "the block ends while a bulk copy uses its shared memory"
                self._report("synccheck", move.site, move.axes(), what)
        for move in self.stores:
            self._write_global(move)

    # -- copies --------------------------------------------------------------------------------
    def _start(
        self, site: Site, lanes: Lanes, size: int, shared: Numbers, addresses: Numbers,
        barrier: Value,
    ) -> None:  # fmt: skip
        """Begin copies between the elements at `shared` and those at `addresses`."""
        chunk = self.chunk
        outside = (shared < 0) | (shared + size > chunk.shared.nbytes)
        if outside.any():
            where = chunk.describe_shared(int(shared[outside][0]))
            self._report("memcheck", site, lanes, f"{where} is out of bounds", outside)
            return
        barriers = self._of(lanes, barrier)
        if not self._counts(site, lanes, barriers):
            return
        found = chunk.memory.locate(addresses, size)
        outside = (found < 0) & (addresses >= 0)
        if outside.any():
            where = chunk.memory.describe(int(addresses[outside][0]))
            self._report("memcheck", site, lanes, f"{where} is out of bounds", outside)
        blocks, threads = (numbers(chunk.shape, lanes, axes) for axes in (BLOCK_AXES, THREAD_AXES))
        move = Move(
            site, size, chunk.shape, blocks, threads, shared, np.where(outside, -1, addresses),
            barriers=barriers, groups=np.full(blocks.shape, -1),
            data=np.zeros(shared.shape, WORDS[size]),
        )  # fmt: skip
        for observer in chunk.launch.observers:
            observer.bulk(chunk, move)
        if move.into_shared:
            self.loads.append(move)
            for at in np.unique(found[found >= 0]):
                buffer, here = chunk.memory.buffers[at], found == at
                view = buffer.view(move.data.dtype)
                move.data[here] = view[(addresses[here] - buffer.base) // size]
        else:
            self.stores.append(move)

    def _write_global(self, move: Move) -> None:
        """Copies out of shared memory happen."""
        chunk = self.chunk
        for observer in chunk.launch.observers:
            observer.land_bulk(chunk, move, None)
        data = chunk.shared.view(np.dtype(WORDS[move.size]))
        values = data[move.blocks[:, None], move.shared // move.size]
        found = chunk.memory.locate(move.addresses, move.size)
        for at in np.unique(found[found >= 0]):
            buffer, here = chunk.memory.buffers[at], found == at
            index = (move.addresses[here] - buffer.base) // move.size
            buffer.view(values.dtype)[index] = values[here]
        chunk.memory.changed()

    # -- operands ------------------------------------------------------------------------------
    def _boxes(
        self, site: Site, address: Value, corner: tuple[Value, ...], mask: Mask | None
    ) -> Iterator[tuple[Lanes, TensorMap, Numbers]]:
        """The maps at `address`, each with the lanes that use it and their boxes' corners.

        Findings stand for those that a GPU takes for an illegal instruction: no map, and a first
        coordinate inside of 16 bytes.
        """
        every = running(self.chunk.shape, mask)
        where = self._of(every, address)
        for at in np.unique(where):
            lanes = tuple(axis[where == at] for axis in every)
            tensor = self._map(site, lanes, int(at))
            if tensor is None:
                continue
            if len(corner) != len(tensor.dims):
                raise site.item.error(f"the tensor map has {len(tensor.dims)} dimensions")
            corners = np.stack([self._of(lanes, value) for value in corner], axis=1)
            first = corners[:, 0] * tensor.size
            if self._aligned(site, lanes, "first coordinate, in bytes,", first, UNIT):
                yield lanes, tensor, corners

    def _of(self, lanes: Lanes, value: Value) -> Numbers:
        return np.broadcast_to(value, self.chunk.shape)[lanes].astype(np.int64)

    def _map(self, site: Site, lanes: Lanes, address: int) -> TensorMap | None:
        """The tensor map at a generic address; a finding if there is none."""
        memory = self.chunk.memory
        buffer = memory.find(address)
        number = None
        if buffer is not None and address % MAP_ALIGNMENT == 0:
            start = address - buffer.base
            number = decode(buffer.data[start : start + MAP_BYTES].tobytes())
        tensor = None if number is None else self.chunk.launch.maps.get(number)
        if tensor is None:
            what = f"no tensor map at {memory.describe(address)}; its alignment is {MAP_ALIGNMENT}"
            self._report("memcheck", site, lanes, what)
        return tensor

    def _counts(self, site: Site, lanes: Lanes, barriers: Numbers) -> bool:
        """Whether mbarriers can be where the lanes have theirs, if any; a finding if not."""
        if "bulk_group" in site.item.modifiers:
            return True
        outside = (barriers < 0) | (barriers > self.chunk.shared.nbytes - _MBARRIER_BYTES)
        if outside.any():
            where = self.chunk.describe_shared(int(barriers[outside][0]))
            rule = f"its mbarrier, {where}, is out of bounds"
            self._report("memcheck", site, lanes, rule, outside)
            return False
        return self._aligned(site, lanes, "mbarrier's address", barriers, _MBARRIER_BYTES)

    def _aligned(self, site: Site, lanes: Lanes, what: str, value: Numbers, unit: int) -> bool:
        """Whether a value is a multiple of `unit` for all lanes; a finding if not."""
        bad = value % unit != 0
        if bad.any():
            rule = f"the {what} is {int(value[bad][0])}, not a multiple of {unit}"
            self._report("memcheck", site, lanes, rule, bad)
        return not bad.any()

    def _report(
        self, check: str, site: Site, lanes: Lanes, what: str, bad: Bits | None = None
    ) -> None:
        """A finding for the first lane, or the first that has anything in `bad`."""
        at = 0 if bad is None else int(np.argmax(bad.reshape(len(bad), -1).any(axis=1)))
        z, tz, y, ty, x, tx = (int(axis[at]) for axis in lanes)
        ox, oy, oz = self.chunk.origin
        block: Coordinates = (ox + x, oy + y, oz + z)
        message = what if check == "synccheck" else f"bulk copy: {what}"
        self.chunk.launch.findings.add(check, site.item, message, block, [(tx, ty, tz)])
