"""Rows of the instruction table: integers, bits, predicates and choices. See `table`."""

from __future__ import annotations

from gen.emulator.isa.table import op

INT = "{s16,u16,s32,u32,s64,u64}"
BITS = "{b16,b32,b64}"

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
for pieces in "24":  # of which the bytes or halves of two words differ, or c and their sum
    op(f"vabsdiff{pieces}.u32.u32.u32[.add]", f"abs_differences(a, b, c, {pieces}, 'add' in NAME)",
       "u32 u32 u32 u32")  # fmt: skip
op("lop3.b32", "lop3(a, b, c, d)")
op("popc.{b32,b64}", "popc(a)", "s32 T")
op("clz.{b32,b64}", "clz(a)", "s32 T")
op("brev.{b32,b64}", "brev(a)")
op("dp4a.{s32,u32}.{s32,u32}", "dp4a(a, b, c, BYTE_A, BYTE_B)", "s32 b32 b32 s32")
op("dp2a.{lo,hi}.{s32,u32}.{s32,u32}", "dp2a(a, b, c, NAME, BYTE_A, BYTE_B)", "s32 b32 b32 s32")
op("fns.b32", "fns(a, b, c)", "u32 b32 b32 s32")
op("mul24.lo.{s32,u32}", "low24(a) * low24(b)")
op("mad24.lo.{s32,u32}", "low24(a) * low24(b) + c")
op(f"sad.{INT}", "np.maximum(a, b) - np.minimum(a, b) + c")
op("prmt.b32.{f4e,b4e,rc8,ecl,ecr,rc16}", "prmt(a, b, prmt_control(c, NAME))", "b32 b32 b32 b32")
op("bfind.shiftamt.{s32,u32,s64,u64}", "shift_amount(a)", "u32 T")
op("bfind.{s32,u32,s64,u64}", "bfind(a)", "u32 T")
op("bmsk.{clamp,wrap}.b32", "bit_mask(a, b, 'wrap' in NAME)", "b32 u32 u32")
op("szext.{clamp,wrap}.{s32,u32}", "extend(a, b, 'wrap' in NAME)", "T T u32")
op("isspacep.{global,shared::cluster,local}", "in_space(a, NAME)", "pred s64")
op("isspacep.shared[::cta]", "in_block(E, a)", "pred s64")

# A policy of the cache changes nothing here.
LEVEL = "L2::evict_{last,normal,first,unchanged}"
for second in ("", ".L2::evict_unchanged", ".L2::evict_first"):
    op(f"createpolicy.{{fractional,range,range.global}}.{LEVEL}{second}.b64", "np.int64(0)", "b64")
op("createpolicy.cvt.L2.b64", "a", "b64 b64")

# -- carries: the condition code is a predicate, which `ptx.lower` makes an operand -----------
WORDS = "{s32,u32,s64,u64}"
for word in ("add", "sub"):
    op(f"{word}.cc.{WORDS}", f"{word}_carry(a, b)", pair=True)
    op(f"{word}c.cc.{WORDS}", f"{word}_carry(a, b, c)", "T T T pred", pair=True)
    op(f"{word}c.{WORDS}", f"{word}_carry(a, b, c)[0]", "T T T pred")
for part, product in (("lo", "a * b"), ("hi", "mul_hi(a, b)")):
    op(f"mad.{part}.cc.{WORDS}", f"add_carry({product}, c)", pair=True)
    op(f"madc.{part}.cc.{WORDS}", f"add_carry({product}, c, d)", "T T T T pred", pair=True)
    op(f"madc.{part}.{WORDS}", f"add_carry({product}, c, d)[0]", "T T T T pred")

# -- predicates and choices -------------------------------------------------------------------
op("and.pred", "a & b")
op("or.pred", "a | b")
op("xor.pred", "a ^ b")
op("not.pred", "~a")
op("selp.{b16,b32,b64,s16,u16,s32,u32,s64,u64,f32,f64}", "select(c, a, b)", "T T T pred")
op("slct.{b16,b32,s32,u32,f32,b64,s64,u64,f64}.s32", "select(c >= 0, a, b)", "A A A s32")
op("slct[.ftz].{b16,b32,s32,u32,f32,b64,s64,u64,f64}.f32", "select(c >= 0, a, b)", "A A A f32")
# Comparisons; those of floats are in `rows_float`.
ORDERED = {"eq": "a == b", "lt": "a < b", "le": "a <= b", "gt": "a > b", "ge": "a >= b"}
UNSIGNED = {"lo": "a < b", "ls": "a <= b", "hi": "a > b", "hs": "a >= b"}


def compare(kinds: str, rules: dict[str, str], ftz: str = "") -> None:
    """`setp`, alone and combined with a predicate, and `set`, for each of `rules`."""
    for word, rule in rules.items():
        op(f"setp.{word}{ftz}.{kinds}", rule, "pred T T")
        for combine, sign in (("and", "&"), ("or", "|"), ("xor", "^")):
            op(f"setp.{word}.{combine}{ftz}.{kinds}", f"({rule}) {sign} c", "pred T T pred")
        op(f"set.{word}{ftz}.{{u32,s32}}.{kinds}", f"-(({rule}).astype(np.int32))", "s32 T T")
        op(f"set.{word}{ftz}.f32.{kinds}", f"({rule}).astype(D)", "f32 T T")


compare(INT, {**ORDERED, "ne": "a != b"})
compare(BITS, {"eq": "a == b", "ne": "a != b"})
compare("{u16,u32,u64}", UNSIGNED)
