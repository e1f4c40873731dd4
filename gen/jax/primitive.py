"""The primitive `gemmgen_matmul`: its shapes, derivatives, batches, and what it is lowered to.

Its operands are A, B, then C and the bias where the product has them, all with as many axes of a
batch, each of size 1 or the batch's. Derivatives are products of the same primitive: a transposed
operand is a flag, so that nothing is copied.
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
from jax.extend.core import Primitive
from jax.interpreters import ad, batching

from gen.api.views import framework_dtype
from gen.errors import SpecError, UsageError
from gen.spec.dtypes import DTYPES, DTypes

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Product:
    """What is computed: epilogue(alpha * A @ B + beta * C), in the types of a row of `DTYPES`.

    A is (..., M, K), or with transpose_a (..., K, M); B likewise. C exists unless beta is 0.
    """

    row: str
    epilogue: str
    alpha: float
    beta: float
    transpose_a: bool
    transpose_b: bool

    @property
    def dtypes(self) -> DTypes:
        """The element types."""
        return DTYPES[self.row]

    @property
    def has_c(self) -> bool:
        """Whether C is read."""
        return self.beta != 0

    @property
    def has_bias(self) -> bool:
        """Whether each row of D gets a bias."""
        return "bias" in self.epilogue

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

    def named(self, operands: tuple[Any, ...]) -> tuple[Any, Any, Any, Any]:
        """A, B, C and the bias of the primitive's operands; None where there is none."""
        rest = list(operands[2:])
        c = rest.pop(0) if self.has_c else None
        return *operands[:2], c, rest.pop(0) if self.has_bias else None

    def result(self, operands: tuple[Any, ...]) -> jax.ShapeDtypeStruct:
        """The result's shape and type."""
        a, b, c, bias = self.named(operands)
        others = [x.shape[:-axes] for x, axes in ((c, 2), (bias, 1)) if x is not None]
        return jax.ShapeDtypeStruct(self.shape(a.shape, b.shape, *others), self.result_dtype)


matmul_p = Primitive("gemmgen_matmul")


def bind(
    product: Product, a: Array, b: Array, c: Array | None = None, bias: Array | None = None
) -> Array:
    """The product of operands whose batches broadcast."""
    pairs = [(a, 2), (b, 2), (c, 2), (bias, 1)]
    most = max(x.ndim - axes for x, axes in pairs if x is not None)
    operands = [_widened(x, most + axes) for x, axes in pairs if x is not None]
    found: Array = matmul_p.bind(*operands, product=product)
    return found


def _widened(x: Array, ndim: int) -> Array:
    return x.reshape((1,) * (ndim - x.ndim) + x.shape) if x.ndim < ndim else x


@partial(jax.jit, static_argnames="product")
def _compiled(*operands: Array, product: Product) -> Any:
    return matmul_p.bind(*operands, product=product)


def _run(*operands: Array, product: Product) -> Any:
    with jax.disable_jit(False):  # which would end here again
        return _compiled(*operands, product=product)


matmul_p.def_impl(_run)


def _abstract(*operands: Any, product: Product) -> Any:
    result = product.result(operands)
    return jax.core.ShapedArray(result.shape, result.dtype)


matmul_p.def_abstract_eval(_abstract)


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


ACTIVATIONS = {
    "linear_bias_relu": jax.nn.relu,
    "linear_bias_gelu": partial(jax.nn.gelu, approximate=False),
}


def _activate(epilogue: str, x: Array) -> Array:
    """What an epilogue does with its linear part, computed in at least f32 as kernels do."""
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    return ACTIVATIONS[epilogue](wide).astype(x.dtype)


def _jvp(primals: Any, tangents: Any, *, product: Product) -> tuple[Any, Any]:
    """The product and its derivative; of an activation, from the linear part, which is kept."""
    if product.epilogue in ACTIVATIONS:
        linear = replace(product, epilogue="linear_bias")
        x, dx = _jvp(primals, tangents, product=linear)
        found: tuple[Any, Any] = jax.jvp(partial(_activate, product.epilogue), (x,), (dx,))
        return found
    if product.dtypes.input.size == 1:
        raise UsageError(
            f"gen computes no derivatives with operands of {product.dtypes.input.name}; convert "
            "them, or use jax.lax.stop_gradient"
        )
    out = matmul_p.bind(*primals, product=product)
    (a, b, *_), (da, db, dc, dbias) = primals, product.named(tangents)
    plain = replace(product, epilogue="linear", beta=0.0)
    terms = []
    if type(da) is not ad.Zero:
        terms.append(matmul_p.bind(da, b, product=plain))
    if type(db) is not ad.Zero:
        terms.append(matmul_p.bind(a, db, product=plain))
    if dc is not None and type(dc) is not ad.Zero:
        terms.append(dc * jnp.asarray(product.beta, dc.dtype))
    if dbias is not None and type(dbias) is not ad.Zero:
        terms.append(dbias[..., None, :])
    # Where a batch is not that of all operands, a term may be smaller than the result.
    return out, sum(terms[1:], start=jnp.broadcast_to(terms[0], out.shape))


def _transpose(g: Any, *operands: Any, product: Product) -> list[Any]:
    """The cotangent of the one operand that is linear, A or B: a product has no other then."""
    if type(g) is ad.Zero:
        return [None] * len(operands)
    a, b = operands
    to_a = ad.is_undefined_primal(a)
    linear = (a if to_a else b).aval
    own = replace(product, row=_row_of_operands(product))
    g = g.astype(linear.dtype)
    at, bt = product.transpose_a, product.transpose_b

    def dot(left: Array, left_transposed: bool, right: Array, right_transposed: bool) -> Array:
        one = replace(own, transpose_a=left_transposed, transpose_b=right_transposed)
        return matmul_p.bind(left, right, product=one)

    if to_a:
        found = dot(b, bt, g, True) if at else dot(g, False, b, not bt)
    else:
        if not at and prod(linear.shape[:-2]) == 1 and a.shape[:-2] == g.shape[:-2]:
            # One matrix B: the rows of A's batch are those of one product.
            rows = (*linear.shape[:-2], prod(a.shape[:-1]))
            a, g = (x.reshape(*rows, x.shape[-1]) for x in (a, g))
        found = dot(g, True, a, at) if bt else dot(a, not at, g, False)
    shared = [i for i, size in enumerate(linear.shape[:-2]) if size != found.shape[i]]
    found = found.sum(shared, keepdims=True) if shared else found
    return [found, None] if to_a else [None, found]


def _row_of_operands(product: Product) -> str:
    """The row of `DTYPES` whose result has the operands' type, as a gradient has."""
    types = product.dtypes
    same = types.output.size == types.input.size
    return types.name if same else types.input.name


ad.primitive_jvps[matmul_p] = _jvp
ad.primitive_transposes[matmul_p] = _transpose
