"""Buffers of launches: what they are made of, `f32[64,64]:random` or a file, and where they are."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gen.errors import UsageError
from gen.foreign import elements
from gen.foreign.contents import UNDEFINED, filled, load, one_number
from gen.foreign.expressions import evaluated, split
from gen.foreign.signature import Parameter

if TYPE_CHECKING:
    from gen.emulator import DeviceArray, Emulator

MAX_BYTES = 1 << 32
_LARGE = 1 << 28  # bytes from which on it matters how much memory there is

_BUFFER = re.compile(r"(?P<type>\w*)\[(?P<shape>[^\[\]]*)\](?::(?P<fill>.+))?")


@dataclass(frozen=True)
class Content:
    """What a buffer holds before the first launch, as storage; `number` if that is one number."""

    kind: str
    array: np.ndarray
    number: np.generic | None = None
    defined: bool = True


@dataclass
class Buffer:
    """Memory that launches share, by its name."""

    name: str
    type: str
    array: np.ndarray  # storage, as it was before the first launch
    device: DeviceArray

    def now(self) -> np.ndarray:
        """What it holds, as storage, which later launches change."""
        data = self.device.buffer.data[: self.array.nbytes]
        return data.view(self.array.dtype).reshape(self.array.shape)


@dataclass
class Memory:
    """The buffers of several launches, and the variables of their file, by symbols."""

    emulator: Emulator
    seed: int = 0
    buffers: dict[str, Buffer] = field(default_factory=dict)
    variables: dict[str, DeviceArray] = field(default_factory=dict)

    def add(self, name: str, content: Content) -> Buffer:
        """A new buffer, which takes the name from one before it."""
        array, number = content.array, content.number
        if number is None:
            device = self.emulator.alloc(array, name, content.defined)
        else:
            device = self.emulator.alloc_repeated(number, array.shape, name, content.defined)
        self.buffers[name] = buffer = Buffer(name, content.kind, array, device)
        return buffer


def content_of(
    name: str, text: str, parameter: Parameter | None, numbers: Mapping[str, int], seed: int
) -> Content | None:
    """What a text describes if it describes a buffer. Raises UsageError."""
    if text.endswith(".npy") and "[" not in text:
        content = _of_file(name, text, None, None)
        check_array(name, content.kind, parameter)
        return content
    found = _BUFFER.fullmatch(text)
    if found is None:
        return None
    _check_type(name, text, found["type"], parameter)
    kind = found["type"] or (parameter and elements.of_cxx(parameter.type))
    if not kind:
        raise UsageError(
            f"--arg {name}={text} names no element type, and the source tells none that is "
            f"known; write one before [, such as f32{text}"
        )
    itemsize = elements.storage(kind).itemsize
    shape = tuple(
        evaluated(part, numbers, f"the shape of --arg {name}") for part in split(found["shape"])
    )
    if any(size < 0 for size in shape):
        raise UsageError(f"the shape of --arg {name} has a negative size: {list(shape)}")
    total = math.prod(shape) * itemsize
    if total > MAX_BYTES:
        raise UsageError(
            f"--arg {name} has {total} bytes; at most {MAX_BYTES} are possible, use a smaller shape"
        )
    fill = (found["fill"] or "random").strip()
    if Path(fill).suffix in (".npy", ".bin"):
        return _of_file(name, fill, kind, shape)
    number = one_number(fill, kind)
    if total >= _LARGE:
        _check_room(name, kind, math.prod(shape), number is None)
    array = filled(fill, kind, shape, seed, name)
    return Content(kind, array, number, fill not in UNDEFINED)


def _check_room(name: str, kind: str, count: int, drawn: bool) -> None:
    """Refuses a large buffer that there is no memory for."""
    from gen.spread.processes import free_memory

    each = 0
    if drawn:  # wider while they are drawn; then before and after each of two runs
        each = 8 + 4 * elements.storage(kind).itemsize
    if elements.is_narrow(kind):  # which are compared as float32, by way of float64
        each += 16
    needed, free = each * count, free_memory()
    if needed <= free:
        return
    out = f"u{8 * elements.storage(kind).itemsize}[...]:undefined" if not drawn else "undefined"
    raise UsageError(
        f"--arg {name} takes {needed >> 20} MiB, and {free >> 20} MiB are free; use a smaller "
        f"shape, or {out}, zeros or a number, which take room only where the kernel writes"
    )


def check_array(name: str, kind: str, parameter: Parameter | None) -> None:
    """Refuses an array of `kind` where the source wants floats of another, or other sizes."""
    if parameter is None or not parameter.pointer or _is_of_pointers(parameter):
        return
    wanted = elements.of_cxx(parameter.type)
    if wanted is None or kind == wanted:
        return
    floats = {kind, wanted} & set(elements.FLOATS) and {kind, wanted} != {"f32", "tf32"}
    if floats or elements.storage(kind).itemsize != elements.storage(wanted).itemsize:
        raise UsageError(
            f"the array of {name} has elements of {kind}, but {parameter.text} points to {wanted}; "
            f"convert it, as array.astype does, or have it reinterpreted by array.view"
        )


def _is_of_pointers(parameter: Parameter) -> bool:
    """Whether it points to pointers, or is an array of them."""
    return re.search(r"\*[^()]*[*\[]", parameter.text) is not None


def _check_type(name: str, text: str, kind: str, parameter: Parameter | None) -> None:
    """Refuses a buffer where the source wants a number, or floats of another type."""
    if parameter and _is_of_pointers(parameter):
        if kind != "u64":
            raise UsageError(
                f"--arg {name}={text}: {parameter.text} points to pointers, to which addresses of "
                "other buffers cannot be given; u64[...]:zeros are null pointers"
            )
        return
    wanted = elements.of_cxx(parameter.type) if parameter else None
    if parameter is None or wanted is None:
        return
    if not parameter.pointer:
        raise UsageError(
            f"--arg {name}={text} is a buffer, but {parameter.text} is a number; give one, such as "
            f"--arg {name}=64"
        )
    same = {wanted, "tf32" if wanted == "f32" else wanted}
    if kind and kind not in same and wanted in elements.FLOATS:
        raise UsageError(
            f"--arg {name}={text} has elements of {kind}, but {parameter.text} points to {wanted}; "
            f"write {text.replace(kind, wanted, 1)}"
        )


def _of_file(name: str, path: str, kind: str | None, shape: tuple[int, ...] | None) -> Content:
    array = load(Path(path), kind)
    kind = kind or elements.of_dtype(array.dtype)
    if shape is not None and array.size != math.prod(shape):
        raise UsageError(
            f"{path} has {array.size} elements, but --arg {name} has {math.prod(shape)}; "
            "change the shape or the file"
        )
    return Content(kind, array if shape is None else array.reshape(shape))
