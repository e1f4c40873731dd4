"""Variables without a value: a finding where one is used, and none where no thread uses one."""

from __future__ import annotations

import numpy as np
import pytest

from gen.emulator import Emulator, Finding
from tests.emulator.emulator_kernels import compile_cuda

HEADER = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"


def findings(
    body: str, element: str = "int", threads: int = 64, n: int = 5, **options: int
) -> list[Finding]:
    """Those of a kernel with `in`, `out` and `n`, whose first line is 2; `x` is the thread."""
    source = HEADER * ("half" in element or "bf" in element)
    source += f'extern "C" __global__ void kernel(const {element}* in, {element}* out, int n) {{'
    source += f"const int x = threadIdx.x;\n{body}\n}}\n"
    emulator = Emulator(**options)
    arrays = [emulator.alloc(np.zeros(4 * threads), name) for name in ("in", "out")]
    args = [*arrays, np.int32(n)]
    report = emulator.launch(compile_cuda(source), "kernel", (2, 1, 1), (threads, 1, 1), args)
    return report.findings


@pytest.mark.parametrize("element", ["int", "float", "double", "__half", "__nv_bfloat16", "char"])
def test_a_sum_that_starts_as_nothing(element: str) -> None:
    body = f"{element} sum;\nfor (int k = 0; k < n; ++k)\n  sum += in[k];\nout[x] = sum;"
    (finding,) = findings(body, element)[:1]
    first = 4 + 2 * ("half" in element or "bf" in element)
    assert (finding.check, finding.kind, finding.file_line) == ("initcheck", "register", first)
    assert finding.other_line == first + 1
    assert "a variable is used that has no value, by 128 threads" in finding.message
    assert f"it reaches the store at line {first + 1}" in finding.message
    assert findings(body.replace("sum;\nfor", "sum = 0;\nfor"), element) == []


def test_sums_in_an_array() -> None:
    body = "float acc[4]{};\nfor (int k = 0; k < n; ++k)\n  for (int i = 0; i < 4; ++i)\n"
    body += "    acc[i] += in[4 * k + i];\n"
    body += "for (int i = 0; i < 4; ++i) out[4 * x + i] = acc[i];"
    assert findings(body, "float") == []
    found = findings(body.replace("{}", ""), "float")
    assert {finding.file_line for finding in found} == {5}


def test_only_the_threads_without_a_value() -> None:
    body = "int v;\nif (x < n)\n  v = in[x];\n__syncthreads();\nif (x < 8)\n  out[x] = 3 * v + 1;"
    (finding,) = findings(body)
    assert finding.threads == ((5, 0, 0), (6, 0, 0), (7, 0, 0))
    assert "by 6 threads" in finding.message
    assert findings(body, n=8) == []
    assert findings(body, n=100) == []


@pytest.mark.parametrize("chunk", [64, 1 << 16])
def test_branches_of_one_condition(chunk: int) -> None:
    """What only some threads have computed is computed with, copied and chosen, but not used."""
    body = """int v, w;
for (int i = 0; i < n; ++i) {
  if (x % 3 == 0) { v = in[x + i]; w = v * i; }
  __syncthreads();
  int sum = w + v;
  if (x % 3 == 0 && i % 2) out[x] = sum;
  if (i > 2) out[x] = x % 3 ? i : sum;
}
"""
    assert findings(body, chunk_threads=chunk) == []
    wrong = findings(body.replace("x % 3 ? i : sum", "x % 3 == 1 ? i : sum"), chunk_threads=chunk)
    assert wrong
    assert all(thread[0] % 3 == 2 for finding in wrong for thread in finding.threads)


def test_a_fragment_that_the_loop_loads_ahead() -> None:
    body = """float next;
if (n > 0) next = in[x];
float sum = 0;
for (int k = 0; k < n; ++k) {
  float now = next;
  if (k + 1 < n) next = in[x + k + 1];
  sum += now;
}
out[x] = sum;
"""
    for n in (0, 1, 5):
        assert findings(body, "float", n=n) == []
    assert findings(body.replace("n > 0", "n > 1"), "float", n=1)


@pytest.mark.parametrize(
    ("use", "what"),
    [
        ("if (v & 1) __nanosleep(1); if (v > 3) out[x] = 1;", "branch"),
        ("out[x] = in[v & 7];", "load"),
        ("out[v & 7] = 1;", "store"),
        ("atomicAdd(out, v);", "atom"),
    ],
)
def test_uses(use: str, what: str) -> None:
    body = "int v;\nfor (int i = 0; i < n; ++i)\n  v = v * 3 + in[i];\n" + use
    found = findings(body)
    assert [f.file_line for f in found] == [4] * len(found)
    assert f"it reaches the {what} at line 5" in found[0].message
    assert findings(body.replace("int v", "int v = 0")) == []


def test_predicated_instructions() -> None:
    """`@p mov` gives a value to the threads of p, and keeps that of the others."""
    mov = '"@%p mov.u32 %r, %1;"'
    body = """int v;
asm volatile("{ .reg .pred %p; .reg .u32 %r; setp.lt.s32 %p, %2, 8;" MOV
  "@%p st.global.u32 [%3], %r; mov.u32 %0, %r; }" : "=r"(v) : "r"(n), "r"(x), "l"(out + x));
if (x < 8) out[x] = v;"""
    assert findings(body.replace("MOV", mov)) == []
    (finding,) = findings(body.replace("MOV", mov.replace("@%p", "@!%p")))[:1]
    assert "by 16 threads" in finding.message
    assert findings(body.replace("MOV", '""'))


def test_half_of_a_pair() -> None:
    """The other half of a register may have no value, as long as both together have one."""
    body = """int v; short s = in[x];
asm volatile("{ .reg .b16 %h; .reg .b32 %r; mov.b32 %r, {%1, %h}; and.b32 %0, %r, 0xFFFF; }"
  : "=r"(v) : "h"(s));
out[x] = v;"""
    assert findings(body) == []
    assert findings(body.replace("{%1, %h}", "{%h, %h}"))


def test_a_tensor_core_uses_its_operands() -> None:
    mma = '"mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%2}, {%0, %1};"'
    body = f"""double c[2]; double a = in[x];
for (int i = 0; i < n; ++i)
  asm volatile({mma}
    : "+d"(c[0]), "+d"(c[1]) : "d"(a));
out[x] = c[0]; out[x + 64] = c[1];"""
    found = findings(body, "double")
    assert found
    assert all(finding.check == "initcheck" for finding in found)
    assert "a variable is used that has no value, by 128 threads" in found[0].message
    assert findings(body.replace("c[2]", "c[2] = {}"), "double") == []


@pytest.mark.parametrize(
    ("guard", "mask", "width", "lacking"),
    [
        ("x < 16", "0xffff", 16, 0),
        ("x < 16", "0xffff", 32, 8),  # lanes 8 to 15 read lanes 16 to 23
        ("x < 16", "0xffffffff", 32, 8),  # those have exited
        ("true", "0xffffffff", 32, 0),
    ],
)
def test_a_shuffle_from_lanes_that_do_not_take_part(
    guard: str, mask: str, width: int, lacking: int
) -> None:
    body = f"if ({guard}) {{\n  int v = in[x];\n  v += __shfl_down_sync({mask}, v, 8, {width});\n"
    found = findings(body + "  if (x < n) out[x] = v;\n}", threads=32, n=32)
    assert len(found) == (lacking > 0)
    if found:
        assert f"lane which does not take part, by {2 * lacking} threads" in found[0].message
        assert "it reaches the store at line 5" in found[0].message
        assert found[0].file_line == 4
    # The first half of the lanes has values, and they alone are stored.
    assert findings(body + "  if (x < n) out[x] = v;\n}", threads=32, n=8) == []


def test_what_a_shuffle_is_given_without_a_value_is_the_cause() -> None:
    body = """int v;
  for (int i = 0; i < n; ++i) v += in[x + i];
  v += __shfl_xor_sync(~0u, v, 8);
  out[x] = v;
"""
    (found,) = findings(body, threads=32, n=2)
    assert "a variable is used that has no value, by 64 threads" in found.message
    assert found.file_line == 3


def test_a_shuffle_passes_on_what_has_no_value() -> None:
    """20 threads: lane 4 has read lane 20, and lane 0 reads lane 4."""
    body = "int v = in[x];\nfor (int o = 16; o; o /= 2)\n  v += __shfl_xor_sync(0xfffff, v, o);\n"
    (finding,) = findings(body + "if (x == 0) out[0] = v;", threads=20)
    assert (finding.file_line, finding.other_line) == (4, 5)
    assert findings(body + "if (x == 0) out[0] = v;", threads=32) != []  # a mask of 20
    assert findings(body.replace("fffff", "ffffffff") + "if (x == 0) out[0] = v;", threads=32) == []


@pytest.mark.parametrize("element", ["int", "double", "char"])
def test_elements_of_an_array_in_local_memory(element: str) -> None:
    """An index that is not constant keeps the array out of registers."""
    body = f"{element} kept[8];\nfor (int i = 0; i < n; ++i) kept[int(in[i]) + i] = x;\n"
    body += (
        "const int at = int(in[x]) + x % 6;\nconst int v = kept[at];\nif (x < 32) out[x] = v + 1;"
    )
    assert findings(body, n=6) == []
    (finding,) = findings(body, n=5)  # threads 5, 11, 17, 23 and 29 read what is not there
    # A conversion to int is the first use, where there is one.
    assert (finding.check, finding.file_line) == ("initcheck", 5 if element == "double" else 6)
    assert finding.threads[:2] == ((5, 0, 0), (11, 0, 0))
    assert "by 10 threads" in finding.message
    # What nobody uses may have no value.
    assert findings(body.replace("x < 32", "x % 6 < 5"), n=5) == []


def test_a_structure_with_gaps_is_copied_whole() -> None:
    body = "struct Pair { int a; char b; } kept[4];\nfor (int i = 0; i < 4; ++i) {\n"
    body += "  kept[(in[i] + i) & 3].a = i; kept[(in[i] + i) & 3].b = 2;\n}\n"
    body += "Pair one = kept[(in[x] + x) & 3];\nout[x] = one.a + one.b;"
    assert findings(body, n=0) == []


def test_a_conversion_of_bf16_without_a_value() -> None:
    body = (
        "unsigned short bits; if (in[x] > 5) bits = *(volatile unsigned short*)(in + x);\n"
        'float f; asm("{ mov.b32 %0, {0,%1};}" : "=f"(f) : "h"(bits));\n'
    )
    (finding,) = findings(body + "out[x] = f * 2;")
    assert finding.check == "initcheck"
    assert findings(body + "if (in[x] > 5) out[x] = f * 2;") == []
