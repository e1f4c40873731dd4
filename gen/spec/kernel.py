"""`KernelSpec`: one kernel, completely chosen, with what follows from the choice.

A specification says how a kernel is built, a `GemmProblem` what it is run on; the two never mix.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from gen.spec.arch import MAX_GRID_X, MULTIPROCESSORS
from gen.spec.dtypes import DTypes
from gen.spec.epilogue import Epilogue, Operand, parse_epilogue
from gen.spec.names import check_symbol, default_symbol
from gen.spec.problem import (
    ALIGNED,
    BATCH,
    GROUPS,
    GROUPS_K,
    SINGLE,
    Alignment,
    GemmProblem,
    Layouts,
    Several,
)

if TYPE_CHECKING:
    from gen.kernels.launches import Plan
    from gen.kernels.variant import Geometry, Variant


class Tile(NamedTuple):
    """Rows and columns of D, and the step along K."""

    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"


# What follows the product, by name: alpha * A * B + beta * C is `linear`; then comes one
# bias for each column of D, then a function of each element. Others are expressions.
EPILOGUES = ("linear", "linear_bias", "linear_bias_relu", "linear_bias_gelu")


def option_of(name: str, value: Any) -> str:
    """What chooses a tunable's value on the command line: `--split-k 4`, or a flag alone."""
    option = f"--{name.replace('_', '-')}"
    return option if value is True else f"{option} {shlex.quote(str(value))}"


def cluster_of(tunables: Mapping[str, Any]) -> tuple[int, int, int]:
    """Blocks of a cluster along M, N and K: those of "2x1", "1x1x2"."""
    return _cluster(str(tunables.get("cluster", "1x1")))


@lru_cache(maxsize=256)
def _cluster(text: str) -> tuple[int, int, int]:
    rows, columns, *along_k = map(int, text.split("x"))
    return rows, columns, along_k[0] if along_k else 1


@dataclass(frozen=True)
class KernelSpec:
    """One kernel, completely chosen. Made by `gen.kernels.registry.make_spec`, which checks it.

    `row` is the kernel's row of the registry. `tunables` are what the user may set, each an integer
    or the text that stands for it ("64x64"). `symbol` is the user's name for the kernel, if any.
    """

    row: Variant
    dtypes: DTypes
    layouts: Layouts
    arch: str
    tunables: Mapping[str, Any]
    symbol: str | None = None

    def __post_init__(self) -> None:
        if self.symbol is not None:
            check_symbol(self.symbol)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Rankings look for kernels again and again."""
        tunables = frozenset(self.tunables.items())
        return hash((self.row, self.dtypes, self.layouts, self.arch, tunables, self.symbol))

    @property
    def variant(self) -> str:
        """The name of the kernel's row."""
        return self.row.name

    @cached_property
    def geometry(self) -> Geometry:
        """The tile, the threads and the shared memory, which follow from the tunables."""
        return self.row.geometry(self.tunables, self.dtypes)

    @property
    def threadblock(self) -> Tile:
        """The part of D that a block computes at a time, and its step along K."""
        return self.geometry.threadblock

    @property
    def threads(self) -> tuple[int, int]:
        """Threads of a block along x and y."""
        return self.geometry.threads

    @property
    def warp(self) -> Tile | None:
        """The part of it that a warp computes, on tensor cores."""
        return self.geometry.warp

    @property
    def instruction(self) -> Tile | None:
        """The sizes of the tensor-core instruction."""
        return self.geometry.instruction

    @property
    def swapped(self) -> bool:
        """Whether it computes the transpose of D, B' * A': M and N, A and B are exchanged there."""
        return self.row.transposes and not self.layouts.c

    @property
    def stages(self) -> int:
        """Tiles of each operand in shared memory at the same time."""
        return int(self.tunables.get("stages", 1))

    @property
    def sliced_k(self) -> int:
        """Teams of warps that compute the same tile and take turns along K."""
        return int(self.tunables.get("sliced_k", 1))

    @property
    def cluster(self) -> tuple[int, int]:
        """Blocks of a cluster along M and N, which share operands."""
        return cluster_of(self.tunables)[:2]

    @property
    def cluster_k(self) -> int:
        """Blocks of a cluster that share each work tile along K."""
        return cluster_of(self.tunables)[2]

    @property
    def cluster_blocks(self) -> int:
        """All blocks of a cluster."""
        return math.prod(cluster_of(self.tunables))

    @property
    def has_large_clusters(self) -> bool:
        """Whether clusters may leave multiprocessors over: those of two blocks have each a pair."""
        return self.cluster_blocks > 2

    @property
    def split_k(self) -> int:
        """Slices of K that are summed apart, at most; 0: as many as suit problem and GPU."""
        return int(self.tunables.get("split_k", 1))

    @property
    def slices_of_k(self) -> int:
        """Slices of K that blocks sum apart, at most, by split-K or in a cluster; 0: as many as
        suit problem and GPU.
        """
        return self.split_k * self.cluster_k

    @property
    def stream_k(self) -> bool:
        """Whether blocks share work tiles along K, so that all end together."""
        return bool(self.tunables.get("stream_k", 0))

    @property
    def packs(self) -> bool:
        """Whether operands may be copied into the workspace first, to lie where they can be read.

        On tensor cores all copies are of 16 bytes, but where kernels say that they do not `pack`,
        and those of kernels for few rows. CUDA cores read elements wherever they lie.
        """
        on_tensor_cores = self.row.takes_workspace and self.instruction is not None
        return on_tensor_cores and bool(self.tunables.get("pack", 1))

    @property
    def has_partials(self) -> bool:
        """Whether the workspace may hold partial sums."""
        return self.split_k != 1 or self.stream_k

    @property
    def epilogue(self) -> str:
        """What becomes of the sums: one of `EPILOGUES`, or the text of an expression."""
        return str(self.tunables.get("epilogue", "linear"))

    @property
    def has_bias(self) -> bool:
        """Whether each column of D gets a bias."""
        return not self.fused and "bias" in self.epilogue

    @cached_property
    def fused(self) -> Epilogue | None:
        """The user's own epilogue, or None where it is one of `EPILOGUES`."""
        return None if self.epilogue in EPILOGUES else parse_epilogue(self.epilogue)

    @property
    def formula(self) -> str:
        """What D is, as comments have it; a bias and what follows it are not in it."""
        linear = "alpha * A * B + beta * C"
        return f"{self.fused.text}, x = {linear}" if self.fused else linear

    @property
    def operands(self) -> tuple[Operand, ...]:
        """What the user's own epilogue has besides A, B and C."""
        return self.fused.operands if self.fused else ()

    @property
    def batched(self) -> bool:
        """Whether a launch computes the products of a batch: see `gen.spec.problem.Batch`."""
        return bool(self.tunables.get("batched", False))

    @property
    def grouped_k(self) -> bool:
        """Whether a launch multiplies groups along K, and each gives a matrix D."""
        return bool(self.tunables.get("grouped_k", False))

    @property
    def grouped(self) -> bool:
        """Whether a launch multiplies groups, of rows or along K, which end as the device reads."""
        return bool(self.tunables.get("grouped", False)) or self.grouped_k

    @property
    def several(self) -> Several:
        """The products of a launch, and which matrices are several."""
        if self.batched:
            return BATCH
        return GROUPS_K if self.grouped_k else GROUPS if self.grouped else SINGLE

    @property
    def stacked(self) -> bool:
        """Whether D is several matrices."""
        return "d" in self.several.strided

    @property
    def persistent(self) -> bool:
        """Whether a block computes tile after tile."""
        return self.row.persistent or self.grouped or self.stream_k

    @property
    def most_work(self) -> int:
        """The most work tiles of a launch, or products of a batch: kernels count them as int.

        So is the number of a block's next tile, a grid of fewer than 2^16 blocks further.
        """
        return 2**31 - 2**16 if self.persistent else MAX_GRID_X

    @property
    def said(self) -> dict[str, Any]:
        """The tunables by which it is made again: all but flags that are not set."""
        return {name: value for name, value in self.tunables.items() if value is not False}

    def plan(
        self,
        problem: GemmProblem,
        alignment: Alignment = ALIGNED,
        multiprocessors: int = MULTIPROCESSORS,
    ) -> Plan:
        """How the kernel runs a problem on a GPU with so many multiprocessors. Raises SpecError."""
        return self.row.plan(self, problem, alignment, multiprocessors)

    @cached_property
    def full_name(self) -> str:
        """The symbol that the kernel has by default: see `gen.spec.names`."""
        return default_symbol(self)

    @property
    def name(self) -> str:
        """The kernel's C symbol."""
        return self.symbol or self.full_name

    @property
    def command(self) -> str:
        """The command that emits this kernel again."""
        words = {t.name: t.show for t in self.row.tunables}  # such as auto for 0
        options = [
            option_of(name, value if value is True else words[name](value))
            for name, value in self.said.items()
        ]
        name = [f"--name {self.symbol}"] if self.symbol else []
        fixed = f"--variant {self.variant} --dtype {self.dtypes.name} --layout {self.layouts}"
        return " ".join(["gen emit", fixed, f"--arch {self.arch}", *options, *name])

    @property
    def fields(self) -> dict[str, Any]:
        """What `gen.kernels.registry.make_spec` makes an equal specification of."""
        name = {"name": self.symbol} if self.symbol else {}
        return {
            "variant": self.variant,
            "dtype": self.dtypes.name,
            "layout": str(self.layouts),
            "arch": self.arch,
            **self.said,
            **name,
        }

    def to_json(self) -> str:
        """One line that `gen.kernels.registry.spec_from_json` turns into an equal specification."""
        return json.dumps(self.fields)

    @cached_property
    def core(self) -> str:
        """Its variant, architecture and tunables: all but what one launch computes besides the
        product, or of how many.

        Kernels with the same core are one kernel to a table of measured times.
        """
        beside = ("epilogue", "batched")
        tunables = (f"{name}={x}" for name, x in self.tunables.items() if name not in beside)
        return " ".join((self.variant, self.arch, *tunables))
