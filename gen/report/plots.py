"""Curves and points, drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from gen.report.axes import (
    legend_below,
    log_x_ticks,
    panel_grid,
    single_panel,
    value_axis,
    write_title,
)
from gen.report.theme import FULL, HALF, MARKERS, MUTED, STYLE, colour

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Curve(NamedTuple):
    """One line: its points, and which colour it has. Dashed is what others have made."""

    label: str
    points: Sequence[tuple[float, float]]
    colour: int
    dashed: bool = False


class Panel(NamedTuple):
    """One plot of several that are compared."""

    title: str
    curves: Sequence[Curve]


@dataclass(frozen=True)
class Chart:
    """Panels of curves over a logarithmic x axis with a tick at each value that occurs.

    `ratio` says how a ratio is written: the y axis then is one of ratios, and all panels share it.
    """

    title: str
    x_label: str
    panels: Sequence[Panel]
    y_label: str = ""
    log_y: bool = True
    ratio: Callable[[float], str] | None = None


def lines(chart: Chart) -> Figure:
    """A chart of curves."""
    from matplotlib import rc_context

    count = len(chart.panels)
    columns = 3 if count in (5, 6) else min(count, 4)
    width, height = {1: (HALF, 3.8), 2: (HALF, 2.8)}.get(columns, (FULL, 3.0))
    with rc_context(STYLE):
        figure, grid = panel_grid(
            chart.title, count, columns, width, height, chart.ratio is not None
        )
        for panel, axes in zip(chart.panels, grid, strict=True):
            for curve in panel.curves:
                axes.plot(
                    *zip(*sorted(curve.points), strict=True),
                    color=colour(curve.colour),
                    marker=MARKERS[curve.colour % len(MARKERS)],
                    linestyle="--" if curve.dashed else "-",
                    label=curve.label,
                )
            axes.set(title=panel.title, xlabel=chart.x_label, ylabel=chart.y_label, xscale="log")
            values = sorted({x for curve in panel.curves for x, _ in curve.points})
            log_x_ticks(axes, values, 0.8 * width / columns)
        for axes in grid:
            if chart.ratio:
                axes.axhline(1, color=MUTED, linewidth=1)
            value_axis(axes, chart.log_y, chart.ratio)
        legend_below(figure, grid)
    return figure


def dots(title: str, labels: Sequence[str], curves: Sequence[Curve]) -> Figure:
    """One line for each shape, with a point for each contender; a curve's x is the line."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        figure, axes = single_panel(HALF, 1.3 + 0.26 * len(labels))
        for curve in curves:
            axes.plot(
                [y for _, y in curve.points],
                [x for x, _ in curve.points],
                color=colour(curve.colour),
                marker=MARKERS[curve.colour % len(MARKERS)],
                markerfacecolor="none" if curve.dashed else colour(curve.colour),
                linestyle="none",
                label=curve.label,
            )
        write_title(figure, title)
        axes.set(xlabel="TFLOP/s", ylim=(len(labels) - 0.5, -0.5))
        axes.set_yticks(range(len(labels)), labels)
        axes.set_xlim(left=0)
        legend_below(figure, [axes])
    return figure


def gains(title: str, lines: Sequence[tuple[str, float, str]]) -> Figure:
    """A line for each shape, from 1 to how many times as fast it has become, by whom."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        figure, axes = single_panel(HALF, 1.3 + 0.26 * len(lines))
        names = list(dict.fromkeys(name for _, _, name in lines))
        for i, name in enumerate(names):
            own = [(ratio, at) for at, (_, ratio, of) in enumerate(lines) if of == name]
            ratios, places = zip(*own, strict=True)
            axes.hlines(places, 1, ratios, color=colour(i), linewidth=1.8)
            marker = MARKERS[i % len(MARKERS)]
            axes.plot(ratios, places, color=colour(i), marker=marker, linestyle="none", label=name)
        axes.axvline(1, color=MUTED, linewidth=1)
        write_title(figure, title)
        axes.set(xlabel="times as fast as the model's first", ylim=(len(lines) - 0.5, -0.5))
        axes.set_yticks(range(len(lines)), [shape for shape, _, _ in lines])
        most = max(ratio for _, ratio, _ in lines)
        axes.set_xlim(right=1 + 1.05 * max(most - 1, 0.1))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:.3g}x")
        legend_below(figure, [axes])
    return figure
