"""Epilogues as JAX's own operations: what their derivatives are taken of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from gen.api.evaluation import Groups, evaluate
from gen.spec.epilogue import parse_epilogue
from gen.spec.kernel import EPILOGUES

# Those with names, of the linear part.
NAMED: Mapping[str, Callable[[Array], Array]] = {
    "linear_bias_relu": jax.nn.relu,
    "linear_bias_gelu": partial(jax.nn.gelu, approximate=False),
}


class _Elementwise:
    """See `gen.api.evaluation.Elementwise`; in an array's type."""

    functions: Mapping[str, Callable[..., Array]] = {
        "abs": jnp.abs, "min": jnp.fmin, "max": jnp.fmax, "exp": jnp.exp, "log": jnp.log,
        "sqrt": jnp.sqrt, "tanh": jnp.tanh, "erf": jax.scipy.special.erf,
        "relu": jax.nn.relu, "sigmoid": jax.nn.sigmoid, "silu": jax.nn.silu,
        "gelu": partial(jax.nn.gelu, approximate=False),
        "clamp": lambda x, low, high: jnp.fmin(jnp.fmax(x, low), high),
    }  # fmt: skip

    def __init__(self, dtype: Any) -> None:
        self._dtype = dtype

    def number(self, value: float) -> Array:
        return jnp.asarray(value, self._dtype)

    def index(self, value: int) -> Array:
        return jnp.asarray(value, int)

    def indices(self, count: int) -> Array:
        return jnp.arange(count)

    def converted(self, x: Array) -> Array:
        return x.astype(self._dtype)

    def where(self, condition: Array, yes: Array, no: Array) -> Array:
        return jnp.where(condition, yes, no)

    def quotient(self, x: Array, y: Array) -> Array:
        return jax.lax.div(*jnp.broadcast_arrays(x, y))


def applied(
    epilogue: str, numbers: tuple[tuple[str, float], ...], names: tuple[str, ...], x: Array,
    *arrays: Array, groups: Groups | None = None,
) -> Array:  # fmt: skip
    """The epilogue of x = alpha * A @ B + beta * C (..., M, N), computed in at least f32.

    names: of the arrays, which an expression takes. The result has x's type.
    """
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    if epilogue in EPILOGUES:
        return NAMED[epilogue](wide).astype(x.dtype)
    given = (array.astype(wide.dtype) for array in arrays)
    own = {**dict(zip(names, given, strict=True)), **dict(numbers)}
    found: Array = evaluate(parse_epilogue(epilogue), _Elementwise(wide.dtype), wide, own, groups)
    return found.astype(x.dtype)
