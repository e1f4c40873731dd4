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
from gen.emulator.ptx.module import TYPE_BYTES, PtxKernel
from gen.emulator.ptx.values import register_dtype
from gen.emulator.translate.block import translate
from gen.emulator.translate.blocks import Block, build_blocks
from gen.emulator.translate.lines import Lines
from gen.emulator.translate.undefined import Undefined
from gen.emulator.translate.wgmma import Fragments
from gen.emulator.warp import clusters, lacking, mma, shuffles, wmma
from gen.emulator.warp.masks import NOBODY, narrow

BlockFunction = Callable[[list[Any], Any, Any], Any]


@dataclass(eq=False)
class Program:
    """A kernel ready to run: its blocks, and two functions for each.

    `plain` writes registers for all lanes; `blended` keeps the old values of lanes that are not in
    the mask, for when other lanes are waiting elsewhere, and may read them there.
    """

    kernel: PtxKernel
    blocks: list[Block]
    plain: list[BlockFunction] = field(default_factory=list)
    blended: list[BlockFunction] = field(default_factory=list)
    # Registers before the first instruction; then, of some, which lanes lack a value.
    initial: list[Any] = field(default_factory=list)
    slots: dict[str, int] = field(default_factory=dict)  # register name -> index in `R`
    register_bytes: int = 0  # of a thread's registers that live across blocks
    symbols: set[str] = field(default_factory=set)  # variables whose address is taken
    reached: set[int] = field(default_factory=set)  # blocks that have run in any launch
    source: str = ""
    _needed: dict[frozenset[tuple[int, bool]], frozenset[int]] = field(default_factory=dict)

    def needed(self, places: frozenset[tuple[int, bool]]) -> frozenset[int]:
        """The slots of registers that lanes may read later which wait at some blocks.

        places: a block's number, and whether they have run it and wait at the barrier that ends it.
        """
        if places not in self._needed:
            blocks = [(self.blocks[at], behind) for at, behind in places]
            names = set[str]().union(*(b.live_out if behind else b.live_in for b, behind in blocks))
            self._needed[places] = frozenset(self.slots[name] for name in names)
        return self._needed[places]

    def lines_run(self) -> set[int]:
        """The CUDA lines of which an instruction has run in any launch."""
        run = (self.blocks[at] for at in self.reached)
        return {item.line for block in run for item in block.instructions}


def compile_kernel(kernel: PtxKernel) -> Program:
    """Generate and compile all blocks; PtxError names the first instruction not understood."""
    program = Program(kernel, build_blocks(kernel))
    program.initial = [np.zeros((), register_dtype(t)) for t in kernel.registers.values()]
    program.slots = {name: at for at, name in enumerate(kernel.registers)}
    lasting = set[str]().union(*(block.live_out for block in program.blocks))
    program.register_bytes = sum(TYPE_BYTES[kernel.registers[name]] for name in lasting)
    undefined = Undefined(program.blocks, len(program.slots))
    fragments = Fragments(program.blocks)
    program.initial += [lacking.EVERYONE] * len(undefined.slots)
    namespace: dict[str, Any] = {
        **vars(ops), **vars(bits), **vars(rounding), **vars(shuffles), **vars(mma),
        **vars(wmma), **vars(lacking), **vars(clusters),
        "np": np, "NOBODY": NOBODY, "narrow": narrow,
    }  # fmt: skip
    # A register that no lane has written yet takes the new value whole: that keeps constants and
    # other uniform values small.
    namespace["UNSET"] = program.initial
    texts = []
    for at, block in enumerate(program.blocks):
        code = Lines(kernel, program.slots, namespace)
        values, lacks = translate(block, code, undefined, fragments)
        program.symbols |= code.symbols
        for name, write, lack in (
            ("plain", "{v}", "{v}"),
            ("blended",
             "{v} if {i} not in needed or R[{i}] is UNSET[{i}] else select(m.bits, {v}, R[{i}])",
             "lacking_now(m, {v}, R[{i}])"),
        ):  # fmt: skip
            stores = [f"R[{i}] = {write.format(v=v, i=i)}" for i, v in values]
            stores += [f"R[{i}] = {lack.format(v=v, i=i)}" for i, v in lacks]
            lines = code.lines
            tail = [lines[-1]] if lines and lines[-1].startswith("return") else []
            head = ["needed = E.needed"] if values and name == "blended" else []
            body = [*lines[: len(lines) - len(tail)], *head, *stores, *tail] or ["pass"]
            texts.append("\n    ".join([f"def {name}_{at}(R, E, m):", *body]))
    program.source = "\n\n".join(texts)
    exec(compile(program.source, f"<emulated {kernel.name}>", "exec"), namespace)
    program.plain = [namespace[f"plain_{i}"] for i in range(len(program.blocks))]
    program.blended = [namespace[f"blended_{i}"] for i in range(len(program.blocks))]
    return program
