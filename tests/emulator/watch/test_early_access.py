"""What a dependent launch touches in global memory before griddepcontrol.wait."""

from __future__ import annotations

import numpy as np
import pytest

from gen.device.emulated import EmulatorRunner
from gen.emulator import EarlyAccesses, Emulator, LaunchReport, SharedRaces
from tests.emulator.emulator_kernels import compile_cuda
from tests.emulator.pipeline_kernels import HELPERS, TENSOR, run_tensor

THREADS, BLOCKS = 64, 2
# Macros, so that the lines of what they do are those of the kernels.
MACROS = r"""
#define WAIT asm volatile("griddepcontrol.wait;" ::: "memory")
#define WAIT_IF(p) asm volatile("{ .reg .pred q; setp.ne.u32 q, %0, 0;\n" \
  "@q griddepcontrol.wait; }" ::"r"((u32)(p)) : "memory")
#define NEXT asm volatile("griddepcontrol.launch_dependents;" ::: "memory")
#define SYNC __syncthreads()
#define COPY asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\ncp.async.wait_all;" \
  ::"r"(at(s + x)), "l"(in + at_x) : "memory")
#define COPY_NOTHING asm volatile("cp.async.ca.shared.global [%0], [%1], 4, 0;\n" \
  "cp.async.wait_all;" ::"r"(at(s + x)), "l"(in + at_x) : "memory")
#define FETCH(bytes) do { expect(&bar, bytes); asm volatile( \
  "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" \
  ::"r"(at(s)), "l"(in), "r"(bytes), "r"(at(&bar)) : "memory"); } while (0)
#define SEND do { asm volatile("fence.proxy.async;\n" \
  "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" \
  ::"l"(out + 64 * blockIdx.x), "r"(at(s)) : "memory"); commit(); drain(); } while (0)
__constant__ int table[64] = {1, 2, 3};
__device__ int variable[64];
"""
START = """extern "C" __global__ void kernel(int* out, const int* in, int given) {
  __shared__ __align__(128) int s[64];
  __shared__ u64 bar;
  const int x = threadIdx.x, at_x = x + 64 * blockIdx.x;
"""


def run(body: str) -> LaunchReport:
    source, emulator = f"{HELPERS}{MACROS}{START}{body}\n}}\n", Emulator()
    values = np.arange(THREADS * BLOCKS, dtype=np.int32)
    args = [emulator.alloc(np.zeros_like(values), "out"), emulator.alloc(values, "in"), np.int32(3)]
    return emulator.launch(
        compile_cuda(source, "compute_90"), "kernel", (BLOCKS, 1, 1), (THREADS, 1, 1), args,
        source_lines=source.splitlines(), observers=[SharedRaces(), EarlyAccesses()],
    )  # fmt: skip


MOVE = "out[at_x] = in[at_x];"
INIT = "if (x == 0) { init(&bar, 1); fence_init(); }\nSYNC;\n"
RIGHT = {
    "no wait at all": MOVE,
    "no wait, but dependents": f"NEXT; {MOVE}",
    "first": f"WAIT; NEXT;\n{MOVE}",
    "one thread, then a barrier": f"if (x == 0) WAIT;\nSYNC;\n{MOVE}",
    "one thread under a predicate": f"WAIT_IF(x == 17); SYNC;\n{MOVE}",
    "one thread, then an mbarrier": (
        f"{INIT}if (x == 63) {{ WAIT; arrive(&bar); }}\nwait(&bar, 0); {MOVE}"
    ),
    "a warp's first thread": (
        f'if (x % 32 == 0) WAIT;\nasm volatile("bar.warp.sync -1;"); {MOVE}'
    ),
    "after shared memory": f"s[x] = x;\n{INIT}WAIT; out[at_x] = s[63 - x];",
    "after parameters and constants": "s[x] = table[x] + given;\nWAIT; out[at_x] = s[x];",
    "after a prefetch": (
        f'asm volatile("prefetch.global.L2 [%0];" ::"l"(in + at_x)); WAIT;\n{MOVE}'
    ),
    "after a copy of nothing": f"COPY_NOTHING;\nWAIT; {MOVE}",
    "in each branch": f"if (blockIdx.x == 0) {{ WAIT; }} else {{ SYNC; WAIT; }}\n{MOVE}",
    "in the branch that goes on": f"if (blockIdx.x == 0) return;\nWAIT; {MOVE}",
    "before copies": "WAIT; COPY;\nSYNC; out[at_x] = s[63 - x];",
    "before bulk copies": f"{INIT}WAIT;\nif (x == 0) {{ FETCH(256u); wait(&bar, 0); SEND; }}",
    "before a variable": "WAIT; variable[x] = x; atomicAdd(out, 1);",
}  # fmt: skip


@pytest.mark.parametrize("wait", RIGHT)
def test_right_kernels_are_clean(wait: str) -> None:
    assert run(RIGHT[wait]).findings == []


# The line in question ends in "// early"; what the finding calls it.
WRONG = {
    "load": ("s[x] = in[at_x];  // early\nWAIT; out[at_x] = s[x];", "load of 4 bytes at in+0"),
    "read-only load": (
        "s[x] = __ldg(in + at_x);  // early\nWAIT; out[at_x] = s[x];", "load of 4 bytes at in+0"
    ),
    "store": (f"out[at_x] = 0;  // early\nWAIT;\n{MOVE}", "store of 4 bytes at out+0"),
    "one thread's store": (
        f"if (at_x == 69) out[at_x] = 0;  // early\nWAIT;\n{MOVE}", "store of 4 bytes at out+276"
    ),
    "generic store": (
        "int* p = given ? out + at_x : s + x; *p = 0;  // early\nWAIT;", "store of 4 bytes at out+0"
    ),
    "atomic": ("s[x] = atomicAdd(out, 1);  // early\nWAIT; out[at_x] = s[x];", "atom of 4 bytes"),
    "reduction": ("atomicAdd(out, 1);  // early\nWAIT;", "of 4 bytes at out+0"),
    "module's variable": (
        "s[x] = variable[x];  // early\nWAIT; out[at_x] = s[x];", "load of 4 bytes at variable+0"
    ),
    "cp.async": ("COPY;  // early\nWAIT; out[at_x] = s[x];", "cp.async of 4 bytes at in+0"),
    "bulk copy in": (
        f"{INIT}if (x == 0) FETCH(256u);  // early\nwait(&bar, 0); WAIT; out[at_x] = s[x];",
        "bulk copy of 256 bytes at in+0",
    ),
    "bulk copy out": (
        "s[x] = x; SYNC;\nif (x == 0) SEND;  // early\nWAIT;", "bulk copy of 256 bytes at out+0"
    ),
    "wait in one branch": (
        "if (blockIdx.x == 0) WAIT;\nout[at_x] = 0;  // early", "store of 4 bytes at out+256"
    ),
    "wait under a predicate": (
        "WAIT_IF(blockIdx.x == 0);\nout[at_x] = 0;  // early", "store of 4 bytes at out+256"
    ),
    "one way to the wait": (
        "if (given == 3) s[x] = in[at_x];  // early\nWAIT; out[at_x] = s[x];",
        "load of 4 bytes at in+0",
    ),
    "wait of another warp": (
        "if (x < 32) WAIT;\nout[at_x] = 0;  // early", "store of 4 bytes at out+128"
    ),
    "wait of another thread, arriving before": (
        f"{INIT}if (x == 63) {{ arrive(&bar); WAIT; }}\nwait(&bar, 0); if (x < 9) "
        "out[at_x] = 0;  // early", "store of 4 bytes at out+0"
    ),
    "wait behind a loop": (
        "for (int i = 0; i < given; ++i) {\n  out[at_x] = i;  // early\n  SYNC;\n}\nWAIT;",
        "store of 4 bytes at out+0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("access", WRONG)
def test_early_accesses_are_found(access: str) -> None:
    body, what = WRONG[access]
    (finding,) = run(body).findings
    assert (finding.check, finding.kind, finding.other_line) == ("racecheck", "", 0)
    assert finding.source.endswith("// early")
    assert what in finding.message
    rule = " before griddepcontrol.wait: the kernel before this one may still be running"
    assert finding.message.endswith(rule)
    second = finding.address.startswith(("out+256", "out+276"))
    assert finding.block == (int(second), 0, 0)


def test_one_finding_for_each_instruction() -> None:
    report = run("for (int i = 0; i < given; ++i) {\n  out[at_x] = in[at_x];\n  SYNC;\n}\nWAIT;")
    assert [f.message.split()[0] for f in report.findings] == ["load", "store"]
    assert report.suppressed > 0


def test_who_is_named() -> None:
    (finding,) = run("if (at_x > 100) out[at_x] = 0;\nWAIT;").findings
    assert (finding.block, finding.threads[0]) == ((1, 0, 0), (37, 0, 0))
    assert finding.address == "out+404 of 512"


def test_chunks_start_anew() -> None:
    source = f"{HELPERS}{MACROS}{START}if (blockIdx.x == 0) WAIT;\nout[at_x] = 0;\n}}\n"
    emulator = Emulator(chunk_threads=THREADS)
    args = [emulator.alloc(np.zeros(THREADS * 4, np.int32), n) for n in ("out", "in")]
    report = emulator.launch(
        compile_cuda(source, "compute_90"), "kernel", (4, 1, 1), (THREADS, 1, 1),
        [*args, np.int32(3)], observers=[EarlyAccesses()],
    )  # fmt: skip
    (finding,) = report.findings
    assert (finding.block, report.suppressed) == ((1, 0, 0), 2)


WAIT = 'asm volatile("griddepcontrol.wait;" ::: "memory");\n'


def test_a_pipeline_with_tensor_maps() -> None:
    """Barriers and the tensor map's prefetch may come before the wait, copies may not."""
    first, start = "  const int x = threadIdx.x, row", "  __syncthreads();\n  if (x < 32) {"
    for place in (first, start):
        result = run_tensor(TENSOR.replace(place, f"  {WAIT}{place}"))
        assert result.right
        assert result.report.findings == []
    late = run_tensor(TENSOR.replace("commit();", f"commit();\n        {WAIT}"))
    assert {finding.message.partition("+")[0] for finding in late.report.findings} == {
        "bulk copy of 1024 bytes at in", "bulk copy of 1024 bytes at out"
    }  # fmt: skip
    assert all(" before griddepcontrol.wait: " in str(finding) for finding in late.report.findings)


def test_kernels_without_the_wait_are_not_watched() -> None:
    calls = []

    class Recorder(EarlyAccesses):
        def load(self, *args: object) -> None:
            calls.append(args)

    source = f"{HELPERS}{MACROS}{START}{MOVE}\n}}\n"
    for wait in ("NEXT", "WAIT"):
        emulator = Emulator()
        args = [emulator.alloc(np.zeros(THREADS, np.int32), n) for n in ("out", "in")]
        emulator.launch(
            compile_cuda(source.replace(MOVE, f"{wait}; {MOVE}"), "compute_90"), "kernel",
            (1, 1, 1), (THREADS, 1, 1), [*args, np.int32(3)], observers=[Recorder()],
        )  # fmt: skip
        assert bool(calls) == (wait == "WAIT")


def test_gen_check_looks_for_them() -> None:
    observers = EmulatorRunner(("race",))._observers
    assert any(isinstance(observer, EarlyAccesses) for observer in observers)
