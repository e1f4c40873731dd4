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
_NAMED = re.compile(rb'/\*%-?\s*(?:extends|include|import|from)\s+"([^"]+)"')

# Comments, of Jinja and of C++: they change nothing of a kernel, nor do spaces.
_COMMENT = re.compile(rb"/\*#.*?#\*/|//[^\n]*", re.DOTALL)
_SPACES = b" \t\r\n"


class _Part(NamedTuple):
    """What is read of a template: the names of others in it, and a digest of its code."""

    names: tuple[str, ...]
    digest: bytes


@cache  # most are parts of several kernels
def _part(folder: Path, name: str) -> _Part:
    text = (folder / name).read_bytes()
    code = _COMMENT.sub(b"", text).translate(None, _SPACES)
    names = (name.decode() for name in _NAMED.findall(text))
    return _Part(tuple(names), hashlib.sha256(code).digest())


def template_files(*names: str) -> list[Path]:
    """The files of these templates and of those that they extend or import, each once."""
    folder = template_dir()
    return [folder / name for name in _parts(folder, *names)]


def _parts(folder: Path, *names: str) -> dict[str, _Part]:
    found: dict[str, _Part] = {}
    waiting = [*names, FRAME]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = _part(folder, name)
            waiting += found[name].names
    return found


@cache
def template_version(name: str) -> str:
    """Eight hexadecimal digits that change with the code of a template, or of what it is made from.

    They tell whether a kernel that was measured is still the kernel that is emitted.
    """
    parts = _parts(template_dir(), name)
    digests = (parts[part].digest for part in sorted(parts))
    return hashlib.sha256(b"".join(digests)).hexdigest()[:8]
