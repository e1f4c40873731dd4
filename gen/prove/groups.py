"""Groups: where those end that a kernel is tried with, and what it should give."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from gen.device.execute import Operands, groups
from gen.kernels.formulas import ceil_div
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmProblem, GemmShape, group_rows

MANY = 1100  # groups, most of them empty: more than a warp looks at thirty-two times
_FAR = 2**31 - 1
_B = 2 * 10**6  # elements of all groups' B: a tenth of a second to draw
_D = 3 * 10**5  # of all groups' D, each of which is computed
_TILE = 64 * 64  # elements of a small one


def most_groups(spec: KernelSpec, shape: GemmShape, draw: random.Random) -> int:
    """How many groups take no long time.

    A group along K has tiles of its own also where it has no steps. Where these are large, there
    are only now and then as many as of small ones.
    """
    if not spec.grouped_k:
        return _B // max(shape.n * shape.k, 1)
    tile = spec.threadblock
    tiles = ceil_div(shape.m, tile.m) * ceil_div(shape.n, tile.n)
    most = min(_D // max(shape.m * shape.n, 1), MANY // max(tiles, 1))
    large = max(tile.m * tile.n // _TILE, 1)
    return most if draw.random() < 1 / large else most // large


def draw_ends(rows: int, tile: int, most: int, draw: random.Random) -> tuple[int, ...]:
    """Where groups of a matrix with these rows end, in one of the ways that kernels may mistake.

    tile: rows of a work tile. most: so many groups, if there are several. Some groups are
    empty, of one row, of whole tiles and a row more or less; all rows are in one, or in none; rows
    are left behind the last one; groups are more than a warp looks at; ends fall, or are beyond the
    matrix on either side. Along K it is the same: rows are those of B, a tile is a step.
    """
    m = rows
    near = [at + more for at in range(0, m + 1, tile) for more in (-1, 0, 1)]
    some = sorted(draw.choice((0, m, draw.randint(0, m), draw.choice(near))) for _ in range(5))
    cuts = [min(max(end, 0), m) for end in some]
    alone = draw.randint(0, 3)
    one_by_one = [draw.randint(0, m) if draw.random() < 0.5 else 1 for _ in range(40)]
    kinds = (
        (*cuts, m),
        (m,),
        (*[0] * alone, *[m] * (4 - alone)),
        tuple(cuts),  # perhaps with rows behind them
        (max(m - 1, 0),),
        tuple(range(m - 32, m + 1)),  # 33, of which the last one has a row
        tuple(int(x) for x in np.minimum(np.cumsum(one_by_one), m)),
        tuple(m * i // MANY for i in range(MANY)),
        (0,) * 70,
        (m // 2, m // 3, -5, m // 2 + 1, _FAR, m // 3, m + 1),
        (-_FAR - 1, min(m, 2), 0, m),
        (*range(1, 33), 7, m // 2, m),  # that fall where a warp looks at others
        (m // 2 + 1, *[m // 3] * 20, m - 1, *[m // 3] * 40, m),  # that are behind a far one
    )
    small = [ends for ends in kinds if len(ends) <= most]
    return draw.choice(small or [(m // 2, m)])


def covered(problem: GemmProblem) -> int:
    """Rows of D that are computed: all of them, or those up to the last group's end."""
    if problem.ends is None:
        return problem.shape.m
    return max((end for _, end in group_rows(problem.ends, problem.shape.m)), default=0)


def by_group(
    problem: GemmProblem,
    operands: Operands,
    function: Callable[[GemmProblem, Operands], np.ndarray],
) -> np.ndarray:
    """A function of a product for all rows that are computed: of each group with its own B."""
    rows = [function(*each) for each in groups(problem, operands)]
    return np.concatenate(rows) if rows else np.zeros((0, problem.shape.n))
