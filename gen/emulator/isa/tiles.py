"""Register tiles: the multiply-adds of all pairs of a column and a row, in a few operations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gen.emulator.isa.ops import Value, widened

_FEW = 2**11  # elements of a register: with more, numpy's calls take no time that counts
_BLOCK = 2**14  # elements that are computed together, and stay in a cache
_SMALL = 2**12  # of integers up to that, float32 has every product
Values = Sequence[Value] | npt.NDArray[Any]
Function = Callable[[Value, Value, Value], Value]


class Rule(NamedTuple):
    """An elementwise multiply-add: of factors in float64, for a float32, where it is `wide`."""

    function: Function
    wide: bool


def products(rule: Rule, column: Values, row: Values, sums: Values) -> Values:
    """The multiply-adds of each of a column with each of a row, to sums of their own in that order.

    For a few hundred threads, calling numpy takes most of the time of a multiply-add. So values of
    one shape are put under each other, and many registers are computed at once. As rules are
    elementwise, no bit depends on that. `sums` that are a list are not needed any more.
    """
    shape = np.broadcast_shapes(column[0].shape, row[0].shape, sums[0].shape)
    if shape and math.prod(shape) <= _FEW:
        x, y, z = (_together(values, len(shape)) for values in (column, row, sums))
        if x is not None and y is not None and z is not None:
            function, (x, y) = _prepared(rule, [x, y])
            z = z.reshape(len(column), len(row), *z.shape[1:])
            return _in_blocks(function, x[:, None], y, z, shape).reshape(len(sums), *shape)
    results = sums if isinstance(sums, list) else list(sums)
    function, factors = _prepared(rule, [*column, *row])
    pairs = itertools.product(factors[: len(column)], factors[len(column) :])
    for at, (x, y) in enumerate(pairs):
        results[at] = function(x, y, results[at])
    return results


def _prepared(rule: Rule, factors: list[Value]) -> tuple[Function, list[Value]]:
    """What multiplies and adds factors, and these as it takes them."""
    if not rule.wide:
        return rule.function, factors
    integers: list[Value] = []
    for factor in factors:
        integer = np.rint(factor)  # contiguous, which vectors in memory are not
        if not ((integer == factor) & (np.abs(integer) <= _SMALL)).all():
            return rule.function, [widened(x) for x in factors]
        integers.append(integer)
    return _rounded_once, integers


def _rounded_once(a: Value, b: Value, c: Value) -> Value:
    """A multiply-add of float32 whose product is exact, a fraction of the work in float64."""
    return a * b + c


def _together(values: Values, axes: int) -> npt.NDArray[Any] | None:
    """Values of one shape, or numbers, as one array with an axis in front of so many others."""
    if isinstance(values, np.ndarray):
        return values
    shapes = {value.shape for value in values}
    if len(shapes) > 1:
        return None
    whole = np.concatenate(values) if shapes != {()} else np.array(values)
    return whole.reshape(len(values), *(shapes.pop() or (1,) * axes))


def _in_blocks(
    function: Function,
    x: npt.NDArray[Any],
    y: npt.NDArray[Any],
    z: npt.NDArray[Any],
    shape: tuple[int, ...],
) -> npt.NDArray[Any]:
    """`function` of arrays, some rows at a time."""
    height, width = z.shape[:2]
    step = max(1, _BLOCK // (width * math.prod(shape)))
    result = np.empty((height, width, *shape), z.dtype)
    for at in range(0, height, step):
        some = slice(at, at + step)
        result[some] = function(x[some], y, z[some])
    return result
