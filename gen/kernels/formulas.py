"""Facts of a launch, each stated once: a line of C++ that Python evaluates, too.

A plan in Python and the launcher in an emitted file have to agree on grids, slices and offsets. So
they read the same text: the template prints it, `evaluate` works it out. The expressions are those
of C++ on integers that are not negative: literals, names, parentheses, and, in C++'s order of
precedence, ``!``, ``* / %``, ``+ -``, ``< <= > >=``, ``== !=``, ``&&``, ``||``, and ``?:``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple

from gen.spec.expressions import Binary, Choice, Name, Node, Number, Unary, parse, written


class Fact(NamedTuple):
    """A named value: `type` and `text` are C++, `comment` says what it is.

    `beside`: it is declared on the line of the one before, which has its type and no comment.
    """

    name: str
    text: str
    comment: str = ""
    type: str = "index_t"
    beside: bool = False


def declarations(facts: Iterable[Fact]) -> list[str]:
    """The lines of C++ that declare them."""
    lines: list[str] = []
    for fact in facts:
        value = f"{fact.name} = {fact.text};{f'  // {fact.comment}' if fact.comment else ''}"
        if fact.beside:
            lines[-1] = f"{lines[-1].removesuffix(';')}, {value}"
        else:
            lines.append(f"{fact.type} {value}")
    return lines


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded up; the number of tiles of b that cover a."""
    return -(-a // b)


def round_up(a: int, b: int) -> int:
    """The least multiple of b that is not less than a."""
    return ceil_div(a, b) * b


# Python's words for operators of C++ that it calls otherwise.
_WORDS = {"||": "or", "&&": "and", "/": "//"}


def _in_python(node: Node) -> str:
    """A Python expression with the value that the tree has in C++. Raises ValueError."""
    if isinstance(node, Number) and node.text.isdigit():
        return node.text
    if isinstance(node, Name):
        return node.name
    if isinstance(node, Unary) and node.operator == "!":
        return f"(not {_in_python(node.of)})"
    if isinstance(node, Binary):
        word = _WORDS.get(node.operator, node.operator)
        found = f"({_in_python(node.left)} {word} {_in_python(node.right)})"
        # Python's are one of the operands, C++'s are 0 or 1.
        return f"(not not {found})" if word in ("and", "or") else found
    if isinstance(node, Choice):
        condition, yes, no = map(_in_python, node.parts)
        return f"({yes} if {condition} else {no})"
    raise ValueError(f"not an expression of integers: '{written(node)}'")


@lru_cache(maxsize=1024)
def _compiled(text: str) -> CodeType:
    return compile(_in_python(parse(text)), text, "eval")


def evaluate(facts: Iterable[Fact], given: Mapping[str, int]) -> dict[str, int]:
    """`given`, and each fact's value, from top to bottom: a fact may name those before it.

    Raises NameError for a name that is not known, ValueError for what is no expression.
    """
    known: dict[str, Any] = dict(given)
    for fact in facts:
        known[fact.name] = int(eval(_compiled(fact.text), {"__builtins__": {}}, known))
    return known


def function(facts: Sequence[Fact], given: Sequence[str]) -> Callable[..., tuple[int, ...]]:
    """What `evaluate` does, as a function of the given values in their order, for many calls.

    It returns the facts' values. Conditions among these are True or False.
    """
    names = ", ".join(fact.name for fact in facts)
    made: Callable[..., tuple[int, ...]] = _function(facts, given, f"({names},)")
    return made


def last_of(facts: Sequence[Fact], given: Sequence[str]) -> Callable[..., int]:
    """The same of the last fact's value alone."""
    made: Callable[..., int] = _function(facts, given, facts[-1].name)
    return made


def _function(facts: Sequence[Fact], given: Sequence[str], returned: str) -> Any:
    lines = [f"    {fact.name} = {_in_python(parse(fact.text))}" for fact in facts]
    text = "\n".join([f"def found({', '.join(given)}):", *lines, f"    return {returned}"])
    known: dict[str, Any] = {"__builtins__": {}}
    exec(text, known)
    return known["found"]
