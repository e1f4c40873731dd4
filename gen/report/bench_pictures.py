"""The figures of `gen bench`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from gen.bench import results as bench
from gen.bench.instructions import multiplies
from gen.bench.results import Row
from gen.bench.sizes import parse_size, products
from gen.report import plots, theme
from gen.report.model import Report, by_problem, family, intensity
from gen.report.picture import Picture, file_name
from gen.report.plots import Chart, Curve, Panel
from gen.report.roofline import Ceiling, roofline
from gen.spec.dtypes import DTYPES
from gen.spec.problem import GemmShape

_KINDS = {False: bench.OURS, True: bench.PEER}
_MOST_CURVES = len(theme.SERIES)


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
    return Picture(file_name("roofline", dtype), caption, figure)


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
        yield Picture(file_name("squares", where), caption, plots.lines(chart))
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
    return Picture(file_name("shapes", where), caption, figure)
