"""Performance counters: an observer that counts what the hardware's counters count.

They are properties of the streams of addresses and instructions, and so exact without a GPU; the
models of sectors and wavefronts are in `banks`, the joining of loads in `joined_loads`.

    counters = Counters()
    emulator.launch(ptx, "gemm", grid, block, args, observers=[counters])
    print(counters.totals().global_load.parts)
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from gen.emulator.isa.classes import flops, instruction_class, is_mma, memory_space
from gen.emulator.isa.ops import Value
from gen.emulator.memory.bulk_moves import Move
from gen.emulator.memory.global_memory import Site
from gen.emulator.memory.observer import ObservedChunk, Observer
from gen.emulator.ptx.module import Instruction
from gen.emulator.translate.program import Program
from gen.emulator.warp.masks import BLOCK_AXES, WARP, Mask
from gen.emulator.warp.shuffles import to_warps
from gen.emulator.watch import banks
from gen.emulator.watch.joined_loads import MergePlan, Request, merge_plan
from gen.spec.arch import SECTOR

_BLOCKS_FIRST = (0, 2, 4, 1, 3, 5)
_PERIOD = banks.BANKS * 4  # bytes after which banks repeat; a multiple of a sector


@dataclass
class Access:
    """What one instruction, or a group of them, did to memory.

    `requests` are executions by a warp with at least one lane that takes part. `parts` are sectors
    in global memory and wavefronts in shared memory, `ideal` the fewest that could have done it:
    for sectors, those that hold as many different bytes as were wanted; for wavefronts, as if no
    two words were in the same bank, so that the bank conflicts are `parts - ideal`. `bytes` is
    what the lanes asked for.
    """

    requests: int = 0
    parts: int = 0
    ideal: int = 0
    bytes: int = 0

    def add(self, other: Access, times: int = 1) -> None:
        """Count `other` in, `times` times."""
        self.requests += other.requests * times
        self.parts += other.parts * times
        self.ideal += other.ideal * times
        self.bytes += other.bytes * times

    @property
    def excess(self) -> int:
        """Parts beyond the ideal."""
        return self.parts - self.ideal


class AccessPoint(NamedTuple):
    """Where accesses are counted: CUDA line, "global" or "shared", "load", "store" and so on."""

    line: int
    space: str
    kind: str


@dataclass
class Totals:
    """Counters of a whole launch. cp.async counts as global loads, and apart as `copy_shared`.

    Instructions are those of the PTX, one for each warp that executes it; `by_class` adds up to
    `instructions`. `flops` counts a fused multiply-add as two.
    """

    instructions: int = 0
    by_class: dict[str, int] = field(default_factory=dict)
    flops: int = 0
    mma: int = 0
    fma: int = 0
    blocks: int = 0
    warps: int = 0
    global_load: Access = field(default_factory=Access)
    global_store: Access = field(default_factory=Access)
    shared_load: Access = field(default_factory=Access)
    shared_store: Access = field(default_factory=Access)
    global_atomic: Access = field(default_factory=Access)
    shared_atomic: Access = field(default_factory=Access)
    copy_shared: Access = field(default_factory=Access)


class Counters(Observer):
    """Counts launches, of one kernel or of several, together.

    `merge`: count shared loads as the assembler joins them, not as the PTX has them; `limits` has
    the widest load for CUDA lines whose machine code is known.
    """

    def __init__(self, merge: bool = True, limits: Mapping[int, int] | None = None) -> None:
        self.accesses: dict[AccessPoint, Access] = {}
        self.blocks = self.warps = 0
        self._merge, self._limits = merge, limits
        self._programs: dict[int, Program] = {}  # by id
        self._plan: MergePlan = {}
        # Executions of each basic block, (id of its program, number), by warps and by threads.
        self._warps: Counter[tuple[int, int]] = Counter()
        self._lanes: Counter[tuple[int, int]] = Counter()
        self._running: WeakKeyDictionary[Mask, tuple[int, int]] = WeakKeyDictionary()
        self._digests: WeakKeyDictionary[Mask, bytes] = WeakKeyDictionary()
        self._known: dict[tuple[object, ...], Access] = {}

    # -- results -------------------------------------------------------------------------------
    def totals(self) -> Totals:
        """The sums over all launches."""
        total = Totals(blocks=self.blocks, warps=self.warps)
        mix: Counter[str] = Counter()
        for item, warps, lanes in self._executed():
            mix[instruction_class(item)] += warps
            total.flops += flops(item) * lanes
            total.mma += warps * is_mma(item)
            total.fma += warps * (item.opcode in ("fma", "mad") and flops(item) > 0)
        total.by_class = dict(mix.most_common())
        total.instructions = mix.total()
        for place, access in self.accesses.items():
            _total_of(total, place).add(access)
        return total

    def _executed(self) -> Iterable[tuple[Instruction, int, int]]:
        for (program, at), warps in self._warps.items():
            block = self._programs[program].blocks[at]
            for item in [*block.body, *([block.end] if block.end else [])]:
                yield item, warps, self._lanes[program, at]

    # -- what the launch reports ---------------------------------------------------------------
    def begin(self, chunk: ObservedChunk) -> None:
        """See Observer."""
        program = chunk.launch.program
        if id(program) not in self._programs:
            self._programs[id(program)] = program
            if self._merge:
                self._plan |= merge_plan(program.blocks, self._limits)
        blocks = math.prod(chunk.shape[i] for i in BLOCK_AXES)
        self.blocks += blocks
        self.warps += blocks * -(-chunk.threads // WARP)

    def block(self, chunk: ObservedChunk, at: int, mask: Mask | None) -> None:
        """See Observer."""
        warps, lanes = self._count(chunk, mask)
        place = (id(chunk.launch.program), at)
        self._warps[place] += warps
        self._lanes[place] += lanes

    def _count(self, chunk: ObservedChunk, mask: Mask | None) -> tuple[int, int]:
        if mask is None:
            return chunk.lanes // chunk.threads * -(-chunk.threads // WARP), chunk.lanes
        if mask not in self._running:
            warps = int(to_warps(chunk, mask.bits).any(axis=-1).sum())
            self._running[mask] = (warps, mask.count(chunk.shape))
        return self._running[mask]

    def load(
        self, chunk: ObservedChunk, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """See Observer."""
        requests = self._plan.get(id(site.item))
        if space != "shared" or requests is None:
            requests = [Request(site.offset, site.size)]
        for request in requests:
            self._access(chunk, site, space, "load", request, address, mask)

    def store(
        self, chunk: ObservedChunk, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """See Observer."""
        request = Request(site.offset, site.size)
        self._access(chunk, site, space, "store", request, address, mask)

    def atomic(
        self, chunk: ObservedChunk, site: Site, space: str, address: Value, mask: Mask | None
    ) -> None:
        """See Observer."""
        request = Request(site.offset, site.size)
        self._access(chunk, site, space, "atomic", request, address, mask)

    def copy(
        self, chunk: ObservedChunk, site: Site, shared_address: Value, global_address: Value,
        source_bytes: Value, mask: Mask | None,
    ) -> None:  # fmt: skip
        """See Observer. Lanes that copy zeros only read nothing."""
        request = Request(0, site.size)
        self._access(chunk, site, "shared", "copy", request, shared_address, mask)
        reads = np.asarray(source_bytes) > 0
        if not reads.all():
            bits = np.broadcast_to(reads, (1,) * 6) if reads.ndim == 0 else reads
            mask = Mask(bits if mask is None else bits & mask.bits)
            if not mask.bits.any():
                return
        bypass = shared_address if "cg" in site.item.modifiers else None
        self._access(chunk, site, "global", "copy", request, global_address, mask, bypass)

    def bulk(self, chunk: ObservedChunk, move: Move) -> None:
        """See Observer. A copy counts as one access of global memory by the lane that starts it."""
        move = move.issued()
        if not move.by_global:
            return
        sectors = np.sort(np.where(move.addresses < 0, -1, move.addresses // SECTOR), axis=1)
        changes = np.diff(sectors, axis=1, prepend=-1) != 0
        size = int((move.addresses >= 0).sum()) * move.size
        kind = "copy" if move.into_shared else "store"
        total = self.accesses.setdefault(AccessPoint(move.site.item.line, "global", kind), Access())
        total.add(Access(len(sectors), int(changes.sum()), -(-size // SECTOR), size))

    # -- counting ------------------------------------------------------------------------------
    def _access(
        self, chunk: ObservedChunk, site: Site, space: str, kind: str, request: Request,
        address: Value, mask: Mask | None, target: Value | None = None,
    ) -> None:  # fmt: skip
        """`target`: where in shared memory a copy goes that bypasses L1."""
        if space not in ("global", "shared") or memory_space(site.item) in ("param", "const"):
            return  # constants and parameters have a cache of their own
        if site.item.opcode == "mbarrier":
            return  # how often code looks at one depends on time
        pair = kind == "load" and site.item.opcode != "ldmatrix"
        # A pattern counts the same wherever it starts, if sectors and banks start there alike.
        # Loops repeat few patterns, so that nearly all of them are known.
        found = [_relative(address, request.offset)]
        if target is not None:
            found.append(_relative(target, 0))
        shapes = [value.shape for value in found] + [(1,) * 6 if mask is None else mask.bits.shape]
        key = (
            space, request.size, pair, chunk.shape, *shapes, *map(_digest, found),
            None if mask is None else self._mask_digest(mask),
        )  # fmt: skip
        # Blocks that all do the same are counted once.
        dims = tuple(
            max(shape[i] for shape in shapes) if i in BLOCK_AXES else n
            for i, n in enumerate(chunk.shape)
        )
        if key not in self._known:
            self._known[key] = _count_access(found, mask, dims, space, request.size, pair)
        total = self.accesses.setdefault(AccessPoint(site.item.line, space, kind), Access())
        total.add(self._known[key], math.prod(chunk.shape) // math.prod(dims))

    def _mask_digest(self, mask: Mask) -> bytes:
        if mask not in self._digests:
            self._digests[mask] = repr(mask.bits.shape).encode() + _digest(mask.bits)
        return self._digests[mask]


def _total_of(total: Totals, place: AccessPoint) -> Access:
    if place.kind == "copy":
        return total.global_load if place.space == "global" else total.copy_shared
    found: Access = getattr(total, f"{place.space}_{place.kind}")
    return found


def _relative(address: Value, offset: int) -> npt.NDArray[np.int64]:
    full = np.asarray(address).reshape(np.shape(address) or (1,) * 6)
    start = (int(full.min()) + offset) // _PERIOD * _PERIOD
    return np.asarray(full + np.int64(offset - start))


def _digest(array: npt.NDArray[np.generic]) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(array).data, digest_size=16).digest()


def _count_access(
    address: list[npt.NDArray[np.int64]], mask: Mask | None, dims: tuple[int, ...], space: str,
    size: int, pair: bool,
) -> Access:  # fmt: skip
    """Count one execution by the blocks of `dims` (a chunk's shape, or smaller along blocks)."""
    rows, *targets = (_rows(value, dims, banks.NOTHING) for value in address)
    valid = rows >= 0
    if mask is not None:
        valid &= _rows(mask.bits, dims, False)
    some = valid.any(axis=1)
    rows, valid = rows[some], valid[some]
    if space == "shared":
        parts = banks.wavefronts(rows, size, valid, pair)
    elif targets:
        parts = banks.copy_sectors(rows, targets[0][some], size, valid)
    else:
        parts = banks.sectors(rows, size, valid)
    return Access(
        len(rows), int(parts.number.sum()), int(parts.ideal.sum()), int(valid.sum()) * size
    )


def _rows(value: npt.NDArray[np.generic], dims: tuple[int, ...], fill: int) -> npt.NDArray[Any]:
    """A row of 32 lanes for each warp; the lanes that a block's last warp lacks get `fill`."""
    threads = math.prod(dims[i] for i in (1, 3, 5))
    full = np.broadcast_to(value, dims).transpose(_BLOCKS_FIRST).reshape(-1, threads)
    missing = -threads % WARP
    if missing:
        full = np.pad(full, ((0, 0), (0, missing)), constant_values=fill)
    return full.reshape(-1, WARP)
