"""The matrices that a kernel is tried with, the same in every run."""

from __future__ import annotations

import zlib

import numpy as np

from gen.device.execute import Operands
from gen.spec import numerics
from gen.spec.dtypes import DTypes
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmProblem


def _integer_range(dtypes: DTypes, k: int) -> int:
    """The largest magnitude, at most 8, of inputs that give exact alpha * A * B + beta * C + bias.

    A float accumulator with p bits is exact up to 2^p: alpha (3) * k * r^2 + (beta (2) + 1) * r;
    in one of f16, which alpha is not multiplied with, k * r^2.
    """
    name = dtypes.accumulator.name
    bits = {"f16": 11, "f32": 24, "f64": 53}.get(name, 31)
    factor, addend = (1, 0) if name == "f16" else (3, 3)
    r = 8
    while r > 1 and factor * k * r * r + addend * r >= 2**bits:
        r -= 1
    return r


def _draw(
    rng: np.random.Generator, shape: tuple[int, ...], kind: str, dtype: str, most: int, low: float
) -> np.ndarray:
    if kind == "integer":
        return numerics.from_integers(rng.integers(-most, most + 1, shape), dtype)
    storage = numerics.storage_dtype(dtype)
    if storage.kind == "i":
        info = np.iinfo(storage)
        return rng.integers(info.min, info.max, shape, storage, endpoint=True)
    return numerics.from_float64(rng.uniform(low, 1, shape), dtype)


def draw_operands(spec: KernelSpec, problem: GemmProblem, kind: str) -> Operands:
    """Matrices of a `kind`: "integer" (small values, exact sums) or "random".

    D is full of poison, and so is C where it must not be read. For sums in f16, random values are
    not negative: where they cancel out, a right result may be off by more than its size.
    """
    m, n, k = problem.shape.m, problem.shape.n, problem.shape.k
    seed = zlib.crc32(f"{problem} {kind}".encode())  # the same inputs in every run
    rng = np.random.default_rng(seed)
    most = _integer_range(spec.dtypes, k)
    low = 0 if spec.dtypes.accumulator.name == "f16" else -1
    input_, output = spec.dtypes.input.name, spec.dtypes.output.name
    a = _draw(rng, (m, k), kind, input_, most, low)
    b = _draw(rng, (k, n), kind, input_, most, low)
    c = _draw(rng, (m, n), kind, output, most, -1)
    bias = _draw(rng, (n,), kind, output, most, -1) if spec.has_bias else None
    if problem.beta == 0:
        c = np.full_like(c, numerics.poison(output))
    d = numerics.pack(np.full_like(c, numerics.poison(output)), spec.layouts.c, problem.ldd, output)
    return Operands(a, b, c, d, bias)
