"""The device's side of CUDA source: what is on the host's side becomes empty lines.

NVRTC refuses functions and variables of the host, launches with `<<<>>>`, and most of `std::`. So
functions that say neither `__global__` nor `__device__` are left out from the start; other
declarations where the compiler has complained about them (see `build`). Lines stay where they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gen.errors import UsageError
from gen.foreign.scan import Macros, Unit, macros_of, masked, units_of
from gen.foreign.signature import Signature, kernels_of

_INCLUDE = re.compile(r'^([ \t]*#[ \t]*include[ \t]*)(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)


@dataclass
class File:
    """A file of the user's. `name` is what the compiler calls it, `text` what it holds."""

    name: str
    text: str
    includes: dict[tuple[int, int], str] = field(default_factory=dict)  # by place, with the path
    units: list[Unit] = field(default_factory=list)
    left_out: list[tuple[int, int]] = field(default_factory=list)

    def device_side(self) -> str:
        """What the compiler gets."""
        text = self.text
        for start, end in self.left_out:
            lines = _directives(text[start:end].splitlines(keepends=True))
            blank = "".join(line if kept else re.sub(r"[^\r\n]", " ", line) for line, kept in lines)
            text = text[:start] + blank + text[end:]
        changes = {**self.includes, **self._constants(text)}
        for (start, end), new in sorted(changes.items(), reverse=True):
            text = text[:start] + new + text[end:]
        return text

    def _constants(self, text: str) -> dict[tuple[int, int], str]:
        """constexpr functions are the device's as well: nvcc has that for constant expressions."""
        found = {}
        for unit in self.all_units():
            if unit.kind == "function" and unit.constant and not unit.marked:
                at = re.compile(r"\bconst(?:expr|eval)\b").search(text, unit.start, unit.end)
                if at:
                    found[at.span()] = f"__host__ __device__ {at[0]}"
        return found

    def all_units(self) -> Iterator[Unit]:
        """Its declarations and those inside of them, inner ones first."""
        for unit in self.units:
            yield from unit.within()

    def line(self, offset: int) -> int:
        """The line of a place in the text, from 1."""
        return self.text.count("\n", 0, offset) + 1

    @property
    def kernels(self) -> list[Signature]:
        """The kernels that it defines."""
        return list(kernels_of(self.units))


def _directives(lines: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it belongs to a directive, on which others may depend."""
    goes_on = False
    for line in lines:
        directive = goes_on or line.lstrip().startswith("#")
        goes_on = directive and line.rstrip("\r\n").endswith("\\")
        yield line, directive


@dataclass
class Program:
    """A CUDA file with those that it includes; the first is the file itself."""

    files: dict[str, File]
    missing: list[str] = field(default_factory=list)  # headers that empty ones stand for
    reasons: dict[tuple[str, int], str] = field(default_factory=dict)  # why a unit was left out

    def includes(self) -> set[str]:
        """The headers that are not the user's own, by the names that are included."""
        return {
            match[2] or match[3]
            for file in self.files.values()
            for match in _INCLUDE.finditer(file.text)
            if match.span() not in file.includes
        }

    @property
    def main(self) -> File:
        """The file itself."""
        return next(iter(self.files.values()))

    @property
    def kernels(self) -> list[tuple[File, Signature]]:
        """The kernels of the file itself; where it has none, those of the files it includes."""
        found = [(file, kernel) for file in self.files.values() for kernel in file.kernels]
        own = [(file, kernel) for file, kernel in found if file is self.main]
        return own or found


def read_program(text: str, name: str, folders: Sequence[Path] = ()) -> Program:
    """The program of a file's text: with the files that it includes from beside it or `folders`."""
    files: dict[str, File] = {}
    _read(files, text, name, folders)
    program = Program(files)
    macros = macros_of(file.text for file in files.values())
    for file in files.values():
        _split(file, macros)
    return program


def _read(files: dict[str, File], text: str, name: str, folders: Sequence[Path]) -> None:
    files[name] = file = File(name, text)
    for match in _INCLUDE.finditer(text):
        places = [Path(name).parent, *folders] if match[2] else folders
        for place in places:
            path = place / (match[2] or match[3])
            if path.is_file():
                file.includes[match.span()] = f'#include "{path}"'
                if str(path) not in files:
                    _read(files, read_text(path), str(path), folders)
                break


def _split(file: File, macros: Macros) -> None:
    file.units = units_of(masked(file.text), macros)
    for unit in file.units:
        if unit.kind == "function" and not unit.marked and not unit.constant:
            file.left_out.append((unit.start, unit.end))


def read_text(path: Path) -> str:
    """The text of a file. Raises UsageError."""
    try:
        return path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
