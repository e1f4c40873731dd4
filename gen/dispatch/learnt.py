"""What measured times make of the model's: of tuned problems, those that are near by.

See `gen.dispatch.nearness` for how much each of them counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import NamedTuple

from gen.device.gpus import GpuModel
from gen.dispatch import nearness, ranking
from gen.dispatch.lines import Lines, Sizes, Time
from gen.dispatch.nearness import OWN, Point, Sums
from gen.dispatch.ranking import INTERPOLATED, MEASURED, OUTDATED, Product, Ranked
from gen.dispatch.weights import Weighed, weigh
from gen.errors import GenError
from gen.kernels.registry import spec_from_json
from gen.source.versions import template_version
from gen.spec.dtypes import DTypes
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmShape, Layouts


class Known(NamedTuple):
    """A kernel that was measured on a problem: the time over the model's, as `Point` has it.

    fresh: whether its templates are what they were then.
    """

    spec: KernelSpec
    ratio: int
    fresh: bool


@lru_cache(maxsize=64)
def _of_grids(
    dtypes: DTypes, layouts: Layouts, gpu: GpuModel, many: bool
) -> Mapping[str, tuple[KernelSpec, Weighed]]:
    """What is chosen among where no tunables are given: nearly all kernels that a table has.

    They are made once for both.
    """
    found = ranking.candidates(dtypes, layouts, gpu, gpu.own_arch, (), many, False)
    return {spec.to_json(): (spec, weighed) for spec, weighed in found}


@lru_cache(maxsize=4096)  # a table has each kernel on many problems
def _weighed(text: str, gpu: GpuModel) -> tuple[KernelSpec, Weighed] | None:
    """A kernel by its JSON; None where this gen has it no more."""
    try:
        spec = spec_from_json(text)
        return spec, weigh(spec, gpu)
    except (GenError, AssertionError):
        return None


class Tuned:
    """A problem that was tuned on a GPU."""

    def __init__(self, product: Product, times: Sequence[Time], gpu: GpuModel) -> None:
        self.product, self._times, self._gpu = product, times, gpu
        self.at = _point(_place(product))

    @cached_property
    def known(self) -> Mapping[str, Known]:
        """The kernels that were measured, as far as this gen still has them, by `KernelSpec.core`.

        Of two times of one, that of the later run: an older gen may lack a tunable that is 0.
        """
        product, gpu = self.product, self._gpu
        many = ranking.has_many(product, gpu.own_arch)
        kernels = _of_grids(product.dtypes, product.layouts, gpu, many)
        found: dict[str, Known] = {}
        for time in sorted(self._times, key=attrgetter("run", "spec")):
            kernel = kernels.get(time.spec) or _weighed(time.spec, gpu)
            if kernel is None:
                continue
            spec = kernel[0]
            predicted = ranking.predicted(product, gpu, *kernel)
            ratio = round(time.us * 1e6 * nearness.ONE / predicted)
            ratio = min(max(ratio, nearness.LEAST), nearness.MOST)
            fresh = time.templates == template_version(spec.row.template)
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
    """What tables say of a GPU, of element types, and of problems in some layouts.

    Of the same thing, the later run's time counts, and that of the later table in one run.
    """

    def __init__(
        self, tables: Sequence[Lines], gpu: GpuModel, dtypes: DTypes, layouts: Layouts
    ) -> None:
        self._tables, self._gpu, self._dtypes, self._layouts = tables, gpu, dtypes, layouts
        words = gpu.key, str(layouts)
        found = sorted({sizes for table in tables for sizes in table.sizes(*words)})
        self._sizes = {sizes: nearness.counted(sizes) for sizes in found}
        self._tuned: dict[Sizes, Sequence[Tuned]] = {}  # as far as they were near a problem

    def _of(self, sizes: Sizes) -> Sequence[Tuned]:
        """The tuned problems of a shape: of numbers of products."""
        if sizes not in self._tuned:
            words = self._gpu.key, sizes, self._dtypes.name, str(self._layouts)
            by_batch: dict[int, list[Time]] = {}
            for time in (time for table in self._tables for time in table.times(*words)):
                by_batch.setdefault(time.batch, []).append(time)
            of = GemmShape(*sizes), self._dtypes, self._layouts
            self._tuned[sizes] = [
                Tuned(Product.packed(*of, batch=batch), by_batch[batch], self._gpu)
                for batch in sorted(by_batch)
            ]
        return self._tuned[sizes]

    def prepare(self) -> None:
        """Compares all that was measured with the model now, so that no later choice has to.

        Without it, each choice does so with what is near that nobody has asked for before.
        """
        for sizes in self._sizes:
            for one in self._of(sizes):
                one.ratios  # noqa: B018

    def _near(self, product: Product) -> list[Near]:
        """The tuned problems that count for a problem."""
        at = _place(product)
        return [
            Near(one, {own: nearness.weight(at, one.at._replace(own=own)) for own in (1, OWN)})
            for sizes, counted in self._sizes.items()
            if nearness.may_count(at, counted)
            for one in self._of(sizes)
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
