"""Reads of memory that nothing has written: poison always, findings in strict mode."""

from __future__ import annotations

import numpy as np
import pytest

from gen.emulator import Emulator, Finding, UninitializedReads
from gen.emulator.watch.findings import plain_name
from tests.emulator.emulator_kernels import compile_cuda

HEADER = "#include <cuda_pipeline_primitives.h>\n"


def run(
    body: str, strict: bool = True, threads: int = 64, blocks: int = 2, defined: bool = True
) -> tuple[list[Finding], np.ndarray]:
    """Findings and the contents of `out` of `kernel(float* out, const float* in)`."""
    source = HEADER + 'extern "C" __global__ void kernel(float* out, const float* in) {\n'
    source += f"  const int x = threadIdx.x, i = x + {threads} * blockIdx.x;\n{body}\n}}\n"
    emulator = Emulator()
    out = emulator.alloc(np.zeros(256, np.float32), "out", defined=defined)
    given = emulator.alloc(np.arange(256, dtype=np.float32), "in")
    report = emulator.launch(
        compile_cuda(source), "kernel", (blocks, 1, 1), (threads, 1, 1), [out, given],
        source_lines=source.splitlines(), observers=[UninitializedReads()] if strict else [],
    )  # fmt: skip
    return report.findings, emulator.read(out)


def test_shared_memory_that_was_never_written() -> None:
    body = "  __shared__ volatile float s[64];\n  if (x != 5) s[x] = x;\n  __syncthreads();\n"
    body += "  out[i] = s[x];"
    (finding,), result = run(body)
    assert (finding.check, finding.file_line) == ("initcheck", 7)
    assert finding.threads == ((5, 0, 0),)
    assert finding.block == (0, 0, 0)
    assert finding.address == "shared+20 of 256 (s)"
    assert "never written" in str(finding)
    findings, poisoned = run(body, strict=False)
    assert findings == []
    for values in (result, poisoned):
        assert np.flatnonzero(np.isnan(values)).tolist() == [5, 69]


def test_written_memory_is_no_finding() -> None:
    body = (
        "  __shared__ volatile float s[64];\n  s[x] = x;\n  __syncthreads();\n  out[i] = s[63 - x];"
    )
    assert run(body)[0] == []
    copy = "  __shared__ __align__(16) float s[64];\n"
    copy += "  __pipeline_memcpy_async(&s[x], in + x, 4);\n  __pipeline_commit();\n"
    copy += "  __pipeline_wait_prior(0);\n  out[i] = s[x];"
    assert run(copy)[0] == []
    added = "  __shared__ float s[64];\n  s[x] = 0;\n  atomicAdd(s + x, 1.f);\n  out[i] = s[x];"
    assert run(added)[0] == []


def test_each_block_has_its_own_shared_memory() -> None:
    body = "  __shared__ volatile float s[64];\n  if (blockIdx.x == 0) s[x] = 1;\n"
    body += "  __syncthreads();\n  out[i] = s[x];"
    (finding,), _ = run(body)
    assert finding.block == (1, 0, 0)


def test_bytes_are_told_apart() -> None:
    body = "  __shared__ __align__(8) volatile unsigned char s[8];\n  if (x < {}) s[x] = x;\n"
    body += "  __syncthreads();\n  out[i] = *reinterpret_cast<volatile unsigned*>(s + 4);"
    assert run(body.format(8))[0] == []
    assert len(run(body.format(7))[0]) == 1


def test_atomics_read_what_they_change() -> None:
    body = "  __shared__ int s[64];\n  atomicAdd(s + x, 1);\n  __syncthreads();\n  out[i] = s[x];"
    findings, _ = run(body)
    assert [finding.file_line for finding in findings] == [5]


def test_global_buffers_without_contents() -> None:
    body = "  out[i] {}= in[i];"
    assert run(body.format(""), defined=False)[0] == []
    assert run(body.format("+"), defined=True)[0] == []
    (finding,), _ = run(body.format("+"), defined=False)
    assert (finding.check, finding.file_line) == ("initcheck", 4)
    assert finding.address == "out+0 of 1024"
    again = "  if (x & 1) out[i] = 1;\n  __syncthreads();\n  out[i] += in[i];"
    (finding,), _ = run(again, defined=False)
    assert finding.threads[:2] == ((0, 0, 0), (2, 0, 0))


def test_contents_last_from_launch_to_launch() -> None:
    source = 'extern "C" __global__ void {}(float* out) {{ out[threadIdx.x] {}= 2; }}'
    emulator = Emulator()
    out = emulator.alloc(np.zeros(32, np.float32), "out", defined=False)
    found = [
        emulator.launch(
            compile_cuda(source.format("kernel", operator)), "kernel", (1, 1, 1), (32, 1, 1), [out],
            observers=[UninitializedReads()],
        ).findings
        for operator in ("", "+")
    ]  # fmt: skip
    assert found == [[], []]
    assert emulator.read(out).tolist() == [4] * 32


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_ZZ4gemmE6tile_a", "tile_a"),
        ("_ZZ4gemmE6tile_a_0", "tile_a"),
        ("_ZZN3a_b4gemmIfEEvPT_E2s1", "s1"),
        ("shared", "shared"),
        ("_ZZ4gemm", "_ZZ4gemm"),
    ],
)
def test_names_of_variables(symbol: str, name: str) -> None:
    assert plain_name(symbol) == name
