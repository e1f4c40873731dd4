"""The kernels of a file, and the names and types of their parameters, from the CUDA source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from gen.foreign.expressions import split
from gen.foreign.scan import Unit

_BOUNDS = re.compile(r"\b(?:__launch_bounds__|__block_size__|__cluster_dims__|__maxnreg__)\s*\(")
_NAME = re.compile(r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*$")
# `(*a)[16]`, `(&a)[16]`, `(*a[2])[16]` and `(*f)(int)`, with the bracket behind.
_IN_BRACKETS = re.compile(
    r"\(\s*(?:\w+\s*::\s*)*[*&][\s*&(]*([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*\)\s*([\[(])"
)
_TYPE = re.compile(r"\s*(?:class|typename)\s+(\w+)\s*(?:=(.+))?", re.DOTALL)
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
        return self.pointer and not re.search(r"\bconst\b", re.split(r"[*&]", self.text)[0])


@dataclass(frozen=True)
class Signature:
    """A kernel as the source declares it. `template` is empty for one that is not a template."""

    name: str  # with its namespace
    template: str
    parameters: tuple[Parameter, ...]
    start: int  # where its declaration begins in the file
    end: int

    def of(self, arguments: str) -> Signature:
        """The kernel that a template makes of `<float, 64>`: with types in place of their names."""
        given = split(arguments.strip()[1:-1])
        types: dict[str, str] = {}

        def with_types(text: str) -> str:
            return re.sub(r"\w+", lambda word: types.get(word[0], word[0]), text).strip()

        for at, part in enumerate(split(self.template)):
            if found := _TYPE.fullmatch(part):
                own = given[at].strip() if at < len(given) else ""
                types[found[1]] = own or with_types(found[2] or found[1])
        parameters = (replace(one, type=with_types(one.type)) for one in self.parameters)
        return replace(self, parameters=tuple(parameters))

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
    pointer = any(sign in text for sign in "*[&")
    bare = " ".join(_WORDS.sub(" ", text).split())
    if found := _IN_BRACKETS.search(bare):
        base = _pointed(bare[: found.start()])
        return Parameter(found[1], base if found[2] == "[" else bare, pointer, text)
    name = _NAME.search(bare)
    before = bare[: name.start()].strip() if name else ""
    if not name or not before or name[1] in _NO_NAMES or before.endswith("::"):
        return Parameter(f"{at}", _pointed(bare), pointer, text)
    return Parameter(name[1], _pointed(before), pointer, text)


def _pointed(text: str) -> str:
    """A type without the `*` or `&` that makes it a pointer or a reference."""
    return re.sub(r"[*&]", "", text).strip()


def _closing(text: str, at: int) -> int:
    """Behind the bracket that closes the one at a place."""
    depth = 0
    for place in range(at, len(text)):
        depth += (text[place] in "([{<") - (text[place] in ")]}>")
        if depth == 0:
            return place + 1
    return len(text)
