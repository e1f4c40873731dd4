"""The commands of `gen`. Each one reads its options, calls what does the work, prints."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gen._version import __version__
from gen.cli import bench, check, emit, foreign, output, profile, sweep_report
from gen.cli.options import ALL, ARCH, DTYPE, JSON, LAYOUT, VARIANT, select, tunable_options
from gen.errors import SpecError, UsageError, unknown
from gen.kernels.registry import VARIANTS, retarget
from gen.kernels.tunables import Value
from gen.source.render import Source, read_source, render
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmShape, parse_shape

if TYPE_CHECKING:
    from gen.device.runner import Runner

FORMATS = ("ptx", "cubin")

EPILOG = """\b
Exit codes:
  0  right
  1  the check failed: a mismatch, a finding, source that does not compile
  2  bad usage or a bad specification
  3  the environment lacks something; the message says what and how to get it
"""

app = typer.Typer(
    help="Readable CUDA GEMM kernels: emit them, compile them, prove them with or without a GPU.",
    epilog=EPILOG,
    add_completion=False,
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run(args: Sequence[str]) -> int:
    """Runs one command and returns its exit code. Raises GenError for what went wrong."""
    command = typer.main.get_command(app)
    try:
        with command.make_context("gen", list(args)) as context:
            command.invoke(context)
    except typer.Exit as exit_:
        return exit_.exit_code
    except typer.TyperException as error:
        message = error.format_message().rstrip(".")
        raise UsageError(f"{message[:1].lower()}{message[1:]}; see gen --help") from None
    return 0


@app.callback()
def top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    cmake_dir: Annotated[
        bool, typer.Option("--cmake-dir", help="Print the folder for CMake's gemmgen_DIR.")
    ] = False,
) -> None:
    if version:
        print(f"gen {__version__}")
        raise typer.Exit
    if cmake_dir:
        from gen.source.cpp import cmake

        print(cmake.cmake_dir())
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


@app.command("list")
def list_(json: Annotated[bool, JSON] = False) -> None:
    """List the kernels."""
    from gen.cli import tables

    rows = list(VARIANTS.values())
    if json:
        tables.as_json([tables.variant_fields(row) for row in rows])
    else:
        tables.variants(rows)


app.command("emit")(tunable_options(emit.emit))


@app.command("compile")
@tunable_options
def compile_(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE.cu]", help="A file to compile as it is.")
    ] = None,
    variant: Annotated[list[str] | None, VARIANT] = None,
    dtype: Annotated[str | None, DTYPE] = None,
    layout: Annotated[str | None, LAYOUT] = None,
    arch: Annotated[str | None, ARCH] = None,
    format_: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="What -o gets: ptx or cubin.")
    ] = "ptx",
    output_: Annotated[str | None, emit.OUTPUT] = None,
    json: Annotated[bool, JSON] = False,
    **tunables: Value | None,
) -> None:
    """Compile kernels with NVRTC; report their resources."""
    if format_ not in FORMATS:
        raise unknown("format", format_, FORMATS)
    if file is None:
        dtypes = [dtype] if dtype else None
        specs = select(variant or [], dtypes, [layout or "rrr"], arch, tunables)
        sources = [render(spec) for spec in specs]
    elif variant or dtype or layout or any(value is not None for value in tunables.values()):
        raise UsageError(f"{file} is compiled as it is; leave out the options that choose one")
    else:
        sources = [read_source(file)]
    _compile(sources, arch, format_, output_, json)


def _compile(
    sources: Sequence[Source], arch: str | None, format: str, target: str | None, json: bool
) -> None:
    from gen.cli import tables
    from gen.compile.nvrtc import compile_cuda

    compiled, files = [], []
    with tables.progress("compiling", len(sources)) as step:
        for source in sources:
            chosen = arch or (source.spec.arch if source.spec else "sm_80")
            # Registers are allocated in a cubin; PTX has none.
            cubin = compile_cuda(source.text, name=source.filename, arch=chosen, format="cubin")
            compiled.append((source, cubin))
            if target is not None:
                code = cubin
                if format != "cubin":
                    code = compile_cuda(
                        source.text, name=source.filename, arch=chosen, format=format
                    )
                files.append((f"{source.name}.{format}", code.code))
            step()
    paths = output.write_all(files, target) if target is not None else []
    if target != output.STDOUT:
        tables.resources(compiled, paths, json)


@app.command()
@tunable_options
def verify(
    variant: Annotated[list[str] | None, VARIANT] = None,
    dtype: Annotated[
        list[str] | None,
        typer.Option("--dtype", metavar="TYPE", help="Element types; default: all; repeatable."),
    ] = None,
    layout: Annotated[list[str] | None, LAYOUT] = None,
    arch: Annotated[str | None, ARCH] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            "--shape",
            metavar="MxNxK",
            help="Problem size; default: sizes that reach every edge of a tile; repeatable.",
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            "--device", metavar="DEVICE", help="Where to run: auto, gpu, or cpu (the emulator)."
        ),
    ] = "auto",
    each: Annotated[bool, typer.Option("--each", help="Print a row for each shape.")] = False,
    json: Annotated[bool, JSON] = False,
    **tunables: Value | None,
) -> None:
    """Run kernels; compare with CUTLASS and an oracle."""
    specs = select(variant or [ALL], dtype or [], layout or ["rrr"], arch, tunables)
    shapes = [parse_shape(text) for text in shape] if shape else None
    if not _verify(specs, shapes, device, each or bool(shape), json):
        raise typer.Exit(1)


def _verify(
    specs: Sequence[KernelSpec],
    shapes: Sequence[GemmShape] | None,
    device: str,
    each: bool,
    json: bool,
) -> bool:
    from gen.cli import tables
    from gen.device.choose import choose_runner
    from gen.device.driver import why_no_gpu
    from gen.prove.verify import default_shapes
    from gen.prove.verify import verify as verify_kernel

    runner = choose_runner(device)
    reason = why_no_gpu() if device == "auto" else None
    print(f"device: {runner.name}" + (f" ({reason})" if reason else ""), file=sys.stderr)
    specs = _runnable(specs, runner)
    found = []
    with tables.progress("verifying", sum(len(shapes or default_shapes(s)) for s in specs)) as step:
        for spec in specs:
            results = []
            for result in verify_kernel(spec, runner, shapes):
                results.append(result)
                step()
            found.append(results)
    if json:
        tables.results_as_json(found, runner.name)
    else:
        tables.results(found, runner.name, each)
    return all(result.ok for results in found for result in results)


def _runnable(specs: Sequence[KernelSpec], runner: Runner) -> list[KernelSpec]:
    """The kernels that the device has the instructions and the memory for; notes on the others.

    Raises SpecError where there are none.
    """
    found, why = [], {}
    for spec in specs:
        try:
            retarget(spec, runner.target(spec.arch))
            found.append(spec)
        except SpecError as error:
            why[spec.variant, spec.dtypes.name] = error
    if why and not found:
        raise next(iter(why.values()))
    for (variant, dtype), reason in why.items():
        print(f"note: {variant} {dtype} is left out on {runner.name}: {reason}", file=sys.stderr)
    return found


app.command("check")(foreign.launch_options(tunable_options(check.check)))
app.command("run")(foreign.run)
app.command("profile")(foreign.launch_options(tunable_options(profile.profile), checked=False))
app.command("bench")(tunable_options(bench.bench))
app.command("ceiling")(bench.ceiling)
app.command("sweep")(tunable_options(sweep_report.sweep))
app.command("report")(sweep_report.report)


@app.command()
def doctor(json: Annotated[bool, JSON] = False) -> None:
    """Say what this machine has, what it lacks, and how to get that."""
    from gen.cli import tables
    from gen.doctor import examine

    checks = examine()
    tables.checks(checks, json)
    if any(check.status == "MISSING" for check in checks):
        raise typer.Exit(3)
