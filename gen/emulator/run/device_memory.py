"""`DeviceMemory`: the global memory of an emulator, as a program allocates, reads and frees it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gen.emulator.memory.arrays import DeviceArray, LineArray
from gen.emulator.memory.buffers import Buffer, aligned_bytes
from gen.emulator.memory.global_memory import GlobalMemory
from gen.emulator.memory.repeated import mapped_zeros, repeated
from gen.emulator.memory.tensor_map import TensorMap
from gen.emulator.ptx.module import Variable
from gen.errors import MissingError, UsageError

_WIDEST = 16  # bytes that a thread reads at once


class DeviceMemory:
    """Arrays of a device, and the tensor maps that describe some of them."""

    def __init__(self) -> None:
        self.memory = GlobalMemory()
        self._maps: dict[int, TensorMap] = {}  # by the numbers that kernels find in their bytes
        self._next_map = itertools.count()

    def alloc(
        self, array: npt.NDArray[Any], name: str = "A", defined: bool = True, first: int = 0
    ) -> DeviceArray:
        """Copy an array into emulated global memory; `name` is how findings call it.

        defined: False for contents that a kernel must not read before it has written there. first:
        bytes at the beginning that no kernel may touch, so that the rest starts at any address.
        """
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        data = aligned_bytes(array.nbytes)
        data[:] = array.reshape(-1).view(np.uint8)
        return self._mapped(name, data, array, defined, first)

    def alloc_abreast(
        self,
        arrays: Sequence[npt.NDArray[Any]],
        name: str = "A",
        defined: bool = True,
        firsts: Sequence[int] = (),
    ) -> list[DeviceArray]:
        """`alloc` of one argument of launches that run abreast, of which access is quick.

        firsts: of each.
        """
        whole = [np.ascontiguousarray(array) for array in arrays]
        buffers = self.memory.add_abreast(name, [x.reshape(-1).view(np.uint8) for x in whole])
        for buffer, first in zip(buffers, firsts, strict=bool(firsts)):
            buffer.first = first
        return [self._described(b, x, defined) for b, x in zip(buffers, whole, strict=True)]

    def alloc_repeated(
        self, number: np.generic, shape: tuple[int, ...], name: str = "A", defined: bool = True
    ) -> DeviceArray:
        """Map an array of one number, which takes room only where somebody writes."""
        array = repeated(shape, number, number.dtype)
        return self._mapped(name, array.reshape(-1).view(np.uint8), array, defined)

    def alloc_variable(self, name: str, variable: Variable) -> DeviceArray:
        """Map a variable of a module, as it is before the first launch."""
        data = np.zeros(variable.nbytes, np.uint8)
        data[: len(variable.init)] = np.frombuffer(variable.init, np.uint8)
        device = self.alloc(data, name)
        device.buffer.constant = variable.space == "const"
        return device

    def _mapped(
        self, name: str, data: npt.NDArray[np.uint8], array: npt.NDArray[Any], defined: bool,
        first: int = 0,
    ) -> DeviceArray:  # fmt: skip
        buffer = self.memory.add(name, data)
        buffer.first = first
        return self._described(buffer, array, defined)

    def _described(self, buffer: Buffer, array: npt.NDArray[Any], defined: bool) -> DeviceArray:
        if not defined:
            buffer.valid = repeated(buffer.nbytes, False, np.bool_)
        return DeviceArray(
            buffer.name, buffer.base, buffer.nbytes, array.dtype, array.shape, buffer
        )

    def alloc_zeros(self, nbytes: int, name: str = "A") -> DeviceArray:
        """Map so many bytes of zeros, which take room only where somebody writes.

        So there may be more of them than this machine has. Raises MissingError where it does not
        map them even so.
        """
        try:
            data = mapped_zeros(nbytes)
        except OSError as error:
            raise MissingError(
                f"this machine does not map {nbytes} bytes of zeros ({error.strerror}); "
                "allow it to overcommit memory"
            ) from None
        buffer = self.memory.add(name, data)
        return DeviceArray(name, buffer.base, nbytes, data.dtype, data.shape, buffer)

    def alloc_lines(
        self,
        lines: npt.NDArray[Any],
        pitch: int,
        name: str = "A",
        skip: int = 0,
        unit: int = 1,
    ) -> LineArray:
        """Map the lines of a 2-D array `pitch` bytes apart, with nothing mapped in between.

        So a matrix may have rows that are gigabytes long, of which only the bytes of `lines` exist.
        skip: bytes from the array's address to its first mapped line. unit: where it is more than
        1, gaps are mapped up to the end of the next so many bytes beside a line, all ones.
        """
        lines = np.ascontiguousarray(lines)
        address = self.memory.reserve(skip + len(lines) * pitch)
        # Without gaps, what is read at once may be of several lines: these are mapped together.
        runs = lines.reshape(1, -1) if pitch * len(lines) == lines.nbytes else lines
        places: list[tuple[Buffer, int]] = []
        for at, run in enumerate(runs):
            start = address + skip + at * pitch
            end = start + run.nbytes
            first = start // unit * unit - unit if at and unit > 1 else start
            last = -(-end // unit) * unit + unit if at + 1 < len(runs) and unit > 1 else end
            base = first // _WIDEST * _WIDEST  # wide reads count from where a buffer begins
            data = aligned_bytes(last - base)
            data[:] = 0xFF
            data[start - base : end - base] = run.view(np.uint8)
            buffer = self.memory.add(name, data, base)
            buffer.first = first - base
            places += [(buffer, x) for x in range(start - base, end - base, pitch)]
        whole = lines.nbytes, lines.dtype, lines.shape
        return LineArray(name, address, *whole, places[0][0], tuple(places))

    def alloc_pieces(
        self, pieces: Mapping[int, npt.NDArray[Any]], nbytes: int, name: str = "A"
    ) -> DeviceArray:
        """Map pieces of an array by the byte where each starts, and nothing between them."""
        address = self.memory.reserve(nbytes)
        mapped = []
        for start, piece in pieces.items():
            data = aligned_bytes(piece.nbytes)
            data[:] = np.ascontiguousarray(piece).view(np.uint8)
            mapped.append(self.memory.add(name, data, address + start))
        some = next(iter(pieces.values()))
        return DeviceArray(name, address, nbytes, some.dtype, some.shape, mapped[0])

    def read_lines(self, array: LineArray) -> npt.NDArray[Any]:
        """A copy of the lines that were mapped."""
        size = array.nbytes // len(array.lines)
        flat = b"".join(buffer.data[at : at + size].tobytes() for buffer, at in array.lines)
        return np.frombuffer(flat, array.dtype).reshape(array.shape).copy()

    def read(self, buf: DeviceArray) -> npt.NDArray[Any]:
        """A copy of a device array, with the type and shape that it was made with."""
        return self.view(buf).copy()

    def view(self, buf: DeviceArray) -> npt.NDArray[Any]:
        """A device array itself, which later launches change."""
        self._check_mapped(buf)
        array: npt.NDArray[Any] = buf.buffer.data.view(buf.dtype)
        return array.reshape(buf.shape)

    def free(self, buf: DeviceArray) -> None:
        """Unmap a device array; later accesses to it are findings."""
        self._check_mapped(buf)
        self.memory.remove(buf.buffer)
        kept = (item for item in self._maps.items() if item[1].buffer.buffer is not buf.buffer)
        self._maps = dict(kept)

    def encode(self, tensor: TensorMap) -> bytes:
        """The 128 bytes of a tensor map, as cuTensorMapEncodeTiled has them on a GPU.

        They may lie wherever a kernel looks for them, aligned to 64 bytes: in an array, or in a
        struct that is an argument (np.void). They are valid until the map's array is freed.
        """
        self._check_mapped(tensor.buffer)
        known = (number for number, one in self._maps.items() if one == tensor)
        number = next(known, None)
        if number is None:
            number = next(self._next_map)
            self._maps[number] = tensor
        return tensor.encode(number)

    def leaks(self) -> list[str]:
        """What kernels have got from malloc and not freed: who, where, and how many bytes."""
        return [f"{b.name}: {b.nbytes} bytes" for b in self.memory.heap.values()]

    def _check_mapped(self, buf: DeviceArray) -> None:
        if buf.buffer not in self.memory.buffers:
            raise UsageError(
                f"device array '{buf.name}' is not allocated in this emulator; "
                "it was freed, or belongs to another one"
            )
