"""The primitive `gemmgen_matmul`: its shapes, derivatives, batches, and what it is lowered to.

Its operands are A, B, then C where the product has it and what the epilogue takes, all with as many
axes of a batch, each of size 1 or the batch's. Derivatives are products of the same primitive: a
transposed operand is a flag, so that nothing is copied.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.interpreters import ad, batching

from gen.api.views import framework_dtype
from gen.errors import SpecError, UsageError
from gen.jax.declared import ByText, declared
from gen.jax.elementwise import applied
from gen.spec.dtypes import DTYPES, DTypes
from gen.spec.epilogue import COLUMNS, MATRIX, parse_epilogue
from gen.spec.kernel import EPILOGUES

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Product(ByText):
    """What is computed: epilogue(alpha * A @ B + beta * C), in the types of a row of `DTYPES`.

    A is (..., M, K), or with transpose_a (..., K, M); B likewise. C exists unless beta is 0. An
    expression as epilogue has the types of its operands; numbers are those that it takes by name.
    invariant: see `gen.matmul`.
    """

    row: str
    epilogue: str
    alpha: float
    beta: float
    transpose_a: bool
    transpose_b: bool
    numbers: tuple[tuple[str, float], ...] = ()
    invariant: str | None = None

    @property
    def dtypes(self) -> DTypes:
        """The element types."""
        return DTYPES[self.row]

    @property
    def has_c(self) -> bool:
        """Whether C is read."""
        return self.beta != 0

    @property
    def further(self) -> dict[str, str]:
        """The arrays that the epilogue takes: what each has elements for, by name."""
        if self.epilogue in EPILOGUES:
            return {"bias": COLUMNS} if "bias" in self.epilogue else {}
        operands = parse_epilogue(self.epilogue).operands
        return {operand.name: operand.index for operand in operands if operand.index}

    @property
    def axes(self) -> tuple[int, ...]:
        """How many axes each operand has besides the batch's."""
        ends = (2 if index == MATRIX else 1 for index in self.further.values())
        return (2, 2, *([2] if self.has_c else []), *ends)

    @property
    def plain(self) -> Product:
        """The product of A and B alone."""
        return replace(self, epilogue="linear", beta=0.0, numbers=())

    @property
    def result_dtype(self) -> Any:
        """The result's type, as JAX has it."""
        return jnp.dtype(framework_dtype(self.dtypes.output.name))

    def sizes(self, a: Shape, b: Shape) -> tuple[int, int, int]:
        """M, N, K, of the shapes of A and B. Raises SpecError."""
        m, k = a[-1:-3:-1] if self.transpose_a else a[-2:]
        n, rows = b[-2:] if self.transpose_b else b[-1:-3:-1]
        if k != rows:
            raise SpecError(
                f"A is {m} x {k} and B is {rows} x {n}: A's columns are not as many as B's rows; "
                "transpose one of them"
            )
        return m, n, k

    def shape(self, a: Shape, b: Shape, *others: Shape) -> Shape:
        """The result's shape; `others` are those of batches alone. Raises SpecError."""
        m, n, _ = self.sizes(a, b)
        try:
            batch = np.broadcast_shapes(a[:-2], b[:-2], *others)
        except ValueError:
            raise SpecError(
                f"the batches {a[:-2]} of A and {b[:-2]} of B do not broadcast; reshape one of them"
            ) from None
        return (*batch, m, n)

    def named(self, operands: tuple[Any, ...]) -> tuple[Any, Any, Any, dict[str, Any]]:
        """A, B, C, None where there is none, and what the epilogue takes by name."""
        a, b, *rest = operands
        c = rest.pop(0) if self.has_c else None
        return a, b, c, dict(zip(self.further, rest, strict=True))

    def result(self, *operands: Any) -> jax.ShapeDtypeStruct:
        """The result's shape and type."""
        batches = [x.shape[: x.ndim - n] for x, n in zip(operands, self.axes, strict=True)]
        shape = self.shape(operands[0].shape, operands[1].shape, *batches[2:])
        return jax.ShapeDtypeStruct(shape, self.result_dtype)


matmul_p = declared("gemmgen_matmul")


def bind(product: Product, *operands: Array) -> Array:
    """The product of operands whose batches broadcast, in the primitive's order."""
    pairs = [*zip(operands, product.axes, strict=True)]
    most = max(x.ndim - axes for x, axes in pairs)
    found: Array = matmul_p.bind(*(_widened(x, most + axes) for x, axes in pairs), product=product)
    return found


def _widened(x: Array, ndim: int) -> Array:
    return x.reshape((1,) * (ndim - x.ndim) + x.shape) if x.ndim < ndim else x


# --- batches


def _batched(operands: Any, axes: Any, *, product: Product) -> tuple[Array, int]:
    """jax.vmap: its axis is the batch's first, of size 1 in operands that all products share."""
    moved = [
        x[None] if axis is None else jnp.moveaxis(x, axis, 0)
        for x, axis in zip(operands, axes, strict=True)
    ]
    return matmul_p.bind(*moved, product=product), 0


batching.primitive_batchers[matmul_p] = _batched


# --- derivatives


def _jvp(primals: Any, tangents: Any, *, product: Product) -> tuple[Any, Any]:
    """The product and its derivative; of an epilogue, from the linear part, which is kept."""
    if product.epilogue not in ("linear", "linear_bias"):
        return _jvp_of_epilogue(primals, tangents, product)
    if product.dtypes.input.size == 1:
        raise UsageError(
            f"gen computes no derivatives with operands of {product.dtypes.input.name}; convert "
            "them, or use jax.lax.stop_gradient"
        )
    out = matmul_p.bind(*primals, product=product)
    (a, b, *_), (da, db, dc, further) = primals, product.named(tangents)
    terms = []
    if type(da) is not ad.Zero:
        terms.append(matmul_p.bind(da, b, product=product.plain))
    if type(db) is not ad.Zero:
        terms.append(matmul_p.bind(a, db, product=product.plain))
    if dc is not None and type(dc) is not ad.Zero:
        terms.append(dc * jnp.asarray(product.beta, dc.dtype))
    if "bias" in further and type(further["bias"]) is not ad.Zero:
        terms.append(further["bias"][..., None, :])
    if not terms:
        return out, jnp.zeros_like(out)
    # Where a batch is not that of all operands, a term may be smaller than the result.
    return out, sum(terms[1:], start=jnp.broadcast_to(terms[0], out.shape))


def _jvp_of_epilogue(primals: Any, tangents: Any, product: Product) -> tuple[Any, Any]:
    own = product.epilogue not in EPILOGUES
    count = 2 + product.has_c if own else len(primals)  # a bias is added by the kernel
    linear = replace(product, epilogue="linear" if own else "linear_bias", numbers=())
    x, dx = _jvp(primals[:count], tangents[:count], product=linear)
    further = [ad.instantiate_zeros(tangent) for tangent in tangents[count:]]
    names = tuple(product.further) if own else ()
    function = partial(applied, product.epilogue, product.numbers, names)
    found: tuple[Any, Any] = jax.jvp(function, (x, *primals[count:]), (dx, *further))
    return found


def _transpose(g: Any, *operands: Any, product: Product) -> list[Any]:
    """The cotangent of the one operand that is linear, A or B: a product has no other then."""
    if type(g) is ad.Zero:
        return [None] * len(operands)
    a, b = operands
    to_a = ad.is_undefined_primal(a)
    linear = (a if to_a else b).aval
    own = replace(product, row=gradient_row(product.dtypes), invariant=None)
    rows = replace(own, invariant=product.invariant)  # of the gradient of A are those of A
    g = g.astype(linear.dtype)
    at, bt = product.transpose_a, product.transpose_b

    def dot(
        left: Array, left_transposed: bool, right: Array, right_transposed: bool,
        like: Product = own,
    ) -> Array:  # fmt: skip
        one = replace(like, transpose_a=left_transposed, transpose_b=right_transposed)
        return matmul_p.bind(left, right, product=one)

    if to_a:
        found = dot(b, bt, g, True) if at else dot(g, False, b, not bt, rows)
    else:
        if not at and prod(linear.shape[:-2]) == 1 and a.shape[:-2] == g.shape[:-2]:
            # One matrix B: the rows of A's batch are those of one product.
            lines = (*linear.shape[:-2], prod(a.shape[:-1]))
            a, g = (x.reshape(*lines, x.shape[-1]) for x in (a, g))
        found = dot(g, True, a, at) if bt else dot(a, not at, g, False)
    shared = [i for i, size in enumerate(linear.shape[:-2]) if size != found.shape[i]]
    found = found.sum(shared, keepdims=True) if shared else found
    return [found, None] if to_a else [None, found]


def gradient_row(types: DTypes) -> str:
    """The row of `DTYPES` whose result has the operands' type, as a gradient has."""
    same = types.output.size == types.input.size
    return types.name if same else types.input.name


ad.primitive_jvps[matmul_p] = _jvp
ad.primitive_transposes[matmul_p] = _transpose
