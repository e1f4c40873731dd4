"""GPU architectures: their compute capability, and the limits that kernels are made for."""

from __future__ import annotations

import re
from functools import lru_cache

from gen.errors import UsageError

# Compute capability -> shared memory a block may have, in KiB (CUDA C++ Programming Guide,
# "Technical Specifications per Compute Capability"). CUDA 13 compiles for these.
SHARED_KIB = {
    75: 64, 80: 163, 86: 99, 87: 163, 88: 99, 89: 99, 90: 227,
    100: 227, 103: 227, 110: 227, 120: 99, 121: 99,
}  # fmt: skip

# Of every one of them (same source).
WARP = 32  # threads
UNIT = 16  # bytes: the most that a thread moves at once, from and to multiples of them
SECTOR = 32  # bytes: the least that memory moves
REGISTERS, MOST_REGISTERS = 65_536, 255  # of 32 bits, of a multiprocessor; of a thread at most
STATIC_SHARED = 48 * 1024  # bytes of shared memory that a block has unasked
BANKS = 128  # bytes that shared memory moves in a clock of a multiprocessor
MAX_GRID_X, MAX_GRID_YZ = 2**31 - 1, 65_535  # blocks of a grid along x; along y and z

# Of the GPU that is planned for where there is none: an H100's, H200's.
MULTIPROCESSORS = 132


@lru_cache(maxsize=256)
def compute_capability(arch: str) -> int:
    """`sm_90a` -> 90. Raises UsageError for what is no architecture that CUDA 13 compiles for."""
    match = re.fullmatch(r"sm_(\d+)([af]?)", arch)
    if not match or int(match[1]) not in SHARED_KIB or (match[2] and int(match[1]) < 90):
        own = {90: ", sm_90a"}  # with the instructions that newer GPUs lack
        known = ", ".join(f"sm_{cc}{own.get(cc, '')}" for cc in SHARED_KIB)
        raise UsageError(f"unknown architecture '{arch}'; use one of {known}")
    return int(match[1])


def last_capability(arch: str, ptx: bool = False) -> int | None:
    """The last compute capability that runs an architecture's code; None where there is no last.

    Machine code runs on what has the same major number, and no older minor number. A driver
    compiles PTX for all that is newer. sm_90a is for 9.0 alone, sm_100f for 10.x.
    """
    cc = compute_capability(arch)
    if arch.endswith("a"):
        return cc
    return None if ptx and not arch.endswith("f") else cc // 10 * 10 + 9


def only_capability(arch: str) -> str:
    """What PTX for an architecture is for where newer GPUs do not run it: "9.0", "10.x"; or ""."""
    last = last_capability(arch, ptx=True)
    minor = "x" if arch.endswith("f") else compute_capability(arch) % 10
    return f"{last // 10}.{minor}" if last else ""
