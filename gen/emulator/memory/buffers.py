"""Buffers of global memory, and those of launches that run abreast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gen.emulator.warp.masks import Active

Owners = npt.NDArray[np.int64]


class Buffer:
    """One allocation: `nbytes` bytes at fake address `base`, with a typed view for each type."""

    def __init__(self, name: str, base: int, data: npt.NDArray[np.uint8]) -> None:
        self.name, self.base, self.nbytes, self.data = name, base, data.size, data
        self.valid: npt.NDArray[np.bool_] | None = None  # bytes that have a value; None: all
        self.first = 0  # bytes at the beginning that do not belong to it: it starts in between
        self.constant = False  # parameters, and what is in constant memory: no kernel writes there
        self.abreast: Abreast | None = None  # what holds its bytes, of launches that run abreast
        self._views: dict[Any, npt.NDArray[Any]] = {}

    def view(self, dtype: Any) -> npt.NDArray[Any]:
        """The bytes as whole elements of `dtype`."""
        if dtype not in self._views:
            size = dtype.itemsize
            self._views[dtype] = self.data[: self.nbytes // size * size].view(dtype)
        return self._views[dtype]


class Abreast:
    """One argument of launches that run abreast: a buffer of each, whose bytes lie in one array.

    Their addresses are as far apart as any buffers', so that each has its own bounds. Only the
    bytes are together, so that one access of all launches is one of numpy's.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        rooms = [max(64, -(-size // 64) * 64) for size in sizes]
        self._starts = np.cumsum([0, *rooms])
        self.data = aligned_bytes(int(self._starts[-1]))
        self.parts = [
            self.data[start : start + size]
            for start, size in zip(self._starts.tolist(), sizes, strict=False)
        ]
        self.buffers: list[Buffer] = []
        self._views: dict[Any, npt.NDArray[Any]] = {}
        self._rows: Owners | None = None  # that the numbers below are of
        self._places: tuple[Owners, ...] = ()

    def view(self, dtype: Any) -> npt.NDArray[Any]:
        """All bytes as elements of `dtype`."""
        if dtype not in self._views:
            self._views[dtype] = self.data.view(dtype)
        return self._views[dtype]

    def places(
        self, address: npt.NDArray[np.int64], size: int, active: Active | None, rows: Owners
    ) -> npt.NDArray[np.int64] | None:
        """Where `size` bytes are accessed; None where not all accesses are within their buffers.

        rows: the launch of each row of blocks along z, the first axis of `address`.
        """
        if self._rows is not rows:
            each = [(b.base, b.first, b.nbytes) for b in self.buffers]
            numbers = (*np.array(each, np.int64).T, self._starts[:-1])
            self._places = tuple(n[rows].reshape(-1, 1, 1, 1, 1, 1) for n in numbers)
            self._rows = rows
        bases, firsts, sizes, starts = self._places
        relative = address - bases
        if active is not None:
            relative = np.where(active.bits, relative, 0)
        if int(np.bitwise_or.reduce(relative, axis=None)) & (size - 1):
            return None
        # As an unsigned number, what lies before the first byte is behind the last one, too.
        room = np.maximum(sizes - firsts - (size - 1), 0).view(np.uint64)
        outside = (relative - firsts).view(np.uint64) >= room
        if outside.any() and (active is None or (outside & active.bits).any()):
            return None
        relative += starts
        return relative


def aligned_bytes(nbytes: int) -> npt.NDArray[np.uint8]:
    """Uninitialised bytes whose first one is aligned for every element type."""
    raw = np.empty(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]
