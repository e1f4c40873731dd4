"""variant="auto": the kernel for a problem, by rules that fit on a page.

Of the kernels that have the element types, the GPU and the sizes, the one of the highest rank. Of
its tiles of D, the one with which multiprocessors are done first: what counts is how many tiles the
busiest has, and that an element of a smaller tile takes longer. Where even the smallest tiles are
too few, slices of a long K are summed apart as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gen.errors import SpecError
from gen.kernels.formulas import ceil_div
from gen.kernels.registry import VARIANTS
from gen.kernels.tunables import Choice
from gen.kernels.variant import Candidate, Variant
from gen.spec.arch import compute_capability
from gen.spec.dtypes import DTYPES, DTypes
from gen.spec.problem import GemmShape, Layouts

# Slices of K pay where fewer of the multiprocessors than this have a tile, and a tile takes more
# steps along K than this: the sums are a second kernel, which takes as long as some ten steps.
BUSY, STEPS = 0.75, 16


class Product(NamedTuple):
    """What is chosen for."""

    shape: GemmShape
    dtypes: DTypes
    layouts: Layouts


def oldest_arch(dtypes: DTypes) -> str:
    """The architecture that is chosen for where there is no GPU: the first to have the types."""
    rows = [row for row in VARIANTS.values() if row.rank and dtypes.name in row.dtypes]
    return min((row.usual_arch(dtypes.name) for row in rows), key=compute_capability)


def choose(
    product: Product, arch: str, multiprocessors: int, tunables: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """The variant and its tunables; those that the caller has set stay.

    Raises SpecError where no kernel has the types.
    """
    row = _best(product, arch, tunables)
    candidates = row.candidates(Choice(product.dtypes, product.layouts, arch, {}))
    if not candidates:
        return row.name, tunables
    chosen = _tile(product, row, candidates, multiprocessors)
    if tunables.keys() & (chosen.keys() - {"stages"}):
        return row.name, tunables  # tiles go together: one by hand, all by hand
    if "stages" in tunables:
        chosen.pop("sliced_k", None)  # teams leave each other sums where the stages were
    return row.name, {**chosen, **tunables}


def _best(product: Product, arch: str, tunables: dict[str, Any]) -> Variant:
    """The row of the highest rank; of those that have what the caller has set, if any do."""
    s, cc = product.shape, compute_capability(arch)
    rows = [row for row in VARIANTS.values() if row.rank and max(s.m, s.n, s.k) <= row.most]
    having = [row for row in rows if row.has(product.dtypes.name, cc)]
    if not having:
        others = [name for name in DTYPES if any(row.has(name, cc) for row in rows)]
        raise SpecError(
            f"no kernel for {arch} has {product.dtypes.name} at {s}; use {', '.join(others)}"
        )
    meant = [row for row in having if tunables.keys() <= set(row.tunable_names)]
    return max(meant or having, key=lambda row: row.rank)


def _tile(
    product: Product, row: Variant, candidates: Sequence[Candidate], multiprocessors: int
) -> dict[str, Any]:
    s = product.shape
    rows, cols = (s.n, s.m) if row.transposes and not product.layouts.c else (s.m, s.n)

    def count(candidate: Candidate) -> int:
        return ceil_div(rows, candidate.tile.m) * ceil_div(cols, candidate.tile.n)

    def time(candidate: Candidate) -> float:
        turns = ceil_div(count(candidate), multiprocessors)
        return turns * candidate.tile.m * candidate.tile.n * candidate.time

    best, smallest = min(candidates, key=time), candidates[-1]
    if "split_k" not in row.tunable_names:
        return {**best.tunables}
    idle = count(smallest) < BUSY * multiprocessors and s.k > STEPS * smallest.tile.k
    return {**(smallest if idle else best).tunables, "split_k": 0 if idle else 1}
