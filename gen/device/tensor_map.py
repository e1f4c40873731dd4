"""Tensor maps on a GPU: what TMA needs to know of a matrix, as the driver encodes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gen.device.driver import bindings, call
from gen.errors import CheckError

if TYPE_CHECKING:
    from cuda.bindings.driver import CUtensorMap

    from gen.kernels.launches import TensorMap

# tf32 is f32 in memory, and rounded as it is copied: tensor cores would cut it off.
_ELEMENTS = {
    "f16": "FLOAT16", "bf16": "BFLOAT16", "tf32": "TFLOAT32", "f32": "FLOAT32", "f64": "FLOAT64",
    "i8": "UINT8", "i32": "INT32", "e4m3": "UINT8", "e5m2": "UINT8",
}  # fmt: skip


def codes(described: TensorMap) -> tuple[Any, Any]:
    """The driver's numbers for the type of a map's elements and for its swizzle."""
    driver = bindings()
    element = f"CU_TENSOR_MAP_DATA_TYPE_{_ELEMENTS[described.element]}"
    swizzle = f"CU_TENSOR_MAP_SWIZZLE_{described.swizzle}B"
    return getattr(driver.CUtensorMapDataType, element), getattr(driver.CUtensorMapSwizzle, swizzle)


def encode(described: TensorMap, address: int) -> CUtensorMap:
    """The 128 bytes that a kernel takes; zeros for a map of nothing.

    `address` is that of the matrix, a multiple of 16 bytes. Raises CheckError.
    """
    driver = bindings()
    if 0 in described.dims:
        return driver.CUtensorMap()
    element, swizzle = codes(described)
    sizes, strides, box = described.tiled
    try:
        return call(
            "cuTensorMapEncodeTiled",
            element,
            len(sizes),
            address,
            [driver.cuuint64_t(n) for n in sizes],
            [driver.cuuint64_t(n) for n in strides],
            [driver.cuuint32_t(n) for n in box],
            [driver.cuuint32_t(1)] * len(box),
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    except CheckError as error:
        raise CheckError(f"the driver refuses {described}: {error}") from None
