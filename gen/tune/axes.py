"""What a sweep tries: every combination of the axes' values, for every kernel and shape.

The sweep that runs by default is the exercise every course on CUDA sets: one thread per element
against square tiles in shared memory, in blocks of 1 to 32 threads a side. There, what is varied is
a tunable of one kernel and the square root of another's; this is the axis `side`, which every
kernel has that has either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gen.errors import SpecError, UsageError, unknown
from gen.foreign.expressions import split
from gen.kernels.registry import VARIANTS, get_variant, make_spec
from gen.kernels.tunables import Tunable, Value
from gen.kernels.variant import Variant
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmShape

SIDE = "side"  # threads along each side of a square block
DEFAULT_VARIANTS = ("naive", "tiles")
DEFAULT_AXES: Mapping[str, tuple[int, ...]] = {SIDE: (1, 2, 4, 8, 16, 32)}
DEFAULT_DTYPE = "i32"
DEFAULT_SIZES = {"gpu": (256, 512, 1024, 4096), "cpu": (64, 128, 256, 512)}


@dataclass(frozen=True)
class Cell:
    """One kernel on one shape: where it is in the sweep, and what is run there.

    `values` has those of the axes that the kernel has. Without `spec` there is no such kernel, and
    `why` says so.
    """

    variant: str
    dtype: str
    layout: str
    shape: GemmShape
    values: Mapping[str, Value]
    spec: KernelSpec | None
    why: str = ""


@dataclass(frozen=True)
class SweepPlan:
    """The kernels, what they are varied over, and what stays the same for all (`fixed`)."""

    variants: Sequence[str]
    shapes: Sequence[GemmShape]
    axes: Mapping[str, Sequence[Value]]
    dtypes: Sequence[str] = (DEFAULT_DTYPE,)
    layouts: Sequence[str] = ("rrr",)
    arch: str | None = None
    fixed: Mapping[str, Value] = field(default_factory=dict)

    def cells(self) -> list[Cell]:
        """Every cell, the smallest shape first, so that something is known early.

        Raises SpecError where no kernel has one of the axes or fixed tunables, or where none of
        the combinations can be built, and UsageError where a fixed tunable is an axis.
        """
        rows = [get_variant(name) for name in dict.fromkeys(self.variants)]
        for name in [*self.axes, *self.fixed]:
            if not any(_has(row, name) for row in rows):
                raise SpecError(_no_axis(name, rows))
        for row in rows:
            _check_fixed(row, self.axes, self.fixed)
        shapes = sorted(dict.fromkeys(self.shapes), key=lambda s: (s.m * s.n * s.k, s))
        cells = [
            self._cell(row, dtype, layout, shape, values)
            for dtype in dict.fromkeys(self.dtypes)
            for layout in dict.fromkeys(self.layouts)
            for shape in shapes
            for row in rows
            for values in _combinations(self.axes, row)
        ]
        if cells and not any(cell.spec for cell in cells):
            raise SpecError(f"none of the sweep's kernels can be built: {cells[0].why}")
        return cells

    def _cell(
        self, row: Variant, dtype: str, layout: str, shape: GemmShape, values: Mapping[str, Value]
    ) -> Cell:
        tunables: dict[str, Any] = {
            name: value for name, value in self.fixed.items() if _has(row, name)
        }
        for name, value in values.items():
            tunables |= _tunable(row, name, value)
        spec, why = None, ""
        try:
            spec = make_spec(row.name, dtype=dtype, layout=layout, arch=self.arch, **tunables)
        except (SpecError, UsageError) as error:
            why = str(error)
        return Cell(row.name, dtype, layout, shape, values, spec, why)


def _has(row: Variant, axis: str) -> bool:
    names = row.tunable_names
    return axis in names or (axis == SIDE and ("tile" in names or "threads" in names))


def _tunable(row: Variant, axis: str, value: Value) -> dict[str, Value]:
    if axis != SIDE:
        return {axis: value}
    side = int(value)
    return {"tile": side} if "tile" in row.tunable_names else {"threads": side * side}


def _check_fixed(row: Variant, axes: Mapping[str, Any], fixed: Mapping[str, Value]) -> None:
    for axis, values in axes.items():
        if _has(row, axis) and (both := _tunable(row, axis, values[0]).keys() & fixed.keys()):
            name = both.pop()
            raise UsageError(
                f"{row.name}: {name}={fixed[name]} is fixed, and the axis '{axis}' varies it; "
                "leave out one of them"
            )


def _no_axis(name: str, rows: Sequence[Variant]) -> str:
    known = sorted({tunable for row in rows for tunable in row.tunable_names} | {SIDE})
    return f"{' and '.join(r.name for r in rows)} cannot vary '{name}'; use {', '.join(known)}"


def _combinations(axes: Mapping[str, Sequence[Value]], row: Variant) -> Iterator[dict[str, Value]]:
    own = [(name, list(dict.fromkeys(values))) for name, values in axes.items() if _has(row, name)]
    combinations: list[dict[str, Value]] = [{}]
    for name, values in own:
        combinations = [{**known, name: value} for known in combinations for value in values]
    return iter(combinations)


def parse_axis(text: str, known: Sequence[str]) -> tuple[str, tuple[Value, ...]]:
    """`tile=8,16,32` -> ("tile", (8, 16, 32)). Raises UsageError."""
    name, equals, values = text.partition("=")
    if equals and name not in known:
        raise unknown("axis", name, known)
    try:
        return name, tuple(axis_value(name, value) for value in split(values))
    except (UsageError, ValueError):
        tunable = _tunables().get(name)
        example = f"{name}={tunable.example}" if tunable else "tile=8,16,32"
        raise UsageError(f"axis '{text}' is not NAME=VALUE,VALUE,..., such as {example}") from None


def axis_value(name: str, value: object) -> Value:
    """A value of an axis as it is kept. Raises UsageError, ValueError."""
    tunable = _tunables().get(name)
    return tunable.parse(value) if tunable else int(str(value))


def _tunables() -> dict[str, Tunable]:
    return {t.name: t for row in VARIANTS.values() for t in row.tunables}
