"""Measurements as they are kept: one header, one row for each contender on each problem.

The JSON is `{"format": "gemmgen-bench", "version": 1, "header": {...}, "rows": [...]}`, with the
fields of the two classes below; docs/bench.md explains them. A reader ignores fields that it does
not know; one that changes its meaning gets a new version.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, replace
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from gen.bench.sizes import parse_size
from gen.errors import UsageError
from gen.files import write

FORMAT = "gemmgen-bench"
VERSION = 1

OURS, PEER = "ours", "peer"

# What became of a row's check. Only a right result has times.
OK, WRONG, FAILED, NO_MEMORY, SKIPPED = "ok", "wrong", "failed", "out of memory", "skipped"
ABSENT = "not installed"
CHECKS = (OK, WRONG, FAILED, NO_MEMORY, SKIPPED, ABSENT)


@dataclass(frozen=True)
class Header:
    """Where, when and with what everything in a file was measured.

    `clocks` are MHz as seen, not set: {"sm": [lowest, highest], "sm_max": ..., "memory": ...}, `sm`
    being read between rounds of measuring. `ceilings` are `gen ceiling`'s figures on this GPU,
    by name: TFLOP/s (TOP/s) for instructions, GB/s for memory.
    """

    gpu: str
    arch: str
    driver: str
    date: str
    command: str
    uuid: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    clocks: Mapping[str, Any] = field(default_factory=dict)
    ceilings: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One contender on one problem. Times are in milliseconds, of the GPU alone.

    `ms_median` is the median over rounds of the interleaved measurement, `ms_spread` half the
    distance between the rounds' quartiles, `noise` that spread as a fraction of the median.
    `cold_ms`, `cold_noise` and `batch_ms` are NVBench's, where it is installed. `method` says how
    `ms_median` was taken: "events" or "graph". `ceiling` names the instruction of `gen ceiling`
    that `share_of_ceiling` is a share of. None is what was not measured or does not apply; `check`
    and `note` say why.
    """

    contender: str
    kind: str
    dtype: str
    layout: str
    shape: str
    variant: str = ""
    spec: Mapping[str, Any] | None = None
    ms_median: float | None = None
    ms_spread: float | None = None
    noise: float | None = None
    rounds: int = 0
    launches: int = 0
    cold_ms: float | None = None
    cold_noise: float | None = None
    batch_ms: float | None = None
    tflops: float | None = None
    gbps: float | None = None
    share_of_bandwidth: float | None = None
    share_of_ceiling: float | None = None
    ceiling: str = ""
    workspace: int = 0
    method: str = ""
    check: str = OK
    note: str = ""

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What a row measures. A file has one row for each key."""
        return (self.kind, self.contender, self.dtype, self.layout, self.shape)

    @property
    def problem(self) -> tuple[str, str, str]:
        """What rows have to share to be compared."""
        return (self.dtype, self.layout, self.shape)


@dataclass(frozen=True)
class Results:
    """All of a file."""

    header: Header
    rows: tuple[Row, ...] = ()

    def with_row(self, row: Row) -> Results:
        """These results and one more row, in place of an earlier one for the same thing."""
        if all(r.key != row.key for r in self.rows):
            return replace(self, rows=(*self.rows, row))
        return replace(self, rows=tuple(row if r.key == row.key else r for r in self.rows))

    def to_json(self) -> str:
        """The file's text; the same results give the same bytes."""
        content = {
            "format": FORMAT,
            "version": VERSION,
            "header": asdict(self.header),
            "rows": [asdict(row) for row in self.rows],
        }
        return json.dumps(content, indent=1, allow_nan=False) + "\n"

    def to_csv(self) -> str:
        """One line for each row; the header's facts are repeated in each."""
        facts = {name: getattr(self.header, name) for name in ("gpu", "driver", "date", "command")}
        facts |= {
            "versions": " ".join(f"{k}={v}" for k, v in self.header.versions.items()),
            "clocks": json.dumps(dict(self.header.clocks)),
        }
        names = [f.name for f in fields(Row)]
        text = io.StringIO()
        writer = csv.DictWriter(text, [*names, *facts], lineterminator="\n")
        writer.writeheader()
        for row in self.rows:
            cells = asdict(row)
            if cells["spec"] is not None:
                cells["spec"] = json.dumps(cells["spec"])
            writer.writerow({**cells, **facts})
        return text.getvalue()


def parse(text: str, where: str = "this text") -> Results:
    """The results that `to_json` wrote. Raises UsageError with what is wrong."""
    try:
        content = read_json(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is not JSON: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UsageError(f'{where} has no benchmark results: "format" is not "{FORMAT}"')
    if content.get("version") != VERSION:
        raise UsageError(
            f"{where} has version {content.get('version')} of the format; "
            f"this gen reads version {VERSION}"
        )
    try:
        header, rows = content["header"], content["rows"]
        every = tuple(_row(row, number, where) for number, row in enumerate(rows, 1))
    except (KeyError, TypeError) as error:
        raise UsageError(f"{where} is not complete: {error}; measure again") from None
    return Results(_made(Header, header, f"{where}: the header"), every)


def read_json(text: str) -> Any:
    """What JSON says. Raises ValueError, also for NaN and infinity, which are no measurements."""

    def finite(number: str) -> float:
        value = float(number)
        if not math.isfinite(value):
            raise ValueError(f"{number} is no finite number")
        return value

    return json.loads(text, parse_float=finite, parse_constant=finite)


_Kind = TypeVar("_Kind", Header, Row)


def _row(content: object, number: int, where: str) -> Row:
    row = _made(Row, content, f"{where}: row {number}")
    try:
        parse_size(row.shape)
    except UsageError as error:
        raise UsageError(f"{where}: row {number}: {error}") from None
    return row


def _made(kind: type[_Kind], content: object, where: str) -> _Kind:
    """A header or a row whose fields have the types that they should have. Raises UsageError."""
    if not isinstance(content, dict):
        raise UsageError(f"{where} is no object: {content!r}; measure again")
    types = get_type_hints(kind)
    known = {name: value for name, value in content.items() if name in types}
    for name, value in known.items():
        if not _is(value, types[name]):
            raise UsageError(f"{where}: {name} cannot be {value!r}; measure again")
    try:
        return kind(**known)
    except TypeError:
        lacking = ", ".join(f.name for f in fields(kind) if f.name not in known and _needed(f))
        raise UsageError(f"{where} lacks {lacking}; measure again") from None


def _needed(one: Field[Any]) -> bool:
    return one.default is MISSING and one.default_factory is MISSING


def _is(value: object, hint: Any) -> bool:
    """Whether a value of JSON is of a field's type."""
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return any(
        isinstance(value, (int, float) if kind is float else get_origin(kind) or kind)
        for kind in kinds
    )


def load(path: Path) -> Results:
    """The results in a file. Raises UsageError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {path}: {reason}") from None
    return parse(text, str(path))


def check_place(path: Path) -> None:
    """Refuses to replace a file that is not of results. Raises UsageError."""
    try:
        if not path.is_file() or not path.stat().st_size:
            return
    except OSError:  # which writing says
        return
    try:
        load(path)
    except UsageError as error:
        raise UsageError(f"{error}; it stays as it is, use another file for --json") from None


def save(results: Results, path: Path) -> None:
    """Writes the file so that a reader finds either the old one or the new one, whole.

    Raises UsageError where it cannot be written.
    """
    write(results.to_json().encode(), path)


def find(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """The rows whose fields have these values."""
    return [row for row in rows if all(getattr(row, k) == v for k, v in wanted.items())]


def fastest(rows: Sequence[Row]) -> Row | None:
    """The row with the least time, of those that have one."""
    timed = [row for row in rows if row.ms_median is not None]
    return min(timed, key=lambda row: row.ms_median or 0.0, default=None)
