"""What a GEMM has to compute: an oracle in numpy, and bounds of the errors of right kernels.

Matrices here are two-dimensional arrays of storage (see `gen.numerics`): A is M x K, B is K x N,
C and D are M x N; `dtype` is a name of `gen.spec.DTYPES`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from gen.prove.sums import Sums, gamma, rounded_sums
from gen.spec import numerics
from gen.spec.dtypes import DTypes, parse_dtype


class After(NamedTuple):
    """What becomes of alpha * A * B + beta * C: the epilogue's name, and N elements like C's."""

    epilogue: str = "linear"
    bias: np.ndarray | None = None


LINEAR = After()

# How often GELU's slope multiplies an error, at most, and the roundings in computing it: erff and
# erf are right to two units, and so are their arguments; a sum with 1, and three multiplications.
_GELU_SLOPE, _GELU_UNITS = 1.13, 8
GELU_IS_IDENTITY = 9  # from here on: a normally distributed number is less, in all 53 bits


def oracle(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    alpha: float,
    beta: float,
    dtype: str,
    after: After = LINEAR,
) -> np.ndarray:
    """The epilogue of alpha * A * B + beta * C, M x N, with no rounding to the output's type.

    Of tf32, A and B are rounded to nearest first, as kernels do it: a relative error of 2^-11 for
    each element, in the oracle and in the kernel the same, so that no bound has room for it.
    Floating-point types: float64, and longdouble for f64, so that the error is far below the
    kernel's (`error_bound` counts it in). Integer types: int32, modulo 2^32 as on a GPU. alpha and
    beta are first converted to their own type, as the kernel's arguments are; C is not read when
    beta is 0.
    """
    dtypes = parse_dtype(dtype)
    if not dtypes.scalar.is_float:
        return _rectify(_integer_oracle(a, b, c, int(alpha), int(beta), after), after)
    with np.errstate(invalid="ignore", over="ignore"):
        x = _linear(a, b, c, alpha, beta, dtypes, after)
        return _gelu(x) if after.epilogue.endswith("gelu") else _rectify(x, after)


def _rectify(x: np.ndarray, after: After) -> np.ndarray:
    return np.where(x < 0, x.dtype.type(0), x) if after.epilogue.endswith("relu") else x


def _gelu(x: np.ndarray) -> np.ndarray:
    erf = np.vectorize(math.erf, otypes=[np.float64])
    return np.asarray(0.5 * x * (1 + erf(x.astype(np.float64) / math.sqrt(2))))


def _linear(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    alpha: float,
    beta: float,
    dtypes: DTypes,
    after: After,
) -> np.ndarray:
    """alpha * A * B + beta * C and the bias, if there is one."""
    scalar, wide = numerics.storage_dtype(dtypes.scalar.name).type, _wide(dtypes.name)
    alpha, beta = scalar(alpha), scalar(beta)
    result: np.ndarray
    # A sum that starts at +0 is never -0.
    product = _exact(a, dtypes.input.name, wide) @ _exact(b, dtypes.input.name, wide) + wide(0)
    result = wide(alpha) * product
    if beta != 0:
        result = result + wide(beta) * _exact(c, dtypes.output.name, wide)
    if after.bias is not None:
        result = result + _exact(after.bias, dtypes.output.name, wide)
    return result


def _integer_oracle(
    a: np.ndarray, b: np.ndarray, c: np.ndarray, alpha: int, beta: int, after: After
) -> np.ndarray:
    # int64 arrays wrap around modulo 2^64, which 2^32 divides.
    wide = np.int64
    result = np.asarray(a.astype(wide) @ b.astype(wide)) * wide(alpha)
    if beta != 0:
        result = result + c.astype(wide) * wide(beta)
    if after.bias is not None:
        result = result + after.bias.astype(wide)
    return result.astype(np.int32)


def _wide(dtype: str) -> Any:
    return np.longdouble if dtype == "f64" else np.float64


def _exact(matrix: np.ndarray, name: str, wide: Any) -> np.ndarray:
    return numerics.to_float64(matrix, name).astype(wide)


def error_bound(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    alpha: float,
    beta: float,
    dtype: str,
    after: After = LINEAR,
    sums: Sums | None = None,
    exact_sums: bool = False,
    stored: bool = True,
) -> np.ndarray:
    """How far each element of a right D may be from `oracle`: float64, M x N; 0 for integer types.

    `sums` bounds the error s of the sum; by default, for every order of summation, with or without
    fused multiply-adds, each addition rounded to nearest: gamma_K S, S = |A| |B|. u is the unit
    roundoff of the epilogue's type, and e = 2 operations follow the sum, or 3 with a bias.
    `exact_sums` says that nothing is rounded before the epilogue, as with small integers:

    - the sum:                          |alpha| s
    - alpha * sum + beta * C + bias:    gamma_e (|alpha| (|A B| + s) + |beta C| + |bias|)
    - products that underflow:          a subnormal unit each, K of them times |alpha|, and two
    - ReLU, GELU:                       1 or 1.13 times all this; GELU's own: some u of its argument
    - a narrower output:                half of the gap between its numbers at the result
    - the oracle's own roundings:       like the kernel's, with its unit roundoff

    `stored`: whether it is rounded to the output's type, too.

    It is infinite where the sum or the result can overflow. Operands have to be finite. Compare
    with `error <= bound`, which is False where the error is NaN.
    """
    dtypes = parse_dtype(dtype)
    if not dtypes.scalar.is_float:
        return np.zeros((a.shape[0], b.shape[1]))
    acc, own, result = dtypes.accumulator.name, dtypes.scalar.name, dtypes.output.name
    out = result if stored else own
    k, u = a.shape[1], numerics.unit_roundoff(own)
    sums = sums or rounded_sums(0, numerics.unit_roundoff(acc))
    more = 2 if after.bias is None else 3
    with np.errstate(over="ignore", invalid="ignore"):
        signed = _linear(a, b, c, alpha, beta, dtypes, after)
        linear = np.abs(signed).astype(np.float64)
        scalar = numerics.storage_dtype(own).type
        alpha, beta = abs(float(scalar(alpha))), abs(float(scalar(beta)))
        left, right = (numerics.to_float64(x, dtypes.input.name) for x in (a, b))
        total, product = np.abs(left) @ np.abs(right), np.abs(left @ right)
        of_sum = sums(left, right)
        addend = beta * _magnitude(c, result) if beta != 0 else np.zeros_like(total)
        if after.bias is not None:
            addend = addend + _magnitude(after.bias, result)
        wide = float(np.finfo(_wide(dtype)).eps)
        error = alpha * of_sum + gamma(more, u) * (alpha * (product + of_sum) + addend)
        error += alpha * gamma(k + more, wide) * total + gamma(more, wide) * addend
        error += (alpha * k + 2) * numerics.smallest_subnormal(acc)
        if exact_sums:
            error = np.zeros_like(error)
        largest_sum = total + of_sum
        largest = alpha * total + addend + error
        exact = linear
        if after.epilogue.endswith("gelu"):
            both = u + numerics.unit_roundoff("f64")  # the oracle computes GELU in float64, always
            error = _GELU_SLOPE * error + _GELU_UNITS * both * (linear + error)
            error += 2 * numerics.smallest_subnormal(own)  # two products
            exact = np.abs(_gelu(signed))
        if out != own:
            error += numerics.half_unit(exact + error, out)
        error *= 1 + 1e-6  # the roundings of these very lines, for K below 10^9
        # Written so that what is NaN after an overflow (0 * infinity) counts as one.
        safe = largest_sum < numerics.overflow_threshold(acc)
        safe &= largest < numerics.overflow_threshold(own)
        safe &= exact + error < numerics.overflow_threshold(out)
        return np.where(safe, error, np.inf)


def _magnitude(matrix: np.ndarray, name: str) -> np.ndarray:
    return np.asarray(np.abs(numerics.to_float64(matrix, name)))
