"""`gen bench`."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gen.cli import bench_table
from gen.cli.options import (
    ALL,
    ARCH,
    LAYOUT,
    LIMIT,
    RESULTS,
    RESUME,
    VARIANT,
    measurable,
    of_types,
    select,
)
from gen.cli.progress import status
from gen.errors import UsageError
from gen.files import write
from gen.kernels.registry import VARIANTS, spec_from_json
from gen.kernels.tunables import Value
from gen.spec.arch import MULTIPROCESSORS
from gen.spec.dtypes import DTypes, parse_dtype
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmShape, Layouts, parse_layout

if TYPE_CHECKING:
    from gen.bench.device import MeasuredGpu
    from gen.bench.results import Results
    from gen.bench.run import Choice, Options

_QUICK_ROUNDS, _ROUNDS = 5, 11
_LONGEST_MS = 60_000  # before a sample
_DEFAULT_PEERS = "cublas,torch"
_DEFAULT_DTYPE = "f32"
_DEFAULT_ARCH = "sm_90a"  # of what is compiled without a GPU: what the peers are best on


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
    best: Annotated[
        int | None,
        typer.Option(
            "--best",
            metavar="N",
            min=1,
            help="For each shape, the first N of what gen choose ranks on this GPU.",
        ),
    ] = None,
    suite: Annotated[
        list[str] | None,
        typer.Option(
            "--suite",
            metavar="NAME",
            help="A list of shapes: seeds, squares, ladder, odd, splitk, llama, mnist, batched, "
            "grouped; "
            "default: seeds; repeatable.",
        ),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            "--shape",
            metavar="[Bx]MxNxK",
            help="Problem size, one number for a cube, a batch of B, or groups of L to M rows: "
            "GxL-MxNxK; repeatable.",
        ),
    ] = None,
    largest: Annotated[
        int | None,
        typer.Option("--largest", metavar="N", min=1, help="Leave out shapes with a longer side."),
    ] = None,
    dtype: Annotated[list[str] | None, of_types()] = None,
    layout: Annotated[list[str] | None, LAYOUT] = None,
    arch: Annotated[str | None, ARCH] = None,
    tokens: Annotated[
        str | None,
        typer.Option(
            "--tokens",
            metavar="RANGES",
            help="Of the suite llama, only these numbers of tokens, such as 1-8,64.",
        ),
    ] = None,
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
    limit: Annotated[float, LIMIT] = 10.0,
    rest: Annotated[
        float,
        typer.Option(
            "--rest",
            metavar="MS",
            min=0,
            max=_LONGEST_MS,
            help="Let the GPU rest so long before each sample.",
        ),
    ] = 0.0,
    settle: Annotated[
        float,
        typer.Option(
            "--settle",
            metavar="MS",
            min=0,
            max=_LONGEST_MS,
            help="Do the same work so long before each sample, beyond --limit.",
        ),
    ] = 0.0,
    compile_only: Annotated[
        bool,
        typer.Option(
            "--compile-only",
            help="Compile what measuring needs, and end; no GPU is needed.",
        ),
    ] = False,
    **tunables: int | None,
) -> None:
    from gen.bench import nvbench, run
    from gen.bench.device import MeasuredGpu
    from gen.bench.peers.table import parse_peers
    from gen.bench.results import FAILED, WRONG, check_place
    from gen.bench.sizes import products, several

    if resume and json is None:
        raise UsageError("--resume needs --json FILE, which has what was measured before")
    if json:
        check_place(json)
    # Kernels that are named one by one, or chosen, stand alone unless others are named, too.
    alone = spec or best
    named = variant or ([] if alone else [ALL] if dtype else _with_dtype(_DEFAULT_DTYPE))
    # f32 where all kernels are meant; its own first type for one that is named.
    dtypes = dtype or ([_DEFAULT_DTYPE] if ALL in named or not variant else None)
    shapes = _shapes(suite or [], shape or [], largest, tokens)
    given = {name: value for name, value in tunables.items() if value is not None}
    given_several = tunables.get("batched") is not None or _grouped(tunables)
    if not given_several and any(products(s) > 1 for s in shapes):
        tunables[several(shapes)] = True
    if tunables.get("grouped") and not (dtype or variant or spec):
        raise UsageError(f"no kernel has groups of {_DEFAULT_DTYPE}; use --dtype f16 or bf16")
    selected = select(named, dtypes, layout or ["rrr"], arch, tunables) if named else []
    options = run.Options(
        specs=[*map(spec_from_json, spec or []), *selected],
        shapes=shapes,
        peers=parse_peers(peers),
        rounds=_QUICK_ROUNDS if quick else _ROUNDS,
        limit_s=limit,
        rest_s=rest / 1000,
        settle_s=settle / 1000,
        nvbench=not quick and nvbench.installed(),
        chosen=_chosen(best, arch, given) if best else None,
        chosen_of=_pairs(dtype or [_DEFAULT_DTYPE], layout or ["rrr"]) if best else (),
    )
    if compile_only:
        _compile(options, arch)
        return
    gpu = MeasuredGpu()
    _say_what_is_missing(options, quick)
    so_far: list[Results] = []
    try:
        with status() as say:
            _measure(gpu, options, json, csv, resume, say, so_far)
    finally:  # also what was measured before an interruption
        if so_far and so_far[-1].rows:
            bench_table.show(so_far[-1], options)
    results = so_far[-1]
    if any(row.check in (WRONG, FAILED) for row in results.rows):
        raise typer.Exit(1)


def _pairs(dtypes: Sequence[str], layouts: Sequence[str]) -> list[tuple[DTypes, Layouts]]:
    return [(parse_dtype(d), parse_layout(one)) for d in dtypes for one in layouts]


def _chosen(most: int, arch: str | None, given: Mapping[str, Value]) -> Choice:
    """The first of the ranking, on the GPU that is here, or on one of `arch`."""
    from gen.bench.sizes import product, products, several
    from gen.cli.choose import present
    from gen.device.driver import why_no_gpu
    from gen.dispatch.choice import rank
    from gen.dispatch.folders import default
    from gen.dispatch.ranking import model_of

    here = why_no_gpu() is None
    model = present() if here else model_of(arch or _DEFAULT_ARCH, MULTIPROCESSORS)

    def choose(dtypes: DTypes, layouts: Layouts, shape: GemmShape) -> list[KernelSpec]:
        takes_one = products(shape) == 1 or _grouped(given)
        asked = given if takes_one else {**given, several([shape]): True}
        wanted = product(shape, dtypes, layouts)
        ranking = rank(wanted, model, arch or model.own_arch, asked, default())
        return [one.spec for one in ranking[:most]]

    return choose


def _with_dtype(dtype: str) -> list[str]:
    return [name for name, row in VARIANTS.items() if dtype in row.dtypes]


def _shapes(
    suites: Sequence[str], texts: Sequence[str], largest: int | None, tokens: str | None
) -> Sequence[GemmShape]:
    from gen.bench.sizes import parse_size
    from gen.bench.suites import LLAMA, of_tokens, suite

    names = suites or ([] if texts else ["seeds"])
    if tokens and LLAMA not in names:
        raise UsageError(f"--tokens {tokens} is for the suite {LLAMA}; add --suite {LLAMA}")
    found = [of_tokens(tokens) if tokens and name == LLAMA else suite(name) for name in names]
    shapes = [*(s for group in found for s in group), *map(parse_size, texts)]
    kept = [s for s in dict.fromkeys(shapes) if not largest or max(s.m, s.n, s.k) <= largest]
    if not kept:
        raise UsageError(f"no shape has sides of at most {largest}; use a larger --largest")
    return measurable(kept)


def _compile(options: Options, arch: str | None) -> None:
    """Compiles into the cache, for the GPU at hand or else for `arch`, and says how it went."""
    from gen.bench.admission import compile_ahead
    from gen.bench.device import MeasuredGpu
    from gen.bench.run import problems
    from gen.device.driver import why_no_gpu

    target = MeasuredGpu().arch if why_no_gpu() is None else arch or _DEFAULT_ARCH
    with status() as say:
        found = compile_ahead(target, problems(options), say)
    wrong = Counter(why for why in found.values() if why)
    for why, times in wrong.items():
        print(f"{times} of {len(found)}: {why}", file=sys.stderr)
    print(f"compiled {len(found) - wrong.total()} of {len(found)} kernels for {target}")
    if wrong:
        raise typer.Exit(1)


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
    from gen.bench.ratios import save
    from gen.bench.results import Results, load

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


def _grouped(tunables: Mapping[str, object]) -> bool:
    """Whether products of a batch are taken as groups."""
    return any(tunables.get(name) for name in ("grouped", "grouped_k"))
