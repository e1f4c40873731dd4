"""Problems made of the numbers that edited statements name, to reach what only these reach."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, replace
from typing import Any

from gen.kernels.formulas import ceil_div
from gen.prove.stand import WATCHED, Outcome, Stand
from gen.prove.trials import PACKED, WHOLE, Trial, trial
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmShape

_MOST_NUMBERS = 12
_MOST_SIDE = 2**17
_MOST_ELEMENTS = 4 * 10**6  # of a matrix, with what is between its lines
_MOST_WORK = {False: 2 * 10**7, True: 5 * 10**7}  # products, on CUDA cores and on tensor cores
_SMALL = GemmShape(3, 5, 6)


def reach(stand: Stand) -> Iterator[tuple[Trial, Outcome]]:
    """Runs what shows new outcomes of a kernel's conditions, until they have had all of them."""
    probed = stand.probed
    for one in reaching_trials(stand.spec, probed.edited.numbers) if probed else ():
        if not probed or not probed.missing(stand.outcomes.seen):
            return
        if stand.probe(one):
            p = one.problem
            whole = WHOLE.problem(p.shape, stand.spec.layouts, p.alpha, p.beta)
            for problem in (p, whole):  # what starts in whole units may be computed apart
                same = replace(one, problem=problem)
                yield same, stand.run([same])[0]


def literal(text: str) -> float | None:
    """The value of a number in C++; None for what is none."""
    digits = text.replace("'", "").rstrip("uUlL")
    try:
        if digits[:2] in ("0x", "0X", "0b", "0B"):
            return int(digits, 0)
        if digits.isdigit():
            return int(digits, 8) if digits[0] == "0" and len(digits) > 1 else int(digits)
        return float(digits.rstrip("fF"))
    except ValueError:
        return None


def values(literals: Iterable[str]) -> list[float]:
    """The values of numbers in C++, of the first ones if they are many."""
    found = dict.fromkeys(literal(text) for text in literals)
    return [n for n in found if n is not None and math.isfinite(n)][:_MOST_NUMBERS]


def reaching_trials(spec: KernelSpec, literals: Sequence[str]) -> Iterator[Trial]:
    """Each number as a size, as what follows one, as a tile's or a step's, as an address's ...

    ... as a leading dimension, as alpha and beta; then two of them at once.
    """
    numbers = values(literals)
    whole = [int(n) for n in numbers if n == int(n) and 0 < n < _MOST_ELEMENTS]
    trials = itertools.chain(
        _sizes(spec, whole),
        *(_lines(spec, _SMALL, n) for n in whole),
        _scalars(spec, _SMALL, numbers),
        _together(spec, whole, numbers),
    )
    for one in dict.fromkeys(trials):
        if one is not None:
            yield replace(one, watched=max(astuple(one.shape)) <= WATCHED)


def _sizes(spec: KernelSpec, numbers: Sequence[int]) -> Iterator[Trial | None]:
    tile = spec.threadblock
    for n, more in itertools.product(numbers, (0, 1, -1)):
        yield from _along(spec, (n + more,) * 3)
    for n in numbers:
        yield _problem(spec, GemmShape(n, n, n))
        # As many tiles or steps, and one of that number, from 0.
        for count in (n, n + 1):
            yield from _along(spec, (count * tile.m, count * tile.n, count * tile.k))
    for one, other in itertools.permutations(numbers, 2):
        yield from _along(spec, (one + other,) * 3)


def _along(spec: KernelSpec, sizes: tuple[int, int, int]) -> Iterator[Trial | None]:
    """Each along its own axis, with little along the others, and on a GPU of one multiprocessor."""
    for axis, size in enumerate(sizes):
        shape = [_SMALL.m, _SMALL.n, _SMALL.k]
        shape[axis] = size
        yield _problem(spec, GemmShape(*shape))
    if spec.row.persistent or spec.stream_k:
        for few in (GemmShape(sizes[0], 5, 6), GemmShape(3, sizes[1], 6)):
            if one := _problem(spec, few):
                yield replace(one, multiprocessors=1)


def _problem(
    spec: KernelSpec, shape: GemmShape, alpha: float = 3, beta: float = -2
) -> Trial | None:
    """A problem, if it takes no minutes."""
    sizes = (shape.m, shape.n, shape.k)
    work = math.prod(
        ceil_div(size, step) * step for size, step in zip(sizes, spec.threadblock, strict=True)
    )
    if min(sizes) < 0 or max(sizes) > _MOST_SIDE or work > _MOST_WORK[spec.warp is not None]:
        return None
    exact = all(n == int(n) and abs(n) < 2**20 for n in (alpha, beta))
    kind = "integer" if exact else "random"
    if not exact and not spec.dtypes.scalar.is_float:
        return None
    return trial(spec, shape, kind, (alpha, beta), PACKED)


def _lines(spec: KernelSpec, shape: GemmShape, n: int) -> Iterator[Trial | None]:
    """Leading dimensions of a number: all of them, and each alone."""
    one = trial(spec, shape, "integer", (3, -2), WHOLE)
    p = one.problem
    names = [name for name in ("lda", "ldb", "ldc", "ldd") if n >= _shortest(spec, shape)[name]]
    if n * max(shape.m, shape.n, shape.k) > _MOST_ELEMENTS or not names:
        return
    for some in (names, *([name] for name in names)):
        longer: dict[str, Any] = dict.fromkeys(some, n)
        problem = replace(p, **longer)
        if "d" in spec.several.strided:  # which may have lain beside each other
            shared = "" if spec.batched else "AB"
            problem = problem.batched(spec.layouts, p.batch.products, shared=shared)
        yield replace(one, problem=problem)


def _shortest(spec: KernelSpec, shape: GemmShape) -> dict[str, int]:
    packed = trial(spec, shape, "integer", (3, -2), PACKED).problem
    return {name: getattr(packed, name) for name in ("lda", "ldb", "ldc", "ldd")}


def _scalars(
    spec: KernelSpec, shape: GemmShape, numbers: Iterable[float]
) -> Iterator[Trial | None]:
    for n in (sign * n for n in numbers for sign in (1, -1)):
        for alpha, beta in ((n, -2), (3, n), (n, n), (n, 0)):
            yield _problem(spec, shape, alpha, beta)


def _together(
    spec: KernelSpec, whole: Sequence[int], numbers: Sequence[float]
) -> Iterator[Trial | None]:
    """Two numbers: as two sizes, as a size and leading dimensions, as a size and a scalar."""
    for one, other in itertools.permutations(whole, 2):
        for shape in (GemmShape(one, other, 6), GemmShape(3, one, other), GemmShape(one, 5, other)):
            yield _problem(spec, shape)
    for size in whole:
        for shape in (GemmShape(size, 5, 6), GemmShape(3, size, 6), GemmShape(3, 5, size)):
            if _problem(spec, shape):
                for n in whole:
                    yield from itertools.islice(_lines(spec, shape, n), 1)
                for value in numbers:
                    yield _problem(spec, shape, value)
                    yield _problem(spec, shape, 3, value)
