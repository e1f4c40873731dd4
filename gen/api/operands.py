"""The operands of an epilogue of the user's own, as a call gives them: arrays, and numbers."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

from gen.api.views import Extent, Form, Matrix, View, as_matrix, element_of, extent, row_major
from gen.errors import SpecError, UsageError
from gen.spec.dtypes import DTypes
from gen.spec.epilogue import (
    BY_VALUE,
    COLUMNS,
    GROUP_COLUMNS,
    GROUPS,
    MATRIX,
    ROWS,
    Epilogue,
    Operand,
    no_epilogue,
    with_types,
)
from gen.spec.kernel import EPILOGUES
from gen.spec.problem import GemmShape


class Own(NamedTuple):
    """Arrays and numbers by name; how many groups the product has, None where it is one of none."""

    views: Mapping[str, View]
    numbers: Mapping[str, Any]
    groups: int | None = None

    def epilogue(self, text: str, what: str = "epilogue") -> Epilogue | None:
        """The expression of a text whose operands these are; None for the name of an epilogue.

        Raises UsageError for operands that it has not, and for those that it has besides.
        """
        given = [*self.views, *self.numbers]
        if text in EPILOGUES:
            if given:
                raise UsageError(
                    f"operands {', '.join(given)} are given, but {what}={text} takes none; use "
                    f"them in an expression such as 'x * {given[0]}[row]'"
                )
            return None
        types = {name: element_of(view.dtype, name) for name, view in self.views.items()}
        found = with_types(text, {**types, **dict.fromkeys(self.numbers, BY_VALUE)})
        for operand in found.operands:
            if operand.name not in given:
                kind = "an array" if operand.index else "a number"
                raise UsageError(
                    f"{what} '{found.text}' needs {operand.name}; pass {kind} with "
                    f"operands={{'{operand.name}': ...}}"
                )
            if operand.index and operand.name in self.numbers:
                kind = type(self.numbers[operand.name]).__name__
                raise UsageError(
                    f"operand '{operand.name}' is a {kind}, and {what} has {operand.name}"
                    f"[{operand.index}]; pass an array, or leave out the index"
                )
        return found


NOTHING = Own({}, {})


def is_number(value: Any) -> bool:
    """Whether an operand is passed by value."""
    return not hasattr(value, "__dlpack__") and not hasattr(value, "__cuda_array_interface__")


def forms(own: Own) -> tuple[tuple[str, Form | Any], ...]:
    """What a prepared call depends on: arrays without their addresses, and numbers."""
    views = ((name, tuple(view[1:])) for name, view in own.views.items())
    return (*views, *((name, _bits(value)) for name, value in own.numbers.items()))


def _bits(number: Any) -> Any:
    """What a number is found by: 0.0 and -0.0 are equal, and NaN is not equal to itself.

    What is no number stays as it is, and is refused.
    """
    try:
        return struct.pack("d", number)
    except (struct.error, OverflowError):
        return number


class Placed(NamedTuple):
    """What a problem takes of the operands, and a check of overlaps of the arrays among them."""

    values: tuple[tuple[str, float], ...]
    extents: tuple[Extent, ...]


def check_sums(epilogue: Epilogue, dtypes: DTypes) -> None:
    """Raises SpecError for an expression, or operands, that sums of these types do not have."""
    if reason := epilogue.conflict(dtypes):
        raise SpecError(f"{reason}; use another expression")
    if reason := epilogue.not_held(dtypes):
        raise SpecError(reason)


def check_type(operand: Operand, view: View, dtypes: DTypes) -> None:
    """Raises SpecError for an array of another type than the kernel's."""
    have, want = element_of(view.dtype, operand.name), operand.element(dtypes).name
    if have != want:
        raise SpecError(f"{operand.name} is {have}, but the kernel takes {want}; convert it")


def placed_matrix(
    operand: Operand, view: View, result_shape: tuple[int, ...], by_row: bool
) -> Matrix:
    """A matrix like the result. Raises SpecError for another shape or order."""
    if tuple(view.shape) != result_shape:
        shape = tuple(view.shape)
        raise SpecError(f"{operand.name} has shape {shape}, not the result's {result_shape}")
    matrix = as_matrix(view, operand.name, True)
    if not matrix.ld(by_row):
        order = "row" if by_row else "column"
        raise SpecError(f"{operand.name} is not {order}-major as the result is; pass a copy")
    return matrix


_ONE_FOR_EACH = {
    ROWS: "row of D",
    COLUMNS: "column of D",
    GROUPS: "group",
    GROUP_COLUMNS: "column of each group",
}


def placed_vector(operand: Operand, view: View, shape: GemmShape, groups: int | None) -> int:
    """The elements of a vector, or of one for each group. Raises SpecError for another shape."""
    wanted = operand.shape(shape.m, shape.n, groups or 0)
    count = prod(wanted)
    adjacent = row_major(wanted)
    others = (x for x in zip(wanted, view.strides, adjacent, strict=False) if x[0] > 1)
    if tuple(view.shape) != wanted or (count and any(given != one for _, given, one in others)):
        size = " x ".join(map(str, wanted))
        raise SpecError(
            f"{operand.name} has shape {tuple(view.shape)} and strides {tuple(view.strides)}; "
            f"use {size} adjacent elements, one for each {_ONE_FOR_EACH[operand.index]}"
        )
    return count


def place(
    epilogue: Epilogue,
    own: Own,
    dtypes: DTypes,
    shape: GemmShape,
    result_shape: tuple[int, ...],
    by_row: bool,
) -> Placed:
    """The operands beside a result of this shape. by_row: whether that is row-major.

    Raises SpecError for arrays that do not fit.
    """
    values: list[tuple[str, float]] = []
    extents: dict[str, Extent] = {}
    for operand in epilogue.operands:
        if not operand.index:
            continue
        view, size = own.views[operand.name], operand.element(dtypes).size
        check_type(operand, view, dtypes)
        if operand.index == MATRIX:
            matrix = placed_matrix(operand, view, result_shape, by_row)
            values.append((operand.ld, matrix.ld(by_row)))
            extents[operand.name] = extent(matrix, by_row, size)
        else:
            bytes_ = placed_vector(operand, view, shape, own.groups) * size
            extents[operand.name] = Extent(1, bytes_, bytes_)
    return Placed(tuple(values), tuple(extents[name] for name in own.views))


def checked(text: Any, operands: Any = None) -> None:
    """Raises UsageError for what is no text, a word that names no epilogue, nameless operands."""
    if not isinstance(text, str):
        raise UsageError(f"epilogue={text!r} is no text; use a name, or an expression of x")
    if operands is not None and not isinstance(operands, Mapping):
        kind = type(operands).__name__
        raise UsageError(f"operands is a {kind}; pass a dict of arrays and numbers by name")
    if text not in EPILOGUES and text.isidentifier() and text != "x":
        raise no_epilogue(text, EPILOGUES)
