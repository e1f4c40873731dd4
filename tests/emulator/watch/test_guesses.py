"""A plain load whose value an atomicCAS verifies is no race with atomics; others are."""

from __future__ import annotations

import numpy as np
import pytest

import gen

# As the CUDA programming guide makes an atomic of double numbers of one of integers.
GUESSED = """
__device__ void add(double* to, double v) {
  auto* p = (unsigned long long*)to;
  unsigned long long old = *p, assumed;
  do {
    assumed = old;
    old = atomicCAS(p, assumed, __double_as_longlong(v + __longlong_as_double(assumed)));
  } while (assumed != old);
}
__global__ void k(const double* in, double* out) {
  __shared__ double sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  add(&sum, in[threadIdx.x]);
  add(out + threadIdx.x % 2, in[threadIdx.x]);
  __syncthreads();
  if (threadIdx.x == 0) add(out + 2, sum);
}
"""


def run(source: str) -> list[str]:
    args = {"in": np.arange(64.0), "out": np.zeros(3)}
    outcome = gen.emulate(source, grid=2, block=64, args=args)
    if outcome.ok:
        assert outcome.arrays["out"].tolist() == [2 * 992, 2 * 1024, 2 * 2016]
    return [finding.kind for finding in outcome.findings]


def test_a_guess_is_no_race() -> None:
    assert run(GUESSED) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("old = *p, assumed", "old = p[0], assumed; if (v > 60) *p = 0"),  # a plain store
        ("__syncthreads();\n  if (threadIdx.x == 0) add(out + 2", "add(out + 2"),  # and a load
        ("  __syncthreads();\n  add(&sum", "  add(&sum"),
        # What is compared was read elsewhere.
        ("old = *p, assumed", "old = p[v < 60], assumed"),
    ],
)
def test_other_accesses_race(old: str, new: str) -> None:
    assert GUESSED.count(old) == 1
    assert run(GUESSED.replace(old, new))
