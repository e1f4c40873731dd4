"""Groups: the primitive `gemmgen_grouped_matmul`.

Its operands are A, B, where groups end, which kernels read on the device, and what an epilogue
takes. Its derivatives are products of the same primitive: of groups of rows and groups along K,
each has the other's, so that nothing is copied.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.interpreters import ad, batching

from gen import api
from gen.api import evaluation
from gen.api.call import Arguments, Call
from gen.api.host import LEAST, check_emulated
from gen.api.operands import Own
from gen.api.views import framework_dtype
from gen.errors import SpecError, UsageError
from gen.jax import lowering
from gen.jax.declared import ByText, declared
from gen.jax.elementwise import applied
from gen.jax.primitive import gradient_row
from gen.kernels.launches import OFFSETS
from gen.spec.dtypes import DTYPES
from gen.spec.epilogue import Operand, parse_epilogue


@dataclass(frozen=True, eq=False)
class Groups(ByText):
    """What is computed, in the types of a row of `DTYPES`.

    Of rows: A (M, K) and B (groups, K, N), or with transpose_b (groups, N, K), to (M, N). along_k:
    A (K, M) and B (K, N) to (groups, M, N), the product of A transposed and B for each group. An
    expression as epilogue has the types of its operands; numbers are those that it takes by name.
    """

    row: str
    along_k: bool
    transpose_b: bool = False
    epilogue: str = "linear"
    numbers: tuple[tuple[str, float], ...] = ()

    @property
    def plain(self) -> Groups:
        """The products alone."""
        return replace(self, epilogue="linear", numbers=())

    @property
    def own(self) -> tuple[Operand, ...]:
        """The arrays that the epilogue takes."""
        if self.epilogue == "linear":
            return ()
        return tuple(one for one in parse_epilogue(self.epilogue).operands if one.index)

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

    def result(self, a: Any, b: Any, offsets: Any, *arrays: Any) -> jax.ShapeDtypeStruct:
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


grouped_p = declared("gemmgen_grouped_matmul")


def bind(product: Groups, *operands: Array) -> Array:
    """The products of the groups: of A, B, where groups end, and what the epilogue takes."""
    found: Array = grouped_p.bind(*operands, product=product)
    return found


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
    if product.epilogue != "linear":
        x, dx = _jvp(primals[:3], tangents[:3], product=product.plain)
        further = [ad.instantiate_zeros(tangent) for tangent in tangents[3:]]
        function = partial(_applied, product, primals[2])
        found: tuple[Any, Any] = jax.jvp(function, (x, *primals[3:]), (dx, *further))
        return found
    a, b, offsets = primals
    to_a, to_b, _ = tangents
    out = bind(product, a, b, offsets)
    terms = [] if type(to_a) is ad.Zero else [bind(product, to_a, b, offsets)]
    terms += [] if type(to_b) is ad.Zero else [bind(product, a, to_b, offsets)]
    return out, sum(terms[1:], start=terms[0]) if terms else jnp.zeros_like(out)


def _applied(product: Groups, offsets: Array, x: Array, *arrays: Array) -> Array:
    """The epilogue of the products x; rows behind the last group stay 0."""
    names = tuple(one.name for one in product.own)
    function = partial(applied, product.epilogue, product.numbers, names)
    count = len(offsets)
    if product.along_k:
        return function(x, *arrays, groups=evaluation.Groups(count, lambda each: each[:, None]))
    rows = jnp.arange(len(x), dtype=offsets.dtype)
    group = jnp.searchsorted(jax.lax.cummax(offsets), rows, side="right")

    def of_rows(each: Array) -> Array:
        if not count:  # something for rows to take, which nothing comes of
            each = jnp.ones((1, *each.shape[1:]), each.dtype)
        return each[jnp.minimum(group, max(count - 1, 0))]

    found = function(x, *arrays, groups=evaluation.Groups(count, of_rows))
    return jnp.where((group < count)[:, None], found, 0)


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


def fitted(product: Groups, a: Any, b: Any, offsets: Any, *arrays: Any) -> Call:
    """What the operands, in memory of XLA, come to. Raises SpecError."""
    left = lowering.view(a, 2, (), product.along_k)
    right = lowering.view(b, 2, b.shape[:-2], product.transpose_b)
    pairs = zip(product.own, arrays, strict=True)
    views = {one.name: lowering.view(x, x.ndim, ()) for one, x in pairs}
    own = Own({**views, OFFSETS: lowering.view(offsets, 1, ())}, dict(product.numbers))
    return _kernel(product).fitted(Arguments(left, right, None, None, None), 1, 0, own)


def _kernel(product: Groups) -> api.Kernel:
    return api.Kernel(dtype=product.row, epilogue=product.epilogue)


def on_gpu(*operands: Array, product: Groups) -> Array:
    """The products as a custom call: see `gen.jax.lowering.on_gpu`."""
    result = product.result(*operands)
    if 0 in result.shape:
        return jnp.zeros(result.shape, result.dtype)
    return call(*operands, product=product, gpu=lowering.present_gpu())


def call(a: Array, b: Array, offsets: Array, *arrays: Array, product: Groups, gpu: Any) -> Array:
    """The custom call for a GPU; its target is registered.

    The result is where C would be, which is not read: rows that no group has are 0 before.
    """
    called = fitted(product, a, b, offsets, *arrays)
    result = product.result(a, b, offsets)
    kernel = _kernel(product)
    if product.along_k:
        return lowering.launched(kernel, called, (a, b, *arrays, offsets), result, gpu)
    zeros = jnp.zeros(result.shape, result.dtype)
    operands = (a, b, zeros, *arrays, offsets)
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
    a, b, offsets, *arrays = map(np.asarray, operands)
    own = {one.name: x for one, x in zip(product.own, arrays, strict=True)}
    a = a.T if product.along_k else a
    b = np.swapaxes(b, -1, -2) if product.transpose_b else b
    found = np.zeros(result.shape, result.dtype)
    api.grouped_matmul(
        a, b, offsets, out=found, epilogue=product.epilogue,
        operands={**own, **dict(product.numbers)}, dtype=product.row, device="cpu",
    )  # fmt: skip
    return found


lowering.lower(grouped_p, on_gpu, on_cpu)
