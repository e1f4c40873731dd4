"""printf, malloc, free and assertions: what the driver does for device code."""

from __future__ import annotations

import numpy as np

from gen.compile.nvrtc import compile_cuda
from gen.emulator import Emulator, LaunchReport


def run(
    source: str, block: int, *arrays: np.ndarray, emulator: Emulator | None = None, grid: int = 1
) -> tuple[list[np.ndarray], LaunchReport]:
    ptx = compile_cuda(source, format="ptx").code.decode()
    emulator = emulator or Emulator()
    args = [emulator.alloc(array, name) for array, name in zip(arrays, "abc", strict=False)]
    report = emulator.launch(ptx, "k", (grid, 1, 1), (block, 1, 1), args)
    return [emulator.read(arg) for arg in args], report


def test_printf() -> None:
    source = r"""
extern "C" __global__ void k(const float* x, int* counts) {
  const int i = threadIdx.x;
  const char* names[] = {"one", "two"};
  counts[2 * i] = printf("%d %5.2f|%-5s|%lld %c %x %%", i - 1, x[i], names[i % 2], -(1ll << 40),
                         'a' + i, 255u);
  if (i == 1)
    counts[3] = printf("%llu %+d %08.3e %*d %p %u\n", ~0ull, 7, 1234.5, 6, 42, x, ~0u);
  if (i == 2) printf("plain\n");
}
"""
    x = np.array([0.5, -1.25, 3], np.float32)
    (_, counts), report = run(source, 3, x, np.zeros(6, np.int32), grid=2)
    assert not report.findings
    first = [line for line in report.printed if line.block == (0, 0, 0)]
    assert [(line.thread[0], line.text) for line in first if "|" in line.text] == [
        (0, "-1  0.50|one  |-1099511627776 a ff %"),
        (1, "0 -1.25|two  |-1099511627776 b ff %"),
        (2, "1  3.00|one  |-1099511627776 c ff %"),
    ]
    (line,) = (line.text for line in first if "+7" in line.text)
    assert line == f"{2**64 - 1} +7 1.234e+03     42 0x7f0000000000 {2**32 - 1}\n"
    assert [line.thread for line in report.printed if line.text == "plain\n"] == [(2, 0, 0)] * 2
    assert counts.tolist() == [6, 0, 6, 7, 6, 0]


def test_an_assertion_quotes_its_expression() -> None:
    source = """
extern "C" __device__ void __assertfail(const char*, const char*, unsigned, const char*, size_t);
#define assert(e) ((e) ? void() : __assertfail(#e, __FILE__, __LINE__, __func__, 1))
extern "C" __global__ void k(int* x) {
  assert(x[threadIdx.x] < 5);
  x[threadIdx.x] = 100;
}
"""
    (x,), report = run(source, 8, np.arange(8, dtype=np.int32))
    (finding,) = report.findings
    assert (finding.check, finding.file_line) == ("trap", 5)
    assert finding.message == "assertion failed in 3 threads: x[threadIdx.x] < 5"
    assert finding.threads == ((5, 0, 0), (6, 0, 0), (7, 0, 0))
    assert x.tolist() == [100] * 5 + [5, 6, 7]


HEAP = """
extern "C" __global__ void k(int* out) {
  const int i = threadIdx.x;
  int* mine = (int*)malloc(4 * (i + 1));
  for (int j = 0; j <= i; ++j) mine[j] = j;
  int sum = 0;
  for (int j = 0; j <= i; ++j) sum += mine[j];
  out[i] = sum;
  DO
}
"""


def test_malloc_and_free() -> None:
    emulator = Emulator()
    (out,), report = run(HEAP.replace("DO", "free(mine);"), 40, np.zeros(40, np.int32),
                         emulator=emulator)  # fmt: skip
    assert not report.findings
    assert out.tolist() == [i * (i + 1) // 2 for i in range(40)]
    assert emulator.leaks() == []


def test_leaks_are_told() -> None:
    emulator = Emulator()
    run(HEAP.replace("DO", "if (i != 2) free(mine);"), 4, np.zeros(4, np.int32), emulator=emulator)
    assert emulator.leaks() == ["malloc(line 4, block (0, 0, 0), thread (2, 0, 0)): 12 bytes"]


def test_errors_on_the_heap() -> None:
    cases = {
        "free(mine); out[i] = *(volatile int*)mine;": "which has been freed is out of bounds",
        "((volatile int*)mine)[i + 1] = 0;": "out of bounds",
        "free(mine); free(mine);": "which has been freed before: it is freed twice",
        "free(out);": "free of a+0 of 16, which malloc has not returned",
    }
    for code, message in cases.items():
        _, report = run(HEAP.replace("DO", code), 4, np.zeros(4, np.int32))
        (finding,) = report.findings
        assert finding.check == "memcheck"
        assert message in finding.message


def test_a_full_heap_gives_null() -> None:
    source = """
extern "C" __global__ void k(long long* out) {
  out[threadIdx.x] = (malloc(3 << 20) == nullptr);
}
"""
    (out,), report = run(source, 4, np.zeros(4, np.int64))
    assert not report.findings
    assert out.tolist() == [0, 0, 1, 1]
