"""Figures, drawn with matplotlib."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from gen.report.theme import (
    DARK_INK,
    FULL,
    HALF,
    LIGHT_INK,
    MARKERS,
    MUTED,
    STYLE,
    THIRD,
    colour,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import LogNorm
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


class Ceiling(NamedTuple):
    """A horizontal limit of a roofline, in TFLOP/s."""

    label: str
    tflops: float


def _new(width: float, height: float) -> tuple[Figure, Axes]:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.add_subplot()


def _grid(
    title: str, count: int, columns: int, width: float, height: float, share: bool = False
) -> tuple[Figure, list[Axes]]:
    """`count` panels in rows, each of `height`, under one title."""
    from matplotlib.figure import Figure

    rows = -(-count // columns)
    figure = Figure(figsize=(width, 0.35 + rows * height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=share).flatten()
    for axes in grid[count:]:
        axes.remove()
    _title(figure, title)
    return figure, list(grid[:count])


def _title(figure: Figure, text: str) -> None:
    figure.suptitle(text, x=0.01, ha="left")


def lines(chart: Chart) -> Figure:
    """A chart of curves."""
    from matplotlib import rc_context

    count = len(chart.panels)
    columns = 3 if count in (5, 6) else min(count, 4)
    width, height = {1: (HALF, 3.8), 2: (HALF, 2.8)}.get(columns, (FULL, 3.0))
    with rc_context(STYLE):
        figure, grid = _grid(chart.title, count, columns, width, height, chart.ratio is not None)
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
            _log_ticks(axes, values, 0.8 * width / columns)
        for axes in grid:
            if chart.ratio:
                axes.axhline(1, color=MUTED, linewidth=1)
            _values(axes, chart.log_y, chart.ratio)
        _legend(figure, grid)
    return figure


_CHARACTER = 0.1  # inches, with the space around


def _log_ticks(axes: Axes, values: Sequence[float], width: float) -> None:
    """Ticks at those of the values whose labels do not lie on each other's."""
    from matplotlib.ticker import NullLocator

    decades = math.log10(values[-1] / values[0]) * 1.1 or 1.0  # with the margins
    kept: list[float] = []
    for value in values:
        room = (1 + len(f"{value:g}")) * _CHARACTER / width * decades
        if not kept or math.log10(value / kept[-1]) >= room:
            kept.append(value)
    axes.set_xticks(kept, [f"{value:g}" for value in kept])
    axes.xaxis.set_minor_locator(NullLocator())


def _values(axes: Axes, log: bool, ratio: Callable[[float], str] | None = None) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    if not log:
        axes.set_ylim(bottom=0)
        return
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    ticks = _ratio_ticks(low, high) if ratio else _round_ticks(low, high, _TICKS)
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_minor_locator(NullLocator())
    write = ratio or _plain(high)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))


_TICKS = 10  # on the height of a panel there is room for so many
_STEPS: tuple[tuple[float, ...], ...] = (
    (1,),
    (1, 2, 5),
    (1, 1.5, 2, 3, 5, 7),
    (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9),
    tuple(1 + i / 20 for i in range(180)),
)


def _round_ticks(low: float, high: float, most: int) -> list[float]:
    """The roundest numbers of which there are several between, no closer than `most` can be."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    room = (high / low) ** (1 / most)
    found: list[float] = []
    for steps in _STEPS:
        found = []
        for tick in (step * 10.0**power for power in powers for step in steps):
            if low <= tick <= high and (not found or tick >= found[-1] * room):
                found.append(tick)
        if len(found) >= min(4, most):
            break
    return found


def _ratio_ticks(low: float, high: float) -> list[float]:
    """Ticks that are round in both directions: 2x more, 2x less."""
    span = high / low
    steps = next(
        steps
        for least, steps in (
            (1e3, (1.0,)),
            (5, (1.0, 2.0, 5.0)),
            (1.5, (1.0, 1.2, 1.5, 2.0, 3.0, 4.0)),
            (0, (1.0, 1.05, 1.1, 1.2, 1.3)),
        )
        if span > least
    )
    upward = [step * 10.0**power for power in range(8) for step in steps]
    return [tick for tick in sorted({*upward, *(1 / u for u in upward)}) if low <= tick <= high]


def _plain(most: float) -> Callable[[float], str]:
    """How numbers up to `most` are written: all with a letter for thousands, or none."""
    letters = ((1e9, "G"), (1e6, "M"), (1e3, "k")) if most >= 1e4 else ()

    def write(value: float) -> str:
        factor, letter = next((f for f in letters if value >= f[0]), (1.0, ""))
        return f"{value / factor:g} {letter}".rstrip()

    return write


def _legend(figure: Figure, grid: Sequence[Axes]) -> None:
    """Below all axes, in as many columns as fit, the figure growing by its lines."""
    known = [axes.get_legend_handles_labels() for axes in grid]
    unique = {label: handle for pair in known for handle, label in zip(*pair, strict=True)}
    width, height = figure.get_size_inches()
    columns = max(1, min(len(unique), int(width * 11 / (max(map(len, unique)) + 6))))
    figure.set_size_inches(width, height + 0.19 * -(-len(unique) // columns))
    figure.legend(unique.values(), unique.keys(), loc="outside lower left", ncols=columns)


class Heat(NamedTuple):
    """One heat map: names of rows and columns, values, and what is written into each cell."""

    title: str
    row_name: str
    rows: Sequence[str]
    column_name: str
    columns: Sequence[str]
    values: Sequence[Sequence[float | None]]
    texts: Sequence[Sequence[str]]

    @property
    def margin(self) -> float:
        """Inches that the names of the rows take."""
        return 0.3 + 0.8 * _CHARACTER * max(map(len, self.rows))

    @property
    def cell(self) -> float:
        """The width of a cell in inches."""
        return max(0.72, 0.8 * _CHARACTER * max(map(len, self.columns)))


def heatmaps(title: str, maps: Sequence[Heat], least: float, most: float) -> Figure:
    """Values as colours, dark for little, on one logarithmic scale for all maps."""
    from matplotlib import rc_context
    from matplotlib.colors import LogNorm

    alike = all((m.row_name, m.rows) == (maps[0].row_name, maps[0].rows) for m in maps)
    margin, bar = max(m.margin for m in maps), 0.9
    each = 0.2 + max(m.cell * len(m.columns) for m in maps) + (0 if alike else margin)
    inches = FULL - bar - (margin if alike else 0)
    columns = min(len(maps), max(1, int(inches / each)))
    needed = max(columns * each + FULL - inches, len(title) * _CHARACTER)
    width = next((w for w in (THIRD, HALF, FULL) if w >= needed), needed)
    rows = max(len(m.rows) for m in maps)
    height = 0.65 + 0.32 * rows
    with rc_context(STYLE):
        figure, grid = _grid(title, len(maps), columns, width, height)
        scale = LogNorm(least, most) if least < most else None
        for i, (heat, axes) in enumerate(zip(maps, grid, strict=True)):
            _heat(axes, heat, rows, scale)
            if alike and i % columns:
                axes.tick_params(labelleft=False)
        if scale:
            _scale(figure, grid, scale, most=2 * rows * -(-len(maps) // columns))
    return figure


def _heat(axes: Axes, heat: Heat, rows: int, scale: LogNorm | None) -> None:
    """A map in the place for one of so many rows, with the names of columns above, as in tables."""
    from matplotlib.patches import Rectangle

    for i, line in enumerate(heat.values):
        for j, value in enumerate(line):
            face, ink = _shade(value, scale)
            axes.add_patch(Rectangle((j, i), 1, 1, facecolor=face, edgecolor="none"))
            place = (j + 0.5, i + 0.5)
            text = heat.texts[i][j]
            axes.text(*place, text, ha="center", va="center", color=ink, fontsize=9)
    title = f"{heat.title}: {heat.row_name} \\ {heat.column_name}"
    axes.set(xlim=(0, len(heat.columns)), ylim=(rows, 0), title=title)
    axes.xaxis.tick_top()
    axes.set_xticks([j + 0.5 for j in range(len(heat.columns))], heat.columns)
    axes.set_yticks([i + 0.5 for i in range(len(heat.rows))], heat.rows)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def _shade(value: float | None, scale: LogNorm | None) -> tuple[Any, str]:
    """A cell's colour, and one that can be read on it."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    if not value:
        return "none", MUTED
    red, green, blue, _ = colormaps["viridis"](float(scale(value)) if scale else 0.5)
    light = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2
    return to_hex((red, green, blue)), DARK_INK if light > 0.18 else LIGHT_INK


def _scale(figure: Figure, grid: Sequence[Axes], scale: LogNorm, most: int) -> None:
    """The colour bar, in few steps: each is an element of the file."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.ticker import NullLocator

    colours = ScalarMappable(scale, colormaps["viridis"].resampled(48))
    low, high = scale.vmin or 1.0, scale.vmax or 1.0
    write, ticks = _plain(high), _round_ticks(low, high, min(most, _TICKS))
    bar = figure.colorbar(
        colours, ax=grid, ticks=ticks, format=lambda value, _: write(value), pad=0.01, aspect=25
    )
    bar.ax.yaxis.set_minor_locator(NullLocator())
    bar.outline.set_visible(False)


def roofline(
    title: str, curves: Sequence[Curve], ceilings: Sequence[Ceiling], bytes_per_second: float | None
) -> Figure:
    """Kernels as points under what memory (TB/s) and instructions allow."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        figure, axes = _new(HALF, 3.6)
        xs = [x for curve in curves for x, _ in curve.points]
        ys = [y for curve in curves for _, y in curve.points]
        top = max([c.tflops for c in ceilings] or ys)
        ridge = top / bytes_per_second if bytes_per_second else max(xs)
        left, right = min([*xs, ridge]) / 4, max([*xs, ridge]) * 2
        for curve in curves:
            axes.plot(
                *zip(*curve.points, strict=True),
                color=colour(curve.colour),
                marker=MARKERS[curve.colour % len(MARKERS)],
                markerfacecolor="none" if curve.dashed else colour(curve.colour),
                linestyle="none",
                label=curve.label,
            )
        if bytes_per_second:
            axes.plot([left, ridge], [left * bytes_per_second, top], color=MUTED, linewidth=1.2)
            # The label begins at the left edge, above the slope where it ends.
            end = min(left * (right / left) ** 0.3, ridge)
            axes.annotate(
                f"memory: {bytes_per_second:.2f} TB/s",
                (left, end * bytes_per_second),
                xytext=(4, 3),
                textcoords="offset points",
                fontsize=8,
                color=MUTED,
            )
        bottom, upper = min(ys) / 2, max([top, *ys]) * 1.8
        line_height = (upper / bottom) ** 0.055  # of a label, as a factor along the axis
        for crowd in _crowds(ceilings, line_height):
            starts = [c.tflops / bytes_per_second if bytes_per_second else left for c in crowd]
            _limits(axes, crowd, starts, right)
        axes.set(xscale="log", xlim=(left, right))
        _title(figure, title)
        axes.set(xlabel="FLOP per byte of A, B and D", ylabel="TFLOP/s")
        _values(axes, log=True)
        axes.set_ylim(bottom, upper)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        _legend(figure, [axes])
    return figure


def _limits(axes: Axes, crowd: Sequence[Ceiling], lefts: Sequence[float], right: float) -> None:
    """Lines of one crowd, each with its label to the right: the lower ones' below the highest's."""
    for ceiling, left in zip(crowd, lefts, strict=True):
        axes.plot([left, right], [ceiling.tflops] * 2, color=MUTED, linewidth=1.2)
    for i, ceiling in enumerate(crowd):
        axes.annotate(
            f"{ceiling.label}: {ceiling.tflops:.3g}",
            (right, crowd[0].tflops),
            xytext=(4, -10 * i),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=MUTED,
        )


def _crowds(ceilings: Sequence[Ceiling], factor: float) -> list[list[Ceiling]]:
    """From the highest: those whose labels stand one below the other, a `factor` apart, together.

    What is closer than a line's width, or has the same name, becomes one.
    """
    kept: list[Ceiling] = []
    for ceiling in sorted(ceilings, key=lambda c: c.tflops):
        last = kept[-1] if kept else None
        if last and (ceiling.tflops < last.tflops * 1.03 or ceiling.label == last.label):
            names = dict.fromkeys([*last.label.split(", "), ceiling.label])
            kept[-1] = Ceiling(", ".join(names), ceiling.tflops)
        else:
            kept.append(ceiling)
    crowds: list[list[Ceiling]] = []
    for ceiling in reversed(kept):
        if crowds and ceiling.tflops * factor ** len(crowds[-1]) > crowds[-1][0].tflops:
            crowds[-1].append(ceiling)
        else:
            crowds.append([ceiling])
    return crowds


def dots(title: str, labels: Sequence[str], curves: Sequence[Curve]) -> Figure:
    """One line for each shape, with a point for each contender; a curve's x is the line."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        figure, axes = _new(HALF, 1.3 + 0.26 * len(labels))
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
        _title(figure, title)
        axes.set(xlabel="TFLOP/s", ylim=(len(labels) - 0.5, -0.5))
        axes.set_yticks(range(len(labels)), labels)
        axes.set_xlim(left=0)
        _legend(figure, [axes])
    return figure


def gains(title: str, lines: Sequence[tuple[str, float, str]]) -> Figure:
    """A line for each shape, from 1 to how many times as fast it has become, by whom."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        figure, axes = _new(HALF, 1.3 + 0.26 * len(lines))
        names = list(dict.fromkeys(name for _, _, name in lines))
        for i, name in enumerate(names):
            own = [(ratio, at) for at, (_, ratio, of) in enumerate(lines) if of == name]
            ratios, places = zip(*own, strict=True)
            axes.hlines(places, 1, ratios, color=colour(i), linewidth=1.8)
            marker = MARKERS[i % len(MARKERS)]
            axes.plot(ratios, places, color=colour(i), marker=marker, linestyle="none", label=name)
        axes.axvline(1, color=MUTED, linewidth=1)
        _title(figure, title)
        axes.set(xlabel="times as fast as the model's first", ylim=(len(lines) - 0.5, -0.5))
        axes.set_yticks(range(len(lines)), [shape for shape, _, _ in lines])
        most = max(ratio for _, ratio, _ in lines)
        axes.set_xlim(right=1 + 1.05 * max(most - 1, 0.1))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:.3g}x")
        _legend(figure, [axes])
    return figure
