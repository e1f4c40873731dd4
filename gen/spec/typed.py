"""Types of an epilogue's expression, and the functions that it may call.

There are three: numbers of the type of alpha ("scalar"), in which all arithmetic is done that the
product has a part in; places and sizes ("index"), which are integers of 64 bits; and conditions.
An integer that is written out is whichever of the first two its neighbour is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, NoReturn

from gen.spec.expressions import (
    Binary,
    Call,
    Choice,
    Element,
    MalformedError,
    Name,
    Node,
    Number,
    Unary,
    parse,
)

SCALAR, INDEX, CONDITION = "scalar", "index", "condition"
_INTEGER = "integer"  # written out, of no type yet

LARGEST = 2.0**127  # that a number may be which is written out
PLACES = ("row", "col", "group", "M", "N")  # the names of type index


class Definition(NamedTuple):
    """A function in terms of others: its parameters, its value, what a comment says of it."""

    parameters: tuple[str, ...]
    text: str
    comment: str


# How many arguments the functions of CUDA have.
PRIMITIVES = {
    "abs": 1, "min": 2, "max": 2, "exp": 1, "log": 1, "sqrt": 1, "tanh": 1, "erf": 1,
}  # fmt: skip
_OF_INTEGERS = ("abs", "min", "max", "relu", "clamp")  # which kernels with sums in integers have
DEFINITIONS: Mapping[str, Definition] = {
    "relu": Definition(("t",), "t < 0 ? 0 : t", "Rectifier. NaN stays NaN."),
    "clamp": Definition(
        ("t", "low", "high"), "min(max(t, low), high)", "The number nearest to t from low to high."
    ),
    "sigmoid": Definition(("t",), "1 / (1 + exp(-t))", "The logistic function."),
    "silu": Definition(
        ("t",), "t / (1 + exp(-t))", "t times its logistic function: swish (Ramachandran, 2017)."
    ),
    "gelu": Definition(
        ("t",),
        "0.5 * t * (1 + erf(0.70710678118654752 * t))",
        "t times the probability that a normally distributed number is less (Hendrycks, 2016).",
    ),
}
FUNCTIONS = {**PRIMITIVES, **{name: len(d.parameters) for name, d in DEFINITIONS.items()}}


@dataclass(frozen=True)
class Typed:
    """A part of an expression with its type.

    operator: "literal" or "variable", whose `text` it is; "scalar", the conversion of an index;
    an operator of C++, with one part, two, or three ("?:"); or a function of `FUNCTIONS`.
    """

    type: str
    operator: str
    parts: tuple[Typed, ...] = ()
    text: str = ""

    def called(self) -> list[str]:
        """The functions that it calls, each once, those that others are defined by first."""
        found: dict[str, None] = {}
        for part in self.parts:
            found |= dict.fromkeys(part.called())
        if self.operator in DEFINITIONS:
            found |= dict.fromkeys(defined(self.operator, True).called())
        if self.operator in FUNCTIONS:
            found[self.operator] = None
        return list(found)


@cache
def defined(function: str, is_float: bool) -> Typed:
    """The value of a function of `DEFINITIONS`, in terms of its parameters."""
    it = DEFINITIONS[function]
    return typed(parse(it.text), dict.fromkeys(it.parameters, SCALAR), is_float)


def typed(tree: Node, names: Mapping[str, str], is_float: bool) -> Typed:
    """The scalar that a tree stands for. names: the type of each name, and of arrays' elements.

    is_float: whether scalars are in floating point. Raises MalformedError.
    """
    return _Typer(names, is_float).scalar(tree)


class _Typer:
    def __init__(self, names: Mapping[str, str], is_float: bool) -> None:
        self._names, self._is_float = names, is_float

    def scalar(self, node: Node) -> Typed:
        return self._as(SCALAR, self._any(node), node)

    def _as(self, wanted: str, found: Typed, node: Node) -> Typed:
        """The same as a number of this type."""
        if found.type == wanted:
            return found
        if CONDITION in (found.type, wanted):
            have, want = ("condition", "number") if wanted != CONDITION else ("number", "condition")
            _fail(node, f"a {have} stands where a {want} should")
        if found.type == _INTEGER:
            parts = tuple(self._as(wanted, part, node) for part in found.parts)
            return Typed(wanted, found.operator, parts, found.text)
        return Typed(SCALAR, "scalar", (found,))

    def _alike(self, node: Node, *parts: Node) -> tuple[Typed, ...]:
        """Numbers with the type that they have together."""
        found = [self._any(part) for part in parts]
        kinds = [each.type for each in found]
        wanted = next((kind for kind in (SCALAR, INDEX) if kind in kinds), _INTEGER)
        pairs = zip(found, parts, strict=True)
        return tuple(self._as(wanted, each, part) for each, part in pairs)

    def _any(self, node: Node) -> Typed:
        if isinstance(node, Number):
            return self._number(node)
        if isinstance(node, Name | Element):
            if node.name not in self._names:
                _fail(node, f"'{node.name}' is not known")
            return Typed(self._names[node.name], "variable", text=node.name)
        if isinstance(node, Unary):
            return self._unary(node)
        if isinstance(node, Binary):
            return self._binary(node)
        if isinstance(node, Choice):
            condition = self._as(CONDITION, self._any(node.condition), node.condition)
            yes, no = (self.scalar(part) for part in (node.yes, node.no))
            return Typed(SCALAR, "?:", (condition, yes, no))
        assert isinstance(node, Call)
        return self._call(node)

    def _number(self, node: Number) -> Typed:
        if node.text.isdigit():
            if int(node.text) >= 2**31:
                _fail(node, f"{node.text} is beyond 32 bits; write {node.text}.0")
            return Typed(_INTEGER, "literal", text=str(int(node.text)))
        if not self._is_float:
            _fail(node, f"{node.text} needs sums in floating point")
        if float(node.text) >= LARGEST:
            _fail(node, f"{node.text} is beyond 2^127")
        return Typed(SCALAR, "literal", text=node.text)

    def _unary(self, node: Unary) -> Typed:
        of = self._any(node.of)
        if node.operator == "!":
            return Typed(CONDITION, "!", (self._as(CONDITION, of, node.of),))
        if of.type == CONDITION:
            self._as(SCALAR, of, node.of)
        return Typed(of.type, "-", (of,))

    def _binary(self, node: Binary) -> Typed:
        operator, sides = node.operator, (node.left, node.right)
        if operator in ("&&", "||"):
            parts = tuple(self._as(CONDITION, self._any(side), side) for side in sides)
            return Typed(CONDITION, operator, parts)
        left, right = self._alike(node, *sides)
        if operator in ("/", "%"):
            return self._quotient(node, left, right)
        compares = operator in ("==", "!=", "<", "<=", ">", ">=")
        if compares and left.type == _INTEGER:
            left, right = (self._as(INDEX, each, node) for each in (left, right))
        return Typed(CONDITION if compares else left.type, operator, (left, right))

    def _quotient(self, node: Binary, left: Typed, right: Typed) -> Typed:
        if left.type == _INTEGER:  # 1 / 2 is a half, where there are halves
            kind = SCALAR if node.operator == "/" and self._is_float else INDEX
            left, right = (self._as(kind, each, node) for each in (left, right))
        if left.type == SCALAR and self._is_float:
            if node.operator == "%":
                _fail(node, "% is for row, col, M and N alone")
        elif right.operator != "literal" or right.text == "0":
            _fail(node, f"integers are divided by numbers alone, as in row {node.operator} 2")
        return Typed(left.type, node.operator, (left, right))

    def _call(self, node: Call) -> Typed:
        wanted = FUNCTIONS.get(node.function)
        if wanted is None:
            _fail(node, f"there is no function '{node.function}', but {', '.join(FUNCTIONS)}")
        if wanted != len(node.arguments):
            _fail(node, f"{node.function} takes {wanted} numbers, not {len(node.arguments)}")
        if not self._is_float and node.function not in _OF_INTEGERS:
            _fail(node, f"{node.function} needs sums in floating point")
        return Typed(SCALAR, node.function, tuple(map(self.scalar, node.arguments)))


def _fail(node: Node, message: str) -> NoReturn:
    raise MalformedError(message, node.at)
