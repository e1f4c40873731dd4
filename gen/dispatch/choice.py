"""The choice: all kernels for a problem, by the model and what was measured, the fastest first.

`gen.matmul`, `gen choose`, `gen emit --best`, `gen tune` and `gen report` ask here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from gen.device.gpus import GpuModel
from gen.dispatch import nearness, ranking
from gen.dispatch.folders import NOWHERE, Places
from gen.dispatch.invariant import rank_invariant
from gen.dispatch.nearness import OWN, Point
from gen.dispatch.ranking import INTERPOLATED, MEASURED, OUTDATED, Product, Ranked
from gen.dispatch.table import Entry, Table
from gen.dispatch.weights import Weighed, weigh
from gen.errors import GenError
from gen.kernels.registry import make_spec
from gen.source.versions import template_version
from gen.spec.dtypes import DTypes, parse_dtype
from gen.spec.kernel import KernelSpec
from gen.spec.problem import Layouts, parse_layout

Kernel = tuple[Any, ...]


def kernel_of(spec: KernelSpec) -> Kernel:
    """What is the same kernel to a table, with any epilogue, and for batches, too."""
    same = (one for one in spec.tunables.items() if one[0] not in ("epilogue", "batched"))
    return spec.variant, spec.arch, *same


class Known(NamedTuple):
    """A kernel that was measured on a problem: the time over the model's, as `Point` has it."""

    entry: Entry
    spec: KernelSpec
    ratio: int
    fresh: bool


@lru_cache(maxsize=4096)  # a table has each kernel on many problems
def _weighed(
    fields: tuple[tuple[str, Any], ...], gpu: GpuModel
) -> tuple[KernelSpec, Weighed, Kernel]:
    spec = make_spec(**dict(fields))
    return spec, weigh(spec, gpu), kernel_of(spec)


class Tuned:
    """A problem that was tuned on a GPU."""

    def __init__(self, entries: Sequence[Entry], gpu: GpuModel) -> None:
        self._entries, self._gpu = entries, gpu
        self.product = product_of(entries[0])
        self.at = _point(nearness.place(self.product.given, self.product.dtypes.input.size))

    @cached_property
    def _places(self) -> tuple[nearness.Place, nearness.Place]:
        return _places(self.product)

    @cached_property
    def known(self) -> Mapping[Kernel, Known]:
        """The kernels that were measured, as far as this gen still has them.

        Of two entries of one, that of the later run: an older gen may lack a tunable that is 0.
        """
        found: dict[Kernel, Known] = {}
        for entry in sorted(self._entries, key=lambda entry: entry.run):
            try:
                spec, weighed, kernel = _weighed(tuple(entry.spec.items()), self._gpu)
                predicted = ranking.timed(self.product, self._gpu, spec, weighed).time
            except (GenError, TypeError, AssertionError):
                continue
            ratio = round(entry.us * 1e6 * nearness.ONE / predicted)
            ratio = min(max(ratio, nearness.LEAST), nearness.MOST)
            fresh = entry.templates == template_version(spec.row.template)
            found[kernel] = Known(entry, spec, ratio, fresh)
        return found

    @cached_property
    def _means(self) -> Mapping[str, int]:
        """The geometric mean of the ratios of each variant; of all, under no name."""
        logs: dict[str, list[float]] = {}
        for one in self.known.values():
            for name in (one.spec.variant, ""):
                logs.setdefault(name, []).append(math.log(one.ratio))
        return {name: round(math.exp(math.fsum(x) / len(x))) for name, x in logs.items()}

    def point(self, spec: KernelSpec, kernel: Kernel) -> Point:
        """For a kernel: with its own ratio, or that of its variant, or that of all."""
        at, known = self._places[spec.swapped], self.known.get(kernel)
        if known:
            return _point(at, OWN if known.fresh else 1, known.ratio)
        return _point(at, 1, self._means.get(spec.variant, self._means[""]))

    def basis(self, spec: KernelSpec, kernel: Kernel) -> str:
        """What a kernel's time rests on, for the problem itself."""
        known = self.known.get(kernel)
        if known is None or known.spec.epilogue != spec.epilogue:
            return INTERPOLATED
        return MEASURED if known.fresh else OUTDATED


def product_of(entry: Entry) -> Product:
    """The problem that an entry is of: operands without gaps."""
    dtypes, layouts = parse_dtype(entry.spec["dtype"]), parse_layout(entry.spec["layout"])
    return replace(Product.packed(entry.size, dtypes, layouts), batch=entry.batch)


def _point(at: nearness.Place, own: int = 1, ratio: int = nearness.ONE) -> Point:
    m, n, k, count, odd_a, odd_b = at
    return Point(m, n, k, count, odd_a + 2 * odd_b, own, ratio)


def place(spec: KernelSpec, product: Product) -> nearness.Place:
    """Where a problem is for a kernel."""
    return _places(product)[spec.swapped]


def _places(product: Product) -> tuple[nearness.Place, nearness.Place]:
    """Where a problem is for kernels that compute it as it is, and for those that swap operands."""
    size = product.dtypes.input.size
    return nearness.place(product.given, size), nearness.place(product.swapped, size)


class Learnt:
    """What a table says of a GPU and element types."""

    def __init__(self, table: Table, gpu: GpuModel) -> None:
        groups: dict[tuple[Any, ...], list[Entry]] = {}
        for entry in table.entries:
            groups.setdefault(entry.problem, []).append(entry)
        self._tuned: dict[Layouts, list[Tuned]] = {}
        for group in groups.values():
            try:
                one = Tuned(group, gpu)
            except GenError:  # types that this gen does not have
                continue
            self._tuned.setdefault(one.product.layouts, []).append(one)

    def _near(self, product: Product) -> list[Tuned]:
        """The tuned problems that count for a problem."""
        at = nearness.place(product.given, product.dtypes.input.size)
        tuned = self._tuned.get(product.layouts, ())
        return [one for one in tuned if nearness.weight(at, one.at) and one.known]

    def points(self, spec: KernelSpec, products: Iterable[Product]) -> tuple[Point, ...]:
        """A kernel's, that count for one of the problems."""
        near = dict.fromkeys(one for product in products for one in self._near(product))
        kernel = kernel_of(spec)
        return tuple(one.point(spec, kernel) for one in near)

    def corrected(self, product: Product, found: Sequence[Ranked]) -> Sequence[Ranked]:
        """The same kernels, with the times that what was measured makes of the model's."""
        near = self._near(product)
        if not near:
            return found
        itself = next((one for one in near if one.product == product), None)
        places = _places(product)

        def one(each: Ranked) -> Ranked:
            spec, kernel = each.spec, kernel_of(each.spec)
            points = [one.point(spec, kernel) for one in near]
            time = nearness.corrected(each.modelled, places[spec.swapped], points)
            basis = itself.basis(spec, kernel) if itself else INTERPOLATED
            return each._replace(time=time, basis=basis)

        return [one(each) for each in found]


@lru_cache(maxsize=64)
def _learnt(table: Table, gpu: GpuModel) -> Learnt:
    return Learnt(table, gpu)


def learnt(gpu: GpuModel, dtypes: DTypes, places: Places) -> Learnt:
    """What tables say of a GPU and element types. Raises UsageError as `Places.table`."""
    return _learnt(places.table(gpu, dtypes), gpu)


def rank(
    product: Product,
    gpu: GpuModel,
    arch: str,
    tunables: Mapping[str, Any] | None = None,
    places: Places = NOWHERE,
    invariant: bool = False,
) -> list[Ranked]:
    """Every kernel that can run the problem on a GPU, the fastest first.

    arch and tunables: see `gen.dispatch.ranking.rank`, as for what is raised. places: the tables of
    measured times, which correct the model's. invariant: of one order of sums for all M, which
    follows from the model alone (see `gen.dispatch.invariant`), so that no table changes a result.
    """
    modelled = rank_invariant if invariant else ranking.rank
    found = modelled(product, gpu, arch, tunables)
    corrected = learnt(gpu, product.dtypes, places).corrected(product, found)
    return sorted(corrected, key=lambda each: each.time)
