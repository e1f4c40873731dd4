"""`--epilogue` with an expression, and `--operand`."""

from __future__ import annotations

from pathlib import Path

import pytest

from gen.source.render import read_source
from tests.conftest import Gen


def test_operands_are_declared_beside_the_expression_or_behind_it(gen: Gen) -> None:
    together = "silu(x) * up[row, col] * slope where up=f16[row, col], slope=scalar"
    apart = ("silu(x) * up[row,col] * slope", "--operand", "up=f16[row,col]")
    gen("emit", "--variant", "naive", "--epilogue", together, "-o", "a.cu")
    declared = ("--operand", "slope=scalar")
    gen("emit", "--variant", "naive", "--epilogue", *apart, *declared, "-o", "b.cu")
    assert Path("a.cu").read_text() == Path("b.cu").read_text()
    source = read_source(Path("a.cu"))
    assert source.spec
    assert source.spec.epilogue == together


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--epilogue", "silu(x"), "'--epilogue': ')' is missing, at character 7 of 'silu(x'"),
        (("--epilogue", "x * slope"), "or declare slope=scalar, at character 5"),
        (("--epilogue", "x", "--operand", "up=f16[row]"), "operand 'up' is not in 'x'"),
        (("--epilogue", "x + v[row]", "--operand", "v=f9[row]"), "operand 'v' cannot be f9"),
        (("--operand", "v=f16[row]"), "use --epilogue, too"),
        (("--epilogue", "x + tile[row]"), "operand 'tile' is something else in emitted files"),
    ],
)
def test_mistakes(gen: Gen, options: tuple[str, ...], message: str) -> None:
    code, out, err = gen("emit", "--variant", "naive", *options)
    assert (code, out) == (2, "")
    assert message in err
