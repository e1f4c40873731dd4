"""numpy types and values of PTX registers and immediates."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from gen.emulator.isa import DTYPES
from gen.emulator.module import TYPE_BYTES, Instruction
from gen.emulator.operands import Imm


def register_dtype(kind: str) -> Any:
    """The numpy type that a register holds: signed integers for bits, whatever their use."""
    size = TYPE_BYTES[kind]
    return DTYPES[kind] if kind in ("pred", "f32", "f64") else np.dtype(f"i{size}")


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
