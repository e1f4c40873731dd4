"""Which instructions write other values than the launch has already written to the same place.

Two threads that write the same value to one place race by the rules, and most code that does so
means it, such as a flag that several threads set. A race of two writes that never changes a value
is worth a note, not an error. It is an error where the value comes from what was there before, as
that of `++x`: each write but one is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gen.emulator.isa.instructions import registers
from gen.emulator.isa.ops import Value
from gen.emulator.memory.global_memory import Site
from gen.emulator.memory.observer import ObservedChunk, Observer
from gen.emulator.ptx.module import Instruction
from gen.emulator.translate.blocks import Block
from gen.emulator.warp.clusters import RANK_SHIFT
from gen.emulator.warp.masks import Mask
from gen.emulator.watch.findings import Finding

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]


def updates(blocks: Iterable[Block]) -> set[int]:
    """The lines of stores whose value is computed from a load of the same place."""
    items = [item for block in blocks for item in block.body]
    made: dict[str, list[Instruction]] = {}
    for item in items:
        for name in registers(item)[1]:
            made.setdefault(name, []).append(item)
    return {item.line for item in items if item.opcode == "st" and _updates(item, made)}


def _updates(store: Instruction, made: Mapping[str, Sequence[Instruction]]) -> bool:
    place = store.operands[0]
    names = registers(store)[0] - registers(replace(store, operands=store.operands[:1]))[0]
    left = sorted(names)
    while left:
        for item in made.get(left.pop(), ()):
            if item.opcode in ("ld", "ldu"):
                if item.operands[1] == place:
                    return True
            elif item.opcode != "atom":
                fresh = registers(item)[0] - names
                names |= fresh
                left += sorted(fresh)
    return False


class SameValues(Observer):
    """Looks at the values of stores."""

    def __init__(self) -> None:
        self._updating: set[tuple[str, int]] = set()  # kernel and line of `++x` and the like
        self._changing: set[tuple[str, int]] = set()  # kernel and line of such an instruction
        self._launch: object = None
        self._global: dict[int, Flags] = {}  # bytes that the launch has written, by buffer
        self._shared: dict[int, Flags] = {}  # the same, by chunk

    def harmless(self, finding: Finding) -> bool:
        """Whether a finding is a race of two writes that leave the same value."""
        lines = (finding.file_line, finding.other_line)
        wrong = self._changing | self._updating
        changed = any((finding.kernel, line) in wrong for line in lines)
        plain = finding.kind == "WAW" and finding.message.count("store") > 1
        return plain and all(lines) and not changed

    def begin(self, chunk: ObservedChunk) -> None:
        """See Observer."""
        if chunk.launch is not self._launch:
            program = chunk.launch.program
            self._updating |= {(program.kernel.name, line) for line in updates(program.blocks)}
            self._launch, self._global, self._shared = chunk.launch, {}, {}

    def end(self, chunk: ObservedChunk) -> None:
        """See Observer."""
        self._shared.pop(id(chunk), None)

    def values(
        self, chunk: ObservedChunk, site: Site, space: str, address: Value, values: Value,
        mask: Mask | None,
    ) -> None:  # fmt: skip
        """See Observer."""
        if space not in ("global", "shared"):
            return
        data = site.together(values)
        owner = chunk.shared.owner
        shape = np.broadcast_shapes(
            np.shape(address), data.shape, owner.shape if space == "shared" else ()
        )
        shape = shape or (1,)
        used = np.ones(shape, np.bool_)
        if mask is not None:
            shape = np.broadcast_shapes(shape, mask.bits.shape)
            used = np.broadcast_to(mask.bits, shape)
        full = np.broadcast_to(np.asarray(address) + np.int64(site.offset), shape)
        if space == "shared" and (full >> RANK_SHIFT).any():
            owner, full, stranger = chunk.clusters.locate(full)
            used = used & ~stranger
        exact = full[used]
        written = np.ascontiguousarray(np.broadcast_to(data, shape)[used])
        parts = written.view(np.uint8).reshape(exact.size, site.size)
        if space == "shared":
            memory = chunk.shared
            inside = (exact >= 0) & (exact + site.size <= memory.nbytes)
            index = (exact + np.broadcast_to(owner, shape)[used] * memory.stride)[inside]
            known = self._shared.setdefault(id(chunk), np.zeros(memory.data.size, np.bool_))
            self._write(chunk, site, memory.data.reshape(-1), known, index, parts[inside])
            return
        while exact.size:
            buffer = chunk.memory.find(int(exact[0]))
            here = exact == exact[0]
            if buffer is not None:
                here |= (exact >= buffer.base) & (exact + site.size <= buffer.base + buffer.nbytes)
                inside = here & (exact + site.size <= buffer.base + buffer.nbytes)
                known = self._global.setdefault(buffer.base, np.zeros(buffer.nbytes, np.bool_))
                index = exact[inside] - buffer.base
                self._write(chunk, site, buffer.data, known, index, parts[inside])
            exact, parts = exact[~here], parts[~here]

    def _write(
        self, chunk: ObservedChunk, site: Site, memory: Bytes, known: Flags, index: Any, new: Bytes
    ) -> None:
        order = np.argsort(index, kind="stable")
        index, new = index[order], new[order]
        twice = np.flatnonzero(index[1:] == index[:-1])
        places = index[:, None] + np.arange(site.size)
        other = (new[twice] != new[twice + 1]).any()
        if other or (known[places] & (memory[places] != new)).any():
            self._changing.add((chunk.launch.program.kernel.name, site.item.line))
        known[places] = True
