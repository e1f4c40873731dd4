"""`gen check`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gen.cli.options import ARCH, DTYPE, JSON, LAYOUT, VARIANT, select
from gen.errors import UsageError
from gen.kernels.tunables import Value
from gen.source.render import Source, read_source, render
from gen.spec.problem import GemmShape, parse_shape

if TYPE_CHECKING:
    from gen.prove.check import CheckReport, Occurrence


def check(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE.cu]", help="An emitted file, as it is now.")
    ] = None,
    variant: Annotated[list[str] | None, VARIANT] = None,
    dtype: Annotated[list[str] | None, DTYPE] = None,
    layout: Annotated[list[str] | None, LAYOUT] = None,
    arch: Annotated[str | None, ARCH] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            "--shape",
            metavar="MxNxK",
            help="Problem size; default: sizes that reach every corner; repeatable.",
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Report loads of memory that was never written.")
    ] = False,
    max_findings: Annotated[
        int,
        typer.Option(
            "--max-findings", metavar="N", min=1, help="Print at most N findings for a kernel."
        ),
    ] = 20,
    budget: Annotated[
        int | None,
        typer.Option(
            "--budget",
            metavar="N",
            min=1,
            help="Instructions, over all threads, that a launch may run; default: by the shape.",
        ),
    ] = None,
    first: Annotated[
        bool, typer.Option("--first", help="Stop at the first thing that is wrong.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", metavar="N", min=1, help="Processes; default: one for each CPU core."
        ),
    ] = None,
    time: Annotated[
        float | None,
        typer.Option(
            "--time",
            metavar="SECONDS",
            min=0,
            help="Seconds for a kernel's check; default: 60 and more for each launch.",
        ),
    ] = None,
    json: Annotated[bool, JSON] = False,
    **tunables: Value | None,
) -> None:
    """Find races, bad accesses and wrong results, on the emulator."""
    if file is None:
        specs = select(variant or [], dtype, layout or ["rrr"], arch, tunables)
        sources = [render(spec) for spec in specs]
    elif variant or dtype or layout or arch or any(v is not None for v in tunables.values()):
        raise UsageError(f"{file} says which kernel it is; leave out the options that choose one")
    else:
        sources = [read_source(file)]
    shapes = [parse_shape(text) for text in shape] if shape else None
    jobs = jobs or len(os.sched_getaffinity(0))
    options = {"strict": strict, "budget": budget, "seconds": time, "first": first, "jobs": jobs}
    if not _check(sources, shapes, json, max_findings=max_findings, **options):
        raise typer.Exit(1)


def _check(
    sources: Sequence[Source], shapes: Sequence[GemmShape] | None, json: bool, **options: Any
) -> bool:
    from gen.cli import tables
    from gen.prove import check as library

    plans = [library.plan(source, shapes) for source in sources]
    with tables.progress("checking", sum(len(plan.trials) for plan in plans)) as step:
        reports = [library.check(plan, step=step, **options) for plan in plans]
    if json:
        ok = all(report.ok for report in reports)
        tables.as_json({"ok": ok, "kernels": [_fields(report) for report in reports]})
    else:
        _print(reports)
    return all(report.ok for report in reports)


def _fields(report: CheckReport) -> dict[str, object]:
    return {
        "kernel": report.spec.name,
        "ok": report.ok,
        "launches": report.trials,
        "shapes": [str(shape) for shape in report.shapes],
        "findings": [
            {**one.finding.as_dict(), "shape": str(one.shape), "launches": one.launches}
            for one in report.findings
        ],
        "suppressed": report.suppressed,
        "notes": [note._asdict() for note in report.notes],
        "mismatches": [
            {"shape": str(shape), "message": message} for shape, message in report.mismatches
        ],
        "error": report.error or None,
        "skipped": report.skipped or None,
        "lines_not_run": report.not_run,
        "not_checked": NOT_CHECKED,
        "seconds": report.seconds,
    }


NOT_CHECKED = "the launcher, which is host code"


def _print(reports: Sequence[CheckReport]) -> None:
    for report in reports:
        if report.ok:
            print(f"{report.spec.name}: nothing found in {_tried(report)}")
        else:
            _print_one(report)
    if len(reports) > 1:
        good = sum(report.ok for report in reports)
        print(f"{good} of {len(reports)} kernels are clean")
    for note in (note for report in reports for note in report.notes):
        print(f"note: {note.message}")


def _tried(report: CheckReport) -> str:
    """What was checked, and what was not."""
    missing = [NOT_CHECKED]
    if report.skipped:
        missing.append(report.skipped)
    if report.not_run:
        lines = ", ".join(map(str, report.not_run[:MOST_LINES]))
        more = ", ..." if len(report.not_run) > MOST_LINES else ""
        missing.append(f"lines that no launch has run: {lines}{more}")
    shapes = "1 shape" if len(report.shapes) == 1 else f"{len(report.shapes)} shapes"
    return f"{_launches(report.trials)} on {shapes}\n  not checked: {'; '.join(missing)}"


def _launches(count: int) -> str:
    return "1 launch" if count == 1 else f"{count} launches"


MOST_LINES = 8


def _print_one(report: CheckReport) -> None:
    from gen.cli import tables
    from gen.prove.check import lines_of

    print(f"{report.spec.name}:")
    if report.findings:
        rows = [_row(one) for one in report.findings]
        tables.table(("check", "line", "message", "where"), rows, ("line",))
    for line, text in lines_of(report.findings):
        print(f"{line:6} | {text.rstrip()}")
    messages: dict[GemmShape, list[str]] = {}
    for shape, message in report.mismatches:
        messages.setdefault(shape, []).append(message)
    for shape, some in list(messages.items())[:MOST_MISMATCHES]:
        more = f"; and in {_launches(len(some) - 1)} more" if len(some) > 1 else ""
        print(f"mismatch on {shape}: {some[0]}{more}")
    if len(messages) > MOST_MISMATCHES:
        print(f"mismatches on {len(messages) - MOST_MISMATCHES} more shapes (--json has all)")
    if report.error:
        print(f"stopped {report.error}")
    counts = [f"{len(report.findings)} findings", f"{len(report.mismatches)} mismatches"]
    if report.suppressed:
        counts.append(f"{report.suppressed} repeats or beyond --max-findings")
    print(f"{', '.join(counts)} in {_tried(report)}")


MOST_MISMATCHES = 6  # shapes of which one is printed


def _row(one: Occurrence) -> tuple[str, str, str, str]:
    finding = one.finding
    block = ",".join(map(str, finding.block))
    threads = " ".join(f"({','.join(map(str, thread))})" for thread in finding.threads)
    where = f"block ({block}), threads {threads}, shape {one.shape}"
    return finding.check, str(finding.file_line or "?"), finding.message, where
