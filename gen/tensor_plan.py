"""How the tensor-core kernels run a problem: packing, the product, the sum over slices of K.

The left operand has `rows` lines of D's row-major form, the right one `cols`. Where D is
column-major that form is its transpose, so that B' is on the left and A' on the right.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gen.plan import (
    BIAS,
    WORKSPACE,
    Alignment,
    Argument,
    Launch,
    Plan,
    Pointer,
    TensorMap,
    i64,
    matrices,
)
from gen.spec import GemmProblem, KernelSpec, compute_capability
from gen.variant import ceil_div

if TYPE_CHECKING:
    from gen.variant import Geometry

UNIT = 16  # bytes: what is copied at a time, and what addresses are multiples of
PACKED_LINE = 128  # bytes: what packed lines start at multiples of
SECTION = 256  # bytes: what the parts of the workspace start at multiples of
HELPER_THREADS = 256  # a block of the kernels that pack and reduce, which stride over the rest
PACK_LINES, PACK_UNITS, MOST_PACKING = 8, 32, (4096, 64)
MOST_BOX = 256  # lines that TMA copies at a time
STEPS_A_SLICE = 4  # along K, at least, where the number of slices is chosen by itself


@dataclass(frozen=True)
class Operand:
    """A matrix of the product as the kernel reads it: `rows` lines of D, summed over `k`.

    along_k: whether its elements are contiguous along K. `at` and `ld` are where it lies.
    """

    name: str
    rows: int
    k: int
    size: int
    along_k: bool
    at: Pointer
    ld: int

    @property
    def lines(self) -> int:
        """Lines of contiguous elements."""
        return self.rows if self.along_k else self.k

    @property
    def length(self) -> int:
        """Elements in a line."""
        return self.k if self.along_k else self.rows

    def in_place(self, aligned: bool) -> bool:
        """Whether the kernel can read it where it is: in units, and in an order that it has.

        ldmatrix transposes elements of 2 bytes, and no others.
        """
        return aligned and self.ld * self.size % UNIT == 0 and (self.along_k or self.size == 2)

    def packed(self, offset: int) -> Operand:
        """Its copy in the workspace, in an order that the kernel has.

        Lines that start at multiples of 128 bytes are read faster than those at multiples of 16.
        """
        copy = replace(self, along_k=self.along_k or self.size != 2, at=Pointer(WORKSPACE, offset))
        unit = PACKED_LINE // self.size
        return replace(copy, ld=ceil_div(copy.length, unit) * unit)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole, with what follows its last line."""
        return self.lines * self.ld * self.size


@dataclass(frozen=True)
class _Layout:
    """The operands as given and as the kernel reads them; where the partial sums are."""

    given: tuple[Operand, Operand]
    read: tuple[Operand, Operand]
    tiles: int
    slices: int
    partials: Pointer | None
    nbytes: int

    @property
    def rows(self) -> int:
        return self.given[0].rows

    @property
    def cols(self) -> int:
        return self.given[1].rows


def _operands(spec: KernelSpec, problem: GemmProblem) -> tuple[Operand, Operand]:
    """Left and right, where they are given."""
    s, size, order = problem.shape, spec.dtypes.input.size, spec.layouts
    a = Operand("A", s.m, s.k, size, order.a, Pointer("A"), problem.lda)
    b = Operand("B", s.n, s.k, size, not order.b, Pointer("B"), problem.ldb)
    return (a, b) if order.c else (b, a)


def _slices(spec: KernelSpec, k: int, tiles: int, multiprocessors: int) -> int:
    steps = max(ceil_div(k, spec.threadblock.k), 1)
    if spec.split_k:
        return min(spec.split_k, steps)
    if 2 * tiles > multiprocessors:
        return 1
    slices = min(multiprocessors // tiles, max(steps // STEPS_A_SLICE, 1))
    return ceil_div(steps, ceil_div(steps, slices))  # as few as have no more steps each


def _layout(
    spec: KernelSpec, problem: GemmProblem, alignment: Alignment, multiprocessors: int
) -> _Layout:
    given = _operands(spec, problem)
    left, right = given
    aligned = {"A": alignment.a, "B": alignment.b}
    tiles = ceil_div(left.rows, spec.threadblock.m) * ceil_div(right.rows, spec.threadblock.n)
    if tiles == 0:
        return _Layout(given, given, 1, 1, None, 0)
    read, at = [], 0
    for operand in given:
        if operand.k and not operand.in_place(aligned[operand.name]):
            operand = operand.packed(at)
            at += ceil_div(operand.nbytes, SECTION) * SECTION
        read.append(operand)
    slices = _slices(spec, problem.shape.k, tiles, multiprocessors)
    partials = Pointer(WORKSPACE, at) if slices > 1 or spec.split_k > 1 else None
    if partials:
        at += slices * tiles * spec.threadblock.m * spec.threadblock.n * spec.dtypes.scalar.size
    return _Layout(given, (read[0], read[1]), tiles, slices, partials, at)


def _null() -> Argument:
    import numpy as np

    return np.uint64(0)


def _pack(spec: KernelSpec, layout: _Layout) -> list[Launch]:
    args: dict[str, Argument] = {}
    packed = [r for g, r in zip(layout.given, layout.read, strict=True) if g != r]
    if not packed:
        return []
    for side, given, read in zip(("left", "right"), layout.given, layout.read, strict=True):
        packs = given != read
        args |= {
            f"{side}_lines": i64(read.lines if packs else 0),
            f"{side}_length": i64(read.length),
            side: given.at,
            f"{side}_ld": i64(given.ld),
            f"{side}_packed": read.at if packs else _null(),
            f"{side}_packed_ld": i64(read.ld),
        }
    lines = max(operand.lines for operand in packed)
    units = max(operand.ld * operand.size // UNIT for operand in packed)
    most_x, most_y = MOST_PACKING
    # What is left of a line after whole blocks, the first ones take as well.
    whole = max(units // PACK_UNITS, 1)
    grid = (min(ceil_div(lines, PACK_LINES), most_x), min(whole, most_y), 2)
    return [Launch(f"{spec.name}_pack", grid, (HELPER_THREADS, 1, 1), 0, args)]


def _reduce_width(spec: KernelSpec, slices: int) -> int:
    """Groups of four sums that a block adds up; its threads share the slices."""
    slices = spec.split_k or slices
    return 8 if slices > 64 else 16 if slices > 16 else 32


def _reduce(spec: KernelSpec, problem: GemmProblem, layout: _Layout) -> list[Launch]:
    if not layout.partials:
        return []
    whole = matrices(problem, spec.dtypes)
    names = ("M", "N", "alpha", "beta", "C", "ldc", "D", "ldd")
    args = {name: whole[name] for name in names} | _extra(spec, layout)
    fours = layout.tiles * spec.threadblock.m * spec.threadblock.n // 4
    grid = (fours // _reduce_width(spec, layout.slices), 1, 1)
    return [Launch(f"{spec.name}_reduce", grid, (HELPER_THREADS, 1, 1), 0, args)]


def _extra(spec: KernelSpec, layout: _Layout) -> dict[str, Argument]:
    """What follows ldd: the bias, the slices."""
    bias: dict[str, Argument] = {"bias": Pointer(BIAS)} if spec.has_bias else {}
    if spec.split_k == 1:
        return bias
    return {**bias, "slices": i64(layout.slices), "partials": layout.partials or _null()}


# What only the kernel that writes D needs to know: with slices of K, that is the reduction.
_OF_D = ("alpha", "beta", "C", "ldc", "D", "ldd", "bias", "map_out")


def plan_mma(
    spec: KernelSpec,
    geometry: Geometry,
    problem: GemmProblem,
    alignment: Alignment,
    multiprocessors: int,
) -> Plan:
    """The plan of `mma`: one block for each tile and slice."""
    layout = _layout(spec, problem, alignment, multiprocessors)
    args = matrices(problem, spec.dtypes)
    for operand in layout.read:
        args |= {operand.name: operand.at, f"ld{operand.name.lower()}": i64(operand.ld)}
    grid = (layout.tiles, layout.slices, 1)
    main = Launch(
        spec.name,
        grid,
        (*spec.threads, 1),
        geometry.dynamic_shared,
        {**args, **_extra(spec, layout)},
    )
    return _plan(spec, problem, layout, main)


def plan_tma(
    spec: KernelSpec,
    geometry: Geometry,
    problem: GemmProblem,
    alignment: Alignment,
    multiprocessors: int,
) -> Plan:
    """The plan of `mma_tma`: blocks that stay, as many as there are multiprocessors."""
    layout = _layout(spec, problem, alignment, multiprocessors)
    whole, (left, right) = matrices(problem, spec.dtypes), layout.read
    values = geometry.values
    box = (values["staging_line"] // spec.dtypes.output.size, values["staged_rows"])
    work = layout.tiles * layout.slices
    has_maps = layout.rows > 0 and layout.cols > 0  # a kernel that is `early` prefetches by them
    early = has_maps and work <= multiprocessors and layout.read == layout.given
    args = {
        **{name: whole[name] for name in ("M", "N", "K", "alpha")},
        "map_left": _map(spec, left, right, spec.threadblock.m),
        "map_right": _map(spec, right, left, spec.threadblock.n),
        "map_out": _map_out(spec, problem, layout, box, alignment.d),
        **{name: whole[name] for name in ("beta", "C", "ldc", "D", "ldd")},
        "early": i64(early),
        **_extra(spec, layout),
    }
    grid = (min(work, multiprocessors), 1, 1)
    main = Launch(spec.name, grid, (*spec.threads, 1), geometry.dynamic_shared, args)
    return _plan(spec, problem, layout, main)


def _plan(spec: KernelSpec, problem: GemmProblem, layout: _Layout, main: Launch) -> Plan:
    """All launches; `main` is that of the product, with the arguments of a kernel that writes D."""
    early = compute_capability(spec.arch) >= 90  # from then on, kernels wait for the ones before
    if spec.split_k > 1:
        main = replace(main, args={k: v for k, v in main.args.items() if k not in _OF_D})
    main = replace(main, all_shared=early and spec.split_k != 1)
    launches = (*_pack(spec, layout), main, *_reduce(spec, problem, layout))
    return Plan(tuple(replace(launch, early=early) for launch in launches), layout.nbytes)


def _map(spec: KernelSpec, operand: Operand, other: Operand, tile_lines: int) -> TensorMap:
    k, size = spec.threadblock.k, operand.size
    # TMA takes long for lines that a matrix does not have.
    lines = min(tile_lines, max(operand.rows, 1))
    box = (k, min(lines, MOST_BOX)) if operand.along_k else (64, k)
    empty = 0 in (operand.rows, operand.k, other.rows)  # no step along K is ever made
    return TensorMap(
        operand.at,
        spec.dtypes.input.name,
        (0, 0) if empty else (operand.length, operand.lines),
        operand.ld * size,
        box,
        box[0] * size,
    )


def _map_out(
    spec: KernelSpec, problem: GemmProblem, layout: _Layout, box: tuple[int, int], aligned: bool
) -> TensorMap:
    """D as TMA writes it; a map of nothing where its rows do not start at multiples of 16 bytes."""
    output, pitch = spec.dtypes.output, problem.ldd * spec.dtypes.output.size
    dims = (layout.cols, layout.rows) if aligned and pitch % UNIT == 0 else (0, 0)
    return TensorMap(Pointer("D"), output.name, dims, pitch, box, box[0] * output.size)
