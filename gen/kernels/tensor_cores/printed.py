"""What the templates of kernels with a plan print, besides tunables and geometry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gen.kernels import signature
from gen.kernels.batches import apart
from gen.kernels.launches import ABOVE_BITS
from gen.kernels.tensor_cores.facts import facts, may_be_early, reduce_width
from gen.kernels.tensor_cores.operands import operands, transposed
from gen.kernels.tensor_cores.plan import parameters
from gen.kernels.tensor_cores.tiles import (
    K_BLOCK,
    WGMMA_OTHERS,
    block_bytes,
    promotes_behind,
    stage_bytes,
    writes_d,
)

if TYPE_CHECKING:
    from gen.kernels.tensor_cores.operands import Operand
    from gen.spec.kernel import KernelSpec

# What the launcher passes for a parameter of the kernel, where that is not called the same there.
_ARGUMENTS = {
    "M": "plan.M", "N": "plan.N", "A": "a", "lda": "plan.a_ld", "B": "b", "ldb": "plan.b_ld",
    "stride_a": "plan.a_stride", "stride_b": "plan.b_stride",
    "a_count": "plan.a_count", "b_count": "plan.b_count",
    "early": "plan.early", "slices": "plan.slices", "count": "plan.flags",
}  # fmt: skip
# The vector of two elements of a type.
PAIRS = {
    "f32": "float2", "f64": "double2", "i32": "int2", "f16": "__half2", "bf16": "__nv_bfloat162",
}  # fmt: skip
# That of four; CUDA's own of doubles has other names in other versions.
FOURS = {"f32": "float4", "f64": "Four", "i32": "int4"}
_EARLY_BYTES = 16 * 1024  # of operands that are prefetched while other kernels run, about


def _unpacked(a: Operand, b: Operand) -> dict[str, str]:
    """The same where operands are never packed: they are passed on as the caller gives them."""
    return {
        **_ARGUMENTS,
        "A": a.matrix, "lda": a.ld, "stride_a": a.stride,
        "B": b.matrix, "ldb": b.ld, "stride_b": b.stride,
    }  # fmt: skip


def bias_of(spec: KernelSpec) -> str:
    """What there is a bias for in the row-major product: "column", "row", or nothing.

    "place" where the user's own epilogue depends on row or column.
    """
    if spec.fused:
        return "place" if spec.fused.places else ""
    return "" if not spec.has_bias else "column" if spec.layouts.c else "row"


def launched(spec: KernelSpec) -> dict[str, Any]:
    """Of all of them: the operands, the launches, and what these take."""
    a, b = operands(spec)
    split_k, kernel = spec.split_k, parameters(spec)
    arguments = _ARGUMENTS if spec.packs else _unpacked(a, b)
    reduce = signature.reduce(signature.of_epilogue(spec), spec.batched)
    width = reduce_width(split_k) if split_k else None
    return {
        "a": a,
        "b": b,
        "grouped": spec.grouped,
        "stacked": spec.stacked,
        "packs": spec.packs,
        "transposed": transposed(spec),
        "swapped": spec.swapped,
        "bias": bias_of(spec),
        "writes_d": writes_d(spec.tunables),
        "four_scalars": FOURS[spec.dtypes.scalar.name],
        "shared_bytes": spec.geometry.dynamic_shared,
        "stream_k": spec.stream_k,
        "multiprocessors": spec.persistent or split_k == 0,
        "counts_multiprocessors": (spec.persistent or split_k == 0) and not spec.has_large_clusters,
        "large_clusters": spec.has_large_clusters,
        "facts": facts(spec),
        "apart": apart(spec.layouts, spec.several.number),
        "work": "work" if spec.row.persistent and split_k != 1 else "tiles",
        "reduce_width": width,
        "reduce_at_once": min(4, -(-split_k * width // 256)) if width else 4,
        "signature": {
            "launch": signature.launch(spec),
            "workspace": signature.workspace(spec.several),
            "kernel": kernel,
            "kernel_arguments": [arguments.get(p.name, p.name) for p in kernel],
            "reduce": reduce,
            "reduce_arguments": [arguments.get(p.name, p.name) for p in reduce],
            "clear_arguments": [arguments.get(p.name, p.name) for p in signature.CLEAR],
        },
    }


def _common(spec: KernelSpec) -> dict[str, Any]:
    """Of those on tensor cores."""
    d, tile = spec.dtypes, spec.threadblock
    assert spec.instruction
    return {
        **launched(spec),
        "half_accumulators": d.accumulator.size == 2,
        "accumulator_type": "uint32_t" if d.accumulator.size == 2 else d.accumulator.cuda,
        "two_scalars": PAIRS[d.scalar.name],
        "two_outputs": PAIRS[d.output.name],
        "halves": K_BLOCK // (spec.instruction.k * d.factor.size),
        "k_blocks": tile.k * d.factor.size // block_bytes(spec.instruction, d),
        "stage_bytes": stage_bytes(tile, d),
        # Whether D may be the accumulators as they are: of its type, with nothing done to them.
        "copies_accumulators": writes_d(spec.tunables)
        and d.accumulator.size == 2
        and spec.epilogue == "linear",
    }


def mma(spec: KernelSpec) -> Mapping[str, Any]:
    """Of `mma`."""
    values = _common(spec)
    lines = {x.line for x in (values["a"], values["b"])}
    assert spec.warp
    return {
        **values,
        "swizzles": sorted(lines),
        "moves_up": int(values["writes_d"] and spec.warp.m > 16),
    }


def mma_tma(spec: KernelSpec) -> Mapping[str, Any]:
    """Of `mma_tma`."""
    values, g = _common(spec), spec.geometry.values
    lines = {x.line for x in (values["a"], values["b"])}
    assert spec.warp
    writes, blocks = values["writes_d"], g["staged_rows"] // 16
    # Two copies of the code, one for sums with C and a longer one without, pay for 2-byte results
    # of 4-byte sums alone.
    long = spec.epilogue.endswith("gelu")
    one_way = values["half_accumulators"] or long or spec.dtypes.output.size >= 4
    together = 2 if one_way and values["half_accumulators"] and blocks % 2 == 0 else 1
    if values["copies_accumulators"]:
        together = 1
    whole = g["slots"] == 1 and g["staged_rows"] == spec.warp.m and spec.sliced_k == 1
    moves = spec.warp.m > 16 * together and not (whole and not one_way)
    return {
        **values,
        "swizzles": sorted(lines | ({g["staging_line"]} if writes else set())),
        "whole_rows": whole,
        "fills_one_way": one_way,
        "together": together,
        "moves_up": together if writes and moves else 0,
        "asynchronous_reads": False,
        "wgmmas": 1,
        "fragment_rows": "warp % kWarpsM * kWarpM + 16 * i",
        "cluster": None,
        "cluster_k": 1,
        "clustered": False,
        "pingpong": False,
        "tests_barriers": True,
        "burst": spec.tunables.get("burst", 1),
        "includes_cuda": True,
        "has_maps": True,
        "above_bits": ABOVE_BITS,
        "map_lines": sorted(lines | ({g["staging_line"]} if writes else set())),
        "stages_c_in_matrices": writes and spec.dtypes.output.size == 2,
        "may_be_early": may_be_early(spec),
        "early_steps": 1 if values["stage_bytes"] > _EARLY_BYTES else 2,
    }


# Where rows of fragment i of a warp begin in a work tile of several wgmmas, one below another.
_FRAGMENT_ROWS = "(warp / 4 * kFragmentsM + i) * 64 + warp % 4 * 16"
# The same where each warpgroup has a work tile of its own; and of a single wgmma.
_OWN_FRAGMENT_ROWS = "64 * i + warp % 4 * 16"
_OWN_ROWS = "warp % 4 * 16"


def wgmma(spec: KernelSpec) -> Mapping[str, Any]:
    """Of `wgmma`."""
    assert spec.warp
    below, beside = spec.cluster
    wgmmas = spec.warp.m // 16
    pingpong = spec.geometry.values["teams"] > 1
    most = spec.geometry.values["consumer_registers"] - WGMMA_OTHERS
    one, several = (_OWN_ROWS, _OWN_FRAGMENT_ROWS) if pingpong else ("16 * warp", _FRAGMENT_ROWS)
    return {
        **mma_tma(spec),
        "sliced_k": 1,
        "moves_up": 0,
        "asynchronous_reads": True,
        "wgmmas": wgmmas,
        "fragment_rows": one if wgmmas == 1 else several,
        "pingpong": pingpong,
        "readers": 1 if pingpong else spec.geometry.values["groups"],  # warpgroups, of a stage
        "cluster": None if spec.cluster == (1, 1) else spec.cluster,
        "cluster_k": spec.cluster_k,
        "clustered": spec.cluster_blocks > 1,
        # Which of the blocks that share a work tile along K a block is, and how many these are.
        "sharer": "block" if spec.cluster == (1, 1) else "slice",
        "sharers": "kClusterBlocks" if spec.cluster == (1, 1) else "kSlices",
        "four_accumulators": FOURS.get(spec.dtypes.accumulator.name),
        # The first blocks of a cluster that have the same rows, and the same columns.
        "a_bits": sum(1 << below * j for j in range(beside)),
        "b_bits": (1 << below) - 1,
        "tests_barriers": False,
        "behind": promotes_behind(spec.tunables, spec.warp, spec.dtypes, most),
    }
