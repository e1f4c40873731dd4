"""Tables and JSON, as all commands print them.

rich draws for terminals (it honours NO_COLOR). A pipe gets plain aligned columns of full width.
rich is imported only where it draws.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

Row = Sequence[str]


_STYLES = {"ok": "green", "FAILED": "bold red", "MISSING": "bold red", "note": "yellow"}


def table(headers: Row, rows: Sequence[Row], right: Sequence[str] = ()) -> None:
    """Prints rows under headers; the columns named in `right` are aligned to the right.

    On a terminal, text wraps between words. Where the longest words do not fit beside each other,
    each row is a paragraph with a line for each column.
    """
    if not sys.stdout.isatty():
        _plain_table(headers, rows, right)
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    least = [
        max(len(cell) if header in right else _longest_word(cell) for cell in (header, *column))
        for header, *column in zip(headers, *rows, strict=True)
    ]
    if sum(least) + len(least) > console.width:
        _paragraphs(headers, rows)
        return
    drawn = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for header, width in zip(headers, least, strict=True):
        number = header in right
        drawn.add_column(
            Text(header), justify="right" if number else "left", no_wrap=number, min_width=width
        )
    for row in rows:
        drawn.add_row(*(Text(cell, _STYLES.get(cell, "")) for cell in row))
    console.print(drawn)


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=0)


def _paragraphs(headers: Row, rows: Sequence[Row]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    for row in rows:
        drawn = Table.grid(padding=(0, 1), pad_edge=False)
        drawn.add_column(style="bold", no_wrap=True)
        drawn.add_column(overflow="ellipsis")
        for header, cell in zip(headers, row, strict=True):
            if cell:
                drawn.add_row(Text(header), Text(cell, _STYLES.get(cell, "")))
        Console().print(drawn, "")


def _plain_table(headers: Row, rows: Sequence[Row], right: Sequence[str]) -> None:
    lines = [headers, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print(_plain_line(headers, line, widths, right))


def _plain_line(headers: Row, line: Row, widths: Sequence[int], right: Sequence[str]) -> str:
    cells = (
        cell.rjust(width) if header in right else cell.ljust(width)
        for cell, width, header in zip(line, widths, headers, strict=True)
    )
    return "  ".join(cells).rstrip()


class Growing:
    """A table whose rows are printed as they come, in columns of these widths."""

    def __init__(self, headers: Row, widths: Sequence[int], right: Sequence[str]) -> None:
        self._headers, self._right = headers, right
        self._widths = [max(len(h), w) for h, w in zip(headers, widths, strict=True)]
        self._columns = sys.maxsize
        if sys.stdout.isatty():
            from rich.console import Console

            self._columns = Console().width
        self._fits = sum(self._widths) + 2 * len(headers) <= self._columns
        if self._fits:
            self._print(headers)

    def add(self, row: Row) -> None:
        """Prints a row."""
        if self._fits:
            self._print(row)
        else:
            _paragraphs(self._headers, [row])

    def _print(self, row: Row) -> None:
        line = _plain_line(self._headers, row, self._widths, self._right)
        style = _STYLES.get(row[-1])
        if style and self._columns < sys.maxsize:
            from rich.console import Console
            from rich.text import Text

            text = Text(line)
            text.stylize(style, len(line) - len(row[-1]))
            Console().print(text)
        else:
            print(line, flush=True)


def as_json(value: object) -> None:
    """Prints a value as JSON; NaN and infinity, which JSON lacks, have to be None already."""
    print(json.dumps(value, indent=2, allow_nan=False))


def seconds(value: float) -> str:
    """A duration in a unit that suits it."""
    for limit, factor, unit in ((1e-3, 1e6, "us"), (1, 1e3, "ms")):
        if value < limit:
            return f"{value * factor:.3g} {unit}"
    return f"{value:.1f} s"
