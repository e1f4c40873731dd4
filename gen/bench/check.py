"""No time without a right result: what a contender computed, against the oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gen import numerics, reference
from gen.bench.contenders import Prepared
from gen.bench.work import poison

if TYPE_CHECKING:
    from gen.bench.work import Work
    from gen.spec import DTypes

# Up to so many products all of D is compared; above, a sample of its rows and columns.
_ALL_PRODUCTS = 2**26
_SAMPLED = 96

# An integer kernel may compute the poison by chance: once in 2^32 elements.
_CHANCE = 4


def check(work: Work, prepared: Prepared) -> str:
    """What is wrong with a contender's result, or nothing.

    It runs twice, so that what it leaves behind (a workspace, counters) takes part; D is poison
    before the second time.
    """
    prepared.queue(work.gpu.stream, *work.pointers(0))
    work.poison(0)
    prepared.queue(work.gpu.stream, *work.pointers(0))
    work.gpu.sync()
    a, b = work.matrices()
    return compare(a, b, work.result(0), work.dtypes)


def compare(a: np.ndarray, b: np.ndarray, d: np.ndarray, dtypes: DTypes) -> str:
    """What is wrong with D = A * B, or nothing: matrices of storage.

    Every element has to be written. Small problems are compared in full, large ones where a sample
    of rows meets a sample of columns.
    """
    unwritten = _unwritten(d, dtypes)
    if unwritten:
        return unwritten
    rows, columns = _sample(d.shape[0], a.shape[1], d), _sample(d.shape[1], a.shape[1], d)
    part_a, part_b = a[rows], b[:, columns]
    got = d[np.ix_(rows, columns)]
    nothing = np.zeros((len(rows), len(columns)), d.dtype)
    exact = reference.oracle(part_a, part_b, nothing, 1, 0, dtypes.name)
    if not dtypes.accumulator.is_float:
        wrong = np.argwhere(got != exact)
        bound = np.zeros(got.shape)
    else:
        got = numerics.to_float64(got, dtypes.output.name)
        bound = reference.error_bound(part_a, part_b, nothing, 1, 0, dtypes.name)
        wrong = np.argwhere(~(np.abs(got - exact) <= bound))
    if not len(wrong):
        return ""
    i, j = (int(x) for x in wrong[0])
    allowed = f" within {bound[i, j]:.2g}" if bound[i, j] else ""
    return (
        f"D({rows[i]}, {columns[j]}) is {float(got[i, j]):.9g}, "
        f"not {float(exact[i, j]):.9g}{allowed}; "
        f"{len(wrong)} of {got.size} compared elements are wrong"
    )


def _unwritten(d: np.ndarray, dtypes: DTypes) -> str:
    bits = np.dtype(f"u{d.itemsize}")
    count = int(np.count_nonzero(d.view(bits) == np.asarray(poison(dtypes)).view(bits)))
    if count == 0 or (not dtypes.output.is_float and count <= _CHANCE and d.size > 2**20):
        return ""
    return f"{count} of {d.size} elements of D were not written"


def _sample(size: int, k: int, d: np.ndarray) -> np.ndarray:
    """Indices along one side of D: all, or one at random out of each of as many equal parts.

    The first and the last are always among them.
    """
    if d.size * max(k, 1) <= _ALL_PRODUCTS or size <= _SAMPLED:
        return np.arange(size)
    edges = np.linspace(0, size, _SAMPLED + 1).astype(np.int64)
    inside = np.random.default_rng(size).integers(edges[:-1], edges[1:])
    inside[0], inside[-1] = 0, size - 1
    return inside
