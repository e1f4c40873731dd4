"""A report as Markdown, for a README: the summary and the sweeps, without pictures."""

from __future__ import annotations

from collections.abc import Iterator

from gen.report import sections
from gen.report.conclusions import conclusions
from gen.report.model import File, Report
from gen.tables import Table
from gen.tune.tables import left_out


def page(report: Report) -> str:
    """The whole text."""
    return "\n".join(_parts(report))


def _parts(report: Report) -> Iterator[str]:
    yield from map(facts, report.files)
    found = conclusions(report)
    if found:
        yield "\n".join(f"- {_cell(text)}" for text in found) + "\n"
    for each in (
        sections.peers(report),
        sections.classes(report),
        sections.tuned(report),
        sections.winners(report),
    ):
        if each:
            yield table(each)
    for pair in report.sweep_pairs:
        yield f"### {pair.before.header.gpu} → {pair.after.header.gpu}\n"
        yield from map(table, sections.of_sweep_pair(pair))
    for file in report.sweeps:
        yield from map(table, sections.of_sweep(file))
        if file.sweep:
            yield from (f"- {_cell(line)}\n" for line in left_out(file.sweep))
    for each in (
        sections.comparison(report.pairs),
        sections.ceilings(report),
        sections.unmeasured(report.rows),
    ):
        if each:
            yield table(each)


def facts(file: File) -> str:
    """Where and how a file was measured."""
    known = sections.facts(file.header)
    said = "; ".join(f"{name}: {_inline(value)}" for name, value in known)
    return f"`{file.name}`: {said}\n"


def _inline(text: str) -> str:
    return f"`{text}`" if text.startswith("gen ") else text


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def table(shown: Table) -> str:
    """A table with its title and note."""
    lines = [f"**{_cell(shown.title)}**", ""]
    numeric = shown.numeric
    lines.append("| " + " | ".join(map(_cell, shown.columns)) + " |")
    lines.append("|" + "|".join("---:" if c in numeric else "---" for c in shown.columns) + "|")
    lines += ["| " + " | ".join(_cell(cell.text) for cell in row) + " |" for row in shown.rows]
    if shown.note:
        lines += ["", shown.note]
    return "\n".join(lines) + "\n"
