"""Each instruction on literal values: edges of signed and unsigned types, rounding, wrap-around."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from gen.emulator import Emulator
from gen.errors import CheckError

NAN, INF = float("nan"), float("inf")
MIN32, MAX32, ALL = -(2**31), 2**31 - 1, 2**32 - 1
REGISTER = {1: "b16", 2: "b16", 4: "b32", 8: "b64"}


def register(dtype: np.dtype) -> tuple[str, str]:
    """A register's declared type and the type with which it is loaded and stored."""
    if dtype.kind == "f" and dtype.itemsize > 2:
        return f"f{dtype.itemsize * 8}", f"f{dtype.itemsize * 8}"
    return REGISTER[dtype.itemsize], f"{'s' if dtype.kind == 'i' else 'u'}{dtype.itemsize * 8}"


def execute(code: str, result: str, *inputs: np.ndarray) -> np.ndarray:
    """Run `code` once for each element: registers %a, %b, ... hold the inputs, %d the result."""
    count = len(inputs[0])
    dtypes = [values.dtype for values in inputs] + [np.dtype(result)]
    lines, params = [], []
    for letter, dtype in zip([*"abce"[: len(inputs)], "d"], dtypes, strict=True):
        declared, _ = register(dtype)
        params.append(f".param .u64 p_{letter}")
        lines += [f".reg .{declared} %{letter};", f".reg .b64 %at_{letter};"]
        lines += [f"ld.param.u64 %at_{letter}, [p_{letter}];"]
        lines += [f"mad.wide.u32 %at_{letter}, %lane, {dtype.itemsize}, %at_{letter};"]
        if letter != "d":
            lines.append(f"ld.global.{register(dtype)[1]} %{letter}, [%at_{letter}];")
    ptx = (
        ".version 8.0\n.target sm_80\n.address_size 64\n"
        f".visible .entry test({', '.join(params)})\n{{\n.reg .b32 %lane;\n.reg .pred %p, %q;\n"
        ".reg .b16 %h0, %h1, %h2, %h3;\n.reg .b32 %w0, %w1;\nmov.u32 %lane, %tid.x;\n"
        + "\n".join(lines)
        + f"\n{code}\nst.global.{register(dtypes[-1])[1]} [%at_d], %d;\nret;\n}}\n"
    )
    emulator = Emulator()
    arrays = [emulator.alloc(values) for values in inputs]
    out = emulator.alloc(np.zeros(count, result))
    report = emulator.launch(ptx, "test", (1, 1, 1), (count, 1, 1), [*arrays, out])
    assert report.findings == []
    return emulator.read(out)


def check(code: str, result: str, expected: list, *inputs: tuple[str, list]) -> None:
    got = execute(code, result, *(np.array(values, dtype) for dtype, values in inputs))
    assert np.array_equal(got, np.array(expected, result), equal_nan=got.dtype.kind == "f"), got


INTEGER_CASES: list[tuple[str, list, list, list]] = [
    (
        "bmsk.clamp.b32 %d, %a, %b;",
        [0xF0, MIN32, 0, 0, -1, -2],
        [4, 31, 32, 5, 0, 1],
        [4, 9, 1, 0, 32, 31],
    ),
    ("bmsk.wrap.b32 %d, %a, %b;", [0xF0, 1, 0], [36, 32, 5], [4, 33, 32]),
    (
        "szext.clamp.s32 %d, %a, %b;",
        [-1, 7, 0, -5, MIN32],
        [15, 7, 9, -5, MIN32],
        [4, 4, 0, 32, 99],
    ),
    ("szext.wrap.s32 %d, %a, %b;", [-1, 0], [15, -1], [36, 32]),
    ("szext.clamp.u32 %d, %a, %b;", [15, 0, -5], [-1, 9, -5], [4, 0, 32]),
    ("fns.b32 %d, %a, %b, 2;", [1, 3, -1, -1], [3, 9, 1, 0], [0] * 4),
    ("fns.b32 %d, %a, %b, -1;", [4, 1, -1], [0x10, 0x82, 0x20], [4] * 3),
    ("fns.b32 %d, %a, %b, 0;", [4, -1], [0x10, 0xF], [4, 4]),
    ("dp2a.lo.s32.s32 %d, %a, %b, 5;", [2 * 3 + -1 * 4 + 5], [-65534], [0x01020403]),
    ("dp2a.hi.s32.s32 %d, %a, %b, 5;", [2 * -1 + -1 * 1 + 5], [-65534], [0x01FF0403]),
    ("dp2a.hi.u32.u32 %d, %a, %b, 5;", [2 * 255 + 65535 + 5], [-65534], [0x01FF0403]),
    ("dp2a.lo.s32.u32 %d, %a, %b, 0;", [2 * 255 - 254], [-65534], [0x0000FEFF]),
    ("add.s32 %d, %a, %b;", [MIN32, 0], [MAX32, -1], [1, 1]),
    ("sub.s32 %d, %a, %b;", [MAX32, -3], [MIN32, 2], [1, 5]),
    ("mul.lo.s32 %d, %a, %b;", [-2, 1], [MAX32, ALL - 2**32], [2, -1]),
    ("mul.hi.s32 %d, %a, %b;", [-1, 0x3FFFFFFF], [-1, MAX32], [1, MAX32]),
    ("mul.hi.u32 %d, %a, %b;", [0, -2], [-1, -1], [1, -1]),
    ("div.s32 %d, %a, %b;", [-3, -3, 3, MIN32, -1], [-7, 7, -7, MIN32, 5], [2, -2, -2, 1, 0]),
    ("div.u32 %d, %a, %b;", [MAX32, 0, -1], [-1, 7, 3], [2, 8, 0]),
    ("rem.s32 %d, %a, %b;", [-1, 1, -1], [-7, 7, -7], [2, -2, -2]),
    ("rem.u32 %d, %a, %b;", [1, 7], [-1, 7], [2, 8]),
    ("min.s32 %d, %a, %b;", [-1, MIN32], [-1, MIN32], [1, MAX32]),
    ("min.u32 %d, %a, %b;", [1, MAX32], [-1, MIN32], [1, MAX32]),
    ("max.u32 %d, %a, %b;", [-1, MIN32], [-1, MIN32], [1, MAX32]),
    ("max.s32 %d, %a, %b;", [1], [-1], [1]),
    ("neg.s32 %d, %a;", [MIN32, -5], [MIN32, 5], [0, 0]),
    ("abs.s32 %d, %a;", [MIN32, 5], [MIN32, -5], [0, 0]),
    ("not.b32 %d, %a;", [-1, 0], [0, -1], [0, 0]),
    ("bmsk.clamp.b32 %d, %a, %b;", [0xF0, -16, 0, -1, 0], [4, 4, 32, 0, 5], [4, 40, 9, 99, 0]),
    ("bmsk.wrap.b32 %d, %a, %b;", [0xF0, 0xFF0, 0x1FF, 0], [4, 4, 32, 0], [4, 40, 9, 32]),
    ("szext.clamp.s32 %d, %a, %b;", [-1, 7, 0, -9, -9], [15, 7, -1, -9, -9], [4, 4, 0, 32, 99]),
    ("szext.wrap.s32 %d, %a, %b;", [-1, 7, 0, -1], [15, 7, -9, 15], [4, 4, 32, 36]),
    ("szext.clamp.u32 %d, %a, %b;", [15, 7, 0, -9], [-1, 7, -1, -9], [4, 4, 0, 32]),
    ("szext.wrap.u32 %d, %a, %b;", [15, 0, 15], [-1, -9, 15], [4, 32, 36]),
    (
        "mov.u32 %d, 0; setp.lt.s32 %p, %lane, 2;\n@!%p bra $OUT; activemask.b32 %d; $OUT:",
        [3, 3, 0, 0],
        [0] * 4,
        [0] * 4,
    ),
    ("and.b32 %d, %a, %b;", [8], [12], [10]),
    ("or.b32 %d, %a, %b;", [14], [12], [10]),
    ("xor.b32 %d, %a, %b;", [6], [12], [10]),
    ("shl.b32 %d, %a, %b;", [MIN32, 0, 0, 8], [1, 1, 1, 1], [31, 32, -1, 3]),
    ("shr.u32 %d, %a, %b;", [1, 0, 0], [-1, -1, -1], [31, 32, 100]),
    ("shr.s32 %d, %a, %b;", [-1, -1, 0, -2], [-1, -1, MAX32, -8], [31, 100, 32, 2]),
    ("shr.b32 %d, %a, %b;", [1], [-1], [31]),
    ("shl.b32 %d, %a, 4;", [16, -16], [1, -1], [0, 0]),
    ("bfe.u32 %d, %a, %b, 8;", [0xBC, 0x0A], [0x0ABC00, -6 << 28], [8, 28]),
    ("bfe.s32 %d, %a, %b, 8;", [-68, -6, 0, -1], [0x0ABC00, -6 << 28, 5, MIN32], [8, 28, 40, 32]),
    ("bfe.s32 %d, %a, %b, 0;", [0], [-1], [3]),
    ("bfi.b32 %d, %a, %b, 8, 4;", [0x1A34], [0xFA], [0x1234]),
    ("bfi.b32 %d, %a, %b, 0, 32;", [-3], [-3], [7]),
    ("bfi.b32 %d, %a, %b, 32, 1;", [7], [-1], [7]),
    ("prmt.b32 %d, %a, %b, 0x5410;", [0x56781234], [0x00001234], [0x00005678]),
    ("prmt.b32 %d, %a, %b, 0x0123;", [0x04030201], [0x01020304], [0]),
    ("prmt.b32 %d, %a, %b, 0x4448;", [0x000000FF], [0x80], [0]),
    ("lop3.b32 %d, %a, %b, %a, 0xC0;", [8], [12], [10]),
    ("lop3.b32 %d, %a, %b, 12, 0x96;", [10], [12], [10]),
    ("shf.l.wrap.b32 %d, %a, %b, 8;", [0x34567812], [0x12345678], [0x12345678]),
    ("shf.r.clamp.b32 %d, %a, %b, 40;", [7], [5], [7]),
    ("popc.b32 %d, %a;", [32, 1, 0], [-1, 8, 0], [0, 0, 0]),
    ("clz.b32 %d, %a;", [0, 31, 32], [-1, 1, 0], [0, 0, 0]),
    ("brev.b32 %d, %a;", [MIN32, 1], [1, MIN32], [0, 0]),
    ("mad.lo.s32 %d, %a, %b, -1;", [11, -3], [3, MAX32], [4, 2]),
    ("mul.wide.s16 %d, %h0, %h1;", [1, -32768 * 32767], [-1, -32768], [-1, 32767]),
    ("mul.wide.u16 %d, %h0, %h1;", [65535 * 65535 - 2**32], [-1], [-1]),
    ("dp4a.s32.s32 %d, %a, %b, 5;", [-124], [-1], [0x7F010100]),
    ("dp4a.u32.u32 %d, %a, %b, 0;", [255 * 4], [-1], [0x01010101]),
    ("cnot.b32 %d, %a;", [1, 0], [0, 9], [0, 0]),
    ("selp.b32 %d, %a, %b, %p;", [3, 4], [3, 5], [9, 4]),
    ("set.lt.u32.s32 %d, %a, %b;", [-1, 0], [-1, 1], [0, 1]),
    ("set.lt.s32.u32 %d, %a, %b;", [0, -1], [-1, 0], [0, 1]),
]


@pytest.mark.parametrize(("code", "expected", "a", "b"), INTEGER_CASES)
def test_32_bit_integers(code: str, expected: list, a: list, b: list) -> None:
    setup = "setp.lt.s32 %p, %a, %b; cvt.u16.u32 %h0, %a; cvt.u16.u32 %h1, %b;\n"
    check(setup + code, "i4", expected, ("i4", a), ("i4", b))


@pytest.mark.parametrize(
    ("code", "expected", "a", "b"),
    [
        ("add.s64 %d, %a, %b;", [-(2**63)], [2**63 - 1], [1]),
        ("mul.lo.s64 %d, %a, %b;", [-(2**63)], [2**62], [2]),
        ("mul.hi.s64 %d, %a, %b;", [-1, 1], [-1, -(2**40)], [1, -(2**24)]),
        ("mul.hi.u64 %d, %a, %b;", [0, -2], [-1, -1], [1, -1]),
        ("div.u64 %d, %a, %b;", [1], [-1], [-2]),
        ("rem.s64 %d, %a, %b;", [-3], [-(2**40) - 3], [2**40]),
        ("shr.s64 %d, %a, 63;", [-1], [-5], [0]),
        ("min.u64 %d, %a, %b;", [5], [-5], [5]),
        ("bfe.u64 %d, %a, 60, 8;", [15], [-1], [0]),
    ],
)
def test_64_bit_integers(code: str, expected: list, a: list, b: list) -> None:
    check(code, "i8", expected, ("i8", a), ("i8", b))


@pytest.mark.parametrize(
    ("comparison", "expected"),
    [
        ("lt.s32", [0, 1, 0]), ("lt.u32", [0, 0, 1]), ("lo.u32", [0, 0, 1]), ("ge.s32", [1, 0, 1]),
        ("hs.u32", [1, 1, 0]), ("eq.s32", [1, 0, 0]), ("ne.b32", [0, 1, 1]), ("ls.u32", [1, 0, 1]),
        ("hi.u32", [0, 1, 0]), ("le.s32", [1, 1, 0]), ("gt.s32", [0, 0, 1]),
    ],
)  # fmt: skip
def test_integer_comparisons(comparison: str, expected: list[int]) -> None:
    code = f"setp.{comparison} %p, %a, %b; selp.s32 %d, 1, 0, %p;"
    check(code, "i4", expected, ("i4", [3, -1, 1]), ("i4", [3, 1, -1]))


@pytest.mark.parametrize(
    ("comparison", "expected"),
    [
        ("eq", [1, 0, 0]), ("ne", [0, 1, 0]), ("lt", [0, 1, 0]), ("ge", [1, 0, 0]),
        ("equ", [1, 0, 1]), ("neu", [0, 1, 1]), ("ltu", [0, 1, 1]), ("leu", [1, 1, 1]),
        ("gtu", [0, 0, 1]), ("geu", [1, 0, 1]), ("num", [1, 1, 0]), ("nan", [0, 0, 1]),
        ("gt", [0, 0, 0]), ("le", [1, 1, 0]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_float_comparisons(comparison: str, expected: list[int], kind: str) -> None:
    code = f"setp.{comparison}.{kind} %p, %a, %b; selp.s32 %d, 1, 0, %p;"
    dtype = "f4" if kind == "f32" else "f8"
    check(code, "i4", expected, (dtype, [2, 1, NAN]), (dtype, [2, 2, 1]))


def test_setp_combines_and_gives_the_opposite() -> None:
    a, b = ("i4", [1, 1, 5, 5]), ("i4", [0, 9, 0, 9])
    start = "setp.gt.s32 %q, %b, 5; "
    end = " selp.s32 %d, 1, 0, %p;"
    check(start + "setp.lt.and.s32 %p, %a, 3, %q;" + end, "i4", [0, 1, 0, 0], a, b)
    check(start + "setp.lt.or.s32 %p, %a, 3, !%q;" + end, "i4", [1, 1, 1, 0], a, b)
    check(start + "setp.lt.xor.s32 %p, %a, 3, %q;" + end, "i4", [1, 0, 0, 1], a, b)
    check("setp.lt.s32 %p|%q, %a, 3; selp.s32 %d, 1, 0, %q;", "i4", [0, 0, 1, 1], a)
    check("setp.lt.s32 %q, %a, 3; not.pred %p, %q;" + end, "i4", [0, 0, 1, 1], a)


F32_CASES = [
    ("add.f32 %d, %a, %b;", [2.0**24, NAN], [2.0**24, INF], [1, -INF]),
    ("mul.f32 %d, %a, %b;", [INF, -0.0], [3e38, -0.0], [2, 1]),
    ("div.rn.f32 %d, %a, %b;", [1 / 3, INF], [1, 1], [3, 0]),
    ("min.f32 %d, %a, %b;", [-0.0, -0.0, 1, 1], [-0.0, 0.0, NAN, 1], [0.0, -0.0, 1, NAN]),
    ("max.f32 %d, %a, %b;", [0.0, 0.0, 1, 2], [-0.0, 0.0, NAN, 1], [0.0, -0.0, 1, 2]),
    ("min.NaN.f32 %d, %a, %b;", [NAN, 1], [NAN, 1], [1, 2]),
    ("sqrt.rn.f32 %d, %a;", [2.0**0.5, NAN], [2, -1], [0, 0]),
    ("rcp.rn.f32 %d, %a;", [1 / 3], [3], [0]),
    ("ex2.approx.f32 %d, %a;", [8, 0.5], [3, -1], [0, 0]),
    ("copysign.f32 %d, %a, %b;", [3.0, -3.0], [1.0, -1.0], [3.0, 3.0]),
    ("neg.f32 %d, %a;", [-0.0, 2.0], [0.0, -2.0], [0, 0]),
    ("fma.rn.f32 %d, %a, %a, %b;", [2.0**-46, 0.0], [1 + 2.0**-23, 3], [-1 - 2.0**-22, -9]),
    ("mov.f32 %d, 0f3FC00000;", [1.5], [0], [0]),
    ("add.f32 %d, %a, 0fBF800000;", [1.0], [2], [0]),
    ("cvt.rni.f32.f32 %d, %a;", [2, 4, -2], [2.5, 3.5, -1.5], [0, 0, 0]),
    ("cvt.sat.f32.f32 %d, %a;", [1, 0, 0, 0.5], [7, -1, NAN, 0.5], [0, 0, 0, 0]),
]


@pytest.mark.parametrize(("code", "expected", "a", "b"), F32_CASES)
def test_f32(code: str, expected: list, a: list, b: list) -> None:
    got = execute(code, "f4", np.array(a, "f4"), np.array(b, "f4"))
    want = np.array(expected, "f4")
    assert np.array_equal(np.isnan(got), np.isnan(want))
    assert np.array_equal(np.nan_to_num(got).view("i4"), np.nan_to_num(want).view("i4")), got


def test_f64_fma_rounds_once() -> None:
    """a * b needs 106 bits; a naive a * b + c loses what is left after the cancellation."""
    from fractions import Fraction

    rng = np.random.default_rng(3)
    a, b = rng.standard_normal(300), rng.standard_normal(300)
    c = np.where(np.arange(300) % 3 == 0, -(a * b), rng.standard_normal(300))
    c[1::3] *= 2.0**-52
    expected = [float(Fraction(x) * Fraction(y) + Fraction(z)) for x, y, z in zip(a, b, c)]  # noqa: B905
    got = execute("fma.rn.f64 %d, %a, %b, %c;", "f8", a, b, c)
    assert np.array_equal(got, expected)
    assert not np.array_equal(a * b + c, expected)
    zeros = execute("fma.rn.f64 %d, %a, %b, %c;", "f8", *np.array([[1, 0.1], [-0.0, 1], [-0.0, 1]]))
    assert np.signbit(zeros).tolist() == [True, False]
    huge = execute("fma.rn.f64 %d, %a, %b, %c;", "f8", *np.array([[1e300], [1e300], [-1e10]]))
    assert huge[0] == INF


@pytest.mark.parametrize(
    ("code", "result", "expected", "dtype", "values"),
    [
        ("cvt.s32.s8 %d, %a;", "i4", [-1, 127, -128], "i4", [255, 127, 128]),
        ("cvt.u32.u8 %d, %a;", "i4", [255, 0], "i4", [-1, 256]),
        ("cvt.s64.s32 %d, %a;", "i8", [-1], "i4", [-1]),
        ("cvt.u64.u32 %d, %a;", "i8", [ALL], "i4", [-1]),
        ("cvt.u32.u64 %d, %a;", "i4", [-1], "i8", [2**40 - 1]),
        ("cvt.u16.u32 %d, %a;", "u2", [0x5678], "i4", [0x12345678]),
        ("cvt.sat.s8.s32 %d, %a;", "i2", [127, -128, 5], "i4", [300, -300, 5]),
        ("cvt.sat.u8.s32 %d, %a;", "i2", [255, 0], "i4", [300, -300]),
        ("cvt.rn.f32.s32 %d, %a;", "f4", [2.0**24, -1], "i4", [2**24 + 1, -1]),
        ("cvt.rz.f32.s32 %d, %a;", "f4", [2.0**24 + 2], "i4", [2**24 + 3]),
        ("cvt.rp.f32.s32 %d, %a;", "f4", [2.0**24 + 2, -(2.0**24)], "i4", [16777217, -16777217]),
        ("cvt.rm.f32.s32 %d, %a;", "f4", [2.0**24, -(2.0**24) - 2], "i4", [16777217, -16777217]),
        ("cvt.rn.f32.u32 %d, %a;", "f4", [2.0**32], "i4", [-1]),
        ("cvt.rn.f64.u64 %d, %a;", "f8", [2.0**64], "i8", [-1]),
        ("cvt.rzi.s32.f32 %d, %a;", "i4", [-1, 1, MAX32, MIN32, 0], "f4",
         [-1.9, 1.9, 3e9, -3e9, NAN]),
        ("cvt.rni.s32.f32 %d, %a;", "i4", [2, 4, -2], "f4", [2.5, 3.5, -2.5]),
        ("cvt.rmi.s32.f32 %d, %a;", "i4", [-3], "f4", [-2.5]),
        ("cvt.rpi.s32.f32 %d, %a;", "i4", [-2], "f4", [-2.5]),
        ("cvt.rzi.u32.f32 %d, %a;", "u4", [0, ALL, 3 * 10**9], "f4", [-5, 5e9, 3e9]),
        ("cvt.rzi.s64.f64 %d, %a;", "i8", [2**63 - 1, -(2**63), -7], "f8", [1e19, NAN, -7.5]),
        ("cvt.rzi.s32.f64 %d, %a;", "i4", [MIN32, MAX32], "f8", [NAN, 1e10]),
        ("cvt.rn.f32.f64 %d, %a;", "f4", [1.0, INF], "f8", [1 + 2.0**-25, 1e300]),
        ("cvt.rz.f32.f64 %d, %a;", "f4", [3.4028234663852886e38], "f8", [1e300]),
        ("cvt.rp.f32.f64 %d, %a;", "f4", [1 + 2.0**-23], "f8", [1 + 2.0**-25]),
        ("cvt.f64.f32 %d, %a;", "f8", [1.5], "f4", [1.5]),
        ("cvt.rn.f16.f32 %d, %a;", "f2", [1.0, INF, 2.0**-24], "f4",
         [1 + 2.0**-11, 65520, 2.0**-24]),
        ("cvt.rz.f16.f32 %d, %a;", "f2", [65504, 1.0], "f4", [1e6, 1 + 2.0**-11 + 2.0**-20]),
        ("cvt.f32.f16 %d, %a;", "f4", [1.5, -INF], "f2", [1.5, -INF]),
        ("cvt.rn.bf16.f32 %d, %a;", "u2", [0x3F80, 0x3F82, 0x7FFF, 0x7F80], "f4",
         [1 + 2.0**-8, 1 + 3 * 2.0**-8, NAN, 3.4e38]),
        ("cvt.rz.bf16.f32 %d, %a;", "u2", [0x3F81], "f4", [1 + 3 * 2.0**-8]),
        ("cvt.f32.bf16 %d, %a;", "f4", [1.0, -2.0], "u2", [0x3F80, 0xC000]),
        ("cvt.rna.tf32.f32 %d, %a;", "u4", [0x3F802000, 0xBF802000, 0x3F800000], "f4",
         [1 + 2.0**-11, -1 - 2.0**-11, 1 + 2.0**-12]),
        ("cvt.rna.tf32.f32 %d, %a;", "u4", [0x7F800000, 0xFF800000, 0x7FFFE000, 0x7F800000], "u4",
         [0x7F7FFFFF, 0xFF800000, 0x7FFFFFFF, 0x7F800001]),
        ("cvt.rn.f16.s32 %d, %a;", "f2", [2048, INF], "i4", [2049, 70000]),
        ("cvt.rn.f16x2.f32 %d, %a, 0f3F800000;", "u4", [0x40003C00], "f4", [2]),
        ("cvt.rn.bf16x2.f32 %d, %a, 0f3F800000;", "u4", [0x40003F80], "f4", [2]),
    ],
)  # fmt: skip
def test_conversions(code: str, result: str, expected: list, dtype: str, values: list) -> None:
    check(code, result, expected, (dtype, values))


@pytest.mark.parametrize(
    ("code", "expected", "a", "b"),
    [
        ("add.f16 %d, %a, %b;", [2048, 65504], [2048, 65504], [1, 1]),
        ("mul.f16 %d, %a, %b;", [0.0, INF], [2.0**-24, 300], [0.5, 300]),
        ("fma.rn.f16 %d, %a, %b, %a;", [1 + 2.0**-9], [1 + 2.0**-10], [2.0**-10]),
        ("{.reg .pred p; setp.neu.f16 p, %a, %b; selp.b16 %d, %a, %b, p;}", [3], [3], [4]),
        ("neg.f16 %d, %a;", [-1], [1], [0]),
        ("max.f16 %d, %a, %b;", [4], [NAN], [4]),
    ],
)
def test_f16(code: str, expected: list, a: list, b: list) -> None:
    check(code, "f2", expected, ("f2", a), ("f2", b))


def test_f16x2_works_on_both_halves() -> None:
    a, b = 0x40003C00, 0x4200BC00  # (2, 1) and (3, -1), upper half first
    for code, expected in [
        ("add.f16x2 %d, %a, %b;", 0x45000000), ("sub.f16x2 %d, %a, %b;", 0xBC004000),
        ("mul.f16x2 %d, %a, %b;", 0x4600BC00), ("fma.rn.f16x2 %d, %a, %b, %a;", 0x48000000),
        ("max.f16x2 %d, %a, %b;", 0x42003C00), ("neg.f16x2 %d, %b;", 0xC2003C00),
    ]:  # fmt: skip
        check(code, "u4", [expected], ("u4", [a]), ("u4", [b]))


def test_bf16_arithmetic_rounds_once() -> None:
    one, tiny, big = 0x3F80, 0x3B80, 0x4300  # 1, 2^-8, 128
    check("add.rn.bf16 %d, %a, %b;", "u2", [one, 0x3F82], ("u2", [one, 0x3F81]), ("u2", [tiny] * 2))
    check("mul.bf16 %d, %a, %b;", "u2", [big], ("u2", [big]), ("u2", [one]))
    check("fma.rn.bf16 %d, %a, %b, %a;", "u2", [0x3F80], ("u2", [one]), ("u2", [0x3300]))


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
def test_f64_rounds_in_every_mode(mode: str) -> None:
    """Against exact fractions: the nearest float64, or the next one on the side that is asked."""
    rng = np.random.default_rng(5)
    a, b, c = (np.ldexp(rng.uniform(-1, 1, 200), rng.integers(-9, 9, 200)) for _ in "abc")
    b[:9], c[:9] = [1, -1, 3, 1.5, -2, 7, 1e-3, 1e3, 5], [0, 1, 0.1, -0.1, 2, 4, -9, 8, 0]
    exact = {
        "add": lambda x, y, z: Fraction(x) + Fraction(y),
        "sub": lambda x, y, z: Fraction(x) - Fraction(y),
        "mul": lambda x, y, z: Fraction(x) * Fraction(y),
        "fma": lambda x, y, z: Fraction(x) * Fraction(y) + Fraction(z),
        "div": lambda x, y, z: Fraction(x) / Fraction(y),
        "rcp": lambda x, y, z: 1 / Fraction(x),
    }
    for word, rule in exact.items():
        operands = ", ".join(["%a", "%b", "%c"][: {"fma": 3, "rcp": 1}.get(word, 2)])
        got = execute(f"{word}.{mode}.f64 %d, {operands};", "f8", a, b, c)
        wanted = [rounded(rule(*xyz), mode) for xyz in zip(a, b, c, strict=True)]
        assert np.array_equal(got, wanted), word
    roots = execute(f"sqrt.{mode}.f64 %d, %a;", "f8", np.abs(a))
    for x, root in zip(np.abs(a), roots, strict=True):
        other = np.nextafter(root, np.inf if mode != "rp" else -np.inf)
        below, above = sorted((Fraction(root), Fraction(other)))
        square = Fraction(x)
        assert below**2 <= square <= above**2
        assert mode == "rp" or Fraction(root) ** 2 <= square
    # Numbers beyond the largest, and zeros that are what remains.
    ends = execute(f"add.{mode}.f64 %d, %a, %b;", "f8", np.array([1e308, 1, -0.0]),
                   np.array([1e308, -1, 0]))  # fmt: skip
    most, zero = np.finfo(np.float64).max, np.float64(-0.0 if mode == "rm" else 0.0)
    assert ends.tobytes() == np.array([np.inf if mode == "rp" else most, zero, zero]).tobytes()


def rounded(number: Fraction, mode: str) -> float:
    """A fraction as float64, to zero, down or up."""
    near = float(number)
    goal = {"rz": 0.0, "rm": -np.inf, "rp": np.inf}[mode]
    wrong = {
        "rz": abs(Fraction(near)) > abs(number),
        "rm": Fraction(near) > number,
        "rp": Fraction(near) < number,
    }[mode]
    return float(np.nextafter(near, goal)) if wrong else near


def test_differences_of_bytes_and_halves() -> None:
    a, b = ("u4", [0x01FF8000, 0, ALL]), ("u4", [0x02018000, ALL, 1])
    differ = "vabsdiff{}.u32.u32.u32{} %d, %a, %b, 7;"
    check(differ.format(4, ""), "u4", [0x01FE0000, ALL, 0xFFFFFFFE], a, b)
    check(differ.format(2, ""), "u4", [(0x0201 - 0x01FF) << 16, ALL, 0xFFFFFFFE], a, b)
    check(differ.format(4, ".add"), "u4", [7 + 1 + 0xFE, 7 + 4 * 255, 7 + 4 * 255 - 1], a, b)
    check(differ.format(2, ".add"), "u4", [7 + 2, 7 + 2 * 65535, 7 + 2 * 65535 - 1], a, b)


def test_moves_pack_and_unpack() -> None:
    value = ("u4", [0x12345678])
    check("mov.b32 {%h0, %h1}, %a; mov.b32 %d, {%h1, %h0};", "u4", [0x56781234], value)
    check("mov.b32 {_, %h1}, %a; mov.b32 %d, {0, %h1};", "u4", [0x12340000], value)
    check("mov.b64 %d, {%a, %a};", "u8", [0x1234567812345678], value)
    check("mov.b64 {%w0, %w1}, %a; mov.b32 %d, %w1;", "u4", [0x9ABC], ("u8", [0x9ABC << 32]))
    check("mov.b32 %d, %a;", "f4", [1.0], ("u4", [0x3F800000]))
    code = "mov.b64 {%h0,%h1,%h2,%h3}, %a; mov.b64 %d, {%h3,%h2,%h1,%h0};"
    check(code, "u8", [0x4444333322221111], ("u8", [0x1111222233334444]))


def test_narrow_loads_extend_and_stores_truncate() -> None:
    emulator = Emulator()
    data = emulator.alloc(np.array([0x80, 0x7F, 0xFF, 0x01], np.uint8))
    out = emulator.alloc(np.zeros(4, np.int32))
    bytes_out = emulator.alloc(np.zeros(4, np.uint8))
    ptx = """.version 8.0
.target sm_80
.address_size 64
.visible .entry test(.param .u64 a, .param .u64 b, .param .u64 c) {
  .reg .b64 %x, %y, %z; .reg .b32 %r; .reg .b16 %h;
  ld.param.u64 %x, [a]; ld.param.u64 %y, [b]; ld.param.u64 %z, [c];
  ld.global.s8 %r, [%x]; st.global.u32 [%y], %r;
  ld.global.u8 %r, [%x]; st.global.u32 [%y+4], %r;
  ld.global.s8 %h, [%x+2]; cvt.s32.s16 %r, %h; st.global.u32 [%y+8], %r;
  ld.global.b8 %h, [%x+2]; cvt.s32.s16 %r, %h; st.global.u32 [%y+12], %r;
  mov.u32 %r, 0x1234; st.global.u8 [%z], %r; st.global.u8 [%z+3], 0xAB; ret; }"""
    report = emulator.launch(ptx, "test", (1, 1, 1), (1, 1, 1), [data, out, bytes_out])
    assert report.findings == []
    assert emulator.read(out).tolist() == [-128, 128, -1, 255]
    assert emulator.read(bytes_out).tolist() == [0x34, 0, 0, 0xAB]


@pytest.mark.parametrize(
    "code",
    [
        "max.f16x4 %d, %a, %b;", "addc.cc.s16 %d, %a, %b;", "mov.u32 %d, %pm3;",
        "frobnicate %d;", "add.ftz.f64 %d, %a, %b;", "call (%d), f, (%a);",
        "bar.red.xor.u32 %d, 0, %p;",
    ],
)  # fmt: skip
def test_unknown_instructions_are_refused_by_name(code: str) -> None:
    with pytest.raises(CheckError, match="not supported") as caught:
        execute(".loc 1 42 3\n" + code, "i4", np.zeros(1, "i4"), np.zeros(1, "i4"))
    assert code.split()[0].rstrip(";") in str(caught.value)
    assert "CUDA line 42" in str(caught.value)


def test_register_types_must_fit() -> None:
    with pytest.raises(CheckError, match="cannot be used as"):
        execute("add.s64 %d, %a, %a;", "i8", np.zeros(1, "i4"))


def test_shuffle_and_vote() -> None:
    lanes = ("i4", list(range(40)))
    code = "shfl.sync.{} %d, %a, {}, {}, -1;"
    check(code.format("idx.b32", 3, 31), "i4", [3] * 32 + [35] * 8, lanes)
    check(code.format("bfly.b32", 1, 31), "i4", [i ^ 1 for i in range(40)], lanes)
    up = [max(i - 1, i // 32 * 32) for i in range(40)]
    check(code.format("up.b32", 1, 0), "i4", up, lanes)
    down = [i + 2 if i % 8 < 6 else i for i in range(40)]
    check(code.format("down.b32", 2, 0x1807), "i4", down, lanes)
    code = "shfl.sync.down.b32 %w0|%p, %a, 2, 0x1807, -1; selp.s32 %d, 1, 0, %p;"
    check(code, "i4", [int(i % 8 < 6) for i in range(40)], lanes)
    vote = "setp.lt.s32 %p, %a, 34; vote.sync.ballot.b32 %d, %p, -1;"
    check(vote, "i4", [-1] * 32 + [3] * 8, lanes)
    vote = "setp.lt.s32 %p, %a, 34; vote.sync.all.pred %q, %p, -1; selp.s32 %d, 1, 0, %q;"
    check(vote, "i4", [1] * 32 + [0] * 8, lanes)
