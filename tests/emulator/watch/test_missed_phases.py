"""Waits at mbarriers whose phase some order of threads lets them miss."""

from __future__ import annotations

import numpy as np
import pytest

from gen.emulator import Emulator, Finding, MissedPhases, SharedRaces
from tests.emulator.emulator_kernels import compile_cuda
from tests.emulator.pipeline_kernels import HELPERS

# Warp 0 hands numbers to warps 1 and 2, in two stages. Only warp 1 reads them.
RING = (
    HELPERS
    + r"""
extern "C" __global__ void kernel(int* out, int steps) {
  __shared__ u64 full[2], empty[2];
  __shared__ int data[2][32];
  const int t = threadIdx.x, lane = t % 32;
  if (t == 0)
    for (int i = 0; i < 2; ++i) init(full + i, 32), init(empty + i, COUNT);
  __syncthreads();
  for (int i = 0; i < steps; ++i) {
    const int stage = i % 2, phase = i / 2 % 2;
    if (t < 32) {
      wait(empty + stage, phase ^ 1);
      data[stage][lane] = i;
      arrive(full + stage);
    } else {
      wait(full + stage, phase);
      if (t < 64) out[lane] = data[stage][lane];
      HAND_BACK
    }
  }
}
"""
)


def findings(count: int, hand_back: str, steps: int = 6) -> list[Finding]:
    source = RING.replace("COUNT", str(count)).replace("HAND_BACK", hand_back)
    emulator = Emulator()
    out = emulator.alloc(np.zeros(32, np.int32), "out")
    report = emulator.launch(
        compile_cuda(source), "kernel", (2, 1, 1), (96, 1, 1), [out, np.int32(steps)],
        source_lines=source.splitlines(),
        observers=[SharedRaces(), MissedPhases()],
    )  # fmt: skip
    assert (emulator.read(out) == steps - 1).all() or report.findings
    return report.findings


@pytest.mark.parametrize(
    ("count", "hand_back"),
    [
        (64, "arrive(empty + stage);"),
        (2, "__syncwarp(); if (lane == 0) arrive(empty + stage);"),
        (1, 'asm volatile("bar.sync 1, 64;" ::: "memory"); if (t == 32) arrive(empty + stage);'),
        # Behind a shuffle all lanes have waited, though it orders no memory: warp 2 reads nothing.
        (
            33,
            "if (t < 64) arrive(empty + stage);\n"
            "      else if (__shfl_sync(~0u, lane, 31) == 31 && lane == 0) arrive(empty + stage);",
        ),
        # Nobody reads what a relaxed arrival would have to order.
        (
            64,
            "if (t < 64) arrive(empty + stage);\n"
            '      else asm volatile("mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%0];"'
            ' ::"r"(at(empty + stage)));',
        ),
    ],
)
def test_every_wait_is_ordered_before_the_next_phase(count: int, hand_back: str) -> None:
    assert findings(count, hand_back) == []


@pytest.mark.parametrize(
    ("count", "hand_back", "thread"),
    [
        (32, "if (t < 64) arrive(empty + stage);", 64),  # nobody asks warp 2
        (1, "__syncwarp(); if (t == 32) arrive(empty + stage);", 64),
        (33, "if (t < 64 || t == 64) arrive(empty + stage);", 65),  # nor its other lanes
        (33, "if (t < 64 || t == 64) arrive(empty + stage);\n      __syncwarp();", 65),
    ],
)
def test_a_phase_may_be_missed(count: int, hand_back: str, thread: int) -> None:
    (finding,) = findings(count, hand_back)
    assert finding.check == "synccheck"
    assert "(full) may miss its phase" in finding.message
    assert "by the mbarrier.arrive at line" in finding.message
    assert finding.threads == ((thread, 0, 0),)


def test_a_last_phase_is_missed_by_nobody() -> None:
    """Two stages, of which each has one phase only."""
    assert findings(32, "if (t < 64) arrive(empty + stage);", steps=2) == []


def test_kernels_of_others_are_checked_too() -> None:
    import gen

    source = RING.replace("COUNT", "32").replace("HAND_BACK", "if (t < 64) arrive(empty + stage);")
    outcome = gen.emulate(
        source, block=96, args={"out": "i32[32]:poison", "steps": 6}, arch="sm_90"
    )
    assert [finding.check for finding in outcome.findings] == ["synccheck"]
