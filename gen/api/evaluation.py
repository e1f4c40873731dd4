"""An epilogue's expression with the functions of a framework, whose derivatives it then has."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from gen.api.operands import check_sums
from gen.errors import SpecError
from gen.source import render
from gen.spec.dtypes import DTypes
from gen.spec.epilogue import COLUMNS, GROUP_COLUMNS, GROUPS, ROWS, Epilogue
from gen.spec.typed import CONDITION, INDEX, Typed

_OPERATORS: Mapping[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge, "&&": operator.and_, "||": operator.or_,
}  # fmt: skip


class Elementwise(Protocol):
    """What is asked of a framework: functions of arrays of one floating type, that broadcast."""

    functions: Mapping[str, Callable[..., Any]]  # all of `gen.spec.typed.FUNCTIONS`

    def number(self, value: float) -> Any:
        """An array of one number, without dimensions, of the floating type."""
        ...

    def index(self, value: int) -> Any:
        """The same as an integer of 64 bits, or as many as the framework has."""
        ...

    def indices(self, count: int) -> Any:
        """The integers from 0 to before `count`."""
        ...

    def converted(self, x: Any) -> Any:
        """Integers as numbers of the floating type."""
        ...

    def where(self, condition: Any, yes: Any, no: Any) -> Any:
        """`yes` where the condition is true, else `no`."""
        ...

    def quotient(self, x: Any, y: Any) -> Any:
        """Of integers, towards zero."""
        ...


def check_operands(
    epilogue: Epilogue,
    operands: Mapping[str, Any],
    dtypes: DTypes,
    shape: tuple[int, ...],
    groups: int = 0,
) -> None:
    """Raises SpecError for arrays that a kernel with a result (..., M, N) would not take."""
    render.check_operands(epilogue.operands)
    check_sums(epilogue, dtypes)
    m, n = shape[-2:]
    for each in epilogue.operands:
        if each.index:
            check_shape(each.name, operands[each.name], each.shape(m, n, groups), shape)


def check_shape(name: str, array: Any, ends: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """Raises SpecError where an array (..., *ends) does not broadcast to a result's batch."""
    given = tuple(array.shape)
    lead = given[: max(len(given) - len(ends), 0)]
    pairs = zip(lead[::-1], shape[-3::-1], strict=False)
    fits = len(lead) <= len(shape) - 2 and all(n in (1, m) for n, m in pairs)
    if given[len(lead) :] != ends or not fits:
        raise SpecError(
            f"{name} has shape {given}, which does not broadcast to {(*shape[:-2], *ends)}"
        )


@dataclass(frozen=True)
class Groups:
    """How many there are, and what makes of an array for these one for the rows of a result.

    Of (groups, ...) it is (M, ...), with those of each row's group; or, where a result has a matrix
    for each group, (groups, 1, ...).
    """

    count: int
    of_rows: Callable[[Any], Any]


def evaluate(
    epilogue: Epilogue,
    framework: Elementwise,
    x: Any,
    operands: Mapping[str, Any],
    groups: Groups | None = None,
) -> Any:
    """The expression's values, for x (..., M, N). All arrays are of one floating type.

    operands: by name, arrays of (..., M, N) where they are indexed by [row, col], of (..., M) by
    [row] and of (..., N) by [col], of (groups, N) by [group, col] and of (groups) by [group]; and
    numbers.
    """
    m, n = x.shape[-2:]
    names = {
        "x": x, "M": framework.index(m), "N": framework.index(n),
        "row": framework.indices(m)[:, None], "col": framework.indices(n)[None],
    }  # fmt: skip
    if groups:
        names["group"] = groups.of_rows(framework.indices(groups.count))[..., None]
    for each in epilogue.operands:
        given = operands[each.name]
        if groups and each.index == GROUP_COLUMNS:
            given = groups.of_rows(given)
        elif groups and each.index == GROUPS:
            given = groups.of_rows(given)[..., None]
        elif each.index == ROWS:
            given = given[..., :, None]
        elif each.index == COLUMNS:
            given = given[..., None, :]
        names[each.name] = given if each.index else framework.number(given)

    def value(part: Typed) -> Any:
        if part.operator == "variable":
            return names[part.text]
        if part.operator == "literal":
            is_index = part.type == INDEX
            return (
                framework.index(int(part.text)) if is_index else framework.number(float(part.text))
            )
        parts = [value(each) for each in part.parts]
        if part.operator == "scalar":
            return framework.converted(*parts)
        if part.operator == "?:":
            return framework.where(*parts)
        if part.operator in framework.functions:
            return framework.functions[part.operator](*parts)
        if len(parts) == 1:
            return ~parts[0] if part.type == CONDITION else -parts[0]
        if part.type == INDEX and part.operator in "/%":
            whole = framework.quotient(*parts)
            return whole if part.operator == "/" else parts[0] - whole * parts[1]
        return _OPERATORS[part.operator](*parts)

    return value(epilogue.typed(is_float=True))
