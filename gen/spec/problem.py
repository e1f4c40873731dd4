"""The problem: storage orders, sizes, leading dimensions, alpha and beta; where operands lie."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from gen.errors import SpecError, UsageError


@dataclass(frozen=True)
class Layouts:
    """Storage order of A, B and of C and D: True is row-major, False column-major."""

    a: bool
    b: bool
    c: bool

    def __str__(self) -> str:
        return "".join("r" if row_major else "c" for row_major in (self.a, self.b, self.c))


ALL_LAYOUTS = tuple(f"{a}{b}{c}" for a in "rc" for b in "rc" for c in "rc")


def parse_layout(name: str) -> Layouts:
    """Three letters for A, B, C: r (row-major) or c (column-major). Raises UsageError."""
    if name not in ALL_LAYOUTS:
        raise UsageError(
            f"layout '{name}' is not three letters r (row-major) or c (column-major) "
            f"for A, B and C; use one of {', '.join(ALL_LAYOUTS)}"
        )
    return Layouts(*(letter == "r" for letter in name))


@dataclass(frozen=True)
class GemmShape:
    """D is M x N, A is M x K, B is K x N; each at least 0."""

    m: int
    n: int
    k: int

    def __post_init__(self) -> None:
        for name, value in zip("MNK", (self.m, self.n, self.k), strict=True):
            if not 0 <= value < 2**63:
                raise SpecError(f"{name}={value} is not a size; use 0 or more, below 2^63")

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"


def parse_shape(text: str) -> GemmShape:
    """`MxNxK`, or one number for a cube. Raises UsageError."""
    match = re.fullmatch(r"(\d{1,99})(?:x(\d{1,99})x(\d{1,99}))?", text.strip().lower())
    if not match:
        raise UsageError(
            f"shape '{text}' is not MxNxK; use sizes such as 128x64x32, or 512 for a cube"
        )
    m = int(match[1])
    return GemmShape(m, int(match[2] or m), int(match[3] or m))


@dataclass(frozen=True)
class GemmProblem:
    """D = alpha * A * B + beta * C, with BLAS leading dimensions counted in elements."""

    shape: GemmShape
    lda: int
    ldb: int
    ldc: int
    ldd: int
    alpha: float = 1
    beta: float = 0

    @staticmethod
    def packed(
        shape: GemmShape,
        layouts: Layouts,
        alpha: float = 1,
        beta: float = 0,
        padding: int = 0,
        multiple: int = 1,
    ) -> GemmProblem:
        """Rows (or columns) stored one after another, `padding` elements apart.

        With padding, those of B are two more apart than those of A, and those of D than those of C:
        a kernel that takes the one leading dimension for the other must not come out right. All
        leading dimensions are rounded up to a multiple of `multiple` elements.
        """
        m, n, k = shape.m, shape.n, shape.k
        lengths = [k if layouts.a else m, n if layouts.b else k, n if layouts.c else m]
        lda, ldb, ldc = (length + padding for length in lengths)
        more = 2 if padding else 0
        ldb, ldd = ldb + more, ldc + more
        lda, ldb, ldc, ldd = (-(-ld // multiple) * multiple for ld in (lda, ldb, ldc, ldd))
        return GemmProblem(shape, lda, ldb, ldc, ldd, alpha, beta)


class Alignment(NamedTuple):
    """Whether the addresses of A, B and D are multiples of 16 bytes."""

    a: bool = True
    b: bool = True
    d: bool = True


ALIGNED = Alignment()
