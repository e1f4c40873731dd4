"""What commands print: tables, and a progress bar.

rich draws for terminals (it honours NO_COLOR). A pipe gets plain aligned columns of full width.
rich is imported only where it draws.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gen.kernels.registry import make_spec
from gen.kernels.variant import Variant

if TYPE_CHECKING:
    from gen.compile.nvrtc import Module
    from gen.doctor import Check
    from gen.prove.verify import CaseResult, ShapeResult
    from gen.source.render import Source

Row = Sequence[str]

_STYLES = {"ok": "green", "FAILED": "bold red", "MISSING": "bold red", "note": "yellow"}


def table(headers: Row, rows: Sequence[Row], right: Sequence[str] = ()) -> None:
    """Prints rows under headers; the columns named in `right` are aligned to the right."""
    if not sys.stdout.isatty():
        _plain_table(headers, rows, right)
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for header in headers:
        number = header in right
        drawn.add_column(
            header, justify="right" if number else "left", no_wrap=number, overflow="fold"
        )
    for row in rows:
        drawn.add_row(*(Text(cell, _STYLES.get(cell, "")) for cell in row))
    Console().print(drawn)


def _plain_table(headers: Row, rows: Sequence[Row], right: Sequence[str]) -> None:
    lines = [headers, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headers))]
    for line in lines:
        cells = (
            cell.rjust(width) if header in right else cell.ljust(width)
            for cell, width, header in zip(line, widths, headers, strict=True)
        )
        print("  ".join(cells).rstrip())


def as_json(value: object) -> None:
    """Prints a value as JSON; NaN and infinity, which JSON lacks, have to be None already."""
    print(json.dumps(value, indent=2, allow_nan=False))


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[], object]]:
    """A bar on standard error, if that is a terminal; call what this yields after each step."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda: bar.advance(task)


def seconds(value: float) -> str:
    """A duration in a unit that suits it."""
    for limit, factor, unit in ((1e-3, 1e6, "us"), (1, 1e3, "ms")):
        if value < limit:
            return f"{value * factor:.3g} {unit}"
    return f"{value:.1f} s"


def variant_fields(variant: Variant) -> dict[str, object]:
    """A row of the registry, as `gen list --json` has it."""
    defaults = make_spec(variant.name).tunables
    return {
        "name": variant.name,
        "summary": variant.summary,
        "dtypes": list(variant.dtypes),
        "min_arch": f"sm_{variant.min_arch}",
        "tunables": [
            {
                "name": t.name,
                **t.limits(),
                "default": defaults[t.name],
                "help": t.help,
            }
            for t in variant.tunables
        ],
    }


def checks(found: Sequence[Check], json: bool) -> None:
    """What `gen doctor` prints."""
    if json:
        ok = not any(check.status == "MISSING" for check in found)
        as_json({"ok": ok, "checks": [asdict(check) for check in found]})
        return
    table(("", "status", "found"), [(c.name, c.status, c.found) for c in found])
    for check in found:
        if check.fix:
            print(f"{check.name}: {check.fix}")


def variants(rows: Sequence[Variant]) -> None:
    """The table of `gen list`."""
    lines = []
    for row in rows:
        defaults = make_spec(row.name).tunables
        tunables = [f"{t.name} {t.values} [{t.show(defaults[t.name])}]" for t in row.tunables]
        since = row.default_arch if row.max_arch else f"sm_{row.min_arch}"
        lines.append((row.name, row.summary, " ".join(row.dtypes), since, ", ".join(tunables)))
    table(("variant", "what it is", "dtypes", "from", "tunables [default]"), lines)


def resources(compiled: Sequence[tuple[Source, Module]], paths: Sequence[Path], json: bool) -> None:
    """What `gen compile` prints: each kernel's resources, then the files written."""
    kernels = [
        {
            "kernel": kernel,
            "arch": cubin.arch,
            **asdict(used),
            "dynamic_shared_bytes": _dynamic_shared(source, kernel),
            "seconds": cubin.seconds,
            "cached": cubin.cached,
        }
        for source, cubin in compiled
        for kernel, used in cubin.resources.items()
    ]
    if json:
        as_json({"kernels": kernels, "files": [str(path) for path in paths]})
        return
    headers = ("kernel", "arch", "registers", "spills", "shared", "stack", "time")
    table(headers, [_resource_row(fields) for fields in kernels], right=headers[2:])
    for path in paths:
        print(path)


def _dynamic_shared(source: Source, kernel: str) -> int | None:
    """The launch decides on it; the compiler does not see it. None where nothing is known."""
    if source.spec is None:
        return None
    return source.spec.geometry.dynamic_shared if kernel == source.spec.name else 0


def _resource_row(fields: dict[str, Any]) -> Row:
    return (
        fields["kernel"],
        fields["arch"],
        str(fields["registers"]),
        f"{fields['spill_stores'] + fields['spill_loads']} B",
        f"{fields['shared_bytes'] + (fields['dynamic_shared_bytes'] or 0)} B",
        f"{fields['stack_bytes']} B",
        "cached" if fields["cached"] else seconds(fields["seconds"]),
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _case_fields(case: CaseResult) -> dict[str, object]:
    p = case.problem
    return {
        "kind": case.kind,
        "alpha": p.alpha,
        "beta": p.beta,
        "lda": p.lda,
        "ldb": p.ldb,
        "ldc": p.ldc,
        "ldd": p.ldd,
        "ok": case.ok,
        "worst": _finite(case.worst),
        "seconds": case.seconds,
        "message": case.message,
    }


def result_fields(result: ShapeResult) -> dict[str, object]:
    """A kernel on a shape, as `gen verify --json` has it. An infinite or NaN `worst` is null."""
    spec = result.spec
    return {
        "name": spec.name,
        "variant": spec.variant,
        "dtype": spec.dtypes.name,
        "layout": str(spec.layouts),
        "tunables": dict(spec.tunables),
        "shape": str(result.shape),
        "ok": result.ok,
        "worst": _finite(result.worst),
        "seconds": result.seconds,
        "message": result.message,
        "cases": [_case_fields(case) for case in result.cases],
    }


def results_as_json(found: Sequence[Sequence[ShapeResult]], device: str) -> None:
    """What `gen verify --json` prints."""
    every = [result for group in found for result in group]
    fields = [result_fields(result) for result in every]
    as_json({"device": device, "ok": all(result.ok for result in every), "results": fields})


def results(found: Sequence[Sequence[ShapeResult]], device: str, each: bool) -> None:
    """The table of `gen verify`: a row per kernel, or per kernel and shape where `each`."""
    groups = [[result] for group in found for result in group] if each else found
    headers = ("variant", "dtype", "layout", "shape", "error/bound", "time", "device", "result")
    table(headers, [_result_row(group, device) for group in groups], ("error/bound", "time"))
    failures = [bad for group in groups if (bad := [r for r in group if not r.ok])]
    for first, *others in failures:
        more = f" (and {len(others)} more shapes; --each shows them)" if others else ""
        print(f"{first.spec.name} on {first.shape}: {first.message}{more}")
    wrong = sum(any(not result.ok for result in group) for group in found)
    print(f"{len(found) - wrong} of {len(found)} kernels are right")


def _result_row(group: Sequence[ShapeResult], device: str) -> Row:
    spec = group[0].spec
    bad = [result for result in group if not result.ok]
    # NaN must not hide behind a finite number, and max() would let it.
    worst = max((math.inf if math.isnan(r.worst) else r.worst) for r in group)
    return (
        spec.variant,
        spec.dtypes.name,
        str(spec.layouts),
        str((bad or group)[0].shape) if len(group) == 1 else f"{len(group)} shapes",
        f"{worst:.2g}",
        seconds(sum(result.seconds for result in group)),
        device,
        "FAILED" if bad else "ok",
    )
