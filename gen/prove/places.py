"""Findings in the words of a matrix product: A[row, col] for a byte of A."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from gen.kernels.launches import BIAS
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmProblem

if TYPE_CHECKING:
    from gen.emulator import Finding

_PLACE = re.compile(rf"\b(A|B|C|D|{BIAS})([+-]\d+) of \d+")
_C_AT_BETA_0 = "C is read where beta is 0, though it may be null or hold NaN: "


def located(
    findings: Iterable[Finding], spec: KernelSpec, problem: GemmProblem
) -> tuple[Finding, ...]:
    """The findings of a launch, whose messages name elements beside bytes of the operands."""

    def element(match: re.Match[str]) -> str:
        return f"{_element(match[1], int(match[2]), spec, problem)} ({match[0]})"

    def words(message: str) -> str:
        reads_c = problem.beta == 0 and re.search(r"\b(load|copy)\b.* C\+\d+ of 0 is", message)
        return (_C_AT_BETA_0 if reads_c else "") + _PLACE.sub(element, message, count=1)

    return tuple(replace(one, message=words(one.message)) for one in findings)


def _element(name: str, offset: int, spec: KernelSpec, problem: GemmProblem) -> str:
    """`A[9, 0] of 9x7`: where a byte would be, however far from the matrix.

    Of a batch with a stride, `A[2, 9, 0] of 4x9x7`: in the matrix of product 2.
    """
    types, layouts, shape = spec.dtypes, spec.layouts, problem.shape
    m, n, k = shape.m, shape.n, shape.k
    index = offset // (types.input if name in "AB" else types.output).size
    if name == BIAS:
        return f"{name}[{index}] of {n}"
    rows, columns, length, by_rows = {
        "A": (m, k, problem.lda, layouts.a),
        "B": (k, n, problem.ldb, layouts.b),
        "C": (m, n, problem.ldc, layouts.c),
        "D": (m, n, problem.ldd, layouts.c),
    }[name]
    stride, count = problem.batch.stride(name), problem.batch.matrices(name)
    beside = 0 < stride < length  # in the same lines
    within = index % length if beside else index
    product = min(max(within // stride, 0), count - 1) if stride else 0
    line, at = divmod(index - product * stride, max(length, 1))
    row, column = (line, at) if by_rows else (at, line)
    if stride:
        return f"{name}[{product}, {row}, {column}] of {count}x{rows}x{columns}"
    return f"{name}[{row}, {column}] of {rows}x{columns}"
