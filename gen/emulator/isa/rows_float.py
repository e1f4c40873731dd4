"""Rows of the instruction table: floating-point numbers and conversions. See `table`."""

from __future__ import annotations

import re

from gen.emulator.isa.rows_integer import ORDERED, compare
from gen.emulator.isa.table import TABLE, Row, expand, floats, op

UNORDERED = {"equ": "~((a < b) | (a > b))", "neu": "a != b", "ltu": "~(a >= b)",
             "leu": "~(a > b)", "gtu": "~(a <= b)", "geu": "~(a < b)",
             "ne": "(a < b) | (a > b)", "num": "(a == a) & (b == b)",
             "nan": "(a != a) | (b != b)"}  # fmt: skip
FLOAT_RULES = {**ORDERED, **UNORDERED}
compare("f64", FLOAT_RULES)
compare("{f16,f32}", FLOAT_RULES, "[.ftz]")

# -- f32 and f64 ------------------------------------------------------------------------------
MORE = "[.ftz][.sat].f32"
for word, sign in (("add", "+"), ("sub", "-"), ("mul", "*")):
    op(f"{word}[.rn]{MORE}", f"a {sign} b")
    op(f"{word}[.rn].f64", f"a {sign} b")
op(f"add.{{rz,rm,rp}}{MORE}", "directed(odd_sum(a.astype(F64), b.astype(F64)), T, MODE)")
op(f"sub.{{rz,rm,rp}}{MORE}", "directed(odd_sum(a.astype(F64), -b.astype(F64)), T, MODE)")
op(f"mul.{{rz,rm,rp}}{MORE}", "directed(a.astype(F64) * b.astype(F64), T, MODE)")
# The product is exact. The sum is rounded to 53 bits before it is rounded to 24, which differs from
# one rounding only where those 53 bits end exactly half-way between two floats and bits were lost
# below them: about once in 2**29 operations on random data, never on integers below 2**53. c is
# converted first, since numpy adds numbers of one type faster than it converts one as it adds.
op(f"fma.rn{MORE}", "(widened(a) * widened(b) + c.astype(F64)).astype(D)")
op(f"fma.{{rz,rm,rp}}{MORE}",
   "directed(odd_sum(a.astype(F64) * b.astype(F64), c.astype(F64)), T, MODE)")  # fmt: skip
op("fma.rn.f64", "fma_f64(a, b, c)")
op("fma.{rz,rm,rp}.f64", "directed_fma_f64(a, b, c, MODE)")
op("add.{rz,rm,rp}.f64", "directed_fma_f64(a, T(1), b, MODE)")
op("sub.{rz,rm,rp}.f64", "directed_fma_f64(a, T(1), -b, MODE)")
op("mul.{rz,rm,rp}.f64", "directed_fma_f64(a, b, np.copysign(T(0), a * b), MODE)")
# float64 has bits enough that rounding its quotient or root again is rounding once
op("div.{rn,full}[.ftz].f32", "a / b")
# A reciprocal that is subnormal counts as zero.
op("div.approx[.ftz].f32", "np.where(np.abs(b) > T(2.0**126), a * (T(0) / b), a / b)")
op("div.{rz,rm,rp}[.ftz].f32", "directed(a.astype(F64) / b.astype(F64), T, MODE)")
op("rcp.{rn,approx}[.ftz].f32", "T(1) / a")
op("rcp.{rz,rm,rp}[.ftz].f32", "directed(1 / a.astype(F64), T, MODE)")
op("sqrt.{rn,approx}[.ftz].f32", "np.sqrt(a)")
op("sqrt.{rz,rm,rp}[.ftz].f32", "directed(np.sqrt(a.astype(F64)), T, MODE)")
op("div.rn.f64", "a / b")
op("div.{rz,rm,rp}.f64", "directed_quotient_f64(a, b, MODE)")
op("rcp.rn.f64", "T(1) / a")
op("rcp.{rz,rm,rp}.f64", "directed_quotient_f64(T(1), a, MODE)")
op("rcp.approx.ftz.f64", "T(1) / a")
op("sqrt.rn.f64", "np.sqrt(a)")
op("sqrt.{rz,rm,rp}.f64", "directed_root_f64(a, MODE)")
op("rsqrt.approx[.ftz].{f32,f64}", "(1 / np.sqrt(a.astype(F64))).astype(D)")
# The approximations: correctly rounded here, within their documented error on a GPU
for word, function in (
    ("ex2", "exp2"), ("lg2", "log2"), ("sin", "sin"), ("cos", "cos"), ("tanh", "tanh")
):  # fmt: skip
    op(f"{word}.approx[.ftz].f32", f"np.{function}(a.astype(F64)).astype(D)")
op("{min,max}[.ftz].f32", "(minimum if 'min' in NAME else maximum)(a, b)")
op("{min,max}.f64", "(minimum if 'min' in NAME else maximum)(a, b)")
op("min[.ftz].NaN.f32", "np.minimum(a, b)")
op("max[.ftz].NaN.f32", "np.maximum(a, b)")
op("neg[.ftz].f32", "-a")
op("abs[.ftz].f32", "np.abs(a)")
op("neg.f64", "-a")
op("abs.f64", "np.abs(a)")
op("copysign.{f32,f64}", "np.copysign(b, a)")
op("testp.{finite,infinite,number,notanumber,normal,subnormal}.{f32,f64}",
   "test_property(a, NAME)", "pred T")  # fmt: skip

# -- f16 and bf16, alone and two in 32 bits -------------------------------------------------------
# As f16 `x` is the operand itself; as bf16 it is widened to f32, and the result rounded to bf16.
SIXTEEN = {
    "add[.rn]": "x + y", "sub[.rn]": "x - y", "mul[.rn]": "x * y", "fma.rn": "FMA(x, y, z)",
    "min": "minimum(x, y)", "max": "maximum(x, y)", "min.NaN": "np.minimum(x, y)",
    "max.NaN": "np.maximum(x, y)", "neg": "-x", "abs": "np.abs(x)",
    "ex2.approx": "np.exp2(x.astype(F64)).astype(x.dtype)",
    "tanh.approx": "np.tanh(x.astype(F64)).astype(x.dtype)",
}  # fmt: skip
MODIFIERS = {
    "f16": {"add": "[.ftz][.sat]", "sub": "[.ftz][.sat]", "mul": "[.ftz][.sat]", "neg": "[.ftz]",
            "fma": "[.ftz]{,.sat,.relu}", "abs": "[.ftz]", "min": "[.ftz]", "max": "[.ftz]"},
    "bf16": {"fma": "[.relu]", "ex2": "[.ftz]"},
}  # fmt: skip
# How a source, as the expression of a row names it, is read: from a register of 16 bits, and from
# the low and the high half of a pair.
SOURCE = re.compile(r"\b([abc])\b")
READ = {"f16": r"\1", "bf16": r"from_bf16(\1)"}
LOW = {"f16": r"low_half(\1, np.float16)", "bf16": r"from_bf16(low_half(\1, np.uint16))"}
HIGH = {kind: text.replace("low", "high") for kind, text in LOW.items()}


def sixteen(kind: str, word: str, rule: str) -> None:
    """Rows for one operation on f16 or bf16, and on pairs of them."""
    sources = len(set(re.findall(r"\b[xyz]\b", rule)))
    for letter, source in zip("xyz", "abc", strict=True):
        rule = re.sub(rf"\b{letter}\b", source, rule)
    start, nan, _ = word.partition(".NaN")
    for name in expand(f"{start}{MODIFIERS[kind].get(word[:3], '')}{nan}.{kind}"):
        code = floats(name, rule.replace("FMA", f"fma_{kind}"), ["f16"] * (1 + sources))
        code = code if kind == "f16" else f"bf16({code})"
        low, high = SOURCE.sub(LOW[kind], code), SOURCE.sub(HIGH[kind], code)
        TABLE[name] = Row(SOURCE.sub(READ[kind], code), (kind,) * (1 + sources))
        TABLE[f"{name}x2"] = Row(f"pack({low}, {high})", (f"{kind}x2",) * (1 + sources))


for word, rule in SIXTEEN.items():
    for kind in ("f16", "bf16"):
        sixteen(kind, word, rule)
op("neg.bf16", "a ^ np.uint16(0x8000)")
op("abs.bf16", "a & np.uint16(0x7FFF)")
op("neg.bf16x2", "a ^ np.int32(-0x7FFF8000)")
op("abs.bf16x2", "a & np.int32(0x7FFF7FFF)")

# Comparisons that give 1.0, or all ones, of the width of a source, in each half of pairs.
for word, rule in FLOAT_RULES.items():
    op(f"setp.{word}.bf16", SOURCE.sub(READ["bf16"], rule), "pred T T")
    for kind, one in (("f16", 0x3C00), ("bf16", 0x3F80)):
        for single, pair, value in ((kind, f"{kind}x2", one), ("u16", "u32", 0xFFFF)):
            code, low, high = (
                f"(({SOURCE.sub(how[kind], rule)}).astype(np.uint16) * np.uint16({value}))"
                for how in (READ, LOW, HIGH)
            )
            TABLE[f"set.{word}.{single}.{kind}"] = Row(code, ("b16", kind, kind))
            TABLE[f"set.{word}.{pair}.{kind}x2"] = Row(
                f"pack({low}, {high})", ("b32", f"{kind}x2", f"{kind}x2")
            )

# -- conversions: cvt.<modifiers>.<result>.<source> ---------------------------------------------
ANY_INT = "{s8,u8,s16,u16,s32,u32,s64,u64}"
TO_INTEGRAL = "{rni,rzi,rmi,rpi}"
op(f"cvt.{ANY_INT}.{ANY_INT}", "a.astype(D)", "A T")
op(f"cvt.sat.{ANY_INT}.{ANY_INT}", "saturate_int(a, D)", "A T")
op(f"cvt.rn[.sat].{{f16,f32,f64}}.{ANY_INT}", "a.astype(D)", "A T")
op("cvt.{rz,rm,rp}.{f16,f32}.{s8,u8,s16,u16,s32,u32}", "directed(a, D, MODE)", "A T")
op("cvt.{rz,rm,rp}.f32.{s64,u64}", "directed_int(a, MODE)", "A T")
op(f"cvt.{{rn,rz}}.bf16.{ANY_INT}", "bf16(to_odd_f32(a.astype(F64)), MODE)", "A T")
op(f"cvt.{TO_INTEGRAL}[.ftz][.sat].{ANY_INT}.f32", "float_to_int(to_integral(a, MODE), D, S)",
   "A T")  # fmt: skip
op(f"cvt.{TO_INTEGRAL}[.sat].{ANY_INT}.{{f16,f64}}", "float_to_int(to_integral(a, MODE), D, S)",
   "A T")  # fmt: skip
op(f"cvt.{TO_INTEGRAL}[.sat].{ANY_INT}.bf16",
   "float_to_int(to_integral(from_bf16(a), MODE), D, np.float32)", "A T")  # fmt: skip
for wide, short, flush in (("f64", "f32", "[.ftz]"), ("f64", "f16", ""), ("f32", "f16", "[.ftz]")):
    op(f"cvt{flush}[.sat].{wide}.{short}", "a.astype(D)", "A T")
    op(f"cvt.{{rn,rz,rm,rp}}{flush}[.sat].{short}.{wide}", "directed(a, D, MODE)", "A T")
for same, flush in (("f16", ""), ("f32", "[.ftz]"), ("f64", "")):
    op(f"cvt.{TO_INTEGRAL}{flush}[.sat].{same}.{same}", "to_integral(a, MODE)", "A T")
    op(f"cvt[.rn]{flush}[.sat].{same}.{same}", "a", "A T")
op(f"cvt.{TO_INTEGRAL}.bf16.bf16", "bf16(to_integral(from_bf16(a), MODE))", "A T")
op("cvt.{rn,rz}.bf16.f32", "bf16(a, MODE)", "A T")
op("cvt.{rn,rz}.relu.bf16.f32", "bf16(relu(a), MODE)", "A T")
op("cvt.rn.bf16.f64", "bf16_f64(a)", "A T")
op("cvt.{rn,rz}.relu.f16.f32", "directed(a, D, MODE)", "A T")
op("cvt.f32.bf16", "from_bf16(a)", "A T")
op("cvt.f64.bf16", "from_bf16(a).astype(D)", "A T")
F16 = "directed({}, np.float16, MODE)"
for relu in ("", ".relu"):
    f16, bf16 = (f"relu({F16})", "bf16(relu({}), MODE)") if relu else (F16, "bf16({}, MODE)")
    for kind, rounded in (("f16x2", f16), ("bf16x2", bf16)):
        for mode in ("rn", "rz"):
            TABLE[f"cvt.{mode}{relu}.{kind}.f32"] = Row(
                f"pack({rounded.format('b')}, {rounded.format('a')})", (kind, "f32", "f32")
            )
op("cvt.rna.tf32.f32", "tf32(a)", "b32 T")
for kind in ("e4m3x2", "e5m2x2"):  # two in 16 bits, the first source above
    for relu in ("", ".relu"):
        name = f"cvt.rn.satfinite{relu}.{kind}"
        TABLE[f"{name}.f32"] = Row("fp8_pair(b, a, NAME)", ("b16", "f32", "f32"))
        TABLE[f"{name}.f16x2"] = Row(
            "fp8_pair(low_half(a, np.float16), high_half(a, np.float16), NAME)", ("b16", "f16x2")
        )
        TABLE[f"cvt.rn{relu}.f16x2.{kind}"] = Row("from_fp8_pair(a, NAME)", ("f16x2", "b16"))
