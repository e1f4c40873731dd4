"""`gen tune`."""

from __future__ import annotations

import json as json_
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gen.cli.options import JSON, LAYOUT
from gen.dispatch import folders
from gen.dispatch.ranking import Product
from gen.dispatch.table import Table, load
from gen.errors import UsageError
from gen.spec.dtypes import DTYPES, parse_dtype
from gen.spec.problem import GemmShape, parse_layout

if TYPE_CHECKING:
    from gen.tune.search import Options, Outcome, Tuner


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
    dtype: Annotated[
        list[str] | None,
        typer.Option(
            "--dtype",
            metavar="TYPE",
            help=f"Element types: {', '.join(DTYPES)}; default: f32; repeatable.",
        ),
    ] = None,
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
    limit: Annotated[
        float,
        typer.Option(
            "--limit",
            metavar="SECONDS",
            min=0.01,
            help="Time a kernel on a shape for at most so long.",
        ),
    ] = 3.0,
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
    json: Annotated[bool, JSON] = False,
) -> None:
    """Find the fastest kernel for a problem on the GPU, and keep its time for every choice."""
    target = folders.target(into)
    if merge:
        if shape or suite:
            raise UsageError("--merge measures nothing; leave out --shape and --suite")
        _merge(merge, target, json)
        return
    products = _products(shape or [], suite or [], dtype or ["f32"], layout or ["rrr"], batch)
    from gen.bench.device import MeasuredGpu
    from gen.tune.search import Options

    options = Options(candidates=candidates, limit_s=limit, again=again)
    _tune(MeasuredGpu(), products, options, target, json)


def _products(
    texts: Sequence[str],
    suites: Sequence[str],
    dtypes: Sequence[str],
    layouts: Sequence[str],
    batch: str | None,
) -> list[Product]:
    """What is to be tuned, the smallest first, so that something is known early."""
    from gen.bench.sizes import flops, products
    from gen.bench.suites import suite
    from gen.source.cpp.best import products_of

    shapes = list(dict.fromkeys(shape for name in suites for shape in suite(name)))
    if not texts and not shapes:
        raise UsageError("no shape is named; use --shape, such as 4096 or 1-64x4096x4096")
    if batch and not texts:
        raise UsageError("--batch goes with --shape; shapes of a suite say how many products")
    found: list[Product] = []
    for dtypes_ in map(parse_dtype, dict.fromkeys(dtypes)):
        for layouts_ in map(parse_layout, dict.fromkeys(layouts)):
            found += products_of(texts, dtypes_, layouts_, batch)
            for s in shapes:
                one = Product.packed(GemmShape(s.m, s.n, s.k), dtypes_, layouts_)
                found.append(replace(one, batch=products(s)))
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
        print(f"{len(found.entries)} times are in {target}")


def _tune(
    gpu: Any, products: Sequence[Product], options: Options, target: Path, json: bool
) -> None:
    from gen.bench.results import NO_MEMORY
    from gen.cli import tables
    from gen.tune.keeper import Keeper
    from gen.tune.search import Tuner

    step: Any = None
    tuner = Tuner(gpu, options, say=lambda text: step.now(text))
    keeper = Keeper(target, tuner.model)
    types = dict.fromkeys(product.dtypes.name for product in products)
    for product in products:
        tuner.ranking(product)  # what has no kernel is said before anything is measured
    folders.check_target(target, [(tuner.model.key, name) for name in types])
    outcomes: list[Outcome] = []
    try:
        with tables.progress("tuning", len(products)) as step:
            for product in products:
                outcome = tuner.outcome(product, keeper.known(product.dtypes))
                outcomes.append(outcome)
                try:
                    tuner.measure(outcome)
                finally:
                    if why := keeper.keep(tuner.fresh(outcome)):
                        print(f"warning: {why}; it is tried again", file=sys.stderr)
                step()
    finally:  # also what was measured before an interruption
        _show(outcomes, tuner, target, json)
    keeper.finish()
    if any(row.check != NO_MEMORY for one in outcomes for row in one.failed):
        raise typer.Exit(1)


def _show(outcomes: Sequence[Outcome], tuner: Tuner, target: Path, json: bool) -> None:
    from gen.cli import tables
    from gen.tables import number, ratio

    run = tuner.run
    if json:
        about = {"gpu": tuner.model.key, **run._asdict(), "into": str(target)}
        _as_json({**about, "problems": [_fields(one) for one in outcomes]})
        return
    headers = [
        "problem",
        "model's first",
        "fastest",
        "",
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
    tables.table(headers, rows, right=[h for h in headers if h not in ("problem", "")])
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
