"""What a user's own epilogue gives: all values that D may have, and whether it has them.

In floating point an interval for each element (see `gen.prove.intervals`), from one for
x = alpha * A * B + beta * C; in integers one value, modulo 2^32.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from gen.prove import intervals
from gen.prove.intervals import Interval, Maybe, enclose
from gen.spec import numerics
from gen.spec.epilogue import GROUP_COLUMNS, Operand
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmProblem, group_rows
from gen.spec.typed import CONDITION, DEFINITIONS, INDEX, Typed, defined

Value = Any  # an Interval or an array of integers; a Maybe of conditions

_COMPARISONS = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip


def _quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """As C++ has it: towards zero. b is positive."""
    return np.asarray(np.sign(a) * (np.abs(a) // b))


_INTEGERS: Mapping[str, Callable[..., np.ndarray]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": _quotient,
    "%": lambda a, b: a - _quotient(a, b) * b,
    "abs": np.abs, "min": np.minimum, "max": np.maximum,
}  # fmt: skip


class Reading:
    """An expression as numpy works it out. names: what its names stand for.

    own: the numpy type of its scalars.
    """

    def __init__(self, names: Mapping[str, Value], own: np.dtype[Any]) -> None:
        self._names, self._own = names, own.type
        self._is_float = own.kind == "f"

    def value(self, part: Typed) -> Value:
        """Of a part of it."""
        if part.operator == "variable":
            return self._names[part.text]
        if part.operator == "literal":
            return self._literal(part)
        if part.operator in DEFINITIONS:
            names = DEFINITIONS[part.operator].parameters
            inner = dict(zip(names, map(self.value, part.parts), strict=True))
            reading = Reading(inner, np.dtype(self._own))
            return reading.value(defined(part.operator, self._is_float))
        return self._operation(part, [self.value(each) for each in part.parts])

    def _literal(self, part: Typed) -> Value:
        if part.type == INDEX:
            return np.int64(part.text)
        if not self._is_float:
            return self._own(part.text)
        wide = np.longdouble if self._own is np.float64 else np.float64
        number = wide(part.text)
        if self._own is np.float64:  # as the compiler rounds it
            number = np.float64(part.text)
        return enclose(number, number, self._own)

    def _operation(self, part: Typed, values: list[Value]) -> Value:
        of = part.parts[0].type
        exact = of == INDEX or not self._is_float
        if part.operator == "scalar":
            at = np.asarray(values[0])
            return enclose(at, at, self._own) if self._is_float else at.astype(self._own)
        if part.operator == "?:":
            return self._choice(*values)
        if of == CONDITION:
            a, *b = values
            return ~a if not b else a & b[0] if part.operator == "&&" else a | b[0]
        if part.operator in _COMPARISONS:
            if exact:
                return Maybe.surely(np.asarray(_COMPARISONS[part.operator](*values)))
            return intervals.compared(part.operator, *values)
        if part.operator == "-" and len(values) == 1:
            return -values[0] if exact else intervals.negated(values[0])
        if exact:
            return _INTEGERS[part.operator](*values)
        if part.operator == "-":
            return intervals.subtracted(*values)
        return intervals.FUNCTIONS[part.operator](*values)

    def _choice(self, condition: Maybe, yes: Value, no: Value) -> Value:
        if self._is_float:
            return intervals.chosen(condition, yes, no)
        return np.where(condition.yes, yes, no)


class Within(NamedTuple):
    """Of a part of D: the place of its first element, and the sizes of all of D."""

    row: int
    column: int
    m: int
    n: int


def results(
    spec: KernelSpec,
    problem: GemmProblem,
    own: Mapping[str, np.ndarray],
    x: Value,
    within: Within | None = None,
) -> Value:
    """What D (M x N) may be before it is rounded to its type.

    own: arrays of the epilogue's operands, of storage. x: of alpha * A * B + beta * C, an Interval
    or, in integers, an array. within: where this D is a part of one.
    """
    assert spec.fused
    scalar = spec.dtypes.scalar
    m, n = problem.shape.m, problem.shape.n
    row, column, *sizes = within or Within(0, 0, m, n)
    names: dict[str, Value] = {
        "x": x, "M": np.int64(sizes[0]), "N": np.int64(sizes[1]),
        "row": row + np.arange(m, dtype=np.int64)[:, None],
        "col": column + np.arange(n, dtype=np.int64)[None], "group": _groups(problem),
    }  # fmt: skip
    for operand in spec.operands:
        exact = _values(spec, problem, operand, own)
        names[operand.name] = enclose(exact, exact, x.low.dtype.type) if scalar.is_float else exact
    with np.errstate(all="ignore"):
        reading = Reading(names, numerics.storage_dtype(scalar.name))
        found = reading.value(spec.fused.typed(scalar.is_float))
    if not scalar.is_float:
        return np.broadcast_to(found, (m, n)).astype(np.int32)
    return Interval(*(np.broadcast_to(each, (m, n)) for each in found))


def _values(
    spec: KernelSpec, problem: GemmProblem, operand: Operand, own: Mapping[str, np.ndarray]
) -> np.ndarray:
    """The exact values, in the shape in which they go with D's."""
    scalar = numerics.storage_dtype(spec.dtypes.scalar.name).type
    if not operand.index:
        return np.asarray(scalar(problem.value(operand.name, 1)))
    element = operand.element(spec.dtypes)
    array = own[operand.name]
    found = numerics.to_float64(array, element.name) if element.is_float else array.astype(scalar)
    if "group" in operand.index:
        of_rows: np.ndarray = found[_groups(problem)[:, 0]]
        return of_rows if operand.index == GROUP_COLUMNS else of_rows[:, None]
    return found[:, None] if operand.index == "row" else found


def _groups(problem: GemmProblem) -> np.ndarray:
    """The group of each row (M x 1), 0 behind the last one."""
    found = np.full((problem.shape.m, 1), problem.group, np.int64)
    for i, (begin, end) in enumerate(group_rows(problem.ends or (), problem.shape.m)):
        found[begin:end] = i
    return found


def fitting(
    spec: KernelSpec,
    problem: GemmProblem,
    own: Mapping[str, np.ndarray],
    x: np.ndarray,
    got: np.ndarray,
    within: Within,
) -> tuple[np.ndarray, np.ndarray]:
    """Where D (M x N, of storage) is right, and one that is right everywhere; x is exact."""
    output = spec.dtypes.output
    if not output.is_float:
        exact = results(spec, problem, own, x, within)
        return np.asarray(got == exact), exact
    scalar = numerics.storage_dtype(spec.dtypes.scalar.name).type
    found = results(spec, problem, own, enclose(x, x, scalar), within)
    wrong, _, (low, _) = outside(found, numerics.to_float64(got, output.name), output.name)
    return ~wrong, numerics.from_float64(low, output.name)


def outside(found: Interval, got: np.ndarray, output: str) -> tuple[np.ndarray, np.ndarray, Any]:
    """Where D (of float64, rounded to its type) has what it cannot have; errors as fractions.

    Those are of half an interval, from its middle. The ends, rounded to D's type, come last.
    """
    low, high = (
        numerics.to_float64(numerics.from_float64(end.astype(np.float64), output), output)
        for end in (found.low, found.high)
    )
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        inside = (low <= got) & (got <= high) & ~found.empty
        good = np.where(np.isnan(got), found.nan, inside)
        half = (high - low) / 2
        error = np.abs(got - (low + half)) / half
        # The middle itself is rounded: what is inside is at most half an interval from it.
        error = np.where(np.isfinite(error), np.minimum(error, 1.0), 0.0)
        fraction = np.where(good, error, np.inf)
    return ~good, fraction, (low, high)
