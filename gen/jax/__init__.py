"""`gen.jax`: the kernels as an operation of JAX, under jit, vmap and differentiation.

`matmul` stands in for jax.numpy.matmul, `grouped_matmul` multiplies groups of rows with a matrix
each; see docs/jax.md. On GPUs it is a custom call that queues
gen's launchers in XLA's stream, on the CPU a callback to the emulator.

Importing it imports JAX. Inside, `import jax` is JAX, since imports are absolute.
"""

from __future__ import annotations

from gen.requirements import EXTRAS, RUNNING, lacking

try:
    import cuda.bindings as _bindings  # noqa: F401
    import jax as _jax  # noqa: F401
    import numpy as _numpy  # noqa: F401
except ImportError as error:
    raise lacking("gen.jax", (*RUNNING, *EXTRAS["jax"]), error) from None

from gen.jax.functions import grouped_matmul, matmul

__all__ = ["grouped_matmul", "matmul"]
