"""What is measured of a shape: one product, or a batch of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gen.dispatch.ranking import Product
from gen.errors import UsageError
from gen.spec.dtypes import DTypes
from gen.spec.problem import Batch, GemmProblem, GemmShape, Layouts, parse_shape


@dataclass(frozen=True)
class Batched(GemmShape):
    """So many products of a shape, whose matrices follow each other in memory without gaps."""

    products: int = 1

    def __str__(self) -> str:
        return f"{self.products}x{super().__str__()}"


def products(shape: GemmShape) -> int:
    """How many there are of a shape."""
    return shape.products if isinstance(shape, Batched) else 1


def sized(shape: GemmShape, count: int) -> GemmShape:
    """So many products of a shape: one, or a batch."""
    return Batched(shape.m, shape.n, shape.k, count) if count > 1 else _one(shape)


def _one(shape: GemmShape) -> GemmShape:
    return GemmShape(shape.m, shape.n, shape.k)


def parse_size(text: str) -> GemmShape:
    """`MxNxK`, one number for a cube, or `BxMxNxK` for a batch of B products. Raises UsageError."""
    if text.count("x") != 3:
        return parse_shape(text)
    count, _, rest = text.strip().partition("x")
    if not count.isdecimal() or not int(count):
        raise UsageError(f"'{text}' is no batch; use BxMxNxK such as 8x1024x1024x1024")
    shape = parse_shape(rest)
    return Batched(shape.m, shape.n, shape.k, int(count))


def problem(shape: GemmShape, layouts: Layouts) -> GemmProblem:
    """All products of a shape, stored without gaps."""
    one = GemmProblem.packed(_one(shape), layouts)
    count = products(shape)
    return one.batched(layouts, count) if count > 1 else one


def product(shape: GemmShape, dtypes: DTypes, layouts: Layouts) -> Product:
    """The same as what a kernel is chosen for."""
    return replace(Product.packed(_one(shape), dtypes, layouts), batch=products(shape))


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
    m, n, k, count = shape.m, shape.n, shape.k, products(shape)
    of_input, of_output = count * dtypes.input.size, count * dtypes.output.size
    return m * k * of_input, k * n * of_input, m * n * of_output


def flops(shape: GemmShape) -> int:
    """Operations: a multiplication and an addition for each of M * N * K terms of each product."""
    return 2 * shape.m * shape.n * shape.k * products(shape)
