"""GPU architectures: their compute capability, the shared memory of a block, multiprocessors."""

from __future__ import annotations

import re

from gen.errors import UsageError

# Compute capability -> shared memory a block may have, in KiB (CUDA C++ Programming Guide,
# "Technical Specifications per Compute Capability"). CUDA 13 compiles for these.
SHARED_KIB = {
    75: 64, 80: 163, 86: 99, 87: 163, 88: 99, 89: 99, 90: 227,
    100: 227, 103: 227, 110: 227, 120: 99, 121: 99,
}  # fmt: skip

# Of the GPU that is planned for where there is none: an H100's, H200's.
MULTIPROCESSORS = 132


def compute_capability(arch: str) -> int:
    """`sm_90a` -> 90. Raises UsageError for what is no architecture that CUDA 13 compiles for."""
    match = re.fullmatch(r"sm_(\d+)([af]?)", arch)
    if not match or int(match[1]) not in SHARED_KIB or (match[2] and int(match[1]) < 90):
        own = {90: ", sm_90a"}  # with the instructions that newer GPUs lack
        known = ", ".join(f"sm_{cc}{own.get(cc, '')}" for cc in SHARED_KIB)
        raise UsageError(f"unknown architecture '{arch}'; use one of {known}")
    return int(match[1])
