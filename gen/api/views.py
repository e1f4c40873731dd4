"""Arrays as memory: where they lie, in which order, and whether two of them share elements."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any, Literal, NamedTuple

from gen.errors import SpecError, UsageError

# A view without its address, as a plain tuple, which is what prepared calls are found by.
Form = tuple[tuple[int, ...], tuple[int, ...], Any, int, bool]


class View(NamedTuple):
    """An array as its framework describes it: an address and a `Form`. Strides are in elements.

    `device` is the GPU's ordinal, or -1 for host memory. `dtype` is the framework's own.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    device: int
    readonly: bool = False


class Matrix(NamedTuple):
    """Rows, columns, and the leading dimension in either order, 0 where it is not in that order."""

    rows: int
    cols: int
    by_row: int
    by_col: int

    def ld(self, row_major: bool) -> int:
        """The leading dimension in an order; 0 where the matrix is not in that order."""
        return self.by_row if row_major else self.by_col


class Extent(NamedTuple):
    """The bytes of a matrix: `lines` of `length` bytes, `pitch` apart."""

    lines: int
    length: int
    pitch: int

    @property
    def reach(self) -> int:
        """The bytes from the first to the last."""
        return (self.lines - 1) * self.pitch + self.length if self.lines and self.length else 0


HOST = -1

_ELEMENTS = {
    "float32": "f32",
    "float64": "f64",
    "int32": "i32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int8": "i8",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
}
# Any leading dimension is right for at most one line; this one suits wide copies of any type.
_ONE_LINE_MULTIPLE = 16


@cache
def element(dtype: Any) -> str | None:
    """The name here of a framework's element type: `torch.float16` -> `f16`; None if unknown."""
    # A type in the other byte order has another text: ">f4".
    return _ELEMENTS.get(str(dtype).rpartition(".")[2])


def framework_dtype(name: str) -> str:
    """What frameworks call an element type: `f16` -> `float16`."""
    return next(theirs for theirs, ours in _ELEMENTS.items() if ours == name)


def element_of(dtype: Any, name: str) -> str:
    """The element type of an operand. Raises UsageError where no kernel has it."""
    found = element(dtype)
    if found is None:
        raise UsageError(
            f"{name} has dtype {dtype}, which no kernel has; use {', '.join(_ELEMENTS)}"
        )
    return found


def as_matrix(view: View, name: str, vector_is_row: bool) -> Matrix:
    """The order and leading dimensions of a matrix, or of a vector as one row or one column.

    Raises SpecError for another number of dimensions, and where elements are adjacent along neither
    rows nor columns, repeated, or in reverse.
    """
    shape, strides = view.shape, view.strides
    if len(shape) == 1:
        (n,), (step,) = shape, strides
        shape, strides = ((1, n), (n * step, step)) if vector_is_row else ((n, 1), (step, n * step))
    if len(shape) != 2:
        raise SpecError(
            f"{name} has {len(view.shape)} dimensions, shape {tuple(view.shape)}; "
            "pass matrices or vectors, or a batch as A or B"
        )
    (rows, cols), (down, right) = shape, strides
    matrix = Matrix(rows, cols, _ld(rows, cols, down, right), _ld(cols, rows, right, down))
    if not matrix.by_row and not matrix.by_col:
        raise SpecError(
            f"{name} has shape {tuple(view.shape)} and strides {tuple(view.strides)}: "
            f"{_what_is_wrong(down, right)}; pass a copy of it, such as x.contiguous() of PyTorch "
            "or numpy.ascontiguousarray(x)"
        )
    return matrix


def _ld(lines: int, length: int, pitch: int, step: int) -> int:
    """The distance between lines of adjacent elements that do not overlap, or 0."""
    empty = 0 in (lines, length)
    if length > 1 and step != 1 and not empty:
        return 0
    if lines <= 1 or empty:
        return -(-max(length, 1) // _ONE_LINE_MULTIPLE) * _ONE_LINE_MULTIPLE
    return pitch if pitch >= max(length, 1) else 0


def _what_is_wrong(down: int, right: int) -> str:
    if 1 not in (down, right):
        return "neither stride is 1"
    return "its lines repeat, overlap or run in reverse"


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of an array without gaps, in elements."""
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def packed(shape: tuple[int, ...], by_row: bool) -> tuple[int, ...]:
    """The strides of an array without gaps, row-major or column-major."""
    return row_major(shape) if by_row else row_major(shape[::-1])[::-1]


def order(strides: Sequence[int]) -> Literal["C", "F"]:
    """What NumPy and CuPy call the order of an array without gaps."""
    return "C" if not strides or strides[-1] <= strides[0] else "F"


def extent(matrix: Matrix, row_major: bool, size: int) -> Extent:
    """The bytes of a matrix of elements of `size` bytes in one of its orders."""
    lines, length = matrix[:2] if row_major else matrix[1::-1]
    return Extent(lines, length * size, matrix.ld(row_major) * size)


def overlap(at: int, one: Extent, other_at: int, other: Extent) -> bool:
    """Whether two matrices may share a byte.

    Side by side in the same larger matrix they do not, though their lines take turns in memory.
    """
    if at > other_at:
        at, one, other_at, other = other_at, other, at, one
    if 0 in (*one[:2], *other[:2]) or other_at >= at + one.reach:
        return False
    if other.lines > 1 and other.pitch != one.pitch:
        return True
    offset = (other_at - at) % one.pitch
    return offset < one.length or offset + other.length > one.pitch
