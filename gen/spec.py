"""What is asked for: the problem (`GemmProblem`) and the choice of a kernel (`KernelSpec`).

The two never mix: a specification says how a kernel is built, a problem what it is run on.
Everything here is frozen, printable, and free of numpy and CUDA.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gen.errors import SpecError, UsageError, unknown


class ElementType(NamedTuple):
    """A scalar type: its name here, in CUDA C++, its size in bytes, the header that declares it."""

    name: str
    cuda: str
    size: int
    header: str | None = None
    is_float: bool = True


ELEMENT_TYPES = {
    t.name: t
    for t in (
        ElementType("f32", "float", 4),
        ElementType("f64", "double", 8),
        ElementType("i32", "int", 4, is_float=False),
        ElementType("f16", "__half", 2, "cuda_fp16.h"),
        ElementType("bf16", "__nv_bfloat16", 2, "cuda_bf16.h"),
        ElementType("i8", "signed char", 1, is_float=False),
    )
}


@dataclass(frozen=True)
class DTypes:
    """Element types of a GEMM: A and B; the sums, alpha and beta; C and D."""

    name: str
    input: ElementType
    accumulator: ElementType
    output: ElementType


def _dtypes(input_: str, accumulator: str, output: str) -> DTypes:
    t = ELEMENT_TYPES
    return DTypes(input_, t[input_], t[accumulator], t[output])


DTYPES: Mapping[str, DTypes] = {
    d.name: d
    for d in (
        _dtypes("f32", "f32", "f32"),
        _dtypes("f64", "f64", "f64"),
        _dtypes("i32", "i32", "i32"),
        _dtypes("f16", "f32", "f16"),
        _dtypes("bf16", "f32", "bf16"),
        _dtypes("i8", "i32", "i32"),
    )
}


def parse_dtype(name: str) -> DTypes:
    """The element types called `name` (see `DTYPES`). Raises UsageError."""
    if name not in DTYPES:
        raise unknown("dtype", name, DTYPES)
    return DTYPES[name]


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
        shape: GemmShape, layouts: Layouts, alpha: float = 1, beta: float = 0, padding: int = 0
    ) -> GemmProblem:
        """Rows (or columns) stored one after another, `padding` elements apart.

        With padding, those of D are two more apart than those of C: a kernel that takes the one
        leading dimension for the other must not come out right.
        """
        m, n, k = shape.m, shape.n, shape.k
        lda = (k if layouts.a else m) + padding
        ldb = (n if layouts.b else k) + padding
        ldc = (n if layouts.c else m) + padding
        return GemmProblem(shape, lda, ldb, ldc, ldc + (2 if padding else 0), alpha, beta)


class Tile(NamedTuple):
    """Rows and columns of D, and the step along K."""

    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"


# Longer names would push the emitted file's lines past 100 columns.
MAX_SYMBOL = 76


@dataclass(frozen=True)
class KernelSpec:
    """One kernel, completely chosen. Made by `gen.registry.make_spec`, which checks it.

    `tunables` are what the user may set; `threadblock` (the part of D a block computes at a time,
    and its step along K), `threads` (x, y) and the shared memory follow from them.
    """

    variant: str
    dtypes: DTypes
    layouts: Layouts
    arch: str
    tunables: Mapping[str, int] = field(hash=False)
    threadblock: Tile
    threads: tuple[int, int]
    stages: int = 1
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
    def full_name(self) -> str:
        """gemm_<variant>_<dtypes>_<layouts>_tb<M>x<N>x<K>_t<threads>_s<stages>[_g<grid>]_<arch>.

        Different specifications have different full names.
        """
        grid = self.tunables.get("grid", 0)
        parts = [
            "gemm",
            self.variant,
            self.dtypes.name,
            str(self.layouts),
            f"tb{self.threadblock}",
            f"t{self.threads[0] * self.threads[1]}",
            f"s{self.stages}",
            *([f"g{grid}"] if grid else []),
            self.arch.replace("_", ""),
        ]
        return "_".join(parts)

    @property
    def name(self) -> str:
        """The kernel's C symbol."""
        return self.symbol or self.full_name

    @property
    def command(self) -> str:
        """The command that emits this kernel again."""
        options = [f"--{key} {value}" for key, value in self.tunables.items()]
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
