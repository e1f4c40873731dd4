"""Where a result is wrong, and where an access is, in words."""

from collections.abc import Callable

import numpy as np
import pytest

from gen.emulator import Finding
from gen.kernels.registry import make_spec
from gen.prove.patterns import pattern
from gen.prove.places import located
from gen.spec.problem import GemmProblem, GemmShape


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda i, j: i >= 0, "all of them"),
        (lambda i, j: (i == 3) & (j == 4), "row 3, column 4"),
        (lambda i, j: j == 5, "column 5"),
        (lambda i, j: i >= 16, "rows 16 to 32"),
        (lambda i, j: i % 7 == 3, "every 7th row from 3"),
        (lambda i, j: (i >= 16) & (j % 2 == 0), "rows 16 to 32, every 2nd column from 0"),
        (lambda i, j: (i % 11 == 2) & (i < 25) & (i > 2), "rows 13 and 24"),
        (lambda i, j: (i % 8 == 2) & (i < 20), "every 8th row from 2 to 18"),
        (lambda i, j: i % 4 < 2, "rows 0, 1, 4, ... (17 of 33)"),
        (
            lambda i, j: (i // 16 + j // 16) % 2 == 1,
            "4 whole tiles of 9 of 16x16, the first at [0, 16]",
        ),
        (lambda i, j: (i == j) & (i > 3), "some in rows 4 to 32, columns 4 to 32"),
    ],
)
def test_patterns(wrong: Callable[[np.ndarray, np.ndarray], np.ndarray], words: str) -> None:
    assert pattern(wrong(*np.indices((33, 40))), (16, 16)) == words


C_IS_NULL = "global load of 4 bytes at C+0 of 0 is out of bounds"


@pytest.mark.parametrize(
    ("layout", "beta", "message", "start"),
    [
        ("rrr", 0, "load at A+40 of 140", "load at A[1, 1] of 5x7 (A+40 of 140)"),
        ("crr", 0, "load at A+40 of 140", "load at A[3, 1] of 5x7 (A+40 of 140)"),
        ("rrr", 0, "load at B-4 of 84", "load at B[-1, 6] of 7x3 (B-4 of 84)"),
        ("rrr", 1, C_IS_NULL, "global load of 4 bytes at C[0, 0] of 5x3 (C+0 of 0) is out"),
        ("rrr", 0, C_IS_NULL, "C is read where beta is 0, though it may be null or hold NaN: gl"),
        ("rrr", 0, "load at bias+12 of 12", "load at bias[3] of 3 (bias+12 of 12)"),
        ("rrr", 0, "load at shared+0 of 8 (tile_a)", "load at shared+0 of 8 (tile_a)"),
    ],
)
def test_bytes_of_operands_are_elements(layout: str, beta: float, message: str, start: str) -> None:
    spec = make_spec("naive", layout=layout)
    problem = GemmProblem.packed(GemmShape(5, 3, 7), spec.layouts, 1, beta, padding=2)
    finding = Finding("memcheck", "k", message, 1, "", (0, 0, 0), ((0, 0, 0),))
    (found,) = located([finding], spec, problem)
    assert found.message.startswith(start)
