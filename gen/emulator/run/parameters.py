"""The parameters of a kernel, as the arguments of launches lie in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gen.emulator.memory.buffers import aligned_bytes
from gen.emulator.ptx.module import PtxKernel
from gen.errors import UsageError

_UNIT = 128  # bytes: the parameters of launches that run abreast are multiples of these apart


def laid_out(
    kernel: PtxKernel, each: Sequence[Sequence[bytes]]
) -> tuple[npt.NDArray[np.uint8], int]:
    """The bytes of all launches' parameters, one launch behind the other, and how far apart."""
    nbytes = sum(p.offset + p.nbytes for p in kernel.params[-1:])
    pitch = -(-nbytes // _UNIT) * _UNIT
    data = aligned_bytes((len(each) - 1) * pitch + nbytes)
    for number, arguments in enumerate(each):
        _lay_out(kernel, arguments, data[number * pitch :])
    return data, pitch


def _lay_out(kernel: PtxKernel, arguments: Sequence[bytes], data: npt.NDArray[Any]) -> None:
    if len(arguments) != len(kernel.params):
        raise UsageError(
            f"kernel '{kernel.name}' has {len(kernel.params)} parameters, got {len(arguments)} "
            "arguments; pass one for each, in order"
        )
    for at, (param, raw) in enumerate(zip(kernel.params, arguments, strict=True)):
        if len(raw) != param.nbytes:
            raise UsageError(
                f"argument {at} of '{kernel.name}' has {len(raw)} bytes, but its parameter "
                f"(.{param.type}) has {param.nbytes}; pass a type of that size"
            )
        data[param.offset : param.offset + param.nbytes] = np.frombuffer(raw, np.uint8)
