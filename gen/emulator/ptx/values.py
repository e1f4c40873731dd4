"""numpy types and values of PTX registers and immediates."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from gen.emulator.ptx.module import TYPE_BYTES, Instruction
from gen.emulator.ptx.operands import Imm

DTYPES: dict[str, Any] = {
    **{f"{kind}{bits}": np.dtype(f"i{bits // 8}") for kind in "bs" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": np.dtype(f"u{bits // 8}") for bits in (8, 16, 32, 64)},
    "pred": np.dtype(np.bool_),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(np.uint16),  # as bits
    "f16x2": np.dtype(np.int32),
    "bf16x2": np.dtype(np.int32),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "b128": np.dtype(np.complex128),  # as bits: numpy has no integers of that size
}


def register_dtype(kind: str) -> Any:
    """The numpy type that a register holds: signed integers for bits, whatever their use."""
    size = TYPE_BYTES[kind]
    return DTYPES[kind] if kind in ("pred", "f32", "f64", "b128") else np.dtype(f"i{size}")


def immediate(operand: Imm, dtype: Any, item: Instruction) -> Any:
    """An immediate as a numpy scalar of `dtype`; hexadecimal floats keep their bits."""
    value, prefix = operand.value, operand.text[:2].lower()
    if dtype == np.bool_:
        return np.bool_(value)
    if isinstance(value, float):
        if dtype.kind == "f":
            return dtype.type(value)
        packed = struct.pack("<f" if prefix == "0f" else "<d", value)
        if prefix not in ("0f", "0d") or len(packed) != dtype.itemsize:
            raise item.error(f"immediate {operand.text} does not fit {dtype}")
        return np.frombuffer(packed, dtype)[0]
    raw = (value % (1 << 8 * dtype.itemsize)).to_bytes(dtype.itemsize, "little")
    if dtype.kind == "f" and dtype.itemsize > 2:
        return dtype.type(value)
    return np.frombuffer(raw, dtype)[0]
