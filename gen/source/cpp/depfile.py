"""What emitted files depend on, as a Make rule: for build systems that emit them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from gen.source.versions import template_files


def inputs(templates: Iterable[str], lists: Iterable[Path] = ()) -> list[Path]:
    """A bundle's list, the templates' files, and those of the generator that are loaded."""
    modules = [
        Path(module.__file__)
        for name, module in sorted(sys.modules.items())
        if name.partition(".")[0] == "gen" and module.__file__
    ]
    return [*lists, *template_files(*templates), *modules]


def rule(target: Path, files: Iterable[Path]) -> str:
    """A Make rule without commands: `target` is older than it should be if one of `files` changes.

    All paths are absolute, as CMake reads others relative to a folder of its own choice.
    """
    return " \\\n  ".join([f"{_escape(target)}:", *map(_escape, files)]) + "\n"


def _escape(path: Path) -> str:
    return re.sub(r"([ #])", r"\\\1", str(path.absolute())).replace("$", "$$")
