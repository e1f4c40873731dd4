"""The mistakes that the suite makes, as patterns and replacements: a file for each kind of kernel.

`operators` says which of them a kernel has. Those of what a table of `docs/lab/checks.md` calls
survivors are among them, wherever they fit.
"""

from __future__ import annotations

from gen.spec.kernel import KernelSpec
from tests.mutation.operators.anywhere import ANYWHERE
from tests.mutation.operators.cuda_cores import CUDA_CORES, SIMT
from tests.mutation.operators.launchers import LAUNCHERS
from tests.mutation.operators.operator import Operators
from tests.mutation.operators.pipelines import PIPELINES
from tests.mutation.operators.scalars import FLOATS, HALVES, INTEGERS
from tests.mutation.operators.skinny import SKINNY
from tests.mutation.operators.slices import SLICES, STREAM
from tests.mutation.operators.tiles import TILES

__all__ = ["LAUNCHERS", "operators"]


def operators(spec: KernelSpec) -> Operators:
    """The mistakes in what a GPU runs of a kernel."""
    if spec.instruction is None:
        stream = STREAM if spec.stream_k else ()
        own = (*SIMT, *stream) if spec.row.planner else CUDA_CORES
    else:
        own = (*PIPELINES, *TILES, *SLICES) if spec.row.planner else (*SKINNY, *CUDA_CORES)
    scalars = INTEGERS if spec.dtypes.accumulator.name.startswith("i") else FLOATS
    halves = HALVES if spec.dtypes.output.name == "f16" else ()
    return (*own, *ANYWHERE, *scalars, *halves)
