"""Probes in the conditions of edited statements: which of them have been true, and false?

Code that one value alone reaches is not found by trials that lack this value. But its condition
shows that they do. So the file is compiled once more, with a probe in each condition that is not as
`gen emit` writes it: comparisons, operands of `&&`, `||` and `!`, what `if`, `while`, `for` and `?`
decide by, the labels of a `switch`, the order of what `min` and `max` take, and whether an integer
that `/`, `%`, `>>` or `&` makes is always 0. Statements without a condition tell that they run.
Integers that an edit has made shorter have probes of their own (`ranges`). What a probe does is in
templates/prove/probes.h.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gen.prove.edits import Edited
from gen.prove.probe_writer import (
    ALL_BOUNDS,
    ASSIGN,
    BITS,
    BOUNDS,
    COMPARE,
    COMPARISON,
    CONSTANT,
    LABEL,
    LOGIC,
    ORDER,
    PLACES,
    RANGE,
    STATEMENT,
    TRUE,
    TRUTH,
    VALUE,
    Change,
    Probe,
)
from gen.prove.ranges import PRODUCTS, RangeWriter
from gen.prove.statements import plain_statements

_ARITHMETIC = frozenset({"/", "%", ">>", "&"})
_ORDERS = re.compile(r"(__h|f|u|ll|ull)?(min|max)f?$")
_CONSTANTS = re.compile(r"k[A-Z]\w*$|sizeof$|int$|unsigned$|size_t$|index_t$|true$|false$|nullptr$")


@dataclass
class Instrumented:
    """A file with probes; `without` makes one of those that a compiler does not take."""

    edited: Edited
    probes: Sequence[Probe]
    changes: Sequence[Change] = field(repr=False, default=())

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
    writer = _Writer(edited, on_host)
    plain = {one.number for one in plain_statements(writer, edited.statements)}
    for at in sorted(edited.edited):
        statement = edited.statements[at]
        if (edited.tokens[statement.start].start >= host) == on_host:
            writer.statement(statement, plain=at in plain)
    return Instrumented(edited, writer.probes, writer.changes)


class _Writer(RangeWriter):
    """Finds the conditions of statements."""

    def __init__(self, edited: Edited, on_host: bool) -> None:
        super().__init__(edited, on_host)
        self.taken: set[tuple[int, int]] = set()  # what has a probe as a whole

    def statement(self, at: range, plain: bool) -> None:
        """One statement, or a part of one that ends in a bracket."""
        words = [self.word(i) for i in at]
        directive = words[0] == "#" and words[1:2] != ["define"]
        if not directive:
            self.ranges(at, words)
        if directive or set(words) & CONSTANT:
            return
        before = len(self.probes)
        for i in at:
            self.token(i)
        if plain and len(self.probes) == before:
            self.reached(at)
        if len(words) > 1 and words[-1] == ";" and self.heads_for(at):
            self.context(at.start, at.stop - 1)

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
        if word in COMPARE and not self.in_template(i):
            self.compare(i)
        elif word in _ARITHMETIC and self.is_binary(i):
            self.arithmetic(i)
        elif word in PRODUCTS and self.unwidened and self.is_binary(i):
            self.product(i)
        elif word in LOGIC and not self.is_reference(i):
            self.context(self.back(i, BOUNDS), self.forth(i, BOUNDS))
        elif word == "?":
            self.context(self.back(i, BOUNDS), i)
        elif word == "!":
            self.negation(i)
        elif word in ("if", "while") and self.word(i + 1) == "(" and i + 1 in self.pairs:
            self.context(i + 2, self.pairs[i + 1])
        elif word in ("case", "default"):
            self.label(i)
        elif _ORDERS.match(word) and self.word(i + 1) == "(" and i + 1 in self.pairs:
            self.order(i)

    # -- the kinds of conditions ---------------------------------------------------------------
    def compare(self, i: int) -> None:
        """`a == b` becomes `a == probe == b`."""
        bounds = BOUNDS | LOGIC | BITS | COMPARE
        number = self.probe(COMPARISON, self.back(i, bounds), self.forth(i, bounds))
        at = self.all[i].start
        self.change(at, at, f"{self.word(i)} gemmgen_at<{number}>{{}} ", number)

    def arithmetic(self, i: int) -> None:
        """`a / b` becomes `a / probe / b`."""
        number = self.probe(VALUE, self.back(i, ALL_BOUNDS), self.forth(i, ALL_BOUNDS), TRUE)
        at = self.all[i].start
        self.change(at, at, f"{self.word(i)} gemmgen_at<{number}>{{}} ", number)

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
        decides = self.word(i - 1) in LOGIC or self.word(i - 2) in ("if", "while")
        if not decides and not {self.word(at) for at in range(i, last)} & (COMPARE | LOGIC):
            self.truth(i, last)

    def reached(self, at: range) -> None:
        """A statement that runs whenever it is come to: a probe goes before it."""
        number = self.probe(STATEMENT, at.start, at.stop, TRUE)
        start = self.all[at.start].start
        self.change(start, start, f"gemmgen_note<{number}>(true); ", number)

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
        if words & {";", ",", *ASSIGN} or "?" in words:
            return
        if splits := [i for i in top if self.word(i) in LOGIC]:
            for start, end in zip([first, *(i + 1 for i in splits)], [*splits, last], strict=True):
                self.context(start, end)
        elif self.word(first) == "!" and self.operand_end(first + 1) == last:
            self.context(first + 1, last)
        elif not words & COMPARE:
            self.truth(first, last)


def is_constant(probe: Probe) -> bool:
    """Whether a condition of the host's side has constants alone."""
    names = re.findall(r"(?<![\w.])[A-Za-z_]\w*", probe.text)
    return probe.kind not in PLACES and all(_CONSTANTS.match(name) for name in names)


def complaint(probe: Probe, seen: int) -> str:
    """What a condition lacks that has had the outcomes `seen`; nothing where it has had all."""
    if seen & probe.wanted == probe.wanted:
        return ""
    if probe.kind == LABEL:
        return f"`{probe.text}` was never taken"
    if probe.kind == VALUE and seen:
        rest = ", or as it would be without" if re.search("[%&]", probe.text) else ""
        return f"`{probe.text}` was always 0{rest}"
    if probe.kind == RANGE and seen:
        return f"`{probe.text}` never had more bits than its type"
    if not seen:
        return f"`{probe.text}` was never reached"
    if probe.kind == ORDER:
        return f"the operands of `{probe.text}` were always in the same order"
    return f"`{probe.text}` was never {'false' if seen == TRUE else 'true'}"
