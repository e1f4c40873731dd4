"""`gen check`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gen.cli import tables
from gen.cli.annotations import OPTION as ANNOTATIONS
from gen.cli.annotations import Annotations
from gen.cli.options import ARCH, DTYPE, FILES, JSON, LAYOUT, VARIANT, sources
from gen.cli.progress import progress
from gen.cli.workers import JOBS
from gen.errors import CheckError, UsageError
from gen.kernels.tunables import Value
from gen.source.render import Source
from gen.spec.problem import GemmShape, parse_shape
from gen.spread.processes import cores

if TYPE_CHECKING:
    from gen.prove.check import CheckReport, Occurrence
    from gen.prove.planned import Planned


def check(
    files: Annotated[list[Path] | None, FILES] = None,
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
    also: Annotated[
        list[str] | None,
        typer.Option(
            "--also",
            metavar="PROBLEM",
            help="A further problem, as 5x7x5000,alpha=0.3,lda=8192; repeatable.",
        ),
    ] = None,
    allow_unreached: Annotated[
        bool,
        typer.Option(
            "--allow-unreached",
            help="Accept conditions in edited lines of which one outcome was never tried.",
        ),
    ] = False,
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
    jobs: Annotated[int | None, JOBS] = None,
    time: Annotated[
        float | None,
        typer.Option(
            "--time",
            metavar="SECONDS",
            min=0,
            help="Seconds for a kernel's check; default: 60 of CPU time for a launch, and more.",
        ),
    ] = None,
    json: Annotated[bool, JSON] = False,
    annotations: Annotated[str | None, ANNOTATIONS] = None,
    **tunables: Value | None,
) -> None:
    """Find races, bad accesses and wrong results, on the emulator."""
    # Matrices are small here, and processes share the cores: numpy's own threads would only wait.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if files and arch:
        raise UsageError(f"{files[0]} says what it is for; leave out --arch")
    notes = Annotations(annotations, json)
    found = sources(files, variant, dtype, layout, arch, tunables)
    shapes = [parse_shape(text) for text in shape] if shape else None
    options = {
        "strict": strict,
        "budget": budget,
        "seconds": time,
        "first": first,
        "jobs": jobs or cores(),
        "allow_unreached": allow_unreached,
    }
    if not _check(found, shapes, also or (), json, notes, max_findings=max_findings, **options):
        raise typer.Exit(1)


def _check(
    sources: Sequence[Source],
    shapes: Sequence[GemmShape] | None,
    also: Sequence[str],
    json: bool,
    notes: Annotations,
    **options: Any,
) -> bool:
    from gen.prove import check as library
    from gen.prove.planned import Planned

    plans = [_plan(source, shapes, also, notes) for source in sources]
    ready = [plan for plan in plans if isinstance(plan, Planned)]
    reports: list[CheckReport] = []
    try:
        with progress("checking", sum(len(plan.trials) for plan in ready)) as step:
            for plan in plans:
                if isinstance(plan, library.CheckReport):
                    reports.append(plan)
                    continue
                step.now(f"checking {plan.spec.name}")
                reports.append(library.CheckReport(plan.spec))
                library.check(plan, step=step, report=reports[-1], **options)
                if not json:
                    _print(reports[-1])
    except KeyboardInterrupt:
        if reports:
            reports[-1].error = "by an interruption"
            if not json:
                _print(reports[-1])
        raise
    finally:  # also what was done before an interruption or an error
        left = len(plans) - len(reports)
        if json:
            ok = not left and all(report.ok for report in reports)
            tables.as_json({"ok": ok, "kernels": [_fields(report) for report in reports]})
        else:
            _print_end(reports, left)
    for plan, report in zip(plans, reports, strict=True):
        if isinstance(plan, Planned):
            _annotate(notes, plan.source, report)
    return all(report.ok for report in reports)


def _plan(
    source: Source, shapes: Sequence[GemmShape] | None, also: Sequence[str], notes: Annotations
) -> Planned | CheckReport:
    """What to try of a kernel; where that cannot be known, the error is said: others go on."""
    from gen.prove import check as library
    from gen.prove.named import named_trial
    from gen.prove.planned import plan

    further = [named_trial(source.spec, text) for text in also] if source.spec else []
    try:
        with notes.of_compiler():
            return plan(source, shapes, further)
    except CheckError as error:
        assert source.spec is not None  # or else it was a UsageError
        print(f"error: {error}", file=sys.stderr, flush=True)
        return library.CheckReport(source.spec, error=str(error))


def _annotate(notes: Annotations, source: Source, report: CheckReport) -> None:
    kernel = source.text[: max(0, source.text.find("__global__"))].count("\n") + 1
    for one in report.findings:
        message = f"{one.finding.check}: {one.finding.message}; shape {one.shape}"
        notes.error(source.place, one.finding.file_line, message)
    for shape, message in report.mismatches[:MOST_MISMATCHES]:
        notes.error(source.place, kernel, f"mismatch on {shape}: {message}")
    for left in report.unreached if not report.allow_unreached else ():
        notes.error(source.place, left.line, f"unreached: {left.message}")
    if report.launcher and report.launcher.wrong:
        launcher = source.text[: source.text.find("_launch(")].count("\n") + 1
        notes.error(source.place, launcher, f"launcher: {report.launcher}")
    if report.error:
        notes.error(source.place, kernel, f"stopped {report.error}")


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
        "lines_not_probed": report.unprobed,
        "unreached": [
            {
                "line": one.line,
                "side": "launcher" if one.host else "kernel",
                "message": one.message,
                "allowed": report.allow_unreached,
            }
            for one in report.unreached
        ],
        "launcher": _launcher(report),
        "seconds": report.seconds,
    }


def _launcher(report: CheckReport) -> dict[str, object] | None:
    found = report.launcher
    if found is None:
        return None
    return {
        "as_emitted": found.as_emitted,
        "calls": found.calls,
        "wrong": found.wrong,
        "not_checked": found.skipped or None,
    }


def _print(report: CheckReport) -> None:
    if report.ok:
        print(f"{report.spec.name}: nothing found in {_tried(report)}", flush=True)
        _print_unreached(report)
    else:
        _print_one(report)


def _print_end(reports: Sequence[CheckReport], left: int) -> None:
    if len(reports) + left > 1:
        good = sum(report.ok for report in reports)
        end = f"; stopped before the end of {left} more" if left else ""
        print(f"{good} of {len(reports)} kernels are clean{end}")
    for note in (note for report in reports for note in report.notes):
        print(f"note: {note.message}")


def _tried(report: CheckReport) -> str:
    """What was checked, and what was not."""
    missing = [report.skipped] if report.skipped else []
    if not report.launcher:
        missing.append("the launcher")
    if report.not_run:
        lines = ", ".join(map(str, report.not_run[:MOST_LINES]))
        more = ", ..." if len(report.not_run) > MOST_LINES else ""
        missing.append(f"lines that no launch has run: {lines}{more}")
    if report.unprobed:
        lines = ", ".join(map(str, report.unprobed))
        missing.append(f"conditions that take no probe, of lines {lines}")
    shapes = "1 shape" if len(report.shapes) == 1 else f"{len(report.shapes)} shapes"
    tried = [f"{_launches(report.trials)} on {shapes}"]
    if report.launcher:
        tried.append(f"  launcher: {report.launcher}")
    if missing:
        tried.append(f"  not checked: {'; '.join(missing)}")
    return "\n".join(tried)


def _launches(count: int) -> str:
    return "1 launch" if count == 1 else f"{count} launches"


MOST_LINES = 8


def _print_one(report: CheckReport) -> None:
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
    _print_unreached(report)
    found, wrong = len(report.findings), len(report.mismatches)
    counts = [f"{found} finding{'s' * (found != 1)}", f"{wrong} mismatch{'es' * (wrong != 1)}"]
    if report.unreached:
        counts.append(f"{len(report.unreached)} unreached")
    if report.suppressed:
        counts.append(f"{report.suppressed} repeats or beyond --max-findings")
    print(f"{', '.join(counts)} in {_tried(report)}")


MOST_MISMATCHES = 3  # shapes of which one is printed


def _row(one: Occurrence) -> tuple[str, str, str, str]:
    finding = one.finding
    block = ",".join(map(str, finding.block))
    threads = " ".join(f"({','.join(map(str, thread))})" for thread in finding.threads)
    where = f"block ({block}), threads {threads}, shape {one.shape}"
    return finding.check, str(finding.file_line or "?"), finding.message, where


def _print_unreached(report: CheckReport) -> None:
    """What is edited and was not checked, and the ways out."""
    for one in report.unreached:
        print(f"unreached: line {one.line}: {one.message}")
    if report.unreached and not report.allow_unreached:
        print(
            "What these lines do then was not checked. Name a problem that reaches it (--also "
            "5x7x5000,alpha=0.3,lda=8192), or accept that (--allow-unreached)"
        )
