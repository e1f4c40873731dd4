"""The instructions that the emulator knows: one table row each, PTX spelling -> numpy expression.

A spelling is a pattern: `{a,b}` stands for either, `[.x]` for with or without. Everything that no
pattern spells is refused, so that no instruction is ever executed as something similar.

In an expression `a`, `b`, `c`, ... are the source operands, `T` the numpy type that the name ends
in, `U` its unsigned twin, `D` the result's and `S` the first source's type. `NAME` is the spelling
and `MODE` its rounding or shuffle mode, as strings. `m` is the mask of running lanes, `E` the
running chunk and `ITEM` the instruction, for findings. Functions come from `ops.py`, `rounding.py`
and `lanes.py`. Types default to the last one in the name for all operands; a row may give them as
"result source source ...", where `T` is that type, `A` the one before it and `wide` the type twice
as wide as `T`.

To add an instruction, add a row, and a test in `tests/emulator/test_instructions.py`.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from gen.emulator.module import TYPE_BYTES, Instruction
from gen.emulator.operands import Address, Not, Operand, Pair, Reg, Vector

DTYPES: dict[str, Any] = {
    **{f"{kind}{bits}": np.dtype(f"i{bits // 8}") for kind in "bs" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": np.dtype(f"u{bits // 8}") for bits in (8, 16, 32, 64)},
    "pred": np.dtype(np.bool_),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(np.uint16),  # as bits
    "f16x2": np.dtype(np.int32),
    "bf16x2": np.dtype(np.int32),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}


@dataclass(frozen=True)
class Row:
    """How one spelling is computed: the expression, and the PTX types of result and sources."""

    code: str
    types: tuple[str, ...]
    warp: bool = False  # needs every live lane of a warp at once


TABLE: dict[str, Row] = {}

# Handled by the code generator, because they are not a function of values: memory and moves.
STRUCTURAL = frozenset({"ld", "ldu", "st", "mov", "cvta", "bra", "bar", "barrier", "ret", "exit"})
SPECIALS = re.compile(
    r"%(n?tid|n?ctaid)\.[xyz]$|%(laneid|warpid|dynamic_smem_size|total_smem_size)$"
)
# Accepted and without effect in an emulator that runs a chunk in lockstep.
NO_EFFECT = re.compile(r"(membar\.(cta|gl|sys)|fence\.(sc|acq_rel)\.(cta|gpu|sys)|prefetch\..*)$")


def expand(pattern: str) -> list[str]:
    """All spellings of a pattern: `add[.rn].{f32,f64}` has four."""
    parts = re.split(r"(\{[^}]*\}|\[[^\]]*\])", pattern)
    choices = [
        part[1:-1].split(",")
        if part[:1] == "{"
        else ["", part[1:-1]]
        if part[:1] == "["
        else [part]
        for part in parts
    ]
    return ["".join(choice) for choice in itertools.product(*choices)]


def op(pattern: str, code: str, types: str = "", warp: bool = False) -> None:
    """Add a row for every spelling of `pattern`."""
    sources = len(set(re.findall(r"\b[a-e]\b", code)))
    for name in expand(pattern):
        last = name.rsplit(".", 1)[1]
        bits = TYPE_BYTES.get(last, 0) * 8
        words = types.split() or ["T"] * (1 + sources)
        names = {"T": last, "A": name.split(".")[-2], "wide": f"{last[0]}{bits * 2}"}
        TABLE[name] = Row(code, tuple(names.get(word, word) for word in words), warp)


INT = "{s16,u16,s32,u32,s64,u64}"
BITS = "{b16,b32,b64}"
FLOATS = "{f32,f64}"

# -- integers ---------------------------------------------------------------------------------
op(f"add.{INT}", "a + b")
op(f"sub.{INT}", "a - b")
op(f"mul.lo.{INT}", "a * b")
op(f"mad.lo.{INT}", "a * b + c")
op(f"mul.hi.{INT}", "mul_hi(a, b)")
op(f"mad.hi.{INT}", "mul_hi(a, b) + c")
op("mul.wide.{s16,u16,s32,u32}", "a.astype(D) * b.astype(D)", "wide T T")
op("mad.wide.{s16,u16,s32,u32}", "a.astype(D) * b.astype(D) + c", "wide T T wide")
op(f"div.{INT}", "divide(a, b)")
op(f"rem.{INT}", "remainder(a, b)")
op(f"min.{INT}", "np.minimum(a, b)")
op(f"max.{INT}", "np.maximum(a, b)")
op("neg.{s16,s32,s64}", "-a")
op("abs.{s16,s32,s64}", "np.abs(a)")
op(f"and.{BITS}", "a & b")
op(f"or.{BITS}", "a | b")
op(f"xor.{BITS}", "a ^ b")
op(f"not.{BITS}", "~a")
op(f"cnot.{BITS}", "(a == 0).astype(D)")
op(f"shl.{BITS}", "a << shift(b, T)", "T T u32")
op("shr.{b16,b32,b64}", "(a.view(U) >> shift(b, U)).view(T)", "T T u32")
op("shr.{s16,s32,s64,u16,u32,u64}", "a >> shift(b, T)", "T T u32")
op("shf.{l,r}.{wrap,clamp}.b32", "funnel(a, b, c, '.r.' in NAME, 'wrap' in NAME)", "T T T u32")
op("bfe.{s32,u32,s64,u64}", "bfe(a, b, c)", "T T u32 u32")
op("bfi.{b32,b64}", "bfi(a, b, c, d)", "T T T u32 u32")
op("prmt.b32", "prmt(a, b, c)")
op("lop3.b32", "lop3(a, b, c, d)")
op("popc.{b32,b64}", "popc(a)", "s32 T")
op("clz.{b32,b64}", "clz(a)", "s32 T")
op("brev.{b32,b64}", "brev(a)")
op("dp4a.{s32,u32}.{s32,u32}", "dp4a(a, b, c, BYTE_A, BYTE_B)", "s32 b32 b32 s32")

# -- predicates and choices -------------------------------------------------------------------
op("and.pred", "a & b")
op("or.pred", "a | b")
op("xor.pred", "a ^ b")
op("not.pred", "~a")
op("selp.{b16,b32,b64,s16,u16,s32,u32,s64,u64,f32,f64}", "select(c, a, b)", "T T T pred")
op("slct.{b32,s32,u32,f32,b64,s64,u64,f64}.s32", "select(c >= 0, a, b)", "A A A s32")
ORDERED = {"eq": "a == b", "lt": "a < b", "le": "a <= b", "gt": "a > b", "ge": "a >= b"}
UNORDERED = {"equ": "~((a < b) | (a > b))", "neu": "a != b", "ltu": "~(a >= b)",
             "leu": "~(a > b)", "gtu": "~(a <= b)", "geu": "~(a < b)",
             "ne": "(a < b) | (a > b)", "num": "(a == a) & (b == b)",
             "nan": "(a != a) | (b != b)"}  # fmt: skip
UNSIGNED = {"lo": "a < b", "ls": "a <= b", "hi": "a > b", "hs": "a >= b"}
COMPARISONS = [
    ("{s16,u16,s32,u32,s64,u64}", {**ORDERED, "ne": "a != b"}),
    ("{b16,b32,b64}", {"eq": "a == b", "ne": "a != b"}),
    ("{u16,u32,u64}", UNSIGNED),
    ("{f16,f32,f64}", {**ORDERED, **UNORDERED}),
]
for kinds, rules in COMPARISONS:
    for word, rule in rules.items():
        op(f"setp.{word}.{kinds}", rule, "pred T T")
        for combine, sign in (("and", "&"), ("or", "|"), ("xor", "^")):
            op(f"setp.{word}.{combine}.{kinds}", f"({rule}) {sign} c", "pred T T pred")
        op(f"set.{word}.{{u32,s32}}.{kinds}", f"-(({rule}).astype(np.int32))", "s32 T T")
        op(f"set.{word}.f32.{kinds}", f"({rule}).astype(D)", "f32 T T")

# -- floats -----------------------------------------------------------------------------------
op(f"add[.rn].{FLOATS}", "a + b")
op(f"sub[.rn].{FLOATS}", "a - b")
op(f"mul[.rn].{FLOATS}", "a * b")
op("fma.rn.f32", "fma_f32(a, b, c)")
op("fma.rn.f64", "fma_f64(a, b, c)")
op("{div.rn,div.full,div.approx}.f32", "a / b")
op("div.rn.f64", "a / b")
op("{rcp.rn,rcp.approx}.f32", "T(1) / a")
op("rcp.rn.f64", "T(1) / a")
op("{sqrt.rn,sqrt.approx}.f32", "np.sqrt(a)")
op("sqrt.rn.f64", "np.sqrt(a)")
op("rsqrt.approx.{f32,f64}", "(1 / np.sqrt(a.astype(F64))).astype(D)")
op("ex2.approx.f32", "np.exp2(a.astype(F64)).astype(D)")
op("lg2.approx.f32", "np.log2(a.astype(F64)).astype(D)")
op("tanh.approx.f32", "np.tanh(a.astype(F64)).astype(D)")
op("{min,max}.{f16,f32,f64}", "(minimum if 'min' in NAME else maximum)(a, b)")
op("min.NaN.{f16,f32}", "np.minimum(a, b)")
op("max.NaN.{f16,f32}", "np.maximum(a, b)")
op("neg.{f16,f32,f64}", "-a")
op("abs.{f16,f32,f64}", "np.abs(a)")
op("copysign.{f32,f64}", "np.copysign(b, a)")

op("add[.rn].f16", "a + b")
op("sub[.rn].f16", "a - b")
op("mul[.rn].f16", "a * b")
op("fma.rn.f16", "fma_f16(a, b, c)")
op("add[.rn].bf16", "bf16(from_bf16(a) + from_bf16(b))")
op("sub[.rn].bf16", "bf16(from_bf16(a) - from_bf16(b))")
op("mul[.rn].bf16", "bf16(from_bf16(a) * from_bf16(b))")
op("fma.rn.bf16", "fma_bf16(a, b, c)")
op("neg.bf16", "a ^ np.uint16(0x8000)")
op("abs.bf16", "a & np.uint16(0x7FFF)")
op("{min,max}.bf16", "bf16((minimum if 'min' in NAME else maximum)(from_bf16(a), from_bf16(b)))")
for kinds, rules in [("bf16", {**ORDERED, **UNORDERED})]:
    for word, rule in rules.items():
        bf16_rule = re.sub(r"\b([ab])\b", r"from_bf16(\1)", rule)
        op(f"setp.{word}.{kinds}", bf16_rule, "pred T T")

# -- conversions: cvt.<modifiers>.<result>.<source> ---------------------------------------------
ANY_INT = "{s8,u8,s16,u16,s32,u32,s64,u64}"
op(f"cvt.{ANY_INT}.{ANY_INT}", "a.astype(D)", "A T")
op(f"cvt.sat.{ANY_INT}.{ANY_INT}", "saturate_int(a, D)", "A T")
op(f"cvt.rn.{{f16,f32,f64}}.{ANY_INT}", "a.astype(D)", "A T")
op("cvt.{rz,rm,rp}.{f16,f32}.{s8,u8,s16,u16,s32,u32}", "directed(a, D, MODE)", "A T")
op(f"cvt.{{rn,rz}}.bf16.{ANY_INT}", "bf16(to_odd_f32(a.astype(F64)), MODE)", "A T")
op(f"cvt.{{rni,rzi,rmi,rpi}}[.sat].{ANY_INT}.{{f16,f32,f64}}",
   "float_to_int(to_integral(a, MODE), D, S)", "A T")  # fmt: skip
op(f"cvt.{{rni,rzi,rmi,rpi}}[.sat].{ANY_INT}.bf16",
   "float_to_int(to_integral(from_bf16(a), MODE), D, np.float32)", "A T")  # fmt: skip
for wide_type, short in [("f64", "f32"), ("f64", "f16"), ("f32", "f16")]:
    op(f"cvt.{wide_type}.{short}", "a.astype(D)", "A T")
    op(f"cvt.{{rn,rz,rm,rp}}.{short}.{wide_type}", "directed(a, D, MODE)", "A T")
for same in ("f16", "f32", "f64"):
    op(f"cvt.{{rni,rzi,rmi,rpi}}.{same}.{same}", "to_integral(a, MODE)", "A T")
    op(f"cvt[.rn].sat.{same}.{same}", "saturate(a)", "A T")
    op(f"cvt.{same}.{same}", "a", "A T")
op("cvt.{rn,rz}.bf16.f32", "bf16(a, MODE)", "A T")
op("cvt.rn.bf16.f64", "bf16_f64(a)", "A T")
op("cvt.rn.relu.f16.f32", "relu(a).astype(D)", "A T")
op("cvt.f32.bf16", "from_bf16(a)", "A T")
op("cvt.f64.bf16", "from_bf16(a).astype(D)", "A T")
op("cvt.rn.f16x2.f32", "pack(b.astype(np.float16), a.astype(np.float16))", "A T T")
op("cvt.rn.bf16x2.f32", "pack(bf16(b), bf16(a))", "A T T")
op("cvt.rna.tf32.f32", "tf32(a)", "b32 T")

# -- pairs of 16-bit floats in 32 bits ------------------------------------------------------------
PAIRED = {
    "add[.rn]": "x + y", "sub[.rn]": "x - y", "mul[.rn]": "x * y", "fma.rn": "fma_f16(x, y, z)",
    "min": "minimum(x, y)", "max": "maximum(x, y)", "neg": "-x", "abs": "np.abs(x)",
}  # fmt: skip
for word, rule in PAIRED.items():
    half_rule = rule
    for letter, source in zip("xyz", "abc", strict=True):
        half_rule = re.sub(rf"\b{letter}\b", f"HALF({source}, np.float16)", half_rule)
    low, high = (half_rule.replace("HALF", half) for half in ("low_half", "high_half"))
    op(f"{word}.f16x2", f"pack({low}, {high})")

# -- lanes of a warp ------------------------------------------------------------------------------
op(
    "shfl.sync.{idx,up,down,bfly}.b32",
    "shuffle(E, m, ITEM, MODE, a, b, c, d)",
    "T T T T T",
    warp=True,
)
op("vote.sync.ballot.b32", "ballot(E, m, ITEM, a, b)", "T pred T", warp=True)
op("vote.sync.{all,any,uni}.pred", "vote(E, m, ITEM, MODE, a, b)", "T T b32", warp=True)
op("activemask.b32", "ballot(E, m, ITEM, np.True_, np.int32(-1))", "T", warp=True)


def needs_warp(item: Instruction) -> bool:
    """True for instructions that every live lane of a warp executes together."""
    row = TABLE.get(item.name)
    return row is not None and row.warp


def _names(operand: Operand | None) -> set[str]:
    if isinstance(operand, Reg):
        return {operand.name}
    if isinstance(operand, Not):
        return {operand.reg.name}
    if isinstance(operand, Address):
        return _names(operand.base)
    if isinstance(operand, Vector):
        return set().union(*(_names(item) for item in operand.items))
    if isinstance(operand, Pair):
        return _names(operand.first) | _names(operand.second)
    return set()


def registers(item: Instruction) -> tuple[set[str], set[str]]:
    """The registers that an instruction reads, and those it writes.

    Under a predicate the old value of a result may survive, so results then count as read.
    """
    sources = {"st", "bar", "barrier", "bra", "red", "membar", "fence", "prefetch"}
    written = set() if item.opcode in sources or not item.operands else _names(item.operands[0])
    rest = item.operands[1:] if item.opcode not in sources else item.operands
    read = set().union(*(_names(operand) for operand in rest))
    if item.predicate:
        read |= {item.predicate.name} | written
    return read, written
