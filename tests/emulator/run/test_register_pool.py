"""setmaxnreg: registers that are given and taken, by whole warpgroups."""

from __future__ import annotations

import re

import numpy as np
import pytest

from gen.emulator import Emulator, parse_ptx
from gen.emulator.run.register_pool import registers_at_start
from tests.emulator.emulator_kernels import compile_cuda


def messages(body: str, bounds: str = "384, 1", threads: int = 384) -> list[str]:
    """Findings of a kernel; lines of `body` count from 2, and `x` is the thread."""
    source = f'extern "C" __global__ void __launch_bounds__({bounds}) kernel(int* out) {{'
    source += f"const int x = threadIdx.x;\n{body}\nout[x] = x;\n}}\n"
    source = re.sub(
        r"(inc|dec)\((\d+)\);  //",
        r'asm volatile("setmaxnreg.\1.sync.aligned.u32 \2;");',
        source,
    )
    emulator = Emulator()
    out = emulator.alloc(np.zeros(threads, np.int32), "out")
    ptx = compile_cuda(source, "compute_90a")
    report = emulator.launch(ptx, "kernel", (2, 1, 1), (threads, 1, 1), [out])
    assert all(finding.check == "synccheck" for finding in report.findings)
    return [f"{finding.file_line}: {finding.message}" for finding in report.findings]


ROLES = "if (x >= 256)\n  dec({});  //\nelse\n  inc({});  //"


def test_what_is_given_can_be_taken() -> None:
    """384 threads start with 168 registers each: 65536 / 384, in units of 8."""
    assert messages(ROLES.format(24, 240)) == []
    assert messages(ROLES.format(168, 168)) == []
    (message,) = messages(ROLES.format(32, 240))
    assert message == (
        "5: deadlock: setmaxnreg.inc.sync.aligned.u32 waits for registers that nobody gives: "
        "the block would hold 65536 of 64512"
    )
    (message,) = messages(ROLES.format(80, 224))
    assert "would hold 67584 of 64512" in message


def test_one_after_the_other() -> None:
    """A warpgroup gives back what it has taken, and the next one takes it."""
    body = (
        "if (x >= 256) {\n  dec(24);  //\n}\nif (x < 128) {\n  inc(240);  //\n  dec(24);  //\n}\n"
    )
    body += "else if (x < 256) {\n  inc(232);  //\n}"
    assert messages(body) == []


WGMMA = """
.version 9.0
.target sm_90a
.address_size 64
.visible .entry kernel() {bounds} {{
  .reg .f32 %f<2>; .reg .b64 %rd<2>;
  wgmma.mma_async.sync.aligned.m64n{n}k16.{sums}.f16.f16 {{%f1}}, %rd1, %rd1, 1, 1, 1, 0, 0;
  ret;
}}
"""


@pytest.mark.parametrize(
    ("bounds", "n", "sums", "registers"),
    [
        (".maxntid 384", 256, "f32", 168),  # as ptxas 13.0 has it
        (".maxntid 384", 256, "f16", 0),
        (".maxntid 384", 64, "f32", 0),
        (".maxntid 128", 256, "f32", 0),  # 128 of 512: two blocks have room
        (".maxntid 384 .minnctapersm 1", 64, "f32", 168),
        (".maxntid 256 .maxnreg 96", 256, "f32", 96),
        ("", 256, "f32", 0),
    ],
)
def test_a_wgmma_too_large_for_two_blocks(bounds: str, n: int, sums: str, registers: int) -> None:
    module = parse_ptx(WGMMA.format(bounds=bounds, n=n, sums=sums))
    assert registers_at_start(module.kernel("kernel")) == registers


def test_a_kernel_that_does_not_say_how_many() -> None:
    found = sorted(messages(ROLES.format(24, 240), bounds="384"))
    assert [message[:1] for message in found] == ["3", "5"]
    assert "has no effect" in found[0]
    assert "__launch_bounds__ a second argument" in found[0]


def test_the_wrong_way() -> None:
    assert sorted(messages("if (x >= 256)\n  dec(176);  //\nelse\n  inc(160);  //")) == [
        "3: setmaxnreg.dec.sync.aligned.u32 to 176 registers, where the threads have 168",
        "5: setmaxnreg.inc.sync.aligned.u32 to 160 registers, where the threads have 168 already",
    ]


@pytest.mark.parametrize(
    ("who", "warps"), [("x >= 352", 1), ("x >= 320", 2), ("x < 32 || x >= 256", 1)]
)
def test_part_of_a_warpgroup(who: str, warps: int) -> None:
    (message,) = messages(f"if ({who})\n  dec(24);  //")
    assert message.startswith("3: ")
    assert f"by {warps} of the 4 warps of a warpgroup" in message


def test_two_values_in_a_warpgroup() -> None:
    found = messages("if (x >= 320)\n  dec(24);  //\nelse if (x >= 256)\n  dec(32);  //")
    assert len(found) == 2
    assert all("by 2 of the 4 warps of a warpgroup" in message for message in found)


def test_warps_beyond_the_last_warpgroup() -> None:
    (message,) = messages("if (x >= 256)\n  dec(24);  //", bounds="288, 1", threads=288)
    assert "by 1 of the 4 warps" in message


def test_more_than_a_multiprocessor_has() -> None:
    ptx = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n.maxnreg {}\n"
    ptx += "{{ setmaxnreg.dec.sync.aligned.u32 {}; ret; }}\n"

    def run(registers: int, count: int) -> list[str]:
        report = Emulator().launch(ptx.format(registers, count), "k", (1, 1, 1), (512, 1, 1), [])
        return [finding.message for finding in report.findings]

    assert run(128, 128) == []
    (message,) = run(160, 160)
    assert "would hold 81920 of 65536" in message


MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{{d}}}, {{{a}}}, {{{b}}}, {{{d}}};"


def test_fewer_than_the_sums_take() -> None:
    """A loop adds to 32 sums, in four registers each time, that are there before it."""
    sums = [", ".join(f"%f{4 * i + j}" for j in range(4)) for i in range(8)]
    adds = "\n".join(MMA.format(d=d, a="%r0, %r1, %r2, %r3", b="%r0, %r1") for d in sums)
    zeros = "\n".join(f"mov.f32 %f{i}, 0f00000000;" for i in range(32))
    ptx = f"""
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k() .maxntid 128 .minnctapersm 1 {{
  .reg .f32 %f<32>; .reg .b32 %r<6>; .reg .pred %p<2>;
  {zeros}
  mov.u32 %r0, 0; mov.u32 %r1, 0; mov.u32 %r2, 0; mov.u32 %r3, 0; mov.u32 %r4, 0;
  setmaxnreg.dec.sync.aligned.u32 COUNT;
LOOP:
  {adds}
  add.u32 %r4, %r4, 1;
  setp.lt.u32 %p1, %r4, 3;
  @%p1 bra LOOP;
  AFTER
  ret;
}}
"""

    def run(count: int, after: str = "") -> list[str]:
        text = ptx.replace("COUNT", str(count)).replace("AFTER", after)
        report = Emulator().launch(text, "k", (1, 1, 1), (128, 1, 1), [])
        return [finding.message for finding in report.findings]

    assert run(40) == []
    (message,) = run(32)
    assert message == ("setmaxnreg.dec.sync.aligned.u32 to 32 registers, where sums alone take 32")
    fewer = "setmaxnreg.dec.sync.aligned.u32 24;"
    assert run(40, fewer) == []  # the sums are not needed any more
