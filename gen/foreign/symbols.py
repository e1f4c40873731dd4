"""Sets variables of a file before a launch, as cudaMemcpyToSymbol does, and finds them after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gen.errors import UsageError
from gen.foreign import elements
from gen.foreign.arguments import argument
from gen.foreign.buffers import Buffer, Content, Memory, content_of
from gen.foreign.build import Built, plain
from gen.foreign.variables import Declared, named

if TYPE_CHECKING:
    from gen.emulator import Variable


def symbols_of(built: Built, names: Iterable[str]) -> dict[str, str]:
    """The symbols of variables among names that are no parameters', by these names.

    Raises UsageError.
    """
    own = {p.name for p in built.signature.parameters} if built.signature else set()
    known = {symbol: plain(symbol) for symbol in built.variables}
    found = {name: named(known, name) for name in names if name not in own}
    return {name: symbol for name, symbol in found.items() if symbol is not None}


def set_variable(
    name: str, symbol: str, value: Any, built: Built, memory: Memory, numbers: Mapping[str, int]
) -> None:
    """Gives a variable a value before a launch. Raises UsageError."""
    variable = built.variables[symbol]
    declared = _declared(built, symbol)
    if declared and declared.constant:
        raise UsageError(
            f"--arg {name}: the variable {name} is const, and the compiler may have put its value "
            "into the code; leave it out, or declare it without const"
        )
    content = _content(name, value, variable, declared, memory, numbers)
    data = np.ascontiguousarray(content.array).reshape(-1).view(np.uint8)
    if data.size > variable.nbytes:
        raise UsageError(
            f"--arg {name} has {data.size} bytes, but the variable has {variable.nbytes}; use a "
            "smaller shape"
        )
    if symbol not in memory.variables:
        memory.variables[symbol] = memory.emulator.alloc_variable(plain(symbol), variable)
    device = memory.variables[symbol]
    device.buffer.data[: data.size] = data  # the rest keeps what it has, as on a GPU
    if name not in memory.buffers:
        dtype = content.array.dtype
        array = device.buffer.data[: device.nbytes // dtype.itemsize * dtype.itemsize].copy()
        shape = content.array.shape if data.size == device.nbytes else (-1,)
        memory.buffers[name] = Buffer(name, content.kind, array.view(dtype).reshape(shape), device)


def _content(
    name: str, value: Any, variable: Variable, declared: Declared | None, memory: Memory,
    numbers: Mapping[str, int],
) -> Content:  # fmt: skip
    """What a value is for a variable."""
    from gen.emulator import DeviceArray, Param

    parameter = declared.parameter if declared else None
    pointer = parameter is not None and parameter.pointer
    if isinstance(value, np.ndarray) and not pointer:
        return Content(elements.of_dtype(value.dtype), value)
    if isinstance(value, str) and not pointer:
        element = replace(parameter, pointer=True) if parameter else None
        if content := content_of(name, value, element, numbers, memory.seed):
            return content
    kind = (declared.kind if declared else None) or "u8"
    size = elements.storage(kind).itemsize if declared and declared.kind else variable.nbytes
    text = value if isinstance(value, str) else "null" if value is None else str(value)
    if text.startswith("bytes:"):
        size = len(text.removeprefix("bytes:")) // 2
    found = argument(name, text, parameter, Param(name, f"b{8 * size}", size, 0), memory, numbers)
    raw = np.int64(found.address) if isinstance(found, DeviceArray) else found
    array = np.frombuffer(raw.tobytes(), np.uint8)
    return Content(kind, array.view(elements.storage(kind)) if declared else array)


def find_variables(built: Built, memory: Memory) -> None:
    """Makes buffers of the file's variables that launches have used, by their names."""
    symbols = {plain(symbol): symbol for symbol in built.variables}
    taken = {buffer.device for buffer in memory.buffers.values()}
    for one in built.declared:
        symbol = symbols.get(one.name, "")
        device = memory.variables.get(symbol)
        dtype = elements.storage(one.kind or "u8")
        if device is None or device in taken or device.nbytes % dtype.itemsize:
            continue
        name = one.name.rpartition("::")[2]
        name = one.name if name in memory.buffers else name
        if name in memory.buffers:  # of a parameter, which hides it here as in the kernel
            continue
        init = built.variables[symbol].init
        array = np.zeros(device.nbytes, np.uint8)
        array[: len(init)] = np.frombuffer(init, np.uint8)
        array = array.view(dtype).reshape(one.shape(array.size // dtype.itemsize))
        memory.buffers[name] = Buffer(name, one.kind or "u8", array, device)


def is_pointer(built: Built, symbol: str) -> bool:
    """Whether a variable is a pointer."""
    declared = _declared(built, symbol)
    return declared is not None and declared.parameter.pointer


def _declared(built: Built, symbol: str) -> Declared | None:
    name = plain(symbol)
    return next((one for one in built.declared if one.name == name), None)
