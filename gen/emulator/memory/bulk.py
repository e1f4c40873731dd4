"""Bulk copies between global and shared memory, which single threads start: cp.async.bulk.

A copy into shared memory reads global memory when it is issued; its bytes land, and count at its
mbarrier, when no lane can run without them. What reads shared memory does so at its end: with its
mbarrier, or when its thread waits for its group. So a kernel that waits too little sees or writes
what was there before.

A copy may write to other blocks of its cluster, to several by multicast; so may asynchronous
stores (st.async, red.async), which are under way in the same manner.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gen.emulator.isa.ops import Value
from gen.emulator.memory.atomics import update
from gen.emulator.memory.bulk_moves import WORDS, Move, Numbers, numbers, running
from gen.emulator.memory.bulk_operands import BulkOperands, Lanes
from gen.emulator.memory.global_memory import Site
from gen.emulator.memory.mbarrier import MBarriers
from gen.emulator.memory.observer import ObservedChunk
from gen.emulator.memory.reductions import tensor_rule
from gen.emulator.memory.tensor_map import TensorMap
from gen.emulator.warp.clusters import RANK_SHIFT
from gen.emulator.warp.masks import BLOCK_AXES, THREAD_AXES, Bits, Mask


class BulkCopies(BulkOperands):
    """The bulk copies of one chunk that are under way."""

    def __init__(self, chunk: ObservedChunk, mbarriers: MBarriers) -> None:
        super().__init__(chunk, mbarriers)
        self.loads: list[Move] = []  # into shared memory, the oldest first
        self.stores: list[Move] = []
        mbarriers.under_way = self.loads
        self.committed: Any = np.zeros((1,) * 6, np.int64)  # groups of each thread so far

    # -- what generated code calls -------------------------------------------------------------
    def linear(
        self, site: Site, shared: Value, address: Value, nbytes: Value, barrier: Value,
        multicast: Value | None, rule: str, mask: Mask | None,
    ) -> None:  # fmt: skip
        """cp.async.bulk: `nbytes` bytes in a row, in either direction.

        rule: what cp.reduce.async.bulk does with elements of the site's type.
        """
        every = running(self.chunk.shape, mask)
        sizes = self._of(every, nbytes)
        unit = site.size if rule else 16
        for count in np.unique(sizes):
            lanes = tuple(axis[sizes == count] for axis in every)
            starts, sources = self._near(lanes, shared), self._of(lanes, address)
            values = (("size", sizes), ("shared address", starts), ("global address", sources))
            if all(self._aligned(site, lanes, what, value, 16) for what, value in values):
                steps = np.arange(0, count, unit)
                there = sources[:, None] + steps
                self._start(site, lanes, unit, starts, steps, there, barrier, multicast, rule)

    def between(
        self, site: Site, target: Value, source: Value, nbytes: Value, barrier: Value,
        mask: Mask | None,
    ) -> None:  # fmt: skip
        """cp.async.bulk from the block's own shared memory to that of its cluster."""
        every = running(self.chunk.shape, mask)
        sizes = self._of(every, nbytes)
        for count in np.unique(sizes):
            lanes = tuple(axis[sizes == count] for axis in every)
            starts, sources = self._near(lanes, target), self._near(lanes, source)
            values = (("size", sizes), ("target address", starts), ("source address", sources))
            own = self._homes(site, lanes, sources, own=True)
            if own and all(self._aligned(site, lanes, what, value, 16) for what, value in values):
                steps = np.arange(0, count, 16)
                here = own[1][:, None] + steps
                if self._inside(site, lanes, here, 16):
                    nowhere = np.full(here.shape, -1)
                    self._start(site, lanes, 16, starts, steps, nowhere, barrier, sources=here)

    def tensor(
        self, site: Site, shared: Value, address: Value, corner: tuple[Value, ...], barrier: Value,
        multicast: Value | None, rule: str, mask: Mask | None,
    ) -> None:  # fmt: skip
        """cp.async.bulk.tensor: the box of the map at `address` that begins at `corner`.

        rule: what cp.reduce.async.bulk.tensor does with elements of the map's type.
        """
        for lanes, boxes in self._boxes(site, address, corner, mask):
            tensor = boxes.maps[0]
            starts = self._near(lanes, shared)
            if self._aligned(site, lanes, "shared address", starts, 128):
                written = "bulk_group" in site.item.modifiers
                if written and tensor.element == "tf32":
                    raise site.item.error("a store by a tensor map of TFLOAT32 is not supported")
                there = boxes.global_addresses(written)
                combine, kind = tensor_rule(site.item, rule, tensor.element) if rule else ("", None)
                self._start(site, lanes, tensor.size, starts, tensor.shared_offsets, there,
                            barrier, multicast, combine, kind, tensor=tensor)  # fmt: skip

    def store(
        self, site: Site, address: Value, values: tuple[Value, ...], barrier: Value, rule: str,
        mask: Mask | None,
    ) -> None:  # fmt: skip
        """st.async, and red.async with a rule: elements for shared memory of the cluster."""
        lanes = running(self.chunk.shape, mask)
        starts, size = self._near(lanes, address), site.dtype.itemsize
        if self._aligned(site, lanes, "address", starts, site.size):
            data = np.stack(
                [np.broadcast_to(value, self.chunk.shape)[lanes] for value in values], axis=1
            )
            steps = np.arange(0, site.size, size)
            nowhere = np.full(data.shape, -1)
            self._start(site, lanes, size, starts, steps, nowhere, barrier, None, rule,
                        data=data)  # fmt: skip

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
        view = chunk.shared.view(move.data.dtype)
        data, index = move.data, move.shared // move.size
        if move.sources is not None:
            data = view[move.blocks[:, None], move.sources // move.size]
        if move.rule:
            flat = (move.homes[:, None] * view.shape[1] + index).ravel()
            update(view.reshape(-1), flat, move.rule, [data.ravel()])
        else:
            view[move.homes[:, None], index] = data
        chunk.shared.changed()
        remote = move.homes != move.blocks
        ranks = np.where(remote, chunk.clusters.ranks[move.homes] + 1, 0)
        offsets = move.barriers | ranks << RANK_SHIFT  # as mbarriers name those of other blocks
        for offset in np.unique(offsets):
            some = move.some(offsets == offset)
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
        self, site: Site, lanes: Lanes, size: int, starts: Numbers, steps: Any,
        addresses: Numbers, barrier: Value, multicast: Value | None = None, rule: str = "",
        dtype: Any = None, sources: Numbers | None = None, data: Any = None,
        tensor: TensorMap | None = None,
    ) -> None:  # fmt: skip
        """Begin copies between elements at `starts` and `steps` behind it, and `addresses`.

        steps: bytes, or what makes offsets of starts. dtype: of elements that are reduced.
        """
        chunk, out = self.chunk, "bulk_group" in site.item.modifiers
        own = site.item.opcode == "cp" and "shared::cluster" not in site.item.modifiers
        found = self._homes(site, lanes, starts, own=own)
        if found is None:
            return
        homes, offsets = found
        shared = steps(offsets) if callable(steps) else offsets[:, None] + steps
        barriers = self._of(lanes, barrier) if out else self._near(lanes, barrier)
        if not self._inside(site, lanes, shared, size):
            return
        if not out:
            checked = self._counts(site, lanes, barriers, homes if multicast is None else None)
            if checked is None:
                return
            barriers = checked
        if multicast is not None:
            targets = self._targets(site, lanes, self._of(lanes, multicast) & 0xFFFF)
            if targets is None:
                return
            which, homes = targets
            lanes = tuple(axis[which] for axis in lanes)
            shared, addresses, barriers = shared[which], addresses[which], barriers[which]
        found_in = chunk.memory.locate(addresses, size)
        outside = (found_in < 0) & (addresses >= 0)
        if outside.any():
            where = chunk.memory.describe(int(addresses[outside][0]))
            self._report("memcheck", site, lanes, f"{where} is out of bounds", outside)
        blocks, threads = (numbers(chunk.shape, lanes, axes) for axes in (BLOCK_AXES, THREAD_AXES))
        kind = dtype or (site.dtype if rule else WORDS[size])
        move = Move(
            site, size, chunk.shape, blocks, threads, shared, np.where(outside, -1, addresses),
            barriers=barriers, groups=np.full(blocks.shape, -1),
            data=np.zeros(shared.shape, kind) if data is None else data,
            homes=homes, swizzle=tensor.swizzle if tensor else None, sources=sources, rule=rule,
        )  # fmt: skip
        for observer in chunk.launch.observers:
            observer.bulk(chunk, move)
        if move.into_shared:
            self.loads.append(move)
            for at in np.unique(found_in[found_in >= 0]):
                buffer, here = chunk.memory.buffers[at], found_in == at
                view = buffer.view(move.data.dtype)
                words = view[(addresses[here] - buffer.base) // size]
                move.data[here] = tensor.copied(words) if tensor else words
        else:
            self.stores.append(move)

    def _inside(self, site: Site, lanes: Lanes, shared: Numbers, size: int) -> bool:
        """Whether elements are inside of a block's shared memory; a finding if not."""
        outside = (shared < 0) | (shared + size > self.chunk.shared.nbytes)
        if outside.any():
            where = self.chunk.describe_shared(int(shared[outside][0]))
            self._report("memcheck", site, lanes, f"{where} is out of bounds", outside)
        return not outside.any()

    def _write_global(self, move: Move) -> None:
        """Copies out of shared memory happen."""
        chunk = self.chunk
        for observer in chunk.launch.observers:
            observer.land_bulk(chunk, move, None)
        data = chunk.shared.view(move.data.dtype)
        values = data[move.blocks[:, None], move.shared // move.size]
        found = chunk.memory.locate(move.addresses, move.size)
        for at in np.unique(found[found >= 0]):
            buffer, here = chunk.memory.buffers[at], found == at
            index = (move.addresses[here] - buffer.base) // move.size
            view = buffer.view(values.dtype)
            if move.rule:
                update(view, index, move.rule, [values[here]])
            else:
                view[index] = values[here]
        chunk.memory.changed()
