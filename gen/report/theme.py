"""Colours and style of figures, and how they are saved: alike in a light and a dark page.

Every colour is one of a few names. A file of its own gets the light palette on white; a figure
inside a page gets the page's CSS variables (`svg_for_page`), so that it follows the reader's theme.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MUTED, GRID = "#1f2328", "#59636e", "#d6dae0"
# Distinct for the colour-blind as well, in this order; markers differ too.
SERIES = (
    "#2a78d6", "#d9541e", "#14926a", "#8a3ab9", "#b77a00", "#c2306e", "#00788f", "#6b7280",
)  # fmt: skip
MARKERS = "osD^vPX*"
THIRD, HALF, FULL = 4.5, 6.4, 13.2  # inches of a figure that gets so much of a page

STYLE: Any = {
    "svg.fonttype": "none",  # text stays text: it can be searched, and has the page's font
    "font.size": 10,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.titlesize": 11,
    "figure.titleweight": "bold",
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
}

# The same in both themes: each cell brings its own background. Not of the palettes' colours,
# which a page replaces.
DARK_INK, LIGHT_INK = "#101418", "#ffffff"


def colour(index: int) -> str:
    """The colour of a series; beyond the palette all are grey."""
    return SERIES[min(index, len(SERIES) - 1)]


def save(figure: Figure, format: str) -> bytes:
    """The picture as a file of its own, on white; the same figure gives the same bytes."""
    return _save(figure, format, transparent=False)


def _save(figure: Figure, format: str, transparent: bool) -> bytes:
    from matplotlib import rc_context

    data = io.BytesIO()
    metadata = {"Date": None} if format == "svg" else {}
    with rc_context({**STYLE, "svg.hashsalt": "gemmgen"}):
        figure.savefig(data, format=format, dpi=160, metadata=metadata, transparent=transparent)
    return data.getvalue()


def svg_for_page(figure: Figure, name: str) -> str:
    """An `<svg>` element to put into a page, its colours CSS variables, its ids its own."""
    text = _save(figure, "svg", transparent=True).decode()
    text = text[text.index("<svg") :].strip()
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'(url\(#|href="#)', rf"\1{name}-", text)
    text = re.sub(r"'DejaVu Sans'[^;\"]*", "sans-serif", text)
    names = {INK: "ink", MUTED: "muted", GRID: "grid"}
    names |= {value: f"s{i}" for i, value in enumerate(SERIES)}
    for value, variable in names.items():
        text = text.replace(value, f"var(--{variable})")
    return text
