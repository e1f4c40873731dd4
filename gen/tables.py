"""Tables as data, for the terminal, Markdown and HTML alike, and numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Cell(NamedTuple):
    """What is shown, and the number that it is sorted by; None for text."""

    text: str
    value: float | None = None


NOTHING = "-"  # in a cell without a value


@dataclass(frozen=True)
class Table:
    """Rows of cells under the names of the columns. `note` is what a reader needs to know."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""

    @property
    def numeric(self) -> list[str]:
        """The columns that have a number."""
        return [
            name
            for i, name in enumerate(self.columns)
            if any(row[i].value is not None for row in self.rows)
        ]


def number(value: float | None, digits: int = 3) -> Cell:
    """`digits` significant digits, without an exponent; a dash for None."""
    if value is None:
        return Cell(NOTHING)
    if value == 0 or not math.isfinite(value):
        return Cell(f"{value:g}", value)
    places = digits - 1 - math.floor(math.log10(abs(value)))
    rounded = round(value, places)
    return Cell(f"{rounded:,.{max(0, places)}f}", value)


def count(value: float | None) -> Cell:
    """A large number with the letter of its thousands: 12.3 M."""
    if value is None or abs(value) < 10_000:
        return Cell(NOTHING) if value is None else Cell(f"{value:,.0f}", value)
    for factor, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return Cell(f"{number(value / factor).text} {letter}", value)
    raise AssertionError


def ratio(value: float | None) -> Cell:
    """How many times as fast: 1.42x."""
    return Cell(NOTHING) if value is None else Cell(f"{number(value).text}x", value)


def percent(value: float | None) -> Cell:
    """A share of the whole."""
    return Cell(NOTHING) if value is None else Cell(f"{value * 100:.1f} %", value)


def geometric_mean(values: Iterable[float]) -> float | None:
    """The mean that treats 2x and 0.5x alike; None of nothing."""
    logs = [math.log(value) for value in values]
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


def columns(rows: Sequence[Sequence[str]], mark: str = "") -> list[str]:
    """Each row as a line; columns are as wide as their longest cell, with its `mark`."""
    widths = [max(map(len, column)) + len(mark) for column in zip(*rows, strict=True)]
    return [
        " ".join(f"{cell}{mark}".ljust(width) for cell, width in zip(row, widths, strict=True))
        .rstrip()
        .removesuffix(mark)
        for row in rows
    ]
