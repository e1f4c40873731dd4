"""`matmul`: what callers have to do with, before the primitive."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from gen.api.problem import dtypes_of, scalar
from gen.errors import SpecError, UsageError, unknown
from gen.jax import lowering  # noqa: F401  (what the primitive is lowered to)
from gen.jax.primitive import Product, bind
from gen.spec.dtypes import DTypes
from gen.spec.kernel import EPILOGUES

# What jax.default_matmul_precision calls tf32.
_TF32 = ("tensorfloat32", "TF32_TF32_F32")


def matmul(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: float = 1,
    beta: float = 0,
    bias: Any = None,
    epilogue: str = "linear",
    dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Array:
    """epilogue(alpha * a @ b + beta * c), with the shapes of jax.numpy.matmul, and derivatives.

    a (..., M, K), b (..., K, N): vectors are a row and a column; batches broadcast. c has the shape
    of the result and is read unless beta is 0; bias: N elements, added to each row. transpose_a,
    transpose_b: the operand is (..., K, M) or (..., N, K), and read as it lies: other than of a.mT,
    no transposed copy is made. epilogue: see `gen.spec.EPILOGUES`; a bias alone means
    `linear_bias`. alpha and beta are numbers, and a part of what is traced.

    dtype: a row of `gen.spec.DTYPES`, where the arrays leave a choice: `f16_f32` for a result in
    f32, `tf32` for f32. If left out, the result has the type of c or the bias where there is one,
    else that of a (int32 for int8, bfloat16 for float8), and float32 is multiplied as tf32 where
    jax.default_matmul_precision says so.

    Raises UsageError and SpecError for arrays that do not fit together or that no kernel takes.
    """
    a, b = jnp.asarray(a), jnp.asarray(b)
    c, bias = (None if x is None else jnp.asarray(x) for x in (c, bias))
    if epilogue not in EPILOGUES:
        raise unknown("epilogue", str(epilogue), EPILOGUES)
    if bias is not None and epilogue == "linear":
        epilogue = "linear_bias"
    if (bias is not None) != ("bias" in epilogue):
        raise UsageError(f"epilogue={epilogue} adds a bias; pass bias, N elements")
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
        c = None if c is None else jnp.expand_dims(c, lacks)
        wide = matmul(
            a, b, c, alpha=alpha, beta=beta, bias=bias, epilogue=epilogue, dtype=dtype,
            transpose_a=transpose_a, transpose_b=transpose_b,
        )  # fmt: skip
        return wide.squeeze(lacks)
    types = dtypes_of(_precise(a, dtype), a=a, b=b, c=c, bias=bias)
    alpha, beta = (_number(x, name, types) for x, name in ((alpha, "alpha"), (beta, "beta")))
    if c is None and beta != 0:
        raise UsageError(f"beta={beta:g} needs c; pass c")
    product = Product(types.name, epilogue, alpha, beta, transpose_a, transpose_b)
    shape = product.shape(a.shape, b.shape)
    if c is not None and c.shape != shape:
        raise SpecError(f"C has shape {c.shape}, not the result's {shape}")
    if bias is not None and bias.shape != shape[-1:]:
        raise SpecError(f"bias has shape {bias.shape}; use {shape[-1]} elements, one a column of D")
    return bind(product, a, b, c if beta != 0 else None, bias)


def _precise(a: Array, dtype: str | None) -> str | None:
    """The row for float32 operands that JAX's own switch asks for; else what the caller does."""
    if dtype is None and a.dtype == jnp.float32:
        return "tf32" if jax.config.jax_default_matmul_precision in _TF32 else None
    return dtype


def _number(value: Any, name: str, types: DTypes) -> float:
    """alpha or beta. Raises UsageError, SpecError."""
    if isinstance(value, jax.core.Tracer):
        raise UsageError(
            f"{name} is traced, but a number of the kernel's launch; pass one that is known while "
            "tracing (jax.jit's static_argnames), or multiply the arrays"
        )
    return scalar(value, name, types)
