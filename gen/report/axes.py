"""What figures have in common: panels under a title, ticks at round numbers, a legend."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gen.report.theme import STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CHARACTER = 0.1  # inches, with the space around
MOST_TICKS = 10  # on the height of a panel there is room for so many


def single_panel(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure of one panel, so many inches wide and high."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.add_subplot()


def panel_grid(
    title: str, count: int, columns: int, width: float, height: float, share: bool = False
) -> tuple[Figure, list[Axes]]:
    """`count` panels in rows, each of `height` inches, under one title."""
    from matplotlib.figure import Figure

    rows = -(-count // columns)
    figure = Figure(figsize=(width, 0.35 + rows * height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=share).flatten()
    for axes in grid[count:]:
        axes.remove()
    write_title(figure, title)
    return figure, list(grid[:count])


def write_title(figure: Figure, text: str) -> None:
    """Above all panels, on the left."""
    figure.suptitle(text, x=0.01, ha="left")


def log_x_ticks(axes: Axes, values: Sequence[float], width: float) -> None:
    """Ticks at those of the values whose labels do not lie on each other's."""
    from matplotlib.ticker import NullLocator

    decades = math.log10(values[-1] / values[0]) * 1.1 or 1.0  # with the margins
    kept: list[float] = []
    for value in values:
        room = (1 + len(f"{value:g}")) * CHARACTER / width * decades
        if not kept or math.log10(value / kept[-1]) >= room:
            kept.append(value)
    axes.set_xticks(kept, [f"{value:g}" for value in kept])
    axes.xaxis.set_minor_locator(NullLocator())


def value_axis(axes: Axes, log: bool, ratio: Callable[[float], str] | None = None) -> None:
    """The y axis, from 0 or logarithmic; `ratio` says how ratios are written."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    if not log:
        axes.set_ylim(bottom=0)
        return
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    ticks = _ratio_ticks(low, high) if ratio else round_ticks(low, high, MOST_TICKS)
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_minor_locator(NullLocator())
    write = ratio or plain(high)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))


_STEPS: tuple[tuple[float, ...], ...] = (
    (1,),
    (1, 2, 5),
    (1, 1.5, 2, 3, 5, 7),
    (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9),
    tuple(1 + i / 20 for i in range(180)),
)


def round_ticks(low: float, high: float, most: int) -> list[float]:
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


def plain(most: float) -> Callable[[float], str]:
    """How numbers up to `most` are written: all with a letter for thousands, or none."""
    letters = ((1e9, "G"), (1e6, "M"), (1e3, "k")) if most >= 1e4 else ()

    def write(value: float) -> str:
        factor, letter = next((f for f in letters if value >= f[0]), (1.0, ""))
        return f"{value / factor:g} {letter}".rstrip()

    return write


def legend_below(figure: Figure, grid: Sequence[Axes]) -> None:
    """Below all axes, in as many columns as fit, the figure growing by its lines."""
    known = [axes.get_legend_handles_labels() for axes in grid]
    unique = {label: handle for pair in known for handle, label in zip(*pair, strict=True)}
    width, height = figure.get_size_inches()
    columns = max(1, min(len(unique), int(width * 11 / (max(map(len, unique)) + 6))))
    figure.set_size_inches(width, height + 0.19 * -(-len(unique) // columns))
    figure.legend(unique.values(), unique.keys(), loc="outside lower left", ncols=columns)
