"""What the emulator takes of a proof: how much at most, how long, and in how much memory."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import astuple

from gen.errors import UsageError
from gen.spec.problem import GemmShape
from gen.spread.job import Cost

MAX_ELEMENTS = 2 * 10**7  # of A, B and D together: some gigabytes with all copies and records
MAX_PRODUCTS = 10**11  # some hours
SLOW = 3 * 10**8  # products: a minute or more for the trials of a shape
_PROCESS = 4 * 10**8  # bytes of a process that has compiled and run many kernels
_ELEMENT = 250  # bytes for each element of A, B and D, with all copies and records


def emulated(shapes: Sequence[GemmShape]) -> None:
    """Refuses shapes that would fill this machine's memory, or run for days; warns of slow ones."""
    for shape in shapes:
        m, n, k = shape.m, shape.n, shape.k
        elements = m * k + k * n + m * n
        if elements > MAX_ELEMENTS or m * n * k > MAX_PRODUCTS:
            raise UsageError(
                f"{shape} has {elements:.3g} elements and {m * n * k:.3g} products, more than the "
                f"{MAX_ELEMENTS:.3g} and {MAX_PRODUCTS:.3g} that the emulator takes; use a smaller "
                "shape"
            )
        if m * n * k > SLOW:
            warnings.warn(
                f"{shape} takes minutes on the emulator, which computes {m * n * k:.2g} products "
                "several times for a kernel; a smaller shape finds most mistakes as well",
                stacklevel=2,
            )


def emulated_cost(*problems: tuple[GemmShape, int]) -> Cost:
    """What trials take on the emulator that run together, of shapes and numbers of products."""
    elements, work = 0, 0
    for (m, n, k), products in ((astuple(shape), products) for shape, products in problems):
        elements += products * (m * k + k * n + m * n)
        work += products * m * n * k
    return Cost(work / SLOW * 60, _PROCESS + _ELEMENT * elements)
