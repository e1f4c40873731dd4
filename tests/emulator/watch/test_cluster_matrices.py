"""racecheck of a wgmma pipeline in a cluster of two, whose blocks fetch halves of B for both."""

from __future__ import annotations

import numpy as np
import pytest

from gen.emulator import Emulator, Finding, GlobalRaces, MissedPhases, SharedRaces, TensorMap
from tests.emulator.emulator_kernels import compile_cuda
from tests.emulator.watch.test_matrix_races import COLUMNS, KERNEL, ROWS, SHARED

SYNC = (
    'asm volatile("barrier.cluster.arrive.release.aligned;\\nbarrier.cluster.wait.acquire.aligned;"'
    ' ::: "memory");'
)
HALVES = r"""
__device__ u32 rank() { u32 r; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ void copy_half(void* to, const map_t& map, int k, int row, const u64* barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
               ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;"
               ::"r"(at(to)), "l"(&map), "r"(k), "r"(row), "r"(at(barrier)), "h"((short)3)
               : "memory");
}
__device__ void arrive_at(u64* b, u32 r) {
  asm volatile("{.reg .b32 a;\nmapa.shared::cluster.u32 a, %0, %1;\n"
               "mbarrier.arrive.shared::cluster.b64 _, [a];}" ::"r"(at(b)), "r"(r) : "memory");
}
"""
END = "  for (int v = 0; v < 16; ++v) {\n    const int lane"
CHANGES = (
    ('extern "C"', HALVES + 'extern "C"'),
    ("init(&s.empty[i], 2);", "init(&s.empty[i], 4);"),
    ("  __syncthreads();", "  " + SYNC),
    ("a_map, 64 * n, 0,", "a_map, 64 * n, 128 * rank(),"),
    ("copy(s.b[stage], b_map, 64 * n, 0,",
     "copy_half(s.b[stage] + rank() * 2048, b_map, 64 * n, 16 * rank(),"),
    ("arrive(&s.empty[before]);", "for (u32 r = 0; r < 2; ++r) arrive_at(&s.empty[before], r);"),
    (END, f"  D += rank() * {ROWS * COLUMNS};\n  {SYNC}\n{END}"),
)  # fmt: skip


def kernel() -> str:
    source = KERNEL
    for old, new in CHANGES:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return source


def run(source: str, clusters: int = 2, steps: int = 6) -> tuple[bool, list[Finding]]:
    """Whether the result is right, and what was found; each cluster computes the same product."""
    rng = np.random.default_rng(steps)
    a, b = (rng.integers(-4, 5, (n, 64 * steps)).astype(np.float16) for n in (2 * ROWS, COLUMNS))
    wanted = a.astype(np.float32) @ b.astype(np.float32).T
    source = source.replace("D += rank()", f"D += blockIdx.x / 2 * {wanted.size} + rank()")
    emulator = Emulator()
    maps = [
        TensorMap(emulator.alloc(x, n), "f16", x.shape[::-1], (2 * x.shape[1],), (64, rows),
                  swizzle=128)
        for x, n, rows in ((a, "A", ROWS), (b, "B", COLUMNS // 2))
    ]  # fmt: skip
    d = emulator.alloc(np.full((clusters, *wanted.shape), np.nan, np.float32), "D")
    report = emulator.launch(
        compile_cuda(source, "compute_90a"), "gemm", (2 * clusters, 1, 1), (384, 1, 1),
        [*maps, d, np.int32(64 * steps)], SHARED, source.splitlines(),
        [SharedRaces(), GlobalRaces(), MissedPhases()], cluster=(2, 1, 1),
    )  # fmt: skip
    return bool((emulator.read(d) == wanted).all()), report.findings


def test_nothing_found() -> None:
    right, findings = run(kernel())
    assert not findings, "\n".join(map(str, findings))
    assert right


@pytest.mark.parametrize(
    ("old", "new", "check", "message"),
    [
        ("&s.empty[before], r);", "&s.empty[before], rank());", "racecheck", "wgmma.mma_async"),
        ("r < 2; ++r) arrive_at", "r < 1; ++r) arrive_at", "synccheck", "lacks"),
        ('"h"((short)3)', '"h"((short)1)', "synccheck", "bytes"),
        ('"h"((short)3)', '"h"((short)7)', "memcheck", "names block 2 of a cluster of 2"),
        (
            "  " + SYNC + "\n  const int steps",
            "  __syncthreads();\n  const int steps",
            "racecheck",
            "mbarrier.init",
        ),
    ],
)
def test_mistakes(old: str, new: str, check: str, message: str) -> None:
    source = kernel()
    assert old in source
    _, findings = run(source.replace(old, new))
    found = [f for f in findings if f.check == check and message in f.message]
    assert found, "\n".join(map(str, findings))
