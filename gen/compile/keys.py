"""What compiled code depends on, as the key under which the cache keeps it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache as memoize
from pathlib import Path

# The packages that headers come from; their versions are part of the cache's key.
_HEADER_PACKAGES = ("nvidia-cuda-runtime", "nvidia-cuda-cccl", "nvidia-cuda-crt", "nvidia-cutlass")
_QUOTED_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)


def key_of(
    text: str,
    name: str,
    version: tuple[int, int],
    flags: Iterable[str],
    headers: Mapping[str, str],
    names: Sequence[str],
) -> str | None:
    """What the code depends on, hashed; None where that cannot be known.

    Headers count by the versions of the installed packages, not by their paths, so that virtual
    environments share entries.
    """
    quoted = [file for file in _QUOTED_INCLUDE.findall(text) if file not in headers]
    if any((Path(name).parent / file).is_file() for file in quoted):
        return None  # a file beside the source, with includes of its own
    parts = ["1", name, text, str(version), *_package_versions()]
    parts += [f"#include {file}: {content}" for file, content in headers.items()]
    parts += [f"name {expression}" for expression in names]
    rest = iter(flags)
    for flag in rest:
        if flag.startswith(("-include", "--pre-include")) and flag.split("=")[-1] not in headers:
            return None  # a file from anywhere
        folder = _include_folder(flag, rest)
        parts.append(flag if folder is None else f"-I {fingerprint(folder)}")
    joined = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(joined.encode()).hexdigest()


def _include_folder(flag: str, rest: Iterator[str]) -> str | None:
    """The folder that an option adds to the include path, if it does; it may be the next word."""
    for prefix in ("--include-path=", "-I=", "--include-path", "-I"):
        if flag.startswith(prefix):
            return flag[len(prefix) :].strip() or next(rest, "")
    return None


@memoize
def _package_versions() -> list[str]:
    import importlib.metadata  # 30 ms

    versions = []
    for package in _HEADER_PACKAGES:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{package} none")
    return versions


@memoize
def fingerprint(folder: str) -> str:
    """Stands for the contents of an include folder, once per process.

    An installed package's files change with its version only. Any other folder (a checkout that
    CUTLASS_PATH names, a user's own) is known by the names, sizes and times of its files.
    """
    path = Path(folder).absolute()
    for part in ("site-packages", "dist-packages"):
        if part in path.parts:
            return "/".join(path.parts[path.parts.index(part) + 1 :])
    digest = hashlib.sha256(str(path).encode())
    for root, folders, files in os.walk(path):
        folders.sort()
        for file in sorted(files):
            full = os.path.join(root, file)  # noqa: PTH118 - thousands of files
            try:
                stat = os.stat(full)  # noqa: PTH116
            except OSError:
                continue
            digest.update(f"{full}\0{stat.st_size}\0{stat.st_mtime_ns}\0".encode())
    return digest.hexdigest()
