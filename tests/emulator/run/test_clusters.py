"""Launches of clusters: sizes, special registers, chunks, and the barrier of a cluster."""

from __future__ import annotations

import numpy as np
import pytest

from gen.emulator import Emulator
from gen.errors import UsageError
from tests.emulator.cluster_kernels import Size, body, clean, finding, launch, run
from tests.emulator.emulator_kernels import compile_cuda
from tests.support.slow import sift, slow

ONE = 'extern "C" __global__ void {} kernel(unsigned* out) {{ out[blockIdx.x] = blockIdx.x; }}'


def start(bounds: str, grid: Size, cluster: Size | None = None) -> None:
    emulator = Emulator()
    out = emulator.alloc(np.zeros(64, np.uint32), "out")
    ptx = compile_cuda(ONE.format(bounds), "compute_90a")
    emulator.launch(ptx, "kernel", grid, (1, 1, 1), [out], cluster=cluster)
    assert list(emulator.read(out)[: grid[0]]) == list(range(grid[0]))


@pytest.mark.parametrize(
    ("bounds", "grid", "cluster"),
    [
        ("__cluster_dims__(2, 1, 1)", (4, 1, 1), None),
        ("__cluster_dims__(2, 1, 1)", (4, 1, 1), (2, 1, 1)),
        ("", (8, 1, 1), (8, 1, 1)),
        ("", (3, 1, 1), (1, 1, 1)),
    ],
)
def test_a_launch(bounds: str, grid: Size, cluster: Size | None) -> None:
    start(bounds, grid, cluster)


@pytest.mark.parametrize(
    ("bounds", "grid", "cluster", "rule"),
    [
        ("__cluster_dims__(2, 1, 1)", (3, 1, 1), None, r"no multiple of the cluster \(2, 1, 1\)"),
        ("__cluster_dims__(2, 1, 1)", (4, 1, 1), (4, 1, 1), "declares clusters of"),
        ("", (16, 1, 1), (16, 1, 1), "has 16 blocks; .* at most 8"),
        ("", (4, 1, 1), (2, 0, 1), "three sizes of 1 or more"),
        ("__launch_bounds__(32, 1, 2)", (4, 1, 1), (4, 1, 1), "at most 2"),
    ],
)
def test_what_no_gpu_would_launch(bounds: str, grid: Size, cluster: Size | None, rule: str) -> None:
    with pytest.raises(UsageError, match=rule):
        start(bounds, grid, cluster)


REGISTERS = (
    "clusterid.x", "clusterid.y", "clusterid.z", "cluster_ctaid.x", "cluster_ctaid.y",
    "cluster_ctaid.z", "cluster_ctarank", "nclusterid.x", "nclusterid.y", "nclusterid.z",
    "cluster_nctaid.x", "cluster_nctaid.y", "cluster_nctaid.z", "cluster_nctarank",
)  # fmt: skip


@pytest.mark.parametrize("chunk_threads", sift([1 << 16, 64, 1], [64]))
@pytest.mark.parametrize("cluster", [(2, 1, 1), (1, 2, 1), (2, 2, 1), (1, 1, 2), (2, 1, 3)])
def test_special_registers(cluster: Size, chunk_threads: int) -> None:
    """By their definition, on grids of several clusters along each axis."""
    grid = tuple(n * count for n, count in zip(cluster, (3, 2, 2), strict=True))
    reads = "".join(
        f'asm volatile("mov.u32 %0, %%{name};" : "=r"(r)); out[b * 64 + {at}] = r;\n'
        for at, name in enumerate(REGISTERS)
    )
    code = "u32 r, b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;\n"
    code += "if (x) return;\n" + reads
    code += 'asm volatile("{.reg .pred p; mov.pred p, %%is_explicit_cluster;'
    code += ' selp.u32 %0, 1, 0, p;}" : "=r"(r)); out[b * 64 + 14] = r;'
    out = clean(code, grid=grid, cluster=cluster, chunk_threads=chunk_threads)
    for number in range(len(out)):
        block = (number % grid[0], number // grid[0] % grid[1], number // (grid[0] * grid[1]))
        inside = [b % c for b, c in zip(block, cluster, strict=True)]
        rank = inside[0] + cluster[0] * (inside[1] + cluster[1] * inside[2])
        expected = [b // c for b, c in zip(block, cluster, strict=True)]
        expected += [*inside, rank, 3, 2, 2, *cluster, int(np.prod(cluster)), 1]
        assert list(out[number][:15]) == expected


def test_a_window_runs_whole_clusters() -> None:
    arrays = {"out": np.zeros(8, np.uint32), "in": np.zeros(1, np.uint32)}
    source = body("CLUSTER_SYNC; if (x == 0) out[blockIdx.x] = 1;")
    window = ((3, 0, 0), (2, 1, 1))
    findings, (out, _) = launch(source, arrays, (8, 1, 1), 32, (2, 1, 1), window=window)
    assert not findings
    assert list(out) == [0, 0, 1, 1, 1, 1, 0, 0]


def test_blocks_that_spin_are_resident_in_whole_clusters() -> None:
    source = body("""
if (x == 0) {
  atomicAdd(out, 1);
  while (*(volatile u32*)(out) < gridDim.x) {}
  out[1 + blockIdx.x] = ranks();
}
""")
    emulator = Emulator(resident_blocks=5, chunk_threads=64)
    for blocks, well in ((4, True), (6, False)):
        out = emulator.alloc(np.zeros(16, np.uint32), "out")
        report = emulator.launch(
            compile_cuda(source, "compute_90a"), "kernel", (blocks, 1, 1), (32, 1, 1), [out, out],
            cluster=(2, 1, 1),
        )  # fmt: skip
        assert bool(report.findings) != well
        if not well:
            assert "cannot start before one of the 4 resident blocks" in str(report.findings[0])


# -- the barrier of a cluster ---------------------------------------------------------------------
@slow
@pytest.mark.parametrize("chunk_threads", [1 << 16, 1])
@pytest.mark.parametrize(
    ("cluster", "grid"), [((2, 1, 1), (4, 2, 2)), ((1, 2, 1), (3, 4, 1)), ((2, 2, 2), (4, 2, 2))]
)
def test_a_reduction_through_distributed_shared_memory(
    cluster: Size, grid: Size, chunk_threads: int
) -> None:
    """Cooperative groups: the blocks of a cluster sum in the shared memory of each other."""
    source = r"""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void kernel(unsigned* out, const unsigned* in) {
  __shared__ unsigned sum, partial[8];
  auto cluster = cg::this_cluster();
  const unsigned b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  if (threadIdx.x == 0) sum = 0;
  cluster.sync();
  atomicAdd(cluster.map_shared_rank(&sum, 0), in[b * blockDim.x + threadIdx.x]);
  if (threadIdx.x == 0) cluster.map_shared_rank(partial, 1)[cluster.block_rank()] = b;
  cluster.sync();
  if (threadIdx.x == 0)
    out[b] = *cluster.map_shared_rank(&sum, 0)
           + 1000000 * cluster.map_shared_rank(partial, 1)[cluster.num_blocks() - 1];
  cluster.sync();
}
"""
    blocks = int(np.prod(grid))
    values = np.arange(48 * blocks, dtype=np.uint32).reshape(grid[2], grid[1], grid[0], 48)
    arrays = {"out": np.zeros(values.shape[:3], np.uint32), "in": values}
    findings, (out, _) = launch(source, arrays, grid, 48, cluster, chunk_threads)
    assert not findings, "\n".join(map(str, findings))
    number = np.arange(blocks).reshape(values.shape[:3])
    for z, y, x in np.ndindex(values.shape[:3]):
        first = [at // c * c for at, c in zip((z, y, x), cluster[::-1], strict=True)]
        box = tuple(slice(a, a + c) for a, c in zip(first, cluster[::-1], strict=True))
        assert out[z, y, x] == values[box].sum() + 1000000 * number[box].max()


def test_arrive_and_wait_apart() -> None:
    out = clean("""
s[x] = me * 100 + x;
CLUSTER_ARRIVE;
u32 mine = s[x], there;
CLUSTER_WAIT;
LOAD_REMOTE(there, peer(&s[x], other));
out[blockIdx.x * 64 + x] = there + mine;
CLUSTER_SYNC;
""")
    assert (out[:, :32] == 100 + 2 * np.arange(32)).all()


def test_threads_that_have_exited_count_as_arrived() -> None:
    out = clean("if (x >= 16) return;\nCLUSTER_SYNC;\nout[blockIdx.x * 64 + x] = 1;")
    assert out.sum() == 32
    out = clean("if (me == 1) return;\nCLUSTER_SYNC;\nout[blockIdx.x * 64 + x] = 1;")
    assert out[0].sum() == 32


def test_arriving_twice() -> None:
    found = finding("CLUSTER_ARRIVE;\nCLUSTER_ARRIVE;  // again\nCLUSTER_WAIT;")
    assert found.check == "synccheck"
    assert "again, without a barrier.cluster.wait between" in found.message
    assert found.source.endswith("// again")


def test_waiting_without_arriving() -> None:
    found = finding("CLUSTER_SYNC;\nif (me) CLUSTER_ARRIVE;\nCLUSTER_WAIT;  // wait")
    assert found.check == "synccheck"
    assert "without a barrier.cluster.arrive before it" in found.message
    assert found.block == (0, 0, 0)


def test_a_deadlock_says_who_is_missing() -> None:
    code = """
if (me == 1 && x >= 32) asm volatile("bar.sync 1, 64;");
else { CLUSTER_ARRIVE; CLUSTER_WAIT; }  // here
"""
    findings, _ = run(code, threads=64)
    named, found = findings
    assert "barrier 1 reached by 32 of 64 threads" in named.message
    assert found.check == "synccheck"
    assert "waits for 32 threads of its cluster that have not arrived" in found.message
    assert "such as thread (32,0,0) of block (1,0,0)" in found.message
    assert found.source.endswith("// here")


def test_other_clusters_run_on_after_a_deadlock() -> None:
    code = """
if (x == 0) init(&bar, 1);
CLUSTER_SYNC;
if (blockIdx.x == 0) wait(&bar, 0);  // hangs
CLUSTER_SYNC;
out[blockIdx.x * 64 + x] = 1;
"""
    findings, out = run(code, grid=(4, 1, 1))
    assert [f.source[-5:] for f in findings] == ["hangs", "_SYNC"] or len(findings) == 2
    assert "the mbarrier at shared+" in findings[0].message
    assert "of block (0,0,0) for its phase of parity 0" in findings[0].message
    assert list(out[:, 0]) == [0, 0, 1, 1]


def test_blocks_that_spin_on_each_other() -> None:
    """A flag in another block's shared memory, and one that nobody sets."""
    code = """
if (x == 0) s[0] = 0;
CLUSTER_SYNC;
if (x == 0) {
  u32 old;
  if (me == 0) for (u32 i = 0; i < 100; ++i) s[1] = i;
  if (blockIdx.x != SKIPPED)
    asm volatile("atom.shared::cluster.exch.b32 %0, [%1], 1;" : "=r"(old) : "r"(peer(s, other)));
  while (atomicAdd(&s[0], 0) == 0) {}
  out[blockIdx.x * 64] = 1;
}
CLUSTER_SYNC;
"""
    out = clean(code.replace("SKIPPED", "99"), grid=(4, 1, 1))
    assert list(out[:, 0]) == [1] * 4
    findings, out = run(code.replace("SKIPPED", "2"), grid=(4, 1, 1))
    assert list(out[:, 0]) == [1, 1, 1, 0]
    assert any("wait" in f.message and f.block == (3, 0, 0) for f in findings)
