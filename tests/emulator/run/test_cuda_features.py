"""Features of CUDA C++ through its headers: they compile, and give what numpy gives."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from gen.compile.nvrtc import compile_cuda
from gen.emulator import Emulator, GlobalRaces, LaunchReport, SharedRaces
from gen.errors import CheckError, UsageError
from tests.support.slow import slow

INTS = np.arange(64, dtype=np.int32) * 7 % 31 - 9


def run(
    source: str, *arrays: np.ndarray, grid: int = 1, block: int = 64, arch: str = "sm_80",
    emulator: Emulator | None = None, races: bool = True,
) -> tuple[list[np.ndarray], LaunchReport]:  # fmt: skip
    ptx = compile_cuda(source, arch=arch, format="ptx").code.decode()
    emulator = emulator or Emulator(instruction_budget=50_000_000)
    args = [emulator.alloc(array, name) for array, name in zip(arrays, "abcdefgh", strict=False)]
    watch = [SharedRaces(), GlobalRaces()] if races else []
    report = emulator.launch(ptx, "k", (grid, 1, 1), (block, 1, 1), args, observers=watch)
    return [emulator.read(arg) for arg in args], report


def clean(source: str, *arrays: np.ndarray, **how: object) -> list[np.ndarray]:
    """The arrays after a run without findings."""
    results, report = run(source, *arrays, **how)  # type: ignore[arg-type]
    assert report.findings == []
    return results


# -- cooperative groups ------------------------------------------------------------------------

GRID_SYNC = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void k(int* x, int* y) {
  auto grid = cg::this_grid();
  const int i = grid.thread_rank(), n = grid.size();
  for (int step = 0; step < 3; ++step) {
    y[i] = x[(i + 37) % n] + 1;
    grid.sync();
    x[i] = y[(i + 11) % n] * 2;
    grid.sync();
  }
}
"""


@slow
@pytest.mark.parametrize("chunk", [64, 1 << 16])
def test_a_barrier_for_the_whole_grid(chunk: int) -> None:
    x = np.arange(5 * 64, dtype=np.int32)
    emulator = Emulator(chunk_threads=chunk)
    got, _ = clean(GRID_SYNC, x, np.zeros_like(x), grid=5, emulator=emulator)
    for _ in range(3):
        x = np.roll(np.roll(x, -37) + 1, -11) * 2
    assert np.array_equal(got, x)


@pytest.mark.slow
def test_a_grid_with_a_barrier_must_be_resident() -> None:
    x = np.zeros(5 * 64, np.int32)
    with pytest.raises(UsageError, match="5 blocks only 4 are resident"):
        run(GRID_SYNC, x, x, grid=5, emulator=Emulator(resident_blocks=4))


@slow
def test_groups_of_threads() -> None:
    source = """
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;
extern "C" __global__ void k(int* x, int* y) {
  auto tile = cg::tiled_partition<16>(cg::this_thread_block());
  const int v = x[threadIdx.x];
  x[threadIdx.x] = cg::reduce(tile, v, cg::plus<int>());
  y[threadIdx.x] = cg::inclusive_scan(tile, v);
  if (threadIdx.x % 3 == 0) {
    auto some = cg::coalesced_threads();
    y[threadIdx.x] = 1000 * some.size() + cg::reduce(some, v, cg::greater<int>());
  }
}
"""
    sums, scans = clean(source, INTS, INTS * 0)
    tiles = INTS.reshape(4, 16)
    assert np.array_equal(sums, tiles.sum(axis=1).repeat(16))
    third = np.arange(64) % 3 == 0
    assert np.array_equal(scans[~third], tiles.cumsum(axis=1).ravel()[~third])
    for warp in range(2):
        lanes = third & (np.arange(64) // 32 == warp)
        assert (scans[lanes] == 1000 * lanes.sum() + INTS[lanes].max()).all()


@slow
def test_copies_of_a_group() -> None:
    source = """
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
namespace cg = cooperative_groups;
extern "C" __global__ void k(int* x) {
  __shared__ int tile[64];
  auto block = cg::this_thread_block();
  cg::memcpy_async(block, tile, x, sizeof(tile));
  cg::wait(block);
  x[threadIdx.x] = tile[63 - threadIdx.x];
}
"""
    (got,) = clean(source, INTS)
    assert np.array_equal(got, INTS[::-1])


# -- libcu++ -----------------------------------------------------------------------------------


@slow
def test_cuda_barrier() -> None:
    source = """
#include <cuda/barrier>
extern "C" __global__ void k(int* x) {
  __shared__ cuda::barrier<cuda::thread_scope_block> bar;
  __shared__ int tile[64];
  if (threadIdx.x == 0) init(&bar, blockDim.x);
  __syncthreads();
  tile[threadIdx.x] = x[threadIdx.x];
  bar.arrive_and_wait();
  x[threadIdx.x] = tile[63 - threadIdx.x];
}
"""
    (got,) = clean(source, INTS)
    assert np.array_equal(got, INTS[::-1])


@slow
def test_cuda_barrier_with_a_bulk_copy() -> None:
    source = """
#include <cuda/barrier>
#include <cuda/std/utility>
using barrier = cuda::barrier<cuda::thread_scope_block>;
namespace ex = cuda::device::experimental;
extern "C" __global__ void k(int* x) {
  __shared__ alignas(16) int tile[64];
  __shared__ barrier bar;
  if (threadIdx.x == 0) {
    init(&bar, blockDim.x);
    ex::fence_proxy_async_shared_cta();
  }
  __syncthreads();
  barrier::arrival_token token;
  if (threadIdx.x == 0) {
    ex::cp_async_bulk_global_to_shared(tile, x, sizeof(tile), bar);
    token = cuda::device::barrier_arrive_tx(bar, 1, sizeof(tile));
  } else {
    token = bar.arrive();
  }
  bar.wait(cuda::std::move(token));
  x[threadIdx.x] = tile[63 - threadIdx.x];
}
"""
    (got,), _ = run(source, INTS, arch="sm_90", races=False)
    assert np.array_equal(got, INTS[::-1])


@slow
def test_cuda_pipeline() -> None:
    source = """
#include <cuda/pipeline>
#include <cooperative_groups.h>
extern "C" __global__ void k(int* x) {
  __shared__ int tiles[2][64];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  auto block = cooperative_groups::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state);
  for (int i = 0; i < 2; ++i) {
    pipe.producer_acquire();
    cuda::memcpy_async(block, tiles[i], x + i * 64, sizeof(tiles[i]), pipe);
    pipe.producer_commit();
  }
  int sum = 0;
  for (int i = 0; i < 2; ++i) {
    pipe.consumer_wait();
    sum += tiles[i][63 - threadIdx.x] * (i + 1);
    pipe.consumer_release();
  }
  x[threadIdx.x] = sum;
}
"""
    (got,), _ = run(source, np.concatenate([INTS, INTS * 3]), races=False)
    assert np.array_equal(got[:64], INTS[::-1] * 7)


@pytest.mark.slow
def test_cuda_atomic_ref() -> None:
    source = """
#include <cuda/atomic>
extern "C" __global__ void k(int* x, float* f) {
  cuda::atomic_ref<int, cuda::thread_scope_device> a(x[0]), b(x[1]), c(x[2]), d(x[3]);
  a.fetch_add(threadIdx.x, cuda::memory_order_relaxed);
  b.fetch_xor(threadIdx.x, cuda::memory_order_acq_rel);
  c.fetch_max(threadIdx.x * 5 % 64);
  cuda::atomic_ref<float, cuda::thread_scope_device> g(*f);
  g.fetch_add(0.5f);
  int old = d.load(cuda::memory_order_acquire);
  while (!d.compare_exchange_weak(old, old * 3 + 1));
}
"""
    x, f = clean(source, np.zeros(4, np.int32), np.zeros(1, np.float32))
    assert x[:3].tolist() == [63 * 32, 0, 63]
    with np.errstate(over="ignore"):
        d = np.int32(0)
        for _ in range(64):
            d = d * np.int32(3) + np.int32(1)
    assert (x[3], f[0]) == (d, 32)


@slow
def test_a_semaphore_and_a_latch() -> None:
    source = """
#include <cuda/semaphore>
#include <cuda/latch>
using Semaphore = cuda::binary_semaphore<cuda::thread_scope_block>;
using Latch = cuda::latch<cuda::thread_scope_block>;
extern "C" __global__ void k(int* x) {
  __shared__ alignas(Semaphore) char s[sizeof(Semaphore)];
  __shared__ alignas(Latch) char l[sizeof(Latch)];
  auto& semaphore = *reinterpret_cast<Semaphore*>(s);
  auto& latch = *reinterpret_cast<Latch*>(l);
  if (threadIdx.x == 0) {
    new (&semaphore) Semaphore(1);
    new (&latch) Latch(blockDim.x);
  }
  __syncthreads();
  semaphore.acquire();
  *(volatile int*)x = *(volatile int*)x + 1;
  semaphore.release();
  latch.arrive_and_wait();
  if (threadIdx.x == 5) x[1] = *(volatile int*)x;
}
"""
    (got,), report = run(source, np.zeros(2, np.int32), races=False)
    assert not report.findings
    assert got.tolist() == [64, 64]


# -- numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["sm_80", "sm_89"])
def test_fp8(arch: str) -> None:
    source = """
#include <cuda_fp8.h>
extern "C" __global__ void k(const float* x, float* y, unsigned char* z) {
  const int i = threadIdx.x;
  __nv_fp8_e4m3 a(x[i]);
  __nv_fp8_e5m2 b(x[i]);
  const float2 pair = float2(__nv_fp8x2_e4m3(make_float2(x[i], -x[i])));
  y[i] = float(a) + 2 * float(b) + pair.x * pair.y;
  z[i] = a.__x;
}
"""
    x = np.linspace(-9, 9, 64).astype(np.float32)
    _, y, z = clean(source, x, x * 0, np.zeros(64, np.uint8), arch=arch)
    a, b = (x.astype(t) for t in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2))
    assert np.array_equal(z.view(a.dtype), a)
    a, b = a.astype(np.float32), b.astype(np.float32)
    assert np.array_equal(y, a + 2 * b - a * a)


def test_integer_intrinsics() -> None:
    source = """
extern "C" __global__ void k(const int* x, int* y) {
  const int v = x[threadIdx.x], i = threadIdx.x;
  int* out = y + 9 * i;
  out[0] = __ffs(v); out[1] = __clz(v); out[2] = __popc(v); out[3] = __byte_perm(v, i, 0x1634);
  out[4] = __fns(v, 0, 2); out[5] = __vadd2(v, i); out[6] = __vmaxs2(v, i);
  out[7] = __dp4a(v, i, 1); out[8] = __dp2a_lo(v, i, 3);
}
"""
    x = np.random.default_rng(3).integers(-(2**31), 2**31, 64).astype(np.int32)
    _, y = clean(source, x, np.zeros(64 * 9, np.int32))
    y = y.reshape(64, 9)
    for i, (value, row) in enumerate(zip(x.tolist(), y, strict=True)):
        bits = f"{value & 0xFFFFFFFF:032b}"
        ones = [at for at in range(32) if bits[31 - at] == "1"]
        assert row[:3].tolist() == [ones[0] + 1, bits.index("1"), len(ones)]
        pair = np.array([value, i], np.int32)
        b, s, h = pair.view(np.uint8), pair.view(np.int8).astype(int), pair.view(np.int16)
        assert row[3:4].view(np.uint8).tolist() == [b[4], b[3], b[6], b[1]]
        assert row[4] == ones[1]
        assert np.array_equal(row[5:6].view(np.int16), h[:2] + h[2:])
        assert np.array_equal(row[6:7].view(np.int16), np.maximum(h[:2], h[2:]))
        assert row[7] == (s[:4] * s[4:]).sum() + 1
        assert row[8] == (h[:2].astype(int) * s[4:6]).sum() + 3


def test_atomics_of_vectors_and_halves() -> None:
    source = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void k(half2* a, __nv_bfloat162* b, half* c, float4* e, float2* f, half2* g) {
  atomicAdd(a, half2{1, 2});
  atomicAdd(b, __nv_bfloat162{1, 2});
  atomicAdd(c, half(1));
  atomicAdd(e, make_float4(1, 2, 3, threadIdx.x));
  const float2 old = atomicAdd(f, make_float2(1, 2));
  if (old.y != 2 * old.x) f[1].x = 1;
  asm volatile("red.global.max.noftz.v2.f16x2 [%0], {%1, %1};"
               :: "l"(g), "r"(0x3C00 + threadIdx.x));
}
"""
    half, bf16 = np.float16, ml_dtypes.bfloat16
    arrays = [np.zeros(2, half), np.zeros(2, bf16), np.zeros(1, half), np.zeros(4, np.float32),
              np.zeros(4, np.float32), np.zeros(4, half)]  # fmt: skip
    a, b, c, e, f, g = clean(source, *arrays, arch="sm_90")
    assert a.tolist() == b.tolist() == [64, 128]
    assert c[0] == 64
    assert e.tolist() == [64, 128, 192, 63 * 32]
    assert f.tolist() == [64, 128, 0, 0]
    assert g.view(np.uint16).tolist() == [0x3C00 + 63, 0] * 2


def test_atomics_of_128_bits() -> None:
    source = """
struct alignas(16) Pair { long long a, b; };
extern "C" __global__ void k(Pair* x, Pair* last) {
  Pair old = *x, seen;
  do {
    seen = old;
    old = atomicCAS(x, seen, Pair{seen.a + 1, seen.b - threadIdx.x});
  } while (old.a != seen.a || old.b != seen.b);
  const Pair before = atomicExch(last, Pair{threadIdx.x, -1});
  if (before.b != -(threadIdx.x > 0)) last[1].a = 1;
}
"""
    start = np.array([-5, 0x7FF8000000000001], np.int64)  # bits of a NaN
    x, last = clean(source, start, np.zeros(4, np.int64), arch="sm_90", races=False)
    assert x.tolist() == [59, 0x7FF8000000000001 - 63 * 32]
    assert last.tolist() == [63, -1, 0, 0]


def test_hints_to_caches_change_nothing() -> None:
    source = """
extern "C" __global__ void k(int* x, int* y) {
  unsigned long long policy, range;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("createpolicy.range.L2::evict_last.L2::evict_unchanged.b64 %0, [%1], 64, 128;"
               : "=l"(range) : "l"(x));
  int a, b;
  int* mine = x + threadIdx.x;
  asm volatile("prefetch.global.L2::evict_last [%0];" :: "l"(mine));
  asm volatile("prefetch.global.L1 [%0];" :: "l"(mine));
  asm volatile("ld.global.L1::no_allocate.L2::cache_hint.b32 %0, [%1], %2;"
               : "=r"(a) : "l"(mine), "l"(policy));
  asm volatile("ld.global.nc.L1::evict_last.L2::128B.b32 %0, [%1];" : "=r"(b) : "l"(mine));
  asm volatile("st.global.L2::cache_hint.b32 [%0], %1, %2;"
               :: "l"(y + threadIdx.x), "r"(a + b + __ldcg(mine)), "l"(policy));
  asm volatile("red.global.add.L2::cache_hint.u32 [%0], %1, %2;"
               :: "l"(y + threadIdx.x), "r"(1), "l"(range));
  __nanosleep(100);
}
"""
    _, y = clean(source, INTS, INTS * 0, arch="sm_90")
    assert np.array_equal(y, INTS * 3 + 1)


def test_special_registers() -> None:
    names = {
        "nsmid": 1, "smid": 0, "warpid": [1, 2], "laneid": range(32), "dynamic_smem_size": 0,
        "total_smem_size": 16, "aggr_smem_size": 16, "reserved_smem_offset_1": 0, "envreg3": 0,
        "lanemask_lt": [(1 << i) - 1 for i in range(32)], "is_explicit_cluster": 0,
    }  # fmt: skip
    del names["is_explicit_cluster"]
    reads = "\n".join(
        f'  asm volatile("mov.u32 %0, %%{name};" : "=r"(r)); out[{at * 64} + threadIdx.x] = r;'
        for at, name in enumerate(names)
    )
    source = f"""
extern "C" __global__ void k(unsigned* out) {{
  __shared__ volatile int4 used;
  used.x = 1;
  unsigned r;
{reads}
  unsigned long long q;
  asm volatile("mov.u64 %0, %%gridid;" : "=l"(q));
  if (q != 1) out[0] = 99;
}}
"""
    (out,), _ = run(source, np.zeros(64 * len(names), np.uint32), races=False, arch="sm_90")
    for row, (name, value) in zip(out.reshape(-1, 64), names.items(), strict=True):
        want = np.repeat(value, 32) if name == "warpid" else np.resize(value, 64)
        assert np.array_equal(row, want), name


def test_votes_of_warps_and_blocks() -> None:
    source = """
extern "C" __global__ void k(int* x, int* y) {
  const int v = x[threadIdx.x];
  const unsigned all = ~0u;
  int same;
  int* out = y + 12 * threadIdx.x;
  out[0] = __all_sync(all, v > -10); out[1] = __any_sync(all, v == 99);
  out[2] = __ballot_sync(all, v > 5); out[3] = __match_any_sync(all, v & 3);
  out[4] = __match_all_sync(all, 7, &same); out[5] = same;
  out[6] = __reduce_add_sync(all, v); out[7] = __reduce_xor_sync(all, (unsigned)v);
  out[8] = __syncthreads_count(v > 0); out[9] = __syncthreads_or(v == 3);
  out[10] = __activemask(); out[11] = __shfl_up_sync(all, v, 1);
}
"""
    _, y = clean(source, INTS, np.zeros(64 * 12, np.int32))
    y = y.reshape(64, 12)
    for i, row in enumerate(y):
        warp, lane = INTS[i // 32 * 32 :][:32], i % 32

        def word(bits: np.ndarray) -> int:
            return int(np.packbits(bits, bitorder="little").view(np.int32)[0])

        assert row[:6].tolist() == [
            1, 0, word(warp > 5), word(warp & 3 == INTS[i] & 3), -1, 1
        ]  # fmt: skip
        assert row[6:8].tolist() == [warp.sum(), np.bitwise_xor.reduce(warp)]
        assert row[8:10].tolist() == [(INTS > 0).sum(), int((INTS == 3).any())]
        assert row[10:].tolist() == [-1, warp[max(lane - 1, 0)]]


@slow
def test_cub() -> None:
    source = """
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
using Reduce = cub::BlockReduce<int, 64>;
using Scan = cub::BlockScan<int, 64>;
using Sort = cub::BlockRadixSort<int, 64, 1>;
extern "C" __global__ void k(int* x, int* y) {
  __shared__ union {
    typename Reduce::TempStorage reduce;
    typename Scan::TempStorage scan;
    typename Sort::TempStorage sort;
  } temp;
  int keys[1] = {x[threadIdx.x]};
  const int sum = Reduce(temp.reduce).Sum(keys[0]);
  __syncthreads();
  int prefix;
  Scan(temp.scan).InclusiveSum(keys[0], prefix);
  __syncthreads();
  Sort(temp.sort).Sort(keys);
  x[threadIdx.x] = keys[0];
  y[threadIdx.x] = prefix;
  if (threadIdx.x == 0) y[64] = sum;
}
"""
    x, y = clean(source, INTS, np.zeros(65, np.int32))
    assert np.array_equal(x, np.sort(INTS))
    assert np.array_equal(y, [*INTS.cumsum(), INTS.sum()])


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "typedef int (*F)(int); __device__ int f(int x) { return x + 1; }\n"
            "__device__ int g(int x) { return x * 2; }\n__device__ F table[2] = {f, g};\n"
            'extern "C" __global__ void k(int* x) { x[0] = table[x[1]](x[2]); }',
            "function pointers and virtual functions.*CUDA line 4",
        ),
        (
            'extern "C" __global__ void k(unsigned long long t, float* x) {\n'
            "  x[0] = tex1Dfetch<float>(t, 3);\n}",
            r"texture or surface instruction.*tex\.1d.*CUDA line 2",
        ),
        (
            'extern "C" __global__ void k(unsigned long long t, float* x) {\n'
            "  x[0] = surf2Dread<float>(t, 3, 0);\n}",
            r"texture or surface instruction.*suld.*CUDA line 2",
        ),
        (
            'extern "C" __global__ void k(int* x) {\n'
            '  asm volatile("vadd.s32.s32.s32 %0, %0, %0;" : "+r"(x[0]));\n}',
            r"video instruction.*vadd\.s32.*CUDA line 2",
        ),
    ],
)
def test_refusals_name_the_instruction(code: str, message: str) -> None:
    with pytest.raises(CheckError, match=f"(?s){message}"):
        run(code, np.zeros(4, np.int32), np.zeros(4, np.int32))
