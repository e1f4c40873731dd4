"""`matmul` and `grouped_matmul`: what callers have to do with, before the primitives."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from gen.api.evaluation import check_operands, check_shape
from gen.api.groups import with_bias
from gen.api.operands import Own, checked
from gen.api.problem import dtypes_of, scalar
from gen.dispatch.invariant import INVARIANT
from gen.errors import SpecError, UsageError, unknown
from gen.jax import groups, lowering
from gen.jax.primitive import Product, bind
from gen.spec.dtypes import DTypes
from gen.spec.epilogue import matrices
from gen.spec.kernel import EPILOGUES


def matmul(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: float = 1,
    beta: float = 0,
    bias: Any = None,
    epilogue: str = "linear",
    operands: Mapping[str, Any] | None = None,
    invariant: str | None = None,
    dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Array:
    """epilogue(alpha * a @ b + beta * c), with the shapes of jax.numpy.matmul, and derivatives.

    a (..., M, K), b (..., K, N): vectors are a row and a column; batches broadcast. c (..., M, N)
    is read unless beta is 0, bias (..., N) is added to each row; their batches broadcast to the
    result's. transpose_a, transpose_b: the operand is (..., K, M) or (..., N, K), and read as it
    lies: other than of a.mT, no transposed copy is made. alpha and beta are numbers, and a part of
    what is traced.

    epilogue: see `gen.spec.EPILOGUES`; a bias alone means `linear_bias`. It may also be an
    expression of x, such as "silu(x) * up[row, col]" (see `gen.spec.epilogue`), with operands:
    arrays and numbers by name; an array is (..., M, N), (..., M) or (..., N), as it is indexed.
    invariant: "rows" for rows of the result whose bits do not depend on other rows.

    dtype: a row of `gen.spec.DTYPES`, where the arrays leave a choice: `f16_f32` for a result in
    f32, `tf32` for f32. If left out, the result has the type of c or the bias where there is one,
    else that of a (int32 for int8, bfloat16 for float8), and float32 is multiplied as tf32 where
    jax.default_matmul_precision says so.

    Raises UsageError and SpecError for arrays that do not fit together or that no kernel takes.
    """
    a, b = _array(a, "A"), _array(b, "B")
    c, bias = (None if x is None else _array(x, name) for x, name in ((c, "C"), (bias, "bias")))
    checked(epilogue, operands)
    if bias is not None and epilogue == "linear":
        epilogue = "linear_bias"
    if epilogue in EPILOGUES and (bias is not None) != ("bias" in epilogue):
        raise UsageError(f"epilogue={epilogue} adds a bias; pass bias, N elements")
    if epilogue not in EPILOGUES and bias is not None:
        raise UsageError(
            f"a bias is given, but epilogue={epilogue} has none; write it as an operand, such as "
            "x + bias[col]"
        )
    if invariant is not None and invariant not in INVARIANT:
        raise unknown("invariant", str(invariant), INVARIANT)
    if not (a.ndim and b.ndim):
        raise SpecError("A and B are vectors or matrices, not numbers; multiply with *")
    row, column = a.ndim == 1, b.ndim == 1
    if row and column:
        raise SpecError("A and B are both vectors; make one of them a matrix: a[None]")
    if row or column:
        if (transpose_a, transpose_b)[column]:
            raise UsageError("a vector has no transpose; leave out transpose_a or transpose_b")
        lacks = -2 if row else -1
        a, b = (a[None], b) if row else (a, b[:, None])
        c = None if c is None else _wider(c, "C", lacks)
        like_result = matrices(epilogue)
        operands = {
            name: _wider(x, name, lacks) if name in like_result else x
            for name, x in (operands or {}).items()
        }
        wide = matmul(
            a, b, c, alpha=alpha, beta=beta, bias=bias, epilogue=epilogue, operands=operands,
            invariant=invariant, dtype=dtype, transpose_a=transpose_a, transpose_b=transpose_b,
        )  # fmt: skip
        return wide.squeeze(lacks)
    types = dtypes_of(lowering.precise(a, dtype), a=a, b=b, c=c, bias=bias)
    alpha, beta = (_number(x, name, types) for x, name in ((alpha, "alpha"), (beta, "beta")))
    if c is None and beta != 0:
        raise UsageError(f"beta={beta:g} needs c; pass c")
    arrays, numbers = divided(operands or {}, types)
    own = Own(arrays, numbers).epilogue(epilogue)  # of arrays, only the types count
    text = epilogue if own is None else str(own)
    # In the order of the kernel's parameters.
    values = [(o.name, numbers[o.name]) for o in (own.operands if own else ()) if not o.index]
    product = Product(
        types.name, text, alpha, beta, transpose_a, transpose_b, tuple(values), invariant
    )
    shape = product.shape(a.shape, b.shape)
    if own is not None:
        check_operands(own, arrays, types, shape)
    for name, x, ends in (("C", c, shape[-2:]), ("bias", bias, shape[-1:])):
        if x is not None:
            check_shape(name, x, ends, shape)
    further = [bias] if bias is not None else [arrays[name] for name in product.further]
    return bind(product, a, b, *([] if c is None or beta == 0 else [c]), *further)


def grouped_matmul(
    a: Any,
    b: Any,
    offsets: Any,
    *,
    bias: Any = None,
    epilogue: str = "linear",
    operands: Mapping[str, Any] | None = None,
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

    bias: (groups, N), a row for each group, or (N). epilogue: as in `matmul`; an expression also
    has `group`, and with [group] or [group, col] operands (groups) or (groups, N).

    transpose_a, transpose_b: the operand is (K, M), or has its last two axes exchanged. Matrices of
    b are read as they lie, and so is a transposed a along K; others that are not rows one behind
    the other are transposed by XLA first. dtype: see `matmul`.

    Raises UsageError and SpecError for arrays that do not fit together or that no kernel takes.
    """
    a, b, offsets = _array(a, "A"), _array(b, "B"), _array(offsets, "offsets")
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
    checked(epilogue, operands)
    if bias is not None:
        epilogue, operands = with_bias(epilogue, operands, _array(bias, "bias"))
    arrays, numbers = divided(operands or {}, types)
    own = Own(arrays, numbers).epilogue(epilogue)  # of arrays, only the types count
    if own is None and epilogue != "linear":
        raise UsageError(f"epilogue={epilogue} adds a bias; pass bias")
    values = [(one.name, numbers[one.name]) for one in own.operands if not one.index] if own else []
    text = str(own) if own else epilogue
    product = groups.Groups(types.name, along_k, transpose_b, text, tuple(values))
    shape = product.result(a, b, offsets).shape
    if own is not None:
        check_operands(own, arrays, types, shape, len(offsets))
    further = [arrays[one.name] for one in product.own]
    return groups.bind(product, a, b, offsets.astype(jnp.int32), *further)


def _array(x: Any, name: str) -> Array:
    """What JAX makes of an argument. Raises UsageError where that is no array."""
    try:
        return jnp.asarray(x)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"{name} is a {type(x).__name__}; pass an array") from None


def _wider(x: Any, name: str, lacks: int) -> Any:
    """An array with the axis that the result lacks; what has none is refused later."""
    if _is_number(x) or not (x := _array(x, name)).ndim:
        return x
    return jnp.expand_dims(x, lacks)


def divided(
    operands: Mapping[str, Any], types: DTypes
) -> tuple[dict[str, Array], dict[str, float]]:
    """The arrays and the numbers of an epilogue's operands. Raises UsageError, SpecError."""
    arrays = {name: _array(x, name) for name, x in operands.items() if not _is_number(x)}
    return arrays, {n: _number(x, n, types) for n, x in operands.items() if n not in arrays}


def _is_number(x: Any) -> bool:
    return isinstance(x, Real) or (isinstance(x, jax.core.Tracer) and x.ndim == 0)


def _number(value: Any, name: str, types: DTypes) -> float:
    """alpha or beta. Raises UsageError, SpecError."""
    if isinstance(value, jax.core.Tracer):
        raise UsageError(
            f"{name} is traced, but a number of the kernel's launch; pass one that is known while "
            "tracing (jax.jit's static_argnames), or multiply the arrays"
        )
    return scalar(value, name, types)
