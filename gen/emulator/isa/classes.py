"""What kind of work a PTX instruction is, and how many floating-point operations it does."""

from __future__ import annotations

import re

from gen.emulator.ptx.module import Instruction

WARP_LANES = 32
WARPGROUP = 4  # warps, which execute a wgmma together
_BESIDE_COPIES = re.compile(r"cp\.async\.(bulk\.)?(commit_group|wait_|prefetch|mbarrier\.arrive)")
_WMMA_ACCESS = re.compile(r"wmma\.(load|store)\.")
_MMA_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)$")
_PLAIN = {
    **dict.fromkeys(("bra", "ret", "exit", "call"), "control"),
    **dict.fromkeys(("cvt", "cvta"), "conversion"),
    **dict.fromkeys(("mov", "selp", "slct", "prmt"), "move"),
    **dict.fromkeys(("setp", "set", "testp"), "compare"),
    **dict.fromkeys(("shfl", "vote", "activemask", "match", "redux", "elect"), "warp exchange"),
    **dict.fromkeys(("rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"), "special"),
    **dict.fromkeys(("atom", "red"), "atomic"),
    **dict.fromkeys(("mma", "wmma", "wgmma"), "tensor"),
    **dict.fromkeys(("ldmatrix", "movmatrix"), "shared load"),
    **dict.fromkeys(("membar", "fence", "prefetch", "setmaxnreg", "griddepcontrol"), "control"),
}
_FLOATS = {"f32": "fp32", "f64": "fp64", "f16": "half", "f16x2": "half", "bf16": "half",
           "bf16x2": "half"}  # fmt: skip
_ONE_FLOP = frozenset({"add", "sub", "mul", "div"})


def is_barrier(item: Instruction) -> bool:
    """True for every spelling of a barrier of a block or cluster; arriving there is no wait."""
    if item.name.startswith("barrier.cluster.arrive"):
        return False
    return item.opcode in ("bar", "barrier") and "warp" not in item.modifiers


def instruction_class(item: Instruction) -> str:
    """One of a few words: "fp32", "integer", "global load", "barrier" and so on."""
    if is_barrier(item) or item.opcode == "mbarrier":
        return "barrier"
    if item.opcode in ("ld", "ldu", "st", "stmatrix") or _WMMA_ACCESS.match(item.name):
        loads = item.opcode[0] == "l" or "load" in item.modifiers
        return f"{memory_space(item)} {'load' if loads else 'store'}"
    if item.opcode == "wgmma" and not is_mma(item):
        return "control"
    if item.opcode == "cp":
        return "control" if _BESIDE_COPIES.match(item.name) else "async copy"
    if item.opcode == "div" and item.name.endswith("f32"):
        return "special"
    return _PLAIN.get(item.opcode) or _FLOATS.get(item.modifiers[-1:][0], "integer")


def memory_space(item: Instruction) -> str:
    """The state space that a load or store names, "any" where it names none."""
    if item.opcode == "stmatrix":
        return "shared"
    words = {word.partition("::")[0] for word in item.modifiers}
    return next((w for w in ("global", "shared", "local", "param", "const") if w in words), "any")


def is_mma(item: Instruction) -> bool:
    """True for an instruction of the tensor cores."""
    return item.opcode == "mma" or item.name.startswith(("wmma.mma", "wgmma.mma_async"))


def flops(item: Instruction) -> int:
    """Floating-point operations that one lane's execution stands for; a fused one counts twice."""
    if is_mma(item):
        return _mma_flops(item)
    kind = item.modifiers[-1] if item.modifiers else ""
    if kind not in _FLOATS or item.opcode not in _ONE_FLOP | {"fma", "mad"}:
        return 0
    return (2 if item.opcode in ("fma", "mad") else 1) * (2 if kind.endswith("x2") else 1)


def _mma_flops(item: Instruction) -> int:
    """The share of one lane: a warp, or a warpgroup, multiplies M x K by K x N."""
    shape = next((match for word in item.modifiers if (match := _MMA_SHAPE.match(word))), None)
    if shape is None or "s32" in item.modifiers:
        return 0
    m, n, k = (int(number) for number in shape.groups())
    return 2 * m * n * k // (WARP_LANES * (WARPGROUP if item.opcode == "wgmma" else 1))
