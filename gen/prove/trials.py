"""What a kernel is tried with: sizes, scalars, inputs, and where its matrices lie.

`verify_trials` are a few for each shape, as `gen verify` runs them on any device. `check_trials`
are those of `gen check`, which belong to no shape in particular: all that a mistake may depend on
comes up with everything else that it may depend on, as far as that takes seconds on a CPU.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from gen.kernels.formulas import ceil_div
from gen.kernels.launches import BIAS
from gen.kernels.tensor_cores.plan import STEPS_A_SLICE
from gen.spec.dtypes import DTypes
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmProblem, GemmShape, Layouts

UNIT = 16  # bytes that are copied at once at most; elements of any type of which lines are whole


OPERANDS = ("A", "B", "C", "D", BIAS)


class Skips(NamedTuple):
    """How many elements behind a well-aligned address each operand starts."""

    a: int = 0
    b: int = 0
    c: int = 0
    d: int = 0
    bias: int = 0


NO_SKIPS = Skips()


@dataclass(frozen=True)
class Trial:
    """One run of a kernel.

    kind: of the inputs, see `inputs.draw_operands`. in_place: C is D. blocks: along the axes where
    the kernel's blocks stride, no more than so many are launched; 0 for as many as are planned.
    multiprocessors: of the emulated GPU, where that matters; 0 for as many as there are. watched:
    whether the emulator looks for races, which takes several times as long.
    """

    problem: GemmProblem
    kind: str
    skips: Skips = NO_SKIPS
    in_place: bool = False
    blocks: int = 0
    multiprocessors: int = 0
    watched: bool = False

    @property
    def shape(self) -> GemmShape:
        """The sizes of the problem."""
        return self.problem.shape

    def __str__(self) -> str:
        """In words, what differs from an aligned and packed problem on any GPU."""
        words = [f"{self.kind} inputs, alpha={self.problem.alpha}, beta={self.problem.beta}"]
        words += [
            f"{name} {n} elements off" for name, n in zip(OPERANDS, self.skips, strict=True) if n
        ]
        words += ["C is D"] * self.in_place
        words += [f"{self.blocks} blocks that stride"] * (self.blocks > 0)
        words += [f"{self.multiprocessors} multiprocessors"] * (self.multiprocessors > 0)
        return ", ".join(words)


# -- alpha and beta --------------------------------------------------------------------------------

# Each is exact in every accumulator. Zeros, ones, signs and what is none of these, together and
# apart: a kernel may treat any of them specially.
SCALARS = (
    (3, -2), (2, 0), (1, 0), (1, 1), (-3, 2), (1, -2), (-1, 0), (0, 1), (2, 3), (0, 0), (0, -2),
    (-1, 1), (-2, -1),
)  # fmt: skip


def _beyond(dtypes: DTypes) -> list[tuple[str, float, float]]:
    """Inputs with scalars that only their own type holds: too large, or too long, for others."""
    if not dtypes.scalar.is_float:
        # Beyond float's 24 bits and short's 16.
        return [("integer", 2**24 + 1, -(2**25) - 3), ("integer", 65_537, 32_769)]
    wide = dtypes.scalar.size == 8
    large, small = (2.0**200, 2.0**-40) if wide else (2.0**17, 2.0**-12)
    return [
        ("scaled", large, large),
        ("cancelling", 1 + small, -1),
        ("cancelling", -1, 1 + small),
        ("random", -0.3, 0.7),
    ]


def _special(spec: KernelSpec) -> Sequence[tuple[str, float, float]]:
    """What IEEE 754 has besides numbers, and the ends of the numbers' range."""
    if not spec.dtypes.scalar.is_float:
        return [("random", 1, 1), ("random", -7, 0)]  # sums wrap around
    kinds = (
        ("special", 1, 0), ("special", -2, 1), ("special", 0, 1),
        ("subnormal", 1, 0), ("subnormal", -3, 2),
    )  # fmt: skip
    # GELU of what is a large negative number in the oracle, and infinite in D, is 0 in one, NaN in
    # the other.
    bounded = not spec.epilogue.endswith("gelu")
    return (*kinds, *(("overflowing", 1, 0), ("overflowing", -1, 1)) * bounded)


def cases(spec: KernelSpec) -> list[tuple[str, float, float]]:
    """All inputs and scalars: kind, alpha and beta."""
    ordinary = [("integer", alpha, beta) for alpha, beta in SCALARS]
    return [*ordinary, *_beyond(spec.dtypes), *_special(spec)]


# -- sizes -----------------------------------------------------------------------------------------


def corners(spec: KernelSpec) -> list[GemmShape]:
    """Few and small shapes that reach every corner of a kernel, derived from its tile.

    First, middle and last blocks both ways, full and ragged; one step along K, as many as there are
    stages, and more; the last step full and ragged; one element; empty sums and an empty D. Where K
    is summed in slices, some have more steps than there are stages, too, some are longer than
    others, a full tile has two, and many tiles have a single one. On tensor cores, rows that are
    ragged but aligned, more tiles along M than are computed together, in full columns, and a long
    line to pack; M and N change places where C is column-major. Where teams take turns along K,
    many tiles have an odd number of steps, so that turns change.
    """
    m, n, k = spec.threadblock
    uneven = (2 * spec.stages * max(spec.split_k, 4) + 1) * k
    two = (2 if spec.split_k else 2 * STEPS_A_SLICE + 1) * k
    slices = [(3, n + 2, uneven), (m, n, two), (2 * m + 1, 2 * n + 8, k)]
    # A persistent block computes tile after tile, which takes long here.
    groups = (spec.tunables.get("swizzle", 1) * m + 1, 1 if spec.row.persistent else 2 * n, 1)
    sizes = [
        (1, 1, 1),
        (m, n, k),
        (m + 1, n + 1, k + 1),
        (2 * m + 1, 2 * n + 1, max(2 * spec.stages - 1, 2) * k + 1),
        (2 * m, max(n - 1, 1), 2 * k),
        (max(m - 1, 1), 2 * n, max(k - 1, 1)),
        (1, 2, 3 * k + 1),
        *(slices if spec.split_k != 1 else ()),
        *([(m + 1, n + 8, k), groups, (1, 2, 1031)] if spec.row.depends_on_alignment else ()),
        *([(2 * m + 1, 2 * n + 1, 3 * k)] if spec.sliced_k > 1 else ()),
        (m, n + 1, 0),
        (0, n, k),
    ]
    return _turned(spec, [GemmShape(*size) for size in dict.fromkeys(sizes)])


def _turned(spec: KernelSpec, shapes: Iterable[GemmShape]) -> list[GemmShape]:
    """M and N in each other's place where the kernel computes the transpose."""
    if spec.row.transposes and not spec.layouts.c:
        return [GemmShape(shape.n, shape.m, shape.k) for shape in shapes]
    return list(shapes)


# Sizes around what code is unrolled by and vectors hold, every remainder of 16, and some primes.
_ANY = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 20, 31, 32, 33, 47, 63, 64, 65,
        79, 95, 96, 97, 110, 127, 128, 129, 189, 222, 255, 256, 257)  # fmt: skip
_MANY = 132  # multiprocessors: more than a kernel's reduction treats alike
_BYTE, _SHORT = 257, 33_000  # tiles, steps, elements: more than such a type counts


def mixed(spec: KernelSpec) -> list[GemmShape]:
    """Sizes along each axis, each with others along the other two.

    They are those of `_ANY`, and those that take the kernel's own loops once, twice, three times,
    as often as it has stages, and more, each time one less, none and one more.
    """
    tile, part, s = spec.threadblock, spec.warp or spec.threadblock, spec.stages
    along = (
        _sizes((tile.m, (1, 2, 3)), (part.m, (1,))),
        _sizes((tile.n, (1, 2, 3)), (part.n, (1,))),
        _sizes((tile.k, (1, 2, 3, s - 1, s, s + 1, 2 * s + 1))),
    )
    count = max(map(len, along))
    draw = random.Random(0)
    columns = []
    for sizes in along:
        column = [sizes[i % len(sizes)] for i in range(count)]
        draw.shuffle(column)
        columns.append(column)
    sizes_in_turn = (_fitting(spec, *sizes) for sizes in zip(*columns, strict=True))
    return list(dict.fromkeys(_turned(spec, sizes_in_turn)))


def _sizes(*loops: tuple[int, Sequence[int]]) -> list[int]:
    near = {step * times + more for step, some in loops for times in some for more in (-1, 0, 1)}
    return sorted(n for n in {*_ANY, *near} if n > 0)


def _fitting(spec: KernelSpec, m: int, n: int, k: int) -> GemmShape:
    """These sizes, or smaller ones along M and N with the same remainders of a unit.

    They take no minutes then.
    """
    limit = _WORK[spec.warp is not None]
    while _work(spec, shape := GemmShape(m, n, k)) > limit and max(m, n) > UNIT:
        if m > n:
            m = _halved(m)
        else:
            n = _halved(n)
    return shape


def _halved(size: int) -> int:
    """About half of it, with the same remainder of a unit."""
    return size // 2 // UNIT * UNIT + size % UNIT or UNIT


_MOST_NEAR = {False: 4096, True: 1100}
# Products of whole tiles, on CUDA cores and on tensor cores.
_WORK = {False: 4 * 10**6, True: 3 * 10**7}


def _work(spec: KernelSpec, shape: GemmShape) -> int:
    sizes = zip((shape.m, shape.n, shape.k), spec.threadblock, strict=True)
    return math.prod(ceil_div(size, step) * step for size, step in sizes)


def _long(spec: KernelSpec) -> list[tuple[GemmShape, int]]:
    """More tiles, and more steps along K, than a byte counts; on CUDA cores more than a short.

    Persistent blocks share the tiles of a large GPU; a small one makes no slices of K.
    """
    m, n, k = spec.threadblock
    shapes = [(_BYTE * m, 1, 1), (1, _BYTE * n, 1)]
    many = [(shape, _MANY) for shape in _turned(spec, [GemmShape(*size) for size in shapes])]
    return [*many, (GemmShape(2, 3, min(_BYTE * k, _SHORT) if spec.warp else _SHORT), 1)]


def _grouped(spec: KernelSpec) -> list[GemmShape]:
    """As many tiles along M as are computed close in time, a group more, and a part of one."""
    group, (m, n, _) = spec.tunables.get("swizzle", 0), spec.threadblock
    if not 0 < group * m <= 4096:
        return []
    sizes = [(group * m, 2 * n, 1), (2 * group * m + 1, n + 1, 1), (group * m + m, 2 * n + 1, 1)]
    return _turned(spec, [GemmShape(*size) for size in sizes])


def _sliced(spec: KernelSpec) -> list[tuple[GemmShape, int]]:
    """Slices of K, few and many, and the multiprocessors that ask for so many."""
    k = spec.threadblock.k
    if spec.split_k == 0:
        return [
            (GemmShape(3, 5, STEPS_A_SLICE * k * slices - slices % 2), _MANY)
            for slices in (1, 2, 3, 5, 16, 17, 33, 64, 65, 132)
        ]
    most = min(spec.split_k, 20_000 // k)
    some = {1, 2, 3, most - 1, most, most + 1} if most > 1 else set()
    return [(GemmShape(3, 5, slices * k - slices % 2), 0) for slices in sorted(some)]


# -- where matrices lie ----------------------------------------------------------------------------


class Placement(NamedTuple):
    """Leading dimensions and addresses: see `GemmProblem.packed`.

    longer: elements that each operand's lines are further apart than that.
    """

    padding: int = 0
    multiple: int = 1
    skips: Skips = NO_SKIPS
    longer: Skips = NO_SKIPS

    def problem(self, shape: GemmShape, layouts: Layouts, alpha: float, beta: float) -> GemmProblem:
        """A problem whose matrices lie so."""
        whole = GemmProblem.packed(shape, layouts, alpha, beta, self.padding, self.multiple)
        more = self.longer
        return replace(
            whole,
            lda=whole.lda + more.a,
            ldb=whole.ldb + more.b,
            ldc=whole.ldc + more.c,
            ldd=whole.ldd + more.d,
        )


PACKED = Placement()
WHOLE = Placement(UNIT, UNIT)  # everything in whole units
RAGGED = Placement(3, skips=Skips(1, 1, 1, 1, 1))  # nothing is


def placements(dtypes: DTypes) -> list[Placement]:
    """Everything aligned; one operand's address, or its lines, off by a power of two of bytes."""
    found = [WHOLE, RAGGED, PACKED]
    sizes = [dtypes.input.size] * 2 + [dtypes.output.size] * 3
    for (name, size), bytes_ in itertools.product(
        zip(Skips._fields, sizes, strict=True), (1, 2, 4, 8)
    ):
        if bytes_ >= size:
            off = Skips(**{name: bytes_ // size})
            found.append(WHOLE._replace(skips=off))
            found += [WHOLE._replace(longer=off)] * (name != "bias")
    return found


# -- gen verify ------------------------------------------------------------------------------------


def verify_trials(spec: KernelSpec, shape: GemmShape) -> list[Trial]:
    """What `gen verify` tries on one shape.

    alpha and beta that are neither 0 nor 1, then beta = 0, packed; random inputs; last, what most
    callers want, and a kernel may treat apart: nothing but the product. Where how a kernel runs
    depends on where the operands lie: nothing aligned; lines of whole units; packed, so that it
    depends on the shape.

    And where a line of D is whole units: a matrix that starts inside of one, though its lines are
    as long as units; lines of D in order and C's not, and the other way round (D's are 2 longer).
    The same goes for those of B and A if they are whole units, too. The last has an alpha of 1 and
    a beta that is not 0: a kernel that treats sums apart which are D as they are looks at both.
    """
    planned = spec.row.depends_on_alignment
    random = (1.5, -0.75) if spec.dtypes.accumulator.is_float else (-7, 5)
    cases = [
        ("integer", (3, -2), RAGGED if planned else RAGGED._replace(skips=NO_SKIPS)),
        ("integer", (2, 0), Placement(multiple=UNIT) if planned else PACKED),
        ("random", random, PACKED if planned else Placement(5)),
        ("integer", (1, 0), PACKED),
    ]
    line = shape.n if spec.layouts.c else shape.m
    if planned and line % UNIT == 0:
        cases += [
            ("integer", (2, -1), WHOLE._replace(skips=RAGGED.skips)),
            ("integer", (3, -2), Placement(UNIT - 2)),
            ("integer", (1, -2), Placement(UNIT)),
        ]
    return [_trial(spec, shape, kind, scalars, where) for kind, scalars, where in cases]


def _trial(
    spec: KernelSpec, shape: GemmShape, kind: str, scalars: tuple[float, float], where: Placement
) -> Trial:
    return Trial(where.problem(shape, spec.layouts, *scalars), kind, where.skips)


# -- gen check -------------------------------------------------------------------------------------


def check_trials(spec: KernelSpec, thresholds: Sequence[int] = ()) -> list[Trial]:
    """What `gen check` tries, what tells most and takes least first.

    thresholds: numbers that the kernel compares something with, which sizes should straddle.
    """
    trials = [t for shape in corners(spec) for t in corner_trials(spec, shape)]
    trials += [t for shape in _both(spec) for t in _everything(spec, shape)]
    trials += _in_place(spec)
    trials += _few_blocks(spec)
    trials += _crowds(spec)
    some = (*mixed(spec), *_grouped(spec), *_near(spec, thresholds))
    for i, shape in enumerate(some):
        trials += _rotated(spec, shape, i, 1 if spec.warp else 3)
    for i, (shape, count) in enumerate(_long(spec)):
        trials += [replace(t, multiprocessors=count) for t in _rotated(spec, shape, i, 1)]
    return list(dict.fromkeys(trials))


def corner_trials(spec: KernelSpec, shape: GemmShape) -> list[Trial]:
    """What `gen check` tries on a shape that somebody names, and on the corners.

    On tensor cores, where it takes long, not every trial is watched for races: those whose work
    differs.
    """
    trials = verify_trials(spec, shape)
    return [replace(t, watched=not spec.warp or i not in (2, 3)) for i, t in enumerate(trials)]


def _both(spec: KernelSpec) -> list[GemmShape]:
    """One shape whose lines are whole units all three ways, and one where none is."""
    m, n, k = (min(size, 8 * UNIT) for size in spec.threadblock)
    whole = [ceil_div(size, 2 * UNIT) * UNIT + UNIT for size in (m, n, k)]
    return [GemmShape(*whole), GemmShape(m // 2 + 3, n // 2 + 5, k + 7)]


def _everything(spec: KernelSpec, shape: GemmShape) -> Iterator[Trial]:
    """All placements with scalars in turn, all scalars with placements in turn, all inputs."""
    every, where = cases(spec), placements(spec.dtypes)
    for i in range(max(len(every), len(where))):
        kind, alpha, beta = every[i % len(every)]
        yield _trial(spec, shape, kind, (alpha, beta), where[i % len(where)])
    for kind, alpha, beta in every:
        for at in (WHOLE, PACKED, RAGGED):
            yield _trial(spec, shape, kind, (alpha, beta), at)
    for at in where:
        for scalars in ((1, 0), (3, -2)):
            yield _trial(spec, shape, "integer", scalars, at)


def _rotated(spec: KernelSpec, shape: GemmShape, at: int, count: int) -> Iterator[Trial]:
    """Some trials of a shape: the next scalars, the next placement."""
    where = placements(spec.dtypes)
    cases = [("integer", *scalars) for scalars in SCALARS] + _beyond(spec.dtypes)
    for i in range(count * at, count * (at + 1)):
        kind, alpha, beta = cases[i % len(cases)]
        # Whole units every other time: what starts there is what vectors are for.
        place = where[i // 2 % len(where)] if i % 2 else WHOLE
        yield _trial(spec, shape, kind, (alpha, beta), place)


def _in_place(spec: KernelSpec) -> Iterator[Trial]:
    """C is D, as every header allows."""
    m, n, k = spec.threadblock
    shapes = [*_both(spec), GemmShape(m, n, k), GemmShape(2 * m + 1, 2 * n + 1, k + 1)]
    for shape, scalars in itertools.product(shapes, ((3, -2), (1, 1), (2, 0))):
        for where in (PACKED, WHOLE, RAGGED):
            trial = _trial(spec, shape, "integer", scalars, where)
            problem = replace(trial.problem, ldc=trial.problem.ldd)
            watched = scalars == (3, -2) and where is PACKED
            yield replace(trial, problem=problem, in_place=True, watched=watched)


def _few_blocks(spec: KernelSpec) -> Iterator[Trial]:
    """Blocks that stride over what a grid cannot cover, here because there are so few of them."""
    if not spec.geometry.strides:
        return
    m, n, k = spec.threadblock
    shapes = [(1, (3 * m + 1, n + 1, 2 * k + 1))]
    shapes += [(blocks, (5 * m + 1, n + 1, min(k, UNIT) + 3)) for blocks in (1, 2, 3)]
    for blocks, size in shapes:
        trial = _trial(spec, GemmShape(*size), "integer", (3, -2), RAGGED)
        yield replace(trial, blocks=blocks, watched=True)


def _crowds(spec: KernelSpec) -> Iterator[Trial]:
    """GPUs of other sizes: blocks with many tiles or none to spare, K in many slices."""
    for shape, count in _sliced(spec):
        for scalars, where in (((3, -2), RAGGED), ((1, 0), WHOLE)):
            yield replace(_trial(spec, shape, "integer", scalars, where), multiprocessors=count)
    if spec.row.persistent:
        m, n, k = spec.threadblock
        for count in (1, 2, 3, _MANY):
            trial = _trial(spec, GemmShape(2 * m + 1, 2 * n + 1, k + 1), "integer", (3, -2), WHOLE)
            yield replace(trial, multiprocessors=count, watched=count == 1)


def _near(spec: KernelSpec, thresholds: Sequence[int]) -> list[GemmShape]:
    """Sizes on both sides of numbers that the kernel compares with."""
    most = _MOST_NEAR[spec.warp is not None]
    sizes = sorted({n + more for n in thresholds if n <= most for more in (0, 1)} - {*_ANY, 0})
    found = [GemmShape(2, 3, n) for n in sizes] + [GemmShape(n, 3, 2) for n in sizes]
    return _turned(spec, [*found, *(GemmShape(3, n, 2) for n in sizes)])
