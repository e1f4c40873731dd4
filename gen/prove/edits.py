"""What an edited file has that `gen emit` does not write: its tokens, statement by statement.

Comments, blanks and line breaks are no difference.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property

from gen.prove.cpp_tokens import Token, tokens

_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.M)
_ENDS = frozenset(";{}")
NARROW = frozenset(
    ("int", "unsigned", "short", "char", "int32_t", "uint32_t", "int16_t", "uint16_t", "int8_t",
     "uint8_t")
)  # fmt: skip
_WIDE = frozenset(("long", "index_t", "size_t", "int64_t", "uint64_t", "ptrdiff_t"))


@dataclass(frozen=True)
class Edited:
    """A file's tokens and which of its statements are no emitted ones.

    statements: ranges of tokens that end in `;`, `{` or `}`, or are a directive. edited: which of
    them differ. narrower: whether these name short integers more often than what stood in their
    place; unwidened: long ones less often.
    """

    text: str
    tokens: Sequence[Token]
    statements: Sequence[range]
    edited: frozenset[int]
    narrower: bool = False
    unwidened: bool = False

    @classmethod
    def between(cls, text: str, emitted: str) -> Edited:
        """How a text differs from what was emitted."""
        one, other = tokens(text), tokens(emitted)
        mine, theirs = list(_statements(text, one)), list(_statements(emitted, other))
        words = [tuple(one[i].text for i in at) for at in mine]
        known = [tuple(other[i].text for i in at) for at in theirs]
        matcher = SequenceMatcher(None, known, words, autojunk=False)
        differing = [code for code in matcher.get_opcodes() if code[0] != "equal"]
        found = {at for *_, first, last in differing for at in range(first, last)}
        before = [known[at] for _, first, last, *_ in differing for at in range(first, last)]
        behind = [words[at] for at in found]
        macros = {
            words[at][2] for at in found if words[at][:2] in (("#", "define"), ("#", "undef"))
        }
        found |= {at for at, some in enumerate(words) if macros & set(some) and some[0] != "#"}
        return cls(
            text,
            one,
            mine,
            frozenset(found),
            narrower=_more(behind, before, NARROW),
            unwidened=_more(before, behind, _WIDE),
        )

    @cached_property
    def lines(self) -> frozenset[int]:
        """The lines that edited tokens stand on."""
        return frozenset(self.tokens[i].line for at in self.edited for i in self.statements[at])

    @cached_property
    def numbers(self) -> list[str]:
        """The numbers that edited statements name, each once, in order; of shifts 2^n, too."""
        found = list[str]()
        for i in (i for at in sorted(self.edited) for i in self.statements[at]):
            text = self.tokens[i].text
            if self.tokens[i].kind == "number":
                found.append(text)
                if self.tokens[i - 1].text in ("<<", ">>") and text.isdigit() and int(text) < 32:
                    found.append(str(1 << int(text)))
        return list(dict.fromkeys(found))


def _more(
    some: Iterable[tuple[str, ...]], others: Iterable[tuple[str, ...]], names: frozenset[str]
) -> bool:
    """Whether some statements have one of these words more often than others."""
    one, other = (
        Counter(w for words in all_ for w in words if w in names) for all_ in (some, others)
    )
    return one.total() > other.total()


def _statements(text: str, found: Sequence[Token]) -> Iterator[range]:
    """Ranges of tokens; a `;` in the head of a `for` ends one, too."""
    directives = [match.span() for match in _DIRECTIVE.finditer(text)]
    start = at = 0
    while at < len(found):
        token = found[at]
        while directives and directives[0][1] <= token.start:
            directives.pop(0)
        if directives and directives[0][0] <= token.start:
            if start < at:
                yield range(start, at)
            start = at
            while at < len(found) and found[at].start < directives[0][1]:
                at += 1
            yield range(start, at)
            start = at
            continue
        at += 1
        if token.text in _ENDS:
            yield range(start, at)
            start = at
    if start < len(found):
        yield range(start, len(found))
