"""Threads that wait for memory to change: locks, semaphores, look-back, and blocks in turns."""

from __future__ import annotations

import numpy as np
import pytest

from gen.compile.nvrtc import compile_cuda
from gen.emulator import Emulator, GlobalRaces, LaunchReport, SharedRaces, UninitializedReads
from gen.emulator.run.turns import cut, resident_blocks
from tests.support.slow import slow

Outcome = tuple[list[np.ndarray], LaunchReport]


def run(
    source: str, grid: int, block: int, *arrays: np.ndarray, emulator: Emulator | None = None,
    checks: tuple[type, ...] = (SharedRaces, GlobalRaces), arch: str = "sm_80",
) -> Outcome:  # fmt: skip
    """Run the kernel `k` on copies of the arrays, called a, b, ...; how they end up."""
    ptx = compile_cuda(source, arch=arch, format="ptx").code.decode()
    emulator = emulator or Emulator(instruction_budget=20_000_000)
    args = [emulator.alloc(array, name) for array, name in zip(arrays, "abcd", strict=False)]
    report = emulator.launch(
        ptx, "k", (grid, 1, 1), (block, 1, 1), args, observers=[check() for check in checks],
        source_lines=source.splitlines(),
    )  # fmt: skip
    return [emulator.read(arg) for arg in args], report


def zeros(count: int = 1) -> np.ndarray:
    return np.zeros(count, np.int32)


# Whether blocks of a chunk or of different chunks, and how many at a time.
EMULATORS = [{}, {"chunk_threads": 64}, {"chunk_threads": 64, "resident_blocks": 3}]


@pytest.fixture(params=EMULATORS, ids=["one chunk", "chunks", "three resident"])
def emulator(request: pytest.FixtureRequest) -> Emulator:
    return Emulator(instruction_budget=20_000_000, **request.param)


SPIN_LOCK = """
extern "C" __global__ void k(int* lock, int* count) {
  while (atomicCAS(lock, 0, 1) != 0);
  __threadfence();
  *(volatile int*)count = *(volatile int*)count + 1;
  __threadfence();
  atomicExch(lock, 0);
}
"""


@pytest.mark.slow
def test_a_spin_lock_within_warps_and_between_blocks_ends(emulator: Emulator) -> None:
    (lock, count), report = run(SPIN_LOCK, 5, 40, zeros(), zeros(), emulator=emulator)
    assert not report.findings
    assert (lock[0], count[0]) == (0, 200)


# As CUTLASS's serial split-K: a block waits until the lock names its slice.
SEMAPHORE = """
extern "C" __global__ void k(int* lock, float* sum, int* order) {
  const int slice = blockIdx.x;
  int state = -1;
  while (__syncthreads_and(state != slice)) {
    if (threadIdx.x == 0)
      asm volatile("ld.global.acquire.gpu.b32 %0, [%1];" : "=r"(state) : "l"(lock) : "memory");
  }
  __syncthreads();
  sum[threadIdx.x] += float(slice) + threadIdx.x;
  if (threadIdx.x == 0) order[slice] = lock[0];
  __syncthreads();
  if (threadIdx.x == 0)
    asm volatile("st.global.release.gpu.b32 [%0], %1;" :: "l"(lock), "r"(slice + 1));
}
"""


def test_slices_of_split_k_add_in_order(emulator: Emulator) -> None:
    (lock, total, order), report = run(
        SEMAPHORE, 9, 64, zeros(), np.zeros(64, np.float32), zeros(9), emulator=emulator
    )
    assert not report.findings
    assert lock[0] == 9
    assert (order == range(9)).all()
    assert (total == 36 + 9 * np.arange(64)).all()


def test_waiting_for_a_later_block_that_cannot_start_is_explained() -> None:
    source = """
extern "C" __global__ void k(volatile int* flags, int* out) {
  if (blockIdx.x == gridDim.x - 1) flags[0] = 1;
  while (flags[0] == 0);
  if (threadIdx.x == 0) out[blockIdx.x] = 1;
}
"""
    few = Emulator(resident_blocks=8)
    (_, out), report = run(source, 9, 32, zeros(), zeros(9), emulator=few)
    assert not out.any()
    (finding,) = report.findings
    assert (finding.check, finding.file_line, finding.address) == ("synccheck", 4, "a+0 of 4")
    assert "256 threads of 8 blocks wait for the 4 bytes at a+0 of 4" in finding.message
    assert "block (8,0,0) cannot start before one of the 8 resident blocks" in finding.message
    for room in (9, None):
        (_, out), report = run(
            source, 9, 32, zeros(), zeros(9), emulator=Emulator(64, 64, resident_blocks=room)
        )
        assert not report.findings
        assert out.all()


def test_blocks_start_one_by_one_as_others_end() -> None:
    """Block 0 waits for the last one; the others come and go beside it."""
    source = """
extern "C" __global__ void k(volatile int* flag, int* out) {
  if (blockIdx.x == 0) while (flag[0] == 0);
  if (blockIdx.x == gridDim.x - 1) flag[0] = 1;
  if (threadIdx.x == 0) out[blockIdx.x] = 1;
}
"""
    (_, out), report = run(source, 11, 32, zeros(), zeros(11), emulator=Emulator(resident_blocks=2))
    assert not report.findings
    assert out.all()


def test_a_deadlock_names_address_line_and_threads() -> None:
    source = """
__device__ int ready[4];
extern "C" __global__ void k(int* out) {
  if (threadIdx.x < 40) {
    while (atomicAdd(&ready[2], 0) == 0) __nanosleep(100);
  }
  out[threadIdx.x] = 1;
}
"""
    (out,), report = run(source, 1, 64, zeros(64))
    (finding,) = report.findings
    assert finding.file_line == 5
    assert finding.message.startswith("deadlock: 40 threads wait for the 4 bytes at ready+8 of 16")
    assert "no block that runs changes" in finding.message
    assert out[40:].all()
    assert not out[:40].any()


def test_a_warp_that_waits_for_another_through_shared_memory() -> None:
    source = """
extern "C" __global__ void k(int* out) {
  __shared__ volatile int ready;
  __shared__ int value;
  if (threadIdx.x == 0) ready = 0;
  __syncthreads();
  if (threadIdx.x < 32) {
    while (ready == 0);
    __threadfence_block();
    out[threadIdx.x] = *(volatile int*)&value;
  } else if (threadIdx.x == 63) {
    *(volatile int*)&value = 42;
    __threadfence_block();
    ready = 1;
  }
}
"""
    (out,), report = run(source, 3, 64, zeros(32), checks=())
    assert not report.findings
    assert (out == 42).all()


@slow
def test_a_wait_with_a_limit_gives_up_and_lets_other_blocks_run() -> None:
    """The counter changes in every round: no deadlock, and no reason to wait for ever."""
    source = """
extern "C" __global__ void k(volatile int* flag, int* out) {
  int tries = 0;
  if (blockIdx.x < 3) {
    while (flag[0] == 0 && tries < 3000) ++tries;
  } else {
    flag[0] = 1;
  }
  if (threadIdx.x == 0) out[blockIdx.x] = tries;
}
"""
    small = Emulator(chunk_threads=32)
    (_, out), report = run(source, 4, 32, zeros(), zeros(4), emulator=small)
    assert not report.findings
    assert (out[:3] < 3000).all()
    (_, out), _ = run(source, 3, 32, zeros(), zeros(4), emulator=Emulator(chunk_threads=32))
    assert (out[:3] == 3000).all()


def test_a_wait_for_a_clock_ends() -> None:
    source = """
extern "C" __global__ void k(volatile int* flag, long long* ticks) {
  const long long start = clock64();
  while (flag[0] == 0 && clock64() - start < 200000000);
  ticks[0] = clock64() - start;
}
"""
    (_, ticks), report = run(source, 1, 1, zeros(), np.zeros(1, np.int64), emulator=Emulator())
    assert not report.findings
    assert ticks[0] >= 200_000_000


@slow
def test_copies_land_for_lanes_that_look_at_an_mbarrier_and_at_memory() -> None:
    source = """
#include <cuda/barrier>
using barrier = cuda::barrier<cuda::thread_scope_block>;
namespace ex = cuda::device::experimental;
extern "C" __global__ void k(int* x, volatile int* cancelled, int* out) {
  __shared__ alignas(16) int tile[32];
  __shared__ barrier bar;
  if (threadIdx.x == 0) {
    init(&bar, 1);
    ex::fence_proxy_async_shared_cta();
    ex::cp_async_bulk_global_to_shared(tile, x, sizeof(tile), bar);
    auto token = cuda::device::barrier_arrive_tx(bar, 1, sizeof(tile));
  }
  __syncthreads();
  const unsigned at = __cvta_generic_to_shared(cuda::device::barrier_native_handle(bar));
  int done = 0;
  while (!done && !cancelled[0]) {
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0;"
                 "selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(at) : "memory");
  }
  out[threadIdx.x] = tile[threadIdx.x];
}
"""
    values = np.arange(32, dtype=np.int32)
    (_, _, out), report = run(
        source, 1, 32, values, zeros(), zeros(32), checks=(), arch="sm_90"
    )  # fmt: skip
    assert not report.findings
    assert (out == values).all()


# The single-pass scan of Merrill and Garland: a block adds up what those before it have published.
LOOK_BACK = """
struct alignas(8) Tile { int state, value; };
__device__ void publish(Tile* at, int state, int value) {
  asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};"
               :: "l"(at), "r"(state), "r"(value) : "memory");
}
__device__ Tile look(Tile* at) {
  Tile tile;
  asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];"
               : "=r"(tile.state), "=r"(tile.value) : "l"(at) : "memory");
  return tile;
}
extern "C" __global__ void k(const int* in, int* out, Tile* tiles, int* ticket) {
  __shared__ int block, sums[2], before;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x == 0) block = atomicAdd(ticket, 1);
  __syncthreads();
  const int at = block * 64 + threadIdx.x;
  int sum = in[at];
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(~0u, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == 31) sums[warp] = sum;
  __syncthreads();
  if (warp == 1) sum += sums[0];
  const int total = sums[0] + sums[1];
  if (warp == 0) {
    if (lane == 0) publish(tiles + block, block ? 1 : 2, total);
    int prefix = 0;
    for (int first = block - 1; block && first > -32; first -= 32) {
      Tile tile = {2, 0};
      do {
        if (first - lane >= 0) tile = look(tiles + first - lane);
      } while (__any_sync(~0u, tile.state == 0));
      const unsigned done = __ballot_sync(~0u, tile.state == 2);
      const int last = done ? __ffs(done) - 1 : 31;
      prefix += __reduce_add_sync(~0u, lane <= last ? tile.value : 0);
      if (done) break;
    }
    if (lane == 0) {
      before = prefix;
      if (block) publish(tiles + block, 2, prefix + total);
    }
  }
  __syncthreads();
  out[at] = sum + before;
}
"""


def test_decoupled_look_back(emulator: Emulator) -> None:
    values = np.random.default_rng(1).integers(-9, 99, 40 * 64).astype(np.int32)
    (_, out, *_), report = run(
        LOOK_BACK, 40, 64, values, np.zeros_like(values), zeros(80), zeros(), emulator=emulator,
        checks=(SharedRaces, UninitializedReads),
    )  # fmt: skip
    assert not report.findings
    assert (out == values.cumsum()).all()


def test_lanes_of_a_warp_wait_for_lanes_at_a_partial_shuffle() -> None:
    source = """
extern "C" __global__ void k(volatile int* flag, int* out) {
  int value = threadIdx.x;
  if (threadIdx.x < 16) {
    value = __shfl_xor_sync(0xffff, value, 1);
    if (threadIdx.x == 0) flag[0] = 7;
  } else {
    while (flag[0] == 0);
  }
  out[threadIdx.x] = value;
}
"""
    (_, out), report = run(source, 1, 32, zeros(), zeros(32))
    assert not report.findings
    assert (out == [*(i ^ 1 for i in range(16)), *range(16, 32)]).all()


def test_a_histogram_whose_loop_has_atomics_is_not_disturbed() -> None:
    source = """
extern "C" __global__ void k(const int* in, int* bins) {
  for (int i = threadIdx.x; i < 1000; i += blockDim.x) atomicAdd(&bins[in[i]], 1);
}
"""
    values = np.random.default_rng(2).integers(0, 7, 1000).astype(np.int32)
    (_, bins), report = run(source, 1, 96, values, zeros(7))
    assert not report.findings
    assert (bins == np.bincount(values, minlength=7)).all()


@pytest.mark.parametrize("room", [1, 2, 3, 5, 7, 12, 23, 24, 99])
def test_boxes_are_cut_in_the_order_of_blocks(room: int) -> None:
    def numbers(box: tuple) -> list[int]:
        (x, y, z), (dx, dy, dz) = box
        return [
            (c * 3 + b) * 4 + a
            for c in range(z, z + dz) for b in range(y, y + dy) for a in range(x, x + dx)
        ]  # fmt: skip

    rest, seen = [((0, 0, 0), (4, 3, 2))], []
    while rest:
        first, *more = cut(rest.pop(0), room)
        assert len(numbers(first)) <= room
        seen += numbers(first)
        rest = more + rest
    assert seen == list(range(24))


def test_resident_blocks() -> None:
    assert resident_blocks(1024, 0) == 132 * 2
    assert resident_blocks(32, 0) == 132 * 32
    assert resident_blocks(128, 100 * 1024) == 132 * 2
    assert resident_blocks(33, 227 * 1024) == 132


def test_a_loop_that_nothing_ends() -> None:
    """The compiler reads a flag once, since it is not volatile: one thread hangs, and its block."""
    source = """extern "C" __global__ void k(int* flag, int* out) {
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    while (flag[0] == 0) {
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = 1;
}
"""
    (_, out), report = run(source, 2, 64, zeros(), zeros(2))
    (finding,) = report.findings
    assert finding.check == "synccheck"
    assert finding.file_line == 3
    assert finding.threads == ((0, 0, 0),)
    assert "endless loop: 1 thread runs a loop that nothing ends" in finding.message
    assert out.tolist() == [0, 1]
    (_, out), report = run(source, 2, 64, zeros() + 1, zeros(2))
    assert (report.findings, out.tolist()) == ([], [1, 1])
