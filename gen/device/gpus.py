"""GPUs by name: how many multiprocessors they have, and how fast these are.

Peaks and L2 caches are from NVIDIA's data sheets and architecture white papers: dense, at boost
clock, for f16 with f32 sums.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gen.errors import unknown
from gen.kernels.occupancy import SmLimits, limits_of


def own_arch(capability: int) -> str:
    """The architecture of a compute capability, with the features that only it has: `sm_90a`."""
    return f"sm_{capability}" + ("a" if capability >= 90 else "")


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
        return limits_of(self.capability)


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
