"""Findings: what a run did wrong, with the CUDA line, block, threads and address."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gen.emulator.memory import Site
from gen.emulator.module import Instruction
from gen.emulator.warp import BLOCK_AXES, THREAD_AXES, Mask, Shape

Coordinates = tuple[int, int, int]
SHOWN_THREADS = 4


@dataclass(frozen=True)
class Finding:
    """One thing a kernel did wrong, at its first occurrence.

    `block` and `threads` (a few of those involved) are (x, y, z); `file_line` is the line of the
    CUDA source, 0 if the PTX has no line information, and `source` that line's text if known.
    """

    check: str  # "memcheck" or "synccheck"
    kernel: str
    message: str
    file_line: int
    source: str
    block: Coordinates
    threads: tuple[Coordinates, ...]
    address: str = ""  # "A+3132 of 3072": buffer, byte offset, size in bytes

    def __str__(self) -> str:
        where = f"line {self.file_line}" if self.file_line else "unknown line"
        threads = ", ".join(str(thread).replace(" ", "") for thread in self.threads)
        block = str(self.block).replace(" ", "")
        text = f"{self.check}: {self.kernel}, {where}: {self.message}; block {block}"
        text += f", threads {threads}" if threads else ""
        return text + (f": {self.source.strip()}" if self.source.strip() else "")


@dataclass
class Findings:
    """Collects findings of one launch: one for each instruction and kind, at most `limit`."""

    kernel: str
    limit: int
    source_lines: Sequence[str] = ()
    items: list[Finding] = field(default_factory=list)
    suppressed: int = 0
    _seen: set[tuple[str, int]] = field(default_factory=set)

    def add(
        self, check: str, item: Instruction, message: str, block: Coordinates,
        threads: Sequence[Coordinates], address: str = "",
    ) -> None:  # fmt: skip
        """Record a finding, unless this instruction already has one with this check."""
        key = (check, id(item))
        if key in self._seen or len(self.items) >= self.limit:
            self.suppressed += 1
            return
        self._seen.add(key)
        line = item.line
        source = self.source_lines[line - 1] if 0 < line <= len(self.source_lines) else ""
        self.items.append(
            Finding(check, self.kernel, message, line, source, block, tuple(threads), address)
        )


def lanes_of(
    bits: npt.NDArray[np.bool_], mask: Mask | None, shape: Shape, origin: Coordinates
) -> tuple[Coordinates, list[Coordinates], int]:
    """The first block with a set lane, a few of that block's lanes, and how many lanes in all.

    `origin` is the (x, y, z) of the chunk's first block.
    """
    lanes = np.broadcast_to(bits if mask is None else bits & mask.bits, shape)
    where = np.argwhere(lanes)
    same = (where[:, BLOCK_AXES] == where[0][list(BLOCK_AXES)]).all(axis=1)
    z, y, x = (int(i) for i in where[0][list(BLOCK_AXES)])
    block = (origin[0] + x, origin[1] + y, origin[2] + z)
    some = where[same][:SHOWN_THREADS][:, THREAD_AXES]
    threads = [(int(tx), int(ty), int(tz)) for tz, ty, tx in some]
    return block, threads, len(where)


def access_message(site: Site, what: str, address: str, lanes: int) -> str:
    """ "store of 4 bytes at D+400 of 400 is out of bounds, by 3 threads"."""
    verb = {"ld": "load", "ldu": "load", "st": "store"}.get(site.item.opcode, "atomic access")
    threads = "1 thread" if lanes == 1 else f"{lanes} threads"
    return f"{site.space} {verb} of {site.size} bytes at {address} is {what}, by {threads}"
