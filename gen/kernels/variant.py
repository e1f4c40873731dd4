"""What a row of the registry holds, and the limits that all kernels have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gen.errors import SpecError
from gen.kernels.formulas import Fact, evaluate
from gen.kernels.launches import Dim3, Plan, one_launch
from gen.kernels.tunables import Choice, Conflict, Tunable, Word
from gen.spec.arch import compute_capability
from gen.spec.dtypes import SCALAR_DTYPES, DTypes
from gen.spec.kernel import EPILOGUES, KernelSpec, Tile
from gen.spec.problem import Alignment, GemmProblem, Layouts

MAX_THREADS = 1024  # per block, on every GPU so far
MAX_GRID_X = 2**31 - 1  # blocks along x; along y and z there are at most 65,535
MAX_GRID_YZ = 65_535
MAX_STATIC_SHARED = 48 * 1024  # bytes a kernel may declare without asking the driver for more


@dataclass(frozen=True)
class Geometry:
    """What follows from the tunables: the tile, the threads, the shared memory, the grid.

    Of `facts`, which the launcher in the emitted file has line by line, grid_x and grid_y are the
    blocks for a shape with M, N >= 1; they may name `constants` of the file. Kernels with a plan
    of their own have none. `values` are further values for the template, and replace tunables of
    the same name there. Along the axes in `strides` ("x",
    "y") the kernel is right with fewer blocks, too: they stride over the rest.
    """

    threadblock: Tile
    threads: tuple[int, int]
    facts: tuple[Fact, ...] = ()
    constants: Mapping[str, int] = field(default_factory=dict)
    static_shared: int = 0
    dynamic_shared: int = 0
    values: Mapping[str, Any] = field(default_factory=dict)
    strides: str = ""
    warp: Tile | None = None
    instruction: Tile | None = None


class Candidate(NamedTuple):
    """A tile of D that may suit a problem where the caller chooses none.

    `time` is that of an element of D, relative to the other candidates'. `tunables` make the kernel
    compute such tiles.
    """

    tile: Tile
    time: float
    tunables: Mapping[str, Any]


def _no_rules(_: Choice) -> None:
    pass


def _nothing_more(_: KernelSpec) -> Mapping[str, Any]:
    return {}


def _no_candidates(_: Choice) -> Sequence[Candidate]:
    return ()


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

    `rank`: where the caller names no kernel, the one of the highest rank that can run the problem
    is taken; one of rank 0 never is. `candidates` are the tiles among which it is then chosen, the
    largest first and the smallest last; without any, the kernel's defaults are taken.

    `transposes`: where D is column-major, the kernel computes its transpose, so that the rows of a
    tile are columns of D. `persistent`: a block computes tile after tile.
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
    rank: int = 0
    candidates: Callable[[Choice], Sequence[Candidate]] = _no_candidates
    transposes: bool = False
    persistent: bool = False

    def __repr__(self) -> str:
        return f"<{self.name}>"

    @property
    def tunable_names(self) -> list[str]:
        """What may be chosen of it, in the order in which it is."""
        return [tunable.name for tunable in self.tunables]

    @property
    def takes_workspace(self) -> bool:
        """Whether the launcher takes a workspace: there may be more than the one launch."""
        return self.planner is not None

    @property
    def depends_on_alignment(self) -> bool:
        """Whether what is launched depends on where the operands lie."""
        return self.planner is not None

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
        for t in self.tunables:
            values[t.name] = t.resolve(given.get(t.name), chosen._replace(values=values))
        return values

    def plan(
        self, spec: KernelSpec, problem: GemmProblem, alignment: Alignment, multiprocessors: int
    ) -> Plan:
        """How a kernel of this row runs a problem: not at all where D is empty.

        Raises SpecError for a problem that the kernel, or a grid, is too small for.
        """
        shape, g = problem.shape, spec.geometry
        for name, size in zip("MNK", (shape.m, shape.n, shape.k), strict=True):
            if size > self.most:
                raise SpecError(f"{name}={size} is more than {self.name} takes; use {self.most}")
        if not (shape.m and shape.n):
            return Plan(())
        if self.planner:
            made = self.planner(spec, problem, alignment, multiprocessors)
        else:
            given = {"M": shape.m, "N": shape.n, "K": shape.k, **g.constants}
            found = evaluate(g.facts, given)
            grid: Dim3 = (found["grid_x"], found.get("grid_y", 1), 1)
            made = one_launch(spec, problem, grid, g.dynamic_shared)
        for launch in made.launches:
            for axis, size, limit in zip("xyz", launch.grid, _MAX_GRID, strict=True):
                if size > limit:
                    raise SpecError(
                        f"{shape} needs {size} blocks along {axis}, more than {limit}; "
                        "use a smaller problem or larger tiles"
                    )
        return made


_MAX_GRID = (MAX_GRID_X, MAX_GRID_YZ, MAX_GRID_YZ)


EPILOGUE = Word(
    "epilogue", "what is applied to an accumulator before it is stored", "linear", EPILOGUES
)


def epilogue_rule(epilogue: str, dtypes: DTypes) -> None:
    """Raises Conflict for an epilogue that the element types do not have."""
    if epilogue.endswith("gelu") and not dtypes.scalar.is_float:
        raise Conflict(
            f"epilogue={epilogue} needs sums in floating point, not {dtypes.name}", "epilogue"
        )
