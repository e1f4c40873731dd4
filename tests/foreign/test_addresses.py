"""Wrong addresses are named as what they are: a buffer or a block's memory, and an offset."""

from __future__ import annotations

from typing import Any

import pytest

import gen
from gen.foreign.words import sentence
from tests.support.slow import slow

_COPY = """
__global__ void k(const int* x, int* y) {
  __shared__ alignas(128) int s[32];
  __shared__ alignas(8) unsigned long long object;
  const unsigned bar = __cvta_generic_to_shared(&object), to = __cvta_generic_to_shared(s);
  asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(bar) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
               " [%0], [%1], 128, [%2];" :: "r"(to), "l"(x + 1), "r"(bar) : "memory");
}
"""
_OF_ANOTHER_BLOCK = """
#include <cooperative_groups.h>
__global__ void k(const int* x, int* y) {
  __shared__ int v[32];
  auto cluster = cooperative_groups::this_cluster();
  for (int i = 0; i < 32; ++i) v[i] = x[i];
  cluster.sync();
  y[0] = cluster.map_shared_rank(v, 1)[x[0] + 31];
  cluster.sync();
}
"""
_CONSTANT = """
__constant__ int c[9] = {1, 2, 3};
__global__ void k(const int* x, int* y) { y[0] = c[x[0] + 8]; }
"""
_GLOBAL = """
__global__ void k(const int* x, int* y) {
  int value;
  asm volatile("ld.shared.s32 %0, [%1];" : "=r"(value) : "l"(x));
  y[0] = value;
}
"""


@pytest.mark.parametrize(
    ("source", "options", "said"),
    [
        (_COPY, {"arch": "sm_90"}, "the global address is x+4 of 256, not a multiple of 16"),
        pytest.param(
            _OF_ANOTHER_BLOCK, {"arch": "sm_90", "cluster": 2, "grid": 2},
            "Invalid __shared__ read of size 4 bytes at shared+128 in block 1 of the cluster is "
            "out",
            marks=slow,
        ),
        pytest.param(
            _OF_ANOTHER_BLOCK.replace("[x[0] + 31]", "[x[0] << 22]"),
            {"arch": "sm_90", "cluster": 2, "grid": 2},
            "Invalid __shared__ read of size 4 bytes at shared memory of block 2 of a cluster of 2",
            marks=slow,
        ),
        (_CONSTANT, {}, "Invalid __constant__ read of size 4 bytes at c+36 is out of bounds"),
        (_GLOBAL, {}, "Invalid __shared__ read of size 4 bytes at x+0, an address of global mem"),
    ],
)  # fmt: skip
def test_wrong_addresses(source: str, options: dict[str, Any], said: str) -> None:
    args = {"x": "i32[64]:ones", "y": "i32[32]:poison"}
    outcome = gen.emulate(source, block=1, args=args, **options)
    assert any(said in sentence(finding) for finding in outcome.findings)
