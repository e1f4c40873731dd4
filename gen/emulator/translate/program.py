"""Basic blocks -> Python functions: every PTX instruction becomes a line or two of numpy code.

A block's function is called as `block(R, E, m)`: `R` is the list of registers that live across
blocks, `E` the running chunk (memory, special registers) and `m` the mask of running lanes (None:
all). It returns the branch condition, if the block ends in a branch. `Program.source` holds the
generated text of the plain ones; reading it next to the PTX is the way to debug.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from gen.emulator.isa import bits, ops, rounding, tiles
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


class Functions(dict[int, BlockFunction]):
    """A function for each block, compiled when it first runs: most kernels leave many alone."""

    def __init__(self, name: str, texts: list[str], namespace: dict[str, Any]) -> None:
        self._name, self._texts, self._namespace = name, texts, namespace

    def __missing__(self, at: int) -> BlockFunction:
        found: dict[str, BlockFunction] = {}
        code = compile(self._texts[at], f"<emulated {self._name}, block {at}>", "exec")
        exec(code, self._namespace, found)
        (self[at],) = found.values()
        return self[at]


@dataclass(eq=False)
class Program:
    """A kernel ready to run: its blocks, and two functions for each.

    `plain` writes registers for all lanes; `blended` keeps the old values of lanes that are not in
    the mask, for when other lanes are waiting elsewhere, and may read them there.
    """

    kernel: PtxKernel
    blocks: list[Block]
    plain: Functions
    blended: Functions
    # Registers before the first instruction; then, of some, which lanes lack a value.
    initial: list[Any] = field(default_factory=list)
    slots: dict[str, int] = field(default_factory=dict)  # register name -> index in `R`
    register_bytes: int = 0  # of a thread's registers that live across blocks
    symbols: set[str] = field(default_factory=set)  # variables whose address is taken
    reached: set[int] = field(default_factory=set)  # blocks that have run in any launch
    source: str = ""
    _needed: dict[frozenset[tuple[int, bool]], frozenset[int]] = field(default_factory=dict)
    _lines: tuple[int, set[int]] = (0, set())  # of so many blocks that have run

    @cached_property
    def spins(self) -> bool:
        """Whether lanes may wait for memory to change."""
        return any(block.looks for block in self.blocks)

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
        if self._lines[0] != len(self.reached):
            run = (self.blocks[at] for at in self.reached)
            lines = {item.line for block in run for item in block.instructions}
            self._lines = len(self.reached), lines
        return self._lines[1]


def compile_kernel(kernel: PtxKernel) -> Program:
    """Generate all blocks; PtxError names the first instruction not understood."""
    return replace(_translated(kernel), reached=set(), _lines=(0, set()))


# Emulators come and go in a process, and translating takes as long as NVRTC.
@lru_cache(maxsize=16)
def _translated(kernel: PtxKernel) -> Program:
    namespace: dict[str, Any] = {
        **vars(ops), **vars(bits), **vars(rounding), **vars(tiles), **vars(shuffles),
        **vars(mma), **vars(wmma), **vars(lacking), **vars(clusters),
        "np": np, "NOBODY": NOBODY, "narrow": narrow,
    }  # fmt: skip
    plain: list[str] = []
    blended: list[str] = []
    program = Program(
        kernel,
        build_blocks(kernel),
        Functions(kernel.name, plain, namespace),
        Functions(kernel.name, blended, namespace),
    )
    program.initial = [np.zeros((), register_dtype(t)) for t in kernel.registers.values()]
    program.slots = {name: at for at, name in enumerate(kernel.registers)}
    lasting = set[str]().union(*(block.live_out for block in program.blocks))
    program.register_bytes = sum(TYPE_BYTES[kernel.registers[name]] for name in lasting)
    undefined = Undefined(program.blocks, len(program.slots))
    fragments = Fragments(program.blocks)
    program.initial += [lacking.EVERYONE] * len(undefined.slots)
    # A register that no lane has written yet takes the new value whole: that keeps constants and
    # other uniform values small.
    namespace["UNSET"] = program.initial
    for at, block in enumerate(program.blocks):
        code = Lines(kernel, program.slots, namespace)
        values, lacks = translate(block, code, undefined, fragments)
        program.symbols |= code.symbols
        for texts, write, lack in (
            (plain, "{v}", "{v}"),
            (blended,
             "{v} if {i} not in needed or R[{i}] is UNSET[{i}] else select(m.bits, {v}, R[{i}])",
             "lacking_now(m, {v}, R[{i}])"),
        ):  # fmt: skip
            stores = [f"R[{i}] = {write.format(v=v, i=i)}" for i, v in values]
            stores += [f"R[{i}] = {lack.format(v=v, i=i)}" for i, v in lacks]
            lines = code.lines
            tail = [lines[-1]] if lines and lines[-1].startswith("return") else []
            head = ["needed = E.needed"] if values and texts is blended else []
            body = [*lines[: len(lines) - len(tail)], *head, *stores, *tail] or ["pass"]
            texts.append("\n    ".join([f"def block_{at}(R, E, m):", *body]))
    program.source = "\n\n".join(plain)
    return program
