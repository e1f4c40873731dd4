"""Calls that a launcher refuses, each for one reason, and what comes close to them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gen.kernels.launches import BIAS, WORKSPACE
from gen.prove.launchers.call import ADDRESSES, Call, with_own
from gen.spec.epilogue import MATRIX
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmProblem, GemmShape


def refusals(spec: KernelSpec) -> Iterator[Call]:
    """What is refused, each alone, and what comes close to it."""
    p = GemmProblem.packed(GemmShape(100, 70, 600), spec.layouts, 2, -1)
    good = Call(p)
    yield from (replace(good, without=x) for x in ("A", "B", "C", "D", BIAS, WORKSPACE))
    for name in ("lda", "ldb", "ldc", "ldd"):
        for value in (getattr(p, name) - 1, 0, -1, -(2**63), 2**63 - 1, 2**45, 2**38):
            changed: dict[str, Any] = {name: value}
            yield replace(good, problem=replace(p, **changed))
            yield replace(good, problem=replace(p, **changed), in_place=True)
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
    for size in (2**20, 2**22, 2**22 + 1, 2**31 - 4096, 2**40):
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
    for one_of in ((1, 70, 600), (100, 1, 600), (100, 70, 1), (1, 1, 1)):
        least = Call(GemmProblem.packed(GemmShape(*one_of), spec.layouts, 2, -1))
        yield from (replace(least, without=name) for name in ("A", "B", "C", "D"))
        for name in ("lda", "ldb", "ldc", "ldd"):
            shorter: dict[str, Any] = {name: getattr(least.problem, name) - 1}
            yield replace(least, problem=replace(least.problem, **shorter))
    yield from (Call(no_c, without=name) for name in ("A", "B", "D", BIAS))
    for negative in (
        (-1, 70, 0), (100, -1, 0), (100, 70, -1), (-1, -1, 0), (-1, -1, -1),
        (-1, 0, 600), (0, -1, 600), (0, 70, -1), (100, 0, -1),
    ):  # fmt: skip
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
    short = Call(GemmProblem.packed(GemmShape(128, 64, 16), spec.layouts, 2, -1))  # one slice of K
    for call in (good, whole, odd, short):
        yield replace(call, no_bytes=True)
        yield replace(call, without=WORKSPACE)
        for at in (8, 255):  # nobody looks at a workspace where none is needed
            yield replace(call, workspace=ADDRESSES[WORKSPACE] + at, workspace_bytes=0)
            yield replace(call, workspace=ADDRESSES[WORKSPACE] + at)
        yield from (replace(call, refused_call=n) for n in range(1, 12))
        yield from (replace(call, refused_call=n, capturing=True) for n in range(1, 6))
    yield from (replace(good, refused_map=n) for n in (1, 2, 3))
    yield replace(good, own=1)
    yield replace(good, current=1, own=-1)
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


_LINES = (0, -1, 69, 70, 99, 100, 2**38, 2**44, 2**63 - 1)


def refusals_of_own(spec: KernelSpec, count: int) -> Iterator[Call]:
    """The user's own operands: each null, or with lines that are too short, or too long.

    Then so many calls with several of them, where other things differ that matter not to them.
    """
    good = with_own(spec, Call(GemmProblem.packed(GemmShape(100, 70, 600), spec.layouts, 2, -1)))
    for operand in spec.operands:
        if not operand.index:
            continue
        for sizes in ((100, 70, 600), (100, 70, 0), (100, 0, 600)):  # read where K is 0, too
            yield replace(good, without=operand.name, sizes=sizes)
        for ld in _LINES if operand.index == MATRIX else ():
            values = {**dict(good.problem.operands), operand.ld: ld}
            yield replace(good, problem=replace(good.problem, operands=tuple(values.items())))
    arrays = [operand for operand in spec.operands if operand.index]
    draw = random.Random(2)
    for _ in range(count if arrays else 0):
        m, n, k = (draw.choice((1, 2, 100)), draw.choice((1, 2, 70)), draw.choice((0, 1, 600)))
        p = GemmProblem.packed(GemmShape(m, n, k), spec.layouts, 2, draw.choice((0, 0, 1, -1)))
        call = with_own(spec, Call(p, in_place=draw.random() < 0.3))
        if call.in_place:
            call = replace(call, problem=replace(call.problem, ldc=p.ldd))
        null = [x.name for x in arrays if draw.random() < 0.2]
        null += [name for name in ("A", "B", "C", BIAS) if draw.random() < 0.1]
        values = dict(call.problem.operands)
        for operand in arrays:
            if operand.index == MATRIX and draw.random() < 0.2:
                values[operand.ld] = draw.choice(_LINES)
        problem = replace(call.problem, operands=tuple(values.items()))
        yield replace(call, problem=problem, without=" ".join(null))
