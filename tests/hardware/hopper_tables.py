"""Our best kernels beside the best peers, as Markdown for docs/lab/hopper.md.

    python -m tests.hardware.hopper_tables RESULT.json...

The files are those of `gen bench --json`. Nothing is measured here.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from gen.bench.ratios import Ratio, ratios
from gen.bench.sizes import parse_size, products
from gen.errors import GenError
from gen.report import markdown, sections
from gen.report.model import Report, load
from gen.tables import NOTHING, Cell, Table, ratio


def page(report: Report) -> Iterator[str]:
    """Where it was measured, the classes, and a matrix for each type and layout."""
    for file in report.files:
        yield markdown.facts(file)
    found = ratios(report.rows)
    for table in (sections.classes(report), *matrices(found)):
        if table:
            yield markdown.table(table)
    wrong = sections.unmeasured([row for row in report.rows if row.check not in ("skipped", "ok")])
    if wrong:
        yield markdown.table(wrong)


def matrices(found: Sequence[Ratio]) -> Iterator[Table]:
    """Ratios with tokens (M) in rows and projections (N x K) in columns; batches have theirs."""
    groups: dict[tuple[str, str], list[Ratio]] = {}
    for one in found:
        groups.setdefault((one.ours.dtype, one.ours.layout), []).append(one)
    for (dtype, layout), group in groups.items():
        values: dict[tuple[int, tuple[int, int, int, str]], float] = {}
        for one in group:
            shape = parse_size(one.shape)
            count = products(shape)
            each = f"{count} x " if count > 1 else ""
            values[shape.m, (count, shape.n, shape.k, f"{each}{shape.n} x {shape.k}")] = one.value
        tokens = sorted({m for m, _ in values})
        projections = sorted({projection for _, projection in values})
        rows = [
            [
                Cell(f"{m:,}", m),
                *(ratio(values[m, p]) if (m, p) in values else Cell(NOTHING) for p in projections),
            ]
            for m in tokens
        ]
        best = Counter(one.peer.contender for one in group).most_common()
        note = "The best peers: " + ", ".join(f"{name} {n}" for name, n in best) + "."
        columns = ["tokens", *(name for *_, name in projections)]
        yield Table(f"{dtype} {layout}: the best peer's time over ours", columns, rows, note)


def main(names: Sequence[str]) -> int:
    """Prints the page; the exit code."""
    if not names:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        report = load([Path(name) for name in names])
    except GenError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print("\n".join(page(report)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
