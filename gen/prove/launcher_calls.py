"""Calls of a launcher: problems of all sizes on several GPUs, and each that is to be refused."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from gen.kernels.launches import BIAS, OFFSETS, WORKSPACE
from gen.kernels.tensor_cores.facts import STEPS_A_SLICE
from gen.prove.launcher_call import ADDRESSES, Call
from gen.prove.trials import SCALARS, c_is_d
from gen.spec.epilogue import MATRIX
from gen.spec.kernel import KernelSpec
from gen.spec.problem import Batch, GemmProblem, GemmShape

_LINES = (0, -1, 69, 70, 99, 100, 2**38, 2**44, 2**63 - 1)

# alpha and beta that only their own type holds, and no shorter one.
_LONG = {
    "f32": ((1 + 2.0**-23, 2.0**-100), (-(2.0**100), 1 - 2.0**-24)),
    "f64": ((0.1, -1 / 3), (1e300, 1e-300), (1 + 2.0**-52, 0)),
    "i32": ((2**31 - 1, -(2**31)), (2**24 + 1, -(2**25) - 3)),
}

# An epilogue's own numbers, which are whole.
_NUMBER = {"f32": 2**20 + 1, "f64": 2**40 + 1, "i32": 2**24 + 1}


def calls(spec: KernelSpec, count: int = 400) -> list[Call]:
    """Problems of all sizes on several GPUs, and each that is to be refused.

    First comes a driver without TMA: what it lacks is looked up again.
    """
    first = Call(GemmProblem.packed(GemmShape(100, 70, 600), spec.layouts, 2, -1), no_tma=True)
    some = itertools.islice(_problems(spec), count)
    found = [first, *some, *_placed(spec), *_sliced(spec), *_refusals(spec), *_largest(spec)]
    if spec.batched:
        found = [*found, *_batches(spec, found)]
    if spec.grouped_k:
        found = [*found, *_groups_k(spec, found)]
    elif spec.grouped:
        found = [*found, *_groups(spec, found)]
    return [*(with_own(spec, call) for call in found), *_own_refusals(spec)]


def with_own(spec: KernelSpec, call: Call) -> Call:
    """The same with values of the user's own operands; each matrix's lines are apart otherwise."""
    ldd = call.problem.ldd
    values: list[tuple[str, float]] = []
    for i, operand in enumerate(spec.operands):
        if operand.index == MATRIX:
            values.append((operand.ld, min(ldd + (ldd > 0) * i, 2**63 - 1)))
        elif not operand.index:
            values.append((operand.name, _NUMBER[spec.dtypes.scalar.name] + i))
    names = tuple(
        name
        for operand in spec.operands
        for name in (operand.name, operand.ld)[: 1 + (operand.index == MATRIX)]
    )
    return replace(call, problem=replace(call.problem, operands=tuple(values)), fused=names)


def _own_refusals(spec: KernelSpec) -> Iterator[Call]:
    """The user's own operands: each null, or with lines that are too short, or too long."""
    good = with_own(spec, Call(GemmProblem.packed(GemmShape(100, 70, 600), spec.layouts, 2, -1)))
    for operand in spec.operands:
        if not operand.index:
            continue
        for sizes in ((100, 70, 600), (100, 70, 0), (100, 0, 600)):  # read where K is 0, too
            yield replace(good, without=operand.name, sizes=sizes)
        for ld in _LINES if operand.index == MATRIX else ():
            values = {**dict(good.problem.operands), operand.ld: ld}
            yield replace(good, problem=replace(good.problem, operands=tuple(values.items())))


def _batches(spec: KernelSpec, others: Sequence[Call]) -> Iterator[Call]:
    """Batches of other calls' problems; strides that are refused, and that come close to it."""
    draw = random.Random(0)
    for call in others:
        count = draw.choice((0, 1, 2, 3, 7, 65_535, 65_536, 200_000, draw.randint(1, 10**6)))
        gap, multiple = draw.choice((0, 1, 8, 100)), draw.choice((1, 16))
        shared = draw.choice(("", "", "A", "B", "C", "ABC"))
        problem = call.problem.batched(spec.layouts, count, gap, shared, multiple)
        if call.no_tma or max(problem.batch) >= 2**63:  # the TMA is looked up but once
            continue
        yield replace(call, problem=c_is_d(problem) if call.in_place else problem)
    p = GemmProblem.packed(GemmShape(100, 70, 600), spec.layouts, 2, -1)
    small = GemmProblem.packed(GemmShape(1, 1, 1), spec.layouts, 2, -1)  # no stride is too long
    for count in (-1, -(2**63), 2**31, 2**40, 2**62):
        yield Call(p.batched(spec.layouts, count))
        if count < 0:
            yield Call(p.batched(spec.layouts, count, shared="ABCD"))
        elif spec.row.takes_workspace:  # others launch them all
            yield Call(small.batched(spec.layouts, count))
    for name, count in itertools.product("abcd", (1, 2, 1024)):
        near = 2**44 // count
        for value in (-1, -(2**63), 0, 1, near, near + 1, 2**63 - 1):
            some = p.batched(spec.layouts, count)
            changed: dict[str, Any] = {f"stride_{name}": value}
            read = replace(some, batch=some.batch._replace(**changed))
            yield Call(read)
            yield Call(replace(read, shape=GemmShape(100, 70, 0), beta=0))
    whole = GemmProblem.packed(GemmShape(128, 64, 640), spec.layouts, 2, -1, 0, 16)
    aligned = whole.batched(spec.layouts, 3, multiple=16)
    for at, bytes_ in itertools.product(range(4), (1, 2, 4, 8)):  # one stride is off by them
        size = (spec.dtypes.input if at < 2 else spec.dtypes.output).size
        if bytes_ >= size:
            off: dict[str, Any] = {f"stride_{'abcd'[at]}": aligned.batch[at + 1] + bytes_ // size}
            yield Call(replace(aligned, batch=aligned.batch._replace(**off)))
    length = 70 if spec.layouts.c else 100
    extent = p.extent("D", spec.layouts)
    for count, ldd in ((2, 2 * length), (3, 3 * length + 2), (3, 3 * length - 1)):
        for stride in (length - 1, length, length + 1, extent - 1, extent, (extent - length) * 3):
            longer = replace(p, ldd=ldd)
            batch = longer.batched(spec.layouts, count).batch._replace(stride_d=stride)
            yield Call(replace(longer, batch=batch))


def _groups(spec: KernelSpec, others: Sequence[Call]) -> Iterator[Call]:
    """Groups of other calls' rows; numbers of them, strides and offsets that are refused."""
    draw = random.Random(0)
    for call in others:
        count = draw.choice((0, 1, 2, 7, 64, 40_000, draw.randint(1, 10**6), 2**31 - 4096))
        gap, shared = draw.choice((0, 1, 8, 100)), draw.choice(("", "", "B"))
        stride = call.problem.batched(spec.layouts, count, gap, shared).batch.stride_b
        if not call.no_tma and stride < 2**62:  # the TMA is looked up but once
            batch = Batch(count, stride_b=stride)
            yield replace(call, problem=replace(call.problem, batch=batch))
    p = GemmProblem.packed(GemmShape(100, 70, 600), spec.layouts, 2, -1)
    for count in (-1, -(2**63), 2**31 - 4096, 2**31 - 4095, 2**40, 2**62):
        yield Call(replace(p, batch=Batch(count, stride_b=1)))
    for count in (1, 2, 1024):
        near = 2**44 // count
        for stride in (-1, -(2**63), 0, 1, near, near + 1, 2**63 - 1):
            yield Call(replace(p, batch=Batch(count, stride_b=stride)))
    yield from _without_offsets(p)


def _groups_k(spec: KernelSpec, others: Sequence[Call]) -> Iterator[Call]:
    """Groups along K: what a batch is tried with, whose products have the same A and B."""
    for call in _batches(spec, others):
        batch = call.problem.batch._replace(stride_a=0, stride_b=0)
        yield replace(call, problem=replace(call.problem, batch=batch))
    small = GemmProblem.packed(GemmShape(1, 1, 600), spec.layouts, 2, -1)
    for count in (2**31 - 4096, 2**31 - 4095):
        yield Call(replace(small, batch=Batch(count, stride_c=1, stride_d=1)))
    yield from _without_offsets(GemmProblem.packed(GemmShape(100, 70, 600), spec.layouts, 2, -1))


def _without_offsets(problem: GemmProblem) -> Iterator[Call]:
    for sizes in (None, (0, 70, 600), (100, 70, 0)):
        yield Call(problem, without=OFFSETS, sizes=sizes)


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
    """Around the largest grids, and what has as many blocks in 32 bits as a small one."""
    m, n, _ = spec.threadblock
    counts = dict.fromkeys((spec.most_work, spec.most_work + 1, 2**31 - 1, 2**31, 2**32 + 1))
    blocks = [math.prod(spec.threads)] if not spec.row.takes_workspace else []
    shapes = {(count * step, 1) for count in counts for step in (m, n, *blocks)}
    for rows, count in itertools.product((2**20, 2**22), (*counts, 2**32)):
        tiles = -(-rows // m)
        shapes |= {(rows, (count // tiles + more) * n) for more in (-1, 0, 1)}
    for rows, columns in sorted(shapes):
        for shape in (GemmShape(rows, columns, 1), GemmShape(columns, rows, 1)):
            yield Call(GemmProblem.packed(shape, spec.layouts, 2, -1))


def _refusals(spec: KernelSpec) -> Iterator[Call]:
    """What is refused, each alone, and what comes close to it."""
    p = GemmProblem.packed(GemmShape(100, 70, 600), spec.layouts, 2, -1)
    good = Call(p)
    yield from (replace(good, without=x) for x in ("A", "B", "C", "D", BIAS, WORKSPACE))
    for name in ("lda", "ldb", "ldc", "ldd"):
        for value in (getattr(p, name) - 1, 0, -1, -(2**63), 2**63 - 1, 2**45, 2**38):
            changed: dict[str, Any] = {name: value}
            yield replace(good, problem=replace(p, **changed))
    lines = GemmProblem.packed(GemmShape(2**10, 2**10, 2**10), spec.layouts, 2, -1)
    for name, more in itertools.product(("lda", "ldb", "ldc", "ldd"), (0, 1)):  # 2^44 elements
        longest: dict[str, Any] = {name: 2**34 + more}
        yield Call(replace(lines, **longest))
    no_c = replace(p, beta=0)
    yield Call(replace(no_c, ldc=0), without="C")
    for big in (-1, -(2**63), 2**31 - 4096, 2**31 - 4095, 2**40, 2**62, 2**63 - 1):
        for at in range(3):
            sizes = [100, 70, 600]
            sizes[at] = big
            m, n, k = sizes
            yield replace(good, sizes=(m, n, k))
            if 0 < big < 2**62:  # leading dimensions that fit it
                fitting = GemmProblem.packed(GemmShape(m, n, k), spec.layouts, 2, -1)
                yield Call(fitting)
    for size in (2**20, 2**22 + 1, 2**31 - 4096, 2**40):
        yield Call(GemmProblem.packed(GemmShape(size, size, 64), spec.layouts, 2, -1))
    for m, n in ((1, 2**36), (2**36, 1), (1, 2**43), (2**43, 1)):  # of one column or row
        yield Call(GemmProblem.packed(GemmShape(m, n, 1), spec.layouts, 2, -1))
    yield from (replace(good, sizes=sizes) for sizes in ((0, 70, 600), (100, 0, 600), (0, -1, 0)))
    odd = replace(good, skips=(spec.dtypes.input.size,) * 2 + (0, 0))
    for at in (1, 16, 128, 255, 256):
        yield replace(odd, workspace=ADDRESSES[WORKSPACE] + at)
    if spec.row.takes_workspace:
        need = odd.plan(spec).workspace_bytes
        yield from (replace(odd, workspace_bytes=n) for n in (0, need - 1, need, need + 1))
    no_sum = GemmProblem.packed(GemmShape(100, 70, 0), spec.layouts, 2, -1)
    yield Call(replace(no_sum, lda=0, ldb=0), without="A B")
    for name in ("A", "B"):
        yield Call(replace(no_sum, lda=0, ldb=0), without=name)
    yield from (Call(no_c, without=name) for name in ("A", "B", "D", BIAS))
    for negative in ((-1, 70, 0), (100, -1, 0), (100, 70, -1), (-1, -1, 0), (-1, -1, -1)):
        yield replace(good, sizes=negative)
        yield Call(replace(no_sum, beta=0, lda=0, ldb=0, ldc=0, ldd=0), sizes=negative)
    nothing = replace(p, lda=0, ldb=0, ldc=0, ldd=0)
    for empty in ((0, 70, 600), (100, 0, 600)):
        yield Call(nothing, sizes=empty, without=f"A B C D {BIAS}")
    for wide in (2**39 + 8, 2**43):  # strides that the TMA does not take
        for name in ("lda", "ldb", "ldd"):
            one: dict[str, Any] = {name: wide}
            for m, n in ((1, 70), (100, 1)):
                shape = GemmProblem.packed(GemmShape(m, n, 8), spec.layouts, 2, 0)
                yield Call(replace(shape, **one))
    whole = Call(GemmProblem.packed(GemmShape(128, 64, 640), spec.layouts, 2, -1))
    for call in (good, whole, odd):
        yield replace(call, no_bytes=True)
        yield replace(call, without=WORKSPACE)
        for at in (8, 255):  # nobody looks at a workspace where none is needed
            yield replace(call, workspace=ADDRESSES[WORKSPACE] + at, workspace_bytes=0)
            yield replace(call, workspace=ADDRESSES[WORKSPACE] + at)
        yield from (replace(call, refused_call=n) for n in range(1, 12))
        yield from (replace(call, refused_call=n, capturing=True) for n in range(1, 6))
    yield from (replace(good, refused_map=n) for n in (1, 2, 3))
    yield replace(good, own=1)
    yield replace(good, own=1, capturing=True)
    yield replace(good, capturing=True)
    yield good
    for error in (701, 209, 98, 719):  # of resources, no code for this GPU, ...
        yield from (replace(odd, refused_launch=n, launch_error=error) for n in (1, 2, 3))
    yield replace(good, null_stream=True)
    yield replace(odd, null_stream=True)
    square = GemmProblem.packed(GemmShape(96, 96, 96), spec.layouts, 2, -1)
    yield Call(square, one_matrix=True)
    if spec.dtypes.scalar.is_float:
        for without in ("", "C"):
            yield Call(replace(p, beta=float("nan")), without=without)
