"""Expressions of C++: text -> tree. What their names mean is said by those who read the tree.

`gen.kernels.formulas` has integers and names, `gen.spec.epilogue` real numbers, functions and
indices as well. Operators bind as in C++.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

DEEPEST = 40  # parentheses, conditions and signs inside of one another
MOST_IN_A_ROW = 125  # operators of one strength: no longer text is taken


class MalformedError(ValueError):
    """What is no expression; `at` is the place of the character where that shows, from 0."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


@dataclass(frozen=True)
class Node:
    """A part of an expression, which begins at character `at` of the text."""

    at: int

    @property
    def parts(self) -> tuple[Node, ...]:
        """What it is made of."""
        return ()

    def walk(self) -> Iterator[Node]:
        """It and all that it is made of, from left to right."""
        yield self
        for part in self.parts:
            yield from part.walk()


@dataclass(frozen=True)
class Number(Node):
    """A number as it was written: 7, 0.5, 1e-3."""

    text: str


@dataclass(frozen=True)
class Name(Node):
    """A name alone."""

    name: str


@dataclass(frozen=True)
class Unary(Node):
    """`-` or `!` before something."""

    operator: str
    of: Node

    @property
    def parts(self) -> tuple[Node, ...]:
        """See Node."""
        return (self.of,)


@dataclass(frozen=True)
class Binary(Node):
    """An operator between two. `at` is where the operator stands."""

    operator: str
    left: Node
    right: Node

    @property
    def parts(self) -> tuple[Node, ...]:
        """See Node."""
        return self.left, self.right


@dataclass(frozen=True)
class Choice(Node):
    """`condition ? yes : no`. `at` is where the question mark stands."""

    condition: Node
    yes: Node
    no: Node

    @property
    def parts(self) -> tuple[Node, ...]:
        """See Node."""
        return self.condition, self.yes, self.no


@dataclass(frozen=True)
class Call(Node):
    """A function with its arguments."""

    function: str
    arguments: tuple[Node, ...]

    @property
    def parts(self) -> tuple[Node, ...]:
        """See Node."""
        return self.arguments


@dataclass(frozen=True)
class Element(Node):
    """An element of an array, `name[i]` or `name[i, j]`."""

    name: str
    indices: tuple[Node, ...]

    @property
    def parts(self) -> tuple[Node, ...]:
        """See Node."""
        return self.indices


# Binary operators, and how strongly they bind; `?:` binds less than all, signs more.
PRECEDENCE: Mapping[str, int] = {
    operator: strength
    for strength, level in enumerate(
        (("||",), ("&&",), ("==", "!="), ("<", "<=", ">", ">="), ("+", "-"), ("*", "/", "%")), 1
    )
    for operator in level
}
_CHOICE, _SIGN = 0, 7

_TOKEN = re.compile(
    r"\s*((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.])|[A-Za-z_]\w*|&&|\|\||[<>=!]="
    r"|[-+*/%<>!?:()\[\],])"
)


def tokens(text: str) -> list[tuple[str, int]]:
    """The words of a text and where each begins. Raises MalformedError for what is none."""
    found: list[tuple[str, int]] = []
    at = 0
    while match := _TOKEN.match(text, at):
        found.append((match[1], match.start(1)))
        at = match.end()
    if text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        wrong = re.match(r"[\w.]+|.", text[at:])
        assert wrong
        raise MalformedError(f"'{wrong[0]}' is not an expression's", at)
    return found


def parse(text: str) -> Node:
    """The tree of an expression. Raises MalformedError."""
    return _Parser(text).all()


class _Parser:
    """By recursive descent, operators by how strongly they bind."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self._place = self._depth = 0

    def all(self) -> Node:
        found = self._choice()
        if self._next:
            raise MalformedError(f"'{self._next}' is left over", self._at)
        return found

    @property
    def _next(self) -> str:
        return self._tokens[self._place][0] if self._place < len(self._tokens) else ""

    @property
    def _at(self) -> int:
        return self._tokens[self._place][1] if self._next else len(self._text)

    def _take(self, wanted: str = "") -> str:
        token = self._next
        if wanted and token != wanted:
            raise MalformedError(f"'{wanted}' is missing", self._at)
        self._place += 1
        return token

    def _choice(self) -> Node:
        self._depth += 1
        if self._depth > DEEPEST:
            raise MalformedError(f"more than {DEEPEST} parts inside of one another", self._at)
        condition = self._binary(1)
        if self._next == "?":
            at = self._at
            self._take()
            yes = self._choice()
            self._take(":")
            condition = Choice(at, condition, yes, self._choice())
        self._depth -= 1
        return condition

    def _binary(self, least: int) -> Node:
        left, count = self._unary(), 0
        while (strength := PRECEDENCE.get(self._next, 0)) >= least:
            at, operator = self._at, self._take()
            left, count = Binary(at, operator, left, self._binary(strength + 1)), count + 1
            if count > MOST_IN_A_ROW:
                raise MalformedError(f"more than {MOST_IN_A_ROW} operators in a row", at)
        return left

    def _unary(self) -> Node:
        signs = []
        while self._next in ("-", "!"):
            signs.append((self._at, self._take()))
        if len(signs) > DEEPEST:
            raise MalformedError(f"more than {DEEPEST} signs in a row", signs[0][0])
        found = self._value()
        for at, sign in reversed(signs):
            found = Unary(at, sign, found)
        return found

    def _value(self) -> Node:
        at, token = self._at, self._take()
        if token == "(":
            inner = self._choice()
            self._take(")")
            return inner
        if not re.match(r"[\w.]", token):
            what = f"'{token}'" if token else "the end"
            raise MalformedError(f"{what} stands where a value should", at)
        if not re.match(r"[A-Za-z_]", token):
            return Number(at, token)
        if self._next == "(":
            return Call(at, token, self._list("(", ")"))
        if self._next == "[":
            return Element(at, token, self._list("[", "]"))
        return Name(at, token)

    def _list(self, opening: str, closing: str) -> tuple[Node, ...]:
        self._take(opening)
        found = [self._choice()]
        while self._next == ",":
            self._take()
            found.append(self._choice())
        self._take(closing)
        return tuple(found)


def strength(node: Node) -> int:
    """How strongly a node's operator binds what it is between; more than all for a value."""
    if isinstance(node, Choice):
        return _CHOICE
    if isinstance(node, Binary):
        return PRECEDENCE[node.operator]
    return _SIGN if isinstance(node, Unary) else _SIGN + 1


def written(node: Node) -> str:
    """The text of a tree, with the parentheses that it needs and no others."""

    def inside(part: Node, least: int) -> str:
        return written(part) if strength(part) >= least else f"({written(part)})"

    if isinstance(node, Number):
        return node.text
    if isinstance(node, Name):
        return node.name
    if isinstance(node, Unary):
        of = inside(node.of, _SIGN)
        return f"{node.operator}({of})" if of[0] == node.operator else f"{node.operator}{of}"
    if isinstance(node, Binary):
        own = PRECEDENCE[node.operator]
        return f"{inside(node.left, own)} {node.operator} {inside(node.right, own + 1)}"
    if isinstance(node, Choice):
        condition = inside(node.condition, _CHOICE + 1)
        return f"{condition} ? {written(node.yes)} : {written(node.no)}"
    arguments = ", ".join(written(part) for part in node.parts)
    if isinstance(node, Call):
        return f"{node.function}({arguments})"
    assert isinstance(node, Element)
    return f"{node.name}[{arguments}]"
