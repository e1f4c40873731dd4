"""Which statements run whenever their block does, and which lines must have run by that."""

import pytest

from gen.prove.cpp_tokens import Tokens
from gen.prove.edits import Edited
from gen.prove.statements import entered_lines, plain_statements

CODE = "__global__ void f(int a, int b) {{\n{}\n}}\n"


def plain(text: str) -> list[str]:
    edited = Edited.between(text, "")
    words = [[edited.tokens[i].text for i in at] for at in edited.statements]
    found = plain_statements(Tokens(edited.tokens), edited.statements)
    return [" ".join(words[one.number]) for one in found]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("a = 1; b = 2;", ["a = 1 ;", "b = 2 ;"]),
        ("if (a) b = 2; return;", ["return ;"]),
        ("if (a) { b = 2; } else { a = 1; } b = 3;", ["b = 2 ;", "a = 1 ;", "b = 3 ;"]),
        ("if (a) b = 2; else a = 1;", []),
        ("for (int i = 0; i < a; ++i) b += i;", []),
        ("for (int i = 0; i < a; ++i) { b += i; }", ["b += i ;"]),
        ("do { --a; } while (a > 0);", []),  # a sign begins it
        ("do { a -= 1; } while (a > 0);", ["a -= 1 ;"]),
        ("while (a)\n#pragma unroll\n for (;;) b = 2;", []),
        ("if (a)\n#pragma unroll\n b = 2;", []),
        ("#pragma unroll\n for (;;) { b = 2; }", ["b = 2 ;"]),
        ("switch (a) { case 3: b = 2; a = 1; default: b = 3; }", ["a = 1 ;"]),
        ("again: a = 1; goto again;", ["goto again ;"]),
        (
            "auto g = [&](int x) { b = x; }; g(1);",
            ["auto g = [ & ] ( int x ) {", "b = x ;", "g ( 1 ) ;"],
        ),
        ("const int t[2] = {1, 2}; a = t[0];", ["const int t [ 2 ] = {", "a = t [ 0 ] ;"]),
        ("{ a = 1; }", ["a = 1 ;"]),
        ("struct s { int x; void g() { x = 1; } }; a = 1;", ["struct s {", "x = 1 ;", "a = 1 ;"]),
    ],
)
def test_plain_statements(code: str, expected: list[str]) -> None:
    assert plain(CODE.format(code)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "namespace n { using t = int; }",
        "struct alignas(16) s { int x; };",
        "template <int kCount> struct s { int x; s() = default; };",
        'extern "C" { int x; }',
        "enum e { one, two };",
        "union u { int x; float y; };",
        "int t[] = {1, 2};",
    ],
)
def test_what_is_no_code_has_none(text: str) -> None:
    assert plain(text) == []


@pytest.mark.parametrize(
    "head",
    ["int f()", "void f() const", "auto f(int a) -> int", "s(int a) : x(a)", "bool f() noexcept"],
)
def test_the_body_of_any_function_is_code(head: str) -> None:
    assert plain(f"struct s {{ {head} {{ x = 1; }} }};") == ["x = 1 ;"]


@pytest.mark.parametrize(
    ("lines", "run", "entered"),
    [
        (["a = 1;", "b = 2;"], [3], [2]),
        (["a = 1;", "b = 2;"], [2], []),  # what stands behind may lie beyond a `return`
        (["a = 1 +", " b;", "if (b) {", "a = 2;", "}"], [5], [2, 3]),
        (["if (a) {", "a = 1;", "}", "b = 2;"], [5], []),
        (["if (a) b = 1;", "b = 2;"], [3], []),
        (["if (a) {", "b = 1;", "b += f(b);", "}", "b = 2;"], [4], [3]),
        (["switch (b) {", "case 1: b = 2;", "a = 1;", "case 2:", "b = 3;", "}"], [6], []),
        (["switch (b) {", "case 1: b = 2;", "a = 1;", "b = 3;", "}"], [5], [4]),
        (["a = 1;", "goto b;", "c: a = 2;", "b: a = 3;"], [5], []),
    ],
)
def test_what_stands_before_lines_that_have_run(
    lines: list[str], run: list[int], entered: list[int]
) -> None:
    edited = Edited.between(CODE.format("\n".join(lines)), "")
    left = [line for line in range(2, 2 + len(lines)) if line not in run]
    assert entered_lines(Tokens(edited.tokens), edited.statements, left, run) == set(entered)
