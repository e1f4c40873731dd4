"""What blocks of a cluster do to each other's shared memory: accesses, mbarriers, copies."""

from __future__ import annotations

import numpy as np
import pytest

from gen.emulator import TensorMap
from tests.emulator.cluster_kernels import CLUSTER, Size, clean, finding, launch, run
from tests.support.slow import slow

INIT = "if (x == 0) { init(&bar, COUNT); FENCE_INIT; }\nCLUSTER_SYNC;\n"


def init(count: int | str) -> str:
    return INIT.replace("COUNT", str(count))


# -- addresses ------------------------------------------------------------------------------------
def test_every_kind_of_access() -> None:
    """ld, st, atom and red, with addresses of the cluster's window and generic ones."""
    out = clean("""
const u32 a = peer(&s[x], other);
u64 g; u32 v, r, q, is_cta, is_cluster;
asm("mapa.u64 %0, %1, %2;" : "=l"(g) : "l"((void*)&s[x + 32]), "r"(other));
s[x] = x; s[x + 32] = 0;
CLUSTER_SYNC;
asm volatile("red.shared::cluster.add.u32 [%0], %1;" ::"r"(a), "r"(1000u * me) : "memory");
*(volatile u32*)g = x + 1;
CLUSTER_SYNC;
asm volatile("atom.shared::cluster.max.u32 %0, [%1], 7;" : "=r"(v) : "r"(a) : "memory");
asm("getctarank.shared::cluster.u32 %0, %1;" : "=r"(r) : "r"(a));
asm("getctarank.u64 %0, %1;" : "=r"(q) : "l"((void*)s));
asm("{.reg .pred p; isspacep.shared::cta p, %1; selp.u32 %0, 1, 0, p;}" : "=r"(is_cta) : "l"(g));
asm("{.reg .pred p; isspacep.shared::cluster p, %1; selp.u32 %0, 1, 0, p;}"
    : "=r"(is_cluster) : "l"(g));
out[blockIdx.x * 64 + x] = v;
out[blockIdx.x * 64 + 32 + x] = s[x + 32] + 100 * r + 1000 * q + 10000 * is_cta
                              + 100000 * is_cluster;
CLUSTER_SYNC;
""")
    x = np.arange(32)
    for me in (0, 1):
        assert np.array_equal(out[me, :32], x + 1000 * me)  # what this block has added there
        assert np.array_equal(out[me, 32:], x + 1 + 100 * (1 - me) + 1000 * me + 100000)


def test_vectors_of_several_clusters() -> None:
    out = clean(
        """
for (u32 i = x; i < 64; i += 32) s[i] = 1000 * blockIdx.x + i;
CLUSTER_SYNC;
if (x < 16) {
  uint4 v;
  asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(peer(&s[4 * x], other)));
  *(uint4*)(out + blockIdx.x * 64 + 4 * x) = v;
}
CLUSTER_SYNC;
""",
        grid=(12, 1, 1),
        cluster=(4, 1, 1),
        chunk_threads=256,
    )
    for block in range(12):
        other = block // 4 * 4 + (block + 1) % 4
        assert np.array_equal(out[block], 1000 * other + np.arange(64))


def test_own_addresses_carry_the_rank() -> None:
    """Those of static and dynamic variables, in the window and generic, as mapa gives them."""
    out = clean(
        """
extern __shared__ u32 more[];
u64 g; u32 cta, far;
asm("mapa.u64 %0, %1, %2;" : "=l"(g) : "l"((void*)s), "r"(me));
asm("{.reg .pred p; isspacep.shared p, %1; selp.u32 %0, 1, 0, p;}" : "=r"(cta) : "l"((void*)s));
asm("getctarank.u64 %0, %1;" : "=r"(far) : "l"((void*)s));
if (x == 0) {
  u32* to = out + blockIdx.x * 64;
  to[0] = at(s) >> 24; to[1] = at(more) >> 24; to[2] = peer(s, me) == at(s);
  to[3] = g == (u64)s; to[4] = cta; to[5] = far; to[6] = (at(s) & 0xffffff) == peer(s, 0);
}
""",
        grid=(4, 1, 1), cluster=(4, 1, 1), shared_bytes=64,
    )  # fmt: skip
    for me in range(4):
        assert list(out[me, :7]) == [me, me, 1, 1, 1, me, 1]


@pytest.mark.parametrize("chunk_threads", [1 << 16, 1])
@pytest.mark.parametrize("cluster", [(2, 1, 1), (1, 2, 1), (2, 2, 2)])
def test_own_addresses_in_every_kind_of_access(cluster: Size, chunk_threads: int) -> None:
    """Of the own block, by shared::cta, shared::cluster and generic addresses."""
    out = clean(
        init(1)
        + """
u32 v, r, w;
asm volatile("st.shared::cta.u32 [%0], %1;" ::"r"(at(&s[x])), "r"(x + me) : "memory");
asm volatile("st.shared::cluster.u32 [%0+128], %1;" ::"r"(at(&s[x])), "r"(me) : "memory");
__syncwarp();
asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(at(&s[31 - x])) : "memory");
asm volatile("atom.shared.add.u32 %0, [%1], 5;" : "=r"(r) : "r"(at(&s[32 + x])) : "memory");
asm volatile("ld.u32 %0, [%1];" : "=r"(w) : "l"(&s[32 + x]) : "memory");
__syncwarp();
if (x == 0) {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  expect(&bar, 128);
  bulk(s, in, 128, &bar);
  wait(&bar, 0);
}
__syncwarp();
const u32 block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
out[block * 64 + x] = v + 1000 * r + 100000 * w;
out[block * 64 + 32 + x] = s[x];
CLUSTER_SYNC;
""",
        grid=cluster, cluster=cluster, chunk_threads=chunk_threads,
    )  # fmt: skip
    x = np.arange(32)
    for me in range(len(out)):
        assert np.array_equal(out[me, :32], 31 - x + me + 1000 * me + 100000 * (me + 5))
        assert np.array_equal(out[me, 32:], x + 100)


def test_an_address_without_its_rank_is_in_block_0() -> None:
    out = clean("""
s[x] = x + 100 * me;
CLUSTER_SYNC;
u32 v;
LOAD_REMOTE(v, at(&s[x]) & 0xffffffu);
out[blockIdx.x * 64 + x] = v;
CLUSTER_SYNC;
""")
    assert np.array_equal(out[:, :32], [np.arange(32)] * 2)


@pytest.mark.parametrize("space", ["shared", "shared::cta"])
def test_another_block_by_an_instruction_for_the_own_one(space: str) -> None:
    found = finding(f"""
asm volatile("st.{space}.u32 [%0], 1;" ::"r"(peer(&s[x], other)) : "memory");
CLUSTER_SYNC;
""")
    assert found.check == "memcheck"
    assert "in block 1 of the cluster is in another block, which takes .shared::cl" in found.message


@pytest.mark.parametrize("blocks", [1, 2])
def test_a_rank_outside_of_the_cluster(blocks: int) -> None:
    found = finding("STORE_REMOTE(peer(&s[x], 3), 1u);  // there", cluster=(blocks, 1, 1))
    assert found.check == "memcheck"
    assert f"shared memory of block 3 of a cluster of {blocks} is out of bounds" in found.message


@pytest.mark.parametrize("blocks", [1, 2])
def test_an_address_below_the_first(blocks: int) -> None:
    """In 32 bits, it looks like one of a block far away."""
    code = "s[x] = 1;\nSTORE_REMOTE(at(&s[x]) - 0x10000u, 1u);  // there"
    found = finding(code, cluster=(blocks, 1, 1))
    assert found.check == "memcheck"
    assert "at shared-65536 of" in found.message


def test_out_of_bounds_in_another_block() -> None:
    found = finding("STORE_REMOTE(peer(&s[x], other) + 4096, 1u);\nCLUSTER_SYNC;")
    assert found.check == "memcheck"
    assert "in block 1 of the cluster is out of bounds" in found.message


def test_mapa_of_global_memory() -> None:
    found = finding("""u64 g;
asm volatile("mapa.u64 %0, %1, %2;" : "=l"(g) : "l"(out), "r"(other));
if (g == 1) out[0] = 1;""")
    assert (found.check, found.message) == (
        "memcheck", "mapa of an address that is not in shared memory",
    )  # fmt: skip


# -- mbarriers ------------------------------------------------------------------------------------
@pytest.mark.parametrize("chunk_threads", [1 << 16, 1])
def test_a_ring_of_arrivals(chunk_threads: int) -> None:
    """Each block waits for the one before it, adds, and arrives at the next one's mbarrier."""
    code = (
        init(1)
        + """
if (x == 0) {
  if (me == 0) s[0] = 1; else wait(&bar, 0);
  const u32 sum = s[0] + me;
  if (me + 1 < ranks()) {
    STORE_REMOTE(peer(s, other), sum);
    ARRIVE_REMOTE(peer(&bar, other));
  }
  out[blockIdx.x * 64] = sum;
}
CLUSTER_SYNC;
"""
    )
    out = clean(code, grid=(8, 1, 1), cluster=(4, 1, 1), chunk_threads=chunk_threads)
    assert list(out[:, 0]) == [1, 2, 4, 7] * 2


def test_arrivals_of_all_threads_of_all_blocks() -> None:
    """Three phases complete within one instruction, block by block: their parity is 1 then."""
    out = clean(
        init(32)
        + """
ARRIVE_REMOTE(peer(&bar, 0));
if (me == 0) { wait(&bar, 0); out[x] = 1; }
CLUSTER_SYNC;
""",
        cluster=(3, 1, 1),
        grid=(3, 1, 1),
    )
    assert out[0, :32].sum() == 32


def test_bytes_are_expected_remotely() -> None:
    out = clean(
        init(2)
        + """
if (x == 0) {
  const u32 there = peer(&bar, other);
  asm volatile("mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%0], 16;" ::"r"(there));
  asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], 16;"
               ::"r"(there) : "memory");
  asm volatile("mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%0], 32;" ::"r"(there));
  arrive(&bar);
  wait(&bar, 0);
  out[blockIdx.x * 64] = 1;
}
CLUSTER_SYNC;
"""
    )
    assert list(out[:, 0]) == [1, 1]


REMOTE = {
    "init": 'asm volatile("mbarrier.init.b64 [%0], 1;" ::"l"(g) : "memory");',
    "inval": 'asm volatile("mbarrier.inval.b64 [%0];" ::"l"(g) : "memory");',
    "arrive": 'asm volatile("mbarrier.arrive.b64 %0, [%1];" : "=l"(state) : "l"(g) : "memory");',
    "try_wait": 'asm volatile("{.reg .pred p; mbarrier.try_wait.parity.b64 p, [%1], 1;'
    ' selp.u64 %0, 1, 0, p;}" : "=l"(state) : "l"(g) : "memory");',
    "test_wait": 'asm volatile("{.reg .pred p; mbarrier.test_wait.parity.b64 p, [%1], 1;'
    ' selp.u64 %0, 1, 0, p;}" : "=l"(state) : "l"(g) : "memory");',
}


@pytest.mark.parametrize("operation", REMOTE)
def test_what_goes_at_the_own_mbarrier_only(operation: str) -> None:
    code = (
        init(64)
        + f"""u64 g, state = 0;
asm("mapa.u64 %0, %1, %2;" : "=l"(g) : "l"(&bar), "r"(WHO));
if (x == 0) {REMOTE[operation]}
out[blockIdx.x * 64 + x] = (u32)state;
CLUSTER_SYNC;
"""
    )
    findings, _ = run(code.replace("WHO", "other"))
    (found,) = [f for f in findings if f.check == "synccheck"]
    assert f"mbarrier.{operation} at shared+" in found.message
    assert "takes only expect_tx, complete_tx, and arrivals with the sink _" in found.message
    assert not [f for f in run(code.replace("WHO", "me"))[0] if f.check == "synccheck"]


def test_an_mbarrier_that_nobody_has_initialised() -> None:
    findings, _ = run("ARRIVE_REMOTE(peer(&bar, other));\nCLUSTER_SYNC;")
    found = findings[0]
    assert found.check == "synccheck"
    assert "of the cluster: this is no initialised mbarrier object" in found.message


# -- copies ---------------------------------------------------------------------------------------
# Every block of a cluster of X x Y fetches its share of the tiles of A, which all blocks of its row
# want, and of B, which all of its column want.
TILES = r"""
extern "C" __global__ void kernel(u32* out, const u32* in,
                                  const __grid_constant__ Map a, const __grid_constant__ Map b) {
  __shared__ __align__(128) u32 ta[3][8][16], tb[3][8][16];
  __shared__ u64 full[3], empty[3];
  const u32 x = threadIdx.x;
  u32 cx, cy, nx, ny;
  asm("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(cx));
  asm("mov.u32 %0, %%cluster_ctaid.y;" : "=r"(cy));
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(nx));
  asm("mov.u32 %0, %%cluster_nctaid.y;" : "=r"(ny));
  u32 row = 0, column = 0;  // blocks that want the same rows of A, and columns of B
  for (u32 i = 0; i < nx; ++i) row |= 1u << (cy * nx + i);
  for (u32 i = 0; i < ny; ++i) column |= 1u << (i * nx + cx);
  if (x == 0) {
    for (int i = 0; i < 3; ++i) { init(&full[i], 1); init(&empty[i], nx + ny - 1); }
    FENCE_INIT;
  }
  CLUSTER_SYNC;
  const int steps = 5;
  if (x == 0) {
    for (int i = 0; i < steps; ++i) {
      const int at = i % 3;
      if (i >= 3) wait(&empty[at], (i / 3 - 1) & 1);
      expect(&full[at], 2 * 8 * 16 * 4);
      const u32 ra = 8 / nx, rb = 8 / ny;
      asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                   ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;"
                   ::"r"(at_(&ta[at][cx * ra])), "l"(&a), "r"(at_(&full[at])), "r"(16 * i),
                     "r"(8 * (int)blockIdx.y + cx * ra), "h"((short)row) : "memory");
      asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                   ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;"
                   ::"r"(at_(&tb[at][cy * rb])), "l"(&b), "r"(at_(&full[at])), "r"(16 * i),
                     "r"(8 * (int)blockIdx.x + cy * rb), "h"((short)column) : "memory");
    }
  } else if (x >= 32) {
    const u32 i = (x - 32) / 8, j = x % 8;
    u32 sum[2] = {0, 0};
    for (int step = 0; step < steps; ++step) {
      const int at = step % 3;
      wait(&full[at], step / 3 & 1);
      for (int k = 0; k < 16; ++k)
        for (int h = 0; h < 2; ++h) sum[h] += ta[at][i + 4 * h][k] * tb[at][j][k];
      asm volatile("bar.sync 1, 32;" ::: "memory");
      if (x - 32 < nx * ny && ((row | column) >> (x - 32) & 1))
        ARRIVE_REMOTE(peer(&empty[at], x - 32));
    }
    for (int h = 0; h < 2; ++h)
      out[(8 * blockIdx.y + i + 4 * h) * 8 * gridDim.x + 8 * blockIdx.x + j] = sum[h];
  }
  CLUSTER_SYNC;
}
""".replace("at_(", "(u32)__cvta_generic_to_shared(")


@pytest.mark.parametrize("chunk_threads", [1 << 16, 1])
@pytest.mark.parametrize(
    "cluster",
    [pytest.param((2, 1, 1), marks=slow), pytest.param((1, 2, 1), marks=slow), (2, 2, 1)],
)
def test_a_product_of_multicast_tiles(cluster: Size, chunk_threads: int) -> None:
    grid = (4, 2, 1)
    rng = np.random.default_rng(0)
    a = rng.integers(0, 9, (16, 80)).astype(np.uint32)
    b = rng.integers(0, 9, (32, 80)).astype(np.uint32)
    arrays = {"out": np.zeros((16, 32), np.uint32), "in": np.zeros(4, np.uint32)}

    def maps(emulator: object, _: object) -> list[TensorMap]:
        made = []
        for array, name, share in ((a, "A", 8 // cluster[0]), (b, "B", 8 // cluster[1])):
            device = emulator.alloc(array, name)  # type: ignore[attr-defined]
            made.append(TensorMap(device, "u32", array.shape[::-1], (320,), (16, share)))
        return made

    findings, (out, _) = launch(CLUSTER + TILES, arrays, grid, 64, cluster, chunk_threads, maps)
    assert not findings, "\n".join(map(str, findings))
    assert np.array_equal(out, a @ b.T)


def test_a_bulk_load_into_another_block() -> None:
    code = (
        init(1)
        + """
if (x == 0) {
  expect(&bar, 256);
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1], 256, [%2];"
               ::"r"(peer(s, other)), "l"(in + 64 * me), "r"(BAR) : "memory");
}
wait(&bar, 0);
out[blockIdx.x * 64 + x] = s[x];
CLUSTER_SYNC;
"""
    )
    out = clean(code.replace("BAR", "peer(&bar, other)"))
    assert [row[0] for row in out] == [164, 100]
    findings, _ = run(code.replace("BAR", "at(&bar)"))
    found = findings[0]
    assert found.check == "memcheck"
    assert "is not in the block that it writes to" in found.message


@pytest.mark.parametrize(
    ("mask", "rule"), [("0", "is 0, it has no target"), ("5", "0x0005 names block 2 of a cluster")]
)
def test_masks_of_multicasts(mask: str, rule: str) -> None:
    findings, _ = run(init(1) + f"if (x == 0) MULTICAST(s, in, 64u, &bar, {mask});  // mask")
    (found,) = findings
    assert found.check == "memcheck"
    assert rule in found.message


STORES = """
if (x == 0) expect(&bar, 32 * 8);
const u32 to = peer(&s[2 * x], other), b = peer(&bar, other);
asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.u32 "
             "[%0], {%1, %2}, [%3];" ::"r"(to), "r"(x), "r"(1000 + me), "r"(b) : "memory");
WAIT
out[blockIdx.x * 64 + x] = s[2 * x];
out[blockIdx.x * 64 + 32 + x] = s[2 * x + 1];
CLUSTER_SYNC;
"""
WIDE = """
asm volatile("{.reg .pred p; again: "
             "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0;"
             "@!p bra again;}" ::"r"(at(&bar)) : "memory");
"""


def test_stores_that_count_their_bytes() -> None:
    out = clean(init(1) + STORES.replace("WAIT", WIDE))
    for me in (0, 1):
        assert np.array_equal(out[me, :32], np.arange(32))
        assert (out[me, 32:] == 1001 - me).all()


def test_what_another_block_has_stored_is_acquired_from_the_cluster() -> None:
    """`.acquire` alone is `.acquire.cta`, in whose scope the other block is not."""
    findings, _ = run(init(1) + STORES.replace("WAIT", "wait(&bar, 0);"))
    raced = [found for found in findings if found.check == "racecheck"]
    assert raced
    assert "races with the st.async" in raced[0].message


def test_reductions_that_count_their_bytes() -> None:
    out = clean(
        "if (x == 0) s[0] = 5;\n"
        + init(1)
        + """
if (x == 0) expect(&bar, 32 * 4);
asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 "
             "[%0], %1, [%2];" ::"r"(peer(s, other)), "r"(x), "r"(peer(&bar, other)) : "memory");
wait(&bar, 0);
if (x == 0) out[blockIdx.x * 64] = s[0];
CLUSTER_SYNC;
"""
    )
    assert list(out[:, 0]) == [501, 501]


def test_a_copy_between_blocks() -> None:
    shared = "__shared__ __align__(128) u32 s[64], t[64]; __shared__ u64 bar;"
    out = clean("for (u32 i = x; i < 64; i += 32) s[i] = 1000 * blockIdx.x + i;\nfence();\n"
                + init(1) + """
if (x == 0) {
  expect(&bar, 256);
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
               "[%0], [%1], 256, [%2];"
               ::"r"(peer(t, other)), "r"(at(s)), "r"(peer(&bar, other)) : "memory");
}
wait(&bar, 0);
for (u32 i = x; i < 64; i += 32) out[blockIdx.x * 64 + i] = t[i];
CLUSTER_SYNC;
""", grid=(4, 1, 1), shared=shared)  # fmt: skip
    for block in range(4):
        assert np.array_equal(out[block], 1000 * (block ^ 1) + np.arange(64))
