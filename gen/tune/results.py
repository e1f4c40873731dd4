"""A sweep's results: a file of `gen.bench.results` with one field more, `sweep`.

It has the axes with their values, and for each row where in the sweep it is and what the emulator
counted: `{"axes": {"side": [1, 2]}, "cells": [{"values": {"side": 1}, "counters": {...}}, ...]}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gen.bench import results as bench
from gen.errors import UsageError
from gen.kernels.tunables import Value, rank
from gen.tune.axes import Cell, SweepPlan, axis_value

EMULATOR = "emulator"  # a header's `gpu` where counters are the measure

Key = tuple[str, str, str, str, str]


@dataclass(frozen=True)
class Entry:
    """A cell's row, its place along the axes, and its counters, if they were what was measured."""

    row: bench.Row
    values: Mapping[str, Value]
    counters: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Sweep:
    """All of a sweep so far, in the order in which it is shown."""

    header: bench.Header
    axes: Mapping[str, Sequence[Value]]
    entries: tuple[Entry, ...] = ()

    def with_entry(self, entry: Entry) -> Sweep:
        """These results and one more, in place of an earlier one for the same thing."""
        kept = tuple(e for e in self.entries if e.row.key != entry.row.key)
        return replace(self, entries=(*kept, entry))

    def measured(self) -> dict[Key, Entry]:
        """What need not be measured again: all that was right, or cannot be built."""
        done = (bench.OK, bench.SKIPPED)
        return {e.row.key: e for e in self.entries if e.row.check in done}

    def to_json(self) -> str:
        """The file's text."""
        rows = tuple(entry.row for entry in self.entries)
        content = json.loads(bench.Results(self.header, rows).to_json())
        content["sweep"] = {
            "axes": {name: list(values) for name, values in self.axes.items()},
            "cells": [
                {"values": dict(e.values), "counters": dict(e.counters)} for e in self.entries
            ],
        }
        return json.dumps(content, indent=1, allow_nan=False) + "\n"


def parse(text: str, where: str = "this text") -> Sweep | None:
    """The sweep that `to_json` wrote, None for a benchmark's results. Raises UsageError."""
    results = bench.parse(text, where)
    extra: Any = json.loads(text).get("sweep")
    if extra is None:
        return None
    try:
        axes = {
            str(name): [axis_value(name, v) for v in values]
            for name, values in extra["axes"].items()
        }
        pairs = zip(results.rows, extra["cells"], strict=True)
        entries = tuple(
            Entry(row, dict(cell["values"]), _counters(cell["counters"])) for row, cell in pairs
        )
        _check_values(entries)
    except (KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
        raise UsageError(f"{where} is not a complete sweep: {error}") from None
    return Sweep(results.header, axes, entries)


def _check_values(entries: Sequence[Entry]) -> None:
    """The cells of one kernel vary the same tunables. Raises ValueError."""
    first: dict[str, Entry] = {}
    for entry in entries:
        other = first.setdefault(entry.row.variant, entry)
        if entry.values.keys() != other.values.keys():
            raise ValueError(
                f"{entry.row.variant} has values of {', '.join(entry.values)} here, "
                f"of {', '.join(other.values)} there"
            )


def _counters(found: Mapping[str, float]) -> Mapping[str, float]:
    for name, value in found.items():
        if not isinstance(value, (int, float)) or value < 0:
            raise TypeError(f"{name} cannot be {value!r}")
    return found


def load(path: Path) -> Sweep:
    """The sweep in a file. Raises UsageError."""
    bench.load(path)  # the errors about reading
    sweep = parse(path.read_text(encoding="utf-8"), str(path))
    if sweep is None:
        raise UsageError(f"{path} has a benchmark's results, not a sweep's; use another file")
    return sweep


def resumed(path: Path, header: bench.Header, axes: Mapping[str, Sequence[Value]]) -> Sweep:
    """An empty sweep, or what an earlier run left in the file, whose axes may have other values.

    Raises UsageError where the file has something else: another GPU, other axes.
    """
    if not path.exists():
        return Sweep(header, axes)
    old = load(path)
    for what, before, now in (
        ("on", old.header.gpu, header.gpu),
        ("over the axes", ", ".join(old.axes), ", ".join(axes)),
    ):
        if before != now:
            raise UsageError(f"{path} was measured {what} {before}, not {now}; use another file")
    return Sweep(old.header, merge_axes([old.axes, axes]), old.entries)


def merge_axes(several: Iterable[Mapping[str, Sequence[Value]]]) -> dict[str, list[Value]]:
    """Each axis with all of its values, in rising order."""
    merged: dict[str, set[Value]] = {}
    for axes in several:
        for name, values in axes.items():
            merged.setdefault(name, set()).update(values)
    return {name: sorted(values, key=rank) for name, values in merged.items()}


def row_of(cell: Cell, **fields: Any) -> bench.Row:
    """A row for a cell, without a measurement yet."""
    spec = json.loads(cell.spec.to_json()) if cell.spec else None
    place = " ".join(f"{name}={value}" for name, value in cell.values.items())
    return bench.Row(
        contender=cell.spec.name if cell.spec else f"{cell.variant} {place}".strip(),
        kind=bench.OURS,
        dtype=cell.dtype,
        layout=cell.layout,
        shape=str(cell.shape),
        variant=cell.variant,
        spec=spec,
        **fields,
    )


def batches(plan: SweepPlan, sweep: Sweep) -> tuple[Sweep, list[list[Cell]]]:
    """What is left to measure, and the sweep with all that is known without.

    A batch is the kernels of one place on one shape: those that are compared with each other, and
    so are measured in turns.
    """
    done = sweep.measured()
    left: dict[tuple[object, ...], list[Cell]] = {}
    for cell in plan.cells():
        row = row_of(cell)
        if row.key in done:
            sweep = sweep.with_entry(done[row.key])
        elif cell.spec is None:
            skipped = row_of(cell, check=bench.SKIPPED, note=cell.why)
            sweep = sweep.with_entry(Entry(skipped, cell.values))
        else:
            where = (cell.dtype, cell.layout, cell.shape, tuple(cell.values.items()))
            left.setdefault(where, []).append(cell)
    return sweep, list(left.values())


def ordered(plan: SweepPlan, sweep: Sweep) -> Sweep:
    """The same results in the plan's order; what is not in the plan comes first."""
    order = {row_of(cell).key: i for i, cell in enumerate(plan.cells())}
    entries = sorted(sweep.entries, key=lambda e: order.get(e.row.key, -1))
    return replace(sweep, entries=tuple(entries))
