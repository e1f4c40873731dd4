"""What the user may choose of a kernel: integers, tiles, words.

A tunable's value is an int or a canonical text ("128x256x64"): it is printed, kept in JSON and
compared as it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

from gen.errors import SpecError, UsageError, unknown
from gen.spec.arch import compute_capability
from gen.spec.dtypes import DTypes
from gen.spec.problem import Layouts

Value = int | str

CLOSE = 1024  # integers so near are all tried for a way out, of others the round ones
# Of the tiles that are tried for a way out.
SIDES, DEPTHS = tuple(range(16, 513, 16)), (4, 8, 16, 32, 64, 128)


class Conflict(SpecError):
    """A rule that is broken. One of `blame` (tunables, dtype, arch) has to change, the first first.

    Its message has no way out: `gen.kernels.way_out` looks for one among all rules.
    """

    def __init__(self, message: str, *blame: str) -> None:
        super().__init__(message)
        self.blame = blame


class Choice(NamedTuple):
    """All that has been chosen of a kernel so far; `values` are those of its tunables."""

    dtypes: DTypes
    layouts: Layouts
    arch: str
    values: Mapping[str, Any]

    @property
    def cc(self) -> int:
        """The compute capability, such as 90."""
        return compute_capability(self.arch)


@dataclass(frozen=True)
class Tunable:
    """Something that the user may choose. `default` may depend on what was chosen before it.

    `tag` stands before its value in kernels' names: its own name if nothing else is said.
    """

    name: str
    help: str
    default: Value | Callable[[Choice], Value]
    tag: str = field(default="", kw_only=True)

    @property
    def values(self) -> str:
        """What it may be, in a few words."""
        raise NotImplementedError

    def parse(self, value: object) -> Value:
        """A text or a number in the form in which it is kept. Raises UsageError."""
        raise NotImplementedError

    def check(self, value: Value) -> None:
        """Raises Conflict for a value that no kernel can have."""

    def near(self, value: Value) -> Iterator[Value]:
        """Values that it may have, those nearest to this one first."""
        raise NotImplementedError

    def show(self, value: Value) -> str:
        """The value as people write it."""
        return str(value)

    def in_name(self, value: Value) -> str:
        """The value as kernels' names have it."""
        return f"{self.tag or self.name}{self.show(value)}"

    @property
    def metavar(self) -> str:
        """What stands for the value in a command's help."""
        return self.values

    @property
    def example(self) -> str:
        """Some values, separated by commas."""
        raise NotImplementedError

    def limits(self) -> dict[str, object]:
        """What it may be, for scripts."""
        return {"values": self.values}

    def usual(self, chosen: Choice) -> Value:
        """The default beside what was chosen before it."""
        return self.default(chosen) if callable(self.default) else self.default


@dataclass(frozen=True)
class Integer(Tunable):
    """An integer from `low` to `high`. `word` is another name for 0."""

    low: int
    high: int
    word: str = ""

    @property
    def values(self) -> str:
        """See Tunable."""
        numbers = f"{self.low or 1 if self.word else self.low}..{_limit(self.high)}"
        return f"{numbers} or {self.word}" if self.word else numbers

    @property
    def metavar(self) -> str:
        """See Tunable."""
        return "N"

    @property
    def example(self) -> str:
        """See Tunable."""
        return ",".join(str(n) for n in (8, 16, 32) if self.low <= n <= self.high) or f"{self.low}"

    def parse(self, value: object) -> Value:
        """See Tunable."""
        if self.word and value == self.word:
            return 0
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if not isinstance(value, str) or not re.fullmatch(r"\s*[+-]?\d{1,99}\s*", value):
            or_word = f" or {self.word}" if self.word else ""
            raise UsageError(f"{self.name}: '{value}' is not an integer{or_word}")
        return int(value)

    def check(self, value: Value) -> None:
        """See Tunable."""
        if not self.low <= int(value) <= self.high:
            raise Conflict(
                f"{self.name}={value} is out of range {self.low} to {self.high} ({self.help})",
                self.name,
            )

    def near(self, value: Value) -> Iterator[Value]:
        """See Tunable."""
        low, high, at = self.low, self.high, int(value)
        round_ = {bits << shift for bits in range(8) for shift in range(high.bit_length())}
        found = {n for n in round_ if low <= n <= high} | {low, high}
        found |= set(range(max(low, at - CLOSE), min(high, at + CLOSE) + 1))
        return iter(sorted(found, key=lambda n: (abs(n - at), n)))

    def show(self, value: Value) -> str:
        """See Tunable."""
        return self.word if self.word and value == 0 else str(value)

    def limits(self) -> dict[str, object]:
        """See Tunable."""
        return {"low": self.low, "high": self.high, **({"word": self.word} if self.word else {})}


def _limit(value: int) -> str:
    return "2^31-1" if value == 2**31 - 1 else str(value)


@dataclass(frozen=True)
class Size(Tunable):
    """Two or three sizes, as `form` has them: "MxNxK" or "MxN". `sides` are tried as M and N."""

    form: str
    sides: Sequence[int] = field(default=SIDES, kw_only=True)

    @property
    def values(self) -> str:
        """See Tunable."""
        return self.form

    @property
    def example(self) -> str:
        """See Tunable."""
        parts = self.form.count("x") + 1
        some = (
            (("128", "64", "32"), ("64",) * 3) if self.sides == SIDES else (("8", "4"), ("8", "8"))
        )
        return ",".join("x".join(sides[:parts]) for sides in some)

    def parse(self, value: object) -> Value:
        """See Tunable."""
        parts = _sides(str(value))
        if len(parts) != self.form.count("x") + 1:
            example = self.example.partition(",")[0]
            raise UsageError(f"{self.name}: '{value}' is not {self.form}, such as {example}")
        return "x".join(parts)

    def near(self, value: Value) -> Iterator[Value]:
        """See Tunable. Sides are as near as their ratio is to 1."""
        wanted = sizes(value)
        axes = [self.sides] * 2 + [DEPTHS] * (len(wanted) - 2)

        far = [
            {side: abs(math.log2(side / (size or 0.5))) for side in axis}
            for axis, size in zip(axes, wanted, strict=True)
        ]

        def distance(tile: Sequence[int]) -> float:
            return round(sum(map(dict.__getitem__, far, tile)), 6)

        def order(tile: Sequence[int]) -> tuple[object, ...]:
            return distance(tile), abs(tile[0] - tile[1]), tile

        tiles = sorted(product(*axes), key=order)
        return ("x".join(map(str, tile)) for tile in tiles)


_SIDE = re.compile(r"\d{1,9}")


@lru_cache(maxsize=4096)
def _sides(text: str) -> tuple[str, ...]:
    """The numbers of a size as they are kept; none where it has anything else."""
    parts = text.strip().lower().split("x")
    if not all(map(_SIDE.fullmatch, parts)):
        return ()
    return tuple(str(int(part)) for part in parts)


def rank(value: Value) -> tuple[object, ...]:
    """What values of one tunable are sorted by: their numbers, then their letters."""
    return sizes(value), str(value)


@lru_cache(maxsize=4096)
def sizes(value: Any) -> tuple[int, ...]:
    """The numbers of a size: "64x32" -> (64, 32), "m16n8k8" -> (16, 8, 8)."""
    return tuple(map(int, re.findall(r"\d+", str(value))))


@dataclass(frozen=True)
class Word(Tunable):
    """One of several words, which stand in names as they are if there is no tag."""

    words: Sequence[str]

    @property
    def values(self) -> str:
        """See Tunable."""
        return " | ".join(self.words)

    @property
    def metavar(self) -> str:
        """See Tunable."""
        return "NAME"

    @property
    def example(self) -> str:
        """See Tunable."""
        return ",".join(self.words[:2])

    def in_name(self, value: Value) -> str:
        """See Tunable."""
        return f"{self.tag}{value}"

    def limits(self) -> dict[str, object]:
        """See Tunable."""
        return {"values": list(self.words)}

    def parse(self, value: object) -> Value:
        """See Tunable."""
        if value not in self.words:
            raise unknown(self.name, str(value), self.words)
        return str(value)

    def near(self, value: Value) -> Iterator[Value]:
        """See Tunable."""
        words = list(self.words)
        at = words.index(str(value)) if value in words else 0
        return iter(sorted(words, key=lambda word: abs(words.index(word) - at)))


@dataclass(frozen=True)
class Flag(Tunable):
    """Whether a kernel has something that it does not have by default: named only where it does."""

    default: Value | Callable[[Choice], Value] = False

    @property
    def values(self) -> str:
        """See Tunable."""
        return "flag"

    @property
    def example(self) -> str:
        """See Tunable."""
        return "false,true"

    def parse(self, value: object) -> Value:
        """See Tunable."""
        words = {"false": False, "0": False, "true": True, "1": True}
        if (text := str(value).lower()) not in words:
            raise UsageError(f"{self.name}: '{value}' is not true or false")
        return words[text]

    def near(self, value: Value) -> Iterator[Value]:
        """See Tunable."""
        return iter((value, not value))

    def show(self, value: Value) -> str:
        """See Tunable."""
        return "true" if value else "false"

    def in_name(self, value: Value) -> str:
        """See Tunable."""
        return self.tag or self.name
