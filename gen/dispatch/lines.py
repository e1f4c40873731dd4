"""A table's text as a choice reads it: the entries of problems that it asks for, and no others.

A table has thousands of entries, of which a choice needs those near its problem. As `Table.to_json`
writes them, each is a line that begins with its GPU and shape: by these, lines are found without
being read. A table that is laid out otherwise is read whole.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gen.dispatch import table
from gen.dispatch.table import MOST, Entry, Table
from gen.errors import GenError

Sizes = tuple[int, int, int]  # M, N and K
Place = tuple[str, Sizes]  # of an entry: its GPU and shape

_SIZE, _COUNT = r"([1-9]\d{0,17})", r"[1-9]\d*"
_NUMBER = r"(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?"
_WORD = r'"([^"\\\n]*)"'

# The text before the entries ends with the one, that behind them is the other.
_HEAD, _TAIL = '"entries": [\n', "]\n}\n"
# Neighbouring lines that begin alike.
_BLOCK = re.compile(rf'(\{{"gpu": {_WORD}, "shape": "{_SIZE}x{_SIZE}x{_SIZE}", ).*\n(?:\1.*\n)*')
# What follows in a line, with the fields of `Time`.
_REST = re.compile(
    rf'"us": ({_NUMBER}), "rounds": {_COUNT}, "noise": (?:{_NUMBER}|null), "templates": {_WORD}, '
    rf'"run": {_WORD}, (?:"batch": ({_COUNT}), )?"spec": (\{{"variant": "\w+", "dtype": {_WORD}, '
    r'"layout": "([rc]{3})", "arch": "\w+"[^{}\n]*\})\},?\n'
)


class Time(NamedTuple):
    """What a choice needs of an `Entry`. spec: its JSON, as `KernelSpec.to_json` writes it."""

    us: float
    templates: str
    run: str
    batch: int
    spec: str
    dtype: str
    layout: str


class Lines:
    """A table's text, and what has been read of it.

    where: what messages call it. strict: whether what is wrong with an entry is an error, and not
    only a warning.
    """

    def __init__(self, text: str, where: str, strict: bool = True) -> None:
        """Raises UsageError for what is no table."""
        self._text, self._where, self._strict = text, where, strict
        self._head = text[: text.find(_HEAD) + len(_HEAD)]
        self._times: dict[Place, list[Time]] = {}
        places = _places(text, len(self._head))
        if places is None:
            self._times = _by_place(table.parse(text, where).entries)
        else:
            self._runs = self._parsed("").runs  # which also says what is wrong with the head
        # The lines of each, as far as they have not been read at once.
        self._places: Mapping[Place, Sequence[slice]] = places or {x: [] for x in self._times}

    def sizes(self, gpu: str, layout: str) -> list[Sizes]:
        """Those that may have been measured on a GPU with a layout."""
        return [
            place[1]
            for place, blocks in self._places.items()
            if place[0] == gpu and (not blocks or any(self._may_have(layout, x) for x in blocks))
        ]

    def _may_have(self, layout: str, block: slice) -> bool:
        """Whether lines have it, or a character that JSON may have written otherwise."""
        start, end = block.start, block.stop
        return any(self._text.find(x, start, end) >= 0 for x in (layout, "\\"))

    def times(self, gpu: str, sizes: Sizes, dtype: str, layout: str) -> list[Time]:
        """What was measured there. Raises UsageError with what is wrong, where that is strict."""
        place = gpu, sizes
        if place not in self._times:
            block = "".join(self._text[each] for each in self._places.get(place, ()))
            try:
                self._times[place] = self._read(block)
            except GenError as error:
                leave_out(error, self._strict)
                self._times[place] = []
        return [x for x in self._times[place] if (x.dtype, x.layout) == (dtype, layout)]

    def _read(self, block: str) -> list[Time]:
        """Of some lines. What is unusual there is read as JSON, which also finds what is wrong."""
        found = [
            Time(float(us), templates, run, int(batch or 1), spec, dtype, layout)
            for us, templates, run, batch, spec, dtype, layout in _REST.findall(block)
        ]
        usual = all(0 < x.us < MOST and x.run in self._runs for x in found)
        if usual and len(found) == block.count("\n"):
            return found
        return [_time(entry) for entry in self._parsed(block).entries]

    def _parsed(self, block: str) -> Table:
        """The table with some of its lines alone. Raises UsageError."""
        entries = block.rstrip(",\n")
        return table.parse(f"{self._head}{entries}{_TAIL}", self._where)


def _places(text: str, at: int) -> dict[Place, list[slice]] | None:
    """Where the entries of each place are, from a character on.

    None where they are not written as `Table.to_json` does.
    """
    found: dict[Place, list[slice]] = {}
    last = len(text) - len(_TAIL)
    for block in _BLOCK.finditer(text, at, last):
        start, end = block.span()
        if start != at:
            return None
        _, gpu, m, n, k = block.groups()
        found.setdefault((gpu, (int(m), int(n), int(k))), []).append(slice(start, end))
        at = end
    return found if at == last and text.endswith(_TAIL) else None


def _by_place(entries: Iterable[Entry]) -> dict[Place, list[Time]]:
    found: dict[Place, list[Time]] = {}
    for entry in entries:
        s = entry.size
        found.setdefault((entry.gpu, (s.m, s.n, s.k)), []).append(_time(entry))
    return found


def _time(entry: Entry) -> Time:
    spec = entry.spec
    return Time(
        entry.us, entry.templates, entry.run, entry.batch, json.dumps(dict(spec)),
        spec["dtype"], spec["layout"],
    )  # fmt: skip


def leave_out(error: GenError, strict: bool) -> None:
    """Says what is wrong with a table, of which that is not read. Raises it where it is strict."""
    if strict:
        raise error
    warnings.warn(f"measured times are left out: {error}", RuntimeWarning, stacklevel=2)
