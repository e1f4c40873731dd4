"""Kernels that give each row of D the same bits, however many rows there are: one order of sums.

The order follows from everything but M: types, N, K, the layout of B, the GPU, and what the caller
has set. Then, the fastest kernel of this order is taken for each M.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import product as combined
from typing import Any

from gen.device.gpus import GpuModel
from gen.dispatch import ranking
from gen.dispatch.ranking import Given, Product, Ranked
from gen.dispatch.weights import Weighed, weigh
from gen.errors import SpecError
from gen.kernels.order import Order, check_invariant, order_of
from gen.kernels.registry import build
from gen.spec.dtypes import DTypes
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmShape, Layouts

INVARIANT = ("rows",)  # what a result may be asked not to depend on

# Rows with which orders are compared: from one token of a language model to thousands.
ROWS = (1, 16, 64, 256, 1024, 8192)
SLICES = (2, 4, 8)  # of K, in place of as many as suit M
MOST_PARTIALS = 2**28  # bytes of their sums, of the most of these rows
_LINE = 64  # elements: leading dimensions are multiples of it there, so that nothing is packed

Kernels = Mapping[Order, Sequence[tuple[KernelSpec, Weighed]]]


def rank_invariant(
    product: Product, gpu: GpuModel, arch: str, tunables: Mapping[str, Any] | None = None
) -> list[Ranked]:
    """The kernels of the order for a problem, the fastest first: see `gen.dispatch.ranking.rank`.

    Raises SpecError where there is none, as for tunables with which M has a part in the order.
    """
    given = ranking.as_key(tunables)
    alone = tuple(one for one in given if one[0] != "batched")  # as one of a batch is added up
    s, layouts = product.shape, product.layouts
    order = order_for(product.dtypes, layouts, s.n, s.k, gpu, arch, alone)
    if order is None:
        raise _none(product, gpu, arch, given)
    found = _kernels(product.dtypes, layouts, gpu, arch, given)[order]
    all_ = [ranking.timed(product, gpu, *each) for each in found if s.m <= each[0].row.most]
    if not all_:
        most = found[0][0].row.most
        raise SpecError(
            f"M={s.m} is more than {order.variant} takes, whose order of sums all M have "
            f"(invariant='rows'); use {most} rows at a time"
        )
    return sorted(all_, key=lambda each: each.time)


@lru_cache(maxsize=1024)
def order_for(
    dtypes: DTypes, layouts: Layouts, n: int, k: int, gpu: GpuModel, arch: str, given: Given
) -> Order | None:
    """The order of sums for all M, whatever the layouts of A and D; None where no kernel has one.

    That is the one whose fastest kernels take the least time beside those of any order: by the
    geometric mean over `ROWS`, with operands that nothing packs. Slices take a workspace that grows
    with M: `MOST_PARTIALS` limits it, unless the caller has set their number.
    """
    same = [Layouts(a, layouts.b, c) for a, c in combined((True, False), repeat=2)]
    each = [_kernels(dtypes, one, gpu, arch, given) for one in same]
    largest = max(n, k)
    row_bytes = n * dtypes.scalar.size

    def is_small(order: Order) -> bool:
        partials = order.slices * ROWS[-1] * row_bytes if order.slices > 1 else 0
        return partials <= MOST_PARTIALS or "split_k" in dict(given)

    orders = {
        order: kernels
        for order, kernels in each[0].items()
        if is_small(order) and all(order in others for others in each)
        if largest <= min(spec.row.most for spec, _ in kernels)
    }
    shapes = (GemmShape(rows, n, k) for rows in ROWS)
    products = [Product.packed(shape, dtypes, same[0], _LINE) for shape in shapes]

    def time(order: Order) -> float:
        """Its logarithm: a ratio to what is the same for all orders changes nothing."""
        return sum(
            math.log(min(ranking.timed(product, gpu, *one).time for one in orders[order]))
            for product in products
        )

    return min(orders, key=time, default=None)


@lru_cache(maxsize=64)
def _kernels(dtypes: DTypes, layouts: Layouts, gpu: GpuModel, arch: str, given: Given) -> Kernels:
    """What there is of each order."""
    found: dict[Order, dict[KernelSpec, Weighed]] = {}
    for spec in ranking.grids(dtypes, layouts, arch, dict(given)):
        for one in _with_slices(spec, given):
            if order := order_of(one):
                found.setdefault(order, {})[one] = weigh(one, gpu)
    return {order: [*kernels.items()] for order, kernels in found.items()}


def _with_slices(spec: KernelSpec, given: Given) -> Iterator[KernelSpec]:
    """A kernel; in place of one whose slices M has a part in, those with fixed numbers of them."""
    if order_of(spec) or spec.split_k or "split_k" in dict(given):
        yield spec
        return
    asked = {"dtype": spec.dtypes.name, "arch": spec.arch, **spec.tunables}
    for slices in SLICES:
        with suppress(SpecError):  # a rule that is broken
            yield build(spec.row, spec.layouts, {**asked, "split_k": slices}, None)


def _none(product: Product, gpu: GpuModel, arch: str, given: Given) -> SpecError:
    """Why there is no order: what the caller has set. Raises it where it is more than that."""
    for each in ranking.rank(product, gpu, arch, dict(given)):
        check_invariant(each.spec)
    return SpecError(
        f"no kernel with {', '.join(dict(given))} adds up alike for row-major and column-major A "
        "(invariant='rows'); leave one of them out"
    )
