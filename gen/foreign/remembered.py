"""What was left out of a program, kept in the cache of compiled code.

To find that out takes the compiler several rounds; the next command on the same file starts from
the result. It is only a start: what the compiler still refuses is left out as before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from gen.compile import cache
from gen.compile.nvrtc import nvrtc_version
from gen.foreign.prepare import Program


def key_of(program: Program, *more: str) -> str:
    """Stands for a program's texts, and for how it is compiled."""
    parts = ["left out 1", str(nvrtc_version()), *more]
    parts += [part for file in program.files.values() for part in (file.name, file.text)]
    return hashlib.sha256("".join(f"{len(part)}:{part}" for part in parts).encode()).hexdigest()


def recall(program: Program, key: str) -> list[str]:
    """Leaves out what was left out before; gives the notes about it."""
    entry = cache.load(key)
    if entry is None:
        return []
    for name, places in entry[0]["left_out"].items():
        program.files[name].left_out = [(start, end) for start, end in places]
    program.missing += [name for name in entry[0]["missing"] if name not in program.missing]
    return list(entry[0]["notes"])


def remember(program: Program, key: str, notes: Sequence[str]) -> None:
    """Keeps what was left out of a program that compiles."""
    left_out = {file.name: file.left_out for file in program.files.values()}
    found = {"left_out": left_out, "missing": program.missing, "notes": list(notes)}
    cache.save(key, found, b"")
