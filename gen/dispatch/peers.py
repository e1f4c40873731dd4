"""What nvMatmulHeuristics would take of CUTLASS's kernels: an optional package of NVIDIA's.

Its model and its constants are its own, and so are the times that it predicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

from gen.device.gpus import GpuModel
from gen.dispatch.ranking import Product, Ranked
from gen.errors import UsageError
from gen.requirements import EXTRAS, lacking, version_of
from gen.spec.problem import Layouts

PEERS = ("nvmatmulheuristics",)
_MODULE = "nvMatmulHeuristics"

# What it calls the types: of A and B, of sums, of C and D; for fp8 of A, B, C, sums and D.
_TYPES = {
    "f16": "HSH", "f16_f16": "HHH", "f16_f32": "HSS", "bf16": "TST", "bf16_f32": "TSS",
    "tf32": "SFS", "f64": "DDD", "i8": "BII", "e4m3": "QQTST", "e4m3_f16": "QQHSH",
    "e4m3_f32": "QQSSS",
}  # fmt: skip
_GPUS = {
    "h200": "H200_SXM", "h100": "H100_SXM", "b200": "B200", "a100": "A100_SXM_80GB",
    "l40s": "L40S", "l4": "L4", "a10": "A10_PCIE", "rtx5090": "RTX_5090",
    "rtx4090": "RTX_4090", "rtx3090": "RTX_3090",
}  # fmt: skip


class Advice(NamedTuple):
    """A kernel that the peer would take. warp: of a warp, or of wgmma's instruction and more."""

    tile: tuple[int, int, int]
    warp: tuple[int, int, int]
    stages: int
    cluster: tuple[int, int]
    slices: int
    us: float

    def ours(self, found: Sequence[Ranked]) -> int | None:
        """The place in a ranking of the first tensor-core kernel with as large a tile of D."""
        for place, each in enumerate(found, 1):
            if each.spec.instruction and each.spec.threadblock[:2] == self.tile[:2]:
                return place
        return None


class Advised(NamedTuple):
    """What it is: its version, whose kernels it speaks of; what it would take, the best first."""

    version: str
    target: str
    kernels: list[Advice]


def advised(product: Product, gpu: GpuModel, count: int) -> Advised:
    """Up to so many kernels. Raises UsageError for what it does not know, MissingPackages."""
    precision = _known(_TYPES, product.dtypes.name, "element types")
    name = _known(_GPUS, gpu.name, "GPU")
    module = _module()
    target = "CUTLASS3" if gpu.capability >= 90 else "CUTLASS"
    peer = module.NvMatmulHeuristicsInterfaceEx(
        backend=module.NvMatmulHeuristicsTarget[target],
        flags=module.NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING,
        gpu=module.NvMatmulHeuristicsNvidiaGpu[name],
    )
    layout = module.NvMatmulHeuristicsMatmulLayout[_layout(product.layouts)]
    s = product.shape
    problem = peer.makeNvMatmulHeuristicsProblem(s.m, s.n, s.k, layout, product.batch)
    rows = peer.get(problem, count, precision=precision)
    version = version_of(EXTRAS["heuristics"][0]) or ""
    return Advised(version, target, [_advice(row) for row in rows])


def _advice(row: Any) -> Advice:
    k = row["kernel"]
    return Advice(
        (k.cta_tile_m, k.cta_tile_n, k.cta_tile_k),
        (k.warp_tile_m, k.warp_tile_n, k.warp_tile_k),
        k.stages,
        (k.cluster_m, k.cluster_n),
        k.split_k,
        row["runtime"] * 1e6,
    )


def _layout(layouts: Layouts) -> str:
    """T where an operand is not in the order of D."""
    letters = ("N" if order == layouts.c else "T" for order in (layouts.a, layouts.b))
    return f"{''.join(letters)}_{'ROW' if layouts.c else 'COL'}_MAJOR"


def _known(names: dict[str, str], name: str, what: str) -> str:
    if name not in names:
        raise UsageError(
            f"nvMatmulHeuristics is not asked for the {what} {name}; use {', '.join(names)}, or "
            "leave --peer out"
        )
    return names[name]


def _module() -> Any:
    try:
        return import_module(_MODULE)
    except ImportError as error:
        raise lacking("--peer nvmatmulheuristics", EXTRAS["heuristics"], error) from None
