"""Groups, of rows or along K: what the arrays of such a call ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gen.api.batches import first
from gen.api.call import BIAS, Arguments, B, C, Call, Wanted
from gen.api.operands import Own, is_number
from gen.api.problem import check_devices, fit
from gen.api.views import Extent, View, as_matrix, element
from gen.errors import SpecError, UsageError
from gen.kernels.batches import check_batch
from gen.kernels.launches import OFFSETS
from gen.kernels.registry import VARIANTS
from gen.kernels.tensor_cores.tiles import is_strided
from gen.spec.dtypes import parse_dtype
from gen.spec.problem import GROUPS_K, Batch, Layouts

GROUPED, GROUPED_K = KINDS = "grouped", "grouped_k"  # tunables


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


_WITH_BIAS = {
    "linear": "x + {}",
    "linear_bias": "x + {}",
    "linear_bias_relu": "relu(x + {})",
    "linear_bias_gelu": "gelu(x + {})",
}


def with_bias(epilogue: str, operands: Any, bias: Any) -> tuple[str, Mapping[str, Any]]:
    """The epilogue, and its operands, that add a bias: a row of N for each group, or one for all.

    Raises UsageError for an epilogue of the user's own, which says itself what it adds.
    """
    if epilogue not in _WITH_BIAS or operands:
        raise UsageError(
            f"a bias is given, but epilogue={epilogue} has none; write it as an operand, such as "
            "x + bias[group, col]"
        )
    each = "bias[group, col]" if len(bias.shape) == 2 else "bias[col]"
    return _WITH_BIAS[epilogue].format(each), {"bias": bias}


def fitted(views: Arguments, wanted: Wanted, alpha: Any, beta: Any, own: Own) -> Call:
    """What the arrays of a call ask for, which are groups where `own` has offsets.

    Raises UsageError and SpecError as `fit`.
    """
    if OFFSETS not in own.views:
        if wanted.grouped:
            raise UsageError("the kernel multiplies groups; pass offsets, the end of each one")
        return fit(views, wanted, alpha, beta, own)
    check_devices(views, own)
    _check_offsets(own.views[OFFSETS])
    dimensions = len(views.a.shape), len(views.b.shape)
    if dimensions not in _FITTED:
        raise SpecError(
            f"A has shape {tuple(views.a.shape)} and B {tuple(views.b.shape)}; groups of rows take "
            "A (M, K) and B (groups, K, N), groups along K take A (M, K) and B (K, N)"
        )
    kind, fits = _FITTED[dimensions]
    if wanted.grouped not in (None, kind):
        option = f"--{kind.replace('_', '-')}"
        raise UsageError(f"the kernel takes no {_WORDS[kind]}; use one made with {option}")
    (groups,) = own.views[OFFSETS].shape
    others = {name: view for name, view in own.views.items() if name != OFFSETS}
    call = fits(views, wanted, alpha, beta, own._replace(views=others, groups=groups), groups)
    _check_types(call, kind)
    names = (*call.own, OFFSETS)
    ends = {BIAS + len(names): Extent(1, 4 * groups, 4 * groups)}
    return replace(
        call,
        inputs={**call.inputs, **ends},
        own=names,
        offsets=((0,) * (BIAS + 1 + len(names)),),
        grouped=kind,
    )


def _of_rows(
    views: Arguments, wanted: Wanted, alpha: Any, beta: Any, own: Own, groups: int
) -> Call:
    """A (M, K), whose rows are those of all groups, and B (groups, K, N)."""
    b = views.b
    if b.shape[0] != groups:
        raise SpecError(
            f"B has {b.shape[0]} matrices, and offsets has {groups} ends of groups; pass one for "
            "each"
        )
    stride = _stride(b, "B")
    call = fit(views._replace(b=first(b, 2)), wanted, alpha, beta, own)
    if not (call.layouts.a and call.layouts.c):
        name = "C or out" if call.layouts.a else "A"
        raise SpecError(f"{name} is column-major; groups are rows: pass a row-major copy")
    size = call.dtypes.input.size
    return replace(
        call,
        problem=replace(call.problem, batch=Batch(groups, stride_b=stride)),
        inputs={**call.inputs, B: _all_of(call.inputs[B], stride, groups, size)},
    )


def _along_k(
    views: Arguments, wanted: Wanted, alpha: Any, beta: Any, own: Own, groups: int
) -> Call:
    """A (M, K), whose columns are those of all groups, and B (K, N); C and the result (groups, M,
    N).
    """
    shape = (groups, views.a.shape[0], views.b.shape[1])
    c = views.c if beta != 0 else None
    for name, x in (("C", c), ("out", views.out)):
        if x is not None and tuple(x.shape) != shape:
            raise SpecError(f"{name} has shape {tuple(x.shape)}, not the result's {shape}")
    d = c if views.out is None else views.out
    by_row = d is None or bool(as_matrix(first(d, 2), "out", True).by_row)
    layouts = wanted.layouts or Layouts(a=False, b=True, c=by_row)
    one = views._replace(c=c and first(c, 2), out=views.out and first(views.out, 2))
    call = fit(one, wanted._replace(layouts=layouts), alpha, beta, own)
    problem, size = call.problem, call.dtypes.output.size
    extent = problem.extent("D", layouts)
    stride_d = max(extent, 1) if views.out is None else _stride(views.out, "out")
    stride_c = stride_d if c is None else _stride(c, "C")
    problem = replace(problem, batch=Batch(groups, stride_c=stride_c, stride_d=stride_d))
    check_batch(problem, layouts, GROUPS_K)
    inputs = dict(call.inputs)
    if C in inputs:
        inputs[C] = _all_of(inputs[C], stride_c, groups, size)
    result = _all_of(call.result, stride_d, groups, size)
    return replace(call, problem=problem, result_shape=shape, result=result, inputs=inputs)


_FITTED = {(2, 3): (GROUPED, _of_rows), (2, 2): (GROUPED_K, _along_k)}
_WORDS = {GROUPED: "groups of rows", GROUPED_K: "groups along K"}


def _stride(view: View, name: str) -> int:
    """The elements from one matrix to the next. Raises SpecError where it is negative."""
    stride = view.strides[0] if view.shape[0] > 1 else 0
    if stride < 0:
        raise SpecError(f"{name} has its matrices in reverse, {stride} apart; pass a copy of it")
    return stride


def _all_of(one: Extent, stride: int, groups: int, size: int) -> Extent:
    """The bytes of all matrices, from those of the first."""
    reach = one.reach + max(groups - 1, 0) * stride * size
    return Extent(1, reach, reach)


def _check_offsets(ends: View) -> None:
    """Raises SpecError for what is no array of 32-bit integers, one behind the other."""
    one_behind_another = len(ends.shape) == 1 and (ends.shape[0] < 2 or ends.strides[0] == 1)
    if element(ends.dtype) != "i32" or not one_behind_another:
        raise SpecError(
            f"offsets is {ends.dtype} of shape {tuple(ends.shape)} and strides "
            f"{tuple(ends.strides)}; use adjacent elements of int32, one for each group"
        )


def _check_types(call: Call, kind: str) -> None:
    """Raises SpecError for element types that no kernel has such groups of."""
    rows = [row for row in VARIANTS.values() if kind in row.tunable_names]
    types = {name: parse_dtype(name) for row in rows for name in row.dtypes}
    have = [
        name
        for name, one in types.items()
        if one.parts == 1 and (kind == GROUPED or is_strided(one.factor.size))
    ]
    if call.dtypes.name not in have:
        names = ", ".join(have)
        rounds = call.dtypes.name == "f32" and "tf32" in have
        more = "; dtype='tf32' rounds f32" if rounds else ""
        raise SpecError(
            f"no kernel multiplies {_WORDS[kind]} of {call.dtypes.name}; use one of {names}{more}"
        )
