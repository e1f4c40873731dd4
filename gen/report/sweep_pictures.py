"""The figures of `gen sweep`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gen.report import plots
from gen.report.heatmaps import Heat, heatmaps
from gen.report.picture import Picture, file_name
from gen.report.plots import Chart, Curve, Panel
from gen.tune.results import Entry, Sweep
from gen.tune.tables import Group, Matrix, Metric, at, groups, metrics, pivot, speedup


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
        name = file_name("heat", metric.name, group.dtype, group.layout)
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
            file_name("sizes", metric.name, group.dtype, group.layout), caption, plots.lines(chart)
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
        name = file_name("against", base, metric.name, group.dtype, group.layout)
        yield Picture(name, caption, plots.lines(chart))


def _column(matrix: Matrix, index: int) -> list[tuple[float, float]]:
    pairs = zip(matrix.rows, matrix.values, strict=True)
    return [(float(row), y) for row, line in pairs if row.isdecimal() and (y := line[index])]
