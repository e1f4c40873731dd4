"""Atomic read-modify-write operations on memory cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gen.emulator.isa.ops import Value, high_half, low_half, maximum, minimum, pack
from gen.emulator.isa.rounding import bf16, from_bf16

Array = npt.NDArray[Any]


def _count_up(old: Value, limit: Value) -> Value:
    return np.where(old >= limit, 0, old + 1).astype(old.dtype)


def _count_down(old: Value, limit: Value) -> Value:
    return np.where((old == 0) | (old > limit), limit, old - 1).astype(old.dtype)


def _bf16_add(old: Value, b: Value) -> Value:
    return bf16(from_bf16(old) + from_bf16(b))


def _same(a: Array, b: Array) -> npt.NDArray[np.bool_]:
    """Whether 128 bits are the same."""
    x, y = (np.ascontiguousarray(value).view(np.int64).reshape(-1, 2) for value in (a, b))
    same: npt.NDArray[np.bool_] = (x == y).all(axis=1)
    return same


def _widened(choose: Callable[[Value, Value], Value]) -> Callable[[Value, Value], Value]:
    return lambda old, b: bf16(choose(from_bf16(old), from_bf16(b)))


def _in_halves(add: Callable[[Value, Value], Value], dtype: Any) -> Callable[[Value, Value], Value]:
    def both(old: Value, b: Value) -> Value:
        low, high = (add(half(old, dtype), half(b, dtype)) for half in (low_half, high_half))
        return pack(low, high)

    return both


RULES: dict[str, Callable[..., Value]] = {
    "add": lambda old, b: old + b,
    "min": lambda old, b: np.minimum(old, b),
    "max": lambda old, b: np.maximum(old, b),
    "and": lambda old, b: old & b,
    "or": lambda old, b: old | b,
    "xor": lambda old, b: old ^ b,
    "exch": lambda old, b: b,
    "cas": lambda old, b, c: np.where(old == b, c, old),
    "inc": _count_up,
    "dec": _count_down,
    "exch.b128": lambda old, b: b,
    "cas.b128": lambda old, b, c: np.where(_same(old, b), c, old),
    "add.f16": lambda old, b: old + b,
    "add.bf16": _bf16_add,
    "add.f16x2": _in_halves(lambda old, b: old + b, np.float16),
    "add.bf16x2": _in_halves(_bf16_add, np.uint16),
    **{
        f"{word}.{kind}": rule
        for word, choose in (("min", minimum), ("max", maximum))
        for kind, rule in (
            ("f16", choose),
            ("bf16", _widened(choose)),
            ("f16x2", _in_halves(choose, np.float16)),
            ("bf16x2", _in_halves(_widened(choose), np.uint16)),
        )
    },
}


def update(cells: Array, index: npt.NDArray[np.int64], rule: str, values: list[Array]) -> Array:
    """Apply `rule` to `cells[index]` one lane after another, in lane order; the old values.

    All arrays but `cells` are 1-D with one element per lane. Lanes with different cells are
    independent, so each round takes the first lane left of every cell.
    """
    function, old = RULES[rule], np.empty(index.shape, cells.dtype)
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    new_cell = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    starts = np.maximum.accumulate(np.where(new_cell, np.arange(index.size), 0))
    rank = np.arange(index.size) - starts  # how many earlier lanes use the same cell
    by_rank = order[np.argsort(rank, kind="stable")]
    for lanes in np.split(by_rank, np.cumsum(np.bincount(rank))[:-1]):
        at = index[lanes]
        old[lanes] = cells[at]
        cells[at] = function(cells[at], *(value[lanes] for value in values))
    return old
