"""Arrays as memory: overlaps, orders and leading dimensions, by brute force."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gen.api.views import Extent, View, as_matrix, overlap
from gen.errors import SpecError


@given(
    one=st.tuples(*(st.integers(1, 6),) * 2, st.integers(0, 5)),
    other=st.tuples(*(st.integers(1, 6),) * 2, st.integers(0, 5)),
    at=st.integers(0, 60),
)
def test_overlaps_are_all_found(
    one: tuple[int, int, int], other: tuple[int, int, int], at: int
) -> None:
    def extent(lines: int, length: int, gap: int) -> Extent:
        return Extent(lines, length, length + gap)

    def bytes_of(start: int, e: Extent) -> set[int]:
        return {start + i * e.pitch + j for i in range(e.lines) for j in range(e.length)}

    x, y = extent(*one), extent(*other)
    shared = bytes_of(20, x) & bytes_of(at, y)
    found = overlap(20, x, at, y)
    assert found or not shared
    assert found == overlap(at, y, 20, x)
    if (
        x.pitch == y.pitch
        and not shared
        and abs(at - 20) % x.pitch + max(x.length, y.length) <= x.pitch
    ):
        assert not found


@given(st.tuples(*(st.integers(0, 4),) * 2), st.tuples(*(st.integers(-3, 6),) * 2))
def test_a_matrix_lies_where_its_order_says(
    shape: tuple[int, int], strides: tuple[int, int]
) -> None:
    """In each order, either with a leading dimension, or with none that would be right."""
    (rows, cols), (down, right) = shape, strides
    places = {(i, j): i * down + j * right for i in range(rows) for j in range(cols)}

    def is_right(row_major: bool, ld: int) -> bool:
        line = cols if row_major else rows
        return ld >= max(line, 1) and all(
            at == (i * ld + j if row_major else j * ld + i) for (i, j), at in places.items()
        )

    right_ones = {order: {ld for ld in range(33) if is_right(order, ld)} for order in (True, False)}
    try:
        matrix = as_matrix(View(0, shape, strides, None, 0), "A", True)
    except SpecError:
        assert right_ones == {True: set(), False: set()}
        return
    for row_major, lds in right_ones.items():
        ld = matrix.ld(row_major)
        assert ld in lds if ld else not lds
