"""Shared libraries that a compiler of this machine builds, kept on disk."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from gen.compile.cache import cache_dir
from gen.errors import CompileError, MissingError


def kept(compiler: str, made_of: Iterable[str], build: Callable[[Path], Path]) -> Path:
    """The shared library that is made of these texts, found on disk or built.

    compiler: the folder's name in gen's cache. build: makes the library in the folder that it is
    given, and returns its path. Raises MissingError where there is no place for it.
    """
    key = hashlib.sha256("\0".join(made_of).encode()).hexdigest()
    try:
        target = cache_dir() / compiler / f"{key}.so"
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent) as folder:
                build(Path(folder)).replace(target)  # whole or not at all
    except (OSError, RuntimeError) as error:
        raise MissingError(
            f"there is no place for what {compiler} builds: {error}; set GEN_CACHE_DIR to a folder"
        ) from None
    return target


def run(command: list[str], folder: Path) -> None:
    """Runs a compiler in a folder. Raises CompileError with the first of its errors."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        log = done.stderr + done.stdout
        wrong = [line for line in log.splitlines() if "error" in line] or log.splitlines()
        raise CompileError((wrong or ["no message"])[0].replace(f"{folder}/", ""), log)


def version(compiler: str) -> str:
    """What a compiler says of itself."""
    done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    return done.stdout
