"""Loads of read-only data from what the same launch writes."""

from __future__ import annotations

import numpy as np
import pytest

from gen.emulator import Emulator, Finding, GlobalRaces, ReadOnlyLoads
from tests.emulator.emulator_kernels import compile_cuda

BLOCKS, THREADS = 3, 64
HEADER = """extern "C" __global__ void kernel({}) {{
  const int x = blockIdx.x * 64 + threadIdx.x;
"""


def findings(body: str, parameters: str = "int* in, int* out", same: bool = True) -> list[Finding]:
    emulator, source = Emulator(), HEADER.format(parameters) + body + "\n}\n"
    one = emulator.alloc(np.arange(256, dtype=np.int32), "one")
    other = one if same else emulator.alloc(np.arange(256, dtype=np.int32), "other")
    report = emulator.launch(
        compile_cuda(source), "kernel", (BLOCKS, 1, 1), (THREADS, 1, 1), [one, other],
        source_lines=source.splitlines(), observers=[GlobalRaces(), ReadOnlyLoads()],
    )  # fmt: skip
    return report.findings


@pytest.mark.parametrize(
    "body",
    [
        "out[x] = __ldg(in + x) + 1;",
        "out[x] = 1; __syncthreads(); if (x == 70) out[200] = __ldg(in + x);",
        "if (x % 2) out[x] = __ldg(in + x) + 1;",
        "atomicAdd(out + x, __ldg(in + x));",
        "if (x < 8) reinterpret_cast<int4*>(out)[x] = __ldg(reinterpret_cast<int4*>(in) + x);",
        "if (x == 5) out[x] = __ldg(reinterpret_cast<short*>(in + x) + 1);",
    ],
)
def test_a_thread_writes_what_it_loads_so(body: str) -> None:
    (finding,) = findings(body)
    assert finding.check == "racecheck"
    assert (finding.file_line, finding.other_line) == (3, 3)
    assert "is of read-only data (ld.global.nc, __ldg), and the " in finding.message
    assert "writes there" in finding.message
    assert findings(body, same=False) == []


def test_the_thread_is_one_of_those() -> None:
    (finding,) = findings("if (x == 130) out[x] = __ldg(in + x);")
    assert (finding.block, finding.threads) == ((2, 0, 0), ((2, 0, 0),))
    assert finding.address == "one+520 of 1024"


def test_a_promise_that_is_broken() -> None:
    promised = "const int* __restrict__ in, int* __restrict__ out"
    (finding,) = findings("out[x] = in[x] + 1;", promised)
    assert "read-only" in finding.message
    assert findings("out[x] = in[x] + 1;", promised, same=False) == []
    assert findings("out[x] = in[x] + 1;", "const int* in, int* out") == []


def test_what_is_written_elsewhere() -> None:
    assert findings("if (x < 100) out[x + 100] = __ldg(in + x);") == []
