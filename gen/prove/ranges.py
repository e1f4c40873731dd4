"""Probes of integers that an edit has made shorter: have longer ones come there?

Where an edit has more short integers than what was emitted, or fewer long ones, its casts,
variables and parameters of short types have probes, or its products and sums. What is far below 32
bits has none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gen.prove.edits import NARROW, Edited
from gen.prove.probe_writer import ALL_BOUNDS, CONSTANT, RANGE, TRUE, ProbeWriter

PRODUCTS = frozenset({"*", "+", "-", "<<"})
_BEHIND_A_NAME = frozenset({"=", ";", ",", ")", "{", "["})
_NO_VARIABLE = frozenset({"__global__", *CONSTANT} - {"template"})
_ENDS = frozenset({";", ","})
_NAMES = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_SMALL = re.compile(
    rf"\b(?:(?:threadIdx|blockDim)\.[xyz]|(?:blockIdx|gridDim)\.[yz]|k[A-Z]\w*"
    rf"|index_t|size_t|{'|'.join(sorted(NARROW))})\b"
)


class RangeWriter(ProbeWriter):
    """Finds these integers."""

    def __init__(self, edited: Edited, on_host: bool) -> None:
        super().__init__(edited)
        # A launcher is called with numbers of more than 32 bits wherever it takes them.
        self.narrower = edited.narrower and not on_host
        self.unwidened = edited.unwidened and not on_host
        self.around = ""  # the statement, without blanks

    def ranges(self, at: range, words: Sequence[str]) -> None:
        """Those of a statement that have short types."""
        if self.narrower and not set(words) & _NO_VARIABLE:
            self.around = "".join(words)
            for i in at[_template_head(words) :]:
                self.narrow(i)

    def product(self, i: int) -> None:
        """`a * b` becomes `a * probe * b`, which asks whether the product has too many bits."""
        first, last = self.back(i, ALL_BOUNDS), self.forth(i, ALL_BOUNDS)
        if self.is_small(first, last):
            return
        number = self.probe(RANGE, first, last, TRUE)
        at = self.all[i].start
        self.change(at, at, f"{self.word(i)} gemmgen_at<{number}>{{}} ", number)

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
        if self.is_compared(last + 1):
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

    def is_compared(self, i: int) -> bool:
        """Whether what is cast is compared in this statement, as in `x < 8 ? int(x) : 8`, or is a
        minimum.
        """
        i += self.word(i) in (">", ")")
        end = self.pairs[i] if self.word(i) == "(" and i in self.pairs else self.operand_end(i) - 1
        first = i + (self.word(i) == "(")
        x = "".join(self.word(at) for at in range(first, end + (first == i)))
        compared = re.search(rf"{re.escape(x)}<|<=?{re.escape(x)}\b", self.around) if x else None
        return bool(compared) or x.startswith("min(")

    def may_cast(self, i: int) -> bool:
        """Whether a bracket behind a token may be a cast's: not in `f(int)`, `sizeof(int)`."""
        return self.word(i) in ("return", "(") or (
            self.all[i].kind == "sign" and self.word(i) not in (")", "]", ">")
        )


def _template_head(words: Sequence[str]) -> int:
    """How many of the words are `template <...>`."""
    depth = 0
    for count, word in enumerate(words if words[0] == "template" else ()):
        depth += {"<": 1, ">": -1, ">>": -2}.get(word, 0)
        if count and depth <= 0:
            return count + 1
    return 0
