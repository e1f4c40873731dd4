"""A Python that has what gemmgen-emit brings, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

from gen.requirements import EMITTING
from tests import ROOT
from tests.conftest import Output

# -S: without this environment's packages.
PYTHON = (sys.executable, "-S")

_RUN = """
import contextlib, io, json, sys
from gen.cli import main
done = []
for args in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(args)
    done.append((code, out.getvalue(), err.getvalue()))
print(json.dumps(done))
"""


class Emitting(NamedTuple):
    """A folder with links to this environment's packages: those of gemmgen-emit alone."""

    packages: Path

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": f"{self.packages}:{ROOT}"}

    def python(self, *args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        command = [*PYTHON, *args]
        return subprocess.run(
            command, cwd=cwd, env=self.env, capture_output=True, text=True, check=False
        )

    def gen(self, *commands: Sequence[str], cwd: Path) -> list[Output]:
        """What these commands print, all in one process."""
        done = subprocess.run(
            [*PYTHON, "-c", _RUN],
            input=json.dumps(commands),
            cwd=cwd,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return [Output(*parts) for parts in json.loads(done.stdout)]


def emitting_alone(folder: Path) -> Emitting:
    """Makes such a folder."""
    folder.mkdir()
    for name in _closure(EMITTING):
        for file in metadata.files(name) or ():
            top = file.parts[0]
            if top != ".." and not (folder / top).exists():
                (folder / top).symlink_to(str(metadata.distribution(name).locate_file(top)))
    return Emitting(folder)


def _closure(requirements: Sequence[str]) -> Iterator[str]:
    """The names of the installed packages that these need, theirs included."""
    waiting, seen = [Requirement(text) for text in requirements], set()
    while waiting:
        wanted = waiting.pop()
        if wanted.name in seen or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
            continue
        seen.add(wanted.name)
        yield wanted.name
        waiting += [Requirement(text) for text in metadata.requires(wanted.name) or ()]
