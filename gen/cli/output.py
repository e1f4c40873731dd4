"""Where output goes: files, and standard output for `-`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from gen.errors import UsageError
from gen.files import write

DEFAULT_FOLDER = "build/out/"
STDOUT = "-"


def destinations(names: Sequence[str], output: str) -> list[Path]:
    """The file for each name: inside of `output` where that is a folder, else `output` itself.

    A folder is what exists as one or ends in a slash. Raises UsageError where several files
    would be one.
    """
    folder = Path(output)
    if output.endswith("/") or folder.is_dir():
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise UsageError(
                f"two files would be {folder / twice}; give one at a time, with -o FILE"
            )
        return [folder / name for name in names]
    if len(names) > 1:
        raise UsageError(
            f"{len(names)} files do not fit into one, {output}; end it with / to make it a folder"
        )
    return [folder]


def write_all(files: Sequence[tuple[str, bytes]], output: str) -> list[Path]:
    """Writes (name, contents) to `output`; returns the paths written, none for `-`."""
    if output != STDOUT:
        paths = destinations([name for name, _ in files], output)
        for path, (_, data) in zip(paths, files, strict=True):
            write(data, path)
        return paths
    if len(files) > 1:
        raise UsageError(f"standard output takes one file, not {len(files)}; use -o FOLDER/")
    sys.stdout.flush()
    sys.stdout.buffer.write(files[0][1])
    sys.stdout.buffer.flush()
    return []
