"""What a GEMM has to compute: an oracle in numpy, and bounds of the errors of right kernels.

Matrices here are two-dimensional arrays of storage (see `gen.numerics`): A is M x K, B is K x N,
C and D are M x N; `dtype` is a name of `gen.spec.DTYPES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gen.spec import numerics
from gen.spec.dtypes import DTypes, parse_dtype
from gen.spec.kernel import KernelSpec


class After(NamedTuple):
    """What becomes of alpha * A * B + beta * C: the epilogue's name, and N elements like C's."""

    epilogue: str = "linear"
    bias: np.ndarray | None = None


LINEAR = After()

# How a kernel sums K products: how many steps an element of the sum goes through at most, and the
# relative error of each.
Sums = Callable[[int], tuple[int, float]]

# Products that tensor cores add to the sum at once, at least: as many on Volta and Turing.
_BLOCK = 4
# How often GELU's slope multiplies an error, at most, and the roundings in computing it: erff and
# erf are right to two units, and so are their arguments; a sum with 1, and three multiplications.
_GELU_SLOPE, _GELU_UNITS = 1.13, 8


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


def gamma(n: int, u: float) -> float:
    """n u / (1 - n u): the relative error of n roundings; infinite where n u >= 1.

    Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., lemma 3.1.
    """
    return n * u / (1 - n * u) if n * u < 1 else float("inf")


def tensor_core_steps(k: int, u: float, more: int) -> tuple[int, float]:
    """Steps of a sum on tensor cores in f32, and the relative error of each: see `sums_of`.

    more: additions of partial sums.
    """
    return k + -(-k // _BLOCK) + more, 2 * u


def sums_of(spec: KernelSpec) -> Sums:
    """How a kernel sums, for `error_bound`.

    On CUDA cores: K additions, each rounded to nearest.

    On tensor cores a block of products is added to the sum at once. Products are exact; all terms
    are aligned to the largest, cut off there, added, and the result is cut off or rounded: Fasi,
    Higham, Mikaitis, Pranesh, Numerical behavior of NVIDIA tensor cores, PeerJ Computer Science 7
    (2021), and for the analysis Blanchard, Higham, Lopez, Mary, Pranesh, Mixed precision block
    fused multiply-add, SIAM J. Sci. Comput. 42 (2020). With 24 bits or more, cutting off any term
    but the largest (which is not cut) and the result costs 2 u of the largest each, so that a block
    of b products makes b + 1 such errors; b is at least 4. Sums in f16 are rounded to f16 after
    every block, to nearest, besides these errors, which are thousands of times less.

    With slices of K, their sums are added in f32; teams that take turns along K add theirs in the
    type that they have.
    """
    dtypes = spec.dtypes
    u = numerics.unit_roundoff(dtypes.scalar.name)
    if spec.instruction is None:
        return lambda k: (k, u)

    def steps(k: int) -> tuple[int, float]:
        blocks = -(-k // _BLOCK)
        slices = max(-(-k // spec.threadblock.k), 1)
        more = min(spec.split_k or slices, slices) - 1 + (spec.sliced_k - 1)
        if dtypes.accumulator.size >= 4:
            return tensor_core_steps(k, u, more)
        half = numerics.unit_roundoff(dtypes.accumulator.name)
        blocks += spec.sliced_k - 1  # teams add up their sums in f16
        return blocks, half + (_BLOCK + 1) * 2 * u * 2 + more * u

    return steps


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
) -> np.ndarray:
    """How far each element of a right D may be from `oracle`: float64, M x N; 0 for integer types.

    Holds for every order of summation, with or without fused multiply-adds. `sums` says in how many
    steps n a product comes into the sum and what relative error v each has; by default K, each
    rounded to nearest; `exact_sums` says that nothing is rounded before the epilogue, as with small
    integers. u is the unit roundoff of the epilogue's type, S = |A| |B|, e = 2 operations
    follow the sum, or 3 with a bias:

    - the sum (Higham, sec. 3.1):       gamma_n S, with v
    - alpha * sum + beta * C + bias:    |alpha| gamma_(n+e) S + gamma_e (|beta C| + |bias|) in all
    - products that underflow:          a subnormal unit each, K of them times |alpha|, and two
    - ReLU, GELU:                       1 or 1.13 times all this; GELU's own: some u of its argument
    - a narrower output:                its unit roundoff times the result, and its subnormal unit
    - the oracle's own roundings:       like the kernel's, with its unit roundoff

    It is infinite where the sum or the result can overflow. Operands have to be finite. Compare
    with `error <= bound`, which is False where the error is NaN.
    """
    dtypes = parse_dtype(dtype)
    if not dtypes.scalar.is_float:
        return np.zeros((a.shape[0], b.shape[1]))
    acc, own, out = dtypes.accumulator.name, dtypes.scalar.name, dtypes.output.name
    k, u = a.shape[1], numerics.unit_roundoff(own)
    n, v = sums(k) if sums else (k, numerics.unit_roundoff(acc))
    more = 2 if after.bias is None else 3
    with np.errstate(over="ignore", invalid="ignore"):
        signed = _linear(a, b, c, alpha, beta, dtypes, after)
        linear = np.abs(signed).astype(np.float64)
        scalar = numerics.storage_dtype(own).type
        alpha, beta = abs(float(scalar(alpha))), abs(float(scalar(beta)))
        total = _magnitude(a, dtypes.input.name) @ _magnitude(b, dtypes.input.name)
        addend = beta * _magnitude(c, out) if beta != 0 else np.zeros_like(total)
        if after.bias is not None:
            addend = addend + _magnitude(after.bias, out)
        wide = float(np.finfo(_wide(dtype)).eps)
        error = alpha * gamma(n + more, v) * total + gamma(more, u) * addend
        error += alpha * gamma(k + more, wide) * total + gamma(more, wide) * addend
        error += (alpha * k + 2) * numerics.smallest_subnormal(acc)
        if exact_sums:
            error = np.zeros_like(error)
        largest_sum = total * (1 + gamma(n, v))
        largest = alpha * total + addend + error
        exact = linear
        if after.epilogue.endswith("gelu"):
            both = u + numerics.unit_roundoff("f64")  # the oracle computes GELU in float64, always
            error = _GELU_SLOPE * error + _GELU_UNITS * both * (linear + error)
            error += 2 * numerics.smallest_subnormal(own)  # two products
            exact = np.abs(_gelu(signed))
        if out != own:
            error += numerics.unit_roundoff(out) * (exact + error)
            error += numerics.smallest_subnormal(out)
        error *= 1 + 1e-6  # the roundings of these very lines, for K below 10^9
        # Written so that what is NaN after an overflow (0 * infinity) counts as one.
        safe = largest_sum < numerics.overflow_threshold(acc)
        safe &= largest < numerics.overflow_threshold(own)
        safe &= exact + error < numerics.overflow_threshold(out)
        return np.where(safe, error, np.inf)


def _magnitude(matrix: np.ndarray, name: str) -> np.ndarray:
    return np.asarray(np.abs(numerics.to_float64(matrix, name)))
