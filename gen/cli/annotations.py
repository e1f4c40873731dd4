"""`--annotations github`: what is wrong, as GitHub's workflow commands, beside the lines."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from gen.errors import CompileError, unknown

FORMATS = ("github",)
OPTION = typer.Option(
    "--annotations",
    metavar="FORMAT",
    help="github: print what is wrong as workflow commands of GitHub, too.",
)
# The first line of a compiler's message, see `gen.compile.log`.
_HEADLINE = re.compile(r"^(.+):(\d+): (.+)$", re.MULTILINE)


class Annotations:
    """Prints annotations, or nothing without a format: on standard error where JSON is printed."""

    def __init__(self, format_: str | None, json: bool) -> None:
        if format_ is not None and format_ not in FORMATS:
            raise unknown("format of annotations", format_, FORMATS)
        self._wanted, self._json = format_ is not None, json

    def error(self, file: str, line: int, message: str) -> None:
        """One thing that is wrong in a line of a file; line 0 is unknown."""
        if self._wanted:
            where = f"file={_escaped(file, ':,')}" + (f",line={line}" if line else "")
            text = f"::error {where}::{_escaped(message)}"
            print(text, file=sys.stderr if self._json else sys.stdout, flush=True)

    @contextmanager
    def of_compiler(self) -> Iterator[None]:
        """Annotates the error of a compiler that leaves it."""
        try:
            yield
        except CompileError as error:
            if found := _HEADLINE.match(str(error)):
                self.error(found[1], int(found[2]), found[3])
            raise


def _escaped(text: str, more: str = "") -> str:
    return "".join(f"%{ord(c):02X}" if c in f"%\r\n{more}" else c for c in text)
