"""Rooflines, drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from gen.report.axes import legend_below, single_panel, value_axis, write_title
from gen.report.plots import Curve
from gen.report.theme import HALF, MARKERS, MUTED, STYLE, colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Ceiling(NamedTuple):
    """A horizontal limit of a roofline, in TFLOP/s."""

    label: str
    tflops: float


def roofline(
    title: str, curves: Sequence[Curve], ceilings: Sequence[Ceiling], bytes_per_second: float | None
) -> Figure:
    """Kernels as points under what memory (TB/s) and instructions allow."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        figure, axes = single_panel(HALF, 3.6)
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
        write_title(figure, title)
        axes.set(xlabel="FLOP per byte of A, B and D", ylabel="TFLOP/s")
        value_axis(axes, log=True)
        axes.set_ylim(bottom, upper)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        legend_below(figure, [axes])
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
