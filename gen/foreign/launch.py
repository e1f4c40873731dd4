"""How a kernel is launched, as text: options of a command, or a comment in the file.

A line such as `// gen-launch: --kernel scale --grid 4 --block 256 --arg x=f32[1024]:random` has the
options of one launch. Several lines are several launches, in order, which share their buffers.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from gen.errors import UsageError, unknown
from gen.foreign.expressions import evaluated, split

_LINE = re.compile(r"^[ \t]*(?://|/\*)[ \t]*gen-launch:(.*?)(?:\*/[ \t]*)?$", re.MULTILINE)
_REPEATED = ("arg", "expect", "include", "define")


@dataclass(frozen=True)
class LaunchText:
    """The options of one launch. Sizes are numbers or expressions, with commas."""

    kernel: str | None = None
    grid: str | None = None
    block: str | None = None
    arg: tuple[str, ...] = ()
    dynamic_shared: str = "0"
    expect: tuple[str, ...] = ()
    reference: str | None = None
    tolerance: str | None = None
    gemm: str | None = None
    gemm_dtype: str | None = None
    layout: str | None = None
    arch: str | None = None
    include: tuple[str, ...] = ()
    define: tuple[str, ...] = ()
    std: str | None = None
    seed: str | None = None
    cluster: str | None = None

    @property
    def given(self) -> bool:
        """Whether it says anything."""
        return self != LaunchText()

    @property
    def starts(self) -> bool:
        """Whether it says how to launch, rather than how to compile."""
        return any((self.kernel, self.grid, self.block, self.cluster, self.arg, self.gemm))

    def over(self, other: LaunchText) -> LaunchText:
        """Itself, with what only the other says."""
        empty = LaunchText()
        mine = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(other, **{k: v for k, v in mine.items() if v != getattr(empty, k)})


_SHORT = {"-I": "include", "-D": "define"}


def launches_in(text: str, name: str) -> list[LaunchText]:
    """The launches that a file's comments describe. Raises UsageError."""
    return [_parsed(match[1], name) for match in _LINE.finditer(text)]


def _parsed(line: str, name: str) -> LaunchText:
    known = {field.name for field in fields(LaunchText)}
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{name}: gen-launch:{line.rstrip()}: {error}") from None
    found: dict[str, Any] = {}
    while words:
        word = words.pop(0)
        option, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        key = _SHORT.get(option, option.removeprefix("--").replace("-", "_"))
        if key not in known or not option.startswith("-"):
            choices = [f"--{field.replace('_', '-')}" for field in sorted(known)]
            raise unknown(f"option in the gen-launch line of {name}:", option, choices)
        if not equals:
            if not words:
                raise UsageError(f"{name}: {option} in a gen-launch line lacks its value")
            value = words.pop(0)
        if key in _REPEATED:
            found[key] = (*found.get(key, ()), value)
        else:
            found[key] = value
    return LaunchText(**found)


def sizes(text: str | None, what: str, numbers: Mapping[str, int]) -> tuple[int, int, int]:
    """Three sizes, of a grid, block or cluster: `4,4` is (4, 4, 1). Raises UsageError."""
    if text is None:
        raise UsageError(
            f"--{what} is missing; give its size, such as --{what} 4 or --{what} 16,16"
        )
    parts: Sequence[str] = split(text)
    if len(parts) > 3:
        raise UsageError(f"--{what} {text} has {len(parts)} sizes; a {what} has at most 3")
    values = [evaluated(part, numbers, f"--{what}") for part in parts]
    x, y, z = (*values, 1, 1)[:3]
    return x, y, z
