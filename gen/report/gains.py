"""Tables of `gen tune` in a report: their times as measurements, and what tuning gained."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gen.bench import sizes
from gen.bench.results import OURS, Header, Results, Row, read_json
from gen.dispatch import choice, table
from gen.dispatch.ranking import Product
from gen.dispatch.table import Entry, Run, Table
from gen.errors import GenError, UsageError
from gen.kernels.registry import make_spec
from gen.spec.dtypes import parse_dtype
from gen.spec.kernel import KernelSpec
from gen.spec.problem import parse_layout
from gen.tune.outcomes import model_of_run


class Gain(NamedTuple):
    """A problem whose model's first kernel was measured, too: that one, and the fastest."""

    first: Row
    best: Row
    kernels: int  # that were measured

    @property
    def ratio(self) -> float:
        """How many times as fast the fastest is."""
        return (self.first.ms_median or 0) / (self.best.ms_median or 1)


def is_table(path: Path) -> bool:
    """Whether a file, or a folder, has times of `gen tune`."""
    if path.is_dir():
        return True
    try:
        content = read_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False  # which the reader of benchmarks says
    return isinstance(content, dict) and content.get("format") == table.FORMAT


def read(path: Path) -> list[tuple[Results, list[Gain]]]:
    """What a table has of each GPU: for each problem the fastest kernel, and the model's first.

    Others are left out, as a page has the source of each. Raises UsageError.
    """
    found = table.load(path)
    if not found.entries:
        raise UsageError(f"{path} has no times; use a table of gen tune")
    keys = dict.fromkeys(entry.gpu for entry in found.entries)
    return [_of_gpu([e for e in found.entries if e.gpu == key], found) for key in keys]


def _of_gpu(entries: Sequence[Entry], known: Table) -> tuple[Results, list[Gain]]:
    last = max((known.runs[name] for name in {e.run for e in entries}), key=lambda run: run.name)
    problems: dict[tuple[Any, ...], dict[KernelSpec, Row]] = {}
    for entry in entries:
        try:
            spec = make_spec(**entry.spec)
        except (GenError, TypeError):  # a kernel that is gone
            continue
        problems.setdefault(entry.problem, {})[spec] = _row(entry, spec)
    some = {entry.problem: entry for entry in entries}
    gains, shown = [], []
    for problem, rows in problems.items():
        best = min(rows.values(), key=lambda row: row.ms_median or 0)
        shown.append(best)
        if first := rows.get(_first(some[problem], last)):
            gains.append(Gain(first, best, len(rows)))
            shown += [first] if first != best else []
    return Results(_header(last), tuple(shown)), gains


def _first(entry: Entry, run: Run) -> KernelSpec:
    """What the model alone takes for the problem of an entry."""
    dtypes, layouts = parse_dtype(entry.spec["dtype"]), parse_layout(entry.spec["layout"])
    product = Product.packed(entry.size, dtypes, layouts, batch=entry.batch)
    model = model_of_run(run)
    given = {"batched": True} if entry.batch > 1 else {}
    return choice.rank(product, model, run.arch, given)[0].spec


def _row(entry: Entry, spec: KernelSpec) -> Row:
    shape, seconds = sizes.sized(entry.size, entry.batch), entry.us / 1e6
    return Row(
        spec.name,
        OURS,
        spec.dtypes.name,
        str(spec.layouts),
        str(shape),
        variant=spec.variant,
        spec=json.loads(spec.to_json()),
        ms_median=entry.us / 1e3,
        ms_spread=None if entry.noise is None else entry.noise * entry.us / 1e3,
        noise=entry.noise,
        rounds=entry.rounds,
        tflops=sizes.flops(shape) / seconds / 1e12,
        gbps=sum(sizes.operand_bytes(shape, spec.dtypes)) / seconds / 1e9,
    )


def _header(run: Run) -> Header:
    versions: Mapping[str, str] = {"gemmgen": run.gemmgen}
    return Header(run.device, run.arch, run.driver, run.date, "gen tune", "", versions, run.clocks)
