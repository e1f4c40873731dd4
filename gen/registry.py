"""All kernels, by name, and the specifications that can be built of them.

A new kernel is one template in `templates/`, one row in `scalar.py` or `tensor_core.py`, one row in
the tests.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from gen.errors import SpecError, UsageError, unknown
from gen.plan import ALIGNED, MULTIPROCESSORS, Alignment, Plan
from gen.plan import Dim3 as Dim3
from gen.scalar import SCALAR_VARIANTS
from gen.spec import (
    SHARED_KIB,
    GemmProblem,
    GemmShape,
    KernelSpec,
    compute_capability,
    parse_dtype,
    parse_layout,
)
from gen.tensor_core import TENSOR_VARIANTS
from gen.tunables import Choice
from gen.tunables import Tunable as Tunable
from gen.variant import MAX_GRID_YZ as MAX_GRID_YZ
from gen.variant import MAX_STATIC_SHARED, Geometry, LaunchConfig, Variant
from gen.variant import ceil_div as ceil_div

VARIANTS: Mapping[str, Variant] = {v.name: v for v in (*SCALAR_VARIANTS, *TENSOR_VARIANTS)}


def get_variant(name: str) -> Variant:
    """The row called `name`. Raises UsageError with the nearest name."""
    if name not in VARIANTS:
        raise unknown("variant", name, VARIANTS)
    return VARIANTS[name]


def _resolve(variant: Variant, given: Mapping[str, Any], chosen: Choice) -> dict[str, Any]:
    """Every tunable's value: the given one, checked, or the default."""
    names = [t.name for t in variant.tunables]
    for name in given:
        if name not in names:
            raise SpecError(f"{variant.name} has no tunable '{name}'; it has {', '.join(names)}")
    values: dict[str, Any] = {}
    for t in variant.tunables:
        values[t.name] = t.resolve(given.get(t.name), chosen._replace(values=values))
    variant.rules(chosen._replace(values=values))
    return values


def _check_shared(variant: Variant, geometry: Geometry, arch: str, given: Collection[str]) -> None:
    static, dynamic = geometry.static_shared, geometry.dynamic_shared
    blame = given or [t.name for t in variant.tunables]  # the defaults alone fit
    most = SHARED_KIB[compute_capability(arch)] * 1024
    for bytes_, limit, what in (
        (static, MAX_STATIC_SHARED, "a kernel may declare"),
        (static + dynamic, most, f"a block may have on {arch}"),
    ):
        if bytes_ > limit:
            raise SpecError(
                f"{variant.name} wants {bytes_} bytes of shared memory, more than the {limit} "
                f"that {what}; use a smaller {' or '.join(blame)}"
            )


def _check_arch(row: Variant, arch: str) -> None:
    cc = compute_capability(arch)
    if cc < row.min_arch and row.max_arch is None:
        raise SpecError(f"{row.name} needs sm_{row.min_arch} or newer, not {arch}")
    if not row.runs_on(cc):
        raise SpecError(
            f"{row.name} needs {row.default_arch}, not {arch}: its instructions are those of "
            f"compute capability {row.min_arch // 10}.{row.min_arch % 10} alone"
        )


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
    dtype, arch = dtype or row.dtypes[0], arch or row.default_arch
    types, layouts = parse_dtype(dtype), parse_layout(layout)
    if dtype not in row.dtypes:
        raise SpecError(f"{variant} has no dtype {dtype}; use {', '.join(row.dtypes)}")
    _check_arch(row, arch)
    given = {k: v for k, v in tunables.items() if v is not None}
    values = _resolve(row, given, Choice(types, layouts, arch, {}))
    g = row.geometry(values, types)
    _check_shared(row, g, arch, given)
    return KernelSpec(
        variant, types, layouts, arch, values, g.threadblock, g.threads,
        g.warp, g.instruction, symbol=name,
    )  # fmt: skip


def spec_from_json(text: str) -> KernelSpec:
    """The specification that `KernelSpec.to_json` wrote. Raises UsageError or SpecError."""
    try:
        fields = json.loads(text)
        return make_spec(**fields)
    except (TypeError, ValueError) as error:
        raise UsageError(f"this is no kernel specification: {text!r} ({error})") from None


def retarget(spec: KernelSpec, arch: str) -> KernelSpec:
    """The same kernel for another architecture. Raises SpecError where that does not have it."""
    return spec_from_json(json.dumps({**json.loads(spec.to_json()), "arch": arch}))


def geometry(spec: KernelSpec) -> Geometry:
    """Tile, threads and shared memory of a specification."""
    return get_variant(spec.variant).geometry(spec.tunables, spec.dtypes)


def plan(
    spec: KernelSpec,
    problem: GemmProblem,
    alignment: Alignment = ALIGNED,
    multiprocessors: int = MULTIPROCESSORS,
) -> Plan:
    """How a kernel runs a problem on a GPU with so many multiprocessors. Raises SpecError."""
    return get_variant(spec.variant).plan(spec, problem, alignment, multiprocessors)


def launch_config(spec: KernelSpec, shape: GemmShape) -> LaunchConfig | None:
    """How the kernel itself is launched on packed operands of a shape; None where D is empty.

    Raises SpecError where a grid does not hold as many blocks.
    """
    if shape.m == 0 or shape.n == 0:
        return None
    main = plan(spec, GemmProblem.packed(shape, spec.layouts)).launch(spec.name)
    return LaunchConfig(main.grid, main.block, main.shared_bytes)
