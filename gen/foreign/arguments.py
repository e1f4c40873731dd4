"""`--arg NAME=VALUE`: buffers with a type, a shape and a content; numbers; null; offsets; bytes.

::

    A=f32[64,64]:random     64 x 64 floats; also integers, zeros, ones, iota, undefined, 3.5, FILE
    out=f32[n*4]:poison     a shape may use the numbers among the arguments
    n=64  alpha=f32:1.5     a number, of the parameter's type or of one that is named
    B=A+16                  a pointer to the 17th element of A, or to a buffer of an earlier launch
    p=null  s=bytes:0102ff  a null pointer; a structure by its bytes
    m=tensormap(A,box=8x64) a tensor map of a buffer: see `tensor_maps`
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gen.errors import UsageError
from gen.foreign import elements
from gen.foreign.buffers import Memory, content_of
from gen.foreign.expressions import evaluated
from gen.foreign.signature import Parameter
from gen.foreign.tensor_maps import FORM, is_tensor_map, tensor_map_of

if TYPE_CHECKING:
    from gen.emulator import PtxKernel
    from gen.foreign.build import Built

_POINTER = re.compile(r"(?P<name>[A-Za-z_]\w*)(?:\+(?P<offset>[^+].*))?")
_NUMBER = re.compile(r"[-+]?(\d|\.\d|0[xX]|inf|nan)[\w.+-]*|true|false", re.IGNORECASE)


def numbers_of(arguments: Mapping[str, str]) -> dict[str, int]:
    """The integers among arguments: what shapes and grids may use."""
    found = {}
    for name, text in arguments.items():
        kind, _, value = text.rpartition(":")
        if re.fullmatch(r"-?(\d+|0[xX][0-9a-fA-F]+)", value) and kind in ("", *elements.NAMES):
            found[name] = int(value, 0)
    return found


def parse_pairs(arguments: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE` texts by name. Raises UsageError."""
    found: dict[str, str] = {}
    for text in arguments:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise UsageError(
                f"--arg '{text}' is not NAME=VALUE, such as A=f32[64,64]:random or n=64"
            )
        if name.strip() in found:
            raise UsageError(f"--arg {name.strip()} is given twice; a parameter has one value")
        found[name.strip()] = value.strip()
    return found


def is_null(text: str) -> bool:
    """Whether an argument is a null pointer."""
    return text.lower() in ("null", "nullptr")


def in_order(given: Mapping[str, Any], built: Built) -> list[tuple[str, Parameter | None, Any]]:
    """Each parameter's name, declaration and argument.

    By name where the source shows the names, or PTX has these, and in order elsewhere. Raises
    UsageError.
    """
    signature, kernel, title = built.signature, built.kernel, built.title
    count = len(kernel.params)
    if signature is None:
        if len(given) != count:
            raise UsageError(
                f"{title} has {count} parameters ({_types(kernel)}), got {len(given)} arguments; "
                "pass one --arg for each, in order"
            )
        own = [param.name for param in kernel.params]
        names = own if {*own} == {*given} else [*given]
        return [(name, None, given[name]) for name in names]
    names = [parameter.name for parameter in signature.parameters]
    wrong = [name for name in given if name not in names]
    lacking = [name for name in names if name not in given]
    if wrong or lacking:
        variables = ", ".join(one.name for one in built.declared)
        nor = f" among them, nor among the variables {variables}" if variables else ""
        said = [f"there is no {', '.join(wrong)}{nor}"] if wrong else []
        said += [f"--arg lacks {', '.join(lacking)}"] if lacking else []
        said += [
            f"{p.name} is a tensor map, such as --arg '{p.name}={FORM}'"
            for p in signature.parameters
            if p.name in lacking and is_tensor_map(p)
        ][:1]
        raise UsageError(f"arguments of {signature}: {'; '.join(said)}")
    return [(p.name, p, given[p.name]) for p in signature.parameters]


def _types(kernel: PtxKernel) -> str:
    return ", ".join(f".{p.type} of {p.nbytes} bytes" for p in kernel.params)


def argument(
    name: str, text: str, parameter: Parameter | None, param: Any, memory: Memory,
    numbers: Mapping[str, int],
) -> Any:  # fmt: skip
    """The argument that a text stands for, as `Emulator.launch` takes it. Raises UsageError."""
    if is_null(text):
        return _sized(name, np.uint64(0), param)
    if text.startswith("bytes:"):
        return _raw(name, text[6:], param)
    if is_tensor_map(parameter) or text.startswith("tensormap("):
        return tensor_map_of(name, text, parameter, memory, numbers)
    if content := content_of(name, text, parameter, numbers, memory.seed):
        return memory.add(name, content).device
    pointer = _POINTER.fullmatch(text)
    if pointer and pointer["name"] in memory.buffers:
        target = memory.buffers[pointer["name"]]
        count = evaluated(pointer["offset"] or "0", numbers, f"the offset of --arg {name}")
        return _sized(name, np.uint64(target.device.address + count * target.array.itemsize), param)
    return _number(name, text, parameter, param, memory)


def _sized(name: str, value: Any, param: Any) -> Any:
    if param.nbytes != 8:
        raise UsageError(
            f"--arg {name} is a pointer, but its parameter (.{param.type}) has {param.nbytes} "
            f"bytes; pass {'a number' if param.nbytes < 8 else 'its bytes, as bytes:0102ff00'}"
        )
    return value


def _raw(name: str, digits: str, param: Any) -> Any:
    try:
        data = bytes.fromhex(digits)
    except ValueError:
        raise UsageError(f"--arg {name}: '{digits}' is not bytes in hexadecimal digits") from None
    if len(data) != param.nbytes:
        raise UsageError(
            f"--arg {name} has {len(data)} bytes, but its parameter has {param.nbytes}"
        )
    return np.frombuffer(data, f"V{len(data)}")[0]


_PTX = {"f16": "f16", "bf16": "bf16", "b8": "u8", "b16": "u16", "b32": "u32", "b64": "u64"}


def _number(
    name: str, text: str, parameter: Parameter | None, param: Any, memory: Memory
) -> np.generic:
    explicit, colon, value = text.rpartition(":")
    kind = explicit if colon else _kind_of(parameter, param)
    if parameter is not None and parameter.pointer:
        known = ", ".join(memory.buffers) or "none so far"
        raise UsageError(
            f"--arg {name}={text}: {parameter.text} is a pointer; give a buffer such as "
            f"f32[64]:random, null, or one of the buffers ({known})"
        )
    if kind is None:
        shown = parameter.text if parameter else param.name
        raise UsageError(
            f"--arg {name}={text}: the parameter {shown} has {param.nbytes} bytes of no known "
            "type; write its bytes, as bytes:00ff, or a type, as bf16:1.5"
        )
    dtype = elements.storage(kind)
    try:
        if kind == "bool":
            number: Any = {"true": 1, "false": 0}.get(value.lower())
            number = int(value, 0) if number is None else number
        elif kind in elements.FLOATS:
            number = float(value)
        else:
            number = int(value, 0)
    except ValueError:
        known = f"; the buffers are {', '.join(memory.buffers)}" if memory.buffers else ""
        raise UsageError(
            f"--arg {name}={text} is not a number of type {kind}, nor a buffer such as "
            f"f32[64]:random{known}"
        ) from None
    if dtype.kind in "iu" and kind not in elements.FLOATS:
        info = np.iinfo(dtype)
        if not -(2 ** (info.bits - 1)) <= number <= np.iinfo(f"u{dtype.itemsize}").max:
            raise UsageError(f"--arg {name}={text} does not fit {kind}")
        if not info.min <= number <= info.max:  # -1 of an unsigned parameter, as in C++
            number = (number + 2**info.bits) % 2**info.bits
            number = number if number <= info.max else number - 2**info.bits
    result: Any = elements.stored(np.asarray(number), kind)[()]
    if result.nbytes != param.nbytes:
        raise UsageError(
            f"--arg {name}={text} has {result.nbytes} bytes as {kind}, but its parameter "
            f"(.{param.type}) has {param.nbytes}; name a type of that size"
        )
    return result  # type: ignore[no-any-return]


def _kind_of(parameter: Parameter | None, param: Any) -> str | None:
    """The element type of a parameter that is a number: as the source says, else as PTX does."""
    kind: str | None = elements.of_cxx(parameter.type) if parameter else None
    if kind and elements.storage(kind).itemsize == param.nbytes:
        return kind
    if param.type[0] in "usf" and param.type[1:].isdigit():
        kind = param.type.replace("s", "i")
        if elements.storage(kind).itemsize == param.nbytes:
            return "i" + kind[1:] if kind[0] == "u" else kind
    found = _PTX.get(param.type)
    return found if found and elements.storage(found).itemsize == param.nbytes else None
