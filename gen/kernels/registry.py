"""All kernels, by name, and the specifications that can be built of them.

A new kernel is one template in `templates/`, one row in `cuda_cores/rows` or in
`tensor_cores/rows`, one row in the tests. Those for few rows or columns come after all others.
"""

from __future__ import annotations

import copyreg
import json
from collections.abc import Collection, Mapping
from typing import Any

from gen.errors import GenError, SpecError, UsageError, unknown
from gen.kernels.cuda_cores.gemv import GEMV
from gen.kernels.cuda_cores.narrow import NARROW
from gen.kernels.cuda_cores.rows import SCALAR_VARIANTS
from gen.kernels.simt.rows import SIMT_VARIANTS
from gen.kernels.tensor_cores.rows import TENSOR_VARIANTS
from gen.kernels.tensor_cores.skinny import SKINNY
from gen.kernels.tensor_cores.slim import SLIM
from gen.kernels.tunables import Choice, Conflict
from gen.kernels.variant import Variant
from gen.kernels.way_out import Asked, way_out
from gen.spec.arch import SHARED_KIB, STATIC_SHARED, compute_capability
from gen.spec.dtypes import DTypes, parse_dtype
from gen.spec.kernel import KernelSpec
from gen.spec.names import check_given
from gen.spec.problem import Layouts, parse_layout

VARIANTS: Mapping[str, Variant] = {
    v.name: v
    for v in (*SCALAR_VARIANTS, *SIMT_VARIANTS, *TENSOR_VARIANTS, GEMV, NARROW, SKINNY, SLIM)
}


def get_variant(name: str) -> Variant:
    """The row called `name`. Raises UsageError with the nearest name."""
    if name not in VARIANTS:
        raise unknown("variant", name, VARIANTS)
    return VARIANTS[name]


def make_spec(
    variant: str,
    *,
    dtype: str | None = None,
    layout: str = "rrr",
    arch: str | None = None,
    name: str | None = None,
    **tunables: Any,
) -> KernelSpec:
    """A checked specification; what is left out or None takes the kernel's default.

    Raises UsageError for an unknown variant, dtype, layout or architecture, and SpecError for a
    combination that cannot be built; the message says which rule, the values, and what to use.
    """
    row = get_variant(variant)
    if name is not None:
        check_given(name)
    dtype, layouts = parse_dtype(dtype or row.dtypes[0]).name, parse_layout(layout)
    return _checked(row, dtype, layouts, arch or row.usual_arch(dtype), tunables, name)


def spec_from_json(text: str) -> KernelSpec:
    """The specification that `KernelSpec.to_json` wrote. Raises UsageError or SpecError."""
    try:
        fields = json.loads(text)
        if not isinstance(fields, dict):
            raise TypeError("no JSON object")
        return make_spec(**fields)
    except (TypeError, ValueError, RecursionError) as error:
        shown = text if len(text) < 200 else f"{text[:200]}..."
        raise UsageError(
            f"this is no kernel specification: {shown!r} ({error}); use the gen-spec line of an "
            "emitted file"
        ) from None


# Rows hold functions: a specification travels to other processes as its line of JSON.
copyreg.pickle(KernelSpec, lambda spec: (spec_from_json, (spec.to_json(),)))


def retarget(spec: KernelSpec, arch: str) -> KernelSpec:
    """The same kernel for another architecture. Raises SpecError where that does not have it."""
    return _checked(spec.row, spec.dtypes.name, spec.layouts, arch, spec.tunables, spec.symbol)


def with_defaults_of(spec: KernelSpec, arch: str) -> KernelSpec:
    """The same kernel for another architecture, whose defaults it has where it had its own's.

    Raises SpecError where that does not have it.
    """
    unusual = spec.row.unusual(Choice(spec.dtypes, spec.layouts, spec.arch, spec.tunables))
    tunables = {t.name: spec.tunables[t.name] for t in unusual}
    return _checked(spec.row, spec.dtypes.name, spec.layouts, arch, tunables, spec.symbol)


def _checked(
    row: Variant,
    dtype: str,
    layouts: Layouts,
    arch: str,
    tunables: Mapping[str, Any],
    symbol: str | None,
) -> KernelSpec:
    asked = {"dtype": dtype, "arch": arch, **{k: v for k, v in tunables.items() if v is not None}}

    def allowed(other: Asked) -> bool:
        try:
            build(row, layouts, other, None)
        except GenError:
            return False
        return True

    try:
        return build(row, layouts, asked, symbol)
    except Conflict as conflict:
        hint = way_out(row, layouts, conflict.blame, asked, allowed)
        raise SpecError(f"{conflict}; use {hint}") from None


def build(row: Variant, layouts: Layouts, asked: Asked, symbol: str | None) -> KernelSpec:
    """The specification of what was asked for, for programs that try many.

    Raises Conflict, without a way out, which takes long to find, for what breaks a rule.
    """
    given = dict(asked)
    dtypes, arch = parse_dtype(given.pop("dtype")), given.pop("arch")
    for name in given:
        if name not in row.tunable_names:
            some = ", ".join(row.tunable_names)
            raise SpecError(f"{row.name} has no tunable '{name}'; it has {some}")
    check_types(row, dtypes, arch)
    return built(row, Choice(dtypes, layouts, arch, given), symbol)


def built(row: Variant, asked: Choice, symbol: str | None = None) -> KernelSpec:
    """The same for types and an architecture that the row has, and tunables of its own."""
    values = row.resolve(asked.values, asked)
    for t in row.tunables:
        t.check(values[t.name])
    row.rules(asked._replace(values=values))
    spec = KernelSpec(row, asked.dtypes, asked.layouts, asked.arch, values, symbol)
    _check_shared(spec, asked.values)
    return spec


def check_types(row: Variant, dtypes: DTypes, arch: str) -> None:
    """Raises Conflict for element types or an architecture that the row has not."""
    if dtypes.name not in row.dtypes:
        some = ", ".join(row.dtypes)
        raise Conflict(f"{row.name} has no dtype {dtypes.name}, but {some}", "dtype")
    cc = compute_capability(arch)
    if cc < row.min_arch and row.max_arch is None:
        raise Conflict(f"{row.name} needs sm_{row.min_arch} or newer, not {arch}", "arch")
    if not row.runs_on(cc) or (row.max_arch and not arch.endswith("a")):
        raise Conflict(
            f"{row.name} needs {row.default_arch}, not {arch}: its instructions are those of "
            f"compute capability {row.min_arch // 10}.{row.min_arch % 10} alone",
            "arch",
        )


def _check_shared(spec: KernelSpec, given: Collection[str]) -> None:
    static, dynamic = spec.geometry.static_shared, spec.geometry.dynamic_shared
    most = SHARED_KIB[compute_capability(spec.arch)] * 1024
    for bytes_, limit, what in (
        (static, STATIC_SHARED, "a kernel may declare"),
        (static + dynamic, most, f"a block may have on {spec.arch}"),
    ):
        if bytes_ > limit:
            raise Conflict(
                f"{spec.variant} wants {bytes_} bytes of shared memory, more than the {limit} "
                f"that {what}",
                *given,  # the defaults alone fit
            )
