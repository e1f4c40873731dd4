"""Barriers with thread counts, with numbers that differ, and arrivals that do not wait."""

from __future__ import annotations

import numpy as np
import pytest

from gen.emulator import Emulator, LaunchReport, SharedRaces
from gen.errors import CheckError
from tests.emulator.emulator_kernels import compile_cuda

SYNC = '  asm volatile("bar.sync {}, {};" ::: "memory");\n'
ARRIVE = SYNC.replace("sync", "arrive")


def launch(body: str, threads: int = 128, blocks: int = 2) -> tuple[np.ndarray, LaunchReport]:
    """Run a kernel on an int for each thread; lines of `body` count from 3."""
    source = f'extern "C" __global__ void kernel(int* out) {{\n  __shared__ int s[{threads}];\n'
    source += f"  const int x = threadIdx.x, t = blockIdx.x * {threads} + x;\n{body}\n}}\n"
    emulator = Emulator()
    out = emulator.alloc(np.full(threads * blocks, -1, np.int32), "out")
    report = emulator.launch(
        compile_cuda(source), "kernel", (blocks, 1, 1), (threads, 1, 1), [out],
        observers=[SharedRaces()],
    )  # fmt: skip
    return emulator.read(out).reshape(blocks, threads), report


def messages(body: str, threads: int = 128, blocks: int = 2) -> list[str]:
    findings = launch(body, threads, blocks)[1].findings
    return [f"{f.check} {f.file_line}: {f.message}" for f in findings]


EXCHANGE = "  s[x] = x;\n{}  out[t] = s[x ^ {}];\n"


@pytest.mark.parametrize("partner", [127, 64, 32, 1])
@pytest.mark.parametrize("count", [128, 64, 32])
def test_a_count_orders_as_many_as_it_says(count: int, partner: int) -> None:
    """Where fewer than all meet, warps complete the barrier one after another, alone."""
    found = messages(EXCHANGE.format(SYNC.format(1, count), partner))
    if partner < count:
        assert found == []
    else:
        (message,) = found
        assert message.startswith("racecheck 6: load of 4 bytes")
        assert "store at line 4 (RAW)" in message


def test_a_count_that_nobody_reaches() -> None:
    body = "  if (x < 64)\n" + SYNC.format(1, 96) + "  __syncthreads();\n  out[t] = x;"
    first, second = sorted(messages(body))
    assert first.startswith("synccheck 5: barrier 1 reached by 64 of 96 threads, the others wait")
    assert second.startswith("synccheck 6: barrier reached by 64 of 128 threads of the block")


def test_what_comes_beyond_the_count_waits_for_the_next_time() -> None:
    body = "  if (x < 96)\n" + SYNC.format(1, 64) + "  out[t] = x;"
    result, report = launch(body)
    (finding,) = report.findings
    assert "barrier 1 reached by 32 of 64 threads, the others have exited" in finding.message
    assert finding.threads[0] == (64, 0, 0)
    assert (result == np.arange(128)).all()


def test_two_counts_at_one_barrier() -> None:
    body = "  if (x < 64)\n" + SYNC.format(1, 64) + "  else\n" + SYNC.format(1, 128)
    found = messages(body + "  out[t] = x;")
    assert found[0] in {
        "synccheck 5: barrier 1 for 64 threads, where others wait for 128 at line 7",
        "synccheck 7: barrier 1 for 128 threads, where others wait for 64 at line 5",
    }
    # One after the other is right.
    between = "  if (x < 64)\n" + SYNC.format(1, 64) + "  __syncthreads();\n" + SYNC.format(1, 128)
    assert messages(between + "  out[t] = x;") == []


@pytest.mark.parametrize(
    ("number", "count", "message"),
    [
        (1, 48, "a barrier for 48 threads, which is no multiple of 32"),
        (1, 0, "a barrier for 0 threads"),
        (1, 160, "a barrier for 160 threads, more than the 128 of the block"),
        (16, 128, "a block has no barrier 16, only 0 to 15"),
    ],
)
@pytest.mark.parametrize("how", ["sync", "arrive"])
def test_invalid_arguments(number: int, count: int, message: str, how: str) -> None:
    body = SYNC.replace("sync", how).format(number, count) + "  __syncthreads();\n  out[t] = x;"
    result, report = launch(body)
    assert [finding.check for finding in report.findings] == ["synccheck"]
    assert report.findings[0].message == f"invalid arguments: {message}"
    assert report.findings[0].file_line == 4
    assert (result == np.arange(128)).all()


def test_no_barrier_16_without_a_count() -> None:
    body = '  asm volatile("bar.sync %0;" :: "r"(15 + (int)blockIdx.x));\n  out[t] = x;'
    (message,) = messages(body)
    assert message == "synccheck 4: invalid arguments: a block has no barrier 16, only 0 to 15"


def test_an_arrival_needs_a_count() -> None:
    with pytest.raises(CheckError, match=r"how many threads it waits for: 'bar.arrive 1;'.*line 4"):
        launch('  asm volatile("bar.arrive 1;");')


def test_numbers_and_counts_in_registers() -> None:
    """Pairs of warps meet at barriers of their own, in the second block all warps at one."""
    body = "  const int number = 1 + (blockIdx.x ? 4 : x / 64), count = blockIdx.x ? 128 : 64;\n"
    body += "  s[x] = x;\n"
    body += '  asm volatile("bar.sync %0, %1;" :: "r"(number), "r"(count) : "memory");\n'
    read = "  out[t] = s[x ^ (blockIdx.x ? 96 : 32)];"
    result, report = launch(body + read)
    assert report.findings == []
    assert (result[0] == np.arange(128) ^ 32).all()
    assert (result[1] == np.arange(128) ^ 96).all()
    found = messages(body + read.replace("32", "64"))
    assert len(found) == 1
    assert "(RAW)" in found[0]


def test_a_barrier_by_number_alone_in_registers() -> None:
    body = '  asm volatile("bar.sync %0;" :: "r"(x / 64));\n  out[t] = x;'
    found = messages(body)
    assert "barrier reached by 64 of 128 threads of the block, the others wait at ano" in found[0]


def test_warps_count_as_32() -> None:
    """Also the last one of a block, and one of which some threads have exited."""
    meet = EXCHANGE.format(SYNC.format(1, 64), 1)
    assert messages(meet, threads=48) == []
    assert messages("  if (x % 32 >= 16) return;\n" + meet, threads=64) == []


def test_parts_of_a_warp() -> None:
    body = "  if (x & 1)\n" + SYNC.format(1, 64) + "  else\n" + SYNC.format(1, 64) + "  out[t] = x;"
    found = messages(body, threads=64)
    assert [message[:12] for message in found] == ["synccheck 5:", "synccheck 7:"]
    assert all("bar.sync by 16 of the 32 threads of a warp" in message for message in found)
    apart = body.replace("bar.sync", "barrier.sync")
    assert messages(apart, threads=64) == []


PIPELINE = """  if (x < 32) {
    s[x] = x;
%s    out[t] = s[x + 32];
  } else {
    s[x] = x;
%s    out[t] = s[x - 32];
  }
"""


def test_who_arrives_without_waiting_learns_nothing() -> None:
    both = PIPELINE % (SYNC.format(1, 64), SYNC.format(1, 64))
    assert messages(both, threads=64) == []
    (message,) = messages(PIPELINE % (ARRIVE.format(1, 64), SYNC.format(1, 64)), threads=64)
    assert "load of 4 bytes" in message
    assert "(RAW)" in message


def test_arrivals_alone_complete_a_barrier() -> None:
    """A warp that arrives twice at a barrier for two uses it up; who waits then, waits in vain."""
    body = "  if (x < 32) {\n" + ARRIVE.format(1, 64) * 2 + "  }\n  __syncthreads();\n"
    body += "  if (x >= 32)\n" + SYNC.format(1, 64) + "  out[t] = x;"
    (message,) = messages(body, threads=64)
    assert "barrier 1 reached by 32 of 64 threads" in message


def test_votes_of_those_who_meet() -> None:
    body = """  unsigned some; int all;
  asm volatile("{ .reg .pred %p, %q; setp.lt.u32 %p, %2, 80;"
    "bar.red.popc.u32 %0, %3, 64, %p; bar.red.and.pred %q, %3, 64, %p; selp.s32 %1, 1, 0, %q; }"
    : "=r"(some), "=r"(all) : "r"(x), "r"(1 + x / 64) : "memory");
  out[t] = some * 2 + all;"""
    result, report = launch(body)
    assert report.findings == []
    assert (result == np.where(np.arange(128) < 64, 129, 32)).all()
