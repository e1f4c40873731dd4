"""What commands print: tables, and a progress bar.

rich draws for terminals (it honours NO_COLOR). A pipe gets plain aligned columns of full width.
rich is imported only where it draws.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gen.kernels.registry import make_spec
from gen.kernels.variant import Variant

if TYPE_CHECKING:
    from rich.progress import Progress

    from gen.compile.nvrtc import Module
    from gen.doctor import Check
    from gen.prove.verify import CaseResult, ShapeResult
    from gen.source.render import Source
    from gen.spec.kernel import KernelSpec

Row = Sequence[str]

_STYLES = {"ok": "green", "FAILED": "bold red", "MISSING": "bold red", "note": "yellow"}


def table(headers: Row, rows: Sequence[Row], right: Sequence[str] = ()) -> None:
    """Prints rows under headers; the columns named in `right` are aligned to the right.

    On a terminal, text wraps between words. Where the longest words do not fit beside each other,
    each row is a paragraph with a line for each column.
    """
    if not sys.stdout.isatty():
        _plain_table(headers, rows, right)
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    least = [
        max(len(cell) if header in right else _longest_word(cell) for cell in (header, *column))
        for header, *column in zip(headers, *rows, strict=True)
    ]
    if sum(least) + len(least) > console.width:
        _paragraphs(headers, rows)
        return
    drawn = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for header, width in zip(headers, least, strict=True):
        number = header in right
        drawn.add_column(
            Text(header), justify="right" if number else "left", no_wrap=number, min_width=width
        )
    for row in rows:
        drawn.add_row(*(Text(cell, _STYLES.get(cell, "")) for cell in row))
    console.print(drawn)


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=0)


def _paragraphs(headers: Row, rows: Sequence[Row]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    for row in rows:
        drawn = Table.grid(padding=(0, 1), pad_edge=False)
        drawn.add_column(style="bold", no_wrap=True)
        drawn.add_column(overflow="ellipsis")
        for header, cell in zip(headers, row, strict=True):
            if cell:
                drawn.add_row(Text(header), Text(cell, _STYLES.get(cell, "")))
        Console().print(drawn, "")


def _plain_table(headers: Row, rows: Sequence[Row], right: Sequence[str]) -> None:
    lines = [headers, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print(_plain_line(headers, line, widths, right))


def _plain_line(headers: Row, line: Row, widths: Sequence[int], right: Sequence[str]) -> str:
    cells = (
        cell.rjust(width) if header in right else cell.ljust(width)
        for cell, width, header in zip(line, widths, headers, strict=True)
    )
    return "  ".join(cells).rstrip()


class Growing:
    """A table whose rows are printed as they come, in columns of these widths."""

    def __init__(self, headers: Row, widths: Sequence[int], right: Sequence[str]) -> None:
        self._headers, self._right = headers, right
        self._widths = [max(len(h), w) for h, w in zip(headers, widths, strict=True)]
        self._columns = sys.maxsize
        if sys.stdout.isatty():
            from rich.console import Console

            self._columns = Console().width
        self._fits = sum(self._widths) + 2 * len(headers) <= self._columns
        if self._fits:
            self._print(headers)

    def add(self, row: Row) -> None:
        """Prints a row."""
        if self._fits:
            self._print(row)
        else:
            _paragraphs(self._headers, [row])

    def _print(self, row: Row) -> None:
        line = _plain_line(self._headers, row, self._widths, self._right)
        style = _STYLES.get(row[-1])
        if style and self._columns < sys.maxsize:
            from rich.console import Console
            from rich.text import Text

            text = Text(line)
            text.stylize(style, len(line) - len(row[-1]))
            Console().print(text)
        else:
            print(line, flush=True)


def as_json(value: object) -> None:
    """Prints a value as JSON; NaN and infinity, which JSON lacks, have to be None already."""
    print(json.dumps(value, indent=2, allow_nan=False))


class Steps:
    """How far a command is: called after each step, told by `now` what comes next."""

    def __init__(self, title: str, total: int) -> None:
        self.title, self.total, self.done = title, total, 0
        self._start = self._said = time.monotonic()

    def __call__(self) -> None:
        """One step is done. Where nobody sees a bar, a line says so from time to time."""
        self.done += 1
        at = time.monotonic()
        if at - self._said > _SILENCE and self.done < self.total:
            self._said = at
            left = (at - self._start) / self.done * (self.total - self.done)
            text = f"{self.title}: {self.done} of {self.total}, about {seconds(left)} left"
            print(text, file=sys.stderr, flush=True)

    def now(self, text: str) -> None:
        """What is running."""
        self.title = text


_SILENCE = 30.0  # seconds


class _Bar(Steps):
    def __init__(self, title: str, total: int, bar: Progress) -> None:
        super().__init__(title, total)
        self._bar, self._task = bar, bar.add_task(title, total=total)

    def __call__(self) -> None:
        self._bar.advance(self._task)

    def now(self, text: str) -> None:
        self._bar.update(self._task, description=text)


@contextmanager
def progress(title: str, total: int) -> Iterator[Steps]:
    """Says on standard error how far a command is: a bar with an estimate on a terminal."""
    if not sys.stderr.isatty():
        yield Steps(title, total)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    # What is printed meanwhile goes above the bar, but for what goes to a file or a pipe.
    shown = sys.stdout.isatty()
    with Progress(*columns, console=console, transient=True, redirect_stdout=shown) as bar:
        yield _Bar(title, total, bar)


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


def variant(row: Variant) -> None:
    """What `gen list NAME` prints."""
    spec = make_spec(row.name)
    since = row.default_arch if row.max_arch else f"sm_{row.min_arch} or newer"
    about = [
        ("what it is", row.summary),
        ("types", " ".join(row.dtypes)),
        ("layouts", "r or c for each of A, B, and C with D; default rrr"),
        ("architectures", f"{since}; default {row.default_arch}"),
        ("template", row.template),
    ]
    for name, text in about:
        print(f"{name:14}{text}")
    print()
    headers = ("option", "values", "default", "meaning")
    table(
        headers,
        [
            (f"--{t.name.replace('_', '-')}", t.values, t.show(spec.tunables[t.name]), t.help)
            for t in row.tunables
        ],
    )
    first = row.tunables[0]
    option = f"--{first.name.replace('_', '-')} {first.show(spec.tunables[first.name])}"
    print(f"\nDefaults are those of {spec.dtypes.name} on {spec.arch}. An example:")
    print(f"  gen emit --variant {row.name} --dtype {spec.dtypes.name} {option}")


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


def results_as_json(found: Sequence[ShapeResult], device: str, complete: bool) -> None:
    """What `gen verify --json` prints; what is not complete is not right."""
    fields = [result_fields(result) for result in found]
    ok = complete and all(result.ok for result in found)
    as_json({"device": device, "ok": ok, "results": fields})


RESULT = ("variant", "dtype", "layout", "shape", "error/bound", "time", "device", "result")


def growing_results(specs: Sequence[KernelSpec], shapes: Sequence[str], device: str) -> Growing:
    """The table of `gen verify`, of these kernels and what stands for their shapes."""
    columns = ([s.variant for s in specs], [s.dtypes.name for s in specs], ["rrr"], shapes)
    widths = [max(map(len, column), default=0) for column in columns]
    return Growing(RESULT, [*widths, 0, 7, len(device), 6], ("error/bound", "time"))


def failures(found: Sequence[Sequence[ShapeResult]], each: bool, left: int) -> None:
    """What `gen verify` says below its table; `left` kernels were not run to the end."""
    groups = [[result] for group in found for result in group] if each else found
    wrong = [bad for group in groups if (bad := [r for r in group if not r.ok])]
    for first, *others in wrong:
        more = f" (and {len(others)} more shapes; --each shows them)" if others else ""
        print(f"{first.spec.name} on {first.shape}: {first.message}{more}")
    failed = sum(any(not result.ok for result in group) for group in found)
    end = f"; stopped before the end of {left} more" if left else ""
    print(f"{len(found) - failed} of {len(found)} kernels are right{end}")


def shapes_of(count: int) -> str:
    """What stands for several shapes in the table of `gen verify`."""
    return f"{count} shapes"


def result_row(group: Sequence[ShapeResult], device: str) -> Row:
    """A row of `gen verify`: a kernel on a shape or on several."""
    spec = group[0].spec
    bad = [result for result in group if not result.ok]
    # NaN must not hide behind a finite number, and max() would let it.
    worst = max((math.inf if math.isnan(r.worst) else r.worst) for r in group)
    return (
        spec.variant,
        spec.dtypes.name,
        str(spec.layouts),
        str(group[0].shape) if len(group) == 1 else shapes_of(len(group)),
        f"{worst:.2g}",
        seconds(sum(result.seconds for result in group)),
        device,
        "FAILED" if bad else "ok",
    )
