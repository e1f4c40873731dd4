"""Limits of a launch in seconds and in bytes."""

from __future__ import annotations

import time

import numpy as np
import pytest

from gen.emulator import Emulator, LaunchReport, Observer
from gen.emulator.run.time_limit import TimeLimit
from gen.errors import BudgetError, UsageError
from tests.emulator.emulator_kernels import compile_cuda

ENDLESS = """extern "C" __global__ void kernel(int* out) {
  out[threadIdx.x + 4] = 1;
  volatile int* p = out;
  if (threadIdx.x == 0)
    while (*p != 3) p[1] = p[1] + 1;
}"""
LOCAL = """extern "C" __global__ void kernel(int* out) {
  int values[SIZE];
  for (int i = 0; i < 4; ++i) values[out[i] + i] = threadIdx.x;
  out[4 + threadIdx.x] = values[out[3]];
}"""


def launch(
    emulator: Emulator, source: str, blocks: int = 1, observers: tuple[Observer, ...] = ()
) -> LaunchReport:
    out = emulator.alloc(np.zeros(68, np.int32), "out")
    ptx = compile_cuda(source)
    return emulator.launch(
        ptx, "kernel", (blocks, 1, 1), (64, 1, 1), [out], observers=observers, source_lines=[]
    )


def test_seconds_end_a_launch() -> None:
    with pytest.raises(BudgetError, match=r"longer than 0.2 seconds.*line 5; .*time_budget"):
        launch(Emulator(time_budget=0.2), ENDLESS)
    emulator = Emulator()
    emulator.deadline = time.perf_counter() + 0.2
    with pytest.raises(BudgetError, match="still running at CUDA line 5 when the time was up"):
        launch(emulator, ENDLESS)


def test_what_was_found_until_then() -> None:
    source = ENDLESS.replace("x + 4", "x + 5")
    for limits in ({"time_budget": 0.1}, {"instruction_budget": 10_000}):
        with pytest.raises(BudgetError) as caught:
            launch(Emulator(**limits), source)
        (finding,) = caught.value.findings
        assert finding.address == "out+272 of 272"


def test_a_block_that_takes_too_much_memory() -> None:
    """16 MiB for each thread, and as much to know what it has written."""
    big = LOCAL.replace("SIZE", "1 << 22")
    message = (
        r"takes 2147483648 bytes: 64 threads with 16777216 bytes of local memory.*memory_limit"
    )
    with pytest.raises(UsageError, match=message):
        launch(Emulator(memory_limit=1 << 29), big)
    small = LOCAL.replace("SIZE", "1 << 8")
    assert launch(Emulator(memory_limit=1 << 18), small).findings == []


class Chunks(Observer):
    """Counts the chunks of a launch."""

    count = 0

    def begin(self, chunk: object) -> None:
        """See Observer."""
        self.count += 1


@pytest.mark.parametrize(("limit", "chunks"), [(1 << 17, 4), (1 << 18, 2), (1 << 20, 1)])
def test_less_memory_makes_more_chunks(limit: int, chunks: int) -> None:
    watch = Chunks()
    emulator = Emulator(memory_limit=limit)
    launch(emulator, LOCAL.replace("SIZE", "1 << 8"), 4, (watch,))
    assert watch.count == chunks


def test_only_cpu_time_counts_against_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch that gets no CPU is slow, not endless; the clock counts for a deadline alone."""
    clock, thread = 100.0, 7.0
    monkeypatch.setattr(time, "perf_counter", lambda: clock)
    monkeypatch.setattr(time, "thread_time", lambda: thread)
    limit, by_the_clock = TimeLimit(60), TimeLimit(None, 200)
    clock, thread = 190.0, 66.9
    assert not limit.late()
    assert not by_the_clock.late()
    clock, thread = 201.0, 67.1
    assert "longer than 60 seconds" in limit.late()
    assert "when the time was up" in by_the_clock.late()
