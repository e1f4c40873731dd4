"""What a row of the registry holds, and the limits that all kernels have."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from gen.errors import SpecError
from gen.kernels.batches import check_batch
from gen.kernels.formulas import Fact, evaluate
from gen.kernels.launches import Dim3, Plan, one_kernel
from gen.kernels.signature import given_as
from gen.kernels.tunables import Choice, Conflict, Flag, Integer, Tunable
from gen.spec.arch import MAX_GRID_X, MAX_GRID_YZ, compute_capability
from gen.spec.dtypes import SCALAR_DTYPES, DTypes
from gen.spec.kernel import KernelSpec, Tile
from gen.spec.problem import Alignment, GemmProblem, GemmShape, Layouts

MAX_THREADS = 1024  # per block, on every GPU so far


class Geometry(NamedTuple):
    """What follows from the tunables: the tile, the threads, the shared memory, the grid.

    Of `facts`, which the launcher in the emitted file has line by line, grid_x and grid_y are the
    blocks for a shape with M, N >= 1; they may name `constants` of the file. Kernels with a plan
    of their own have none. `values` are further values for the template, and replace tunables of
    the same name there. Along the axes in `strides` ("x", "y") the kernel is right with fewer
    blocks, too: they stride over the rest. On tensor cores, `teams` of warps take turns along K,
    each with sums of its own; a turn is the step along K, or a `slab`, whose products instructions
    add up in an order of their own.
    """

    threadblock: Tile
    threads: tuple[int, int]
    facts: tuple[Fact, ...] = ()
    constants: Mapping[str, int] = {}
    static_shared: int = 0
    dynamic_shared: int = 0
    values: Mapping[str, Any] = {}
    strides: str = ""
    warp: Tile | None = None
    instruction: Tile | None = None
    teams: int = 1
    slab: int = 0


class Pace(NamedTuple):
    """How fast a row's kernels are, for the model of `gen.dispatch`. Times are in clocks, but for
    those once in a launch.

    unit: what multiplies: "cuda" (CUDA cores), "mma" (mma.sync) or "wgmma". share: of what that
    unit can do by the data sheet, what the main loop comes to. wait: of a step along K, beyond its
    products, such as barriers; wait_k: the same for each element along K; across_k: for each
    element of an operand whose lines run along K; copied: for each element of both, where threads
    copy these one by one; small: of the time to copy an operand, what small loads take longer where
    it is not aligned; alone: what a step takes longer where no other
    block of the multiprocessor works meanwhile. last: of a work tile, until its first operands are
    there and after its last step. store: of 128 elements of D; rough: times as long where lines of
    D are not aligned; scatter: times as many bytes where neighbouring threads write elements of a
    row, and D is column-major. gather: the same for loads of the short operand, where the kernel is
    for few rows or columns. along: times `share`, where lines of that kernel's long operand run
    along K. reads: multiplications of a lane that take as long as what it reads for those of a k.
    thin: times more bytes of an operand along K that memory moves, for each time that a step is
    shorter than `weights.THICK`. start: nanoseconds of a launch; across: nanoseconds more for each
    operand whose lines run across K; meeting: where blocks of a cluster share K; code: for each
    element that a thread has, since cold instructions have to be fetched. registers: of a thread,
    about, where they do not follow from the sums of a warp; besides, sums: where the long operand's
    lines run along K, those for all else, and for each sum of a block; reduced: clocks there for
    each of these sums, which lanes add up; teams: of a work tile, where teams of warps add up
    theirs. exact: whether it computes no more than there is along K, in place of whole steps.
    lines: whether a block computes whole rows. flows: whether blocks are so small and many that one
    ends while others work. lengthwise: the pace where the long operand's lines run along K, if that
    is another.

    Numbers are fitted to times of an H200 (docs/lab/model.md).
    """

    unit: str
    share: float
    wait: float = 0
    wait_k: float = 0
    across_k: float = 0
    copied: float = 0
    small: float = 0.6
    alone: float = 0
    last: float = 0
    store: float = 8
    rough: float = 2
    scatter: float = 1
    gather: float = 1
    along: float = 1
    reads: float = 0
    thin: float = 0
    start: float = 900
    across: float = 0
    meeting: float = 0
    code: float = 10
    registers: int = 0
    besides: int = 0
    sums: float = 0
    reduced: float = 0
    teams: float = 0
    exact: bool = False
    lines: bool = False
    flows: bool = False
    lengthwise: Pace | None = None


def _no_rules(_: Choice) -> None:
    pass


def _nothing_more(_: KernelSpec) -> Mapping[str, Any]:
    return {}


def _defaults(_: Choice) -> Sequence[Mapping[str, Any]]:
    return ({},)


Planner = Callable[[KernelSpec, GemmProblem, Alignment, int], Plan]


@dataclass(frozen=True, eq=False, repr=False)
class Variant:
    """A kernel's row: names, limits, tunables, and what follows from them.

    Rules elsewhere ask the row; none of them goes by a kernel's name.

    `rules` raises Conflict for tunables that do not go together. `planner` makes the plan where
    one launch of its geometry's blocks is not enough. `printed` gives what the template prints
    besides tunables and geometry. `most` is the largest M, N and K. `max_arch` is the last compute
    capability that has the instructions, if the kernel needs those of one architecture. `since` has
    the compute capabilities from which on there are element types, for those that come later than
    `min_arch`.

    `grid`: the tunables that are chosen among where the caller names no kernel; what is left out
    has its default, and what breaks a rule is no choice. `fitted`: more of them for a single
    problem: its shape, how many products, and the GPU's multiprocessors. `pace` says how fast they
    are, of given types; a row without one is never chosen.

    `waits`: from compute capability 9.0 on, its kernel waits by itself for those before, so that it
    may start while they end. Rows with a planner say so for each launch.

    `transposes`: where D is column-major, the kernel computes its transpose, so that the rows of a
    tile are columns of D. `persistent`: a block computes tile after tile. `by_vectors`: its one
    launch reads operands by vectors where they are aligned. `adds_as_aligned`: which thread adds up
    which products depends on that, too, and with it the result's last bits.
    """

    name: str
    summary: str
    template: str
    tunables: tuple[Tunable, ...]
    geometry: Callable[[Mapping[str, Any], DTypes], Geometry]
    dtypes: tuple[str, ...] = SCALAR_DTYPES
    since: Mapping[str, int] = field(default_factory=dict)
    min_arch: int = 75
    max_arch: int | None = None
    default_arch: str = "sm_80"
    rules: Callable[[Choice], None] = _no_rules
    planner: Planner | None = None
    printed: Callable[[KernelSpec], Mapping[str, Any]] = _nothing_more
    most: int = 2**63 - 1
    grid: Callable[[Choice], Sequence[Mapping[str, Any]]] = _defaults
    fitted: Callable[[Choice, GemmShape, int, int], Sequence[Mapping[str, Any]]] | None = None
    pace: Callable[[DTypes], Pace] | None = None
    transposes: bool = False
    persistent: bool = False
    by_vectors: bool = False
    adds_as_aligned: bool = False
    waits: bool = False

    def __repr__(self) -> str:
        return f"<{self.name}>"

    @cached_property
    def tunable_names(self) -> tuple[str, ...]:
        """What may be chosen of it, in the order in which it is."""
        return tuple(tunable.name for tunable in self.tunables)

    @property
    def takes_workspace(self) -> bool:
        """Whether the launcher takes a workspace: there may be more than the one launch."""
        return self.planner is not None

    @property
    def depends_on_alignment(self) -> bool:
        """Whether what is launched, or how it copies, depends on where the operands lie."""
        return self.planner is not None or self.by_vectors

    def usual_arch(self, dtype: str) -> str:
        """The architecture that kernels for these element types are made for by default."""
        since = self.since.get(dtype, 0)
        newer = since > compute_capability(self.default_arch)
        return f"sm_{since}" if newer else self.default_arch

    def runs_on(self, cc: int) -> bool:
        """Whether a GPU of this compute capability has what the kernel needs."""
        return self.min_arch <= cc <= (self.max_arch or cc)

    def has(self, dtype: str, cc: int) -> bool:
        """Whether there is a kernel for these element types and this compute capability."""
        return dtype in self.dtypes and self.runs_on(cc) and self.since.get(dtype, 0) <= cc

    def tags(
        self, values: Mapping[str, Any], dtypes: DTypes, layouts: Layouts, arch: str
    ) -> list[str]:
        """The tunables' values that are not the defaults, as kernels' names have them."""
        chosen = Choice(dtypes, layouts, arch, values)
        return [t.in_name(values[t.name]) for t in self.unusual(chosen)]

    def unusual(self, chosen: Choice) -> list[Tunable]:
        """The tunables whose values are not the defaults."""
        return [t for t in self.tunables if chosen.values[t.name] != t.usual(chosen)]

    def resolve(self, given: Mapping[str, Any], chosen: Choice) -> dict[str, Any]:
        """Every tunable's value: the given one or the default, unchecked. Raises UsageError."""
        values: dict[str, Any] = {}
        so_far = chosen._replace(values=values)
        for t in self.tunables:
            value, usual = given.get(t.name), t.default
            if value is not None:
                values[t.name] = t.parse(value)
            else:
                values[t.name] = usual(so_far) if callable(usual) else usual
        return values

    def plan(
        self, spec: KernelSpec, problem: GemmProblem, alignment: Alignment, multiprocessors: int
    ) -> Plan:
        """How a kernel of this row runs a problem: not at all where D is empty.

        Raises SpecError for a problem that the kernel, or a grid, is too small for, and for a batch
        whose results overlap.
        """
        shape, g = problem.shape, spec.geometry
        for name, size in zip("MNK", (shape.m, shape.n, shape.k), strict=True):
            if size > self.most:
                raise SpecError(f"{name}={size} is more than {self.name} takes; use {self.most}")
        check_batch(problem, spec.layouts, spec.several)
        if not (shape.m and shape.n and problem.batch.products):
            return Plan(())
        if self.planner:
            made = self.planner(spec, problem, alignment, multiprocessors)
        else:
            given = {"M": shape.m, "N": shape.n, "K": shape.k, **g.constants}
            found = evaluate(launch_facts(spec), given)
            grid: Dim3 = (found["grid_x"], found.get("grid_y", 1), 1)
            early = self.waits and compute_capability(spec.arch) >= 90
            made = one_kernel(spec, problem, grid, g.dynamic_shared, early)
        for launch in made.launches:
            for axis, size, limit in zip("xyz", launch.grid, _MAX_GRID, strict=True):
                if size > limit:
                    raise SpecError(
                        f"{shape} needs {size} blocks along {axis}, more than {limit}; "
                        "use a smaller problem or larger tiles"
                    )
        return made


def launch_facts(spec: KernelSpec) -> tuple[Fact, ...]:
    """The facts of its geometry, in the M and N of the caller."""

    def text(fact: Fact) -> str:
        return re.sub(r"\b[MN]\b", lambda name: given_as(name[0], spec.swapped), fact.text)

    return tuple(fact._replace(text=text(fact)) for fact in spec.geometry.facts)


_MAX_GRID = (MAX_GRID_X, MAX_GRID_YZ, MAX_GRID_YZ)


STREAM_K = Integer(
    "stream_k",
    "1: blocks share work tiles along K that would not fill a round, so that all end together",
    0,
    0,
    1,
    tag="stream",
)
BATCHED = Flag("batched", "take a batch: products of one shape, at strides in memory")
GROUPED = Flag("grouped", "take groups of rows, with a matrix B each: the device reads how many")
GROUPED_K = Flag(
    "grouped_k", "take groups along K, with a matrix D each: the device reads how many"
)


def multiple_rule(tunable: str, axis: str, value: int, step: int, of: str, *others: str) -> None:
    """Raises Conflict for a tunable, or a side of a tile, that is no multiple of others' `step`."""
    if step <= 0 or value <= 0 or value % step:
        what = f"{tunable}.{axis}" if axis else tunable
        raise Conflict(f"{what}={value} is not a multiple of {of}", tunable, *others)
