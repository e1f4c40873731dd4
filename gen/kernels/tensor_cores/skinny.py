"""The kernel for few rows, or few columns, of D on tensor cores: its tunables, its row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gen.kernels.cuda_cores import gemv
from gen.kernels.epilogues import EPILOGUE, epilogue_rule
from gen.kernels.tensor_cores.rules import DTYPES_SINCE, INSTRUCTIONS
from gen.kernels.tunables import Choice, Conflict, Integer, sizes
from gen.kernels.variant import BATCHED, MAX_THREADS, Geometry, Pace, Variant
from gen.spec.arch import UNIT, WARP
from gen.spec.dtypes import DTYPES, TENSOR_DTYPES, DTypes
from gen.spec.kernel import KernelSpec, Tile

_LONG, _SHORT = 16, 8  # lines of an instruction's operands
_PIECES = {16: "uint32_t", 32: "uint2", 64: "uint4"}  # of a line across K, by the strip's length


def _usual_strip(chosen: Choice) -> int:
    return 16 if gemv.along_k(chosen.values["few"], chosen.layouts) else 32


def _usual_ahead(chosen: Choice) -> int:
    return 4 if gemv.along_k(chosen.values["few"], chosen.layouts) else 2


def _usual_threads(chosen: Choice) -> int:
    """More where lines run across K: of their longer strips there are fewer blocks."""
    return 256 if gemv.along_k(chosen.values["few"], chosen.layouts) else 512


def _geometry(t: Mapping[str, Any], d: DTypes) -> Geometry:
    common = gemv.geometry(t, d)
    instruction = Tile._make(sizes([*INSTRUCTIONS[d.input.name]][-1]))
    warps, slab = t["threads"] // WARP, 4 * UNIT // d.input.size
    few, strip = t["vectors"], t["strip"]
    return common._replace(
        threadblock=common.threadblock._replace(k=t["ahead"] * warps * slab),
        values={
            **common.values,
            "instruction": instruction,
            # A thread's slabs, 16 bytes of each eighth line of both operands, and its sums.
            "slab_registers": t["ahead"] * (few + strip) // 2 + few * strip // WARP,
            "piece_bytes": t["strip"] // _SHORT * d.input.size,
            "piece_type": _PIECES.get(t["strip"], ""),
        },
        instruction=instruction,
        teams=warps,
        slab=slab,
    )


def _rules(chosen: Choice) -> None:
    t, name = chosen.values, chosen.dtypes.name
    epilogue_rule(t["epilogue"], chosen.dtypes)
    if DTYPES_SINCE[name] > chosen.cc:
        raise Conflict(f"tensor cores of {chosen.arch} have no {name}", "dtype", "arch")
    for tunable, of in (("threads", WARP), ("strip", _LONG), ("vectors", _SHORT)):
        if t[tunable] % of:
            raise Conflict(f"{tunable}={t[tunable]} is not a multiple of {of}", tunable)
    if gemv.along_k(t["few"], chosen.layouts):
        return
    if t["strip"] not in _PIECES:
        raise Conflict(f"strip={t['strip']} is not 16, 32 or 64, for lines across K", "strip")


def _grid(chosen: Choice) -> Sequence[Mapping[str, Any]]:
    """Its defaults; where lines run along K, fewer turns ahead, else longer strips.

    Not 16 rows in a block: on an H200, wgmma with tiles of 64x64 was faster.
    """
    usual = gemv.few_grid(8)(chosen)
    return [
        *usual,
        *(
            {**one, "ahead": 2}
            if gemv.along_k(one["few"], chosen.layouts)
            else {**one, "strip": 64, "threads": 128}
            for one in usual
        ),
    ]


def _printed(spec: KernelSpec) -> Mapping[str, Any]:
    """How it reads.

    lets_next_start: where a thread can ask for each piece of what comes first.
    """
    printed = gemv.few_printed(spec)
    strip, threads = spec.tunables["strip"], spec.tunables["threads"]
    return {**printed, "lets_next_start": printed["w_along"] and 8 * strip <= threads}


def _pace(dtypes: DTypes) -> Pace:
    """Along K, lines of the large operand do not take the place of the other one's in L1."""
    last, store = (2170, 390) if dtypes.output.size == 4 else (2680, 154)
    lengthwise = Pace(
        "mma", 0.2, along=0.94, wait_k=0.0005, small=0.015, alone=850, last=20, store=store,
        gather=5, thin=0.62, start=1870, across=195, registers=40, code=19, exact=True,
    )  # fmt: skip
    return Pace(
        "mma", 0.0798, along=0.914, wait_k=0.0053, across_k=0.0108, small=2, alone=133,
        last=last, store=store, gather=1.84, thin=0.62, start=218, across=653, registers=40,
        code=0.13, exact=True, lengthwise=lengthwise,
    )  # fmt: skip


SKINNY = Variant(
    "skinny",
    "few rows or columns, tensor cores with operands swapped",
    "kernels/skinny.cu.j2",
    (
        gemv.FEW,
        Integer("vectors", "of these few, those a block computes", 8, 8, 32, tag="v"),
        Integer("strip", "columns, or rows, of D per block", _usual_strip, 16, 64),
        Integer("ahead", "turns ahead of which a warp reads", _usual_ahead, 1, 8),
        Integer("threads", "threads per block", _usual_threads, WARP, MAX_THREADS, tag="t"),
        EPILOGUE,
        BATCHED,
    ),
    _geometry,
    tuple(
        name
        for name in TENSOR_DTYPES
        if DTYPES[name].input.size == 2 and DTYPES[name].accumulator.size == 4
    ),
    DTYPES_SINCE,
    min_arch=80,
    rules=_rules,
    printed=_printed,
    grid=_grid,
    pace=_pace,
    waits=True,
)
