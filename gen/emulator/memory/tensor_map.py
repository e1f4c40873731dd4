"""Tensor maps: what cuTensorMapEncodeTiled makes, and the elements that a box of one names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gen.emulator.isa.rounding import tf32_by_copy
from gen.emulator.memory.arrays import DeviceArray
from gen.emulator.ptx.module import TYPE_BYTES
from gen.errors import UsageError

MAP_BYTES = 128
MAP_ALIGNMENT = 64
UNIT = 16  # bytes: what TMA moves at a time
_MAGIC = b"gen.emulator map"
_BYTES = {**TYPE_BYTES, "tf32": 4}  # of an element
_ROW = {0: 0, 32: 1, 64: 3, 128: 7}  # bits of a 16-byte chunk's number that swizzling changes


@dataclass(frozen=True)
class TensorMap:
    """How a tensor of up to 5 dimensions lies in global memory, and the box that one copy moves.

    All lists start with the fastest dimension, as those of cuTensorMapEncodeTiled. `element` is a
    PTX type such as "f16", or "tf32" for TFLOAT32: f32, rounded on its way to shared memory. dims:
    elements. strides: bytes, of every dimension but the first. box: elements. steps: take every so
    manieth element (the element strides). swizzle: 0, 32, 64 or 128 bytes, and as far are rows of a
    box apart in shared memory, which may be shorter (seen on an H200). Elements outside of the
    tensor are zeros. There is no interleaving.
    """

    buffer: DeviceArray
    element: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...] = ()
    swizzle: int = 0

    def __post_init__(self) -> None:
        """Check the limits of cuTensorMapEncodeTiled."""
        rank, inner = len(self.dims), self.box[0] * self.size if self.box else 0
        steps = self.steps or (1,) * rank
        rules = {
            "a tensor has 1 to 5 dimensions": 1 <= rank <= 5,
            "box and steps have an entry for each dimension, strides for all but the first":
                len(self.box) == len(steps) == len(self.strides) + 1 == rank,
            "the address is a multiple of 16 bytes": self.buffer.address % 16 == 0,
            "a dimension has 1 to 2**32 elements": all(1 <= n <= 2**32 for n in self.dims),
            "a stride is a multiple of 16 bytes, and below 2**40":
                all(n % 16 == 0 and 0 <= n < 2**40 for n in self.strides),
            "a box has 1 to 256 elements along each dimension":
                all(1 <= n <= 256 for n in self.box),
            "the steps are 1 to 8, and 1 along the first dimension":
                all(1 <= n <= 8 for n in steps) and steps[:1] == (1,),
            "a row of the box is a multiple of 16 bytes": inner % 16 == 0,
            "the swizzle is 0, 32, 64 or 128 bytes": self.swizzle in _ROW,
            "a row of a swizzled box is not longer than the swizzle":
                not self.swizzle or inner <= self.swizzle,
        }  # fmt: skip
        for rule, kept in rules.items():
            if not kept:
                raise UsageError(f"tensor map of '{self.buffer.name}': {rule}; got {self._shape()}")

    def _shape(self) -> str:
        return (
            f"{self.element}, dims {self.dims}, strides {self.strides}, box {self.box}, "
            f"steps {self.steps}, swizzle {self.swizzle}"
        )

    @property
    def size(self) -> int:
        """Bytes of an element."""
        if self.element not in _BYTES:
            raise UsageError(f"tensor map of '{self.buffer.name}': unknown type '{self.element}'")
        return _BYTES[self.element]

    @property
    def counts(self) -> tuple[int, ...]:
        """Elements that a copy moves along each dimension."""
        steps = self.steps or (1,) * len(self.box)
        return tuple(-(-n // step) for n, step in zip(self.box, steps, strict=True))

    @property
    def nbytes(self) -> int:
        """Bytes that a copy moves, those outside of the tensor included."""
        return math.prod(self.counts) * self.size

    @property
    def form(self) -> tuple[object, ...]:
        """What the copies of maps have in common that move elements alike."""
        return self.element, self.box, self.steps, self.swizzle

    def copied(self, words: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """What elements, as unsigned words, are in shared memory."""
        rounded: npt.NDArray[Any] = tf32_by_copy(words) if self.element == "tf32" else words
        return rounded

    def shared_offsets(self, start: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Of boxes that begin at `start` in shared memory: where each element lies."""
        count = self.counts[0]
        row, column = np.divmod(np.arange(math.prod(self.counts), dtype=np.int64), count)
        pitch = self.swizzle or count * self.size
        offset: npt.NDArray[np.int64] = start[:, None] + row * pitch + column * self.size
        return offset ^ (offset >> 7 & _ROW[self.swizzle]) << 4

    def encode(self, number: int) -> bytes:
        """The 128 bytes that a kernel gets: which map of the launch this is."""
        return (_MAGIC + number.to_bytes(8, "little")).ljust(MAP_BYTES, b"\0")


class Boxes(NamedTuple):
    """Boxes of tensors whose maps have one form: of each copy, the map and the box's corner.

    Launches that run abreast have maps of their own, whose copies are one.
    """

    maps: Sequence[TensorMap]
    which: npt.NDArray[np.int64]  # of the maps, for each copy
    corners: npt.NDArray[np.int64]  # (copies, dimensions)

    def global_addresses(self, written: bool = False) -> npt.NDArray[np.int64]:
        """Each element's address, -1 outside of its tensor: (copies, elements).

        written: whether the box is stored. Then the first dimension ends at a multiple of 16 bytes,
        as on an H200: what is beyond the tensor's end in the last 16 bytes is overwritten.
        """
        one = self.maps[0]
        unit, ones = UNIT // one.size, (1,) * len(one.dims)

        def of_copies(numbers: list[int]) -> Any:
            return np.array(numbers, np.int64)[self.which].reshape(-1, *ones)

        address = of_copies([m.buffer.address for m in self.maps])
        inside: Any = np.True_
        for at, (count, step) in enumerate(zip(one.counts, one.steps or ones, strict=True)):
            shape = [1] * (1 + len(ones))
            shape[-1 - at] = count
            position = np.arange(count).reshape(shape) * step
            position = position + self.corners[:, at].reshape(-1, *ones)
            stride = of_copies([m.strides[at - 1] for m in self.maps]) if at else one.size
            address = address + position * stride
            ends = [m.dims[at] for m in self.maps]
            if written and at == 0:
                ends = [-(-end // unit) * unit for end in ends]
            inside = inside & (position >= 0) & (position < of_copies(ends))
        return np.where(inside, address, -1).reshape(len(self.corners), -1)


def decode(raw: bytes) -> int | None:
    """The number that `encode` has put into a map; None if these bytes are no map."""
    start = len(_MAGIC)
    return int.from_bytes(raw[start : start + 8], "little") if raw[:start] == _MAGIC else None
