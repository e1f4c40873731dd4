"""What a kernel is tried with: scalars, inputs, and where its matrices lie.

`verify_trials` are a few for each shape, as `gen verify` runs them on any device; those of `gen
check` are many more: see `check_trials`.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from gen.kernels.launches import BIAS
from gen.prove.groups import draw_ends, most_groups
from gen.prove.inputs import brink_unit
from gen.spec import numerics
from gen.spec.arch import UNIT
from gen.spec.dtypes import DTypes
from gen.spec.epilogue import MATRIX
from gen.spec.kernel import KernelSpec
from gen.spec.problem import ONE, Batch, GemmProblem, GemmShape, Layouts

OPERANDS = ("A", "B", "C", "D", BIAS)


class Skips(NamedTuple):
    """How many elements behind a well-aligned address each operand starts."""

    a: int = 0
    b: int = 0
    c: int = 0
    d: int = 0
    bias: int = 0


NO_SKIPS = Skips()


def c_is_d(problem: GemmProblem) -> GemmProblem:
    """The same where C lies as D does, whose place it has."""
    batch = problem.batch._replace(stride_c=problem.batch.stride_d)
    return replace(problem, ldc=problem.ldd, batch=batch)


@dataclass(frozen=True)
class Trial:
    """One run of a kernel.

    kind: of the inputs, see `inputs.draw_operands`. in_place: C is D. blocks: along the axes where
    the kernel's blocks stride, or those that pack, no more than so many are launched; 0 for as many
    as are planned. multiprocessors: of the emulated GPU, where that matters; 0 for as many as there
    are. watched: whether the emulator looks for races, which takes several times as long.
    last_first: whether the emulator starts blocks from the last one on. late: whether all waits are
    tried in vain for some time.
    """

    problem: GemmProblem
    kind: str
    skips: Skips = NO_SKIPS
    in_place: bool = False
    blocks: int = 0
    multiprocessors: int = 0
    watched: bool = False
    last_first: bool = False
    late: bool = False

    @property
    def shape(self) -> GemmShape:
        """The sizes of the problem."""
        return self.problem.shape

    def __str__(self) -> str:
        """In words, what differs from an aligned and packed problem on any GPU."""
        words = [f"{self.kind} inputs, alpha={self.problem.alpha}, beta={self.problem.beta}"]
        if self.skips.d and len(set(self.skips)) == 1:
            words.append(f"all operands {_elements(self.skips.d)} off")
        else:
            off = zip(OPERANDS, self.skips, strict=True)
            words += [f"{name} {_elements(n)} off" for name, n in off if n]
        for ends, axis in ((self.problem.ends, ""), (self.problem.ends_k, " along K")):
            if ends is not None:
                words.append(f"{_listed(ends)}{axis}")
        if self.problem.batch != ONE:
            words.append(", ".join(f"{k}={v}" for k, v in self.problem.batch._asdict().items()))
        words += [f"{name}={value:.9g}" for name, value in self.problem.operands]
        words += ["C is D"] * self.in_place
        words += [f"{self.blocks} blocks that stride"] * (self.blocks > 0)
        words += [f"{self.multiprocessors} multiprocessors"] * (self.multiprocessors > 0)
        words += ["the last blocks first"] * self.last_first
        words += ["what is waited for comes late"] * self.late
        return ", ".join(words)


def _listed(ends: tuple[int, ...]) -> str:
    """Of many groups the first ones."""
    some = ", ".join(map(str, ends[:8]))
    return f"{len(ends)} groups that end at {some}{', ...' if len(ends) > 8 else ''}"


def _elements(count: int) -> str:
    return "1 element" if count == 1 else f"{count} elements"


# -- alpha and beta --------------------------------------------------------------------------------

# Each is exact in every accumulator. Zeros, ones, signs and what is none of these, together and
# apart: a kernel may treat any of them specially.
SCALARS = (
    (3, -2), (2, 0), (1, 0), (1, 1), (-3, 2), (1, -2), (-1, 0), (0, 1), (2, 3), (0, 0), (0, -2),
    (-1, 1), (-2, -1),
)  # fmt: skip


# Of all magnitudes, with parts of a power of two where a float has them: what a kernel makes of few
# scalars only it may take for a product.
_FURTHER = (
    (8, -1), (16, 5), (-4, 8), (7, 4), (-32, 0), (5, 16), (64, -9), (10, 1), (-100, -64), (1, 32),
)  # fmt: skip
_PARTS = ((0.5, -8), (1, 0.25), (-0.125, 0), (0, -0.5), (1.5, 1), (0.25, 0.75))


def scalars_in_turn(dtypes: DTypes) -> list[tuple[float, float]]:
    """What a shape after the other is tried with."""
    return [*SCALARS, *_FURTHER, *(_PARTS if dtypes.scalar.is_float else ())]


_NAN, _INF = float("nan"), float("inf")


def beyond(dtypes: DTypes) -> list[tuple[str, float, float]]:
    """Inputs with scalars that only their own type holds: too large, or too long, for others."""
    if not dtypes.scalar.is_float:
        # Beyond float's 24 bits and short's 16.
        return [("integer", 2**24 + 1, -(2**25) - 3), ("integer", 65_537, 32_769)]
    small = 2.0**-40 if dtypes.scalar.size == 8 else 2.0**-12
    narrow = dtypes.output.size < dtypes.scalar.size
    return [
        # 1 in D's type, which is not to say that D is the sum.
        *[("integer", 1 + 0.875 * numerics.unit_roundoff(dtypes.output.name), 0)] * narrow,
        *(("scaled", 2.0**alpha, 2.0**beta) for alpha, beta in _exponents(dtypes)),
        # Near 1 and 0, which a kernel may treat apart.
        ("integer", 1.5, 0),
        ("integer", 1 - small, 0),
        ("integer", 1, small),
        ("cancelling", 1 + small, -1),
        ("cancelling", -1, 1 + small),
        ("random", -0.3, 0.7),
        # Zero all the same: C is not read, A and B do not count.
        ("integer", 5, -0.0),
        ("integer", -0.0, 5),
    ]


def _exponents(dtypes: DTypes) -> list[tuple[int, int]]:
    """alpha and beta as powers of two, large and small, with which results are in range."""
    if dtypes.output.name != "f16":
        # Their squares are zero and infinite.
        far = 600 if dtypes.scalar.size == 8 else 100
        return [(17, 17), (far, far), (-far, -far)]
    if dtypes.input.is_fp8:  # factors have the powers of two that are between
        return [(17, 17), (18, 24), (-28, -30)]
    sums_in_f16 = dtypes.accumulator.name == "f16"
    return [(17, 17), (20, 24), (-18, -30)] if sums_in_f16 else [(17, 17), (30, 24), (-40, -30)]


def _special(spec: KernelSpec) -> Sequence[tuple[str, float, float]]:
    """What IEEE 754 has besides numbers, and the ends of the numbers' range."""
    if not spec.dtypes.scalar.is_float:
        # Sums wrap around, and so do their products with alpha. Of -2^31 all lower bits are 0.
        ends = [("integer", 2**30 + 1, 0), ("integer", -(2**31), 0), ("integer", 1, -(2**31))]
        return [("random", 1, 1), ("random", -7, 0), *ends]
    kinds = (
        ("special", 1, 0), ("special", -1, 0), ("special", -2, 1), ("special", 0, 1),
        ("special", 2, -0.0),  # what is in shared memory, and not C, may be NaN
        ("integer", _NAN, 0), ("integer", 1, _NAN), ("integer", _INF, -1), ("integer", 2, -_INF),
        ("subnormal", 1, 0), ("subnormal", -3, 2), ("zeros", 1, 0), ("zeros", -1, 1),
    )  # fmt: skip
    bends = spec.fused or spec.epilogue.endswith("gelu")
    # GELU of what is a large negative number in the oracle, and infinite in D, is 0 in one, NaN in
    # the other.
    bounded = not spec.epilogue.endswith("gelu")
    # Rounded once, where D has the type of alpha.
    once = bounded and spec.dtypes.output == spec.dtypes.scalar
    # Sums that D's type rounds; those in f16 are rounded as they are.
    narrow = spec.dtypes.output.size < spec.dtypes.accumulator.size
    unit = brink_unit(spec.dtypes.output.name)  # 0 of f64: nothing holds what is beyond
    all_bits = not spec.dtypes.input.is_fp8  # whose sums have fewer than f32
    # What takes the largest input next to the end of alpha's type, and of D's.
    end = min((spec.dtypes.scalar, spec.dtypes.output), key=lambda one: one.size).name
    near = 2.0 ** int(math.log2(numerics.largest(end) / numerics.largest(spec.dtypes.input.name)))
    return (
        *kinds,
        # Many results where GELU bends, and some where exp leaves what floats hold.
        *(("random", 2, 0),) * bool(bends),
        *(("random", 40, 0),) * bool(spec.fused),
        *(("huge", near, 0), ("huge", -near, 0)) * (not bounded),
        *(("residual", 1, 1), ("residual", -2, -2)) * narrow,
        *(("overflowing", 1, 0), ("overflowing", -1, 1)) * bounded,
        *(("brink", unit, 1),) * (bounded and unit > 0),
        *(("brink", unit, 0),) * (bounded and narrow and all_bits),
        *(("rounded", 1 / 3, 0), ("rounded", 1, 1)) * once,
        *(("long", 1, 0), ("long", -2, 0), ("opposed", 1, 0)) * (spec.dtypes.parts > 1),
        *(("faint", 1, 0), ("faint", -1, 0)) * (spec.dtypes.parts > 1),
    )


def cases(spec: KernelSpec) -> list[tuple[str, float, float]]:
    """All inputs and scalars: kind, alpha and beta."""
    ordinary = [("integer", alpha, beta) for alpha, beta in SCALARS]
    return [*ordinary, *beyond(spec.dtypes), *_special(spec)]


# -- where matrices lie ----------------------------------------------------------------------------


class Placement(NamedTuple):
    """Leading dimensions and addresses: see `GemmProblem.packed`.

    longer: elements that each operand's lines are further apart than that. further: elements that
    the matrices of a batch are further apart than `GemmProblem.batched` has them.
    """

    padding: int = 0
    multiple: int = 1
    skips: Skips = NO_SKIPS
    longer: Skips = NO_SKIPS
    further: Skips = NO_SKIPS

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

    def batched(
        self, problem: GemmProblem, layouts: Layouts, count: int, shared: str, shifted: str = ""
    ) -> GemmProblem:
        """So many of them; of the matrices that are `shared`, all have the same.

        Those that are `shifted` overlap: each begins an element, or a unit, behind the one before.
        """
        found = problem.batched(layouts, count, self.padding, shared, self.multiple)
        strides = (
            stride and (self.multiple if name in shifted else stride) + more
            for name, stride, more in zip("ABCD", found.batch[1:], self.further, strict=False)
        )
        return replace(found, batch=Batch(count, *strides))


PACKED = Placement()
# Everything in whole units, of which as many elements are some, however small they are.
WHOLE = Placement(UNIT, UNIT)
RAGGED = Placement(3, skips=Skips(1, 1, 1, 1, 1))  # nothing is


def placements(spec: KernelSpec) -> list[Placement]:
    """Everything aligned; one operand's address, or its lines, off by a power of two of bytes."""
    found = [WHOLE, RAGGED, PACKED]
    input_, output = spec.dtypes.input.size, spec.dtypes.output.size
    sizes = {"a": input_, "b": input_, "c": output, "d": output}
    if spec.has_bias:
        sizes["bias"] = output
    for (name, size), bytes_ in itertools.product(sizes.items(), (1, 2, 4, 8)):
        if bytes_ >= size:
            off = Skips(**{name: bytes_ // size})
            found.append(WHOLE._replace(skips=off))
            found += [WHOLE._replace(longer=off)] * (name != "bias")
            found += [WHOLE._replace(further=off)] * (name in spec.several.strided)
    return found


# A multiple of 3, 5, 7, 9, 15 and 17, and of no power of two.
ODD = 3 * 3 * 5 * 7 * 17


def odd_placements(spec: KernelSpec, shape: GemmShape) -> Iterator[Placement]:
    """Everything aligned, but lines of one operand, or its matrices in a batch: they are ODD apart.

    Or an odd multiple of that: whoever takes a multiple of 9 or 7 for one of 8 is wrong there.
    """
    whole = WHOLE.problem(shape, spec.layouts, 1, 0)
    apart = dict(zip("abcd", (whole.lda, whole.ldb, whole.ldc, whole.ldd), strict=True))
    for name, ld in apart.items():
        yield WHOLE._replace(longer=Skips(**{name: (ODD - ld) % (2 * ODD)}))
    strides = WHOLE.batched(whole, spec.layouts, 2, "").batch[1:]
    for name, stride in zip("abcd", strides, strict=True):
        if name in spec.several.strided:
            yield WHOLE._replace(further=Skips(**{name: (ODD - stride) % (2 * ODD)}))


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
    if spec.dtypes.parts > 1:  # small integers have leading parts alone
        cases.append(("long", (1, 0), PACKED))
    line = shape.n if spec.layouts.c else shape.m
    if planned and line % UNIT == 0:
        cases += [
            ("integer", (2, -1), WHOLE._replace(skips=RAGGED.skips)),
            ("integer", (3, -2), Placement(UNIT - 2)),
            ("integer", (1, -2), Placement(UNIT)),
        ]
    return [trial(spec, shape, kind, scalars, where) for kind, scalars, where in cases]


def trial(
    spec: KernelSpec,
    shape: GemmShape,
    kind: str,
    scalars: tuple[float, float],
    where: Placement,
    ends: tuple[int, ...] = (),
) -> Trial:
    """A trial on any GPU, with C apart from D.

    Where groups end is drawn if there are no `ends`. Of a batched kernel, how many products there
    are, and what they share, is drawn: with the same shape and the same scalars, now this and now
    that. An epilogue's own matrices have leading dimensions of their own where there are gaps; its
    numbers are drawn.
    """
    problem = where.problem(shape, spec.layouts, *scalars)
    draw = random.Random(f"{shape} {kind} {scalars} {where}")
    if spec.grouped_k:
        most = most_groups(spec, shape, draw)
        ends = ends or draw_ends(shape.k, spec.threadblock.k, most, draw)
        one = draw.random() < _BESIDE and kind in _DRAWN_APART
        problem = where.batched(problem, spec.layouts, len(ends), "ABC" if one else "AB")
        problem = replace(problem, ends_k=ends)
    elif spec.grouped:
        most = most_groups(spec, shape, draw)
        ends = ends or draw_ends(shape.m, spec.threadblock.m, most, draw)
        one = draw.random() < _BESIDE and kind in _DRAWN_APART
        batch = where.batched(problem, spec.layouts, len(ends), "B" if one else "").batch
        problem = replace(problem, batch=Batch(len(ends), stride_b=batch.stride_b), ends=ends)
    elif spec.batched:
        shared = draw.choice(_SHARED) if kind in _DRAWN_APART else ""
        shifted = draw.choice(_SHIFTED) if kind in _DRAWN_APART else ""
        count = draw.choice(_COUNTS)
        if draw.random() < _BESIDE and where.further == NO_SKIPS:
            problem = problem.side_by_side(count, shared)
        else:
            problem = where.batched(problem, spec.layouts, count, shared, shifted)
    own: list[tuple[str, float]] = []
    draw = random.Random(f"numbers {shape} {kind} {scalars} {where}")
    numbers = _numbers(spec.dtypes, kind)
    for i, operand in enumerate(spec.operands):
        if operand.index == MATRIX:
            own.append((operand.ld, problem.ldd + (3 * i + 1) * (where.padding > 0)))
        elif not operand.index:
            own.append((operand.name, draw.choice(numbers)))
    return Trial(replace(problem, operands=tuple(own)), kind, where.skips)


def _numbers(dtypes: DTypes, kind: str) -> Sequence[float]:
    """What an epilogue's own numbers are: of both signs, some that only alpha's type holds."""
    if not dtypes.scalar.is_float:
        return (3, -2, 0, 65_537, -(2**24) - 1)
    long = 1 + 2.0**-40 if dtypes.scalar.size == 8 else 1 + 2.0**-20
    return (3, -2, 0, -0.3, long, *((_NAN, _INF, -_INF) if kind == "special" else ()))


_COUNTS = (2, 3, 2, 1)  # of products
MOST_PRODUCTS = 6  # of a batch, or of groups whose matrices are large
_BESIDE = 0.2  # of the batches lie in the same lines
_SHARED = ("", "", "A", "B", "C", "AB")  # matrices that these have together
_SHIFTED = ("", "", "A", "B", "C", "ABC")  # and those that overlap
_DRAWN_APART = ("integer", "random")  # inputs that fit any others'
