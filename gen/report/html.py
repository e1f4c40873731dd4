"""A report as one HTML file: no network, no other file, readable in any theme and width."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gen._version import __version__
from gen.profile.compare import TIME
from gen.report import sections, theme
from gen.report.bench_pictures import of_benchmarks
from gen.report.conclusions import conclusions
from gen.report.model import File, Report, standings, typical_noise
from gen.report.picture import Picture
from gen.report.pictures import of_gains
from gen.report.sources import highlight, kernel_sources
from gen.report.sweep_pictures import of_sweep
from gen.tables import Table, percent
from gen.tune.results import EMULATOR
from gen.tune.tables import left_out

_FOLDER = Path(__file__).parent / "page"
_MOST = 8  # conclusions that are read at once; the others are folded


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
    width: str


@dataclass(frozen=True)
class Section:
    """A part of the page: a few figures, tables, and `more` figures for who asks for them.

    Small tables are shown side by side.
    """

    id: str
    title: str
    tables: list[Table]
    figures: Sequence[Figure] = ()
    more: Sequence[Figure] = ()
    lines: Sequence[str] = ()
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
        title=f"gemmgen on {_device(report.header.gpu)}",
        version=__version__,
        command=shlex.join(["gen", "report", *(file.name for file in report.files)]),
        style=Markup((_FOLDER / "report.css").read_text(encoding="utf-8")),
        script=Markup((_FOLDER / "report.js").read_text(encoding="utf-8")),
        files=[(file.name, sections.facts(file.header)) for file in report.files],
        conclusions=conclusions(report),
        most=_MOST,
        tiles=list(_tiles(report)),
        sections=[s for s in _sections(report) if s.tables or s.figures or s.lines],
        kernels=kernel_sources(report.specs, report.header.arch, report.profiles),
    )


def _device(gpu: str) -> str:
    return f"the {gpu}" if gpu == EMULATOR else gpu


def _tiles(report: Report) -> Iterator[Tile]:
    rows = [*report.rows, *(e.row for f in report.sweeps if f.sweep for e in f.sweep.entries)]
    strongest = {s.dtype: s for s in sorted(standings(report.rows), key=lambda s: -s.mean)}
    for dtype, standing in sorted(strongest.items()):
        factor, _, word = TIME.cell(standing.mean).text.partition("x ")
        wins = f"faster on {standing.wins} of {len(standing.ratios)}"
        against = f"{word} than" if word else "as"
        yield Tile(
            f"{factor}x" if word else factor, f"{against} {standing.peer} in {dtype}, {wins}"
        )
    problems, kernels = len({row.problem for row in rows}), len(report.specs)
    yield Tile(str(problems), "problem" if problems == 1 else "problems")
    yield Tile(str(kernels), "kernel of ours" if kernels == 1 else "kernels of ours")
    wrong = sum(row.check in ("wrong", "failed") for row in rows)
    yield Tile(str(wrong), "wrong or failed")
    noise = typical_noise(rows)
    if noise is not None:
        yield Tile(percent(noise).text, "typical noise")


def _given(*tables: Table | None) -> list[Table]:
    return [table for table in tables if table]


def _sections(report: Report) -> Iterator[Section]:
    best = _given(sections.peers(report), sections.classes(report), sections.winners(report))
    pictured = _figures("b", of_benchmarks(report))
    shown = [f for f in pictured if f.name.startswith("squares")][:2] or pictured[:1]
    rest = [f for f in pictured if f not in shown]
    yield Section("best", "Best kernels and peers", best, shown, rest)
    yield Section("tuned", "Tuning", _given(sections.tuned(report)),
                  _figures("t", of_gains(report)))  # fmt: skip
    yield Section("compared", "Compared", _given(sections.comparison(report.pairs)))
    for i, pair in enumerate(report.sweep_pairs):
        gpus = [_device(file.header.gpu) for file in (pair.before, pair.after)]
        names = gpus if gpus[0] != gpus[1] else [pair.before.name, pair.after.name]
        title = f"Sweeps compared: {' → '.join(names)}"
        yield Section(f"sweeps-{i}", title, sections.of_sweep_pair(pair))
    titles = [_sweep_title(file) for file in report.sweeps]
    for i, file in enumerate(report.sweeps):
        assert file.sweep
        figures = _figures(f"s{i}", of_sweep(file.sweep))
        yield Section(
            f"sweep-{i}",
            titles[i] if titles.count(titles[i]) == 1 else f"{titles[i]}: {file.name}",
            sections.of_sweep(file),
            figures[:1],
            figures[1:],
            left_out(file.sweep),
            small=True,
        )
    every = _given(
        sections.measurements(report.rows),
        sections.unmeasured(report.rows),
        sections.ceilings(report),
    )
    yield Section("all", "Everything measured", every)


def _sweep_title(file: File) -> str:
    assert file.sweep
    return f"Sweep over {', '.join(file.sweep.axes)}, {_device(file.header.gpu)}"


def _figures(prefix: str, found: Iterable[Picture]) -> list[Figure]:
    return [
        Figure(p.name, p.caption, theme.svg_for_page(p.figure, f"{prefix}{i}"), p.width)
        for i, p in enumerate(found)
    ]
