"""`gen sweep` and `gen report`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gen.cli import output, tables
from gen.cli.options import (
    ALL,
    ARCH,
    LAYOUT,
    LIMIT,
    RESULTS,
    RESUME,
    SHAPE,
    VARIANT,
    measurable,
    of_types,
)
from gen.cli.progress import progress
from gen.cli.workers import ON, Team, team
from gen.errors import UsageError, unknown
from gen.files import write
from gen.kernels.registry import VARIANTS
from gen.kernels.tunables import Value
from gen.spec.dtypes import parse_dtype
from gen.spec.problem import GemmShape, parse_layout, parse_shape

if TYPE_CHECKING:
    from gen.tune.axes import SweepPlan
    from gen.tune.meters import Measuring
    from gen.tune.results import Sweep

PICTURES = ("svg", "png")
REPORTS = ("html", "md", *PICTURES)


def sweep(
    variant: Annotated[list[str] | None, VARIANT] = None,
    axis: Annotated[
        list[str] | None,
        typer.Option(
            "--axis",
            metavar="NAME=VALUES",
            help="Values of a tunable (tile=8,16), or of side, the threads along a square block; "
            "repeatable.",
        ),
    ] = None,
    shape: Annotated[list[str] | None, SHAPE] = None,
    dtype: Annotated[list[str] | None, of_types("i32")] = None,
    layout: Annotated[list[str] | None, LAYOUT] = None,
    arch: Annotated[str | None, ARCH] = None,
    device: Annotated[
        str,
        typer.Option(
            "--device", metavar="DEVICE", help="auto, gpu, or cpu (counters instead of times)."
        ),
    ] = "auto",
    json: Annotated[Path | None, RESULTS] = None,
    resume: Annotated[bool, RESUME] = False,
    limit: Annotated[float, LIMIT] = 30.0,
    output_: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="Draw plots into this folder."),
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="The format of plots: svg or png.")
    ] = "svg",
    on: Annotated[str | None, ON] = None,
    **tunables: Value | None,
) -> None:
    from gen.bench.results import check_place
    from gen.tune.axes import (
        DEFAULT_AXES,
        DEFAULT_DTYPE,
        DEFAULT_SIZES,
        DEFAULT_VARIANTS,
        SweepPlan,
    )
    from gen.tune.meters import Measuring

    if format_ not in PICTURES:
        raise unknown("format", format_, PICTURES)
    if resume and json is None:
        raise UsageError("--resume needs --json FILE, which has what was measured before")
    if json:
        check_place(json)
    chosen = list(VARIANTS) if ALL in (variant or []) else variant or DEFAULT_VARIANTS
    for name in dtype or []:
        parse_dtype(name)
    for name in layout or []:
        parse_layout(name)
    axes = _axes(axis) if axis else DEFAULT_AXES
    shapes = measurable([parse_shape(text) for text in shape or []])
    given = {name: value for name, value in tunables.items() if value is not None}
    kept = (dtype or [DEFAULT_DTYPE], layout or ["rrr"], arch, given)
    SweepPlan(chosen, shapes or [GemmShape(1, 1, 1)], axes, *kept).cells()  # bad usage comes first
    if output_:
        from gen.report import require_matplotlib

        require_matplotlib()
    with team(on, device, emulator=", counters in place of times") as who:
        if not shapes:
            sizes = DEFAULT_SIZES["cpu" if who.place.finds_reads else "gpu"]
            shapes = [GemmShape(n, n, n) for n in sizes]
        measuring = Measuring(device, limit, shlex.join(["gen", *sys.argv[1:]]))
        done = _sweep(SweepPlan(chosen, shapes, axes, *kept), who, measuring, json, resume)
    if output_:
        from gen.report.pictures import sweep_files

        for path in output.write_all(list(sweep_files(done, format_)), f"{output_}/"):
            print(path)
    if any(entry.row.check not in ("ok", "skipped") for entry in done.entries):
        raise typer.Exit(1)


def _axes(texts: Sequence[str]) -> dict[str, Sequence[Value]]:
    from gen.tune.axes import SIDE, parse_axis

    known = [SIDE, *dict.fromkeys(t.name for v in VARIANTS.values() for t in v.tunables)]
    axes: dict[str, Sequence[Value]] = {}
    for text in texts:
        name, values = parse_axis(text, known)
        if name in axes:
            raise UsageError(f"axis '{name}' is given twice; give all of its values at once")
        axes[name] = values
    return axes


def _sweep(
    plan: SweepPlan, who: Team, measuring: Measuring, json: Path | None, resume: bool
) -> Sweep:
    from gen.tune.meters import joined
    from gen.tune.results import Sweep, batches, merge_axes, ordered, resumed

    ((_, opened),) = who.workers.map(measuring, [()])
    measuring.header = header = opened.header
    done = Sweep(header, merge_axes([plan.axes]))
    if json and resume:
        done = resumed(json, header, plan.axes)
    done, left = batches(plan, done)
    with _shown_at_the_end() as seen, progress("measuring", len(left)) as step:
        for _, found in who.map(measuring, left, step):
            for entry in found.entries:
                done = done.with_entry(entry)
            header = joined(header, found.header)
            done = ordered(plan, replace(done, header=header))
            seen[:] = [done]
            if json:
                write(done.to_json().encode(), json)
        seen[:] = [done]
    return done


@contextmanager
def _shown_at_the_end() -> Iterator[list[Sweep]]:
    """Prints the tables of what was measured, also where the sweep is interrupted."""
    seen: list[Sweep] = []
    try:
        yield seen
    finally:
        if seen:
            _print(seen[0])


def _print(done: Sweep) -> None:
    from gen.tune.tables import all_tables, left_out

    for table in all_tables(done):
        print(f"\n{table.title}")
        tables.table(table.columns, [[c.text for c in row] for row in table.rows], table.numeric)
    for line in left_out(done):
        print(line)


def report(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="RESULT.json...",
            help="Results of gen bench, gen sweep, gen tune and gen profile --json.",
        ),
    ],
    output_: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="PATH",
            help="A file, a folder (ends in /), or -; default: report.html.",
        ),
    ] = None,
    format_: Annotated[
        str,
        typer.Option(
            "--format", metavar="FORMAT", help="html, md, or the plots alone as svg or png."
        ),
    ] = "html",
) -> None:
    if format_ not in REPORTS:
        raise unknown("format", format_, REPORTS)
    from gen.report import html, markdown, model, pictures, require_matplotlib

    if format_ != "md":
        require_matplotlib()
    made = model.load(files)
    if format_ in PICTURES:
        found = list(pictures.files(made, format_))
    else:
        text = html.page(made) if format_ == "html" else markdown.page(made)
        found = [(f"report.{format_}", text.encode(errors="backslashreplace"))]
    target = output_ or ("./" if format_ in PICTURES else f"report.{format_}")
    for path in output.write_all(found, target):
        print(path)
