"""Every spelling of the instruction table runs: with values of each lane, and with one for all."""

from __future__ import annotations

import re

import numpy as np
import pytest

from gen.emulator import Emulator
from gen.emulator.isa.instructions import TABLE
from gen.emulator.isa.table import Row
from gen.emulator.ptx.module import TYPE_BYTES
from gen.emulator.warp.mma import OPERANDS, shape_of
from gen.emulator.warp.wmma import fragment, size_of

LETTERS = {"pred": "p", "f32": "f", "f64": "d", 1: "h", 2: "h", 4: "r", 8: "l"}
DECLARED = {"p": "pred", "f": "f32", "d": "f64", "h": "b16", "r": "b32", "l": "b64"}
VALUE = (
    "add.u32 %r{i}, %r0, {i};\ncvt.u16.u32 %h{i}, %r{i}; cvt.u64.u32 %l{i}, %r{i};\n"
    "cvt.rn.f32.u32 %f{i}, %r{i}; cvt.rn.f64.u32 %d{i}, %r{i}; setp.lt.u32 %p{i}, %r{i}, 9;\n"
)
FULL = "0xFFFFFFFF"
# What is not one register for each type of a row.
SPECIAL = {
    "bar.warp.sync": f"bar.warp.sync {FULL};",
    "barresult.popc.u32": "bar.red.popc.u32 %r0, 1, %p1;",
    "barresult.and.pred": "bar.red.and.pred %p0, 1, 64, %p1;",
    "barresult.or.pred": "bar.red.or.pred %p0, 1, !%p1;",
    "setmaxnreg.inc.sync.aligned.u32": "setmaxnreg.inc.sync.aligned.u32 256;",
    "setmaxnreg.dec.sync.aligned.u32": "setmaxnreg.dec.sync.aligned.u32 40;",
}
LAST = {"shfl": FULL, "vote": FULL, "match": FULL, "redux": FULL, "elect": FULL, "lop3": "0x96",
        "mapa": "0"}  # fmt: skip
NOT_SHARED = "mapa of an address that is not in shared memory"  # which no register here has
CARRY = re.compile(r"(add|sub|mad)c\.")


def register(kind: str, number: int) -> str:
    return f"%{LETTERS.get(kind) or LETTERS[TYPE_BYTES[kind]]}{number}"


def sizes(name: str) -> tuple[int, int, int, int]:
    """How many registers the fragments D, A, B and C of an mma have."""
    if volta := re.search(r"\.m8n8k4\.\w+\.\w+\.(f16|f32)\.f16\.f16\.(f16|f32)$", name):
        d, c = (8 if kind == "f32" else 4 for kind in volta.groups())
        return d, 2, 2, c
    if name.startswith("wmma."):
        size = size_of(name)
        kinds = re.findall(r"\.([a-z]+\d+)(?=\.|$)", name.partition(f"k{size[2]}")[2])
        kinds = kinds if len(kinds) == 4 else [kinds[0], "f16", "f16", kinds[1]]
        every = zip("dabc", kinds, strict=True)
        return tuple(len(fragment(which, *size, kind).starts) for which, kind in every)
    shape = shape_of(name)
    sums = shape.m * 8 // (64 if shape.d == "f16" else 32)
    a, b = OPERANDS[shape.a][0], OPERANDS[shape.b][0]
    return sums, shape.m * shape.k // 32 // a, 8 * shape.k // 32 // b, sums


def mma(name: str, row: Row) -> str:
    """An mma with as many registers as its fragments have."""
    parts, start = [], 0
    for kind, count in zip(row.types, sizes(name), strict=True):
        items = [register(kind, start + at) for at in range(count)]
        parts.append(f"{{{', '.join(items)}}}")
        start += len(items)
    return f"{name} {', '.join(parts)};"


def instruction(name: str, row: Row) -> str:
    """A spelling with operands."""
    if name in SPECIAL:
        return SPECIAL[name]
    if name.startswith(("mma.", "wmma.")):
        return mma(name, row)
    result, *sources = row.types
    operands = [register(kind, at) for at, kind in enumerate(sources, 1)]
    if name.startswith("getctarank"):
        operands = [register(name.rpartition(".")[2], 1)]
    if CARRY.match(name):
        operands.pop()  # the condition code
    if (word := name.partition(".")[0]) in LAST:
        operands[-1] = LAST[word]
    target = register(result, 0)
    if row.pair and ".cc" not in name:
        target += "|%p0"
    return f"{name} {', '.join([target, *operands])};"


@pytest.mark.parametrize("uniform", [False, True])
@pytest.mark.parametrize("opcode", sorted({name.partition(".")[0] for name in TABLE}))
def test_every_spelling_runs(opcode: str, uniform: bool) -> None:
    names = [name for name in TABLE if name.partition(".")[0] == opcode]
    body = "".join(f"{instruction(name, TABLE[name])}\n" for name in names)
    many = 1 + max(int(number) for number in re.findall(r"%[pfdhrl](\d+)", body) or "0")
    registers = "".join(f".reg .{k} %{letter}<{many}>;\n" for letter, k in DECLARED.items())
    start = "mov.u32 %r0, {};\n".format(5 if uniform else "%tid.x")
    values = "".join(VALUE.format(i=i) for i in range(many))
    entry = ".visible .entry test(.param .u64 p)\n.maxntid 128, 1, 1\n.minnctapersm 1\n"
    end = "ld.param.u64 %l0, [p]; st.global.u32 [%l0], 1;\nret;"
    ptx = f".version 8.7\n.target sm_90a\n.address_size 64\n{entry}{{\n{registers}{start}{values}"
    emulator = Emulator()
    out = emulator.alloc(np.zeros(1, np.int32))
    report = emulator.launch(f"{ptx}{body}{end}\n}}\n", "test", (2, 1, 1), (128, 1, 1), [out])
    assert emulator.read(out) == [1]
    unlike = [f for f in report.findings if f.message != NOT_SHARED]
    assert unlike == []
