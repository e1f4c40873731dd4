"""Which figures a report has, and the files they become."""

from __future__ import annotations

from collections.abc import Iterator

from gen.report import plots, theme
from gen.report.bench_pictures import of_benchmarks
from gen.report.model import Report, family
from gen.report.picture import Picture, file_name
from gen.report.sweep_pictures import of_sweep
from gen.tune.results import Sweep

_MOST_GAINS = 40  # lines of a picture


def files(report: Report, format: str) -> Iterator[tuple[str, bytes]]:
    """(file name, contents) of every picture of a report."""
    for picture in (*of_gains(report), *of_benchmarks(report)):
        yield f"{picture.name}.{format}", theme.save(picture.figure, format)
    for i, file in enumerate(report.sweeps):
        assert file.sweep
        prefix = f"sweep{i + 1}-" if len(report.sweeps) > 1 else ""
        for name, data in sweep_files(file.sweep, format):
            yield prefix + name, data


def sweep_files(sweep: Sweep, format: str) -> Iterator[tuple[str, bytes]]:
    """(file name, contents) of every picture of a sweep."""
    for picture in of_sweep(sweep):
        yield f"{picture.name}.{format}", theme.save(picture.figure, format)


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
        found.append(Picture(file_name("tuned", where), caption, figure))
    return found
