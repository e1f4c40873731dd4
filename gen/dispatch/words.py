"""What a choice rests on, in words: what limits a kernel, why it comes first, how to emit it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gen.device.gpus import GPUS, GpuModel
from gen.dispatch.cost import MOST
from gen.dispatch.ranking import INTERPOLATED, MEASURED, MODELLED, OUTDATED, Product, Ranked
from gen.errors import counted
from gen.kernels.order import order_of
from gen.kernels.tunables import Choice
from gen.spec.arch import UNIT
from gen.spec.kernel import KernelSpec
from gen.tables import number

MEASURED_ON = "h200"  # what the constants of the model are fitted to
HIDDEN_BY = 1.02  # a block that is alone takes longer than its share of full ones, noticeably


def limit(found: Ranked) -> str:
    """What takes the longest."""
    value = found.value
    if value("moving") > value("multiplying"):
        return "device memory"
    besides = found.weighed.weights.start + value("turns") * value("tail")
    if 2 * besides > found.modelled - value("packing") - value("adding"):
        return "start and end"
    if value("alone") > HIDDEN_BY * value("full") and not value("gains"):
        return "latency"
    if value("copies") > value("busy"):
        return "L2 cache"
    return found.weighed.bound


def waves(found: Ranked, gpu: GpuModel) -> float:
    """Work tiles, or parts of them, over those that the GPU has at the same time."""
    parts = found.value("tiles") * found.value("slices") * found.spec.cluster_k
    return parts / (gpu.sms * found.weighed.weights.resident)


def is_fitted(gpu: GpuModel) -> bool:
    """Whether the model was fitted to times of this GPU."""
    return gpu.name == MEASURED_ON and not gpu.device


def basis(found: Ranked, gpu: GpuModel) -> str:
    """What its time rests on."""
    if found.basis == MODELLED and is_fitted(gpu):
        return "modelled, fitted"
    return found.basis


def rests(found: Sequence[Ranked], gpu: GpuModel) -> str:
    """What the times of a ranking rest on, in a few words."""
    on = GPUS[MEASURED_ON].title.partition(" ")[0]
    kinds = {each.basis for each in found}
    if MEASURED in kinds:
        return "measured by gen tune; of kernels that were not, corrected by those that were"
    if OUTDATED in kinds:
        return "measured by gen tune, of kernels that have changed since; measure them again"
    if INTERPOLATED in kinds:
        return "by a model, corrected by times that gen tune measured of problems near by"
    if is_fitted(gpu):
        return f"by a model; its constants are fitted to times of an {on}"
    return f"by a model; nothing was measured on it: its data sheet, and constants of an {on}"


def command(spec: KernelSpec, without: Sequence[str] = ()) -> str:
    """The command that emits the kernel: with the tunables alone that are not its defaults.

    without: the names of those that are left out.
    """
    chosen = Choice(spec.dtypes, spec.layouts, spec.arch, spec.tunables)
    unusual = (t.name for t in spec.row.unusual(chosen) if t.name not in without)
    tunables = {name: spec.tunables[name] for name in unusual}
    return replace(spec, tunables=tunables).command


def why(found: Sequence[Ranked], gpu: GpuModel) -> list[str]:
    """Sentences on the first of a ranking: its waves, what limits it, what others would cost."""
    first = found[0]
    variant = first.spec.variant
    sentences = [_tiles(first, gpu), _limited(first)]
    if packing := first.value("packing"):
        sentences.append(
            f"{_us(packing)} us of it are packing: an operand's lines do not start at multiples of "
            f"{UNIT} bytes, or do not run along K."
        )
    others: list[tuple[str, Callable[[Ranked], bool]]] = [
        ("without slices of K", lambda r: r.value("slices") == 1)
        if first.value("slices") > 1
        else ("with K in slices", lambda r: r.value("slices") > 1)
    ]
    if first.value("shares"):
        others.append(("with whole tiles", lambda r: not r.value("shares")))
    others.append(("by another kernel that is a choice", lambda r: r.spec.variant != variant))
    for how, is_other in others:
        if other := next(filter(is_other, found), None):
            sentences.append(_compared(first, other, how))
    return sentences


def cut(found: Ranked, product: Product) -> list[str]:
    """A sentence where the model takes a problem for a smaller one. found: one of its ranking."""
    shape, count = product.shape, found.value("count")
    sides = zip("MNK", (shape.m, shape.n, shape.k), strict=True)
    less = [f"{name}={MOST:,}" for name, side in sides if side > MOST]
    less += [counted(count, "product")] * (product.batch > count)
    if not less:
        return []
    return [
        f"These times are of a smaller problem, with {' and '.join(less)}: from there on, the "
        "order of kernels stays the same."
    ]


def price(found: Sequence[Ranked], free: Sequence[Ranked]) -> str:
    """What one order of sums for all M costs, beside a ranking of kernels of any order."""
    first, other = found[0], free[0]
    if other.spec == first.spec:
        return "It would be the first without --invariant, too."
    order, tile = order_of(first.spec), other.spec.threadblock
    less = 1 - other.time / first.time
    return (
        f"Its order of sums is that of all M: {order}. Without --invariant, {other.spec.variant} "
        f"with {tile.m}x{tile.n} would take {_us(other.time)} us, "
        f"{f'{less:.0%} less' if less >= 0.005 else 'as long'}."
    )


def _compared(first: Ranked, other: Ranked, how: str) -> str:
    more = other.time / first.time - 1
    tile = other.spec.threadblock
    return (
        f"The best {how}, {other.spec.variant} with {tile.m}x{tile.n}, takes "
        f"{_us(other.time)} us, {f'{more:.0%} more' if more >= 0.005 else 'as long'}."
    )


def _us(picoseconds: int) -> str:
    return number(picoseconds / 1e6).text


def _tiles(found: Ranked, gpu: GpuModel) -> str:
    tiles, slices = found.value("tiles"), found.value("slices")
    tile, resident = found.spec.threadblock, found.weighed.weights.resident
    what = f"{tiles:,} work tile{'s' if tiles > 1 else ''} of {tile.m}x{tile.n}"
    if slices > 1:
        what += f" in {slices} slices of K each"
    if (sharers := found.spec.cluster_k) > 1:
        what += f", each shared by {sharers} blocks along K,"
    blocks = f" with {resident} blocks each" if resident > 1 else ""
    on = f"{counted(gpu.sms, 'multiprocessor')}{blocks}"
    if found.value("shares"):
        return f"{what} are shared by {on} along K, so that all end together."
    verb = "are" if tiles * slices > 1 else "is"
    return f"{what} {verb} {waves(found, gpu):.2f} waves of {on}."


def _limited(found: Ranked) -> str:
    steps, tile = found.value("stretch"), found.spec.threadblock
    whole = found.weighed.weights.tile_k == tile.k
    how = f", {counted(steps, 'step')} along K each" if whole else ""
    alone = found.value("tiles") * found.value("slices") == 1
    they, them = ("It takes", "it") if alone else ("They take", "them")
    return f"{they} {_us(found.time)} us{how}; what limits {them} is {limit(found)}."
