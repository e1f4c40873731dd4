"""A sweep's answers, as matrices of numbers that become tables and heat maps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gen.bench.sizes import parse_size, products
from gen.kernels.tunables import Value
from gen.profile import compare
from gen.profile.compare import Measure
from gen.spec.problem import GemmShape, parse_shape
from gen.tables import NOTHING, Cell, Table, count, number
from gen.tune.results import Entry, Sweep


class Metric(NamedTuple):
    """A quantity of which less is better, where it is found and how it is written."""

    measure: Measure
    get: Callable[[Entry], float | None]
    cell: Callable[[float | None], Cell]

    @property
    def name(self) -> str:
        """One word for it."""
        return self.measure.name

    @property
    def title(self) -> str:
        """What it is, with its unit."""
        return self.measure.title


TIME = Metric(compare.TIME, lambda e: e.row.ms_median, number)


def _counter(measure: Measure) -> Metric:
    return Metric(measure, lambda e: e.counters.get(measure.name), count)


COUNTERS = tuple(map(_counter, compare.COUNTERS))


def metrics(sweep: Sweep) -> list[Metric]:
    """What the sweep has: times, or counters."""
    return [m for m in (TIME, *COUNTERS) if any(m.get(e) is not None for e in sweep.entries)]


@dataclass(frozen=True)
class Matrix:
    """A metric over rows (the axes' values) and columns (the shapes, or the last axis).

    `cell` writes a value.
    """

    title: str
    cell: Callable[[float | None], Cell]
    row_name: str
    rows: Sequence[str]
    column_name: str
    columns: Sequence[str]
    values: Sequence[Sequence[float | None]]

    def table(self) -> Table:
        """As a table, with the name of the columns in the corner."""
        body = [
            [Cell(label, float(label) if label.isdecimal() else None), *map(self.cell, line)]
            for label, line in zip(self.rows, self.values, strict=True)
        ]
        return Table(self.title, [f"{self.row_name} \\ {self.column_name}", *self.columns], body)


class Group(NamedTuple):
    """Cells that differ in the variant, the axes and the shape only."""

    dtype: str
    layout: str
    entries: Sequence[Entry]

    def variants(self) -> list[str]:
        """In the order of the sweep: the first one is what the others are compared with."""
        return list(dict.fromkeys(e.row.variant for e in self.entries))

    def shapes(self) -> list[str]:
        """By size."""
        names = {e.row.shape for e in self.entries}
        return sorted(names, key=lambda name: (_flops(parse_shape(name)), name))

    def of(self, variant: str) -> list[Entry]:
        """One variant's cells."""
        return [e for e in self.entries if e.row.variant == variant]


def _flops(shape: GemmShape) -> int:
    return 2 * shape.m * shape.n * shape.k


def short(shape: str) -> str:
    """A cube by its side alone; batches as they are."""
    s = parse_size(shape)
    return str(s.m) if s.m == s.n == s.k and products(s) == 1 else shape


def at(shape: str) -> str:
    """The same after a preposition: "at 64 a side"."""
    s = parse_size(shape)
    return f"at {s}" if products(s) > 1 else compare.at(s)


def groups(sweep: Sweep) -> list[Group]:
    """One group for each combination of element type and layout."""
    found: dict[tuple[str, str], list[Entry]] = {}
    for entry in sweep.entries:
        found.setdefault((entry.row.dtype, entry.row.layout), []).append(entry)
    return [Group(dtype, layout, entries) for (dtype, layout), entries in found.items()]


Place = tuple[tuple[str, Value], ...]


def place(values: Mapping[str, Value]) -> str:
    """Where in the sweep, in words; the value alone where there is one axis."""
    return str(*values.values()) if len(values) == 1 else names_and_values(values) or "default"


def names_and_values(values: Mapping[str, Value]) -> str:
    """The same always with the axes' names; empty for a kernel that has none of them."""
    return ", ".join(f"{name} {value}" for name, value in values.items())


def pivot(group: Group, variant: str, metric: Metric) -> Matrix:
    """One variant's metric over its axes and the shapes, or over two axes for one shape."""
    entries, shapes = group.of(variant), group.shapes()
    names = list(entries[0].values)
    if len(shapes) == 1 and len(names) > 1:
        *names, last = names

        def column(entry: Entry) -> str:
            return str(entry.values[last])
    else:
        last = "size"

        def column(entry: Entry) -> str:
            return short(entry.row.shape)

    def line(entry: Entry) -> str:
        return place({name: entry.values[name] for name in names})

    where = f", {short(shapes[0])}" if last != "size" else ""
    title = f"{variant} ({group.dtype} {group.layout}{where}): {metric.title}"
    row_name = names[0] if len(names) == 1 else "kernel"
    return _matrix(title, metric, row_name, last, entries, line, column)


def _matrix(
    title: str,
    metric: Metric,
    row_name: str,
    column_name: str,
    entries: Iterable[Entry],
    line: Callable[[Entry], str],
    column: Callable[[Entry], str],
) -> Matrix:
    values: dict[tuple[str, str], float | None] = {}
    for entry in entries:
        values[line(entry), column(entry)] = metric.get(entry)
    rows = list(dict.fromkeys(row for row, _ in values))
    columns = list(dict.fromkeys(name for _, name in values))
    cells = [[values.get((row, name)) for name in columns] for row in rows]
    return Matrix(title, metric.cell, row_name, rows, column_name, columns, cells)


def least(entries: Iterable[Entry], metric: Metric) -> Entry | None:
    """The entry with the least of the metric."""
    known = [(value, i, e) for i, e in enumerate(entries) if (value := metric.get(e)) is not None]
    return min(known)[2] if known else None


def best(group: Group, metric: Metric) -> Table:
    """For each shape and variant the best place and what it is worth."""
    columns = ["size"]
    for variant in group.variants():
        columns += [f"{variant}: best at", f"{variant}: {metric.title}"]
    rows = []
    for shape in group.shapes():
        row = [Cell(short(shape), float(_flops(parse_shape(shape))))]
        for variant in group.variants():
            entry = least((e for e in group.of(variant) if e.row.shape == shape), metric)
            where = place(entry.values) if entry else NOTHING
            row += [Cell(where), metric.cell(metric.get(entry) if entry else None)]
        rows.append(row)
    return Table(f"best per size ({group.dtype} {group.layout}): {metric.title}", columns, rows)


BEST = "best"


def speedup(group: Group, variant: str, metric: Metric) -> Matrix:
    """How many times less than the sweep's first variant another one takes, place by place.

    The last row compares the best of each.
    """
    base = group.variants()[0]
    shapes = group.shapes()
    places = list(dict.fromkeys(place(e.values) for e in group.of(variant)))
    known = {(e.row.variant, place(e.values), e.row.shape): metric.get(e) for e in group.entries}
    rows, values = [], []
    for where in places:
        line = [
            _quotient(known.get((base, where, s)), known.get((variant, where, s))) for s in shapes
        ]
        if any(value is not None for value in line):
            rows.append(where)
            values.append(line)
    rows.append(BEST)
    values.append([_best_quotient(group, base, variant, shape, metric) for shape in shapes])
    title = f"{variant} against {base} ({group.dtype} {group.layout}): {metric.title}"
    name = next(iter(group.of(variant)[0].values), "kernel")
    sizes = [short(s) for s in shapes]
    return Matrix(title, metric.measure.cell, name, rows, "size", sizes, values)


def _best_quotient(
    group: Group, base: str, variant: str, shape: str, metric: Metric
) -> float | None:
    found = [
        least((e for e in group.of(v) if e.row.shape == shape), metric) for v in (base, variant)
    ]
    before, after = (metric.get(e) if e else None for e in found)
    return _quotient(before, after)


def _quotient(before: float | None, after: float | None) -> float | None:
    return before / after if before and after else None


def all_tables(sweep: Sweep) -> list[Table]:
    """Everything: a matrix per kernel, the best per size, the speed-ups; not what is 0 all over."""
    found = []
    for group in groups(sweep):
        base, *others = group.variants()
        for metric in metrics(sweep):
            matrices = [pivot(group, variant, metric) for variant in (base, *others)]
            matrices += [speedup(group, variant, metric) for variant in others]
            shown = [m.table() for m in matrices if any(map(any, m.values))]
            if metric is TIME:
                shown.insert(1 + len(others), best(group, metric))
            found += shown
    return found


def left_out(sweep: Sweep) -> list[str]:
    """What has no number, and why, one line for each reason."""
    reasons: dict[str, list[str]] = {}
    for entry in sweep.entries:
        if entry.row.note and entry.row.check != "ok":
            where = f"{entry.row.variant} {place(entry.values)} at {short(entry.row.shape)}"
            reasons.setdefault(f"{entry.row.check}: {entry.row.note}", []).append(where)
    return [f"{places[0]}{_more(len(places))}: {why}" for why, places in reasons.items()]


def _more(places: int) -> str:
    return f" (and {places - 1} more)" if places > 1 else ""
