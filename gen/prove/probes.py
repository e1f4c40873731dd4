"""Probes in the conditions of edited statements: which of them have been true, and false?

Code that one value alone reaches is not found by trials that lack this value. But its condition
shows that they do. So the file is compiled once more, with a probe in each condition that is not as
`gen emit` writes it: comparisons, operands of `&&`, `||` and `!`, what `if`, `while`, `for` and `?`
decide by, the labels of a `switch`, the order of what `min` and `max` take, and whether an integer
that `/`, `%`, `>>` or `&` makes is always 0. What a probe does
is in templates/prove/probes.h.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gen.prove.cpp_tokens import Tokens
from gen.prove.edits import NARROW, Edited

COMPARISON, TRUTH, LABEL, ORDER, VALUE = "comparison", "truth", "label", "order", "value"
RANGE = "range"
TRUE, FALSE = 1, 2

_COMPARE = frozenset({"==", "!=", "<", ">", "<=", ">="})
_ARITHMETIC = frozenset({"/", "%", ">>", "&"})
_PRODUCTS = frozenset({"*", "+", "-", "<<"})
_LOGIC = frozenset({"&&", "||"})
_ASSIGN = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="})
_BOUNDS = frozenset({";", ",", "{", "}", "?", ":", "(", ")", "[", "]", "return", *_ASSIGN})
_SUMS = frozenset({"+", "-"})
_BITS = frozenset({"&", "|", "^"})
_BEHIND_A_NAME = frozenset({"=", ";", ",", ")", "{", "["})
_ALL_BOUNDS = _BOUNDS | _LOGIC | _BITS | _COMPARE | _SUMS
_CONSTANT = frozenset({"static_assert", "constexpr", "template", "using", "enum", "typedef"})
_NO_VARIABLE = frozenset({"__global__", *_CONSTANT} - {"template"})
_ENDS = frozenset({";", ","})
_NAMES = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_SMALL = re.compile(
    rf"\b(?:(?:threadIdx|blockDim)\.[xyz]|(?:blockIdx|gridDim)\.[yz]|k[A-Z]\w*"
    rf"|index_t|size_t|{'|'.join(sorted(NARROW))})\b"
)
_ORDERS = re.compile(r"(__h|f|u|ll|ull)?(min|max)f?$")
_CONSTANTS = re.compile(r"k[A-Z]\w*$|sizeof$|int$|unsigned$|size_t$|index_t$|true$|false$|nullptr$")
_MOST_TEXT = 60  # characters of a condition that a message quotes


class Probe(NamedTuple):
    """A condition with a probe, by its number, and the outcomes that it should have."""

    number: int
    line: int
    kind: str
    text: str
    wanted: int = TRUE | FALSE


class _Change(NamedTuple):
    """Characters of the file, and what they become."""

    start: int
    end: int
    text: str
    probe: int


@dataclass
class Instrumented:
    """A file with probes; `without` makes one of those that a compiler does not take."""

    edited: Edited
    probes: Sequence[Probe]
    changes: Sequence[_Change] = field(repr=False, default=())

    @property
    def text(self) -> str:
        """The file. Its lines are those of the edited one."""
        parts, at = [], 0
        # Of insertions at one place, what opens a bracket later closes it first.
        for change in sorted(self.changes, key=lambda c: (c.start, c.end)):
            parts += [self.edited.text[at : change.start], change.text]
            at = change.end
        return "".join([*parts, self.edited.text[at:]])

    def without(self, lines: Iterable[int]) -> Instrumented:
        """The same without the probes on these lines."""
        gone = {probe.number for probe in self.probes if probe.line in set(lines)}
        return Instrumented(
            self.edited,
            [probe for probe in self.probes if probe.number not in gone],
            [change for change in self.changes if change.probe not in gone],
        )


def instrument(edited: Edited, host: int, on_host: bool) -> Instrumented:
    """Probes in the edited statements of the kernels, or of the host's side.

    host: characters of the file before the host's side.
    """
    statements = [
        edited.statements[at] for at in sorted(edited.edited)
        if (edited.tokens[edited.statements[at].start].start >= host) == on_host
    ]  # fmt: skip
    writer = _Writer(edited, on_host)
    for statement in statements:
        writer.statement(statement)
    return Instrumented(edited, writer.probes, writer.changes)


class _Writer(Tokens):
    """Finds the conditions of statements."""

    def __init__(self, edited: Edited, on_host: bool) -> None:
        super().__init__(edited.tokens)
        self.edited = edited
        # A launcher is called with numbers of more than 32 bits wherever it takes them.
        self.narrower = edited.narrower and not on_host
        self.unwidened = edited.unwidened and not on_host
        self.probes: list[Probe] = []
        self.changes: list[_Change] = []
        self.taken: set[tuple[int, int]] = set()  # what has a probe as a whole

    def statement(self, at: range) -> None:
        """One statement, or a part of one that ends in a bracket."""
        words = [self.word(i) for i in at]
        directive = words[0] == "#" and words[1:2] != ["define"]
        if self.narrower and not directive and not set(words) & _NO_VARIABLE:
            for i in at[self.template_head(words) :]:
                self.narrow(i)
        if directive or set(words) & _CONSTANT:
            return
        for i in at:
            self.token(i)
        if len(words) > 1 and words[-1] == ";" and self.heads_for(at):
            self.context(at.start, at.stop - 1)

    def template_head(self, words: Sequence[str]) -> int:
        """How many of the words are `template <...>`."""
        depth = 0
        for count, word in enumerate(words if words[0] == "template" else ()):
            depth += {"<": 1, ">": -1, ">>": -2}.get(word, 0)
            if count and depth <= 0:
                return count + 1
        return 0

    def heads_for(self, at: range) -> bool:
        """Whether this is the middle of `for (...; ...; ...)`."""
        depth, i = 0, at.start - 1
        if self.word(i) != ";":
            return False
        while i > 0 and (depth or self.word(i) not in "({}"):
            depth += {")": 1, "(": -1}.get(self.word(i), 0)
            i -= 1
        return self.word(i) == "(" and self.word(i - 1) == "for"

    def token(self, i: int) -> None:
        """What condition a token stands for, if any."""
        word = self.word(i)
        if self.word(i - 1) == "operator" or self.all[i].kind not in ("name", "sign"):
            return
        if word in _COMPARE and not self.in_template(i):
            self.compare(i)
        elif word in _ARITHMETIC and self.is_binary(i):
            self.arithmetic(i)
        elif word in _PRODUCTS and self.unwidened and self.is_binary(i):
            self.product(i)
        elif word in _LOGIC and not self.is_reference(i):
            self.context(self.back(i, _BOUNDS), self.forth(i, _BOUNDS))
        elif word == "?":
            self.context(self.back(i, _BOUNDS), i)
        elif word == "!":
            self.negation(i)
        elif word in ("if", "while") and self.word(i + 1) == "(" and i + 1 in self.pairs:
            self.context(i + 2, self.pairs[i + 1])
        elif word in ("case", "default"):
            self.label(i)
        elif _ORDERS.match(word) and self.word(i + 1) == "(" and i + 1 in self.pairs:
            self.order(i)

    # -- the kinds of conditions ---------------------------------------------------------------
    def probe(self, kind: str, first: int, last: int, wanted: int = TRUE | FALSE) -> int:
        """A new probe for the tokens from `first` up to `last`; its number."""
        number = len(self.probes)
        start, end = self.all[first].start, self.all[last - 1].end
        text = " ".join(self.edited.text[start:end].split())
        text = text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}..."
        self.probes.append(Probe(number, self.all[first].line, kind, text, wanted))
        return number

    def change(self, start: int, end: int, text: str, probe: int) -> None:
        """Characters of the file become others."""
        self.changes.append(_Change(start, end, text, probe))

    def compare(self, i: int) -> None:
        """`a == b` becomes `a == probe == b`."""
        bounds = _BOUNDS | _LOGIC | _BITS | _COMPARE
        number = self.probe(COMPARISON, self.back(i, bounds), self.forth(i, bounds))
        at = self.all[i].start
        self.change(at, at, f"{self.word(i)} gemmgen_at<{number}>{{}} ", number)

    def arithmetic(self, i: int) -> None:
        """`a / b` becomes `a / probe / b`."""
        number = self.probe(VALUE, self.back(i, _ALL_BOUNDS), self.forth(i, _ALL_BOUNDS), TRUE)
        at = self.all[i].start
        self.change(at, at, f"{self.word(i)} gemmgen_at<{number}>{{}} ", number)

    def product(self, i: int) -> None:
        """`a * b` becomes `a * probe * b`, which asks whether the product has too many bits."""
        first, last = self.back(i, _ALL_BOUNDS), self.forth(i, _ALL_BOUNDS)
        if self.is_small(first, last):
            return
        number = self.probe(RANGE, first, last, TRUE)
        at = self.all[i].start
        self.change(at, at, f"{self.word(i)} gemmgen_wide_at<{number}>{{}} ", number)

    def narrow(self, i: int) -> None:
        """A cast to a short type, or a variable of one: which of its values are longer?"""
        if self.word(i) not in NARROW or self.word(i - 1) in NARROW:
            return
        last = i
        while self.word(last + 1) in NARROW:
            last += 1
        name = " ".join(self.word(at) for at in range(i, last + 1))
        start, end = self.all[i].start, self.all[last].end
        behind = self.word(last + 1)
        if self.is_small(last + 1, self.forth(last, _ENDS)):
            return
        if behind == "(" and last + 1 in self.pairs:  # int(x)
            number = self.probe(RANGE, i, self.pairs[last + 1] + 1, TRUE)
            self.change(start, end, f"gemmgen_cast<{number}, {name}>", number)
        elif self.word(i - 1) == "<" and behind == ">" and self.word(i - 2) == "static_cast":
            number = self.probe(RANGE, i - 2, self.pairs.get(last + 2, last + 2) + 1, TRUE)
            self.change(self.all[i - 2].start, end + 1, f"gemmgen_cast<{number}, {name}>", number)
        elif self.word(i - 1) == "(" and behind == ")" and self.may_cast(i - 2):  # (int)x
            number = self.probe(RANGE, i - 1, self.operand_end(last + 2), TRUE)
            text = f"gemmgen_cast_at<{number}, {name}>{{}} ->* "
            self.change(self.all[i - 1].start, end + 1, text, number)
        elif self.all[last + 1].kind == "name" and self.word(last + 2) in _BEHIND_A_NAME:
            number = self.probe(RANGE, last + 1, last + 2, TRUE)
            self.change(start, end, f"gemmgen_narrow<{number}, {name}>", number)

    def is_small(self, first: int, last: int) -> bool:
        """Whether tokens are numbers, constants, and what CUDA keeps far below 32 bits: threads,
        and blocks but those along x. (A variable's value is what stands behind `=`.)
        """
        text = self.edited.text[self.all[first].start : self.all[last - 1].end]
        if "=" in text:
            text = text.partition("=")[2]
        return not _NAMES.search(_SMALL.sub("", text)) and bool(_SMALL.search(text))

    def may_cast(self, i: int) -> bool:
        """Whether a bracket behind a token may be a cast's: not in `f(int)`, `sizeof(int)`."""
        return self.word(i) in ("return", "(") or (
            self.all[i].kind == "sign" and self.word(i) not in (")", "]", ">")
        )

    def truth(self, first: int, last: int) -> None:
        """An expression whose value is converted to bool."""
        if first >= last or (first, last) in self.taken:
            return
        self.taken.add((first, last))
        number = self.probe(TRUTH, first, last)
        start, end = self.all[first].start, self.all[last - 1].end
        self.change(start, start, f"gemmgen_truth<{number}>(", number)
        self.change(end, end, ")", number)

    def negation(self, i: int) -> None:
        """`!x` that is computed with; where something is decided by it, `context` comes to it."""
        last = self.operand_end(i + 1)
        decides = self.word(i - 1) in _LOGIC or self.word(i - 2) in ("if", "while")
        if not decides and not {self.word(at) for at in range(i, last)} & (_COMPARE | _LOGIC):
            self.truth(i, last)

    def label(self, i: int) -> None:
        """`case x:` and `default:`."""
        at = i + 1
        while self.word(at) not in (":", ";", "{", ""):
            at += 1
        if self.word(at) == ":":
            number, end = self.probe(LABEL, i, at, TRUE), self.all[at].end
            self.change(end, end, f" gemmgen_note<{number}>(true);", number)

    def order(self, i: int) -> None:
        """`min(a, b)` and `max(a, b)`."""
        first = i - 2 if self.word(i - 1) == "::" else i
        last = self.pairs[i + 1]
        commas = sum(self.word(at) == "," for at in self.top(i + 2, last))
        if commas != 1 or self.word(first - 1) in (".", "->"):
            return
        number = self.probe(ORDER, first, last + 1)
        start, end = self.all[first].start, self.all[i + 1].end
        name = self.edited.text[start : self.all[i].end]
        call = f"gemmgen_order<{number}>([](auto x, auto y) {{ return {name}(x, y); }}, "
        self.change(start, end, call, number)

    def context(self, first: int, last: int) -> None:
        """An expression that something is decided by: each of its parts that has no comparison."""
        while self.word(first) == "(" and self.pairs.get(first) == last - 1:
            first, last = first + 1, last - 1
        if first >= last:
            return
        top = list(self.top(first, last))
        words = {self.word(i) for i in top if not self.in_template(i)}
        if words & {";", ",", *_ASSIGN} or "?" in words:
            return
        if splits := [i for i in top if self.word(i) in _LOGIC]:
            for start, end in zip([first, *(i + 1 for i in splits)], [*splits, last], strict=True):
                self.context(start, end)
        elif self.word(first) == "!" and self.operand_end(first + 1) == last:
            self.context(first + 1, last)
        elif not words & _COMPARE:
            self.truth(first, last)


def is_constant(probe: Probe) -> bool:
    """Whether a condition of the host's side has constants alone."""
    names = re.findall(r"(?<![\w.])[A-Za-z_]\w*", probe.text)
    return probe.kind != LABEL and all(_CONSTANTS.match(name) for name in names)


def complaint(probe: Probe, seen: int) -> str:
    """What a condition lacks that has had the outcomes `seen`; nothing where it has had all."""
    if seen & probe.wanted == probe.wanted:
        return ""
    if probe.kind == LABEL:
        return f"`{probe.text}` was never taken"
    if probe.kind == VALUE and seen:
        return f"`{probe.text}` was always 0"
    if probe.kind == RANGE and seen:
        return f"`{probe.text}` never had more bits than its type"
    if not seen:
        return f"`{probe.text}` was never reached"
    if probe.kind == ORDER:
        return f"the operands of `{probe.text}` were always in the same order"
    return f"`{probe.text}` was never {'false' if seen == TRUE else 'true'}"
