"""The files that a kernel is made from, and what tells their versions apart."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gen.source.render import FRAME
from gen.source.templates import template_dir

# Templates name others in quotes; the frame of a kernel is the one that they name by a variable.
_NAMED = re.compile(r'/\*%-?\s*(?:extends|include|import|from)\s+"([^"]+)"')

# Comments, of Jinja and of C++: they change nothing of a kernel, nor do spaces.
_COMMENT = re.compile(r"/\*#.*?#\*/|//[^\n]*", re.DOTALL)


class _Part(NamedTuple):
    """What is read of a template: the names of others in it, and its code."""

    names: tuple[str, ...]
    code: bytes


@cache  # most are parts of several kernels
def _part(path: Path) -> _Part:
    text = path.read_text(encoding="utf-8")
    return _Part(tuple(_NAMED.findall(text)), " ".join(_COMMENT.sub("", text).split()).encode())


def template_files(*names: str) -> list[Path]:
    """The files of these templates and of those that they extend or import, each once."""
    folder = template_dir()
    found: dict[str, None] = {}
    waiting = [*names, FRAME]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = None
            waiting += _part(folder / name).names
    return [folder / name for name in found]


@cache
def template_version(name: str) -> str:
    """Eight hexadecimal digits that change with the code of a template, or of what it is made from.

    They tell whether a kernel that was measured is still the kernel that is emitted.
    """
    found = hashlib.sha256()
    for path in sorted(template_files(name)):
        found.update(_part(path).code)
    return found.hexdigest()[:8]
