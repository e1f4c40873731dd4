"""What orders threads in kernels of others: roles of pipelines, locks and flags, barriers."""

from __future__ import annotations

import pytest

import gen
from tests.support.slow import slow

# A warp copies, another one waits for the copies; the mbarrier ends behind that.
_COPIES = """
__global__ void k(const int* x, int* y) {
  __shared__ int buf[32];
  __shared__ unsigned long long object;
  const unsigned bar = __cvta_generic_to_shared(&object);
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 32;" :: "r"(bar) : "memory");
  __syncthreads();
  if (threadIdx.x < 32) {
    const unsigned to = __cvta_generic_to_shared(&buf[threadIdx.x]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(x + threadIdx.x));
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(bar) : "memory");
  } else if (threadIdx.x < 64) {
    asm volatile("{.reg .pred p; L: mbarrier.test_wait.parity.shared.b64 p, [%0], 0; @!p bra L;}"
                 :: "r"(bar) : "memory");
    y[threadIdx.x - 32] = buf[63 - threadIdx.x];
    __syncwarp();
    if (threadIdx.x == 32) asm volatile("mbarrier.inval.shared.b64 [%0];" :: "r"(bar) : "memory");
  }
}
"""


def found(source: str, args: dict[str, object], **launch: int) -> set[str]:
    """The checks that find something, or of races their kinds."""
    outcome = gen.emulate(source, block=96, args=args, **launch)
    return {finding.kind or finding.check for finding in outcome.findings}


def test_a_phase_that_copies_complete_orders_their_arrivals() -> None:
    args: dict[str, object] = {"x": "i32[32]", "y": "i32[32]:poison"}
    assert found(_COPIES, args) == set()
    at_once = _COPIES.replace(
        "  } else if",
        """  } else if (threadIdx.x == 64) {
    asm volatile("mbarrier.inval.shared.b64 [%0];" :: "r"(bar) : "memory");
  } else if""",
    )
    assert found(at_once, args)


# Each guards, or hands over, what is in global memory, by something in shared memory; behind it
# come edits that spoil it.
_LOCK = """
#include <cuda/atomic>
__global__ void k(int* x) {
  __shared__ int lock;
  cuda::atomic_ref<int, cuda::thread_scope_block> held(lock);
  if (threadIdx.x == 0) lock = 0;
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    while (held.exchange(1, cuda::memory_order_acquire)) {}
    *x += 1;
    held.store(0, cuda::memory_order_release);
  }
}
"""
_SEMAPHORE = """
#include <cuda/semaphore>
__global__ void k(int* x) {
  using Semaphore = cuda::binary_semaphore<cuda::thread_scope_block>;
  __shared__ alignas(16) char bytes[sizeof(Semaphore)];
  Semaphore& semaphore = *reinterpret_cast<Semaphore*>(bytes);
  if (threadIdx.x == 0) new (&semaphore) Semaphore(1);
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    semaphore.acquire();
    *x += 1;
    semaphore.release();
  }
}
"""
_FLAG = """
__global__ void k(int* x) {
  __shared__ volatile int flag;
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  if (threadIdx.x == 0) {
    *x = 5;
    __threadfence_block();
    flag = 1;
  }
  if (threadIdx.x == 32) {
    while (!flag) {}
    __threadfence_block();
    x[1] = *x;
  }
}
"""
# The flag is in global memory, and still of the block alone.
_GLOBAL_FLAG = _FLAG.replace("__shared__ volatile int flag;", "volatile int& flag = x[2];")
_TWICE = "__threadfence_block();\n    flag = 1;"


@pytest.mark.parametrize(
    ("source", "old", "new"),
    [
        pytest.param(_LOCK, "memory_order_acquire", "memory_order_relaxed", marks=slow),
        (_LOCK, "memory_order_release", "memory_order_relaxed"),
        (_LOCK, "*x += 1;\n    held.store(0, cuda::memory_order_release);",
         "held.store(0, cuda::memory_order_release);\n    *x += 1;"),
        pytest.param(_LOCK, "    while", "    if (threadIdx.x) while", marks=slow),
        pytest.param(_SEMAPHORE, "semaphore.acquire();", "", marks=slow),
        pytest.param(
            _SEMAPHORE, "*x += 1;\n    semaphore.release();", "semaphore.release();\n    *x += 1;",
            marks=slow,
        ),
        (_FLAG, _TWICE, "flag = 1;"),
        (_FLAG, "*x = 5;\n    " + _TWICE, _TWICE + "\n    *x = 5;"),
        (_FLAG, "__threadfence_block();\n    x[1]", "x[1]"),
        (_FLAG, "    x[1] = *x;\n  }", "  }\n  if (threadIdx.x == 64) x[1] = *x;"),
        (_GLOBAL_FLAG, _TWICE, "flag = 1;"),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_flags_order_global_memory_within_a_block(source: str, old: str, new: str) -> None:
    args: dict[str, object] = {"x": "i32[3]:zeros"}
    assert found(source, args) == set()
    assert source.count(old) == 1
    spoiled = found(source.replace(old, new), args)
    # An atomic that reads is taken to acquire, whatever it says.
    assert spoiled or "acquire" in old


_ARRIVES = """
__global__ void k(int* x, int* y) {
  __shared__ int buf[32];
  int* data = WHERE;
  const int lane = threadIdx.x % 32;
  if (threadIdx.x >= 64) return;
  for (int i = 0; i < 3; ++i)
    if (threadIdx.x < 32) {
      data[lane] = x[lane] + i;
      asm volatile("bar.arrive 1, 64;" ::: "memory");
      asm volatile("bar.sync 2, 64;" ::: "memory");
    } else {
      asm volatile("bar.sync 1, 64;" ::: "memory");
      y[i * 32 + lane] = data[31 - lane];
      asm volatile("bar.arrive 2, 64;" ::: "memory");
    }
}
"""


@pytest.mark.parametrize("where", ["buf", "y + 96"])
def test_what_comes_behind_an_arrival_is_not_ordered(where: str) -> None:
    args: dict[str, object] = {"x": "i32[32]", "y": "i32[128]:poison"}
    source = _ARRIVES.replace("WHERE", where)
    assert found(source, args) == set()
    store, arrive = "data[lane] = x[lane] + i;", 'asm volatile("bar.arrive 1, 64;" ::: "memory");'
    behind = source.replace(arrive, "").replace(store, f"{arrive}\n{store}")
    assert "RAW" in found(behind, args)


_HANDS_OVER = """
__global__ void k(int* x) {
  int seen = 0;
  if (threadIdx.x) return;
  if (blockIdx.x == 0) {
    x[1] = 5;
    asm volatile("RELEASE.gpu.global.HOW [%0], 1;" :: "l"(x) : "memory");
  } else {
    while (!seen)
      asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(x) : "memory");
    x[2] = x[1];
  }
}
"""


@pytest.mark.parametrize(("release", "how"), [("st.release", "s32"), ("red.release", "add.s32")])
def test_what_comes_behind_a_release_is_not_shown(release: str, how: str) -> None:
    args: dict[str, object] = {"x": "i32[3]:zeros"}
    source = _HANDS_OVER.replace("RELEASE", release).replace("HOW", how)
    assert found(source, args, grid=2) == set()
    late = source.replace("    x[1] = 5;\n", "").replace("  } else {", "    x[1] = 5;\n  } else {")
    assert found(late, args, grid=2) == {"RAW"}
