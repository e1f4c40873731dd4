"""What the templates of the tensor-core kernels print, besides tunables and geometry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gen.kernels import signature
from gen.kernels.tensor_cores.plan import (
    bias_of,
    facts,
    may_be_early,
    operands,
    parameters,
    reduce_width,
    transposed,
)
from gen.kernels.tensor_cores.tiles import writes_d

if TYPE_CHECKING:
    from gen.spec.kernel import KernelSpec

# What the launcher passes for a parameter of the kernel, where that is not called the same there.
_ARGUMENTS = {
    "M": "plan.M", "N": "plan.N", "A": "a", "lda": "plan.a_ld", "B": "b", "ldb": "plan.b_ld",
    "early": "plan.early", "slices": "plan.slices", "count": "plan.flags",
}  # fmt: skip
# The vector of two elements of a type.
PAIRS = {"f32": "float2", "i32": "int2", "f16": "__half2", "bf16": "__nv_bfloat162"}
_EARLY_BYTES = 16 * 1024  # of operands that are prefetched while other kernels run, about


def _common(spec: KernelSpec) -> dict[str, Any]:
    a, b = operands(spec)
    d, tile, split_k = spec.dtypes, spec.threadblock, spec.split_k
    kernel = parameters(spec)
    width = reduce_width(split_k) if split_k else None
    assert spec.instruction
    return {
        "a": a,
        "b": b,
        "transposed": transposed(spec),
        "swapped": not spec.layouts.c,
        "bias": bias_of(spec),
        "writes_d": writes_d(spec.tunables),
        "half_accumulators": d.accumulator.size == 2,
        "accumulator_type": "uint32_t" if d.accumulator.size == 2 else d.accumulator.cuda,
        "two_scalars": PAIRS[d.scalar.name],
        "four_scalars": "float4" if d.scalar.is_float else "int4",
        "two_outputs": PAIRS[d.output.name],
        "halves": 32 // (spec.instruction.k * d.input.size),
        "k_blocks": tile.k * d.input.size // 32,
        "stage_bytes": (tile.m + tile.n) * tile.k * d.input.size,
        "shared_bytes": spec.geometry.dynamic_shared,
        # Whether D may be the accumulators as they are: of its type, with nothing done to them.
        "copies_accumulators": writes_d(spec.tunables)
        and d.accumulator.size == 2
        and spec.epilogue == "linear",
        "stream_k": spec.stream_k,
        "multiprocessors": spec.row.persistent or split_k == 0,
        "facts": facts(spec),
        "work": "work" if spec.row.persistent and split_k != 1 else "tiles",
        "reduce_width": width,
        "reduce_at_once": min(4, -(-split_k * width // 256)) if width else 4,
        "signature": {
            "launch": signature.launch(spec.has_bias, has_workspace=True),
            "workspace": signature.workspace(),
            "kernel": kernel,
            "kernel_arguments": [_ARGUMENTS.get(p.name, p.name) for p in kernel],
            "reduce_arguments": [
                _ARGUMENTS.get(p.name, p.name) for p in signature.reduce(spec.has_bias)
            ],
            "clear_arguments": [_ARGUMENTS.get(p.name, p.name) for p in signature.CLEAR],
        },
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
    one_way = values["half_accumulators"] or long or spec.dtypes.output.size == 4
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
        "tests_barriers": True,
        "includes_cuda": True,
        "has_maps": True,
        "several_stores": g["slots"] > 1,
        "map_lines": sorted(lines | ({g["staging_line"]} if writes else set())),
        "stages_c_in_matrices": writes and spec.dtypes.output.size == 2,
        "may_be_early": may_be_early(spec),
        "early_steps": 1 if values["stage_bytes"] > _EARLY_BYTES else 2,
    }


# Where rows of fragment i of a warp begin in a work tile of several wgmmas, one below another.
_FRAGMENT_ROWS = "(warp / 4 * kFragmentsM + i) * 64 + warp % 4 * 16"


def wgmma(spec: KernelSpec) -> Mapping[str, Any]:
    """Of `wgmma`."""
    assert spec.warp
    below, beside = spec.cluster
    wgmmas = spec.warp.m // 16
    return {
        **mma_tma(spec),
        "sliced_k": 1,
        "moves_up": 0,
        "asynchronous_reads": True,
        "wgmmas": wgmmas,
        "fragment_rows": "16 * warp" if wgmmas == 1 else _FRAGMENT_ROWS,
        "cluster": None if spec.cluster == (1, 1) else spec.cluster,
        # The first blocks of a cluster that have the same rows, and the same columns.
        "a_bits": sum(1 << below * j for j in range(beside)),
        "b_bits": (1 << below) - 1,
        "tests_barriers": False,
    }
