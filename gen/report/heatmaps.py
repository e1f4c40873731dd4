"""Heat maps, drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gen.report.axes import CHARACTER, MOST_TICKS, panel_grid, plain, round_ticks
from gen.report.theme import DARK_INK, FULL, HALF, LIGHT_INK, MUTED, STYLE, THIRD

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure


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
        return 0.3 + 0.8 * CHARACTER * max(map(len, self.rows))

    @property
    def cell(self) -> float:
        """The width of a cell in inches."""
        return max(0.72, 0.8 * CHARACTER * max(map(len, self.columns)))


def heatmaps(title: str, maps: Sequence[Heat], least: float, most: float) -> Figure:
    """Values as colours, dark for little, on one logarithmic scale for all maps."""
    from matplotlib import rc_context
    from matplotlib.colors import LogNorm

    alike = all((m.row_name, m.rows) == (maps[0].row_name, maps[0].rows) for m in maps)
    margin, bar = max(m.margin for m in maps), 0.9
    each = 0.2 + max(m.cell * len(m.columns) for m in maps) + (0 if alike else margin)
    inches = FULL - bar - (margin if alike else 0)
    columns = min(len(maps), max(1, int(inches / each)))
    needed = max(columns * each + FULL - inches, len(title) * CHARACTER)
    width = next((w for w in (THIRD, HALF, FULL) if w >= needed), needed)
    rows = max(len(m.rows) for m in maps)
    height = 0.65 + 0.32 * rows
    with rc_context(STYLE):
        figure, grid = panel_grid(title, len(maps), columns, width, height)
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
    write, ticks = plain(high), round_ticks(low, high, min(most, MOST_TICKS))
    bar = figure.colorbar(
        colours, ax=grid, ticks=ticks, format=lambda value, _: write(value), pad=0.01, aspect=25
    )
    bar.ax.yaxis.set_minor_locator(NullLocator())
    bar.outline.set_visible(False)
