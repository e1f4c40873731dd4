"""The sizes that `gen check` tries, derived from a kernel's own structure.

They take its loops once, twice and more often, end in the middle of its tiles, vectors and slices,
and lie on either side of what it compares with.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence

from gen.kernels.formulas import ceil_div
from gen.kernels.tensor_cores.facts import STEPS_A_SLICE
from gen.kernels.tensor_cores.operands import operands
from gen.spec.arch import UNIT
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmShape


def corners(spec: KernelSpec) -> list[GemmShape]:
    """Few and small shapes that reach every corner of a kernel, derived from its tile.

    First, middle and last blocks both ways, full and ragged; one step along K, as many as there are
    stages, and more; the last step full and ragged; one element; empty sums and an empty D. Where K
    is summed in slices, some have more steps than there are stages, too, some are longer than
    others, a full tile has two, and many tiles have a single one. Where copies depend on how lines
    are aligned, rows that are ragged but aligned, more tiles along M than are computed together, in
    full columns; where operands are packed, a long line. M and N change places where C is
    column-major. Where teams take turns along K, many tiles have an odd number of steps, so that
    turns change.
    """
    m, n, k = spec.threadblock
    uneven = (2 * spec.stages * max(spec.slices_of_k, 4) + 1) * k
    two = (spec.cluster_k * 2 if spec.split_k else 2 * STEPS_A_SLICE + 1) * k
    slices = [(3, n + 2, uneven), (m, n, two), (2 * m + 1, 2 * n + 8, k)]
    ring = max(2 * spec.stages - 1, 2) * k + 1
    several = min(k, 4 * UNIT)  # along K, of a tile that is deep since it has few rows
    # A persistent block computes tile after tile, which takes long here.
    groups = (spec.tunables.get("swizzle", 1) * m + 1, 1 if spec.row.persistent else 2 * n, 1)
    sizes = [
        (1, 1, 1),
        (m, n, k),
        (m + 1, n + 1, k + 1),
        (2 * m + 1, 2 * n + 1, k + 1),
        (max(m - 1, 1), n, ring),
        (2 * m, max(n - 1, 1), 2 * k),
        (max(m - 1, 1), 2 * n, max(k - 1, 1)),
        (1, 2, 3 * k + 1),
        (1, several + n + 1, several + 1),  # longer than K, which takes several steps
        (several + m + 1, 1, several + 1),
        *(slices if spec.slices_of_k != 1 else ()),
        *([(m + 1, n + 8, k), groups] if spec.row.depends_on_alignment else ()),
        *([(1, 2, 1031)] if spec.row.planner and spec.packs else ()),
        *([(2 * m + 1, 2 * n + 1, 3 * k)] if spec.sliced_k > 1 else ()),
        (m, n + 1, 0),
        (0, n, k),
    ]
    return turned(spec, [GemmShape(*size) for size in dict.fromkeys(sizes)])


def turned(spec: KernelSpec, shapes: Iterable[GemmShape]) -> list[GemmShape]:
    """M and N in each other's place where the kernel computes the transpose."""
    if spec.swapped:
        return [GemmShape(shape.n, shape.m, shape.k) for shape in shapes]
    return list(shapes)


# Sizes around what code is unrolled by and vectors hold, every remainder of 16, and some primes.
_ANY = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 20, 31, 32, 33, 47, 63, 64, 65,
        79, 95, 96, 97, 110, 127, 128, 129, 189, 222, 255, 256, 257)  # fmt: skip
SUM_OF_BYTES = 2**31 // (127 * 128) + 40  # products of the largest and the least byte: below -2^31
SUM_OF_SHORTS = 2**24 // (127 * 128) + 40  # of which a float does not hold all bits
MANY = 132  # multiprocessors: more than a kernel's reduction treats alike
# Slices of K where a reduction has to be asked for: it is another one above 16, and above 64.
SLICES = (1, 2, 3, 5, 16, 17, 33, 64, 65, 132)
_BYTE, SHORT = 257, 66_000  # tiles, steps, elements: more than such a type counts
_SIGNED_SHORT = 33_000
_LONG = 8_200  # elements on tensor cores, where they take long, and `long_sums` has longer ones


def mixed(spec: KernelSpec) -> list[GemmShape]:
    """Sizes along each axis, each with others along the other two.

    They are those of `_ANY`, and those that take the kernel's own loops once, twice, three times,
    as often as it has stages, and more, each time one less, none and one more.
    """
    tile, part, s = spec.threadblock, spec.warp or spec.threadblock, spec.stages
    along = (
        _sizes((tile.m, (1, 2, 3)), (part.m, (1,))),
        _sizes((tile.n, (1, 2, 3)), (part.n, (1,))),
        _sizes((tile.k, (1, 2, 3, s - 1, s, s + 1, 2 * s + 1))),
    )
    count = max(map(len, along))
    draw = random.Random(0)
    columns = []
    for sizes in along:
        column = [sizes[i % len(sizes)] for i in range(count)]
        draw.shuffle(column)
        columns.append(column)
    sizes_in_turn = (fitting(spec, *sizes) for sizes in zip(*columns, strict=True))
    return list(dict.fromkeys(turned(spec, sizes_in_turn)))


def _sizes(*loops: tuple[int, Sequence[int]]) -> list[int]:
    near = {step * times + more for step, some in loops for times in some for more in (-1, 0, 1)}
    return sorted(n for n in {*_ANY, *near} if n > 0)


def fitting(spec: KernelSpec, m: int, n: int, k: int) -> GemmShape:
    """These sizes, or smaller ones along M and N with the same remainders of a unit.

    They take no minutes then.
    """
    while not is_light(spec, shape := GemmShape(m, n, k)) and max(m, n) > UNIT:
        if m > n:
            m = _halved(m)
        else:
            n = _halved(n)
    return shape


def _halved(size: int) -> int:
    """About half of it, with the same remainder of a unit."""
    return size // 2 // UNIT * UNIT + size % UNIT or UNIT


_MOST_NEAR = {False: 4096, True: 1100}
_MOST_IN_GROUP = 8192  # rows of tiles that are computed close in time; half of them for several
# Products of whole tiles, on CUDA cores and on tensor cores.
_WORK = {False: 4 * 10**6, True: 3 * 10**7}
_MOST_WORK = 2 * 10**8  # of one problem on CUDA cores


def on_tensor_cores(spec: KernelSpec) -> bool:
    """Whether warps multiply tiles there, each in few instructions for the emulator."""
    return spec.warp is not None and spec.instruction is not None


def is_light(spec: KernelSpec, shape: GemmShape, share: float = 1) -> bool:
    """Whether there are few products, those of the tiles' parts outside of matrices included.

    share: of what counts as few.
    """
    return _work(spec, shape) <= share * _WORK[on_tensor_cores(spec)]


def is_short(spec: KernelSpec, shape: GemmShape) -> bool:
    """Whether a long K takes no minute: always on tensor cores, with small tiles elsewhere."""
    return on_tensor_cores(spec) or _work(spec, shape) <= _MOST_WORK


def _work(spec: KernelSpec, shape: GemmShape) -> int:
    sizes = zip((shape.m, shape.n, shape.k), spec.threadblock, strict=True)
    return math.prod(ceil_div(size, step) * step for size, step in sizes)


def long_ones(spec: KernelSpec) -> list[tuple[GemmShape, int]]:
    """More tiles and steps along K than a byte counts, more rows and columns than a short.

    Persistent blocks share the tiles of a large GPU; a small one makes no slices of K.
    """
    m, n, k = spec.threadblock
    depth = _SIGNED_SHORT if spec.warp else SHORT
    if skips_long_sums(spec):
        depth = _LONG
    elif not is_short(spec, GemmShape(2, 3, depth)):
        depth = _BYTE * k  # and with large tiles on CUDA cores
    shapes = [(max(_BYTE * m, SHORT), 1, 1), (1, max(_BYTE * n, SHORT), 1)]
    many = [(shape, MANY) for shape in turned(spec, [GemmShape(*size) for size in shapes])]
    return [*many, (GemmShape(2, 3, depth), 1)]


def skips_long_sums(spec: KernelSpec) -> bool:
    """Whether sums that take long here are left to `long_sums`, which skips most of them."""
    packed = spec.packs and any(x.transposed or x.parts > 1 for x in operands(spec))  # always
    return bool(spec.warp) and not packed and is_short(spec, GemmShape(2, 3, _SIGNED_SHORT))


def groups_of_tiles(spec: KernelSpec) -> list[GemmShape]:
    """As many tiles along M as are computed close in time, a group more, and a part of one.

    Of a cluster, its blocks' tiles are one.
    """
    group, (m, n, _) = spec.tunables.get("swizzle", 0), spec.threadblock
    m, n = m * spec.cluster[0], n * spec.cluster[1]
    if not 0 < group * m <= _MOST_IN_GROUP:
        return []
    part = (group * m + m, 2 * n + 1, 1)
    sizes = [part]
    if group * m <= _MOST_IN_GROUP // 2:
        sizes = [(group * m, 2 * n, 1), (2 * group * m + 1, n + 1, 1), part]
    return turned(spec, [GemmShape(*size) for size in sizes])


def slices_of_k(spec: KernelSpec) -> list[tuple[GemmShape, int]]:
    """Slices of K, few and many, and the multiprocessors that ask for so many."""
    m, n, k = spec.threadblock
    if spec.split_k == 0:
        return [
            (GemmShape(m - 1, n - 3, STEPS_A_SLICE * k * slices - slices % 2), MANY)
            for slices in SLICES
        ]
    most = min(spec.slices_of_k, 20_000 // k)
    some = {1, 2, 3, most - 1, most, most + 1} if most > 1 else set()
    return [(GemmShape(m - 1, n - 3, slices * k - slices % 2), 0) for slices in sorted(some)]


def reaching(spec: KernelSpec) -> list[GemmShape]:
    """K with which chunks of 16 bytes of a kernel for few rows or columns end with its matrix, or
    reach an element beyond that, in a step that is not the last; with a last step of one element,
    if a line begins seven elements (of two bytes) behind a multiple of 16 bytes."""
    if "few" not in spec.tunables:
        return []
    width, steps = UNIT // spec.dtypes.input.size, 2 * spec.threadblock.k
    some = (steps - width + 2, steps + width - 2, steps + width - 1)
    return [GemmShape(m, n, k) for k in some for m, n in ((9, 9), (9, 1), (1, 9)) if k > 0]


def odd_slices(spec: KernelSpec) -> list[GemmShape]:
    """Slices of K with an odd number of steps each, so that teams have different shares of one."""
    m, n, k = spec.threadblock
    slices, steps = spec.slices_of_k or 3, STEPS_A_SLICE + 1
    if slices == 1 or slices * steps * k > 20_000:
        return []
    return [GemmShape(m - 1, n - 3, slices * steps * k)]


def near_thresholds(spec: KernelSpec, thresholds: Sequence[int]) -> list[GemmShape]:
    """Sizes on both sides of numbers that the kernel compares with."""
    most = _MOST_NEAR[spec.warp is not None]
    sizes = sorted({n + more for n in thresholds if n <= most for more in (0, 1)} - {*_ANY, 0})
    found = [GemmShape(2, 3, n) for n in sizes] + [GemmShape(n, 3, 2) for n in sizes]
    return turned(spec, [*found, *(GemmShape(3, n, 2) for n in sizes)])
