"""Registers that hold what arithmetic has made, and not bits that somebody has put there."""

from __future__ import annotations

from functools import lru_cache

from gen.emulator.ptx.module import Instruction, PtxKernel
from gen.emulator.ptx.operands import Reg, Vector

_ARITHMETIC = frozenset(
    ("add", "sub", "mul", "fma", "div", "rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh")
)


@lru_cache(maxsize=16)
def computed_floats(kernel: PtxKernel) -> frozenset[str]:
    """The registers of f32 that nothing but arithmetic writes, and copies of such."""
    found: set[str] = set()
    others: set[str] = set()
    copies: list[tuple[str, str]] = []
    for item in kernel.body:
        if not isinstance(item, Instruction) or not item.operands:
            continue
        target, *sources = item.operands
        names = [
            part.name
            for part in (target.items if isinstance(target, Vector) else (target,))
            if isinstance(part, Reg)
        ]
        if item.opcode in _ARITHMETIC and item.modifiers[-1] == "f32":
            found.update(names)
        elif item.name == "mov.f32" and isinstance(sources[0], Reg):
            found.update(names)
            copies += [(name, sources[0].name) for name in names]
        else:
            others.update(names)
    left = found - others
    while wrong := {name for name, source in copies if name in left and source not in left}:
        left -= wrong
    return frozenset(left)
