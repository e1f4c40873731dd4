"""Arrays in emulated global memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gen.emulator.memory.buffers import Buffer


@dataclass(frozen=True, eq=False)
class DeviceArray:
    """An array in emulated global memory, at byte address `address`."""

    name: str
    address: int
    nbytes: int
    dtype: Any
    shape: tuple[int, ...]
    buffer: Buffer = field(repr=False)


@dataclass(frozen=True, eq=False)
class LineArray(DeviceArray):
    """Lines of an array, far apart in emulated global memory; `buffer` has the first of them.

    lines: of each, the buffer that has it, and the byte in there at which it starts.
    """

    lines: tuple[tuple[Buffer, int], ...] = ()
