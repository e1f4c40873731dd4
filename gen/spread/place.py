"""What a worker is and runs on, and why it may not take part in a job."""

from __future__ import annotations

import hashlib
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gen._version import __version__
from gen.errors import MissingError
from gen.requirements import cuda_core


class Place(NamedTuple):
    """What kernels run on: the emulator, which runs code for any architecture, or a GPU."""

    name: str
    arch: str = ""  # a GPU's own
    driver: str = ""
    uuid: str = ""

    @property
    def finds_reads(self) -> bool:
        """See Runner."""
        return not self.arch

    def target(self, arch: str) -> str:
        """See Runner."""
        return self.arch or arch


class Worker(NamedTuple):
    """What a process says of itself. `why_no_gpu` is the reason, if it should have one."""

    gen: str
    python: str
    nvrtc: str
    place: Place
    why_no_gpu: str = ""


@cache
def gen_version() -> str:
    """The version and the first digits of the files' SHA-256, in which checkouts differ."""
    from gen.source.templates import template_dir

    digest = hashlib.sha256()
    for folder, pattern in ((Path(__file__).parent.parent, "*.py"), (template_dir(), "*.*")):
        for path in sorted(folder.rglob(pattern)):
            digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return f"{__version__} ({digest.hexdigest()[:8]})"


def python_version() -> str:
    """Such as 3.12: what another one pickles may mean something else."""
    return "{}.{}".format(*sys.version_info)


def place_of(device: str) -> tuple[Place, str]:
    """What a device means in this process, and why it is the emulator, if nobody asked for that.

    Raises as `why_emulator`.
    """
    from gen.device import driver
    from gen.device.choose import why_emulator
    from gen.device.emulated import EmulatorRunner

    reason = why_emulator(device)
    if reason is not None:
        return Place(EmulatorRunner.name), reason
    from gen.device.gpus import own_arch

    gpu = cuda_core().Device(0)  # which is not started
    major, minor = gpu.compute_capability
    arch = own_arch(10 * major + minor)
    return Place(gpu.name, arch, driver.driver_version(), str(gpu.uuid)), ""


def here(device: str) -> Worker:
    """What this process is, for kernels on a device: auto or cpu."""
    from gen.compile.nvrtc import nvrtc_version

    try:
        nvrtc = ".".join(map(str, nvrtc_version()))
    except MissingError:
        nvrtc = "none"
    return Worker(gen_version(), python_version(), nvrtc, *place_of(device))


def difference(one: Worker, other: Worker) -> str:
    """What of one worker is another in the other one, if that matters: "Python 3.10, not 3.12"."""
    for what, theirs, ours in (
        ("gemmgen", one.gen, other.gen),
        ("Python", one.python, other.python),
        ("NVRTC", one.nvrtc, other.nvrtc),
        ("the device", one.place.name, other.place.name),
        ("the driver", one.place.driver, other.place.driver),
    ):
        if theirs != ours:
            return f"{what} {theirs}, not {ours}"
    return ""
