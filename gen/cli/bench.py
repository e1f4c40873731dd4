"""`gen bench` and `gen ceiling`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gen.cli.options import (
    ALL,
    ARCH,
    JSON,
    LAYOUT,
    RESULTS,
    RESUME,
    SHAPE,
    VARIANT,
    measurable,
    select,
)
from gen.errors import UsageError
from gen.files import write
from gen.kernels.registry import VARIANTS, spec_from_json
from gen.spec.dtypes import DTYPES
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmShape, parse_shape

if TYPE_CHECKING:
    from gen.bench.device import MeasuredGpu
    from gen.bench.results import Results, Row
    from gen.bench.run import Options

_QUICK_ROUNDS, _ROUNDS = 5, 11
_DEFAULT_PEERS = "cublas,torch"
_DEFAULT_DTYPE = "f32"


def bench(
    variant: Annotated[list[str] | None, VARIANT] = None,
    spec: Annotated[
        list[str] | None,
        typer.Option(
            "--spec",
            metavar="JSON",
            help="A kernel in full, as in the gen-spec line of an emitted file; repeatable.",
        ),
    ] = None,
    suite: Annotated[
        list[str] | None,
        typer.Option(
            "--suite",
            metavar="NAME",
            help="A list of shapes: seeds, squares, odd, splitk, llama, mnist; default: seeds; "
            "repeatable.",
        ),
    ] = None,
    shape: Annotated[list[str] | None, SHAPE] = None,
    largest: Annotated[
        int | None,
        typer.Option("--largest", metavar="N", min=1, help="Leave out shapes with a longer side."),
    ] = None,
    dtype: Annotated[
        list[str] | None,
        typer.Option(
            "--dtype", metavar="TYPE", help=f"Element types: {', '.join(DTYPES)}; repeatable."
        ),
    ] = None,
    layout: Annotated[list[str] | None, LAYOUT] = None,
    arch: Annotated[str | None, ARCH] = None,
    peers: Annotated[
        str,
        typer.Option(
            "--peers",
            metavar="NAMES",
            help="Some of cublas, cutlass, cutlass3, torch, triton, with commas; or all; or none.",
        ),
    ] = _DEFAULT_PEERS,
    json: Annotated[Path | None, RESULTS] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Keep them here as a table, too.")
    ] = None,
    resume: Annotated[bool, RESUME] = False,
    quick: Annotated[
        bool,
        typer.Option("--quick", help=f"Take {_QUICK_ROUNDS} rounds, not {_ROUNDS}; no NVBench."),
    ] = False,
    limit: Annotated[
        float,
        typer.Option(
            "--limit",
            metavar="SECONDS",
            min=0.01,
            help="Time a kernel on a shape for at most so long.",
        ),
    ] = 10.0,
    rest: Annotated[
        float,
        typer.Option(
            "--rest", metavar="MS", min=0, help="Let the GPU rest so long before each sample."
        ),
    ] = 0.0,
    **tunables: int | None,
) -> None:
    """Measure kernels and their peers on the GPU."""
    from gen.bench import nvbench, run
    from gen.bench.device import MeasuredGpu
    from gen.bench.peers.table import parse_peers
    from gen.bench.results import FAILED, WRONG, check_place

    if resume and json is None:
        raise UsageError("--resume needs --json FILE, which has what was measured before")
    if json:
        check_place(json)
    # Kernels that are named one by one stand alone, unless others are named, too.
    named = variant or ([] if spec else [ALL] if dtype else _with_dtype(_DEFAULT_DTYPE))
    # f32 where all kernels are meant; its own first type for one that is named.
    dtypes = dtype or ([_DEFAULT_DTYPE] if ALL in named or not variant else None)
    selected = select(named, dtypes, layout or ["rrr"], arch, tunables) if named else []
    options = run.Options(
        specs=[*map(spec_from_json, spec or []), *selected],
        shapes=_shapes(suite or [], shape or [], largest),
        peers=parse_peers(peers),
        rounds=_QUICK_ROUNDS if quick else _ROUNDS,
        limit_s=limit,
        rest_s=rest / 1000,
        nvbench=not quick and nvbench.installed(),
    )
    gpu = MeasuredGpu()
    _say_what_is_missing(options, quick)
    so_far: list[Results] = []
    try:
        with _status() as say:
            _measure(gpu, options, json, csv, resume, say, so_far)
    finally:  # also what was measured before an interruption
        if so_far and so_far[-1].rows:
            _print(so_far[-1], options)
    results = so_far[-1]
    if any(row.check in (WRONG, FAILED) for row in results.rows):
        raise typer.Exit(1)


def _with_dtype(dtype: str) -> list[str]:
    return [name for name, row in VARIANTS.items() if dtype in row.dtypes]


def _shapes(
    suites: Sequence[str], texts: Sequence[str], largest: int | None
) -> Sequence[GemmShape]:
    from gen.bench.suites import suite

    names = suites or ([] if texts else ["seeds"])
    shapes = [*(s for name in names for s in suite(name)), *map(parse_shape, texts)]
    kept = [s for s in dict.fromkeys(shapes) if not largest or max(s.m, s.n, s.k) <= largest]
    if not kept:
        raise UsageError(f"no shape has sides of at most {largest}; use a larger --largest")
    return measurable(kept)


def _say_what_is_missing(options: Options, quick: bool) -> None:
    from gen.bench import nvbench
    from gen.bench.peers import table

    for name, how in table.missing(options.peers).items():
        print(f"note: {name} is not installed and not measured; {how}", file=sys.stderr)
    if not quick and not nvbench.installed():
        print(
            f"note: NVBench is not installed: no cold and batched times; {nvbench.GET}",
            file=sys.stderr,
        )


def _measure(
    gpu: MeasuredGpu,
    options: Options,
    json: Path | None,
    csv: Path | None,
    resume: bool,
    say: Callable[[str], object],
    kept: list[Results],
) -> None:
    """Measures; `kept` has everything so far."""
    from gen.bench import run
    from gen.bench.ceiling import ceilings
    from gen.bench.results import Results, load, save

    found = ceilings(gpu, step=lambda name: say(f"ceiling of {name}"))
    now = run.header(gpu, shlex.join(["gen", *sys.argv[1:]]), found)
    results = Results(now)
    if resume and json and json.exists():
        results = run.resumable(load(json), now, str(json))

    def keep(so_far: Results) -> None:
        kept[:] = [so_far]
        if json:
            save(so_far, json)
        if csv:
            write(so_far.to_csv().encode(), csv)

    keep(results)  # a place that cannot be written shows now, not after an hour
    keep(run.bench(gpu, options, results, keep, say))


@contextmanager
def _status() -> Iterator[Callable[[str], object]]:
    """A line on standard error that says what happens now; in a pipe, one line after another."""
    if not sys.stderr.isatty():
        yield lambda text: print(text, file=sys.stderr, flush=True)
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield status.update


_HEADERS = (
    "shape", "dtype", "layout", "contender", "time", "+-", "by", "TFLOP/s", "of ceiling", "GB/s",
    "of copy", "workspace", "cold", "check",
)  # fmt: skip
_RIGHT = ("time", "+-", "TFLOP/s", "of ceiling", "GB/s", "of copy", "workspace", "cold")


def _print(results: Results, options: Options) -> None:
    from gen.cli import tables

    asked = {str(shape) for shape in options.shapes}
    rows = [row for row in results.rows if row.shape in asked]
    order = {problem: i for i, problem in enumerate(dict.fromkeys(row.problem for row in rows))}
    rows.sort(key=lambda row: (order[row.problem], _milliseconds(row)))
    tables.table(_HEADERS, [_cells(row, options.specs) for row in rows], right=_RIGHT)
    for (contender, check, note), where in _notes(rows).items():
        shapes = where[0] if len(where) == 1 else f"{len(where)} shapes"
        print(f"{contender} on {shapes}: {check}: {note}")
    header = results.header
    clocks = ", ".join(f"{name} {_mhz(value)} MHz" for name, value in header.clocks.items())
    print(f"{header.gpu}, driver {header.driver}; clocks seen: {clocks or 'unknown'}")


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


def _cells(row: Row, specs: Sequence[KernelSpec]) -> list[str]:
    from gen.cli import tables

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


def ceiling(
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure again what was measured before.")
    ] = False,
    json: Annotated[bool, JSON] = False,
) -> None:
    """Measure what the GPU can do at best."""
    from gen.bench.ceiling import COPY, L2, ceilings
    from gen.bench.device import MeasuredGpu
    from gen.cli import tables

    gpu = MeasuredGpu()
    with _status() as say:
        found = ceilings(gpu, fresh, say)
    if json:
        tables.as_json({"gpu": gpu.name, "driver": gpu.driver_version(), "ceilings": found})
        return
    units = {COPY: "GB/s", L2: "GB/s"}
    rows = [
        (name, f"{value:.1f}" if value < 1000 else f"{value:.0f}", units.get(name, _unit(name)))
        for name, value in found.items()
    ]
    tables.table(("ceiling", "rate", "unit"), rows, right=("rate",))
    print(f"{gpu.name}, driver {gpu.driver_version()}")


def _unit(name: str) -> str:
    return "TOP/s" if name.endswith(("i32", "dp4a")) else "TFLOP/s"
