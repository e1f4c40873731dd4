"""Sums of f64 on tensor cores: IEEE 754's fused multiply-adds, in the order of k.

Each is rounded once, by the instruction's mode, and the accumulator comes first. That an
instruction's products are added one after the other, and in this order, is taken from the FMA that
the PTX manual speaks of; it has not been measured. Sums of integers are the same in any order.
"""

from __future__ import annotations

import re

import numpy as np

from gen.emulator.isa.ops import directed_fma_f64
from gen.emulator.warp.tensor_core import Array


def multiply_add_f64(a: Array, b: Array, c: Array, name: str) -> Array:
    """A (rows x k), B (k x columns) and C (rows x columns), in the last two dimensions; float64.

    `name` is the instruction's, which may end in its rounding mode: .rn, .rz, .rm, .rp.
    """
    stated = re.search(r"\.(r[nzmp])$", name)
    mode = stated[1] if stated else "rn"
    if mode == "rn" and _is_exact(a, b, c):
        return np.asarray(c + a @ b)
    for k in range(a.shape[-1]):
        c = directed_fma_f64(a[..., k, None], b[..., None, k, :], c, mode)
    return c


def _is_exact(a: Array, b: Array, c: Array) -> bool:
    """Whether all sums are of integers that float64 has: then their order does not matter.

    Nor does the sign of a zero, unless C has a -0.
    """
    most = [np.abs(x).max() for x in (a, b, c)]
    if not most[0] * most[1] * a.shape[-1] + most[2] < 2.0**53:
        return False
    if any(np.any(x != np.rint(x)) for x in (a, b, c)):
        return False
    return not np.any(np.signbit(c) & (c == 0))
