"""What is measured of a shape: one product, a batch of them, or groups of rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from gen.dispatch.ranking import Product
from gen.errors import UsageError
from gen.kernels.formulas import ceil_div
from gen.spec.dtypes import DTypes
from gen.spec.problem import Batch, GemmProblem, GemmShape, Layouts, parse_shape


@dataclass(frozen=True)
class Batched(GemmShape):
    """So many products of a shape, whose matrices follow each other in memory without gaps."""

    products: int = 1

    def __str__(self) -> str:
        return f"{self.products}x{super().__str__()}"


@dataclass(frozen=True)
class Grouped(GemmShape):
    """Groups of rows of A and D, `m` in all, each with a B of its own, one behind the other.

    A group has from `least` to `most` rows: see `grouped`.
    """

    groups: int = 1
    least: int = 1
    most: int = 1

    def __str__(self) -> str:
        return f"{self.groups}x{self.least}-{self.most}x{self.n}x{self.k}"

    @property
    def rows(self) -> list[int]:
        """Those of each group."""
        return _rows(self.groups, self.least, self.most)


def grouped(groups: int, least: int, most: int, n: int, k: int) -> Grouped:
    """Groups of uneven sizes, which are spread evenly from `least` to `most` rows."""
    return Grouped(sum(_rows(groups, least, most)), n, k, groups, least, most)


def _rows(groups: int, least: int, most: int) -> list[int]:
    # Multiples of the golden ratio, without what is before the point: near neighbours lie apart.
    fractions = ((i + 1) * 2654435769 % 2**32 for i in range(groups))
    return [least + (fraction * (most - least + 1) >> 32) for fraction in fractions]


def products(shape: GemmShape) -> int:
    """How many there are of a shape."""
    if isinstance(shape, Grouped):
        return shape.groups
    return shape.products if isinstance(shape, Batched) else 1


def several(shapes: Sequence[GemmShape]) -> str:
    """The tunable of kernels for shapes of several products. Raises UsageError for two kinds."""
    groups = [s for s in shapes if isinstance(s, Grouped)]
    if groups and len(groups) < len(shapes):
        other = next(s for s in shapes if not isinstance(s, Grouped))
        raise UsageError(
            f"{groups[0]} are groups and {other} is none, which take kernels of their own; "
            "measure them one after the other"
        )
    return "grouped" if groups else "batched"


def each(shape: GemmShape) -> list[GemmShape]:
    """The shape of each of the products."""
    if isinstance(shape, Grouped):
        return [GemmShape(rows, shape.n, shape.k) for rows in shape.rows]
    return [_one(shape)] * products(shape)


def sized(shape: GemmShape, count: int) -> GemmShape:
    """So many products of a shape: one, or a batch."""
    return Batched(shape.m, shape.n, shape.k, count) if count > 1 else _one(shape)


def _one(shape: GemmShape) -> GemmShape:
    return GemmShape(shape.m, shape.n, shape.k)


_SIZES = (
    "MxNxK, one number for a cube, BxMxNxK for a batch such as 8x1024x1024x1024, or GxL-MxNxK for "
    "groups of L to M rows such as 64x8-512x4096x4096"
)


def parse_size(text: str) -> GemmShape:
    """`MxNxK`, one number for a cube, `BxMxNxK` for a batch of B products, or `GxL-MxNxK` for G
    groups of L to M rows. Raises UsageError."""
    match = re.fullmatch(r"(\d{1,9})x(?:(\d{1,9})-)?(\d{1,99}x\d{1,99}x\d{1,99})", text.strip())
    if not match:
        if text.count("x") > 2:
            raise UsageError(f"'{text}' is no size; use {_SIZES}")
        return parse_shape(text)
    count, least, shape = int(match[1]), match[2], parse_shape(match[3])
    if not count or (least is not None and int(least) > shape.m):
        raise UsageError(f"'{text}' is no size; use {_SIZES}")
    if least is None:
        return Batched(shape.m, shape.n, shape.k, count)
    return grouped(count, int(least), shape.m, shape.n, shape.k)


def problem(shape: GemmShape, layouts: Layouts) -> GemmProblem:
    """All products of a shape, stored without gaps. Raises UsageError for columns of groups."""
    one = GemmProblem.packed(_one(shape), layouts)
    if isinstance(shape, Grouped):
        if not (layouts.a and layouts.c):
            raise UsageError(f"groups of {shape} are rows; use --layout rrr or rcr, not {layouts}")
        batch = Batch(shape.groups, stride_b=shape.k * shape.n)
        return replace(one, batch=batch, ends=tuple(accumulate(shape.rows)))
    count = products(shape)
    return one.batched(layouts, count) if count > 1 else one


def product(shape: GemmShape, dtypes: DTypes, layouts: Layouts) -> Product:
    """The same as what a kernel is chosen for: groups as if all had as many rows."""
    count = products(shape)
    one = _one(shape)
    if isinstance(shape, Grouped):
        one = replace(one, m=ceil_div(shape.m, count))
    return replace(Product.packed(one, dtypes, layouts), batch=count)


def as_groups(batch: GemmProblem, along_k: bool = False) -> GemmProblem:
    """The same products as groups of rows, or along K, which lie one behind the other."""
    count, rows = batch.batch.products, batch.shape.m
    if along_k:
        depth = batch.shape.k
        return replace(
            batch,
            shape=replace(batch.shape, k=count * depth),
            batch=batch.batch._replace(stride_a=0, stride_b=0),
            ends_k=tuple(depth * (i + 1) for i in range(count)),
        )
    return replace(
        batch,
        shape=replace(batch.shape, m=count * rows),
        batch=Batch(count, stride_b=batch.batch.stride_b),
        ends=tuple(rows * (i + 1) for i in range(count)),
    )


def operand_bytes(shape: GemmShape, dtypes: DTypes) -> tuple[int, int, int]:
    """The bytes of A, B and D, stored without gaps."""
    all_ = each(shape)
    a, b, d = (sum(x) for x in zip(*((s.m * s.k, s.k * s.n, s.m * s.n) for s in all_), strict=True))
    return a * dtypes.input.size, b * dtypes.input.size, d * dtypes.output.size


def flops(shape: GemmShape) -> int:
    """Operations: a multiplication and an addition for each of M * N * K terms of each product."""
    return sum(2 * s.m * s.n * s.k for s in each(shape))
