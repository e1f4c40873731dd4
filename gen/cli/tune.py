"""`gen tune`."""

from __future__ import annotations

import json as json_
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gen.cli.options import JSON, LAYOUT, LIMIT, of_types
from gen.cli.workers import ON, Team, team
from gen.dispatch import folders
from gen.dispatch.products import products_of
from gen.dispatch.ranking import Product
from gen.dispatch.table import Run, Table, load
from gen.errors import UsageError, counted
from gen.spec.dtypes import parse_dtype
from gen.spec.problem import parse_layout
from gen.spread.job import Here
from gen.spread.place import Place

if TYPE_CHECKING:
    from gen.tune.outcomes import Options, Outcome


def tune(
    shape: Annotated[
        list[str] | None,
        typer.Option(
            "--shape",
            metavar="MxNxK",
            help="A problem size, with ranges such as 1-64x4096x4096; repeatable.",
        ),
    ] = None,
    suite: Annotated[
        list[str] | None,
        typer.Option("--suite", metavar="NAME", help="A list of shapes of gen bench; repeatable."),
    ] = None,
    dtype: Annotated[list[str] | None, of_types("f32")] = None,
    layout: Annotated[list[str] | None, LAYOUT] = None,
    batch: Annotated[
        str | None,
        typer.Option(
            "--batch",
            metavar="COUNT",
            help="So many products of each --shape, or a range such as 1-64, in one launch.",
        ),
    ] = None,
    candidates: Annotated[
        int,
        typer.Option(
            "--candidates", min=1, metavar="N", help="Measure the model's first N kernels."
        ),
    ] = 16,
    limit: Annotated[float, LIMIT] = 3.0,
    again: Annotated[
        bool, typer.Option("--again", help="Measure also what was measured before.")
    ] = False,
    into: Annotated[
        str | None,
        typer.Option(
            "--into",
            metavar="PATH",
            help="Keep times in this folder, or in this file if it ends in .json; "
            "default: the user's.",
        ),
    ] = None,
    merge: Annotated[
        list[Path] | None,
        typer.Option(
            "--merge",
            metavar="PATH",
            help="Measure nothing; add the times of this table, a file or a folder; repeatable.",
        ),
    ] = None,
    on: Annotated[str | None, ON] = None,
    json: Annotated[bool, JSON] = False,
) -> None:
    target = folders.target(into)
    if merge:
        if shape or suite:
            raise UsageError("--merge measures nothing; leave out --shape and --suite")
        _merge(merge, target, json)
        return
    products = _products(shape or [], suite or [], dtype or ["f32"], layout or ["rrr"], batch)
    from gen.tune.outcomes import Options

    options = Options(candidates=candidates, limit_s=limit, again=again)
    _tune(products, options, target, json, on)


def _products(
    texts: Sequence[str],
    suites: Sequence[str],
    dtypes: Sequence[str],
    layouts: Sequence[str],
    batch: str | None,
) -> list[Product]:
    """What is to be tuned, the smallest first, so that something is known early."""
    from gen.bench.sizes import Grouped, flops, product
    from gen.bench.suites import suite

    shapes = list(dict.fromkeys(shape for name in suites for shape in suite(name)))
    if not texts and not shapes:
        raise UsageError("no shape is named; use --shape, such as 4096 or 1-64x4096x4096")
    if groups := next((s for s in shapes if isinstance(s, Grouped)), None):
        raise UsageError(f"{groups} are groups, which have no times; use a suite of products")
    if batch and not texts:
        raise UsageError("--batch goes with --shape; shapes of a suite say how many products")
    found: list[Product] = []
    for dtypes_ in map(parse_dtype, dict.fromkeys(dtypes)):
        for layouts_ in map(parse_layout, dict.fromkeys(layouts)):
            found += products_of(texts, dtypes_, layouts_, batch)
            found += [product(s, dtypes_, layouts_) for s in shapes]
    if empty := next((p for p in found if p.shape.k == 0), None):
        raise UsageError(f"shape {empty.shape} has nothing to measure; use sizes of 1 or more")
    return sorted(dict.fromkeys(found), key=lambda p: flops(p.shape) * p.batch)


def _merge(paths: Sequence[Path], target: Path, json: bool) -> None:
    found = Table()
    for path in paths:
        found = found.merged(load(path))
    if not found.entries:
        raise UsageError(f"{paths[0]} has no times; use a table of gen tune")
    folders.keep(found, target)
    if json:
        _as_json({"into": str(target), "entries": len(found.entries)})
    else:
        count = len(found.entries)
        print(f"{counted(count, 'time')} {'is' if count == 1 else 'are'} in {target}")


def _tune(
    products: Sequence[Product], options: Options, target: Path, json: bool, on: str | None
) -> None:
    from gen.bench.results import NO_MEMORY
    from gen.cli.progress import progress
    from gen.tune.keeper import Keeper
    from gen.tune.outcomes import model_of_run, planned
    from gen.tune.search import Tuning, joined

    date = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    tuning = Tuning(options, date)
    with _team(on) as who:
        ((_, opened),) = who.workers.map(tuning, [None])
        run, model = opened.run, model_of_run(opened.run)
        keeper = Keeper(target, model)
        types = dict.fromkeys(product.dtypes for product in products)
        folders.check_target(target, [(model.key, one.name) for one in types])
        known = {one: keeper.known(one) for one in types}
        found = [planned(one, run, known[one.dtypes], options) for one in products]
        shown: dict[int, Outcome] = {}

        def keep(outcome: Outcome) -> None:
            if why := keeper.keep(outcome.table(run)):
                print(f"warning: {why}; it is tried again", file=sys.stderr)

        try:
            with progress("tuning", len(products)) as step:
                tuning.say = step.now
                for index, (outcome, measured_by) in who.map(tuning, found, step):
                    assert outcome
                    run = joined(run, measured_by)
                    shown[index] = outcome
                    keep(outcome)
        finally:  # also what was measured before an interruption
            for index, outcome in enumerate(found):
                if index not in shown and (outcome.measured or outcome.failed):
                    shown[index] = outcome
                    keep(outcome)
            _show([shown[index] for index in sorted(shown)], run, target, json)
        keeper.finish()
    if any(row.check != NO_MEMORY for one in shown.values() for row in one.failed):
        raise typer.Exit(1)


@contextmanager
def _team(on: str | None) -> Iterator[Team]:
    """Those who measure: this process, which says itself where it has no GPU, or a cluster."""
    if on is None:
        yield Team(Here(), Place("the GPU"))
        return
    with team(on, "gpu") as who:
        yield who


def _show(outcomes: Sequence[Outcome], run: Run, target: Path, json: bool) -> None:
    from gen.cli import tables
    from gen.tables import number, ratio

    if json:
        from gen.tune.outcomes import model_of_run

        about = {"gpu": model_of_run(run).key, **run._asdict(), "into": str(target)}
        _as_json({**about, "problems": [_fields(one) for one in outcomes]})
        return
    headers = [
        "problem",
        "model's first",
        "fastest",
        "by",
        "gained",
        "measured",
        "known",
        "no chance",
    ]
    rows = []
    for one in outcomes:
        best = one.best
        rows.append(
            (
                _called(one.product),
                f"{number(one.first.us).text} us" if one.first else "-",
                f"{number(best[1].us).text} us" if best else "-",
                f"{best[0].variant} {best[0].threadblock}" if best else "-",
                ratio(one.gain).text,
                str(len(one.measured)),
                str(len(one.entries) - len(one.measured)),
                str(one.left_out),
            )
        )
    tables.table(headers, rows, right=[h for h in headers if h not in ("problem", "by")])
    for one in outcomes:
        for row in one.failed:
            print(f"{row.contender} on {_called(one.product)}: {row.check}: {row.note}")
    print(f"{run.device}, driver {run.driver}; times are in {target}")


def _called(product: Product) -> str:
    count = f"{product.batch}x" if product.batch > 1 else ""
    return f"{product.dtypes.name} {product.layouts} {count}{product.shape}"


def _fields(one: Outcome) -> dict[str, Any]:
    from gen.dispatch.words import command

    times = [
        {
            "us": one.entries[each.spec].us,
            "us_modelled": each.modelled / 1e6,
            "noise": one.entries[each.spec].noise,
            "rounds": one.entries[each.spec].rounds,
            "command": command(each.spec),
            "spec": json_.loads(each.spec.to_json()),
        }
        for each in one.ranking
        if each.spec in one.entries
    ]
    return {
        "dtype": one.product.dtypes.name,
        "layout": str(one.product.layouts),
        "shape": str(one.product.shape),
        "batch": one.product.batch,
        "gain": one.gain,
        "measured": len(one.measured),
        "known": len(one.entries) - len(one.measured),
        "left_out": one.left_out,
        "times": sorted(times, key=lambda found: found["us"]),
        "failed": [{"kernel": r.contender, "check": r.check, "note": r.note} for r in one.failed],
    }


def _as_json(value: object) -> None:
    from gen.cli import tables

    tables.as_json(value)
