"""The table of instructions: what a row says, and how a pattern becomes rows.

A spelling is a pattern: `{a,b}` stands for either, `[.x]` for with or without. Everything that no
pattern spells is refused, so that no instruction is ever executed as something similar.

In an expression `a`, `b`, `c`, ... are the source operands, `T` the numpy type that the name ends
in, `U` its unsigned twin, `D` the result's and `S` the first source's type. `NAME` is the spelling
and `MODE` its rounding or shuffle mode, as strings. `m` is the mask of running lanes, `E` the
running chunk and `ITEM` the instruction, for findings. Functions come from `ops`, `rounding`,
`warp.shuffles` and `warp.mma`. Types default to the last one in the name for all operands; a row
may give them as "result source source ...", where `T` is that type, `A` the one before it and
`wide` the type twice as wide as `T`.

To add an instruction, add a row to `rows_integer`, `rows_float` or `rows_warp`, and a test
in `tests/emulator`.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

from gen.emulator.ptx.module import TYPE_BYTES


@dataclass(frozen=True)
class Row:
    """How one spelling is computed: the expression, and the PTX types of result and sources."""

    code: str
    types: tuple[str, ...]
    warp: bool = False  # needs every live lane of a warp at once
    pair: bool = False  # gives a tuple: the result and a predicate, for `d|p`


TABLE: dict[str, Row] = {}


def expand(pattern: str) -> list[str]:
    """All spellings of a pattern: `add[.rn].{f32,f64}` has four."""
    parts = re.split(r"(\{[^}]*\}|\[[^\]]*\])", pattern)
    choices = [
        part[1:-1].split(",")
        if part[:1] == "{"
        else ["", part[1:-1]]
        if part[:1] == "["
        else [part]
        for part in parts
    ]
    return ["".join(choice) for choice in itertools.product(*choices)]


def floats(name: str, code: str, kinds: list[str]) -> str:
    """`code` with what the modifiers of a float instruction add to it.

    `.ftz` replaces subnormal operands and results by zeros (only those of f32 in cvt), `.sat`
    clamps the result to [0, 1], `.relu` makes negative results zero.
    """
    words = name.split(".")
    if "ftz" in words:
        which = ("f32",) if words[0] == "cvt" else ("f16", "f32", "f64")
        small = [letter for letter, kind in zip("abcde", kinds[1:], strict=False) if kind in which]
        code = re.sub(r"\b[a-e]\b", lambda m: f"ftz({m[0]})" if m[0] in small else m[0], code)
        code = f"ftz({code})" if kinds[0] in which else code
    if kinds[0][0] == "f":
        for word, function in (("sat", "saturate"), ("relu", "relu")):
            code = f"{function}({code})" if word in words else code
    return code


def op(pattern: str, code: str, types: str = "", warp: bool = False, pair: bool = False) -> None:
    """Add a row for every spelling of `pattern`."""
    sources = len(set(re.findall(r"\b[a-e]\b", code)))
    for name in expand(pattern):
        last = name.rsplit(".", 1)[1]
        bits = TYPE_BYTES.get(last, 0) * 8
        words = types.split() or ["T"] * (1 + sources)
        names = {"T": last, "A": name.split(".")[-2], "wide": f"{last[0]}{bits * 2}"}
        kinds = [names.get(word, word) for word in words]
        TABLE[name] = Row(floats(name, code, kinds), tuple(kinds), warp, pair)
