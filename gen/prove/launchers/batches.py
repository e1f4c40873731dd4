"""Calls of launchers that compute batches and groups."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from gen.kernels.launches import OFFSETS
from gen.prove.launchers.call import Call
from gen.prove.trials import c_is_d
from gen.spec.kernel import KernelSpec
from gen.spec.problem import Batch, GemmProblem, GemmShape


def batches(spec: KernelSpec, others: Sequence[Call]) -> Iterator[Call]:
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
    most = spec.most_work  # products of one tile each
    for count in (-1, -(2**63), most, most + 1, 2**31 - 1, 2**31, 2**40, 2**62):
        yield Call(p.batched(spec.layouts, count))
        if count < 0:
            yield Call(p.batched(spec.layouts, count, shared="ABCD"))
        elif spec.row.takes_workspace:  # others launch them all
            yield Call(small.batched(spec.layouts, count))
    if spec.row.takes_workspace:
        long = GemmProblem.packed(GemmShape(64, 64, 2**28), spec.layouts, 2, -1)
        overlapping = long.batched(spec.layouts, 2**30, shared="ABC")
        for a, b in ((1, 0), (0, 1)):  # copies of more bytes than 64 bits count
            batch = overlapping.batch._replace(stride_a=a, stride_b=b)
            yield Call(replace(overlapping, batch=batch))
    for name, count in itertools.product("abcd", (1, 2, 1024)):
        near = 2**44 // count
        for value in (-1, -(2**63), 0, 1, near, near + 1, 2**63 - 1):
            some = p.batched(spec.layouts, count)
            changed: dict[str, Any] = {f"stride_{name}": value}
            read = replace(some, batch=some.batch._replace(**changed))
            yield Call(read)
            yield Call(read, in_place=True)  # which excuses nothing
            yield Call(replace(read, shape=GemmShape(100, 70, 0), beta=0))
    whole = GemmProblem.packed(GemmShape(128, 64, 640), spec.layouts, 2, -1, 0, 16)
    aligned = whole.batched(spec.layouts, 3, multiple=16)
    for at, bytes_ in itertools.product(range(4), (1, 2, 4, 8)):  # one stride is off by them
        size = (spec.dtypes.input if at < 2 else spec.dtypes.output).size
        if bytes_ >= size:
            off: dict[str, Any] = {f"stride_{'abcd'[at]}": aligned.batch[at + 1] + bytes_ // size}
            yield Call(replace(aligned, batch=aligned.batch._replace(**off)))
    length = 70 if spec.layouts.c else 100
    for count, ldd in ((2, length), (2, 2 * length), (3, 3 * length + 2), (3, 3 * length - 1)):
        longer = replace(p, ldd=ldd)
        extent = longer.extent("D", spec.layouts)  # of one product: the next begins behind it
        ends = (extent - length, extent - length + 1, extent - 1, extent, (extent - length) * 3)
        for stride in (length - 1, length, length + 1, *ends):
            batch = longer.batched(spec.layouts, count).batch._replace(stride_d=stride)
            yield Call(replace(longer, batch=batch))


def groups(spec: KernelSpec, others: Sequence[Call]) -> Iterator[Call]:
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
    wide = GemmProblem.packed(GemmShape(128, 2**16, 2**17), spec.layouts, 2, -1)
    # Copies of more bytes than 64 bits count.
    yield Call(replace(wide, batch=Batch(2**30, stride_b=1)))
    yield from _many_groups(spec)
    yield from _without_offsets(p)


def _many_groups(spec: KernelSpec) -> Iterator[Call]:
    """So many with so many rows that they, times a tile's, leave 32 bits; the most work tiles."""
    some, most = 2**26 + 5, spec.most_work
    for rows, count in (
        (some, some), (some, 4 * some), (4 * some, some), (most, most), (most + 1, most + 1)
    ):  # fmt: skip
        line = GemmProblem.packed(GemmShape(rows, 1, 1), spec.layouts, 2, -1)
        yield Call(replace(line, batch=Batch(count, stride_b=1)))


def groups_k(spec: KernelSpec, others: Sequence[Call]) -> Iterator[Call]:
    """Groups along K: what a batch is tried with, whose products have the same A and B."""
    for call in batches(spec, others):
        batch = call.problem.batch._replace(stride_a=0, stride_b=0)
        yield replace(call, problem=replace(call.problem, batch=batch))
    small = GemmProblem.packed(GemmShape(1, 1, 600), spec.layouts, 2, -1)
    for count in (2**31 - 4096, 2**31 - 4095):
        yield Call(replace(small, batch=Batch(count, stride_c=1, stride_d=1)))
    yield from _without_offsets(GemmProblem.packed(GemmShape(100, 70, 600), spec.layouts, 2, -1))


def _without_offsets(problem: GemmProblem) -> Iterator[Call]:
    for sizes in (None, (0, 70, 600), (100, 70, 0)):
        yield Call(problem, without=OFFSETS, sizes=sizes)
