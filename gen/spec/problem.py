"""The problem: storage orders, sizes, leading dimensions, alpha and beta; where operands lie."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
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


def along_k(layouts: Layouts) -> tuple[bool, bool]:
    """Whether the left and the right operand of a row-major product are contiguous along K.

    Where D is column-major, that product is the transpose of D.
    """
    return (layouts.a, not layouts.b) if layouts.c else (not layouts.b, layouts.a)


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


class Batch(NamedTuple):
    """How many products there are, and the elements from a matrix of one to that of the next.

    Where a stride of A, B or C is 0, all products have the same matrix. Those of D do not overlap.
    Groups share matrices out, of which there is one: see `Several`.
    """

    products: int = 1
    stride_a: int = 0
    stride_b: int = 0
    stride_c: int = 0
    stride_d: int = 0

    def matrices(self, name: str) -> int:
        """How many there are of "A", "B", "C" or "D"."""
        return self.products if self.stride(name) else min(self.products, 1)

    def stride(self, name: str) -> int:
        """From one to the next, of "A", "B", "C" or "D"."""
        return int(getattr(self, f"stride_{name.lower()}"))


ONE = Batch()


class Several(NamedTuple):
    """The products of a launch: what launchers call their `number`, and which matrices are several.

    strided: the letters of the matrices of which each product has one, at a stride; of the others
    there is one for all. Groups share one matrix out: of rows, A, C and D, where each group has a B
    of its own; along K, A and B, where each has a D.
    """

    number: str = ""
    strided: str = ""

    def __bool__(self) -> bool:
        return bool(self.number)


SINGLE, BATCH = Several(), Several("batch", "abcd")
GROUPS, GROUPS_K = Several("groups", "b"), Several("groups", "cd")


@dataclass(frozen=True)
class GemmProblem:
    """D = alpha * A * B + beta * C, with BLAS leading dimensions counted in elements.

    A batch is as many products of the same shape and leading dimensions. ends: where groups of rows
    end, which the device reads, and a plan does not know: see `group_rows`. ends_k: the same of
    groups along K. group: which of several this product is. operands: by name, leading dimensions
    and numbers that an epilogue of the user's own takes.
    """

    shape: GemmShape
    lda: int
    ldb: int
    ldc: int
    ldd: int
    alpha: float = 1
    beta: float = 0
    batch: Batch = field(default=ONE, repr=False)
    operands: tuple[tuple[str, float], ...] = field(default=(), repr=False)
    ends: tuple[int, ...] | None = field(default=None, repr=False)
    ends_k: tuple[int, ...] | None = field(default=None, repr=False)
    group: int = field(default=0, repr=False)

    def value(self, name: str, usual: float) -> float:
        """A leading dimension or a number of an epilogue's own; `usual` where none is said."""
        return dict(self.operands).get(name, usual)

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

    def lines(self, name: str, layouts: Layouts) -> tuple[int, int, int]:
        """How many lines "A", "B", "C" or "D" has, of how many elements, how far apart.

        Lines are rows, or columns of a column-major matrix.
        """
        s = self.shape
        rows, columns, row_major, ld = {
            "A": (s.m, s.k, layouts.a, self.lda),
            "B": (s.k, s.n, layouts.b, self.ldb),
            "C": (s.m, s.n, layouts.c, self.ldc),
            "D": (s.m, s.n, layouts.c, self.ldd),
        }[name]
        return (rows, columns, ld) if row_major else (columns, rows, ld)

    def extent(self, name: str, layouts: Layouts) -> int:
        """The elements from the first to the last of one matrix "A", "B", "C" or "D"."""
        count, length, ld = self.lines(name, layouts)
        return (count - 1) * ld + length if count and length else 0

    def batched(
        self, layouts: Layouts, count: int, gap: int = 0, shared: str = "", multiple: int = 1
    ) -> GemmProblem:
        """So many of these products, whose matrices follow each other `gap` elements apart.

        With a gap, those of B are two more apart than those of A, those of C four more, and those
        of D six more. `shared`: matrices that are one for all, of "A", "B" and "C". Strides are
        rounded up to a multiple of `multiple`, and at least 1.
        """

        def stride(name: str, more: int) -> int:
            apart = self.extent(name, layouts) + gap + (more if gap else 0)
            return 0 if name in shared else max(-(-apart // multiple) * multiple, 1)

        strides = (stride(name, 2 * i) for i, name in enumerate("ABCD"))
        return replace(self, batch=Batch(count, *strides))

    def side_by_side(self, count: int, shared: str = "") -> GemmProblem:
        """So many of these products, whose matrices lie beside each other in the same lines."""
        lines = (self.lda, self.ldb, self.ldc, self.ldd)
        strides = (0 if name in shared else ld for name, ld in zip("ABCD", lines, strict=True))
        lda, ldb, ldc, ldd = (max(count, 1) * ld for ld in lines)
        batch = Batch(count, *strides)
        return replace(self, lda=lda, ldb=ldb, ldc=ldc, ldd=ldd, batch=batch)


def group_rows(ends: Iterable[int], rows: int) -> list[tuple[int, int]]:
    """Of each group the first row, and the one behind its last; or the same along K.

    A group begins where the one before ends, the first one at 0. An end that is less than one
    before counts as that one, and one beyond all rows as their number: no two groups overlap.
    """
    found: list[tuple[int, int]] = []
    begin = 0
    for end in ends:
        found.append((begin, max(begin, min(end, rows))))
        begin = found[-1][1]
    return found


class Alignment(NamedTuple):
    """Whether the addresses of A, B and D are multiples of 16 bytes."""

    a: bool = True
    b: bool = True
    d: bool = True


ALIGNED = Alignment()
