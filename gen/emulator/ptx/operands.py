"""Operands of PTX instructions, and the immediates that PTX writes in several ways."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass

from gen.errors import PtxError


@dataclass(frozen=True)
class Reg:
    """A register by its unique name (`p#2` is the `p` of a second scope)."""

    name: str

    def __str__(self) -> str:
        return self.name.partition("#")[0]


@dataclass(frozen=True)
class Imm:
    """An immediate; `value` is an int, or a float for `0f`, `0d` and decimal spellings."""

    value: int | float
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Special:
    """A read-only register such as `%tid.x`."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Symbol:
    """A variable, parameter, label or function name, plus a byte offset."""

    name: str
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.name}+{self.offset}" if self.offset else self.name


SINK = Symbol("_")  # where an instruction's result goes that nobody wants


@dataclass(frozen=True)
class Address:
    """`[base+offset]`, offset in bytes."""

    base: Reg | Symbol | Imm
    offset: int = 0

    def __str__(self) -> str:
        return f"[{self.base}+{self.offset}]" if self.offset else f"[{self.base}]"


@dataclass(frozen=True)
class Box:
    """`[map, {x, y, ...}]`: a box of a tensor, by its map and the coordinates of its corner."""

    map: Address
    corner: Vector

    def __str__(self) -> str:
        return f"[{str(self.map)[1:-1]}, {self.corner}]"


@dataclass(frozen=True)
class Vector:
    """`{a, b, ...}`; an item `_` is a result nobody wants (None)."""

    items: tuple[Reg | Imm | None, ...]

    def __str__(self) -> str:
        return "{" + ", ".join("_" if item is None else str(item) for item in self.items) + "}"


@dataclass(frozen=True)
class Pair:
    """`p|q`: two results."""

    first: Reg | None
    second: Reg | None

    def __str__(self) -> str:
        return f"{self.first or '_'}|{self.second or '_'}"


@dataclass(frozen=True)
class Not:
    """`!p`: a negated predicate operand."""

    reg: Reg

    def __str__(self) -> str:
        return f"!{self.reg}"


Operand = Reg | Imm | Special | Symbol | Address | Box | Vector | Pair | Not
Resolve = Callable[[str], Reg | None]

_NUMBER_STARTS = frozenset("+-.0123456789")
_INT = re.compile(r"([+-]?)\s*(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")
_BOX = re.compile(r"\[\s*([^,]+?)\s*,\s*(\{[^{}]*\})\s*\]$")
_OFFSET = re.compile(r"(.+?)\s*([+-])\s*(-?\s*(?:0[xX][0-9a-fA-F]+|\d+))$")


_BRACKET = re.compile(r"[\[\](){}]")


def split_operands(text: str) -> list[str]:
    """Split at the commas that are outside brackets."""
    if not _BRACKET.search(text):
        items = [item.strip() for item in text.split(",")]
        if items[-1]:
            return items
    items, depth, start = [], 0, 0
    for at, char in enumerate(text):
        if char in "[{(":
            depth += 1
        elif char in "]})":
            depth -= 1
        elif char == "," and not depth:
            items.append(text[start:at].strip())
            start = at + 1
    last = text[start:].strip()
    if depth or (items and not last):
        raise PtxError(f"malformed PTX operands: '{text}'")
    return [*items, last] if last else items


def parse_number(text: str) -> int | float | None:
    """The value of an immediate (`12`, `-0x1F`, `0f3F800000`, `0d...`, `1.5`), else None."""
    if text[:1] not in _NUMBER_STARTS:
        return None
    if match := _INT.match(text):
        digits = match[2]
        octal = len(digits) > 1 and digits.isdigit() and digits[0] == "0"
        value = int(digits, 8 if octal else 0)
        return -value if match[1] == "-" else value
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", text):
        return float(struct.unpack(">f", bytes.fromhex(text[2:]))[0])
    if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", text):
        return float(struct.unpack(">d", bytes.fromhex(text[2:]))[0])
    if re.fullmatch(r"[+-]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][+-]?\d+)?", text):
        return float(text)
    return None


def parse_operand(text: str, resolve: Resolve) -> Operand:
    """One operand; `resolve` gives the register that a name means in its scope, or None."""
    if text[:1] == "[":
        return _address(text, resolve)
    if text[:1] == "(":  # the lists of a call, which is refused by name later
        return Symbol(text)
    if text[:1] == "{":
        return Vector(tuple(_item(item, resolve) for item in split_operands(text[1:-1])))
    if text[:1] == "!":
        return Not(_register(text[1:].strip(), resolve))
    if "|" in text:
        left, _, right = text.partition("|")
        return Pair(_sink(left.strip(), resolve), _sink(right.strip(), resolve))
    number = parse_number(text)
    if number is not None:
        return Imm(number, text)
    reg = resolve(text)
    if reg is not None:
        return reg
    if text[:1] == "%":
        return Special(text)
    return _symbol(text)


def _register(text: str, resolve: Resolve) -> Reg:
    reg = resolve(text)
    if reg is None:
        raise PtxError(f"undeclared register '{text}' in the PTX")
    return reg


def _sink(text: str, resolve: Resolve) -> Reg | None:
    return None if text == "_" else _register(text, resolve)


def _item(text: str, resolve: Resolve) -> Reg | Imm | None:
    number = parse_number(text)
    return Imm(number, text) if number is not None else _sink(text, resolve)


def _symbol(text: str) -> Symbol:
    if match := _OFFSET.match(text):
        offset = int(match[3].replace(" ", ""), 0)
        return Symbol(match[1], -offset if match[2] == "-" else offset)
    if not re.fullmatch(r"[\w$.]+", text):
        raise PtxError(f"malformed PTX operand: '{text}'")
    return Symbol(text)


def _address(text: str, resolve: Resolve) -> Address | Box:
    inner, offset = text[1:-1].strip(), 0
    if match := _BOX.match(text):
        place, corner = _address(f"[{match[1]}]", resolve), parse_operand(match[2], resolve)
        assert isinstance(place, Address)
        assert isinstance(corner, Vector)
        return Box(place, corner)
    if text[-1] != "]" or not inner or "," in inner:
        raise PtxError(f"malformed or unsupported PTX address: '{text}'")
    if match := _OFFSET.match(inner):
        offset = int(match[3].replace(" ", ""), 0)
        inner, offset = match[1], -offset if match[2] == "-" else offset
    number = parse_number(inner)
    if number is not None:
        return Address(Imm(number, inner), offset)
    return Address(resolve(inner) or _symbol(inner), offset)


def typed_bytes(text: str, kind: str, size: int) -> bytes | None:
    """The bytes of an initialiser `1`, `{1, 2}` or `{{1, 2}, {3, 4}}`; None if not numeric."""
    out = b""
    for item in text.replace("{", " ").replace("}", " ").split(","):
        value = parse_number(item.strip())
        if value is None:
            return None
        if kind in ("f32", "f64"):
            out += struct.pack("<f" if kind == "f32" else "<d", float(value))
        elif isinstance(value, float):
            return None
        else:
            out += (value % (1 << 8 * size)).to_bytes(size, "little")
    return out
