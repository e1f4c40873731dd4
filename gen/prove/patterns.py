"""Where a result is wrong, in words: which rows, columns or tiles, and every how many."""

from __future__ import annotations

import numpy as np

from gen.errors import counted

_LISTED = 3  # rows that follow no rule, and are named one by one


def pattern(wrong: np.ndarray, tile: tuple[int, int] | None = None) -> str:
    """Which elements of a matrix are wrong, of which some are. `tile`: rows and columns of one."""
    if wrong.all():
        return "all of them"
    rows, columns = np.flatnonzero(wrong.any(1)), np.flatnonzero(wrong.any(0))
    if not wrong[np.ix_(rows, columns)].all():
        return (tile and _tiles(wrong, *tile)) or f"some in {_rectangle(rows, columns)}"
    sides = zip(("row", "column"), (rows, columns), wrong.shape, strict=True)
    return ", ".join(_series(name, at, size) for name, at, size in sides if len(at) < size)


def _tiles(wrong: np.ndarray, height: int, width: int) -> str:
    """Whole tiles, or nothing where some tile is wrong in part."""
    starts = [
        np.arange(0, size, step) for size, step in zip(wrong.shape, (height, width), strict=True)
    ]
    each, sizes = (
        np.add.reduceat(np.add.reduceat(some.astype(np.int64), starts[0], 0), starts[1], 1)
        for some in (wrong, np.ones_like(wrong))
    )
    if ((each > 0) & (each < sizes)).any() or each.size == 1:
        return ""
    i, j = (int(x) for x in np.argwhere(each)[0])
    tiles = counted(int(np.count_nonzero(each)), "whole tile")
    return f"{tiles} of {each.size} of {height}x{width}, the first at [{i * height}, {j * width}]"


def _rectangle(rows: np.ndarray, columns: np.ndarray) -> str:
    (top, bottom), (left, right) = rows[[0, -1]], columns[[0, -1]]
    return f"rows {top} to {bottom}, columns {left} to {right}"


def _series(name: str, at: np.ndarray, size: int) -> str:
    """Rows or columns in increasing order."""
    first, last = int(at[0]), int(at[-1])
    if len(at) == 1:
        return f"{name} {first}"
    steps = np.unique(np.diff(at))
    if len(steps) > 1:
        some = ", ".join(map(str, at[:_LISTED]))
        return f"{name}s {some}, ... ({len(at)} of {size})"
    step = int(steps[0])
    if step == 1:
        return f"{name}s {first} to {last}"
    if len(at) == 2:
        return f"{name}s {first} and {last}"
    end = "" if last + step >= size else f" to {last}"
    return f"every {_ordinal(step)} {name} from {first}{end}"


def _ordinal(number: int) -> str:
    teens = 10 < number % 100 < 20
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
