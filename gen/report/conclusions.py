"""What a report says first: sentences that follow from its results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from gen.bench import results as bench
from gen.bench.results import Row
from gen.kernels.tunables import Value
from gen.profile.compare import EQUAL, TIME
from gen.report.model import File, Pair, Report, SweepPair, by_problem, family, standings
from gen.tables import geometric_mean, number
from gen.tune import tables
from gen.tune.results import Entry
from gen.tune.tables import Group, Metric, at, groups, least, metrics

_BAD = {
    bench.WRONG: "is wrong",
    bench.FAILED: "failed",
    bench.NO_MEMORY: "ran out of memory",
    bench.SKIPPED: "was skipped",
    bench.ABSENT: "was not measured",
}

_LEFT_OUT = (bench.SKIPPED, bench.ABSENT)


def conclusions(report: Report) -> list[str]:
    """What is wrong, then what is fastest, where, and by how much, then what is missing."""
    swept = [e.row for f in report.sweeps if f.sweep for e in f.sweep.entries]
    bad = [row for row in (*report.rows, *swept) if row.check != bench.OK]
    return [
        *_bad([row for row in bad if row.check not in _LEFT_OUT]),
        *_benchmarks(report.rows),
        *_gains(report),
        *_pairs(report.pairs),
        *(text for pair in report.sweep_pairs for text in _sweep_pair(pair)),
        *(text for file in report.sweeps for text in _best_of_sweep(file)),
        *(text for file in report.sweeps for text in _sweep(file)),
        *report.comparison,
        *_bad([row for row in bad if row.check in _LEFT_OUT]),
    ]


def _bad(rows: Sequence[Row]) -> Iterator[str]:
    """One sentence for each kernel and what is the matter with it."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        # A combination that cannot be built has no kernel's name.
        who = row.contender if row.spec or not row.variant else row.variant
        found.setdefault((who, row.check), []).append(row)
    for (who, check), same in found.items():
        more = f" and in {len(same) - 1} more cases" if len(same) > 1 else ""
        why = f": {same[0].note}" if same[0].note else ""
        yield f"{who} {_BAD.get(check, check)} {at(same[0].shape)}{more}{why}"


# --- benchmarks


def _benchmarks(rows: Sequence[Row]) -> Iterator[str]:
    """For each element type and layout: the largest problem, who wins, our best on average."""
    solved = by_problem(rows)
    for dtype, layout in dict.fromkeys(problem[:2] for problem in solved):
        own = {p[2]: found for p, found in solved.items() if p[:2] == (dtype, layout)}
        cubes = [shape for shape in own if at(shape) != f"at {shape}"]
        shape = (cubes or list(own))[-1]
        yield from _fastest_two(own[shape], f"{at(shape)} in {dtype} {layout}")
        if len(own) > 1:
            yield _winners(own, f"{dtype} {layout}")
    strongest = {s.dtype: s for s in sorted(standings(rows), key=lambda s: -s.mean)}
    for dtype, standing in sorted(strongest.items()):
        if (problems := len(standing.ratios)) > 1:
            where = f"on average over {problems} problems in {dtype}"
            yield from TIME.compare("our best kernel", 1, standing.peer, standing.mean, where)


def _fastest_two(rows: Sequence[Row], where: str) -> list[str]:
    """Our best kernel beside the best peer, else beside the next of our variants, else alone."""
    ours = bench.fastest(bench.find(rows, kind=bench.OURS))
    if ours is None:
        return []
    others = bench.find(rows, kind=bench.PEER)
    others = others or [row for row in rows if family(row) != family(ours)]
    other = bench.fastest(others)
    if other is None:
        return [f"{family(ours)} takes {number(ours.ms_median).text} ms {where}"]
    times = ours.ms_median or 0.0, family(other), other.ms_median or 0.0
    return TIME.compare(family(ours), *times, where)


def _winners(solved: Mapping[str, Sequence[Row]], where: str) -> str:
    first = [row for rows in solved.values() if (row := bench.fastest(rows))]
    (best, most), *others = Counter(map(family, first)).most_common()
    rest = "".join(f", {name} on {wins}" for name, wins in others)
    return f"of {len(first)} problems in {where}, {best} is fastest on {most}{rest}"


def _gains(report: Report) -> Iterator[str]:
    for (dtype, layout), gains in report.gains.items():
        mean = geometric_mean(gain.ratio for gain in gains) or 1
        best = max(gains, key=lambda gain: gain.ratio)
        of = f"{len(gains)} problem{'s' if len(gains) > 1 else ''} in {dtype} {layout}"
        most = f", {number(best.ratio).text} times {at(best.best.shape)}" if len(gains) > 1 else ""
        yield f"tuning makes {of} {number(mean).text} times as fast as the model's first{most}"


def _pairs(pairs: Sequence[Pair]) -> Iterator[str]:
    if pairs:
        equal = sum(pair.in_noise for pair in pairs)
        faster = sum(pair.ratio > 1 and not pair.in_noise for pair in pairs)
        yield (
            f"of {len(pairs)} times that were measured twice, {faster} have become shorter and "
            f"{len(pairs) - equal - faster} longer; {equal} differ by no more than the noise"
        )


# --- sweeps


def _sweep_pair(pair: SweepPair) -> Iterator[str]:
    """Each kernel at its best, before and now."""
    assert pair.before.sweep
    assert pair.after.sweep
    gpus = [file.header.gpu for file in (pair.before, pair.after)]
    names = [file.name for file in (pair.before, pair.after)]
    before, now = (f"on {g}" for g in gpus) if gpus[0] != gpus[1] else (f"in {n}" for n in names)
    old = {(g.dtype, g.layout): g for g in groups(pair.before.sweep)}
    for group in groups(pair.after.sweep):
        known = old.get((group.dtype, group.layout))
        shapes = [s for s in group.shapes() if known and s in known.shapes()]
        for variant in group.variants() if known and shapes else ():
            assert known
            best = [least(_entries(g, variant, shapes[-1]), tables.TIME) for g in (known, group)]
            if best[0] and best[1]:
                ms = [entry.row.ms_median or 0.0 for entry in best if entry]
                where = f"{at(shapes[-1])}, both at their best"
                what, base = f"{variant} {now}", f"{variant} {before}"
                yield from TIME.compare(what, ms[1], base, ms[0], where)


def _groups(file: File) -> list[tuple[Group, list[Metric], str]]:
    """Each group that has measurements, with what is said of it if there are several."""
    assert file.sweep
    found, measured = groups(file.sweep), metrics(file.sweep)
    several = len(found) > 1
    return [(g, measured, f", in {g.dtype} {g.layout}" * several) for g in found if measured]


def _best_of_sweep(file: File) -> Iterator[str]:
    """Where which kernel is best, or where one kernel is at its best."""
    for group, (metric, *_), where in _groups(file):
        variant, *others = group.variants()
        shape = group.shapes()[-1]
        best = least(_entries(group, variant, shape), metric)
        if others:
            yield from (text + where for text in _best_kernels(group, metric))
        elif best and len(group.entries) > 1:
            place = f"{at(shape)} {_with(best.values)}".strip()
            yield f"{variant} {metric.measure.least} {place}{where}"


def _sweep(file: File) -> Iterator[str]:
    """How many times better than the first kernel the others are."""
    for group, measured, where in _groups(file):
        base, *others = group.variants()
        # All counters of two kernels; of many kernels what comes first tells them apart.
        for metric in measured if len(others) == 1 else measured[:1]:
            for variant in others:
                texts = _against(group, variant, base, metric, measured[0])
                yield from (text + where for text in texts)


def _entries(group: Group, variant: str, shape: str) -> list[Entry]:
    return [e for e in group.of(variant) if e.row.shape == shape]


def _with(values: Mapping[str, Value]) -> str:
    """A place in the sweep after the size."""
    if list(values) == ["side"]:
        return f"in blocks of {values['side']} a side"
    return f"with {tables.names_and_values(values)}" if values else ""


def _best_kernels(group: Group, metric: Metric) -> Iterator[str]:
    """Which kernels are best, each at its own best, and at which sizes."""
    won: dict[tuple[str, ...], list[str]] = {}
    for shape in group.shapes():
        best = [least(_entries(group, v, shape), metric) for v in group.variants()]
        values = {e.row.variant: metric.get(e) or 0.0 for e in best if e}
        if values:
            limit = min(values.values()) * (1 + EQUAL)
            first = tuple(variant for variant, value in values.items() if value <= limit)
            won.setdefault(first, []).append(shape)
    for first, shapes in won.items():
        all_sizes = len(shapes) == len(group.shapes()) > 1
        places = f"at all {len(shapes)} sizes" if all_sizes else " and ".join(map(at, shapes))
        words = metric.measure.least if len(first) == 1 else metric.measure.alike
        yield f"{' and '.join(first)} {words} {places}"


def _against(group: Group, variant: str, base: str, metric: Metric, first: Metric) -> list[str]:
    """One kernel beside another for the largest problem, where the one is best by `first`.

    Both are in the same place of the sweep or, where the other has no such place, at their best.
    """
    for shape in reversed(group.shapes()):
        best = least(_entries(group, variant, shape), first)
        theirs = _entries(group, base, shape)
        if not best or not least(theirs, first):
            continue
        same = least([e for e in theirs if e.values == best.values], first)
        other = same or least(theirs, first)
        assert other
        mine, than = metric.get(best) or 0.0, metric.get(other) or 0.0
        if same:
            where = ", ".join(filter(None, (at(shape), _with(best.values))))
            return metric.measure.compare(variant, mine, base, than, where)
        what, to = (f"{n} {_with(e.values)}".strip() for n, e in ((variant, best), (base, other)))
        return metric.measure.compare(what, mine, to, than, at(shape))
    return []
