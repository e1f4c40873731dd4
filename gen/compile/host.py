"""Shared libraries built by this machine's C++ compiler; kept on disk."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from gen.compile.libraries import kept, run, version
from gen.errors import MissingError

COMPILERS = ("g++", "clang++", "c++")

_FLAGS = ("-std=c++17", "-O1", "-shared", "-fPIC")


def find_compiler() -> str:
    """Where the C++ compiler is. Raises MissingError."""
    found = next(filter(None, map(shutil.which, COMPILERS)), None)
    if found is None:
        raise MissingError(
            f"there is no C++ compiler ({', '.join(COMPILERS)}) on the PATH; install one, "
            "such as g++"
        )
    return found


def library(files: Mapping[str, str], includes: Sequence[str] = (), known_by: str = "") -> Path:
    """The shared library of these texts by file name, of which those that end in .cpp are compiled.

    includes: folders of headers, whose version is `known_by`. It is known by all that and the
    compiler's version. Raises MissingError without a compiler or a folder for it, CompileError
    where the compiler refuses the files.
    """
    compiler = find_compiler()
    command = [compiler, *_FLAGS, *(f"-I{folder}" for folder in includes)]

    def build(folder: Path) -> Path:
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        sources = [name for name in files if name.endswith(".cpp")]
        run([*command, *sources, "-o", "built.so"], folder)
        return folder / "built.so"

    parts = [text for item in files.items() for text in item]
    return kept("c++", [*parts, *command, version(compiler), known_by], build)
