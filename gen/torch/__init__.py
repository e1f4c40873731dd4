"""`gen.torch`: the kernels as operators of PyTorch, with gradients, autocast and torch.compile.

`matmul` and `linear` stand in for torch.matmul and torch.nn.functional.linear, `Linear` for
torch.nn.Linear, and `replace_linear` puts it into a model; `grouped_matmul` multiplies groups of
rows with a matrix each; see docs/torch.md. The operators are `torch.ops.gemmgen.matmul`, `.linear`,
`.fused`, `.matmul_out` and `.grouped_matmul`.

Importing it imports PyTorch. Inside, `import torch` is PyTorch, since imports are absolute.
"""

from __future__ import annotations

from gen.requirements import EXTRAS, RUNNING, lacking

try:
    import cuda.bindings as _bindings  # noqa: F401
    import numpy as _numpy  # noqa: F401
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise lacking("gen.torch", (*RUNNING, *EXTRAS["torch"]), error) from None

from gen.torch.functions import linear, matmul
from gen.torch.groups import grouped_matmul
from gen.torch.modules import Linear, Replaced, replace_linear

__all__ = ["Linear", "Replaced", "grouped_matmul", "linear", "matmul", "replace_linear"]
