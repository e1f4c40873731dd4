"""mbarrier objects: phases, parities, counts, and what waits for them."""

from __future__ import annotations

import numpy as np
import pytest

from gen.emulator import Emulator, LaunchReport, SharedRaces, UninitializedReads
from gen.errors import CheckError
from tests.emulator.emulator_kernels import compile_cuda

FIRST = 21  # the line of a kernel's body
HEADER = r"""
using u32 = unsigned;
using u64 = unsigned long long;
#define DEVICE __device__ __forceinline__
DEVICE u32 at(const void* p) { return (u32)__cvta_generic_to_shared(p); }
#define INIT(b, n) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(b)), "r"(n))
#define ARRIVE(b) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(b)) : "memory")
#define TOKEN(t, b) asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(t) : "r"(at(b)))
#define PARITY(done, b, p)                                                                   \
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; "     \
               "selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(at(b)), "r"(p) : "memory")
#define STATE(done, b, t)                                                                    \
  asm volatile("{ .reg .pred p; mbarrier.try_wait.shared::cta.b64 p, [%1], %2; "             \
               "selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(at(b)), "l"(t) : "memory")
#define WAIT(b, p)                                                                           \
  asm volatile("{ .reg .pred p; AGAIN: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 " \
               "p, [%0], %1, 1000; @p bra DONE; bra AGAIN; DONE: }" ::"r"(at(b)), "r"(p) : "memory")
extern "C" __global__ void kernel(u32* out) {
  __shared__ u64 bar[4];
  const u32 x = threadIdx.x;
"""


def run(
    body: str, threads: int = 1, blocks: int = 1, arch: str = "compute_90", align: int = 8
) -> tuple[list[int], LaunchReport]:
    header = HEADER.replace("__shared__ u64", f"__shared__ __align__({align}) u64")
    emulator, source = Emulator(), f"{header}{body}\n}}\n"
    out = emulator.alloc(np.full(64 * blocks, 9999, np.uint32), "out")
    report = emulator.launch(
        compile_cuda(source, arch), "kernel", (blocks, 1, 1), (threads, 1, 1), [out],
        source_lines=source.splitlines(), observers=[SharedRaces(), UninitializedReads()],
    )  # fmt: skip
    return emulator.read(out).tolist(), report


def clean(body: str, **options: int) -> list[int]:
    result, report = run(body, **options)
    assert report.findings == []
    return result


def message(body: str, **options: int) -> str:
    _, report = run(body, **options)
    return str(report.findings[0])


def test_parities() -> None:
    """The phase before the first counts as complete, and has parity 1."""
    body = "INIT(bar, 2u); u32 d; int n = 0;\n"
    look = "PARITY(d, bar, 0u); out[n++] = d; PARITY(d, bar, 1u); out[n++] = d;\n"
    body += look + "ARRIVE(bar);\n" + look + "ARRIVE(bar);\n" + look + "ARRIVE(bar); ARRIVE(bar);\n"
    assert clean(body + look)[:8] == [0, 1, 0, 1, 1, 0, 0, 1]


def test_states() -> None:
    """A state names the phase in which the arrival counted."""
    body = "INIT(bar, 2u); u64 t, s; u32 d;\nTOKEN(t, bar); STATE(d, bar, t); out[0] = d;\n"
    body += "TOKEN(s, bar); STATE(d, bar, t); out[1] = d; STATE(d, bar, s); out[2] = d;\n"
    body += "TOKEN(s, bar); STATE(d, bar, s); out[3] = d;\n"
    assert clean(body)[:4] == [0, 1, 1, 0]


def test_counts() -> None:
    pending = 'asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(d) : "l"(t));'
    many = 'asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 %0, [%1], %2;"'
    many += ' : "=l"(t) : "r"(at(bar)), "r"(3u) : "memory");\n'
    drop = 'asm volatile("mbarrier.arrive_drop.shared::cta.b64 _, [%0];" :: "r"(at(bar)));\n'
    body = "INIT(bar, 5u); u64 t; u32 d;\n" + many + pending + " out[0] = d;\n"
    body += f"TOKEN(t, bar); {pending} out[1] = d;\n{drop}PARITY(d, bar, 0u); out[2] = d;\n"
    body += f"TOKEN(t, bar); {pending} out[3] = d;\n"
    assert clean(body)[:4] == [5, 2, 1, 4]


def test_lanes_that_arrive_together() -> None:
    """32 arrivals at an mbarrier for 5 complete six phases; each lane's state tells which."""
    body = "if (x == 0) INIT(bar, 5u);\n__syncwarp(); u64 t; u32 d;\nTOKEN(t, bar);\n"
    body += 'asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(d) : "l"(t));\n'
    body += "PARITY(d, bar, 0u); out[x] = d; out[32 + x] = t >> 62 & 1;"
    result = clean(body, threads=32)
    assert result[:32] == [0] * 32  # phase 6 is under way
    assert result[32:] == [x // 5 % 2 for x in range(32)]


def test_bytes_of_copies() -> None:
    expect = 'asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;"'
    expect += ' :: "r"(at(bar)), "r"(64u));\n'
    both = 'asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"'
    both += ' :: "r"(at(bar)), "r"(32u));\n'
    complete = 'asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], %1;"'
    complete += ' :: "r"(at(bar)), "r"({}u));\n'
    look = "PARITY(d, bar, 0u); out[{}] = d;\n"
    body = "INIT(bar, 1u); u32 d;\n" + expect + both + look.format(0) + complete.format(80)
    body += look.format(1) + complete.format(16) + look.format(2)
    assert clean(body)[:3] == [0, 0, 1]


def test_generic_addresses_and_invalidation() -> None:
    body = 'asm volatile("mbarrier.init.b64 [%0], %1;" :: "l"(bar), "r"(1u));\n'
    body += 'asm volatile("{ .reg .b64 s; mbarrier.arrive.b64 s, [%0]; }" :: "l"(bar));\n'
    body += "u32 d; PARITY(d, bar, 0u); out[0] = d;\n"
    inval = 'asm volatile("mbarrier.inval.shared::cta.b64 [%0];" :: "r"(at(bar)));\n'
    assert clean(body + inval)[0] == 1
    text = message(body + inval + "ARRIVE(bar);")
    assert "mbarrier.arrive at shared+0 of 32 (bar): this is no initialised mbarrier" in text
    text = message('asm volatile("mbarrier.init.b64 [%0], %1;" :: "l"(out), "r"(1u));')
    assert "outside of shared memory" in text


COPY = (
    'asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");\n'
    'asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 16;" :: "r"(at(bar)));\n'
    'asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes '
    '[%0], [%1], 16, [%2];" :: "r"(at(bar + 2)), "l"(out), "r"(at(bar)) : "memory");\n'
)


@pytest.mark.parametrize("end", ["inval", "init"])
def test_an_object_that_ends_before_a_copy_that_counts_there(end: str) -> None:
    """It is a finding where the object ends, which would be right behind a wait."""
    last = 'asm volatile("mbarrier.inval.shared::cta.b64 [%0];" :: "r"(at(bar)));\n'
    last = last if end == "inval" else "INIT(bar, 1u);\n"
    _, report = run(f"INIT(bar, 1u);\n{COPY}{last}", align=16)
    found = [str(one) for one in report.findings if "still under way" in one.message]
    assert len(found) == 1
    assert f"mbarrier.{end} at shared+0 of 32 (bar): the bulk copy at line" in found[0]
    clean(f"INIT(bar, 1u);\n{COPY}WAIT(bar, 0u);\n{last}", align=16)


def test_bytes_that_are_no_object_in_another_block() -> None:
    """What a block has where others have an mbarrier is nothing to count at."""
    body = "if (blockIdx.x == 1) *(volatile u64*)bar = 0x3fffffffffffffffull;\n"
    body += f"if (blockIdx.x == 0) {{ INIT(bar, 1u);\n{COPY}WAIT(bar, 0u); }}\n"
    clean(body, blocks=2, align=16)


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("ARRIVE(bar);", "this is no initialised mbarrier object"),
        ("INIT(bar, 0u);", "an arrival count from 1 to 1048575 expected"),
        ("INIT((char*)bar + 4, 1u);", "is misaligned"),
        ("INIT(bar + 4, 1u);", "is out of bounds"),
    ],
)
def test_misuse(body: str, rule: str) -> None:
    _, report = run(body)
    assert rule in " ".join(map(str, report.findings))
    assert report.findings[0].file_line == FIRST


def test_more_arrivals_than_a_phase_waits_for() -> None:
    body = 'INIT(bar, 1u);\nasm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 8;"'
    body += ' :: "r"(at(bar)));\nARRIVE(bar);'
    assert "more arrivals than it waits for" in message(body)


def test_waiting_warps_let_others_run() -> None:
    """A warp that comes first in the code waits for one behind it, block by block."""
    body = """
if (x == 0) { INIT(bar, 1u); INIT(bar + 1, 32u); }
__syncthreads();
if (x < 32) {
  for (u32 i = 0; i < 4 + blockIdx.x; ++i) { WAIT(bar, i & 1); ARRIVE(bar + 1); }
  out[x + 64 * blockIdx.x] = 7;
} else {
  for (u32 i = 0; i < 4 + blockIdx.x; ++i) {
    if (x == 32) ARRIVE(bar);
    WAIT(bar + 1, i & 1);
  }
  out[x + 64 * blockIdx.x] = 8;
}"""
    assert clean(body, threads=64, blocks=3) == ([7] * 32 + [8] * 32) * 3


def test_one_lane_waits_for_its_warp() -> None:
    body = "if (x == 0) INIT(bar, 1u);\n__syncthreads();\nif (x == 32) ARRIVE(bar);\n"
    body += "if (x == 5) WAIT(bar, 0u);\n__syncwarp();\nout[x] = __shfl_sync(~0u, x, 5);"
    assert clean(body, threads=64)[:32] == [5] * 32


def test_a_deadlock_is_a_finding() -> None:
    body = "if (x == 0) INIT(bar + 1, 3u);\n__syncthreads();\n"
    body += "if (x < 32) { if (x == 0) ARRIVE(bar + 1); WAIT(bar + 1, 0u); }\n__syncthreads();\n"
    _, report = run(body + "out[x] = 1;", threads=64)
    (finding,) = report.findings
    assert finding.check == "synccheck"
    assert finding.file_line == FIRST + 2
    assert (
        "deadlock: 32 threads wait at the mbarrier at shared+8 of 32 (bar) for its phase of parity "
        "0, which lacks 2 of 3 arrivals and 0 bytes of copies, and nothing is under way"
    ) in str(finding)
    _, report = run(body.replace("(x < 32)", "(blockIdx.x)") + "out[x] = 1;", blocks=2)
    assert [finding.block for finding in report.findings] == [(1, 0, 0)]


def test_waits_that_give_up() -> None:
    """test_wait may fail a few times without anybody else's doing; that is no deadlock."""
    body = "INIT(bar, 1u); u32 d = 0, n = 0;\nPARITY(d, bar, 0u);\nout[0] = d; ARRIVE(bar);\n"
    body += "while (!d) { PARITY(d, bar, 0u); ++n; }\nout[1] = n;"
    assert clean(body)[:2] == [0, 1]


def test_what_goes_with_it() -> None:
    body = """
u32 leader = 0, who, rank, mapped;
asm volatile("{ .reg .pred p; elect.sync %1|p, %2; selp.u32 %0, 1, 0, p; }"
             : "=r"(leader), "=r"(who) : "r"(~0u));
asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(at(bar)), "r"(0u));
asm volatile("fence.mbarrier_init.release.cluster;");
asm volatile("fence.proxy.async.shared::cta;");
asm volatile("fence.proxy.async;");
asm volatile("barrier.cluster.arrive.release.aligned;");
asm volatile("barrier.cluster.wait.acquire.aligned;");
asm volatile("griddepcontrol.wait;");
asm volatile("griddepcontrol.launch_dependents;");
asm volatile("nanosleep.u32 20;");
out[x] = leader + 10 * who + 100 * rank + 1000 * (mapped != at(bar));"""
    result = clean(body, threads=64, arch="compute_90a")
    assert result[:64] == ([1] + [0] * 31) * 2


def test_register_counts_are_checked() -> None:
    with pytest.raises(CheckError, match="a multiple of 8 from 24 to 256"):
        run('asm volatile("setmaxnreg.inc.sync.aligned.u32 100;");', 32, arch="compute_90a")
