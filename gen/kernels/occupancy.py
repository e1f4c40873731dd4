"""How many blocks of a kernel a multiprocessor (SM) holds at the same time.

Limits per compute capability are from the CUDA C++ Programming Guide ("Technical Specifications per
Compute Capability" and "Features and Technical Specifications"), allocation units from NVIDIA's
occupancy calculator.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from gen.kernels.formulas import ceil_div, round_up
from gen.spec.arch import REGISTERS, SHARED_KIB, WARP

REGISTER_UNIT = 256  # registers are given to a warp in units of this
PARTITIONS = 4  # parts of an SM; a warp's registers are in one of them


class SmLimits(NamedTuple):
    """What one SM holds, for a compute capability."""

    warps: int
    blocks: int
    reserved: int  # bytes of shared memory that the system takes for each block
    shared_unit: int
    fp32_lanes: int  # FMAs per clock


SM_LIMITS = {
    75: SmLimits(32, 16, 0, 256, 64),
    80: SmLimits(64, 32, 1024, 128, 64),
    86: SmLimits(48, 16, 1024, 128, 128),
    89: SmLimits(48, 24, 1024, 128, 128),
    90: SmLimits(64, 32, 1024, 128, 128),
    100: SmLimits(64, 32, 1024, 128, 128),
    120: SmLimits(48, 24, 1024, 128, 128),
}


@lru_cache(maxsize=64)
def limits_of(capability: int) -> SmLimits:
    """Of a compute capability; of one that is not in the table, those of the one before it."""
    return SM_LIMITS[max(cc for cc in SM_LIMITS if cc <= capability)]


@dataclass(frozen=True)
class Occupancy:
    """How many blocks of a kernel an SM holds at a time, and why not more.

    `limits` has the blocks that each resource would allow; `limited_by` are those that allow the
    fewest.
    """

    blocks: int
    warps: int
    max_warps: int
    limits: dict[str, int]

    @property
    def limited_by(self) -> list[str]:
        """The resources that run out first."""
        return [name for name, blocks in self.limits.items() if blocks == self.blocks]

    @property
    def fraction(self) -> float:
        """Warps that an SM holds of those that it could."""
        return self.warps / self.max_warps


def blocks_by_registers(warps: int, registers: int) -> int:
    """Blocks of so many warps that an SM has registers for, with `registers` (not 0) a thread."""
    unit = round_up(registers * WARP, REGISTER_UNIT)
    resident = REGISTERS // PARTITIONS // unit * PARTITIONS
    return resident // round_up(warps, PARTITIONS)


@lru_cache(maxsize=4096)
def occupancy(capability: int, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """Blocks per SM for a kernel with `registers` a thread and `shared_bytes` a block.

    `shared_bytes` counts static and dynamic shared memory. 0 blocks: the kernel cannot be launched.
    """
    sm = limits_of(capability)
    warps = ceil_div(threads, WARP)
    limits = {"warps": sm.warps // warps, "blocks": sm.blocks}
    if registers:
        limits["registers"] = blocks_by_registers(warps, registers)
    most = SHARED_KIB[capability] * 1024  # for a block, which then has all that an SM has
    shared = round_up(shared_bytes + sm.reserved, sm.shared_unit)
    if shared_bytes > most:
        limits["shared memory"] = 0
    elif shared:
        limits["shared memory"] = (most + sm.reserved) // shared
    blocks = min(limits.values())
    return Occupancy(blocks, blocks * warps, sm.warps, limits)
