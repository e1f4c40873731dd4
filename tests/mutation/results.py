"""What became of mutants, in a file with a line of JSON for each, from which a run goes on."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, TextIO


class Name(NamedTuple):
    """A mutant whatever else changes: the kernel, `Mutant.key`, and its number among equal keys.

    Without a key it is the kernel as it is.
    """

    kernel: str
    key: str
    nth: int


class Verdict(NamedTuple):
    """How a mutant was found, see `run.verdict`, and the CPU seconds that it took."""

    how: str
    seconds: float


class Results:
    """The results of this run and, with a file, of those before it."""

    def __init__(self, path: Path | None) -> None:
        self.known: dict[Name, Verdict] = {}
        self._path = path
        self._file: TextIO | None = None

    def __enter__(self) -> Results:
        if self._path is None:
            return self
        if self._path.exists():
            for line in self._path.read_text(encoding="utf-8").splitlines():
                self._read(line)
        self._file = self._path.open("a", encoding="utf-8")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file:
            self._file.close()

    def add(self, name: Name, verdict: Verdict) -> None:
        """A result, written at once."""
        self.known[name] = verdict
        if self._file:
            line = json.dumps(name._asdict() | verdict._asdict())
            print(line, file=self._file, flush=True)

    def _read(self, line: str) -> None:
        try:
            said = json.loads(line)
        except json.JSONDecodeError:  # a line that was cut off
            return
        name = Name(*(said[field] for field in Name._fields))
        self.known[name] = Verdict(*(said[field] for field in Verdict._fields))
