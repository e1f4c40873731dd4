"""`gen bench` as a function: problems one after another, contenders in turns, rows as they come."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gen.bench import nvbench, timing
from gen.bench.admission import admit_all, compile_ahead
from gen.bench.ceiling import COPY
from gen.bench.contenders import Contender, Ours, Prepared, launcher
from gen.bench.device import ClockWatch, MeasuredGpu, versions
from gen.bench.instructions import on_cuda_cores
from gen.bench.peers import table
from gen.bench.problem import Problem
from gen.bench.results import ABSENT, NO_MEMORY, Header, Results, Row
from gen.bench.sizes import Grouped
from gen.bench.work import Work
from gen.device.driver import OutOfMemory
from gen.errors import UsageError
from gen.spec.dtypes import DTypes
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmShape, Layouts

Choice = Callable[[DTypes, Layouts, GemmShape], Sequence[KernelSpec]]


@dataclass(frozen=True)
class Options:
    """What to measure, and how long at most (`limit_s` seconds a contender on a problem).

    specs: measured on all shapes. chosen: what is measured besides on each shape, for these types
    and layouts. rest_s: seconds that the GPU rests before each sample; settle_s: that it does the
    same work before.
    """

    specs: Sequence[KernelSpec]
    shapes: Sequence[GemmShape]
    peers: Sequence[str] = ()
    rounds: int = 11
    limit_s: float = 10.0
    rest_s: float = 0.0
    settle_s: float = 0.0
    nvbench: bool = True
    chosen: Choice | None = None
    chosen_of: Sequence[tuple[DTypes, Layouts]] = ()


def problems(options: Options, done: Sequence[Row] = ()) -> list[Problem]:
    """What is left to measure, in order: each group of types and layouts, each shape."""
    groups: dict[tuple[DTypes, Layouts], list[KernelSpec]] = {}
    for spec in options.specs:
        groups.setdefault((spec.dtypes, spec.layouts), []).append(spec)
    for pair in options.chosen_of:
        groups.setdefault(pair, [])
    measured = {row.key for row in done}
    found = []
    for (dtypes, layouts), specs in groups.items():
        peers = table.peers(options.peers, dtypes)
        for shape in options.shapes:
            choose = options.chosen if (dtypes, layouts) in options.chosen_of else None
            every = dict.fromkeys((*specs, *(choose(dtypes, layouts, shape) if choose else ())))
            ours: list[Contender] = [Ours(spec) for spec in every]
            grouped = isinstance(shape, Grouped)
            all_ = [*ours, *(peer for peer in peers if grouped or not peer.only_groups)]
            whole = Problem(dtypes, layouts, shape, all_)
            left = [c for c in all_ if whole.row(c).key not in measured]
            if left:
                found.append(replace(whole, contenders=left))
    return found


def header(gpu: MeasuredGpu, command: str, ceilings: Mapping[str, float]) -> Header:
    """What is known of a run before its first result."""
    now = datetime.datetime.now(datetime.timezone.utc).astimezone()
    return Header(
        gpu=gpu.name,
        arch=gpu.arch,
        driver=gpu.driver_version(),
        date=now.isoformat(timespec="seconds"),
        command=command,
        uuid=gpu.uuid,
        versions=versions(),
        ceilings=dict(ceilings),
    )


def resumable(done: Results, now: Header, where: str) -> Results:
    """The results to go on from, without rows of peers that have been installed since.

    Raises UsageError where they are of another GPU or driver.
    """
    for name in ("gpu", "driver"):
        theirs, ours = getattr(done.header, name), getattr(now, name)
        if theirs != ours:
            raise UsageError(
                f"{where} was measured with the {name} {theirs}, this is {ours}; "
                "leave out --resume and write to another file"
            )
    absent = [row.contender for row in done.rows if row.check == ABSENT]
    found = set(absent) - set(table.missing(absent))
    kept = (row for row in done.rows if row.check != ABSENT or row.contender not in found)
    return replace(done, rows=tuple(kept))


def bench(
    gpu: MeasuredGpu,
    options: Options,
    results: Results,
    keep: Callable[[Results], object] = lambda _: None,
    say: Callable[[str], object] = lambda _: None,
) -> Results:
    """Measures what `results` lacks; returns all of it, with the clocks seen.

    `keep` gets everything after each problem, so that it can be written down; `say` is told what
    is being measured.
    """
    watch = ClockWatch()
    left = problems(options, results.rows)
    compile_ahead(gpu.arch, left, say)
    for problem in left:
        try:
            for row in measure(gpu, problem, options, watch, say):
                results = results.with_row(_with_shares(row, problem, results.header.ceilings))
        finally:
            results = replace(results, header=_with_clocks(results.header, watch))
            keep(results)
        if options.nvbench:
            results = _with_nvbench(problem, options, results, say)
            keep(results)
    return results


def measure(
    gpu: MeasuredGpu,
    problem: Problem,
    options: Options,
    watch: ClockWatch,
    say: Callable[[str], object] = lambda _: None,
) -> Iterator[Row]:
    """A row for each contender; only those whose result is right have times.

    Raises GpuLost after the row of a kernel that failed while it ran.
    """
    say(f"{problem}: operands")
    try:
        work = Work(gpu, problem.dtypes, problem.layouts, problem.shape)
    except OutOfMemory as error:
        for contender in problem.contenders:
            yield replace(problem.row(contender), check=NO_MEMORY, note=str(error))
        return
    try:
        ready: dict[str, tuple[Row, Prepared]] = {}
        try:
            with work.provable():
                yield from admit_all(problem, work, options.limit_s, ready, say)
            say(f"{problem}: measuring {len(ready)} contenders in turns")
            yield from _time(gpu, work, ready, options, watch)
        finally:
            for _, prepared in ready.values():
                prepared.close()
    finally:
        work.close()


def _time(
    gpu: MeasuredGpu,
    work: Work,
    ready: Mapping[str, tuple[Row, Prepared]],
    options: Options,
    watch: ClockWatch,
) -> Iterator[Row]:
    plans, samplers = {}, {}
    for name, (_, prepared) in ready.items():
        launch = launcher(work, prepared.queue)
        kernels = prepared.launches
        ms = timing.estimate(gpu, launch, kernels)
        plans[name] = timing.plan(ms, work.sets, options.rounds, options.limit_s, kernels)
        samplers[name] = timing.launch_sampler(gpu, launch, plans[name])
    samples = timing.interleave(
        samplers, lambda: watch.saw(gpu.clocks()), options.rest_s, options.settle_s
    )
    for name, (row, _) in ready.items():
        found, chosen = timing.summarize(samples[name]), plans[name]
        yield replace(
            row,
            ms_median=found.median,
            ms_spread=found.spread,
            noise=found.noise,
            rounds=chosen.rounds,
            launches=chosen.launches,
            method=chosen.method,
            tflops=work.flops / found.median / 1e9,
            gbps=work.bytes / found.median / 1e6,
            note="; ".join(filter(None, (row.note, chosen.note))),
        )


def _with_shares(row: Row, problem: Problem, ceilings: Mapping[str, float]) -> Row:
    """The row with its shares of what the GPU can do, where that is known."""
    shares: dict[str, float] = {}
    if row.gbps is not None and COPY in ceilings:
        shares["share_of_bandwidth"] = row.gbps / ceilings[COPY]
    contender = next(c for c in problem.contenders if c.name == row.contender)
    ceiling = contender.ceiling(problem.dtypes, ceilings) if row.tflops is not None else ""
    if row.tflops is not None and ceiling in ceilings:
        # Where elements are multiplied in parts, an instruction makes one of several products.
        each = 1 if ceiling == on_cuda_cores(problem.dtypes) else problem.dtypes.products
        shares["share_of_ceiling"] = each * row.tflops / ceilings[ceiling]
        row = replace(row, ceiling=ceiling)
    return replace(row, **shares)  # type: ignore[arg-type]


def _with_clocks(now: Header, watch: ClockWatch) -> Header:
    seen = watch.summary()
    bounds = [*now.clocks.get("sm", []), *seen.get("sm", [])]
    if bounds:
        seen["sm"] = [min(bounds), max(bounds)]
    return replace(now, clocks={**now.clocks, **seen})


def _with_nvbench(
    problem: Problem, options: Options, results: Results, say: Callable[[str], object]
) -> Results:
    """The results with NVBench's times of our kernels on a problem."""
    rows = {row.key: row for row in results.rows}
    fit = {}
    for contender in problem.contenders:
        row = rows[problem.row(contender).key]
        # NVBench makes some launches before it looks at the clock.
        if row.ms_median is None or row.ms_median > options.limit_s * 1e3 / 10:
            continue
        if contender.spec:
            fit[contender.name] = (contender.spec, row)
    if not fit:
        return results
    say(f"{problem}: NVBench on {len(fit)} kernels")
    times, problem_message = nvbench.measure(
        [spec for spec, _ in fit.values()], problem.shape, options.limit_s
    )
    if problem_message:
        say(problem_message)
    for name, (_, row) in fit.items():
        if name in times:
            t = times[name]
            results = results.with_row(
                replace(row, cold_ms=t.cold_ms, cold_noise=t.cold_noise, batch_ms=t.batch_ms)
            )
    return results
