"""Groups: `grouped_matmul`, and the primitive `gemmgen_grouped_matmul` behind it.

Its operands are A, B and where groups end, which kernels read on the device. Its derivatives are
products of the same primitive: of groups of rows and groups along K, each has the other's, so that
nothing is copied.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import ad, batching

from gen import api
from gen.api.call import Arguments, Call
from gen.api.host import LEAST, check_emulated
from gen.api.operands import Own
from gen.api.problem import dtypes_of
from gen.api.views import framework_dtype
from gen.errors import SpecError, UsageError
from gen.jax import lowering
from gen.jax.primitive import gradient_row
from gen.kernels.launches import OFFSETS
from gen.spec.dtypes import DTYPES


@dataclass(frozen=True)
class Groups:
    """What is computed, in the types of a row of `DTYPES`.

    Of rows: A (M, K) and B (groups, K, N), or with transpose_b (groups, N, K), to (M, N). along_k:
    A (K, M) and B (K, N) to (groups, M, N), the product of A transposed and B for each group.
    """

    row: str
    along_k: bool
    transpose_b: bool = False

    def sizes(self, a: Any, b: Any) -> tuple[int, int, int]:
        """M, N, K of all groups. Raises SpecError."""
        m, k = a.shape[::-1] if self.along_k else a.shape
        rows, n = b.shape[:-3:-1] if self.transpose_b else b.shape[-2:]
        if k != rows:
            raise SpecError(
                f"A is {m} x {k} and B is {rows} x {n}: A's columns are not as many as B's rows; "
                "transpose one of them"
            )
        return m, n, k

    def result(self, a: Any, b: Any, offsets: Any) -> jax.ShapeDtypeStruct:
        """The result's shape and type. Raises SpecError."""
        m, n, _ = self.sizes(a, b)
        (groups,) = offsets.shape
        if not self.along_k and b.shape[0] != groups:
            raise SpecError(
                f"B has {b.shape[0]} matrices, and offsets has {groups} ends of groups; pass one "
                "for each"
            )
        shape = (groups, m, n) if self.along_k else (m, n)
        dtype = jnp.dtype(framework_dtype(DTYPES[self.row].output.name))
        return jax.ShapeDtypeStruct(shape, dtype)


def grouped_matmul(
    a: Any,
    b: Any,
    offsets: Any,
    *,
    dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Array:
    """Groups of a's rows, each times a matrix of its own: the experts of a mixture.

    a (M, K): the rows of all groups, one group behind the other; b (groups, K, N): a matrix for
    each; offsets (groups): integers, the row behind the last one of each group. (Of sizes, as
    jax.lax.ragged_dot has them, it is their jnp.cumsum.) The result is (M, N), of a's type; rows
    behind the last group are 0, and so are their derivatives. An end below one before counts as
    that one, and one beyond M as M.

    Where b is (K, N), groups are along K: offsets say where they end among the columns of a and
    the rows of b, and the result is (groups, M, N).

    transpose_a, transpose_b: the operand is (K, M), or has its last two axes exchanged. Matrices of
    b are read as they lie, and so is a transposed a along K; others that are not rows one behind
    the other are transposed by XLA first. dtype: see `matmul`.

    Raises UsageError and SpecError for arrays that do not fit together or that no kernel takes.
    """
    a, b, offsets = jnp.asarray(a), jnp.asarray(b), jnp.asarray(offsets)
    if (a.ndim, b.ndim) not in ((2, 3), (2, 2)):
        raise SpecError(
            f"A has shape {a.shape} and B {b.shape}; groups of rows take A (M, K) and B (groups, "
            "K, N), groups along K take A (M, K) and B (K, N)"
        )
    if offsets.ndim != 1 or not jnp.issubdtype(offsets.dtype, jnp.integer):
        raise SpecError(
            f"offsets is {offsets.dtype} of shape {offsets.shape}; use a vector of int32, the end "
            "of each group"
        )
    types = dtypes_of(lowering.precise(a, dtype), a=a, b=b)
    along_k = b.ndim == 2
    if transpose_a != along_k:
        a = a.mT
    if along_k and transpose_b:
        b, transpose_b = b.mT, False
    product = Groups(types.name, along_k, transpose_b)
    product.result(a, b, offsets)
    return bind(product, a, b, offsets.astype(jnp.int32))


grouped_p = Primitive("gemmgen_grouped_matmul")


def bind(product: Groups, a: Array, b: Array, offsets: Array) -> Array:
    """The products of the groups."""
    found: Array = grouped_p.bind(a, b, offsets, product=product)
    return found


@partial(jax.jit, static_argnames="product")
def _compiled(*operands: Array, product: Groups) -> Any:
    return grouped_p.bind(*operands, product=product)


def _run(*operands: Array, product: Groups) -> Any:
    with jax.disable_jit(False):  # which would end here again
        return _compiled(*operands, product=product)


grouped_p.def_impl(_run)


def _abstract(*operands: Any, product: Groups) -> Any:
    result = product.result(*operands)
    return jax.core.ShapedArray(result.shape, result.dtype)


grouped_p.def_abstract_eval(_abstract)


def _batched(operands: Any, axes: Any, *, product: Groups) -> tuple[Array, int]:
    """jax.vmap: one after another, since no kernel has a batch of groups."""
    moved = {
        i: jnp.moveaxis(x, axis, 0)
        for i, (x, axis) in enumerate(zip(operands, axes, strict=True))
        if axis is not None
    }

    def one(mapped: dict[int, Array]) -> Array:
        return bind(product, *(mapped.get(i, x) for i, x in enumerate(operands)))

    return jax.lax.map(one, moved), 0


batching.primitive_batchers[grouped_p] = _batched


# --- derivatives


def _jvp(primals: Any, tangents: Any, *, product: Groups) -> tuple[Any, Any]:
    if DTYPES[product.row].input.size == 1:
        raise UsageError(
            f"gen computes no derivatives with operands of {DTYPES[product.row].input.name}; "
            "convert them, or use jax.lax.stop_gradient"
        )
    a, b, offsets = primals
    to_a, to_b, _ = tangents
    out = bind(product, a, b, offsets)
    terms = [] if type(to_a) is ad.Zero else [bind(product, to_a, b, offsets)]
    terms += [] if type(to_b) is ad.Zero else [bind(product, a, to_b, offsets)]
    return out, sum(terms[1:], start=terms[0]) if terms else jnp.zeros_like(out)


def _transpose(g: Any, a: Any, b: Any, offsets: Any, *, product: Groups) -> list[Any]:
    """The cotangent of the one operand that is linear, A or B."""
    if type(g) is ad.Zero:
        return [None, None, None]
    to_a = ad.is_undefined_primal(a)
    linear = (a if to_a else b).aval
    g, row = g.astype(linear.dtype), gradient_row(DTYPES[product.row])
    rows, along_k = Groups(row, along_k=False), Groups(row, along_k=True)
    if product.along_k:
        found = (
            bind(replace(rows, transpose_b=True), b, g, offsets)
            if to_a
            else bind(rows, a, g, offsets)
        )
    elif to_a:
        found = bind(replace(rows, transpose_b=not product.transpose_b), g, b, offsets)
    else:
        found = bind(along_k, *((g, a) if product.transpose_b else (a, g)), offsets)
    return [found, None, None] if to_a else [None, found, None]


ad.primitive_jvps[grouped_p] = _jvp
ad.primitive_transposes[grouped_p] = _transpose


# --- what it is lowered to


def fitted(product: Groups, a: Any, b: Any, offsets: Any) -> Call:
    """What the operands, in memory of XLA, come to. Raises SpecError."""
    left = lowering.view(a, 2, (), product.along_k)
    right = lowering.view(b, 2, b.shape[:-2], product.transpose_b)
    own = Own({OFFSETS: lowering.view(offsets, 1, ())}, {})
    return api.Kernel(dtype=product.row).fitted(Arguments(left, right, None, None, None), 1, 0, own)


def on_gpu(*operands: Array, product: Groups) -> Array:
    """The products as a custom call: see `gen.jax.lowering.on_gpu`."""
    result = product.result(*operands)
    if 0 in result.shape:
        return jnp.zeros(result.shape, result.dtype)
    return call(*operands, product=product, gpu=lowering.present_gpu())


def call(a: Array, b: Array, offsets: Array, *, product: Groups, gpu: Any) -> Array:
    """The custom call for a GPU; its target is registered.

    The result is where C would be, which is not read: rows that no group has are 0 before.
    """
    called = fitted(product, a, b, offsets)
    result = product.result(a, b, offsets)
    kernel = api.Kernel(dtype=product.row)
    if product.along_k:
        return lowering.launched(kernel, called, (a, b, offsets), result, gpu)
    zeros = jnp.zeros(result.shape, result.dtype)
    operands = (a, b, zeros, offsets)
    return lowering.launched(kernel, called, operands, result, gpu, c_is_result=True)


def on_cpu(*operands: Array, product: Groups) -> Array:
    """The products on the emulator. Raises UsageError where they would take too long."""
    result = product.result(*operands)
    fitted(product, *operands)
    m, n, k = product.sizes(*operands[:2])
    least = operands[2].shape[0] * LEAST  # rows, or steps along K, of which each group has some
    sizes = (m, n, max(k, least)) if product.along_k else (max(m, least), n, k)
    check_emulated(sizes, "jax.lax.ragged_dot")
    found: Array = jax.pure_callback(partial(_emulate, product, result), result, *operands)
    return found


def _emulate(product: Groups, result: jax.ShapeDtypeStruct, *operands: Any) -> np.ndarray:
    a, b, offsets = map(np.asarray, operands)
    a = a.T if product.along_k else a
    b = np.swapaxes(b, -1, -2) if product.transpose_b else b
    found = np.zeros(result.shape, result.dtype)
    api.grouped_matmul(a, b, offsets, out=found, dtype=product.row, device="cpu")
    return found


lowering.lower(grouped_p, on_gpu, on_cpu)
