"""Divergence, loops and barriers: threads of a block that take different ways."""

from __future__ import annotations

import numpy as np
import pytest

from gen.emulator import Emulator, LaunchReport
from gen.errors import CheckError
from tests.emulator.emulator_kernels import compile_cuda


def run(
    body: str,
    threads: int = 64,
    blocks: int = 3,
    parameters: str = "int* out",
    shared: int = 0,
    **options: int,
) -> tuple[np.ndarray, LaunchReport]:
    """Run a kernel on one int per thread; `t` is the thread's index in the grid."""
    source = f'extern "C" __global__ void kernel({parameters}) {{\n'
    source += "int t = blockIdx.x * blockDim.x + threadIdx.x, x = threadIdx.x;\n" + body + "\n}\n"
    emulator = Emulator(**options)
    out = emulator.alloc(np.full(threads * blocks, -1, np.int32), "out")
    report = emulator.launch(
        compile_cuda(source), "kernel", (blocks, 1, 1), (threads, 1, 1), [out], shared,
        source.splitlines(),
    )  # fmt: skip
    return emulator.read(out), report


def test_nested_branches_and_early_return() -> None:
    body = """
  if (t % 7 == 3) return;
  int r = 0;
  if (x % 2) { r = 1; if (x % 3 == 0) { r += 10; if (t > 100) return; } else r += 20; }
  else if (x % 5 == 0) r = 100;
  out[t] = r + x;
"""

    def expected(t: int) -> int:
        x, r = t % 64, 0
        if t % 7 == 3 or (x % 2 and x % 3 == 0 and t > 100):
            return -1
        if x % 2:
            r = 11 if x % 3 == 0 else 21
        elif x % 5 == 0:
            r = 100
        return r + x

    result, report = run(body)
    assert report.findings == []
    assert result.tolist() == [expected(t) for t in range(192)]


def test_loops_with_different_trip_counts() -> None:
    body = """
  int n = t * 2654435761u >> 28, steps = 0;
  unsigned value = t + 1;
  while (value != 1 && steps < 60) {
    value = value % 2 ? 3 * value + 1 : value / 2;
    ++steps;
    for (int i = 0; i < n; ++i) { if (i == x % 5) continue; value ^= 0; if (i > 8) break; }
  }
  out[t] = steps;
"""

    def collatz(t: int) -> int:
        value, steps = t + 1, 0
        while value != 1 and steps < 60:
            value = 3 * value + 1 if value % 2 else value // 2
            steps += 1
        return steps

    result, report = run(body)
    assert report.findings == []
    assert result.tolist() == [collatz(t) for t in range(192)]


def test_registers_of_waiting_lanes_are_kept() -> None:
    body = """
  int a = x, b = 1000 + x, total = 0;
  for (int i = 0; i <= x % 9; ++i) { total += a; int c = a; a = b; b = c; }
  out[t] = total * 7 + a - b;
"""

    def expected(t: int) -> int:
        x = t % 64
        a, b, total = x, 1000 + x, 0
        for _ in range(x % 9 + 1):
            total += a
            a, b = b, a
        return total * 7 + a - b

    assert run(body)[0].tolist() == [expected(t) for t in range(192)]


def test_switch_and_local_array() -> None:
    body = """
  int stack[8];
  for (int i = 0; i < 8; ++i) stack[i] = i * x;
  stack[x % 8] = -5;
  int sum = 0;
  switch (x % 4) { case 0: sum = stack[(x + 1) % 8]; break; case 1: sum = 7; break;
                   case 2: sum = stack[x % 8]; break; default: sum = x; }
  out[t] = sum;
"""

    def expected(t: int) -> int:
        x = t % 64
        return [(x + 1) % 8 * x, 7, -5, x][x % 4]

    assert run(body)[0].tolist() == [expected(t) for t in range(192)]


def test_barrier_in_uniform_branch_and_loop() -> None:
    body = """
  __shared__ int s[64];
  for (int round = 0; round <= blockIdx.x; ++round) {
    s[x] = x + round;
    __syncthreads();
    int v = s[63 - x];
    __syncthreads();
    out[t] = v;
  }
"""
    result, report = run(body)
    assert report.findings == []
    assert result.tolist() == [63 - t % 64 + t // 64 for t in range(192)]


def test_lanes_meet_at_a_barrier_after_divergence() -> None:
    body = """
  __shared__ int s[64];
  int v = 0;
  for (int i = 0; i < x; ++i) v += i % 3;
  if (x & 1) s[x] = v; else s[x] = -v;
  __syncthreads();
  out[t] = s[x ^ 1];
"""
    total = [sum(i % 3 for i in range(x)) for x in range(64)]
    result, report = run(body)
    assert report.findings == []
    assert result[:64].tolist() == [total[x ^ 1] * (-1 if x & 1 else 1) for x in range(64)]


def test_named_barriers_for_halves_of_a_block() -> None:
    body = """
  __shared__ int s[128];
  s[x] = x;
  if (x < 64) asm volatile("bar.sync 1, 64;"); else asm volatile("bar.sync 2, 64;");
  int v = s[x ^ 32];
  __syncthreads();
  out[t] = v;
"""
    result, report = run(body, threads=128, blocks=2)
    assert report.findings == []
    assert result.tolist() == [(t % 128) ^ 32 for t in range(256)]


def test_divergent_barrier_is_reported_with_its_line() -> None:
    body = """
  if (x < 40) {
    __syncthreads();  // line 5
    out[t] = 1;
  }
"""
    result, report = run(body)
    (finding,) = report.findings
    assert (finding.check, finding.file_line) == ("synccheck", 5)
    assert "40 of 64 threads" in finding.message
    assert finding.block == (0, 0, 0)
    assert finding.threads[0] == (0, 0, 0)
    assert "__syncthreads();  // line 5" in str(finding)
    assert result[:64].tolist() == [1] * 40 + [-1] * 24


def test_barrier_that_exited_threads_miss_is_reported() -> None:
    body = """
  if (blockIdx.x == 1 && x >= 16) return;
  __syncthreads();
  out[t] = x;
"""
    result, report = run(body)
    (finding,) = report.findings
    assert "16 of 64 threads" in finding.message
    assert finding.block == (1, 0, 0)
    assert finding.file_line == 5
    assert result.tolist() == [*range(64), *range(16), *([-1] * 48), *range(64)]


def test_threads_that_wait_for_each_other_do_not_hang() -> None:
    body = """
  if (blockIdx.x == 0) {
    if (x < 32) asm volatile("bar.sync 1;"); else asm volatile("bar.sync 2;");
  }
  out[t] = x;
"""
    result, report = run(body)
    assert len(report.findings) == 2
    assert all("32 of 64" in f.message and "wait at another" in f.message for f in report.findings)
    assert result.tolist() == [-1] * 64 + [*range(64)] * 2


def test_budget_stops_an_endless_loop() -> None:
    with pytest.raises(CheckError, match="instruction_budget"):
        run("volatile int* p = out; while (*p != -2) p[1] += 1;", instruction_budget=100_000)


def test_shuffle_after_divergence_waits_for_the_warp() -> None:
    body = """
  int v = x;
  if (x % 2) { for (int i = 0; i < x; ++i) v += i; }
  v = __shfl_xor_sync(0xffffffff, v, 1);
  out[t] = v;
"""
    value = [x + (x * (x - 1) // 2 if x % 2 else 0) for x in range(64)]
    result, report = run(body)
    assert report.findings == []
    assert result[:64].tolist() == [value[x ^ 1] for x in range(64)]


def test_shuffle_by_part_of_its_member_mask_is_reported() -> None:
    body = """
  int v = 0;
  if (x % 32 < 20) v = __shfl_sync(0xffffffff, x, 3);  // line 5
  __syncthreads();
  out[t] = v;
"""
    _, report = run(body)
    (finding,) = report.findings
    assert (finding.check, finding.file_line) == ("synccheck", 5)
    assert "member mask" in finding.message
    # Lanes that have exited are not waited for.
    assert run("if (x % 32 < 20) out[t] = __shfl_sync(0xffffffff, x, 3);")[1].findings == []


def test_three_dimensional_blocks_and_grids() -> None:
    source = """extern "C" __global__ void kernel(int* out) {
  int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  int size = blockDim.x * blockDim.y * blockDim.z;
  __shared__ int s[24];
  s[thread] = block * 100 + thread;
  __syncthreads();
  out[block * size + thread] = s[size - 1 - thread];
}"""
    for chunk_threads in (24, 100, 1 << 16):
        emulator = Emulator(chunk_threads=chunk_threads)
        out = emulator.alloc(np.zeros(24 * 30, np.int32))
        report = emulator.launch(compile_cuda(source), "kernel", (5, 3, 2), (4, 3, 2), [out])
        assert report.findings == []
        expected = [block * 100 + 23 - thread for block in range(30) for thread in range(24)]
        assert emulator.read(out).tolist() == expected
