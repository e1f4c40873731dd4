"""Epilogues of a user's own: what is read, what is refused, and what comes back as text."""

from __future__ import annotations

import pytest

from gen.errors import SpecError, UsageError
from gen.kernels.registry import make_spec, spec_from_json
from gen.spec.epilogue import parse_epilogue, with_operands


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("silu(x)*up[row,col]", "silu(x) * up[row, col]"),
        ("((x + 1)) * (2 - (3 - x))", "(x + 1) * (2 - (3 - x))"),
        ("x<0 ? k*x : x where k=scalar", "x < 0 ? k * x : x where k=scalar"),
        ("-(-x)-1", "-(-x) - 1"),
        ("x+v[row] where v=output[row]", "x + v[row]"),
        ("x*v[col]+m[row,col] where m=bf16[row,col],v=f32[col]",
         "x * v[col] + m[row, col] where v=f32[col], m=bf16[row, col]"),
        ("!(row<=col)||x!=x?0:x", "!(row <= col) || x != x ? 0 : x"),
    ],
)  # fmt: skip
def test_text_is_canonical(text: str, canonical: str) -> None:
    assert str(parse_epilogue(text)) == canonical
    assert str(parse_epilogue(canonical)) == canonical


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("silu(x", r"'\)' is missing, at character 7 of 'silu\(x'"),
        ("x * 0.5f", "'0.5f' is not an expression's, at character 5"),
        ("x + k", "'k' is neither x, row, col, M, N nor an operand"),
        ("x + v[col, row]", r"\[col, row\], not \[row\], \[col\] or \[row, col\]"),
        ("0 < x < 1 ? x : 0", "a condition stands where a number should"),
        ("x ? 1 : 0", "a number stands where a condition should"),
        ("x + sin(x)", "there is no function 'sin'"),
        ("min(x)", "min takes 2 numbers, not 1"),
        ("x + row / col", "integers are divided by numbers alone"),
        ("x + row % 0", "integers are divided by numbers alone"),
        ("x + v[row] + v[col]", r"v is \[row\] elsewhere, not \[col\]"),
        ("x + for[row]", "a keyword of C"),
        ("x + exp[row]", "cannot be an operand's name"),
        ("x + s_[row]", "'s_' cannot be an operand's name: it is one that emitted files may have"),
        ("x * A[row, col]", "'A' cannot be an operand's name: it is a matrix of the product"),
        ("x + C[col]", "'C' cannot be an operand's name: it is a matrix of the product"),
        ("relu", r"epilogue 'relu' is a function alone; use 'relu\(x\)'"),
        ("+".join("x" * 249), "more than 125 operators in a row"),
        ("x + ld_v[row] + v[row, col]", "one name"),
        ("v[row]", "has no x"),
        ("x where v=f32[row]", "operand 'v' is not in 'x'"),
        ("x * k where k=f32", "cannot be f32; use scalar"),
        ("x * v[row] where v=f8[row]", "cannot be f8"),
        ("x * v[row] where v", "declares no operand"),
        ("x * v[row] where v=f32[row], v=f16[row]", "declared twice"),
        ("(" * 99 + "x" + ")" * 99, "inside of one another"),
        ("x + " * 200 + "x", "at most 500"),
        ("1e99 * x", "beyond 2"),
        ("linear_bia", "did you mean linear_bias"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_spec("naive", epilogue=text)


@pytest.mark.parametrize(
    ("dtype", "text", "message"),
    [
        ("i8", "exp(x)", "exp needs sums in floating point.*; use epilogue=linear"),
        ("i8", "x * 0.5", "0.5 needs sums in floating point.*; use epilogue=linear"),
        (
            "i8",
            "x * v[row] where v=f32[row]",
            "f32, which i32 does not hold; convert it to i32 or i8$",
        ),
        (
            "f16",
            "x * v[row] where v=f64[row]",
            "f32 does not hold; convert it to f32, f16 or bf16$",
        ),
    ],
)
def test_what_element_types_refuse(dtype: str, text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make_spec("naive", dtype=dtype, epilogue=text)


def test_a_specification_comes_back() -> None:
    text = with_operands("relu(x) * up[row, col] * k", ["up=f16[row,col]", "k=scalar"])
    spec = make_spec("naive", epilogue=text)
    assert spec_from_json(spec.to_json()) == spec
    assert f"--epilogue '{spec.epilogue}'" in spec.command
    other = make_spec("naive", epilogue=text.replace("f16", "bf16"))
    assert spec.name != other.name
    assert make_spec("naive", epilogue="x") == make_spec("naive")
