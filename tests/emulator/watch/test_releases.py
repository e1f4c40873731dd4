"""What a release and an acquire order between blocks, and what nothing does."""

from __future__ import annotations

import numpy as np
import pytest

from gen.compile.nvrtc import compile_cuda
from gen.emulator import Emulator, GlobalRaces
from gen.emulator.watch.releases import Place, Releases

# Block 0 hands a number of each thread over; block 1 reads them, and may answer.
_SOURCE = """
extern "C" __global__ void hand_over(float* data, int* flags) {
  const auto set = [&](int* flag) {
    asm volatile("st.release.gpu.global.s32 [%0], 1;" ::"l"(flag) : "memory");
  };
  const auto wait_for = [&](int* flag) {
    int set = 0;
    while (!set) {
      asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(set) : "l"(flag) : "memory");
    }
  };
  if (blockIdx.x == 0) {
    data[threadIdx.x] = threadIdx.x;
    __syncthreads();
    if (threadIdx.x == 0) set(flags);
    wait_for(flags + 1);
    data[threadIdx.x] = 0;
  } else {
    wait_for(flags);
    data[64 + threadIdx.x] = data[63 - threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) set(flags + 1);
  }
}
"""


def kinds(text: str) -> set[str]:
    """The races of the two blocks, as "RAW" and so on, whichever block comes first."""
    ptx = compile_cuda(text, name="hand_over.cu", arch="sm_90", format="ptx").code.decode()
    found = set()
    for chunk_threads in (1 << 16, 64):  # both blocks in lockstep, one after the other
        emulator = Emulator(chunk_threads=chunk_threads)
        data = emulator.alloc(np.zeros(128, np.float32), "data")
        flags = emulator.alloc(np.zeros(2, np.int32), "flags")
        report = emulator.launch(
            ptx, "hand_over", (2, 1, 1), (64, 1, 1), [data, flags], observers=[GlobalRaces()]
        )
        found |= {finding.kind for finding in report.findings}
    return found


def test_what_was_released_before_is_seen() -> None:
    assert kinds(_SOURCE) == set()


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("    wait_for(flags);\n", "", "RAW"),  # nobody waits
        ("    wait_for(flags + 1);\n", "", "RAW"),  # what was read is overwritten
        # A thread shows its own number, and no others.
        ("threadIdx.x;\n    __syncthreads();", "threadIdx.x;", "RAW"),
        ("__syncthreads();\n    if (threadIdx.x == 0) set(flags);", "set(flags);", "RAW"),
        ("st.release.gpu", "st.relaxed.gpu", "RAW"),
        ("ld.acquire.gpu", "ld.relaxed.gpu", "RAW"),
        ("st.release.gpu", "st.release.cta", "RAW"),  # shows nothing to another block
        ("ld.acquire.gpu", "ld.acquire.cta", "RAW"),
    ],
)
def test_what_nothing_orders(old: str, new: str, kind: str) -> None:
    assert _SOURCE.count(old) == 1
    assert kind in kinds(_SOURCE.replace(old, new))


def test_a_block_sees_what_it_releases_to_itself() -> None:
    """Its scope is enough for one half of a block to wait for the other."""
    text = """
    extern "C" __global__ void hand_over(float* data, int* flags) {
      int* flag = flags + blockIdx.x, half = 0;
      float* own = data + 64 * blockIdx.x;
      if (threadIdx.x == 0) {
        own[0] = 3;
        asm volatile("st.release.cta.global.s32 [%0], 1;" ::"l"(flag) : "memory");
      } else if (threadIdx.x == 32) {
        while (!half)
          asm volatile("ld.acquire.SCOPE.global.s32 %0, [%1];" : "=r"(half) : "l"(flag) : "memory");
        own[1] = own[0];
      }
    }
    """
    for scope in ("cta", "gpu"):
        assert kinds(text.replace("SCOPE", scope)) == set()
    assert "RAW" in kinds(text.replace("SCOPE", "cta").replace("st.release", "st.relaxed"))


def test_what_a_block_has_seen_it_shows() -> None:
    """Three blocks in a row; barriers of a warp order less than those of a block."""
    releases = Releases(1024)
    releases.release(Place("flags", 0), 5, epoch=3, block_epoch=1)
    releases.acquire(Place("flags", 0), 1 * 1024)
    releases.release(Place("flags", 1), 1024, epoch=7, block_epoch=7)
    releases.acquire(Place("flags", 1), 2 * 1024)
    tried = (
        (5, 3, True), (5, 4, False),  # what the thread did itself
        (9, 2, True), (9, 3, False),  # its warp
        (40, 0, True), (40, 1, False),  # its block
        (1030, 6, True), (1030, 7, False),
    )  # fmt: skip
    writers, epochs, seen = (np.array(of) for of in zip(*tried, strict=True))
    readers = np.full(len(tried), 2048)
    assert releases.ordered(readers, writers, epochs).tolist() == seen.tolist()
    assert releases.met(readers[:2], np.array([5, 3 * 1024])).tolist() == [True, False]


# Block 0 hands data over by a flag; the rest of the blocks wait for it.
_FENCES = """
extern "C" __global__ void hand_over(float* data, volatile int* flags) {
  if (blockIdx.x == 0) {
    data[threadIdx.x] = threadIdx.x;
    __syncthreads();
    __threadfence();
    if (threadIdx.x == 0) flags[0] = 1;
  } else {
    if (threadIdx.x == 0) {
      while (flags[0] == 0) {
      }
      __threadfence();
    }
    __syncthreads();
    data[64 + threadIdx.x] = data[63 - threadIdx.x];
  }
}
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # Each thread has a fence, then they meet, and one of them sets the flag.
        ("__syncthreads();\n    __threadfence();", "__threadfence();\n    __syncthreads();"),
        ("__threadfence();\n    if", "__threadfence_system();\n    if"),
        ("flags[0] = 1;", "atomicAdd((int*)flags, 1);"),
        ("while (flags[0] == 0)", "while (atomicAdd((int*)flags, 0) == 0)"),
        ("while (flags[0] == 0)", "while (__ldcg((const int*)flags) == 0)"),
    ],
)
def test_what_fences_order(old: str, new: str) -> None:
    assert _FENCES.count(old) == 1
    assert kinds(_FENCES) == set()
    assert kinds(_FENCES.replace(old, new)) == set()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    __threadfence();\n    if", "    if"),  # nothing releases
        ("      __threadfence();\n", ""),  # nothing acquires
        ("    __threadfence();\n    if", "    __threadfence_block();\n    if"),
        ("    __syncthreads();\n    __thr", "    __thr"),  # thread 0 shows what it did itself
        ("while (flags[0] == 0)", "while (flags[1] != 0)"),  # another flag
        ("flags[0] = 1;", "*(int*)flags = 1;"),  # no store that a thread may wait for
    ],
)
def test_what_fences_do_not_order(old: str, new: str) -> None:
    assert _FENCES.count(old) == 1
    assert "RAW" in kinds(_FENCES.replace(old, new))


# The last block that takes a ticket adds up what the others have left, and makes it ready again.
_TICKETS = """
__device__ int taken;
extern "C" __global__ void hand_over(float* data, int* unused) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    data[blockIdx.x] = blockIdx.x;
    __threadfence();
    last = atomicAdd(&taken, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    data[2] = data[0] + data[1];
    taken = 0;
  }
}
"""


def test_the_last_block_sees_all_others() -> None:
    assert kinds(_TICKETS) == set()
    assert {"RAW", "WAW"} <= kinds(_TICKETS.replace("    __threadfence();\n", ""))
    assert "RAW" in kinds(_TICKETS.replace("gridDim.x - 1", "gridDim.x - 2"))


# Blocks add to a sum in turns.
_LOCK = """
__device__ int lock;
extern "C" __global__ void hand_over(float* data, int* unused) {
  if (threadIdx.x == 0) {
    while (atomicCAS(&lock, 0, 1) != 0) {
    }
    __threadfence();
    data[0] += 1;
    __threadfence();
    atomicExch(&lock, 0);
  }
}
"""


def test_a_lock_orders_who_holds_it() -> None:
    assert kinds(_LOCK) == set()
    assert "RAW" in kinds(_LOCK.replace("    __threadfence();\n    atomicExch", "    atomicExch"))
    assert "WAW" in kinds(_LOCK.replace("atomicExch(&lock, 0)", "lock = 0"))


def test_an_atomic_keeps_what_others_have_shown() -> None:
    releases, place = Releases(1024), Place("flags", 0)
    releases.release(place, 0, epoch=1, block_epoch=1, adds=True)
    releases.write(place, 1024, adds=True)  # without a fence
    releases.acquire(place, 2 * 1024)
    assert releases.met(np.array([2048]), np.array([0])).all()
    releases.write(place, 1024, adds=False)  # a store: who reads that sees nothing
    releases.acquire(place, 3 * 1024)
    assert not releases.met(np.array([3072]), np.array([0])).any()
    for thread in range(0, 64 * 1024, 1024):  # many blocks, one after the other
        releases.release(place, thread, epoch=1, block_epoch=1, adds=True)
    releases.acquire(place, 99 * 1024)
    assert releases.met(np.full(64, 99 * 1024), np.arange(64) * 1024).all()


def test_a_place_that_all_blocks_share_has_the_epoch_of_who_writes_there() -> None:
    """Lanes of two blocks take a lock in turns, so that the blocks have come to other epochs."""
    lanes = _LOCK.replace(
        "if (threadIdx.x == 0) {", "for (int x = 0; x < 9; ++x) if (threadIdx.x == x) {"
    )
    assert kinds(lanes) == set()
