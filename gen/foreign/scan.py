"""CUDA source -> the declarations that it consists of, without a preprocessor or a compiler.

This is no parser of C++: it finds where declarations begin and end, which of them are functions
and classes, and which say `__device__` or the like. Offsets and lines stay those of the file. What
it misjudges is compiled as it stands, so that the compiler has the last word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_HIDDEN = re.compile(
    r"""//(?:\\\r?\n|[^\n])*
      | /\*.*?(?:\*/|\Z)
      | \bR"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)"
      | "(?:\\.|[^"\\\n])*"?
      | (?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])*'?
      | ^[ \t]*\#(?:\\\r?\n|/\*.*?\*/|[^\n])*
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_MARKS = re.compile(
    r"\b__(?:global|device|constant|managed|shared|grid_constant)__(?!\w)|\b[A-Z0-9_]*DEVICE[A-Z0-9_]*\b"
)
_DEFINE = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(?P<name>\w+)(?P<call>\()?(?P<text>(?:\\\r?\n|[^\n])*)",
    re.MULTILINE,
)
_CLASS = re.compile(r"(?:typedef\s+|static\s+|const\s+)*(?:struct|class|union|enum)\b")
_TEMPLATE = re.compile(r"template\s*<")
_NAMESPACE = re.compile(r'(?:inline\s+)?namespace\b[\s\w:]*$|extern\s*"C(?:\+\+)?"\s*$')
_ACCESS = re.compile(r"\s*(?:public|private|protected)\s*:(?!:)")
_ATTRIBUTES = re.compile(r"\b(?:alignas|__align__|__builtin_align__|__attribute__)\s*\(")
_CALL = re.compile(r"([A-Za-z]\w*)\s*\(")
_CLOSE = {"(": ")", "{": "}", "[": "]", "<": ">"}


@dataclass
class Unit:
    """A declaration: `text[start:end]`. `head` is what stands before its body, if it has one.

    `scope` is its namespace with `::` at the end. `marked` says that the device has it.
    """

    start: int
    end: int
    head: str
    kind: str  # "function", "class" or "other"
    scope: str
    marked: bool
    members: list[Unit] = field(default_factory=list)

    @property
    def constant(self) -> bool:
        """Whether it may be used in constant expressions, and so by device code."""
        return re.search(r"\b(constexpr|consteval)\b", self.head) is not None

    def within(self) -> Iterator[Unit]:
        """Itself and the declarations inside of it, inner ones first."""
        for member in self.members:
            yield from member.within()
        yield self


@dataclass(frozen=True)
class Macros:
    """Names that `#define` lines give a meaning: those that mark device code; those with calls."""

    marks: frozenset[str]
    calls: frozenset[str]


def macros_of(texts: Iterable[str]) -> Macros:
    """The macros of all files of a program."""
    found = [match for text in texts for match in _DEFINE.finditer(text)]
    marks: set[str] = set()
    for _ in range(3):  # a macro may be defined by another
        marks |= {m["name"] for m in found if _MARKS.search(m["text"]) or marks & _words(m["text"])}
    return Macros(frozenset(marks), frozenset(m["name"] for m in found if m["call"]))


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def masked(text: str) -> str:
    """The text with spaces for comments, strings and directives: as long, with the same lines."""

    def hide(match: re.Match[str]) -> str:
        if match[0] in ('"C"', '"C++"'):
            return match[0]
        return re.sub(r"[^\n]", " ", match[0])

    return _HIDDEN.sub(hide, text)


def units_of(code: str, macros: Macros, start: int = 0, end: int | None = None) -> list[Unit]:
    """The declarations of masked text, those of namespaces in the place of these."""
    return _Scanner(code, macros).units(start, len(code) if end is None else end, "", False)


class _Scanner:
    """Walks over the declarations of a file."""

    def __init__(self, code: str, macros: Macros) -> None:
        self.code, self.macros = code, macros

    def units(self, at: int, end: int, scope: str, in_class: bool) -> list[Unit]:
        found: list[Unit] = []
        while True:
            at = self.skip(at, end, in_class)
            if at >= end:
                return found
            start, at, kind, body = self.declaration(at, end)
            head = self.code[start : body[0] if body else at].rstrip(" \t\n;")
            if kind == "namespace" and body:
                name = "".join(re.findall(r"namespace\s+([\w:]+)", head))
                found += self.units(
                    body[0] + 1, body[1], f"{scope}{name}::" if name else scope, False
                )
                continue
            if kind == "body" and found:  # what a constructor's {initialisers} have cut off
                found[-1].end = at
                continue
            whole = self.code[start:at]
            marked = bool(_MARKS.search(whole)) or bool(self.macros.marks & _words(whole))
            unit = Unit(start, at, head, kind, scope, marked)
            if kind == "class" and body:
                unit.members = self.units(body[0] + 1, body[1], scope, True)
            found.append(unit)

    def skip(self, at: int, end: int, in_class: bool) -> int:
        """Over what stands between declarations."""
        while at < end:
            if self.code[at].isspace() or self.code[at] in ";}":
                at += 1
            elif in_class and (label := _ACCESS.match(self.code, at, end)):
                at = label.end()
            else:
                return at
        return at

    def declaration(self, at: int, end: int) -> tuple[int, int, str, tuple[int, int] | None]:
        """Where a declaration starts and ends, its kind, and the braces of its body."""
        start, code = at, self.code
        call = _CALL.match(code, at, end)
        if call and (call[1] in self.macros.calls or call[1].isupper()) and call[1][:2] != "__":
            behind = self.matching(call.end() - 1, end)
            rest = code[behind:end].lstrip()
            if rest[:1].isalpha() or rest[:1] in ("_", ""):
                return start, behind, "other", None
        while template := _TEMPLATE.match(code, at, end):
            at = self.angle(template.end() - 1, end)
            at = self.skip(at, end, False)
        head_at, value = at, False
        body: tuple[int, int] | None = None
        while at < end:
            char = code[at]
            if char == ";":
                kind = "class" if body and not value else "other"
                return start, at + 1, kind, body
            if char in "([":
                at = self.matching(at, end)
            elif char == "=" and self.is_value(at):
                value, at = True, at + 1
            elif char == "{":
                stop = self.matching(at, end)
                head = code[head_at:at].strip()
                if not head:
                    return start, stop, "body", (at, stop - 1)
                if _NAMESPACE.fullmatch(head):
                    return start, stop, "namespace", (at, stop - 1)
                if not value and body is None:
                    if _is_class(head):
                        body = (at, stop - 1)
                    elif "(" in head:
                        return start, stop, "function", (at, stop - 1)
                at = stop
            elif char == "}":
                break
            else:
                at += 1
        return start, min(at + 1, end), "other", None

    def is_value(self, at: int) -> bool:
        """Whether the `=` at a place begins an initialiser."""
        near = self.code[max(at - 1, 0) : at + 2]
        operator = re.search(r"operator\s*\S?$", self.code[max(at - 16, 0) : at])
        return not operator and not re.search(r"[=!<>+*/%&|^-]=|==", near)

    def matching(self, at: int, end: int) -> int:
        """Behind the bracket that closes the one at a place."""
        depth, pattern = 0, re.compile(r"[(){}\[\]]")
        while found := pattern.search(self.code, at, end):
            depth += 1 if found[0] in "({[" else -1
            at = found.end()
            if depth == 0:
                return at
        return end

    def angle(self, at: int, end: int) -> int:
        """Behind the `>` that closes the `<` of a template at a place."""
        depth = 0
        while at < end:
            char = self.code[at]
            if char in "({[":
                at = self.matching(at, end)
                continue
            depth += (char == "<") - (char == ">" and self.code[at - 1] != "-")
            at += 1
            if depth == 0:
                return at
        return end


def _is_class(head: str) -> bool:
    if not (start := _CLASS.match(head)):
        return False
    rest = head[start.end() :]
    while attribute := _ATTRIBUTES.search(rest):
        rest = rest[: attribute.start()] + rest[rest.find(")", attribute.end()) + 1 :]
    return "(" not in rest
