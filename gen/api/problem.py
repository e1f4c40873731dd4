"""From arrays to a GEMM problem: element types, orders, leading dimensions, and what does not fit.

Nothing here knows of frameworks or devices: everything follows from `View`s.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

from gen.api.batches import Further, Products, is_batch, launches, products
from gen.api.call import BIAS, RESULT, A, Arguments, B, C, Call, Wanted, label
from gen.api.operands import NOTHING, Own, check_sums, place
from gen.api.views import HOST, Extent, Matrix, View, as_matrix, element_of, extent
from gen.errors import SpecError, UsageError
from gen.spec.dtypes import DTYPES, DTypes, parse_dtype
from gen.spec.epilogue import COLUMNS, Epilogue
from gen.spec.kernel import EPILOGUES
from gen.spec.problem import GemmProblem, GemmShape, Layouts


def check_devices(views: Arguments, own: Own) -> None:
    """Raises UsageError for arrays that are not all on one device."""
    for name, view in [*zip(views._fields, views, strict=True), *own.views.items()]:
        if view is not None and view.device != views.a.device:
            here, there = (
                "in host memory" if device == HOST else f"on GPU {device}"
                for device in (views.a.device, view.device)
            )
            raise UsageError(f"A is {here} and {label(name)} {there}; move one of them")


def dtypes_of(wanted: str | None, **arrays: Any) -> DTypes:
    """The row of `DTYPES` for a, b, c, out and bias, each anything with `dtype`, or None.

    Raises UsageError, SpecError.
    """
    results = {
        name: element_of(array.dtype, label(name))
        for name, array in arrays.items()
        if array is not None
    }
    given, other = results.pop("a"), results.pop("b")
    if given != other:
        raise SpecError(f"A is {given} and B is {other}, not of one type; convert one of them")
    if len(set(results.values())) > 1:
        listed = ", ".join(f"{label(name)} {kind}" for name, kind in results.items())
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
        way = "make the kernel with epilogue='linear_bias'"
        if wanted.epilogue not in EPILOGUES:
            way = "write it as an operand, such as x + bias[col]"
        raise UsageError(f"a bias is given, but epilogue={wanted.epilogue} has none; {way}")
    if tuple(bias.shape) != (n,) or (n > 1 and bias.strides[0] != 1):
        raise SpecError(
            f"bias has shape {tuple(bias.shape)} and strides {tuple(bias.strides)}; "
            f"use {n} adjacent elements, one for each column of D"
        )


def fit(views: Arguments, wanted: Wanted, alpha: Any, beta: Any, own: Own = NOTHING) -> Call:
    """What the arrays of a call ask for. own: what an epilogue of the user's own takes.

    Raises UsageError and SpecError for what does not go together; the messages say the way out.
    """
    check_devices(views, own)
    epilogue = own.epilogue(wanted.epilogue)
    if epilogue and epilogue.has_groups and own.groups is None:
        raise UsageError(
            f"epilogue '{epilogue.text}' has group, and there are none; use gen.grouped_matmul"
        )
    dtypes = dtypes_of(wanted.dtype, **views._asdict())
    alpha, beta = scalar(alpha, "alpha", dtypes), scalar(beta, "beta", dtypes)
    found = None
    if is_batch(views.a, views.b):
        by_rows = wanted.layouts is None or (wanted.layouts.a and wanted.layouts.c)
        by_rows &= epilogue is None or not epilogue.counts_rows  # which are those of each product
        further = _further(views, own, epilogue)
        added = views.c if beta != 0 else None
        found = products(views.a, views.b, added, views.out, further, by_rows)
        first = {name: each.view for name, each in found.further.items()}
        bias = first.pop("bias", None) if epilogue is None else views.bias
        views = Arguments(found.a, found.b, found.c or views.c, found.out, bias)
        own = own._replace(views=first)
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
    if found is None:
        return replace(call, offsets=((0,) * len(call.names),))
    size, wide = dtypes.input.size, dtypes.output.size
    sizes = [size, size, wide, wide, wide]
    if epilogue is not None:
        sizes += [epilogue.operand(name).element(dtypes).size for name in own.views]
    return _batch(call, found, sizes, wanted.batched)


def _further(views: Arguments, own: Own, epilogue: Epilogue | None) -> dict[str, Further]:
    """What the epilogue takes of each product, by name: the bias, or arrays of the user's own."""
    if epilogue is None:
        return {} if views.bias is None else {"bias": Further(views.bias, COLUMNS)}
    return {name: Further(view, epilogue.operand(name).index) for name, view in own.views.items()}


def _with_own(call: Call, epilogue: Epilogue, own: Own) -> Call:
    """The call with what the user's own epilogue takes."""
    check_sums(epilogue, call.dtypes)  # else each kernel says so, or something else before it
    shape, by_row = call.problem.shape, call.layouts.c
    placed = place(epilogue, own, call.dtypes, shape, call.result_shape, by_row)
    numbers = ((name, scalar(value, name, call.dtypes)) for name, value in own.numbers.items())
    return replace(
        call,
        problem=replace(call.problem, operands=(*placed.values, *numbers)),
        inputs={**call.inputs, **dict(enumerate(placed.extents, BIAS + 1))},
        own=tuple(own.views),
        epilogue=str(epilogue),
    )


def _batch(call: Call, found: Products, sizes: Sequence[int], batched: bool) -> Call:
    """The call of all products, from that of the first.

    sizes: of the elements of all operands, in the order of `Call.names`. batched: whether the
    kernel takes batches.
    """
    made = launches(found.dimensions, call.problem, call.layouts, batched)
    end = len(sizes)
    order = (*range(BIAS), *range(end - len(found.further), end))  # as strides have them

    def in_bytes(elements: Sequence[int]) -> list[int]:
        """For each operand, of what is counted in the order of strides."""
        each = dict(zip(order, elements, strict=False))
        return [each.get(i, 0) * size for i, size in enumerate(sizes)]

    counts = [max(one.size - 1, 0) for one in found.dimensions]
    each = zip(*(one.strides for one in found.dimensions), strict=True)
    steps = in_bytes([sum(map(operator.mul, counts, strides)) for strides in each])

    def all_of(one: Extent, which: int) -> Extent:
        reach = one.reach + steps[which]
        return Extent(1, reach, reach) if found.dimensions else one

    return replace(
        call,
        problem=replace(call.problem, batch=made.batch),
        result_shape=found.result_shape,
        result=all_of(call.result, RESULT),
        inputs={which: all_of(one, which) for which, one in call.inputs.items()},
        batch_shape=found.shape,
        offsets=tuple(tuple(in_bytes(each)) for each in made.offsets),
    )


def _layouts(
    a: Matrix, b: Matrix, c: Matrix | None, d: Matrix | None, fixed: Layouts | None
) -> Layouts:
    """The orders of all; D's is `out`'s, or else C's, or else row-major. Raises SpecError.

    A single column of B may count as either: as column-major, it runs along K, which is faster.
    """
    usual_b = False if b.cols == 1 and b.by_col else None
    orders = (fixed.a, fixed.b, fixed.c) if fixed else (None, usual_b, None)
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
    inputs = {A: extent(a, layouts.a, size), B: extent(b, layouts.b, size)}
    if c is not None:
        inputs[C] = extent(c, layouts.c, wide)
    if bias is not None:
        inputs[BIAS] = Extent(1, problem.shape.n * wide, problem.shape.n * wide)
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
        if isinstance(value, Real) and not isinstance(value, Integral):
            number = float(value)
            value = int(number) if number.is_integer() else value
        found = operator.index(value)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(
            f"{name}={value} is no integer, but the kernel computes in integers; use one"
        ) from None
    if not -(2**31) <= found < 2**31:
        raise SpecError(f"{name}={value} does not fit into 32 bits; use a smaller one")
    return found
