"""Shapes and ranges as users write them -> the problems that kernels are chosen for or tuned on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product as combinations

from gen.dispatch.ranking import Product
from gen.errors import UsageError
from gen.spec.dtypes import DTypes
from gen.spec.problem import ALIGNED, Alignment, GemmShape, Layouts, parse_shape

MOST = 4096  # problems that are tried
UNALIGNED = Alignment(a=False, b=False)
_SIZES = re.compile(r"([0-9]{1,19})(?:-([0-9]{1,19}))?")
_LINE = re.compile(r"0*[1-9][0-9]{0,17}")


@dataclass(frozen=True)
class Operands:
    """Where A and B lie, in every problem.

    lda, ldb: the leading dimensions that are tried, in elements; where there are none, lines lie
    one after another. unaligned: whether both may begin elsewhere than at multiples of 16 bytes.
    """

    lda: tuple[int, ...] = ()
    ldb: tuple[int, ...] = ()
    unaligned: bool = False

    def placed(self, packed: Product) -> list[Product]:
        """A problem with its operands there. Raises UsageError for a line that is too short."""
        alignments = [ALIGNED, UNALIGNED] if self.unaligned else [ALIGNED]
        return [
            replace(with_lines(packed, lda, ldb), alignment=alignment)
            for lda in self.lda or [None]
            for ldb in self.ldb or [None]
            for alignment in alignments
        ]


def with_lines(packed: Product, lda: int | None = None, ldb: int | None = None) -> Product:
    """A problem with these leading dimensions, in elements; None: as they are.

    Raises UsageError for one that is shorter than a line.
    """
    for name, given, least in (("lda", lda, packed.lda), ("ldb", ldb, packed.ldb)):
        if given is not None and given < least:
            raise UsageError(
                f"{name}={given} is less than a line of {packed.shape} {packed.layouts}; use "
                f"{least} or more"
            )
    return replace(packed, lda=lda or packed.lda, ldb=ldb or packed.ldb)


def operands(lda: str | None, ldb: str | None, unaligned: bool) -> Operands:
    """What a user says of them: leading dimensions, several with commas. Raises UsageError."""
    return Operands(_lines("lda", lda), _lines("ldb", ldb), unaligned)


def _lines(name: str, text: str | None) -> tuple[int, ...]:
    words = text.split(",") if text else []
    if not all(map(_LINE.fullmatch, words)):
        raise UsageError(
            f"{name} '{text}' is no leading dimension; use elements, several with commas: 4096,8192"
        )
    return tuple(dict.fromkeys(map(int, words)))


def products_of(
    texts: Sequence[str],
    dtypes: DTypes,
    layouts: Layouts,
    batch: str | None = None,
    lie: Operands = Operands(),
) -> list[Product]:
    """The problems of several shapes. Raises UsageError for what is no shape, or for too many.

    batch: how many products of each shape, a number or a range. lie: where their operands lie.
    """
    found: list[Product] = []
    counts = counts_of(batch) if batch else [1]
    for text in texts:
        if text.count("x") not in (0, 2):
            raise UsageError(f"shape '{text}' is not MxNxK; use sizes or ranges: 16-256x4096x4096")
        for shape in shapes_of(text):
            if 0 in (shape.m, shape.n):
                raise UsageError(f"shape {shape} has nothing to compute; use M and N of 1 or more")
            placed = lie.placed(Product.packed(shape, dtypes, layouts))
            found += [replace(one, batch=count) for one in placed for count in counts]
            if len(found) > MOST:
                raise UsageError(f"{text} is more than {MOST} shapes; use shorter ranges")
    return list(dict.fromkeys(found))


def shapes_of(text: str) -> Iterator[GemmShape]:
    """`MxNxK`, each a size or a range: of `16-4096`, its ends and the powers of two between.

    One range alone is of cubes. Raises UsageError.
    """
    sides = text.lower().split("x")
    if "-" not in text:
        yield parse_shape(text)
    elif len(sides) == 1:
        yield from (GemmShape(side, side, side) for side in _sizes(text))
    else:
        yield from (GemmShape(*sizes) for sizes in combinations(*map(_sizes, sides)))


def _sizes(text: str) -> list[int]:
    match = _SIZES.fullmatch(text)
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if high < low:
        raise UsageError(f"'{text}' is neither a size nor a range; use 512, or 16-4096")
    return sorted({low, high} | {2**i for i in range(high.bit_length()) if low < 2**i < high})


def counts_of(batch: str) -> list[int]:
    """How many products a user says, a number or a range. Raises UsageError."""
    found = _sizes(batch)
    if found[0] < 1:
        raise UsageError(f"a batch of {batch} has no products; use 1 or more")
    return found
