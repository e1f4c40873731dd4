"""The kernels that compute on tensor cores: their tunables and their rows."""

from __future__ import annotations

from gen.dtypes import TENSOR_DTYPES
from gen.spec import EPILOGUES, USUAL_SWIZZLE
from gen.tensor_geometry import mma, mma_tma
from gen.tensor_plan import plan_mma, plan_tma
from gen.tensor_rules import INSTRUCTIONS, mma_rules, mma_tma_rules
from gen.tunables import Choice, Integer, Size, Tunable, Word
from gen.variant import Variant


def _k(chosen: Choice, line: int) -> int:
    return line // chosen.dtypes.input.size


def _mma_threadblock(chosen: Choice) -> str:
    return f"128x{256 if chosen.cc >= 80 else 128}x{_k(chosen, 64)}"


def _tma_threadblock(chosen: Choice) -> str:
    return f"{256 if chosen.dtypes.accumulator.size == 2 else 128}x256x{_k(chosen, 128)}"


def _tma_warp(chosen: Choice) -> str:
    return "128x64" if chosen.dtypes.accumulator.size == 2 else "64x64"


def _instruction(chosen: Choice) -> str:
    known = INSTRUCTIONS[chosen.dtypes.input.name]
    return [name for name, since in known.items() if since <= max(chosen.cc, 80)][
        -1 if chosen.cc >= 80 else 0
    ]


_ALL_INSTRUCTIONS = tuple(dict.fromkeys(name for known in INSTRUCTIONS.values() for name in known))
_THREADBLOCK = "rows and columns of D that a block computes, and its step along K"
_WARP = "rows and columns of them that each warp computes"
_STAGES = "tiles of each operand in shared memory"


def _rest() -> tuple[Tunable, ...]:
    return (
        Integer("split_k", "slices of K that are summed apart", 1, 0, 65_535, word="auto"),
        Word("epilogue", "what is done to a sum before it is stored", "linear", EPILOGUES),
        Integer("swizzle", "tiles along M computed close in time", USUAL_SWIZZLE, 1, 1024),
    )


_INSTRUCTION = Word("instruction", "the tensor-core instruction", _instruction, _ALL_INSTRUCTIONS)

TENSOR_VARIANTS = (
    Variant(
        "mma",
        "tensor cores; tiles for blocks and for warps, copied ahead of time",
        "mma.cu.j2",
        (
            Size("threadblock", _THREADBLOCK, _mma_threadblock, "MxNxK"),
            Size("warp", _WARP, "64x64", "MxN"),
            _INSTRUCTION,
            Integer("stages", _STAGES, lambda chosen: 4 if chosen.cc >= 80 else 2, 1, 16),
            *_rest(),
        ),
        mma,
        TENSOR_DTYPES,
        rules=mma_rules,
        planner=plan_mma,
        most=2**31 - 1,
    ),
    Variant(
        "mma_tma",
        "as mma, with warps that only copy, by TMA, and blocks that stay",
        "mma_tma.cu.j2",
        (
            Size("threadblock", _THREADBLOCK, _tma_threadblock, "MxNxK"),
            Size("warp", _WARP, _tma_warp, "MxN"),
            _INSTRUCTION,
            Integer("stages", _STAGES, 3, 2, 16),
            Integer("sliced_k", "teams of warps that take turns along K", 1, 1, 2),
            *_rest(),
        ),
        mma_tma,
        TENSOR_DTYPES,
        min_arch=90,
        max_arch=90,
        default_arch="sm_90a",
        rules=mma_tma_rules,
        planner=plan_tma,
        most=2**31 - 1,
    ),
)
