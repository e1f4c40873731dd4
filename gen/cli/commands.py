"""The commands of `gen`: name, help and example of each, and where its function is.

What a command imports takes longer than most commands run, so each imports its own alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any

import typer

from gen._version import __version__
from gen.cli.lazy import Group, LazyCommand
from gen.errors import UsageError

COMPLETION = "_GEN_COMPLETE"

EPILOG = """\b
Exit codes:
  0  right
  1  the check failed: a mismatch, a finding, source that does not compile
  2  bad usage or a bad specification
  3  the environment lacks something; the message says what and how to get it
"""

Function = Callable[..., None]

app = typer.Typer(
    cls=Group,
    help="Readable CUDA GEMM kernels: emit them, compile them, prove them with or without a GPU.",
    epilog=EPILOG,
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@cache
def _group() -> Any:
    return typer.main.get_command(app)


def run(args: Sequence[str]) -> int:
    """Runs one command and returns its exit code. Raises GenError for what went wrong."""
    group = _group()
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


def command(name: str, example: str) -> Callable[[Callable[[], Function]], Any]:
    """Registers a command by what imports its function; the docstring is the command's help."""
    return app.command(name, cls=LazyCommand, epilog=f"Example:  gen {example}")


@command("list", "list mma")
def list_() -> Function:
    """List the kernels, or say all about one."""
    from gen.cli.list import list_

    return list_


@command("choose", "choose --shape 4096x11008x4096 --dtype f16 --gpu h200")
def choose() -> Function:
    """Rank the kernels for a problem on a GPU, by a cost model; nothing is run."""
    from gen.cli.choose import choose
    from gen.cli.options import tunable_options

    return tunable_options(choose)


@command("emit", "emit --variant tiles --tile 16 --header -o gemm/")
def emit() -> Function:
    """Write kernels as CUDA source; print the paths."""
    from gen.cli.emit import emit
    from gen.cli.options import tunable_options

    return tunable_options(emit)


@command("compile", "compile --variant mma --arch sm_90")
def compile() -> Function:
    """Compile kernels with NVRTC; report their resources."""
    from gen.cli.compile import compile
    from gen.cli.options import tunable_options

    return tunable_options(compile)


@command("verify", "verify --variant tiles --dtype f32")
def verify() -> Function:
    """Run kernels; compare with CUTLASS and an oracle."""
    from gen.cli.options import tunable_options
    from gen.cli.verify import verify

    return tunable_options(verify)


@command("check", "check gemm.cu --first")
def check() -> Function:
    """Find races, bad accesses and wrong results, on the emulator."""
    from gen.cli.check import check
    from gen.cli.foreign.command import launch_options
    from gen.cli.options import tunable_options

    return launch_options(tunable_options(check))


@command("run", "run scale.cu --grid 4 --block 256 --arg x=f32[1024]:random --arg n=1024")
def run_any() -> Function:
    """Run any kernel on the emulator; print or save what it computes."""
    from gen.cli.foreign.run import run

    return run


@command("profile", "profile --variant naive --variant tiles --shape 512")
def profile() -> Function:
    """Count what kernels do to memory, line by line, without a GPU."""
    from gen.cli.foreign.command import launch_options
    from gen.cli.options import tunable_options
    from gen.cli.profile import profile

    return launch_options(tunable_options(profile), checked=False)


@command("bench", "bench --variant mma --shape 4096 --peers cublas")
def bench() -> Function:
    """Measure kernels and their peers on the GPU."""
    from gen.cli.bench import bench
    from gen.cli.options import tunable_options

    return tunable_options(bench)


@command("ceiling", "ceiling --json")
def ceiling() -> Function:
    """Measure what the GPU can do at best."""
    from gen.cli.ceiling import ceiling

    return ceiling


@command("sweep", "sweep --variant tiles --axis tile=8,16,32 --shape 512 --json tiles.json")
def sweep() -> Function:
    """Measure kernels over values of their tunables."""
    from gen.cli.options import tunable_options
    from gen.cli.sweep_report import sweep

    return tunable_options(sweep)


@command("tune", "tune --shape 4096x11008x4096 --dtype f16 --layout rcr")
def tune() -> Function:
    """Find the fastest kernel for a problem on the GPU, and keep its time for every choice."""
    from gen.cli.tune import tune

    return tune


@command("report", "report tiles.json -o report.html")
def report() -> Function:
    """Make one file of results: tables, plots, sources."""
    from gen.cli.sweep_report import report

    return report


@app.command("cmake", cls=LazyCommand, hidden=True)
def cmake() -> Function:
    """For GenKernels.cmake: what each call makes; without calls, what all of it depends on."""
    from gen.cli.cmake import answer

    return answer


@command("doctor", "doctor --json")
def doctor() -> Function:
    """Say what this machine has, what it lacks, and how to get that."""
    from gen.cli.doctor import doctor

    return doctor
