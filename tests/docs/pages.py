"""The parts of a page that commands make, and how two outputs are compared.

A block of `console` is a session: each line that starts with `$ ` is a command, up to the line that
no longer ends with a backslash, and the lines below it are what it prints. A block of another
language under a comment `<!-- made by: COMMAND -->` is the output of that command alone.

The commands of a page run in their order in one folder, so that a command can use the files of
those before it. They see no GPU.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from ctypes import CDLL
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from gen.cli import main

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "build").glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    ]
)

# What may differ between two runs of a command, and what stands for it in a comparison.
VARIABLE = (
    # a time, and `cached` where `gen compile` prints none
    (r"\b\d+(\.\d+)?(e-?\d+)? (us|ms|s)\b|\bcached\b", "<time>"),
    # why there is no GPU
    (r"(no NVIDIA driver \(libcuda\) is installed|CUDA_VISIBLE_DEVICES is empty)", "<no GPU>"),
    # how much `gen check` has tried
    (r"\b[\d,]+ launch(es)? on \d+ shapes?", "<launches>"),
    (r"\b\d+ repeats\b", "<repeats>"),
    # how far a command is that takes long
    (r"(?m)^.*: \d+ of \d+, about <time> left\n", ""),
    # the version of a package in `gen doctor`
    (r"\bok +\d+(\.\d+)+", "ok <version>"),
    # whether `gen profile` could read machine code, for which it needs nvdisasm
    (r"shared loads: (machine code|predicted)( \(pip install [^)]*\))?", "shared loads: <source>"),
)

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MADE_BY = re.compile(r"^<!-- made by: (.+) -->\n\Z", re.MULTILINE)


def blocks(text: str) -> Iterator[tuple[str, str, re.Match[str]]]:
    """Language and content of each fenced block."""
    for match in _FENCE.finditer(text):
        yield match[1], match[2], match


@dataclass
class Part:
    """A command and the place of its output, `text[start:end]`."""

    command: str
    start: int
    end: int


def parts(text: str) -> list[Part]:
    """All commands of a page, in order."""
    found = []
    for language, content, match in blocks(text):
        if language == "console":
            found += _session(content, match.start(2))
        elif made := _MADE_BY.search(text[: match.start()]):
            found.append(Part(made[1], *match.span(2)))
    return found


def _session(content: str, at: int) -> list[Part]:
    found: list[Part] = []
    command: list[str] = []
    for line in content.splitlines(keepends=True):
        at += len(line)
        if command and command[-1].endswith("\\"):
            command.append(line.rstrip("\n"))
        elif line.startswith("$ "):
            command = [line[2:].rstrip("\n")]
        elif not found:
            raise ValueError(f"a console block does not start with a command: {line!r}")
        else:
            found[-1].end = at
            continue
        if not command[-1].endswith("\\"):
            found.append(Part("\n".join(command), at, at))
    return found


def normal(output: str) -> str:
    """An output without what may differ. Columns may be as wide as they need to be."""
    for pattern, name in VARIABLE:
        output = re.sub(pattern, name, output)
    return re.sub(r"(?<=\S) {2,}", "  ", output)


@dataclass
class Session:
    """A folder where the commands of a page run, with `gen` of this checkout on the PATH."""

    folder: Path
    environment: dict[str, str] = field(init=False)
    code: int = 0  # of the last command: what `$?` is in the next one

    def __post_init__(self) -> None:
        tools = self.folder / "bin"
        tools.mkdir(parents=True)
        for name, module in (("gen", "-m gen"), ("python", "")):
            tool = tools / name
            tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
            tool.chmod(0o755)
        self.cwd = self.folder / "cwd"
        self.cwd.mkdir()
        (self.cwd / "examples").symlink_to(ROOT / "examples")
        (self.cwd / "templates").symlink_to(ROOT / "templates")
        paths = (tools, Path(sys.executable).parent, os.environ["PATH"])
        self.environment = {
            **{k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "COLUMNS")},
            "PATH": os.pathsep.join(map(str, paths)),
            "PYTHONPATH": str(ROOT),
        }
        with suppress(OSError):
            CDLL("libcuda.so.1")
            self.environment["CUDA_VISIBLE_DEVICES"] = ""

    def run(self, command: str) -> str:
        """What a command prints, on both streams, as on a terminal."""
        if re.fullmatch(r"gen (choose|compile|doctor|emit|list)( [\w.,/+-]+)*", command):
            return self._called(command.split()[1:])
        done = subprocess.run(
            ["bash", "-c", f"(exit {self.code})\n{command}"],
            cwd=self.cwd,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.code = done.returncode
        return done.stdout

    def _called(self, words: Sequence[str]) -> str:
        """What `gen` alone prints, without another process, which imports all that this one has."""
        printed, here = io.StringIO(), Path.cwd()
        os.chdir(self.cwd)
        try:
            with (
                mock.patch.dict(os.environ, self.environment, clear=True),
                redirect_stdout(printed),
                redirect_stderr(printed),
            ):
                self.code = main(words)
        finally:
            os.chdir(here)
        return printed.getvalue()
