"""What `gen check` tries of a kernel.

All that a mistake may depend on comes up with everything else that it may depend on, as far as that
takes seconds on a CPU: sizes that the kernel's own structure asks for and any others, all scalars
and inputs, each operand's address and lines off by each power of two of bytes, C in the place of D,
few blocks that stride, GPUs of several sizes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gen.kernels.formulas import ceil_div
from gen.kernels.tensor_cores.facts import giving_warps, held_blocks
from gen.kernels.tensor_cores.operands import HELPER_THREADS, operands
from gen.prove.check_sizes import (
    MANY,
    SLICES,
    SUM_OF_BYTES,
    SUM_OF_SHORTS,
    corners,
    fitting,
    groups_of_tiles,
    is_light,
    is_short,
    long_ones,
    mixed,
    near_thresholds,
    odd_slices,
    reaching,
    slices_of_k,
    turned,
)
from gen.prove.groups import MANY as MANY_GROUPS
from gen.prove.trials import (
    PACKED,
    RAGGED,
    WHOLE,
    Skips,
    Trial,
    beyond,
    c_is_d,
    cases,
    odd_placements,
    placements,
    scalars_in_turn,
    trial,
    verify_trials,
)
from gen.spec.arch import UNIT
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmShape


def check_trials(
    spec: KernelSpec, thresholds: Sequence[int] = (), thorough: bool = True
) -> list[Trial]:
    """What `gen check` tries, what tells most and takes least first, if not the last of it.

    Several processes should end together: the longest trials are not the last ones. thresholds:
    numbers that the kernel compares something with, which sizes should straddle. thorough: also
    what takes long and finds what templates have no reason for, such as a row's number in 16 bits.
    """
    trials = list(_at_corners(spec, thorough))
    whole, ragged = _both(spec)
    trials += _everything(spec, whole, thorough)
    trials += _everything(spec, ragged, True) if thorough else _in_turn(spec, ragged)
    trials += _whole_steps(spec)
    trials += _single_lines(spec)
    trials += _odd_lines(spec)
    trials += _reaching(spec)
    trials += _in_place(spec, thorough)
    trials += _few_blocks(spec, thorough)
    trials += _crowds(spec, thorough)
    trials += _shared(spec)
    trials += _long(spec) if thorough else ()
    some = [shape for shape in mixed(spec) if thorough or is_light(spec, shape, _QUICK)]
    some += [*groups_of_tiles(spec)[0 if thorough else -1 :], *near_thresholds(spec, thresholds)]
    for i, shape in enumerate(some):
        trials += _rotated(spec, shape, i, 3 if thorough and not spec.warp else 1)
    few_bits = spec.dtypes.input.is_fp8 or spec.dtypes.parts > 1
    if few_bits and (part := spec.tunables.get("promote", 0)):
        one = trial(spec, GemmShape(5, 7, 3 * part), "outweighed", (1, 0), WHOLE)
        trials.append(replace(one, multiprocessors=1))
    if spec.dtypes.input.name == "i8":
        # So long are sums that leave 32 bits; with large tiles on CUDA cores, a float's 24.
        parts = max(spec.slices_of_k, 1) * spec.geometry.teams  # each of which is to leave them
        bytes_ = GemmShape(2, 3, SUM_OF_BYTES * (parts if parts <= _PARTS else 1))
        if not is_short(spec, bytes_):
            bytes_ = GemmShape(2, 3, SUM_OF_SHORTS)
        one = trial(spec, bytes_, "extreme", (1, 0), WHOLE)
        trials.append(replace(one, multiprocessors=1))
    return list(dict.fromkeys(trials))


def _at_corners(spec: KernelSpec, thorough: bool) -> Iterator[Trial]:
    """Of corners. If not thorough, races are looked for in one of a shape's placements in turn."""
    for i, shape in enumerate(corners(spec)):
        # Of many tiles, each of a block, nothing is to be seen that smaller corners do not show.
        many = _has_many_blocks(spec, shape)
        few = many or not (thorough or is_light(spec, shape))
        trials = corner_trials(spec, shape)[: 2 if few else None]
        # Nor do many tiles or steps race where a few of them do not.
        same = not thorough and not is_light(spec, shape, _QUICK)
        watched = [] if many or same else [one for one in trials if one.watched]
        if watched and not thorough:
            watched = [watched[i % len(watched)]]
        yield from (replace(one, watched=one in watched) for one in trials)


_SEVERAL_TILES = 16
_PARTS = 4
_TILES_A_LINE = 41
_QUICK = 0.6  # of what is light: all that is tried of a kernel as `gen emit` writes it
_FEW_TILES = 8
_SIDE = 12  # lines, each with something else in another place
_LONG = 1024  # of a sum: more than what a kernel may have as a part of it


def corner_trials(spec: KernelSpec, shape: GemmShape) -> list[Trial]:
    """What `gen check` tries on a shape that somebody names, and on the corners.

    Not every trial is watched for races, which takes long: only those whose accesses differ, and of
    many tiles one. Nor is one of a thousand groups, whose accesses are those of seventy.
    """
    trials, (m, n, _) = verify_trials(spec, shape), spec.threadblock
    unwatched = {2, 3} if min(shape.m // m, shape.n // n) < 2 else {1, 2, 3}
    if _has_many_blocks(spec, shape):
        unwatched = {*range(1, len(trials))}  # a single one shows the same
    return [
        replace(t, watched=i not in unwatched and t.problem.batch.products < MANY_GROUPS)
        for i, t in enumerate(trials)
    ]


def _has_many_blocks(spec: KernelSpec, shape: GemmShape) -> bool:
    """Whether there are many tiles, and a block for each."""
    return not spec.row.persistent and _tiles(spec, shape) > _SEVERAL_TILES


def _tiles(spec: KernelSpec, shape: GemmShape) -> int:
    m, n, _ = spec.threadblock
    return ceil_div(shape.m, m) * ceil_div(shape.n, n)


def late_trials(spec: KernelSpec, thorough: bool = True) -> Iterator[Trial]:
    """Of kernels that wait for phases of mbarriers: those come late, when all stages are in use.

    A block has as many tiles as it can, one or two, each of more steps than there are stages.
    """
    m, n, k = spec.threadblock
    steps = (2 if thorough else 1) * spec.stages + 1
    rows = held_blocks(spec) * m + 1 if spec.row.persistent or spec.stream_k else m
    (shape,) = turned(spec, [fitting(spec, rows, n, steps * k)])
    one = trial(spec, shape, "integer", (3, -2), WHOLE)
    yield replace(one, multiprocessors=1, watched=True, late=True)


def _both(spec: KernelSpec) -> list[GemmShape]:
    """One shape whose lines are whole units all three ways, and one where none is.

    The whole ones end inside of a tile, which has several; of small tiles there are two and a part.
    """
    m, n, k = (min(size, 8 * UNIT) for size in spec.threadblock)
    unit = UNIT // min(spec.dtypes.input.size, spec.dtypes.output.size)  # in elements

    def whole(size: int) -> int:
        units = ceil_div(size, 2 * UNIT) * UNIT + UNIT
        units += unit if units % size == 0 and size > unit else 0
        return min(units, ceil_div(2 * size, unit) * unit + unit) if size > 1 else units

    return [GemmShape(whole(m), whole(n), whole(k)), GemmShape(m // 2 + 3, n // 2 + 5, k + 7)]


def _everything(spec: KernelSpec, shape: GemmShape, thorough: bool) -> Iterator[Trial]:
    """All placements with scalars in turn, all scalars with placements in turn, all inputs.

    If not thorough, of two placements in turn.
    """
    every, where = cases(spec), placements(spec)
    yield from _in_turn(spec, shape)
    for i, (kind, alpha, beta) in enumerate(every):
        for at in (WHOLE, RAGGED) if thorough else ((WHOLE, RAGGED)[i % 2],):
            yield trial(spec, shape, kind, (alpha, beta), at)
        if kind == "special":  # sums of nothing, to which -0 is added
            yield trial(spec, replace(shape, k=0), kind, (alpha, beta), WHOLE)
    for i, at in enumerate(where):
        yield trial(spec, shape, "integer", ((1, 0), (3, -2))[i % 2], at)


def _in_turn(spec: KernelSpec, shape: GemmShape) -> Iterator[Trial]:
    """Each placement, each of the scalars and inputs, one with another."""
    every, where = cases(spec), placements(spec)
    for i in range(max(len(every), len(where))):
        kind, alpha, beta = every[i % len(every)]
        yield trial(spec, shape, kind, (alpha, beta), where[i % len(where)])


def _whole_steps(spec: KernelSpec) -> Iterator[Trial]:
    """Lines of whole units that take several steps: what vectors are read for, ahead and behind."""
    m, n, k = (ceil_div(size, UNIT) * UNIT for size in spec.threadblock)
    shape = fitting(spec, m, 2 * n, 3 * k + UNIT)
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


def _odd_lines(spec: KernelSpec) -> Iterator[Trial]:
    """Leading dimensions and strides that many numbers divide, but not the one that ought to."""
    shape = _both(spec)[0]
    for where in odd_placements(spec, shape):
        yield trial(spec, shape, "integer", (3, -2), where)


def _reaching(spec: KernelSpec) -> Iterator[Trial]:
    """Steps whose last chunks reach to the ends of matrices."""
    for shape in reaching(spec):
        for where in (WHOLE, RAGGED, PACKED, PACKED._replace(skips=Skips(a=1, b=1))):
            yield trial(spec, shape, "integer", (3, -2), where)


def _rotated(spec: KernelSpec, shape: GemmShape, at: int, count: int) -> Iterator[Trial]:
    """Some trials of a shape: the next scalars, the next placement."""
    where = placements(spec)
    cases = [("integer", *scalars) for scalars in scalars_in_turn(spec.dtypes)]
    cases += beyond(spec.dtypes)
    for i in range(count * at, count * (at + 1)):
        kind, alpha, beta = cases[i % len(cases)]
        # Whole units every other time: what starts there is what vectors are for.
        place = where[i // 2 % len(where)] if i % 2 else WHOLE
        yield trial(spec, shape, kind, (alpha, beta), place)


def _in_place(spec: KernelSpec, thorough: bool) -> Iterator[Trial]:
    """C is D, as every header allows. If not thorough, races are looked for in the smallest two."""
    m, n, k = spec.threadblock
    shapes = [*_both(spec), GemmShape(m, n, k), GemmShape(m + 1, n + 1, k + 1)]
    watched = shapes if thorough else shapes[:2]
    scalars = ((3, -2), (1, 1), (2, 0))
    for i, (shape, where) in enumerate(itertools.product(shapes, (PACKED, WHOLE, RAGGED))):
        for at in (0, i % 2 + 1):
            one = trial(spec, shape, "integer", scalars[at], where)
            watch = at == 0 and where is PACKED and shape in watched
            yield replace(_c_is_d(one), watched=watch)
    for i, (shape, count) in enumerate(slices_of_k(spec)[2:4]):  # three slices and more
        one = trial(spec, shape, "integer", (3, -2), WHOLE)
        yield replace(_c_is_d(one), multiprocessors=count, watched=i == 0)


def _c_is_d(one: Trial) -> Trial:
    return replace(one, problem=c_is_d(one.problem), in_place=True)


def _few_blocks(spec: KernelSpec, thorough: bool) -> Iterator[Trial]:
    """Blocks that stride over what a grid cannot cover, here because there are so few of them.

    If not thorough, there is one part of a step along K behind a whole one, not behind two.
    """
    m, n, k = spec.threadblock
    if packed := [x.packed_by_block for x in operands(spec)] if spec.packs else []:
        lines, length = (max(size) for size in zip(*packed, strict=True))
        size = (2 * lines + 1, min(n, 4 * UNIT) + 1, 2 * length + 1)
        # With seven, some have nothing: twice as many lines have three parts each.
        for blocks, padding in itertools.product((1, 2, 7), (3, 5)):
            where = RAGGED._replace(padding=padding)
            one = trial(spec, GemmShape(*size), "integer", (3, -2), where)
            yield replace(one, blocks=blocks)
    if not spec.geometry.strides:
        return
    steps = 2 if thorough else 1
    shapes = [(1, (3 * m + 1, min(n, 4 * UNIT) + 1, steps * k + 1))]
    shapes += [(blocks, (5 * m + 1, n + 1, min(k, UNIT) + 3)) for blocks in (1, 2, 3)]
    # A single step: all of it, and a part.
    shapes += [(2, (5 * m + 1, 3, depth)) for depth in (k, min(k, UNIT) // 2 or 1)]
    shapes += [(2, (5 * m + 1, 3, 0))]  # and none
    for blocks, size in shapes:
        one = trial(spec, GemmShape(*size), "integer", (3, -2), RAGGED)
        yield replace(one, blocks=blocks, watched=True)


def _crowds(spec: KernelSpec, thorough: bool) -> Iterator[Trial]:
    """GPUs of other sizes: blocks with many tiles or none to spare, K in many slices.

    If not thorough, races are looked for in three tiles of a block.
    """
    sliced = slices_of_k(spec)
    for i, (shape, count) in enumerate(sliced):
        for scalars, where in (((3, -2), RAGGED), ((1, 0), WHOLE)):
            one = trial(spec, shape, "integer", scalars, where)
            watched = where is WHOLE and spec.split_k == 0 and SLICES[i] in (17, 65)  # see there
            each = one.problem.batch.products if spec.batched else 1  # which share them
            yield replace(one, multiprocessors=count * each, watched=watched)
    for shape in odd_slices(spec):
        yield replace(trial(spec, shape, "integer", (3, -2), WHOLE), multiprocessors=MANY)
    for shape, count in sliced[2:3]:  # three slices
        for kind, alpha, beta in cases(spec):
            one = trial(spec, shape, kind, (alpha, beta), WHOLE)
            yield replace(one, multiprocessors=count)
        if spec.dtypes.accumulator.name == "f16":  # slices are added in alpha's type
            one = trial(spec, shape, "spanning", (2**-4, 0), WHOLE)
            yield replace(one, multiprocessors=count)
    if spec.grouped or spec.grouped_k:
        # Blocks of a large GPU pass over more groups than a warp looks at, several times.
        ends = tuple(range(2, 602, 2))
        size = (3, 5, ends[-1]) if spec.grouped_k else (ends[-1], 5, 3)
        one = trial(spec, GemmShape(*size), "integer", (3, -2), WHOLE, ends)
        yield replace(one, multiprocessors=MANY)
    if spec.row.persistent or spec.stream_k:
        m, n, k = spec.threadblock
        for count, depth in ((1, k + 1), (2, k + 1), (3, k + 1), (MANY, k + 1), (2, 0)):
            shape = GemmShape(2 * m + 1, (2 if thorough else 1) * n + 1, depth)
            one = trial(spec, shape, "integer", (3, -2), WHOLE)
            watched = depth == 0 or (thorough and count == 1)
            yield replace(one, multiprocessors=count, watched=watched)
        if not thorough:
            one = trial(spec, GemmShape(2 * m + 1, n, k + 1), "integer", (3, -2), WHOLE)
            yield replace(one, multiprocessors=1, watched=True)


def _long(spec: KernelSpec) -> Iterator[Trial]:
    """Long sums and many tiles: what is left of a step, or cut off, or counted in too few bits."""
    m, n, k = spec.threadblock
    if spec.dtypes.scalar.is_float:  # what an earlier step has left is no zero
        shape = GemmShape(min(m, _SIDE), min(n, _SIDE), 9 * k + 3)
        for alpha, where in ((1, WHOLE), (-1, WHOLE), (1, RAGGED)):
            yield trial(spec, shape, "behind", (alpha, 0), where)
    shape = GemmShape(min(m, 3), min(n, 5), max(17 * k, _LONG) + 3)  # in parts, perhaps
    for where in (WHOLE, RAGGED):
        yield _c_is_d(trial(spec, shape, "integer", (3, -2), where))
    yield from _lines_of_tiles(spec)
    for shape, count in long_ones(spec):
        # Sums of many digits along a long K, where small integers would hide what is cut off.
        kind, scalars = ("wandering", (1, 1)) if shape.k > 1 else ("integer", (3, -2))
        one = trial(spec, shape, kind, scalars, RAGGED)
        yield replace(one, multiprocessors=count)


def _lines_of_tiles(spec: KernelSpec) -> Iterator[Trial]:
    """Lines of 41 tiles both ways: 1/41 as a float is too small, and times 41 it is less than 1.

    It is the least such number.
    """
    m, n, _ = spec.threadblock
    for size in ((m + 1, _TILES_A_LINE * n - 3, 1), (_TILES_A_LINE * m - 3, n + 1, 1)):
        (shape,) = turned(spec, [GemmShape(*size)])
        one = trial(spec, shape, "integer", (2, 0), WHOLE)
        if spec.batched:
            one = replace(one, problem=WHOLE.batched(one.problem, spec.layouts, 3, ""))
        yield replace(one, multiprocessors=MANY)


def _shared(spec: KernelSpec) -> Iterator[Trial]:
    """Tiles that blocks share along K, behind no whole ones, a round of them, several rounds."""
    if not spec.stream_k:
        return
    m, n, k = spec.threadblock
    held = held_blocks(spec)
    for i, (tiles, count, steps) in enumerate(_streams(spec, held)):
        size = (tiles * m - 1, n - 3, steps * k - steps % 2)
        (shape,) = turned(spec, [GemmShape(*size)])
        for scalars, where in (((3, -2), RAGGED), ((1, 0), WHOLE)):
            one = trial(spec, shape, "integer", scalars, where)
            yield replace(one, multiprocessors=count, watched=where is WHOLE and i < 3)
        one = trial(spec, shape, "integer", (2, -1), PACKED)
        yield replace(_c_is_d(one), multiprocessors=count)
        if tiles == held * count + 1:
            yield replace(one, multiprocessors=count, last_first=True)
            if tiles <= _FEW_TILES:  # each block waits for the one before, as long as that takes
                yield replace(one, multiprocessors=count, last_first=True, late=True)
        for kind, alpha, beta in cases(spec) if i == 0 else ():
            one = trial(spec, shape, kind, (alpha, beta), WHOLE)
            yield replace(one, multiprocessors=count)


def _streams(spec: KernelSpec, held: int) -> list[tuple[int, int, int]]:
    """Tiles, multiprocessors, steps of a tile: as many as the stages, fewer and more of them.

    The tiles are one more than blocks, one less than two rounds, and more than that. What
    is left of a tile takes all stages twice. The last are so many that the helper's threads clear
    several flags each, and that blocks wait for those.
    """
    s, many = spec.stages, 2 * HELPER_THREADS // giving_warps(spec) + 8
    alone = [
        (3, 2, 3), (4, 3, s), (3, 2, 4 * s + 3), (5, 3, 1), (5, 2, 2), (7, 3, 2 * s + 1),
        (9, 2, s + 1), (9, 5, 4), (many + 1, many, 2),
    ]  # fmt: skip
    found = []  # with about as many blocks, of multiprocessors that hold several each
    for tiles, count, steps in alone:
        fewer, (rounds, more) = ceil_div(count, held), divmod(tiles, count)
        found.append((rounds * fewer * held + more, fewer, steps))
    return found
