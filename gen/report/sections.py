"""The tables of a report, for HTML and Markdown alike."""

from __future__ import annotations

from collections.abc import Sequence

from gen.bench import ratios
from gen.bench import results as bench
from gen.bench.results import Header, Row
from gen.bench.sizes import flops, parse_size
from gen.profile.compare import TIME
from gen.report.model import File, Pair, Report, SweepPair, by_problem, intensity, standings
from gen.tables import NOTHING, Cell, Table, geometric_mean, number, percent, ratio
from gen.tune import tables as sweep_tables
from gen.tune.tables import Matrix, groups, pivot


def _text(*words: str) -> list[Cell]:
    return [Cell(word) for word in words]


def _shape(text: str) -> Cell:
    return Cell(text, flops(parse_size(text)))


def facts(header: Header) -> list[tuple[str, str]]:
    """Where and how something was measured, in words; what is unknown is left out."""
    clocks = header.clocks
    seen = " to ".join(str(mhz) for mhz in clocks.get("sm") or [])
    known = [
        ("GPU", f"{header.gpu}" + (f" ({header.arch})" if header.arch else "")),
        ("driver", header.driver),
        ("date", header.date),
        ("clocks", f"{seen} MHz under load, at most {clocks.get('sm_max', '?')}" if seen else ""),
        ("versions", ", ".join(f"{k} {v}" for k, v in header.versions.items())),
        ("command", header.command),
    ]
    return [(name, value) for name, value in known if value]


def peers(report: Report) -> Table | None:
    """Geometric means of our best kernels against each peer."""
    found = standings(report.rows)
    if not found:
        return None
    rows = [
        [
            *_text(s.peer, s.dtype),
            TIME.cell(s.mean),
            TIME.cell(min(s.ratios)),
            TIME.cell(max(s.ratios)),
            Cell(f"{s.wins} of {len(s.ratios)}", s.wins / len(s.ratios)),
        ]
        for s in found
    ]
    columns = ["peer", "type", "geometric mean", "least", "most", "faster on"]
    note = "How our best kernel for a problem compares with the peer's for the same problem."
    return Table("Our best kernels against each peer", columns, rows, note)


def classes(report: Report) -> Table | None:
    """How our best kernels compare with the best peer, over problems with about as many rows."""
    found = ratios.classes(ratios.ratios(report.rows))
    rows = [
        [
            *_text(c.dtype, c.layout, c.rows),
            Cell(str(len(c.ratios)), len(c.ratios)),
            TIME.cell(c.mean),
            TIME.cell(c.least.value),
            _shape(c.least.shape),
        ]
        for c in found
    ]
    columns = ["type", "layout", "rows of D", "problems", "geometric mean", "least", "at"]
    note = "The best of all peers for each problem, beside our best kernel for it."
    return Table("Our best kernels against the best peer", columns, rows, note) if rows else None


def winners(report: Report) -> Table | None:
    """For each problem our best kernel and the best peer."""
    rows = []
    for (dtype, layout, shape), solved in by_problem(report.rows).items():
        ours = bench.fastest(bench.find(solved, kind=bench.OURS))
        peer = bench.fastest(bench.find(solved, kind=bench.PEER))
        if ours is None:
            continue
        against = (peer.ms_median or 0) / (ours.ms_median or 1) if peer else None
        rows.append(
            [
                *_text(dtype, layout),
                _shape(shape),
                Cell(ours.contender),
                number(ours.ms_median),
                number(ours.tflops),
                Cell(peer.contender if peer else NOTHING),
                TIME.cell(against),
                percent(ours.share_of_ceiling),
                percent(ours.share_of_bandwidth),
            ]
        )
    columns = [
        "type", "layout", "shape", "our best kernel", "ms", "TFLOP/s", "best peer", "against it",
        "of ceiling", "of bandwidth",
    ]  # fmt: skip
    return Table("The best for each problem", columns, rows) if rows else None


def tuned(report: Report) -> Table | None:
    """What tuning gained: the model's first kernel for each problem, and the fastest."""
    gains = [gain for group in report.gains.values() for gain in group]
    rows = [
        [
            *_text(g.best.dtype, g.best.layout),
            _shape(g.best.shape),
            Cell(g.first.contender),
            number((g.first.ms_median or 0) * 1e3),
            Cell(g.best.contender if g.best != g.first else "the same"),
            number((g.best.ms_median or 0) * 1e3),
            ratio(g.ratio),
            Cell(str(g.kernels), g.kernels),
        ]
        for g in gains
    ]
    columns = [
        "type", "layout", "shape", "the model's first", "us", "fastest", "us of it", "gained",
        "measured",
    ]  # fmt: skip
    mean = ratio(geometric_mean(g.ratio for g in gains)).text
    same = sum(g.best == g.first for g in gains)
    note = (
        f"Geometric mean {mean}; on {same} of {len(gains)} problems, the model's first is the "
        "fastest of those that were measured."
    )
    return Table("What tuning gained", columns, rows, note) if rows else None


def measurements(rows: Sequence[Row]) -> Table | None:
    """Every row that has a time."""
    timed = [row for solved in by_problem(rows).values() for row in solved]
    columns = [
        "contender", "type", "layout", "shape", "ms", "noise", "TFLOP/s", "FLOP/byte", "GB/s",
        "of bandwidth", "of ceiling", "ceiling", "workspace", "by",
    ]  # fmt: skip
    body = [
        [
            *_text(row.contender, row.dtype, row.layout),
            _shape(row.shape),
            number(row.ms_median),
            percent(row.noise),
            number(row.tflops),
            number(intensity(row)),
            number(row.gbps),
            percent(row.share_of_bandwidth),
            percent(row.share_of_ceiling),
            Cell(row.ceiling or NOTHING),
            Cell(f"{row.workspace:,}", row.workspace),
            Cell(row.method or NOTHING),
        ]
        for row in timed
    ]
    note = (
        "The median over rounds in which all contenders take turns; "
        "noise is half the distance between the quartiles."
    )
    if any(row.cold_ms for row in timed):
        columns += ["cold ms", "batch ms"]
        for row, cells in zip(timed, body, strict=True):
            cells += [number(row.cold_ms), number(row.batch_ms)]
        note += " Cold and batch are NVBench's."
    return Table("All measurements", columns, body, note) if body else None


def unmeasured(rows: Sequence[Row]) -> Table | None:
    """What has no time, and why."""
    body = [
        [
            *_text(row.contender, row.dtype, row.layout),
            _shape(row.shape),
            *_text(row.check, row.note),
        ]
        for row in rows
        if row.check != bench.OK
    ]
    columns = ["contender", "type", "layout", "shape", "check", "why"]
    return Table("Without a time", columns, body) if body else None


def ceilings(report: Report) -> Table | None:
    """What the GPU can do at best."""
    body = [
        [Cell(name), number(value, 4), Cell(_unit(name))] for name, value in report.ceilings.items()
    ]
    return Table("Ceilings", ["what", "at best", "unit"], body) if body else None


def _unit(ceiling: str) -> str:
    if ceiling in ("copy", "l2_read"):
        return "GB/s"
    return "TOP/s" if ceiling.endswith(("i32", "dp4a")) else "TFLOP/s"


def comparison(pairs: Sequence[Pair]) -> Table | None:
    """What was measured twice."""
    if not pairs:
        return None
    body = [
        [
            *_text(p.after.contender, p.after.dtype, p.after.layout),
            _shape(p.after.shape),
            number(p.before.ms_median),
            number(p.after.ms_median),
            ratio(p.ratio),
            Cell("within the noise" if p.in_noise else "faster" if p.ratio > 1 else "slower"),
        ]
        for p in pairs
    ]
    columns = ["contender", "type", "layout", "shape", "ms before", "ms now", "speed-up", "verdict"]
    mean = ratio(geometric_mean(p.ratio for p in pairs)).text
    inside = sum(p.in_noise for p in pairs)
    note = (
        f"Geometric mean {mean}; {inside} of {len(pairs)} are within the noise: "
        "the medians lie no farther apart than the two spreads reach together."
    )
    return Table("Before and now", columns, body, note)


# --- sweeps


def of_sweep(file: File) -> list[Table]:
    """The tables of `gen sweep`."""
    return sweep_tables.all_tables(file.sweep) if file.sweep else []


def of_sweep_pair(pair: SweepPair) -> list[Table]:
    """Two sweeps side by side: for each kernel both times and how many times as fast."""
    assert pair.before.sweep
    assert pair.after.sweep
    found = []
    before = {(g.dtype, g.layout): g for g in groups(pair.before.sweep)}
    for group in groups(pair.after.sweep):
        old = before.get((group.dtype, group.layout))
        for variant in group.variants():
            if old and variant in old.variants():
                now = pivot(group, variant, sweep_tables.TIME)
                found.append(_side_by_side(pivot(old, variant, sweep_tables.TIME), now))
    return found


def _side_by_side(before: Matrix, now: Matrix) -> Table:
    known = {
        (row, column): value
        for row, line in zip(before.rows, before.values, strict=True)
        for column, value in zip(before.columns, line, strict=True)
    }
    body = []
    for row, line in zip(now.rows, now.values, strict=True):
        cells = [Cell(row, float(row) if row.isdecimal() else None)]
        for column, value in zip(now.columns, line, strict=True):
            old = known.get((row, column))
            times = old / value if old and value else None
            cells.append(
                Cell(f"{number(old).text} → {number(value).text} ({TIME.cell(times).text})", times)
            )
        body.append(cells)
    columns = [f"{now.row_name} \\ {now.column_name}", *now.columns]
    return Table(f"{now.title}, before → now", columns, body)
