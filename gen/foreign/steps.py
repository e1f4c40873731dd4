"""Launches made ready: which of them, with compiled kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gen.errors import UsageError
from gen.foreign.build import Built, Options, build, is_ptx
from gen.foreign.launch import LaunchText, launches_in
from gen.foreign.prepare import read_program


@dataclass(frozen=True)
class Step:
    """A launch whose kernel is compiled: texts or values of its arguments."""

    built: Built
    text: LaunchText
    values: Mapping[str, Any] = field(default_factory=dict)


def prepare(text: str, name: str, launches: Sequence[LaunchText]) -> list[Step]:
    """Compiles the kernels of launches of one file. Raises UsageError, CompileError."""
    known: dict[tuple[str | None, Options], Built] = {}
    steps = []
    for launch in launches:
        options = Options(
            launch.arch or "sm_80", tuple(map(Path, launch.include)), launch.define,
            launch.std or "c++17",
        )  # fmt: skip
        key = (launch.kernel, options)
        if key not in known:
            known[key] = build(text, name, launch.kernel, options)
        steps.append(Step(known[key], launch))
    return steps


def launches_of(text: str, name: str, given: LaunchText) -> list[LaunchText]:
    """The launches that options ask for, or those of the file's comments.

    Options that say how to compile or check go to all of them. Raises UsageError where nothing
    says how to launch.
    """
    lines = launches_in(text, name)
    if given.starts:
        if lines and not (given.grid and given.block):
            raise UsageError(
                f"{name} has a gen-launch line, in whose place options are a whole launch; give "
                "--grid, --block and each --arg, or change the line"
            )
        return [given]
    found = [given.over(launch) for launch in lines]
    if not found:
        raise UsageError(_how_to_launch(text, name))
    return found


def _how_to_launch(text: str, name: str) -> str:
    """What a file that nobody said how to launch needs, with its kernels."""
    shown = []
    if not is_ptx(text):
        shown = [str(kernel) for _, kernel in read_program(text, name).kernels]
    kernels = f"; its kernels: {'; '.join(shown)}" if shown else ""
    return (
        f"{name} has no gen-spec line and no gen-launch line, which say how to launch the kernel; "
        "give --grid, --block and an --arg for each parameter, such as --arg A=f32[64,64]:random"
        f"{kernels}"
    )
