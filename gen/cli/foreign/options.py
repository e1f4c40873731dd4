"""How any kernel is launched: the options that say so, and what they come to."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gen.errors import UsageError
from gen.foreign.launch import LaunchText

if TYPE_CHECKING:
    from gen.foreign.running import Checks, Outcome

KERNEL = typer.Option("--kernel", metavar="NAME", help="The kernel, such as 'scale<float>'.")
GRID = typer.Option("--grid", metavar="X,Y,Z", help="Blocks; also as '(n+255)/256'.")
BLOCK = typer.Option("--block", metavar="X,Y,Z", help="Threads of a block.")
CLUSTER = typer.Option(
    "--cluster", metavar="X,Y,Z", help="Blocks of a cluster; default: what the kernel declares."
)
ARG = typer.Option(
    "--arg", metavar="NAME=VALUE", help="An argument, such as A=f32[64,64]:random; repeatable."
)
DYNAMIC = typer.Option(
    "--dynamic-shared", metavar="BYTES", help="Dynamic shared memory of a block; default: 0."
)
EXPECT = typer.Option(
    "--expect", metavar="NAME=FILE", help="What a buffer should hold afterwards; repeatable."
)
REFERENCE = typer.Option(
    "--reference", metavar="MODULE:FUNCTION", help="A Python function that computes the same."
)
TOLERANCE = typer.Option(
    "--tolerance", metavar="X", help="Allowed error, relative to the largest expected value."
)
GEMM = typer.Option(
    "--gemm", metavar="ROLES", help="The kernel is a GEMM: A=a,B=b,C=c,M=m,N=n,K=k and so on."
)
GEMM_DTYPE = typer.Option(
    "--gemm-dtype", metavar="TYPE", help="Element types of a GEMM; default: the parameters'."
)
TOOL = typer.Option(
    "--tool",
    metavar="NAMES",
    help="Checks of a launch: memcheck,racecheck,initcheck,synccheck; default: all.",
)
SEED = typer.Option("--seed", metavar="N", help="Seed of random contents; default: 0.")
INCLUDE = typer.Option("-I", "--include", metavar="DIR", help="A folder of headers; repeatable.")
DEFINE = typer.Option("-D", "--define", metavar="NAME=VALUE", help="A macro; repeatable.")
STD = typer.Option("--std", metavar="STD", help="The C++ standard; default: c++17.")
ARCH = typer.Option("--arch", metavar="SM", help="Architecture; default: sm_80.")
BUDGET = typer.Option(
    "--budget", metavar="N", min=1, help="Instructions, over all threads, that a launch may run."
)
TIME = typer.Option(
    "--time", metavar="SECONDS", min=0, help="CPU seconds of a launch; default: 60."
)

_TEXT, _TEXTS = str | None, list[str] | None
# Name, type and option: of every launch, and of those whose results are checked.
LAUNCH: tuple[tuple[str, Any, Any], ...] = (
    ("kernel", _TEXT, KERNEL), ("grid", _TEXT, GRID), ("block", _TEXT, BLOCK),
    ("cluster", _TEXT, CLUSTER),
    ("arg", _TEXTS, ARG), ("dynamic_shared", _TEXT, DYNAMIC), ("seed", _TEXT, SEED),
    ("include", _TEXTS, INCLUDE), ("define", _TEXTS, DEFINE), ("std", _TEXT, STD),
)  # fmt: skip
CHECKED: tuple[tuple[str, Any, Any], ...] = (
    ("expect", _TEXTS, EXPECT), ("reference", _TEXT, REFERENCE), ("tolerance", _TEXT, TOLERANCE),
    ("gemm", _TEXT, GEMM), ("gemm_dtype", _TEXT, GEMM_DTYPE), ("tool", _TEXT, TOOL),
)  # fmt: skip


def launch_text(own: Mapping[str, Any], options: Mapping[str, Any]) -> LaunchText:
    known = {field.name for field in fields(LaunchText)}
    found = {name: value for name, value in own.items() if name in known and value is not None}
    found = {k: tuple(v) if isinstance(v, list) else v for k, v in found.items()}
    if layout := options.get("layout"):
        found["layout"] = layout[0]
    if arch := options.get("arch"):
        found["arch"] = arch
    return LaunchText(**found)


def checks_of(own: Mapping[str, Any], options: Mapping[str, Any]) -> Checks:
    from gen.foreign.running import MAX_FINDINGS, SECONDS, TOOLS, Checks

    tools = tuple(own["tool"].split(",")) if own.get("tool") is not None else TOOLS
    most = options.get("max_findings") or MAX_FINDINGS
    seconds = SECONDS if options.get("seconds") is None else options["seconds"]
    seed, first = _seed(own.get("seed")), bool(options.get("first"))
    return Checks(tools, most, options.get("budget"), seed, seconds, first=first)


def _seed(text: str | None) -> int:
    if text is not None and not text.isdecimal():
        raise UsageError(f"--seed {text} is not a number from 0")
    return int(text or 0)


def read(file: Path, launch: LaunchText) -> tuple[str, list[LaunchText]]:
    from gen.foreign.prepare import read_text
    from gen.foreign.steps import launches_of

    text = read_text(file)
    return text, launches_of(text, str(file), launch)


def print_notes(notes: Iterable[str]) -> None:
    """What was left out of the source, and what the compiler warns of."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


def print_lines(outcome: Outcome) -> None:
    """What printf has printed, with who did."""
    for one in outcome.printed:
        block, thread = (",".join(map(str, at)) for at in (one.block, one.thread))
        print(f"block ({block}), thread ({thread}): {one.text}".rstrip("\n"))
