"""setmaxnreg: what the warps of a block give to its pool of registers, and take from there.

A block starts with as many registers for each thread as its kernel declares. Whoever takes more
waits until others have given them. The order does not matter here: what is asked for in the end
has to be there. Registers change hands by warpgroups, four warps that all execute the instruction.
Nobody may keep fewer than the code needs, of which the sums on tensor cores are known here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gen.emulator.isa.classes import WARPGROUP
from gen.emulator.ptx.module import Instruction, PtxKernel
from gen.emulator.ptx.operands import Reg, Vector
from gen.emulator.translate.blocks import Block
from gen.emulator.warp.chunk import WarpChunk
from gen.emulator.warp.masks import WARP, Bits, Mask, lanes_of
from gen.emulator.warp.shuffles import all_lanes, to_warps
from gen.emulator.warp.wgmma import form_of

REGISTERS = 65_536  # of a multiprocessor
MOST = 256  # of a thread: 255, which take as many as 256


def registers_at_start(kernel: PtxKernel) -> int:
    """Registers that each thread has when the kernel starts; 0 where it does not say that.

    `__launch_bounds__` does with its second argument, of which `ptxas` makes a number. Without it,
    ptxas 13.0 takes it for 1 where two blocks have no room for the registers that the code needs;
    here that is known of the sums of a wgmma alone.
    """
    found = [kernel.max_registers] if kernel.max_registers else []
    if kernel.max_threads:
        threads = int(np.prod(kernel.max_threads))
        blocks = kernel.min_blocks or int(_sums(kernel) > REGISTERS // threads // 2)
        if blocks:
            found.append(min(MOST, REGISTERS // (threads * blocks) // 8 * 8))
    return min(found, default=0)


def _sums(kernel: PtxKernel) -> int:
    """Registers for the sums of the largest wgmma of a kernel."""
    forms = (form_of(item.name) for item in kernel.body if isinstance(item, Instruction))
    return max((form.results for form in forms if form), default=0)


def sums_behind(blocks: Sequence[Block], change: Instruction) -> int:
    """Registers that each thread has for sums, at least, from a setmaxnreg to the next one.

    That is, of all blocks that may run: the sums of the largest wgmma, or those that are there
    before the block and that its `mma` add to. A register of 64 bits counts as one.
    """
    most, reached = 0, set[int]()
    ahead = [at for at, block in enumerate(blocks) if any(item is change for item in block.body)]
    behind = False  # the change, in the block where it is
    while ahead:
        block = blocks[ahead.pop()]
        body, live = (block.body, block.live_in) if behind else (_after(block, change), set())
        behind = True
        until = next((i for i, x in enumerate(body) if x.opcode == "setmaxnreg"), len(body))
        added = set[str]()
        for item in body[:until]:
            if form := form_of(item.name):
                most = max(most, form.results)
            elif item.opcode == "mma" and isinstance(sums := item.operands[3], Vector):
                added |= {x.name for x in sums.items if isinstance(x, Reg)}
        most = max(most, len(added & live))
        if until == len(body):
            ahead += [at for at in block.successors if at not in reached]
            reached.update(block.successors)
    return most


def _after(block: Block, item: Instruction) -> list[Instruction]:
    at = next(i for i, other in enumerate(block.body) if other is item)
    return block.body[at + 1 :]


class RegisterPool:
    """The registers of the blocks of one chunk."""

    def __init__(self, chunk: WarpChunk, kernel: PtxKernel, blocks: Sequence[Block]) -> None:
        self.chunk, self.start, self.blocks = chunk, registers_at_start(kernel), blocks
        self.items: list[Instruction] = []  # that have been executed
        shape = (chunk.lanes // chunk.threads, -(-chunk.threads // WARP))
        self.held = np.full(shape, self.start)  # by a thread of each warp of each block
        self.last = np.full(shape, -1)  # which of `items`
        self.times = np.zeros(shape, np.int64)  # how often any

    def change(self, item: Instruction, count: int, mask: Mask | None) -> None:
        """Warps have `count` registers for each thread from now on."""
        lanes = to_warps(self.chunk, np.True_ if mask is None else mask.bits)
        here: Bits = np.asarray(lanes.any(axis=-1))
        if not self.start:
            rule = "the kernel does not say with how many registers it starts"
            way = "give __launch_bounds__ a second argument"
            self._report(item, here, f"{item.name} has no effect: {rule}; {way}")
            return
        more = "inc" in item.modifiers
        wrong = here & (self.held > count if more else self.held < count)
        if wrong.any():
            now = f"{int(self.held[wrong][0])} already" if more else int(self.held[wrong][0])
            message = f"{item.name} to {count} registers, where the threads have {now}"
            self._report(item, wrong, message)
        if item not in self.items:
            self.items.append(item)
            if (sums := sums_behind(self.blocks, item)) >= count:
                message = f"{item.name} to {count} registers, where sums alone take {sums}"
                self._report(item, here, message)
        self.held[here], self.last[here] = count, self.items.index(item)
        self.times += here

    def finish(self) -> None:
        """All lanes have exited: findings for what cannot have gone well."""
        for number, item in enumerate(self.items):
            self._check_warpgroups(number, item)
        if self.items:
            self._check_total()

    def _check_warpgroups(self, number: int, item: Instruction) -> None:
        """A finding for warps whose last setmaxnreg is this one, but not that of their group."""
        blocks, warps = self.held.shape
        groups = -(-warps // WARPGROUP)
        whole = (blocks, groups * WARPGROUP)
        codes = np.full(whole, -1)  # of what a warp has executed: which one last, and how many
        codes[:, :warps] = self.last + len(self.items) * self.times
        code = codes.reshape(-1, groups, WARPGROUP)
        mine = (code >= 0) & (code % len(self.items) == number)
        wrong = mine & (code != code[..., :1]).any(axis=-1, keepdims=True)
        if wrong.any():
            count = int(wrong.sum(axis=-1).max())
            message = f"{item.name} by {count} of the {WARPGROUP} warps of a warpgroup, which all "
            self._report(item, wrong.reshape(whole)[:, :warps], message + "have to execute it")

    def _check_total(self) -> None:
        """A finding where blocks would hold more registers than there are."""
        have = min(self.start * self.held.shape[1] * WARP, REGISTERS)
        wanted = self.held.sum(axis=1) * WARP
        bad = (wanted > have)[:, None] & (self.last >= 0)
        if bad.any():
            greedy = bad & (self.held == self.held[bad].max())
            item = self.items[int(self.last[greedy][0])]
            message = f"deadlock: {item.name} waits for registers that nobody gives"
            total = f"the block would hold {int(wanted.max())} of {have}"
            self._report(item, greedy, f"{message}: {total}")

    def _report(self, item: Instruction, warps: Bits, message: str) -> None:
        chunk = self.chunk
        lanes = all_lanes(chunk, warps)
        block, threads, _ = lanes_of(lanes, None, chunk.shape, chunk.origin)
        chunk.launch.findings.add("synccheck", item, message, block, threads)
