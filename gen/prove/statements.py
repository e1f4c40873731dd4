"""The plain statements of C++: those that run whenever the block of code runs that they stand in.

One that is controlled by `if`, `else` or a loop without a block of its own is none, nor is what
these begin with: whether that runs is a question of its condition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from gen.prove.cpp_tokens import Tokens

_CODE = frozenset({")", "]", "else", "do", "try", "const", "noexcept", "override", "mutable"})
_CONTROL = frozenset({"if", "else", "for", "while", "do", "switch", "try", "catch"})
_LABELS = frozenset({"case", "default"})


class Plain(NamedTuple):
    """A plain statement: its number among all, and the first token that is not of its block.

    entered: whether its block is entered by a label behind it, too.
    """

    number: int
    block_ends: int
    entered: bool


def plain_statements(text: Tokens, statements: Sequence[range]) -> Iterator[Plain]:
    """The plain statements among those of a text, which are as those of `Edited`."""
    opened: list[tuple[int, bool]] = []  # brackets, and whether these hold code
    inside: list[tuple[int, int]] = []  # plain statements so far, and their brackets
    labelled: dict[int, int] = {}  # brackets, and their last label
    ends = True  # whether the statement before has come to its end
    for number, at in enumerate(statements):
        first = text.word(at.start)
        if first == "#":
            continue
        if ends and opened and opened[-1][1]:
            if first in _LABELS or (text.word(at.start + 1) == ":" and first not in _CONTROL):
                labelled[opened[-1][0]] = number
            elif first not in _CONTROL and text.all[at.start].kind == "name":
                inside.append((number, opened[-1][0]))
        for i in at:
            if text.word(i) in ("(", "[", "{") and i in text.pairs:
                opened.append((i, text.word(i) == "{" and _holds_code(text, at, i, opened)))
            elif opened and text.pairs.get(i) == opened[-1][0]:
                opened.pop()
        ends = text.word(at[-1]) in ("{", "}", ";")
    for number, bracket in inside:
        yield Plain(number, text.pairs[bracket], labelled.get(bracket, 0) > number)


def _holds_code(text: Tokens, at: range, i: int, opened: Sequence[tuple[int, bool]]) -> bool:
    """Whether a brace opens a block of code, and no type, namespace or list of values."""
    before = text.word(i - 1)
    if before in ("", "{", "}", ";"):
        return bool(opened) and opened[-1][1]
    return before in _CODE or "->" in (text.word(n) for n in range(at.start, i))


def entered_lines(
    text: Tokens, statements: Sequence[range], lines: Collection[int], run: Collection[int]
) -> set[int]:
    """Those of `lines` whose statements must have run, since lines behind them have.

    A compiler gives what it moves and joins the line of one of its places alone.
    """
    left = set(lines)
    places = [i for i, token in enumerate(text.all) if token.line in run]
    found = set[int]()
    for number, ends, entered in plain_statements(text, statements):
        at = statements[number]
        own = left.intersection(text.all[i].line for i in at)
        if own and not entered and any(at.stop <= i < ends for i in places):
            found |= own
    return found
