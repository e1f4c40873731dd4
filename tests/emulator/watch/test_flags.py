"""What locks, flags and tickets in shared memory order, and what nothing does."""

from __future__ import annotations

import numpy as np
import pytest

from gen.emulator import Emulator, SharedRaces
from tests.emulator.emulator_kernels import compile_cuda
from tests.support.slow import each

THREADS = 96
_HEAD = """
extern "C" __global__ void kernel(int* out) {
  const int t = threadIdx.x, lane = t % 32;
"""
# A lock of all threads, which a spinning warp hands on; then one by a single thread of each warp.
LOCK = """
  __shared__ int mutex, sum;
  if (t == 0) mutex = sum = 0;
  __syncthreads();
  for (bool done = false; !done;) {
    if (atomicCAS(&mutex, 0, 1) == 0) {
      sum += t;
      __threadfence_block();
      atomicExch(&mutex, 0);
      done = true;
    }
  }
  __syncthreads();
  out[t] = sum;
"""
# The first warp hands its values on to the others.
FLAG = """
  __shared__ int data[32];
  __shared__ volatile int flag;
  if (t == 0) flag = 0;
  __syncthreads();
  if (t < 32) {
    data[t] = t;
    __syncwarp();
    __threadfence_block();
    if (t == 0) flag = 1;
  } else {
    while (flag == 0) {}
    __threadfence_block();
    out[t] = data[31 - lane];
  }
"""
# Warp 0 and warp 1 take turns, four times.
TURNS = """
  __shared__ int data[32];
  __shared__ volatile int full;
  if (t == 0) full = 0;
  __syncthreads();
  for (int i = 0; i < 4 && t < 64; ++i) {
    const int mine = t < 32 ? 0 : 1;
    while (full != mine) {}
    __threadfence_block();
    __syncwarp();
    if (mine) out[t] = data[31 - lane];
    else data[lane] = i;
    __syncwarp();
    __threadfence_block();
    if (lane == 0) full = 1 - mine;
    __syncwarp();
  }
"""
# The last warp to come adds up what all have left there.
TICKET = """
  __shared__ int part[3];
  __shared__ unsigned count;
  if (t == 0) count = 0;
  __syncthreads();
  if (lane == 0) {
    part[t / 32] = t;
    __threadfence_block();
    if (atomicAdd(&count, 1) == 2) out[0] = part[0] + part[1] + part[2];
  }
"""
ORDERED = """
  __shared__ int data[32];
  __shared__ int flag;
  const auto at = (unsigned)__cvta_generic_to_shared(&flag);
  if (t == 0) flag = 0;
  __syncthreads();
  if (t < 32) {
    data[t] = t;
    asm volatile("red.release.cta.shared.add.s32 [%0], 1;" ::"r"(at) : "memory");
  } else {
    for (int seen = 0; seen != 32;)
      asm volatile("ld.acquire.cta.shared.s32 %0, [%1];" : "=r"(seen) : "r"(at) : "memory");
    out[t] = data[31 - lane];
  }
"""


def races(body: str) -> set[str]:
    """The kinds of the races that are found."""
    emulator = Emulator()
    out = emulator.alloc(np.zeros(2 * THREADS, np.int32), "out")
    report = emulator.launch(
        compile_cuda(_HEAD + body + "}\n"), "kernel", (2, 1, 1), (THREADS, 1, 1), [out],
        observers=[SharedRaces()],
    )  # fmt: skip
    assert all(finding.check == "racecheck" for finding in report.findings)
    return {finding.kind for finding in report.findings}


@pytest.mark.parametrize("body", [LOCK, FLAG, TURNS, TICKET, ORDERED])
def test_what_is_shown_and_seen_is_ordered(body: str) -> None:
    assert races(body) == set()


@pytest.mark.parametrize(
    ("body", "old", "new"),
    each(
        2,
        [
            (LOCK, "__threadfence_block();", ""),
            (LOCK, "atomicExch(&mutex, 0)", "mutex = 0"),
            (LOCK, "done = true;", "done = true, sum += t;"),  # which is not guarded any more
            (FLAG, "__syncwarp();", ""),
            (FLAG, "__threadfence_block();\n    if", "if"),
            (FLAG, "while (flag == 0) {}\n    __threadfence_block();", "while (flag == 0) {}"),
            (TURNS, "__threadfence_block();\n    __syncwarp();\n    if (mine)", "if (mine)"),
            (TURNS, "    __syncwarp();\n    __threadfence_block();\n    if (lane", "    if (lane"),
            (TICKET, "__threadfence_block();", ""),
            (TICKET, "== 2", "== 1"),
            (ORDERED, "red.release", "red.relaxed"),
            (ORDERED, "ld.acquire", "ld.relaxed"),
        ],
    ),
)
def test_what_nothing_orders(body: str, old: str, new: str) -> None:
    assert body.count(old) == 1
    assert races(body.replace(old, new))


def test_what_is_volatile_and_no_flag_races() -> None:
    """The lanes of a warp read each other's sums without `__syncwarp`."""
    body = """
  __shared__ volatile int sums[96];
  sums[t] = t;
  __syncthreads();
  if (t < 16)
    for (int half = 16; half > 0; half /= 2) sums[t] += sums[t + half];
  out[t] = sums[0];
"""
    assert {"RAW", "WAR"} <= races(body)
