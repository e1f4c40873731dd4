"""gen: readable CUDA GEMM kernels, generated, proven with or without a GPU.

`gen.matmul`, `gen.grouped_matmul` and `gen.Kernel` multiply arrays; see docs/python.md. `gen.torch`
has products as operators of PyTorch, `gen.jax` as an operation of JAX; see docs/torch.md and
docs/jax.md.
`gen.emulate` runs any CUDA kernel without a GPU; see docs/any-kernel.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gen._version import __version__ as __version__

DISTRIBUTION = "gemmgen"  # tells this package from others that are called gen

# They need numpy and CUDA, which the commands do without.
_HOMES = {
    "Kernel": "gen.api",
    "grouped_matmul": "gen.api",
    "matmul": "gen.api",
    "emulate": "gen.foreign.emulate",
}

# Rooms for users: what is raised; what needs the framework that it is for, too.
_ROOMS = ("errors", "torch", "jax")

if TYPE_CHECKING:
    from gen.api import Kernel as Kernel
    from gen.api import grouped_matmul as grouped_matmul
    from gen.api import matmul as matmul
    from gen.foreign.emulate import emulate as emulate


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"gen.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'gen' has no attribute '{name}'")
    for module in ("numpy", "cuda.bindings"):
        try:
            import_module(module)
        except ImportError as error:
            from gen.requirements import RUNNING, lacking

            raise lacking(f"gen.{name}", RUNNING, error) from None
    globals()[name] = found = getattr(import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_ROOMS})
