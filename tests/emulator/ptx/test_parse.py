"""The parser: the forms PTX takes, and what it says about PTX that is damaged."""

from __future__ import annotations

import pytest

from gen.emulator import parse_ptx
from gen.emulator.isa.table import expand
from gen.emulator.ptx.module import Instruction
from gen.emulator.ptx.operands import parse_number, split_operands
from gen.emulator.translate.blocks import build_blocks
from gen.errors import CheckError
from tests.emulator.emulator_kernels import compile_cuda, gemm_source

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def instructions(body: str, head: str = "") -> list[Instruction]:
    module = parse_ptx(f"{HEAD}{head}.visible .entry k(.param .u64 p) {{\n{body}\n}}")
    return [item for item in module.kernels["k"].body if isinstance(item, Instruction)]


def test_scopes_rename_registers() -> None:
    body = """.reg .pred p; .reg .b32 %r<3>;
  setp.eq.s32 p, %r1, 0;
  { .reg .pred p; setp.eq.s32 p, %r2, 0; { .reg .b32 p; mov.u32 p, 1; } @p mov.u32 %r1, 2; }
  @!p mov.u32 %r1, 3;"""
    outer, inner, innermost, first, second = instructions(body)
    names = [str(item.operands[0].name) for item in (outer, inner, innermost)]  # type: ignore[union-attr]
    assert len(set(names)) == 3
    assert first.predicate is not None
    assert first.predicate.name == names[1]
    assert second.predicate is not None
    assert (second.predicate.name, second.negated) == (names[0], True)


def test_lines_follow_inlined_calls_to_the_kernel_s_file() -> None:
    body = """.reg .b32 %r; .loc 1 10 3
  mov.u32 %r, 1;
  .loc 2 99 7, function_name $L__info_string0, inlined_at 1 12 5
  mov.u32 %r, 2;
  .loc 3 5 1, function_name $L__info_string1+4, inlined_at 2 99 7
  mov.u32 %r, 3;
  .loc 1 4 1, function_name $L__info_string2, inlined_at 1 13 2
  mov.u32 %r, 4;
  .loc 2 7 7
  mov.u32 %r, 5;"""
    assert [item.line for item in instructions(body)] == [10, 12, 12, 4, 0]


def test_comments_pragmas_and_spelling() -> None:
    body = """.reg .b32 %r<9>; .reg .b64 %rd1; // a comment; with { braces
  // begin inline asm
  {mov.u32   %r1,
     %r2;
}
  .pragma "nounroll";
  /* mov.u32 %r1, 7; */ ld.global.L2::128B.v2.u32 {%r3, _}, [ %rd1 + -8 ];
  st.shared.u32 [buffer+16], 0x1F;"""
    move, load, store = instructions(body)
    assert str(move) == "mov.u32 %r1, %r2;"
    assert str(load) == "ld.global.L2::128B.v2.u32 {%r3, _}, [%rd1+-8];"
    assert str(store) == "st.shared.u32 [buffer+16], 0x1F;"


def test_variables_and_limits() -> None:
    head = """.global .align 4 .b8 text[6] = {1, 0xFF, 3};
.const .align 8 .f64 pi = 0d400921FB54442D18;
.extern .shared .align 16 .b8 dynamic[];
.global .align 8 .u64 pointer = generic(text);
.visible .global .s16 grid[2][3] = {{1, 2, 3}, {-1, -2, -3}};
"""
    text = f"""{HEAD}{head}.weak .entry k(
  .param .u64 .ptr .global .align 16 k_0, .param .align 8 .b8 k_1[12], .param .u32 k_2
) .reqntid 32, 4 .minnctapersm 2 {{ .shared .align 4 .f32 tile[8]; ret; }}
.section .debug_str {{ $L: .b8 1, 2 }}
.file 1 "a//b.cu"
"""
    module = parse_ptx(text)
    kernel = module.kernels["k"]
    assert [(p.name, p.nbytes, p.offset) for p in kernel.params] == [
        ("k_0", 8, 0), ("k_1", 12, 8), ("k_2", 4, 20)
    ]  # fmt: skip
    assert kernel.max_threads == (32, 4, 1)
    assert kernel.variables["tile"].nbytes == 32
    assert module.variables["text"].init == bytes([1, 255, 3])
    assert module.variables["text"].nbytes == 6
    assert module.variables["pi"].init.hex() == "182d4454fb210940"
    assert module.variables["dynamic"].dynamic
    assert module.variables["grid"].init[6:8] == b"\xff\xff"
    assert "generic(text)" in module.variables["pointer"].refused


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12), ("-5", -5), ("0x1F", 31), ("0xFFU", 255), ("017", 15), ("0b101", 5),
        ("0f3F800000", 1.0), ("0dC000000000000000", -2.0), ("1.5", 1.5), ("2e3", 2000.0),
        ("%r1", None), ("$L1", None), ("0f3F8", None),
    ],
)  # fmt: skip
def test_numbers(text: str, value: float | None) -> None:
    assert parse_number(text) == value


def test_operands_split_outside_brackets() -> None:
    assert split_operands("{%a, %b}, [%c], 3") == ["{%a, %b}", "[%c]", "3"]
    with pytest.raises(CheckError, match="malformed"):
        split_operands("{%a, %b, 3")


def test_patterns_expand() -> None:
    assert expand("add[.rn].{f32,f64}") == ["add.f32", "add.f64", "add.rn.f32", "add.rn.f64"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[: text.index("bra")], "truncated"),
        (lambda text: text[: text.rindex("ret;")], "truncated"),
        (lambda text: text[: text.index(".maxntid")], "truncated"),
        (lambda text: "hello", "not PTX"),
        (lambda text: text.replace("@%p3 ", "@%zz "), "undeclared"),
        (lambda text: text.replace(".reg .pred", ".reg .b1024"), "register type"),
        (lambda text: text.replace(".loc", ".loc x", 1), "malformed .loc"),
    ],
)  # fmt: skip
def test_damaged_ptx(damage, message: str) -> None:  # type: ignore[no-untyped-def]
    text = compile_cuda(gemm_source("naive", "f32"))
    parse_ptx(text)
    with pytest.raises(CheckError, match=message):
        parse_ptx(damage(text))


def test_branch_to_nowhere() -> None:
    module = parse_ptx(f"{HEAD}.entry k() {{ .loc 1 8 1\n bra $L__missing; }}")
    with pytest.raises(CheckError, match=r"does not exist.*bra \$L__missing.*line 8"):
        build_blocks(module.kernels["k"])


def test_loops_are_contiguous_in_the_order_of_blocks() -> None:
    """The exit of a loop stands before it in the text, and still runs after it."""
    body = """.reg .pred p; .reg .b32 a; bra HEAD;
EXIT: mov.u32 a, 99; ret;
INNER: mov.u32 a, 2; @p bra INNER; bra LATCH;
HEAD: mov.u32 a, 1; @p bra EXIT; bra INNER;
LATCH: mov.u32 a, 3; bra HEAD;"""
    module = parse_ptx(f"{HEAD}.entry k() {{ {body} }}")
    blocks = build_blocks(module.kernels["k"])
    order = [str(block.body[0].operands[1]) for block in blocks if block.body]
    assert order == ["1", "2", "3", "99"]
