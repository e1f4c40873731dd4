"""Variables of a file that the host may set and read: `__device__` and `__constant__` ones.

A host does so by cudaMemcpyToSymbol; here `--arg NAME=...` sets one, as an argument is given, and
launches leave its contents as those of a buffer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gen.errors import UsageError
from gen.foreign import elements
from gen.foreign.expressions import evaluated, split
from gen.foreign.scan import Unit
from gen.foreign.signature import Parameter, parameter_of

if TYPE_CHECKING:
    from gen.emulator import PtxModule, Variable

_SPACES = re.compile(r"\b__(?:device|constant|managed)__")
_NO_TYPE = re.compile(
    r'\b(?:__(?:device|constant|managed)__|static|inline|extern|constexpr|constinit)\b|"C"'
    r"|\b(?:alignas|__align__)\s*\([^()]*\)"
)

_CONSTANT = re.compile(r"\bconst(?:expr)?\b")


@dataclass(frozen=True)
class Declared:
    """A variable as the source declares it. `name` is with its namespace, `dims` as far as known.

    `parameter` is one that would hold an element of it.
    """

    name: str
    parameter: Parameter
    dims: tuple[int, ...] | None
    constant: bool = False  # whether the compiler may put its value into the code

    @property
    def kind(self) -> str | None:
        """Its element type, if it is known."""
        pointer = self.parameter.pointer
        return "u64" if pointer else elements.of_cxx(self.parameter.type)

    def shape(self, count: int) -> tuple[int, ...]:
        """Its dimensions, which have so many elements."""
        if self.dims and math.prod(self.dims) == count:
            return self.dims
        return (count,)


def declared(units: Iterable[Unit]) -> Iterator[Declared]:
    """The variables among declarations that the device has for as long as the program runs."""
    for unit in units:
        if unit.kind != "other" or not _SPACES.search(unit.head):
            continue
        first, *more = split(_NO_TYPE.sub(" ", unit.head))
        base = ""
        for text in (first, *more):
            text = " ".join(re.split(r"[={]", text, maxsplit=1)[0].split())
            bare, dims = re.sub(r"\[[^\]]*\]", "", text), re.findall(r"\[([^\]]*)\]", text)
            if "(" in text or not bare:  # a prototype
                break
            found = parameter_of(f"{base} {bare}", 0)
            if found.name == "0":
                break
            base = base or re.sub(r"[\s*]*\w+$", "", bare)
            constant = "*" not in text and _CONSTANT.search(unit.head) is not None
            yield Declared(unit.scope + found.name, found, _numbers(dims), constant)


def _numbers(dims: Iterable[str]) -> tuple[int, ...] | None:
    try:
        return tuple(evaluated(text, {}, "the dimension") for text in dims)
    except UsageError:  # a macro or a constant
        return None


def reachable(module: PtxModule) -> dict[str, Variable]:
    """The variables of a module that a host can set and read, by their symbols."""
    return {
        name: one
        for name, one in module.variables.items()
        if one.space in ("global", "const") and one.nbytes and not one.refused
    }


def named(plain_names: Mapping[str, str], wanted: str) -> str | None:
    """The symbol that a name stands for, with its namespace or without. Raises UsageError."""
    if wanted in plain_names.values():
        return next(symbol for symbol, name in plain_names.items() if name == wanted)
    found = [s for s, name in plain_names.items() if name.rpartition("::")[2] == wanted]
    if len(found) > 1:
        names = ", ".join(plain_names[symbol] for symbol in found)
        raise UsageError(f"--arg {wanted} may be {names}; name it with its namespace")
    return found[0] if found else None
