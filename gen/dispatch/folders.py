"""Where measured times lie: those that come with the package, and the user's own.

A folder has a file for each GPU and element types, `h200/f16.json`, so that a choice reads what it
needs. Files are replaced whole, under a lock: a program that is killed, a full disk and two writers
leave a table that can be read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gen.device.gpus import GpuModel
from gen.dispatch.lines import Lines, leave_out
from gen.dispatch.table import UNREAD, Table, files, is_folder, load, read, unread
from gen.errors import GenError, UsageError
from gen.files import write
from gen.spec.dtypes import DTYPES, DTypes

SHIPPED = Path(__file__).parent / "tuned"
NONE, OURS = "none", "shipped"  # words in place of a table's path
OWN_WAY_OUT = "set GEN_TUNED_DIR to another folder, or to nothing"  # of a user's table
PATIENCE = 60.0  # seconds that a writer waits for another one


def user_folder() -> Path | None:
    """`$GEN_TUNED_DIR`, or `gemmgen/tuned` among the user's data; None where it is set to nothing.

    Times are kept there, not in a cache: nothing but a GPU can make them again.
    """
    own = os.environ.get("GEN_TUNED_DIR")
    if own is not None:
        return Path(own).absolute() if own else None
    from platformdirs import user_data_path

    return user_data_path("gemmgen", appauthor=False) / "tuned"


@dataclass(frozen=True)
class Places:
    """Tables that a choice reads, each a folder or a file; of the same thing, the later run's.

    strict: whether one that cannot be read is an error, and not only a warning.
    """

    paths: tuple[Path, ...]
    strict: bool = False

    def files(self, gpu: GpuModel, dtypes: DTypes) -> list[Path]:
        """Those that there are for a GPU and element types."""
        found = []
        for path in self.paths:
            if not (self.strict or _is_usable(*_state(path))):
                continue
            file = path / gpu.key / f"{dtypes.name}.json" if path.suffix != ".json" else path
            if is_there(file):
                found.append(file)
        return found

    def lines(self, gpu: GpuModel, dtypes: DTypes) -> tuple[Lines, ...]:
        """What was measured on a GPU with element types, and perhaps more.

        Raises UsageError where it is strict.
        """
        found = (_lines(*_state(path), self.strict) for path in self.files(gpu, dtypes))
        return tuple(filter(None, found))


def _state(path: Path) -> tuple[Path, int, int]:
    """A file, and what changes when it is written."""
    try:
        found = path.stat()
    except OSError:  # gone, or not to be read, which reading says
        return path, 0, 0
    return path, found.st_mtime_ns, found.st_ino


@lru_cache(maxsize=64)
def _lines(path: Path, time: int, inode: int, strict: bool) -> Lines | None:
    """Of a file in a state; None where it is left out."""
    try:
        return Lines(read(path, UNREAD if strict else OWN_WAY_OUT), str(path), strict)
    except GenError as error:
        leave_out(error, strict)
        return None


@lru_cache(maxsize=64)
def _is_usable(path: Path, _time: int, _inode: int) -> bool:
    """Whether tables of a folder in a state can be found; it is said, once, where they cannot."""
    try:
        check(path, own=True)
    except UsageError as error:
        leave_out(error, strict=False)
        return False
    return True


def is_there(path: Path) -> bool:
    """Whether there is something, or may be: why it cannot be seen is said where it is read."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    except OSError:
        pass
    return True


def check(path: Path, own: bool = False) -> None:
    """Raises UsageError where tables cannot be read, or lie where none is looked for.

    own: whether it is the user's folder, and not one that was named. Where there is nothing,
    nothing is wrong.
    """
    way_out = OWN_WAY_OUT if own else UNREAD
    try:
        path.stat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise unread(path, error, way_out) from None
    if not path.is_dir():
        if path.suffix != ".json":
            way_out = OWN_WAY_OUT if own else "give it such a name"
            raise UsageError(f"the table {path} does not end in .json; {way_out}")
        return
    found = [file.relative_to(path) for file in files(path, way_out)]
    if found and not any(len(file.parts) == 2 and file.stem in DTYPES for file in found):
        raise UsageError(
            f"{path} has {found[0]}, and no table where one is looked for, such as h200/f16.json; "
            f"name that file, or put it in its place: gen tune --merge {path} --into FOLDER"
        )


NOWHERE = Places(())


def default() -> Places:
    """The shipped tables, and the user's."""
    own = user_folder()
    return Places((SHIPPED, own) if own else (SHIPPED,))


def places(word: str | None) -> Places:
    """What an option says: nothing, `none`, `shipped`, or a file or folder. Raises UsageError."""
    if word is None:
        return default()
    if word in (NONE, OURS):
        return Places((SHIPPED,)) if word == OURS else NOWHERE
    path = Path(word)
    if not is_there(path):
        raise UsageError(f"there is no table {word}; use a file or a folder of gen tune, or {NONE}")
    check(path)
    if not is_folder(path):
        load(path)  # what is wrong with it is said at once
    elif not files(path):
        raise UsageError(f"the folder {word} has no table; use one of gen tune, or {NONE}")
    return Places((path,), strict=True)


def target(word: str | None) -> Path:
    """Where times are to be kept: a file or a folder, by default the user's. Raises UsageError."""
    path = Path(word) if word else user_folder()
    if path is None:
        raise UsageError("GEN_TUNED_DIR is empty: there is no place for times; use --into PATH")
    return path


def check_target(path: Path, parts: Iterable[tuple[str, str]]) -> None:
    """Raises UsageError where what is to be added to cannot be read or replaced.

    parts: GPUs and element types that will be added.
    """
    for file in (
        [path] if path.suffix == ".json" else [path / gpu / f"{d}.json" for gpu, d in parts]
    ):
        with _locked(file):
            if file.exists():
                load(file)


def keep(table: Table, path: Path) -> None:
    """Adds entries to a file, or to the files of a folder. Raises UsageError.

    Each file is read, added to and replaced under a lock, which ends with the process that has it.
    """
    if path.suffix == ".json":
        _add(table, path)
        return
    for (gpu, dtype), part in table.parts().items():
        _add(part, path / gpu / f"{dtype}.json")


def _add(table: Table, path: Path) -> None:
    with _locked(path):
        for left in path.parent.glob(f".{path.name}.*.tmp"):  # of a writer that was killed
            with suppress(OSError):
                left.unlink()
        known = load(path) if path.exists() else Table()
        found = known.merged(table).to_json()
        if found != known.to_json() or not path.exists():
            write(found.encode(), path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Meanwhile no other process adds to a file. Raises UsageError."""
    from filelock import FileLock, Timeout

    lock = path.with_name(f".{path.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(lock, timeout=PATIENCE):
            yield
    except Timeout:
        raise UsageError(
            f"another program has held {lock} for {PATIENCE:.0f} s; wait for it, or use --into PATH"
        ) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"cannot keep times in {path}: {reason}; use --into PATH") from None
