"""Blocks that wait for each other also start one by one, where some wait for too few."""

from __future__ import annotations

from typing import Any

import pytest

import gen
from gen.foreign import running
from gen.foreign.running import Outcome

# All blocks come, and wait for each other, before one reads what its neighbour has written.
BARRIER = """
__global__ void k(int* data, int* out, int* count) {
  const int t = threadIdx.x, b = blockIdx.x;
  data[b * 32 + t] = b;
  __threadfence();
  __syncthreads();
  if (t == 0) {
    atomicAdd(count, 1);
    while (*(volatile int*)count < GOAL) {}
    __threadfence();
  }
  __syncthreads();
  out[b * 32 + t] = data[(b + NEXT) % 6 * 32 + t];
}
"""


def run(goal: int, neighbour: int, **options: Any) -> Outcome:
    source = BARRIER.replace("GOAL", str(goal)).replace("NEXT", str(neighbour))
    args = {"data": "i32[192]:zeros", "out": "i32[192]", "count": "i32[1]:zeros"}
    return gen.emulate(source, grid=6, block=32, args=args, **options)


@pytest.mark.parametrize("neighbour", [1, 5])
def test_a_barrier_of_the_grid(neighbour: int) -> None:
    assert run(6, neighbour).ok
    for goal in (5, 1):
        assert {finding.check for finding in run(goal, neighbour).findings} == {"racecheck"}


def test_without_racecheck_a_launch_runs_once() -> None:
    assert run(5, 1, tools=("memcheck",)).ok


def test_a_schedule_that_takes_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "SECONDS_IN_TURN", 0.0)
    outcome = run(6, 1)
    assert outcome.ok
    assert not outcome.in_turn
    assert [note[:30] for note in outcome.left_out] == ["a run with blocks one by one, "] * 2
