"""Element types, and which of them go together in a GEMM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gen.errors import UsageError, unknown


class ElementType(NamedTuple):
    """A scalar type: its name here, in CUDA C++, its size in bytes, the header that declares it."""

    name: str
    cuda: str
    size: int
    header: str | None = None
    is_float: bool = True

    @property
    def is_fp8(self) -> bool:
        """Whether it is a float of 8 bits."""
        return self.is_float and self.size == 1


ELEMENT_TYPES = {
    t.name: t
    for t in (
        ElementType("f32", "float", 4),
        ElementType("f64", "double", 8),
        ElementType("i32", "int", 4, is_float=False),
        ElementType("f16", "__half", 2, "cuda_fp16.h"),
        ElementType("bf16", "__nv_bfloat16", 2, "cuda_bf16.h"),
        # A float of which tensor cores use 11 of the significand's 24 bits.
        ElementType("tf32", "float", 4),
        ElementType("i8", "signed char", 1, is_float=False),
        # fp8, named by the bits of exponent and fraction.
        ElementType("e4m3", "__nv_fp8_e4m3", 1, "cuda_fp8.h"),
        ElementType("e5m2", "__nv_fp8_e5m2", 1, "cuda_fp8.h"),
    )
}


@dataclass(frozen=True)
class DTypes:
    """Element types of a GEMM: A and B; the sums; C, D and the bias.

    factor: what is multiplied. That is the input, or else one of its `parts`, whose sum it is.
    """

    name: str
    input: ElementType
    accumulator: ElementType
    output: ElementType
    factor: ElementType
    parts: int = 1

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def products(self) -> int:
        """How many are made of two elements: of their parts p and q those with p + q < parts."""
        return self.parts * (self.parts + 1) // 2

    @property
    def scalar(self) -> ElementType:
        """The type of alpha, of beta and of the epilogue's arithmetic: the sums', at least f32."""
        return self.accumulator if self.accumulator.size >= 4 else ELEMENT_TYPES["f32"]


def _dtypes(
    name: str, accumulator: str, output: str, factor: str | None = None, parts: int = 1
) -> DTypes:
    t, input_ = ELEMENT_TYPES, name.partition("_")[0]
    return DTypes(name, t[input_], t[accumulator], t[output], t[factor or input_], parts)


DTYPES: Mapping[str, DTypes] = {
    d.name: d
    for d in (
        _dtypes("f32", "f32", "f32"),
        _dtypes("f64", "f64", "f64"),
        _dtypes("i32", "i32", "i32"),
        _dtypes("f16", "f32", "f16"),
        _dtypes("f16_f16", "f16", "f16"),
        _dtypes("f16_f32", "f32", "f32"),
        _dtypes("bf16", "f32", "bf16"),
        _dtypes("bf16_f32", "f32", "f32"),
        _dtypes("tf32", "f32", "f32"),
        _dtypes("i8", "i32", "i32"),
        _dtypes("e4m3", "f32", "bf16"),
        _dtypes("e4m3_f16", "f32", "f16"),
        _dtypes("e4m3_f32", "f32", "f32"),
        _dtypes("e5m2", "f32", "bf16"),
        _dtypes("e5m2_f16", "f32", "f16"),
        _dtypes("e5m2_f32", "f32", "f32"),
        # Three parts of 8 bits: of the nine products of one's parts by another's, six are made.
        _dtypes("f32_6xbf16", "f32", "f32", "bf16", 3),
    )
}

# What the kernels on CUDA cores have, and those on tensor cores.
SCALAR_DTYPES = ("f32", "f64", "i32", "f16", "bf16", "i8")
TENSOR_DTYPES = (
    "f16", "f16_f16", "f16_f32", "bf16", "bf16_f32", "tf32", "i8",
    "e4m3", "e4m3_f16", "e4m3_f32", "e5m2", "e5m2_f16", "e5m2_f32",
)  # fmt: skip


def parse_dtype(name: str) -> DTypes:
    """The element types called `name` (see `DTYPES`). Raises UsageError."""
    if name not in DTYPES:
        for row in DTYPES.values():
            if name == f"{row.input.name}_{row.output.name}":
                raise UsageError(f"dtype {name} is called {row.name}; use that")
        raise unknown("dtype", name, DTYPES)
    return DTYPES[name]
