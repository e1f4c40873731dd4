"""How measured times correct the cost model's, in lines that C++ has, too.

Of a kernel, a `Point` is a problem that was tuned, with the ratio of its measured time to the
predicted one. For another problem, the prediction is multiplied by the mean of the ratios, weighted
by how near the points are: the product of the sizes' ratios, each the smaller one over the larger
one. At the point itself its ratio is all that counts; twice as far along one side it counts twice
as much as the model in itself, or six times as much where the kernel was measured there.
`python -m tests.hardware.near` says what that makes of the times that docs/lab has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gen.dispatch import cost
from gen.kernels.formulas import Fact, function, last_of

ONE = 4096  # a ratio of 1
LEAST, MOST = ONE // 8, ONE * 8  # what is further off is no error of a model
_WHOLE = 1024  # the nearness of a problem to itself
_FAR = _WHOLE // 4  # less is not counted
_COUNTED = 64  # a weight, at a nearness of 1 / sqrt(2)
_ANYWHERE = 8  # the same for all that is counted: what is wrong there may be so here
_PRIOR = 16  # the weight of the model in itself
OWN = 4  # times the weight of a ratio that is that of the kernel itself
_LONGEST = 2**44  # picoseconds: products of longer times with ratios would need more than 64 bits


class Point(NamedTuple):
    """A tuned problem as a kernel has it, row-major: sizes, products, and what its operands are.

    at_odd: whether lines of A (1) and of B (2) do not start at multiples of 16 bytes. own: `OWN`
    where the kernel was measured there, else 1, and the ratio is that of others. at_ratio: in units
    of 1 / `ONE`.
    """

    at_m: int
    at_n: int
    at_k: int
    at_count: int
    at_odd: int
    own: int
    at_ratio: int


def _near(x: str) -> Fact:
    ratio = f"{x} < at_{x} ? {x} * {_WHOLE} / at_{x} : at_{x} * {_WHOLE} / {x}"
    return Fact(f"near_{x}", ratio)


WEIGHT: Sequence[Fact] = (
    *map(_near, ("m", "n", "k", "count")),
    Fact(
        "near",
        f"near_m * near_n / {_WHOLE} * near_k / {_WHOLE} * near_count / {_WHOLE}",
    ),
    Fact("alike", f"odd_a + 2 * odd_b == at_odd && near >= {_FAR}", type="bool"),
    Fact("squared", "near * near"),
    Fact("closer", f"squared * {_COUNTED} / ({_WHOLE**2 + 1} - squared) * own"),
    Fact("weight", f"alike ? closer + {_ANYWHERE} : 0"),
)
_PLACE = ("m", "n", "k", "count", "odd_a", "odd_b")
_weight = last_of(WEIGHT, [*_PLACE, *Point._fields])

CORRECTED: Sequence[Fact] = (
    Fact("ratio", f"(weighted + {_PRIOR * ONE}) / (weights + {_PRIOR})"),
    Fact(
        "corrected",
        f"time < {_LONGEST} ? time * ratio / {ONE} : time / {ONE} * ratio",
        "picoseconds",
    ),
)
_corrected = last_of(CORRECTED, ["time", "weighted", "weights"])

_FACTS = {fact.name: fact for fact in cost.FACTS}
_SIZES = ("m", "n", "k", "largest", "count", "pitch_a", "odd_a", "pitch_b", "odd_b")
_sizes = function([_FACTS[name] for name in _SIZES], [*cost.GIVEN[:-1], "size"])

Place = tuple[int, int, int, int, int, int]  # _PLACE


def place(given: Sequence[int], size: int) -> Place:
    """Where a problem is. given: its own values of `cost.GIVEN`; size: bytes of an element."""
    m, n, k, _, count, _, odd_a, _, odd_b = _sizes(*given, size)
    return m, n, k, count, odd_a, odd_b


def weight(at: Place, point: Point) -> int:
    """How much a point counts at a place."""
    return _weight(*at, *point)


def counted(sizes: Sequence[int]) -> tuple[int, ...]:
    """What M, N and K count as in places."""
    return tuple(min(max(size, 1), cost.MOST) for size in sizes)


def may_count(at: Place, sizes: Sequence[int]) -> bool:
    """Whether a point of sizes, as they are counted, may count at a place: quickly, of many."""
    m, n, k, *_ = at
    at_m, at_n, at_k = sizes
    less = min(m, at_m) * min(n, at_n) * min(k, at_k)
    more = max(m, at_m) * max(n, at_n) * max(k, at_k)
    return less * _WHOLE >= more * _FAR


class Sums(NamedTuple):
    """Of a kernel's points: of their weights, and of their ratios times these."""

    weights: int
    weighted: int

    def corrected(self, time: int) -> int:
        """The time of the kernel in picoseconds, from the model's."""
        return _corrected(time, self.weighted, self.weights)


def summed(counted: Iterable[tuple[int, int]]) -> Sums:
    """Of points, given as weights and ratios."""
    weights = weighted = 0
    for own, ratio in counted:
        weights += own
        weighted += own * ratio
    return Sums(weights, weighted)


def corrected(time: int, at: Place, points: Sequence[Point]) -> int:
    """The time of a kernel in picoseconds, from the model's and from the kernel's points."""
    return summed((weight(at, point), point.at_ratio) for point in points).corrected(time)
