"""wgmma against its definition: every type, layouts of shared memory, registers, and findings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gen.emulator import Emulator, Finding
from gen.emulator.warp.wgmma import form_of
from gen.errors import PtxError

ROWS = 64
TYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "s8": np.int8,
    "u8": np.uint8, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
    "f32": np.float32, "s32": np.int32,
}  # fmt: skip
WIDTHS = {0: 16, 32: 32, 64: 64, 128: 128}  # bytes of a row of an 8-row piece, by swizzle
CODES = {0: 0, 128: 1, 64: 2, 32: 3}


@dataclass(frozen=True)
class Layout:
    """How a matrix lies in shared memory: CUTLASS's canonical layouts."""

    swizzle: int
    mn_major: bool = False

    def image(self, matrix: np.ndarray, start: int) -> tuple[bytes, int]:
        """The bytes of a (rows, k) matrix that begins at `start`, and its descriptor."""
        rows, k = matrix.shape
        width, size = WIDTHS[self.swizzle], matrix.itemsize
        across = width // size  # elements of a row of a piece
        outer, inner = (k, rows) if self.mn_major else (rows, k)
        pieces_in, pieces_out = -(-inner // across), -(-outer // 8)
        inner_step, outer_step = 8 * width, 8 * width * pieces_in  # bytes between pieces
        place = bytearray(start + pieces_in * pieces_out * 8 * width)
        for i in range(rows):
            for j in range(k):
                x, y = (i, j) if self.mn_major else (j, i)  # along a row of pieces, and across
                at = x // across * inner_step + y // 8 * outer_step + y % 8 * width
                at = start + at + x % across * size
                if self.swizzle:
                    at ^= (at >> 7) % (self.swizzle // 16) << 4
                place[at : at + size] = matrix[i, j].tobytes()
        leading, stride = inner_step, outer_step
        if self.mn_major and not self.swizzle:
            leading, stride = stride, leading
        word = start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | CODES[self.swizzle] << 62
        return bytes(place[start:]), word


def fragment(lane: int, index: int) -> tuple[int, int]:
    """(row, column) of element `index` of a thread's accumulators."""
    row = 16 * (lane // 32) + lane % 32 // 4 + 8 * (index >> 1 & 1)
    return row, 2 * (lane % 4) + (index & 1) + 8 * (index // 4)


def left_registers(matrix: np.ndarray) -> np.ndarray:
    """The four registers of A of each thread, as (128, 4) int32."""
    each = 4 // matrix.itemsize
    registers = np.zeros((128, 4, each), matrix.dtype)
    for lane in range(128):
        for at in range(4):
            row = 16 * (lane // 32) + lane % 32 // 4 + 8 * (at % 2)
            first = at // 2 * 4 * each + lane % 4 * each
            registers[lane, at] = matrix[row, first : first + each]
    return registers.reshape(128, -1).view(np.int32)


def multiply(
    name: str, a: np.ndarray, b: np.ndarray, c: np.ndarray, left: Layout | None, right: Layout,
    adds: bool = True, signs: tuple[int, int] = (1, 1), body: str = "", start: int = 1024,
) -> tuple[np.ndarray, list[Finding]]:  # fmt: skip
    """One wgmma of matrices (64, k), (n, k) and (64, n); left None: A is in registers."""
    form = form_of(f"wgmma.mma_async.sync.aligned.{name}")
    assert form is not None
    image, words = bytearray(start), []
    for matrix, layout in ((a, left), (b, right)):
        if layout is None:
            words.append(0)
            continue
        at = -(-len(image) // 1024) * 1024 + start % 1024
        data, word = layout.image(matrix, at)
        image = image.ljust(at, b"\0") + data
        words.append(word)
    image = image.ljust(-(-len(image) // 512) * 512, b"\0")
    half = form.d == "f16"
    kind = {"f16": "b32", "f32": "f32", "s32": "b32"}[form.d]
    sums = [f"%d{i}" for i in range(form.results)]
    options = [] if form.d == "s32" else [str(s) for s in signs]
    if form.transposes:
        options += [str(int(x.mn_major)) for x in (left, right) if x]
    operand = "%wa" if left else "{%a0, %a1, %a2, %a3}"
    wgmma = (
        f"wgmma.mma_async.sync.aligned.{name} {{{', '.join(sums)}}}, {operand}, %wb, "
        f"{', '.join(['%scale', *options])};"
    )
    loads = "".join(f"ld.global.{kind} {d}, [%pc+{4 * i}];\n" for i, d in enumerate(sums))
    stores = "".join(f"st.global.{kind} [%pd+{4 * i}], {d};\n" for i, d in enumerate(sums))
    steps = "".join(
        f"ld.global.b32 %r1, [%pi+{at}];\nst.shared.b32 [%r0+{at}], %r1;\n"
        for at in range(0, len(image), 512)
    )
    default = (
        f"wgmma.fence.sync.aligned;\n{wgmma}\nwgmma.commit_group.sync.aligned;\n"
        "wgmma.wait_group.sync.aligned 0;\n"
    )
    ptx = f"""
.version 8.0
.target sm_90a
.address_size 64
.visible .entry test(.param .u64 image, .param .u64 pa, .param .u64 pc, .param .u64 pd,
                     .param .u64 wa, .param .u64 wb, .param .u32 adds)
{{
.shared .align 1024 .b8 tile[{len(image)}];
.reg .b32 %lane, %r<9>, %a<4>; .reg .b64 %pi, %pa, %pc, %pd, %wa, %wb, %rd<4>; .reg .pred %scale;
.reg .{kind} %d<{form.results}>;
mov.u32 %lane, %tid.x;
mul.wide.u32 %rd0, %lane, 4;
ld.param.u64 %pi, [image]; add.s64 %pi, %pi, %rd0;
mov.u32 %r2, tile; shl.b32 %r0, %lane, 2; add.u32 %r0, %r0, %r2;
{steps}
mul.wide.u32 %rd1, %lane, 16; ld.param.u64 %pa, [pa]; add.s64 %pa, %pa, %rd1;
ld.global.v4.b32 {{%a0, %a1, %a2, %a3}}, [%pa];
mul.wide.u32 %rd2, %lane, {4 * form.results};
ld.param.u64 %pc, [pc]; add.s64 %pc, %pc, %rd2; ld.param.u64 %pd, [pd]; add.s64 %pd, %pd, %rd2;
ld.param.u64 %wa, [wa]; ld.param.u64 %wb, [wb];
ld.param.u32 %r3, [adds]; setp.ne.b32 %scale, %r3, 0;
{loads}
fence.proxy.async;
bar.sync 0;
{(body or default).replace("WGMMA", wgmma)}
{stores}
ret;
}}
"""
    registers = np.zeros((128, form.results * (2 if half else 1)), c.dtype)
    for lane in range(128):
        for index in range(registers.shape[1]):
            registers[lane, index] = c[fragment(lane, index)]
    emulator = Emulator()
    arrays = [
        np.frombuffer(bytes(image), np.uint8),
        left_registers(a) if left is None else np.zeros((128, 4), np.int32),
        registers, np.zeros_like(registers),
    ]  # fmt: skip
    device = [emulator.alloc(x, n) for x, n in zip(arrays, ("image", "A", "C", "D"), strict=True)]
    rest = [np.uint64(word) for word in words] + [np.uint32(adds)]
    report = emulator.launch(ptx, "test", (1, 1, 1), (128, 1, 1), [*device, *rest])
    found, result = emulator.read(device[3]), np.zeros_like(c)
    for lane in range(128):
        for index in range(registers.shape[1]):
            result[fragment(lane, index)] = found[lane, index]
    return result, report.findings


def integers(shape: tuple[int, int], kind: str, seed: int) -> np.ndarray:
    low = 0 if kind == "u8" else -4
    return np.random.default_rng(seed).integers(low, 5, shape).astype(TYPES[kind])


def check(
    name: str, left: Layout | None, right: Layout, adds: bool = True,
    signs: tuple[int, int] = (1, 1), start: int = 1024,
) -> None:  # fmt: skip
    """Small integers: exact in every type."""
    form = form_of(f"wgmma.mma_async.sync.aligned.{name}")
    assert form is not None
    a, b = integers((ROWS, form.k), form.a, 1), integers((form.n, form.k), form.b, 2)
    c = integers((ROWS, form.n), form.d, 3)
    d, findings = multiply(name, a, b, c, left, right, adds, signs, start=start)
    product = a.astype(np.float64) @ b.astype(np.float64).T
    wanted = signs[0] * signs[1] * product + adds * c.astype(np.float64)
    assert not findings
    assert (d.astype(np.float64) == wanted).all()


FORMS = [
    "m64n8k16.f32.f16.f16", "m64n24k16.f16.f16.f16", "m64n256k16.f32.bf16.bf16",
    "m64n16k8.f32.tf32.tf32", "m64n32k32.f32.e4m3.e5m2", "m64n8k32.f16.e5m2.e4m3",
    "m64n24k32.s32.s8.u8", "m64n48k32.s32.u8.s8.satfinite",
]  # fmt: skip


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("name", FORMS)
def test_k_major(name: str, swizzle: int) -> None:
    check(name, Layout(swizzle), Layout(128 if swizzle == 64 else swizzle))


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("which", [(True, True), (True, False), (False, True)])
def test_mn_major(swizzle: int, which: tuple[bool, bool]) -> None:
    check("m64n64k16.f32.f16.f16", *(Layout(swizzle, mn_major) for mn_major in which))


@pytest.mark.parametrize("name", FORMS)
def test_a_in_registers(name: str) -> None:
    form = form_of(f"wgmma.mma_async.sync.aligned.{name}")
    assert form is not None
    check(name, None, Layout(64, form.transposes and form.n % 32 == 0))


@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("signs", [(1, 1), (-1, 1), (-1, -1)])
def test_signs_and_scale(adds: bool, signs: tuple[int, int]) -> None:
    check("m64n16k16.f32.bf16.bf16", Layout(32), Layout(128), adds, signs)


@settings(max_examples=12, deadline=None)
@given(n=st.integers(1, 32), start=st.integers(0, 6), k_step=st.integers(0, 3))
def test_any_columns_and_start(n: int, start: int, k_step: int) -> None:
    """The swizzle is one of addresses: a matrix may begin inside of its pattern."""
    check(f"m64n{8 * n}k16.f32.f16.f16", Layout(128), Layout(128), start=2048 + 1024 * start)


def test_integers_wrap_or_saturate() -> None:
    a, b = np.full((ROWS, 32), 127, np.int8), np.full((8, 32), 127, np.int8)
    c = np.full((ROWS, 8), 2**31 - 5, np.int32)
    wrapped, _ = multiply("m64n8k32.s32.s8.s8", a, b, c, Layout(32), Layout(32))
    kept, _ = multiply("m64n8k32.s32.s8.s8.satfinite", a, b, c, Layout(32), Layout(32))
    assert (wrapped == 2**31 - 5 + 32 * 127 * 127 - 2**32).all()
    assert (kept == 2**31 - 1).all()


def test_single_bits() -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.integers(0, 256, (rows, 32), np.uint8) for rows in (ROWS, 16))
    c = np.ones((ROWS, 16), np.int32)
    d, _ = multiply("m64n16k256.s32.b1.b1.and.popc", a, b, c, Layout(32), Layout(128))
    left, right = (np.unpackbits(x, axis=1).astype(np.int32) for x in (a, b))
    assert (d == left @ right.T + 1).all()


@pytest.mark.parametrize(
    ("kind", "bits"), [("f16", 25), ("bf16", 25), ("tf32", 25), ("e4m3", 13), ("e5m2", 13)]
)
def test_sums_are_cut_off(kind: str, bits: int) -> None:
    """A term of less than the last bit below the largest exponent is lost, one of it is not."""
    k = {"tf32": 8, "f16": 16, "bf16": 16}.get(kind, 32)
    a, b = np.zeros((ROWS, k), TYPES[kind]), np.zeros((8, k), TYPES[kind])
    a[:, :2], b[:, 0], b[:, 1] = 1, 1, 0
    for shift in (0, 1):
        c = np.full((ROWS, 8), 2.0 ** -(bits + shift), np.float32)
        a[:, 1], b[:, 1] = -1, 1  # 1 - 1 leaves what was kept of C
        d, _ = multiply(f"m64n8k{k}.f32.{kind}.{kind}", a, b, c, Layout(32), Layout(32))
        assert (d == (0 if shift else 2.0**-bits)).all()


def test_spellings() -> None:
    good = [f"m64n{n}k32.s32.s8.s8" for n in (8, 16, 24, 32, 48, 240, 256)]
    bad = [f"m64n{n}k32.s32.s8.s8" for n in (40, 56, 232, 264)]
    good += [f"m64n{n}k16.f32.f16.f16" for n in (8, 40, 232, 256)] + [
        "m64n8k256.s32.b1.b1.and.popc"
    ]
    bad += ["m64n4k16.f32.f16.f16", "m64n264k16.f32.f16.f16", "m64n8k8.f32.f16.f16",
            "m64n8k16.f16.bf16.bf16", "m64n8k16.f32.f16.bf16", "m64n8k16.f32.f16.f16.satfinite",
            "m64n8k256.s32.b1.b1"]  # fmt: skip
    assert all(form_of(f"wgmma.mma_async.sync.aligned.{name}") for name in good)
    assert not any(form_of(f"wgmma.mma_async.sync.aligned.{name}") for name in bad)


# -- findings ------------------------------------------------------------------------------

FENCE, COMMIT = "wgmma.fence.sync.aligned;\n", "wgmma.commit_group.sync.aligned;\n"
WAIT = "wgmma.wait_group.sync.aligned {};\n"


def found(body: str, left: Layout | None = Layout(128)) -> list[str]:
    a, b = integers((ROWS, 16), "f16", 1), integers((8, 16), "f16", 2)
    c = integers((ROWS, 8), "f32", 3)
    _, findings = multiply("m64n8k16.f32.f16.f16", a, b, c, left, Layout(128), body=body)
    return [f"{finding.check}: {finding.message}" for finding in findings]


GOOD = {
    "one group": f"{FENCE}WGMMA\n{COMMIT}{WAIT.format(0)}",
    "same accumulators": f"{FENCE}WGMMA\nWGMMA\n{COMMIT}WGMMA\n{COMMIT}{WAIT.format(0)}",
    "an older group": f"{FENCE}WGMMA\n{COMMIT}{COMMIT}{WAIT.format(1)}",
    "changed behind a wait": (
        f"{FENCE}WGMMA\n{COMMIT}{WAIT.format(0)}add.f32 %d0, %d0, %d0;\n{FENCE}WGMMA\n"
        f"{COMMIT}{WAIT.format(0)}"
    ),
}
BAD = {
    "no fence": (f"WGMMA\n{COMMIT}{WAIT.format(0)}", "without a wgmma.fence"),
    "no fence behind a change": (
        f"{FENCE}WGMMA\n{COMMIT}{WAIT.format(0)}add.f32 %d0, %d0, %d0;\nWGMMA\n{COMMIT}"
        f"{WAIT.format(0)}", "without a wgmma.fence",
    ),
    "no wait": (f"{FENCE}WGMMA\n{COMMIT}", "before a wgmma.wait_group"),
    "a wait for one group less": (
        f"{FENCE}WGMMA\n{COMMIT}{WAIT.format(1)}", "before a wgmma.wait_group"
    ),
    "not committed": (f"{FENCE}WGMMA\n{WAIT.format(0)}", "before a wgmma.wait_group"),
    "three warps": (
        f"{FENCE}setp.lt.u32 %scale, %lane, 96;\n@%scale WGMMA\n{COMMIT}{WAIT.format(0)}",
        "by 3 of the 4 warps of a warpgroup",
    ),
    "half of a warp": (
        f"setp.lt.u32 %scale, %lane, 16;\n@%scale {FENCE}{FENCE}WGMMA\n{COMMIT}{WAIT.format(0)}",
        "wgmma.sync.aligned executed by 16 of the 32 threads",
    ),
    "out of bounds": (
        f"{FENCE}add.s64 %wb, %wb, 4096;\nWGMMA\n{COMMIT}{WAIT.format(0)}", "is out of bounds"
    ),
    "descriptors that differ": (
        f"{FENCE}cvt.u64.u32 %rd3, %lane; shr.u64 %rd3, %rd3, 6; add.s64 %wb, %wb, %rd3;\nWGMMA\n"
        f"{COMMIT}{WAIT.format(0)}", "the descriptor of B of wgmma.mma_async differs",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", GOOD)
def test_nothing_found(case: str) -> None:
    assert not found(GOOD[case])
    assert not found(GOOD[case], None)


@pytest.mark.parametrize("case", BAD)
def test_found(case: str) -> None:
    body, message = BAD[case]
    assert any(message in text for text in found(body))


def test_a_register_written_too_early() -> None:
    early = f"{FENCE}WGMMA\n{COMMIT}mov.b32 %a1, 0;\n{WAIT.format(0)}"
    assert any("before a wgmma.wait_group" in text for text in found(early, None))
    assert not found(early.replace("%a1", "%r5"), None)


def test_base_offset_is_refused() -> None:
    body = f"{FENCE}mov.b64 %rd3, {1 << 49}; or.b64 %wb, %wb, %rd3;\nWGMMA\n{COMMIT}"
    with pytest.raises(PtxError, match="base offset"):
        found(body)
