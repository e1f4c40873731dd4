"""gen: readable CUDA GEMM kernels, generated, proven with or without a GPU.

`gen.matmul` and `gen.Kernel` multiply arrays; see docs/python.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gen._version import __version__ as __version__

if TYPE_CHECKING:
    from gen.api import Kernel as Kernel
    from gen.api import matmul as matmul


def __getattr__(name: str) -> Any:
    # They need numpy and CUDA, which the commands do without.
    if name not in ("Kernel", "matmul"):
        raise AttributeError(f"module 'gen' has no attribute '{name}'")
    from gen import api

    globals()[name] = found = getattr(api, name)
    return found
