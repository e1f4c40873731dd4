"""The matrices that a kernel is tried with, the same in every run."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gen import numerics
from gen.spec import DTypes, GemmProblem, KernelSpec


class Operands(NamedTuple):
    """A, B, C as matrices (m x k, k x n, m x n) of their storage dtype; D's storage before."""

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    d_storage: np.ndarray


def kernel_arguments(problem: GemmProblem, dtypes: DTypes, buffers: Sequence[Any]) -> list[Any]:
    """What every kernel, and the CUTLASS reference, is launched with.

    M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd; `buffers` are A, B, C and D.
    """
    shape, (a, b, c, d) = problem.shape, buffers
    i64, scalar = np.int64, numerics.storage_dtype(dtypes.accumulator.name).type
    return [
        *(i64(shape.m), i64(shape.n), i64(shape.k), scalar(problem.alpha)),
        *(a, i64(problem.lda), b, i64(problem.ldb)),
        *(scalar(problem.beta), c, i64(problem.ldc), d, i64(problem.ldd)),
    ]


def _integer_range(dtypes: DTypes, k: int) -> int:
    """The largest magnitude of inputs for which alpha * A * B + beta * C is exact, at most 8.

    A float accumulator with p bits is exact up to 2^p: alpha (3) * k * r^2 + beta (2) * r.
    """
    bits = {"f32": 24, "f64": 53}.get(dtypes.accumulator.name, 31)
    r = 8
    while r > 1 and 3 * k * r * r + 2 * r >= 2**bits:
        r -= 1
    return r


def _draw(
    rng: np.random.Generator, shape: tuple[int, int], kind: str, dtype: str, most: int
) -> np.ndarray:
    if kind == "integer":
        return numerics.from_integers(rng.integers(-most, most + 1, shape), dtype)
    storage = numerics.storage_dtype(dtype)
    if storage.kind == "i":
        info = np.iinfo(storage)
        return rng.integers(info.min, info.max, shape, storage, endpoint=True)
    return numerics.from_float64(rng.uniform(-1, 1, shape), dtype)


def draw_operands(spec: KernelSpec, problem: GemmProblem, kind: str) -> Operands:
    """Matrices of a `kind`: "integer" (small values, exact sums) or "random".

    D is full of poison, and so is C where it must not be read.
    """
    m, n, k = problem.shape.m, problem.shape.n, problem.shape.k
    seed = zlib.crc32(f"{problem} {kind}".encode())  # the same inputs in every run
    rng = np.random.default_rng(seed)
    most = _integer_range(spec.dtypes, k)
    input_, output = spec.dtypes.input.name, spec.dtypes.output.name
    a = _draw(rng, (m, k), kind, input_, most)
    b = _draw(rng, (k, n), kind, input_, most)
    c = _draw(rng, (m, n), kind, output, most)
    if problem.beta == 0:
        c = np.full_like(c, numerics.poison(output))
    d = numerics.pack(np.full_like(c, numerics.poison(output)), spec.layouts.c, problem.ldd, output)
    return Operands(a, b, c, d)
