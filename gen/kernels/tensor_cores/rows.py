"""The kernels that compute on tensor cores: their tunables and their rows."""

from __future__ import annotations

from dataclasses import replace

from gen.kernels.epilogues import EPILOGUE
from gen.kernels.tensor_cores import printed
from gen.kernels.tensor_cores.grid import (
    mma_grid,
    mma_pace,
    short_pace,
    tma_grid,
    tma_pace,
    wgmma_fitted,
    wgmma_grid,
    wgmma_pace,
)
from gen.kernels.tensor_cores.plan import MOST_SIZE, plan
from gen.kernels.tensor_cores.rules import (
    DTYPES_SINCE,
    INSTRUCTIONS,
    MMA_DTYPES,
    mma_rules,
    mma_tma_rules,
    widens,
)
from gen.kernels.tensor_cores.tiles import (
    MOST_STAGES,
    PING_PONG,
    WGMMA_BYTES,
    lies_anywhere,
    mma,
    mma_tma,
    wgmma,
)
from gen.kernels.tensor_cores.wgmma_rules import CLUSTERS, wgmma_rules
from gen.kernels.tunables import Choice, Integer, Size, Tunable, Word, sizes
from gen.kernels.variant import BATCHED, GROUPED, GROUPED_K, STREAM_K, Variant
from gen.spec.dtypes import DTYPES, TENSOR_DTYPES
from gen.spec.kernel import cluster_of


def _k(chosen: Choice, line: int) -> int:
    return line // chosen.dtypes.factor.size


def _mma_pack(chosen: Choice) -> int:
    return int(chosen.dtypes.input.size < 8)


def _mma_threadblock(chosen: Choice) -> str:
    if chosen.dtypes.input.size == 8:  # whose sums take two registers each
        return "128x128x16"
    if lies_anywhere(chosen.values, chosen.dtypes):  # whose chunks take registers
        return f"64x64x{_k(chosen, 64)}"
    if widens(chosen):
        return "128x128x64"
    return f"128x{256 if chosen.cc >= 80 else 128}x{_k(chosen, 64)}"


def _mma_warp(chosen: Choice) -> str:
    if lies_anywhere(chosen.values, chosen.dtypes):
        return "32x32"
    return "64x32" if widens(chosen) or chosen.dtypes.input.size == 8 else "64x64"


def _mma_stages(chosen: Choice) -> int:
    if chosen.dtypes.input.size == 8:  # whose steps are long
        return 3
    return 4 if chosen.cc >= 80 and chosen.values["pack"] else 2


def _tma_threadblock(chosen: Choice) -> str:
    if widens(chosen):
        return "96x128x128"
    if chosen.dtypes.input.size == 8:
        return "128x128x16"
    return f"{256 if chosen.dtypes.accumulator.size == 2 else 128}x256x{_k(chosen, 128)}"


def _wgmma_threadblock(chosen: Choice) -> str:
    alone = chosen.values["schedule"] == PING_PONG
    if chosen.dtypes.input.is_fp8:  # whose sums, promoted to others, take registers twice
        return "64x192x128" if alone else "128x128x128"
    if chosen.dtypes.parts > 1:  # and here thrice; a stage has all parts
        return f"128x128x{_k(chosen, 64)}"
    columns = 192 if alone and chosen.dtypes.accumulator.size == 4 else 256
    return f"128x{columns}x{_k(chosen, 128)}"


def _wgmma_group(chosen: Choice) -> int:
    """About as many rows as columns of D are computed at the same time, which reads the least.

    Tiles of ping-pong are small, and so is what is computed at the same time.
    """
    rows, _, _ = sizes(chosen.values["threadblock"])
    below, *_ = cluster_of(chosen.values)
    together = 1024 if chosen.values["schedule"] == PING_PONG else 2048
    return max(1, together // max(rows * below, 1))


def _wgmma_stages(chosen: Choice) -> int:
    alone = chosen.values["schedule"] == PING_PONG
    return 4 if alone or chosen.dtypes.input.is_fp8 or chosen.dtypes.parts > 1 else 3


def _wgmma_promote(chosen: Choice) -> int:
    if chosen.dtypes.parts > 1:
        return WGMMA_BYTES // chosen.dtypes.factor.size
    return 128 if chosen.dtypes.input.is_fp8 else 0


def _tma_warp(chosen: Choice) -> str:
    if widens(chosen):
        return "48x32"
    if chosen.dtypes.input.size == 8:
        return "32x64"
    return "128x64" if chosen.dtypes.accumulator.size == 2 else "64x64"


def _instruction(chosen: Choice) -> str:
    known = INSTRUCTIONS[chosen.dtypes.factor.name]
    names = [name for name, since in known.items() if since <= max(chosen.cc, 80)] or [*known]
    short = chosen.cc < 80 or chosen.dtypes.input.size == 8  # which leaves registers for sums
    return names[0 if short else -1]


_ALL_INSTRUCTIONS = tuple(dict.fromkeys(name for known in INSTRUCTIONS.values() for name in known))
_THREADBLOCK = "rows and columns of D that a block computes, and its step along K"
_WARP = "rows and columns of that tile that each warp computes"
_STAGES = "stages of the pipeline, each a tile of both operands in shared memory"

_CLUSTER = (
    "blocks along M and N that share operands, which the TMA copies to all of them; a third "
    "number is of blocks that share each work tile along K"
)

_SCHEDULE = "whether warpgroups share each work tile, or have one each and take turns to multiply"

_BURST = "steps along K whose copies are asked for together, once there is room for all of them"

_INSTRUCTION = Word("instruction", "the tensor-core instruction", _instruction, _ALL_INSTRUCTIONS)
# So many share operands in the L2 cache.
_SWIZZLE = Integer("swizzle", "work tiles along M computed close in time", 12, 1, 1024, tag="g")
_REST: tuple[Tunable, ...] = (
    Integer(
        "split_k", "slices of K that different blocks multiply", 1, 0, 65_535, "auto", tag="sk"
    ),
    EPILOGUE,
    _SWIZZLE,
    BATCHED,
)

_PROMOTE = Integer(
    "promote",
    "elements of K after which sums of fp8, of 14 bits, or of parts are promoted; 0: never",
    _wgmma_promote,
    0,
    65_536,
    tag="p",
)

_PACK = Integer(
    "pack",
    "1: operands whose lines are not aligned are copied first, to where 16 bytes can be read at "
    "once; 0: they are read where they are",
    _mma_pack,
    0,
    1,
    tag="pack",
)

_MMA = Variant(
    "mma",
    "tensor cores, fed by a pipeline of cp.async copies",
    "kernels/mma.cu.j2",
    (
        _PACK,
        Size("threadblock", _THREADBLOCK, _mma_threadblock, "MxNxK", tag="tb"),
        Size("warp", _WARP, _mma_warp, "MxN", tag="w"),
        _INSTRUCTION,
        Integer("stages", _STAGES, _mma_stages, 1, 16, tag="s"),
        *_REST,
        GROUPED,
        GROUPED_K,
    ),
    mma,
    MMA_DTYPES,
    DTYPES_SINCE,
    rules=mma_rules,
    planner=plan,
    printed=printed.mma,
    most=MOST_SIZE,
    grid=mma_grid,
    pace=mma_pace,
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
        grid=lambda _: (),  # where that is the best instruction, mma has it
        pace=short_pace,
    ),
    Variant(
        "mma_tma",
        "tensor cores, fed by TMA: warp-specialised and persistent",
        "kernels/mma_tma.cu.j2",
        (
            Size("threadblock", _THREADBLOCK, _tma_threadblock, "MxNxK", tag="tb"),
            Size("warp", _WARP, _tma_warp, "MxN", tag="w"),
            _INSTRUCTION,
            Integer("stages", _STAGES, 3, 2, MOST_STAGES, tag="s"),
            Integer("sliced_k", "teams of warps that take turns along K", 1, 1, 2, tag="tk"),
            *_REST,
            GROUPED,
            GROUPED_K,
        ),
        mma_tma,
        MMA_DTYPES,
        DTYPES_SINCE,
        min_arch=90,
        max_arch=90,
        default_arch="sm_90a",
        rules=mma_tma_rules,
        planner=plan,
        printed=printed.mma_tma,
        most=MOST_SIZE,
        grid=tma_grid,
        pace=tma_pace,
        transposes=True,
        persistent=True,
    ),
    Variant(
        "wgmma",
        "Hopper's wgmma, fed by TMA: warp-specialised and persistent",
        "kernels/wgmma.cu.j2",
        (
            Word("schedule", _SCHEDULE, "cooperative", ("cooperative", PING_PONG)),
            Size("threadblock", _THREADBLOCK, _wgmma_threadblock, "MxNxK", tag="tb"),
            Integer("stages", _STAGES, _wgmma_stages, 2, MOST_STAGES, tag="s"),
            Word("cluster", _CLUSTER, "1x1", CLUSTERS, tag="c"),
            _PROMOTE,
            STREAM_K,
            Integer("burst", _BURST, 1, 1, 8, tag="b"),
            *_REST[:2],
            replace(_SWIZZLE, default=_wgmma_group),
            BATCHED,
            GROUPED,
            GROUPED_K,
        ),
        wgmma,
        (*TENSOR_DTYPES, "f32_6xbf16"),
        DTYPES_SINCE,
        min_arch=90,
        max_arch=90,
        default_arch="sm_90a",
        rules=wgmma_rules,
        planner=plan,
        printed=printed.wgmma,
        most=MOST_SIZE,
        grid=wgmma_grid,
        fitted=wgmma_fitted,
        pace=wgmma_pace,
        transposes=True,
        persistent=True,
    ),
)
