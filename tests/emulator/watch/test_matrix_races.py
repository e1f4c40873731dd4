"""racecheck of a wgmma pipeline: a producer warp, the TMA, and two warpgroups that multiply."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest

from gen.emulator import (
    Emulator,
    GlobalRaces,
    LaunchReport,
    MissedPhases,
    SharedRaces,
    TensorMap,
)
from tests.emulator.emulator_kernels import compile_cuda
from tests.emulator.pipeline_kernels import HELPERS
from tests.support.slow import each

ROWS, COLUMNS, STAGES = 128, 32, 3
SUMS = ", ".join(f"%{i}" for i in range(16))
OPERANDS = ", ".join(f'"+f"(d[{i}])' for i in range(16))
# A is (128, K) and B is (32, K), both K-major; a stage is 64 along K.
KERNEL = (
    HELPERS
    + f"""
struct alignas(64) map_t {{ char bytes[128]; }};
struct Shared {{
  alignas(1024) unsigned char a[{STAGES}][{ROWS * 128}], b[{STAGES}][{COLUMNS * 128}];
  u64 full[{STAGES}], empty[{STAGES}];
}};
__device__ u64 descriptor(u32 address) {{
  return u64(address >> 4) | u64(1024 >> 4) << 32 | 1ull << 62;
}}
__device__ void copy(const void* to, const map_t& map, int k, int row, const u64* barrier) {{
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {{%2, %3}}], [%4];"
               ::"r"(at(to)), "l"(&map), "r"(k), "r"(row), "r"(at(barrier)) : "memory");
}}
__device__ void multiply(float (&d)[16], u64 a, u64 b) {{
  asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {{{SUMS}}}, "
               "%16, %17, 1, 1, 1, 0, 0;" : {OPERANDS} : "l"(a), "l"(b));
}}
extern "C" __global__ void __launch_bounds__(384) gemm(
    const __grid_constant__ map_t a_map, const __grid_constant__ map_t b_map, float* D, int K) {{
  extern __shared__ __align__(1024) unsigned char raw[];
  Shared& s = *reinterpret_cast<Shared*>(raw);
  if (threadIdx.x == 0) {{
    for (int i = 0; i < {STAGES}; ++i) {{
      init(&s.full[i], 1);
      init(&s.empty[i], 2);
    }}
    fence_init();
  }}
  __syncthreads();
  const int steps = K / 64;
  int stage = 0, phase = 0;
  if (threadIdx.x >= 256) {{
    if (threadIdx.x != 256) return;
    for (int n = 0; n < steps; ++n) {{
      wait(&s.empty[stage], phase ^ 1);
      expect(&s.full[stage], {(ROWS + COLUMNS) * 128});
      copy(s.a[stage], a_map, 64 * n, 0, &s.full[stage]);
      copy(s.b[stage], b_map, 64 * n, 0, &s.full[stage]);
      if (++stage == {STAGES}) stage = 0, phase ^= 1;
    }}
    return;
  }}
  const int group = threadIdx.x / 128;
  float d[16] = {{}};
  int before = 0;
  for (int n = 0; n < steps; ++n) {{
    wait(&s.full[stage], phase);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int k = 0; k < 4; ++k) {{
      const u64 a = descriptor(at(s.a[stage]) + group * 8192), b = descriptor(at(s.b[stage]));
      multiply(d, a + 2 * k, b + 2 * k);
    }}
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    if (n > 0 && threadIdx.x % 128 == 0) arrive(&s.empty[before]);
    before = stage;
    if (++stage == {STAGES}) stage = 0, phase ^= 1;
  }}
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int v = 0; v < 16; ++v) {{
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4 + v / 2 % 2 * 8;
    D[row * {COLUMNS} + 2 * (lane % 4) + v % 2 + v / 4 * 8] = d[v];
  }}
}}
"""
)
SHARED = STAGES * (ROWS + COLUMNS) * 128 + 16 * STAGES


@functools.cache
def operands(steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(steps)
    a, b = (rng.integers(-4, 5, (n, 64 * steps)).astype(np.float16) for n in (ROWS, COLUMNS))
    return a, b, a.astype(np.float32) @ b.astype(np.float32).T


def run(source: str, steps: int = 8, swizzle: int = 128) -> tuple[bool, LaunchReport]:
    """Whether the result is right, and what was found."""
    a, b, wanted = operands(steps)
    emulator = Emulator()
    maps = [
        TensorMap(emulator.alloc(x, n), "f16", x.shape[::-1], (2 * x.shape[1],),
                  (swizzle // 2, len(x)), swizzle=swizzle)
        for x, n in ((a, "A"), (b, "B"))
    ]  # fmt: skip
    d = emulator.alloc(np.full(wanted.shape, np.nan, np.float32), "D")
    report = emulator.launch(
        compile_cuda(source, "compute_90a"), "gemm", (1, 1, 1), (384, 1, 1),
        [*maps, d, np.int32(64 * steps)], SHARED, source.splitlines(),
        [SharedRaces(), GlobalRaces(), MissedPhases()],
    )  # fmt: skip
    return bool((emulator.read(d) == wanted).all()), report


@pytest.mark.parametrize("steps", [1, 2, 8])
def test_nothing_found(steps: int) -> None:
    right, report = run(KERNEL, steps)
    assert right
    assert not report.findings


WAIT = '    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");\n'
ARRIVE = "    if (n > 0 && threadIdx.x % 128 == 0) arrive(&s.empty[before]);\n"
FENCE = '    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");\n'
FULL = "    wait(&s.full[stage], phase);\n"
# Each thread writes a byte of B, as it was.
STORE = """    asm volatile("{\\n.reg .u32 x;\\nld.shared.u8 x, [%0];\\nst.shared.u8 [%0], x;\\n}"
                 ::"r"(at(s.b[stage] + threadIdx.x)) : "memory");
"""
MEET = '    asm volatile("bar.sync 1, 256;" ::: "memory");\n'
PLANTED = {  # what is replaced by what; steps; what is found
    "a stage handed back too early": (
        WAIT, WAIT.replace("1;", "2;"), 8,
        r"bulk copy of 16 bytes at shared\+0 of .* races with the wgmma.mma_async",
    ),
    "the stage under way handed back": (
        ARRIVE, "    if (threadIdx.x % 128 == 0) arrive(&s.empty[stage]);\n", 8,
        "bulk copy .* races with the wgmma.mma_async",
    ),
    "handed back before the wait": (
        WAIT + ARRIVE, ARRIVE + WAIT, 8, "bulk copy .* races with the wgmma.mma_async"
    ),
    "handed back by one group": (
        ARRIVE, "    if (n > 0 && threadIdx.x == 0) arrive(&s.empty[before]), "
        "arrive(&s.empty[before]);\n", 8, "bulk copy .* races with the wgmma.mma_async",
    ),
    "not waited for": (FULL, "", 2, "deadlock: 1 threads wait at the mbarrier"),
    "waited for by a thread alone": (
        FULL, f"    if (threadIdx.x % 128 == 0)\n{FULL}    __syncwarp();\n", 8,
        "wgmma.mma_async .* races with the bulk copy",
    ),
    "written without a fence": (
        FENCE, MEET + STORE + MEET + FENCE, 8,
        "may not see the store at line .*: a fence.proxy.async is missing",
    ),
    "accumulators read too early": (
        '  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");\n', "", 8,
        "is used before a wgmma.wait_group",
    ),
    "no fence": (FENCE, "", 8, "without a wgmma.fence"),
    "another swizzle": ("1ull << 62", "2ull << 62", 8, "has a swizzle of 64 bytes, the tensor map"),
}  # fmt: skip


@pytest.mark.parametrize("case", each(3, PLANTED))
def test_found(case: str) -> None:
    old, new, steps, message = PLANTED[case]
    assert old in KERNEL
    _, report = run(KERNEL.replace(old, new), steps)
    texts = [finding.message for finding in report.findings]
    assert any(re.search(message, text) for text in texts), texts


def test_a_fence_by_the_writer() -> None:
    """What threads write is seen behind their fence and a barrier."""
    fence = '    asm volatile("fence.proxy.async;" ::: "memory");\n'
    right, report = run(KERNEL.replace(FENCE, MEET + STORE + fence + MEET + FENCE))
    assert right
    found = {finding.kind for finding in report.findings}
    assert found <= {"WAR"}  # with the wgmma before, of another group


# Threads load four registers of A, and store behind the wait where the warp beside has loaded.
FROM_REGISTERS = (
    HELPERS
    + """
extern "C" __global__ void __launch_bounds__(128) kernel(float* D) {
  __shared__ alignas(1024) u32 a[512], b[256];
  for (int i = threadIdx.x; i < 512; i += 128) a[i] = b[i % 256] = 0;
  fence();
  __syncthreads();
  u32 x[4];
  for (int i = 0; i < 4; ++i) x[i] = a[4 * threadIdx.x + i];
  float d[4] = {};
  const u64 where = u64(at(b) >> 4) | 8ull << 16 | 16ull << 32;
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, "
               "{%4, %5, %6, %7}, %8, 1, 1, 1, 0;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(where));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  a[(4 * threadIdx.x + 128) % 512] = 1;
  for (int i = 0; i < 4; ++i) D[4 * threadIdx.x + i] = d[i];
}
"""
)


@pytest.mark.parametrize("waits", [True, False])
def test_fragments_have_been_loaded(waits: bool) -> None:
    """A wgmma that is done has had the registers of all four warps."""
    wait = '  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");\n'
    store = "  a[(4 * threadIdx.x + 128) % 512] = 1;\n"
    assert wait + store in FROM_REGISTERS
    source = FROM_REGISTERS if waits else FROM_REGISTERS.replace(wait + store, store + wait)
    emulator = Emulator()
    d = emulator.alloc(np.ones(512, np.float32), "D")
    report = emulator.launch(
        compile_cuda(source, "compute_90a"), "kernel", (1, 1, 1), (128, 1, 1), [d],
        observers=[SharedRaces()],
    )  # fmt: skip
    assert (emulator.read(d) == 0).all()
    assert [finding.kind for finding in report.findings] == ([] if waits else ["WAR"])
