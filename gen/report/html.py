"""A report as one HTML file: no network, no other file, readable in any theme and width."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gen._version import __version__
from gen.report import pictures, sections, theme
from gen.report.model import Report, standings, typical_noise
from gen.report.pictures import Picture
from gen.report.sources import highlight, kernel_sources
from gen.tables import Table, percent, ratio
from gen.tune.tables import left_out

_FOLDER = Path(__file__).parent / "page"


class Tile(NamedTuple):
    """One number of the summary."""

    value: str
    label: str


@dataclass(frozen=True)
class Figure:
    """A picture as the page has it."""

    name: str
    caption: str
    svg: str
    wide: bool


@dataclass(frozen=True)
class Section:
    """A part of the page; small tables are shown side by side."""

    id: str
    title: str
    tables: list[Table]
    figures: list[Figure]
    lines: list[str]
    small: bool = False


def page(report: Report) -> str:
    """The file's text; needs matplotlib."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cuda"] = lambda text: Markup(highlight(text))
    environment.filters["svg"] = Markup
    return environment.get_template("report.html.j2").render(
        title=f"gemmgen on {report.header.gpu}",
        version=__version__,
        command=shlex.join(["gen", "report", *(file.name for file in report.files)]),
        style=Markup((_FOLDER / "report.css").read_text(encoding="utf-8")),
        script=Markup((_FOLDER / "report.js").read_text(encoding="utf-8")),
        files=[(file.name, sections.facts(file.header)) for file in report.files],
        tiles=list(_tiles(report)),
        sections=[s for s in _sections(report) if s.tables or s.figures or s.lines],
        kernels=kernel_sources(report.specs, report.header.arch, report.profiles),
    )


def _tiles(report: Report) -> Iterator[Tile]:
    rows = [*report.rows, *(e.row for f in report.sweeps if f.sweep for e in f.sweep.entries)]
    strongest = {s.dtype: s for s in sorted(standings(report.rows), key=lambda s: -s.mean)}
    for dtype, standing in sorted(strongest.items()):
        faster = f"faster on {standing.wins} of {len(standing.ratios)}"
        label = f"as fast as {standing.peer} in {dtype}, {faster}"
        yield Tile(ratio(standing.mean).text, label)
    yield Tile(str(len({row.problem for row in rows})), "problems")
    yield Tile(str(len(report.specs)), "kernels of ours")
    wrong = sum(row.check in ("wrong", "failed") for row in rows)
    yield Tile(str(wrong), "wrong or failed")
    noise = typical_noise(rows)
    if noise is not None:
        yield Tile(percent(noise).text, "typical noise")


def _given(*tables: Table | None) -> list[Table]:
    return [table for table in tables if table]


def _sections(report: Report) -> Iterator[Section]:
    pictured = list(_figures("b", pictures.of_benchmarks(report)))
    best = _given(sections.peers(report), sections.winners(report))
    yield Section("best", "Best kernels and peers", best, pictured, [])
    yield Section("compared", "Compared", _given(sections.comparison(report.pairs)), [], [])
    for i, pair in enumerate(report.sweep_pairs):
        title = f"Sweeps compared: {pair.before.header.gpu} → {pair.after.header.gpu}"
        yield Section(f"sweeps-{i}", title, sections.of_sweep_pair(pair), [], [])
    for i, file in enumerate(report.sweeps):
        assert file.sweep
        over = ", ".join(file.sweep.axes)
        figures = list(_figures(f"s{i}", pictures.of_sweep(file.sweep)))
        tables, lines = sections.of_sweep(file), left_out(file.sweep)
        yield Section(
            f"sweep-{i}",
            f"Sweep over {over}, {file.header.gpu}",
            tables,
            figures,
            lines,
            small=True,
        )
    rest = _given(
        sections.measurements(report.rows),
        sections.unmeasured(report.rows),
        sections.ceilings(report),
    )
    yield Section("all", "Everything measured", rest, [], [])


def _figures(prefix: str, found: Iterable[Picture]) -> Iterator[Figure]:
    for i, picture in enumerate(found):
        svg = theme.svg_for_page(picture.figure, f"{prefix}{i}")
        yield Figure(picture.name, picture.caption, svg, picture.wide)
