"""The kernels for a problem, the fastest first: all that the grids of the registry have, by `cost`.

`gen.matmul`, `gen choose` and `gen emit --best` take the first; a bundle in C++ has several, and
takes the one that comes first among these.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from gen.device.gpus import GPUS, GpuModel
from gen.dispatch import cost
from gen.dispatch.weights import Weighed, weigh
from gen.errors import SpecError, UsageError
from gen.kernels.cuda_cores.gemv import FEW
from gen.kernels.registry import VARIANTS, built, check_types, make_spec
from gen.kernels.tensor_cores.plan import MOST_SIZE
from gen.kernels.tensor_cores.tiles import PING_PONG
from gen.kernels.tunables import Choice, Conflict, sizes
from gen.kernels.variant import Variant
from gen.spec.arch import compute_capability
from gen.spec.dtypes import DTYPES, DTypes
from gen.spec.kernel import KernelSpec
from gen.spec.problem import ALIGNED, Alignment, GemmProblem, GemmShape, Layouts


@dataclass(frozen=True)
class Product:
    """What is chosen for: `batch` products of one shape. lda, ldb: in elements.

    alignment: whether A and B begin at multiples of 16 bytes.
    """

    shape: GemmShape
    dtypes: DTypes
    layouts: Layouts
    lda: int
    ldb: int
    alignment: Alignment = ALIGNED
    batch: int = 1

    @staticmethod
    def packed(
        shape: GemmShape, dtypes: DTypes, layouts: Layouts, multiple: int = 1, batch: int = 1
    ) -> Product:
        """With lines one after another, whose lengths are rounded up to a multiple of elements."""
        p = GemmProblem.packed(shape, layouts, multiple=multiple)
        return Product(shape, dtypes, layouts, p.lda, p.ldb, batch=batch)

    @cached_property
    def given(self) -> tuple[int, ...]:
        """The values of `cost.GIVEN` that belong to it, as of the row-major product."""
        s = self.shape
        return (s.m, s.n, s.k, self.batch, int(not self.alignment.a), self.lda,
                int(not self.alignment.b), self.ldb)  # fmt: skip

    @cached_property
    def swapped(self) -> tuple[int, ...]:
        """The same for kernels that compute the transpose of D."""
        m, n, k, batch, a, lda, b, ldb = self.given
        return n, m, k, batch, b, ldb, a, lda


# What a time rests on: the model alone, times measured of problems near by, one measured of this
# problem, or of a kernel whose templates have changed since.
MODELLED, INTERPOLATED, MEASURED, OUTDATED = "modelled", "interpolated", "measured", "outdated"


class Ranked(NamedTuple):
    """A kernel and its time in picoseconds, with the values of `cost.FACTS`: the model's.

    The time is the last of these, unless what was measured has corrected it: see `basis`.
    """

    spec: KernelSpec
    weighed: Weighed
    values: tuple[int, ...]
    time: int
    basis: str = MODELLED

    @property
    def modelled(self) -> int:
        """The model's time in picoseconds."""
        return self.values[-1]

    def value(self, name: str) -> int:
        """Of one of the facts."""
        return self.values[cost.AT[name]]

    @property
    def idle(self) -> bool:
        """Whether it could share K among blocks, and does not: there is one that cannot.

        On CUDA cores that one's blocks do not stay, which is another kernel.
        """
        w, persistent = self.weighed.weights, self.spec.row.persistent
        in_one = w.split == 0 and self.value("slices") == 1
        return in_one or bool(w.stream and persistent and not self.value("shares"))


def oldest_arch(dtypes: DTypes) -> str:
    """The architecture that is chosen for where there is no GPU: the first to have the types."""
    archs = [row.usual_arch(dtypes.name) for row in _rows() if dtypes.name in row.dtypes]
    return min(archs, key=compute_capability)


def _rows() -> list[Variant]:
    """What is chosen among."""
    return [row for row in VARIANTS.values() if row.pace]


def model_of(arch: str, multiprocessors: int, name: str = "") -> GpuModel:
    """What a GPU counts as that may be none of the table: the nearest of its generation.

    That is one of the same compute capability, or of the next older one: the one that the driver's
    `name` has in it, or else that with the most nearly as many multiprocessors. Each of these is as
    fast, and has as much of the bandwidth. Only a GPU that is named so has its measured times.
    """
    cc = compute_capability(arch)
    newest = max(gpu.capability for gpu in GPUS.values() if gpu.capability <= cc)
    of_kind = [gpu for gpu in GPUS.values() if gpu.capability == newest]
    letters = _letters(name)
    named = [gpu for gpu in of_kind if _letters(gpu.name) in letters]
    if named:
        return _resized(max(named, key=lambda gpu: len(gpu.name)), multiprocessors)
    nearest = min(of_kind, key=lambda gpu: abs(gpu.sms - multiprocessors))
    return replace(_resized(nearest, multiprocessors), device=name)


def _letters(name: str) -> str:
    return re.sub(r"\W", "", name.lower())


def _resized(gpu: GpuModel, multiprocessors: int) -> GpuModel:
    share = multiprocessors / gpu.sms
    if share == 1:
        return gpu
    rates = {name: getattr(gpu, name) * share for name in ("fp32", "fp64", "tensor", "bandwidth")}
    return replace(gpu, sms=multiprocessors, **rates)


_SIZES = 8  # of groups, that their times are the mean of
# Percent less than the model has for warpgroups that take turns, where groups have so many rows on
# average: that hides how long the last ones of a group take to store. With fewer rows, memory
# limits all kernels. See docs/lab/tensor-cores.md.
_HIDDEN, _FEWEST, _FEW = 15, 64, 256

# On Hopper, rows and columns with more of which no kernel for few is a choice, nor are slices of
# smaller tiles: in 1,300 and 1,900 drawn products, none was near. Others were not looked at.
_MANY, _SLICED = 512, 128 * 192
KINDS = ("epilogue", "batched", "grouped", "grouped_k")  # of products: no matter of choice

Given = tuple[tuple[str, Any], ...]  # tunables that the caller has set


def as_key(tunables: Mapping[str, Any] | None) -> Given:
    """Tunables by name."""
    return tuple(sorted((tunables or {}).items()))


def rank(
    product: Product, gpu: GpuModel, arch: str, tunables: Mapping[str, Any] | None = None
) -> list[Ranked]:
    """Every kernel that is a choice for the problem on a GPU, the fastest first.

    arch: what kernels are written for, the GPU's or older. tunables: those that the caller has
    set stay. Raises SpecError where there is none, and as `make_spec` for tunables that no kernel
    has.
    """
    s = product.shape
    largest = max(s.m, s.n, s.k)
    given = as_key(tunables)
    many = has_many(product, arch) and dict(given).keys() <= {*KINDS}
    found = candidates(product.dtypes, product.layouts, gpu, arch, given, many, largest > MOST_SIZE)
    found = [*found, *_fitted(product, gpu, arch, given, {spec for spec, _ in found})]
    all_ = [timed(product, gpu, *each) for each in found if largest <= each[0].row.most]
    if not all_:
        raise _none(product, arch, dict(given))
    busy = [each for each in all_ if not each.idle]
    return sorted(busy or all_, key=lambda each: each.time)


def has_many(product: Product, arch: str) -> bool:
    """Whether it has so many rows, and columns, that kernels for few of either are no choice.

    Not of doubles, of which tiles have fewer, nor beyond what tensor cores take.
    """
    s = product.shape
    within = min(s.m, s.n) > _MANY and max(s.m, s.n, s.k) <= MOST_SIZE
    return within and arch == "sm_90a" and product.dtypes.input.size < 8


def ranked(spec: KernelSpec, product: Product, gpu: GpuModel) -> Ranked:
    """One kernel, whose row has a pace, with its time for a problem."""
    return timed(product, gpu, spec, weigh(spec, gpu))


def timed(product: Product, gpu: GpuModel, spec: KernelSpec, weighed: Weighed) -> Ranked:
    """The same for weights that are known."""
    values = cost.compute(*_given(product, spec), gpu.sms, *weighed.weights)
    uneven = _is_uneven(product, spec)
    time = predicted(product, gpu, spec, weighed) if uneven else values[-1]
    return Ranked(spec, weighed, values, time)


def predicted(product: Product, gpu: GpuModel, spec: KernelSpec, weighed: Weighed) -> int:
    """The time alone."""
    if _is_uneven(product, spec):
        return _uneven(_rounded(product), gpu, spec, weighed)
    return cost.time(*_given(product, spec), gpu.sms, *weighed.weights)


def _given(product: Product, spec: KernelSpec) -> tuple[int, ...]:
    return product.swapped if spec.swapped else product.given


def _is_uneven(product: Product, spec: KernelSpec) -> bool:
    """Whether products are groups of rows, of which each may have another number."""
    return product.batch > 1 and bool(spec.tunables.get("grouped"))


@lru_cache(maxsize=4096)
def _uneven(product: Product, gpu: GpuModel, spec: KernelSpec, weighed: Weighed) -> int:
    """Of groups with so many rows on average, which the host does not know of each.

    Their numbers are taken to be spread evenly, up to twice the average: the last tile of a group
    is half full on average, whatever rows a tile has.
    """
    s, total = product.shape, 0
    for i in range(_SIZES):
        rows = max(1, s.m * (2 * i + 1) // _SIZES)
        one = replace(product, shape=replace(s, m=rows))
        total += cost.time(*_given(one, spec), gpu.sms, *weighed.weights)
    turns = spec.tunables.get("schedule") == PING_PONG and s.m >= _FEWEST
    hidden = _HIDDEN * _FEW // max(s.m, _FEW) if turns else 0
    return total * (100 - hidden) // (100 * _SIZES)


def _rounded(product: Product) -> Product:
    """With rows rounded to four bits, as programs have other numbers of them in each call."""
    m = product.shape.m
    unit = 1 << max(m.bit_length() - 4, 0)
    return replace(product, shape=replace(product.shape, m=(m + unit // 2) // unit * unit))


def choose(
    product: Product, gpu: GpuModel, arch: str, tunables: Mapping[str, Any] | None = None
) -> KernelSpec:
    """The first of `rank`."""
    return rank(product, gpu, arch, tunables)[0].spec


@lru_cache(maxsize=64)
def candidates(
    dtypes: DTypes,
    layouts: Layouts,
    gpu: GpuModel,
    arch: str,
    given: Given,
    many: bool,
    huge: bool,
) -> Sequence[tuple[KernelSpec, Weighed]]:
    """What there is for these types and layouts, with what the caller has set: see `grids`."""
    found = grids(dtypes, layouts, arch, dict(given), many, huge)
    return [(spec, weigh(spec, gpu)) for spec in found]


def _fitted(
    product: Product, gpu: GpuModel, arch: str, given: Given, others: Collection[KernelSpec]
) -> Sequence[tuple[KernelSpec, Weighed]]:
    """What rows offer for this problem alone, besides `others`."""
    s, values = product.shape, dict(given)
    found: dict[KernelSpec, Weighed] = {}
    for row, chosen in _offered(product.dtypes, product.layouts, arch, values):
        if not row.fitted:
            continue
        turned = not product.layouts.c and row.transposes
        own = replace(s, m=s.n, n=s.m) if turned else s
        for tunables in row.fitted(chosen, own, product.batch, gpu.sms):
            key = as_key({**tunables, **values})
            one = _weighed(row, product.dtypes, product.layouts, chosen.arch, key, gpu)
            if one and one[0] not in others:
                found.update([one])
    return list(found.items())


@lru_cache(maxsize=16384)
def _weighed(
    row: Variant, dtypes: DTypes, layouts: Layouts, arch: str, tunables: Given, gpu: GpuModel
) -> tuple[KernelSpec, Weighed] | None:
    """A kernel that a problem wants, unless it breaks a rule."""
    with suppress(SpecError):
        spec = built(row, Choice(dtypes, layouts, arch, dict(tunables)))
        return spec, weigh(spec, gpu)
    return None


def _offered(
    dtypes: DTypes, layouts: Layouts, arch: str, given: Mapping[str, Any]
) -> Iterator[tuple[Variant, Choice]]:
    """The rows that have kernels of these types with what the caller has set; what that is."""
    cc = compute_capability(arch)
    for row in _rows():
        if row.has(dtypes.name, cc) and given.keys() <= {*row.tunable_names}:
            own = _own_arch(row, arch)
            with suppress(SpecError):  # an older architecture, without what the row needs
                check_types(row, dtypes, own)
                yield row, Choice(dtypes, layouts, own, given)


def _own_arch(row: Variant, arch: str) -> str:
    """What a row's kernels are made for: newer GPUs run those of no certain one, too."""
    return arch if row.max_arch else arch.rstrip("af")


def grids(
    dtypes: DTypes,
    layouts: Layouts,
    arch: str,
    given: Mapping[str, Any],
    many: bool = False,
    huge: bool = False,
) -> Sequence[KernelSpec]:
    """What all rows offer, with what the caller has set.

    many: for products with `has_many`. huge: for those beyond what tensor cores take, where every
    row has its default.
    """
    found: dict[KernelSpec, None] = {}
    unknown: UsageError | None = None
    for row, chosen in _offered(dtypes, layouts, arch, given):
        if many and FEW.name in row.tunable_names:
            continue
        grid = row.grid(chosen._replace(arch=arch))
        if many:
            grid = [tunables for tunables in grid if not _is_small_slice(dtypes, tunables)]
        for tunables in (*grid, {}) if given or huge else grid:
            try:
                found[built(row, chosen._replace(values={**tunables, **given}))] = None
            except SpecError:  # a rule that is broken
                continue
            except UsageError as error:  # a word that other rows may know
                unknown = error
                break
    if unknown and not found:
        raise _of_others(dtypes, arch, given) or unknown
    return list(found)


def _of_others(dtypes: DTypes, arch: str, given: Mapping[str, Any]) -> SpecError | None:
    """What is wrong with tunables that only kernels of other types or architectures have."""
    for row in _rows():
        with suppress(UsageError):
            own = {t.name: t.parse(given[t.name]) for t in row.tunables if t.name in given}
            if own.keys() == given.keys():
                words = ", ".join(f"{name}={value}" for name, value in given.items())
                return SpecError(
                    f"no kernel with {dtypes.name} for {arch} has {words}: {row.name} has, with "
                    f"other types or architectures; leave it out, or see gen list {row.name}"
                )
    return None


def _is_small_slice(d: DTypes, tunables: Mapping[str, Any]) -> bool:
    """Whether blocks would share K of small tiles, of which there are enough, or which clusters
    share better: those of sums of 32 bits."""
    if d.input.size > 2 or d.accumulator.size != 4 or tunables.get("split_k") != 0:
        return False
    tile = sizes(tunables.get("threadblock", ""))  # the default one is large
    return bool(tile) and tile[0] * tile[1] < _SLICED


def _none(product: Product, arch: str, tunables: Mapping[str, Any]) -> SpecError:
    """Why there is no kernel. Raises the error of the tunables where these are why."""
    cc, name, s = compute_capability(arch), product.dtypes.name, product.shape
    rows = [row for row in _rows() if max(s.m, s.n, s.k) <= row.most]
    having = [row for row in rows if row.has(name, cc)]
    if not having:
        others = [name for name in DTYPES if any(row.has(name, cc) for row in rows)]
        return SpecError(
            f"no kernel for {arch} has {name} at {product.shape}; use {', '.join(others)}"
        )
    meant = [row for row in having if tunables.keys() <= {*row.tunable_names}]
    if not meant:
        known = dict.fromkeys(name for row in having for name in row.tunable_names)
        if strange := [name for name in tunables if name not in known]:
            return SpecError(
                f"no kernel with {name} for {arch} has the tunable '{strange[0]}'; they have "
                f"{', '.join(known)}"
            )
        return SpecError(
            f"no kernel with {name} for {arch} has {', '.join(tunables)} together; leave one out"
        )

    def is_told(row: Variant) -> bool:
        """Whether what the row has against the product is about something that was asked for."""
        chosen = Choice(product.dtypes, product.layouts, _own_arch(row, arch), dict(tunables))
        try:
            built(row, chosen)
        except SpecError as error:
            return isinstance(error, Conflict) and bool({*error.blame} & {*tunables})
        return False

    row = next(filter(is_told, reversed(meant)), meant[-1])
    make_spec(row.name, dtype=name, layout=str(product.layouts), arch=arch, **tunables)
    raise AssertionError(f"{row} has a specification that its grid lacks")
