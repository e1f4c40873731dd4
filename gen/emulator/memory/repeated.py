"""Arrays of one number over and over, which take room only where somebody writes.

A buffer of gigabytes, and what checks keep about each byte of it, are mostly never touched. Zeros
come like that from the operating system; other numbers come from a small file in memory, which is
mapped again and again.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
from typing import Any

import numpy as np
import numpy.typing as npt

MAP_NORESERVE = 0x4000  # of Linux; Python's mmap names it from 3.13 on
_MAP_FIXED = 0x10
_PIECE = 1 << 24  # bytes of the file: a process may have some 65,000 mappings
_SMALL = 4 * _PIECE  # such arrays are filled
_PRIVATE = mmap.MAP_PRIVATE | MAP_NORESERVE
_FAILED = ctypes.c_void_p(-1).value


def mapped_zeros(nbytes: int) -> npt.NDArray[np.uint8]:
    """So many bytes of zeros, perhaps more than this machine has. Raises OSError."""
    return np.frombuffer(mmap.mmap(-1, nbytes, _PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)


def repeated(shape: int | tuple[int, ...], number: Any, dtype: Any) -> npt.NDArray[Any]:
    """As np.full. Raises MemoryError where that would."""
    dtype = np.dtype(dtype)
    nbytes = math.prod(shape if isinstance(shape, tuple) else (shape,)) * dtype.itemsize
    if nbytes < _SMALL:
        return np.full(shape, number, dtype)
    pattern = np.full(_PIECE // dtype.itemsize, number, dtype)
    try:
        data = mapped_zeros(nbytes)
        if pattern.view(np.uint8).any():
            _map_over(data, pattern.tobytes())
    except OSError:  # of a system that maps less
        return np.full(shape, number, dtype)
    array: npt.NDArray[Any] = data.view(dtype)
    return array.reshape(shape)


def _map_over(data: npt.NDArray[np.uint8], pattern: bytes) -> None:
    """Puts private copies of a pattern in the place of an array's pages, without touching them."""
    call = ctypes.CDLL(None, use_errno=True).mmap
    call.restype = ctypes.c_void_p
    call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
    file = os.memfd_create("repeated")
    try:
        os.write(file, pattern)
        for at in range(0, data.size, len(pattern)):
            size = min(len(pattern), data.size - at)
            where, rights = data.ctypes.data + at, mmap.PROT_READ | mmap.PROT_WRITE
            if call(where, size, rights, _PRIVATE | _MAP_FIXED, file, 0) == _FAILED:
                raise OSError(ctypes.get_errno(), "mmap")
    finally:
        os.close(file)
