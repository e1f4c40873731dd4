"""What `gen bench` prints: a row for each contender, and how ours stand against the best peer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gen.cli import tables
from gen.spec.kernel import KernelSpec

if TYPE_CHECKING:
    from gen.bench.ratios import Class
    from gen.bench.results import Results, Row
    from gen.bench.run import Options

_HEADERS = (
    "shape", "dtype", "layout", "contender", "time", "ratio", "+-", "by", "TFLOP/s", "of ceiling",
    "GB/s", "of copy", "workspace", "cold", "check",
)  # fmt: skip
_RIGHT = ("time", "ratio", "+-", "TFLOP/s", "of ceiling", "GB/s", "of copy", "workspace", "cold")

_CLASSES = ("dtype", "layout", "rows", "problems", "geometric mean", "least", "at")


def show(results: Results, options: Options) -> None:
    """Prints what was measured of what was asked for, and notes on what was not."""
    from gen.bench import ratios
    from gen.bench.results import ABSENT

    asked = {str(shape) for shape in options.shapes}
    rows = [row for row in results.rows if row.shape in asked]
    found = ratios.ratios(rows)
    best = {one.peer.problem: one.peer.ms_median or 0.0 for one in found}
    order = {problem: i for i, problem in enumerate(dict.fromkeys(row.problem for row in rows))}
    shown = [row for row in rows if row.check != ABSENT]
    shown.sort(key=lambda row: (order[row.problem], _milliseconds(row)))
    cells = [_cells(row, options.specs, best.get(row.problem)) for row in shown]
    tables.table(_HEADERS, cells, right=_RIGHT)
    if found:
        print("\nOur best kernel against the best peer, by the rows of D (above 1x: faster)")
        classes = [_class_cells(one) for one in ratios.classes(found)]
        tables.table(_CLASSES, classes, right=_CLASSES[3:6])
    for (contender, check, note), where in _notes(rows).items():
        shapes = where[0] if len(where) == 1 else f"{len(where)} shapes"
        print(f"{contender} on {shapes}: {check}: {note}")
    header = results.header
    clocks = ", ".join(f"{name} {_mhz(value)} MHz" for name, value in header.clocks.items())
    print(f"{header.gpu}, driver {header.driver}; clocks seen: {clocks or 'unknown'}")


def _class_cells(one: Class) -> list[str]:
    least = one.least
    counted = f"{one.mean:.3f}x", f"{least.value:.3f}x"
    return [one.dtype, one.layout, one.rows, str(len(one.ratios)), *counted, least.shape]


def _notes(rows: Sequence[Row]) -> dict[tuple[str, str, str], list[str]]:
    """What is to be said of rows beside the table, with the shapes that it is said of."""
    from gen.bench.results import OK

    found: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        if row.note and (row.check != OK or "slow" in row.note):
            found.setdefault((row.contender, row.check, row.note), []).append(row.shape)
    return found


def _milliseconds(row: Row) -> float:
    return float("inf") if row.ms_median is None else row.ms_median


def _mhz(value: object) -> str:
    return " to ".join(map(str, value)) if isinstance(value, list) else str(value)


def _cells(row: Row, specs: Sequence[KernelSpec], best_ms: float | None) -> list[str]:

    def percent(value: float | None) -> str:
        return "" if value is None else f"{100 * value:.1f} %"

    def figure(value: float | None) -> str:
        return "" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"

    alike = sum(spec.variant == row.variant for spec in specs)
    time = "" if row.ms_median is None else tables.seconds(row.ms_median / 1e3)
    return [
        row.shape,
        row.dtype,
        row.layout,
        row.variant if row.variant and alike == 1 else row.contender,
        time,
        "" if row.ms_median is None or best_ms is None else f"{best_ms / row.ms_median:.3f}x",
        percent(row.noise),
        row.method,
        figure(row.tflops),
        percent(row.share_of_ceiling),
        figure(row.gbps),
        percent(row.share_of_bandwidth),
        _bytes(row.workspace) if row.workspace else "",
        "" if row.cold_ms is None else tables.seconds(row.cold_ms / 1e3),
        row.check,
    ]


def _bytes(count: int) -> str:
    for factor, unit in ((2**20, "MiB"), (2**10, "KiB")):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"
