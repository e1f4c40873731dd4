"""No time without a right result: what a contender computed, against the oracle."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gen.bench.contenders import Prepared
from gen.bench.work import exact_in_check, poison
from gen.prove import oracle
from gen.prove.kernel_sums import any_tensor_core
from gen.prove.sums import Sums
from gen.spec import numerics

if TYPE_CHECKING:
    from gen.bench.work import Work
    from gen.spec.dtypes import DTypes

# Up to so many products all of D is compared; above, where a sample of its rows meets one of its
# columns, as many as make this many products with extended precision in numpy, or four times that.
_ALL_PRODUCTS = 2**26
_SAMPLE_PRODUCTS = 2**28
_SAMPLED = (64, 256)

_SAMPLED_OF_BATCH = 4  # products

_SLICES = 1024  # of K, that a contender may sum apart

# An integer kernel may compute the poison by chance: once in 2^32 elements.
_CHANCE = 4


@dataclass(frozen=True)
class Expected:
    """What D = A * B holds where `rows` meet `columns`, and how far a right result may be off."""

    product: int
    rows: np.ndarray
    columns: np.ndarray
    exact: np.ndarray
    bound: np.ndarray


def all_expected(work: Work) -> list[Expected]:
    """The oracle's answers: of a large batch for some of its products, the first and the last too.

    They are made once for a problem, since the contenders share them.
    """
    count = work.products
    most = max(_ALL_PRODUCTS * count // max(work.flops // 2, 1), _SAMPLED_OF_BATCH)
    chosen = np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))
    return [expected(*work.matrices(int(i)), work.dtypes, int(i)) for i in chosen]


def expected(a: np.ndarray, b: np.ndarray, dtypes: DTypes, product: int = 0) -> Expected:
    """The oracle's answer for matrices of storage: all of a small D, a sample of a large one."""
    (m, k), n = a.shape, b.shape[1]
    whole = m * n * max(k, 1) <= _ALL_PRODUCTS
    rows, columns = (np.arange(x) if whole else _sample(x, k, dtypes) for x in (m, n))
    part_a, part_b = a[rows], b[:, columns]
    nothing = np.zeros((len(rows), len(columns)), numerics.storage_dtype(dtypes.output.name))
    exact = oracle.oracle(part_a, part_b, nothing, 1, 0, dtypes.name)
    if exact_in_check(dtypes):
        bound = np.zeros(exact.shape)
    else:
        bound = oracle.error_bound(part_a, part_b, nothing, 1, 0, dtypes.name, sums=_sums(dtypes))
    return Expected(product, rows, columns, exact, bound)


def _sums(dtypes: DTypes) -> Sums | None:
    """Sums as any contender may make them: those of narrow types on tensor cores, and in slices."""
    narrow = dtypes.input.size < dtypes.accumulator.size or dtypes.input.name == "tf32"
    return any_tensor_core(_SLICES, dtypes) if narrow else None


def _sample(size: int, k: int, dtypes: DTypes) -> np.ndarray:
    """Indices along one side of D: all, or one at random out of each of as many equal parts.

    The first and the last are always among them. Of 16384, at K = 16384, it is one of each 64: no
    tile of 64 x 64 is left out.
    """
    products = _SAMPLE_PRODUCTS * (1 if dtypes.name == "f64" else 4)
    least, most = _SAMPLED
    count = min(max(math.isqrt(products // max(k, 1)), least), most)
    if size <= count:
        return np.arange(size)
    edges = np.linspace(0, size, count + 1).astype(np.int64)
    inside = np.random.default_rng(size).integers(edges[:-1], edges[1:])
    inside[0], inside[-1] = 0, size - 1
    return inside


def check(work: Work, prepared: Prepared, wanted: Sequence[Expected]) -> str:
    """What is wrong with a contender's result, or nothing.

    It runs twice, so that what it leaves behind (a workspace, counters) takes part; D is poison
    before the second time.
    """
    prepared.queue(work.gpu.stream, *work.pointers(0))
    work.poison(0)
    prepared.queue(work.gpu.stream, *work.pointers(0))
    prepared.collect(work.pointers(0)[2])
    work.gpu.sync()
    found, dtypes = work.result(0), work.dtypes
    unwritten = ((i, _unwritten(d, dtypes)) for i, d in enumerate(found))
    different = ((one.product, _difference(one, found[one.product], dtypes)) for one in wanted)
    for product, wrong in itertools.chain(unwritten, different):
        if wrong:
            return f"product {product}: {wrong}" if work.products > 1 else wrong
    return ""


def compare(a: np.ndarray, b: np.ndarray, d: np.ndarray, dtypes: DTypes) -> str:
    """What is wrong with D = A * B, or nothing: matrices of storage."""
    return mismatch(expected(a, b, dtypes), d, dtypes)


def mismatch(wanted: Expected, d: np.ndarray, dtypes: DTypes) -> str:
    """What is wrong with D, or nothing. Every element has to be written, sampled or not."""
    return _unwritten(d, dtypes) or _difference(wanted, d, dtypes)


def _difference(wanted: Expected, d: np.ndarray, dtypes: DTypes) -> str:
    rows, columns, exact, bound = wanted.rows, wanted.columns, wanted.exact, wanted.bound
    got = d[np.ix_(rows, columns)]
    if dtypes.accumulator.is_float:
        got = numerics.to_float64(got, dtypes.output.name)
        wrong = np.argwhere(~(np.abs(got - exact) <= bound))
    else:
        wrong = np.argwhere(got != exact)
    if not len(wrong):
        return ""
    i, j = (int(x) for x in wrong[0])
    allowed = f" within {bound[i, j]:.2g}" if bound[i, j] else ""
    return (
        f"D[{rows[i]}, {columns[j]}] is {float(got[i, j]):.9g}, "
        f"not {float(exact[i, j]):.9g}{allowed}; "
        f"{len(wrong)} of {got.size} compared elements are wrong"
    )


def _unwritten(d: np.ndarray, dtypes: DTypes) -> str:
    bits = np.dtype(f"u{d.itemsize}")
    count = int(np.count_nonzero(d.view(bits) == np.asarray(poison(dtypes)).view(bits)))
    if count == 0 or (not dtypes.output.is_float and count <= _CHANCE and d.size > 2**20):
        return ""
    return f"{count} of {d.size} elements of D were not written"
