"""A report as Markdown, for a README: the summary and the sweeps, without pictures."""

from __future__ import annotations

from collections.abc import Iterator

from gen.report import sections
from gen.report.conclusions import conclusions
from gen.report.model import Report
from gen.tables import Table
from gen.tune.tables import left_out


def page(report: Report) -> str:
    """The whole text."""
    return "\n".join(_parts(report))


def _parts(report: Report) -> Iterator[str]:
    for file in report.files:
        facts = "; ".join(
            f"{name}: {_inline(value)}" for name, value in sections.facts(file.header)
        )
        yield f"`{file.name}`: {facts}\n"
    found = conclusions(report)
    if found:
        yield "\n".join(f"- {_cell(text)}" for text in found) + "\n"
    for table in (sections.peers(report), sections.classes(report), sections.winners(report)):
        if table:
            yield _table(table)
    for pair in report.sweep_pairs:
        yield f"### {pair.before.header.gpu} → {pair.after.header.gpu}\n"
        yield from map(_table, sections.of_sweep_pair(pair))
    for file in report.sweeps:
        yield from map(_table, sections.of_sweep(file))
        if file.sweep:
            yield from (f"- {_cell(line)}\n" for line in left_out(file.sweep))
    for table in (
        sections.comparison(report.pairs),
        sections.ceilings(report),
        sections.unmeasured(report.rows),
    ):
        if table:
            yield _table(table)


def _inline(text: str) -> str:
    return f"`{text}`" if text.startswith("gen ") else text


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def _table(table: Table) -> str:
    lines = [f"**{_cell(table.title)}**", ""]
    numeric = table.numeric
    lines.append("| " + " | ".join(map(_cell, table.columns)) + " |")
    lines.append("|" + "|".join("---:" if c in numeric else "---" for c in table.columns) + "|")
    lines += ["| " + " | ".join(_cell(cell.text) for cell in row) + " |" for row in table.rows]
    if table.note:
        lines += ["", table.note]
    return "\n".join(lines) + "\n"
