"""Figures, drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from gen.report.theme import DARK_INK, LIGHT_INK, MARKERS, MUTED, STYLE, WIDE, colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Curve(NamedTuple):
    """One line: its points, and which colour it has. Dashed is what others have made."""

    label: str
    points: Sequence[tuple[float, float]]
    colour: int
    dashed: bool = False


@dataclass(frozen=True)
class Chart:
    """Curves over a logarithmic x axis with a tick at each value that occurs."""

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    log_y: bool = True
    reference: float | None = None  # a horizontal line to compare with


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


def lines(chart: Chart, width: float = 4.5, height: float = 3.1) -> Figure:
    """A chart of curves."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        figure, axes = _new(width, height)
        for curve in chart.curves:
            axes.plot(
                *zip(*sorted(curve.points), strict=True),
                color=colour(curve.colour),
                marker=MARKERS[curve.colour % len(MARKERS)],
                linestyle="--" if curve.dashed else "-",
                label=curve.label,
            )
        if chart.reference is not None:
            axes.axhline(chart.reference, color=MUTED, linewidth=1)
        axes.set(title=chart.title, xlabel=chart.x_label, ylabel=chart.y_label, xscale="log")
        _log_ticks(axes, sorted({x for curve in chart.curves for x, _ in curve.points}))
        _values(axes, chart.log_y)
        if len(chart.curves) > 1:
            _legend(figure, axes)
    return figure


def _log_ticks(axes: Axes, values: Sequence[float]) -> None:
    from matplotlib.ticker import NullLocator

    kept: list[float] = []
    for value in values:  # those that would lie on another one's label are left out
        if not kept or value / kept[-1] > 1.25:
            kept.append(value)
    axes.set_xticks(kept, [f"{value:g}" for value in kept])
    axes.xaxis.set_minor_locator(NullLocator())


def _values(axes: Axes, log: bool) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if not log:
        axes.set_ylim(bottom=0)
        return
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    subs = (1.0,) if high / low > 1e3 else (1.0, 2.0, 5.0)
    axes.yaxis.set_major_locator(LogLocator(10, subs=subs))
    axes.yaxis.set_major_formatter(FuncFormatter(_plain))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _plain(value: float, _: object = None) -> str:
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= factor:
            return f"{value / (1e3 if letter == 'k' else factor):g} {letter}"
    return f"{value:g}"


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    longest = max(map(len, unique))
    columns = max(1, min(len(unique), int(figure.get_size_inches()[0] * 11 / (longest + 6))))
    figure.legend(unique.values(), unique.keys(), loc="outside lower left", ncols=columns)


def heatmap(
    title: str, row_name: str, rows: Sequence[str], column_name: str, columns: Sequence[str],
    values: Sequence[Sequence[float | None]], texts: Sequence[Sequence[str]],
) -> Figure:  # fmt: skip
    """Values as colours on a logarithmic scale, dark for little, each with its number in it."""
    from matplotlib import rc_context
    from matplotlib.patches import Rectangle

    with rc_context(STYLE):
        figure, axes = _new(max(4.5, 1.5 + 0.72 * len(columns)), 1.2 + 0.32 * len(rows))
        shades = _shades(values)
        for i, line in enumerate(shades):
            for j, (face, ink) in enumerate(line):
                axes.add_patch(Rectangle((j, i), 1, 1, facecolor=face, edgecolor="none"))
                place = (j + 0.5, i + 0.5)
                axes.text(*place, texts[i][j], ha="center", va="center", color=ink, fontsize=9)
        axes.set(xlim=(0, len(columns)), ylim=(len(rows), 0), title=title)
        axes.set(xlabel=column_name, ylabel=row_name)
        axes.set_xticks([j + 0.5 for j in range(len(columns))], columns)
        axes.set_yticks([i + 0.5 for i in range(len(rows))], rows)
        axes.tick_params(length=0)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
    return figure


def _shades(values: Sequence[Sequence[float | None]]) -> list[list[tuple[Any, str]]]:
    from matplotlib import colormaps
    from matplotlib.colors import LogNorm, to_hex

    known = [v for line in values for v in line if v]
    norm = LogNorm(min(known), max(known)) if known and min(known) < max(known) else None

    def shade(value: float | None) -> tuple[Any, str]:
        if not value:
            return "none", MUTED
        red, green, blue, _ = colormaps["viridis"](float(norm(value)) if norm else 0.5)
        light = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2
        return to_hex((red, green, blue)), DARK_INK if light > 0.18 else LIGHT_INK

    return [[shade(value) for value in line] for line in values]


def roofline(
    title: str, curves: Sequence[Curve], ceilings: Sequence[Ceiling], bytes_per_second: float | None
) -> Figure:
    """Kernels as points under what memory (TB/s) and instructions allow."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        figure, axes = _new(WIDE, 4.2)
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
            x = left**0.3 * ridge**0.7  # on the slope, nearer to its end
            axes.annotate(
                f"memory: {bytes_per_second:.2f} TB/s",
                (x, x * bytes_per_second),
                xytext=(-4, 4),
                textcoords="offset points",
                ha="right",
                fontsize=8,
                color=MUTED,
            )
        bottom, upper = min(ys) / 2, max([top, *ys]) * 1.8
        line_height = (upper / bottom) ** 0.055  # of a label, as a factor along the axis
        for crowd in _crowds(ceilings, line_height):
            starts = [c.tflops / bytes_per_second if bytes_per_second else left for c in crowd]
            _limits(axes, crowd, starts, right)
        axes.set(xscale="log", xlim=(left, right), title=title)
        axes.set(xlabel="FLOP per byte of A, B and D", ylabel="TFLOP/s")
        _values(axes, log=True)
        axes.set_ylim(bottom, upper)
        axes.xaxis.set_major_formatter(_plain)
        _legend(figure, axes)
    return figure


def _limits(axes: Axes, crowd: Sequence[Ceiling], lefts: Sequence[float], right: float) -> None:
    """Lines of one crowd: the highest has its label above, the others below the lowest of all."""
    *lower, highest = crowd
    for ceiling, left in zip(crowd, lefts, strict=True):
        axes.plot([left, right], [ceiling.tflops] * 2, color=MUTED, linewidth=1.2)
    places = [(highest, highest.tflops, 2, "bottom")]
    places += [(c, crowd[0].tflops, -2 - 10 * i, "top") for i, c in enumerate(reversed(lower))]
    for ceiling, y, shift, side in places:
        axes.annotate(
            f"{ceiling.label}: {ceiling.tflops:.3g}",
            (right, y),
            xytext=(0, shift),
            textcoords="offset points",
            ha="right",
            va=side,
            fontsize=8,
            color=MUTED,
        )


def _crowds(ceilings: Sequence[Ceiling], factor: float) -> list[list[Ceiling]]:
    """From the lowest: those between which there is no room for a label, a `factor`, are together.

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
    for ceiling in kept:
        if crowds and ceiling.tflops < crowds[-1][-1].tflops * factor:
            crowds[-1].append(ceiling)
        else:
            crowds.append([ceiling])
    return crowds


def dots(title: str, labels: Sequence[str], curves: Sequence[Curve]) -> Figure:
    """One line for each shape, with a point for each contender; a curve's x is the line."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        figure, axes = _new(WIDE, 1.3 + 0.24 * len(labels))
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
        axes.set(title=title, xlabel="TFLOP/s", ylim=(len(labels) - 0.5, -0.5))
        axes.set_yticks(range(len(labels)), labels)
        axes.set_xlim(left=0)
        _legend(figure, axes)
    return figure
