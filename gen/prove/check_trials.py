"""What `gen check` tries of a kernel.

All that a mistake may depend on comes up with everything else that it may depend on, as far as that
takes seconds on a CPU: sizes that the kernel's own structure asks for and any others, all scalars
and inputs, each operand's address and lines off by each power of two of bytes, C in the place of D,
few blocks that stride, GPUs of several sizes.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from gen.kernels.formulas import ceil_div
from gen.kernels.tensor_cores.facts import STEPS_A_SLICE
from gen.kernels.tensor_cores.operands import HELPER_THREADS, operands
from gen.prove.trials import (
    PACKED,
    RAGGED,
    SCALARS,
    WHOLE,
    Trial,
    beyond,
    c_is_d,
    cases,
    placements,
    trial,
    verify_trials,
)
from gen.spec.arch import UNIT
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmShape


def check_trials(spec: KernelSpec, thresholds: Sequence[int] = ()) -> list[Trial]:
    """What `gen check` tries, what tells most and takes least first, if not the last of it.

    Several processes should end together: the longest trials are not the last ones. thresholds:
    numbers that the kernel compares something with, which sizes should straddle.
    """
    trials = [t for shape in corners(spec) for t in corner_trials(spec, shape)]
    trials += [t for shape in _both(spec) for t in _everything(spec, shape)]
    trials += _whole_steps(spec)
    trials += _single_lines(spec)
    trials += _in_place(spec)
    trials += _few_blocks(spec)
    trials += _crowds(spec)
    trials += _shared(spec)
    for shape, count in _long(spec):
        one = trial(spec, shape, "integer", (3, -2), RAGGED)
        trials.append(replace(one, multiprocessors=count))
    some = (*mixed(spec), *_grouped(spec), *_near(spec, thresholds))
    for i, shape in enumerate(some):
        trials += _rotated(spec, shape, i, 1 if spec.warp else 3)
    if spec.dtypes.input.is_fp8 and (part := spec.tunables.get("promote", 0)):
        one = trial(spec, GemmShape(5, 7, 3 * part), "outweighed", (1, 0), WHOLE)
        trials.append(replace(one, multiprocessors=1))
    bytes_ = GemmShape(2, 3, _SUM_OF_BYTES)  # so long are sums that leave 32 bits
    if spec.dtypes.input.name == "i8" and _is_short(spec, bytes_):
        one = trial(spec, bytes_, "extreme", (1, 0), WHOLE)
        trials.append(replace(one, multiprocessors=1))
    return list(dict.fromkeys(trials))


def corner_trials(spec: KernelSpec, shape: GemmShape) -> list[Trial]:
    """What `gen check` tries on a shape that somebody names, and on the corners.

    Not every trial is watched for races, which takes long: only those whose accesses differ, and of
    many tiles one.
    """
    trials, m, n = verify_trials(spec, shape), *spec.threadblock[:2]
    unwatched = (2, 3) if min(shape.m // m, shape.n // n) < 2 else (1, 2, 3)
    return [replace(t, watched=i not in unwatched) for i, t in enumerate(trials)]


def _both(spec: KernelSpec) -> list[GemmShape]:
    """One shape whose lines are whole units all three ways, and one where none is.

    The whole ones end inside of a tile, which has several.
    """
    m, n, k = (min(size, 8 * UNIT) for size in spec.threadblock)
    unit = UNIT // min(spec.dtypes.input.size, spec.dtypes.output.size)  # in elements

    def whole(size: int) -> int:
        units = ceil_div(size, 2 * UNIT) * UNIT + UNIT
        return units + unit if units % size == 0 and size > unit else units

    return [GemmShape(whole(m), whole(n), whole(k)), GemmShape(m // 2 + 3, n // 2 + 5, k + 7)]


def _everything(spec: KernelSpec, shape: GemmShape) -> Iterator[Trial]:
    """All placements with scalars in turn, all scalars with placements in turn, all inputs."""
    every, where = cases(spec), placements(spec)
    for i in range(max(len(every), len(where))):
        kind, alpha, beta = every[i % len(every)]
        yield trial(spec, shape, kind, (alpha, beta), where[i % len(where)])
    for kind, alpha, beta in every:
        for at in (WHOLE, RAGGED):
            yield trial(spec, shape, kind, (alpha, beta), at)
        if kind == "special":  # sums of nothing, to which -0 is added
            yield trial(spec, replace(shape, k=0), kind, (alpha, beta), WHOLE)
    for i, at in enumerate(where):
        yield trial(spec, shape, "integer", ((1, 0), (3, -2))[i % 2], at)


def _whole_steps(spec: KernelSpec) -> Iterator[Trial]:
    """Lines of whole units that take several steps: what vectors are read for, ahead and behind."""
    m, n, k = (ceil_div(size, UNIT) * UNIT for size in spec.threadblock)
    shape = _fitting(spec, m, 2 * n, 3 * k + UNIT)
    yield trial(spec, shape, "integer", (3, -2), WHOLE)
    yield trial(spec, shape, "integer", (1, 0), PACKED)


def _single_lines(spec: KernelSpec) -> Iterator[Trial]:
    """Matrices of one line, whose leading dimension nothing but their alignment depends on."""
    if not spec.row.depends_on_alignment:
        return
    whole = _both(spec)[0]
    for shape in (replace(whole, m=1), replace(whole, n=1)):
        for where in placements(spec):
            if any(where.longer):
                yield trial(spec, shape, "integer", (3, -2), where)


def _rotated(spec: KernelSpec, shape: GemmShape, at: int, count: int) -> Iterator[Trial]:
    """Some trials of a shape: the next scalars, the next placement."""
    where = placements(spec)
    cases = [("integer", *scalars) for scalars in SCALARS] + beyond(spec.dtypes)
    for i in range(count * at, count * (at + 1)):
        kind, alpha, beta = cases[i % len(cases)]
        # Whole units every other time: what starts there is what vectors are for.
        place = where[i // 2 % len(where)] if i % 2 else WHOLE
        yield trial(spec, shape, kind, (alpha, beta), place)


def _in_place(spec: KernelSpec) -> Iterator[Trial]:
    """C is D, as every header allows."""
    m, n, k = spec.threadblock
    shapes = [*_both(spec), GemmShape(m, n, k), GemmShape(2 * m + 1, 2 * n + 1, k + 1)]
    scalars = ((3, -2), (1, 1), (2, 0))
    for i, (shape, where) in enumerate(itertools.product(shapes, (PACKED, WHOLE, RAGGED))):
        for at in (0, i % 2 + 1):
            one = trial(spec, shape, "integer", scalars[at], where)
            yield replace(_c_is_d(one), watched=at == 0 and where is PACKED)
    for shape, count in _sliced(spec)[2:4]:  # three slices and more
        one = trial(spec, shape, "integer", (3, -2), WHOLE)
        yield replace(_c_is_d(one), multiprocessors=count)


def _c_is_d(one: Trial) -> Trial:
    return replace(one, problem=c_is_d(one.problem), in_place=True)


def _few_blocks(spec: KernelSpec) -> Iterator[Trial]:
    """Blocks that stride over what a grid cannot cover, here because there are so few of them."""
    m, n, k = spec.threadblock
    if packed := [x.packed_by_block for x in operands(spec)] if spec.packs else []:
        lines, length = (max(size) for size in zip(*packed, strict=True))
        size = (2 * lines + 1, min(n, 4 * UNIT) + 1, 2 * length + 1)
        for blocks, padding in itertools.product((1, 2), (3, 5)):
            where = RAGGED._replace(padding=padding)
            one = trial(spec, GemmShape(*size), "integer", (3, -2), where)
            yield replace(one, blocks=blocks)
    if not spec.geometry.strides:
        return
    shapes = [(1, (3 * m + 1, n + 1, 2 * k + 1))]
    shapes += [(blocks, (5 * m + 1, n + 1, min(k, UNIT) + 3)) for blocks in (1, 2, 3)]
    # A single step: all of it, and a part.
    shapes += [(2, (5 * m + 1, 3, depth)) for depth in (k, min(k, UNIT) // 2 or 1)]
    shapes += [(2, (5 * m + 1, 3, 0))]  # and none
    for blocks, size in shapes:
        one = trial(spec, GemmShape(*size), "integer", (3, -2), RAGGED)
        yield replace(one, blocks=blocks, watched=True)


def _crowds(spec: KernelSpec) -> Iterator[Trial]:
    """GPUs of other sizes: blocks with many tiles or none to spare, K in many slices."""
    sliced = _sliced(spec)
    for i, (shape, count) in enumerate(sliced):
        for scalars, where in (((3, -2), RAGGED), ((1, 0), WHOLE)):
            one = trial(spec, shape, "integer", scalars, where)
            watched = where is WHOLE and spec.split_k == 0 and _SLICES[i] in (17, 65)  # see there
            yield replace(one, multiprocessors=count, watched=watched)
    for shape in _odd_slices(spec):
        yield replace(trial(spec, shape, "integer", (3, -2), WHOLE), multiprocessors=_MANY)
    for shape, count in sliced[2:3]:  # three slices
        for kind, alpha, beta in cases(spec):
            one = trial(spec, shape, kind, (alpha, beta), WHOLE)
            yield replace(one, multiprocessors=count)
        if spec.dtypes.accumulator.name == "f16":  # slices are added in alpha's type
            one = trial(spec, shape, "spanning", (2**-4, 0), WHOLE)
            yield replace(one, multiprocessors=count)
    if spec.row.persistent:
        m, n, k = spec.threadblock
        for count, depth in ((1, k + 1), (2, k + 1), (3, k + 1), (_MANY, k + 1), (2, 0)):
            one = trial(spec, GemmShape(2 * m + 1, 2 * n + 1, depth), "integer", (3, -2), WHOLE)
            yield replace(one, multiprocessors=count, watched=count == 1)


def _shared(spec: KernelSpec) -> Iterator[Trial]:
    """Tiles that blocks share along K, behind no whole ones, a round of them, several rounds."""
    if not spec.stream_k:
        return
    m, n, k = spec.threadblock
    for i, (tiles, count, steps) in enumerate(_streams(spec)):
        size = (tiles * m - 1, n - 3, steps * k - steps % 2)
        (shape,) = _turned(spec, [GemmShape(*size)])
        for scalars, where in (((3, -2), RAGGED), ((1, 0), WHOLE)):
            one = trial(spec, shape, "integer", scalars, where)
            yield replace(one, multiprocessors=count, watched=where is WHOLE and i < 3)
        one = trial(spec, shape, "integer", (2, -1), PACKED)
        yield replace(_c_is_d(one), multiprocessors=count)
        if tiles == count + 1:
            yield replace(one, multiprocessors=count, last_first=True)
        for kind, alpha, beta in cases(spec) if i == 0 else ():
            one = trial(spec, shape, kind, (alpha, beta), WHOLE)
            yield replace(one, multiprocessors=count)


def _streams(spec: KernelSpec) -> list[tuple[int, int, int]]:
    """Tiles, multiprocessors, steps of a tile: as many as the stages, fewer and more of them.

    The tiles are one more than multiprocessors, one less than two rounds, and more than that. What
    is left of a tile takes all stages twice. The last are so many that the helper's threads clear
    several flags each, and that blocks wait for those.
    """
    s, values = spec.stages, spec.geometry.values
    many = 2 * HELPER_THREADS // (values["consumers"] // values["teams"]) + 8
    return [
        (3, 2, 3), (4, 3, s), (3, 2, 4 * s + 3), (5, 3, 1), (5, 2, 2), (7, 3, 2 * s + 1),
        (9, 2, s + 1), (9, 5, 4), (many + 1, many, 2),
    ]  # fmt: skip


def _near(spec: KernelSpec, thresholds: Sequence[int]) -> list[GemmShape]:
    """Sizes on both sides of numbers that the kernel compares with."""
    most = _MOST_NEAR[spec.warp is not None]
    sizes = sorted({n + more for n in thresholds if n <= most for more in (0, 1)} - {*_ANY, 0})
    found = [GemmShape(2, 3, n) for n in sizes] + [GemmShape(n, 3, 2) for n in sizes]
    return _turned(spec, [*found, *(GemmShape(3, n, 2) for n in sizes)])


# -- sizes -----------------------------------------------------------------------------------------


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
    uneven = (2 * spec.stages * max(spec.split_k, 4) + 1) * k
    two = (2 if spec.split_k else 2 * STEPS_A_SLICE + 1) * k
    slices = [(3, n + 2, uneven), (m, n, two), (2 * m + 1, 2 * n + 8, k)]
    # A persistent block computes tile after tile, which takes long here.
    groups = (spec.tunables.get("swizzle", 1) * m + 1, 1 if spec.row.persistent else 2 * n, 1)
    sizes = [
        (1, 1, 1),
        (m, n, k),
        (m + 1, n + 1, k + 1),
        (2 * m + 1, 2 * n + 1, max(2 * spec.stages - 1, 2) * k + 1),
        (2 * m, max(n - 1, 1), 2 * k),
        (max(m - 1, 1), 2 * n, max(k - 1, 1)),
        (1, 2, 3 * k + 1),
        (1, k + n + 1, k + 1),  # longer than K, which takes several steps
        (k + m + 1, 1, k + 1),
        *(slices if spec.split_k != 1 else ()),
        *([(m + 1, n + 8, k), groups] if spec.row.depends_on_alignment else ()),
        *([(1, 2, 1031)] if spec.row.planner and spec.packs else ()),
        *([(2 * m + 1, 2 * n + 1, 3 * k)] if spec.sliced_k > 1 else ()),
        (m, n + 1, 0),
        (0, n, k),
    ]
    return _turned(spec, [GemmShape(*size) for size in dict.fromkeys(sizes)])


def _turned(spec: KernelSpec, shapes: Iterable[GemmShape]) -> list[GemmShape]:
    """M and N in each other's place where the kernel computes the transpose."""
    if spec.swapped:
        return [GemmShape(shape.n, shape.m, shape.k) for shape in shapes]
    return list(shapes)


# Sizes around what code is unrolled by and vectors hold, every remainder of 16, and some primes.
_ANY = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 20, 31, 32, 33, 47, 63, 64, 65,
        79, 95, 96, 97, 110, 127, 128, 129, 189, 222, 255, 256, 257)  # fmt: skip
_SUM_OF_BYTES = 2**31 // (127 * 128) + 40  # products of the largest and the least byte: below -2^31
_MANY = 132  # multiprocessors: more than a kernel's reduction treats alike
# Slices of K where a reduction has to be asked for: it is another one above 16, and above 64.
_SLICES = (1, 2, 3, 5, 16, 17, 33, 64, 65, 132)
_BYTE, _SHORT = 257, 66_000  # tiles, steps, elements: more than such a type counts
_SIGNED_SHORT = 33_000


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
    sizes_in_turn = (_fitting(spec, *sizes) for sizes in zip(*columns, strict=True))
    return list(dict.fromkeys(_turned(spec, sizes_in_turn)))


def _sizes(*loops: tuple[int, Sequence[int]]) -> list[int]:
    near = {step * times + more for step, some in loops for times in some for more in (-1, 0, 1)}
    return sorted(n for n in {*_ANY, *near} if n > 0)


def _fitting(spec: KernelSpec, m: int, n: int, k: int) -> GemmShape:
    """These sizes, or smaller ones along M and N with the same remainders of a unit.

    They take no minutes then.
    """
    limit = _WORK[_on_tensor_cores(spec)]
    while _work(spec, shape := GemmShape(m, n, k)) > limit and max(m, n) > UNIT:
        if m > n:
            m = _halved(m)
        else:
            n = _halved(n)
    return shape


def _halved(size: int) -> int:
    """About half of it, with the same remainder of a unit."""
    return size // 2 // UNIT * UNIT + size % UNIT or UNIT


_MOST_NEAR = {False: 4096, True: 1100}
# Products of whole tiles, on CUDA cores and on tensor cores.
_WORK = {False: 4 * 10**6, True: 3 * 10**7}
_MOST_WORK = 2 * 10**8  # of one problem on CUDA cores


def _on_tensor_cores(spec: KernelSpec) -> bool:
    """Whether warps multiply tiles there, each in few instructions for the emulator."""
    return spec.warp is not None and spec.instruction is not None


def _is_short(spec: KernelSpec, shape: GemmShape) -> bool:
    """Whether a long K takes no minute: always on tensor cores, with small tiles elsewhere."""
    return _on_tensor_cores(spec) or _work(spec, shape) <= _MOST_WORK


def _work(spec: KernelSpec, shape: GemmShape) -> int:
    sizes = zip((shape.m, shape.n, shape.k), spec.threadblock, strict=True)
    return math.prod(ceil_div(size, step) * step for size, step in sizes)


def _long(spec: KernelSpec) -> list[tuple[GemmShape, int]]:
    """More tiles and steps along K than a byte counts, more rows and columns than a short.

    Persistent blocks share the tiles of a large GPU; a small one makes no slices of K.
    """
    m, n, k = spec.threadblock
    depth = _SIGNED_SHORT if spec.warp else _SHORT  # which takes long on tensor cores
    if not _is_short(spec, GemmShape(2, 3, depth)):
        depth = _BYTE * k  # and with large tiles on CUDA cores
    shapes = [(max(_BYTE * m, _SHORT), 1, 1), (1, max(_BYTE * n, _SHORT), 1)]
    many = [(shape, _MANY) for shape in _turned(spec, [GemmShape(*size) for size in shapes])]
    return [*many, (GemmShape(2, 3, depth), 1)]


def _grouped(spec: KernelSpec) -> list[GemmShape]:
    """As many tiles along M as are computed close in time, a group more, and a part of one."""
    group, (m, n, _) = spec.tunables.get("swizzle", 0), spec.threadblock
    if not 0 < group * m <= 4096:
        return []
    sizes = [(group * m, 2 * n, 1), (2 * group * m + 1, n + 1, 1), (group * m + m, 2 * n + 1, 1)]
    return _turned(spec, [GemmShape(*size) for size in sizes])


def _sliced(spec: KernelSpec) -> list[tuple[GemmShape, int]]:
    """Slices of K, few and many, and the multiprocessors that ask for so many."""
    m, n, k = spec.threadblock
    if spec.split_k == 0:
        return [
            (GemmShape(m - 1, n - 3, STEPS_A_SLICE * k * slices - slices % 2), _MANY)
            for slices in _SLICES
        ]
    most = min(spec.split_k, 20_000 // k)
    some = {1, 2, 3, most - 1, most, most + 1} if most > 1 else set()
    return [(GemmShape(m - 1, n - 3, slices * k - slices % 2), 0) for slices in sorted(some)]


def _odd_slices(spec: KernelSpec) -> list[GemmShape]:
    """Slices of K with an odd number of steps each, so that teams have different shares of one."""
    m, n, k = spec.threadblock
    slices, steps = spec.split_k or 3, STEPS_A_SLICE + 1
    if slices == 1 or slices * steps * k > 20_000:
        return []
    return [GemmShape(m - 1, n - 3, slices * steps * k)]
