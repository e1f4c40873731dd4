"""The kernels of a file, and the names and types of their parameters, from the CUDA source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gen.foreign.expressions import split
from gen.foreign.scan import Unit

_BOUNDS = re.compile(r"\b(?:__launch_bounds__|__block_size__|__cluster_dims__|__maxnreg__)\s*\(")
_NAME = re.compile(r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*$")
_WORDS = re.compile(
    r"\b(?:const|volatile|__restrict__|__restrict|restrict|__grid_constant__|struct)\b"
)
_NO_NAMES = frozenset(
    [
        "int",
        "float",
        "double",
        "char",
        "short",
        "long",
        "unsigned",
        "signed",
        "bool",
        "void",
        "size_t",
        "auto",
    ]
)


@dataclass(frozen=True)
class Parameter:
    """A parameter as the source has it. `type` is without `const`, and without `*` for pointers."""

    name: str
    type: str
    pointer: bool
    text: str

    @property
    def writable(self) -> bool:
        """Whether it points to what a kernel may write."""
        return self.pointer and not re.search(r"\bconst\b", self.text.partition("*")[0])


@dataclass(frozen=True)
class Signature:
    """A kernel as the source declares it. `template` is empty for one that is not a template."""

    name: str  # with its namespace
    template: str
    parameters: tuple[Parameter, ...]
    start: int  # where its declaration begins in the file
    end: int

    def __str__(self) -> str:
        inner = ", ".join(parameter.text for parameter in self.parameters)
        return f"{self.name}{'<...>' if self.template else ''}({inner})"


def kernels_of(units: Iterable[Unit]) -> Iterator[Signature]:
    """The kernels that are defined among declarations, in order."""
    for unit in units:
        if unit.kind == "function" and re.search(r"__global__\b", unit.head):
            found = _signature(unit)
            if found:
                yield found


def _signature(unit: Unit) -> Signature | None:
    head, template = unit.head, ""
    while match := re.match(r"template\s*<", head):
        stop = _closing(head, match.end() - 1)
        template, head = head[match.end() : stop - 1].strip() or template, head[stop:].lstrip()
    while match := _BOUNDS.search(head):
        head = head[: match.start()] + head[_closing(head, match.end() - 1) :]
    opening = head.find("(")
    name = re.search(r"([A-Za-z_]\w*)\s*$", head[:opening])
    if opening < 0 or not name:
        return None
    inner = head[opening + 1 : _closing(head, opening) - 1]
    parts = [part for part in split(inner) if part.strip() not in ("", "void")]
    parameters = tuple(parameter_of(part, at) for at, part in enumerate(parts))
    return Signature(unit.scope + name[1], template, parameters, unit.start, unit.end)


def parameter_of(text: str, at: int) -> Parameter:
    """A parameter from its declaration; one without a name is called by its place."""
    text = " ".join(text.partition("=")[0].split())
    pointer = "*" in text or "[" in text
    bare = " ".join(_WORDS.sub(" ", text).split())
    name = _NAME.search(bare)
    before = bare[: name.start()].strip() if name else ""
    if not name or not before or name[1] in _NO_NAMES or before.endswith("::"):
        return Parameter(f"{at}", bare.replace("*", "").strip(), pointer, text)
    return Parameter(name[1], before.replace("*", "").strip(), pointer, text)


def _closing(text: str, at: int) -> int:
    """Behind the bracket that closes the one at a place."""
    depth = 0
    for place in range(at, len(text)):
        depth += (text[place] in "([{<") - (text[place] in ")]}>")
        if depth == 0:
            return place + 1
    return len(text)
