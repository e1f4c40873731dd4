"""Two kernels compared, in words: "tiles moves 16 times fewer sectors ... than naive"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from gen.tables import NOTHING, Cell, count, number

if TYPE_CHECKING:
    from gen.emulator import Totals
    from gen.profile.count import Profile
    from gen.spec.problem import GemmShape

EQUAL = 0.02  # what differs by less is called equal


class Measure(NamedTuple):
    """A quantity of which less is better, and what is said of a kernel that has less or more.

    `least` is said of the best of several, `alike` of several that share that; `adverbs` are for
    cells: less, more, equal.
    """

    name: str
    title: str
    less: str
    more: str
    same: str
    least: str
    alike: str
    adverbs: tuple[str, str, str]

    def compare(self, what: str, value: float, base: str, than: float, where: str) -> list[str]:
        """A sentence about `what`, which takes `value`, beside `base`, which takes `than`.

        None where neither takes any.
        """
        if value and than:
            words = (self.less, self.more, self.same)[_which(than / value)]
            return [f"{what} {words.format(times(than / value))} {base} {where}"]
        some, none = (what, base) if value else (base, what)
        text = f"{some} has {count(value or than).text} {self.title} {where}, {none} has none"
        return [text] if value or than else []

    def cell(self, ratio: float | None) -> Cell:
        """How many times less: "16.2x fewer"; what is below 1 turns into "8.50x more"."""
        if not ratio:
            return Cell(NOTHING)
        which = _which(ratio)
        text = self.adverbs[which]
        return Cell(text if which == 2 else f"{number(_upright(ratio)).text}x {text}", ratio)

    def tick(self, ratio: float) -> str:
        """The same on an axis: "2x fewer"."""
        less, more, same = self.adverbs
        upright = f"{_upright(ratio):.3g}"
        return same if upright == "1" else f"{upright}x {more if ratio < 1 else less}"


def _which(ratio: float) -> int:
    """0 for less, 1 for more, 2 for equal: of "how many times less"."""
    return 2 if _upright(ratio) <= 1 + EQUAL else int(ratio < 1)


def _upright(ratio: float) -> float:
    return max(ratio, 1 / ratio)


def times(ratio: float) -> str:
    """A factor or its inverse, whichever is above 1, in two digits: 16, 1.3."""
    ratio = _upright(ratio)
    return f"{ratio:,.0f}" if ratio >= 9.95 else number(ratio, 2 if ratio >= 1.095 else 3).text


def _counter(name: str, title: str, verb: str) -> Measure:
    return Measure(
        name,
        title,
        f"{verb} {{}} times fewer {title} than",
        f"{verb} {{}} times more {title} than",
        f"{verb} as many {title} as",
        f"{verb} the fewest {title}",
        f"{verb.removesuffix('s')} the fewest {title}",
        ("fewer", "more", "as many"),
    )


TIME = Measure(
    "time",
    "time in ms",
    "is {} times as fast as",
    "takes {} times as long as",
    "is as fast as",
    "is fastest",
    "are fastest",
    ("faster", "slower", "as fast"),
)
COUNTERS = (
    _counter("sectors", "sectors of global memory", "moves"),
    _counter("wavefronts", "wavefronts of shared memory", "takes"),
    _counter("instructions", "instructions of warps", "executes"),
)


def counts(totals: Totals) -> dict[str, int]:
    """The counters that kernels are compared by, by name."""
    return {
        "sectors": totals.global_load.parts + totals.global_store.parts,
        "wavefronts": totals.shared_load.parts + totals.shared_store.parts,
        "instructions": totals.instructions,
    }


def at(shape: GemmShape) -> str:
    """Where something is so: "at 64 a side" for a cube."""
    cube = shape.m == shape.n == shape.k
    return f"at {shape.m} a side" if cube else f"at {shape}"


def comparison(profiles: Mapping[str, Profile]) -> list[str]:
    """What tells each of several kernels, by name, from the first; all are of one shape."""
    if len(profiles) < 2:
        return []
    (base, first), *others = profiles.items()
    before, where = counts(first.totals), at(first.shape)
    found = []
    for name, other in others:
        now = counts(other.totals)
        for measure in COUNTERS:
            values = now[measure.name], base, before[measure.name]
            found += measure.compare(name, *values, where)
    return found
