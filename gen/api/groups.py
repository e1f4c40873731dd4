"""Groups of rows, each with a matrix B of its own: what the arrays of such a call ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gen.api.batches import first
from gen.api.call import BIAS, Arguments, B, Call, Wanted
from gen.api.operands import Own, is_number
from gen.api.problem import check_devices, fit
from gen.api.views import Extent, View, element
from gen.errors import SpecError, UsageError
from gen.kernels.launches import OFFSETS
from gen.kernels.registry import VARIANTS
from gen.kernels.variant import GROUPED
from gen.spec.dtypes import parse_dtype
from gen.spec.problem import Batch


def with_offsets(operands: Mapping[str, Any], offsets: Any) -> Mapping[str, Any]:
    """The arrays of a call by name, with where groups end, if that is given. Raises UsageError."""
    if OFFSETS in operands:
        raise UsageError(
            f"an operand cannot be called {OFFSETS}, which are the ends of groups; use another name"
        )
    if offsets is None:
        return operands
    if is_number(offsets):
        kind = type(offsets).__name__
        raise UsageError(f"offsets is a {kind}, not an array; pass one of int32 of the kind of A")
    return {**operands, OFFSETS: offsets}


def fitted(views: Arguments, wanted: Wanted, alpha: Any, beta: Any, own: Own) -> Call:
    """What the arrays of a call ask for, which are groups where `own` has offsets.

    Raises UsageError and SpecError as `fit`.
    """
    if OFFSETS in own.views:
        if wanted.grouped is False:
            raise UsageError("the kernel takes no groups of rows; use one made with --grouped")
        return _fit(views, wanted, alpha, beta, own)
    if wanted.grouped:
        raise UsageError("the kernel multiplies groups of rows; pass offsets, the end of each one")
    return fit(views, wanted, alpha, beta, own)


def _fit(views: Arguments, wanted: Wanted, alpha: Any, beta: Any, own: Own) -> Call:
    """A (M, K), whose rows are those of all groups, and B (groups, K, N)."""
    check_devices(views, own)
    a, b, ends = views.a, views.b, own.views[OFFSETS]
    _check_offsets(ends)
    if (len(a.shape), len(b.shape)) != (2, 3):
        raise SpecError(
            f"A has shape {tuple(a.shape)} and B {tuple(b.shape)}; groups of rows take A (M, K) "
            "and B (groups, K, N)"
        )
    (groups,) = ends.shape
    if b.shape[0] != groups:
        raise SpecError(
            f"B has {b.shape[0]} matrices, and offsets has {groups} ends of groups; pass one for "
            "each"
        )
    stride = b.strides[0] if groups > 1 else 0
    if stride < 0:
        raise SpecError(f"B has its matrices in reverse, {stride} apart; pass a copy of it")
    others = {name: view for name, view in own.views.items() if name != OFFSETS}
    call = fit(views._replace(b=first(b, 2)), wanted, alpha, beta, own._replace(views=others))
    if not (call.layouts.a and call.layouts.c):
        name = "C or out" if call.layouts.a else "A"
        raise SpecError(f"{name} is column-major; groups are rows: pass a row-major copy")
    _check_types(call)
    reach = call.inputs[B].reach + max(groups - 1, 0) * stride * call.dtypes.input.size
    names = (*call.own, OFFSETS)
    read = {B: Extent(1, reach, reach), BIAS + len(names): Extent(1, 4 * groups, 4 * groups)}
    return replace(
        call,
        problem=replace(call.problem, batch=Batch(groups, stride_b=stride)),
        inputs={**call.inputs, **read},
        own=names,
        offsets=((0,) * (BIAS + 1 + len(names)),),
        grouped=True,
    )


def _check_offsets(ends: View) -> None:
    """Raises SpecError for what is no array of 32-bit integers, one behind the other."""
    one_behind_another = len(ends.shape) == 1 and (ends.shape[0] < 2 or ends.strides[0] == 1)
    if element(ends.dtype) != "i32" or not one_behind_another:
        raise SpecError(
            f"offsets is {ends.dtype} of shape {tuple(ends.shape)} and strides "
            f"{tuple(ends.strides)}; use adjacent elements of int32, one for each group"
        )


def _check_types(call: Call) -> None:
    """Raises SpecError for element types that no kernel has groups of."""
    rows = [row for row in VARIANTS.values() if GROUPED in row.tunables]
    have = dict.fromkeys(
        name for row in rows for name in row.dtypes if parse_dtype(name).parts == 1
    )
    if call.dtypes.name not in have:
        names = ", ".join(have)
        more = "; dtype='tf32' rounds f32" if call.dtypes.name == "f32" else ""
        raise SpecError(
            f"no kernel multiplies groups of {call.dtypes.name}; use one of {names}{more}"
        )
