"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from gen.errors import UsageError


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
        raise UsageError(f"cannot write {path}: {reason}; choose another place") from None


def _replace(data: bytes, target: Path) -> None:
    temporary = target.with_name(f".{target.name[:200]}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):  # what it is called may be what is wrong
            temporary.unlink()
        raise
