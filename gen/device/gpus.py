"""GPUs by name: what an SM holds, how fast it is, and how many blocks of a kernel fit.

Limits per compute capability are from the CUDA C++ Programming Guide ("Technical Specifications per
Compute Capability" and "Features and Technical Specifications"), allocation units from NVIDIA's
occupancy calculator, peaks and L2 caches from NVIDIA's data sheets and architecture white papers:
dense, at boost clock, for f16 with f32 sums.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from gen.errors import unknown
from gen.kernels.formulas import round_up
from gen.spec.arch import REGISTERS, SHARED_KIB, WARP

REGISTER_UNIT = 256  # registers are given to a warp in units of this
PARTITIONS = 4  # parts of an SM; a warp's registers are in one of them


def own_arch(capability: int) -> str:
    """The architecture of a compute capability, with the features that only it has: `sm_90a`."""
    return f"sm_{capability}" + ("a" if capability >= 90 else "")


class SmLimits(NamedTuple):
    """What one SM holds, for a compute capability."""

    warps: int
    blocks: int
    shared_kib: int  # for all blocks
    reserved: int  # bytes of shared memory that the system takes for each block
    shared_unit: int
    fp32_lanes: int  # FMAs per clock


SM_LIMITS = {
    75: SmLimits(32, 16, 64, 0, 256, 64),
    80: SmLimits(64, 32, 164, 1024, 128, 64),
    86: SmLimits(48, 16, 100, 1024, 128, 128),
    89: SmLimits(48, 24, 100, 1024, 128, 128),
    90: SmLimits(64, 32, 228, 1024, 128, 128),
    100: SmLimits(64, 32, 228, 1024, 128, 128),
    120: SmLimits(48, 24, 100, 1024, 128, 128),
}


@dataclass(frozen=True)
class GpuModel:
    """A GPU as its data sheet has it.

    Peaks are in TFLOP/s (`tensor`: f16 on the tensor cores), and in GB/s of device memory. `l2` is
    the L2 cache in MiB. halved: whether sums in f32 halve the rate of the tensor cores (GeForce).
    mma: the share of `tensor` that mma.sync can reach. It is 1 but where the peak is that of newer
    instructions: on Hopper as measured (docs/lab/bench.md), on Blackwell's B200 an assumption, that
    a multiprocessor does as much in a clock as Hopper's. device: what the driver calls a GPU that
    is none of these, and counts as this one.
    """

    name: str
    title: str
    capability: int
    sms: int
    fp32: float
    fp64: float
    tensor: float
    bandwidth: float
    l2: float
    halved: bool = False
    mma: float = 1
    device: str = ""

    def __hash__(self) -> int:
        return hash((self.name, self.sms, self.device))

    @property
    def key(self) -> str:
        """Its name among measured times: `h200`, `h200-66sm` for a half, `nvidia-a800-108sm`."""
        name = re.sub(r"[^a-z0-9]+", "-", self.device.lower()).strip("-") or self.name
        whole = GPUS.get(name)
        return name if whole and whole.sms == self.sms else f"{name}-{self.sms}sm"

    @property
    def called(self) -> str:
        """Its title, or what the driver calls it."""
        return f"{self.device}, taken for {self.title}" if self.device else self.title

    @property
    def arch(self) -> str:
        """What kernels are written for."""
        return f"sm_{self.capability}"

    @property
    def own_arch(self) -> str:
        """What to compile for: with the features that only this generation has (`sm_90a`)."""
        return own_arch(self.capability)

    @property
    def clock(self) -> float:
        """GHz: the boost clock, of which the peak of f32 is that of two operations a lane."""
        return self.fp32 * 1e3 / (2 * self.sms * self.limits.fp32_lanes)

    @property
    def fp64_tensor(self) -> float:
        """TFLOP/s of f64 on tensor cores: twice as many where CUDA cores have many, too."""
        return self.fp64 * (2 if self.capability in (80, 90) else 1)

    @property
    def limits(self) -> SmLimits:
        """Limits of one SM."""
        return SM_LIMITS[self.capability]


HOPPER_MMA, BLACKWELL_MMA = 0.655, 0.32  # see GpuModel.mma

GPUS = {
    gpu.name: gpu
    for gpu in (
        GpuModel("h200", "H200 SXM 141 GB", 90, 132, 66.9, 33.5, 989, 4800, 50, mma=HOPPER_MMA),
        GpuModel("h100", "H100 SXM 80 GB", 90, 132, 66.9, 33.5, 989, 3350, 50, mma=HOPPER_MMA),
        GpuModel("b200", "B200 SXM 180 GB", 100, 148, 75, 37, 2250, 8000, 126, mma=BLACKWELL_MMA),
        GpuModel("a100", "A100 SXM 80 GB", 80, 108, 19.5, 9.7, 312, 2039, 40),
        GpuModel("l40s", "L40S 48 GB", 89, 142, 91.6, 1.43, 362, 864, 96),
        GpuModel("l4", "L4 24 GB", 89, 58, 30.3, 0.47, 121, 300, 48),
        GpuModel("a10", "A10 24 GB", 86, 72, 31.2, 0.49, 125, 600, 6),
        GpuModel("t4", "T4 16 GB", 75, 40, 8.1, 0.25, 65, 320, 4),
        GpuModel("rtx5090", "GeForce RTX 5090 32 GB", 120, 170, 104.8, 1.64, 209.5, 1792, 96, True),
        GpuModel("rtx4090", "GeForce RTX 4090 24 GB", 89, 128, 82.6, 1.29, 165.2, 1008, 72, True),
        GpuModel("rtx3090", "GeForce RTX 3090 24 GB", 86, 82, 35.6, 0.56, 71, 936, 6, True),
        GpuModel("rtx3060", "GeForce RTX 3060 12 GB", 86, 28, 12.7, 0.2, 25.5, 360, 3, True),
        GpuModel(
            "rtx3060-laptop", "GeForce RTX 3060 Laptop 6 GB", 86, 30, 13.1, 0.2, 26, 336, 3, True
        ),
    )
}


def find_gpu(name: str) -> GpuModel:
    """The GPU called `name`. Raises UsageError."""
    if name.lower() not in GPUS:
        raise unknown("GPU", name, GPUS)
    return GPUS[name.lower()]


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


def occupancy(gpu: GpuModel, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """Blocks per SM for a kernel with `registers` a thread and `shared_bytes` a block.

    `shared_bytes` counts static and dynamic shared memory. 0 blocks: the kernel cannot be launched.
    """
    sm = gpu.limits
    warps = -(-threads // WARP)
    limits = {"warps": sm.warps // warps, "blocks": sm.blocks}
    if registers:
        limits["registers"] = blocks_by_registers(warps, registers)
    shared = round_up(shared_bytes + sm.reserved, sm.shared_unit)
    if shared_bytes > SHARED_KIB[gpu.capability] * 1024:
        limits["shared memory"] = 0
    elif shared:
        limits["shared memory"] = sm.shared_kib * 1024 // shared
    blocks = min(limits.values())
    return Occupancy(blocks, blocks * warps, sm.warps, limits)
