"""The disk cache of compiled code: a directory that many processes and threads share.

The files are `FileStreamProgramCache`'s (one file an entry, renamed into place, the least recently
read evicted first). That class returns whatever bytes a file holds, so an entry here carries its
key and a checksum: a truncated or damaged file is noticed, dropped and made again. No state of the
directory is an error, since everything in it can be compiled once more.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gen.requirements import cuda_core

if TYPE_CHECKING:
    from cuda.core.utils import FileStreamProgramCache

# A file's contents: _MAGIC, SHA-256 of all that follows, length of the header, header, code.
# The header is JSON and holds the key, so that a file under another's name is noticed, too.
_MAGIC = b"gemmgen1"
_SUM_END = len(_MAGIC) + 32
_HEADER_START = _SUM_END + 4

# A CUTLASS kernel's PTX is 0.1 MB, an emitted kernel's 0.01 MB.
MAX_BYTES = 256 * 2**20


def cache_dir() -> Path:
    """`$GEN_CACHE_DIR`, or `gemmgen` in `$XDG_CACHE_HOME`, or `~/.cache/gemmgen`.

    Raises RuntimeError where all three are unset and the user has no home directory.
    """
    own = os.environ.get("GEN_CACHE_DIR")
    if own:
        return Path(own).absolute()
    shared = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG base directory specification wants relative paths ignored.
    base = Path(shared) if os.path.isabs(shared) else Path.home() / ".cache"  # noqa: PTH117
    return base / "gemmgen"


class Entry(NamedTuple):
    """What is stored: JSON's types, and code."""

    key: str
    header: dict[str, Any]
    code: bytes


_adopted: dict[str, Entry] = {}
_recording: list[Entry] | None = None


@contextmanager
def recorded() -> Iterator[list[Entry]]:
    """What is loaded and saved meanwhile, for other processes to adopt."""
    global _recording
    found: list[Entry] = []
    _recording = found
    try:
        yield found
    finally:
        _recording = None


def adopt(entries: Iterable[Entry]) -> None:
    """Takes what another process has recorded, in place of what was adopted before.

    It is stored, too, so that it outlives this process.
    """
    global _adopted
    before, _adopted = _adopted, {entry.key: entry for entry in entries}
    for key, entry in _adopted.items():
        if key not in before and _stored(key) is None:
            _store(entry)


def load(key: str) -> tuple[dict[str, Any], bytes] | None:
    """Header and code stored under `key`, or None. Never raises; drops what is damaged."""
    adopted = _adopted.get(key)
    found = (adopted.header, adopted.code) if adopted else _stored(key)
    if found and _recording is not None:
        _recording.append(Entry(key, *found))
    return found


def save(key: str, header: dict[str, Any], code: bytes) -> None:
    """Stores header (JSON types only) and code under `key`. Never raises."""
    entry = Entry(key, header, code)
    if _recording is not None:
        _recording.append(entry)
    _store(entry)


def _stored(key: str) -> tuple[dict[str, Any], bytes] | None:
    store = _open()
    if store is None:
        return None
    try:
        blob = store.get(key)
        if blob is None:
            return None
        entry = _unpack(key, blob)
        if entry is None:
            del store[key]
        return entry
    except KeyError:  # another process dropped it first
        return None
    except OSError as error:
        _warn(str(error))
        return None


def _store(entry: Entry) -> None:
    store = _open()
    if store is None:
        return
    try:
        store[entry.key] = _pack(*entry)
    except OSError as error:
        _warn(str(error))


def _pack(key: str, header: dict[str, Any], code: bytes) -> bytes:
    text = json.dumps({**header, "key": key}).encode()
    rest = len(text).to_bytes(4, "little") + text + code
    return _MAGIC + hashlib.sha256(rest).digest() + rest


def _unpack(key: str, blob: bytes) -> tuple[dict[str, Any], bytes] | None:
    rest = blob[_SUM_END:]
    if blob[:_SUM_END] != _MAGIC + hashlib.sha256(rest).digest() or len(rest) < 4:
        return None
    end = _HEADER_START + int.from_bytes(rest[:4], "little")
    header = json.loads(blob[_HEADER_START:end])
    return (header, blob[end:]) if header.get("key") == key else None


_lock = threading.Lock()
_stores: dict[Path, FileStreamProgramCache | None] = {}
_warned = threading.Event()


def _open() -> FileStreamProgramCache | None:
    """The store in `cache_dir()`, opened once per directory; None where it cannot be used."""
    try:
        folder = cache_dir()
    except RuntimeError as error:
        _warn(str(error))
        return None
    with _lock:
        if folder not in _stores:
            _stores[folder] = _open_store(folder)
        return _stores[folder]


def _open_store(folder: Path) -> FileStreamProgramCache | None:
    try:
        # A fifth of a second, so not before it is needed.
        store: FileStreamProgramCache = cuda_core().utils.FileStreamProgramCache(
            folder, max_size_bytes=MAX_BYTES
        )
    except (OSError, ImportError) as error:
        _warn(str(error))
        return None
    return store


def _warn(reason: str) -> None:
    # Once per process: the compilation goes on, only slower the next time.
    if not _warned.is_set():
        _warned.set()
        warnings.warn(
            f"compiled kernels are not cached: {reason}; set GEN_CACHE_DIR to a writable directory",
            RuntimeWarning,
            stacklevel=4,
        )
