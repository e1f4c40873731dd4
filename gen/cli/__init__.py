"""The entry point `gen`: runs a command and turns what it raises into one line and an exit code.

The commands are in `gen.cli.commands`. They are imported inside `main`, so that a missing
package, typer included, is one line too.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from gen.errors import GenError, MissingError, UsageError
from gen.requirements import COMPILING, EMITTING, PROVING, RUNNING, lacking, requirement_for

# What commands need beyond what `gen list` does; of `gen emit`, only --embed.
NEEDS = {
    "emit": COMPILING,
    "compile": COMPILING,
    "check": PROVING,
    "verify": PROVING,
    "run": RUNNING,
    "profile": RUNNING,
    "bench": PROVING,
    "ceiling": RUNNING,
    "sweep": RUNNING,
    "tune": PROVING,
}

# What a shell reports for a program that SIGINT or SIGPIPE ended.
INTERRUPTED = 130
BROKEN_PIPE = 141


def main(args: Sequence[str] | None = None) -> int:
    """Runs `gen` with these arguments (sys.argv's by default) and returns its exit code."""
    warnings.showwarning = _shown_once()
    if sys.stderr is None:  # closed: print would take standard output
        sys.stderr = io.StringIO()
    for stream in (sys.stdout, sys.stderr):  # which may know ASCII alone, and names have more
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        if sys.stdout is None:
            raise UsageError("standard output is closed; use >/dev/null to see nothing")
        code = _run(sys.argv[1:] if args is None else args)
        sys.stdout.flush()
    except GenError as error:
        return _report(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has gone, as in `gen list | head -1`: say nothing, also not at exit.
        _drop_output()
        return BROKEN_PIPE
    except OSError as error:
        # Files are written and read where errors are caught; what has no name is standard output.
        if error.filename is None:
            _drop_output()
        place = error.filename or "standard output"
        return _report(UsageError(f"cannot use {place}: {error.strerror}; choose another place"))
    return code


def _drop_output() -> None:
    """What standard output has not taken, it is not given again at exit."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(args: Sequence[str]) -> int:
    try:
        from gen.cli.commands import run

        return run(args)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "gen":
            raise
        command = next((word for word in args if not word.startswith("-")), "")
        needs = NEEDS.get(command, ())
        if requirement_for(error.name or "") not in needs:  # what every command needs
            needs = EMITTING
        raise lacking(f"gen {command}".rstrip(), needs, error) from error
    except MemoryError:
        raise MissingError("not enough memory on this machine; use a smaller shape") from None


def _shown_once() -> Callable[..., None]:
    """What shows warnings: without the code's line, and the same of several processes once."""
    shown = set[str]()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            print(f"warning: {message}", file=sys.stderr)

    return show


def _report(error: GenError) -> int:
    with suppress(OSError):  # the exit code tells it, too
        print(f"error: {error}", file=sys.stderr, flush=True)
    return error.exit_code
