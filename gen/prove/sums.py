"""How far sums may be off: of one precision, and of float32 numbers multiplied in parts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gen.spec import numerics
from gen.spec.kernel import KernelSpec

# How far a kernel's sums of products may be from those of A (M x K) and B (K x N), both in float64:
# an array, M x N.
Sums = Callable[[np.ndarray, np.ndarray], np.ndarray]


def gamma(n: int, u: float) -> float:
    """n u / (1 - n u): the relative error of n roundings; infinite where n u >= 1.

    Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., lemma 3.1.
    """
    return n * u / (1 - n * u) if n * u < 1 else float("inf")


def rounded_sums(steps: int, u: float) -> Sums:
    """Of `steps` additions more than there are products, each with the relative error u.

    Their error is at most gamma_(K + steps) |A| |B|, in any order (Higham, sec. 3.1).
    """
    return lambda a, b: gamma(a.shape[1] + steps, u) * (np.abs(a) @ np.abs(b))


def part_sums(spec: KernelSpec, step: float) -> Sums:
    """Of `f32_6xbf16`. `step`: the error of an instruction, relative to its largest term or sum.

    Let A_p and B_q be the parts, numbered from 0, the leading one, and d A, d B what they have not:
    less than half the least number of their type. With n parts, the kernel makes the products with
    p + q < n. Absolute values are meant element by element, |A| |B| is a product of matrices.

    - left out:         |A_p| |B_q| for all p + q >= n, and |dA| |B| + |A| |dB|
    - leading products: from one promotion to the next, there are i instructions, which begin at
                        zero. No sum in between is larger than the |A_0| |B_0| of these elements of
                        K. With w = i * step, they are w / (1 - w) of that off; all together, of
                        L = |A_0| |B_0|
    - the others:       are added by all instructions, with p + q from 1 to n - 1: the same with T,
                        the sum of these |A_p| |B_q|
    - in f32, rounded:  what is promoted, and the others, of each slice of K or block that shares
                        the tile: m additions, gamma_m (L + T) (Higham, sec. 4.2)
    - underflow:        the least f32 number for each instruction

    A factor below the least normal number has that one's exponent. Where L + T overflows, so may
    a sum in between, and the bound is infinite.
    """
    dtypes, tile, instruction = spec.dtypes, spec.threadblock, spec.instruction
    assert instruction
    tiny = numerics.smallest_normal(dtypes.factor.name)
    n, promote, u = dtypes.parts, spec.tunables["promote"], numerics.unit_roundoff("f32")

    def errors(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        parts = [numerics.parts(x, dtypes) for x in (a, b)]
        lost_a, lost_b = (np.abs(x - sum(its)) for x, its in zip((a, b), parts, strict=True))
        left, right = ([np.where(p, np.maximum(np.abs(p), tiny), 0) for p in its] for its in parts)
        sizes = {(p, q): left[p] @ right[q] for p in range(n) for q in range(n)}
        leading = sizes.pop((0, 0))
        others = sum(sizes.pop(at) for at in [*sizes] if sum(at) < n)
        error = sum(sizes.values()) + lost_a @ np.abs(b) + np.abs(a) @ lost_b

        steps = max(-(-a.shape[1] // tile.k), 1)
        each, promotions = promote // instruction.k, steps * (tile.k // promote)
        made = dtypes.products - 1
        error = error + _relative(each * step) * leading
        error += _relative(made * each * promotions * step) * others
        slices = min(spec.slices_of_k or steps, steps)
        pieces = 2 if spec.stream_k else slices
        total = (leading + others) * (1 + 2.0**-6)  # with the errors so far
        error += gamma(promotions + pieces, u) * total
        error += (made + 1) * each * promotions * numerics.smallest_subnormal("f32")
        return np.where(total < numerics.overflow_threshold("f32"), error, np.inf)

    return errors


def _relative(w: float) -> float:
    return w / (1 - w) if w < 1 else np.inf
