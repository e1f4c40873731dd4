"""Calls of a launcher: problems of all sizes on several GPUs, and each that is to be refused."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gen.kernels.launches import BIAS, WORKSPACE
from gen.kernels.tensor_cores.facts import STEPS_A_SLICE
from gen.kernels.tensor_cores.operands import operands
from gen.prove.launchers.batches import batches, groups, groups_k
from gen.prove.launchers.call import Call, with_own
from gen.prove.launchers.refusals import refusals, refusals_of_own
from gen.prove.trials import SCALARS
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmProblem, GemmShape

# alpha and beta that only their own type holds, and no shorter one.
_LONG = {
    "f32": ((1 + 2.0**-23, 2.0**-100), (-(2.0**100), 1 - 2.0**-24)),
    "f64": ((0.1, -1 / 3), (1e300, 1e-300), (1 + 2.0**-52, 0)),
    "i32": ((2**31 - 1, -(2**31)), (2**24 + 1, -(2**25) - 3)),
}


def calls(spec: KernelSpec, count: int = 400) -> list[Call]:
    """Problems of all sizes on several GPUs, and each that is to be refused.

    First comes a driver without TMA: what it lacks is looked up again.
    """
    first = Call(GemmProblem.packed(GemmShape(100, 70, 600), spec.layouts, 2, -1), no_tma=True)
    some = itertools.islice(_problems(spec), count)
    found = [first, *some, *_placed(spec), *_sliced(spec), *refusals(spec), *_largest(spec)]
    found += _in_pieces(spec)
    found += itertools.islice(_together(spec), count // 2)
    found += itertools.islice(_long(spec), count // 2)
    if spec.batched:
        found = [*found, *batches(spec, found)]
    if spec.grouped_k:
        found = [*found, *groups_k(spec, found)]
    elif spec.grouped:
        found = [*found, *groups(spec, found)]
    return [*(with_own(spec, call) for call in found), *refusals_of_own(spec, count)]


def _problems(spec: KernelSpec) -> Iterator[Call]:
    draw = random.Random(0)
    tile, size = spec.threadblock, spec.dtypes.output.size
    most = 3 * 10**4 if spec.row.takes_workspace else 10**7
    while True:
        m, n, k = (
            draw.choice((1, side, draw.randint(1, 5) * side + draw.randint(-1, 1),
                         draw.randint(1, 5000), draw.randint(1, most)))
            for side in tile
        )  # fmt: skip
        shape = GemmShape(max(m, 1), max(n, 1), draw.choice((0, max(k, 1), max(k, 1))))
        alpha, beta = draw.choice((*SCALARS, *_LONG[spec.dtypes.scalar.name]))
        padding = draw.choice((0, 0, 1, 8, 16, 100))
        problem = GemmProblem.packed(shape, spec.layouts, alpha, beta, padding)
        if draw.random() < 0.3:
            problem = replace(problem, lda=problem.lda + 3, ldd=problem.ldd + 5)
        a, b, c, d = (draw.choice((0, 0, 0, 16, size, 4 * size)) for _ in range(4))
        count = draw.choice((1, 2, 7, 84, 108, 132, 148))
        device, capturing = draw.choice((0, 1)), draw.random() < 0.2
        call = Call(problem, (a, b, c, d), multiprocessors=count)
        if in_place := draw.random() < 0.2:
            call = replace(call, problem=replace(problem, ldc=problem.ldd), skips=(a, b, d, d))
        yield replace(call, current=device, capturing=capturing, in_place=in_place)


def _long(spec: KernelSpec) -> Iterator[Call]:
    """One or two sizes of any number of digits: where a limit of a grid, or of 32 bits, is met."""
    draw = random.Random(3)
    digits = math.log2(spec.row.most) if spec.row.takes_workspace else 43
    while True:
        sizes = [draw.choice((1, 3, side, 5 * side + 1)) for side in spec.threadblock]
        for axis in draw.sample(range(3), draw.choice((1, 1, 2))):
            sizes[axis] = int(2 ** draw.uniform(12, digits))
        padding, multiple = draw.choice((0, 1, 3, 8)), draw.choice((1, 16))
        shape = GemmShape(*sizes)
        p = GemmProblem.packed(shape, spec.layouts, 2, draw.choice((0, -1)), padding, multiple)
        size = spec.dtypes.input.size
        skips = (draw.choice((0, size)), draw.choice((0, size)), 0, 0)
        yield Call(p, skips, multiprocessors=draw.choice((1, 7, 108, 132)))


def _together(spec: KernelSpec) -> Iterator[Call]:
    """One or two things that may be refused, where others may excuse them.

    A check that stands behind the wrong condition shows where that is not met.
    """
    draw = random.Random(1)
    nulls, lines = ("A", "B", "C", "D", BIAS, WORKSPACE), ("lda", "ldb", "ldc", "ldd")
    while True:
        m, n, k = (draw.choice((1, 2, 64, 100, 640)) for _ in range(3))
        alpha, beta, k = draw.choice((0, 1, 2)), draw.choice((0, 0, 1, -1)), draw.choice((0, k, k))
        p = GemmProblem.packed(GemmShape(m, n, k), spec.layouts, alpha, beta)
        in_place = draw.random() < 0.5
        bad = draw.sample((*nulls, *lines), draw.choice((1, 1, 2)))
        if in_place:  # what is wrong with one is wrong with the other
            bad += [{"D": "C", "C": "D"}[name] for name in bad if name in "CD"]
            p = replace(p, ldc=p.ldd)
        changed: dict[str, Any] = {
            name: draw.choice((getattr(p, name) - 1, 0, -1, 2**45)) for name in lines if name in bad
        }
        if in_place and (one := changed.get("ldd", changed.get("ldc"))) is not None:
            changed |= {"ldc": one, "ldd": one}
        skip = draw.choice((0, 0, 1, 16)) * spec.dtypes.input.size
        yield Call(
            replace(p, **changed),
            (skip, draw.choice((0, skip)), 0, 0),
            without=" ".join(name for name in nulls if name in bad),
            in_place=in_place,
            no_bytes=draw.random() < 0.1,
        )


def _placed(spec: KernelSpec) -> Iterator[Call]:
    """One address, or one leading dimension, off by a power of two of bytes."""
    size = spec.dtypes.input.size, spec.dtypes.output.size
    for m, n, k in (
        (128, 256, 640),
        (1, 256, 640),
        (128, 1, 640),
        (2**20, 64, 2**12),
        (64, 2**20, 2**12),
    ):
        p = GemmProblem.packed(GemmShape(m, n, k), spec.layouts, 2, -1, 0, 16)
        for at, bytes_ in itertools.product(range(4), (1, 2, 4, 8, 16)):
            if bytes_ < size[at > 1]:
                continue
            skips = [0, 0, 0, 0]
            skips[at] = bytes_
            yield Call(p, (skips[0], skips[1], skips[2], skips[3]))
            name = ("lda", "ldb", "ldc", "ldd")[at]
            longer: dict[str, Any] = {name: getattr(p, name) + bytes_ // size[at > 1]}
            yield Call(replace(p, **longer))


def _sliced(spec: KernelSpec) -> Iterator[Call]:
    """As many slices of K as tiles of D, fewer and more of them, where there is a choice."""
    if spec.split_k == 1 or not spec.row.takes_workspace:
        return
    m, n, k = spec.threadblock
    for slices in (1, 2, 3, 4, 16, 17, 33, 64, 65, 66, 130):
        for tiles in dict.fromkeys((1, 2, 3, slices)):
            shape = GemmShape(m * tiles, n, STEPS_A_SLICE * k * slices)
            problem = GemmProblem.packed(shape, spec.layouts, 2, -1, 0, 16)
            yield Call(problem, multiprocessors=slices * tiles)
            yield Call(problem)


def _largest(spec: KernelSpec) -> Iterator[Call]:
    """Around the largest grids, and what has as many blocks in 32 bits as a small one.

    A cluster's tiles count as one.
    """
    m, n = (side * blocks for side, blocks in zip(spec.threadblock[:2], spec.cluster, strict=True))
    counts = dict.fromkeys((spec.most_work, spec.most_work + 1, 2**31 - 1, 2**31, 2**32 + 1))
    blocks = [math.prod(spec.threads)] if not spec.row.takes_workspace else []
    shapes = {(count * step, 1) for count in counts for step in (m, n, *blocks)}
    for rows, count in itertools.product((2**20, 2**22), (*counts, 2**32)):
        tiles = -(-rows // m)
        shapes |= {(rows, (count // tiles + more) * n) for more in (-1, 0, 1)}
    for rows, columns in sorted(shapes):
        for shape in (GemmShape(rows, columns, 1), GemmShape(columns, rows, 1)):
            yield Call(GemmProblem.packed(shape, spec.layouts, 2, -1))


def _in_pieces(spec: KernelSpec) -> Iterator[Call]:
    """One operand is packed in more pieces than 31 bits count, the other one in few."""
    for x in operands(spec) if spec.packs else []:
        depth = 2**18 + 1  # odd, as `many`: lines are not all aligned
        many = 3 * 2**30 * math.prod(x.packed_by_block) // 2**18 + 1
        m, n = (many, 1) if x.matrix == "A" else (1, many)
        yield Call(GemmProblem.packed(GemmShape(m, n, depth), spec.layouts, 2, -1))
