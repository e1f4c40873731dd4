"""The commands of `gen`. Each one reads its options, calls what does the work, prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from gen._version import __version__
from gen.cli import bench, check, emit, foreign, output, profile, sweep_report, verify
from gen.cli.options import ARCH, DTYPE, JSON, LAYOUT, VARIANT, select, tunable_options
from gen.errors import UsageError, unknown
from gen.kernels.registry import VARIANTS
from gen.kernels.tunables import Value
from gen.source.render import Source, read_source, render

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
            cubin = compile_cuda(source.text, name=source.place, arch=chosen, format="cubin")
            if not cubin.resources:
                raise UsageError(
                    f"{source.place} has no kernel: nothing in it is __global__, or it is a "
                    "template that nothing instantiates; name a file that has one"
                )
            compiled.append((source, cubin))
            if target is not None:
                code = cubin
                if format != "cubin":
                    code = compile_cuda(source.text, name=source.place, arch=chosen, format=format)
                files.append((f"{source.name}.{format}", code.code))
            step()
    paths = output.write_all(files, target) if target is not None else []
    if target != output.STDOUT:
        tables.resources(compiled, paths, json)


app.command("verify")(tunable_options(verify.verify))
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
