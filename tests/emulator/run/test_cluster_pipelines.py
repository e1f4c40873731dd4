"""CUTLASS's pipeline for TMA in a cluster: each block fetches a part of the tile for all."""

from __future__ import annotations

import numpy as np
import pytest

from gen.emulator import Emulator, Finding, SharedRaces, TensorMap
from tests.emulator.emulator_kernels import compile_cuda
from tests.support.slow import slow

PIPELINE = r"""
#include <cutlass/arch/barrier.h>
#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/arch/cluster_sm90.hpp>
#include <cutlass/pipeline/sm90_pipeline.hpp>
using namespace cute;
using Pipeline = cutlass::PipelineTmaAsync<3>;
struct alignas(64) Map { char bytes[128]; };
extern "C" __global__ void kernel(const __grid_constant__ Map in, unsigned* out, int steps) {
  __shared__ alignas(1024) unsigned tile[3][8][32];
  __shared__ alignas(16) char raw[sizeof(Pipeline::SharedStorage)];
  const int x = threadIdx.x, part = 8 / CLUSTER;
  out += blockIdx.x / CLUSTER * steps * 256;
  const unsigned rank = block_rank_in_cluster();
  Pipeline::Params params;
  params.transaction_bytes = 1024;
  params.role = x < 32 ? Pipeline::ThreadCategory::Producer : Pipeline::ThreadCategory::Consumer;
  params.is_leader = x == 0;
  params.num_consumers = 128;
  Pipeline pipe(*reinterpret_cast<Pipeline::SharedStorage*>(raw), params, SHAPE{});
  cluster_arrive_relaxed();
  cluster_wait();
  if (x < 32) {
    if (cute::elect_one_sync()) {
      auto state = cutlass::make_producer_start_state<Pipeline>();
      for (int i = 0; i < steps; ++i, ++state) {
        pipe.producer_acquire(state);
        SM90_TMA_LOAD_MULTICAST_2D::copy(
            &in, (uint64_t*)pipe.producer_get_barrier(state), uint16_t((1 << CLUSTER) - 1), 0ull,
            tile[state.index()][part * rank], 0, 8 * i + part * rank);
      }
      pipe.producer_tail(state);
    }
  } else if (x >= 128) {
    cutlass::PipelineState<3> state;
    for (int i = 0; i < steps; ++i, ++state) {
      pipe.consumer_wait(state);
      for (int k = x - 128; k < 256; k += 128)
        if (k / 32 % CLUSTER == rank) out[256 * i + k] = tile[state.index()][k / 32][k % 32];
      cutlass::arch::NamedBarrier::sync(128, 0);  // one thread of a warpgroup releases for all
      pipe.consumer_release(state);
    }
  }
}
"""


def run(source: str, cluster: tuple[int, int, int]) -> tuple[bool, list[Finding]]:
    """Whether all tiles have arrived, of two clusters."""
    blocks = int(np.prod(cluster))
    source = source.replace("blockIdx.x / CLUSTER", f"blockIdx.x / {cluster[0]}")
    source = source.replace("CLUSTER", str(blocks))
    source = source.replace("SHAPE", f"Shape<_{cluster[0]}, _{cluster[1]}, _1>")
    emulator, values = Emulator(), np.arange(48 * 32, dtype=np.uint32).reshape(48, 32)
    array = emulator.alloc(values, "A")
    out = emulator.alloc(np.zeros((2, *values.shape), np.uint32), "out")
    tensor = TensorMap(array, "b32", (32, 48), (128,), (32, 8 // blocks))
    grid = (2 * cluster[0], cluster[1], 1)
    report = emulator.launch(
        compile_cuda(source, "compute_90a"), "kernel", grid, (256, 1, 1),
        [tensor, out, np.int32(6)], observers=[SharedRaces()], cluster=cluster,
    )  # fmt: skip
    return bool((emulator.read(out) == values).all()), report.findings


@slow
@pytest.mark.parametrize(
    "cluster",
    [
        (2, 1, 1),
        (1, 2, 1),
        (4, 1, 1),
    ],
)
def test_the_pipeline_of_cutlass(cluster: tuple[int, int, int]) -> None:
    right, findings = run(PIPELINE, cluster)
    assert not findings, "\n".join(map(str, findings))
    assert right


@slow
@pytest.mark.parametrize(
    ("old", "new", "check"),
    [
        ("transaction_bytes = 1024", "transaction_bytes = 1040", "synccheck"),
        ("pipe.consumer_wait(state);", "", "racecheck"),
        ("pipe.consumer_release(state);", "", "synccheck"),
        ("uint16_t((1 << CLUSTER) - 1)", "uint16_t(1 << rank)", "synccheck"),
        ("cluster_arrive_relaxed();\n  cluster_wait();", "__syncthreads();", "racecheck"),
        ("pipe.producer_tail(state);", "", "racecheck"),
        ("cutlass::arch::NamedBarrier::sync(128, 0);", "", "racecheck"),
    ],
)
def test_mistakes(old: str, new: str, check: str) -> None:
    assert old in PIPELINE
    _, findings = run(PIPELINE.replace(old, new), (2, 1, 1))
    assert check in {f.check for f in findings}, "\n".join(map(str, findings))
