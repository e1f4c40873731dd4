"""Basic blocks -> Python functions: every PTX instruction becomes a line or two of numpy code.

A block's function is called as `block(R, E, m)`: `R` is the list of registers that live across
blocks, `E` the running chunk (memory, special registers) and `m` the mask of running lanes (None:
all). It returns the branch condition, if the block ends in a branch. `Program.source` holds the
generated text; reading it next to the PTX is the way to debug.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gen.emulator.isa import bits, ops, rounding
from gen.emulator.ptx.module import PtxKernel
from gen.emulator.ptx.values import register_dtype
from gen.emulator.translate.block import translate
from gen.emulator.translate.blocks import Block, build_blocks
from gen.emulator.translate.lines import Lines
from gen.emulator.warp import mma, shuffles, wmma
from gen.emulator.warp.masks import NOBODY, narrow

BlockFunction = Callable[[list[Any], Any, Any], Any]


@dataclass(eq=False)
class Program:
    """A kernel ready to run: its blocks, and two functions for each.

    `plain` writes registers for all lanes; `blended` keeps the old values of lanes that are not in
    the mask, for when other lanes are waiting elsewhere.
    """

    kernel: PtxKernel
    blocks: list[Block]
    plain: list[BlockFunction] = field(default_factory=list)
    blended: list[BlockFunction] = field(default_factory=list)
    initial: list[Any] = field(default_factory=list)  # registers before the first instruction
    slots: dict[str, int] = field(default_factory=dict)  # register name -> index in `R`
    symbols: set[str] = field(default_factory=set)  # variables whose address is taken
    source: str = ""


def compile_kernel(kernel: PtxKernel) -> Program:
    """Generate and compile all blocks; CheckError names the first instruction not understood."""
    program = Program(kernel, build_blocks(kernel))
    program.initial = [np.zeros((), register_dtype(t)) for t in kernel.registers.values()]
    program.slots = {name: at for at, name in enumerate(kernel.registers)}
    namespace: dict[str, Any] = {
        **vars(ops), **vars(bits), **vars(rounding), **vars(shuffles), **vars(mma),
        **vars(wmma),
        "np": np, "NOBODY": NOBODY, "narrow": narrow,
    }  # fmt: skip
    # A register that no lane has written yet takes the new value whole: that keeps constants and
    # other uniform values small.
    namespace["UNSET"] = program.initial
    texts = []
    for at, block in enumerate(program.blocks):
        code = Lines(kernel, program.slots, namespace)
        outputs = translate(block, code)
        program.symbols |= code.symbols
        for name, write in (
            ("plain", "{v}"),
            ("blended", "{v} if R[{i}] is UNSET[{i}] else select(m.bits, {v}, R[{i}])"),
        ):
            stores = [f"R[{i}] = {write.format(v=v, i=i)}" for i, v in outputs]
            lines = code.lines
            tail = [lines[-1]] if lines and lines[-1].startswith("return") else []
            body = [*lines[: len(lines) - len(tail)], *stores, *tail] or ["pass"]
            texts.append("\n    ".join([f"def {name}_{at}(R, E, m):", *body]))
    program.source = "\n\n".join(texts)
    exec(compile(program.source, f"<emulated {kernel.name}>", "exec"), namespace)
    program.plain = [namespace[f"plain_{i}"] for i in range(len(program.blocks))]
    program.blended = [namespace[f"blended_{i}"] for i in range(len(program.blocks))]
    return program
