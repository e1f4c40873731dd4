"""Conditions of an instrumented kernel: which outcomes they have had, for any thread."""

import numpy as np
import pytest

from gen.compile.nvrtc import compile_cuda
from gen.emulator import Emulator, Outcomes, parse_ptx, told
from gen.errors import PtxError

TELL = 'asm volatile("probe.u32 {}, %0;" :: "r"(int({})));'


def ptx_of(body: str) -> str:
    text = f'extern "C" __global__ void kernel(int n, int* out) {{ {body} }}'
    return compile_cuda(text, name="kernel.cu", arch="sm_80", format="ptx").code.decode()


def seen(body: str, *sizes: int) -> dict[int, int]:
    emulator, outcomes = Emulator(), Outcomes()
    out = emulator.alloc(np.zeros(64, np.int32), "out")
    for n in sizes:
        args = [np.int32(n), out]
        emulator.launch(ptx_of(body), "kernel", (1, 1, 1), (64, 1, 1), args, observers=[outcomes])
    return outcomes.seen


def test_outcomes_add_up_over_threads_and_launches() -> None:
    assert seen(TELL.format(3, "n == 37"), 36) == {3: 2}
    assert seen(TELL.format(3, "n == 37"), 37) == {3: 1}
    assert seen(TELL.format(3, "n == 37"), 36, 37) == {3: 3}
    assert seen(TELL.format(3, "threadIdx.x == 5"), 1) == {3: 3}


def test_only_threads_that_come_there_count() -> None:
    body = f"if (threadIdx.x < 5) {{ {TELL.format(0, 'threadIdx.x == 7')} out[threadIdx.x] = n; }}"
    assert seen(body, 1) == {0: 2}
    assert seen(f"if (n == 4) {{ {TELL.format(0, 'n')} }}", 3) == {}


def test_what_the_compiler_knows() -> None:
    body = TELL.format(0, "n > 2") + TELL.format(1, "sizeof(n) > 2")
    body += f"\n#pragma unroll\nfor (int i = 0; i < 2; ++i) {TELL.format(2, 'i')}"
    body += f"if (sizeof(n) == 3) {TELL.format(4, 'n')}"
    assert told(parse_ptx(ptx_of(body))) == {0: {None}, 1: {1}, 2: {0, 1}}


def test_other_probes_are_no_instructions() -> None:
    with pytest.raises(PtxError, match="not supported"):
        seen('asm volatile("probe.f32 0, %0;" :: "r"(n));', 1)
