"""Problems drawn at random: what nobody has thought of may come together in one of them.

`check_trials` tries each thing that a mistake may depend on with some others. Here all are drawn at
once: sizes, scalars, inputs, each operand's address, leading dimension and stride, C in the place
of D, GPUs of several sizes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gen.kernels.formulas import ceil_div
from gen.prove.check_sizes import fitting, on_tensor_cores, turned
from gen.prove.groups import draw_ends, most_groups
from gen.prove.trials import Placement, Skips, Trial, c_is_d, cases, trial
from gen.spec.arch import UNIT
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmShape

COUNT = 400  # of an edited kernel; on tensor cores, each takes longer
COUNT_ON_TENSOR_CORES = 200
_MOST = 1100  # of a size that an edited statement names
_LONG, _LONG_SUM = 3000, 1500  # of one side, now and then; sums in f16 are exact so far
_GROUPS = 40
_TILES = 40  # of a launch that is watched for races
_UNITS = 4
_MULTIPROCESSORS = (1, 2, 3, 4, 5, 7, 9, 33, 132)


def drawn_trials(spec: KernelSpec, numbers: Sequence[int] = ()) -> list[Trial]:
    """Those that `gen check` runs of an edited kernel, the same each time.

    numbers: sizes that its edited statements name.
    """
    draw = random.Random(f"drawn {spec.name}")
    count = COUNT_ON_TENSOR_CORES if on_tensor_cores(spec) else COUNT
    count //= 2 if spec.grouped or spec.grouped_k else 1
    return [draw_trial(draw, spec, numbers) for _ in range(count)]


def draw_trial(draw: random.Random, spec: KernelSpec, numbers: Sequence[int] = ()) -> Trial:
    """Any problem of a few tiles."""
    m, _, k = spec.threadblock
    near = [n + more for n in numbers for more in (-1, 0, 1) if 0 < n <= _MOST]
    shape = _shape(draw, spec, near)
    kind, alpha, beta = draw.choice(_cases(spec))
    skips, longer, further = (Skips(*_few(draw)) for _ in range(3))
    where = Placement(
        draw.choice((0, 0, draw.randint(1, 20))), draw.choice((1, 1, 8, UNIT)), skips, longer
    )
    if spec.batched:
        where = where._replace(further=further)
    ends = tuple[int, ...]()
    if spec.grouped or spec.grouped_k:
        length, step = (shape.k, k) if spec.grouped_k else (shape.m, m)
        ends = draw_ends(length, step, min(most_groups(spec, shape, draw), _GROUPS), draw)
    one = trial(spec, shape, kind, (alpha, beta), where, ends)
    many = _tiles(spec, shape) * one.problem.batch.products > _TILES
    one = replace(
        one,
        blocks=draw.choice((0, 0, 1, 2)) if spec.geometry.strides or spec.packs else 0,
        multiprocessors=draw.choice(_MULTIPROCESSORS),
        watched=draw.random() < 0.3 and not many,
        last_first=draw.random() < 0.3 if spec.stream_k else False,
    )
    if draw.random() < 0.3:
        problem, skips = c_is_d(one.problem), skips._replace(c=skips.d)
        return replace(one, problem=problem, skips=skips, in_place=True)
    return one


def _few(draw: random.Random) -> Iterator[int]:
    """Elements that each operand is off by: mostly none."""
    off = draw.choice((0, 0, 0.3, 0.6))
    for _ in Skips._fields:
        yield draw.choice((1, 2, 4, 8, draw.randint(1, 15))) if draw.random() < off else 0


def _shape(draw: random.Random, spec: KernelSpec, near: Sequence[int]) -> GemmShape:
    """Sizes of a few tiles, of units, of any few elements, one of them long now and then."""
    m, n, k = spec.threadblock
    sizes = [
        _size(draw, m * spec.cluster[0], 3, near),
        _size(draw, n * spec.cluster[1], 3, near),
        _size(draw, min(k, 128), 9, near),
    ]
    if draw.random() < 0.15:
        sizes = [draw.randint(0, 9) for _ in sizes]
        axis = draw.randrange(3)
        sizes[axis] = draw.randint(0, _LONG_SUM if axis == 2 else _LONG)
    (shape,) = turned(spec, [fitting(spec, *sizes)])
    return shape


def _tiles(spec: KernelSpec, shape: GemmShape) -> int:
    """Work tiles of a product."""
    m, n, _ = spec.threadblock
    (turned_shape,) = turned(spec, [shape])
    return ceil_div(turned_shape.m, m) * ceil_div(turned_shape.n, n)


def _size(draw: random.Random, step: int, most: int, near: Sequence[int]) -> int:
    some = step * draw.randint(0, most) + draw.randint(-2, 2)
    any_, few, units = (
        draw.randint(0, most * step), draw.randint(0, 40), UNIT * draw.randint(1, _UNITS),
    )  # fmt: skip
    found = draw.choice((some, any_, few, units))
    if near and draw.random() < 0.3:
        found = draw.choice(near)
    return max(found, 0)


def _cases(spec: KernelSpec) -> list[tuple[str, float, float]]:
    """Inputs and scalars: see `trials.cases`; infinities before the end of K, too."""
    behind = [("behind", 1, 0), ("behind", -1, 0)] if spec.dtypes.scalar.is_float else []
    return [*cases(spec), *behind, ("wandering", 1, 1)]
