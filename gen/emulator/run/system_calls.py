"""What the CUDA driver does for device code: printf, malloc, free and failed assertions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gen.emulator.isa.ops import Value
from gen.emulator.memory.buffers import Buffer, aligned_bytes
from gen.emulator.ptx.module import Instruction
from gen.emulator.run.context import Context
from gen.emulator.warp.clusters import OFFSET
from gen.emulator.warp.masks import Coordinates, Mask, lanes_of

HEAP_BYTES = 8 << 20  # cudaLimitMallocHeapSize of a fresh context
MOST_TEXT = 1 << 16  # characters of a string that has no end
_FORMAT = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\d+|\*)?(?:\.(?P<precision>\d+|\*)?)?"
    r"(?P<length>hh|h|ll|l|j|z|t|L)?(?P<kind>[diouxXcsaAeEfFgGp%])"
)
Lane = tuple[int, ...]  # of a chunk, over its six axes


@dataclass(frozen=True)
class Printed:
    """What one call of printf in one thread has printed."""

    block: Coordinates
    thread: Coordinates
    text: str


class SystemCalls:
    """The calls of one chunk."""

    def __init__(self, chunk: Context) -> None:
        self.chunk = chunk

    def printf(self, form: Value, arguments: Value, m: Mask | None) -> Value:
        """vprintf: a format and a pointer to the arguments; how many those are."""
        counts = np.zeros(self.chunk.shape, np.int32)
        for lane, block, thread in self._lanes(m):
            words = Arguments(self, self._at(arguments, lane), lane)
            text = words.fill(self.text(self._at(form, lane), lane))
            counts[lane] = words.count
            self.chunk.launch.printed.append(Printed(block, thread, text))
        return counts

    def malloc(self, item: Instruction, size: Value, m: Mask | None) -> Value:
        """The addresses of fresh memory on the device's heap; 0 where that is full."""
        memory, found = self.chunk.memory, np.zeros(self.chunk.shape, np.int64)
        for lane, block, thread in self._lanes(m):
            nbytes = self._at(size, lane) & (1 << 64) - 1
            if nbytes and sum(b.nbytes for b in memory.heap.values()) + nbytes <= HEAP_BYTES:
                data = aligned_bytes(nbytes)
                data.fill(0xFF)
                name = f"malloc(line {item.line}, block {block}, thread {thread})"
                buffer = memory.add(name, data)
                buffer.valid = np.zeros(nbytes, np.bool_)
                memory.heap[buffer.base], found[lane] = buffer, buffer.base
        return found

    def free(self, item: Instruction, address: Value, m: Mask | None) -> None:
        """Give memory back; a finding for what malloc has not returned."""
        memory: Any = self.chunk.memory
        for lane, block, thread in self._lanes(m):
            at = self._at(address, lane)
            buffer: Buffer | None = memory.heap.pop(at, None)
            if buffer:
                memory.remove(buffer)
                memory.freed[at] = buffer
            elif at:
                where = memory.describe(at)
                again = at in memory.freed
                message = f"free of {where}" + ", which malloc has not returned" * (not again)
                message += " before: it is freed twice" * again
                self.chunk.launch.findings.add("memcheck", item, message, block, [thread], where)

    def assertion(self, item: Instruction, message: Value, m: Mask | None) -> None:
        """__assertfail: a finding that quotes the expression."""
        bits = np.ones((1,) * 6, np.bool_) if m is None else m.bits
        block, threads, count = lanes_of(bits, None, self.chunk.shape, self.chunk.origin)
        lane = next(self._lanes(m))[0]
        said = self.text(self._at(message, lane), lane)
        what = f"assertion failed in {count} thread{'s' * (count > 1)}: {said}"
        self.chunk.launch.findings.add("trap", item, what, block, threads)

    # -- memory, lane by lane ------------------------------------------------------------------
    def _lanes(self, m: Mask | None) -> Iterator[tuple[Lane, Coordinates, Coordinates]]:
        """The running lanes in the order of blocks and threads, with their coordinates."""
        shape, (ox, oy, oz) = self.chunk.shape, self.chunk.origin
        bits = np.broadcast_to(True if m is None else m.bits, shape)
        lanes = np.argwhere(bits).tolist()
        for z, tz, y, ty, x, tx in sorted(lanes, key=lambda a: (*a[0::2], *a[1::2])):
            yield (z, tz, y, ty, x, tx), (ox + x, oy + y, oz + z), (tx, ty, tz)

    def _at(self, value: Value, lane: Lane) -> int:
        return int(np.broadcast_to(value, self.chunk.shape)[lane])

    def read(self, address: int, size: int, lane: Lane) -> bytes:
        """Bytes at a generic address, as many as there are."""
        chunk, offset = self.chunk, address & (1 << 56) - 1
        if address >> 56:
            scratch: Any = chunk.shared if address >> 56 == 1 else chunk.local
            row = scratch.owner[
                tuple(at if n > 1 else 0 for at, n in zip(lane, scratch.shape, strict=True))
            ]
            offset = offset & OFFSET if scratch is chunk.shared else offset
            return bytes(scratch.data[row][offset : offset + size])
        buffer = chunk.memory.find(address)
        return bytes(buffer.data[address - buffer.base :][:size]) if buffer else b""

    def text(self, address: int, lane: Lane) -> str:
        """The C string at a generic address."""
        return self.read(address, MOST_TEXT, lane).partition(b"\0")[0].decode(errors="replace")


class Arguments:
    """The arguments of one call of printf, behind each other in memory."""

    def __init__(self, calls: SystemCalls, address: int, lane: Lane) -> None:
        self.calls, self.address, self.lane = calls, address, lane
        self.offset = self.count = 0

    def fill(self, form: str) -> str:
        """The format with what it stands for."""
        return _FORMAT.sub(self._one, form)

    def _take(self, size: int, kind: str) -> Any:
        """The next argument, a number."""
        self.offset = -(-self.offset // size) * size
        data = self.calls.read(self.address + self.offset, size, self.lane).ljust(size, b"\0")
        self.offset, self.count = self.offset + size, self.count + 1
        return np.frombuffer(data, f"{kind}{size}")[0].item()

    def _one(self, match: re.Match[str]) -> str:
        kind, length = match["kind"], match["length"] or ""
        if kind == "%":
            return "%"
        width, precision = (
            str(self._take(4, "i")) if match[part] == "*" else match[part] or ""
            for part in ("width", "precision")
        )
        start = f"%{match['flags']}{width}" + (f".{precision or 0}" if "." in match[0] else "")
        value: Any
        if kind in "aA":
            kind, value = "s", float(self._take(8, "f")).hex()
        elif kind in "eEfFgG":
            value = self._take(8, "f")
        elif kind == "s":
            value = self.calls.text(self._take(8, "u"), self.lane)
        elif kind == "p":
            kind, value = "s", hex(self._take(8, "u"))
        elif kind == "c":
            value = self._take(4, "u") & 255
        else:
            size = 8 if length in ("l", "ll", "j", "z", "t") else 4
            value = self._take(size, "i" if kind in "di" else "u")
            kind = "d" if kind == "u" else kind
        return str(f"{start}{kind}" % value)
