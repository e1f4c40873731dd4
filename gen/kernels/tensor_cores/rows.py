"""The kernels that compute on tensor cores: their tunables and their rows."""

from __future__ import annotations

from dataclasses import replace

from gen.kernels.tensor_cores import printed
from gen.kernels.tensor_cores.candidates import (
    mma_candidates,
    tma_candidates,
    wgmma_candidates,
)
from gen.kernels.tensor_cores.plan import MOST_SIZE, plan
from gen.kernels.tensor_cores.rules import (
    CLUSTERS,
    DTYPES_SINCE,
    INSTRUCTIONS,
    mma_rules,
    mma_tma_rules,
    wgmma_rules,
    widens,
)
from gen.kernels.tensor_cores.tiles import mma, mma_tma, wgmma
from gen.kernels.tunables import Choice, Integer, Size, Tunable, Word, sizes
from gen.kernels.variant import EPILOGUE, Variant
from gen.spec.dtypes import DTYPES, TENSOR_DTYPES


def _k(chosen: Choice, line: int) -> int:
    return line // chosen.dtypes.input.size


def _mma_threadblock(chosen: Choice) -> str:
    if widens(chosen):
        return "128x128x64"
    return f"128x{256 if chosen.cc >= 80 else 128}x{_k(chosen, 64)}"


def _mma_warp(chosen: Choice) -> str:
    return "64x32" if widens(chosen) else "64x64"


def _tma_threadblock(chosen: Choice) -> str:
    if widens(chosen):
        return "96x128x128"
    return f"{256 if chosen.dtypes.accumulator.size == 2 else 128}x256x{_k(chosen, 128)}"


def _wgmma_threadblock(chosen: Choice) -> str:
    if chosen.dtypes.input.is_fp8:  # whose sums, promoted to others, take registers twice
        return "128x128x128"
    return f"128x256x{_k(chosen, 128)}"


def _wgmma_group(chosen: Choice) -> int:
    """About as many rows as columns of D are computed at the same time, which reads the least."""
    rows, _, _ = sizes(chosen.values["threadblock"])
    below, _ = sizes(chosen.values["cluster"])
    return max(1, 2048 // max(rows * below, 1))


def _wgmma_stages(chosen: Choice) -> int:
    return 4 if chosen.dtypes.input.is_fp8 else 3


def _tma_warp(chosen: Choice) -> str:
    if widens(chosen):
        return "48x32"
    return "128x64" if chosen.dtypes.accumulator.size == 2 else "64x64"


def _instruction(chosen: Choice) -> str:
    known = INSTRUCTIONS[chosen.dtypes.input.name]
    names = [name for name, since in known.items() if since <= max(chosen.cc, 80)] or [*known]
    return names[-1 if chosen.cc >= 80 else 0]


_ALL_INSTRUCTIONS = tuple(dict.fromkeys(name for known in INSTRUCTIONS.values() for name in known))
_THREADBLOCK = "rows and columns of D that a block computes, and its step along K"
_WARP = "rows and columns of that tile that each warp computes"
_STAGES = "stages of the pipeline, each a tile of both operands in shared memory"

_CLUSTER = "blocks along M and N that share operands: the TMA copies these to all of them"

_STREAM = "1: blocks share work tiles along K that would not fill a round, so that all end together"

_INSTRUCTION = Word("instruction", "the tensor-core instruction", _instruction, _ALL_INSTRUCTIONS)
# So many share operands in the L2 cache.
_SWIZZLE = Integer("swizzle", "work tiles along M computed close in time", 12, 1, 1024, tag="g")
_REST: tuple[Tunable, ...] = (
    Integer(
        "split_k", "slices of K that different blocks multiply", 1, 0, 65_535, "auto", tag="sk"
    ),
    EPILOGUE,
    _SWIZZLE,
)

_PROMOTE = Integer(
    "promote",
    "elements of K after which sums of fp8, of 14 bits, are promoted to f32; 0: never",
    lambda chosen: 128 if chosen.dtypes.input.is_fp8 else 0,
    0,
    65_536,
    tag="p",
)

_MMA = Variant(
    "mma",
    "tensor cores, fed by a pipeline of cp.async copies",
    "kernels/mma.cu.j2",
    (
        Size("threadblock", _THREADBLOCK, _mma_threadblock, "MxNxK", tag="tb"),
        Size("warp", _WARP, _mma_warp, "MxN", tag="w"),
        _INSTRUCTION,
        Integer("stages", _STAGES, lambda chosen: 4 if chosen.cc >= 80 else 2, 1, 16, tag="s"),
        *_REST,
    ),
    mma,
    TENSOR_DTYPES,
    DTYPES_SINCE,
    rules=mma_rules,
    planner=plan,
    printed=printed.mma,
    most=MOST_SIZE,
    rank=20,
    candidates=mma_candidates,
    transposes=True,
)

_K8 = "m16n8k8"
_ONLY_K8 = replace(_INSTRUCTION, default=_K8, words=(_K8,))

TENSOR_VARIANTS = (
    _MMA,
    replace(
        _MMA,
        name="mma_m16n8k8",
        summary="warp-level mma.sync.m16n8k8 on 16-bit types, fed as in mma",
        tunables=tuple(_ONLY_K8 if t is _INSTRUCTION else t for t in _MMA.tunables),
        # Of the others, mma has this instruction anyway, or not at all.
        dtypes=tuple(name for name in TENSOR_DTYPES if DTYPES[name].input.size == 2),
        rank=0,
    ),
    Variant(
        "mma_tma",
        "tensor cores, fed by TMA: warp-specialised and persistent",
        "kernels/mma_tma.cu.j2",
        (
            Size("threadblock", _THREADBLOCK, _tma_threadblock, "MxNxK", tag="tb"),
            Size("warp", _WARP, _tma_warp, "MxN", tag="w"),
            _INSTRUCTION,
            Integer("stages", _STAGES, 3, 2, 16, tag="s"),
            Integer("sliced_k", "teams of warps that take turns along K", 1, 1, 2, tag="tk"),
            *_REST,
        ),
        mma_tma,
        TENSOR_DTYPES,
        DTYPES_SINCE,
        min_arch=90,
        max_arch=90,
        default_arch="sm_90a",
        rules=mma_tma_rules,
        planner=plan,
        printed=printed.mma_tma,
        most=MOST_SIZE,
        rank=30,
        candidates=tma_candidates,
        transposes=True,
        persistent=True,
    ),
    Variant(
        "wgmma",
        "Hopper's wgmma, fed by TMA: warp-specialised and persistent",
        "kernels/wgmma.cu.j2",
        (
            Size("threadblock", _THREADBLOCK, _wgmma_threadblock, "MxNxK", tag="tb"),
            Integer("stages", _STAGES, _wgmma_stages, 2, 16, tag="s"),
            Word("cluster", _CLUSTER, "1x1", CLUSTERS, tag="c"),
            _PROMOTE,
            Integer("stream_k", _STREAM, 0, 0, 1, tag="stream"),
            *_REST[:-1],
            replace(_SWIZZLE, default=_wgmma_group),
        ),
        wgmma,
        TENSOR_DTYPES,
        DTYPES_SINCE,
        min_arch=90,
        max_arch=90,
        default_arch="sm_90a",
        rules=wgmma_rules,
        planner=plan,
        printed=printed.wgmma,
        most=MOST_SIZE,
        rank=40,
        candidates=wgmma_candidates,
        transposes=True,
        persistent=True,
    ),
)
