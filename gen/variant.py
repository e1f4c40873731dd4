"""What a row of the registry holds, and the limits that all kernels have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gen.dtypes import SCALAR_DTYPES, DTypes
from gen.errors import SpecError
from gen.plan import Alignment, Dim3, Plan, one_launch
from gen.spec import GemmProblem, GemmShape, KernelSpec, Tile
from gen.tunables import Choice, Tunable

MAX_THREADS = 1024  # per block, on every GPU so far
MAX_GRID_X = 2**31 - 1  # blocks along x; along y and z there are at most 65,535
MAX_GRID_YZ = 65_535
MAX_STATIC_SHARED = 48 * 1024  # bytes a kernel may declare without asking the driver for more


@dataclass(frozen=True)
class Geometry:
    """What follows from the tunables: the tile, the threads, the shared memory, the grid.

    `grid` gives the blocks (x, y, z) for a shape with M, N >= 1, as the launcher in the emitted
    file computes them; kernels with a plan of their own have none. `values` are further values for
    the template, and replace tunables of the same name there. Along the axes in `strides` ("x",
    "y") the kernel is right with fewer blocks, too: they stride over the rest.
    """

    threadblock: Tile
    threads: tuple[int, int]
    grid: Callable[[GemmShape], Dim3] | None = None
    static_shared: int = 0
    dynamic_shared: int = 0
    values: Mapping[str, Any] = field(default_factory=dict)
    strides: str = ""
    warp: Tile | None = None
    instruction: Tile | None = None


class LaunchConfig(NamedTuple):
    """Blocks, threads a block, bytes of dynamic shared memory."""

    grid: Dim3
    block: Dim3
    shared_bytes: int


def _no_rules(_: Choice) -> None:
    pass


Planner = Callable[[KernelSpec, Geometry, GemmProblem, Alignment, int], Plan]


@dataclass(frozen=True)
class Variant:
    """A kernel's row: names, limits, tunables, and what follows from them.

    `rules` raises SpecError for tunables that do not go together. `planner` makes the plan where
    one launch of `Geometry.grid` blocks is not enough; with it, what is launched may depend on the
    alignment of the operands. `most` is the largest M, N and K. `max_arch` is the last compute
    capability that has the instructions, if the kernel needs those of one architecture.
    """

    name: str
    summary: str
    template: str
    tunables: tuple[Tunable, ...]
    geometry: Callable[[Mapping[str, Any], DTypes], Geometry]
    dtypes: tuple[str, ...] = SCALAR_DTYPES
    min_arch: int = 75
    max_arch: int | None = None
    default_arch: str = "sm_80"
    rules: Callable[[Choice], None] = _no_rules
    planner: Planner | None = None
    most: int = 2**63 - 1

    def runs_on(self, cc: int) -> bool:
        """Whether a GPU of this compute capability has what the kernel needs."""
        return self.min_arch <= cc <= (self.max_arch or cc)

    def plan(
        self, spec: KernelSpec, problem: GemmProblem, alignment: Alignment, multiprocessors: int
    ) -> Plan:
        """How a kernel of this row runs a problem. An empty D is launched as well, with one block.

        Raises SpecError for a problem that the kernel, or a grid, is too small for.
        """
        shape, g = problem.shape, self.geometry(spec.tunables, spec.dtypes)
        for name, size in zip("MNK", (shape.m, shape.n, shape.k), strict=True):
            if size > self.most:
                raise SpecError(f"{name}={size} is more than {self.name} takes; use {self.most}")
        if self.planner:
            made = self.planner(spec, g, problem, alignment, multiprocessors)
        else:
            assert g.grid
            grid = g.grid(shape) if shape.m and shape.n else (1, 1, 1)
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


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded up; the number of tiles of b that cover a."""
    return -(-a // b)
