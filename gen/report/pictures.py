"""Which figures there are, what they show, and the files they become."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gen.bench import results as bench
from gen.bench.instructions import multiplies
from gen.bench.results import Row
from gen.report import plots, theme
from gen.report.model import Report, by_problem, family, intensity
from gen.report.plots import Ceiling, Chart, Curve
from gen.spec.dtypes import DTYPES
from gen.spec.problem import GemmShape, parse_shape
from gen.tune.results import Entry, Sweep
from gen.tune.tables import Group, Matrix, Metric, groups, metrics, pivot, short, speedup

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_KINDS = {False: bench.OURS, True: bench.PEER}
_MOST_CURVES = len(theme.SERIES)


@dataclass(frozen=True)
class Picture:
    """A figure, what it is called in file names, and what to say below it."""

    name: str
    caption: str
    figure: Figure
    wide: bool = False


def _name(*words: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")


def files(report: Report, format: str) -> Iterator[tuple[str, bytes]]:
    """(file name, contents) of every picture of a report."""
    for picture in of_benchmarks(report):
        yield f"{picture.name}.{format}", theme.save(picture.figure, format)
    for i, file in enumerate(report.sweeps):
        assert file.sweep
        prefix = f"sweep{i + 1}-" if len(report.sweeps) > 1 else ""
        for name, data in sweep_files(file.sweep, format):
            yield prefix + name, data


# --- sweeps


def sweep_files(sweep: Sweep, format: str) -> Iterator[tuple[str, bytes]]:
    """(file name, contents) of every picture of a sweep."""
    for picture in of_sweep(sweep):
        yield f"{picture.name}.{format}", theme.save(picture.figure, format)


def of_sweep(sweep: Sweep) -> Iterator[Picture]:
    """For each metric: heat maps, a plot per size, all sizes in one, the speed-up."""
    for group in groups(sweep):
        for metric in metrics(sweep):
            yield from _heat_maps(group, metric)
            if len(sweep.axes) == 1:
                yield from _curves(group, metric, next(iter(sweep.axes)))


def _heat_maps(group: Group, metric: Metric) -> Iterator[Picture]:
    for variant in group.variants():
        matrix = pivot(group, variant, metric)
        if any(any(line) for line in matrix.values):
            caption = f"{metric.title} of {variant}, {group.dtype} {group.layout}: less is better."
            name = _name("heat", metric.name, variant, group.dtype, group.layout)
            yield Picture(name, _sentence(caption), _heat(matrix))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _heat(matrix: Matrix) -> Figure:
    texts = [[matrix.metric.cell(value).text for value in line] for line in matrix.values]
    title = matrix.title.partition(" (")[0]
    return plots.heatmap(
        title, matrix.row_name, matrix.rows, matrix.column_name, matrix.columns,
        matrix.values, texts,
    )  # fmt: skip


def _points(
    entries: Sequence[Entry], metric: Metric, x: Callable[[Entry], float]
) -> list[tuple[float, float]]:
    return [(x(e), value) for e in entries if x(e) > 0 and (value := metric.get(e))]


def _curves(group: Group, metric: Metric, axis: str) -> Iterator[Picture]:
    def along(entry: Entry) -> float:
        return float(entry.values.get(axis, 0))

    variants, shapes = group.variants(), group.shapes()
    if any(isinstance(e.values.get(axis), str) for v in variants for e in group.of(v)):
        return  # a word has no place on an axis: the tables have it
    if not any(_points(group.of(v), metric, along) for v in variants):
        return
    words = (metric.name, group.dtype, group.layout)
    for shape in shapes:
        curves = [
            Curve(v, points, i)
            for i, v in enumerate(variants)
            if (points := _points(_at(group.of(v), shape), metric, along))
        ]
        if curves:
            chart = Chart(f"Size {short(shape)}", axis, metric.title, curves)
            caption = f"{_sentence(metric.title)} for {short(shape)}, {group.dtype}."
            yield Picture(_name("size", *words, short(shape)), caption, plots.lines(chart))
    if len(shapes) > 1:
        yield _all_sizes(group, metric, axis, along)
    for variant in variants[1:]:
        yield from _speedups(group, variant, metric, axis)


def _at(entries: Sequence[Entry], shape: str) -> list[Entry]:
    return [e for e in entries if e.row.shape == shape]


def _all_sizes(group: Group, metric: Metric, axis: str, along: Callable[[Entry], float]) -> Picture:
    curves = [
        Curve(f"{variant}, {short(shape)}", points, i, dashed=variant == group.variants()[0])
        for variant in group.variants()
        for i, shape in enumerate(group.shapes())
        if (points := _points(_at(group.of(variant), shape), metric, along))
    ]
    chart = Chart("All sizes", axis, metric.title, curves)
    caption = f"All sizes in one, {group.dtype}; {group.variants()[0]} is dashed."
    name = _name("all-sizes", metric.name, group.dtype, group.layout)
    return Picture(name, caption, plots.lines(chart, theme.WIDE, 4.2), wide=True)


def _speedups(group: Group, variant: str, metric: Metric, axis: str) -> Iterator[Picture]:
    matrix = speedup(group, variant, metric)
    base = group.variants()[0]
    numbers = [parse_shape(s) for s in group.shapes()]
    sizes = [float((s.m * s.n * s.k) ** (1 / 3)) for s in numbers]
    name = _name("speed-up", metric.name, variant, "over", base, group.dtype, group.layout)
    over_axis = [
        Curve(column, points, i)
        for i, column in enumerate(matrix.columns)
        if (points := _column(matrix, i))
    ]
    if not over_axis:
        return
    what = matrix.title.rpartition(": ")[2]
    chart = Chart(f"{variant} over {base}", axis, what, over_axis, reference=1)
    caption = f"Above 1, {variant} needs less than {base} with the same {axis}; {group.dtype}."
    yield Picture(name, caption, plots.lines(chart))
    over_size = [
        Curve(f"{axis} {row}" if row.isdecimal() else row, points, i)
        for i, (row, line) in enumerate(zip(matrix.rows, matrix.values, strict=True))
        if (points := [(x, y) for x, y in zip(sizes, line, strict=True) if y])
    ]
    if len(sizes) > 1:
        chart = Chart(f"{variant} over {base}, by size", "size", what, over_size, reference=1)
        caption = f"The same by size; best compares the best {axis} of each."
        yield Picture(f"{name}-by-size", caption, plots.lines(chart))


def _column(matrix: Matrix, index: int) -> list[tuple[float, float]]:
    pairs = zip(matrix.rows, matrix.values, strict=True)
    return [(float(row), y) for row, line in pairs if row.isdecimal() and (y := line[index])]


# --- benchmarks


def of_benchmarks(report: Report) -> list[Picture]:
    """Rooflines for each element type, then the throughput over size, then over other shapes."""
    rows = [row for row in report.rows if row.ms_median and row.tflops]
    dtypes = list(dict.fromkeys(problem[0] for problem in by_problem(rows)))
    found = [_roofline(report, dtype, bench.find(rows, dtype=dtype)) for dtype in dtypes]
    rates = [
        picture
        for dtype, layout in dict.fromkeys(problem[:2] for problem in by_problem(rows))
        for picture in _throughput(dtype, layout, bench.find(rows, dtype=dtype, layout=layout))
    ]
    return found + sorted(rates, key=lambda picture: picture.name.startswith("shapes"))


def _families(rows: Sequence[Row]) -> list[tuple[str, bool]]:
    """(family, whether a peer): peers last, and of more than there are colours the best ones."""
    best: dict[tuple[str, bool], float] = {}
    for row in rows:
        key = (family(row), row.kind == bench.PEER)
        best[key] = max(best.get(key, 0.0), row.tflops or 0.0)
    chosen = sorted(best, key=lambda key: -best[key])[:_MOST_CURVES]
    return [key for key in best if key in chosen and not key[1]] + [
        key for key in best if key in chosen and key[1]
    ]


def _left_out(rows: Sequence[Row]) -> str:
    """A sentence about the kinds for which there is no colour."""
    names = {(family(row), row.kind) for row in rows}
    left = sorted(name for name, _ in names - {(n, _KINDS[p]) for n, p in _families(rows)})
    return f" Slower and left out: {', '.join(left)}." if left else ""


def _fastest_of(rows: Sequence[Row], name: str) -> list[Row]:
    """A family's best row for each problem."""
    own = [row for row in rows if family(row) == name]
    return [best for solved in by_problem(own).values() if (best := bench.fastest(solved))]


def _roofline(report: Report, dtype: str, rows: Sequence[Row]) -> Picture:
    curves = [
        Curve(name, [(intensity(r), r.tflops or 0.0) for r in _fastest_of(rows, name)], i, peer)
        for i, (name, peer) in enumerate(_families(rows))
    ]
    ceilings = [
        Ceiling(_readable(name), value)
        for name, value in report.ceilings.items()
        if dtype in DTYPES and multiplies(name, DTYPES[dtype])
    ]
    memory = report.ceilings.get("copy")
    figure = plots.roofline(
        f"Roofline, {dtype}", curves, ceilings, memory / 1000 if memory else None
    )
    caption = (
        f"Each point is one shape in {dtype}, with the best kernel of its kind; peers are hollow. "
        "The lines are what gen ceiling measured on this GPU; what is above all of them uses an "
        "instruction that is not among them, or reads from a cache what counts as memory here."
    )
    return Picture(_name("roofline", dtype), caption, figure, wide=True)


def _readable(ceiling: str) -> str:
    match = re.fullmatch(r"(\w*mma)_(m\w+)_(\w+)_(\w+)", ceiling)
    return f"{match[1]} {match[2]} {match[3]}" if match else ceiling.replace("_", " ")


def _throughput(dtype: str, layout: str, rows: Sequence[Row]) -> Iterator[Picture]:
    shapes = {row.shape: parse_shape(row.shape) for row in rows}
    cubes = _cubes(shapes)
    families = _families(rows)
    square = [row for row in rows if row.shape in cubes]
    where = f"{dtype} {layout}"
    if len(cubes) > 1:
        curves = [
            Curve(name, [(float(parse_shape(r.shape).m), r.tflops or 0.0) for r in best], i, peer)
            for i, (name, peer) in enumerate(families)
            if (best := _fastest_of(square, name))
        ]
        peaks = [max(y for _, y in curve.points) for curve in curves]
        chart = Chart(
            f"Square matrices, {where}", "M = N = K", "TFLOP/s", curves,
            log_y=max(peaks) / min(peaks) > 30,
        )  # fmt: skip
        caption = f"TFLOP/s over size, {where}, the best kernel of each kind; peers are dashed."
        caption += _left_out(rows)
        yield Picture(
            _name("squares", where), caption, plots.lines(chart, theme.WIDE, 4.2), wide=True
        )
    other = [row for row in rows if row.shape not in cubes or len(cubes) == 1]
    if other:
        yield _by_shape(where, other, families)


def _cubes(shapes: Mapping[str, GemmShape]) -> set[str]:
    """Those that a curve goes through: of nearly equal ones, the one that is rounder in binary.

    4095 is a problem of another kind than 4096, and the curve would fall into it and rise again.
    """
    sides = {text: shape.m for text, shape in shapes.items() if shape.m == shape.n == shape.k}

    def rounder(side: int, other: int) -> bool:
        return abs(side - other) < 0.05 * side and other & -other > side & -side

    return {
        text for text, side in sides.items() if not any(rounder(side, n) for n in sides.values())
    }


def _by_shape(where: str, rows: Sequence[Row], families: Sequence[tuple[str, bool]]) -> Picture:
    labels = list(dict.fromkeys(problem[2] for problem in by_problem(rows)))
    curves = [
        Curve(name, [(labels.index(r.shape), r.tflops or 0.0) for r in best], i, peer)
        for i, (name, peer) in enumerate(families)
        if (best := _fastest_of(rows, name))
    ]
    caption = f"TFLOP/s of each shape MxNxK, {where}; peers are hollow."
    figure = plots.dots(f"Other shapes, {where}", labels, curves)
    return Picture(_name("shapes", where), caption, figure, wide=True)
