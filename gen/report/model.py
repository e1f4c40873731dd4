"""What a report is made from: the files' rows put together, and what follows from them."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from gen.bench import results as bench
from gen.bench.results import Header, Row
from gen.bench.sizes import flops, operand_bytes, parse_size
from gen.errors import GenError, UsageError
from gen.kernels.registry import spec_from_json
from gen.report import gains, profiles
from gen.report.gains import Gain
from gen.report.profiles import KernelProfile
from gen.spec.dtypes import DTYPES
from gen.spec.kernel import KernelSpec
from gen.tables import geometric_mean
from gen.tune import results as sweeps
from gen.tune.results import EMULATOR, Sweep

Problem = tuple[str, str, str]

BETWEEN_RUNS = 0.005  # of a time


class Pair(NamedTuple):
    """The same thing measured twice."""

    before: Row
    after: Row

    @property
    def ratio(self) -> float:
        """How many times as fast it has become."""
        return (self.before.ms_median or 0) / (self.after.ms_median or 1)

    @property
    def in_noise(self) -> bool:
        """Whether the two medians lie no farther apart than their spreads reach together.

        Or than half a percent: so much differs between two runs of the same command, whose
        operands lie elsewhere in memory, when the spread within each is far smaller.
        """
        before, after = self.before.ms_median or 0, self.after.ms_median or 0
        spreads = (self.before.ms_spread or 0) + (self.after.ms_spread or 0)
        return abs(before - after) <= max(spreads, BETWEEN_RUNS * before)


@dataclass(frozen=True)
class File:
    """One result file; `sweep` where it is one, `gains` of a table of gen tune."""

    name: str
    results: bench.Results
    sweep: Sweep | None
    gains: Sequence[Gain] = ()

    @property
    def header(self) -> Header:
        """Where and when it was measured."""
        return self.results.header


@dataclass(frozen=True)
class SweepPair:
    """Two sweeps over the same axes."""

    before: File
    after: File


@dataclass(frozen=True)
class Report:
    """All that is shown. Rows are of one GPU, `header`'s; others appear in comparisons."""

    files: Sequence[File]
    rows: Sequence[Row]  # of benchmarks on the report's GPU; later files replace earlier ones
    sweeps: Sequence[File]
    pairs: Sequence[Pair]  # of benchmarks
    sweep_pairs: Sequence[SweepPair]
    profiles: Sequence[KernelProfile] = ()
    comparison: Sequence[str] = ()  # sentences about these

    @property
    def header(self) -> Header:
        """The last benchmark's, else the last sweep's, on a GPU if there is one."""
        return _main(self.files).header

    @property
    def gains(self) -> dict[tuple[str, str], list[Gain]]:
        """What tuning gained on the report's GPU, by types and layout, small problems first."""
        own = [g for f in self.files if f.header.gpu == self.header.gpu for g in f.gains]
        found: dict[tuple[str, str], list[Gain]] = {}
        for gain in sorted(own, key=lambda gain: _order(gain.best.problem)):
            found.setdefault(gain.best.problem[:2], []).append(gain)
        return found

    @property
    def ceilings(self) -> Mapping[str, float]:
        """The last ones known of the report's GPU."""
        known = [f.header.ceilings for f in self.files if f.header.gpu == self.header.gpu]
        return next((c for c in reversed(known) if c), {})

    @property
    def specs(self) -> dict[str, KernelSpec | str]:
        """Every kernel of ours by name, or why its specification cannot be read."""
        rows = [*self.rows, *(e.row for f in self.sweeps if f.sweep for e in f.sweep.entries)]
        found: dict[str, KernelSpec | str] = {}
        for row in rows:
            if row.kind == bench.OURS and row.spec and row.contender not in found:
                found[row.contender] = _spec(row.spec)
        return found


def _spec(fields: Mapping[str, object]) -> KernelSpec | str:
    try:
        return spec_from_json(json.dumps(dict(fields)))
    except GenError as error:
        return str(error)


def load(paths: Sequence[Path]) -> Report:
    """Reads the files and puts them together. Raises UsageError."""
    files: list[File] = []
    found: list[KernelProfile] = []
    compared: list[str] = []
    for path in paths:
        own = profiles.read(path) if path.is_file() else profiles.Profiles()
        found += own.kernels
        compared += own.comparison
        if gains.is_table(path):
            files += [File(path.name, results, None, found) for results, found in gains.read(path)]
        elif not own.kernels:
            files.append(_read(path))
    if not files:
        raise UsageError(f"{paths[0]} has counters only; add a file of gen bench or gen sweep")
    return replace(combine(files), profiles=found, comparison=compared)


def _read(path: Path) -> File:
    results = bench.load(path)
    return File(path.name, results, sweeps.parse(path.read_text(encoding="utf-8"), str(path)))


def _main(files: Sequence[File]) -> File:
    benchmarks = [file for file in files if file.sweep is None]
    on_gpus = [file for file in files if file.header.gpu != EMULATOR]
    return (benchmarks or on_gpus or files)[-1]


def combine(files: Sequence[File]) -> Report:
    """One report of several files: what two of them measured is also compared."""
    gpu = _main(files).header.gpu
    merged: dict[tuple[str, ...], Row] = {}
    pairs: dict[tuple[str, ...], Pair] = {}
    seen: dict[tuple[str, ...], Row] = {}
    for file in (f for f in files if f.sweep is None):
        for row in file.results.rows:
            before = seen.get(row.key)
            if before and before.ms_median and row.ms_median:
                pairs[row.key] = Pair(before, row)
            seen[row.key] = row
            if file.header.gpu == gpu:
                merged[row.key] = row
    swept = [f for f in files if f.sweep is not None]
    both = [
        SweepPair(a, b) for i, a in enumerate(swept) for b in swept[i + 1 :] if _comparable(a, b)
    ]
    superseded = {id(pair.before) for pair in both}
    kept = [f for f in swept if id(f) not in superseded]
    return Report(files, tuple(merged.values()), kept, tuple(pairs.values()), both)


def _comparable(a: File, b: File) -> bool:
    assert a.sweep
    assert b.sweep
    keys = [{(e.row.key) for e in s.entries} for s in (a.sweep, b.sweep)]
    timed = all(any(e.row.ms_median for e in s.entries) for s in (a.sweep, b.sweep))
    return list(a.sweep.axes) == list(b.sweep.axes) and timed and bool(keys[0] & keys[1])


# --- what follows


def intensity(row: Row) -> float:
    """FLOP per byte that has to be moved at least: A and B read, D written, once."""
    size = parse_size(row.shape)
    moved = sum(operand_bytes(size, DTYPES[row.dtype]))
    return flops(size) / moved if moved else 0.0


def by_problem(rows: Iterable[Row]) -> dict[Problem, list[Row]]:
    """Rows with a time, by what they solve, small problems first."""
    found: dict[Problem, list[Row]] = {}
    for row in rows:
        if row.ms_median:
            found.setdefault(row.problem, []).append(row)
    return dict(sorted(found.items(), key=lambda item: _order(item[0])))


def _order(problem: Problem) -> tuple[str, str, float, str]:
    dtype, layout, shape = problem
    return dtype, layout, flops(parse_size(shape)), shape


def family(row: Row) -> str:
    """What a row belongs to in plots and summaries: a variant of ours, a peer in any tile size."""
    if row.kind == bench.OURS and row.variant:
        return row.variant
    return re.split(r" \d+x\d+", row.contender)[0]


class Standing(NamedTuple):
    """Our best kernels against one peer, over the problems that both have solved."""

    peer: str
    dtype: str
    ratios: Sequence[float]  # the peer's time over ours

    @property
    def mean(self) -> float:
        """The geometric mean: above 1 we are faster."""
        return geometric_mean(self.ratios) or 0.0

    @property
    def wins(self) -> int:
        """Problems on which we are faster."""
        return sum(ratio > 1 for ratio in self.ratios)


def standings(rows: Iterable[Row]) -> list[Standing]:
    """One for each peer and element type."""
    ratios: dict[tuple[str, str], list[float]] = {}
    for (dtype, _, _), solved in by_problem(rows).items():
        ours = bench.fastest(bench.find(solved, kind=bench.OURS))
        best: dict[str, float] = {}
        for peer in bench.find(solved, kind=bench.PEER):
            name, ms = family(peer), peer.ms_median or 0.0
            best[name] = min(ms, best.get(name, ms))
        for name, ms in best.items() if ours and ours.ms_median else ():
            assert ours
            ratios.setdefault((name, dtype), []).append(ms / (ours.ms_median or 1.0))
    return [Standing(peer, dtype, values) for (peer, dtype), values in sorted(ratios.items())]


def typical_noise(rows: Iterable[Row]) -> float | None:
    """The median of the rows' noise."""
    known = [row.noise for row in rows if row.noise is not None]
    return statistics.median(known) if known else None
