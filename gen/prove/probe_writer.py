"""Writes probes into a file: which tokens have one, and what the file's characters become."""

from __future__ import annotations

from typing import NamedTuple

from gen.prove.cpp_tokens import Tokens
from gen.prove.edits import Edited

COMPARISON, TRUTH, LABEL, ORDER, VALUE = "comparison", "truth", "label", "order", "value"
RANGE, STATEMENT = "range", "statement"
PLACES = frozenset({LABEL, STATEMENT})  # which are come to or not, where others have two outcomes
TRUE, FALSE = 1, 2

COMPARE = frozenset({"==", "!=", "<", ">", "<=", ">="})
LOGIC = frozenset({"&&", "||"})
ASSIGN = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="})
BOUNDS = frozenset({";", ",", "{", "}", "?", ":", "(", ")", "[", "]", "return", *ASSIGN})
SUMS = frozenset({"+", "-"})
BITS = frozenset({"&", "|", "^"})
ALL_BOUNDS = BOUNDS | LOGIC | BITS | COMPARE | SUMS
CONSTANT = frozenset({"static_assert", "constexpr", "template", "using", "enum", "typedef"})
MOST_TEXT = 60  # characters of a condition that a message quotes


class Probe(NamedTuple):
    """A condition with a probe, by its number, and the outcomes that it should have."""

    number: int
    line: int
    kind: str
    text: str
    wanted: int = TRUE | FALSE


class Change(NamedTuple):
    """Characters of the file, and what they become."""

    start: int
    end: int
    text: str
    probe: int


class ProbeWriter(Tokens):
    """The probes of an edited file so far."""

    def __init__(self, edited: Edited) -> None:
        super().__init__(edited.tokens)
        self.edited = edited
        self.probes: list[Probe] = []
        self.changes: list[Change] = []

    def probe(self, kind: str, first: int, last: int, wanted: int = TRUE | FALSE) -> int:
        """A new probe for the tokens from `first` up to `last`; its number."""
        number = len(self.probes)
        start, end = self.all[first].start, self.all[last - 1].end
        text = " ".join(self.edited.text[start:end].split())
        text = text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}..."
        self.probes.append(Probe(number, self.all[first].line, kind, text, wanted))
        return number

    def change(self, start: int, end: int, text: str, probe: int) -> None:
        """Characters of the file become others."""
        self.changes.append(Change(start, end, text, probe))
