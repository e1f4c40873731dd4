"""Where output goes: files that appear whole or not at all, and standard output for `-`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gen.errors import UsageError

DEFAULT_FOLDER = "build/out/"
STDOUT = "-"


def destinations(names: Sequence[str], output: str) -> list[Path]:
    """The file for each name: inside of `output` where that is a folder, else `output` itself.

    A folder is what exists as one or ends in a slash. Raises UsageError where several files
    would be one.
    """
    folder = Path(output)
    if output.endswith("/") or folder.is_dir():
        return [folder / name for name in names]
    if len(names) > 1:
        raise UsageError(
            f"{len(names)} files do not fit into one, {output}; end it with / to make it a folder"
        )
    return [folder]


def write(data: bytes, path: Path) -> None:
    """Writes a file, with its folders, atomically. Raises UsageError where that cannot be done."""
    try:
        target = path.resolve()  # a link stays, what it points to is replaced
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and not target.is_file():
            target.write_bytes(data)  # a device or a pipe
        else:
            _replace(data, target)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"cannot write {path}: {reason}; choose another place with -o") from None


def _replace(data: bytes, target: Path) -> None:
    temporary = target.with_name(f".{target.name[:200]}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):  # what it is called may be what is wrong
            temporary.unlink()
        raise


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
