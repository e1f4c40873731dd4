"""The sizes that a launch may have: of its grid, blocks and clusters."""

from __future__ import annotations

import math

from gen.emulator.ptx.module import PtxKernel
from gen.emulator.warp.masks import Coordinates
from gen.errors import UsageError

MAX_THREADS = 1024  # per block
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_CLUSTER = 8  # blocks; 16 are not portable


def check_geometry(kernel: PtxKernel, grid: Coordinates, block: Coordinates) -> None:
    """Raises UsageError for grids and blocks that no GPU takes, or not for this kernel."""
    limits = kernel.max_threads
    for what, dims, most in (("grid", grid, MAX_GRID), ("block", block, MAX_BLOCK)):
        least = 0 if what == "grid" else 1
        if len(dims) != 3 or any(not least <= n <= top for n, top in zip(dims, most, strict=True)):
            raise UsageError(
                f"{what} {tuple(dims)} is not three sizes from {least} to {most}; use such sizes"
            )
    threads = math.prod(block)
    if threads > MAX_THREADS:
        raise UsageError(
            f"a block of {block} has {threads} threads; at most {MAX_THREADS} are possible, use a "
            "smaller block"
        )
    if limits and threads > math.prod(limits):
        raise UsageError(
            f"a block of {block} has {threads} threads, but '{kernel.name}' was compiled for "
            f"at most {math.prod(limits)} (__launch_bounds__); use a smaller block"
        )


def cluster_of(kernel: PtxKernel, grid: Coordinates, asked: Coordinates | None) -> Coordinates:
    """Blocks of a cluster along each axis, as the kernel declares or the launch asks for."""
    declared, name = kernel.cluster, f"kernel '{kernel.name}'"
    if asked is not None and (len(asked) != 3 or any(n < 1 for n in asked)):
        raise UsageError(f"cluster {tuple(asked)} is not three sizes of 1 or more")
    if asked and declared and tuple(asked) != declared:
        raise UsageError(
            f"{name} declares clusters of {declared} blocks (__cluster_dims__), and the launch "
            f"asks for {tuple(asked)}; leave it to the kernel"
        )
    cluster = asked or declared
    if cluster is None:
        if kernel.explicit_cluster:
            raise UsageError(f"{name} is launched with a cluster (.explicitcluster); give its size")
        return 1, 1, 1
    blocks, most = math.prod(cluster), min(kernel.max_cluster_rank or MAX_CLUSTER, MAX_CLUSTER)
    if blocks > most:
        raise UsageError(
            f"a cluster of {tuple(cluster)} has {blocks} blocks; {name} may have at most {most} "
            "(nonportable sizes are not modelled)"
        )
    if any(n % c for n, c in zip(grid, cluster, strict=True)):
        raise UsageError(
            f"grid {tuple(grid)} is no multiple of the cluster {tuple(cluster)} of {name}; "
            "round it up to one"
        )
    return cluster
