"""The commands of `gen`. Each one reads its options, calls what does the work, prints."""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import copy
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption
from typer.models import CommandInfo

from gen._version import __version__
from gen.cli import (
    bench,
    ceiling,
    check,
    choose,
    compile_table,
    emit,
    list_table,
    output,
    profile,
    sweep_report,
    tune,
    verify,
)
from gen.cli.annotations import OPTION as ANNOTATIONS
from gen.cli.annotations import Annotations
from gen.cli.foreign.command import launch_options
from gen.cli.foreign.run import run as run_any
from gen.cli.options import ARCH, DTYPE, JSON, LAYOUT, VARIANT, sources, tunable_options
from gen.cli.progress import progress
from gen.cli.tables import as_json, table
from gen.errors import UsageError, unknown
from gen.kernels.registry import VARIANTS, get_variant
from gen.kernels.tunables import Value
from gen.source.render import Source

FORMATS = ("ptx", "cubin")

COMPLETION = "_GEN_COMPLETE"

EPILOG = """\b
Exit codes:
  0  right
  1  the check failed: a mismatch, a finding, source that does not compile
  2  bad usage or a bad specification
  3  the environment lacks something; the message says what and how to get it
"""


class Command(TyperCommand):
    """Refuses an option that has one value and is there twice: it would drop the first."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments that are left; `ctx` then has the parameters."""
        order = self.make_parser(ctx).parse_args(list(args))[2]
        for option in order:
            single = isinstance(option, TyperOption) and not (option.multiple or option.is_flag)
            if single and order.count(option) > 1:
                raise UsageError(f"{option.opts[-1]} is there twice, and takes one value; give one")
        return super().parse_args(ctx, args)


app = typer.Typer(
    help="Readable CUDA GEMM kernels: emit them, compile them, prove them with or without a GPU.",
    epilog=EPILOG,
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
command = partial(app.command, cls=Command)


def _called(own: CommandInfo) -> str:
    assert own.callback
    return own.name or typer.main.get_command_name(own.callback.__name__)


@cache  # it takes longer than most commands
def _group(name: str) -> Any:
    """The command of that name alone; all of them, as help has them, where none has it."""
    own = copy(app)
    own.registered_commands = [c for c in app.registered_commands if _called(c) == name]
    return typer.main.get_command(own if own.registered_commands else app)


def run(args: Sequence[str]) -> int:
    """Runs one command and returns its exit code. Raises GenError for what went wrong."""
    group = _group(args[0] if args and COMPLETION not in os.environ else "")
    if COMPLETION in os.environ:  # a shell asks, as --show-completion has told it
        group.main(list(args), prog_name="gen", complete_var=COMPLETION)
    try:
        with group.make_context("gen", list(args)) as context:
            group.invoke(context)
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
        print(f"gemmgen {__version__}")
        raise typer.Exit
    if cmake_dir:
        from gen.source.cpp import installed

        print(installed.cmake_dir())
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


def example(text: str) -> str:
    """What stands at the end of a command's help."""
    return f"Example:  gen {text}"


@command("list", epilog=example("list mma"))
def list_(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A kernel, to see all about it.")
    ] = None,
    json: Annotated[bool, JSON] = False,
) -> None:
    """List the kernels, or say all about one."""

    rows = [get_variant(name)] if name else list(VARIANTS.values())
    if json:
        as_json([list_table.variant_fields(row) for row in rows])
    elif name:
        list_table.variant(rows[0])
    else:
        list_table.variants(rows)


command("choose", epilog=example("choose --shape 4096x11008x4096 --dtype f16 --gpu h200"))(
    tunable_options(choose.choose)
)


command("emit", epilog=example("emit --variant tiles --tile 16 --header -o gemm/"))(
    tunable_options(emit.emit)
)


@command("compile", epilog=example("compile --variant mma --arch sm_90"))
@tunable_options
def compile_(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE.cu]...", help="Files to compile as they are."),
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
    annotations: Annotated[str | None, ANNOTATIONS] = None,
    **tunables: Value | None,
) -> None:
    """Compile kernels with NVRTC; report their resources."""
    if format_ not in FORMATS:
        raise unknown("format", format_, FORMATS)
    notes = Annotations(annotations, json)
    dtypes, layouts = [dtype] if dtype else None, [layout] if layout else None
    found = sources(files, variant, dtypes, layouts, arch, tunables)
    with notes.of_compiler():
        _compile(found, arch, format_, output_, json)


def _compile(
    sources: Sequence[Source], arch: str | None, format: str, target: str | None, json: bool
) -> None:
    from gen.compile.log import refuse_serialized
    from gen.compile.nvrtc import compile_cuda

    compiled, files = [], []
    with progress("compiling", len(sources)) as step:
        for source in sources:
            step.now(f"compiling {source.name}")
            chosen = arch or (source.spec.arch if source.spec else "sm_80")
            # Registers are allocated in a cubin; PTX has none.
            cubin = compile_cuda(source.text, name=source.place, arch=chosen, format="cubin")
            refuse_serialized(source.place, cubin.log)
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
        compile_table.resources(compiled, paths, json)


for _name, _command, _example in (
    ("verify", tunable_options(verify.verify), "verify --variant tiles --dtype f32"),
    ("check", launch_options(tunable_options(check.check)), "check gemm.cu --first"),
    ("run", run_any, "run scale.cu --grid 4 --block 256 --arg x=f32[1024]:random --arg n=1024"),
    (
        "profile",
        launch_options(tunable_options(profile.profile), checked=False),
        "profile --variant naive --variant tiles --shape 512",
    ),
    ("bench", tunable_options(bench.bench), "bench --variant mma --shape 4096 --peers cublas"),
    ("ceiling", ceiling.ceiling, "ceiling --json"),
    (
        "sweep",
        tunable_options(sweep_report.sweep),
        "sweep --variant tiles --axis tile=8,16,32 --shape 512 --json tiles.json",
    ),
    ("tune", tune.tune, "tune --shape 4096x11008x4096 --dtype f16 --layout rcr"),
    ("report", sweep_report.report, "report tiles.json -o report.html"),
):
    command(_name, epilog=example(_example))(_command)


@command("cmake", hidden=True)
def cmake_(
    calls: Annotated[Path | None, typer.Argument(metavar="[CALLS]")] = None,
) -> None:
    """For GenKernels.cmake: what each call makes; without calls, what all of it depends on."""
    from gen.source.cpp import cmake, installed

    if calls is None:
        for path in (*installed.decisive_folders(), installed.nvrtc_library() or "NOTFOUND"):
            print(path)
        return
    for line in calls.read_text(encoding="utf-8").splitlines():
        print(cmake.answer(cmake.Call.read(line)))


@command(epilog=example("doctor --json"))
def doctor(json: Annotated[bool, JSON] = False) -> None:
    """Say what this machine has, what it lacks, and how to get that."""
    from gen.doctor import examine

    found = examine()
    missing = any(check.status == "MISSING" for check in found)
    if json:
        as_json({"ok": not missing, "checks": [asdict(check) for check in found]})
    else:
        table(("", "status", "found"), [(c.name, c.status, c.found) for c in found])
        for check in found:
            if check.fix:
                print(f"{check.name}: {check.fix}")
    if missing:
        raise typer.Exit(3)
