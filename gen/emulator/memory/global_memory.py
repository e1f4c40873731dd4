"""Memory: global allocations, and the arrays that every block (shared) or thread (local) owns.

All accesses are checked exactly, element by element where the quick test does not settle it. The
lanes that violate something are reported; their loads give bytes of ones (NaN as a float) and their
stores are dropped, so that a run goes on to its other findings.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gen.emulator.isa.ops import Value
from gen.emulator.memory.atomics import RULES
from gen.emulator.memory.buffers import Abreast, Buffer, Owners
from gen.emulator.ptx.module import TYPE_BYTES, Instruction
from gen.emulator.ptx.values import DTYPES
from gen.emulator.warp.masks import Mask, joined_shape, spread

FIRST_ADDRESS = 0x7F00_0000_0000
GAP = 1 << 32  # unmapped bytes between allocations, so that a wild address hits nothing
WINDOWS = {"shared": 1 << 56, "local": 1 << 57, "global": 0, "const": 0, "param": 0}
SPACES = {
    "global": "global",
    "const": "global",
    "param": "global",
    "shared": "shared",
    "local": "local",
}
_SCOPES = ("", "cta", "entry", "cluster")  # a cluster has one block here
_HINTS = re.compile(
    r"(volatile|relaxed|acquire|release|acq_rel|weak|mmio|nc|cta|gpu|sys|cluster|noftz|c[agsv]|lu"
    r"|w[bt]|L1::(evict_\w+|no_allocate)|L2::((64|128|256)B|cache_hint|evict_\w+))$"
)


@dataclass(frozen=True, eq=False)
class Site:
    """A memory instruction: what it accesses, and how to name it in a finding."""

    item: Instruction
    space: str  # "global", "shared", "local" or "generic"
    kind: str  # PTX type of one element
    lanes: int  # elements per thread: 1, 2 or 4
    offset: int  # bytes added to the address register
    size: int  # bytes per thread
    shift: int  # log2(size)
    dtype: Any  # numpy type of one element
    whole: Any  # numpy type of all lanes together

    def parts(self, data: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        """Loaded items (of type `whole`, contiguous) as one array for each lane."""
        if self.lanes == 1:
            return [data]
        items: npt.NDArray[Any] = data.reshape(-1).view(self.dtype)
        items = items.reshape(*data.shape, self.lanes)
        return [items[..., i] for i in range(self.lanes)]

    def together(self, values: Value) -> npt.NDArray[Any]:
        """The values of a store as one array of type `whole`; the inverse of `parts`."""
        if self.lanes == 1:
            return np.asarray(values)
        stacked = np.stack(np.broadcast_arrays(*values), axis=-1)
        whole: npt.NDArray[Any] = stacked.view(self.whole)
        return whole.reshape(stacked.shape[:-1])


def make_site(item: Instruction, offset: int) -> Site:
    """Decode a load's or store's modifiers; PtxError for any that is not known."""
    *modifiers, kind = item.modifiers
    space, lanes = "generic", 1
    for word in modifiers:
        if word.partition("::")[0] in SPACES and word.partition("::")[2] in _SCOPES:
            space = SPACES[word.partition("::")[0]]
        elif word in ("v2", "v4", "v8"):
            lanes = int(word[1:])
        elif item.opcode in ("atom", "red") and word in RULES:
            continue
        elif not _HINTS.match(word):
            raise item.error(f"modifier '.{word}' is not supported by the emulator")
    if kind not in DTYPES or kind == "pred":
        raise item.error(f"memory type '.{kind}' is not supported by the emulator")
    size = TYPE_BYTES[kind] * lanes
    if size > 16:
        raise item.error("accesses of more than 16 bytes are not supported by the emulator")
    whole = DTYPES[kind] if lanes == 1 else np.dtype("c16" if size == 16 else f"i{size}")
    shift = size.bit_length() - 1
    return Site(item, space, kind, lanes, offset, size, shift, DTYPES[kind], whole)


class Counted:
    """Memory that can count how often its contents have changed: threads may wait for that."""

    changes: int | None = None  # None: nobody waits

    def changed(self, yes: bool = True) -> None:
        """Count a change of contents."""
        if self.changes is not None:
            self.changes += yes

    def put(
        self, cells: npt.NDArray[Any], index: npt.NDArray[np.int64], data: npt.NDArray[Any]
    ) -> None:
        """cells[index] = data; writing what is there is no change."""
        if self.changes is not None:
            old = cells[index]
            new = np.broadcast_to(data, old.shape).astype(old.dtype, copy=False)
            self.changes += old.tobytes() != new.tobytes()
        cells[index] = data


def fits(relative: npt.NDArray[np.int64], size: int, nbytes: int, first: int = 0) -> bool:
    """True if every access of `size` bytes at these offsets is aligned and within `nbytes`.

    None may be before the byte `first`.
    """
    joined = int(np.bitwise_or.reduce(relative, axis=None))
    if joined < 0 or joined & (size - 1) or (first and int(relative.min()) < first):
        return False
    return joined + size <= nbytes or int(relative.max()) + size <= nbytes


# Memory as a flat array, the lanes that access it, and the index that each of those accesses.
Cells = tuple[npt.NDArray[Any], npt.NDArray[np.bool_], npt.NDArray[np.int64]]
Report = Callable[[Site, str, Value, npt.NDArray[np.bool_], "Mask | None"], None]


class GlobalMemory(Counted):
    """The allocations of one emulator; also holds constants, parameters and module variables."""

    def __init__(self) -> None:
        self.bases: list[int] = []
        self.buffers: list[Buffer] = []
        self.heap: dict[int, Buffer] = {}  # what kernels have got from malloc, by address
        self.freed: dict[int, Buffer] = {}  # what they have given back
        self._next = FIRST_ADDRESS
        self.rows: Owners | None = None  # of the chunk that runs, which launch each row is of

    def reserve(self, nbytes: int) -> int:
        """The first of so many fresh addresses, with unmapped ones behind them."""
        address = self._next
        self._next += -(-(nbytes + GAP) // 256) * 256
        return address

    def add(self, name: str, data: npt.NDArray[np.uint8], address: int | None = None) -> Buffer:
        """Map `data` (as `aligned_bytes` gives it) at a fresh address, or at a reserved one."""
        base = self.reserve(data.size) if address is None else address
        buffer = Buffer(name, base, data)
        at = bisect.bisect(self.bases, base)
        self.bases.insert(at, base)
        self.buffers.insert(at, buffer)
        return buffer

    def add_abreast(self, name: str, arrays: Sequence[npt.NDArray[np.uint8]]) -> list[Buffer]:
        """Copy the bytes that launches abreast have for one argument, each to a fresh address."""
        together = Abreast([array.size for array in arrays])
        for data, array in zip(together.parts, arrays, strict=True):
            data[:] = array
            buffer = self.add(name, data)
            buffer.abreast = together
            together.buffers.append(buffer)
        return together.buffers

    def remove(self, buffer: Buffer) -> None:
        """Unmap; the address is never used again, so that late accesses are found."""
        at = self.buffers.index(buffer)
        del self.bases[at], self.buffers[at]

    def find(self, address: int) -> Buffer | None:
        """The buffer that the byte at `address` belongs to."""
        at = bisect.bisect_right(self.bases, address) - 1
        if at >= 0 and address < self.bases[at] + self.buffers[at].nbytes:
            return self.buffers[at]
        return None

    def describe(self, address: int) -> str:
        """ "A+3132 of 3072": the nearest buffer and the byte offset in it."""
        known = [*self.buffers, *self.freed.values()]
        if not known:
            return f"{address:#x}"
        near = min(known, key=lambda b: max(b.base - address, address - b.base - b.nbytes, 0))
        offset = address - near.base - near.first
        if abs(offset) > 2 * GAP:
            return f"{address:#x}"
        if near.base in self.freed:
            return f"{near.name}{offset:+d} of {near.nbytes}, which has been freed"
        return f"{near.name}{offset:+d} of {near.nbytes - near.first}"

    def load(self, site: Site, address: Value, mask: Mask | None, report: Report) -> list[Value]:
        """Values at int64 `address` (+ site.offset), one array shaped as `address` per lane."""
        active = None if mask is None else mask.over(address.shape)
        first = address.item(active.first if active else 0) + site.offset
        buffer = self.find(first)
        if buffer is not None and buffer.abreast and self.rows is not None:
            exact = address + np.int64(site.offset)
            places = buffer.abreast.places(exact, site.size, active, self.rows)
            if places is not None:
                data = buffer.abreast.view(site.whole).take(places >> site.shift)
                return [part[()] for part in site.parts(data)]
        elif buffer is not None:
            relative = address - (buffer.base - site.offset)
            if active is not None:
                relative = np.where(active.bits, relative, first - buffer.base)
            if fits(relative, site.size, buffer.nbytes, buffer.first):
                relative >>= site.shift  # in place: there may be many
                data = buffer.view(site.whole).take(relative)
                return [part[()] for part in site.parts(np.asarray(data))]
        return self._load_slowly(site, np.asarray(address), mask, report)

    def _load_slowly(
        self, site: Site, address: npt.NDArray[np.int64], mask: Mask | None, report: Report
    ) -> list[Value]:
        found = self._locate(site, address, mask, report)
        poison = np.full(address.size * site.size, 0xFF, np.uint8)
        data = poison.view(site.whole).reshape(address.shape)
        for at in np.unique(found[found >= 0]):
            buffer, here = self.buffers[at], found == at
            index = (address[here] + (site.offset - buffer.base)) >> site.shift
            data[here] = buffer.view(site.whole)[index]
        return [part[()] for part in site.parts(data)]

    def locate(self, exact: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
        """Index of the buffer that each `size` bytes at `exact` lie in, -1 for none."""
        if not exact.size:
            return np.full(exact.shape, -1)
        # Only those that may be meant: an emulator has many.
        start = max(0, bisect.bisect_right(self.bases, int(exact.min())) - 1)
        end = bisect.bisect_right(self.bases, int(exact.max()))
        some = self.buffers[start:end]
        at = np.searchsorted(np.array(self.bases[start:end], np.int64), exact, "right") - 1
        starts = np.array([b.base + b.first for b in some] or [0], np.int64)
        ends = np.array([b.base + b.nbytes for b in some] or [0], np.int64)
        inside = (at >= 0) & (exact + size <= ends[np.maximum(at, 0)])
        inside &= exact >= starts[np.maximum(at, 0)]
        return np.where(inside, at + start, -1)

    def _locate(
        self, site: Site, address: npt.NDArray[np.int64], mask: Mask | None, report: Report
    ) -> npt.NDArray[np.int64]:
        """Index of the buffer of each access, -1 for unused lanes and (reported) violations."""
        exact = address + site.offset
        at = self.locate(exact, site.size)
        inside = at >= 0
        good = inside & (exact & (site.size - 1) == 0)
        active = None if mask is None else mask.over(address.shape)
        used = np.broadcast_to(True if active is None else active.bits, address.shape)
        bad = used & ~good
        if bad.any():
            what = "misaligned" if (bad & inside).any() else "out of bounds"
            report(site, what, exact, bad & inside if what == "misaligned" else bad, mask)
        return np.where(used & good, at, -1)

    def store(
        self, site: Site, address: Value, values: Value, mask: Mask | None, report: Report
    ) -> None:
        """Write `values` at int64 `address` (+ site.offset); the last lane wins at one address."""
        data = site.together(values)
        shape = joined_shape(address.shape, data.shape)
        active = None if mask is None else mask.over(shape)
        target, data = spread(np.asarray(address), shape), spread(data, shape)
        buffer = self.find(target.item(active.first if active else 0) + site.offset)
        here = None if active is None else spread(active.bits, shape)
        if buffer is not None and buffer.abreast and self.rows is not None:
            exact = target + np.int64(site.offset)
            places = buffer.abreast.places(exact, site.size, active, self.rows)
            if places is not None:
                view, index = buffer.abreast.view(site.whole), places >> site.shift
                if here is not None:  # also of what is the same of all launches
                    here, data = spread(here, index.shape), spread(data, index.shape)
                    index, data = index[here], data[here]
                self.put(view, index, data)
                return
        elif buffer is not None:
            if here is not None:
                target, data = target[here], data[here]
            relative = target - (buffer.base - site.offset)
            if fits(relative, site.size, buffer.nbytes, buffer.first):
                self.put(buffer.view(site.whole), relative >> site.shift, data)
                return
        self._store_slowly(site, np.asarray(address), values, mask, report)

    def _store_slowly(
        self, site: Site, address: npt.NDArray[np.int64], values: Value, mask: Mask | None,
        report: Report,
    ) -> None:  # fmt: skip
        data = site.together(values)
        shape = np.broadcast_shapes(address.shape, data.shape)
        address = np.broadcast_to(address, shape)
        found = self._locate(site, address, mask, report)
        data = np.broadcast_to(data, shape)
        for at in np.unique(found[found >= 0]):
            buffer, here = self.buffers[at], found == at
            index = (address[here] + (site.offset - buffer.base)) >> site.shift
            self.put(buffer.view(site.whole), index, data[here])

    def cells(
        self, site: Site, address: npt.NDArray[np.int64], mask: Mask | None, report: Report
    ) -> Iterator[Cells]:
        """For atomics: the memory that the accesses fall in, which those are, and where in it."""
        found = self._locate(site, address, mask, report)
        for at in np.unique(found[found >= 0]):
            buffer, here = self.buffers[at], found == at
            index = (address[here] + (site.offset - buffer.base)) >> site.shift
            yield buffer.view(site.dtype), here, index
