"""Facts: lines of C++ that Python evaluates as a C++ compiler does."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gen.kernels.formulas import Fact, ceil_div, evaluate, round_up
from tests.support.programs import need, run

NAMES = {"a": 0, "b": 1, "c": 7, "d": 300}


def value(text: str, **given: int) -> int:
    return evaluate([Fact("x", text)], {**NAMES, **given})["x"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("c + d * 2 - 1", 606),
        ("d - c - 1", 292),
        ("d / c % 5", 2),
        ("(c + 1) * 2", 16),
        ("a || b && a", 0),
        ("(c || a) + (c && d)", 2),
        ("!a && c < d == b", 1),
        ("!(c > d) + 1", 2),
        ("c < 1 ? 1 : c < 8 ? 8 : 9", 8),
        ("a ? b ? 1 : 2 : 3", 3),
    ],
)
def test_values(text: str, expected: int) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    "text", ["", "a +", "a b", "(a", "a)", "f(a)", "a ? b", "a ** b", "a.b", "x[0]", "'a'", "a = b"]
)
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not an expression|missing|left over|stands where"):
        value(text)


def test_names_are_those_before() -> None:
    facts = [Fact("x", "c + 1"), Fact("y", "x * x")]
    assert evaluate(facts, NAMES) == {**NAMES, "x": 8, "y": 64}
    with pytest.raises(NameError):
        evaluate(facts[::-1], NAMES)
    with pytest.raises(NameError):
        value("open")


def test_functions() -> None:
    assert [ceil_div(n, 4) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]
    assert [round_up(n, 4) for n in (0, 1, 4, 5)] == [0, 4, 4, 8]


def nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """An expression with others in it, with or without parentheses; nothing divided by zero."""
    binary = st.sampled_from(["+", "*", "<", "<=", ">", ">=", "==", "!=", "&&", "||"])
    return (
        st.builds("{} {} {}".format, inner, binary, inner)
        | st.builds("({})".format, inner)
        | st.builds("!{}".format, st.builds("({})".format, inner))
        | st.builds("{} ? {} : {}".format, inner, inner, inner)
        | st.builds("{} {} {}".format, inner, st.sampled_from("/%"), st.integers(1, 9))
    )


EXPRESSIONS = st.recursive(st.sampled_from([*NAMES, "3", "128"]), nested, max_leaves=6)


@given(st.lists(EXPRESSIONS, min_size=20, max_size=20))
@settings(max_examples=5, deadline=None)
def test_values_are_those_of_cpp(drawn: list[str]) -> None:
    need("g++")
    drawn = [text for text in drawn if value(text) < 2**40]
    lines = "\n".join(f'  printf("%lld\\n", (long long)({text}));' for text in drawn)
    names = "\n".join(f"  const long long {name} = {n}; (void){name};" for name, n in NAMES.items())
    program = f"#include <cstdio>\nint main() {{\n{names}\n{lines}\n}}\n"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "main.cpp").write_text(program)
        run("g++", "-std=c++17", "-w", "main.cpp", "-o", "main", cwd=Path(folder))
        printed = run("./main", cwd=Path(folder))
    assert [*map(int, printed.split())] == [value(text) for text in drawn]
