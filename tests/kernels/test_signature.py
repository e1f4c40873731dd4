"""Argument lists, and how lines are filled with them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gen.kernels import signature
from gen.kernels.registry import make_spec


@given(st.lists(st.from_regex(r"[a-z]{1,30}", fullmatch=True), min_size=1), st.integers(0, 8))
@pytest.mark.slow
def test_lines_are_as_full_as_they_can_be(words: list[str], indent: int) -> None:
    lines = signature.fill(words, indent, width=40, after=");").split("\n")
    assert all(line.startswith(" " * indent) and len(line) <= 40 + 2 for line in lines)
    items = [item for line in lines for item in line.split()]
    assert items == [f"{word}," for word in words[:-1]] + [f"{words[-1]});"]
    for line, following in itertools.pairwise(lines):
        assert len(line) + 1 + len(following.split()[0]) > 40  # it had no room for one more


OWN = "x * scale[row] + up[row, col] * slope where scale=f32[row], up=f16[row, col], slope=scalar"


@pytest.mark.parametrize(
    ("epilogue", "its"),
    [
        ("linear", []),
        ("linear_bias", ["bias"]),
        (OWN, ["scale", "up", "ld_up", "slope"]),
    ],
)
@pytest.mark.parametrize("variant", ["naive", "mma"])
def test_launchers(variant: str, epilogue: str, its: list[str]) -> None:
    spec = make_spec(variant, epilogue=epilogue)
    names = [p.name for p in signature.launch(spec)]
    assert names == [
        *("M", "N", "K", "alpha", "A", "lda", "B", "ldb", "beta", "C", "ldc", "D", "ldd"),
        *its,
        *(["workspace", "workspace_bytes"] if variant == "mma" else []),
        "stream",
    ]


def test_only_operands_are_restricted() -> None:
    types = {p.name: p.type for p in signature.restricted(signature.matrices(signature.BIAS))}
    assert types["A"] == types["B"] == "const input_t* __restrict__"
    assert types["C"] == types["bias"] == "const output_t*"


def test_types_are_exchanged_as_whole_words() -> None:
    (other,) = signature.with_types(signature.BIAS, {"output_t": "void", "out": "x"})
    assert str(other) == "const void* bias"
