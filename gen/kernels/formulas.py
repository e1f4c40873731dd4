"""Facts of a launch, each stated once: a line of C++ that Python evaluates, too.

A plan in Python and the launcher in an emitted file have to agree on grids, slices and offsets. So
they read the same text: the template prints it, `evaluate` works it out. The expressions are those
of C++ on integers that are not negative: literals, names, parentheses, and, in C++'s order of
precedence, ``!``, ``* / %``, ``+ -``, ``< <= > >=``, ``== !=``, ``&&``, ``||``, and ``?:``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple


class Fact(NamedTuple):
    """A named value: `type` and `text` are C++, `comment` says what it is."""

    name: str
    text: str
    comment: str = ""
    type: str = "index_t"


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded up; the number of tiles of b that cover a."""
    return -(-a // b)


def round_up(a: int, b: int) -> int:
    """The least multiple of b that is not less than a."""
    return ceil_div(a, b) * b


_TOKEN = re.compile(r"\s*(\d+|[A-Za-z_]\w*|&&|\|\||[<>=!]=|[-+*/%<>!?:()])")

# Binary operators from the weakest to the strongest, with Python's word for them.
_LEVELS: tuple[Mapping[str, str], ...] = (
    {"||": "or"},
    {"&&": "and"},
    {"==": "==", "!=": "!="},
    {"<": "<", "<=": "<=", ">": ">", ">=": ">="},
    {"+": "+", "-": "-"},
    {"*": "*", "/": "//", "%": "%"},
)


class _Parser:
    """C++ expression -> Python expression, by recursive descent."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _TOKEN.findall(text)
        if "".join(self._tokens) != re.sub(r"\s", "", text):
            raise ValueError(f"not an expression: {text!r}")

    def all(self) -> str:
        found = self._conditional()
        if self._tokens:
            raise ValueError(f"{self._tokens[0]!r} is left over in {self._text!r}")
        return found

    def _next(self) -> str:
        return self._tokens[0] if self._tokens else ""

    def _take(self, *wanted: str) -> str:
        token = self._next()
        if wanted and token not in wanted:
            raise ValueError(f"{' or '.join(wanted)} is missing in {self._text!r}")
        del self._tokens[:1]
        return token

    def _conditional(self) -> str:
        condition = self._binary(0)
        if self._next() != "?":
            return condition
        self._take("?")
        yes = self._conditional()
        self._take(":")
        return f"({yes} if {condition} else {self._conditional()})"

    def _binary(self, level: int) -> str:
        if level == len(_LEVELS):
            return self._unary()
        left = self._binary(level + 1)
        while self._next() in _LEVELS[level]:
            word = _LEVELS[level][self._take()]
            left = f"({left} {word} {self._binary(level + 1)})"
            if word in ("and", "or"):  # Python's are one of the operands, C++'s are 0 or 1
                left = f"(not not {left})"
        return left

    def _unary(self) -> str:
        token = self._take()
        if token == "!":
            return f"(not {self._unary()})"
        if token == "(":
            inner = self._conditional()
            self._take(")")
            return inner
        if not re.fullmatch(r"\w+", token):
            raise ValueError(f"{token!r} stands where a value should in {self._text!r}")
        return token


@lru_cache(maxsize=1024)
def _compiled(text: str) -> CodeType:
    return compile(_Parser(text).all(), text, "eval")


def evaluate(facts: Iterable[Fact], given: Mapping[str, int]) -> dict[str, int]:
    """`given`, and each fact's value, from top to bottom: a fact may name those before it.

    Raises NameError for a name that is not known, ValueError for what is no expression.
    """
    known: dict[str, Any] = dict(given)
    for fact in facts:
        known[fact.name] = int(eval(_compiled(fact.text), {"__builtins__": {}}, known))
    return known
