"""The one family of exceptions, each with the exit code that the CLI returns for it.

A message names the rule, the values and the way out, in one line::

    threadblock.m=96 is not a multiple of warp.m=64; use 64 or 128
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class GenError(Exception):
    """Base of every error that `gen` raises on purpose."""

    exit_code = 2


class UsageError(GenError):
    """What was asked for does not exist or makes no sense (exit code 2)."""


class SpecError(GenError):
    """A kernel specification or a problem breaks a rule (exit code 2)."""


class CheckError(GenError):
    """A check ran and failed: a mismatch, a finding, source that does not compile (exit code 1)."""

    exit_code = 1


class BudgetError(CheckError):
    """A kernel ran more instructions, or longer, than it was given (exit code 1).

    `findings` are those of the launch so far.
    """

    findings: Sequence[Any] = ()


class PtxError(CheckError):
    """The emulator does not know an instruction of a kernel, or cannot read it (exit code 1)."""


class CompileError(CheckError):
    """The compiler refused a source; `log` holds its messages (exit code 1)."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class MissingError(GenError):
    """The environment lacks something; the message says what and how to get it (exit code 3)."""

    exit_code = 3


_DEVICE = re.compile(r"--device (\w+)")
_OPTION = re.compile(
    r"--(arg|tool|kernel|grid|block|dynamic-shared|budget|time|include|define|std)\b"
)
_PYTHON = {"arg": "args", "tool": "tools"}


def command_words(error: CheckError) -> str:
    """What an error of the emulator says, with the command's way out."""
    text = str(error).replace("raise instruction_budget", "use a larger --budget")
    text = text.replace("raise time_budget", "use a larger --time")
    return text.replace("when the time was up", "when the time was up; use a larger --time")


def python_words(text: str) -> str:
    """A message with Python's arguments in place of a command's options."""
    text = _DEVICE.sub(r'device="\1"', text)
    return _OPTION.sub(lambda m: _PYTHON.get(m[1], m[1].replace("-", "_")), text)


@contextmanager
def said_in_python() -> Iterator[None]:
    """Errors that leave it speak of Python's arguments (see `python_words`)."""
    try:
        yield
    except CompileError:  # which quotes source
        raise
    except GenError as error:
        error.args = (python_words(str(error)),)
        raise


def unknown(kind: str, value: Any, choices: Iterable[str]) -> UsageError:
    """The error for what is not a name among `choices`, with the nearest one if any is near."""
    names = list(choices)
    if not isinstance(value, str):
        return UsageError(f"{kind} is {value!r}, not a name; use one of {', '.join(names)}")
    near = difflib.get_close_matches(value, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(names)}"
    return UsageError(f"unknown {kind} '{value}'; {hint}")


def counted(count: int, word: str) -> str:
    """`1 warp`, `2 warps`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
