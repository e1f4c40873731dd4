"""From arrays to a GEMM problem: element types, orders, leading dimensions, and what does not fit.

Nothing here knows of frameworks or devices: everything follows from `View`s.
"""

from __future__ import annotations

import ctypes
import operator
from dataclasses import dataclass
from typing import Any, NamedTuple

from gen.api.views import HOST, Extent, Matrix, View, as_matrix, element_of, extent, overlap
from gen.errors import SpecError, UsageError
from gen.spec.dtypes import DTYPES, DTypes, parse_dtype
from gen.spec.problem import GemmProblem, GemmShape, Layouts


class Arguments(NamedTuple):
    """The arrays of a call."""

    a: View
    b: View
    c: View | None
    out: View | None
    bias: View | None


class Wanted(NamedTuple):
    """What a kernel fixes beforehand: element types and orders, if it does; whether it has a bias.

    `epilogue` is only for messages.
    """

    dtype: str | None
    layouts: Layouts | None
    epilogue: str

    @property
    def has_bias(self) -> bool:
        """Whether the epilogue adds a bias."""
        return "bias" in self.epilogue


@dataclass(frozen=True)
class Call:
    """What a call computes: `problem` in `layouts`, with the result's shape as the caller sees it.

    `inputs` are what the result must not overlap, by name; `c` only where it is read.
    """

    dtypes: DTypes
    layouts: Layouts
    problem: GemmProblem
    result_shape: tuple[int, ...]
    result: Extent
    inputs: dict[str, Extent]

    @property
    def empty(self) -> bool:
        """Whether the result has no elements."""
        return 0 in self.result_shape

    def check_overlap(self, views: Arguments) -> None:
        """Raises SpecError where the caller's `out` shares elements with what is read.

        C may be `out` itself: each of its elements is read before it is replaced.
        """
        out = views.out
        if out is None:
            return
        for name, bytes_ in self.inputs.items():
            view = getattr(views, name)
            same = name == "c" and view.address == out.address and bytes_ == self.result
            if not same and overlap(out.address, self.result, view.address, bytes_):
                raise SpecError(
                    f"out overlaps {_label(name)}, which is read while out is written; "
                    "pass another out" + (", or c itself" if name == "c" else "")
                )


def _label(name: str) -> str:
    return name.upper() if len(name) == 1 else name


def _check_devices(views: Arguments) -> None:
    for name, view in zip(views._fields, views, strict=True):
        if view is not None and view.device != views.a.device:
            here, there = (
                "in host memory" if device == HOST else f"on GPU {device}"
                for device in (views.a.device, view.device)
            )
            raise UsageError(f"A is {here} and {_label(name)} {there}; move one of them")


def _dtypes(views: Arguments, wanted: str | None) -> DTypes:
    """The row of `DTYPES` that the arrays have. Raises UsageError, SpecError."""
    given = element_of(views.a, "A")
    other = element_of(views.b, "B")
    if given != other:
        raise SpecError(f"A is {given} and B is {other}, not of one type; convert one of them")
    results = {
        name: element_of(view, _label(name))
        for name, view in (("out", views.out), ("c", views.c), ("bias", views.bias))
        if view is not None
    }
    if len(set(results.values())) > 1:
        listed = ", ".join(f"{_label(name)} {kind}" for name, kind in results.items())
        raise SpecError(f"C, out and bias are of one type, not {listed}; convert them")
    result = next(iter(results.values()), None)
    rows = [r for r in DTYPES.values() if r.input.name == given]
    for row in [parse_dtype(wanted)] if wanted else rows:
        if _storage(row) == given and result in (None, row.output.name):
            return row
    raise _no_dtypes(given, result, wanted, rows)


def _storage(row: DTypes) -> str:
    # tf32 is f32 in memory.
    return "f32" if row.input.name == "tf32" else row.input.name


def _no_dtypes(given: str, result: str | None, wanted: str | None, rows: list[DTypes]) -> SpecError:
    if wanted:
        row = parse_dtype(wanted)
        return SpecError(
            f"dtype={wanted} has A and B in {_storage(row)}, C, out and bias in {row.output.name}, "
            f"not {given}" + (f" and {result}" if result else "") + "; convert them"
        )
    some = " or ".join(dict.fromkeys(row.output.name for row in rows))
    return SpecError(f"no kernel makes {result} of {given}; use C, out and bias of {some}")


def _shape(a: Matrix, b: Matrix) -> GemmShape:
    if a.cols != b.rows:
        raise SpecError(
            f"A is {a.rows} x {a.cols} and B is {b.rows} x {b.cols}: A's columns are not as many "
            "as B's rows; transpose one of them"
        )
    return GemmShape(a.rows, b.cols, a.cols)


def _order(matrix: Matrix, fixed: bool | None, name: str, why: str) -> bool:
    """Whether an operand is taken as row-major; both are right for some. Raises SpecError."""
    row_major = bool(matrix.by_row) if fixed is None else fixed
    if not matrix.ld(row_major):
        have, want = ("column", "row") if row_major else ("row", "column")
        raise SpecError(
            f"{name} is {have}-major, but {why} {want}-major; pass a copy in that order"
        )
    return row_major


def _like_result(
    view: View | None, name: str, shape: tuple[int, ...], is_row: bool
) -> Matrix | None:
    if view is None:
        return None
    if tuple(view.shape) != shape:
        raise SpecError(f"{name} has shape {tuple(view.shape)}, not the result's {shape}")
    return as_matrix(view, name, is_row)


def _check_bias(views: Arguments, wanted: Wanted, n: int) -> None:
    bias = views.bias
    if bias is None:
        if wanted.has_bias:
            raise UsageError(f"epilogue={wanted.epilogue} adds a bias; pass bias, {n} elements")
        return
    if not wanted.has_bias:
        raise UsageError(
            f"a bias is given, but epilogue={wanted.epilogue} has none; "
            "make the kernel with epilogue='linear_bias'"
        )
    if tuple(bias.shape) != (n,) or (n > 1 and bias.strides[0] != 1):
        raise SpecError(
            f"bias has shape {tuple(bias.shape)} and strides {tuple(bias.strides)}; "
            f"use {n} adjacent elements, one for each column of D"
        )


def fit(views: Arguments, wanted: Wanted, alpha: Any, beta: Any) -> Call:
    """What the arrays of a call ask for.

    Raises UsageError and SpecError for what does not go together; the messages say the way out.
    """
    _check_devices(views)
    dtypes = _dtypes(views, wanted.dtype)
    alpha, beta = scalar(alpha, "alpha", dtypes), scalar(beta, "beta", dtypes)
    a, b = as_matrix(views.a, "A", True), as_matrix(views.b, "B", False)
    shape = _shape(a, b)
    result_shape = (shape.m,) * (len(views.a.shape) == 2) + (shape.n,) * (len(views.b.shape) == 2)
    if not result_shape:
        raise SpecError("A and B are both vectors; make one of them a matrix: a.reshape(1, -1)")
    _check_bias(views, wanted, shape.n)
    if views.out is not None and views.out.readonly:
        raise UsageError("out is read-only; pass an array that may be written")
    if beta != 0 and views.c is None:
        raise UsageError(f"beta={beta:g} needs c; pass c, which may be out itself")
    is_row = len(views.a.shape) == 1
    d = _like_result(views.out, "out", result_shape, is_row)
    c = _like_result(views.c, "C", result_shape, is_row) if beta != 0 else None
    layouts = _layouts(a, b, c, d, wanted.layouts)
    ldd = _packed(shape, layouts.c) if d is None else d.ld(layouts.c)
    ldc = ldd if c is None else c.ld(layouts.c)
    problem = GemmProblem(shape, a.ld(layouts.a), b.ld(layouts.b), ldc, ldd, alpha, beta)
    result = Matrix(shape.m, shape.n, ldd, ldd) if d is None else d
    return _call(dtypes, layouts, problem, result_shape, (a, b, c, result), views.bias)


def _layouts(
    a: Matrix, b: Matrix, c: Matrix | None, d: Matrix | None, fixed: Layouts | None
) -> Layouts:
    """The orders of all; D's is `out`'s, or else C's, or else row-major. Raises SpecError."""
    orders = (fixed.a, fixed.b, fixed.c) if fixed else (None, None, None)
    takes = "the kernel takes"
    by_a, by_b = _order(a, orders[0], "A", takes), _order(b, orders[1], "B", takes)
    by_d = orders[2]
    if d is not None:
        by_d = _order(d, by_d, "out", takes)
    if c is not None:
        by_d = _order(c, by_d, "C", takes if d is None else "out is")
    return Layouts(by_a, by_b, True if by_d is None else by_d)


def _packed(shape: GemmShape, row_major: bool) -> int:
    return max(shape.n if row_major else shape.m, 1)


def _call(
    dtypes: DTypes,
    layouts: Layouts,
    problem: GemmProblem,
    result_shape: tuple[int, ...],
    matrices: tuple[Matrix, Matrix, Matrix | None, Matrix],
    bias: View | None,
) -> Call:
    a, b, c, d = matrices
    size, wide = dtypes.input.size, dtypes.output.size
    inputs = {"a": extent(a, layouts.a, size), "b": extent(b, layouts.b, size)}
    if c is not None:
        inputs["c"] = extent(c, layouts.c, wide)
    if bias is not None:
        inputs["bias"] = Extent(1, problem.shape.n * wide, problem.shape.n * wide)
    result = extent(d, layouts.c, wide)
    return Call(dtypes, layouts, problem, result_shape, result, inputs)


def scalar(value: Any, name: str, dtypes: DTypes) -> float:
    """alpha or beta as a number of the type that the kernel has. Raises UsageError, SpecError."""
    if not dtypes.scalar.is_float:
        return whole(value, name)
    try:
        return ctypes.c_double(value).value  # as a call that is prepared converts it
    except TypeError:
        raise UsageError(f"{name}={value!r} is no number; use one") from None
    except OverflowError:
        raise SpecError(f"{name} does not fit into a double; use a smaller one") from None


def whole(value: Any, name: str) -> int:
    """alpha or beta of a kernel that computes in integers. Raises UsageError, SpecError."""
    try:
        number = int(value) if isinstance(value, float) and value == int(value) else value
        found = operator.index(number)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(
            f"{name}={value} is no integer, but the kernel computes in integers; use one"
        ) from None
    if not -(2**31) <= found < 2**31:
        raise SpecError(f"{name}={value} does not fit into 32 bits; use a smaller one")
    return found
