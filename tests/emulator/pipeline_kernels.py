"""Warp-specialised copies: one warp fetches tiles, another one writes them out, in a ring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gen.emulator import (
    EarlyAccesses,
    Emulator,
    GlobalRaces,
    LaunchReport,
    MissedPhases,
    SharedRaces,
    TensorMap,
    UninitializedReads,
)
from tests.emulator.emulator_kernels import compile_cuda

STAGES = 3
HELPERS = r"""
using u32 = unsigned;
using u64 = unsigned long long;
#define DEVICE __device__ __forceinline__
struct alignas(64) Map { char bytes[128]; };
DEVICE u32 at(const void* p) { return (u32)__cvta_generic_to_shared(p); }
DEVICE void init(u64* b, u32 n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(b)), "r"(n) : "memory");
}
DEVICE void arrive(u64* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(b)) : "memory");
}
DEVICE void expect(u64* b, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(b)), "r"(bytes)
               : "memory");
}
#if __CUDA_ARCH__ >= 900
#define LOOK "mbarrier.try_wait"
#else
#define LOOK "mbarrier.test_wait"
#endif
DEVICE void wait(u64* b, u32 parity) {
  asm volatile("{\n.reg .pred P1;\nLAB_WAIT:\n"
               LOOK ".parity.shared::cta.b64 P1, [%0], %1;\n@P1 bra DONE;\n"
               "bra LAB_WAIT;\nDONE:\n}" ::"r"(at(b)), "r"(parity) : "memory");
}
DEVICE void copy(void* s, const void* g) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at(s)), "l"(g) : "memory");
}
DEVICE void signal(u64* b) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(at(b)) : "memory");
}
DEVICE void bulk(void* s, const void* g, u32 bytes, u64* b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1], %2, [%3];" ::"r"(at(s)), "l"(g), "r"(bytes), "r"(at(b)) : "memory");
}
DEVICE void bulk_out(void* g, const void* s, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
               ::"l"(g), "r"(at(s)), "r"(bytes) : "memory");
}
DEVICE void tensor(void* s, const Map* m, int x, int y, u64* b) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
               ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;"
               ::"r"(at(s)), "l"(m), "r"(at(b)), "r"(x), "r"(y), "l"(0x14F0000000000000ull)
               : "memory");
}
DEVICE void tensor_out(const Map* m, int x, int y, const void* s) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];"
               ::"l"(m), "r"(at(s)), "r"(x), "r"(y) : "memory");
}
DEVICE void commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
DEVICE void drain() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
#if __CUDA_ARCH__ >= 900
DEVICE void fence_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
#endif
DEVICE void fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
"""

# The stages of one block: 512 bytes each, of 32 times 4 ints.
CP_ASYNC = (
    HELPERS
    + r"""
constexpr int kStages = 3;
extern "C" __global__ void kernel(const int4* in, int4* out, int steps) {
  __shared__ __align__(128) int4 tile[kStages][32];
  __shared__ u64 full[kStages], empty[kStages];
  const int x = threadIdx.x, lane = x % 32;
  in += blockIdx.x * steps * 32;
  out += blockIdx.x * steps * 32;
  if (x == 0)
    for (int i = 0; i < kStages; ++i) {
      init(full + i, 32);
      init(empty + i, 32);
    }
  __syncthreads();
  if (x < 32) {
    for (int i = 0; i < steps; ++i) {
      wait(empty + i % kStages, i / kStages % 2 ^ 1);
      copy(&tile[i % kStages][lane], in + i * 32 + lane);
      signal(full + i % kStages);
    }
  } else {
    for (int i = 0; i < steps; ++i) {
      wait(full + i % kStages, i / kStages % 2);
      out[i * 32 + lane] = tile[i % kStages][31 - lane];
      arrive(empty + i % kStages);
    }
  }
}
"""
)

# The same with one lane that starts copies of whole tiles.
BULK = (
    CP_ASYNC.replace("init(full + i, 32)", "init(full + i, 1)")
    .replace("  __syncthreads();", "  if (x == 0) fence_init();\n  __syncthreads();")
    .replace("  if (x < 32) {", "  if (x == 0) {")
    .replace("} else {", "} else if (x >= 32) {")
    .replace("      copy(&tile[i % kStages][lane], in + i * 32 + lane);\n", "")
    .replace(
        "signal(full + i % kStages);",
        "expect(full + i % kStages, 512);\n"
        "      bulk(tile[i % kStages], in + i * 32, 512, full + i % kStages);",
    )
)

# Tiles of 8 rows of 64 f16, each row a swizzled line of 128 bytes; copied to another matrix.
TENSOR = (
    HELPERS
    + r"""
constexpr int kStages = 3;
extern "C" __global__ void kernel(const __grid_constant__ Map in, const __grid_constant__ Map out,
                                  int steps) {
  __shared__ __align__(1024) uint4 tile[kStages][8][8];
  __shared__ __align__(128) uint4 result[8][8];
  __shared__ u64 full[kStages], empty[kStages];
  const int x = threadIdx.x, row = x % 32 / 4;
  if (x == 0) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&in) : "memory");
    for (int i = 0; i < kStages; ++i) {
      init(full + i, 1);
      init(empty + i, 32);
    }
    fence_init();
  }
  __syncthreads();
  if (x < 32) {
    if (x == 0)
      for (int i = 0; i < steps; ++i) {
        wait(empty + i % kStages, i / kStages % 2 ^ 1);
        expect(full + i % kStages, 1024);
        tensor(tile[i % kStages], &in, 64 * i, 8 * blockIdx.x, full + i % kStages);
      }
  } else {
    for (int i = 0; i < steps; ++i) {
      wait(full + i % kStages, i / kStages % 2);
      for (int c = x % 4; c < 8; c += 4) result[row][c] = tile[i % kStages][row][c ^ row];
      fence();
      __syncwarp();
      if (x == 32) {
        tensor_out(&out, 64 * i, 8 * blockIdx.x, result);
        commit();
        drain();
      }
      __syncwarp();
      arrive(empty + i % kStages);
    }
  }
}
"""
)


@dataclass(frozen=True)
class Result:
    """Whether the copy is right, and what the launch found."""

    right: bool
    report: LaunchReport

    @property
    def kinds(self) -> set[str]:
        """The checks that found something, "RAW", "WAR" or "WAW" for racecheck."""
        return {finding.kind or finding.check for finding in self.report.findings}


def launch(
    source: str, arch: str, blocks: int, args: list[Any], emulator: Emulator
) -> LaunchReport:  # fmt: skip
    """Run a kernel with all checks."""
    return emulator.launch(
        compile_cuda(source, arch), "kernel", (blocks, 1, 1), (64, 1, 1), args,
        source_lines=source.splitlines(),
        observers=[
            SharedRaces(), GlobalRaces(), EarlyAccesses(), UninitializedReads(), MissedPhases(),
        ],
    )  # fmt: skip


def run_copy(source: str, arch: str = "compute_80", steps: int = 8, blocks: int = 2) -> Result:
    """Launch CP_ASYNC or BULK, changed or not."""
    emulator = Emulator()
    values = np.arange(blocks * steps * 128, dtype=np.int32)
    into = emulator.alloc(values, "in")
    out = emulator.alloc(np.zeros_like(values), "out", defined=False)
    report = launch(source, arch, blocks, [into, out, np.int32(steps)], emulator)
    expected = values.reshape(-1, 32, 4)[:, ::-1].ravel()
    return Result(bool((emulator.read(out) == expected).all()), report)


def run_tensor(source: str = TENSOR, steps: int = 5, rows: int = 21, columns: int = 296) -> Result:
    """Launch TENSOR, changed or not, on a matrix whose last tiles are partly outside."""
    emulator, pitch = Emulator(), 320
    values = np.arange(rows * pitch, dtype=np.float16).reshape(rows, pitch)
    into = emulator.alloc(values, "in")
    out = emulator.alloc(np.full((rows, pitch), -1, np.float16), "out", defined=False)
    source_map = TensorMap(into, "f16", (columns, rows), (2 * pitch,), (64, 8), swizzle=128)
    target_map = TensorMap(out, "f16", (columns, rows), (2 * pitch,), (64, 8))
    report = launch(source, "compute_90a", 3, [source_map, target_map, np.int32(steps)], emulator)
    expected = np.full((rows, pitch), -1, np.float16)
    expected[:, :columns] = values[:, :columns]
    return Result(bool((emulator.read(out) == expected).all()), report)
