"""Memory that every block (shared) or every thread (local) owns a copy of."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gen.emulator.isa.ops import Value
from gen.emulator.memory.buffers import aligned_bytes
from gen.emulator.memory.global_memory import Cells, Counted, Report, Site
from gen.emulator.warp.clusters import RANK_SHIFT, Clusters
from gen.emulator.warp.lacking import Lacking
from gen.emulator.warp.masks import Mask, Shape, joined_shape, spread

ALL_AXES = (0, 1, 2, 3, 4, 5)
_SEVERAL = 4  # addresses from which code reads in turn: those of A and of B
Owners = npt.NDArray[np.int64]


class Scratch(Counted):
    """`nbytes` bytes for each owner; owners lie along `axes` of a chunk of shape `chunk`.

    With `clusters`, owners are blocks, and an address may name another block of its cluster.

    The memory starts as bytes of ones, so that what was never written reads as NaN, or `zeroed`.
    """

    space = "shared"

    def __init__(
        self,
        chunk: Shape,
        axes: Shape,
        nbytes: int,
        clusters: Clusters | None = None,
        zeroed: bool = False,
    ) -> None:
        self.nbytes, self.axes, self.clusters = nbytes, axes, clusters
        self._own, self._ones = operator.itemgetter(*axes), (1,) * len(axes)
        self.rest = tuple(i for i in ALL_AXES if i not in axes)
        self.back = tuple(int(i) for i in np.argsort(axes + self.rest))
        self.dims = tuple(chunk[i] for i in axes)
        self.count = int(np.prod(self.dims))
        self.stride = max(16, -(-nbytes // 16) * 16)
        data = aligned_bytes(self.count * self.stride)
        self.blank = 0 if zeroed else 0xFF  # what each byte is at first
        data.fill(self.blank)
        self.data = data.reshape(self.count, self.stride)
        shape = tuple(n if i in axes else 1 for i, n in enumerate(chunk))
        self.shape = shape
        self.owner = np.arange(self.count, dtype=np.int64).reshape(shape)
        self._views: dict[Any, npt.NDArray[Any]] = {}
        self._latest: list[_Places] = []  # of the addresses that were used last

    def view(self, dtype: Any) -> npt.NDArray[Any]:
        """(owners, elements) of `dtype`."""
        if dtype not in self._views:
            self._views[dtype] = self.data.view(dtype)
        return self._views[dtype]

    def _offsets(
        self, site: Site, address: Value, mask: Mask | None, report: Report
    ) -> tuple[Owners, npt.NDArray[np.int64], npt.NDArray[np.bool_] | None]:
        """Owners and indices of elements that are safe to use, and which violate something, if any.

        The index is one of elements of `site.whole`.
        """
        places = next((p for p in self._latest if p.address is address and p.mask is mask), None)
        if places is None:
            places = _places(address, mask)
            self._latest = [places, *self._latest[: _SEVERAL - 1]]
        if places.fit(site, self.nbytes):
            return self.owner, places.index(site), None
        relative = places.offsets + np.int64(site.offset)
        owner, offset = self.owner, relative
        stranger: Any = np.False_
        if self.clusters is not None and bool((relative >> RANK_SHIFT).any()):
            owner, offset, stranger = self.clusters.locate(relative)
        outside = (offset < 0) | (offset + site.size > self.nbytes) | stranger
        bad = outside | (offset & (site.size - 1) != 0)
        if not bad.any():
            return owner, offset >> site.shift, None
        what = "out of bounds" if outside.any() else "misaligned"
        where = np.broadcast_to(relative, bad.shape)
        named = site if site.space == self.space else replace(site, space=self.space)
        report(named, what, where, outside if outside.any() else bad, mask)
        return owner, np.where(bad, 0, offset >> site.shift), bad

    def load(self, site: Site, address: Value, mask: Mask | None, report: Report) -> list[Value]:
        """Values at `address` (+ site.offset) of each owner, one array per lane."""
        owner, index, bad = self._offsets(site, address, mask, report)
        view = self.view(site.whole)
        if owner is self.owner and self._alike(index):
            data = view.take(index.ravel(), axis=1)
            dims = self.dims + tuple([index.shape[i] for i in self.rest])
            parts = [part.reshape(dims).transpose(self.back) for part in site.parts(data)]
        else:
            parts = site.parts(view.reshape(-1).take(owner * view.shape[1] + index))
        if bad is not None:
            poison = np.frombuffer(b"\xff" * 16, site.dtype)[0]
            parts = [np.where(bad, poison, part) for part in parts]
        return parts

    def store(
        self, site: Site, address: Value, values: Value, mask: Mask | None, report: Report
    ) -> None:
        """Write `values` at `address` (+ site.offset) of each owner."""
        owner, index, bad = self._offsets(site, address, mask, report)
        data, view = site.together(values), self.view(site.whole)
        shape = joined_shape(index.shape, data.shape, self.shape)
        active = None if mask is None else mask.over(shape)
        whole = active is None and bad is None and self.changes is None and owner is self.owner
        if whole and self._alike(index):
            self._store_uniform(view, index, data, shape)
            return
        used: Any = True if active is None else active.bits
        here = np.broadcast_to(used if bad is None else used & ~bad, shape)
        flat = spread(owner * view.shape[1] + index, shape)[here]
        self.put(view.reshape(-1), flat, spread(data, shape)[here])

    def _alike(self, index: npt.NDArray[np.int64]) -> bool:
        """Whether all owners access the same places."""
        return bool(self._own(index.shape) == self._ones)

    def _store_uniform(
        self, view: npt.NDArray[Any], index: npt.NDArray[np.int64], data: npt.NDArray[Any],
        shape: Shape,
    ) -> None:  # fmt: skip
        """All owners write at the same offsets: one column assignment, a slice if contiguous."""
        threads = tuple([1 if i in self.axes else n for i, n in enumerate(shape)])
        columns = spread(index, threads).ravel()
        order = self.axes + self.rest
        values = spread(data, shape).transpose(order).reshape(self.count, -1)
        start, size = columns[0], columns.size
        beside = size > 1 and columns[-1] - start == size - 1
        if beside and bool((columns[1:] - columns[:-1] == 1).all()):
            view[:, start : start + size] = values
        else:
            view[:, columns] = values

    def cells(
        self, site: Site, address: npt.NDArray[np.int64], mask: Mask | None, report: Report
    ) -> Iterator[Cells]:
        """For atomics: all owners' memory, the lanes that access it, and their indices."""
        owner, index, bad = self._offsets(site, address, mask, report)
        here = np.broadcast_to(True if mask is None else mask.bits, address.shape)
        here = here if bad is None else here & ~bad
        view = self.view(site.dtype)
        index = np.broadcast_to(owner * view.shape[1] + index, here.shape)
        yield view.reshape(-1), here, index[here]


@dataclass(eq=False)
class _Places:
    """The addresses of an access, of which a kernel mostly makes several, at constant offsets.

    offsets: those of lanes that run. joined: all bits that are set in one of them.
    """

    address: Value
    mask: Mask | None
    offsets: npt.NDArray[np.int64]
    joined: int
    _indices: dict[int, npt.NDArray[np.int64]] = field(default_factory=dict)

    @functools.cached_property
    def _ends(self) -> tuple[int, int]:
        """The least offset, and the largest."""
        offsets = self.offsets
        least, most = (f.reduce(offsets, axis=None) for f in (np.minimum, np.maximum))
        return int(least), int(most)

    def fit(self, site: Site, nbytes: int) -> bool:
        """Whether accesses from here are seen to be aligned and within so many bytes."""
        joined, offset, room = self.joined, site.offset, nbytes - site.size - site.offset
        if (joined | offset) & (site.size - 1):
            return False
        if joined >= 0 and offset >= 0 and joined <= room:  # no offset is more than all bits
            return True
        least, most = self._ends
        return least + offset >= 0 and most <= room

    def index(self, site: Site) -> npt.NDArray[np.int64]:
        """The elements that a site accesses, where it fits."""
        if site.shift not in self._indices:
            self._indices[site.shift] = self.offsets >> site.shift
        return self._indices[site.shift] + np.int64(site.offset >> site.shift)


def _places(address: Value, mask: Mask | None) -> _Places:
    offsets = np.asarray(address).reshape(address.shape or (1,) * 6)
    active = None if mask is None else mask.over(offsets.shape)
    if active is not None:
        offsets = np.where(active.bits, offsets, offsets.item(active.first))
    return _Places(address, mask, offsets, int(np.bitwise_or.reduce(offsets, axis=None)))


class Stack(Scratch):
    """Every thread's local memory, which knows what has been written there."""

    space = "local"

    def __init__(self, chunk: Shape, nbytes: int) -> None:
        super().__init__(chunk, ALL_AXES, nbytes)
        self._written = Scratch(chunk, ALL_AXES, nbytes)  # ones where it has
        self._written.data.fill(0)

    def store(
        self, site: Site, address: Value, values: Value, mask: Mask | None, report: Report
    ) -> None:
        """See Scratch."""
        super().store(site, address, values, mask, report)
        ones = np.frombuffer(b"\xff" * 16, site.dtype)[0]
        written = (ones,) * site.lanes if site.lanes > 1 else ones
        self._written.store(site, address, written, mask, _no_report)

    def lacking(self, site: Site, address: Value, mask: Mask | None) -> list[Lacking]:
        """For each element of a load, the lanes that find nothing written in any of its bytes."""
        found: list[Lacking] = []
        for part in self._written.load(site, address, mask, _no_report):
            raw = np.ascontiguousarray(part)
            bits = raw.view(np.uint8).reshape(*raw.shape, -1).any(axis=-1)
            lacks = np.asarray(~bits if mask is None else mask.bits & ~bits)
            found.append(lacks if lacks.any() else None)
        return found


def _no_report(*_: object) -> None:
    """Nothing: the memory itself has reported what is wrong."""
