"""Element types of kernels' arguments: how each lies in memory, and which values that are.

numpy has no bf16 and no 8-bit floats: their arrays are bit patterns, as in `gen.spec.numerics`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gen.errors import unknown
from gen.spec import numerics

Array = npt.NDArray[Any]

_STORAGE: Mapping[str, Any] = {
    "f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": np.uint16, "tf32": np.float32,
    "e4m3": np.uint8, "e5m2": np.uint8, "i8": np.int8, "u8": np.uint8, "i16": np.int16,
    "u16": np.uint16, "i32": np.int32, "u32": np.uint32, "i64": np.int64, "u64": np.uint64,
    "bool": np.bool_,
}  # fmt: skip
NAMES = tuple(_STORAGE)
_FP8 = ("e4m3", "e5m2")
FLOATS = ("f32", "f64", "f16", "bf16", "tf32", *_FP8)

# How much a float may differ from what is expected, relative to the largest of that.
TOLERANCE = {"f64": 1e-12, "f32": 1e-5, "tf32": 2e-3, "f16": 5e-3, "bf16": 4e-2, "e4m3": 0.15,
             "e5m2": 0.3}  # fmt: skip

# The types of C++ by the names that sources use.
_CXX = {
    "float": "f32", "double": "f64", "half": "f16", "__half": "f16", "__nv_bfloat16": "bf16",
    "nv_bfloat16": "bf16", "bfloat16": "bf16", "__nv_fp8_e4m3": "e4m3", "__nv_fp8_e5m2": "e5m2",
    "__nv_fp8_storage_t": "u8", "bool": "bool", "char": "i8", "signed char": "i8",
    "unsigned char": "u8", "uchar": "u8", "short": "i16", "unsigned short": "u16", "ushort": "u16",
    "int": "i32", "signed int": "i32", "signed": "i32", "unsigned int": "u32", "unsigned": "u32",
    "uint": "u32", "long": "i64", "long int": "i64", "unsigned long": "u64", "ulong": "u64",
    "long unsigned int": "u64", "long long": "i64", "long long int": "i64",
    "unsigned long long": "u64", "unsigned long long int": "u64", "size_t": "u64",
    "ssize_t": "i64", "ptrdiff_t": "i64", "int8_t": "i8", "uint8_t": "u8", "int16_t": "i16",
    "uint16_t": "u16", "int32_t": "i32", "uint32_t": "u32", "int64_t": "i64", "uint64_t": "u64",
}  # fmt: skip


def storage(name: str) -> np.dtype[Any]:
    """The numpy type that holds elements of a type. Raises UsageError."""
    if name not in _STORAGE:
        raise unknown("element type", name, NAMES)
    dtype: np.dtype[Any] = np.dtype(_STORAGE[name])
    return dtype


def of_cxx(text: str) -> str | None:
    """The element type of a C++ type, if it is known: `const unsigned int` is `u32`."""
    return _CXX.get(re.sub(r"^std::", "", " ".join(text.split())))


def of_dtype(dtype: np.dtype[Any]) -> str:
    """The element type of a numpy array; ml_dtypes' are known by their names."""
    names = {"bfloat16": "bf16", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}
    if dtype.name in names:
        return names[dtype.name]
    for name, kind in _STORAGE.items():
        if dtype == np.dtype(kind):
            return name
    raise unknown("element type", str(dtype), NAMES)


def is_narrow(name: str) -> bool:
    """Whether elements have bits in the place of numbers that numpy knows."""
    return name in ("bf16", *_FP8)


def values(array: Array, name: str) -> Array:
    """Storage as numbers: float32 or wider for floats, as it is for integers."""
    if is_narrow(name):
        wide: Array = numerics.to_float64(array, name).astype(np.float32)
        return wide
    return array


def stored(numbers: Array, name: str) -> Array:
    """Numbers as storage, rounded to nearest where they have to be.

    What is too large for fp8 becomes the largest number.
    """
    if name in ("bf16", "tf32"):
        return numerics.from_float64(numbers, name)
    if name in _FP8:
        most = numerics.largest(name)
        return numerics.from_float64(np.clip(np.asarray(numbers, np.float64), -most, most), name)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(numbers).astype(storage(name))


def poison(name: str) -> Any:
    """A value that spoils what it gets into: NaN, or ones in all bits."""
    return storage(name).type(np.nan) if name in ("f32", "f64", "f16", "tf32") else None
