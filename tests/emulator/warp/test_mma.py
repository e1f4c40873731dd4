"""Tensor-core instructions, matrix accesses and asynchronous copies, against their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from gen.emulator import Emulator, LaunchReport
from gen.emulator.warp import tensor_core
from gen.errors import CheckError
from tests.emulator import tensor_kernels

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"


def launch(
    body: str, threads: int, *arrays: np.ndarray, blocks: int = 1, shared: int = 0
) -> tuple[list[np.ndarray], LaunchReport]:
    """Run PTX whose %a, %b, ... point to the arrays; %lane is the thread, %at its shared bytes."""
    names = "abcdefg"[: len(arrays)]
    code = "".join(
        f".reg .b64 %{n}, %x{n};\nld.param.u64 %{n}, [p_{n}];\n" for n in names
    )  # fmt: skip
    params = ", ".join(f".param .u64 p_{n}" for n in names)
    memory = f".shared .align 128 .b8 tile[{shared}];\n" if shared else ""
    ptx = (
        f"{HEAD}.visible .entry test({params})\n{{\n{memory}.reg .b32 %lane, %at, %r<40>;\n"
        ".reg .f32 %f<20>; .reg .f64 %fd<20>; .reg .b64 %rd<20>; .reg .pred %p<5>;\n"
        f"mov.u32 %r39, %ctaid.x; mov.u32 %lane, %tid.x; mad.lo.u32 %at, %r39, {threads}, %lane;\n"
        f"{code}{body}\nret;\n}}\n"
    )
    emulator = Emulator()
    device = [emulator.alloc(array, name) for name, array in zip("ABCDEFG", arrays, strict=False)]
    report = emulator.launch(ptx, "test", (blocks, 1, 1), (threads, 1, 1), device)
    return [emulator.read(array) for array in device], report


def place_a(lane: int, index: int, per: int, rows: int) -> tuple[int, int]:
    """(row, k) of element `index` of a lane's fragment of A, `per` elements in a register."""
    register, item = divmod(index, per)
    pieces = rows // 8
    row, k = lane // 4 + 8 * (register % pieces), lane % 4 * per + item
    return row, k + register // pieces * 4 * per


def place_b(lane: int, index: int, per: int) -> tuple[int, int]:
    """(k, column) of an element of a lane's fragment of B."""
    register, item = divmod(index, per)
    return lane % 4 * per + item + register * 4 * per, lane // 4


def place_c(lane: int, index: int) -> tuple[int, int]:
    """(row, column) of an element of a lane's fragment of C and D."""
    return lane // 4 + 8 * (index // 2), lane % 4 * 2 + index % 2


BF16 = "bf16"
STORAGE = {"f16": np.float16, "f32": np.float32, "tf32": np.float32, "f64": np.float64,
           "s8": np.int8, "u8": np.uint8, "s32": np.int32}  # fmt: skip


def encode(values: np.ndarray, kind: str) -> np.ndarray:
    if kind == BF16:
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(STORAGE[kind])


FORMS = [
    "m16n8k8.row.col.f32.f16.f16.f32", "m16n8k16.row.col.f32.f16.f16.f32",
    "m16n8k8.row.col.f16.f16.f16.f16", "m16n8k16.row.col.f16.f16.f16.f16",
    "m16n8k8.row.col.f32.bf16.bf16.f32", "m16n8k16.row.col.f32.bf16.bf16.f32",
    "m16n8k4.row.col.f32.tf32.tf32.f32", "m16n8k8.row.col.f32.tf32.tf32.f32",
    "m16n8k16.row.col.s32.s8.s8.s32", "m16n8k32.row.col.s32.s8.u8.s32",
    "m16n8k32.row.col.s32.u8.u8.s32.satfinite", "m8n8k16.row.col.satfinite.s32.s8.s8.s32",
    "m8n8k4.row.col.f64.f64.f64.f64",
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_mma_of_three_warps_in_two_blocks(form: str) -> None:
    size, _, _, *kinds = form.replace(".satfinite", "").split(".")
    m, k = int(size[1:].split("n")[0]), int(size.split("k")[1])
    result, left, right, _ = kinds
    threads, blocks = 96, 2
    rng = np.random.default_rng(k)
    lowest = 0 if "u8" in kinds else -3
    a, b, c = (rng.integers(lowest, 4, (6, *s)) for s in ((m, k), (k, 8), (m, 8)))
    per = {"f16": 2, BF16: 2, "s8": 4, "u8": 4}.get(left, 1)
    places = {
        "a": lambda lane, i: place_a(lane, i, per, m),
        "b": lambda lane, i: place_b(lane, i, per),
        "c": place_c,
    }
    counts = {"a": m * k // 32, "b": k // 4, "c": m // 4}
    fragments = {}
    for name, matrix, kind in (("a", a, left), ("b", b, right), ("c", c, result)):
        values = np.zeros((6, 32, counts[name]), np.int64)
        for lane in range(32):
            for i in range(counts[name]):
                values[:, lane, i] = matrix[(slice(None), *places[name](lane, i))]
        fragments[name] = encode(values, kind)
    bits, width, kind = ("%fd", 8, "f64") if left == "f64" else ("%r", 4, "b32")
    regs = {"a": 0, "b": 8, "c": 12, "d": 16}
    number = {n: fragments[n][0, 0].nbytes // width for n in "abc"}
    held = {n: "%f" if n == "c" and result == "f32" else bits for n in "abc"}
    code, lists = "", {}
    for n in "abc":
        names = [f"{held[n]}{regs[n] + i}" for i in range(number[n])]
        lists[n] = "{" + ", ".join(names) + "}"
        code += f"mad.wide.u32 %x{n}, %at, {number[n] * width}, %{n};\n"
        loads = "f32" if held[n] == "%f" else kind
        code += "".join(f"ld.global.{loads} {r}, [%x{n}+{i * width}];\n"
                        for i, r in enumerate(names))  # fmt: skip
    # Twice: the second takes the first one's result as its accumulator.
    code += f"mma.sync.aligned.{form} {lists['c']}, {lists['a']}, {lists['b']}, {lists['c']};\n" * 2
    names = lists["c"][1:-1].split(", ")
    code += "".join(
        f"st.global.{'f32' if held['c'] == '%f' else kind} [%xc+{i * width}], {r};\n"
        for i, r in enumerate(names)
    )
    (_, _, got), report = launch(code, threads, *fragments.values(), blocks=blocks)
    assert report.findings == []
    expected = 2 * (a @ b) + c
    for lane in range(32):
        for i in range(counts["c"]):
            assert np.array_equal(got[:, lane, i], expected[(slice(None), *place_c(lane, i))]), (
                lane,
                i,
            )


def one_mma(form: str, a: list[int], b: list[int], c: str, result: str) -> np.ndarray:
    """D of a warp whose lanes all have the same fragments: register bits of A and B, text of C."""
    moves = "".join(f"mov.b32 %r{i}, {bits:#x};\n" for i, bits in enumerate([*a, *b]))
    regs = [f"%r{i}" for i in range(len(a) + len(b))]
    count = 4 if result != "f16" else 2
    out = [f"{'%f' if result == 'f32' else '%r'}{i + 10}" for i in range(count)]
    move = "mov.f32" if result == "f32" else "mov.b32"
    moves += "".join(f"{move} {r}, {c};\n" for r in out)
    text = ", ".join(out)
    code = (
        f"{moves}mma.sync.aligned.{form} {{{text}}}, {{{', '.join(regs[: len(a)])}}}, "
        f"{{{', '.join(regs[len(a) :])}}}, {{{text}}};\nmad.wide.u32 %xa, %at, 4, %a;\n"
        f"st.global.{'f32' if result == 'f32' else 'b32'} [%xa], {out[0]};\n"
    )
    (d,), _ = launch(code, 32, np.zeros(32, "f4" if result == "f32" else "i4"))
    return d


@pytest.mark.parametrize("blocks", [1, 2])
def test_warps_that_do_not_run_keep_no_sum_from_being_exact(
    monkeypatch: pytest.MonkeyPatch, blocks: int
) -> None:
    monkeypatch.setattr(tensor_core, "_aligned", None)  # which takes many times as long
    sums = "%f1, %f2, %f3, %f4"
    code = (
        "setp.ge.u32 %p1, %lane, 32; mov.b32 %r1, 0x3C003C00; @%p1 mov.b32 %r1, 0x7E007E00;\n"
        "mov.f32 %f1, 0f40000000; @%p1 mov.f32 %f1, 0f7FC00000;\n"  # 1, 2; or NaN
        + "".join(f"mov.f32 %f{i}, %f1;\n" for i in (2, 3, 4))
        + f"@%p1 bra END;\nmma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {{{sums}}}, "
        f"{{%r1, %r1}}, {{%r1}}, {{{sums}}};\n"
        "END: mad.wide.u32 %xa, %at, 4, %a; st.global.f32 [%xa], %f4;"
    )
    (d,), _ = launch(code, 64, np.zeros(64 * blocks, np.float32), blocks=blocks)
    d = d.reshape(blocks, 64)
    assert (d[:, :32] == 10).all()
    assert np.isnan(d[:, 32:]).all()


def test_mma_sums_as_tensor_cores_do() -> None:
    # 8 products of 2^-12 beside 1: each alone would be lost in an f16 sum, together they are not.
    small, one = 0x0C00, 0x3C00  # 2^-12, 1
    pair, ones = small << 16 | small, one << 16 | one
    d = one_mma("m16n8k8.row.col.f16.f16.f16.f16", [pair] * 2, [ones], "0x3C003C00", "f16")
    assert d.view(np.float16)[0] == np.float16(1 + 2.0**-9)
    d = one_mma("m16n8k8.row.col.f32.f16.f16.f32", [pair] * 2, [ones], "0f4B800000", "f32")
    assert d[0] == 2.0**24  # 8 * 2^-12 is less than half a unit
    d = one_mma("m16n8k8.row.col.f32.f16.f16.f32", [ones] * 2, [ones], "0f4B800000", "f32")
    assert d[0] == 2.0**24 + 8
    # 8 halves make 4, which is two units of 2^24, and with 4 of 7/8 it is no more: toward zero.
    most = 0x3B00 << 16 | 0x3800  # 7/8, 1/2
    d = one_mma("m16n8k8.row.col.f32.f16.f16.f32", [most] * 2, [ones], "0f4B800000", "f32")
    assert d[0] == 2.0**24 + 4


def test_mma_of_fp8_is_two_of_f16() -> None:
    form, one = "m16n8k32.row.col.f32.e5m2.e5m2.f32", 0x3C3C3C3C
    # k % 4: 2^15 and -2^15, which leave nothing of their own, then 1.5 * 2^-14 and 0.
    parts = int.from_bytes(np.array([0x78, 0xF8, 0x06, 0]).astype(np.uint8).tobytes(), "little")
    d = one_mma(form, [parts] * 4, [one] * 2, "0f00000000", "f32")
    assert d[0] == 8 * 1.5 * 2.0**-14
    swapped = parts >> 16 | parts << 16 & 0xFFFFFFFF
    d = one_mma(form, [swapped] * 4, [one] * 2, "0f00000000", "f32")
    assert d[0] == 0
    # C comes last, and is rounded: three quarters of the unit of 2^13.
    d = one_mma(form, [parts] * 4, [one] * 2, "0f46000000", "f32")
    assert d[0] == 2.0**13 + 2.0**-10
    d = one_mma("m16n8k32.row.col.f16.e5m2.e5m2.f16", [parts] * 4, [one] * 2, "0x3C003C00", "f16")
    assert d.view(np.float16)[0] == 1 + 2.0**-10


def test_mma_ignores_what_tf32_lacks_and_saturates_integers() -> None:
    almost = 0x3F801FFF  # 1 and bits that tf32 does not have
    one = 0x3F800000
    d = one_mma("m16n8k4.row.col.f32.tf32.tf32.f32", [almost] * 2, [one], "0f00000000", "f32")
    assert d[0] == 4.0
    top, ones = "0x7FFFFFFF", 0x01010101
    wrap = one_mma("m16n8k16.row.col.s32.s8.s8.s32", [ones] * 2, [ones], top, "s32")
    assert wrap[0] == -(2**31) + 15
    clamp = one_mma("m16n8k16.row.col.satfinite.s32.s8.s8.s32", [ones] * 2, [ones], top, "s32")
    assert clamp[0] == 2**31 - 1


@pytest.mark.parametrize(
    "form",
    [
        "m16n8k8.row.row.f32.f16.f16.f32",
        "m16n8k64.row.col.s32.s8.s8.s32",
        "m8n8k4.row.col.f32.bf16.bf16.f32",
        "m16n8k8.row.col.f32.f16.f16.f16",
    ],
)
def test_other_shapes_are_refused_by_name(form: str) -> None:
    code = f".loc 1 7 1\nmma.sync.aligned.{form} {{%f0, %f1}}, {{%r0}}, {{%r1}}, {{%f0, %f1}};"
    with pytest.raises(CheckError, match=r"not supported.*CUDA line 7"):
        launch(code, 32, np.zeros(1))


def fill_shared(bytes_per_thread: int = 16) -> str:
    """Copy %a to shared memory, 16 bytes a thread; %r30 is the tile's address."""
    return (
        "mov.u32 %r30, tile; mad.lo.u32 %r31, %lane, 16, %r30; mad.wide.u32 %xa, %lane, 16, %a;\n"
        "ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%xa];\n"
        "st.shared.v4.u32 [%r31], {%r0, %r1, %r2, %r3}; bar.sync 0;\n"
    )


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("order", ["m8n8.x{}{}.shared", "x{}.m8n8{}.shared::cta"])
def test_ldmatrix(count: int, transposed: bool, order: str) -> None:
    rows = np.arange(32 * 8, dtype=np.int16).reshape(32, 8)
    regs = ", ".join(f"%r{10 + i}" for i in range(count))
    how = order.format(count, ".trans" if transposed else "")
    code = fill_shared() + (
        # Lane i names row i ^ 1; lanes beyond the matrices name nothing valid.
        f"xor.b32 %r5, %lane, 1; mad.lo.u32 %r5, %r5, 16, %r30;\n"
        f"setp.lt.u32 %p0, %lane, {8 * count}; selp.b32 %r5, %r5, -3, %p0;\n"
        f"ldmatrix.sync.aligned.{how}.b16 {{{regs}}}, [%r5];\n"
        f"mad.wide.u32 %xb, %lane, {4 * count}, %b;\n"
        + "".join(f"st.global.u32 [%xb+{4 * i}], %r{10 + i};\n" for i in range(count))
    )
    (_, got), report = launch(code, 32, rows, np.zeros((32, count), np.int32), shared=512)
    assert report.findings == []
    for i in range(count):
        matrix = rows[[8 * i + (r ^ 1) for r in range(8)]]
        matrix = matrix.T if transposed else matrix
        expected = np.ascontiguousarray(matrix).view(np.int32).ravel()
        assert np.array_equal(got[:, i], expected), i


@pytest.mark.parametrize("transposed", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_stmatrix_is_the_inverse_of_ldmatrix(count: int, transposed: str) -> None:
    rows = np.arange(32 * 8, dtype=np.int16).reshape(32, 8)
    regs = ", ".join(f"%r{10 + i}" for i in range(count))
    code = fill_shared() + (
        f"ldmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 {{{regs}}}, [%r31];\n"
        "bar.sync 0; add.u32 %r32, %r31, 512;\n"
        f"stmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 [%r32], {{{regs}}};\n"
        "bar.sync 0; ld.shared.v4.u32 {%r0, %r1, %r2, %r3}, [%r31+512];\n"
        "mad.wide.u32 %xb, %lane, 16, %b; st.global.v4.u32 [%xb], {%r0, %r1, %r2, %r3};\n"
    )
    (_, got), report = launch(code, 32, rows, np.zeros((32, 8), np.int16), shared=1024)
    assert report.findings == []
    assert np.array_equal(got[: 8 * count], rows[: 8 * count])
    assert (got[8 * count :] == -1).all()  # never written


def test_movmatrix_transposes() -> None:
    matrix = np.arange(64, dtype=np.int16).reshape(8, 8)
    code = (
        "mad.wide.u32 %xa, %lane, 4, %a; ld.global.u32 %r0, [%xa];\n"
        "movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r0; st.global.u32 [%xa], %r1;\n"
    )
    (got,), report = launch(code, 32, matrix)
    assert report.findings == []
    assert np.array_equal(got, matrix.T)


def test_ldmatrix_addresses_are_checked() -> None:
    code = "mov.u32 %r30, tile; mad.lo.u32 %r31, %lane, 16, %r30;\n.loc 1 9 1\n"
    load = "ldmatrix.sync.aligned.m8n8.x{}.shared.b16 {}, [%r31+{}];\n"
    four = "{%r0, %r1, %r2, %r3}"
    for count, regs, offset, shared, message in (
        (4, four, 16, 512, "shared matrix load of 16 bytes at shared+512 of 512 is out of bounds"),
        (4, four, 8, 1024, "is misaligned, by 32 threads"),
        (1, "{%r0}", 400, 512, "is out of bounds, by 1 thread"),
    ):
        code_now = code + load.format(count, regs, offset)
        _, report = launch(code_now, 32, np.zeros(1), shared=shared)
        (finding,) = report.findings
        assert message in finding.message
        assert finding.check == "memcheck"
        assert finding.file_line == 9
    _, report = launch(code + load.format(1, "{%r0}", 384), 32, np.zeros(1), shared=512)
    assert report.findings == []  # the other lanes' addresses do not matter


@pytest.mark.parametrize(
    "what",
    ["movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r0;",
     "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3}, {%r0,%r1}, {%r2}, "
     "{%f0,%f1,%f2,%f3};",
     "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [tile];"],
)  # fmt: skip
@pytest.mark.parametrize(
    ("setup", "partial"),
    [
        ("setp.lt.u32 %p0, %lane, 40;\n@!%p0 bra OUT;\n", True),
        ("setp.lt.u32 %p0, %lane, 32;\n@!%p0 bra OUT;\n", False),
        ("setp.lt.u32 %p0, %lane, 40;\n@!%p0 ret;\n", True),
        ("setp.lt.u32 %p0, %lane, 40;\n@%p0 bra LATE;\nadd.u32 %r9, %r9, 1;\nLATE:\n", False),
    ],
)
def test_part_of_a_warp_is_reported(what: str, setup: str, partial: bool) -> None:
    zeros = "".join(f"mov.f32 %f{i}, 0f00000000; mov.u32 %r{i}, 0; " for i in range(4))
    code = f".loc 1 3 1\n{zeros}{setup}.loc 1 4 1\n{what}\nOUT:\n"
    _, report = launch(code, 64, np.zeros(1), shared=512)
    if partial:
        (finding,) = report.findings
        assert (finding.check, finding.file_line) == ("synccheck", 4)
        assert "8 of the 32 threads" in finding.message
    else:
        assert report.findings == []


COPY = (
    "mov.u32 %r30, tile; mad.lo.u32 %r31, %lane, 16, %r30; mad.wide.u32 %xa, %lane, 16, %a;\n"
    "mad.wide.u32 %xb, %lane, 16, %b; st.shared.u32 [%r31], 7;\n"
)
SHOW = "ld.shared.v4.u32 {%r0,%r1,%r2,%r3}, [%r31]; st.global.v4.u32 [%xb], {%r0,%r1,%r2,%r3};\n"


def copied(code: str, threads: int = 32) -> np.ndarray:
    """What shared memory holds after `code`, 4 words a thread; `tile` starts with 7 in each."""
    source = np.arange(1, 4 * threads + 1, dtype=np.int32).reshape(threads, 4)
    out = np.zeros((threads, 4), np.int32)
    (_, got), report = launch(COPY + code + SHOW, threads, source, out, shared=16 * threads)
    assert report.findings == []
    return got - source


def test_copies_arrive_at_the_wait() -> None:
    copy = "cp.async.cg.shared.global.L2::128B [%r31], [%xa], 16;\n"
    commit = "cp.async.commit_group;\n"
    assert (copied(copy + commit)[:, 0] != 0).all()
    assert (copied(copy + commit + "cp.async.wait_group 1;\n")[:, 0] != 0).all()
    assert (copied(copy + "cp.async.wait_group 0;\n")[:, 0] != 0).all()  # not committed
    assert (copied(copy + commit + "cp.async.wait_group 0;\n") == 0).all()
    assert (copied(copy + commit * 2 + "cp.async.wait_group 1;\n") == 0).all()
    assert (copied(copy + "cp.async.wait_all;\n") == 0).all()


@pytest.mark.parametrize("size", [4, 8, 16])
def test_copies_of_each_size_fill_with_zeros(size: int) -> None:
    start = f"cp.async.ca.shared.global [%r31], [%xa], {size}"
    end = ";\ncp.async.wait_all;\n"
    source = np.arange(1, 129, dtype=np.int32).reshape(32, 4)
    words = size // 4
    whole = copied(start + end) + source
    assert np.array_equal(whole[:, :words], source[:, :words])
    none = copied(f"{start}, 0{end}") + source
    assert (none[:, :words] == 0).all()
    part = copied(f"mov.u32 %r20, 3;\n{start}, %r20{end}") + source
    assert np.array_equal(part[:, 0], source[:, 0] & 0xFFFFFF)
    odd = copied(f"and.b32 %r20, %lane, 1; setp.ne.b32 %p0, %r20, 0;\n{start}, %p0{end}") + source
    assert np.array_equal(odd[::2, 0], source[::2, 0])
    assert (odd[1::2, 0] == 0).all()


def test_groups_are_counted_for_each_thread() -> None:
    """Lanes below 8 commit an empty group more, so one group left means less to them."""
    code = (
        "setp.lt.u32 %p0, %lane, 8; cp.async.ca.shared.global [%r31], [%xa], 16;\n"
        "cp.async.commit_group;\n@%p0 cp.async.commit_group;\ncp.async.wait_group 1;\n"
    )
    changed = copied(code)[:, 0] != 0
    assert not changed[:8].any()
    assert changed[8:].all()


def test_a_source_that_is_not_read_is_not_checked() -> None:
    wild = "mov.u64 %xa, 0;\ncp.async.ca.shared.global [%r31], [%xa], 16, {};\ncp.async.wait_all;\n"
    assert copied(wild.format(0)).shape == (32, 4)
    _, report = launch(COPY + wild.format(16), 32, *np.zeros((2, 1)), shared=512)
    assert [finding.check for finding in report.findings] == ["memcheck"]
    _, report = launch(
        COPY + "cp.async.cg.shared.global [%r31+16], [%a], 16;", 32, *np.zeros((2, 2)), shared=512
    )
    assert "shared asynchronous copy of 16 bytes at shared+512" in report.findings[0].message


@pytest.mark.parametrize("accumulator", ["f32", "f16"])
@pytest.mark.parametrize(
    ("name", "shape"),
    [("register_loads", (37, 29, 19)), ("register_loads", (16, 8, 0)),
     ("pipeline", (64, 64, 64)), ("pipeline", (131, 72, 40)), ("pipeline", (1, 200, 104))],
)  # fmt: skip
def test_gemm_kernels(name: str, accumulator: str, shape: tuple[int, int, int]) -> None:
    result, exact, report = tensor_kernels.run(name, accumulator, *shape)
    assert report.findings == []
    assert np.array_equal(result, exact)


def test_chunks_do_not_change_results() -> None:
    for chunk_threads in (1, 200):
        emulator = Emulator(chunk_threads=chunk_threads)
        result, exact, _ = tensor_kernels.run("pipeline", "f32", 130, 136, 48, emulator=emulator)
        assert np.array_equal(result, exact)


def test_waiting_for_one_group_too_few_gives_wrong_results() -> None:
    result, exact, _ = tensor_kernels.run("pipeline", "f32", 64, 64, 128, in_flight=2)
    assert not np.array_equal(result, exact)
