"""From arrays to a GEMM problem: element types, orders, leading dimensions, and what does not fit.

Nothing here knows of frameworks or devices: everything follows from `View`s.
"""

from __future__ import annotations

import ctypes
import operator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from gen.api.batches import Products, is_batch, launches, products
from gen.api.operands import NOTHING, Own, place
from gen.api.views import HOST, Extent, Matrix, View, as_matrix, element_of, extent, overlap
from gen.errors import SpecError, UsageError
from gen.spec.dtypes import DTYPES, DTypes, parse_dtype
from gen.spec.epilogue import Epilogue
from gen.spec.kernel import EPILOGUES
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

    `epilogue` is only for messages. `batched`: whether it may take batches.
    """

    dtype: str | None
    layouts: Layouts | None
    epilogue: str
    batched: bool = True

    @property
    def has_bias(self) -> bool:
        """Whether the epilogue adds a bias."""
        return self.epilogue in EPILOGUES and "bias" in self.epilogue


@dataclass(frozen=True)
class Call:
    """What a call computes: `problem` in `layouts`, with the result's shape as the caller sees it.

    `inputs` are what the result must not overlap, by name; `c` only where it is read. `own`: the
    arrays that the user's own epilogue takes. `epilogue`: its text with their types; None where it
    is another. Of a batch, `batch_shape` is its shape, and `offsets` says of each launch where A,
    B, C and D begin, in elements: `problem` has the products of one.
    """

    dtypes: DTypes
    layouts: Layouts
    problem: GemmProblem
    result_shape: tuple[int, ...]
    result: Extent
    inputs: dict[str, Extent]
    own: tuple[str, ...] = ()
    epilogue: str | None = None
    batch_shape: tuple[int, ...] = ()
    offsets: tuple[tuple[int, ...], ...] = ((0, 0, 0, 0),)

    @property
    def empty(self) -> bool:
        """Whether the result has no elements."""
        return 0 in self.result_shape

    @cached_property
    def _reaches(self) -> tuple[int, tuple[tuple[int, int, str], ...]]:
        """The bytes that the result spans; of each input its place, the bytes, its name."""
        places = (*Arguments._fields, *self.own).index
        inputs = ((places(name), bytes_.reach, name) for name, bytes_ in self.inputs.items())
        return self.result.reach, tuple(inputs)

    def check_overlap(self, out: int, addresses: tuple[int, ...]) -> None:
        """Raises SpecError where the caller's `out` shares elements with what is read.

        addresses: of A, B, C, anything, the bias, and `own`. C may be `out` itself: each of its
        elements is read before it is replaced.
        """
        reach, inputs = self._reaches
        end = out + reach
        for which, length, name in inputs:
            at = addresses[which]
            if at < end and out < at + length:  # their spans overlap: maybe not their lines
                self._check_lines(out, name, at)

    def _check_lines(self, out: int, name: str, at: int) -> None:
        bytes_ = self.inputs[name]
        same = name == "c" and at == out and bytes_ == self.result
        if not same and overlap(out, self.result, at, bytes_):
            raise SpecError(
                f"out overlaps {_label(name)}, which is read while out is written; "
                "pass another out" + (", or c itself" if name == "c" else "")
            )


def _label(name: str) -> str:
    return name.upper() if len(name) == 1 else name


def _check_devices(views: Arguments, own: Own) -> None:
    for name, view in [*zip(views._fields, views, strict=True), *own.views.items()]:
        if view is not None and view.device != views.a.device:
            here, there = (
                "in host memory" if device == HOST else f"on GPU {device}"
                for device in (views.a.device, view.device)
            )
            raise UsageError(f"A is {here} and {_label(name)} {there}; move one of them")


def dtypes_of(wanted: str | None, **arrays: Any) -> DTypes:
    """The row of `DTYPES` for a, b, c, out and bias, each anything with `dtype`, or None.

    Raises UsageError, SpecError.
    """
    results = {
        name: element_of(array.dtype, _label(name))
        for name, array in arrays.items()
        if array is not None
    }
    given, other = results.pop("a"), results.pop("b")
    if given != other:
        raise SpecError(f"A is {given} and B is {other}, not of one type; convert one of them")
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


def fit(views: Arguments, wanted: Wanted, alpha: Any, beta: Any, own: Own = NOTHING) -> Call:
    """What the arrays of a call ask for. own: what an epilogue of the user's own takes.

    Raises UsageError and SpecError for what does not go together; the messages say the way out.
    """
    _check_devices(views, own)
    epilogue = own.epilogue(wanted.epilogue)
    dtypes = dtypes_of(wanted.dtype, **views._asdict())
    alpha, beta = scalar(alpha, "alpha", dtypes), scalar(beta, "beta", dtypes)
    found = None
    if is_batch(views.a, views.b):
        by_rows = wanted.layouts is None or (wanted.layouts.a and wanted.layouts.c)
        by_rows &= epilogue is None  # which has rows of each product
        found = products(views.a, views.b, views.c if beta != 0 else None, views.out, by_rows)
        views = views._replace(a=found.a, b=found.b, c=found.c or views.c, out=found.out)
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
    call = _call(dtypes, layouts, problem, result_shape, (a, b, c, result), views.bias)
    if epilogue is not None:
        call = _with_own(call, epilogue, own)
    return call if found is None else _batch(call, found, wanted.batched)


def _with_own(call: Call, epilogue: Epilogue, own: Own) -> Call:
    """The call with what the user's own epilogue takes."""
    shape, by_row = call.problem.shape, call.layouts.c
    placed = place(epilogue, own, call.dtypes, shape, call.result_shape, by_row)
    numbers = ((name, scalar(value, name, call.dtypes)) for name, value in own.numbers.items())
    return replace(
        call,
        problem=replace(call.problem, operands=(*placed.values, *numbers)),
        inputs={**call.inputs, **placed.extents},
        own=tuple(own.views),
        epilogue=str(epilogue),
    )


def _batch(call: Call, found: Products, batched: bool) -> Call:
    """The call of all products, from that of the first."""
    made = launches(found.dimensions, call.problem, call.layouts, batched)

    def all_of(one: Extent, which: int, size: int) -> Extent:
        steps = (each.strides[which] * max(each.size - 1, 0) for each in found.dimensions)
        reach = one.reach + sum(steps) * size
        return Extent(1, reach, reach)

    size, wide = call.dtypes.input.size, call.dtypes.output.size
    if found.dimensions:
        sizes = {"a": size, "b": size, "c": wide}  # others are the same for all products
        inputs = {
            name: all_of(one, "abc".index(name), sizes[name]) if name in sizes else one
            for name, one in call.inputs.items()
        }
        call = replace(call, inputs=inputs, result=all_of(call.result, 3, wide))
    return replace(
        call,
        problem=replace(call.problem, batch=made.batch),
        result_shape=found.result_shape,
        batch_shape=found.shape,
        offsets=made.offsets,
    )


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
