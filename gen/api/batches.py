"""Arrays of several dimensions: which products they are, and which of these one launch computes.

The dimensions before the last two are those of a batch; they broadcast as those of `numpy.matmul`.
Nothing is copied: a launch takes what lies at one stride for each operand, and further dimensions
are further launches.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from gen.api.views import View, as_matrix, row_major
from gen.errors import SpecError
from gen.kernels.batches import check_batch
from gen.kernels.tensor_cores.plan import MOST_SIZE
from gen.spec.epilogue import COLUMNS, MATRIX
from gen.spec.problem import BATCH, ONE, Batch, GemmProblem, Layouts


class Further(NamedTuple):
    """An array that the epilogue takes. `each`: what it has elements for, as in an expression."""

    view: View
    each: str


class Dimension(NamedTuple):
    """Of a batch: its size, and the elements from one product's operand to the next one's.

    Operands are A, B, C, D, and the further ones. A stride is 0 where all products have the same.
    """

    size: int
    strides: tuple[int, ...]


class Products(NamedTuple):
    """The operands of the first product, and the dimensions that the other products are in.

    further: what the epilogue takes, by name. shape: of the batch, without inner dimensions whose
    rows are those of one product. result_shape: of D, as the caller sees it.
    """

    a: View
    b: View
    c: View | None
    out: View
    further: Mapping[str, Further]
    shape: tuple[int, ...]
    result_shape: tuple[int, ...]
    dimensions: tuple[Dimension, ...]


def is_batch(a: View, b: View) -> bool:
    """Whether there is more than a product of matrices or vectors."""
    return len(a.shape) > 2 or len(b.shape) > 2


def products(
    a: View, b: View, c: View | None, out: View | None, further: Mapping[str, Further],
    by_rows: bool,
) -> Products:  # fmt: skip
    """The products of A (..., M, K) and B (..., K, N); without `out`, of a new array in C's order.

    A vector as A is a row, one as B a column, of all products, and the result lacks that dimension.
    C broadcasts to the result, of which `out` has the shape; what the epilogue takes broadcasts to
    the batch. by_rows: whether the rows of a batch may be those of one product. Raises SpecError.
    """
    for name, view in (("A", a), ("B", b)):
        if not view.shape:
            as_matrix(view, name, True)  # which says what is wrong with it
    left, right = _matrices(a, -2), _matrices(b, -1)
    shape = _broadcast(left.shape[:-2], right.shape[:-2])
    if left.shape[-1] != right.shape[-2]:
        raise SpecError(
            f"A is {tuple(a.shape)} and B is {tuple(b.shape)}: A's columns are not as many as B's "
            "rows; transpose one of them"
        )
    ends = (left.shape[-2],) * (len(a.shape) > 1) + (right.shape[-1],) * (len(b.shape) > 1)
    new = View(0, (*shape, *ends), row_major((*shape, *ends)), a.dtype, a.device)
    if out is not None and tuple(out.shape) != new.shape:
        raise SpecError(f"out has shape {tuple(out.shape)}, not the result's {new.shape}")
    result = _with_ends(out or new, "out", a, b)
    check_apart(result)
    added = c and _with_ends(c, "C", a, b)
    operands = [("A", left, 2), ("B", right, 2), ("C", added, 2), ("out", result, 2)]
    for name, (view, each) in further.items():
        whole = _with_ends(view, name, a, b) if each == MATRIX else view
        operands.append((name, whole, 2 if each == MATRIX else 1))
    if c and added and tuple(added.shape[-2:]) != tuple(result.shape[-2:]):
        raise _does_not_broadcast("C", c, new.shape)
    strides = []
    for name, one, axes in operands:
        if one is not None and not _broadcasts(one.shape[:-axes], shape):
            given = c if name == "C" and c else further[name].view
            raise _does_not_broadcast(name, given, new.shape)
        strides.append(_strides(one, axes, shape))
        if min(strides[-1], default=0) < 0:
            raise SpecError(
                f"{name} has a batch in reverse, strides {strides[-1]}; pass a copy of it"
            )
    dimensions = [
        Dimension(size, tuple(own[axis] for own in strides)) for axis, size in enumerate(shape)
    ]
    firsts = (first(one, axes) for _, one, axes in operands[4:] if one)
    found = Products(
        first(left, 2), first(right, 2), added and first(added, 2), first(result, 2),
        {
            name: each._replace(view=first)
            for (name, each), first in zip(further.items(), firsts, strict=True)
        },
        shape, new.shape, _collapsed(dimensions),
    )  # fmt: skip
    return _folded(found) if by_rows else found


def check_apart(out: View) -> None:
    """Raises SpecError where elements may be in one place: a dimension has to go beyond all of
    those with smaller strides.
    """
    reach = 1
    sides = zip(out.strides, out.shape, strict=True)
    for stride, size in sorted((abs(stride), size) for stride, size in sides if size != 1):
        if stride < reach and 0 not in out.shape:
            raise SpecError(
                f"out has shape {tuple(out.shape)} and strides {tuple(out.strides)}: elements "
                "overlap; pass an array whose elements each have a place of their own"
            )
        reach += stride * (size - 1)


def _does_not_broadcast(name: str, view: View, shape: tuple[int, ...]) -> SpecError:
    return SpecError(
        f"{name} has shape {tuple(view.shape)}, which does not broadcast to the result's {shape}"
    )


def first(view: View, axes: int) -> View:
    """The first of a batch. The strides of an empty one, which may be anything, are new."""
    shape = tuple(view.shape[-axes:])
    strides = row_major(shape) if 0 in view.shape else tuple(view.strides[-axes:])
    return view._replace(shape=shape, strides=strides)


def _broadcasts(lead: Sequence[int], to: Sequence[int]) -> bool:
    """Whether a batch's dimensions broadcast to others."""
    if len(lead) > len(to):
        return False
    return all(n in (1, m) for n, m in zip(lead[::-1], to[::-1], strict=False))


def _matrices(view: View, missing: int) -> View:
    """A vector as a matrix of one row (-2) or of one column (-1)."""
    if len(view.shape) > 1:
        return view
    (n,), (step,) = view.shape, view.strides
    shape, strides = ((1, n), (n * step, step)) if missing == -2 else ((n, 1), (step, n * step))
    return view._replace(shape=shape, strides=strides)


def _with_ends(result: View, name: str, a: View, b: View) -> View:
    """What is like D with the dimension that the result lacks, because A or B is a vector."""
    shape, strides = [*result.shape], [*result.strides]
    if len(a.shape) == 1 and shape:
        shape.insert(len(shape) - 1, 1)
        strides.insert(len(strides) - 1, shape[-1] * strides[-1])
    if len(b.shape) == 1 and shape:
        shape.append(1)
        strides.append(shape[-2] * strides[-1])
    if len(shape) < 2:
        raise SpecError(f"{name} has shape {tuple(result.shape)}; pass matrices")
    return result._replace(shape=tuple(shape), strides=tuple(strides))


def _broadcast(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    """The shape that two batches have together, as NumPy broadcasts. Raises SpecError."""
    pairs = itertools.zip_longest(reversed(one), reversed(other), fillvalue=1)
    sizes = [(m, n) for m, n in pairs][::-1]
    if any(m != n and 1 not in (m, n) for m, n in sizes):
        raise SpecError(
            f"the batches {tuple(one)} of A and {tuple(other)} of B do not broadcast; use the same "
            "sizes, or 1"
        )
    return tuple(n if m == 1 else m for m, n in sizes)


def _strides(view: View | None, axes: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Those of a batch that was broadcast to this shape; `axes` are those of each product."""
    if view is None:
        return (0,) * len(shape)
    own = zip(view.shape[:-axes], view.strides[:-axes], strict=True)
    strides = [0 if size == 1 else stride for size, stride in own]
    return (*[0] * (len(shape) - len(strides)), *strides)


def _collapsed(dimensions: Sequence[Dimension]) -> tuple[Dimension, ...]:
    """As few dimensions as have one stride for each operand, without those of size 1."""
    found: list[Dimension] = []
    for inner in dimensions:
        if inner.size == 1:
            continue
        if found:
            outer = found[-1]
            if all(o == inner.size * i for o, i in zip(outer.strides, inner.strides, strict=True)):
                found[-1] = Dimension(outer.size * inner.size, inner.strides)
                continue
        found.append(inner)
    return tuple(found)


def _folded(found: Products) -> Products:
    """The same with the rows of inner dimensions as those of one product, where B is one matrix."""
    while (one := _with_rows(found)) is not None:
        found = one
    return found


def _with_rows(found: Products) -> Products | None:
    """The innermost dimension as rows, where they are at one distance in A, C and D."""
    if not found.dimensions:
        return None
    *outer, (size, (of_a, of_b, of_c, of_d, *others)) = found.dimensions
    m = found.a.shape[0]
    if of_b or size * m >= MOST_SIZE:
        return None

    def rows(view: View, stride: int, each: str = MATRIX) -> View | None:
        if each == COLUMNS:
            return None if stride else view
        length, down = view.shape[-1] if each == MATRIX else 1, view.strides[0]
        apart = stride if m == 1 else down
        if stride != m * apart:
            return None
        if each != MATRIX:
            return view._replace(shape=(size * m,), strides=(1,)) if apart == 1 else None
        right = view.strides[1]
        by_row = apart >= length and (right == 1 or length == 1)
        if not by_row and not (apart == 1 and right >= size * m):
            return None
        return view._replace(shape=(size * m, length), strides=(apart, right))

    a, out = rows(found.a, of_a), rows(found.out, of_d)
    c = rows(found.c, of_c) if found.c else None
    further = {}
    for (name, one), stride in zip(found.further.items(), others, strict=True):
        if (view := rows(one.view, stride, one.each)) is None:
            return None
        further[name] = one._replace(view=view)
    if a is None or out is None or (found.c and c is None):
        return None
    shape = tuple(dimension.size for dimension in outer)
    return found._replace(a=a, c=c, out=out, further=further, shape=shape, dimensions=tuple(outer))


class Launches(NamedTuple):
    """A batch for each launch; of each one, where all operands begin, in elements."""

    batch: Batch
    offsets: tuple[tuple[int, ...], ...]


def launches(
    dimensions: Sequence[Dimension], problem: GemmProblem, layouts: Layouts, batched: bool
) -> Launches:
    """The largest dimension that a launch takes is its batch; one launch for each of the others.

    A launch has one bias, and one of what else its epilogue takes. batched: whether the kernel
    takes batches.
    """
    taken, batch = -1, ONE
    by_size = sorted(range(len(dimensions)), key=lambda at: -dimensions[at].size)
    for at in by_size if batched else ():
        one = Batch(dimensions[at].size, *dimensions[at].strides[:4])
        alone = not any(dimensions[at].strides[4:])
        if alone and _fits(replace(problem, batch=one), layouts):
            taken, batch = at, one
            break
    others = [one for at, one in enumerate(dimensions) if at != taken]
    count = len(dimensions[0].strides) if dimensions else 4
    places = itertools.product(*(range(one.size) for one in others))
    return Launches(
        batch,
        tuple(
            tuple(
                sum(i * one.strides[x] for i, one in zip(place, others, strict=True))
                for x in range(count)
            )
            for place in places
        ),
    )


def _fits(problem: GemmProblem, layouts: Layouts) -> bool:
    try:
        check_batch(problem, layouts, BATCH)
    except SpecError:
        return False
    return True
