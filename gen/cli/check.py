"""`gen check`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from gen.cli import check_table, tables
from gen.cli.annotations import OPTION as ANNOTATIONS
from gen.cli.annotations import Annotations
from gen.cli.options import ARCH, DTYPE, FILES, JSON, LAYOUT, VARIANT, sources
from gen.cli.progress import progress
from gen.cli.workers import JOBS
from gen.errors import CheckError, UsageError
from gen.kernels.tunables import Value
from gen.source.render import Source
from gen.spec.problem import GemmShape, parse_shape
from gen.spread.processes import cores, prepare

if TYPE_CHECKING:
    from gen.prove.check import CheckReport
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
    thorough: Annotated[
        bool,
        typer.Option(
            "--thorough",
            help="Try of an unchanged kernel, too, all that an edited one is tried with.",
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
    all_: Annotated[
        bool,
        typer.Option("--all", help="Go on with all launches, however many find something wrong."),
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
    # Matrices are small here, and processes share the cores: numpy's own threads would only wait.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if files and arch:
        raise UsageError(f"{files[0]} says what it is for; leave out --arch")
    if first and all_:
        raise UsageError("--first stops at the first thing that is wrong, --all never; name one")
    notes = Annotations(annotations, json)
    found = sources(files, variant, dtype, layout, arch, tunables)
    shapes = [parse_shape(text) for text in shape] if shape else None
    processes = jobs or cores()
    if shapes is None and processes > 1:  # others get ready while this one compiles
        prepare("gen.prove.check", "cuda.core", "ml_dtypes")
    options = {
        "strict": strict,
        "budget": budget,
        "seconds": time,
        "first": first,
        **({"enough": None} if all_ else {}),
        "jobs": processes,
        "allow_unreached": allow_unreached,
    }
    wanted = _Wanted(shapes, also or (), thorough)
    if not _check(found, wanted, json, notes, max_findings=max_findings, **options):
        raise typer.Exit(1)


class _Wanted(NamedTuple):
    """What is to be tried of each kernel: see `gen.prove.planned.plan`."""

    shapes: Sequence[GemmShape] | None
    also: Sequence[str]
    thorough: bool


def _check(
    sources: Sequence[Source],
    wanted: _Wanted,
    json: bool,
    notes: Annotations,
    **options: Any,
) -> bool:
    from gen.prove import check as library
    from gen.prove.planned import Planned

    plans = [_plan(source, wanted, notes) for source in sources]
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
                    check_table.show(reports[-1])
    except KeyboardInterrupt:
        if reports:
            reports[-1].error = "by an interruption"
            if not json:
                check_table.show(reports[-1])
        raise
    finally:  # also what was done before an interruption or an error
        left = len(plans) - len(reports)
        if json:
            ok = not left and all(report.ok for report in reports)
            tables.as_json(
                {"ok": ok, "kernels": [check_table.fields(report) for report in reports]}
            )
        else:
            check_table.show_end(reports, left)
    for plan, report in zip(plans, reports, strict=True):
        if isinstance(plan, Planned):
            _annotate(notes, plan.source, report)
    return all(report.ok for report in reports)


def _plan(source: Source, wanted: _Wanted, notes: Annotations) -> Planned | CheckReport:
    """What to try of a kernel; where that cannot be known, the error is said: others go on."""
    from gen.prove import check as library
    from gen.prove.named import named_trial
    from gen.prove.planned import plan

    further = [named_trial(source.spec, text) for text in wanted.also] if source.spec else []
    try:
        with notes.of_compiler():
            return plan(source, wanted.shapes, further, wanted.thorough)
    except CheckError as error:
        assert source.spec is not None  # or else it was a UsageError
        print(f"error: {error}", file=sys.stderr, flush=True)
        return library.CheckReport(source.spec, error=str(error))


def _annotate(notes: Annotations, source: Source, report: CheckReport) -> None:
    kernel = source.text[: max(0, source.text.find("__global__"))].count("\n") + 1
    for one in report.findings:
        message = f"{one.finding.check}: {one.finding.message}; shape {one.shape}"
        notes.error(source.place, one.finding.file_line, message)
    for shape, message in report.mismatches[: check_table.MOST_MISMATCHES]:
        notes.error(source.place, kernel, f"mismatch on {shape}: {message}")
    for left in report.unreached if not report.allow_unreached else ():
        notes.error(source.place, left.line, f"unreached: {left.message}")
    if report.launcher and report.launcher.wrong:
        launcher = source.text[: source.text.find("_launch(")].count("\n") + 1
        notes.error(source.place, launcher, f"launcher: {report.launcher}")
    if report.error:
        notes.error(source.place, kernel, f"stopped {report.error}")
