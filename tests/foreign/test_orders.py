"""What orders threads in kernels of others: roles of pipelines, locks and flags, barriers."""

from __future__ import annotations

import gen

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
    at_once = _COPIES.replace("  } else if", """  } else if (threadIdx.x == 64) {
    asm volatile("mbarrier.inval.shared.b64 [%0];" :: "r"(bar) : "memory");
  } else if""")
    assert found(at_once, args)
