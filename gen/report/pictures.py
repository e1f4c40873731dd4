"""Which figures there are, what they show, and the files they become."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gen.bench import results as bench
from gen.bench.instructions import multiplies
from gen.bench.results import Row
from gen.bench.sizes import parse_size, products
from gen.report import plots, theme
from gen.report.heatmaps import Heat, heatmaps
from gen.report.model import Report, by_problem, family, intensity
from gen.report.plots import Chart, Curve, Panel
from gen.report.roofline import Ceiling, roofline
from gen.spec.dtypes import DTYPES
from gen.spec.problem import GemmShape
from gen.tune.results import Entry, Sweep
from gen.tune.tables import Group, Matrix, Metric, at, groups, metrics, pivot, speedup

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

    @property
    def width(self) -> str:
        """How much of a page it gets."""
        inches = self.figure.get_figwidth()
        return "third" if inches <= theme.THIRD else "half" if inches <= theme.HALF else "full"


def _name(*words: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")


def files(report: Report, format: str) -> Iterator[tuple[str, bytes]]:
    """(file name, contents) of every picture of a report."""
    for picture in (*of_gains(report), *of_benchmarks(report)):
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


def of_sweep(sweep: Sweep) -> list[Picture]:
    """For each metric, the most telling first: curves for each size, heat maps, ratios.

    What would have a single point, and what is 0 all over, is not drawn: tables have it.
    """
    found = []
    for metric in metrics(sweep):
        scale = _scale(sweep, metric)
        for group in groups(sweep):
            axis = next(iter(sweep.axes)) if len(sweep.axes) == 1 else ""
            if axis and _is_numeric(group, axis):
                found += [*_curves(group, metric, axis), *_heat_maps(group, metric, scale)]
                found += _ratios(group, metric, axis)
            else:
                found += _heat_maps(group, metric, scale)
    return found


def _is_numeric(group: Group, axis: str) -> bool:
    """A word has no place on an axis: heat maps have it."""
    return not any(isinstance(e.values.get(axis), str) for e in group.entries)


def _where(group: Group) -> str:
    shapes = group.shapes()
    return f"{group.dtype} {group.layout}" + (f", {at(shapes[0])}" if len(shapes) == 1 else "")


def _scale(sweep: Sweep, metric: Metric) -> tuple[float, float]:
    """The least and the most of all kernels: a colour means the same in all heat maps."""
    values = [value for entry in sweep.entries if (value := metric.get(entry))]
    return (min(values), max(values)) if values else (0.0, 0.0)


def _heat_maps(group: Group, metric: Metric, scale: tuple[float, float]) -> Iterator[Picture]:
    maps = []
    for variant in group.variants():
        m = pivot(group, variant, metric)
        texts = [[m.cell(value).text for value in line] for line in m.values]
        if any(any(line) for line in m.values):
            names = (m.row_name, m.rows, m.column_name, m.columns)
            maps.append(Heat(variant, *names, m.values, texts))
    if sum(value is not None for heat in maps for line in heat.values for value in line) > len(
        maps
    ):
        title = f"{_sentence(metric.title)}, {_where(group)}"
        caption = "Less is better. A colour means the same in all kernels and element types."
        name = _name("heat", metric.name, group.dtype, group.layout)
        yield Picture(name, caption, heatmaps(title, maps, *scale))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _points(
    entries: Sequence[Entry], metric: Metric, x: Callable[[Entry], float]
) -> list[tuple[float, float]]:
    return [(x(e), value) for e in entries if x(e) > 0 and (value := metric.get(e))]


def _curves(group: Group, metric: Metric, axis: str) -> Iterator[Picture]:
    def along(entry: Entry) -> float:
        return float(entry.values.get(axis, 0))

    panels = [
        Panel(
            at(shape).removeprefix("at ") if len(group.shapes()) > 1 else "",
            [
                Curve(v, points, i)
                for i, v in enumerate(group.variants())
                if (points := _points(_at(group.of(v), shape), metric, along))
            ],
        )
        for shape in group.shapes()
    ]
    panels = [panel for panel in panels if _has_lines(panel)]
    if panels:
        chart = Chart(f"{_sentence(metric.title)} over {axis}, {_where(group)}", axis, panels)
        caption = "A panel for each size; less is better." if len(panels) > 1 else "Less is better."
        yield Picture(
            _name("sizes", metric.name, group.dtype, group.layout), caption, plots.lines(chart)
        )


def _has_lines(panel: Panel) -> bool:
    return any(len(curve.points) > 1 for curve in panel.curves)


def _at(entries: Sequence[Entry], shape: str) -> list[Entry]:
    return [e for e in entries if e.row.shape == shape]


def _ratios(group: Group, metric: Metric, axis: str) -> Iterator[Picture]:
    base, *others = group.variants()
    panels = []
    for variant in others:
        matrix = speedup(group, variant, metric)
        columns = [(name, _column(matrix, i)) for i, name in enumerate(matrix.columns)]
        curves = [Curve(name, points, i) for i, (name, points) in enumerate(columns) if points]
        panels.append(Panel(variant, curves))
    panels = [panel for panel in panels if _has_lines(panel)]
    if panels:
        chart = Chart(
            f"{_sentence(metric.title)} against {base}, {_where(group)}",
            axis, panels, ratio=metric.measure.tick,
        )  # fmt: skip
        caption = f"Each kernel beside {base} with the same {axis}, a curve for each size."
        name = _name("against", base, metric.name, group.dtype, group.layout)
        yield Picture(name, caption, plots.lines(chart))


def _column(matrix: Matrix, index: int) -> list[tuple[float, float]]:
    pairs = zip(matrix.rows, matrix.values, strict=True)
    return [(float(row), y) for row, line in pairs if row.isdecimal() and (y := line[index])]


# --- tuning

_MOST_GAINS = 40  # lines of a picture


def of_gains(report: Report) -> list[Picture]:
    """For each types and layout, how many times as fast tuning has made each shape."""
    found = []
    for (dtype, layout), gains in report.gains.items():
        most = sorted(gains, key=lambda gain: -gain.ratio)[:_MOST_GAINS]
        shown = [gain for gain in gains if gain in most]
        where = f"{dtype} {layout}"
        caption = (
            f"The fastest of the kernels that were measured beside the model's first, {where}."
        )
        if len(shown) < len(gains):
            caption += f" These {len(shown)} of {len(gains)} shapes have gained the most."
        lines = [(gain.best.shape, gain.ratio, family(gain.best)) for gain in shown]
        figure = plots.gains(f"What tuning gained, {where}", lines)
        found.append(Picture(_name("tuned", where), caption, figure))
    return found


# --- benchmarks


def of_benchmarks(report: Report) -> list[Picture]:
    """Throughput over size, then of other shapes, then a roofline for each element type."""
    rows = [row for row in report.rows if row.ms_median and row.tflops]
    dtypes = list(dict.fromkeys(problem[0] for problem in by_problem(rows)))
    rooflines = [_roofline(report, dtype, bench.find(rows, dtype=dtype)) for dtype in dtypes]
    rates = [
        picture
        for dtype, layout in dict.fromkeys(problem[:2] for problem in by_problem(rows))
        for picture in _throughput(dtype, layout, bench.find(rows, dtype=dtype, layout=layout))
    ]
    return sorted(rates, key=lambda picture: picture.name.startswith("shapes")) + rooflines


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
    figure = roofline(f"Roofline, {dtype}", curves, ceilings, memory / 1000 if memory else None)
    caption = (
        f"Each point is one shape in {dtype}, with the best kernel of its kind; peers are hollow. "
        "The lines are what gen ceiling measured on this GPU; what is above all of them uses an "
        "instruction that is not among them, or reads from a cache what counts as memory here."
    )
    return Picture(_name("roofline", dtype), caption, figure)


def _readable(ceiling: str) -> str:
    match = re.fullmatch(r"(\w*mma)_(m\w+)_(\w+)_(\w+)", ceiling)
    return f"{match[1]} {match[2]} {match[3]}" if match else ceiling.replace("_", " ")


def _throughput(dtype: str, layout: str, rows: Sequence[Row]) -> Iterator[Picture]:
    shapes = {row.shape: parse_size(row.shape) for row in rows}
    cubes = _cubes(shapes)
    families = _families(rows)
    square = [row for row in rows if row.shape in cubes]
    where = f"{dtype} {layout}"
    if len(cubes) > 1:
        curves = [
            Curve(name, [(float(parse_size(r.shape).m), r.tflops or 0.0) for r in best], i, peer)
            for i, (name, peer) in enumerate(families)
            if (best := _fastest_of(square, name))
        ]
        peaks = [max(y for _, y in curve.points) for curve in curves]
        chart = Chart(
            f"Square matrices, {where}", "M = N = K", [Panel("", curves)], "TFLOP/s",
            log_y=max(peaks) / min(peaks) > 30,
        )  # fmt: skip
        caption = f"TFLOP/s over size, {where}, the best kernel of each kind; peers are dashed."
        caption += _left_out(rows)
        yield Picture(_name("squares", where), caption, plots.lines(chart))
    other = [row for row in rows if row.shape not in cubes or len(cubes) == 1]
    if other:
        title = f"{'Other shapes' if len(cubes) > 1 else 'Shapes'}, {where}"
        yield _by_shape(title, where, other, families)


def _cubes(shapes: Mapping[str, GemmShape]) -> set[str]:
    """Those that a curve goes through: of nearly equal ones, the one that is rounder in binary.

    4095 is a problem of another kind than 4096, and the curve would fall into it and rise again.
    """
    one = {text: shape for text, shape in shapes.items() if products(shape) == 1}
    sides = {text: shape.m for text, shape in one.items() if shape.m == shape.n == shape.k}

    def rounder(side: int, other: int) -> bool:
        return abs(side - other) < 0.05 * side and other & -other > side & -side

    return {
        text for text, side in sides.items() if not any(rounder(side, n) for n in sides.values())
    }


def _by_shape(
    title: str, where: str, rows: Sequence[Row], families: Sequence[tuple[str, bool]]
) -> Picture:
    labels = list(dict.fromkeys(problem[2] for problem in by_problem(rows)))
    curves = [
        Curve(name, [(labels.index(r.shape), r.tflops or 0.0) for r in best], i, peer)
        for i, (name, peer) in enumerate(families)
        if (best := _fastest_of(rows, name))
    ]
    caption = f"TFLOP/s of each shape MxNxK, {where}; peers are hollow."
    figure = plots.dots(title, labels, curves)
    return Picture(_name("shapes", where), caption, figure)
