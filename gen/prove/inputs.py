"""The matrices that a kernel is tried with, the same in every run.

Of the kinds of inputs, all but "random" and "positive" give results that are exact, in whichever
order a kernel sums; of some, the results are infinite or NaN, in whichever order, too.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gen.device.execute import Operands
from gen.spec import numerics
from gen.spec.dtypes import DTypes, ElementType
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmProblem, group_rows

# A, B, C and the bias, as float64 or integers.
_Drawn = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
_Rng = np.random.Generator

_NAN, _INF = float("nan"), float("inf")


def _largest(dtypes: DTypes, problem: GemmProblem) -> int:
    """The largest magnitude, at most 8, of integers with exact alpha * A * B + beta * C + bias.

    A float accumulator with p bits is exact up to 2^p: |alpha| * k * r^2 + (|beta| + 1) * r; where
    sums of fewer bits than f32 are made before alpha is multiplied with them, k * r^2.
    """
    bits = _sum_bits(dtypes)
    scalars = problem.alpha, problem.beta
    alpha, beta = (max(abs(one), 1) if np.isfinite(one) else 1 for one in scalars)
    factor, addend = (1, 0) if bits < 24 else (alpha, beta + 1)
    r = 8
    while r > 1 and factor * problem.shape.k * r * r + addend * r >= 2**bits:
        r -= 1
    return r


def _sum_bits(dtypes: DTypes) -> int:
    """The bits of sums: of fp8, some tensor cores keep 14."""
    bits = {"f16": 11, "f32": 24, "f64": 53}.get(dtypes.accumulator.name, 31)
    return 14 if dtypes.input.is_fp8 else bits


def _integers(rng: _Rng, problem: GemmProblem, most: int) -> _Drawn:
    m, n, k = problem.shape.m, problem.shape.n, problem.shape.k
    a, b, c, bias = (rng.integers(-most, most + 1, size) for size in ((m, k), (k, n), (m, n), n))
    return a, b, c, bias


def _sparse(rng: _Rng, problem: GemmProblem, count: int, most: int) -> np.ndarray:
    """A matrix A of integers, not 0, of which each row has at most `count`."""
    m, k = problem.shape.m, problem.shape.k
    a = np.zeros((m, k), np.int64)
    if k:
        for _ in range(count):
            values = rng.integers(1, most + 1, m) * rng.choice((-1, 1), m)
            a[np.arange(m), rng.integers(0, k, m)] = values
    return a


def _cancelling(rng: _Rng, problem: GemmProblem, dtypes: DTypes) -> _Drawn:
    """C is A * B, so that with alpha about -beta all but the last digits of both cancel out.

    Rows of A have few elements other than 0: C is exact in 8 bits.
    """
    _, b, _, bias = _integers(rng, problem, 4)
    a = _sparse(rng, problem, 4, 4)
    return a, b, a @ b, 0 * bias


def _residual(rng: _Rng, problem: GemmProblem, dtypes: DTypes) -> _Drawn:
    """C is -A * B, rounded to its type: D is what that has cut off, where alpha is beta."""
    large = 2 ** min(_sum_bits(dtypes), 15)  # sums of 5 digits
    most = min(int(np.sqrt(large / max(problem.shape.k, 1))), 100) or 1
    most = min(most, numerics.largest_integer(dtypes.input.name))
    a, b, _, bias = (np.abs(x) for x in _integers(rng, problem, most))
    exact = numerics.from_float64((a @ b).astype(float), dtypes.output.name)
    return a, b, -numerics.to_float64(exact, dtypes.output.name), 0 * bias


def _scaled(rng: _Rng, problem: GemmProblem, dtypes: DTypes) -> _Drawn:
    """Integers times powers of two, so that alpha and beta, two others, leave results in range."""
    alpha, beta = (round(np.log2(one)) for one in (problem.alpha, problem.beta))
    result = alpha if dtypes.output.name != "f16" else min(max(alpha, -18), 0)
    unit = replace(problem, alpha=1, beta=1)
    a, b, c, bias = _integers(rng, unit, _largest(dtypes, unit))
    half = (result - alpha) // 2
    return (
        a * 2.0**half,
        b * 2.0 ** (result - alpha - half),
        c * 2.0 ** (result - beta),
        bias * 2.0**result,
    )


def _special(rng: _Rng, problem: GemmProblem, dtypes: DTypes) -> _Drawn:
    """Integers with NaN, infinities of both signs, lines of zeros that meet them, and -0 in C."""
    m, n, k = problem.shape.m, problem.shape.n, problem.shape.k
    a, b, c, bias = (x.astype(float) for x in _integers(rng, problem, _largest(dtypes, problem)))
    if m and n:
        c[rng.integers(m)] = -0.0
        if k:
            a[rng.integers(m)] = 0
            b[:, rng.integers(n)] = 0
            for value in (_NAN, _INF, -_INF):
                a[rng.integers(m), rng.integers(k)] = value
            a[rng.integers(m), rng.integers(k, size=2)] = _INF, -_INF
            # Times what is behind the end of K, which is no part of the sum.
            a[rng.integers(m), -1] = b[-1, rng.integers(n)] = _INF
        for value in (_NAN, _INF, -_INF):
            if k:
                b[rng.integers(k), rng.integers(n)] = value
            c[rng.integers(m), rng.integers(n)] = value
            bias[rng.integers(n)] = value
        bias[rng.random(n) < 0.3] = -0.0
    return a, b, c, bias


def _behind(rng: _Rng, problem: GemmProblem, dtypes: DTypes) -> _Drawn:
    """Integers, and in each column of B an infinity so many before the end of K: 1, 2, 4, 8, ...

    Where a step ends behind K, a kernel may still hold there what it has read a step before. Where
    alpha is negative, in each row of A.
    """
    a, b, c, bias = (x.astype(float) for x in _integers(rng, problem, _largest(dtypes, problem)))
    lines = a.T if problem.alpha < 0 else b
    for at in range(lines.shape[1]):
        if 1 << at <= len(lines):
            lines[-(1 << at), at] = _INF
    return a, b, c, bias


def _zeros(rng: _Rng, problem: GemmProblem, dtypes: DTypes) -> _Drawn:
    """A is zero, and B has a NaN and infinities; the other way round where alpha is negative."""
    a, b, c, bias = (x.astype(float) for x in _integers(rng, problem, 2))
    nothing, other = (b, a) if problem.alpha < 0 else (a, b)
    nothing[:] = 0
    for value in (_NAN, _INF, -_INF) if other.size else ():
        other[rng.integers(other.shape[0]), rng.integers(other.shape[1])] = value
    return a, b, c, bias


def _subnormal(rng: _Rng, problem: GemmProblem, dtypes: DTypes) -> _Drawn:
    """Integers times the least positive number of the input's type: B alone has ordinary ones.

    Or A alone, where alpha is negative.
    """
    a, b, c, bias = _integers(rng, problem, _largest(dtypes, problem))
    unit = numerics.smallest_subnormal(dtypes.factor.name)
    first, second = (1, unit) if problem.alpha < 0 else (unit, 1)
    return a * first, b * second, c * unit, bias * unit


def _long(rng: _Rng, problem: GemmProblem, dtypes: DTypes) -> _Drawn:
    """Sums of one product of odd numbers that together have all bits of the sums' type.

    A line of B has numbers of any length, and what meets it in A the other bits.
    """
    m, k, n = problem.shape.m, problem.shape.k, problem.shape.n
    _, _, c, bias = _integers(rng, problem, 2)
    all_bits = _sum_bits(dtypes)
    bits = rng.integers(1, all_bits, k)

    def odd(bits: np.ndarray) -> np.ndarray:
        most = 2 ** np.maximum(bits - 1, 0)
        return np.asarray((most + rng.integers(0, most) | 1) * rng.choice((-1, 1), bits.shape))

    a = np.zeros((m, k), np.int64)
    if k:
        at = rng.integers(0, k, m)
        a[np.arange(m), at] = odd(all_bits - bits[at])
    return a, odd(np.broadcast_to(bits[:, None], (k, n))), c, 0 * bias


def _faint(rng: _Rng, problem: GemmProblem, dtypes: DTypes) -> _Drawn:
    """The same with factors of A so small that parts of them are subnormal; B's are large.

    Or the other way round, where alpha is negative.
    """
    a, b, c, bias = _long(rng, problem, dtypes)
    least, most = numerics.smallest_subnormal(dtypes.factor.name), 2.0**100
    first, second = (most, least) if problem.alpha < 0 else (least, most)
    return a * first, b * second, c, bias


def _opposed(rng: _Rng, problem: GemmProblem, dtypes: DTypes) -> _Drawn:
    """Two numbers a row of A that cancel out but for their last digits.

    Where factors are made of parts, sums of the leading ones are 0.
    """
    m, k, n = problem.shape.m, problem.shape.k, problem.shape.n
    _, _, c, bias = _integers(rng, problem, 2)
    a = np.zeros((m, k), np.int64)
    if k > 1:
        at, rows = rng.integers(0, k - 1, m), np.arange(m)
        large = 2 ** (_sum_bits(dtypes) - 4) * rng.choice((-1, 1), m)
        a[rows, at] = large
        a[rows, rng.integers(at + 1, k)] = -(large + rng.integers(1, 100, m))
    return a, np.broadcast_to(2 ** rng.integers(0, 3, n), (k, n)), c, 0 * bias


def _rounded(rng: _Rng, problem: GemmProblem, dtypes: DTypes) -> _Drawn:
    """Sums of one product, so that a result is rounded once, in alpha or in the sum with C."""
    most = min(99, numerics.largest_integer(dtypes.input.name))
    _, b, c, bias = _integers(rng, problem, most)
    return _sparse(rng, problem, 1, 1), b, rng.uniform(-99, 99, c.shape), 0 * bias


def _overflowing(rng: _Rng, problem: GemmProblem, dtypes: DTypes) -> _Drawn:
    """Powers of two whose products lie on both sides of the largest number of the result's type.

    Rows of A have one element that is not 0, so that no sum is finite in one order and infinite in
    another. In every other row that is 1, so that B's largest numbers are results.
    """
    most = round(np.log2(numerics.overflow_threshold(dtypes.output.name)))
    half = min(most, round(np.log2(numerics.overflow_threshold(dtypes.input.name)))) - 4
    largest = numerics.largest(dtypes.input.name)
    top = int(np.log2(largest))
    if dtypes.input.is_fp8:  # whose products may be far below
        half = min(max(half, most - top), top)
    a = _sparse(rng, problem, 1, 1) * 2.0**half
    a[::2] /= 2.0**half
    size = problem.shape.k, problem.shape.n
    exponents = most - half + rng.integers(-2, 3, size)
    if dtypes.input.is_fp8:
        exponents = np.minimum(exponents, top)
    b = 2.0**exponents * rng.choice((-1, 1), size)
    b = np.where(rng.random(size) < 0.2, np.copysign(largest, b), b)
    _, _, c, bias = _integers(rng, problem, 2)
    return a, b, 0.0 * c, 0.0 * bias


def _huge(rng: _Rng, problem: GemmProblem, dtypes: DTypes) -> _Drawn:
    """Single products up to the largest number of the input's type, of either sign."""
    a = _sparse(rng, problem, 1, 1)
    _, b, c, bias = _integers(rng, problem, 2)
    large = numerics.largest(dtypes.input.name)
    return a, rng.choice((-1, 1), b.shape) * large * 0.5 ** np.abs(b), 0 * c, 0 * bias


def _brink(rng: _Rng, problem: GemmProblem, dtypes: DTypes) -> _Drawn:
    """Results closer to each other than D's numbers are where these end: which ones are infinite?

    alpha is a small part of the distance there (`brink_unit`), C the largest number, of either
    sign. Where beta is 0, sums are as large by themselves.
    """
    m, n, k = problem.shape.m, problem.shape.n, problem.shape.k
    most = min(24, numerics.largest_integer(dtypes.input.name))
    _, b, c, bias = _integers(rng, problem, most)
    if problem.beta:
        a = _sparse(rng, problem, 1, 1)
        return a, b, numerics.largest(dtypes.output.name) * rng.choice((-1, 1), (m, n)), 0 * bias
    a, b = np.zeros((m, k)), b.astype(float)
    large = round(np.log2(numerics.overflow_threshold(dtypes.output.name) / problem.alpha))
    if k:
        a[:, 0] = 2.0 ** (large // 2) * rng.choice((-1, 1), m)
        b[0] = 2.0 ** (large - large // 2)
    if k > 1:
        a[:, 1] = 1
    return a, b, c, 0 * bias


def brink_unit(output: str) -> float:
    """An eighth of the distance from a type's largest number to what is rounded to infinity."""
    return (numerics.overflow_threshold(output) - numerics.largest(output)) / 8


def _extreme(rng: _Rng, problem: GemmProblem, dtypes: DTypes) -> _Drawn:
    """The integers of largest magnitude, of either sign along A: long sums leave 32 bits."""
    a, b, c, bias = _integers(rng, problem, 8)
    bias = 0 * bias  # which could turn a sum that was clamped, not wrapped around
    info = np.iinfo(numerics.storage_dtype(dtypes.input.name))
    signs = np.where(np.arange(len(a)) % 2, info.min, info.max)
    b = np.full_like(b, info.min)
    b[:3] += 1  # odd sums, all of whose bits count
    return np.zeros_like(a) + signs[:, None], b, c, bias


def _spanning(rng: _Rng, problem: GemmProblem, dtypes: DTypes) -> _Drawn:
    """Products at both ends of K whose sum is beyond the accumulator's type, though neither is."""
    a, b, c, bias = (0 * x for x in _integers(rng, problem, 1))
    half = 2.0 ** (round(np.log2(numerics.overflow_threshold(dtypes.accumulator.name))) // 2 - 1)
    a[:, [0, -1]] = half
    b[[0, -1]] = 2 * half
    return a, b, c, bias


def _outweighed(rng: _Rng, problem: GemmProblem, dtypes: DTypes) -> _Drawn:
    """The first third of K makes a large sum, which the last one takes away: small ones are left.

    A sum of few bits, as tensor cores have of fp8, loses them unless it is promoted in between. So
    does one of 24 bits, where none of 16 products alone reaches the last one that their sum has.
    """
    a, b, c, bias = _integers(rng, problem, 1)
    third = problem.shape.k // 3
    if dtypes.parts == 1:
        a[:, :third], a[:, -third:] = 32, -32
        b[:third] = b[-third:] = 32
        return a, b, c, bias
    a, b = a.astype(float), rng.choice((-1.0, 1.0), b.shape[1]) * np.ones(b.shape)
    a[:], a[:, third : 2 * third] = 0, 0.125
    a[:, 0], a[:, -third] = 2**12, -(2**12)
    b[[0, -third]] = 2**12
    return a, b, 0 * c, 0 * bias


def _wandering(rng: _Rng, problem: GemmProblem, dtypes: DTypes) -> _Drawn:
    """Integers with as many digits as sums of either sign leave room for; alpha and beta are 1.

    A sum of k products of integers up to r is a random walk, of r^2 / 3 * sqrt(k): in no order that
    a kernel has it leaves eight times that. Where D has fewer digits than sums, C takes away those
    that D has: the others are left.
    """
    k = max(problem.shape.k, 1)
    narrow = dtypes.output.size < dtypes.accumulator.size
    room = 2.0 ** min(_sum_bits(dtypes), 15 if dtypes.output.name == "f16" else 53)
    most = max(int(np.sqrt(3 * room / (8 * np.sqrt(k)))), 1)
    most = min(most, 2**20, numerics.largest_integer(dtypes.input.name))
    a, b, _, bias = _integers(rng, problem, most)
    _, _, c, _ = _integers(rng, problem, 1)
    if narrow and dtypes.output.is_float:
        sums = numerics.from_float64((a @ b).astype(float), dtypes.output.name)
        c = -numerics.to_float64(sums, dtypes.output.name)
    return a, b, c, 0 * bias


# Inputs by kind: none of these is rounded on its way into storage.
_EXACT: Mapping[str, Callable[[_Rng, GemmProblem, DTypes], _Drawn]] = {
    "integer": lambda rng, problem, dtypes: _integers(rng, problem, _largest(dtypes, problem)),
    "cancelling": _cancelling,
    "residual": _residual,
    "scaled": _scaled,
    "special": _special,
    "behind": _behind,
    "zeros": _zeros,
    "subnormal": _subnormal,
    "long": _long,
    "faint": _faint,
    "opposed": _opposed,
    "rounded": _rounded,
    "overflowing": _overflowing,
    "huge": _huge,
    "brink": _brink,
    "extreme": _extreme,
    "spanning": _spanning,
    "outweighed": _outweighed,
    "wandering": _wandering,
}
KINDS = ("random", "positive", *_EXACT)


def _random(rng: _Rng, size: tuple[int, ...], dtype: str, low: float) -> np.ndarray:
    storage = numerics.storage_dtype(dtype)
    if storage.kind == "i":
        info = np.iinfo(storage)
        return rng.integers(info.min, info.max, size, storage, endpoint=True)
    values = rng.uniform(low, 1, size)
    return _unrounded(values) if dtype == "tf32" else numerics.from_float64(values, dtype)


def _unrounded(values: np.ndarray) -> np.ndarray:
    """Storage of tf32 with bits that tf32 lacks: f32, none halfway between two tf32 numbers.

    There, cvt.rna and the TMA round to different ones, both to nearest.
    """
    stored = numerics.from_float64(values, "f32")
    bits = stored.view(np.uint32)
    bits |= (bits & 0x1FFF) == 0x1000
    return stored


def _stored(matrix: np.ndarray, dtype: str) -> np.ndarray:
    if matrix.dtype.kind == "i":
        return numerics.from_integers(matrix, dtype)
    return numerics.from_float64(matrix, dtype)


def draw_operands(spec: KernelSpec, problem: GemmProblem, kind: str) -> Operands:
    """Matrices of a `kind`: one of `KINDS`; for integer types "integer" or "random".

    D is full of poison, and so is C where it must not be read; where results are to be NaN, D holds
    numbers. For sums in f16, random values are not negative: where they cancel out, a right result
    may be off by more than its size. The products of a batch are drawn apart; where they overlap in
    memory, they have what is there.
    """
    seed = zlib.crc32(f"{problem} {kind}".encode())  # the same inputs in every run
    rng = np.random.default_rng(seed)
    batch = problem.batch
    m, n = problem.shape.m, problem.shape.n
    groups = max(batch.products, 1)
    arrays = [operand for operand in spec.operands if operand.index]
    own = {o.name: _own(rng, o.element(spec.dtypes), o.shape(m, n, groups), kind) for o in arrays}
    if problem.ends is not None:
        return _draw_groups(spec, problem, kind, rng)._replace(own=own)
    if problem.ends_k is not None:
        return _draw_groups_k(spec, problem, kind, rng)._replace(own=own)
    drawn = [_draw_one(spec, problem, kind, rng) for _ in range(max(batch.products, 1))]
    of_all = zip(*(one[:4] for one in drawn), strict=True)
    a, b, c, before = (
        np.stack(matrices)[: batch.matrices(name)]
        for name, matrices in zip("ABCD", of_all, strict=True)
    )
    a, b, c = (_overlapped(spec, problem, *one) for one in zip("ABC", (a, b, c), strict=True))
    if not spec.batched:
        a, b, c, before = a[0], b[0], c[0], before[0]
    d = numerics.pack(before, spec.layouts.c, problem.ldd, spec.dtypes.output.name, batch.stride_d)
    return Operands(a, b, c, d, drawn[0].bias, own)


def _draw_groups(spec: KernelSpec, problem: GemmProblem, kind: str, rng: _Rng) -> Operands:
    """The rows of each group with its matrix B; rows that no group has are full of poison."""
    shape, batch, output = problem.shape, problem.batch, spec.dtypes.output.name
    bounds = group_rows(problem.ends or (), shape.m)
    rows = [end - begin for begin, end in bounds]
    sizes = [*rows, shape.m - sum(rows)]
    drawn = [_draw_one(spec, replace(problem, shape=replace(shape, m=m)), kind, rng) for m in sizes]
    of_all = [
        np.concatenate(parts) for parts in zip(*((x.a, x.c, x.d) for x in drawn), strict=True)
    ]
    a, c, before = of_all
    for matrix, name in ((a, spec.dtypes.input.name), (c, output), (before, output)):
        matrix[shape.m - sizes[-1] :] = numerics.poison(name)
    b = np.stack([x.b for x in drawn])[: batch.matrices("B")]
    d = numerics.pack(before, True, problem.ldd, output)
    return Operands(a, b, c, d, drawn[0].bias)


def _draw_groups_k(spec: KernelSpec, problem: GemmProblem, kind: str, rng: _Rng) -> Operands:
    """The same along K: what no group has of A and B is full of poison."""
    shape, batch, output = problem.shape, problem.batch, spec.dtypes.output.name
    bounds = group_rows(problem.ends_k or (), shape.k)
    sizes = [end - begin for begin, end in bounds]
    behind = sum(sizes)
    drawn = [
        _draw_one(spec, replace(problem, shape=replace(shape, k=k)), kind, rng)
        for k in [*sizes, shape.k - behind]
    ]
    a = np.concatenate([x.a for x in drawn], axis=1)
    b = np.concatenate([x.b for x in drawn])
    a[:, behind:] = b[behind:] = numerics.poison(spec.dtypes.input.name)
    c = np.stack([x.c for x in drawn])[: batch.matrices("C")]
    before = np.stack([x.d for x in drawn])[: batch.products]
    d = numerics.pack(before, spec.layouts.c, problem.ldd, output, batch.stride_d)
    return Operands(a, b, c, d, drawn[0].bias)


def _overlapped(
    spec: KernelSpec, problem: GemmProblem, name: str, matrices: np.ndarray
) -> np.ndarray:
    """The same matrices, where they have elements in common in memory with one value each."""
    stride = problem.batch.stride(name)
    if len(matrices) < 2 or stride >= problem.extent(name, spec.layouts):
        return matrices
    ld = problem.lines(name, spec.layouts)[2]
    row_major = {"A": spec.layouts.a, "B": spec.layouts.b, "C": spec.layouts.c}[name]
    type_ = spec.dtypes.output if name == "C" else spec.dtypes.input
    stored = numerics.pack(matrices, row_major, ld, type_.name, stride)
    count, rows, columns = matrices.shape
    return numerics.unpack(stored, rows, columns, row_major, ld, (count, stride))


class _One(NamedTuple):
    """The matrices of one product; D as it is before the launch."""

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    d: np.ndarray
    bias: np.ndarray | None


def _draw_one(spec: KernelSpec, problem: GemmProblem, kind: str, rng: _Rng) -> _One:
    m, n, k = problem.shape.m, problem.shape.n, problem.shape.k
    input_, output = spec.dtypes.input.name, spec.dtypes.output.name
    if kind in ("random", "positive"):
        low = 0 if kind == "positive" or spec.dtypes.accumulator.name == "f16" else -1
        a, b = (_random(rng, size, input_, low) for size in ((m, k), (k, n)))
        c, bias = (_random(rng, size, output, -1) for size in ((m, n), (n,)))
    else:
        drawn = _EXACT[kind](rng, problem, spec.dtypes)
        a, b, c, bias = (
            _stored(matrix, name)
            for matrix, name in zip(drawn, (input_, input_, output, output), strict=True)
        )
    if kind == "special":  # NaN of both kinds that hardware makes: with one bit set, with all
        b.view(f"i{b.itemsize}")[np.isnan(numerics.to_float64(b, input_))] = -1
    if problem.beta == 0:
        c = np.full_like(c, numerics.poison(output))
    finite = np.isfinite([problem.alpha, problem.beta]).all()
    has_nan = kind in ("special", "behind", "zeros") or not finite
    before = np.zeros_like(c) if has_nan else np.full_like(c, numerics.poison(output))
    return _One(a, b, c, before, bias if spec.has_bias else None)


def _own(rng: _Rng, element: ElementType, shape: tuple[int, ...], kind: str) -> np.ndarray:
    """An array that an epilogue of the user's own takes: as A has them, but not as large.

    Random integers are any that the type holds.
    """
    if kind == "random" and element.is_float:
        return _random(rng, shape, element.name, -1)
    if kind == "random":
        ends = np.iinfo(numerics.storage_dtype(element.name))
        return rng.integers(ends.min, ends.max, shape, ends.dtype, endpoint=True)
    values = rng.integers(-4, 5, shape)
    if kind != "special" or not element.is_float:
        return _stored(values, element.name)
    special = np.array((_NAN, _INF, -_INF, -0.0))
    few = np.where(rng.random(shape) < 0.1, rng.choice(special, shape), values)
    return _stored(few, element.name)


def finite(operands: Operands, dtypes: DTypes) -> Operands:
    """The same with 0 in place of all that is no number."""

    def cleaned(matrix: np.ndarray, name: str) -> np.ndarray:
        numbers = np.isfinite(numerics.to_float64(matrix, name))
        return np.where(numbers, matrix, np.zeros((), matrix.dtype))

    input_, output = dtypes.input.name, dtypes.output.name
    bias = None if operands.bias is None else cleaned(operands.bias, output)
    return operands._replace(
        a=cleaned(operands.a, input_),
        b=cleaned(operands.b, input_),
        c=cleaned(operands.c, output),
        bias=bias,
    )
