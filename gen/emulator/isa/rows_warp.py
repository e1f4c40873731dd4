"""Rows of the instruction table: what the lanes of a warp do together. See `table`."""

from __future__ import annotations

import itertools
import re

from gen.emulator.isa.table import TABLE, Row, expand, op

op("shfl.sync.{idx,up,down,bfly}.b32", "shuffle(E, m, ITEM, MODE, a, b, c, d)", "T T T T T",
   warp=True, pair=True)  # fmt: skip
op("vote.sync.ballot.b32", "ballot(E, m, ITEM, a, b)", "T pred T", warp=True)
op("vote.sync.{all,any,uni}.pred", "vote(E, m, ITEM, MODE, a, b)", "T T b32", warp=True)
op("match.any.sync.{b32,b64}", "match_any(E, m, ITEM, a, b)", "b32 T b32", warp=True)
op("match.all.sync.{b32,b64}", "match_all(E, m, ITEM, a, b)", "b32 T b32", warp=True,
   pair=True)  # fmt: skip
op("redux.sync.{add,min,max}.{s32,u32}", "reduce_warp(E, m, ITEM, a, b)", "T T b32", warp=True)
op("redux.sync.{and,or,xor}.b32", "reduce_warp(E, m, ITEM, a, b)", "T T b32", warp=True)
op("activemask.b32", "active(E, m)", "T", warp=True)
op("elect.sync", "elect(E, m, ITEM, a)", "b32 b32", warp=True, pair=True)
op("mapa.{shared::cluster.u32,shared::cluster.u64,u64}", "mapa(E, m, ITEM, a, b)", "T T u32")
op("getctarank[.shared::cluster].{u32,u64}", "ctarank(E, ITEM, a)", "u32 T")
# The end of bar.red, which `translate.blocks` takes apart: votes, a barrier, and this.
op("barresult.popc.u32", "E.barriers.result('popc')")
op("barresult.{and,or}.pred", "E.barriers.result('and' if '.and.' in NAME else 'or')")

# -- tensor cores: mma.sync.aligned.<size>.row.col.<D>.<A>.<B>.<C> --------------------------------
MMA_FORMS = {
    "{m16n8k8,m16n8k16}": ("f16.f16.f16.f16", "f32.f16.f16.f32", "f32.bf16.bf16.f32"),
    "{m16n8k4,m16n8k8}": ("f32.tf32.tf32.f32",),
    "{m16n8k16,m16n8k32,m8n8k16}": (
        "{s32,satfinite.s32}.{s8,u8}.{s8,u8}.s32",
        "s32.{s8,u8}.{s8,u8}.s32.satfinite",
    ),
    "{m8n8k4,m16n8k4,m16n8k8,m16n8k16}": ("f64.f64.f64.f64{,.rn,.rz,.rm,.rp}",),
    "{m16n8k16,m16n8k32}": ("{f16,f32}.{e4m3,e5m2}.{e4m3,e5m2}.SAME",),
    "{m8n8k32,m16n8k32,m16n8k64}": (
        "{s32,satfinite.s32}.{s4,u4}.{s4,u4}.s32",
        "s32.{s4,u4}.{s4,u4}.s32.satfinite",
    ),
    "{m8n8k128,m16n8k128,m16n8k256}": ("s32.b1.b1.s32.{xor,and}.popc",),
}
for sizes, forms in MMA_FORMS.items():
    for form in itertools.chain(*map(expand, forms)):
        result = re.findall(r"[fs]\d+", form)[0]
        operand = "f64" if "f64" in form else "b32"
        held = "b32" if result == "f16" else result  # two halves in a register
        op(f"mma.sync.aligned.{sizes}.row.col.{form.replace('SAME', result)}",
           "mma(E, m, ITEM, a, b, c)", f"{held} {operand} {operand} {held}", warp=True)  # fmt: skip

# Volta's mma, and wmma.mma.sync.aligned.<A>.<B>.<size>.<D>[.<A>.<B>].<C>
EITHER = "{row,col}.{row,col}"
HELD = {"f16": "b32", "f32": "f32"}
WMMA_SIZES = "{m16n16k16,m32n8k16,m8n32k16}"
for result, sums in itertools.product(HELD, HELD):
    types = f"{HELD[result]} b32 b32 {HELD[sums]}"
    op(f"mma.sync.aligned.m8n8k4.{EITHER}.{result}.f16.f16.{sums}", "quad_mma(E, m, ITEM, a, b, c)",
       types, warp=True)  # fmt: skip
    op(f"wmma.mma.sync.aligned.{EITHER}.{WMMA_SIZES}.{result}.{sums}[.satfinite]",
       "wmma(E, m, ITEM, a, b, c)", types, warp=True)  # fmt: skip
for name, held in (
    (f"{WMMA_SIZES}.f32.bf16.bf16.f32", "f32 b32 b32 f32"),
    ("m16n16k8.f32.tf32.tf32.f32", "f32 b32 b32 f32"),
    (f"{WMMA_SIZES}.s32.{{s8,u8}}.{{s8,u8}}.s32[.satfinite]", "s32 b32 b32 s32"),
    ("m8n8k32.s32.{s4,u4}.{s4,u4}.s32[.satfinite]", "s32 b32 b32 s32"),
    ("m8n8k4.f64.f64.f64.f64{,.rn,.rz,.rm,.rp}", "f64 f64 f64 f64"),
):
    op(f"wmma.mma.sync.aligned.{EITHER}.{name}", "wmma(E, m, ITEM, a, b, c)", held, warp=True)
op("wmma.mma.{xor,and}.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32",
   "wmma(E, m, ITEM, a, b, c)", "s32 b32 b32 s32", warp=True)  # fmt: skip
op("movmatrix.sync.aligned.m8n8.trans.b16", "movmatrix(E, m, ITEM, a)", "b32 b32", warp=True)
# Without a result: see memorycode.py and asynccode.py.
TABLE["bar.warp.sync"] = Row("", ("b32",), warp=True)
for action in ("inc", "dec"):
    TABLE[f"setmaxnreg.{action}.sync.aligned.u32"] = Row("", ("u32",), warp=True)
