"""Lines of a matrix that is mapped in part: wide reads, wherever these lines begin."""

from __future__ import annotations

import numpy as np
import pytest

from gen.compile.nvrtc import compile_cuda
from gen.emulator import Emulator

_COPIED = r"""
extern "C" __global__ void copied(const unsigned short* p, unsigned short* out, long long at) {
  __shared__ alignas(16) unsigned short s[8];
  const unsigned to = unsigned(__cvta_generic_to_shared(s));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\ncp.async.wait_all;"
               ::"r"(to), "l"(p + at) : "memory");
  for (int i = 0; i < 8; ++i) out[i] = s[i];
}
"""
_READ = r"""
extern "C" __global__ void read(const unsigned short* p, unsigned short* out, long long at) {
  const uint4 read = *reinterpret_cast<const uint4*>(p + at);
  for (int i = 0; i < 8; ++i) out[i] = reinterpret_cast<const unsigned short*>(&read)[i];
}
"""


@pytest.mark.parametrize(("kernel", "source"), [("copied", _COPIED), ("read", _READ)])
@pytest.mark.parametrize(
    ("pitch", "skip", "unit", "at", "element"),
    [
        (17, 0, 1, 40, 40),  # of two lines without a gap between them
        (2**33 + 5, 3, 16, 8, 5),  # in the first line, which begins three elements behind a unit
        (2**33 + 5, 3, 16, 2**33 + 16, 17 + 8),
    ],
)
def test_wide_reads(
    kernel: str, source: str, pitch: int, skip: int, unit: int, at: int, element: int
) -> None:
    """pitch, skip: elements from line to line, and to the first; at: where element `element` is."""
    lines, emulator = np.arange(3 * 17, dtype=np.uint16).reshape(3, 17), Emulator()
    a = emulator.alloc_lines(lines, 2 * pitch, "A", 2 * skip, unit)
    d = emulator.alloc(np.zeros(8, np.uint16), "D")
    ptx = compile_cuda(source).code.decode()
    arguments = [np.uint64(a.address), np.uint64(d.address), np.int64(at)]
    report = emulator.launch(ptx, kernel, (1, 1, 1), (1, 1, 1), arguments)
    assert report.findings == []
    assert emulator.read(d).tolist() == list(range(element, element + 8))


def test_what_is_before_the_first_line_is_not_there() -> None:
    emulator = Emulator()
    a = emulator.alloc_lines(np.ones((2, 17), np.uint16), 2**34, "A", 6, 16)
    d = emulator.alloc(np.zeros(8, np.uint16), "D")
    arguments = [np.uint64(a.address), np.uint64(d.address), np.int64(0)]
    ptx = compile_cuda(_READ).code.decode()
    (found,) = emulator.launch(ptx, "read", (1, 1, 1), (1, 1, 1), arguments).findings
    assert "out of bounds" in found.message
