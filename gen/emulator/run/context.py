"""What generated code works on: special registers and memory of one chunk of blocks."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gen.emulator.isa.ops import Value
from gen.emulator.memory.atomics import update
from gen.emulator.memory.block_memory import Scratch, Stack
from gen.emulator.memory.bulk import BulkCopies
from gen.emulator.memory.cp_async import Copies
from gen.emulator.memory.global_memory import WINDOWS, Site
from gen.emulator.memory.mbarrier import MBarriers
from gen.emulator.memory.warpgroups import Warpgroups
from gen.emulator.run.barriers import Barriers
from gen.emulator.run.launch_state import LaunchState
from gen.emulator.run.register_pool import RegisterPool
from gen.emulator.run.reports import Reports
from gen.emulator.run.special_registers import SpecialRegisters
from gen.emulator.warp.clusters import OFFSET, RANK_SHIFT, clusters_of
from gen.emulator.warp.masks import (
    BLOCK_AXES,
    NOBODY,
    Bits,
    Coordinates,
    Mask,
    Shape,
    compact,
    narrow,
)
from gen.emulator.warp.mma import check_whole_warps, matrices, rows_of
from gen.emulator.warp.wmma import Fragment


class Context(SpecialRegisters, Reports):
    """A box of `blocks` (x, y, z) blocks whose first is `origin`, as generated code sees it."""

    def __init__(self, launch: LaunchState, origin: Coordinates, blocks: Coordinates) -> None:
        super().__init__()
        self.launch, self.origin = launch, origin
        (bx, by, bz), (tx, ty, tz) = blocks, launch.block
        self.shape: Shape = (bz, tz, by, ty, bx, tx)
        self.threads = tx * ty * tz
        self.lanes = bx * by * bz * self.threads
        self.needed: frozenset[int] = frozenset()  # slots that waiting lanes may read
        self.memory = launch.memory
        number = np.arange(origin[2], origin[2] + bz) // max(launch.grid[2], 1)
        self.rows = number if launch.several > 1 else None  # the launch that each is of, along z
        self.live = self._existing()  # None: no lane has exited
        self.clusters = clusters_of(self.shape, launch.cluster)
        self.shared = Scratch(
            self.shape, BLOCK_AXES, launch.shared_bytes, self.clusters, launch.chances.zeroed
        )
        self._local: Stack | None = None
        self.barriers = Barriers(self)
        self._register_pool: RegisterPool | None = None
        self.mbarriers = MBarriers(self)
        self.copies = Copies(self, self.mbarriers)
        self.bulk = BulkCopies(self, self.mbarriers)
        self.fragments: dict[Any, Any] = {}  # what `warp.mma` keeps, and so are these
        self.spans: dict[int, tuple[Any, Any]] = {}
        self.shuffled: tuple[Value, Bits | None] | None = None
        self.looks: dict[Site, tuple[Value, Mask | None]] = {}  # where lanes that spin last looked
        self.spins = launch.spins
        if self.spins:
            self.shared.changes = 0

    def _existing(self) -> Mask | None:
        """The lanes of blocks that there are: of launches abreast, some have fewer than others."""
        if self.rows is None:
            return None
        there = np.ones((1,) * 6, np.bool_)
        for axis in "xyz":
            there = there & (self.special(f"%ctaid.{axis}") < self.special(f"%nctaid.{axis}"))
        return None if there.all() else Mask(there)

    # -- what generated code calls -------------------------------------------------------------
    def address(self, name: str) -> Value:
        """The address of a variable or parameter in its own space, as int64."""
        return self._addresses[name]

    @functools.cached_property
    def _addresses(self) -> dict[str, Value]:
        """Of all variables: those in shared memory have a block's rank in them."""
        launch = self.launch
        own: Value = np.int64(0)
        if self.rows is not None:
            own = compact(np.int64(launch.pitch) * self.rows.reshape(-1, 1, 1, 1, 1, 1))
        found: dict[str, Value] = {n: np.int64(at) for n, at in launch.addresses.items()}
        found.update((n, np.int64(at) + own) for n, at in launch.parameters.items())
        for name, start, _ in self.launch.shared:
            found[name] = np.int64(start) + self.clusters.own
        return found

    def near(self, site: Site, address: Value, m: Mask | None) -> Value:
        """Addresses in the window of shared memory as `Clusters.near`; findings for .shared::cta.

        That, or .shared alone, accesses the executing block's memory only.
        """
        near = self.clusters.near(address, None, m)
        anywhere = site.space != "shared" or "shared::cluster" in site.item.modifiers
        if not anywhere and int(near.max()) > OFFSET:
            far = np.asarray((near > OFFSET) & (near >> RANK_SHIFT <= self.clusters.size))
            if far.any():
                where = np.asarray(near) + np.int64(site.offset)
                self.report(site, "in another block, which takes .shared::cluster", where, far, m)
        return near

    def window(self, space: str) -> Value:
        """Where a space starts among the generic addresses."""
        return np.int64(WINDOWS[space])

    @property
    def local(self) -> Stack:
        """Every thread's stack, made when it is first used."""
        if self._local is None:
            self._local = Stack(self.shape, self.launch.local_bytes)
            self._local.changes = self.shared.changes and 0
        return self._local

    @functools.cached_property
    def warpgroups(self) -> Warpgroups:
        """What warpgroups multiply, from the first instruction of wgmma on."""
        return Warpgroups(self)

    @property
    def register_pool(self) -> RegisterPool:
        """The blocks' registers, counted from the first setmaxnreg on."""
        if self._register_pool is None:
            program = self.launch.program
            self._register_pool = RegisterPool(self, program.kernel, program.blocks)
        return self._register_pool

    def scratch(self) -> list[Scratch]:
        """Shared memory and, once it is used, local memory."""
        return [self.shared, *([self._local] if self._local else [])]

    def unwritten(self, site: Site, address: Value, m: Mask | None) -> list[Any]:
        """Of each element of a load of local memory, the lanes that nothing has written for."""
        return self.local.lacking(site, address, m)

    @property
    def local_changes(self) -> int:
        """How often the contents of local memory have changed."""
        return self._local.changes or 0 if self._local else 0

    def _of(self, space: str) -> Any:
        """The memory behind a state space."""
        return {"global": self.memory, "shared": self.shared}.get(space) or self.local

    def load(self, site: Site, address: Value, m: Mask | None) -> Any:
        """What a load instruction reads: one value, or a list of them for a vector."""
        if self.spins:
            self.looks[site] = address, m
        if site.space == "generic":
            values = self._load_generic(site, address, m)
        else:
            if site.space == "shared" and self.clusters.size > 1:
                address = self.near(site, address, m)
            for observer in self.launch.observers:
                observer.load(self, site, site.space, address, m)
            values = self._of(site.space).load(site, address, m, self.report)
        return values[0] if site.lanes == 1 else values

    def store(self, site: Site, address: Value, values: Value, m: Mask | None) -> None:
        """Execute a store instruction; `values` is a tuple for a vector."""
        for space, local, lanes in self.spaces(site, address, m):
            for observer in self.launch.observers:
                observer.store(self, site, space, local, lanes)
                observer.values(self, site, space, local, values, lanes)
            self._of(space).store(site, local, values, lanes, self.report)

    def spaces(
        self, site: Site, address: Value, m: Mask | None
    ) -> list[tuple[str, Value, Mask | None]]:
        """An access as (space, address in it, lanes); a generic one may be several."""
        several = self.clusters.size > 1
        if site.space != "generic":
            near = several and site.space == "shared"
            return [(site.space, self.near(site, address, m) if near else address, m)]
        found = []
        window = address >> np.int64(56)
        for number, space in enumerate(("global", "shared", "local")):
            known = window == number if number else (window != 1) & (window != 2)
            lanes = narrow(m, known)
            if lanes is not NOBODY:
                local = address - np.int64(number << 56)
                near = several and space == "shared"
                found.append((space, self.near(site, local, lanes) if near else local, lanes))
        return found

    def _load_generic(self, site: Site, address: Value, m: Mask | None) -> list[Value]:
        result: list[Value] = []
        for space, local, lanes in self.spaces(site, address, m):
            for observer in self.launch.observers:
                observer.load(self, site, space, local, lanes)
            values = self._of(space).load(site, local, lanes, self.report)
            mine = True if lanes is m or lanes is None else lanes.bits
            result = [np.where(mine, v, r) for v, r in zip(values, result or values, strict=True)]
        return [value[()] for value in result]

    def ldmatrix(
        self, site: Site, address: Value, count: int, transposed: bool, m: Mask | None
    ) -> list[Value]:
        """The registers of `count` 8 x 8 matrices whose rows lie at the lanes' addresses."""
        check_whole_warps(self, m, site.item)
        lanes = m if count == 4 else narrow(m, self.special("%laneid") < np.int32(8 * count))
        address = self.near(site, address, lanes) if self.clusters.size > 1 else address
        for observer in self.launch.observers:
            observer.load(self, site, site.space, address, lanes)
        rows = self.shared.load(site, address, lanes, self.report)[0]
        return matrices(self, rows, count, transposed)

    def stmatrix(
        self, site: Site, address: Value, values: Sequence[Value], count: int, transposed: bool,
        m: Mask | None,
    ) -> None:  # fmt: skip
        """The inverse of `ldmatrix`."""
        check_whole_warps(self, m, site.item)
        lanes = m if count == 4 else narrow(m, self.special("%laneid") < np.int32(8 * count))
        address = self.near(site, address, lanes) if self.clusters.size > 1 else address
        for observer in self.launch.observers:
            observer.store(self, site, site.space, address, lanes)
        rows = rows_of(self, values, transposed)
        self.shared.store(site, address, rows, lanes, self.report)

    def load_fragment(
        self, site: Site, form: Fragment, sums: bool, along: bool, address: Value, stride: Value,
        m: Mask | None,
    ) -> list[Value]:  # fmt: skip
        """wmma.load: the registers of a fragment; `along`: their elements are contiguous."""
        check_whole_warps(self, m, site.item)
        found: dict[Any, Value] = {}
        for part, place, offsets in self._fragment(site, form, sums, along, stride):
            if place not in found:
                size, shift = part.size, np.int32(8 * part.size)
                loaded = [self.load(part, address + offset, m) for offset in offsets]
                found[place] = loaded[0]
                for at, value in enumerate(loaded if size < site.size else ()):
                    bits = value.view(np.dtype(f"u{size}")).astype(np.int32) << shift * np.int32(at)
                    found[place] = bits if at == 0 else found[place] | bits
        return [found[place] for _, place, _ in self._fragment(site, form, sums, along, stride)]

    def store_fragment(
        self, site: Site, form: Fragment, sums: bool, along: bool, address: Value, stride: Value,
        values: Sequence[Value], m: Mask | None,
    ) -> None:  # fmt: skip
        """wmma.store."""
        check_whole_warps(self, m, site.item)
        pieces = self._fragment(site, form, sums, along, stride)
        for (part, _, offsets), value in zip(pieces, values, strict=True):
            for at, offset in enumerate(offsets):
                bits = value >> np.int32(8 * part.size * at) if part.size < site.size else value
                self.store(part, address + offset, bits.astype(part.dtype), m)

    def _fragment(
        self, site: Site, form: Fragment, sums: bool, along: bool, stride: Value
    ) -> Iterator[tuple[Site, Any, list[Value]]]:
        """For each register: how it is accessed, its place, and the bytes to its parts."""
        lane = self.special("%laneid").astype(np.int64)
        g, t = lane >> np.int64(2), lane & np.int64(3)
        single = sums and not (form.elements == 2 and site.kind == "b32")
        bits = 8 * site.size // (1 if single else form.elements)
        split = form.elements > 1 and not (along or single)
        size = bits // 8 if split else site.size
        kind = np.dtype(f"i{size}") if split else site.dtype
        part = replace(site, size=size, shift=size.bit_length() - 1, dtype=kind, whole=kind)
        for at, (line, inner) in enumerate(form.starts):
            outer, first = g + np.int64(line), t * np.int64(form.elements) + np.int64(inner)
            if single:
                first = first + np.int64(at % 2)
            each = [first + np.int64(i) for i in range(form.elements if split else 1)]
            places = [outer * stride + i if along else i * stride + outer for i in each]
            place = (line, inner, at % 2 if single else 0)
            yield part, place, [p * np.int64(bits) >> np.int64(3) for p in places]

    def atomic(
        self, site: Site, rule: str, address: Value, values: list[Value], m: Mask | None
    ) -> Value:
        """Apply `rule` lane by lane, in the order of blocks and threads; the old values."""
        if self.spins:
            self.looks[site] = address, m
        address = np.broadcast_to(address, self.shape)
        values = [np.broadcast_to(value, self.shape) for value in values]
        old = np.zeros(self.shape, site.dtype)
        for space, local, lanes in self.spaces(site, address, m):
            for observer in self.launch.observers:
                observer.atomic(self, site, space, local, lanes)
            memory, local = self._of(space), np.broadcast_to(local, self.shape)
            for cells, here, index in memory.cells(site, local, lanes, self.report):
                if index.size:
                    old[here] = update(cells, index, rule, [value[here] for value in values])
                    memory.changed(self.spins and cells[index].tobytes() != old[here].tobytes())
        return old

    def warp_sync(self, m: Mask | None) -> None:
        """bar.warp.sync: checks learn what it orders."""
        for observer in self.launch.observers:
            observer.warp_sync(self, m)

    def wait_for_grids(self, m: Mask | None) -> None:
        """griddepcontrol.wait: no other kernel runs here; checks learn who has waited."""
        for observer in self.launch.observers:
            observer.wait_for_grids(self, m)

    def probe(self, number: int, value: Value, m: Mask | None) -> None:
        """An instrumented kernel tells observers a number's value."""
        for observer in self.launch.observers:
            observer.probe(self, number, value, m)
