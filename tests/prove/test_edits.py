"""What an edited file has that was not emitted, whatever it looks like."""

import re

import pytest

from gen.kernels.registry import VARIANTS, make_spec
from gen.prove.cpp_tokens import tokens
from gen.prove.edits import Edited
from gen.source.render import render
from tests.support.slow import each

ONE = """// what it does
#define TWICE(x) \\
  ((x) + (x))
int one(int a, int b) {
  for (int i = 0; i < a; ++i) b += i;  // adds
  return TWICE(b) == 4 ? a : b;
}
"""


def lines(text: str) -> list[int]:
    return sorted(Edited.between(text, ONE).lines)


def test_layout_and_comments_are_no_difference() -> None:
    other = ONE.replace("// what it does\n", "").replace("{\n", "\n{ /* here\n */")
    other = other.replace("; ", ";\n")
    assert lines(other.replace("a + b", "a+b")) == []


def test_the_lines_of_what_differs() -> None:
    assert lines(ONE.replace("i < a", "i <= a")) == [5]
    assert lines(ONE.replace("? a", "?\n a + 1")) == [6, 7]
    assert lines(ONE.replace("b += i;", "b += i; b += 2;")) == [5]
    assert lines(ONE.replace("b += i;", "")) == [5, 6]  # the loop has another body


def test_what_uses_another_macro_differs() -> None:
    assert lines(ONE.replace("(x) + (x)", "(x) + 3")) == [2, 3, 6]


@pytest.mark.parametrize("variant", each(3, VARIANTS))
def test_emitted_files_have_no_edits_in_any_layout(variant: str) -> None:
    text = render(make_spec(variant)).text
    assert not Edited.between(text, text).edited
    bare = (
        re.sub(r"(?<!:)//(?! gen-spec).*", "", text)
        .replace(" {\n", "\n{\n")
        .replace(";\n", " ;\n\n")
    )
    assert not Edited.between(bare, text).edited


def test_numbers_in_edited_statements() -> None:
    other = ONE.replace("i < a", "i < (a >> 7) + 0x1F - 2'000 + 1e-3f")
    assert Edited.between(other, ONE).numbers == ["7", "128", "0x1F", "2'000", "1e-3f"]


def test_tokens_are_those_of_cpp() -> None:
    text = "a->*b<<=c...d::e 'x' \"y // z\" 1.5e+3f x>=y /* ; */ &&z"
    assert [token.text for token in tokens(text)] == [
        "a", "->*", "b", "<<=", "c", "...", "d", "::", "e", "'x'", '"y // z"', "1.5e+3f", "x", ">=",
        "y", "&&", "z",
    ]  # fmt: skip
