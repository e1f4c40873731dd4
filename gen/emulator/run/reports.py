"""Findings of a chunk of blocks: the words for what lanes have done."""

from __future__ import annotations

import numpy as np

from gen.emulator.isa.ops import Value
from gen.emulator.memory.global_memory import GlobalMemory, Site
from gen.emulator.ptx.module import Instruction
from gen.emulator.run.launch_state import LaunchState
from gen.emulator.warp.clusters import OFFSET, RANK_SHIFT, Clusters
from gen.emulator.warp.masks import Bits, Coordinates, Mask, Shape, lanes_of
from gen.emulator.watch.findings import PLAIN_WORDS, access_message, plain_name

SECONDS_AFTER_WILD = 10.0  # of CPU time that a launch goes on, to what else it does wrong


class Reports:
    """Traps, variables without a value, and accesses that are wrong."""

    launch: LaunchState
    origin: Coordinates
    shape: Shape
    clusters: Clusters
    memory: GlobalMemory

    def trap(self, item: Instruction, m: Mask | None) -> None:
        """A finding for lanes that stop the kernel."""
        bits = np.ones((1,) * 6, np.bool_) if m is None else m.bits
        block, threads, count = lanes_of(bits, None, self.shape, self.origin)
        message = f"{item.opcode} executed in {count} thread{'s' * (count > 1)}"
        self.launch.findings.add("trap", item, message, block, threads)

    def use(self, item: Instruction, origin: Instruction, m: Mask | None, bits: Bits) -> None:
        """An initcheck finding for lanes that lack what `item` uses.

        origin: the first instruction that has read the register which nothing has written, or the
        shuffle that has read it in a lane that does not take part.
        """
        if m is not None:
            bits = bits & m.bits
        if not bits.any():
            return
        block, threads, count = lanes_of(bits, None, self.shape, self.origin)
        message = "a variable is used that has no value"
        if origin.opcode == "shfl":
            message = "a value is used that a shuffle took from a lane which does not take part"
        message += f", by {count} thread{'s' * (count > 1)}"
        if item is not origin:
            what = PLAIN_WORDS.get(item.opcode, item.opcode)
            message += f"; it reaches the {what}" + f" at line {item.line}" * (item.line > 0)
        self.launch.findings.add(
            "initcheck", origin, message, block, threads, kind="register", other=item
        )

    def report(self, site: Site, what: str, address: Value, bad: Bits, mask: Mask | None) -> None:
        """A memcheck finding for the lanes in `bad`, whose byte addresses are `address`."""
        block, threads, count = lanes_of(bad, mask, self.shape, self.origin)
        first = int(np.asarray(address)[np.broadcast_to(bad, address.shape)][0])
        text = self.describe(site, first)
        message = access_message(site, what, text, count)
        self.launch.findings.add("memcheck", site.item, message, block, threads, text)
        if not self.launch.wild:  # a GPU stops there; what a loop reads so may never end it
            self.launch.wild = True
            self.launch.limit.shorten(SECONDS_AFTER_WILD)

    def describe(self, site: Site, address: int) -> str:
        """A byte that `site` accesses, as a buffer or a space and the offset in it."""
        space = site.space
        if space == "generic":
            space = {1: "shared", 2: "local"}.get(address >> 56, "global")
            address &= (1 << 56) - 1
        elif space == "shared" and self.memory.find(address):
            return f"{self.memory.describe(address)}, an address of global memory,"
        return {"global": self.memory.describe, "shared": self.describe_shared}.get(
            space, lambda at: f"local{at:+d} of {self.launch.local_bytes}"
        )(address)

    def describe_shared(self, address: int) -> str:
        """ "shared+128 of 4096 (tile)": a byte of a block's shared memory, and its variable."""
        launch = self.launch
        field = address >> RANK_SHIFT
        if field == 255 and address & OFFSET > OFFSET // 2:  # 32 bits, below 0
            return self.describe_shared(address - (1 << 32))
        if 0 < field <= 255:
            rank, size = field - 1, self.clusters.size
            if rank >= size:
                return f"shared memory of block {rank} of a cluster of {size}"
            return f"{self.describe_shared(address & OFFSET)} in block {rank} of the cluster"
        text = f"shared{address:+d} of {launch.shared_bytes}"
        names = [name for name, start, size in launch.shared if start <= address < start + size]
        return f"{text} ({plain_name(names[0])})" if names else text
