"""The tokens of C++, and how to find one's way among them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/|\\\n)
    |(?P<text>R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<name>[A-Za-z_]\w*)
    |(?P<number>\.?\d(?:[eEpP][+-]|'\w|[\w.])*)
    |(?P<sign><<=|>>=|->\*|\.\.\.|::|->|\+\+|--|<<|>>|[-+*/%&|^<>=!]=|&&|\|\||\#\#|.)""",
    re.X | re.S,
)
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_IN_TEMPLATE = re.compile(r"[\w.:]+|[*&,<>]|>>|\.\.\.")
_BEHIND_TEMPLATE = frozenset({"(", ")", "::", "{", ">", ",", ";", "&", "*", "..."})


@dataclass(frozen=True)
class Token:
    """A token and where it is; kind: "text", "name", "number" or "sign"."""

    text: str
    kind: str
    start: int  # characters before it in the file
    line: int  # from 1

    @property
    def end(self) -> int:
        """Characters of the file up to its end."""
        return self.start + len(self.text)


def tokens(text: str) -> list[Token]:
    """The tokens of C++."""
    found, line = [], 1
    for match in _TOKEN.finditer(text):
        if match.lastgroup != "skip":
            kind = next(k for k in ("text", "name", "number", "sign") if match[k] is not None)
            found.append(Token(match[0], kind, match.start(), line))
        line += match[0].count("\n")
    return found


class Tokens:
    """All tokens of a file."""

    def __init__(self, all: Sequence[Token]) -> None:
        self.all = all

    def word(self, at: int) -> str:
        """A token's text; nothing beyond the ends of the file."""
        return self.all[at].text if 0 <= at < len(self.all) else ""

    @cached_property
    def pairs(self) -> dict[int, int]:
        """The places of brackets, each with its partner's, where they have one."""
        found, opened = dict[int, int](), list[int]()
        for at, token in enumerate(self.all):
            if token.kind == "sign" and token.text in _CLOSING:
                opened.append(at)
            elif opened and token.kind == "sign" and token.text == _CLOSING[self.word(opened[-1])]:
                start = opened.pop()
                found |= {start: at, at: start}
        return found

    def top(self, first: int, last: int) -> Iterator[int]:
        """The tokens of a range that are in no bracket of it."""
        i = first
        while i < last:
            yield i
            i = max(self.pairs.get(i, i), i) + 1

    def back(self, i: int, bounds: frozenset[str]) -> int:
        """Where the operand before a token begins."""
        while i > 0:
            before = i - 1
            if self.word(before) in (")", "]") and before in self.pairs:
                if self.word(self.pairs[before] - 1) in ("if", "while", "for", "switch"):
                    return i
                i = self.pairs[before]
            elif self.word(before) in bounds and not self.in_template(before):
                return i
            else:
                i = before
        return 0

    def forth(self, i: int, bounds: frozenset[str]) -> int:
        """Where the operand behind a token ends."""
        i += 1
        while i < len(self.all):
            if self.word(i) in "([{" and i in self.pairs:
                i = self.pairs[i] + 1
            elif self.word(i) in bounds and not self.in_template(i):
                return i
            else:
                i += 1
        return i

    def operand_end(self, i: int) -> int:
        """Where the operand of a unary operator ends that begins with a token."""
        while self.word(i) in ("!", "-", "~", "*", "&", "+"):
            i += 1
        i = self.pairs[i] + 1 if i in self.pairs else i + 1
        while i < len(self.all):
            if self.word(i) in ("(", "[") and i in self.pairs:
                i = self.pairs[i] + 1
            elif self.word(i) in (".", "->", "::"):
                i += 2
            elif self.in_template(i):
                i += 1
            else:
                return i
        return i

    def in_template(self, i: int) -> bool:
        """Whether a token is in the brackets of a template's arguments, or is one of them."""
        return i in self.templates

    @cached_property
    def templates(self) -> frozenset[int]:
        """The tokens of all template arguments, with their brackets."""
        return frozenset(i for at in self._find_templates() for i in at)

    def _find_templates(self) -> Iterator[range]:
        for i, token in enumerate(self.all):
            behind = i and self.all[i - 1].kind == "name" and self.all[i - 1].end == token.start
            if token.text != "<" or not behind:
                continue
            depth, at = 1, i + 1
            while depth > 0 and (word := self.word(at)) and _IN_TEMPLATE.fullmatch(word):
                depth += {"<": 1, ">": -1, ">>": -2}.get(word, 0)
                at += 1
            follows = self.word(at)
            if depth <= 0 and (follows in _BEHIND_TEMPLATE or follows[:1].isalpha()):
                yield range(i, at)

    def is_binary(self, i: int) -> bool:
        """Whether a sign has operands on both sides, and is no part of a type: `T& x`, `T* x`."""
        before, one, behind = self.all[i - 1], self.all[i], self.word(i + 1)
        if (
            self.in_template(i)
            or before.kind == "text"
            or (before.kind == "sign" and before.text not in (")", "]"))
        ):
            return False
        return one.text not in ("&", "*") or bool(
            behind and (before.end == one.start) == (one.end == self.all[i + 1].start)
        )

    def is_reference(self, i: int) -> bool:
        """Whether `&&` is part of a type: `T&& x`."""
        one, before = self.all[i], self.all[i - 1]
        tight = before.end == one.start and self.word(i + 1) and self.all[i + 1].start > one.end
        return before.text == "auto" or self.word(i + 1) == "..." or bool(tight)
