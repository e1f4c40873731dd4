"""What is asked for: the problem (`GemmProblem`) and the choice of a kernel (`KernelSpec`).

The two never mix: a specification says how a kernel is built, a problem what it is run on.
Everything here is frozen, printable, and free of numpy and CUDA.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gen.dtypes import DTYPES as DTYPES
from gen.dtypes import DTypes as DTypes
from gen.dtypes import parse_dtype as parse_dtype
from gen.errors import SpecError, UsageError


@dataclass(frozen=True)
class Layouts:
    """Storage order of A, B and of C and D: True is row-major, False column-major."""

    a: bool
    b: bool
    c: bool

    def __str__(self) -> str:
        return "".join("r" if row_major else "c" for row_major in (self.a, self.b, self.c))


ALL_LAYOUTS = tuple(f"{a}{b}{c}" for a in "rc" for b in "rc" for c in "rc")


def parse_layout(name: str) -> Layouts:
    """Three letters for A, B, C: r (row-major) or c (column-major). Raises UsageError."""
    if name not in ALL_LAYOUTS:
        raise UsageError(
            f"layout '{name}' is not three letters r (row-major) or c (column-major) "
            f"for A, B and C; use one of {', '.join(ALL_LAYOUTS)}"
        )
    return Layouts(*(letter == "r" for letter in name))


# Compute capability -> shared memory a block may have, in KiB (CUDA C++ Programming Guide,
# "Technical Specifications per Compute Capability"). CUDA 13 compiles for these.
SHARED_KIB = {
    75: 64, 80: 163, 86: 99, 87: 163, 88: 99, 89: 99, 90: 227,
    100: 227, 103: 227, 110: 227, 120: 99, 121: 99,
}  # fmt: skip


def compute_capability(arch: str) -> int:
    """`sm_90a` -> 90. Raises UsageError for what is no architecture that CUDA 13 compiles for."""
    match = re.fullmatch(r"sm_(\d+)([af]?)", arch)
    if not match or int(match[1]) not in SHARED_KIB or (match[2] and int(match[1]) < 90):
        known = ", ".join(f"sm_{cc}" for cc in SHARED_KIB)
        raise UsageError(f"unknown architecture '{arch}'; use one of {known}")
    return int(match[1])


@dataclass(frozen=True)
class GemmShape:
    """D is M x N, A is M x K, B is K x N; each at least 0."""

    m: int
    n: int
    k: int

    def __post_init__(self) -> None:
        for name, value in zip("MNK", (self.m, self.n, self.k), strict=True):
            if not 0 <= value < 2**63:
                raise SpecError(f"{name}={value} is not a size; use 0 or more, below 2^63")

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"


def parse_shape(text: str) -> GemmShape:
    """`MxNxK`, or one number for a cube. Raises UsageError."""
    match = re.fullmatch(r"(\d+)(?:x(\d+)x(\d+))?", text.strip().lower())
    if not match:
        raise UsageError(f"shape '{text}' is not MxNxK, such as 128x64x32 or 512 for a cube")
    m = int(match[1])
    return GemmShape(m, int(match[2] or m), int(match[3] or m))


@dataclass(frozen=True)
class GemmProblem:
    """D = alpha * A * B + beta * C, with BLAS leading dimensions counted in elements."""

    shape: GemmShape
    lda: int
    ldb: int
    ldc: int
    ldd: int
    alpha: float = 1
    beta: float = 0

    @staticmethod
    def packed(
        shape: GemmShape,
        layouts: Layouts,
        alpha: float = 1,
        beta: float = 0,
        padding: int = 0,
        multiple: int = 1,
    ) -> GemmProblem:
        """Rows (or columns) stored one after another, `padding` elements apart.

        With padding, those of B are two more apart than those of A, and those of D than those of C:
        a kernel that takes the one leading dimension for the other must not come out right. All
        leading dimensions are rounded up to a multiple of `multiple` elements.
        """
        m, n, k = shape.m, shape.n, shape.k
        lengths = [k if layouts.a else m, n if layouts.b else k, n if layouts.c else m]
        lda, ldb, ldc = (length + padding for length in lengths)
        more = 2 if padding else 0
        ldb, ldd = ldb + more, ldc + more
        lda, ldb, ldc, ldd = (-(-ld // multiple) * multiple for ld in (lda, ldb, ldc, ldd))
        return GemmProblem(shape, lda, ldb, ldc, ldd, alpha, beta)


class Tile(NamedTuple):
    """Rows and columns of D, and the step along K."""

    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"


# What follows the product of matrices: alpha * A * B + beta * C is `linear`; then comes one bias
# for each column of D, then a function of each element.
EPILOGUES = ("linear", "linear_bias", "linear_bias_relu", "linear_bias_gelu")

# Tiles of D along M that are computed close in time, so that they share operands in the L2 cache.
USUAL_SWIZZLE = 12

# Longer names would push the emitted file's lines past 100 columns.
MAX_SYMBOL = 76


@dataclass(frozen=True)
class KernelSpec:
    """One kernel, completely chosen. Made by `gen.registry.make_spec`, which checks it.

    `tunables` are what the user may set, each an integer or the text that stands for it ("64x64");
    `threadblock` (the part of D a block computes at a time, and its step along K), `threads` (x, y)
    and the shared memory follow from them.
    """

    variant: str
    dtypes: DTypes
    layouts: Layouts
    arch: str
    tunables: Mapping[str, Any] = field(hash=False)
    threadblock: Tile
    threads: tuple[int, int]
    warp: Tile | None = None
    instruction: Tile | None = None
    symbol: str | None = None

    def __post_init__(self) -> None:
        if self.symbol is None:
            return
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", self.symbol):
            raise SpecError(f"name '{self.symbol}' is not a C identifier; use letters, digits, _")
        if len(self.symbol) > MAX_SYMBOL:
            raise SpecError(
                f"name has {len(self.symbol)} characters, more than {MAX_SYMBOL}; use a shorter one"
            )

    @property
    def stages(self) -> int:
        """Tiles of each operand in shared memory at the same time."""
        return int(self.tunables.get("stages", 1))

    @property
    def sliced_k(self) -> int:
        """Teams of warps that compute the same tile and take turns along K."""
        return int(self.tunables.get("sliced_k", 1))

    @property
    def split_k(self) -> int:
        """Slices of K that are summed apart, at most; 0: as many as suit problem and GPU."""
        return int(self.tunables.get("split_k", 1))

    @property
    def epilogue(self) -> str:
        """What becomes of the sums: one of `EPILOGUES`."""
        return str(self.tunables.get("epilogue", "linear"))

    @property
    def has_bias(self) -> bool:
        """Whether each column of D gets a bias."""
        return "bias" in self.epilogue

    @property
    def full_name(self) -> str:
        """gemm_<variant>_<dtypes>_<layouts>_tb<M>x<N>x<K>_t<threads>_s<stages>[_g<grid>]_<arch>.

        With warps' tiles: .._tb<M>x<N>x<K>_w<M>x<N>_<instruction>_s<stages>[_g<swizzle>]
        [_tk<teams>][_sk<slices>][_<epilogue>]_<arch>, without what is as usual. Different
        specifications have different full names.
        """
        parts = [
            *("gemm", self.variant, self.dtypes.name, str(self.layouts), f"tb{self.threadblock}"),
            *(self._warp_names() if self.warp else self._thread_names()),
            self.arch.replace("_", ""),
        ]
        return "_".join(parts)

    def _thread_names(self) -> list[str]:
        grid = self.tunables.get("grid", 0)
        threads = self.threads[0] * self.threads[1]
        return [f"t{threads}", f"s{self.stages}", *([f"g{grid}"] if grid else [])]

    def _warp_names(self) -> list[str]:
        assert self.warp
        swizzle = self.tunables["swizzle"]
        return [
            f"w{self.warp.m}x{self.warp.n}",
            self.tunables["instruction"],
            f"s{self.stages}",
            *([f"g{swizzle}"] if swizzle != USUAL_SWIZZLE else []),
            *([f"tk{self.sliced_k}"] if self.sliced_k != 1 else []),
            *([f"sk{self.split_k or 'auto'}"] if self.split_k != 1 else []),
            *([self.epilogue] if self.epilogue != "linear" else []),
        ]

    @property
    def name(self) -> str:
        """The kernel's C symbol."""
        return self.symbol or self.full_name

    @property
    def command(self) -> str:
        """The command that emits this kernel again."""
        options = [f"--{key.replace('_', '-')} {value}" for key, value in self.tunables.items()]
        name = [f"--name {self.symbol}"] if self.symbol else []
        fixed = f"--variant {self.variant} --dtype {self.dtypes.name} --layout {self.layouts}"
        return " ".join(["gen emit", fixed, f"--arch {self.arch}", *options, *name])

    def to_json(self) -> str:
        """One line that `gen.registry.spec_from_json` turns into an equal specification."""
        fields: dict[str, object] = {
            "variant": self.variant,
            "dtype": self.dtypes.name,
            "layout": str(self.layouts),
            "arch": self.arch,
            **self.tunables,
        }
        if self.symbol:
            fields["name"] = self.symbol
        return json.dumps(fields)
