"""Tensor maps as arguments: `map=tensormap(f16[256,64]:random,box=64x64,swizzle=128)`.

The first part is a buffer, which is called as the parameter is, or the name of one. Its shape is
the tensor's, and the box has as many sizes, the slowest dimension first. A parameter that is a
pointer gets the address of a map in global memory.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from gen.errors import UsageError, unknown
from gen.foreign.buffers import Buffer, Memory, content_of
from gen.foreign.expressions import evaluated, split
from gen.foreign.signature import Parameter

if TYPE_CHECKING:
    from gen.emulator import DeviceArray, TensorMap

MAP_BYTES = 128
FORM = "tensormap(f16[256,64]:random,box=64x64,swizzle=128)"

_FORM = re.compile(r"tensormap\((?P<inner>.*)\)", re.IGNORECASE)
_OPTIONS = ("box", "swizzle", "steps")
_NAMES = {"i8": "u8", "bool": "u8", "e4m3": "u8", "e5m2": "u8", "i16": "u16", "i32": "s32",
          "i64": "s64"}  # fmt: skip


def is_tensor_map(parameter: Parameter | None) -> bool:
    """Whether a parameter is a tensor map, or points to one."""
    return parameter is not None and re.search(r"\bCUtensorMap", parameter.type) is not None


def tensor_map_of(
    name: str, text: str, parameter: Parameter | None, memory: Memory, numbers: Mapping[str, int]
) -> TensorMap | DeviceArray:
    """The map that a text describes, or its address for a pointer. Raises UsageError."""
    from gen.emulator import TensorMap

    found = _FORM.fullmatch(text)
    if found is None:
        raise UsageError(
            f"--arg {name}={text}: {parameter.text if parameter else name} is a tensor map; give a "
            f"buffer and the box that a copy moves, such as --arg '{name}={FORM}'"
        )
    first, *rest = (part.strip() for part in split(found["inner"]))
    options = _options(name, text, rest)
    buffer = _buffer(name, first, memory, numbers)
    shape, itemsize = buffer.array.shape, buffer.array.itemsize

    def sizes(option: str) -> tuple[int, ...]:
        """An option's sizes, the fastest dimension first."""
        parts = options[option].split("x")
        if len(parts) != len(shape):
            raise UsageError(
                f"--arg {name}: {option}={options[option]} has {len(parts)} sizes, but "
                f"{buffer.name} has {len(shape)} dimensions; give one for each"
            )
        what = f"the {option} of --arg {name}"
        return tuple(evaluated(part, numbers, what) for part in reversed(parts))

    dense = [math.prod(shape[at:]) * itemsize for at in range(len(shape) - 1, 0, -1)]
    swizzle = options.get("swizzle", "0").upper().removesuffix("B")
    tensor_map = TensorMap(
        buffer.device, _NAMES.get(buffer.type, buffer.type), tuple(reversed(shape)),
        tuple(dense), sizes("box"), sizes("steps") if "steps" in options else (),
        0 if swizzle == "NONE" else evaluated(swizzle, numbers, f"the swizzle of --arg {name}"),
    )  # fmt: skip
    if parameter is None or not parameter.pointer:
        return tensor_map
    encoded = np.frombuffer(memory.emulator.encode(tensor_map), np.uint8)
    return memory.emulator.alloc(encoded, f"the map {name}")


def _options(name: str, text: str, parts: list[str]) -> dict[str, str]:
    options = dict(part.replace(" ", "").split("=", 1) for part in parts if "=" in part)
    for option in options:
        if option not in _OPTIONS:
            raise unknown(f"option of --arg {name}=tensormap", option, _OPTIONS)
    if "box" not in options or len(options) != len(parts):
        raise UsageError(
            f"--arg {name}={text} is not a buffer with the box that a copy moves; write it as "
            f"{FORM}"
        )
    return options


def _buffer(name: str, text: str, memory: Memory, numbers: Mapping[str, int]) -> Buffer:
    if text in memory.buffers:
        return memory.buffers[text]
    content = content_of(name, text, None, numbers, memory.seed)
    if content is None:
        known = ", ".join(memory.buffers) or "none so far"
        raise UsageError(
            f"--arg {name}: '{text}' is neither a buffer, such as f16[256,64]:random, nor the name "
            f"of one ({known})"
        )
    return memory.add(name, content)
