"""What the compiler warns of in the user's text, and which headers it has not found."""

from __future__ import annotations

import re

from gen.foreign.prepare import Program

# The text of a header that is nowhere: so the compiler says whether it is included at all.
MISSING = '#warning "gen: not found"\n'

_WARNING = re.compile(r"^(.+)\((\d+)\): warning #(\d+)-D: (.+)$", re.MULTILINE)
# Not told: names that nothing uses, which may be the host's that was left out; -1 as a mask; and
# constructors that do not run in shared memory, as all know who use cuda::barrier.
_NOT_TOLD = ("68", "177", "550", "1835", "20054")


def warnings_of(program: Program, log: str) -> list[str]:
    """Notes on what the compiler says of a program that compiles."""
    found, missing = [], []
    for match in _WARNING.finditer(log):
        file, line, number, message = match.groups()
        if MISSING.strip().partition(" ")[2] in message:
            missing += [] if file.startswith("thrust/") else [file]  # Thrust is the host's
        elif file in program.files and number not in _NOT_TOLD:
            found.append(f"{file}:{line}: {message}")
    if missing:
        names = ", ".join(dict.fromkeys(missing))
        found.insert(0, f"not found, and taken for empty: {names}; give the folder with -I")
    return list(dict.fromkeys(found))
