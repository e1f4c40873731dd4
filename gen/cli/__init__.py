"""The entry point `gen`: runs a command and turns what it raises into one line and an exit code.

The commands are in `gen.cli.commands`. They are imported inside `main`, so that a missing
package, typer included, is one line too.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from gen.errors import GenError, MissingError

# What a shell reports for a program that SIGINT or SIGPIPE ended.
INTERRUPTED = 130
BROKEN_PIPE = 141


def main(args: Sequence[str] | None = None) -> int:
    """Runs `gen` with these arguments (sys.argv's by default) and returns its exit code."""
    warnings.showwarning = _show_warning  # without the code's line
    try:
        code = _run(sys.argv[1:] if args is None else args)
        sys.stdout.flush()
    except GenError as error:
        return _report(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has gone, as in `gen list | head -1`: say nothing, also not at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return code


def _run(args: Sequence[str]) -> int:
    try:
        from gen.cli.commands import run

        return run(args)
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module == "gen":
            raise
        from gen.doctor import requirement_for

        wanted = requirement_for(module)
        raise MissingError(
            f"the Python module '{error.name}' is missing; get it with: pip install '{wanted}'"
        ) from error
    except MemoryError:
        raise MissingError("not enough memory on this machine; use a smaller shape") from None


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"warning: {message}", file=sys.stderr)


def _report(error: GenError) -> int:
    print(f"error: {error}", file=sys.stderr)
    return error.exit_code
