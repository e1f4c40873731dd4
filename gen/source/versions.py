"""The files that a kernel is made from, and what tells their versions apart."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

from gen.source.render import FRAME
from gen.source.templates import template_dir

# Templates name others in quotes; the frame of a kernel is the one that they name by a variable.
_NAMED = re.compile(r'/\*%-?\s*(?:extends|include|import|from)\s+"([^"]+)"')

# Comments, of Jinja and of C++: they change nothing of a kernel, nor do spaces.
_COMMENT = re.compile(r"/\*#.*?#\*/|//[^\n]*", re.DOTALL)


def template_files(*names: str) -> list[Path]:
    """The files of these templates and of those that they extend or import, each once."""
    folder = template_dir()
    found: dict[str, None] = {}
    waiting = [*names, FRAME]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = None
            waiting += _NAMED.findall((folder / name).read_text(encoding="utf-8"))
    return [folder / name for name in found]


@cache
def template_version(name: str) -> str:
    """Eight hexadecimal digits that change with the code of a template, or of what it is made from.

    They tell whether a kernel that was measured is still the kernel that is emitted.
    """
    found = hashlib.sha256()
    for path in sorted(template_files(name)):
        words = _COMMENT.sub("", path.read_text(encoding="utf-8")).split()
        found.update(" ".join(words).encode())
    return found.hexdigest()[:8]
