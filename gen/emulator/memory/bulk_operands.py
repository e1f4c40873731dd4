"""The operands of bulk copies, and findings for those that a GPU would not take."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from gen.emulator.isa.ops import Value
from gen.emulator.memory.bulk_moves import Numbers, numbers, running
from gen.emulator.memory.global_memory import Site
from gen.emulator.memory.mbarrier import MBarriers
from gen.emulator.memory.observer import ObservedChunk
from gen.emulator.memory.tensor_map import (
    MAP_ALIGNMENT,
    MAP_BYTES,
    UNIT,
    Boxes,
    TensorMap,
    decode,
)
from gen.emulator.warp.clusters import OFFSET, RANK_SHIFT
from gen.emulator.warp.masks import BLOCK_AXES, Bits, Coordinates, Mask

Lanes = tuple[Numbers, ...]
_MBARRIER_BYTES = 8  # and their alignment


class BulkOperands:
    """What lanes of one chunk name in instructions that start bulk copies."""

    def __init__(self, chunk: ObservedChunk, mbarriers: MBarriers) -> None:
        self.chunk, self.mbarriers = chunk, mbarriers

    def _boxes(
        self, site: Site, address: Value, corner: tuple[Value, ...], mask: Mask | None
    ) -> Iterator[tuple[Lanes, Boxes]]:
        """The boxes of maps at `address` that begin at `corner`, by their form, and who uses them.

        Findings stand for those that a GPU takes for an illegal instruction: no map, and a first
        coordinate inside of 16 bytes.
        """
        every = running(self.chunk.shape, mask)
        addresses, which = np.unique(self._of(every, address), return_inverse=True)
        maps: dict[int, TensorMap] = {}
        forms: dict[object, list[int]] = {}
        for number, at in enumerate(addresses):
            tensor = self._map(site, tuple(axis[which == number] for axis in every), int(at))
            if tensor is None:
                continue
            if len(corner) != len(tensor.dims):
                raise site.item.error(f"the tensor map has {len(tensor.dims)} dimensions")
            maps[number] = tensor
            forms.setdefault(tensor.form, []).append(number)
        for numbers_ in forms.values():
            mine = np.isin(which, numbers_)
            lanes = tuple(axis[mine] for axis in every)
            corners = np.stack([self._of(lanes, value) for value in corner], axis=1)
            some = [maps[number] for number in numbers_]
            first = corners[:, 0] * some[0].size
            if self._aligned(site, lanes, "first coordinate, in bytes,", first, UNIT):
                yield lanes, Boxes(some, np.searchsorted(numbers_, which[mine]), corners)

    def _of(self, lanes: Lanes, value: Value) -> Numbers:
        return np.broadcast_to(value, self.chunk.shape)[lanes].astype(np.int64)

    def _near(self, lanes: Lanes, address: Value) -> Numbers:
        """Addresses in the window of shared memory relative to each lane's block."""
        clusters, found = self.chunk.clusters, self._of(lanes, address)
        if clusters.size == 1:
            return found
        own = clusters.ranks[numbers(self.chunk.shape, lanes, BLOCK_AXES)] << RANK_SHIFT
        return np.asarray(clusters.near(found, own))

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

    def _homes(
        self, site: Site, lanes: Lanes, starts: Numbers, own: bool = False
    ) -> tuple[Numbers, Numbers] | None:
        """The numbers of the blocks whose shared memory near addresses are in, and the offsets.

        None after a finding where there is no such block. own: it has to be the executing one.
        """
        clusters, blocks = self.chunk.clusters, numbers(self.chunk.shape, lanes, BLOCK_AXES)
        field = starts >> RANK_SHIFT
        if not field.any():
            return blocks, starts
        bad = (field < 0) | (field > clusters.size)
        if bad.any():
            where = self.chunk.describe_shared(int(starts[bad][0]))
            self._report("memcheck", site, lanes, f"{where} is out of bounds", bad)
            return None
        rank = np.where(field == 0, clusters.ranks[blocks], field - 1)
        homes = clusters.peers[rank, blocks]
        if own and (homes != blocks).any():
            bad = homes != blocks
            where = self.chunk.describe_shared(int(starts[bad][0]))
            rule = f"{where} is not in the executing block, as .shared::cta says"
            self._report("memcheck", site, lanes, rule, bad)
            return None
        return homes, starts & OFFSET

    def _targets(self, site: Site, lanes: Lanes, masks: Numbers) -> tuple[Numbers, Numbers] | None:
        """A multicast's copies: which of the lanes each belongs to, and the number of its block."""
        clusters, blocks = self.chunk.clusters, numbers(self.chunk.shape, lanes, BLOCK_AXES)
        none, beyond = masks == 0, masks >> clusters.size != 0
        if none.any():
            self._report("memcheck", site, lanes, "its multicast mask is 0, it has no target", none)
            return None
        if beyond.any():
            mask = int(masks[beyond][0])
            rule = f"its multicast mask {mask:#06x} names block {mask.bit_length() - 1} of a "
            self._report("memcheck", site, lanes, f"{rule}cluster of {clusters.size}", beyond)
            return None
        which, ranks = np.nonzero(masks[:, None] >> np.arange(clusters.size) & 1)
        return which, clusters.peers[ranks, blocks[which]]

    def _counts(
        self, site: Site, lanes: Lanes, barriers: Numbers, homes: Numbers | None
    ) -> Numbers | None:
        """The offsets of the mbarriers that count bytes; None after a finding.

        homes: the blocks that they have to be in; None for those of a multicast, in each of these.
        """
        found = self._homes(site, lanes, barriers)
        if found is None:
            return None
        if homes is not None and (found[0] != homes).any():
            bad = found[0] != homes
            where = self.chunk.describe_shared(int(barriers[bad][0]))
            rule = f"its mbarrier, {where}, is not in the block that it writes to"
            self._report("memcheck", site, lanes, rule, bad)
            return None
        barriers = found[1]
        outside = (barriers < 0) | (barriers > self.chunk.shared.nbytes - _MBARRIER_BYTES)
        if outside.any():
            where = self.chunk.describe_shared(int(barriers[outside][0]))
            rule = f"its mbarrier, {where}, is out of bounds"
            self._report("memcheck", site, lanes, rule, outside)
            return None
        right = self._aligned(site, lanes, "mbarrier's address", barriers, _MBARRIER_BYTES)
        return barriers if right else None

    def _aligned(self, site: Site, lanes: Lanes, what: str, value: Numbers, unit: int) -> bool:
        """Whether a value is a multiple of `unit` for all lanes; a finding if not."""
        bad = value % unit != 0
        if bad.any():
            say: Callable[[int], str] = str
            if what.endswith("address"):
                near = what != "global address"
                say = self.chunk.describe_shared if near else self.chunk.memory.describe
            rule = f"the {what} is {say(int(value[bad][0]))}, not a multiple of {unit}"
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
        opcode = site.item.opcode
        name = "bulk copy" if opcode == "cp" else f"{opcode}.async"
        message = what if check == "synccheck" else f"{name}: {what}"
        self.chunk.launch.findings.add(check, site.item, message, block, [(tx, ty, tz)])
