"""The choice: the kernels for a problem, by the model and what was measured, the fastest first.

`gen.matmul`, `gen choose`, `gen emit --best`, `gen tune` and `gen report` ask here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from gen.device.gpus import GpuModel
from gen.dispatch import ranking
from gen.dispatch.folders import NOWHERE, Places
from gen.dispatch.invariant import rank_invariant
from gen.dispatch.learnt import Learnt
from gen.dispatch.lines import Lines
from gen.dispatch.ranking import Product, Ranked
from gen.spec.dtypes import DTypes
from gen.spec.problem import Layouts


@lru_cache(maxsize=64)
def _learnt(tables: Sequence[Lines], gpu: GpuModel, dtypes: DTypes, layouts: Layouts) -> Learnt:
    return Learnt(tables, gpu, dtypes, layouts)


def learnt(gpu: GpuModel, dtypes: DTypes, layouts: Layouts, places: Places) -> Learnt:
    """What tables say of a GPU, element types and layouts. Raises UsageError as `Places.lines`."""
    return _learnt(places.lines(gpu, dtypes), gpu, dtypes, layouts)


def rank(
    product: Product,
    gpu: GpuModel,
    arch: str,
    tunables: Mapping[str, Any] | None = None,
    places: Places = NOWHERE,
    invariant: bool = False,
) -> list[Ranked]:
    """Every kernel that is a choice for the problem on a GPU, the fastest first.

    arch and tunables: see `gen.dispatch.ranking.rank`, as for what is raised. places: the tables of
    measured times, which correct the model's. invariant: of one order of sums for all M, which
    follows from the model alone (see `gen.dispatch.invariant`), so that no table changes a result.
    """
    modelled = rank_invariant if invariant else ranking.rank
    found = modelled(product, gpu, arch, tunables)
    corrected = learnt(gpu, product.dtypes, product.layouts, places).corrected(product, found)
    return sorted(corrected, key=lambda each: each.time)
