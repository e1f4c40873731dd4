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
from gen.dispatch.nearness import OWN, Point, Sums
from gen.dispatch.ranking import INTERPOLATED, MEASURED, OUTDATED, Product, Ranked
from gen.dispatch.table import Entry, Table
from gen.dispatch.weights import Weighed, weigh
from gen.errors import GenError
from gen.kernels.registry import make_spec
from gen.source.versions import template_version
from gen.spec.dtypes import DTypes, parse_dtype
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmShape, Layouts, parse_layout

Fields = tuple[tuple[str, Any], ...]  # of `KernelSpec.fields`, in their order


class Known(NamedTuple):
    """A kernel that was measured on a problem: the time over the model's, as `Point` has it.

    fresh: whether its templates are what they were then.
    """

    spec: KernelSpec
    ratio: int
    fresh: bool


@lru_cache(maxsize=64)
def _of_grids(
    dtypes: DTypes, layouts: Layouts, gpu: GpuModel
) -> Mapping[Fields, tuple[KernelSpec, Weighed]]:
    """What is chosen among where no tunables are given: nearly all kernels that a table has.

    They are made once for both.
    """
    found = ranking.candidates(dtypes, layouts, gpu, gpu.own_arch, ())
    return {tuple(spec.fields.items()): (spec, weighed) for spec, weighed in found}


@lru_cache(maxsize=4096)  # a table has each kernel on many problems
def _weighed(fields: Fields, gpu: GpuModel) -> tuple[KernelSpec, Weighed]:
    spec = make_spec(**dict(fields))
    return spec, weigh(spec, gpu)


class Tuned:
    """A problem that was tuned on a GPU."""

    def __init__(self, entries: Sequence[Entry], gpu: GpuModel) -> None:
        self._entries, self._gpu = entries, gpu
        self.product = product_of(entries[0])
        self.at = _point(_place(self.product))

    @cached_property
    def known(self) -> Mapping[str, Known]:
        """The kernels that were measured, as far as this gen still has them, by `KernelSpec.core`.

        Of two entries of one, that of the later run: an older gen may lack a tunable that is 0.
        """
        product, gpu = self.product, self._gpu
        kernels = _of_grids(product.dtypes, product.layouts, gpu)
        found: dict[str, Known] = {}
        for entry in sorted(self._entries, key=lambda entry: entry.run):
            try:
                fields = tuple(entry.spec.items())
                spec, weighed = kernels.get(fields) or _weighed(fields, gpu)
                predicted = ranking.timed(product, gpu, spec, weighed).time
            except (GenError, TypeError, AssertionError):
                continue
            ratio = round(entry.us * 1e6 * nearness.ONE / predicted)
            ratio = min(max(ratio, nearness.LEAST), nearness.MOST)
            fresh = entry.templates == template_version(spec.row.template)
            found[spec.core] = Known(spec, ratio, fresh)
        return found

    @cached_property
    def ratios(self) -> Mapping[str, tuple[int, int]]:
        """`own` and `at_ratio` of points: of the kernels that were measured by `KernelSpec.core`.

        Of others by their variant, the geometric mean of its ratios; under no name, that of all.
        Nothing where no kernel is known.
        """
        logs: dict[str, list[float]] = {}
        for one in self.known.values():
            log = math.log(one.ratio)
            for name in (one.spec.variant, ""):
                logs.setdefault(name, []).append(log)
        means = {name: round(math.exp(math.fsum(x) / len(x))) for name, x in logs.items()}
        measured = {x: (OWN if one.fresh else 1, one.ratio) for x, one in self.known.items()}
        return {**{name: (1, mean) for name, mean in means.items()}, **measured}

    def ratio(self, spec: KernelSpec) -> tuple[int, int]:
        """`own` and `at_ratio` of a kernel's point."""
        found = self.ratios
        return found.get(spec.core) or found.get(spec.variant) or found[""]

    def point(self, spec: KernelSpec) -> Point:
        """A kernel's."""
        return _point(place(spec, self.product), *self.ratio(spec))

    def basis(self, spec: KernelSpec) -> str:
        """What a kernel's time rests on, for the problem itself."""
        known = self.known.get(spec.core)
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
    given = product.swapped if spec.swapped else product.given
    return nearness.place(given, product.dtypes.input.size)


def _place(product: Product) -> nearness.Place:
    """The same for kernels that swap no operands."""
    return nearness.place(product.given, product.dtypes.input.size)


class Near(NamedTuple):
    """A tuned problem that counts for another one.

    weights: how much a point there counts, by its `own`. It is as much for kernels that swap
    operands: M and N change places there, A and B, in both problems.
    """

    tuned: Tuned
    weights: Mapping[int, int]

    def counted(self, spec: KernelSpec) -> tuple[int, int]:
        """The weight and the ratio of a kernel's point."""
        own, ratio = self.tuned.ratio(spec)
        return self.weights[own], ratio


class Learnt:
    """What a table, of one GPU and of element types, says of problems in some layouts."""

    def __init__(self, table: Table, gpu: GpuModel, layouts: Layouts) -> None:
        groups: dict[tuple[GemmShape, int], list[Entry]] = {}
        name = str(layouts)
        for entry in table.entries:
            if entry.spec["layout"] == name:
                groups.setdefault((entry.size, entry.batch), []).append(entry)
        self._tuned = [Tuned(group, gpu) for group in groups.values()]

    def prepare(self) -> None:
        """Compares all that was measured with the model now, so that no later choice has to.

        Without it, each choice does so with what is near that nobody has asked for before.
        """
        self._tuned = [one for one in self._tuned if one.ratios]

    def _near(self, product: Product) -> list[Near]:
        """The tuned problems that count for a problem."""
        at = _place(product)
        return [
            Near(one, {own: nearness.weight(at, one.at._replace(own=own)) for own in (1, OWN)})
            for one in self._tuned
            if nearness.weight(at, one.at) and one.ratios
        ]

    def points(self, spec: KernelSpec, products: Iterable[Product]) -> tuple[Point, ...]:
        """A kernel's, that count for one of the problems."""
        near = dict.fromkeys(one.tuned for product in products for one in self._near(product))
        return tuple(tuned.point(spec) for tuned in near)

    def corrected(self, product: Product, found: Sequence[Ranked]) -> Sequence[Ranked]:
        """The same kernels, with the times that what was measured makes of the model's."""
        near = self._near(product)
        if not near:
            return found
        itself = next((one.tuned for one in near if one.tuned.product == product), None)
        measured = {core for one in near for core in one.tuned.known}
        sums: dict[str, Sums] = {}  # by core; of kernels that were measured nowhere, by variant

        def one(modelled: Ranked) -> Ranked:
            spec = modelled.spec
            name = spec.core if spec.core in measured else spec.variant
            if name not in sums:
                sums[name] = nearness.summed(each.counted(spec) for each in near)
            basis = itself.basis(spec) if itself else INTERPOLATED
            time = sums[name].corrected(modelled.modelled)
            return Ranked(spec, modelled.weighed, modelled.values, time, basis)

        return [one(each) for each in found]


@lru_cache(maxsize=64)
def _learnt(table: Table, gpu: GpuModel, layouts: Layouts) -> Learnt:
    return Learnt(table, gpu, layouts)


def learnt(gpu: GpuModel, dtypes: DTypes, layouts: Layouts, places: Places) -> Learnt:
    """What tables say of a GPU, element types and layouts. Raises UsageError as `Places.table`."""
    return _learnt(places.table(gpu, dtypes), gpu, layouts)


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
    corrected = learnt(gpu, product.dtypes, product.layouts, places).corrected(product, found)
    return sorted(corrected, key=lambda each: each.time)
