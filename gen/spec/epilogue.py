"""Epilogues of a user's own: what becomes of x = alpha * A * B + beta * C, as an expression.

The language is that of C++'s arithmetic: ``+ - * / %``, comparisons, ``&& || !``, ``?:``, numbers,
the functions of `gen.spec.typed.FUNCTIONS`; `x`; `row` and `col`, the place in D, and `M` and `N`,
its sizes; `group`, the number of its group, where kernels have several; and operands of the
user's::

    silu(x) * up[row, col] + slope * residual[row, col] where up=f32[row, col], slope=scalar

An operand is a matrix like D, ``[row, col]``, in D's order and with a leading dimension of its own;
a vector with an element for each row or column of D, ``[row]``, ``[col]``, or for each group,
``[group]``; a row for each group, one behind the other, ``[group, col]``; or a number that is
passed by value. Behind `where` stand their types, but of those that have D's. The emitted code is
`gen.source.fused`, the values that it may have are those of `gen.prove.fused`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from gen.errors import UsageError, unknown
from gen.spec.dtypes import ELEMENT_TYPES, DTypes, ElementType
from gen.spec.expressions import Element, MalformedError, Name, Node, parse, written
from gen.spec.reserved import taken
from gen.spec.typed import FUNCTIONS, INDEX, PLACES, SCALAR, Typed, typed

LONGEST = 500  # characters
LONGEST_NAME = 16  # of an operand, so that lines of the emitted file keep to 100 columns
MATRIX, ROWS, COLUMNS, VALUE = "row, col", "row", "col", ""
GROUPS, GROUP_COLUMNS = "group", "group, col"
_ARRAYS = (MATRIX, ROWS, COLUMNS, GROUP_COLUMNS, GROUPS)
OUTPUT, BY_VALUE = "output", "scalar"  # D's type; that of alpha
# The types of operands, and those that sums of a type hold all numbers of.
_TYPES = ("f32", "f16", "bf16", "f64", "i32", "i8")
_HELD = {
    "f32": ("f32", "f16", "bf16"), "f64": ("f64", "f32", "f16", "bf16"), "i32": ("i32", "i8"),
}  # fmt: skip

_MATRICES = ("A", "B", "C", "D")  # of the product
_INDICES = "[row], [col] or [row, col], with groups [group] or [group, col]"
_DECLARED = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*(\w+)\s*(?:\[([\w\s,]*)\])?\s*")


@dataclass(frozen=True)
class Operand:
    """An operand of an expression. `index`: what it has elements for, `VALUE` if it is one number.

    type: of `ELEMENT_TYPES`, or `OUTPUT`, D's, or `BY_VALUE`, alpha's.
    """

    name: str
    type: str
    index: str

    def __str__(self) -> str:
        return f"{self.name}={self.type}" + (f"[{self.index}]" if self.index else "")

    @property
    def symbol(self) -> str:
        """What CUDA and C++ call it: kernels have variables of one letter themselves."""
        return self.name if len(self.name) > 1 else f"{self.name}_"

    @property
    def ld(self) -> str:
        """What the leading dimension of a matrix is called."""
        return f"ld_{self.name}"

    def element(self, dtypes: DTypes) -> ElementType:
        """The type of its elements."""
        if self.type == OUTPUT:
            return dtypes.output
        return dtypes.scalar if self.type == BY_VALUE else ELEMENT_TYPES[self.type]

    def shape(self, m: int, n: int, groups: int = 1) -> tuple[int, ...]:
        """Of the array, beside a D of M x N, with so many groups."""
        sizes = {"row": m, "col": n, "group": groups}
        return tuple(sizes[word] for word in self.index.split(", ") if word)


@dataclass(frozen=True)
class Epilogue:
    """An expression of x, and its operands in the order in which it has them first."""

    tree: Node
    operands: tuple[Operand, ...]

    def __str__(self) -> str:
        """The text that it is read from again."""
        said = [str(o) for o in self.operands if o.type != OUTPUT or not o.index]
        return self.text + (f" where {', '.join(said)}" if said else "")

    @property
    def text(self) -> str:
        """The expression alone."""
        return written(self.tree)

    @cached_property
    def names(self) -> frozenset[str]:
        """The names in it: x, row, operands."""
        return frozenset(n.name for n in self.tree.walk() if isinstance(n, Name | Element))

    @property
    def has_groups(self) -> bool:
        """Whether a value depends on its group."""
        return "group" in self.names or any("group" in o.index for o in self.operands)

    @property
    def counts_rows(self) -> bool:
        """Whether a value depends on the number of its row, or of all rows."""
        nodes = [*self.tree.walk()]
        indices = [part for node in nodes if isinstance(node, Element) for part in node.indices]
        return any(
            isinstance(node, Name) and node.name in ("row", "M") and node not in indices
            for node in nodes
        )

    def operand(self, name: str) -> Operand:
        """The operand of this name."""
        return next(operand for operand in self.operands if operand.name == name)

    @property
    def places(self) -> frozenset[str]:
        """Of row and col, those that an element of D depends on."""
        indices = {word for o in self.operands for word in o.index.split(", ")}
        return (self.names | indices) & {"row", "col"}

    def typed(self, is_float: bool) -> Typed:
        """The expression with types. Raises MalformedError for what sums in integers lack."""
        return typed(self.tree, _names(self.operands), is_float)

    def conflict(self, dtypes: DTypes) -> str:
        """Why a kernel for these element types cannot have it; empty where it can."""
        try:
            self.typed(dtypes.scalar.is_float)
        except MalformedError as error:
            return f"epilogue '{self.text}': {error}, which {dtypes.name} has not"
        return ""

    def not_held(self, dtypes: DTypes) -> str:
        """Which operand has numbers that alpha's type has not, and the way out; or nothing."""
        held = _HELD[dtypes.scalar.name]
        for operand in self.operands:
            if (name := operand.element(dtypes).name) not in held:
                return (
                    f"operand '{operand.name}' is {name}, which {dtypes.scalar.name} does not "
                    f"hold; convert it to {', '.join(held[:-1])} or {held[-1]}"
                )
        return ""


def _names(operands: Sequence[Operand]) -> dict[str, str]:
    return {
        "x": SCALAR, **dict.fromkeys(PLACES, INDEX), **{o.name: SCALAR for o in operands}
    }  # fmt: skip


@lru_cache(maxsize=256)
def parse_epilogue(text: str) -> Epilogue:
    """The epilogue that a text describes. Raises UsageError with the place of a mistake."""
    if len(text) > LONGEST:
        raise UsageError(f"epilogue has {len(text)} characters; use at most {LONGEST}")
    expression, where, declarations = _divided(text)
    try:
        tree = parse(expression)
        declared = parse_operands(declarations) if where else {}
        operands = _operands(tree, declared)
        typed(tree, _names(operands), is_float=True)
    except MalformedError as error:
        raise UsageError(
            f"epilogue: {error}, at character {error.at + 1} of '{text}'; use an expression such "
            "as 'relu(x + bias[col])'"
        ) from None
    for name in declared:
        if name not in {operand.name for operand in operands}:
            raise UsageError(
                f"epilogue: operand '{name}' is not in '{expression.strip()}'; use it, or leave "
                "it out"
            )
    if "x" not in (found := Epilogue(tree, operands)).names:
        raise UsageError(
            f"epilogue: '{expression.strip()}' has no x, which is alpha * A * B + beta * C; use x"
        )
    return found


def _divided(text: str) -> tuple[str, str, str]:
    found = re.search(r"\bwhere\b", text)
    return (text[: found.start()], "where", text[found.end() :]) if found else (text, "", "")


def no_epilogue(word: str, words: Sequence[str]) -> UsageError:
    """The error for a word that is none of the `words` that name an epilogue."""
    if word in FUNCTIONS:
        return UsageError(f"epilogue '{word}' is a function alone; use '{word}(x)'")
    return unknown("epilogue", word, words)


def with_operands(epilogue: str, declarations: Sequence[str]) -> str:
    """An expression's text with further declarations behind it, each such as `up=f16[row, col]`."""
    if not declarations:
        return epilogue
    joint = ", " if _divided(epilogue)[1] else " where "
    return epilogue + joint + ", ".join(declarations)


def with_types(text: str, types: Mapping[str, str]) -> Epilogue:
    """The epilogue whose operands have these types where the text itself says none.

    types: of `ELEMENT_TYPES`, by name, and "scalar" for what is passed by value. Raises UsageError.
    """
    expression, where, declarations = _divided(text)
    said = parse_operands(declarations) if where else {}
    try:
        nodes = [*parse(expression).walk()]
    except MalformedError:
        return parse_epilogue(text)  # which says what is wrong
    elements = [node for node in nodes if isinstance(node, Element)]
    index = {node.name: ", ".join(map(written, node.indices)) for node in elements}
    values = {node.name for node in nodes if isinstance(node, Name)}
    for name, type_ in types.items():
        if name in {**index, **said} or type_ == BY_VALUE:
            continue
        if name in values:
            raise UsageError(
                f"epilogue '{expression.strip()}' takes {name} as a number, not an array; pass "
                f"{name}.item(), or index it, as in {name}[row]"
            )
        raise UsageError(f"epilogue '{expression.strip()}' has no {name}[row]; leave it out")
    more = [
        f"{name}={type_}" + (f"[{index[name]}]" if name in index else "")
        for name, type_ in types.items()
        if name not in said
    ]
    return parse_epilogue(with_operands(text, more))


@lru_cache(maxsize=256)
def matrices(text: str) -> frozenset[str]:
    """The operands of a text, whose types may be missing, that it has with [row, col].

    Of a text with a mistake, none.
    """
    try:
        nodes = parse(_divided(text)[0]).walk()
    except MalformedError:
        return frozenset()
    elements = (node for node in nodes if isinstance(node, Element))
    return frozenset(n.name for n in elements if ", ".join(map(written, n.indices)) == MATRIX)


def parse_operands(text: str) -> dict[str, Operand]:
    """Declarations with commas between them, by name. Raises UsageError."""
    found: dict[str, Operand] = {}
    at = 0
    while True:
        match = _DECLARED.match(text, at)
        end = match.end() if match else at
        if not match or (end < len(text) and text[end] != ","):
            raise UsageError(
                f"epilogue: '{text[at:].strip()}' declares no operand; use NAME=TYPE[row, col], "
                "NAME=TYPE[row], NAME=TYPE[col], with groups NAME=TYPE[group] or "
                "NAME=TYPE[group, col], or NAME=scalar"
            )
        operand = _declared(match[1], match[2], match[3])
        if operand.name in found:
            raise UsageError(f"epilogue: operand '{operand.name}' is declared twice; use one")
        found[operand.name] = operand
        if end >= len(text):
            return found
        at = end + 1


def _declared(name: str, type_: str, given: str | None) -> Operand:
    index = ", ".join(word.strip() for word in (given or "").split(","))
    if index not in (*_ARRAYS, VALUE):
        raise UsageError(f"epilogue: {name} has [{index}]; use {_INDICES}")
    types = (*_TYPES, OUTPUT, BY_VALUE) if index else (BY_VALUE,)
    if type_ not in types:
        way = f"{' or '.join(types)}" if index else "scalar, the type of alpha, or an index"
        raise UsageError(f"epilogue: operand '{name}' cannot be {type_}; use {way}")
    return Operand(name, type_, index)


def _operands(tree: Node, declared: dict[str, Operand]) -> tuple[Operand, ...]:
    """Those that a tree has. Raises MalformedError for one that is not used as it is declared."""
    found: dict[str, Operand] = {}
    for node in tree.walk():
        if isinstance(node, Element):
            index = ", ".join(written(part) for part in node.indices)
            if index not in _ARRAYS:
                message = f"{node.name} has [{index}], not {_INDICES}"
                raise MalformedError(message, node.at)
            usual = Operand(node.name, OUTPUT, index)
        elif isinstance(node, Name) and node.name not in ("x", *PLACES):
            if node.name not in declared and node.name not in found:
                message = f"'{node.name}' is neither x, row, col, M, N nor an operand: write "
                message += f"{node.name}[row] or another index, or declare {node.name}=scalar"
                raise MalformedError(message, node.at)
            index, usual = VALUE, Operand(node.name, BY_VALUE, VALUE)
        else:
            continue
        _check_name(node.name, node.at)
        operand = found.setdefault(node.name, declared.get(node.name, usual))
        if operand.index != index:
            have = f"[{operand.index}]" if operand.index else "passed by value"
            raise MalformedError(f"{node.name} is {have} elsewhere, not [{index}]", node.at)
        if f"ld_{node.name}" in found or node.name.removeprefix("ld_") in {*found} - {node.name}:
            raise MalformedError(f"{node.name} and a leading dimension have one name", node.at)
    return tuple(found.values())


def _check_name(name: str, at: int) -> None:
    if len(name) > LONGEST_NAME:
        raise MalformedError(f"'{name}' has more than {LONGEST_NAME} characters", at)
    if name in ("x", "where", *PLACES, *FUNCTIONS):
        reason = "a word of epilogues"
    elif name in _MATRICES:
        reason = "a matrix of the product"
    elif re.fullmatch(r"part\d+|.*_", name):
        reason = "one that emitted files may have"
    else:
        reason = taken(name)
        # What are functions elsewhere may be parameters.
        if reason.startswith(("a function", "a mathematical function")):
            reason = ""
    if reason:
        raise MalformedError(f"'{name}' cannot be an operand's name: it is {reason}", at)
