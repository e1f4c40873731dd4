"""Measured times as they are kept: what `gen tune` writes, and what every choice reads.

The JSON has a line for each entry, sorted, so that two tables can be compared line by line::

    {"format": "gemmgen-tuned", "version": 1, "runs": {...}, "entries": [...]}

with the fields of the two classes below; docs/tuning.md explains them. A reader ignores fields that
it does not know; a change of meaning gets a new version.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from gen.errors import UsageError
from gen.spec.problem import GemmShape, parse_shape

FORMAT = "gemmgen-tuned"
VERSION = 1
MOST = 1e12  # microseconds that a kernel may take: eleven days


class Run(NamedTuple):
    """Where and with what entries were measured; `date` is in UTC, clocks are MHz as seen."""

    date: str
    device: str
    arch: str
    multiprocessors: int
    driver: str
    gemmgen: str
    clocks: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What entries call it; later ones sort behind."""
        return f"{self.date} {self.device}"


_size = lru_cache(maxsize=4096)(parse_shape)  # a table has each several times


class Entry(NamedTuple):
    """A kernel on a problem, with operands that lie without gaps, in no cache.

    gpu: `GpuModel.key`. us: microseconds, the median over `rounds`; noise: half the distance
    between the quartiles as a share of it, None of one round. templates: the version of those that
    the kernel was made from (`gen.source.versions`). run: a name of the table's runs. batch: how
    many products of the shape.
    """

    gpu: str
    shape: str
    spec: Mapping[str, Any]
    us: float
    rounds: int
    noise: float | None
    templates: str
    run: str
    batch: int = 1

    @property
    def size(self) -> GemmShape:
        """M, N and K."""
        return _size(self.shape)

    @property
    def problem(self) -> tuple[Any, ...]:
        """The GPU, types, layout and sizes, in the order of tables."""
        s = self.size
        words = self.gpu, str(self.spec["dtype"]), str(self.spec["layout"])
        return *words, s.m, s.n, s.k, self.batch

    @property
    def key(self) -> tuple[Any, ...]:
        """What was measured, in the order of tables. A table has one entry for each key."""
        return *self.problem, json.dumps(dict(self.spec))


@dataclass(frozen=True, eq=False)
class Table:
    """Entries, and the runs that they name."""

    entries: tuple[Entry, ...] = ()
    runs: Mapping[str, Run] = field(default_factory=dict)

    def merged(self, other: Table) -> Table:
        """Both, sorted: of two entries for the same thing, that of the later run."""
        runs = {**self.runs, **other.runs}
        found: dict[tuple[Any, ...], Entry] = {}
        for entry in (*self.entries, *other.entries):
            key = entry.key
            known = found.get(key)
            if known is None or known.run <= entry.run:
                found[key] = entry
        kept = tuple(found[key] for key in sorted(found))
        named = {entry.run for entry in kept}
        return Table(kept, {name: runs[name] for name in sorted(runs) if name in named})

    def of(self, gpu: str, dtype: str) -> Table:
        """What it has of a GPU and element types."""
        own = (e for e in self.entries if e.gpu == gpu and e.spec["dtype"] == dtype)
        return Table(tuple(own), self.runs)

    def parts(self) -> dict[tuple[str, str], Table]:
        """A table for each GPU and element types."""
        keys = dict.fromkeys((entry.gpu, str(entry.spec["dtype"])) for entry in self.entries)
        return {key: self.of(*key).merged(Table()) for key in keys}

    def to_json(self) -> str:
        """The file's text; the same entries give the same bytes."""
        runs = [f"{json.dumps(name)}: {_line(run._asdict())}" for name, run in self.runs.items()]
        entries = [_line({**_said(entry), "spec": entry.spec}) for entry in self.entries]
        head = f'"format": "{FORMAT}",\n"version": {VERSION}'
        return f'{{\n{head},\n"runs": {{\n{_lines(runs)}}},\n"entries": [\n{_lines(entries)}]\n}}\n'


def _said(entry: Entry) -> dict[str, Any]:
    fields = {name: value for name, value in entry._asdict().items() if name != "spec"}
    if entry.batch == 1:
        del fields["batch"]
    return fields


def _line(content: Mapping[str, Any]) -> str:
    return json.dumps(dict(content), allow_nan=False)


def _lines(found: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in ",\n".join(found).splitlines())


def parse(text: str, where: str) -> Table:
    """The table that `to_json` wrote. Raises UsageError with what is wrong."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is not JSON: {error}; {_WAY_OUT}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UsageError(f'{where} has no measured times: "format" is not "{FORMAT}"; {_WAY_OUT}')
    version = content.get("version")
    if version != VERSION and type(version) is int:
        raise UsageError(
            f"{where} has version {version} of the format, and this gen reads "
            f"version {VERSION}; upgrade gemmgen, or move the table away"
        )
    try:
        if type(version) is not int:
            raise TypeError(f'"version" is {json.dumps(version)}, not {VERSION}')
        runs = {name: _run(name, run) for name, run in _object(content["runs"], "runs").items()}
        if not isinstance(content["entries"], list):
            raise TypeError('"entries" is no list')
        entries = tuple(_entry(_object(entry, "an entry"), runs) for entry in content["entries"])
    except (KeyError, TypeError, ValueError, UsageError) as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise UsageError(f"{where} is not a complete table: {reason}; {_WAY_OUT}") from None
    return Table(entries, runs)


_WAY_OUT = "move it away, or merge it from a copy"


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{what} is no object: {json.dumps(value)[:40]}")
    return value


def _run(name: str, content: Any) -> Run:
    fields = _object(content, f"the run {name!r}")
    run = Run(**{field: fields[field] for field in Run._fields})
    texts = run.date, run.device, run.arch, run.driver, run.gemmgen
    if not all(isinstance(text, str) for text in texts) or not _is_count(run.multiprocessors):
        raise TypeError(f"the run {name!r} has a field of another type")
    if run.name != name:
        raise ValueError(f"the run {name!r} is of {run.name!r}")
    return run._replace(clocks=_object(run.clocks, f"clocks of the run {name!r}"))


_FIELDS = itemgetter(*Entry._fields[:-1])  # all but the batch, which a line may lack
_NAMES = itemgetter("variant", "dtype", "layout", "arch")  # what each specification has
_FILE_NAME = re.compile(r"\w[\w.+-]*", re.ASCII)  # and no path that leads out of a folder


def _entry(content: Mapping[str, Any], runs: Mapping[str, Run]) -> Entry:
    """One of thousands, each of which is looked at: what is wrong with a table is said at once."""
    gpu, shape, spec, us, rounds, noise, templates, run = _FIELDS(content)
    batch = content.get("batch", 1)
    texts = (gpu, shape, templates, run, *_NAMES(_object(spec, "spec")))
    if not (
        {*map(type, texts)} == {str}
        and _is_number(us)
        and (noise is None or _is_number(noise))
        and _is_count(rounds)
        and _is_count(batch)
    ):
        raise TypeError(f"a field has another type in {json.dumps(content)}")
    if not 0 < us < MOST:
        raise ValueError(f"{us} us is no time")
    for name in (gpu, spec["dtype"]):
        if not _FILE_NAME.fullmatch(name):
            raise ValueError(
                f"{json.dumps(name)} can be no part of a file's name; GPUs and element types are "
                "called by letters, digits and - _ + ."
            )
    if run not in runs:
        raise ValueError(f"the run {run!r} is not among its runs")
    size = _size(shape)
    if 0 in (size.m, size.n):
        raise ValueError(f"shape {shape} has nothing to measure")
    return Entry(gpu, shape, spec, us, rounds, noise, templates, run, batch)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e308


def _is_count(value: Any) -> bool:
    return type(value) is int and value > 0


UNREAD = "use a table of gen tune"  # the way out where a file cannot be read


def read(path: Path, way_out: str = UNREAD) -> str:
    """The text of a file. Raises UsageError."""
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise unread(path, error, way_out) from None


def unread(path: Path, error: OSError | UnicodeDecodeError, way_out: str = UNREAD) -> UsageError:
    """The error for a file or a folder that cannot be read."""
    return UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}; {way_out}")


def load(path: Path, way_out: str = UNREAD) -> Table:
    """The table of a file, or of all files of a folder. Raises UsageError."""
    if not is_folder(path):
        return parse(read(path, way_out), str(path))
    found = Table()
    for file in files(path, way_out):
        found = found.merged(load(file, way_out))
    return found


def files(folder: Path, way_out: str = UNREAD) -> list[Path]:
    """All tables in a folder, however deep. Raises UsageError where a folder there is closed."""

    def refuse(error: OSError) -> None:
        raise unread(Path(error.filename), error, way_out)

    walk = os.walk(folder, onerror=refuse)
    return sorted(Path(at, x) for at, _, names in walk for x in names if x.endswith(".json"))


def is_folder(path: Path) -> bool:
    """Whether there is one, as far as can be seen."""
    with suppress(OSError):  # such as that a folder above may not be entered
        return path.is_dir()
    return False
