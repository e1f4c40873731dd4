"""Kernels for clusters of blocks: helpers in CUDA, and the way to run them with all checks."""

from __future__ import annotations

from typing import Any

import numpy as np

from gen.emulator import (
    Counters,
    EarlyAccesses,
    Emulator,
    Finding,
    GlobalRaces,
    MissedPhases,
    SharedRaces,
    UninitializedReads,
)
from tests.emulator.emulator_kernels import compile_cuda
from tests.emulator.pipeline_kernels import HELPERS

# Macros, so that the lines of what they do are those of the kernels.
CLUSTER = (
    HELPERS
    + r"""
#define CLUSTER_ARRIVE asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory")
#define CLUSTER_ARRIVE_RELAXED asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory")
#define CLUSTER_WAIT asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory")
#define CLUSTER_SYNC do { CLUSTER_ARRIVE; CLUSTER_WAIT; } while (0)
#define FENCE_INIT asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory")
#define STORE_REMOTE(to, value) \
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(to), "r"(value) : "memory")
#define LOAD_REMOTE(value, from) \
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(from) : "memory")
#define ARRIVE_REMOTE(to) \
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(to) : "memory")
#define MULTICAST(s, g, bytes, bar, mask) \
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes" \
               ".multicast::cluster [%0], [%1], %2, [%3], %4;" \
               ::"r"(at(s)), "l"(g), "r"(bytes), "r"(at(bar)), "h"((short)(mask)) : "memory")
DEVICE u32 rank() { u32 r; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
DEVICE u32 ranks() { u32 r; asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(r)); return r; }
DEVICE u32 peer(const void* p, u32 r) {
  u32 a;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(a) : "r"(at(p)), "r"(r));
  return a;
}
"""
)
Size = tuple[int, int, int]


def launch(
    source: str, arrays: dict[str, np.ndarray], grid: Size, threads: int, cluster: Size | None,
    chunk_threads: int = 1 << 16, arguments: Any = (), **options: Any,
) -> tuple[list[Finding], list[np.ndarray]]:  # fmt: skip
    """The findings of `kernel` with all checks, and its arrays, the first parameters, behind it."""
    ptx = compile_cuda(source, "compute_90a")
    emulator = Emulator(chunk_threads=chunk_threads, instruction_budget=20_000_000)
    device = [emulator.alloc(array, name) for name, array in arrays.items()]
    args = [*device, *(arguments(emulator, device) if callable(arguments) else arguments)]
    observers = [
        SharedRaces(), GlobalRaces(), EarlyAccesses(), UninitializedReads(), Counters(),
        MissedPhases(),
    ]  # fmt: skip
    report = emulator.launch(
        ptx, "kernel", grid, (threads, 1, 1), args, source_lines=source.splitlines(),
        observers=observers, cluster=cluster, **options,
    )  # fmt: skip
    return report.findings, [emulator.read(array) for array in device]


def body(code: str, shared: str = "__shared__ u32 s[64]; __shared__ u64 bar;") -> str:
    """A kernel of u32* out and const u32* in, whose lines are findings' lines."""
    return f"""{CLUSTER}
extern "C" __global__ void kernel(u32* out, const u32* in) {{
{shared}
const u32 x = threadIdx.x, me = rank(), other = (me + 1) % ranks();
{code}
}}
"""


def run(
    code: str, grid: Size = (2, 1, 1), threads: int = 32, cluster: Size = (2, 1, 1),
    shared: str = "__shared__ __align__(128) u32 s[64]; __shared__ u64 bar;", **options: Any,
) -> tuple[list[Finding], np.ndarray]:  # fmt: skip
    """The findings of a kernel body, and what it has left in out, 64 words for each block."""
    blocks = int(np.prod(grid))
    arrays = {
        "out": np.zeros((blocks, 64), np.uint32), "in": np.arange(4096, dtype=np.uint32) + 100,
    }  # fmt: skip
    findings, (out, _) = launch(body(code, shared), arrays, grid, threads, cluster, **options)
    return findings, out


def clean(code: str, **options: Any) -> np.ndarray:
    """What a body without mistakes leaves in out."""
    findings, out = run(code, **options)
    assert not findings, "\n".join(map(str, findings))
    return out


def finding(code: str, **options: Any) -> Finding:
    """The only finding of a body."""
    findings, _ = run(code, **options)
    assert len(findings) == 1, "\n".join(map(str, findings))
    return findings[0]
